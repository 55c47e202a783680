//! Tables of a copy into the database that it was made for. Whoever has rights to a database could exchange its tables for
//! something else while rows are written to them; to the copy they have none.

use holdfast_core::run::FailureCode;

use super::mysql::Session;
use crate::archive::MysqlFacts;
use crate::error::{EngineError, Result};
use crate::mysql::quoted;
use crate::mysql::rewriting::renamed_default;
use crate::source::database::{mysql_text, unhex};

/// Tables that one statement moves: no server takes it for too long.
const AT_ONCE: usize = 1000;

/// A default of a column that asks a sequence.
struct Default {
    table: String,
    column: String,
    text: String,
}

impl Session<'_> {
    /// Makes a database as it was and gives it the tables of its copy. `is_changed` says whether anything of the database
    /// may be another than before: until then, the copy is of no use to anybody.
    pub(super) async fn put_in_place(
        &self,
        name: &str,
        held: Option<u64>,
        copy: &str,
        facts: Option<&MysqlFacts>,
        is_changed: &mut bool,
    ) -> Result<()> {
        self.drop_triggers(copy).await?;
        let tables = self.tables_of(copy).await?;
        let defaults = self.defaults_of(copy).await?;
        let made = match held {
            None => self.create(name, facts).await,
            Some(0) => self.set_up_as(name, facts).await,
            Some(_) => self.make_anew(name, facts).await,
        };
        // A server that waits in vain for a table in use has dropped nothing yet.
        *is_changed = made.as_ref().err().is_none_or(|error| held.is_some() && !error.message.contains("ERROR 1205 "));
        made?;
        let moved = async {
            for some in tables.chunks(AT_ONCE) {
                let pair = |table: &String| format!("{0}.{2} TO {1}.{2}", quoted(copy), quoted(name), quoted(table));
                let pairs: Vec<String> = some.iter().map(pair).collect();
                self.run_all(name, &format!("RENAME TABLE {};\n", pairs.join(", "))).await?;
            }
            let alter = |default: &Default| {
                let Default { table, column, text } = default;
                let text = renamed_default(text.as_bytes(), copy, name);
                let text = String::from_utf8_lossy(&text).into_owned();
                format!("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT ({text});\n", quoted(table), quoted(column))
            };
            self.run_all(name, &defaults.iter().map(alter).collect::<String>()).await?;
            // Whoever calls this drops the copy.
            match self.tables_of(copy).await?.len() {
                0 => Ok(()),
                left => Err(EngineError::internal(format!("{left} tables of {copy} were not among those to be moved"))),
            }
        };
        moved.await.map_err(|error: EngineError| {
            let message =
                format!("{} The tables that were not moved to {name} yet are in {copy}.", error.message.trim_end());
            EngineError::new(error.code, message)
        })
    }

    /// Statements of ours in a database, up to the first that fails.
    async fn run_all(&self, name: &str, sql: &str) -> Result<()> {
        if sql.is_empty() {
            return Ok(());
        }
        let answer = self.run(Some(name), sql.as_bytes(), false).await?;
        self.judge(&answer.exit, &answer.stderr)
    }

    /// A table with triggers cannot be moved; its own are made again in its place.
    async fn drop_triggers(&self, copy: &str) -> Result<()> {
        let sql = format!(
            "SELECT HEX(trigger_name) FROM information_schema.triggers WHERE trigger_schema = {}",
            mysql_text(copy)
        );
        let names = self.names(&sql).await?;
        let drop = |name: &String| format!("DROP TRIGGER {};\n", quoted(name));
        self.run_all(copy, &names.iter().map(drop).collect::<String>()).await
    }

    async fn tables_of(&self, copy: &str) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT HEX(table_name) FROM information_schema.tables WHERE table_schema = {} AND table_type NOT LIKE '%VIEW'",
            mysql_text(copy)
        );
        self.names(&sql).await
    }

    /// Defaults that name the copy.
    async fn defaults_of(&self, copy: &str) -> Result<Vec<Default>> {
        let sql = format!(
            "SELECT CONCAT(HEX(table_name), ' ', HEX(column_name), ' ', HEX(column_default)) FROM \
             information_schema.columns WHERE table_schema = {} AND LOCATE({}, column_default) > 0",
            mysql_text(copy),
            mysql_text(&format!("{}.", quoted(copy)))
        );
        let parse = |line: &str| {
            let mut words = line.split(' ').map(unhex);
            Some(Default { table: words.next()??, column: words.next()??, text: words.next()?? })
        };
        let unclear = || EngineError::new(FailureCode::RemoteFailed, "The server gave a default that cannot be read.");
        self.query(&sql).await?.lines().map(|line| parse(line).ok_or_else(unclear)).collect()
    }
}
