//! Tests for walks over servers that behave badly, and for shell patterns.

use std::collections::HashMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::super::patterns::matches;
use super::*;
use crate::archive::tar::Reader;
use crate::sftp::fake::{self, Asked};
use crate::source::Batch;

/// The result of a walk: the archive, the log, and how it ended.
struct Walked {
    archive: Vec<u8>,
    log: Vec<String>,
    warnings: u64,
    end: Result<()>,
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Walks over `/src` on a fake server.
async fn walk(
    limits: Limits,
    excluded: &[&str],
    cancel: CancellationToken,
    answer: impl FnMut(&Asked) -> Vec<u8> + Send + 'static,
) -> Walked {
    let (context, mut lines) = Context::new(cancel.clone());
    let client = fake::serve(Duration::from_secs(60), &cancel, answer).await;
    let excluded = excluded.iter().map(|text| (*text).to_owned()).collect();
    let source = FilesSource { path: "/src/".to_owned(), excluded, one_file_system: false };
    let (mut sink, mut receiver) = PlainSink::new();
    let reading = tokio::spawn(async move {
        let mut archive = Vec::new();
        while let Some(Ok(Batch::Chunks(batch))) = receiver.batches.recv().await {
            batch.iter().for_each(|chunk| archive.extend_from_slice(chunk));
        }
        archive
    });
    let end = send_within(limits, client, &source, &context, (&mut sink, NOW)).await;
    sink.close(end.clone()).await;
    let warnings = context.log.warnings();
    drop(context);
    let mut log = Vec::new();
    while let Some(line) = lines.recv().await {
        log.push(line);
    }
    Walked { archive: reading.await.unwrap(), log, warnings, end }
}

fn names_in(archive: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(archive);
    std::iter::from_fn(|| reader.next().unwrap().map(|(member, _)| member.path)).collect()
}

/// A server with one folder that always lists the same names. Only those in `names` exist, as files with this content.
fn folder_of(names: Vec<Vec<u8>>, content: &'static [u8]) -> impl FnMut(&Asked) -> Vec<u8> + Send + 'static {
    let mut listed: HashMap<Vec<u8>, bool> = HashMap::new();
    let is_there = move |path: &[u8]| names.iter().any(|name| [b"/src/", &name[..]].concat() == path);
    move |asked: &Asked| {
        let id = asked.id;
        match asked.kind {
            fake::STAT => fake::attributes(id, fake::FOLDER_MODE, 0),
            fake::LSTAT if is_there(asked.text()) => fake::attributes(id, fake::FILE_MODE, content.len() as u64),
            fake::OPEN if is_there(asked.text()) => fake::handle(id, b"file"),
            fake::LSTAT | fake::OPEN => fake::status(id, fake::NO_SUCH_FILE),
            fake::FSTAT => fake::attributes(id, fake::FILE_MODE, content.len() as u64),
            fake::READ => fake::data(id, content),
            fake::OPENDIR => fake::handle(id, b"folder"),
            fake::READDIR if listed.insert(asked.text().to_vec(), true).is_none() => {
                fake::names(id, &[b".", b"..", b"bad \xff", b"b.log", b"a\nb", b"gone \xfe", b"b.log"])
            }
            fake::READDIR => fake::status(id, fake::EOF),
            _ => fake::status(id, 0),
        }
    }
}

#[tokio::test]
async fn names_are_kept_as_bytes_and_only_what_the_server_says_is_gone_is_gone() {
    let there = vec![b"bad \xff".to_vec(), b"a\nb".to_vec(), b"b.log".to_vec()];
    let cancel = CancellationToken::new();
    let walked = walk(Limits::default(), &["*.log"], cancel, folder_of(there, b"content")).await;
    walked.end.unwrap();
    assert_eq!(names_in(&walked.archive), [b".".to_vec(), b"./a\nb".to_vec(), b"./bad \xff".to_vec()]);
    assert_eq!(walked.warnings, 1, "{:?}", walked.log);
    assert!(walked.log[0].contains("./gone \\xfe: File removed before we read it"), "{:?}", walked.log);
}

#[tokio::test]
async fn patterns_match_bytes() {
    let there = vec![b"bad \xff".to_vec(), b"a\nb".to_vec(), b"b.log".to_vec()];
    let walked = walk(Limits::default(), &["bad ?", "gone*"], CancellationToken::new(), folder_of(there, b"")).await;
    walked.end.unwrap();
    assert_eq!(names_in(&walked.archive), [&b"."[..], b"./a\nb", b"./b.log"], "a name that came twice is one");
    assert_eq!(walked.warnings, 0, "{:?}", walked.log);
}

/// A server on which every path is a folder; `page` returns the names on the page with this number.
fn folders(mut page: impl FnMut(u64) -> Option<Vec<String>> + Send + 'static) -> impl FnMut(&Asked) -> Vec<u8> + Send {
    let mut number = 0;
    move |asked| match asked.kind {
        fake::STAT | fake::LSTAT => fake::attributes(asked.id, fake::FOLDER_MODE, 0),
        fake::OPENDIR => fake::handle(asked.id, b"folder"),
        fake::READDIR => {
            number += 1;
            match page(number) {
                Some(names) => fake::names(asked.id, &names.iter().map(String::as_bytes).collect::<Vec<_>>()),
                None => fake::status(asked.id, fake::EOF),
            }
        }
        _ => fake::status(asked.id, 0),
    }
}

#[tokio::test]
async fn a_folder_that_may_be_read_but_not_entered_is_not_empty() {
    let shut = |asked: &Asked| match asked.kind {
        fake::LSTAT if asked.text() == b"/src/." => fake::status(asked.id, fake::PERMISSION_DENIED),
        fake::STAT | fake::LSTAT => fake::attributes(asked.id, fake::FOLDER_MODE, 0),
        fake::OPENDIR => fake::handle(asked.id, b"folder"),
        fake::READDIR => fake::status(asked.id, fake::EOF),
        _ => fake::status(asked.id, 0),
    };
    let walked = walk(Limits::default(), &[], CancellationToken::new(), shut).await;
    assert_eq!(walked.end.unwrap_err().code, FailureCode::SourceUnreadable);
    assert!(walked.log[0].contains(".: Permission denied"), "{:?}", walked.log);
}

#[tokio::test]
async fn an_endless_folder_fails_the_run_and_is_named() {
    let limits = Limits { folder: FolderLimits { names: 5_000, ..FolderLimits::default() }, ..Limits::default() };
    let page = |number| Some((0..100).map(|place| format!("{number} {place}")).collect());
    let error = walk(limits, &[], CancellationToken::new(), folders(page)).await.end.unwrap_err();
    assert_eq!(error.code, FailureCode::RemoteFailed);
    assert_eq!(error.message, "The folder /src holds more than 5000 names.");
}

#[tokio::test]
async fn an_endless_folder_can_be_cancelled() {
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let page = move |number: u64| {
        if number == 20 {
            stop.cancel();
        }
        Some(vec![number.to_string()])
    };
    let error = walk(Limits::default(), &[], cancel, folders(page)).await.end.unwrap_err();
    assert_eq!(error.code, FailureCode::Cancelled);
}

#[tokio::test]
async fn endlessly_nested_folders_fail_the_run() {
    // Each folder holds one other.
    let page = |number: u64| (number % 2 == 1).then(|| vec!["deeper".to_owned()]);
    let error = walk(Limits::default(), &[], CancellationToken::new(), folders(page)).await.end.unwrap_err();
    assert_eq!(error.code, FailureCode::RemoteFailed);
    assert!(error.message.starts_with("Folders are nested too deep to be read over SFTP, below /src/deeper/"));
}

#[tokio::test]
async fn names_that_wait_are_bounded_over_all_folders_together() {
    // Each folder holds a thousand others, each of which is entered before the next.
    let page = |number: u64| (number % 2 == 1).then(|| (0..1000).map(|place| format!("folder {place:04}")).collect());
    let limits = Limits { waiting_bytes: 200_000, ..Limits::default() };
    let error = walk(limits, &[], CancellationToken::new(), folders(page)).await.end.unwrap_err();
    assert_eq!(error.code, FailureCode::RemoteFailed);
    assert!(error.message.contains("more names wait to be read than the 200000 bytes"), "{}", error.message);
    let depth = error.message.matches("/folder 0000").count();
    assert!((5..20).contains(&depth), "{depth}");
}

#[tokio::test]
async fn files_that_may_not_be_read_fail_the_run_and_are_named() {
    let mut listed = false;
    let walked = walk(Limits::default(), &[], CancellationToken::new(), move |asked| match asked.kind {
        fake::STAT => fake::attributes(asked.id, fake::FOLDER_MODE, 0),
        fake::LSTAT => fake::attributes(asked.id, fake::FILE_MODE, 5),
        fake::OPEN => fake::status(asked.id, fake::PERMISSION_DENIED),
        fake::OPENDIR => fake::handle(asked.id, b"folder"),
        fake::READDIR if !std::mem::replace(&mut listed, true) => fake::names(asked.id, &[b"a \xff", b"b"]),
        _ => fake::status(asked.id, fake::EOF),
    })
    .await;
    let error = walked.end.unwrap_err();
    assert_eq!(error.code, FailureCode::SourceUnreadable);
    assert_eq!(error.message, "2 files cannot be read, the first is ./a \\xff.");
    assert_eq!(walked.log, ["./a \\xff: Permission denied", "./b: Permission denied"]);
}

#[tokio::test]
async fn owners_and_times_that_the_server_does_not_report_are_logged() {
    let mut answer = folder_of(vec![b"b.log".to_vec()], b"content");
    let walked =
        walk(Limits::default(), &["bad*", "gone*", "a*"], CancellationToken::new(), move |asked| match asked.kind {
            fake::FSTAT => fake::few_attributes(asked.id, fake::FILE_MODE, 7),
            _ => answer(asked),
        })
        .await;
    walked.end.unwrap();
    assert_eq!(
        walked.log,
        [
            "Warning: The server does not tell who owns 1 of the entries; stored as owned by user 0 and group 0.",
            "Warning: The server does not tell when 1 of the entries last changed; stored as changed in 1970.",
        ]
    );
}

#[tokio::test]
async fn a_file_of_impossible_size_is_not_padded() {
    let mut answer = folder_of(vec![b"b.log".to_vec()], b"");
    let walked =
        walk(Limits::default(), &["bad*", "gone*", "a*"], CancellationToken::new(), move |asked| match asked.kind {
            fake::FSTAT => fake::attributes(asked.id, fake::FILE_MODE, 1 << 62),
            fake::READ => fake::status(asked.id, fake::EOF),
            _ => answer(asked),
        })
        .await;
    assert!(walked.end.unwrap_err().message.contains("./b.log: File shrank by 4611686018427387904 bytes"));
}

#[tokio::test]
async fn a_file_that_became_shorter_is_padded_and_one_that_changed_is_named() {
    let mut answer = folder_of(vec![b"b.log".to_vec()], b"");
    let walked =
        walk(Limits::default(), &["bad*", "gone*", "a*"], CancellationToken::new(), move |asked| match asked.kind {
            fake::FSTAT => fake::attributes(asked.id, fake::FILE_MODE, 1000),
            fake::READ if asked.range().0 == 0 => fake::data(asked.id, &[b'x'; 400]),
            fake::READ => fake::status(asked.id, fake::EOF),
            _ => answer(asked),
        })
        .await;
    walked.end.unwrap();
    assert_eq!(walked.log, ["Warning: ./b.log: File shrank by 600 bytes; padding with zeros"]);
    assert_eq!(names_in(&walked.archive).len(), 2);

    let (mut answer, mut looks) = (folder_of(vec![b"b.log".to_vec()], b"content"), 0);
    let walked =
        walk(Limits::default(), &["bad*", "gone*", "a*"], CancellationToken::new(), move |asked| match asked.kind {
            fake::FSTAT => {
                looks += 1;
                fake::attributes(asked.id, fake::FILE_MODE, if looks == 1 { 7 } else { 8 })
            }
            _ => answer(asked),
        })
        .await;
    walked.end.unwrap();
    assert_eq!(walked.log, ["Warning: ./b.log: file changed as we read it"]);
}

#[tokio::test]
async fn a_file_read_in_pieces_that_changed_in_the_same_second_is_named() {
    const SIZE: usize = 300_000;
    let mut answer = folder_of(vec![b"b.log".to_vec()], b"");
    let walked =
        walk(Limits::default(), &["bad*", "gone*", "a*"], CancellationToken::new(), move |asked| match asked.kind {
            fake::FSTAT => fake::attributes(asked.id, fake::FILE_MODE, SIZE as u64),
            fake::READ if asked.range().0 >= SIZE => fake::status(asked.id, fake::EOF),
            fake::READ => {
                let (at, length) = asked.range();
                fake::data(asked.id, &vec![b'x'; (SIZE - at).min(length)])
            }
            _ => answer(asked),
        })
        .await;
    walked.end.unwrap();
    assert_eq!(walked.warnings, 1);
    assert!(walked.log[0].contains("./b.log: the file changed in the second in which it was read"), "{:?}", walked.log);
}

#[test]
fn shell_patterns_match_as_in_a_shell() {
    let yes = [("*.log", "a.log"), ("a*b", "ab"), ("?x", "yx"), ("[a-c]1", "b1"), ("a/*/c", "a/b/c"), ("\\*", "*")];
    for (pattern, text) in yes {
        assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
    }
    let no = [("*.log", "a/b.log"), ("a*b", "abc"), ("?", "/"), ("[!a]x", "ax"), ("", "a"), ("a", "")];
    for (pattern, text) in no {
        assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
    }
}

#[test]
fn headers_keep_names_and_sizes_of_any_kind() {
    let meta = |kind: u32, size: u64| Attributes { permissions: Some(kind), size: Some(size), ..Attributes::default() };
    let long = [&b"./\xff\n"[..], &[b'x'; 300]].concat();
    for (name, link, size) in
        [(&long[..], &long[..], 0), (b"./\xff\n", b"", 0), (&long, b"", 1 << 40), (b"./a", b"", 9)]
    {
        let kind = if link.is_empty() { fake::FILE_MODE } else { 0o120_777 };
        let bytes = header(name, &meta(kind, size), link, 0).unwrap();
        let (member, _) = Reader::new(&bytes[..]).next().unwrap().unwrap();
        assert_eq!((&member.path[..], &member.link[..], member.size), (name, link, size));
    }
}

#[tokio::test]
async fn a_restore_does_not_take_a_refusal_for_a_free_place() {
    use crate::archive::{Facts, FileContent, Target as _};
    let cancel = CancellationToken::new();
    let (context, _lines) = Context::new(cancel.clone());
    let (asked, mut kinds) = tokio::sync::mpsc::unbounded_channel();
    let client = fake::serve(Duration::from_secs(60), &cancel, move |request| {
        asked.send(request.kind).unwrap();
        match request.kind {
            fake::LSTAT => fake::status(request.id, fake::PERMISSION_DENIED),
            _ => fake::status(request.id, 0),
        }
    })
    .await;
    let runtime = tokio::runtime::Handle::current();
    let restoring = tokio::task::spawn_blocking(move || {
        let mut target = SftpTarget::new(client, "/to/", (true, false), runtime, &context);
        let facts = Facts { mode: 0o644, uid: 0, gid: 0, modified: Time::default() };
        target.file(b"a \xff", facts, FileContent { data: &mut io::empty(), parts: None, size: 0 })
    });
    assert_eq!(restoring.await.unwrap().unwrap_err().to_string(), "Permission denied");
    assert_eq!(kinds.recv().await, Some(fake::LSTAT));
    assert_eq!(kinds.recv().await, None, "nothing was removed or opened");
}

/// OpenSSH's own server, over pipes. The child ends with the client.
async fn openssh(cancel: &CancellationToken) -> (Client, tokio::process::Child) {
    let places = ["/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec"];
    let server = places.iter().map(|place| std::path::Path::new(place).join("sftp-server")).find(|path| path.exists());
    let server = server.expect("OpenSSH's SFTP server is installed; `cargo xtask test` does that");
    let piped = std::process::Stdio::piped;
    let mut child = tokio::process::Command::new(server).stdin(piped()).stdout(piped()).spawn().unwrap();
    let stream = tokio::io::join(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    (Client::start(stream, Duration::from_secs(60), cancel.clone()).await.unwrap(), child)
}

/// Restores these members into a folder through OpenSSH's server. Returns how that ended, and the log.
async fn put_back(folder: &std::path::Path, members: &[(Member, &'static [u8])]) -> (Result<()>, Vec<String>) {
    use crate::archive::{Choice, Options, Selection, unpack};
    let mut writer = Writer::new(Vec::new());
    for (member, content) in members {
        writer.append(member, &mut &content[..]).unwrap();
    }
    let archive = writer.finish().unwrap();
    let (context, mut lines) = Context::new(CancellationToken::new());
    let (client, _child) = openssh(&context.cancel).await;
    let (root, runtime) = (folder.to_str().unwrap().to_owned(), tokio::runtime::Handle::current());
    let restoring = tokio::task::spawn_blocking(move || {
        let mut target = SftpTarget::new(client, &root, (true, true), runtime, &context);
        let mut selection = Selection::new(Choice::new(&[]), Options::default(), None, |_, _| {});
        unpack(&mut archive.as_slice(), &mut selection, &mut |_| {}, &mut target)
    });
    let ended = restoring.await.unwrap();
    let mut said = Vec::new();
    while let Some(line) = lines.recv().await {
        said.push(line);
    }
    (ended, said)
}

#[tokio::test]
async fn holes_are_not_written_over_sftp() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use crate::archive::tar::Part;
    let folder = tempfile::tempdir().unwrap();
    let size = 1 << 40;
    let parts = vec![
        Part { offset: 3, length: 4 },
        Part { offset: 1 << 39, length: 5 },
        Part { offset: 1 << 39 | 5, length: 0 },
    ];
    let sparse = |name: &[u8], size, parts| Member {
        size,
        mode: 0o640,
        parts: Some(parts),
        ..Member::new(name, MemberKind::File)
    };
    let plain = Member { size: 5, mode: 0o600, ..Member::new(b"./plain", MemberKind::File) };
    let members = [
        (sparse(b"./holes", size, parts), &b"onetwotre"[..]),
        (sparse(b"./none", 77, Vec::new()), b""),
        (plain, b"plain"),
    ];
    let (ended, _) = put_back(folder.path(), &members).await;
    ended.unwrap();
    let file = std::fs::File::open(folder.path().join("holes")).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o7777), (size, 0o640));
    assert!(meta.blocks() < 1000, "{} blocks", meta.blocks());
    for (offset, expected) in [(0, b"\0\0\0onet\0\0".as_slice()), ((1 << 39) - 1, b"\0wotre\0"), (size - 2, b"\0\0")] {
        let mut found = vec![1; expected.len()];
        file.read_exact_at(&mut found, offset).unwrap();
        assert_eq!(found, expected, "at {offset}");
    }
    assert_eq!(std::fs::read(folder.path().join("none")).unwrap(), [0; 77]);
    assert_eq!(std::fs::read(folder.path().join("plain")).unwrap(), b"plain");
    // A size that this file system does not support is refused, not retried for ever; a size that none supports is not
    // even tried.
    let (ended, _) = put_back(folder.path(), &[(sparse(b"./exabytes", i64::MAX as u64, Vec::new()), b"")]).await;
    if let Err(error) = ended {
        assert_eq!(error.code, FailureCode::TargetUnwritable, "{error:?}");
    }
    let (ended, _) = put_back(folder.path(), &[(sparse(b"./more", 1 << 63, Vec::new()), b"")]).await;
    assert_eq!(ended.unwrap_err().code, FailureCode::Corrupt);
    assert!(!folder.path().join("more").exists());
}

#[test]
fn a_time_without_its_sign_gets_it_back() {
    let year = |year: i64| (year - 1970) * 31_556_952;
    let cut = |seconds: i64| u32::try_from(seconds & 0xffff_ffff).unwrap();
    for (seconds, now) in [
        (0, year(2025)),
        (-1, year(2025)),
        (year(1902), year(2025)),
        (year(2025), year(2025)),
        (year(2037), year(2025)),
        (year(2039), year(2040)),
        (year(2040), year(2040)),
        (year(1960), year(2040)),
        (i64::from(u32::MAX), i64::from(u32::MAX)),
    ] {
        assert_eq!(true_seconds(cut(seconds), now), seconds, "{seconds} in {now}");
    }
}

/// Reads a folder through OpenSSH's server and restores it the same way.
#[tokio::test]
async fn times_before_1970_do_not_become_those_of_the_next_century() {
    use std::os::unix::fs::MetadataExt as _;
    let (folder, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = std::time::UNIX_EPOCH - Duration::from_secs(315_619_200);
    let at = |seconds| std::time::UNIX_EPOCH + Duration::from_secs(seconds);
    // The server lists the year of times in the future.
    for (name, time) in [("old", old), ("new", at(1_700_000_000)), ("next", at(4_102_444_800))] {
        let file = std::fs::File::create(folder.path().join(name)).unwrap();
        file.set_modified(time).unwrap();
    }
    let (context, mut lines) = Context::new(CancellationToken::new());
    let (client, _child) = openssh(&context.cancel).await;
    let path = folder.path().to_str().unwrap().to_owned();
    let source = FilesSource { path, excluded: Vec::new(), one_file_system: false };
    let (mut sink, mut receiver) = PlainSink::new();
    let now = Timestamp::from_second(1_790_000_000).unwrap();
    send_within(Limits::default(), client, &source, &context, (&mut sink, now)).await.unwrap();
    sink.close(Ok(())).await;
    let mut archive = Vec::new();
    while let Some(Ok(Batch::Chunks(batch))) = receiver.batches.recv().await {
        batch.iter().for_each(|chunk| archive.extend_from_slice(chunk));
    }
    let mut reader = Reader::new(archive.as_slice());
    let mut members = Vec::new();
    while let Some((member, _)) = reader.next().unwrap() {
        members.push((member, &b""[..]));
    }
    let times: Vec<(&[u8], i64)> =
        members[1..].iter().map(|(member, _)| (&member.path[..], member.modified.seconds)).collect();
    assert_eq!(times, [(&b"./new"[..], 1_700_000_000), (b"./next", 4_102_444_800), (b"./old", -315_619_200)]);
    assert!(lines.recv().await.unwrap().contains("Warning: ./old: its time is before 1970"));

    let (ended, said) = put_back(target.path(), &members).await;
    ended.unwrap();
    let time = |name: &str| std::fs::metadata(target.path().join(name)).unwrap().mtime();
    assert_eq!((time("new"), time("next"), time("old")), (1_700_000_000, 4_102_444_800, 0));
    assert!(said.len() == 1 && said[0].contains("/old: SFTP cannot set its time"), "{said:?}");
}
