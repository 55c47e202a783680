//! Databases of a server: one, or all of them.

use crate::database::DatabaseEngine;
use crate::fields::FieldSpec;
use crate::input::{Errors, Field, Input};
use crate::refusal::Rule;
use crate::{limits, rules};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseSource {
    /// `None` for all databases.
    pub name: Option<String>,
    pub excluded_tables: Vec<String>,
    /// The path of the database, if it is a file. Not used otherwise, but kept and shown, since the API document has a
    /// path for every task.
    pub path: Option<String>,
}

const NAME: FieldSpec = FieldSpec::line("database_name", limits::TEXT_CHARS)
    .about("Leave it out on a `database` task to back up every database of the server.")
    .only_if("type", &["database"])
    .shown_at("/source/database_name");
const EXCLUDED_TABLES: FieldSpec = FieldSpec::line("excluded_tables", limits::EXCLUDED_TABLES_CHARS)
    .about("Comma-separated.")
    .also_called(&["excluded_database_tables"])
    .only_if("type", &["database"])
    .shown_at("/source/excluded_tables");

pub const FIELDS: &[FieldSpec] = &[NAME, EXCLUDED_TABLES];

impl DatabaseSource {
    /// Checks all fields but the path, which every kind of source has.
    pub fn check(errors: &mut Errors, input: &Input, path: Option<String>, current: Option<&Self>) -> Self {
        let was = current.and_then(|source| source.name.clone());
        let name = NAME.optional_line(errors, input, was, is_name);
        let tables = match EXCLUDED_TABLES.text(input) {
            Field::Absent => current.map(|source| source.excluded_tables.clone()).unwrap_or_default(),
            given @ (Field::Null | Field::WrongType | Field::Value(_)) => {
                let checked = rules::optional_text(errors, EXCLUDED_TABLES.name, &given, None, check_tables);
                tables(checked.as_deref().unwrap_or_default())
            }
        };
        Self { name, excluded_tables: tables, path }
    }

    /// Not every engine has names of databases, and tables that can be excluded.
    pub(super) fn of_engine(self, engine: DatabaseEngine, errors: &mut Errors, input: &Input) -> Self {
        let (has_names, has_tables) = (engine.has_names(), engine.has_tables());
        for (field, applies) in [(&NAME, has_names), (&EXCLUDED_TABLES, has_tables)] {
            if !applies && field.text(input).value().is_some_and(|text| !text.is_empty()) {
                errors.add(field.name, Rule::FileDatabase);
            }
        }
        Self {
            name: self.name.filter(|_| has_names),
            excluded_tables: if has_tables { self.excluded_tables } else { Vec::new() },
            path: self.path,
        }
    }

    /// The tables as in the API: separated by commas, or `None`.
    pub fn excluded_tables_text(&self) -> Option<String> {
        (!self.excluded_tables.is_empty()).then(|| self.excluded_tables.join(","))
    }

    pub fn write(&self, values: &mut Input) {
        values.set(NAME.name, self.name.clone());
        values.set(EXCLUDED_TABLES.name, self.excluded_tables_text());
    }

    pub fn read(stored: &Input, path: Option<String>) -> Self {
        let name = stored.text(NAME.name).value().cloned();
        let excluded_tables = stored.text(EXCLUDED_TABLES.name);
        Self { name, excluded_tables: tables(excluded_tables.value().map_or("", String::as_str)), path }
    }
}

/// A name must not look like a command-line option.
fn is_name(name: &str) -> bool {
    !name.starts_with('-')
}

/// Table names separated by commas; spaces around them are ignored.
fn tables(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn check_tables(errors: &mut Errors, text: &str) -> Option<String> {
    let text = rules::line(errors, EXCLUDED_TABLES.name, text, EXCLUDED_TABLES.max_chars())?;
    if tables(&text).iter().any(|name| !is_name(name) || name.chars().count() > limits::TEXT_CHARS) {
        errors.add(EXCLUDED_TABLES.name, Rule::Format);
        return None;
    }
    Some(text)
}
