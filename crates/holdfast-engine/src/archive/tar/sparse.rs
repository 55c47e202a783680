//! Files with holes: where their data is, and how to read them as if they had no holes.

use std::io::{self, Read};

use super::pax::parse_number;
use super::{BLOCK, Part};

/// The maximum number of parts, more than any legitimate file has; each takes 16 bytes of memory.
pub(super) const MAX_PARTS: usize = 1 << 20;
/// The maximum length of the map of that many parts.
const MAP_BYTES: usize = 40 * 1024 * 1024;

/// Checks that the parts are in order, lie within the file, and add up to the data in the archive, and that the file's
/// size fits into a signed 64-bit offset.
pub(super) fn check(parts: &[Part], size: u64, data_bytes: u64) -> io::Result<()> {
    let wrong = || io::Error::other("the map of a file with holes is wrong");
    let (mut end, mut total) = (0_u64, 0_u64);
    for part in parts {
        let next = part.offset.checked_add(part.length);
        end = next.filter(|next| part.offset >= end && *next <= size).ok_or_else(wrong)?;
        total = total.checked_add(part.length).ok_or_else(wrong)?;
    }
    if total != data_bytes || parts.len() > MAX_PARTS || i64::try_from(size).is_err() { Err(wrong()) } else { Ok(()) }
}

/// Reads the map before the data: decimal numbers, one per line, with the number of parts and then the offset and
/// length of each, padded to a whole block. Also returns the number of bytes read.
pub(super) fn read_map(input: &mut impl Read) -> io::Result<(Vec<Part>, u64)> {
    let wrong = || io::Error::other("the map of a file with holes cannot be read");
    let (mut numbers, mut digits, mut wanted) = (Vec::new(), Vec::new(), 1);
    let mut block = [0; BLOCK];
    for blocks in 1..=MAP_BYTES / BLOCK {
        input.read_exact(&mut block)?;
        for byte in block {
            if byte != b'\n' {
                digits.push(byte);
                if digits.len() > 20 {
                    return Err(wrong());
                }
                continue;
            }
            numbers.push(parse_number(&digits).ok_or_else(wrong)?);
            digits.clear();
            if let [count] = numbers[..] {
                let count = usize::try_from(count).ok().filter(|count| *count <= MAX_PARTS).ok_or_else(wrong)?;
                wanted = 1 + 2 * count;
            }
            if numbers.len() == wanted {
                let parts = numbers[1..].chunks_exact(2).map(|pair| Part { offset: pair[0], length: pair[1] });
                return Ok((parts.collect(), (blocks * BLOCK) as u64));
            }
        }
    }
    Err(wrong())
}

/// The map in the format that `read_map` reads.
pub(super) fn map_text(parts: &[Part], size: u64) -> Vec<u8> {
    // A file without any data still gets a part that marks its end.
    let end = [Part { offset: size, length: 0 }];
    let parts = if parts.is_empty() { &end } else { parts };
    let mut text = format!("{}\n", parts.len());
    for part in parts {
        text.push_str(&format!("{}\n{}\n", part.offset, part.length));
    }
    let mut text = text.into_bytes();
    text.resize(text.len().next_multiple_of(BLOCK), 0);
    text
}

/// Reads a file with holes as it was, with zeros for the holes.
pub(crate) struct Expanded<R> {
    input: R,
    parts: std::vec::IntoIter<Part>,
    part: Part,
    position: u64,
    size: u64,
}

impl<R: Read> Expanded<R> {
    pub(crate) fn new(input: R, parts: Vec<Part>, size: u64) -> Self {
        Self { input, parts: parts.into_iter(), part: Part { offset: 0, length: 0 }, position: 0, size }
    }
}

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.length == 0 && self.part.offset < self.size {
            self.part = self.parts.next().unwrap_or(Part { offset: self.size, length: 0 });
            if self.position < self.part.offset {
                break;
            }
        }
        let in_hole = self.position < self.part.offset;
        let left = if in_hole { self.part.offset - self.position } else { self.part.length };
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = if in_hole {
            buffer[..wanted].fill(0);
            wanted
        } else {
            self.input.read(&mut buffer[..wanted])?
        };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.position += read as u64;
        if !in_hole {
            self.part.offset += read as u64;
            self.part.length -= read as u64;
        }
        Ok(read)
    }
}
