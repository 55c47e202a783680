//! Puts restored PostgreSQL databases in the place of existing ones, all of them or none.

use std::collections::BTreeSet;

use holdfast_core::failure::FailureCode;
use tokio_util::sync::CancellationToken;

use super::postgres_fresh::{CLOSED, Fresh};
use super::postgres_session::{
    PostgresSession, UNCHANGED, drop_sql, end_sessions_sql, name_of, template_sql, with_note,
};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::postgres::Own;
use crate::postgres::globals::Name;
use crate::postgres::quoting::{identifier, text};

/// What is known after the session that swaps names has failed.
enum Outcome {
    Swapped,
    NotSwapped,
    Unknown,
}

impl PostgresSession<'_> {
    /// Puts fresh databases in the place of existing ones; the old ones are dropped last. An error tells the state of
    /// the databases.
    pub(super) async fn swap(&self, all: &[Fresh]) -> Result<()> {
        if self.context.cancel.is_cancelled() {
            return Err(with_note(&EngineError::cancelled(), UNCHANGED));
        }
        for one in all.iter().filter(|one| one.was_empty) {
            let contents = self.contents(one.target.as_str()).await.map_err(|error| with_note(&error, UNCHANGED))?;
            if contents.count() > 0 {
                let message = format!("Somebody has filled the database {} meanwhile.", one.target);
                return Err(with_note(&EngineError::new(FailureCode::TargetNotEmpty, message), UNCHANGED));
            }
        }
        self.context.begin_writing().await.map_err(|error| with_note(&error, UNCHANGED))?;
        // The rest takes seconds, and stopping half-way would help nobody.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = PostgresSession { context: &context, ..*self };
        if all.iter().all(|one| !one.replaces) {
            let mut renamed: Vec<String> = all.iter().flat_map(|one| end_sessions_sql(&one.fresh)).collect();
            renamed.extend(in_transaction(all.iter().flat_map(Fresh::named_sql)));
            return session.run("postgres", &renamed).await.map_err(|error| with_note(&error, UNCHANGED));
        }
        // A temporary database to be connected to: any other may be one of those that are renamed.
        let from = name_of(&Own::Swap.new_name())?;
        let closed = if session.is_superuser().await? { CLOSED } else { "" };
        let create = [format!("CREATE DATABASE {} TEMPLATE template0{closed};", identifier(&from))];
        session.run("template1", &create).await.map_err(|error| with_note(&error, UNCHANGED))?;
        let swapped = session.swap_from(from.as_str(), all).await;
        let away: Vec<String> = end_sessions_sql(&from).into_iter().chain([drop_sql(&from)]).collect();
        if let Err(error) = session.run("postgres", &away).await {
            context.log.warn(format!("The database {from} was left behind: {}", error.message));
        }
        swapped
    }

    async fn swap_from(&self, from: &str, all: &[Fresh]) -> Result<()> {
        let open = "SELECT coalesce(json_agg(datname), '[]') FROM pg_catalog.pg_database WHERE datallowconn";
        let open = self.names(open).await.map_err(|error| with_note(&error, UNCHANGED))?;
        let plan = Plan::new(all, &open)?;
        if let Err(error) = self.run(from, &plan.statements()).await {
            let outcome = self.outcome(from, &plan).await;
            if let Outcome::Swapped = outcome {
                self.context.log.warn(format!("The databases were replaced, but: {}", error.message));
            } else {
                let is_open = self.run(from, &plan.opening()).await.is_ok();
                return Err(with_note(&error, &plan.note(&outcome, is_open)));
            }
        }
        let replaced = all.iter().filter(|one| one.replaces);
        for (name, one) in plan.old.iter().zip(replaced) {
            if one.was_empty && !self.is_still_empty(from, name).await {
                self.context.log.warn(format!(
                    "Somebody may have filled the database {} while it was restored; what it was is called {name} now.",
                    one.target
                ));
                continue;
            }
            let away = [template_sql(name), drop_sql(name)];
            if let Err(error) = self.run(from, &away).await {
                let left = format!("The old database was left behind as {name}, closed to connections");
                self.context.log.warn(format!("{left}: {}", error.message));
            }
        }
        Ok(())
    }

    /// Whether a database that nobody else can reach any more is empty.
    async fn is_still_empty(&self, from: &str, name: &Name) -> bool {
        let limit = format!("ALTER DATABASE {} CONNECTION LIMIT 0;", identifier(name));
        if self.run(from, &[limit, allow_sql(name, true)]).await.is_err() {
            return false;
        }
        let is_empty = matches!(self.contents(name.as_str()).await, Ok(contents) if contents.count() == 0);
        is_empty && self.run(from, &[allow_sql(name, false)]).await.is_ok()
    }

    /// Whether the names changed, even if the session that changed them could not report it.
    async fn outcome(&self, from: &str, plan: &Plan<'_>) -> Outcome {
        let sql = format!("SELECT count(*) FROM pg_catalog.pg_database WHERE datname = {}", plan.sign());
        match self.query(from, &sql).await.as_deref() {
            Ok("0") => Outcome::Swapped,
            Ok(_) => Outcome::NotSwapped,
            Err(_) => Outcome::Unknown,
        }
    }
}

