//! Local copies of the indexes of a repository and of the packs with its folders, so that a backup does not fetch from a
//! destination what this installation has written there. The files are as the destination has them, sealed; whoever
//! reads one checks it, so that a damaged copy is only fetched again. What proves that a backup can be restored never
//! reads them.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use holdfast_core::{Timestamp, random};
use holdfast_repository::Id;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

/// Where the copies of all repositories are, and how much space they may take.
#[derive(Debug, Clone, Default)]
pub struct CacheSettings {
    pub folder: PathBuf,
    pub most_bytes: u64,
}

/// The longest file that is kept. Packs of others may have 128 MiB.
pub(crate) const MOST_FILE_BYTES: u64 = 128 * 1024 * 1024;
/// Copies that nobody has used for so long are removed.
const UNUSED_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A temporary file that is this old was left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyKind {
    Index,
    Pack,
}

/// The copies of one repository. Every method blocks. What cannot be written is not kept, and no error.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    settings: CacheSettings,
    folder: PathBuf,
}

impl Cache {
    /// `config` is the configuration as it is stored, which no other repository has. `None` if nothing may be kept.
    pub(crate) fn of(settings: Option<&CacheSettings>, config: &[u8]) -> Option<Self> {
        let settings = settings.filter(|settings| settings.most_bytes > 0)?.clone();
        let folder = settings.folder.join(Id::of(config).to_string());
        Some(Self { settings, folder })
    }

    fn path(&self, kind: CopyKind, id: &Id) -> PathBuf {
        let kind = match kind {
            CopyKind::Index => "index",
            CopyKind::Pack => "data",
        };
        self.folder.join(kind).join(id.to_string())
    }

    pub(crate) fn open(&self, kind: CopyKind, id: &Id) -> Option<File> {
        let file = File::open(self.path(kind, id)).ok()?;
        // What is used is kept longest. A file system that cannot note it is no reason not to read.
        let present = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let _unknown = futimens(&file, &Timestamps { last_access: present, last_modification: present });
        Some(file)
    }

    pub(crate) fn read(&self, kind: CopyKind, id: &Id) -> Option<Vec<u8>> {
        let mut file = self.open(kind, id)?;
        if file.metadata().ok()?.len() > MOST_FILE_BYTES {
            return None;
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes).ok().map(|_| bytes)
    }

    pub(crate) fn keep(&self, kind: CopyKind, id: &Id, bytes: &[u8]) {
        if bytes.len() as u64 > MOST_FILE_BYTES {
            return;
        }
        let path = self.path(kind, id);
        if let Err(error) = write_private(&path, bytes) {
            tracing::debug!(%error, path = %path.display(), "a file of a repository is not kept");
        }
    }

    pub(crate) fn drop_copy(&self, kind: CopyKind, id: &Id) {
        remove(&self.path(kind, id));
    }

    /// Removes what the destination no longer has.
    pub(crate) fn retain(&self, kind: CopyKind, there: &HashSet<Id>) {
        let path = self.path(kind, &Id::default());
        let Some(copies) = path.parent().and_then(|folder| fs::read_dir(folder).ok()) else { return };
        for copy in copies.flatten() {
            let id = copy.file_name().to_str().and_then(|name| name.parse::<Id>().ok());
            if id.is_some_and(|id| !there.contains(&id)) {
                remove(&copy.path());
            }
        }
    }

    /// Removes what has not been used for the longest time, of all repositories, until the rest may stay.
    pub(crate) fn shrink(&self, now: Timestamp) {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        let mut copies = Vec::new();
        find_copies(&self.settings.folder, &mut copies);
        copies.sort_by_key(|copy| std::cmp::Reverse(copy.used));
        let mut bytes = 0_u64;
        for Copied { path, length, used } in copies {
            bytes = bytes.saturating_add(length);
            let unused = now.duration_since(used).unwrap_or_default();
            let is_temporary = path.extension().is_some();
            if bytes > self.settings.most_bytes || unused > UNUSED_FOR || is_temporary && unused > LEFT_BEHIND {
                remove(&path);
                bytes -= length;
            }
        }
    }
}

struct Copied {
    path: PathBuf,
    length: u64,
    used: SystemTime,
}

/// All copies: `<repository>/<kind>/<name>`. Folders without any are removed.
fn find_copies(folder: &Path, copies: &mut Vec<Copied>) {
    let folders = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for repository in folders(folder) {
        for kind in folders(&repository) {
            for file in fs::read_dir(&kind).into_iter().flatten().flatten() {
                let Ok(metadata) = file.metadata() else { continue };
                let Ok(used) = metadata.modified() else { continue };
                copies.push(Copied { path: file.path(), length: metadata.len(), used });
            }
            // Fails if something is in it, as intended.
            let _in_use = fs::remove_dir(&kind);
        }
        let _in_use = fs::remove_dir(&repository);
    }
}

/// Whether another run has removed it meanwhile does not matter.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(%error, path = %path.display(), "a copy of a file of a repository stays");
    }
}

/// Writes a file that only we may read, under its name once it is complete.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temporary = path.with_extension(random::hex(&random::bytes::<8>()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        remove(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use holdfast_core::clock::{Clock as _, SystemClock};

    use super::*;

    fn cache(folder: &Path, most_bytes: u64, config: &[u8]) -> Cache {
        Cache::of(Some(&CacheSettings { folder: folder.to_owned(), most_bytes }), config).unwrap()
    }

    #[test]
    fn copies_are_private_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("cache");
        let (one, other) = (cache(&root, 250, b"one"), cache(&root, 250, b"other"));
        let id = |name: &str| Id::of(name.as_bytes());
        one.keep(CopyKind::Index, &id("a"), &[1; 100]);
        one.keep(CopyKind::Pack, &id("b"), &[2; 100]);
        other.keep(CopyKind::Pack, &id("b"), &[3; 100]);
        assert_eq!(other.read(CopyKind::Pack, &id("b")).unwrap(), [3; 100]);
        for path in [root.clone(), one.folder.clone()] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        let path = one.path(CopyKind::Index, &id("a"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // The one that was used last stays.
        let now = SystemClock.now();
        let long_ago = fs::metadata(&path).unwrap().modified().unwrap() - Duration::from_secs(1000);
        File::options().append(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        one.shrink(now);
        assert!(one.read(CopyKind::Index, &id("a")).is_none());
        assert!(one.read(CopyKind::Pack, &id("b")).is_some() && other.read(CopyKind::Pack, &id("b")).is_some());
        one.retain(CopyKind::Pack, &HashSet::from([id("d")]));
        assert!(one.read(CopyKind::Pack, &id("b")).is_none());
        one.shrink(now);
        assert!(!one.folder.exists() && other.folder.exists());
        other.drop_copy(CopyKind::Pack, &id("b"));
        assert!(other.read(CopyKind::Pack, &id("b")).is_none());
        assert!(Cache::of(Some(&CacheSettings { folder: root, most_bytes: 0 }), b"one").is_none());
    }
}
