//! Whole MySQL and MariaDB servers back onto a server. Every database is loaded beside the one that it replaces first;
//! only when all of them went well is anything replaced. Views come after the databases, users and privileges last.

use std::collections::BTreeSet;
use std::io;

use holdfast_core::task::DatabaseEngine;

use super::dumps::{Dump, Reading};
use super::mysql::{CLIENT, Rewriting, Session, name_beside, without_definer};
use crate::Engine;
use crate::archive::server::{VIEWS, describe_mysql};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::{ACCOUNTS, DatabaseFacts, ServerFacts, View};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote;
use crate::source::database::{self, Login, MYSQL_CLIENT, mysql, unhex};
use crate::ssh::Connection;

/// A database of the archive and what is there under its name.
struct Place<'a> {
    index: usize,
    facts: &'a DatabaseFacts,
    /// Tables and routines; `None` when there is no such database.
    held: Option<u64>,
    /// Where it is loaded first.
    first: String,
}

impl Place<'_> {
    fn is_replaced(&self) -> bool {
        self.held > Some(0)
    }
}

impl Engine {
    pub(super) async fn restore_mysql_server(
        &self,
        connection: &Connection,
        plan: &RestorePlan,
        login: &Login,
        context: &Context,
    ) -> Result<RestoreReport> {
        let session = Session { engine: self, connection, plan, login, context };
        context.log.line("Reading the whole backup before anything is changed.");
        let (facts, _) = self.read_as(&plan.backup, context, describe_mysql).await?;
        let mut places = Vec::new();
        for (index, database) in facts.databases.iter().enumerate() {
            let held = session.count_tables(&database.name).await?;
            let first = if held > Some(0) { name_beside(&database.name) } else { database.name.clone() };
            places.push(Place { index, facts: database, held, first });
        }
        let replaced: Vec<&Place<'_>> = places.iter().filter(|place| place.is_replaced()).collect();
        if let Some(place) = replaced.first().filter(|_| !plan.overwrite) {
            return Err(super::not_empty(&place.facts.name));
        }
        session.tell(&facts, &places);
        if plan.options.dry_run {
            return Ok(RestoreReport { is_dry: true, ..RestoreReport::default() });
        }
        let mut made = Vec::new();
        let report = match session.load_first(&facts, &places, &mut made).await {
            Ok(report) => report,
            Err(error) => {
                for name in made {
                    session.drop_own(&name).await;
                }
                let message = format!("{} No database that was there was changed.", error.message);
                return Err(EngineError::new(error.code, message));
            }
        };
        session.replace_all(&facts, &replaced).await?;
        session.make_views(&facts.views).await?;
        for place in &places {
            session.warn_of_definers(&place.facts.name).await;
        }
        if facts.has_accounts && !plan.options.no_owner {
            session.load_accounts(&facts).await?;
        }
        Ok(report)
    }
}

fn dumps_of(facts: &ServerFacts, is_wanted: impl Fn(usize) -> bool) -> Vec<Dump> {
    facts.dumps().map(|(index, name)| Dump { index, name: name.to_owned(), is_wanted: is_wanted(index) }).collect()
}

