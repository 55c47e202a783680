//! The wire format of SFTP version 3: encodes requests and decodes replies. Names, paths and link targets are bytes, as
//! the server has them. Decoding is a pure function that checks every length before using it.

use bytes::{BufMut as _, Bytes, BytesMut};

/// The longest packet that is accepted. OpenSSH sends none above 256 KiB.
pub const MAX_PACKET_BYTES: usize = 257 * 1024;
/// The longest handle that the protocol allows.
const MAX_HANDLE_BYTES: usize = 256;
/// How much of a status message is kept.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The protocol version that we use, and that every server supports.
pub(super) const VERSION: u32 = 3;

mod kind {
    pub const INIT: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const READ: u8 = 5;
    pub const WRITE: u8 = 6;
    pub const LSTAT: u8 = 7;
    pub const FSTAT: u8 = 8;
    pub const SETSTAT: u8 = 9;
    pub const FSETSTAT: u8 = 10;
    pub const OPENDIR: u8 = 11;
    pub const READDIR: u8 = 12;
    pub const REMOVE: u8 = 13;
    pub const MKDIR: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const REALPATH: u8 = 16;
    pub const STAT: u8 = 17;
    pub const RENAME: u8 = 18;
    pub const READLINK: u8 = 19;
    pub const SYMLINK: u8 = 20;
    pub const STATUS: u8 = 101;
    pub const HANDLE: u8 = 102;
    pub const DATA: u8 = 103;
    pub const NAME: u8 = 104;
    pub const ATTRS: u8 = 105;
    pub const EXTENDED: u8 = 200;
    pub const EXTENDED_REPLY: u8 = 201;
}

mod flag {
    pub const SIZE: u32 = 1;
    pub const OWNER: u32 = 2;
    pub const PERMISSIONS: u32 = 4;
    pub const TIMES: u32 = 8;
    pub const EXTENDED: u32 = 0x8000_0000;
    pub const ALL: u32 = SIZE | OWNER | PERMISSIONS | TIMES | EXTENDED;
}

/// The error for bytes that are not a reply of SFTP version 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The status of a request, as reported by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusCode {
    Ok,
    Eof,
    NoSuchFile,
    PermissionDenied,
    Failure,
    BadMessage,
    NoConnection,
    ConnectionLost,
    Unsupported,
    Other(u32),
}

impl StatusCode {
    fn new(number: u32) -> Self {
        match number {
            0 => Self::Ok,
            1 => Self::Eof,
            2 => Self::NoSuchFile,
            3 => Self::PermissionDenied,
            4 => Self::Failure,
            5 => Self::BadMessage,
            6 => Self::NoConnection,
            7 => Self::ConnectionLost,
            8 => Self::Unsupported,
            other => Self::Other(other),
        }
    }
}

/// The kind of a file, according to its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Directory,
    Regular,
    Symlink,
    Socket,
    /// A pipe or a device.
    Special,
}

/// The attributes of a file, as reported by a server or to be set. A field that is `None` was not reported, or is left
/// unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    pub size: Option<u64>,
    /// Numeric user and group id.
    pub owner: Option<(u32, u32)>,
    /// The file type bits and the mode.
    pub permissions: Option<u32>,
    /// Time of last access and of last modification, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl Attributes {
    /// `None` if the server does not report a known mode.
    pub fn kind(&self) -> Option<FileKind> {
        Some(match self.permissions? & 0o170_000 {
            0o040_000 => FileKind::Directory,
            0o100_000 => FileKind::Regular,
            0o120_000 => FileKind::Symlink,
            0o140_000 => FileKind::Socket,
            0o010_000 | 0o020_000 | 0o060_000 => FileKind::Special,
            _ => return None,
        })
    }

    fn encode(&self, out: &mut BytesMut) {
        let flags = [
            (self.size.is_some(), flag::SIZE),
            (self.owner.is_some(), flag::OWNER),
            (self.permissions.is_some(), flag::PERMISSIONS),
            (self.times.is_some(), flag::TIMES),
        ];
        out.put_u32(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
        if let Some(size) = self.size {
            out.put_u64(size);
        }
        if let Some((first, second)) = self.owner {
            out.put_u32(first);
            out.put_u32(second);
        }
        if let Some(permissions) = self.permissions {
            out.put_u32(permissions);
        }
        if let Some((first, second)) = self.times {
            out.put_u32(first);
            out.put_u32(second);
        }
    }
}

