//! Databases that a restore creates beside the existing ones: how they are created, set up like the original, and dropped
//! again.

use holdfast_core::backup::name_text;
use tokio_util::sync::CancellationToken;

use super::database_messages::not_empty;
use super::postgres_session::{
    PostgresSession, UNCHANGED, drop_sql, end_sessions_sql, name_of, template_sql, with_note,
};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::postgres::Own;
use crate::postgres::globals::sql::{create_database_sql, finish_database_sql};
use crate::postgres::globals::{DatabaseFacts, Name};
use crate::postgres::quoting::{identifier, text};
use crate::remote::CLEANING_UP;

/// Selects the subscriptions of a database.
const SUBSCRIPTIONS: &str = "SELECT coalesce(pg_catalog.json_agg(s.subname), '[]') FROM pg_catalog.pg_subscription s JOIN \
    pg_catalog.pg_database d ON d.oid = s.subdbid WHERE d.datname = pg_catalog.current_database()";

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

impl PostgresSession<'_> {
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
    pub(super) async fn make_again(&self, made: &Fresh) -> Result<()> {
        let (from, statements) = &made.made_by;
        self.drop_fresh(&made.fresh).await?;
        self.run(from, statements).await?;
        if made.was_empty { self.check_empty(made).await } else { Ok(()) }
    }

    /// Copies an empty database, with everything from its template and its extensions, to be filled in its place. In
    /// the original, the owner could at any time create something that the restore would run as a superuser.
    pub(super) async fn copy_empty(&self, there: &DatabaseFacts) -> Result<Fresh> {
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

    /// Fails if the copy of an empty database is not empty.
    pub(super) async fn check_empty(&self, made: &Fresh) -> Result<()> {
        match self.contents(made.fresh.as_str()).await?.count() {
            0 => Ok(()),
            _ => Err(not_empty(&name_text(made.target.as_str().as_bytes()))),
        }
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
                self.context.log.warn(format!(
                    "The database cannot be created as it was ({reason}), so it gets this server's locale."
                ));
                let encoding = text(model.encoding.as_str());
                let plain =
                    format!("CREATE DATABASE {} TEMPLATE template0 ENCODING {encoding}{closed};", identifier(&fresh));
                self.run("postgres", std::slice::from_ref(&plain)).await?;
                Ok((fresh, plain))
            }
        }
    }

    /// Restores owner, rights, settings and limits of the original. If nobody may connect yet, the connection limit is
    /// set together with the name.
    pub(super) async fn finish(&self, model: &DatabaseFacts, made: &Fresh, with_roles: bool) -> Result<()> {
        let limit = if made.limit.is_some() { -1 } else { model.connection_limit };
        let model = DatabaseFacts { connection_limit: limit, ..model.clone() };
        self.run("postgres", &finish_database_sql(&model, &made.fresh, with_roles)).await
    }

    /// Describes an error that occurred while fresh databases were filled. This changes nothing else, unless a dump
    /// does so itself.
    pub(super) async fn not_filled(&self, error: &EngineError, made: &[Fresh]) -> EngineError {
        // Runs even if the run was cancelled.
        let context = Context { cancel: CancellationToken::new(), ..self.context.clone() };
        let session = PostgresSession { context: &context, ..*self };
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
        let session = PostgresSession { context: &context, ..*self };
        if !matches!(tokio::time::timeout(CLEANING_UP, session.drop_fresh(name)).await, Ok(Ok(()))) {
            context.log.warn(format!("The database {name} was left behind on the server."));
        }
    }
}
