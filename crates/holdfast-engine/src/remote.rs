//! Runs commands on a server: fixed scripts, values passed as quoted words, output within bounds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use holdfast_core::network::Network;
use holdfast_core::random;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::egress::Egress;
use crate::error::{EngineError, Result};
use crate::ssh::{Connection, Control, Exit, Process, SshError, Stderr, Stdout, Target, Timeouts};

/// How long removing what a failed restore created may take.
pub(crate) const CLEANING_UP: Duration = Duration::from_secs(20);

/// A server as specified in a plan.
#[derive(Clone)]
pub struct Server {
    pub target: Target,
    pub jump: Option<Target>,
    /// Whether the owner may connect to private networks even where others may not.
    pub allow_private: bool,
}

/// Time limits and other settings for connections to servers.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    pub ssh: Timeouts,
    /// How long a stream may be silent before the run fails.
    pub stall: Duration,
    /// The time limit for short queries, such as which tools are installed.
    pub answer: Duration,
    /// The maximum size of the response to a query; a longer one is refused rather than truncated.
    pub answer_bytes: usize,
    /// How long a database may take after the last byte of a restore, for example to build indexes and check
    /// references.
    pub finish: Duration,
    /// Networks that every user may connect to.
    pub egress_allow: Vec<Network>,
    /// Whether private networks are forbidden for users without permission to use them. Most servers are in one, so
    /// private networks are allowed unless an operator restricts them; link-local addresses are never allowed this way.
    pub guards_private: bool,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            ssh: Timeouts::default(),
            stall: Duration::from_secs(600),
            answer: Duration::from_secs(20),
            answer_bytes: 8 * 1024 * 1024,
            finish: Duration::from_secs(6 * 3600),
            egress_allow: Vec::new(),
            guards_private: false,
        }
    }
}

