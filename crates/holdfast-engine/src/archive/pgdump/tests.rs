//! Hand-made dumps of every version; those of a real `pg_dump` are in the integration tests.

use proptest::prelude::*;

use super::*;

/// Writes a dump like the `pg_dump` of that version.
struct Writer {
    version: (u8, u8),
    out: Vec<u8>,
}

/// Kind, tag, schema, owner, definition and data.
type Line<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, Option<&'a [u8]>);

impl Writer {
    fn int(&mut self, value: i64) {
        self.out.push(u8::from(value < 0));
        let digits = u32::try_from(value.unsigned_abs()).unwrap();
        self.out.extend(digits.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.int(i64::try_from(text.len()).unwrap());
        self.out.extend(text.as_bytes());
    }

    fn write(minor: u8, lines: &[Line<'_>]) -> Vec<u8> {
        let mut dump = Self { version: (1, minor), out: b"PGDMP".to_vec() };
        dump.out.extend([1, minor, 0, 4, 8, CUSTOM_FORMAT]);
        if dump.version >= (1, 15) {
            dump.out.push(0);
        } else {
            dump.int(0);
        }
        (0..7).for_each(|_| dump.int(1));
        ["my-app", "15.1 (server)", "16.2 (tool)"].into_iter().for_each(|text| dump.text(text));
        dump.int(i64::try_from(lines.len()).unwrap());
        for (id, line) in (1..).zip(lines) {
            dump.item(id, line);
        }
        for (id, line) in (1..).zip(lines) {
            if let Some(data) = line.5 {
                dump.out.push(DATA_BLOCK);
                dump.int(id);
                dump.int(i64::try_from(data.len()).unwrap());
                dump.out.extend(data);
                dump.int(0);
            }
        }
        dump.out
    }

    fn item(&mut self, id: i64, (kind, tag, schema, owner, definition, data): &Line<'_>) {
        self.int(id);
        self.int(data.is_some().into());
        ["0", "0", tag, kind].into_iter().for_each(|text| self.text(text));
        self.int(2);
        self.text(definition);
        self.text("");
        self.int(-1);
        self.text(schema);
        self.text(if *kind == "TABLE" { "fast" } else { "" });
        if self.version >= (1, 14) {
            self.int(-1);
        }
        if self.version >= (1, 16) {
            self.int(114);
        }
        self.text(owner);
        self.text("false");
        self.text("3");
        self.int(-1);
        self.out.extend([0; 9]);
    }
}

const ENCODING: Line<'_> = ("ENCODING", "ENCODING", "", "", "SET client_encoding = 'LATIN1';\n", None);
const TABLE: Line<'_> = ("TABLE", "t", "public", "app", "CREATE TABLE t ();", None);
const DATA: Line<'_> = ("TABLE DATA", "t", "public", "app", "", Some(b"1\n\\.\n"));
const VIEW: Line<'_> = ("VIEW", "v", "other", "ro\"le", "CREATE VIEW v;", None);

#[test]
fn the_contents_of_every_version_are_read() {
    for minor in 11..=16 {
        let dump = Writer::write(minor, &[ENCODING, TABLE, DATA, VIEW]);
        let facts = describe(&mut dump.as_slice()).unwrap();
        assert_eq!(facts.format_version, (1, minor, 0));
        assert_eq!(facts.database.as_deref(), Some("my-app"));
        assert_eq!(facts.server_version.as_deref(), Some("15.1 (server)"));
        assert_eq!(facts.dump_version.as_deref(), Some("16.2 (tool)"));
        assert_eq!(facts.encoding.as_deref(), Some("LATIN1"));
        assert_eq!(facts.owners, BTreeSet::from(["app".to_owned(), "ro\"le".to_owned()]));
        assert_eq!(facts.schemas, BTreeSet::from(["other".to_owned(), "public".to_owned()]));
        assert_eq!(facts.tablespaces, BTreeSet::from(["fast".to_owned()]));
        assert_eq!((facts.tables_with_data, facts.kinds["TABLE"], facts.has_objects), (1, 1, true));
        assert_eq!(inspect(&mut dump.as_slice()).unwrap().entries, 1);
    }
}

#[test]
fn a_dump_of_an_empty_database_has_no_objects() {
    let lines: [Line<'_>; 4] = [
        ENCODING,
        ("DATABASE", "x", "", "postgres", "CREATE DATABASE x;", None),
        ("SCHEMA", "public", "", "maker", "CREATE SCHEMA public;", None),
        ("COMMENT", "EXTENSION plpgsql", "", "", "COMMENT ON EXTENSION plpgsql IS '';", None),
    ];
    let facts = describe(&mut Writer::write(14, &lines).as_slice()).unwrap();
    assert!(!facts.has_objects && facts.said_of_objects.is_empty());
    let right: Line<'_> = ("ACL", "SCHEMA public", "", "maker", "REVOKE ALL ON SCHEMA public FROM PUBLIC;", None);
    let about: Line<'_> = ("ACL", "DATABASE x", "", "maker", "REVOKE ALL ON DATABASE x FROM PUBLIC;", None);
    let told = describe(&mut Writer::write(14, &[ENCODING, right, about]).as_slice()).unwrap();
    assert!(!told.has_objects && told.said_of_objects == BTreeSet::from(["ACL SCHEMA public".to_owned()]));
    assert_eq!(facts.owners, BTreeSet::from(["maker".to_owned()]));
    let schema: Line<'_> = ("SCHEMA", "app", "", "postgres", "CREATE SCHEMA app;", None);
    assert!(describe(&mut Writer::write(14, &[ENCODING, schema]).as_slice()).unwrap().has_objects);
}

#[test]
fn a_dump_truncated_anywhere_is_detected() {
    let dump = Writer::write(16, &[ENCODING, TABLE, DATA, VIEW]);
    for length in 0..dump.len() {
        assert!(describe(&mut &dump[..length]).is_err(), "cut at {length}");
    }
}

#[test]
fn impossible_sizes_and_numbers_are_refused() {
    let dump = Writer::write(14, &[TABLE]);
    let changed = |place: usize, bytes: &[u8]| {
        let mut dump = dump.clone();
        dump[place..place + bytes.len()].copy_from_slice(bytes);
        describe(&mut dump.as_slice())
    };
    const INT_BYTES: usize = 8;
    const HEAD: usize = 11 + 8 * 5;
    assert!(changed(INT_BYTES, &[0]).is_err() && changed(INT_BYTES, &[9]).is_err());
    // The length of the database's name.
    assert!(changed(HEAD, &[0, 0xff, 0xff, 0xff, 0x7f]).is_err());
    assert!(changed(HEAD, &[0, 0, 1, 0, 0]).is_err());
    let count = HEAD + 3 * 5 + "my-app15.1 (server)16.2 (tool)".len();
    assert!(changed(count, &[1, 1, 0, 0, 0]).is_err(), "a negative number of items");
    assert!(changed(count, &[0, 2, 0, 0, 0]).is_err(), "an item too few");
    let long = "x".repeat(NAME_BYTES + 1);
    let owned: Line<'_> = ("TABLE", "t", "public", &long, "", None);
    assert!(describe(&mut Writer::write(14, &[owned]).as_slice()).is_err());
}

#[test]
fn a_newer_version_is_read_to_its_end_and_noted() {
    let mut dump = Writer::write(16, &[TABLE]);
    dump[6] = 17;
    assert_eq!(describe(&mut dump.as_slice()).unwrap().format_version, (1, 17, 0));
    assert_eq!(inspect(&mut dump.as_slice()).unwrap().notes.len(), 1);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut dump = Writer::write(16, &[ENCODING, TABLE, DATA, VIEW]);
        for (place, byte) in changes {
            let place = place.index(dump.len());
            dump[place] = byte;
        }
        let _ = describe(&mut dump.as_slice());
    }

    #[test]
    fn no_numbers_make_it_panic(int_bytes in 1..=8_u8, rest in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut dump = b"PGDMP\x01\x0e\x00".to_vec();
        dump.extend([int_bytes, 8, CUSTOM_FORMAT]);
        dump.extend(rest);
        let _ = describe(&mut dump.as_slice());
    }
}
