//! Dumps back into MySQL and MariaDB. A database that holds something is only replaced after the whole dump was loaded
//! beside it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_core::backup::name_text;
use holdfast_core::random;
use holdfast_core::run::FailureCode;
use holdfast_core::task::DatabaseEngine;
use tokio_util::sync::CancellationToken;

use super::feed::Feeding;
use super::mysql_definitions::DefinitionPlace;
use super::postgres::CLEANING_UP;
use crate::Engine;
use crate::archive::MysqlFacts;
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::mysql::definitions::Definition;
use crate::mysql::rewriting::{Definers, Rewriting, names_database};
use crate::mysql::{COPY, NAME_CHARS, quoted};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote::RemoteSettings;
use crate::source::database::{self, Login, MYSQL_CLIENT, mysql, mysql_text, unhex};
use crate::ssh::{Connection, Exit};

/// Binary mode leaves the client no commands of its own but `delimiter`, and without local files a dump reads none: what
/// is in it can neither run a program nor take a file of the SSH user along.
pub(super) const CLIENT: &str = "--defaults-file=/dev/fd/3 --binary-mode --comments --local-infile=0 --default-character-set=utf8mb4 \
    --max-allowed-packet=1G --init-command='SET SESSION foreign_key_checks=0 /*M!100200 , check_constraint_checks=0 */'";

/// How the client begins to say that a view reads from another one that its definer may not read, or that is broken, and
/// that it calls a function that its definer may not run.
pub(super) const LACKS_RIGHTS: [&str; 2] = ["ERROR 1356 ", "ERROR 1370 "];

/// How long it may take to find out that somebody holds on to a table, which the server itself waits half a minute for.
const LOCKING: Duration = Duration::from_secs(90);

/// How many things are named one by one.
pub(super) const NAMED: usize = 20;

/// One restore into a server: how to reach it, and as whom.
pub(super) struct Session<'a> {
    pub engine: &'a Engine,
    pub connection: &'a Connection,
    pub plan: &'a RestorePlan,
    pub login: &'a Login,
    pub context: &'a Context,
}

