//! Reads an archive member by member. An archive is complete only if it ends with two blocks of zeros, followed by a
//! limited number of zeros and nothing else.

use std::io::{self, Read};

use holdfast_core::backup::name_text;

use super::header::{self, Header, TarFormat, until_nul};
use super::pax::{self, Extended};
use super::sparse::{self, MAX_PARTS};
use super::{BLOCK, Member, MemberKind, Part, Time};
use crate::archive::shown_short;

/// The maximum size of all extension headers before one member, including long names and attributes; a stream that
/// claims more is after our memory.
const EXTENSION_BYTES: u64 = 4 * 1024 * 1024;
const SKIP_BYTES: usize = 64 * 1024;
/// How many zeros may follow the end of an archive: programs pad the last record, and the largest records are far
/// smaller than this. An endless stream of zeros would keep a run busy forever.
const TAIL_BYTES: usize = 16 * 1024 * 1024;
/// The longest path or link target: 16 times what a system can open at once. A small stream can contain many longer
/// ones, and listing them would take too much memory.
const NAME_BYTES: usize = 64 * 1024;

/// The position of a member in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemberRange {
    /// Where its first header begins.
    pub start: u64,
    /// Where the next member's headers begin.
    pub end: u64,
}

/// Reads members in order; its `Read` implementation returns the data of the current one.
pub(crate) struct Reader<R> {
    input: R,
    position: u64,
    /// The unread rest of the current member: its data, and then the padding of its last block.
    data_left: u64,
    padding: u64,
    scratch: Vec<u8>,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, position: 0, data_left: 0, padding: 0, scratch: Vec::new() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut R {
        &mut self.input
    }

    /// Skips the rest of the current member and returns the next one. `None` means that the archive and the stream have
    /// ended properly.
    pub(crate) fn next(&mut self) -> io::Result<Option<(Member, MemberRange)>> {
        self.skip_data()?;
        let start = self.position;
        let mut before = Before::default();
        loop {
            let Some(header) = self.header()? else {
                return if before.is_empty() {
                    self.end()?;
                    Ok(None)
                } else {
                    Err(io::Error::other("the tar archive ends after a header that announces a member"))
                };
            };
            match header.kind() {
                b'x' | b'X' => {
                    let body = self.extension(&header, &mut before)?;
                    before.set_extended(Extended::read(&body)?)?;
                }
                b'g' => pax::check_global(&self.extension(&header, &mut before)?)?,
                b'L' => {
                    let body = self.extension(&header, &mut before)?;
                    before.long_path = Some(long_name(&body, before.long_path.is_some())?);
                }
                b'K' => {
                    let body = self.extension(&header, &mut before)?;
                    before.long_link = Some(long_name(&body, before.long_link.is_some())?);
                }
                _ => {
                    let member = self.member(&header, before).map_err(|error| with_name(&header, error))?;
                    let end = self.position.checked_add(self.data_left).and_then(|end| end.checked_add(self.padding));
                    let end = end.ok_or_else(|| io::Error::other("a member is too large"))?;
                    return Ok(Some((member, MemberRange { start, end })));
                }
            }
        }
    }

