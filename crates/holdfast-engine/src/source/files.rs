//! Files of a server: one `tar` on one channel, its exit status read, whatever it could not read told by name.

use holdfast_core::run::FailureCode;

use super::{Outlet, sftp};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{self, RemoteSettings, end_of, ended, next_chunk};
use crate::ssh::{Connection, Exit, Process, SshError};

/// What to copy.
#[derive(Debug, Clone)]
pub struct FilesSource {
    pub path: String,
    pub excluded: Vec<String>,
}

/// Our own exit codes, out of the way of tar's and the shell's.
const EXIT_MISSING: u32 = 96;
const EXIT_CLOSED: u32 = 97;
const EXIT_NO_TOOL: u32 = 98;

/// What our script says before tar speaks.
const MARKER: &str = "holdfast: tar ";
/// Chunks that wait for it; whatever sends more than this is sending an archive.
const HELD_CHUNKS: usize = 32;

/// Goes to the source and runs the tar that is there. A marker on standard error says which one it was; a server that
/// runs no commands at all sends none. After the path come the number of exclude options
/// for GNU tar, those options, and the ones for other tars.
///
/// POSIX headers carry fractions of a second, any name and any size; without `delete` they would also carry times of
/// access, which change with every backup.
const SCRIPT: &str = r#"
LC_ALL=C; export LC_ALL
p=$1; n=$2; shift 2
case $p in /*) ;; *) p=./$p ;; esac
if [ -d "$p" ]; then m=.; cd -- "$p" || exit 97
elif [ -e "$p" ]; then d=${p%/*}; m=./${p##*/}; cd -- "${d:-/}" || exit 97
else exit 96; fi
command -v tar >/dev/null 2>&1 || { echo "holdfast: tar none" >&2; exit 98; }
case $(tar --version 2>&1) in
*'GNU tar'*)
  echo "holdfast: tar gnu" >&2
  # The words for GNU tar come first; drop the others by going round once.
  a=$#; i=0
  while [ $i -lt $a ]; do [ $i -ge $n ] || set -- "$@" "$1"; shift; i=$((i+1)); done
  exec tar --create --file=- --format=posix --pax-option=delete=atime,delete=ctime --sparse --blocking-factor=128 \
    --wildcards --no-wildcards-match-slash "$@" -- "$m" ;;
*bsdtar*)
  echo "holdfast: tar bsd" >&2
  shift "$n"
  exec tar -c -f - --format pax "$@" "$m" ;;
*)
  shift "$n"
  # Small builds of BusyBox know no excludes; then SFTP has to do it.
  [ $# -eq 0 ] || tar --exclude=x -c -f - /dev/null >/dev/null 2>&1 || { echo "holdfast: tar none" >&2; exit 98; }
  echo "holdfast: tar other" >&2
  exec tar -c -f - "$@" "$m" ;;
esac
"#;

/// Sends the tar stream of the source to `outlet`; falls back to SFTP where no command can be run.
pub(crate) async fn pump(
    connection: &Connection,
    source: &FilesSource,
    settings: &RemoteSettings,
    context: &Context,
    outlet: &mut Outlet,
) -> Result<()> {
    let process = match connection.exec(&command(source)?).await {
        Err(SshError::ExecRefused) => return sftp::pump(connection, source, settings, context, outlet).await,
        process => process?,
    };
    let Process { stdin, mut stdout, .. } = process;
    // A server that only speaks SFTP takes this for the client's goodbye and ends.
    let _unwanted = stdin.close().await;
    // An account without commands may say so on its output; that is no archive. So the first chunks wait for the marker.
    let (mut held, mut has_sent) = (Vec::new(), false);
    while let Some(chunk) = next_chunk(&mut stdout, settings.stall, &context.cancel).await? {
        if !has_sent {
            held.push(chunk);
            has_sent =
                stdout.stderr().lines().any(|line| line.starts_with(MARKER.as_bytes())) || held.len() > HELD_CHUNKS;
            if has_sent {
                for chunk in held.drain(..) {
                    outlet.send(chunk).await?;
                }
            }
            continue;
        }
        outlet.send(chunk).await?;
    }
    let exit = end_of(&mut stdout, settings.stall, &context.cancel).await?;
    let mut lines = remote::lines(stdout.stderr());
    let flavour = take_marker(&mut lines);
    if flavour.is_some() {
        for chunk in held {
            outlet.send(chunk).await?;
        }
    }
    match flavour.as_deref() {
        None | Some("none") if !has_sent && exit.status != Some(EXIT_MISSING) && exit.status != Some(EXIT_CLOSED) => {
            sftp::pump(connection, source, settings, context, outlet).await
        }
        flavour => judge(source, &exit, &lines, flavour == Some("gnu"), context),
    }
}

/// The remote command of a source.
fn command(source: &FilesSource) -> Result<String> {
    /// Linux gives one argument 128 KiB, and the whole command is one to the account's shell.
    const COMMAND_BYTES: usize = 120 * 1024;
    let (gnu, other) = (gnu_excludes(source), other_excludes(source));
    let count = gnu.len().to_string();
    let mut words = vec![source.path.as_str(), &count];
    words.extend(gnu.iter().chain(&other).map(String::as_str));
    let command = remote::command(SCRIPT, &words);
    if command.len() > COMMAND_BYTES {
        return Err(EngineError::new(FailureCode::NotSupported, "The excluded paths are too long for one command."));
    }
    Ok(command)
}

/// Below `/` the kernel shows itself as files; nobody wants those back.
const VIRTUAL: &[&str] = &["proc", "sys", "dev", "run"];

/// A pattern without a slash is a name anywhere; one with a slash is a path, below the source or absolute.
pub(crate) fn patterns(source: &FilesSource) -> Vec<Pattern> {
    let root = source.path.trim_end_matches('/');
    let mut patterns: Vec<Pattern> = source
        .excluded
        .iter()
        .map(|text| {
            let text = text.trim_end_matches('/');
            let below =
                text.strip_prefix(root).filter(|_| text.starts_with('/')).and_then(|rest| rest.strip_prefix('/'));
            match below.or_else(|| text.strip_prefix("./")).or_else(|| text.strip_prefix('/')) {
                Some(path) => Pattern::Path(path.to_owned()),
                None if text.contains('/') => Pattern::Path(text.to_owned()),
                None => Pattern::Name(text.to_owned()),
            }
        })
        .collect();
    if root.is_empty() {
        patterns.extend(VIRTUAL.iter().map(|name| Pattern::Path((*name).to_owned())));
    }
    patterns.retain(|pattern| !pattern.text().is_empty());
    patterns
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    Name(String),
    Path(String),
}

impl Pattern {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Name(text) | Self::Path(text) => text,
        }
    }
}

