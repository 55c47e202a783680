//! Converts rows that older versions wrote into documents and catalogues to today's columns.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::consistency::settle;
use super::tables::Contents;
use crate::spec;
use crate::tasks::frequency_column;

/// Converts the rows of a document to the form that this version writes, and makes them consistent.
pub fn upgrade(contents: &mut Contents) {
    convert(contents);
    settle(contents);
}

fn convert(contents: &mut Contents) {
    for row in contents.get_mut("backup_tasks").into_iter().flatten() {
        if !row.contains_key("spec") {
            task(row);
        }
        follow_task(row);
    }
    for row in contents.get_mut("backup_destinations").into_iter().flatten() {
        if !row.contains_key("spec") {
            destination(row);
        }
        follow_destination(row);
    }
    split_backups(contents);
    follow_backups(contents);
}

/// Until version 3 of the document, a backup was at one destination, which was stored in its row.
fn split_backups(contents: &mut Contents) {
    let mut copies = Vec::new();
    for row in contents.get_mut("backups").into_iter().flatten() {
        let Some(locator) = row.remove("object_key") else { continue };
        let mut copy = Map::from_iter([("locator".to_owned(), locator), ("position".to_owned(), json!(0))]);
        for (column, name) in [("id", "id"), ("id", "backup_id")] {
            copy.insert(name.to_owned(), row.get(column).cloned().unwrap_or(Value::Null));
        }
        for column in ["user_id", "verification", "verified_at", "created_at"] {
            copy.insert(column.to_owned(), row.get(column).cloned().unwrap_or(Value::Null));
        }
        for column in ["destination_id", "size_bytes", "sha256", "remove_after", "remove_attempts"] {
            copy.insert(column.to_owned(), row.remove(column).unwrap_or(Value::Null));
        }
        copies.push(copy);
    }
    if !copies.is_empty() {
        contents.entry("backup_copies".to_owned()).or_default().extend(copies);
    }
}

/// Makes copies consistent with their backup: they have the same owner, and are to be removed only if it is deleted.
fn follow_backups(contents: &mut Contents) {
    let number = |row: &Map<String, Value>, column: &str| row.get(column).and_then(Value::as_i64);
    let backups = contents.get("backups").into_iter().flatten();
    let backups: HashMap<i64, (Value, Option<i64>)> = backups
        .filter_map(|row| Some((number(row, "id")?, (row.get("user_id")?.clone(), number(row, "deleted_at")))))
        .collect();
    for copy in contents.get_mut("backup_copies").into_iter().flatten() {
        let Some((user, deleted)) = number(copy, "backup_id").and_then(|id| backups.get(&id)) else { continue };
        let remove_after = deleted.map(|deleted| number(copy, "remove_after").unwrap_or(deleted));
        copy.insert("user_id".to_owned(), user.clone());
        copy.insert("remove_after".to_owned(), json!(remove_after));
    }
}

/// Until version 2 of the document, every field of a task was a column.
fn task(row: &mut Map<String, Value>) {
    let is_files = row.get("kind") == Some(&json!("files"));
    let mut spec = Map::new();
    let mut take = |column: &str, field: &str, counts: bool| {
        let value = row.remove(column).unwrap_or(Value::Null);
        if counts && !value.is_null() {
            spec.insert(field.to_owned(), value);
        }
    };
    for name in ["source_path", "time_to_run_at", "day_of_week", "day_of_month", "custom_cron", "store_path"] {
        take(name, name, true);
    }
    take("appended_filename", "appended_filename", true);
    take("max_backups", "maximum_backups_to_keep", true);
    take("excluded_paths", "excluded_paths", is_files);
    take("one_file_system", "one_file_system", is_files);
    for name in ["database_name", "database_engine", "excluded_tables"] {
        take(name, name, !is_files);
    }
    if let Some(Value::String(lines)) = spec.get("excluded_paths") {
        let lines: Vec<&str> = lines.lines().collect();
        spec.insert("excluded_paths".to_owned(), json!(lines));
    }
    for (field, column) in [("type", "kind"), ("frequency", "frequency")] {
        spec.insert(field.to_owned(), row.get(column).cloned().unwrap_or(Value::Null));
    }
    row.insert("spec".to_owned(), Value::Object(spec));
}

/// Sets the columns that queries filter by from the specification, whatever the document says.
fn follow_task(row: &mut Map<String, Value>) {
    let Some(spec) = row.get("spec").and_then(|spec| spec::task(&spec.to_string())) else { return };
    row.insert("kind".to_owned(), json!(spec.source.kind().as_str()));
    row.insert("frequency".to_owned(), json!(frequency_column(&spec.schedule)));
}

