//! Removes what no snapshot needs. What is needed is found first; packs that are partly needed are written again; the
//! index that lists the new packs is stored before an old one is removed, and a pack is removed last. A crash at any
//! point leaves a repository in which nothing is missing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use holdfast_core::failure::FailureCode;
use holdfast_repository::{BlobKind, Id, IndexFile, Location, MasterIndex, PackBuilder, PackedBlob, SealedBlob, Tree};

use super::blob_reader::{BlobReader, SharedIndex};
use super::index_files::LoadedIndex;
use super::locks::HeldLock;
use super::opening::Repository;
use super::place::{FileKind, of_repository};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::thread::on_thread;

/// A new pack is ended when it has this many bytes.
const PACK_BYTES: usize = 16 * 1024 * 1024;
/// How much of what is stored may be unused without being written again, in per cent; restic's default.
const TOLERATED_PERCENT: u64 = 5;
/// How many packs are read at the same time.
const PACKS_AT_ONCE: usize = 2;
/// What is closer together than this is read at once.
const GAP_BYTES: u32 = 128 * 1024;
/// … but not much more than this.
const READ_BYTES: u32 = 32 * 1024 * 1024;
/// How many packs are removed at the same time.
const REMOVED_AT_ONCE: usize = 8;

/// What a prune did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub snapshots: u64,
    /// Packs before, without those that no index lists.
    pub packs: u64,
    pub removed_packs: u64,
    /// Those of them whose used blobs were written again.
    pub repacked_packs: u64,
    pub used_bytes: u64,
    /// What was freed, and what is left because little of its packs is unused or because there was no time.
    pub freed_bytes: u64,
    pub unused_bytes: u64,
    /// What is stored in packs now.
    pub stored_bytes: u64,
    /// There was no time for all of it.
    pub is_partial: bool,
    /// The repository had no snapshot and was removed.
    pub is_gone: bool,
}

/// How much of a pack is in use.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    used: u64,
    unused: u64,
}

/// What is to be done with the packs.
struct Decision {
    /// Nothing in them is used.
    unused: Vec<Id>,
    /// Mostly unused first.
    repack: Vec<Id>,
    report: PruneReport,
}

/// `lock` is confirmed before anything is removed.
pub(super) async fn prune(
    repository: &Repository,
    budget: Duration,
    lock: &HeldLock,
    context: &Context,
) -> Result<PruneReport> {
    let started = Instant::now();
    let loaded = repository.load_index().await?;
    loaded.confirm_whole()?;
    let LoadedIndex { index, mut files, missing, .. } = loaded;
    if !missing.is_empty() {
        let count = missing.len();
        context.log.warn(format!("{count} packs that the index lists are gone from the destination, or too short."));
    }
    let shared: SharedIndex = Arc::new(RwLock::new(index));
    let used = find_used(repository, shared.clone(), context).await?;
    let index = Arc::into_inner(shared).and_then(|index| index.into_inner().ok());
    let index = Arc::new(index.ok_or_else(|| EngineError::internal("the index is still in use"))?);
    let (used, decision) = {
        let index = index.clone();
        on_thread(move || {
            let decision = decide(&index, &used);
            Ok((used, decision))
        })
        .await?
    };
    let Decision { unused, repack, mut report } = decision;
    report.snapshots = used.snapshots;
    let all_bytes = index.all_bytes();
    // First what nobody needs, which may make the room for what is written again.
    let useless: HashSet<Id> = unused.iter().copied().chain(missing).collect();
    repository.replace_indexes(&mut files, (&useless, &[]), IndexFile::default(), (lock, context)).await?;
    report.removed_packs = remove_packs(repository, &index, (&files, &useless), (lock, context)).await?;
    let repacked = repack_all(repository, (&index, &used.is_used), repack, (started, budget), context).await?;
    let old_bytes: u64 = repacked.packs.iter().chain(&unused).map(|pack| index.blob_bytes(pack)).sum();
    report.freed_bytes = old_bytes.saturating_sub(repacked.written_bytes);
    report.unused_bytes = report.unused_bytes.saturating_sub(report.freed_bytes);
    report.repacked_packs = repacked.packs.len() as u64;
    report.stored_bytes = (all_bytes + repacked.written_bytes).saturating_sub(old_bytes);
    report.is_partial = repacked.is_partial;
    if repacked.packs.is_empty() {
        return Ok(report);
    }
    let gone: HashSet<Id> = repacked.packs.into_iter().collect();
    files.extend(repacked.index_files);
    repository.replace_indexes(&mut files, (&gone, &[]), repacked.index, (lock, context)).await?;
    let expected: HashSet<Id> = gone.union(&useless).copied().collect();
    report.removed_packs += remove_packs(repository, &index, (&files, &expected), (lock, context)).await?;
    Ok(report)
}

