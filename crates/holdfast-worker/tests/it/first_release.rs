use std::process::Command;

use holdfast_core::content::Content;
use holdfast_core::ids::{DestinationId, RunId, TaskId};
use holdfast_store::backups::NewBackup;
use holdfast_store::copies::NewCopy;
use holdfast_testkit::{MariaDbServer, PostgresServer, SshServer, TestApp, on_both_engines};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::bench::{Bench, assert_failed, assert_successful};
use crate::databases::{login, mysql_home, task};
use crate::postgres::psql;

/// All databases in SQL, as the first release dumped them.
pub fn dump_all(postgres: &PostgresServer) -> Vec<u8> {
    let dump = Command::new("pg_dumpall")
        .args(["--clean", "--if-exists", "-h", "127.0.0.1", "-p", &postgres.port().to_string(), "-U", "holdfast"])
        .output()
        .unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    dump.stdout
}

/// Stores and records a dump as the first release did: frames of a mebibyte, and an index with a manifest and no
/// entries. Uses the run of another backup of the task.
pub async fn store_as_before(bench: &Bench, task: i64, content: Content, dump: &[u8]) -> Value {
    let other = bench.back_up(task).await;
    let sha256 = |bytes: &[u8]| -> String { Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect() };
    let frames: Vec<Vec<u8>> = dump.chunks(1024 * 1024).map(|frame| zstd::encode_all(frame, 3).unwrap()).collect();
    let sizes: Vec<usize> = frames.iter().map(Vec::len).collect();
    let mut object = frames.concat();
    let manifest = json!({"holdfast": 1, "content": content.as_str(), "created_at": "2024-11-01T03:00:00Z",
        "label": "Web files", "source": "all databases", "frame_bytes": 1024 * 1024});
    let end = json!({"entries": 1, "plain_bytes": dump.len(), "plain_sha256": sha256(dump), "frames": sizes});
    let lines = format!("{}\n{}\n", json!({"manifest": manifest}), json!({"end": end}));
    let index = zstd::encode_all(lines.as_bytes(), 3).unwrap();
    object.extend(0x184D_2A5E_u32.to_le_bytes());
    object.extend(u32::try_from(index.len() + 16).unwrap().to_le_bytes());
    object.extend(&index);
    object.extend((index.len() as u64).to_le_bytes());
    object.extend(b"HFINDEX1");
    let key = other["key"].as_str().unwrap().rsplit_once(".tar").unwrap().0.to_owned() + "0.sql.zst";
    std::fs::write(bench.stored_folder().join(&key), &object).unwrap();
    let new = NewBackup {
        task: TaskId(task),
        run: RunId(other["run_id"].as_i64().unwrap()),
        task_label: "Web files".to_owned(),
        source: "all databases".to_owned(),
        source_server: String::new(),
        signs: Vec::new(),
        content,
        format: holdfast_core::storage::Format::Archive,
        copies: vec![NewCopy {
            repository: None,
            destination: DestinationId(bench.destination),
            locator: key,
            size_bytes: object.len().try_into().unwrap(),
            sha256: sha256(&object),
        }],
        plain_bytes: dump.len().try_into().unwrap(),
        plain_sha256: sha256(dump),
        entries: 1,
        databases: Vec::new(),
        password: None,
    };
    let app = &bench.app.app;
    let mut tx = app.store.begin().await.unwrap();
    let id = holdfast_store::backups::insert(&mut tx, bench.user.id, &new, app.now()).await.unwrap();
    tx.commit().await.unwrap();
    bench.show(&json!({"id": id.0})).await
}

