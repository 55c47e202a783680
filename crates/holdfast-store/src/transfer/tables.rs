//! Which tables and columns go along when somebody moves, and which stay.

use std::collections::BTreeMap;

use holdfast_core::backup::{DeletedReason, Verification, is_object_key};
use holdfast_core::content::Content;
use holdfast_core::destination::{DestinationKind, Reachability};
use holdfast_core::run::{FailureCode, RunStatus};
use holdfast_core::schedule::Frequency;
use holdfast_core::server::Connectivity;
use holdfast_core::source::TaskKind;
use holdfast_core::storage::Format;
use holdfast_core::stream::StreamKind;
use serde_json::{Map, Value};

use crate::spec;

/// Rows by table.
pub type Contents = BTreeMap<String, Vec<Map<String, Value>>>;

/// What a column holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// A text that somebody can read here.
    Word(fn(&str) -> bool),
    /// A specification: an object in the document, a text in the table.
    Spec(fn(&str) -> bool),
    Int,
    /// A number from the first to the last of these.
    Within(i64, i64),
    /// Microseconds, of a time that calendars have.
    Time,
    Bool,
    /// Bytes, as hexadecimal digits.
    Bytes,
    /// A secret, opened.
    Sealed,
    /// The id of a row of another table.
    Ref(&'static str),
    /// The same, but of this table: filled in when all rows are there.
    Own,
}

pub(super) struct Table {
    pub name: &'static str,
    /// Whether rows have an id by which others name them.
    pub has_id: bool,
    pub columns: &'static [(&'static str, Kind)],
    /// Narrows the rows to those that are carried.
    pub carried: &'static str,
    /// Which rows are a user's; none for what belongs to the installation.
    pub owned: Option<&'static str>,
    /// Columns that stay behind: what they say is of this installation alone.
    pub left: &'static [&'static str],
}

const OWNED: Option<&str> = Some("user_id = ");
const OF_TASKS: Option<&str> = Some("task_id IN (SELECT id FROM backup_tasks WHERE user_id = ");

