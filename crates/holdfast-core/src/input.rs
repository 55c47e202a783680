//! Unvalidated input: fields that may be missing, null, of the wrong type or valid, and the errors found in them, field
//! by field.

use std::collections::BTreeMap;

use crate::refusal::Rule;

/// One field of a request, to the API or from a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<T> {
    /// Omitted: keeps its value on update, takes its default on create.
    #[default]
    Absent,
    /// Given but empty: clears what can be cleared.
    Null,
    /// Of another type than the field expects, such as a number instead of text.
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

    /// This field or, if it is absent, `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self.is_absent() { other } else { self }
    }
}

/// A value as it was sent or as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Text(String),
    List(Vec<Value>),
    Object(Input),
    /// Something that no field accepts, such as a fraction.
    Other,
}

macro_rules! value_of {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

value_of!(bool => Bool, i32 => Integer, i64 => Integer, String => Text, &str => Text, Input => Object);

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

/// Values by name: the unvalidated fields of a request, or the stored ones of a specification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Input(Vec<(String, Value)>);

impl Input {
    /// Sets a value, replacing an existing one.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Sets the field of a form; does nothing if it is absent.
    pub fn set_field(&mut self, name: &str, field: Field<String>) {
        match field {
            Field::Absent => {}
            Field::Null => self.set(name, Value::Null),
            Field::WrongType => self.set(name, Value::Other),
            Field::Value(text) => self.set(name, text),
        }
    }

    /// Removes a field, as if it had been omitted.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn text(&self, name: &str) -> Field<String> {
        self.field(name, Value::text)
    }

    pub fn integer(&self, name: &str) -> Field<i64> {
        self.field(name, Value::integer)
    }

    pub fn boolean(&self, name: &str) -> Field<bool> {
        self.field(name, |value| if let Value::Bool(value) = value { Some(*value) } else { None })
    }

    pub fn texts(&self, name: &str) -> Field<Vec<String>> {
        self.field(name, |value| value.list()?.iter().map(Value::text).collect())
    }

    pub fn integers(&self, name: &str) -> Field<Vec<i64>> {
        self.field(name, |value| value.list()?.iter().map(Value::integer).collect())
    }

    pub fn object(&self, name: &str) -> Field<Input> {
        self.field(name, |value| if let Value::Object(fields) = value { Some(fields.clone()) } else { None })
    }

    fn field<T>(&self, name: &str, read: impl FnOnce(&Value) -> Option<T>) -> Field<T> {
        match self.get(name) {
            None => Field::Absent,
            Some(Value::Null) => Field::Null,
            Some(value) => read(value).map_or(Field::WrongType, Field::Value),
        }
    }
}

impl FromIterator<(String, Value)> for Input {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl Value {
    fn text(&self) -> Option<String> {
        if let Self::Text(text) = self { Some(text.clone()) } else { None }
    }

    fn integer(&self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    fn list(&self) -> Option<&[Value]> {
        if let Self::List(values) = self { Some(values) } else { None }
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

    /// Adds the errors of another check under the field names that `name` returns; fields without a name are dropped.
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

    /// Every field with its error messages, as worded in the API document.
    pub fn english(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.iter().map(|(field, rules)| (field, rules.iter().map(|rule| rule.english(field)).collect()))
    }

    /// All errors in one line, for the command line.
    pub fn english_line(&self) -> String {
        self.english().flat_map(|(_, texts)| texts).collect::<Vec<_>>().join(" ")
    }
}
