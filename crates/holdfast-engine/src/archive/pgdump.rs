//! Walks a dump in PostgreSQL's custom format to its last block.
//!
//! Such a dump has no footer, and `pg_restore --list` reads no further than the table of contents at its beginning. So
//! we read the contents for what data must follow, and then every data block to its end: a dump that stops early, also
//! exactly between two blocks, is found.

use std::collections::BTreeSet;
use std::io::{self, Read};

use super::inspect::Inspected;

/// From 8.0's form to the newest we know.
const OLDEST: (u8, u8) = (1, 10);
const NEWEST: (u8, u8) = (1, 16);
const CUSTOM_FORMAT: u8 = 1;
const DATA_BLOCK: u8 = 1;
const BLOBS_BLOCK: u8 = 3;
/// The text of one object's definition; views of a megabyte have been seen.
const TEXT_BYTES: usize = 64 * 1024 * 1024;
/// Items with data; each is remembered until it is met.
const ITEMS: usize = 2_000_000;

pub(super) fn inspect(reader: &mut dyn Read) -> io::Result<Inspected> {
    let mut dump = Dump { reader, int_bytes: 4, offset_bytes: 8, version: (0, 0) };
    dump.read_head()?;
    if dump.version > NEWEST {
        let (major, minor) = dump.version;
        io::copy(dump.reader, &mut io::sink())?;
        let note = format!(
            "This dump is of version {major}.{minor}, newer than this Holdfast knows; its end is vouched for by \
             pg_dump's exit status alone."
        );
        return Ok(Inspected { entries: 0, notes: vec![note] });
    }
    let mut expected = dump.read_contents()?;
    let entries = expected.len() as u64;
    while let Some(id) = dump.read_block()? {
        expected.remove(&id);
    }
    if let Some(missing) = expected.first() {
        return Err(bad(&format!("the dump ends before the data of its item {missing}")));
    }
    Ok(Inspected { entries, notes: Vec::new() })
}

struct Dump<'a> {
    reader: &'a mut dyn Read,
    int_bytes: usize,
    offset_bytes: usize,
    version: (u8, u8),
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
        Ok(if is_negative { -value } else { value })
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

    fn read_head(&mut self) -> io::Result<()> {
        let mut magic = [0; 5];
        self.reader.read_exact(&mut magic)?;
        if &magic != b"PGDMP" {
            return Err(bad("this is no dump in PostgreSQL's custom format"));
        }
        self.version = (self.byte()?, self.byte()?);
        let _revision = self.byte()?;
        if self.version > NEWEST {
            return Ok(());
        }
        if self.version < OLDEST {
            return Err(bad("this dump is of a version before PostgreSQL 8"));
        }
        self.int_bytes = usize::from(self.byte()?);
        self.offset_bytes = usize::from(self.byte()?);
        if !(1..=8).contains(&self.int_bytes) || !(1..=16).contains(&self.offset_bytes) {
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
        // Database, server version, version of pg_dump.
        for _ in 0..3 {
            self.text()?;
        }
        Ok(())
    }

    /// The ids of the items whose data must follow.
    fn read_contents(&mut self) -> io::Result<BTreeSet<i64>> {
        let mut with_data = BTreeSet::new();
        for _ in 0..self.int()? {
            let id = self.int()?;
            let has_data = self.int()? != 0;
            // Table and object id, tag, kind.
            for _ in 0..4 {
                self.text()?;
            }
            if self.version >= (1, 11) {
                let _section = self.int()?;
            }
            // Definition, removal, copy statement, schema, tablespace.
            for _ in 0..5 {
                self.text()?;
            }
            if self.version >= (1, 14) {
                let _access_method = self.text()?;
            }
            if self.version >= (1, 16) {
                let _relation_kind = self.int()?;
            }
            let _owner = self.text()?;
            let _with_oids = self.text()?;
            while self.text()?.is_some() {}
            // Where the data lies, which a dump to a pipe cannot know.
            for _ in 0..=self.offset_bytes {
                self.byte()?;
            }
            if has_data {
                with_data.insert(id);
                if with_data.len() > ITEMS {
                    return Err(bad("the dump has more items than can be"));
                }
            }
        }
        Ok(with_data)
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
