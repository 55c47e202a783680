//! Files of a server, read by one `tar` over one channel. Its exit status is checked, and files that it could not read
//! are named.

use std::time::Duration;

use bytes::Bytes;
use holdfast_core::Timestamp;
use holdfast_core::failure::FailureCode;
use holdfast_core::source::FilesSource;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::changes::{self, Changes};
use super::listing::{self, Listing};
use super::patterns::{Exclusion, Pattern, is_excluded, patterns};
use super::{PlainSink, sftp};
use crate::archive::tar::Member;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{self, Pace, Remote, RemoteSettings, Script, end_of, ended};
use crate::ssh::{Connection, Exit, Process, SshError, Stderr};

/// Our own exit codes, which clash with none of tar's or the shell's.
const EXIT_MISSING: u32 = 96;
const EXIT_CLOSED: u32 = 97;
const EXIT_NO_TOOL: u32 = 98;
const EXIT_NO_MOUNTS: u32 = 99;

/// Starts the line in which our script reports which tar it runs.
const MARKER: &str = "holdfast: tar ";
/// Starts the line that reports the folder it reads, with links resolved.
const FOLDER: &str = "holdfast: folder ";

/// Enters the source. A link to a file is read as that file, just as a link to a folder is read as that folder.
const ENTER: &str = r#"
p=$1
case $p in /*) ;; *) p=./$p ;; esac
f=
if [ -d "$p" ]; then m=.; cd -- "$p" || exit 97
elif [ -e "$p" ]; then d=${p%/*}; m=./${p##*/}; cd -- "${d:-/}" || exit 97; [ ! -L "$m" ] || f=-h
else exit 96; fi
command -v tar >/dev/null 2>&1 || { echo "holdfast: tar none" >&2; exit 98; }
"#;

/// What GNU tar is asked to store besides content, where it can: access control lists and extended attributes, which
/// include file capabilities. POSIX headers hold fractions of a second, any name and any size; without `delete` they
/// would also hold access times, which change with every backup.
const GNU_OPTIONS: &str = r#"
v=$(tar --version 2>&1); x=
case $v in *'GNU tar'*)
  a=${v#*GNU tar) }; b=${a#*.}; a=${a%%.*}; b=${b%%[!0-9]*}
  { [ "$a" -gt 1 ] || [ "$b" -ge 27 ]; } 2>/dev/null && x='--acls --xattrs --xattrs-include=*' ;;
esac
g="--create --file=- --format=posix --pax-option=delete=atime,delete=ctime --blocking-factor=128 $x"
"#;

/// Reports the folder that is read, and what is mounted below it.
const MOUNTS: &str = r#"
echo "holdfast: folder $(printf %s "$(pwd -P)" | tr '\n\r' '??')" >&2
if [ "$m" = . ] && [ -r /proc/self/mountinfo ]; then
  r=$(pwd -P); r=${r%/}
  q=$(stat -c %d . 2>/dev/null)
  while read -r _ _ _ _ d t; do
    # Blanks and line breaks are octal numbers there.
    case $d in *\\*) d=$(printf '%b_' "$(printf %s "$d" | sed 's/\\\([0-7]\{3\}\)/\\0\1/g')"); d=${d%_} ;; esac
    case $d in "$r"/?*) ;; *) continue ;; esac
    # Another mount of the same file system is not left out, and neither is a single file.
    if [ -n "$o" ] && [ -d "$d" ] && [ "$(stat -c %d -- "$d" 2>/dev/null)" != "$q" ]; then w="mount "
    else case ${t#* - } in
      proc\ *|sysfs\ *|cgroup*|debugfs\ *|tracefs\ *|securityfs\ *|configfs\ *|bpf\ *|binfmt_misc\ *) w="no sizes " ;;
      *) continue ;;
    esac; fi
    echo "holdfast: $w$(printf %s "$d" | tr '\n\r' '??')" >&2
  done </proc/self/mountinfo
