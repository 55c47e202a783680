//! Which tables and columns are exported, and which are left out.

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
pub(super) enum ColumnKind {
    Text,
    /// A text that must pass this check.
    Word(fn(&str) -> bool),
    /// A specification: an object in the document, a text in the table.
    Spec(fn(&str) -> bool),
    Int,
    /// A number between these two, inclusive.
    Within(i64, i64),
    /// Microseconds since 1970, within the range of valid times.
    Time,
    Bool,
    /// Bytes, as hexadecimal digits.
    Bytes,
    /// A secret: in plain text in the document, sealed in the table.
    Sealed,
    /// The id of a row of another table.
    Ref(&'static str),
    /// The id of another row of the same table, filled in once all rows exist.
    Own,
}

pub(super) struct Table {
    pub name: &'static str,
    /// Whether rows have an id by which others refer to them.
    pub has_id: bool,
    pub columns: &'static [(&'static str, ColumnKind)],
    /// SQL condition for the rows that are exported.
    pub carried: &'static str,
    /// Start of an SQL condition for the rows of a user, whose id follows; `None` for what belongs to the installation.
    pub owned: Option<&'static str>,
    /// Columns that are left out, because they only concern this installation.
    pub left: &'static [&'static str],
}

const OWNED: Option<&str> = Some("user_id = ");
const OF_TASKS: Option<&str> = Some("task_id IN (SELECT id FROM backup_tasks WHERE user_id = ");

