//! Specifications, each stored as one value: a JSON object of its fields. A field that was added later has its
//! default in older rows when they are read, so that a new field needs no migration.

use std::fmt;

use holdfast_core::destination::DestinationSpec;
use holdfast_core::input::{Input, Value};
use holdfast_core::task::TaskSpec;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};

use crate::{Result, StoreError};

pub(crate) fn encode(values: &Input) -> Result<String> {
    serde_json::to_string(&Fields(values)).map_err(|error| StoreError::Broken(error.to_string()))
}

pub(crate) fn decode(text: &str) -> Option<Input> {
    serde_json::from_str(text).ok().map(|Stored(value)| value).and_then(|value| match value {
        Value::Object(values) => Some(values),
        _ => None,
    })
}

pub(crate) fn task(text: &str) -> Option<TaskSpec> {
    TaskSpec::read(&decode(text)?)
}

/// A task's specification from a document as it is stored here; `None` if no request could have created it.
pub(crate) fn sound_task(text: &str) -> Option<String> {
    encode(&TaskSpec::read_sound(&decode(text)?)?.write()).ok()
}

pub(crate) fn sound_destination(text: &str) -> Option<String> {
    encode(&destination(text).filter(DestinationSpec::is_sound)?.write()).ok()
}

pub(crate) fn destination(text: &str) -> Option<DestinationSpec> {
    DestinationSpec::read(&decode(text)?)
}

struct Fields<'a>(&'a Input);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // Fields without a value are left out: they are read back as having none.
        for (name, value) in self.0.iter().filter(|(_, value)| !matches!(value, Value::Null)) {
            map.serialize_entry(name, &StoredValue(value))?;
        }
        map.end()
    }
}

struct StoredValue<'a>(&'a Value);

impl Serialize for StoredValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null | Value::Other => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Integer(number) => serializer.serialize_i64(*number),
            Value::Text(text) => serializer.serialize_str(text),
            Value::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&StoredValue(item))?;
                }
                list.end()
            }
            Value::Object(values) => Fields(values).serialize(serializer),
        }
    }
}

struct Stored(Value);

impl<'de> Deserialize<'de> for Stored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Stored)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value of a field")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> std::result::Result<Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> std::result::Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::Other, Value::Integer))
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Stored(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, Stored(value))) = map.next_entry::<String, Stored>()? {
            fields.push((name, value));
        }
        Ok(Value::Object(fields.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        let nested = Input::default().with("on", true);
        let values = Input::default()
            .with("text", "a\u{1f}\n\"ü")
            .with("number", i64::MIN)
            .with("list", vec!["a", ""])
            .with("object", nested);
        let text = encode(&values.clone().with("none", Value::Null)).unwrap();
        assert!(!text.contains(char::is_control), "{text}");
        assert_eq!(decode(&text), Some(values));
        for broken in ["", "[]", "1", "{", "{\"a\":"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }
}
