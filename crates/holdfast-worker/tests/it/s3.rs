use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_app::{AppError, Part, backups};
use holdfast_core::ids::BackupId;
use holdfast_testkit::{
    Engine, Fault, Fingerprint, S3Server, SampleTree, Settings, SshServer, TestApp, TestUser, assert_same,
    on_both_engines,
};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed};
use crate::looks::caller;

const BUCKET: &str = "backups";

/// A bench with a bucket instead of a local folder. The user is an administrator because the store is on loopback.
async fn bench(app: TestApp, path_style: bool) -> (Bench, S3Server) {
    let s3 = S3Server::start(&[BUCKET]).await.unwrap();
    let user = app.admin("ada").await;
    let mut bench = Bench::of(app, SshServer::start(), user).await;
    let endpoint = if path_style { s3.endpoint() } else { s3.host_endpoint() };
    bench.destination = destination(&bench, &endpoint, path_style, json!({})).await;
    (bench, s3)
}

async fn destination(bench: &Bench, endpoint: &str, path_style: bool, changes: Value) -> i64 {
    destination_of(&bench.user, endpoint, path_style, changes).await
}

async fn destination_of(user: &TestUser, endpoint: &str, path_style: bool, changes: Value) -> i64 {
    let mut body = json!({"label": "bucket", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
        "s3_secret_key": S3Server::SECRET_KEY, "s3_bucket_name": BUCKET, "custom_s3_endpoint": endpoint,
        "path_style_endpoint": path_style});
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    user.client.post("/api/backup-destinations", body).await.id(201)
}

async fn checked(bench: &Bench, destination: i64) -> Value {
    checked_by(&bench.user, &bench.app, destination).await
}

async fn checked_by(user: &TestUser, app: &TestApp, destination: i64) -> Value {
    let path = format!("/api/backup-destinations/{destination}");
    user.client.act(&format!("{path}/check")).await.expect(202);
    app.run_until_idle().await;
    user.client.get(&path).await.data(200)
}

/// The names of all objects in the bucket, except internal files of the server and the catalogue.
fn objects(s3: &S3Server) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(s3.root().join(BUCKET))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.') && name != "holdfast-catalogue")
        .collect();
    names.sort();
    names
}

/// The names of the catalogues in the bucket.
fn catalogues(s3: &S3Server) -> Vec<String> {
    let owners = std::fs::read_dir(s3.root().join(BUCKET).join("holdfast-catalogue")).into_iter().flatten().flatten();
    let files = owners.flat_map(|owner| std::fs::read_dir(owner.path()).into_iter().flatten().flatten());
    files.map(|file| file.file_name().to_string_lossy().into_owned()).filter(|name| !name.starts_with('.')).collect()
}

/// Incompressible, and large enough for several parts.
fn fill(bench: &Bench) {
    std::fs::write(bench.source().join("large"), holdfast_testkit::random(3, 20 * 1024 * 1024)).unwrap();
}

on_both_engines! {
    async fn files_go_to_a_bucket_and_come_back(app: TestApp) {
        let (bench, s3) = bench(app, true).await;
        SampleTree::create(&bench.source());
        fill(&bench);
        for password in [None, Some("correct horse battery")] {
            let backup = bench.back_up(bench.task(json!({"encryption_password": password})).await).await;
            assert_eq!(objects(&s3).len(), 1, "one object, nothing else");
            assert_eq!(bench.verify(&backup).await["status"], "successful");
            let target = bench.folder.path().join(format!("back-{}", backup["id"]));
            let run = bench.restore(&backup, json!({"path": target})).await;
            assert_eq!(run["status"], "successful", "{run}");
            assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target));
            bench.user.client.delete(&format!("/api/backups/{}", backup["id"])).await.expect(200);
            bench.app.run_until_idle().await;
            assert_eq!(objects(&s3), [""; 0]);
        }
    }
}

