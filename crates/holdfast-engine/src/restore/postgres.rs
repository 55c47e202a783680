//! Restores dumps into PostgreSQL. Everything is restored into fresh databases beside the existing ones; names are
//! swapped at the end, in one transaction.

use std::collections::BTreeSet;
use std::io;

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;

use super::database_messages::not_empty;
use super::feed::{Fed, Feeding};
use super::postgres_fresh::Fresh;
use super::postgres_load::STRICTLY;
use super::postgres_session::{PostgresSession, name_of};
use crate::Engine;
use crate::archive::pgdump::split::split;
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::plan::{RestorePlan, RestoreReport};
use crate::postgres::contents::Contents;
use crate::postgres::globals::sql::finish_existing_sql;
use crate::postgres::globals::{DatabaseFacts, Name};
use crate::postgres::quoting::identifier;
use crate::postgres::{DumpFacts, describe_dump};
use crate::remote::Script;
use crate::source::database::Login;
use crate::source::postgres;
use crate::source::postgres_server::ask_database;
use crate::ssh::Connection;

impl Engine {
    pub(crate) async fn restore_postgres(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        name: &str,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = PostgresSession { engine: self, connection, plan, login, context };
        let there = ask_database(session.at(), login, name).await?;
        let contents = match &there {
            Some(there) if !there.allows_connections => return Err(is_closed(&there.name)),
            Some(_) => session.contents(name).await?,
            None => Contents::default(),
        };
        if contents.count() > 0 && !plan.overwrite {
            let name = name_text(name.as_bytes());
            context.log.line(format!("The database {name} holds {}.", contents.described()));
            return Err(not_empty(&name));
        }
        let is_replaced = there.is_some() && plan.overwrite;
        // An empty database is checked as well, because a copy may take its place.
        if there.is_some() {
            session.check_bound(&BTreeSet::from([name.to_owned()])).await?;
        }
        self.read_first(&plan.backup, context).await?;
        let mut facts = self.manifest(&plan.backup).await?.and_then(|manifest| manifest.postgres).map(|facts| *facts);
        let target = name_of(name)?;
        if let Some(facts) = &mut facts {
            let own = session.own_roles().await?;
            facts.spare(&own).iter().for_each(|role| context.log.line(spared_settings(role)));
            facts.withhold(&target, &session.guarded().await?).into_iter().for_each(|text| context.log.warn(text));
            if !plan.options.no_owner {
                let changed = facts.settings_of_superusers(&session.roles_there().await?, plan.options.dry_run);
                changed.into_iter().for_each(|text| context.log.warn(text));
            }
        }
        let dump = self.read_as(&plan.backup, context, describe_dump).await?;
        session.tell_tablespaces(&dump, facts.as_ref());
        session.tell_owner_functions(&dump);
        if is_replaced {
            session.tell_lost(name, &dump).await?;
        }
        if !plan.options.no_owner {
            let told = facts.iter().flat_map(|facts| facts.roles.iter().chain([&facts.owner]));
            let told = told.map(|role| role.as_str().to_owned());
            session.check_roles(dump.owners.iter().cloned().chain(told).collect()).await?;
        }
        if plan.options.dry_run {
            context.log.line(match (&there, contents.count()) {
                (None, _) => format!("The database {name} would be created."),
                (Some(_), 0) => format!("The database {name} is empty and would be filled."),
                (Some(_), _) => format!("The database {name} would be replaced: {}.", contents.described()),
            });
            return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
        }
        if let Some(there) = there.as_ref().filter(|_| !plan.overwrite) {
            // An empty database that was created for this restore.
            let report = session.fill_empty(there, &dump).await?;
            if let Some(model) = &facts {
                session.finish_existing(model, there, &target).await;
            }
            return Ok(report);
        }
        // If the backup does not describe the original, the database that is replaced serves as the model.
        let model = facts.or_else(|| there.clone());
        let made = session.make_fresh(model.as_ref(), &target, there.is_some()).await?;
        session.fill_and_swap(&made, model.as_ref().map(|model| (model, !plan.options.no_owner)), &dump).await
    }
}

impl PostgresSession<'_> {
    /// Fills an empty database completely, or leaves it as it is.
    async fn fill_empty(&self, there: &DatabaseFacts, dump: &DumpFacts) -> Result<RestoreReport> {
        let name = there.name.as_str();
        if !self.is_superuser().await? {
            // Whatever its owner creates in it meanwhile would run as our user, who has few rights beyond the owner's.
            let contents = self.contents(name).await?;
            if contents.count() > 0 {
                return Err(not_empty(&name_text(name.as_bytes())));
            }
            self.context.begin_writing().await?;
            let filled = self.fill_directly(name, dump).await;
            // All of it is one transaction.
            if filled.is_err() && matches!(self.contents(name).await, Ok(contents) if contents.count() == 0) {
                self.context.note_undone().await;
            }
            return filled;
        }
        let made = self.copy_empty(there).await?;
        if let Err(error) = self.check_empty(&made).await {
            self.drop_own(&made.fresh).await;
            return Err(error);
        }
        self.fill_and_swap(&made, Some((there, true)), dump).await
    }

    /// Fills a fresh database, configures it like the model, and puts it in its place; all or nothing.
    async fn fill_and_swap(
        &self,
        made: &Fresh,
        model: Option<(&DatabaseFacts, bool)>,
        dump: &DumpFacts,
    ) -> Result<RestoreReport> {
        let report = async {
            let filled = async {
                let report = self.fill(made, dump).await?;
                if let Some((model, with_roles)) = model {
                    self.finish(model, made, with_roles).await?;
                }
                Ok::<_, EngineError>(report)
            };
            let report = match filled.await {
                Ok(report) => report,
                Err(error) => return Err(self.not_filled(&error, std::slice::from_ref(made)).await),
            };
            self.swap(std::slice::from_ref(made)).await?;
            Ok::<_, EngineError>(report)
        };
        match report.await {
            Ok(report) => Ok(report),
            Err(error) => {
                self.drop_own(&made.fresh).await;
                Err(error)
            }
        }
    }

    /// Warns about functions that run with the rights of their owner: without owners, that is the user of the restore.
    pub(super) fn tell_owner_functions(&self, dump: &DumpFacts) {
        if self.plan.options.no_owner && !dump.owner_functions.is_empty() {
            let names: Vec<String> = dump.owner_functions.iter().map(|name| name_text(name.as_bytes())).collect();
            let further = match dump.further_owner_functions {
                0 => String::new(),
                count => format!(" and {count} others"),
            };
            self.context.log.warn(format!(
                "Without owners, these functions run with the rights of the database user of this restore (SECURITY \
                 DEFINER), whoever calls them: {}{further}. Restore as a user with few rights, or take EXECUTE from PUBLIC.",
                names.join(", ")
            ));
        }
    }
}

