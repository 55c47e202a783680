use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::{Fingerprint, SshServer, TestApp, assert_same, on_both_engines};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed, assert_successful, output};

async fn bench(ssh: SshServer) -> Bench {
    Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await
}

/// Writes a program into a folder that comes first on the path.
fn shim(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn python(script: &str, arguments: &[&Path]) -> String {
    let output = Command::new("python3").arg("-c").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A library to preload that makes all files report no blocks, as on some file systems.
fn library_without_blocks(folder: &Path) -> PathBuf {
    const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#define WRAP(name, kind, arguments, call) \
  int name arguments { int (*real) arguments = dlsym(RTLD_NEXT, #name); int done = real call; \
    if (done == 0 && S_ISREG(buffer->st_mode)) buffer->st_blocks = 0; return done; }
#define ALL(suffix, kind) \
  WRAP(fstatat##suffix, kind, (int folder, const char *path, struct kind *buffer, int flags), (folder, path, buffer, flags)) \
  WRAP(fstat##suffix, kind, (int file, struct kind *buffer), (file, buffer)) \
  WRAP(lstat##suffix, kind, (const char *path, struct kind *buffer), (path, buffer)) \
  WRAP(stat##suffix, kind, (const char *path, struct kind *buffer), (path, buffer))
ALL(, stat)
ALL(64, stat64)
"#;
    let (source, library) = (folder.join("blocks.c"), folder.join("blocks.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_is_right_where_the_file_system_reports_no_blocks() {
    let shims = tempfile::tempdir().unwrap();
    let library = library_without_blocks(shims.path());
    shim(shims.path(), "tar", &format!("LD_PRELOAD={} exec /usr/bin/tar \"$@\"", library.display()));
    shim(
        shims.path(),
        "stat",
        r#"case "$*" in *file-system*) shift 3; for f do echo fuseblk; done ;; *) exec /usr/bin/stat "$@" ;; esac"#,
    );
    let bench = bench(SshServer::builder().with_path_shims(shims.path()).start()).await;
    let source = bench.source();
    std::fs::write(source.join("small"), "twelve bytes").unwrap();
    std::fs::write(source.join("large ü\nx"), vec![7; 300_000]).unwrap();
    std::fs::hard_link(source.join("small"), source.join("zz second name")).unwrap();
    std::fs::create_dir(source.join("sub")).unwrap();
    std::fs::write(source.join("sub/other"), "text").unwrap();
    std::fs::write(source.join("empty"), "").unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    assert_eq!(backup["entries"], 7);
    let target = bench.restore_all(&backup).await;
    assert_same(&Fingerprint::of(&source), &Fingerprint::of(&target));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_really_is_a_hole_stays_one() {
    let bench = bench(SshServer::start()).await;
    let hole = std::fs::File::create(bench.source().join("hole")).unwrap();
    hole.set_len(64 << 20).unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.restore_all(&backup).await;
    let meta = std::fs::metadata(target.join("hole")).unwrap();
    assert_eq!(meta.len(), 64 << 20);
    assert!(backup["size_bytes"].as_u64().unwrap() < 1 << 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_and_whiteouts_keep_nobody_from_restoring() {
    let bench = bench(SshServer::start()).await;
    std::fs::write(bench.source().join("a"), "text").unwrap();
    let made = Command::new("mknod").arg(bench.source().join("gone")).args(["c", "0", "0"]).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: only root can make device nodes");
        return;
    }
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let dry = bench.restore(&backup, json!({"path": bench.target(), "dry_run": true})).await;
    assert!(output(&dry).contains("2 entries would be written, 0 kept as they are, 1 skipped"), "{}", output(&dry));
    let run = bench.restore(&backup, json!({"path": bench.target()})).await;
    assert_successful(&run);
    assert!(output(&run).contains("Restored 2 entries"), "{}", output(&run));
    assert!(output(&run).contains("gone: skipped: device nodes"), "{}", output(&run));
    assert_eq!(std::fs::read(bench.target().join("a")).unwrap(), b"text");
    assert!(!bench.target().join("gone").exists());
    let everything = bench.folder.path().join("everything");
    let run = bench.restore(&backup, json!({"path": everything, "restore_devices": true})).await;
    assert_successful(&run);
    assert_eq!(std::fs::symlink_metadata(everything.join("gone")).unwrap().rdev(), 0);
    assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&everything));
    // With `extract`, too.
    let by_hand = bench.folder.path().join("by-hand");
    let (count, left) = holdfast_engine::extract(&bench.stored_file(&backup), None, &by_hand, &[]).unwrap();
    assert_eq!((count, left.len()), (2, 1), "the folder and the file");
}

const DIG: &str = r#"
import os, sys
os.chdir(sys.argv[1])
for level in range(25):
    os.mkdir('d' * 200); os.chdir('d' * 200)
open('bottom', 'w').write('far down')
"#;
const LOOK_DOWN: &str = r#"
import os, sys
os.chdir(sys.argv[1])
for level in range(25): os.chdir('d' * 200)
print(open('bottom').read(), end='')
"#;

/// Folders can be nested deeper than the longest possible path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_too_long_is_reported_and_does_not_prevent_the_restore() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(SshServer::builder().with_path_shims(shims.path()).start()).await;
    std::fs::write(bench.source().join("zz"), "text").unwrap();
    python(DIG, &[&bench.source()]);
    let task = bench.task(json!({})).await;
    let backup = bench.back_up(task).await;
    let log = bench.latest_log(task).await;
    assert!(output(&log).contains("ddd/bottom: a path of 5031 bytes"), "{}", output(&log));
    assert_eq!(log["warnings"], 6, "5 folders and a file: {}", output(&log));
    let dry = bench.restore(&backup, json!({"path": bench.target(), "dry_run": true})).await;
    assert!(output(&dry).contains("22 entries would be written, 0 kept as they are, 6 skipped"), "{}", output(&dry));
    let run = bench.restore(&backup, json!({"path": bench.target()})).await;
    assert_successful(&run);
    assert!(output(&run).contains("Restored 22 entries"), "{}", output(&run));
    assert!(output(&run).contains("0 existed and were kept, 6 were skipped"), "{}", output(&run));
    assert!(output(&run).contains("/bottom: skipped: its path"), "{}", output(&run));
    assert_eq!(std::fs::read(bench.target().join("zz")).unwrap(), b"text");
    // bsdtar supports such paths.
    shim(shims.path(), "tar", r#"exec bsdtar "$@""#);
    let whole = bench.folder.path().join("whole");
    let run = bench.restore(&backup, json!({"path": whole})).await;
    assert_successful(&run);
    assert!(output(&run).contains("Restored 28 entries"), "{}", output(&run));
    assert_eq!(python(LOOK_DOWN, &[&whole]), "far down");
}

const SET_ATTRIBUTES: &str = r#"
import os, struct, sys
path = sys.argv[1]
os.setxattr(path, 'user.note', b'line one\nline two\0\xff')
entries = [(1, 6, 0xffffffff), (2, 6, 1234), (4, 4, 0xffffffff), (16, 6, 0xffffffff), (32, 0, 0xffffffff)]
os.setxattr(path, 'system.posix_acl_access', struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in entries))
if os.geteuid() == 0:
    os.setxattr(path, 'security.capability', bytes.fromhex('0100000200040000000000000000000000000000'))
"#;
const GET_ATTRIBUTES: &str = r#"
import os, sys
for name in sorted(os.listxattr(sys.argv[1])): print(name, os.getxattr(sys.argv[1], name).hex())
print(oct(os.stat(sys.argv[1]).st_mode))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn access_control_lists_attributes_and_capabilities_come_back() {
    let bench = bench(SshServer::start()).await;
    let file = bench.source().join("program");
    std::fs::write(&file, "text").unwrap();
    python(SET_ATTRIBUTES, &[&file]);
    let expected = python(GET_ATTRIBUTES, &[&file]);
    assert!(expected.contains("posix_acl_access") && expected.contains("user.note"), "{expected}");
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.restore_all(&backup).await;
    assert_eq!(python(GET_ATTRIBUTES, &[&target.join("program")]), expected);
}

/// Whichever tar reads and whichever writes them: no name is lost or duplicated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_with_odd_names_come_back_once() {
    const SET_ODD: &str = r#"
import os, sys
for name, value in [('a=b', b'1\n='), ('plain', b'2'), ('p%3Dq', b'3'), ('ü x', b'4')]:
    os.setxattr(sys.argv[1], 'user.' + name, value)
"#;
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(SshServer::builder().with_path_shims(shims.path()).start()).await;
    let file = bench.source().join("file");
    std::fs::write(&file, "text").unwrap();
    python(SET_ODD, &[&file]);
    let expected = python(GET_ATTRIBUTES, &[&file]);
    assert_eq!(expected.matches("user.").count(), 4, "{expected}");
    let task = bench.task(json!({})).await;
    for reads in ["tar", "bsdtar"] {
        shim(shims.path(), "tar", &format!("exec /usr/bin/{reads} \"$@\""));
        let backup = bench.back_up(task).await;
        for writes in ["tar", "bsdtar"] {
            shim(shims.path(), "tar", &format!("exec /usr/bin/{writes} \"$@\""));
            let target = bench.folder.path().join(format!("{reads}-{writes}"));
            assert_successful(&bench.restore(&backup, json!({"path": target})).await);
            assert_eq!(python(GET_ATTRIBUTES, &[&target.join("file")]), expected, "{reads} to {writes}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_line_breaks_and_odd_bytes_come_back() {
    use std::os::unix::ffi::OsStrExt as _;
    let bench = bench(SshServer::start()).await;
    let deep = bench.source().join("d".repeat(100)).join(format!("{}\n{}", "e".repeat(90), "ü".repeat(40)));
    std::fs::create_dir_all(&deep).unwrap();
    let names: [&[u8]; 6] =
        ["ü\nx".as_bytes(), b"\xff\xfe", b"a\n12 path=evil\n", b"-rf", b"\\x41", "\u{1b}[31m\u{202e}".as_bytes()];
    for name in names {
        std::fs::write(deep.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
        symlink(std::ffi::OsStr::from_bytes(name), bench.source().join(std::ffi::OsStr::from_bytes(name))).unwrap();
    }
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.restore_all(&backup).await;
    assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target));
    // In a folder that is not empty, each of them is looked up.
    let run = bench.restore(&backup, json!({"path": target, "overwrite": true})).await;
    assert_successful(&run);
    let (mut expected, mut found) = (Fingerprint::of(&bench.source()), Fingerprint::of(&target));
    // An existing folder keeps its own mode, owner and time.
    assert!(expected.0.remove(&b""[..]).is_some() && found.0.remove(&b""[..]).is_some());
    assert_same(&expected, &found);
}

on_both_engines! {
    async fn what_login_scripts_print_is_in_no_backup(app: TestApp) {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(".bashrc"), "echo 'Welcome to prod!'; echo noise >&2; export TAR_OPTIONS=--exclude=a\n").unwrap();
        let noise = home.path().join("noise");
        std::fs::write(&noise, "echo from BASH_ENV; seq 1 5000\n").unwrap();
        let ssh = SshServer::builder().set_env("HOME", home.path().to_str().unwrap());
        let bench = Bench::with(app, ssh.set_env("BASH_ENV", noise.to_str().unwrap()).start()).await;
        std::fs::write(bench.source().join("a"), "text").unwrap();
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let target = bench.restore_all(&backup).await;
        assert_same(&Fingerprint::of(&bench.source()), &Fingerprint::of(&target));
        assert_eq!(bench.verify(&backup).await["status"], "successful");
    }

    async fn a_restore_that_finds_damage_marks_the_backup_and_changes_nothing(app: TestApp) {
        let bench = Bench::new(app).await;
        std::fs::write(bench.source().join("a"), holdfast_testkit::random(1, 3_000_000)).unwrap();
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let file = bench.stored_file(&backup);
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        std::fs::create_dir(bench.target()).unwrap();
        std::fs::write(bench.target().join("a"), "precious").unwrap();
        let run = bench.restore(&backup, json!({"path": bench.target(), "overwrite": true})).await;
        assert_failed(&run, "corrupt");
        assert_eq!(std::fs::read(bench.target().join("a")).unwrap(), b"precious");
        assert_eq!(bench.show(&backup).await["verification"]["status"], "corrupt");
    }

    /// The object has been replaced by one with the same number of entries and the same size.
    async fn nothing_forged_is_added_to_a_folder_in_use(app: TestApp) {
        let bench = Bench::new(app).await;
        let task = bench.task(json!({})).await;
        std::fs::write(bench.source().join("evil"), "forged").unwrap();
        let forged = std::fs::read(bench.stored_file(&bench.back_up(task).await)).unwrap();
        std::fs::remove_file(bench.source().join("evil")).unwrap();
        std::fs::write(bench.source().join("good"), holdfast_testkit::random(1, 10_000)).unwrap();
        let backup = bench.back_up(task).await;
        let file = bench.stored_file(&backup);
        let padding = std::fs::metadata(&file).unwrap().len() - forged.len() as u64;
        // A frame that decompressors skip, in front: the index is at the end.
        let padding = u32::try_from(padding - 8).unwrap();
        let frame = [&0x184D_2A50_u32.to_le_bytes()[..], &padding.to_le_bytes(), &vec![0; padding as usize]].concat();
        std::fs::write(&file, [frame, forged].concat()).unwrap();
        std::fs::create_dir(bench.target()).unwrap();
        std::fs::write(bench.target().join("own"), "precious").unwrap();
        let run = bench.restore(&backup, json!({"path": bench.target()})).await;
        assert_failed(&run, "corrupt");
        let names: Vec<_> = std::fs::read_dir(bench.target()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["own"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_object_in_place_of_an_encrypted_one_is_damage() {
    let bench = bench(SshServer::start()).await;
    std::fs::write(bench.source().join("a"), "text").unwrap();
    let sealed = bench.back_up(bench.task(json!({"encryption_password": "correct horse"})).await).await;
    let plain = bench.back_up(bench.task(json!({})).await).await;
    let file = bench.stored_file(&sealed);
    std::fs::copy(bench.stored_file(&plain), &file).unwrap();
    let error =
        holdfast_engine::extract(&file, Some(&holdfast_core::Secret::new("wrong")), &bench.target(), &[]).unwrap_err();
    assert_eq!(error.code.as_str(), "corrupt");
    assert!(!bench.target().join("a").exists());
    let run = bench.restore(&sealed, json!({"path": bench.target()})).await;
    assert_failed(&run, "corrupt");
    assert!(!bench.target().join("a").exists());
    let entries = format!("/api/backups/{}/entries", sealed["id"]);
    assert_ne!(bench.user.client.get(&entries).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_chosen_changes() {
    let bench = bench(SshServer::start()).await;
    let source = bench.source();
    std::fs::create_dir(source.join("sub")).unwrap();
    std::fs::write(source.join("sub/first"), "from the backup").unwrap();
    std::fs::hard_link(source.join("sub/first"), source.join("sub/second")).unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.target();
    std::fs::create_dir_all(target.join("sub")).unwrap();
    std::fs::set_permissions(target.join("sub"), std::fs::Permissions::from_mode(0o711)).unwrap();
    std::fs::write(target.join("sub/first"), "of today").unwrap();
    let run = bench.restore(&backup, json!({"path": target, "entries": ["sub/second"], "overwrite": true})).await;
    assert_successful(&run);
    assert_eq!(std::fs::read_to_string(target.join("sub/first")).unwrap(), "of today");
    assert_eq!(std::fs::read_to_string(target.join("sub/second")).unwrap(), "from the backup");
    assert_eq!(std::fs::metadata(target.join("sub")).unwrap().permissions().mode() & 0o777, 0o711);
    assert!(output(&run).contains("Restored 1 entries"), "{}", output(&run));
    let by_hand = bench.folder.path().join("by-hand");
    let only = ["sub/second".to_owned()];
    let (count, _) = holdfast_engine::extract(&bench.stored_file(&backup), None, &by_hand, &only).unwrap();
    assert_eq!(count, 2, "the file and the folder on the way");
    assert_eq!(std::fs::read_to_string(by_hand.join("sub/second")).unwrap(), "from the backup");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaves_the_target_through_links_that_are_in_it() {
    let bench = bench(SshServer::start()).await;
    let outside = bench.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "precious").unwrap();
    // The first backup contains a link, the second a file below that path.
    symlink(&outside, bench.source().join("conf")).unwrap();
    let first = bench.back_up(bench.task(json!({})).await).await;
    std::fs::remove_file(bench.source().join("conf")).unwrap();
    std::fs::create_dir(bench.source().join("conf")).unwrap();
    std::fs::write(bench.source().join("conf/precious"), "from the backup").unwrap();
    std::fs::write(bench.source().join("conf/new"), "from the backup").unwrap();
    std::fs::write(bench.source().join("z"), "from the backup").unwrap();
    let second = bench.back_up(bench.task(json!({})).await).await;
    for (number, overwrite) in [false, true].into_iter().enumerate() {
        let target = bench.folder.path().join(format!("target-{number}"));
        assert_successful(&bench.restore(&first, json!({"path": target})).await);
        let run = bench.restore(&second, json!({"path": target, "overwrite": overwrite})).await;
        assert_successful(&run);
        assert!(output(&run).contains("conf/new: skipped"), "{}", output(&run));
        assert_eq!(std::fs::read_to_string(target.join("z")).unwrap(), "from the backup");
        assert!(target.join("conf").is_symlink());
        assert_eq!(std::fs::read_to_string(outside.join("precious")).unwrap(), "precious");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_cannot_be_listed_is_not_empty() {
    let shims = tempfile::tempdir().unwrap();
    // Root may list everything, so `ls` is replaced by a program that fails.
    shim(shims.path(), "ls", "echo 'ls: cannot open directory: Permission denied' >&2; exit 2");
    let bench = bench(SshServer::builder().with_path_shims(shims.path()).start()).await;
    std::fs::write(bench.source().join("a"), "from the backup").unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    std::fs::create_dir(bench.target()).unwrap();
    std::fs::write(bench.target().join("a"), "precious").unwrap();
    assert_successful(&bench.restore(&backup, json!({"path": bench.target()})).await);
    assert_eq!(std::fs::read(bench.target().join("a")).unwrap(), b"precious");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_whose_first_name_begins_with_a_line_break_is_not_empty() {
    for server in [SshServer::start(), SshServer::builder().sftp_only().start()] {
        let bench = bench(server).await;
        std::fs::write(bench.source().join("keep"), "from the backup").unwrap();
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let target = bench.target();
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("\nz"), "").unwrap();
        std::fs::write(target.join("keep"), "mine").unwrap();
        let run = bench.restore(&backup, json!({"path": target})).await;
        assert_successful(&run);
        assert_eq!(std::fs::read(target.join("keep")).unwrap(), b"mine");
        assert!(output(&run).contains("1 existed and were kept"), "{}", output(&run));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_target_that_was_there_keeps_its_mode() {
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for server in [SshServer::start(), SshServer::builder().sftp_only().start()] {
        let bench = bench(server).await;
        std::fs::write(bench.source().join("one"), "x").unwrap();
        std::fs::set_permissions(bench.source(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let target = bench.target();
        for (body, expected) in [
            (json!({"entries": ["one"], "overwrite": true}), 0o700),
            (json!({}), 0o700),
            (json!({"overwrite": true}), 0o777),
        ] {
            std::fs::create_dir(&target).unwrap();
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o700)).unwrap();
            let mut body = body;
            body["path"] = json!(target);
            let run = bench.restore(&backup, body).await;
            assert_successful(&run);
            assert_eq!((std::fs::read(target.join("one")).unwrap(), mode(&target)), (b"x".to_vec(), expected));
            std::fs::remove_dir_all(&target).unwrap();
        }
        assert_successful(&bench.restore(&backup, json!({"path": target})).await);
        assert_eq!(mode(&target), 0o777, "it was made for this restore");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_true_and_a_dry_run_reports_the_same() {
    let bench = bench(SshServer::start()).await;
    for number in 0..300 {
        std::fs::write(bench.source().join(format!("{number:03}")), "x").unwrap();
    }
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.target();
    let dry = bench.restore(&backup, json!({"path": target.join("deep/er"), "dry_run": true})).await;
    assert_successful(&dry);
    assert!(output(&dry).contains("301 entries would be written"), "{}", output(&dry));
    assert!(!target.exists(), "a dry run makes nothing");
    std::fs::create_dir(&target).unwrap();
    for number in 0..299 {
        std::fs::write(target.join(format!("{number:03}")), "was there").unwrap();
    }
    let dry = bench.restore(&backup, json!({"path": target, "dry_run": true})).await;
    assert!(output(&dry).contains("1 entries would be written, 299 kept as they are, 0 skipped"), "{}", output(&dry));
    assert!(output(&dry).contains("299: would be written"), "{}", output(&dry));
    assert!(!target.join("299").exists());
    let run = bench.restore(&backup, json!({"path": target})).await;
    assert!(output(&run).contains("Restored 1 entries"), "{}", output(&run));
    assert!(output(&run).contains("299 existed and were kept, 0 were skipped"), "{}", output(&run));
    assert_eq!(std::fs::read(target.join("299")).unwrap(), b"x");
    assert_eq!(std::fs::read(target.join("000")).unwrap(), b"was there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_restored_by_name_by_number_or_not_at_all() {
    let bench = bench(SshServer::start()).await;
    let file = bench.source().join("a");
    std::fs::write(&file, "text").unwrap();
    // A user name that maps to a different id here than in the archive.
    if std::os::unix::fs::chown(&file, Some(4321), Some(4321)).is_err() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let owner = async |name: &str, options: Value| {
        let target = bench.folder.path().join(name);
        let mut body = json!({"path": target});
        body.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        assert_successful(&bench.restore(&backup, body).await);
        std::fs::metadata(target.join("a")).unwrap().uid()
    };
    assert_eq!(owner("numbers", json!({"numeric_owner": true})).await, 4321);
    assert_eq!(owner("nobody", json!({"no_owner": true})).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_a_link_to_a_file_stands_for_the_file() {
    let bench = bench(SshServer::start()).await;
    std::fs::write(bench.source().join("real"), "content").unwrap();
    symlink("real", bench.source().join("link")).unwrap();
    let task = bench.task(json!({"source_path": bench.source().join("link")})).await;
    let target = bench.restore_all(&bench.back_up(task).await).await;
    assert_eq!(std::fs::read(target.join("link")).unwrap(), b"content");
    assert!(!target.join("link").is_symlink());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_can_stay_on_one_file_system() {
    let bench = bench(SshServer::start()).await;
    std::fs::write(bench.source().join("a"), "text").unwrap();
    let mount = bench.source().join("is \\ mounted");
    let (kept, again) = (bench.source().join("kept"), bench.source().join("again"));
    for folder in [&mount, &kept, &again] {
        std::fs::create_dir(folder).unwrap();
    }
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&mount).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: only root can mount");
        return;
    }
    // A bind mount of the same file system does not count as another one.
    assert!(Command::new("mount").arg("--bind").args([&kept, &again]).status().unwrap().success());
    std::fs::write(mount.join("elsewhere"), "x").unwrap();
    let log = bench.run(bench.task(json!({"one_file_system": true})).await).await;
    let all = bench.run(bench.task(json!({})).await).await;
    for folder in [&mount, &again] {
        assert!(Command::new("umount").arg(folder).status().unwrap().success());
    }
    assert_successful(&log);
    assert!(output(&log).contains("/is \\ mounted is another file system and was left out"), "{}", output(&log));
    assert_eq!(output(&log).matches("another file system").count(), 1, "{}", output(&log));
    assert_eq!(
        (log["files"].as_i64(), all["files"].as_i64()),
        (Some(5), Some(6)),
        "with the folder, without what is in it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_named_like_a_pattern_can_be_excluded() {
    let bench = bench(SshServer::start()).await;
    for name in ["[cache]", "c", "keep"] {
        std::fs::create_dir(bench.source().join(name)).unwrap();
        std::fs::write(bench.source().join(name).join("file"), "x").unwrap();
    }
    let target =
        bench.restore_all(&bench.back_up(bench.task(json!({"excluded_paths": ["[cache]"]})).await).await).await;
    assert!(target.join("keep/file").exists() && !target.join("[cache]").exists() && !target.join("c").exists());
}

/// A server whose tar writes hostile archives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_that_could_be_read_in_two_ways_are_never_stored() {
    let shims = tempfile::tempdir().unwrap();
    let hostile = shims.path().join("hostile.tar");
    let script = format!(
        "case \"$1\" in --version) echo 'tar (GNU tar) 1.34' ;; --help) exec /usr/bin/tar --help ;; *) cat {} ;; esac",
        hostile.display()
    );
    shim(shims.path(), "tar", &script);
    let bench = bench(SshServer::builder().with_path_shims(shims.path()).start()).await;
    const WRITE: &str = r#"
import io, sys, tarfile
t = tarfile.open(sys.argv[1], 'w', format=tarfile.PAX_FORMAT)
def record(key, value):
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest + len(str(rest))))
    return f'{length} {key}={value}\n'.encode()
body = record('path', 'notes.txt') + record('path', '.ssh/authorized_keys')
header = tarfile.TarInfo('x'); header.type = b'x'; header.size = len(body)
t.fileobj.write(header.tobuf(tarfile.USTAR_FORMAT) + body.ljust(512, b'\0'))
t.addfile(tarfile.TarInfo('notes.txt'), io.BytesIO(b''))
t.close()
"#;
    python(WRITE, &[&hostile]);
    let log = bench.run(bench.task(json!({})).await).await;
    assert_failed(&log, "incomplete");
    assert!(output(&log).contains("repeats path"), "{}", output(&log));
    assert_eq!(bench.stored_names(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_at_a_restore_has_its_own_class_and_says_what_was_written() {
    for server in [SshServer::start(), SshServer::builder().sftp_only().start()] {
        let bench = bench(server).await;
        for number in 0..8 {
            std::fs::write(bench.source().join(format!("{number}")), holdfast_testkit::random(number, 400_000))
                .unwrap();
        }
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let target = bench.target();
        std::fs::create_dir(&target).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&target).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped: only root can mount");
            return;
        }
        let run = bench.restore(&backup, json!({"path": target})).await;
        let grown = Command::new("mount").args(["-o", "remount,size=20m"]).arg(&target).status();
        // The files of the first restore may be incomplete, and would be kept.
        let kept = bench.restore(&backup, json!({"path": target})).await;
        let whole = bench.restore(&backup, json!({"path": target, "overwrite": true})).await;
        let is_same = |number: u64| {
            std::fs::read(target.join(format!("{number}"))).unwrap() == holdfast_testkit::random(number, 400_000)
        };
        let same = (0..8).filter(|number| is_same(*number)).count();
        let again = bench.restore(&backup, json!({"path": target})).await;
        assert!(Command::new("umount").arg(&target).status().unwrap().success());
        assert!(grown.unwrap().success());
        assert_failed(&run, "target_full");
        assert!(output(&run).contains("were written to"), "{}", output(&run));
        assert_failed(&kept, "target_not_empty");
        assert!(output(&kept).contains("was interrupted, so files may be incomplete"), "{}", output(&kept));
        assert_successful(&whole);
        assert_eq!(same, 8);
        assert_successful(&again);
    }
}

/// A server with a shell, but without tar, is written to over SFTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_folder_gets_the_mode_of_the_source_without_tar_too() {
    let tools = tempfile::tempdir().unwrap();
    for folder in ["/usr/bin", "/bin"] {
        for tool in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let link = tools.path().join(tool.file_name());
            if tool.file_name() != "tar" && tool.file_name() != "bsdtar" && !link.exists() {
                let _exists = symlink(tool.path(), link);
            }
        }
    }
    let server = SshServer::builder().set_env("PATH", tools.path().to_str().unwrap()).start();
    let bench = bench(server).await;
    std::fs::write(bench.source().join("file"), "content").unwrap();
    std::fs::set_permissions(bench.source(), std::fs::Permissions::from_mode(0o2750)).unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let dry = bench.restore(&backup, json!({"path": bench.target(), "dry_run": true})).await;
    let run = bench.restore(&backup, json!({"path": bench.target()})).await;
    assert_successful(&run);
    assert!(output(&run).contains("writing over SFTP"), "{}", output(&run));
    assert!(output(&dry).contains("2 entries") && output(&run).contains("2 entries"), "{}", output(&dry));
    assert_eq!(std::fs::metadata(bench.target()).unwrap().permissions().mode() & 0o7777, 0o2750);
    assert_eq!(std::fs::read_to_string(bench.target().join("file")).unwrap(), "content");
    let deep = bench.target().join("new/deep//er/");
    assert_successful(&bench.restore(&backup, json!({"path": deep})).await);
    assert_eq!(std::fs::read_to_string(deep.join("file")).unwrap(), "content");
    // A restore that could not create its folder has written nothing.
    std::fs::write(bench.target().join("plain"), "").unwrap();
    let inside = json!({"path": bench.target().join("plain/x")});
    assert_failed(&bench.restore(&backup, inside).await, "target_unwritable");
    assert_successful(&bench.restore(&backup, json!({"path": bench.target()})).await);
}

/// tar itself would continue with the next file, and replace each existing file by an empty one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_over_what_is_there_needs_room_before_it_writes() {
    let bench = bench(SshServer::start()).await;
    let content = |number: u64, bytes: usize| holdfast_testkit::random(number, bytes);
    let fill = |folder: &Path, bytes: usize| {
        (0..100).for_each(|number| std::fs::write(folder.join(format!("{number}")), content(number, bytes)).unwrap());
    };
    fill(&bench.source(), 40_000);
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.target();
    std::fs::create_dir(&target).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=5m", "none"]).arg(&target).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: only root can mount");
        return;
    }
    // Other files take up the space.
    std::fs::write(target.join("other"), vec![1; 2_000_000]).unwrap();
    fill(&target, 10);
    let dry = bench.restore(&backup, json!({"path": target, "overwrite": true, "dry_run": true})).await;
    let run = bench.restore(&backup, json!({"path": target, "overwrite": true})).await;
    let old =
        (0..100).filter(|number| std::fs::read(target.join(format!("{number}"))).unwrap() == content(*number, 10));
    let old = old.count();
    // Files that stay free none: there is room for half of those that are missing.
    (50..100).for_each(|number| std::fs::remove_file(target.join(format!("{number}"))).unwrap());
    std::fs::write(target.join("other"), vec![1; 4_000_000]).unwrap();
    let beside = bench.restore(&backup, json!({"path": target})).await;
    let is_added = target.join("99").exists();
    // Files behind a link stay as well.
    let elsewhere = bench.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    fill(&elsewhere, 40_000);
    let linked = {
        let source = bench.source();
        let moved = source.join("moved");
        std::fs::create_dir(&moved).unwrap();
        fill(&moved, 40_000);
        let backup = bench.back_up(bench.task(json!({})).await).await;
        std::fs::remove_dir_all(&moved).unwrap();
        symlink(&elsewhere, target.join("moved")).unwrap();
        bench.restore(&backup, json!({"path": target, "overwrite": true})).await
    };
    std::fs::remove_file(target.join("moved")).unwrap();
    // Replaced files free space.
    std::fs::remove_file(target.join("other")).unwrap();
    fill(&target, 35_000);
    let again = bench.restore(&backup, json!({"path": target, "overwrite": true})).await;
    let new = std::fs::read(target.join("99")).unwrap() == content(99, 40_000);
    assert!(Command::new("umount").arg(&target).status().unwrap().success());
    assert_successful(&dry);
    assert!(output(&dry).contains("The restore would be refused."), "{}", output(&dry));
    assert_failed(&run, "target_full");
    assert!(output(&run).contains("The restore needs 4.1 MB, and there is room for"), "{}", output(&run));
    assert_eq!(old, 100, "nothing was touched");
    assert_failed(&beside, "target_full");
    assert!(output(&beside).contains("on the server. Nothing was written."), "{}", output(&beside));
    assert!(!is_added);
    assert_failed(&linked, "target_full");
    assert!(output(&linked).contains("Nothing was written."), "{}", output(&linked));
    assert_successful(&again);
    assert!(new);
}

/// Small files take whole blocks, and file systems mounted below the target have their own space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_is_counted_in_blocks_and_on_each_file_system() {
    let bench = bench(SshServer::start()).await;
    std::fs::create_dir(bench.source().join("data")).unwrap();
    (0..200_u64).for_each(|n| std::fs::write(bench.source().join(n.to_string()), vec![7; 4200]).unwrap());
    std::fs::write(bench.source().join("data/big"), holdfast_testkit::random(1, 3_000_000)).unwrap();
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.target();
    let mount = |folder: &Path, size: &str| {
        std::fs::create_dir_all(folder).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(folder);
        mount.status().is_ok_and(|status| status.success())
    };
    if !mount(&target, "2m") {
        eprintln!("skipped: only root can mount");
        return;
    }
    let mut results = Vec::new();
    for (below, other, wanted) in
        [("1m", 0, None), ("8m", 0, None), ("8m", 1_000_000, None), ("8m", 1_000_000, Some("data/big"))]
    {
        let data = target.join("data");
        assert!(mount(&data, below));
        std::fs::write(target.join("other"), vec![1; other]).unwrap();
        (0..200).for_each(|n| std::fs::write(target.join(n.to_string()), "old").unwrap());
        std::fs::write(data.join("big"), "old").unwrap();
        let entries: Vec<&str> = wanted.into_iter().collect();
        let run = bench.restore(&backup, json!({"path": target, "overwrite": true, "entries": entries})).await;
        let is_old = (0..200).all(|n| std::fs::read(target.join(n.to_string())).unwrap() == b"old");
        let big = std::fs::metadata(data.join("big")).unwrap().len();
        results.push((run["status"] == "successful", is_old, big, output(&run).to_owned()));
        assert!(Command::new("umount").arg(&data).status().unwrap().success());
        (0..200).for_each(|n| std::fs::remove_file(target.join(n.to_string())).unwrap());
    }
    assert!(Command::new("umount").arg(&target).status().unwrap().success());
    let found: Vec<_> = results.iter().map(|(is_good, is_old, big, _)| (*is_good, *is_old, *big)).collect();
    let (refused, written) = ((false, true, 3), (true, false, 3_000_000));
    // Too little space on the mount; enough on both; too little for whole blocks; enough for the mount only.
    assert_eq!(found, [refused, written, refused, (true, true, 3_000_000)], "{results:#?}");
}

/// If a disk fills up although there seemed to be space, tar stops: files that it has not reached stay unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_up_ends_a_restore_over_what_is_there() {
    let bench = bench(SshServer::start()).await;
    let content = |number: u64| holdfast_testkit::random(number, 1 << 20);
    let first = bench.source().join("daily.1");
    std::fs::create_dir(&first).unwrap();
    (0..40).for_each(|number| std::fs::write(first.join(format!("{number:02}")), content(number)).unwrap());
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.target();
    std::fs::create_dir(&target).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=50m", "none"]).arg(&target).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: only root can mount");
        return;
    }
    std::fs::create_dir(target.join("daily.1")).unwrap();
    // Replacing the last file frees the space that the first ones need.
    let list = format!("zstd -dc {} | tar -t", bench.stored_file(&backup).display());
    let list = Command::new("sh").arg("-c").arg(list).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let names: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix("./daily.1/")).filter(|n| !n.is_empty()).collect();
    let [others @ .., last] = &names[..] else { panic!("{list}") };
    others.iter().for_each(|name| std::fs::write(target.join("daily.1").join(name), "old").unwrap());
    std::fs::write(target.join("daily.1").join(last), vec![1; 32 << 20]).unwrap();
    let run = bench.restore(&backup, json!({"path": target, "overwrite": true})).await;
    let read = |name: &&&str| std::fs::read(target.join("daily.1").join(name)).unwrap();
    let old = others.iter().filter(|name| read(name) == b"old").count();
    let new = others.iter().filter(|name| read(name).len() == 1 << 20).count();
    assert!(Command::new("umount").arg(&target).status().unwrap().success());
    assert_failed(&run, "target_full");
    assert!(old + new >= others.len() - 3 && old > 10, "{old} old, {new} new: {}", output(&run));
}

/// Hard links to files and links, selected without the first name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_folder_of_hard_linked_copies_can_be_restored_by_itself() {
    for (server, has_shell) in [(SshServer::start(), true), (SshServer::builder().sftp_only().start(), false)] {
        let bench = bench(server).await;
        let first = bench.source().join("daily.0");
        std::fs::create_dir(&first).unwrap();
        std::fs::write(first.join("file"), vec![7; 1 << 20]).unwrap();
        symlink("file", first.join("link")).unwrap();
        let copied = Command::new("cp").arg("-al").arg(&first).arg(bench.source().join("daily.1")).status().unwrap();
        assert!(copied.success());
        let backup = bench.back_up(bench.task(json!({})).await).await;
        for name in ["daily.0", "daily.1"] {
            let target = bench.folder.path().join(format!("target-{name}"));
            let body = json!({"path": target, "entries": [name]});
            assert_successful(&bench.restore(&backup, body).await);
            assert_eq!(std::fs::read(target.join(name).join("link")).unwrap(), vec![7; 1 << 20]);
            assert!(target.join(name).join("link").is_symlink());
            // Over existing files, with and without the other folder.
            let body = json!({"path": target, "entries": [name], "overwrite": true});
            assert_successful(&bench.restore(&backup, body).await);
            assert_successful(&bench.restore(&backup, json!({"path": target})).await);
            assert!(target.join("daily.1/link").is_symlink() && target.join("daily.0/link").is_symlink());
            let by_hand = bench.folder.path().join(format!("by-hand-{name}"));
            holdfast_engine::extract(&bench.stored_file(&backup), None, &by_hand, &[name.to_owned()]).unwrap();
            assert!(by_hand.join(name).join("link").is_symlink());
        }
        if !has_shell {
            continue;
        }
        // Content that is restored under another name takes space, too.
        let target = bench.target();
        std::fs::create_dir_all(target.join("daily.0")).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=500k", "none"];
        if !Command::new("mount").args(options).arg(&target).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: only root can mount");
            return;
        }
        let mut refused = Vec::new();
        for name in ["daily.0", "daily.1"] {
            std::fs::create_dir_all(target.join(name)).unwrap();
            std::fs::write(target.join(name).join("file"), "old").unwrap();
            let body = json!({"path": target, "entries": [name], "overwrite": true});
            let run = bench.restore(&backup, body).await;
            refused.push((run, std::fs::read(target.join(name).join("file")).unwrap()));
        }
        assert!(Command::new("umount").arg(&target).status().unwrap().success());
        for (run, file) in &refused {
            assert_failed(run, "target_full");
            assert_eq!(file, b"old", "{}", output(run));
        }
    }
}

/// An archive that cannot be restored is refused before anything is replaced, and a dry run says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_leads_through_its_own_link_replaces_nothing() {
    let shims = tempfile::tempdir().unwrap();
    let hostile = shims.path().join("hostile.tar");
    const WRITE: &str = r#"
import io, sys, tarfile
t = tarfile.open(sys.argv[1], 'w')
for number in range(60):
    header = tarfile.TarInfo(f'./{number:02}'); header.size = 100000
    t.addfile(header, io.BytesIO(b'x' * 100000))
link = tarfile.TarInfo('./zz'); link.type = tarfile.SYMTYPE; link.linkname = '../outside'
t.addfile(link)
t.addfile(tarfile.TarInfo('./zz/pwn'), io.BytesIO(b''))
t.close()
"#;
    python(WRITE, &[&hostile]);
    let script = format!(
        "case \"$1\" in --version) echo 'tar (GNU tar) 1.34' ;; --help) exec /usr/bin/tar --help ;; --extract) exec \
         /usr/bin/tar \"$@\" ;; *) cat {} ;; esac",
        hostile.display()
    );
    shim(shims.path(), "tar", &script);
    let bench = bench(SshServer::builder().with_path_shims(shims.path()).start()).await;
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let target = bench.target();
    std::fs::create_dir(&target).unwrap();
    (0..60).for_each(|number| std::fs::write(target.join(format!("{number:02}")), "mine").unwrap());
    for is_dry in [true, false] {
        let run = bench.restore(&backup, json!({"path": target, "overwrite": true, "dry_run": is_dry})).await;
        assert_failed(&run, "hostile_archive");
        let is_mine = |number: u32| std::fs::read(target.join(format!("{number:02}"))).unwrap() == b"mine";
        assert!((0..60).all(is_mine), "nothing was replaced");
        assert!(!target.join("zz").is_symlink());
    }
}

/// tar refers to the source as `.`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exclude_patterns_never_match_the_source_itself() {
    for server in [SshServer::start(), SshServer::builder().sftp_only().start()] {
        let bench = bench(server).await;
        std::fs::create_dir_all(bench.source().join("docs/.git")).unwrap();
        for name in ["docs/report.txt", "docs/.git/x", "main.db", ".env", "a"] {
            std::fs::write(bench.source().join(name), name).unwrap();
        }
        let all = ["docs/report.txt", "docs/.git/x", "main.db", ".env", "a"];
        for (pattern, kept) in [
            (".*", &["docs/report.txt", "main.db", "a"][..]),
            ("?", &["docs/report.txt", "main.db", ".env"]),
            ("[.]*", &["docs/report.txt", "main.db", "a"]),
            ("*.*", &["a"]),
            (".", &all),
            ("./", &all),
        ] {
            let backup = bench.back_up(bench.task(json!({"excluded_paths": [pattern]})).await).await;
            let target = bench.folder.path().join("target-of-patterns");
            assert_successful(&bench.restore(&backup, json!({"path": target})).await);
            let found: Vec<&str> = all.into_iter().filter(|name| target.join(name).exists()).collect();
            assert_eq!(found, kept, "{pattern}");
            std::fs::remove_dir_all(&target).unwrap();
        }
    }
}
