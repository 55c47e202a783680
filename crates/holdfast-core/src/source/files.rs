//! Files below a folder on a server.

use crate::fields::{DefaultValue, FieldSpec};
use crate::input::{Errors, Field, Input};
use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesSource {
    pub path: String,
    /// Patterns of what to exclude.
    pub excluded: Vec<String>,
    /// Exclude what is mounted below the path.
    pub one_file_system: bool,
}

const EXCLUDED: FieldSpec = FieldSpec::lines("excluded_paths", limits::EXCLUDED_PATHS, limits::EXCLUDED_PATH_CHARS)
    .only_if("type", &["files"])
    .shown_at("/source/excluded_paths");
const ONE_FILE_SYSTEM: FieldSpec = FieldSpec::switch("one_file_system")
    .about("Leave out what is mounted below the path.")
    .default_to(DefaultValue::Switch(false))
    .only_if("type", &["files"])
    .shown_at("/source/one_file_system");

pub const FIELDS: &[FieldSpec] = &[EXCLUDED, ONE_FILE_SYSTEM];

impl FilesSource {
    /// Checks all fields but the path, which every kind of source has.
    pub fn check(errors: &mut Errors, input: &Input, path: String, current: Option<&Self>) -> Self {
        let excluded = EXCLUDED.line_list(errors, input, current.map(|source| &*source.excluded));
        let was = current.is_some_and(|source| source.one_file_system);
        Self { path, excluded, one_file_system: ONE_FILE_SYSTEM.checked_switch(errors, input, was) }
    }

    pub fn write(&self, values: &mut Input) {
        values.set(EXCLUDED.name, self.excluded.clone());
        values.set(ONE_FILE_SYSTEM.name, self.one_file_system);
    }

    pub fn read(stored: &Input, path: String) -> Option<Self> {
        let excluded = match stored.texts(EXCLUDED.name) {
            // An older import kept the carriage returns of Windows line endings.
            Field::Value(lines) => {
                let line = |line: String| Some(line.trim_end_matches('\r').to_owned()).filter(|line| !line.is_empty());
                lines.into_iter().filter_map(line).collect()
            }
            Field::Absent | Field::Null => Vec::new(),
            Field::WrongType => return None,
        };
        let one_file_system = stored.boolean(ONE_FILE_SYSTEM.name).value().copied().unwrap_or(false);
        Some(Self { path, excluded, one_file_system })
    }
}