async fn sqlite() -> TestApp {
    TestApp::start(Engine::Sqlite).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn virtual_hosted_buckets_work_and_checks_report_errors() {
    let (bench, s3) = bench(sqlite().await, false).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    assert_eq!(checked(&bench, bench.destination).await["status"], "reachable");
    bench.back_up(bench.task(json!({})).await).await;
    let wrong = [
        (json!({"s3_secret_key": "wrong"}), "destination_denied"),
        (json!({"s3_access_key": "unknown"}), "destination_denied"),
        (json!({"s3_bucket_name": "another"}), "bucket_missing"),
    ];
    for (changes, code) in wrong {
        let destination = destination(&bench, &s3.endpoint(), true, changes.clone()).await;
        let shown = checked(&bench, destination).await;
        assert_eq!(
            (&shown["status"], &shown["error_code"]),
            (&json!("unreachable"), &json!(code)),
            "{changes} {shown}"
        );
        let log = bench.run(bench.task(json!({"backup_destination_id": destination})).await).await;
        assert_failed(&log, code);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_with_backups_stays_where_it_is() {
    let (bench, s3) = bench(sqlite().await, true).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    bench.back_up(bench.task(json!({})).await).await;
    let path = format!("/api/backup-destinations/{}", bench.destination);
    let with_keys = |field: &str, value: &str| json!({field: value, "s3_access_key": S3Server::ACCESS_KEY, "s3_secret_key": S3Server::SECRET_KEY});
    let told = bench.user.client.put(&path, with_keys("s3_bucket_name", "another")).await.expect(409);
    assert!(told["message"].as_str().unwrap().contains("still holds 1 backup"), "{told}");
    // The endpoint may change if the keys are entered again.
    let moved = s3.endpoint().replace("127.0.0.1", "localhost");
    bench.user.client.put(&path, json!({"custom_s3_endpoint": moved})).await.error_of("s3_secret_key");
    bench.user.client.put(&path, with_keys("custom_s3_endpoint", &moved)).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_addresses_are_for_administrators() {
    let s3 = S3Server::start(&[BUCKET]).await.unwrap();
    let bench = Bench::new(sqlite().await).await;
    for endpoint in [s3.endpoint(), s3.host_endpoint()] {
        let destination = destination(&bench, &endpoint, endpoint == s3.endpoint(), json!({})).await;
        let shown = checked(&bench, destination).await;
        assert_eq!(shown["error_code"], "forbidden_address", "{shown}");
        assert!(shown["last_error"].as_str().unwrap().contains("HOLDFAST_EGRESS_ALLOW"));
    }
    let admin = bench.app.admin("root").await;
    let metadata = destination_of(&admin, "http://169.254.169.254", true, json!({})).await;
    let shown = checked_by(&admin, &bench.app, metadata).await;
    assert_eq!(shown["error_code"], "forbidden_address", "not even for administrators");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transient_failures_are_retried() {
    let (bench, s3) = bench(sqlite().await, true).await;
    fill(&bench);
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    s3.set_hook(move |_, _, _| match seen.fetch_add(1, Ordering::SeqCst) % 3 {
        0 => Some(Fault::Status(503, "SlowDown")),
        1 => Some(Fault::Reset),
        _ => None,
    });
    let backup = bench.back_up(bench.task(json!({})).await).await;
    assert!(count.load(Ordering::SeqCst) > 10);
    s3.clear_hook();
    assert_eq!(bench.verify(&backup).await["status"], "successful");
    assert_eq!(objects(&s3).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_stays_broken_fails_the_run_and_keeps_the_old_backup() {
    let (bench, s3) = bench(sqlite().await, true).await;
    fill(&bench);
    let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
    let good = bench.back_up(task).await;
    // Each step of an upload fails in turn, with one backup to keep: the good one always stays.
    type IsHit = fn(&http::Method, &str) -> bool;
    let steps: [(&str, IsHit); 4] = [
        ("begin", |method, query| method == "POST" && query.contains("uploads")),
        ("part", |method, query| method == "PUT" && query.contains("partNumber=2")),
        ("complete", |method, query| method == "POST" && query.contains("uploadId")),
        ("confirm", |method, query| method == "HEAD" && query.is_empty()),
    ];
    for (step, is_hit) in steps {
        s3.set_hook(move |method, _, query| is_hit(method, query).then_some(Fault::Status(500, "InternalError")));
        assert_failed(&bench.run(task).await, "destination_unavailable");
        s3.clear_hook();
        bench.app.clock.advance_secs(3600);
        bench.app.run_until_idle().await;
        assert_eq!(objects(&s3), [good["key"].as_str().unwrap()], "{step}");
        assert_eq!(bench.verify(&good).await["status"], "successful", "{step}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_whose_response_is_lost_counts() {
    let (bench, s3) = bench(sqlite().await, true).await;
    fill(&bench);
    s3.set_hook(|method, _, query| (method == "POST" && query.contains("uploadId")).then_some(Fault::ApplyThenReset));
    let backup = bench.back_up(bench.task(json!({})).await).await;
    s3.clear_hook();
    assert_eq!(objects(&s3), [backup["key"].as_str().unwrap()]);
    assert_eq!(bench.verify(&backup).await["status"], "successful");
}

/// Small and large objects: one is uploaded in a single request, the other in parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etag_that_proves_nothing_leads_to_reading_back() {
    let (bench, s3) = bench(sqlite().await, true).await;
    let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
    for is_large in [false, true] {
        if is_large {
            fill(&bench);
        }
        s3.set_hook(|method, _, _| (method == "HEAD").then_some(Fault::ForeignTag));
        let good = bench.back_up(task).await;
        let output = bench.latest_log(task).await["output"].as_str().unwrap().to_owned();
        assert!(output.contains("read back"), "{output}");
        // A store with the right size but other bytes.
        let bucket = s3.root().join(BUCKET);
        s3.set_hook(move |method, path, _| {
            let file = bucket.join(path.rsplit('/').next().unwrap());
            if method == "HEAD"
                && let Ok(mut bytes) = std::fs::read(&file)
            {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&file, bytes).unwrap();
                return Some(Fault::ForeignTag);
            }
            None
        });
        let log = bench.run(task).await;
        s3.clear_hook();
        assert_failed(&log, "destination_failed");
        assert!(log["output"].as_str().unwrap().contains("differ from those that were sent"), "{log}");
        bench.app.clock.advance_secs(3600);
        bench.app.run_until_idle().await;
        assert_eq!(objects(&s3), [good["key"].as_str().unwrap()], "the bad one goes, the good one stays");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_a_self_signed_certificate_can_be_trusted() {
    let s3 = S3Server::start_tls(&[BUCKET]).await.unwrap();
    let trusting = |ca_pem: Option<Vec<u8>>| {
        let mut settings = Settings::default();
        settings.engine.destination.ca_pem = ca_pem;
        TestApp::start_with(Engine::Sqlite, settings)
    };
    let app = trusting(None).await;
    let admin = app.admin("ada").await;
    let bucket = destination_of(&admin, &s3.endpoint(), true, json!({})).await;
    let shown = checked_by(&admin, &app, bucket).await;
    assert_eq!(shown["error_code"], "destination_failed", "{shown}");
    assert!(shown["last_error"].as_str().unwrap().contains("TLS"), "{shown}");

    let app = trusting(s3.certificate().map(<[u8]>::to_vec)).await;
    let admin = app.admin("ada").await;
    let mut bench = Bench::of(app, SshServer::start(), admin).await;
    fill(&bench);
    for (endpoint, path_style) in [(s3.endpoint(), true), (s3.host_endpoint(), false)] {
        bench.destination = destination(&bench, &endpoint, path_style, json!({})).await;
        let shown = checked(&bench, bench.destination).await;
        assert_eq!(shown["status"], "reachable", "{shown}");
        let backup = bench.back_up(bench.task(json!({})).await).await;
        assert_eq!(bench.verify(&backup).await["status"], "successful");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_skew_and_denials_fail_at_once() {
    let (bench, s3) = bench(sqlite().await, true).await;
    fill(&bench);
    let task = bench.task(json!({})).await;
    for (status, code, class) in
        [(403, "RequestTimeTooSkewed", "clock_skew"), (403, "AccessDenied", "destination_denied")]
    {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        s3.set_hook(move |method, _, _| {
            (method == "POST").then(|| {
                seen.fetch_add(1, Ordering::SeqCst);
                Fault::Status(status, code)
            })
        });
        assert_failed(&bench.run(task).await, class);
        assert_eq!(count.load(Ordering::SeqCst), 1, "tried once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalogue_follows_every_change_and_its_failure_is_no_failure_of_a_backup() {
    let (bench, s3) = bench(TestApp::start(Engine::Sqlite).await, true).await;
    s3.set_hook(|method, path, _| {
        let is_catalogue = path.contains("holdfast-catalogue") && method == http::Method::PUT;
        is_catalogue.then_some(Fault::Status(403, "AccessDenied"))
    });
    let task = bench.task(json!({})).await;
    bench.back_up(task).await;
    bench.app.run_until_idle().await;
    let destination = bench.destination;
    let state = async || {
        let mut tx = bench.app.app.store.read().await.unwrap();
        holdfast_store::catalogue::find(&mut tx, destination).await.unwrap().unwrap()
    };
    let (written, error) = state().await;
    assert!(written.is_none() && error.is_some(), "{error:?}");
    assert!(catalogues(&s3).is_empty());
    s3.clear_hook();
    bench.app.clock.advance_secs(20 * 60);
    bench.app.run_until_idle().await;
    let first = catalogues(&s3);
    assert_eq!((first.len(), state().await.1), (1, None));
    // Without changes, nothing is written.
    bench.app.clock.advance_secs(3600);
    bench.app.run_until_idle().await;
    assert_eq!(catalogues(&s3), first);
    bench.user.client.post("/api/tags", json!({"label": "new"})).await.expect(201);
    bench.app.run_until_idle().await;
    let second = catalogues(&s3);
    assert!(second.len() == 1 && second != first, "the newer one stands in for the older: {second:?}");
}

/// Accepts every connection and never responds.
async fn silent_endpoint() -> (String, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok(accepted) = listener.accept().await {
            kept.push(accepted);
        }
    });
    (endpoint, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_and_tests_of_a_silent_endpoint_end_in_time() {
    let mut settings = Settings::default();
    settings.work.short_limit = Duration::from_secs(1);
    settings.notify.limit = Duration::from_secs(600);
    settings.engine.remote.ssh.connect = Duration::from_secs(600);
    let app = TestApp::start_with(Engine::Sqlite, settings).await;
    let user = app.admin("ada").await;
    let (endpoint, silence) = silent_endpoint().await;
    let destination = destination_of(&user, &endpoint, true, json!({})).await;
    let shown = checked_by(&user, &app, destination).await;
    assert_eq!((&shown["status"], &shown["error_code"]), (&json!("unreachable"), &json!("destination_unavailable")));

    let port: u16 = endpoint.rsplit(':').next().unwrap().parse().unwrap();
    let body = json!({"label": "silent", "ip_address": "127.0.0.1", "port": port, "username": "backup"});
    let server = user.client.post("/api/remote-servers", body).await.id(201);
    user.client.act(&format!("/api/remote-servers/{server}/check")).await.expect(202);
    app.run_until_idle().await;
    let shown = user.client.get(&format!("/api/remote-servers/{server}")).await.data(200);
    assert_eq!(shown["status"]["error_code"], "timeout", "{shown}");

    let body = json!({"label": "hook", "type": "slack_webhook", "value": format!("{endpoint}/hook")});
    let stream = user.client.post("/api/notification-streams", body).await.id(201);
    user.client.act(&format!("/api/notification-streams/{stream}/test")).await.expect(202);
    app.run_until_idle().await;
    let shown = user.client.get(&format!("/api/notification-streams/{stream}")).await.data(200);
    assert!(shown.to_string().contains("no result after 1 seconds"), "{shown}");
    silence.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_was_stopped_leaves_no_probe_behind() {
    let mut settings = Settings::default();
    settings.work.short_limit = Duration::from_secs(2);
    let app = TestApp::start_with(Engine::Sqlite, settings).await;
    let user = app.admin("ada").await;
    let s3 = S3Server::start(&[BUCKET]).await.unwrap();
    let destination = destination_of(&user, &s3.endpoint(), true, json!({})).await;
    let is_probe = |path: &str| path.contains("holdfast-check-");
    let stored = Arc::new(AtomicUsize::new(0));
    let count = stored.clone();
    s3.set_hook(move |method, path, _| {
        count.fetch_add(usize::from(method == "PUT" && is_probe(path)), Ordering::SeqCst);
        (method == "HEAD" && is_probe(path)).then_some(Fault::ApplyThenHang)
    });
    let shown = checked_by(&user, &app, destination).await;
    assert_eq!(shown["error_code"], "destination_unavailable", "{shown}");
    assert_eq!(stored.load(Ordering::SeqCst), 1, "the probe was written");
    crate::faults::wait_for(async || objects(&s3).is_empty().then_some(())).await;
}

/// In such a bucket, deleting only hides objects, which continue to cost money.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_keeps_versions_is_told_of() {
    let (bench, s3) = bench(sqlite().await, true).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let task = bench.task(json!({})).await;
    for (version, is_kept) in [(Some("3sL4kqtJlcpXroDTDmJ"), true), (Some("null"), false), (None, false)] {
        s3.set_hook(move |method, _, _| version.filter(|_| method == "HEAD" || method == "PUT").map(Fault::Version));
        assert_eq!(checked(&bench, bench.destination).await["keeps_versions"], is_kept, "{version:?}");
        let log = bench.run(task).await;
        assert_eq!(log["status"], "successful", "{log}");
        assert_eq!(log["output"].as_str().unwrap().contains("The bucket keeps versions"), is_kept, "{log}");
    }
}

/// Each byte arrives in time, but the throughput is close to zero: every reader gives up, and no backup is marked as
/// damaged because of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_give_up_on_a_bucket_that_sends_byte_by_byte() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let done = tokio::time::timeout(Duration::from_secs(120), read_a_dripping_bucket(engine)).await;
        done.expect("it is being read for ever");
    }
}

async fn read_a_dripping_bucket(engine: Engine) {
    let mut settings = Settings::default();
    settings.engine.destination.stall = Duration::from_secs(1);
    let (bench, s3) = bench(TestApp::start_with(engine, settings).await, true).await;
    std::fs::create_dir(bench.source().join("docs")).unwrap();
    std::fs::write(bench.source().join("docs/file"), holdfast_testkit::random(3, 300_000)).unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    s3.set_hook(|method, _, _| (method == http::Method::GET).then_some(Fault::Drip));
    assert_eq!(bench.verify(&backup).await["error_code"], "stalled");
    assert_eq!(bench.show(&backup).await["verification"]["status"], "unverified");
    let run = bench.restore(&backup, json!({"path": bench.target()})).await;
    assert_eq!(run["error_code"], "stalled", "{run}");
    let path = format!("/api/backups/{}", backup["id"]);
    for (method, fault) in [(http::Method::GET, Fault::Drip), (http::Method::HEAD, Fault::ApplyThenHang)] {
        s3.set_hook(move |asked, _, _| (*asked == method).then_some(fault));
        for look in ["entries?path=docs", "download?entry=docs/file"] {
            let told = bench.user.client.get(&format!("{path}/{look}")).await.expect(503);
            assert!(told["message"].as_str().unwrap().contains("destination does not answer"), "{told}");
        }
    }
    s3.clear_hook();
    assert_eq!(bench.verify(&backup).await["status"], "successful");
    bench.user.client.get(&format!("{path}/entries?path=docs")).await.expect(200);
}

/// The bucket never responds. There are few slots for readers: if they were not freed, all would be taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_for_a_client_that_has_hung_up() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let (bench, s3) = bench(TestApp::start(engine).await, true).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let (reached, mut reads) = tokio::sync::mpsc::unbounded_channel();
        s3.set_hook(move |method, _, _| {
            (method == http::Method::GET).then(|| {
                // Fails at the end of the test, when the receiver is gone.
                let _over = reached.send(());
                Fault::ApplyThenHang
            })
        });
        for path in ["entries", "download?entry=file", "download"].iter().cycle().take(21) {
            let path = format!("/api/backups/{}/{path}", backup["id"]);
            let deadline = Instant::now() + Duration::from_secs(30);
            loop {
                assert!(Instant::now() < deadline, "{path}: places are still taken for clients that are gone");
                tokio::select! {
                    // Dropping the request closes the connection of the client.
                    _ = reads.recv() => break,
                    reply = bench.user.client.get(&path) => assert_eq!(reply.status, 429, "{path}"),
                }
            }
        }
    }
}

/// The bucket does not respond within the time limit of readers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_a_backup_for_too_long_is_refused_with_advice() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let done = tokio::time::timeout(Duration::from_secs(120), look_into_a_silent_bucket(engine)).await;
        done.expect("it is being read for ever");
    }
}

async fn look_into_a_silent_bucket(engine: Engine) {
    let mut settings = Settings::default();
    settings.reading.time = Duration::from_millis(300);
    let (bench, s3) = bench(TestApp::start_with(engine, settings).await, true).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let path = format!("/api/backups/{}", backup["id"]);
    s3.set_hook(|method, _, _| (method == http::Method::GET).then_some(Fault::ApplyThenHang));
    for look in ["entries", "download?entry=file"] {
        let refused = bench.user.client.get(&format!("{path}/{look}")).await.expect(409);
        assert!(refused["message"].as_str().unwrap().contains("restore what you need"), "{refused}");
    }
    let (caller, id) = (caller(&bench).await, BackupId(backup["id"].as_i64().unwrap()));
    let app = &bench.app.app;
    assert!(matches!(backups::search(app, &caller, id, "file").await, Err(AppError::Conflict(_))));
    assert!(matches!(backups::download_folder(app, &caller, id, "").await, Err(AppError::Conflict(_))));
    s3.clear_hook();
    assert_eq!(bench.user.client.get(&format!("{path}/download")).await.status, 200);
}

/// Removals from one bucket hang for ever, and removals from other destinations do not wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_does_not_answer_holds_up_no_removal_elsewhere() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let done = tokio::time::timeout(Duration::from_secs(120), remove_from_a_silent_bucket(engine)).await;
        done.expect("it is waited for for ever");
    }
}

async fn remove_from_a_silent_bucket(engine: Engine) {
    let mut settings = Settings::default();
    settings.work.removal_limit = Duration::from_secs(1);
    let (mut bench, s3) = bench(TestApp::start_with(engine, settings).await, true).await;
    let other = S3Server::start(&[BUCKET]).await.unwrap();
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let task = bench.task(json!({})).await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(bench.back_up(task).await);
        bench.app.clock.advance_secs(60);
    }
    bench.destination = destination(&bench, &other.endpoint(), true, json!({"label": "other"})).await;
    made.push(bench.back_up(bench.task(json!({})).await).await);
    let asked = count_removals(&s3);
    for backup in &made {
        bench.user.client.delete(&format!("/api/backups/{}", backup["id"])).await.expect(200);
        bench.app.clock.advance_secs(1);
    }
    bench.app.run_until_idle().await;
    assert_eq!(objects(&other), [""; 0]);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it is not asked for each");
    assert!(objects(&s3).len() >= 2);
    s3.clear_hook();
    bench.app.run_until_idle().await;
    assert!(objects(&s3).len() >= 2, "not before its time");
    bench.app.clock.advance_secs(3600);
    bench.app.run_until_idle().await;
    assert_eq!(objects(&s3), [""; 0]);
}

/// The silent destinations of a user take only a share of a round, and skipped removals are not postponed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_silent_destinations_of_one_user_take_limited_time() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let done = tokio::time::timeout(Duration::from_secs(120), remove_from_many_silent_destinations(engine)).await;
        done.expect("each of them is waited for");
    }
}

async fn remove_from_many_silent_destinations(engine: Engine) {
    let mut settings = Settings::default();
    settings.work.removal_limit = Duration::from_secs(1);
    let (mut bench, s3) = bench(TestApp::start_with(engine, settings).await, true).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let mut made = Vec::new();
    for number in 0..8 {
        let label = json!({"label": format!("number {number}")});
        bench.destination = destination(&bench, &s3.endpoint(), true, label).await;
        made.push(bench.back_up(bench.task(json!({})).await).await);
    }
    let asked = count_removals(&s3);
    for backup in &made {
        bench.user.client.delete(&format!("/api/backups/{}", backup["id"])).await.expect(200);
    }
    bench.app.run_until_idle().await;
    assert!((1..=4).contains(&asked.load(Ordering::SeqCst)), "{asked:?}");
    assert!(objects(&s3).len() >= 4);
    s3.clear_hook();
    bench.app.clock.advance_secs(61);
    bench.app.run_until_idle().await;
    assert_eq!(objects(&s3), [""; 0]);
}

/// From now on the bucket does not respond to removals; returns a counter of them.
fn count_removals(s3: &S3Server) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    s3.set_hook(move |method, path, _| {
        let is_removal = method == http::Method::DELETE && !path.contains("holdfast-catalogue");
        count.fetch_add(usize::from(is_removal), Ordering::SeqCst);
        is_removal.then_some(Fault::ApplyThenHang)
    });
    asked
}

/// The bucket stops responding in the middle of a download: the client does not wait for the bucket's own timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_download_is_ended() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let done = tokio::time::timeout(Duration::from_secs(120), download_from_a_silent_bucket(engine)).await;
        done.expect("it is waited for for ever");
    }
}

