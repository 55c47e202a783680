//! A command that runs on a server: its input, its own output without that of login scripts, and its exit status.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use tokio::sync::watch;

use super::error::SshError;
use super::shared::{KeepOpen, Shared};

/// How a remote command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    pub status: Option<u32>,
    pub signal: Option<String>,
}

impl Exit {
    pub fn success(&self) -> bool {
        self.status == Some(0)
    }
}

/// A running remote command; can be split to feed stdin in one task and drain stdout in another.
pub struct Process {
    pub stdin: Stdin,
    pub stdout: Stdout,
    pub control: Control,
}

impl Process {
    pub(super) fn new(
        channel: Channel<Msg>,
        marker: &str,
        shared: &Shared,
        gone: watch::Receiver<bool>,
        keep_open: &[KeepOpen],
    ) -> Self {
        let (read, write) = channel.split();
        let control = Control { write: Arc::new(write), shared: shared.clone(), gone, _keep_open: keep_open.to_vec() };
        let stdout = Stdout {
            read,
            control: control.clone(),
            exit: Exit::default(),
            stage: Stage::Open,
            start: Start::new(marker),
            stderr: Stderr { start: Some(marker.as_bytes().to_vec()), ..Stderr::default() },
        };
        Self { stdin: Stdin { control: control.clone(), ended: false }, stdout, control }
    }

    pub async fn terminate(&self) {
        self.control.terminate().await;
    }
}

/// Ends a process from any task.
#[derive(Clone)]
pub struct Control {
    write: Arc<ChannelWriteHalf<Msg>>,
    shared: Shared,
    gone: watch::Receiver<bool>,
    _keep_open: Vec<KeepOpen>,
}

impl Control {
    /// Sends TERM (which servers may ignore) and closes the channel, which closes the command's pipes in any case.
    pub async fn terminate(&self) {
        let _ = self.until_gone(self.write.signal(Sig::TERM)).await;
        let _ = self.until_gone(self.write.close()).await;
    }

    /// russh leaves a writer waiting for window space forever once the channel has ended; this ends the wait.
    async fn until_gone<T>(&self, work: impl Future<Output = Result<T, russh::Error>>) -> Result<T, SshError> {
        let mut gone = self.gone.clone();
        tokio::select! {
            biased;
            done = work => done.map_err(|error| self.shared.failure(error)),
            _ = gone.wait_for(|alive| !alive) => Err(self.shared.lost()),
        }
    }
}

/// The command's standard input.
pub struct Stdin {
    control: Control,
    ended: bool,
}

impl Stdin {
    /// Queues the bytes in packets, without copying; waits for space in the remote window. Not cancel-safe.
    pub async fn write_all(&mut self, data: impl Into<Bytes>) -> Result<(), SshError> {
        self.control.until_gone(self.control.write.data_bytes(data)).await
    }

    /// Signals the end of the input to the remote command.
    pub async fn close(mut self) -> Result<(), SshError> {
        self.ended = true;
        self.control.until_gone(self.control.write.eof()).await
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Eof,
    Closed,
}

/// The command's output. It also receives stderr and the exit status, so keep calling `next`.
pub struct Stdout {
    read: ChannelReadHalf,
    control: Control,
    exit: Exit,
    stage: Stage,
    start: Start,
    stderr: Stderr,
}

impl Stdout {
    /// Whether our command ran at all: an account may be set up to run something else instead.
    pub fn has_started(&self) -> bool {
        self.start.is_over
    }

    /// The command's process id on the server, once it has started.
    pub fn process_id(&self) -> Option<u32> {
        self.start.process_id
    }

