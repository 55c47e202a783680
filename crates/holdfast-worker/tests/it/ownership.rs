use holdfast_app::{Origin, ownership, suspension};
use holdfast_core::page::PageRequest;
use holdfast_store::Listing;
use holdfast_store::users::{self, UserRow};
use holdfast_testkit::{Fingerprint, S3Server, SampleTree, SshServer, TestApp, TestUser, assert_same, on_both_engines};
use serde_json::json;

use crate::bench::Bench;

const BUCKET: &str = "backups";

async fn account(app: &TestApp, user: &TestUser) -> UserRow {
    users::find(&mut app.app.store.read().await.unwrap(), user.id).await.unwrap().unwrap()
}

/// A bench with tasks that store in a folder, on a server and in a bucket, and a backup of each.
async fn full(app: TestApp) -> (Bench, SshServer, S3Server, Vec<(i64, i64)>) {
    let user = app.admin("ada").await;
    let mut bench = Bench::of(app, SshServer::start(), user).await;
    SampleTree::create(&bench.source());
    let storage = SshServer::builder().sftp_only().start();
    storage.authorize(bench.user.client.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
    let s3 = S3Server::start(&[BUCKET]).await.unwrap();
    let nas = json!({"label": "nas", "type": "sftp", "sftp_host": "127.0.0.1", "sftp_port": storage.port(),
        "sftp_username": storage.username(), "sftp_path": bench.folder.path().join("nas")});
    let bucket = json!({"label": "bucket", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
        "s3_secret_key": S3Server::SECRET_KEY, "s3_bucket_name": BUCKET, "custom_s3_endpoint": s3.endpoint(),
        "path_style_endpoint": true});
    let mut places = vec![bench.destination];
    for body in [nas, bucket] {
        places.push(bench.user.client.post("/api/backup-destinations", body).await.id(201));
    }
    let password = json!({"database_password": "of the database"});
    bench.user.client.put(&format!("/api/remote-servers/{}", bench.server), password).await.expect(200);
    let mut made = Vec::new();
    for place in places {
        bench.destination = place;
        // Deriving a key takes a while, so one encrypted backup has to do.
        let password = made.is_empty().then_some("correct horse battery");
        let task = bench.task(json!({"encryption_password": password})).await;
        made.push((task, bench.back_up(task).await["id"].as_i64().unwrap()));
    }
    let (stream, tag) = (bench.user.stream().await, bench.user.tag().await);
    let attach = json!({"notification_stream_ids": [stream], "tag_ids": [tag]});
    bench.user.client.put(&format!("/api/backup-tasks/{}", made[0].0), attach).await.expect(200);
    (bench, storage, s3, made)
}

/// The former owner sees nothing any more.
async fn assert_empty(user: &TestUser, made: &[(i64, i64)]) {
    for list in [
        "backup-tasks",
        "remote-servers",
        "backup-destinations",
        "notification-streams",
        "tags",
        "backups",
        "backup-task-logs",
        "runs",
    ] {
        let found = user.client.get(&format!("/api/{list}")).await.expect(200);
        assert_eq!(found["meta"]["total"], 0, "{list}: {found}");
    }
    for (task, backup) in made {
        user.client.get(&format!("/api/backup-tasks/{task}")).await.expect(403);
        user.client.get(&format!("/api/backups/{backup}")).await.expect(403);
    }
}

async fn transferred(app: TestApp, has_key: bool) {
    let (mut bench, _storage, _s3, made) = full(app).await;
    let heir = bench.app.admin("eve").await;
    if has_key {
        heir.client.get("/api/ssh-key").await.expect(200);
    }
    let key = bench.user.client.get("/api/ssh-key").await.data(200);
    let (from, to) = (account(&bench.app, &bench.user).await, account(&bench.app, &heir).await);
    let origin = Origin::default();
    bench.user.client.act(&format!("/api/backup-tasks/{}/run", made[0].0)).await.expect(202);
    let refused = ownership::transfer(&bench.app.app, &origin, &from, &to).await.err().unwrap();
    assert!(refused.to_string().contains("running"), "{refused}");
    bench.app.run_until_idle().await;
    let done = ownership::transfer(&bench.app.app, &origin, &from, &to).await.unwrap();
    assert_eq!((done.figures.tasks, done.figures.destinations), (3, 3));

    let former = std::mem::replace(&mut bench.user, heir);
    assert_empty(&former, &made).await;
    let server = bench.user.client.get(&format!("/api/remote-servers/{}", bench.server)).await.data(200);
    assert_eq!(server["connection"]["is_database_password_set"], true);
    let is_same = bench.user.client.get("/api/ssh-key").await.data(200) == key;
    assert_eq!(is_same, !has_key, "the key moved only to somebody who had none");
    for (number, (task, backup)) in made.iter().enumerate() {
        let shown = bench.user.client.get(&format!("/api/backups/{backup}")).await.data(200);
        assert_eq!(bench.verify(&shown).await["status"], "successful");
        let target = bench.folder.path().join(format!("old-{number}"));
        let run = bench.restore(&shown, json!({"path": target})).await;
        assert_eq!(run["status"], "successful", "{run}");
        assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target));
        // And what is made from now on.
        let new = bench.back_up(*task).await;
        let target = bench.folder.path().join(format!("new-{number}"));
        let run = bench.restore(&new, json!({"path": target})).await;
        assert_eq!(run["status"], "successful", "{run}");
        assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target));
    }
    let folder = bench.app.destinations().join(bench.user.id.to_string());
    assert!(!folder.exists(), "backups stay in the folder where they are");
}

on_both_engines! {
    async fn everything_works_for_the_new_owner_who_has_a_key(app: TestApp) {
        transferred(app, true).await;
    }

    async fn everything_works_for_the_new_owner_who_gets_the_key(app: TestApp) {
        transferred(app, false).await;
    }

    async fn tasks_of_a_suspended_account_are_scheduled_for_their_new_owner(app: TestApp) {
        let (from, to) = (app.user("ada").await, app.user("eve").await);
        from.task().await;
        suspension::suspend(&app.app, &Origin::default(), &account(&app, &from).await).await.unwrap();
        let (sender, heir) = (account(&app, &from).await, account(&app, &to).await);
        ownership::transfer(&app.app, &Origin::default(), &sender, &heir).await.unwrap();
        assert_eq!(to.client.get("/api/backup-tasks/upcoming").await.data(200).as_array().unwrap().len(), 1);
        for user in [&to, &from] {
            let newest = Listing::new(user.id, PageRequest { page: 1, per_page: 50 });
            let events = holdfast_app::audit_log::list(&app.app, &newest).await.unwrap().items;
            let details: Vec<&str> = events.iter().map(|event| event.detail.as_str()).collect();
            for kind in ["tasks", "servers", "destinations"] {
                let expected = format!(": ids of {kind} 1");
                assert!(details.iter().any(|detail| detail.ends_with(&expected)), "{expected}: {details:?}");
            }
        }
        let same = ownership::transfer(&app.app, &Origin::default(), &heir, &heir).await.err().unwrap();
        assert!(same.to_string().contains("already belongs"), "{same}");
        let back = ownership::transfer(&app.app, &Origin::default(), &heir, &sender).await.err().unwrap();
        assert!(back.to_string().contains("suspended"), "{back}");
    }
}
