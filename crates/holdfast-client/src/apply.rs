//! Declarative settings: what a file specifies is compared with what the service has, shown as a plan, and applied on
//! request. Fields are those of the API, except that the file refers to other resources by label where the API uses
//! ids. What the file does not mention stays unchanged.

mod kinds;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use holdfast_core::{destination, task};
use serde_json::{Value, json};

use self::kinds::{Fields, KINDS, PAUSED, ResourceKind};
use crate::call::Result;
use crate::{Client, ClientError};

/// The most resources of one kind that are fetched from the service; nobody keeps more in a file.
const MOST: usize = 100_000;
/// The maximum size of a file; nobody writes a larger one.
const FILE_BYTES: u64 = 4 << 20;

/// Only `true` and `false` are booleans: a label may be `no`.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

fn wrong(text: String) -> ClientError {
    ClientError::Settings(text)
}

/// One resource that the file specifies.
struct Item {
    label: String,
    fields: Fields,
    /// Labels of linked resources, by the name of the link in the file.
    links: BTreeMap<&'static str, Vec<String>>,
    secrets: BTreeMap<&'static str, String>,
}

/// What a file specifies, checked as far as possible without the service.
pub struct Wanted(Vec<(&'static ResourceKind, Vec<Item>)>);

impl Wanted {
    pub fn read(path: &Path) -> Result<Self> {
        let unread = |error: std::io::Error| wrong(format!("{}: {error}", path.display()));
        if path.as_os_str() == "-" {
            let mut text = String::new();
            let mut input = std::io::stdin().lock().take(FILE_BYTES + 1);
            input.read_to_string(&mut text).map_err(|error| wrong(format!("standard input: {error}")))?;
            if text.len() as u64 > FILE_BYTES {
                return Err(wrong("standard input is too large".to_owned()));
            }
            return Self::parse(&text, Path::new(".")).map_err(|error| wrong(format!("standard input: {error}")));
        }
        let size = std::fs::metadata(path).map_err(unread)?.len();
        if size > FILE_BYTES {
            return Err(wrong(format!("{} is too large", path.display())));
        }
        let text = std::fs::read_to_string(path).map_err(unread)?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Self::parse(&text, &folder).map_err(|error| wrong(format!("{}: {error}", path.display())))
    }

    fn parse(text: &str, folder: &Path) -> Result<Self> {
        let document: Value = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
            let text = error.to_string();
            wrong(text.lines().next().unwrap_or_default().to_owned())
        })?;
        let Value::Object(mut lists) = document else { return Err(wrong("this holds no lists of items".to_owned())) };
        let mut wanted = Vec::new();
        for kind in KINDS {
            let items = match lists.remove(kind.name) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::Array(items)) => items,
                Some(_) => return Err(wrong(format!("{} must be a list", kind.name))),
            };
            let items: Vec<Item> = items.iter().map(|item| read_item(kind, item, folder)).collect::<Result<_>>()?;
            for (number, item) in items.iter().enumerate() {
                if items[..number].iter().any(|other| other.label == item.label) {
                    return Err(wrong(format!("two {} are called {:?}", kind.name, item.label)));
                }
            }
            wanted.push((kind, items));
        }
        match lists.keys().next() {
            Some(name) => {
                let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
                Err(wrong(format!("{name} is unknown; allowed are {}", known.join(", "))))
            }
            None => Ok(Self(wanted)),
        }
    }
}

