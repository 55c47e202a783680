//! Dumps of MySQL and MariaDB as they are restored: statements of users between those of the dump tool.

use holdfast_engine::fuzzing;

use super::mutate::damage;
use super::rng::Rng;

const PARTS: &[&str] = &[
    "-- MariaDB dump 10.19\n--\n",
    "/*!40101 SET character_set_client = utf8 */;\nCREATE TABLE `t` (\n  `id` int(11) DEFAULT nextval(`shop`.`s`),\n  `a` text\n);\n",
    "INSERT INTO `t` VALUES (1,'it\\'s ; DELIMITER ;;\\n'),(2,_binary '\\0\x01');\n",
    "/*!50003 SET character_set_client  = gbk */ ;\n",
    "/*!50003 SET sql_mode              = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES' */ ;\n",
    "/*!50003 SET sql_mode              = @saved_sql_mode */ ;\n",
    "DELIMITER ;;\nCREATE DEFINER=`a``b`@`%` PROCEDURE `p`()\nBEGIN\n  SELECT ';;', \"x\", `y`; -- it's ;;\n  # ;;\n  /* ;; */\nEND ;;\nDELIMITER ;\n",
    "DELIMITER ;;\n/*!50003 CREATE*/ /*!50017 DEFINER=`r`@`l`*/ /*!50003 TRIGGER shop.tg BEFORE INSERT ON `shop`.`t` FOR EACH ROW\nSET NEW.a = 1 */;;\nDELIMITER ;\n",
    "DELIMITER ;;\n/*!50003 SET time_zone = 'SYSTEM' */ ;;\n/*!50106 CREATE*/ /*!50117 DEFINER=`r`@`l`*/ /*!50106 EVENT `e` ON SCHEDULE EVERY 1 DAY DO DELETE FROM t */ ;;\nDELIMITER ;\n",
    "/*!50001 CREATE ALGORITHM=UNDEFINED */\n/*!50013 DEFINER=`a`@`b` SQL SECURITY DEFINER */\n/*!50001 VIEW `v` AS select `shop`.`t`.`id` AS `a;\nb`,'x;' from `shop`.`t` */;\n",
    "-- Dump completed\n",
];

const WORDS: &[&[u8]] = &[
    b";;",
    b";;\n",
    b"\n",
    b"--\x01",
    b"-- ",
    b"#",
    b"/*",
    b"*/",
    b"/*!99999 ",
    b"/*!50003 ",
    b"/*M!100100 ",
    b"'",
    b"\"",
    b"`",
    b"\\",
    b"DELIMITER ;\n",
    b"DELIMITER ;;\n",
    b"\xbf\\",
    b"\x81\x30\x81\x30",
    b"DEFINER=`",
    b"`shop`.",
    b"\ndelimiter",
    b"\xa0",
];

const DEFINITIONS: &[(&str, &str)] = &[
    ("SEQUENCE VALUE", "DO SETVAL(`name`, 3005, 0, 0)"),
    ("SEQUENCE VALUE", "ALTER SEQUENCE `name` RESTART -7"),
    ("PROCEDURE", "CREATE DEFINER=`a``b`@`%` PROCEDURE `p`()\n    COMMENT 'comment'\nBEGIN SELECT ';;', \"x\"; END"),
    ("FUNCTION", "CREATE DEFINER=\"a\"@\"%\" AGGREGATE FUNCTION `f`() RETURNS int RETURN 1"),
    ("PACKAGE BODY", "CREATE DEFINER=`r` PACKAGE BODY \"p\" AS FUNCTION f RETURN INT AS BEGIN RETURN 7; END; END"),
    (
        "TRIGGER",
        "CREATE DEFINER=`a`@`b` trigger IF not exists shop . `t` before insert ON shop.`t` FOR EACH ROW SET @x = 1",
    ),
    (
        "VIEW",
        "CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`b` SQL SECURITY DEFINER VIEW `v` AS select `shop`.`t`.`a` from `t`",
    ),
    ("EVENT", "CREATE DEFINER=`a`@`b` EVENT `e` ON SCHEDULE EVERY 1 DAY COMMENT 'a '' DO ' DO DELETE FROM t"),
];