fi
"#;

/// Runs whichever tar the server has, and reports its kind in a line on standard error. The arguments after the path
/// are: whether to stay on one file system, the number of exclude options for GNU tar and for bsdtar (`no` if it would
/// apply them wrongly), those options, and the options for other tars.
const READ_ARGUMENTS: &str = "o=$2; n=$3; k=$4; shift 4\n";
const READ: &str = r#"
case $v in
*'GNU tar'*)
  echo "holdfast: tar gnu" >&2
  [ -n "$x" ] || echo "holdfast: no attributes" >&2
  # The words for GNU tar come first; drop the others by going round once.
  a=$#; i=0
  while [ $i -lt $a ]; do [ $i -ge $n ] || set -- "$@" "$1"; shift; i=$((i+1)); done
  [ -z "$o" ] || o=--one-file-system
  set -f
  exec tar $g $f $o --sparse --wildcards --no-wildcards-match-slash "$@" -- "$m" ;;
*bsdtar*)
  [ "$k" != no ] || { echo "holdfast: tar none" >&2; exit 98; }
  echo "holdfast: tar bsd" >&2
  shift "$n"; a=$#; i=0
  while [ $i -lt $a ]; do [ $i -ge $k ] || set -- "$@" "$1"; shift; i=$((i+1)); done
  [ -z "$o" ] || o=--one-file-system
  exec tar -c $f $o -f - --format pax "$@" "$m" ;;
*)
  [ "$k" != no ] || k=0
  shift $((n+k))
  [ -z "$o" ] || exit 99
  # Small builds of BusyBox know no excludes; then SFTP has to do it.
  [ $# -eq 0 ] || tar --exclude=x -c -f - /dev/null >/dev/null 2>&1 || { echo "holdfast: tar none" >&2; exit 98; }
  echo "holdfast: tar other" >&2
  exec tar -c $f -f - "$@" "$m" ;;
esac
"#;

/// Reads what is named on standard input, and nothing below it. Follows `MOUNTS`.
const READ_NAMED: &str = r#"
echo "holdfast: tar gnu" >&2
[ -n "$x" ] || echo "holdfast: no attributes" >&2
set -f
exec tar $g $f --sparse --no-recursion --null --files-from=-
"#;

/// Reads the files named on standard input in full, without looking for holes.
const READ_AGAIN: &str = r#"
set -f
exec tar $g $f --no-recursion --null --files-from=-
"#;

/// Prints the kind of file system that each file named on standard input is on, one per line.
const FILE_SYSTEMS: &str = "exec xargs -0 stat --file-system --format=%T --\n";
/// File systems on which a file larger than `INLINE_BYTES` without blocks really is a hole. The content of smaller
/// files may be in their inode.
const HONEST: &[&str] = &["ext2/ext3", "xfs", "tmpfs"];
const INLINE_BYTES: u64 = 64 * 1024;

/// Which tar the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Gnu,
    Bsd,
    Other,
}

