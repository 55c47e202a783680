//! What is in a folder of a server, as GNU find lists it in one go, so that files that have not changed since the last
//! backup need not be read. Only servers with GNU find and GNU tar can do this.

use bytes::Bytes;
use holdfast_core::source::FilesSource;
use tokio::sync::mpsc;

use super::patterns::{Exclusion, Pattern, is_excluded, patterns};
use crate::archive::tar::Time;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{self, Pace, RemoteSettings, Script, end_of};
use crate::ssh::{Connection, Exit, Process, SshError};
use holdfast_core::failure::FailureCode;

/// Starts the line that tells the time of the server when it began to list.
const NOW: &str = "holdfast: now ";

/// Kind, size, times of the last change of content and of anything, inode, device, links, and the path.
const FORMAT: &str = "%y %s %T@ %C@ %i %D %n %P\\0";

/// Follows `files::ENTER`. The second argument says whether to stay on one file system, the third how to print an entry,
/// and those after it, as an expression of find's, what not to enter. Exits with 95 if the server
/// cannot list, or if the source is not a folder.
const LIST: &str = r#"
[ "$m" = . ] || exit 95
case $(tar --version 2>&1) in *'GNU tar'*) ;; *) exit 95 ;; esac
find . -maxdepth 0 -printf '' >/dev/null 2>&1 || exit 95
t=$(date +%s) || exit 95
echo "holdfast: folder $(printf %s "$(pwd -P)" | tr '\n\r' '??')" >&2
echo "holdfast: now $t" >&2
o=; [ -z "$2" ] || o=-xdev
f=$3; shift 3
[ "$(pwd -P)" != / ] || set -- -path ./proc -o -path ./sys -o -path ./dev -o -path ./run ${1+-o} "$@"
[ $# -gt 0 ] || exec find . $o -printf "$f"
exec find . $o \( ! -path . \( "$@" \) -prune \) -o -printf "$f"
"#;

/// An entry of the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// A letter of find's: `f`, `d`, `l` and others.
    pub kind: u8,
    pub size: u64,
    pub modified: Time,
    pub changed: Time,
    pub inode: u64,
    pub device: u64,
    pub links: u64,
    /// Below the source; that itself has the empty path.
    pub path: Vec<u8>,
}

impl Listed {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(8, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let kind = text()?;
        let (size, modified, changed) = (text()?, text()?, text()?);
        let (inode, device, links) = (text()?, text()?, text()?);
        let path = fields.next()?;
        // No find prints such paths.
        let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && name.len() <= LONGEST_NAME;
        if !path.is_empty() && !path.split(|byte| *byte == b'/').all(is_name) {
            return None;
        }
        Some(Self {
            kind: *kind.as_bytes().first().filter(|_| kind.len() == 1)?,
            size: size.parse().ok()?,
            modified: parse_time(modified)?,
            changed: parse_time(changed)?,
            inode: inode.parse().ok()?,
            device: device.parse().ok()?,
            links: links.parse().ok()?,
            path: path.to_vec(),
        })
    }
}

/// Seconds with a fraction of ten digits, of which the last is always zero.
fn parse_time(text: &str) -> Option<Time> {
    let (seconds, fraction) = text.split_once('.')?;
    let nanos = fraction.get(..9).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    Some(Time { seconds: seconds.parse().ok()?, nanos: nanos.parse().ok()? })
}

/// The longest name that a file system of Linux has.
const LONGEST_NAME: usize = 255;
/// Enough for the numbers and the longest path that Linux allows.
const LONGEST_LINE: usize = 8 * 1024;

/// Puts the pieces of a listing together, without what is excluded.
pub(crate) struct Lines {
    exclusion: Exclusion,
    /// The beginning of a line that has not ended yet.
    line: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(source: &FilesSource) -> Self {
        Self { exclusion: Exclusion::of(source), line: Vec::new() }
    }

