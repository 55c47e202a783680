use holdfast_testkit::{Receiver, SshServer, TestApp, on_both_engines};
use serde_json::{Value, json};

use crate::bench::Bench;
use crate::notices::stream;

const DAY_SECS: i64 = 86_400;

/// Advances the clock until an inventory is due, and takes it.
async fn take_inventory(bench: &Bench) {
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
