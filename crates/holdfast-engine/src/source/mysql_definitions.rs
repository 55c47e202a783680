//! Queries to a MySQL or MariaDB server, and the routines, triggers, views and events of its databases, as the server
//! prints them.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;
use holdfast_core::random::{from_hex, hex};

use super::database::{DatabasePlan, Table, unhex};
use super::mysql::{self, mysql_text};
use super::tool::explain;
use crate::error::{EngineError, Result};
use crate::mysql::definitions::{Definition, DefinitionKind, LONGEST, Reading, takes_prepared};
use crate::mysql::quotes::outside_quotes;
use crate::mysql::renaming::{calls_functions, names_in, without_database};
use crate::mysql::tables;
use crate::mysql::{is_word, quoted, unescaped};
use crate::remote::{Answer, Remote, RemoteSettings};

/// How many statements fit on one command line, with names of any length.
pub(super) const AT_ONCE: usize = 100;
/// How many views a warning names.
const NAMED_VIEWS: usize = 20;
/// How much text is asked for at once; an answer has room for eight times as much.
const BYTES_AT_ONCE: u64 = 1024 * 1024;
/// How many hexadecimal digits are converted at once: they are passed on a command line.
pub(super) const DIGITS_AT_ONCE: usize = 64 * 1024;
/// The most bytes of a long answer, such as the definition of a single routine.
const LONGEST_ANSWER: usize = LONGEST + 1024 * 1024;

/// Precedes queries about the contents of databases: the session settings that the dump tool uses for tables, and
/// read-only transactions.
pub(super) const SET_UP: &str =
    "SET SESSION sql_mode = '', time_zone = '+00:00', sql_quote_show_create = 1;SET SESSION TRANSACTION READ ONLY;";

/// Asks a server on behalf of a backup.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub at: Remote<'a>,
    pub source: &'a DatabasePlan,
}

/// A table, sequence, routine, trigger, view or event, as the server lists it.
#[derive(Debug)]
pub(super) struct Listed {
    pub kind: DefinitionKind,
    pub schema: String,
    pub name: String,
    pub bytes: u64,
    /// The table of a trigger, or the character set of a view.
    pub of: String,
    /// Whether a routine or an event has a comment whose character set or SQL mode differs from that of its text.
    pub has_foreign_comment: bool,
    /// Whether a view is read from the server's lists. To show it, the server would open what it reads from, and might
    /// run functions that are called there.
    pub is_from_lists: bool,
}

impl Listed {
    pub(super) fn table(&self) -> Table {
        let name = if self.kind == DefinitionKind::Trigger { &self.of } else { &self.name };
        Table { schema: self.schema.clone(), name: name.clone() }
    }

    /// Whether this is a view that the backup excludes, or a trigger of a table that it excludes.
    pub(super) fn is_excluded(&self, excluded: &[String]) -> bool {
        matches!(self.kind, DefinitionKind::View | DefinitionKind::Trigger)
            && excluded.iter().any(|text| self.table().is(text))
    }

    /// Kind and name, for messages.
    fn shown(&self) -> String {
        let name = name_text(format!("{}.{}", self.schema, self.name).as_bytes());
        format!("{} {name}", self.kind.words().to_ascii_lowercase())
    }

    fn is_view_in_other_set(&self) -> bool {
        self.kind == DefinitionKind::View && !self.is_from_lists && !self.of.starts_with("utf8")
    }

    /// How many lines the answer to `question` has.
    fn lines(&self) -> usize {
        1 + [self.has_foreign_comment, self.is_view_in_other_set()].into_iter().map(usize::from).sum::<usize>()
    }

    /// Asks for the definition in the character set that it was created in, which is that of its literals. The server
    /// stores views in another character set, and everything else as it was sent.
    fn question(&self) -> Result<String> {
        let (schema, name, words) = (quoted(&self.schema), quoted(&self.name), self.kind.words());
        if self.is_from_lists {
            return Ok(self.question_to_lists());
        }
        let show = format!("SHOW CREATE {words} {schema}.{name};");
        let results = if self.kind == DefinitionKind::View { self.of.as_str() } else { "binary" };
        let results = Some(results).filter(|word| is_word(word)).ok_or_else(unclear)?;
        // For the database in use, the server prints views without its name where possible.
        let mut sql = format!("USE {schema};");
        if self.has_foreign_comment {
            let (schema, name) = (mysql_text(&self.schema), mysql_text(&self.name));
            // Besides routines, only events have comments.
            sql += &if self.kind == DefinitionKind::Event {
                format!(
                    "SELECT HEX(event_comment) FROM information_schema.events WHERE BINARY event_schema = {schema} AND \
                     BINARY event_name = {name};"
                )
            } else {
                format!(
                    "SELECT HEX(routine_comment) FROM information_schema.routines WHERE BINARY routine_schema = {schema} \
                     AND BINARY routine_name = {name} AND routine_type = '{words}';"
                )
            };
        }
        sql += &format!("SET SESSION character_set_results = {results};{show}");
        if self.is_view_in_other_set() {
            sql += &format!("SET SESSION character_set_results = utf8mb4;{show}");
        }
        Ok(sql + "SET SESSION character_set_results = utf8mb4;")
    }
}

