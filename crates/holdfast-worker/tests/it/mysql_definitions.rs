use std::time::Duration;

use holdfast_testkit::{MariaDbServer, Settings};
use serde_json::json;

use crate::bench::{Bench, assert_failed, assert_successful, output};
use crate::databases::{login, shim, task};
use crate::faults::wait_for;
use crate::mysql::mariadb_bench;

/// Everything that a server stores about the routines, triggers, views and events of a database, byte by byte.
pub fn definitions(mariadb: &MariaDbServer, database: &str) -> String {
    mariadb.sql(
        "",
        &format!(
            "SELECT 'routine', HEX(name), type, HEX(param_list), HEX(returns), HEX(body), definer, security_type, sql_mode, \
             character_set_client, collation_connection, db_collation, HEX(comment) FROM mysql.proc WHERE db = '{database}' \
             ORDER BY 2, 3;\
             SELECT 'event', HEX(name), HEX(body), definer, interval_value, interval_field, on_completion, status, sql_mode, \
             time_zone, character_set_client, collation_connection, db_collation, HEX(comment) FROM mysql.event WHERE db = '{database}' \
             ORDER BY 2;\
             SELECT 'trigger', HEX(trigger_name), event_manipulation, event_object_table, action_order, \
             HEX(action_statement), action_timing, sql_mode, definer, character_set_client, collation_connection, \
             database_collation FROM information_schema.triggers WHERE trigger_schema = '{database}' ORDER BY 2;\
             SELECT 'view', HEX(table_name), HEX(REPLACE(view_definition, '`{database}`.', '')), definer, security_type, \
             IF(table_name = '中文', '', CONCAT(character_set_client, collation_connection)) FROM information_schema.views WHERE table_schema = '{database}' \
             ORDER BY 2"
        ),
    )
}

