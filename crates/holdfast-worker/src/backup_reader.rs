//! Reads stored backups for requests: listings, searches and downloads.

pub(crate) mod folder_page;
mod reading_time;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use holdfast_app::refusal::{Conflict, Missing};
use holdfast_app::{
    AppError, BackupReader, Caller, Download, EntryItem, LimitKey, Part, Place, Places, Result, Sharing,
};
use holdfast_core::backup::plain_file_name;
use holdfast_core::clock;
use holdfast_core::content::Content;
use holdfast_core::failure::{Blame, FailureCode};
use holdfast_core::ids::DestinationId;
use holdfast_core::queue::Share;
use holdfast_core::storage::Format;
use holdfast_engine::{Engine, EngineError, Entry, Scope, StoredBackup};
use holdfast_store::Store;
use holdfast_store::backups::BackupRow;
use holdfast_store::destinations::DestinationRow;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::folder_page::{FolderPage, WINDOW, Window};
use self::reading_time::{Look, ReadingTime};
use crate::local_space::LocalSpace;
use crate::plans::Planner;

/// How many backups are read for requests at once; each takes a few megabytes and a thread. A share is enough for a few
/// downloads and browsing folders meanwhile.
const READERS: Sharing =
    Sharing { in_all: 16, of_users: Share { per_user: 8, reserved: 4 }, of_tokens: Share { per_user: 6, reserved: 2 } };
/// When a user with too many reads in progress may try again.
const RETRY_AFTER_SECS: u64 = 5;

pub struct EngineReader {
    engine: Engine,
    store: Store,
    planner: Planner,
    local_space: LocalSpace,
    readers: Places,
    reading_time: ReadingTime,
    limits: ReadingLimits,
}

