use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::{
    Engine, Fingerprint, Ignore, Receiver, S3Server, SampleTree, SshServer, TestApp, assert_same_but, on_both_engines,
    random,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed, assert_successful, encoded, output};

const PASSWORD: &str = "correct horse";

/// What a repository does not keep.
const IGNORED: Ignore = Ignore {
    holes: true,
    link_times: false,
    folder_times: false,
    nanoseconds: false,
    owners: false,
    hard_links: false,
};

impl Bench {
    /// A task that stores in a repository.
    async fn repository_task(&self, changes: Value) -> i64 {
        let mut body = json!({"format": "repository", "encryption_password": PASSWORD});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        self.task(body).await
    }

    async fn repository(&self, task: i64) -> Value {
        self.user.client.get(&format!("/api/backup-tasks/{task}/repository")).await.data(200)
    }

    fn repository_folder(&self, repository: &Value) -> PathBuf {
        self.stored_folder().join(repository["folder"].as_str().unwrap())
    }

    /// Prunes or checks the repository of a task, and returns the run.
    async fn maintain(&self, task: i64, what: &str) -> Value {
        let run = self.user.client.act(&format!("/api/backup-tasks/{task}/repository/{what}")).await.data(202);
        self.app.run_until_idle().await;
        self.show_run(&run).await
    }

    /// Removes what is due to be removed.
    async fn settle(&self) {
        self.app.clock.advance_secs(60);
        self.app.run_until_idle().await;
    }

    fn expected(&self) -> Fingerprint {
        let mut expected = Fingerprint::of(&self.source());
        expected.0.retain(|_, facts| format!("{:?}", facts.kind) != "Socket");
        expected
    }
}

fn restic(repository: &Path, password: &str, arguments: &[&str]) -> String {
    let done = Command::new("restic")
        .args(["--no-cache", "--repo"])
        .arg(repository)
        .args(arguments)
        .env("RESTIC_PASSWORD", password)
        .output()
        .expect("restic is installed");
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "restic {arguments:?}: {text}");
    text
}

fn packs(repository: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(repository.join("data")).unwrap().map(|folder| folder.unwrap().path());
    let mut packs: Vec<PathBuf> =
        folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|pack| pack.unwrap().path()).collect();
    packs.sort_by_key(|pack| std::fs::metadata(pack).unwrap().len());
    packs
}

fn bytes_of(repository: &Path) -> u64 {
    packs(repository).iter().map(|pack| std::fs::metadata(pack).unwrap().len()).sum()
}

