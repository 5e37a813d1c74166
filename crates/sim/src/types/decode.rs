//! Decodes and re-encodes a body as Go would: finds unknown fields, checks types, canonicalizes quantities and times,
//! and keeps or omits zero values by their tags.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value};

use super::{Field, Quantity, StructId, Type, get};

/// A body in its stored form.
pub(crate) struct Decoded {
    pub value: Value,
    /// The paths of unknown fields, as strict validation reports them.
    pub unknown: Vec<String>,
}

/// Decodes `value` as the struct `id`. The error is Go's message, without the server's around it.
pub(crate) fn decode(id: StructId, value: Value) -> Result<Decoded, String> {
    let mut reader = Reader { path: Vec::new(), unknown: Vec::new(), owner: id };
    let value = reader.read(&Type::Struct(id), value)?;
    Ok(Decoded { value, unknown: reader.unknown })
}

enum Step {
    Field(String),
    Index(usize),
}

struct Reader {
    path: Vec<Step>,
    unknown: Vec<String>,
    /// The struct whose field is decoded: Go's type errors name it.
    owner: StructId,
}

impl Reader {
    fn read(&mut self, ty: &Type, value: Value) -> Result<Value, String> {
        match (ty, value) {
            (Type::Pointer(inner), value) => self.read(inner, value),
            (Type::Struct(id), Value::Object(map)) => self.structure(*id, map).map(Value::Object),
            (Type::List(inner), Value::Array(items)) => self.list(inner, items),
            (Type::Map(inner), Value::Object(map)) => self.map(inner, map),
            (Type::Raw, value)
            | (Type::Text | Type::Bytes, value @ Value::String(_))
            | (Type::Bool, value @ Value::Bool(_))
            | (Type::Float, value @ Value::Number(_))
            | (Type::IntOrString, value @ (Value::String(_) | Value::Number(_))) => Ok(value),
            (Type::Int64, Value::Number(number)) => match number.as_i64() {
                Some(n) => Ok(n.into()),
                None => Err(self.mismatch(&format!("number {number}"), ty)),
            },
            (Type::Int32, Value::Number(number)) => match number.as_i64().and_then(|n| i32::try_from(n).ok())
            {
                Some(n) => Ok(n.into()),
                None => Err(self.mismatch(&format!("number {number}"), ty)),
            },
            (Type::Quantity, Value::String(text)) => Quantity::canonical(&text).map(Value::String),
            (Type::Quantity, Value::Number(number)) => {
                Quantity::canonical(&number.to_string()).map(Value::String)
            }
            (Type::Time, Value::String(text)) => time(&text, SecondsFormat::Secs),
            (Type::MicroTime, Value::String(text)) => micro_time(&text),
            (ty, value) => Err(self.mismatch(json_kind(&value), ty)),
        }
    }

    fn structure(&mut self, id: StructId, map: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let outer = std::mem::replace(&mut self.owner, id);
        let fields = &get(id).fields;
        let mut out = Map::new();
        for (name, value) in map {
            let Some(field) = fields.get(&name) else {
                self.path.push(Step::Field(name));
                let path = self.dotted();
                self.unknown.push(path);
                self.path.pop();
                continue;
            };
            if value.is_null() {
                continue;
            }
            self.path.push(Step::Field(name));
            let value = self.read(&field.ty, value)?;
            let Some(Step::Field(name)) = self.path.pop() else { continue };
            if is_encoded(field, &value) {
                out.insert(name, value);
            }
        }
        for (name, field) in fields {
            if !out.contains_key(name)
                && let Some(value) = zero(field)
            {
                out.insert(name.clone(), value);
            }
        }
        self.owner = outer;
        Ok(out)
    }

    fn list(&mut self, inner: &Type, items: Vec<Value>) -> Result<Value, String> {
        let mut out = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            self.path.push(Step::Index(index));
            let item = if item.is_null() { zero_of(inner) } else { self.read(inner, item)? };
            out.push(item);
            self.path.pop();
        }
        Ok(Value::Array(out))
    }

    fn map(&mut self, inner: &Type, map: Map<String, Value>) -> Result<Value, String> {
        let mut out = Map::new();
        for (name, value) in map {
            self.path.push(Step::Field(name));
            let value = if value.is_null() { zero_of(inner) } else { self.read(inner, value)? };
            if let Some(Step::Field(name)) = self.path.pop() {
                out.insert(name, value);
            }
        }
        Ok(Value::Object(out))
    }

    fn dotted(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) if text.is_empty() => text.push_str(name),
                Step::Field(name) => {
                    text.push('.');
                    text.push_str(name);
                }
                Step::Index(index) => {
                    text.push('[');
                    text.push_str(&index.to_string());
                    text.push(']');
                }
            }
        }
        text
    }

    fn mismatch(&self, found: &str, ty: &Type) -> String {
        let path: Vec<&str> = self
            .path
            .iter()
            .filter_map(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                Step::Index(_) => None,
            })
            .collect();
        let owner = get(self.owner).name.split('.').next_back().unwrap_or_default();
        format!(
            "json: cannot unmarshal {found} into Go struct field {owner}.{} of type {}",
            path.join("."),
            go_name(ty)
        )
    }
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_name(ty: &Type) -> String {
    match ty {
        Type::Pointer(inner) => go_name(inner),
        Type::List(inner) => format!("[]{}", go_name(inner)),
        Type::Map(inner) => format!("map[string]{}", go_name(inner)),
        Type::Text => "string".into(),
        Type::Bool => "bool".into(),
        Type::Int32 => "int32".into(),
        Type::Int64 => "int64".into(),
        Type::Float => "float64".into(),
        Type::Bytes => "[]uint8".into(),
        Type::Quantity => "resource.Quantity".into(),
        Type::IntOrString => "intstr.IntOrString".into(),
        Type::Time | Type::MicroTime => "v1.Time".into(),
        Type::Raw => "runtime.RawExtension".into(),
        Type::Struct(id) => format!("v1.{}", get(*id).name.split('.').next_back().unwrap_or_default()),
    }
}

