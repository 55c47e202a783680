//! Walks a dump in PostgreSQL's custom format to its last block.
//!
//! Such a dump has no footer, and `pg_restore --list` reads no further than the table of contents at its beginning. So
//! we read the contents for what data must follow, and then every data block to its end: a dump that stops early, also
//! exactly between two blocks, is found.

pub(crate) mod derived;
mod item;
pub(crate) mod split;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use self::derived::{Derived, Follows};
use self::item::{Item, NAME_BYTES, NAMES};
use super::inspected::Inspected;

/// From 8.0's form to that of PostgreSQL 17 and 18.
const OLDEST: (u8, u8) = (1, 10);
const NEWEST: (u8, u8) = (1, 16);
const CUSTOM_FORMAT: u8 = 1;
const DATA_BLOCK: u8 = 1;
const BLOBS_BLOCK: u8 = 3;
/// The text of one object's definition; views of a megabyte have been seen.
const TEXT_BYTES: usize = 64 * 1024 * 1024;
/// Items with data; each is remembered until it is met.
const ITEMS: usize = 2_000_000;
/// What an object is called in the table of contents; a function with the types of a hundred arguments.
const TAG_BYTES: usize = 64 * 1024;
/// How many rights and comments are told.
const SAID: usize = 100;

/// What a dump's head and table of contents say. A dump of an unknown, newer version says nothing but its version.
///
/// Names are in the encoding of the dump; what is not UTF-8 in them is replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpFacts {
    /// Of the format; 1.14 is that of PostgreSQL 12 to 15.
    pub format_version: (u8, u8, u8),
    /// The database that was dumped.
    pub database: Option<String>,
    /// Of the server, and of `pg_dump`, in their own words.
    pub server_version: Option<String>,
    pub dump_version: Option<String>,
    /// Of names and texts, such as `UTF8`.
    pub encoding: Option<String>,
    /// Roles that own something in the database; they must exist, or owners be left out. Roles that only have rights to
    /// something are not told.
    pub owners: BTreeSet<String>,
    pub schemas: BTreeSet<String>,
    /// Tablespaces of their own that some objects were in.
    pub tablespaces: BTreeSet<String>,
    /// How many items there are of each kind, such as `TABLE` or `TABLE DATA`.
    pub kinds: BTreeMap<String, u64>,
    /// Schemas and names of tables, also foreign ones; `None` when there are too many to name them.
    pub tables: Option<BTreeSet<(String, String)>>,
    /// Tables whose rows are in the dump.
    pub tables_with_data: u64,
    /// Whether anything is in it that a new database does not have.
    pub has_objects: bool,
    /// Rights, labels and comments of objects, such as `ACL SCHEMA public`; not more than can be named to a person.
    pub said_of_objects: BTreeSet<String>,
    /// Functions that run with the rights of their owner, with their schema; as many as can be named.
    pub owner_functions: BTreeSet<String>,
    /// The others of them.
    pub further_owner_functions: u64,
    /// How many items [`split`] takes out, and how many of them only follow from the rows.
    pub taken_out: u64,
    pub derived: u64,
}

impl DumpFacts {
    pub(crate) fn has_event_triggers(&self) -> bool {
        self.kinds.contains_key("EVENT TRIGGER")
    }

    /// That nobody here can read it, for a person.
    pub(crate) fn unknown_version(&self) -> Option<String> {
        let (major, minor, _) = self.format_version;
        ((major, minor) > NEWEST).then(|| {
            format!(
                "This dump is of version {major}.{minor}, newer than this Holdfast knows; its end is vouched for by \
                 pg_dump's exit status alone."
            )
        })
    }

    /// How much memory its names take, more or less.
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

/// Reads a dump to its last block. Whatever is missing or out of place is an error.
pub fn describe(reader: &mut dyn Read) -> io::Result<DumpFacts> {
    read(reader).map(|(facts, _)| facts)
}

/// Also counts the items with data.
fn read(reader: &mut dyn Read) -> io::Result<(DumpFacts, u64)> {
    let mut dump = Dump::new(reader);
    dump.read_head()?;
    if dump.version > NEWEST {
        io::copy(dump.reader, &mut io::sink())?;
        // Nobody knows, so nobody passes it over.
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
    /// The bytes that were read since [`Self::take_raw`], for whoever passes them on.
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

    /// A sign, then the digits, least significant first. Restoring programs keep such a number in 32 bits, with its sign.
    fn int(&mut self) -> io::Result<i64> {
        let [sign, digits @ ..] = self.bytes::<5>()?;
        let value = i64::from(u32::from_le_bytes(digits));
        let value = if sign == 0 { value } else { -value };
        match i32::try_from(value) {
            Ok(value) => Ok(value.into()),
            Err(_) => Err(bad("a number in the dump is too large")),
        }
    }

    /// `None` is how the format writes a missing text.
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

    /// Passes over a text that nobody looks at. Whether there was one.
    fn skip_text(&mut self) -> io::Result<bool> {
        self.text_up_to(TEXT_BYTES).map(|text| text.is_some())
    }

    /// A text that is kept.
    fn name(&mut self) -> io::Result<Option<String>> {
        Ok(self.text_up_to(NAME_BYTES)?.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    fn read_head(&mut self) -> io::Result<()> {
        if &self.bytes::<5>()? != b"PGDMP" {
            return Err(bad("this is no dump in PostgreSQL's custom format"));
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
        // Restoring programs read four bytes, whatever is said here.
        if int_bytes != 4 || !(1..=16).contains(&self.offset_bytes) {
            return Err(bad("the dump's head makes no sense"));
        }
        if self.byte()? != CUSTOM_FORMAT {
            return Err(bad("this is no dump in PostgreSQL's custom format"));
        }
        // How it is compressed: not at all, we ask for that.
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

    /// The ids of the items whose data must follow.
    fn read_contents(&mut self) -> io::Result<BTreeSet<i64>> {
        let (mut with_data, mut derived) = (BTreeSet::new(), Derived::default());
        for _ in 0..self.read_count()? {
            let item = self.read_item()?;
            if item.has_data {
                with_data.insert(item.id);
                if with_data.len() > ITEMS {
                    return Err(bad("the dump has more items than can be"));
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
        // Where the data lies, which a dump to a pipe cannot know.
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
            return Err(bad("the dump has more names than can be"));
        }
        Ok(())
    }

    /// Reads one block of data and gives the item it belongs to; `None` at the end.
    fn read_block(&mut self) -> io::Result<Option<i64>> {
        let mut kind = [0];
        if self.reader.read(&mut kind)? == 0 {
            return Ok(None);
        }
        let id = self.int()?;
        match kind[0] {
            DATA_BLOCK => self.skip_chunks()?,
            // Each large object has its number and chunks of its own; 0 ends them.
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
    /// Which of these tables are not in the dump. None when that cannot be told.
    pub fn lacks(&self, tables: Vec<(String, String)>) -> Vec<(String, String)> {
        let Some(own) = &self.tables else { return Vec::new() };
        // In another encoding the same letters are other bytes.
        let is_utf8 = self.encoding.as_deref() == Some("UTF8");
        let is_told = |(schema, name): &(String, String)| is_utf8 || (schema.is_ascii() && name.is_ascii());
        tables.into_iter().filter(|table| is_told(table) && !own.contains(table)).collect()
    }
}

#[cfg(test)]
mod tests;
