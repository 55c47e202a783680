//! The 512 bytes that every member begins with.

use std::io;

use super::BLOCK;

/// The position of a field.
pub(super) type Field = std::ops::Range<usize>;

pub(super) const NAME: Field = 0..100;
pub(super) const MODE: Field = 100..108;
pub(super) const UID: Field = 108..116;
pub(super) const GID: Field = 116..124;
pub(super) const SIZE: Field = 124..136;
pub(super) const MTIME: Field = 136..148;
pub(super) const CHECKSUM: Field = 148..156;
pub(super) const TYPE: usize = 156;
pub(super) const LINK: Field = 157..257;
pub(super) const MAGIC: Field = 257..263;
pub(super) const VERSION: Field = 263..265;
pub(super) const USER: Field = 265..297;
pub(super) const GROUP: Field = 297..329;
pub(super) const MAJOR: Field = 329..337;
pub(super) const MINOR: Field = 337..345;
pub(super) const PREFIX: Field = 345..500;

pub(super) const POSIX_MAGIC: &[u8] = b"ustar\0";
const GNU_MAGIC: &[u8] = b"ustar ";

/// The format of the header, which determines the fields that are meaningful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TarFormat {
    /// From before 1988: nothing after the link.
    Old,
    Posix,
    Gnu,
}

/// A header block with a valid checksum.
pub(super) struct Header(pub [u8; BLOCK]);

impl Header {
    pub(super) fn check(block: [u8; BLOCK]) -> io::Result<Self> {
        let told = number(&block[CHECKSUM])?;
        // Some old programs computed the sum of signed bytes.
        let (mut unsigned, mut signed) = (0_i64, 0_i64);
        for (at, byte) in block.iter().enumerate() {
            let byte = if CHECKSUM.contains(&at) { b' ' } else { *byte };
            unsigned += i64::from(byte);
            signed += i64::from(byte.cast_signed());
        }
        if told != unsigned && told != signed {
            return Err(io::Error::other("a header has the wrong checksum"));
        }
        Ok(Self(block))
    }

    pub(super) fn format(&self) -> TarFormat {
        match &self.0[MAGIC] {
            POSIX_MAGIC => TarFormat::Posix,
            GNU_MAGIC => TarFormat::Gnu,
            _ => TarFormat::Old,
        }
    }

    pub(super) fn kind(&self) -> u8 {
        self.0[TYPE]
    }

    pub(super) fn text(&self, field: Field) -> &[u8] {
        until_nul(&self.0[field])
    }

    /// The name, including the POSIX prefix field.
    pub(super) fn path(&self) -> Vec<u8> {
        let name = self.text(NAME);
        match (self.format(), self.text(PREFIX)) {
            (TarFormat::Posix, prefix) if !prefix.is_empty() => [prefix, b"/", name].concat(),
            _ => name.to_vec(),
        }
    }

    pub(super) fn number(&self, field: Field) -> io::Result<i64> {
        number(&self.0[field])
    }

    pub(super) fn unsigned(&self, field: Field) -> io::Result<u64> {
        u64::try_from(self.number(field)?).map_err(|_| io::Error::other("a header has a negative number"))
    }
}

pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Parses a number: octal digits, or binary if the first bit is set.
pub(super) fn number(field: &[u8]) -> io::Result<i64> {
    let bad = || io::Error::other("a header has an invalid number");
    if field.first().is_some_and(|byte| byte & 0x80 != 0) {
        let is_negative = field[0] & 0x40 != 0;
        let first = if is_negative { i128::from(field[0]) - 256 } else { i128::from(field[0] & 0x7f) };
        let value = field[1..].iter().try_fold(first, |value, byte| {
            value.checked_mul(256).and_then(|value| value.checked_add(i128::from(*byte)))
        });
        return value.and_then(|value| i64::try_from(value).ok()).ok_or_else(bad);
    }
    let blanks = field.iter().take_while(|byte| matches!(byte, b' ' | 0)).count();
    let digits = field[blanks..].iter().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let (digits, rest) = field[blanks..].split_at(digits);
    if !rest.iter().all(|byte| matches!(byte, b' ' | 0)) {
        return Err(bad());
    }
    digits.iter().try_fold(0_i64, |value, digit| {
        value.checked_mul(8).and_then(|value| value.checked_add(i64::from(digit - b'0'))).ok_or_else(bad)
    })
}

/// Writes a number in octal if it fits, otherwise in binary, which all readers support.
pub(super) fn put_number(field: &mut [u8], value: i64) {
    let digits = field.len() - 1;
    let fits = u64::try_from(value).is_ok_and(|value| value < 1 << (3 * digits).min(62));
    if fits {
        let text = format!("{value:0digits$o}");
        field[..digits].copy_from_slice(text.as_bytes());
        field[digits] = 0;
        return;
    }
    let filling = if value < 0 { 0xff } else { 0 };
    field.fill(filling);
    let bytes = value.to_be_bytes();
    let length = field.len().min(bytes.len());
    let at = field.len() - length;
    field[at..].copy_from_slice(&bytes[bytes.len() - length..]);
    field[0] |= 0x80;
}

pub(super) fn put_checksum(block: &mut [u8; BLOCK]) {
    block[CHECKSUM].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
