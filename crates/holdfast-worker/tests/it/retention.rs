use holdfast_testkit::{Receiver, SshServer, TestApp, on_both_engines};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed};

impl Bench {
    /// Replaces the source with `files` files of `bytes` compressible bytes each.
    fn fill(&self, files: usize, bytes: usize) {
        std::fs::remove_dir_all(self.source()).unwrap();
        std::fs::create_dir(self.source()).unwrap();
        for number in 0..files {
            std::fs::write(self.source().join(format!("file {number}")), "line\n".repeat(bytes / 5)).unwrap();
        }
    }

    /// Runs the task a minute later.
    async fn back_up_later(&self, task: i64) -> Value {
        self.app.clock.advance_secs(60);
        let made = self.back_up(task).await;
        self.app.run_until_idle().await;
        made
    }

    async fn protection(&self, task: i64) -> Value {
        self.user.client.get(&format!("/api/backup-tasks/{task}")).await.data(200)["protection"].clone()
    }

    async fn output(&self, task: i64) -> String {
        self.latest_log(task).await["output"].as_str().unwrap().to_owned()
    }

    /// The ids of the backups that are not deleted; the object of each must exist.
    async fn ids(&self, task: i64) -> Vec<Value> {
        let stored = self.backups(task).await;
        assert!(stored.iter().all(|backup| self.stored_file(backup).exists()));
        stored.iter().map(|backup| backup["id"].clone()).collect()
    }
}

fn ids(backups: &[&Value]) -> Vec<Value> {
    backups.iter().map(|backup| backup["id"].clone()).collect()
}

