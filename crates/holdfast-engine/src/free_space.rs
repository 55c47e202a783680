//! The room that is left on the file system of a folder on this machine.

use std::path::Path;

use holdfast_core::figures;

/// With less free space, a local destination or the database may soon stop working.
const LEAST_FREE_BYTES: u64 = 1 << 30;
/// With fewer files, too: every backup is one, and so is each temporary file.
const LEAST_FREE_FILES: u64 = 1000;

/// How much may still be written to a file system, as far as this user may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpace {
    pub bytes: u64,
    /// How many files may still be created; `None` if the file system has no limit.
    files: Option<u64>,
}

impl FreeSpace {
    /// `None` if the system does not tell, for example because the folder does not exist.
    pub fn find(folder: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(folder).ok()?;
        let files = (found.f_files > 0).then_some(found.f_favail);
        Some(Self { bytes: found.f_bavail.saturating_mul(found.f_frsize), files })
    }

    /// What is left, or what is wrong, in words.
    pub fn check(self, folder: &Path) -> Result<String, String> {
        let shown = figures::size(i64::try_from(self.bytes).unwrap_or(i64::MAX));
        let at = || format!("on the file system of {}; free some space", folder.display());
        if self.bytes < LEAST_FREE_BYTES {
            return Err(format!("only {shown} left {}", at()));
        }
        match self.files.filter(|files| *files < LEAST_FREE_FILES) {
            Some(files) => Err(format!("only {files} more files can be created {}", at())),
            None => Ok(format!("{shown} left")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_a_problem_whether_it_is_bytes_or_files() {
        let folder = Path::new("/srv");
        let check = |bytes, files| FreeSpace { bytes, files }.check(folder);
        assert_eq!(check(2_000_000_000, None).unwrap(), "2.0 GB left");
        assert_eq!(check(2_000_000_000, Some(50_000)).unwrap(), "2.0 GB left");
        assert!(check(1_000_000, None).unwrap_err().starts_with("only 1.0 MB left on the file system of /srv"));
        assert!(check(2_000_000_000, Some(7)).unwrap_err().starts_with("only 7 more files can be created"));
    }
}