/// A file or folder that the server has opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle(pub(super) Vec<u8>);

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub name: Vec<u8>,
    pub attributes: Attributes,
    /// The year of the last change, if the server also sends a line like that of `ls -l`; such lines show no year for
    /// recent changes.
    pub year: Option<u16>,
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    Read,
    /// Creates the file; fails if it exists.
    CreateNew,
    /// Creates the file, or truncates it.
    Truncate,
    /// Opens an existing file for writing.
    Write,
}

impl OpenMode {
    fn bits(self) -> u32 {
        const READ: u32 = 1;
        const WRITE: u32 = 2;
        const CREATE: u32 = 8;
        const TRUNCATE: u32 = 16;
        const EXCLUSIVE: u32 = 32;
        match self {
            Self::Read => READ,
            Self::CreateNew => WRITE | CREATE | EXCLUSIVE,
            Self::Truncate => WRITE | CREATE | TRUNCATE,
            Self::Write => WRITE,
        }
    }
}

pub(super) const POSIX_RENAME: &str = "posix-rename@openssh.com";
pub(super) const HARDLINK: &str = "hardlink@openssh.com";
pub(super) const FSYNC: &str = "fsync@openssh.com";
pub(super) const LSETSTAT: &str = "lsetstat@openssh.com";
pub(super) const STATVFS: &str = "statvfs@openssh.com";

