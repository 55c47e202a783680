//! What a file specifies, checked as far as possible without the service.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use holdfast_core::fields::FieldSpec;
use serde_json::Value;

use crate::ClientError;
use crate::call::Result;
use crate::kinds::{Fields, KINDS, ResourceKind, shown_name};
use crate::yaml;

/// The maximum size of a file; nobody writes a larger one.
const FILE_BYTES: u64 = 4 << 20;
const RENAMED_FROM: &str = "renamed_from";

fn wrong(text: String) -> ClientError {
    ClientError::Settings(text)
}

/// One resource that the file specifies.
#[derive(Clone)]
pub(super) struct Item {
    pub label: String,
    /// The label that it had before.
    pub renamed_from: Option<String>,
    /// By the name of the field in the API.
    pub fields: Fields,
    /// Labels of linked resources, by the name of the link in the file.
    pub links: BTreeMap<&'static str, Vec<String>>,
    /// `None` removes the secret.
    pub secrets: Vec<(&'static FieldSpec, Option<String>)>,
}

/// The items of one kind.
#[derive(Clone)]
pub(super) struct Section {
    pub kind: &'static ResourceKind,
    /// Whether the file has this list, be it empty.
    pub is_given: bool,
    pub items: Vec<Item>,
}

/// What a file specifies.
#[derive(Clone)]
pub struct Wanted(pub(super) Vec<Section>);

impl Wanted {
    pub fn read(path: &Path) -> Result<Self> {
        let (name, folder) = match path.as_os_str() == "-" {
            true => ("standard input".to_owned(), PathBuf::from(".")),
            false => (path.display().to_string(), path.parent().map(Path::to_owned).unwrap_or_default()),
        };
        let of_file = |error: String| wrong(format!("{name}: {error}"));
        let text = if path.as_os_str() == "-" {
            read_limited(std::io::stdin().lock())
        } else {
            std::fs::File::open(path).and_then(read_limited)
        };
        let text = text.map_err(|error| of_file(error.to_string()))?;
        let text = text.ok_or_else(|| wrong(format!("{name} is too large")))?;
        Self::parse(&text, &folder).map_err(|error| of_file(error.to_string()))
    }

