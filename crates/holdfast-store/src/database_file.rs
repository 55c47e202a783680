//! The file of a SQLite database: whether it is in its place, can be opened again, has room, and who has locked it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::StoreError;

/// With less free space than a busy minute needs, SQLite may fail at any time.
const LEAST_FREE_BYTES: u64 = 16 << 20;
/// The byte of the file of shared memory that whoever writes to a SQLite database has locked.
const WRITE_LOCK: u64 = 120;

/// The file of a SQLite database, as it was when it was opened.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl DatabaseFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the open file is still the one at its path, and that its disk has room.
    pub(crate) fn check(&self) -> Result<()> {
        if identity(&self.path) != self.identity {
            let message = format!(
                "{} was moved, replaced or deleted while it was in use; stop Holdfast, put it back, and start again",
                self.path.display()
            );
            return Err(StoreError::Gone(message));
        }
        self.check_permission()?;
        match self.free_bytes() {
            Some(free) if free < LEAST_FREE_BYTES => {
                let shown = holdfast_core::figures::size(i64::try_from(free).unwrap_or(i64::MAX));
                Err(StoreError::DiskFull(format!("only {shown} left for {}", self.path.display())))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that the file could be opened again. One that is open stays writable when its mode changes or its file
    /// system becomes read-only, until the next start fails, or SQLite needs a new file beside it.
    pub(crate) fn check_permission(&self) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        for path in [&self.path, folder] {
            if let Err(error) = rustix::fs::access(path, rustix::fs::Access::WRITE_OK) {
                return Err(StoreError::ReadOnly(format!("{} cannot be written: {error}", path.display())));
            }
        }
        Ok(())
    }

    /// Whether another process has the database open, as far as the kernel tells: each holds a lock on the file of shared
    /// memory for as long.
    pub(crate) fn is_open_elsewhere(&self) -> bool {
        let mut shared = self.path.as_os_str().to_owned();
        shared.push("-shm");
        let Some((device, inode)) = identity(Path::new(&shared)) else { return false };
        let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return true };
        let file = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
        locks.lines().any(|line| line.split_whitespace().any(|field| field == file))
    }

    /// The process that keeps others from writing, as far as the kernel tells.
    pub(crate) fn find_lock_holder(&self) -> Option<String> {
        let mut shared = self.path.as_os_str().to_owned();
        shared.push("-shm");
        let files = [(identity(Path::new(&shared)), Some(WRITE_LOCK)), (self.identity, None)];
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let own = std::process::id();
        let holds = |line: &&str| {
            files
                .iter()
                .any(|(file, byte)| file.is_some_and(|(device, inode)| is_write_lock(line, device, inode, *byte)))
        };
        let holders =
            locks.lines().filter(holds).filter_map(|line| line.split_whitespace().nth(4)?.parse::<u32>().ok());
        let holder = holders.into_iter().find(|id| *id != own && *id != 0)?;
        let name = std::fs::read_to_string(format!("/proc/{holder}/comm")).unwrap_or_default();
        // The processes of other users may be hidden.
        let name = if name.is_empty() { String::new() } else { format!(" ({})", name.trim()) };
        Some(format!("process {holder}{name} holds the lock"))
    }

    /// The free space of its file system.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.path).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// Whether a line of `/proc/locks`, such as `1: POSIX ADVISORY WRITE 1234 08:01:5678 120 120`, is a lock for writing on
/// this file, and on this byte of it. The kernel is asked in this way because opening a file and closing it again would
/// release this process's own locks on it.
fn is_write_lock(line: &str, device: u64, inode: u64, byte: Option<u64>) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, "WRITE", _, file, start, end] = fields[..] else { return false };
    let shown = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let end = end.parse().unwrap_or(u64::MAX);
    let is_inside = |byte: u64| start.parse().is_ok_and(|start: u64| (start..=end).contains(&byte));
    file == shown && byte.is_none_or(is_inside)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_for_writing_are_found_in_the_list_of_the_kernel() {
        let device = rustix::fs::makedev(8, 17);
        let line = |range: &str| format!("12: POSIX  ADVISORY  WRITE 4321 08:11:5678 {range}");
        assert!(is_write_lock(&line("120 120"), device, 5678, Some(WRITE_LOCK)));
        assert!(is_write_lock(&line("0 EOF"), device, 5678, Some(WRITE_LOCK)));
        assert!(is_write_lock(&line("1073741826 1073742335"), device, 5678, None));
        assert!(!is_write_lock(&line("123 123"), device, 5678, Some(WRITE_LOCK)), "a reader's mark");
        assert!(!is_write_lock(&line("120 120"), device, 5679, Some(WRITE_LOCK)), "another file");
        assert!(!is_write_lock(&line("120 120").replace("WRITE", "READ"), device, 5678, Some(WRITE_LOCK)));
        assert!(!is_write_lock(
            "12: -> POSIX  ADVISORY  WRITE 4321 08:11:5678 120 120",
            device,
            5678,
            Some(WRITE_LOCK)
        ));
    }
}
