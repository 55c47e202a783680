use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;

use crate::bench::{Bench, assert_failed};

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
                // Named as one of ours, but not on record.
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