/// Refuses a repository that lacks the snapshot of a backup on record: what it needs would be removed, and could not be
/// restored even if the snapshot came back.
pub(super) async fn confirm_snapshots(repository: &Repository, on_record: &[String]) -> Result<()> {
    let place = &repository.place;
    let there = place.list(FileKind::Snapshot).await?;
    let there: HashSet<String> = there.iter().map(|id| place.key_of(FileKind::Snapshot, id)).collect();
    let gone: Vec<&String> = on_record.iter().filter(|locator| !there.contains(*locator)).collect();
    let Some(first) = gone.first() else { return Ok(()) };
    let count = gone.len();
    let message = format!(
        "Nothing was removed: the snapshots of {count} backups on record are gone from the repository, such as {first}. \
         Put them back, or delete these backups; then the repository can be pruned."
    );
    Err(EngineError::new(FailureCode::Missing, message))
}

/// Removes a repository without snapshots, whose packs are gone already. Without its configuration it is none.
pub(super) async fn remove_all(repository: &Repository) -> Result<()> {
    let place = &repository.place;
    for id in place.list(FileKind::Index).await? {
        place.remove(FileKind::Index, &id).await?;
    }
    // From here on, only keys may be left, which a new repository removes.
    place.remove_config().await?;
    for id in place.list(FileKind::Key).await? {
        place.remove(FileKind::Key, &id).await?;
    }
    Ok(())
}

/// The blobs that snapshots need.
struct Used {
    /// By their place in the index.
    is_used: Vec<bool>,
    snapshots: u64,
}

/// Goes through all trees of all snapshots, each once.
async fn find_used(repository: &Repository, index: SharedIndex, context: &Context) -> Result<Used> {
    let snapshots = repository.place.list(FileKind::Snapshot).await?;
    let count = snapshots.len() as u64;
    let mut roots = Vec::with_capacity(snapshots.len());
    for id in snapshots {
        // One that was removed since it was listed needs nothing any more.
        let found = repository.find_snapshot(&id).await.map_err(|error| {
            let message =
                format!("Snapshot {id} cannot be read, so that it is not known what it needs. {}", error.message);
            error.reworded(message)
        });
        roots.extend(found?.map(|snapshot| snapshot.tree));
    }
    let mut blobs = BlobReader::new(repository.clone(), index.clone(), context.cancel.clone());
    on_thread(move || {
        let index = index.read().unwrap_or_else(PoisonError::into_inner);
        let mut is_used = vec![false; index.len()];
        let mut waiting = roots;
        while let Some(tree) = waiting.pop() {
            if std::mem::replace(needed(&index, &mut is_used, BlobKind::Tree, &tree)?, true) {
                continue;
            }
            let json = blobs.read(BlobKind::Tree, &tree)?;
            let mut found = Ok(());
            let visited = Tree::visit(&json, &mut |node| {
                waiting.extend(node.subtree);
                for chunk in node.content.iter().flatten() {
                    match needed(&index, &mut is_used, BlobKind::Data, chunk) {
                        Ok(is_used) => *is_used = true,
                        Err(error) => found = Err(error),
                    }
                }
                found.is_ok()
            });
            found?;
            visited.map_err(of_repository)?;
        }
        Ok(Used { is_used, snapshots: count })
    })
    .await
}

fn needed<'a>(index: &MasterIndex, is_used: &'a mut [bool], kind: BlobKind, id: &Id) -> Result<&'a mut bool> {
    let position = index.position(kind, id);
    position.and_then(|position| is_used.get_mut(position)).ok_or_else(|| {
        EngineError::corrupt(format!(
            "A snapshot needs blob {id}, which the repository does not have. Nothing was removed. A verification of the \
             backups tells which of them are damaged; delete those, then the repository can be pruned."
        ))
    })
}

/// Where the blobs are that are used, each once.
fn used_blobs(index: &MasterIndex, is_used: &[bool]) -> impl Iterator<Item = Location> {
    index.iter().zip(is_used).filter(|(_, is_used)| **is_used).map(|(location, _)| location)
}

