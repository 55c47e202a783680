//! Extended headers: records of a length, a key and a value. A value may contain any byte, so only the length
//! determines where a record ends.

use std::collections::HashSet;
use std::io;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{Part, Time};

/// What an extended header changes about the member after it.
#[derive(Debug, Default)]
pub(super) struct Extended {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    pub user: Option<Vec<u8>>,
    pub group: Option<Vec<u8>>,
    pub modified: Option<Time>,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    pub sparse: SparseRecords,
}

/// The records by which GNU tar describes a file with holes, in all three of its formats.
#[derive(Debug, Default)]
pub(super) struct SparseRecords {
    pub major: Option<u64>,
    pub minor: Option<u64>,
    pub name: Option<Vec<u8>>,
    pub real_size: Option<u64>,
    pub parts: Option<Vec<Part>>,
    pub count: Option<u64>,
}

impl SparseRecords {
    pub(super) fn is_used(&self) -> bool {
        self.major.is_some() || self.real_size.is_some() || self.parts.is_some() || self.count.is_some()
    }
}

/// Attributes that are kept unchanged. Every tar treats the text of an access control list and the bytes of an
/// attribute as data.
const ATTRIBUTES: &[&[u8]] = &[b"SCHILY.xattr.", b"SCHILY.acl.", b"LIBARCHIVE.xattr.", b"RHT.security.selinux"];
/// Keys that a restore does not need.
const IGNORED: &[&[u8]] = &[b"atime", b"ctime", b"comment", b"charset"];

impl Extended {
    pub(super) fn read(body: &[u8]) -> io::Result<Self> {
        let mut extended = Self::default();
        let mut seen = HashSet::new();
        for record in records(body) {
            let (key, value) = record?;
            // The oldest format for holes repeats these two keys.
            let may_repeat = matches!(key, b"GNU.sparse.offset" | b"GNU.sparse.numbytes");
            if !seen.insert(key) && !may_repeat {
                return Err(refused("repeats", key));
            }
            extended.take(key, value)?;
        }
        extended.attributes = one_of_each(extended.attributes)?;
        Ok(extended)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let bad = || refused("has a wrong value for", key);
        let text = || if value.contains(&0) { Err(bad()) } else { Ok(Some(value.to_vec())) };
        let number = || parse_number(value).map(Some).ok_or_else(bad);
        match key {
            b"path" => self.path = text()?,
            b"linkpath" => self.link = text()?,
            b"size" => self.size = number()?,
            b"uid" => self.uid = number()?,
            b"gid" => self.gid = number()?,
            b"uname" => self.user = text()?,
            b"gname" => self.group = text()?,
            b"mtime" => self.modified = Some(parse_time(value).ok_or_else(bad)?),
            // We treat names as bytes, whatever their declared encoding.
            b"hdrcharset" if matches!(value, b"BINARY" | b"ISO-IR 10646 2000 UTF-8") => {}
            _ if key.starts_with(b"GNU.") => return self.take_sparse(key, value),
            _ if ATTRIBUTES.iter().any(|known| key.starts_with(known)) => {
                self.attributes.push((key.to_vec(), value.to_vec()));
            }
            _ if IGNORED.contains(&key) => {}
            // Vendor-specific keys contain a dot and only add information; an unknown standard key may change the
            // meaning of everything else.
            _ if key.contains(&b'.') && !key.starts_with(b"SCHILY.realsize") => {}
            _ => return Err(refused("has an unknown key", key)),
        }
        Ok(())
    }

    fn take_sparse(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let bad = || refused("has a wrong value for", key);
        let number = || parse_number(value).ok_or_else(bad);
        let sparse = &mut self.sparse;
        match key {
            b"GNU.sparse.major" => sparse.major = Some(number()?),
            b"GNU.sparse.minor" => sparse.minor = Some(number()?),
            b"GNU.sparse.name" if !value.contains(&0) => sparse.name = Some(value.to_vec()),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" if sparse.real_size.is_none() => {
                sparse.real_size = Some(number()?);
            }
            b"GNU.sparse.numblocks" => sparse.count = Some(number()?),
            b"GNU.sparse.offset" => {
                let parts = sparse.parts.get_or_insert_default();
                parts.push(Part { offset: number()?, length: u64::MAX });
            }
            b"GNU.sparse.numbytes" => {
                let last = sparse.parts.as_mut().and_then(|parts| parts.last_mut());
                last.filter(|part| part.length == u64::MAX).ok_or_else(bad)?.length = number()?;
            }
            b"GNU.sparse.map" if sparse.parts.is_none() => {
                let numbers: Option<Vec<u64>> = match value {
                    b"" => Some(Vec::new()),
                    _ => value.split(|byte| *byte == b',').map(parse_number).collect(),
                };
                let numbers = numbers.filter(|numbers| numbers.len().is_multiple_of(2)).ok_or_else(bad)?;
                let parts = numbers.chunks_exact(2).map(|pair| Part { offset: pair[0], length: pair[1] });
                sparse.parts = Some(parts.collect());
            }
            _ => return Err(refused("has an unknown key", key)),
        }
        Ok(())
    }
}

