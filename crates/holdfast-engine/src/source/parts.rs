//! Writes the members of a whole server's archive.

use std::io;

use super::PlainSink;
use super::after_rows::AfterRows;
use super::tool::{Tool, judge};
use crate::archive::server::PART_BYTES;
use crate::archive::tar::{Member, MemberKind, Writer};
use crate::error::{EngineError, Result};
use crate::remote::{self, Pace, Remote, Script, end_of};
use crate::ssh::Process;

pub(super) struct Parts<'a> {
    pub at: Remote<'a>,
    pub sink: &'a mut PlainSink,
}

/// The dump of one database.
pub(super) struct Dump<'a> {
    pub tool: Tool,
    pub script: Script,
    /// What the script reads from standard input: the login, followed by any further options or table names.
    pub input: String,
    pub folder: &'a str,
    /// Text that comes before and after the dump.
    pub before: &'a str,
    pub after: Option<AfterRows<'a>>,
}

impl Parts<'_> {
    pub(super) async fn send(&mut self, path: &[u8], content: &[u8]) -> Result<()> {
        let member = Member { size: content.len() as u64, mode: 0o600, ..Member::new(path, MemberKind::File) };
        let mut written = Vec::with_capacity(content.len() + 1024);
        let writing =
            |written: &mut Vec<u8>| -> io::Result<()> { Writer::new(written).append(&member, &mut &content[..]) };
        writing(&mut written).map_err(EngineError::internal)?;
        self.sink.send(written.into()).await
    }

    /// Sends a tool's output in members of bounded size. Its exit status shows whether the output is complete.
    pub(super) async fn dump(&mut self, dump: Dump<'_>) -> Result<()> {
        let Remote { connection, settings, context } = self.at;
        let Process { mut stdin, mut stdout, control } = dump.script.start(connection).await?;
        let _unwanted = stdin.write_all(dump.input.into_bytes()).await;
        let _unwanted = stdin.close().await;
        let reading = async {
            let (mut pace, mut part, mut number) = (Pace::new(settings.stall), Vec::with_capacity(PART_BYTES), 0);
            part.extend_from_slice(dump.before.as_bytes());
            loop {
                let chunk = pace.next(&mut stdout, &context.cancel).await?;
                let mut ended = None;
                if let Some(chunk) = &chunk {
                    part.extend_from_slice(chunk);
                } else {
                    let exit = ended.insert(end_of(&mut stdout, settings.stall, &context.cancel).await?);
                    if let Some(after) = dump.after.as_ref().filter(|_| exit.success()) {
                        part.extend_from_slice(after.text().await?.as_bytes());
                    }
                }
                while part.len() >= PART_BYTES || (ended.is_some() && !part.is_empty()) {
                    let rest = part.split_off(part.len().min(PART_BYTES));
                    number += 1;
                    self.send(format!("{}/{number:08}", dump.folder).as_bytes(), &part).await?;
                    part = rest;
                }
                if let Some(exit) = ended {
                    return Ok(exit);
                }
            }
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
        let lines = remote::lines(stdout.stderr());
        judge(dump.tool, &exit, &lines, context)
    }
}