    pub(crate) fn feed(&mut self, piece: &[u8], on_entry: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        for part in piece.split_inclusive(|byte| *byte == 0) {
            self.line.extend_from_slice(part);
            if self.line.len() > LONGEST_LINE {
                return Err(not_a_listing());
            }
            if self.line.pop_if(|byte| *byte == 0).is_none() {
                continue;
            }
            let listed = Listed::parse(&self.line).ok_or_else(not_a_listing)?;
            self.line.clear();
            if listed.path.is_empty() || !self.exclusion.covers(&listed.path) {
                on_entry(listed)?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(&self) -> Result<()> {
        if self.line.is_empty() { Ok(()) } else { Err(not_a_listing()) }
    }
}

fn not_a_listing() -> EngineError {
    EngineError::incomplete("The server sent something else than a listing of the source.")
}

/// What came of listing.
pub(crate) enum Listing {
    /// All of it was sent. The time of the server in seconds, when it began.
    Complete { began: i64 },
    /// The server cannot do this.
    Unavailable,
}

/// Sends the listing of the source to `pieces`.
pub(crate) async fn list(
    connection: &Connection,
    source: &FilesSource,
    enter: &str,
    settings: &RemoteSettings,
    context: &Context,
    pieces: mpsc::Sender<Bytes>,
) -> Result<Listing> {
    let mount = if source.one_file_system { "yes" } else { "" };
    let unwanted = not_entered(&patterns(source));
    let mut words = vec![source.path.as_str(), mount, FORMAT];
    words.extend(unwanted.iter().map(String::as_str));
    let script = Script::new(&format!("{enter}{LIST}"), &words);
    let process = match script.start(connection).await {
        Err(SshError::ExecRefused) => return Ok(Listing::Unavailable),
        process => process?,
    };
    let Process { stdin, mut stdout, control } = process;
    let listing = async {
        let _unwanted = stdin.close().await;
        let mut pace = Pace::new(settings.stall);
        while let Some(piece) = pace.next(&mut stdout, &context.cancel).await? {
            // The receiver has failed and reports the reason itself.
            pieces.send(piece).await.map_err(|_| EngineError::cancelled())?;
        }
        end_of(&mut stdout, settings.stall, &context.cancel).await
    };
    match listing.await {
        Ok(exit) => {
            let mut lines = remote::lines(stdout.stderr());
            lines.retain(|line| !is_about_excluded(line, &patterns(source)));
            judge(&exit, lines, stdout.has_started(), context)
        }
        Err(error) => {
            remote::stop(connection, &control, stdout.process_id(), context).await;
            Err(error)
        }
    }
}

/// What find need not enter, as an expression: it may be large, or unreadable. What it prints is compared with all
/// patterns, so only those are used that certainly mean the same to find.
fn not_entered(patterns: &[Pattern]) -> Vec<String> {
    let is_plain = |text: &str, special: &[char]| !text.contains(special);
    let mut words: Vec<String> = Vec::new();
    for pattern in patterns {
        let (test, text) = match pattern {
            Pattern::Name(name) if is_plain(name, &['?', '[', '\\']) => ("-name", name.clone()),
            Pattern::Path(path) if is_plain(path, &['*', '?', '[', '\\']) => ("-path", format!("./{path}")),
            Pattern::Name(_) | Pattern::Path(_) => continue,
        };
        if !words.is_empty() {
            words.push("-o".to_owned());
        }
        words.extend([test.to_owned(), text]);
    }
    words
}

/// Whether find says that it cannot read something that is excluded. What is not certainly that counts as an error.
fn is_about_excluded(line: &str, patterns: &[Pattern]) -> bool {
    let path = line.strip_prefix("find: './").and_then(|rest| rest.split_once("': "));
    let Some((path, _)) = path.filter(|(path, rest)| !path.contains('\\') && !rest.contains("': ")) else {
        return false;
    };
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    ends.into_iter().any(|end| is_excluded(patterns, &path.as_bytes()[..end]))
}

/// Whether a tool says that a file went away. What it says comes last; the name before it may contain anything.
pub(super) fn is_gone(line: &str) -> bool {
    line.ends_with(": No such file or directory")
}

fn judge(exit: &Exit, mut lines: Vec<String>, has_started: bool, context: &Context) -> Result<Listing> {
    const FOLDER: &str = "holdfast: folder ";
    // Whatever else is wrong with the source, reading it tells best.
    if !has_started || !matches!(exit.status, Some(0 | 1)) {
        return Ok(Listing::Unavailable);
    }
    for line in lines.extract_if(.., |line| line.starts_with(FOLDER)) {
        context.note_folder(line.trim_start_matches(FOLDER));
    }
    let began = lines.extract_if(.., |line| line.starts_with(NOW)).last();
    let began = began.and_then(|line| line.trim_start_matches(NOW).trim().parse().ok());
    let Some(began) = began else { return Ok(Listing::Unavailable) };
    // What went away while it was listed is not in the backup, as if it had gone before.
    lines.retain(|line| !is_gone(line));
    match lines.first() {
        None => Ok(Listing::Complete { began }),
        Some(first) => {
            let more = if lines.len() > 1 { format!(" (and {} more)", lines.len() - 1) } else { String::new() };
            let message = format!("Some folders cannot be read: {first}{more}.");
            Err(EngineError::new(FailureCode::SourceUnreadable, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], excluded: &[&str], piece: usize) -> Result<Vec<Listed>> {
        let source = FilesSource {
            path: "/srv".to_owned(),
            excluded: excluded.iter().map(|text| (*text).to_owned()).collect(),
            one_file_system: false,
        };
        let (mut lines, mut found) = (Lines::new(&source), Vec::new());
        for piece in text.chunks(piece) {
            lines.feed(piece, &mut |listed| {
                found.push(listed);
                Ok(())
            })?;
        }
        lines.finish().map(|()| found)
    }

    const TWO: &[u8] = b"d 4096 1700000000.0000000000 1700000001.5000000000 7 2049 3 \0\
        f 12 -5.2500000000 1700000001.1234567890 8 2049 1 a b\nc\xff\0";

    #[test]
    fn a_listing_is_read_in_any_pieces() {
        for piece in [1, 7, TWO.len()] {
            let found = read(TWO, &[], piece).unwrap();
            assert_eq!((found[0].kind, &*found[0].path, found[0].links), (b'd', &b""[..], 3));
            assert_eq!((found[1].size, found[1].inode, &*found[1].path), (12, 8, &b"a b\nc\xff"[..]));
            assert_eq!(found[1].changed, Time { seconds: 1_700_000_001, nanos: 123_456_789 });
        }
    }

    #[test]
    fn what_is_excluded_is_left_out_with_everything_below() {
        let line = |path: &str| format!("f 1 1.0000000000 1.0000000000 1 1 1 {path}\0");
        let text: String =
            ["a", "cache", "cache/x", "cached", "b/cache", "b/cache/y", "x.log"].into_iter().map(line).collect();
        let found = read(text.as_bytes(), &["cache", "*.log"], 10).unwrap();
        assert_eq!(found.iter().map(|listed| &*listed.path).collect::<Vec<_>>(), [&b"a"[..], b"cached"]);
    }

    #[test]
    fn find_does_not_enter_what_is_certainly_excluded() {
        let of = |excluded: &[&str]| {
            let excluded = excluded.iter().map(|text| (*text).to_owned()).collect();
            let source = FilesSource { path: "/srv".to_owned(), excluded, one_file_system: false };
            not_entered(&patterns(&source)).join(" ")
        };
        assert_eq!(
            of(&["cache", "*.log", "/srv/a/b", "c/d/"]),
            "-name cache -o -name *.log -o -path ./a/b -o -path ./c/d"
        );
        // Whether find takes these for the same is not certain: what it prints is compared all the same.
        assert_eq!(of(&["a?", "[ab]", "a\\*", "x/*", "x/[y]", "*"]), "");
        assert_eq!(of(&["-delete", "!", "$(id)"]), "-name -delete -o -name ! -o -name $(id)");
        // What find cannot read there is no error.
        let patterns = [Pattern::Name("sec?et".to_owned()), Pattern::Path("a/[b]".to_owned())];
        let is_fine = |path: &str| is_about_excluded(&format!("find: '{path}': Permission denied"), &patterns);
        assert!(is_fine("./secret") && is_fine("./x/secret/below") && is_fine("./a/b/c"));
        assert!(!is_fine("./x") && !is_fine("./secret': ./x") && !is_fine("secret") && !is_fine(r"./secret\n"));
    }

    #[test]
    fn anything_else_is_no_listing() {
        for wrong in [
            &b"find: not found\0"[..],
            b"f 1 1.0 1.0000000000 1 1 1 a\0",
            b"f -1 1.0000000000 1.0000000000 1 1 1 a\0",
            b"ff 1 1.0000000000 1.0000000000 1 1 1 a\0",
            b"f 1 1.0000000000 1.0000000000 1 1 1\0",
            b"f 1 1.0000000000",
            b"f 1 1.0000000000 1.0000000000 1 1 1 ../a\0",
            b"d 1 1.0000000000 1.0000000000 1 1 1 a/../b\0",
            b"d 1 1.0000000000 1.0000000000 1 1 1 /a\0",
            &[b'x'; LONGEST_LINE + 1],
        ] {
            assert!(read(wrong, &[], 100).is_err(), "{wrong:?}");
        }
    }
}
