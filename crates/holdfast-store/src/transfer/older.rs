//! Rows as older versions wrote them into documents and catalogues, brought to the columns of today.

use serde_json::{Map, Value, json};

use super::tables::Contents;
use crate::spec;
use crate::tasks::frequency_column;

/// Rows of a document as this version writes them.
pub fn upgrade(contents: &mut Contents) {
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

/// The columns that the database chooses by say what the specification says, whatever the document has.
fn follow_task(row: &mut Map<String, Value>) {
    let Some(spec) = row.get("spec").and_then(|spec| spec::task(&spec.to_string())) else { return };
    row.insert("kind".to_owned(), json!(spec.source.kind().as_str()));
    row.insert("frequency".to_owned(), json!(frequency_column(&spec.schedule)));
}

/// The same, of a destination.
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
        upgrade(&mut contents);
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
