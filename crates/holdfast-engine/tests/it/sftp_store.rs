use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use holdfast_core::Secret;
use holdfast_core::destination::{DestinationIdentity, DestinationSpec, SftpDestination};
use holdfast_core::failure::FailureCode;
use holdfast_engine::destination::{
    Accepted, BlobStore, DestinationPlan, DestinationSettings, Opened, PartBody, RetryPolicy,
};
use holdfast_engine::{EngineError, Result};
use holdfast_testkit::{FaultProxy, PasswordMethod, PasswordServer};

use crate::conformance::conforms;

fn settings() -> DestinationSettings {
    let millis = Duration::from_millis;
    let retry = RetryPolicy { first_wait: millis(1), longest_wait: millis(50), give_up_after: Duration::from_secs(5) };
    DestinationSettings { retry, ..DestinationSettings::default() }
}

fn plan(port: u16, path: &str) -> DestinationPlan {
    let sftp = SftpDestination {
        host: "127.0.0.1".to_owned(),
        port,
        username: PasswordServer::USERNAME.to_owned(),
        path: path.to_owned(),
        host_key: None,
        has_password: true,
    };
    DestinationPlan {
        spec: DestinationSpec::Sftp(sftp),
        secret_key: Some(Secret::new(PasswordServer::PASSWORD)),
        allow_private: true,
        ..DestinationPlan::local(Path::new("/nonexistent").to_owned(), None)
    }
}

fn with(plan: &DestinationPlan, change: impl FnOnce(&mut SftpDestination)) -> DestinationPlan {
    let mut plan = plan.clone();
    if let DestinationSpec::Sftp(sftp) = &mut plan.spec {
        change(sftp);
    }
    plan
}