fn fill(mariadb: &MariaDbServer) {
    // Hex-encoded: the client would misread some of these.
    let write_as = |settings: &str, text: &[u8]| {
        let text: String = text.iter().map(|byte| format!("{byte:02x}")).collect();
        mariadb.sql("shop", &format!("SET {settings}; SET @w = X'{text}'; PREPARE w FROM @w; EXECUTE w"));
    };
    let write = |text: &[u8]| write_as("NAMES utf8mb4", text);
    // Characters whose second byte is a backslash, and comments that only the server recognises.
    let (gbk, view) = (b"CREATE PROCEDURE in_gbk(a VARCHAR(9)) COMMENT '\xd5\\'", b"CREATE VIEW seen_in_gbk AS SELECT");
    write_as("NAMES gbk", &[&gbk[..], b" SELECT '\xd5\\' --\x01 ;; ' \n, ' # '"].concat());
    write_as("NAMES gbk COLLATE gbk_bin", &[&view[..], b" '\xd5\\' AS a, ' # ' AS `b\nc`"].concat());
    write_as("NAMES utf8mb4, character_set_client = gbk", b"CREATE FUNCTION mixed() RETURNS TEXT RETURN '\xd5\\'");
    write_as("NAMES sjis", b"CREATE FUNCTION in_sjis() RETURNS TEXT DETERMINISTIC RETURN '\x83\\'");
    write_as("NAMES big5", b"CREATE EVENT in_big5 ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT '\xa4\\'");
    write_as("NAMES latin1", b"CREATE PROCEDURE spaced() SELECT 1 --\xa0 ;;\n");
    // Servers return parts of these in UTF-8, and the rest in the character set of the client.
    mariadb.sql("", "CREATE USER `ü`; GRANT ALL ON *.* TO `ü`");
    let head = b"CREATE DEFINER=`\xfc` EVENT `e\xfc` ON SCHEDULE EVERY 1 DAY DISABLE COMMENT 'it''s \xfc DO '";
    write_as("NAMES latin1", &[&head[..], b" DO SELECT '\xfc \xc3\xbc DO '"].concat());
    write_as("NAMES latin1", b"CREATE DEFINER=`\xfc` TRIGGER `t\xfc` AFTER DELETE ON t FOR EACH ROW SET @x = '\xfc'");
    let head = b"CREATE DEFINER=`\xfc` FUNCTION `f\xfc`(`\xfc` INT) RETURNS INT COMMENT 'it''s \xfc \\n \xc3\xbc'";
    write_as("NAMES latin1", &[&head[..], b" RETURN LENGTH('\n    COMMENT \xc3\xbc')"].concat());
    write(b"CREATE PROCEDURE zero() SELECT '\\0 \\' \x01\x7f\t\r\n' /* it's */");
    // Other quoting modes, and packages.
    let ansi = b"CREATE PROCEDURE ansi() SELECT '\\' AS \"a\\b\"";
    write_as("sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'", ansi);
    let event =
        b"CREATE EVENT plain_comment ON SCHEDULE EVERY 1 DAY DISABLE COMMENT 'C:\\dir ''a'' DO ' DO SELECT '\\'";
    write_as("sql_mode = 'NO_BACKSLASH_ESCAPES'", event);
    write_as("sql_mode = ORACLE", b"CREATE PACKAGE pack AS FUNCTION f RETURN INT; END");
    let body = b"CREATE PACKAGE BODY pack AS FUNCTION f RETURN INT AS BEGIN RETURN 7; END; END";
    write_as("sql_mode = ORACLE", body);
    write(
        b"CREATE AGGREGATE FUNCTION longest(x TEXT) RETURNS TEXT BEGIN DECLARE CONTINUE HANDLER FOR NOT FOUND RETURN x; \
          LOOP FETCH GROUP NEXT ROW; END LOOP; END",
    );
    // An event in another time zone, on which the dump tool hangs.
    let event = b"CREATE EVENT twice ON SCHEDULE EVERY 1 DAY DISABLE DO BEGIN SELECT ';;' /* ;; */; SELECT ';;;'; END";
    write_as("time_zone = '+05:30'", event);
    // Longer than one of our statements.
    write(format!("CREATE PROCEDURE lengthy() SELECT '{}'", "x".repeat(600_000)).as_bytes());
    // Triggers run in the order of their creation, except for those that specify another.
    write(b"CREATE TRIGGER z_first BEFORE INSERT ON t FOR EACH ROW SET NEW.s = CONCAT(NEW.s, 'a')");
    write(b"CREATE TRIGGER a_last BEFORE INSERT ON t FOR EACH ROW SET NEW.s = CONCAT(NEW.s, 'c')");
    write(b"CREATE TRIGGER m_between BEFORE INSERT ON t FOR EACH ROW FOLLOWS z_first SET NEW.s = CONCAT(NEW.s, 'b')");
    write(b"create TRIGGER if not exists shop . `far``away`\nAFTER DELETE on shop.t FOR EACH ROW SET @x = 'shop.t'");
    write(b"CREATE TRIGGER`close`BEFORE UPDATE ON t FOR EACH ROW SET @x = 1");
    write(b"CREATE TRIGGER/**/commented BEFORE UPDATE ON t FOR EACH ROW SET @x = 1");
    write(b"CREATE TRIGGER out_too BEFORE INSERT ON left_out FOR EACH ROW SET @x = 1");
    // Parameters use the collation that the database had at the time.
    write(b"CREATE PROCEDURE collated(a VARCHAR(9)) SELECT COLLATION(a)");
    mariadb.sql("shop", "ALTER DATABASE shop COLLATE latin1_german2_ci");
    // Views that cannot be created in the order of their names, and one of a dropped table.
    write(b"CREATE VIEW a_view AS SELECT s FROM z_view");
    mariadb.sql("shop", "CREATE VIEW broken AS SELECT a FROM gone; DROP TABLE gone");
    // A view whose name cannot be represented in its own character set.
    mariadb.sql(
        "shop",
        "SET NAMES latin1; CREATE VIEW renamed AS SELECT 'x' AS a; SET NAMES utf8mb4; RENAME TABLE renamed TO `中文`",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_restored_byte_by_byte() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE shop COLLATE utf8mb4_bin");
    mariadb.sql("shop", "CREATE TABLE t (s TEXT); CREATE TABLE gone (a INT); CREATE TABLE left_out (a INT)");
    mariadb
        .sql("shop", "CREATE FUNCTION one() RETURNS INT RETURN 1; CREATE VIEW z_view AS SELECT s, one() AS o FROM t");
    mariadb.sql("shop", "CREATE VIEW left_out_view AS SELECT 1");
    fill(&mariadb);
    let options =
        json!({"database_name": "shop", "database_engine": "mysql", "excluded_tables": "left_out,left_out_view"});
    let shop = task(&bench, options).await;
    let one = bench.back_up(shop).await;
    let log = bench.latest_log(shop).await;
    assert!(!output(&log).contains("cannot be restored"), "{}", output(&log));
    assert_successful(&bench.verify(&one).await);
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;

    mariadb.sql("shop", "DROP TRIGGER out_too; DROP VIEW left_out_view");
    let whole = definitions(&mariadb, "shop");
    for name in ["in_gbk", "pack", "longest", "twice", "far`away", "seen_in_gbk", "broken"] {
        assert!(whole.contains(&hex(name)), "{name} is there");
    }
    mariadb.sql("shop", "DROP VIEW broken");
    let before = definitions(&mariadb, "shop");
    let insert = "INSERT INTO t VALUES (''); SELECT s FROM t; CALL collated('x'); SELECT longest(s), mixed() FROM a_view; \
        CALL in_gbk(1); DELETE FROM t";
    let said = mariadb.sql("shop", insert);
    assert!(said.contains("abc\nutf8mb4_bin\nabc"), "{said}");

    let run = bench.restore(&one, json!({"database_name": "moved"})).await;
    assert_successful(&run);
    assert!(output(&run).contains("1 view could not be made: moved.broken."), "{}", output(&run));
    assert!(output(&run).contains("still use it: far`away"), "{}", output(&run));
    assert_eq!(definitions(&mariadb, "moved"), before);
    assert_eq!(mariadb.sql("moved", insert), said);
    mariadb.sql("", "DROP DATABASE moved");
    for (backup, body) in [
        (&one, json!({"database_name": "shop", "overwrite": true})),
        (&all, json!({"overwrite": true})),
        (&all, json!({"database_name": "shop", "overwrite": true})),
    ] {
        mariadb.sql("shop", "DROP PROCEDURE zero");
        let run = bench.restore(backup, body).await;
        assert_successful(&run);
        assert!(output(&run).contains("1 view could not be made: shop.broken."), "{}", output(&run));
        mariadb.sql("shop", "DROP TRIGGER IF EXISTS out_too; DROP VIEW IF EXISTS left_out_view");
        assert_eq!(definitions(&mariadb, "shop"), before);
        assert_eq!(mariadb.sql("shop", insert), said);
    }
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE '%holdfast%'").trim(), "", "nothing is left behind");

    // Without owners everything belongs to the restoring user, however the owner is quoted, and events are left out.
    let run = bench.restore(&one, json!({"database_name": "ours", "no_owner": true})).await;
    assert_successful(&run);
    assert!(output(&run).contains("4 events were left out"), "{}", output(&run));
    let ours: Vec<String> = before.lines().filter(|line| !line.starts_with("event")).map(owned_by_ada).collect();
    assert_eq!(definitions(&mariadb, "ours").lines().collect::<Vec<_>>(), ours);

    // The dump can be loaded with just the client.
    mariadb.sql("", "CREATE DATABASE by_hand COLLATE latin1_german2_ci");
    let dump = zstd::decode_all(std::fs::File::open(bench.stored_file(&one)).unwrap()).unwrap();
    let dump = String::from_utf8(dump).unwrap();
    let without_broken: String =
        dump.split_inclusive('\n').filter(|line| !line.contains(&hex("broken").to_lowercase())).collect();
    mariadb.statements("root", "by_hand", ";", without_broken.as_bytes());
    let by_hand = definitions(&mariadb, "by_hand");
    let is_moved = |line: &&str| !line.contains(&hex("far`away"));
    assert_eq!(by_hand.lines().collect::<Vec<_>>(), before.lines().filter(is_moved).collect::<Vec<_>>());
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02X}")).collect()
}

