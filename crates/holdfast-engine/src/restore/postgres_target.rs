//! What a restore finds in PostgreSQL databases that it fills or replaces.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;

use super::database_messages::tables_lost;
use super::postgres_session::PostgresSession;
use crate::error::{EngineError, Result};
use crate::postgres::DumpFacts;
use crate::postgres::contents::{Contents, LOGICAL_REPLICATION, contents_query};
use crate::postgres::globals::DatabaseFacts;
use crate::source::postgres;

impl PostgresSession<'_> {
    /// What a database has that a new one does not have.
    pub(super) async fn contents(&self, name: &str) -> Result<Contents> {
        let sql = contents_query(self.version().await?);
        let told = self.query(name, &sql).await?;
        let contents: Contents = serde_json::from_str(&told).map_err(EngineError::internal)?;
        if contents.count() == 0 {
            return Ok(contents);
        }
        // Without an answer, nothing is assumed to come from the template.
        let answer = postgres::query(self.at(), self.login, "template1", &sql).await?;
        let template = serde_json::from_slice(&answer.stdout).ok().filter(|_| answer.exit.success());
        Ok(contents.without(&template.unwrap_or_default()))
    }

    /// Warns about the tablespaces of the dump's tables and indexes, and of the database itself: everything goes to the
    /// default one.
    pub(super) fn tell_tablespaces(&self, dump: &DumpFacts, facts: Option<&DatabaseFacts>) {
        let own = facts.map(|facts| facts.tablespace.as_str()).filter(|name| *name != "pg_default");
        let names: BTreeSet<&str> = dump.tablespaces.iter().map(String::as_str).chain(own).collect();
        if !names.is_empty() {
            let names: Vec<String> = names.into_iter().map(|name| name_text(name.as_bytes())).collect();
            self.context.log.warn(format!(
                "Tablespaces are not restored: the contents of these are restored into the default one: {}.",
                names.join(", ")
            ));
        }
    }

    /// Logs that a database is replaced as a whole, and which of its tables the backup does not have: tables that the
    /// task excludes, and tables created later, are lost.
    pub(super) async fn tell_lost(&self, name: &str, dump: &DumpFacts) -> Result<()> {
        // Limited so that it fits in one answer. Tables of an extension come back with it.
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
        self.context.log.warn(format!("{whole} {}", tables_lost(&lost, verb)));
        Ok(())
    }

    /// Checks, before anything starts, what is bound to replaced databases but not part of them. Logical replication
    /// slots are dropped with a database. A subscription or a prepared transaction prevents its database from being
    /// dropped or renamed, so the restore would fail at its end.
    pub(super) async fn check_bound(&self, replaced: &BTreeSet<String>) -> Result<()> {
        const SLOTS: &str = "SELECT coalesce(json_agg(json_build_array(database, slot_name)), '[]') FROM \
            pg_catalog.pg_replication_slots WHERE database IS NOT NULL";
        const PREPARED: &str = "SELECT coalesce(json_agg(json_build_array(database, gid)), '[]') FROM \
            pg_catalog.pg_prepared_xacts";
        const SUBSCRIPTIONS: &str = "SELECT coalesce(json_agg(json_build_array(d.datname, s.subname)), '[]') FROM \
            pg_catalog.pg_subscription s JOIN pg_catalog.pg_database d ON d.oid = s.subdbid";
        if replaced.is_empty() {
            return Ok(());
        }
        let verb = if self.plan.options.dry_run { "would be" } else { "will be" };
        for (database, slots) in self.bound_to(replaced, SLOTS).await? {
            self.context.log.warn(format!(
                "These logical replication slots belong to the database {database} and {verb} gone with it: {}. Whoever \
                 reads from them has to start anew.",
                slots.join(", ")
            ));
        }
        let mut reasons = Vec::new();
        for (database, names) in self.bound_to(replaced, PREPARED).await? {
            let names = names.join(", ");
            reasons.push(format!(
                "The database {database} has prepared transactions; end them with COMMIT PREPARED or ROLLBACK PREPARED: \
                 {names}."
            ));
        }
        if self.version().await? >= LOGICAL_REPLICATION {
            for (database, names) in self.bound_to(replaced, SUBSCRIPTIONS).await? {
                let names = names.join(", ");
                reasons.push(format!(
                    "The database {database} has subscriptions; end each of them there with ALTER SUBSCRIPTION … DISABLE, \
                     ALTER SUBSCRIPTION … SET (slot_name = NONE) and DROP SUBSCRIPTION …, and drop its slot on the \
                     publishing server if nothing else uses it: {names}."
                ));
            }
        }
        match reasons.is_empty() {
            true => Ok(()),
            false => {
                let message = format!("{} Nothing was changed.", reasons.join(" "));
                Err(EngineError::new(FailureCode::RemoteFailed, message))
            }
        }
    }

    /// The names that the query returns for these databases, by database, for messages.
    async fn bound_to(&self, replaced: &BTreeSet<String>, sql: &str) -> Result<BTreeMap<String, Vec<String>>> {
        let told = self.query("postgres", sql).await?;
        let pairs: Vec<(String, String)> = serde_json::from_str(&told).map_err(EngineError::internal)?;
        let mut bound = BTreeMap::<String, Vec<String>>::new();
        for (database, name) in pairs.into_iter().filter(|(database, _)| replaced.contains(database)) {
            bound.entry(name_text(database.as_bytes())).or_default().push(name_text(name.as_bytes()));
        }
        bound.values_mut().for_each(|names| names.sort());
        Ok(bound)
    }
}
