//! Tables and sequences of a MariaDB database, as the server prints them, and whether a backup may read them.

use std::collections::BTreeMap;

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;

use super::database::{Table, unhex};
use super::mysql::{mysql_grants, mysql_text, warn_of_floats};
use super::mysql_definitions::{AT_ONCE, Asking, Listed, SET_UP, unclear};
use crate::error::{EngineError, Result};
use crate::mysql::definitions::{Definition, DefinitionKind};
use crate::mysql::quoted;
use crate::mysql::statements::has_command;
use crate::mysql::tables::{self, has_type, is_versioned_by_transactions, sets_of, without_counter};

/// How many tables a warning names.
const NAMED: usize = 20;

/// What a database holds.
pub(super) struct Found {
    /// The tables whose rows the dump tool is to read.
    pub tables: Vec<Table>,
    /// Tables and sequences, which come before the rows.
    pub before: Vec<Definition>,
    pub definitions: Vec<Definition>,
    /// The character set that rows are read in.
    pub set_of_rows: &'static str,
    /// `None` when the database user may not see them.
    ids: Option<TableIds>,
}

/// The tables of a server by the ids that InnoDB gives to them and to their partitions. A renamed table keeps its id.
type TableIds = BTreeMap<u64, Table>;

impl Asking<'_> {
    /// What a database holds: the tables that the dump tool is to read, and everything else.
    pub(super) async fn read(&self, name: &str) -> Result<Found> {
        let excluded = &self.source.database.excluded_tables;
        let ids = self.table_ids().await?;
        if ids.is_none() {
            self.at.context.log.line(
                "The database user may not see the ids of tables (PROCESS): tables that swap names during the backup \
                 are not noticed.",
            );
        }
        let mut listed = self.tables(name).await?;
        listed.retain(|listed| !excluded.iter().any(|text| listed.table().is(text)));
        let mut before = self.definitions(&listed).await?.remove(name).unwrap_or_default();
        self.leave_out_unclear(name, &mut before);
        self.leave_out_misprinted(name, &mut before)?;
        self.leave_out_history_by_transactions(name, &mut before)?;
        let tables = before.iter().filter(|found| found.kind == DefinitionKind::Table);
        let tables: Vec<Table> =
            tables.map(|found| Table { schema: name.to_owned(), name: found.name.clone() }).collect();
        self.may_read(name, &tables).await?;
        self.warn_of_floats(name, &before);
        let set_of_rows = self.set_of_rows(name, &before);
        let mut listed = self.list(&[name], &DefinitionKind::ALL).await?;
        // A trigger of a table that was created meanwhile.
        let is_of_other = |listed: &Listed| listed.kind == DefinitionKind::Trigger && !tables.contains(&listed.table());
        listed.retain(|listed| !listed.is_excluded(excluded) && !is_of_other(listed));
        self.show_plain_views(&mut listed).await?;
        let definitions = self.definitions(&listed).await?.remove(name).unwrap_or_default();
        Ok(Found { tables, before, definitions, set_of_rows, ids })
    }

    async fn tables(&self, name: &str) -> Result<Vec<Listed>> {
        let sql = format!(
            "SELECT CONCAT(HEX(table_schema), ' ', HEX(table_name), ' ', table_type) FROM information_schema.tables WHERE \
             table_schema = {} AND table_type NOT LIKE '%VIEW' ORDER BY table_name",
            mysql_text(name)
        );
        let parse = |line: &String| {
            let mut words = line.splitn(3, ' ');
            let (schema, name) = (unhex(words.next()?)?, unhex(words.next()?)?);
            let kind = if words.next()? == "SEQUENCE" { DefinitionKind::Sequence } else { DefinitionKind::Table };
            Some(Listed {
                kind,
                schema,
                name,
                bytes: 0,
                of: String::new(),
                has_foreign_comment: false,
                is_from_lists: false,
            })
        };
        let tables = self.lines(&sql).await?;
        let mut tables = tables.iter().map(|line| parse(line).ok_or_else(unclear)).collect::<Result<Vec<_>>>()?;
        tables.retain(|table| table.schema == name);
        Ok(tables)
    }

    /// Leaves out tables with names that have lines which the client takes for its own commands.
    fn leave_out_unclear(&self, schema: &str, before: &mut Vec<Definition>) {
        let is_unclear = |found: &Definition| found.statement.split(|byte| *byte == b'\n').any(has_command);
        for found in before.iter().filter(|found| is_unclear(found)) {
            let name = name_text(format!("{schema}.{}", found.name).as_bytes());
            self.at.context.log.warn(format!(
                "The table {name} has a name, or a column with a name, that MySQL clients take for a command. It is not \
                 in this backup; rename it."
            ));
        }
        before.retain(|found| !is_unclear(found));
    }

    /// Servers print literals that have their own character set without escapes, so that some definitions are
    /// misleading and some are invalid.
    fn leave_out_misprinted(&self, schema: &str, before: &mut Vec<Definition>) -> Result<()> {
        const WHY: &str = "its definition is not clear: a default, check or expression has a string literal with its \
            own character set, such as _latin1'…', which the server prints without escapes. Write the literal \
            without a character set, or exclude the table.";
        self.leave_out_tables(schema, before, |found| !tables::is_clear(&found.statement), WHY)
    }

    /// Tables whose history the dump tool cannot read.
    fn leave_out_history_by_transactions(&self, schema: &str, before: &mut Vec<Definition>) -> Result<()> {
        const WHY: &str = "its history is kept by transactions (BIGINT UNSIGNED … AS ROW START), and the dump tool of \
            MariaDB cannot read that. Exclude the table, or keep its history by time.";
        self.leave_out_tables(schema, before, |found| is_versioned_by_transactions(&found.statement), WHY)
    }

    /// A backup of a whole server continues without such tables: otherwise, one tenant's table would make it fail for
    /// everybody.
    fn leave_out_tables(
        &self,
        schema: &str,
        before: &mut Vec<Definition>,
        is_left_out: impl Fn(&Definition) -> bool,
        why: &str,
    ) -> Result<()> {
        for found in before.extract_if(.., |found| is_left_out(found)) {
            let name = name_text(format!("{schema}.{}", found.name).as_bytes());
            let message = format!("The table {name} cannot be backed up: {why}");
            if self.source.database.name.is_some() {
                return Err(EngineError::new(FailureCode::RemoteFailed, message));
            }
            self.at.context.log.warn(format!("{message} It is not in this backup."));
        }
        Ok(())
    }

    /// Fails if a table cannot be read: the dump tool would silently write no rows of a table whose columns its user
    /// may not read. For a user who may read the whole database, the tables need not be checked.
    async fn may_read(&self, name: &str, tables: &[Table]) -> Result<()> {
        if mysql_grants(self.at, &self.source.login).await?.are_within(name, &["SELECT"]) {
            return Ok(());
        }
        self.at.context.log.warn(format!(
            "The database user may not read the whole database {}; tables that it does not see are not in this backup. \
             Grant it SELECT on the database.",
            name_text(name.as_bytes())
        ));
        for some in tables.chunks(AT_ONCE) {
            let select = |table: &Table| format!("SELECT * FROM {}.{} LIMIT 0;", quoted(name), quoted(&table.name));
            let selects: String = some.iter().map(select).collect();
            self.lines(&format!("{SET_UP}{selects}")).await.map_err(|error| {
                let message = format!("A table of {} cannot be read: {}", name_text(name.as_bytes()), error.message);
                error.reworded(message)
            })?;
        }
        Ok(())
    }

    /// The character set in which rows are read: no conversion if a table has a character set with bytes that are not
    /// characters, or with characters that conversion changes. With types that misinterpret binary text, rows are
    /// converted all the same.
    fn set_of_rows(&self, schema: &str, before: &[Definition]) -> &'static str {
        const PLAIN: [&str; 10] =
            ["utf8mb4", "utf8mb3", "utf8", "latin1", "binary", "ucs2", "utf16", "utf16le", "utf32", "filename"];
        const TEXT_ONLY: [&str; 3] = ["uuid", "inet6", "inet4"];
        let odd: Vec<&Definition> = before
            .iter()
            .filter(|found| sets_of(&found.statement).iter().any(|set| !PLAIN.contains(&set.as_str())))
            .collect();
        let is_text_only = |found: &Definition| TEXT_ONLY.iter().any(|of| has_type(&found.statement, of));
        if odd.is_empty() || !before.iter().any(is_text_only) {
            return if odd.is_empty() { "utf8mb4" } else { "binary" };
        }
        let names: Vec<String> =
            odd.iter().take(NAMED).map(|found| name_text(format!("{schema}.{}", found.name).as_bytes())).collect();
        self.at.context.log.warn(format!(
            "Text in these tables is converted to UTF-8, since the database has columns of the types UUID or INET: \
             bytes that are invalid in their character set come back as question marks: {}",
            names.join(", ")
        ));
        "utf8mb4"
    }

    fn warn_of_floats(&self, schema: &str, before: &[Definition]) {
        let tables =
            before.iter().filter(|found| found.kind == DefinitionKind::Table && has_type(&found.statement, "float"));
        let names: Vec<String> = tables.map(|found| format!("{schema}.{}", found.name)).take(NAMED).collect();
        warn_of_floats(&names, self.at.context);
    }

    /// What follows the rows. Sequence values are read only now: the rows that were read may use values that were taken
    /// in the meantime.
    pub(super) async fn after_rows(&self, name: &str, found: &Found) -> Result<Vec<Definition>> {
        self.are_unchanged(name, found).await?;
        let mut values = Vec::new();
        let sequences: Vec<&str> = found
            .before
            .iter()
            .filter(|one| one.kind == DefinitionKind::Sequence)
            .map(|one| one.name.as_str())
            .collect();
        for some in sequences.chunks(AT_ONCE) {
            let select = |sequence: &&str| {
                format!(
                    "SELECT CONCAT_WS(' ', next_not_cached_value, start_value, increment, cycle_count) FROM {}.{};",
                    quoted(name),
                    quoted(sequence)
                )
            };
            let lines = self.lines(&format!("{SET_UP}{}", some.iter().map(select).collect::<String>())).await?;
            let found = some.iter().zip(&lines).map(|(sequence, line)| value_of(sequence, line).ok_or_else(unclear));
            values.extend(found.collect::<Result<Vec<_>>>()?);
            if lines.len() != some.len() {
                return Err(unclear());
            }
        }
        values.extend(found.definitions.iter().cloned());
        Ok(values)
    }

    /// Fails if a table has changed since the backup began: the dump tool reads tables by name, one after the other. It
    /// silently reads nothing from a table that has been renamed by then, or that is a view.
    async fn are_unchanged(&self, name: &str, found: &Found) -> Result<()> {
        let changed = |table: &str, how: &str| {
            let table = name_text(format!("{name}.{table}").as_bytes());
            let message = format!("The table {table} was {how} while it was backed up; run the backup again.");
            Err(EngineError::new(FailureCode::RemoteFailed, message))
        };
        let now = match &found.ids {
            Some(_) => self.table_ids().await?.ok_or_else(unclear)?,
            None => TableIds::new(),
        };
        for (id, then) in found.ids.iter().flatten() {
            let now = now.get(id).filter(|now| *now != then);
            if now.is_some_and(|now| found.tables.contains(then) || found.tables.contains(now)) {
                return changed(&then.name, "renamed");
            }
        }
        let mut listed = self.tables(name).await?;
        listed.retain(|listed| listed.kind == DefinitionKind::Table && found.tables.contains(&listed.table()));
        let views = self.list(&[name], &[DefinitionKind::View]).await?;
        for table in &found.tables {
            // A table that was dropped after it was read is in the backup; if it was dropped before, the tool reports
            // it as missing.
            let is_known = found.ids.iter().flatten().any(|(_, then)| then == table);
            let is_gone = listed.iter().all(|listed| listed.name != table.name);
            if is_gone && (!is_known || views.iter().any(|view| view.name == table.name)) {
                return changed(&table.name, "dropped or renamed");
            }
        }
        let now = self.definitions(&listed).await?.remove(name).unwrap_or_default();
        for now in &now {
            let is_same = |then: &&Definition| then.kind == now.kind && then.name == now.name;
            let then = found.before.iter().find(is_same).map(|then| without_counter(&then.statement));
            if then.is_some_and(|then| then != without_counter(&now.statement)) {
                return changed(&now.name, "altered");
            }
        }
        Ok(())
    }

    /// `None` if the ids cannot be read. Tables that the server itself is about to drop have special names and are left
    /// out.
    async fn table_ids(&self) -> Result<Option<TableIds>> {
        let part = |text: &str| format!("HEX(CONVERT(CONVERT(BINARY {text} USING filename) USING utf8mb4))");
        let sql = format!(
            "SELECT CONCAT(table_id, ' ', {}, ' ', {}) FROM information_schema.innodb_sys_tables WHERE name LIKE '%/%' AND \
             name NOT LIKE '%/#sql%'",
            part("SUBSTRING_INDEX(name, '/', 1)"),
            part("SUBSTRING_INDEX(SUBSTRING_INDEX(name, '/', -1), '#P#', 1)")
        );
        let parse = |line: &String| {
            let mut words = line.split(' ');
            let mut word = || words.next();
            let (id, schema, name) = (word()?.parse().ok()?, unhex(word()?)?, unhex(word()?)?);
            Some((id, Table { schema, name }))
        };
        match self.many_lines(&sql).await {
            Ok(lines) => lines.iter().map(|line| parse(line).ok_or_else(unclear)).collect::<Result<_>>().map(Some),
            // The user lacks the privilege, or the server has no InnoDB.
            Err(error) if error.has_number(&[1227, 1109]) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The statement that sets a sequence to its current value.
fn value_of(sequence: &str, line: &str) -> Option<Definition> {
    let numbers: Vec<i64> = line.split(' ').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let [next, start, increment, round] = numbers[..] else { return None };
    let name = quoted(sequence);
    // `SETVAL` only moves a sequence forward, and the server cannot parse the least of all numbers: for that one, the
    // number before it is marked as used.
    let is_back = if increment < 0 { next > start } else { next < start };
    let statement = match next {
        i64::MIN => format!("DO SETVAL({name}, {}, 1, {round})", i64::MIN + 1),
        _ if is_back => format!("ALTER SEQUENCE {name} RESTART {next}"),
        _ => format!("DO SETVAL({name}, {next}, 0, {round})"),
    };
    let (name, statement, reading) = (sequence.to_owned(), statement.into_bytes(), tables::reading());
    Some(Definition { kind: DefinitionKind::SequenceValue, name, statement, reading }).filter(Definition::is_plausible)
}
