//! Writes a file that describes what a service has, so that `apply` finds nothing to do for it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::step::Labels;
use crate::call::Result;
use crate::kinds::{Fields, KINDS, ResourceKind, shown_name};
use crate::{Client, ClientError};

const HEAD: &str = "# Written by `holdfast export --yaml`, for `holdfast apply`. Secrets are not part of it: they are \
                    needed where a\n# resource does not exist yet, as FIELD_file: PATH or FIELD_env: NAME.\n";

/// Fetches everything that a file can describe, and writes it as YAML.
pub async fn export(client: &Client) -> Result<String> {
    let (mut text, mut labels) = (HEAD.to_owned(), Labels::new());
    for kind in KINDS {
        let rows = client.list(kind.path, &[]).await?;
        for row in &rows {
            let (Some(id), Some(label)) = (row["id"].as_i64(), row["label"].as_str()) else { continue };
            if let Some(((_, first), _)) =
                labels.iter().find(|((name, _), other)| *name == kind.name && *other == label)
            {
                let problem =
                    format!("several {} are called {label:?}, such as {first} and {id}; rename them first", kind.name);
                return Err(ClientError::Ambiguous(problem));
            }
            labels.insert((kind.name, id), label.to_owned());
        }
        write_kind(&mut text, kind, &rows, &labels);
    }
    Ok(text)
}

fn write_kind(text: &mut String, kind: &ResourceKind, rows: &[Value], labels: &Labels) {
    if rows.is_empty() {
        return;
    }
    *text += &format!("\n{}:\n", kind.name);
    for row in rows {
        let lines = item(kind, row, labels);
        for (number, line) in lines.iter().enumerate() {
            *text += &format!("  {} {line}\n", if number == 0 { '-' } else { ' ' });
        }
    }
}

/// The lines of one item.
fn item(kind: &ResourceKind, row: &Value, labels: &Labels) -> Vec<String> {
    let is = kind.read(row);
    let mut lines = fields(kind, &is);
    for link in kind.links {
        let label = |id: i64| labels.get(&(link.kind, id)).map(|label| json!(label));
        let value = match is.get(link.id_field) {
            Some(Value::Array(ids)) => Some(ids.iter().filter_map(Value::as_i64).filter_map(label).collect()),
            Some(id) => id.as_i64().and_then(label),
            None => None,
        };
        lines.extend(value.map(|value| format!("{}: {}", link.field, scalar(&value))));
    }
    for field in kind.secrets().filter(|field| kind.has_secret(field, row)) {
        lines.push(format!("# {}_file: PATH", field.name));
    }
    lines
}

fn fields(kind: &ResourceKind, is: &Fields) -> Vec<String> {
    let (mut lines, mut outer_name) = (Vec::new(), "");
    for field in kind.plain() {
        let value = is.get(field.name).unwrap_or(&Value::Null);
        let other = |name: &str| is.get(name).cloned().unwrap_or(Value::Null);
        let is_cron = field.name == "frequency" && value == "custom";
        if value.is_null() || is_cron || !kind.is_comparable(field, value, other) {
            continue;
        }
        match field.name.split_once('.') {
            Some((outer, inner)) => {
                if outer != outer_name {
                    lines.push(format!("{outer}:"));
                    outer_name = outer;
                }
                lines.push(format!("  {inner}: {}", scalar(value)));
            }
            None => lines.push(format!("{}: {}", shown_name(field), scalar(value))),
        }
    }
    lines
}

/// A value in one line.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(scalar).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

/// Whether text needs no quotes: letters and digits that cannot be taken for anything else.
fn is_plain(text: &str) -> bool {
    const WORDS: &[&str] = &["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"];
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.bytes().all(is_safe)
        && !WORDS.contains(&text.to_lowercase().as_str())
}

/// As in JSON, and without characters that YAML does not print.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for c in json!(text).to_string().chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') {
            // Writing to a string does not fail.
            let _always_written = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    #[test]
    fn every_text_comes_back() {
        let texts = [
            "a",
            "/srv/www",
            "no",
            "Null",
            "-x",
            "a: b",
            "a # b",
            "#x",
            "[a]",
            "2025-01-01",
            "03:00",
            "1e3",
            "",
            "~",
            "@a",
            "two\nlines\t\"quoted\" \\",
            "größer",
            "\u{85}\u{2028}\u{feff}\u{7f}",
            "0 3 * * *",
            "!x",
            "*a",
            "&a",
            "%",
            "a,b",
        ];
        for text in texts {
            let written = format!("a: {}\nb: [{}]\n", scalar(&json!(text)), scalar(&json!(text)));
            let read = yaml::parse(&written).unwrap();
            assert_eq!((&read["a"], &read["b"][0]), (&json!(text), &json!(text)), "{written}");
        }
    }
}
