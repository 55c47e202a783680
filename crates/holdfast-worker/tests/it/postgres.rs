use std::process::{Command, Stdio};

use holdfast_core::content::Content;
use holdfast_testkit::{PostgresServer, SshServer, TestApp};
use serde_json::{Value, json};

use crate::bench::{Bench, add_server, assert_failed, assert_successful, output};
use crate::databases::{login, shim, task};
use crate::faults::wait_for;
use crate::first_release::{dump_all, store_as_before};

pub async fn postgres_bench(postgres: &PostgresServer) -> Bench {
    let ssh = SshServer::builder().set_env("PGHOST", "127.0.0.1").set_env("PGPORT", &postgres.port().to_string());
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh.start()).await;
    login(&bench, "holdfast", None).await;
    bench
}

/// Another server that the same user may restore to.
pub async fn second_server(bench: &Bench, postgres: &PostgresServer) -> (SshServer, i64) {
    let ssh = SshServer::builder().set_env("PGHOST", "127.0.0.1").set_env("PGPORT", &postgres.port().to_string());
    let ssh = ssh.start();
    let id = add_server(bench, &ssh, json!({"database_username": "holdfast"})).await;
    (ssh, id)
}

pub fn psql(postgres: &PostgresServer, database: &str, sql: &str) -> String {
    let name = format!("dbname='{}'", database.replace('\\', "\\\\").replace('\'', "\\'"));
    let output = Command::new("psql")
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", &postgres.port().to_string()])
        .args(["-U", "holdfast", "-d", &name, "-c", sql])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A session that stays connected to a database.
fn session(postgres: &PostgresServer, database: &str) -> std::process::Child {
    Command::new("psql")
        .args(["-Xq", "-h", "127.0.0.1", "-p", &postgres.port().to_string(), "-U", "holdfast", "-d", database])
        .args(["-c", "SELECT pg_sleep(600)"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Creates a materialized view of the table `t`, and an event trigger that prevents refreshing it.
fn refuse_refresh(postgres: &PostgresServer, database: &str) {
    psql(postgres, database, "CREATE MATERIALIZED VIEW total AS SELECT sum(a) a FROM t");
    let function = "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'";
    psql(postgres, database, function);
    let tag = "WHEN TAG IN ('REFRESH MATERIALIZED VIEW')";
    psql(
        postgres,
        database,
        &format!("CREATE EVENT TRIGGER refuse ON ddl_command_end {tag} EXECUTE FUNCTION refuse()"),
    );
}

/// The content of the view, and whether the trigger is enabled.
const REFUSED: &str =
    "SELECT concat_ws(' ', a, evtenabled::text) FROM total, pg_event_trigger WHERE evtname = 'refuse'";

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
    refuse_refresh(&postgres, "x\\y");
    psql(&postgres, "postgres", "ALTER DATABASE \"my-app\" SET search_path TO public, \"odd schema\"");
    psql(&postgres, "postgres", "REVOKE CONNECT ON DATABASE \"my-app\" FROM PUBLIC");
    let latin = "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    psql(&postgres, "postgres", latin);
    psql(&postgres, "postgres", "CREATE TABLE in_postgres AS SELECT 1 a");
    psql(&postgres, "postgres", "GRANT SET, ALTER SYSTEM ON PARAMETER log_min_duration_statement TO \"o'wner\"");
    let may_set = |privilege: &str| {
        format!("SELECT has_parameter_privilege('o''wner', 'log_min_duration_statement', '{privilege}')")
    };
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
    // Open sessions neither prevent a restore nor cause duplicate rows.
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

    // Restoring one database changes nothing else.
    psql(&postgres, "my-app", "DELETE FROM t");
    psql(&postgres, "x\\y", "DROP VIEW v");
    psql(&postgres, "postgres", "ALTER ROLE \"o'wner\" CONNECTION LIMIT 3");
    let one = json!({"database_name": "my-app"});
    assert_failed(&bench.restore(&backup, one).await, "target_not_empty");
    let one = json!({"database_name": "my-app", "overwrite": true});
    assert_successful(&bench.restore(&backup, one).await);
    assert_eq!(psql(&postgres, "my-app", "SELECT count(*) FROM t"), "1000");
    assert_eq!(psql(&postgres, "x\\y", "SELECT to_regclass('v') IS NULL"), "t");
    let limit = "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'o''wner'";
    assert_eq!(psql(&postgres, "postgres", limit), "3");
    assert_failed(&bench.restore(&backup, json!({"database_name": "none"})).await, "entry_missing");

    // Onto an empty server.
    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    let one = json!({"remote_server_id": server, "database_name": "a'b"});
    assert_failed(&bench.restore(&backup, one).await, "roles_missing");
    let run = bench.restore(&backup, json!({"remote_server_id": server, "overwrite": true})).await;
    assert_successful(&run);
    assert_eq!(psql(&second, "a'b", "SELECT count(*) FROM t"), "1000");
    assert_eq!(psql(&second, "x\\y", REFUSED), "500500 O");
    assert_eq!(psql(&second, "postgres", password), hash);
    assert_eq!(psql(&second, "postgres", &may_set("SET")), "t");
    // Only superusers may change settings of the whole server, which decide which files it writes.
    assert_eq!(psql(&second, "postgres", &may_set("ALTER SYSTEM")), "f");
    assert!(output(&run).contains("The right ALTER SYSTEM of role"), "{}", output(&run));
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
    psql(&postgres, "shop", "CREATE VIEW t AS SELECT * FROM own.t");
    psql(&postgres, "shop", "CREATE FUNCTION mine() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'");
    refuse_refresh(&postgres, "shop");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;

    // New databases are copies of template1, and longer names would be cut.
    for name in ["template0", "template1", &"a".repeat(64)] {
        let run = bench.restore(&backup, json!({"database_name": name, "overwrite": true})).await;
        assert_failed(&run, "not_supported");
        assert!(output(&run).contains("Nothing was changed."), "{}", output(&run));
    }
    assert_eq!(psql(&postgres, "template1", "SELECT to_regclass('t') IS NULL"), "t");

    // Neither objects that depend on restored ones nor an open session prevent a restore.
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

    // Under another name it has the same properties, too.
    assert_successful(&bench.restore(&backup, json!({"database_name": "copy"})).await);
    let facts = "SELECT current_setting('server_encoding') || current_setting('work_mem') || pg_get_userbyid(datdba) || \
        datcollate || shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = current_database()";
    assert_eq!(psql(&postgres, "copy", facts), "LATIN177MBappCthe 'shop'");
    assert_eq!(psql(&postgres, "copy", REFUSED), "55 O");
    assert_eq!(psql(&postgres, "copy", "SELECT has_table_privilege('reader', 'own.t', 'SELECT')"), "t");

    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    let run = bench.restore(&backup, json!({"remote_server_id": server, "database_name": "shop"})).await;
    assert_failed(&run, "roles_missing");
    assert!(output(&run).contains("app, reader"), "{}", output(&run));
    assert_eq!(psql(&second, "postgres", "SELECT count(*) FROM pg_database WHERE datname = 'shop'"), "0");
    let body = json!({"remote_server_id": server, "database_name": "shop", "no_owner": true});
    let run = bench.restore(&backup, body).await;
    assert_successful(&run);
    assert!(output(&run).contains("(SECURITY DEFINER), whoever calls them: public.mine()."), "{}", output(&run));
    // A long list is cut, and the rest is counted.
    let many = "DO $$ BEGIN FOR i IN 1..100 LOOP EXECUTE format('CREATE FUNCTION aa_%s() RETURNS int LANGUAGE sql SECURITY \
        DEFINER AS ''SELECT 1''', i); END LOOP; END $$";
    psql(&postgres, "shop", many);
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let crowded = bench.back_up(task(&bench, options).await).await;
    let run = bench.restore(&crowded, json!({"database_name": "many", "no_owner": true})).await;
    assert_successful(&run);
    assert!(output(&run).contains(" and 1 others. Restore as a user with few rights"), "{}", output(&run));
    assert_eq!(psql(&second, "shop", "SELECT count(*) FROM own.t"), "10");

    // A new database counts as empty, whatever its template contains.
    psql(&second, "template1", "CREATE EXTENSION hstore");
    psql(&second, "postgres", "CREATE DATABASE prepared");
    let body = json!({"remote_server_id": server, "database_name": "prepared", "no_owner": true});
    assert_successful(&bench.restore(&backup, body).await);
    assert_eq!(psql(&second, "prepared", "SELECT count(*) || ('a=>1'::hstore -> 'a') FROM own.t"), "101");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_in_another_tablespace_are_restored_without_it() {
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
    psql(&postgres, "postgres", "CREATE DATABASE aside TABLESPACE \"ts x\"");
    let options = json!({"database_name": "aside", "database_engine": "postgresql"});
    let aside = bench.back_up(task(&bench, options).await).await;

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
        let said = "the contents of these are restored into the default one: ts x.";
        assert!(output(&run).contains(said), "{}", output(&run));
        assert_eq!(psql(&second, &name, "SELECT a FROM t"), "1");
    }
    let run = bench.restore(&aside, json!({"remote_server_id": server, "database_name": "aside"})).await;
    assert_successful(&run);
    let said = "the contents of these are restored into the default one: ts x.";
    assert!(output(&run).contains(said), "{}", output(&run));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_database_gets_the_properties_of_the_original() {
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

    // Default privileges would change the rights of restored objects, so they count as content.
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

    // A role that may fill a database may not be allowed to alter it.
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
    let older = store_as_before(&bench, task, Content::PostgresServerSql, &dump_all(&postgres)).await;

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
            format!(
                "The database template1 and its owner stay; these of its properties {will} be set as in the backup"
            ),
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
    // A second restore changes nothing, and without roles nobody gains anything.
    for no_owner in [false, true] {
        let body = json!({"remote_server_id": server, "overwrite": true, "dry_run": true, "no_owner": no_owner});
        let run = bench.restore(&backup, body).await;
        assert_successful(&run);
        let unsaid = [" gain ", "The password", "be set as in the backup"];
        assert!(!unsaid.iter().any(|text| output(&run).contains(text)), "{}", output(&run));
    }
    let body = json!({"remote_server_id": server, "overwrite": true, "no_owner": true});
    bench.ask_restore(&older, body).await.expect(422);
}

/// The owner of a database can set the role of every session in it to one that may read nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_setting_of_a_database_does_not_affect_backups() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE tenant LOGIN");
    psql(&postgres, "postgres", "CREATE DATABASE tdb OWNER tenant");
    psql(
        &postgres,
        "tdb",
        "CREATE TABLE tt AS SELECT 7 a; ALTER TABLE tt OWNER TO tenant; REVOKE ALL ON tt FROM tenant",
    );
    psql(&postgres, "postgres", "ALTER DATABASE tdb SET role = 'tenant'");
    let one = bench.back_up(task(&bench, json!({"database_name": "tdb", "database_engine": "postgresql"})).await).await;
    bench.back_up(task(&bench, json!({"database_engine": "postgresql"})).await).await;
    assert_successful(&bench.restore(&one, json!({"database_name": "back"})).await);
    assert_eq!(psql(&postgres, "back", "RESET ROLE; SELECT a FROM tt").trim(), "7");
}

/// The last backup with a database stays until somebody confirms its removal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_missing_from_a_server_holds_removal() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "postgres", "CREATE DATABASE later");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT 1 a");
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
    // A database that a restore left behind is reported in the log, and dropping it does not hold retention.
    psql(&postgres, "postgres", "CREATE DATABASE holdfast_old_0123456789abcdef");
    assert_eq!(later().await, "");
    let log = bench.latest_log(task).await;
    assert!(output(&log).contains("is what a restore replaced and could not drop"), "{}", output(&log));
    psql(&postgres, "postgres", "DROP DATABASE holdfast_old_0123456789abcdef");
    assert_eq!(later().await, "");
    // Dropping a database on purpose has to be confirmed.
    psql(&postgres, "postgres", "DROP DATABASE later");
    assert!(later().await.contains("had: later."));
    bench.user.client.act(&format!("/api/backup-tasks/{task}/release-retention")).await.data(200);
    assert_eq!(later().await, "");
}

/// Whoever owns a database, or may create objects in it, can change what names refer to in sessions there.
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
        Content::PostgresServerSql,
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

    // Objects from the template do not count, and neither do extensions.
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
    // All kinds of objects are listed when the database is to be replaced.
    let run = bench.restore(&backup, json!({"database_name": "target", "overwrite": true, "dry_run": true})).await;
    assert!(output(&run).contains("The database target would be replaced: tables, views"), "{}", output(&run));
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
        // Rejected by every session that has loaded PL/pgSQL.
        "ROLE app SET plpgsql.nonsense TO 'x'",
    ];
    settings.iter().for_each(|setting| drop(psql(&postgres, "postgres", &format!("ALTER {setting}"))));
    let task = task(&bench, json!({"database_engine": "postgresql"})).await;
    let backup = bench.back_up(task).await;
    psql(&postgres, "postgres", "ALTER ROLE app RESET plpgsql.nonsense");
    let older = store_as_before(&bench, task, Content::PostgresServerSql, &dump_all(&postgres)).await;

    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    let restored = "SELECT string_agg(one, ' ' ORDER BY one) FROM pg_db_role_setting, unnest(setconfig) one";
    let body = json!({"remote_server_id": server, "overwrite": true});
    for (is_older, backup) in [(false, backup), (true, older)] {
        let run = bench.restore(&backup, body.clone()).await;
        assert_successful(&run);
        // Dumps of the first release contain no settings for all roles; existing ones stay.
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
    let older = store_as_before(&bench, task, Content::PostgresServerSql, &dump_all(&postgres)).await;

    let second = PostgresServer::start(false);
    let (_ssh, server) = second_server(&bench, &second).await;
    psql(&second, "postgres", "CREATE DATABASE elsewhere");
    let timeouts = ["statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"];
    for name in timeouts {
        psql(&second, "postgres", &format!("ALTER ROLE ALL SET {name} TO '300ms'"));
    }
    psql(&second, "postgres", "ALTER ROLE ALL SET default_transaction_read_only TO on");
    for backup in [backup, older] {
        // Sessions that create or alter a database have to wait for this lock.
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
    let older = store_as_before(&bench, task, Content::PostgresServerSql, &dump_all(&postgres)).await;

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
    let older = store_as_before(&bench, task, Content::PostgresServerSql, &dump_all(&postgres)).await;
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
    // The session that closes the database gets all or only part of its input; later sessions may fail to connect.
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

/// The owner of an empty database may create objects that do not count as content, or create them after the check; none
/// of them runs as the superuser who restores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_an_empty_database_gains_nothing_when_it_is_filled() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE app LOGIN");
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "postgres", "CREATE DATABASE made OWNER app CONNECTION LIMIT 9");
    psql(&postgres, "shop", "CREATE EXTENSION citext; CREATE TABLE t (a citext); INSERT INTO t VALUES ('x')");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let as_app = |sql: &str| psql(&postgres, "made", &format!("SET SESSION AUTHORIZATION app; {sql}"));
    as_app("CREATE EXTENSION hstore");
    let body = json!({"database_name": "made", "no_owner": true});
    assert_successful(&bench.restore(&backup, body.clone()).await);
    assert_eq!(psql(&postgres, "made", "SELECT a || ('a=>1'::hstore -> 'a') FROM t"), "x1");
    let kept = "SELECT pg_get_userbyid(datdba) || datconnlimit FROM pg_database WHERE datname = 'made'";
    assert_eq!(psql(&postgres, "postgres", kept), "app9");

    psql(&postgres, "postgres", "DROP DATABASE made");
    psql(&postgres, "postgres", "CREATE DATABASE made OWNER app");
    as_app("CREATE SCHEMA hid; CREATE EXTENSION citext SCHEMA hid");
    as_app(
        "CREATE FUNCTION public.up(text) RETURNS bool LANGUAGE plpgsql AS 'BEGIN ALTER ROLE app SUPERUSER; RETURN true; END'",
    );
    as_app("CREATE DOMAIN public.citext AS text CHECK (public.up(value))");
    as_app("ALTER EXTENSION citext ADD FUNCTION public.up(text); ALTER EXTENSION citext ADD DOMAIN public.citext");
    as_app("CREATE EXTENSION tsm_system_rows; ALTER EXTENSION tsm_system_rows ADD SCHEMA hid");
    assert_failed(&bench.restore(&backup, body).await, "target_not_empty");
    assert_eq!(psql(&postgres, "postgres", "SELECT rolsuper FROM pg_roles WHERE rolname = 'app'"), "f");
    let left = "SELECT count(*) FROM pg_database WHERE datname ~ '^holdfast_(restore|swap|old)'";
    assert_eq!(psql(&postgres, "postgres", left), "0", "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_into_a_database_that_is_being_restored() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE ROLE low LOGIN");
    psql(&postgres, "postgres", "CREATE DATABASE shop CONNECTION LIMIT 5");
    psql(&postgres, "shop", "CREATE TABLE t AS SELECT n, repeat(md5(n::text), 4) FROM generate_series(1, 200000) n");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let port = postgres.port().to_string();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (tries, entries) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let (mut tries, mut entries) = (0, 0);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let names =
                    psql(&postgres, "template1", "SELECT datname FROM pg_database WHERE datname LIKE 'holdfast\\_%'");
                for name in names.lines() {
                    let mut client = Command::new("psql");
                    client.args(["-Xq", "-h", "127.0.0.1", "-p", &port, "-U", "low", "-d", name, "-c", "SELECT 1"]);
                    tries += 1;
                    entries += u32::from(client.output().unwrap().status.success());
                }
            }
            (tries, entries)
        });
        let run = tokio::task::block_in_place(|| {
            let restoring = bench.restore(&backup, json!({"database_name": "shop", "overwrite": true}));
            tokio::runtime::Handle::current().block_on(restoring)
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_successful(&run);
        watching.join().unwrap()
    });
    assert!(tries > 0 && entries == 0, "{entries} of {tries}");
    let limit = "SELECT datconnlimit FROM pg_database WHERE datname = 'shop'";
    assert_eq!(psql(&postgres, "postgres", limit), "5");
}