/// Sends the tar stream of the source to `sink`, in a run that began `now`; falls back to SFTP where no command can be run.
pub(crate) async fn send(
    connection: &Connection,
    source: &FilesSource,
    settings: &RemoteSettings,
    context: &Context,
    (sink, now): (&mut PlainSink, Timestamp),
) -> Result<()> {
    let passed = sink.take_passed();
    let started = read_script(source)?.start(connection).await;
    let process = match started {
        Err(SshError::ExecRefused) => {
            drop(passed);
            return pump_over_sftp(connection, source, settings, context, (sink, now)).await;
        }
        process => process?,
    };
    let (on_flavour, on_failure) = (oneshot::channel(), CancellationToken::new());
    let reading = async {
        // A server that only speaks SFTP takes the end of its input for the end of the session and exits.
        let read = read(connection, process, input_of(Vec::new()), settings, context, sink, Some(on_flavour.0)).await;
        let read = match read {
            Ok(read) if is_silent(read.flavour()) && read.exit.success() => believe_holes(sink).await.map(|()| read),
            read => read,
        };
        if !read.as_ref().is_ok_and(|read| read.exit.success()) {
            on_failure.cancel();
        }
        read
    };
    let comparing = async {
        let (Ok(flavour), Some(passed)) = (on_flavour.1.await, passed) else { return Ok(None) };
        if !is_silent(Some(flavour)) {
            return Ok(None);
        }
        let script = Script::new(&format!("{ENTER}{}", changes::LOOK), &[&source.path]);
        tokio::select! {
            () = on_failure.cancelled() => Ok(None),
            changes = changes::compare(connection, &script, passed, settings, context) => changes.map(Some),
        }
    };
    let (read, changes) = tokio::join!(Box::pin(reading), Box::pin(comparing));
    let Read { exit, mut lines, has_started, has_sent } = read?;
    let flavour = take_flavour(&mut lines);
    let is_elsewhere = matches!(exit.status, Some(EXIT_MISSING | EXIT_CLOSED | EXIT_NO_MOUNTS));
    if !has_started || (flavour.is_none() && !has_sent && !is_elsewhere) {
        return pump_over_sftp(connection, source, settings, context, (sink, now)).await;
    }
    if let Some(place) = lines.iter().position(|line| line.starts_with(FOLDER)) {
        context.note_folder(lines.remove(place).trim_start_matches(FOLDER));
    }
    tell_mounts(&mut lines, source, context);
    warn_of_missing_attributes(&mut lines, flavour, context);
    judge(source, &exit, &lines, flavour == Some(Flavour::Gnu), context)?;
    if is_silent(flavour) {
        changes?.unwrap_or_else(Changes::unknown).tell(context);
    }
    if flavour == Some(Flavour::Gnu) {
        read_again(connection, source, settings, context, sink).await?;
    }
    Ok(())
}

/// Lists the source; see `listing`.
pub(crate) async fn list(at: Remote<'_>, source: &FilesSource, pieces: mpsc::Sender<Bytes>) -> Result<Listing> {
    listing::list(at.connection, source, ENTER, at.settings, at.context, pieces).await
}

/// Sends what is named, with GNU tar, to `sink`. Returns how many of the names the server said had gone.
pub(crate) async fn send_named(
    at: Remote<'_>,
    source: &FilesSource,
    names: mpsc::Receiver<Bytes>,
    sink: &mut PlainSink,
) -> Result<usize> {
    let Remote { connection, settings, context } = at;
    // GNU tar reports files that change while it reads them.
    drop(sink.take_passed());
    let mount = if source.one_file_system { "yes" } else { "" };
    let script = format!("{ENTER}{GNU_OPTIONS}o=$2\n{MOUNTS}{READ_NAMED}");
    let process = Script::new(&script, &[&source.path, mount]).start(connection).await?;
    let Read { exit, mut lines, .. } = read(connection, process, names, settings, context, sink, None).await?;
    let flavour = take_flavour(&mut lines);
    lines.retain(|line| !line.starts_with(FOLDER));
    tell_mounts(&mut lines, source, context);
    warn_of_missing_attributes(&mut lines, flavour, context);
    let gone = lines.extract_if(.., |line| listing::is_gone(line)).map(|line| context.log.warn(line)).count();
    // These alone would not make tar fail.
    lines.extract_if(.., |line| has_changed(line)).for_each(|line| context.log.warn(line));
    let has_other_errors = lines.iter().any(|line| !is_end_note(line));
    if gone == 0 || has_other_errors || exit.status != Some(2) || exit.signal.is_some() {
        judge(source, &exit, &lines, true, context)?;
    }
    read_again(connection, source, settings, context, sink).await?;
    Ok(gone)
}

/// Whether this tar does not report files that change while it reads them.
fn is_silent(flavour: Option<Flavour>) -> bool {
    matches!(flavour, Some(Flavour::Bsd | Flavour::Other))
}

