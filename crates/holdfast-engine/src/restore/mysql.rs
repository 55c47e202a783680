//! Restores dumps into MySQL and MariaDB. A database that holds something is only replaced after the whole dump was
//! loaded into a copy beside it.

use std::io;
use std::sync::atomic::Ordering;

use holdfast_core::random;
use holdfast_core::run::FailureCode;

use super::database_messages::not_empty;
use super::feed::Feeding;
use super::mysql_definitions::DefinitionPlace;
use super::mysql_session::{CLIENT, LACKS_RIGHTS, Session};
use super::mysql_warnings::left_events;
use crate::Engine;
use crate::archive::MysqlFacts;
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::mysql::definitions::Definition;
use crate::mysql::definitions::takes_prepared;
use crate::mysql::rewriting::{Definers, FoundTables, Rewriting};
use crate::mysql::{COPY, NAME_CHARS};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote::{Remote, RemoteSettings};
use crate::source::database::{self, Login, unhex};
use crate::source::mysql::{self, MYSQL_CLIENT, mysql};
use crate::ssh::{Connection, Exit};

/// A dump whose tables were loaded.
pub(super) struct Loaded {
    /// The definitions that followed the tables.
    found: Vec<Definition>,
    /// The name of the database that was backed up, if it was another.
    old_name: Option<String>,
    /// The tables, and what was left out when they were created.
    tables: FoundTables,
    /// How many events written by the dump tool were left out.
    events: usize,
    plain_bytes: u64,
}

impl Engine {
    /// Restores one dump of all databases, which contains the statements that select and create them.
    pub(crate) async fn restore_mysql_server_dump(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = Session { engine: self, connection, plan, login, context };
        session.read_first(None).await?;
        if plan.options.dry_run {
            context.log.line("The tables in the dump would be replaced, users and privileges among them; tables and databases that are not in it would stay.");
            return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
        }
        context.begin_writing().await?;
        session.load(None).await.map_err(|error| {
            let message = format!("{} What precedes it in the dump has been restored.", error.message);
            error.reworded(message)
        })
    }

