//! Routines, triggers, views and events that a backup holds as data, back into a database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_core::backup::name_text;
use holdfast_core::random;
use holdfast_core::run::FailureCode;
use holdfast_core::task::DatabaseEngine;
use tokio_util::sync::CancellationToken;

use super::mysql::{CLIENT, LACKS_RIGHTS, Session, name_beside};
use super::mysql_warnings::{NAMED, left_events};
use super::postgres::CLEANING_UP;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::definitions::{Definition, Kind, takes_prepared};
use crate::mysql::rewriting::{Found, Tables};
use crate::mysql::{Call, View, is_copy, quoted};
use crate::remote;
use crate::source::database::{MYSQL_CLIENT, mysql, mysql_text, unhex};
use crate::ssh::Exit;

/// A database that gets definitions.
pub(super) struct DefinitionPlace<'a> {
    pub name: &'a str,
    /// The one that was backed up, if it has another name.
    pub old_name: Option<&'a str>,
    /// Whether it only stands beside the real one for a while.
    pub is_copy: bool,
}

/// What the dumps of an archive hold, by the name of the database. They are read by a thread that is ahead.
#[derive(Clone, Default)]
pub(super) struct FoundByName(Arc<Mutex<BTreeMap<String, (Found, Tables)>>>);

impl FoundByName {
    pub(super) fn of(&self, name: &str) -> (Found, Tables) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default().clone()
    }
}

/// What a database gets, one after the other.
#[derive(Default)]
pub(super) struct Definitions {
    /// Triggers among them: nothing of these runs by itself.
    pub routines: Vec<Definition>,
    pub views: Vec<View>,
    pub events: Vec<Definition>,
}

/// Views that could not be made, and what the client said last.
pub(super) struct Missing<'a> {
    views: Vec<&'a View>,
    errors: Vec<String>,
}

