use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use holdfast_app::probes::{self, Found};
use holdfast_core::database::DatabaseEngine;
use holdfast_core::ids::ServerId;
use holdfast_core::input::Input;
use holdfast_core::probe::Answer;
use holdfast_testkit::{MariaDbServer, PostgresServer, SshServer, TestApp, on_both_engines};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bench::{Bench, assert_failed};
use crate::looks::{answer, caller};

/// Contains every character that needs quoting in shells, option files and connection strings.
const PASSWORD: &str = r##"p'"\ #$;=%w[d]"##;

/// A server from which both databases can be reached, with a folder for shims first on the path.
fn ssh(shims: &Path) -> SshServer {
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    SshServer::builder()
        .with_path_shims(shims)
        .set_env("PGHOST", "127.0.0.1")
        .set_env("PGPORT", &postgres.port().to_string())
        .set_env("HOME", &mysql_home(shims, mariadb))
        .start()
}

/// Writes `.my.cnf` with the socket, because Debian's configuration sets another one; returns the home folder.
pub fn mysql_home(folder: &Path, mariadb: &MariaDbServer) -> String {
    let text = format!("[client]\nsocket={}\n", mariadb.socket().display());
    std::fs::write(folder.join(".my.cnf"), text).unwrap();
    folder.display().to_string()
}

