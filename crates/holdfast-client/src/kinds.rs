//! The kinds of resources of a service, as files and commands name them: their fields, how they refer to each other, and
//! how the service shows them.

mod value;

use holdfast_core::destination::{self, DestinationKind};
use holdfast_core::fields::{FieldKind, FieldSpec};
use holdfast_core::{server, stream, tag, task};
use serde_json::{Map, Value, json};

pub type Fields = Map<String, Value>;

/// A reference to other resources.
#[derive(Debug)]
pub struct Link {
    /// Its name here, where it holds labels.
    pub field: &'static str,
    /// Its name in the API, where it holds ids.
    pub id_field: &'static str,
    /// The name of the kind that it refers to.
    pub kind: &'static str,
    pub is_many: bool,
}

/// One kind of resource.
#[derive(Debug)]
pub struct ResourceKind {
    /// The name of its list in a file.
    pub name: &'static str,
    /// Its singular, for messages and commands.
    pub one: &'static str,
    pub path: &'static str,
    /// The fields of its requests.
    pub fields: fn() -> Vec<&'static FieldSpec>,
    /// Where responses show these fields; a field may be shown in several places, each for other types.
    shown: fn() -> Vec<&'static FieldSpec>,
    pub links: &'static [Link],
}

const fn link(field: &'static str, id_field: &'static str, kind: &'static str, is_many: bool) -> Link {
    Link { field, id_field, kind, is_many }
}

/// In the order in which they can be created.
pub const KINDS: &[ResourceKind] = &[TAGS, STREAMS, SERVERS, DESTINATIONS, TASKS];

pub const TAGS: ResourceKind = ResourceKind {
    name: "tags",
    one: "tag",
    path: "/api/tags",
    fields: || tag::fields().collect(),
    shown: || tag::fields().collect(),
    links: &[],
};

pub const STREAMS: ResourceKind = ResourceKind {
    name: "notification_streams",
    one: "stream",
    path: "/api/notification-streams",
    fields: || stream::fields().collect(),
    shown: || stream::fields().collect(),
    links: &[],
};

pub const SERVERS: ResourceKind = ResourceKind {
    name: "remote_servers",
    one: "server",
    path: "/api/remote-servers",
    fields: || server::fields().collect(),
    shown: || server::fields().collect(),
    links: &[link("jump_server", "jump_server_id", "remote_servers", false)],
};

pub const DESTINATIONS: ResourceKind = ResourceKind {
    name: "backup_destinations",
    one: "destination",
    path: "/api/backup-destinations",
    fields: || destination::fields().collect(),
    shown: || {
        destination::fields().filter(|field| field.only_if.is_none()).chain(destination::shown_fields()).collect()
    },
    links: &[],
};

pub const TASKS: ResourceKind = ResourceKind {
    name: "backup_tasks",
    one: "task",
    path: "/api/backup-tasks",
    fields: || task::request_fields().collect(),
    shown: || task::request_fields().collect(),
    links: &[
        link("remote_server", "remote_server_id", "remote_servers", false),
        link("backup_destination", "backup_destination_id", "backup_destinations", false),
        link("notification_streams", "notification_stream_ids", "notification_streams", true),
        link("tags", "tag_ids", "tags", true),
    ],
};

