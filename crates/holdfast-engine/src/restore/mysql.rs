//! Restores dumps into MySQL and MariaDB. A database that holds something is only replaced after the whole dump was
//! loaded into a copy beside it.

use std::io;

use super::database_messages::not_empty;
use super::mysql_definitions::DefinitionPlace;
use super::mysql_load::{Loaded, later_of, without_views};
use super::mysql_session::{MysqlSession, name_beside};
use crate::Engine;
use crate::archive::MysqlFacts;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::{RestorePlan, RestoreReport};
use crate::source::database::Login;
use crate::ssh::Connection;

impl Engine {
    /// Restores one dump of all databases, which contains the statements that select and create them.
    pub(crate) async fn restore_mysql_server_dump(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = MysqlSession { engine: self, connection, plan, login, context };
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
        let session = MysqlSession { engine: self, connection, plan, login, context };
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
        None => format!("The database {name} would be created."),
        Some(0) => format!("The database {name} is empty and would be filled."),
        Some(tables) => format!("The database {name} with its {tables} tables would be replaced as a whole."),
    });
    RestoreReport { is_dry: true, ..RestoreReport::default() }
}

impl MysqlSession<'_> {
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