    /// The next chunk, as received in a packet. `None` only means that no more output follows; whether the command
    /// ended cleanly is reported by [`Stdout::wait`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        while self.stage == Stage::Open {
            if let Some(data) = self.step().await {
                return Some(data);
            }
        }
        None
    }

    /// Waits for the end of the command and discards unread output. Without an exit status or signal the connection
    /// counts as lost, even if the channel was closed cleanly.
    pub async fn wait(&mut self) -> Result<Exit, SshError> {
        while self.stage != Stage::Closed {
            self.step().await;
        }
        self.stderr.finish();
        if self.exit == Exit::default() { Err(self.control.shared.lost()) } else { Ok(self.exit.clone()) }
    }

    /// The complete lines of stderr so far; all of them after [`Stdout::wait`].
    pub fn stderr(&self) -> &Stderr {
        &self.stderr
    }

    async fn step(&mut self) -> Option<Bytes> {
        match self.read.wait().await {
            Some(ChannelMsg::Data { data }) if self.stage == Stage::Open => return self.start.take(data),
            Some(ChannelMsg::ExtendedData { data, ext: 1 }) => self.stderr.push(&data),
            Some(ChannelMsg::Eof) => self.stage = Stage::Eof,
            Some(ChannelMsg::ExitStatus { exit_status }) => self.exit.status = Some(exit_status),
            Some(ChannelMsg::ExitSignal { signal_name, .. }) => self.exit.signal = Some(signal(signal_name)),
            Some(ChannelMsg::Close) | None => self.stage = Stage::Closed,
            Some(_) => {}
        }
        None
    }
}

impl Drop for Stdout {
    /// Closes the channel: russh keeps extending the window of a channel without a reader, so an abandoned command
    /// would continue to run and its output would be downloaded to the end.
    fn drop(&mut self) {
        if self.stage == Stage::Closed {
            return;
        }
        let control = self.control.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { control.terminate().await });
        }
    }
}

fn signal(signal: Sig) -> String {
    match signal {
        Sig::Custom(name) => name,
        other => format!("{other:?}"),
    }
}

/// Finds where a command's own output begins: login scripts may print anything before it.
struct Start {
    marker: Vec<u8>,
    seen: Vec<u8>,
    is_over: bool,
    process_id: Option<u32>,
}

/// The longest line with the marker, which also contains the process id.
const MARKER_LINE: usize = 80;

impl Start {
    fn new(marker: &str) -> Self {
        Self { marker: marker.as_bytes().to_vec(), seen: Vec::new(), is_over: false, process_id: None }
    }

    /// The part of this chunk that comes from the command itself.
    fn take(&mut self, data: Bytes) -> Option<Bytes> {
        if self.is_over {
            return Some(data);
        }
        self.seen.extend_from_slice(&data);
        let found = self.seen.windows(self.marker.len()).position(|window| window == self.marker);
        if let Some(at) = found {
            let line = &self.seen[at..];
            if let Some(length) = line.iter().position(|byte| *byte == b'\n') {
                let id = std::str::from_utf8(&line[self.marker.len()..length]).ok();
                self.process_id = id.and_then(|id| id.trim().parse().ok());
                self.is_over = true;
                let rest = std::mem::take(&mut self.seen).split_off(at + length + 1);
                return (!rest.is_empty()).then(|| rest.into());
            }
        }
        // Keep only what may be the beginning of the marker's line.
        let surplus = self.seen.len().saturating_sub(MARKER_LINE);
        self.seen.drain(..surplus);
        None
    }
}

const LINE: usize = 4 << 10;
const HEAD: usize = 500;
const TAIL: usize = 500;

/// The first and the last lines of stderr; those in between are only counted, so that the size is bounded.
#[derive(Default)]
pub struct Stderr {
    /// Lines up to the one that contains this marker do not come from the command.
    start: Option<Vec<u8>>,
    head: Vec<Vec<u8>>,
    tail: VecDeque<Vec<u8>>,
    partial: Vec<u8>,
    dropped: u64,
}

impl Stderr {
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.head.iter().chain(&self.tail).map(Vec::as_slice)
    }

    /// Lines left out between head and tail.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn push(&mut self, data: &[u8]) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = LINE.saturating_sub(self.partial.len()).min(text.len());
            self.partial.extend_from_slice(text.get(..room).unwrap_or_default());
            if ended {
                self.line();
            }
        }
    }

    fn line(&mut self) {
        let line = std::mem::take(&mut self.partial);
        if let Some(start) = &self.start {
            if line.windows(start.len()).any(|window| window == start) {
                self.start = None;
            }
            return;
        }
        if self.head.len() < HEAD {
            self.head.push(line);
            return;
        }
        self.tail.push_back(line);
        if self.tail.len() > TAIL {
            self.tail.pop_front();
            self.dropped += 1;
        }
    }

    fn finish(&mut self) {
        if !self.partial.is_empty() {
            self.line();
        }
    }
}
