//! What a person sent, before it is known to be right: fields that may be missing, empty, of the wrong kind or
//! good, and the errors found in them, field by field.

use std::collections::BTreeMap;

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

/// Every error of a body under its field, in the voice of the API document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Errors(BTreeMap<String, Vec<String>>);

impl Errors {
    pub fn one(field: &str, message: impl Into<String>) -> Self {
        let mut errors = Self::default();
        errors.add(field, message);
        errors
    }

    pub fn add(&mut self, field: &str, message: impl Into<String>) {
        self.0.entry(field.to_owned()).or_default().push(message.into());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(field, messages)| (field.as_str(), messages.as_slice()))
    }
}
