//! A folder on this machine, used as a sandbox: everything is opened relative to it, and no link can lead out of it.

use std::collections::HashMap;
use std::io::{self, Seek as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt as _};
use holdfast_core::backup::is_object_key;
use holdfast_core::failure::FailureCode;
use holdfast_core::random;

use super::{Accepted, BlobStore, ListedObject, PartBody, PartLayout, PartPlan, Stat};
use crate::error::{EngineError, Result};

/// The marker file, which distinguishes a folder that was used before from an empty mount point in its place.
pub(super) const MARKER: &str = ".holdfast-destination";
/// Parts are written in order; disks do not benefit from writes larger than a megabyte.
const PART_BYTES: u64 = 1024 * 1024;
/// How often data is flushed: a large amount of unwritten data would delay every other fsync, above all the database's.
const FLUSH_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Clone)]
pub struct Local(Arc<Inner>);

struct Inner {
    root: Dir,
    /// Uploads in progress in this process.
    open: Mutex<HashMap<String, File>>,
}

impl Local {
    /// Opens the folder. If no marker is expected, the folder is created and marked; otherwise it must carry exactly
    /// the expected marker.
    pub async fn open(folder: &Path, expected: Option<&str>) -> Result<(Self, String)> {
        let (folder, expected) = (folder.to_owned(), expected.map(str::to_owned));
        blocking(move || {
            let (root, marker) = open_marked(&folder, expected.as_deref())?;
            Ok((Self(Arc::new(Inner { root, open: Mutex::default() })), marker))
        })
        .await
    }

    /// Reads the marker of a folder that was used before.
    pub fn find_marker(folder: &Path) -> Result<String> {
        let text = std::fs::read_to_string(folder.join(MARKER)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => unmarked(&folder.display().to_string()),
            _ => failed(&error, "cannot read the folder's marker"),
        })?;
        Ok(text.trim().to_owned())
    }

    async fn with<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = self.0.clone();
        blocking(move || work(&inner)).await
    }
}

pub(super) fn unmounted() -> EngineError {
    EngineError::new(
        FailureCode::DestinationUnmounted,
        "The destination's folder does not carry the marker of the one used before; is it mounted?",
    )
}

pub(super) fn unmarked(folder: &str) -> EngineError {
    let message = format!("{folder} is not a folder that Holdfast has stored backups in.");
    EngineError::new(FailureCode::DestinationUnmounted, message)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(EngineError::internal)?
}

fn open_marked(folder: &Path, expected: Option<&str>) -> Result<(Dir, String)> {
    if expected.is_none() {
        let mut builder = std::fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| failed(&error, "cannot create the folder"))?;
    }
    let root = match Dir::open_ambient_dir(folder, ambient_authority()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(unmounted()),
        opened => opened.map_err(|error| failed(&error, "cannot open the folder"))?,
    };
    let found = match root.read_to_string(MARKER) {
        Ok(text) => Some(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&error, "cannot read the folder's marker")),
    };
    let marker = match (expected, found) {
        (Some(expected), Some(found)) if expected == found => return Ok((root, found)),
        (Some(_), _) => return Err(unmounted()),
        (None, Some(found)) => Ok(found),
        (None, None) => mark(&root),
    };
    let marker = marker.and_then(|marker| sweep(&root).map(|()| marker));
    Ok((root, marker.map_err(|error| failed(&error, "cannot mark the folder"))?))
}

/// Marks a new folder and returns the marker that it has from then on. The first runs may begin at the same time: the
/// marker is set atomically, and all of them use the first one.
fn mark(root: &Dir) -> io::Result<String> {
    let marker = random::hex(&random::bytes::<16>());
    let write = |name: &str| -> io::Result<()> {
        let mut file = root.open_with(name, OpenOptions::new().write(true).create_new(true).mode(0o600))?;
        file.write_all(marker.as_bytes())?;
        file.sync_all()
    };
    let temporary = format!("{MARKER}-{marker}");
    write(&temporary)?;
    let linked = root.hard_link(&temporary, root, MARKER);
    remove_if_there(root, &temporary)?;
    match linked {
        Ok(()) => {}
        // Another run was first, and may have swept away our temporary marker.
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
            return Ok(root.read_to_string(MARKER)?.trim().to_owned());
        }
        // A file system without hard links.
        Err(_) => write(MARKER)?,
    }
    sync_dir(root, Path::new("."))?;
    Ok(marker)
}

