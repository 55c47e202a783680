//! Logging to standard error, as text or JSON. Secrets are never logged.
//!
//! A separate thread writes the lines, so that a full disk or a reader that has stopped cannot stop the service: a line
//! that cannot be written, or for which there is no room in the queue, is dropped and counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use holdfast_core::characters::escaped_hidden;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::{EnvFilter, fmt};

use crate::failure::Failure;
use crate::settings::LogSettings;

/// Lines that may wait to be written: what a burst of a busy service logs, a few megabytes at most.
const QUEUE_LINES: usize = 8192;
/// How long the end of the process waits for the last lines.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// Log lines that were dropped and not reported yet.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Writes the remaining lines when it is dropped.
pub struct Logging(SyncSender<Message>);

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

pub fn start(settings: &LogSettings) -> Result<Logging, Failure> {
    let filter = EnvFilter::try_new(&settings.filter)
        .map_err(|error| Failure::settings(format!("HOLDFAST_LOG is not a valid filter: {error}")))?;
    let (sender, receiver) = sync_channel(QUEUE_LINES);
    let is_json = settings.is_json;
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_lines(&receiver, &mut io::stderr(), is_json))
        .map_err(|error| Failure::other(format!("cannot start the thread that writes the log: {error}")))?;
    // The subscriber would print its own errors, which panics if standard error cannot be written.
    let builder = fmt().with_env_filter(filter).log_internal_errors(false).with_writer(Queue(sender.clone()));
    if is_json {
        builder.json().flatten_event(true).init();
    } else {
        builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init();
    }
    Ok(Logging(sender))
}

impl Drop for Logging {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.try_send(Message::Flush(done)).is_ok() {
            let _stalled = written.recv_timeout(FLUSH_PATIENCE);
        }
    }
}

/// Puts lines into the queue of the thread that writes them.
struct Queue(SyncSender<Message>);

/// One line, which the formatter writes with a single call.
struct Line<'a>(&'a SyncSender<Message>);

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(&self.0)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.0.try_send(Message::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => count_dropped(),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn count_dropped() {
    DROPPED.fetch_add(1, Ordering::Relaxed);
    metrics::counter!("holdfast_log_lines_dropped_total").increment(1);
}

fn write_lines(lines: &Receiver<Message>, out: &mut impl Write, is_json: bool) {
    while let Ok(message) = lines.recv() {
        match message {
            Message::Line(line) => write_line(out, &line, is_json),
            Message::Flush(done) => {
                let _nobody_waits = done.try_send(());
            }
        }
    }
}

fn write_line(out: &mut impl Write, line: &[u8], is_json: bool) {
    let dropped = DROPPED.load(Ordering::Relaxed);
    let notice = if dropped == 0 { String::new() } else { dropped_notice(dropped, is_json) };
    let written = out.write_all(notice.as_bytes());
    if written.is_ok() {
        DROPPED.fetch_sub(dropped, Ordering::Relaxed);
    }
    // Names from users and servers are logged. The formatter escapes control characters in them.
    let text = String::from_utf8_lossy(line);
    if written.and_then(|()| out.write_all(escaped_hidden(&text).as_bytes())).is_err() {
        count_dropped();
    }
}

/// Begins with a line break, because the last line may have been written in part.
fn dropped_notice(dropped: u64, is_json: bool) -> String {
    let message = format!("{dropped} log lines could not be written and were dropped");
    let now = holdfast_core::clock::Clock::now(&holdfast_core::clock::SystemClock);
    if is_json {
        format!("\n{}\n", serde_json::json!({"timestamp": now.to_string(), "level": "WARN", "message": message}))
    } else {
        format!("\n{now}  WARN {message}\n")
    }
}
