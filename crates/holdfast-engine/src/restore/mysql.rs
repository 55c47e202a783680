//! Dumps back into MySQL and MariaDB. A database that holds something is only replaced after the whole dump was loaded
//! beside it.

use std::io::{self, Read, Write};

use holdfast_core::backup::name_text;
use holdfast_core::random;
use holdfast_core::run::FailureCode;
use holdfast_core::task::DatabaseEngine;
use tokio_util::sync::CancellationToken;

use super::feed::Feeding;
use super::postgres::CLEANING_UP;
use crate::Engine;
use crate::archive::MysqlFacts;
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::mysql::{NAME_CHARS, account_length, closing_quote, quoted};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote::RemoteSettings;
use crate::source::database::{self, Login, MYSQL_CLIENT, mysql, mysql_text, unhex};
use crate::ssh::{Connection, Exit};

/// Binary mode leaves the client no commands of its own but `delimiter`, and without local files a dump reads none: what
/// is in it can neither run a program nor take a file of the SSH user along.
pub(super) const CLIENT: &str = "--defaults-extra-file=/dev/fd/3 --binary-mode --local-infile=0 --default-character-set=utf8mb4 \
    --max-allowed-packet=1G --init-command='SET SESSION foreign_key_checks=0 /*M!100200 , check_constraint_checks=0 */'";

/// One restore into a server: how to reach it, and as whom.
pub(super) struct Session<'a> {
    pub engine: &'a Engine,
    pub connection: &'a Connection,
    pub plan: &'a RestorePlan,
    pub login: &'a Login,
    pub context: &'a Context,
}

impl Engine {
    /// One dump of all databases: it names them itself and brings its own statements to make them.
    pub(super) async fn restore_mysql_server_dump(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = Session { engine: self, connection, plan, login, context };
        self.read_first(&plan.backup, context).await?;
        if plan.options.dry_run {
            context.log.line("The tables in the dump would be replaced, users and privileges among them; tables and databases that are not in it would stay.");
            return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
        }
        session.load(None, false).await.map_err(|error| {
            let message = format!("{} What comes before it in the dump was restored already.", error.message);
            EngineError::new(error.code, message)
        })
    }

    pub(super) async fn restore_mysql(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        name: &str,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = Session { engine: self, connection, plan, login, context };
        let tables = session.count_tables(name).await?;
        if tables > Some(0) && !plan.overwrite {
            return Err(super::not_empty(name));
        }
        self.read_first(&plan.backup, context).await?;
        if plan.options.dry_run {
            return Ok(dry(name, tables, context));
        }
        let facts =
            self.manifest(&plan.backup).await?.and_then(|manifest| manifest.mysql).filter(MysqlFacts::is_plausible);
        match tables {
            None => {
                session.create(name, facts.as_ref()).await?;
                let loaded = session.load(Some(name), false).await;
                if loaded.is_err() {
                    session.drop_own(name).await;
                }
                loaded
            }
            Some(0) => {
                let loaded = session.load(Some(name), false).await;
                if loaded.is_err() {
                    session.empty_again(name).await;
                }
                loaded
            }
            Some(_) => session.replace(name, facts.as_ref()).await,
        }
    }
}

fn dry(name: &str, tables: Option<u64>, context: &Context) -> RestoreReport {
    context.log.line(match tables {
        None => format!("The database {name} would be made."),
        Some(0) => format!("The database {name} is empty and would be filled."),
        Some(tables) => format!("The database {name} with its {tables} tables would be replaced as a whole."),
    });
    RestoreReport { is_dry: true, ..RestoreReport::default() }
}

