//! One step of a plan: what it changes, and the body of its request.

use std::collections::BTreeMap;

use holdfast_core::task;
use serde_json::{Value, json};

use super::file::Item;
use crate::ClientError;
use crate::call::Tried;
use crate::field_change::{FieldChange, consequences, plain, secret_change};
use crate::kinds::{Fields, ResourceKind, set, shown_name};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Create,
    Update,
    Delete,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A change of one resource.
#[derive(Debug)]
pub struct Step {
    pub kind: &'static ResourceKind,
    pub label: String,
    /// `None` if it is created.
    pub id: Option<i64>,
    pub action: Action,
    pub changes: Vec<FieldChange>,
    /// Why the service would refuse it.
    pub refusal: Option<ClientError>,
    pub progress: Progress,
    pub(super) body: Fields,
    pub(super) links: BTreeMap<&'static str, Vec<String>>,
    pub(super) pause: Option<bool>,
    /// The version that it changes or deletes, if the service has versions.
    pub(super) version: Option<String>,
    /// What the service has, if it is changed.
    before: Value,
    /// Fields of other resources that the service clears because of it, by path and name.
    pub(super) elsewhere: Vec<(String, String)>,
}

/// What has become of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Planned,
    Done,
    Failed,
    /// Its response was lost.
    Unknown,
}