async fn refused(plan: &DestinationPlan) -> EngineError {
    settings().open(plan).await.err().expect("this is refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sftp_destination_conforms_with_either_password_method() {
    for (method, arguments) in [
        (PasswordMethod::Password, &[][..]),
        (PasswordMethod::KeyboardInteractive, &["-P", "fsync,posix-rename,hardlink,statvfs"][..]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = PasswordServer::start(method, folder.path(), arguments).await;
        // An absolute path, and one relative to the home folder.
        for path in [&*folder.path().join("deep/er").to_string_lossy(), "from/here"] {
            let Opened { store, identity } = settings().open(&plan(server.port(), path)).await.unwrap();
            conforms(store.as_ref()).await;
            let accepted = if arguments.is_empty() { Accepted::Flushed } else { Accepted::Unconfirmed };
            assert_eq!(store.put("own/small", Bytes::from_static(b"x")).await.unwrap(), accepted, "read back or not");
            assert_eq!(upload(store.as_ref(), "own/large", 2).await.unwrap(), accepted);
            assert_eq!(identity.host_key.as_deref(), Some(server.fingerprint()));
            assert_eq!(identity.marker.as_ref().map(String::len), Some(32));
        }
    }
}

/// Uploads `parts` of 5 MiB, completes the upload, and compares the object.
async fn upload(store: &dyn BlobStore, key: &str, parts: usize) -> Result<Accepted> {
    let bodies: Vec<Bytes> =
        (0..parts).map(|seed| holdfast_testkit::random(seed as u64, 5 * 1024 * 1024).into()).collect();
    let upload = store.begin(key).await?;
    for (index, body) in bodies.iter().enumerate() {
        store.put_part(key, &upload, index, PartBody::from(vec![body.clone()])).await?;
    }
    let accepted = store.complete(key, &upload, vec![String::new(); parts]).await?;
    let all = bodies.concat();
    assert!(store.read(key, 0..all.len() as u64).await? == all, "what is there is what was sent");
    Ok(accepted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_after_the_connection_broke() {
    let folder = tempfile::tempdir().unwrap();
    let server = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let proxy = FaultProxy::start(server.port());
    let Opened { store, .. } = settings().open(&plan(proxy.port(), "backups")).await.unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let breaking = async {
        // In the middle of the first part, and again in later ones: what the server sends are short replies.
        for bytes in [1000, 2000, 2000] {
            proxy.cut_after(bytes);
            let before = proxy.connections();
            while proxy.connections() == before && !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            proxy.heal();
        }
    };
    let uploading = async {
        let accepted = upload(store.as_ref(), "a/large", 5).await.unwrap();
        assert_eq!(
            accepted,
            Accepted::Unconfirmed,
            "what the server may have lost meanwhile is found by reading it back"
        );
        is_done.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    tokio::join!(uploading, breaking);
    assert!(proxy.connections() > 3, "it was cut each time");
    assert_eq!(store.list("", 10).await.unwrap(), ["a/large"]);
    assert_eq!(std::fs::read_dir(folder.path().join("backups/a")).unwrap().count(), 1, "no part file is left");
}

/// Does something that needs the server, whose connection is cut first and comes back.
async fn after_a_cut<T>(proxy: &FaultProxy, work: impl Future<Output = T>) -> T {
    let before = proxy.connections();
    proxy.cut_after(0);
    let healing = async {
        while proxy.connections() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        proxy.heal();
    };
    tokio::join!(work, healing).0
}

fn part() -> PartBody {
    PartBody::from(vec![holdfast_testkit::random(1, 5 * 1024 * 1024).into()])
}

/// The part file of the only upload of the object `a/large`.
fn part_file(folder: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(folder.join("backups/a")).unwrap();
    let [path] = entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>().try_into().unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_ends_if_the_server_has_lost_confirmed_parts() {
    let folder = tempfile::tempdir().unwrap();
    let server = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let proxy = FaultProxy::start(server.port());
    let Opened { store, .. } = settings().open(&plan(proxy.port(), "backups")).await.unwrap();
    let upload = store.begin("a/large").await.unwrap();
    store.put_part("a/large", &upload, 0, part()).await.unwrap();
    // As after a power failure: what was not flushed is gone.
    std::fs::OpenOptions::new().write(true).open(part_file(folder.path())).unwrap().set_len(1000).unwrap();
    let error = after_a_cut(&proxy, store.put_part("a/large", &upload, 1, part())).await.unwrap_err();
    assert!(error.message.contains("has lost a part"), "{error}");
    store.abort("a/large", Some(&upload)).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("backups/a")).unwrap().count(), 0);
}

/// Requests of a connection that was given up may still reach the server, even after the object is complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_do_not_share_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let Opened { store, .. } = settings().open(&plan(server.port(), "backups")).await.unwrap();
    let first = store.begin("a/large").await.unwrap();
    let second = store.begin("a/large").await.unwrap();
    assert_ne!(first, second);
    store.put_part("a/large", &second, 0, part()).await.unwrap();
    store.complete("a/large", &second, vec![String::new()]).await.unwrap();
    let left = std::fs::read_dir(folder.path().join("backups/a")).unwrap();
    assert_eq!(left.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), ["large"], "what others left is gone");
    // What another process left, also under the name that an earlier version used.
    let path = folder.path().join("backups/a");
    for name in [".large.part", ".large.0123456789abcdef.part", ".larger.part", ".large.other.part"] {
        std::fs::write(path.join(name), "x").unwrap();
    }
    store.abort("a/large", None).await.unwrap();
    let mut left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".large.other.part", ".larger.part", "large"], "only files of this object are removed");
    // An object is never replaced, unless it already holds the same bytes.
    let body = Bytes::from_static(b"one");
    store.put("a/small", body.clone()).await.unwrap();
    assert_eq!(store.put("a/small", body).await.unwrap(), Accepted::Unconfirmed);
    store.put("a/small", Bytes::from_static(b"two")).await.unwrap_err();
    assert_eq!(store.read("a/small", 0..3).await.unwrap(), "one");
}

/// A disk that is unmounted during a run must not be replaced by the empty folder below it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_is_replaced_during_a_run_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let (there, away) = (folder.path().join("backups"), folder.path().join("away"));
    let server = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let proxy = FaultProxy::start(server.port());
    let Opened { store, .. } = settings().open(&plan(proxy.port(), "backups")).await.unwrap();
    let unmount = |leaves_folder: bool| {
        std::fs::rename(&there, &away).unwrap();
        if leaves_folder {
            std::fs::create_dir(&there).unwrap();
        }
    };
    let mount = || {
        drop(std::fs::remove_dir_all(&there));
        std::fs::rename(&away, &there).unwrap();
    };
    let body = || Bytes::from_static(b"x");
    for leaves_folder in [true, false] {
        // On the connection that is open, and on a new one.
        unmount(leaves_folder);
        assert_eq!(store.put("a/b", body()).await.unwrap_err().code, FailureCode::DestinationUnmounted);
        mount();
        unmount(leaves_folder);
        let put = after_a_cut(&proxy, store.put("a/c", body())).await;
        assert_eq!(put.unwrap_err().code, FailureCode::DestinationUnmounted);
        let stat = after_a_cut(&proxy, store.stat("a/c")).await;
        assert_eq!(stat.unwrap_err().code, FailureCode::DestinationUnmounted);
        mount();
        assert!(store.list("", 10).await.unwrap().is_empty());
    }
    let upload = store.begin("a/large").await.unwrap();
    store.put_part("a/large", &upload, 0, part()).await.unwrap();
    unmount(true);
    store.complete("a/large", &upload, vec![String::new()]).await.unwrap_err();
    mount();
}