on_both_engines! {
    async fn a_postgresql_server_as_the_first_release_stored_it_comes_back(app: TestApp) {
        let postgres = PostgresServer::start(false);
        let ssh = SshServer::builder().set_env("PGHOST", "127.0.0.1").set_env("PGPORT", &postgres.port().to_string());
        let bench = Bench::with(app, ssh.start()).await;
        login(&bench, "holdfast", None).await;
        psql(&postgres, "postgres", "CREATE ROLE app LOGIN PASSWORD 'secret' CONNECTION LIMIT 3");
        for name in ["my-app", "a'b"] {
            psql(&postgres, "postgres", &format!("CREATE DATABASE \"{name}\" OWNER app"));
            psql(&postgres, name, "CREATE TABLE t AS SELECT n, repeat(md5(n::text), 9) || E'\\n\\\\.\\t' v FROM generate_series(1, 2000) n");
            psql(&postgres, name, "ALTER TABLE t OWNER TO app; CREATE VIEW odd AS SELECT '\\! id'::text b");
        }
        let dump = dump_all(&postgres);
        let task = task(&bench, json!({"database_engine": "postgresql"})).await;
        let backup = store_as_before(&bench, task, Content::PostgresServerSql, &dump).await;
        assert_eq!(backup["content"], "postgresql-all");
        assert_eq!(bench.verify(&backup).await["status"], "successful");

        let sum = "SELECT count(*) || md5(string_agg(t::text, ',' ORDER BY n)) || min(b) FROM t, odd";
        let (before, password) = (psql(&postgres, "my-app", sum), "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'");
        let hash = psql(&postgres, "postgres", password);
        psql(&postgres, "my-app", "DELETE FROM t WHERE n > 5; CREATE TABLE later AS SELECT 1 a");
        psql(&postgres, "postgres", "DROP DATABASE \"a'b\"");
        psql(&postgres, "postgres", "ALTER ROLE app PASSWORD 'other' CONNECTION LIMIT 1");
        assert_successful(&bench.restore(&backup, json!({"overwrite": true, "dry_run": true})).await);
        assert_eq!(psql(&postgres, "my-app", "SELECT count(*) FROM t"), "5");
        assert_successful(&bench.restore(&backup, json!({"overwrite": true})).await);
        for name in ["my-app", "a'b"] {
            assert_eq!(psql(&postgres, name, sum), before, "{name}");
            assert_eq!(psql(&postgres, name, "SELECT tableowner FROM pg_tables WHERE tablename = 't'"), "app");
        }
        assert_eq!(psql(&postgres, "my-app", "SELECT to_regclass('later') IS NULL"), "t");
        assert_eq!(psql(&postgres, "postgres", password), hash);

        // Neither does one that would drop another database.
        psql(&postgres, "postgres", "CREATE DATABASE payroll");
        let evil = String::from_utf8(dump.clone()).unwrap();
        let evil = evil.replacen("DROP DATABASE ", "DROP DATABASE IF EXISTS payroll;\nDROP DATABASE ", 1);
        let backup = store_as_before(&bench, task, Content::PostgresServerSql, evil.as_bytes()).await;
        assert_failed(&bench.restore(&backup, json!({"overwrite": true})).await, "hostile_archive");
        assert_eq!(psql(&postgres, "payroll", "SELECT 1"), "1");
        // A dump with a psql command changes nothing.
        let evil = [&dump[..], b"\\! id\n--\n-- PostgreSQL database cluster dump complete\n--\n"].concat();
        let backup = store_as_before(&bench, task, Content::PostgresServerSql, &evil).await;
        psql(&postgres, "my-app", "DELETE FROM t WHERE n > 7");
        assert_failed(&bench.restore(&backup, json!({"overwrite": true})).await, "hostile_archive");
        assert_eq!(psql(&postgres, "my-app", "SELECT count(*) FROM t"), "7");
    }
}

on_both_engines! {
    async fn a_mysql_server_as_the_first_release_stored_it_comes_back(app: TestApp) {
        let mariadb = MariaDbServer::start();
        mariadb.create_user("all", "pass word", "*");
        let home = tempfile::tempdir().unwrap();
        let ssh = SshServer::builder().set_env("HOME", &mysql_home(home.path(), &mariadb)).start();
        let bench = Bench::with(app, ssh).await;
        login(&bench, "all", Some("pass word")).await;
        mariadb.sql("", "CREATE DATABASE shop; CREATE TABLE shop.t (a INT); INSERT INTO shop.t VALUES (1), (2)");
        let dump = Command::new("mariadb-dump")
            .args(["--no-defaults", "--user=root", "--all-databases", "--single-transaction", "--routines"])
            .arg(format!("--socket={}", mariadb.socket().display()))
            .output()
            .unwrap();
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
        let task = task(&bench, json!({"database_engine": "mysql"})).await;
        let backup = store_as_before(&bench, task, Content::MysqlServerSql, &dump.stdout).await;
        assert_eq!(backup["content"], "mysql-all");
        assert_eq!(bench.verify(&backup).await["status"], "successful");
        mariadb.sql("", "DROP DATABASE shop");
        assert_successful(&bench.restore(&backup, json!({"overwrite": true})).await);
        assert_eq!(mariadb.sql("shop", "SELECT SUM(a) FROM t").trim(), "3");
    }
}
