//! The two hashes: the pod template hash, of what should run on a node, and the rollout hash, of every input whose
//! change starts a rollout. Each contains the version of its algorithm, and a recorded hash is compared under its own
//! version.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::canonical::{Root, canonical, to_bytes};
use super::template;
use crate::api::PodTemplateHash;

pub use super::hex::hex;

/// The algorithm that made a hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HashVersion {
    /// SHA-256 over the canonical form in [`canonical`](super::canonical).
    V1,
    /// A hypothetical next version, for tests of how a new algorithm affects recorded hashes.
    #[cfg(any(test, feature = "test-fixtures"))]
    V2,
}

#[cfg(any(test, feature = "test-fixtures"))]
thread_local! {
    static HAS_SECOND: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Determines whether this thread acts as a version of Windlass that has a second algorithm.
#[cfg(any(test, feature = "test-fixtures"))]
pub fn have_second_version(has: bool) {
    HAS_SECOND.set(has);
}

/// Runs a closure as a version of Windlass that has a second algorithm.
#[cfg(any(test, feature = "test-fixtures"))]
pub fn with_second_version<T>(act: impl FnOnce() -> T) -> T {
    have_second_version(true);
    let done = act();
    have_second_version(false);
    done
}

impl HashVersion {
    /// All algorithms of which hashes may be recorded, the oldest first.
    #[must_use]
    pub fn known() -> &'static [Self] {
        #[cfg(any(test, feature = "test-fixtures"))]
        if HAS_SECOND.get() {
            return &[Self::V1, Self::V2];
        }
        &[Self::V1]
    }

    /// The algorithm of new hashes.
    #[must_use]
    pub fn newest() -> Self {
        Self::known().last().copied().unwrap_or(Self::V1)
    }

    /// The prefix of its hashes.
    fn prefix(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            #[cfg(any(test, feature = "test-fixtures"))]
            Self::V2 => "v2",
        }
    }

    /// Hashes a canonical form. `what` keeps the two kinds of hash apart, whatever is hashed.
    pub(super) fn hash(self, what: &str, canonical: &Value) -> String {
        let prefix = self.prefix();
        let mut hasher = Sha256::new();
        hasher.update(format!("windlass.dev/{prefix}/{what}\n"));
        hasher.update(to_bytes(canonical));
        format!("{prefix}:{}", hex(&hasher.finalize()))
    }
}

/// The hash of a rendered pod template: of what should run on a node. Windlass's own labels are not part of it, so it
/// is the same before and after a node's identity is added.
#[must_use]
pub fn pod_template_hash(rendered: &Value) -> PodTemplateHash {
    pod_template_hash_under(HashVersion::newest(), rendered)
}

/// [`pod_template_hash`] under this algorithm.
#[must_use]
pub fn pod_template_hash_under(version: HashVersion, rendered: &Value) -> PodTemplateHash {
    let mut template = rendered.clone();
    template::remove_own_keys(&mut template);
    PodTemplateHash::computed(version.hash("pod-template", &canonical(&template, Root::PodTemplate)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template() -> Value {
        json!({"spec": {"containers": [{"name": "db", "image": "db:1"}]}})
    }

    #[test]
    fn the_two_kinds_of_hash_differ_over_the_same_content_and_so_do_two_algorithms() {
        let hash = |what| HashVersion::V1.hash(what, &template());
        assert_ne!(hash("pod-template"), hash("rollout"));
        let [old, new] = [HashVersion::V1, HashVersion::V2].map(|v| pod_template_hash_under(v, &template()));
        assert_ne!(old.as_str()[3..], new.as_str()[3..]);
    }

    #[test]
    fn a_hash_reads_as_its_version_and_64_lower_case_digits() {
        let hash = pod_template_hash(&template());
        assert_eq!(hash.as_str().len(), 67);
        assert_eq!(hex(&[0x00, 0x9f, 0xa0, 0xff]), "009fa0ff");
    }
}
