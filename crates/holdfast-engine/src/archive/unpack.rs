//! Takes a tar stream apart and puts its members somewhere, each looked at first: for folders of this machine, and for
//! servers that have no tar of their own to do it.

use std::io::{self, Read};

use holdfast_core::backup::name_text;
use holdfast_core::run::FailureCode;

use super::forward::Guard;
use super::index::Entry;
use super::inspect::{HeaderLimit, describe, sparse_size};
use super::sparse::Expanded;
use crate::error::{Result, classify};

/// What is kept of a member besides its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub modified_micros: i64,
}

/// Where members go. Paths are relative, without `.` and `..`.
pub(crate) trait Target {
    fn directory(&mut self, path: &[u8], facts: Facts) -> io::Result<()>;
    fn file(&mut self, path: &[u8], facts: Facts, content: &mut dyn Read) -> io::Result<()>;
    fn symlink(&mut self, path: &[u8], link: &[u8], facts: Facts) -> io::Result<()>;
    /// A further name of a file that came before.
    fn hardlink(&mut self, path: &[u8], target: &[u8]) -> io::Result<()>;
    /// Anything that is none of these, told by name.
    fn other(&mut self, path: &[u8]) -> io::Result<()>;
    /// All are there; what had to wait, such as times of folders, is done now.
    fn finish(&mut self) -> io::Result<()>;
}

/// Reads to the end and puts the chosen members into `target`. Gives how many.
pub(crate) fn unpack(
    reader: &mut dyn Read,
    chosen: &mut dyn FnMut(&Entry) -> bool,
    target: &mut dyn Target,
) -> Result<u64> {
    let unpacked = unpack_members(reader, chosen, target);
    unpacked.map_err(|error| classify(&error, FailureCode::TargetUnwritable, "A member cannot be put in its place"))
}

fn unpack_members(
    reader: &mut dyn Read,
    chosen: &mut dyn FnMut(&Entry) -> bool,
    target: &mut dyn Target,
) -> io::Result<u64> {
    let mut guard = Guard::default();
    let limit = HeaderLimit::default();
    let mut archive = tar::Archive::new(limit.bound(&mut *reader));
    let mut count = 0;
    let mut entries = archive.entries()?;
    while let Some(entry) = limit.next(&mut entries) {
        let mut entry = entry?;
        let parts = guard.check(&mut entry)?;
        let described = describe(&mut entry, 0, 0)?.filter(|described| chosen(described));
        let Some(described) = described else {
            io::copy(&mut entry, &mut io::sink())?;
            continue;
        };
        count += 1;
        place(&mut entry, &described, &parts, target).map_err(|error| {
            crate::error::carried(&error).map_or_else(|| named(&described, &error), io::Error::from)
        })?;
        // What is left where it was is read all the same.
        io::copy(&mut entry, &mut io::sink())?;
    }
    drop(archive);
    io::copy(reader, &mut io::sink())?;
    target.finish()?;
    Ok(count)
}

fn named(entry: &Entry, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", entry.path))
}

fn place<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    described: &Entry,
    path: &[u8],
    target: &mut dyn Target,
) -> io::Result<()> {
    let header = entry.header();
    let facts = Facts {
        mode: header.mode()? & 0o7777,
        uid: header.uid()?,
        gid: header.gid()?,
        modified_micros: described.modified_micros,
    };
    let link = entry.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default();
    match header.entry_type() {
        tar::EntryType::Directory => target.directory(path, facts),
        tar::EntryType::Symlink => target.symlink(path, &link, facts),
        tar::EntryType::Link => target.hardlink(path, &super::forward::relative(&link).unwrap_or_default()),
        kind if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() => match sparse_size(entry)? {
            Some(size) => target.file(path, facts, &mut Expanded::new(entry, size)?),
            None => target.file(path, facts, entry),
        },
        _ => target.other(path),
    }
}

/// The path of a member, for messages.
pub(crate) fn shown(path: &[u8]) -> String {
    name_text(path)
}