    pub(super) fn parse(text: &str, folder: &Path) -> Result<Self> {
        let Value::Object(mut lists) = yaml::parse(text).map_err(wrong)? else {
            return Err(wrong("this holds no lists of items".to_owned()));
        };
        let mut sections = Vec::new();
        for kind in KINDS {
            sections.push(read_section(kind, lists.remove(kind.name).unwrap_or_default(), folder)?);
        }
        match lists.keys().next() {
            Some(name) => {
                let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
                Err(wrong(format!("{name} is unknown; allowed are {}", known.join(", "))))
            }
            None => Ok(Self(sections)),
        }
    }
}

/// The text; `None` if it is too large.
fn read_limited(input: impl std::io::Read) -> std::io::Result<Option<String>> {
    let mut text = String::new();
    input.take(FILE_BYTES + 1).read_to_string(&mut text)?;
    Ok(Some(text).filter(|text| text.len() as u64 <= FILE_BYTES))
}

fn read_section(kind: &'static ResourceKind, list: Value, folder: &Path) -> Result<Section> {
    let given = match list {
        Value::Null => return Ok(Section { kind, is_given: false, items: Vec::new() }),
        Value::Array(items) => items,
        _ => return Err(wrong(format!("{} must be a list", kind.name))),
    };
    let items: Vec<Item> = given.iter().map(|item| read_item(kind, item, folder)).collect::<Result<_>>()?;
    for (number, item) in items.iter().enumerate() {
        if items[..number].iter().any(|other| other.label == item.label) {
            return Err(wrong(format!("two {} are called {:?}", kind.name, item.label)));
        }
    }
    Ok(Section { kind, is_given: true, items })
}

pub(super) fn read_item(kind: &'static ResourceKind, item: &Value, folder: &Path) -> Result<Item> {
    let Value::Object(given) = item else { return Err(wrong(format!("every item of {} must have fields", kind.name))) };
    let label = given.get("label").and_then(Value::as_str).map(str::trim).filter(|label| !label.is_empty());
    let label = label.ok_or_else(|| wrong(format!("every item of {} needs a label", kind.name)))?.to_owned();
    let mut item =
        Item { label, renamed_from: None, fields: Fields::new(), links: BTreeMap::new(), secrets: Vec::new() };
    for (name, value) in flat(given) {
        let is_repeated = read_field(kind, &mut item, &name, value, folder);
        let odd = |what: &str| wrong(format!("{} {:?}: {name} {what}", kind.one, item.label));
        if is_repeated.map_err(|what| odd(&what))? {
            return Err(odd("is given twice, under two names"));
        }
    }
    Ok(item)
}

/// The fields of an item; those of an inner object with a dot in their name.
fn flat(given: &Fields) -> Vec<(String, &Value)> {
    let mut fields = Vec::new();
    for (name, value) in given {
        match value {
            Value::Object(inner) => {
                fields.extend(inner.iter().map(|(inner, value)| (format!("{name}.{inner}"), value)));
            }
            value => fields.push((name.clone(), value)),
        }
    }
    fields
}

/// Reads one field into the item. Returns whether the item already had it.
fn read_field(
    kind: &'static ResourceKind,
    item: &mut Item,
    name: &str,
    value: &Value,
    folder: &Path,
) -> Result<bool, String> {
    if name == RENAMED_FROM {
        let label = value.as_str().map(str::trim).filter(|label| !label.is_empty());
        item.renamed_from = Some(label.ok_or("must be a label")?.to_owned());
        return Ok(false);
    }
    if let Some(link) = kind.link(name) {
        item.links.insert(link.field, labels(value, link.is_many)?);
        return Ok(false);
    }
    if let Some(field) = kind.field(name).filter(|field| !field.is_secret()) {
        return Ok(item.fields.insert(field.name.to_owned(), value.clone()).is_some());
    }
    // All flags of a stream at once.
    let inner: Vec<_> = kind.plain().filter(|field| field.name.starts_with(&format!("{name}."))).collect();
    if value.is_null() && !inner.is_empty() {
        item.fields.extend(inner.iter().map(|field| (field.name.to_owned(), Value::Null)));
        return Ok(false);
    }
    let Some((field, secret)) = read_secret(kind, name, value, folder)? else {
        return Err(format!("is unknown{}", nearest(kind, name)));
    };
    let is_repeated = item.secrets.iter().any(|(known, _)| known.name == field.name);
    item.secrets.push((field, secret));
    Ok(is_repeated)
}

fn labels(value: &Value, is_many: bool) -> Result<Vec<String>, String> {
    let label = |value: &Value| value.as_str().map(|label| label.trim().to_owned());
    let labels = match (value, is_many) {
        (Value::Null, _) => Some(Vec::new()),
        (Value::String(_), false) => label(value).map(|label| vec![label]),
        (Value::Array(labels), true) => labels.iter().map(label).collect(),
        _ => None,
    };
    let what = if is_many { "must be a list of labels" } else { "must be a label" };
    let mut labels = labels.ok_or(what)?;
    labels.sort();
    labels.dedup();
    Ok(labels)
}

/// A secret is in the file itself, in an environment variable or in a separate file. Null removes it.
fn read_secret(
    kind: &ResourceKind,
    name: &str,
    value: &Value,
    folder: &Path,
) -> Result<Option<(&'static FieldSpec, Option<String>)>, String> {
    for field in kind.secrets() {
        let Some(rest) = name.strip_prefix(field.name) else { continue };
        if rest.is_empty() && value.is_null() && field.is_nullable {
            return Ok(Some((field, None)));
        }
        let text = value.as_str().ok_or("must be text")?;
        let secret = match rest {
            "" => text.to_owned(),
            "_env" => std::env::var(text).map_err(|_| format!("names {text}, which is not set in the environment"))?,
            "_file" => {
                let path: PathBuf = folder.join(text);
                let found = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                found.trim_end_matches(['\r', '\n']).to_owned()
            }
            _ => continue,
        };
        return Ok(Some((field, Some(secret))));
    }
    Ok(None)
}

fn nearest(kind: &ResourceKind, name: &str) -> String {
    let known = kind.plain().map(shown_name).chain(kind.links.iter().map(|link| link.field));
    let known = known.chain(kind.secrets().map(|field| field.name));
    let shared = |other: &str| name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let best = known.max_by_key(|other| shared(other)).filter(|other| shared(other) > 2);
    best.map(|best| format!("; did you mean {best}?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Wanted> {
        Wanted::parse(text, Path::new("/nonexistent"))
    }

    #[test]
    fn mistakes_are_reported_before_the_service_is_called() {
        let cases = [
            ("- a", "this holds no lists"),
            ("servers: []", "servers is unknown; allowed are tags"),
            ("tags: {}", "tags must be a list"),
            ("tags: [x]", "every item of tags must have fields"),
            ("tags: [{colour: red}]", "needs a label"),
            ("tags: [{label: a}, {label: a}]", "two tags are called \"a\""),
            (
                "backup_tasks: [{label: a, source_pth: /x}]",
                "task \"a\": source_pth is unknown; did you mean source_path?",
            ),
            ("backup_tasks: [{label: a, tags: x}]", "tags must be a list of labels"),
            ("backup_tasks: [{label: a, encryption_password_file: no}]", "/nonexistent/no: No such file"),
            ("remote_servers: [{label: a, database_password_env: HOLDFAST_NO_SUCH}]", "is not set in the environment"),
            ("remote_servers: [{label: a, host: b, ip_address: c}]", "is given twice"),
            ("backup_destinations: [{label: a, s3_secret_key: null}]", "s3_secret_key must be text"),
            ("notification_streams: [{label: a, notifications: {on_both: true}}]", "notifications.on_both is unknown"),
            ("tags: [{label: a, renamed_from: 5}]", "renamed_from must be a label"),
            ("tags: [{label: a", "line 1"),
        ];
        for (text, expected) in cases {
            let told = parse(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(told.contains(expected) && !told.contains('\n'), "{text}: {told}");
        }
        assert!(parse("").is_err());
    }

    #[test]
    fn fields_have_every_spelling_of_the_api() {
        let text = "backup_tasks: [{label: a, custom_cron_expression: '@', excluded_database_tables: b, \
                    appended_file_name: c, encryption_password: null, remote_server: ' web '}]";
        let item = parse(text).unwrap().0.pop().unwrap().items.pop().unwrap();
        for name in ["custom_cron", "excluded_tables", "appended_filename"] {
            assert!(item.fields.contains_key(name), "{name}");
        }
        assert_eq!(item.links["remote_server"], ["web"]);
        assert!(matches!(item.secrets[..], [(_, None)]));
        let text = "backup_destinations: [{label: a, custom_s3_region: eu}]";
        let item = parse(text).unwrap().0.swap_remove(3).items.pop().unwrap();
        assert_eq!(item.fields["s3_region"], "eu");
    }
}
