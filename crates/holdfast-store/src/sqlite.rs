//! SQLite with many readers and one writer.
//!
//! Writers queue on a fair lock. Each works inside a savepoint of one outer transaction; when it is done, it asks the
//! committer to commit, which queues behind the writers that are already waiting. So writers that arrive while another
//! works share a single fsync, and none returns before that fsync has happened.

use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, oneshot};

use crate::database_file::DatabaseFile;
use crate::error::{StartError, StoreError};
use crate::options::{Migrations, Options};
use crate::pool::{self, Pool};

/// How long another process may hold the write lock before we give up; commands run alongside the service hold it for
/// milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Each reader is a separate thread; more than this only contend with each other.
const MAX_READERS: usize = 8;
/// How long a writer waits before it fails as unavailable: another process must be holding the database.
const WRITE_WAIT: Duration = Duration::from_secs(15);

pub(crate) async fn open(path: &Path, options: &Options) -> Result<(Pool<SqliteConnectOptions>, Writer), StartError> {
    let explain = |error: StoreError| {
        let shown = path.display();
        match error {
            StoreError::DiskFull(_) => {
                StartError::DiskFull(format!("the disk is full: {shown} cannot be opened; free some space"))
            }
            StoreError::ReadOnly(_) => StartError::Permission(format!(
                "the SQLite database {shown} cannot be written; make it and its folder writable for this user"
            )),
            StoreError::Damaged(_) => StartError::Database(format!(
                "{shown} is damaged, or is not a SQLite database; put back a copy of the data folder, or recover \
                 with `holdfast bootstrap`"
            )),
            StoreError::Locked(text) => locked_at_start(path, &text),
            error => StartError::Database(format!("cannot open the SQLite database {shown}: {error}")),
        }
    };
    let connect = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(options.migrations != Migrations::Never)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        // There may be no place for temporary files, if only the data folder is writable.
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging();
    // Only a new file is told, because this is written with every new connection, also on a full disk. An older one shrinks
    // after `PRAGMA auto_vacuum = INCREMENTAL; VACUUM`.
    let is_new = !std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let first = if is_new { connect.clone().auto_vacuum(SqliteAutoVacuum::Incremental) } else { connect.clone() };
    if options.migrations != Migrations::Never {
        make_private(path);
    }
    let opened = connect_patiently(&first).await;
    // One more than there are cores keeps them all busy; in measurements on two cores, three beat both two and four.
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let size = options.max_connections.min((cores + 1).min(MAX_READERS) as u32);
    let connection = match opened {
        Ok(connection) => connection,
        Err(error) => {
            let obstacle = DatabaseFile::new(path).check().err();
            let obstacle = obstacle.filter(|error| matches!(error, StoreError::DiskFull(_) | StoreError::ReadOnly(_)));
            let Some(problem) = obstacle else { return Err(explain(error.into())) };
            if !is_readable_alone(path, options.migrations) {
                return Err(explain(problem));
            }
            let readers = pool::open(read_only(path), size, options.acquire_timeout);
            return Ok((readers, Writer::refusing(problem)));
        }
    };
    if options.migrations != Migrations::Never {
        // SQLite opens it all the same, and a service that can write nothing should not start.
        DatabaseFile::new(path).check_permission().map_err(explain)?;
    }
    // A file that is gone must not come back empty: SQLite would also replace the write-ahead log beside it, with
    // everything in it that was acknowledged.
    let readers = pool::open(connect.create_if_missing(false).pragma("query_only", "1"), size, options.acquire_timeout);
    Ok((readers, Writer::start(connection)))
}

/// Whether a database that cannot be written can be read all the same. SQLite needs room for a file next to a database even
/// to read it, unless it is told that nobody writes; then it must not have a log either.
fn is_readable_alone(path: &Path, migrations: Migrations) -> bool {
    let is_settled = std::fs::metadata(beside(path, "-wal")).map_or(true, |log| log.len() == 0);
    migrations == Migrations::Never && is_settled && !DatabaseFile::new(path).is_open_elsewhere()
}

fn read_only(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .immutable(true)
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
}

/// Another process holds the database, and has not let go of it for long.
pub(crate) fn locked_at_start(path: &Path, text: &str) -> StartError {
    let holder = DatabaseFile::new(path).find_lock_holder().unwrap_or_else(|| text.to_owned());
    StartError::Database(format!(
        "the SQLite database {} is locked by another process: {holder}; end that process, and try again",
        path.display()
    ))
}