impl ResourceKind {
    /// The field that is called this, or also called this.
    pub fn field(&self, name: &str) -> Option<&'static FieldSpec> {
        let mut fields = (self.fields)().into_iter().filter(|field| !is_link(field));
        fields.find(|field| field.name == name || field.aliases.contains(&name))
    }

    pub fn link(&self, name: &str) -> Option<&'static Link> {
        self.links.iter().find(|link| link.field == name)
    }

    /// Fields that are neither secrets nor links.
    pub fn plain(&self) -> impl Iterator<Item = &'static FieldSpec> {
        (self.fields)().into_iter().filter(|field| !field.is_secret() && !is_link(field))
    }

    pub fn secrets(&self) -> impl Iterator<Item = &'static FieldSpec> {
        (self.fields)().into_iter().filter(|field| field.is_secret())
    }

    /// Whether a change of this field, or of the link with this id, makes the service drop the secrets or require them
    /// again.
    pub fn requires_secrets(&self, name: &str) -> bool {
        (self.fields)().iter().any(|field| field.name == name && field.requires_secrets)
    }

    /// What the service has: its plain fields by name, and the ids of its links.
    pub fn read(&self, found: &Value) -> Fields {
        let fields = (self.fields)().into_iter().filter(|field| !field.is_secret());
        fields.map(|field| (field.name.to_owned(), self.value(field, found))).collect()
    }

    fn value(&self, field: &FieldSpec, found: &Value) -> Value {
        if field.name == task::PAUSED.name {
            return json!(!found["paused_at"].is_null());
        }
        let value = self.place(field, found).and_then(|place| found.pointer(place)).cloned().unwrap_or(Value::Null);
        if is_link(field) { value } else { value::tidy(field, &value) }
    }

    /// Where this response shows a field.
    fn place(&self, field: &FieldSpec, found: &Value) -> Option<&'static str> {
        let word = |name: &str| self.word(name, found);
        (self.shown)().into_iter().find(|one| one.name == field.name && one.is_shown(word))?.shown_at
    }

    /// The value of a field that decides whether others apply.
    fn word(&self, name: &str, found: &Value) -> String {
        let place = (self.fields)().into_iter().find(|field| field.name == name).and_then(|field| field.shown_at);
        place.and_then(|place| found.pointer(place)).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Whether a secret is set. Responses show it, or it is always set where it applies.
    pub fn has_secret(&self, field: &FieldSpec, found: &Value) -> bool {
        match field.shown_at {
            // A service of an earlier version does not show it: then it counts as set, and is not compared.
            Some(place) => {
                field.applies(|name| self.word(name, found)) && found.pointer(place) != Some(&Value::Bool(false))
            }
            None => field.applies(|name| self.word(name, found)),
        }
    }

    /// A value as the service stores it. Null is the default of a field that has one; `kind` is the `type`.
    pub fn stored(&self, field: &FieldSpec, value: &Value, kind: &str) -> Value {
        let value = value::tidy(field, value);
        let default = match DestinationKind::parse(kind) {
            Some(kind) if self.name == DESTINATIONS.name => destination::default_of(field, kind),
            Some(_) | None => field.default,
        };
        match (value, default) {
            (Value::Null, Some(default)) => value::of_default(default),
            (value, _) => value,
        }
    }

    /// Whether the service would show this value if it had it, given the values of the other fields. What it does not
    /// show, or chooses itself, cannot be compared.
    pub fn is_comparable(&self, field: &FieldSpec, value: &Value, other: impl Fn(&str) -> Value) -> bool {
        let word = |name: &str| other(name).as_str().unwrap_or_default().to_owned();
        let of_frequency =
            |frequency: &str| !value.is_null() && word("frequency") == frequency && other("custom_cron").is_null();
        field.applies(word)
            && match field.name {
                "day_of_week" => of_frequency("weekly"),
                "day_of_month" => of_frequency("monthly"),
                // With a cron expression there need not be a frequency.
                "frequency" => !value.is_null() || other("custom_cron").is_null(),
                // Null leaves it to the server; the key that it shows is pinned.
                "sftp_host_key_fingerprint" => !value.is_null(),
                _ => true,
            }
    }
}

/// The name of a field here: for a server's address the shorter of the two that the API accepts.
pub fn shown_name(field: &FieldSpec) -> &'static str {
    if field.name == server::HOST.name { "host" } else { field.name }
}

/// Sets a field of a request; the name of a nested one has a dot.
pub fn set(body: &mut Fields, name: &str, value: Value) {
    match name.split_once('.') {
        None => drop(body.insert(name.to_owned(), value)),
        Some((outer, inner)) => {
            let object = body.entry(outer).or_insert_with(|| json!({}));
            object[inner] = value;
        }
    }
}

fn is_link(field: &FieldSpec) -> bool {
    matches!(field.kind, FieldKind::Id | FieldKind::Ids { .. })
}
