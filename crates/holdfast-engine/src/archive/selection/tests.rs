//! What a restore writes, given what was requested and what exists.

use std::sync::{Arc, Mutex};

use super::super::forward::forward;
use super::super::tar::{MemberRange, Reader, Writer};
use super::*;
use crate::error::carried;

fn archive(members: &[(MemberKind, &str, &str, &str)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (kind, path, link, text) in members {
        let size = text.len() as u64;
        let member = Member { link: link.as_bytes().to_vec(), size, ..Member::new(path.as_bytes(), *kind) };
        writer.append(&member, &mut text.as_bytes()).unwrap();
    }
    writer.finish().unwrap()
}

type Noted = Arc<Mutex<Vec<(String, SkipReason)>>>;

fn select(wanted: &[&str], options: Options, existing: Option<&[(&str, ExistingKind)]>) -> (Selection, Noted) {
    let wanted: Vec<String> = wanted.iter().map(|path| (*path).to_owned()).collect();
    let existing = existing.map(|known| {
        let mut existing = Existing::default();
        for (path, kind) in known {
            existing.set(existing.key(path), *kind);
        }
        existing
    });
    let skipped = Noted::default();
    let noting = skipped.clone();
    let on_skipped = move |path: &str, why| noting.lock().unwrap().push((path.to_owned(), why));
    (Selection::new(Choice::new(&wanted), options, existing, on_skipped), skipped)
}

/// Name, content and link of everything that a selection lets through.
fn passed(selection: &mut Selection, archive: &[u8]) -> Result<Vec<(String, String)>, EngineError> {
    let place = MemberRange { start: 0, end: 0 };
    let mut reader = Reader::new(archive);
    while let Some((member, _)) = reader.next().unwrap() {
        selection.expect(&Entry::of(&member, place))?;
    }
    let mut out = Vec::new();
    forward(&mut &archive[..], selection, &mut |_| {}, (&mut out, false))?;
    let mut reader = Reader::new(out.as_slice());
    let mut found = Vec::new();
    while let Some((member, _)) = reader.next().unwrap() {
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        let link = String::from_utf8(member.link).unwrap();
        found.push((String::from_utf8(member.path).unwrap(), format!("{text}{link}")));
    }
    Ok(found)
}

fn names(found: &[(String, String)]) -> Vec<&str> {
    found.iter().map(|(name, _)| name.as_str()).collect()
}

const FILE: MemberKind = MemberKind::File;
const DIR: MemberKind = MemberKind::Directory;
const LINK: MemberKind = MemberKind::Symlink;
const HARD: MemberKind = MemberKind::Hardlink;

#[test]
fn hostile_members_are_refused_when_they_are_chosen() {
    let hostile: [&[(MemberKind, &str, &str, &str)]; 8] = [
        &[(FILE, "../evil", "", "x")],
        &[(FILE, "/etc/evil", "", "x")],
        &[(FILE, "a/../../evil", "", "x")],
        &[(LINK, "a", "/etc", ""), (FILE, "a/evil", "", "x")],
        &[(LINK, "./a", "/etc/passwd", ""), (FILE, "a", "", "x")],
        &[(HARD, "a", "../../etc/shadow", "")],
        &[(HARD, "a", "/etc/shadow", "")],
        &[(HARD, "a", "elsewhere", "")],
    ];
    for members in hostile {
        let (mut selection, _) = select(&[], Options::default(), Some(&[("a", ExistingKind::Nothing)]));
        let error = passed(&mut selection, &archive(members)).unwrap_err();
        assert_eq!(error.code, FailureCode::HostileArchive, "{members:?}");
        let others = [members, &[(FILE, "fine", "", "x")]].concat();
        let (mut selection, _) = select(&["fine"], Options::default(), None);
        assert_eq!(names(&passed(&mut selection, &archive(&others)).unwrap()), ["./fine"], "{members:?}");
    }
    let error: io::Error = hostile_error().into();
    assert!(carried(&error).is_some());
}

fn hostile_error() -> EngineError {
    hostile("x", "y")
}

#[test]
fn a_device_is_named_and_left_unless_it_is_asked_for() {
    let device = MemberKind::CharDevice { major: 0, minor: 0 };
    let members = archive(&[(device, "./null", "", ""), (FILE, "./a", "", "x"), (MemberKind::Fifo, "./pipe", "", "")]);
    let (mut selection, skipped) = select(&[], Options::default(), None);
    assert_eq!(names(&passed(&mut selection, &members).unwrap()), ["./a", "./pipe"]);
    assert_eq!(*skipped.lock().unwrap(), [("null".to_owned(), SkipReason::Device)]);
    assert_eq!(selection.counted(), Counted { restored: 2, kept: 0, skipped: 1 });
    let (mut selection, _) = select(&[], Options { restore_devices: true, ..Options::default() }, None);
    assert_eq!(names(&passed(&mut selection, &members).unwrap()), ["./null", "./a", "./pipe"]);
}

#[test]
fn a_requested_hard_link_brings_its_content_and_no_sibling() {
    let members =
        archive(&[(FILE, "./first", "", "text"), (HARD, "./second", "./first", ""), (HARD, "./third", "./first", "")]);
    let (mut selection, _) = select(&["second", "third"], Options::default(), None);
    let found = passed(&mut selection, &members).unwrap();
    let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(found, [pair("./second", "text"), pair("./third", "./second")]);
    assert_eq!(selection.counted().restored, 2);
    // The file itself is not written: its name is already taken in the target.
    let existing = [("first", ExistingKind::File), ("second", ExistingKind::Nothing), ("third", ExistingKind::Nothing)];
    let (mut selection, _) = select(&[], Options::default(), Some(&existing));
    assert_eq!(passed(&mut selection, &members).unwrap(), found);
    assert_eq!(selection.counted(), Counted { restored: 2, kept: 1, skipped: 0 });
}

#[test]
fn nothing_is_written_through_links_of_the_target_nor_over_folders() {
    let members = archive(&[
        (DIR, "./conf", "", ""),
        (FILE, "./conf/a", "", "x"),
        (FILE, "./data", "", "x"),
        (DIR, "./logs", "", ""),
        (FILE, "./logs/b", "", "x"),
        (FILE, "./new", "", "x"),
    ]);
    let existing = [
        ("conf", ExistingKind::Symlink),
        ("conf/a", ExistingKind::File),
        ("data", ExistingKind::Directory),
        ("logs", ExistingKind::File),
        ("new", ExistingKind::Symlink),
    ];
    for overwrite in [true, false] {
        let options = Options { overwrite, ..Options::default() };
        let (mut selection, skipped) = select(&[], options, Some(&existing));
        let found = passed(&mut selection, &members).unwrap();
        // A link where the backup has a file is replaced by the file, never followed.
        assert_eq!(names(&found), if overwrite { vec!["./new"] } else { vec![] });
        let skipped = skipped.lock().unwrap().clone();
        let why = |path: &str| skipped.iter().find(|(found, _)| found == path).map(|(_, why)| *why);
        assert_eq!(why("conf"), Some(SkipReason::LinkInTheWay));
        assert_eq!(why("conf/a"), Some(SkipReason::ThroughLink));
        assert_eq!(why("data"), Some(SkipReason::FolderInTheWay));
        assert_eq!(why("logs"), Some(SkipReason::FileInTheWay));
        assert_eq!(why("logs/b"), Some(SkipReason::BelowFile));
        assert_eq!(why("new"), (!overwrite).then_some(SkipReason::Kept));
    }
}

#[test]
fn folders_on_the_way_stay_as_they_are_and_missing_ones_are_made() {
    let members =
        archive(&[(DIR, ".", "", ""), (DIR, "./a", "", ""), (DIR, "./a/b", "", ""), (FILE, "./a/b/c", "", "x")]);
    let options = Options { overwrite: true, ..Options::default() };
    let there = [("a", ExistingKind::Directory), ("a/b", ExistingKind::Nothing), ("a/b/c", ExistingKind::Nothing)];
    let (mut selection, _) = select(&["a/b/c"], options, Some(&there));
    assert_eq!(names(&passed(&mut selection, &members).unwrap()), ["./a/b", "./a/b/c"]);
    // Paths that were not looked up in the target are not touched.
    let (mut selection, _) = select(&[], options, Some(&there[..1]));
    assert_eq!(names(&passed(&mut selection, &members).unwrap()), ["./a"]);
    assert_eq!(selection.counted(), Counted { restored: 1, kept: 2, skipped: 0 });
}

#[test]
fn a_dry_run_counts_what_a_restore_does() {
    let members = archive(&[(DIR, "./d", "", ""), (FILE, "./d/a", "", "x"), (FILE, "./d/b", "", "x")]);
    let existing = [("d", ExistingKind::Directory), ("d/a", ExistingKind::File), ("d/b", ExistingKind::Nothing)];
    let (mut selection, _) = select(&[], Options::default(), Some(&existing));
    passed(&mut selection, &members).unwrap();
    let (mut previewed, _) = select(&[], Options::default(), Some(&existing));
    let mut reader = Reader::new(members.as_slice());
    while let Some((member, place)) = reader.next().unwrap() {
        previewed.preview(&Entry::of(&member, place));
    }
    assert_eq!(previewed.counted(), selection.counted());
    assert_eq!(previewed.counted(), Counted { restored: 1, kept: 2, skipped: 0 });
}

/// A dry run predicts everything that is restored or skipped, including hard links to devices, such as the whiteouts of
/// overlay file systems.
#[test]
fn a_dry_run_reports_what_becomes_of_pipes_and_devices() {
    let device = MemberKind::BlockDevice { major: 7, minor: 1 };
    let members = archive(&[
        (device, "./dev", "", ""),
        (HARD, "./dev2", "./dev", ""),
        (MemberKind::Fifo, "./pipe", "", ""),
        (HARD, "./pipe2", "./pipe", ""),
        (FILE, "./a", "", "x"),
        (HARD, "./b", "./a", ""),
    ]);
    let with = |restore_devices, without_special| Options { restore_devices, without_special, ..Options::default() };
    let all: &[&str] = &["./dev", "./dev2", "./pipe", "./pipe2", "./a", "./b"];
    for (wanted, options, written, skipped) in [
        (&[][..], with(false, false), &all[2..], 2),
        (&[], with(true, false), all, 0),
        (&[], with(false, true), &all[4..], 4),
        (&[], with(true, true), &all[4..], 4),
        (&["dev2", "pipe2"], with(false, true), &[], 2),
        (&["dev2", "b"], with(false, false), &["./b"], 1),
    ] {
        let (mut selection, reasons) = select(wanted, options, None);
        assert_eq!(names(&passed(&mut selection, &members).unwrap()), written, "{wanted:?} {options:?}");
        let restored = written.len() as u64;
        assert_eq!(selection.counted(), Counted { restored, kept: 0, skipped }, "{wanted:?} {options:?}");
        let (mut previewed, previewed_reasons) = select(wanted, options, None);
        let mut reader = Reader::new(members.as_slice());
        while let Some((member, place)) = reader.next().unwrap() {
            previewed.preview(&Entry::of(&member, place));
        }
        assert_eq!(previewed.counted(), selection.counted(), "{wanted:?} {options:?}");
        assert_eq!(*previewed_reasons.lock().unwrap(), *reasons.lock().unwrap());
    }
}

#[test]
fn paths_too_long_for_the_target_are_skipped_and_their_content_goes_to_a_hard_link() {
    let (long, odd) = ("n".repeat(11), "\u{1}".repeat(10));
    let deep = "d/".repeat(15) + "e";
    let below = format!("./{long}/x");
    let members = archive(&[
        (FILE, &format!("./{long}"), "", "text"),
        (HARD, "./short", &format!("./{long}"), ""),
        (FILE, &format!("./{odd}"), "", "odd"),
        (FILE, &format!("./{deep}"), "", "deep"),
        (FILE, &below, "", "below"),
    ]);
    let options = Options { longest: PathLimits { path: 30, name: 10 }, ..Options::default() };
    let (mut selection, skipped) = select(&[], options, None);
    let found = passed(&mut selection, &members).unwrap();
    assert_eq!(found, [("./short".to_owned(), "text".to_owned()), (format!("./{odd}"), "odd".to_owned())]);
    assert_eq!(selection.counted(), Counted { restored: 2, kept: 0, skipped: 3 });
    assert!(skipped.lock().unwrap().iter().all(|(_, skipped)| *skipped == SkipReason::TooLong));
    // If hard links were not noted before, they are skipped too.
    let (mut selection, _) = select(&[], options, None);
    let mut out = Vec::new();
    forward(&mut members.as_slice(), &mut selection, &mut |_| {}, (&mut out, false)).unwrap();
    assert_eq!(selection.counted(), Counted { restored: 1, kept: 0, skipped: 4 });
}

#[test]
fn a_hard_link_to_a_symlink_is_a_symlink_too() {
    let members = [
        (MemberKind::Symlink, "./s", "/etc", ""),
        (MemberKind::Hardlink, "./h", "./s", ""),
        (MemberKind::File, "./h/passwd", "", "root"),
    ];
    let (mut selection, _) = select(&[], Options::default(), None);
    let error = passed(&mut selection, &archive(&members)).unwrap_err();
    assert_eq!(error.code, FailureCode::HostileArchive);
}

#[test]
fn content_is_not_written_through_a_link_under_the_name_of_a_hard_link() {
    // Only `a` is requested. The file `x` would be written under the name of its hard link, which leads through the
    // symbolic link.
    let members = [(MemberKind::Symlink, "./a", "/etc", ""), (MemberKind::File, "./x", "", "root")];
    for path in ["a/passwd", "a\\x2fpasswd"] {
        let (mut selection, _) = select(&["a"], Options::default(), None);
        let entry = Entry {
            path: path.to_owned(),
            kind: EntryKind::Hardlink,
            size: 0,
            modified_micros: 0,
            link: Some("x".to_owned()),
            is_device: None,
            start: 0,
            end: 0,
        };
        selection.expect(&entry).unwrap();
        let error = passed(&mut selection, &archive(&members)).unwrap_err();
        assert_eq!(error.code, FailureCode::HostileArchive, "{path}");
    }
}

#[test]
fn without_owners_no_file_runs_as_somebody_else() {
    let mut writer = Writer::new(Vec::new());
    for (path, kind) in [("./d", DIR), ("./f", FILE)] {
        writer.append(&Member { mode: 0o6755, ..Member::new(path.as_bytes(), kind) }, &mut io::empty()).unwrap();
    }
    let members = writer.finish().unwrap();
    for (with_owners, mode) in [(true, 0o6755), (false, 0o755)] {
        let (mut selection, _) = select(&[], Options { with_owners, ..Options::default() }, None);
        let mut reader = Reader::new(members.as_slice());
        let mut modes = Vec::new();
        while let Some((member, _)) = reader.next().unwrap() {
            modes.push(selection.decide(&member).unwrap().unwrap().mode);
        }
        assert_eq!(modes, [0o6755, mode]);
    }
}

#[test]
fn a_path_with_thousands_of_folders_is_left_out_and_takes_no_time() {
    let (mut selection, skipped) = select(&[], Options::default(), Some(&[("link", ExistingKind::Nothing)]));
    let link = Member { link: b"elsewhere".to_vec(), ..Member::new(b"./link", MemberKind::Symlink) };
    selection.decide(&link).unwrap();
    let deep = "a/".repeat(30_000);
    for number in 0..30 {
        let member = Member::new(format!("./{deep}{number}").as_bytes(), MemberKind::File);
        assert_eq!(selection.decide(&member).unwrap(), None);
    }
    assert_eq!(skipped.lock().unwrap().len(), 30);
    // Still nothing is written through a link.
    let below = Member::new(b"./link/a/b", MemberKind::File);
    assert!(selection.decide(&below).is_err());
}