const SCHILY: &[u8] = b"SCHILY.xattr.";
const LIBARCHIVE: &[u8] = b"LIBARCHIVE.xattr.";
/// The encoding of values in libarchive, which omits the padding; when decoding, padding is accepted.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// bsdtar writes every extended attribute twice, in libarchive's format and in that of GNU tar, and encodes more
/// characters of a name than GNU tar decodes, so that some would be restored under two names. Each is kept once, in GNU
/// tar's format.
fn one_of_each(records: Records) -> io::Result<Records> {
    let (theirs, mut kept): (Records, Records) = records.into_iter().partition(|(key, _)| key.starts_with(LIBARCHIVE));
    for (key, value) in theirs {
        let encoded = &key[LIBARCHIVE.len()..];
        let (Some(name), Ok(plain)) = (percent_decoded(encoded), BASE64.decode(&value)) else {
            kept.push((key, value));
            continue;
        };
        // A name with an unencoded `=` was split at that character.
        let twins = [encoded, &name].map(|name| [SCHILY, name, b"=", &plain].concat());
        kept.retain(|(key, value)| !twins.contains(&[key, &b"="[..], value].concat()));
        let key = [SCHILY, &percent_encoded(&name, |byte| matches!(byte, b'%' | b'='))].concat();
        if kept.iter().any(|(known, _)| *known == key) {
            return Err(refused("repeats", &key));
        }
        kept.push((key, plain));
    }
    Ok(kept)
}

/// Converts attributes for bsdtar, which decodes names only in its own format.
pub(crate) fn for_bsd(records: &[(Vec<u8>, Vec<u8>)]) -> Records {
    let records = records.iter().map(|(key, value)| {
        let name = key.strip_prefix(SCHILY).filter(|name| name.contains(&b'%')).and_then(percent_decoded);
        match name {
            Some(name) => {
                let name = percent_encoded(&name, |byte| !byte.is_ascii_graphic() || matches!(byte, b'%' | b'='));
                ([LIBARCHIVE, &name].concat(), BASE64.encode(value).into_bytes())
            }
            None => (key.clone(), value.clone()),
        }
    });
    records.collect()
}

fn percent_encoded(name: &[u8], is_encoded: impl Fn(u8) -> bool) -> Vec<u8> {
    let encode = |byte: &u8| if is_encoded(*byte) { format!("%{byte:02X}").into_bytes() } else { vec![*byte] };
    name.iter().flat_map(encode).collect()
}

/// `None` if a percent sign is not followed by two hexadecimal digits, and for names that no attribute can have.
fn percent_decoded(name: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (mut plain, mut rest) = (Vec::new(), name.iter());
    while let Some(byte) = rest.next() {
        plain.push(match byte {
            b'%' => u8::try_from(digit(rest.next()?)? * 16 + digit(rest.next()?)?).ok()?,
            byte => *byte,
        });
    }
    (!plain.is_empty() && !plain.contains(&0)).then_some(plain)
}

/// Checks a global header, which applies to all members that follow. Programs use it for comments; anything else would
/// change the meaning of every later header.
pub(super) fn check_global(body: &[u8]) -> io::Result<()> {
    for record in records(body) {
        let (key, _) = record?;
        if key != b"comment" {
            return Err(refused("applies to all members and sets", key));
        }
    }
    Ok(())
}

fn refused(what: &str, key: &[u8]) -> io::Error {
    let key = holdfast_core::backup::name_text(&key[..key.len().min(100)]);
    io::Error::other(format!("an extended header {what} {key}"))
}

fn records(mut body: &[u8]) -> impl Iterator<Item = io::Result<(&[u8], &[u8])>> {
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let record = split_record(body);
        body = record.map_or(&[], |(_, _, rest)| rest);
        Some(
            record
                .map(|(key, value, _)| (key, value))
                .ok_or_else(|| io::Error::other("an extended header is malformed")),
        )
    })
}

/// Splits off the first record: its key, its value, and the rest.
fn split_record(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    const LONGEST_LENGTH: usize = 10;
    let digits = body.iter().take(LONGEST_LENGTH + 1).position(|byte| *byte == b' ')?;
    let length = usize::try_from(parse_number(&body[..digits])?).ok()?;
    let (record, rest) = body.split_at_checked(length)?;
    let record = record.get(digits + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    if record[..equals].contains(&0) {
        return None;
    }
    Some((&record[..equals], &record[equals + 1..], rest))
}

/// Appends one record, whose length includes the length field itself.
pub(super) fn put_record(body: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    body.extend(length.to_string().as_bytes());
    body.push(b' ');
    body.extend(key);
    body.push(b'=');
    body.extend(value);
    body.push(b'\n');
}

/// Parses a number of decimal digits and nothing else.
pub(super) fn parse_number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

/// Parses seconds with a fraction of any length, including negative times.
pub(super) fn parse_time(text: &[u8]) -> Option<Time> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut halves = text.splitn(2, |byte| *byte == b'.');
    let whole = i64::try_from(parse_number(halves.next()?)?).ok()?;
    let fraction = halves.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nanos = fraction.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0_u32, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    match (is_negative, nanos) {
        (false, _) => Some(Time { seconds: whole, nanos }),
        (true, 0) => Some(Time { seconds: -whole, nanos }),
        (true, _) => Some(Time { seconds: (-whole).checked_sub(1)?, nanos: 1_000_000_000 - nanos }),
    }
}

pub(super) fn time_text(time: Time) -> String {
    let (sign, seconds, nanos) = match time {
        Time { seconds, nanos } if seconds < 0 && nanos > 0 => {
            ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanos)
        }
        Time { seconds, nanos } => (if seconds < 0 { "-" } else { "" }, seconds.unsigned_abs(), nanos),
    };
    match nanos {
        0 => format!("{sign}{seconds}"),
        _ => format!("{sign}{seconds}.{nanos:09}").trim_end_matches('0').to_owned(),
    }
}
