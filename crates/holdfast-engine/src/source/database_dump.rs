//! Streams the dump of one database to the archive.

use std::time::Duration;

use super::PlainSink;
use super::tool::{Tool, judge};
use crate::error::Result;
use crate::remote::{self, Pace, Remote, Script, end_of};
use crate::ssh::{Exit, Process};

/// A tool that writes a dump.
pub(crate) struct Dumping {
    pub tool: Tool,
    pub script: Script,
    /// What the script reads from standard input: the login, followed by any further options or table names.
    pub input: String,
    /// How long the tool may stay silent at the beginning, while it makes its copy; `None` for the usual limit.
    pub first_wait: Option<Duration>,
}

/// How the tool ended, and what it wrote to standard error.
pub(crate) struct Ended {
    pub exit: Exit,
    pub lines: Vec<String>,
}

/// Sends the dump to `sink`. Whoever reads the dump checks that it is complete; the exit status is checked here.
pub(super) async fn send(at: Remote<'_>, dumping: Dumping, sink: &mut PlainSink) -> Result<()> {
    let tool = dumping.tool;
    let ended = run(at, dumping, sink).await?;
    judge(tool, &ended.exit, &ended.lines, at.context)
}

/// As `send`, for a tool whose exit status the caller judges.
pub(crate) async fn run(at: Remote<'_>, dumping: Dumping, sink: &mut PlainSink) -> Result<Ended> {
    let Remote { connection, settings, context } = at;
    let Process { mut stdin, mut stdout, control } = dumping.script.start(connection).await?;
    let _unwanted = stdin.write_all(dumping.input.into_bytes()).await;
    let _unwanted = stdin.close().await;
    let reading = async {
        let first_wait = dumping.first_wait.map_or(settings.stall, |wait| wait.max(settings.stall));
        let mut next = Pace::patient(first_wait).next(&mut stdout, &context.cancel).await?;
        let mut pace = Pace::new(settings.stall);
        while let Some(chunk) = next {
            sink.send(chunk).await?;
            next = pace.next(&mut stdout, &context.cancel).await?;
        }
        end_of(&mut stdout, settings.stall, &context.cancel).await
    };
    let exit = match reading.await {
        Ok(exit) => exit,
        Err(error) => {
            remote::stop(connection, &control, stdout.process_id(), context).await;
            return Err(error);
        }
    };
    if !stdout.has_started() {
        return Err(remote::no_commands());
    }
    Ok(Ended { exit, lines: remote::lines(stdout.stderr()) })
}
