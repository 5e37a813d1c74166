//! Names, labels and finalizers.

use serde_json::Value;

use super::super::kinds::Kind;
use super::super::refusal::Cause;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const LABEL_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Validates the metadata.
pub(crate) fn validate_metadata(kind: &Kind, object: &Value) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    if let Some(prefix) = metadata["generateName"].as_str().filter(|prefix| !prefix.is_empty()) {
        // The generated suffix makes a final dash valid, but nothing else.
        let whole = prefix.strip_suffix('-').map_or(prefix.to_owned(), |start| format!("{start}a"));
        let why = name_error(kind, &whole);
        causes
            .extend(why.map(|why| Cause::invalid("metadata.generateName", &metadata["generateName"], &why)));
    }
    match metadata["name"].as_str().unwrap_or_default() {
        "" => causes.push(Cause::required("metadata.name", "name or generateName is required")),
        name => causes.extend(
            name_error(kind, name).map(|why| Cause::invalid("metadata.name", &metadata["name"], &why)),
        ),
    }
    causes.extend(labels(&metadata["labels"], "metadata.labels"));
    for (key, _) in metadata["annotations"].as_object().into_iter().flatten() {
        if let Some(why) = qualified_name_error(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &Value::from(key.as_str()), &why));
        }
    }
    let size: usize = metadata["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len())
        .sum();
    if size > 256 * 1024 {
        causes.push(Cause::too_long("metadata.annotations", 262_144));
    }
    for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
        let text = finalizer.as_str().unwrap_or_default();
        if let Some(why) = qualified_name_error(text) {
            causes.push(Cause::invalid("metadata.finalizers", finalizer, &why));
        }
    }
    causes
}

/// Validates labels.
pub(crate) fn labels(labels: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        if let Some(why) = qualified_name_error(key) {
            causes.push(Cause::invalid(field, &Value::from(key.as_str()), &why));
        }
        let text = value.as_str().unwrap_or_default();
        if text.len() > 63 {
            causes.push(Cause::invalid(field, value, "must be no more than 63 bytes"));
        } else if !text.is_empty() && !is_label_text(text) {
            causes.push(Cause::invalid(field, value, LABEL_VALUE));
        }
    }
    causes
}

fn name_error(kind: &Kind, name: &str) -> Option<String> {
    match kind.kind.as_str() {
        "StatefulSet" if !kind.is_custom() && name.contains('.') => Some("must not contain dots".into()),
        "Namespace" | "StatefulSet" | "Service" if !kind.is_custom() => dns_label_error(name),
        _ => subdomain_error(name),
    }
}

/// Why a name is not a DNS label.
pub(crate) fn dns_label_error(name: &str) -> Option<String> {
    if name.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    (!is_dns_label(name)).then(|| LABEL.into())
}

fn subdomain_error(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some("must be no more than 253 bytes".into());
    }
    (!name.split('.').all(is_dns_label)).then(|| SUBDOMAIN.into())
}

fn is_dns_label(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn is_label_text(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn qualified_name_error(key: &str) -> Option<String> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".into());
        }
        if let Some(why) = subdomain_error(prefix) {
            return Some(format!("prefix part {why}"));
        }
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".into());
    }
    (!is_label_text(name)).then(|| LABEL_NAME.into())
}
