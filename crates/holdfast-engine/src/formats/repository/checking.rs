//! Checks a repository: that every snapshot, every folder and every chunk is there, and a share of the packs byte by
//! byte. What is damaged is named with the snapshots and paths that need it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::stream::{self, StreamExt as _};
use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;
use holdfast_repository::{BlobKind, Id, Key, MasterIndex, PackedBlob, Tree};

use super::blob_reader::{BlobReader, SharedIndex};
use super::index_files::LoadedIndex;
use super::locks::ForeignLock;
use super::opening::Repository;
use super::place::{FileKind, of_repository};
use super::repairing::Repair;
use crate::archive::shown_short;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::CheckPlan;
use crate::thread::on_thread;

/// How many packs are read at the same time.
const PACKS_AT_ONCE: usize = 2;
/// How many paths are named for each damaged snapshot.
const NAMED_PATHS: usize = 10;

/// What a check has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub snapshots: u64,
    pub packs: u64,
    pub read_packs: u64,
    pub read_bytes: u64,
    /// The last pack that was read; `None` if that was the last of all.
    pub position: Option<String>,
    /// Packs and indexes that were wrong, each with a reason.
    pub problems: Vec<String>,
    /// Snapshots that cannot be restored completely, by their names.
    pub damaged: Vec<DamagedSnapshot>,
    /// Backups on record whose snapshot is not there, by their locators.
    pub missing: Vec<String>,
    /// What the packs have.
    pub stored_bytes: u64,
    /// The locks of other programs.
    pub locks: Vec<ForeignLock>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedSnapshot {
    /// The name of its file, which ends the locator of its backup.
    pub id: String,
    /// Why, if it cannot be opened at all.
    pub reason: Option<String>,
    pub damaged_paths: u64,
    /// The first of them.
    pub paths: Vec<String>,
}

/// What a check has found, and what can be done about it.
pub(super) struct Checked {
    pub report: CheckReport,
    pub repair: Repair,
}

pub(super) async fn check(repository: &Repository, plan: &CheckPlan, context: &Context) -> Result<Checked> {
    // Listed first: a backup that ends meanwhile has a snapshot that needs what the loaded index does not have.
    let snapshots = repository.place.list(FileKind::Snapshot).await?;
    let LoadedIndex { index, files, missing, unlisted, damaged } = repository.load_index().await?;
    let mut report =
        CheckReport { packs: index.packs().len() as u64, stored_bytes: index.all_bytes(), ..CheckReport::default() };
    report.problems.extend(damaged.iter().map(|id| format!("Index {id} is damaged.")));
    report.problems.extend(missing.iter().map(|id| format!("Pack {id} is gone from the destination, or too short.")));
    let shared: SharedIndex = Arc::new(RwLock::new(index));
    report.snapshots = snapshots.len() as u64;
    let there: HashSet<String> = snapshots.iter().map(|id| repository.place.key_of(FileKind::Snapshot, id)).collect();
    report.missing = plan.on_record.iter().filter(|locator| !there.contains(*locator)).cloned().collect();
    let mut bad_packs = HashMap::new();
    read_share(repository, &shared, plan, (&mut report, &mut bad_packs), context).await?;
    let mut is_lacking = false;
    let bad = bad_blobs(&shared, &bad_packs);
    let (roots, unreadable) = read_roots(repository, snapshots).await?;
    for damaged in &unreadable {
        report.problems.push(format!("Snapshot {} cannot be read.", damaged.id));
    }
    report.damaged.extend(unreadable);
    let trees: Vec<Id> = roots.iter().map(|(_, tree)| *tree).collect();
    if !is_whole(repository, &shared, &bad, trees, context).await? {
        is_lacking = true;
        report.damaged.extend(find_damaged(repository, &shared, bad, roots, context).await?);
    }
    // Unlisted packs may have what is lacking, if an index was lost.
    let unlisted = if is_lacking || !damaged.is_empty() { unlisted } else { Vec::new() };
    let bad_packs = bad_packs.into_iter().map(|(id, good)| (id, good.into_iter().collect())).collect();
    Ok(Checked {
        report,
        repair: Repair { index_files: files, unlisted, damaged_indexes: damaged, bad_packs, missing },
    })
}

/// The trees of all snapshots, and the snapshots that cannot be opened.
async fn read_roots(repository: &Repository, snapshots: Vec<Id>) -> Result<(Vec<(Id, Id)>, Vec<DamagedSnapshot>)> {
    let (mut roots, mut unreadable) = (Vec::new(), Vec::new());
    for id in snapshots {
        match repository.find_snapshot(&id).await {
            // `None`: removed since it was listed.
            Ok(snapshot) => roots.extend(snapshot.map(|snapshot| (id, snapshot.tree))),
            Err(error) if error.code == FailureCode::Corrupt => unreadable.push(DamagedSnapshot {
                id: id.to_string(),
                reason: Some(error.message),
                damaged_paths: 0,
                paths: Vec::new(),
            }),
            Err(error) => return Err(error),
        }
    }
    Ok((roots, unreadable))
}

