//! Stored backups for whoever asks through a request: listings and downloads.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_app::{AppError, Archives, Download, EntryItem, Result};
use holdfast_core::backup::Content;
use holdfast_core::clock;
use holdfast_core::run::FailureCode;
use holdfast_engine::{Engine, EngineError, Entry, StoredBackup};
use holdfast_store::Store;
use holdfast_store::backups::BackupRow;
use tokio::sync::{Semaphore, mpsc};

use crate::plans::Planner;

/// Backups read for requests at once; each takes a few megabytes and a thread.
const READERS: usize = 16;
const CLIENT_PATIENCE: Duration = Duration::from_secs(60);

pub struct StoredArchives {
    engine: Engine,
    store: Store,
    planner: Planner,
    readers: Arc<Semaphore>,
}

impl StoredArchives {
    /// `folder` is where local destinations are.
    pub fn new(engine: Engine, store: Store, folder: std::path::PathBuf) -> Self {
        Self { engine, store, planner: Planner { folder }, readers: Arc::new(Semaphore::new(READERS)) }
    }

    fn take_turn(&self) -> Result<tokio::sync::OwnedSemaphorePermit> {
        let turn = self.readers.clone().try_acquire_owned();
        turn.map_err(|_| AppError::Unavailable("too many backups are being read at once".to_owned()))
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
    async fn entries(&self, backup: &BackupRow, path: &str, limit: usize) -> Result<Vec<EntryItem>> {
        let _turn = self.take_turn()?;
        let stored = self.planner.stored(&self.store, backup).await?;
        only_files(&stored)?;
        let start = (path.to_owned(), path.is_empty(), Vec::new());
        let visited = self.engine.visit(&stored, start, move |(folder, exists, found), entry| {
            *exists |= entry.path == *folder;
            if let Some(name) = name_in(folder, &entry.path) {
                *exists = true;
                found.push(item(name, entry));
            }
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let (_, exists, mut found) = visited.await.map_err(refused)?;
        if !exists {
            return Err(AppError::Missing("There is no such entry in this backup."));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    async fn download(&self, backup: &BackupRow, entry: Option<&str>) -> Result<Download> {
        let turn = self.take_turn()?;
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
        let turn = self.take_turn()?;
        let stored = self.planner.stored(&self.store, backup).await?;
        only_files(&stored)?;
        let path = path.trim_matches('/');
        let pieces = self.engine.download_folder(&stored, path).await.map_err(refused)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        Ok(Download { file_name: format!("{name}.tar"), size: None, pieces: with_turn(pieces, turn) })
    }

    async fn search(&self, backup: &BackupRow, text: &str, limit: usize) -> Result<Vec<EntryItem>> {
        let _turn = self.take_turn()?;
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

/// Keeps the turn until the last piece is gone.
fn with_turn(
    mut source: holdfast_engine::Download,
    turn: tokio::sync::OwnedSemaphorePermit,
) -> holdfast_engine::Download {
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(piece) = source.recv().await {
            // A client that takes nothing for so long has gone, or holds up others who wait for their turn.
            if !matches!(tokio::time::timeout(CLIENT_PATIENCE, sender.send(piece)).await, Ok(Ok(()))) {
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
