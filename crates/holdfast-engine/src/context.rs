//! What a run carries with it: progress, a log, the wish to stop, and what was learnt about the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use holdfast_core::Secret;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::{EngineError, Result};
use crate::progress::Progress;

/// Lines that one run may add to its log; a tree of a million unreadable files must not fill the database.
const MAX_LINES: u64 = 1000;

#[derive(Clone)]
pub struct Context {
    pub progress: Arc<Progress>,
    pub log: Log,
    pub cancel: CancellationToken,
    /// What the servers showed, for whoever pins keys.
    pub contact: Arc<Mutex<Contact>>,
    /// Told before a restore changes anything on a server.
    pub on_write: Option<OnWrite>,
}

/// Notes what a restore does to its server; an error keeps it from that.
pub type OnWrite = Arc<dyn Fn(WriteNote) -> BoxFuture<'static, std::result::Result<(), String>> + Send + Sync>;

/// What is noted about a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteNote {
    /// It is about to change something, below this folder if it is files.
    Begins { folder: Option<String> },
    /// It has failed, and everything is as it was before.
    Undone,
}

/// Keys as fingerprints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contact {
    /// The server let us in; with this key.
    pub host_key: Option<String>,
    /// The server showed this key in place of the pinned one.
    pub changed_host_key: Option<String>,
    pub jump_host_key: Option<String>,
    pub changed_jump_host_key: Option<String>,
    pub latency_micros: Option<u64>,
    /// The folder that is read or written there, without links in its path.
    pub folder: Option<String>,
    /// Databases that a backup of a whole server holds.
    pub databases: Vec<String>,
}

impl Context {
    /// A context, and where its log lines come out.
    pub fn new(cancel: CancellationToken) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (lines, received) = mpsc::unbounded_channel();
        let log = Log { lines, state: Arc::default() };
        (Self { progress: Arc::default(), log, cancel, contact: Arc::default(), on_write: None }, received)
    }

    /// To be called before anything is changed on a server that a backup could read: from then on, a restore that does
    /// not succeed may have left half of something.
    pub(crate) async fn begin_writing(&self) -> Result<()> {
        let Some(on_write) = &self.on_write else { return Ok(()) };
        let folder = self.contact.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).folder.clone();
        on_write(WriteNote::Begins { folder }).await.map_err(|reason| {
            EngineError::internal(format!(
                "{reason} It could not be noted that this restore begins, so nothing was written."
            ))
        })
    }

    /// To be called when a restore failed and everything that it wrote is gone again.
    pub(crate) async fn note_undone(&self) {
        let Some(on_write) = &self.on_write else { return };
        if let Err(reason) = on_write(WriteNote::Undone).await {
            self.log.line(format!("It could not be noted that nothing is left of this restore: {reason}"));
        }
    }

    pub(crate) fn note_folder(&self, folder: &str) {
        self.with_contact(|contact| contact.folder = Some(folder.to_owned()).filter(|folder| !folder.is_empty()));
    }

    pub(crate) fn note_database(&self, name: &str) {
        self.with_contact(|contact| contact.databases.push(name.to_owned()));
    }

    pub(crate) fn with_contact<T>(&self, change: impl FnOnce(&mut Contact) -> T) -> T {
        change(&mut self.contact.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// The log of a run. Text from elsewhere passes through here, and secrets stay behind.
#[derive(Clone)]
pub struct Log {
    lines: mpsc::UnboundedSender<String>,
    state: Arc<LogState>,
}

#[derive(Default)]
struct LogState {
    written: AtomicU64,
    warnings: AtomicU64,
    secrets: Mutex<Vec<Secret>>,
}

impl Log {
    /// From now on this text is blotted out wherever it turns up.
    pub(crate) fn hide(&self, secret: &Secret) {
        if !secret.reveal().is_empty() {
            self.state.secrets.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(secret.clone());
        }
    }

    pub fn line(&self, text: impl AsRef<str>) {
        let text = self.redacted(text.as_ref());
        match self.state.written.fetch_add(1, Ordering::Relaxed) {
            // Nobody listens when the run is over; then there is nothing to tell either.
            number if number < MAX_LINES => drop(self.lines.send(text)),
            MAX_LINES => drop(self.lines.send("Further lines are left out.".to_owned())),
            _ => {}
        }
    }

    pub fn warn(&self, text: impl AsRef<str>) {
        self.state.warnings.fetch_add(1, Ordering::Relaxed);
        self.line(format!("Warning: {}", text.as_ref()));
    }

    pub fn warnings(&self) -> u64 {
        self.state.warnings.load(Ordering::Relaxed)
    }

    pub(crate) fn redacted(&self, text: &str) -> String {
        let secrets = self.state.secrets.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        secrets.iter().fold(text.to_owned(), |text, secret| without_secret(&text, secret.reveal()))
    }
}

/// Blots a secret out. One of very few characters is part of many words, and what is left of them would tell it: that
/// one is blotted out where it stands alone.
fn without_secret(text: &str, secret: &str) -> String {
    const SHORT: usize = 4;
    const BLOT: &str = "[secret]";
    if secret.chars().count() >= SHORT {
        return text.replace(secret, BLOT);
    }
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(secret) {
        let (before, after) = (&rest[..at], &rest[at + secret.len()..]);
        let last = before.chars().next_back().or_else(|| told.chars().next_back());
        let stands_alone = !last.is_some_and(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        told.push_str(before);
        told.push_str(if stands_alone { BLOT } else { secret });
        rest = after;
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::without_secret;

    #[test]
    fn secrets_are_blotted_out_and_words_around_short_ones_stay() {
        let blotted = |text: &str, secret: &str| without_secret(text, secret);
        assert_eq!(blotted("xhunter2x, hunter2", "hunter2"), "x[secret]x, [secret]");
        assert_eq!(
            blotted("could not execute e: --password=e", "e"),
            "could not execute [secret]: --password=[secret]"
        );
        assert_eq!(blotted("ee e", "e"), "ee [secret]");
        assert_eq!(blotted("ü ü", "ü"), "[secret] [secret]");
    }
}
