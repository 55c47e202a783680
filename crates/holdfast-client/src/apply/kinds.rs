//! The kinds of things that a file can hold: their fields, how they name each other, and how the service shows them.

use serde_json::{Map, Value, json};

pub type Fields = Map<String, Value>;

/// How the file names something else.
pub(super) struct Link {
    /// In the file.
    pub field: &'static str,
    /// In the API.
    pub id_field: &'static str,
    pub kind: &'static str,
    pub is_many: bool,
}

/// One kind of thing that the file can hold.
pub(super) struct Kind {
    /// Its list in the file.
    pub name: &'static str,
    /// One of them, for people.
    pub one: &'static str,
    pub path: &'static str,
    pub fields: &'static [&'static str],
    pub links: &'static [Link],
    pub secrets: &'static [&'static str],
    /// Fields of the file whose change makes the service forget the secrets or want them again, so that they are sent along.
    pub forgets_secrets: &'static [&'static str],
    /// What the service has, in the API's words for what it takes.
    pub read: fn(&Value) -> Fields,
    /// Whether the service has a secret of this name; it never shows one.
    pub has_secret: fn(&Value, &str) -> bool,
}

const fn link(field: &'static str, id_field: &'static str, kind: &'static str, is_many: bool) -> Link {
    Link { field, id_field, kind, is_many }
}

/// In the order in which they can be made.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "tags",
        one: "tag",
        path: "/api/tags",
        fields: &["label", "description", "colour"],
        links: &[],
        secrets: &[],
        forgets_secrets: &[],
        read: |found| pick(found, &[("label", "/label"), ("description", "/description"), ("colour", "/colour")]),
        has_secret: |_, _| false,
    },
    Kind {
        name: "notification_streams",
        one: "stream",
        path: "/api/notification-streams",
        fields: &["label", "type", "notifications"],
        links: &[],
        secrets: &["value", "pushover_token"],
        forgets_secrets: &[],
        read: |found| pick(found, &[("label", "/label"), ("type", "/type"), ("notifications", "/notifications")]),
        has_secret: |found, name| name == "value" || found["type"] != "pushover",
    },
    Kind {
        name: "remote_servers",
        one: "server",
        path: "/api/remote-servers",
        fields: &["label", "host", "port", "username", "database_username"],
        links: &[link("jump_server", "jump_server_id", "remote_servers", false)],
        secrets: &["database_password"],
        forgets_secrets: &["host", "port", "username", "jump_server"],
        read: |found| {
            let places = [
                ("label", "/label"),
                ("host", "/connection/host"),
                ("port", "/connection/port"),
                ("username", "/connection/username"),
                ("database_username", "/connection/database_username"),
                ("jump_server_id", "/connection/jump_server_id"),
            ];
            pick(found, &places)
        },
        has_secret: |found, _| found["connection"]["is_database_password_set"] == true,
    },
    Kind {
        name: "backup_destinations",
        one: "destination",
        path: "/api/backup-destinations",
        fields: &["label", "type", "s3_bucket_name", "s3_region", "custom_s3_endpoint", "path_style_endpoint"],
        links: &[],
        secrets: &["s3_access_key", "s3_secret_key"],
        forgets_secrets: &["s3_bucket_name", "s3_region", "custom_s3_endpoint", "path_style_endpoint"],
        read: |found| {
            let places = [
                ("label", "/label"),
                ("type", "/type"),
                ("s3_bucket_name", "/s3_bucket_name"),
                ("s3_region", "/s3_region"),
                ("custom_s3_endpoint", "/s3_endpoint"),
                ("path_style_endpoint", "/path_style_endpoint"),
            ];
            pick(found, &places)
        },
        has_secret: |found, _| !found["s3_bucket_name"].is_null(),
    },
    Kind {
        name: "backup_tasks",
        one: "task",
        path: "/api/backup-tasks",
        fields: &[
            "label",
            "description",
            "type",
            "source_path",
            "database_name",
            "database_engine",
            "excluded_tables",
            "excluded_paths",
            "one_file_system",
            "frequency",
            "time_to_run_at",
            "day_of_week",
            "day_of_month",
            "custom_cron",
            "maximum_backups_to_keep",
            "store_path",
            "appended_filename",
            PAUSED,
        ],
        links: &[
            link("remote_server", "remote_server_id", "remote_servers", false),
            link("backup_destination", "backup_destination_id", "backup_destinations", false),
            link("notification_streams", "notification_stream_ids", "notification_streams", true),
            link("tags", "tag_ids", "tags", true),
        ],
        secrets: &["encryption_password", "heartbeat_url"],
        forgets_secrets: &[],
        read: |found| {
            let places = [
                ("label", "/label"),
                ("description", "/description"),
                ("type", "/source/type"),
                ("source_path", "/source/path"),
                ("database_name", "/source/database_name"),
                ("database_engine", "/source/database_engine"),
                ("excluded_tables", "/source/excluded_tables"),
                ("excluded_paths", "/source/excluded_paths"),
                ("one_file_system", "/source/one_file_system"),
                ("frequency", "/schedule/frequency"),
                ("time_to_run_at", "/schedule/scheduled_utc_time"),
                ("day_of_week", "/schedule/day_of_week"),
                ("day_of_month", "/schedule/day_of_month"),
                ("custom_cron", "/schedule/custom_cron"),
                ("maximum_backups_to_keep", "/storage/max_backups"),
                ("store_path", "/storage/path"),
                ("appended_filename", "/storage/appended_filename"),
                ("remote_server_id", "/remote_server_id"),
                ("backup_destination_id", "/backup_destination_id"),
                ("notification_stream_ids", "/notification_stream_ids"),
                ("tag_ids", "/tag_ids"),
            ];
            let mut fields = pick(found, &places);
            fields.insert(PAUSED.to_owned(), json!(!found["paused_at"].is_null()));
            fields
        },
        has_secret: |found, name| match name {
            "heartbeat_url" => found["has_heartbeat_url"] == true,
            _ => found["has_encryption_password"] == true,
        },
    },
];

/// No field of the API: pausing is something that is done.
pub(super) const PAUSED: &str = "paused";

fn pick(found: &Value, places: &[(&str, &str)]) -> Fields {
    let at = |place: &str| found.pointer(place).cloned().unwrap_or(Value::Null);
    places.iter().map(|(name, place)| ((*name).to_owned(), at(place))).collect()
}