fn is_closed(name: &Name) -> EngineError {
    let open = format!("ALTER DATABASE {} ALLOW_CONNECTIONS true;", identifier(name));
    let message = format!(
        "The database {name} accepts no connections, so nobody can tell what is in it; nothing was changed. To open it: \
         {open}"
    );
    EngineError::new(FailureCode::RemoteFailed, message)
}

fn spared_settings(role: &Name) -> String {
    format!("The settings of the role {role}, as which this restore is connected, were not restored.")
}

impl PostgresSession<'_> {
    /// Restores the backup's only dump into a fresh database.
    async fn fill(&self, made: &Fresh, dump: &DumpFacts) -> Result<RestoreReport> {
        let script = self.restore_script(&made.fresh, dump.has_event_triggers(), &[]).await?;
        let copy = |plain: &mut dyn io::Read, out: &mut dyn io::Write| io::copy(plain, out).map(drop);
        let fed = self.feed_dump(&script, copy).await?;
        if fed.exit.success() || dump.derived == 0 {
            self.judge(&fed.exit, &fed.lines)?;
            return Ok(RestoreReport { plain_bytes: fed.plain_bytes, ..RestoreReport::default() });
        }
        self.begin_again(made, &fed.lines).await?;
        let script = self.restore_script(&made.fresh, false, &[STRICTLY]).await?;
        let count = dump.taken_out;
        let fed = self.feed_dump(&script, move |plain, out| split(plain, count, out)).await?;
        self.judge(&fed.exit, &fed.lines)?;
        let taken_out = fed.made.ok_or_else(|| EngineError::internal("a process that took a part of a dump"))?;
        self.make_derived(made, dump, &taken_out).await?;
        Ok(RestoreReport { plain_bytes: fed.plain_bytes, ..RestoreReport::default() })
    }

    /// Restores the backup's only dump into a database, which is changed completely or not at all.
    async fn fill_directly(&self, database: &str, dump: &DumpFacts) -> Result<RestoreReport> {
        let name = name_of(database)?;
        let words = [STRICTLY, "--single-transaction"];
        let script = self.restore_script(&name, dump.has_event_triggers(), &words).await?;
        let fed = self.feed_dump(&script, |plain, out| io::copy(plain, out).map(drop)).await?;
        self.judge(&fed.exit, &fed.lines)?;
        Ok(RestoreReport { plain_bytes: fed.plain_bytes, ..RestoreReport::default() })
    }

    async fn feed_dump<T: Send + 'static>(
        &self,
        script: &Script,
        transform: impl FnOnce(&mut dyn io::Read, &mut dyn io::Write) -> io::Result<T> + Send + 'static,
    ) -> Result<Fed<T>> {
        let Self { engine, connection, plan, login, context } = *self;
        let reader = engine.open_plain(&plan.backup, context).await?;
        let process = script.start(connection).await?;
        let feeding = Feeding { process, login: postgres::login_lines(login), finish: engine.settings.remote.finish };
        engine
            .feed(connection, feeding, reader, &plan.backup, context, |plain, out| {
                let passed = transform(plain, out);
                passed.map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
            })
            .await
    }

    /// As [`Self::finish`], for a database that existed before: warns about what this login may not set and about what
    /// stays as it is. The contents have been restored by then.
    pub(super) async fn finish_existing(&self, model: &DatabaseFacts, there: &DatabaseFacts, name: &Name) {
        let with_roles = !self.plan.options.no_owner;
        let log = &self.context.log;
        if with_roles && model.owner != there.owner {
            log.warn(format!(
                "The database {name} keeps its owner {}; it was {} in the backup.",
                there.owner, model.owner
            ));
        }
        if with_roles && model.acl.is_none() && there.acl.is_some() {
            log.warn(format!("The database {name} keeps its own rights; there were none in the backup."));
        }
        let how_made = |facts: &DatabaseFacts| {
            let locale = facts.locale.as_ref().map(|locale| format!(", {}", locale.as_str())).unwrap_or_default();
            format!("{}, {}, {}{locale}", facts.encoding, facts.collate.as_str(), facts.ctype.as_str())
        };
        let (own, other) = (how_made(there), how_made(model));
        if own != other {
            log.warn(format!("The database {name} keeps its encoding and locale ({own}); in the backup: {other}."));
        }
        if let Err(error) = self.run("postgres", &finish_existing_sql(model, there, with_roles)).await {
            log.warn(format!(
                "Settings, rights and the comment of the database {name} were not restored: {}",
                error.message
            ));
        }
    }
}
