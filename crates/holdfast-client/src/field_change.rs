//! Changes of fields: those that are asked for, and those that the service makes because of them.

use serde_json::{Value, json};

use crate::call::Tried;
use crate::kinds::{ResourceKind, shown_name};

/// The current and the new value of a field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    pub name: String,
    /// Of a secret, whether it is set.
    pub from: Value,
    pub to: Value,
    pub is_secret: bool,
    /// Of a secret that replaces another one: the service has compared them.
    pub is_known_to_differ: bool,
    /// The service does this because of the other changes.
    pub is_consequence: bool,
}

impl FieldChange {
    /// Whether a secret is sent that the service already has, the same or another.
    pub(crate) fn is_sent_again(&self) -> bool {
        self.is_secret && self.from == true && self.to == true
    }
}

pub(crate) fn plain(name: &str, from: Value, to: Value) -> FieldChange {
    FieldChange { name: name.to_owned(), from, to, is_secret: false, is_known_to_differ: false, is_consequence: false }
}

pub(crate) fn secret_change(name: &str, was_set: bool, is_set: bool) -> FieldChange {
    let (from, to) = (json!(was_set), json!(is_set));
    FieldChange { name: name.to_owned(), from, to, is_secret: true, is_known_to_differ: false, is_consequence: false }
}

/// What an update would change of a resource's fields and secrets, also without being asked to. Links never change by
/// themselves.
pub(crate) fn consequences(kind: &ResourceKind, before: &Value, tried: &Tried) -> Vec<FieldChange> {
    let after = &tried.after;
    let (was, is) = (kind.read(before), kind.read(after));
    let mut found = Vec::new();
    for name in &tried.changed {
        let (name, from, to) = match kind.field(name) {
            Some(field) if field.is_secret() => continue,
            Some(field) => (shown_name(field), was.get(name).cloned(), is.get(name).cloned()),
            // What the service learns by itself, such as a host key, is no field of a request.
            None => (name.as_str(), find(before, name).cloned(), find(after, name).cloned()),
        };
        if from != to {
            found.push(plain(name, from.unwrap_or_default(), to.unwrap_or_default()));
        }
    }
    let removed = kind.secrets().filter(|field| kind.has_secret(field, before) && !kind.has_secret(field, after));
    found.extend(removed.map(|field| secret_change(field.name, true, false)));
    found.into_iter().map(|change| FieldChange { is_consequence: true, ..change }).collect()
}

/// The member with this name, at any depth.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let members = value.as_object()?;
    members.get(name).or_else(|| members.values().find_map(|inner| find(inner, name)))
}
