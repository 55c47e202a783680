//! Restores whole PostgreSQL servers: roles from data, each database into a fresh one, and all names swapped at once.
//! SQL dumps, as the first release stored them, are run by `psql` after the whole dump was checked.

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::database_messages::{not_empty, not_held};
use super::dumps::{Dump, copy};
use super::feed::Feeding;
use super::postgres_fresh::Fresh;
use super::postgres_load::STRICTLY;
use super::postgres_session::{PostgresSession, end_sessions_sql, name_of, with_note};
use crate::Engine;
use crate::archive::pgdump::split::split;
use crate::archive::server::{ROLES, describe_postgres};
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::plan::{RestorePlan, RestoreReport, StoredBackup};
use crate::postgres::DumpFacts;
use crate::postgres::cluster_dump::{self, CheckError, ClusterDump, Filter, FilterOptions};
use crate::postgres::globals::sql::changed_sql;
use crate::postgres::globals::{
    DatabaseFacts, Globals, Guarded, Name, Role, VALIDITY, by_name, gain, gained_by_membership, new_memberships,
    new_password, sql,
};
use crate::postgres::quoting::identifier;
use crate::source::database::Login;
use crate::source::postgres::{self, PSQL, pg_name, postgres};
use crate::source::postgres_server::ask_database;
use crate::source::tool::explain;
use crate::ssh::Connection;
use crate::thread::on_thread;

impl Engine {
    pub(crate) async fn restore_postgres_server(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        only: Option<&str>,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = PostgresSession { engine: self, connection, plan, login, context };
        context.log.line("Reading the whole backup before anything is changed.");
        let (mut globals, mut dumps) = self.read_as(&plan.backup, context, describe_postgres).await?;
        if let Some(name) = only {
            dumps.retain(|(index, _)| globals.databases[*index].name.as_str() == name);
            let (index, dump) = dumps.first().ok_or_else(|| not_held(name))?;
            session.check_one(&globals.databases[*index], dump).await?;
            globals.forget_roles();
            if !plan.options.no_owner {
                let database = &globals.databases[*index];
                let changed = database.settings_of_superusers(&session.roles_there().await?, plan.options.dry_run);
                changed.into_iter().for_each(|text| context.log.warn(text));
            }
        }
        let there = session.names("SELECT coalesce(json_agg(datname), '[]') FROM pg_database").await?;
        let roles = session.names("SELECT coalesce(json_agg(rolname), '[]') FROM pg_roles").await?;
        // Every server has these databases; if they hold nothing, there is nothing to restore.
        let is_wanted = |index: usize, facts: &DumpFacts| {
            let name = globals.databases[index].name.as_str();
            facts.has_objects || only.is_some() || !matches!(name, "postgres" | "template1")
        };
        let wanted: Vec<usize> =
            dumps.iter().filter(|(index, facts)| is_wanted(*index, facts)).map(|(index, _)| *index).collect();
        session.spare_own_role(&mut globals).await?;
        let withheld = globals.withhold(&session.guarded().await?);
        session.tell(&globals, &wanted, &there, &roles);
        withheld.into_iter().for_each(|text| context.log.warn(text));
        session.tell_gains(&globals).await?;
        for (index, facts) in dumps.iter().filter(|(index, _)| !wanted.contains(index)) {
            session.tell_kept(&globals.databases[*index].name, facts);
        }
        let open = "SELECT coalesce(json_agg(datname), '[]') FROM pg_database WHERE datallowconn";
        let open = session.names(open).await?;
        for (index, facts) in dumps.iter().filter(|(index, _)| wanted.contains(index)) {
            let name = globals.databases[*index].name.as_str();
            session.tell_owner_functions(facts);
            if open.contains(name) {
                session.tell_lost(name, facts).await?;
            }
        }
        let names = wanted.iter().map(|index| globals.databases[*index].name.as_str().to_owned());
        session.check_bound(&names.filter(|name| there.contains(name)).collect()).await?;
        let kept = if only.is_none() { session.kept(&globals, &wanted, &there).await? } else { Vec::new() };
        kept.iter().for_each(|(model, there)| session.tell_changed(model, there));
        if plan.options.dry_run {
            return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
        }
        let version = session.version().await?;
        let made_roles = if plan.options.no_owner { 0 } else { session.make_roles(&globals, &roles).await? };
        let mut fresh = Vec::new();
        let restored = async {
            let filled = async {
                let report = session.fill_all(&globals, &wanted, &dumps, &there, &mut fresh).await?;
                for one in &fresh {
                    let model = globals.databases.iter().find(|facts| facts.name == one.target);
                    if let Some(model) = model {
                        session.finish(model, one, !plan.options.no_owner).await?;
                    }
                }
                Ok::<_, EngineError>(report)
            };
            let report = match filled.await {
                Ok(report) => report,
                Err(error) => return Err(session.not_filled(&error, &fresh).await),
            };
            session.swap(&fresh).await?;
            Ok::<_, EngineError>(report)
        };
        match restored.await {
            Ok(report) => {
                let roles = async {
                    match plan.options.no_owner {
                        true => Ok(()),
                        false => session.restore_roles(&globals, version).await,
                    }
                };
                match roles.await {
                    Ok(()) => {
                        for (model, there) in &kept {
                            session.finish_existing(model, there, &model.name).await;
                        }
                        Ok(report)
                    }
                    Err(error) => Err(with_note(&error, REPLACED)),
                }
            }
            Err(error) => {
                for one in &fresh {
                    session.drop_own(&one.fresh).await;
                }
                Err(match made_roles {
                    0 => error,
                    made => with_note(&error, &format!("{made} new roles were made and stay.")),
                })
            }
        }
    }

