use std::path::Path;
use std::process::Command;
use std::time::Duration;

use holdfast_testkit::{MariaDbServer, Settings, SshServer, TestApp, random};
use serde_json::json;
use tempfile::TempDir;

use crate::bench::{Bench, add_server, assert_failed, assert_successful, output};
use crate::databases::{login, mysql_home, shim, task};
use crate::faults::wait_for;
use crate::queue::is_held_later;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_mariadb_dump_does_not_say_comes_back_too() {
    let mariadb = MariaDbServer::start();
    mariadb.create_user("all", "pass word", "*");
    let home = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("HOME", &mysql_home(home.path(), &mariadb)).start();
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await;
    login(&bench, "all", Some("pass word")).await;
    mariadb.sql("", "CREATE DATABASE shop CHARACTER SET latin1 COLLATE latin1_german2_ci");
    mariadb.sql("", "ALTER DATABASE shop COMMENT = 'it''s */ ; \\\\ \"ü\"'");
    mariadb.sql("shop", "CREATE TABLE f (a FLOAT)");
    // A value of more than half a packet with all bytes, and other binary types.
    mariadb.sql("shop", "CREATE TABLE big (a LONGBLOB, b BIT(9), c BINARY(3), g GEOMETRY, j JSON)");
    let bytes: String = (0..=255_u8).map(|byte| format!("{byte:02x}")).collect();
    mariadb.sql(
        "shop",
        &format!("INSERT INTO big VALUES (REPEAT(X'{bytes}', 36000), b'101010101', X'00275c', POINT(1, 2), '{{}}')"),
    );
    mariadb.sql("shop", "CREATE TABLE v (a INT) WITH SYSTEM VERSIONING; INSERT INTO v VALUES (1); UPDATE v SET a = 2");
    mariadb.sql("shop", "CREATE TABLE old (a INT) ENGINE=MyISAM; CREATE TABLE `with.dot` (a INT)");
    mariadb.sql("shop", "CREATE DEFINER=`gone`@`nowhere` SQL SECURITY DEFINER VIEW w AS SELECT a FROM v");
    // A table with the name of its database, and a text that looks like a qualified name.
    mariadb.sql("shop", "CREATE TABLE shop (id INT); INSERT INTO shop VALUES (1), (2), (3)");
    mariadb.sql("shop", "CREATE TABLE bought (id INT); INSERT INTO bought VALUES (2)");
    let unsold = "CREATE VIEW unsold AS SELECT * FROM shop WHERE NOT EXISTS \
        (SELECT 1 FROM bought WHERE bought.id = shop.id)";
    mariadb.sql("shop", unsold);
    mariadb.sql("shop", "CREATE VIEW literal AS SELECT 'see `shop`.`t`.`c` here' AS s");
    let options = json!({"database_name": "shop", "database_engine": "mysql", "excluded_tables": "with.dot"});
    let shop = task(&bench, options).await;
    let backup = bench.back_up(shop).await;
    let log = bench.latest_log(shop).await;
    assert!(output(&log).contains("not transactional") && output(&log).contains("shop.old"), "{}", output(&log));
    assert!(output(&log).contains("come back rounded: shop.f"), "{}", output(&log));

    let run = bench.restore(&backup, json!({"database_name": "copy"})).await;
    assert_successful(&run);
    assert!(output(&run).contains("gone@nowhere"), "a user that is not here is named: {}", output(&run));
    let collation = "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = DATABASE()";
    assert_eq!(mariadb.sql("copy", collation).trim(), "latin1_german2_ci");
    let sums = "SELECT MD5(a), HEX(b), HEX(c), HEX(g), j FROM big";
    assert_eq!(mariadb.sql("copy", sums), mariadb.sql("shop", sums));
    let comment = "SELECT HEX(schema_comment) FROM information_schema.schemata WHERE schema_name = DATABASE()";
    let said = mariadb.sql("shop", comment);
    assert!(said.len() > 20);
    assert_eq!(mariadb.sql("copy", comment), said);
    assert_eq!(mariadb.sql("copy", "SELECT COUNT(*) FROM v FOR SYSTEM_TIME ALL").trim(), "2");
    assert_eq!(mariadb.sql("copy", "SHOW TABLES LIKE 'with%'").trim(), "");
    assert_eq!(mariadb.sql("copy", "SELECT SUM(id) FROM unsold").trim(), "4");
    assert_eq!(mariadb.sql("copy", "SELECT s FROM literal").trim(), "see `shop`.`t`.`c` here");
    let run = bench.restore(&backup, json!({"database_name": "mine", "no_owner": true})).await;
    assert_successful(&run);
    assert_eq!(mariadb.sql("mine", "SELECT a FROM w").trim(), "2");

    // The server needs its own databases.
    for name in ["mysql", "sys", "performance_schema", "Information_Schema"] {
        let run = bench.restore(&backup, json!({"database_name": name, "overwrite": true})).await;
        assert_failed(&run, "not_supported");
        assert!(output(&run).contains("belongs to the database server itself"), "{}", output(&run));
    }
    assert_eq!(mariadb.sql("mysql", "SHOW TABLES LIKE 'global_priv'").trim(), "global_priv");
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE '%holdfast%'").trim(), "");

    // Existing content is removed only after the whole dump was loaded.
    mariadb.sql("copy", "CREATE TABLE precious (a INT)");
    assert_failed(&bench.restore(&backup, json!({"database_name": "copy"})).await, "target_not_empty");
    assert_successful(&bench.restore(&backup, json!({"database_name": "copy", "overwrite": true})).await);
    assert_eq!(mariadb.sql("copy", "SHOW TABLES LIKE 'precious'").trim(), "");
    assert_eq!(mariadb.sql("copy", collation).trim(), "latin1_german2_ci");
    assert_eq!(mariadb.sql("", "SHOW DATABASES LIKE '%holdfast%'").trim(), "", "nothing is left behind");

    // Foreign keys from another database do not prevent the replacement.
    mariadb.sql("copy", "CREATE TABLE a (id INT PRIMARY KEY)");
    mariadb.sql("", "CREATE DATABASE other; CREATE TABLE other.c (id INT, FOREIGN KEY (id) REFERENCES copy.a (id))");
    assert_successful(&bench.restore(&backup, json!({"database_name": "copy", "overwrite": true})).await);
    assert_eq!(mariadb.sql("copy", "SELECT SUM(id) FROM unsold").trim(), "4");

    // With a user who does not see everything, the log says what may be missing.
    mariadb
        .sql("", "CREATE USER weak IDENTIFIED BY 'w'; GRANT SELECT, LOCK TABLES, SHOW VIEW, EVENT ON shop.* TO weak");
    login(&bench, "weak", Some("w")).await;
    bench.back_up(shop).await;
    let log = bench.latest_log(shop).await;
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
    mariadb.sql("", "CREATE DATABASE empty COMMENT 'nothing here'");
    mariadb.sql("shop", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); CREATE TABLE `left.out` (a INT)");
    mariadb.sql("shop", "CREATE PROCEDURE p() SELECT 'it''s `shop`.`t`' AS s");
    mariadb.sql("a`b.ü", "CREATE TABLE t (a INT); INSERT INTO t VALUES (40)");
    // Views of the first database that need the second, one that needs another view, and a broken one.
    mariadb.sql("a`b.ü", "CREATE VIEW z AS SELECT a, 'tab\\there; \\\\ ü' AS s FROM shop.t");
    mariadb.sql("a`b.ü", "CREATE VIEW `a;v` AS SELECT SUM(a) AS a FROM z");
    mariadb.sql("shop", "CREATE TABLE gone (a INT); CREATE VIEW broken AS SELECT a FROM gone; DROP TABLE gone");
    // What dumps easily lose.
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
    // PUBLIC has rights here. It is listed like a role, but cannot be created like one.
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
    assert!(
        output(&log).contains("keep them in a database of your own: mysql.ops, sys.mine, mysql.f."),
        "{}",
        output(&log)
    );
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

    // When one dump cannot be loaded, the content of every database stays.
    mariadb.sql("shop", "DELETE FROM t; CREATE TABLE precious (a INT)");
    mariadb.sql("a`b.ü", "DELETE FROM t; CREATE TABLE precious (a INT)");
    bench.ask_restore(&backup, json!({"remote_server_id": bench.server})).await.error_of("overwrite");
    let run = bench.restore(&backup, json!({"overwrite": true, "dry_run": true})).await;
    assert_successful(&run);
    assert!(output(&run).contains("shop would be replaced"), "{}", output(&run));
    // A database folder with a foreign file, and a user who may not create views for other definers.
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
    let empty = "SELECT schema_comment FROM information_schema.schemata WHERE schema_name = 'empty'";
    assert_eq!(said(empty), "nothing here");
    let collation = |name: &str| mariadb.sql(name, "SELECT @@collation_database").trim().to_owned();
    assert_eq!((collation("a`b.ü"), collation("shop")), ("latin1_german2_ci".into(), "utf8mb4_bin".into()));
    assert!(output(&run).contains("shop.broken"), "a view that cannot be made is named: {}", output(&run));
    assert_eq!(mariadb.sql("shop", "SHOW TABLES LIKE 'left%'").trim(), "");
    assert_eq!((said(reader).as_str(), said("SHOW DATABASES LIKE 'other'").as_str()), ("1", "other"));
    assert_eq!(said("SELECT COUNT(*) FROM mysql.global_priv WHERE user = 'newcomer'"), "1");

    // Restoring one database changes nothing else.
    mariadb.sql("", "DELETE FROM shop.t; DELETE FROM `a``b.ü`.t; SET PASSWORD FOR `reader`@`%` = PASSWORD('new')");
    let one = json!({"database_name": "shop"});
    assert_failed(&bench.restore(&backup, one).await, "target_not_empty");
    assert_successful(&bench.restore(&backup, json!({"database_name": "shop", "overwrite": true})).await);
    assert_eq!((said("SELECT SUM(a) FROM shop.t"), said("SELECT COUNT(*) FROM `a``b.ü`.t")), ("3".into(), "0".into()));
    assert_eq!((said("SELECT x FROM shop.bytes").as_str(), said(reader).as_str()), ("E9", "0"));
    assert_failed(&bench.restore(&backup, json!({"database_name": "none"})).await, "entry_missing");

    // On an empty server whose account has another password: definers are created with the users, before the views.
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

/// A bench whose server reaches this MariaDB as a user with all rights, with a folder for shims first on the path.
pub async fn mariadb_bench(mariadb: &MariaDbServer, shims: &TempDir, settings: Settings) -> Bench {
    let ssh = SshServer::builder().with_path_shims(shims.path()).set_env("HOME", &mysql_home(shims.path(), mariadb));
    let app = TestApp::start_with(holdfast_testkit::Engine::Sqlite, settings).await;
    let bench = Bench::with(app, ssh.start()).await;
    mariadb.create_user("ada", "secret", "*");
    login(&bench, "ada", Some("secret")).await;
    bench
}

/// Somebody's own database may have the name of one that another server needs for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_of_a_whole_server_does_not_destroy_the_other_server() {
    let mariadb = MariaDbServer::start();
    mariadb.create_user("all", "pass word", "*");
    let home = tempfile::tempdir().unwrap();
    let ssh = SshServer::builder().set_env("HOME", &mysql_home(home.path(), &mariadb)).start();
    let bench = Bench::with(TestApp::start(holdfast_testkit::Engine::Sqlite).await, ssh).await;
    login(&bench, "all", Some("pass word")).await;
    mariadb.sql("", "DROP DATABASE sys; CREATE DATABASE sys; CREATE TABLE sys.orders (a INT); CREATE DATABASE `MySQL`");
    mariadb.sql("", "CREATE TABLE `MySQL`.t (a INT); INSERT INTO `MySQL`.t VALUES (7)");
    mariadb.sql("", "CREATE DATABASE shop; CREATE TABLE shop.t (a INT); INSERT INTO shop.t VALUES (1)");
    let backup = bench.back_up(task(&bench, json!({"database_engine": "mysql"})).await).await;
    // Here they are not the server's own.
    mariadb.sql("", "INSERT INTO sys.orders VALUES (1); DELETE FROM `MySQL`.t");
    assert_successful(&bench.restore(&backup, json!({"overwrite": true})).await);
    assert_eq!(mariadb.sql("", "SELECT COUNT(*) FROM sys.orders; SELECT a FROM `MySQL`.t").trim(), "0\n7");
    let single = task(&bench, json!({"database_engine": "mysql", "database_name": "sys"})).await;
    let single = bench.back_up(single).await;
    assert_successful(&bench.restore(&single, json!({"database_name": "sys", "overwrite": true})).await);

    for other in [MariaDbServer::start(), MariaDbServer::folding_names()] {
        other.create_user("all", "pass word", "*");
        let home = tempfile::tempdir().unwrap();
        let ssh = SshServer::builder().set_env("HOME", &mysql_home(home.path(), &other)).start();
        let login = json!({"database_username": "all", "database_password": "pass word"});
        let server = add_server(&bench, &ssh, login).await;
        let held = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema IN ('mysql', 'sys')";
        let before = other.sql("", held);
        for changes in [
            json!({"overwrite": true}),
            json!({"overwrite": true, "dry_run": true}),
            json!({"overwrite": true, "database_name": "sys"}),
        ] {
            let mut body = json!({"remote_server_id": server});
            body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            let run = bench.restore(&backup, body).await;
            assert_failed(&run, "not_supported");
            assert!(output(&run).contains("belongs to the database server itself"), "{}", output(&run));
        }
        let own = json!({"remote_server_id": server, "overwrite": true, "database_name": "MySQL"});
        let folds = other.sql("", "SELECT @@lower_case_table_names").trim() != "0";
        let run = bench.restore(&backup, own).await;
        if folds {
            assert_failed(&run, "not_supported");
        } else {
            assert_successful(&run);
            other.sql("", "DROP DATABASE `MySQL`");
        }
        assert_eq!(other.sql("", held), before);
        let shop = json!({"remote_server_id": server, "database_name": "shop"});
        assert_successful(&bench.restore(&backup, shop).await);
        assert_eq!(other.sql("shop", "SELECT a FROM t").trim(), "1");
        let long = json!({"remote_server_id": server, "database_name": "x".repeat(65)});
        assert_failed(&bench.restore(&single, long).await, "not_supported");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysql_dump_takes_no_file_of_the_ssh_user_along() {
    let mariadb = MariaDbServer::start();
    mariadb.sql("mysql", "SET GLOBAL local_infile = ON; CREATE DATABASE kept; CREATE DATABASE control");
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    // The option files of the account are ignored.
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

    // Without our options, the client does send the file to this server.
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
async fn restoring_a_mysql_database_under_another_name_leaves_the_original_alone() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE prod; CREATE TABLE prod.audit (a INT); INSERT INTO prod.audit VALUES (1)");
    mariadb.sql("prod", "CREATE SEQUENCE sq; CREATE TABLE o (id INT DEFAULT nextval(sq)); INSERT INTO o VALUES (), ()");
    let trigger = "CREATE TRIGGER prod.tg\nAFTER DELETE ON prod.o FOR EACH ROW\nDELETE FROM prod.audit";
    mariadb.sql("prod", trigger);
    // The server qualifies sequences and functions in views with the database, and tables if other databases are used.
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
    let said = "refer to the database prod by name, and still use it: tg.";
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

    // With its trigger present, and with its sequence missing.
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

    // A view of a view whose definer has rights to this database only. Without them nothing is replaced, and the log
    // says what to do.
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
    // A function by itself is enough.
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
async fn an_empty_mysql_database_gets_the_collation_of_the_original() {
    let mariadb = MariaDbServer::start();
    let shims = tempfile::tempdir().unwrap();
    let bench = mariadb_bench(&mariadb, &shims, Settings::default()).await;
    mariadb.sql("", "CREATE DATABASE shop COLLATE utf8mb4_unicode_ci; CREATE TABLE shop.t AS SELECT 1 AS a");
    mariadb.sql("", "CREATE DATABASE events; CREATE EVENT events.precious ON SCHEDULE EVERY 1 DAY DO DO 1");
    let one = json!({"database_name": "shop", "database_engine": "mysql"});
    let one = bench.back_up(task(&bench, one).await).await;
    let everything = task(&bench, json!({"database_engine": "mysql"})).await;
    let all = bench.back_up(everything).await;
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

    // A failed restore leaves the database as it was.
    mariadb.sql("", "CREATE DATABASE again COLLATE koi8r_bin; GRANT ALL ON again.* TO lim@'%' IDENTIFIED BY 'p'");
    mariadb.sql("", "REVOKE INSERT ON again.* FROM lim@'%'");
    login(&bench, "lim", Some("p")).await;
    let run = bench.restore(&one, json!({"database_name": "again"})).await;
    assert_eq!(run["status"], "failed", "{}", output(&run));
    assert_eq!((collation("again").as_str(), mariadb.sql("again", "SHOW TABLES").trim()), ("koi8r_bin", ""));
    assert_eq!(bench.restore(&one, json!({"database_name": "again_2"})).await["status"], "failed");
    mariadb.sql("", "GRANT ALL ON again_3.* TO lim@'%'; REVOKE INSERT ON again_3.* FROM lim@'%'");
    assert_eq!(bench.restore(&one, json!({"database_name": "again_3"})).await["status"], "failed");
    // The failed restores left nothing behind, so later backups of the server are not suspicious.
    login(&bench, "ada", Some("secret")).await;
    assert!(!is_held_later(&bench, everything).await);
    login(&bench, "lim", Some("p")).await;

    // The log says when the user sees only some databases.
    let run = bench.run(task(&bench, json!({"database_engine": "mysql"})).await).await;
    assert!(output(&run).contains("sees only the databases that it has rights to"), "{}", output(&run));
}

/// Waits until the process with the id in this file has ended.
async fn wait_for_end_of(pid_file: &Path) {
    let pid = std::fs::read_to_string(pid_file).unwrap().trim().to_owned();
    wait_for(async || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_ends_when_the_server_takes_too_little_or_never_finishes() {
    let mariadb = MariaDbServer::start();
    mariadb.sql("mysql", "CREATE DATABASE shop; CREATE TABLE shop.t (a LONGBLOB)");
    // More than all buffers between the service and a process that does not read.
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
