//! Rewrites a dump of MySQL or MariaDB while it is restored: definers, events of copies, and the name of the database.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_core::random;

use super::definitions::{self, Definition, Section};
use super::heads::{without_definer, without_qualifiers};
use super::renaming::{renamed, renamed_view};
use super::statements::{COMMAND, Rules, Statement, has_command, unclear};
use super::tables::{self, Later, Movable};
use super::{account_length, name_length};
use crate::error::EngineError;

/// Users and roles as written in statements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Definers(Arc<Mutex<BTreeSet<String>>>);

impl Definers {
    fn note(&self, line: &[u8]) {
        let account = &line[VIEW_DEFINER.len()..];
        let Some(length) = account_length(account) else { return };
        let name = String::from_utf8_lossy(&account[..length]).into_owned();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// What is changed in a dump while it is restored.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rewriting {
    /// Leave out every `DEFINER`, so that what is made belongs to whoever loads it.
    pub without_definers: bool,
    /// Leave out views, and note their definers here.
    pub view_definers: Option<Definers>,
    /// Leave out events, which would start to run, and count them in `events`.
    pub without_events: bool,
    pub events: Arc<AtomicUsize>,
    /// The name of the dumped database, if it is loaded under another name: views, triggers and defaults may contain
    /// it.
    pub old_name: Option<String>,
    /// The name that views get instead; `None` to remove it.
    pub new_name: Option<String>,
    /// The version of a server that cannot prepare statements to create something, so that its client reads them.
    pub unprepared: Option<String>,
    /// Definitions that follow the dump as data are put here, and not passed on.
    pub found: Found,
    /// The tables and sequences that were created before the rows.
    pub tables: Tables,
}

/// Tables and sequences that a dump made before its rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables(Arc<Mutex<FoundTables>>);

#[derive(Debug, Default)]
pub(crate) struct FoundTables {
    pub names: Vec<String>,
    /// What was left out when they were created.
    pub later: Vec<Later>,
    /// Tables whose files were in separate folders.
    pub with_directory: Vec<String>,
}

impl Tables {
    fn note(&self, movable: &Movable) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.names.push(movable.definition.name.clone());
        found.later.extend(movable.later.clone());
        found.with_directory.extend(movable.had_directory.then(|| movable.definition.name.clone()));
    }

    pub(crate) fn take(&self) -> FoundTables {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Definitions that follow a dump.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found(Arc<Mutex<Vec<Definition>>>);

impl Found {
    fn note(&self, definition: Definition) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(definition);
    }

    pub(crate) fn take(&self) -> Vec<Definition> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The line that ends dumps of the tools begins like this.
pub(crate) const FOOTER: &[u8] = b"-- Dump completed";
/// The beginning of the line with a view's definition.
const VIEW: &[u8] = b"/*!50001 VIEW ";
/// The beginning of the line before it.
const VIEW_DEFINER: &[u8] = b"/*!50013 DEFINER=";
/// The beginning of a column's line in `SHOW CREATE TABLE`.
const COLUMN: &[u8] = b"  `";
/// The beginning of a statement that creates a trigger. The rest is what its author wrote, in any number of lines.
const TRIGGER: &[u8] = b"/*!50003 CREATE";
/// The beginning of the line that creates an event, after lines with the settings it needs.
const EVENT: &[u8] = b"/*!50106 CREATE*/ ";

/// The beginning of a view, before the line with its definition.
const VIEW_BEGIN: &[u8] = b"/*!50001 CREATE ALGORITHM";

impl Rewriting {
    /// The tools write definers and views at the beginning of a line, and line breaks in values as `\n`, so no value is
    /// mistaken for one. What people wrote is passed on with a delimiter that they cannot know.
    pub(crate) fn copy(&self, input: &mut dyn Read, out: &mut dyn Write) -> io::Result<()> {
        // The client allows at most fifteen characters.
        self.copy_with(input, out, &format!("~{}", random::hex(&random::bytes::<7>())))
    }

    fn copy_with(&self, input: &mut dyn Read, out: &mut dyn Write, delimiter: &str) -> io::Result<()> {
        let mut copying = Copying {
            rewriting: self,
            out,
            delimiter,
            line: Vec::new(),
            is_start: true,
            is_section: false,
            statement: None,
            rules: Rules::default(),
            quote: None,
            is_escaped: false,
            is_comment: false,
            is_ended: false,
            tail: Vec::new(),
            is_over: false,
            head: None,
            before: Vec::new(),
            has_begun: false,
            section: None,
        };
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let read = input.read(&mut buffer)?;
            if read == 0 {
                return copying.finish();
            }
            copying.see(&buffer[..read]);
            for piece in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
                copying.take(piece)?;
            }
        }
    }

