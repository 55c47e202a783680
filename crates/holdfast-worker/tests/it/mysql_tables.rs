use std::os::unix::fs::PermissionsExt as _;

use holdfast_testkit::{MariaDbServer, Settings};
use serde_json::json;

use crate::bench::{add_server, assert_failed, assert_successful, output};
use crate::databases::{login, shim, task};
use crate::mysql::mariadb_bench;
use crate::mysql_definitions::{Tenant, definitions};

/// The definition that a server prints for a table does not always parse back to the same table, and showing or
/// creating a view may run functions: neither a backup nor a restore may run anything of a tenant as another user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_and_views_of_a_tenant_run_nothing_as_others() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    let tenant = Tenant::new(&mariadb);
    mariadb.sql("", "CREATE DATABASE other; CREATE TABLE other.t (a INT); INSERT INTO other.t VALUES (1)");
    let shop = task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await;
    let all = task(&bench, json!({"database_engine": "mysql"})).await;
    tenant.write(b"CREATE TABLE leak (who TEXT)");
    tenant.write(
        b"CREATE FUNCTION calls() RETURNS INT DETERMINISTIC SQL SECURITY INVOKER MODIFIES SQL DATA BEGIN DECLARE CONTINUE \
          HANDLER FOR SQLEXCEPTION BEGIN END; INSERT INTO shop.leak VALUES (CURRENT_USER()); RETURN 1; END",
    );
    tenant.write(b"CREATE SQL SECURITY INVOKER VIEW called AS SELECT ROUND(1.234, calls()) AS x");
    tenant.write(b"CREATE SEQUENCE sq $$ CREATE VIEW asked AS SELECT nextval(sq) AS n");
    mariadb.sql("shop", "DELETE FROM leak");
    let before = definitions(&mariadb, "shop");
    let leaked = || mariadb.sql("shop", "SELECT COUNT(*) FROM leak WHERE who NOT LIKE 'tenant%'").trim().to_owned();
    let one = bench.back_up(shop).await;
    let whole = bench.back_up(all).await;
    assert_eq!(leaked(), "0", "a backup runs nothing");
    for (backup, body) in [
        (&one, json!({"database_name": "shop", "overwrite": true})),
        (&whole, json!({"overwrite": true})),
        (&whole, json!({"database_name": "shop", "overwrite": true})),
        (&one, json!({"database_name": "shop_2"})),
    ] {
        assert_successful(&bench.restore(backup, body).await);
        assert_eq!(leaked(), "0", "a restore runs nothing as somebody else");
        assert_eq!(definitions(&mariadb, "shop"), before);
    }
    mariadb.sql("shop", "DROP VIEW called");
    // A view that runs as its owner calls the function as the user who creates the view.
    tenant.write(b"CREATE VIEW owned AS SELECT ROUND(1.5, calls()) AS a, 'nextval(' AS b");
    tenant.write(
        b"SET sql_mode = ORACLE $$ CREATE PACKAGE pk SQL SECURITY INVOKER AS FUNCTION f RETURN INT; END $$ CREATE PACKAGE BODY pk \
          SQL SECURITY INVOKER AS FUNCTION f RETURN INT DETERMINISTIC AS BEGIN INSERT INTO shop.leak VALUES (CURRENT_USER()); RETURN \
          1; END; END $$ CREATE SQL SECURITY INVOKER VIEW packed AS SELECT pk.f() AS a",
    );
    // Views may call functions that write.
    tenant.write(b"CREATE FUNCTION writes() RETURNS INT BEGIN INSERT INTO t VALUES (9); RETURN 1; END");
    tenant.write(b"CREATE VIEW writing AS SELECT writes() AS a");
    // The server keeps triggers that refer to dropped columns.
    tenant
        .write(b"CREATE TABLE tt (a INT, x INT) $$ CREATE TRIGGER gone BEFORE INSERT ON tt FOR EACH ROW SET NEW.x = 1");
    tenant.write(b"CREATE TRIGGER stays AFTER INSERT ON tt FOR EACH ROW SET @x = 1 $$ ALTER TABLE tt DROP COLUMN x");
    let backup = bench.back_up(shop).await;
    let whole = bench.back_up(all).await;
    for (backup, body) in
        [(&backup, json!({"database_name": "shop", "overwrite": true})), (&whole, json!({"overwrite": true}))]
    {
        let run = bench.restore(backup, body).await;
        assert_successful(&run);
        assert_eq!(leaked(), "0", "nothing ran as somebody else");
        assert!(output(&run).contains("The trigger gone could not be made"), "{}", output(&run));
        let names =
            "SELECT GROUP_CONCAT(table_name ORDER BY 1) FROM information_schema.views WHERE table_schema = 'shop'";
        assert_eq!(mariadb.sql("", names).trim(), "asked,owned,packed,writing");
        let triggers =
            "SELECT GROUP_CONCAT(trigger_name) FROM information_schema.triggers WHERE trigger_schema = 'shop'";
        assert_eq!(mariadb.sql("", triggers).trim(), "stays");
    }
    mariadb.sql(
        "shop",
        "DROP VIEW owned, writing, packed; DROP TABLE tt; DELETE FROM leak; SET sql_mode = ORACLE; DROP PACKAGE pk",
    );
    // A function of a database that is not restored runs as the user who creates the view.
    mariadb.sql("", "DROP DATABASE shop_2; GRANT ALL ON aside.* TO tenant; CREATE DATABASE aside");
    mariadb.statements(
        "tenant",
        "aside",
        "$$",
        b"CREATE FUNCTION f() RETURNS INT DETERMINISTIC SQL SECURITY INVOKER MODIFIES SQL DATA BEGIN DECLARE CONTINUE HANDLER \
          FOR SQLEXCEPTION BEGIN END; INSERT INTO shop.leak VALUES (CURRENT_USER()); RETURN 1; END",
    );
    tenant.write(b"CREATE SQL SECURITY INVOKER VIEW far AS SELECT ROUND(1.2, aside.f()) AS x");
    let backup = bench.back_up(shop).await;
    let run = bench.restore(&backup, json!({"database_name": "shop", "overwrite": true})).await;
    assert_successful(&run);
    assert_eq!(leaked(), "0");
    assert_eq!(mariadb.sql("shop", "SHOW TABLES LIKE 'far'").trim(), "far");
    // The server also runs functions in views that a view reads from, in any database, in their current version.
    mariadb.sql("", "CREATE DATABASE shop_b; CREATE TABLE other.secret AS SELECT 'hidden' AS s; DROP VIEW shop.far");
    let calling = b"CREATE OR REPLACE FUNCTION deep() RETURNS INT DETERMINISTIC RETURN 1 $$ CREATE SQL SECURITY INVOKER VIEW d1 AS \
        SELECT ROUND(1.5, deep()) AS a";
    mariadb.statements("tenant", "shop_b", "$$", calling);
    tenant.write(calling);
    tenant
        .write(b"CREATE SQL SECURITY INVOKER VIEW d2 AS SELECT a FROM d1 $$ CREATE VIEW d3 AS SELECT a FROM shop_b.d1");
    tenant.write(b"CREATE VIEW d4 AS SELECT a AS `x\ndelimiter y`, (SELECT COUNT(*) FROM information_schema.tables) AS b FROM d1");
    let (one, whole) = (bench.back_up(shop).await, bench.back_up(all).await);
    let grown = b"CREATE OR REPLACE FUNCTION deep() RETURNS INT DETERMINISTIC SQL SECURITY INVOKER MODIFIES SQL DATA BEGIN DECLARE CONTINUE \
        HANDLER FOR SQLEXCEPTION BEGIN END; INSERT INTO shop.leak VALUES (CURRENT_USER()); INSERT INTO shop.leak SELECT s FROM \
        other.secret; SET GLOBAL init_connect = 'SELECT 1'; RETURN 1; END";
    for (backup, body) in [
        (&one, json!({"database_name": "shop", "overwrite": true})),
        (&one, json!({"database_name": "shop_c"})),
        (&whole, json!({"database_name": "shop", "overwrite": true})),
        (&whole, json!({"overwrite": true})),
    ] {
        mariadb.statements("tenant", "shop_b", "$$", grown);
        tenant.write(grown);
        bench.run(shop).await;
        bench.run(all).await;
        assert_eq!(leaked(), "0", "a backup runs nothing");
        assert_eq!(mariadb.sql("", "SELECT @@global.init_connect").trim(), "", "a backup runs nothing");
        let run = bench.restore(backup, body).await;
        assert_eq!(leaked(), "0", "nothing ran as somebody else: {}", output(&run));
        assert_eq!(mariadb.sql("", "SELECT @@global.init_connect").trim(), "");
        let users = "SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'holdfast%'";
        assert_eq!(mariadb.sql("", users).trim(), "0", "no account is left behind");
    }
    mariadb.sql(
        "shop",
        "DROP VIEW d2, d3, d4, d1; DROP DATABASE shop_b; DROP DATABASE IF EXISTS shop_c; DELETE FROM leak",
    );

    // A text with a character set introducer is printed without escapes.
    let grant = br"CREATE TABLE p (x TEXT DEFAULT (CONCAT(_latin1 'a\\\')); GRANT ALL ON *.* TO tenant WITH GRANT OPTION; CREATE TABLE p2 (x TEXT DEFAULT CONCAT(\\\'', 'c')))";
    tenant.write(grant);
    let run = bench.run(shop).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(output(&run).contains("The table shop.p cannot be backed up"), "{}", output(&run));
    let backup = bench.back_up(all).await;
    assert!(output(&bench.latest_log(all).await).contains("It is not in this backup."));
    assert_successful(&bench.restore(&backup, json!({"overwrite": true})).await);
    assert!(!tenant.has_all_privileges());
    assert_eq!(mariadb.sql("shop", "SHOW TABLES LIKE 'p%'").trim(), "", "it was replaced as a whole");
    // The tenant also controls the end of the definition.
    for text in [
        br"CREATE TABLE p (a TEXT DEFAULT (CONCAT(_latin1'\\\')) AS SELECT shop.calls() AS a /*'))) COMMENT='*/ -- '".as_slice(),
        br"CREATE TABLE p (a INT DEFAULT (0 + LENGTH(_latin1'\\\') * 0 )) /*'))) ENGINE=MyISAM COMMENT='*/ ENGINE=MRG_MyISAM UNION=(other.t) INSERT_METHOD=LAST -- '",
    ] {
        tenant.write(text);
        let run = bench.run(shop).await;
        assert_eq!(run["status"], "failed", "{}", output(&run));
        assert_eq!(leaked(), "0");
        tenant.write(b"DROP TABLE p");
    }
    // The same with a text that stays one statement: it creates only a table.
    tenant.write(br"CREATE TABLE p (x TEXT DEFAULT (CONCAT(_latin1 'a\\\'), y TEXT DEFAULT CONCAT(\\\'', 'c')))");
    let backup = bench.back_up(shop).await;
    assert_successful(&bench.restore(&backup, json!({"database_name": "shop", "overwrite": true})).await);
    assert_eq!(mariadb.sql("other", "SELECT a FROM t").trim(), "1");
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE 'holdfast%'").trim(), "", "nothing is left behind");
}

