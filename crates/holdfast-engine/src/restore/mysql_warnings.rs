//! Warnings of a restore into MySQL or MariaDB.

use std::collections::BTreeSet;

use holdfast_core::backup::name_text;
use holdfast_core::random;

use super::database_messages::tables_lost;
use super::mysql_session::MysqlSession;
use crate::error::Result;
use crate::mysql::quoted;
use crate::mysql::renaming::names_database;
use crate::source::database::unhex;
use crate::source::mysql::mysql_text;

/// How many things a warning names.
pub(super) const NAMED: usize = 20;

impl MysqlSession<'_> {
    /// Warns about the tables of a database that are not in the backup: they are dropped with it.
    pub(super) async fn tell_lost(&self, name: &str, restored: &[String], verb: &str) -> Result<()> {
        let is_folded = self.folds_names().await?;
        let folded = |name: &String| if is_folded { name.to_lowercase() } else { name.clone() };
        let restored: BTreeSet<String> = restored.iter().map(folded).collect();
        let mut lost = self.tables_of(name).await?;
        lost.retain(|table| !restored.contains(&folded(table)));
        lost.sort();
        if !lost.is_empty() {
            let shown = name_text(name.as_bytes());
            let lost = tables_lost(&lost, verb);
            self.context.log.warn(format!("The database {shown} is replaced as a whole. {lost}"));
        }
        Ok(())
    }

    /// Warns about tables whose files are now in another folder; their rows are kept.
    pub(super) fn warn_of_directories(&self, tables: &[String]) {
        if !tables.is_empty() {
            let names: Vec<String> = tables.iter().take(NAMED).map(|name| name_text(name.as_bytes())).collect();
            self.context.log.warn(format!(
                "The files of {} tables were in folders of their own (DATA DIRECTORY), and are with those of the database now: \
                 {}.",
                tables.len(),
                names.join(", ")
            ));
        }
    }

    /// Warns about references to the database that was backed up. The text of routines, triggers and events is restored
    /// unchanged, even if it contains that name. Views are adapted, except for what we do not understand.
    pub(super) async fn warn_of_old_name(&self, name: &str, old: &str) -> Result<()> {
        let (schema, plain, in_quotes) =
            (mysql_text(name), mysql_text(&format!("{old}.")), mysql_text(&format!("{}.", quoted(old))));
        let naming = |kind: &str, column: &str, body: &str| {
            format!(
                "SELECT HEX({column}_name) FROM information_schema.{kind} WHERE {column}_schema = {schema} AND \
                 (LOCATE({plain}, {body}) > 0 OR LOCATE({in_quotes}, {body}) > 0)"
            )
        };
        let sql = [
            naming("triggers", "trigger", "action_statement"),
            naming("routines", "routine", "routine_definition"),
            naming("events", "event", "event_definition"),
        ];
        let mut names = self.names(&format!("{} LIMIT 20", sql.join(" UNION "))).await?;
        // Limited so that it fits in one answer.
        let views = format!(
            "SELECT CONCAT(HEX(table_name), ' ', HEX(LEFT(view_definition, 16384))) FROM information_schema.views WHERE \
             table_schema = {schema} AND LOCATE({in_quotes}, view_definition) > 0 LIMIT 40"
        );
        let views = self.query(&views).await?;
        let views = views.lines().filter_map(|line| line.split_once(' '));
        let views = views.filter(|(_, definition)| {
            random::from_hex(definition).is_some_and(|definition| names_database(&definition, old))
        });
        names.extend(views.filter_map(|(view, _)| unhex(view)));
        let names: Vec<String> = names.iter().map(|name| name_text(name.as_bytes())).collect();
        if !names.is_empty() {
            self.context.log.warn(format!(
                "These triggers, routines, events or views refer to the database {} by name, and still use it: {}.",
                name_text(old.as_bytes()),
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// Warns about views and routines that run as users who do not exist here: they fail when they are used, not when
    /// they are created.
    pub(super) async fn warn_of_definers(&self, name: &str) {
        if self.plan.options.no_owner {
            self.warn_of_own_rights(name).await;
        }
        let name = mysql_text(name);
        let sql = format!(
            "SELECT GROUP_CONCAT(DISTINCT d.definer SEPARATOR ', ') FROM (\
             SELECT definer FROM information_schema.views WHERE table_schema = {name} UNION \
             SELECT definer FROM information_schema.routines WHERE routine_schema = {name} UNION \
             SELECT definer FROM information_schema.triggers WHERE trigger_schema = {name} UNION \
             SELECT definer FROM information_schema.events WHERE event_schema = {name}) d \
             WHERE d.definer NOT IN (SELECT CONCAT(user, '@', host) FROM mysql.user) AND d.definer NOT IN (SELECT user FROM \
             mysql.user WHERE host = '')"
        );
        // Not every user may list accounts; in that case there is no warning.
        if let Ok(missing) = self.query(&sql).await
            && !missing.is_empty()
            && missing != "NULL"
        {
            self.context.log.warn(format!(
                "Views or routines run as users that this server does not have: {missing}. Create them, or restore \
                 without owners."
            ));
        }
    }

    /// Warns about what runs as the user of this restore, whoever calls it.
    async fn warn_of_own_rights(&self, name: &str) {
        let sql = format!(
            "SELECT HEX(routine_name) FROM information_schema.routines WHERE routine_schema = {name} AND security_type = \
             'DEFINER' AND definer = CURRENT_USER() UNION SELECT HEX(trigger_name) FROM information_schema.triggers WHERE \
             trigger_schema = {name} AND definer = CURRENT_USER() UNION SELECT HEX(table_name) FROM \
             information_schema.views WHERE table_schema = {name} AND security_type = 'DEFINER' AND definer = \
             CURRENT_USER() ORDER BY 1",
            name = mysql_text(name)
        );
        let Ok(all) = self.names(&sql).await else { return };
        let further = all.len().saturating_sub(NAMED);
        let further = if further == 0 { String::new() } else { format!(" and {further} others") };
        let names: Vec<String> = all.iter().take(NAMED).map(|name| name_text(name.as_bytes())).collect();
        if !names.is_empty() {
            self.context.log.warn(format!(
                "Without owners, these routines, triggers and views run with the rights of the database user of this \
                 restore (SQL SECURITY DEFINER), whoever calls them: {}{further}. Restore as a user with few rights.",
                names.join(", ")
            ));
        }
    }
}

/// The warning that events were left out because they would have no owner.
pub(super) fn left_events(count: usize) -> String {
    format!(
        "{count} events were left out: without owners they would run with the rights of the database user of this restore. \
         They are in the backup; make them manually."
    )
}
