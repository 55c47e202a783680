//! What use cases need of stored backups' contents. The engine is behind this: reading a backup for whoever asked for
//! it is the one thing that a request does at a destination itself; everything else there is a run.

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_core::Timestamp;
use holdfast_store::backups::BackupRow;
use tokio::sync::mpsc;

use crate::Result;

/// One thing in a backup of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryItem {
    /// The last part of the path.
    pub name: String,
    pub path: String,
    pub kind: &'static str,
    pub size: u64,
    pub modified_at: Timestamp,
}

/// Bytes on their way to a client; an error ends them.
pub struct Download {
    pub file_name: String,
    pub size: u64,
    pub pieces: mpsc::Receiver<std::io::Result<Bytes>>,
}

#[async_trait]
pub trait Archives: Send + Sync {
    /// What is in a folder of the backup; the empty path is its root. Sorted by name, at most `limit`.
    async fn entries(&self, backup: &BackupRow, path: &str, limit: usize) -> Result<Vec<EntryItem>>;

    /// The object as it is stored, or the content of one file in it.
    async fn download(&self, backup: &BackupRow, entry: Option<&str>) -> Result<Download>;
}
