use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use holdfast_core::Secret;
use holdfast_core::destination::{DestinationIdentity, DestinationSpec, SftpDestination};
use holdfast_core::run::FailureCode;
use holdfast_engine::destination::{BlobStore, DestinationPlan, DestinationSettings, Opened, PartBody, RetryPolicy};
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
            assert_eq!(store.shape(0).has_tags, !arguments.is_empty(), "a server that cannot flush is read back");
            assert_eq!(identity.host_key.as_deref(), Some(server.fingerprint()));
            assert_eq!(identity.marker.as_ref().map(String::len), Some(32));
        }
    }
}

/// Uploads `parts` of 5 MiB, completes the upload, and compares the object.
async fn upload(store: &dyn BlobStore, key: &str, parts: usize) -> Result<()> {
    let bodies: Vec<Bytes> =
        (0..parts).map(|seed| holdfast_testkit::random(seed as u64, 5 * 1024 * 1024).into()).collect();
    let upload = store.begin(key).await?;
    for (index, body) in bodies.iter().enumerate() {
        store.put_part(key, &upload, index, PartBody::from(vec![body.clone()])).await?;
    }
    store.complete(key, &upload, vec![String::new(); parts]).await?;
    let all = bodies.concat();
    assert!(store.read(key, 0..all.len() as u64).await? == all, "what is there is what was sent");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_after_the_connection_broke() {
    let folder = tempfile::tempdir().unwrap();
    let server = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let proxy = FaultProxy::start(server.port());
    let Opened { store, .. } = settings().open(&plan(proxy.port(), "backups")).await.unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let breaking = async {
        // Cut in the middle of the first part, and again in later ones.
        for bytes in [3, 9, 14] {
            proxy.cut_after(bytes * 1024 * 1024);
            let before = proxy.connections();
            while proxy.connections() == before && !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            proxy.heal();
        }
    };
    let uploading = async {
        upload(store.as_ref(), "a/large", 5).await.unwrap();
        is_done.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    tokio::join!(uploading, breaking);
    assert!(proxy.connections() > 1, "it was cut");
    assert_eq!(store.list("", 10).await.unwrap(), ["a/large"]);
    assert_eq!(std::fs::read_dir(folder.path().join("backups/a")).unwrap().count(), 1, "no part file is left");
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
