//! The two hashes: the pod template hash, of what should run on a node, and the rollout hash, of every input whose
//! change starts a rollout. Each contains the version of its algorithm.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::canonical::{Root, canonical, to_bytes};
use super::template;
use crate::api::{PodTemplateHash, RolloutHash};

pub use super::hex::hex;

/// The algorithm: SHA-256 over the canonical form in [`canonical`](super::canonical).
const VERSION: &str = "v1";

/// Hashes a canonical form. `what` keeps the two kinds of hash apart, whatever is hashed.
pub(super) fn hash(what: &str, canonical: &Value) -> String {
    let mut hasher = Sha256::new();
    hasher.update(format!("windlass.dev/{VERSION}/{what}\n"));
    hasher.update(to_bytes(canonical));
    format!("{VERSION}:{}", hex(&hasher.finalize()))
}

/// The hash of a rendered pod template: of what should run on a node. Windlass's own labels are not part of it, so it
/// is the same before and after a node's identity is added.
#[must_use]
pub fn pod_template_hash(rendered: &Value) -> PodTemplateHash {
    let mut template = rendered.clone();
    template::remove_own_keys(&mut template);
    PodTemplateHash::computed(hash("pod-template", &canonical(&template, Root::PodTemplate)))
}

/// The rollout hash of a set of named revisions, in any order.
#[must_use]
pub fn revisions_hash<'a>(revisions: impl IntoIterator<Item = (&'a str, &'a str)>) -> RolloutHash {
    let all: BTreeMap<&str, &str> = revisions.into_iter().collect();
    RolloutHash::computed(hash("revisions", &json!(all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Value {
        json!({"spec": {"containers": [{"name": "db", "image": "db:1"}]}})
    }

    #[test]
    fn hash_kinds_differ_for_the_same_content() {
        assert_ne!(hash("pod-template", &template()), hash("rollout", &template()));
    }

    #[test]
    fn hash_has_a_version_prefix_and_64_lowercase_hex_digits() {
        let hash = pod_template_hash(&template());
        assert_eq!(hash.as_str().len(), 67);
        assert_eq!(hex(&[0x00, 0x9f, 0xa0, 0xff]), "009fa0ff");
    }
}
