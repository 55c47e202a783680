use holdfast_testkit::{Fingerprint, Ignore, SampleTree, TestApp, assert_same_but, on_both_engines};
use serde_json::json;

use crate::bench::{Bench, assert_failed, encoded};

on_both_engines! {
    async fn a_backup_is_browsed_downloaded_and_restored_in_part(app: TestApp) {
        let bench = Bench::new(app).await;
        let source = bench.source();
        std::fs::create_dir_all(source.join("docs/deep")).unwrap();
        let large: Vec<u8> = holdfast_testkit::random(7, 5 * 1024 * 1024);
        std::fs::write(source.join("a-large"), &large).unwrap();
        std::fs::write(source.join("docs/one.txt"), "one").unwrap();
        std::fs::write(source.join("docs/deep/ünï $(id)"), "two").unwrap();
        std::fs::hard_link(source.join("docs/one.txt"), source.join("z-link")).unwrap();
        for password in [None, Some("correct horse battery")] {
            let backup = bench.back_up(bench.task(json!({"encryption_password": password})).await).await;
            let client = &bench.user.client;
            let path = format!("/api/backups/{}", backup["id"]);
            let names = async |query: &str| {
                let body = client.get(&format!("{path}/entries{query}")).await.expect(200);
                let names = body["data"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned());
                names.collect::<Vec<_>>()
            };
            assert_eq!(names("").await, ["a-large", "docs", "z-link"]);
            assert_eq!(names("?path=docs").await, ["deep", "one.txt"]);
            assert_eq!(names("?per_page=1&page=2").await, ["docs"]);
            client.get(&format!("{path}/entries?path=nowhere")).await.expect(404);

            let download = async |entry: &str| {
                let path = format!("{path}/download?entry={}", encoded(entry));
                let request = client.request(reqwest::Method::GET, &path).bearer_auth(client.token());
                let response = request.send().await.unwrap();
                assert_eq!(response.status(), 200, "{entry}");
                let length = response.content_length();
                let bytes = response.bytes().await.unwrap();
                assert_eq!(length, Some(bytes.len() as u64));
                bytes
            };
            assert_eq!(download("a-large").await, large);
            assert_eq!(download("docs/deep/ünï $(id)").await, "two");
            // Both hard links lead to the content, whichever tar found first.
            assert_eq!(download("z-link").await, "one");
            assert_eq!(download("docs/one.txt").await, "one");
            let whole = download("").await;
            assert_eq!(whole, std::fs::read(bench.stored_file(&backup)).unwrap());
            client.get(&format!("{path}/download?entry=docs")).await.expect(404);
            client.get(&format!("{path}/download?entry=nowhere")).await.expect(404);

            let target = bench.folder.path().join(format!("part-{}", backup["id"]));
            let run = bench.restore(&backup, json!({"path": target, "entries": ["docs/deep", "z-link"]})).await;
            assert_eq!(run["status"], "successful", "{run}");
            assert_eq!(std::fs::read_to_string(target.join("docs/deep/ünï $(id)")).unwrap(), "two");
            assert_eq!(std::fs::read_to_string(target.join("z-link")).unwrap(), "one");
            assert!(!target.join("a-large").exists());
            let run = bench.restore(&backup, json!({"path": target, "entries": ["docs/nothing"]})).await;
            assert_failed(&run, "entry_missing");
        }
    }

    async fn damage_is_detected_and_reported(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), holdfast_testkit::random(1, 300_000)).unwrap();
        let task = bench.task(json!({})).await;
        let sealed = bench.task(json!({"encryption_password": "correct horse battery"})).await;
        for task in [task, sealed] {
            let backup = bench.back_up(task).await;
            assert_eq!(bench.verify(&backup).await["status"], "successful");
            assert_eq!(bench.show(&backup).await["verification"]["status"], "verified");
            let file = bench.stored_file(&backup);
            let good = std::fs::read(&file).unwrap();
            let damage: [(&str, &dyn Fn() -> Vec<u8>); 4] = [
                ("a bit flipped in the middle", &|| { let mut bad = good.clone(); bad[good.len() / 2] ^= 1; bad }),
                ("a bit flipped in the index", &|| { let mut bad = good.clone(); let at = bad.len() - 30; bad[at] ^= 1; bad }),
                ("cut off", &|| good[..good.len() - 1].to_vec()),
                ("grown", &|| [good.as_slice(), b"x"].concat()),
            ];
            for (what, bad) in damage {
                std::fs::write(&file, bad()).unwrap();
                let run = bench.verify(&backup).await;
                assert_failed(&run, "corrupt");
                assert_eq!(bench.show(&backup).await["verification"]["status"], "corrupt", "{what}");
                let run = bench.restore(&backup, json!({"path": bench.target(), "overwrite": true})).await;
                assert_failed(&run, "corrupt");
            }
            std::fs::remove_file(&file).unwrap();
            assert_failed(&bench.verify(&backup).await, "missing");
            assert_eq!(bench.show(&backup).await["verification"]["status"], "missing");
            bench.user.client.get(&format!("/api/backups/{}/download", backup["id"])).await.expect(409);
            std::fs::write(&file, &good).unwrap();
            assert_eq!(bench.verify(&backup).await["status"], "successful");
        }
    }

    async fn a_damaged_file_is_never_downloaded_as_a_complete_one(app: TestApp) {
        let bench = Bench::new(app).await;
        let files = [("small", 300_000), ("large", 3_500_000)].map(|(name, bytes)| (name, holdfast_testkit::random(3, bytes)));
        files.iter().for_each(|(name, bytes)| std::fs::write(bench.source().join(name), bytes).unwrap());
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let (file, client) = (bench.stored_file(&backup), &bench.user.client);
        let good = std::fs::read(&file).unwrap();
        let mut refused = 0;
        for part in 0..40 {
            let mut bad = good.clone();
            bad[good.len() / 41 * (part + 1)] ^= 1;
            std::fs::write(&file, bad).unwrap();
            for (name, bytes) in &files {
                let path = format!("/api/backups/{}/download?entry={name}", backup["id"]);
                let response = client.request(reqwest::Method::GET, &path).bearer_auth(client.token()).send().await.unwrap();
                let is_found = response.status() == 200;
                match response.bytes().await {
                    Ok(received) if is_found => assert!(received == *bytes, "{name}, damaged in part {part}"),
                    Ok(_) | Err(_) => refused += 1,
                }
            }
        }
        assert!((20..=60).contains(&refused), "{refused} of 80 were refused");
    }

    async fn deleting_a_task_keeps_its_backups_unless_told_otherwise(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let (kept, dropped) = (bench.task(json!({"encryption_password": "correct horse"})).await, bench.task(json!({})).await);
        let (stays, goes) = (bench.back_up(kept).await, bench.back_up(dropped).await);
        let client = &bench.user.client;
        let destination = format!("/api/backup-destinations/{}", bench.destination);
        client.delete(&format!("/api/backup-tasks/{kept}")).await.expect(200);
        client.delete(&format!("/api/backup-tasks/{dropped}?delete_backups=yes")).await.expect(422);
        client.delete(&format!("/api/backup-tasks/{dropped}?delete_backups=true")).await.expect(200);
        assert!(client.delete(&destination).await.expect(409)["message"].as_str().unwrap().contains("2 backups"));
        bench.app.run_until_idle().await;
        let listed = client.get("/api/backups").await.expect(200);
        assert_eq!(listed["meta"]["total"], 1);
        assert_eq!((&listed["data"][0]["id"], &listed["data"][0]["backup_task_id"]), (&stays["id"], &json!(null)));
        let all = client.get("/api/backups?deleted=true").await.expect(200);
        let gone = all["data"].as_array().unwrap().iter().find(|backup| backup["id"] == goes["id"]).unwrap().clone();
        assert_eq!(gone["deleted_reason"], "task_deleted");
        assert!(!bench.stored_file(&goes).exists());
        // An encrypted backup can be restored without its task.
        let target = bench.restore_all(&bench.show(&stays).await).await;
        assert_same_but(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target), Ignore::default());
        client.delete(&format!("/api/backups/{}", stays["id"])).await.expect(200);
        client.delete(&format!("/api/backups/{}", stays["id"])).await.expect(409);
        client.act(&format!("/api/backups/{}/verify", stays["id"])).await.expect(409);
        bench.app.run_until_idle().await;
        assert_eq!(bench.stored_names(), [""; 0]);
        assert!(client.delete(&destination).await.expect(200)["message"].is_string());
    }
}