const SHOWN: &str = "SHOW CREATE TABLE t; SELECT * FROM t; SELECT next_not_cached_value FROM s; SHOW CREATE TABLE wide; SHOW \
    CREATE TABLE hidden; SELECT next_not_cached_value FROM back; SELECT next_not_cached_value FROM least";

/// Defaults from sequences, whatever the settings of the server, and wherever the sequences are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_from_sequences_are_restored() {
    let (mariadb, fresh) = (MariaDbServer::start(), MariaDbServer::start());
    let (shims, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE zz; CREATE SEQUENCE zz.far; CREATE DATABASE shop");
    mariadb.sql("shop", "CREATE SEQUENCE s START WITH 5 INCREMENT BY 3; SELECT nextval(s)");
    mariadb.sql(
        "shop",
        "SET sql_mode = ''; CREATE TABLE t (id BIGINT DEFAULT nextval(s) PRIMARY KEY, w BIGINT DEFAULT (nextval(s) + 1), f BIGINT \
         DEFAULT nextval(zz.far), d DATETIME NOT NULL DEFAULT '0000-00-00', n INT); INSERT INTO t (n) VALUES (1), (2)",
    );
    mariadb.sql("shop", "CREATE TABLE hidden (id BIGINT NOT NULL INVISIBLE DEFAULT nextval(s), v INT)");
    // Sequences that were reset, and an exhausted one.
    mariadb.sql("shop", "CREATE SEQUENCE back START 100 NOCACHE; SELECT nextval(back); ALTER SEQUENCE back RESTART 7");
    mariadb.sql(
        "shop",
        "CREATE SEQUENCE least START -9223372036854775800 INCREMENT -5 MINVALUE -9223372036854775807; SELECT nextval(least)",
    );
    mariadb.sql("shop", "CREATE VIEW v AS SELECT * FROM t; CREATE PROCEDURE p() SELECT 1");
    mariadb.sql("shop", "SET innodb_strict_mode = 0; CREATE TABLE wide (a INT) ROW_FORMAT=FIXED");
    let shown = |server: &MariaDbServer, name: &str| server.sql(name, SHOWN);
    let before = shown(&mariadb, "shop");
    let one = bench.back_up(task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    for set_up in [
        "sql_mode = DEFAULT",
        "sql_mode = 'TRADITIONAL'",
        "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
        "sql_quote_show_create = 0",
        "max_statement_time = 0.000001",
    ] {
        mariadb.sql("", &format!("SET GLOBAL {set_up}"));
        for (backup, name) in [(&one, "shop"), (&all, "shop"), (&one, "elsewhere")] {
            let run = bench.restore(backup, json!({"database_name": name, "overwrite": true})).await;
            assert_successful(&run);
            let asking = "SET SESSION sql_mode = '', sql_quote_show_create = 1, max_statement_time = 0;";
            let server = mariadb.sql(name, &format!("{asking} {SHOWN}"));
            assert_eq!(server, before.replace("`shop`", &format!("`{name}`")), "{set_up} {name}");
            mariadb.sql(name, &format!("{asking} INSERT INTO t (n) VALUES (3); CALL p(); SELECT * FROM v"));
        }
        mariadb.sql("", "SET SESSION max_statement_time = 0; SET GLOBAL sql_quote_show_create = 1, max_statement_time = 0, sql_mode = DEFAULT");
    }
    // On a server without these databases.
    let there = mariadb_bench(&fresh, &others, Settings::default()).await;
    let body = json!({"database_username": "ada", "database_password": "secret"});
    let server = add_server(&bench, &there.ssh, body).await;
    assert_successful(&bench.restore(&all, json!({"remote_server_id": server, "overwrite": true})).await);
    assert_eq!(shown(&fresh, "shop"), before);
    assert_eq!(fresh.sql("", "SHOW DATABASES LIKE 'holdfast%'").trim(), "", "nothing is left behind");
}

/// Tables with their own data directories, folders that are not databases, and tables that a user may not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_backed_up_completely_or_reported() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    let aside = tempfile::Builder::new().prefix("holdfast-dd-").tempdir().unwrap();
    std::fs::set_permissions(aside.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    mariadb.sql("", "CREATE DATABASE shop; CREATE TABLE shop.t1 (a INT); INSERT INTO shop.t1 VALUES (1)");
    let directory = aside.path().display();
    mariadb.sql("shop", &format!("CREATE TABLE dd (a INT) DATA DIRECTORY = '{directory}'; INSERT INTO dd VALUES (7)"));
    let shop = task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await;
    let one = bench.back_up(shop).await;
    let run = bench.restore(&one, json!({"database_name": "shop", "overwrite": true})).await;
    assert_successful(&run);
    assert!(output(&run).contains("were in folders of their own"), "{}", output(&run));
    assert_eq!(mariadb.sql("shop", "SELECT a FROM dd").trim(), "7");
    assert!(!mariadb.sql("shop", "SHOW CREATE TABLE dd").contains("DIRECTORY"));
    assert!(!output(&run).contains("left behind"), "{}", output(&run));

    // Foreign keys to missing tables.
    mariadb.sql(
        "shop",
        "CREATE TABLE par (id INT PRIMARY KEY); CREATE TABLE chi (p INT, FOREIGN KEY (p) REFERENCES par (id))",
    );
    mariadb
        .sql("shop", "SET foreign_key_checks = 0; CREATE TABLE orphan (p INT, FOREIGN KEY (p) REFERENCES gone (id))");
    let options = json!({"database_name": "shop", "database_engine": "mysql", "excluded_tables": "par"});
    let without = bench.back_up(task(&bench, options).await).await;
    for name in ["shop", "elsewhere"] {
        let shown = || mariadb.sql(name, "SHOW CREATE TABLE chi; SHOW CREATE TABLE orphan");
        let run = bench.restore(&without, json!({"database_name": name, "overwrite": true})).await;
        assert_successful(&run);
        assert!(
            shown().contains("REFERENCES `par` (`id`)") && shown().contains("REFERENCES `gone` (`id`)"),
            "{}",
            shown()
        );
        mariadb
            .sql(name, "CREATE TABLE par (id INT PRIMARY KEY); INSERT INTO par VALUES (2); INSERT INTO chi VALUES (2)");
    }
    // The meaning of a backslash in such a text is ambiguous.
    mariadb.sql("shop", r"CREATE TABLE g (id INT, w VARCHAR(50) AS (REPLACE(_utf8mb4'C:\\new', ':', '')) STORED)");
    let run = bench.run(shop).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(output(&run).contains("The table shop.g cannot be backed up"), "{}", output(&run));
    mariadb.sql("shop", "DROP TABLE g, chi, orphan, par");
    // A table that the dump tool cannot read does not keep others out of a backup of all databases.
    let numbered = "CREATE DATABASE late; CREATE TABLE late.n (a INT, s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, e BIGINT \
        UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME(s, e)) WITH SYSTEM VERSIONING";
    mariadb.sql("", numbered);
    let late = task(&bench, json!({"database_name": "late", "database_engine": "mysql"})).await;
    let run = bench.run(late).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(
        output(&run).contains("late.n cannot be backed up: its history is kept by transactions"),
        "{}",
        output(&run)
    );
    let everything = task(&bench, json!({"database_engine": "mysql"})).await;
    let backup = bench.back_up(everything).await;
    let log = output(&bench.latest_log(everything).await).to_owned();
    assert!(log.contains("late.n cannot be backed up"), "{log}");
    assert_successful(&bench.restore(&backup, json!({"overwrite": true})).await);
    assert_eq!(mariadb.sql("shop", "SELECT a FROM dd").trim(), "7");
    mariadb.sql("", "DROP DATABASE late");

    // The dump tool writes no rows of what its user may not read.
    mariadb
        .sql("", "CREATE USER some IDENTIFIED BY 'p'; GRANT SHOW VIEW, TRIGGER, EVENT, LOCK TABLES ON shop.* TO some");
    mariadb.sql("", "GRANT SELECT ON shop.t1 TO some");
    login(&bench, "some", Some("p")).await;
    let run = bench.run(shop).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert!(output(&run).contains("A table of shop cannot be read"), "{}", output(&run));
    mariadb.sql("", "GRANT SELECT ON shop.dd TO some");
    bench.back_up(shop).await;
    let log = output(&bench.latest_log(shop).await).to_owned();
    assert!(log.contains("may not read the whole database shop"), "{log}");
    mariadb.sql("", "GRANT SELECT ON shop.* TO some");
    bench.back_up(shop).await;
    let log = output(&bench.latest_log(shop).await).to_owned();
    assert!(!log.contains("may not read the whole database"), "{log}");

    // A MERGE table whose tables were dropped, and a folder next to the databases.
    login(&bench, "ada", Some("secret")).await;
    mariadb.sql(
        "shop",
        "CREATE TABLE c (a INT) ENGINE=MyISAM; CREATE TABLE m (a INT) ENGINE=MERGE UNION=(c); DROP TABLE c",
    );
    std::fs::create_dir(mariadb.socket().with_file_name("data").join("lost+found")).unwrap();
    let all = task(&bench, json!({"database_engine": "mysql"})).await;
    let backup = bench.back_up(all).await;
    let log = output(&bench.latest_log(all).await).to_owned();
    assert!(log.contains("lost+found is a folder"), "{log}");
    assert!(log.contains("The table shop.m is broken"), "{log}");
    assert_successful(&bench.restore(&backup, json!({"overwrite": true})).await);
    assert_eq!(mariadb.sql("shop", "SELECT dd.a, t1.a FROM dd, t1").trim(), "7\t1");
}

/// Tables that others create in an empty database during its restore stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_somebody_fills_meanwhile_is_left_alone() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE shop; CREATE TABLE shop.t (a INT); INSERT INTO shop.t VALUES (1)");
    let one = bench.back_up(task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await).await;
    // Loading the copy first creates a table in the empty database.
    let socket = mariadb.socket().display();
    let make = format!(
        "case \"$*\" in *--database=holdfast*) {} --no-defaults --user=root --socket={socket} --execute='CREATE TABLE IF NOT \
         EXISTS empty.t (b INT)' ;; esac",
        "/usr/bin/mariadb"
    );
    shim(&shims, "mariadb", &format!("{make}\nexec /usr/bin/mariadb \"$@\""));
    mariadb.sql("", "CREATE DATABASE empty");
    let run = bench.restore(&one, json!({"database_name": "empty"})).await;
    assert_failed(&run, "target_not_empty");
    assert!(output(&run).contains("Somebody has filled the database empty meanwhile."), "{}", output(&run));
    assert_eq!(mariadb.sql("empty", "SHOW COLUMNS FROM t").split('\t').next(), Some("b"));
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE 'holdfast%'").trim(), "", "nothing is left behind");
}

