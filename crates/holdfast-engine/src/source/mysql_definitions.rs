//! What a MySQL or MariaDB server says about itself, and the routines, triggers, views and events of its databases, each as
//! the server gives it.

use std::collections::BTreeMap;

use holdfast_core::backup::name_text;
use holdfast_core::random::{from_hex, hex};
use holdfast_core::run::FailureCode;
use holdfast_core::task::DatabaseEngine;

use super::database::{self, DatabaseSource, Table, mysql_text, unhex};
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::mysql::definitions::{Definition, Kind, Reading, section, takes_prepared};
use crate::mysql::{is_word, quoted, unescaped};
use crate::remote::RemoteSettings;
use crate::ssh::Connection;

/// Statements that one command line holds, with names of any length.
const AT_ONCE: usize = 100;
/// How much text is asked for at once; an answer has room for eight times as much.
const BYTES_AT_ONCE: u64 = 1024 * 1024;

/// The longest part of a statement that is converted, in hexadecimal digits: it is on a command line.
const LONGEST_PART: usize = 64 * 1024;

/// Somebody who asks a server.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub connection: &'a Connection,
    pub source: &'a DatabaseSource,
    pub settings: &'a RemoteSettings,
    pub context: &'a Context,
}

/// Something that a server has.
pub(super) struct Listed {
    pub kind: Kind,
    pub schema: String,
    pub name: String,
    bytes: u64,
    /// The table of a trigger, the character set of a view, or the comment of a routine.
    of: String,
}

impl Listed {
    pub(super) fn table(&self) -> Table {
        let name = if self.kind == Kind::Trigger { &self.of } else { &self.name };
        Table { schema: self.schema.clone(), name: name.clone() }
    }

    /// Whether this is one of the tables that a backup leaves out, or belongs to one.
    pub(super) fn is_excluded(&self, excluded: &[String]) -> bool {
        matches!(self.kind, Kind::View | Kind::Trigger) && excluded.iter().any(|text| self.table().is(text))
    }
}

/// Definitions of databases, by the database's name.
pub(super) type ByDatabase = BTreeMap<String, Vec<Definition>>;