on_both_engines! {
    async fn restores_are_checked_before_they_are_queued(app: TestApp) {
        let bench = Bench::new(app).await;
        SampleTree::create(&bench.source());
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let other = bench.app.user("bob").await;
        let foreign = other.server().await;
        assert_eq!(bench.ask_restore(&backup, json!({})).await.error_of("remote_server_id"), "The remote server id field is required.");
        let body = json!({"remote_server_id": foreign, "path": "/tmp/x"});
        assert_eq!(bench.ask_restore(&backup, body).await.error_of("remote_server_id"), "The selected remote server is invalid.");
        let body = json!({"remote_server_id": bench.server, "path": "relative"});
        assert!(bench.ask_restore(&backup, body).await.error_of("path").contains("absolute"));
        let body = json!({"remote_server_id": bench.server, "path": "/tmp/../etc"});
        bench.ask_restore(&backup, body).await.error_of("path");
        other.client.get(&format!("/api/backups/{}/download", backup["id"])).await.expect(403);
        bench.app.client().get(&format!("/api/backups/{}/download", backup["id"])).await.expect(401);
        // A queued restore can be cancelled.
        let body = json!({"remote_server_id": bench.server, "path": bench.target()});
        let run = bench.ask_restore(&backup, body).await.data(202);
        assert_eq!((&run["status"], &run["kind"]), (&json!("queued"), &json!("restore")));
        bench.user.client.delete(&format!("/api/backups/{}", backup["id"])).await.expect(409);
        bench.user.client.act(&format!("/api/runs/{}/cancel", run["id"])).await.expect(200);
        assert_eq!(bench.show_run(&run).await["status"], "cancelled");
        bench.app.run_until_idle().await;
        assert!(!bench.target().exists());
        let listed = bench.user.client.get(&format!("/api/runs?kind=restore&backup_id={}", backup["id"])).await.expect(200);
        assert_eq!(listed["meta"]["total"], 1);
    }
}