/// The dump tool reads tables by name, one after the other, and skips one that has become a view.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_renamed_during_the_dump_fail_the_backup() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql(
        "",
        "CREATE USER few IDENTIFIED BY 'p'; GRANT SELECT, SHOW VIEW, TRIGGER, EVENT, LOCK TABLES ON *.* TO few",
    );
    let (one, all) = (
        task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await,
        task(&bench, json!({"database_engine": "mysql"})).await,
    );
    let with_sql = |before: &str, after: &str| {
        let sql = |sql: &str| {
            format!(
                "/usr/bin/mariadb --no-defaults --user=root --socket={} --execute='{sql}'",
                mariadb.socket().display()
            )
        };
        let real = "case $2 in --help) exec /usr/bin/mariadb-dump \"$@\";; esac";
        let (before, after) = (sql(before), sql(after));
        shim(&shims, "mariadb-dump", &format!("{real}\n{before}\n/usr/bin/mariadb-dump \"$@\" || exit\n{after} || :"));
    };
    let fill = || {
        mariadb.sql("", "DROP DATABASE IF EXISTS shop; CREATE DATABASE shop; CREATE TABLE shop.aaa (a INT)");
        mariadb.sql("", "DROP DATABASE IF EXISTS zaside; CREATE DATABASE zaside; CREATE TABLE zaside.stage (a INT)");
        mariadb.sql("shop", "CREATE TABLE yy (a INT); CREATE TABLE zz (a INT); CREATE TABLE log (a INT) ENGINE=MyISAM");
        mariadb.sql("shop", "INSERT INTO yy VALUES (1); INSERT INTO zz VALUES (2); INSERT INTO log VALUES (3)");
    };
    for (user, password) in [("ada", "secret"), ("few", "p")] {
        login(&bench, user, Some(password)).await;
        for (sql, is_noticed) in [
            ("RENAME TABLE shop.zz TO shop.zz_old; CREATE VIEW shop.zz AS SELECT * FROM shop.zz_old", true),
            ("RENAME TABLE shop.zz TO shop.arch", true),
            ("RENAME TABLE shop.yy TO shop.yy_old, shop.zz TO shop.yy", true),
            // Only the internal table ids of the server reveal this.
            ("RENAME TABLE shop.yy TO shop.x, shop.zz TO shop.yy, shop.x TO shop.zz", user == "ada"),
            ("RENAME TABLE shop.yy TO zaside.old, zaside.stage TO shop.yy", user == "ada"),
            ("TRUNCATE TABLE shop.log; CREATE TABLE IF NOT EXISTS shop.more (a INT)", false),
        ] {
            for task in [one, all] {
                fill();
                let (before, after) = if is_noticed { (sql, "") } else { ("", sql) };
                with_sql(before, after);
                let run = bench.run(task).await;
                let status = if is_noticed { "failed" } else { "successful" };
                assert_eq!(run["status"], status, "{user}, {sql}: {}", output(&run));
            }
        }
    }
    fill();
    let gone = task(&bench, json!({"database_name": "never", "database_engine": "mysql"})).await;
    assert_failed(&bench.run(gone).await, "database_missing");
    // A table that is dropped after it was read is in the backup.
    login(&bench, "ada", Some("secret")).await;
    with_sql("", "DROP TABLE shop.zz");
    let backup = bench.back_up(one).await;
    std::fs::remove_file(shims.path().join("mariadb-dump")).unwrap();
    assert_successful(&bench.restore(&backup, json!({"database_name": "back"})).await);
    assert_eq!(mariadb.sql("back", "SELECT zz.a, yy.a, log.a FROM zz, yy, log").trim(), "2\t1\t3");
}