/// The files of a SQLite database.
const FILES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// Those files that users other than their owner can access; they contain password hashes.
pub fn exposed_files(path: &Path) -> Vec<PathBuf> {
    let is_exposed = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0);
    FILES.into_iter().map(|end| beside(path, end)).filter(is_exposed).collect()
}

/// A file next to the database, whose name ends differently.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Makes a database accessible to its owner only, also one that an older version created. SQLite gives its other files
/// the mode of the first one. Files that cannot be made private, such as another user's, are logged and used all the
/// same.
fn make_private(path: &Path) {
    let made = std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    if let Err(error) = made {
        // Opening the database fails for the same reason, with a better message.
        tracing::debug!(%error, "could not create the database file");
    }
    for path in exposed_files(path) {
        if let Err(error) = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)) {
            tracing::warn!(path = %path.display(), %error, "other users can read this database file");
        }
    }
}

/// SQLite switches a new file to a write-ahead log without waiting for locks: of several processes that start at once
/// on a new file, one gets the error that it is locked, and tries again.
async fn connect_patiently(connect: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    const LOCKED: &str = "5";
    const AGAIN: Duration = Duration::from_millis(20);
    let deadline = tokio::time::Instant::now() + BUSY_TIMEOUT;
    loop {
        match connect.connect().await {
            Err(sqlx::Error::Database(error))
                if error.code().as_deref() == Some(LOCKED) && tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(AGAIN).await;
            }
            connected => return connected,
        }
    }
}

/// The handle through which writers begin their work.
#[derive(Clone)]
pub(crate) struct Writer {
    state: Arc<Mutex<State>>,
    commit_wanted: Arc<Notify>,
}

struct State {
    /// `None` once closed, or if the database can only be read.
    connection: Option<SqliteConnection>,
    /// Why the database can only be read.
    refusal: Option<StoreError>,
    /// `BEGIN IMMEDIATE` was sent and neither committed nor rolled back.
    outer_open: bool,
    /// `BEGIN IMMEDIATE` has been sent and its result is not known yet.
    is_beginning: bool,
    /// A writer is at work, or was dropped without committing.
    savepoint_open: bool,
    /// Writers whose work is in the outer transaction and waits for its commit.
    waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

impl Writer {
    fn start(connection: SqliteConnection) -> Self {
        Self::new(Some(connection), None)
    }

    /// A writer that answers every attempt to write with this error.
    fn refusing(refusal: StoreError) -> Self {
        Self::new(None, Some(refusal))
    }

    fn new(connection: Option<SqliteConnection>, refusal: Option<StoreError>) -> Self {
        let state = State {
            connection,
            refusal,
            outer_open: false,
            is_beginning: false,
            savepoint_open: false,
            waiting: Vec::new(),
        };
        let writer = Self { state: Arc::new(Mutex::new(state)), commit_wanted: Arc::new(Notify::new()) };
        tokio::spawn(commit_when_wanted(Arc::downgrade(&writer.state), writer.commit_wanted.clone()));
        writer
    }

    /// Waits for its turn. Runs as a separate task: a caller that is cancelled half-way must not leave the connection
    /// in an unknown state.
    pub(crate) async fn begin(&self) -> Result<WriteGuard, StoreError> {
        let (state, commit_wanted) = (self.state.clone(), self.commit_wanted.clone());
        let begun = tokio::spawn(async move {
            let locked = tokio::time::timeout(WRITE_WAIT, state.lock_owned()).await;
            let mut state = locked.map_err(|_| StoreError::Unavailable("too many writers are waiting".to_owned()))?;
            state.begin().await?;
            Ok(WriteGuard { state: Some(state), commit_wanted })
        });
        begun.await.map_err(|error| StoreError::Broken(error.to_string()))?
    }

    /// Why nothing can be written, if that was clear from the beginning.
    pub(crate) async fn refusal(&self) -> Option<StoreError> {
        self.state.lock().await.refusal.clone()
    }

    pub(crate) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.commit().await;
        // Afterwards everything is in one file, so that a copy of it is complete. Other processes may still read.
        if let Err(error) = state.send("PRAGMA wal_checkpoint(TRUNCATE)").await {
            tracing::debug!(%error, "could not empty the write-ahead log");
        }
        if let Some(connection) = state.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "could not close the SQLite database");
        }
        self.commit_wanted.notify_one();
    }
}