async fn download_from_a_silent_bucket(engine: Engine) {
    let mut settings = Settings::default();
    settings.reading.silence = Duration::from_secs(2);
    let (bench, s3) = bench(TestApp::start_with(engine, settings).await, true).await;
    std::fs::create_dir(bench.source().join("docs")).unwrap();
    std::fs::write(bench.source().join("docs/large"), holdfast_testkit::random(3, 40 * 1024 * 1024)).unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let (caller, id) = (caller(&bench).await, BackupId(backup["id"].as_i64().unwrap()));
    for is_folder in [true, false] {
        let begin = async || match is_folder {
            true => backups::download_folder(&bench.app.app, &caller, id, "docs").await.unwrap(),
            false => backups::download(&bench.app.app, &caller, id, Part::Entry("docs/large")).await.unwrap(),
        };
        let mut download = begin().await;
        s3.set_hook(|method, _, _| (method == http::Method::GET).then_some(Fault::ApplyThenHang));
        let mut last = None;
        while let Some(piece) = download.pieces.recv().await {
            last = Some(piece);
        }
        let error = last.unwrap().unwrap_err();
        assert!(error.to_string().contains("nothing to send"), "{error}");
        s3.clear_hook();
        let (mut download, mut bytes) = (begin().await, 0);
        while let Some(piece) = download.pieces.recv().await {
            bytes += piece.unwrap().len();
        }
        assert!(bytes >= 40 * 1024 * 1024, "{bytes}");
    }
}
