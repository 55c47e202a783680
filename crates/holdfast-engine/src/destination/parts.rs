//! The parts of an upload: how large each one is, and where it is kept until the store has it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use holdfast_core::random;
use md5::{Digest as _, Md5};

use crate::error::{EngineError, Result};
use crate::sha256::Sha256;

const MIB: u64 = 1024 * 1024;

/// A store's limits for parts. The defaults are those of S3; tests use smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartLimits {
    /// The smallest and the largest part that the store accepts.
    pub least_bytes: u64,
    pub most_bytes: u64,
    pub max_parts: usize,
    pub max_object_bytes: u64,
    /// The size of the first part of an object of unknown size.
    pub unknown_bytes: u64,
    /// Larger parts are kept in a file.
    pub in_memory_bytes: u64,
    /// The number of parts that have the same size, which some stores prefer; later parts grow.
    pub equal_parts: usize,
    /// The size of a growing part is that of all data sent before it divided by this.
    pub growth_share: u64,
}

impl Default for PartLimits {
    fn default() -> Self {
        Self {
            least_bytes: 5 * MIB,
            most_bytes: 5 * 1024 * MIB,
            max_parts: 10_000,
            max_object_bytes: 5 * 1024 * 1024 * MIB,
            unknown_bytes: 16 * MIB,
            in_memory_bytes: 64 * MIB,
            equal_parts: 5_000,
            growth_share: 900,
        }
    }
}

impl PartLimits {
    /// How to divide an object of about this size into parts; 0 means unknown. The expected size plus a quarter fits
    /// into equal parts. With `all_equal` parts never grow, for stores that require this.
    pub(crate) fn plan(self, expected_bytes: u64, all_equal: bool) -> PartPlan {
        let first_bytes = match expected_bytes {
            0 if all_equal => self.in_memory_bytes,
            0 => self.unknown_bytes,
            _ => {
                let wanted_parts = (self.equal_parts as u64 * 4 / 5).max(1);
                let needed = expected_bytes.min(self.max_object_bytes).div_ceil(wanted_parts);
                needed.next_multiple_of(MIB).clamp(self.least_bytes, self.most_bytes)
            }
        };
        PartPlan { first_bytes, all_equal, limits: self }
    }
}

/// How one upload is divided into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartPlan {
    pub(crate) first_bytes: u64,
    all_equal: bool,
    pub(crate) limits: PartLimits,
}

impl PartPlan {
    /// Parts of one size, without a limit on their number, all in memory.
    pub(crate) fn fixed(part_bytes: u64) -> Self {
        let limits = PartLimits {
            max_parts: usize::MAX,
            max_object_bytes: u64::MAX,
            in_memory_bytes: part_bytes,
            ..PartLimits::default()
        };
        Self { first_bytes: part_bytes, all_equal: true, limits }
    }

    /// The size of the part with this index, after `sent_bytes` have been sent.
    pub(crate) fn part_bytes(&self, index: usize, sent_bytes: u64) -> u64 {
        if self.all_equal || index < self.limits.equal_parts {
            return self.first_bytes;
        }
        let grown = (sent_bytes / self.limits.growth_share).next_multiple_of(MIB);
        grown.clamp(self.first_bytes, self.limits.most_bytes.max(self.first_bytes))
    }
}

/// The content of a part. Cheap to clone, so that it can be sent again.
#[derive(Debug, Clone)]
pub enum PartBody {
    Memory(Vec<Bytes>),
    File(Arc<SpooledPart>),
}

impl From<Vec<Bytes>> for PartBody {
    fn from(chunks: Vec<Bytes>) -> Self {
        Self::Memory(chunks)
    }
}

impl PartBody {
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Memory(chunks) => chunks.iter().map(|chunk| chunk.len() as u64).sum(),
            Self::File(part) => part.bytes,
        }
    }
}

/// A part in an unnamed temporary file: nothing of it is left behind, even if the process is killed.
#[derive(Debug)]
pub struct SpooledPart {
    file: File,
    bytes: u64,
    sha256: [u8; 32],
    md5: String,
}

/// How much of a spooled part is read at once.
const PIECE_BYTES: u64 = 256 * 1024;

impl SpooledPart {
    pub(crate) fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }

    pub(crate) fn md5(&self) -> &str {
        &self.md5
    }

    /// The piece that begins at `offset`; `None` at the end.
    pub(crate) fn piece(&self, offset: u64) -> io::Result<Option<Bytes>> {
        let length = PIECE_BYTES.min(self.bytes.saturating_sub(offset));
        if length == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut piece, offset)?;
        Ok(Some(piece.into()))
    }

    pub(crate) fn stream(self: Arc<Self>) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::try_unfold((self, 0), |(part, offset)| async move {
            let reader = part.clone();
            let piece = tokio::task::spawn_blocking(move || reader.piece(offset)).await.map_err(io::Error::other)??;
            Ok(piece.map(|piece| {
                let next = offset + piece.len() as u64;
                (piece, (part, next))
            }))
        })
    }
}

