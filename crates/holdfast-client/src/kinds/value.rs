//! Values in the form in which the service stores them.

use holdfast_core::fields::{DefaultValue, FieldKind, FieldSpec};
use holdfast_core::stream::StreamKind;
use serde_json::{Value, json};

/// A value as the service stores it. A value of the wrong type stays as it is; the service says what is wrong with it.
pub(super) fn tidy(field: &FieldSpec, value: &Value) -> Value {
    match (field.kind, value) {
        (FieldKind::Line { .. } | FieldKind::Paragraph { .. } | FieldKind::Choice(_), Value::String(text)) => {
            line(field, text.trim())
        }
        (FieldKind::Lines { .. }, Value::Null) => json!([]),
        (FieldKind::Lines { .. }, Value::Array(items)) => items.iter().map(trimmed).collect(),
        (FieldKind::Integer { .. }, Value::Number(_)) => whole_number(value),
        (
            FieldKind::Line { .. }
            | FieldKind::Paragraph { .. }
            | FieldKind::Lines { .. }
            | FieldKind::Choice(_)
            | FieldKind::Switch
            | FieldKind::Integer { .. }
            | FieldKind::Id
            | FieldKind::Ids { .. }
            | FieldKind::Secret { .. },
            value,
        ) => value.clone(),
    }
}

/// Empty text is no text.
fn line(field: &FieldSpec, text: &str) -> Value {
    let text = match field.name {
        "excluded_tables" => {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.collect::<Vec<_>>().join(",")
        }
        "custom_cron" => text.split_whitespace().collect::<Vec<_>>().join(" "),
        "type" => StreamKind::parse_input(text).map_or_else(|| text.to_owned(), |kind| kind.as_str().to_owned()),
        _ if field.trims_slashes => match text.trim_end_matches('/') {
            "" if !text.is_empty() => "/".to_owned(),
            trimmed => trimmed.to_owned(),
        },
        _ => text.to_owned(),
    };
    if text.is_empty() { Value::Null } else { Value::String(text) }
}

fn trimmed(item: &Value) -> Value {
    item.as_str().map_or_else(|| item.clone(), |text| json!(text.trim()))
}

/// `5.0` is 5, as in the API.
fn whole_number(value: &Value) -> Value {
    let whole = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= 2f64.powi(53));
    if value.is_i64() { value.clone() } else { whole.map_or_else(|| value.clone(), |number| json!(number as i64)) }
}

pub(super) fn of_default(default: DefaultValue) -> Value {
    match default {
        DefaultValue::Switch(is_on) => json!(is_on),
        DefaultValue::Integer(number) => json!(number),
        DefaultValue::Text(text) => json!(text),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::task;

    use super::*;

    #[test]
    fn values_take_the_form_in_which_they_are_stored() {
        let cases = [
            ("store_path", json!("/web/"), json!("/web")),
            ("store_path", json!(" // "), json!("/")),
            ("store_path", json!(""), json!(null)),
            ("description", json!(" a\nb \n"), json!("a\nb")),
            ("excluded_tables", json!("a,, b ,"), json!("a,b")),
            ("excluded_tables", json!(" , "), json!(null)),
            ("excluded_paths", json!([" *.log ", "a b"]), json!(["*.log", "a b"])),
            ("excluded_paths", json!(null), json!([])),
            ("custom_cron", json!("0  3 * *   *"), json!("0 3 * * *")),
            ("maximum_backups_to_keep", json!(5.0), json!(5)),
            ("maximum_backups_to_keep", json!(5.5), json!(5.5)),
            ("maximum_backups_to_keep", json!("5"), json!("5")),
            ("type", json!("discord_webhook"), json!("discord")),
        ];
        for (name, given, expected) in cases {
            let field = task::fields().find(|field| field.name == name).unwrap();
            assert_eq!(tidy(field, &given), expected, "{name} {given}");
        }
    }
}