/// Reads a share of the packs, and notes which are damaged, with the blobs in them that are not.
async fn read_share(
    repository: &Repository,
    index: &SharedIndex,
    plan: &CheckPlan,
    (report, bad): (&mut CheckReport, &mut HashMap<Id, Vec<PackedBlob>>),
    context: &Context,
) -> Result<()> {
    let mut packs: Vec<Id> = read(index).packs().collect();
    packs.sort();
    let share = packs.len().div_ceil(plan.one_in.max(1) as usize);
    let position: Option<Id> = plan.position.as_ref().and_then(|position| position.parse().ok());
    let from = position.map_or(0, |position| packs.partition_point(|pack| *pack <= position));
    let chosen = &packs[from..(from + share).min(packs.len())];
    report.position = chosen.last().filter(|_| from + share < packs.len()).map(Id::to_string);
    let blobs = blobs_of(index, chosen);
    let total = chosen.iter().map(|pack| read(index).blob_bytes(pack)).sum();
    context.progress.set_total(total, chosen.len() as u64);
    let reading =
        blobs.into_iter().map(|(pack, blobs)| async move { (pack, read_pack(repository, pack, blobs).await) });
    let mut reading = stream::iter(reading).buffer_unordered(PACKS_AT_ONCE);
    while let Some((pack, found)) = reading.next().await {
        if context.cancel.is_cancelled() {
            return Err(EngineError::cancelled());
        }
        let ReadPack { bytes, good, damage } = found?;
        report.read_packs += 1;
        report.read_bytes += bytes;
        context.progress.add_read(bytes);
        context.progress.add_file();
        if let Some(damage) = damage {
            report.problems.push(format!("Pack {pack} is damaged: {damage}"));
            bad.insert(pack, good);
        }
    }
    Ok(())
}

/// The blobs of these packs, as the index lists them.
fn blobs_of(index: &SharedIndex, packs: &[Id]) -> HashMap<Id, Vec<PackedBlob>> {
    let mut blobs: HashMap<Id, Vec<PackedBlob>> = packs.iter().map(|pack| (*pack, Vec::new())).collect();
    let index = read(index);
    for location in index.iter() {
        if let Some(of_pack) = blobs.get_mut(&location.pack) {
            of_pack.push(location.blob);
        }
    }
    blobs
}

struct ReadPack {
    bytes: u64,
    /// The blobs that can be read, if some cannot.
    good: Vec<PackedBlob>,
    damage: Option<String>,
}

async fn read_pack(repository: &Repository, pack: Id, mut blobs: Vec<PackedBlob>) -> Result<ReadPack> {
    let bytes = match repository.place.read(FileKind::Pack, &pack).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            return Ok(ReadPack { bytes: 0, good: Vec::new(), damage: Some("It is gone.".to_owned()) });
        }
        Err(error) if error.code == FailureCode::Corrupt => {
            return Ok(ReadPack { bytes: 0, good: Vec::new(), damage: Some(error.message) });
        }
        Err(error) => return Err(error),
    };
    let key = repository.key.clone();
    on_thread(move || {
        blobs.sort_by_key(|blob| blob.offset);
        let length = bytes.len() as u64;
        let is_same = Id::of(&bytes) == pack;
        let good: Vec<PackedBlob> = blobs.iter().filter(|blob| is_good(blob, &bytes, &key)).copied().collect();
        let damage = match (is_same, blobs.len() - good.len()) {
            (true, 0) => None,
            (false, 0) => Some("Its bytes are not those that were stored.".to_owned()),
            (_, bad) => Some(format!("{bad} of its {} blobs cannot be read.", blobs.len())),
        };
        Ok(ReadPack { bytes: length, good, damage })
    })
    .await
}

fn is_good(blob: &PackedBlob, pack: &[u8], key: &Key) -> bool {
    let (start, length) = (blob.offset as usize, blob.length as usize);
    let stored = start.checked_add(length).and_then(|end| pack.get(start..end));
    stored.is_some_and(|stored| blob.open(&mut stored.to_vec(), key).is_ok())
}

