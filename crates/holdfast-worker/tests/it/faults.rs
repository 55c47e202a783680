use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use holdfast_testkit::{FaultProxy, Settings, SmallDisk, SshServer, TestApp};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bench::{Bench, assert_failed};

/// Settings with short timeouts, so that silence is detected within a test.
fn impatient() -> Settings {
    let mut settings = Settings::default();
    settings.engine.remote.ssh.connect = Duration::from_secs(2);
    settings.engine.remote.stall = Duration::from_secs(2);
    settings
}

async fn sqlite(settings: Settings) -> TestApp {
    TestApp::start_with(holdfast_testkit::Engine::Sqlite, settings).await
}

/// A bench with a proxy in front of the server, and a source that takes a while to read.
async fn behind_proxy() -> (Bench, FaultProxy, i64) {
    let bench = Bench::new(sqlite(impatient()).await).await;
    let proxy = FaultProxy::start(bench.ssh.port());
    let path = format!("/api/remote-servers/{}", bench.server);
    bench.user.client.put(&path, json!({"port": proxy.port()})).await.expect(200);
    std::fs::write(bench.source().join("large"), holdfast_testkit::random(5, 8 * 1024 * 1024)).unwrap();
    let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
    (bench, proxy, task)
}

fn shim(shims: &TempDir, script: &str) {
    let path = shims.path().join("tar");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Asserts that after a failure only the good backup is stored, unchanged, and the task is ready.
async fn assert_untouched(bench: &Bench, task: i64, good: &Value) {
    bench.app.clock.advance_secs(600);
    bench.app.run_until_idle().await;
    let key = good["key"].as_str().unwrap().to_owned();
    assert_eq!(bench.stored_names(), [key]);
    assert_eq!(bench.verify(good).await["status"], "successful");
    let status = bench.user.client.get(&format!("/api/backup-tasks/{task}/status")).await.data(200);
    assert_eq!(status["status"], "ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_cut_silent_or_gone_fails_the_run_and_nothing_else() {
    let (bench, proxy, task) = behind_proxy().await;
    let good = bench.back_up(task).await;
    for bytes in [1, 500, 3000, 100_000, 5_000_000] {
        proxy.cut_after(bytes);
        let log = bench.run(task).await;
        let code = log["error_code"].as_str().unwrap_or_default();
        assert!(["lost", "connect", "remote_failed"].contains(&code), "cut after {bytes}: {log}");
        assert_eq!(log["status"], "failed");
        proxy.heal();
        assert_untouched(&bench, task, &good).await;
    }
    proxy.silence_after(3_000_000);
    assert_failed(&bench.run(task).await, "stalled");
    proxy.heal();
    assert_untouched(&bench, task, &good).await;
    proxy.silence_after(0);
    assert_failed(&bench.run(task).await, "connect");
    proxy.heal();
    proxy.refuse();
    assert_failed(&bench.run(task).await, "connect");
    proxy.heal();
    assert_untouched(&bench, task, &good).await;
    bench.back_up(task).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_only_takes_longer() {
    let (bench, proxy, _) = behind_proxy().await;
    std::fs::write(bench.source().join("large"), holdfast_testkit::random(6, 150_000)).unwrap();
    proxy.throttle(40_000);
    let task = bench.task(json!({})).await;
    let backup = bench.back_up(task).await;
    proxy.heal();
    let target = bench.restore_all(&backup).await;
    assert_eq!(std::fs::read(target.join("large")).unwrap(), holdfast_testkit::random(6, 150_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_output_and_the_exit_status_of_tar_decide_about_a_backup() {
    let shims = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().with_path_shims(shims.path()).start();
    let bench = Bench::with(sqlite(impatient()).await, ssh).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
    let good = bench.back_up(task).await;
    let cases = [
        ("/usr/bin/tar \"$@\"; kill -9 $$", "remote_failed"),
        ("/usr/bin/tar \"$@\"; echo 'tar: ./secret: Cannot open: Permission denied' >&2; exit 2", "source_unreadable"),
        ("case $1 in --version) exec /usr/bin/tar --version;; esac; /usr/bin/tar \"$@\" | head -c 700", "incomplete"),
        ("case $1 in --version) exec /usr/bin/tar --version;; esac; exit 0", "incomplete"),
        ("case $1 in --version) exec /usr/bin/tar --version;; esac; echo rubbish; exit 0", "incomplete"),
        ("case $1 in --version) exec /usr/bin/tar --version;; esac; exec sleep 600", "stalled"),
    ];
    for (script, code) in cases {
        shim(&shims, script);
        let log = bench.run(task).await;
        assert_failed(&log, code);
        if code == "source_unreadable" {
            assert!(log["output"].as_str().unwrap().contains("./secret"), "the file is named");
        }
        std::fs::remove_file(shims.path().join("tar")).unwrap();
        assert_untouched(&bench, task, &good).await;
    }
    // Files that changed while being read are reported, and the backup counts.
    shim(
        &shims,
        "case $1 in --version) exec /usr/bin/tar --version;; esac; /usr/bin/tar \"$@\"; echo 'tar: ./log: file changed as we read it' >&2; exit 1",
    );
    bench.back_up(task).await;
    let log = bench.latest_log(task).await;
    assert_eq!(log["warnings"], 1);
    assert!(log["output"].as_str().unwrap().contains("./log: file changed as we read it"));
    assert_failed(&bench.run(bench.task(json!({"source_path": "/no/such/folder"})).await).await, "source_missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_ends_the_remote_process_and_leaves_nothing() {
    let shims = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().with_path_shims(shims.path()).start();
    let bench = Bench::with(sqlite(Settings::default()).await, ssh).await;
    let pid_file = shims.path().join("pid");
    // A practically endless file: only cancelling ends the run.
    std::fs::File::create(shims.path().join("big")).unwrap().set_len(1 << 42).unwrap();
    let folder = shims.path().display();
    let send = format!("echo $$ > {folder}/pid; exec /usr/bin/tar --create --file=- --directory={folder} ./big");
    shim(&shims, &format!("case $1 in --version) exec /usr/bin/tar --version;; esac; {send}"));
    let task = bench.task(json!({})).await;
    bench.user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
    let worker = bench.app.worker();
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let working = tokio::spawn(async move { worker.run(stopped).await });
    let log =
        wait_for(async || Some(bench.latest_log(task).await).filter(|log| log["progress"]["bytes"].as_i64() > Some(0)))
            .await;
    assert_eq!(log["status"], "running");
    assert!(log["progress"]["bytes_per_second"].is_i64());
    let pid = std::fs::read_to_string(&pid_file).unwrap().trim().to_owned();
    bench.user.client.act(&format!("/api/backup-tasks/{task}/cancel")).await.expect(200);
    let log = wait_for(async || Some(bench.latest_log(task).await).filter(|log| log["finished_at"].is_string())).await;
    assert_eq!(log["status"], "cancelled");
    wait_for(async || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())).await;
    wait_for(async || bench.stored_names().is_empty().then_some(())).await;
    stop.cancel();
    working.await.unwrap();
}

/// Creates sparse files whose names exceed all buffers between the service and a process that does not read.
fn long_names(folder: &std::path::Path) {
    let deep = (0..12).fold(folder.to_owned(), |path, _| path.join("n".repeat(240)));
    std::fs::create_dir_all(&deep).unwrap();
    for number in 0..1500 {
        std::fs::File::create(deep.join(number.to_string())).unwrap().set_len(8192).unwrap();
    }
}

/// A server whose `tar --files-from=-` and `xargs` never read the names that they are sent.
async fn with_deaf_tools(shims: &TempDir, settings: Settings) -> (Bench, i64, Value) {
    let ssh = SshServer::builder().with_path_shims(shims.path()).start();
    let bench = Bench::with(sqlite(settings).await, ssh).await;
    long_names(&bench.source());
    let task = bench.task(json!({})).await;
    let backup = bench.back_up(task).await;
    std::fs::create_dir(bench.target()).unwrap();
    std::fs::write(bench.target().join("there"), "").unwrap();
    // Only SIGKILL ends them.
    let started =
        |tool: &str| format!("trap '' TERM; : > {}/{tool}.started; exec sleep 100000", shims.path().display());
    let tar = started("tar");
    shim(shims, &format!("case \" $* \" in *\" --files-from=- \"*) {tar};; esac; exec /usr/bin/tar \"$@\""));
    let xargs = shims.path().join("xargs");
    std::fs::write(&xargs, format!("#!/bin/sh\n{}\n", started("xargs"))).unwrap();
    std::fs::set_permissions(&xargs, std::fs::Permissions::from_mode(0o755)).unwrap();
    (bench, task, backup)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_does_not_read_names_counts_as_stalled() {
    const LONGEST: Duration = Duration::from_secs(60);
    let shims = tempfile::tempdir().unwrap();
    let (bench, task, backup) = Box::pin(with_deaf_tools(&shims, impatient())).await;
    let log = tokio::time::timeout(LONGEST, bench.run(task)).await.expect("the backup ends");
    assert_failed(&log, "stalled");
    let restoring = bench.restore(&backup, json!({"path": bench.target()}));
    let run = tokio::time::timeout(LONGEST, restoring).await.expect("the restore ends");
    assert_failed(&run, "stalled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_can_be_cancelled_while_a_tool_does_not_read_names() {
    let shims = tempfile::tempdir().unwrap();
    let (bench, task, backup) = Box::pin(with_deaf_tools(&shims, Settings::default())).await;
    let (worker, stop) = (bench.app.worker(), tokio_util::sync::CancellationToken::new());
    let stopped = stop.clone();
    let working = tokio::spawn(async move { worker.run(stopped).await });
    bench.user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
    let backing_up =
        wait_for(async || Some(bench.latest_log(task).await).filter(|log| log["status"] == "running")).await;
    let body = json!({"remote_server_id": bench.server, "path": bench.target()});
    let restoring = bench.ask_restore(&backup, body).await.data(202);
    for (run, tool) in [(&backing_up, "tar"), (&restoring, "xargs")] {
        wait_for(async || (bench.show_run(run).await["status"] == "running").then_some(())).await;
        let started = shims.path().join(format!("{tool}.started"));
        wait_for(async || started.exists().then_some(())).await;
        assert_eq!(bench.show_run(run).await["status"], "running");
        bench.user.client.act(&format!("/api/runs/{}/cancel", run["id"])).await.expect(200);
        let run = wait_for(async || Some(bench.show_run(run).await).filter(|run| run["finished_at"].is_string())).await;
        assert_eq!(run["status"], "cancelled");
        assert!(!run["output"].as_str().unwrap().contains("may still be running"), "{}", run["output"]);
    }
    stop.cancel();
    working.await.unwrap();
}

pub async fn wait_for<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "it did not happen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_read_only_and_unmounted_disks_have_specific_error_codes() {
    let bench = Bench::new(sqlite(Settings::default()).await).await;
    let Some(disk) = SmallDisk::mount(&bench.stored_folder(), "6m") else {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    };
    std::fs::write(bench.source().join("file"), holdfast_testkit::random(1, 1_000_000)).unwrap();
    let task = bench.task(json!({"maximum_backups_to_keep": 1})).await;
    let good = bench.back_up(task).await;
    std::fs::write(bench.source().join("more"), holdfast_testkit::random(2, 9_000_000)).unwrap();
    assert_failed(&bench.run(task).await, "destination_full");
    assert_untouched(&bench, task, &good).await;
    disk.remount("ro");
    assert_failed(&bench.run(task).await, "destination_read_only");
    disk.remount("rw");
    assert_untouched(&bench, task, &good).await;
    drop(disk);
    assert_failed(&bench.run(task).await, "destination_unmounted");
    assert_eq!(bench.stored_names(), [""; 0], "nothing is written to an empty mount point");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_worker_leaves_nothing_behind() {
    let (bench, proxy, task) = behind_proxy().await;
    let good = bench.back_up(task).await;
    proxy.silence_after(7_500_000);
    bench.user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
    let worker = bench.app.worker();
    // A separate runtime: shutting it down stops everything at once, like the end of a process.
    let process = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    process.spawn(async move { worker.run_until_idle(&tokio_util::sync::CancellationToken::new()).await });
    wait_for(async || (bench.stored_names().len() == 2).then_some(())).await;
    process.shutdown_background();
    proxy.heal();
    bench.app.pass_secs(62).await;
    assert_failed(&bench.latest_log(task).await, "worker_lost");
    wait_for(async || {
        bench.app.clock.advance_secs(600);
        bench.app.run_until_idle().await;
        (bench.stored_names().len() == 1).then_some(())
    })
    .await;
    assert_untouched(&bench, task, &good).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hostile_server_sent_is_not_written_outside_of_the_target() {
    let shims = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().with_path_shims(shims.path()).start();
    let bench = Bench::with(sqlite(Settings::default()).await, ssh).await;
    std::fs::write(bench.source().join("file"), "evil").unwrap();
    std::os::unix::fs::symlink(bench.folder.path(), bench.source().join("way-out")).unwrap();
    let version = "case $1 in --version) exec /usr/bin/tar --version;; esac";
    let hostile = [
        "exec /usr/bin/tar -cPf - --transform='s,file,../evil,' ./file",
        "exec /usr/bin/tar -cPf - --transform='s,./file,/tmp/holdfast-evil,' ./file",
        "exec /usr/bin/tar -cPf - --transform='flags=r;s,./file,way-out/evil,' ./way-out ./file",
    ];
    for (number, script) in hostile.iter().enumerate() {
        shim(&shims, &format!("{version}; {script}"));
        let task = bench.task(json!({})).await;
        if number < 2 {
            // No tar that reads a folder writes such names, so the archive is not even stored.
            assert_failed(&bench.run(task).await, "incomplete");
            continue;
        }
        let backup = bench.back_up(task).await;
        std::fs::remove_file(shims.path().join("tar")).unwrap();
        let target = bench.folder.path().join("deep/target");
        let run = bench.restore(&backup, json!({"path": target, "overwrite": true})).await;
        assert_failed(&run, "hostile_archive");
        for evil in
            [bench.folder.path().join("evil"), bench.folder.path().join("deep/evil"), "/tmp/holdfast-evil".into()]
        {
            assert!(!evil.exists(), "{script}");
        }
    }
}
