//! Makes the rows of a document consistent: what follows from other columns is derived from them, whatever the document
//! says, so that an import cannot bring a state that does not exist here.

use std::collections::HashMap;

use holdfast_core::characters::unhidden;
use holdfast_core::rules::search_form;
use holdfast_core::stream::StreamKind;
use serde_json::{Map, Value, json};

use super::tables::{CARRIED_SETTINGS, Contents};

type Row = Map<String, Value>;

/// Tables whose rows have a label that lists search in.
const LABELLED: [&str; 5] = ["remote_servers", "backup_destinations", "notification_streams", "tags", "backup_tasks"];

/// Columns that have a value together, or not at all. Without the first of each, the others mean nothing.
const TOGETHER: &[(&str, &[&str])] = &[
    ("users", &["quiet_from", "quiet_until"]),
    ("users", &["quiet_until", "quiet_from"]),
    ("backup_tasks", &["told_code", "told_at"]),
    ("backup_tasks", &["told_at", "told_code"]),
    ("backup_tasks", &["retention_held_at", "held_signs", "held_reason", "held_told_at"]),
    ("backups", &["deleted_at", "deleted_reason"]),
];

pub(super) fn settle(contents: &mut Contents) {
    for table in LABELLED {
        for row in contents.get_mut(table).into_iter().flatten() {
            let label = row.get("label").and_then(Value::as_str).map(|label| search_form(unhidden(label).trim()));
            row.insert("search_label".to_owned(), json!(label));
        }
    }
    for (table, columns) in TOGETHER {
        for row in contents.get_mut(*table).into_iter().flatten() {
            settle_columns(row, columns);
        }
    }
    for row in contents.get_mut("backup_tasks").into_iter().flatten().filter(|row| has(row, "paused_at")) {
        row.insert("next_run_at".to_owned(), Value::Null);
        row.insert("overdue_at".to_owned(), Value::Null);
    }
    for (table, column) in [("task_streams", "streams_count"), ("task_tags", "tags_count")] {
        count_attached(contents, table, column);
    }
    if let Some(settings) = contents.get_mut("settings") {
        let is_carried = |row: &Row| row.get("name").and_then(Value::as_str).is_some_and(is_carried_setting);
        settings.retain(is_carried);
    }
}

fn has(row: &Row, column: &str) -> bool {
    row.get(column).is_some_and(|value| !value.is_null())
}

fn settle_columns(row: &mut Row, columns: &[&str]) {
    let [first, rest @ ..] = columns else { return };
    if !has(row, first) {
        for column in rest.iter().filter(|column| row.contains_key(**column)).copied().collect::<Vec<_>>() {
            row.insert(column.to_owned(), Value::Null);
        }
    }
}

fn count_attached(contents: &mut Contents, table: &str, column: &str) {
    let mut counts: HashMap<i64, i64> = HashMap::new();
    let attached = contents.get(table).into_iter().flatten();
    for task in attached.filter_map(|row| row.get("task_id").and_then(Value::as_i64)) {
        *counts.entry(task).or_default() += 1;
    }
    for row in contents.get_mut("backup_tasks").into_iter().flatten() {
        let id = row.get("id").and_then(Value::as_i64);
        row.insert(column.to_owned(), json!(id.and_then(|id| counts.get(&id)).copied().unwrap_or(0)));
    }
}

fn is_carried_setting(name: &str) -> bool {
    CARRIED_SETTINGS.contains(&name)
}

/// What the objects of a document have together.
pub(super) fn total_bytes(contents: &Contents) -> i128 {
    const SIZES: [(&str, &str); 3] =
        [("backups", "plain_bytes"), ("backup_copies", "size_bytes"), ("user_days", "stored_bytes")];
    let sizes = |(table, column): (&str, &'static str)| {
        contents.get(table).into_iter().flatten().filter_map(move |row| row.get(column)?.as_i64())
    };
    SIZES.into_iter().flat_map(sizes).map(i128::from).sum()
}

/// Whether the columns of a row fit together.
pub(super) fn is_sound(table: &str, row: &Row) -> bool {
    let text = |column: &str| row.get(column).and_then(Value::as_str);
    match table {
        // A value of another kind would be sent to somebody else.
        "notification_streams" => text("kind").and_then(StreamKind::parse).is_none_or(|kind| {
            text("value_sealed").is_none_or(|value| kind.is_value(value))
                && text("pushover_token_sealed").is_none_or(|token| kind.is_token(token))
        }),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &Value) -> Vec<Row> {
        rows.as_array().unwrap().iter().map(|row| row.as_object().unwrap().clone()).collect()
    }

    #[test]
    fn secrets_of_streams_fit_their_type() {
        let is_sound = |kind: &str, value: &str, token: Option<&str>| {
            let row = json!({"kind": kind, "value_sealed": value, "pushover_token_sealed": token});
            is_sound("notification_streams", row.as_object().unwrap())
        };
        let (key, hook) = ("u".repeat(30), "https://hooks.example.org/x");
        assert!(is_sound("pushover", &key, None) && is_sound("pushover", &key, Some(&key)));
        assert!(is_sound("slack", hook, None));
        assert!(!is_sound("pushover", hook, None) && !is_sound("pushover", &key, Some("short")));
        assert!(!is_sound("slack", hook, Some(&key)), "it has no token");
    }

    #[test]
    fn what_follows_from_other_columns_is_derived() {
        let task = json!({"id": 7, "label": "Größe\u{202e}", "search_label": "other", "paused_at": 5, "next_run_at": 9,
            "told_at": 3, "told_code": null, "streams_count": 40, "tags_count": 40});
        let user = json!({"quiet_from": "22:00", "quiet_until": null});
        let backup = json!({"deleted_at": null, "deleted_reason": "retention"});
        let mut contents = Contents::from([
            ("backup_tasks".to_owned(), rows(&json!([task]))),
            ("task_tags".to_owned(), rows(&json!([{"task_id": 7, "tag_id": 1}, {"task_id": 7, "tag_id": 2}]))),
            ("users".to_owned(), rows(&json!([user]))),
            ("backups".to_owned(), rows(&json!([backup]))),
            (
                "settings".to_owned(),
                rows(&json!([{"name": "maintenance_until", "value": "9"}, {"name": "registration"}])),
            ),
        ]);
        settle(&mut contents);
        let task = &contents["backup_tasks"][0];
        assert_eq!((&task["search_label"], &task["next_run_at"]), (&json!("größe\u{fffd}"), &Value::Null));
        assert_eq!(
            (&task["told_at"], &task["streams_count"], &task["tags_count"]),
            (&Value::Null, &json!(0), &json!(2))
        );
        assert_eq!(contents["users"][0]["quiet_from"], Value::Null);
        assert_eq!(contents["backups"][0]["deleted_reason"], Value::Null);
        assert_eq!(contents["settings"].len(), 1);
    }
}