/// Bytes that are invalid in the character set of their column, and characters with more than one encoding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_come_back_byte_by_byte() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE shop");
    let mut names = Vec::new();
    for (set, bytes) in [
        ("cp1251", "D098D0BBD18CD18F"),
        ("ascii", "41FF80"),
        ("cp1250", "8183"),
        ("hebrew", "BF"),
        ("euckr", "C9A1"),
        ("tis620", "DB"),
        ("armscii8", "FF27"),
        ("sjis", "415C"),
        ("cp932", "8790EEFCED40"),
        ("latin1", "80818D9FFF5C27"),
        ("utf16", "00610A0DD83DDE00"),
        ("utf8mb4", "C3BC5C27F09F9880"),
        ("gbk", "BF5CC4FA"),
        ("binary", "00010A0D1A2227FF"),
    ] {
        let name = format!("ü_{set}");
        let of = if set == "binary" { "VARBINARY(40)".to_owned() } else { format!("VARCHAR(40) CHARACTER SET {set}") };
        mariadb.sql("shop", &format!("CREATE TABLE `{name}` (a {of}, `ö` JSON, p POINT, KEY (a))"));
        mariadb
            .sql("shop", &format!("INSERT INTO `{name}` VALUES (X'{bytes}', '{{\"a\": \"ü\\\\n\"}}', POINT(1, -2))"));
        names.push(name);
    }
    mariadb.sql(
        "shop",
        "CREATE TABLE u (a VARCHAR(9) CHARACTER SET sjis UNIQUE); INSERT INTO u VALUES (X'415C'), (X'41815F')",
    );
    let rows = |database: &str| {
        let row = |name: &String| format!("SELECT HEX(a), HEX(`ö`), ST_AsText(p) FROM `{name}`;");
        mariadb.sql(database, &format!("{}SELECT HEX(a) FROM u ORDER BY 1", names.iter().map(row).collect::<String>()))
    };
    let before = rows("shop");
    assert!(before.contains("D098D0BBD18CD18F"), "{before}");
    let one = bench.back_up(task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    for (backup, name, body) in [
        (&one, "back", json!({"database_name": "back"})),
        (&all, "shop", json!({"overwrite": true})),
        (&one, "shop", json!({"database_name": "shop", "overwrite": true})),
    ] {
        assert_successful(&bench.restore(backup, body).await);
        assert_eq!(rows(name), before);
    }
    // Types that parse text, but take a binary string as the raw value.
    mariadb.sql(
        "",
        "CREATE DATABASE ids; CREATE TABLE ids.t (u UUID PRIMARY KEY, i INET6, f INET4 NOT NULL, b BINARY(16))",
    );
    mariadb.sql(
        "ids",
        "INSERT INTO t VALUES (UUID(), '2001:db8::5', '10.0.0.1', X'00FF'), (UUID(), NULL, '1.2.3.4', NULL)",
    );
    mariadb.sql("ids", "CREATE TABLE l (a VARCHAR(9) CHARACTER SET latin1); INSERT INTO l VALUES (X'80818D9FFF5C27')");
    let state = "SELECT u, i, f, HEX(b) FROM t ORDER BY u; SELECT HEX(a) FROM l";
    let before = mariadb.sql("ids", state);
    let ids = task(&bench, json!({"database_name": "ids", "database_engine": "mysql"})).await;
    let backup = bench.back_up(ids).await;
    assert_successful(&bench.restore(&backup, json!({"database_name": "ids", "overwrite": true})).await);
    assert_eq!(mariadb.sql("ids", state), before);
    // Both in one database: the log says what is lost.
    mariadb.sql("ids", "CREATE TABLE old (a VARCHAR(9) CHARACTER SET cp1251); INSERT INTO old VALUES ('Ж')");
    let backup = bench.back_up(ids).await;
    assert!(output(&bench.latest_log(ids).await).contains("come back as question marks: ids.old"));
    assert_successful(&bench.restore(&backup, json!({"database_name": "ids", "overwrite": true})).await);
    assert_eq!(mariadb.sql("ids", state), before);
    assert_eq!(mariadb.sql("ids", "SELECT a FROM old").trim(), "Ж");
}

