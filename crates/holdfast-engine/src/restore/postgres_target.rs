//! What a restore finds in PostgreSQL databases that it fills or replaces.

use holdfast_core::backup::name_text;
use holdfast_core::task::DatabaseEngine;

use super::postgres::Session;
use crate::error::{EngineError, Result};
use crate::postgres::DumpFacts;
use crate::postgres::contents::{Contents, contents_query};
use crate::source::database;

impl Session<'_> {
    /// What a database has that a new one has not.
    pub(super) async fn contents(&self, name: &str) -> Result<Contents> {
        let sql = contents_query(self.version().await?);
        let told = self.query(name, &sql).await?;
        let contents: Contents = serde_json::from_str(&told).map_err(EngineError::internal)?;
        if contents.count() == 0 {
            return Ok(contents);
        }
        // Without an answer, nothing of it came from there.
        const ENGINE: DatabaseEngine = DatabaseEngine::Postgresql;
        let settings = &self.engine.settings.remote;
        let asking = database::query(self.connection, ENGINE, "template1", &sql, self.login, settings, self.context);
        let answer = asking.await?;
        let template = serde_json::from_slice(&answer.stdout).ok().filter(|_| answer.exit.success());
        Ok(contents.without(&template.unwrap_or_default()))
    }

    /// Says that a database is replaced as a whole, and which of its tables the backup does not have: those that a task
    /// leaves out, and those that were made later, are gone with it.
    pub(super) async fn tell_lost(&self, name: &str, dump: &DumpFacts) -> Result<()> {
        // As many as fit in one answer. What belongs to an extension comes back with it.
        const TABLES: &str = "SELECT coalesce(json_agg(json_build_array(schema, name)), '[]') FROM (SELECT n.nspname AS \
            schema, c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN \
            ('r', 'p', 'f') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND NOT EXISTS (SELECT FROM \
            pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e') \
            ORDER BY 1, 2 LIMIT 25000) t";
        let told = self.query(name, TABLES).await?;
        let lost = dump.lacks(serde_json::from_str(&told).map_err(EngineError::internal)?);
        let verb = if self.plan.options.dry_run { "would be" } else { "will be" };
        let whole = format!("The database {} {verb} replaced as a whole.", name_text(name.as_bytes()));
        if lost.is_empty() {
            self.context.log.line(whole);
            return Ok(());
        }
        let lost: Vec<String> = lost.iter().map(|(schema, table)| format!("{schema}.{table}")).collect();
        self.context.log.warn(format!("{whole} {}", super::tables_lost(&lost, verb)));
        Ok(())
    }
}
