use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use holdfast_testkit::{
    Fingerprint, Ignore, SampleTree, SshServer, TestApp, assert_same, assert_same_but, on_both_engines,
};
use serde_json::json;

use crate::bench::{Bench, assert_failed};

on_both_engines! {
    async fn an_awkward_tree_comes_back_as_it_was(app: TestApp) {
        let bench = Bench::new(app).await;
        SampleTree::create(&bench.source());
        let task = bench.task(json!({"store_path": "/nightly", "appended_filename": "web"})).await;
        let backup = bench.back_up(task).await;
        let key = backup["key"].as_str().unwrap();
        assert!(key.starts_with("nightly/web_web-files_20250303T"), "{key}");
        assert!(key.ends_with(".tar.zst"));
        assert_eq!(backup["verification"]["status"], "unverified");
        let file = bench.stored_file(&backup);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let target = bench.restore_all(&backup).await;
        assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target));
    }

    async fn an_encrypted_backup_is_restored_and_reveals_nothing(app: TestApp) {
        let bench = Bench::new(app).await;
        SampleTree::create(&bench.source());
        std::fs::write(bench.source().join("plain.txt"), "a line that must not be readable ".repeat(100)).unwrap();
        let task = bench.task(json!({"encryption_password": "correct horse battery"})).await;
        let backup = bench.back_up(task).await;
        assert!(backup["key"].as_str().unwrap().ends_with(".tar.zst.age"));
        assert_eq!(backup["is_encrypted"], true);
        let stored = std::fs::read(bench.stored_file(&backup)).unwrap();
        assert!(stored.starts_with(b"age-encryption.org/v1\n-> scrypt "));
        // The password of the task may be changed or removed: the backup keeps its own.
        bench.user.client.put(&format!("/api/backup-tasks/{task}"), json!({"encryption_password": null})).await.expect(200);
        let target = bench.restore_all(&backup).await;
        assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target));
        assert_eq!(bench.verify(&backup).await["status"], "successful");
    }

    async fn excluded_paths_stay_out(app: TestApp) {
        let bench = Bench::new(app).await;
        let source = bench.source();
        for path in ["a.log", "sub/b.log", "sub/keep", "node_modules/x", "sub/node_modules/y", "sub/cache/z", "cache/w"] {
            std::fs::create_dir_all(source.join(path).parent().unwrap()).unwrap();
            std::fs::write(source.join(path), path).unwrap();
        }
        let absolute = source.join("sub/cache");
        let task = bench.task(json!({"excluded_paths": ["*.log", "node_modules", absolute]})).await;
        let target = bench.restore_all(&bench.back_up(task).await).await;
        let found: Vec<String> = Fingerprint::of(&target).0.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
        assert!(found.iter().any(|path| path.ends_with("sub/keep")) && found.iter().any(|path| path.ends_with("cache/w")));
        assert!(!found.iter().any(|path| path.contains("log") || path.contains("node_modules") || path.contains("sub/cache")), "{found:?}");
    }
}

