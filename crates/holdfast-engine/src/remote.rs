//! Running things on a server: fixed scripts, values as quoted words, output within bounds.

use std::time::Duration;

use bytes::Bytes;
use holdfast_core::run::FailureCode;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::ssh::{Connection, Exit, Process, SshError, Stderr, Stdout, Target, Timeouts};

/// A server as a plan names it.
#[derive(Clone)]
pub struct Server {
    pub target: Target,
    pub jump: Option<Target>,
}

/// How patient to be with servers; each can be set.
#[derive(Debug, Clone, Copy)]
pub struct RemoteSettings {
    pub ssh: Timeouts,
    /// Silence in the middle of a stream after which the run has failed.
    pub stall: Duration,
    /// Small questions, such as which tools there are.
    pub answer: Duration,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self { ssh: Timeouts::default(), stall: Duration::from_secs(600), answer: Duration::from_secs(20) }
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

/// A fixed script with its values. Whatever the account's own shell is, `sh` reads the script.
pub(crate) fn command(script: &str, words: &[&str]) -> String {
    let words: String = words.iter().map(|word| format!(" {}", quote(word))).collect();
    format!("exec sh -c {} sh{words}", quote(script))
}

/// Connects, and notes what the server showed. A changed key gets no authentication attempt.
pub(crate) async fn connect(server: &Server, settings: &RemoteSettings, context: &Context) -> Result<Connection> {
    let opening = Connection::open(&server.target, server.jump.as_ref(), settings.ssh);
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

/// The next chunk of a stream, unless the run is cancelled or nothing comes for too long.
pub(crate) async fn next_chunk(
    stdout: &mut Stdout,
    stall: Duration,
    cancel: &CancellationToken,
) -> Result<Option<Bytes>> {
    tokio::select! {
        () = cancel.cancelled() => Err(EngineError::cancelled()),
        chunk = tokio::time::timeout(stall, stdout.next()) => chunk.map_err(|_| stalled(stall)),
    }
}

pub(crate) fn stalled(after: Duration) -> EngineError {
    EngineError::new(FailureCode::Stalled, format!("Nothing moved for {} seconds.", after.as_secs()))
}

/// How a process ended, waited for no longer than a stall may last.
pub(crate) async fn end_of(stdout: &mut Stdout, stall: Duration, cancel: &CancellationToken) -> Result<Exit> {
    tokio::select! {
        () = cancel.cancelled() => Err(EngineError::cancelled()),
        exit = tokio::time::timeout(stall, stdout.wait()) => exit.map_err(|_| stalled(stall))?.map_err(EngineError::from),
    }
}

/// What a short script answered.
pub(crate) struct Answer {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    pub stderr: Vec<String>,
}

/// The longest answer that a question has.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Asks a short question. Cancelled or late, the remote process is ended.
pub(crate) async fn ask(
    connection: &Connection,
    settings: &RemoteSettings,
    context: &Context,
    command: &str,
    input: &str,
) -> Result<Answer> {
    let asking = async {
        let Process { mut stdin, mut stdout, .. } = connection.exec(command).await?;
        if !input.is_empty() {
            // A process that does not want its input says why by its exit status.
            let _unwanted = stdin.write_all(Bytes::copy_from_slice(input.as_bytes())).await;
        }
        let _unwanted = stdin.close().await;
        let mut answer = Vec::new();
        while let Some(chunk) = stdout.next().await {
            let room = ANSWER_BYTES - answer.len();
            answer.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        let exit = stdout.wait().await?;
        Ok(Answer { exit, stdout: answer, stderr: lines(stdout.stderr()) })
    };
    tokio::select! {
        () = context.cancel.cancelled() => Err(EngineError::cancelled()),
        answer = tokio::time::timeout(settings.answer, asking) => {
            answer.map_err(|_| EngineError::new(FailureCode::Timeout, "The server did not answer a question in time."))?
        }
    }
}

/// What a process wrote to its standard error, as text.
pub(crate) fn lines(stderr: &Stderr) -> Vec<String> {
    let mut lines: Vec<String> = stderr.lines().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    if stderr.dropped() > 0 {
        lines.push(format!("({} further lines)", stderr.dropped()));
    }
    lines
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

    #[test]
    fn words_stay_one_word_in_a_shell() {
        for word in ["", "a b", "$(id) ' \"", "-rf", "a\\b\\\\", "`id`;|&", "*?[a]", "ünï", "'\\''"] {
            let script = command("printf '%s' \"$1\"", &[word]);
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word, "{script}");
        }
    }
}
