//! Entry points for fuzzing the private parsers of untrusted bytes, each with the properties that must hold for any
//! input. Only `cargo xtask fuzz` and the tests call these functions. Each returns whether the input was accepted; a
//! panic is a bug.

use std::collections::BTreeSet;
use std::io::{self, Cursor, Read};

use holdfast_core::Secret;
use holdfast_core::backup::{EntryKind, name_text};

use crate::archive::pgdump::split::split;
use crate::archive::tar::{Member, MemberKind, Part, Reader, Writer};
use crate::archive::{Archive, Choice, Entry, Existing, ExistingKind, Options, Selection, ancestors};
use crate::mysql::definitions::{self, Definition};
use crate::postgres::describe_dump;

/// Splits a dump that was accepted into the items derived from its rows and the rest. Both must be valid dumps.
pub fn split_dump(bytes: &[u8]) {
    let facts = describe_dump(&mut &*bytes).expect("it was accepted before");
    if facts.unknown_version().is_some() {
        return;
    }
    let mut rest = Vec::new();
    let split = split(&mut &*bytes, facts.taken_out, &mut rest).expect("a dump that was accepted can be split");
    let left = describe_dump(&mut rest.as_slice()).expect("what is left is a dump");
    assert_eq!((left.taken_out, left.tables), (0, facts.tables), "something else was taken out");
    let apart = split.dump(split.parts.iter());
    let apart = describe_dump(&mut apart.as_slice()).expect("what was taken out is a dump");
    assert_eq!((apart.taken_out, apart.tables_with_data), (facts.taken_out, 0), "something else was taken out");
}

/// The limit for unpacked data: inputs are small, but they may expand to much more.
const PLAIN_BYTES: u64 = 16 * 1024 * 1024;

/// Reads a tar archive and writes every member to a copy. Reading the copy must give the same members with the same
/// data, and nothing else, even if the input turns out to be damaged half-way.
pub fn tar(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    let mut writer = Writer::new(Vec::new());
    let mut members = Vec::new();
    let accepted = loop {
        match reader.next() {
            Ok(Some((member, place))) => {
                assert!(place.start < place.end, "a member has no place");
                members.push(member);
            }
            Ok(None) => break true,
            Err(_) => break false,
        }
        let member = members.last().expect("one was just added");
        let written = match member.kind {
            MemberKind::File => writer.append(member, &mut reader),
            _ => writer.append(member, &mut io::empty()),
        };
        if written.is_err() {
            break false;
        }
    };
    let written = if accepted { writer.finish().expect("memory takes everything") } else { writer.get_mut().clone() };
    let mut again = Reader::new(written.as_slice());
    let mut read = 0;
    loop {
        match again.next() {
            Ok(Some((member, _))) => {
                assert!(read < members.len(), "the copy has one member more: {member:?}");
                assert_eq!(normal(&member), normal(&members[read]), "the copy of a member differs");
                read += 1;
            }
            Ok(None) => break,
            Err(error) => {
                assert!(!accepted, "the copy of a good archive cannot be read: {error}");
                break;
            }
        }
    }
    assert!(!accepted || read == members.len(), "the copy has fewer members");
    if accepted {
        assert!(same_data(bytes, &written), "the data of a member differs");
    }
    accepted
}

/// Normalises what the writer changes on purpose: it omits user and group names that do not fit into a header, and
/// writes an empty sparse map as a single empty part.
fn normal(member: &Member) -> Member {
    let mut member = member.clone();
    for name in [&mut member.user, &mut member.group] {
        if name.len() >= 32 {
            name.clear();
        }
    }
    let end = Part { offset: member.size, length: 0 };
    if let Some(parts) = member.parts.as_mut().filter(|parts| parts.is_empty()) {
        parts.push(end);
    }
    member
}

fn same_data(left: &[u8], right: &[u8]) -> bool {
    let (mut left, mut right) = (Reader::new(left), Reader::new(right));
    while let (Ok(Some(_)), Ok(Some(_))) = (left.next(), right.next()) {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        if left.read_to_end(&mut one).is_err() || right.read_to_end(&mut other).is_err() || one != other {
            return false;
        }
    }
    true
}

