//! Walks a dump in PostgreSQL's custom format to its last block.
//!
//! Such a dump has no footer, and `pg_restore --list` reads no further than the table of contents at its beginning. So
//! we read the contents for what data must follow, and then every data block to its end: a dump that stops early, also
//! exactly between two blocks, is found.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use super::inspect::Inspected;

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
/// Different owners, schemas and kinds of objects, and how long each may be. Names have 63 bytes in servers as they
/// are built by everybody.
const NAMES: usize = 100_000;
const NAME_BYTES: usize = 255;
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
}

impl DumpFacts {
    pub(crate) fn has_event_triggers(&self) -> bool {
        self.kinds.contains_key("EVENT TRIGGER")
    }
}

pub(super) fn inspect(reader: &mut dyn Read) -> io::Result<Inspected> {
    let (facts, entries) = read(reader)?;
    let (major, minor, _) = facts.format_version;
    let notes = if (major, minor) > NEWEST {
        vec![format!(
            "This dump is of version {major}.{minor}, newer than this Holdfast knows; its end is vouched for by \
             pg_dump's exit status alone."
        )]
    } else {
        Vec::new()
    };
    Ok(Inspected { entries, notes, ..Inspected::default() })
}

/// Reads a dump to its last block. Whatever is missing or out of place is an error.
pub fn describe(reader: &mut dyn Read) -> io::Result<DumpFacts> {
    read(reader).map(|(facts, _)| facts)
}

