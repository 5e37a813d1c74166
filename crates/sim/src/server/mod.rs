//! The API server's verbs over the world. Nothing here knows of HTTP but `route` and `reply`.

mod apply;
mod cell;
mod columns;
mod create;
mod definitions;
mod delete;
mod discovery;
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

/// What `fieldValidation` asks for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// How a write is meant.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub validation: FieldValidation,
    pub manager: String,
    pub force: bool,
    /// The new object comes of a patch.
    pub patch: bool,
    /// It is written through a subresource, which policies for the object do not match.
    pub subresource: bool,
}

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Main,
    Status,
}

/// A body in stored form, with the fields that were dropped from it.
pub(crate) struct Read {
    pub value: Value,
    pub unknown: Vec<String>,
}

/// Reads a body as its kind does. The error is the decoder's sentence, without a frame.
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

/// The frame around a decoder's sentence.
pub(crate) fn unreadable(kind: &Kind, why: &str) -> Refusal {
    Refusal::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}

/// The sentence of strict validation.
pub(crate) fn strict_sentence(unknown: &[String]) -> String {
    let list: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    format!("strict decoding error: {}", list.join(", "))
}
