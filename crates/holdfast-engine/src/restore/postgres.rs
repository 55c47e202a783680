//! Restores dumps into PostgreSQL. Everything is restored into fresh databases beside the existing ones; names are
//! swapped at the end, in one transaction.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use holdfast_core::backup::name_text;
use holdfast_core::run::FailureCode;
use tokio_util::sync::CancellationToken;

use super::database_messages::not_empty;
use super::feed::{Fed, Feeding};
use crate::Engine;
use crate::archive::pgdump::split::split;
use crate::context::Context;
use crate::error::{EngineError, Result, classify};
use crate::plan::{RestorePlan, RestoreReport};
use crate::postgres::contents::Contents;
use crate::postgres::globals::sql::{create_database_sql, finish_database_sql, finish_existing_sql};
use crate::postgres::globals::{DatabaseFacts, Guarded, Name};
use crate::postgres::quoting::{identifier, text};
use crate::postgres::{DumpFacts, Own, describe_dump};
use crate::remote::{self, Remote, Script, ended};
use crate::source::database::{self, Login};
use crate::source::postgres::{self, PSQL, pg_name, postgres};
use crate::source::postgres_server::ask_database;
use crate::ssh::Connection;

/// The dump is read by `pg_restore`, which unlike `psql` has no commands of its own that a dump could contain.
/// Tablespaces are folders on a server, which another server need not have.
const RESTORE: &str = "command -v pg_restore >/dev/null 2>&1 || exit 98\n\
    d=$1; shift\n[ -z \"$1\" ] || { PGOPTIONS=\"${PGOPTIONS-} $1\"; export PGOPTIONS; }\nshift\nexec pg_restore --no-password --no-tablespaces --dbname=\"$d\" \"$@\"";

/// Selects the subscriptions of a database.
const SUBSCRIPTIONS: &str = "SELECT coalesce(pg_catalog.json_agg(s.subname), '[]') FROM pg_catalog.pg_subscription s JOIN \
    pg_catalog.pg_database d ON d.oid = s.subdbid WHERE d.datname = pg_catalog.current_database()";

/// Makes `pg_restore` stop at the first statement that fails.
pub(super) const STRICTLY: &str = "--exit-on-error";

/// How long removing what a failed restore created may take.
pub(super) const CLEANING_UP: Duration = Duration::from_secs(20);

/// One restore into a server: how to reach it, and which user to connect as.
pub(super) struct Session<'a> {
    pub engine: &'a Engine,
    pub connection: &'a Connection,
    pub plan: &'a RestorePlan,
    pub login: &'a Login,
    pub context: &'a Context,
}