/// What to restore from an archive, and what its index claims in addition to its members.
#[derive(Debug, Default)]
pub struct Asked {
    pub choice: Vec<String>,
    /// Path and target of hard links that are only in the index.
    pub links: Vec<(String, String)>,
    pub overwrite: bool,
    pub restore_devices: bool,
    pub with_root: bool,
    /// Paths that exist in the target, alternately as links, files and folders; `None` is an empty target.
    pub existing: Option<Vec<String>>,
}

/// Lets a selection decide on every member of a tar archive. Nothing that it lets through may leave the target or lead
/// through a link, whether from the archive or already in the target.
pub fn selection(asked: &Asked, archive: &[u8]) -> bool {
    let mut entries: Vec<Entry> = asked.links.iter().map(|(path, link)| hard_link(path, link)).collect();
    let mut reader = Reader::new(archive);
    while let Ok(Some((member, place))) = reader.next() {
        entries.push(Entry::of(&member, place));
    }
    let mut in_the_way = BTreeSet::new();
    let existing = asked.existing.as_ref().map(|paths| occupied(&entries, paths, &mut in_the_way));
    let Asked { overwrite, restore_devices, with_root, .. } = *asked;
    let options = Options { overwrite, restore_devices, with_owners: true, with_root, ..Options::default() };
    let mut selection = Selection::new(Choice::new(&asked.choice), options, existing, |_, _| {});
    if !entries.iter().all(|entry| selection.expect(entry).is_ok()) {
        return false;
    }
    // Every path at which the archive has put a symbolic link, including hard links to one.
    let mut symlinks: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut reader = Reader::new(archive);
    loop {
        let member = match reader.next() {
            Ok(Some((member, _))) => member,
            Ok(None) => return true,
            Err(_) => return false,
        };
        match selection.decide(&member) {
            Ok(Some(written)) => check_written(&written, &mut symlinks, &in_the_way),
            Ok(None) => {}
            Err(_) => return false,
        }
    }
}

fn hard_link(path: &str, link: &str) -> Entry {
    Entry {
        path: path.to_owned(),
        kind: EntryKind::Hardlink,
        size: 0,
        modified_micros: 0,
        link: Some(link.to_owned()),
        is_device: None,
        start: 0,
        end: 0,
    }
}

/// A target in which every entry was looked up. `in_the_way` receives the paths that nothing may be written through.
fn occupied(entries: &[Entry], paths: &[String], in_the_way: &mut BTreeSet<Vec<u8>>) -> Existing {
    let mut existing = Existing::default();
    for entry in entries {
        for path in ancestors(&entry.path).chain([entry.path.as_str()]) {
            existing.set(existing.key(path), ExistingKind::Nothing);
        }
    }
    for (at, path) in paths.iter().enumerate() {
        let kind = [ExistingKind::Symlink, ExistingKind::File, ExistingKind::Directory][at % 3];
        let bytes = holdfast_core::backup::name_bytes(path);
        existing.set(existing.key(&name_text(&bytes)), kind);
        if kind == ExistingKind::Directory {
            in_the_way.remove(&bytes)
        } else {
            in_the_way.insert(bytes)
        };
    }
    existing
}

fn check_written(written: &Member, symlinks: &mut BTreeSet<Vec<u8>>, in_the_way: &BTreeSet<Vec<u8>>) {
    let path = inside(&written.path);
    let shown = name_text(&written.path);
    for above in folders_above(&path) {
        assert!(!symlinks.contains(above), "{shown} leads through a link of the archive");
        assert!(!in_the_way.contains(above), "{shown} leads through a link of the target");
    }
    let is_link = written.kind == MemberKind::Symlink;
    assert!(is_link || !symlinks.contains(&path), "{shown} is written over a link of the archive");
    let mut becomes_link = is_link;
    if written.kind == MemberKind::Hardlink {
        let target = inside(&written.link);
        assert!(!folders_above(&target).any(|above| symlinks.contains(above)), "{shown} links through a link");
        becomes_link = symlinks.contains(&target);
    }
    if becomes_link {
        symlinks.insert(path);
    }
}

