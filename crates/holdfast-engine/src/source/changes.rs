//! Detects files that change while they are read. GNU tar reports them itself; other tars do not, and bsdtar pads a
//! file that became shorter with zeros. So each file is checked once more, shortly after it was read.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::archive::shown;
use crate::archive::tar::{Member, MemberKind};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{Pace, RemoteSettings, Script, end_of};
use crate::ssh::{Connection, Process};

/// A file as described by its tar header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed {
    pub path: Vec<u8>,
    /// `None` for an empty file and for anything that is not a file: neither can be half read.
    pub size: Option<u64>,
    pub seconds: i64,
    /// User id and group id.
    pub owner: (u64, u64),
}

impl Passed {
    pub(crate) fn of(member: &Member) -> Self {
        let size = Some(member.size).filter(|size| member.kind == MemberKind::File && *size > 0);
        Self { path: member.path.clone(), size, seconds: member.modified.seconds, owner: (member.uid, member.gid) }
    }
}

/// Prints size, time, owner and name of each file named on standard input, in batches of up to 200. The name shows
/// which file an answer is about. Appended to the script that enters the source.
pub(super) const LOOK: &str = r#"
l=; [ -z "$f" ] || l=-L
if stat -c %s . >/dev/null 2>&1; then exec xargs -0 -n 200 stat $l -c '%s %Y %u %g %n' 2>/dev/null; fi
exec xargs -0 -n 200 stat $l -f '%z %m %u %g %N' 2>/dev/null
"#;

/// How many changed files the log names; the rest are only counted.
const NAMED: usize = 20;
const FEED_BYTES: usize = 16 * 1024;
/// How many files may wait for an answer. A server that leaves more unanswered is assumed not to answer at all.
const UNANSWERED: usize = 100_000;

/// The result of checking the files again.
#[derive(Debug, Default)]
pub(super) struct Changes {
    shrunk: Vec<String>,
    changed: Vec<String>,
    count: u64,
    /// How many files have another owner in the archive than on the server, and the first of them.
    misowned: (u64, String),
    /// How many files from before 1970 have another time in the archive, and the first of them.
    misdated: (u64, String),
    /// The check could not be run, or its answers could not be understood.
    is_unknown: bool,
}

impl Changes {
    pub(super) fn unknown() -> Self {
        Self { is_unknown: true, ..Self::default() }
    }

    pub(super) fn tell(&self, context: &Context) {
        for name in &self.shrunk {
            context.log.warn(format!("{name}: File shrank as we read it; its copy in this backup may end in zeros"));
        }
        for name in &self.changed {
            context.log.warn(format!("{name}: file changed as we read it"));
        }
        let named = (self.shrunk.len() + self.changed.len()) as u64;
        if self.count > named {
            context.log.warn(format!("{} further files changed as we read them", self.count - named));
        }
        for ((count, first), what) in [(&self.misowned, "owners"), (&self.misdated, "times before 1970")] {
            if *count > 0 {
                context.log.warn(format!(
                    "This server's tar cannot store all {what}: {count} entries have different ones in this backup, \
                     {first} among them."
                ));
            }
        }
        if self.is_unknown {
            context.log.warn(
                "This server's tar does not report files that change while they are read, and they could not be \
                 checked otherwise: such a file may be half old and half new in this backup, or end in zeros.",
            );
        }
    }
}

/// Matches answers with the files that were asked about, in order.
#[derive(Default)]
struct Comparing {
    asked: VecDeque<Passed>,
    has_asked: bool,
    has_answer: bool,
    buffer: Vec<u8>,
    changes: Changes,
}

impl Comparing {
    fn ask(&mut self, file: Passed) {
        self.has_asked = true;
        self.changes.is_unknown |= self.asked.len() >= UNANSWERED;
        if !self.changes.is_unknown {
            self.asked.push_back(file);
        }
    }

    fn feed(&mut self, answer: &[u8]) {
        if self.changes.is_unknown {
            return;
        }
        self.buffer.extend_from_slice(answer);
        let mut at = 0;
        while let Some(length) = self.take(at) {
            at += length;
        }
        self.buffer.drain(..at);
    }

