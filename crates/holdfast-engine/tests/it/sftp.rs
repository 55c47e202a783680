use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use holdfast_engine::sftp::{
    Attributes, Client, FileKind, FileReader, FileWriter, Folder, FolderLimits, OpenMode, StatusCode,
};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// A client connected to the server of OpenSSH over pipes. The child exits with the client.
async fn start() -> (Client, Child) {
    let places = ["/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec"];
    let server = places.iter().map(|place| Path::new(place).join("sftp-server")).find(|path| path.exists());
    let server = server.expect("OpenSSH's SFTP server is installed; `cargo xtask test` does that");
    let mut child = Command::new(server).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stream = tokio::io::join(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let client = Client::start(stream, Duration::from_secs(60), CancellationToken::new()).await.unwrap();
    (client, child)
}

/// A folder, with paths of arbitrary bytes.
struct Place(tempfile::TempDir);

impl Place {
    fn path(&self, name: &[u8]) -> PathBuf {
        self.0.path().join(OsStr::from_bytes(name))
    }

    fn bytes(&self, name: &[u8]) -> Vec<u8> {
        self.path(name).as_os_str().as_bytes().to_vec()
    }
}

async fn names(client: &mut Client, path: &[u8]) -> Vec<Vec<u8>> {
    let mut folder = Folder::open(client, path, FolderLimits::default()).await.unwrap();
    let mut names = Vec::new();
    while let Some(page) = folder.next_page(client).await.unwrap() {
        names.extend(page.into_iter().map(|name| name.name));
    }
    names.sort();
    names
}

async fn write(client: &mut Client, path: &[u8], mode: OpenMode, content: &[u8]) {
    let private = Attributes { permissions: Some(0o600), ..Attributes::default() };
    let mut writer = FileWriter::open(client, path, mode, private).await.unwrap();
    for part in content.chunks(100_000) {
        writer.write(client, part).await.unwrap();
    }
    let handle = writer.finish(client).await.unwrap();
    client.fsync(&handle).await.unwrap();
    let attributes = Attributes { permissions: Some(0o640), times: Some((1_000_000_000, 1_100_000_000)), ..private };
    client.fsetstat(&handle, attributes).await.unwrap();
    client.close(&handle).await.unwrap();
}

#[tokio::test]
async fn files_of_any_name_and_size_are_written_and_read() {
    let (mut client, mut child) = start().await;
    let place = Place(tempfile::tempdir().unwrap());
    let content: Vec<u8> =
        (0..10_000_000_u32).map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let long = [0xe9; 255];
    for (name, length) in [(&b"bad \xff\xfe"[..], 0), (b"a\nb", 1), (&long, 32 * 1024), (b" ", content.len())] {
        write(&mut client, &place.bytes(name), OpenMode::CreateNew, &content[..length]).await;
        let meta = std::fs::metadata(place.path(name)).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.atime()), (0o640, 1_100_000_000, 1_000_000_000));
        for expected in [0, length as u64, u64::MAX] {
            let (mut reader, meta) = FileReader::open(&mut client, &place.bytes(name), expected).await.unwrap();
            assert_eq!((meta.kind(), meta.size), (Some(FileKind::Regular), Some(length as u64)));
            let mut read = Vec::new();
            while let Some(data) = reader.next(&mut client).await.unwrap() {
                read.extend_from_slice(&data);
            }
            assert!(read == content[..length], "{length} bytes, {expected} expected");
            let after = reader.finish(&mut client).await.unwrap();
            assert_eq!((after.size, after.times.unwrap().1), (meta.size, 1_100_000_000));
        }
    }
    let listed = names(&mut client, &place.bytes(b"")).await;
    assert_eq!(listed, [&b" "[..], b"a\nb", b"bad \xff\xfe", &long]);
    let taken = client.open(&place.bytes(b" "), OpenMode::CreateNew, Attributes::default()).await;
    assert!(taken.unwrap_err().is(StatusCode::Failure));
    write(&mut client, &place.bytes(b" "), OpenMode::Truncate, b"shorter").await;
    assert_eq!(std::fs::read(place.path(b" ")).unwrap(), b"shorter");
    drop(client);
    assert!(child.wait().await.unwrap().success());
}

