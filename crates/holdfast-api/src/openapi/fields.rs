//! Request bodies in the OpenAPI document, generated from the field lists that the validation uses.

use holdfast_core::fields::{DefaultValue, FieldKind, FieldSpec};
use serde_json::{Map, Value, json};

use super::doc::SchemaDoc;
use super::words;

impl SchemaDoc {
    pub(crate) fn of_fields(name: &str, about: &str, fields: impl Iterator<Item = &'static FieldSpec>) -> Self {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in fields {
            if field.is_required {
                required.push(field.name);
            }
            for alias in field.aliases {
                properties.insert((*alias).to_owned(), schema(field, &format!("The same as `{}`.", field.name)));
            }
            properties.insert(field.inner_name().to_owned(), schema(field, field.about));
        }
        let mut body = json!({ "type": "object", "description": about, "properties": properties });
        if !required.is_empty() {
            body["required"] = json!(required);
        }
        Self { name: name.to_owned(), all: vec![(name.to_owned(), body)] }
    }

    /// Adds an optional object with fields of its own.
    pub(crate) fn with_object(mut self, name: &str, object: Self) -> Self {
        let own = self.all.iter_mut().find(|(known, _)| *known == self.name);
        if let Some(properties) = own.and_then(|(_, schema)| schema["properties"].as_object_mut()) {
            properties.insert(name.to_owned(), object.reference());
        }
        self.all.extend(object.all);
        self
    }
}

impl SchemaDoc {
    /// Adds the type-specific fields of a response. No single response has all of them.
    pub(crate) fn with_shown(mut self, fields: impl Iterator<Item = &'static FieldSpec>) -> Self {
        let own = self.all.iter_mut().find(|(name, _)| *name == self.name);
        let Some(properties) = own.and_then(|(_, schema)| schema["properties"].as_object_mut()) else { return self };
        for field in fields {
            let (Some(pointer), Some((_, types))) = (field.shown_at, field.only_if) else { continue };
            let types = if field.shown_if.is_empty() { types } else { field.shown_if };
            let types: Vec<String> = types.iter().map(|word| format!("`{word}`")).collect();
            let about = format!("Only for {}.", types.join(" and "));
            // Responses only tell whether a secret is set.
            let word = if field.is_secret() { "boolean" } else { word(field) };
            let shown = json!({ "type": word, "description": about });
            properties.insert(pointer.trim_start_matches('/').to_owned(), shown);
        }
        self
    }
}

fn word(field: &FieldSpec) -> &'static str {
    match field.kind {
        FieldKind::Line { .. } | FieldKind::Paragraph { .. } | FieldKind::Secret { .. } | FieldKind::Choice(_) => {
            "string"
        }
        FieldKind::Lines { .. } | FieldKind::Ids { .. } => "array",
        FieldKind::Switch => "boolean",
        FieldKind::Integer { .. } | FieldKind::Id => "integer",
    }
}

fn schema(field: &FieldSpec, about: &str) -> Value {
    let mut schema = Map::new();
    let mut set = |keyword: &str, value: Value| schema.insert(keyword.to_owned(), value);
    match field.kind {
        FieldKind::Line { min_chars, max_chars, pattern } | FieldKind::Secret { min_chars, max_chars, pattern } => {
            set("maxLength", json!(max_chars));
            match pattern {
                // An empty line clears the field, as null does.
                Some(pattern) if field.is_nullable && !field.is_secret() => {
                    set("pattern", json!(format!("^$|{pattern}")))
                }
                Some(pattern) => set("pattern", json!(pattern)),
                None => None,
            };
            if min_chars > 0 {
                set("minLength", json!(min_chars));
            }
            if field.is_secret() {
                set("writeOnly", json!(true));
            }
        }
        FieldKind::Paragraph { max_chars } => {
            set("maxLength", json!(max_chars));
        }
        // Below, because the words depend on whether the field can be null.
        FieldKind::Choice(_) => {}
        FieldKind::Lines { max_items, .. } => {
            set("items", json!({ "type": "string" }));
            set("maxItems", json!(max_items));
        }
        FieldKind::Ids { max_items } => {
            set("items", json!({ "type": "integer", "format": "int64" }));
            set("maxItems", json!(max_items));
        }
        FieldKind::Switch => {}
        FieldKind::Integer { min, max } => {
            set("minimum", json!(min));
            set("maximum", json!(max));
            set("format", json!("int64"));
        }
        FieldKind::Id => {
            set("minimum", json!(1));
            set("format", json!("int64"));
        }
    }
    let word = word(field);
    set("type", if field.is_nullable { json!([word, "null"]) } else { json!(word) });
    if !about.is_empty() {
        set("description", json!(about));
    }
    match field.default {
        Some(DefaultValue::Switch(value)) => drop(set("default", json!(value))),
        Some(DefaultValue::Integer(value)) => drop(set("default", json!(value))),
        Some(DefaultValue::Text(value)) => drop(set("default", json!(value))),
        None => {}
    }
    let mut schema = Value::Object(schema);
    if let FieldKind::Choice(choices) = field.kind {
        words::restrict(&mut schema, choices);
    }
    schema
}
