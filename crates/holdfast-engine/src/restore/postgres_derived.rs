//! What only follows from the rows of a PostgreSQL database, after everything else was restored: indexes that are not
//! unique, and contents of materialized views. They may call functions that only a `search_path` finds; then a restore
//! goes on without them and names them. Any other reason, such as a full disk, ends it.

use std::collections::BTreeSet;

use holdfast_core::backup::name_text;
use holdfast_core::task::DatabaseEngine;

use super::postgres::{Fresh, STRICTLY, Session};
use crate::archive::pgdump::split::{Follows, Part, Split};
use crate::error::{EngineError, Result};
use crate::postgres::globals::Name;
use crate::remote::{self, Answer, RemoteSettings};
use crate::source::database;

/// How many of them may be missing: each is tried by itself.
const MISSING: usize = 100;

/// How many lines are shown of what a server says of one of them.
const SHOWN: usize = 5;

/// What a server says of one that may be missing.
const REASONS: [&str; 2] = ["does not exist", "has not been populated"];

/// The indexes of a database, and the materialized views that hold something, as schema and name.
const THERE: &str = "SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(n.nspname, c.relname)), '[]') FROM \
    pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('i', 'I') OR \
    (c.relkind = 'm' AND c.relispopulated)";

impl Session<'_> {
    /// Makes them in a database that has everything else. What a statement says of itself decides about nothing but
    /// itself: those that are not there after all were run are run once more, one at a time.
    pub(super) async fn make_derived(&self, made: &Fresh, has_event_triggers: bool, split: &Split) -> Result<()> {
        let (name, parts) = (&made.fresh, || split.parts.iter());
        let all = self.restore_parts(name, has_event_triggers, &[], split.dump(parts())).await?;
        if all.exit.success() {
            return Ok(());
        }
        let there = self.there(name).await?;
        let is_there = |part: &Part| there.contains(&(part.schema.clone(), name_of(part)));
        let missing: Vec<&Part> = parts().filter(|part| part.follows != Follows::OfIndex && !is_there(part)).collect();
        if missing.len() > MISSING {
            return Err(database::explain("pg_restore", &all.exit, &all.stderr, self.context));
        }
        let (mut left_out, mut names) = (BTreeSet::new(), Vec::new());
        for part in missing {
            let one = split.dump([part].into_iter());
            let answer = self.restore_parts(name, has_event_triggers, &[STRICTLY], one).await?;
            if answer.exit.success() {
                continue;
            }
            if !is_tolerated(&answer) {
                return Err(database::explain("pg_restore", &answer.exit, &answer.stderr, self.context));
            }
            answer.stderr.iter().take(SHOWN).for_each(|line| self.context.log.line(line));
            left_out.insert((part.schema.as_str(), part.name.as_slice()));
            names.push(name_text(part.shown().as_bytes()));
        }
        // What belongs to indexes that are there. Run a second time, none of it changes anything.
        let of_index = |part: &&Part| {
            part.follows == Follows::OfIndex && !left_out.contains(&(part.schema.as_str(), part.name.as_slice()))
        };
        let rest =
            self.restore_parts(name, has_event_triggers, &[STRICTLY], split.dump(parts().filter(of_index))).await?;
        if !rest.exit.success() {
            return Err(database::explain("pg_restore", &rest.exit, &rest.stderr, self.context));
        }
        if !names.is_empty() {
            self.context.log.warn(format!(
                "The database {} has everything but these, which could not be made: {}. What they call may not be found \
                 without a search_path; the log shows what the server said.",
                made.target,
                names.join(", ")
            ));
        }
        Ok(())
    }

    async fn there(&self, database: &Name) -> Result<BTreeSet<(String, String)>> {
        let told = self.query(database.as_str(), THERE).await?;
        serde_json::from_str(&told).map_err(EngineError::internal)
    }

    /// Runs `pg_restore` on a dump without data.
    async fn restore_parts(&self, name: &Name, triggers: bool, words: &[&str], dump: Vec<u8>) -> Result<Answer> {
        let script = self.restore_script(name, triggers, words).await?;
        let input = [self.login.lines(DatabaseEngine::Postgresql).into_bytes(), dump].concat();
        let remote = &self.engine.settings.remote;
        let settings = RemoteSettings { answer: remote.finish, ..remote.clone() };
        remote::ask_bytes(self.connection, &settings, self.context, &script, &input).await
    }
}

fn name_of(part: &Part) -> String {
    String::from_utf8_lossy(&part.name).into_owned()
}

/// Whether one statement failed for a reason that it may have.
fn is_tolerated(answer: &Answer) -> bool {
    const ERROR: &str = "pg_restore: error: could not execute query: ";
    let mut errors = answer.stderr.iter().filter_map(|line| line.strip_prefix(ERROR));
    errors.next().is_some_and(|error| REASONS.iter().any(|reason| error.contains(reason)))
}
