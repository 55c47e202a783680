use holdfast_testkit::{Receiver, SshServer, TestApp, on_both_engines};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed};
use crate::notices::stream;

const DAY_SECS: i64 = 86_400;

/// Advances the clock until an inventory is due, and takes it.
pub async fn take_inventory(bench: &Bench) {
    bench.app.clock.advance_secs(DAY_SECS + 60);
    bench.app.worker().tidy().await.unwrap();
    bench.app.run_until_idle().await;
}

async fn status(bench: &Bench, backup: &Value) -> Value {
    bench.show(backup).await["verification"]["status"].clone()
}

on_both_engines! {
    async fn what_is_gone_from_a_destination_is_noticed_within_a_day(app: TestApp) {
        let admin = app.admin("ada").await;
        let bench = Bench::of(app, SshServer::start(), admin).await;
        let hook = Receiver::start().await;
        let stream = stream(&bench.user, &hook, false, true).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"notification_stream_ids": [stream]})).await;
        let mut stored = Vec::new();
        for _ in 0..4 {
            stored.push(bench.back_up(task).await);
        }
        bench.user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
        let other = bench.back_up(bench.task(json!({"label": "Other files", "frequency": "monthly"})).await).await;
        take_inventory(&bench).await;
        for backup in stored.iter().chain([&other]) {
            assert_eq!(status(&bench, backup).await, "unverified", "everything is there");
        }
        std::fs::remove_file(bench.stored_file(&stored[0])).unwrap();
        std::fs::remove_file(bench.stored_file(&stored[1])).unwrap();
        std::fs::write(bench.stored_file(&stored[2]), "shorter").unwrap();
        // The inventory is not due yet.
        bench.app.worker().tidy().await.unwrap();
        bench.app.run_until_idle().await;
        assert_eq!(status(&bench, &stored[0]).await, "unverified");
        take_inventory(&bench).await;
        for (backup, found) in stored.iter().zip(["missing", "missing", "corrupt", "unverified"]) {
            assert_eq!(status(&bench, backup).await, found);
        }
        assert_eq!(status(&bench, &other).await, "unverified");
        // One notice for all backups of a task, and none the next day.
        let told = hook.take();
        assert_eq!(told.len(), 1);
        let text = String::from_utf8_lossy(&told[0].body).into_owned();
        assert!(text.contains("Stored backup damaged: Web files") && text.contains("2 other backups"), "{text}");
        take_inventory(&bench).await;
        assert!(hook.take().is_empty());
        // A backup that its owner deleted is not reported.
        bench.user.client.delete(&format!("/api/backups/{}", stored[3]["id"])).await.expect(200);
        bench.app.run_until_idle().await;
        take_inventory(&bench).await;
        assert!(hook.take().is_empty());
    }

    /// For example because a disk was mounted again.
    async fn backups_that_are_there_again_are_read(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"frequency": "monthly"})).await;
        let stored = [bench.back_up(task).await, bench.back_up(task).await];
        let aside = |backup: &Value| bench.folder.path().join(backup["id"].to_string());
        for backup in &stored {
            std::fs::rename(bench.stored_file(backup), aside(backup)).unwrap();
        }
        take_inventory(&bench).await;
        assert_eq!([status(&bench, &stored[0]).await, status(&bench, &stored[1]).await], ["missing", "missing"]);
        // One of them comes back with other bytes.
        let mut bytes = std::fs::read(aside(&stored[1])).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(aside(&stored[1]), bytes).unwrap();
        for backup in &stored {
            std::fs::rename(aside(backup), bench.stored_file(backup)).unwrap();
        }
        take_inventory(&bench).await;
        assert_eq!([status(&bench, &stored[0]).await, status(&bench, &stored[1]).await], ["verified", "corrupt"]);
    }

    async fn what_cannot_be_checked_does_not_hide_what_is_missing(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = async |folder: &str| bench.task(json!({"frequency": "monthly", "store_path": folder})).await;
        let stored = [bench.back_up(task("one").await).await, bench.back_up(task("two").await).await];
        std::fs::remove_file(bench.stored_file(&stored[0])).unwrap();
        let folder = bench.stored_file(&stored[1]).parent().unwrap().to_owned();
        std::fs::rename(&folder, bench.folder.path().join("two")).unwrap();
        std::fs::write(&folder, "not a folder").unwrap();
        take_inventory(&bench).await;
        assert_eq!([status(&bench, &stored[0]).await, status(&bench, &stored[1]).await], ["missing", "unverified"]);
        let shown = bench.user.client.get(&format!("/api/backup-destinations/{}", bench.destination)).await.data(200);
        assert!(shown["last_error"].to_string().contains("1 of 2 backups could not be checked"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_destination_does_not_mark_its_backups_missing() {
    let bench = Bench::new(TestApp::start(holdfast_testkit::Engine::Sqlite).await).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let backup = bench.back_up(bench.task(json!({"frequency": "monthly"})).await).await;
    std::fs::rename(bench.stored_folder(), bench.folder.path().join("unmounted")).unwrap();
    take_inventory(&bench).await;
    assert_eq!(status(&bench, &backup).await, "unverified");
    let shown = bench.user.client.get(&format!("/api/backup-destinations/{}", bench.destination)).await.data(200);
    assert_eq!(shown["error_code"], "destination_unmounted");
    std::fs::rename(bench.folder.path().join("unmounted"), bench.stored_folder()).unwrap();
    take_inventory(&bench).await;
    let shown = bench.user.client.get(&format!("/api/backup-destinations/{}", bench.destination)).await.data(200);
    assert_eq!(shown["status"], "reachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_destination_is_recorded_and_reported_once_whatever_run_finds_it() {
    let app = TestApp::start(holdfast_testkit::Engine::Sqlite).await;
    let admin = app.admin("ada").await;
    let bench = Bench::of(app, SshServer::start(), admin).await;
    let hook = Receiver::start().await;
    let stream = stream(&bench.user, &hook, false, true).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let task = bench.task(json!({"frequency": "monthly", "notification_stream_ids": [stream]})).await;
    let backup = bench.back_up(task).await;
    let shown =
        async || bench.user.client.get(&format!("/api/backup-destinations/{}", bench.destination)).await.data(200);
    let told = || hook.take().iter().map(|sent| String::from_utf8_lossy(&sent.body).into_owned()).collect::<Vec<_>>();
    let marker = bench.stored_folder().join(".holdfast-destination");
    let marked = std::fs::read(&marker).unwrap();
    for find in ["verification", "restore", "inventory"] {
        // A folder cannot be read as a file, not even by root.
        std::fs::remove_file(&marker).unwrap();
        std::fs::create_dir(&marker).unwrap();
        for _ in 0..2 {
            match find {
                "verification" => assert_failed(&bench.verify(&backup).await, "destination_failed"),
                "restore" => {
                    let run = bench.restore(&backup, json!({"path": bench.target()})).await;
                    assert_failed(&run, "destination_failed");
                }
                _ => take_inventory(&bench).await,
            }
        }
        assert_eq!(shown().await["error_code"], "destination_failed", "{find}");
        assert_eq!(status(&bench, &backup).await, if find == "verification" { "unverified" } else { "verified" });
        let texts = told();
        assert!(texts.len() == 1 && texts[0].contains("Destination"), "{find}: {texts:?}");
        // A backup reports its failure itself.
        assert_failed(&bench.run(task).await, "destination_failed");
        let texts = told();
        assert!(texts.iter().all(|text| text.contains("Backup failed")) && texts.len() < 2, "{find}: {texts:?}");
        std::fs::remove_dir(&marker).unwrap();
        std::fs::write(&marker, &marked).unwrap();
        assert_eq!(bench.verify(&backup).await["status"], "successful");
        assert_eq!(shown().await["status"], "reachable", "{find}");
    }
}
