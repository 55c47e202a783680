//! The context of a run: its progress, log and cancellation token, and what was learnt about the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use holdfast_core::Secret;
use holdfast_core::ids::RunId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::{EngineError, Result};
use crate::progress::Progress;

/// The maximum number of log lines per run, so that a tree with a million unreadable files does not fill the database.
const MAX_LINES: u64 = 1000;

#[derive(Clone)]
pub struct Context {
    pub progress: Arc<Progress>,
    pub log: Log,
    pub cancel: CancellationToken,
    /// See [`Self::server_findings`].
    pub findings: Arc<Mutex<ServerFindings>>,
    /// For restores.
    pub restores: Option<Arc<dyn RestoreRecords>>,
}

/// What is recorded about the restores of a user.
#[async_trait]
pub trait RestoreRecords: Send + Sync {
    /// Finds an earlier restore that may have left incomplete files where this one writes, on this machine.
    async fn find_unfinished(&self, findings: &ServerFindings) -> std::result::Result<Option<RunId>, String>;
    /// This one is about to change something. If that cannot be recorded, it does not begin.
    async fn begin(&self, findings: &ServerFindings) -> std::result::Result<(), String>;
    /// It has failed, and everything that it wrote has been removed.
    async fn note_undone(&self) -> std::result::Result<(), String>;
}

/// What was learnt while connected to a server. Keys are given as fingerprints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFindings {
    /// The host key of the server that accepted the connection.
    pub host_key: Option<String>,
    /// The key that the server presented instead of the pinned one.
    pub changed_host_key: Option<String>,
    pub jump_host_key: Option<String>,
    pub changed_jump_host_key: Option<String>,
    pub latency_micros: Option<u64>,
    /// The folder that is read or written on the server, with symbolic links resolved.
    pub folder: Option<String>,
    /// Whether nothing was in that folder before a restore.
    pub folder_was_empty: bool,
    /// The databases contained in a backup of a whole server.
    pub databases: Vec<String>,
}

impl Context {
    /// Returns a context and the receiver of its log lines.
    pub fn new(cancel: CancellationToken) -> (Self, mpsc::UnboundedReceiver<String>) {
        let (lines, received) = mpsc::unbounded_channel();
        let log = Log { lines, state: Arc::default() };
        (Self { progress: Arc::default(), log, cancel, findings: Arc::default(), restores: None }, received)
    }

    /// Must be called before anything that a backup could read is changed on a server: from then on, a failed restore
    /// may have left partial data.
    pub(crate) async fn begin_writing(&self) -> Result<()> {
        let Some(restores) = &self.restores else { return Ok(()) };
        let findings = self.server_findings();
        restores.begin(&findings).await.map_err(|reason| {
            EngineError::internal(format!(
                "{reason} The start of this restore could not be recorded, so nothing was written."
            ))
        })
    }

    /// An earlier restore that may have left incomplete files where this one writes.
    pub(crate) async fn find_unfinished(&self) -> Result<Option<RunId>> {
        let Some(restores) = &self.restores else { return Ok(None) };
        let findings = self.server_findings();
        restores.find_unfinished(&findings).await.map_err(|reason| {
            EngineError::internal(format!("{reason} Earlier restores could not be looked up, so nothing was written."))
        })
    }

    /// Must be called when a restore failed and everything it wrote has been removed again.
    pub(crate) async fn note_undone(&self) {
        let Some(restores) = &self.restores else { return };
        if let Err(reason) = restores.note_undone().await {
            self.log.line(format!("Could not record that this restore was undone: {reason}"));
        }
    }

    pub(crate) fn note_folder(&self, folder: &str) {
        self.with_findings(|findings| findings.folder = Some(folder.to_owned()).filter(|folder| !folder.is_empty()));
    }

    pub(crate) fn note_database(&self, name: &str) {
        self.with_findings(|findings| findings.databases.push(name.to_owned()));
    }

    /// What was learnt about the servers so far, including the host keys to pin.
    pub fn server_findings(&self) -> ServerFindings {
        self.with_findings(|findings| findings.clone())
    }

    pub(crate) fn with_findings<T>(&self, change: impl FnOnce(&mut ServerFindings) -> T) -> T {
        change(&mut self.findings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// The log of a run. Secrets are redacted from everything that is logged.
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
    /// Redacts this secret from all further log lines.
    pub(crate) fn hide(&self, secret: &Secret) {
        if !secret.reveal().is_empty() {
            self.state.secrets.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(secret.clone());
        }
    }

    pub fn line(&self, text: impl AsRef<str>) {
        let text = self.redacted(text.as_ref());
        match self.state.written.fetch_add(1, Ordering::Relaxed) {
            // The receiver is gone once the run is over; later lines can be dropped.
            number if number < MAX_LINES => drop(self.lines.send(text)),
            MAX_LINES => drop(self.lines.send("Further lines are omitted.".to_owned())),
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

/// Redacts a secret. A very short secret occurs inside many words, and redacting it there would reveal it, so it is
/// redacted only where it is a word by itself.
fn without_secret(text: &str, secret: &str) -> String {
    const SHORT: usize = 4;
    const REDACTED: &str = "[secret]";
    if secret.chars().count() >= SHORT {
        return text.replace(secret, REDACTED);
    }
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(secret) {
        let (before, after) = (&rest[..at], &rest[at + secret.len()..]);
        let last = before.chars().next_back().or_else(|| told.chars().next_back());
        let stands_alone = !last.is_some_and(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        told.push_str(before);
        told.push_str(if stands_alone { REDACTED } else { secret });
        rest = after;
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::without_secret;

    #[test]
    fn secrets_are_redacted_and_words_containing_short_ones_are_kept() {
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