#[tokio::test]
async fn folders_links_and_names_are_made_changed_and_removed() {
    let (mut client, _child) = start().await;
    let place = Place(tempfile::tempdir().unwrap());
    let at = |name: &[u8]| place.bytes(name);
    let offered = client.extensions();
    assert!(offered.posix_rename && offered.hardlink && offered.fsync, "{offered:?}");

    let mode = Attributes { permissions: Some(0o700), ..Attributes::default() };
    client.mkdir(&at(b"folder \xff"), mode).await.unwrap();
    client.mkdir(&at(b"folder \xff/\x80"), mode).await.unwrap();
    assert!(client.rmdir(&at(b"folder \xff")).await.unwrap_err().is(StatusCode::Failure), "it is not empty");
    client.rmdir(&at(b"folder \xff/\x80")).await.unwrap();
    client.setstat(&at(b"folder \xff"), Attributes { permissions: Some(0o711), ..mode }).await.unwrap();
    assert_eq!(std::fs::metadata(place.path(b"folder \xff")).unwrap().permissions().mode() & 0o777, 0o711);

    client.symlink(b"nowhere \xfe", &at(b"link \xff")).await.unwrap();
    assert_eq!(std::fs::read_link(place.path(b"link \xff")).unwrap().as_os_str().as_bytes(), b"nowhere \xfe");
    assert_eq!(client.readlink(&at(b"link \xff")).await.unwrap(), b"nowhere \xfe");
    assert_eq!(client.lstat(&at(b"link \xff")).await.unwrap().kind(), Some(FileKind::Symlink));
    assert!(client.stat(&at(b"link \xff")).await.unwrap_err().is(StatusCode::NoSuchFile));
    if offered.lsetstat {
        let times = Attributes { times: Some((5, 6)), ..Attributes::default() };
        client.lsetstat(&at(b"link \xff"), times).await.unwrap();
        assert_eq!(client.lstat(&at(b"link \xff")).await.unwrap().times, Some((5, 6)));
    }

    write(&mut client, &at(b"one"), OpenMode::CreateNew, b"1").await;
    client.hardlink(&at(b"one"), &at(b"two \xff")).await.unwrap();
    assert_eq!(std::fs::metadata(place.path(b"two \xff")).unwrap().nlink(), 2);
    assert!(client.rename(&at(b"one"), &at(b"link \xff")).await.is_err(), "something is in the way");
    client.rename(&at(b"one"), &at(b"three \xff")).await.unwrap();
    client.posix_rename(&at(b"three \xff"), &at(b"link \xff")).await.unwrap();
    assert_eq!(std::fs::read(place.path(b"link \xff")).unwrap(), b"1");
    client.remove(&at(b"two \xff")).await.unwrap();
    assert!(client.remove(&at(b"two \xff")).await.unwrap_err().is(StatusCode::NoSuchFile));
    assert_eq!(names(&mut client, &at(b"")).await, [&b"folder \xff"[..], b"link \xff"]);
    let real = client.realpath(&at(b"folder \xff/..")).await.unwrap();
    assert_eq!(real, place.0.path().canonicalize().unwrap().as_os_str().as_bytes());
}

#[tokio::test]
async fn a_folder_of_many_pages_is_read_to_its_end_or_its_limit() {
    let (mut client, _child) = start().await;
    let place = Place(tempfile::tempdir().unwrap());
    for number in 0..1234 {
        std::fs::write(place.path(format!("file {number}").as_bytes()), "").unwrap();
    }
    assert_eq!(names(&mut client, &place.bytes(b"")).await.len(), 1234);
    let limits = FolderLimits { names: 1000, ..FolderLimits::default() };
    let mut folder = Folder::open(&mut client, &place.bytes(b""), limits).await.unwrap();
    let error = loop {
        match folder.next_page(&mut client).await {
            Ok(page) => assert!(page.is_some(), "the limit comes first"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().ends_with("holds more than 1000 names."), "{error}");
    assert_eq!(names(&mut client, &place.bytes(b"")).await.len(), 1234, "the session goes on");
}