fn decide(index: &MasterIndex, used: &Used) -> Decision {
    let mut usage: HashMap<Id, Usage> = index.packs().map(|pack| (pack, Usage::default())).collect();
    for Location { pack, blob } in used_blobs(index, &used.is_used) {
        usage.entry(pack).or_default().used += u64::from(blob.length);
    }
    // What is not used, also because it is in another pack as well.
    for (pack, usage) in &mut usage {
        usage.unused = index.blob_bytes(pack).saturating_sub(usage.used);
    }
    let used_bytes: u64 = usage.values().map(|usage| usage.used).sum();
    let unused_bytes: u64 = usage.values().map(|usage| usage.unused).sum();
    let mut unused: Vec<Id> = usage.iter().filter(|(_, usage)| usage.used == 0).map(|(pack, _)| *pack).collect();
    unused.sort();
    let mut partly: Vec<(Id, Usage)> = usage
        .iter()
        .filter(|(_, usage)| usage.used > 0 && usage.unused > 0)
        .map(|(pack, usage)| (*pack, *usage))
        .collect();
    // The largest unused share first; that frees the most for what has to be written.
    partly.sort_by_key(|(pack, usage)| (std::cmp::Reverse(usage.unused * 1000 / (usage.used + usage.unused)), *pack));
    let mut left: u64 = partly.iter().map(|(_, usage)| usage.unused).sum();
    let mut repack = Vec::new();
    for (pack, usage) in partly {
        if left * 100 <= (used_bytes + left) * TOLERATED_PERCENT {
            break;
        }
        left -= usage.unused;
        repack.push(pack);
    }
    let packs = index.packs().len() as u64;
    Decision { unused, repack, report: PruneReport { packs, used_bytes, unused_bytes, ..PruneReport::default() } }
}

/// What was written again.
#[derive(Default)]
struct Repacked {
    /// The old packs.
    packs: Vec<Id>,
    /// What is not in one of the files yet.
    index: IndexFile,
    /// The files that have been written, with their packs.
    index_files: Vec<(Id, Vec<Id>)>,
    written_bytes: u64,
    is_partial: bool,
    /// The new packs that are in none of them.
    written: Vec<Id>,
}

/// Writes the used blobs of these packs into new ones, as far as there is time. Each blob is checked on the way.
/// If that fails, the new packs that no index lists are removed again.
async fn repack_all(
    repository: &Repository,
    blobs: (&Arc<MasterIndex>, &[bool]),
    packs: Vec<Id>,
    time: (Instant, Duration),
    context: &Context,
) -> Result<Repacked> {
    let mut repacked = Repacked::default();
    let Err(error) = repacked.add_all(repository, blobs, packs, time, context).await else { return Ok(repacked) };
    for pack in repacked.written {
        if let Err(error) = repository.place.remove(FileKind::Pack, &pack).await {
            context.log.line(format!("Pack {pack}, which is not needed, could not be removed: {error}"));
        }
    }
    Err(error)
}

impl Repacked {
    async fn add_all(
        &mut self,
        repository: &Repository,
        (index, is_used): (&Arc<MasterIndex>, &[bool]),
        packs: Vec<Id>,
        (started, budget): (Instant, Duration),
        context: &Context,
    ) -> Result<()> {
        if packs.is_empty() {
            return Ok(());
        }
        let wanted: HashSet<Id> = packs.iter().copied().collect();
        let mut of_pack: HashMap<Id, Vec<PackedBlob>> = HashMap::new();
        for Location { pack, blob } in used_blobs(index, is_used).filter(|location| wanted.contains(&location.pack)) {
            of_pack.entry(pack).or_default().push(blob);
        }
        let mut open: HashMap<BlobKind, PackBuilder> = HashMap::new();
        let reading = packs.into_iter().map(|pack| {
            let blobs = of_pack.remove(&pack).unwrap_or_default();
            read_used(repository, pack, blobs)
        });
        // The next pack is read while the last one is written.
        let mut reading = stream::iter(reading).buffered(PACKS_AT_ONCE);
        while let Some(read) = reading.next().await {
            if context.cancel.is_cancelled() {
                return Err(EngineError::cancelled());
            }
            if started.elapsed() > budget {
                context.log.line("The time for pruning is over; the rest follows the next time.");
                self.is_partial = true;
                break;
            }
            let (pack, blobs) = read?;
            for blob in blobs {
                let builder = open.entry(blob.kind).or_default();
                builder.add(&blob).map_err(of_repository)?;
                if builder.len() >= PACK_BYTES {
                    let full = std::mem::take(builder);
                    self.store(repository, full).await?;
                }
            }
            self.packs.push(pack);
        }
        drop(reading);
        for (_, rest) in open {
            if !rest.is_empty() {
                self.store(repository, rest).await?;
            }
        }
        Ok(())
    }

