//! Where the audit log is exported to: a file, standard output or the system's log.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where most systems take messages for their log.
const SYSLOG: &str = "/dev/log";
/// `authpriv` and `info`, as a priority of syslog: the facility for messages on who did what.
const PRIORITY: u32 = 10 * 8 + 6;
/// How long the system's log may take to accept a message.
const SYSLOG_WAIT: Duration = Duration::from_secs(10);

/// A destination, as it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditLog {
    File(PathBuf),
    Console,
    Syslog(PathBuf),
}

impl AuditLog {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "-" | "stdout" => Some(Self::Console),
            "syslog" | "syslog:" => Some(Self::Syslog(PathBuf::from(SYSLOG))),
            _ => {
                let is_absolute = |path: &PathBuf| path.is_absolute();
                match text.strip_prefix("syslog:") {
                    Some(socket) => Some(PathBuf::from(socket)).filter(is_absolute).map(Self::Syslog),
                    None => Some(PathBuf::from(text)).filter(is_absolute).map(Self::File),
                }
            }
        }
    }

    pub fn open(&self) -> Output {
        match self {
            Self::File(path) => Output::File(LogFile { path: path.clone(), open: None }),
            Self::Console => Output::Console { is_torn: false },
            Self::Syslog(path) => Output::Syslog { path: path.clone(), socket: None },
        }
    }
}

impl fmt::Display for AuditLog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(out, "{}", path.display()),
            Self::Console => write!(out, "standard output"),
            Self::Syslog(path) => write!(out, "syslog at {}", path.display()),
        }
    }
}

/// A destination that is written to. After an error, it is opened again.
pub enum Output {
    File(LogFile),
    Console { is_torn: bool },
    Syslog { path: PathBuf, socket: Option<UnixDatagram> },
}

impl Output {
    /// Writes the lines, or a part of them before an error. What was written is safe when this returns.
    pub fn write(&mut self, lines: &[String]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(lines),
            Self::Console { is_torn } => {
                let text = whole_lines(lines, *is_torn);
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
                *is_torn = written.is_err();
                written
            }
            Self::Syslog { path, socket } => {
                let sent = send(path, socket, lines);
                if sent.is_err() {
                    *socket = None;
                }
                sent
            }
        }
    }
}

fn whole_lines(lines: &[String], is_torn: bool) -> String {
    let begin = if is_torn { "\n" } else { "" };
    lines.iter().fold(begin.to_owned(), |text, line| text + line + "\n")
}

/// Sends each line as a message in the form that local programs use (RFC 3164 without a host).
fn send(path: &Path, socket: &mut Option<UnixDatagram>, lines: &[String]) -> io::Result<()> {
    let socket = match socket {
        Some(socket) => socket,
        None => {
            let new = UnixDatagram::unbound()?;
            new.set_write_timeout(Some(SYSLOG_WAIT))?;
            new.connect(path)?;
            socket.insert(new)
        }
    };
    let time = holdfast_core::clock::Clock::now(&holdfast_core::clock::SystemClock).strftime("%b %e %H:%M:%S");
    let process = std::process::id();
    for line in lines {
        socket.send(format!("<{PRIORITY}>{time} holdfast[{process}]: {line}").as_bytes())?;
    }
    Ok(())
}

/// A file that lines are appended to.
pub struct LogFile {
    path: PathBuf,
    /// `None` before the first line and after an error.
    open: Option<File>,
}

impl LogFile {
    fn write(&mut self, lines: &[String]) -> io::Result<()> {
        if self.was_replaced() {
            self.open = None;
        }
        let written = self.append(lines);
        if written.is_err() {
            self.open = None;
        }
        written
    }

    /// Whether the path leads to another file by now, or to none: logs are rotated.
    fn was_replaced(&self) -> bool {
        let Some(Ok(open)) = self.open.as_ref().map(File::metadata) else { return true };
        std::fs::metadata(&self.path).map_or(true, |found| (found.dev(), found.ino()) != (open.dev(), open.ino()))
    }

    fn append(&mut self, lines: &[String]) -> io::Result<()> {
        let is_new = self.open.is_none();
        let file = match &mut self.open {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
                self.open.insert(file)
            }
        };
        let text = whole_lines(lines, false);
        // Pipes and devices have nothing to be synchronized or cut off.
        if !file.metadata()?.is_file() {
            return file.write_all(text.as_bytes());
        }
        if is_new {
            cut_off_partial_line(file)?;
        }
        append_whole(file, text.as_bytes())
    }
}

/// Appends all of the text or, if the disk has no room for it, nothing: what is written in part is cut off again, so that
/// every line stays complete.
fn append_whole(file: &mut File, text: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    let mut written = 0;
    let result = write_counted(file, text, &mut written).and_then(|()| file.sync_data());
    // If the file has another length, somebody else writes to it, too, whose lines must stay.
    if result.is_err() && file.metadata()?.len() == before + written {
        file.set_len(before)?;
    }
    result
}

fn write_counted(file: &mut File, text: &[u8], written: &mut u64) -> io::Result<()> {
    let mut rest = text;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                *written += count as u64;
                rest = &rest[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes the beginning of a line that a process wrote before it was killed. Its event is written again.
fn cut_off_partial_line(file: &File) -> io::Result<()> {
    let end = file.metadata()?.len();
    let whole = find_end_of_last_line(file, end)?;
    if whole < end { file.set_len(whole) } else { Ok(()) }
}

/// Where the last complete line before `end` ends; 0 if there is none.
fn find_end_of_last_line(file: &File, mut end: u64) -> io::Result<u64> {
    let mut piece = [0; 4096];
    while end > 0 {
        let begin = end.saturating_sub(piece.len() as u64);
        let part = &mut piece[..usize::try_from(end - begin).map_err(io::Error::other)?];
        file.read_exact_at(part, begin)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_line_is_cut_off_before_others_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let long = "x".repeat(10_000);
        for (there, kept) in [
            ("", ""),
            ("{\"id\":1}\n", "{\"id\":1}\n"),
            ("{\"id\":1}\n{\"id\":2,\"ac", "{\"id\":1}\n"),
            ("{\"id", ""),
            (&format!("{long}\n{long}"), &format!("{long}\n")),
        ] {
            std::fs::write(&path, there).unwrap();
            AuditLog::File(path.clone()).open().write(&["{\"id\":3}".to_owned()]).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{kept}{{\"id\":3}}\n"));
        }
    }

    #[test]
    fn destinations_are_a_file_standard_output_or_syslog() {
        assert_eq!(AuditLog::parse("-"), Some(AuditLog::Console));
        assert_eq!(AuditLog::parse("/var/log/audit.jsonl"), Some(AuditLog::File("/var/log/audit.jsonl".into())));
        assert_eq!(AuditLog::parse("syslog:"), Some(AuditLog::Syslog("/dev/log".into())));
        assert_eq!(AuditLog::parse("syslog:/run/log"), Some(AuditLog::Syslog("/run/log".into())));
        assert_eq!((AuditLog::parse("audit.jsonl"), AuditLog::parse("syslog:udp")), (None, None));
    }
}