async fn commit_when_wanted(state: std::sync::Weak<Mutex<State>>, commit_wanted: Arc<Notify>) {
    loop {
        commit_wanted.notified().await;
        let Some(state) = state.upgrade() else { return };
        let mut state = state.lock().await;
        if state.connection.is_none() {
            return;
        }
        state.commit().await;
    }
}

impl State {
    async fn begin(&mut self) -> Result<(), StoreError> {
        self.undo_abandoned_work().await;
        if !self.outer_open {
            // An earlier begin was interrupted, for example by a runtime shutting down: whether it took effect is
            // unknown.
            if self.is_beginning && self.send("ROLLBACK").await.is_ok() {
                tracing::debug!("rolled back a transaction whose begin was interrupted");
            }
            self.is_beginning = true;
            let begun = self.send("BEGIN IMMEDIATE").await;
            self.is_beginning = false;
            begun?;
            self.outer_open = true;
        }
        self.send("SAVEPOINT work").await?;
        self.savepoint_open = true;
        Ok(())
    }

    /// Rolls back what a writer left uncommitted. If even that fails, SQLite has already aborted the whole transaction
    /// (a full disk does that), and everyone who waits for it must get the error.
    async fn undo_abandoned_work(&mut self) {
        if !self.savepoint_open {
            return;
        }
        self.savepoint_open = false;
        if let Err(error) = self.send("ROLLBACK TO work; RELEASE work").await {
            self.abort(&error).await;
        }
    }

    async fn commit(&mut self) {
        self.undo_abandoned_work().await;
        if !self.outer_open {
            return;
        }
        match self.send("COMMIT").await {
            Ok(()) => {
                self.outer_open = false;
                for waiter in self.waiting.drain(..) {
                    // A waiter that is gone does not need the answer.
                    drop(waiter.send(Ok(())));
                }
            }
            Err(error) => self.abort(&error).await,
        }
    }

    async fn abort(&mut self, error: &StoreError) {
        tracing::error!(%error, waiting = self.waiting.len(), "SQLite aborted a transaction");
        // Makes sure that no transaction is open; it is fine if this fails because there is none.
        drop(self.send("ROLLBACK").await);
        self.outer_open = false;
        for waiter in self.waiting.drain(..) {
            drop(waiter.send(Err(error.clone())));
        }
    }

    async fn send(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let Some(connection) = &mut self.connection else {
            let closed = || StoreError::Unavailable("the database is closed".to_owned());
            return Err(self.refusal.clone().unwrap_or_else(closed));
        };
        sqlx::raw_sql(sql).execute(connection).await?;
        Ok(())
    }
}

/// The right to write, held by one unit of work at a time.
pub(crate) struct WriteGuard {
    /// Taken out by `commit`.
    state: Option<OwnedMutexGuard<State>>,
    commit_wanted: Arc<Notify>,
}

impl WriteGuard {
    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        let state = self.state.as_mut().expect("only commit takes it out, and that ends the guard");
        state.connection.as_mut().expect("a writer that began has a connection")
    }

    /// Adds the work to the next commit and waits for that.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        let (state, commit_wanted) = (self.state.take(), self.commit_wanted.clone());
        let mut state = state.expect("only commit takes it out, and that ends the guard");
        let done = tokio::spawn(async move {
            let (sender, receiver) = oneshot::channel();
            let released = state.send("RELEASE work").await;
            state.savepoint_open = false;
            if let Err(error) = released {
                state.abort(&error).await;
                return Err(error);
            }
            state.waiting.push(sender);
            commit_wanted.notify_one();
            drop(state);
            match receiver.await {
                Ok(Ok(())) => Ok(()),
                // Whatever the error was, the work that is lost here can be tried again.
                Ok(Err(
                    error @ (StoreError::DiskFull(_)
                    | StoreError::ReadOnly(_)
                    | StoreError::Damaged(_)
                    | StoreError::Unreadable(_)),
                )) => Err(error),
                Ok(Err(error)) => Err(StoreError::Unavailable(error.to_string())),
                Err(_) => Err(StoreError::Unavailable("the database was closed before the commit".to_owned())),
            }
        });
        done.await.map_err(|error| StoreError::Broken(error.to_string()))?
    }
}

impl Drop for WriteGuard {
    /// Abandoned work is undone at once: an open transaction would keep other processes from writing.
    fn drop(&mut self) {
        if self.state.is_some() {
            self.commit_wanted.notify_one();
        }
    }
}