/// Collects a large part in a file.
pub(crate) struct Spool {
    file: File,
    bytes: u64,
    sha256: Sha256,
    md5: Md5,
}

impl Spool {
    pub(crate) async fn create(folder: &Path) -> Result<Self> {
        let folder = folder.to_owned();
        let made = move || match tempfile::tempfile_in(&folder) {
            Ok(file) => Ok(Self { file, bytes: 0, sha256: Sha256::default(), md5: Md5::new() }),
            Err(error) => Err(cannot_hold(&error)),
        };
        tokio::task::spawn_blocking(made).await.map_err(EngineError::internal)?
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) async fn push(mut self, chunk: Bytes) -> Result<Self> {
        let write = move || {
            self.file.write_all(&chunk).map_err(|error| cannot_hold(&error))?;
            self.bytes += chunk.len() as u64;
            self.sha256.update(&chunk);
            self.md5.update(&chunk);
            Ok(self)
        };
        tokio::task::spawn_blocking(write).await.map_err(EngineError::internal)?
    }

    pub(crate) fn finish(self) -> Arc<SpooledPart> {
        let (sha256, md5) = (self.sha256.finish(), random::hex(&self.md5.finalize()));
        Arc::new(SpooledPart { file: self.file, bytes: self.bytes, sha256, md5 })
    }
}

fn cannot_hold(error: &io::Error) -> EngineError {
    EngineError::internal(format!(
        "Large uploads keep one part at a time in a file in Holdfast's data folder. This file could not be written: \
         {error}."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part sizes of an object of this size.
    fn cut(plan: &PartPlan, object_bytes: u64) -> Vec<u64> {
        let (mut parts, mut sent) = (Vec::new(), 0);
        while sent < object_bytes {
            let part = plan.part_bytes(parts.len(), sent).min(object_bytes - sent);
            parts.push(part);
            sent += part;
        }
        parts
    }

    const TIB: u64 = 1024 * 1024 * MIB;

    #[test]
    fn five_tebibytes_fit_whatever_was_expected() {
        for expected in [0, 1, 1_000_000, 40_000_000_000, 160_000_000_000, 640_000_000_000, 3 * TIB, 5 * TIB, 900 * TIB]
        {
            let plan = PartLimits::default().plan(expected, false);
            let parts = cut(&plan, 5 * TIB);
            assert!(parts.len() <= 10_000, "{} parts for {expected}", parts.len());
            let (last, rest) = parts.split_last().unwrap();
            assert!(rest.iter().all(|part| (5 * MIB..=5 * 1024 * MIB).contains(part)), "{expected}");
            assert!(*last <= 5 * 1024 * MIB, "{expected}");
            assert!(rest.is_sorted(), "they only grow: {expected}");
        }
    }

    #[test]
    fn parts_are_equal_while_the_size_is_what_was_expected() {
        for expected in [1, 30_000_000_000, 160_000_000_000, TIB, 4 * TIB] {
            let parts = cut(&PartLimits::default().plan(expected, false), expected + expected / 5);
            let (last, rest) = parts.split_last().unwrap();
            assert!(rest.iter().all(|part| *part == parts[0] && last <= part), "{expected}");
        }
        // The first backup of a database, up to 80 GB.
        let unknown = cut(&PartLimits::default().plan(0, false), 80_000_000_000);
        assert!(unknown[..unknown.len() - 1].iter().all(|part| *part == 16 * MIB));
    }

    #[test]
    fn stores_that_want_equal_parts_get_no_others() {
        for expected in [0, 1, 640_000_000_000, 2 * TIB] {
            let plan = PartLimits::default().plan(expected, true);
            assert!((0..10_000).all(|index| plan.part_bytes(index, u64::MAX / 2) == plan.first_bytes));
            assert!(plan.first_bytes * 10_000 >= expected * 2);
        }
        let unknown = PartLimits::default().plan(0, true);
        assert!(unknown.first_bytes * 10_000 > 640_000_000_000 && unknown.first_bytes <= 64 * MIB);
    }

    #[tokio::test]
    async fn a_spooled_part_is_read_as_it_was_written() {
        use futures_util::TryStreamExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(folder.path()).await.unwrap();
        let mut expected = Vec::new();
        for number in 0..9_u8 {
            let chunk = vec![number; 70_001];
            expected.extend_from_slice(&chunk);
            spool = spool.push(chunk.into()).await.unwrap();
        }
        let part = spool.finish();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        assert_eq!(part.sha256, Sha256::of(&expected));
        for _ in 0..2 {
            let pieces: Vec<Bytes> = part.clone().stream().try_collect().await.unwrap();
            assert_eq!(pieces.concat(), expected, "as often as it is sent");
        }
        assert_eq!(PartBody::File(part).size_bytes(), expected.len() as u64);
    }
}