/// tmpfs stores times that other file systems cannot represent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_that_no_calendar_has_are_shown_as_the_nearest() {
    use std::time::{Duration, SystemTime};
    let bench = Bench::new(TestApp::start(holdfast_testkit::Engine::Sqlite).await).await;
    let memory = std::path::Path::new("/dev/shm");
    let source = tempfile::tempdir_in(if memory.is_dir() { memory } else { bench.folder.path() }).unwrap();
    let far = Duration::from_secs(9_000_000_000_000);
    for (name, at) in
        [("future", SystemTime::UNIX_EPOCH.checked_add(far)), ("past", SystemTime::UNIX_EPOCH.checked_sub(far))]
    {
        let file = std::fs::File::create(source.path().join(name)).unwrap();
        file.set_times(std::fs::FileTimes::new().set_modified(at.unwrap())).unwrap();
    }
    let backup = bench.back_up(bench.task(json!({"source_path": source.path()})).await).await;
    let entries = bench.user.client.get(&format!("/api/backups/{}/entries", backup["id"])).await.expect(200);
    let time = |at: usize| entries["data"][at]["modified_at"].as_str().unwrap().to_owned();
    assert_eq!((&entries["data"][0]["name"], &entries["data"][1]["name"]), (&json!("future"), &json!("past")));
    if memory.is_dir() {
        assert!(time(0).starts_with("9999-12-30T") && time(1).starts_with("0001-01-01T"), "{entries}");
    }
    let found = bench.user.client.get(&format!("/api/backups/{}/entries?search=fut", backup["id"])).await;
    assert!(found.status < 500, "{}", found.text);
}

/// For example a folder of mails or sessions. The listing used to stop at 100,000 and report that as the total.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_with_very_many_files_is_listed_to_its_end() {
    const FILES: usize = 100_020;
    let bench = Bench::new(TestApp::start(holdfast_testkit::Engine::Sqlite).await).await;
    let folder = bench.source().join("many");
    std::fs::create_dir(&folder).unwrap();
    for number in 0..FILES {
        std::fs::File::create(folder.join(format!("{number:06}"))).unwrap();
    }
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let last = FILES.div_ceil(50);
    let path = format!("/api/backups/{}/entries?path=many&per_page=50&page={last}", backup["id"]);
    let page = bench.user.client.get(&path).await.expect(200);
    assert_eq!((&page["meta"]["total"], &page["meta"]["last_page"]), (&json!(FILES), &json!(last)));
    let names: Vec<&str> =
        page["data"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!((names.len(), names[0], names[19]), (20, "100000", "100019"));
}

