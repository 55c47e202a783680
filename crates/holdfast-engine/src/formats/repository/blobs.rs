//! Stores blobs: threads hash, compress and seal them, and packs are filled with those that the repository does not
//! have yet. Everything here blocks, and what is in work is bounded.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use holdfast_core::random;
use holdfast_repository::{BlobKind, Id, Key, MasterIndex, PackBuilder, PackedBlob, SealedBlob, seal_blob};
use tokio::sync::mpsc;

use super::blob_reader::SharedIndex;
use super::folders::TreeSink;
use super::place::of_repository;
use crate::error::{EngineError, Result, classify};
use crate::pool::Pool;

/// A pack is ended when it has this many bytes.
const PACK_BYTES: usize = 16 * 1024 * 1024;
/// Small chunks are handed to the threads together, up to this many bytes or chunks.
const BATCH_BYTES: usize = 512 * 1024;
const BATCH_CHUNKS: usize = 256;
/// How many bytes of chunks may be in work.
const WORK_BYTES: usize = 24 * 1024 * 1024;

/// A pack that is ready to be stored.
pub(super) struct FullPack {
    pub id: Id,
    pub bytes: Bytes,
    pub blobs: Vec<PackedBlob>,
}

/// What came of a chunk.
struct Sealed {
    id: Id,
    /// `None` if the repository has it already.
    blob: Option<SealedBlob>,
}

struct InWork {
    bytes: usize,
    done: Receiver<io::Result<Vec<Sealed>>>,
}

pub(super) struct BlobWriter {
    pool: Pool,
    key: Key,
    index: SharedIndex,
    batch: Vec<Vec<u8>>,
    batch_bytes: usize,
    in_work: VecDeque<InWork>,
    bytes_in_work: usize,
    /// Each chunk goes into one of two packs at random, so that the sizes of packs tell less about the chunks.
    data: [PackBuilder; 2],
    trees: PackBuilder,
    /// What is in packs that are not full, and so not in the index.
    in_open_packs: HashSet<(BlobKind, Id)>,
    packs: mpsc::Sender<FullPack>,
}

impl BlobWriter {
    pub(super) fn new(pool: &Pool, key: &Key, index: SharedIndex, packs: mpsc::Sender<FullPack>) -> Self {
        Self {
            pool: pool.clone(),
            key: key.clone(),
            index,
            batch: Vec::new(),
            batch_bytes: 0,
            in_work: VecDeque::new(),
            bytes_in_work: 0,
            data: Default::default(),
            trees: PackBuilder::default(),
            in_open_packs: HashSet::new(),
            packs,
        }
    }

    /// Takes a chunk. Passes the ids of earlier ones to `on_id`, in the order in which they were taken.
    pub(super) fn push(&mut self, chunk: Vec<u8>, on_id: &mut dyn FnMut(Id) -> Result<()>) -> Result<()> {
        self.batch_bytes += chunk.len();
        self.batch.push(chunk);
        if self.batch_bytes >= BATCH_BYTES || self.batch.len() == BATCH_CHUNKS {
            self.send_off()?;
        }
        while self.bytes_in_work > WORK_BYTES {
            self.take_oldest(on_id)?;
        }
        Ok(())
    }

    /// Waits for all chunks.
    pub(super) fn drain(&mut self, on_id: &mut dyn FnMut(Id) -> Result<()>) -> Result<()> {
        self.send_off()?;
        while !self.in_work.is_empty() {
            self.take_oldest(on_id)?;
        }
        Ok(())
    }

    fn send_off(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let (chunks, bytes) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batch_bytes));
        let (key, index) = (self.key.clone(), self.index.clone());
        let done = self.pool.run(move |compressor| {
            let seal = |chunk: &Vec<u8>| {
                let id = Id::of(chunk);
                if has(&index, BlobKind::Data, &id) {
                    return Ok(Sealed { id, blob: None });
                }
                let blob = seal_blob((BlobKind::Data, id), chunk, compressor, &key).map_err(of_repository)?;
                Ok(Sealed { id, blob: Some(blob) })
            };
            chunks.iter().map(seal).collect()
        });
        self.in_work.push_back(InWork { bytes, done: done.map_err(|error| EngineError::internal(&error))? });
        self.bytes_in_work += bytes;
        Ok(())
    }

    fn take_oldest(&mut self, on_id: &mut dyn FnMut(Id) -> Result<()>) -> Result<()> {
        let Some(InWork { bytes, done }) = self.in_work.pop_front() else { return Ok(()) };
        let sealed = done.recv().map_err(|_| EngineError::internal("a thread of the pool is gone"))?;
        self.bytes_in_work -= bytes;
        for Sealed { id, blob } in
            sealed.map_err(|error| classify(&error, FailureCode::Internal, "A chunk cannot be stored"))?
        {
            if let Some(blob) = blob {
                let [first, _] = random::bytes::<2>();
                self.put(&blob, usize::from(first & 1))?;
            }
            on_id(id)?;
        }
        Ok(())
    }

    /// Puts a sealed blob into a pack, unless an equal one was put into one meanwhile.
    fn put(&mut self, blob: &SealedBlob, which: usize) -> Result<()> {
        if has(&self.index, blob.kind, &blob.id) || !self.in_open_packs.insert((blob.kind, blob.id)) {
            return Ok(());
        }
        let pack = match blob.kind {
            BlobKind::Data => &mut self.data[which],
            BlobKind::Tree => &mut self.trees,
        };
        pack.add(blob).map_err(of_repository)?;
        if pack.len() >= PACK_BYTES {
            let full = std::mem::take(pack);
            self.send_pack(full)?;
        }
        Ok(())
    }

    fn send_pack(&mut self, pack: PackBuilder) -> Result<()> {
        let (id, bytes, blobs) = pack.finish(&self.key).map_err(of_repository)?;
        self.index.write().unwrap_or_else(PoisonError::into_inner).add(id, &blobs).map_err(of_repository)?;
        for blob in &blobs {
            self.in_open_packs.remove(&(blob.kind, blob.id));
        }
        // If nobody receives it, storing an earlier one has failed, which is told there.
        let pack = FullPack { id, bytes: bytes.into(), blobs };
        self.packs.blocking_send(pack).map_err(|_| EngineError::cancelled())
    }

    /// Ends the packs that are not full. All chunks must have been waited for.
    pub(super) fn finish(mut self) -> Result<()> {
        let [first, second] = std::mem::take(&mut self.data);
        let trees = std::mem::take(&mut self.trees);
        for pack in [first, second, trees] {
            if !pack.is_empty() {
                self.send_pack(pack)?;
            }
        }
        Ok(())
    }
}

impl TreeSink for BlobWriter {
    fn store(&mut self, tree: Vec<u8>) -> Result<Id> {
        let id = Id::of(&tree);
        if has(&self.index, BlobKind::Tree, &id) {
            return Ok(id);
        }
        let key = self.key.clone();
        let done = self.pool.run(move |compressor| {
            seal_blob((BlobKind::Tree, id), &tree, compressor, &key).map_err(|error| of_repository(error).into())
        });
        let gone = |_| EngineError::internal("a thread of the pool is gone");
        let sealed = done.map_err(|error| EngineError::internal(&error))?.recv().map_err(gone)?;
        let blob = sealed.map_err(|error| classify(&error, FailureCode::Internal, "A folder cannot be stored"))?;
        self.put(&blob, 0)?;
        Ok(id)
    }
}

fn has(index: &RwLock<MasterIndex>, kind: BlobKind, id: &Id) -> bool {
    index.read().unwrap_or_else(PoisonError::into_inner).contains(kind, id)
}