impl Session<'_> {
    fn tell(&self, facts: &ServerFacts, places: &[Place<'_>]) {
        let verb = if self.plan.options.dry_run { "would be" } else { "will be" };
        for place in places {
            let fate = match place.held {
                None => "made",
                Some(0) => "filled",
                Some(_) => "replaced",
            };
            self.context.log.line(format!("The database {} {verb} {fate}.", place.facts.name));
        }
        self.context.log.line(match (facts.has_accounts, self.plan.options.no_owner) {
            (true, false) => format!("Users and privileges {verb} set as they were; others stay."),
            (true, true) => "Users and privileges stay as they are.".to_owned(),
            (false, _) => "The backup holds no users and privileges.".to_owned(),
        });
    }

    /// Begins to read the wanted dumps.
    async fn read(&self, facts: &ServerFacts, is_wanted: impl Fn(usize) -> bool) -> Result<Reading> {
        let rewriting = Rewriting { without_definers: self.plan.options.no_owner, old_name: None };
        let transform = move |dump: &mut dyn io::Read, out: &mut dyn io::Write| rewriting.copy(dump, out);
        let dumps = dumps_of(facts, is_wanted);
        self.engine.read_dumps(self.plan, self.context, VIEWS, dumps, transform).await
    }

    /// Runs the dump that `reading` has just begun through the client.
    async fn load_into(&self, name: &str, reading: &mut Reading) -> Result<()> {
        let script = mysql(MYSQL_CLIENT, &format!("{CLIENT} --database=\"$1\""), "3", &[name]);
        let login = self.login.lines(DatabaseEngine::Mysql);
        let fed = self.engine.feed_dump(self.connection, &script, login, reading, self.context).await?;
        if !fed.exit.success() {
            return Err(database::explain("mysql", &fed.exit, &fed.lines, self.context));
        }
        fed.lines.iter().for_each(|line| self.context.log.warn(line));
        Ok(())
    }

    /// Loads every database where nothing is: under its name, or beside the one that has it.
    async fn load_first(
        &self,
        facts: &ServerFacts,
        places: &[Place<'_>],
        made: &mut Vec<String>,
    ) -> Result<RestoreReport> {
        let mut reading = self.read(facts, |index| index < places.len()).await?;
        while let Some(index) = reading.next().await {
            let place = &places[index];
            self.context.log.line(format!("Loading {} into {}.", place.facts.name, place.first));
            if place.held != Some(0) {
                self.create(&place.first, Some(&place.facts.set_up)).await?;
                made.push(place.first.clone());
            }
            self.load_into(&place.first, &mut reading).await?;
        }
        Ok(RestoreReport { plain_bytes: reading.finish().await?, ..RestoreReport::default() })
    }

    /// Everything is known to load by now. A database of MySQL cannot take another name, so each is loaded again.
    async fn replace_all(&self, facts: &ServerFacts, replaced: &[&Place<'_>]) -> Result<()> {
        if replaced.is_empty() {
            return Ok(());
        }
        let mut begun = Vec::new();
        let loaded = self.load_again(facts, replaced, &mut begun).await;
        let stopped_at = begun.last().copied().filter(|_| loaded.is_err());
        for place in replaced.iter().filter(|place| Some(place.index) != stopped_at) {
            self.drop_own(&place.first).await;
        }
        loaded.map_err(|error| {
            let stopped = replaced.iter().find(|place| Some(place.index) == stopped_at);
            let whole = stopped.map(|place| format!(" The whole restored {} is in {}.", place.facts.name, place.first));
            let untouched = replaced.iter().filter(|place| !begun.contains(&place.index));
            let untouched: Vec<&str> = untouched.map(|place| place.facts.name.as_str()).collect();
            let untouched = match untouched[..] {
                [] => String::new(),
                _ => format!(" Not changed: {}.", untouched.join(", ")),
            };
            EngineError::new(error.code, format!("{}{}{untouched}", error.message, whole.unwrap_or_default()))
        })
    }

    async fn load_again(&self, facts: &ServerFacts, replaced: &[&Place<'_>], begun: &mut Vec<usize>) -> Result<()> {
        let mut reading = self.read(facts, |index| replaced.iter().any(|place| place.index == index)).await?;
        while let Some(index) = reading.next().await {
            let database = &facts.databases[index];
            self.context.log.line(format!("Replacing {}.", database.name));
            begun.push(index);
            self.drop_database(&database.name).await?;
            self.create(&database.name, Some(&database.set_up)).await?;
            self.load_into(&database.name, &mut reading).await?;
        }
        reading.finish().await.map(drop)
    }

    /// Makes all views. One may read from another, so those that cannot be made yet are tried again as long as any can.
    async fn make_views(&self, views: &[View]) -> Result<()> {
        let mut missing: Vec<&View> = views.iter().collect();
        while !missing.is_empty() {
            let sql: String = missing.iter().map(|view| self.view_sql(view)).collect();
            let answer = self.run(&sql).await?;
            let there = self.view_names().await?;
            let before = missing.len();
            missing.retain(|view| !there.contains(&(view.database.clone(), view.name.clone())));
            if missing.len() == before {
                answer.stderr.iter().for_each(|line| self.context.log.line(line));
                let names: Vec<String> =
                    missing.iter().map(|view| format!("{}.{}", view.database, view.name)).take(20).collect();
                self.context.log.warn(format!(
                    "{} views could not be made, since something that they need is not there: {}",
                    missing.len(),
                    names.join(", ")
                ));
                return Ok(());
            }
        }
        Ok(())
    }

    fn view_sql(&self, view: &View) -> String {
        let statement = match self.plan.options.no_owner {
            true => String::from_utf8_lossy(&without_definer(view.statement.as_bytes())).into_owned(),
            false => view.statement.clone(),
        };
        View { statement, ..view.clone() }.sql()
    }

    /// Statements on standard input; one that fails does not stop those after it.
    async fn run(&self, sql: &str) -> Result<remote::Answer> {
        let script = mysql(MYSQL_CLIENT, &format!("{CLIENT} --force"), "3", &[]);
        let input = format!("{}{sql}", self.login.lines(DatabaseEngine::Mysql));
        let own = &self.engine.settings.remote;
        let settings = remote::RemoteSettings { answer: own.finish, ..own.clone() };
        remote::ask(self.connection, &settings, self.context, &script, &input).await
    }

    async fn view_names(&self) -> Result<BTreeSet<(String, String)>> {
        let sql = "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name)) FROM information_schema.views";
        let answer = self.query(sql).await?;
        let names = answer.lines().filter_map(|line| line.split_once(' '));
        Ok(names.filter_map(|(schema, name)| Some((unhex(schema)?, unhex(name)?))).collect())
    }

    /// Last of all: the password of whoever is connected may be another one afterwards.
    async fn load_accounts(&self, facts: &ServerFacts) -> Result<()> {
        self.context.log.line("Restoring users and privileges.");
        let loaded = async {
            let mut reading = self.read(facts, |index| index == facts.databases.len()).await?;
            while reading.next().await.is_some() {
                self.load_into(ACCOUNTS, &mut reading).await?;
            }
            reading.finish().await?;
            self.query("FLUSH PRIVILEGES").await
        };
        loaded.await.map_err(|error| {
            let message = format!("{} All databases were restored; users and privileges were not.", error.message);
            EngineError::new(error.code, message)
        })?;
        Ok(())
    }
}
