//! Preconditions and preferences in the headers of a request: `If-Match` (change this version only), `If-None-Match: *`
//! (create it only if its label is not in use) and `Prefer: handling=strict` (refuse unknown fields).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use holdfast_app::Expected;
use holdfast_core::fields::FieldSpec;
use holdfast_core::input::{Errors, Input, Value};
use holdfast_core::refusal::Rule;
use serde_json::Value as Json;

use crate::openapi::doc::SchemaDoc;

const PREFER: HeaderName = HeaderName::from_static("prefer");
pub(crate) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
pub(crate) const STRICT: HeaderValue = HeaderValue::from_static("handling=strict");

/// The version that a request wants to change or delete, or whether what it creates must have a new label.
pub(crate) fn expected(method: &Method, headers: &HeaderMap) -> Expected {
    if method == Method::POST && headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == "*") {
        return Expected::NewLabel;
    }
    let mut tags = headers.get_all(header::IF_MATCH).iter().peekable();
    if tags.peek().is_none() || ![Method::PUT, Method::PATCH, Method::DELETE].contains(method) {
        return Expected::Any;
    }
    // What cannot be read is no version of anything.
    let tags = tags.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let tags: Vec<&str> = tags.map(str::trim).collect();
    if tags.contains(&"*") {
        return Expected::Any;
    }
    let quoted = |tag: &&str| tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).map(str::to_owned);
    Expected::Versions(tags.iter().filter_map(quoted).collect())
}

pub(crate) fn wants_strict(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';']));
    preferences.any(|preference| {
        let (name, value) = preference.split_once('=').unwrap_or_default();
        name.trim().eq_ignore_ascii_case("handling") && value.trim().trim_matches('"').eq_ignore_ascii_case("strict")
    })
}

/// The fields that a route reads. Put into a request that wants others to be refused.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownFields(Arc<Fields>);

/// Each field with the fields of the object that it holds.
type Fields = BTreeMap<String, Nested>;

#[derive(Debug, Default)]
struct Nested(Option<Fields>);

impl KnownFields {
    pub(crate) fn of(schema: &SchemaDoc) -> Self {
        Self(Arc::new(fields_of(&schema.reference(), schema).unwrap_or_default()))
    }

    /// Adds an error for every unknown field.
    pub(crate) fn check(&self, input: &Input, errors: &mut Errors) {
        check(&self.0, input, "", errors);
    }
}

/// The fields of a resource that has a type.
pub(crate) struct TypedFields {
    pub fields: Vec<&'static FieldSpec>,
    /// The type that a word means.
    pub kind: fn(&str) -> Option<&'static str>,
    /// The type of what is changed.
    pub current: Option<&'static str>,
}

impl TypedFields {
    /// Adds an error for every field that is given although it belongs to another type.
    pub(crate) fn check(&self, input: &Input, errors: &mut Errors) {
        let given = input.text("type").value().and_then(|word| (self.kind)(word));
        let Some(kind) = given.or(self.current) else { return };
        for field in self.fields.iter().filter(|field| !field.applies(|_| kind.to_owned())) {
            let names = [field.name].into_iter().chain(field.aliases.iter().copied());
            for name in names.filter(|name| input.get(name).is_some_and(|value| *value != Value::Null)) {
                errors.add(name, Rule::OtherType);
            }
        }
    }
}

fn fields_of(schema: &Json, all: &SchemaDoc) -> Option<Fields> {
    let referred = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next()).and_then(|name| {
        let found = all.all.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    });
    let properties = referred.unwrap_or(schema)["properties"].as_object()?;
    let nested = properties.iter().map(|(name, schema)| (name.clone(), Nested(fields_of(schema, all))));
    Some(nested.collect())
}

fn check(fields: &Fields, input: &Input, prefix: &str, errors: &mut Errors) {
    for (name, value) in input.iter() {
        match (fields.get(name), value) {
            (None, _) => errors.add(&format!("{prefix}{name}"), Rule::Unknown),
            (Some(Nested(Some(fields))), Value::Object(input)) => {
                check(fields, input, &format!("{prefix}{name}."), errors);
            }
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn if_match_names_versions_for_changes_alone() {
        let read = |method: Method, value| expected(&method, &headers(&[(header::IF_MATCH, value)]));
        let versions = |versions: &[&str]| Expected::Versions(versions.iter().map(|&v| v.to_owned()).collect());
        assert_eq!(expected(&Method::PUT, &HeaderMap::new()), Expected::Any);
        assert_eq!(read(Method::GET, "\"a\""), Expected::Any);
        assert_eq!(read(Method::PUT, "*"), Expected::Any);
        assert_eq!(read(Method::PUT, "\"a\", \"b\""), versions(&["a", "b"]));
        for none in ["W/\"a\"", "a", "\"a", ""] {
            assert_eq!(read(Method::DELETE, none), versions(&[]), "{none}");
        }
        let new = |method: Method, value| expected(&method, &headers(&[(header::IF_NONE_MATCH, value)]));
        assert_eq!(new(Method::POST, "*"), Expected::NewLabel);
        assert_eq!(new(Method::POST, "\"a\""), Expected::Any);
        assert_eq!(new(Method::PUT, "*"), Expected::Any);
    }

    #[test]
    fn strict_handling_is_asked_for_in_any_spelling() {
        for yes in ["handling=strict", "respond-async, Handling=\"strict\"", "return=minimal; handling=strict"] {
            assert!(wants_strict(&headers(&[(PREFER, yes)])), "{yes}");
        }
        for no in ["handling=lenient", "strict", ""] {
            assert!(!wants_strict(&headers(&[(PREFER, no)])), "{no}");
        }
    }
}
