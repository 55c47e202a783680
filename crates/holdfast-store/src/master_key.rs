//! The master key: kept outside of the database, in a file that only the service can read or in the environment.
//!
//! The file holds one key per line, the newest first; older ones stay only while a rotation is under way.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use holdfast_core::{Secret, random};
use zeroize::Zeroizing;

use crate::error::StartError;

/// Written before each key so that a person who finds the file knows what it is.
const PREFIX: &str = "holdfast-master-key:";

pub(crate) type Key = Zeroizing<[u8; 32]>;

#[derive(Debug, Clone)]
pub enum MasterKeySource {
    File(PathBuf),
    /// From the environment, which Holdfast cannot rewrite.
    Given(Secret),
}

impl MasterKeySource {
    /// The keys, newest first; `None` if the file does not exist.
    pub(crate) fn load(&self) -> Result<Option<Vec<Key>>, StartError> {
        match self {
            Self::Given(text) => parse(text.reveal(), "HOLDFAST_MASTER_KEY").map(Some),
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => {
                    warn_when_others_can_read(path);
                    parse(&Zeroizing::new(text), &path.display().to_string()).map(Some)
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(StartError::of_key_file(
                    &error,
                    format!("cannot read the master key {}: {error}", path.display()),
                )),
            },
        }
    }

    /// Creates the first key; an existing file is never overwritten.
    pub(crate) fn create(&self) -> Result<Vec<Key>, StartError> {
        let Self::File(path) = self else { return Err(bad("HOLDFAST_MASTER_KEY is empty".to_owned())) };
        let key = Key::new(random::bytes());
        write_new(path, &render(std::slice::from_ref(&key))).map_err(|error| {
            StartError::of_key_file(&error, format!("cannot create the master key {}: {error}", path.display()))
        })?;
        tracing::info!(path = %path.display(), "created the master key; keep a copy of this file in a safe place");
        Ok(vec![key])
    }

    /// The file, if it can be replaced: a variable cannot, nor a file that was mounted by itself or is in a read-only
    /// folder.
    pub(crate) fn replaceable(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path.as_path()).filter(|path| !is_mount_point(path) && !is_read_only(path)),
            Self::Given(_) => None,
        }
    }

    /// Replaces the file atomically with one that holds `keys`.
    pub(crate) fn replace(&self, keys: &[Key]) -> Result<(), StartError> {
        let Some(path) = self.replaceable() else {
            return Err(bad(format!(
                "a command cannot change the master key in {}; write a new key on a line before the old one there, restart, \
                 and rotate again: it then uses the first key",
                self.describe()
            )));
        };
        let temporary = path.with_extension("new");
        let replaced = std::fs::remove_file(&temporary)
            .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
            .and_then(|()| write_new(&temporary, &render(keys)))
            .and_then(|()| keep_owner(path, &temporary))
            .and_then(|()| std::fs::rename(&temporary, path))
            .and_then(|()| sync_folder(path));
        replaced.map_err(|error| {
            // No key material stays behind; there may be no file.
            std::fs::remove_file(&temporary).ok();
            StartError::of_key_file(&error, format!("cannot write the master key {}: {error}", path.display()))
        })
    }

    /// A lock to hold for a whole rotation: two at once would each discard the other's key.
    pub(crate) fn lock_for_rotation(&self) -> Result<Option<std::fs::File>, StartError> {
        let Some(key) = self.replaceable() else { return Ok(None) };
        let path = key.with_extension("lock");
        let options = std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = options
            .map_err(|error| StartError::of_key_file(&error, format!("cannot open {}: {error}", path.display())))?;
        keep_owner(key, &path).map_err(|error| {
            StartError::of_key_file(&error, format!("cannot give {} to the owner of the key: {error}", path.display()))
        })?;
        file.try_lock().map_err(|error| bad(format!("another rotation is under way ({}: {error})", path.display())))?;
        Ok(Some(file))
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Given(_) => "HOLDFAST_MASTER_KEY".to_owned(),
        }
    }
}

fn bad(message: String) -> StartError {
    StartError::MasterKey(message)
}

fn parse(text: &str, origin: &str) -> Result<Vec<Key>, StartError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Option<Vec<Key>> = lines
        .map(|line| {
            let encoded = line.strip_prefix(PREFIX).unwrap_or(line);
            let bytes = Zeroizing::new(BASE64_STANDARD.decode(encoded).ok()?);
            Some(Key::new(bytes.as_slice().try_into().ok()?))
        })
        .collect();
    keys.filter(|keys| !keys.is_empty())
        .ok_or_else(|| bad(format!("{origin} holds no valid master key: expected 32 bytes in base64")))
}

fn render(keys: &[Key]) -> Zeroizing<String> {
    let lines: Vec<String> = keys.iter().map(|key| format!("{PREFIX}{}\n", BASE64_STANDARD.encode(**key))).collect();
    Zeroizing::new(lines.concat())
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    sync_folder(path)
}

/// A file that was mounted by itself, as secrets in containers are, cannot be replaced by another.
fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Secrets in containers are also mounted as folders, read-only.
fn is_read_only(path: &Path) -> bool {
    use rustix::fs::{StatVfsMountFlags, statvfs};
    statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// A command run as root must leave the key readable for the service's user.
fn keep_owner(from: &Path, to: &Path) -> std::io::Result<()> {
    let (old, new) = (std::fs::metadata(from)?, std::fs::metadata(to)?);
    if (old.uid(), old.gid()) == (new.uid(), new.gid()) {
        return Ok(());
    }
    std::os::unix::fs::chown(to, Some(old.uid()), Some(old.gid()))
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn warn_when_others_can_read(path: &Path) {
    let open = std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0);
    if open {
        static WARNED: std::sync::Once = std::sync::Once::new();
        // The key is read many times; one warning is enough.
        WARNED.call_once(
            || tracing::warn!(path = %path.display(), "other users can read the master key; run chmod 600 on it"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let source = MasterKeySource::File(folder.path().join("master.key"));
        assert!(source.load().unwrap().is_none());
        let made = source.create().unwrap();
        assert_eq!(source.load().unwrap().unwrap(), made);
        let mode = std::fs::metadata(folder.path().join("master.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(source.create().is_err(), "an existing key is never overwritten");
    }

    #[test]
    fn an_invalid_key_is_refused_with_its_origin() {
        let error = MasterKeySource::Given(Secret::new("short")).load().unwrap_err().to_string();
        assert!(error.contains("HOLDFAST_MASTER_KEY"), "{error}");
    }
}
