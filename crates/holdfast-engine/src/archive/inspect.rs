//! Reads a plain stream to its end and proves that it is whole. A backup runs this while it copies, a verification
//! while it reads back: what counts as complete is written once.

use std::io::{self, Read};

use holdfast_core::content::Content;
use holdfast_core::run::FailureCode;

use super::index::Entry;
use super::inspected::Inspected;
use super::sql_dumps::{mysql_dump, postgres_cluster};
use super::tar::Reader;
use super::{pgdump, server};
use crate::error::{Result, classify};

/// Reads to the end. Whatever is missing or out of place is an error of class `code`.
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
        Content::PostgresCluster => postgres_cluster(reader),
        Content::MysqlDatabase | Content::MysqlServerDump => mysql_dump(reader),
    };
    inspected.map_err(|error| classify(&error, code, "The stream is not whole"))
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

#[cfg(test)]
mod tests {
    use super::super::tar::{Kind, Member, Time, Writer};
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
            let member = Member { size, modified, ..Member::new(name.as_bytes(), Kind::File) };
            writer.append(&member, &mut text.as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_tar_archive_is_listed_with_its_places() {
        let archive = sample();
        let (inspected, entries) = look(Content::Files, &archive).unwrap();
        assert_eq!(inspected.entries, 2);
        let second = &entries[1];
        assert_eq!((second.path.as_str(), second.size, second.start, second.end), ("b c", 7, 1024, 2048));
        assert_eq!(second.modified_micros, 1_000_000_000_000_000);
    }

    #[test]
    fn a_tar_archive_cut_anywhere_is_found() {
        let archive = sample();
        for length in (0..archive.len() - 512).step_by(256) {
            assert!(look(Content::Files, &archive[..length]).is_err(), "cut at {length}");
        }
        let mut followed = archive.clone();
        followed.extend(b"more");
        assert!(look(Content::Files, &followed).is_err());
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
