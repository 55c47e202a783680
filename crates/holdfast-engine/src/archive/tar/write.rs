//! Writes an archive that every tar reads in the same way. Long names go into GNU headers and large numbers into the
//! fields themselves, which all programs support. Extended headers contain only what has no other place: fractions of a
//! second, attributes, owner ids too large for their field, and the holes of files. A program without support for
//! extended headers (BusyBox) still gets names and content right.

use std::io::{self, Read, Write};

use super::header::{self, put_checksum, put_number};
use super::pax::{put_record, time_text};
use super::sparse::map_text;
use super::{BLOCK, Member, MemberKind};

const COPY_BYTES: usize = 64 * 1024;
/// The largest number that fits into the eight bytes of an owner field: one bit marks binary numbers, and one is the
/// sign.
const OWNER_MAX: u64 = (1 << 62) - 1;

pub(crate) struct Writer<W> {
    out: W,
    /// The padding of the last block of the current member.
    padding: usize,
    scratch: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, padding: 0, scratch: Vec::new() }
    }

    /// Writes a member with its content; for a file with holes, `data` contains only the parts between them.
    pub(crate) fn append(&mut self, member: &Member, data: &mut dyn Read) -> io::Result<()> {
        let bytes = self.begin(member)?;
        self.scratch.resize(COPY_BYTES, 0);
        let mut left = bytes;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let read = data.read(&mut self.scratch[..wanted])?;
            if read == 0 {
                return Err(io::Error::other("a file is shorter than its header says"));
            }
            self.out.write_all(&self.scratch[..read])?;
            left -= read as u64;
        }
        self.end_member()
    }

    /// Writes the headers of a member. The caller then writes as many bytes of data as this returns, and calls
    /// `end_member`.
    pub(crate) fn begin(&mut self, member: &Member) -> io::Result<u64> {
        let map = match &member.parts {
            Some(parts) if member.kind == MemberKind::File => map_text(parts, member.size),
            _ => Vec::new(),
        };
        let bytes = if member.kind == MemberKind::File { member.data_bytes() } else { 0 };
        // If the sum overflowed, the header would announce less data than follows it, and data would be read as
        // members.
        let archived = bytes.checked_add(map.len() as u64).ok_or_else(too_large)?;
        let mut headers = Vec::with_capacity(3 * BLOCK);
        let shown = self.put_extended(&mut headers, member);
        let path = shown.as_deref().unwrap_or(&member.path);
        let path = if member.kind == MemberKind::Directory { [path, b"/"].concat() } else { path.to_vec() };
        if member.link.len() > header::LINK.len() {
            put_long_name(&mut headers, b'K', &member.link);
        }
        if path.len() > header::NAME.len() {
            put_long_name(&mut headers, b'L', &path);
        }
        put_header(&mut headers, member, &path, archived)?;
        headers.extend(&map);
        self.out.write_all(&headers)?;
        self.padding = usize::try_from(archived.next_multiple_of(BLOCK as u64) - archived).unwrap_or_default();
        Ok(bytes)
    }

    /// Writes the extended header if one is needed. For a file with holes, returns the name that readers without
    /// support for holes see.
    fn put_extended(&self, headers: &mut Vec<u8>, member: &Member) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        if member.modified.nanos != 0 {
            put_record(&mut body, b"mtime", time_text(member.modified).as_bytes());
        }
        for (key, number) in [(b"uid", member.uid), (b"gid", member.gid)] {
            if number > OWNER_MAX {
                put_record(&mut body, key, number.to_string().as_bytes());
            }
        }
        let mut shown = None;
        if member.parts.is_some() && member.kind == MemberKind::File {
            if std::str::from_utf8(&member.path).is_err() {
                put_record(&mut body, b"hdrcharset", b"BINARY");
            }
            put_record(&mut body, b"GNU.sparse.major", b"1");
            put_record(&mut body, b"GNU.sparse.minor", b"0");
            put_record(&mut body, b"GNU.sparse.name", &member.path);
            put_record(&mut body, b"GNU.sparse.realsize", member.size.to_string().as_bytes());
            let slash = member.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            let (folder, name) = member.path.split_at(slash);
            shown = Some([folder, b"GNUSparseFile.0/", name].concat());
        }
        for (key, value) in &member.attributes {
            put_record(&mut body, key, value);
        }
        if !body.is_empty() {
            let name = b"PaxHeaders/holdfast";
            put_raw_header(headers, b'x', name, body.len());
            put_padded(headers, &body);
        }
        shown
    }

    pub(crate) fn end_member(&mut self) -> io::Result<()> {
        self.out.write_all(&[0; BLOCK][..self.padding])?;
        self.padding = 0;
        Ok(())
    }

    /// Writes the end of the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        Ok(self.out)
    }

    pub(crate) fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }
}

