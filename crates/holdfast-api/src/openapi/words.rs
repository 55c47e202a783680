//! Fields that hold an enum value. The values come from the enums themselves, so a new variant is documented
//! automatically. Those of requests are closed. Those of responses are open: a generated client must not fail when a
//! later version of the service has another one.

use std::collections::BTreeMap;

use holdfast_core::backup::{EntryKind, Verification};
use holdfast_core::content::Content;
use holdfast_core::destination::{DestinationKind, Reachability};
use holdfast_core::notice::NoticeStatus;
use holdfast_core::run::{RunKind, RunStatus, TaskStatus, Trigger};
use holdfast_core::schedule::Frequency;
use holdfast_core::server::Connectivity;
use holdfast_core::source::TaskKind;
use holdfast_core::storage::Format;
use holdfast_core::stream::StreamKind;
use serde_json::{Value, json};

use crate::runs::is_listed;

/// The kinds of runs that a list of runs may be narrowed to.
pub(super) fn kinds_of_listed_runs() -> Vec<&'static str> {
    RunKind::ALL.iter().filter(|kind| is_listed(**kind)).map(|kind| kind.as_str()).collect()
}

/// A schema, a field, and its values.
type Words = (&'static str, &'static str, Vec<&'static str>);

fn of_requests() -> Vec<Words> {
    let aliases = StreamKind::ALIASES.iter().map(|(alias, _)| *alias);
    let accepted_streams: Vec<&str> = StreamKind::WORDS.iter().copied().chain(aliases).collect();
    vec![("StreamBody", "type", accepted_streams.clone()), ("StreamBodyUpdate", "type", accepted_streams)]
}

fn of_responses() -> Vec<Words> {
    let runs = RunKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let titles_of_tasks = TaskKind::ALL.iter().map(|kind| kind.human()).collect();
    vec![
        ("BackupResource", "content", Content::WORDS.to_vec()),
        ("BackupResource", "format", Format::WORDS.to_vec()),
        ("EntryResource", "type", EntryKind::WORDS.to_vec()),
        ("VerificationResource", "status", Verification::WORDS.to_vec()),
        ("RunResource", "kind", runs),
        ("RunResource", "status", RunStatus::WORDS.to_vec()),
        ("RunResource", "waiting_for", vec!["worker", "drain", "maintenance"]),
        ("LogResource", "status", RunStatus::WORDS.to_vec()),
        ("LogResource", "trigger", Trigger::WORDS.to_vec()),
        ("DestinationResource", "type", DestinationKind::WORDS.to_vec()),
        ("DestinationResource", "status", Reachability::WORDS.to_vec()),
        ("ServerStatus", "connectivity", Connectivity::WORDS.to_vec()),
        ("NoticeResource", "status", NoticeStatus::WORDS.to_vec()),
        ("StreamResource", "type", StreamKind::WORDS.to_vec()),
        ("LastRunResource", "status", vec![RunStatus::Successful.as_str(), RunStatus::Failed.as_str()]),
        ("ProtectionResource", "proven_by", vec!["drill", "verify"]),
        ("TaskResource", "status", TaskStatus::WORDS.to_vec()),
        ("StatusResource", "status", TaskStatus::WORDS.to_vec()),
        ("StorageResource", "format", Format::WORDS.to_vec()),
        ("UpcomingResource", "type", titles_of_tasks),
        ("SourceResource", "type", TaskKind::WORDS.to_vec()),
        ("ScheduleResource", "frequency", Frequency::WORDS.to_vec()),
    ]
}

/// Restricts a property to these words. If it can also be null, that is a choice of its own: generators make several
/// types of a list of words that contains null.
pub(super) fn restrict(property: &mut Value, words: &[&str]) {
    let can_be_null = property["type"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"));
    if !can_be_null {
        property["enum"] = json!(words);
        return;
    }
    if let Some(property) = property.as_object_mut() {
        property.remove("type");
        let choices = json!([{ "type": "string", "enum": words }, { "type": "null" }]);
        property.insert("oneOf".to_owned(), choices);
    }
}

/// Names the values that a property has so far.
fn describe(property: &mut Value, words: &[&str]) {
    let known: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    let about = property["description"].as_str().map(|about| format!("{about} ")).unwrap_or_default();
    property["description"] = json!(format!("{about}So far {}; later versions may add others.", known.join(", ")));
    property["x-extensible-enum"] = json!(words);
}

pub(super) fn add_to(schemas: &mut BTreeMap<String, Value>) {
    let mut each = |lists: Vec<Words>, add: fn(&mut Value, &[&str])| {
        for (schema, field, words) in lists {
            if let Some(property) = schemas.get_mut(schema).and_then(|schema| schema["properties"].get_mut(field)) {
                add(property, &words);
            }
        }
    };
    each(of_requests(), restrict);
    each(of_responses(), describe);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(schema: &str, field: &str) -> Value {
        crate::openapi::document()["components"]["schemas"][schema]["properties"][field].clone()
    }

    #[test]
    fn every_listed_field_exists() {
        for (schema, field, _) in of_requests() {
            let property = property(schema, field);
            assert!(property["enum"].is_array() || property["oneOf"].is_array(), "{schema}.{field}: {property}");
        }
        for (schema, field, _) in of_responses() {
            let property = property(schema, field);
            assert!(property["x-extensible-enum"].is_array(), "{schema}.{field}: {property}");
        }
    }

    /// A generated client refuses a value that is not in the list of its document.
    #[test]
    fn no_response_has_a_closed_list_of_words() {
        let document = crate::openapi::document();
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            if name.contains("Body") {
                continue;
            }
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                let text = property.to_string();
                let is_list = property["pattern"].as_str().is_some_and(|pattern| pattern.contains(char::is_alphabetic));
                assert!(!text.contains("\"enum\"") && !is_list, "{name}.{field}: {property}");
            }
        }
    }
}