/// Accepts all files without data as holes, for a tar that is not run a second time.
async fn believe_holes(sink: &mut PlainSink) -> Result<()> {
    let files = sink.first_end().await?;
    sink.second((0..files.len()).collect()).await
}

async fn pump_over_sftp(
    connection: &Connection,
    source: &FilesSource,
    settings: &RemoteSettings,
    context: &Context,
    (sink, now): (&mut PlainSink, Timestamp),
) -> Result<()> {
    if source.one_file_system {
        return Err(no_mounts());
    }
    sftp::send(connection, source, settings, context, (sink, now)).await?;
    context.log.warn(
        "Files were read over SFTP, which does not support access control lists, extended attributes, file \
         capabilities, hard links or fractions of a second; they are not in this backup.",
    );
    Ok(())
}

/// Logs the mounts that a task on one file system left out, and warns about kernel file systems that were read.
fn tell_mounts(lines: &mut Vec<String>, source: &FilesSource, context: &Context) {
    const MOUNT: &str = "holdfast: mount ";
    const NO_SIZES: &str = "holdfast: no sizes ";
    for line in lines.extract_if(.., |line| line.starts_with(MOUNT)) {
        context.log.line(format!("{} is another file system and was left out.", &line[MOUNT.len()..]));
    }
    let folder = context.with_findings(|findings| findings.folder.clone()).unwrap_or_default();
    let patterns = patterns(source);
    for line in lines.extract_if(.., |line| line.starts_with(NO_SIZES)) {
        let mount = &line[NO_SIZES.len()..];
        let below = mount.strip_prefix(folder.trim_end_matches('/')).unwrap_or(mount).trim_matches('/');
        let mut ends = below.match_indices('/').map(|(at, _)| at).chain([below.len()]);
        if !ends.any(|end| is_excluded(&patterns, &below.as_bytes()[..end])) {
            context.log.warn(format!(
                "{mount} is a kernel file system (such as proc or sys). Its files do not report their sizes, so they \
                 are empty in this backup; exclude it."
            ));
        }
    }
}

fn warn_of_missing_attributes(lines: &mut Vec<String>, flavour: Option<Flavour>, context: &Context) {
    const NO_ATTRIBUTES: &str = "holdfast: no attributes";
    let lacks = lines.iter().any(|line| line == NO_ATTRIBUTES) || flavour == Some(Flavour::Other);
    lines.retain(|line| line != NO_ATTRIBUTES);
    if lacks {
        context.log.warn(
            "This server's tar does not store access control lists, extended attributes and file capabilities; they \
             are not in this backup. BusyBox tar does not store fractions of a second or holes either.",
        );
    }
}

/// How a tar ended, and what it wrote to standard error.
struct Read {
    exit: Exit,
    lines: Vec<String>,
    has_started: bool,
    has_sent: bool,
}

impl Read {
    fn flavour(&self) -> Option<Flavour> {
        self.lines.iter().find_map(|line| flavour_of(line))
    }
}

/// If the kind of tar has not been reported after this many bytes, they do not come from our script.
const UNTOLD_BYTES: u64 = 1024 * 1024;

/// Input that is known as a whole.
fn input_of(bytes: Vec<u8>) -> mpsc::Receiver<Bytes> {
    let (sender, input) = mpsc::channel(1);
    if !bytes.is_empty() {
        // There is room for one.
        let _sent = sender.try_send(bytes.into());
    }
    input
}

