//! Stored backups for whoever asks through a request: listings and downloads.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use holdfast_app::{AppError, Archives, Download, EntryItem, Result};
use holdfast_core::backup::Content;
use holdfast_core::clock;
use holdfast_core::queue::Share;
use holdfast_core::run::FailureCode;
use holdfast_engine::{Engine, EngineError, Entry, StoredBackup};
use holdfast_store::Store;
use holdfast_store::backups::BackupRow;
use tokio::sync::mpsc;

use crate::folder_page::{FolderPage, WINDOW};
use crate::plans::Planner;

/// Backups read for requests at once; each takes a few megabytes and a thread.
const READERS: usize = 16;
/// A few downloads, and a look into folders beside them. The last places are for users who have none.
const SHARE: Share = Share { per_user: 6, reserved: 4 };
/// When somebody who has too many under way may try again.
const RETRY_AFTER_SECS: u64 = 5;

pub struct StoredArchives {
    engine: Engine,
    store: Store,
    planner: Planner,
    readers: Readers,
}

/// Who reads at the moment: how many each user has under way.
#[derive(Clone, Default)]
struct Readers(Arc<Mutex<HashMap<i64, usize>>>);

impl Readers {
    fn locked(&self) -> MutexGuard<'_, HashMap<i64, usize>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn take_turn(&self, user: i64) -> Result<Turn> {
        let mut readers = self.locked();
        let (own, taken) = (readers.get(&user).copied().unwrap_or(0), readers.values().sum::<usize>());
        if SHARE.allows(own, READERS.saturating_sub(taken)) {
            *readers.entry(user).or_default() += 1;
            return Ok(Turn { readers: self.clone(), user });
        }
        if own > 0 {
            let limit = u32::try_from(own).unwrap_or(u32::MAX);
            return Err(AppError::TooManyRequests { limit, retry_after_secs: RETRY_AFTER_SECS });
        }
        Err(AppError::Unavailable("too many backups are being read at once".to_owned()))
    }
}

/// The right to read one backup, until it is dropped.
struct Turn {
    readers: Readers,
    user: i64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut readers = self.readers.locked();
        if let Some(own) = readers.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                readers.remove(&self.user);
            }
        }
    }
}

impl StoredArchives {
    /// `folder` is where local destinations are.
    pub fn new(engine: Engine, store: Store, folder: std::path::PathBuf) -> Self {
        Self { engine, store, planner: Planner { folder }, readers: Readers::default() }
    }
}

/// What a failure of the engine means for a request.
fn refused(error: EngineError) -> AppError {
    match error.code {
        FailureCode::EntryMissing => AppError::Missing("There is no such entry in this backup."),
        FailureCode::Missing
        | FailureCode::Corrupt
        | FailureCode::WrongPassword
        | FailureCode::DestinationUnmounted => AppError::Conflict(error.message),
        FailureCode::Internal => AppError::Internal(error.message),
        _ => AppError::Unavailable(error.message),
    }
}

#[async_trait]
impl Archives for StoredArchives {
    async fn entries(
        &self,
        backup: &BackupRow,
        path: &str,
        skip: usize,
        count: usize,
    ) -> Result<(Vec<EntryItem>, u64)> {
        let _turn = self.readers.take_turn(backup.user_id)?;
        let stored = self.planner.stored(&self.store, backup).await?;
        only_files(&stored)?;
        let mut page = FolderPage::new(skip, count, WINDOW);
        loop {
            let start = (path.to_owned(), path.is_empty(), page);
            let visited = self.engine.visit(&stored, start, |(folder, exists, page), entry| {
                *exists |= entry.path == *folder;
                if let Some(name) = name_in(folder, &entry.path) {
                    *exists = true;
                    page.offer(name, entry.path.len(), |name| item(name, entry));
                }
                ControlFlow::Continue(())
            });
            let (_, exists, read) = visited.await.map_err(refused)?;
            if !exists {
                return Err(AppError::Missing("There is no such entry in this backup."));
            }
            page = read;
            if !page.next_reading() {
                return Ok((page.items, page.total));
            }
        }
    }

