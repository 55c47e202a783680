//! Reads stored backups for requests: listings, searches and downloads.

pub(crate) mod folder_page;
mod reading_time;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use holdfast_app::refusal::{Conflict, Missing};
use holdfast_app::{AppError, BackupReader, Download, EntryItem, Part, Result};
use holdfast_core::clock;
use holdfast_core::content::Content;
use holdfast_core::queue::Share;
use holdfast_core::run::{Blame, FailureCode};
use holdfast_engine::{Engine, EngineError, Entry, StoredBackup};
use holdfast_store::Store;
use holdfast_store::backups::BackupRow;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::folder_page::{FolderPage, WINDOW, Window};
use self::reading_time::{Look, ReadingTime};
use crate::plans::Planner;

/// How many backups are read for requests at once; each takes a few megabytes and a thread.
const READERS: usize = 16;
/// Enough for a few downloads and browsing folders meanwhile. The last places are for users who have none.
const SHARE: Share = Share { per_user: 6, reserved: 4 };
/// When a user with too many reads in progress may try again.
const RETRY_AFTER_SECS: u64 = 5;

pub struct EngineReader {
    engine: Engine,
    store: Store,
    planner: Planner,
    readers: Readers,
    reading_time: ReadingTime,
    limits: ReadingLimits,
}

/// How many reads each user has in progress.
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
        Err(AppError::busy("too many backups are being read at once"))
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

/// What a request holds until the last thread that reads for it has ended, even if nobody waits for that any more.
struct Hold {
    _turn: Turn,
    look: Mutex<Option<Look>>,
}

impl Hold {
    /// Ends the look because its target was found; sending that does not count as looking.
    fn end_look(&self) {
        self.look.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    }
}

/// Limits on reading for one request.
#[derive(Debug, Clone, Copy)]
pub struct ReadingLimits {
    /// How many entries of a folder are held at once, and how many bytes of their names.
    pub window: Window,
    /// How often a backup's list may be read for one page of a folder; each reading covers another window. The default
    /// is enough for every page of a folder of a million entries with names of ordinary length.
    pub readings: usize,
    /// Time for a listing, a search, or finding what is to be downloaded.
    pub time: Duration,
    /// How long a download may read without having anything to send, such as everything that comes before a folder.
    pub silence: Duration,
}

impl Default for ReadingLimits {
    fn default() -> Self {
        Self { window: WINDOW, readings: 10, time: Duration::from_secs(120), silence: Duration::from_secs(30 * 60) }
    }
}

const TOO_SILENT: &str = "There was nothing to send for too long. Restore what you need, or download the whole backup.";

impl EngineReader {
    /// `folder` is where local destinations are.
    pub fn new(engine: Engine, store: Store, folder: std::path::PathBuf, limits: ReadingLimits) -> Self {
        let (readers, reading_time) = (Readers::default(), ReadingTime::default());
        Self { engine, store, planner: Planner { folder }, readers, reading_time, limits }
    }

    /// Opens a backup for reading and takes a reader slot, which is held until all reading threads have ended.
    async fn held(&self, backup: &BackupRow, look: Option<Look>) -> Result<(StoredBackup, Arc<Hold>)> {
        let turn = self.readers.take_turn(backup.user_id.0)?;
        let stored = self.planner.stored(&self.store, backup).await?;
        let hold = Arc::new(Hold { _turn: turn, look: Mutex::new(look) });
        Ok((StoredBackup { hold: Some(hold.clone()), ..stored }, hold))
    }

    /// A backup to look through; the time counts against its user for as long as something reads it.
    async fn looked_at(&self, backup: &BackupRow) -> Result<(StoredBackup, Arc<Hold>)> {
        let look = self.reading_time.begin(backup.user_id.0, Instant::now())?;
        self.held(backup, Some(look)).await
    }

    async fn looked_at_files(&self, backup: &BackupRow) -> Result<(StoredBackup, Arc<Hold>)> {
        let (stored, hold) = self.looked_at(backup).await?;
        if stored.content == Content::Files {
            return Ok((stored, hold));
        }
        Err(AppError::Conflict(Conflict::NotFiles))
    }

    /// Limits how long a request may read; dropping the future stops the reading thread.
    async fn in_time<T>(&self, look: BoxFuture<'_, Result<T>>) -> Result<T> {
        let done = tokio::time::timeout(self.limits.time, look).await;
        done.unwrap_or_else(|_| Err(AppError::Conflict(Conflict::ReadingTooLong)))
    }

    /// Sends what was found to the client; time spent reading without anything to send counts against the user.
    fn send_found(&self, pieces: holdfast_engine::Download, user: i64, hold: &Hold) -> Pieces {
        hold.end_look();
        forwarded(pieces, Some(Silence { time: self.reading_time.clone(), user, limit: self.limits.silence }))
    }

