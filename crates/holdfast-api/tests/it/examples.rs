use std::collections::BTreeSet;

use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::Value;

/// Whoever writes a client copies from the examples.
#[test]
fn every_body_and_response_has_an_example_that_matches_its_schema() {
    let document = holdfast_api::document();
    let mut examples = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let place = format!("{method} {path}");
            let responses = operation["responses"].as_object().unwrap().iter();
            let answers = responses.filter(|(status, _)| status.starts_with('2')).map(|(_, answer)| answer);
            for described in answers.chain(operation.get("requestBody")) {
                for media in described["content"].as_object().unwrap().values() {
                    assert!(!media["example"].is_null(), "{place} has no example");
                    check_example(&document, &media["schema"], &media["example"], &place);
                    examples += 1;
                }
            }
        }
    }
    assert!(examples > 90, "only {examples} examples were found");
}

fn check_example(document: &Value, schema: &Value, example: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next()) {
        let place = format!("{place} {name}");
        return check_example(document, &document["components"]["schemas"][name], example, &place);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choice = choices.iter().find(|choice| (choice["type"] == "null") == example.is_null()).unwrap();
        return check_example(document, choice, example, place);
    }
    let kind = match example {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_allowed =
        schema["type"] == kind || schema["type"].as_array().is_some_and(|kinds| kinds.contains(&kind.into()));
    assert!(is_allowed, "{place}: {example} is not {}", schema["type"]);
    for words in ["enum", "x-extensible-enum"].into_iter().filter_map(|keyword| schema[keyword].as_array()) {
        assert!(example.is_null() || words.contains(example), "{place}: {example} is none of {words:?}");
    }
    for item in example.as_array().into_iter().flatten() {
        check_example(document, &schema["items"], item, place);
    }
    if let Some(fields) = example.as_object() {
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            assert!(fields.contains_key(name), "{place}: the example lacks {name}");
        }
        for (name, value) in fields {
            let place = format!("{place} {name}");
            check_example(document, &schema["properties"][name], value, &place);
        }
    }
}

/// Where both are objects, they have the same fields.
fn assert_same_fields(example: &Value, answer: &Value, place: &str) {
    let (Some(example), Some(answer)) = (example.as_object(), answer.as_object()) else { return };
    assert_eq!(example.keys().collect::<BTreeSet<_>>(), answer.keys().collect::<BTreeSet<_>>(), "{place}");
    for (name, value) in example {
        assert_same_fields(value, &answer[name], &format!("{place} {name}"));
    }
}

on_both_engines! {
    async fn the_examples_of_bodies_are_accepted_and_answered_as_in_the_examples(app: TestApp) {
        let user = app.user("ada").await;
        let document = holdfast_api::document();
        let example = |described: &Value| described["content"]["application/json"]["example"].clone();
        let send = async |method: &str, path: &str, to: &str| {
            let operation = &document["paths"][path][method];
            let (method, body) = (method.to_uppercase().parse().unwrap(), example(&operation["requestBody"]));
            let request = user.client.request(method, to).bearer_auth(user.client.token());
            let request = request.header("prefer", "handling=strict").body(body.to_string());
            let reply = user.client.finish(request).await;
            let answer = &operation["responses"][reply.status.to_string()];
            let place = format!("{path} answered {}: {}", reply.status, reply.text);
            assert!((200..300).contains(&reply.status), "{place}");
            assert_same_fields(&example(answer), &reply.body, &place);
        };
        // In this order: each needs the first of those before it.
        for list in ["tags", "notification-streams", "remote-servers", "backup-destinations", "backup-tasks"] {
            let list = format!("/api/{list}");
            send("post", &list, &list).await;
            for method in ["put", "patch"] {
                send(method, &format!("{list}/{{id}}"), &format!("{list}/1")).await;
            }
        }
        let settings = "/api/notification-settings";
        send("put", settings, settings).await;
    }
}