    async fn download(&self, backup: &BackupRow, entry: Option<&str>) -> Result<Download> {
        let turn = self.readers.take_turn(backup.user_id)?;
        let stored = self.planner.stored(&self.store, backup).await?;
        let last_part = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let (file_name, size, source) = match entry {
            None => {
                let (size, pieces) = self.engine.download(&stored).await.map_err(refused)?;
                (last_part(&stored.key), size, pieces)
            }
            Some(path) => {
                let (entry, pieces) = self.engine.download_entry(&stored, path).await.map_err(refused)?;
                (last_part(path), entry.size, pieces)
            }
        };
        Ok(Download { file_name, size: Some(size), pieces: with_turn(source, turn) })
    }

    async fn download_folder(&self, backup: &BackupRow, path: &str) -> Result<Download> {
        let turn = self.readers.take_turn(backup.user_id)?;
        let stored = self.planner.stored(&self.store, backup).await?;
        only_files(&stored)?;
        let path = path.trim_matches('/');
        let pieces = self.engine.download_folder(&stored, path).await.map_err(refused)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        Ok(Download { file_name: format!("{name}.tar"), size: None, pieces: with_turn(pieces, turn) })
    }

    async fn search(&self, backup: &BackupRow, text: &str, limit: usize) -> Result<Vec<EntryItem>> {
        let _turn = self.readers.take_turn(backup.user_id)?;
        let stored = self.planner.stored(&self.store, backup).await?;
        only_files(&stored)?;
        let wanted = text.to_lowercase();
        let visited = self.engine.visit(&stored, Vec::new(), move |found: &mut Vec<EntryItem>, entry| {
            let name = entry.path.rsplit('/').next().unwrap_or(&entry.path);
            if name.to_lowercase().contains(&wanted) {
                found.push(item(name.to_owned(), entry));
            }
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let mut found = visited.await.map_err(refused)?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

fn only_files(stored: &StoredBackup) -> Result<()> {
    if stored.content == Content::Files {
        return Ok(());
    }
    Err(AppError::Conflict("This backup is a dump of a database; it has no files to list.".to_owned()))
}

/// Keeps the turn until the last piece is gone, or the client is. How slowly a client may take them is for its connection
/// to say, which sees every byte.
fn with_turn(mut source: holdfast_engine::Download, turn: Turn) -> holdfast_engine::Download {
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            // A destination that is silent must not keep the turn of a client that has left.
            let piece = tokio::select! {
                piece = source.recv() => piece,
                () = sender.closed() => break,
            };
            let Some(piece) = piece else { break };
            if sender.send(piece).await.is_err() {
                break;
            }
        }
        drop(turn);
    });
    pieces
}

/// The name of a path directly below a folder.
fn name_in(folder: &str, path: &str) -> Option<String> {
    let rest = if folder.is_empty() { path } else { path.strip_prefix(folder)?.strip_prefix('/')? };
    (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
}

fn item(name: String, entry: &Entry) -> EntryItem {
    EntryItem {
        name,
        path: entry.path.clone(),
        kind: entry.kind.as_str(),
        size: entry.size,
        modified_at: clock::from_micros(entry.modified_micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_the_places_for_downloads() {
        let readers = Readers::default();
        let fill = |user: i64| {
            let mut turns = Vec::new();
            loop {
                match readers.take_turn(user) {
                    Ok(turn) => turns.push(turn),
                    Err(AppError::TooManyRequests { .. }) => return turns,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let taken: Vec<Vec<Turn>> = (1..=6).map(fill).collect();
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6, 1, 1, 1, 1]);
        assert!(matches!(readers.take_turn(7), Err(AppError::Unavailable(_))), "all places are taken");
        drop(taken);
        assert!(readers.locked().is_empty());
        assert!(readers.take_turn(7).is_ok());
    }
}
