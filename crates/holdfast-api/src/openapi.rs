//! The OpenAPI document, generated from the route table and the wire types. The errors listed for a route are derived
//! from its table entry, so the two cannot drift apart.

pub(crate) mod doc;
mod examples;
mod fields;
mod formats;
mod update;
mod words;

use std::collections::BTreeMap;

use holdfast_app::Resource;
use holdfast_core::scope::Scope;
use serde_json::{Value, json};

use self::doc::{AnswerDoc, QueryDoc, SchemaDoc, reference};
use self::examples::Examples;
use crate::access::Access;
use crate::error::{ErrorBody, ValidationBody};
use crate::json::Message;
use crate::list::{Links, Meta};
use crate::routes::routes;
use crate::table::Route;

/// Builds the whole document.
pub fn document() -> Value {
    let mut paths: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    let mut keep = |doc: &SchemaDoc, shape: fn(&mut Value)| {
        for (name, schema) in &doc.all {
            let mut schema = schema.clone();
            shape(&mut schema);
            schemas.insert(name.clone(), schema);
        }
    };
    for doc in [
        SchemaDoc::of::<Message>(),
        SchemaDoc::of::<ErrorBody>(),
        SchemaDoc::of::<ValidationBody>(),
        SchemaDoc::of::<Links>(),
        SchemaDoc::of::<Meta>(),
    ] {
        keep(&doc, require_everything);
    }
    let (routes, examples) = (routes(), Examples::read());
    for route in &routes {
        if let Some(schema) = route.answer.as_ref().and_then(AnswerDoc::schema) {
            keep(schema, require_everything);
        }
        if let Some(body) = route.body.as_ref().filter(|body| !body.partial) {
            keep(&body.schema, |_| ());
        }
    }
    for route in &routes {
        if let Some(body) = route.body.as_ref().filter(|body| body.partial) {
            schemas.extend(update::schemas(&body.schema));
        }
        paths.entry(route.path).or_default().insert(route.method.as_str().to_lowercase(), operation(route, &examples));
    }
    words::add_to(&mut schemas);
    formats::add_to(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "description": "Scheduled backups of files and databases from your servers to your storage. \
                Every request carries `Authorization: Bearer <API_TOKEN>`; times are UTC.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "contact": { "name": "The operator of this service" },
        },
        "servers": [{ "url": "/", "description": "This service" }],
        "security": [{ "token": [] }],
        "tags": TAGS.map(|(name, about)| json!({ "name": name, "description": about })),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": format!(
                        "An API token, with one or more of these scopes: {}.",
                        Scope::ALL.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ")
                    ),
                },
            },
        },
    })
}

/// Marks the fields of a response as required. A field that some responses omit is neither required nor nullable.
fn require_everything(schema: &mut Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|names| names.iter().any(|known| known == name));
    let is_null = |kind: &Value| kind == "null" || kind["type"] == "null";
    let can_be_null = |field: &Value| {
        let mut kinds = ["type", "oneOf"].into_iter().filter_map(|keyword| field.get(keyword)?.as_array()).flatten();
        kinds.any(is_null)
    };
    let always = properties.iter().filter(|(name, field)| is_required(name) || can_be_null(field));
    let names: Vec<Value> = always.map(|(name, _)| json!(name)).collect();
    schema["required"] = Value::Array(names);
}