impl Session<'_> {
    pub(super) async fn query(&self, sql: &str) -> Result<String> {
        self.query_within(sql, &self.engine.settings.remote).await
    }

    /// Drops a database, which may take long. When somebody uses its tables, it fails: a server that went on to wait
    /// would drop it after this restore has given up.
    pub(super) async fn drop_database(&self, name: &str) -> Result<()> {
        let own = &self.engine.settings.remote;
        let settings = RemoteSettings { answer: own.finish, ..own.clone() };
        // Keys of other databases may lead here; they hold again when the tables are back.
        let sql = format!(
            "SET SESSION lock_wait_timeout = 30, foreign_key_checks = 0; DROP DATABASE IF EXISTS {}",
            quoted(name)
        );
        self.query_within(&sql, &settings).await.map(drop)
    }

    /// Drops a database and makes it again, empty.
    pub(super) async fn make_anew(&self, name: &str, facts: Option<&MysqlFacts>) -> Result<()> {
        let Err(error) = self.drop_database(name).await else { return self.create(name, facts).await };
        // The server does not remove a folder with files of somebody else in it, but everything that is its own.
        if !matches!(self.count_tables(name).await, Ok(Some(0))) {
            return Err(error);
        }
        self.context
            .log
            .warn(format!("The folder of the database {name} holds files that are not the server's; they stay."));
        match facts {
            Some(facts) => {
                let set_up = format!("CHARACTER SET {} COLLATE {}", facts.character_set, facts.collation);
                self.query(&format!("ALTER DATABASE {} {set_up}", quoted(name))).await.map(drop)
            }
            None => Ok(()),
        }
    }

    async fn query_within(&self, sql: &str, settings: &RemoteSettings) -> Result<String> {
        let asking =
            database::query(self.connection, DatabaseEngine::Mysql, "", sql, self.login, settings, self.context);
        let answer = asking.await?;
        if !answer.exit.success() {
            return Err(database::explain("mysql", &answer.exit, &answer.stderr, self.context));
        }
        Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    }

    /// How many tables and routines a database has; `None` when there is no such database.
    pub(super) async fn count_tables(&self, name: &str) -> Result<Option<u64>> {
        let name = mysql_text(name);
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = {name}; \
             SELECT (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {name}) + \
             (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = {name})"
        );
        let answer = self.query(&sql).await?;
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server did not say what the database holds.");
        let numbers: Vec<u64> =
            answer.lines().map(str::parse).collect::<std::result::Result<_, _>>().map_err(|_| unclear())?;
        match numbers[..] {
            [0, _] => Ok(None),
            [_, tables] => Ok(Some(tables)),
            _ => Err(unclear()),
        }
    }

    pub(super) async fn create(&self, name: &str, facts: Option<&MysqlFacts>) -> Result<()> {
        let set_up = facts.map(|facts| format!(" CHARACTER SET {} COLLATE {}", facts.character_set, facts.collation));
        let create = format!("CREATE DATABASE {}{}", quoted(name), set_up.unwrap_or_default());
        match (self.query(&create).await, facts) {
            (Err(error), Some(facts)) if error.message.contains("nknown co") => {
                self.context.log.warn(format!(
                    "This server does not know the collation {}; the database gets its own.",
                    facts.collation
                ));
                self.query(&format!("CREATE DATABASE {}", quoted(name))).await.map(drop)
            }
            (created, _) => created.map(drop),
        }
    }

    /// Takes away what this restore made itself.
    pub(super) async fn drop_own(&self, name: &str) {
        // Also when somebody stopped the run.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = Session { context: &context, ..*self };
        let dropping = session.drop_database(name);
        if !matches!(tokio::time::timeout(CLEANING_UP, dropping).await, Ok(Ok(_))) {
            context.log.warn(format!("The database {name} was left behind on the server."));
        }
    }

    /// Loads the dump beside the database first. Only when that went well is the old one dropped, made anew and loaded;
    /// the copy goes when that is done.
    async fn replace(&self, name: &str, facts: Option<&MysqlFacts>) -> Result<RestoreReport> {
        let beside = name_beside(name);
        self.create(&beside, facts).await?;
        self.context.log.line(format!("Loading the dump into {beside} before {name} is touched."));
        if let Err(error) = self.load(Some(&beside), true).await {
            self.drop_own(&beside).await;
            let message = format!("{} The database {name} was not changed.", error.message);
            return Err(EngineError::new(error.code, message));
        }
        let replaced = async {
            self.tell_lost(name, &beside).await?;
            self.make_anew(name, facts).await?;
            self.load(Some(name), false).await
        };
        match replaced.await {
            Ok(report) => {
                self.drop_own(&beside).await;
                Ok(report)
            }
            Err(error) => {
                let message = format!("{} The whole restored database is in {beside}.", error.message);
                Err(EngineError::new(error.code, message))
            }
        }
    }

    /// Names the tables of a database that its restored copy lacks: they go with it.
    pub(super) async fn tell_lost(&self, name: &str, copy: &str) -> Result<()> {
        let (shown, name, copy) = (name_text(name.as_bytes()), mysql_text(name), mysql_text(copy));
        // As many as fit in one answer.
        let sql = format!(
            "SELECT HEX(t.table_name) FROM information_schema.tables t WHERE t.table_schema = {name} \
             AND t.table_type <> 'VIEW' AND NOT EXISTS (SELECT 1 FROM information_schema.tables c WHERE \
             c.table_schema = {copy} AND BINARY c.table_name = BINARY t.table_name) ORDER BY 1 LIMIT 25000"
        );
        let answer = self.query(&sql).await?;
        let lost: Vec<String> = answer.lines().filter_map(unhex).collect();
        if !lost.is_empty() {
            self.context
                .log
                .warn(format!("The database {shown} is replaced as a whole. {}", super::tables_lost(&lost, "will be")));
        }
        Ok(())
    }

    /// `is_copy` says that it only stands beside the real one for a while.
    async fn load(&self, name: Option<&str>, is_copy: bool) -> Result<RestoreReport> {
        let Self { engine, connection, plan, login, context } = *self;
        let script = match name {
            Some(name) => mysql(MYSQL_CLIENT, &format!("{CLIENT} --database=\"$1\""), "3", &[name]),
            None => mysql(MYSQL_CLIENT, CLIENT, "3", &[]),
        };
        let whole = engine.open_whole(&plan.backup, context).await?;
        let process = script.start(connection).await?;
        let feeding =
            Feeding { process, login: login.lines(DatabaseEngine::Mysql), finish: engine.settings.remote.finish };
        let manifest = match name {
            Some(_) => engine.manifest(&plan.backup).await?,
            None => None,
        };
        let rewriting = Rewriting {
            without_definers: plan.options.no_owner,
            without_events: is_copy,
            old_name: manifest.map(|manifest| manifest.source).filter(|old| name.is_some_and(|name| name != old)),
        };
        let fed = engine
            .feed(connection, feeding, whole, &plan.backup, context, move |plain, out| {
                let copied = rewriting.copy(plain, out);
                copied.map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
            })
            .await?;
        self.judge(&fed.exit, &fed.lines)?;
        if let Some(name) = name {
            self.warn_of_definers(name).await;
        }
        Ok(RestoreReport { plain_bytes: fed.plain_bytes, ..RestoreReport::default() })
    }

    /// How the client that loaded a dump ended. It repeats the statement that failed, which is nothing for a log.
    pub(super) fn judge(&self, exit: &Exit, lines: &[String]) -> Result<()> {
        let is_told =
            |line: &&String| ["ERROR", "mysql:", "mariadb:", "Warning"].iter().any(|word| line.starts_with(word));
        let lines: Vec<String> = lines.iter().filter(is_told).cloned().collect();
        if exit.success() {
            lines.iter().for_each(|line| self.context.log.warn(line));
            return Ok(());
        }
        let mut error = database::explain("mysql", exit, &lines, self.context);
        if lines.iter().any(|line| line.contains("gone away") || line.contains("max_allowed_packet")) {
            error.message.push_str(" A row may be larger than the max_allowed_packet of this server: raise it.");
        }
        Err(error)
    }

    /// Takes away what a failed restore left in a database that was empty.
    pub(super) async fn empty_again(&self, name: &str) {
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = Session { context: &context, ..*self };
        let emptying = session.make_anew(name, None);
        if !matches!(tokio::time::timeout(CLEANING_UP, emptying).await, Ok(Ok(()))) {
            context.log.warn(format!("The database {name} was empty before and holds a part of the backup now."));
        }
    }

    /// Views and routines that run as somebody who is not here fail when they are used, not when they are made.
    pub(super) async fn warn_of_definers(&self, name: &str) {
        let name = mysql_text(name);
        let sql = format!(
            "SELECT GROUP_CONCAT(DISTINCT d.definer SEPARATOR ', ') FROM (\
             SELECT definer FROM information_schema.views WHERE table_schema = {name} UNION \
             SELECT definer FROM information_schema.routines WHERE routine_schema = {name} UNION \
             SELECT definer FROM information_schema.triggers WHERE trigger_schema = {name} UNION \
             SELECT definer FROM information_schema.events WHERE event_schema = {name}) d \
             WHERE d.definer NOT IN (SELECT CONCAT(user, '@', host) FROM mysql.user)"
        );
        // Not everybody may ask who there is; then nothing is said.
        if let Ok(missing) = self.query(&sql).await
            && !missing.is_empty()
            && missing != "NULL"
        {
            self.context.log.warn(format!(
                "Views or routines run as users that this server does not have: {missing}. Create them, or restore \
                 without owners."
            ));
        }
    }
}