/// Feeds a process its input and forwards its output. `on_flavour` receives the kind of tar as soon as it is known.
async fn read(
    connection: &Connection,
    process: Process,
    mut input: mpsc::Receiver<Bytes>,
    settings: &RemoteSettings,
    context: &Context,
    sink: &mut PlainSink,
    mut on_flavour: Option<oneshot::Sender<Flavour>>,
) -> Result<Read> {
    let Process { mut stdin, mut stdout, control } = process;
    let feeding = async {
        while let Some(piece) = input.recv().await {
            // A process that does not read its input shows why by its exit status.
            if stdin.write_all(piece).await.is_err() {
                break;
            }
        }
        let _unwanted = stdin.close().await;
    };
    let mut sent = 0;
    let reading = async {
        let mut pace = Pace::new(settings.stall);
        while let Some(chunk) = pace.next(&mut stdout, &context.cancel).await? {
            sent += chunk.len() as u64;
            if on_flavour.is_some() {
                let flavour = flavour_in(stdout.stderr());
                if let Some(on_flavour) = on_flavour.take_if(|_| flavour.is_some() || sent > UNTOLD_BYTES) {
                    // The receiver is gone if the run has failed.
                    let _gone = flavour.map(|flavour| on_flavour.send(flavour));
                }
            }
            sink.send(chunk).await?;
        }
        let exit = end_of(&mut stdout, settings.stall, &context.cancel).await?;
        // All of a small source may arrive before the line that reports the tar.
        if let Some((on_flavour, flavour)) = on_flavour.take().zip(flavour_in(stdout.stderr())) {
            let _gone = on_flavour.send(flavour);
        }
        Ok(exit)
    };
    match remote::while_feeding(feeding, reading).await {
        Ok(exit) => {
            let (lines, has_started) = (remote::lines(stdout.stderr()), stdout.has_started());
            Ok(Read { exit, lines, has_started, has_sent: sent > 0 })
        }
        Err(error) => {
            remote::stop(connection, &control, stdout.process_id(), context).await;
            Err(error)
        }
    }
}

/// Reads again the files in which GNU tar found no data, where the file system may have reported that wrongly.
async fn read_again(
    connection: &Connection,
    source: &FilesSource,
    settings: &RemoteSettings,
    context: &Context,
    sink: &mut PlainSink,
) -> Result<()> {
    let files = sink.first_end().await?;
    if files.is_empty() {
        return Ok(());
    }
    let holes = true_holes(connection, source, &files, settings, context).await?;
    let rest: Vec<&Member> =
        files.iter().enumerate().filter(|(index, _)| !holes.contains(index)).map(|(_, file)| file).collect();
    sink.second(holes).await?;
    if rest.is_empty() {
        return Ok(());
    }
    let script = Script::new(&format!("{ENTER}{GNU_OPTIONS}{READ_AGAIN}"), &[&source.path]);
    let process = script.start(connection).await?;
    let input = input_of(names(&rest));
    let Read { exit, mut lines, .. } = read(connection, process, input, settings, context, sink, None).await?;
    // Files that are gone by now are named later, when they turn out to be missing from the archive.
    lines.retain(|line| !listing::is_gone(line) && !is_end_note(line));
    match exit.status {
        Some(2) if lines.is_empty() && exit.signal.is_none() => Ok(()),
        _ => judge(source, &exit, &lines, true, context),
    }
}

