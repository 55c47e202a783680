//! One resource at a time: found by its id or label, created and changed by fields that refer to others by label.

use reqwest::Method;
use serde_json::{Value, json};

use crate::call::{Change, Client, Condition, Result};
use crate::error::ClientError;
use crate::field_change::{FieldChange, consequences};
use crate::kinds::{Fields, KINDS, ResourceKind, set};

/// The id of a resource that was given by its id or its exact label.
pub async fn find(client: &Client, kind: &ResourceKind, name: &str) -> Result<i64> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let found = client.list(kind.path, &[("search", name.trim())]).await?;
    let is_called = |row: &&Value| row["label"].as_str().is_some_and(|label| label.trim() == name.trim());
    let exact: Vec<i64> = found.iter().filter(is_called).filter_map(|row| row["id"].as_i64()).collect();
    match exact.as_slice() {
        [id] => Ok(*id),
        [] => Err(ClientError::Missing(format!("there is no {} called {name:?}", kind.one))),
        several => {
            let ids: Vec<String> = several.iter().map(i64::to_string).collect();
            let text = format!("several {}s are called {name:?}: use one of the IDs {}", kind.one, ids.join(", "));
            Err(ClientError::Ambiguous(text))
        }
    }
}

/// A resource that was changed, and what the service has changed besides what was asked for, such as the password of a
/// server that moves, which is removed. Earlier versions of the service cannot tell that.
#[derive(Debug)]
pub struct Updated {
    pub resource: Value,
    pub consequences: Vec<FieldChange>,
    /// Fields of other resources that were cleared: the path of each resource, and the name of the field.
    pub elsewhere: Vec<(String, String)>,
}

pub async fn update(client: &Client, kind: &ResourceKind, id: i64, given: Given) -> Result<Updated> {
    let path = format!("{}/{id}", kind.path);
    let given_names: Vec<String> = given.fields.keys().cloned().collect();
    let body = given.body(client, kind).await?;
    let (mut found, mut elsewhere) = (Vec::new(), Vec::new());
    if client.has_dry_runs().await? {
        let tried = async |body: &Value| {
            let change = Change { method: Method::PUT, path: &path, body: Some(body), condition: Condition::None };
            client.try_out(&change).await
        };
        // Without any field, it is as it is now.
        let before = tried(&json!({})).await?.after;
        let tried = tried(&body).await?;
        let is_given = |change: &FieldChange| {
            kind.field(&change.name).is_some_and(|field| given_names.iter().any(|n| n == field.name))
        };
        found = consequences(kind, &before, &tried);
        found.retain(|change| !is_given(change));
        elsewhere = tried.elsewhere;
    }
    Ok(Updated { resource: client.put(&path, &body).await?, consequences: found, elsewhere })
}

/// What a command gives for one resource: fields by their name in the API, and ids or labels of others by link.
#[derive(Debug, Default)]
pub struct Given {
    pub fields: Fields,
    pub links: Vec<(&'static str, Vec<String>)>,
}

impl Given {
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.links.is_empty()
    }

    /// The body of the request.
    pub async fn body(self, client: &Client, kind: &ResourceKind) -> Result<Value> {
        let mut body = Fields::new();
        for (name, value) in self.fields {
            set(&mut body, &name, value);
        }
        for (name, labels) in self.links {
            let Some(link) = kind.link(name) else { continue };
            let Some(other) = KINDS.iter().find(|kind| kind.name == link.kind) else { continue };
            let mut ids = Vec::new();
            for label in labels.iter().filter(|label| !label.is_empty()) {
                ids.push(find(client, other, label).await?);
            }
            let value = if link.is_many { json!(ids) } else { json!(ids.first()) };
            body.insert(link.id_field.to_owned(), value);
        }
        Ok(Value::Object(body))
    }
}