/// A name for a copy of a database that stands beside it for a time.
pub(super) fn name_beside(name: &str) -> String {
    let suffix = format!("_holdfast_{}", random::hex(&random::bytes::<4>()));
    let kept: String = name.chars().take(NAME_CHARS - suffix.len()).collect();
    format!("{kept}{suffix}")
}

/// What is changed in a dump on its way.
#[derive(Debug, Clone, Default)]
pub(super) struct Rewriting {
    /// Leave out every `DEFINER`, so that what is made belongs to whoever loads it.
    pub without_definers: bool,
    /// Make events so that they do not run.
    pub without_events: bool,
    /// The database that was dumped, when it is loaded under another name: views whose definer is gone name it.
    pub old_name: Option<String>,
}

/// How the tools begin the line with a view's definition.
const VIEW: &[u8] = b"/*!50001 VIEW ";
/// How they begin the line that makes an event, after lines that set what it needs.
const EVENT: &[u8] = b"/*!50106 CREATE*/ ";

impl Rewriting {
    fn is_needed(&self) -> bool {
        self.without_definers || self.without_events || self.old_name.is_some()
    }

    /// The tools write definers and views at the beginning of a line, and line breaks in values as `\n`, so no value is
    /// mistaken for one.
    pub(super) fn copy(&self, input: &mut dyn Read, out: &mut dyn Write) -> io::Result<()> {
        if !self.is_needed() {
            return io::copy(input, out).map(drop);
        }
        /// Names of a user and a host, quoted, and what stands before them.
        const LONGEST: usize = 1024;
        const LONGEST_VIEW: usize = 1024 * 1024;
        let mut line = Vec::new();
        let mut is_start = true;
        let mut within = Within::Statements;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let read = input.read(&mut buffer)?;
            if read == 0 {
                return out.write_all(&self.line(&line, within));
            }
            for piece in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
                if !is_start {
                    out.write_all(piece)?;
                    is_start = piece.ends_with(b"\n");
                    continue;
                }
                line.extend_from_slice(piece);
                let longest = if line.starts_with(VIEW) { LONGEST_VIEW } else { LONGEST };
                if line.ends_with(b"\n") || line.len() >= longest {
                    out.write_all(&self.line(&line, within))?;
                    within = within.after(&line);
                    is_start = line.ends_with(b"\n");
                    line.clear();
                }
            }
        }
    }

    fn line(&self, line: &[u8], within: Within) -> Vec<u8> {
        let is_event = within == Within::RoutineBody && line.starts_with(EVENT);
        let line = match (self.without_definers, within) {
            (true, Within::Statements | Within::RoutineBegin) => without_definer(line),
            (true, Within::RoutineBody) if is_event => without_definer(line),
            _ => line.to_vec(),
        };
        let line = if is_event && self.without_events { disabled(&line) } else { line };
        match &self.old_name {
            Some(name) if line.starts_with(VIEW) && within == Within::Statements => without_database(&line, name),
            _ => line,
        }
    }
}

