//! Moves tables from a copy into the database that the copy was created for. Anybody with rights to a database could
//! replace its tables while rows are written to them; to the copy they have no rights.

use holdfast_core::failure::FailureCode;

use super::mysql_session::MysqlSession;
use crate::archive::MysqlFacts;
use crate::error::{EngineError, Result};
use crate::mysql::quoted;
use crate::source::mysql::mysql_text;

/// How many tables one statement moves; a statement of this length is accepted by every server.
const AT_ONCE: usize = 1000;

impl MysqlSession<'_> {
    /// Creates a database as it was and moves the tables of its copy into it. `is_changed` tells whether the database
    /// may have changed: until then, nobody needs the copy.
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
        self.is_as_empty(name, held).await?;
        let made = match held {
            None => self.create(name, facts).await,
            Some(0) => self.set_up_as(name, facts).await,
            Some(_) => self.make_anew(name, facts).await,
        };
        // A server that timed out waiting for a table in use has dropped nothing yet.
        *is_changed = made.as_ref().err().is_none_or(|error| held.is_some() && !error.has_number(&[1205]));
        made?;
        let moved = async {
            for some in tables.chunks(AT_ONCE) {
                let pair = |table: &String| format!("{0}.{2} TO {1}.{2}", quoted(copy), quoted(name), quoted(table));
                let pairs: Vec<String> = some.iter().map(pair).collect();
                self.run_all(name, &format!("RENAME TABLE {};\n", pairs.join(", "))).await?;
            }
            // The caller drops the copy.
            match self.tables_of(copy).await?.len() {
                0 => Ok(()),
                left => Err(EngineError::internal(format!("{left} tables of {copy} were not among those to be moved"))),
            }
        };
        moved.await.map_err(|error: EngineError| {
            let message =
                format!("{} The tables that were not moved to {name} yet are in {copy}.", error.message.trim_end());
            error.reworded(message)
        })
    }

    /// Fails if a database that was empty when the restore began is not empty any more.
    async fn is_as_empty(&self, name: &str, held: Option<u64>) -> Result<()> {
        let now = self.count_tables(name).await?;
        if held > Some(0) || now.unwrap_or(0) == 0 {
            return Ok(());
        }
        let message = format!("Somebody has filled the database {name} meanwhile.");
        Err(EngineError::new(FailureCode::TargetNotEmpty, message))
    }

    /// Whether the database, empty at the start, holds only tables that this restore has moved there.
    pub(super) async fn is_all_ours(&self, name: &str, copy: &str, restored: &[String]) -> bool {
        let (Ok(there), Ok(left)) = (self.tables_of(name).await, self.tables_of(copy).await) else { return false };
        there.iter().all(|table| restored.contains(table) && !left.contains(table))
    }

    /// Runs our own statements in a database, up to the first that fails.
    async fn run_all(&self, name: &str, sql: &str) -> Result<()> {
        if sql.is_empty() {
            return Ok(());
        }
        let answer = self.run(Some(name), sql.as_bytes(), false).await?;
        self.judge(&answer.exit, &answer.stderr)
    }

    /// A table with triggers cannot be moved; its triggers are created again afterwards.
    async fn drop_triggers(&self, copy: &str) -> Result<()> {
        let sql = format!(
            "SELECT HEX(trigger_name) FROM information_schema.triggers WHERE trigger_schema = {}",
            mysql_text(copy)
        );
        let names = self.names(&sql).await?;
        let drop = |name: &String| format!("DROP TRIGGER {};\n", quoted(name));
        self.run_all(copy, &names.iter().map(drop).collect::<String>()).await
    }
}
