//! How the server says no: the `Status` bodies of the real one, with its reasons and sentences.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A request that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, as in `NotFound`.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
    /// `details` of the Status, or null.
    pub details: Value,
}

/// One field that validation refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

impl Cause {
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {}: {why}", shown(value)))
    }

    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self::new("FieldValueRequired", field, message)
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {}", shown(value)))
    }

    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {}", shown(value)))
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|v| format!("{v:?}")).collect();
        let message =
            format!("Unsupported value: {}: supported values: {}", shown(value), allowed.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    pub(crate) fn wrong_type(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new("FieldValueTypeInvalid", field, format!("Invalid value: {}: {why}", shown(value)))
    }

    pub(crate) fn too_many(field: impl Into<String>, count: usize, limit: u64) -> Self {
        Self::new("FieldValueTooMany", field, format!("Too many: {count}: must have at most {limit} items"))
    }

    pub(crate) fn too_long(field: impl Into<String>, limit: u64) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {limit} bytes"))
    }

    /// The same cause for a field one level further down.
    pub(crate) fn below(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }

    /// Whether CEL rules are not run over an object with such a cause.
    pub(crate) fn blocks_rules(&self) -> bool {
        !matches!(self.reason, "FieldValueInvalid" | "FieldValueDuplicate" | "FieldValueForbidden")
    }

    /// What the server adds when it did not come to the rules.
    pub(crate) fn rules_unchecked() -> Self {
        Self::invalid(
            "<nil>",
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        )
    }

    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, field: field.into(), message }
    }

    fn sentence(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

/// A value as Go's field errors print it.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => go_printed(value),
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

fn go_printed(value: &Value) -> String {
    value.to_string()
}

impl Refusal {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        self.details = json!({"name": name, "kind": kind.plural});
        if !kind.group.is_empty() {
            self.details["group"] = kind.group.clone().into();
        }
        self
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.resource())).about(kind, name)
    }

    pub(crate) fn no_such_path() -> Self {
        let mut refusal = Self::new(404, "NotFound", "the server could not find the requested resource");
        refusal.details = json!({});
        refusal
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.resource()))
            .about(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.resource());
        Self::new(409, "Conflict", message).about(kind, name)
    }

    pub(crate) fn stale(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", kind.resource());
        Self::new(403, "Forbidden", message).about(kind, name)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unsupported_media(accepted: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    pub(crate) fn not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut refusal = Self::new(405, "MethodNotAllowed", message);
        refusal.details = json!({});
        refusal
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A refusal by validation: the causes in one sentence, and each by itself in the details.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let mut list: Vec<String> = Vec::new();
        for sentence in causes.iter().map(Cause::sentence) {
            if !list.contains(&sentence) {
                list.push(sentence);
            }
        }
        let sentence = match list.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut refusal =
            Self::new(422, "Invalid", format!("{} {name:?} is invalid: {sentence}", kind.group_kind()));
        let causes: Vec<Value> = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        refusal.details = json!({"name": name, "kind": kind.kind, "causes": causes});
        if !kind.group.is_empty() {
            refusal.details["group"] = kind.group.clone().into();
        }
        refusal
    }

    /// A patch that cannot be applied, as the real server words it: the kind is not named.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        let mut refusal = Self::new(422, "Invalid", message);
        refusal.details = json!({});
        refusal
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}