/// Views of a dropped sequence, of a function whose owner was dropped, and of a role.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_views_do_not_prevent_a_restore() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb
        .sql("", "CREATE DATABASE shop; CREATE TABLE shop.t (a INT); INSERT INTO shop.t VALUES (4); CREATE ROLE staff");
    mariadb.sql("", "GRANT ALL ON shop.* TO staff; CREATE USER gone; GRANT ALL ON shop.* TO gone");
    mariadb.sql("shop", "CREATE SEQUENCE s; CREATE VIEW asks AS SELECT nextval(s) AS n; DROP SEQUENCE s");
    mariadb
        .sql("shop", "CREATE FUNCTION f() RETURNS INT RETURN 1; CREATE DEFINER=staff VIEW of_role AS SELECT f() AS a");
    mariadb.sql("shop", "CREATE DEFINER=gone FUNCTION g(x INT) RETURNS INT SQL SECURITY INVOKER RETURN x");
    mariadb.sql("shop", "CREATE VIEW calls AS SELECT ROUND(1.5, g(a)) AS a FROM t; DROP USER gone");
    let one = bench.back_up(task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    for (backup, body) in [
        (&one, json!({"database_name": "shop", "overwrite": true})),
        (&all, json!({"overwrite": true})),
        (&one, json!({"database_name": "back"})),
    ] {
        let run = bench.restore(backup, body).await;
        assert_successful(&run);
        assert!(output(&run).contains(".asks"), "{}", output(&run));
        assert!(!output(&run).contains("staff"), "{}", output(&run));
        let name = if output(&run).contains("back.asks") { "back" } else { "shop" };
        assert_eq!(mariadb.sql(name, "SELECT a FROM t").trim(), "4");
        if name == "shop" {
            assert_eq!(mariadb.sql(name, "SELECT a FROM of_role").trim(), "1");
        }
    }
    // A function with the name of a built-in one, and texts with character set introducers.
    mariadb.sql("", "CREATE DATABASE named; CREATE FUNCTION named.md5(a TEXT) RETURNS TEXT RETURN 'mine'");
    mariadb.sql(
        "named",
        "CREATE VIEW m AS SELECT named.md5('a') AS a; CREATE VIEW b AS SELECT _binary'abc' LIKE 'A%' AS a",
    );
    mariadb.sql(
        "named",
        "CREATE VIEW c AS SELECT _latin1'a' COLLATE latin1_bin AS a; CREATE SEQUENCE s1; CREATE SEQUENCE s2",
    );
    mariadb.sql("named", "CREATE TABLE d (a INT DEFAULT nextval(s1), b INT DEFAULT nextval(s2)); DROP SEQUENCE s2");
    let shown = "SELECT a FROM m; SELECT a FROM b; SELECT a FROM c";
    let before = mariadb.sql("named", shown);
    let named = bench.back_up(task(&bench, json!({"database_name": "named", "database_engine": "mysql"})).await).await;
    for name in ["named", "named_2"] {
        let run = bench.restore(&named, json!({"database_name": name, "overwrite": true})).await;
        assert_successful(&run);
        assert!(output(&run).contains("A default or key was left out."), "{}", output(&run));
        assert_eq!(mariadb.sql(name, shown), before);
        assert!(mariadb.sql(name, "SHOW CREATE TABLE d").contains("`a` int(11) DEFAULT nextval("));
    }
    // A foreign key to a table whose name differs by case stays within the database.
    mariadb.sql("", "CREATE DATABASE cased; CREATE TABLE cased.Par (id INT PRIMARY KEY)");
    mariadb.sql("cased", "SET foreign_key_checks = 0; CREATE TABLE kid (p INT, FOREIGN KEY (p) REFERENCES par (id))");
    let cased = bench.back_up(task(&bench, json!({"database_name": "cased", "database_engine": "mysql"})).await).await;
    for name in ["cased", "aside"] {
        assert_successful(&bench.restore(&cased, json!({"database_name": name, "overwrite": true})).await);
        let shown = mariadb.sql(name, "SHOW CREATE TABLE kid");
        assert!(shown.contains("REFERENCES `par` (`id`)"), "{shown}");
    }
    // Comments are written with escapes in any SQL mode.
    mariadb.sql("shop", r"SET sql_mode = 'NO_BACKSLASH_ESCAPES'; CREATE PROCEDURE c() COMMENT 'a\b' SELECT '\'");
    let comment = "SELECT HEX(routine_comment) FROM information_schema.routines WHERE routine_name = 'c'";
    let before = mariadb.sql("", comment);
    let one = bench.back_up(task(&bench, json!({"database_name": "shop", "database_engine": "mysql"})).await).await;
    assert_successful(&bench.restore(&one, json!({"database_name": "shop", "overwrite": true})).await);
    assert_eq!(mariadb.sql("", comment), before);
}