impl Session<'_> {
    /// What a backup holds, for a database; `old_name` is the one that was backed up, if it is another.
    pub(super) fn fitted(&self, found: &[Definition], place: &DefinitionPlace<'_>) -> Result<Definitions> {
        let mut fitted = Definitions::default();
        for definition in found.iter().cloned() {
            let shown = shown(&definition);
            let moved = match place.old_name {
                Some(old) => definition.moved(old, place.name),
                None => Some(definition),
            };
            let Some(definition) = moved else {
                if place.is_copy {
                    self.context.log.line(format!("The {shown} is not tried in the copy: its text is unclear."));
                    continue;
                }
                let message = format!(
                    "The {shown} may name the database that it was made in, in a way that is unclear. Restore the database \
                     under the name that it had."
                );
                return Err(EngineError::new(FailureCode::HostileArchive, message));
            };
            let is_without = self.plan.options.no_owner && definition.kind != Kind::View;
            let definition = if is_without { definition.without_definer() } else { definition };
            match definition.kind {
                Kind::View => fitted.views.push(definition.view(place.name.to_owned())),
                Kind::Event => fitted.events.push(definition),
                _ => fitted.routines.push(definition),
            }
        }
        Ok(fitted)
    }

    /// Makes routines, triggers or events in a database. The first that fails ends it, but for triggers that name columns
    /// which are gone: those were of no use before either.
    pub(super) async fn make(&self, name: &str, definitions: &[Definition]) -> Result<()> {
        let mut rest = definitions;
        loop {
            let Err((failed, error)) = self.make_all(name, rest).await else { return Ok(()) };
            let broken = failed.and_then(|index| rest.get(index).map(|broken| (index, broken)));
            match broken {
                Some((index, broken)) if broken.kind == Kind::Trigger && error.message.contains("ERROR 1054 ") => {
                    if !is_copy(name) {
                        let name = name_text(name.as_bytes());
                        self.context.log.warn(format!("{name}: {} It was left out.", error.message));
                    }
                    rest = &rest[index + 1..];
                }
                _ => return Err(error),
            }
        }
    }

    async fn make_all(
        &self,
        name: &str,
        definitions: &[Definition],
    ) -> std::result::Result<(), (Option<usize>, EngineError)> {
        if definitions.is_empty() {
            return Ok(());
        }
        let plain = |error: EngineError| (None, error);
        let version = self.query("SELECT VERSION()").await.map_err(plain)?;
        let is_prepared = takes_prepared(&version);
        let sql: Vec<u8> = if is_prepared {
            definitions.iter().flat_map(|definition| definition.line().into_bytes()).collect()
        } else {
            let delimiter = format!("~{}", random::hex(&random::bytes::<7>()));
            let delimited = |one: &Definition| {
                let fitting = one.clone().for_version(&version);
                fitting
                    .delimited(&delimiter)
                    .map_err(|error| EngineError::new(error.code, format!("The {}: {}", shown(one), error.message)))
            };
            definitions.iter().map(delimited).collect::<Result<Vec<_>>>().map_err(plain)?.concat()
        };
        let answer = self.run(Some(name), &sql, false).await.map_err(plain)?;
        self.judge(&answer.exit, &answer.stderr).map_err(|error| {
            // Each has a line of its own, and the client names the line.
            let line =
                answer.stderr.iter().find_map(|line| line.split_once(" at line ")?.1.split(':').next()?.parse().ok());
            let index = line.and_then(|line: usize| line.checked_sub(1)).filter(|_| is_prepared);
            let Some(failed) = index.and_then(|index| definitions.get(index)) else { return (None, error) };
            let message = format!("The {} could not be made. {}", shown(failed), error.message);
            (index, EngineError::new(error.code, message))
        })
    }

    /// Makes events, which run by themselves from then on. Without owners they would do so with the rights of whoever
    /// restores.
    pub(super) async fn make_events(&self, name: &str, events: &[Definition]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        if self.plan.options.no_owner {
            self.context.log.warn(left_events(events.len()));
            return Ok(());
        }
        self.make(name, events).await?;
        let sql =
            format!("SELECT HEX(event_name) FROM information_schema.events WHERE event_schema = {}", mysql_text(name));
        let there = self.names(&sql).await?;
        let passed: Vec<String> = events
            .iter()
            .filter(|event| !there.contains(&event.name))
            .map(|event| name_text(event.name.as_bytes()))
            .collect();
        if !passed.is_empty() {
            self.context.log.warn(format!(
                "The time of these events has passed, so the server did not make them: {}.",
                passed.join(", ")
            ));
        }
        Ok(())
    }

    /// Makes everything in a copy, which shows that it can be made. Events do not run there.
    pub(super) async fn make_in_copy(&self, copy: &str, found: &[Definition], old_name: &str) -> Result<Definitions> {
        let place = DefinitionPlace { name: copy, old_name: Some(old_name), is_copy: true };
        let mut fitted = self.fitted(found, &place)?;
        self.make(copy, &fitted.routines).await?;
        fitted.events = fitted.events.into_iter().map(Definition::disabled).collect();
        if !self.plan.options.no_owner {
            self.make(copy, &fitted.events).await?;
        }
        Ok(fitted)
    }

    /// Makes views where they belong. `has_rights` says that users and privileges are as they were, so that a view whose
    /// definer may not read was of no use before either.
    pub(super) async fn make_views(&self, views: Vec<&View>, has_rights: bool) -> Result<()> {
        let missing = self.try_making(views).await?;
        self.judge_views(&missing, has_rights)
    }

    /// Makes views in a copy, which shows that they can be made. Rights belong to the name of a database: whoever a view
    /// runs as may have rights to the database and none to the copy. Then the copy does without it, when they are known to
    /// have rights where the view will be in the end.
    pub(super) async fn prove_views(&self, name: &str, is_there: bool, fitted: &Definitions) -> Result<()> {
        let missing = self.try_making(fitted.views.iter().collect()).await?;
        let Err(error) = self.judge_views(&missing, false) else { return Ok(()) };
        if missing.errors.iter().any(|line| !is_one_of(line, &[&GONE, &LACKS_RIGHTS])) {
            return Err(error);
        }
        // A database that is not there yet cannot be tried; it is taken away again when it turns out that they have none.
        if is_there { self.try_definers(name, fitted, error).await } else { Ok(()) }
    }

    /// Whether those whom views and functions run as have rights to a database.
    async fn try_definers(&self, name: &str, fitted: &Definitions, error: EngineError) -> Result<()> {
        self.context.log.line("A view runs as a user without rights to the copy, which does without it.");
        let functions = || fitted.routines.iter().filter(|routine| routine.kind == Kind::Function);
        let of_functions = functions().filter_map(|function| function.definer().map(<[u8]>::to_vec));
        let of_views = fitted.views.iter().filter_map(View::parts).map(|view| view.definer);
        let definers: BTreeSet<Vec<u8>> = of_functions.chain(of_views).collect();
        for definer in definers {
            let definer = String::from_utf8_lossy(&definer).into_owned();
            self.try_views(name, &definer, functions().next().is_some()).await.map_err(|refused| {
                let is_theirs = refused.message.contains("ERROR ");
                if is_theirs { EngineError::new(error.code, error.message.clone()) } else { refused }
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

    /// One view may read from another, so those that cannot be made yet are tried again as long as any can. Each database
    /// has a session of its own: whatever becomes of it, its views are made in no other.
    async fn try_making<'v>(&self, views: Vec<&'v View>) -> Result<Missing<'v>> {
        let (views, functions) = self.without_callers(views).await?;
        self.run_as(&functions, "DEFINER").await?;
        let made = self.try_making_each(views).await;
        self.run_as(&functions, "INVOKER").await?;
        made
    }

    /// To make a view, the server may run functions that it calls, and some functions run with the rights of whoever calls
    /// them. Gives those that must run as their owners meanwhile, and leaves out views for which that cannot be done.
    async fn without_callers<'v>(&self, views: Vec<&'v View>) -> Result<(Vec<&'v View>, Vec<String>)> {
        let is_calling = |view: &&View| view.calls().is_none_or(|calls| !calls.is_empty());
        // Without owners everything here belongs to whoever makes it.
        if self.plan.options.no_owner || !views.iter().any(is_calling) {
            return Ok((views, Vec::new()));
        }
        let databases: BTreeSet<&str> = views.iter().map(|view| view.database.as_str()).collect();
        let rights = "SELECT CONCAT(HEX(routine_schema), ' ', HEX(routine_name), ' ', routine_type) FROM \
            information_schema.routines WHERE security_type = 'INVOKER'";
        let (mut functions, mut elsewhere, mut packages) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server did not say what routines it has.");
        for line in self.query(rights).await?.lines() {
            let mut words = line.splitn(3, ' ');
            let mut word = || words.next().ok_or_else(unclear);
            let (schema, name) = (unhex(word()?).ok_or_else(unclear)?, unhex(word()?).ok_or_else(unclear)?);
            match word()? {
                "FUNCTION" if databases.contains(schema.as_str()) => {
                    functions.push(format!("{}.{}", quoted(&schema), quoted(&name)));
                }
                "FUNCTION" => drop(elsewhere.insert(schema)),
                _ => drop(packages.insert(schema)),
            }
        }
        let is_safe = |call: &Call| match call {
            Call::Own => true,
            Call::Of(name) => !elsewhere.contains(name),
            Call::OfPackage(name) => !packages.contains(name),
        };
        let (kept, left): (Vec<&View>, Vec<&View>) =
            views.iter().partition(|view| view.calls().is_some_and(|calls| calls.iter().all(is_safe)));
        if !left.is_empty() && left.iter().all(|view| !is_copy(&view.database)) {
            let names = left.iter().map(|view| name_text(format!("{}.{}", view.database, view.name).as_bytes()));
            self.context.log.warn(format!(
                "These views call functions that run as whoever calls them (SQL SECURITY INVOKER), of a package or of another \
                 database, and so would run them with the rights of the database user of this restore. They were left out; \
                 they are in the backup: {}.",
                names.take(NAMED).collect::<Vec<_>>().join(", ")
            ));
        }
        Ok((kept, functions))
    }

    async fn run_as(&self, functions: &[String], whom: &str) -> Result<()> {
        let sql: String =
            functions.iter().map(|function| format!("ALTER FUNCTION {function} SQL SECURITY {whom};\n")).collect();
        if sql.is_empty() {
            return Ok(());
        }
        // Also when somebody stopped the run.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = Session { context: &context, ..*self };
        let answer = session.run(None, sql.as_bytes(), false).await?;
        session.judge(&answer.exit, &answer.stderr)
    }

    async fn try_making_each<'v>(&self, mut views: Vec<&'v View>) -> Result<Missing<'v>> {
        let mut errors = Vec::new();
        // To make a view takes no time, unless it calls a function that does.
        let seconds = self.engine.settings.remote.answer.as_secs().max(1);
        let limit = format!("SET SESSION sql_quote_show_create=1 /*M!100101 , max_statement_time={seconds} */;\n");
        while !views.is_empty() {
            errors.clear();
            let databases: BTreeSet<&str> = views.iter().map(|view| view.database.as_str()).collect();
            for database in databases {
                let here = views.iter().filter(|view| view.database == database);
                let sql = here.map(|view| view.sql(!self.plan.options.no_owner));
                let sql: String = [limit.clone()].into_iter().chain(sql).collect();
                errors.extend(self.run(Some(database), sql.as_bytes(), true).await?.stderr);
            }
            let there = self.view_names().await?;
            let before = views.len();
            views.retain(|view| !there.has(view));
            if views.len() == before {
                break;
            }
        }
        if views.is_empty() {
            errors.clear();
        }
        // What follows from a statement that could not be prepared says nothing.
        errors.retain(|line| line.starts_with("ERROR") && !line.starts_with("ERROR 1243 "));
        Ok(Missing { views, errors })
    }

    /// A view of something that is gone was of no use before either; whatever else keeps one away is an error.
    fn judge_views(&self, missing: &Missing<'_>, has_rights: bool) -> Result<()> {
        let Missing { views, errors } = missing;
        if views.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = views.iter().map(|view| format!("{}.{}", view.database, view.name)).collect();
        let names: Vec<String> = names.iter().take(NAMED).map(|name| name_text(name.as_bytes())).collect();
        let count = if let [_] = views[..] { "1 view".to_owned() } else { format!("{} views", views.len()) };
        let said = format!("{count} could not be made: {}.", names.join(", "));
        let is_as_before = has_rights || self.plan.options.no_owner;
        let is_gone = |line: &String| is_one_of(line, &[&GONE]) || is_as_before && is_one_of(line, &[&LACKS_RIGHTS]);
        if !errors.is_empty() && errors.iter().all(is_gone) {
            // Of a copy, the same is told again for the database itself.
            if views.iter().all(|view| !is_copy(&view.database)) {
                errors.iter().for_each(|line| self.context.log.line(line));
                self.context
                    .log
                    .warn(format!("{said} Something that they read from is not there, or not for everybody."));
            }
            return Ok(());
        }
        let failed = Exit { status: Some(1), signal: None };
        self.judge(&failed, errors).map_err(|error| EngineError::new(error.code, format!("{said} {}", error.message)))
    }

    /// Runs statements in a database, up to the first that fails or all of them.
    pub(super) async fn run(&self, database: Option<&str>, sql: &[u8], goes_on: bool) -> Result<remote::Answer> {
        let force = if goes_on { " --force" } else { "" };
        let script = match database {
            Some(name) => mysql(MYSQL_CLIENT, &format!("{CLIENT}{force} --database=\"$1\""), "3", &[name]),
            None => mysql(MYSQL_CLIENT, &format!("{CLIENT}{force}"), "3", &[]),
        };
        let input = [self.login.lines(DatabaseEngine::Mysql).as_bytes(), sql].concat();
        let own = &self.engine.settings.remote;
        let settings = remote::RemoteSettings { answer: own.finish, ..own.clone() };
        remote::ask_bytes(self.connection, &settings, self.context, &script, &input).await
    }

    async fn view_names(&self) -> Result<ViewNames> {
        let sql = "SELECT @@lower_case_table_names; SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM \
            information_schema.views";
        let answer = self.query(sql).await?;
        let is_folded = answer.lines().next().is_some_and(|line| line != "0");
        let parse = |line: &str| {
            let (schema, name) = line.split_once(' ')?;
            Some(folded(&unhex(schema)?, &unhex(name)?, is_folded))
        };
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server did not say what views it has.");
        let names = answer.lines().skip(1).map(|line| parse(line).ok_or_else(unclear)).collect::<Result<_>>()?;
        Ok(ViewNames { names, is_folded })
    }
}

/// How the client begins to say that there is no such table, column or routine.
const GONE: [&str; 3] = ["ERROR 1146 ", "ERROR 1054 ", "ERROR 1305 "];

fn is_one_of(line: &str, codes: &[&[&str]]) -> bool {
    codes.iter().any(|codes| codes.iter().any(|code| line.starts_with(code)))
}

/// One of them, for people.
fn shown(definition: &Definition) -> String {
    format!("{} {}", definition.kind.words().to_ascii_lowercase(), name_text(definition.name.as_bytes()))
}

/// The views of a server.
struct ViewNames {
    names: BTreeSet<(String, String)>,
    /// Whether names that differ by case are the same.
    is_folded: bool,
}

impl ViewNames {
    fn has(&self, view: &View) -> bool {
        self.names.contains(&folded(&view.database, &view.name, self.is_folded))
    }
}

fn folded(schema: &str, name: &str, is_folded: bool) -> (String, String) {
    let fold = |text: &str| if is_folded { text.to_lowercase() } else { text.to_owned() };
    (fold(schema), fold(name))
}
