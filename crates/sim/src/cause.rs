//! The validation errors of a field, in the words of the real server.

use serde_json::Value;

/// A field that failed validation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::invalid_as(field, &shown(value), why)
    }

    /// An invalid value with the text that the server has for it: it shows structures as its internal types.
    pub(crate) fn invalid_as(field: impl Into<String>, shown: &str, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {shown}: {why}"))
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

    /// The cause of a changed immutable field, if it changed.
    pub(crate) fn unchanged(field: &str, old: &Value, new: &Value) -> Option<Self> {
        (old != new).then(|| Self::invalid(field, new, "field is immutable"))
    }

    /// The same cause with the field below `parent`.
    pub(crate) fn below(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }

    /// True if the server does not evaluate CEL rules with such a cause.
    pub(crate) fn blocks_rules(&self) -> bool {
        !matches!(self.reason, "FieldValueInvalid" | "FieldValueDuplicate" | "FieldValueForbidden")
    }

    /// The cause that the server adds if it skipped the rules.
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

    pub(crate) fn sentence(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

/// Formats a value as Go's field errors do.
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