impl Listed {
    /// Asks the server's lists for the text of a view. They lack the character sets that literals specify for
    /// themselves.
    fn question_to_lists(&self) -> String {
        format!(
            "SELECT CONCAT_WS(' ', HEX(view_definition), HEX(definer), security_type, algorithm, check_option, \
             collation_connection) FROM information_schema.views WHERE table_schema = {0} AND table_name = {1} AND BINARY \
             table_schema = {0} AND BINARY table_name = {1};",
            mysql_text(&self.schema),
            mysql_text(&self.name)
        )
    }

    /// Parses the answer to `question_to_lists`.
    fn parse_listed(&self, line: &[u8]) -> Option<Definition> {
        let line = std::str::from_utf8(line).ok()?;
        let words: Vec<&str> = line.split(' ').collect();
        let [body, definer, security, algorithm, check, collation] = words[..] else { return None };
        let definer = unhex(definer)?;
        let definer = match definer.rsplit_once('@') {
            // Only a role has no host.
            Some((role, "")) => quoted(role),
            Some((user, host)) => format!("{}@{}", quoted(user), quoted(host)),
            None => quoted(&definer),
        };
        if ![security, algorithm, check, collation].iter().all(|word| is_word(word)) {
            return None;
        }
        let name = quoted(&self.name);
        let head = format!("CREATE ALGORITHM={algorithm} DEFINER={definer} SQL SECURITY {security} VIEW {name} AS ");
        let check = if check == "NONE" { String::new() } else { format!(" WITH {check} CHECK OPTION") };
        let body = without_database(&from_hex(body)?, &self.schema);
        let statement = [head.into_bytes(), body, check.into_bytes()].concat();
        let reading = Reading {
            character_set: Some(&self.of).filter(|set| is_word(set))?.clone(),
            collation: collation.to_owned(),
            ..Reading::default()
        };
        Some(Definition { kind: DefinitionKind::View, name: self.name.clone(), statement, reading })
    }
}

/// Definitions by the name of their database.
pub(super) type ByDatabase = BTreeMap<String, Vec<Definition>>;