    pub(crate) async fn restore_mysql(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        name: &str,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = Session { engine: self, connection, plan, login, context };
        session.refuse_the_servers(name).await?;
        let tables = session.count_tables(name).await?;
        if tables > Some(0) && !plan.overwrite {
            return Err(not_empty(name));
        }
        let restored = session.read_first(Some(name)).await?;
        if plan.options.dry_run {
            if tables > Some(0) && !restored.is_empty() {
                session.tell_lost(name, &restored, "would be").await?;
            }
            return Ok(dry(name, tables, context));
        }
        let facts =
            self.manifest(&plan.backup).await?.and_then(|manifest| manifest.mysql).filter(MysqlFacts::is_plausible);
        if facts.as_ref().is_some_and(|facts| facts.has_definitions) {
            let beside = name_beside(name);
            if session.make_copy(&beside, tables, facts.as_ref()).await? {
                return session.load_and_move(name, tables, &beside, facts.as_ref()).await;
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

    pub(super) async fn query_within(&self, sql: &str, settings: &RemoteSettings) -> Result<String> {
        let at = Remote { connection: self.connection, settings, context: self.context };
        let answer = database::answered(mysql::query(at, self.login, sql).await?, "mysql", self.context)?;
        Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    }

    /// Runs a query that selects names, which come in hexadecimal digits, one on each line.
    pub(super) async fn names(&self, sql: &str) -> Result<Vec<String>> {
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server returned a name that cannot be read.");
        self.query(sql).await?.lines().map(|line| unhex(line).ok_or_else(unclear)).collect()
    }

    /// Reads the whole backup as it will be loaded, before anything is changed: what cannot be restored must not
    /// destroy what is there, and a dry run reports what would be refused. Returns the names of its tables, where they
    /// are data.
    async fn read_first(&self, name: Option<&str>) -> Result<Vec<String>> {
        self.context.log.line("Reading the whole backup before anything is changed.");
        let rewriting = self.rewriting(name, false).await?;
        let (found, tables) = (rewriting.found.clone(), rewriting.tables.clone());
        let old_name = rewriting.old_name.clone();
        let reading = move |plain: &mut dyn io::Read| rewriting.copy(plain, &mut io::sink());
        self.engine.read_as(&self.plan.backup, self.context, reading).await?;
        if let Some(name) = name {
            self.fitted(&found.take(), &DefinitionPlace { name, old_name: old_name.as_deref(), is_copy: false })?;
        }
        Ok(tables.take().names)
    }

    /// How the dump is changed on its way into a database. A copy only exists beside the real one for a while.
    async fn rewriting(&self, name: Option<&str>, is_copy: bool) -> Result<Rewriting> {
        let manifest = match name {
            Some(_) => self.engine.manifest(&self.plan.backup).await?,
            None => None,
        };
        let version = self.query("SELECT VERSION()").await?;
        Ok(Rewriting {
            unprepared: (!takes_prepared(&version)).then_some(version),
            without_definers: self.plan.options.no_owner,
            // Owned by the user of the restore, events would run with all rights of that user, and immediately.
            without_events: is_copy || self.plan.options.no_owner,
            old_name: manifest.map(|manifest| manifest.source).filter(|old| name.is_some_and(|name| name != old)),
            new_name: name.map(str::to_owned),
            ..Rewriting::default()
        })
    }

    /// Loads the dump into a copy beside the database and creates everything there. Only if that succeeds are the
    /// tables moved to the database, and everything else created again.
    async fn load_and_move(
        &self,
        name: &str,
        held: Option<u64>,
        beside: &str,
        facts: Option<&MysqlFacts>,
    ) -> Result<RestoreReport> {
        self.context.log.line(format!("Loading the dump into {beside} first."));
        let proven = async {
            let before = if held == Some(0) { self.set_up_of(name).await? } else { None };
            let loaded = self.feed_into(Some(beside), true, None).await?;
            let Loaded { found, tables, old_name, plain_bytes, .. } = loaded;
            let old_name = old_name.unwrap_or_else(|| name.to_owned());
            self.make_in_copy(beside, &found, &old_name).await?;
            // What the database itself gets; anything that cannot be moved is reported while nothing has changed.
            let old_name = Some(old_name).filter(|old| old != name);
            let place = DefinitionPlace { name, old_name: old_name.as_deref(), is_copy: false };
            let own = self.fitted(&found, &place)?;
            // Views cannot be tried in a database that does not exist yet.
            if held.is_some() {
                self.prove_owners(name, &own.views, &own.routines).await?;
            }
            if held > Some(0) {
                self.tell_lost(name, &tables.names, "will be").await?;
                self.wait_for_locks(std::iter::once(name)).await?;
            }
            self.context.begin_writing().await?;
            Ok((own, before, tables, old_name, plain_bytes))
        };
        let (own, before, tables, old_name, plain_bytes) = match proven.await {
            Ok(proven) => proven,
            Err(error) => {
                self.drop_own(beside).await;
                return Err(unchanged(name, held, &error));
            }
        };
        let mut is_changed = false;
        let mut is_moved = false;
        let replaced = async {
            self.context.log.line(format!("{beside} is complete. Moving its tables into {name}, which they replace."));
            self.put_in_place(name, held, beside, facts, &mut is_changed).await?;
            is_moved = true;
            self.make(name, &later_of(&tables, name, old_name.as_deref())).await?;
            self.make(name, &own.routines).await?;
            // A view that cannot be created does not stop the rest.
            let views = self.make_views(own.views.iter().collect(), false).await;
            self.make_events(name, &own.events).await?;
            Ok(views)
        };
        let views = match replaced.await {
            Ok(views) => views,
            Err(error) => {
                let stopped = Stopped { held, is_changed, is_moved, before: before.as_ref(), tables: &tables.names };
                return Err(self.give_up(name, beside, &stopped, error).await);
            }
        };
        self.drop_own(beside).await;
        self.warn_of_directories(&tables.with_directory);
        self.warn_of_definers(name).await;
        if let Some(old) = &old_name {
            self.warn_of_old_name(name, old).await?;
        }
        views.map_err(|error| without_views(name, &error))?;
        Ok(RestoreReport { plain_bytes, ..RestoreReport::default() })
    }

    /// Undoes a restore that failed, where that loses nothing.
    async fn give_up(&self, name: &str, beside: &str, stopped: &Stopped<'_>, error: EngineError) -> EngineError {
        let is_as_before = match stopped.held {
            _ if !stopped.is_changed => true,
            None => self.drop_own(name).await,
            Some(0) if !self.is_all_ours(name, beside, stopped.tables).await => {
                self.context
                    .log
                    .warn(format!("The database {name} holds something that somebody else made meanwhile; it stays."));
                false
            }
            Some(0) => self.empty_again(name, stopped.before).await,
            // Tables that were not moved yet exist only in the copy.
            Some(_) => false,
        };
        if is_as_before {
            self.drop_own(beside).await;
            self.context.note_undone().await;
            return unchanged(name, stopped.held, &error);
        }
        let whole = if stopped.is_moved { format!(" All tables of {name} were restored.") } else { String::new() };
        error.reworded(format!("{}{whole}", error.message))
    }

    /// Loads the dump into its final place, with everything that follows its tables.
    pub(super) async fn load(&self, name: Option<&str>) -> Result<RestoreReport> {
        let Loaded { found, tables, old_name, events, plain_bytes } = self.feed_into(name, false, None).await?;
        if events > 0 {
            self.context.log.warn(left_events(events));
        }
        let Some(name) = name else {
            let is_single = EngineError::corrupt("This is the dump of one database, not of a whole server.");
            return if found.is_empty() {
                Ok(RestoreReport { plain_bytes, ..RestoreReport::default() })
            } else {
                Err(is_single)
            };
        };
        let fitted = self.fitted(&found, &DefinitionPlace { name, old_name: old_name.as_deref(), is_copy: false })?;
        self.make(name, &later_of(&tables, name, old_name.as_deref())).await?;
        self.make(name, &fitted.routines).await?;
        self.warn_of_directories(&tables.with_directory);
        let views = self.make_views(fitted.views.iter().collect(), false).await;
        self.make_events(name, &fitted.events).await?;
        self.warn_of_definers(name).await;
        if let Some(old) = &old_name {
            self.warn_of_old_name(name, old).await?;
        }
        views.map_err(|error| without_views(name, &error))?;
        Ok(RestoreReport { plain_bytes, ..RestoreReport::default() })
    }

    /// Runs the dump through the client. With `view_definers`, views written by the dump tool are left out, and their
    /// definers are noted there.
    pub(super) async fn feed_into(
        &self,
        name: Option<&str>,
        is_copy: bool,
        view_definers: Option<Definers>,
    ) -> Result<Loaded> {
        let Self { engine, connection, plan, login, context } = *self;
        let script = match name {
            Some(name) => mysql(MYSQL_CLIENT, &format!("{CLIENT} --database=\"$1\""), "3", &[name]),
            None => mysql(MYSQL_CLIENT, CLIENT, "3", &[]),
        };
        let reader = engine.open_plain(&plan.backup, context).await?;
        let process = script.start(connection).await?;
        let feeding = Feeding { process, login: mysql::login_lines(login), finish: engine.settings.remote.finish };
        let rewriting = Rewriting { view_definers, ..self.rewriting(name, is_copy).await? };
        let (events, found, tables) = (rewriting.events.clone(), rewriting.found.clone(), rewriting.tables.clone());
        let old_name = rewriting.old_name.clone();
        let fed = engine
            .feed(connection, feeding, reader, &plan.backup, context, move |plain, out| {
                let copied = rewriting.copy(plain, out);
                copied.map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
            })
            .await?;
        self.judge(&fed.exit, &fed.lines)?;
        let events = events.load(Ordering::Relaxed);
        Ok(Loaded { found: found.take(), tables: tables.take(), old_name, events, plain_bytes: fed.plain_bytes })
    }

    /// Judges how the client that loaded a dump ended. The failed statement, which the client repeats, is kept out of
    /// the log.
    pub(super) fn judge(&self, exit: &Exit, lines: &[String]) -> Result<()> {
        let is_told =
            |line: &&String| ["ERROR", "mysql:", "mariadb:", "Warning"].iter().any(|word| line.starts_with(word));
        let lines: Vec<String> = lines.iter().filter(is_told).cloned().collect();
        if exit.success() {
            lines.iter().for_each(|line| self.context.log.warn(line));
            return Ok(());
        }
        let mut error = database::explain("mysql", exit, &lines, self.context);
        if error.is_mysql_error(&[1227, 1449]) {
            error.message.push_str(
                " Something in the backup runs as a user that does not exist here, or that this user may not act for: \
                 restore without owners, or as a user with the privilege SET USER (SUPER, SET_USER_ID).",
            );
        }
        if error.is_mysql_error(&LACKS_RIGHTS) {
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
}

/// How far a failed restore got.
struct Stopped<'a> {
    held: Option<u64>,
    is_changed: bool,
    is_moved: bool,
    before: Option<&'a MysqlFacts>,
    tables: &'a [String],
}

fn unchanged(name: &str, held: Option<u64>, error: &EngineError) -> EngineError {
    let fate = if held.is_some() { "was not changed" } else { "was not made" };
    error.reworded(format!("{} The database {name} {fate}.", error.message))
}

fn without_views(name: &str, error: &EngineError) -> EngineError {
    error.reworded(format!("{} Everything else of {name} was restored.", error.message))
}

/// The statements that add what was left out when the tables were created, for the database that they are in now.
pub(super) fn later_of(tables: &FoundTables, name: &str, old_name: Option<&str>) -> Vec<Definition> {
    let names = old_name.map(|old| (old, name));
    tables.later.iter().flat_map(|later| later.definitions(names)).collect()
}

/// A name for a temporary copy of a database. Rights to all databases whose names begin like the original do not apply
/// to the copy.
pub(super) fn name_beside(name: &str) -> String {
    let prefix = format!("{COPY}{}_", random::hex(&random::bytes::<4>()));
    let kept: String = name.chars().take(NAME_CHARS - prefix.len()).collect();
    format!("{prefix}{kept}")
}