fn operation(route: &Route, examples: &Examples) -> Value {
    let mut parameters: Vec<Value> = route.query.iter().map(QueryDoc::parameter).collect();
    if let Some(resource) = route.resource {
        let about = format!("The id of the {}", resource.name().to_lowercase());
        let schema = json!({ "type": "integer", "format": "int64", "minimum": 1 });
        parameters
            .push(json!({ "name": "id", "in": "path", "description": about, "required": true, "schema": schema }));
    }
    if route.path.starts_with("/webhooks/") {
        let about = "The task's secret";
        let schema = json!({ "type": "string" });
        parameters.push(header("X-Holdfast-Secret", about, &schema));
    }
    if route.method == axum::http::Method::POST && route.access != Access::Public {
        let about = "A text of your choice. A request that is sent again with it within a day is executed once, and \
            gets the same response, with `Idempotency-Replayed: true`.";
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": 255 });
        parameters.push(header("Idempotency-Key", about, &schema));
    }
    if route.creates_resource() {
        let about = "`*` refuses to create something with a label that something else of this kind has.";
        parameters.push(header("If-None-Match", about, &json!({ "type": "string", "maxLength": 255 })));
    }
    if route.has_dry_run() {
        let about = "`true` carries the request out without effect. The response is 200 with what it would be, without \
            side effects. Ids and times of what would be created mean nothing.";
        parameters.push(header("Holdfast-Dry-Run", about, &json!({ "type": "string", "enum": ["true"] })));
    }
    if route.takes_if_match() {
        let about = "The `ETag` of the version to change or delete. If that is not the current one, nothing happens.";
        parameters.push(header("If-Match", about, &json!({ "type": "string", "maxLength": 255 })));
    }
    if route.body.is_some() {
        let about = "`handling=strict` refuses unknown fields of the body, which are ignored otherwise.";
        parameters.push(header("Prefer", about, &json!({ "type": "string", "maxLength": 255 })));
    }
    if matches!(route.answer, Some(AnswerDoc::Bytes)) {
        let about = "One part of the stored object, such as `bytes=1048576-`. Not for a file from it; several parts are \
            not supported, and get the whole.";
        parameters.push(header("Range", about, &json!({ "type": "string", "maxLength": 255 })));
        let about = "The `ETag` of the bytes that you have. If the object has another one, the response is the whole.";
        parameters.push(header("If-Range", about, &json!({ "type": "string", "maxLength": 255 })));
    }
    if matches!(route.answer, Some(AnswerDoc::Events(_))) {
        let about = "The `id` of the last event that you received. Events since then are sent first, up to a day; if \
            some are no longer on record, the first event is `reset`.";
        parameters.push(header("Last-Event-ID", about, &json!({ "type": "string", "maxLength": 255 })));
    }
    let mut operation = json!({
        "summary": route.summary,
        "operationId": operation_id(route),
        "tags": [tag(route)],
        "parameters": parameters,
        "responses": responses(route, examples),
    });
    if route.access == Access::Public {
        operation["security"] = json!([]);
    }
    let scopes: Vec<String> = route.access.scopes().iter().map(|scope| format!("`{}`", scope.as_str())).collect();
    if !scopes.is_empty() {
        let noun = if scopes.len() == 1 { "scope" } else { "scopes" };
        operation["description"] = json!(format!("Requires the {noun} {}.", scopes.join(" and ")));
    } else if route.access == Access::Token {
        operation["description"] = json!("Requires a valid token, with any scope.");
    } else {
        operation["description"] = json!("Requires no token.");
    }
    if let Some(body) = &route.body {
        let name = if body.partial { update::name(&body.schema.name) } else { body.schema.name.clone() };
        let content = json!({ "schema": reference(&name), "example": examples.body(body) });
        operation["requestBody"] = json!({ "required": !body.optional, "content": { "application/json": content } });
    }
    operation
}

fn header(name: &str, about: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": "header", "description": about, "required": false, "schema": schema })
}

/// `post /api/backup-tasks/{id}/run` → `post_backup_tasks_id_run`.
fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api").replace(['{', '}', '.'], "").replace(['/', '-'], "_");
    format!("{}{path}", route.method.as_str().to_lowercase())
}

/// What routes are grouped by.
const TAGS: [(&str, &str); 8] = [
    ("General", "The current user, events, the SSH key, tokens for devices, and this document"),
    ("Notification streams", "Where people are told about their backups, and what they were told"),
    ("Backup tasks", "What is backed up, from where to where, and when"),
    ("Backup task logs", "The runs of backup tasks"),
    ("Backups", "Stored backups, and the runs that verify and restore them"),
    ("Backup destinations", "Where backups are stored"),
    ("Remote servers", "What backups are read from and restored to"),
    ("Tags", "Labels that group backup tasks"),
];

/// Groups routes by the resource their path begins with.
fn tag(route: &Route) -> &'static str {
    let segment = route.path.trim_start_matches("/api/").trim_start_matches("/webhooks/").split('/').next();
    match segment.unwrap_or_default() {
        "notification-streams" => "Notification streams",
        "backup-tasks" => "Backup tasks",
        "backup-task-logs" => "Backup task logs",
        "backups" | "runs" => "Backups",
        "backup-destinations" => "Backup destinations",
        "remote-servers" => "Remote servers",
        "tags" => "Tags",
        _ => "General",
    }
}

