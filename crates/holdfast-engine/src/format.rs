//! The interface of storage formats: how a backup is written to a destination, and how it is read. Implementations and
//! the registry are in `formats`.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::archive::{Entry, Manifest, Packed};
use crate::context::Context;
use crate::destination::{BlobStore, Blocks, DestinationPlan, Journal};
use crate::dialect::Dialect;
use crate::download::Download;
use crate::error::{EngineError, Result, classify};
use crate::plan::{BackupPlan, DatabasePlan, FilesSource, StoredBackup};
use crate::remote::Remote;
use crate::sha256::Sha256;
use crate::source::{PlainSink, files};

#[async_trait]
pub(crate) trait BackupFormat: Send + Sync {
    /// Prepares to write a backup. This happens while the connection to the server is being established.
    async fn begin(
        &self,
        engine: &Engine,
        plan: &BackupPlan,
        store: Arc<dyn BlobStore>,
    ) -> Result<Box<dyn BackupWriter>>;

    /// Opens a backup for reading, with progress towards its size. Entries that are not in its scope may be left out, here
    /// and where entries are visited. Reports a wrong password.
    async fn open_plain(&self, engine: &Engine, backup: &StoredBackup, context: &Context) -> Result<PlainReader>;

    /// Opens a backup to list its entries or to read single files, until `stop` is cancelled. Reports a wrong password.
    async fn open_entries(
        &self,
        engine: &Engine,
        backup: &StoredBackup,
        stop: &CancellationToken,
    ) -> Result<Box<dyn StoredEntries>>;

    /// Downloads the backup as one file, or a part of that; also returns how many bytes that are.
    async fn download(
        &self,
        engine: &Engine,
        backup: &StoredBackup,
        range: Option<Range<u64>>,
    ) -> Result<(u64, Download)>;

    /// Whether the destination has the backup. It is missing only if the destination was there before and after it was
    /// looked for.
    async fn is_there(&self, engine: &Engine, backup: &StoredBackup, context: &Context) -> Result<bool>;

    /// Removes a backup from its destination. One that is no longer there is not an error.
    async fn remove(&self, engine: &Engine, destination: &DestinationPlan, locator: &str) -> Result<()>;
}

/// Writes one backup.
#[async_trait]
pub(crate) trait BackupWriter: Send {
    /// Reads the source and writes it to the destination. What is returned is stored and confirmed; on error, everything
    /// left behind at the destination is recorded in the journal.
    async fn write(self: Box<Self>, engine: &Engine, job: BackupJob<'_>) -> Result<WrittenBackup>;
}

/// A backup to be written.
pub(crate) struct BackupJob<'a> {
    pub at: Remote<'a>,
    pub plan: &'a BackupPlan,
    pub input: ResolvedSource<'a>,
    pub manifest: Manifest,
    /// The estimated number of plain bytes; 0 if it is unknown.
    pub expected_bytes: u64,
    pub journal: Arc<dyn Journal>,
}

pub(crate) struct WrittenBackup {
    pub locator: String,
    pub packed: Packed,
    /// How much the repository has now, if there is one.
    pub repository_bytes: Option<u64>,
}

/// What a backup copies, once the engine of a database is known.
#[derive(Clone, Copy)]
pub(crate) enum ResolvedSource<'a> {
    Files(&'a FilesSource),
    Database(&'static dyn Dialect, &'a DatabasePlan),
}

impl ResolvedSource<'_> {
    pub(crate) fn content(self) -> Content {
        match self {
            Self::Files(_) => Content::Files,
            Self::Database(dialect, source) => Content::of_database(dialect.engine(), source.database.name.is_some()),
        }
    }

    /// Sends all of it to `sink`: a tar archive or a dump.
    pub(crate) async fn send(self, at: Remote<'_>, plan: &BackupPlan, sink: &mut PlainSink) -> Result<()> {
        match self {
            Self::Files(source) => {
                files::send(at.connection, source, at.settings, at.context, (sink, plan.started_at)).await
            }
            Self::Database(dialect, source) => dialect.dump(at, source, sink).await,
        }
    }
}

/// The entries of a stored backup. All methods block, so they must run on a separate thread.
pub(crate) trait StoredEntries: Send {
    /// `None` if the backup was not written by us.
    fn manifest(&mut self) -> Result<Option<Manifest>>;

    /// Visits every entry in order. The visitor returns whether to continue.
    fn visit(&mut self, visitor: &mut dyn FnMut(&Entry) -> Result<bool>) -> Result<()>;

    /// Opens one file; a hard link is resolved to its file.
    fn open_file(&mut self, path: &str) -> Result<(Entry, Box<dyn Read + '_>)>;
}

/// A backup that is read completely, as one plain stream: a tar archive or a dump.
pub(crate) struct PlainReader {
    pub plain: Hashing<Box<dyn Read + Send>>,
    confirm: Confirm,
}

/// Checks the stored bytes, once all of them have been read. Returns their hashes, if later readings are to be compared
/// with them.
type Confirm = Box<dyn FnOnce() -> Result<Option<Blocks>> + Send>;

impl PlainReader {
    pub(crate) fn new(plain: Box<dyn Read + Send>, confirm: Confirm) -> Self {
        Self { plain: Hashing::new(plain), confirm }
    }

    /// Reads the rest, and checks that everything is what was backed up.
    pub(crate) fn finish(mut self, backup: &StoredBackup) -> Result<()> {
        io::copy(&mut self.plain, &mut io::sink())
            .map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))?;
        let blocks = (self.confirm)()?;
        // Files in a repository are not read as one stream when they are stored; each of their chunks has a hash.
        let is_in_parts = backup.format.is_shared() && backup.content == Content::Files;
        if !is_in_parts && self.plain.hex() != backup.plain_sha256 {
            return Err(EngineError::corrupt("The content differs from what was backed up."));
        }
        if let (Some(proven), Some(blocks)) = (&backup.proven, blocks) {
            blocks.prove(proven);
        }
        Ok(())
    }
}

/// Counts and hashes what is read.
pub(crate) struct Hashing<R> {
    reader: R,
    hash: Sha256,
    pub bytes: u64,
}

impl<R> Hashing<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, hash: Sha256::default(), bytes: 0 }
    }

    /// The SHA-256 of everything so far.
    pub(crate) fn hex(&self) -> String {
        self.hash.hex()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}