/// Only checks and backups learn what identifies a destination, because they record it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_is_not_known_is_only_opened_to_learn_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let unknown = plan(server.port(), "backups");
    let error = settings().open_known(&unknown).await.err().unwrap();
    assert!(error.message.contains("Check the destination first"), "{error}");
    assert_eq!(server.tries(), 0, "the password is not sent");
    let with_key = with(&unknown, |sftp| sftp.host_key = Some(server.fingerprint().to_owned()));
    assert_eq!(settings().open_known(&with_key).await.err().unwrap().code, FailureCode::DestinationUnmounted);
    assert!(!folder.path().join("backups").exists(), "nothing is created");
    settings().open(&unknown).await.unwrap();
    settings().open_known(&with_key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_or_folder_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let server = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let plan = plan(server.port(), "backups");
    let Opened { identity: DestinationIdentity { marker, .. }, .. } = settings().open(&plan).await.unwrap();
    let known = DestinationPlan { marker: marker.clone(), ..plan };
    assert_eq!(settings().open(&known).await.unwrap().identity.marker, marker);
    assert_eq!(settings().find_marker(&known).await.unwrap(), marker);

    let tries = server.tries();
    let other_key = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU".to_owned();
    let error = refused(&with(&known, |sftp| sftp.host_key = Some(other_key))).await;
    assert_eq!(error.code, FailureCode::DestinationKeyChanged);
    assert!(error.message.contains(server.fingerprint()), "{error}");
    assert_eq!(server.tries(), tries, "nobody who shows another key gets the password");

    // The folder is missing, and then replaced by an empty one.
    std::fs::rename(folder.path().join("backups"), folder.path().join("unmounted")).unwrap();
    assert_eq!(refused(&known).await.code, FailureCode::DestinationUnmounted);
    std::fs::create_dir(folder.path().join("backups")).unwrap();
    assert_eq!(refused(&known).await.code, FailureCode::DestinationUnmounted);
    assert!(settings().find_marker(&known).await.is_err());
    assert_eq!(std::fs::read_dir(folder.path().join("backups")).unwrap().count(), 0, "nothing is written there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_have_specific_error_codes() {
    let folder = tempfile::tempdir().unwrap();
    let server = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let good = plan(server.port(), "backups");
    let wrong = DestinationPlan { secret_key: Some(Secret::new("wrong")), ..good.clone() };
    assert_eq!(refused(&wrong).await.code, FailureCode::DestinationDenied);
    assert_eq!(server.tries(), 1, "a wrong password is not tried again");
    let nothing = DestinationPlan { secret_key: None, ..good.clone() };
    assert_eq!(refused(&nothing).await.code, FailureCode::DestinationDenied);
    let private = DestinationPlan { allow_private: false, ..good.clone() };
    assert_eq!(refused(&private).await.code, FailureCode::ForbiddenAddress);
    let closed = holdfast_testkit::free_port();
    assert_eq!(refused(&with(&good, |sftp| sftp.port = closed)).await.code, FailureCode::DestinationUnavailable);
    std::fs::write(folder.path().join("file"), "").unwrap();
    assert_eq!(refused(&with(&good, |sftp| sftp.path = "file/x".into())).await.code, FailureCode::DestinationFailed);

    let Opened { store, .. } = settings().open(&good).await.unwrap();
    let error = store.read("nothing", 0..1).await.unwrap_err();
    assert_eq!(error.code, FailureCode::Missing);
    upload(store.as_ref(), "twice", 1).await.unwrap();
    let error = upload(store.as_ref(), "twice", 1).await.unwrap_err();
    assert!(error.message.contains("already exists"), "{error}");
    store.abort("twice", None).await.unwrap();
    std::fs::OpenOptions::new().write(true).open(folder.path().join("backups/twice")).unwrap().set_len(9).unwrap();
    assert_eq!(store.read("twice", 0..10).await.unwrap_err().code, FailureCode::Corrupt);
}