impl Asking<'_> {
    /// Runs a query and returns the lines that the client prints.
    pub(super) async fn lines(&self, sql: &str) -> Result<Vec<String>> {
        let lines = self.raw_lines(sql).await?;
        lines.into_iter().map(|line| String::from_utf8(line).map_err(|_| unclear())).collect()
    }

    /// As `lines`, for a long answer, such as one about all tables of a server.
    pub(super) async fn many_lines(&self, sql: &str) -> Result<Vec<String>> {
        let settings = RemoteSettings { answer_bytes: LONGEST_ANSWER, ..self.at.settings.clone() };
        let asking = Asking { at: Remote { settings: &settings, ..self.at }, ..*self };
        asking.lines(sql).await
    }

    /// As `lines`, in any character set.
    async fn raw_lines(&self, sql: &str) -> Result<Vec<Vec<u8>>> {
        let answer = self.answer(sql, self.at.settings).await?;
        self.judged(&answer)
    }

    async fn answer(&self, sql: &str, settings: &RemoteSettings) -> Result<Answer> {
        mysql::query(Remote { settings, ..self.at }, &self.source.login, sql).await
    }

    fn judged(&self, answer: &Answer) -> Result<Vec<Vec<u8>>> {
        if !answer.exit.success() {
            return Err(explain(mysql::tool("mysql"), &answer.exit, &answer.stderr, self.at.context));
        }
        let text = answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout);
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(<[u8]>::to_vec).collect())
    }

    /// Whether definitions can be read and restored as data. Otherwise the dump tool writes routines, triggers and
    /// events.
    pub(super) async fn gives_definitions(&self) -> Result<bool> {
        Ok(self.lines("SELECT VERSION()").await?.first().is_some_and(|version| takes_prepared(version)))
    }

    /// The name of a database as the server spells it: some servers ignore case in names.
    pub(super) async fn spelling(&self, name: &str) -> Result<String> {
        let sql = format!(
            "SELECT HEX(schema_name) FROM information_schema.schemata WHERE schema_name = {}",
            mysql_text(name)
        );
        let found: Vec<String> = self.lines(&sql).await?.iter().filter_map(|line| unhex(line)).collect();
        if found.is_empty() {
            let message = format!(
                "Unknown database: {} does not exist, or the database user may not see it.",
                name_text(name.as_bytes())
            );
            return Err(EngineError::new(FailureCode::DatabaseMissing, message));
        }
        Ok(if let [one] = &found[..] { one.clone() } else { name.to_owned() })
    }

    /// Lists what these databases have of these kinds.
    pub(super) async fn list(&self, databases: &[&str], kinds: &[DefinitionKind]) -> Result<Vec<Listed>> {
        let listed = |table: &str, prefix: &str, (text, of): (&str, &str), kind: &str, order: &str| {
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
        if kinds.contains(&DefinitionKind::Procedure) {
            // A comment is sent twice, once in hexadecimal digits.
            let text = "routine_definition), 0) + 3 * COALESCE(LENGTH(routine_comment";
            let foreign = "IF(character_set_client NOT LIKE 'utf8%' AND LENGTH(routine_comment) <> \
                CHAR_LENGTH(routine_comment) OR sql_mode LIKE '%NO_BACKSLASH_ESCAPES%' AND routine_comment <> '', '!', '')";
            sql += &listed("routines", "routine", (text, foreign), "routine_type", "routine_name");
        }
        if kinds.contains(&DefinitionKind::Trigger) {
            // The triggers of a table run in this order.
            let order = "event_object_table, event_manipulation, action_timing, action_order";
            sql += &listed("triggers", "trigger", ("action_statement", "event_object_table"), "'TRIGGER'", order);
        }
        if kinds.contains(&DefinitionKind::View) {
            sql += &listed("views", "table", ("view_definition", "character_set_client"), "'VIEW'", "table_name");
        }
        if kinds.contains(&DefinitionKind::Event) {
            self.may_see_events(databases).await?;
            let text = "event_definition), 0) + 3 * COALESCE(LENGTH(event_comment";
            let foreign = "IF(sql_mode LIKE '%NO_BACKSLASH_ESCAPES%' AND event_comment <> '', '!', '')";
            sql += &listed("events", "event", (text, foreign), "'EVENT'", "event_name");
        }
        let parse = |line: &String| {
            let mut words = line.splitn(5, ' ');
            let mut word = || words.next();
            let (schema, name, bytes) = (unhex(word()?)?, unhex(word()?)?, word()?.parse().ok()?);
            let (of, kind) = (unhex(word()?)?, DefinitionKind::parse(word()?)?);
            let has_foreign_comment = of == "!" && !matches!(kind, DefinitionKind::View | DefinitionKind::Trigger);
            Some(Listed { kind, schema, name, bytes, of, has_foreign_comment, is_from_lists: false })
        };
        let all = self.lines(&sql).await?;
        let all = all.iter().map(|line| parse(line).ok_or_else(unclear)).collect::<Result<Vec<_>>>()?;
        // The server's own comparison ignores case.
        let is_ours = |listed: &Listed| databases.contains(&listed.schema.as_str());
        Ok(all.into_iter().filter(is_ours).collect())
    }

    /// Fails if there may be events that the user does not see: the server's lists do not mention those.
    async fn may_see_events(&self, databases: &[&str]) -> Result<()> {
        for some in databases.chunks(AT_ONCE) {
            let shown: String =
                some.iter().map(|name| format!("SHOW EVENTS FROM {} WHERE LENGTH(name) = 0;", quoted(name))).collect();
            self.lines(&shown).await.map_err(|error| {
                let is_denied = error.has_number(&[1044]);
                let hint = if is_denied { " Grant the database user EVENT, so that it sees events." } else { "" };
                error.reworded(format!("{}{hint}", error.message))
            })?;
        }
        Ok(())
    }

    /// Reads the definitions of these.
    pub(super) async fn definitions(&self, listed: &[Listed]) -> Result<ByDatabase> {
        let now = self.collations().await?;
        let mut all = ByDatabase::new();
        for some in chunks(listed) {
            let mut found = Vec::new();
            for (listed, lines) in self.shown(some).await? {
                let (lines, comment) = match listed.has_foreign_comment {
                    true => (&lines[1..], comment_of(&lines[0])),
                    false => (&lines[..], String::new()),
                };
                let definition = if listed.is_from_lists {
                    lines.first().and_then(|line| listed.parse_listed(line))
                } else {
                    parse_shown(listed, lines, now.get(&listed.schema).map(String::as_str))
                };
                let definition = definition.map(|found| found.with_readable_comment(&comment));
                let definition = definition.filter(Definition::is_plausible).ok_or_else(|| {
                    let message = format!(
                        "The server did not say what the {} is. The database user may lack the right to see it: grant it \
                         SELECT on mysql.proc for routines, SHOW VIEW, TRIGGER and EVENT.",
                        listed.shown()
                    );
                    EngineError::new(FailureCode::RemoteFailed, message)
                })?;
                found.push((listed, comment, definition));
            }
            for (listed, definition) in self.in_one_set(found).await? {
                all.entry(listed.schema.clone()).or_default().push(definition);
            }
        }
        Ok(all)
    }

    /// The lines of the answer about each of these. What the server cannot show is logged and left out: nobody else can
    /// use it either.
    async fn shown<'l, L: Borrow<Listed>>(&self, some: &'l [L]) -> Result<Vec<(&'l Listed, Vec<Vec<u8>>)>> {
        let long = RemoteSettings { answer_bytes: LONGEST_ANSWER, ..self.at.settings.clone() };
        let (mut waiting, mut shown) = (vec![some], Vec::new());
        while let Some(some) = waiting.pop() {
            let questions = some.iter().map(|listed| listed.borrow().question()).collect::<Result<String>>()?;
            let is_long = some.len() == 1 || some.iter().any(|listed| listed.borrow().kind == DefinitionKind::Table);
            let settings = if is_long { &long } else { self.at.settings };
            // Older servers may run functions of a view to show it; nothing that the functions do lasts.
            let answer = match (self.answer(&format!("{SET_UP}{questions}"), settings).await, some) {
                (Err(error), [_, _, ..]) if error.is_too_long => {
                    let (first, second) = some.split_at(some.len() / 2);
                    waiting.extend([second, first]);
                    continue;
                }
                (answer, _) => answer?,
            };
            // Asking about smaller groups shows which of them failed.
            if let (false, [_, _, ..]) = (answer.exit.success(), some) {
                let (first, second) = some.split_at(some.len() / 2);
                waiting.extend([second, first]);
                continue;
            }
            match (self.judged(&answer), some) {
                (Ok(lines), _) if lines.len() == some.iter().map(|listed| listed.borrow().lines()).sum::<usize>() => {
                    let mut lines = lines.into_iter();
                    shown.extend(some.iter().map(|listed| {
                        let listed = listed.borrow();
                        (listed, lines.by_ref().take(listed.lines()).collect())
                    }));
                }
                (Ok(_), _) => return Err(unclear()),
                (Err(error), [listed]) => self.leave_out(listed.borrow(), &error)?,
                (Err(error), _) => return Err(error),
            }
        }
        Ok(shown)
    }

    /// Leaves out something that the server did not show, or fails.
    fn leave_out(&self, listed: &Listed, error: &EngineError) -> Result<()> {
        /// It does not exist any more.
        const GONE: [u16; 5] = [1146, 1305, 1347, 1360, 1539];
        /// The database user lacks rights.
        const OURS: [u16; 6] = [1044, 1045, 1142, 1143, 1227, 1370];
        let shown = listed.shown();
        let unread = || error.reworded(format!("The {shown} could not be read. {}", error.message));
        // A client prints the statement before the error: a name with a line break could fake another error.
        if [&listed.schema, &listed.name].iter().any(|name| name.contains(char::is_control)) {
            return Err(unread());
        }
        if error.has_number(&GONE) {
            self.at.context.log.line(format!("The {shown} was dropped meanwhile and is not in this backup."));
            return Ok(());
        }
        // 1168 is a merge table whose tables are gone; any other table that cannot be read is damaged.
        let is_damaged = listed.kind.is_before_rows() && !error.has_number(&[1168]);
        // Numbers from 2000 on are errors of the client.
        let is_clients = error.number.is_none_or(|number| (2000..3000).contains(&number));
        if error.has_number(&OURS) || is_damaged || is_clients {
            return Err(unread());
        }
        self.at.context.log.warn(format!(
            "The {shown} is broken, so the server does not show it, and it is not in this backup: {}",
            error.message
        ));
        Ok(())
    }

    /// Converts each definition to a single character set.
    async fn in_one_set<'l>(
        &self,
        mut all: Vec<(&'l Listed, String, Definition)>,
    ) -> Result<Vec<(&'l Listed, Definition)>> {
        let mut parts: Vec<(usize, Range<usize>, String)> = Vec::new();
        for (index, (listed, comment, definition)) in all.iter().enumerate() {
            let part = match listed.is_from_lists {
                true => definition.whole_in_utf8(),
                false => definition.part_in_utf8(comment),
            };
            if let Some(part) = part {
                parts.push((index, part.clone(), hex(&definition.statement[part])));
            }
        }
        let mut rest = &parts[..];
        while !rest.is_empty() {
            let mut digits = 0;
            let fits = |(_, _, part): &&(usize, Range<usize>, String)| {
                digits += part.len() + 256;
                digits <= DIGITS_AT_ONCE
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (some, later) = rest.split_at(count);
            rest = later;
            let select = |(index, _, digits): &(usize, Range<usize>, String)| {
                let set = &all[*index].2.reading.character_set;
                format!(
                    "SELECT CONCAT(HEX(c), ' ', HEX(CONVERT(c USING utf8mb4))) FROM (SELECT CONVERT(CONVERT(X'{digits}' \
                     USING utf8mb4) USING {set}) AS c) t;"
                )
            };
            let is_short = some.iter().all(|(_, _, digits)| digits.len() <= DIGITS_AT_ONCE);
            let sql: String = some.iter().map(select).collect();
            let answer = if is_short { self.lines(&sql).await? } else { vec![String::new(); some.len()] };
            if answer.len() != some.len() {
                return Err(unclear());
            }
            for ((index, part, digits), line) in some.iter().zip(answer) {
                let (listed, _, definition) = &mut all[*index];
                let converted = line.split_once(' ').filter(|(_, back)| back.eq_ignore_ascii_case(digits));
                match converted.and_then(|(there, _)| from_hex(there)) {
                    Some(converted) => drop(definition.statement.splice(part.clone(), converted)),
                    // It stays in the character set of the lists.
                    None if listed.is_from_lists => definition.reading.character_set = "utf8mb4".to_owned(),
                    None => self.at.context.log.warn(format!(
                        "The {} has a name, a comment or a definer that cannot be written in {}, the character \
                         set of its text. It will be restored with other characters there.",
                        listed.shown(),
                        definition.reading.character_set
                    )),
                }
            }
        }
        Ok(all.into_iter().map(|(listed, _, definition)| (listed, definition)).collect())
    }

    /// Decides which of these views the server is asked to show: its lists lack the character sets of literals. This is
    /// safe for a view that neither calls functions, nor reads from one that does or from another database: opening it
    /// runs nothing.
    pub(super) async fn show_plain_views(&self, listed: &mut [Listed]) -> Result<()> {
        listed.iter_mut().for_each(|listed| listed.is_from_lists = listed.kind == DefinitionKind::View);
        let views: Vec<&Listed> = listed.iter().filter(|listed| listed.is_from_lists).collect();
        let databases = self.collations().await?;
        let mut texts = BTreeMap::new();
        for some in chunks(&views) {
            for (listed, lines) in self.shown(some).await? {
                let text = lines.first().and_then(|line| listed.parse_listed(line));
                texts.insert(listed.name.clone(), ViewText::new(text, &listed.schema, databases.keys()));
            }
        }
        // A view that reads from an unsafe view is unsafe too.
        loop {
            let unsafe_names: Vec<String> =
                texts.iter().filter(|(_, text)| !text.is_plain).map(|(name, _)| name.clone()).collect();
            let reads = |text: &ViewText| text.names.iter().any(|name| unsafe_names.contains(name));
            let found: Vec<String> =
                texts.iter().filter(|(_, text)| text.is_plain && reads(text)).map(|(name, _)| name.clone()).collect();
            if found.is_empty() {
                break;
            }
            for name in found {
                texts.entry(name).and_modify(|text| text.is_plain = false);
            }
        }
        for view in listed.iter_mut().filter(|listed| listed.is_from_lists) {
            view.is_from_lists = texts.get(&view.name).is_none_or(|text| !text.is_plain);
        }
        let with_texts = listed.iter().filter(|listed| listed.is_from_lists);
        let with_texts = with_texts.filter(|listed| texts.get(&listed.name).is_some_and(|text| text.has_literal));
        let names: Vec<String> = with_texts.map(|listed| format!("{}.{}", listed.schema, listed.name)).collect();
        if !names.is_empty() {
            let shown: Vec<String> = names.iter().take(NAMED_VIEWS).map(|name| name_text(name.as_bytes())).collect();
            self.at.context.log.warn(format!(
                "{} views call functions or read from other databases, and contain string literals. The server does \
                 not report the character sets of these without running the functions: a literal with its own \
                 (_latin1'…', _binary'…') will be restored without it: {}.",
                names.len(),
                shown.join(", ")
            ));
        }
        Ok(())
    }

    /// The collation of each database.
    async fn collations(&self) -> Result<BTreeMap<String, String>> {
        let sql = "SELECT CONCAT(HEX(schema_name), ' ', default_collation_name) FROM information_schema.schemata";
        let parse = |line: &String| {
            let (name, collation) = line.split_once(' ')?;
            Some((unhex(name)?, collation.to_owned()))
        };
        self.lines(sql).await?.iter().map(|line| parse(line).ok_or_else(unclear)).collect()
    }
}

