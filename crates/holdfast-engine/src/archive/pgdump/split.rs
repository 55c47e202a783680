//! Takes out of a dump the items that are restored after everything else: non-unique indexes, the contents of
//! materialized views, and event triggers, which would fire when the others are created.
//!
//! Indexes and materialized views are derived from the rows, and their expressions may call a function that is found
//! only through a `search_path`, so one of them can fail although everything else is restored. Each can then be tried
//! separately, without relying on the server to report which of many statements failed.

use std::io::{self, Read, Write};

use super::derived::{Derived, Follows};
use super::{Dump, NEWEST, bad};

/// The maximum memory for the items taken out, enough for a hundred thousand indexes.
const BYTES: usize = 64 * 1024 * 1024;

/// The kinds of items with the session settings of a restore.
const SETTINGS: [&str; 3] = ["ENCODING", "STDSTRINGS", "SEARCHPATH"];

/// One item that was taken out.
pub(crate) struct Part {
    pub follows: Follows,
    /// Schema and name of the index, or of the materialized view, in the encoding of the dump.
    pub schema: Vec<u8>,
    pub name: Vec<u8>,
    /// The bytes of the item in the table of contents.
    raw: Vec<u8>,
}

impl Part {
    /// A description for users.
    pub fn shown(&self) -> String {
        let what = if self.follows == Follows::Contents { "the contents of" } else { "index" };
        format!("{what} {}.{}", String::from_utf8_lossy(&self.schema), String::from_utf8_lossy(&self.name))
    }
}

/// What was taken out of a dump, to be restored separately, in this order.
pub(crate) struct Split {
    head: Vec<u8>,
    /// The items that determine how the others are read: the encoding, and the search path for names.
    settings: Vec<Vec<u8>>,
    pub parts: Vec<Part>,
}

impl Split {
    /// Builds a dump of only these items; none of them has data.
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

/// Copies a dump without the items derived from its rows and without its event triggers, `taken_out` items in all.
pub(crate) fn split(reader: &mut dyn Read, taken_out: u64, out: &mut dyn Write) -> io::Result<Split> {
    let mut dump = Dump { raw: Some(Vec::new()), ..Dump::new(reader) };
    dump.read_head()?;
    if dump.version > NEWEST {
        return Err(bad("this dump has a newer format than this version of Holdfast knows"));
    }
    let head = dump.take_raw();
    let count = dump.read_count()?;
    dump.take_raw();
    let differs = || bad("the dump is not the one that was inspected");
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
            return Err(bad("the dump has too many indexes to restore them separately"));
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
