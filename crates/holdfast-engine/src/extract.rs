//! Opens a backup file without the service or its database: as a plain stream, or by extracting its files into a
//! folder.

use std::collections::HashSet;
use std::fs::{File, FileTimes};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use holdfast_core::Secret;
use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;
use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, UTIME_OMIT, Uid};

use crate::archive::tar::Time;
use crate::archive::{
    Archive, Choice, Entry, Facts, FileContent, Options, Selection, SkipReason, Target, shown, unpack,
};
use crate::error::{EngineError, Result, classify};

/// Writes the plain stream, a tar archive or a dump, to `output`. A wrong password is reported before the first byte is
/// written.
pub fn decrypt(path: &Path, password: Option<&Secret>, output: &mut dyn Write) -> Result<u64> {
    let mut archive = open(path, password)?;
    let mut plain = archive.plain()?;
    let copied = io::copy(&mut plain, output).and_then(|bytes| output.flush().map(|()| bytes));
    copied.map_err(|error| classify(&error, FailureCode::Corrupt, UNREADABLE))
}

/// Extracts the files of a backup, or those at or below the given paths, into a folder. Returns how many, and what was
/// left out.
pub fn extract(path: &Path, password: Option<&Secret>, folder: &Path, only: &[String]) -> Result<(u64, Vec<String>)> {
    let mut archive = open(path, password)?;
    // A damaged index keeps nobody from extracting what can still be read.
    let manifest = archive.manifest().ok().flatten();
    let content = manifest.and_then(|manifest| Content::parse(&manifest.content));
    if content.is_some_and(|content| content != Content::Files) {
        let message = "This is the backup of a database, which holds no files. `holdfast backup decrypt` writes the \
            dump; restore it with the tools of the database.";
        return Err(EngineError::new(FailureCode::NotSupported, message));
    }
    let choice = Choice::new(only);
    let mut found = HashSet::new();
    if !choice.is_everything() {
        archive.visit(&mut |entry: &Entry| {
            found.extend(choice.covering(&entry.path).map(str::to_owned));
            Ok(true)
        })?;
    }
    if let Some(missing) = choice.first_missing(&found) {
        let message = format!(
            "There is no {missing} in this backup; nothing was written. See `holdfast backup entries` for names."
        );
        return Err(EngineError::new(FailureCode::EntryMissing, message));
    }
    let unwritable =
        |error: io::Error| EngineError::new(FailureCode::TargetUnwritable, format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    let root = Dir::open_ambient_dir(folder, ambient_authority()).map_err(unwritable)?;
    let mut target = Folder { root, folders: Vec::new(), left_out: Vec::new() };
    let left_out = Arc::new(Mutex::new(Vec::new()));
    let noting = left_out.clone();
    let on_skipped = move |path: &str, left: SkipReason| {
        let mut left_out = noting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        left_out.push(format!("{path}: {}", left.text()));
    };
    let is_everything = choice.is_everything();
    let options =
        Options { with_owners: is_root(), with_root: is_everything, without_special: true, ..Options::default() };
    let mut selection = Selection::new(choice, options, None, on_skipped);
    if !is_everything {
        archive.visit(&mut |entry: &Entry| selection.expect(entry).map(|()| true))?;
    }
    unpack(&mut Told(archive.plain()?), &mut selection, &mut |_| {}, &mut target)?;
    let restored = selection.counted().restored;
    let mut named = std::mem::take(&mut *left_out.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    named.append(&mut target.left_out);
    Ok((restored, named))
}

/// Marks read errors as errors of the backup, to tell them from errors in writing the files.
struct Told<R>(R);

impl<R: Read> Read for Told<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => classify(&error, FailureCode::Corrupt, UNREADABLE).into(),
        })
    }
}

const UNREADABLE: &str = "This backup cannot be read to its end";

fn open(path: &Path, password: Option<&Secret>) -> Result<Archive<File>> {
    let file = File::open(path)
        .map_err(|error| EngineError::new(FailureCode::Missing, format!("{}: {error}", path.display())))?;
    Archive::open(file, password)
}

