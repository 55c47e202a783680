//! Opening a backup file by hand, without service or database: the plain stream, or its files into a folder.

use std::fs::{File, FileTimes};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, fchown, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use holdfast_core::Secret;
use holdfast_core::run::FailureCode;

use crate::archive::{Archive, Facts, Target, shown, unpack};
use crate::error::{EngineError, Result, classify};

/// Writes the plain stream, a tar archive or a dump, to `output`. A wrong password is told before the first byte.
pub fn decrypt(path: &Path, password: Option<&Secret>, output: &mut dyn Write) -> Result<u64> {
    let mut archive = open(path, password)?;
    let mut plain = archive.plain()?;
    let copied = io::copy(&mut plain, output).and_then(|bytes| output.flush().map(|()| bytes));
    copied.map_err(|error| classify(&error, FailureCode::Corrupt, "This backup cannot be read to its end"))
}

/// Puts the files of a backup, or those at or below the given paths, into a folder. Gives how many, and what was left
/// out.
pub fn extract(path: &Path, password: Option<&Secret>, folder: &Path, only: &[String]) -> Result<(u64, Vec<String>)> {
    let mut archive = open(path, password)?;
    let unwritable =
        |error: io::Error| EngineError::new(FailureCode::TargetUnwritable, format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    let root = Dir::open_ambient_dir(folder, ambient_authority()).map_err(unwritable)?;
    let mut target = Folder { root, path: folder.to_owned(), folders: Vec::new(), left_out: Vec::new() };
    let wanted: Vec<&str> = only.iter().map(|path| path.trim_matches('/')).collect();
    let is_wanted = |path: &str| {
        let covers =
            |wanted: &&str| path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        wanted.is_empty() || wanted.iter().any(covers)
    };
    let count = unpack(&mut archive.plain()?, &mut |entry| is_wanted(&entry.path), &mut target)?;
    if count == 0 && !wanted.is_empty() {
        return Err(EngineError::new(FailureCode::EntryMissing, "There is no such entry in this backup."));
    }
    Ok((count, target.left_out))
}

fn open(path: &Path, password: Option<&Secret>) -> Result<Archive<File>> {
    let file = File::open(path)
        .map_err(|error| EngineError::new(FailureCode::Missing, format!("{}: {error}", path.display())))?;
    Archive::open(file, password)
}

/// A folder of this machine; nothing leads out of it.
struct Folder {
    root: Dir,
    path: PathBuf,
    folders: Vec<(PathBuf, Facts)>,
    left_out: Vec<String>,
}

fn local(path: &[u8]) -> PathBuf {
    if path.is_empty() { PathBuf::from(".") } else { PathBuf::from(std::ffi::OsStr::from_bytes(path)) }
}

/// Mode, times and, as root, the owner.
fn apply(file: &File, facts: Facts) -> io::Result<()> {
    if is_root() {
        let id = |id: u64| u32::try_from(id).ok();
        fchown(file, id(facts.uid), id(facts.gid))?;
    }
    file.set_permissions(std::fs::Permissions::from_mode(facts.mode))?;
    let micros = Duration::from_micros(facts.modified_micros.unsigned_abs());
    let modified = if facts.modified_micros >= 0 {
        SystemTime::UNIX_EPOCH + micros
    } else {
        SystemTime::UNIX_EPOCH.checked_sub(micros).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    file.set_times(FileTimes::new().set_modified(modified))
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
}

impl Target for Folder {
    fn directory(&mut self, path: &[u8], facts: Facts) -> io::Result<()> {
        let path = local(path);
        self.root.create_dir_all(&path)?;
        self.folders.push((path, facts));
        Ok(())
    }

    fn file(&mut self, path: &[u8], facts: Facts, content: &mut dyn Read) -> io::Result<()> {
        let path = local(path);
        self.make_parents(&path)?;
        let mut options = OpenOptions::new();
        let mut file = self.root.open_with(&path, options.write(true).create_new(true).mode(0o600))?.into_std();
        io::copy(content, &mut file)?;
        apply(&file, facts)
    }

    fn symlink(&mut self, path: &[u8], link: &[u8], facts: Facts) -> io::Result<()> {
        let path = local(path);
        self.make_parents(&path)?;
        // Data as it was, wherever it points: nothing of ours ever follows it.
        self.root.symlink_contents(std::ffi::OsStr::from_bytes(link), &path)?;
        if is_root() {
            let id = |id: u64| u32::try_from(id).ok();
            lchown(self.path.join(&path), id(facts.uid), id(facts.gid))?;
        }
        Ok(())
    }

    fn hardlink(&mut self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let path = local(path);
        self.make_parents(&path)?;
        self.root.hard_link(local(target), &self.root, &path)
    }

    fn other(&mut self, path: &[u8]) -> io::Result<()> {
        self.left_out.push(shown(path));
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        for (path, facts) in std::mem::take(&mut self.folders).into_iter().rev() {
            apply(&self.root.open(&path)?.into_std(), facts)?;
        }
        Ok(())
    }
}
