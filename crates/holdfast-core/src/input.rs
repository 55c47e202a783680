//! What a person sent, before it is known to be right: fields that may be missing, empty, of the wrong kind or
//! good, and the errors found in them, field by field.

use std::collections::BTreeMap;

use crate::refusal::Rule;

/// One field of a request. API and pages both turn what they received into these.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<T> {
    /// Not mentioned: keeps its value on update, takes its default on create.
    #[default]
    Absent,
    /// Mentioned and empty: clears what can be cleared.
    Null,
    /// Of another kind than the field wants, a number where a text belongs.
    WrongType,
    Value(T),
}

impl<T> Field<T> {
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null | Self::WrongType => None,
        }
    }

    pub fn map<U>(self, read: impl FnOnce(T) -> U) -> Field<U> {
        match self {
            Self::Absent => Field::Absent,
            Self::Null => Field::Null,
            Self::WrongType => Field::WrongType,
            Self::Value(value) => Field::Value(read(value)),
        }
    }

    /// The first of two spellings of a field that was used.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self.is_absent() { other } else { self }
    }
}

/// What is wrong with a request, field by field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Errors(BTreeMap<String, Vec<Rule>>);

impl Errors {
    pub fn one(field: &str, rule: Rule) -> Self {
        let mut errors = Self::default();
        errors.add(field, rule);
        errors
    }

    pub fn add(&mut self, field: &str, rule: Rule) {
        self.0.entry(field.to_owned()).or_default().push(rule);
    }

    /// Adds the errors of another check under names of its own; those without a name are left out.
    pub fn add_all(&mut self, others: &Errors, name: impl Fn(&str) -> Option<&str>) {
        for (field, rules) in others.iter() {
            if let Some(name) = name(field) {
                rules.iter().for_each(|rule| self.add(name, rule.clone()));
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Rule])> {
        self.0.iter().map(|(field, rules)| (field.as_str(), rules.as_slice()))
    }

    /// Every field with its errors in the words of the API document.
    pub fn english(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.iter().map(|(field, rules)| (field, rules.iter().map(|rule| rule.english(field)).collect()))
    }

    /// All errors in one line, for the command line.
    pub fn english_line(&self) -> String {
        self.english().flat_map(|(_, texts)| texts).collect::<Vec<_>>().join(" ")
    }
}