/// The indexes of the files that certainly have no data.
async fn true_holes(
    connection: &Connection,
    source: &FilesSource,
    files: &[Member],
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Vec<usize>> {
    let large: Vec<(usize, &Member)> = files.iter().enumerate().filter(|(_, file)| file.size > INLINE_BYTES).collect();
    if large.is_empty() {
        return Ok(Vec::new());
    }
    let input = names(&large.iter().map(|(_, file)| *file).collect::<Vec<_>>());
    let script = Script::new(&format!("{ENTER}{FILE_SYSTEMS}"), &[&source.path]);
    let answer = remote::ask_bytes(connection, settings, context, &script, &input).await?;
    let kinds = String::from_utf8_lossy(&answer.stdout).into_owned();
    let kinds: Vec<&str> = kinds.lines().collect();
    // Unless there is one answer for each file, all are in doubt and are read again.
    if !answer.exit.success() || kinds.len() != large.len() {
        return Ok(Vec::new());
    }
    let honest = large.iter().zip(kinds).filter(|(_, kind)| HONEST.contains(kind));
    Ok(honest.map(|((index, _), _)| *index).collect())
}

/// Names as programs read them from standard input: each terminated by a zero byte.
fn names(files: &[&Member]) -> Vec<u8> {
    files.iter().flat_map(|file| [file.path.as_slice(), &[0]].concat()).collect()
}

fn read_script(source: &FilesSource) -> Result<Script> {
    /// Linux allows 128 KiB for one argument, and the whole command is one argument of the account's shell.
    const COMMAND_BYTES: usize = 120 * 1024;
    let (gnu, bsd, other) = (gnu_excludes(source), bsd_excludes(source), other_excludes(source));
    let counts = [gnu.len().to_string(), bsd.as_ref().map_or_else(|| "no".to_owned(), |bsd| bsd.len().to_string())];
    let mut words = vec![source.path.as_str(), if source.one_file_system { "yes" } else { "" }, &counts[0], &counts[1]];
    words.extend(gnu.iter().chain(bsd.iter().flatten()).chain(&other).map(String::as_str));
    let script = Script::new(&format!("{ENTER}{GNU_OPTIONS}{READ_ARGUMENTS}{MOUNTS}{READ}"), &words);
    if script.len() > COMMAND_BYTES {
        return Err(EngineError::new(FailureCode::NotSupported, "The excluded paths are too long for one command."));
    }
    Ok(script)
}

fn gnu_excludes(source: &FilesSource) -> Vec<String> {
    let words = patterns(source).into_iter().flat_map(|pattern| match pattern {
        Pattern::Name(name) => ["--no-anchored".to_owned(), format!("--exclude={name}")],
        Pattern::Path(path) => ["--anchored".to_owned(), format!("--exclude=./{path}")],
    });
    words.collect()
}

/// bsdtar's patterns match at any level unless they are anchored, and its stars match slashes too. `None` if a pattern
/// would exclude more than was meant.
fn bsd_excludes(source: &FilesSource) -> Option<Vec<String>> {
    let has_wildcard = |text: &str| text.contains(['*', '?', '[', '\\']);
    // At the ends of a pattern these are anchors.
    let escaped = |text: &str| text.replace('^', "\\^").replace('$', "\\$");
    let words = patterns(source).into_iter().map(|pattern| match pattern {
        Pattern::Path(path) => (!has_wildcard(&path)).then(|| format!("--exclude=^./{}", escaped(&path))),
        Pattern::Name(name) => {
            // A star at one end of a name matches the same files whether or not it matches slashes.
            let inner = name.strip_prefix('*').or_else(|| name.strip_suffix('*')).unwrap_or(&name);
            (!has_wildcard(inner)).then(|| format!("--exclude={}", escaped(&name)))
        }
    });
    words.collect()
}

/// BusyBox' patterns match whole paths, and its stars match slashes too.
fn other_excludes(source: &FilesSource) -> Vec<String> {
    let words = patterns(source).into_iter().flat_map(|pattern| match pattern {
        Pattern::Name(name) => vec![format!("--exclude=./{name}"), format!("--exclude=*/{name}")],
        Pattern::Path(path) => vec![format!("--exclude=./{path}")],
    });
    words.collect()
}

/// Removes the line that reports the kind of tar, and returns the kind.
fn take_flavour(lines: &mut Vec<String>) -> Option<Flavour> {
    let place = lines.iter().position(|line| line.starts_with(MARKER))?;
    flavour_of(&lines.remove(place))
}

/// The kind of tar, if it has been reported yet.
fn flavour_in(stderr: &Stderr) -> Option<Flavour> {
    stderr.lines().find_map(|line| flavour_of(std::str::from_utf8(line).ok()?))
}

fn flavour_of(line: &str) -> Option<Flavour> {
    match line.strip_prefix(MARKER)? {
        "gnu" => Some(Flavour::Gnu),
        "bsd" => Some(Flavour::Bsd),
        "other" => Some(Flavour::Other),
        _ => None,
    }
}

/// Whether GNU tar says that a file changed or went away while it was read, which is no failure.
fn has_changed(line: &str) -> bool {
    const SIGNS: &[&str] = &[
        ": file changed as we read it",
        ": File removed before we read it",
        "; padding with zeros",
        ": socket ignored",
    ];
    SIGNS.iter().any(|sign| line.ends_with(sign))
}

fn is_end_note(line: &str) -> bool {
    line.contains("xit") && line.contains("previous errors")
}

/// Whether tar succeeded; also logs what it wrote to standard error.
fn judge(source: &FilesSource, exit: &Exit, lines: &[String], is_gnu: bool, context: &Context) -> Result<()> {
    let told: Vec<&String> = lines.iter().filter(|line| !is_end_note(line)).collect();
    match exit.status {
        Some(0) => {
            for line in told {
                // tar was built without this feature, skips it and still exits with 0.
                if line.contains("support is not available") {
                    context.log.warn(line);
                } else {
                    context.log.line(line);
                }
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
        Some(EXIT_NO_MOUNTS) => Err(no_mounts()),
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

/// Walks the tree that tar will read and prints the size of each entry, and its path if asked to. Only GNU find can do
/// this.
const COUNT: &str = r#"
p=$1
case $p in /*) ;; *) p=./$p ;; esac
if [ -d "$p" ]; then m=.; cd -- "$p" || exit 97
elif [ ! -e "$p" ]; then exit 96
else d=${p%/*}; m=./${p##*/}; cd -- "${d:-/}" || exit 97; fi
if [ "$m" = . ] && [ "$(pwd -P)" = / ]; then
  exec find . $3 \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run \) -prune -o -printf "$2" 2>/dev/null
fi
exec find "$m" $3 -printf "$2" 2>/dev/null
"#;

/// How long counting may take; for a very large tree, it takes longer than anybody waits.
pub(crate) const COUNT_LIMIT: Duration = Duration::from_secs(60);

/// Estimates how much there is, in bytes of an archive and in files; `None` if the server cannot tell.
pub(crate) async fn estimate(
    connection: &Connection,
    source: &FilesSource,
    settings: &RemoteSettings,
    context: &Context,
) -> Result<Option<(u64, u64)>> {
    let exclusion = Exclusion::of(source);
    // Without paths, far less is sent.
    let format = if exclusion.is_nothing() { "%s\\0" } else { "%s %P\\0" };
    let mount = if source.one_file_system { "-xdev" } else { "" };
    let script = Script::new(COUNT, &[&source.path, format, mount]);
    let Process { stdin, mut stdout, .. } = script.start(connection).await?;
    let _unwanted = stdin.close().await;
    let mut count = Count { exclusion, ..Count::default() };
    let mut pace = Pace::new(settings.stall);
    while let Some(chunk) = pace.next(&mut stdout, &context.cancel).await? {
        count.feed(&chunk);
    }
    let exit = end_of(&mut stdout, settings.stall, &context.cancel).await?;
    match exit.status {
        Some(EXIT_MISSING) => return Err(missing(source)),
        Some(EXIT_CLOSED) => return Err(closed(source)),
        _ => {}
    }
    // Status 1 means that some folders could not be entered; the rest counts.
    Ok(count.total().filter(|_| matches!(exit.status, Some(0 | 1))))
}

/// Counts a whole listing that came in pieces.
pub(crate) fn count<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, source: &FilesSource) -> Option<(u64, u64)> {
    let mut count = Count { exclusion: Exclusion::of(source), ..Count::default() };
    chunks.into_iter().for_each(|chunk| count.feed(chunk));
    count.total()
}

/// Enough for a size, a space and the longest path that Linux allows.
const LONGEST_LINE: usize = 8 * 1024;

#[derive(Default)]
struct Count {
    exclusion: Exclusion,
    /// The beginning of a line that has not ended yet.
    line: Vec<u8>,
    bytes: u64,
    files: u64,
    /// The output does not come from `find`.
    is_other: bool,
}

impl Count {
    fn feed(&mut self, chunk: &[u8]) {
        for part in chunk.split_inclusive(|byte| *byte == 0) {
            self.line.extend_from_slice(part);
            let is_whole = self.line.pop_if(|byte| *byte == 0).is_some();
            if self.line.len() > LONGEST_LINE {
                self.is_other = true;
                self.line.clear();
            } else if is_whole {
                let line = std::mem::take(&mut self.line);
                self.add(&line);
                self.line = line;
                self.line.clear();
            }
        }
    }

    /// Bytes and files, if a complete listing came.
    fn total(&self) -> Option<(u64, u64)> {
        (!self.is_other && self.line.is_empty() && self.files > 0).then_some((self.bytes, self.files))
    }

    fn add(&mut self, line: &[u8]) {
        let mut parts = line.splitn(2, |byte| *byte == b' ');
        let (size, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let Some(size) = std::str::from_utf8(size).ok().and_then(|size| size.parse::<u64>().ok()) else {
            self.is_other = true;
            return;
        };
        if self.exclusion.covers(path) {
            return;
        }
        // Each file takes a header and is padded.
        let archived = size.checked_next_multiple_of(512).unwrap_or(size).saturating_add(1536);
        (self.bytes, self.files) = (self.bytes.saturating_add(archived), self.files + 1);
    }
}

fn no_mounts() -> EngineError {
    let message = "This server's tools cannot stay on one file system. Exclude the mounts by path instead.";
    EngineError::new(FailureCode::NotSupported, message)
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
            one_file_system: false,
        };
        let name = |text: &str| Pattern::Name(text.to_owned());
        let path = |text: &str| Pattern::Path(text.to_owned());
        let found = patterns(&source("/var/www/", &["*.log", "cache/", "/var/www/tmp", "a//./b", "//x", "./y", "/"]));
        assert_eq!(found, [name("*.log"), name("cache"), path("tmp"), path("a/b"), path("x"), path("y")]);
        assert_eq!(patterns(&source("/a", &["[cache]"])), [name("[cache]"), name(r"\[cache\]")]);
        assert_eq!(patterns(&source("/", &[])), [path("proc"), path("sys"), path("dev"), path("run")]);
    }

    #[test]
    fn anchors_in_names_are_escaped() {
        let source = FilesSource {
            path: "/a".into(),
            excluded: ["price$", "^keep", "*$", "./p/q$"].map(str::to_owned).to_vec(),
            one_file_system: false,
        };
        let words = [r"--exclude=price\$", r"--exclude=\^keep", r"--exclude=*\$", r"--exclude=^./p/q\$"];
        assert_eq!(bsd_excludes(&source).unwrap(), words);
    }

    #[test]
    fn what_is_excluded_is_not_counted_nor_what_is_below_it() {
        let excluded = ["*.log", "cache"].map(|text| Pattern::Name(text.to_owned())).to_vec();
        let mut count = Count { exclusion: Exclusion::new(excluded), ..Count::default() };
        for line in ["4096 ", "100 a.txt", "7 a.log", "4096 cache", "9 cache/b", "9 cache/c/d", "1 cached"] {
            count.add(line.as_bytes());
        }
        assert_eq!((count.files, count.bytes, count.is_other), (3, 4096 + 512 + 512 + 3 * 1536, false));
        count.add(b"sh: find: not found");
        assert!(count.is_other);
    }

    #[test]
    fn a_line_that_is_too_long_is_no_listing_however_it_comes() {
        let long = [b"1 ".as_slice(), &[b'n'; LONGEST_LINE], b"\0"].concat();
        for piece in [1, 100, long.len()] {
            let mut count = Count::default();
            long.chunks(piece).for_each(|chunk| count.feed(chunk));
            assert_eq!(count.total(), None, "in pieces of {piece}");
        }
    }
}