/// The other tests need only one database, because only the server varies.
async fn bench(ssh: SshServer) -> Bench {
    Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_and_an_empty_folder_are_sources_too() {
    let bench = bench(SshServer::start()).await;
    let file = bench.source().join("$(id) ' \"");
    std::fs::write(&file, "content").unwrap();
    let backup = bench.back_up(bench.task(json!({"source_path": file})).await).await;
    assert_eq!(backup["entries"], 1);
    let target = bench.restore_all(&backup).await;
    assert_eq!(std::fs::read(target.join("$(id) ' \"")).unwrap(), b"content");
    let empty = bench.folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let backup = bench.back_up(bench.task(json!({"source_path": empty})).await).await;
    assert_eq!(backup["entries"], 1, "the folder itself");
}

/// Neither tar nor find nor the shell takes a name for an option, and nothing on the server is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_paths_that_look_like_options_are_paths() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("precious"), "content").unwrap();
    for name in ["-delete", "-", "--checkpoint-action=exec=touch precious"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
        std::fs::write(home.path().join(name).join("file"), name).unwrap();
    }
    let bench = bench(SshServer::builder().set_env("HOME", home.path().to_str().unwrap()).start()).await;
    let absolute = |name: &str| home.path().join(name);
    for name in ["-delete", "-", "--checkpoint-action=exec=touch precious"] {
        // A relative path may or may not exist; what matters is what is left afterwards.
        bench.run(bench.task(json!({"source_path": name})).await).await;
        let backup = bench.back_up(bench.task(json!({"source_path": absolute(name)})).await).await;
        let target = bench.folder.path().join(format!("back-{}", backup["id"]));
        let run = bench.restore(&backup, json!({"path": target})).await;
        assert_eq!(run["status"], "successful", "{run}");
        assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), name);
    }
    assert_eq!(std::fs::read(home.path().join("precious")).unwrap(), b"content");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 4, "nothing came, nothing went");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_that_may_only_use_sftp_are_backed_up_and_restored() {
    let bench = bench(SshServer::builder().sftp_only().start()).await;
    SampleTree::create(&bench.source());
    remove_what_sftp_cannot_tell(&bench.source());
    std::fs::write(bench.source().join("skip.log"), "x").unwrap();
    let task = bench.task(json!({"excluded_paths": ["*.log"]})).await;
    let backup = bench.back_up(task).await;
    std::fs::remove_file(bench.source().join("skip.log")).unwrap();
    let target = bench.restore_all(&backup).await;
    let ignore = Ignore { hard_links: true, nanoseconds: true, holes: true, folder_times: true, ..Ignore::default() };
    assert_same_but(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target), ignore);
}

/// Names are bytes: any name on a server, and everything below it, is restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_no_text_are_backed_up_and_restored_over_sftp() {
    use std::os::unix::ffi::OsStrExt as _;
    let bench = bench(SshServer::builder().sftp_only().start()).await;
    let name = |bytes: &[u8]| bench.source().join(std::ffi::OsStr::from_bytes(bytes));
    let long = [&b"long \xff\n"[..], &[0xe9; 248]].concat();
    let longer = [&long[..], b"/", &long, b"/", &long].concat();
    std::fs::create_dir_all(name(&longer).parent().unwrap()).unwrap();
    std::fs::create_dir(name(b"caf\xe9 folder")).unwrap();
    for path in [&b"caf\xe9"[..], b"caf\xe9 folder/plain", b"caf\xe9 folder/\x80\x81", b"a\nb", b"a\n\xff\nb", &longer]
    {
        std::fs::write(name(path), path).unwrap();
    }
    std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(b"caf\xe9 folder/\x80\x81"), name(b"link \xfe")).unwrap();
    std::fs::write(name(b"left out \xff.log"), "x").unwrap();
    let task = bench.task(json!({"excluded_paths": ["*.log"]})).await;
    let log = bench.run(task).await;
    assert_eq!(log["status"], "successful", "{log}");
    // The warning about what SFTP cannot read.
    assert_eq!(log["output"].as_str().unwrap().matches("Warning").count(), 1, "{log}");
    std::fs::remove_file(name(b"left out \xff.log")).unwrap();
    let target = bench.restore_all(&bench.backups(task).await[0]).await;
    let ignore = Ignore { nanoseconds: true, folder_times: true, ..Ignore::default() };
    assert_same_but(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target), ignore);
}

/// A symbolic link in place of a folder stays, and nothing is written to its target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_over_sftp_writes_nothing_through_a_link() {
    let bench = bench(SshServer::builder().sftp_only().start()).await;
    for path in ["folder/inner/file", "folder/file", "other"] {
        std::fs::create_dir_all(bench.source().join(path).parent().unwrap()).unwrap();
        std::fs::write(bench.source().join(path), path).unwrap();
    }
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let (target, outside) = (bench.target(), bench.folder.path().join("outside"));
    std::fs::create_dir(&target).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, target.join("folder")).unwrap();
    for overwrite in [false, true] {
        let run = bench.restore(&backup, json!({"path": target, "overwrite": overwrite})).await;
        assert_eq!(run["status"], "successful", "{run}");
        assert!(run["output"].as_str().unwrap().contains("folder/inner/file: skipped"), "what stayed is told: {run}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        assert!(std::fs::symlink_metadata(target.join("folder")).unwrap().is_symlink());
        assert_eq!(std::fs::read(target.join("other")).unwrap(), b"other");
    }
}