pub fn shim(shims: &TempDir, name: &str, script: &str) {
    let path = shims.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn psql(database: &str, sql: &str) -> String {
    let url = PostgresServer::shared().url(database);
    let output = Command::new("psql").args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", sql]).output().unwrap();
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

const PG_SAMPLE: &str = r#"
CREATE TABLE people (id bigserial PRIMARY KEY, name text NOT NULL, note text, data bytea, at timestamptz);
INSERT INTO people (name, note, data, at)
  SELECT 'Ünï ' || n, repeat(md5(n::text), 20), decode(md5(n::text), 'hex'), to_timestamp(n) FROM generate_series(1, 5000) n;
CREATE TABLE "odd*Name" (a int); INSERT INTO "odd*Name" VALUES (1);
CREATE TABLE oddXName (a int); INSERT INTO oddXName VALUES (2);
CREATE TABLE scratch (a int); INSERT INTO scratch SELECT generate_series(1, 10);
CREATE VIEW names AS SELECT name FROM people;
CREATE FUNCTION twice(n int) RETURNS int LANGUAGE sql AS $$ SELECT n * 2 $$;
SELECT lo_from_bytea(0, '\x0102030405');
"#;

const PG_SUM: &str = "SELECT count(*) || ' ' || md5(string_agg(p::text, ',' ORDER BY id)) FROM people p";

/// Creates a database with this content; returns its name.
async fn postgres_database(sql: &str) -> String {
    let url = PostgresServer::shared().create_database().await;
    let name = url.rsplit('/').next().unwrap().to_owned();
    psql(&name, sql);
    name
}

pub async fn login(bench: &Bench, username: &str, password: Option<&str>) {
    let body = json!({"database_username": username, "database_password": password});
    bench.user.client.put(&format!("/api/remote-servers/{}", bench.server), body).await.expect(200);
}

pub async fn task(bench: &Bench, changes: Value) -> i64 {
    let mut body = json!({"type": "database", "source_path": null});
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    bench.task(body).await
}

on_both_engines! {
    async fn databases_are_found_and_measured_before_there_is_a_task(app: TestApp) {
        let shims = tempfile::tempdir().unwrap();
        let bench = Bench::with(app, ssh(shims.path())).await;
        let caller = caller(&bench).await;
        let (app, server) = (&bench.app.app, ServerId(bench.server));
        let name = postgres_database(PG_SAMPLE).await;
        let mariadb = MariaDbServer::shared();
        let shop = mariadb.create_database();
        mariadb.sql(&shop, "CREATE TABLE a (b INT); CREATE TABLE c (d INT);");
        login(&bench, "holdfast", None).await;
        let run = probes::ask_databases(app, &caller, server).await.unwrap();
        let Found::Answer(Answer::Databases(items)) = answer(&bench, &caller, run).await else { panic!("databases") };
        let own = items.iter().find(|item| item.name == name).unwrap();
        assert!(own.engine == DatabaseEngine::Postgresql && own.size > 100_000, "{own:?}");
        assert!(!items.iter().any(|item| item.name == "template1"));
        let size = async |engine: &str, name: &str| {
            let input = Input::default()
                .with("remote_server_id", bench.server)
                .with("type", "database")
                .with("database_name", name)
                .with("database_engine", engine);
            let run = probes::ask_size(app, &caller, &input).await.unwrap();
            answer(&bench, &caller, run).await
        };
        let Found::Answer(Answer::Size { entries, bytes }) = size("postgresql", &name).await else { panic!("a size") };
        assert!(entries == 4 && bytes > 100_000, "{entries} {bytes}");
        let Found::Refusal { code, .. } = size("postgresql", "no such one").await else { panic!("a refusal") };
        assert_eq!(code, Some(holdfast_core::failure::FailureCode::DatabaseMissing));
        let username = format!("u{}", shop.replace('_', ""));
        mariadb.create_user(&username, PASSWORD, "*");
        login(&bench, &username, Some(PASSWORD)).await;
        let Found::Answer(Answer::Size { entries, .. }) = size("mysql", &shop).await else { panic!("a size") };
        assert_eq!(entries, 2);
        let run = probes::ask_databases(app, &caller, server).await.unwrap();
        let Found::Answer(Answer::Databases(items)) = answer(&bench, &caller, run).await else { panic!("databases") };
        assert!(items.iter().any(|item| item.name == shop && item.engine == DatabaseEngine::Mysql), "{items:?}");
    }

    async fn a_postgresql_database_comes_back(app: TestApp) {
        let shims = tempfile::tempdir().unwrap();
        let bench = Bench::with(app, ssh(shims.path())).await;
        login(&bench, "holdfast", None).await;
        let name = postgres_database(PG_SAMPLE).await;
        for password in [None, Some("correct horse battery")] {
            let excluded = "scratch, odd*Name, missing_table";
            let task = task(&bench, json!({"database_name": name, "database_engine": "postgresql",
                "excluded_tables": excluded, "encryption_password": password})).await;
            let backup = bench.back_up(task).await;
            assert_eq!(backup["content"], "postgresql");
            let log = bench.latest_log(task).await;
            assert_eq!(log["warnings"], 1, "{log}");
            assert!(log["output"].as_str().unwrap().contains("missing_table does not exist"));
            assert_eq!(bench.verify(&backup).await["status"], "successful");
            let restored = format!("{name}_back{}", password.is_some());
            let run = bench.restore(&backup, json!({"database_name": restored})).await;
            assert_eq!(run["status"], "successful", "{run}");
            assert_eq!(psql(&restored, PG_SUM), psql(&name, PG_SUM));
            assert_eq!(psql(&restored, "SELECT twice(21), count(*) FROM names"), "42|5000");
            assert_eq!(psql(&restored, "SELECT encode(lo_get(oid), 'hex') FROM pg_largeobject_metadata"), "0102030405");
            let tables = psql(&restored, "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'");
            assert_eq!(tables, "oddxname people", "a star in a table's name is no pattern");

            // A database with content is replaced only on request; then it is as in the backup.
            psql(&restored, "DELETE FROM people WHERE id > 10");
            assert_failed(&bench.restore(&backup, json!({"database_name": restored})).await, "target_not_empty");
            assert_eq!(psql(&restored, "SELECT count(*) FROM people"), "10");
            let run = bench.restore(&backup, json!({"database_name": restored, "overwrite": true})).await;
            assert_eq!(run["status"], "successful", "{run}");
            assert_eq!(psql(&restored, PG_SUM), psql(&name, PG_SUM));
        }
    }

    async fn a_mariadb_database_comes_back(app: TestApp) {
        let shims = tempfile::tempdir().unwrap();
        let bench = Bench::with(app, ssh(shims.path())).await;
        let mariadb = MariaDbServer::shared();
        let name = mariadb.create_database();
        let username = format!("u{}", name.replace('_', ""));
        mariadb.create_user(&username, PASSWORD, "*");
        login(&bench, &username, Some(PASSWORD)).await;
        mariadb.sql(&name, r"
            CREATE TABLE people (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(200), data BLOB) CHARACTER SET utf8mb4;
            INSERT INTO people (name, data) SELECT CONCAT('Ünï 😀 ', seq), UNHEX(MD5(seq)) FROM seq_1_to_3000;
            CREATE TABLE scratch (a INT); INSERT INTO scratch VALUES (1);
            CREATE TRIGGER mark BEFORE INSERT ON people FOR EACH ROW SET NEW.name = CONCAT(NEW.name, '!');
            CREATE PROCEDURE twice(n INT) SELECT n * 2;");
        let sum = "SELECT COUNT(*), MD5(GROUP_CONCAT(CONCAT(id, name, HEX(data)) ORDER BY id SEPARATOR ',')) FROM people";
        let sum = |database: &str| mariadb.sql(database, &format!("SET SESSION group_concat_max_len = 100000000; {sum}"));
        for password in [None, Some("correct horse battery")] {
            let task = task(&bench, json!({"database_name": name, "database_engine": "mysql",
                "excluded_tables": "scratch,nothing", "encryption_password": password})).await;
            let backup = bench.back_up(task).await;
            assert_eq!((&backup["content"], &backup["entries"]), (&json!("mysql"), &json!(3)));
            assert!(bench.latest_log(task).await["output"].as_str().unwrap().contains("nothing does not exist"));
            assert_eq!(bench.verify(&backup).await["status"], "successful");
            let restored = format!("{name}_back{}", password.is_some());
            let run = bench.restore(&backup, json!({"database_name": restored})).await;
            assert_eq!(run["status"], "successful", "{run}");
            assert_eq!(sum(&restored), sum(&name));
            assert_eq!(mariadb.sql(&restored, "SHOW TABLES").trim(), "people");
            assert_eq!(mariadb.sql(&restored, "CALL twice(21)").trim(), "42");
            assert!(mariadb.sql(&restored, "SHOW TRIGGERS").contains("mark"));
            assert_failed(&bench.restore(&backup, json!({"database_name": restored})).await, "target_not_empty");
            mariadb.sql(&restored, "CREATE TABLE later (a INT); CREATE VIEW seen AS SELECT 1");
            let run = bench.restore(&backup, json!({"database_name": restored, "overwrite": true})).await;
            assert_eq!(run["status"], "successful", "{run}");
            assert_eq!(sum(&restored), sum(&name));
            let said = "These tables are not in the backup and will be gone: later.";
            assert!(run["output"].as_str().unwrap().contains(said), "{run}");
        }
        // The password is in no log.
        for run in ["/api/backup-task-logs?per_page=100", "/api/runs?per_page=100"] {
            assert!(!bench.user.client.get(run).await.text.contains("p'"), "{run}");
        }
    }
}

async fn bench(shims: &TempDir) -> Bench {
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh(shims.path())).await;
    login(&bench, "holdfast", None).await;
    bench
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_reach_the_tools_but_no_command_line() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(&shims).await;
    login(&bench, "ada", Some(PASSWORD)).await;
    let seen = shims.path().join("seen");
    // Records what any user of the server can see; the shim also records what it received.
    let look =
        format!("tr '\\0' ' ' < /proc/$PPID/cmdline > {0}; tr '\\0' ' ' < /proc/$$/cmdline >> {0}", seen.display());
    shim(
        &shims,
        "pg_dump",
        &format!(
            "{look}; printf '%s|%s' \"$PGUSER\" \"$PGPASSWORD\" > {}.got; echo \"wrong $PGPASSWORD\" >&2; exit 1",
            seen.display()
        ),
    );
    let log = bench.run(task(&bench, json!({"database_name": "x", "database_engine": "postgresql"})).await).await;
    assert_failed(&log, "remote_failed");
    assert!(log["output"].as_str().unwrap().contains("wrong [secret]"), "{log}");
    assert_eq!(std::fs::read_to_string(format!("{}.got", seen.display())).unwrap(), format!("ada|{PASSWORD}"));
    let shown = std::fs::read_to_string(&seen).unwrap();
    assert!(!shown.contains("p'") && !shown.contains(PASSWORD), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_neither_an_option_nor_a_connection_string() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(&shims).await;
    let evil = format!("host=127.0.0.1 port={} dbname=postgres", PostgresServer::shared().port());
    for engine in ["postgresql", "mysql"] {
        let log = bench.run(task(&bench, json!({"database_name": evil, "database_engine": engine})).await).await;
        let code = log["error_code"].as_str().unwrap();
        assert!(code == "database_missing" || code == "database_auth", "{log}");
    }
    let quoted = "it's a \"name\" \\ $(id)";
    psql("postgres", &format!("CREATE DATABASE \"{}\"", quoted.replace('"', "\"\"")));
    psql_in(quoted, "CREATE TABLE t (a int); INSERT INTO t VALUES (7)");
    let backup =
        bench.back_up(task(&bench, json!({"database_name": quoted, "database_engine": "postgresql"})).await).await;
    let run = bench.restore(&backup, json!({"database_name": format!("{quoted} 2")})).await;
    assert_eq!(run["status"], "successful", "{run}");
}

/// The same for names that cannot be in a URL.
fn psql_in(database: &str, sql: &str) {
    let port = PostgresServer::shared().port().to_string();
    let name = format!("dbname='{}'", database.replace('\\', "\\\\").replace('\'', "\\'"));
    let output = Command::new("psql")
        .args(["-XAtq", "-h", "127.0.0.1", "-p", &port, "-U", "holdfast", "-d", &name, "-c", sql])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_dumps_fail_the_backup() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(&shims).await;
    let name = postgres_database(PG_SAMPLE).await;
    let real = Command::new("sh").args(["-c", "command -v pg_dump"]).output().unwrap();
    let real = String::from_utf8(real.stdout).unwrap().trim().to_owned();
    let pg = task(&bench, json!({"database_name": name, "database_engine": "postgresql"})).await;
    let size = bench.back_up(pg).await["plain_bytes"].as_i64().unwrap();
    // Exits with 0 after a stream that is cut at the beginning, in the middle, or right before the end.
    for kept in [0, 20, size / 2, size - 1] {
        shim(&shims, "pg_dump", &format!("{real} \"$@\" | head -c {kept}"));
        assert_failed(&bench.run(pg).await, "incomplete");
    }
    shim(&shims, "pg_dump", &format!("{real} \"$@\"; kill -9 $$"));
    let log = bench.run(pg).await;
    assert_failed(&log, "remote_failed");
    shim(&shims, "pg_dump", &format!("{real} \"$@\" | head -c 1000; echo broken >&2; exit 1"));
    assert_failed(&bench.run(pg).await, "remote_failed");
    let my = task(&bench, json!({"database_name": "x", "database_engine": "mysql"})).await;
    shim(&shims, "mariadb", "case $* in *VERSION*) echo 8.0.36;; esac");
    shim(&shims, "mariadb-dump", "echo 'CREATE TABLE a (b int);'; exit 0");
    assert_failed(&bench.run(my).await, "incomplete");
    shim(&shims, "mariadb-dump", "echo '-- Dump completed on x'; exit 3");
    assert_failed(&bench.run(my).await, "remote_failed");
    assert_eq!(bench.backups(pg).await.len(), 1);
    assert_eq!(bench.stored_names().len(), 1, "nothing partial stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_failures_have_specific_error_codes() {
    let shims = tempfile::tempdir().unwrap();
    let bench = bench(&shims).await;
    let run = async |changes: Value| bench.run(task(&bench, changes).await).await;
    assert_failed(&run(json!({"database_name": "nowhere", "database_engine": "postgresql"})).await, "database_missing");
    assert_failed(&run(json!({"database_name": "nowhere", "database_engine": "mysql"})).await, "database_auth");
    login(&bench, "nobody", Some("wrong")).await;
    assert_failed(&run(json!({"database_name": "postgres", "database_engine": "postgresql"})).await, "database_auth");
    login(&bench, "holdfast", None).await;
    // Both engines are installed; only one accepts the login and has the database.
    let name = postgres_database("CREATE TABLE t (a int)").await;
    let backup = bench.back_up(task(&bench, json!({"database_name": name})).await).await;
    assert_eq!(backup["content"], "postgresql");
    assert_failed(&run(json!({"database_name": "nowhere"})).await, "engine_unclear");
    shim(&shims, "pg_dump", "exit 127");
    assert_failed(&run(json!({"database_name": name, "database_engine": "postgresql"})).await, "tool_missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_databases_of_a_server_come_back() {
    // Separate servers, because everything in them is dumped and restored.
    let postgres = PostgresServer::start(false);
    let mariadb = MariaDbServer::start();
    mariadb.create_user("all", PASSWORD, "*");
    mariadb.sql("", "CREATE DATABASE shop; CREATE TABLE shop.t (a INT); INSERT INTO shop.t VALUES (1), (2)");
    let home = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder()
        .set_env("PGHOST", "127.0.0.1")
        .set_env("PGPORT", &postgres.port().to_string())
        .set_env("HOME", &mysql_home(home.path(), &mariadb))
        .start();
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await;
    login(&bench, "holdfast", None).await;
    let url = postgres.create_database().await;
    let ask = |url: &str, sql: &str| {
        let output = Command::new("psql").args(["-XAtq", "-d", url, "-c", sql]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    ask(&url, PG_SAMPLE);
    ask(&url, "CREATE ROLE reader LOGIN; GRANT SELECT ON people TO reader");
    let backup = bench.back_up(task(&bench, json!({"database_engine": "postgresql"})).await).await;
    assert_eq!(backup["content"], "postgresql-server");
    assert!(backup["key"].as_str().unwrap().ends_with(".tar.zst"));
    let before = ask(&url, PG_SUM);
    ask(&url, "DROP TABLE people CASCADE; REVOKE ALL ON scratch FROM reader; DROP ROLE reader");
    bench.ask_restore(&backup, json!({"remote_server_id": bench.server})).await.error_of("overwrite");
    let run = bench.restore(&backup, json!({"overwrite": true})).await;
    assert_eq!(run["status"], "successful", "{run}");
    assert_eq!(ask(&url, PG_SUM), before);
    assert_eq!(ask(&url, "SELECT has_table_privilege('reader', 'people', 'SELECT')"), "t");

    login(&bench, "all", Some(PASSWORD)).await;
    let backup = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    assert_eq!(backup["content"], "mysql-server");
    mariadb.sql("", "DROP DATABASE shop");
    let run = bench.restore(&backup, json!({"overwrite": true})).await;
    assert_eq!(run["status"], "successful", "{run}");
    assert_eq!(mariadb.sql("shop", "SELECT SUM(a) FROM t").trim(), "3");
}