    /// Consumes one answer if it is complete, and returns its length.
    fn take(&mut self, at: usize) -> Option<usize> {
        let Self { buffer, asked, .. } = self;
        let answer = &buffer[at..];
        if answer.is_empty() {
            return None;
        }
        let Some(Answer { size, seconds, owner, name }) = split(answer) else {
            // Four numbers are never longer than this.
            self.changes.is_unknown = answer.len() > 96;
            return None;
        };
        loop {
            // A file that is gone has no answer. Tar had it open, so only its name was removed while it was read.
            let Some(file) = asked.front() else {
                self.changes.is_unknown = true;
                return None;
            };
            let ended = [&file.path, &b"\n"[..]].concat();
            if name.starts_with(&ended) {
                let length = answer.len() - name.len() + ended.len();
                if file.size.is_some_and(|then| then != size || !is_same_time(file.seconds, seconds)) {
                    self.changes.note(file, size);
                } else if seconds < 0 && file.seconds >= 0 {
                    note(&mut self.changes.misdated, file);
                }
                if owner != file.owner {
                    note(&mut self.changes.misowned, file);
                }
                self.has_answer = true;
                asked.pop_front();
                return Some(length);
            }
            if ended.starts_with(name) {
                return None;
            }
            asked.pop_front();
        }
    }

    fn finish(mut self) -> Changes {
        self.changes.is_unknown |= !self.buffer.is_empty() || (self.has_asked && !self.has_answer);
        self.changes
    }
}

impl Changes {
    fn note(&mut self, file: &Passed, size: u64) {
        self.count += 1;
        if self.shrunk.len() + self.changed.len() < NAMED {
            let names = if file.size.is_some_and(|then| size < then) { &mut self.shrunk } else { &mut self.changed };
            names.push(shown(&file.path));
        }
    }
}

/// For times before 1970, programs do not agree on whether a fraction counts forwards or backwards. BusyBox's tar
/// cannot store such times: it writes 1970, or in older versions the last twelve octal digits of the number.
fn is_same_time(told: i64, now: i64) -> bool {
    const TWELVE_DIGITS: i64 = 1 << 36;
    let is_untold = now < 0 && (told == 0 || told == now.rem_euclid(TWELVE_DIGITS));
    now == told || is_untold || (told < 0 && now.checked_sub(1) == Some(told))
}

fn note((count, first): &mut (u64, String), file: &Passed) {
    if *count == 0 {
        *first = shown(&file.path);
    }
    *count += 1;
}

/// The answer about one file; `name` is followed by any further answers.
struct Answer<'a> {
    size: u64,
    seconds: i64,
    owner: (u64, u64),
    name: &'a [u8],
}

fn split(answer: &[u8]) -> Option<Answer<'_>> {
    let mut parts = answer.splitn(5, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok();
    let (size, seconds) = (number()?.parse().ok()?, number()?.parse().ok()?);
    let owner = (number()?.parse().ok()?, number()?.parse().ok()?);
    Some(Answer { size, seconds, owner, name: parts.next()? })
}