const TABLES: &[(&str, &str)] = &[
    ("SEQUENCE", "CREATE SEQUENCE `name` start with 5 minvalue 1 increment by 3 cache 1000 nocycle ENGINE=InnoDB"),
    (
        "TABLE",
        "CREATE TABLE `name` (\n  `a``b` bigint(20) NOT NULL DEFAULT nextval(`shop`.`s)`) COMMENT ' DEFAULT nextval(x)',\n  `b` \
         bigint(20) INVISIBLE DEFAULT (nextval(`x`.`s`) + 1),\n  `c` text DEFAULT concat(_latin1'a\\'b','c'),\n  CONSTRAINT `k` \
         FOREIGN KEY (`b`) REFERENCES `gone` (`id`) ON DELETE CASCADE\n) ENGINE=InnoDB \
         AUTO_INCREMENT=7 DATA DIRECTORY='/a '' b/' INDEX DIRECTORY = '/c/'",
    ),
];

const TABLE_WORDS: &[&[u8]] = &[
    b" DEFAULT ",
    b"nextval(",
    b"(",
    b")",
    b"'",
    b"`",
    b"\\",
    b"\n  `",
    b" DATA DIRECTORY='",
    b" INDEX DIRECTORY = ",
    b" AUTO_INCREMENT=",
    b"_latin1'",
    b"\ndelimiter",
];

/// One line of a dump with a hex-encoded definition; the definition may be damaged before it is encoded.
fn line(rng: &mut Rng, all: &[(&str, &str)], words: &[&[u8]]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (kind, statement) = all[rng.below(all.len())];
    let mut statement = statement.as_bytes().to_vec();
    if rng.below(2) > 0 {
        damage(rng, &mut statement, words);
    }
    let (set, zone) = (rng.pick(&["gbk", "latin1", "utf8mb4"]), rng.pick(&["", "time_zone = '+05:30', "]));
    let (before, after) = match rng.below(2) {
        0 => ("", ""),
        _ => ("ALTER DATABASE COLLATE latin1_bin; ", " ALTER DATABASE COLLATE gbk_bin;"),
    };
    let mode = rng.pick(&["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES,ORACLE"]);
    format!(
        "/* {kind} {} */ SET @holdfast = X'{}'; {before}SET SESSION character_set_client = {set}, collation_connection = \
         {set}_bin, {zone}sql_mode = '{mode}'; PREPARE holdfast FROM @holdfast; EXECUTE holdfast; DEALLOCATE PREPARE \
         holdfast;{after}\n",
        hex(b"name"),
        hex(&statement)
    )
}

/// The part before the rows.
fn head(rng: &mut Rng) -> Vec<u8> {
    let mut text = "/* Tables and sequences */ SET SESSION foreign_key_checks = 0, innodb_strict_mode = 0, \
        sql_quote_show_create = 1;\n"
        .to_owned();
    for _ in 0..rng.below(4) {
        text += &line(rng, TABLES, TABLE_WORDS);
    }
    text += "/* Rows */\n";
    text.into_bytes()
}

/// The part after the rows.
fn section(rng: &mut Rng) -> Vec<u8> {
    let mut text = "-- Dump completed\n\n/* Routines, triggers, views and events */\n".to_owned();
    for _ in 0..rng.below(4) {
        text += &line(rng, DEFINITIONS, WORDS);
    }
    text += "-- Dump completed, with routines, triggers, views and events\n";
    text.into_bytes()
}

pub fn make(rng: &mut Rng) -> Vec<u8> {
    let mut dump = if rng.below(2) > 0 { head(rng) } else { Vec::new() };
    for _ in 0..1 + rng.below(8) {
        dump.extend(rng.pick(PARTS).as_bytes());
    }
    if rng.below(2) > 0 {
        dump.extend(section(rng));
    }
    if rng.below(4) > 0 {
        damage(rng, &mut dump, WORDS);
    }
    dump
}

pub fn run(input: &[u8]) -> bool {
    fuzzing::mysql_dump(input)
}
