//! The request that carries out a step.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use super::step::{Action, Step};
use crate::call::{Change, Condition};

/// Ids by kind and label.
pub(super) type Ids = BTreeMap<(&'static str, String), i64>;

pub(super) struct StepRequest {
    method: Method,
    path: String,
    body: Option<Value>,
    /// The fields of links to what does not exist yet.
    pub unknown_links: Vec<&'static str>,
}

impl StepRequest {
    pub(super) fn of(step: &Step, ids: &Ids) -> Self {
        let (mut body, mut unknown_links) = (step.body.clone(), Vec::new());
        for link in step.kind.links {
            let Some(labels) = step.links.get(link.field) else { continue };
            let id = |label: &String| ids.get(&(link.kind, label.clone())).copied();
            let known: Vec<i64> = labels.iter().filter_map(id).collect();
            if known.len() < labels.len() {
                unknown_links.push(link.id_field);
                continue;
            }
            let value = if link.is_many { json!(known) } else { json!(known.first()) };
            body.insert(link.id_field.to_owned(), value);
        }
        let body = Value::Object(body);
        let of_id = |id: i64| format!("{}/{id}", step.kind.path);
        let (method, path, body) = match (step.action, step.id) {
            (Action::Delete, Some(id)) => (Method::DELETE, of_id(id), None),
            (Action::Update, Some(id)) => (Method::PUT, of_id(id), Some(body)),
            (Action::Create | Action::Update | Action::Delete, _) => {
                (Method::POST, step.kind.path.to_owned(), Some(body))
            }
        };
        Self { method, path, body, unknown_links }
    }

    /// Two that apply the same file at once must not create the same thing twice, nor undo each other's changes.
    pub(super) fn change<'a>(&'a self, version: Option<&'a str>) -> Change<'a> {
        let condition = match version {
            Some(version) => Condition::Version(version),
            None if self.method == Method::POST => Condition::NewLabel,
            None => Condition::None,
        };
        Change { method: self.method.clone(), path: &self.path, body: self.body.as_ref(), condition }
    }
}
