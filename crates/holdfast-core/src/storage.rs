//! How a task's backups are stored, and how many of them are kept.

use crate::fields::{DefaultValue, FieldSpec};
use crate::input::{Errors, Field, Input};
use crate::limits;
use crate::refusal::Rule;
use crate::retention::RetentionPolicy;

string_enum! {
    /// The format of stored backups.
    Format {
        /// One object for each backup: tar or dumps, compressed with zstd, encrypted with age.
        Archive = "archive",
        /// A repository of restic for each task, in which each backup adds only what has changed.
        Repository = "repository",
    }
}

impl Format {
    /// Whether the backups of a task share what they store, in a repository with passwords of its own. Otherwise, each
    /// is one object, with its own size, hash and password.
    pub fn is_shared(self) -> bool {
        match self {
            Self::Archive => false,
            Self::Repository => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    pub retention: RetentionPolicy,
    pub appended_filename: Option<String>,
    /// A folder below the destination's root.
    pub path: String,
    pub format: Format,
}

const KEEP: FieldSpec = FieldSpec::integer("maximum_backups_to_keep", 0, limits::MAX_BACKUPS)
    .about("0 keeps all.")
    .default_to(DefaultValue::Integer(limits::DEFAULT_MAX_BACKUPS))
    .shown_at("/storage/max_backups");
const PATH: FieldSpec = FieldSpec::line("store_path", limits::TEXT_CHARS)
    .trims_slashes()
    .about("A folder below the destination's root.")
    .default_to(DefaultValue::Text("/"))
    .shown_at("/storage/path");
const APPENDED_FILENAME: FieldSpec = FieldSpec::line("appended_filename", limits::APPENDED_FILENAME_CHARS)
    .pattern("^[A-Za-z0-9._-]{1,100}$")
    .also_called(&["appended_file_name"])
    .shown_at("/storage/appended_filename");
const FORMAT: FieldSpec =
    FieldSpec::choice("format", Format::WORDS).default_to(DefaultValue::Text("archive")).shown_at("/storage/format");

pub const FIELDS: &[FieldSpec] = &[KEEP, PATH, APPENDED_FILENAME, FORMAT];

impl Storage {
    pub fn check(errors: &mut Errors, input: &Input, current: Option<&Self>) -> Self {
        let was = current.map_or(limits::DEFAULT_MAX_BACKUPS, |storage| storage.retention.number());
        let keep = KEEP.checked_integer(errors, input, was);
        let was = current.and_then(|storage| storage.appended_filename.clone());
        let appended_filename = APPENDED_FILENAME.optional_line(errors, input, was, |name| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        });
        let was = current.map(|storage| storage.path.clone());
        let path = PATH.optional_line(errors, input, was, is_below_the_root);
        let format = check_format(errors, input, current.map_or(Format::Archive, |storage| storage.format));
        Self {
            retention: RetentionPolicy::of_number(keep),
            appended_filename,
            path: path.unwrap_or_else(|| "/".to_owned()),
            format,
        }
    }

    pub fn write(&self, values: &mut Input) {
        values.set(KEEP.name, self.retention.number());
        values.set(PATH.name, self.path.as_str());
        values.set(APPENDED_FILENAME.name, self.appended_filename.clone());
        values.set(FORMAT.name, self.format.as_str());
    }

    pub fn read(stored: &Input) -> Option<Self> {
        let format = match stored.text(FORMAT.name).value() {
            None => Format::Archive,
            Some(word) => Format::parse(word)?,
        };
        Some(Self {
            retention: RetentionPolicy::of_number(*stored.integer(KEEP.name).value()?),
            appended_filename: stored.text(APPENDED_FILENAME.name).value().cloned(),
            path: stored.text(PATH.name).value()?.clone(),
            format,
        })
    }
}

impl Storage {
    /// Whether the stored values are valid; an import accepts nothing else.
    pub fn is_sound(stored: &Input) -> bool {
        KEEP.is_within(stored)
    }
}

/// Whether the path stays below whatever it is joined to.
fn is_below_the_root(path: &str) -> bool {
    !path.contains('\\') && path.split('/').all(|part| part != ".." && part != ".")
}

fn check_format(errors: &mut Errors, input: &Input, current: Format) -> Format {
    let rule = match FORMAT.text(input) {
        Field::Absent => return current,
        Field::Null => return Format::Archive,
        Field::Value(text) => match Format::parse(&text) {
            Some(format) => return format,
            None => Rule::Choice,
        },
        Field::WrongType => Rule::Choice,
    };
    errors.add(FORMAT.name, rule);
    current
}