impl Asking<'_> {
    /// The lines that the client prints.
    pub(super) async fn lines(&self, sql: &str) -> Result<Vec<String>> {
        let lines = self.raw_lines(sql).await?;
        lines.into_iter().map(|line| String::from_utf8(line).map_err(|_| unclear())).collect()
    }

    /// The same in whichever character set they are.
    async fn raw_lines(&self, sql: &str) -> Result<Vec<Vec<u8>>> {
        let Self { connection, source, settings, context } = *self;
        const ENGINE: DatabaseEngine = DatabaseEngine::Mysql;
        let answer = database::query(connection, ENGINE, "", sql, &source.login, settings, context).await?;
        if !answer.exit.success() {
            return Err(database::explain("The database client", &answer.exit, &answer.stderr, context));
        }
        let text = answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout);
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(<[u8]>::to_vec).collect())
    }

    /// Whether everything can be asked for and made again as data. Else the dump tool writes routines, triggers and events.
    pub(super) async fn gives_definitions(&self) -> Result<bool> {
        Ok(self.lines("SELECT VERSION()").await?.first().is_some_and(|version| takes_prepared(version)))
    }

    /// A database's name as the server spells it: some take names for the same that differ by case.
    pub(super) async fn spelling(&self, name: &str) -> Result<String> {
        let sql = format!(
            "SELECT HEX(schema_name) FROM information_schema.schemata WHERE schema_name = {}",
            mysql_text(name)
        );
        let found: Vec<String> = self.lines(&sql).await?.iter().filter_map(|line| unhex(line)).collect();
        Ok(if let [one] = &found[..] { one.clone() } else { name.to_owned() })
    }

    /// What these databases have of some kinds.
    pub(super) async fn list(&self, databases: &[&str], kinds: &[Kind]) -> Result<Vec<Listed>> {
        let listed = |table: &str, prefix: &str, text: &str, of: &str, kind: &str, order: &str| {
            let only = match databases {
                [one] => format!("{prefix}_schema = {}", mysql_text(one)),
                _ => "TRUE".to_owned(),
            };
            format!(
                "SELECT CONCAT(HEX({prefix}_schema), ' ', HEX({prefix}_name), ' ', COALESCE(LENGTH({text}), 0), ' ', \
                 HEX({of}), ' ', {kind}) FROM information_schema.{table} WHERE {only} ORDER BY {order};"
            )
        };
        let mut sql = String::new();
        if kinds.contains(&Kind::Procedure) {
            sql +=
                &listed("routines", "routine", "routine_definition", "routine_comment", "routine_type", "routine_name");
        }
        if kinds.contains(&Kind::Trigger) {
            // Those of one table run in this order.
            let order = "event_object_table, event_manipulation, action_timing, action_order";
            sql += &listed("triggers", "trigger", "action_statement", "event_object_table", "'TRIGGER'", order);
        }
        if kinds.contains(&Kind::View) {
            sql += &listed("views", "table", "view_definition", "character_set_client", "'VIEW'", "table_name");
        }
        if kinds.contains(&Kind::Event) {
            self.may_see_events(databases).await?;
            sql += &listed("events", "event", "event_definition", "''", "'EVENT'", "event_name");
        }
        let parse = |line: &String| {
            let mut words = line.splitn(5, ' ');
            let mut word = || words.next();
            let (schema, name, bytes) = (unhex(word()?)?, unhex(word()?)?, word()?.parse().ok()?);
            let (of, kind) = (unhex(word()?)?, Kind::parse(word()?)?);
            Some(Listed { kind, schema, name, bytes, of })
        };
        let all = self.lines(&sql).await?;
        let all = all.iter().map(|line| parse(line).ok_or_else(unclear)).collect::<Result<Vec<_>>>()?;
        // The server's own comparison takes names for the same that differ by case.
        let is_ours = |listed: &Listed| databases.contains(&listed.schema.as_str());
        Ok(all.into_iter().filter(is_ours).collect())
    }

    /// Lists hold the events that one may see, and say nothing about others; this fails when there may be others.
    async fn may_see_events(&self, databases: &[&str]) -> Result<()> {
        for some in databases.chunks(AT_ONCE) {
            let shown: String =
                some.iter().map(|name| format!("SHOW EVENTS FROM {} WHERE LENGTH(name) = 0;", quoted(name))).collect();
            self.lines(&shown).await.map_err(|error| {
                let is_denied = error.message.contains("ERROR 1044 ");
                let hint = if is_denied { " Grant the database user EVENT, so that it sees events." } else { "" };
                EngineError::new(error.code, format!("{}{hint}", error.message))
            })?;
        }
        Ok(())
    }

    /// What each of these is.
    pub(super) async fn definitions(&self, listed: &[Listed]) -> Result<ByDatabase> {
        let now = self.collations().await?;
        let mut all = ByDatabase::new();
        for some in chunks(listed) {
            let shown = some.iter().map(show).collect::<Result<String>>()?;
            let lines = self.raw_lines(&format!("SET SESSION sql_mode = '';{shown}")).await?;
            if lines.len() != some.len() {
                return Err(unclear());
            }
            for (listed, line) in some.iter().zip(lines) {
                let definition = parse_shown(listed, &line, now.get(&listed.schema).map(String::as_str));
                let definition = definition.filter(Definition::is_plausible).ok_or_else(|| {
                    let name = name_text(format!("{}.{}", listed.schema, listed.name).as_bytes());
                    let what = listed.kind.words().to_ascii_lowercase();
                    let message = format!(
                        "The server did not say what the {what} {name} is. The database user may lack the right to see it: \
                         grant it SELECT on mysql.proc for routines, SHOW VIEW, TRIGGER and EVENT."
                    );
                    EngineError::new(FailureCode::RemoteFailed, message)
                })?;
                let definition = self.in_one_set(listed, definition).await?;
                all.entry(listed.schema.clone()).or_default().push(definition);
            }
        }
        Ok(all)
    }

    /// The same in one character set as a whole.
    async fn in_one_set(&self, listed: &Listed, mut definition: Definition) -> Result<Definition> {
        let Some(part) = definition.part_in_utf8(&listed.of) else { return Ok(definition) };
        let (digits, character_set) = (hex(&definition.statement[part.clone()]), &definition.reading.character_set);
        let sql = format!(
            "SELECT CONCAT(HEX(c), ' ', HEX(CONVERT(c USING utf8mb4))) FROM (SELECT CONVERT(CONVERT(X'{digits}' USING \
             utf8mb4) USING {character_set}) AS c) t"
        );
        let answer = if digits.len() > LONGEST_PART { Vec::new() } else { self.lines(&sql).await? };
        let converted = answer.first().and_then(|line| line.split_once(' '));
        let converted = converted.filter(|(_, back)| back.eq_ignore_ascii_case(&digits));
        match converted.and_then(|(there, _)| from_hex(there)) {
            Some(converted) => drop(definition.statement.splice(part, converted)),
            None => self.context.log.warn(format!(
                "The {} {} has a name, a comment or a definer that cannot be written in {character_set}, which its text is \
                 in. It comes back with other characters there.",
                listed.kind.words().to_ascii_lowercase(),
                name_text(format!("{}.{}", listed.schema, listed.name).as_bytes())
            )),
        }
        Ok(definition)
    }

    /// The collations of databases.
    async fn collations(&self) -> Result<BTreeMap<String, String>> {
        let sql = "SELECT CONCAT(HEX(schema_name), ' ', default_collation_name) FROM information_schema.schemata";
        let parse = |line: &String| {
            let (name, collation) = line.split_once(' ')?;
            Some((unhex(name)?, collation.to_owned()))
        };
        self.lines(sql).await?.iter().map(|line| parse(line).ok_or_else(unclear)).collect()
    }
}

