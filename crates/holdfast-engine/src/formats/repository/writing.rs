//! Writes a backup into a repository: packs, then the index, then the snapshot.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use holdfast_core::backup::name_text;
use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;
use holdfast_repository::{BlobKind, IndexFile, MasterIndex, Node, NodeKind, Snapshot, Tables, seal_json};
use tokio::sync::mpsc;

use super::blob_reader::{BlobReader, SharedIndex};
use super::blobs::{BlobWriter, FullPack};
use super::comparing::{self, Compared, Parent};
use super::entries::SnapshotReader;
use super::index_files::LoadedIndex;
use super::locks::{HeldLock, Holder};
use super::opening::{Opener, Repository, Shared};
use super::place::{FileKind, Place, of_repository};
use super::storing::{StoredSource, Storing};
use super::wanted::Wanted;
use crate::Engine;
use crate::archive::{Inspected, Packed, Received, shown_short};
use crate::context::Context;
use crate::destination::{BlobStore, Journal};
use crate::error::{EngineError, Result};
use crate::file_cache::CopyKind;
use crate::format::{BackupJob, BackupWriter, ResolvedSource, WrittenBackup};
use crate::plan::BackupPlan;
use crate::remote::Remote;
use crate::scope::Scope;
use crate::source::listing::Listing;
use crate::source::{PlainSink, files};
use crate::thread::on_thread;

/// How many packs are stored at the same time.
const PACKS_AT_ONCE: usize = 2;
/// How many pieces of a listing may wait to be compared.
const LISTING_PIECES: usize = 16;

pub(super) struct RepositoryWriter {
    repository: Repository,
    /// There was none.
    is_new: bool,
}

impl RepositoryWriter {
    /// Opens the repository, or creates it if there is none.
    pub(super) async fn begin(engine: &Engine, plan: &BackupPlan, store: Arc<dyn BlobStore>) -> Result<Self> {
        let no_plan = || EngineError::internal("a backup into a repository was planned without one");
        let (of_task, password) = plan.repository.as_ref().zip(plan.password.as_ref()).ok_or_else(no_plan)?;
        let place = Place::new(store, &of_task.folder);
        let opener = Opener {
            password,
            earlier_passwords: &of_task.earlier_passwords,
            hostname: &engine.settings.destination.lock_hostname,
            now: plan.started_at,
            shared: Shared::with_cache(engine),
        };
        Ok(match Repository::open_as(&place, &opener).await? {
            Some(repository) => Self { repository, is_new: false },
            None => Self { repository: Repository::create(&place, &opener).await?, is_new: true },
        })
    }