    /// Rewrites a line that the tool wrote itself.
    fn line(&self, line: &[u8]) -> Vec<u8> {
        let line = if self.without_definers { without_definer(line) } else { line.to_vec() };
        if let Some(altered) = of_this_database(&line) {
            return altered;
        }
        match &self.old_name {
            Some(name) if line.starts_with(VIEW) => self.view_renamed(&line, name),
            // A default that uses a sequence; no other default contains a name.
            Some(name) if line.starts_with(COLUMN) => {
                renamed(&line, name, b"", |name| name.parts == 2 && name.is_sequence())
            }
            _ => line,
        }
    }

    fn view_renamed(&self, line: &[u8], old: &str) -> Vec<u8> {
        renamed_view(line, old, self.new_name.as_deref())
    }

    /// Rewrites a view: its options, its definer and its definition, each at the beginning of a line. Names in the
    /// definition may contain line breaks. `None` if the view is left out.
    fn view(&self, statement: &[u8]) -> Option<Vec<u8>> {
        let at = statement.windows(VIEW.len() + 1).position(|part| part[0] == b'\n' && &part[1..] == VIEW);
        let (head, body) = statement.split_at(at.map_or(0, |at| at + 1));
        let lines = || head.split_inclusive(|byte| *byte == b'\n');
        if let Some(definers) = &self.view_definers {
            lines().filter(|line| line.starts_with(VIEW_DEFINER)).for_each(|line| definers.note(line));
            return None;
        }
        let head = lines().flat_map(|line| if self.without_definers { without_definer(line) } else { line.to_vec() });
        let mut written: Vec<u8> = head.collect();
        match &self.old_name {
            Some(name) => written.extend(self.view_renamed(body, name)),
            None => written.extend_from_slice(body),
        }
        Some(written)
    }

    /// Rewrites a statement that creates a routine, a trigger or an event, or that sets what it needs; `None` if it is
    /// left out.
    fn definition(&self, statement: &[u8]) -> Option<Vec<u8>> {
        if self.without_events && statement.starts_with(EVENT) {
            self.events.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let statement = if self.without_definers { without_definer(statement) } else { statement.to_vec() };
        let statement = of_this_database(&statement).unwrap_or(statement);
        let is_moved = self.old_name.is_some() && statement.starts_with(TRIGGER);
        let moved = if is_moved { without_qualifiers(&statement) } else { None };
        Some(moved.unwrap_or(statement))
    }
}

/// The tool gives the database the collation that it had when something was created, and then its own again; `None` for
/// any other statement. The name is removed, so that it means the database that is loaded into.
fn of_this_database(statement: &[u8]) -> Option<Vec<u8>> {
    const ALTER: &[u8] = b"ALTER DATABASE ";
    let rest = statement.strip_prefix(ALTER)?;
    let set_up = rest[name_length(rest)?..].strip_prefix(b" ")?;
    Some([ALTER, set_up].concat())
}

/// Rewrites a dump in one of eight ways, with a fixed delimiter; returns the result and the definitions found.
pub(crate) fn rewritten(way: u8, dump: &mut dyn Read) -> io::Result<(Vec<u8>, Vec<Definition>)> {
    let rewriting = Rewriting {
        without_definers: way & 1 > 0,
        view_definers: (way == 6).then(Definers::default),
        without_events: way & 2 > 0,
        old_name: (way & 4 > 0).then(|| "shop".to_owned()),
        new_name: (way == 5).then(|| "copy".to_owned()),
        ..Rewriting::default()
    };
    let mut out = Vec::new();
    rewriting.copy_with(dump, &mut out, "~")?;
    Ok((out, rewriting.found.take()))
}

/// A dump that is being rewritten.
struct Copying<'a> {
    rewriting: &'a Rewriting,
    out: &'a mut dyn Write,
    delimiter: &'a str,
    /// The beginning of a line, until it is known what the line is.
    line: Vec<u8>,
    /// Whether the next piece begins a line.
    is_start: bool,
    /// Between `DELIMITER ;;` and `DELIMITER ;`, where routines, triggers and events are.
    is_section: bool,
    statement: Option<Statement>,
    rules: Rules,
    /// The quote of the literal or name that the tool has begun, and whether the next byte is escaped. Names may
    /// contain lines that look like the tool's own.
    quote: Option<u8>,
    is_escaped: bool,
    is_comment: bool,
    /// Whether the last line was the one that ends every dump of the tools.
    is_ended: bool,
    /// The last bytes that were read. What follows a truncated dump may look like a part of a literal in it.
    tail: Vec<u8>,
    /// Whether a statement has ended, but its line has not.
    is_over: bool,
    /// The section before the rows, while it is read.
    head: Option<Section>,
    before: Vec<Definition>,
    has_begun: bool,
    /// The section after the dump.
    section: Option<Section>,
}

