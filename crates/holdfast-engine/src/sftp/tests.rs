//! Servers that misbehave: each is detected in bounded time and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use super::fake::{self, Asked, greeted, next_request, serve};
use super::*;

/// For servers that answer at once.
const PATIENT: Duration = Duration::from_secs(60);
/// For servers that do not.
const SHORT: Duration = Duration::from_millis(300);

async fn client_of(answer: impl FnMut(&Asked) -> Vec<u8> + Send + 'static) -> Client {
    serve(PATIENT, &CancellationToken::new(), answer).await
}

/// Answers with pages of a folder, one after the other, without end.
async fn folder_of(mut page: impl FnMut(u32) -> Vec<u8> + Send + 'static) -> Client {
    client_of(move |asked| match asked.kind {
        fake::OPENDIR => fake::handle(asked.id, b"folder"),
        fake::READDIR => page(asked.id),
        _ => fake::status(asked.id, 0),
    })
    .await
}

/// Reads a folder to its end and counts the names.
async fn count(client: &mut Client, limits: FolderLimits) -> (u64, Result<(), SftpError>) {
    let mut folder = Folder::open(client, b"/srv/\xff", limits).await.unwrap();
    let mut names = 0;
    loop {
        match folder.next_page(client).await {
            Ok(Some(page)) => names += page.len() as u64,
            Ok(None) => return (names, Ok(())),
            Err(error) => return (names, Err(error)),
        }
    }
}

#[tokio::test]
async fn an_endless_folder_ends_at_its_limit_and_is_named() {
    let sent = Arc::new(AtomicU64::new(0));
    let counter = sent.clone();
    let mut client = folder_of(move |id| {
        let number = counter.fetch_add(100, Ordering::SeqCst);
        let page: Vec<String> = (number..number + 100).map(|number| format!("file {number}")).collect();
        fake::names(id, &page.iter().map(String::as_bytes).collect::<Vec<_>>())
    })
    .await;
    let limits = FolderLimits { names: 10_000, ..FolderLimits::default() };
    let (names, end) = count(&mut client, limits).await;
    assert_eq!(names, 10_000);
    assert_eq!(end.unwrap_err().to_string(), "The folder /srv/\\xff holds more than 10000 names.");
    assert_eq!(sent.load(Ordering::SeqCst), 10_100, "nothing is asked for after that");
    // The session can be used for something else.
    client.remove(b"/x").await.unwrap();
    let limits = FolderLimits { bytes: 5_000, ..FolderLimits::default() };
    let (names, end) = count(&mut client, limits).await;
    assert!(names <= 500, "{names}");
    assert!(end.unwrap_err().to_string().contains("more than 5000 bytes"));
}

#[tokio::test]
async fn a_folder_of_dots_alone_ends_too() {
    let mut client = folder_of(|id| fake::names(id, &[b".", b".."])).await;
    let (names, end) = count(&mut client, FolderLimits { names: 1_000, ..FolderLimits::default() }).await;
    assert_eq!(names, 0);
    assert!(matches!(end, Err(SftpError::Limit(_))), "{end:?}");
}

#[tokio::test]
async fn a_folder_that_is_never_done_ends_at_its_time() {
    let (mut client, mut stream) = greeted(PATIENT, &CancellationToken::new()).await;
    tokio::spawn(async move {
        let mut pause = tokio::time::interval(Duration::from_millis(20));
        while let Some(asked) = next_request(&mut stream).await {
            pause.tick().await;
            let answer = match asked.kind {
                fake::OPENDIR => fake::handle(asked.id, b"folder"),
                _ => fake::names(asked.id, &[b"again"]),
            };
            let _gone = stream.write_all(&answer).await;
        }
    });
    let (names, end) = count(&mut client, FolderLimits { time: SHORT, ..FolderLimits::default() }).await;
    assert!(names < 100, "{names}");
    assert!(end.unwrap_err().to_string().contains("was not read within"));
}

#[tokio::test]
async fn names_that_lead_elsewhere_and_empty_pages_are_refused() {
    let pages: [&[&[u8]]; 5] = [&[], &[b"a", b""], &[b"a/b"], &[b"../a"], &[b"a\0b"]];
    for page in pages {
        let mut client = folder_of(move |id| fake::names(id, page)).await;
        let (names, end) = count(&mut client, FolderLimits::default()).await;
        assert_eq!(names, 0);
        assert!(matches!(end, Err(SftpError::Protocol(_))), "{page:?}: {end:?}");
        // The session is over: such a server is not trusted any more.
        assert!(matches!(client.lstat(b"/").await, Err(SftpError::Protocol(_))));
    }
}