    /// Restores a dump of all databases in SQL. Nothing runs before all of it has been read and every statement is
    /// known to be one that `pg_dumpall` writes.
    pub(crate) async fn restore_cluster_dump(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = PostgresSession { engine: self, connection, plan, login, context };
        context.log.line("Reading and checking the whole dump before anything is changed.");
        let guarded = session.guarded().await?;
        let dump = self.check_cluster_dump(&plan.backup, guarded.clone(), context).await?;
        let there = session.names("SELECT coalesce(json_agg(datname), '[]') FROM pg_database").await?;
        let roles = session.names("SELECT coalesce(json_agg(rolname), '[]') FROM pg_roles").await?;
        let lost: Vec<&str> = dump.dropped_databases.difference(&dump.databases).map(String::as_str).collect();
        if !lost.is_empty() {
            let message = format!("This dump drops databases and does not bring them back: {}.", lost.join(", "));
            return Err(EngineError::new(FailureCode::HostileArchive, message));
        }
        for name in &dump.dropped_databases {
            let fate = if there.contains(name) { "is replaced" } else { "is made" };
            context.log.line(format!("Database {name}: {fate}."));
        }
        for name in &dump.tablespaces {
            context.log.warn(format!("The tablespace {name} needs its folder on the server."));
        }
        dump.withheld.iter().for_each(|text| context.log.warn(text));
        let own = session.own_roles().await?;
        own.intersection(&dump.roles).for_each(|name| context.log.line(spared(name)));
        session.tell_dump_gains(&dump, &own).await?;
        session.check_bound(&dump.dropped_databases.intersection(&there).cloned().collect()).await?;
        if plan.options.dry_run {
            return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
        }
        context.begin_writing().await?;
        session.clear_for(&dump, &there).await?;
        let knows_restrict = session.query("postgres", "SELECT 1").await.is_ok() && session.knows_restrict().await;
        let script = format!("unset PGCLIENTENCODING\n{PSQL} --set=ON_ERROR_STOP=1 --file=-");
        let reader = self.open_plain(&plan.backup, context).await?;
        let process = postgres(&script, &[&pg_name("postgres")]).start(connection).await?;
        let feeding = Feeding { process, login: postgres::login_lines(login), finish: self.settings.remote.finish };
        let options = FilterOptions {
            existing_roles: roles,
            own_roles: own,
            turned_off: session.names(KNOWN_TIMEOUTS).await?,
            without_restrict: !knows_restrict,
            guarded,
        };
        let fed = self
            .feed(connection, feeding, reader, &plan.backup, context, move |plain, out| {
                let copied = io::copy(&mut Filter::new(plain, options), out);
                copied.map(drop).map_err(|error| classify(&error, FailureCode::HostileArchive, "The dump was refused"))
            })
            .await?;
        if !fed.exit.success() {
            return Err(explain(postgres::tool("psql"), &fed.exit, &fed.lines, context));
        }
        fed.lines.iter().for_each(|line| context.log.line(line));
        Ok(RestoreReport { plain_bytes: fed.plain_bytes, ..RestoreReport::default() })
    }