fn read_item(kind: &'static ResourceKind, item: &Value, folder: &Path) -> Result<Item> {
    let Value::Object(given) = item else { return Err(wrong(format!("every item of {} must have fields", kind.name))) };
    let label = given.get("label").and_then(Value::as_str).map(str::trim).filter(|label| !label.is_empty());
    let label = label.ok_or_else(|| wrong(format!("every item of {} needs a label", kind.name)))?.to_owned();
    let odd = |field: &str, what: &str| wrong(format!("{} {label:?}: {field} {what}", kind.one));
    let mut out =
        Item { label: label.clone(), fields: Fields::new(), links: BTreeMap::new(), secrets: BTreeMap::new() };
    for (field, value) in given {
        if (kind.fields)().contains(&field.as_str()) {
            out.fields.insert(field.clone(), tidy(field, value));
        } else if let Some(link) = kind.links.iter().find(|link| link.field == field) {
            let labels = match (value, link.is_many) {
                (Value::Null, _) => Some(Vec::new()),
                (Value::String(label), false) => Some(vec![label.clone()]),
                (Value::Array(labels), true) => {
                    labels.iter().map(|label| label.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
                }
                _ => None,
            };
            let what = if link.is_many { "must be a list of labels" } else { "must be a label" };
            let mut labels = labels.ok_or_else(|| odd(field, what))?;
            labels.sort();
            labels.dedup();
            out.links.insert(link.field, labels);
        } else if let Some((name, secret)) =
            read_secret(kind, field, value, folder).map_err(|what| odd(field, &what))?
        {
            out.secrets.insert(name, secret);
        } else {
            return Err(odd(field, &format!("is unknown{}", nearest(kind, field))));
        }
    }
    Ok(out)
}

fn trims_slashes(name: &str) -> bool {
    let mut fields = task::fields().chain(destination::fields());
    fields.any(|field| field.name == name && field.trims_slashes)
}

/// A value in the form in which the service returns it.
fn tidy(field: &str, value: &Value) -> Value {
    let Value::String(text) = value else { return value.clone() };
    let text = text.trim();
    json!(match field {
        _ if text.len() > 1 && trims_slashes(field) => text.trim_end_matches('/').to_owned(),
        "excluded_tables" => text.split(',').map(str::trim).collect::<Vec<_>>().join(","),
        "custom_cron" => text.split_whitespace().collect::<Vec<_>>().join(" "),
        "type" => text.trim_end_matches("_webhook").to_owned(),
        _ => text.to_owned(),
    })
}

/// A secret is in the file itself, in an environment variable or in a separate file.
fn read_secret(
    kind: &ResourceKind,
    field: &str,
    value: &Value,
    folder: &Path,
) -> std::result::Result<Option<(&'static str, String)>, String> {
    for name in (kind.secrets)() {
        let Some(rest) = field.strip_prefix(name) else { continue };
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
        return Ok(Some((name, secret)));
    }
    Ok(None)
}

fn nearest(kind: &ResourceKind, field: &str) -> String {
    let links = kind.links.iter().map(|link| link.field);
    let known = (kind.fields)().into_iter().chain(links).chain((kind.secrets)());
    let shared = |other: &str| field.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let best = known.max_by_key(|other| shared(other)).filter(|other| shared(other) > 2);
    best.map(|best| format!("; did you mean {best}?")).unwrap_or_default()
}

/// A change that the plan makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Create {
        fields: Vec<String>,
    },
    /// Each field with its current and its new value.
    Update {
        fields: Vec<(String, String, String)>,
    },
}

struct Step {
    kind: &'static ResourceKind,
    label: String,
    id: Option<i64>,
    change: Change,
    body: Fields,
    links: BTreeMap<&'static str, Vec<String>>,
    pause: Option<bool>,
}

/// The steps from the current state of the service to what the file specifies.
pub struct Plan {
    steps: Vec<Step>,
    /// What the service has and the file does not mention.
    pub unnamed: Vec<(&'static str, String)>,
    pub unchanged: usize,
    /// Ids by kind and label, as far as they are known.
    ids: BTreeMap<(&'static str, String), i64>,
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            match &step.change {
                Change::Create { fields } => {
                    writeln!(out, "+ {} {:?}", step.kind.one, step.label)?;
                    for field in fields {
                        writeln!(out, "    {field}")?;
                    }
                }
                Change::Update { fields } => {
                    writeln!(out, "~ {} {:?}", step.kind.one, step.label)?;
                    for (field, is, will_be) in fields {
                        writeln!(out, "    {field}: {is} -> {will_be}")?;
                    }
                }
            }
        }
        for (one, label) in &self.unnamed {
            writeln!(out, "  {one} {label:?} is not in the file and stays as it is")?;
        }
        Ok(())
    }
}

