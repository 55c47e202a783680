use std::path::PathBuf;

use holdfast_testkit::{
    Engine, FaultProxy, Fingerprint, PasswordMethod, PasswordServer, SampleTree, SshServer, TestApp, assert_same,
    on_both_engines,
};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed, assert_successful};
use crate::inventory::take_inventory;

/// A bench with a folder on another server instead of a local one. The user is an administrator because the server is
/// on loopback.
async fn bench(app: TestApp) -> (Bench, SshServer, PathBuf) {
    let user = app.admin("ada").await;
    let mut bench = Bench::of(app, SshServer::start(), user).await;
    let storage = SshServer::builder().sftp_only().start();
    let key = bench.user.client.get("/api/ssh-key").await.data(200);
    storage.authorize(key["public_key"].as_str().unwrap());
    let folder = bench.folder.path().join("nas/backups");
    let body = json!({"label": "nas", "type": "sftp", "sftp_host": "127.0.0.1", "sftp_port": storage.port(),
        "sftp_username": storage.username(), "sftp_path": folder});
    bench.destination = bench.user.client.post("/api/backup-destinations", body).await.id(201);
    (bench, storage, folder)
}

fn path(bench: &Bench) -> String {
    format!("/api/backup-destinations/{}", bench.destination)
}

async fn show(bench: &Bench) -> Value {
    bench.user.client.get(&path(bench)).await.data(200)
}

async fn checked(bench: &Bench) -> Value {
    bench.user.client.act(&format!("{}/check", path(bench))).await.expect(202);
    bench.app.run_until_idle().await;
    show(bench).await
}

/// All stored objects, including hidden ones, except the marker and the catalogue.
fn objects(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != ".holdfast-destination" && name != "holdfast-catalogue");
    names.sort();
    names
}

on_both_engines! {
    async fn files_are_stored_on_a_server_and_restored(app: TestApp) {
        let (bench, storage, folder) = bench(app).await;
        SampleTree::create(&bench.source());
        // Incompressible, and large enough for several parts.
        std::fs::write(bench.source().join("large"), holdfast_testkit::random(3, 20 * 1024 * 1024)).unwrap();
        assert!(show(&bench).await.get("sftp_host_key_fingerprint").is_none());
        for password in [None, Some("correct horse battery")] {
            let backup = bench.back_up(bench.task(json!({"encryption_password": password})).await).await;
            assert_eq!(objects(&folder).len(), 1, "exactly one object");
            assert_eq!(bench.verify(&backup).await["status"], "successful");
            let target = bench.folder.path().join(format!("back-{}", backup["id"]));
            assert_successful(&bench.restore(&backup, json!({"path": target})).await);
            assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target));
            bench.user.client.delete(&format!("/api/backups/{}", backup["id"])).await.expect(200);
            bench.app.run_until_idle().await;
            assert_eq!(objects(&folder), [""; 0]);
        }
        let shown = show(&bench).await;
        assert_eq!(shown["sftp_host_key_fingerprint"], storage.fingerprint(), "pinned on first contact: {shown}");
        assert_eq!((&shown["type_human"], &shown["is_sftp_password_set"]), (&json!("SFTP"), &json!(false)));
        assert!(folder.join("holdfast-catalogue").is_dir(), "the catalogue is there, too");
    }

    async fn another_host_key_stops_everything_until_it_is_entered(app: TestApp) {
        let (bench, mut storage, _) = bench(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({})).await;
        let backup = bench.back_up(task).await;
        storage.rekey_host();
        let tries = storage.auth_attempts();
        assert_failed(&bench.run(task).await, "destination_key_changed");
        assert_eq!(storage.auth_attempts(), tries);
        let shown = checked(&bench).await;
        assert_eq!(shown["error_code"], "destination_key_changed");
        assert!(shown["last_error"].as_str().unwrap().contains(storage.fingerprint()), "{shown}");
        let server = bench.user.client.get(&format!("/api/remote-servers/{}", bench.server)).await.data(200);
        assert_eq!(server["status"]["connectivity"], "online", "the server that is backed up has no part in it");
        let body = json!({"sftp_host_key_fingerprint": storage.fingerprint()});
        bench.user.client.put(&path(&bench), body).await.expect(200);
        assert_eq!(checked(&bench).await["status"], "reachable");
        assert_eq!(std::fs::read_to_string(bench.restore_all(&backup).await.join("file")).unwrap(), "content");
    }
}