    async fn store(&self, engine: &Engine, job: BackupJob<'_>, lock: &HeldLock) -> Result<WrittenBackup> {
        let BackupJob { at, plan, input, manifest, journal, .. } = job;
        let (content, context) = (input.content(), at.context);
        let index = self.load_index(context).await?;
        let index: SharedIndex = Arc::new(RwLock::new(index));
        let stored = index.clone();
        let tables = Arc::new(Tables::new(self.repository.config.chunker_polynomial));
        let (packs, full) = mpsc::channel(1);
        let blobs = BlobWriter::new(&engine.pool, &self.repository.key, index.clone(), packs);
        let spool_folder = engine.settings.destination.spool_folder.clone();
        let source_path = plan.source.folder_path();
        let storing = Storing { content, blobs, tables, spool_folder, source_path, context: context.clone() };
        let (mut sink, receiver) = PlainSink::new();
        let received = Received::new(receiver);
        let manifest = serde_json::to_vec(&manifest).map_err(EngineError::internal)?;
        let compared = self.compare(at, plan, input, &storing.spool_folder, index).await?;
        let wanted = compared.as_ref().map(|(compared, _)| compared.wanted.clone());
        if let Some((Compared { kept, .. }, _)) = compared.as_ref().filter(|(compared, _)| compared.kept.entries > 0) {
            context.log.line(format!("Entries that have not changed and are not read: {}.", kept.entries));
        }
        if let Some(wanted) = &wanted {
            context.progress.set_total(wanted.plain_bytes, wanted.files);
        }
        let is_nothing_read = wanted.as_ref().is_some_and(Wanted::is_empty);
        let dump = Dump::of(plan, input);
        let working = tokio::task::spawn_blocking(move || match dump {
            None => storing.files((!is_nothing_read).then_some(received), compared),
            Some(Dump { name, node }) => storing.dump(received, &name, &manifest, &node),
        });
        let uploading = tokio::spawn(store_packs(self.repository.clone(), full, context.clone()));
        let sent = match (wanted, input) {
            (Some(wanted), _) if wanted.is_empty() => Ok(0),
            (Some(wanted), ResolvedSource::Files(source)) => {
                let (names, naming) = wanted.send_names();
                let sent = files::send_named(at, source, names, &mut sink).await;
                match naming.await.map_err(EngineError::internal) {
                    Ok(Ok(())) => sent,
                    Ok(Err(error)) | Err(error) => Err(error),
                }
            }
            _ => input.send(at, plan, &mut sink).await.map(|()| 0),
        };
        let gone = sent.as_ref().map_or(0, |gone| *gone);
        sink.close(sent.map(drop)).await;
        let source = working.await.map_err(EngineError::internal)?.and_then(|source| note_missing(source, gone));
        let uploaded = uploading.await.map_err(EngineError::internal)?;
        if context.cancel.is_cancelled() && (source.is_err() || uploaded.is_err()) {
            return Err(EngineError::cancelled());
        }
        let (source, uploaded) = match (source, uploaded) {
            (Ok(source), Ok(uploaded)) => (source, uploaded),
            // A source whose packs were not taken does not know the reason.
            (_, Err(error)) if error.code != FailureCode::Cancelled => return Err(error),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        // What the snapshot needs may have been removed otherwise.
        lock.confirm().await?;
        let written = self.finish(plan, context, source, uploaded, &*journal).await?;
        let repository_bytes = stored.read().unwrap_or_else(PoisonError::into_inner).all_bytes();
        Ok(WrittenBackup { repository_bytes: Some(repository_bytes), ..written })
    }

    /// Lists the source and compares it with the last snapshot; `None` where that cannot be done, and everything has to
    /// be read.
    async fn compare(
        &self,
        at: Remote<'_>,
        plan: &BackupPlan,
        input: ResolvedSource<'_>,
        spool_folder: &Path,
        index: SharedIndex,
    ) -> Result<Option<(Compared, i64)>> {
        let ResolvedSource::Files(source) = input else { return Ok(None) };
        let parent = self.parent(plan, index, at.context).await?;
        let (pieces, received) = mpsc::channel(LISTING_PIECES);
        let (spool_folder, listed) = (spool_folder.to_owned(), source.clone());
        let comparing =
            tokio::task::spawn_blocking(move || comparing::compare(received, parent, &listed, &spool_folder));
        let listing = files::list(at, source, pieces).await;
        let compared = comparing.await.map_err(EngineError::internal)?;
        match (listing, compared) {
            (Ok(Listing::Complete { began }), Ok(compared)) => Ok(Some((compared, began))),
            (Ok(Listing::Unavailable), _) => {
                at.context.log.line(
                    "The server has no GNU find and GNU tar for this source, so all files are read; only what is new is \
                     stored.",
                );
                Ok(None)
            }
            // A listing that nobody took does not know the reason.
            (Err(error), Ok(_)) => Err(error),
            (_, Err(error)) => Err(error),
        }
    }

    /// The source in the snapshot of the last backup. If that cannot be read, everything is read again.
    async fn parent(&self, plan: &BackupPlan, index: SharedIndex, context: &Context) -> Result<Option<Parent>> {
        let Some(locator) = plan.repository.as_ref().and_then(|of_task| of_task.parent.as_ref()) else {
            return Ok(None);
        };
        if self.is_new {
            context.log.warn(
                "The repository of the earlier backups is gone from the destination. They cannot be restored; this \
                 backup begins a new repository.",
            );
        }
        let id = locator.rsplit('/').next().and_then(|name| name.parse().ok());
        let snapshot = match id {
            Some(id) => self.repository.find_snapshot(&id).await?,
            None => None,
        };
        let Some(snapshot) = snapshot else {
            context.log.line("The snapshot of the last backup is gone, so all files are read.");
            return Ok(None);
        };
        let blobs = BlobReader::new(self.repository.clone(), index.clone(), context.cancel.clone());
        let log = context.log.clone();
        on_thread(move || match SnapshotReader::new(blobs, snapshot, Scope::default()).into_parent() {
            Ok(parent) => Ok(parent),
            Err(error) => {
                log.warn(format!("The last backup cannot be compared with, so all files are read. {error}"));
                index.write().unwrap_or_else(PoisonError::into_inner).doubt_trees();
                Ok(None)
            }
        })
        .await
    }

    async fn load_index(&self, context: &Context) -> Result<MasterIndex> {
        let LoadedIndex { index, missing, damaged, .. } = self.repository.load_index().await?;
        if !damaged.is_empty() {
            let count = damaged.len();
            context.log.warn(format!(
                "{count} files of the index of this repository are damaged. What they listed may be stored twice; a \
                 check of the repository builds the index again."
            ));
        }
        if !missing.is_empty() {
            let count = missing.len();
            context.log.warn(format!(
                "{count} packs of this repository are gone from the destination, or too short. What this backup needs of them is \
                 stored again; a verification tells which older backups are damaged."
            ));
        }
        Ok(index)
    }

    /// Stores the tree above the source, and the snapshot. Everything that it needs has been stored.
    async fn finish(
        &self,
        plan: &BackupPlan,
        context: &Context,
        source: StoredSource,
        uploaded: UploadedPacks,
        journal: &dyn Journal,
    ) -> Result<WrittenBackup> {
        let StoredSource { tree, plain_bytes, plain_sha256, is_empty, inspected, paths, .. } = source;
        let snapshot = Snapshot {
            time: plan.started_at.into(),
            parent: None,
            tree,
            paths,
            hostname: plan.server.target.host.clone(),
            username: plan.server.target.username.clone(),
            excludes: plan.source.excludes().to_vec(),
            tags: vec!["holdfast".to_owned()],
            original: None,
            program_version: PROGRAM.to_owned(),
        };
        let Repository { place, key, .. } = &self.repository;
        let (id, bytes) = seal_json(&snapshot, key).map_err(of_repository)?;
        let locator = place.key_of(FileKind::Snapshot, &id);
        journal.upload_begins(&locator).await?;
        let stored_bytes = uploaded.bytes + bytes.len() as u64;
        place.write(FileKind::Snapshot, &id, bytes.into()).await?;
        let Inspected { entries, notes, warnings, .. } = inspected;
        context.log.line(format!("New in the repository: blobs: {}, packs: {}.", uploaded.blobs, uploaded.packs));
        let packed = Packed {
            plain_bytes,
            plain_sha256,
            stored_bytes,
            stored_sha256: id.to_string(),
            entries,
            is_empty,
            notes,
            warnings,
        };
        Ok(WrittenBackup { locator, packed, repository_bytes: None })
    }
}

/// The name of this program in snapshots.
const PROGRAM: &str = concat!("holdfast ", env!("CARGO_PKG_VERSION"));

#[async_trait]
impl BackupWriter for RepositoryWriter {
    async fn write(self: Box<Self>, engine: &Engine, job: BackupJob<'_>) -> Result<WrittenBackup> {
        let context = job.at.context;
        let holder = Holder::new(&engine.settings.destination, job.plan.started_at);
        let lock = HeldLock::acquire(&self.repository, &holder, false, context).await?;
        let started_at = job.plan.started_at;
        let written = self.store(engine, job, &lock).await;
        lock.release(context).await;
        if let Some(cache) = self.repository.cache.clone()
            && let Err(error) = tokio::task::spawn_blocking(move || cache.shrink(started_at)).await
        {
            tracing::warn!(%error, "the local copies of repositories could not be looked through");
        }
        written
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct UploadedPacks {
    packs: u64,
    blobs: u64,
    bytes: u64,
}

/// Stores packs as they are filled, and lists those that are confirmed in the index.
async fn store_packs(
    repository: Repository,
    mut full: mpsc::Receiver<FullPack>,
    context: Context,
) -> Result<UploadedPacks> {
    let (mut index, mut uploaded, mut under_way) =
        (IndexFile::default(), UploadedPacks::default(), FuturesUnordered::new());
    let mut is_over = false;
    while !is_over || !under_way.is_empty() {
        tokio::select! {
            () = context.cancel.cancelled() => return Err(EngineError::cancelled()),
            pack = full.recv(), if !is_over && under_way.len() < PACKS_AT_ONCE => match pack {
                Some(pack) => {
                    let place = repository.place.clone();
                    under_way.push(async move {
                        place.write(FileKind::Pack, &pack.id, pack.bytes.clone()).await.map(|()| pack)
                    });
                }
                None => is_over = true,
            },
            Some(stored) = under_way.next() => {
                let pack = stored?;
                uploaded.packs += 1;
                uploaded.blobs += pack.blobs.len() as u64;
                uploaded.bytes += pack.bytes.len() as u64;
                // The next backup compares with the folders of this one.
                if pack.blobs.iter().any(|blob| blob.kind == BlobKind::Tree) {
                    repository.keep_copy(CopyKind::Pack, pack.id, pack.bytes.clone()).await?;
                }
                if let Some(file) = index.add(pack.id, &pack.blobs) {
                    uploaded.bytes += write_index(&repository, &file).await?;
                }
            }
        }
    }
    if !index.packs.is_empty() {
        uploaded.bytes += write_index(&repository, &index).await?;
    }
    Ok(uploaded)
}

async fn write_index(repository: &Repository, file: &IndexFile) -> Result<u64> {
    let (id, bytes) = seal_json(file, &repository.key).map_err(of_repository)?;
    let bytes = Bytes::from(bytes);
    repository.place.write(FileKind::Index, &id, bytes.clone()).await?;
    let length = bytes.len() as u64;
    repository.keep_copy(CopyKind::Index, id, bytes).await?;
    Ok(length)
}

/// What was asked for and did not arrive went away in between, if the server said so of as many files.
fn note_missing(mut source: StoredSource, gone: usize) -> Result<StoredSource> {
    let missing = std::mem::take(&mut source.missing);
    if missing.len() > gone {
        let named: Vec<String> = missing.iter().take(3).map(|path| shown_short(&name_text(path))).collect();
        let message = format!("The server did not send {} files, such as {}.", missing.len(), named.join(", "));
        return Err(EngineError::incomplete(message));
    }
    Ok(source)
}

/// The file that a dump becomes.
struct Dump {
    name: String,
    node: Node,
}

impl Dump {
    fn of(plan: &BackupPlan, input: ResolvedSource<'_>) -> Option<Self> {
        let content = input.content();
        if content == Content::Files {
            return None;
        }
        let modified = plan.started_at.into();
        let node = Node { mode: 0o600, modified, accessed: modified, ..Node::new(b"", NodeKind::File) };
        Some(Self { name: format!("dump.{}", content.extension()), node })
    }
}