on_both_engines! {
    async fn the_newest_stay_and_foreign_files_are_left_alone(app: TestApp) {
        let bench = Bench::new(app).await;
        let file = bench.source().join("file");
        let task = bench.task(json!({"maximum_backups_to_keep": 2})).await;
        let mut made = Vec::new();
        for n in 0..4 {
            std::fs::write(&file, format!("state {n}")).unwrap();
            made.push(bench.back_up(task).await);
            bench.app.clock.advance_secs(60);
            if n == 0 {
                // Named like a backup, but not recorded.
                let key = made[0]["key"].as_str().unwrap();
                std::fs::write(bench.stored_folder().join(key.replace("20250303", "20240101")), "foreign").unwrap();
            }
        }
        bench.app.run_until_idle().await;
        let left: Vec<_> = bench.backups(task).await.iter().map(|backup| backup["id"].clone()).collect();
        assert_eq!(left, [made[2]["id"].clone(), made[3]["id"].clone()]);
        assert_eq!(bench.stored_names().len(), 3, "two backups and the foreign file");
        assert!(bench.show(&made[0]).await["deleted_reason"] == "retention");
        assert!(bench.latest_log(task).await["output"].as_str().unwrap().contains("Removing backup"));
        let target = bench.restore_all(&made[2]).await;
        assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "state 2");
        // Lowering the number takes effect with the next success, not before; zero keeps all.
        let path = format!("/api/backup-tasks/{task}");
        bench.user.client.put(&path, json!({"maximum_backups_to_keep": 1})).await.expect(200);
        bench.app.run_until_idle().await;
        assert_eq!(bench.backups(task).await.len(), 2);
        std::fs::rename(bench.source(), bench.folder.path().join("away")).unwrap();
        assert_failed(&bench.run(task).await, "source_missing");
        assert_eq!(bench.backups(task).await.len(), 2, "a failure removes nothing");
        std::fs::rename(bench.folder.path().join("away"), bench.source()).unwrap();
        bench.user.client.put(&path, json!({"maximum_backups_to_keep": 0})).await.expect(200);
        bench.back_up(task).await;
        assert_eq!(bench.backups(task).await.len(), 3);
    }

    async fn a_removal_that_fails_is_tried_again(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"maximum_backups_to_keep": 1, "store_path": "/sub"})).await;
        let first = bench.back_up(task).await;
        bench.app.clock.advance_secs(60);
        // A folder in the file's place cannot be removed as a file.
        let file = bench.stored_file(&first);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        let second = bench.back_up(task).await;
        bench.app.run_until_idle().await;
        assert!(file.exists());
        assert_eq!(bench.latest_log(task).await["status"], "successful", "the run is not to blame");
        assert_eq!(bench.backups(task).await.len(), 1);
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, "still there").unwrap();
        bench.app.run_until_idle().await;
        assert!(file.exists(), "not before its time");
        bench.app.clock.advance_secs(3600);
        bench.app.run_until_idle().await;
        assert!(!file.exists());
        assert!(bench.stored_file(&second).exists());
    }

    async fn empty_backups_never_push_out_real_ones(app: TestApp) {
        let bench = Bench::new(app).await;
        bench.fill(10, 20_000);
        let task = bench.task(json!({"maximum_backups_to_keep": 2})).await;
        let first = bench.back_up_later(task).await;
        let second = bench.back_up_later(task).await;
        assert_eq!(bench.protection(task).await["retention_held"], false);
        bench.fill(0, 0);
        let mut made = vec![];
        for _ in 0..3 {
            made.push(bench.back_up_later(task).await);
        }
        let all = ids(&[&first, &second, &made[0], &made[1], &made[2]]);
        assert_eq!(bench.ids(task).await, all, "stored, and nothing is removed");
        let log = bench.latest_log(task).await;
        assert_eq!((&log["status"], &log["warnings"]), (&json!("successful"), &json!(1)), "{log}");
        assert!(log["output"].as_str().unwrap().contains("Warning: The newest backup looks wrong: it is empty"), "{log}");
        let protection = bench.protection(task).await;
        assert_eq!(protection["retention_held"], true);
        bench.app.clock.advance_secs(60);
        let figures = holdfast_app::health::render_figures(&bench.app.app).await;
        let held = figures.lines().find_map(|line| line.strip_prefix("holdfast_retention_held_age_seconds "));
        assert!(held.unwrap().parse::<i64>().unwrap() >= 60, "{figures}");
        assert!(protection["held_reason"].as_str().unwrap().contains("it is empty"), "{protection}");
        // A lower number changes nothing while retention is on hold.
        let path = format!("/api/backup-tasks/{task}");
        bench.user.client.put(&path, json!({"maximum_backups_to_keep": 1})).await.expect(200);
        made.push(bench.back_up_later(task).await);
        assert_eq!(bench.ids(task).await.len(), 6);
        assert_eq!(std::fs::read_dir(bench.restore_all(&second).await).unwrap().count(), 10);
        // The disk is mounted again: the hold ends automatically, and empty backups do not count.
        bench.user.client.put(&path, json!({"maximum_backups_to_keep": 2})).await.expect(200);
        bench.fill(10, 20_000);
        let third = bench.back_up_later(task).await;
        assert!(bench.output(task).await.contains("normal again"));
        assert_eq!(bench.protection(task).await["retention_held"], false);
        let left = bench.ids(task).await;
        assert!(left.contains(&second["id"]) && left.contains(&third["id"]) && !left.contains(&first["id"]), "{left:?}");
        let fourth = bench.back_up_later(task).await;
        assert_eq!(bench.ids(task).await, ids(&[&third, &fourth]), "the empty ones went with their time");
    }

    async fn a_suspicious_backup_counts_once_somebody_releases_the_hold(app: TestApp) {
        let bench = Bench::new(app).await;
        bench.fill(20, 20_000);
        let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
        let client = &bench.user.client;
        let release = format!("/api/backup-tasks/{task}/release-retention");
        let old = bench.back_up_later(task).await;
        client.act(&release).await.expect(409);
        bench.fill(3, 20_000);
        let small = bench.back_up_later(task).await;
        assert!(bench.output(task).await.contains("entries, where a normal backup had 21"));
        assert_eq!(bench.ids(task).await, ids(&[&old, &small]));
        let seen = |backup: &Value| json!({"backup_id": backup["id"]});
        let refused = client.post(&release, seen(&old)).await.expect(409);
        assert!(refused["message"].as_str().unwrap().contains(&format!("newer backup, {}.", small["id"])), "{refused}");
        client.post(&release, json!({"backup_id": "x"})).await.expect(422);
        client.post(&release, json!({"backup_id": 0})).await.expect(422);
        let released = client.post(&release, seen(&small)).await.data(200);
        assert_eq!(released["protection"]["retention_held"], false);
        assert!(released["protection"]["held_reason"].is_null());
        client.act(&release).await.expect(409);
        assert_eq!(bench.ids(task).await, ids(&[&old, &small]), "nothing is removed before the next success");
        let next = bench.back_up_later(task).await;
        assert_eq!(bench.ids(task).await, ids(&[&next]), "what was confirmed is what later ones are compared with");
        assert_eq!(bench.protection(task).await["retention_held"], false);
        bench.verify(&next).await;
        let protection = bench.protection(task).await;
        assert_eq!(protection["proven_by"], "verify");
        assert!(protection["last_proven_at"].is_string() && protection["last_drill_id"].is_null());
        let other = bench.app.user("eve").await;
        other.client.act(&release).await.expect(403);
    }

    async fn a_source_that_shrinks_in_steps_does_not_lose_its_good_backups(app: TestApp) {
        let bench = Bench::new(app).await;
        bench.fill(1, 1_000_000);
        let task = bench.task(json!({"maximum_backups_to_keep": 2})).await;
        let mut whole = bench.back_up_later(task).await;
        // Each is half the size of the one before, so that the kept ones never differ by much.
        let mut made = vec![];
        for bytes in [500_000, 250_000] {
            bench.fill(1, bytes);
            whole = bench.back_up_later(task).await;
        }
        for bytes in [120_000, 60_000, 30_000, 15_000] {
            bench.fill(1, bytes);
            made.push(bench.back_up_later(task).await);
        }
        assert!(bench.ids(task).await.contains(&whole["id"]));
        assert_eq!(bench.protection(task).await["retention_held"], true);
        // Releasing the hold confirms the newest backup: larger ones before it no longer count.
        bench.user.client.act(&format!("/api/backup-tasks/{task}/release-retention")).await.data(200);
        for _ in 0..3 {
            made.push(bench.back_up_later(task).await);
        }
        assert_eq!(bench.protection(task).await["retention_held"], false);
        assert!(!bench.ids(task).await.contains(&whole["id"]));
    }

    async fn content_that_no_longer_compresses_holds_removal(app: TestApp) {
        let bench = Bench::new(app).await;
        bench.fill(3, 1_000_000);
        let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
        let clear = bench.back_up_later(task).await;
        for number in 0..3 {
            let noise: Vec<u8> = (0..31_250).flat_map(|_| holdfast_core::random::bytes::<32>()).collect();
            std::fs::write(bench.source().join(format!("file {number}")), noise).unwrap();
        }
        for _ in 0..2 {
            bench.back_up_later(task).await;
        }
        assert!(bench.ids(task).await.contains(&clear["id"]));
        assert!(bench.protection(task).await["held_reason"].as_str().unwrap().contains("ransomware"));
    }

    async fn a_first_backup_that_is_empty_is_reported_and_holds_nothing(app: TestApp) {
        let bench = Bench::new(app).await;
        let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
        bench.back_up_later(task).await;
        assert!(bench.output(task).await.contains("Warning: This backup is empty."));
        assert_eq!(bench.protection(task).await["retention_held"], false);
        let second = bench.back_up_later(task).await;
        assert_eq!(bench.ids(task).await, ids(&[&second]), "it was never anything else");
        bench.fill(3, 1_000);
        let real = bench.back_up_later(task).await;
        assert_eq!(bench.ids(task).await, ids(&[&real]));
        assert_eq!(bench.latest_log(task).await["warnings"], 0);
        bench.fill(0, 0);
        bench.back_up_later(task).await;
        assert!(bench.ids(task).await.contains(&real["id"]), "however small it was");
    }

    async fn backups_of_another_source_are_kept_until_somebody_deletes_them(app: TestApp) {
        let bench = Bench::new(app).await;
        bench.fill(3, 1_000);
        let elsewhere = bench.folder.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("other"), "content").unwrap();
        let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
        let path = format!("/api/backup-tasks/{task}");
        let old = bench.back_up_later(task).await;
        bench.user.client.put(&path, json!({"source_path": elsewhere})).await.expect(200);
        bench.back_up_later(task).await;
        let output = bench.output(task).await;
        assert!(output.contains("stay until somebody deletes them"), "{output}");
        let new = bench.back_up_later(task).await;
        assert_eq!(bench.ids(task).await, ids(&[&old, &new]), "one of each source");
        assert!(!bench.output(task).await.contains("stay until"), "said once");
        assert_eq!(std::fs::read_dir(bench.restore_all(&old).await).unwrap().count(), 3);
        // Neither exclusions nor a trailing slash make another source.
        let same = json!({"source_path": format!("{}/", elsewhere.display()), "excluded_paths": ["*.log"]});
        bench.user.client.put(&path, same).await.expect(200);
        let newer = bench.back_up_later(task).await;
        assert_eq!(bench.ids(task).await, ids(&[&old, &newer]));
        // Switching back continues with the earlier backups of that source.
        bench.user.client.put(&path, json!({"source_path": bench.source()})).await.expect(200);
        let back = bench.back_up_later(task).await;
        assert_eq!(bench.ids(task).await, ids(&[&newer, &back]));
        // The same path on another server is another source, and so is the same server entry with another address.
        let second = SshServer::start();
        let key = bench.user.client.get("/api/ssh-key").await.data(200);
        second.authorize(key["public_key"].as_str().unwrap());
        let server = format!("/api/remote-servers/{}", bench.server);
        bench.user.client.put(&server, json!({"port": second.port()})).await.expect(200);
        let moved = bench.back_up_later(task).await;
        assert_eq!(bench.ids(task).await, ids(&[&newer, &back, &moved]));
        // They can be deleted manually.
        bench.user.client.delete(&format!("/api/backups/{}", newer["id"])).await.expect(200);
        assert_eq!(bench.ids(task).await, ids(&[&back, &moved]));
    }

    async fn a_suspicious_backup_is_reported_once_and_again_after_a_day(app: TestApp) {
        let admin = app.admin("ada").await;
        let hook = Receiver::start().await;
        let bench = Bench::of(app, SshServer::start(), admin).await;
        let notifications = json!({"on_success": false, "on_failure": true});
        let body = json!({"label": "ops", "type": "slack", "value": hook.url("/hook"), "notifications": notifications});
        let stream = bench.user.client.post("/api/notification-streams", body).await.id(201);
        bench.fill(10, 20_000);
        let task = bench.task(json!({"notification_stream_ids": [stream], "frequency": "monthly"})).await;
        bench.back_up_later(task).await;
        assert!(hook.take().is_empty());
        bench.fill(0, 0);
        bench.back_up_later(task).await;
        bench.back_up_later(task).await;
        let told = hook.take();
        assert_eq!(told.len(), 1, "the second one is no news");
        let text = told[0].json().to_string();
        assert!(text.contains("Backup looks wrong: Web files") && text.contains("it is empty"), "{text}");
        assert!(text.contains(&format!("/tasks/{task}")), "{text}");
        bench.app.clock.advance_secs(86_400);
        bench.back_up_later(task).await;
        assert_eq!(hook.take().len(), 1);
        let notices = bench.user.client.get("/api/notices").await.expect(200);
        assert_eq!(notices["data"][0]["kind"], "backup_suspicious");
    }

    async fn damaged_backups_do_not_push_good_ones_out(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({"maximum_backups_to_keep": 2})).await;
        let good = bench.back_up(task).await;
        bench.app.clock.advance_secs(60);
        let bad = bench.back_up(task).await;
        std::fs::write(bench.stored_file(&bad), "rubbish").unwrap();
        assert_failed(&bench.verify(&bad).await, "corrupt");
        bench.app.clock.advance_secs(60);
        bench.back_up(task).await;
        bench.app.run_until_idle().await;
        assert!(bench.stored_file(&good).exists(), "it is one of two good ones");
    }
}