async fn sqlite() -> TestApp {
    TestApp::start(Engine::Sqlite).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_with_backups_is_known_by_its_marker_wherever_it_is() {
    let (bench, _storage, folder) = bench(sqlite().await).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    // Moved with its content.
    let moved = bench.folder.path().join("elsewhere");
    std::fs::rename(&folder, &moved).unwrap();
    assert_eq!(checked(&bench).await["error_code"], "destination_unmounted");
    bench.user.client.put(&path(&bench), json!({"sftp_path": moved})).await.expect(200);
    assert_eq!(bench.verify(&backup).await["status"], "successful");
    // Another folder, without the backups.
    bench.user.client.put(&path(&bench), json!({"sftp_path": bench.folder.path().join("new")})).await.expect(200);
    assert_eq!(checked(&bench).await["error_code"], "destination_unmounted");
    bench.user.client.put(&path(&bench), json!({"type": "local"})).await.expect(409);
    // Without backups, any folder may be used.
    bench.user.client.put(&path(&bench), json!({"sftp_path": moved})).await.expect(200);
    bench.user.client.delete(&format!("/api/backups/{}", backup["id"])).await.expect(200);
    bench.app.run_until_idle().await;
    bench.user.client.put(&path(&bench), json!({"sftp_path": bench.folder.path().join("new")})).await.expect(200);
    assert_eq!(checked(&bench).await["status"], "reachable");
    bench.user.client.put(&path(&bench), json!({"type": "local"})).await.expect(200);
    assert_eq!(checked(&bench).await["status"], "reachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_keys_and_addresses_are_told_apart() {
    let (bench, storage, _) = bench(sqlite().await).await;
    storage.revoke_all();
    let shown = checked(&bench).await;
    assert_eq!(shown["error_code"], "destination_denied");
    assert!(shown["last_error"].as_str().unwrap().contains("refused your SSH key"), "{shown}");
    let folder = tempfile::tempdir().unwrap();
    let appliance = PasswordServer::start(PasswordMethod::KeyboardInteractive, folder.path(), &[]).await;
    let login = |password: &str| {
        json!({"sftp_port": appliance.port(), "sftp_username": PasswordServer::USERNAME,
            "sftp_password": password, "sftp_path": "backups"})
    };
    bench.user.client.put(&path(&bench), login("wrong")).await.expect(200);
    assert_eq!(checked(&bench).await["error_code"], "destination_denied");
    let shown = bench.user.client.put(&path(&bench), login(PasswordServer::PASSWORD)).await.data(200);
    assert_eq!(shown["is_sftp_password_set"], true);
    assert!(!shown.to_string().contains(PasswordServer::PASSWORD));
    assert_eq!(checked(&bench).await["status"], "reachable");
    // A password is bound to one account on one server.
    bench.user.client.put(&path(&bench), json!({"sftp_host": "localhost"})).await.error_of("sftp_password");
    // Only administrators may use loopback.
    let other = bench.app.user("bob").await;
    let mut body = login(PasswordServer::PASSWORD);
    let rest = json!({"label": "nas", "type": "sftp", "sftp_host": "127.0.0.1"});
    body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    let id = other.client.post("/api/backup-destinations", body).await.id(201);
    other.client.act(&format!("/api/backup-destinations/{id}/check")).await.expect(202);
    bench.app.run_until_idle().await;
    let shown = other.client.get(&format!("/api/backup-destinations/{id}")).await.data(200);
    assert_eq!(shown["error_code"], "forbidden_address", "{shown}");
}

/// A bench whose storage is behind a proxy, with one large backup.
async fn behind_proxy() -> (Bench, SshServer, PathBuf, FaultProxy, Value) {
    let (bench, storage, folder) = bench(sqlite().await).await;
    let proxy = FaultProxy::start(storage.port());
    bench.user.client.put(&path(&bench), json!({"sftp_port": proxy.port()})).await.expect(200);
    std::fs::write(bench.source().join("large"), holdfast_testkit::random(1, 24 << 20)).unwrap();
    let backup = bench.back_up(bench.task(json!({"frequency": "monthly"})).await).await;
    (bench, storage, folder, proxy, backup)
}

/// Does the pending work with a slow connection. Once some of the backup has been read, `then` is called.
async fn while_reading(bench: &Bench, proxy: &FaultProxy, work: impl Future<Output = ()>, then: impl AsyncFnOnce()) {
    proxy.throttle(4 << 20);
    let before = proxy.bytes_to_client();
    tokio::join!(work, async {
        while proxy.bytes_to_client() < before + (2 << 20) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        then().await;
        proxy.heal();
    });
    bench.app.run_until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_goes_away_does_not_make_its_backups_missing() {
    let (bench, _storage, folder, proxy, backup) = behind_proxy().await;
    let away = folder.with_extension("unmounted");
    let body = json!({"remote_server_id": bench.server, "path": bench.target()});
    for (find, body) in [("verify", json!({})), ("restores", body)] {
        let run = bench.user.client.post(&format!("/api/backups/{}/{find}", backup["id"]), body).await.data(202);
        while_reading(&bench, &proxy, bench.app.run_until_idle(), async || std::fs::rename(&folder, &away).unwrap())
            .await;
        assert_failed(&bench.show_run(&run).await, "destination_unmounted");
        assert_eq!(bench.show(&backup).await["verification"]["status"], "unverified", "{find}");
        std::fs::rename(&away, &folder).unwrap();
    }
    assert_successful(&bench.verify(&backup).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_that_is_there_again_is_missing_until_it_has_been_read() {
    let (bench, _storage, folder, proxy, backup) = behind_proxy().await;
    let status = async || bench.show(&backup).await["verification"]["status"].clone();
    let object = folder.join(backup["key"].as_str().unwrap());
    let aside = bench.folder.path().join("aside");
    std::fs::rename(&object, &aside).unwrap();
    take_inventory(&bench).await;
    assert_eq!(status().await, "missing");
    std::fs::rename(&aside, &object).unwrap();
    while_reading(&bench, &proxy, take_inventory(&bench), async || assert_eq!(status().await, "missing")).await;
    assert_eq!(status().await, "verified");
}
