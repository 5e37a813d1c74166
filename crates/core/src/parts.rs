//! Which parts of an object's JSON are read: everything else is skipped during parsing.

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Which parts of a JSON value are read. For a list, this applies to each of its entries.
#[derive(Clone, Copy, Debug)]
pub enum Parts {
    /// Everything.
    All,
    /// Nothing.
    Nothing,
    /// Only these fields, and only these parts of them.
    Only(&'static [(&'static str, Parts)]),
    /// Everything, but only these parts of these fields.
    But(&'static [(&'static str, Parts)]),
}

impl Parts {
    fn of(self, field: &str) -> Self {
        let named =
            |fields: &[(&str, Self)]| fields.iter().find(|(name, _)| *name == field).map(|(_, parts)| *parts);
        match self {
            Self::All | Self::Nothing => self,
            Self::Only(fields) => named(fields).unwrap_or(Self::Nothing),
            Self::But(fields) => named(fields).unwrap_or(Self::All),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Parts {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Self::All => Value::deserialize(deserializer),
            Self::Nothing => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Value::Null),
            Self::Only(_) | Self::But(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Parts {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element_seed(self)? {
            list.push(entry);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(field) = fields.next_key_seed(Field(self))? {
            match field {
                Some((name, parts)) => object.insert(name, fields.next_value_seed(parts)?).map(drop),
                None => fields.next_value::<IgnoredAny>().map(|_| None)?,
            };
        }
        Ok(object.into())
    }
}

/// Reads a field's name and looks up which of its parts are read; `None` if the field is skipped.
struct Field(Parts);

impl<'de> DeserializeSeed<'de> for Field {
    type Value = Option<(String, Parts)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Field {
    type Value = Option<(String, Parts)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        match self.0.of(name) {
            Parts::Nothing => Ok(None),
            parts => Ok(Some((name.to_owned(), parts))),
        }
    }
}