fn put_padded(headers: &mut Vec<u8>, body: &[u8]) {
    headers.extend(body);
    headers.resize(headers.len().next_multiple_of(BLOCK), 0);
}

fn put_long_name(headers: &mut Vec<u8>, kind: u8, name: &[u8]) {
    put_raw_header(headers, kind, b"././@LongLink", name.len() + 1);
    headers.extend(name);
    headers.push(0);
    headers.resize(headers.len().next_multiple_of(BLOCK), 0);
}

/// A header that describes the next one.
fn put_raw_header(headers: &mut Vec<u8>, kind: u8, name: &[u8], size: usize) {
    let mut block = empty_block(kind);
    block[..name.len()].copy_from_slice(name);
    put_number(&mut block[header::MODE], 0o644);
    put_number(&mut block[header::SIZE], i64::try_from(size).unwrap_or(i64::MAX));
    put_checksum(&mut block);
    headers.extend(&block);
}

fn put_header(headers: &mut Vec<u8>, member: &Member, path: &[u8], archived: u64) -> io::Result<()> {
    let kind = match member.kind {
        MemberKind::File => b'0',
        MemberKind::Hardlink => b'1',
        MemberKind::Symlink => b'2',
        MemberKind::CharDevice { .. } => b'3',
        MemberKind::BlockDevice { .. } => b'4',
        MemberKind::Directory => b'5',
        MemberKind::Fifo => b'6',
    };
    let mut block = empty_block(kind);
    put_text(&mut block[header::NAME], path);
    put_text(&mut block[header::LINK], &member.link);
    put_text(&mut block[header::USER], name_of(&member.user));
    put_text(&mut block[header::GROUP], name_of(&member.group));
    put_number(&mut block[header::MODE], i64::from(member.mode & 0o7777));
    put_number(&mut block[header::UID], owner(member.uid)?);
    put_number(&mut block[header::GID], owner(member.gid)?);
    put_number(&mut block[header::SIZE], signed(archived)?);
    put_number(&mut block[header::MTIME], member.modified.seconds);
    if let MemberKind::CharDevice { major, minor } | MemberKind::BlockDevice { major, minor } = member.kind {
        put_number(&mut block[header::MAJOR], major.into());
        put_number(&mut block[header::MINOR], minor.into());
    }
    put_checksum(&mut block);
    headers.extend(&block);
    Ok(())
}

/// The value of the field; a larger number is in the extended header.
fn owner(number: u64) -> io::Result<i64> {
    signed(number.min(OWNER_MAX))
}

fn signed(number: u64) -> io::Result<i64> {
    i64::try_from(number).map_err(|_| too_large())
}

fn too_large() -> io::Error {
    io::Error::other("a number is too large for a tar header")
}

/// A user or group name that does not fit is omitted; the numeric id is used then.
fn name_of(name: &[u8]) -> &[u8] {
    if name.len() < header::USER.len() { name } else { b"" }
}

fn empty_block(kind: u8) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    for field in [header::MODE, header::UID, header::GID, header::SIZE, header::MTIME, header::MAJOR, header::MINOR] {
        put_number(&mut block[field], 0);
    }
    block[header::TYPE] = kind;
    block[header::MAGIC].copy_from_slice(header::POSIX_MAGIC);
    block[header::VERSION].copy_from_slice(b"00");
    block
}

/// Writes as much as fits; a longer text has a separate header.
fn put_text(field: &mut [u8], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}