impl Progress {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// Labels by kind and id.
pub(super) type Labels = BTreeMap<(&'static str, i64), String>;

pub(super) fn create(kind: &'static ResourceKind, item: Item) -> Step {
    let word = |name: &str| item.fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (mut body, mut changes, mut pause) = (Fields::new(), Vec::new(), None);
    for (name, value) in &item.fields {
        let Some(field) = kind.field(name).filter(|field| field.applies(word)) else { continue };
        // Null is the same as omitting it.
        let value = kind.stored(field, value, &word("type"));
        if value.is_null() {
            continue;
        }
        if name == task::PAUSED.name {
            pause = value.as_bool().filter(|is_paused| *is_paused);
        }
        if name != "label" && (name != task::PAUSED.name || pause.is_some()) {
            changes.push(plain(shown_name(field), Value::Null, value.clone()));
        }
        set(&mut body, name, value);
    }
    let links = item.links.iter().map(|(name, labels)| plain(name, json!([]), json!(labels)));
    changes.extend(links);
    for (field, secret) in item.secrets {
        let Some(secret) = secret.filter(|_| field.applies(word)) else { continue };
        changes.push(secret_change(field.name, false, true));
        body.insert(field.name.to_owned(), Value::String(secret));
    }
    Step { changes, body, links: item.links, pause, ..Step::new(kind, item.label, None, Action::Create) }
}

impl Step {
    fn new(kind: &'static ResourceKind, label: String, id: Option<i64>, action: Action) -> Self {
        Self {
            kind,
            label,
            id,
            action,
            changes: Vec::new(),
            refusal: None,
            progress: Progress::Planned,
            body: Fields::new(),
            links: BTreeMap::new(),
            pause: None,
            version: None,
            before: Value::Null,
            elsewhere: Vec::new(),
        }
    }

    /// What it is about, in a message.
    pub fn subject(&self) -> String {
        format!("{} {:?}", self.kind.one, self.label)
    }

    /// Puts back changes that a dry run has found to be none.
    pub(super) fn keep(&mut self, mut changes: Vec<FieldChange>) {
        self.changes.retain(|change| changes.iter().all(|kept| kept.name != change.name));
        changes.append(&mut self.changes);
        self.changes = changes;
    }

    /// Notes what the service changes because of the other changes, such as the password of a server that moves.
    pub(super) fn note_consequences(&mut self, tried: &Tried) {
        self.elsewhere.clone_from(&tried.elsewhere);
        for change in consequences(self.kind, &self.before, tried) {
            if self.changes.iter().all(|known| known.name != change.name) {
                self.changes.push(change);
            }
        }
    }

    /// Adds a secret that replaces another one, or removes it.
    pub(super) fn add_secret(&mut self, name: &str, was_set: bool, secret: Option<&str>) {
        self.changes.push(secret_change(name, was_set, secret.is_some()));
        self.body.insert(name.to_owned(), json!(secret));
    }
}

/// What an update found.
pub(super) struct Compared {
    /// What differs, which may be nothing.
    pub step: Step,
    /// Secrets in the file that the service has, too: whether they are the same is unknown.
    pub unknown_secrets: Vec<(&'static str, String)>,
}

/// Compares an item with what the service has.
pub(super) fn compare(
    kind: &'static ResourceKind,
    mut item: Item,
    row: &Value,
    labels: &Labels,
    resends: impl Fn(&str) -> bool,
) -> Compared {
    let is = kind.read(row);
    // A cron expression takes precedence over the frequency until it is removed.
    let is_named = |frequency: &Value| !frequency.is_null() && frequency != "custom";
    if item.fields.get("frequency").is_some_and(is_named) {
        item.fields.entry("custom_cron").or_insert(Value::Null);
    }
    item.fields.entry("label").or_insert_with(|| json!(item.label));
    let mut step = Step::new(kind, item.label.clone(), row["id"].as_i64(), Action::Update);
    step.before = row.clone();
    let is_other_type = compare_fields(&mut step, &item, &is);
    compare_links(&mut step, &item.links, &is, labels);
    let requires = |change: &FieldChange| {
        let field = kind.field(&change.name).map(|field| field.name);
        let link = kind.link(&change.name).map(|link| link.id_field);
        field.or(link).is_some_and(|name| kind.requires_secrets(name))
    };
    let is_forgotten = step.changes.iter().any(requires);
    let mut unknown_secrets = Vec::new();
    for (field, secret) in item.secrets {
        let is_set = kind.has_secret(field, row);
        let is_sent = !is_set || resends(field.name) || is_other_type || is_forgotten;
        match secret {
            Some(_) if !field.applies(|name| word(&step.body, &is, name)) => {}
            Some(secret) if !is_sent => unknown_secrets.push((field.name, secret)),
            None if !is_set => {}
            secret => step.add_secret(field.name, is_set, secret.as_deref()),
        }
    }
    Compared { step, unknown_secrets }
}

/// The value of a field that decides whether others apply: the new one or the current one.
fn word(new: &Fields, is: &Fields, name: &str) -> String {
    new.get(name).or_else(|| is.get(name)).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns whether the type changes: then the service requires all fields again.
fn compare_fields(step: &mut Step, item: &Item, is: &Fields) -> bool {
    let kind = step.kind;
    let given = |name: &str| Some(kind.stored(kind.field(name)?, item.fields.get(name)?, ""));
    let then = |name: &str| given(name).or_else(|| is.get(name).cloned()).unwrap_or(Value::Null);
    let of_type = then("type").as_str().unwrap_or_default().to_owned();
    let is_other_type = is.get("type").is_some_and(|now| *now != then("type"));
    for (name, value) in &item.fields {
        let Some(field) = kind.field(name) else { continue };
        let value = kind.stored(field, value, &of_type);
        if !kind.is_comparable(field, &value, then) {
            continue;
        }
        let now = is.get(name).cloned().unwrap_or(Value::Null);
        let is_same = now == value;
        if !is_same {
            step.changes.push(plain(shown_name(field), now, value.clone()));
        }
        if name == task::PAUSED.name {
            step.pause = value.as_bool().filter(|_| !is_same);
        }
        if !is_same || is_other_type {
            set(&mut step.body, name, value);
        }
    }
    is_other_type
}

fn compare_links(step: &mut Step, links: &BTreeMap<&'static str, Vec<String>>, is: &Fields, labels: &Labels) {
    for link in step.kind.links {
        let Some(wanted) = links.get(link.field) else { continue };
        let ids: Vec<i64> = match is.get(link.id_field) {
            Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_i64).collect(),
            Some(id) => id.as_i64().into_iter().collect(),
            None => Vec::new(),
        };
        let mut now: Vec<&String> = ids.iter().filter_map(|id| labels.get(&(link.kind, *id))).collect();
        now.sort_unstable();
        if now != wanted.iter().collect::<Vec<_>>() {
            step.changes.push(plain(link.field, json!(now), json!(wanted)));
            step.links.insert(link.field, wanted.clone());
        }
    }
}

/// Removes a resource that the file does not mention.
pub(super) fn delete(kind: &'static ResourceKind, row: &Value) -> Step {
    let label = row["label"].as_str().unwrap_or_default().to_owned();
    Step::new(kind, label, row["id"].as_i64(), Action::Delete)
}