/// A dump whose tables were loaded.
struct Loaded {
    /// What followed them.
    found: Vec<Definition>,
    /// The database that was backed up, if it has another name.
    old_name: Option<String>,
    /// How many events of the dump tool were left out.
    events: usize,
    plain_bytes: u64,
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
        context.begin_writing().await?;
        session.load(None).await.map_err(|error| {
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
        if facts.as_ref().is_some_and(|facts| facts.has_definitions) {
            let beside = name_beside(name);
            match session.create(&beside, facts.as_ref()).await {
                Ok(()) => return session.load_and_move(name, tables, &beside, facts.as_ref()).await,
                // Whoever may make no database has no more rights than others have to this one.
                Err(error) if tables.unwrap_or(0) == 0 && error.message.contains("ERROR 1044 ") => {
                    context.log.line("The database user may make no copy, so the dump is loaded where it belongs.");
                }
                Err(error) => return Err(error),
            }
        }
        match tables {
            None => {
                context.begin_writing().await?;
                if let Err(error) = session.create(name, facts.as_ref()).await {
                    context.note_undone().await;
                    return Err(error);
                }
                let loaded = session.load(Some(name)).await;
                if loaded.is_err() && session.drop_own(name).await {
                    context.note_undone().await;
                }
                loaded
            }
            Some(0) => {
                let before = session.set_up_of(name).await?;
                context.begin_writing().await?;
                let loaded = async {
                    session.set_up_as(name, facts.as_ref()).await?;
                    session.load(Some(name)).await
                };
                let loaded = loaded.await;
                if loaded.is_err() && session.empty_again(name, before.as_ref()).await {
                    context.note_undone().await;
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

    /// Gives a database its comment. MySQL has none, and nothing is lost that a restore should fail for.
    async fn comment_on(&self, name: &str, facts: &MysqlFacts) {
        let Some(comment) = &facts.comment else { return };
        // Put together by the server, so that the comment is text whatever is in it.
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

    /// How a database is set up; `None` when the server does not say.
    pub(super) async fn set_up_of(&self, name: &str) -> Result<Option<MysqlFacts>> {
        let sql = database::set_up_sql(name);
        Ok(MysqlFacts::parse(&self.query(&sql).await?).filter(MysqlFacts::is_plausible))
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

    /// How many tables, routines and events a database has; `None` when there is no such database.
    pub(super) async fn count_tables(&self, name: &str) -> Result<Option<u64>> {
        let name = mysql_text(name);
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = {name}; \
             SELECT (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {name}) + \
             (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = {name}) + \
             (SELECT COUNT(*) FROM information_schema.events WHERE event_schema = {name})"
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

    /// Takes away what this restore made itself; true when it is gone.
    pub(super) async fn drop_own(&self, name: &str) -> bool {
        // Also when somebody stopped the run.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = Session { context: &context, ..*self };
        let dropping = session.drop_database(name);
        let is_gone = matches!(tokio::time::timeout(CLEANING_UP, dropping).await, Ok(Ok(_)));
        if !is_gone {
            context.log.warn(format!("The database {name} was left behind on the server."));
        }
        is_gone
    }

    /// Loads the dump beside the database and makes everything there. Only when that went well does the database get the
    /// tables, and the rest again.
    async fn load_and_move(
        &self,
        name: &str,
        held: Option<u64>,
        beside: &str,
        facts: Option<&MysqlFacts>,
    ) -> Result<RestoreReport> {
        let unchanged = |error: EngineError| {
            let fate = if held.is_some() { "was not changed" } else { "was not made" };
            EngineError::new(error.code, format!("{} The database {name} {fate}.", error.message))
        };
        self.context.log.line(format!("Loading the dump into {beside} first."));
        let proven = async {
            let before = if held == Some(0) { self.set_up_of(name).await? } else { None };
            let Loaded { found, old_name, plain_bytes, .. } = self.feed_into(Some(beside), true, None).await?;
            let old_name = old_name.unwrap_or_else(|| name.to_owned());
            let fitted = self.make_in_copy(beside, &found, &old_name).await?;
            // What a database of this name gets; what cannot be moved is told while nothing has changed.
            let old_name = Some(old_name).filter(|old| old != name);
            let place = DefinitionPlace { name, old_name: old_name.as_deref(), is_copy: false };
            let own = self.fitted(&found, &place)?;
            self.prove_views(name, held.is_some(), &fitted).await?;
            if held > Some(0) {
                self.tell_lost(name, beside).await?;
                self.wait_for_locks(std::iter::once(name)).await?;
            }
            self.context.begin_writing().await?;
            Ok((own, before, old_name, plain_bytes))
        };
        let (own, before, old_name, plain_bytes) = match proven.await {
            Ok(proven) => proven,
            Err(error) => {
                self.drop_own(beside).await;
                return Err(unchanged(error));
            }
        };
        let mut is_changed = false;
        let mut is_moved = false;
        let replaced = async {
            self.put_in_place(name, held, beside, facts, &mut is_changed).await?;
            is_moved = true;
            self.make(name, &own.routines).await?;
            self.make_views(own.views.iter().collect(), false).await?;
            self.make_events(name, &own.events).await
        };
        if let Err(error) = replaced.await {
            let is_as_before = match held {
                _ if !is_changed => true,
                None => self.drop_own(name).await,
                Some(0) => self.empty_again(name, before.as_ref()).await,
                // What is not moved yet is only in the copy.
                Some(_) => false,
            };
            if is_as_before {
                self.drop_own(beside).await;
                self.context.note_undone().await;
                return Err(unchanged(error));
            }
            let whole = if is_moved { format!(" All tables of {name} were restored.") } else { String::new() };
            return Err(EngineError::new(error.code, format!("{}{whole}", error.message)));
        }
        self.drop_own(beside).await;
        self.warn_of_definers(name).await;
        if let Some(old) = &old_name {
            self.warn_of_old_name(name, old).await?;
        }
        Ok(RestoreReport { plain_bytes, ..RestoreReport::default() })
    }

    /// Loads the dump beside the database first. Only when that went well is the old one dropped, made anew and loaded;
    /// the copy goes when that is done.
    async fn replace(&self, name: &str, facts: Option<&MysqlFacts>) -> Result<RestoreReport> {
        let beside = name_beside(name);
        self.create(&beside, facts).await?;
        self.context.log.line(format!("Loading the dump into {beside} before {name} is touched."));
        if let Err(error) = self.load_beside(name, &beside, facts).await {
            self.drop_own(&beside).await;
            let message = format!("{} The database {name} was not changed.", error.message);
            return Err(EngineError::new(error.code, message));
        }
        let ready = async {
            self.tell_lost(name, &beside).await?;
            self.wait_for_locks(std::iter::once(name)).await?;
            self.context.begin_writing().await
        };
        if let Err(error) = ready.await {
            self.drop_own(&beside).await;
            let message = format!("{} The database {name} was not changed.", error.message);
            return Err(EngineError::new(error.code, message));
        }
        let replaced = async {
            self.make_anew(name, facts).await?;
            self.load(Some(name)).await
        };
        match replaced.await {
            Ok(report) => {
                self.drop_own(&beside).await;
                Ok(report)
            }
            Err(error) => {
                let message = format!("{} The restored database is in {beside}, without its events.", error.message);
                Err(EngineError::new(error.code, message))
            }
        }
    }

    /// Loads the dump into a copy of a database. A view that reads from another one is made only where its definer may read,
    /// and rights belong to the name of a database: whoever has them to the database may have none to the copy. Then the
    /// copy has no views, when their definers are known to have rights where they will be in the end.
    async fn load_beside(&self, name: &str, beside: &str, facts: Option<&MysqlFacts>) -> Result<()> {
        let refused = match self.feed_into(Some(beside), true, None).await {
            Err(error)
                if LACKS_RIGHTS.iter().any(|code| error.message.contains(code)) && !self.plan.options.no_owner =>
            {
                error
            }
            loaded => return loaded.map(drop),
        };
        self.context.log.line("A view runs as a user without rights to the copy. Loading it again without views.");
        let definers = Definers::default();
        self.make_anew(beside, facts).await?;
        self.feed_into(Some(beside), true, Some(definers.clone())).await?;
        let functions = format!(
            "SELECT COUNT(*) FROM information_schema.routines WHERE routine_type = 'FUNCTION' AND routine_schema = {}",
            mysql_text(beside)
        );
        let calls_function = self.query(&functions).await? != "0";
        for definer in definers.all() {
            self.try_views(name, &definer, calls_function).await.map_err(|error| {
                let is_theirs = error.message.contains("ERROR ");
                if is_theirs { EngineError::new(refused.code, refused.message.clone()) } else { error }
            })?;
        }
        Ok(())
    }

    /// Makes views of views in a database for a moment, and one of a function. The third is made only when the second may
    /// read the first.
    pub(super) async fn try_views(&self, database: &str, definer: &str, with_function: bool) -> Result<()> {
        let probe = name_beside("probe");
        let named = |number: u32| format!("{}.`{probe}_{number}`", quoted(database));
        let [first, second, third, fourth, function] = [1, 2, 3, 4, 5].map(named);
        let mut views = vec![
            (&first, "1 AS a".to_owned()),
            (&second, format!("a FROM {first}")),
            (&third, format!("a FROM {second}")),
        ];
        let mut sql = String::new();
        if with_function {
            sql = format!("CREATE DEFINER={definer} FUNCTION {function}() RETURNS INT DETERMINISTIC RETURN 1; ");
            views.push((&fourth, format!("{function}() AS a")));
        }
        for (view, what) in views {
            sql.push_str(&format!("CREATE DEFINER={definer} VIEW {view} AS SELECT {what}; "));
        }
        let made = self.query(&sql).await.map(drop);
        // Also when somebody stopped the run.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = Session { context: &context, ..*self };
        let sql =
            format!("DROP VIEW IF EXISTS {first}, {second}, {third}, {fourth}; DROP FUNCTION IF EXISTS {function}");
        let dropping = session.query(&sql);
        if !matches!(tokio::time::timeout(CLEANING_UP, dropping).await, Ok(Ok(_))) {
            let shown = name_text(database.as_bytes());
            context.log.warn(format!("Views called {probe}_… may have been left behind in the database {shown}."));
        }
        made
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

    /// Loads the dump where it belongs, with everything that follows its tables.
    async fn load(&self, name: Option<&str>) -> Result<RestoreReport> {
        let Loaded { found, old_name, events, plain_bytes } = self.feed_into(name, false, None).await?;
        if events > 0 {
            self.context.log.warn(left_events(events));
        }
        let Some(name) = name else {
            let is_single = EngineError::corrupt("The dump of a whole server ends like that of one database.");
            return if found.is_empty() {
                Ok(RestoreReport { plain_bytes, ..RestoreReport::default() })
            } else {
                Err(is_single)
            };
        };
        let fitted = self.fitted(&found, &DefinitionPlace { name, old_name: old_name.as_deref(), is_copy: false })?;
        self.make(name, &fitted.routines).await?;
        self.make_views(fitted.views.iter().collect(), false).await?;
        self.make_events(name, &fitted.events).await?;
        self.warn_of_definers(name).await;
        if let Some(old) = &old_name {
            self.warn_of_old_name(name, old).await?;
        }
        Ok(RestoreReport { plain_bytes, ..RestoreReport::default() })
    }

    /// Runs the dump through the client. A copy only stands beside the real one for a while. With `view_definers`, views of
    /// the dump tool are left out, and whom they run as is noted there.
    async fn feed_into(&self, name: Option<&str>, is_copy: bool, view_definers: Option<Definers>) -> Result<Loaded> {
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
        let old_name = manifest.map(|manifest| manifest.source).filter(|old| name.is_some_and(|name| name != old));
        let rewriting = Rewriting {
            without_definers: plan.options.no_owner,
            view_definers,
            // As events of whoever restores they would run with all their rights, and at once.
            without_events: is_copy || plan.options.no_owner,
            old_name: old_name.clone(),
            new_name: name.map(str::to_owned),
            ..Rewriting::default()
        };
        let (events, found) = (rewriting.events.clone(), rewriting.found.clone());
        let fed = engine
            .feed(connection, feeding, whole, &plan.backup, context, move |plain, out| {
                let copied = rewriting.copy(plain, out);
                copied.map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
            })
            .await?;
        self.judge(&fed.exit, &fed.lines)?;
        let events = events.load(Ordering::Relaxed);
        Ok(Loaded { found: found.take(), old_name, events, plain_bytes: fed.plain_bytes })
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
        if lines.iter().any(|line| line.starts_with("ERROR 1227 ") || line.starts_with("ERROR 1449 ")) {
            error.message.push_str(
                " Something in the backup runs as a user that is not here, or that this one may not act for: restore \
                 without owners, or as a user with the privilege SET USER (SUPER, SET_USER_ID).",
            );
        }
        if lines.iter().any(|line| LACKS_RIGHTS.iter().any(|code| line.starts_with(code))) {
            error.message.push_str(
                " A view reads from another one, or calls a function, as a user who may not do so in the database that is \
                 loaded; a database that is replaced is loaded beside it first. Restore without owners, or give that user the rights to it.",
            );
        }
        if lines.iter().any(|line| line.contains("gone away") || line.contains("max_allowed_packet")) {
            error.message.push_str(" A row may be larger than the max_allowed_packet of this server: raise it.");
        }
        Err(error)
    }

    /// Takes away what a failed restore left in a database that was empty; true when it is empty again.
    pub(super) async fn empty_again(&self, name: &str, before: Option<&MysqlFacts>) -> bool {
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = Session { context: &context, ..*self };
        let emptying = session.make_anew(name, before);
        let is_empty = matches!(tokio::time::timeout(CLEANING_UP, emptying).await, Ok(Ok(())));
        if !is_empty {
            context.log.warn(format!("The database {name} was empty before and holds a part of the backup now."));
        }
        is_empty
    }

    /// What people wrote into routines, triggers and events stays as they wrote it, also where it names the database that
    /// was backed up. Views are changed, but for what we do not understand.
    async fn warn_of_old_name(&self, name: &str, old: &str) -> Result<()> {
        let (schema, plain, in_quotes) =
            (mysql_text(name), mysql_text(&format!("{old}.")), mysql_text(&format!("{}.", quoted(old))));
        let naming = |kind: &str, column: &str, body: &str| {
            format!(
                "SELECT HEX({column}_name) FROM information_schema.{kind} WHERE {column}_schema = {schema} AND \
                 (LOCATE({plain}, {body}) > 0 OR LOCATE({in_quotes}, {body}) > 0)"
            )
        };
        let sql = [
            naming("triggers", "trigger", "action_statement"),
            naming("routines", "routine", "routine_definition"),
            naming("events", "event", "event_definition"),
        ];
        let answer = self.query(&format!("{} LIMIT 20", sql.join(" UNION "))).await?;
        let mut names: Vec<String> = answer.lines().filter_map(unhex).collect();
        // As much as fits in one answer.
        let views = format!(
            "SELECT CONCAT(HEX(table_name), ' ', HEX(LEFT(view_definition, 16384))) FROM information_schema.views WHERE \
             table_schema = {schema} AND LOCATE({in_quotes}, view_definition) > 0 LIMIT 40"
        );
        let views = self.query(&views).await?;
        let views = views.lines().filter_map(|line| line.split_once(' '));
        let views = views.filter(|(_, definition)| {
            random::from_hex(definition).is_some_and(|definition| names_database(&definition, old))
        });
        names.extend(views.filter_map(|(view, _)| unhex(view)));
        let names: Vec<String> = names.iter().map(|name| name_text(name.as_bytes())).collect();
        if !names.is_empty() {
            self.context.log.warn(format!(
                "These triggers, routines, events or views name the database {} in what they do, and still mean it: {}.",
                name_text(old.as_bytes()),
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// Waits until nobody holds on to a table of these databases, so that not the second of them is found to be in use when
    /// the first one is gone. Who comes in after that is still waited for when it is dropped.
    pub(super) async fn wait_for_locks(&self, names: impl Iterator<Item = &str>) -> Result<()> {
        for name in names {
            let schema = mysql_text(name);
            let sql = format!(
                "SELECT HEX(table_name) FROM information_schema.tables WHERE table_schema = {schema} AND (BINARY \
                 table_schema = {schema} OR @@lower_case_table_names <> 0) AND table_type = 'BASE TABLE' ORDER BY 1 LIMIT \
                 1000"
            );
            let tables: Vec<String> = self.query(&sql).await?.lines().filter_map(unhex).collect();
            if tables.is_empty() {
                continue;
            }
            let locked: Vec<String> =
                tables.iter().map(|table| format!("{}.{} WRITE", quoted(name), quoted(table))).collect();
            let sql = format!("SET SESSION lock_wait_timeout = 30; LOCK TABLES {}; UNLOCK TABLES", locked.join(", "));
            let own = &self.engine.settings.remote;
            let settings = RemoteSettings { answer: LOCKING, ..own.clone() };
            // Not everybody may lock tables; whoever may not finds out when the database is dropped.
            let is_held =
                |error: &EngineError| error.message.contains("ERROR 1205 ") || !error.message.contains("ERROR ");
            if let Err(error) = self.query_within(&sql, &settings).await
                && is_held(&error)
            {
                let name = name_text(name.as_bytes());
                let message = format!("A table of {name} is in use by somebody else: {}", error.message);
                return Err(EngineError::new(error.code, message));
            }
        }
        Ok(())
    }

    /// Views and routines that run as somebody who is not here fail when they are used, not when they are made.
    pub(super) async fn warn_of_definers(&self, name: &str) {
        if self.plan.options.no_owner {
            self.warn_of_own_rights(name).await;
        }
        let name = mysql_text(name);
        let sql = format!(
            "SELECT GROUP_CONCAT(DISTINCT d.definer SEPARATOR ', ') FROM (\
             SELECT definer FROM information_schema.views WHERE table_schema = {name} UNION \
             SELECT definer FROM information_schema.routines WHERE routine_schema = {name} UNION \
             SELECT definer FROM information_schema.triggers WHERE trigger_schema = {name} UNION \
             SELECT definer FROM information_schema.events WHERE event_schema = {name}) d \
             WHERE d.definer NOT IN (SELECT CONCAT(user, '@', host) FROM mysql.user) AND d.definer NOT IN (SELECT user FROM \
             mysql.user WHERE host = '')"
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

impl Session<'_> {
    /// Names what runs as the user of this restore, whoever calls it.
    async fn warn_of_own_rights(&self, name: &str) {
        let sql = format!(
            "SELECT HEX(routine_name) FROM information_schema.routines WHERE routine_schema = {name} AND security_type = \
             'DEFINER' AND definer = CURRENT_USER() UNION SELECT HEX(trigger_name) FROM information_schema.triggers WHERE \
             trigger_schema = {name} AND definer = CURRENT_USER() UNION SELECT HEX(table_name) FROM \
             information_schema.views WHERE table_schema = {name} AND security_type = 'DEFINER' AND definer = \
             CURRENT_USER() ORDER BY 1 LIMIT {NAMED}",
            name = mysql_text(name)
        );
        let Ok(answer) = self.query(&sql).await else { return };
        let names: Vec<String> = answer.lines().filter_map(unhex).map(|name| name_text(name.as_bytes())).collect();
        if !names.is_empty() {
            self.context.log.warn(format!(
                "Without owners, these routines, triggers and views run with the rights of the database user of this \
                 restore (SQL SECURITY DEFINER), whoever calls them: {}. Restore as a user with few rights.",
                names.join(", ")
            ));
        }
    }
}

/// That events were left out for want of an owner.
pub(super) fn left_events(count: usize) -> String {
    format!(
        "{count} events were left out: without owners they would run with the rights of the database user of this restore. \
         They are in the backup; make them by hand."
    )
}

/// Whether the server does not have a character set or collation.
fn is_unknown_set(error: &EngineError) -> bool {
    error.message.contains("nknown co") || error.message.contains("nknown character set")
}

/// A name for a copy of a database that stands beside it for a time. Rights to all databases whose names begin like
/// that of the original are none to the copy.
pub(super) fn name_beside(name: &str) -> String {
    let prefix = format!("{COPY}{}_", random::hex(&random::bytes::<4>()));
    let kept: String = name.chars().take(NAME_CHARS - prefix.len()).collect();
    format!("{prefix}{kept}")
}
