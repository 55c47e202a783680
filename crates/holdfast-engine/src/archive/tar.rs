//! Our own reader and writer of tar archives. Archives of other programs are understood completely or refused; those we
//! write are read in the same way by GNU tar, bsdtar, BusyBox, Python and Go. Headers of other programs are never
//! passed on: a reader that interprets them differently could be misled.

mod header;
mod pax;
mod read;
mod sparse;
mod write;

pub(crate) use pax::for_bsd;
pub(crate) use read::{MemberRange, Reader};
pub(crate) use sparse::Expanded;
pub(crate) use write::Writer;

pub(crate) const BLOCK: usize = 512;

/// The kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    Directory,
    Symlink,
    /// A hard link to an earlier file.
    Hardlink,
    CharDevice {
        major: u32,
        minor: u32,
    },
    BlockDevice {
        major: u32,
        minor: u32,
    },
    Fifo,
}

impl MemberKind {
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::CharDevice { .. } | Self::BlockDevice { .. })
    }
}

/// A point in time, counted from 1970; `nanos` always counts forward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Time {
    pub seconds: i64,
    pub nanos: u32,
}

impl Time {
    /// Microseconds since 1970; saturates for times that are out of range.
    pub(crate) fn micros(self) -> i64 {
        self.seconds.saturating_mul(1_000_000).saturating_add(i64::from(self.nanos / 1000))
    }
}

/// A part of a file that contains data; the ranges between parts are holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub offset: u64,
    pub length: u64,
}

/// A member of an archive as we understood it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// As in the archive, without trailing slashes.
    pub path: Vec<u8>,
    pub kind: MemberKind,
    /// The target of a symbolic link, or the file that a hard link refers to.
    pub link: Vec<u8>,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub user: Vec<u8>,
    pub group: Vec<u8>,
    pub modified: Time,
    /// The file's size, including holes.
    pub size: u64,
    /// Where a file with holes has data, in order; `None` for all other members.
    pub parts: Option<Vec<Part>>,
    /// Extended attributes and access control lists, as pax records.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Member {
    /// How many bytes of content it has, without holes.
    pub(crate) fn content_bytes(&self) -> u64 {
        match &self.parts {
            Some(parts) => parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.length)),
            None => self.size,
        }
    }

    /// A member without owner, time and attributes.
    pub(crate) fn new(path: &[u8], kind: MemberKind) -> Self {
        Self {
            path: path.to_vec(),
            kind,
            link: Vec::new(),
            mode: 0,
            uid: 0,
            gid: 0,
            user: Vec::new(),
            group: Vec::new(),
            modified: Time::default(),
            size: 0,
            parts: None,
            attributes: Vec::new(),
        }
    }

    /// How many bytes of content the archive holds for it, without the map of a file with holes.
    pub(crate) fn data_bytes(&self) -> u64 {
        match &self.parts {
            Some(parts) => parts.iter().map(|part| part.length).sum(),
            None => self.size,
        }
    }
}

#[cfg(test)]
mod tests;