#[derive(Debug, Clone, Copy)]
pub(super) enum Request<'a> {
    Open {
        path: &'a [u8],
        mode: OpenMode,
        attributes: Attributes,
    },
    Close(&'a Handle),
    Read {
        handle: &'a Handle,
        offset: u64,
        length: u32,
    },
    Write {
        handle: &'a Handle,
        offset: u64,
        data: &'a [u8],
    },
    Lstat(&'a [u8]),
    Fstat(&'a Handle),
    Setstat(&'a [u8], Attributes),
    Fsetstat(&'a Handle, Attributes),
    Lsetstat(&'a [u8], Attributes),
    Opendir(&'a [u8]),
    Readdir(&'a Handle),
    Remove(&'a [u8]),
    Mkdir(&'a [u8], Attributes),
    Rmdir(&'a [u8]),
    Realpath(&'a [u8]),
    Stat(&'a [u8]),
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    PosixRename {
        from: &'a [u8],
        to: &'a [u8],
    },
    Readlink(&'a [u8]),
    /// The target comes first, contrary to the protocol's specification: OpenSSH does so, and others follow it.
    Symlink {
        target: &'a [u8],
        path: &'a [u8],
    },
    Hardlink {
        target: &'a [u8],
        path: &'a [u8],
    },
    Fsync(&'a Handle),
    Statvfs(&'a [u8]),
}

/// The packet that opens a session.
pub(super) fn encode_init(out: &mut BytesMut) {
    out.put_u32(5);
    out.put_u8(kind::INIT);
    out.put_u32(VERSION);
}

/// What a request may be answered with, apart from a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Status,
    Handle,
    /// Data of at most this many bytes.
    Data(usize),
    Names,
    Attributes,
    Space,
}

impl Expected {
    /// Whether a reply may be kept until somebody asks for it. A server must not fill memory with replies that nobody
    /// waits for.
    pub(super) fn accept(self, reply: &Reply) -> Result<(), Malformed> {
        match (self, reply) {
            (_, Reply::Status { .. })
            | (Self::Handle, Reply::Handle(_))
            | (Self::Names, Reply::Names(_))
            | (Self::Attributes, Reply::Attributes(_))
            | (Self::Space, Reply::Space(_)) => Ok(()),
            (Self::Data(limit), Reply::Data(data)) if data.len() <= limit => Ok(()),
            (Self::Data(_), Reply::Data(_)) => Err(Malformed("more data than was asked for")),
            (
                Self::Status | Self::Handle | Self::Data(_) | Self::Names | Self::Attributes | Self::Space,
                Reply::Handle(_) | Reply::Data(_) | Reply::Names(_) | Reply::Attributes(_) | Reply::Space(_),
            ) => Err(Malformed("a reply of the wrong kind")),
        }
    }
}

impl Request<'_> {
    pub(super) fn expects(&self) -> Expected {
        match self {
            Self::Open { .. } | Self::Opendir(_) => Expected::Handle,
            Self::Read { length, .. } => Expected::Data(*length as usize),
            Self::Lstat(_) | Self::Fstat(_) | Self::Stat(_) => Expected::Attributes,
            Self::Readdir(_) | Self::Realpath(_) | Self::Readlink(_) => Expected::Names,
            Self::Statvfs(_) => Expected::Space,
            Self::Close(_)
            | Self::Write { .. }
            | Self::Setstat(..)
            | Self::Fsetstat(..)
            | Self::Lsetstat(..)
            | Self::Remove(_)
            | Self::Mkdir(..)
            | Self::Rmdir(_)
            | Self::Rename { .. }
            | Self::PosixRename { .. }
            | Self::Symlink { .. }
            | Self::Hardlink { .. }
            | Self::Fsync(_) => Expected::Status,
        }
    }
}

impl Request<'_> {
    /// Appends the packet, preceded by its length.
    pub(super) fn encode(&self, id: u32, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32(0);
        let extended = |out: &mut BytesMut, name: &str| {
            out.put_u8(kind::EXTENDED);
            out.put_u32(id);
            put_string(out, name.as_bytes());
        };
        let plain = |out: &mut BytesMut, kind: u8| {
            out.put_u8(kind);
            out.put_u32(id);
        };
        match self {
            Self::Open { path, mode, attributes } => {
                plain(out, kind::OPEN);
                put_string(out, path);
                out.put_u32(mode.bits());
                attributes.encode(out);
            }
            Self::Close(handle) => put_one(out, kind::CLOSE, id, &handle.0),
            Self::Read { handle, offset, length } => {
                put_one(out, kind::READ, id, &handle.0);
                out.put_u64(*offset);
                out.put_u32(*length);
            }
            Self::Write { handle, offset, data } => {
                put_one(out, kind::WRITE, id, &handle.0);
                out.put_u64(*offset);
                put_string(out, data);
            }
            Self::Lstat(path) => put_one(out, kind::LSTAT, id, path),
            Self::Fstat(handle) => put_one(out, kind::FSTAT, id, &handle.0),
            Self::Setstat(path, attributes) => {
                put_one(out, kind::SETSTAT, id, path);
                attributes.encode(out);
            }
            Self::Fsetstat(handle, attributes) => {
                put_one(out, kind::FSETSTAT, id, &handle.0);
                attributes.encode(out);
            }
            Self::Lsetstat(path, attributes) => {
                extended(out, LSETSTAT);
                put_string(out, path);
                attributes.encode(out);
            }
            Self::Opendir(path) => put_one(out, kind::OPENDIR, id, path),
            Self::Readdir(handle) => put_one(out, kind::READDIR, id, &handle.0),
            Self::Remove(path) => put_one(out, kind::REMOVE, id, path),
            Self::Mkdir(path, attributes) => {
                put_one(out, kind::MKDIR, id, path);
                attributes.encode(out);
            }
            Self::Rmdir(path) => put_one(out, kind::RMDIR, id, path),
            Self::Realpath(path) => put_one(out, kind::REALPATH, id, path),
            Self::Stat(path) => put_one(out, kind::STAT, id, path),
            Self::Rename { from, to } => {
                put_one(out, kind::RENAME, id, from);
                put_string(out, to);
            }
            Self::PosixRename { from, to } => {
                extended(out, POSIX_RENAME);
                put_string(out, from);
                put_string(out, to);
            }
            Self::Readlink(path) => put_one(out, kind::READLINK, id, path),
            Self::Symlink { target, path } => {
                put_one(out, kind::SYMLINK, id, target);
                put_string(out, path);
            }
            Self::Hardlink { target, path } => {
                extended(out, HARDLINK);
                put_string(out, target);
                put_string(out, path);
            }
            Self::Fsync(handle) => {
                extended(out, FSYNC);
                put_string(out, &handle.0);
            }
            Self::Statvfs(path) => {
                extended(out, STATVFS);
                put_string(out, path);
            }
        }
        let length = length_of(out.len() - start - 4);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

fn put_one(out: &mut BytesMut, kind: u8, id: u32, text: &[u8]) {
    out.put_u8(kind);
    out.put_u32(id);
    put_string(out, text);
}

fn put_string(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(length_of(bytes.len()));
    out.put_slice(bytes);
}

/// The client sends nothing longer than the maximum packet size, which is far below `u32::MAX`.
fn length_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// One packet from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Version { version: u32, extensions: Vec<(Vec<u8>, Vec<u8>)> },
    Reply { id: u32, reply: Reply },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Status {
        code: StatusCode,
        message: Vec<u8>,
    },
    Handle(Handle),
    Data(Bytes),
    Names(Vec<Name>),
    Attributes(Attributes),
    /// The reply to `statvfs`, the only extension we use that is not answered by a status.
    Space(Space),
}

/// The free space of a file system that is available to unprivileged users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub free_bytes: u64,
    /// `None` if the file system does not count its files.
    pub free_files: Option<u64>,
}

/// The length of the packet at the start of `buffer`, including the four-byte length field; `None` while that is
/// incomplete.
pub fn packet_length(buffer: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
    match u32::from_be_bytes(*head) as usize {
        0 => Err(Malformed("an empty packet")),
        length if length > MAX_PACKET_BYTES => Err(Malformed("a packet that is longer than allowed")),
        length => Ok(Some(length + 4)),
    }
}

/// Decodes one packet, without its four-byte length field.
pub fn decode(packet: &[u8]) -> Result<Packet, Malformed> {
    let mut input = Input(packet);
    let kind = input.u8()?;
    if kind == kind::VERSION {
        let version = input.u32()?;
        let mut extensions = Vec::new();
        while !input.0.is_empty() {
            extensions.push((input.string()?.to_vec(), input.string()?.to_vec()));
        }
        return Ok(Packet::Version { version, extensions });
    }
    let id = input.u32()?;
    let reply = match kind {
        kind::STATUS => status(&mut input)?,
        kind::HANDLE => {
            let handle = input.string()?;
            if handle.is_empty() || handle.len() > MAX_HANDLE_BYTES {
                return Err(Malformed("a handle of invalid length"));
            }
            Reply::Handle(Handle(handle.to_vec()))
        }
        kind::DATA => Reply::Data(Bytes::copy_from_slice(input.string()?)),
        kind::NAME => Reply::Names(names(&mut input)?),
        kind::ATTRS => Reply::Attributes(attributes(&mut input)?),
        kind::EXTENDED_REPLY => Reply::Space(space(&mut input)?),
        _ => return Err(Malformed("a packet of an unknown kind")),
    };
    if !input.0.is_empty() {
        return Err(Malformed("a packet with bytes after its end"));
    }
    Ok(Packet::Reply { id, reply })
}

/// Reads the fields of `statvfs`, in order.
fn space(input: &mut Input<'_>) -> Result<Space, Malformed> {
    let mut fields = [0; 11];
    for field in &mut fields {
        *field = input.u64()?;
    }
    let [_, fragment_bytes, _, _, free_fragments, files, _, free_files, ..] = fields;
    Ok(Space {
        free_bytes: free_fragments.saturating_mul(fragment_bytes),
        free_files: Some(free_files).filter(|_| files > 0),
    })
}

/// Some old servers send a status without message and language.
fn status(input: &mut Input<'_>) -> Result<Reply, Malformed> {
    let code = StatusCode::new(input.u32()?);
    let message = if input.0.is_empty() { &[][..] } else { input.string()? };
    if !input.0.is_empty() {
        input.string()?;
    }
    Ok(Reply::Status { code, message: message[..message.len().min(MAX_MESSAGE_BYTES)].to_vec() })
}

fn names(input: &mut Input<'_>) -> Result<Vec<Name>, Malformed> {
    let count = input.u32()?;
    // The count is not trusted: memory is allocated as names are read, which the length of the packet limits.
    let mut names = Vec::new();
    for _ in 0..count {
        let name = input.string()?.to_vec();
        let year = listed_year(input.string()?);
        names.push(Name { name, attributes: attributes(input)?, year });
    }
    Ok(names)
}

/// `-rw-r--r-- 1 user group 5 Jan  1  1960 name`
fn listed_year(listing: &[u8]) -> Option<u16> {
    let word = listing.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).nth(7)?;
    let is_year = word.len() == 4 && word.iter().all(u8::is_ascii_digit);
    is_year.then(|| std::str::from_utf8(word).ok()?.parse().ok())?
}

fn attributes(input: &mut Input<'_>) -> Result<Attributes, Malformed> {
    let flags = input.u32()?;
    if flags & !flag::ALL != 0 {
        return Err(Malformed("attributes of an unknown kind"));
    }
    let has = |flag: u32| flags & flag != 0;
    let attributes = Attributes {
        size: if has(flag::SIZE) { Some(input.u64()?) } else { None },
        owner: if has(flag::OWNER) { Some((input.u32()?, input.u32()?)) } else { None },
        permissions: if has(flag::PERMISSIONS) { Some(input.u32()?) } else { None },
        times: if has(flag::TIMES) { Some((input.u32()?, input.u32()?)) } else { None },
    };
    if has(flag::EXTENDED) {
        for _ in 0..input.u32()? {
            input.string()?;
            input.string()?;
        }
    }
    Ok(attributes)
}

/// The unread rest of a packet.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed("a truncated packet"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        let (text, rest) =
            self.0.split_at_checked(length).ok_or(Malformed("a string that is longer than its packet"))?;
        self.0 = rest;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &[u8]) -> Vec<u8> {
        [&u32::try_from(text.len()).unwrap().to_be_bytes(), text].concat()
    }

    /// One complete packet of each kind.
    fn samples() -> Vec<Vec<u8>> {
        let id = 7_u32.to_be_bytes();
        let attributes = [
            &15_u32.to_be_bytes()[..],
            &9_u64.to_be_bytes(),
            &[0; 8],
            &0o100_644_u32.to_be_bytes(),
            &[0, 0, 0, 1].repeat(2),
        ]
        .concat();
        let name = [string(b"bad \xff name"), string(b"-rw"), attributes.clone()].concat();
        vec![
            [&[kind::VERSION][..], &3_u32.to_be_bytes(), &string(FSYNC.as_bytes()), &string(b"1")].concat(),
            [&[kind::STATUS][..], &id, &2_u32.to_be_bytes(), &string(b"No such file"), &string(b"")].concat(),
            [&[kind::HANDLE][..], &id, &string(&[0, 0, 0, 1])].concat(),
            [&[kind::DATA][..], &id, &string(b"content")].concat(),
            [&[kind::NAME][..], &id, &2_u32.to_be_bytes(), &name, &name].concat(),
            [&[kind::ATTRS][..], &id, &attributes].concat(),
        ]
    }

    #[test]
    fn replies_keep_names_as_bytes() {
        let Packet::Reply { id: 7, reply: Reply::Names(names) } = decode(&samples()[4]).unwrap() else { panic!() };
        assert_eq!((names.len(), names[1].name.as_slice()), (2, &b"bad \xff name"[..]));
        assert_eq!(names[0].attributes.kind(), Some(FileKind::Regular));
        assert_eq!(names[0].attributes.size, Some(9));
        let Packet::Version { version: 3, extensions } = decode(&samples()[0]).unwrap() else { panic!() };
        assert_eq!(extensions, [(FSYNC.as_bytes().to_vec(), b"1".to_vec())]);
    }

    #[test]
    fn a_status_may_come_without_its_text() {
        let bare = [&[kind::STATUS][..], &7_u32.to_be_bytes(), &3_u32.to_be_bytes()].concat();
        let reply = Reply::Status { code: StatusCode::PermissionDenied, message: Vec::new() };
        assert_eq!(decode(&bare), Ok(Packet::Reply { id: 7, reply }));
    }

    #[test]
    fn a_reply_cut_anywhere_or_followed_by_more_is_an_error() {
        for sample in samples() {
            assert!(decode(&sample).is_ok());
            let kind = sample[0];
            for length in 0..sample.len() {
                let is_whole_without_its_end = matches!((kind, length), (kind::VERSION, 5) | (kind::STATUS, 9 | 25));
                assert_eq!(decode(&sample[..length]).is_ok(), is_whole_without_its_end, "kind {kind} cut at {length}");
            }
            assert!(decode(&[&sample[..], &[0]].concat()).is_err(), "kind {kind} with a byte more");
        }
    }

    #[test]
    fn unknown_kinds_flags_and_counts_are_errors() {
        let id = 7_u32.to_be_bytes();
        assert!(decode(&[]).is_err());
        for kind in (0..=255_u8).filter(|kind| !matches!(kind, 2 | 101..=105)) {
            assert!(decode(&[&[kind][..], &id, &string(b"x")].concat()).is_err(), "{kind}");
        }
        assert!(decode(&[&[kind::ATTRS][..], &id, &16_u32.to_be_bytes()].concat()).is_err());
        assert!(decode(&[&[kind::NAME][..], &id, &u32::MAX.to_be_bytes()].concat()).is_err());
        assert!(
            decode(&[&[kind::ATTRS][..], &id, &flag::EXTENDED.to_be_bytes(), &u32::MAX.to_be_bytes()].concat())
                .is_err()
        );
        assert!(decode(&[&[kind::HANDLE][..], &id, &string(&[1; 257])].concat()).is_err());
        assert!(decode(&[&[kind::HANDLE][..], &id, &string(&[])].concat()).is_err());
    }

    #[test]
    fn no_bytes_make_decoding_panic() {
        // A small deterministic generator, so that the bytes are the same every time.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for sample in samples() {
            for _ in 0..20_000 {
                let mut bytes = sample.clone();
                for _ in 0..=next() % 4 {
                    let place = usize::try_from(next()).unwrap() % bytes.len();
                    bytes[place] = next().to_le_bytes()[0];
                }
                bytes.truncate(usize::try_from(next()).unwrap() % (bytes.len() + 1));
                let _ = decode(&bytes);
                let _ = packet_length(&bytes);
            }
        }
    }

    #[test]
    fn the_length_of_a_packet_is_checked_first() {
        assert_eq!(packet_length(&[0, 0, 0]), Ok(None));
        assert_eq!(packet_length(&[0, 0, 0, 5, 1]), Ok(Some(9)));
        assert!(packet_length(&[0, 0, 0, 0]).is_err());
        assert!(packet_length(&[0xff; 4]).is_err());
        // The greeting of a shell is not a packet either.
        assert!(packet_length(b"Welcome to").is_err());
    }

    #[test]
    fn requests_are_as_openssh_wants_them() {
        let mut out = BytesMut::new();
        Request::Symlink { target: b"to\xff", path: b"/at" }.encode(1, &mut out);
        let expected = [&[0, 0, 0, 19, kind::SYMLINK, 0, 0, 0, 1][..], &string(b"to\xff"), &string(b"/at")].concat();
        assert_eq!(out, expected);
        out.clear();
        let attributes = Attributes { permissions: Some(0o600), ..Attributes::default() };
        Request::Open { path: b"a", mode: OpenMode::CreateNew, attributes }.encode(2, &mut out);
        let tail = [0, 0, 0, 42, 0, 0, 0, 4, 0, 0, 1, 0x80];
        assert_eq!(out, [&[0, 0, 0, 22, kind::OPEN, 0, 0, 0, 2][..], &string(b"a"), &tail].concat());
    }
}