/// Removes pipes, sockets, and files with times that SFTP cannot represent.
fn remove_what_sftp_cannot_tell(folder: &Path) {
    use std::os::unix::fs::FileTypeExt as _;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let is_odd_time = !(0..=i64::from(u32::MAX)).contains(&std::os::unix::fs::MetadataExt::mtime(&meta));
        if kind.is_fifo() || kind.is_socket() || (is_odd_time && !kind.is_dir()) {
            std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path)).unwrap();
        } else if kind.is_dir() {
            remove_what_sftp_cannot_tell(&path);
        }
    }
}

/// A server with this script as `tar`.
fn with_tar(folder: &Path, script: &str) -> SshServer {
    let path = folder.join("tar");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    SshServer::builder().with_path_shims(folder).start()
}

const BUSYBOX: &str = r#"[ "$1" != --version ] || exec echo "tar (busybox) 1.35.0"; exec busybox tar "$@""#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busybox_tar_is_enough() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(with_tar(shims.path(), BUSYBOX)).await;
    SampleTree::create(&bench.source());
    remove_what_sftp_cannot_tell(&bench.source());
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.restore_all(&backup).await;
    let ignore = Ignore {
        nanoseconds: true,
        holes: true,
        link_times: true,
        owners: true,
        folder_times: true,
        ..Ignore::default()
    };
    assert_same_but(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target), ignore);
}