on_both_engines! {
    async fn a_download_is_continued_where_it_ended(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("large"), holdfast_testkit::random(7, 5 * 1024 * 1024)).unwrap();
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let (client, stored) = (&bench.user.client, std::fs::read(bench.stored_file(&backup)).unwrap());
        let get = async |query: &str, headers: &[(&str, &str)]| {
            let path = format!("/api/backups/{}/download{query}", backup["id"]);
            let request = client.request(reqwest::Method::GET, &path).bearer_auth(client.token());
            let response = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let response = response.send().await.unwrap();
            let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            let told = (response.status().as_u16(), header("accept-ranges"), header("content-range"), header("etag"));
            (told, response.bytes().await.unwrap())
        };
        let (size, tag) = (stored.len(), format!("{}", backup["sha256"]));
        let (told, whole) = get("", &[]).await;
        assert_eq!((told, &whole[..]), ((200, Some("bytes".to_owned()), None, Some(tag.clone())), &stored[..]));
        // Also after the object was verified, when its blocks are known.
        for _ in 0..2 {
            for (range, part) in
                [("bytes=3000000-", 3_000_000..size), ("bytes=7-7", 7..8), ("bytes=-100", size - 100..size)]
            {
                let (told, bytes) = get("", &[("range", range), ("if-range", &tag)]).await;
                let expected = format!("bytes {}-{}/{size}", part.start, part.end - 1);
                assert_eq!((told.0, told.2, told.3), (206, Some(expected), Some(tag.clone())), "{range}");
                assert!(bytes[..] == stored[part], "{range}");
            }
            assert_eq!(bench.verify(&backup).await["status"], "successful");
        }
        assert_eq!(get("", &[("range", "bytes=5-"), ("if-range", "\"other\"")]).await.1, whole);
        let (told, _) = get("", &[("range", &format!("bytes={size}-"))]).await;
        assert_eq!((told.0, told.2), (416, Some(format!("bytes */{size}"))));
        let (told, bytes) = get("?entry=large", &[("range", "bytes=0-1")]).await;
        assert_eq!((told.0, told.1, bytes.len()), (200, Some("none".to_owned()), 5 * 1024 * 1024));
        let events = client.get("/api/audit-events?per_page=100").await.expect(200);
        assert!(events.to_string().contains(&format!("{} bytes 3000000-{}", backup["id"], size - 1)), "{events:#}");
    }

    async fn runs_tell_what_they_made_and_what_they_restored(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let task = bench.task(json!({})).await;
        let backup = bench.back_up(task).await;
        let client = &bench.user.client;
        let log = bench.latest_log(task).await;
        assert_eq!(log["backup_id"], backup["id"]);
        let run = client.get(&format!("/api/runs/{}", log["id"])).await.data(200);
        assert_eq!((&run["backup_id"], &run["restore"]), (&backup["id"], &json!(null)));
        let logs = client.get(&format!("/api/backup-tasks/{task}/logs")).await.expect(200);
        assert_eq!(logs["data"][0]["backup_id"], backup["id"]);

        let target = bench.target();
        let restored = bench.restore(&backup, json!({"path": target, "entries": ["file"], "overwrite": true})).await;
        let expected = json!({"remote_server_id": bench.server, "path": target, "database_name": null,
            "entries": ["file"], "overwrite": true, "no_owner": false, "numeric_owner": false,
            "restore_devices": false, "dry_run": false});
        assert_eq!(restored["restore"], expected);
        let runs = client.get("/api/runs?kind=restore").await.expect(200);
        assert_eq!(runs["data"][0]["restore"], expected);
        let events = client.get("/api/audit-events?per_page=100").await.expect(200);
        let asked =
            events["data"].as_array().unwrap().iter().find(|event| event["action"] == "backup.restore_requested");
        let detail = format!("{} to server {}, path {target:?}, entries 1, overwrite", backup["id"], bench.server);
        assert_eq!(asked.unwrap()["detail"], detail);
    }
}
