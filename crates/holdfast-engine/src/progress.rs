//! The progress of a run, updated by the stages that transfer bytes and read for reports.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    stored: AtomicU64,
    files: AtomicU64,
    bytes_total: AtomicU64,
    files_total: AtomicU64,
}

/// The counts at one moment. Totals are estimates; 0 is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub bytes_read: u64,
    pub bytes_stored: u64,
    pub files: u64,
    pub bytes_total: u64,
    pub files_total: u64,
}

impl Progress {
    pub(crate) fn add_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_stored(&self, bytes: u64) {
        self.stored.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_files(&self, files: u64) {
        self.files.store(files, Ordering::Relaxed);
    }

    pub fn set_total(&self, bytes: u64, files: u64) {
        self.bytes_total.store(bytes, Ordering::Relaxed);
        self.files_total.store(files, Ordering::Relaxed);
    }

    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            bytes_read: load(&self.read),
            bytes_stored: load(&self.stored),
            files: load(&self.files),
            bytes_total: load(&self.bytes_total),
            files_total: load(&self.files_total),
        }
    }
}