fn time(text: &str, resolution: SecondsFormat) -> Result<Value, String> {
    let parsed = DateTime::parse_from_rfc3339(text).map_err(|_| {
        format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\"")
    })?;
    Ok(parsed.with_timezone(&Utc).to_rfc3339_opts(resolution, true).into())
}

/// Go accepts one format of micro time only, with six digits.
fn micro_time(text: &str) -> Result<Value, String> {
    let rest = text.get(19..).unwrap_or_default();
    let digits = rest.strip_prefix('.').map_or(0, |r| r.bytes().take_while(u8::is_ascii_digit).count());
    if digits != 6 {
        return Err(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest:?} as \".000000\""
        ));
    }
    time(text, SecondsFormat::Micros)
}

fn is_empty(ty: &Type, value: &Value) -> bool {
    match ty {
        Type::Text | Type::Bytes => value.as_str() == Some(""),
        Type::Bool => value == &Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Float => value.as_f64() == Some(0.0),
        Type::List(_) => value.as_array().is_some_and(Vec::is_empty),
        Type::Map(_) => value.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

fn is_encoded(field: &Field, value: &Value) -> bool {
    if field.omit_zero && matches!(field.ty, Type::Struct(_)) {
        return value.as_object().is_none_or(|map| !map.is_empty());
    }
    !(field.omit_empty && is_empty(&field.ty, value))
}

/// The encoding of an unset field, if it has one.
fn zero(field: &Field) -> Option<Value> {
    match &field.ty {
        Type::Struct(_) if !field.omit_zero => Some(zero_of(&field.ty)),
        Type::Time | Type::MicroTime if !field.omit_zero => Some(Value::Null),
        Type::Quantity if !field.omit_zero => Some("0".into()),
        ty if !field.omit_empty && !field.omit_zero => Some(zero_of(ty)),
        _ => None,
    }
}

/// The encoding of an empty struct.
pub(crate) fn zero_struct(id: StructId) -> Value {
    zero_of(&Type::Struct(id))
}

fn zero_of(ty: &Type) -> Value {
    match ty {
        Type::Text => "".into(),
        Type::Bool => false.into(),
        Type::Int32 | Type::Int64 | Type::Float | Type::IntOrString => 0.into(),
        Type::Quantity => "0".into(),
        Type::Struct(id) => Value::Object(
            get(*id).fields.iter().filter_map(|(name, field)| Some((name.clone(), zero(field)?))).collect(),
        ),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::find;
    use super::*;

    fn set(value: Value) -> Result<Decoded, String> {
        decode(find("apps.StatefulSet").unwrap(), value)
    }

    #[test]
    fn unknown_field_is_dropped_and_reported_with_its_path() {
        let decoded =
            set(json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "imgae": "x"}]}}}}))
                .unwrap();
        assert_eq!(decoded.unknown, ["spec.template.spec.containers[0].imgae"]);
        assert_eq!(
            decoded.value["spec"]["template"]["spec"]["containers"][0],
            json!({"name": "a", "resources": {}})
        );
    }

    #[test]
    fn zero_value_is_kept_only_for_pointer_fields() {
        let decoded = set(
            json!({"spec": {"replicas": 0, "minReadySeconds": 0, "template": {"spec": {"hostNetwork": false}}}}),
        )
        .unwrap();
        assert_eq!(decoded.value["spec"]["replicas"], 0);
        assert_eq!(decoded.value["spec"].get("minReadySeconds"), None);
        assert_eq!(decoded.value["spec"]["template"]["spec"], json!({"containers": null}));
    }

    #[test]
    fn wrong_type_is_rejected_with_the_go_error_message() {
        let error = set(json!({"spec": {"replicas": "3"}})).err().unwrap();
        assert_eq!(
            error,
            "json: cannot unmarshal string into Go struct field StatefulSetSpec.spec.replicas of type int32"
        );
    }
}