fn owned_by_ada(line: &str) -> String {
    line.replace("root@localhost", "ada@%").replace("ü@%", "ada@%")
}

/// Nothing that a tenant creates prevents a backup or a restore, or ends up in another database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_objects_in_one_database_prevent_no_backup_and_no_restore() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    let tenant = Tenant::new(&mariadb);
    let shop = task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await;
    let all = task(&bench, json!({"database_engine": "mysql"})).await;
    // The dump tool also writes names of tables into comments.
    tenant.write(b"CREATE TABLE `x\nDump completed\nRoutines, triggers, views and events\ny` (a INT)");
    tenant.write(b"CREATE TABLE `x\n/* Routines, triggers, views and events */\ny` (a INT)");
    tenant.write(b"CREATE TABLE holdfast_probe (a INT)");
    // Views that the server cannot show: one of itself, and one of texts that can no longer be compared.
    tenant.write(
        b"CREATE TABLE r1 (a INT) $$ CREATE VIEW rv AS SELECT * FROM r1 $$ DROP TABLE r1 $$ RENAME TABLE rv TO r1",
    );
    tenant.write(
        b"CREATE TABLE c (a VARCHAR(9) COLLATE latin1_swedish_ci, b VARCHAR(9) COLLATE latin1_swedish_ci) $$ CREATE VIEW cv AS SELECT \
          a = b AS x FROM c $$ ALTER TABLE c MODIFY b VARCHAR(9) COLLATE latin1_german2_ci",
    );
    // A byte that is a space for the server and a letter for others; the statement names the database.
    let head = b"SET NAMES latin1 $$ CREATE TRIGGER \xa0 shop.tg BEFORE INSERT ON \xa0 shop.t FOR EACH ROW SET @x = 1";
    tenant.write(head);
    tenant.write(
        b"CREATE TRIGGER IF NOT /* a comment that is longer than the words around it, by some letters */ EXISTS shop.tgg \
          BEFORE INSERT ON shop.t FOR EACH ROW SET @x = 2",
    );
    // The time of this event has passed when it is restored.
    tenant.write(b"CREATE EVENT once ON SCHEDULE AT CURRENT_TIMESTAMP + INTERVAL 2 SECOND DISABLE DO SELECT 1");
    let one = bench.back_up(shop).await;
    let log = bench.latest_log(shop).await;
    for view in ["shop.r1", "shop.cv"] {
        assert!(output(&log).contains(&format!("The view {view} is broken")), "{}", output(&log));
    }
    let server = bench.back_up(all).await;
    wait_for(async || (mariadb.sql("", "SELECT execute_at < NOW() FROM mysql.event").trim() == "1").then_some(()))
        .await;
    let triggers = "SELECT GROUP_CONCAT(trigger_schema, '.', trigger_name ORDER BY trigger_name) FROM \
        information_schema.triggers";
    for (backup, body) in
        [(&one, json!({"database_name": "shop", "overwrite": true})), (&server, json!({"overwrite": true}))]
    {
        let run = bench.restore(backup, body).await;
        assert_successful(&run);
        assert!(output(&run).contains("the server did not make them: once."), "{}", output(&run));
        assert_eq!(mariadb.sql("", triggers).trim(), "shop.tg,shop.tgg");
        assert_eq!(mariadb.sql("shop", "SHOW TABLES LIKE 'x%'").matches("Routines").count(), 2);
    }
    mariadb.sql("shop", "DROP TRIGGER tg; DROP TRIGGER tgg");
    for options in [
        json!({"database_name": "shop_2"}),
        json!({"database_name": "shop_2", "no_owner": true}),
        json!({"database_name": "shop_2", "dry_run": true}),
    ] {
        let run = bench.restore(&one, options).await;
        assert_failed(&run, "hostile_archive");
        assert!(!output(&run).contains("Loading"), "refused before anything is loaded: {}", output(&run));
        assert_eq!(mariadb.sql("", triggers).trim(), "NULL", "none in the database that it was made in");
        assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE 'shop\\_2'").trim(), "");
    }
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE 'holdfast%'").trim(), "", "nothing is left behind");
}