#[tokio::test]
async fn the_names_of_a_folder_are_bytes() {
    let long = [b'x'; 255];
    let mut has_answered = false;
    let mut client = folder_of(move |id| match std::mem::replace(&mut has_answered, true) {
        false => fake::names(id, &[b".", b"bad \xff\xfe", b"a\nb", &long, b"..", b"..."]),
        true => fake::status(id, fake::EOF),
    })
    .await;
    let mut folder = Folder::open(&mut client, b"/", FolderLimits::default()).await.unwrap();
    let page = folder.next_page(&mut client).await.unwrap().unwrap();
    let names: Vec<&[u8]> = page.iter().map(|name| name.name.as_slice()).collect();
    assert_eq!(names, [b"bad \xff\xfe", &b"a\nb"[..], &long, b"..."]);
    assert!(folder.next_page(&mut client).await.unwrap().is_none());
}

#[tokio::test]
async fn replies_that_answer_nothing_end_the_session() {
    type Answer = fn(&Asked) -> Vec<u8>;
    let answers: [(&str, Answer); 8] = [
        ("another id", |asked| fake::status(asked.id + 1, 0)),
        ("two replies at once", |asked| [fake::status(asked.id + 7, 0), fake::status(asked.id, 0)].concat()),
        ("another kind", |asked| fake::handle(asked.id, b"h")),
        ("success without attributes", |asked| fake::status(asked.id, 0)),
        ("an unknown kind", |asked| fake::packet(200, asked.id, b"")),
        ("a request", |asked| fake::packet(fake::LSTAT, asked.id, &fake::string(b"/"))),
        ("the version again", |_| fake::version()),
        ("a huge packet", |_| vec![0xff; 64]),
    ];
    for (what, answer) in answers {
        let mut client = client_of(answer).await;
        let error = client.lstat(b"/").await.unwrap_err();
        assert!(matches!(error, SftpError::Protocol(_)), "{what}: {error:?}");
        assert!(client.incoming.capacity() < 1024 * 1024, "{what}");
        assert!(matches!(client.lstat(b"/").await, Err(SftpError::Protocol(_))), "{what}");
    }
}