    /// Reads one header; `None` for a block of zeros.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        if block.iter().all(|byte| *byte == 0) { Ok(None) } else { Header::check(block).map(Some) }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.input.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("the tar archive stops before its end"),
            _ => error,
        })?;
        self.position += buffer.len() as u64;
        Ok(())
    }

    /// Reads the body of a header that describes the next member.
    fn extension(&mut self, header: &Header, before: &mut Before) -> io::Result<Vec<u8>> {
        let size = header.unsigned(header::SIZE)?;
        before.bytes = before.bytes.saturating_add(size).saturating_add(BLOCK as u64);
        if before.bytes > EXTENSION_BYTES {
            return Err(io::Error::other("a header of the tar archive is too long"));
        }
        let length = usize::try_from(size).map_err(io::Error::other)?;
        let mut body = vec![0; length.next_multiple_of(BLOCK)];
        self.fill(&mut body)?;
        body.truncate(length);
        Ok(body)
    }

    /// Builds the member from its header and the extension headers before it. Afterwards the stream is at the member's
    /// data.
    fn member(&mut self, header: &Header, before: Before) -> io::Result<Member> {
        let Before { extended, long_path, long_link, .. } = before;
        let extended = extended.unwrap_or_default();
        if (extended.path.is_some() && long_path.is_some()) || (extended.link.is_some() && long_link.is_some()) {
            return Err(io::Error::other("two headers name the same member"));
        }
        let archived = match extended.size {
            Some(size) => size,
            None => header.unsigned(header::SIZE)?,
        };
        let named = extended.path.or(long_path).unwrap_or_else(|| header.path());
        let mut kind = kind_of(header)?;
        if kind == MemberKind::File && named.ends_with(b"/") {
            // Programs from before POSIX wrote folders like this. With content, some readers would take it for a file
            // and others for a folder.
            kind = MemberKind::Directory;
        }
        if kind != MemberKind::File && archived != 0 {
            return Err(io::Error::other("it has content, but is not a file"));
        }
        let has_names = header.format() != TarFormat::Old;
        let name = |field| if has_names { header.text(field).to_vec() } else { Vec::new() };
        let mut member = Member {
            path: named,
            kind,
            link: extended.link.or(long_link).unwrap_or_else(|| header.text(header::LINK).to_vec()),
            mode: u32::try_from(header.unsigned(header::MODE)? & 0o7777).unwrap_or_default(),
            uid: extended.uid.map_or_else(|| header.unsigned(header::UID), Ok)?,
            gid: extended.gid.map_or_else(|| header.unsigned(header::GID), Ok)?,
            user: extended.user.unwrap_or_else(|| name(header::USER)),
            group: extended.group.unwrap_or_else(|| name(header::GROUP)),
            modified: match extended.modified {
                Some(time) => time,
                None => Time { seconds: header.number(header::MTIME)?, nanos: 0 },
            },
            size: archived,
            parts: None,
            attributes: extended.attributes,
        };
        let padded = archived.checked_next_multiple_of(BLOCK as u64);
        let padded = padded.ok_or_else(|| io::Error::other("a member is too large"))?;
        let map_bytes = self.read_sparse(header, extended.sparse, &mut member)?;
        self.data_left =
            archived.checked_sub(map_bytes).ok_or_else(|| io::Error::other("its map is longer than its data"))?;
        self.padding = padded - archived;
        if let Some(parts) = &member.parts {
            sparse::check(parts, member.size, self.data_left)?;
        }
        finish(member)
    }

    /// Reads the map of a file with holes, in any of its formats. Returns how many bytes of the data the map itself
    /// took up.
    fn read_sparse(&mut self, header: &Header, told: pax::SparseRecords, member: &mut Member) -> io::Result<u64> {
        let wrong = || io::Error::other("it describes holes in a way that is not known");
        if header.kind() == b'S' {
            if told.is_used() || header.format() != TarFormat::Gnu || member.kind != MemberKind::File {
                return Err(wrong());
            }
            let (parts, size) = self.old_gnu_map(header)?;
            (member.parts, member.size) = (Some(parts), size);
            return Ok(0);
        }
        if !told.is_used() {
            // A name or minor version alone does not describe holes.
            return if told.name.is_none() && told.minor.is_none() { Ok(0) } else { Err(wrong()) };
        }
        if member.kind != MemberKind::File {
            return Err(wrong());
        }
        let real_size = told.real_size.ok_or_else(wrong)?;
        let mut map_bytes = 0;
        let parts = match (told.major, told.minor, told.parts) {
            (Some(1), Some(0), None) => {
                let mut limited = (&mut self.input).take(member.size);
                let (parts, bytes) = sparse::read_map(&mut limited)?;
                map_bytes = bytes;
                self.position += bytes;
                parts
            }
            (None | Some(0), _, Some(parts)) => parts,
            (None | Some(0), _, None) if told.count == Some(0) => Vec::new(),
            _ => return Err(wrong()),
        };
        if let Some(name) = told.name {
            // A folder has no holes, and a file with such a name could not be written again.
            if name.ends_with(b"/") {
                return Err(wrong());
            }
            member.path = name;
        }
        (member.parts, member.size) = (Some(parts), real_size);
        Ok(map_bytes)
    }

    /// Reads the old GNU map: four parts in the header, and 21 in each block that follows it.
    fn old_gnu_map(&mut self, header: &Header) -> io::Result<(Vec<Part>, u64)> {
        const PARTS: usize = 386;
        const IS_EXTENDED: usize = 482;
        const REAL_SIZE: header::Field = 483..495;
        let mut parts = Vec::new();
        take_parts(&header.0[PARTS..IS_EXTENDED], &mut parts)?;
        let mut goes_on = header.0[IS_EXTENDED] != 0;
        while goes_on {
            if parts.len() > MAX_PARTS {
                return Err(io::Error::other("the map of a file with holes is too long"));
            }
            let mut block = [0; BLOCK];
            self.fill(&mut block)?;
            take_parts(&block[..504], &mut parts)?;
            goes_on = block[504] != 0;
        }
        Ok((parts, header.unsigned(REAL_SIZE)?))
    }

    fn skip_data(&mut self) -> io::Result<()> {
        self.scratch.resize(SKIP_BYTES, 0);
        let mut left = self.data_left + self.padding;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(SKIP_BYTES).min(SKIP_BYTES);
            let read = self.input.read(&mut self.scratch[..wanted])?;
            if read == 0 {
                return Err(io::Error::other("the tar archive stops in the middle of a file"));
            }
            left -= read as u64;
            self.position += read as u64;
        }
        (self.data_left, self.padding) = (0, 0);
        Ok(())
    }

    /// Checks what follows the first block of zeros: a second one, and a limited number of zeros up to the end of the
    /// stream.
    fn end(&mut self) -> io::Result<()> {
        self.scratch.resize(SKIP_BYTES, 0);
        let mut zeros = 0;
        loop {
            let read = self.input.read(&mut self.scratch)?;
            if read == 0 {
                break;
            }
            if self.scratch[..read].iter().any(|byte| *byte != 0) {
                return Err(io::Error::other("something follows the end of the tar archive"));
            }
            zeros += read;
            if zeros > TAIL_BYTES {
                return Err(io::Error::other("too much follows the end of the tar archive"));
            }
        }
        if zeros < BLOCK { Err(io::Error::other("the tar archive stops before its end")) } else { Ok(()) }
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.data_left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.input.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::Error::other("the tar archive stops in the middle of a file"));
        }
        self.data_left -= read as u64;
        self.position += read as u64;
        Ok(read)
    }
}

