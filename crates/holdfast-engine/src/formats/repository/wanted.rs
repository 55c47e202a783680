//! The entries of a source that have to be read, kept in a temporary file without a name: of a first backup, these are
//! all of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::folders::{confirm_room, failed};
use crate::archive::tar::Time;
use crate::error::{EngineError, Result};
use crate::source::listing::Listed;

const BUFFER_BYTES: usize = 256 * 1024;
/// A record without its path: its length, and the numbers.
const HEAD_BYTES: usize = 4 + 1 + 8 + 2 * 12 + 3 * 8;

pub(super) struct WantedWriter {
    file: BufWriter<File>,
    bytes: u64,
    files: u64,
    plain_bytes: u64,
}

impl WantedWriter {
    pub(super) fn new(spool_folder: &Path) -> Result<Self> {
        let file = std::fs::create_dir_all(spool_folder).and_then(|()| tempfile::tempfile_in(spool_folder));
        Ok(Self { file: BufWriter::new(file.map_err(|error| failed(&error))?), bytes: 0, files: 0, plain_bytes: 0 })
    }

    pub(super) fn add(&mut self, listed: &Listed) -> Result<()> {
        let mut record = Vec::with_capacity(HEAD_BYTES + listed.path.len());
        record.extend(u32::try_from(listed.path.len()).map_err(EngineError::internal)?.to_le_bytes());
        record.push(listed.kind);
        record.extend(listed.size.to_le_bytes());
        for time in [listed.modified, listed.changed] {
            record.extend(time.seconds.to_le_bytes());
            record.extend(time.nanos.to_le_bytes());
        }
        for number in [listed.inode, listed.device, listed.links] {
            record.extend(number.to_le_bytes());
        }
        record.extend_from_slice(&listed.path);
        self.file.write_all(&record).map_err(|error| failed(&error))?;
        let before = self.bytes;
        self.bytes += record.len() as u64;
        confirm_room(self.file.get_ref(), before, self.bytes)?;
        self.files += 1;
        if listed.kind == b'f' {
            self.plain_bytes = self.plain_bytes.saturating_add(listed.size);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Wanted> {
        let Self { file, bytes, files, plain_bytes } = self;
        let file = file.into_inner().map_err(|error| failed(error.error()))?;
        Ok(Wanted { file: Arc::new(file), bytes, files, plain_bytes })
    }
}

/// All of them, in the order of the listing.
#[derive(Clone)]
pub(super) struct Wanted {
    file: Arc<File>,
    bytes: u64,
    pub files: u64,
    pub plain_bytes: u64,
}

impl Wanted {
    pub(super) fn is_empty(&self) -> bool {
        self.files == 0
    }

    pub(super) fn read(&self) -> WantedReader {
        WantedReader { wanted: self.clone(), at: 0, buffer: Vec::new(), used: 0 }
    }

    /// Sends the names of all entries, as `tar` takes them: each ended by a zero byte. Only if the handle says so were
    /// these all.
    pub(super) fn send_names(&self) -> (mpsc::Receiver<Bytes>, JoinHandle<Result<()>>) {
        let (sender, names) = mpsc::channel(2);
        let mut reader = self.read();
        let sending = tokio::task::spawn_blocking(move || {
            let mut batch = Vec::with_capacity(BUFFER_BYTES);
            loop {
                let next = reader.next()?;
                if let Some(listed) = &next {
                    let path = if listed.path.is_empty() { &b"."[..] } else { &listed.path };
                    batch.extend_from_slice(if listed.path.is_empty() { b"" } else { b"./" });
                    batch.extend_from_slice(path);
                    batch.push(0);
                }
                let is_full = batch.len() >= BUFFER_BYTES / 2;
                if is_full || (next.is_none() && !batch.is_empty()) {
                    let piece = Bytes::from(std::mem::take(&mut batch));
                    // Whoever feeds them to the server has failed and says why.
                    if sender.blocking_send(piece).is_err() {
                        return Ok(());
                    }
                }
                if next.is_none() {
                    return Ok(());
                }
            }
        });
        (names, sending)
    }
}

pub(super) struct WantedReader {
    wanted: Wanted,
    at: u64,
    buffer: Vec<u8>,
    used: usize,
}

impl WantedReader {
    fn next(&mut self) -> Result<Option<Listed>> {
        let Some(head) = self.take(HEAD_BYTES)? else { return Ok(None) };
        let mut head = &head[..];
        let mut bytes = |count: usize| {
            let (now, later) = head.split_at(count);
            head = later;
            let mut number = [0; 8];
            number[..count].copy_from_slice(now);
            u64::from_le_bytes(number)
        };
        let length = bytes(4);
        let kind = u8::try_from(bytes(1)).map_err(EngineError::internal)?;
        let size = bytes(8);
        let mut time = || Time { seconds: bytes(8).cast_signed(), nanos: u32::try_from(bytes(4)).unwrap_or_default() };
        let (modified, changed) = (time(), time());
        let (inode, device, links) = (bytes(8), bytes(8), bytes(8));
        let length = usize::try_from(length).map_err(EngineError::internal)?;
        let path =
            self.take(length)?.ok_or_else(|| EngineError::internal("a temporary file is shorter than it was"))?;
        Ok(Some(Listed { kind, size, modified, changed, inode, device, links, path }))
    }

    /// The next bytes; `None` at the end.
    fn take(&mut self, count: usize) -> Result<Option<Vec<u8>>> {
        while self.buffer.len() - self.used < count {
            let left = self.wanted.bytes - self.at;
            if left == 0 {
                return Ok(None);
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            let start = self.buffer.len();
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(BUFFER_BYTES.max(count));
            self.buffer.resize(start + length, 0);
            let read = self.wanted.file.read_exact_at(&mut self.buffer[start..], self.at);
            read.map_err(|error| failed(&error))?;
            self.at += length as u64;
        }
        let taken = self.buffer[self.used..self.used + count].to_vec();
        self.used += count;
        Ok(Some(taken))
    }
}

/// Finds what was listed of the members that arrive: mostly in the order in which they were asked for.
pub(super) struct Expected {
    reader: WantedReader,
    /// Those that were passed over: gone meanwhile, or sent at the end.
    skipped: HashMap<Vec<u8>, Listed>,
}

impl Expected {
    pub(super) fn of(wanted: &Wanted) -> Self {
        Self { reader: wanted.read(), skipped: HashMap::new() }
    }

    /// `None` for one that was not asked for.
    pub(super) fn take(&mut self, path: &[u8]) -> Result<Option<Listed>> {
        if let Some(listed) = self.skipped.remove(path) {
            return Ok(Some(listed));
        }
        while let Some(listed) = self.reader.next()? {
            if listed.path == path {
                return Ok(Some(listed));
            }
            self.skipped.insert(listed.path.clone(), listed);
        }
        Ok(None)
    }

    /// Those that did not arrive.
    pub(super) fn missing(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut missing: Vec<Vec<u8>> = std::mem::take(&mut self.skipped).into_keys().collect();
        while let Some(listed) = self.reader.next()? {
            missing.push(listed.path);
        }
        missing.sort();
        Ok(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(path: &str) -> Listed {
        let time = Time { seconds: -5, nanos: 7 };
        let size = path.len() as u64;
        Listed { kind: b'f', size, modified: time, changed: time, inode: 1, device: 2, links: 3, path: path.into() }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_is_wanted_comes_back_in_order_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = WantedWriter::new(folder.path()).unwrap();
        let paths: Vec<String> = (0..20_000).map(|number| format!("folder/{number}")).collect();
        for path in [String::new()].iter().chain(&paths) {
            writer.add(&listed(path)).unwrap();
        }
        let wanted = writer.finish().unwrap();
        assert_eq!(wanted.files, 20_001);
        let (mut names, sending) = wanted.send_names();
        let mut all = Vec::new();
        while let Some(piece) = names.recv().await {
            all.extend_from_slice(&piece);
        }
        sending.await.unwrap().unwrap();
        let expected: String = paths.iter().map(|path| format!("./{path}\0")).collect();
        assert_eq!(String::from_utf8(all).unwrap(), format!(".\0{expected}"));
        let mut expected = Expected::of(&wanted);
        for path in ["", "folder/0", "folder/9000", "folder/5", "folder/19999"] {
            assert_eq!(expected.take(path.as_bytes()).unwrap(), Some(listed(path)), "{path}");
        }
        assert_eq!(expected.take(b"folder/5").unwrap(), None, "each is there once");
        assert_eq!(expected.take(b"other").unwrap(), None);
        let missing = expected.missing().unwrap();
        assert_eq!((missing.len(), &*missing[0]), (20_001 - 5, &b"folder/1"[..]));
    }
}
