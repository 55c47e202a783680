//! Running things on a server: fixed scripts, values as quoted words, output within bounds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_core::network::Network;
use holdfast_core::random;
use holdfast_core::run::FailureCode;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::egress::Egress;
use crate::error::{EngineError, Result};
use crate::ssh::{Connection, Control, Exit, Process, SshError, Stderr, Stdout, Target, Timeouts};

/// A server as a plan names it.
#[derive(Clone)]
pub struct Server {
    pub target: Target,
    pub jump: Option<Target>,
    /// The owner may reach private networks also where others may not.
    pub allow_private: bool,
}

/// How patient to be with servers; each can be set.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    pub ssh: Timeouts,
    /// Silence in the middle of a stream after which the run has failed.
    pub stall: Duration,
    /// Small questions, such as which tools there are.
    pub answer: Duration,
    /// The longest answer that a question has; one that is longer is refused rather than cut.
    pub answer_bytes: usize,
    /// What a database may still do after the last byte of a restore: build indexes, check references.
    pub finish: Duration,
    /// Networks that are open to everybody.
    pub egress_allow: Vec<Network>,
    /// Whether private networks are closed to those who may not reach them elsewhere either. Most servers are in one, so
    /// they are open unless an operator closes them; link-local addresses never are.
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

/// One word for any shell that may be at the other end. Within single quotes fish and csh know the backslash, so it
/// stands outside of them, doubled, which all shells read alike.
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

/// Says where our own output begins, with the process that it comes from, and forgets settings of the account that
/// would change what standard tools do.
const PRELUDE: &str = "printf '%s %s\\n' \"$1\" \"$$\"; printf '%s %s\\n' \"$1\" \"$$\" >&2; shift\n\
    unset BASH_ENV ENV CDPATH TAR_OPTIONS TAPE POSIXLY_CORRECT QUOTING_STYLE; LC_ALL=C; export LC_ALL\n";

impl Script {
    /// Whatever the account's own shell is, `sh` reads the script.
    pub(crate) fn new(script: &str, words: &[&str]) -> Self {
        let marker = format!("holdfast-{}", random::hex(&random::bytes::<16>()));
        let words: String = words.iter().map(|word| format!(" {}", quote(word))).collect();
        let text = format!("exec sh -c {} sh {marker}{words}", quote(&format!("{PRELUDE}{script}")));
        Self { text, marker }
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Starts it; the only way to run something on a server.
    pub(crate) async fn start(&self, connection: &Connection) -> Result<Process, SshError> {
        connection.exec(&self.text, &self.marker).await
    }
}

/// Connects, and notes what the server showed. A changed key gets no authentication attempt.
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
            context.with_contact(|contact| {
                contact.host_key = Some(connection.host_key().to_owned());
                contact.jump_host_key = connection.jump_host_key().map(str::to_owned);
            });
            Ok(connection)
        }
        Err(SshError::HostKeyChanged { offered, is_jump }) => {
            context.with_contact(|contact| {
                let changed = if is_jump { &mut contact.changed_jump_host_key } else { &mut contact.changed_host_key };
                *changed = Some(offered.clone());
            });
            Err(SshError::HostKeyChanged { offered, is_jump }.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Says goodbye, after a last question: how far away is the server? The next connection is shaped by it.
pub(crate) async fn leave(connection: Connection, context: &Context) {
    if let Some(time) = connection.round_trip().await {
        context.with_contact(|contact| contact.latency_micros = u64::try_from(time.as_micros()).ok());
    }
    connection.close().await;
}

/// How slowly a server or a destination may send or take before it counts as one that does not: over the time of a stall, this many
/// bytes a second on average. Ten times less than the slowest link that anybody backs up over.
pub(crate) const LEAST_BYTES_A_SECOND: u64 = 1024;

/// Watches that a stream moves. Only time spent waiting for the other side counts.
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

    /// For answers that are short by their nature: they must come, but may be few bytes.
    pub(crate) fn patient(stall: Duration) -> Self {
        Self { least: 1, ..Self::new(stall) }
    }

    /// Waits for the server to move `bytes` of the result, unless the run is cancelled or too little has moved.
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

    /// The next piece of an answer that ends by itself, such as the body of an HTTP answer.
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
    EngineError::new(FailureCode::Stalled, format!("Nothing moved for {} seconds.", after.as_secs()))
}

fn too_slow(moved: u64, time: Duration) -> EngineError {
    let message = format!("Only {moved} bytes moved in {} seconds.", time.as_secs());
    EngineError::new(FailureCode::Stalled, message)
}

/// How a process ended, waited for no longer than `limit` after its last byte.
pub(crate) async fn end_of(stdout: &mut Stdout, limit: Duration, cancel: &CancellationToken) -> Result<Exit> {
    tokio::select! {
        () = cancel.cancelled() => Err(EngineError::cancelled()),
        exit = tokio::time::timeout(limit, stdout.wait()) => exit.map_err(|_| stalled(limit))?.map_err(EngineError::from),
    }
}

/// Ends a process that a failed run leaves behind, and says so when it goes on. Takes no more time than a service has
/// that is being stopped.
pub(crate) async fn stop(connection: &Connection, control: &Control, process_id: Option<u32>, context: &Context) {
    /// Closing the channel ends nearly everything; what is busy gets a signal, and a stronger one a second later. So do
    /// its own children, where it leads their group, as sshd starts it.
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

/// Feeds a process while what it writes is read. The reading alone says when that is over, and watches for a stall and
/// for being cancelled: a process that ended or went silent may never take the rest of its input.
pub(crate) async fn while_feeding<T>(feeding: impl Future<Output = ()>, reading: impl Future<Output = T>) -> T {
    // Boxed, or whoever waits for this would hold both of them twice.
    let (mut feeding, mut reading) = (Box::pin(feeding), Box::pin(reading));
    tokio::select! {
        read = &mut reading => read,
        () = &mut feeding => reading.await,
    }
}

/// A server that we are connected to, for as long as a piece of work takes.
#[derive(Clone, Copy)]
pub(crate) struct Remote<'a> {
    pub connection: &'a Connection,
    pub settings: &'a RemoteSettings,
    pub context: &'a Context,
}

impl Remote<'_> {
    /// Asks a short question, as [`ask`] does.
    pub(crate) async fn ask(&self, script: &Script, input: &str) -> Result<Answer> {
        ask(self.connection, self.settings, self.context, script, input).await
    }
}

