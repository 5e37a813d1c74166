//! Reads a gate's input from a ConfigMap or Secret. The value goes only to Temporal: no message contains it, nor an error of
//! the parser, which may quote it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::Value;
use windlass_kube_port::{Cluster, ClusterError, Kind};

use crate::api::{InputFrom, KeyRef};

/// Why there is no input, in a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum InputError {
    /// A person has to change the object, the reference or the operator's rights.
    Invalid(String),
    /// The API server did not return the object; a later read may succeed.
    Unread(String),
}

/// The input, now: a JSON object.
pub async fn read(cluster: &dyn Cluster, namespace: &str, from: &InputFrom) -> Result<Value, InputError> {
    let (kind, KeyRef { name, key }) = match from {
        InputFrom::ConfigMapKeyRef(from) => (Kind::ConfigMap, from),
        InputFrom::SecretKeyRef(from) => (Kind::Secret, from),
    };
    let source = format!("spec.rollout.gate.inputFrom: {} {namespace}/{name}", kind.name());
    let invalid = |rest: String| InputError::Invalid(format!("{source} {rest}"));
    let object = match cluster.get(kind, namespace, name).await {
        Ok(Some(object)) => object,
        Ok(None) => return Err(invalid(format!("does not exist: create it with the key {key}"))),
        Err(ClusterError::Forbidden { .. }) => {
            let resource = if kind == Kind::Secret { "secrets" } else { "configmaps" };
            return Err(invalid(format!(
                "may not be read by the operator: grant its role the verb get on {resource}, as in deploy/temporal"
            )));
        }
        Err(error) => return Err(InputError::Unread(format!("{source} cannot be read: {error}"))),
    };
    let value = value_of(kind, &object["data"], key);
    let Some(value) = value else { return Err(invalid(format!("has no key {key}: add it"))) };
    let parsed = serde_json::from_slice(&value).ok().filter(Value::is_object);
    parsed.ok_or_else(|| {
        invalid(format!("has a key {key} that is not a JSON object: write one, such as {{\"order\": 7}}"))
    })
}

/// The bytes of a key.
fn value_of(kind: Kind, data: &Value, key: &str) -> Option<Vec<u8>> {
    if kind == Kind::Secret {
        let data: BTreeMap<String, ByteString> = serde_json::from_value(data.clone()).ok()?;
        return data.into_iter().find(|(name, _)| name == key).map(|(_, value)| value.0);
    }
    Some(data[key].as_str()?.as_bytes().to_vec())
}
