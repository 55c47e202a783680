use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use holdfast_testkit::{SshServer, TestApp, on_both_engines};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed, assert_successful, output};
use crate::databases::task;
use crate::faults::wait_for;

fn run_sql(file: &Path, sql: &str) -> String {
    let output = Command::new("sqlite3").arg("-batch").arg(file).arg(".timeout 20000").arg(sql).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The whole content of a database, as SQL.
fn contents(file: &Path) -> String {
    run_sql(file, ".dump")
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

async fn sqlite_task(bench: &Bench, file: &Path) -> i64 {
    task(bench, json!({"database_engine": "sqlite", "source_path": path(file)})).await
}

fn into(file: &Path) -> Value {
    json!({"path": path(file)})
}

fn over(file: &Path) -> Value {
    json!({"path": path(file), "overwrite": true})
}

/// A program that is killed when dropped.
struct Writing(Child);

impl Drop for Writing {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A program that adds pairs of rows, each in one transaction, as fast as it can.
fn keep_writing(file: &Path) -> Writing {
    const PAIR: &[u8] = b"BEGIN; INSERT INTO pairs (side) VALUES (1); INSERT INTO pairs (side) VALUES (-1); COMMIT;\n";
    let mut program = Command::new("sqlite3");
    program.args(["-batch", "-cmd", ".timeout 20000"]).arg(file).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = program.stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    std::thread::spawn(move || while input.write_all(PAIR).is_ok() {});
    Writing(child)
}

on_both_engines! {
    async fn an_sqlite_database_is_restored_in_place_and_elsewhere(app: TestApp) {
        let bench = Bench::new(app).await;
        let file = bench.source().join("it's a \"shop\" ;$(id) ü.db");
        run_sql(&file, "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, raw BLOB);
            CREATE INDEX by_name ON items (name); CREATE VIEW names AS SELECT name FROM items;
            CREATE TRIGGER t AFTER INSERT ON items BEGIN UPDATE items SET raw = X'00FF' WHERE id = NEW.id; END;
            INSERT INTO items (name) VALUES ('ä''b'), (NULL), ('line\nbreak')");
        let before = contents(&file);
        let shop = sqlite_task(&bench, &file).await;
        let backup = bench.back_up(shop).await;
        let folder = bench.folder.path().join("extracted");
        let refused = holdfast_engine::extract(&bench.stored_file(&backup), None, &folder, &[]).unwrap_err();
        assert_eq!(refused.code.as_str(), "not_supported", "a dump is not a damaged archive of files");
        assert_eq!((&backup["content"], &backup["entries"]), (&json!("sqlite"), &json!(4)));
        assert!(backup["key"].as_str().unwrap().ends_with(".sqlite3.zst"), "{backup}");
        assert_successful(&bench.verify(&backup).await);

        let copy = bench.target().join("copy.db");
        std::fs::create_dir_all(bench.target()).unwrap();
        let dry = bench.restore(&backup, json!({"path": path(&copy), "dry_run": true})).await;
        assert!(output(&dry).contains("would be created") && !copy.exists(), "{}", output(&dry));
        assert_successful(&bench.restore(&backup, into(&copy)).await);
        assert_eq!(contents(&copy), before);

        // An existing database is left alone, unless it is to be replaced.
        run_sql(&file, "DELETE FROM items; CREATE TABLE later (a)");
        assert_failed(&bench.restore(&backup, into(&file)).await, "target_not_empty");
        assert!(contents(&file).contains("later"));
        assert_successful(&bench.restore(&backup, over(&file)).await);
        assert_eq!(contents(&file), before);
        let left: Vec<_> = std::fs::read_dir(bench.target()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["copy.db"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sqlite_database_is_copied_whole_while_a_program_writes_to_it() {
    let bench = Bench::new(TestApp::start(holdfast_testkit::Engine::Sqlite).await).await;
    let file = bench.source().join("busy.db");
    run_sql(&file, "PRAGMA journal_mode = WAL; CREATE TABLE pairs (id INTEGER PRIMARY KEY, side INTEGER)");
    let writing = keep_writing(&file);
    let rows = |file: &Path| run_sql(file, "SELECT COUNT(*) FROM pairs").trim().parse::<u64>().unwrap();
    wait_for(async || (rows(&file) > 1000).then_some(())).await;
    assert!(file.with_file_name("busy.db-wal").exists());
    let shop = sqlite_task(&bench, &file).await;
    std::fs::create_dir_all(bench.target()).unwrap();
    for turn in 0..3 {
        let before = rows(&file);
        let backup = bench.back_up(shop).await;
        let copy = bench.target().join(format!("{turn}.db"));
        assert_successful(&bench.restore(&backup, into(&copy)).await);
        assert_eq!(run_sql(&copy, "SELECT SUM(side) FROM pairs; PRAGMA integrity_check").trim(), "0\nok");
        assert!(rows(&copy) >= before, "what was committed before is in it");
    }
    // A program with the file open continues with the restored data.
    let backup = bench.back_up(shop).await;
    drop(writing);
    run_sql(&file, "CREATE TABLE later (a)");
    let reader = keep_writing(&file);
    assert_successful(&bench.restore(&backup, over(&file)).await);
    drop(reader);
    assert_eq!(run_sql(&file, "PRAGMA integrity_check").trim(), "ok");
    assert!(!contents(&file).contains("later"));
}

/// Constraints can call functions of the tool that run programs, and journals can refer to files to be deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sqlite_database_runs_nothing_and_deletes_nothing() {
    let bench = Bench::new(TestApp::start(holdfast_testkit::Engine::Sqlite).await).await;
    let (file, proof) = (bench.source().join("evil.db"), bench.source().join("proof"));
    run_sql(&file, "CREATE TABLE a (b CHECK (1)); INSERT INTO a VALUES ('x')");
    let evil = format!(
        "CREATE TABLE a (b CHECK (length(edit(b, ''touch {}; true'')) >= 0), CHECK (writefile(''{}'', b)))",
        path(&proof),
        path(&proof)
    );
    run_sql(&file, &format!("PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = '{evil}'"));
    let shop = sqlite_task(&bench, &file).await;
    let backup = bench.back_up(shop).await;
    assert_successful(&bench.verify(&backup).await);
    std::fs::create_dir_all(bench.target()).unwrap();
    let copy = bench.target().join("copy.db");
    assert_successful(&bench.restore(&backup, into(&copy)).await);
    assert_successful(&bench.restore(&backup, over(&copy)).await);
    assert!(!proof.exists(), "something in the database was evaluated");

    // The header of a journal without pages, and the name of the super-journal that it belongs to.
    let victim = bench.source().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let name = path(&victim).as_bytes();
    let mut journal = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7".to_vec();
    for number in [0_u32, 0, 2, 512, 4096] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(512, 0);
    journal.extend(0x4000_0000_u32.wrapping_div(4096).wrapping_add(1).to_be_bytes());
    journal.extend(name);
    journal.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    journal.extend(name.iter().map(|byte| u32::from(*byte)).sum::<u32>().to_be_bytes());
    journal.extend(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7");
    std::fs::write(bench.source().join("evil.db-journal"), &journal).unwrap();
    bench.run(shop).await;
    assert_failed(&bench.restore(&backup, over(&file)).await, "target_not_empty");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_failures_have_specific_error_codes() {
    let tools = tempfile::tempdir().unwrap();
    for name in ["sh", "mktemp", "cat", "rm", "wc", "chmod", "ln", "mv", "dd", "sync", "sleep", "tar", "sqlite3"] {
        let program = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        symlink(program.iter().find(|program| program.exists()).unwrap(), tools.path().join(name)).unwrap();
    }
    let home = tempfile::tempdir().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder()
        .set_env("PATH", path(tools.path()))
        .set_env("TMPDIR", path(temporary.path()))
        .set_env("HOME", path(home.path()));
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh.start()).await;
    let file = bench.source().join("a.db");
    let shop = sqlite_task(&bench, &file).await;
    assert_failed(&bench.run(shop).await, "source_missing");
    std::fs::write(&file, "no database, but long enough to be one: ".repeat(100)).unwrap();
    assert_failed(&bench.run(shop).await, "source_unreadable");
    // The write-ahead log of an empty database file may still contain all data.
    std::fs::write(&file, "").unwrap();
    std::fs::write(bench.source().join("a.db-wal"), "the log").unwrap();
    assert_failed(&bench.run(shop).await, "source_unreadable");
    assert_eq!(std::fs::read_to_string(bench.source().join("a.db-wal")).unwrap(), "the log");
    std::fs::remove_file(bench.source().join("a.db-wal")).unwrap();
    std::fs::remove_file(&file).unwrap();
    run_sql(&file, "CREATE TABLE a (b); INSERT INTO a VALUES (1)");
    let backup = bench.back_up(shop).await;

    // A file that is not a database is left alone, and so is a link to an unmounted volume.
    let other = bench.source().join("other.db");
    std::fs::write(&other, "something else").unwrap();
    assert_failed(&bench.restore(&backup, over(&other)).await, "target_not_empty");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "something else");
    let link = bench.source().join("link.db");
    symlink("/nowhere/at/all.db", &link).unwrap();
    for asked in [into(&link), over(&link)] {
        assert_failed(&bench.restore(&backup, asked).await, "target_not_empty");
    }
    assert!(link.is_symlink());
    // A leftover log of another database would become part of this one.
    let new = bench.source().join("new.db");
    std::fs::write(bench.source().join("new.db-wal"), "remains").unwrap();
    assert_failed(&bench.restore(&backup, into(&new)).await, "target_not_empty");
    assert!(!new.exists());
    assert_failed(&bench.restore(&backup, into(&bench.source().join("nowhere/a.db"))).await, "target_unwritable");
    for (body, field) in [
        (json!({"database_name": "a"}), "path"),
        (json!({"path": path(&new), "entries": ["a"]}), "entries"),
        (json!({"path": "a.db"}), "path"),
    ] {
        let mut asked = json!({"remote_server_id": bench.server});
        asked.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        assert_ne!(bench.ask_restore(&backup, asked).await.error_of(field), "");
    }
    for (changes, field) in [
        (json!({"source_path": null}), "source_path"),
        (json!({"database_name": "a"}), "database_name"),
        (json!({"excluded_tables": "a"}), "excluded_tables"),
    ] {
        let reply = bench.user.client.put(&format!("/api/backup-tasks/{shop}"), changes).await;
        assert_ne!(reply.error_of(field), "");
    }
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");

    std::fs::remove_file(tools.path().join("sqlite3")).unwrap();
    assert_failed(&bench.run(shop).await, "tool_missing");
}
