//! What an edit changed, in words for the audit log: the fields that differ, with their old and new values. Of a secret
//! only that it changed.

use crate::input::{Input, Value};
use crate::secret::SecretChange;

/// One value: enough to recognise a path or an address.
const VALUE_CHARS: usize = 120;
/// All changes of one edit: a page shows 50 of them, and they are kept for months.
const DETAIL_CHARS: usize = 2000;

/// The changes of one edit, field by field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes(Vec<Change>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    field: String,
    text: String,
}

impl Changes {
    /// The fields that differ. A field that only one of the two has counts as none in the other.
    pub fn between(before: &Input, after: &Input) -> Self {
        let new = after.iter().filter(|(name, _)| before.get(name).is_none());
        let names = before.iter().chain(new).map(|(name, _)| name);
        Self(names.filter_map(|name| change(name, before.get(name), after.get(name))).collect())
    }

    /// Adds a secret. Removing one that was not set is no change.
    #[must_use]
    pub fn with_secret(mut self, name: &str, change: &SecretChange, was_set: bool) -> Self {
        let what = match change {
            SecretChange::Set(_) => "changed",
            SecretChange::Clear if was_set => "removed",
            SecretChange::Clear | SecretChange::Keep => return self,
        };
        self.0.push(Change { field: name.to_owned(), text: format!("{name} {what}") });
        self
    }

    /// Adds a field that is stored elsewhere than the others.
    #[must_use]
    pub fn with_field(mut self, name: &str, before: &Value, after: &Value) -> Self {
        self.0.extend(change(name, Some(before), Some(after)));
        self
    }

    /// Without these fields.
    #[must_use]
    pub fn without(mut self, fields: &[&str]) -> Self {
        self.0.retain(|change| !fields.contains(&change.field.as_str()));
        self
    }

    /// The names of the fields that differ, each once.
    pub fn fields(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for change in &self.0 {
            if !names.contains(&change.field.as_str()) {
                names.push(&change.field);
            }
        }
        names
    }

    /// The changes in one line, after what they were made to; `None` if there are none.
    pub fn describe(&self, subject: &str) -> Option<String> {
        let mut chars = 0;
        let fitting = self.0.iter().take_while(|change| {
            chars += change.text.chars().count();
            chars <= DETAIL_CHARS
        });
        let mut parts: Vec<String> = fitting.map(|change| change.text.clone()).collect();
        let left = self.0.len() - parts.len();
        if left > 0 {
            parts.push(format!("and {left} more"));
        }
        (!parts.is_empty()).then(|| format!("{subject}: {}", parts.join(", ")))
    }
}

/// What the audit log calls a row: its id and its label.
pub fn named(id: impl std::fmt::Display, label: &str) -> String {
    format!("{id} {}", quoted(label))
}

/// Ids in ascending order, as short texts such as `3-7 9`, each of at most `at_once` parts.
pub fn id_lists(ids: &[i64], at_once: usize) -> Vec<String> {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *id => *last = *id,
            _ => ranges.push((*id, *id)),
        }
    }
    let shown = |(first, last): &(i64, i64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.chunks(at_once.max(1)).map(|some| some.iter().map(shown).collect::<Vec<_>>().join(" ")).collect()
}

fn change(name: &str, before: Option<&Value>, after: Option<&Value>) -> Option<Change> {
    let (before, after) = (before.unwrap_or(&Value::Null), after.unwrap_or(&Value::Null));
    let text = || format!("{name} {} → {}", shown(before), shown(after));
    (before != after).then(|| Change { field: name.to_owned(), text: text() })
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(is_on) => is_on.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => quoted(text),
        Value::List(values) => {
            let items: Vec<String> = values.iter().map(shown).collect();
            shortened(&format!("[{}]", items.join(", ")))
        }
        Value::Object(fields) => {
            let items: Vec<String> = fields.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
            shortened(&format!("{{{}}}", items.join(", ")))
        }
        Value::Other => "?".to_owned(),
    }
}

/// In quotes, with control characters escaped, so that a text cannot pass for another part of the line.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

fn shortened(text: &str) -> String {
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(VALUE_CHARS).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use crate::Secret;

    use super::*;

    fn input(fields: &[(&str, Value)]) -> Input {
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    #[test]
    fn ids_are_listed_completely_and_briefly() {
        assert_eq!(id_lists(&[1, 2, 3, 5, 8, 9], 10), ["1-3 5 8-9"]);
        assert_eq!(id_lists(&[1, 3, 5, 6, 7], 2), ["1 3", "5-7"]);
        assert!(id_lists(&[], 10).is_empty());
    }

    #[test]
    fn only_fields_that_differ_are_described() {
        let before = input(&[("keep", 30.into()), ("path", "/srv".into()), ("tags", vec![1, 2].into())]);
        let after =
            input(&[("keep", 5.into()), ("path", "/srv".into()), ("tags", vec![2].into()), ("on", true.into())]);
        let changes = Changes::between(&before, &after);
        let subject = named(5, "web \"files\"\n");
        let text = changes.describe(&subject).unwrap();
        assert_eq!(text, "5 \"web \\\"files\\\"\\n\": keep 30 → 5, tags [1, 2] → [2], on none → true");
        assert_eq!(Changes::between(&before, &before).describe("5"), None);
        let gone = Changes::between(&input(&[("path", "/srv".into())]), &Input::default());
        assert_eq!(gone.describe("5").unwrap(), "5: path \"/srv\" → none");
    }

    #[test]
    fn secrets_are_never_shown() {
        let set = SecretChange::Set(Secret::new("hunter2"));
        let changes =
            Changes::default().with_secret("password", &set, true).with_secret("url", &SecretChange::Clear, true);
        let text = changes.describe("5").unwrap();
        assert_eq!(text, "5: password changed, url removed");
        let none = Changes::default().with_secret("a", &SecretChange::Clear, false).with_secret(
            "b",
            &SecretChange::Keep,
            true,
        );
        assert_eq!(none.describe("5"), None);
    }

    #[test]
    fn fields_are_named_once_and_can_be_left_out() {
        let before = input(&[("keep", 30.into()), ("password", false.into())]);
        let after = input(&[("keep", 5.into()), ("password", true.into())]);
        let set = SecretChange::Set(Secret::new("hunter2"));
        let changes = Changes::between(&before, &after).with_secret("password", &set, false);
        let changes = changes.with_field("paused", &false.into(), &true.into());
        let changes = changes.with_field("same", &true.into(), &true.into());
        assert_eq!(changes.fields(), ["keep", "password", "paused"]);
        assert_eq!(changes.without(&["password"]).fields(), ["keep", "paused"]);
    }

    #[test]
    fn a_detail_is_bounded() {
        let long = |letter: &str| -> Input {
            (0..100).map(|number| (format!("field_{number}"), Value::from(letter.repeat(5000)))).collect()
        };
        let text = Changes::between(&long("a"), &long("b")).describe("5").unwrap();
        assert!(text.chars().count() < DETAIL_CHARS + 100, "{text}");
        assert!(text.contains("a…\" → \"b") && text.ends_with(" more"), "{text}");
    }
}