/// Which names change, and the names under which the old databases wait to be dropped.
struct Plan<'a> {
    all: &'a [Fresh],
    /// Replaced databases that accept connections now, and must do so again if nothing changes.
    open: Vec<&'a Name>,
    old: Vec<Name>,
}

impl<'a> Plan<'a> {
    fn new(all: &'a [Fresh], open: &BTreeSet<String>) -> Result<Self> {
        let replaced = all.iter().filter(|one| one.replaces);
        let old = replaced.clone().map(|_| name_of(&Own::Old.new_name()));
        let open = replaced.map(|one| &one.target).filter(|name| open.contains(name.as_str()));
        Ok(Self { all, open: open.collect(), old: old.collect::<Result<_>>()? })
    }

    /// A name that no database has any more once the names have changed, all in one transaction.
    fn sign(&self) -> String {
        text(self.all.first().map_or("", |one| one.fresh.as_str()))
    }

    fn opening(&self) -> Vec<String> {
        self.open.iter().map(|name| allow_sql(name, true)).collect()
    }

    /// The statements of one session, so that nobody can come in between: the databases are closed, their sessions are
    /// terminated, and the names change. If that fails, the same session opens the databases again, even if we are gone
    /// by then.
    fn statements(&self) -> Vec<String> {
        let mut statements: Vec<String> = in_transaction(self.open.iter().map(|name| allow_sql(name, false))).collect();
        statements.push("\\set ON_ERROR_STOP 0".to_owned());
        let replaced = self.all.iter().filter(|one| one.replaces);
        statements.extend(replaced.flat_map(|one| end_sessions_sql(&one.target)));
        statements.extend(self.all.iter().flat_map(|one| end_sessions_sql(&one.fresh)));
        let mut old = self.old.iter();
        let renamed = self.all.iter().flat_map(|one| {
            let aside = if one.replaces { old.next() } else { None };
            let away = aside.map(|aside| rename_sql(&one.target, aside));
            away.into_iter().chain(one.named_sql())
        });
        statements.extend(in_transaction(renamed).collect::<Vec<_>>());
        let opening = self.opening().into_iter().map(|sql| format!("EXECUTE {};", text(&sql))).collect::<String>();
        statements.push(self.unless_swapped(&opening));
        statements.push("\\set ON_ERROR_STOP 1".to_owned());
        statements.push(self.unless_swapped("RAISE EXCEPTION 'The names of the databases did not change.';"));
        statements
    }

    fn unless_swapped(&self, body: &str) -> String {
        let sign = self.sign();
        let body = format!(
            "BEGIN IF EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = {sign}) THEN {body} NULL; END IF; END"
        );
        format!("DO {};", text(&body))
    }

    /// The state of the databases, for the user.
    fn note(&self, outcome: &Outcome, is_open: bool) -> String {
        let known = match outcome {
            Outcome::Unknown => "Whether the databases were replaced is not known.",
            Outcome::Swapped | Outcome::NotSwapped => UNCHANGED,
        };
        if is_open {
            return known.to_owned();
        }
        let mut note = format!("{known} They may still be closed to connections; to open them again:");
        self.opening().iter().for_each(|sql| note.push_str(&format!(" {sql}")));
        if let Outcome::Unknown = outcome {
            let old: Vec<&str> = self.old.iter().map(Name::as_str).collect();
            note.push_str(&format!(" If they were replaced, the old ones are called {}.", old.join(", ")));
        }
        note
    }
}

fn in_transaction(statements: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    ["BEGIN;".to_owned()].into_iter().chain(statements).chain(["COMMIT;".to_owned()])
}

impl Fresh {
    /// Gives the database its name, and allows connections.
    fn named_sql(&self) -> Vec<String> {
        let open = |limit: i32| format!("ALTER DATABASE {} CONNECTION LIMIT {limit};", identifier(&self.target));
        [rename_sql(&self.fresh, &self.target)].into_iter().chain(self.limit.map(open)).collect()
    }
}

fn rename_sql(from: &Name, to: &Name) -> String {
    format!("ALTER DATABASE {} RENAME TO {};", identifier(from), identifier(to))
}

fn allow_sql(name: &Name, is_allowed: bool) -> String {
    format!("ALTER DATABASE {} ALLOW_CONNECTIONS {is_allowed};", identifier(name))
}