/// Quotes a word for any shell that the account may have. fish and csh interpret a backslash within single quotes, so
/// it is placed outside of them, doubled, which all shells read in the same way.
pub(crate) fn quote(word: &str) -> String {
    let mut quoted = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => quoted.push_str("'\\''"),
            '\\' => quoted.push_str("'\\\\'"),
            _ => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

/// A fixed script with its values, ready to run.
pub(crate) struct Script {
    text: String,
    marker: String,
}

/// Marks where our own output begins, prints the process id, and unsets variables of the account that would change the
/// behaviour of standard tools.
const PRELUDE: &str = "printf '%s %s\\n' \"$1\" \"$$\"; printf '%s %s\\n' \"$1\" \"$$\" >&2; shift\n\
    unset BASH_ENV ENV CDPATH TAR_OPTIONS TAPE POSIXLY_CORRECT QUOTING_STYLE; LC_ALL=C; export LC_ALL\n";

impl Script {
    /// The script is run by `sh`, whatever the account's own shell is.
    pub(crate) fn new(script: &str, words: &[&str]) -> Self {
        let marker = format!("holdfast-{}", random::hex(&random::bytes::<16>()));
        let words: String = words.iter().map(|word| format!(" {}", quote(word))).collect();
        let text = format!("exec sh -c {} sh {marker}{words}", quote(&format!("{PRELUDE}{script}")));
        Self { text, marker }
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Starts the script. This is the only way to run a command on a server.
    pub(crate) async fn start(&self, connection: &Connection) -> Result<Process, SshError> {
        connection.exec(&self.text, &self.marker).await
    }
}

/// Connects, and records the host keys that were presented. If a key has changed, no authentication is attempted.
pub(crate) async fn connect(server: &Server, settings: &RemoteSettings, context: &Context) -> Result<Connection> {
    let allow_private = server.allow_private || !settings.guards_private;
    let egress = Egress { allow_private, allowed: settings.egress_allow.clone() };
    let opening = Connection::open(&server.target, server.jump.as_ref(), settings.ssh, &egress);
    let opened = tokio::select! {
        () = context.cancel.cancelled() => return Err(EngineError::cancelled()),
        opened = opening => opened,
    };
    match opened {
        Ok(connection) => {
            context.with_findings(|findings| {
                findings.host_key = Some(connection.host_key().to_owned());
                findings.jump_host_key = connection.jump_host_key().map(str::to_owned);
            });
            Ok(connection)
        }
        Err(SshError::HostKeyChanged { offered, is_jump }) => {
            context.with_findings(|findings| {
                let changed =
                    if is_jump { &mut findings.changed_jump_host_key } else { &mut findings.changed_host_key };
                *changed = Some(offered.clone());
            });
            Err(SshError::HostKeyChanged { offered, is_jump }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Disconnects after measuring the round-trip time, which is used to tune the next connection.
pub(crate) async fn leave(connection: Connection, context: &Context) {
    if let Some(time) = connection.round_trip().await {
        context.with_findings(|findings| findings.latency_micros = u64::try_from(time.as_micros()).ok());
    }
    connection.close().await;
}

/// The minimum transfer rate of a server or destination, averaged over the stall time; a slower one counts as stalled.
/// Ten times less than the slowest link that backups are realistically made over.
pub(crate) const LEAST_BYTES_A_SECOND: u64 = 1024;

/// Monitors the progress of a stream. Only time spent waiting for the other side counts.
pub(crate) struct Pace {
    stall: Duration,
    least: u64,
    waited: Duration,
    moved: u64,
}

impl Pace {
    pub(crate) fn new(stall: Duration) -> Self {
        Self { stall, least: LEAST_BYTES_A_SECOND.saturating_mul(stall.as_secs()), waited: Duration::ZERO, moved: 0 }
    }

    /// For responses that are naturally short: they must keep arriving, but may be only a few bytes.
    pub(crate) fn patient(stall: Duration) -> Self {
        Self { least: 1, ..Self::new(stall) }
    }

    /// Waits for `work`, whose result transferred `bytes` bytes; fails if the run is cancelled or too little was
    /// transferred.
    pub(crate) async fn wait<T>(
        &mut self,
        cancel: &CancellationToken,
        bytes: impl FnOnce(&T) -> usize,
        work: impl Future<Output = T>,
    ) -> Result<T> {
        let begun = Instant::now();
        let done = tokio::select! {
            () = cancel.cancelled() => return Err(EngineError::cancelled()),
            done = tokio::time::timeout(self.stall, work) => done.map_err(|_| stalled(self.stall))?,
        };
        self.waited += begun.elapsed();
        self.moved += bytes(&done) as u64;
        if self.waited >= self.stall {
            if self.moved < self.least {
                return Err(too_slow(self.moved, self.waited));
            }
            (self.waited, self.moved) = (Duration::ZERO, 0);
        }
        Ok(done)
    }

    /// The next piece of a response that is read without a cancellation token, such as the body of an HTTP response.
    pub(crate) async fn receive<E>(
        &mut self,
        next: impl Future<Output = Result<Option<Bytes>, E>>,
    ) -> Result<Result<Option<Bytes>, E>> {
        let bytes =
            |piece: &Result<Option<Bytes>, E>| piece.as_ref().ok().and_then(Option::as_ref).map_or(0, Bytes::len);
        self.wait(&CancellationToken::new(), bytes, next).await
    }

    /// The next chunk of a process's output.
    pub(crate) async fn next(&mut self, stdout: &mut Stdout, cancel: &CancellationToken) -> Result<Option<Bytes>> {
        self.wait(cancel, |chunk: &Option<Bytes>| chunk.as_ref().map_or(0, Bytes::len), stdout.next()).await
    }
}

pub(crate) fn stalled(after: Duration) -> EngineError {
    EngineError::new(FailureCode::Stalled, format!("No data was transferred for {} seconds.", after.as_secs()))
}

fn too_slow(moved: u64, time: Duration) -> EngineError {
    let message = format!("Only {moved} bytes were transferred in {} seconds.", time.as_secs());
    EngineError::new(FailureCode::Stalled, message)
}

/// Waits for the exit status of a process, at most `limit` after its last byte.
pub(crate) async fn end_of(stdout: &mut Stdout, limit: Duration, cancel: &CancellationToken) -> Result<Exit> {
    tokio::select! {
        () = cancel.cancelled() => Err(EngineError::cancelled()),
        exit = tokio::time::timeout(limit, stdout.wait()) => exit.map_err(|_| stalled(limit))?.map_err(EngineError::from),
    }
}

/// Ends a process that a failed run leaves behind, and logs a warning if it may still be running. Takes no longer than
/// a service is given when it is stopped.
pub(crate) async fn stop(connection: &Connection, control: &Control, process_id: Option<u32>, context: &Context) {
    /// Closing the channel ends nearly every process. One that is still running receives SIGTERM and, a second later,
    /// SIGKILL, as do its children if it leads their process group, which is how sshd starts it.
    const STOP: &str = r#"
signal() { kill "$1" "-$2" 2>/dev/null; kill "$1" "$2" 2>/dev/null; }
is_there() { kill -0 "$1" 2>/dev/null || kill -0 "-$1" 2>/dev/null; }
end_if_gone() { for _ in 1 2 3 4 5; do is_there "$1" || exit 0; sleep 0.2 2>/dev/null || sleep 1; done; }
is_there "$1" || exit 0
signal -TERM "$1"; end_if_gone "$1"
signal -KILL "$1"; end_if_gone "$1"
exit 99
"#;
    const LIMIT: Duration = Duration::from_secs(3);
    let stopping = async {
        control.terminate().await;
        let Some(id) = process_id else { return Ok(true) };
        let script = Script::new(STOP, &[&id.to_string()]);
        let Process { mut stdout, stdin, .. } = script.start(connection).await?;
        let _unwanted = stdin.close().await;
        stdout.wait().await.map(|exit| exit.success())
    };
    let stopped = tokio::time::timeout(LIMIT, stopping).await;
    if let (Some(id), false) = (process_id, matches!(stopped, Ok(Ok(true)))) {
        context.log.warn(format!("The process {id} may still be running on the server."));
    }
}

/// Feeds a process while its output is read. Only the reading determines the end, and checks for stalls and
/// cancellation: a process that ended or stopped responding may never take the rest of its input.
pub(crate) async fn while_feeding<T>(feeding: impl Future<Output = ()>, reading: impl Future<Output = T>) -> T {
    // Boxed, otherwise the caller's future would contain both of them twice.
    let (mut feeding, mut reading) = (Box::pin(feeding), Box::pin(reading));
    tokio::select! {
        read = &mut reading => read,
        () = &mut feeding => reading.await,
    }
}

/// A connection to a server, borrowed for one operation.
#[derive(Clone, Copy)]
pub(crate) struct Remote<'a> {
    pub connection: &'a Connection,
    pub settings: &'a RemoteSettings,
    pub context: &'a Context,
}

impl Remote<'_> {
    /// Runs a short query, like [`ask`].
    pub(crate) async fn ask(&self, script: &Script, input: &str) -> Result<Answer> {
        ask(self.connection, self.settings, self.context, script, input).await
    }
}

/// The output of a short script.
pub(crate) struct Answer {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<String>,
}

/// Runs a short query. On cancellation or timeout, the remote process is ended.
pub(crate) async fn ask(
    connection: &Connection,
    settings: &RemoteSettings,
    context: &Context,
    script: &Script,
    input: &str,
) -> Result<Answer> {
    ask_bytes(connection, settings, context, script, input.as_bytes()).await
}

/// Like [`ask`], with input of any kind and length, which is sent while the output is read.
pub(crate) async fn ask_bytes(
    connection: &Connection,
    settings: &RemoteSettings,
    context: &Context,
    script: &Script,
    input: &[u8],
) -> Result<Answer> {
    let deadline = tokio::time::Instant::now() + settings.answer;
    let Process { mut stdin, mut stdout, control } = in_time(deadline, context, script.start(connection)).await??;
    let feeding = async {
        if !input.is_empty() {
            // A process that does not read its input reports the reason by its exit status.
            let _unwanted = stdin.write_all(Bytes::copy_from_slice(input)).await;
        }
        let _unwanted = stdin.close().await;
    };
    let mut answer = Vec::new();
    let reading = async {
        while let Some(chunk) = stdout.next().await {
            if answer.len() + chunk.len() > settings.answer_bytes {
                let message = "The server's response to a query is too long.";
                let error = EngineError::new(FailureCode::RemoteFailed, message);
                return Err(EngineError { is_too_long: true, ..error });
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(stdout.wait().await?)
    };
    match in_time(deadline, context, while_feeding(feeding, reading)).await.flatten() {
        Err(error) => {
            stop(connection, &control, stdout.process_id(), context).await;
            Err(error)
        }
        Ok(_) if !stdout.has_started() => Err(no_commands()),
        Ok(exit) => Ok(Answer { exit, stdout: answer, stderr: lines(stdout.stderr()) }),
    }
}

/// Waits for `work`, unless the run is cancelled or the deadline passes.
async fn in_time<T>(deadline: tokio::time::Instant, context: &Context, work: impl Future<Output = T>) -> Result<T> {
    tokio::select! {
        () = context.cancel.cancelled() => Err(EngineError::cancelled()),
        done = tokio::time::timeout_at(deadline, work) => {
            done.map_err(|_| EngineError::new(FailureCode::Timeout, "The server did not respond to a query in time."))
        }
    }
}

/// The error for an account that runs something else instead of our commands, or nothing.
pub(crate) fn no_commands() -> EngineError {
    EngineError::new(FailureCode::ToolMissing, "The server runs no commands for this user.")
}

/// The standard error output of a process, as text.
pub(crate) fn lines(stderr: &Stderr) -> Vec<String> {
    let mut lines: Vec<String> = stderr.lines().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    if stderr.dropped() > 0 {
        lines.push(format!("({}{FURTHER}", stderr.dropped()));
    }
    lines
}

const FURTHER: &str = " further lines)";

/// Whether a line returned by [`lines`] is the note about dropped lines.
pub(crate) fn is_about_dropped(line: &str) -> bool {
    line.starts_with('(') && line.ends_with(FURTHER)
}

/// Describes how a process ended.
pub(crate) fn ended(exit: &Exit) -> String {
    match (&exit.signal, exit.status) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(status)) if status > 128 => format!("was ended by signal {} (status {status})", status - 128),
        (None, Some(status)) => format!("ended with status {status}"),
        (None, None) => "ended without a status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece arrives well within the stall time, but together they amount to almost nothing.
    #[tokio::test]
    async fn a_stream_that_only_drips_has_stalled() {
        let cancel = CancellationToken::new();
        let mut pace = Pace::new(Duration::from_secs(1));
        let mut pieces = 0;
        let error = loop {
            let dripping = tokio::time::sleep(Duration::from_millis(150));
            match pace.wait(&cancel, |()| 1, dripping).await {
                Ok(()) => pieces += 1,
                Err(error) => break error,
            }
            assert!(pieces < 100, "it never ends");
        };
        assert_eq!(error.code, FailureCode::Stalled);
        // A stream that is fast enough may take any amount of time.
        let mut pace = Pace::new(Duration::from_millis(100));
        for _ in 0..5 {
            pace.wait(&cancel, |()| 100_000, tokio::time::sleep(Duration::from_millis(50))).await.unwrap();
        }
    }

    #[tokio::test]
    async fn unread_input_does_not_prevent_reading_to_the_end() {
        assert_eq!(while_feeding(std::future::pending(), async { 1 }).await, 1);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let feeding = async { sender.send(2).unwrap() };
        assert_eq!(while_feeding(feeding, async { receiver.await.unwrap() }).await, 2);
    }

    #[test]
    fn words_stay_one_word_in_a_shell() {
        for word in ["", "a b", "$(id) ' \"", "-rf", "a\\b\\\\", "`id`;|&", "*?[a]", "ünï", "'\\''"] {
            let script = Script::new("printf '%s' \"$1\"", &[word]);
            let output = std::process::Command::new("sh").args(["-c", &script.text]).output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            let (start, answer) = printed.split_once('\n').unwrap();
            assert!(start.starts_with(&script.marker), "{start}");
            assert_eq!(answer, word, "{}", script.text);
        }
    }
}
