//! The API server's verbs over the world. Only `route` and `reply` know HTTP.

mod apply;
mod cell;
mod columns;
mod create;
mod definitions;
mod delete;
mod discovery;
mod eviction;
mod openapi;
mod patch;
mod pod_columns;
mod read;
mod reply;
mod route;
mod scale;
mod strategic;
mod table;
mod update;
mod watch;

use serde_json::Value;

pub(crate) use definitions::established;
pub(crate) use delete::{DeleteOptions, FOREGROUND, ORPHAN};
pub(crate) use patch::PatchKind;
pub(crate) use reply::{Payload, Reply};
pub(crate) use route::{Call, Target};
pub(crate) use watch::WatchStream;

use super::kinds::{Kind, Shape};
use super::refusal::Refusal;
use super::types;

/// The value of `fieldValidation`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// The options of a write.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub validation: FieldValidation,
    pub manager: String,
    pub force: bool,
    /// The object is created by a patch.
    pub patch: bool,
    /// The write goes through a subresource, which policies for the object do not match.
    pub subresource: bool,
}

/// The part of an object that a write changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Main,
    Status,
}

/// A body in stored form, with the dropped fields.
pub(crate) struct Read {
    pub value: Value,
    pub unknown: Vec<String>,
}

/// Decodes a body. The error is the decoder's message.
pub(crate) fn read_body(kind: &Kind, mut body: Value) -> Result<Read, String> {
    if !body.is_object() {
        return Err("json: cannot unmarshal array into Go value of type map[string]interface {}".into());
    }
    let (value, unknown) = match &kind.shape {
        Shape::Builtin(id) => {
            let decoded = types::decode(*id, body)?;
            (decoded.value, decoded.unknown)
        }
        Shape::Custom(schema) => {
            let found = match body["metadata"].take() {
                Value::Null => Value::Object(serde_json::Map::new()),
                found => found,
            };
            let metadata = types::find("meta.ObjectMeta").map(|id| types::decode(id, found));
            let mut unknown = Vec::new();
            if let Some(metadata) = metadata {
                let metadata = metadata?;
                body["metadata"] = metadata.value;
                unknown = metadata.unknown.into_iter().map(|path| format!("metadata.{path}")).collect();
            }
            unknown.extend(schema.prune(&mut body));
            (body, unknown)
        }
        Shape::Free => (body, Vec::new()),
    };
    Ok(Read { value, unknown })
}

/// The server's message around a decoder's.
pub(crate) fn unreadable(kind: &Kind, why: &str) -> Refusal {
    Refusal::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}

/// The message of strict validation.
pub(crate) fn strict_sentence(unknown: &[String]) -> String {
    let list: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    format!("strict decoding error: {}", list.join(", "))
}