/// Where in a dump a line stands. The body of a routine may hold any text at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Statements,
    RoutineBegin,
    RoutineBody,
}

impl Within {
    fn after(self, line: &[u8]) -> Self {
        match line.trim_ascii_end() {
            b"DELIMITER ;;" if self == Self::Statements => Self::RoutineBegin,
            b"DELIMITER ;" => Self::Statements,
            _ if self == Self::RoutineBegin => Self::RoutineBody,
            _ => self,
        }
    }
}

/// A view whose columns do not name this database: `database`.`table`.`column` becomes `table`.`column`. A name of two
/// parts may be a table and a column, and text in quotes is no name at all.
fn without_database(line: &[u8], database: &str) -> Vec<u8> {
    let database = quoted(database).into_bytes();
    let mut written = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.first() {
        let length = match first {
            b'\'' | b'"' => text_length(rest),
            b'`' => {
                let names = chained_names(rest);
                let length: usize = names.iter().sum::<usize>() + names.len().saturating_sub(1);
                let skipped = if names.len() == 3 && rest[..names[0]] == database[..] { names[0] + 1 } else { 0 };
                rest = &rest[skipped..];
                length - skipped
            }
            _ => 1,
        };
        let (now, later) = rest.split_at(length.clamp(1, rest.len()));
        written.extend_from_slice(now);
        rest = later;
    }
    written
}