fn gnu_excludes(source: &FilesSource) -> Vec<String> {
    let words = patterns(source).into_iter().flat_map(|pattern| match pattern {
        Pattern::Name(name) => ["--no-anchored".to_owned(), format!("--exclude={name}")],
        Pattern::Path(path) => ["--anchored".to_owned(), format!("--exclude=./{path}")],
    });
    words.collect()
}

/// BSD's and BusyBox' patterns match whole paths, and their stars match slashes too.
fn other_excludes(source: &FilesSource) -> Vec<String> {
    let words = patterns(source).into_iter().flat_map(|pattern| match pattern {
        Pattern::Name(name) => vec![format!("--exclude=./{name}"), format!("--exclude=*/{name}")],
        Pattern::Path(path) => vec![format!("--exclude=./{path}")],
    });
    words.collect()
}

/// The marker of our script, taken out of what tar said.
fn take_marker(lines: &mut Vec<String>) -> Option<String> {
    let place = lines.iter().position(|line| line.starts_with(MARKER))?;
    lines.remove(place).rsplit(' ').next().map(str::to_owned)
}

/// Whether tar's end is a success, and what is to be said about it.
fn judge(source: &FilesSource, exit: &Exit, lines: &[String], is_gnu: bool, context: &Context) -> Result<()> {
    let is_end_note = |line: &&String| line.contains("xit") && line.contains("previous errors");
    let told: Vec<&String> = lines.iter().filter(|line| !is_end_note(line)).collect();
    match exit.status {
        Some(0) => {
            for line in told {
                context.log.line(line);
            }
            Ok(())
        }
        // GNU tar: some files changed or went away while they were read; everything else is in the archive.
        Some(1) if is_gnu && exit.signal.is_none() => {
            for line in told {
                context.log.warn(line);
            }
            Ok(())
        }
        Some(EXIT_MISSING) => Err(missing(source)),
        Some(EXIT_CLOSED) => Err(closed(source)),
        Some(EXIT_NO_TOOL) => Err(EngineError::new(FailureCode::ToolMissing, "The server has no tar.")),
        _ => {
            for line in &told {
                context.log.line(line);
            }
            Err(failure(exit, &told))
        }
    }
}

fn failure(exit: &Exit, lines: &[&String]) -> EngineError {
    const UNREADABLE: &[&str] =
        &["Permission denied", "Cannot open", "Cannot read", "Cannot stat", "can't open", "Read error", "annot stat"];
    let is_unreadable = |line: &&&String| UNREADABLE.iter().any(|sign| line.contains(sign));
    let unreadable: Vec<&str> = lines.iter().filter(is_unreadable).map(|line| line.as_str()).collect();
    if unreadable.is_empty() || exit.signal.is_some() {
        let said = lines.first().map(|line| format!(": {line}")).unwrap_or_default();
        return EngineError::new(FailureCode::RemoteFailed, format!("tar {}{said}.", ended(exit)));
    }
    let named: Vec<&str> = unreadable.iter().copied().take(3).collect();
    let more = unreadable.len().saturating_sub(named.len());
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    EngineError::new(FailureCode::SourceUnreadable, format!("Some files cannot be read: {}{more}.", named.join("; ")))
}

