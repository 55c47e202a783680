//! Which tables and columns are exported, and which are left out.

use std::collections::BTreeMap;

use holdfast_core::backup::{DeletedReason, Verification, is_object_key};
use holdfast_core::content::Content;
use holdfast_core::destination::{DestinationKind, Reachability};
use holdfast_core::failure::FailureCode;
use holdfast_core::network;
use holdfast_core::notice::Trouble;
use holdfast_core::run::RunStatus;
use holdfast_core::schedule::{Frequency, TimeOfDay};
use holdfast_core::server::{Connectivity, is_username};
use holdfast_core::source::TaskKind;
use holdfast_core::storage::Format;
use holdfast_core::stream::StreamKind;
use holdfast_core::tag::is_colour;
use holdfast_core::user::is_password_hash;
use serde_json::{Map, Value};

use super::checks::{self, MAX_BYTES, MAX_COUNT, MAX_ID, MAX_MICROS};
use crate::spec;

/// Rows by table.
pub type Contents = BTreeMap<String, Vec<Map<String, Value>>>;

/// What a column holds, and what an import accepts there. There is no kind without a check.
#[derive(Debug, Clone, Copy)]
pub(super) enum ColumnKind {
    /// A text that must pass this check.
    Word(fn(&str) -> bool),
    /// A text that people see. The function makes it harmless, or refuses it.
    Shown(fn(&str) -> Option<String>),
    /// A specification: an object in the document, a text in the table. The function refuses it, or writes it as it is
    /// stored.
    Spec(fn(&str) -> Option<String>),
    /// A number between these two, inclusive.
    Within(i64, i64),
    /// When something happened, in microseconds since 1970. A time in the future was written by a wrong clock, and
    /// becomes the time of the import.
    Past,
    /// When something is due.
    Time,
    Bool,
    /// This many bytes, as hexadecimal digits.
    Bytes(usize),
    /// A secret that must pass this check: in plain text in the document, sealed in the table.
    Sealed(fn(&str) -> bool),
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

/// The settings that are exported.
pub(super) const CARRIED_SETTINGS: &[&str] = &["registration"];

/// In the order in which their rows can be inserted.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "users",
        has_id: true,
        columns: &[
            ("name", ColumnKind::Shown(checks::label)),
            ("email", ColumnKind::Word(checks::is_email)),
            ("password_hash", ColumnKind::Word(is_password_hash)),
            ("timezone", ColumnKind::Word(checks::is_zone)),
            ("language", ColumnKind::Word(checks::is_language)),
            ("is_admin", ColumnKind::Bool),
            ("weekly_summary_enabled", ColumnKind::Bool),
            ("totp_sealed", ColumnKind::Sealed(checks::is_totp_secret)),
            ("totp_last_step", ColumnKind::Within(0, MAX_COUNT)),
            ("quiet_from", ColumnKind::Word(|text| TimeOfDay::parse(text).is_some())),
            ("quiet_until", ColumnKind::Word(|text| TimeOfDay::parse(text).is_some())),
            ("summary_at", ColumnKind::Time),
            ("suspended_at", ColumnKind::Past),
            ("created_at", ColumnKind::Past),
            ("updated_at", ColumnKind::Past),
        ],
        carried: "TRUE",
        owned: Some("id = "),
        left: &[],
    },
    Table {
        name: "recovery_codes",
        has_id: false,
        columns: &[("user_id", ColumnKind::Ref("users")), ("digest", ColumnKind::Bytes(32))],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "identities",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("provider", ColumnKind::Word(checks::is_line)),
            ("subject", ColumnKind::Word(checks::is_line)),
            ("name", ColumnKind::Shown(checks::output)),
            ("created_at", ColumnKind::Past),
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
            ("name", ColumnKind::Shown(checks::label)),
            ("digest", ColumnKind::Bytes(32)),
            ("scopes", ColumnKind::Word(checks::are_scopes)),
            ("expires_at", ColumnKind::Time),
            ("last_used_at", ColumnKind::Past),
            ("expiry_told_at", ColumnKind::Past),
            ("created_at", ColumnKind::Past),
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
            ("public_key", ColumnKind::Bytes(32)),
            ("private_sealed", ColumnKind::Sealed(checks::is_key_seed)),
            ("created_at", ColumnKind::Past),
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
            ("label", ColumnKind::Shown(checks::label)),
            ("search_label", ColumnKind::Word(checks::is_search_label)),
            ("host", ColumnKind::Word(network::is_host)),
            ("port", ColumnKind::Within(1, 65535)),
            ("username", ColumnKind::Word(is_username)),
            ("database_username", ColumnKind::Word(checks::is_line)),
            ("database_password_sealed", ColumnKind::Sealed(checks::is_secret)),
            ("login_key_sealed", ColumnKind::Sealed(checks::is_key_seed)),
            ("host_key", ColumnKind::Shown(checks::output)),
            ("offered_host_key", ColumnKind::Shown(checks::output)),
            ("connectivity", ColumnKind::Word(|text| Connectivity::parse(text).is_some())),
            ("last_connected_at", ColumnKind::Past),
            ("last_checked_at", ColumnKind::Past),
            ("last_error", ColumnKind::Shown(checks::output)),
            ("last_error_code", ColumnKind::Word(|text| FailureCode::parse(text).is_some())),
            ("latency_micros", ColumnKind::Within(0, MAX_MICROS)),
            ("tools", ColumnKind::Shown(checks::output)),
            ("jump_server_id", ColumnKind::Own),
            ("created_at", ColumnKind::Past),
            ("updated_at", ColumnKind::Past),
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
            ("label", ColumnKind::Shown(checks::label)),
            ("search_label", ColumnKind::Word(checks::is_search_label)),
            ("kind", ColumnKind::Word(|text| DestinationKind::parse(text).is_some())),
            ("spec", ColumnKind::Spec(spec::sound_destination)),
            ("s3_access_key_sealed", ColumnKind::Sealed(checks::is_secret)),
            ("s3_secret_key_sealed", ColumnKind::Sealed(checks::is_secret)),
            ("login_key_sealed", ColumnKind::Sealed(checks::is_key_seed)),
            // As it was: the folder keeps its name.
            ("folder_user_id", ColumnKind::Within(1, MAX_ID)),
            ("marker", ColumnKind::Word(checks::is_line)),
            ("status", ColumnKind::Word(|text| Reachability::parse(text).is_some())),
            ("last_checked_at", ColumnKind::Past),
            ("last_error", ColumnKind::Shown(checks::output)),
            ("last_error_code", ColumnKind::Word(|text| FailureCode::parse(text).is_some())),
            ("created_at", ColumnKind::Past),
            ("updated_at", ColumnKind::Past),
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
            ("label", ColumnKind::Shown(checks::label)),
            ("search_label", ColumnKind::Word(checks::is_search_label)),
            ("kind", ColumnKind::Word(|text| StreamKind::parse(text).is_some())),
            ("value_sealed", ColumnKind::Sealed(checks::is_place)),
            ("pushover_token_sealed", ColumnKind::Sealed(checks::is_secret)),
            ("on_success", ColumnKind::Bool),
            ("on_failure", ColumnKind::Bool),
            ("last_test_succeeded", ColumnKind::Bool),
            ("last_test_message", ColumnKind::Shown(checks::output)),
            ("last_tested_at", ColumnKind::Past),
            ("last_delivery_succeeded", ColumnKind::Bool),
            ("last_delivery_message", ColumnKind::Shown(checks::output)),
            ("last_delivery_at", ColumnKind::Past),
            ("created_at", ColumnKind::Past),
            ("updated_at", ColumnKind::Past),
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
            ("label", ColumnKind::Shown(checks::label)),
            ("search_label", ColumnKind::Word(checks::is_search_label)),
            ("description", ColumnKind::Word(checks::is_paragraph)),
            ("colour", ColumnKind::Word(is_colour)),
            ("created_at", ColumnKind::Past),
            ("updated_at", ColumnKind::Past),
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
            ("label", ColumnKind::Shown(checks::label)),
            ("search_label", ColumnKind::Word(checks::is_search_label)),
            ("description", ColumnKind::Word(checks::is_paragraph)),
            ("kind", ColumnKind::Word(|text| TaskKind::parse(text).is_some())),
            ("frequency", ColumnKind::Word(|text| Frequency::parse(text).is_some())),
            ("spec", ColumnKind::Spec(spec::sound_task)),
            ("streams_count", ColumnKind::Within(0, MAX_COUNT)),
            ("tags_count", ColumnKind::Within(0, MAX_COUNT)),
            ("encryption_password_sealed", ColumnKind::Sealed(checks::is_secret)),
            ("trigger_sealed", ColumnKind::Sealed(checks::is_secret)),
            ("heartbeat_sealed", ColumnKind::Sealed(network::is_web_url)),
            ("next_run_at", ColumnKind::Time),
            ("last_run_at", ColumnKind::Past),
            ("paused_at", ColumnKind::Past),
            ("paused_together", ColumnKind::Bool),
            ("losses", ColumnKind::Within(0, MAX_COUNT)),
            ("told_code", ColumnKind::Word(|text| Trouble::parse(text).is_some())),
            ("told_at", ColumnKind::Past),
            ("overdue_at", ColumnKind::Time),
            ("last_status", ColumnKind::Word(|text| RunStatus::parse(text).is_some())),
            ("last_error_code", ColumnKind::Word(|text| FailureCode::parse(text).is_some())),
            ("last_warnings", ColumnKind::Within(0, MAX_COUNT)),
            ("last_success_at", ColumnKind::Past),
            ("overdue_since", ColumnKind::Past),
            ("proven_at", ColumnKind::Past),
            ("retention_held_at", ColumnKind::Past),
            ("held_signs", ColumnKind::Shown(checks::output)),
            ("held_reason", ColumnKind::Shown(checks::output)),
            ("held_told_at", ColumnKind::Past),
            ("created_at", ColumnKind::Past),
            ("updated_at", ColumnKind::Past),
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
        name: "repositories",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("task_id", ColumnKind::Ref("backup_tasks")),
            ("destination_id", ColumnKind::Ref("backup_destinations")),
            ("store_path", ColumnKind::Word(checks::is_place)),
            // Empty for the root of the destination.
            ("folder", ColumnKind::Word(|text| text.is_empty() || is_object_key(text) && checks::is_place(text))),
            ("passwords_sealed", ColumnKind::Sealed(checks::are_passwords)),
            ("created_at", ColumnKind::Past),
        ],
        carried: "removed_at IS NULL",
        owned: OWNED,
        // What runs find out again.
        left: &[
            "stored_bytes",
            "garbage_since",
            "garbage_bytes",
            "unused_bytes",
            "pruned_at",
            "prune_tried_at",
            "checked_at",
            "check_tried_at",
            "check_began_at",
            "check_position",
            "prune_trouble_code",
            "prune_trouble",
            "prune_told_at",
            "check_trouble_code",
            "check_trouble",
            "check_told_at",
            "removed_at",
        ],
    },
    Table {
        name: "backups",
        has_id: true,
        columns: &[
            ("user_id", ColumnKind::Ref("users")),
            ("task_id", ColumnKind::Ref("backup_tasks")),
            ("task_label", ColumnKind::Shown(checks::label)),
            ("source", ColumnKind::Word(checks::is_place)),
            ("source_server", ColumnKind::Word(checks::is_place)),
            ("suspicion", ColumnKind::Shown(checks::output)),
            ("is_confirmed", ColumnKind::Bool),
            ("databases", ColumnKind::Word(checks::are_names)),
            ("content", ColumnKind::Word(|text| Content::parse(text).is_some())),
            ("format", ColumnKind::Word(|text| Format::parse(text).is_some())),
            ("plain_bytes", ColumnKind::Within(0, MAX_BYTES)),
            ("plain_sha256", ColumnKind::Word(checks::is_digest)),
            ("entries", ColumnKind::Within(0, MAX_COUNT)),
            ("is_encrypted", ColumnKind::Bool),
            ("password_sealed", ColumnKind::Sealed(checks::is_secret)),
            ("verification", ColumnKind::Word(|text| Verification::parse(text).is_some())),
            ("verified_at", ColumnKind::Past),
            ("created_at", ColumnKind::Past),
            ("deleted_at", ColumnKind::Past),
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
            ("repository_id", ColumnKind::Ref("repositories")),
            ("position", ColumnKind::Within(0, 99)),
            ("locator", ColumnKind::Word(|text| is_object_key(text) && checks::is_place(text))),
            ("size_bytes", ColumnKind::Within(0, MAX_BYTES)),
            ("sha256", ColumnKind::Word(checks::is_digest)),
            ("verification", ColumnKind::Word(|text| Verification::parse(text).is_some())),
            ("verified_at", ColumnKind::Past),
            ("created_at", ColumnKind::Past),
            ("remove_after", ColumnKind::Time),
            ("remove_attempts", ColumnKind::Within(0, MAX_COUNT)),
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
            ("day", ColumnKind::Word(checks::is_day)),
            ("successful", ColumnKind::Within(0, MAX_COUNT)),
            ("failed", ColumnKind::Within(0, MAX_COUNT)),
            ("cancelled", ColumnKind::Within(0, MAX_COUNT)),
            ("busy_micros", ColumnKind::Within(0, MAX_MICROS)),
            ("stored_bytes", ColumnKind::Within(0, MAX_BYTES)),
        ],
        carried: "TRUE",
        owned: OWNED,
        left: &[],
    },
    Table {
        name: "settings",
        has_id: false,
        columns: &[
            ("name", ColumnKind::Word(|name| CARRIED_SETTINGS.contains(&name))),
            ("value", ColumnKind::Word(checks::is_line)),
        ],
        // As in `CARRIED_SETTINGS`. State that workers share only concerns this installation.
        carried: "name = 'registration'",
        owned: None,
        left: &[],
    },
    Table {
        name: "audit_events",
        has_id: true,
        columns: &[
            ("at", ColumnKind::Past),
            // As it was: the account may have been deleted.
            ("user_id", ColumnKind::Within(0, MAX_ID)),
            ("actor", ColumnKind::Shown(checks::output)),
            ("action", ColumnKind::Word(checks::is_line)),
            ("detail", ColumnKind::Shown(checks::output)),
            ("address", ColumnKind::Shown(checks::output)),
            ("request_id", ColumnKind::Shown(checks::output)),
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