/// In the order in which their rows can be inserted.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "users",
        has_id: true,
        columns: &[
            ("name", ColumnKind::Text),
            ("email", ColumnKind::Text),
            ("password_hash", ColumnKind::Text),
            ("timezone", ColumnKind::Text),
            ("language", ColumnKind::Text),
            ("is_admin", ColumnKind::Bool),
            ("weekly_summary_enabled", ColumnKind::Bool),
            ("totp_sealed", ColumnKind::Sealed),
            ("totp_last_step", ColumnKind::Int),
            ("quiet_from", ColumnKind::Text),
            ("quiet_until", ColumnKind::Text),
            ("summary_at", ColumnKind::Time),
            ("suspended_at", ColumnKind::Time),
            ("created_at", ColumnKind::Time),
            ("updated_at", ColumnKind::Time),
        ],
        carried: "TRUE",
        owned: Some("id = "),
        left: &[],
    },
    Table {
        name: "recovery_codes",
        has_id: false,
        columns: &[("user_id", ColumnKind::Ref("users")), ("digest", ColumnKind::Bytes)],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "identities",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("provider", ColumnKind::Text),
            ("subject", ColumnKind::Text),
            ("name", ColumnKind::Text),
            ("created_at", ColumnKind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "api_tokens",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("name", ColumnKind::Text),
            ("digest", ColumnKind::Bytes),
            ("scopes", ColumnKind::Text),
            ("expires_at", ColumnKind::Time),
            ("last_used_at", ColumnKind::Time),
            ("expiry_told_at", ColumnKind::Time),
            ("created_at", ColumnKind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "ssh_keys",
        has_id: false,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("public_key", ColumnKind::Bytes),
            ("private_sealed", ColumnKind::Sealed),
            ("created_at", ColumnKind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "remote_servers",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("label", ColumnKind::Text),
            ("search_label", ColumnKind::Text),
            ("host", ColumnKind::Text),
            ("port", ColumnKind::Within(1, 65535)),
            ("username", ColumnKind::Text),
            ("database_username", ColumnKind::Text),
            ("database_password_sealed", ColumnKind::Sealed),
            ("login_key_sealed", ColumnKind::Sealed),
            ("host_key", ColumnKind::Text),
            ("offered_host_key", ColumnKind::Text),
            ("connectivity", ColumnKind::Word(|text| Connectivity::parse(text).is_some())),
            ("last_connected_at", ColumnKind::Time),
            ("last_checked_at", ColumnKind::Time),
            ("last_error", ColumnKind::Text),
            ("last_error_code", ColumnKind::Word(|text| FailureCode::parse(text).is_some())),
            ("latency_micros", ColumnKind::Int),
            ("tools", ColumnKind::Text),
            ("jump_server_id", ColumnKind::Own),
            ("created_at", ColumnKind::Time),
            ("updated_at", ColumnKind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "backup_destinations",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("label", ColumnKind::Text),
            ("search_label", ColumnKind::Text),
            ("kind", ColumnKind::Word(|text| DestinationKind::parse(text).is_some())),
            ("spec", ColumnKind::Spec(spec::is_sound_destination)),
            ("s3_access_key_sealed", ColumnKind::Sealed),
            ("s3_secret_key_sealed", ColumnKind::Sealed),
            ("login_key_sealed", ColumnKind::Sealed),
            // As it was: the folder keeps its name.
            ("folder_user_id", ColumnKind::Int),
            ("marker", ColumnKind::Text),
            ("status", ColumnKind::Word(|text| Reachability::parse(text).is_some())),
            ("last_checked_at", ColumnKind::Time),
            ("last_error", ColumnKind::Text),
            ("last_error_code", ColumnKind::Word(|text| FailureCode::parse(text).is_some())),
            ("created_at", ColumnKind::Time),
            ("updated_at", ColumnKind::Time),
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
            ("user_id", ColumnKind::Ref("users")),
            ("label", ColumnKind::Text),
            ("search_label", ColumnKind::Text),
            ("kind", ColumnKind::Word(|text| StreamKind::parse(text).is_some())),
            ("value_sealed", ColumnKind::Sealed),
            ("pushover_token_sealed", ColumnKind::Sealed),
            ("on_success", ColumnKind::Bool),
            ("on_failure", ColumnKind::Bool),
            ("last_test_succeeded", ColumnKind::Bool),
            ("last_test_message", ColumnKind::Text),
            ("last_tested_at", ColumnKind::Time),
            ("last_delivery_succeeded", ColumnKind::Bool),
            ("last_delivery_message", ColumnKind::Text),
            ("last_delivery_at", ColumnKind::Time),
            ("created_at", ColumnKind::Time),
            ("updated_at", ColumnKind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "tags",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("label", ColumnKind::Text),
            ("search_label", ColumnKind::Text),
            ("description", ColumnKind::Text),
            ("colour", ColumnKind::Text),
            ("created_at", ColumnKind::Time),
            ("updated_at", ColumnKind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "backup_tasks",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("remote_server_id", ColumnKind::Ref("remote_servers")),
            ("backup_destination_id", ColumnKind::Ref("backup_destinations")),
            ("label", ColumnKind::Text),
            ("search_label", ColumnKind::Text),
            ("description", ColumnKind::Text),
            ("kind", ColumnKind::Word(|text| TaskKind::parse(text).is_some())),
            ("frequency", ColumnKind::Word(|text| Frequency::parse(text).is_some())),
            ("spec", ColumnKind::Spec(spec::is_sound_task)),
            ("streams_count", ColumnKind::Int),
            ("tags_count", ColumnKind::Int),
            ("encryption_password_sealed", ColumnKind::Sealed),
            ("trigger_sealed", ColumnKind::Sealed),
            ("heartbeat_sealed", ColumnKind::Sealed),
            ("next_run_at", ColumnKind::Time),
            ("last_run_at", ColumnKind::Time),
            ("paused_at", ColumnKind::Time),
            ("paused_together", ColumnKind::Bool),
            ("losses", ColumnKind::Int),
            ("told_code", ColumnKind::Text),
            ("told_at", ColumnKind::Time),
            ("overdue_at", ColumnKind::Time),
            ("last_status", ColumnKind::Word(|text| RunStatus::parse(text).is_some())),
            ("last_error_code", ColumnKind::Word(|text| FailureCode::parse(text).is_some())),
            ("last_warnings", ColumnKind::Int),
            ("last_success_at", ColumnKind::Time),
            ("overdue_since", ColumnKind::Time),
            ("proven_at", ColumnKind::Time),
            ("retention_held_at", ColumnKind::Time),
            ("held_signs", ColumnKind::Text),
            ("held_reason", ColumnKind::Text),
            ("held_told_at", ColumnKind::Time),
            ("created_at", ColumnKind::Time),
            ("updated_at", ColumnKind::Time),
        ],
        carried: "TRUE",
        owned: OWNED,
        // Runs are left out.
        left: &["retry_at", "retry_run_id", "last_run_id"],
    },
    Table {
        name: "task_streams",
        has_id: false,
        columns: &[
            ("task_id", ColumnKind::Ref("backup_tasks")),
            ("stream_id", ColumnKind::Ref("notification_streams")),
        ],
        carried: "TRUE",
        owned: OF_TASKS,
        left: &[],
    },
    Table {
        name: "task_tags",
        has_id: false,
        columns: &[("task_id", ColumnKind::Ref("backup_tasks")), ("tag_id", ColumnKind::Ref("tags"))],
        carried: "TRUE",
        owned: OF_TASKS,
        left: &[],
    },
    Table {
        name: "backups",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("task_id", ColumnKind::Ref("backup_tasks")),
            ("task_label", ColumnKind::Text),
            ("source", ColumnKind::Text),
            ("source_server", ColumnKind::Text),
            ("suspicion", ColumnKind::Text),
            ("is_confirmed", ColumnKind::Bool),
            ("databases", ColumnKind::Text),
            ("content", ColumnKind::Word(|text| Content::parse(text).is_some())),
            ("format", ColumnKind::Word(|text| Format::parse(text).is_some())),
            ("plain_bytes", ColumnKind::Within(0, i64::MAX)),
            ("plain_sha256", ColumnKind::Text),
            ("entries", ColumnKind::Within(0, i64::MAX)),
            ("is_encrypted", ColumnKind::Bool),
            ("password_sealed", ColumnKind::Sealed),
            ("verification", ColumnKind::Word(|text| Verification::parse(text).is_some())),
            ("verified_at", ColumnKind::Time),
            ("created_at", ColumnKind::Time),
            ("deleted_at", ColumnKind::Time),
            ("deleted_reason", ColumnKind::Word(|text| DeletedReason::parse(text).is_some())),
        ],
        // Backups without any remaining copy are left out; those that are still to be removed are not.
        carried: "EXISTS (SELECT 1 FROM backup_copies c WHERE c.backup_id = backups.id AND c.removed_at IS NULL)",
        owned: OWNED,
        left: &["run_id"],
    },
    Table {
        name: "backup_copies",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("backup_id", ColumnKind::Ref("backups")),
            ("destination_id", ColumnKind::Ref("backup_destinations")),
            ("position", ColumnKind::Within(0, 99)),
            ("locator", ColumnKind::Word(is_object_key)),
            ("size_bytes", ColumnKind::Within(0, i64::MAX)),
            ("sha256", ColumnKind::Text),
            ("verification", ColumnKind::Word(|text| Verification::parse(text).is_some())),
            ("verified_at", ColumnKind::Time),
            ("created_at", ColumnKind::Time),
            ("remove_after", ColumnKind::Time),
            ("remove_attempts", ColumnKind::Int),
        ],
        carried: "removed_at IS NULL",
        owned: OWNED,
        left: &["removed_at"],
    },
    Table {
        name: "user_days",
        has_id: false,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("day", ColumnKind::Text),
            ("successful", ColumnKind::Int),
            ("failed", ColumnKind::Int),
            ("cancelled", ColumnKind::Int),
            ("busy_micros", ColumnKind::Int),
            ("stored_bytes", ColumnKind::Int),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "settings",
        has_id: false,
        columns: &[("name", ColumnKind::Text), ("value", ColumnKind::Text)],
        // State that workers share only concerns this installation.
        carried: "name NOT IN ('tallied_at', 'written_at', 'installation_id', 'maintenance_until')
             AND name NOT LIKE 'audit_log_%'",
        owned: None,
        left: &[],
    },
    Table {
        name: "audit_events",
        has_id: true,
        columns: &[
            ("at", ColumnKind::Time),
            // As it was: the account may have been deleted.
            ("user_id", ColumnKind::Int),
            ("actor", ColumnKind::Text),
            ("action", ColumnKind::Text),
            ("detail", ColumnKind::Text),
            ("address", ColumnKind::Text),
            ("request_id", ColumnKind::Text),
        ],
        // The newest 100,000: an import reads the whole document into memory.
        carried: "id > (SELECT COALESCE(MAX(id), 0) - 100000 FROM audit_events)",
        owned: None,
        left: &[],
    },
];

/// Tables that are left out: current activity, history, and keys of this installation.
pub const LEFT: &[&str] = &[
    "catalogue_wishes",
    "data_keys",
    "events",
    "idempotency_keys",
    "incident_streams",
    "incident_tasks",
    "incidents",
    "notices",
    "probes",
    "restores",
    "run_lines",
    "runs",
    "sessions",
    "sign_in_links",
    "token_epoch",
    "totals",
    "uploads",
    "workers",
];