/// What a request holds until the last thread that reads for it has ended, even if nobody waits for that any more.
struct Hold {
    _place: Place,
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
        let (readers, reading_time) = (Places::new(READERS), ReadingTime::default());
        let local_space = LocalSpace::new(folder.clone());
        Self { engine, store, planner: Planner { folder }, local_space, readers, reading_time, limits }
    }

    /// Opens a backup for reading and takes a reader slot, which is held until all reading threads have ended.
    async fn held(&self, caller: &Caller, backup: &BackupRow, look: Option<Look>) -> Result<(StoredBackup, Arc<Hold>)> {
        let place = self.readers.take(caller).map_err(refused_place)?;
        let stored = self.planner.stored(&self.store, backup).await?;
        let hold = Arc::new(Hold { _place: place, look: Mutex::new(look) });
        Ok((StoredBackup { hold: Some(hold.clone()), ..stored }, hold))
    }

    /// A backup to look through; the time counts against the caller for as long as something reads it.
    async fn looked_at(&self, caller: &Caller, backup: &BackupRow) -> Result<(StoredBackup, Arc<Hold>)> {
        let look = self.reading_time.begin(caller.limit_key, Instant::now())?;
        self.held(caller, backup, Some(look)).await
    }

    async fn looked_at_files(&self, caller: &Caller, backup: &BackupRow) -> Result<(StoredBackup, Arc<Hold>)> {
        let (stored, hold) = self.looked_at(caller, backup).await?;
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

    /// Sends what was found to the client; time spent reading without anything to send counts against the caller.
    fn send_found(&self, pieces: holdfast_engine::Download, caller: &Caller, hold: &Hold) -> Pieces {
        hold.end_look();
        let (time, key) = (self.reading_time.clone(), caller.limit_key);
        forwarded(pieces, Some(Silence { time, key, limit: self.limits.silence }))
    }

    async fn page(
        &self,
        caller: &Caller,
        backup: &BackupRow,
        path: &str,
        skip: usize,
        count: usize,
    ) -> Result<(Vec<EntryItem>, u64)> {
        let (stored, _hold) = self.looked_at_files(caller, backup).await?;
        let stored = StoredBackup { scope: Scope::of_folder(path), ..stored };
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

    async fn find(&self, caller: &Caller, backup: &BackupRow, text: &str, limit: usize) -> Result<Vec<EntryItem>> {
        let (stored, _hold) = self.looked_at_files(caller, backup).await?;
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

    async fn download_one(&self, caller: &Caller, backup: &BackupRow, path: &str) -> Result<Download> {
        let (stored, hold) = self.looked_at(caller, backup).await?;
        let (entry, pieces) = self.engine.download_entry(&stored, path).await.map_err(refused)?;
        let pieces = self.send_found(pieces, caller, &hold);
        Ok(Download { file_name: last_part(path).to_owned(), size: Some(entry.size), pieces })
    }

    async fn download_below(&self, caller: &Caller, backup: &BackupRow, path: &str) -> Result<Download> {
        let (stored, hold) = self.looked_at_files(caller, backup).await?;
        let pieces = self.engine.download_folder(&stored, path).await.map_err(refused)?;
        let pieces = self.send_found(pieces, caller, &hold);
        Ok(Download { file_name: format!("{}.tar", last_part(path)), size: None, pieces })
    }
}

/// Why there is no place for a reader whose user has `own` places.
fn refused_place(own: usize) -> AppError {
    if own == 0 {
        return AppError::busy("too many backups are being read at once");
    }
    let limit = u32::try_from(own).unwrap_or(u32::MAX);
    AppError::TooManyRequests { limit, retry_after_secs: RETRY_AFTER_SECS }
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
    async fn local_free_bytes(&self, destinations: &[DestinationRow]) -> Vec<(DestinationId, u64)> {
        self.local_space.find(destinations).await
    }

    async fn entries(
        &self,
        caller: &Caller,
        backup: &BackupRow,
        path: &str,
        skip: usize,
        count: usize,
    ) -> Result<(Vec<EntryItem>, u64)> {
        self.in_time(self.page(caller, backup, path, skip, count).boxed()).await
    }

    async fn download(&self, caller: &Caller, backup: &BackupRow, part: Part<'_>) -> Result<Download> {
        let range = match part {
            Part::Entry(path) => return self.in_time(self.download_one(caller, backup, path).boxed()).await,
            Part::Range(range) => Some(range),
            Part::Whole => None,
        };
        let (stored, _) = self.held(caller, backup, None).await?;
        let (size, pieces) = self.engine.download(&stored, range).await.map_err(refused)?;
        let pieces = forwarded(pieces, None);
        let file_name = match stored.format {
            Format::Archive => last_part(&stored.locator).to_owned(),
            Format::Repository => plain_file_name(&backup.task_label, backup.content, backup.created_at.0),
        };
        Ok(Download { file_name, size: Some(size), pieces })
    }

    async fn download_folder(&self, caller: &Caller, backup: &BackupRow, path: &str) -> Result<Download> {
        self.in_time(self.download_below(caller, backup, path.trim_matches('/')).boxed()).await
    }

    async fn search(&self, caller: &Caller, backup: &BackupRow, text: &str, limit: usize) -> Result<Vec<EntryItem>> {
        self.in_time(self.find(caller, backup, text, limit).boxed()).await
    }
}

type Pieces = mpsc::Receiver<std::io::Result<Bytes>>;

/// How the time in which a download has nothing to send is counted and limited.
struct Silence {
    time: ReadingTime,
    key: LimitKey,
    limit: Duration,
}

/// Forwards pieces until the last one, or until the client is gone, which ends the reading. How slow a client may be is
/// decided at its connection, which sees every byte.
fn forwarded(mut source: holdfast_engine::Download, silence: Option<Silence>) -> Pieces {
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            // A destination that does not respond must not keep the turn of a client that has disconnected.
            let wait = silence.as_ref().map(|silence| silence.time.wait(silence.key));
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
    use holdfast_app::{Expected, Origin};
    use holdfast_core::ids::UserId;
    use holdfast_core::scope::ScopeSet;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn caller() -> Caller {
        Caller {
            user: UserId(7),
            is_admin: false,
            scopes: ScopeSet::all(),
            zone: clock::zone_or_utc("UTC"),
            origin: Origin::default(),
            gone: CancellationToken::new(),
            expected: Expected::Any,
            dry_run: None,
            limit_key: LimitKey::Token(7),
        }
    }

    #[test]
    fn a_look_counts_until_the_last_thread_that_reads_has_ended() {
        let (readers, time) = (Places::new(READERS), ReadingTime::default());
        let begin = || -> Result<Arc<Hold>> {
            let look = Mutex::new(Some(time.begin(LimitKey::Token(7), Instant::now())?));
            Ok(Arc::new(Hold { _place: readers.take(&caller()).map_err(refused_place)?, look }))
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
