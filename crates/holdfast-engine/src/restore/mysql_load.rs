//! Loads a dump into a database through the client, with everything that follows its tables.

use std::sync::atomic::Ordering;

use holdfast_core::failure::FailureCode;

use super::feed::Feeding;
use super::mysql_definitions::DefinitionPlace;
use super::mysql_session::{CLIENT, MysqlSession};
use super::mysql_warnings::left_events;
use crate::error::{EngineError, Result, classify};
use crate::mysql::definitions::{Definition, takes_prepared};
use crate::mysql::rewriting::{Definers, FoundTables, Rewriting};
use crate::plan::RestoreReport;
use crate::source::mysql::{self, MYSQL_CLIENT, mysql};

/// A dump whose tables were loaded.
pub(super) struct Loaded {
    /// The definitions that followed the tables.
    pub found: Vec<Definition>,
    /// The name of the database that was backed up, if it was another.
    pub old_name: Option<String>,
    /// The tables, and what was left out when they were created.
    pub tables: FoundTables,
    /// How many events written by the dump tool were left out.
    events: usize,
    pub plain_bytes: u64,
}

impl MysqlSession<'_> {
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

    /// How the dump is changed on its way into a database. A copy only exists beside the real one for a while.
    pub(super) async fn rewriting(&self, name: Option<&str>, is_copy: bool) -> Result<Rewriting> {
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
}

/// The statements that add what was left out when the tables were created, for the database that they are in now.
pub(super) fn later_of(tables: &FoundTables, name: &str, old_name: Option<&str>) -> Vec<Definition> {
    let names = old_name.map(|old| (old, name));
    tables.later.iter().flat_map(|later| later.definitions(names)).collect()
}

pub(super) fn without_views(name: &str, error: &EngineError) -> EngineError {
    error.reworded(format!("{} Everything else of {name} was restored.", error.message))
}
