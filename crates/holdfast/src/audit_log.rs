//! Where the audit log is exported to: a file, standard output or the system's log.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
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
        let is_torn = is_new && !ends_with_line(file)?;
        file.write_all(whole_lines(lines, is_torn).as_bytes())?;
        // Pipes and devices have nothing to be synchronized.
        if file.metadata()?.is_file() { file.sync_data() } else { Ok(()) }
    }
}

/// Whether the last line is whole: the disk may have been full in the middle of it.
fn ends_with_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_a_file_standard_output_or_syslog() {
        assert_eq!(AuditLog::parse("-"), Some(AuditLog::Console));
        assert_eq!(AuditLog::parse("/var/log/audit.jsonl"), Some(AuditLog::File("/var/log/audit.jsonl".into())));
        assert_eq!(AuditLog::parse("syslog:"), Some(AuditLog::Syslog("/dev/log".into())));
        assert_eq!(AuditLog::parse("syslog:/run/log"), Some(AuditLog::Syslog("/run/log".into())));
        assert_eq!((AuditLog::parse("audit.jsonl"), AuditLog::parse("syslog:udp")), (None, None));
    }
}