/// Removes temporary markers of processes that were killed, once the folder is marked.
fn sweep(root: &Dir) -> io::Result<()> {
    for entry in root.entries()? {
        let name = entry?.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(MARKER)?.strip_prefix('-'));
        if rest.is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            remove_if_there(root, &name)?;
        }
    }
    Ok(())
}

fn remove_if_there(root: &Dir, name: impl AsRef<Path>) -> io::Result<()> {
    match root.remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Classifies a file system error. None of them is retried: a disk does not recover by itself.
fn failed(error: &io::Error, doing: &str) -> EngineError {
    use io::ErrorKind;
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => FailureCode::DestinationFull,
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => FailureCode::DestinationReadOnly,
        ErrorKind::NotFound => FailureCode::Missing,
        _ => FailureCode::DestinationFailed,
    };
    EngineError::new(code, format!("The destination's disk: {doing}: {error}"))
}

fn path(key: &str) -> Result<PathBuf> {
    if is_object_key(key) {
        return Ok(PathBuf::from(key));
    }
    Err(EngineError::internal(format!("{key:?} is not an object key")))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path of an unfinished upload: a hidden file next to its final name.
fn part_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    parent(path).join(format!(".{name}.part"))
}

fn sync_dir(root: &Dir, path: &Path) -> io::Result<()> {
    // Opened as a file: a path-only directory handle cannot be flushed.
    root.open(path)?.into_std().sync_all()
}

