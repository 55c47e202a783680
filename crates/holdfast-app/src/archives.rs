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
    /// Unknown for what is put together on the way.
    pub size: Option<u64>,
    pub pieces: mpsc::Receiver<std::io::Result<Bytes>>,
}

/// How a download's name is written into its headers: a plain one for old clients, and the real one as RFC 6266 has it.
pub fn disposition(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._- ".contains(c);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let encoded: String = name
        .bytes()
        .map(|byte| if is_token(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

#[async_trait]
pub trait Archives: Send + Sync {
    /// What is in a folder of the backup; the empty path is its root. Sorted by name, at most `limit`.
    async fn entries(&self, backup: &BackupRow, path: &str, limit: usize) -> Result<Vec<EntryItem>>;

    /// What has the text in its name, anywhere in the backup. Sorted by path, at most `limit`.
    async fn search(&self, backup: &BackupRow, text: &str, limit: usize) -> Result<Vec<EntryItem>>;

    /// The object as it is stored, or the content of one file in it.
    async fn download(&self, backup: &BackupRow, entry: Option<&str>) -> Result<Download>;

    /// A folder as a tar archive.
    async fn download_folder(&self, backup: &BackupRow, path: &str) -> Result<Download>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_cannot_add_headers() {
        let shown = disposition("a\"b\r\nX: ü.txt");
        assert_eq!(shown, "attachment; filename=\"a_b__X_ _.txt\"; filename*=UTF-8''a%22b%0D%0AX%3A%20%C3%BC.txt");
    }
}
