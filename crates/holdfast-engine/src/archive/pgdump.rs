//! Reads a dump in PostgreSQL's custom format to its last block.
//!
//! Such a dump has no footer, and `pg_restore --list` reads no further than the table of contents at its beginning. So
//! we read from the contents which data must follow, and then every data block to its end: a truncated dump is
//! detected, even if it ends exactly between two blocks.

pub(crate) mod derived;
mod item;
pub(crate) mod split;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use self::derived::{Derived, Follows};
use self::item::{Item, NAME_BYTES, NAMES};
use super::inspected::Inspected;

/// The supported formats, from that of PostgreSQL 8.0 to that of 17 and 18.
const OLDEST: (u8, u8) = (1, 10);
const NEWEST: (u8, u8) = (1, 16);
const CUSTOM_FORMAT: u8 = 1;
const DATA_BLOCK: u8 = 1;
const BLOBS_BLOCK: u8 = 3;
/// The maximum length of one object's definition; views of a megabyte exist.
const TEXT_BYTES: usize = 64 * 1024 * 1024;
/// The maximum number of items with data; each is remembered until its data is read.
const ITEMS: usize = 2_000_000;
/// The maximum length of an object's name in the table of contents, such as a function with the types of a hundred
/// arguments.
const TAG_BYTES: usize = 64 * 1024;
/// How many privileges, comments and functions are listed.
const SAID: usize = 100;

/// What is known from a dump's header and table of contents. Of a dump with a newer, unknown format, only the version
/// is known.
///
/// Names are in the encoding of the dump; bytes that are not UTF-8 are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpFacts {
    /// The version of the format; 1.14 is that of PostgreSQL 12 to 15.
    pub format_version: (u8, u8, u8),
    /// The database that was dumped.
    pub database: Option<String>,
    /// The versions of the server and of `pg_dump`, as they report them.
    pub server_version: Option<String>,
    pub dump_version: Option<String>,
    /// The encoding of names and texts, such as `UTF8`.
    pub encoding: Option<String>,
    /// Roles that own something in the database; they must exist, unless owners are not restored. Roles that only have
    /// privileges are not included.
    pub owners: BTreeSet<String>,
    pub schemas: BTreeSet<String>,
    /// Non-default tablespaces of objects.
    pub tablespaces: BTreeSet<String>,
    /// The number of items of each kind, such as `TABLE` or `TABLE DATA`.
    pub kinds: BTreeMap<String, u64>,
    /// Schemas and names of tables, including foreign ones; `None` if there are too many.
    pub tables: Option<BTreeSet<(String, String)>>,
    /// Tables whose rows are in the dump.
    pub tables_with_data: u64,
    /// Whether it contains anything that a new database does not have.
    pub has_objects: bool,
    /// Privileges, labels and comments of objects, such as `ACL SCHEMA public`; only as many as can be listed to a
    /// user.
    pub said_of_objects: BTreeSet<String>,
    /// Functions that run with the privileges of their owner, with their schema; only as many as can be listed to a
    /// user.
    pub owner_functions: BTreeSet<String>,
    /// The number of further such functions.
    pub further_owner_functions: u64,
    /// How many items [`split`] takes out, and how many of these are derived from the rows.
    pub taken_out: u64,
    pub derived: u64,
}

impl DumpFacts {
    pub(crate) fn has_event_triggers(&self) -> bool {
        self.kinds.contains_key("EVENT TRIGGER")
    }

    /// A message for users if the format is newer than this version can read.
    pub(crate) fn unknown_version(&self) -> Option<String> {
        let (major, minor, _) = self.format_version;
        ((major, minor) > NEWEST).then(|| {
            format!(
                "This dump has format {major}.{minor}, newer than this version of Holdfast knows; only pg_dump's exit \
                 status confirms that it is complete."
            )
        })
    }

    /// Approximately how much memory its names take.
    pub(crate) fn weight(&self) -> usize {
        const EACH: usize = 64;
        let sets = [&self.owners, &self.schemas, &self.tablespaces, &self.said_of_objects, &self.owner_functions];
        let tables = self.tables.iter().flatten().flat_map(|(schema, name)| [schema, name]);
        let names = sets.into_iter().flatten().chain(self.kinds.keys()).chain(tables);
        names.map(|name| name.len() + EACH).sum()
    }
}

pub(super) fn inspect(reader: &mut dyn Read) -> io::Result<Inspected> {
    let (facts, entries) = read(reader)?;
    Ok(Inspected { entries, notes: facts.unknown_version().into_iter().collect(), ..Inspected::default() })
}

/// Reads a dump to its last block. Anything missing or out of place is an error.
pub fn describe(reader: &mut dyn Read) -> io::Result<DumpFacts> {
    read(reader).map(|(facts, _)| facts)
}