/// BusyBox tar backs them up, but SFTP cannot create them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_and_devices_are_not_counted_as_restored_over_sftp() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(with_tar(shims.path(), BUSYBOX)).await;
    std::fs::write(bench.source().join("a"), "text").unwrap();
    let make = |name: &str, kind: &[&str]| {
        std::process::Command::new("mknod").arg(bench.source().join(name)).args(kind).status().unwrap().success()
    };
    assert!(make("pipe", &["p"]));
    let skipped = if make("device", &["c", "1", "3"]) { 2 } else { 1 };
    let backup = bench.back_up(bench.task(json!({})).await).await;
    for target in ["new", "there"] {
        let target = bench.folder.path().join(target);
        let written = if target.ends_with("new") { 2 } else { 1 };
        if written == 1 {
            std::fs::create_dir(&target).unwrap();
            std::fs::write(target.join("other"), "").unwrap();
        }
        let options = json!({"path": target, "restore_devices": true, "dry_run": true});
        let run = bench.restore(&backup, options).await;
        let said = run["output"].as_str().unwrap();
        let told = format!("{written} entries would be written, 0 kept as they are, {skipped} skipped");
        assert!(said.contains(&told), "{said}");
        let run = bench.restore(&backup, json!({"path": target, "restore_devices": true})).await;
        let said = run["output"].as_str().unwrap();
        assert!(said.contains(&format!("Restored {written} entries")), "{said}");
        assert!(said.contains(&format!("0 existed and were kept, {skipped} were skipped")), "{said}");
        assert!(said.contains("pipe: skipped: pipes and devices cannot be restored in this way"), "{said}");
        assert_eq!(std::fs::read(target.join("a")).unwrap(), b"text");
        assert!(!target.join("pipe").exists() && !target.join("device").exists());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sftp_is_used_when_tar_does_not_support_excludes() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(with_tar(shims.path(), BUSYBOX)).await;
    for name in ["keep", "skip.log"] {
        std::fs::write(bench.source().join(name), name).unwrap();
    }
    let backup = bench.back_up(bench.task(json!({"excluded_paths": ["*.log"]})).await).await;
    let target = bench.restore_all(&backup).await;
    assert_eq!(std::fs::read(target.join("keep")).unwrap(), b"keep");
    assert!(!target.join("skip.log").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_and_times_that_busybox_cannot_write_are_named() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(with_tar(shims.path(), BUSYBOX)).await;
    for name in ["plain", "owned", "old"] {
        std::fs::write(bench.source().join(name), name).unwrap();
    }
    if std::os::unix::fs::chown(bench.source().join("owned"), Some(4_000_000_000), None).is_err() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    // Folders and links have owners, too.
    std::fs::create_dir(bench.source().join("folder")).unwrap();
    std::os::unix::fs::symlink("plain", bench.source().join("link")).unwrap();
    std::os::unix::fs::chown(bench.source().join("folder"), None, Some(1_000_680_000)).unwrap();
    std::os::unix::fs::lchown(bench.source().join("link"), Some(1_000_680_000), None).unwrap();
    let before = std::time::UNIX_EPOCH - std::time::Duration::from_secs(1000);
    let old = std::fs::File::options().write(true).open(bench.source().join("old")).unwrap();
    old.set_modified(before).unwrap();
    let log = bench.run(bench.task(json!({})).await).await;
    assert_eq!(log["status"], "successful", "{log}");
    for what in ["owners: 3 entries have different ones in this backup, ./", "times before 1970: 1 entries"] {
        assert!(log["output"].as_str().unwrap().contains(what), "{what}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tar_of_bsd_is_enough() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(with_tar(shims.path(), r#"exec bsdtar "$@""#)).await;
    SampleTree::create(&bench.source());
    std::fs::write(bench.source().join("skip.log"), "x").unwrap();
    let task = bench.task(json!({"excluded_paths": ["*.log"]})).await;
    let backup = bench.back_up(task).await;
    let log = bench.latest_log(task).await;
    assert_eq!(log["warnings"], 0, "nothing changed meanwhile: {}", log["output"]);
    let target = bench.restore_all(&backup).await;
    let (mut expected, mut found) = (Fingerprint::of(&bench.source()), Fingerprint::of(&target));
    assert!(expected.0.remove(&b"skip.log"[..]).is_some());
    // bsdtar does not set the time of the folder that it extracts into.
    assert!(expected.0.remove(&b""[..]).is_some() && found.0.remove(&b""[..]).is_some());
    assert_same_but(&expected, &found, Ignore { holes: true, ..Ignore::default() });
}

/// A tar that pauses in the middle of a file while a command changes it.
fn interrupted(program: &str, version: &str, happens: &str) -> String {
    format!(
        "case \"$1\" in --version) exec echo '{version}' ;; -c) ;; *) exec {program} \"$@\" ;; esac\n\
         out=$(mktemp); {{ {program} \"$@\"; echo $? >\"$out\"; }} | {{ head -c 2000000; {happens}; cat; }}\n\
         status=$(cat \"$out\"); rm \"$out\"; exit $status"
    )
}

/// bsdtar pads the file with zeros without a warning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_shrinks_while_bsdtar_reads_it_is_named() {
    let shims = tempfile::tempdir().unwrap();
    let script = interrupted("bsdtar", "bsdtar 3.6.2", "[ ! -e shrink ] || truncate -s 5000000 'big one'");
    let bench = bench(with_tar(shims.path(), &script)).await;
    let content = holdfast_testkit::random(1, 20_000_000);
    for (name, content) in [("big one", &content[..]), ("other\nname", b"x\0\0"), ("zz", b"last")] {
        std::fs::write(bench.source().join(name), content).unwrap();
    }
    let task = bench.task(json!({})).await;
    let log = bench.run(task).await;
    assert_eq!((&log["status"], &log["warnings"]), (&json!("successful"), &json!(0)), "{}", log["output"]);
    std::fs::write(bench.source().join("shrink"), "").unwrap();
    let backup = bench.back_up(task).await;
    let log = bench.latest_log(task).await;
    let said = log["output"].as_str().unwrap();
    assert!(said.contains("Warning: ./big one: File shrank as we read it"), "{said}");
    assert_eq!(log["warnings"], 1, "{said}");
    // The reason for the warning: the rest of the file is lost.
    let target = bench.restore_all(&backup).await;
    let stored = std::fs::read(target.join("big one")).unwrap();
    assert!(stored.len() == content.len() && stored[..5_000_000] == content[..5_000_000]);
    assert!(stored[5_000_000..].iter().all(|byte| *byte == 0));
    assert_eq!(std::fs::read(target.join("other\nname")).unwrap(), b"x\0\0");
}

/// BusyBox stops at a file that becomes shorter, and does not notice other changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changes_while_busybox_reads_it_is_named() {
    let shims = tempfile::tempdir().unwrap();
    let script = interrupted("busybox tar", "tar (busybox) 1.35.0", "sh ./happens");
    let bench = bench(with_tar(shims.path(), &script)).await;
    std::fs::write(bench.source().join("big"), holdfast_testkit::random(1, 20_000_000)).unwrap();
    let task = bench.task(json!({})).await;
    std::fs::write(bench.source().join("happens"), "echo more >>big").unwrap();
    let log = bench.run(task).await;
    let said = log["output"].as_str().unwrap();
    assert_eq!(log["status"], "successful", "{said}");
    assert!(said.contains("Warning: ./big: file changed as we read it"), "{said}");
    let stored = bench.stored_names();
    std::fs::write(bench.source().join("happens"), "truncate -s 5000000 big").unwrap();
    assert_failed(&bench.run(task).await, "remote_failed");
    assert_eq!(bench.stored_names(), stored);
}

/// Its patterns match at any level and its stars match slashes; neither may exclude too much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bsdtar_excludes_no_more_than_intended() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(with_tar(shims.path(), r#"exec bsdtar "$@""#)).await;
    let files = [
        "cache/1",
        "sub/cache/2",
        "logs/y.gz",
        "logs/keep/z.gz",
        "sub/logs/x.gz",
        "a.tmp",
        "sub/b.tmp",
        "price",
        "price$",
        "^keep",
        "keep",
        "p/q/1",
        "p/q$/2",
    ];
    for path in files {
        std::fs::create_dir_all(bench.source().join(path).parent().unwrap()).unwrap();
        std::fs::write(bench.source().join(path), path).unwrap();
    }
    let logs = bench.source().join("logs/*.gz");
    for (excluded, gone) in [
        (json!(["./cache", "*.tmp"]), &[0, 5, 6][..]),
        (json!(["./cache", logs]), &[0, 2][..]),
        (json!(["price$", "^keep", "p/q$"]), &[8, 9, 12][..]),
        (json!(["*$", ".//cache/./1"]), &[0, 8, 12][..]),
        (json!(["^*"]), &[9][..]),
    ] {
        let backup = bench.back_up(bench.task(json!({"excluded_paths": excluded})).await).await;
        let target = bench.folder.path().join(format!("back-{}", backup["id"]));
        let run = bench.restore(&backup, json!({"path": target})).await;
        assert_eq!(run["status"], "successful", "{run}");
        for (number, path) in files.iter().enumerate() {
            assert_eq!(target.join(path).exists(), !gone.contains(&number), "{path} with {excluded}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_files_stay_unless_overwriting_is_asked_for() {
    let bench = bench(SshServer::start()).await;
    std::fs::write(bench.source().join("a"), "from the backup").unwrap();
    std::fs::write(bench.source().join("b"), "from the backup").unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.target();
    std::fs::create_dir(&target).unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o751)).unwrap();
    std::fs::write(target.join("a"), "was there").unwrap();
    let run = bench.restore(&backup, json!({"path": target})).await;
    assert_eq!(run["status"], "successful", "{run}");
    assert!(run["output"].as_str().unwrap().contains("a: exists already and was kept"), "what stayed is told: {run}");
    let read = |name: &str| std::fs::read_to_string(target.join(name)).unwrap();
    assert_eq!((read("a").as_str(), read("b").as_str()), ("was there", "from the backup"));
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o751, "the folder keeps its mode");
    let run = bench.restore(&backup, json!({"path": target, "overwrite": true})).await;
    assert_eq!(run["status"], "successful", "{run}");
    assert_eq!(read("a"), "from the backup");
    let run = bench.restore(&backup, json!({"path": target.join("a/below")})).await;
    assert_failed(&run, "target_unwritable");
}
