//! Whole databases of a MySQL or MariaDB server: counting what they hold, creating, configuring, emptying and dropping
//! them.

use std::time::Duration;

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;
use tokio_util::sync::CancellationToken;

use super::database_messages::is_of_the_server;
use super::mysql_session::MysqlSession;
use crate::archive::MysqlFacts;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::{NOT_THE_SERVERS, quoted};
use crate::remote::{CLEANING_UP, RemoteSettings};
use crate::source::mysql::{mysql_text, set_up_sql};

/// How long it may take to find out that a table is in use; the server itself waits half a minute.
const LOCKING: Duration = Duration::from_secs(90);

impl MysqlSession<'_> {
    pub(super) async fn tables_of(&self, name: &str) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT HEX(table_name) FROM information_schema.tables WHERE table_schema = {0} AND (BINARY table_schema = {0} OR \
             @@lower_case_table_names <> 0) AND table_type NOT LIKE '%VIEW'",
            mysql_text(name)
        );
        self.names(&sql).await
    }

    /// Drops a database, which may take long. Fails if somebody uses its tables: a server that kept waiting would drop
    /// it after this restore has given up.
    pub(super) async fn drop_database(&self, name: &str) -> Result<()> {
        let own = &self.engine.settings.remote;
        let settings = RemoteSettings { answer: own.finish, ..own.clone() };
        // Foreign keys of other databases may refer to it; they are valid again when the tables are back.
        let sql = format!(
            "SET SESSION lock_wait_timeout = 30, foreign_key_checks = 0; DROP DATABASE IF EXISTS {}",
            quoted(name)
        );
        self.query_within(&sql, &settings).await.map(drop)
    }

    /// Drops a database and makes it again, empty.
    pub(super) async fn make_anew(&self, name: &str, facts: Option<&MysqlFacts>) -> Result<()> {
        let Err(error) = self.drop_database(name).await else { return self.create(name, facts).await };
        // The server does not remove a folder that contains files of somebody else, but it removes everything of its
        // own.
        if !matches!(self.count_tables(name).await, Ok(Some(0))) {
            return Err(error);
        }
        self.context
            .log
            .warn(format!("The folder of the database {name} holds files that are not the server's; they stay."));
        self.set_up_as(name, facts).await
    }

    /// Gives an empty database the character set of the one that was backed up.
    pub(super) async fn set_up_as(&self, name: &str, facts: Option<&MysqlFacts>) -> Result<()> {
        let Some(facts) = facts else { return Ok(()) };
        let set_up = format!("CHARACTER SET {} COLLATE {}", facts.character_set, facts.collation);
        match self.query(&format!("ALTER DATABASE {} {set_up}", quoted(name))).await {
            Err(error) if is_unknown_set(&error) => {
                self.context.log.warn(format!(
                    "This server does not know the collation {}; the database keeps its own.",
                    facts.collation
                ));
            }
            altered => drop(altered?),
        }
        self.comment_on(name, facts).await;
        Ok(())
    }

    /// Gives a database its comment. MySQL has no such comments, and a restore should not fail for this.
    async fn comment_on(&self, name: &str, facts: &MysqlFacts) {
        let Some(comment) = &facts.comment else { return };
        // The server builds the statement, so that the comment is text whatever it contains.
        let statement = mysql_text(&format!("ALTER DATABASE {} COMMENT = ", quoted(name)));
        let sql = format!(
            "SET SESSION sql_mode = ''; SET @holdfast = CONCAT({statement}, QUOTE({})); PREPARE holdfast FROM @holdfast; \
             EXECUTE holdfast",
            mysql_text(comment)
        );
        if let Err(error) = self.query(&sql).await {
            self.context.log.warn(format!("The comment of the database {name} was not restored: {}", error.message));
        }
    }

    /// The settings of a database; `None` if the server does not report them.
    pub(super) async fn set_up_of(&self, name: &str) -> Result<Option<MysqlFacts>> {
        let sql = set_up_sql(name);
        Ok(MysqlFacts::parse(&self.query(&sql).await?).filter(MysqlFacts::is_plausible))
    }

    /// Refuses to restore into a database that the server keeps its own data in: that would destroy the server.
    pub(super) async fn refuse_the_servers(&self, name: &str) -> Result<()> {
        let text = mysql_text(name);
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = {text} AND (BINARY schema_name = {text} \
             OR @@lower_case_table_names <> 0 OR schema_name LIKE '%schema') AND NOT ({NOT_THE_SERVERS})"
        );
        match self.query(&sql).await?.as_str() {
            "0" => Ok(()),
            _ => Err(is_of_the_server(name)),
        }
    }

    /// How many tables, routines and events a database has; `None` when there is no such database.
    pub(super) async fn count_tables(&self, name: &str) -> Result<Option<u64>> {
        let name = mysql_text(name);
        // The server's lists ignore case in names, although not all servers do.
        let is_it =
            |column: &str| format!("{column} = {name} AND (BINARY {column} = {name} OR @@lower_case_table_names <> 0)");
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.schemata WHERE {}; \
             SELECT (SELECT COUNT(*) FROM information_schema.tables WHERE {}) + \
             (SELECT COUNT(*) FROM information_schema.routines WHERE {}) + \
             (SELECT COUNT(*) FROM information_schema.events WHERE {})",
            is_it("schema_name"),
            is_it("table_schema"),
            is_it("routine_schema"),
            is_it("event_schema")
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
            (Err(error), Some(facts)) if is_unknown_set(&error) => {
                self.context.log.warn(format!(
                    "This server does not know the collation {}; the database gets its own.",
                    facts.collation
                ));
                self.query(&format!("CREATE DATABASE {}", quoted(name))).await?;
            }
            (created, _) => drop(created?),
        }
        if let Some(facts) = facts {
            self.comment_on(name, facts).await;
        }
        Ok(())
    }

    /// Whether the server ignores case in names.
    pub(super) async fn folds_names(&self) -> Result<bool> {
        Ok(self.query("SELECT @@lower_case_table_names").await? != "0")
    }

    /// Makes the copy that a database is loaded into first; false when this user may not, and the database holds nothing
    /// that could be lost.
    pub(super) async fn make_copy(&self, copy: &str, held: Option<u64>, facts: Option<&MysqlFacts>) -> Result<bool> {
        match self.create(copy, facts).await {
            Ok(()) => Ok(true),
            // A user who may not create databases has no more rights to this one than others have.
            Err(error) if held.unwrap_or(0) == 0 && error.has_number(&[1044]) => {
                self.context.log.line("The database user may not make a copy, so the dump is loaded directly.");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Drops a database that this restore created; true if it is gone.
    pub(super) async fn drop_own(&self, name: &str) -> bool {
        // Runs even if the run was cancelled.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = MysqlSession { context: &context, ..*self };
        let dropping = session.drop_database(name);
        let is_gone = matches!(tokio::time::timeout(CLEANING_UP, dropping).await, Ok(Ok(_)));
        if !is_gone {
            context.log.warn(format!("The database {name} was left behind on the server."));
        }
        is_gone
    }

    /// Removes what a failed restore left in a database that was empty; true if it is empty again.
    pub(super) async fn empty_again(&self, name: &str, before: Option<&MysqlFacts>) -> bool {
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = MysqlSession { context: &context, ..*self };
        let emptying = session.make_anew(name, before);
        let is_empty = matches!(tokio::time::timeout(CLEANING_UP, emptying).await, Ok(Ok(())));
        if !is_empty {
            context.log.warn(format!("The database {name} was empty before and holds a part of the backup now."));
        }
        is_empty
    }

    /// Waits until no table of these databases is in use, so that a table of the second is not found to be in use after
    /// the first is gone. A session that starts to use one later is still waited for when its database is dropped.
    pub(super) async fn wait_for_locks(&self, names: impl Iterator<Item = &str>) -> Result<()> {
        for name in names {
            let schema = mysql_text(name);
            let sql = format!(
                "SELECT HEX(table_name) FROM information_schema.tables WHERE table_schema = {schema} AND (BINARY \
                 table_schema = {schema} OR @@lower_case_table_names <> 0) AND table_type = 'BASE TABLE' ORDER BY 1 LIMIT \
                 1000"
            );
            let tables = self.names(&sql).await?;
            if tables.is_empty() {
                continue;
            }
            let locked: Vec<String> =
                tables.iter().map(|table| format!("{}.{} WRITE", quoted(name), quoted(table))).collect();
            let sql = format!("SET SESSION lock_wait_timeout = 30; LOCK TABLES {}; UNLOCK TABLES", locked.join(", "));
            let own = &self.engine.settings.remote;
            let settings = RemoteSettings { answer: LOCKING, ..own.clone() };
            // Not every user may lock tables; without that right, a table in use is noticed when the database is
            // dropped.
            let is_held = |error: &EngineError| error.has_number(&[1205]) || error.number.is_none();
            if let Err(error) = self.query_within(&sql, &settings).await
                && is_held(&error)
            {
                let name = name_text(name.as_bytes());
                let message = format!("A table of {name} is in use by somebody else: {}", error.message);
                return Err(error.reworded(message));
            }
        }
        Ok(())
    }
}

/// Whether the server does not have a character set or collation.
fn is_unknown_set(error: &EngineError) -> bool {
    error.has_number(&[1115, 1273])
}