/// Some at a time, so that neither the question nor the answer is too long.
fn chunks(mut listed: &[Listed]) -> Vec<&[Listed]> {
    let mut all = Vec::new();
    while !listed.is_empty() {
        let mut bytes = 0;
        let fits = |one: &&Listed| {
            bytes += one.bytes;
            bytes <= BYTES_AT_ONCE
        };
        let count = listed.iter().take(AT_ONCE).take_while(fits).count().max(1);
        let (now, later) = listed.split_at(count);
        all.push(now);
        listed = later;
    }
    all
}

/// Asks for one of them in the character set that it was made in, which is what its literals are in. The server keeps
/// views in another one, and the rest as it came.
fn show(listed: &Listed) -> Result<String> {
    let (schema, name, words) = (quoted(&listed.schema), quoted(&listed.name), listed.kind.words());
    let results = if listed.kind == Kind::View { listed.of.as_str() } else { "binary" };
    let results = Some(results).filter(|word| is_word(word)).ok_or_else(unclear)?;
    // In the database itself, views are given without its name where that is possible.
    Ok(format!("SET SESSION character_set_results = {results}; USE {schema}; SHOW CREATE {words} {schema}.{name};"))
}

/// The routines, triggers, views and events of one database.
pub(super) struct Single {
    /// What is written behind its dump.
    pub section: String,
    /// Its views, which the dump tool leaves out.
    pub views: Vec<Table>,
}

impl Asking<'_> {
    /// `None` when the dump tool has to write them.
    pub(super) async fn single(&self, name: &str) -> Result<Option<Single>> {
        if !self.gives_definitions().await? {
            return Ok(None);
        }
        let name = self.spelling(name).await?;
        let mut listed = self.list(&[&name], &Kind::ALL).await?;
        let views = listed.iter().filter(|listed| listed.kind == Kind::View).map(Listed::table).collect();
        listed.retain(|listed| !listed.is_excluded(&self.source.excluded_tables));
        let definitions = self.definitions(&listed).await?.remove(&name).unwrap_or_default();
        Ok(Some(Single { section: section(definitions)?, views }))
    }
}

/// Reads an answer: the name, the SQL mode, the time zone of an event, the statement, and how it was read.
fn parse_shown(listed: &Listed, line: &[u8], now: Option<&str>) -> Option<Definition> {
    let mut values = line.split(|byte| *byte == b'\t').skip(1);
    let mut value = || values.next().map(unescaped);
    let mut text = || value().and_then(|value| String::from_utf8(value).ok());
    let is_view = listed.kind == Kind::View;
    let sql_mode = if is_view { String::new() } else { text()? };
    let time_zone = if listed.kind == Kind::Event { Some(text()?) } else { None };
    let statement = value()?;
    let mut text = || value().and_then(|value| String::from_utf8(value).ok());
    let (character_set, collation) = (text()?, text()?);
    let then = if is_view { None } else { Some(text()?) };
    let differs = |(then, now): &(String, &str)| then != now && is_word(then);
    let collations = then.zip(now).filter(differs).map(|(then, now)| (then, now.to_owned()));
    let reading = Reading { character_set, collation, sql_mode, time_zone, collations };
    Some(Definition { kind: listed.kind, name: listed.name.clone(), statement, reading })
}

pub(super) fn unclear() -> EngineError {
    EngineError::new(FailureCode::RemoteFailed, "The server did not say what it holds in a way that we understand.")
}
