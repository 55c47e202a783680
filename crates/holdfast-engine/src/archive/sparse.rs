//! Files with holes as GNU tar writes them in POSIX archives: a map of the parts that hold data, then the parts.

use std::io::{self, Read};

/// A map longer than this is no honest file: 2^20 extents of a hole and a part each.
const MAP_BYTES: usize = 40 * 1024 * 1024;
const BLOCK: usize = 512;

/// A file with holes, read as it was: holes as zeros.
pub(crate) struct Expanded<R> {
    input: R,
    /// Where data lies, in order, what is left of it.
    parts: std::vec::IntoIter<(u64, u64)>,
    part: (u64, u64),
    position: u64,
    size: u64,
}

impl<R: Read> Expanded<R> {
    pub(crate) fn new(mut input: R, size: u64) -> io::Result<Self> {
        let map = read_map(&mut input)?;
        let mut end = 0;
        for (offset, length) in &map {
            let next = offset.checked_add(*length).filter(|next| *offset >= end && *next <= size);
            end = next.ok_or_else(|| io::Error::other("the map of a sparse file is out of order"))?;
        }
        let mut parts = map.into_iter();
        let part = parts.next().unwrap_or((size, 0));
        Ok(Self { input, parts, part, position: 0, size })
    }
}

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.1 == 0 && self.part.0 < self.size {
            self.part = self.parts.next().unwrap_or((self.size, 0));
        }
        let (offset, length) = self.part;
        let in_hole = self.position < offset;
        let left = if in_hole { offset - self.position } else { length };
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
            self.part = (offset + read as u64, length - read as u64);
        }
        Ok(read)
    }
}

/// Decimal numbers, one a line: how many parts, then offset and length of each; padded to a whole block.
fn read_map(input: &mut impl Read) -> io::Result<Vec<(u64, u64)>> {
    let bad = || io::Error::other("the map of a sparse file cannot be read");
    let (mut numbers, mut number) = (Vec::new(), None::<u64>);
    let mut wanted = 1;
    let mut block = [0; BLOCK];
    for _ in 0..MAP_BYTES / BLOCK {
        input.read_exact(&mut block)?;
        for byte in block {
            match byte {
                b'0'..=b'9' => {
                    let digit = u64::from(byte - b'0');
                    number =
                        Some(number.unwrap_or(0).checked_mul(10).and_then(|n| n.checked_add(digit)).ok_or_else(bad)?);
                }
                b'\n' => numbers.push(number.take().ok_or_else(bad)?),
                _ => return Err(bad()),
            }
            if let [parts] = numbers[..] {
                let all = usize::try_from(parts).ok().and_then(|parts| parts.checked_mul(2)?.checked_add(1));
                wanted = all.filter(|all| *all <= MAP_BYTES).ok_or_else(bad)?;
            }
            if numbers.len() == wanted {
                return Ok(numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect());
            }
        }
    }
    Err(bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(map: &str, data: &[u8], size: u64) -> io::Result<Vec<u8>> {
        let mut input = map.as_bytes().to_vec();
        input.resize(input.len().next_multiple_of(BLOCK), 0);
        input.extend(data);
        let mut output = Vec::new();
        Expanded::new(input.as_slice(), size)?.read_to_end(&mut output).map(|_| output)
    }

    #[test]
    fn holes_become_zeros() {
        assert_eq!(expanded("2\n2\n3\n8\n0\n", b"abc", 8).unwrap(), b"\0\0abc\0\0\0");
        assert_eq!(expanded("1\n4\n0\n", b"", 4).unwrap(), [0; 4]);
        let many: String = (0..300).map(|n| format!("{}\n1\n", n * 2)).collect();
        let file = expanded(&format!("300\n{many}"), &[7; 300], 600).unwrap();
        assert_eq!((file.len(), file[0], file[1], file[598]), (600, 7, 0, 7));
    }

    #[test]
    fn maps_that_lie_are_refused() {
        for (map, data, size) in [("1\n9\n1\n", &b"x"[..], 8), ("2\n4\n1\n0\n1\n", b"xy", 8), ("1\n0\n5\n", b"x", 8)] {
            assert!(expanded(map, data, size).is_err(), "{map:?}");
        }
        assert!(expanded("99999999999\n", b"", 1).is_err());
    }
}