/// Also counts the items with data.
fn read(reader: &mut dyn Read) -> io::Result<(DumpFacts, u64)> {
    let mut dump = Dump::new(reader);
    dump.read_head()?;
    if dump.version > NEWEST {
        io::copy(dump.reader, &mut io::sink())?;
        // The content is unknown, so it is not taken for empty.
        dump.facts.has_objects = true;
        return Ok((dump.facts, 0));
    }
    dump.facts.tables = Some(BTreeSet::new());
    let mut expected = dump.read_contents()?;
    let entries = expected.len() as u64;
    while let Some(id) = dump.read_block()? {
        expected.remove(&id);
    }
    if let Some(missing) = expected.first() {
        return Err(bad(&format!("the dump ends before the data of its item {missing}")));
    }
    Ok((dump.facts, entries))
}

struct Dump<'a> {
    reader: &'a mut dyn Read,
    offset_bytes: usize,
    version: (u8, u8),
    facts: DumpFacts,
    /// The bytes read since the last [`Self::take_raw`], to be passed on.
    raw: Option<Vec<u8>>,
}

fn bad(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

impl<'a> Dump<'a> {
    fn new(reader: &'a mut dyn Read) -> Self {
        Self { reader, offset_bytes: 8, version: (0, 0), facts: DumpFacts::default(), raw: None }
    }

    fn bytes<const COUNT: usize>(&mut self) -> io::Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        self.reader.read_exact(&mut bytes)?;
        if let Some(raw) = &mut self.raw {
            raw.extend_from_slice(&bytes);
        }
        Ok(bytes)
    }

    fn take_raw(&mut self) -> Vec<u8> {
        std::mem::take(self.raw.get_or_insert_default())
    }

    fn byte(&mut self) -> io::Result<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    /// Reads a sign and then the bytes of a number, least significant first. `pg_restore` keeps such a number in a
    /// signed 32-bit integer.
    fn int(&mut self) -> io::Result<i64> {
        let [sign, digits @ ..] = self.bytes::<5>()?;
        let value = i64::from(u32::from_le_bytes(digits));
        let value = if sign == 0 { value } else { -value };
        match i32::try_from(value) {
            Ok(value) => Ok(value.into()),
            Err(_) => Err(bad("a number in the dump is too large")),
        }
    }

    /// Reads a text; `None` if the format marks it as missing.
    fn text_up_to(&mut self, longest: usize) -> io::Result<Option<Vec<u8>>> {
        let Ok(length) = usize::try_from(self.int()?) else { return Ok(None) };
        if length > longest {
            return Err(bad("a text in the dump's contents is too long"));
        }
        let mut text = Vec::new();
        Read::take(&mut *self.reader, length as u64).read_to_end(&mut text)?;
        if text.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(raw) = &mut self.raw {
            raw.extend_from_slice(&text);
        }
        Ok(Some(text))
    }

    /// Skips a text that is not needed. Returns whether there was one.
    fn skip_text(&mut self) -> io::Result<bool> {
        self.text_up_to(TEXT_BYTES).map(|text| text.is_some())
    }

    /// Reads a name, which is kept.
    fn name(&mut self) -> io::Result<Option<String>> {
        Ok(self.text_up_to(NAME_BYTES)?.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    fn read_head(&mut self) -> io::Result<()> {
        if &self.bytes::<5>()? != b"PGDMP" {
            return Err(bad("this is not a dump in PostgreSQL's custom format"));
        }
        self.version = (self.byte()?, self.byte()?);
        self.facts.format_version = (self.version.0, self.version.1, self.byte()?);
        if self.version > NEWEST {
            return Ok(());
        }
        if self.version < OLDEST {
            return Err(bad("this dump is of a version before PostgreSQL 8"));
        }
        let int_bytes = self.byte()?;
        self.offset_bytes = usize::from(self.byte()?);
        // `pg_restore` reads four bytes, whatever the header says.
        if int_bytes != 4 || !(1..=16).contains(&self.offset_bytes) {
            return Err(bad("the dump's header is invalid"));
        }
        if self.byte()? != CUSTOM_FORMAT {
            return Err(bad("this is not a dump in PostgreSQL's custom format"));
        }
        // The compression: none, since we request that.
        if self.version >= (1, 15) {
            self.byte()?;
        } else {
            self.int()?;
        }
        const PARTS_OF_ITS_TIME: usize = 7;
        for _ in 0..PARTS_OF_ITS_TIME {
            self.int()?;
        }
        self.facts.database = self.name()?;
        self.facts.server_version = self.name()?;
        self.facts.dump_version = self.name()?;
        Ok(())
    }

    /// Reads the table of contents and returns the ids of the items whose data must follow.
    fn read_contents(&mut self) -> io::Result<BTreeSet<i64>> {
        let (mut with_data, mut derived) = (BTreeSet::new(), Derived::default());
        for _ in 0..self.read_count()? {
            let item = self.read_item()?;
            if item.has_data {
                with_data.insert(item.id);
                if with_data.len() > ITEMS {
                    return Err(bad("the dump has too many items"));
                }
            }
            let follows = derived.kind(&item);
            self.facts.taken_out += u64::from(follows.is_some());
            self.facts.derived += u64::from(matches!(follows, Some(Follows::Index | Follows::Contents)));
            self.note(item)?;
        }
        Ok(with_data)
    }

    fn read_count(&mut self) -> io::Result<i64> {
        match self.int()? {
            count if count < 0 => Err(bad("the dump has a negative number of items")),
            count => Ok(count),
        }
    }

    fn read_item(&mut self) -> io::Result<Item> {
        let (id, has_data) = (self.int()?, self.int()? != 0);
        let (_table_id, _object_id) = (self.skip_text()?, self.skip_text()?);
        let tag = self.text_up_to(TAG_BYTES)?.unwrap_or_default();
        let kind = self.name()?.unwrap_or_default();
        if self.version >= (1, 11) {
            let _section = self.int()?;
        }
        let definition = self.text_up_to(TEXT_BYTES)?.unwrap_or_default();
        let (_removal, _copy_statement) = (self.skip_text()?, self.skip_text()?);
        let schema = self.text_up_to(NAME_BYTES)?.unwrap_or_default();
        let tablespace = self.name()?.unwrap_or_default();
        if self.version >= (1, 14) {
            let _access_method = self.skip_text()?;
        }
        if self.version >= (1, 16) {
            let _relation_kind = self.int()?;
        }
        let owner = self.name()?.unwrap_or_default();
        let _with_oids = self.skip_text()?;
        while self.skip_text()? {}
        // The offset of the data, which is not known in a dump to a pipe.
        for _ in 0..=self.offset_bytes {
            self.byte()?;
        }
        Ok(Item { id, has_data, tag, kind, definition, schema, tablespace, owner })
    }

    fn note(&mut self, item: Item) -> io::Result<()> {
        let facts = &mut self.facts;
        facts.tables_with_data += u64::from(item.has_data && item.kind == "TABLE DATA");
        facts.has_objects |= item.is_object();
        if facts.said_of_objects.len() < SAID {
            facts.said_of_objects.extend(item.said());
        }
        if item.runs_as_owner() {
            if facts.owner_functions.len() < SAID {
                facts.owner_functions.insert(format!("{}.{}", item.schema_text(), item.short_tag()));
            } else {
                facts.further_owner_functions += 1;
            }
        }
        if item.kind == "ENCODING" {
            facts.encoding = item.encoding();
        }
        if let Some(table) = item.table() {
            let has_room = |tables: &BTreeSet<_>| tables.len() < NAMES && item.tag.len() <= NAME_BYTES;
            facts.tables = facts.tables.take().filter(has_room);
            if let Some(tables) = &mut facts.tables {
                tables.insert(table);
            }
        }
        facts.schemas.extend(Some(item.schema_text()).filter(|schema| !schema.is_empty()));
        if !item.owner.is_empty() && !item.is_about_database() {
            facts.owners.insert(item.owner);
        }
        facts.tablespaces.extend(Some(item.tablespace).filter(|name| !name.is_empty() && name != "pg_default"));
        *facts.kinds.entry(item.kind).or_default() += 1;
        let counts = [facts.owners.len(), facts.schemas.len(), facts.tablespaces.len(), facts.kinds.len()];
        if counts.into_iter().any(|count| count > NAMES) {
            return Err(bad("the dump has too many names"));
        }
        Ok(())
    }

    /// Reads one block of data and returns the item it belongs to; `None` at the end.
    fn read_block(&mut self) -> io::Result<Option<i64>> {
        let mut kind = [0];
        if self.reader.read(&mut kind)? == 0 {
            return Ok(None);
        }
        let id = self.int()?;
        match kind[0] {
            DATA_BLOCK => self.skip_chunks()?,
            // Each large object has a number, followed by its chunks; 0 ends the list.
            BLOBS_BLOCK => {
                while self.int()? != 0 {
                    self.skip_chunks()?;
                }
            }
            _ => return Err(bad("a block of the dump is of unknown kind")),
        }
        Ok(Some(id))
    }

    fn skip_chunks(&mut self) -> io::Result<()> {
        loop {
            let length = self.int()?;
            let length = u64::try_from(length).map_err(|_| bad("a chunk of the dump has a negative length"))?;
            if length == 0 {
                return Ok(());
            }
            if io::copy(&mut Read::take(&mut *self.reader, length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl DumpFacts {
    /// Which of these tables are not in the dump; empty if that is not known.
    pub fn lacks(&self, tables: Vec<(String, String)>) -> Vec<(String, String)> {
        let Some(own) = &self.tables else { return Vec::new() };
        // In another encoding the same characters are different bytes.
        let is_utf8 = self.encoding.as_deref() == Some("UTF8");
        let is_told = |(schema, name): &(String, String)| is_utf8 || (schema.is_ascii() && name.is_ascii());
        tables.into_iter().filter(|table| is_told(table) && !own.contains(table)).collect()
    }
}

#[cfg(test)]
mod tests;