/// A database that is restored under a temporary name, and the name that it is for.
pub(super) struct Fresh {
    pub fresh: Name,
    pub target: Name,
    pub replaces: bool,
    /// Whether the replaced database was empty, and must not be dropped if it holds something by now.
    pub was_empty: bool,
    /// The connection limit that it gets together with its name, if nobody may connect before.
    pub limit: Option<i32>,
    /// The statements that created it, and the database that they were run in.
    pub made_by: (&'static str, Vec<String>),
}

/// Added to the statement that creates a database, so that only superusers can connect to it: nobody can read its
/// contents before its rights are set, or create something in it that the restore would run.
pub(super) const CLOSED: &str = " CONNECTION LIMIT 0";

impl Engine {
    pub(crate) async fn restore_postgres(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        name: &str,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = Session { engine: self, connection, plan, login, context };
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
        // Also if an empty database is filled: a copy may take its place.
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
                (None, _) => format!("The database {name} would be made."),
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

impl Session<'_> {
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

    /// Fails if the copy of an empty database is not empty.
    async fn check_empty(&self, made: &Fresh) -> Result<()> {
        match self.contents(made.fresh.as_str()).await?.count() {
            0 => Ok(()),
            _ => Err(not_empty(&name_text(made.target.as_str().as_bytes()))),
        }
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

    /// Describes an error that occurred while fresh databases were filled. This changes nothing else, unless a dump
    /// does so itself.
    pub(super) async fn not_filled(&self, error: &EngineError, made: &[Fresh]) -> EngineError {
        // Runs even if the run was cancelled.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = Session { context: &context, ..*self };
        let asking = session.names("SELECT json_agg(datname) FROM pg_catalog.pg_database");
        let Ok(Ok(there)) = tokio::time::timeout(CLEANING_UP, asking).await else {
            return with_note(error, "It could not be checked whether the databases are unchanged.");
        };
        let gone = made.iter().filter(|one| one.replaces && !there.contains(one.target.as_str()));
        let gone: Vec<String> = gone.map(|one| name_text(one.target.as_str().as_bytes())).collect();
        if gone.is_empty() {
            return with_note(error, UNCHANGED);
        }
        let note =
            format!("These databases are gone by now, dropped by the dump or somebody else: {}.", gone.join(", "));
        with_note(error, &note)
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

pub(super) fn name_of(name: &str) -> Result<Name> {
    Name::try_from(name.to_owned()).map_err(|text| EngineError::new(FailureCode::DatabaseMissing, text))
}

fn is_closed(name: &Name) -> EngineError {
    let open = format!("ALTER DATABASE {} ALLOW_CONNECTIONS true;", identifier(name));
    let message = format!(
        "The database {name} accepts no connections, so nobody can tell what is in it; nothing was changed. To open it: \
         {open}"
    );
    EngineError::new(FailureCode::RemoteFailed, message)
}

/// For errors that come before any database has changed.
pub(super) const UNCHANGED: &str = "No database was changed.";

/// Adds to an error what the user must know about how far the restore got.
pub(super) fn with_note(error: &EngineError, note: &str) -> EngineError {
    let message = error.message.trim_end();
    let stop = if message.ends_with(['.', '!', '?']) { "" } else { "." };
    EngineError::new(error.code, format!("{message}{stop} {note}"))
}

fn spared_settings(role: &Name) -> String {
    format!("The settings of the role {role}, as which this restore is connected, were not restored.")
}

impl Session<'_> {
    pub(super) fn at(&self) -> Remote<'_> {
        Remote { connection: self.connection, settings: &self.engine.settings.remote, context: self.context }
    }

    /// Runs one query and returns its answer as text. It must not contain secrets: it is an argument of a process.
    pub(super) async fn query(&self, database: &str, sql: &str) -> Result<String> {
        let answer = postgres::query(self.at(), self.login, database, sql).await?;
        let answer = database::answered(answer, "psql", self.context)?;
        Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
    }

    /// Runs our own statements one after the other, up to the first that fails. They are sent on standard input.
    pub(super) async fn run(&self, database: &str, statements: &[String]) -> Result<()> {
        if statements.is_empty() {
            return Ok(());
        }
        // Statements that have arrived are run to the end, even if nobody is left to receive an error.
        let script = "PGCLIENTENCODING=UTF8; export PGCLIENTENCODING; trap '' HUP PIPE";
        let script = format!("{script}\n{PSQL} --set=ON_ERROR_STOP=1 --file=-");
        let script = postgres(&script, &[&pg_name(database)]);
        let input = format!("{}{}\n", postgres::login_lines(self.login), statements.join("\n"));
        let settings = remote::RemoteSettings {
            answer: self.engine.settings.remote.finish,
            ..self.engine.settings.remote.clone()
        };
        let answer = remote::ask(self.connection, &settings, self.context, &script, &input).await?;
        if !answer.exit.success() {
            return Err(database::explain("psql", &answer.exit, &answer.stderr, self.context));
        }
        // A setting that this server refuses is a warning; its notices are ignored.
        let warnings = answer.stderr.iter().filter_map(|line| line.split_once("WARNING:  "));
        warnings.for_each(|(_, text)| self.context.log.warn(text));
        Ok(())
    }

    pub(super) async fn names(&self, sql: &str) -> Result<BTreeSet<String>> {
        let told = self.query("postgres", sql).await?;
        serde_json::from_str(&told).map_err(EngineError::internal)
    }

    /// The roles that this restore is connected as, and acts as.
    pub(super) async fn own_roles(&self) -> Result<BTreeSet<String>> {
        self.names("SELECT json_build_array(session_user, current_user)").await
    }

    /// Settings of extensions that not everybody may change on this server.
    pub(super) async fn guarded(&self) -> Result<Guarded> {
        self.names(Guarded::QUERY).await.map(Guarded::new)
    }

    pub(super) async fn version(&self) -> Result<u32> {
        let told = self.query("postgres", "SHOW server_version_num").await?;
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server did not say which version it is.");
        told.parse().map_err(|_| unclear())
    }

    /// Fails before anything starts if owners are missing, and names them.
    pub(super) async fn check_roles(&self, needed: BTreeSet<String>) -> Result<()> {
        let sql = "SELECT coalesce(json_agg(rolname), '[]') FROM pg_roles";
        let told = self.query("postgres", sql).await?;
        let there: BTreeSet<String> = serde_json::from_str(&told).map_err(EngineError::internal)?;
        let missing: Vec<&str> = needed.difference(&there).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("This server has no roles named {}; nothing was changed.", missing.join(", "));
        Err(EngineError::new(FailureCode::RolesMissing, message))
    }

    pub(super) async fn is_superuser(&self) -> Result<bool> {
        let sql = "SELECT count(*) FROM pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper";
        Ok(self.query("postgres", sql).await? == "1")
    }

    /// Creates an empty database like the one that was backed up, to take the place of `target`.
    pub(super) async fn make_fresh(
        &self,
        model: Option<&DatabaseFacts>,
        target: &Name,
        replaces: bool,
    ) -> Result<Fresh> {
        let closed = if self.is_superuser().await? { CLOSED } else { "" };
        let limit = model.map_or(-1, |model| model.connection_limit);
        let limit = Some(limit).filter(|_| !closed.is_empty());
        let (fresh, statement) = self.make_empty(model, closed).await?;
        let was_empty = replaces && !self.plan.overwrite;
        let made_by = ("postgres", vec![statement]);
        Ok(Fresh { fresh, target: target.clone(), replaces, was_empty, limit, made_by })
    }

    /// Creates a fresh database once more, to replace one that was partly filled.
    async fn make_again(&self, made: &Fresh) -> Result<()> {
        let (from, statements) = &made.made_by;
        self.drop_fresh(&made.fresh).await?;
        self.run(from, statements).await?;
        if made.was_empty { self.check_empty(made).await } else { Ok(()) }
    }

    /// Copies an empty database, with everything from its template and its extensions, to be filled in its place. In
    /// the original, the owner could at any time create something that the restore would run as a superuser.
    async fn copy_empty(&self, there: &DatabaseFacts) -> Result<Fresh> {
        let fresh = name_of(&Own::Fresh.new_name())?;
        let (copy, name) = (identifier(&fresh), identifier(&there.name));
        let from = if there.name.as_str() == "postgres" { "template1" } else { "postgres" };
        let mut statements: Vec<String> = end_sessions_sql(&there.name).into();
        statements.push(format!("CREATE DATABASE {copy} TEMPLATE {name}{CLOSED};"));
        self.run(from, &statements).await?;
        let limit = Some(there.connection_limit);
        let made_by = (from, statements);
        Ok(Fresh { fresh, target: there.name.clone(), replaces: true, was_empty: true, limit, made_by })
    }

    /// Creates an empty database; returns its name and the statement that created it.
    async fn make_empty(&self, model: Option<&DatabaseFacts>, closed: &str) -> Result<(Name, String)> {
        let fresh = name_of(&Own::Fresh.new_name())?;
        let plain = format!("CREATE DATABASE {} TEMPLATE template0{closed};", identifier(&fresh));
        let Some(model) = model else {
            self.run("postgres", std::slice::from_ref(&plain)).await?;
            return Ok((fresh, plain));
        };
        let like_it = create_database_sql(model, &fresh, self.version().await?);
        let made = match like_it {
            Ok(sql) => {
                let sql = format!("{}{closed};", sql.trim_end_matches(';'));
                let made = self.run("postgres", std::slice::from_ref(&sql)).await;
                made.map(|()| sql).map_err(|error| error.message)
            }
            Err(reason) => Err(reason),
        };
        match made {
            Ok(sql) => Ok((fresh, sql)),
            Err(reason) => {
                // A missing locale must not keep anybody from their data.
                self.context
                    .log
                    .warn(format!("The database cannot be made as it was ({reason}); it gets this server's locale."));
                let encoding = text(model.encoding.as_str());
                let plain =
                    format!("CREATE DATABASE {} TEMPLATE template0 ENCODING {encoding}{closed};", identifier(&fresh));
                self.run("postgres", std::slice::from_ref(&plain)).await?;
                Ok((fresh, plain))
            }
        }
    }

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

    /// Logs that a dump is restored once more, and creates a fresh database for it.
    pub(super) async fn begin_again(&self, made: &Fresh, lines: &[String]) -> Result<()> {
        const SHOWN: usize = 40;
        let log = &self.context.log;
        log.line(format!(
            "Not everything of {} could be restored at once. It is restored again, and what only follows from its rows \
             (indexes and contents of materialized views) apart from the rest. What the server said:",
            made.target
        ));
        lines.iter().take(SHOWN).for_each(|line| log.line(line));
        self.make_again(made).await
    }

    pub(crate) async fn restore_script(
        &self,
        database: &Name,
        has_event_triggers: bool,
        more: &[&str],
    ) -> Result<Script> {
        let (name, options) = (pg_name(database.as_str()), self.options(database.as_str(), has_event_triggers).await?);
        let mut words = vec![name.as_str(), options.as_str()];
        words.extend(more);
        if self.plan.options.no_owner {
            words.extend(["--no-owner", "--no-privileges"]);
        }
        Ok(postgres(RESTORE, &words))
    }

    /// Options that turn off what would end `pg_restore` or keep it from writing in sessions of this role and this
    /// database, as far as it does not do so itself; mostly none. Connection poolers accept no options.
    async fn options(&self, database: &str, has_event_triggers: bool) -> Result<String> {
        const HURTING: &str = "SELECT coalesce(pg_catalog.string_agg('-c ' || name || '=0', ' '), '') FROM \
            pg_catalog.pg_settings WHERE name IN ('default_transaction_read_only', 'idle_session_timeout', \
            'transaction_timeout') AND reset_val NOT IN ('0', 'off')";
        // Materialized views are filled after event triggers were created, and a trigger that refuses this would end
        // the restore. Only users who may create event triggers may turn them off; from version 17 on, there is a
        // setting just for them.
        const EVENT_TRIGGERS: &str = "SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_settings WHERE name = \
            'event_triggers') THEN '-c event_triggers=off' ELSE '-c session_replication_role=replica' END FROM \
            pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper";
        let mut options = self.query(database, HURTING).await?;
        if has_event_triggers {
            options = format!("{options} {}", self.query(database, EVENT_TRIGGERS).await?);
        }
        Ok(options.trim().to_owned())
    }

    pub(super) fn judge(&self, exit: &crate::ssh::Exit, lines: &[String]) -> Result<()> {
        if exit.success() {
            lines.iter().for_each(|line| self.context.log.warn(line));
            return Ok(());
        }
        let missing = lines.iter().find(|line| line.contains("role \"") && line.contains("does not exist"));
        match missing {
            Some(line) => {
                lines.iter().for_each(|line| self.context.log.line(line));
                Err(EngineError::new(FailureCode::RolesMissing, format!("pg_restore {}: {line}", ended(exit))))
            }
            None => Err(database::explain("pg_restore", exit, lines, self.context)),
        }
    }

    /// Restores owner, rights, settings and limits of the original. If nobody may connect yet, the connection limit is
    /// set together with the name.
    pub(super) async fn finish(&self, model: &DatabaseFacts, made: &Fresh, with_roles: bool) -> Result<()> {
        let limit = if made.limit.is_some() { -1 } else { model.connection_limit };
        let model = DatabaseFacts { connection_limit: limit, ..model.clone() };
        self.run("postgres", &finish_database_sql(&model, &made.fresh, with_roles)).await
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

    /// Drops a database that this restore made itself.
    async fn drop_fresh(&self, name: &Name) -> Result<()> {
        let _may_be_none = self.run("postgres", &[template_sql(name)]).await;
        // A database with subscriptions cannot be dropped. Their publications and slots are not touched.
        let subscriptions = self.query(name.as_str(), SUBSCRIPTIONS).await.unwrap_or_default();
        let subscriptions: Vec<String> = serde_json::from_str(&subscriptions).unwrap_or_default();
        for subscription in &subscriptions {
            let subscription = identifier(&name_of(subscription)?);
            let away =
                ["DISABLE", "SET (slot_name = NONE)"].map(|what| format!("ALTER SUBSCRIPTION {subscription} {what};"));
            let away: Vec<String> = away.into_iter().chain([format!("DROP SUBSCRIPTION {subscription};")]).collect();
            self.run(name.as_str(), &away).await?;
        }
        let away: Vec<String> = end_sessions_sql(name).into_iter().chain([drop_sql(name)]).collect();
        self.run("postgres", &away).await
    }

    /// Drops a database that this restore created itself, and warns if that fails.
    pub(super) async fn drop_own(&self, name: &Name) {
        // Runs even if the run was cancelled, unless the server takes too long.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = Session { context: &context, ..*self };
        if !matches!(tokio::time::timeout(CLEANING_UP, session.drop_fresh(name)).await, Ok(Ok(()))) {
            context.log.warn(format!("The database {name} was left behind on the server."));
        }
    }
}

pub(super) fn template_sql(name: &Name) -> String {
    format!("ALTER DATABASE {} IS_TEMPLATE false;", identifier(name))
}

pub(super) fn drop_sql(name: &Name) -> String {
    format!("DROP DATABASE IF EXISTS {};", identifier(name))
}

/// Ends the sessions of a database, and waits until they have ended.
pub(super) fn end_sessions_sql(name: &Name) -> [String; 2] {
    let name = text(name.as_str());
    let waiting = format!(
        "BEGIN FOR i IN 1..100 LOOP PERFORM pg_stat_clear_snapshot(); \
         EXIT WHEN NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = {name}); PERFORM pg_sleep(0.1); \
         END LOOP; END"
    );
    [
        format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {name} AND pid <> pg_backend_pid();"
        ),
        format!("DO {};", text(&waiting)),
    ]
}
