use std::sync::Arc;

use holdfast_core::Secret;
use holdfast_core::clock::{SharedClock, SystemClock};
use holdfast_core::ids::StreamId;
use holdfast_core::secret::SecretChange;
use holdfast_core::stream::{StreamDraft, StreamKind};
use holdfast_store::master_key::MasterKeySource;
use holdfast_store::{StartError, Store, rotate, ssh_keys, streams};
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

fn draft(value: &str) -> StreamDraft {
    StreamDraft {
        label: "x".into(),
        kind: StreamKind::Email,
        on_success: true,
        on_failure: true,
        value: SecretChange::Set(Secret::new(value)),
        token: SecretChange::Keep,
    }
}

async fn value_of(store: &Store, id: StreamId) -> String {
    let mut tx = store.read().await.unwrap();
    let row = streams::find(&mut tx, id).await.unwrap().unwrap();
    streams::open_value(&mut tx, &row).await.unwrap().unwrap().reveal().to_owned()
}

on_both_engines! {
    async fn a_wrong_or_missing_key_stops_the_start_and_changes_nothing(app: TestApp) {
        let user = app.user("ada").await;
        let path = app.folder.path().join("master.key");
        let right = std::fs::read(&path).unwrap();
        let open = async || Store::open(&app.options, &clock()).await.map(drop);

        std::fs::remove_file(&path).unwrap();
        let error = open().await.unwrap_err();
        assert!(matches!(error, StartError::MasterKey(_)) && error.to_string().contains("is missing"), "{error}");
        assert!(!path.exists(), "no new key is made where the old one is needed");

        let mut wrong = app.options.clone();
        wrong.master_key = MasterKeySource::Given(Secret::new("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="));
        let error = Store::open(&wrong, &clock()).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("is not the one this database was sealed with"), "{error}");

        std::fs::write(&path, "rubbish").unwrap();
        assert!(matches!(open().await.unwrap_err(), StartError::MasterKey(_)));
        std::fs::write(&path, right).unwrap();
        open().await.unwrap();
        user.client.get("/api/user").await.expect(200);
    }

    async fn secrets_are_bound_to_their_table_column_row_and_user(app: TestApp) {
        let (ada, eve) = (app.user("ada").await, app.user("eve").await);
        let mut tx = app.app.store.begin().await.unwrap();
        let place = holdfast_store::SealContext { table: "t", column: "c", row: 1, user: ada.id };
        let sealed = tx.seal(place, &Secret::new("planted")).await.unwrap();
        assert_eq!(tx.open(place, &sealed).await.unwrap().reveal(), "planted");
        let elsewhere = [
            holdfast_store::SealContext { row: 2, ..place },
            holdfast_store::SealContext { column: "d", ..place },
            holdfast_store::SealContext { table: "u", ..place },
            holdfast_store::SealContext { user: eve.id, ..place },
        ];
        for other in elsewhere {
            assert!(tx.open(other, &sealed).await.is_err(), "{other:?}");
        }
        for position in [0, 5, 20, sealed.len() - 1] {
            let mut damaged = sealed.clone();
            damaged[position] ^= 1;
            assert!(tx.open(place, &damaged).await.is_err(), "byte {position}");
        }
        assert!(tx.open(place, &sealed[..sealed.len() - 1]).await.is_err());
    }

    async fn keys_can_be_rotated_while_the_service_runs(app: TestApp) {
        let user = app.user("ada").await;
        user.client.get("/api/ssh-key").await.expect(200);
        let store = &app.app.store;
        let now = app.app.now();
        let mut ids = Vec::new();
        for number in 0..450 {
            let mut tx = store.begin().await.unwrap();
            ids.push(streams::insert(&mut tx, user.id, &draft(&format!("before{number}@example.org")), now).await.unwrap());
            tx.commit().await.unwrap();
        }
        let key_before = std::fs::read_to_string(app.folder.path().join("master.key")).unwrap();

        // Another process rotates while this one keeps writing.
        let other = Store::open(&app.options, &clock()).await.unwrap();
        let client = user.client.clone();
        let writing = tokio::spawn(async move {
            let mut written = Vec::new();
            for number in 0..50 {
                let value = format!("during{number}@example.org");
                let body = json!({"label": "x", "type": "email", "value": value});
                written.push((client.post("/api/notification-streams", body).await.id(201), value));
            }
            written
        });
        let resealed = rotate(&other, now).await.unwrap();
        let written = writing.await.unwrap();
        assert!(resealed.resealed >= 451 && !resealed.keeps_old_keys, "{resealed:?}");

        let key_after = std::fs::read_to_string(app.folder.path().join("master.key")).unwrap();
        assert_ne!(key_before, key_after);
        assert_eq!(key_after.lines().count(), 1, "the old key is not needed any more");
        let fresh = Store::open(&app.options, &clock()).await.unwrap();
        for reader in [store, &other, &fresh] {
            assert_eq!(value_of(reader, ids[0]).await, "before0@example.org");
            assert_eq!(value_of(reader, ids[449]).await, "before449@example.org");
            for (id, value) in &written {
                assert_eq!(value_of(reader, StreamId(*id)).await, *value);
            }
            let mut tx = reader.read().await.unwrap();
            assert!(ssh_keys::find_private(&mut tx, user.id).await.unwrap().is_some());
        }
        std::fs::write(app.folder.path().join("master.key"), key_before).unwrap();
        assert!(Store::open(&app.options, &clock()).await.is_err(), "the old key opens nothing");
    }

    async fn two_rotations_at_once_are_refused(app: TestApp) {
        let lock = app.folder.path().join("master.lock");
        let held = std::fs::File::create(&lock).unwrap();
        held.lock().unwrap();
        let error = rotate(&app.app.store, app.app.now()).await.unwrap_err().to_string();
        assert!(error.contains("another rotation is under way"), "{error}");
        drop(held);
        rotate(&app.app.store, app.app.now()).await.unwrap();
    }

    async fn a_rotation_that_was_interrupted_can_be_repeated(app: TestApp) {
        let user = app.user("ada").await;
        let now = app.app.now();
        let mut tx = app.app.store.begin().await.unwrap();
        let id = streams::insert(&mut tx, user.id, &draft("kept@example.org"), now).await.unwrap();
        tx.commit().await.unwrap();
        // Interrupted after the new key was written before the old one, and before anything was sealed with it.
        let path = app.folder.path().join("master.key");
        let old = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n{old}")).unwrap();
        let reopened = Store::open(&app.options, &clock()).await.unwrap();
        assert_eq!(value_of(&reopened, id).await, "kept@example.org");
        rotate(&reopened, now).await.unwrap();
        let fresh = Store::open(&app.options, &clock()).await.unwrap();
        assert_eq!(value_of(&fresh, id).await, "kept@example.org");
        let key = std::fs::read_to_string(&path).unwrap();
        assert!(key.contains("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=") && key.lines().count() == 1, "it is completed");
    }
}