/// Views whose owners connect from other hosts, use sequences of other databases, or have no rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn working_views_are_restored_or_fail_the_run() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE w1; CREATE DATABASE w2; CREATE USER deploy@localhost; CREATE USER app@'%'");
    mariadb.sql("", "GRANT SELECT ON w1.* TO app@'%'; GRANT SELECT ON w2.* TO app@'%'");
    mariadb.sql("w1", "CREATE TABLE a (x INT); INSERT INTO a VALUES (1), (2); CREATE SEQUENCE s; SELECT NEXTVAL(s)");
    mariadb.sql("w2", "CREATE DEFINER=app@localhost VIEW local AS SELECT x FROM w1.a");
    mariadb.sql("w2", "CREATE DEFINER=app@10.1.2.3 VIEW far AS SELECT x FROM w1.a");
    mariadb.sql("w2", "CREATE SQL SECURITY INVOKER VIEW `inner` AS SELECT x FROM w1.a");
    mariadb.sql("w2", "CREATE VIEW asks AS SELECT LASTVAL(w1.s) AS x UNION SELECT NEXTVAL(w1.s)");
    let shown = "SELECT SUM(x) FROM local; SELECT SUM(x) FROM far; SELECT SUM(x) FROM `inner`";
    let before = mariadb.sql("w2", shown);
    assert_eq!(before.split_whitespace().collect::<Vec<_>>(), ["3"; 3]);
    let one = bench.back_up(task(&bench, json!({"database_name": "w2", "database_engine": "mysql"})).await).await;
    let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    for (backup, body) in
        [(&one, json!({"database_name": "w2", "overwrite": true})), (&all, json!({"overwrite": true}))]
    {
        let run = bench.restore(backup, body).await;
        assert_successful(&run);
        assert!(!output(&run).contains("could not be made"), "{}", output(&run));
        assert_eq!(mariadb.sql("w2", shown), before);
        assert!(mariadb.sql("w2", "SHOW CREATE VIEW asks").contains("nextval"));
    }
    let users = "SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'holdfast\\_%'";
    assert_eq!(mariadb.sql("", users).trim(), "0", "nobody is left behind");
    // Without owners, views are created with rights to their own database only, and the log says so.
    let run = bench.restore(&one, json!({"database_name": "w2", "overwrite": true, "no_owner": true})).await;
    assert_successful(&run);
    assert!(output(&run).contains("without owners, views only have rights to their own"), "{}", output(&run));
    // A view with the rights of its reader may work whatever the rights of its owner: losing it is a failure.
    let invoker = "CREATE DEFINER=deploy@localhost SQL SECURITY INVOKER VIEW";
    mariadb.sql("w1", "CREATE FUNCTION f() RETURNS INT RETURN 5");
    mariadb.sql("w2", "CREATE SQL SECURITY INVOKER VIEW middle AS SELECT x FROM w1.a");
    for (name, what) in [("outer", "x FROM w2.middle"), ("calls", "w1.f() AS x"), ("direct", "x FROM w1.a")] {
        mariadb.sql("w2", &format!("{invoker} `{name}` AS SELECT {what}"));
        let all = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
        let run = bench.restore(&all, json!({"overwrite": true})).await;
        assert_eq!(run["status"], "failed", "{}", output(&run));
        assert!(output(&run).contains(&format!("w2.{name}")), "{}", output(&run));
        mariadb.sql("w2", &format!("DROP VIEW IF EXISTS `{name}`"));
    }
}