impl Copying<'_> {
    fn see(&mut self, read: &[u8]) {
        const TAIL: usize = definitions::END.len() + 8;
        self.tail.extend_from_slice(&read[read.len().saturating_sub(TAIL)..]);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
    }

    fn take(&mut self, piece: &[u8]) -> io::Result<()> {
        if let Some(statement) = &mut self.statement {
            statement.text.extend_from_slice(piece);
            return self.end_statement();
        }
        if !self.is_start {
            return self.pass(piece);
        }
        self.line.extend_from_slice(piece);
        if self.quote.is_some() {
            if self.line.len() < COMMAND.len() && !self.line.ends_with(b"\n") {
                return Ok(());
            }
            let line = std::mem::take(&mut self.line);
            return if has_command(&line) { Err(unclear().into()) } else { self.pass(&line) };
        }
        if self.head.is_some() {
            return self.take_of_head();
        }
        match &mut self.section {
            Some(section) if self.line.len() <= definitions::LONGEST => {
                if self.line.ends_with(b"\n")
                    && let Some(definition) = section.take(&std::mem::take(&mut self.line))?
                {
                    self.rewriting.found.note(definition);
                }
                Ok(())
            }
            Some(_) => Err(EngineError::corrupt("A line after the dump has no end.").into()),
            None if is_complete(&self.line) => self.end_line(),
            None => Ok(()),
        }
    }

    /// Handles a line before the rows, or the part of it that was read.
    fn take_of_head(&mut self) -> io::Result<()> {
        if self.line.len() > definitions::LONGEST {
            return Err(EngineError::corrupt("A line before the rows has no end.").into());
        }
        let Some(head) = self.head.as_mut().filter(|_| self.line.ends_with(b"\n")) else { return Ok(()) };
        if let Some(definition) = head.take(&std::mem::take(&mut self.line))? {
            if !tables::is_clear(&definition.statement) {
                return Err(unclear().into());
            }
            self.before.push(definition);
            return Ok(());
        }
        self.head = None;
        // Foreign keys to tables that are not among these are added later.
        let names: BTreeSet<String> = self.before.iter().map(|one| one.name.clone()).collect();
        for definition in std::mem::take(&mut self.before) {
            let movable = Movable::new(definition, &names);
            self.rewriting.tables.note(&movable);
            let definition = movable.definition;
            let written = match &self.rewriting.unprepared {
                Some(version) => definition.for_version(version).delimited(self.delimiter)?,
                None => definition.line().into_bytes(),
            };
            self.out.write_all(&written)?;
        }
        Ok(())
    }

    /// Passes on a part of one of the tool's statements unchanged.
    fn pass(&mut self, piece: &[u8]) -> io::Result<()> {
        self.is_ended = false;
        self.is_start = piece.ends_with(b"\n");
        self.scan(piece)?;
        self.out.write_all(piece)
    }

    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if is_first && line.trim_ascii_end() == tables::BEGIN.as_bytes() {
            self.head = Some(Section::before_rows());
            return Ok(());
        }
        if !self.is_section && line.trim_ascii_end() == definitions::BEGIN.as_bytes() {
            if !self.is_ended {
                return Err(EngineError::corrupt(
                    "The dump of the tables is incomplete: the tool stopped before its end.",
                )
                .into());
            }
            self.section = Some(Section::default());
            return Ok(());
        }
        self.is_ended = line.starts_with(FOOTER) || self.is_ended && line == b"\n";
        let is_view = line.starts_with(VIEW_BEGIN);
        match (self.is_section, line.trim_ascii_end()) {
            (false, b"DELIMITER ;;") => {
                self.is_section = true;
                return writeln!(self.out, "DELIMITER {}", self.delimiter);
            }
            // The tool repeats this before each event.
            (true, b"DELIMITER ;;") => return Ok(()),
            (true, b"DELIMITER ;") => {
                self.is_section = false;
                return self.out.write_all(&line);
            }
            (true, b"") | (false, _) if !is_view => {}
            _ => {
                let end: &[u8] = if self.is_section { b";;" } else { b";" };
                let statement = self.statement.insert(Statement::begin(end, self.rules));
                statement.text = line;
                return self.end_statement();
            }
        }
        self.rules.follow(&line);
        self.is_start = line.ends_with(b"\n");
        self.is_comment = line.starts_with(b"--");
        self.scan(&line)?;
        self.out.write_all(&self.rewriting.line(&line))
    }

    /// Tracks the quotes in what the tool writes itself, in which comments are whole lines, and each statement ends
    /// with its line. Servers print some literals without escapes, so that a table could contain further statements.
    fn scan(&mut self, piece: &[u8]) -> io::Result<()> {
        if self.is_comment {
            return Ok(());
        }
        for byte in piece {
            if self.is_over && !byte.is_ascii_whitespace() {
                return Err(unclear().into());
            }
            self.is_over = self.quote.is_none() && (*byte == b';' || self.is_over && *byte != b'\n');
            match self.quote {
                Some(_) if self.is_escaped => self.is_escaped = false,
                Some(quote) if *byte == b'\\' && quote != b'`' => self.is_escaped = true,
                Some(quote) if *byte == quote => self.quote = None,
                None if b"'\"`".contains(byte) => self.quote = Some(*byte),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the statement once it is complete.
    fn end_statement(&mut self) -> io::Result<()> {
        let Some(mut statement) = self.statement.take() else { return Ok(()) };
        if !statement.is_whole()? {
            self.statement = Some(statement);
            return Ok(());
        }
        let Self { rewriting, delimiter, .. } = self;
        if !self.is_section {
            let Some(view) = rewriting.view(&statement.text) else { return Ok(()) };
            writeln!(self.out, "DELIMITER {delimiter}")?;
            self.out.write_all(&view)?;
            return write!(self.out, "\n{delimiter}\nDELIMITER ;\n");
        }
        self.rules.follow(&statement.text);
        if let Some(definition) = rewriting.definition(&statement.text) {
            self.out.write_all(&definition)?;
            write!(self.out, "\n{delimiter}\n")?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if let Some(section) = &self.section {
            let is_whole = section.has_ended() && self.line.is_empty();
            let cut = || EngineError::corrupt("What follows the dump of the tables is cut off.").into();
            return if is_whole { Ok(()) } else { Err(cut()) };
        }
        if !self.line.is_empty() {
            self.line.push(b'\n');
            self.end_line()?;
        }
        let is_cut = self.head.is_some() || self.tail.trim_ascii_end().ends_with(definitions::END.as_bytes());
        if self.statement.is_some() || is_cut {
            return Err(EngineError::corrupt("The dump ends in the middle of a statement.").into());
        }
        Ok(())
    }
}

/// Whether enough of a line was read to recognise and to change it.
fn is_complete(line: &[u8]) -> bool {
    /// Enough for the quoted names of a user and a host, and what precedes them.
    const LONGEST: usize = 1024;
    const LONGEST_COLUMN: usize = 64 * 1024;
    const LONGEST_VIEW: usize = 1024 * 1024;
    let longest = match line {
        _ if line.starts_with(VIEW) => LONGEST_VIEW,
        _ if line.starts_with(COLUMN) => LONGEST_COLUMN,
        _ => LONGEST,
    };
    line.ends_with(b"\n") || line.len() >= longest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql::renaming::names_database;

    fn rewritten(rewriting: &Rewriting, mut dump: impl Read) -> String {
        let mut out = Vec::new();
        rewriting.copy_with(&mut dump, &mut out, "OWN").unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The expected form of a section that the tools wrote.
    fn expected(section: &str) -> String {
        section.replace("DELIMITER ;;", "DELIMITER OWN").replace(";;\n", "\nOWN\n")
    }

    #[test]
    fn definers_are_left_out_where_the_tools_write_them_and_nowhere_else() {
        let dump = "DELIMITER ;;\nCREATE DEFINER=`a``b`@`%` PROCEDURE p() BEGIN\n\
            /*!50013 DEFINER=`x`@`h` SQL SECURITY DEFINER */\nEND ;;\n\
            /*!50003 CREATE*/ /*!50017 DEFINER=`r`@`l`*/ /*!50003 TRIGGER t */;;\nDELIMITER ;\n\
            INSERT INTO t VALUES ('CREATE DEFINER=`a`@`b` PROCEDURE');\nCREATE TABLE `DEFINER` (a INT);\n";
        let without = "DELIMITER ;;\nCREATE  PROCEDURE p() BEGIN\n\
            /*!50013 DEFINER=`x`@`h` SQL SECURITY DEFINER */\nEND ;;\n\
            /*!50003 CREATE*/ /*!50017 */ /*!50003 TRIGGER t */;;\nDELIMITER ;\n\
            INSERT INTO t VALUES ('CREATE DEFINER=`a`@`b` PROCEDURE');\nCREATE TABLE `DEFINER` (a INT);\n";
        let rewriting = Rewriting { without_definers: true, ..Rewriting::default() };
        assert_eq!(rewritten(&rewriting, dump.as_bytes()), expected(without));
        let long = format!("INSERT INTO t VALUES ('{}');\nCREATE DEFINER=`a`@`b` VIEW v\n", "x".repeat(700_000));
        assert_eq!(rewritten(&rewriting, long.as_bytes()), long.replace("DEFINER=`a`@`b`", ""));
    }

    #[test]
    fn views_are_left_out_and_whom_they_run_as_is_noted() {
        let view = |definer: &str, security: &str| {
            format!(
                "/*!50001 CREATE ALGORITHM=UNDEFINED */\n/*!50013 {definer} SQL SECURITY {security} */\n/*!50001 VIEW `v` AS \
                 select 1 AS `a */;\n/*!50013 DEFINER=`z`@`z`` */"
            )
        };
        let routine = "DELIMITER ;;\nCREATE DEFINER=`c`@`%` PROCEDURE p() BEGIN\n/*!50013 DEFINER=`x`@`h` SQL SECURITY \
            DEFINER */\nEND ;;\nDELIMITER ;\n";
        let definers = Definers::default();
        let rewriting = Rewriting { view_definers: Some(definers.clone()), ..Rewriting::default() };
        let (first, second) = (view("DEFINER=`a``b`@`%`", "DEFINER"), view("DEFINER=`r`", "INVOKER"));
        let dump = format!("{first};\n{second};\n{routine}");
        assert_eq!(rewritten(&rewriting, dump.as_bytes()), expected(routine));
        assert_eq!(definers.all(), ["`a``b`@`%`", "`r`"]);
        let rewriting = Rewriting { without_definers: true, ..Rewriting::default() };
        let own = format!("DELIMITER OWN\n{}\nOWN\nDELIMITER ;\n", view("", "DEFINER"));
        assert_eq!(rewritten(&rewriting, format!("{first};\n").as_bytes()), own);
    }

    #[test]
    fn a_copy_has_no_events() {
        let head = "DELIMITER ;;\n/*!50003 SET time_zone = 'SYSTEM' */ ;;\n";
        let event = "/*!50106 CREATE*/ /*!50117 DEFINER=`r`@`l`*/ /*!50106 EVENT `x PRESERVE ENABLE y` ON SCHEDULE EVERY 1 \
            DAY ON COMPLETION NOT PRESERVE ENABLE DO delete from t */ ;;\n";
        let dump = format!("{head}{event}DELIMITER ;\n");
        let without = Rewriting { without_events: true, ..Rewriting::default() };
        assert_eq!(rewritten(&without, dump.as_bytes()), expected(&dump.replace(event, "")));
        let without = Rewriting { without_definers: true, ..Rewriting::default() };
        assert_eq!(rewritten(&without, dump.as_bytes()), expected(&dump.replace("DEFINER=`r`@`l`", "")));
    }

    #[test]
    fn a_body_cannot_end_its_statement_for_the_client_alone() {
        for unclear in [
            "CREATE PROCEDURE p() select 1 --\u{1} ;; GRANT ALL ON *.* TO x ;;\n;;",
            "CREATE PROCEDURE p() select 1 /*!99999 ' */ ;;",
        ] {
            let dump = format!("DELIMITER ;;\n{unclear}\nDELIMITER ;\nGRANT ALL ON *.* TO x;\n");
            let error = Rewriting::default().copy(&mut dump.as_bytes(), &mut io::sink()).unwrap_err();
            assert!(error.to_string().contains("read differently"), "{error}");
        }
        let error = Rewriting::default().copy(&mut &b"DELIMITER ;;\nCREATE PROCEDURE p()\n"[..], &mut io::sink());
        assert!(error.is_err());
    }

    #[test]
    fn lines_in_names_are_not_taken_for_lines_of_the_tools() {
        let rewriting = Rewriting { without_definers: true, without_events: true, ..Rewriting::default() };
        let dump = "CREATE TABLE `t\n/*!50003 CREATE*/ ;;\nx` (\n  `a\nCREATE DEFINER=`` int comment '``x` int COMMENT 'it\\'s\n\
            -- Dump completed\n'\n);\nDROP PROCEDURE IF EXISTS `p\n DELIMITER ;;\n/*!50106 CREATE*/ '`;\n\
            CREATE TABLE `x DEFINER=``a``@``b` (a INT);\n";
        assert_eq!(rewritten(&rewriting, dump.as_bytes()), dump);
        assert_eq!(rewritten(&rewriting, InPieces(dump.as_bytes())), dump);
        // The client would swallow the line break.
        let command = dump.replace("/*!50003", "Delimiter");
        for mut dump in [&mut command.as_bytes() as &mut dyn Read, &mut InPieces(command.as_bytes())] {
            assert!(rewriting.copy(&mut dump, &mut io::sink()).is_err());
        }
    }

    #[test]
    fn views_forget_the_database_that_they_were_dumped_from() {
        let name = "x".repeat(3000);
        let body = "DELIMITER ;;\nCREATE PROCEDURE p() BEGIN\n/*!50001 VIEW `shop`.`a`.`b`\nEND ;;\nDELIMITER ;\n";
        let view = |database: &str| {
            format!(
                "{body}/*!50001 VIEW `w` AS select {database}`v`.`{name}`,`shop`.`id`,'`shop`.`v`.`x`' AS `a` from `v` */;\n"
            )
        };
        let rewriting = Rewriting { old_name: Some("shop".to_owned()), ..Rewriting::default() };
        assert_eq!(rewritten(&rewriting, view("`shop`.").as_bytes()), expected(&view("")));
    }

    #[test]
    fn views_name_the_database_that_they_are_in() {
        let view = |own: &str| {
            format!(
                "/*!50001 VIEW `w` AS select nextval({own}`sq`) AS `n`,setval({own}`sq`,5,0,1) AS `shop.f(1)`,{own}`f`\
                 (`shop`.`a`) AS `f`,{own}`t`.`a` AS `shop`,interval(`shop`.`a`,1) AS `i`,extract(day from `shop`.`d`) AS \
                 `d`,trim(both (select max({own}`x`.`y`) from {own}`x`) from (`shop`.`b`)) AS `e`,'nextval(`shop`.`sq`)' \
                 from ((`other`.`t` join {own}`t` `shop` on(`shop`.`a` = {own}`f`())) left join ({own}`u` join `other`.`v`) \
                 on(`shop`.`a` = 1)) where `shop`.`a` in (select `other`.`shop`.`a` from {own}`shop`) */;\n"
            )
        };
        for (new_name, own) in [(Some("co`py"), "`co``py`."), (None, "")] {
            let rewriting = Rewriting {
                old_name: Some("shop".to_owned()),
                new_name: new_name.map(str::to_owned),
                ..Rewriting::default()
            };
            assert_eq!(rewritten(&rewriting, view("`shop`.").as_bytes()), view(own));
        }
    }

    #[test]
    fn a_view_that_names_another_database_is_known() {
        for (view, is_naming) in [
            ("select `shop`.`f`(1) AS `x`", true),
            ("select 1 AS `1` from `shop`.`t`", true),
            ("select `copy`.`t`.`a` AS `a` from (`copy`.`t` join `shop`.`u` on(1))", true),
            ("select `shop`.`what` AS `x`", true),
            ("select `copy`.`shop`.`a` AS `shop` from `copy`.`shop`", false),
            ("select `shop`.`a` AS `a` from `copy`.`t` `shop`", false),
            ("select '`shop`.`f`(1)' AS `shop.f(1)`", false),
        ] {
            assert_eq!(names_database(view.as_bytes(), "shop"), is_naming, "{view}");
        }
    }

    /// Returns a few bytes at a time.
    struct InPieces<'a>(&'a [u8]);

    impl Read for InPieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(7);
            self.0.read(&mut buffer[..length])
        }
    }

    #[test]
    fn triggers_are_made_where_they_are_loaded() {
        let moved = |dump: &str| {
            let rewriting = Rewriting { old_name: Some("shop".to_owned()), ..Rewriting::default() };
            rewritten(&rewriting, InPieces(dump.as_bytes()))
        };
        let dump = |statement: &str| {
            format!(
                "DELIMITER ;;\n/*!50003 CREATE*/ /*!50017 DEFINER=`r`@`l`*/ /*!50003 {statement} */;;\nDELIMITER ;\n"
            )
        };
        for (statement, own) in [
            (
                "TRIGGER shop.tg after delete on shop.o for each row delete from shop.audit",
                "TRIGGER tg after delete on o for each row delete from shop.audit",
            ),
            (
                "trigger `sh``op` . `t.g`\n-- on shop.x\nBEFORE /* on a.b */ INSERT\n\tON\n`shop`.`o.p` FOR EACH ROW\nSET NEW.a = 1",
                "trigger `t.g`\n-- on shop.x\nBEFORE /* on a.b */ INSERT\n\tON\n`o.p` FOR EACH ROW\nSET NEW.a = 1",
            ),
            (
                "TRIGGER IF NOT EXISTS shop.a AFTER UPDATE ON shop.b FOR EACH ROW SET @x = 'on shop.c'",
                "TRIGGER IF NOT EXISTS a AFTER UPDATE ON b FOR EACH ROW SET @x = 'on shop.c'",
            ),
            (
                "TRIGGER a AFTER UPDATE ON b FOR EACH ROW SET @x = 1",
                "TRIGGER a AFTER UPDATE ON b FOR EACH ROW SET @x = 1",
            ),
            (
                "TRIGGER `if` AFTER UPDATE ON shop.b FOR EACH ROW SET @x = 1",
                "TRIGGER `if` AFTER UPDATE ON b FOR EACH ROW SET @x = 1",
            ),
            ("TRIGGER", "TRIGGER"),
        ] {
            assert_eq!(moved(&dump(statement)), expected(&dump(own)));
        }
        let body =
            "DELIMITER ;;\nCREATE PROCEDURE p() BEGIN\n/*!50003 CREATE TRIGGER shop.a ON shop.b\nEND ;;\nDELIMITER ;\n";
        assert_eq!(moved(body), expected(body));
    }

    #[test]
    fn triggers_of_many_lines_take_no_longer_than_others() {
        let trigger = |own: &str| {
            let lines = "\n".repeat(63 * 1024);
            format!(
                "DELIMITER ;;\n/*!50003 CREATE*/ /*!50003 TRIGGER {own}a{lines}AFTER UPDATE ON {own}b FOR EACH ROW\n\
                 SET @x = 1 */;;\nDELIMITER ;\n"
            )
        };
        let rewriting = Rewriting { old_name: Some("shop".to_owned()), ..Rewriting::default() };
        let begin = std::time::Instant::now();
        let found = rewritten(&rewriting, trigger("shop.").as_bytes());
        assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
        assert_eq!(found, expected(&trigger("")));
    }

    #[test]
    fn defaults_ask_the_sequences_beside_them() {
        let table = |name: &str| {
            format!(
                "CREATE TABLE `o` (\n  `id` int(11) DEFAULT nextval({name}`sq`) COMMENT 'nextval(`shop`.`sq`)',\n  `b` int \
                 DEFAULT (`shop`.`x`)\n);\nINSERT INTO `o` VALUES\n(1,'  `id` nextval(`shop`.`sq`)');\n"
            )
        };
        let rewriting = Rewriting { old_name: Some("shop".to_owned()), ..Rewriting::default() };
        assert_eq!(rewritten(&rewriting, table("`shop`.").as_bytes()), table(""));
    }
}