    async fn store(&mut self, repository: &Repository, pack: PackBuilder) -> Result<()> {
        self.written_bytes += pack.len() as u64;
        let (id, bytes, blobs) = pack.finish(&repository.key).map_err(of_repository)?;
        repository.place.write(FileKind::Pack, &id, bytes.into()).await?;
        self.written.push(id);
        if let Some(full) = self.index.add(id, &blobs) {
            let name = repository.place.write_json(FileKind::Index, &full, &repository.key).await?;
            // They are in the index now, as well as the old ones.
            self.written.clear();
            self.index_files.push((name, full.packs.iter().map(|pack| pack.id).collect()));
        }
        Ok(())
    }
}

/// Reads the used blobs of a pack, each of which is checked. What is close together is read at once.
async fn read_used(repository: &Repository, pack: Id, mut blobs: Vec<PackedBlob>) -> Result<(Id, Vec<SealedBlob>)> {
    blobs.sort_by_key(|blob| blob.offset);
    let damaged = move |error| EngineError::corrupt(format!("Pack {pack} of the repository is damaged. {error}"));
    blobs.iter().try_for_each(PackedBlob::confirm_length).map_err(damaged)?;
    let mut used = Vec::with_capacity(blobs.len());
    let mut begin = blobs.first().map_or(0, |blob| blob.offset);
    let is_near = |one: &PackedBlob, other: &PackedBlob| {
        let is_near = other.offset.saturating_sub(one.offset.saturating_add(one.length)) <= GAP_BYTES
            && other.offset - begin < READ_BYTES;
        if !is_near {
            begin = other.offset;
        }
        is_near
    };
    for near in blobs.chunk_by(is_near) {
        let (Some(first), Some(last)) = (near.first(), near.last()) else { continue };
        let (start, end) = (u64::from(first.offset), u64::from(last.offset) + u64::from(last.length));
        let bytes = repository.place.read_range(&pack, start..end).await?;
        let (near, key) = (near.to_vec(), repository.key.clone());
        let checked = on_thread(move || {
            let check = |blob: &PackedBlob| {
                let at = (u64::from(blob.offset) - start) as usize;
                let stored = bytes.get(at..at + blob.length as usize).unwrap_or_default().to_vec();
                blob.open(&mut stored.clone(), &key).map(|_| blob.sealed(stored))
            };
            near.iter().map(check).collect::<std::result::Result<Vec<_>, _>>().map_err(damaged)
        });
        used.extend(checked.await?);
    }
    Ok((pack, used))
}

/// Removes packs that none of the index `files` lists: those that are `gone` from it, and those of runs that did not end.
async fn remove_packs(
    repository: &Repository,
    index: &MasterIndex,
    (files, gone): (&HashMap<Id, Vec<Id>>, &HashSet<Id>),
    (lock, context): (&HeldLock, &Context),
) -> Result<u64> {
    let place = &repository.place;
    // Only what is in a file that is there counts as listed.
    let there = place.list(FileKind::Index).await?;
    let unknown = |name: &Id| {
        let message = format!("Index {name} has appeared while the repository was locked. No pack is removed.");
        EngineError::new(FailureCode::Locked, message)
    };
    let mut listed: HashSet<Id> = HashSet::new();
    for name in there {
        listed.extend(files.get(&name).ok_or_else(|| unknown(&name))?);
    }
    let packs = place.list(FileKind::Pack).await?;
    let unlisted: Vec<Id> = packs.into_iter().filter(|pack| !listed.contains(pack)).collect();
    if let Some(pack) = unlisted.iter().find(|pack| index.blob_bytes(pack) > 0 && !gone.contains(*pack)) {
        let message = format!("Pack {pack} is needed and in no index any more. No pack is removed.");
        return Err(EngineError::new(FailureCode::Corrupt, message));
    }
    let removed = unlisted.len() as u64;
    let removing = unlisted.into_iter().map(|pack| async move {
        if context.cancel.is_cancelled() {
            return Err(EngineError::cancelled());
        }
        lock.confirm().await?;
        place.remove(FileKind::Pack, &pack).await
    });
    stream::iter(removing).buffer_unordered(REMOVED_AT_ONCE).try_collect::<()>().await?;
    Ok(removed)
}
