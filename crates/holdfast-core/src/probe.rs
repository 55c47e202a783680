//! Questions to a server while a task is being set up: what a folder contains, which databases there are, and how much
//! there is to copy.

use crate::database::DatabaseEngine;
use crate::input::{Input, Value};
use crate::limits;
use crate::source::SourceSpec;

/// Separates the parts of a stored question or answer. Validation refuses control characters in input.
const PART: char = '\u{1f}';

/// The most entries of one folder that are listed.
pub const FOLDER_ITEMS: usize = 2000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// What this folder contains.
    Folder(String),
    /// Which databases there are.
    Databases,
    /// How much this source holds.
    Size(Box<SourceSpec>),
}

impl Question {
    pub fn to_text(&self) -> String {
        let parts: Vec<String> = match self {
            Self::Folder(path) => vec!["folder".into(), path.clone()],
            Self::Databases => vec!["databases".into()],
            Self::Size(source) => {
                let mut values = Input::default();
                source.write(&mut values);
                let fields = values.iter().flat_map(|(name, value)| [name.to_owned(), pack(value)]);
                ["size".to_owned()].into_iter().chain(fields).collect()
            }
        };
        parts.join(&PART.to_string())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(PART);
        match parts.next()? {
            "folder" => Some(Self::Folder(parts.next()?.to_owned())),
            "databases" => Some(Self::Databases),
            "size" => {
                let mut values = Input::default();
                while let Some(name) = parts.next() {
                    values.set(name, unpack(parts.next()?)?);
                }
                SourceSpec::read(&values).map(|source| Self::Size(Box::new(source)))
            }
            _ => None,
        }
    }
}

/// A field of a source: a letter for its type, then its value; lists have one item per line.
fn pack(value: &Value) -> String {
    match value {
        Value::Bool(value) => format!("b{value}"),
        Value::Integer(number) => format!("i{number}"),
        Value::Text(text) => format!("t{text}"),
        Value::List(items) => {
            let text = |item: &Value| if let Value::Text(text) = item { text.clone() } else { String::new() };
            format!("l{}", items.iter().map(text).collect::<Vec<_>>().join("\n"))
        }
        Value::Null | Value::Object(_) | Value::Other => "n".to_owned(),
    }
}

fn unpack(text: &str) -> Option<Value> {
    let (kind, rest) = text.split_at_checked(1)?;
    Some(match kind {
        "b" => Value::Bool(rest == "true"),
        "i" => Value::Integer(rest.parse().ok()?),
        "t" => Value::from(rest),
        "l" => Value::from(rest.lines().collect::<Vec<_>>()),
        "n" => Value::Null,
        _ => return None,
    })
}

/// An entry of a folder on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderItem {
    pub name: String,
    pub is_folder: bool,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseItem {
    pub engine: DatabaseEngine,
    pub name: String,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Folder {
        items: Vec<FolderItem>,
        is_cut: bool,
    },
    Databases(Vec<DatabaseItem>),
    /// Files or tables, and bytes before compression.
    Size {
        entries: u64,
        bytes: u64,
    },
}

impl Answer {
    pub fn to_text(&self) -> String {
        let line = |parts: &[&str]| parts.join(&PART.to_string());
        let lines: Vec<String> = match self {
            Self::Folder { items, is_cut } => {
                let head = line(&["folder", if *is_cut { "cut" } else { "whole" }]);
                let item = |item: &FolderItem| {
                    let kind = if item.is_folder { "folder" } else { "file" };
                    line(&[kind, &item.size.to_string(), &clean(&item.name)])
                };
                std::iter::once(head).chain(items.iter().map(item)).collect()
            }
            Self::Databases(items) => {
                let item =
                    |item: &DatabaseItem| line(&[item.engine.as_str(), &item.size.to_string(), &clean(&item.name)]);
                std::iter::once("databases".to_owned()).chain(items.iter().map(item)).collect()
            }
            Self::Size { entries, bytes } => vec![line(&["size", &entries.to_string(), &bytes.to_string()])],
        };
        lines.join("\n")
    }

    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut head = lines.next()?.split(PART);
        match head.next()? {
            "folder" => {
                let is_cut = head.next()? == "cut";
                let item = |line: &str| {
                    let mut parts = line.splitn(3, PART);
                    let is_folder = parts.next()? == "folder";
                    let size = parts.next()?.parse().ok()?;
                    Some(FolderItem { is_folder, size, name: parts.next()?.to_owned() })
                };
                Some(Self::Folder { items: lines.map(item).collect::<Option<_>>()?, is_cut })
            }
            "databases" => {
                let item = |line: &str| {
                    let mut parts = line.splitn(3, PART);
                    let engine = DatabaseEngine::parse(parts.next()?)?;
                    let size = parts.next()?.parse().ok()?;
                    Some(DatabaseItem { engine, size, name: parts.next()?.to_owned() })
                };
                Some(Self::Databases(lines.map(item).collect::<Option<_>>()?))
            }
            "size" => Some(Self::Size { entries: head.next()?.parse().ok()?, bytes: head.next()?.parse().ok()? }),
            _ => None,
        }
    }
}

/// A name from a server, on one line. Control characters are replaced; a name that contains the replacement character
/// cannot be used to ask for the entry.
fn clean(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(limits::PATH_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use crate::source::{DatabaseSource, FilesSource};

    use super::*;

    #[test]
    fn questions_and_answers_read_back() {
        let files =
            FilesSource { path: "/srv".into(), excluded: vec!["*.log".into(), "a b".into()], one_file_system: true };
        let database = DatabaseSource { name: Some("shop".into()), excluded_tables: vec!["a".into()], path: None };
        let sizes =
            [SourceSpec::Files(files), SourceSpec::Database { engine: Some(DatabaseEngine::Mysql), source: database }]
                .map(|source| Question::Size(Box::new(source)));
        for question in [Question::Folder("/a b".into()), Question::Databases].into_iter().chain(sizes) {
            assert_eq!(Question::parse(&question.to_text()), Some(question));
        }
        let folder = |name: &str, is_folder| FolderItem { name: name.into(), is_folder, size: 7 };
        let answers = [
            Answer::Folder { items: vec![folder("a", true), folder("b c", false)], is_cut: true },
            Answer::Folder { items: Vec::new(), is_cut: false },
            Answer::Databases(vec![DatabaseItem { engine: DatabaseEngine::Mysql, name: "shop".into(), size: 3 }]),
            Answer::Size { entries: 3, bytes: 1 << 40 },
        ];
        for answer in answers {
            assert_eq!(Answer::parse(&answer.to_text()), Some(answer));
        }
        assert_eq!(Question::parse("x"), None);
        assert_eq!(Answer::parse("folder"), None);
    }

    #[test]
    fn names_cannot_forge_lines() {
        let items = vec![FolderItem { name: "a\nfolder\u{1f}1\u{1f}b".into(), is_folder: false, size: 1 }];
        let Some(Answer::Folder { items, .. }) = Answer::parse(&Answer::Folder { items, is_cut: false }.to_text())
        else {
            panic!("it reads back")
        };
        assert_eq!(items.len(), 1);
    }
}