/// What a short script answered.
pub(crate) struct Answer {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<String>,
}

/// Asks a short question. Cancelled or late, the remote process is ended.
pub(crate) async fn ask(
    connection: &Connection,
    settings: &RemoteSettings,
    context: &Context,
    script: &Script,
    input: &str,
) -> Result<Answer> {
    ask_bytes(connection, settings, context, script, input.as_bytes()).await
}

/// The same with input of any kind and length: it is fed while the answer is read.
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
            // A process that does not want its input says why by its exit status.
            let _unwanted = stdin.write_all(Bytes::copy_from_slice(input)).await;
        }
        let _unwanted = stdin.close().await;
    };
    let mut answer = Vec::new();
    let reading = async {
        while let Some(chunk) = stdout.next().await {
            if answer.len() + chunk.len() > settings.answer_bytes {
                let message = "The server's answer to a question is too long.";
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

/// What a server does for a question, unless the run is cancelled or it takes too long.
async fn in_time<T>(deadline: tokio::time::Instant, context: &Context, work: impl Future<Output = T>) -> Result<T> {
    tokio::select! {
        () = context.cancel.cancelled() => Err(EngineError::cancelled()),
        done = tokio::time::timeout_at(deadline, work) => {
            done.map_err(|_| EngineError::new(FailureCode::Timeout, "The server did not answer a question in time."))
        }
    }
}

/// The account runs something else in place of our commands, or nothing.
pub(crate) fn no_commands() -> EngineError {
    EngineError::new(FailureCode::ToolMissing, "The server runs no commands for this user.")
}

/// What a process wrote to its standard error, as text.
pub(crate) fn lines(stderr: &Stderr) -> Vec<String> {
    let mut lines: Vec<String> = stderr.lines().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    if stderr.dropped() > 0 {
        lines.push(format!("({}{FURTHER}", stderr.dropped()));
    }
    lines
}

const FURTHER: &str = " further lines)";

/// Whether a line of [`lines`] says that there were more.
pub(crate) fn is_about_dropped(line: &str) -> bool {
    line.starts_with('(') && line.ends_with(FURTHER)
}

/// How a process ended, in words.
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

    /// Each piece comes well before a stall, but all of them together are next to nothing.
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
            assert!(pieces < 100, "it goes on for ever");
        };
        assert_eq!(error.code, FailureCode::Stalled);
        // What moves fast enough goes on, however long that takes.
        let mut pace = Pace::new(Duration::from_millis(100));
        for _ in 0..5 {
            pace.wait(&cancel, |()| 100_000, tokio::time::sleep(Duration::from_millis(50))).await.unwrap();
        }
    }

    #[tokio::test]
    async fn input_that_nobody_takes_keeps_no_reading_from_its_end() {
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