/// What is known about a view from its text.
struct ViewText {
    is_plain: bool,
    has_literal: bool,
    /// All names in it, whatever they are names of.
    names: BTreeSet<String>,
}

impl ViewText {
    fn new<'d>(found: Option<Definition>, schema: &str, databases: impl Iterator<Item = &'d String>) -> Self {
        let text = found.map(|found| found.statement).unwrap_or_default();
        let names = names_in(&text);
        let others: BTreeSet<&String> = databases.filter(|name| *name != schema).collect();
        let is_plain = !text.is_empty() && !calls_functions(&text) && !names.iter().any(|name| others.contains(name));
        let has_literal = outside_quotes(&text, |rest| rest.starts_with(b"'")).is_some();
        Self { is_plain, has_literal, names }
    }
}

/// Splits a list into groups, so that neither a query nor its answer is too long.
fn chunks<L: Borrow<Listed>>(mut listed: &[L]) -> Vec<&[L]> {
    let mut all = Vec::new();
    while !listed.is_empty() {
        let mut bytes = 0;
        let fits = |one: &&L| {
            bytes += (*one).borrow().bytes;
            bytes <= BYTES_AT_ONCE
        };
        let count = listed.iter().take(AT_ONCE).take_while(fits).count().max(1);
        let (now, later) = listed.split_at(count);
        all.push(now);
        listed = later;
    }
    all
}

