//! What a server sends is stored with our own headers; inconsistencies are refused or reported.

use super::super::tar::{Time, Writer};
use super::*;

/// A source with one archive, from which nothing can be read again.
struct Once<'a>(&'a [u8]);

impl Read for Once<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Readings for Once<'_> {
    fn again(&mut self, _files: &[Member]) -> io::Result<Option<Vec<usize>>> {
        Ok(None)
    }

    fn passed(&mut self, _file: &Member) {}
}

fn member(kind: MemberKind, path: &str, link: &str) -> Member {
    let modified = Time { seconds: 1_000_000_000, nanos: 0 };
    Member { link: link.as_bytes().to_vec(), modified, ..Member::new(path.as_bytes(), kind) }
}

/// The names that were stored, and the warnings.
fn repacked(members: &[Member]) -> io::Result<(Vec<String>, Vec<String>)> {
    let mut writer = Writer::new(Vec::new());
    for member in members {
        writer.append(member, &mut io::repeat(b'x')).unwrap();
    }
    let archive = writer.finish().unwrap();
    let mut names = Vec::new();
    let mut on_entry = |entry: &Entry| {
        names.push(entry.path.clone());
        Ok(())
    };
    let inspected = repack(&mut Once(&archive), &mut Nowhere, &mut on_entry)?;
    Ok((names, inspected.warnings))
}

/// Reads each member, and keeps nothing.
struct Nowhere;

impl MemberSink for Nowhere {
    fn put(&mut self, _member: &Member, data: &mut dyn Read) -> io::Result<MemberRange> {
        io::copy(data, &mut io::sink())?;
        Ok(MemberRange { start: 0, end: 0 })
    }
}

#[test]
fn paths_and_names_that_few_systems_accept_are_reported() {
    let name = "n".repeat(255);
    let path = |length: usize| "a/".repeat(length / 2 + 1)[..length].to_owned();
    for (path, is_told) in [(name.clone(), false), (name + "n", true), (path(4093), false), (path(4095), true)] {
        let (names, warnings) = repacked(&[member(MemberKind::File, &format!("./{path}"), "")]).unwrap();
        assert_eq!((names.len(), warnings.len()), (1, usize::from(is_told)), "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.contains(&format!(": a path of {} bytes", path.len()))));
    }
    let many: Vec<Member> =
        (0..30).map(|number| member(MemberKind::File, &format!("./{number}{}", "n".repeat(300)), "")).collect();
    let (_, warnings) = repacked(&many).unwrap();
    assert_eq!((warnings.len(), warnings.last().unwrap().as_str()), (21, "10 more paths or names are as long"));
}

/// What cannot be restored must not count as backed up.
#[test]
fn a_hard_link_to_a_missing_file_is_refused() {
    let (file, folder) = (member(MemberKind::File, "./a", ""), member(MemberKind::Directory, "./d", ""));
    let link = |path: &str, to: &str| member(MemberKind::Hardlink, path, to);
    let good = [file.clone(), folder.clone(), link("./b", "a"), link("./d/c", "././a"), link("./e", "./b")];
    assert_eq!(repacked(&good).unwrap().0, ["a", "d", "b", "d/c", "e"]);
    let symlink = member(MemberKind::Symlink, "./s", "nowhere");
    repacked(&[symlink, link("./t", "./s")]).unwrap();
    for bad in [
        vec![link("./a", "./a")],
        vec![file.clone(), link("./b", "./missing")],
        vec![link("./b", "./a"), file.clone()],
        vec![file.clone(), folder, link("./b", "./d")],
        vec![file, link("./b", "./b")],
    ] {
        let error = repacked(&bad).unwrap_err().to_string();
        assert!(error.contains("which did not come before it"), "{error}");
    }
}

#[test]
fn names_that_arrived_are_always_recognised_and_hardly_any_others() {
    let mut seen = BloomFilter::default();
    let name = |number: u32| format!("folder/{number}").into_bytes();
    (0..200_000).for_each(|number| seen.note(&name(number)));
    assert!((0..200_000).all(|number| seen.has(&name(number))));
    let mistaken = (200_000..300_000).filter(|number| seen.has(&name(*number))).count();
    assert!(mistaken < 50, "{mistaken} of 100,000");
}

#[test]
fn what_waits_for_a_second_reading_is_bounded() {
    let hole = Member { size: 1 << 20, parts: Some(Vec::new()), ..member(MemberKind::File, "./h", "") };
    let mut link = member(MemberKind::Hardlink, "./l", "./h");
    link.attributes = vec![(b"SCHILY.xattr.user.a".to_vec(), vec![b'x'; 3_000_000])];
    let of = |links: usize| [vec![hole.clone()], vec![link.clone(); links]].concat();
    assert!(repacked(&of(10)).is_ok());
    let refused = repacked(&of(50)).unwrap_err();
    assert!(refused.to_string().contains("too many files that seem to be nothing but holes"), "{refused}");
}

#[test]
fn the_source_itself_is_a_folder() {
    let refused = repacked(&[member(MemberKind::Symlink, ".", "/etc")]).unwrap_err();
    assert!(refused.to_string().contains("not a folder"), "{refused}");
    assert!(repacked(&[member(MemberKind::Directory, ".", "")]).is_ok());
}