/// A table whose check constraint needs a search path: its rows cannot be restored.
const FAILING_BY_ITSELF: &str = "CREATE SCHEMA victim;
    CREATE FUNCTION victim.low(text) RETURNS text IMMUTABLE LANGUAGE sql AS $$SELECT lower($1)$$;
    CREATE FUNCTION victim.norm(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN low($1); END$$;
    SET search_path = victim, public;
    CREATE TABLE victim.accounts (a text CHECK (victim.norm(a) IS NOT NULL));
    INSERT INTO victim.accounts SELECT 'row' || g FROM generate_series(1, 1000) g;
    CREATE SCHEMA tenant AUTHORIZATION tenant; CREATE SCHEMA zzz AUTHORIZATION tenant";

/// Objects of another user that print what `pg_restore` prints about indexes, with so much text that the failures of
/// others are hidden.
const PRETENDING: &str = "SET ROLE tenant;
    CREATE FUNCTION tenant.f(text, int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$DECLARE m text := ''; BEGIN
      IF current_setting('search_path') LIKE '%public%' THEN RETURN true; END IF;
      FOR i IN 1..$2 - 1 LOOP m := m || E'\\nCommand was: CREATE INDEX b ON t\\npg_restore: error: could not execute query: ERROR:  y does not exist'; END LOOP;
      RAISE EXCEPTION E'x does not exist%', m || repeat(E'\\nz', 9000); END$$;
    CREATE DOMAIN tenant.d AS text CHECK (tenant.f(value, 4));
    CREATE FUNCTION tenant.sf(tenant.d, text) RETURNS tenant.d IMMUTABLE LANGUAGE sql AS $$SELECT $1$$;
    CREATE AGGREGATE tenant.agg(text) (sfunc = tenant.sf, stype = tenant.d, initcond = 'q');
    CREATE FUNCTION tenant.g(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN
      IF current_setting('search_path') LIKE '%public%' THEN RETURN $1; END IF;
      RAISE EXCEPTION E'x%', repeat(E'\\nz', 9000); END$$;
    CREATE TABLE zzz.t (a text); INSERT INTO zzz.t VALUES ('q'); CREATE INDEX z_idx ON zzz.t (tenant.g(a))";

/// Expressions of indexes and materialized views may need a search path; rows do not depend on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_cannot_be_built_does_not_prevent_a_restore() {
    let postgres = PostgresServer::start(false);
    let bench = postgres_bench(&postgres).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "shop", "CREATE TABLE t (b text); INSERT INTO t VALUES ('x'), ('y')");
    psql(&postgres, "shop", "CREATE FUNCTION lookup(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'");
    psql(
        &postgres,
        "shop",
        "CREATE FUNCTION norm(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN lower($1) || lookup($1); END'",
    );
    psql(&postgres, "shop", "CREATE INDEX by_norm ON t (norm(b)); COMMENT ON INDEX by_norm IS 'slow'");
    psql(&postgres, "shop", "CREATE MATERIALIZED VIEW seen AS SELECT norm(b) FROM t; CREATE INDEX plain ON t (b)");
    psql(&postgres, "shop", "CREATE MATERIALIZED VIEW good AS SELECT b FROM t; COMMENT ON INDEX plain IS 'fast'");
    psql(&postgres, "shop", "CREATE TABLE parts (a int, b text, PRIMARY KEY (a)) PARTITION BY RANGE (a)");
    psql(&postgres, "shop", "CREATE TABLE \"Part 1\" PARTITION OF parts FOR VALUES FROM (0) TO (10)");
    psql(&postgres, "shop", "INSERT INTO parts VALUES (1, 'x'); CREATE INDEX of_parts ON parts (b)");
    psql(
        &postgres,
        "shop",
        "CREATE INDEX \"By \"\"norm\" ON parts (norm(b)); CREATE TABLE refers (a int REFERENCES parts)",
    );
    let comment = "SELECT string_agg(relname || '=' || obj_description(oid), ',') FROM pg_class WHERE relkind IN ('i', 'I') \
        AND obj_description(oid) IS NOT NULL";
    let one = json!({"database_name": "shop", "database_engine": "postgresql"});
    let one = bench.back_up(task(&bench, one).await).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "postgresql"})).await).await;
    for (backup, body) in
        [(&one, json!({"database_name": "shop", "overwrite": true})), (&all, json!({"overwrite": true}))]
    {
        let run = bench.restore(backup, body).await;
        assert_successful(&run);
        let said = "The database shop has everything but these, which could not be made: index public.Part 1_norm_idx, \
            index public.by_norm, the contents of public.seen.";
        assert!(output(&run).contains(said), "{}", output(&run));
        assert_eq!(psql(&postgres, "shop", "SELECT string_agg(b, ',' ORDER BY b) FROM t"), "x,y");
        assert_eq!(psql(&postgres, "shop", "SELECT count(*) FROM pg_indexes WHERE tablename = 't'"), "1");
        assert_eq!(psql(&postgres, "shop", "SELECT count(*) FROM good"), "2");
        assert_eq!(psql(&postgres, "shop", comment), "plain=fast");
        let valid = "SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class JOIN pg_index ON indexrelid = oid WHERE \
            indisvalid AND relname ~ '^(Part|parts_|of_parts)'";
        assert_eq!(psql(&postgres, "shop", valid), "Part 1_b_idx,Part 1_pkey,of_parts,parts_pkey");
    }
    // Names in another encoding, an event trigger that is always enabled, and a subscription.
    psql(
        &postgres,
        "postgres",
        "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    );
    psql(
        &postgres,
        "latin",
        "CREATE TABLE t (b text); INSERT INTO t VALUES ('x'), ('y'); CREATE TABLE seen (tag text)",
    );
    psql(&postgres, "latin", "CREATE FUNCTION lookup(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'");
    psql(
        &postgres,
        "latin",
        "CREATE FUNCTION norm(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN lower($1) || lookup($1); END'",
    );
    psql(&postgres, "latin", "CREATE INDEX \"i\u{c3}\u{a9}\" ON t (norm(b)); CREATE UNIQUE INDEX \"i\u{e9}\" ON t (b)");
    psql(&postgres, "latin", "CREATE INDEX \"good\u{e9}\" ON t (b); COMMENT ON INDEX \"good\u{e9}\" IS 'kept'");
    psql(
        &postgres,
        "latin",
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (connect = false, slot_name = NONE)",
    );
    let function = "CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen VALUES (tg_tag); \
        END'";
    psql(&postgres, "latin", function);
    psql(&postgres, "latin", "CREATE EVENT TRIGGER noting ON ddl_command_end EXECUTE FUNCTION note()");
    psql(&postgres, "latin", "ALTER EVENT TRIGGER noting ENABLE ALWAYS; COMMENT ON EVENT TRIGGER noting IS 'all'");
    psql(&postgres, "latin", "DELETE FROM seen");
    let options = json!({"database_name": "latin", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let run = bench.restore(&backup, json!({"database_name": "latin_2"})).await;
    assert_successful(&run);
    assert_eq!(run["warnings"], 1, "{}", output(&run));
    let indexes = "SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class JOIN pg_index ON indexrelid = oid WHERE indisvalid \
        AND indrelid = 't'::regclass";
    assert_eq!(psql(&postgres, "latin_2", indexes), "good\u{e9},i\u{e9}");
    assert_eq!(psql(&postgres, "latin_2", "SELECT count(*) FROM seen"), "0", "nothing fired");
    assert_eq!(psql(&postgres, "latin_2", "SELECT evtenabled FROM pg_event_trigger WHERE evtname = 'noting'"), "A");
    let left = "SELECT count(*) FROM pg_database WHERE datname ~ '^holdfast_'";
    assert_eq!(psql(&postgres, "postgres", left), "0", "nothing is left behind");
    // Lost rows fail the restore, even if their content looks like a harmless message.
    psql(&postgres, "postgres", "CREATE DATABASE faked");
    psql(&postgres, "faked", "CREATE TABLE known (id int); INSERT INTO known VALUES (1)");
    psql(
        &postgres,
        "faked",
        "CREATE FUNCTION ok(i int) RETURNS bool LANGUAGE sql AS 'SELECT EXISTS (SELECT FROM public.known WHERE id = i)'",
    );
    psql(&postgres, "faked", "CREATE TABLE aaa (id int CHECK (ok(id)), v text)");
    psql(&postgres, "faked", r"INSERT INTO aaa VALUES (1, E'x\nCommand was: CREATE INDEX z')");
    let options = json!({"database_name": "faked", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let run = bench.restore(&backup, json!({"database_name": "faked", "overwrite": true})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert_eq!(psql(&postgres, "faked", "SELECT count(*) FROM aaa"), "1");
    // The same with messages of other users in the same database, however long.
    psql(&postgres, "postgres", "CREATE DATABASE shared");
    psql(&postgres, "postgres", "CREATE ROLE tenant");
    psql(&postgres, "shared", FAILING_BY_ITSELF);
    psql(&postgres, "shared", PRETENDING);
    let options = json!({"database_name": "shared", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    for body in [json!({"database_name": "shared", "overwrite": true}), json!({"database_name": "shared_2"})] {
        let run = bench.restore(&backup, body).await;
        assert_eq!(run["status"], "failed", "{}", output(&run));
    }
    assert_eq!(psql(&postgres, "shared", "SELECT count(*) FROM victim.accounts"), "1000");
    // A full disk is no reason to continue without an index.
    psql(&postgres, "postgres", "CREATE DATABASE full_disk");
    psql(&postgres, "full_disk", "CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    psql(
        &postgres,
        "full_disk",
        "CREATE FUNCTION fill(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN IF current_database() <> 'full_disk' THEN \
         RAISE EXCEPTION 'could not extend file: No space left on device'; END IF; RETURN $1; END$$; CREATE INDEX i ON t (fill(a))",
    );
    let options = json!({"database_name": "full_disk", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let run = bench.restore(&backup, json!({"database_name": "full_disk", "overwrite": true})).await;
    assert_failed(&run, "target_full");
    assert_eq!(psql(&postgres, "full_disk", "SELECT count(*) FROM pg_indexes WHERE tablename = 't'"), "1");
    // A constraint is different: the rows may violate it.
    psql(&postgres, "shop", "CREATE UNIQUE INDEX twice ON t (b)");
    psql(&postgres, "shop", "ALTER TABLE t ADD CONSTRAINT known CHECK (norm(b) IS NOT NULL)");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let run = bench.restore(&backup, json!({"database_name": "shop", "overwrite": true})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(output(&run).contains("No database was changed."), "{}", output(&run));
    assert_eq!(psql(&postgres, "shop", "SELECT count(*) FROM t"), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_somebody_fills_meanwhile_is_not_replaced() {
    let postgres = PostgresServer::start(false);
    let shims = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("PGHOST", "127.0.0.1").set_env("PGPORT", &postgres.port().to_string());
    let ssh = ssh.with_path_shims(shims.path()).start();
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await;
    login(&bench, "holdfast", None).await;
    psql(&postgres, "postgres", "CREATE DATABASE shop");
    psql(&postgres, "postgres", "CREATE DATABASE made");
    psql(&postgres, "shop", "CREATE TABLE t (a int)");
    let options = json!({"database_name": "shop", "database_engine": "postgresql"});
    let backup = bench.back_up(task(&bench, options).await).await;
    let real = String::from_utf8(Command::new("sh").args(["-c", "command -v pg_restore"]).output().unwrap().stdout);
    let make = "psql -Xq -U holdfast -d made -c 'CREATE TABLE IF NOT EXISTS orders (a int)'";
    let real = real.unwrap().trim().to_owned();
    shim(&shims, "pg_restore", &format!("{make} </dev/null\nexec {real} \"$@\""));
    let run = bench.restore(&backup, json!({"database_name": "made"})).await;
    assert_failed(&run, "target_not_empty");
    assert!(output(&run).contains("Somebody has filled the database made meanwhile."), "{}", output(&run));
    assert_eq!(
        psql(&postgres, "made", "SELECT string_agg(tablename, ',') FROM pg_tables WHERE schemaname = 'public'"),
        "orders"
    );
    // The log does not claim that nothing changed when the target database was dropped.
    for (sql, said) in [("SELECT 1", "No database was changed."), ("DROP DATABASE made", "are gone by now")] {
        let fail = format!("psql -Xq -U holdfast -d postgres -c '{sql}' </dev/null; echo no >&2; exit 1");
        shim(&shims, "pg_restore", &format!("case $* in *--version*|*--list*) exec {real} \"$@\" ;; esac\n{fail}"));
        let run = bench.restore(&backup, json!({"database_name": "made", "overwrite": true})).await;
        assert_eq!(run["status"], "failed", "{}", output(&run));
        assert!(output(&run).contains(said), "{said}: {}", output(&run));
    }
    let left = "SELECT count(*) FROM pg_database WHERE datname ~ '^holdfast_(restore|swap|old)'";
    assert_eq!(psql(&postgres, "postgres", left), "0", "nothing is left behind");
}