#[tokio::test]
async fn anything_but_a_server_of_version_3_is_reported() {
    let greetings: [&[u8]; 5] = [
        b"Welcome to this machine\n",
        &[0, 0, 0, 5, 2, 0, 0, 0, 2],
        &[0, 0, 0, 5, 2, 0, 0, 0, 6],
        &fake::status(0, 0),
        b"",
    ];
    for greeting in greetings {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        theirs.write_all(greeting).await.unwrap();
        theirs.shutdown().await.unwrap();
        let error = Client::start(ours, PATIENT, CancellationToken::new()).await.err().unwrap();
        let is_ended = matches!(error, SftpError::Lost(_));
        assert!(
            matches!(error, SftpError::Protocol(_)) || (greeting.is_empty() && is_ended),
            "{greeting:?}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_reply_that_comes_byte_by_byte_is_not_waited_for() {
    let (mut client, mut stream) = greeted(SHORT, &CancellationToken::new()).await;
    let dripping = tokio::spawn(async move {
        let asked = next_request(&mut stream).await.unwrap();
        let mut pause = tokio::time::interval(Duration::from_millis(10));
        for byte in fake::data(asked.id, &[0; 100_000]) {
            pause.tick().await;
            if stream.write_all(&[byte]).await.is_err() {
                break;
            }
        }
    });
    assert!(matches!(client.lstat(b"/").await, Err(SftpError::Stalled(SHORT))));
    // The session is over: the next request fails at once, without another wait.
    assert!(matches!(client.lstat(b"/").await, Err(SftpError::Stalled(SHORT))));
    drop(client);
    dripping.await.unwrap();
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_not_waited_for() {
    let (mut client, _stream) = greeted(SHORT, &CancellationToken::new()).await;
    // More than the stream holds.
    let path = vec![b'x'; 100_000];
    assert!(matches!(client.lstat(&path).await, Err(SftpError::Stalled(SHORT))));
}

#[tokio::test]
async fn cancellation_ends_every_wait() {
    let cancel = CancellationToken::new();
    let (mut client, mut stream) = greeted(PATIENT, &cancel).await;
    let waiting = tokio::spawn(async move { client.lstat(b"/").await });
    next_request(&mut stream).await.unwrap();
    cancel.cancel();
    assert!(matches!(waiting.await.unwrap(), Err(SftpError::Cancelled)));

    // A server that sends endlessly does not prevent cancellation.
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let mut pages = 0;
    let mut client = serve(PATIENT, &cancel, move |asked| match asked.kind {
        fake::OPENDIR => fake::handle(asked.id, b"folder"),
        _ => {
            pages += 1;
            if pages == 50 {
                stop.cancel();
            }
            fake::names(asked.id, &[b"again"])
        }
    })
    .await;
    let (names, end) = count(&mut client, FolderLimits::default()).await;
    assert!(names <= 50, "{names}");
    assert!(matches!(end, Err(SftpError::Cancelled)), "{end:?}");
}

/// A file whose reads are answered by `answer`, given the content and the pending requests.
async fn file_of(
    content: Vec<u8>,
    mut answer: impl FnMut(&[u8], &mut Vec<Asked>) -> Vec<u8> + Send + 'static,
) -> Client {
    let mut waiting = Vec::new();
    client_of(move |asked| match asked.kind {
        fake::OPEN => fake::handle(asked.id, b"file"),
        fake::FSTAT => fake::attributes(asked.id, fake::FILE_MODE, content.len() as u64),
        fake::READ => {
            waiting.push(Asked { kind: asked.kind, id: asked.id, body: asked.body.clone() });
            answer(&content, &mut waiting)
        }
        _ => fake::status(asked.id, 0),
    })
    .await
}

fn sample(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + place / 251).to_le_bytes()[0]).collect()
}

async fn read_all(client: &mut Client, expected: u64) -> Result<Vec<u8>, SftpError> {
    let (mut reader, _) = FileReader::open(client, b"/file", expected).await?;
    let mut read = Vec::new();
    while let Some(data) = reader.next(client).await? {
        read.extend_from_slice(&data);
    }
    reader.finish(client).await?;
    Ok(read)
}

fn answer_read(content: &[u8], asked: &Asked, at_most: usize) -> Vec<u8> {
    let (offset, length) = asked.range();
    if offset >= content.len() {
        return fake::status(asked.id, fake::EOF);
    }
    fake::data(asked.id, &content[offset..content.len().min(offset + length.min(at_most))])
}

#[tokio::test]
async fn reads_are_under_way_together_and_may_be_answered_in_any_order() {
    let content = sample(1_000_000);
    let pieces = content.len().div_ceil(32 * 1024);
    let mut client = file_of(content.clone(), move |content, waiting| {
        // No answer until all reads have been requested; then in reverse order.
        if waiting.len() < pieces {
            return Vec::new();
        }
        waiting.drain(..).rev().flat_map(|asked| answer_read(content, &asked, usize::MAX)).collect()
    })
    .await;
    assert!(read_all(&mut client, content.len() as u64).await.unwrap() == content);
    client.remove(b"/x").await.unwrap();
    assert!(client.slots.is_empty(), "nothing is left over");
}

#[tokio::test]
async fn short_reads_are_completed_and_a_file_may_be_longer_or_shorter_than_expected() {
    let content = sample(300_001);
    for at_most in [5_000, 32 * 1024, 1] {
        let content = if at_most == 1 { sample(500) } else { content.clone() };
        for expected in [0, 1, content.len() as u64, 10_000_000] {
            let mut client = file_of(content.clone(), move |content, waiting| {
                waiting.drain(..).flat_map(|asked| answer_read(content, &asked, at_most)).collect()
            })
            .await;
            assert!(read_all(&mut client, expected).await.unwrap() == content, "{at_most} {expected}");
            client.remove(b"/x").await.unwrap();
            assert!(client.slots.is_empty(), "nothing is left over");
        }
    }
}

#[tokio::test]
async fn more_data_than_asked_for_is_refused() {
    let mut client = file_of(sample(100), |_, waiting| {
        waiting.drain(..).flat_map(|asked| fake::data(asked.id, &[0; 101])).collect()
    })
    .await;
    assert!(matches!(read_all(&mut client, 100).await, Err(SftpError::Protocol("more data than was asked for"))));
}

/// A server could fill the memory with large replies that nobody asks for while one request stays unanswered.
#[tokio::test]
async fn replies_of_the_wrong_kind_are_not_kept_for_later() {
    let mut client = file_of(sample(10_000_000), |_, waiting| match waiting.pop() {
        Some(asked) if !waiting.is_empty() => fake::names(asked.id, &[b"x"]),
        first => {
            waiting.extend(first);
            Vec::new()
        }
    })
    .await;
    let read = read_all(&mut client, 10_000_000).await;
    assert!(matches!(read, Err(SftpError::Protocol("a reply of the wrong kind"))), "{read:?}");
}

#[tokio::test]
async fn writes_are_under_way_together_and_each_is_confirmed() {
    let content = sample(1_000_000);
    let pieces = content.len().div_ceil(32 * 1024);
    let written = Arc::new(std::sync::Mutex::new(vec![0; content.len()]));
    let (sink, mut waiting) = (written.clone(), Vec::new());
    let mut client = client_of(move |asked| match asked.kind {
        fake::OPEN => fake::handle(asked.id, b"file"),
        fake::WRITE => {
            let offset = usize::try_from(u64::from_be_bytes(asked.rest()[..8].try_into().unwrap())).unwrap();
            let data = &asked.rest()[12..];
            sink.lock().unwrap()[offset..offset + data.len()].copy_from_slice(data);
            waiting.push(asked.id);
            if waiting.len() < pieces {
                Vec::new()
            } else {
                waiting.drain(..).rev().flat_map(|id| fake::status(id, 0)).collect()
            }
        }
        _ => fake::status(asked.id, 0),
    })
    .await;
    let mut writer = FileWriter::open(&mut client, b"/file", OpenMode::CreateNew, Attributes::default()).await.unwrap();
    for part in content.chunks(4 * 32 * 1024) {
        writer.write(&mut client, part).await.unwrap();
    }
    let handle = writer.finish(&mut client).await.unwrap();
    client.close(&handle).await.unwrap();
    assert!(*written.lock().unwrap() == content);
}

#[tokio::test]
async fn a_failed_write_is_reported_by_finish_at_the_latest() {
    let mut writes = 0;
    let mut client = client_of(move |asked| match asked.kind {
        fake::OPEN => fake::handle(asked.id, b"file"),
        fake::WRITE => {
            writes += 1;
            fake::status(asked.id, if writes == 3 { 4 } else { 0 })
        }
        _ => fake::status(asked.id, 0),
    })
    .await;
    let mut writer = FileWriter::open(&mut client, b"/file", OpenMode::CreateNew, Attributes::default()).await.unwrap();
    writer.write(&mut client, &sample(200_000)).await.unwrap();
    assert!(writer.finish(&mut client).await.unwrap_err().is(StatusCode::Failure));
}

#[tokio::test]
async fn requests_that_stay_unanswered_are_bounded() {
    let mut client = client_of(|asked| match asked.kind {
        fake::CLOSE => Vec::new(),
        _ => fake::handle(asked.id, b"file"),
    })
    .await;
    for _ in 0..10 * MAX_UNANSWERED {
        let Ok(handle) = client.open(b"/file", OpenMode::Read, Attributes::default()).await else {
            assert!(client.slots.len() <= MAX_UNANSWERED);
            return;
        };
        if client.close_later(&handle).is_err() {
            return;
        }
    }
    panic!("a server may leave any number of requests unanswered");
}

#[tokio::test]
async fn a_status_is_reported_by_its_code_and_extensions_must_be_offered() {
    let mut client = client_of(|asked| fake::status(asked.id, if asked.kind == fake::LSTAT { 2 } else { 3 })).await;
    assert!(client.lstat(b"/").await.unwrap_err().is(StatusCode::NoSuchFile));
    assert_eq!(client.stat(b"/").await.unwrap_err().to_string(), "Permission denied");
    assert!(matches!(client.hardlink(b"/a", b"/b").await, Err(SftpError::NotOffered(packet::HARDLINK))));
    assert!(matches!(client.posix_rename(b"/a", b"/b").await, Err(SftpError::NotOffered(packet::POSIX_RENAME))));
}
