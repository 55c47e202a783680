//! Reads a plain stream to its end and checks that it is complete. Backups use this while copying, and verifications
//! while reading back, so that both apply the same definition of complete.

use std::io::{self, Read};

use holdfast_core::content::Content;
use holdfast_core::failure::FailureCode;

use super::index::Entry;
use super::inspected::Inspected;
use super::sql_dumps::{mysql_dump, postgres_cluster};
use super::tar::Reader;
use super::{pgdump, server};
use crate::error::{Result, classify};

/// Reads to the end. Anything missing or out of place is an error with `code`.
pub(crate) fn inspect(
    content: Content,
    reader: &mut dyn Read,
    code: FailureCode,
    on_entry: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> Result<Inspected> {
    let inspected = match content {
        Content::Files => tar(reader, on_entry),
        Content::PostgresDatabase => pgdump::inspect(reader),
        Content::PostgresServer => server::inspect_postgres(reader),
        Content::MysqlServer => server::inspect_mysql(reader),
        Content::PostgresServerSql => postgres_cluster(reader),
        Content::MysqlDatabase | Content::MysqlServerSql => mysql_dump(reader),
        Content::SqliteDatabase => sqlite_database(reader),
    };
    inspected.map_err(|error| classify(&error, code, "The stream is incomplete or damaged"))
}

fn tar(reader: &mut dyn Read, on_entry: &mut dyn FnMut(&Entry) -> io::Result<()>) -> io::Result<Inspected> {
    let mut reader = Reader::new(reader);
    let mut inspected = Inspected::default();
    while let Some((member, place)) = reader.next()? {
        inspected.entries += 1;
        on_entry(&Entry::of(&member, place))?;
    }
    Ok(inspected)
}

/// The first page of an SQLite file contains the page size and the number of pages.
fn sqlite_database(reader: &mut dyn Read) -> io::Result<Inspected> {
    const HEADER_BYTES: usize = 108;
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("incomplete SQLite database: {what}"));
    let mut header = [0; HEADER_BYTES];
    reader.read_exact(&mut header).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => broken("it ends within its header"),
        _ => error,
    })?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(broken("it begins with something else"));
    }
    let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        bytes if bytes >= 512 && bytes.is_power_of_two() => u64::from(bytes),
        _ => return Err(broken("its pages have an impossible size")),
    };
    let expected = page_bytes * u64::from(number(28));
    let found = HEADER_BYTES as u64 + io::copy(reader, &mut io::sink())?;
    if found != expected {
        return Err(broken(&format!("it has {found} bytes of {expected}")));
    }
    // The number of tables, views and indexes that the first page lists, or of the pages that it points to.
    let is_leaf = header[100] == 13;
    let listed = u64::from(u16::from_be_bytes([header[103], header[104]]));
    Ok(Inspected { entries: if is_leaf { listed } else { listed + 1 }, ..Inspected::default() })
}

#[cfg(test)]
mod tests {
    use super::super::tar::{Member, MemberKind, Time, Writer};
    use super::*;

    fn look(content: Content, mut bytes: &[u8]) -> Result<(Inspected, Vec<Entry>)> {
        let mut entries = Vec::new();
        let inspected = inspect(content, &mut bytes, FailureCode::Incomplete, &mut |entry| {
            entries.push(entry.clone());
            Ok(())
        })?;
        Ok((inspected, entries))
    }

    fn sample() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for (name, text) in [("./a", "one"), ("./b c", "two two")] {
            let modified = Time { seconds: 1_000_000_000, nanos: 0 };
            let size = text.len() as u64;
            let member = Member { size, modified, ..Member::new(name.as_bytes(), MemberKind::File) };
            writer.append(&member, &mut text.as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_tar_archive_is_listed_with_offsets() {
        let archive = sample();
        let (inspected, entries) = look(Content::Files, &archive).unwrap();
        assert_eq!(inspected.entries, 2);
        let second = &entries[1];
        assert_eq!((second.path.as_str(), second.size, second.start, second.end), ("b c", 7, 1024, 2048));
        assert_eq!(second.modified_micros, 1_000_000_000_000_000);
    }

    #[test]
    fn a_truncated_tar_archive_is_detected() {
        let archive = sample();
        for length in (0..archive.len() - 512).step_by(256) {
            assert!(look(Content::Files, &archive[..length]).is_err(), "cut at {length}");
        }
        let mut followed = archive.clone();
        followed.extend(b"more");
        assert!(look(Content::Files, &followed).is_err());
    }

    #[test]
    fn a_truncated_sqlite_database_is_detected() {
        let mut file = vec![0; 3 * 1024];
        file[..16].copy_from_slice(b"SQLite format 3\0");
        file[16..18].copy_from_slice(&1024_u16.to_be_bytes());
        file[28..32].copy_from_slice(&3_u32.to_be_bytes());
        file[100] = 13;
        file[104] = 2;
        assert_eq!(look(Content::SqliteDatabase, &file).unwrap().0.entries, 2);
        for length in (0..file.len()).step_by(37) {
            assert!(look(Content::SqliteDatabase, &file[..length]).is_err(), "cut at {length}");
        }
        let longer = [file.as_slice(), b"x"].concat();
        let other = [b"Welcome!\n", file.as_slice()].concat();
        for wrong in [longer, other] {
            assert_eq!(look(Content::SqliteDatabase, &wrong).unwrap_err().code, FailureCode::Incomplete);
        }
    }

    #[test]
    fn a_dump_without_its_last_line_is_found() {
        let whole = b"-- MySQL dump 10\nCREATE TABLE a;\nCREATE TABLE b;\n-- Dump completed on 2025-01-01\n";
        assert_eq!(look(Content::MysqlDatabase, whole).unwrap().0.entries, 2);
        let noise = [b"Welcome!\n", whole.as_slice()].concat();
        let followed = [whole.as_slice(), b"late\n"].concat();
        for cut in [b"CREATE TABLE a;\n".as_slice(), b"", &whole[..40], &whole[17..], &noise, &followed] {
            let error = look(Content::MysqlDatabase, cut).unwrap_err();
            assert_eq!(error.code, FailureCode::Incomplete);
        }
    }
}