/// A function that returns only for its owner, and sleeps for an hour for everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_never_returns_blocks_nothing() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.engine.remote.answer = Duration::from_secs(5);
    let bench = mariadb_bench(&mariadb, &shims, settings).await;
    let tenant = Tenant::new(&mariadb);
    mariadb.sql("", "CREATE DATABASE other; CREATE TABLE other.t AS SELECT 7 a");
    let function = b"CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN IF(USER() LIKE 'tenant%', 1, (SELECT SLEEP(3600) + 1)) $$ \
        CREATE VIEW v AS SELECT ROUND(1.5, f()) AS a $$ CREATE VIEW w AS SELECT a FROM t";
    tenant.write(function);
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    mariadb.sql("", "DROP DATABASE other; DROP DATABASE shop");
    let run = bench.restore(&all, json!({"overwrite": true})).await;
    assert_failed(&run, "remote_failed");
    assert!(output(&run).contains("shop.v") && output(&run).contains("max_statement_time"), "{}", output(&run));
    assert_eq!(mariadb.sql("", "SELECT a FROM other.t").trim(), "7");
    let waiting =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(3600)%' AND id <> CONNECTION_ID()";
    assert_eq!(mariadb.sql("", waiting).trim(), "0", "no session is left behind");
}

/// A user with rights to one database cannot create a copy, but can still restore it: from its own backup, and from one
/// of the whole server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_database_is_restored_by_a_user_who_may_make_no_other() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE USER own IDENTIFIED BY 'p'; GRANT ALL ON shop.* TO own; CREATE DATABASE shop");
    mariadb.sql("shop", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)");
    mariadb.sql("shop", "CREATE DEFINER=own TRIGGER tg BEFORE INSERT ON t FOR EACH ROW SET NEW.a = NEW.a + 10");
    mariadb.sql("shop", "CREATE DEFINER=own PROCEDURE p() SELECT 'p'; CREATE DEFINER=own VIEW v AS SELECT a FROM t");
    mariadb.sql("shop", "CREATE DEFINER=own EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1");
    mariadb.sql("", "CREATE DATABASE other; CREATE TABLE other.t (a INT)");
    let before = definitions(&mariadb, "shop");
    let one = json!({"database_name": "shop", "database_engine": "mysql"});
    let one = bench.back_up(task(&bench, one).await).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    login(&bench, "own", Some("p")).await;
    for backup in [&one, &all] {
        for prepare in ["DROP DATABASE shop", "DROP DATABASE shop; CREATE DATABASE shop"] {
            mariadb.sql("", prepare);
            let run = bench.restore(backup, json!({"database_name": "shop"})).await;
            assert_successful(&run);
            assert!(output(&run).contains("may not make a copy"), "{}", output(&run));
            assert_eq!(mariadb.sql("shop", "SELECT GROUP_CONCAT(a ORDER BY a) FROM v").trim(), "1,2");
            assert_eq!(definitions(&mariadb, "shop"), before);
        }
        // Without a copy, existing content is not replaced.
        let run = bench.restore(backup, json!({"database_name": "shop", "overwrite": true})).await;
        assert_eq!(run["status"], "failed", "{}", output(&run));
        assert_eq!(mariadb.sql("shop", "SELECT GROUP_CONCAT(a ORDER BY a) FROM v").trim(), "1,2");
    }
}