impl Plan {
    /// Compares the file with the service. With `resend_secrets`, secrets that the service already has are sent again:
    /// it never returns them, so they cannot be compared.
    pub async fn make(client: &Client, wanted: Wanted, resend_secrets: bool) -> Result<Self> {
        let mut plan = Self { steps: Vec::new(), unnamed: Vec::new(), unchanged: 0, ids: BTreeMap::new() };
        let mut labels: BTreeMap<(&'static str, i64), String> = BTreeMap::new();
        let (mut found, mut ambiguous) = (Vec::new(), BTreeSet::new());
        for kind in KINDS {
            let rows = client.list(kind.path, &[], MOST).await?;
            if rows.len() >= MOST {
                return Err(wrong(format!("the service has more {} than a file can be compared with", kind.name)));
            }
            for row in &rows {
                let (Some(id), Some(label)) = (row["id"].as_i64(), row["label"].as_str()) else { continue };
                labels.insert((kind.name, id), label.to_owned());
                if plan.ids.insert((kind.name, label.to_owned()), id).is_some() {
                    ambiguous.insert((kind.name, label.to_owned()));
                }
            }
            found.push(rows);
        }
        let known = |kind: &'static str, label: &str, wanted: &Wanted| {
            plan.ids.contains_key(&(kind, label.to_owned()))
                || wanted.0.iter().any(|(other, items)| other.name == kind && items.iter().any(|i| i.label == label))
        };
        for (kind, items) in &wanted.0 {
            for item in items {
                for link in kind.links {
                    for label in item.links.get(link.field).into_iter().flatten() {
                        if ambiguous.contains(&(link.kind, label.clone())) {
                            let what = format!("{} refers to {label:?}, and there are several", link.field);
                            return Err(wrong(format!("{} {:?}: {what}; rename them first", kind.one, item.label)));
                        }
                        if !known(link.kind, label, &wanted) {
                            let text = format!(
                                "{} {:?}: {} refers to {label:?}, which does not exist",
                                kind.one, item.label, link.field
                            );
                            return Err(wrong(text));
                        }
                    }
                }
            }
        }
        for ((kind, items), rows) in wanted.0.into_iter().zip(&found) {
            for row in rows {
                let label = row["label"].as_str().unwrap_or_default();
                if items.iter().all(|item| item.label != label) {
                    plan.unnamed.push((kind.one, label.to_owned()));
                }
            }
            for item in in_order(kind, items) {
                let mut same = rows.iter().filter(|row| row["label"] == item.label.as_str());
                match (same.next(), same.next()) {
                    (Some(_), Some(_)) => {
                        let text =
                            format!("the service has several {} called {:?}; rename them first", kind.name, item.label);
                        return Err(wrong(text));
                    }
                    (Some(row), None) => match update(kind, item, row, &labels, resend_secrets) {
                        Some(step) => plan.steps.push(step),
                        None => plan.unchanged += 1,
                    },
                    (None, _) => plan.steps.push(create(kind, item)),
                }
            }
        }
        Ok(plan)
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many resources are created, and how many are changed.
    pub fn counts(&self) -> (usize, usize) {
        let made = self.steps.iter().filter(|step| step.id.is_none()).count();
        (made, self.steps.len() - made)
    }

    /// Carries out the plan step by step. `tell` is called for each step that is done; the first one that is refused
    /// ends it.
    pub async fn carry_out(mut self, client: &Client, mut tell: impl FnMut(&str)) -> Result<()> {
        for step in std::mem::take(&mut self.steps) {
            let mut body = step.body;
            for link in step.kind.links {
                let Some(labels) = step.links.get(link.field) else { continue };
                let ids: Option<Vec<i64>> =
                    labels.iter().map(|label| self.ids.get(&(link.kind, label.clone())).copied()).collect();
                let ids = ids.ok_or_else(|| wrong(format!("{}: {} is gone", step.label, link.field)))?;
                let value = if link.is_many { json!(ids) } else { json!(ids.first()) };
                body.insert(link.id_field.to_owned(), value);
            }
            let refused = |error: ClientError| match error {
                ClientError::Refused(text) => {
                    ClientError::Refused(format!("{} {:?}: {text}", step.kind.one, step.label))
                }
                error => error,
            };
            let id = match step.id {
                None => {
                    let made = client.post(step.kind.path, Some(&Value::Object(body))).await.map_err(refused)?;
                    let odd =
                        || ClientError::Refused(format!("{} {:?}: the response has no id", step.kind.one, step.label));
                    let id = made["id"].as_i64().ok_or_else(odd)?;
                    self.ids.insert((step.kind.name, step.label.clone()), id);
                    tell(&format!("created {} {:?}", step.kind.one, step.label));
                    id
                }
                Some(id) => {
                    if !body.is_empty() {
                        let path = format!("{}/{id}", step.kind.path);
                        client.put(&path, &Value::Object(body)).await.map_err(refused)?;
                    }
                    tell(&format!("changed {} {:?}", step.kind.one, step.label));
                    id
                }
            };
            if let Some(pause) = step.pause {
                let verb = if pause { "pause" } else { "resume" };
                client.post(&format!("{}/{id}/{verb}", step.kind.path), None).await.map_err(refused)?;
            }
        }
        Ok(())
    }
}

/// Puts the resources that others of the same kind refer to first.
fn in_order(kind: &ResourceKind, mut items: Vec<Item>) -> Vec<Item> {
    if let Some(own) = kind.links.iter().find(|link| link.kind == kind.name) {
        items.sort_by_key(|item| item.links.get(own.field).is_some_and(|labels| !labels.is_empty()));
    }
    items
}

fn create(kind: &'static ResourceKind, item: Item) -> Step {
    let mut body = item.fields;
    let pause = body.remove(PAUSED).filter(|paused| *paused == true).map(|_| true);
    let mut fields: Vec<String> = body
        .iter()
        .filter(|(name, _)| *name != "label")
        .map(|(name, value)| format!("{name}: {}", shown(value)))
        .chain(item.links.iter().map(|(name, labels)| format!("{name}: {}", labels.join(", "))))
        .chain(item.secrets.keys().map(|name| format!("{name}: (secret)")))
        .collect();
    if pause.is_some() {
        fields.push("paused: true".to_owned());
    }
    body.extend(item.secrets.into_iter().map(|(name, secret)| (name.to_owned(), Value::String(secret))));
    Step { kind, label: item.label, id: None, change: Change::Create { fields }, body, links: item.links, pause }
}

/// The step for what differs; `None` if nothing does.
fn update(
    kind: &'static ResourceKind,
    item: Item,
    row: &Value,
    labels: &BTreeMap<(&'static str, i64), String>,
    resend_secrets: bool,
) -> Option<Step> {
    let is = (kind.read)(row);
    let (mut body, mut fields, mut pause) = (Fields::new(), Vec::new(), None);
    let (mut wanted, has_cron) = (item.fields, !is.get("custom_cron").is_none_or(Value::is_null));
    // A cron expression takes precedence over the frequency until it is removed.
    if has_cron && wanted.contains_key("frequency") && !wanted.contains_key("custom_cron") {
        wanted.insert("custom_cron".to_owned(), Value::Null);
    }
    // For another type the service requires all fields again, including secrets.
    let is_other_type = wanted.get("type").is_some_and(|wanted| !same(is.get("type").unwrap_or(&Value::Null), wanted));
    for (name, value) in wanted {
        let now = is.get(&name).cloned().unwrap_or(Value::Null);
        if same(&now, &value) {
            if is_other_type && name != PAUSED {
                body.insert(name, value);
            }
            continue;
        }
        fields.push((name.clone(), shown(&now), shown(&value)));
        if name == PAUSED {
            pause = value.as_bool();
        } else {
            body.insert(name, value);
        }
    }
    let mut links = BTreeMap::new();
    for link in kind.links {
        let Some(wanted) = item.links.get(link.field) else { continue };
        let ids = match is.get(link.id_field) {
            Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_i64).collect(),
            Some(id) => id.as_i64().into_iter().collect(),
            None => Vec::new(),
        };
        let mut now: Vec<&str> =
            ids.iter().filter_map(|id| labels.get(&(link.kind, *id))).map(String::as_str).collect();
        let mut then: Vec<&str> = wanted.iter().map(String::as_str).collect();
        now.sort_unstable();
        then.sort_unstable();
        if now != then {
            let words = |labels: &[&str]| if labels.is_empty() { "none".to_owned() } else { labels.join(", ") };
            fields.push((link.field.to_owned(), words(&now), words(&then)));
            links.insert(link.field, wanted.clone());
        }
    }
    let is_forgotten = fields.iter().any(|(name, ..)| (kind.requires_secrets)().contains(&name.as_str()));
    for (name, secret) in item.secrets {
        let is_set = (kind.has_secret)(row, name);
        if !is_set || resend_secrets || is_other_type || is_forgotten {
            let was = if is_set { "(secret)" } else { "none" };
            fields.push((name.to_owned(), was.to_owned(), "(secret)".to_owned()));
            body.insert(name.to_owned(), Value::String(secret));
        }
    }
    let id = row["id"].as_i64();
    let change = Change::Update { fields };
    matches!(&change, Change::Update { fields } if !fields.is_empty()).then_some(Step {
        kind,
        label: item.label,
        id,
        change,
        body,
        links,
        pause,
    })
}

/// Null and empty are the same; of an object, only the fields in the file are compared.
fn same(now: &Value, wanted: &Value) -> bool {
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match (now, wanted) {
        (Value::Object(now), Value::Object(wanted)) => {
            wanted.iter().all(|(name, value)| same(now.get(name).unwrap_or(&Value::Null), value))
        }
        (now, wanted) => now == wanted || (is_nothing(now) && is_nothing(wanted)),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Wanted> {
        Wanted::parse(text, Path::new("/nonexistent"))
    }

    fn problem(text: &str) -> String {
        parse(text).err().map(|error| error.to_string()).unwrap_or_default()
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
            ("tags: [{label: a", "line 1"),
        ];
        for (text, expected) in cases {
            let told = problem(text);
            assert!(told.contains(expected) && !told.contains('\n'), "{text}: {told}");
        }
        assert!(parse("").is_err());
    }

    /// The service forgets the password of a server that moves.
    #[test]
    fn a_server_that_moves_is_sent_its_password_again() {
        let row = json!({"id": 1, "label": "a", "connection": {"host": "192.0.2.1", "port": 22, "username": "u",
            "database_username": null, "jump_server_id": null, "is_database_password_set": true}});
        let kind = KINDS.iter().find(|kind| kind.name == "remote_servers").unwrap();
        let step = |text: &str| {
            let item =
                read_item(kind, &serde_saphyr::from_str_with_options::<Value>(text, options()).unwrap(), Path::new(""))
                    .unwrap();
            update(kind, item, &row, &BTreeMap::new(), false)
        };
        let file = |host: &str, username: &str| {
            format!("{{label: a, host: {host}, username: {username}, database_password: s}}")
        };
        assert!(step(&file("192.0.2.1", "u")).is_none());
        for file in [file("192.0.2.2", "u"), file("192.0.2.1", "other")] {
            assert_eq!(step(&file).unwrap().body["database_password"], "s", "{file}");
        }
    }

    /// The service requires the keys again.
    #[test]
    fn a_destination_that_moves_is_sent_its_keys_again() {
        let row = json!({"id": 1, "label": "a", "type": "custom_s3", "s3_bucket_name": "bucket",
            "s3_endpoint": "https://s3.example.org", "path_style_endpoint": true});
        let kind = KINDS.iter().find(|kind| kind.name == "backup_destinations").unwrap();
        let step = |text: &str| {
            let item =
                read_item(kind, &serde_saphyr::from_str_with_options::<Value>(text, options()).unwrap(), Path::new(""))
                    .unwrap();
            update(kind, item, &row, &BTreeMap::new(), false)
        };
        let file = |endpoint: &str, bucket: &str| {
            format!(
                "{{label: a, custom_s3_endpoint: '{endpoint}', s3_bucket_name: {bucket}, s3_access_key: k, \
                 s3_secret_key: s}}"
            )
        };
        assert!(step(&file("https://s3.example.org", "bucket")).is_none());
        for file in [file("https://s3.example.com", "bucket"), file("https://s3.example.org", "another")] {
            let body = step(&file).unwrap().body;
            assert_eq!((&body["s3_access_key"], &body["s3_secret_key"]), (&json!("k"), &json!("s")), "{file}");
        }
    }

    #[test]
    fn what_is_the_same_is_no_change() {
        let row = json!({"id": 7, "label": "a", "source": {"type": "files", "path": "/srv", "excluded_paths": []},
            "schedule": {"frequency": "daily", "time_to_run_at": "03:00"}, "storage": {"max_backups": 5},
            "remote_server_id": 1, "tag_ids": [1, 2], "has_encryption_password": true, "paused_at": null});
        let labels = BTreeMap::from([
            (("remote_servers", 1), "web".to_owned()),
            (("tags", 1), "x".to_owned()),
            (("tags", 2), "y".to_owned()),
        ]);
        let kind = KINDS.last().unwrap();
        let step = |text: &str, resend: bool| {
            let item =
                read_item(kind, &serde_saphyr::from_str_with_options::<Value>(text, options()).unwrap(), Path::new(""))
                    .unwrap();
            update(kind, item, &row, &labels, resend)
        };
        let same = "{label: a, source_path: /srv/, frequency: daily, time_to_run_at: '03:00', tags: [y, x], \
                    remote_server: web, encryption_password: s, paused: false, excluded_paths: []}";
        assert!(step(same, false).is_none());
        let Some(Step { change: Change::Update { fields }, .. }) = step(same, true) else { panic!("secrets are sent") };
        assert_eq!(fields.len(), 1);
        let other = step("{label: a, maximum_backups_to_keep: 9, tags: [x], paused: true}", false).unwrap();
        assert_eq!((other.pause, other.body.len(), other.links.len()), (Some(true), 1, 1));
        assert!(step("{label: a, heartbeat_url: https://example.org}", false).is_some(), "there is none yet");
    }
}
