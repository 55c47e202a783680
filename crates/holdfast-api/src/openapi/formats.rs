//! The formats of texts, which follow from the names of the fields.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Times whose names do not end in `_at`. Local times have no format, because they have no offset.
const TIMES: &[&str] = &["at", "account_created", "last_run_utc_time", "next_run"];
/// A time of day, whose name does end in `_at`.
const TIME_OF_DAY: &str = "time_to_run_at";
const URLS: &[&str] =
    &["first", "last", "prev", "next", "url", "avatar_url", "s3_endpoint", "custom_s3_endpoint", "heartbeat_url"];

pub(super) fn add_to(schemas: &mut BTreeMap<String, Value>) {
    for schema in schemas.values_mut() {
        let Some(properties) = schema["properties"].as_object_mut() else { continue };
        for (name, property) in properties.iter_mut().filter(|(_, property)| is_plain_text(property)) {
            if let Some(format) = format(name) {
                property["format"] = json!(format);
            }
        }
    }
}

fn format(name: &str) -> Option<&'static str> {
    if name == TIME_OF_DAY {
        None
    } else if name.ends_with("_at") || TIMES.contains(&name) {
        Some("date-time")
    } else if URLS.contains(&name) {
        Some("uri")
    } else {
        (name == "email").then_some("email")
    }
}

/// A text without a pattern or words of its own.
fn is_plain_text(property: &Value) -> bool {
    let is_text = match &property["type"] {
        Value::String(kind) => kind == "string",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    is_text && ["format", "pattern", "enum"].iter().all(|keyword| property.get(*keyword).is_none())
}