/// Everything, including events, is created in a copy before the existing database is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_replaced_when_an_event_or_a_lock_is_in_the_way() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb
        .sql("", "CREATE DATABASE aaa; CREATE TABLE aaa.t (a INT); CREATE DATABASE shop; CREATE TABLE shop.t (a INT)");
    mariadb.sql("shop", "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1");
    let shop = task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await;
    let one = bench.back_up(shop).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    mariadb.sql("", "CREATE TABLE aaa.precious (a INT); CREATE TABLE shop.precious (a INT)");
    let precious = "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'precious'";
    mariadb.sql("", "CREATE USER less IDENTIFIED BY 'p'; GRANT ALL ON *.* TO less; REVOKE EVENT ON *.* FROM less");
    login(&bench, "less", Some("p")).await;
    let run = bench.restore(&one, json!({"database_name": "shop", "overwrite": true})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(output(&run).contains("The event e could not be made"), "{}", output(&run));
    assert!(output(&run).contains("The database shop was not changed."), "{}", output(&run));
    assert_eq!(mariadb.sql("", precious).trim(), "2");

    login(&bench, "ada", Some("secret")).await;
    let socket = mariadb.socket().to_owned();
    let mut holder = std::process::Command::new("mariadb")
        .args(["--no-defaults", "--user=root", "--execute=LOCK TABLES shop.t READ; SELECT SLEEP(600)"])
        .arg(format!("--socket={}", socket.display()))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let is_held = "SELECT COUNT(*) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(600)'";
    wait_for(async || (mariadb.sql("", is_held).trim() == "1").then_some(())).await;
    let run = bench.restore(&all, json!({"overwrite": true})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(output(&run).contains("A table of shop is in use by somebody else"), "{}", output(&run));
    assert!(output(&run).contains("No database that was there was changed."), "{}", output(&run));
    assert_eq!(mariadb.sql("", precious).trim(), "2");
    let kill = "SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE info = 'SELECT SLEEP(600)'";
    mariadb.sql("", mariadb.sql("", kill).trim());
    holder.wait().unwrap();
    assert_successful(&bench.restore(&all, json!({"overwrite": true})).await);
    assert_eq!(mariadb.sql("", precious).trim(), "0");
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE 'holdfast%'").trim(), "", "nothing is left behind");
}

/// A name that the dump tool cannot handle with events, names that differ by case, and users who do not see everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_without_some_definitions_is_not_successful() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE `it's`; CREATE EVENT `it's`.e ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1");
    mariadb.sql("", "CREATE DATABASE `IT'S`; CREATE VIEW `IT'S`.v AS SELECT 1; CREATE PROCEDURE `it's`.p() SELECT 1");
    let odd = bench.back_up(task(&bench, json!({"database_name": "it's", "database_engine": "mysql"})).await).await;
    assert_successful(&bench.restore(&odd, json!({"database_name": "back"})).await);
    let named = "SELECT event_name FROM information_schema.events WHERE event_schema = 'back' UNION ALL SELECT routine_name \
        FROM information_schema.routines WHERE routine_schema = 'back' UNION ALL SELECT table_name FROM \
        information_schema.views WHERE table_schema = 'back'";
    assert_eq!(mariadb.sql("", named).split_whitespace().collect::<Vec<_>>(), ["e", "p"]);

    // The part after the tables does not hide that some of them are missing.
    let real = "exec=$(PATH=/usr/bin:/bin command -v mariadb-dump); case $2 in --help) exec $exec \"$@\";; esac; ";
    for cut in ["head -n -1", "head -n 5", "sed '$d' | tr -d '\\n'", "head -c 0"] {
        shim(&shims, "mariadb-dump", &format!("{real} $exec \"$@\" | {cut}"));
        for options in
            [json!({"database_name": "it's", "database_engine": "mysql"}), json!({"database_engine": "mysql"})]
        {
            assert_failed(&bench.run(task(&bench, options).await).await, "incomplete");
        }
    }
    std::fs::remove_file(shims.path().join("mariadb-dump")).unwrap();

    mariadb.sql("", "CREATE DATABASE shop; CREATE TABLE shop.t (a INT); CREATE FUNCTION shop.f() RETURNS INT RETURN 1");
    mariadb
        .sql("", "CREATE USER weak IDENTIFIED BY 'w'; GRANT SELECT, LOCK TABLES, SHOW VIEW, TRIGGER ON shop.* TO weak");
    login(&bench, "weak", Some("w")).await;
    let shop = task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await;
    let run = bench.run(shop).await;
    assert_failed(&run, "database_auth");
    assert!(output(&run).contains("Grant the database user EVENT"), "{}", output(&run));
    mariadb.sql("", "GRANT EVENT, EXECUTE ON shop.* TO weak");
    let run = bench.run(shop).await;
    assert_failed(&run, "remote_failed");
    assert!(output(&run).contains("did not say what the function shop.f is"), "{}", output(&run));
    mariadb.sql("", "GRANT SELECT ON mysql.proc TO weak");
    bench.back_up(shop).await;

    // A read-only user, as the manual recommends; and rights through a role.
    mariadb.sql("", "CREATE USER reader IDENTIFIED BY 'r'; GRANT SELECT, SHOW VIEW, TRIGGER, EVENT, LOCK TABLES, PROCESS ON *.* TO reader");
    login(&bench, "reader", Some("r")).await;
    for options in [json!({"database_name": "shop", "database_engine": "mysql"}), json!({"database_engine": "mysql"})] {
        let task = task(&bench, options).await;
        bench.back_up(task).await;
        let log = bench.latest_log(task).await;
        assert!(!output(&log).contains("Warning"), "{}", output(&log));
    }
    mariadb.sql("", "CREATE ROLE r1; GRANT SELECT, LOCK TABLES, SHOW VIEW, EVENT ON shop.* TO r1");
    mariadb.sql("", "CREATE USER via IDENTIFIED BY 'v'; GRANT r1 TO via; SET DEFAULT ROLE r1 FOR via");
    login(&bench, "via", Some("v")).await;
    bench.back_up(shop).await;
    let log = bench.latest_log(shop).await;
    for missing in ["may not see triggers of shop", "may not see routines of shop"] {
        assert!(output(&log).contains(missing), "{missing}: {}", output(&log));
    }
    // Rights to another database do not count for this one, wherever they come from.
    mariadb.sql("", "CREATE DATABASE aside; GRANT ALL ON aside.* TO r1; GRANT TRIGGER, EXECUTE ON aside.* TO via");
    bench.back_up(shop).await;
    let log = bench.latest_log(shop).await;
    for missing in ["may not see triggers of shop", "may not see routines of shop"] {
        assert!(output(&log).contains(missing), "{missing}: {}", output(&log));
    }
    let all = task(&bench, json!({"database_engine": "mysql"})).await;
    bench.run(all).await;
    let log = bench.latest_log(all).await;
    for missing in ["sees only the databases that it has rights to", "may not see triggers of shop"] {
        assert!(output(&log).contains(missing), "{missing}: {}", output(&log));
    }
    mariadb.sql("", "GRANT TRIGGER ON shop.* TO r1; GRANT SELECT ON mysql.proc TO r1");
    bench.back_up(shop).await;
    let log = bench.latest_log(shop).await;
    for seen in ["may not see triggers", "may not see routines", "has rights to"] {
        assert!(!output(&log).contains(seen), "{seen}: {}", output(&log));
    }
}