/// Checks each file once more, until no more files come.
pub(super) async fn compare(
    connection: &Connection,
    script: &Script,
    files: mpsc::Receiver<Passed>,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Changes> {
    let Ok(process) = script.start(connection).await else { return Ok(Changes::unknown()) };
    match exchange(process, files, settings, context).await {
        Err(error) if context.cancel.is_cancelled() => Err(error),
        Err(_) => Ok(Changes::unknown()),
        changes => changes,
    }
}

async fn exchange(
    process: Process,
    mut files: mpsc::Receiver<Passed>,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Changes> {
    let Process { mut stdin, mut stdout, .. } = process;
    let comparing = std::sync::Mutex::new(Comparing::default());
    let with = |change: &mut dyn FnMut(&mut Comparing)| {
        change(&mut comparing.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    };
    let feeding = async {
        let mut pace = Pace::patient(settings.stall);
        let mut names = Vec::new();
        while let Some(file) = files.recv().await {
            names.extend_from_slice(&file.path);
            names.push(0);
            with(&mut |comparing| comparing.ask(file.clone()));
            // Send what has been collected when the batch is full or no file is waiting.
            if names.len() >= FEED_BYTES || files.is_empty() {
                let bytes = Bytes::from(std::mem::take(&mut names));
                pace.wait(&context.cancel, |_| 1, stdin.write_all(bytes)).await??;
            }
        }
        Ok::<_, EngineError>(stdin.close().await?)
    };
    let mut feeding = std::pin::pin!(feeding);
    // Hours may pass between two files while a large one is read, so only the end has a time limit.
    loop {
        tokio::select! {
            () = context.cancel.cancelled() => return Err(EngineError::cancelled()),
            fed = &mut feeding => {
                fed?;
                break;
            }
            answer = stdout.next() => match answer {
                Some(answer) => with(&mut |comparing| comparing.feed(&answer)),
                None => return Ok(Changes::unknown()),
            },
        }
    }
    let mut pace = Pace::patient(settings.stall);
    while let Some(answer) = pace.next(&mut stdout, &context.cancel).await? {
        with(&mut |comparing| comparing.feed(&answer));
    }
    end_of(&mut stdout, settings.stall, &context.cancel).await?;
    let mut comparing = comparing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(std::mem::take(&mut *comparing).finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(files: &[(&str, u64, i64)], answer: &[u8], piece: usize) -> Changes {
        let mut comparing = Comparing::default();
        for (path, size, seconds) in files {
            let (path, size) = (path.as_bytes().to_vec(), Some(*size));
            comparing.ask(Passed { path, size, seconds: *seconds, owner: (0, 0) });
        }
        answer.chunks(piece).for_each(|piece| comparing.feed(piece));
        comparing.finish()
    }

    #[test]
    fn answers_are_matched_by_name_however_they_are_split() {
        let files = [("./a", 5, 7), ("./gone", 1, 1), ("./b\n9 9 ./c", 5, -7), ("./d", 9, 9), ("./e", 3, 3)];
        let answer = b"5 7 0 0 ./a\n4 -7 0 0 ./b\n9 9 ./c\n9 10 0 0 ./d\n3 3 0 0 ./e\n";
        for piece in 1..answer.len() {
            let changes = compared(&files, answer, piece);
            assert!(!changes.is_unknown, "in pieces of {piece}");
            assert_eq!(changes.shrunk, ["./b\\x0a9 9 ./c"], "in pieces of {piece}");
            assert_eq!((changes.changed, changes.count), (vec!["./d".to_owned()], 2), "in pieces of {piece}");
        }
    }

    #[test]
    fn owners_and_times_that_tar_could_not_write_are_counted() {
        let files = [("./a", 1, 1), ("./b", 1, 1), ("./c", 1, 0), ("./d", 1, 0)];
        let changes = compared(&files, b"1 1 0 0 ./a\n1 1 70000000 0 ./b\n1 -5 0 1 ./c\n1 0 0 0 ./d\n", 7);
        assert_eq!((changes.misowned, changes.misdated), ((2, "./b".to_owned()), (1, "./c".to_owned())));
        assert_eq!((changes.count, changes.is_unknown), (0, false));
    }

    #[test]
    fn unclear_answers_are_not_taken_for_unchanged() {
        let files = [("./a", 5, 7), ("./b", 5, 7)];
        let long = [b'x'; 100];
        for answer in [
            b"".as_slice(),
            b"stat: not found\n",
            b"5 7 0 0 ./a\n5",
            b"5 7 0 0 ./z\n",
            b"5 7 ./a\n5 7 ./b\n",
            b"5 7 0 0 ./b\n5 7 0 0 ./a\n",
            &long,
        ] {
            assert!(compared(&files, answer, 3).is_unknown, "{answer:?}");
        }
        assert!(!compared(&[], b"", 1).is_unknown);
    }

    #[test]
    fn times_before_1970_are_written_in_many_ways() {
        for (told, now, is_same) in [
            (-8, -8, true),
            (-8, -7, true),
            (-8, -6, false),
            (0, -8, true),
            (0, 8, false),
            (0, i64::MIN, true),
            ((1 << 36) - 8, -8, true),
            ((1 << 36) - 8, -9, false),
            ((1 << 36) - 8, 8, false),
            (8, -8, false),
        ] {
            assert_eq!(is_same_time(told, now), is_same, "{told} {now}");
        }
    }

    #[test]
    fn of_many_changes_some_are_named_and_all_counted() {
        let names: Vec<String> = (0..100).map(|number| format!("./{number}")).collect();
        let files: Vec<(&str, u64, i64)> = names.iter().map(|name| (name.as_str(), 1, 1)).collect();
        let answer: String = names.iter().map(|name| format!("0 1 0 0 {name}\n")).collect();
        let changes = compared(&files, answer.as_bytes(), 10);
        assert_eq!((changes.shrunk.len(), changes.count, changes.is_unknown), (NAMED, 100, false));
    }
}