/// A folder on this machine; no path can lead out of it.
struct Folder {
    root: Dir,
    folders: Vec<(PathBuf, Facts)>,
    left_out: Vec<String>,
}

fn local(path: &[u8]) -> PathBuf {
    if path.is_empty() { PathBuf::from(".") } else { PathBuf::from(std::ffi::OsStr::from_bytes(path)) }
}

/// Sets mode, modification time and, as root, the owner.
fn apply(file: &File, facts: Facts) -> io::Result<()> {
    if is_root() {
        let id = |id: u64| u32::try_from(id).ok();
        fchown(file, id(facts.uid), id(facts.gid))?;
    }
    file.set_permissions(std::fs::Permissions::from_mode(facts.mode))?;
    file.set_times(FileTimes::new().set_modified(moment(facts.modified)))
}

/// Converts a time; one that `SystemTime` cannot represent becomes the epoch.
fn moment(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds >= 0 {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    };
    whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Writes the content of a file. Holes are skipped, so that they take neither space nor time.
fn write(content: &mut FileContent<'_>, file: &mut File) -> io::Result<()> {
    let Some(parts) = content.parts else { return io::copy(content.data, file).map(drop) };
    for part in parts {
        file.seek(SeekFrom::Start(part.offset))?;
        if io::copy(&mut (&mut *content.data).take(part.length), file)? < part.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    file.set_len(content.size)
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

impl Folder {
    fn make_parents(&self, path: &Path) -> io::Result<()> {
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => self.root.create_dir_all(parent),
            None => Ok(()),
        }
    }

    /// Sets the modification time and, as root, the owner of the link itself.
    fn apply_to_link(&self, path: &Path, facts: Facts) -> io::Result<()> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (parent, name) = (self.root.open_dir(parent)?, path.file_name().unwrap_or_default());
        if is_root() {
            let uid = u32::try_from(facts.uid).ok().map(Uid::from_raw);
            let gid = u32::try_from(facts.gid).ok().map(Gid::from_raw);
            rustix::fs::chownat(&parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let last_modification = Timespec { tv_sec: facts.modified.seconds, tv_nsec: i64::from(facts.modified.nanos) };
        let times = Timestamps { last_access, last_modification };
        Ok(rustix::fs::utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

impl Target for Folder {
    fn directory(&mut self, path: &[u8], facts: Facts) -> io::Result<()> {
        let path = local(path);
        self.root.create_dir_all(&path)?;
        self.folders.push((path, facts));
        Ok(())
    }

    fn file(&mut self, path: &[u8], facts: Facts, mut content: FileContent<'_>) -> io::Result<()> {
        let path = local(path);
        self.make_parents(&path)?;
        let mut options = OpenOptions::new();
        let mut file = self.root.open_with(&path, options.write(true).create_new(true).mode(0o600))?.into_std();
        write(&mut content, &mut file)?;
        apply(&file, facts)
    }

    fn symlink(&mut self, path: &[u8], link: &[u8], facts: Facts) -> io::Result<()> {
        let path = local(path);
        self.make_parents(&path)?;
        // The target is kept as it was, wherever it points: none of our code follows the link.
        self.root.symlink_contents(std::ffi::OsStr::from_bytes(link), &path)?;
        self.apply_to_link(&path, facts)
    }

    fn hardlink(&mut self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let path = local(path);
        self.make_parents(&path)?;
        self.root.hard_link(local(target), &self.root, &path)
    }

    fn other(&mut self, path: &[u8]) -> io::Result<()> {
        self.left_out.push(format!("{}: it is not a file, folder or link", shown(path)));
        Ok(())
    }

    fn lose_attributes(&mut self, path: &[u8]) {
        self.left_out.push(format!("{}: without its access control list and extended attributes", shown(path)));
    }

    fn finish(&mut self) -> io::Result<()> {
        for (path, facts) in std::mem::take(&mut self.folders).into_iter().rev() {
            apply(&self.root.open(&path)?.into_std(), facts)?;
        }
        Ok(())
    }
}