/// Also counts the items with data.
fn read(reader: &mut dyn Read) -> io::Result<(DumpFacts, u64)> {
    let mut dump = Dump { reader, int_bytes: 4, offset_bytes: 8, version: (0, 0), facts: DumpFacts::default() };
    dump.read_head()?;
    if dump.version > NEWEST {
        io::copy(dump.reader, &mut io::sink())?;
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
    int_bytes: usize,
    offset_bytes: usize,
    version: (u8, u8),
    facts: DumpFacts,
}

/// One line of the table of contents, as far as it is looked at.
struct Item {
    tag: Vec<u8>,
    kind: String,
    definition: Vec<u8>,
    schema: String,
    tablespace: String,
    owner: String,
}

impl Item {
    /// Whether a new database has nothing like it: settings of the dump, the database itself, what is said about other
    /// objects and what every database starts with do not count.
    fn is_object(&self) -> bool {
        const ABOUT_OTHERS: &[&str] = &[
            "ENCODING",
            "STDSTRINGS",
            "SEARCHPATH",
            "DATABASE",
            "DATABASE PROPERTIES",
            "COMMENT",
            "ACL",
            "SECURITY LABEL",
        ];
        let is_given =
            matches!((self.kind.as_str(), self.tag.as_slice()), ("SCHEMA", b"public") | ("EXTENSION", b"plpgsql"));
        !is_given && !ABOUT_OTHERS.contains(&self.kind.as_str())
    }

    /// A function whose definition may say so. A text in its body that looks like it is no reason to keep silent.
    fn runs_as_owner(&self) -> bool {
        const SAID: &[u8] = b"SECURITY DEFINER";
        matches!(self.kind.as_str(), "FUNCTION" | "PROCEDURE")
            && self.definition.windows(SAID.len()).any(|part| part.eq_ignore_ascii_case(SAID))
    }

    /// The database itself, which `pg_restore` does not make.
    fn is_about_database(&self) -> bool {
        let is_said_of_it = matches!(self.kind.as_str(), "COMMENT" | "ACL" | "SECURITY LABEL");
        self.kind.starts_with("DATABASE") || (is_said_of_it && self.tag.starts_with(b"DATABASE "))
    }

    /// What it says of which object, unless every database starts with that.
    fn said(&self) -> Option<String> {
        let is_said = matches!(self.kind.as_str(), "ACL" | "COMMENT" | "SECURITY LABEL") && !self.is_about_database();
        let is_given = self.kind == "COMMENT" && self.tag == b"EXTENSION plpgsql";
        (is_said && !is_given).then(|| format!("{} {}", self.kind, String::from_utf8_lossy(&self.tag)))
    }

    /// The table that it makes.
    fn table(&self) -> Option<(String, String)> {
        let is_table = matches!(self.kind.as_str(), "TABLE" | "FOREIGN TABLE");
        is_table.then(|| (self.schema.clone(), String::from_utf8_lossy(&self.tag).into_owned()))
    }

    /// The name in `SET client_encoding = 'UTF8';`.
    fn encoding(&self) -> Option<String> {
        let name = self.definition.split(|byte| *byte == b'\'').nth(1)?;
        let is_name = name.len() <= NAME_BYTES && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        is_name.then(|| String::from_utf8_lossy(name).into_owned())
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

impl Dump<'_> {
    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.reader.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    /// A sign, then the digits, least significant first.
    fn int(&mut self) -> io::Result<i64> {
        let is_negative = self.byte()? != 0;
        let mut value = 0_i64;
        for place in 0..self.int_bytes {
            value |= i64::from(self.byte()?) << (8 * place);
        }
        let value = if is_negative { value.checked_neg() } else { Some(value) };
        value.ok_or_else(|| bad("a number in the dump is too large"))
    }

    /// `None` is how the format writes a missing text.
    fn text(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Ok(length) = usize::try_from(self.int()?) else { return Ok(None) };
        if length > TEXT_BYTES {
            return Err(bad("a text in the dump's contents is too long"));
        }
        let mut text = Vec::new();
        Read::take(&mut *self.reader, length as u64).read_to_end(&mut text)?;
        if text.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some(text))
    }

    /// A text that is kept.
    fn name(&mut self) -> io::Result<Option<String>> {
        match self.text()? {
            Some(text) if text.len() > NAME_BYTES => Err(bad("a name in the dump is too long")),
            text => Ok(text.map(|text| String::from_utf8_lossy(&text).into_owned())),
        }
    }

    fn read_head(&mut self) -> io::Result<()> {
        let mut magic = [0; 5];
        self.reader.read_exact(&mut magic)?;
        if &magic != b"PGDMP" {
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
        self.int_bytes = usize::from(self.byte()?);
        self.offset_bytes = usize::from(self.byte()?);
        // Restoring programs read four bytes, whatever is said here.
        if self.int_bytes != 4 || !(1..=16).contains(&self.offset_bytes) {
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
        let mut with_data = BTreeSet::new();
        let count = self.int()?;
        if count < 0 {
            return Err(bad("the dump has a negative number of items"));
        }
        for _ in 0..count {
            let id = self.int()?;
            let has_data = self.int()? != 0;
            let item = self.read_item()?;
            if has_data {
                with_data.insert(id);
                if with_data.len() > ITEMS {
                    return Err(bad("the dump has more items than can be"));
                }
            }
            self.note(item, has_data)?;
        }
        Ok(with_data)
    }

    fn read_item(&mut self) -> io::Result<Item> {
        let (_table_id, _object_id) = (self.text()?, self.text()?);
        let tag = self.text()?.unwrap_or_default();
        let kind = self.name()?.unwrap_or_default();
        if self.version >= (1, 11) {
            let _section = self.int()?;
        }
        let definition = self.text()?.unwrap_or_default();
        let (_removal, _copy_statement) = (self.text()?, self.text()?);
        let schema = self.name()?.unwrap_or_default();
        let tablespace = self.name()?.unwrap_or_default();
        if self.version >= (1, 14) {
            let _access_method = self.text()?;
        }
        if self.version >= (1, 16) {
            let _relation_kind = self.int()?;
        }
        let owner = self.name()?.unwrap_or_default();
        let _with_oids = self.text()?;
        while self.text()?.is_some() {}
        // Where the data lies, which a dump to a pipe cannot know.
        for _ in 0..=self.offset_bytes {
            self.byte()?;
        }
        Ok(Item { tag, kind, definition, schema, tablespace, owner })
    }

    fn note(&mut self, item: Item, has_data: bool) -> io::Result<()> {
        let facts = &mut self.facts;
        facts.tables_with_data += u64::from(has_data && item.kind == "TABLE DATA");
        facts.has_objects |= item.is_object();
        if facts.said_of_objects.len() < SAID {
            facts.said_of_objects.extend(item.said());
        }
        if item.runs_as_owner() {
            let tag: String = String::from_utf8_lossy(&item.tag).chars().take(NAME_BYTES).collect();
            if facts.owner_functions.len() < SAID {
                facts.owner_functions.insert(format!("{}.{tag}", item.schema));
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
        if !item.owner.is_empty() && !item.is_about_database() {
            facts.owners.insert(item.owner);
        }
        facts.schemas.extend(Some(item.schema).filter(|schema| !schema.is_empty()));
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