    async fn check_cluster_dump(
        &self,
        backup: &StoredBackup,
        guarded: Guarded,
        context: &Context,
    ) -> Result<ClusterDump> {
        const BY_HAND: &str = "If you trust the server that this backup came from, restore it manually: download it, \
            decompress it with zstd, and feed it to psql.";
        let quiet = Context { progress: Arc::default(), ..context.clone() };
        let mut reader = self.open_plain(backup, &quiet).await?;
        let backup = backup.clone();
        let dump = on_thread(move || {
            let checked = cluster_dump::check_for(&mut reader.plain, guarded).map_err(|error| match error {
                CheckError::Refused(refused) => {
                    EngineError::new(FailureCode::HostileArchive, format!("{refused} {BY_HAND}"))
                }
                CheckError::Read(error) => classify(&error, FailureCode::Corrupt, "This backup is damaged"),
            })?;
            reader.finish(&backup)?;
            Ok(checked)
        })
        .await?;
        if dump.is_complete { Ok(dump) } else { Err(EngineError::corrupt("The dump stops before its end.")) }
    }
}

/// For errors that come after the point of no return.
const REPLACED: &str = "The databases were already replaced; roles and settings may be only partly restored.";

/// Settings that could end our session or keep it from writing, as far as this server knows them.
const KNOWN_TIMEOUTS: &str = "SELECT coalesce(json_agg(name), '[]') FROM pg_catalog.pg_settings WHERE name IN \
    ('default_transaction_read_only', 'idle_in_transaction_session_timeout', 'idle_session_timeout', 'lock_timeout', \
    'statement_timeout', 'transaction_timeout')";

fn spared(role: &str) -> String {
    let role = name_text(role.as_bytes());
    format!("The role {role}, as which this restore is connected, keeps its attributes, its password and its settings.")
}