fn given(folder: &std::path::Path, keys: &str) -> holdfast_store::Options {
    holdfast_store::Options {
        url: format!("sqlite://{}", folder.join("x.db").display()),
        max_connections: 1,
        acquire_timeout: std::time::Duration::from_secs(5),
        master_key: MasterKeySource::Given(Secret::new(keys)),
        migrations: holdfast_store::Migrations::Apply,
    }
}

/// What a command cannot change, an operator changes: the new key comes first.
#[tokio::test]
async fn a_key_from_the_environment_is_rotated_in_two_steps() {
    const OLD: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const NEW: &str = "HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let folder = tempfile::tempdir().unwrap();
    let now = "2025-01-01T00:00:00Z".parse().unwrap();
    let store = Store::open(&given(folder.path(), OLD), &clock()).await.unwrap();
    let error = rotate(&store, now).await.unwrap_err().to_string();
    assert!(error.contains("write a new key on a line before the old one"), "{error}");
    store.close().await;
    let both = given(folder.path(), &format!("{NEW}\n{OLD}"));
    let store = Store::open(&both, &clock()).await.unwrap();
    assert!(rotate(&store, now).await.unwrap().keeps_old_keys);
    store.close().await;
    assert!(Store::open(&given(folder.path(), OLD), &clock()).await.is_err(), "the old key opens nothing");
    let store = Store::open(&given(folder.path(), NEW), &clock()).await.unwrap();
    store.check_master_key().await.unwrap();
    let error = rotate(&store, now).await.unwrap_err().to_string();
    assert!(error.contains("HOLDFAST_MASTER_KEY"), "{error}");
}

/// Secrets in containers are also folders that are mounted read-only.
#[tokio::test]
async fn a_key_in_a_read_only_folder_is_rotated_in_two_steps() {
    const OLD: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const NEW: &str = "HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let folder = tempfile::tempdir().unwrap();
    let (secrets, mounted) = (folder.path().join("secrets"), folder.path().join("mounted"));
    std::fs::create_dir(&secrets).unwrap();
    std::fs::create_dir(&mounted).unwrap();
    std::fs::write(secrets.join("key"), format!("{OLD}\n")).unwrap();
    let mount = |arguments: &[&str]| {
        let mut command = std::process::Command::new("mount");
        command.args(arguments).arg(&mounted).output().is_ok_and(|output| output.status.success())
    };
    if !mount(&["--bind", &secrets.display().to_string()]) {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    }
    assert!(mount(&["-o", "remount,bind,ro"]));
    let key = MasterKeySource::File(mounted.join("key"));
    let options = holdfast_store::Options { master_key: key, ..given(folder.path(), "") };
    let now = "2025-01-01T00:00:00Z".parse().unwrap();
    let store = Store::open(&options, &clock()).await.unwrap();
    let refused = rotate(&store, now).await;
    store.close().await;
    std::fs::write(secrets.join("key"), format!("{NEW}\n{OLD}\n")).unwrap();
    let store = Store::open(&options, &clock()).await.unwrap();
    let rotated = rotate(&store, now).await;
    store.close().await;
    let unbound = std::process::Command::new("umount").arg(&mounted).status();
    assert!(unbound.unwrap().success());
    assert!(refused.unwrap_err().to_string().contains("write a new key on a line before the old one"));
    assert!(rotated.unwrap().keeps_old_keys);
    Store::open(&given(folder.path(), NEW), &clock()).await.unwrap().check_master_key().await.unwrap();
}

/// Secrets in containers are files that are mounted one by one.
#[tokio::test]
async fn a_mounted_key_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    std::fs::write(&key, "").unwrap();
    let bound = std::process::Command::new("mount").arg("--bind").args([&secret, &key]).output();
    if !bound.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    }
    let options =
        holdfast_store::Options { master_key: MasterKeySource::File(key.clone()), ..given(folder.path(), "") };
    let store = Store::open(&options, &clock()).await.unwrap();
    let refused = rotate(&store, "2025-01-01T00:00:00Z".parse().unwrap()).await;
    store.close().await;
    let unbound = std::process::Command::new("umount").arg(&key).status();
    assert!(unbound.unwrap().success());
    assert!(refused.unwrap_err().to_string().contains("write a new key on a line before the old one"));
    let left: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("key."))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
