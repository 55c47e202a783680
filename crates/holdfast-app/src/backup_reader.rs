//! The port through which use cases read the contents of stored backups, implemented in the worker crate with the
//! engine. Reading a backup for a user is the only thing that a request itself does at a destination; everything else
//! there is a run. It also tells monitoring how much room local destinations have.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use holdfast_core::Timestamp;
use holdfast_core::backup::EntryKind;
use holdfast_core::ids::DestinationId;
use holdfast_store::backups::BackupRow;
use holdfast_store::destinations::DestinationRow;
use tokio::sync::mpsc;

use crate::{Caller, Result};

/// An entry in a backup of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryItem {
    /// The last part of the path.
    pub name: String,
    pub path: String,
    pub kind: EntryKind,
    pub size: u64,
    pub modified_at: Timestamp,
}

/// What is downloaded of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<'a> {
    /// The object as it is stored.
    Whole,
    /// Some bytes of the object as it is stored, which are not empty and within its size.
    Range(Range<u64>),
    /// The content of one file.
    Entry(&'a str),
}

/// A stream of bytes for a client; an error ends it.
pub struct Download {
    pub file_name: String,
    /// Unknown for content that is assembled while it is sent.
    pub size: Option<u64>,
    pub pieces: mpsc::Receiver<std::io::Result<Bytes>>,
}

impl Download {
    /// The headers of the response.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let kind = ("content-type", "application/octet-stream".to_owned());
        let length = self.size.map(|size| ("content-length", size.to_string()));
        let name = ("content-disposition", disposition(&self.file_name));
        [kind, name].into_iter().chain(length).collect()
    }

    /// The bytes. If their number is not known in advance, an empty piece marks their end: a stream that stops without
    /// it was cut off and must not look complete.
    pub fn into_stream(self) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
        let needs_end = self.size.is_none();
        stream::unfold(Some(self.pieces), move |pieces| async move {
            let mut pieces = pieces?;
            let piece = match pieces.recv().await {
                Some(Ok(piece)) if piece.is_empty() && needs_end => return None,
                Some(Ok(piece)) => return Some((Ok(piece), Some(pieces))),
                Some(Err(error)) => Err(error),
                None if needs_end => Err(std::io::Error::other("the stream ended early")),
                None => return None,
            };
            if let Err(error) = &piece {
                // The status was sent long ago; the connection is cut off, which the client notices.
                tracing::warn!(%error, "a download was cut off");
            }
            Some((piece, None))
        })
    }
}

/// The `Content-Disposition` of a download: a plain name for old clients, and the real one as in RFC 6266.
fn disposition(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._- ".contains(c);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let encoded: String = name
        .bytes()
        .map(|byte| if is_token(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

/// The caller decides whose share of the places for readers is used.
#[async_trait]
pub trait BackupReader: Send + Sync {
    /// The free bytes of those of these destinations that are folders on this machine and answer at once.
    async fn local_free_bytes(&self, destinations: &[DestinationRow]) -> Vec<(DestinationId, u64)>;

    /// The entries of a folder in the backup, sorted by name, after the first `skip`, and how many there are in all;
    /// the empty path is the backup's root.
    async fn entries(
        &self,
        caller: &Caller,
        backup: &BackupRow,
        path: &str,
        skip: usize,
        count: usize,
    ) -> Result<(Vec<EntryItem>, u64)>;

    /// Entries anywhere in the backup whose name contains the text, sorted by path, at most `limit`.
    async fn search(&self, caller: &Caller, backup: &BackupRow, text: &str, limit: usize) -> Result<Vec<EntryItem>>;

    async fn download(&self, caller: &Caller, backup: &BackupRow, part: Part<'_>) -> Result<Download>;

    /// A folder as a tar archive.
    async fn download_folder(&self, caller: &Caller, backup: &BackupRow, path: &str) -> Result<Download>;
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
