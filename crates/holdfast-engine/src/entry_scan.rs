//! Goes through the entries of a backup before it is read: whether what was chosen exists, which of it are hard links,
//! and which paths a server must be asked about.

use std::collections::HashSet;
use std::ops::ControlFlow;

use holdfast_core::backup::{EntryKind, name_bytes};
use holdfast_core::failure::FailureCode;
use tokio::sync::mpsc;

use crate::Engine;
use crate::archive::{Choice, Entry, Existing, ancestors, is_too_deep};
use crate::error::{EngineError, Result};
use crate::plan::StoredBackup;

/// Looks through the entries of a backup.
pub(crate) struct EntryScan {
    choice: Choice,
    found: HashSet<String>,
    links: Vec<Entry>,
    /// The memory that the names of the links take.
    link_bytes: usize,
    pub existing: Option<Existing>,
    asked: HashSet<u64>,
    pub keys: Vec<u64>,
    buffer: Vec<u8>,
    sender: Option<mpsc::Sender<Vec<u8>>>,
    /// Not all entries were visited.
    pub is_cut: bool,
    /// Folders and parent folders are not asked about.
    is_of_files: bool,
}

/// The result of going through the entries.
#[derive(Default)]
pub(crate) struct Scanned {
    pub links: Vec<Entry>,
    pub existing: Option<Existing>,
}

const QUESTION_BYTES: usize = 64 * 1024;
/// How much memory the names of all hard links may take: 256 bytes for each of the most that there may be.
const LINK_BYTES: usize = 512 * 1024 * 1024;

impl EntryScan {
    pub(crate) fn new(choice: Choice, sender: Option<mpsc::Sender<Vec<u8>>>) -> Self {
        let existing = sender.is_some().then(Existing::default);
        let (found, asked) = (HashSet::new(), HashSet::new());
        let (links, keys, buffer) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            choice,
            found,
            links,
            existing,
            asked,
            keys,
            buffer,
            sender,
            link_bytes: 0,
            is_cut: false,
            is_of_files: false,
        }
    }

    pub(crate) fn visit(&mut self, entry: &Entry) -> ControlFlow<()> {
        if !self.choice.is_everything() {
            let mut is_wanted = false;
            for wanted in self.choice.covering(&entry.path) {
                is_wanted = true;
                if !self.found.contains(wanted) {
                    self.found.insert(wanted.to_owned());
                }
            }
            if !is_wanted {
                return ControlFlow::Continue(());
            }
        }
        if entry.kind == EntryKind::Hardlink {
            self.link_bytes += entry.path.len() + entry.link.as_ref().map_or(0, String::len);
            if self.link_bytes > LINK_BYTES {
                return ControlFlow::Break(());
            }
            self.links.push(entry.clone());
        }
        if self.existing.is_some() && !is_too_deep(&entry.path) {
            if !self.is_of_files {
                ancestors(&entry.path).for_each(|above| self.ask(above));
            }
            if !self.is_of_files || entry.kind != EntryKind::Directory {
                self.ask(&entry.path);
            }
        }
        // If the receiver is gone, it has failed and reports why.
        self.is_cut = self.sender.as_ref().is_some_and(mpsc::Sender::is_closed);
        if self.is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn ask(&mut self, path: &str) {
        let Some(existing) = &self.existing else { return };
        let key = existing.key(path);
        if !self.asked.insert(key) {
            return;
        }
        self.keys.push(key);
        self.buffer.extend(b"./");
        self.buffer.extend(name_bytes(path));
        self.buffer.push(0);
        if self.buffer.len() >= QUESTION_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if let Some(sender) = self.sender.as_ref().filter(|_| !buffer.is_empty()) {
            // If the receiver is gone, it has failed and reports why.
            let _gone = sender.blocking_send(buffer);
        }
    }

    pub(crate) fn finish(self) -> Result<Scanned> {
        if self.link_bytes > LINK_BYTES {
            let message = "This backup has more links than can be held at once; nothing was restored.";
            return Err(EngineError::new(FailureCode::NotSupported, message));
        }
        match self.choice.first_missing(&self.found) {
            Some(missing) => Err(EngineError::new(
                FailureCode::EntryMissing,
                format!("There is no {missing} in this backup; nothing was restored."),
            )),
            None => Ok(Scanned { links: self.links, existing: None }),
        }
    }
}

impl Engine {
    /// Sends the paths that a restore writes to `sender`, whose receiver asks the server about them; with
    /// `is_of_files`, those of folders are left out.
    pub(crate) async fn ask_for(
        &self,
        backup: &StoredBackup,
        choice: &Choice,
        is_of_files: bool,
        sender: mpsc::Sender<Vec<u8>>,
    ) -> Result<EntryScan> {
        let scan = EntryScan { is_of_files, ..EntryScan::new(choice.clone(), Some(sender)) };
        let mut scan = self.visit(backup, scan, EntryScan::visit).await?;
        let (buffer, sender) = (std::mem::take(&mut scan.buffer), scan.sender.take());
        if let Some(sender) = sender.filter(|_| !buffer.is_empty()) {
            // If the receiver is gone, it has failed and reports why. Dropping the sender ends the questions.
            let _gone = sender.send(buffer).await;
        }
        Ok(scan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_held_up_to_a_limit() {
        let link = Entry {
            path: "a".repeat(1000),
            kind: EntryKind::Hardlink,
            size: 0,
            modified_micros: 0,
            link: Some("b".repeat(1000)),
            is_device: None,
            start: 0,
            end: 512,
        };
        let mut scan = EntryScan::new(Choice::default(), None);
        scan.link_bytes = LINK_BYTES - 2000;
        assert!(scan.visit(&link).is_continue());
        assert_eq!(scan.links.len(), 1);
        assert!(scan.visit(&link).is_break());
        assert_eq!(scan.links.len(), 1);
        let Err(error) = scan.finish() else { panic!("a part of the links was taken for all") };
        assert_eq!(error.code, FailureCode::NotSupported);
    }
}