/// Like `task`, for a destination.
fn destination(row: &mut Map<String, Value>) {
    let mut spec = Map::new();
    spec.insert("type".to_owned(), row.get("kind").cloned().unwrap_or(Value::Null));
    let path_style = row.remove("s3_path_style");
    let columns = [("s3_bucket", "s3_bucket_name"), ("s3_region", "s3_region"), ("s3_endpoint", "custom_s3_endpoint")];
    for (column, field) in columns {
        if let Some(value) = row.remove(column).filter(|value| !value.is_null()) {
            spec.insert(field.to_owned(), value);
        }
    }
    if let Some(path_style) = path_style.filter(|_| spec.contains_key("s3_bucket_name")) {
        spec.insert("path_style_endpoint".to_owned(), path_style);
    }
    row.insert("spec".to_owned(), Value::Object(spec));
}

fn follow_destination(row: &mut Map<String, Value>) {
    let Some(spec) = row.get("spec").and_then(|spec| spec::destination(&spec.to_string())) else { return };
    row.insert("kind".to_owned(), json!(spec.kind().as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_at_one_destination_gets_a_copy_there() {
        let backup = json!({
            "id": 5, "user_id": 2, "task_id": null, "destination_id": 3, "object_key": "a.tar.zst", "size_bytes": 9,
            "sha256": "ab", "verification": "verified", "verified_at": 7, "created_at": 6, "deleted_at": 8,
            "remove_after": 11, "remove_attempts": 1, "source": "/srv"
        });
        let mut contents = Contents::from([("backups".to_owned(), vec![backup.as_object().unwrap().clone()])]);
        convert(&mut contents);
        let expected = json!({
            "id": 5, "backup_id": 5, "user_id": 2, "destination_id": 3, "position": 0, "locator": "a.tar.zst",
            "size_bytes": 9, "sha256": "ab", "verification": "verified", "verified_at": 7, "created_at": 6,
            "remove_after": 11, "remove_attempts": 1
        });
        assert_eq!(json!(contents["backup_copies"]), json!([expected]));
        let kept: Vec<&str> = contents["backups"][0].keys().map(String::as_str).collect();
        let columns = ["created_at", "deleted_at", "id", "source", "task_id", "user_id", "verification", "verified_at"];
        assert_eq!(kept, columns);
        convert(&mut contents);
        assert_eq!(contents["backup_copies"].len(), 1);
    }

    #[test]
    fn copies_follow_the_owner_and_deletion_of_their_backup() {
        let backups = json!([{"id": 1, "user_id": 2, "deleted_at": null}, {"id": 2, "user_id": 2, "deleted_at": 8}]);
        let copies = json!([{"id": 1, "backup_id": 1, "user_id": 9, "remove_after": 5}, {"id": 2, "backup_id": 2}]);
        let rows = |value: Value| -> Vec<_> {
            value.as_array().unwrap().iter().map(|row| row.as_object().unwrap().clone()).collect()
        };
        let mut contents =
            Contents::from([("backups".to_owned(), rows(backups)), ("backup_copies".to_owned(), rows(copies))]);
        convert(&mut contents);
        let found = |index: usize, column: &str| contents["backup_copies"][index][column].clone();
        assert_eq!((found(0, "user_id"), found(0, "remove_after")), (json!(2), Value::Null));
        assert_eq!((found(1, "user_id"), found(1, "remove_after")), (json!(2), json!(8)));
    }

    #[test]
    fn tasks_of_the_first_release_are_read() {
        let task = json!({
            "id": 7, "label": "a", "kind": "files", "source_path": "/srv", "database_name": null, "database_engine": null,
            "excluded_tables": null, "excluded_paths": "*.log\na b", "frequency": "daily", "time_to_run_at": "03:00",
            "day_of_week": 0, "day_of_month": 1, "custom_cron": "0 4 * * *", "max_backups": 3, "appended_filename": null,
            "store_path": "/"
        });
        let rows = |row: Value| vec![row.as_object().unwrap().clone()];
        let bucket = json!({"id": 1, "kind": "custom_s3", "s3_bucket": "abc", "s3_region": "us-east-1",
            "s3_endpoint": "https://s3.example.org", "s3_path_style": true});
        let mut contents =
            Contents::from([("backup_tasks".to_owned(), rows(task)), ("backup_destinations".to_owned(), rows(bucket))]);
        convert(&mut contents);
        let bucket = &contents["backup_destinations"][0];
        assert_eq!(bucket.keys().collect::<Vec<_>>(), ["id", "kind", "spec"]);
        let s3 = spec::destination(&bucket["spec"].to_string()).unwrap().s3().unwrap().clone();
        assert_eq!((s3.bucket.as_str(), s3.path_style), ("abc", true));
        assert_eq!(s3.endpoint.as_deref(), Some("https://s3.example.org"));
        let row = &contents["backup_tasks"][0];
        let spec = spec::task(&row["spec"].to_string()).unwrap();
        assert_eq!(spec.source.files().unwrap().excluded, ["*.log", "a b"]);
        assert_eq!((spec.storage.retention.number(), &row["frequency"]), (3, &json!("custom")));
        let names: Vec<&str> = row.keys().map(String::as_str).collect();
        assert_eq!(names, ["frequency", "id", "kind", "label", "spec"]);
    }
}