fn responses(route: &Route, examples: &Examples) -> BTreeMap<String, Value> {
    let mut responses = BTreeMap::new();
    let mut add = |status: u16, about: &str, body: Value| {
        // A dry run of a creation has another status, and answers as the creation would.
        let is_answer = |answer: &&AnswerDoc| answer.status() == status || matches!(status, 200 | 206);
        let answer = route.answer.as_ref().filter(is_answer);
        let kind = answer.map_or("application/json", AnswerDoc::content_type);
        let mut content = json!({ "schema": body });
        if let Some(answer) = answer {
            content["example"] = examples.answer(&operation_id(route), route, answer);
        }
        let (headers, content) = (headers(route, status), json!({ kind: content }));
        responses.insert(status.to_string(), json!({ "description": about, "headers": headers, "content": content }));
    };
    if let Some(answer) = &route.answer {
        add(answer.status(), success(answer.status()), answer.body());
        if route.creates_resource() {
            add(200, "What would be created, for a dry run", answer.body());
        }
    }
    let error = || reference("ErrorBody");
    if let Some(answer) = route.answer.as_ref().filter(|answer| matches!(answer, AnswerDoc::Bytes)) {
        add(
            206,
            "The part that `Range` names. Its bytes are not checked: compare the hash of the whole",
            answer.body(),
        );
        add(416, "`Range` names a part outside of the object", error());
    }
    let is_read = route.method == axum::http::Method::GET;
    let guarded = route.access != Access::Public;
    if guarded {
        add(401, "No valid token", reference("Message"));
    }
    if !route.access.scopes().is_empty() {
        add(403, "The token lacks the scope, or the resource belongs to somebody else", error());
    }
    if route.takes_if_match() {
        add(412, "`If-Match` names another version than the current one", error());
    }
    if route.creates_resource() {
        add(412, "With `If-None-Match`: something else of this kind has the label", error());
    }
    if route.resource.is_some() || !guarded {
        add(404, &not_found(route.resource), error());
    }
    let reads_backup = matches!(route.resource, Some(Resource::Backup)) && !route.query.is_empty();
    if reads_backup || !is_read && (route.resource.is_some() || route.body.is_some()) {
        add(409, "The current state of the resource does not allow this", error());
    }
    let is_post = route.method == axum::http::Method::POST;
    let bad = [
        (route.body.is_some(), "the body is not a JSON object"),
        (guarded && is_post, "the `Idempotency-Key` is not valid"),
        (!is_read, "`Holdfast-Dry-Run` is not `true`, or there is no dry run of this request"),
    ];
    let bad: Vec<&str> = bad.into_iter().filter(|(applies, _)| *applies).map(|(_, reason)| reason).collect();
    if !bad.is_empty() {
        add(400, &format!("One of these: {}", bad.join("; ")), error());
    }
    if !route.query.is_empty() {
        add(414, "The address is longer than 16 KiB", error());
    }
    if route.body.is_some() {
        add(413, "The body is larger than 256 KiB", error());
    }
    if route.body.is_some() || !route.query.is_empty() {
        add(422, "Invalid input; `errors` lists the errors of each field", reference("ValidationBody"));
    }
    add(429, "Too many requests; `Retry-After` gives the number of seconds to wait", error());
    add(503, "The service is busy, or its database or a destination is unavailable", error());
    responses
}

/// The headers that a response always has.
fn headers(route: &Route, status: u16) -> BTreeMap<&'static str, Value> {
    let header =
        |about: &str, kind: &str| json!({ "description": about, "required": true, "schema": { "type": kind } });
    // A service that starts or has no database answers 503 before it knows what was asked.
    if status == 503 {
        return BTreeMap::from([("Retry-After", header("Seconds to wait", "integer"))]);
    }
    let mut headers = BTreeMap::from([("X-Request-Id", header("Identifies this request in the log", "string"))]);
    // An address that is too long is refused before anybody is asked for a token.
    if route.access != Access::Public && !matches!(status, 401 | 414) {
        headers.insert("X-RateLimit-Limit", header("Requests that can be made at once", "integer"));
        headers.insert("X-RateLimit-Remaining", header("Requests that can still be made at once", "integer"));
    }
    let optional = |about: &str| json!({ "description": about, "required": false, "schema": { "type": "string" } });
    if route.body.is_some() {
        let about = "`handling=strict` if unknown fields were refused, as `Prefer` asked";
        headers.insert("Preference-Applied", optional(about));
    }
    if route.has_dry_run() {
        headers.insert("Holdfast-Dry-Run", optional("`true` if this was a dry run"));
    }
    if route.has_dry_run() && status < 300 && !route.creates_resource() && route.body.is_some() {
        headers.insert("Holdfast-Changes", optional("The fields that an update would change, for a dry run"));
        let about = "Fields of other resources that it would clear, such as `/api/remote-servers/2#database_password`";
        headers.insert("Holdfast-Changes-Elsewhere", optional(about));
    }
    if status == 202 {
        headers.insert("Location", header("Where to follow the work", "string"));
    }
    if status == 401 {
        headers.insert("WWW-Authenticate", header("How to authenticate", "string"));
    }
    if status < 202 && matches!(route.answer, Some(AnswerDoc::Data(..))) {
        // Not everything that is shown can be changed.
        let about = "The version, for `If-Match`";
        headers.insert("ETag", json!({ "description": about, "required": false, "schema": { "type": "string" } }));
    }
    if matches!(route.answer, Some(AnswerDoc::Bytes)) && matches!(status, 200 | 206) {
        let about = "`bytes`, or `none` for a file from a backup";
        headers.insert("Accept-Ranges", header(about, "string"));
        let about = "The SHA-256 of the stored object";
        headers.insert("ETag", json!({ "description": about, "required": false, "schema": { "type": "string" } }));
    }
    if matches!(status, 206 | 416) {
        headers.insert("Content-Range", header("Which bytes of how many", "string"));
    }
    if status == 429 {
        headers.insert("Retry-After", header("Seconds to wait", "integer"));
    }
    headers
}

fn success(status: u16) -> &'static str {
    match status {
        201 => "Created",
        202 => "Queued",
        _ => "OK",
    }
}

fn not_found(resource: Option<Resource>) -> String {
    resource.map_or_else(|| "Not found".to_owned(), |resource| format!("{} not found", resource.name()))
}
