//! Reads a folder page by page, within limits: a server can invent names without end.

use std::time::Duration;

use holdfast_core::backup::name_text;
use tokio::time::Instant;

use super::packet::{Handle, Name, Request};
use super::{Client, SftpError};

/// Limits for reading one folder.
#[derive(Debug, Clone, Copy)]
pub struct FolderLimits {
    pub names: u64,
    /// The length of all names together.
    pub bytes: u64,
    pub time: Duration,
}

impl Default for FolderLimits {
    /// Far more than any usable folder has, and small enough to hold in memory.
    fn default() -> Self {
        Self { names: 2_000_000, bytes: 128 * 1024 * 1024, time: Duration::from_secs(3600) }
    }
}

/// A folder that is being read.
pub struct Folder {
    handle: Handle,
    /// The path, for messages.
    path: String,
    limits: FolderLimits,
    names: u64,
    bytes: u64,
    deadline: Instant,
}

impl Folder {
    pub async fn open(client: &mut Client, path: &[u8], limits: FolderLimits) -> Result<Self, SftpError> {
        let handle = client.ask_handle(&Request::Opendir(path)).await?;
        let deadline = Instant::now() + limits.time;
        Ok(Self { handle, path: name_text(path), limits, names: 0, bytes: 0, deadline })
    }

    /// The next names, without `.` and `..`; `None` after the last, when the folder has been closed. A page can be
    /// empty.
    pub async fn next_page(&mut self, client: &mut Client) -> Result<Option<Vec<Name>>, SftpError> {
        let page = match tokio::time::timeout_at(self.deadline, client.read_page(&self.handle)).await {
            Ok(page) => page?,
            Err(_) => {
                let limit = format!("was not read within {} seconds", self.limits.time.as_secs());
                return Err(self.too_much(client, &limit));
            }
        };
        let Some(mut page) = page else {
            client.close_later(&self.handle)?;
            return Ok(None);
        };
        // Everything received counts, otherwise a folder that lists only `.` and `..` would never end.
        self.names += page.len() as u64;
        self.bytes += page.iter().map(|name| name.name.len() as u64).sum::<u64>();
        if self.names > self.limits.names {
            let limit = format!("holds more than {} names", self.limits.names);
            return Err(self.too_much(client, &limit));
        }
        if self.bytes > self.limits.bytes {
            let limit = format!("holds names of more than {} bytes in all", self.limits.bytes);
            return Err(self.too_much(client, &limit));
        }
        page.retain(|name| name.name != b"." && name.name != b"..");
        if let Some(bad) = page.iter().find(|name| !is_name(&name.name)) {
            tracing::debug!(folder = self.path, name = name_text(&bad.name), "the server sent an invalid name");
            return Err(client.fail(SftpError::Protocol("an invalid name in a folder")));
        }
        Ok(Some(page))
    }

    /// Stops reading before the end.
    pub fn close(self, client: &mut Client) -> Result<(), SftpError> {
        client.close_later(&self.handle)
    }

    fn too_much(&self, client: &mut Client, limit: &str) -> SftpError {
        // The error that is returned is more useful than one from closing.
        let _unsent = client.close_later(&self.handle);
        SftpError::Limit(format!("The folder {} {limit}.", self.path))
    }
}

/// Whether this is a valid name: a slash would lead elsewhere, and no system has names with a NUL byte.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/') && !name.contains(&0)
}
