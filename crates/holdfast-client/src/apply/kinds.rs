//! The kinds of resources that a file can contain: their fields, how they refer to each other, and how the service
//! shows them.

use holdfast_core::fields::{FieldKind, FieldSpec};
use holdfast_core::{destination, server, tag, task};
use serde_json::{Map, Value, json};

pub type Fields = Map<String, Value>;

/// A reference to other resources.
pub(super) struct Link {
    /// The field in the file, which holds labels.
    pub field: &'static str,
    /// The field in the API, which holds ids.
    pub id_field: &'static str,
    pub kind: &'static str,
    pub is_many: bool,
}

/// One kind of resource that the file can contain.
pub(super) struct ResourceKind {
    /// The name of its list in the file.
    pub name: &'static str,
    /// Its singular, for messages.
    pub one: &'static str,
    pub path: &'static str,
    pub fields: fn() -> Vec<&'static str>,
    pub links: &'static [Link],
    pub secrets: fn() -> Vec<&'static str>,
    /// Fields of the file whose change makes the service drop the secrets or require them again, so that they are sent
    /// along.
    pub requires_secrets: fn() -> Vec<&'static str>,
    /// What the service has, under the field names of API requests.
    pub read: fn(&Value) -> Fields,
    /// Whether the service has a secret of this name; it never shows one.
    pub has_secret: fn(&Value, &str) -> bool,
}

const fn link(field: &'static str, id_field: &'static str, kind: &'static str, is_many: bool) -> Link {
    Link { field, id_field, kind, is_many }
}

/// In the order in which they can be created.
pub(super) const KINDS: &[ResourceKind] = &[
    ResourceKind {
        name: "tags",
        one: "tag",
        path: "/api/tags",
        fields: || plain(tag::fields()).map(|field| field.name).collect(),
        links: &[],
        secrets: || vec![],
        requires_secrets: || vec![],
        read: |found| shown(found, tag::fields()),
        has_secret: |_, _| false,
    },
    ResourceKind {
        name: "notification_streams",
        one: "stream",
        path: "/api/notification-streams",
        fields: || vec!["label", "type", "notifications"],
        links: &[],
        secrets: || vec!["value", "pushover_token"],
        requires_secrets: || vec![],
        read: |found| pick(found, &[("label", "/label"), ("type", "/type"), ("notifications", "/notifications")]),
        has_secret: |found, name| name == "value" || found["type"] != "pushover",
    },
    ResourceKind {
        name: "remote_servers",
        one: "server",
        path: "/api/remote-servers",
        fields: || plain(server::fields()).map(|field| server_field(field.name)).collect(),
        links: &[link("jump_server", "jump_server_id", "remote_servers", false)],
        secrets: || secrets(server::fields()),
        requires_secrets: || {
            let links = |name: &'static str| if name == server::JUMP_SERVER.name { "jump_server" } else { name };
            renewing(server::fields()).map(|name| links(server_field(name))).collect()
        },
        read: |found| {
            let fields = shown(found, server::fields());
            fields.into_iter().map(|(name, value)| (server_field(&name).to_owned(), value)).collect()
        },
        has_secret: |found, name| has_secret(found, server::fields(), name),
    },
    ResourceKind {
        name: "backup_destinations",
        one: "destination",
        path: "/api/backup-destinations",
        fields: || plain(destination::fields()).map(|field| field.name).collect(),
        links: &[],
        secrets: || secrets(destination::fields()),
        requires_secrets: || renewing(destination::fields()).collect(),
        read: |found| shown(found, destination::fields()),
        has_secret: |found, name| has_secret(found, destination::fields(), name),
    },
    ResourceKind {
        name: "backup_tasks",
        one: "task",
        path: "/api/backup-tasks",
        fields: || plain(task::fields()).map(|field| field.name).chain([PAUSED]).collect(),
        links: &[
            link("remote_server", "remote_server_id", "remote_servers", false),
            link("backup_destination", "backup_destination_id", "backup_destinations", false),
            link("notification_streams", "notification_stream_ids", "notification_streams", true),
            link("tags", "tag_ids", "tags", true),
        ],
        secrets: || secrets(task::fields()),
        requires_secrets: || renewing(task::fields()).collect(),
        read: |found| {
            let mut fields = shown(found, task::fields());
            fields.insert(PAUSED.to_owned(), json!(!found["paused_at"].is_null()));
            fields
        },
        has_secret: |found, name| has_secret(found, task::fields(), name),
    },
];

/// Not a field of the API, where pausing is an action.
pub(super) const PAUSED: &str = "paused";

/// The file uses the shorter of the two names that the API accepts for a server's address.
fn server_field(name: &str) -> &str {
    if name == server::HOST.name { "host" } else { name }
}

/// Fields that the file contains as they are: those that the service shows, without secrets and references.
fn plain(fields: impl Iterator<Item = &'static FieldSpec>) -> impl Iterator<Item = &'static FieldSpec> {
    let is_link = |field: &FieldSpec| matches!(field.kind, FieldKind::Id | FieldKind::Ids { .. });
    fields.filter(move |field| field.shown_at.is_some() && !field.is_secret() && !is_link(field))
}

fn renewing(fields: impl Iterator<Item = &'static FieldSpec>) -> impl Iterator<Item = &'static str> {
    fields.filter(|field| field.requires_secrets).map(|field| field.name)
}

/// Whether a secret is set: responses show it, or the secret is always set where it applies.
fn has_secret(found: &Value, mut fields: impl Iterator<Item = &'static FieldSpec>, name: &str) -> bool {
    let field = fields.find(|field| field.name == name);
    field.is_some_and(|field| match field.shown_at {
        Some(pointer) => found.pointer(pointer) == Some(&Value::Bool(true)),
        None => field.applies(|decides| found[decides].as_str().unwrap_or_default().to_owned()),
    })
}

fn secrets(fields: impl Iterator<Item = &'static FieldSpec>) -> Vec<&'static str> {
    fields.filter(|field| field.is_secret()).map(|field| field.name).collect()
}

/// What the service shows of the listed fields, under the field names of API requests.
fn shown(found: &Value, fields: impl Iterator<Item = &'static FieldSpec>) -> Fields {
    let places: Vec<(&str, &str)> =
        fields.filter(|field| !field.is_secret()).filter_map(|field| Some((field.name, field.shown_at?))).collect();
    pick(found, &places)
}

fn pick(found: &Value, places: &[(&str, &str)]) -> Fields {
    let at = |place: &str| found.pointer(place).cloned().unwrap_or(Value::Null);
    places.iter().map(|(name, place)| ((*name).to_owned(), at(place))).collect()
}