impl PostgresSession<'_> {
    /// Leaves the connected role unchanged: with the attributes that it had elsewhere, it might be locked out, together
    /// with everybody who could repair that.
    async fn spare_own_role(&self, globals: &mut Globals) -> Result<()> {
        if self.plan.options.no_owner {
            return Ok(());
        }
        let own = self.own_roles().await?;
        globals.spare(&own).iter().for_each(|role| self.context.log.line(spared(role.as_str())));
        Ok(())
    }

    /// Whether the server's `psql` knows the command that protects newer dumps.
    async fn knows_restrict(&self) -> bool {
        self.run("postgres", &["\\restrict holdfast\n\\unrestrict holdfast".to_owned()]).await.is_ok()
    }

    /// Prepares the databases that the dump drops: with sessions, or as templates, they would make it stop half-way.
    async fn clear_for(&self, dump: &ClusterDump, there: &BTreeSet<String>) -> Result<()> {
        let mut statements = Vec::new();
        for name in dump.dropped_databases.intersection(there) {
            let name = name_of(name)?;
            statements.push(format!("ALTER DATABASE {} IS_TEMPLATE false;", identifier(&name)));
            statements.extend(end_sessions_sql(&name));
        }
        self.run("postgres", &statements).await
    }

    fn tell(&self, globals: &Globals, wanted: &[usize], there: &BTreeSet<String>, roles: &BTreeSet<String>) {
        let verb = if self.plan.options.dry_run { "would be" } else { "will be" };
        for facts in wanted.iter().map(|index| &globals.databases[*index]) {
            let fate = if there.contains(facts.name.as_str()) { "replaced" } else { "made" };
            self.context.log.line(format!("The database {} {verb} {fate}.", facts.name));
        }
        if !self.plan.options.no_owner && !globals.roles.is_empty() {
            let new = globals.roles.iter().filter(|role| !roles.contains(role.name.as_str())).count();
            self.context.log.line(format!(
                "{new} roles {verb} made, {} {verb} set to what they were in the backup.",
                globals.roles.len()
            ));
        }
        for warning in globals.warnings() {
            self.context.log.warn(warning);
        }
    }

    /// Checks whether one database can be restored by itself; roles stay as they are then.
    async fn check_one(&self, facts: &DatabaseFacts, dump: &DumpFacts) -> Result<()> {
        let login = self.login;
        let name = facts.name.as_str();
        let there = ask_database(self.at(), login, name).await?;
        if there.is_some() && !self.plan.overwrite && self.contents(name).await?.count() > 0 {
            return Err(not_empty(&name_text(name.as_bytes())));
        }
        if self.plan.options.no_owner {
            return Ok(());
        }
        let told = facts.roles.iter().chain([&facts.owner]).map(|role| role.as_str().to_owned());
        self.check_roles(dump.owners.iter().cloned().chain(told).collect()).await
    }

    /// Warns about roles that gain rights by the restore, and about those whose password changes: the backup has them
    /// as its server reported them.
    async fn tell_gains(&self, globals: &Globals) -> Result<()> {
        if self.plan.options.no_owner {
            return Ok(());
        }
        let gains = globals.gains(&self.roles_there().await?, self.plan.options.dry_run);
        gains.into_iter().for_each(|text| self.context.log.warn(text));
        Ok(())
    }

    /// As [`Self::tell_gains`], for a dump in SQL.
    async fn tell_dump_gains(&self, dump: &ClusterDump, own: &BTreeSet<String>) -> Result<()> {
        let (there, is_dry) = (self.roles_there().await?, self.plan.options.dry_run);
        let there = by_name(&there);
        for (name, attributes) in dump.attributes.iter().filter(|(name, _)| !own.contains(*name)) {
            let before = there.get(name.as_str());
            let had = |attribute: &str| before.is_some_and(|before| before.may(attribute));
            let is_usual = |attribute: &str| before.is_none() && matches!(attribute, "LOGIN" | VALIDITY);
            let gained: Vec<&str> =
                attributes.iter().copied().filter(|attribute| !had(attribute) && !is_usual(attribute)).collect();
            let password = before.is_some() && dump.with_password.contains(name);
            let said = gain(name, &gained, before.is_none(), is_dry).into_iter();
            said.chain(password.then(|| new_password(name, is_dry))).for_each(|text| self.context.log.warn(text));
        }
        let pairs = dump.memberships.iter().map(|(role, member, _)| (role.as_str(), member.as_str()));
        let superusers = dump.attributes.iter().filter(|(_, attributes)| attributes.contains("SUPERUSER"));
        let superusers = superusers.map(|(name, _)| name.as_str());
        let gains = gained_by_membership(&there, pairs, superusers, is_dry);
        let members = dump.memberships.iter().map(|(role, member, admin)| (role.as_str(), member.as_str(), *admin));
        let members = new_memberships(&there, members, is_dry);
        gains.into_iter().chain(members).for_each(|text| self.context.log.warn(text));
        Ok(())
    }

    /// Warns about what is lost from a database that every server has and that is not restored.
    fn tell_kept(&self, name: &Name, dump: &DumpFacts) {
        if !dump.said_of_objects.is_empty() {
            let said: Vec<String> = dump.said_of_objects.iter().map(|one| name_text(one.as_bytes())).collect();
            self.context.log.warn(format!(
                "The database {name} held no objects of its own and stays as it is on the server; these rights and \
                 comments in it are not restored: {}.",
                said.join(", ")
            ));
        }
    }

    /// Databases of the backup that every server has and that stay, as described in the backup and as they are on the
    /// server. They keep their contents and their owner.
    async fn kept<'a>(
        &self,
        globals: &'a Globals,
        wanted: &[usize],
        there: &BTreeSet<String>,
    ) -> Result<Vec<(&'a DatabaseFacts, DatabaseFacts)>> {
        let mut kept = Vec::new();
        for (index, model) in globals.databases.iter().enumerate() {
            let name = model.name.as_str();
            if wanted.contains(&index) || !there.contains(name) || !model.allows_connections {
                continue;
            }
            let asking = ask_database(self.at(), self.login, name);
            kept.extend(asking.await?.map(|there| (model, there)));
        }
        Ok(kept)
    }

    /// Warns about changes to a database that stays.
    fn tell_changed(&self, model: &DatabaseFacts, there: &DatabaseFacts) {
        let with_roles = !self.plan.options.no_owner;
        let changed = changed_sql(model, there, with_roles);
        if !changed.is_empty() {
            let verb = if self.plan.options.dry_run { "would" } else { "will" };
            self.context.log.warn(format!(
                "The database {} and its owner stay; these of its properties {verb} be set as in the backup: {}",
                model.name,
                changed.join(" ")
            ));
        }
    }

    /// Creates the roles that the server does not have; returns how many there were.
    async fn make_roles(&self, globals: &Globals, there: &BTreeSet<String>) -> Result<usize> {
        let new: Vec<&Role> = globals.roles.iter().filter(|role| !there.contains(role.name.as_str())).collect();
        let create = new.iter().map(|role| sql::create_role_sql(role));
        let statements: Vec<String> = create.chain(new.iter().map(|role| sql::alter_role_sql(role))).collect();
        self.run("postgres", &statements).await?;
        Ok(new.len())
    }

    /// Restores the attributes of existing roles, and all memberships and settings.
    async fn restore_roles(&self, globals: &Globals, version: u32) -> Result<()> {
        let roles = globals.roles.iter().map(sql::alter_role_sql);
        let comments = globals.roles.iter().filter_map(sql::comment_on_role_sql);
        let memberships = globals.memberships.iter().map(|one| sql::membership_sql(one, version));
        let settings = sql::settings_sql(globals).into_iter().chain(sql::parameter_grants_sql(globals, version));
        let statements: Vec<String> = memberships.chain(settings).chain(comments).chain(roles).collect();
        self.run("postgres", &statements).await
    }

    /// Restores each dump into a fresh database, in the order of the archive.
    async fn fill_all(
        &self,
        globals: &Globals,
        wanted: &[usize],
        dumps: &[(usize, DumpFacts)],
        there: &BTreeSet<String>,
        fresh: &mut Vec<Fresh>,
    ) -> Result<RestoreReport> {
        let Self { engine, connection, plan, context, .. } = *self;
        let mut again = Vec::new();
        let mut reading = engine.read_dumps(plan, context, ROLES, listed(globals, wanted), copy).await?;
        while let Some(index) = reading.next().await {
            let facts = &globals.databases[index];
            context.log.line(format!("Restoring {}.", facts.name));
            let made = self.make_fresh(Some(facts), &facts.name, there.contains(facts.name.as_str())).await?;
            let dump = dumps.iter().find(|(other, _)| *other == index).map(|(_, dump)| dump);
            let dump = dump.ok_or_else(|| EngineError::internal("a dump that was not described"))?;
            let place = fresh.len();
            fresh.push(made);
            let script = self.restore_script(&fresh[place].fresh, dump.has_event_triggers(), &[]).await?;
            let login = postgres::login_lines(self.login);
            let fed = engine.feed_dump(connection, &script, login, &mut reading, context).await?;
            if fed.exit.success() || dump.derived == 0 {
                self.judge(&fed.exit, &fed.lines)?;
            } else {
                again.push((index, place, dump, fed.lines));
            }
        }
        let report = RestoreReport { plain_bytes: reading.finish().await?, ..RestoreReport::default() };
        for (index, place, dump, lines) in again {
            Box::pin(self.fill_again(globals, index, &fresh[place], dump, &lines)).await?;
        }
        Ok(report)
    }

    /// Restores one dump once more, first without what is derived from its rows, then the derived part by itself.
    async fn fill_again(
        &self,
        globals: &Globals,
        index: usize,
        made: &Fresh,
        dump: &DumpFacts,
        lines: &[String],
    ) -> Result<()> {
        let Self { engine, connection, plan, context, .. } = *self;
        self.begin_again(made, lines).await?;
        let (count, taken_out) = (dump.taken_out, Arc::new(Mutex::new(None)));
        let keeping = taken_out.clone();
        let passing = move |_: &str, dump: &mut dyn io::Read, out: &mut dyn io::Write| {
            let found = split(dump, count, out)?;
            *keeping.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            Ok(())
        };
        let mut reading = engine.read_dumps(plan, context, ROLES, listed(globals, &[index]), passing).await?;
        if reading.next().await.is_none() {
            return reading.finish().await.and(Err(EngineError::internal("a dump that is not there any more")));
        }
        let script = self.restore_script(&made.fresh, false, &[STRICTLY]).await?;
        let login = postgres::login_lines(self.login);
        let fed = engine.feed_dump(connection, &script, login, &mut reading, context).await?;
        self.judge(&fed.exit, &fed.lines)?;
        reading.finish().await?;
        let taken_out = taken_out.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken_out = taken_out.ok_or_else(|| EngineError::internal("a dump that was not split"))?;
        self.make_derived(made, dump, &taken_out).await
    }
}

/// The dumps of a server's archive, with the wanted ones marked.
fn listed(globals: &Globals, wanted: &[usize]) -> Vec<Dump> {
    let dumps = globals.databases.iter().enumerate().map(|(index, facts)| Dump {
        index,
        name: facts.name.as_str().to_owned(),
        is_wanted: wanted.contains(&index),
    });
    dumps.collect()
}