/// How long a text in quotes is, with its quotes.
fn text_length(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            quote if quote == text[0] => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// How long each of the names is that dots join here, with their quotes.
fn chained_names(mut text: &[u8]) -> Vec<usize> {
    let mut names = Vec::new();
    while let Some(length) = text.strip_prefix(b"`").and_then(closing_quote).map(|length| length + 1) {
        names.push(length);
        match text[length..].strip_prefix(b".") {
            Some(rest) if rest.starts_with(b"`") => text = rest,
            _ => break,
        }
    }
    if names.is_empty() { vec![text.len()] } else { names }
}

/// The beginning of a line without its first `DEFINER=`user`@`host``; a role has no host.
fn without_definer(line: &[u8]) -> Vec<u8> {
    const WORD: &[u8] = b"DEFINER=";
    let begins_so = [b"CREATE ".as_slice(), b"/*!5", b"/*!1", b"/*M!"].iter().any(|start| line.starts_with(start));
    let place = line.windows(WORD.len() + 1).position(|window| window == b"DEFINER=`").filter(|_| begins_so);
    let end = place.and_then(|at| Some((at, at + WORD.len() + account_length(&line[at + WORD.len()..])?)));
    match end {
        Some((at, end)) => [&line[..at], &line[end..]].concat(),
        None => line.to_vec(),
    }
}

/// An event that does not run.
fn disabled(line: &[u8]) -> Vec<u8> {
    const WORDS: &[u8] = b" PRESERVE ENABLE ";
    match line.windows(WORDS.len()).position(|window| window == WORDS) {
        Some(at) => [&line[..at], b" PRESERVE DISABLE ", &line[at + WORDS.len()..]].concat(),
        None => line.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definers_are_left_out_where_the_tools_write_them_and_nowhere_else() {
        let dump = "CREATE DEFINER=`a``b`@`%` PROCEDURE p() BEGIN\n/*!50013 DEFINER=`x`@`h` SQL SECURITY DEFINER */\n\
            /*!50003 CREATE*/ /*!50017 DEFINER=`r`@`l`*/ /*!50003 TRIGGER t */;;\n\
            INSERT INTO t VALUES ('CREATE DEFINER=`a`@`b` PROCEDURE');\nCREATE TABLE `DEFINER` (a INT);\n";
        let expected = "CREATE  PROCEDURE p() BEGIN\n/*!50013  SQL SECURITY DEFINER */\n\
            /*!50003 CREATE*/ /*!50017 */ /*!50003 TRIGGER t */;;\n\
            INSERT INTO t VALUES ('CREATE DEFINER=`a`@`b` PROCEDURE');\nCREATE TABLE `DEFINER` (a INT);\n";
        let mut out = Vec::new();
        let rewriting = Rewriting { without_definers: true, ..Rewriting::default() };
        rewriting.copy(&mut dump.as_bytes(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let long = format!("INSERT INTO t VALUES ('{}');\nCREATE DEFINER=`a`@`b` VIEW v\n", "x".repeat(700_000));
        let mut out = Vec::new();
        rewriting.copy(&mut long.as_bytes(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), long.replace("DEFINER=`a`@`b`", ""));
    }

    #[test]
    fn events_of_a_copy_do_not_run() {
        let head = "DELIMITER ;;\n/*!50003 SET time_zone = 'SYSTEM' */ ;;\n";
        let event = |word: &str| {
            format!(
                "{head}/*!50106 CREATE*/ /*!50117 DEFINER=`r`@`l`*/ /*!50106 EVENT `e` ON SCHEDULE EVERY 1 DAY ON \
                 COMPLETION NOT PRESERVE {word} COMMENT ' PRESERVE ENABLE ' DO delete from t */ ;;\nDELIMITER ;\n"
            )
        };
        let rewritten = |rewriting: Rewriting| {
            let mut out = Vec::new();
            rewriting.copy(&mut event("ENABLE").as_bytes(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(rewritten(Rewriting { without_events: true, ..Rewriting::default() }), event("DISABLE"));
        let without = rewritten(Rewriting { without_definers: true, ..Rewriting::default() });
        assert_eq!(without, event("ENABLE").replace("DEFINER=`r`@`l`", ""));
    }

    #[test]
    fn views_forget_the_database_that_they_were_dumped_from() {
        let name = "x".repeat(3000);
        let body = "DELIMITER ;;\nCREATE PROCEDURE p() BEGIN\n/*!50001 VIEW `shop`.`a`.`b`\nEND ;;\nDELIMITER ;\n";
        let view = |database: &str| {
            format!(
                "{body}/*!50001 VIEW `w` AS select {database}`v`.`{name}`,`shop`.`id`,'`shop`.`v`.`x`' AS `a` from `v` */;\n"
            )
        };
        let (dump, expected) = (view("`shop`."), view(""));
        let mut out = Vec::new();
        let rewriting = Rewriting { old_name: Some("shop".to_owned()), ..Rewriting::default() };
        rewriting.copy(&mut dump.as_bytes(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