/// What extension headers say about the member that follows them.
#[derive(Default)]
struct Before {
    bytes: u64,
    extended: Option<Extended>,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl Before {
    /// A global header does not announce a member.
    fn is_empty(&self) -> bool {
        self.extended.is_none() && self.long_path.is_none() && self.long_link.is_none()
    }

    fn set_extended(&mut self, extended: Extended) -> io::Result<()> {
        match self.extended.replace(extended) {
            Some(_) => Err(io::Error::other("a member has two extended headers")),
            None => Ok(()),
        }
    }
}

/// A name of any length, terminated by zeros.
fn long_name(body: &[u8], is_second: bool) -> io::Result<Vec<u8>> {
    let name = until_nul(body);
    if is_second || name.is_empty() || body[name.len()..].iter().any(|byte| *byte != 0) {
        return Err(io::Error::other("a long name is malformed"));
    }
    Ok(name.to_vec())
}

fn kind_of(header: &Header) -> io::Result<MemberKind> {
    let device = || -> io::Result<(u32, u32)> {
        let number = |field| u32::try_from(header.unsigned(field)?).map_err(io::Error::other);
        Ok((number(header::MAJOR)?, number(header::MINOR)?))
    };
    Ok(match header.kind() {
        b'0' | b'7' | 0 | b'S' => MemberKind::File,
        b'1' => MemberKind::Hardlink,
        b'2' => MemberKind::Symlink,
        b'3' => device().map(|(major, minor)| MemberKind::CharDevice { major, minor })?,
        b'4' => device().map(|(major, minor)| MemberKind::BlockDevice { major, minor })?,
        b'5' => MemberKind::Directory,
        b'6' => MemberKind::Fifo,
        other => return Err(io::Error::other(format!("it is of the unknown type {:?}", char::from(other)))),
    })
}

fn take_parts(bytes: &[u8], parts: &mut Vec<Part>) -> io::Result<()> {
    for pair in bytes.chunks_exact(24).filter(|pair| pair[0] != 0) {
        let number = |field: &[u8]| u64::try_from(header::number(field)?).map_err(io::Error::other);
        parts.push(Part { offset: number(&pair[..12])?, length: number(&pair[12..])? });
    }
    Ok(())
}

/// Checks what every member must have.
fn finish(mut member: Member) -> io::Result<Member> {
    while member.path.len() > 1 && member.path.ends_with(b"/") {
        member.path.pop();
    }
    let has_link = matches!(member.kind, MemberKind::Symlink | MemberKind::Hardlink);
    if member.path.is_empty() || (has_link && member.link.is_empty()) {
        return Err(io::Error::other("it has no name"));
    }
    if !has_link {
        member.link.clear();
    }
    for (what, name) in [("path", &member.path), ("link", &member.link)] {
        if name.len() > NAME_BYTES {
            let shown = shown_short(&name_text(name));
            return Err(io::Error::other(format!("its {what} is longer than {NAME_BYTES} bytes: {shown}")));
        }
    }
    Ok(member)
}

fn with_name(header: &Header, error: io::Error) -> io::Error {
    if crate::error::carried(&error).is_some() {
        return error;
    }
    io::Error::new(error.kind(), format!("the member {} cannot be read: {error}", name_text(&header.path())))
}