/// Decodes a comment that was sent in hexadecimal digits.
fn comment_of(line: &[u8]) -> String {
    std::str::from_utf8(line).ok().and_then(unhex).unwrap_or_default()
}

/// Parses an answer: the name, the SQL mode, the time zone of an event, the statement, and how the server read it.
fn parse_shown(listed: &Listed, lines: &[Vec<u8>], now: Option<&str>) -> Option<Definition> {
    if listed.kind.is_before_rows() {
        let statement = unescaped(lines[0].split(|byte| *byte == b'\t').nth(1)?);
        return Some(Definition {
            kind: listed.kind,
            name: listed.name.clone(),
            statement,
            reading: tables::reading(),
        });
    }
    let first = parse_line(listed, &lines[0], now)?;
    let Some(in_utf8) = lines.get(1) else { return Some(first) };
    // A view may have a name that cannot be written in its own character set.
    let in_utf8 = parse_line(listed, in_utf8, now)?;
    let Some(statement) = in_utf8.with_name(&listed.name) else { return Some(first) };
    let reading =
        Reading { character_set: "utf8mb4".to_owned(), collation: "utf8mb4_general_ci".to_owned(), ..in_utf8.reading };
    Some(Definition { statement, reading, ..in_utf8 })
}

fn parse_line(listed: &Listed, line: &[u8], now: Option<&str>) -> Option<Definition> {
    let mut values = line.split(|byte| *byte == b'\t').skip(1);
    let mut value = || values.next().map(unescaped);
    let mut text = || value().and_then(|value| String::from_utf8(value).ok());
    let is_view = listed.kind == DefinitionKind::View;
    let sql_mode = if is_view { String::new() } else { text()? };
    let time_zone = if listed.kind == DefinitionKind::Event { Some(text()?) } else { None };
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
    EngineError::new(FailureCode::RemoteFailed, "The server's answer about what it holds could not be understood.")
}
