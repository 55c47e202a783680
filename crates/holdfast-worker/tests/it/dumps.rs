use std::process::{Command, Stdio};

use holdfast_testkit::{MariaDbServer, PostgresServer, SshServer, TestApp};
use serde_json::{Value, json};

use crate::bench::{Bench, assert_failed};
use crate::databases::{login, mysql_home, task};

async fn postgres_bench(postgres: &PostgresServer) -> Bench {
    let ssh = SshServer::builder().set_env("PGHOST", "127.0.0.1").set_env("PGPORT", &postgres.port().to_string());
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh.start()).await;
    login(&bench, "holdfast", None).await;
    bench
}

/// Another server that the same user may restore to.
async fn second_server(bench: &Bench, postgres: &PostgresServer) -> (SshServer, i64) {
    let ssh = SshServer::builder().set_env("PGHOST", "127.0.0.1").set_env("PGPORT", &postgres.port().to_string());
    let ssh = ssh.start();
    let key = bench.user.client.get("/api/ssh-key").await.data(200);
    ssh.authorize(key["public_key"].as_str().unwrap());
    let body = json!({"label": "second", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username(),
        "database_username": "holdfast"});
    let id = bench.user.client.post("/api/remote-servers", body).await.id(201);
    (ssh, id)
}

fn psql(postgres: &PostgresServer, database: &str, sql: &str) -> String {
    let name = format!("dbname='{}'", database.replace('\\', "\\\\").replace('\'', "\\'"));
    let output = Command::new("psql")
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", &postgres.port().to_string()])
        .args(["-U", "holdfast", "-d", &name, "-c", sql])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A session that stays in a database.
fn session(postgres: &PostgresServer, database: &str) -> std::process::Child {
    Command::new("psql")
        .args(["-Xq", "-h", "127.0.0.1", "-p", &postgres.port().to_string(), "-U", "holdfast", "-d", database])
        .args(["-c", "SELECT pg_sleep(600)"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn output(run: &Value) -> &str {
    run["output"].as_str().unwrap()
}

fn assert_successful(run: &Value) {
    assert_eq!(run["status"], "successful", "{}", output(run));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_postgresql_server_comes_back_whatever_its_databases_are_called() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    let names = ["my-app", "Wei\"rd", "a'b", "x\\y", "$holdfast$"];
    psql(&postgres, "postgres", "CREATE ROLE \"o'wner\" LOGIN PASSWORD 'secret' CONNECTION LIMIT 7");
    for name in names {
        psql(&postgres, "postgres", &format!("CREATE DATABASE \"{}\" OWNER \"o'wner\"", name.replace('"', "\"\"")));
        psql(&postgres, name, "CREATE TABLE t AS SELECT generate_series(1, 1000) a");
        psql(&postgres, name, "CREATE VIEW v AS SELECT '\\'::text b");
    }
    psql(&postgres, "postgres", "ALTER DATABASE \"my-app\" SET search_path TO public, \"odd schema\"");
    psql(&postgres, "postgres", "REVOKE CONNECT ON DATABASE \"my-app\" FROM PUBLIC");
    let latin = "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    psql(&postgres, "postgres", latin);
    psql(&postgres, "postgres", "CREATE TABLE in_postgres AS SELECT 1 a");
    let password = "SELECT rolpassword FROM pg_authid WHERE rolname = 'o''wner'";
    let hash = psql(&postgres, "postgres", password);
    let backup = bench.back_up(task(&bench, json!({"database_engine": "postgresql"})).await).await;
    assert_eq!(bench.verify(&backup).await["status"], "successful");

    let dry = bench.restore(&backup, json!({"overwrite": true, "dry_run": true})).await;
    assert_successful(&dry);
    assert!(output(&dry).contains("The database my-app would be replaced."), "{}", output(&dry));
    psql(&postgres, "my-app", "DELETE FROM t WHERE a > 1; CREATE TABLE later AS SELECT 2 a");
    psql(&postgres, "postgres", "DROP DATABASE \"a'b\"");
    psql(&postgres, "postgres", "DROP DATABASE latin");
    psql(&postgres, "postgres", "ALTER ROLE \"o'wner\" PASSWORD 'other' CONNECTION LIMIT 1");
    // People who are connected neither stop a restore nor end up with twice the rows.
    let mut open = session(&postgres, "my-app");
    let run = bench.restore(&backup, json!({"overwrite": true})).await;
    open.kill().unwrap();
    open.wait().unwrap();
    assert_successful(&run);
    for name in names {
        assert_eq!(psql(&postgres, name, "SELECT count(*) || b FROM t, v GROUP BY b"), "1000\\", "{name}");
        let owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()";
        assert_eq!(psql(&postgres, name, owner), "o'wner");
    }
    assert_eq!(psql(&postgres, "my-app", "SELECT to_regclass('later') IS NULL"), "t");
    assert_eq!(psql(&postgres, "my-app", "SHOW search_path"), "public, \"odd schema\"");
    let is_open = "SELECT has_database_privilege('public', 'my-app', 'CONNECT')";
    assert_eq!(psql(&postgres, "postgres", is_open), "f");
    assert_eq!(psql(&postgres, "latin", "SHOW server_encoding"), "LATIN1");
    assert_eq!(psql(&postgres, "postgres", password), hash);
    assert_eq!(psql(&postgres, "postgres", "SELECT a FROM in_postgres"), "1");
    let left = "SELECT count(*) FROM pg_database WHERE datname ~ '^holdfast_(restore|swap|old)'";
    assert_eq!(psql(&postgres, "postgres", left), "0", "nothing is left behind");

    // Onto a server that has none of it.
    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    let run = bench.restore(&backup, json!({"remote_server_id": server, "overwrite": true})).await;
    assert_successful(&run);
    assert_eq!(psql(&second, "a'b", "SELECT count(*) FROM t"), "1000");
    assert_eq!(psql(&second, "postgres", password), hash);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_goes_to_another_server_and_back_over_what_is_there() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE app");
    psql(&postgres, "postgres", "CREATE ROLE reader");
    let shop = "CREATE DATABASE shop OWNER app ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    psql(&postgres, "postgres", shop);
    psql(&postgres, "postgres", "ALTER DATABASE shop SET work_mem TO '77MB'");
    psql(&postgres, "postgres", "COMMENT ON DATABASE shop IS 'the ''shop'''");
    psql(
        &postgres,
        "shop",
        "CREATE SCHEMA own AUTHORIZATION app; CREATE TABLE own.t AS SELECT generate_series(1, 10) a",
    );
    psql(&postgres, "shop", "ALTER TABLE own.t OWNER TO app; GRANT SELECT ON own.t TO reader");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;

    // Something that depends on what the dump holds does not keep it from coming back, nor does a session.
    psql(&postgres, "shop", "DELETE FROM own.t; CREATE VIEW later AS SELECT * FROM own.t");
    let run = bench.restore(&backup, json!({"database_name": "shop"})).await;
    assert_failed(&run, "target_not_empty");
    let mut open = session(&postgres, "shop");
    let run = bench.restore(&backup, json!({"database_name": "shop", "overwrite": true})).await;
    open.kill().unwrap();
    open.wait().unwrap();
    assert_successful(&run);
    assert_eq!(psql(&postgres, "shop", "SELECT count(*) FROM own.t"), "10");
    assert_eq!(psql(&postgres, "shop", "SELECT to_regclass('later') IS NULL"), "t");

    // Under another name it is what it was, too.
    assert_successful(&bench.restore(&backup, json!({"database_name": "copy"})).await);
    let facts = "SELECT current_setting('server_encoding') || current_setting('work_mem') || pg_get_userbyid(datdba) || \
        datcollate || shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()";
    assert_eq!(psql(&postgres, "copy", facts), "LATIN177MBappCthe 'shop'");
    assert_eq!(psql(&postgres, "copy", "SELECT has_table_privilege('reader', 'own.t', 'SELECT')"), "t");

    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    let run = bench.restore(&backup, json!({"remote_server_id": server, "database_name": "shop"})).await;
    assert_failed(&run, "roles_missing");
    assert!(output(&run).contains("app, reader"), "{}", output(&run));
    assert_eq!(psql(&second, "postgres", "SELECT count(*) FROM pg_database WHERE datname = 'shop'"), "0");
    let body = json!({"remote_server_id": server, "database_name": "shop", "no_owner": true});
    assert_successful(&bench.restore(&backup, body).await);
    assert_eq!(psql(&second, "shop", "SELECT count(*) FROM own.t"), "10");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_mariadb_dump_does_not_say_comes_back_too() {
    let mariadb = MariaDbServer::start();
    mariadb.create_user("all", "pass word", "*");
    let home = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("HOME", &mysql_home(home.path(), &mariadb)).start();
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await;
    login(&bench, "all", Some("pass word")).await;
    mariadb.sql("", "CREATE DATABASE shop CHARACTER SET latin1 COLLATE latin1_german2_ci");
    mariadb.sql("shop", "CREATE TABLE v (a INT) WITH SYSTEM VERSIONING; INSERT INTO v VALUES (1); UPDATE v SET a = 2");
    mariadb.sql("shop", "CREATE TABLE old (a INT) ENGINE=MyISAM; CREATE TABLE `with.dot` (a INT)");
    mariadb.sql("shop", "CREATE DEFINER=`gone`@`nowhere` SQL SECURITY DEFINER VIEW w AS SELECT a FROM v");
    // A table that is called like its database, and a text that looks like a name of it.
    mariadb.sql("shop", "CREATE TABLE shop (id INT); INSERT INTO shop VALUES (1), (2), (3)");
    mariadb.sql("shop", "CREATE TABLE bought (id INT); INSERT INTO bought VALUES (2)");
    let unsold = "CREATE VIEW unsold AS SELECT * FROM shop WHERE NOT EXISTS \
        (SELECT 1 FROM bought WHERE bought.id = shop.id)";
    mariadb.sql("shop", unsold);
    mariadb.sql("shop", "CREATE VIEW literal AS SELECT 'see `shop`.`t`.`c` here' AS s");
    let options = json!({"database_name": "shop", "database_engine": "mysql", "excluded_tables": "with.dot"});
    let task = task(&bench, options).await;
    let backup = bench.back_up(task).await;
    let log = bench.latest_log(task).await;
    assert!(output(&log).contains("no transactions") && output(&log).contains("shop.old"), "{}", output(&log));

    let run = bench.restore(&backup, json!({"database_name": "copy"})).await;
    assert_successful(&run);
    assert!(output(&run).contains("gone@nowhere"), "a user that is not here is named: {}", output(&run));
    let collation = "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = DATABASE()";
    assert_eq!(mariadb.sql("copy", collation).trim(), "latin1_german2_ci");
    assert_eq!(mariadb.sql("copy", "SELECT COUNT(*) FROM v FOR SYSTEM_TIME ALL").trim(), "2");
    assert_eq!(mariadb.sql("copy", "SHOW TABLES LIKE 'with%'").trim(), "");
    assert_eq!(mariadb.sql("copy", "SELECT SUM(id) FROM unsold").trim(), "4");
    assert_eq!(mariadb.sql("copy", "SELECT s FROM literal").trim(), "see `shop`.`t`.`c` here");
    let run = bench.restore(&backup, json!({"database_name": "mine", "no_owner": true})).await;
    assert_successful(&run);
    assert_eq!(mariadb.sql("mine", "SELECT a FROM w").trim(), "2");

    // What is there goes only when the dump was loaded whole.
    mariadb.sql("copy", "CREATE TABLE precious (a INT)");
    assert_failed(&bench.restore(&backup, json!({"database_name": "copy"})).await, "target_not_empty");
    assert_successful(&bench.restore(&backup, json!({"database_name": "copy", "overwrite": true})).await);
    assert_eq!(mariadb.sql("copy", "SHOW TABLES LIKE 'precious'").trim(), "");
    assert_eq!(mariadb.sql("copy", collation).trim(), "latin1_german2_ci");
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE '%holdfast%'").trim(), "", "nothing is left behind");
}