/// Creates the folders of a path and flushes the parent of each.
fn create_parents(root: &Dir, folder: &Path) -> io::Result<()> {
    let mut made = PathBuf::from(".");
    for part in folder.components().filter(|part| matches!(part, std::path::Component::Normal(_))) {
        let above = made.clone();
        made.push(part);
        match root.create_dir(&made) {
            Ok(()) => sync_dir(root, &above)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Inner {
    fn uploads(&self) -> std::sync::MutexGuard<'_, HashMap<String, File>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn begin(&self, key: &str) -> Result<String> {
        let path = path(key)?;
        let part = part_path(&path);
        create_parents(&self.root, parent(&path)).map_err(|error| failed(&error, "cannot make the folder"))?;
        let mut options = OpenOptions::new();
        let file = self.root.open_with(&part, options.write(true).create_new(true).mode(0o600));
        let id = part.to_string_lossy().into_owned();
        self.uploads().insert(id.clone(), file.map_err(|error| failed(&error, "cannot create a file"))?);
        Ok(id)
    }

    fn append(&self, upload_id: &str, body: &[Bytes]) -> Result<()> {
        // Taken out of the map during the write, so that other uploads are not blocked.
        let file = self.uploads().remove(upload_id);
        let mut file = file.ok_or_else(|| EngineError::internal("a part of an upload that is not open"))?;
        let mut before = file.stream_position().map_err(|error| failed(&error, "cannot write"))?;
        for chunk in body {
            file.write_all(chunk).map_err(|error| failed(&error, "cannot write"))?;
            let after = before + chunk.len() as u64;
            if before / FLUSH_BYTES != after / FLUSH_BYTES {
                file.sync_data().map_err(|error| failed(&error, "cannot flush to the disk"))?;
            }
            before = after;
        }
        self.uploads().insert(upload_id.to_owned(), file);
        Ok(())
    }

    fn complete(&self, key: &str, upload_id: &str) -> Result<()> {
        let path = path(key)?;
        let file = self.uploads().remove(upload_id);
        let file = file.ok_or_else(|| EngineError::internal("the end of an upload that is not open"))?;
        file.sync_all().map_err(|error| failed(&error, "cannot flush to the disk"))?;
        if self.root.symlink_metadata(&path).is_ok() {
            return Err(EngineError::internal(format!("{key} already exists")));
        }
        let place = || -> io::Result<()> {
            self.root.rename(upload_id, &self.root, &path)?;
            sync_dir(&self.root, parent(&path))
        };
        place().map_err(|error| failed(&error, "cannot put the file in its place"))
    }

    fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<()> {
        drop(upload_id.map(|id| self.uploads().remove(id)));
        // Only the file that belongs to this key is removed, whatever the id says.
        let part = part_path(&path(key)?);
        match self.root.remove_file(part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&error, "cannot remove a part file")),
            _ => Ok(()),
        }
    }

    fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let file = self.root.open(path(key)?).map_err(|error| failed(&error, "cannot open"))?.into_std();
        let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(EngineError::internal)?;
        let mut body = vec![0; length];
        file.read_exact_at(&mut body, range.start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => EngineError::corrupt("The stored file is shorter than it was."),
            _ => failed(&error, "cannot read"),
        })?;
        Ok(body.into())
    }

    fn list(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>> {
        let mut found = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let at = if folder.as_os_str().is_empty() { Path::new(".") } else { folder.as_path() };
            for entry in self.root.read_dir(at).map_err(|error| failed(&error, "cannot list"))? {
                let entry = entry.map_err(|error| failed(&error, "cannot list"))?;
                let name = entry.file_name();
                if name.as_encoded_bytes().starts_with(b".") {
                    continue;
                }
                let path = folder.join(name);
                let key = path.to_string_lossy().into_owned();
                let kind = entry.file_type().map_err(|error| failed(&error, "cannot list"))?;
                // Enter only folders that can contain matching keys.
                if kind.is_dir() && (prefix.starts_with(&format!("{key}/")) || key.starts_with(prefix)) {
                    folders.push(path);
                } else if kind.is_file() && key.starts_with(prefix) {
                    let size = match entry.metadata() {
                        // Removed since it was listed.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        facts => facts.map_err(|error| failed(&error, "cannot list"))?.len(),
                    };
                    found.push(ListedObject { key, size: Some(size) });
                    if found.len() == limit {
                        return Ok(found);
                    }
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

#[async_trait]
impl BlobStore for Local {
    fn part_layout(&self, _expected_bytes: u64) -> PartLayout {
        PartLayout { parts: PartPlan::fixed(PART_BYTES), parallel: 1, has_etags: false }
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<Accepted> {
        let key = key.to_owned();
        self.with(move |inner| {
            let id = inner.begin(&key)?;
            let written = inner.append(&id, &[body]).and_then(|()| inner.complete(&key, &id));
            if written.is_err() {
                inner.abort(&key, Some(&id))?;
            }
            written.map(|()| Accepted::Flushed)
        })
        .await
    }

    async fn begin(&self, key: &str) -> Result<String> {
        let key = key.to_owned();
        self.with(move |inner| inner.begin(&key)).await
    }

    async fn put_part(&self, _key: &str, upload_id: &str, _index: usize, body: PartBody) -> Result<String> {
        let id = upload_id.to_owned();
        let append = move |inner: &Inner| match body {
            PartBody::Memory(chunks) => inner.append(&id, &chunks),
            PartBody::File(part) => {
                let mut offset = 0;
                while let Some(piece) = part.piece(offset).map_err(EngineError::internal)? {
                    offset += piece.len() as u64;
                    inner.append(&id, &[piece])?;
                }
                Ok(())
            }
        };
        self.with(append).await.map(|()| String::new())
    }

    async fn complete(&self, key: &str, upload_id: &str, _parts: Vec<String>) -> Result<Accepted> {
        let (key, id) = (key.to_owned(), upload_id.to_owned());
        self.with(move |inner| inner.complete(&key, &id).map(|()| Accepted::Flushed)).await
    }

    async fn abort(&self, key: &str, upload_id: Option<&str>) -> Result<()> {
        let (key, id) = (key.to_owned(), upload_id.map(str::to_owned));
        self.with(move |inner| inner.abort(&key, id.as_deref())).await
    }

    async fn stat(&self, key: &str) -> Result<Option<Stat>> {
        let path = path(key)?;
        self.with(move |inner| match inner.root.symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => Ok(Some(Stat { size: meta.len(), etag: None, is_versioned: false })),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error, "cannot stat the file")),
        })
        .await
    }

    async fn read(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let key = key.to_owned();
        self.with(move |inner| inner.read(&key, range)).await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        let path = path(key)?;
        self.with(move |inner| match inner.root.remove_file(&path) {
            Ok(()) => sync_dir(&inner.root, parent(&path)).map_err(|error| failed(&error, "cannot flush a removal")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(&error, "cannot remove")),
        })
        .await
    }

    async fn list_objects(&self, prefix: &str, limit: usize) -> Result<Vec<ListedObject>> {
        let prefix = prefix.to_owned();
        self.with(move |inner| inner.list(&prefix, limit)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_begin_together_agree_on_the_marker() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let place = folder.path().join("new");
            // A process was killed before it had marked the folder.
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join(format!("{MARKER}-{}", "0".repeat(32))), "half").unwrap();
            let open = || open_marked(&place, None).unwrap().1;
            let markers: Vec<String> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(markers[0].len(), 32);
            assert!(markers.iter().all(|marker| *marker == markers[0]), "{markers:?}");
            assert!(open_marked(&place, Some(&markers[0])).is_ok());
            let names: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, [MARKER]);
        }
    }
}
