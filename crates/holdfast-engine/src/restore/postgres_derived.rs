//! What is derived from the rows of a PostgreSQL database: indexes that are not unique, and the contents of
//! materialized views. They are created after everything else. One that calls a function which is only found with a
//! `search_path` is left out and named; if one fails for another reason, such as a full disk, the restore fails.

use std::collections::BTreeSet;

use holdfast_core::backup::name_text;
use holdfast_core::random;

use super::postgres_fresh::Fresh;
use super::postgres_load::STRICTLY;
use super::postgres_session::PostgresSession;
use crate::archive::pgdump::derived::Follows;
use crate::archive::pgdump::split::{Part, Split};
use crate::error::{EngineError, Result};
use crate::postgres::DumpFacts;
use crate::postgres::globals::Name;
use crate::postgres::quoting::text;
use crate::remote::{self, Answer, RemoteSettings};
use crate::source::postgres;
use crate::source::tool::explain;

/// How many of them may be missing: each is tried by itself.
const MISSING: usize = 100;

/// How many lines of the server's messages about one of them are logged.
const SHOWN: usize = 5;

/// The errors for which one of them may be left out.
const REASONS: [&str; 2] = ["does not exist", "has not been populated"];

/// Selects the indexes of a database, and the materialized views that are populated: schema and name in the encoding of
/// a dump, as hexadecimal digits.
fn there_query(encoding: Option<&str>) -> String {
    let encoding = encoding.map_or_else(|| "pg_catalog.getdatabaseencoding()".to_owned(), text);
    let digits =
        |name: &str| format!("pg_catalog.encode(pg_catalog.convert_to({name}::pg_catalog.text, {encoding}), 'hex')");
    format!(
        "SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array({}, {})), '[]') FROM pg_catalog.pg_class c JOIN \
         pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('i', 'I') OR (c.relkind = 'm' AND \
         c.relispopulated)",
        digits("n.nspname"),
        digits("c.relname")
    )
}

impl PostgresSession<'_> {
    /// Creates indexes and contents in a database that has everything else. Runs all of them, then runs those that are
    /// still missing once more, one at a time, so that each error belongs to one statement.
    pub(super) async fn make_derived(&self, made: &Fresh, dump: &DumpFacts, split: &Split) -> Result<()> {
        let (name, parts) = (&made.fresh, || split.parts.iter());
        let derived = || parts().filter(|part| part.follows != Follows::EventTrigger);
        let all = self.restore_parts(name, &[], split.dump(derived())).await?;
        let (mut left_out, mut names) = (BTreeSet::new(), Vec::new());
        let missing = if all.exit.success() { Vec::new() } else { self.missing(name, dump, split).await? };
        if missing.len() > MISSING {
            return Err(explain(postgres::tool("pg_restore"), &all.exit, &all.stderr, self.context));
        }
        for part in missing {
            let one = split.dump([part].into_iter());
            let answer = self.restore_parts(name, &[STRICTLY], one).await?;
            if answer.exit.success() {
                continue;
            }
            if !is_tolerated(&answer) {
                return Err(explain(postgres::tool("pg_restore"), &answer.exit, &answer.stderr, self.context));
            }
            answer.stderr.iter().take(SHOWN).for_each(|line| self.context.log.line(line));
            left_out.insert((&part.schema, &part.name));
            names.push(name_text(part.shown().as_bytes()));
        }
        // What belongs to indexes that exist; running it a second time changes nothing. Event triggers come last.
        let is_last = |part: &&Part| match part.follows {
            Follows::Index | Follows::Contents => false,
            Follows::OfIndex => !all.exit.success() && !left_out.contains(&(&part.schema, &part.name)),
            Follows::EventTrigger => true,
        };
        if parts().any(|part| is_last(&part)) {
            let last = self.restore_parts(name, &[STRICTLY], split.dump(parts().filter(is_last))).await?;
            if !last.exit.success() {
                return Err(explain(postgres::tool("pg_restore"), &last.exit, &last.stderr, self.context));
            }
        }
        if !names.is_empty() {
            self.context.log.warn(format!(
                "The database {} has everything but these, which could not be made: {}. What they call may not be found \
                 without a search_path; the log shows what the server said. An index of a partitioned table is of no use \
                 before each partition has its own.",
                made.target,
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// The indexes and contents that are missing.
    async fn missing<'a>(&self, name: &Name, dump: &DumpFacts, split: &'a Split) -> Result<Vec<&'a Part>> {
        let told = self.query(name.as_str(), &there_query(dump.encoding.as_deref())).await?;
        let there: BTreeSet<(String, String)> = serde_json::from_str(&told).map_err(EngineError::internal)?;
        let is_there = |part: &Part| there.contains(&(random::hex(&part.schema), random::hex(&part.name)));
        let is_own = |part: &&Part| matches!(part.follows, Follows::Index | Follows::Contents);
        Ok(split.parts.iter().filter(is_own).filter(|part| !is_there(part)).collect())
    }

    /// Runs `pg_restore` on a dump without data.
    async fn restore_parts(&self, name: &Name, words: &[&str], dump: Vec<u8>) -> Result<Answer> {
        let script = self.restore_script(name, false, words).await?;
        let input = [postgres::login_lines(self.login).into_bytes(), dump].concat();
        let remote = &self.engine.settings.remote;
        let settings = RemoteSettings { answer: remote.finish, ..remote.clone() };
        remote::ask_bytes(self.connection, &settings, self.context, &script, &input).await
    }
}

/// Whether a statement failed for a reason that is tolerated.
fn is_tolerated(answer: &Answer) -> bool {
    const ERROR: &str = "pg_restore: error: could not execute query: ";
    let mut errors = answer.stderr.iter().filter_map(|line| line.strip_prefix(ERROR));
    errors.next().is_some_and(|error| REASONS.iter().any(|reason| error.contains(reason)))
}