/// In the order in which rows can be written.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "users",
        has_id: true,
        columns: &[
            ("name", Kind::Text),
            ("email", Kind::Text),
            ("password_hash", Kind::Text),
            ("timezone", Kind::Text),
            ("language", Kind::Text),
            ("is_admin", Kind::Bool),
            ("weekly_summary_enabled", Kind::Bool),
            ("totp_sealed", Kind::Sealed),
            ("totp_last_step", Kind::Int),
            ("quiet_from", Kind::Text),
            ("quiet_until", Kind::Text),
            ("summary_at", Kind::Time),
            ("created_at", Kind::Time),
            ("updated_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: Some("id = "),
        left: &[],
    },
    Table {
        name: "recovery_codes",
        has_id: false,
        columns: &[("user_id", Kind::Ref("users")), ("digest", Kind::Bytes)],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "identities",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("provider", Kind::Text),
            ("subject", Kind::Text),
            ("name", Kind::Text),
            ("created_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "api_tokens",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("name", Kind::Text),
            ("digest", Kind::Bytes),
            ("scopes", Kind::Text),
            ("expires_at", Kind::Time),
            ("last_used_at", Kind::Time),
            ("expiry_told_at", Kind::Time),
            ("created_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "ssh_keys",
        has_id: false,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("public_key", Kind::Bytes),
            ("private_sealed", Kind::Sealed),
            ("created_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "remote_servers",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("label", Kind::Text),
            ("search_label", Kind::Text),
            ("host", Kind::Text),
            ("port", Kind::Within(1, 65535)),
            ("username", Kind::Text),
            ("database_username", Kind::Text),
            ("database_password_sealed", Kind::Sealed),
            ("host_key", Kind::Text),
            ("offered_host_key", Kind::Text),
            ("connectivity", Kind::Word(|text| Connectivity::parse(text).is_some())),
            ("last_connected_at", Kind::Time),
            ("last_checked_at", Kind::Time),
            ("last_error", Kind::Text),
            ("last_error_code", Kind::Word(|text| FailureCode::parse(text).is_some())),
            ("latency_micros", Kind::Int),
            ("tools", Kind::Text),
            ("jump_server_id", Kind::Own),
            ("created_at", Kind::Time),
            ("updated_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "backup_destinations",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("label", Kind::Text),
            ("search_label", Kind::Text),
            ("kind", Kind::Word(|text| DestinationKind::parse(text).is_some())),
            ("spec", Kind::Spec(spec::is_sound_destination)),
            ("s3_access_key_sealed", Kind::Sealed),
            ("s3_secret_key_sealed", Kind::Sealed),
            ("marker", Kind::Text),
            ("status", Kind::Word(|text| Reachability::parse(text).is_some())),
            ("last_checked_at", Kind::Time),
            ("last_error", Kind::Text),
            ("last_error_code", Kind::Word(|text| FailureCode::parse(text).is_some())),
            ("created_at", Kind::Time),
            ("updated_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[
            "catalogue_wanted_at",
            "catalogue_next_at",
            "catalogue_key",
            "catalogue_pending",
            "catalogue_at",
            "catalogue_bytes",
            "catalogue_error",
            "keeps_versions",
        ],
    },
    Table {
        name: "notification_streams",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("label", Kind::Text),
            ("search_label", Kind::Text),
            ("kind", Kind::Word(|text| StreamKind::parse(text).is_some())),
            ("value_sealed", Kind::Sealed),
            ("pushover_token_sealed", Kind::Sealed),
            ("on_success", Kind::Bool),
            ("on_failure", Kind::Bool),
            ("last_test_succeeded", Kind::Bool),
            ("last_test_message", Kind::Text),
            ("last_tested_at", Kind::Time),
            ("last_delivery_succeeded", Kind::Bool),
            ("last_delivery_message", Kind::Text),
            ("last_delivery_at", Kind::Time),
            ("created_at", Kind::Time),
            ("updated_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "tags",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("label", Kind::Text),
            ("search_label", Kind::Text),
            ("description", Kind::Text),
            ("colour", Kind::Text),
            ("created_at", Kind::Time),
            ("updated_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "backup_tasks",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("remote_server_id", Kind::Ref("remote_servers")),
            ("backup_destination_id", Kind::Ref("backup_destinations")),
            ("label", Kind::Text),
            ("search_label", Kind::Text),
            ("description", Kind::Text),
            ("kind", Kind::Word(|text| TaskKind::parse(text).is_some())),
            ("frequency", Kind::Word(|text| Frequency::parse(text).is_some())),
            ("spec", Kind::Spec(spec::is_sound_task)),
            ("streams_count", Kind::Int),
            ("tags_count", Kind::Int),
            ("encryption_password_sealed", Kind::Sealed),
            ("trigger_sealed", Kind::Sealed),
            ("heartbeat_sealed", Kind::Sealed),
            ("next_run_at", Kind::Time),
            ("last_run_at", Kind::Time),
            ("paused_at", Kind::Time),
            ("losses", Kind::Int),
            ("told_code", Kind::Text),
            ("told_at", Kind::Time),
            ("overdue_at", Kind::Time),
            ("last_status", Kind::Word(|text| RunStatus::parse(text).is_some())),
            ("last_error_code", Kind::Word(|text| FailureCode::parse(text).is_some())),
            ("last_warnings", Kind::Int),
            ("last_success_at", Kind::Time),
            ("overdue_since", Kind::Time),
            ("proven_at", Kind::Time),
            ("retention_held_at", Kind::Time),
            ("held_signs", Kind::Text),
            ("held_reason", Kind::Text),
            ("held_told_at", Kind::Time),
            ("created_at", Kind::Time),
            ("updated_at", Kind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        // Runs stay behind.
        left: &["retry_at", "retry_run_id", "last_run_id"],
    },
    Table {
        name: "task_streams",
        has_id: false,
        columns: &[("task_id", Kind::Ref("backup_tasks")), ("stream_id", Kind::Ref("notification_streams"))],
        carried: "TRUE",
        owned: OF_TASKS,
        left: &[],
    },
    Table {
        name: "task_tags",
        has_id: false,
        columns: &[("task_id", Kind::Ref("backup_tasks")), ("tag_id", Kind::Ref("tags"))],
        carried: "TRUE",
        owned: OF_TASKS,
        left: &[],
    },
    Table {
        name: "backups",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("task_id", Kind::Ref("backup_tasks")),
            ("task_label", Kind::Text),
            ("source", Kind::Text),
            ("source_server", Kind::Text),
            ("suspicion", Kind::Text),
            ("is_confirmed", Kind::Bool),
            ("databases", Kind::Text),
            ("content", Kind::Word(|text| Content::parse(text).is_some())),
            ("format", Kind::Word(|text| Format::parse(text).is_some())),
            ("plain_bytes", Kind::Int),
            ("plain_sha256", Kind::Text),
            ("entries", Kind::Int),
            ("is_encrypted", Kind::Bool),
            ("password_sealed", Kind::Sealed),
            ("verification", Kind::Word(|text| Verification::parse(text).is_some())),
            ("verified_at", Kind::Time),
            ("created_at", Kind::Time),
            ("deleted_at", Kind::Time),
            ("deleted_reason", Kind::Word(|text| DeletedReason::parse(text).is_some())),
        ],
        // What is nowhere any more needs nobody; what is to go still does.
        carried: "EXISTS (SELECT 1 FROM backup_copies c WHERE c.backup_id = backups.id AND c.removed_at IS NULL)",
        owned: OWNED,
        left: &["run_id"],
    },
    Table {
        name: "backup_copies",
        has_id: true,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("backup_id", Kind::Ref("backups")),
            ("destination_id", Kind::Ref("backup_destinations")),
            ("position", Kind::Within(0, 99)),
            ("locator", Kind::Word(is_object_key)),
            ("size_bytes", Kind::Int),
            ("sha256", Kind::Text),
            ("verification", Kind::Word(|text| Verification::parse(text).is_some())),
            ("verified_at", Kind::Time),
            ("created_at", Kind::Time),
            ("remove_after", Kind::Time),
            ("remove_attempts", Kind::Int),
        ],
        carried: "removed_at IS NULL",
        owned: OWNED,
        left: &["removed_at"],
    },
    Table {
        name: "user_days",
        has_id: false,
        columns: &[
            ("user_id", Kind::Ref("users")),
            ("day", Kind::Text),
            ("successful", Kind::Int),
            ("failed", Kind::Int),
            ("cancelled", Kind::Int),
            ("busy_micros", Kind::Int),
            ("stored_bytes", Kind::Int),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "settings",
        has_id: false,
        columns: &[("name", Kind::Text), ("value", Kind::Text)],
        // What workers remember between them is of this installation.
        carried: "name <> 'tallied_at'",
        owned: None,
        left: &[],
    },
];

/// Tables that stay behind: what goes on at the moment, what has been, and keys of this installation.
pub const LEFT: &[&str] = &[
    "audit_events",
    "catalogue_wishes",
    "data_keys",
    "notices",
    "probes",
    "restores",
    "run_lines",
    "runs",
    "sessions",
    "sign_in_links",
    "token_epoch",
    "uploads",
    "workers",
];