on_both_engines! {
    async fn backups_store_what_has_changed_and_come_back_as_they_were(app: TestApp) {
        let bench = Bench::new(app).await;
        SampleTree::create(&bench.source());
        std::fs::write(bench.source().join("large"), random(1, 6_000_000)).unwrap();
        let task = bench.repository_task(json!({"store_path": "/some/place"})).await;
        bench.user.client.get(&format!("/api/backup-tasks/{task}/repository")).await.expect(404);
        bench.user.client.act(&format!("/api/backup-tasks/{task}/repository/prune")).await.expect(409);
        let first = bench.back_up(task).await;
        let second = bench.back_up(task).await;
        let (added, again) = (first["size_bytes"].as_i64().unwrap(), second["size_bytes"].as_i64().unwrap());
        assert!(added > 6_000_000 && again < 20_000, "{added} and {again} bytes");
        assert_eq!((&first["format"], &first["is_encrypted"]), (&json!("repository"), &json!(true)));
        assert_eq!(first["entries"], second["entries"]);
        let repository = bench.repository(task).await;
        assert_eq!(repository["folder"], format!("some/place/web-files-{task}"));
        assert_eq!((&repository["backups"], &repository["error"]), (&json!(2), &Value::Null));
        assert!(repository["stored_bytes"].as_i64().unwrap() < repository["plain_bytes"].as_i64().unwrap());

        // Entries, one file, the whole, a verification and a restore, as for archives.
        let client = &bench.user.client;
        let entries = client.get(&format!("/api/backups/{}/entries", second["id"])).await.expect(200);
        assert!(entries["data"].as_array().unwrap().iter().any(|entry| entry["name"] == "large"), "{entries}");
        let download = async |query: &str| {
            let path = format!("/api/backups/{}/download{query}", second["id"]);
            let request = client.request(Method::GET, &path).bearer_auth(client.token());
            request.send().await.unwrap().error_for_status().unwrap().bytes().await.unwrap()
        };
        assert!(download(&format!("?entry={}", encoded("large"))).await == random(1, 6_000_000));
        let whole = download("").await;
        std::fs::write(bench.folder.path().join("whole.tar"), whole).unwrap();
        let listed = Command::new("tar").arg("tf").arg(bench.folder.path().join("whole.tar")).output().unwrap();
        assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("./large"));
        assert_successful(&bench.verify(&first).await);
        assert_eq!(bench.show(&first).await["verification"]["status"], "verified");
        let target = bench.restore_all(&second).await;
        assert_same_but(&bench.expected(), &Fingerprint::of(&target), IGNORED);

        // restic alone finds it sound and restores the same.
        let folder = bench.repository_folder(&repository);
        restic(&folder, PASSWORD, &["check", "--read-data"]);
        let target = bench.folder.path().join("by restic");
        restic(&folder, PASSWORD, &["restore", "latest", "--target", target.to_str().unwrap()]);
        let restored = target.join(bench.source().strip_prefix("/").unwrap());
        assert!(std::fs::read(restored.join("large")).unwrap() == random(1, 6_000_000));
    }

    async fn removed_backups_leave_nothing_behind_after_a_prune(app: TestApp) {
        let bench = Bench::new(app).await;
        let task = bench.repository_task(json!({"maximum_backups_to_keep": 2})).await;
        for round in 0..5 {
            std::fs::write(bench.source().join("file"), random(round, 3_000_000)).unwrap();
            std::fs::write(bench.source().join("same"), random(99, 1_000_000)).unwrap();
            bench.back_up(task).await;
            bench.settle().await;
        }
        let repository = bench.repository(task).await;
        let folder = bench.repository_folder(&repository);
        assert_eq!(repository["backups"], 2);
        assert!(repository["garbage_bytes"].as_i64().unwrap() > 8_000_000, "{repository}");
        assert!(bytes_of(&folder) > 15_000_000);
        let run = bench.maintain(task, "prune").await;
        assert_successful(&run);
        assert!(output(&run).contains("Freed"), "{}", output(&run));
        let pruned = bench.repository(task).await;
        assert_eq!((&pruned["garbage_bytes"], pruned["pruned_at"].is_null()), (&json!(0), false), "{pruned}");
        assert!(bytes_of(&folder) < 8_500_000, "{} bytes", bytes_of(&folder));
        restic(&folder, PASSWORD, &["check", "--read-data"]);
        for backup in bench.backups(task).await {
            assert_successful(&bench.verify(&backup).await);
        }
        // It is also done by itself: at once if there is much to free, and after a week if there is little.
        bench.user.client.put(&format!("/api/backup-tasks/{task}"), json!({"maximum_backups_to_keep": 1})).await.expect(200);
        std::fs::write(bench.source().join("file"), random(50, 3_000_000)).unwrap();
        bench.back_up(task).await;
        bench.settle().await;
        bench.app.clock.advance_secs(86_400);
        bench.app.worker().tidy().await.unwrap();
        bench.app.run_until_idle().await;
        let again = bench.repository(task).await;
        assert_ne!(again["pruned_at"], pruned["pruned_at"]);
        assert!(bytes_of(&folder) < 5_000_000, "{} bytes", bytes_of(&folder));
        assert_successful(&bench.verify(&bench.backups(task).await[0]).await);
    }

    async fn a_new_password_replaces_the_old_one_and_opens_earlier_backups(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), random(1, 700_000)).unwrap();
        let task = bench.repository_task(json!({})).await;
        let first = bench.back_up(task).await;
        let change = async |password: &str| {
            let body = json!({"encryption_password": password});
            bench.user.client.put(&format!("/api/backup-tasks/{task}"), body).await.expect(200);
        };
        change("second password").await;
        assert_successful(&bench.verify(&first).await);
        // A run that fails after it has set the password.
        std::fs::rename(bench.source(), bench.folder.path().join("away")).unwrap();
        assert_failed(&bench.run(task).await, "source_missing");
        std::fs::rename(bench.folder.path().join("away"), bench.source()).unwrap();
        assert_successful(&bench.verify(&first).await);
        change("third password").await;
        let second = bench.back_up(task).await;
        for backup in [&first, &second] {
            assert_successful(&bench.verify(backup).await);
        }
        let folder = bench.repository_folder(&bench.repository(task).await);
        restic(&folder, "third password", &["check", "--read-data"]);
        assert_eq!(std::fs::read_dir(folder.join("keys")).unwrap().count(), 1, "the old passwords open nothing");
        let refused = json!({"encryption_password": null});
        bench.user.client.put(&format!("/api/backup-tasks/{task}"), refused).await.error_of("encryption_password");
        // Once the format is another one, the backups in the repository stay what they are.
        let archive = json!({"format": "archive", "encryption_password": null});
        bench.user.client.put(&format!("/api/backup-tasks/{task}"), archive).await.expect(200);
        let third = bench.back_up(task).await;
        assert_eq!(third["format"], "archive");
        for backup in [&first, &third] {
            assert_successful(&bench.verify(backup).await);
        }
    }

    async fn a_check_names_what_is_damaged_and_the_next_backup_repairs_it(app: TestApp) {
        let user = app.admin("ada").await;
        let bench = Bench::of(app, SshServer::start(), user).await;
        let receiver = Receiver::start().await;
        let stream = json!({"label": "hook", "type": "slack", "value": receiver.url("/damage")});
        let stream = bench.user.client.post("/api/notification-streams", stream).await.id(201);
        for name in ["one", "two"] {
            std::fs::write(bench.source().join(name), random(name.len() as u64 + u64::from(name.as_bytes()[0]), 900_000)).unwrap();
        }
        let task = bench.repository_task(json!({"notification_stream_ids": [stream]})).await;
        let first = bench.back_up(task).await;
        let folder = bench.repository_folder(&bench.repository(task).await);
        // A requested check reads everything, a scheduled one a part.
        let mut parts = 0;
        while bench.repository(task).await["checked_at"].is_null() {
            assert_eq!(bench.show(&first).await["verification"]["status"], "unverified", "{parts}");
            bench.app.clock.advance_secs(7 * 86_400);
            bench.app.worker().tidy().await.unwrap();
            bench.app.run_until_idle().await;
            parts += 1;
            assert!(parts <= 4, "it was checked {parts} times");
        }
        assert!(parts >= 2, "{parts} parts");
        assert_eq!(bench.show(&first).await["verification"]["status"], "verified");
        // A pack with data is damaged.
        let pack = packs(&folder).pop().unwrap();
        let mut bytes = std::fs::read(&pack).unwrap();
        bytes[1000] ^= 1;
        std::fs::write(&pack, bytes).unwrap();
        let run = bench.maintain(task, "check").await;
        assert_failed(&run, "corrupt");
        let named = pack.file_name().unwrap().to_str().unwrap();
        assert!(output(&run).contains(named) && output(&run).contains("These paths cannot be restored: "), "{}", output(&run));
        assert_eq!(bench.show(&first).await["verification"]["status"], "corrupt");
        bench.app.run_until_idle().await;
        assert!(receiver.received().iter().any(|told| String::from_utf8_lossy(&told.body).contains("cannot be restored")));
        // The source still has what was lost.
        let second = bench.back_up(task).await;
        for backup in [&second, &first] {
            assert_successful(&bench.verify(backup).await);
        }
        // What is damaged is in the way of nothing.
        assert_successful(&bench.maintain(task, "prune").await);
        restic(&folder, PASSWORD, &["check", "--read-data"]);
    }

    async fn nothing_is_begun_or_removed_where_something_is_lost(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), random(1, 900_000)).unwrap();
        let task = bench.repository_task(json!({})).await;
        let first = bench.back_up(task).await;
        let folder = bench.repository_folder(&bench.repository(task).await);
        let before = packs(&folder);
        // A snapshot that is away, for example because somebody restores the folder from a copy.
        let (snapshot, away) = (bench.stored_file(&first), bench.folder.path().join("away"));
        std::fs::rename(&snapshot, &away).unwrap();
        let refused = bench.maintain(task, "prune").await;
        assert_failed(&refused, "missing");
        assert!(output(&refused).contains("Nothing was removed"), "{}", output(&refused));
        assert_eq!(packs(&folder), before);
        std::fs::rename(&away, &snapshot).unwrap();
        assert_successful(&bench.maintain(task, "prune").await);
        // The configuration: another one would come with another key.
        std::fs::rename(folder.join("config"), &away).unwrap();
        let keys = || std::fs::read_dir(folder.join("keys")).unwrap().count();
        for path in [bench.source(), bench.folder.path().to_owned()] {
            bench.user.client.put(&format!("/api/backup-tasks/{task}"), json!({"source_path": path})).await.expect(200);
            assert_failed(&bench.run(task).await, "corrupt");
            assert_eq!(keys(), 1);
        }
        std::fs::rename(&away, folder.join("config")).unwrap();
        // Rubbish among the locks is no reason to fail, but to remove nothing.
        let rubbish = folder.join("locks").join("ab".repeat(32));
        std::fs::write(&rubbish, "").unwrap();
        bench.user.client.put(&format!("/api/backup-tasks/{task}"), json!({"source_path": bench.source()})).await.expect(200);
        bench.back_up(task).await;
        assert_successful(&bench.verify(&first).await);
        let refused = bench.maintain(task, "prune").await;
        assert_failed(&refused, "locked");
        assert!(output(&refused).contains("locks/abab"), "{}", output(&refused));
        std::fs::remove_file(rubbish).unwrap();
        assert_successful(&bench.maintain(task, "prune").await);
        restic(&folder, PASSWORD, &["check", "--read-data"]);
    }

    async fn access_control_lists_come_back_and_open_nothing(app: TestApp) {
        let bench = Bench::new(app).await;
        let file = bench.source().join("private");
        std::fs::write(&file, "for one other person").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let entry = |kind: u16, rights: u16, id: u32| {
            [&kind.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let entries = [entry(1, 6, none), entry(2, 7, 1000), entry(4, 0, none), entry(16, 7, none), entry(32, 0, none)];
        let list = [2_u32.to_le_bytes().to_vec(), entries.concat()].concat();
        rustix::fs::setxattr(&file, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty()).unwrap();
        let task = bench.repository_task(json!({})).await;
        let backup = bench.back_up(task).await;
        let restored = bench.restore_all(&backup).await.join("private");
        let mut found = [0; 100];
        let length = rustix::fs::getxattr(&restored, "system.posix_acl_access", &mut found).unwrap();
        assert_eq!(found[..length], list[..]);
    }

    async fn what_is_damaged_does_not_keep_the_rest_from_being_read(app: TestApp) {
        let bench = Bench::new(app).await;
        let task = bench.repository_task(json!({"maximum_backups_to_keep": 0})).await;
        let mut backups = Vec::new();
        for round in 0..6 {
            std::fs::write(bench.source().join("file"), random(round, 1_000_000)).unwrap();
            backups.push(bench.back_up(task).await);
        }
        let repository = bench.repository(task).await;
        let folder = bench.repository_folder(&repository);
        let snapshot = folder.join("snapshots").join(backups[0]["key"].as_str().unwrap().rsplit('/').next().unwrap());
        let good = std::fs::read(&snapshot).unwrap();
        std::fs::write(&snapshot, "rubbish").unwrap();
        // Each check of the schedule reads a part, so that all packs have been read after four of them.
        bench.user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
        let check = async || {
            bench.app.clock.advance_secs(7 * 86_400);
            bench.app.worker().tidy().await.unwrap();
            bench.app.run_until_idle().await;
        };
        let status = async |backup: &Value| bench.show(backup).await["verification"]["status"].clone();
        check().await;
        assert_eq!(status(&backups[0]).await, "corrupt");
        // What one part has found is not read again by the others, so it counts until the next round.
        std::fs::write(&snapshot, good).unwrap();
        for _ in 0..3 {
            check().await;
        }
        assert_eq!(status(&backups[0]).await, "corrupt");
        for backup in &backups[1..] {
            assert_eq!(status(backup).await, "verified", "{backup}");
        }
        let repository = bench.repository(task).await;
        assert_eq!((&repository["error_code"], &repository["checked_at"]), (&json!("corrupt"), &Value::Null));
        for _ in 0..4 {
            check().await;
        }
        assert_eq!(status(&backups[0]).await, "verified");
        let repository = bench.repository(task).await;
        assert_eq!(repository["error_code"], Value::Null);
        assert_ne!(repository["checked_at"], Value::Null);
        let listed = bench.user.client.get("/api/runs?kind=check-repository").await.expect(200);
        // Those of more than a month ago have been deleted.
        assert!((1..=8).contains(&listed["meta"]["total"].as_i64().unwrap()), "{listed}");
        assert_eq!(listed["data"][0]["kind"], "check-repository");
        assert_eq!(bench.user.client.get("/api/runs?kind=prune").await.expect(200)["meta"]["total"], 0);
        assert_eq!(bench.user.client.get("/api/runs").await.expect(200)["meta"]["total"], 0);
    }

    async fn a_new_task_goes_on_with_the_repository_of_a_deleted_one(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), random(1, 3_000_000)).unwrap();
        let first = bench.repository_task(json!({})).await;
        let old = bench.back_up(first).await;
        let folder = bench.repository(first).await["folder"].as_str().unwrap().to_owned();
        let second = bench.repository_task(json!({"store_path": folder})).await;
        let refused = bench.run(second).await;
        assert_failed(&refused, "destination_denied");
        bench.user.client.delete(&format!("/api/backup-tasks/{first}")).await.expect(200);
        let thief = bench.repository_task(json!({"store_path": folder, "encryption_password": "another"})).await;
        assert_failed(&bench.run(thief).await, "destination_denied");
        let new = bench.back_up(second).await;
        assert!(new["size_bytes"].as_i64().unwrap() < 20_000, "{new}");
        assert_eq!(bench.repository(second).await["folder"], folder);
        assert_successful(&bench.verify(&old).await);
        assert_successful(&bench.verify(&new).await);
    }

    async fn a_lost_index_is_built_again_from_the_packs(app: TestApp) {
        let bench = Bench::new(app).await;
        SampleTree::create(&bench.source());
        let task = bench.repository_task(json!({})).await;
        let first = bench.back_up(task).await;
        let folder = bench.repository_folder(&bench.repository(task).await);
        for index in std::fs::read_dir(folder.join("index")).unwrap() {
            std::fs::write(index.unwrap().path(), "rubbish").unwrap();
        }
        assert_eq!(bench.verify(&first).await["status"], "failed");
        let before = packs(&folder).len();
        let refused = bench.maintain(task, "prune").await;
        assert_failed(&refused, "corrupt");
        assert_eq!(packs(&folder).len(), before, "nothing was removed");
        bench.maintain(task, "check").await;
        assert_successful(&bench.maintain(task, "check").await);
        assert_successful(&bench.verify(&first).await);
        restic(&folder, PASSWORD, &["check", "--read-data"]);
        let target = bench.restore_all(&first).await;
        assert_same_but(&bench.expected(), &Fingerprint::of(&target), IGNORED);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_of_restic_is_adopted_with_its_password_alone() {
    let bench = Bench::new(TestApp::start(Engine::Sqlite).await).await;
    std::fs::write(bench.source().join("file"), random(1, 900_000)).unwrap();
    // A first backup marks the destination as ours; the repository comes after that.
    bench.back_up(bench.task(json!({})).await).await;
    let folder = bench.stored_folder().join("from/restic");
    std::fs::create_dir_all(&folder).unwrap();
    restic(&folder, "theirs", &["init", "--repository-version", "2"]);
    restic(&folder, "theirs", &["backup", bench.source().to_str().unwrap()]);
    let before = bytes_of(&folder);
    let task = bench.repository_task(json!({"store_path": "from/restic", "encryption_password": "another"})).await;
    assert_failed(&bench.run(task).await, "wrong_password");
    bench
        .user
        .client
        .put(&format!("/api/backup-tasks/{task}"), json!({"encryption_password": "theirs"}))
        .await
        .expect(200);
    let backup = bench.back_up(task).await;
    assert_eq!(bench.repository(task).await["folder"], "from/restic");
    assert!(bytes_of(&folder) - before < 20_000, "everything was there already");
    assert_successful(&bench.verify(&backup).await);
    let theirs = restic(&folder, "theirs", &["snapshots"]);
    assert!(theirs.contains("2 snapshots"), "{theirs}");
    // Another task may not have the same one.
    let other = bench.repository_task(json!({"store_path": "from/restic", "encryption_password": "theirs"})).await;
    let refused = bench.run(other).await;
    assert_failed(&refused, "destination_denied");
    assert!(output(&refused).contains("belongs to another task"), "{}", output(&refused));
    // restic removes its own snapshot and what that alone needed; the task goes on.
    restic(&folder, "theirs", &["forget", "--keep-tag", "holdfast", "--prune"]);
    assert_successful(&bench.verify(&backup).await);
    bench.back_up(task).await;
    restic(&folder, "theirs", &["check", "--read-data"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_without_backups_and_task_is_removed_as_a_whole() {
    let bench = Bench::new(TestApp::start(Engine::Sqlite).await).await;
    std::fs::write(bench.source().join("file"), random(1, 900_000)).unwrap();
    let task = bench.repository_task(json!({})).await;
    bench.back_up(task).await;
    let folder = bench.repository_folder(&bench.repository(task).await);
    bench.user.client.delete(&format!("/api/backup-tasks/{task}?delete_backups=true")).await.expect(200);
    bench.settle().await;
    bench.app.clock.advance_secs(8 * 86_400);
    bench.app.worker().tidy().await.unwrap();
    bench.app.run_until_idle().await;
    let left: Vec<_> = bench.stored_names();
    assert!(left.is_empty(), "{left:?} in {}", folder.display());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dumps_and_buckets_work_as_well() {
    let bench = Bench::new(TestApp::start(Engine::Sqlite).await).await;
    let s3 = S3Server::start(&["backups"]).await.unwrap();
    let bucket = json!({"label": "bucket", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
        "s3_secret_key": S3Server::SECRET_KEY, "s3_bucket_name": "backups", "custom_s3_endpoint": s3.endpoint(),
        "path_style_endpoint": true});
    let user = bench.app.admin("root").await;
    let bench = Bench::of(bench.app, bench.ssh, user).await;
    let bucket = bench.user.client.post("/api/backup-destinations", bucket).await.id(201);
    let database = bench.source().join("shop.db");
    let sql = "CREATE TABLE t (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        INSERT INTO t SELECT hex(randomblob(50)) FROM n;";
    assert!(Command::new("sqlite3").arg(&database).arg(sql).status().unwrap().success());
    let task = bench
        .repository_task(json!({"type": "database", "database_engine": "sqlite", "source_path": database,
            "backup_destination_id": bucket}))
        .await;
    let first = bench.back_up(task).await;
    let add = "INSERT INTO t VALUES ('one more')";
    assert!(Command::new("sqlite3").arg(&database).arg(add).status().unwrap().success());
    let second = bench.back_up(task).await;
    let (added, again) = (first["size_bytes"].as_i64().unwrap(), second["size_bytes"].as_i64().unwrap());
    assert!(again < added, "{again} of {added}");
    for backup in [&first, &second] {
        assert_successful(&bench.verify(backup).await);
    }
    let target = bench.folder.path().join("restored.db");
    let run = bench.restore(&second, json!({"path": target})).await;
    assert_successful(&run);
    let count = Command::new("sqlite3").arg(&target).arg("SELECT COUNT(*) FROM t").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&count.stdout).trim(), "20001");
    for what in ["check", "prune"] {
        assert_successful(&bench.maintain(task, what).await);
    }
}