/// The blobs that only damaged packs have.
fn bad_blobs(index: &SharedIndex, bad_packs: &HashMap<Id, Vec<PackedBlob>>) -> HashSet<(BlobKind, Id)> {
    if bad_packs.is_empty() {
        return HashSet::new();
    }
    let packs: Vec<Id> = bad_packs.keys().copied().collect();
    let good: HashSet<(BlobKind, Id)> = bad_packs.values().flatten().map(|blob| (blob.kind, blob.id)).collect();
    let blobs = blobs_of(index, &packs);
    let index = read(index);
    let is_lost = |(kind, id): &(BlobKind, Id)| {
        !good.contains(&(*kind, *id))
            && index.locations(*kind, id).all(|location| bad_packs.contains_key(&location.pack))
    };
    blobs.values().flatten().map(|blob| (blob.kind, blob.id)).filter(is_lost).collect()
}

fn read(index: &RwLock<MasterIndex>) -> std::sync::RwLockReadGuard<'_, MasterIndex> {
    index.read().unwrap_or_else(PoisonError::into_inner)
}

/// Whether everything that these trees need is there. Each tree is read once.
async fn is_whole(
    repository: &Repository,
    index: &SharedIndex,
    bad: &HashSet<(BlobKind, Id)>,
    roots: Vec<Id>,
    context: &Context,
) -> Result<bool> {
    let mut blobs = BlobReader::new(repository.clone(), index.clone(), context.cancel.clone());
    let (bad, index) = (bad.clone(), index.clone());
    on_thread(move || {
        let is_there = |kind: BlobKind, id: &Id| !bad.contains(&(kind, *id)) && read(&index).contains(kind, id);
        let (mut waiting, mut seen) = (roots, HashSet::new());
        while let Some(tree) = waiting.pop() {
            if !seen.insert(tree) {
                continue;
            }
            if !is_there(BlobKind::Tree, &tree) {
                return Ok(false);
            }
            let json = match blobs.read(BlobKind::Tree, &tree) {
                Err(error) if error.code == FailureCode::Corrupt => return Ok(false),
                json => json?,
            };
            let mut is_whole = true;
            let visited = Tree::visit(&json, &mut |node| {
                waiting.extend(node.subtree);
                is_whole = node.content.iter().flatten().all(|chunk| is_there(BlobKind::Data, chunk));
                is_whole
            });
            if !is_whole || visited.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

/// The snapshots that need something that is not there, with the paths.
async fn find_damaged(
    repository: &Repository,
    index: &SharedIndex,
    bad: HashSet<(BlobKind, Id)>,
    roots: Vec<(Id, Id)>,
    context: &Context,
) -> Result<Vec<DamagedSnapshot>> {
    let bad = Arc::new(bad);
    let mut damaged = Vec::new();
    for (id, tree) in roots {
        let blobs = BlobReader::new(repository.clone(), index.clone(), context.cancel.clone());
        let (bad, index) = (bad.clone(), index.clone());
        let found = on_thread(move || {
            let is_there = |kind: BlobKind, id: &Id| !bad.contains(&(kind, *id)) && read(&index).contains(kind, id);
            let mut found = DamagedSnapshot { id: id.to_string(), reason: None, damaged_paths: 0, paths: Vec::new() };
            walk(blobs, tree, &is_there, &mut found)?;
            Ok(found)
        })
        .await?;
        if found.damaged_paths > 0 {
            damaged.push(found);
        }
    }
    Ok(damaged)
}

/// Goes through a tree as far as it can be read.
fn walk(
    mut blobs: BlobReader,
    root: Id,
    is_there: &dyn Fn(BlobKind, &Id) -> bool,
    found: &mut DamagedSnapshot,
) -> Result<()> {
    let mut note = |path: &[u8]| {
        found.damaged_paths += 1;
        if found.paths.len() < NAMED_PATHS {
            found.paths.push(shown_short(&name_text(path)));
        }
    };
    let (mut waiting, mut seen) = (vec![(Vec::new(), root)], HashSet::new());
    while let Some((path, tree)) = waiting.pop() {
        // A folder that is there several times is named once.
        if !seen.insert(tree) {
            continue;
        }
        let json = if is_there(BlobKind::Tree, &tree) { blobs.read(BlobKind::Tree, &tree).map(Some) } else { Ok(None) };
        let json = match json {
            Err(error) if error.code == FailureCode::Corrupt => None,
            json => json?,
        };
        let Some(json) = json else {
            note(if path.is_empty() { b"/" } else { &path });
            continue;
        };
        let visited = Tree::visit(&json, &mut |node| {
            let below = [&path, &b"/"[..], &node.name].concat();
            if !node.content.iter().flatten().all(|chunk| is_there(BlobKind::Data, chunk)) {
                note(&below);
            }
            waiting.extend(node.subtree.map(|subtree| (below, subtree)));
            true
        });
        if visited.map_err(of_repository).is_err() {
            note(&path);
        }
    }
    Ok(())
}