/// A user who may create routines, views and events in one database, and tries to gain rights when somebody with all
/// rights restores it.
pub struct Tenant<'a> {
    mariadb: &'a MariaDbServer,
}

/// The delimiter of their statements.
const END: &str = "$$";
const GRANT: &str = "GRANT ALL ON *.* TO tenant WITH GRANT OPTION";

impl<'a> Tenant<'a> {
    pub fn new(mariadb: &'a MariaDbServer) -> Self {
        mariadb.sql("", "CREATE DATABASE shop; CREATE USER tenant; GRANT ALL ON `shop%`.* TO tenant");
        mariadb.sql("", "SET GLOBAL event_scheduler = ON; CREATE TABLE shop.t AS SELECT 1 a");
        Self { mariadb }
    }

    pub fn write(&self, sql: &[u8]) {
        self.mariadb.statements("tenant", "shop", END, sql);
    }

    pub fn has_all_privileges(&self) -> bool {
        self.mariadb.sql("", "SHOW GRANTS FOR tenant").contains("ALL PRIVILEGES ON *.*")
    }

    /// Statements that the server and the client parse differently.
    fn unclear() -> [Vec<u8>; 6] {
        // Hex-encoded, because the client would drop a line break here, too.
        let command = format!("CREATE PROCEDURE v() SELECT 1 AS\ndelimiter, 1 -\n- 2 , '\n; {GRANT}; -- ' AS z");
        let command = format!("SET @w = X'{}' $$ PREPARE w FROM @w $$ EXECUTE w", hex(&command));
        let pair =
            format!("SET NAMES gbk $$ CREATE VIEW v AS SELECT '\u{1}' AS a, ' # ' AS `b\nc`, ' */; {GRANT}; -- ' AS d");
        let to_pair = |byte: u8| if byte == 1 { b"\xbf\\".to_vec() } else { vec![byte] };
        [
            format!("CREATE PROCEDURE v() SELECT 1 --\u{1} ;; {GRANT} ;;\n").into_bytes(),
            format!("CREATE PROCEDURE v() SELECT 1 --\u{1} '\n, '# ',\n ' ; {GRANT}; -- '").into_bytes(),
            format!(
                "CREATE TRIGGER v BEFORE DELETE --\u{1} ON a.\n ON t FOR EACH ROW SET @x = '\n ON t FOR EACH ROW SET @y = 1 \
                 */; {GRANT}; -- '"
            )
            .into_bytes(),
            b"SET NAMES latin1 $$ CREATE PROCEDURE v() CREATE TABLE IF NOT EXISTS z (a INT) --\xa0 ;;\nSELECT 1 AS a"
                .to_vec(),
            pair.bytes().flat_map(to_pair).collect(),
            command.into_bytes(),
        ]
    }

    fn drop_unclear(&self) {
        for kind in ["PROCEDURE", "TRIGGER", "VIEW"] {
            self.mariadb.sql("shop", &format!("DROP {kind} IF EXISTS v"));
        }
    }

