//! The schemas of updates. A generated client sends a declared default for every field that its caller left out, and
//! would so reset what the caller did not name; therefore nothing below an update declares one.

use serde_json::{Map, Value, json};

use super::doc::SchemaDoc;

const COMPONENTS: &str = "#/components/schemas/";

pub(super) fn name(of: &str) -> String {
    format!("{of}Update")
}

/// The body of an update and everything below it, under names of their own. No field of the body itself is required.
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
        // A property may itself be called `default`; only what stands below its name is a schema.
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
