//! Takes items out of a dump that are restored after everything else: indexes that are not unique, the contents of
//! materialized views, and event triggers, which would fire when the others are made.
//!
//! Indexes and materialized views follow from the rows, and their expressions may call a function that only a
//! `search_path` finds, so one of them can fail although everything else is restored. Each can be tried by itself then,
//! and nobody has to believe what a server says about which of many statements failed.

use std::io::{self, Read, Write};

use super::derived::{Derived, Follows};
use super::{Dump, NEWEST, bad};

/// What the items that are taken out may take in memory; those of a hundred thousand indexes.
const BYTES: usize = 64 * 1024 * 1024;

/// Kinds of items that the session of a restore begins with.
const SETTINGS: [&str; 3] = ["ENCODING", "STDSTRINGS", "SEARCHPATH"];

/// One item that was taken out.
pub(crate) struct Part {
    pub follows: Follows,
    /// Schema and name of the index, or of the materialized view, in the encoding of the dump.
    pub schema: Vec<u8>,
    pub name: Vec<u8>,
    /// The item as it stands in the table of contents.
    raw: Vec<u8>,
}

impl Part {
    /// As a person knows it.
    pub fn shown(&self) -> String {
        let what = if self.follows == Follows::Contents { "the contents of" } else { "index" };
        format!("{what} {}.{}", String::from_utf8_lossy(&self.schema), String::from_utf8_lossy(&self.name))
    }
}

/// What was taken out of a dump, to be restored by itself, in this order.
pub(crate) struct Split {
    head: Vec<u8>,
    /// The items that say how the others are read: in which encoding, and where names are looked for.
    settings: Vec<Vec<u8>>,
    pub parts: Vec<Part>,
}

impl Split {
    /// A dump of these items alone; none of them has data.
    pub fn dump<'a>(&self, parts: impl Iterator<Item = &'a Part>) -> Vec<u8> {
        let (mut count, mut items) = (0, Vec::new());
        for raw in self.settings.iter().chain(parts.map(|part| &part.raw)) {
            items.extend_from_slice(raw);
            count += 1;
        }
        [self.head.as_slice(), &number(count), &items].concat()
    }
}

fn number(value: u32) -> [u8; 5] {
    let [a, b, c, d] = value.to_le_bytes();
    [0, a, b, c, d]
}

/// Passes a dump on without what follows from its rows, and without its event triggers: as many items as `taken_out`.
pub(crate) fn split(reader: &mut dyn Read, taken_out: u64, out: &mut dyn Write) -> io::Result<Split> {
    let mut dump = Dump { raw: Some(Vec::new()), ..Dump::new(reader) };
    dump.read_head()?;
    if dump.version > NEWEST {
        return Err(bad("this dump is newer than this Holdfast knows"));
    }
    let head = dump.take_raw();
    let count = dump.read_count()?;
    dump.take_raw();
    let differs = || bad("the dump is not the one that was looked at");
    let kept = u64::try_from(count).ok().and_then(|count| count.checked_sub(taken_out)).ok_or_else(differs)?;
    out.write_all(&head)?;
    out.write_all(&number(u32::try_from(kept).map_err(|_| differs())?))?;
    let (mut known, mut settings, mut parts, mut bytes) = (Derived::default(), Vec::new(), Vec::new(), 0);
    for _ in 0..count {
        let item = dump.read_item()?;
        let raw = dump.take_raw();
        let Some(follows) = known.kind(&item) else {
            out.write_all(&raw)?;
            let is_setting = !item.has_data && SETTINGS.contains(&item.kind.as_str());
            if is_setting && settings.len() < SETTINGS.len() {
                bytes += raw.len();
                settings.push(raw);
            }
            continue;
        };
        bytes += raw.len();
        if bytes > BYTES {
            return Err(bad("the dump has more indexes than can be restored apart from its rows"));
        }
        let name = if follows == Follows::OfIndex { known.index_of(&item).unwrap_or_default() } else { item.tag };
        parts.push(Part { follows, schema: item.schema, name, raw });
    }
    if parts.len() as u64 != taken_out {
        return Err(differs());
    }
    io::copy(dump.reader, out)?;
    Ok(Split { head, settings, parts })
}