    /// Creates unambiguous objects that look like statements of the dump tool, and restores them.
    async fn fill_and_restore(&self, bench: &Bench, shop: i64, is_plain: bool) {
        let Self { mariadb } = self;
        self.write(
            b"CREATE VIEW a AS SELECT a FROM t $$ CREATE VIEW b AS SELECT a FROM a $$ CREATE VIEW c AS SELECT a FROM b",
        );
        self.write(format!("CREATE EVENT `x PRESERVE ENABLE y` ON SCHEDULE EVERY 1 SECOND DO {GRANT}").as_bytes());
        self.write(b"CREATE EVENT z ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1");
        self.write(format!("CREATE PROCEDURE up() {GRANT}").as_bytes());
        self.write(b"CREATE PROCEDURE said() BEGIN\n  -- do not remove: it's needed\n  SELECT 1; /* audited; */\nEND");
        self.write(b"CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW BEGIN /* plain */ SET @a = 1; END");
        // The client takes such a line for a client command, wherever it is.
        let command = if is_plain { "DELIM" } else { "DELIMITER" };
        self.write(
            format!("CREATE PROCEDURE `p\n{command} ;;\n/*!50106 CREATE*/ '`() SELECT '`;;\n` */; {GRANT}; -- ` #'")
                .as_bytes(),
        );
        self.write(
            format!("CREATE TABLE d (`a\nCREATE DEFINER=` INT COMMENT '`x` int);{GRANT};-- ', b INT)").as_bytes(),
        );
        self.write(b"CREATE TABLE s (`a\n-- Routines, triggers, views and events\nDROP TABLE t;\nz` INT, b INT)");
        let before = definitions(mariadb, "shop");
        let one = bench.back_up(shop).await;
        assert!(!output(&bench.latest_log(shop).await).contains("cannot be restored"));
        let all = bench.back_up(task(bench, json!({"database_engine": "mysql"})).await).await;
        for (backup, body) in [
            (&one, json!({"database_name": "shop", "overwrite": true})),
            (&one, json!({"database_name": "shop_2"})),
            (&all, json!({"overwrite": true})),
        ] {
            assert_successful(&bench.restore(backup, body).await);
            assert!(!self.has_all_privileges());
        }
        assert_eq!(definitions(mariadb, "shop"), before);
        assert_eq!(definitions(mariadb, "shop_2"), before);
        assert_eq!(mariadb.sql("shop", "SELECT a FROM c").trim(), "1");
        assert_eq!(mariadb.sql("", "SELECT COUNT(*) FROM information_schema.events").trim(), "4");
        // Without owners the objects would belong to the restoring user, and the log says so.
        let run = bench.restore(&one, json!({"database_name": "third", "no_owner": true})).await;
        assert_successful(&run);
        assert!(output(&run).contains("2 events were left out"), "{}", output(&run));
        assert!(output(&run).contains("said, tr, up."), "{}", output(&run));
        assert!(!self.has_all_privileges());
    }

