//! What a task copies. Each kind of source has its own file with its fields, its checks and its stored form.

pub mod database;
pub mod files;

use crate::database::DatabaseEngine;
use crate::extent::Extent;
use crate::fields::FieldSpec;
use crate::input::{Errors, Input};
use crate::limits;
use crate::refusal::Rule;

pub use database::DatabaseSource;
pub use files::FilesSource;

string_enum! {
    /// The `type` of a task, as defined in the API document.
    TaskKind { Files = "files", Database = "database" }
}

impl TaskKind {
    pub fn human(self) -> &'static str {
        match self {
            Self::Files => "Files",
            Self::Database => "Database",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    Files(FilesSource),
    Database {
        /// If it is not specified, the engine that is found on the server is used.
        engine: Option<DatabaseEngine>,
        source: DatabaseSource,
    },
}

const KIND: FieldSpec = FieldSpec::choice("type", TaskKind::WORDS).required().shown_at("/source/type");
const ENGINE: FieldSpec = FieldSpec::choice("database_engine", DatabaseEngine::WORDS)
    .only_if("type", &["database"])
    .shown_at("/source/database_engine");

const PATH: FieldSpec = FieldSpec::line("source_path", limits::PATH_CHARS)
    .trims_slashes()
    .about("Needed for `files`, and for databases that are files.")
    .shown_at("/source/path");

pub const FIELDS: &[&[FieldSpec]] = &[&[KIND, PATH], files::FIELDS, &[ENGINE], database::FIELDS];

/// Whether the fields of a task, given by name, specify a database that is a file.
pub fn is_file_database(value: impl Fn(&str) -> String) -> bool {
    let engine = DatabaseEngine::parse(&value(ENGINE.name));
    value(KIND.name) == TaskKind::Database.as_str() && engine.is_some_and(DatabaseEngine::is_file)
}

impl SourceSpec {
    pub fn kind(&self) -> TaskKind {
        match self {
            Self::Files(_) => TaskKind::Files,
            Self::Database { .. } => TaskKind::Database,
        }
    }

    /// The engine of a database, if it is known.
    pub fn engine(&self) -> Option<DatabaseEngine> {
        match self {
            Self::Files(_) => None,
            Self::Database { engine, .. } => *engine,
        }
    }

    pub fn files(&self) -> Option<&FilesSource> {
        match self {
            Self::Files(source) => Some(source),
            Self::Database { .. } => None,
        }
    }

    pub fn database(&self) -> Option<&DatabaseSource> {
        match self {
            Self::Files(_) => None,
            Self::Database { source, .. } => Some(source),
        }
    }

    /// Its location on the server, for display; `None` for all databases of a server.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::Files(source) => Some(&source.path),
            Self::Database { engine: Some(engine), source } if engine.is_file() => source.path.as_deref(),
            Self::Database { source, .. } => source.name.as_deref(),
        }
    }

    /// What it reads on its server.
    pub fn extent(&self) -> Extent {
        match self {
            Self::Files(source) => Extent::Files(source.path.clone()),
            Self::Database { engine, source } => match (engine.is_some_and(DatabaseEngine::is_file), &source.path) {
                (true, Some(path)) => Extent::Files(path.clone()),
                (true, None) | (false, _) => Extent::Database(*engine, source.name.clone()),
            },
        }
    }

    fn path(&self) -> Option<&str> {
        match self {
            Self::Files(source) => Some(source.path.as_str()).filter(|path| !path.is_empty()),
            Self::Database { source, .. } => source.path.as_deref(),
        }
    }

    pub fn check(errors: &mut Errors, input: &Input, current: Option<&Self>) -> Option<Self> {
        let kind = KIND.required_choice(errors, input, current.map(Self::kind), TaskKind::parse);
        let was = current.and_then(Self::path).map(str::to_owned);
        let path = PATH.optional_line(errors, input, was, |_| true);
        // Fields of the other kind are not kept, but they must still be valid.
        let files = FilesSource::check(errors, input, path.clone().unwrap_or_default(), current.and_then(Self::files));
        let was = current.and_then(Self::engine);
        let engine = ENGINE.optional_choice(errors, input, was, DatabaseEngine::parse);
        let own_engine = engine.filter(|_| kind == Some(TaskKind::Database));
        let is_file = own_engine.is_some_and(DatabaseEngine::is_file);
        if (is_file || kind == Some(TaskKind::Files)) && path.is_none() && !errors.has(PATH.name) {
            errors.add(PATH.name, Rule::Required);
        }
        let database = DatabaseSource::check(errors, input, path, current.and_then(Self::database));
        let database = match own_engine {
            Some(engine) => database.of_engine(engine, errors, input),
            None => database,
        };
        Some(match kind? {
            TaskKind::Files => Self::Files(files),
            TaskKind::Database => Self::Database { engine, source: database },
        })
    }

    /// Its fields, as they are stored and as forms show them.
    pub fn write(&self, values: &mut Input) {
        values.set(KIND.name, self.kind().as_str());
        values.set(PATH.name, self.path());
        match self {
            Self::Files(source) => source.write(values),
            Self::Database { engine, source } => {
                values.set(ENGINE.name, engine.map(DatabaseEngine::as_str));
                source.write(values);
            }
        }
    }

    /// Whether the stored values are valid; an import accepts nothing else.
    pub fn is_sound(stored: &Input) -> bool {
        stored.text(ENGINE.name).value().is_none_or(|word| DatabaseEngine::parse(word).is_some())
    }

    /// Reads what `write` wrote. An unknown engine is ignored, and the engine is found on the server instead.
    pub fn read(stored: &Input) -> Option<Self> {
        let path = stored.text(PATH.name).value().cloned();
        match TaskKind::parse(stored.text(KIND.name).value()?)? {
            // A task without a path fails when it runs; a failure here would hide the other tasks.
            TaskKind::Files => FilesSource::read(stored, path.unwrap_or_default()).map(Self::Files),
            TaskKind::Database => {
                let engine = stored.text(ENGINE.name).value().and_then(|word| DatabaseEngine::parse(word));
                Some(Self::Database { engine, source: DatabaseSource::read(stored, path) })
            }
        }
    }
}
