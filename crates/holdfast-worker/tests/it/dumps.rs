use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use holdfast_core::backup::Content;
use holdfast_core::ids::{DestinationId, RunId, TaskId};
use holdfast_store::backups::NewBackup;
use holdfast_testkit::{MariaDbServer, PostgresServer, Settings, SshServer, TestApp, on_both_engines, random};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::bench::{Bench, assert_failed};
use crate::databases::{login, mysql_home, task};
use crate::faults::wait_for;

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
    let id = add_server(bench, &ssh, json!({"database_username": "holdfast"})).await;
    (ssh, id)
}

async fn add_server(bench: &Bench, ssh: &SshServer, login: Value) -> i64 {
    let key = bench.user.client.get("/api/ssh-key").await.data(200);
    ssh.authorize(key["public_key"].as_str().unwrap());
    let mut body =
        json!({"label": "second", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username()});
    body.as_object_mut().unwrap().extend(login.as_object().unwrap().clone());
    bench.user.client.post("/api/remote-servers", body).await.id(201)
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
    psql(&postgres, "postgres", "GRANT SET, ALTER SYSTEM ON PARAMETER log_min_duration_statement TO \"o'wner\"");
    let may_set = "SELECT has_parameter_privilege('o''wner', 'log_min_duration_statement', 'ALTER SYSTEM')";
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
    assert_eq!(psql(&second, "postgres", may_set), "t");
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

    // A database that somebody made for it is empty, whatever the template brings along.
    psql(&second, "template1", "CREATE EXTENSION hstore");
    psql(&second, "postgres", "CREATE DATABASE prepared");
    let body = json!({"remote_server_id": server, "database_name": "prepared", "no_owner": true});
    assert_successful(&bench.restore(&backup, body).await);
    assert_eq!(psql(&second, "prepared", "SELECT count(*) || ('a=>1'::hstore -> 'a') FROM own.t"), "101");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_in_a_tablespace_of_their_own_come_back_without_it() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "ALTER ROLE holdfast SET allow_in_place_tablespaces TO on");
    psql(&postgres, "postgres", "CREATE TABLESPACE \"ts x\" LOCATION ''");
    psql(&postgres, "postgres", "ALTER ROLE holdfast RESET allow_in_place_tablespaces");
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "shop", "CREATE TABLE t TABLESPACE \"ts x\" AS SELECT 1 a");
    psql(&postgres, "shop", "CREATE INDEX i ON t (a) TABLESPACE \"ts x\"");
    let server_backup = bench.back_up(task(&bench, json!({"database_engine": "postgresql"})).await).await;
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;

    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    let run = bench.restore(&server_backup, json!({"remote_server_id": server, "overwrite": true})).await;
    assert_successful(&run);
    let said = "The tablespace ts x is not restored; its contents go to the default one.";
    assert!(output(&run).contains(said), "{}", output(&run));
    assert_eq!(psql(&second, "shop", "SELECT a FROM t"), "1");
    for no_owner in [false, true] {
        let name = format!("copy_{no_owner}");
        let body = json!({"remote_server_id": server, "database_name": name, "no_owner": no_owner});
        let run = bench.restore(&backup, body).await;
        assert_successful(&run);
        let said = "what was in these goes to the default one of the database: ts x.";
        assert!(output(&run).contains(said), "{}", output(&run));
        assert_eq!(psql(&second, &name, "SELECT a FROM t"), "1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_there_becomes_what_the_original_was() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE app; CREATE ROLE reader; CREATE ROLE filler LOGIN");
    psql(&postgres, "postgres", "CREATE DATABASE shop OWNER app CONNECTION LIMIT 9");
    psql(&postgres, "postgres", "ALTER DATABASE shop SET work_mem TO '77MB'; COMMENT ON DATABASE shop IS 'the shop'");
    psql(&postgres, "postgres", "ALTER ROLE reader IN DATABASE shop SET search_path TO own");
    psql(&postgres, "postgres", "REVOKE ALL ON DATABASE shop FROM PUBLIC; GRANT CONNECT ON DATABASE shop TO reader");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;

    psql(&postgres, "postgres", "CREATE DATABASE prepared");
    let run = bench.restore(&backup, json!({"database_name": "prepared"})).await;
    assert_successful(&run);
    let facts = |name: &str| {
        format!(
            "SELECT row(datconnlimit, shobj_description(oid, 'pg_database'), (SELECT string_agg(setconfig::text, ',' ORDER \
             BY 1) FROM pg_db_role_setting WHERE setdatabase = d.oid), has_database_privilege('public', oid, 'CONNECT'), \
             has_database_privilege('reader', oid, 'CONNECT'), pg_get_userbyid(datdba)) FROM pg_database d WHERE datname = \
             '{name}'"
        )
    };
    let expected = "(9,\"the shop\",\"{search_path=own},{work_mem=77MB}\",f,t,holdfast)";
    assert_eq!(psql(&postgres, "postgres", &facts("prepared")), expected);
    let said = "The database prepared keeps its owner holdfast; it was app in the backup.";
    assert!(output(&run).contains(said), "{}", output(&run));

    // Default privileges would change the rights of what is restored, wherever they came from.
    psql(&postgres, "template1", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC");
    psql(&postgres, "postgres", "CREATE DATABASE widened");
    let run = bench.restore(&backup, json!({"database_name": "widened"})).await;
    assert_failed(&run, "target_not_empty");
    assert!(output(&run).contains("The database widened holds default privileges (1)."), "{}", output(&run));

    psql(&postgres, "postgres", "ALTER DATABASE widened ALLOW_CONNECTIONS false");
    let run = bench.restore(&backup, json!({"database_name": "widened", "overwrite": true})).await;
    assert_failed(&run, "remote_failed");
    let said = "To open it: ALTER DATABASE \"widened\" ALLOW_CONNECTIONS true;";
    assert!(output(&run).contains(said), "{}", output(&run));

    // Whoever may fill a database need not be allowed to change it.
    psql(&postgres, "postgres", "CREATE DATABASE others TEMPLATE template0");
    psql(&postgres, "others", "GRANT ALL ON DATABASE others TO filler; GRANT ALL ON SCHEMA public TO filler");
    let path = format!("/api/remote-servers/{}", bench.server);
    bench.user.client.put(&path, json!({"database_username": "filler"})).await.expect(200);
    let run = bench.restore(&backup, json!({"database_name": "others", "no_owner": true})).await;
    assert_successful(&run);
    assert!(output(&run).contains("This was not restored: COMMENT ON DATABASE"), "{}", output(&run));
    assert_eq!(psql(&postgres, "others", "SELECT a FROM t"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_that_gain_rights_and_rights_that_are_left_out_are_named() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE evil SUPERUSER LOGIN PASSWORD 'known'");
    psql(&postgres, "postgres", "CREATE ROLE app CREATEROLE REPLICATION LOGIN PASSWORD 'known'");
    psql(&postgres, "postgres", "GRANT pg_execute_server_program TO app");
    psql(&postgres, "postgres", "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_sleep(double precision) FROM PUBLIC");
    psql(&postgres, "template1", "GRANT CREATE ON SCHEMA public TO app");
    psql(
        &postgres,
        "postgres",
        "CREATE ROLE mid; CREATE ROLE joe; GRANT pg_read_server_files TO mid; GRANT mid TO joe",
    );
    psql(&postgres, "postgres", "GRANT holdfast TO mid; ALTER DATABASE template1 OWNER TO app");
    psql(&postgres, "postgres", "ALTER DATABASE template1 CONNECTION LIMIT 7");
    let task = task(&bench, json!({"database_engine": "postgresql"})).await;
    let backup = bench.back_up(task).await;
    let older = store_as_before(&bench, task, Content::PostgresCluster, &dump_all(&postgres)).await;

    let second = PostgresServer::start(false);
    psql(&second, "postgres", "CREATE ROLE app CREATEDB LOGIN PASSWORD 'own'");
    let (_ssh, server) = second_server(&bench, &second).await;
    let run = bench.restore(&older, json!({"remote_server_id": server, "overwrite": true, "dry_run": true})).await;
    assert_successful(&run);
    let named = [
        "The new role \"evil\" would gain SUPERUSER.",
        "The role \"app\" would gain CREATEROLE, REPLICATION.",
        "The password of the role \"app\" would be",
        "The role \"joe\" would gain what a superuser may do, as a member.",
        "The role \"joe\" would gain what \"pg_read_server_files\" may do, as a member.",
    ];
    named.iter().for_each(|text| assert!(output(&run).contains(text), "{text}: {}", output(&run)));
    for (is_dry, will) in [(true, "would"), (false, "will")] {
        let body = json!({"remote_server_id": server, "overwrite": true, "dry_run": is_dry});
        let run = bench.restore(&backup, body).await;
        assert_successful(&run);
        let named = [
            format!("The new role \"evil\" {will} gain SUPERUSER."),
            format!("The role \"app\" {will} gain REPLICATION, CREATEROLE."),
            format!("The password of the role \"app\" {will} be the one of the backup."),
            format!("The role \"app\" {will} gain what \"pg_execute_server_program\" may do, as a member."),
            format!("The role \"joe\" {will} gain what a superuser may do, as a member."),
            format!("The role \"joe\" {will} gain what \"pg_read_server_files\" may do, as a member."),
            format!("The database template1 stays, and so does its owner; this {will} be changed about it"),
            "ALTER DATABASE \"template1\" CONNECTION LIMIT 7;".to_owned(),
            "The database template1 held no objects of its own and stays as it is".to_owned(),
            "comments in it are not restored: ACL SCHEMA public.".to_owned(),
            "ACL FUNCTION pg_sleep(double precision)".to_owned(),
        ];
        for text in named {
            assert!(output(&run).contains(&text), "{text}: {}", output(&run));
        }
    }
    let facts = "SELECT pg_get_userbyid(datdba) || ' ' || datconnlimit FROM pg_database WHERE datname = 'template1'";
    assert_eq!(psql(&second, "postgres", facts), "holdfast 7", "it stays whose it was");
    // Nothing changes a second time, and without roles nobody gains anything.
    for no_owner in [false, true] {
        let body = json!({"remote_server_id": server, "overwrite": true, "dry_run": true, "no_owner": no_owner});
        let run = bench.restore(&backup, body).await;
        assert_successful(&run);
        let unsaid = [" gain ", "The password", "be changed about it"];
        assert!(!unsaid.iter().any(|text| output(&run).contains(text)), "{}", output(&run));
    }
    let body = json!({"remote_server_id": server, "overwrite": true, "no_owner": true});
    bench.ask_restore(&older, body).await.expect(422);
}

/// The last backup that has a database stays until somebody says that it may go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_missing_from_a_server_holds_removal() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "postgres", "CREATE DATABASE later");
    let task = task(&bench, json!({"database_engine": "postgresql", "maximum_backups_to_keep": 1})).await;
    let later = async || {
        bench.app.clock.advance_secs(60);
        bench.back_up(task).await;
        let shown = bench.user.client.get(&format!("/api/backup-tasks/{task}")).await.data(200);
        shown["protection"]["held_reason"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!((later().await, later().await), (String::new(), String::new()));
    psql(&postgres, "postgres", "ALTER DATABASE shop ALLOW_CONNECTIONS false");
    let said = later().await;
    assert!(said.ends_with("it lacks databases that a normal backup had: shop."), "{said}");
    assert_eq!(bench.backups(task).await.len(), 2);
    psql(&postgres, "postgres", "ALTER DATABASE shop ALLOW_CONNECTIONS true");
    assert_eq!(later().await, "", "it is there again");
    // What was dropped on purpose, somebody confirms.
    psql(&postgres, "postgres", "DROP DATABASE later");
    assert!(later().await.contains("had: later."));
    bench.user.client.act(&format!("/api/backup-tasks/{task}/release-retention")).await.data(200);
    assert_eq!(later().await, "");
}

/// Whoever owns a database, or may create something in it, can have names mean something else in sessions there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_others_never_run_in_our_sessions() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE DATABASE tenant");
    for database in ["tenant", "postgres"] {
        let noted = |arguments: &str, result: &str, value: &str| {
            format!(
                "({arguments}) RETURNS {result} LANGUAGE plpgsql AS $f$ BEGIN INSERT INTO evil.ran VALUES ('it ran'); \
                 RETURN {value}; END $f$"
            )
        };
        let made = [
            "CREATE SCHEMA evil; CREATE TABLE evil.ran (what text); CREATE TABLE public.a (a int)".to_owned(),
            format!("CREATE FUNCTION evil.eq {}", noted("a text, b text", "boolean", "a OPERATOR(pg_catalog.=) b")),
            "CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq)".to_owned(),
            format!("CREATE FUNCTION public.convert_to {}", noted("a name, b name", "bytea", "NULL::bytea")),
            format!("CREATE FUNCTION public.agg {}", noted("a json, b name", "json", "NULL::json")),
            "CREATE AGGREGATE public.json_agg(name) (SFUNC = public.agg, STYPE = json)".to_owned(),
            "CREATE VIEW evil.pg_database AS SELECT * FROM pg_catalog.pg_database WHERE datname = 'none'".to_owned(),
            format!("ALTER DATABASE {database} SET search_path TO evil, public, pg_catalog"),
        ];
        made.iter().for_each(|sql| drop(psql(&postgres, database, sql)));
    }
    let one = task(
        &bench,
        json!({"database_engine": "postgresql", "database_name": "tenant",
        "excluded_tables": "a"}),
    )
    .await;
    let all = task(&bench, json!({"database_engine": "postgresql"})).await;
    let (one, all) = (bench.back_up(one).await, bench.back_up(all).await);
    let older = store_as_before(
        &bench,
        all["backup_task_id"].as_i64().unwrap(),
        Content::PostgresCluster,
        &dump_all(&postgres),
    )
    .await;
    for (backup, name) in [(&one, json!("tenant")), (&all, Value::Null), (&older, Value::Null)] {
        for is_dry in [true, false] {
            let body = json!({"database_name": name, "overwrite": true, "dry_run": is_dry});
            assert_successful(&bench.restore(backup, body).await);
            for database in ["tenant", "postgres"] {
                assert_eq!(psql(&postgres, database, "SELECT pg_catalog.count(*) FROM evil.ran"), "0", "{database}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_somebody_made_in_a_postgresql_database_counts() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let made = [
        ("types (1)", "CREATE TYPE mood AS ENUM ('sad', 'ok')"),
        ("types (1)", "CREATE TYPE pair AS (a int, b int)"),
        ("types (1)", "CREATE DOMAIN positive AS int CHECK (VALUE > 0)"),
        ("schemas (1)", "CREATE SCHEMA app"),
        ("functions (1)", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'"),
        ("operators (1)", "CREATE OPERATOR === (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int)"),
        ("operator families (1)", "CREATE OPERATOR FAMILY fam USING btree"),
        ("collations (1)", "CREATE COLLATION mine FROM \"C\""),
        ("conversions (1)", "CREATE CONVERSION mine FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8"),
        ("casts (1)", "CREATE CAST (xid AS text) WITH INOUT"),
        ("publications (1)", "CREATE PUBLICATION p"),
        ("foreign-data wrappers (1)", "CREATE FOREIGN DATA WRAPPER w"),
        ("text search configurations (1)", "CREATE TEXT SEARCH CONFIGURATION c (COPY = simple)"),
        ("text search dictionaries (1)", "CREATE TEXT SEARCH DICTIONARY d (TEMPLATE = simple)"),
        ("large objects (1)", "SELECT lo_create(0)"),
        ("large objects (1)", "SELECT lo_create(5)"),
        ("default privileges (1)", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC"),
        (
            "subscriptions (1)",
            "CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1' PUBLICATION p WITH (connect = false, slot_name = NONE)",
        ),
        (
            "functions (1), event triggers (1)",
            "CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; \
             CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION f()",
        ),
    ];
    for (kind, sql) in made {
        psql(&postgres, "postgres", "CREATE DATABASE target");
        psql(&postgres, "target", sql);
        let run = bench.restore(&backup, json!({"database_name": "target"})).await;
        assert_failed(&run, "target_not_empty");
        assert!(output(&run).contains(&format!("The database target holds {kind}.")), "{sql}: {}", output(&run));
        psql(&postgres, "target", "DROP SUBSCRIPTION IF EXISTS s");
        psql(&postgres, "postgres", "DROP DATABASE target");
    }

    // What the template brings along is nobody's; an extension is there for what is restored.
    let template =
        "CREATE SCHEMA common; CREATE TYPE common.mood AS ENUM ('sad'); CREATE EXTENSION hstore SCHEMA common";
    psql(&postgres, "template1", template);
    psql(&postgres, "postgres", "CREATE DATABASE target");
    psql(&postgres, "target", "CREATE EXTENSION citext; CREATE TEMP TABLE mine (a int)");
    let run = bench.restore(&backup, json!({"database_name": "target", "dry_run": true})).await;
    assert_successful(&run);
    assert!(output(&run).contains("The database target is empty and would be filled."), "{}", output(&run));
    assert_successful(&bench.restore(&backup, json!({"database_name": "target"})).await);
    assert_eq!(psql(&postgres, "target", "SELECT count(a) || (enum_range(NULL::common.mood))::text FROM t"), "1{sad}");
    // Also what is not in a table of its own is named when it goes.
    let run = bench.restore(&backup, json!({"database_name": "target", "overwrite": true, "dry_run": true})).await;
    assert!(output(&run).contains("The database target would be replaced: tables, views"), "{}", output(&run));
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

    // Keys that lead here from another database keep it neither from being replaced nor from being whole.
    mariadb.sql("copy", "CREATE TABLE a (id INT PRIMARY KEY)");
    mariadb.sql("", "CREATE DATABASE other; CREATE TABLE other.c (id INT, FOREIGN KEY (id) REFERENCES copy.a (id))");
    assert_successful(&bench.restore(&backup, json!({"database_name": "copy", "overwrite": true})).await);
    assert_eq!(mariadb.sql("copy", "SELECT SUM(id) FROM unsold").trim(), "4");

    // A user who does not see everything is told what may be missing.
    mariadb
        .sql("", "CREATE USER weak IDENTIFIED BY 'w'; GRANT SELECT, LOCK TABLES, SHOW VIEW, EVENT ON shop.* TO weak");
    login(&bench, "weak", Some("w")).await;
    bench.back_up(task).await;
    let log = bench.latest_log(task).await;
    for missing in ["triggers of shop", "routines of shop"] {
        assert!(output(&log).contains(missing), "{missing}: {}", output(&log));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_mariadb_server_is_replaced_only_when_all_of_it_was_loaded() {
    let mariadb = MariaDbServer::start();
    mariadb.create_user("all", "pass word", "*");
    mariadb.create_user("reader", "old", "shop");
    let home = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("HOME", &mysql_home(home.path(), &mariadb)).start();
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await;
    login(&bench, "all", Some("pass word")).await;
    mariadb.sql("", "CREATE DATABASE `a``b.ü` COLLATE latin1_german2_ci; CREATE DATABASE shop COLLATE utf8mb4_bin");
    mariadb.sql("", "CREATE DATABASE empty");
    mariadb.sql("shop", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); CREATE TABLE `left.out` (a INT)");
    mariadb.sql("shop", "CREATE PROCEDURE p() SELECT 'it''s `shop`.`t`' AS s");
    mariadb.sql("a`b.ü", "CREATE TABLE t (a INT); INSERT INTO t VALUES (40)");
    // Views of the first database that need the second, one that needs another view, and one that nothing can make.
    mariadb.sql("a`b.ü", "CREATE VIEW z AS SELECT a, 'tab\\there; \\\\ ü' AS s FROM shop.t");
    mariadb.sql("a`b.ü", "CREATE VIEW `a;v` AS SELECT SUM(a) AS a FROM z");
    mariadb.sql("shop", "CREATE TABLE gone (a INT); CREATE VIEW broken AS SELECT a FROM gone; DROP TABLE gone");
    // What dumps and views forget easily.
    mariadb.sql(
        "shop",
        "CREATE SEQUENCE s; CREATE TABLE d (id INT DEFAULT nextval(shop.s) PRIMARY KEY, x INT CHECK (x > 0))",
    );
    mariadb.sql(
        "shop",
        "INSERT INTO d (x) VALUES (1), (2); SET check_constraint_checks = 0; INSERT INTO d (x) VALUES (-1)",
    );
    mariadb.sql(
        "a`b.ü",
        "CREATE TABLE child (id INT, FOREIGN KEY (id) REFERENCES shop.d (id)); INSERT INTO child VALUES (2)",
    );
    mariadb.sql("shop", "SET NAMES latin1; CREATE VIEW old AS SELECT 'abc' = 'ABC' AS x, COLLATION('abc') AS c");
    mariadb.sql("shop", "CREATE VIEW bytes AS SELECT HEX(_latin1 0xe9) AS x");
    mariadb.sql(
        "shop",
        "CREATE ROLE runs; GRANT EXECUTE ON shop.* TO runs; CREATE DEFINER=runs PROCEDURE by_role() SELECT 7",
    );
    mariadb.sql("shop", "CREATE USER app; GRANT ALL ON shop.* TO app; CREATE DEFINER=app VIEW first AS SELECT SUM(a) AS a, 1 AS b FROM t");
    mariadb.sql("shop", "CREATE DEFINER=app VIEW second AS SELECT * FROM first");
    // All users may do something here. It is listed like a role, and cannot be made like one.
    mariadb.sql("", "GRANT SELECT ON shop.t TO PUBLIC; GRANT runs TO PUBLIC");
    mariadb.sql("", "CREATE DATABASE SYS; CREATE TABLE SYS.x (a INT); INSERT INTO SYS.x VALUES (9)");
    mariadb.sql("", "SET GLOBAL event_scheduler = ON; CREATE DATABASE counts; CREATE TABLE counts.t (a INT)");
    mariadb.sql("shop", "CREATE EVENT tick ON SCHEDULE EVERY 1 SECOND ON COMPLETION PRESERVE DISABLE DO INSERT INTO counts.t VALUES (1)");
    let options = json!({"database_engine": "mysql", "excluded_tables": "left.out"});
    let task = task(&bench, options).await;
    bench.back_up(task).await;
    assert!(
        !output(&bench.latest_log(task).await).contains("server's own databases"),
        "what comes with it is no stray"
    );
    mariadb.sql("", "CREATE TABLE mysql.ops (a INT); CREATE VIEW sys.mine AS SELECT 1; CREATE FUNCTION mysql.f() RETURNS INT RETURN 1");
    let backup = bench.back_up(task).await;
    let log = bench.latest_log(task).await;
    assert!(output(&log).contains("keep them in one of your own: mysql.ops, sys.mine, mysql.f."), "{}", output(&log));
    assert_eq!(backup["content"], "mysql-server");
    let said = |sql: &str| mariadb.sql("", sql).trim().to_owned();
    let states = [
        "SELECT x, c FROM shop.old",
        "SELECT x FROM shop.bytes",
        "SELECT a FROM SYS.x",
        "CALL shop.by_role()",
        "SELECT definer FROM information_schema.routines WHERE routine_name = 'by_role'",
        "SELECT GROUP_CONCAT(id, ' ', x) FROM shop.d",
        "SELECT SUM(a) FROM shop.t",
        "SELECT a FROM `a``b.ü`.`a;v`",
        "SELECT s FROM `a``b.ü`.z LIMIT 1",
    ];
    let before: Vec<String> = states.iter().map(|sql| said(sql)).collect();

    // One dump that cannot be loaded: what is there stays, in every database.
    mariadb.sql("shop", "DELETE FROM t; CREATE TABLE precious (a INT)");
    mariadb.sql("a`b.ü", "DELETE FROM t; CREATE TABLE precious (a INT)");
    bench.ask_restore(&backup, json!({"remote_server_id": bench.server})).await.error_of("overwrite");
    let run = bench.restore(&backup, json!({"overwrite": true, "dry_run": true})).await;
    assert_successful(&run);
    assert!(output(&run).contains("shop would be replaced"), "{}", output(&run));
    // A folder with something in it that is not the server's, and a user who may not make views for others.
    let folder = mariadb.socket().parent().unwrap().join("data/shop/export.csv");
    std::fs::write(&folder, "1").unwrap();
    mariadb.sql("", "REVOKE SUPER, SET USER ON *.* FROM `all`@`%`; FLUSH PRIVILEGES");
    let run = bench.restore(&backup, json!({"overwrite": true})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(output(&run).contains("No database that was there was changed"), "{}", output(&run));
    assert_eq!(said("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'precious'"), "2");
    assert_eq!(said("SHOW DATABASES LIKE '%holdfast%'"), "", "nothing is left behind");

    mariadb.sql("", "GRANT ALL ON *.* TO `all`@`%`; DROP DATABASE empty");
    mariadb.sql("", "SET PASSWORD FOR `reader`@`%` = PASSWORD('new'); CREATE USER newcomer; CREATE DATABASE other");
    let reader = "SELECT JSON_VALUE(priv, '$.authentication_string') = PASSWORD('old') FROM mysql.global_priv \
        WHERE user = 'reader' AND host = '%'";
    assert_eq!(said(reader), "0");
    let run = bench.restore(&backup, json!({"overwrite": true})).await;
    assert_successful(&run);
    let after: Vec<String> = states.iter().map(|sql| said(sql)).collect();
    assert_eq!(after, before);
    assert_eq!(said("CALL shop.p()"), "it's `shop`.`t`");
    assert_eq!(said("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'precious'"), "0");
    assert_eq!(said("SHOW DATABASES LIKE '%holdfast%'"), "", "nothing is left behind");
    assert_eq!(said("SHOW DATABASES LIKE 'empty'"), "empty");
    let collation = |name: &str| mariadb.sql(name, "SELECT @@collation_database").trim().to_owned();
    assert_eq!((collation("a`b.ü"), collation("shop")), ("latin1_german2_ci".into(), "utf8mb4_bin".into()));
    assert!(output(&run).contains("shop.broken"), "a view that cannot be made is named: {}", output(&run));
    assert_eq!(mariadb.sql("shop", "SHOW TABLES LIKE 'left%'").trim(), "");
    assert_eq!((said(reader).as_str(), said("SHOW DATABASES LIKE 'other'").as_str()), ("1", "other"));
    assert_eq!(said("SELECT COUNT(*) FROM mysql.global_priv WHERE user = 'newcomer'"), "1");

    // On a bare server whose account has another password: definers come with the users, before the views.
    let bare = MariaDbServer::start();
    bare.create_user("all", "another", "*");
    let home = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("HOME", &mysql_home(home.path(), &bare)).start();
    let server = add_server(&bench, &ssh, json!({"database_username": "all", "database_password": "another"})).await;
    let run = bench.restore(&backup, json!({"remote_server_id": server, "overwrite": true})).await;
    assert_successful(&run);
    assert_eq!(bare.sql("", "SELECT a, b FROM shop.second").trim(), "3\t1");
    assert_eq!(bare.sql("", reader).trim(), "1");
    for grant in ["GRANT SELECT ON `shop`.`t` TO PUBLIC", "GRANT `runs` TO PUBLIC"] {
        assert!(bare.sql("", "SHOW GRANTS FOR PUBLIC").contains(grant), "{grant}");
    }
    assert_successful(&bench.restore(&backup, json!({"remote_server_id": server, "overwrite": true})).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_restore_sets_which_libraries_a_session_loads() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE app");
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    psql(&postgres, "postgres", "ALTER ROLE ALL SET session_preload_libraries TO 'auto_explain'");
    psql(&postgres, "postgres", "ALTER DATABASE shop SET session_preload_libraries TO 'auto_explain'");
    psql(&postgres, "postgres", "ALTER ROLE app IN DATABASE shop SET role TO 'holdfast'");
    psql(&postgres, "postgres", "ALTER DATABASE shop SET work_mem TO '77MB'");
    psql(&postgres, "postgres", "GRANT SET ON PARAMETER session_preload_libraries TO app");
    let server_backup = bench.back_up(task(&bench, json!({"database_engine": "postgresql"})).await).await;
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;

    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    let body = json!({"remote_server_id": server, "overwrite": true});
    let run = bench.restore(&server_backup, body).await;
    assert_successful(&run);
    let named = [
        "all roles",
        "database \"shop\"",
        "role \"app\" in database \"shop\"",
        "The right SET of role \"app\" to the setting",
    ];
    for name in named {
        assert!(output(&run).contains(name), "{name}: {}", output(&run));
    }
    let settings = "SELECT string_agg(array_to_string(setconfig, ','), ';') FROM pg_db_role_setting";
    assert_eq!(psql(&second, "postgres", settings), "work_mem=77MB");
    let may_set = "SELECT has_parameter_privilege('app', 'session_preload_libraries', 'SET')";
    assert_eq!(psql(&second, "postgres", may_set), "f");

    let body = json!({"remote_server_id": server, "database_name": "copy"});
    let run = bench.restore(&backup, body).await;
    assert_successful(&run);
    let said = "The setting \"session_preload_libraries\" of database \"shop\" was not restored: ";
    assert!(output(&run).contains(said), "{}", output(&run));
    assert_eq!(psql(&second, "copy", "SHOW session_preload_libraries"), "");
    assert_eq!(psql(&second, "copy", "SHOW work_mem"), "77MB");
}

/// All databases in SQL, as the first release asked for them.
fn dump_all(postgres: &PostgresServer) -> Vec<u8> {
    let dump = Command::new("pg_dumpall")
        .args(["--clean", "--if-exists", "-h", "127.0.0.1", "-p", &postgres.port().to_string(), "-U", "holdfast"])
        .output()
        .unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    dump.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_could_damage_a_server_are_named_and_not_restored() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE app");
    psql(&postgres, "postgres", "CREATE DATABASE shop OWNER app");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    let settings = [
        "ROLE app SET zero_damaged_pages TO on",
        "ROLE app SET lo_compat_privileges TO on",
        "ROLE app SET work_mem TO '7MB'",
        "ROLE app IN DATABASE shop SET ignore_checksum_failure TO on",
        "DATABASE shop SET session_replication_role TO replica",
        "DATABASE shop SET app.tenant TO 'secret'",
        "ROLE ALL SET statement_timeout TO '1h'",
        "ROLE ALL SET timezone TO 'Europe/Rome'",
        // Refused by every session that has loaded this language.
        "ROLE app SET plpgsql.nonsense TO 'x'",
    ];
    settings.iter().for_each(|setting| drop(psql(&postgres, "postgres", &format!("ALTER {setting}"))));
    let task = task(&bench, json!({"database_engine": "postgresql"})).await;
    let backup = bench.back_up(task).await;
    psql(&postgres, "postgres", "ALTER ROLE app RESET plpgsql.nonsense");
    let older = store_as_before(&bench, task, Content::PostgresCluster, &dump_all(&postgres)).await;

    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    let restored = "SELECT string_agg(one, ' ' ORDER BY one) FROM pg_db_role_setting, unnest(setconfig) one";
    let body = json!({"remote_server_id": server, "overwrite": true});
    for (is_older, backup) in [(false, backup), (true, older)] {
        let run = bench.restore(&backup, body.clone()).await;
        assert_successful(&run);
        // Dumps of the first release have nothing of all roles; what was set before stays.
        assert_eq!(psql(&second, "postgres", restored), "TimeZone=Europe/Rome app.tenant=secret work_mem=7MB");
        let by_hand = match is_older {
            true => "To set it by hand: ALTER ROLE app SET zero_damaged_pages TO 'on';",
            false => "To set it by hand: ALTER ROLE \"app\" SET \"zero_damaged_pages\" TO 'on';",
        };
        let named =
            ["of role \"app\" in database \"shop\"", "\"session_replication_role\" of database \"shop\"", by_hand];
        for named in named.into_iter().chain((!is_older).then_some("\"statement_timeout\" of all roles")) {
            assert!(output(&run).contains(named), "{named}: {}", output(&run));
        }
        let refused = "A setting was refused by this server: ALTER ROLE \"app\" SET \"plpgsql.nonsense\" TO …;";
        assert_eq!(output(&run).contains(refused), !is_older, "{}", output(&run));
        assert!(!output(&run).contains("secret"), "{}", output(&run));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_target_do_not_end_a_restore() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    let task = task(&bench, json!({"database_engine": "postgresql"})).await;
    let backup = bench.back_up(task).await;
    let older = store_as_before(&bench, task, Content::PostgresCluster, &dump_all(&postgres)).await;

    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    psql(&second, "postgres", "CREATE DATABASE elsewhere");
    let timeouts = ["statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"];
    for name in timeouts {
        psql(&second, "postgres", &format!("ALTER ROLE ALL SET {name} TO '300ms'"));
    }
    psql(&second, "postgres", "ALTER ROLE ALL SET default_transaction_read_only TO on");
    for backup in [backup, older] {
        // Whoever makes or changes a database has to wait for this one.
        let mut holder = Command::new("psql")
            .args(["-Xq", "-h", "127.0.0.1", "-p", &second.port().to_string(), "-U", "holdfast", "-d", "elsewhere"])
            .args(["-c", "SET statement_timeout = 0", "-c"])
            .arg("BEGIN READ WRITE; LOCK TABLE pg_database IN SHARE MODE; SELECT pg_sleep(600)")
            .env("PGAPPNAME", "holder")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let holding =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holder' AND wait_event = 'PgSleep'";
        wait_for(async || (psql(&second, "elsewhere", holding) == "1").then_some(())).await;
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast' AND wait_event_type = \
            'Lock' AND clock_timestamp() - query_start > '600ms'";
        let release = async {
            wait_for(async || (psql(&second, "elsewhere", waiting) != "0").then_some(())).await;
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holder'";
            psql(&second, "elsewhere", end);
            holder.wait().unwrap();
        };
        let body = json!({"remote_server_id": server, "overwrite": true});
        let (run, ()) = tokio::join!(bench.restore(&backup, body), release);
        assert_successful(&run);
        assert_eq!(psql(&second, "shop", "SELECT a FROM t"), "1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_after_the_databases_were_replaced_says_so() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE a; CREATE ROLE b; GRANT a TO b");
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    let backup = bench.back_up(task(&bench, json!({"database_engine": "postgresql"})).await).await;
    psql(&postgres, "shop", "DELETE FROM t");
    psql(&postgres, "postgres", "REVOKE a FROM b; GRANT b TO a");
    let run = bench.restore(&backup, json!({"overwrite": true})).await;
    assert_failed(&run, "remote_failed");
    let said = "is a member of role \"b\". The databases were already replaced; roles and settings may be";
    assert!(output(&run).contains(said), "{}", output(&run));
    assert_eq!(psql(&postgres, "shop", "SELECT a FROM t"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_does_not_lock_out_the_role_it_is_connected_as() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE keeper NOLOGIN CONNECTION LIMIT 0 VALID UNTIL '2001-01-01'");
    psql(&postgres, "postgres", "CREATE ROLE app CONNECTION LIMIT 7");
    psql(&postgres, "postgres", "CREATE DATABASE shop OWNER app");
    psql(&postgres, "postgres", "ALTER ROLE keeper SET default_transaction_read_only TO on");
    psql(&postgres, "postgres", "ALTER ROLE keeper IN DATABASE shop SET search_path TO nowhere");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    let task = task(&bench, json!({"database_engine": "postgresql"})).await;
    let backup = bench.back_up(task).await;
    let older = store_as_before(&bench, task, Content::PostgresCluster, &dump_all(&postgres)).await;

    let second = PostgresServer::start(false);
    let keeper = "CREATE ROLE keeper SUPERUSER LOGIN PASSWORD 'own'";
    psql(&second, "postgres", keeper);
    psql(&second, "postgres", "ALTER ROLE keeper SET work_mem TO '55MB'");
    let (_ssh, server) = second_server(&bench, &second).await;
    let path = format!("/api/remote-servers/{server}");
    bench.user.client.put(&path, json!({"database_username": "keeper"})).await.expect(200);
    let facts = "SELECT row(rolsuper, rolcanlogin, rolconnlimit, rolvaliduntil, rolpassword) FROM pg_authid \
        WHERE rolname = 'keeper'";
    let before = psql(&second, "postgres", facts);
    for backup in [backup, older] {
        let body = json!({"remote_server_id": server, "overwrite": true});
        let run = bench.restore(&backup, body).await;
        assert_successful(&run);
        assert_eq!(psql(&second, "postgres", facts), before);
        let settings = "SELECT string_agg(setconfig::text, ';') FROM pg_db_role_setting";
        assert_eq!(psql(&second, "postgres", settings), "{work_mem=55MB}");
        let said = "The role keeper, as which this restore is connected, keeps its attributes, its password and its \
            settings.";
        assert!(output(&run).contains(said), "{}", output(&run));
        let limit = "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'app'";
        assert_eq!(psql(&second, "postgres", limit), "7", "others are what they were");
        psql(&second, "postgres", "ALTER ROLE app CONNECTION LIMIT 1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_go_with_a_replaced_database_are_named() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(
        &postgres,
        "shop",
        "CREATE TABLE kept AS SELECT 1 a; CREATE TABLE sessions AS SELECT 1 a; CREATE EXTENSION hstore",
    );
    let options = json!({"database_name": "shop", "database_engine": "postgresql", "excluded_tables": "sessions"});
    let one = bench.back_up(task(&bench, options).await).await;
    let options = json!({"database_engine": "postgresql", "excluded_tables": "sessions"});
    let all = bench.back_up(task(&bench, options).await).await;

    let said = "The database shop would be replaced as a whole. These tables are not in the backup and would be gone: \
        public.sessions.";
    for (backup, no_owner) in [(&one, false), (&one, true), (&all, false)] {
        let name = if backup["id"] == one["id"] { json!("shop") } else { json!(null) };
        let body = json!({"database_name": name, "overwrite": true, "dry_run": true, "no_owner": no_owner});
        let run = bench.restore(backup, body).await;
        assert_successful(&run);
        assert!(output(&run).contains(said), "{}", output(&run));
    }
    psql(&postgres, "shop", "DO 'BEGIN FOR i IN 1..24 LOOP EXECUTE format(''CREATE TABLE t%s ()'', i); END LOOP; END'");
    let run = bench.restore(&one, json!({"database_name": "shop", "overwrite": true})).await;
    assert_successful(&run);
    let said =
        "will be replaced as a whole. These tables are not in the backup and will be gone: public.sessions, public.t1,";
    assert!(output(&run).contains(said) && output(&run).contains(" and 5 more."), "{}", output(&run));
    let run = bench.restore(&one, json!({"database_name": "shop", "overwrite": true})).await;
    assert_successful(&run);
    assert!(!output(&run).contains("gone"), "{}", output(&run));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_subscriptions_and_prepared_transactions_of_a_replaced_database_are_named() {
    let mut postgres = PostgresServer::start(false);
    psql(&postgres, "postgres", "ALTER SYSTEM SET wal_level TO logical");
    psql(&postgres, "postgres", "ALTER SYSTEM SET max_prepared_transactions TO 5");
    postgres.stop();
    postgres.start_again();
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let one = bench.back_up(task(&bench, options).await).await;
    let task = task(&bench, json!({"database_engine": "postgresql"})).await;
    let all = bench.back_up(task).await;
    let older = store_as_before(&bench, task, Content::PostgresCluster, &dump_all(&postgres)).await;
    let backups = [(&one, json!("shop")), (&all, json!(null)), (&older, json!(null))];

    let subscription = "CREATE SUBSCRIPTION orders CONNECTION 'host=127.0.0.1' PUBLICATION p WITH (connect = false)";
    psql(&postgres, "shop", subscription);
    psql(&postgres, "shop", "BEGIN; DELETE FROM t; PREPARE TRANSACTION 'half done'");
    for is_dry in [true, false] {
        for (backup, name) in &backups {
            let body = json!({"database_name": name, "overwrite": true, "dry_run": is_dry});
            let run = bench.restore(backup, body).await;
            assert_failed(&run, "remote_failed");
            for named in
                ["has prepared transactions", "half done.", "has subscriptions", "orders. Nothing was changed."]
            {
                assert!(output(&run).contains(named), "{named}: {}", output(&run));
            }
        }
    }
    psql(&postgres, "shop", "ROLLBACK PREPARED 'half done'");
    psql(&postgres, "shop", "ALTER SUBSCRIPTION orders SET (slot_name = NONE); DROP SUBSCRIPTION orders");

    psql(&postgres, "postgres", "CREATE DATABASE other");
    for (backup, name) in &backups {
        psql(&postgres, "shop", "SELECT pg_create_logical_replication_slot('to_reports', 'test_decoding')");
        psql(&postgres, "other", "SELECT pg_create_logical_replication_slot('other', 'test_decoding')");
        for is_dry in [true, false] {
            let body = json!({"database_name": name, "overwrite": true, "dry_run": is_dry});
            let run = bench.restore(backup, body).await;
            assert_successful(&run);
            let verb = if is_dry { "would be" } else { "will be" };
            let said = format!("belong to the database shop and {verb} gone with it: to_reports. ");
            assert!(output(&run).contains(&said), "{}", output(&run));
        }
        let left = "SELECT string_agg(slot_name, ',') FROM pg_replication_slots";
        assert_eq!(psql(&postgres, "postgres", left), "other", "as it was said");
        psql(&postgres, "postgres", "SELECT pg_drop_replication_slot('other')");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_nobody_may_end_leaves_everything_as_it_was() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE plain LOGIN CREATEDB");
    psql(&postgres, "postgres", "CREATE DATABASE shop OWNER plain");
    psql(&postgres, "shop", "SET ROLE plain; CREATE SCHEMA own; CREATE TABLE own.t AS SELECT 1 a");
    login(&bench, "plain", None).await;
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    psql(&postgres, "shop", "UPDATE own.t SET a = 2");
    let mut open = session(&postgres, "shop");
    let is_there = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop' AND wait_event = 'PgSleep'";
    wait_for(async || (psql(&postgres, "postgres", is_there) == "1").then_some(())).await;
    let run = bench.restore(&backup, json!({"database_name": "shop", "overwrite": true})).await;
    open.kill().unwrap();
    open.wait().unwrap();
    assert_failed(&run, "remote_failed");
    assert!(output(&run).contains("No database was changed."), "{}", output(&run));
    assert!(!output(&run).contains("closed to connections"), "{}", output(&run));
    assert_eq!(psql(&postgres, "shop", "SELECT a FROM own.t"), "2");
    let left = "SELECT count(*) FROM pg_database WHERE datname ~ '^holdfast_(restore|swap|old)'";
    assert_eq!(psql(&postgres, "postgres", left), "0", "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_drops_while_databases_change_places_leaves_none_closed() {
    let postgres = PostgresServer::start(false);
    let shims = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("PGHOST", "127.0.0.1").set_env("PGPORT", &postgres.port().to_string());
    let ssh = ssh.with_path_shims(shims.path()).start();
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await;
    login(&bench, "holdfast", None).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let is_open = "SELECT datallowconn FROM pg_database WHERE datname = 'shop'";
    let folder = shims.path().display();
    let real = "/usr/bin/psql \"$@\"";
    // The session that closes the database gets what it is sent, or only its beginning; later ones may reach nothing.
    let whole = "cat";
    let beginning = "sed '/^COMMIT/q'";
    for (reaches, drops) in [(whole, true), (beginning, false), (beginning, true)] {
        psql(&postgres, "shop", "UPDATE t SET a = 2");
        let drop = if drops { format!("touch {folder}/down") } else { ":".to_owned() };
        let lines = [
            format!("[ ! -e {folder}/down ] || {{ echo 'connection refused' >&2; exit 2; }}"),
            format!("case \"$*\" in *--file=-*) cat > {folder}/in ;; *) exec {real} ;; esac"),
            format!("grep -q 'ALLOW_CONNECTIONS false' {folder}/in || exec {real} < {folder}/in"),
            format!("{reaches} {folder}/in | {real}; status=$?; {drop}"),
            format!("[ '{reaches}' = cat ] || status=2\nexit $status"),
        ];
        shim(&shims, "psql", &lines.join("\n"));
        let run = bench.restore(&backup, json!({"database_name": "shop", "overwrite": true})).await;
        std::fs::remove_file(shims.path().join("psql")).unwrap();
        let _is_there = std::fs::remove_file(shims.path().join("down"));
        let is_left = output(&run).contains("closed to connections");
        assert_eq!(is_left, drops, "{}", output(&run));
        if reaches == whole {
            assert_successful(&run);
            assert!(output(&run).contains("The old database was left behind as holdfast_old_"), "{}", output(&run));
            assert_eq!(psql(&postgres, "shop", "SELECT a FROM t"), "1");
            continue;
        }
        assert_eq!(run["status"], "failed", "{}", output(&run));
        assert_eq!(psql(&postgres, "postgres", is_open), if drops { "f" } else { "t" });
        if drops {
            let said = ["not known", "to open them again: ALTER DATABASE \"shop\" ALLOW_CONNECTIONS true;"];
            assert!(said.iter().all(|said| output(&run).contains(said)), "{}", output(&run));
            psql(&postgres, "postgres", "ALTER DATABASE shop ALLOW_CONNECTIONS true");
        } else {
            assert!(output(&run).contains("No database was changed."), "{}", output(&run));
        }
        assert_eq!(psql(&postgres, "shop", "SELECT a FROM t"), "2");
    }
}

/// Stores a dump as the first release did: frames of a mebibyte, an index with a manifest and no entries, and its row. The run is
/// that of another backup of the task.
async fn store_as_before(bench: &Bench, task: i64, content: Content, dump: &[u8]) -> Value {
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
        destination: DestinationId(bench.destination),
        run: RunId(other["run_id"].as_i64().unwrap()),
        task_label: "Web files".to_owned(),
        source: "all databases".to_owned(),
        source_server: String::new(),
        signs: Vec::new(),
        content,
        key,
        size_bytes: object.len().try_into().unwrap(),
        sha256: sha256(&object),
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
        let backup = store_as_before(&bench, task, Content::PostgresCluster, &dump).await;
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

        // Neither does one that would take a database away for ever.
        psql(&postgres, "postgres", "CREATE DATABASE payroll");
        let evil = String::from_utf8(dump.clone()).unwrap();
        let evil = evil.replacen("DROP DATABASE ", "DROP DATABASE IF EXISTS payroll;\nDROP DATABASE ", 1);
        let backup = store_as_before(&bench, task, Content::PostgresCluster, evil.as_bytes()).await;
        assert_failed(&bench.restore(&backup, json!({"overwrite": true})).await, "hostile_archive");
        assert_eq!(psql(&postgres, "payroll", "SELECT 1"), "1");
        // One that would have psql do something else changes nothing.
        let evil = [&dump[..], b"\\! id\n--\n-- PostgreSQL database cluster dump complete\n--\n"].concat();
        let backup = store_as_before(&bench, task, Content::PostgresCluster, &evil).await;
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
        let backup = store_as_before(&bench, task, Content::MysqlServerDump, &dump.stdout).await;
        assert_eq!(backup["content"], "mysql-all");
        assert_eq!(bench.verify(&backup).await["status"], "successful");
        mariadb.sql("", "DROP DATABASE shop");
        assert_successful(&bench.restore(&backup, json!({"overwrite": true})).await);
        assert_eq!(mariadb.sql("shop", "SELECT SUM(a) FROM t").trim(), "3");
    }
}

fn shim(shims: &TempDir, name: &str, script: &str) {
    let path = shims.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A server whose account finds this MariaDB, with a folder first on its path; a user who may do everything there.
async fn mariadb_bench(mariadb: &MariaDbServer, shims: &TempDir, settings: Settings) -> Bench {
    let ssh = SshServer::builder().with_path_shims(shims.path()).set_env("HOME", &mysql_home(shims.path(), mariadb));
    let app = TestApp::start_with(holdfast_testkit::Engine::Sqlite, settings).await;
    let bench = Bench::with(app, ssh.start()).await;
    mariadb.create_user("ada", "secret", "*");
    login(&bench, "ada", Some("secret")).await;
    bench
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_dump_takes_no_file_of_the_ssh_user_along() {
    let mariadb = MariaDbServer::start();
    mariadb.sql("mysql", "SET GLOBAL local_infile = ON; CREATE DATABASE kept; CREATE DATABASE control");
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    // What the account itself wants from its client counts for nothing.
    let mut options = std::fs::read_to_string(shims.path().join(".my.cnf")).unwrap();
    options.push_str("[mysql]\nlocal-infile=1\n[mariadb-client]\nlocal-infile=1\n");
    std::fs::write(shims.path().join(".my.cnf"), options).unwrap();
    let secret = shims.path().join("id_ed25519");
    std::fs::write(&secret, "a private key\n").unwrap();
    let load = format!(
        "CREATE TABLE loot (a TEXT);\nLOAD DATA LOCAL INFILE '{}' INTO TABLE loot;\n-- Dump completed\n",
        secret.display()
    );
    let dump = format!("-- MariaDB dump 10.19\n--\n{load}");
    std::fs::write(shims.path().join("dump"), &dump).unwrap();
    let script = format!("case $2 in --help) exit 0;; esac; exec cat {}/dump", shims.path().display());
    shim(&shims, "mariadb-dump", &script);
    let task = task(&bench, json!({"database_name": "kept", "database_engine": "mysql"})).await;
    let backup = bench.back_up(task).await;

    // A client that is not told otherwise does send the file to this server.
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--user=root", "--local-infile=1"]);
    client.arg(format!("--socket={}", mariadb.socket().display())).args(["control", "-e", &load]);
    assert!(client.status().unwrap().success());
    assert_eq!(mariadb.sql("control", "SELECT a FROM loot").trim(), "a private key");

    for name in ["kept", "fresh"] {
        let run = bench.restore(&backup, json!({"database_name": name})).await;
        assert_failed(&run, "remote_failed");
        assert!(output(&run).contains("local infile"), "{}", output(&run));
    }
    assert_eq!(mariadb.sql("kept", "SHOW TABLES").trim(), "", "it was empty, and is again");
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE 'fresh'").trim(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn option_files_of_the_account_change_neither_the_user_nor_the_dump() {
    let mariadb = MariaDbServer::start();
    mariadb.sql("", "CREATE DATABASE shop");
    mariadb.sql("shop", "CREATE TABLE t AS SELECT seq FROM seq_1_to_300");
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    let mut options = std::fs::read_to_string(shims.path().join(".my.cnf")).unwrap();
    options.push_str("user = root\n[ mysqldump ]\nno-data\nwhere = 1=0\npassword=wrong\nno-such-option\n");
    std::fs::write(shims.path().join(".my.cnf"), options).unwrap();
    mariadb.create_user("lim", "it's \"secret\"", "shop");
    mariadb.sql("", "GRANT ALL ON back.* TO lim@'%'");
    login(&bench, "lim", Some("it's \"secret\"")).await;
    let backup = bench.back_up(task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await).await;
    assert_successful(&bench.restore(&backup, json!({"database_name": "back"})).await);
    assert_eq!(mariadb.sql("back", "SELECT COUNT(*) FROM t").trim(), "300");
    let run = bench.restore(&backup, json!({"database_name": "elsewhere"})).await;
    assert_failed(&run, "database_auth");
    login(&bench, "lim", Some("wrong")).await;
    assert_failed(&bench.restore(&backup, json!({"database_name": "back", "overwrite": true})).await, "database_auth");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_database_under_another_name_leaves_the_first_one_alone() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE prod; CREATE TABLE prod.audit (a INT); INSERT INTO prod.audit VALUES (1)");
    mariadb.sql("prod", "CREATE SEQUENCE sq; CREATE TABLE o (id INT DEFAULT nextval(sq)); INSERT INTO o VALUES (), ()");
    let trigger = "CREATE TRIGGER prod.tg\nAFTER DELETE ON prod.o FOR EACH ROW\nDELETE FROM prod.audit";
    mariadb.sql("prod", trigger);
    // The server writes the database before sequences and functions of views, and before tables where there are others.
    mariadb.sql("prod", "CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC RETURN x + 1");
    mariadb.sql("prod", "CREATE VIEW asks AS SELECT nextval(sq) AS n, f(a) AS g FROM audit");
    mariadb.sql("", "CREATE DATABASE other; CREATE TABLE other.audit (a INT); INSERT INTO other.audit VALUES (1)");
    mariadb.sql("prod", "CREATE VIEW joins AS SELECT a.a FROM audit a JOIN other.audit USING (a)");
    mariadb.sql("prod", "CREATE VIEW same AS SELECT prod.audit.a FROM audit JOIN other.audit WHERE other.audit.a = 1");
    let one = json!({"database_name": "prod", "database_engine": "mysql"});
    let one = bench.back_up(task(&bench, one).await).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    let triggers = "SELECT GROUP_CONCAT(trigger_schema, '.', trigger_name ORDER BY 1) FROM information_schema.triggers";

    mariadb.sql("prod", "DROP TRIGGER tg");
    let run = bench.restore(&one, json!({"database_name": "prod_test"})).await;
    assert_successful(&run);
    assert_eq!(mariadb.sql("", triggers).trim(), "prod_test.tg");
    let said = "name the database prod in what they do, and still mean it: tg.";
    assert!(output(&run).contains(said), "{}", output(&run));
    let next = mariadb.sql("prod", "SELECT next_not_cached_value FROM sq");
    mariadb.sql("prod_test", "INSERT INTO o VALUES ()");
    assert_eq!(mariadb.sql("prod", "SELECT next_not_cached_value FROM sq"), next);
    assert!(!mariadb.sql("prod_test", "SHOW CREATE TABLE o").contains("`prod`."));
    for view in ["asks", "joins", "same"] {
        let shown = mariadb.sql("prod_test", &format!("SHOW CREATE VIEW {view}"));
        assert!(!shown.contains("`prod`."), "{shown}");
    }
    assert_eq!(mariadb.sql("prod_test", "SELECT g FROM asks").trim(), "2");
    assert_eq!(mariadb.sql("prod", "SELECT next_not_cached_value FROM sq"), next);

    // With its trigger there, and with its sequence gone.
    mariadb.sql("", "DROP DATABASE prod_test");
    mariadb.sql("prod", trigger);
    for (backup, name) in [(&one, json!("prod")), (&all, json!(null)), (&one, json!("prod"))] {
        let run = bench.restore(backup, json!({"database_name": name, "overwrite": true})).await;
        assert_successful(&run);
        assert_eq!(mariadb.sql("", triggers).trim(), "prod.tg");
        assert_eq!(mariadb.sql("prod", "SELECT COUNT(*), COUNT(DISTINCT id) FROM o").trim(), "2\t2");
        assert_eq!(mariadb.sql("prod", "SELECT COUNT(*) FROM joins NATURAL JOIN same").trim(), "1");
        mariadb.sql("prod", "ALTER TABLE o ALTER id DROP DEFAULT; DROP SEQUENCE sq");
    }

    // A view of a view, as a user with rights to this database alone. Without them what is there stays, and the way out is
    // named.
    mariadb
        .sql("other", "CREATE USER app; GRANT ALL ON other.* TO app; CREATE DEFINER=app VIEW a AS SELECT a FROM audit");
    mariadb.sql("other", "CREATE DEFINER=app VIEW b AS SELECT a FROM a");
    mariadb.sql("other", "CREATE DEFINER=app FUNCTION twice(x INT) RETURNS INT DETERMINISTIC RETURN 2 * x");
    mariadb.sql("other", "CREATE DEFINER=app VIEW c AS SELECT twice(a) AS a FROM audit");
    let other = json!({"database_name": "other", "database_engine": "mysql"});
    let other = bench.back_up(task(&bench, other).await).await;
    mariadb.sql("other", "DELETE FROM audit");
    assert_successful(&bench.restore(&other, json!({"database_name": "other", "overwrite": true})).await);
    assert_eq!(mariadb.sql("other", "SELECT b.a, c.a FROM b, c").trim(), "1\t2");
    let functions =
        "SELECT CONCAT(routine_name, ' ', definer) FROM information_schema.routines WHERE routine_schema = 'other'";
    assert_eq!(mariadb.sql("", functions).trim(), "twice app@%");
    let definers = "SELECT GROUP_CONCAT(table_schema, '.', table_name, ' ', definer ORDER BY table_name) FROM \
        information_schema.views WHERE definer LIKE 'app@%' OR table_name LIKE 'probe%'";
    assert_eq!(mariadb.sql("", definers).trim(), "other.a app@%,other.b app@%,other.c app@%");
    // A function alone is enough.
    let called = json!({"database_name": "called", "database_engine": "mysql"});
    mariadb.sql("", "CREATE DATABASE called; GRANT ALL ON called.* TO app");
    mariadb.sql("called", "CREATE DEFINER=app FUNCTION one() RETURNS INT DETERMINISTIC RETURN 1");
    mariadb.sql("called", "CREATE DEFINER=app VIEW v AS SELECT one() AS a");
    let called = bench.back_up(task(&bench, called).await).await;
    assert_successful(&bench.restore(&called, json!({"database_name": "called", "overwrite": true})).await);
    assert_eq!(mariadb.sql("called", "SELECT a FROM v").trim(), "1");
    let run = bench.restore(&called, json!({"database_name": "called_2"})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(output(&run).contains("Restore without owners, or give that user the rights to it."), "{}", output(&run));
    mariadb.sql("", "DROP DATABASE called");
    mariadb.sql("other", "REVOKE ALL ON other.* FROM app; DELETE FROM audit");
    let run = bench.restore(&other, json!({"database_name": "other", "overwrite": true})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    let said = "Restore without owners, or give that user the rights to it. The database other was not changed.";
    assert!(output(&run).contains(said), "{}", output(&run));
    assert_eq!(mariadb.sql("", definers).trim(), "other.a app@%,other.b app@%,other.c app@%");
    assert_eq!(mariadb.sql("other", "SELECT COUNT(*) FROM audit").trim(), "0");
    let run = bench.restore(&other, json!({"database_name": "other", "overwrite": true, "no_owner": true})).await;
    assert_successful(&run);
    assert_eq!(mariadb.sql("other", "SELECT a FROM b").trim(), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_empty_for_mysql_keeps_what_it_has_and_becomes_what_it_was() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE shop COLLATE utf8mb4_unicode_ci; CREATE TABLE shop.t AS SELECT 1 AS a");
    mariadb.sql("", "CREATE DATABASE events; CREATE EVENT events.precious ON SCHEDULE EVERY 1 DAY DO DO 1");
    let one = json!({"database_name": "shop", "database_engine": "mysql"});
    let one = bench.back_up(task(&bench, one).await).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    assert_failed(&bench.restore(&one, json!({"database_name": "events"})).await, "target_not_empty");
    assert!(mariadb.sql("events", "SHOW EVENTS").contains("precious"));

    let collation = |name: &str| {
        let sql = "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name =";
        mariadb.sql("", &format!("{sql} '{name}'")).trim().to_owned()
    };
    mariadb.sql(
        "",
        "CREATE DATABASE filled COLLATE latin1_bin; DROP DATABASE shop; CREATE DATABASE shop COLLATE koi8r_bin",
    );
    assert_successful(&bench.restore(&one, json!({"database_name": "filled"})).await);
    assert_eq!(collation("filled"), "utf8mb4_unicode_ci");
    assert_successful(&bench.restore(&all, json!({"overwrite": true})).await);
    assert_eq!(collation("shop"), "utf8mb4_unicode_ci");

    // A restore that fails leaves it as it was.
    mariadb.sql("", "CREATE DATABASE again COLLATE koi8r_bin; GRANT ALL ON again.* TO lim@'%' IDENTIFIED BY 'p'");
    mariadb.sql("", "REVOKE INSERT ON again.* FROM lim@'%'");
    login(&bench, "lim", Some("p")).await;
    let run = bench.restore(&one, json!({"database_name": "again"})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert_eq!((collation("again").as_str(), mariadb.sql("again", "SHOW TABLES").trim()), ("koi8r_bin", ""));

    // Who sees only some databases is told so.
    let run = bench.run(task(&bench, json!({"database_engine": "mysql"})).await).await;
    assert!(output(&run).contains("sees only the databases that it has rights to"), "{}", output(&run));
}

/// Runs until the process that wrote down its number has ended.
async fn wait_for_end_of(pid_file: &Path) {
    let pid = std::fs::read_to_string(pid_file).unwrap().trim().to_owned();
    wait_for(async || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_ends_when_the_server_takes_too_little_or_never_finishes() {
    let mariadb = MariaDbServer::start();
    mariadb.sql("mysql", "CREATE DATABASE shop; CREATE TABLE shop.t (a LONGBLOB)");
    // More than what lies between us and a process that does not read.
    mariadb.sql("shop", "INSERT INTO t SELECT RANDOM_BYTES(1024) FROM mysql.help_topic, seq_1_to_20 LIMIT 16384");
    let shims = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.engine.remote.stall = Duration::from_secs(2);
    settings.engine.remote.finish = Duration::from_secs(2);
    let bench = mariadb_bench(&mariadb, &shims, settings).await;
    std::fs::write(bench.source().join("large"), random(7, 16 * 1024 * 1024)).unwrap();
    let files = bench.back_up(bench.task(json!({})).await).await;
    let dump = bench.back_up(task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await).await;
    let pid_file = shims.path().join("pid");
    let drips = "while dd bs=1 count=1 2>/dev/null | grep -q ''; do sleep 1; done";
    let never_ends = "cat >/dev/null; exec sleep 600";
    for (number, way) in [drips, never_ends].into_iter().enumerate() {
        let script = format!("echo $$ > {}; {way}", pid_file.display());
        shim(&shims, "tar", &format!("case $1 in --version) exec /usr/bin/tar --version;; esac; {script}"));
        shim(&shims, "mariadb", &format!("case \"$*\" in *--execute*) exec /usr/bin/mariadb \"$@\";; esac; {script}"));
        let target = bench.folder.path().join(format!("target-{number}"));
        assert_failed(&bench.restore(&files, json!({"path": target})).await, "stalled");
        wait_for_end_of(&pid_file).await;
        std::fs::remove_file(&pid_file).unwrap();
        let name = format!("fresh_{number}");
        assert_failed(&bench.restore(&dump, json!({"database_name": name})).await, "stalled");
        wait_for_end_of(&pid_file).await;
        assert_eq!(mariadb.sql("", &format!("SHOW DATABASES LIKE '{name}'")).trim(), "", "it is taken away again");
    }
}