/// A path below the target, as passed to the remote tar.
fn inside(path: &[u8]) -> Vec<u8> {
    assert!(path == b"." || path.starts_with(b"./"), "{} is not below the target", name_text(path));
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    assert!(!parts.contains(&b"..".as_slice()) && !path.contains(&0), "{} leaves the target", name_text(path));
    parts.join(&b'/')
}

fn folders_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at])
}

/// Opens a stored object in all the ways that backups are read: index, entries, the last entry, and the whole stream.
pub fn archive(object: &[u8], password: Option<&Secret>) -> bool {
    let Ok(mut archive) = Archive::open(Cursor::new(object), password) else { return false };
    let mut last = None;
    let visited = archive.visit_entries(&mut |entry| {
        last = Some(entry.clone());
        Ok(true)
    });
    if let (Some(entry), Ok(ending)) = (last, &visited) {
        let frames = ending.as_ref().map(|ending| ending.frames.clone()).unwrap_or_default();
        if let Ok(stretch) = archive.stretch(&frames, entry.start, entry.end) {
            let _damaged = io::copy(&mut stretch.take(PLAIN_BYTES), &mut io::sink());
        }
        let found = archive.find(&entry.path);
        assert!(entry.path.starts_with('/') || entry.path.ends_with('/') || found.is_ok(), "an entry is lost");
    }
    let Ok(plain) = archive.plain() else { return false };
    let is_read = io::copy(&mut plain.take(PLAIN_BYTES), &mut io::sink()).is_ok();
    is_read && visited.is_ok()
}

/// Parses the output of `find` on a server: the result must not depend on how the output is split into pieces.
pub fn listing(excluded: &[String], bytes: &[u8], piece: usize) -> bool {
    let source = crate::FilesSource { path: "/srv".to_owned(), excluded: excluded.to_vec(), one_file_system: false };
    let whole = crate::source::files::count([bytes], &source);
    let pieces = crate::source::files::count(bytes.chunks(piece.max(1)), &source);
    assert_eq!(whole, pieces, "the count depends on how the listing is cut");
    whole.is_some()
}

/// Rewrites a dump of MySQL or MariaDB in all supported ways: the result must not depend on how the input is split into
/// pieces, and a truncated statement is an error.
pub fn mysql_dump(bytes: &[u8]) -> bool {
    let mut is_accepted = true;
    for number in 0..8 {
        let whole = crate::mysql::rewriting::rewritten(number, &mut &*bytes);
        let mut pieces = Pieces { bytes, length: 1 + bytes.len() % 7 };
        let in_pieces = crate::mysql::rewriting::rewritten(number, &mut pieces);
        assert_eq!(whole.is_ok(), in_pieces.is_ok(), "a dump is understood differently in pieces");
        is_accepted &= whole.is_ok();
        if let (Ok(whole), Ok(in_pieces)) = (whole, in_pieces) {
            assert!(whole == in_pieces, "a dump is rewritten differently in pieces");
            whole.1.into_iter().for_each(mysql_definition);
            let is_made = |line: &&[u8]| line.starts_with(b"/* TABLE ") || line.starts_with(b"/* SEQUENCE");
            let made = whole.0.split_inclusive(|byte| *byte == b'\n').take_while(is_made);
            assert!(made.into_iter().all(<[u8]>::is_ascii), "what people wrote is not in digits");
        }
    }
    is_accepted
}

/// Adapts a routine, trigger, view or event to other databases in all supported ways: it must remain a single statement
/// of its kind.
fn mysql_definition(definition: Definition) {
    let _unclear = definition.delimited("~");
    definition.part_in_utf8("comment");
    let mine = definition.clone().without_definer();
    assert!(mine.definer().is_none() || definition.kind == definitions::DefinitionKind::View, "a definer stayed");
    for definition in [Some(definition.clone()), Some(mine), definition.moved("shop", "copy")].into_iter().flatten() {
        let line = definition.line();
        assert!(line.is_ascii() && line.find('\n') == Some(line.len() - 1), "what people wrote is not in digits");
        if definition.kind == definitions::DefinitionKind::View {
            assert!(
                definition.view("d".to_owned()).sql_with_database().is_ascii(),
                "what people wrote is not in digits"
            );
        }
    }
}

struct Pieces<'a> {
    bytes: &'a [u8],
    length: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.length);
        self.bytes.read(&mut buffer[..length])
    }
}