/// Goes where tar will go, and tells the size of each thing there, and its path when that is asked for. Only GNU's find
/// can.
const COUNT: &str = r#"
LC_ALL=C; export LC_ALL
p=$1
case $p in /*) ;; *) p=./$p ;; esac
if [ -d "$p" ]; then m=.; cd -- "$p" || exit 97
elif [ ! -e "$p" ]; then exit 96
else d=${p%/*}; m=./${p##*/}; cd -- "${d:-/}" || exit 97; fi
if [ "$m" = . ] && [ "$(pwd -P)" = / ]; then
  exec find . \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run \) -prune -o -printf "$2" 2>/dev/null
fi
exec find "$m" -printf "$2" 2>/dev/null
"#;

/// About how much there is, in bytes of an archive and in files; `None` where the server cannot tell.
pub(crate) async fn estimate(
    connection: &Connection,
    source: &FilesSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Option<(u64, u64)>> {
    let patterns = patterns(source);
    // Sizes alone are far less to send.
    let format = if patterns.is_empty() { "%s\\0" } else { "%s %P\\0" };
    let Process { stdin, mut stdout, .. } = connection.exec(&remote::command(COUNT, &[&source.path, format])).await?;
    let _unwanted = stdin.close().await;
    let mut count = Count { patterns, ..Count::default() };
    let mut line = Vec::new();
    while let Some(chunk) = next_chunk(&mut stdout, settings.stall, &context.cancel).await? {
        for part in chunk.split_inclusive(|byte| *byte == 0) {
            line.extend_from_slice(part);
            if line.pop_if(|byte| *byte == 0).is_some() {
                count.add(&line);
                line.clear();
            } else if line.len() > LONGEST_LINE {
                count.is_other = true;
                line.clear();
            }
        }
    }
    let exit = end_of(&mut stdout, settings.stall, &context.cancel).await?;
    match exit.status {
        Some(EXIT_MISSING) => return Err(missing(source)),
        Some(EXIT_CLOSED) => return Err(closed(source)),
        _ => {}
    }
    // Some folders may be closed to us, which is status 1; the rest counts.
    let has_counted = !count.is_other && line.is_empty() && count.files > 0 && matches!(exit.status, Some(0 | 1));
    Ok(has_counted.then_some((count.bytes, count.files)))
}

/// A size, a blank and the longest path that Linux knows.
const LONGEST_LINE: usize = 8 * 1024;

#[derive(Default)]
struct Count {
    patterns: Vec<Pattern>,
    bytes: u64,
    files: u64,
    /// What is below this is left out with it.
    left_out: Option<String>,
    /// Whatever speaks here, it is no find.
    is_other: bool,
}

impl Count {
    fn add(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let (size, path) = text.split_once(' ').unwrap_or((&text, ""));
        let Ok(size) = size.parse::<u64>() else {
            self.is_other = true;
            return;
        };
        let is_below = |folder: &String| path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
        if self.left_out.as_ref().is_some_and(is_below) {
            return;
        }
        if !path.is_empty() && sftp::is_excluded(&self.patterns, path) {
            self.left_out = Some(path.to_owned());
            return;
        }
        // Each file takes a header and is padded.
        let archived = size.checked_next_multiple_of(512).unwrap_or(size).saturating_add(1536);
        (self.bytes, self.files) = (self.bytes.saturating_add(archived), self.files + 1);
    }
}

fn closed(source: &FilesSource) -> EngineError {
    EngineError::new(FailureCode::SourceUnreadable, format!("The SSH user may not enter {}.", source.path))
}

fn missing(source: &FilesSource) -> EngineError {
    EngineError::new(FailureCode::SourceMissing, format!("There is no {} on the server.", source.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_names_or_paths() {
        let source = |path: &str, excluded: &[&str]| FilesSource {
            path: path.to_owned(),
            excluded: excluded.iter().map(|text| (*text).to_owned()).collect(),
        };
        let name = |text: &str| Pattern::Name(text.to_owned());
        let path = |text: &str| Pattern::Path(text.to_owned());
        let found = patterns(&source("/var/www/", &["*.log", "cache/", "/var/www/tmp", "a/b", "/x", "./y", "/"]));
        assert_eq!(found, [name("*.log"), name("cache"), path("tmp"), path("a/b"), path("x"), path("y")]);
        assert_eq!(patterns(&source("/", &[])), [path("proc"), path("sys"), path("dev"), path("run")]);
    }

    #[test]
    fn what_is_excluded_is_not_counted_nor_what_is_below_it() {
        let excluded = ["*.log", "cache"].map(|text| Pattern::Name(text.to_owned())).to_vec();
        let mut count = Count { patterns: excluded, ..Count::default() };
        for line in ["4096 ", "100 a.txt", "7 a.log", "4096 cache", "9 cache/b", "9 cache/c/d", "1 cached"] {
            count.add(line.as_bytes());
        }
        assert_eq!((count.files, count.bytes, count.is_other), (3, 4096 + 512 + 512 + 3 * 1536, false));
        count.add(b"sh: find: not found");
        assert!(count.is_other);
    }
}
