//! Dumps of MySQL and MariaDB on their way back: statements that people wrote, between those of the tool.

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
];

pub fn make(rng: &mut Rng) -> Vec<u8> {
    let mut dump = Vec::new();
    for _ in 0..1 + rng.below(8) {
        dump.extend(rng.pick(PARTS).as_bytes());
    }
    if rng.below(4) > 0 {
        damage(rng, &mut dump, WORDS);
    }
    dump
}

pub fn run(input: &[u8]) -> bool {
    fuzzing::mysql_dump(input)
}
