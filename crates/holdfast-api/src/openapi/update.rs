//! The schemas of update bodies. A generated client sends the declared default of every field that its caller omitted,
//! which would reset those fields. Update schemas therefore declare no defaults.

use serde_json::{Map, Value, json};

use super::doc::SchemaDoc;

const COMPONENTS: &str = "#/components/schemas/";

pub(super) fn name(of: &str) -> String {
    format!("{of}Update")
}

/// The schema of an update body and the schemas it refers to, under separate names. No field of the body is required.
pub(super) fn schemas(body: &SchemaDoc) -> impl Iterator<Item = (String, Value)> {
    body.all.iter().map(|(of, schema)| {
        let mut schema = schema_without_defaults(schema);
        if let Some(fields) = schema.as_object_mut().filter(|_| *of == body.name) {
            fields.remove("required");
        }
        (name(of), schema)
    })
}

fn schema_without_defaults(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let kept = fields.iter().filter(|(keyword, _)| *keyword != "default");
    Value::Object(kept.map(|(keyword, value)| (keyword.clone(), keyword_value(keyword, value))).collect())
}

fn keyword_value(keyword: &str, value: &Value) -> Value {
    match (keyword, value) {
        ("$ref", Value::String(target)) => target
            .strip_prefix(COMPONENTS)
            .map_or_else(|| value.clone(), |of| json!(format!("{COMPONENTS}{}", name(of)))),
        // A property may itself be named `default`, so the keys here are names and only the values are schemas.
        ("properties", Value::Object(properties)) => Value::Object(each_schema(properties)),
        ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
            Value::Array(schemas.iter().map(schema_without_defaults).collect())
        }
        ("items" | "additionalProperties", Value::Object(_)) => schema_without_defaults(value),
        _ => value.clone(),
    }
}

fn each_schema(properties: &Map<String, Value>) -> Map<String, Value> {
    properties.iter().map(|(name, schema)| (name.clone(), schema_without_defaults(schema))).collect()
}