    async fn page(&self, backup: &BackupRow, path: &str, skip: usize, count: usize) -> Result<(Vec<EntryItem>, u64)> {
        let (stored, _hold) = self.looked_at_files(backup).await?;
        let mut page = FolderPage::new(skip, count, self.limits.window);
        for _ in 0..self.limits.readings {
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
                return Err(AppError::Missing(Missing::Entry));
            }
            page = read;
            if !page.next_reading() {
                return Ok((page.items, page.total));
            }
        }
        Err(AppError::Conflict(Conflict::PageTooFar))
    }

    async fn find(&self, backup: &BackupRow, text: &str, limit: usize) -> Result<Vec<EntryItem>> {
        let (stored, _hold) = self.looked_at_files(backup).await?;
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

    async fn download_one(&self, backup: &BackupRow, path: &str) -> Result<Download> {
        let (stored, hold) = self.looked_at(backup).await?;
        let (entry, pieces) = self.engine.download_entry(&stored, path).await.map_err(refused)?;
        let pieces = self.send_found(pieces, backup.user_id.0, &hold);
        Ok(Download { file_name: last_part(path).to_owned(), size: Some(entry.size), pieces })
    }

    async fn download_below(&self, backup: &BackupRow, path: &str) -> Result<Download> {
        let (stored, hold) = self.looked_at_files(backup).await?;
        let pieces = self.engine.download_folder(&stored, path).await.map_err(refused)?;
        let pieces = self.send_found(pieces, backup.user_id.0, &hold);
        Ok(Download { file_name: format!("{}.tar", last_part(path)), size: None, pieces })
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What a failure of the engine means for a request.
fn refused(error: EngineError) -> AppError {
    let unreadable = |error: EngineError| {
        let failure = error.code.as_str().to_owned();
        AppError::Conflict(Conflict::Unreadable { failure, message: error.message })
    };
    match error.code.blames() {
        Blame::Request => AppError::Missing(Missing::Entry),
        Blame::Backup | Blame::Content => unreadable(error),
        // Trying again does not help until somebody has mounted it.
        Blame::Destination if error.code == FailureCode::DestinationUnmounted => unreadable(error),
        Blame::Destination | Blame::Transfer => AppError::DestinationAway(error.message),
        Blame::Service if error.code == FailureCode::Cancelled => AppError::busy(error.message),
        // Reading contacts nothing but the destination.
        Blame::Service | Blame::Connection | Blame::Server | Blame::Channel => AppError::Internal(error.message),
    }
}

#[async_trait]
impl BackupReader for EngineReader {
    async fn entries(
        &self,
        backup: &BackupRow,
        path: &str,
        skip: usize,
        count: usize,
    ) -> Result<(Vec<EntryItem>, u64)> {
        self.in_time(self.page(backup, path, skip, count).boxed()).await
    }

    async fn download(&self, backup: &BackupRow, part: Part<'_>) -> Result<Download> {
        let range = match part {
            Part::Entry(path) => return self.in_time(self.download_one(backup, path).boxed()).await,
            Part::Range(range) => Some(range),
            Part::Whole => None,
        };
        let (stored, _) = self.held(backup, None).await?;
        let (size, pieces) = self.engine.download(&stored, range).await.map_err(refused)?;
        let pieces = forwarded(pieces, None);
        Ok(Download { file_name: last_part(&stored.locator).to_owned(), size: Some(size), pieces })
    }

    async fn download_folder(&self, backup: &BackupRow, path: &str) -> Result<Download> {
        self.in_time(self.download_below(backup, path.trim_matches('/')).boxed()).await
    }

    async fn search(&self, backup: &BackupRow, text: &str, limit: usize) -> Result<Vec<EntryItem>> {
        self.in_time(self.find(backup, text, limit).boxed()).await
    }
}

type Pieces = mpsc::Receiver<std::io::Result<Bytes>>;

/// How the time in which a download has nothing to send is counted and limited.
struct Silence {
    time: ReadingTime,
    user: i64,
    limit: Duration,
}

/// Forwards pieces until the last one, or until the client is gone, which ends the reading. How slow a client may be is
/// decided at its connection, which sees every byte.
fn forwarded(mut source: holdfast_engine::Download, silence: Option<Silence>) -> Pieces {
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            // A destination that does not respond must not keep the turn of a client that has disconnected.
            let wait = silence.as_ref().map(|silence| silence.time.wait(silence.user));
            let limit = silence.as_ref().map_or(Duration::MAX, |silence| silence.limit);
            let piece = tokio::select! {
                piece = source.recv() => piece,
                () = sender.closed() => break,
                () = tokio::time::sleep(limit) => Some(Err(std::io::Error::other(TOO_SILENT))),
            };
            drop(wait);
            let Some(piece) = piece else { break };
            let is_last = piece.is_err();
            if sender.send(piece).await.is_err() || is_last {
                break;
            }
        }
    });
    pieces
}

/// The name of a path that is directly below a folder; `None` for any other path.
fn name_in(folder: &str, path: &str) -> Option<String> {
    let rest = if folder.is_empty() { path } else { path.strip_prefix(folder)?.strip_prefix('/')? };
    (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_owned())
}

fn item(name: String, entry: &Entry) -> EntryItem {
    EntryItem {
        name,
        path: entry.path.clone(),
        kind: entry.kind,
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

    #[test]
    fn a_look_counts_until_the_last_thread_that_reads_has_ended() {
        let (readers, time) = (Readers::default(), ReadingTime::default());
        let begin = || -> Result<Arc<Hold>> {
            let look = Mutex::new(Some(time.begin(7, Instant::now())?));
            Ok(Arc::new(Hold { _turn: readers.take_turn(7)?, look }))
        };
        let mut threads = Vec::new();
        while let Ok(hold) = begin() {
            let thread: Arc<dyn std::any::Any + Send + Sync> = hold.clone();
            threads.push((thread, Arc::downgrade(&hold)));
        }
        assert_eq!(threads.len(), 3, "all have hung up, and what they asked for is still being read");
        // One has found what is sent from now on, one has ended.
        threads[0].1.upgrade().unwrap().end_look();
        drop(threads.pop());
        let again = [begin().unwrap(), begin().unwrap()];
        assert!(begin().is_err());
        drop(again);
    }
}