    /// Functions that are called when a view is created, and try to reach more than their owner may: somebody else's
    /// rows and procedure.
    async fn find_nothing_without_owners(&self, bench: &Bench, shop: i64) {
        let Self { mariadb } = self;
        mariadb.sql(
            "",
            "CREATE DATABASE victim; CREATE TABLE victim.t AS SELECT 7 a; CREATE TABLE victim.u AS SELECT 1 a",
        );
        mariadb.sql("victim", "CREATE PROCEDURE wipe() DELETE FROM u");
        self.write(b"CREATE SEQUENCE said_by NOCACHE");
        self.write(
            b"CREATE FUNCTION finds() RETURNS INT DETERMINISTIC SQL SECURITY INVOKER MODIFIES SQL DATA BEGIN DECLARE n INT DEFAULT 0; \
              DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END; SELECT a INTO n FROM victim.t; WHILE n > 0 DO SET n = n - \
              1; DO NEXTVAL(said_by); END WHILE; CALL victim.wipe(); RETURN 1; END",
        );
        self.write(b"CREATE VIEW finding AS SELECT LEFT('abc', finds()) AS x");
        let before = mariadb.sql("shop", "SELECT next_not_cached_value FROM said_by");
        let backup = bench.back_up(shop).await;
        for body in [
            json!({"database_name": "shop", "overwrite": true}),
            json!({"database_name": "shop", "overwrite": true, "no_owner": true}),
            json!({"database_name": "fourth", "no_owner": true}),
        ] {
            let run = bench.restore(&backup, body.clone()).await;
            let is_told = output(&run).contains("1 view could not be made");
            assert!(is_told || run["status"] == "successful", "{}", output(&run));
            assert_eq!(mariadb.sql("victim", "SELECT COUNT(*) FROM u").trim(), "1", "{body}");
            let name = body["database_name"].as_str().unwrap();
            assert_eq!(mariadb.sql(name, "SELECT next_not_cached_value FROM said_by"), before, "{body}");
        }
        mariadb.sql("", "DROP DATABASE victim; DROP VIEW IF EXISTS shop.finding; DROP FUNCTION shop.finds");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_wrote_never_runs_as_whoever_restores() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    let tenant = Tenant::new(&mariadb);
    let shop = task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await;
    tenant.fill_and_restore(&bench, shop, false).await;
    tenant.find_nothing_without_owners(&bench, shop).await;
    for text in Tenant::unclear() {
        tenant.write(&text);
        let before = definitions(&mariadb, "shop");
        let backup = bench.back_up(shop).await;
        let log = bench.latest_log(shop).await;
        assert!(!output(&log).contains("cannot be restored"), "{}", output(&log));
        assert_successful(&bench.restore(&backup, json!({"database_name": "shop", "overwrite": true})).await);
        assert_eq!(definitions(&mariadb, "shop"), before);
        assert!(!tenant.has_all_privileges(), "{}", String::from_utf8_lossy(&text));
        tenant.drop_unclear();
        bench.app.clock.advance_secs(60);
    }
    // The table of this trigger is ambiguous, so it is not created in a database with another name.
    tenant.write(&Tenant::unclear()[2]);
    let backup = bench.back_up(shop).await;
    let run = bench.restore(&backup, json!({"database_name": "shop_3"})).await;
    assert_failed(&run, "hostile_archive");
    assert!(output(&run).contains("The trigger v may name the database"), "{}", output(&run));
}

/// MySQL cannot prepare statements that create routines, so its client has to find where they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_servers_get_only_unambiguous_definitions() {
    let mariadb = MariaDbServer::like_mysql();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    let tenant = Tenant::new(&mariadb);
    let shop = task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await;
    tenant.fill_and_restore(&bench, shop, true).await;
    let before = definitions(&mariadb, "shop");
    for text in Tenant::unclear() {
        tenant.write(&text);
        let backup = bench.back_up(shop).await;
        let log = bench.latest_log(shop).await;
        assert!(output(&log).contains("Warning: This backup cannot be restored by itself."), "{}", output(&log));
        for body in [json!({"database_name": "shop", "overwrite": true}), json!({"database_name": "shop_3"})] {
            assert_failed(&bench.restore(&backup, body).await, "hostile_archive");
            assert!(!tenant.has_all_privileges(), "{}", String::from_utf8_lossy(&text));
        }
        tenant.drop_unclear();
        bench.app.clock.advance_secs(60);
    }
    assert_eq!(definitions(&mariadb, "shop"), before);
    // The dump sets the collation temporarily; that must affect the target database.
    let collation = |name: &str| mariadb.sql(name, "SELECT @@collation_database").trim().to_owned();
    mariadb.sql("", "ALTER DATABASE shop COLLATE utf8mb4_unicode_520_ci");
    let backup = bench.back_up(shop).await;
    mariadb.sql("", "ALTER DATABASE shop COLLATE koi8r_bin");
    let run = bench.restore(&backup, json!({"database_name": "shop_9"})).await;
    assert_successful(&run);
    assert!(!output(&run).contains("DELIMITER"), "{}", output(&run));
    assert_eq!((collation("shop").as_str(), collation("shop_9").as_str()), ("koi8r_bin", "utf8mb4_unicode_520_ci"));
    assert_eq!(definitions(&mariadb, "shop_9"), before);
}

/// A backup of MariaDB on a server that can prepare fewer statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hex_encoded_definitions_load_on_servers_that_cannot_prepare_them() {
    let (mariadb, mysql) = (MariaDbServer::start(), MariaDbServer::like_mysql());
    let (shims, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    let tenant = Tenant::new(&mariadb);
    let shop = task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await;
    tenant.fill_and_restore(&bench, shop, true).await;
    let before = definitions(&mariadb, "shop");
    let backup = bench.back_up(shop).await;
    let there = mariadb_bench(&mysql, &others, Settings::default()).await;
    mysql.sql("", "CREATE USER tenant; GRANT ALL ON `shop%`.* TO tenant");
    let server = crate::bench::add_server(
        &bench,
        &there.ssh,
        json!({"database_username": "ada", "database_password": "secret"}),
    )
    .await;
    let body = json!({"database_name": "shop", "remote_server_id": server});
    assert_successful(&bench.restore(&backup, body.clone()).await);
    // An SQL mode that MySQL no longer has.
    assert!(before.contains("NO_AUTO_CREATE_USER"), "{before}");
    assert_eq!(definitions(&mysql, "shop"), before.replace("NO_AUTO_CREATE_USER,", ""));
    mysql.sql("", "DROP DATABASE shop");
    for text in Tenant::unclear() {
        tenant.write(&text);
        let backup = bench.back_up(shop).await;
        let is_view = String::from_utf8_lossy(&text).contains("VIEW");
        let run = bench.restore(&backup, body.clone()).await;
        if is_view {
            assert_successful(&run);
            mysql.sql("", "DROP DATABASE shop");
        } else {
            assert_failed(&run, "hostile_archive");
            assert_eq!(mysql.sql("", "SHOW DATABASES LIKE 'shop'").trim(), "");
        }
        tenant.drop_unclear();
        bench.app.clock.advance_secs(60);
    }
}
