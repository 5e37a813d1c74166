//! The two hashes: of what should run on a node, and of everything whose change is a new target. Each
//! carries the version of the algorithm that made it, and a recorded one is compared under its own.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::canonical::{Root, canonical, to_bytes};
use super::revisions::{RevisionData, RevisionSidecar};
use super::template;
use crate::api::StatefulNodeSpec;

/// The algorithm that made a hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HashVersion {
    /// SHA-256 over the canonical form in [`canonical`](super::canonical).
    V1,
}

impl HashVersion {
    /// The algorithm of new hashes.
    pub const CURRENT: Self = Self::V1;

    /// The algorithm that made this hash; `None` where this version of Windlass does not know it.
    #[must_use]
    pub fn of(hash: &str) -> Option<Self> {
        let digest = hash.strip_prefix("v1:")?;
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (digest.len() == 64 && digest.bytes().all(is_hex)).then_some(Self::V1)
    }
}

/// The hash of what should run on a node: of a rendered pod template. Labels of Windlass's own are not
/// part of it, so it is the same before and after a node's identity is added.
#[must_use]
pub fn pod_template_hash(rendered: &Value) -> String {
    pod_template_hash_under(HashVersion::CURRENT, rendered)
}

/// [`pod_template_hash`] under this algorithm.
#[must_use]
pub fn pod_template_hash_under(version: HashVersion, rendered: &Value) -> String {
    match version {
        HashVersion::V1 => {
            let mut template = rendered.clone();
            template::remove_own_keys(&mut template);
            v1("pod-template", &canonical(&template, Root::PodTemplate))
        }
    }
}

/// The hash of everything whose change is a new target. `build_id` is the fleet's `unsafeCustomBuildID`,
/// empty where it is not set.
#[must_use]
pub fn rollout_hash(spec: &StatefulNodeSpec, build_id: &str) -> String {
    RevisionData::of(spec).rollout_hash(build_id)
}

/// [`rollout_hash`] under this algorithm.
#[must_use]
pub fn rollout_hash_under(version: HashVersion, data: &RevisionData, build_id: &str) -> String {
    match version {
        HashVersion::V1 => v1("rollout", &canonical(&rollout_inputs(data, build_id), Root::RolloutInputs)),
    }
}

/// Whether a recorded hash is that of what `hash_under` hashes, under the algorithm that recorded it.
/// `None` where that cannot be told: nothing is recorded, or by an algorithm that this version does not
/// know. Then what runs has to be looked at.
pub fn same_under_recorded(recorded: &str, hash_under: impl FnOnce(HashVersion) -> String) -> Option<bool> {
    HashVersion::of(recorded).map(|version| hash_under(version) == recorded)
}

/// [`same_under_recorded`] for a pod template hash.
#[must_use]
pub fn same_pod_template(recorded: &str, rendered: &Value) -> Option<bool> {
    same_under_recorded(recorded, |version| pod_template_hash_under(version, rendered))
}

/// [`same_under_recorded`] for a rollout hash.
#[must_use]
pub fn same_rollout(recorded: &str, spec: &StatefulNodeSpec, build_id: &str) -> Option<bool> {
    same_under_recorded(recorded, |version| rollout_hash_under(version, &RevisionData::of(spec), build_id))
}

/// The named inputs of a rollout hash, in one form for what can be written in two: an image override is
/// where it goes, the main container has its name.
pub(super) fn rollout_inputs(data: &RevisionData, build_id: &str) -> Value {
    let RevisionData { image, main_container, pod_template, volume_claim_templates, sidecar } = data;
    let mut inputs = Map::new();
    let mut template = Value::clone(pod_template);
    template::remove_own_keys(&mut template);
    let main = template::main_container(main_container, pod_template).unwrap_or_default();
    if !image.is_empty() && !template::set_image(&mut template, main, image) {
        // Such a spec cannot be rendered; its hash still has to tell it from others.
        inputs.insert("image".to_owned(), image.as_str().into());
    }
    inputs.insert("mainContainer".to_owned(), main.into());
    inputs.insert("podTemplate".to_owned(), template);
    inputs.insert("volumeClaimTemplates".to_owned(), Vec::clone(volume_claim_templates).into());
    if let Some(RevisionSidecar { image, port, resources, args, env, volume_mounts }) = sidecar {
        // What is empty is absent in the canonical form: who sets none of these hashes as before there were any.
        let sidecar = serde_json::json!({
            "image": image, "port": port, "resources": resources, "args": args, "env": env, "volumeMounts": volume_mounts,
        });
        inputs.insert("sidecar".to_owned(), sidecar);
    }
    inputs.insert("unsafeCustomBuildID".to_owned(), build_id.into());
    Value::Object(inputs)
}

/// `what` keeps the two kinds of hash apart, whatever is hashed.
fn v1(what: &str, canonical: &Value) -> String {
    let mut hasher = Sha256::new();
    hasher.update(format!("windlass.dev/v1/{what}\n"));
    hasher.update(to_bytes(canonical));
    format!("v1:{}", hex(&hasher.finalize()))
}

/// Bytes as lower-case hex digits, two each.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template() -> Value {
        json!({"spec": {"containers": [{"name": "db", "image": "db:1"}]}})
    }

    #[test]
    fn the_two_kinds_of_hash_differ_over_the_same_content() {
        assert_ne!(v1("pod-template", &template()), v1("rollout", &template()));
    }

    #[test]
    fn a_hash_says_which_algorithm_made_it() {
        let hash = pod_template_hash(&template());
        assert_eq!(HashVersion::of(&hash), Some(HashVersion::V1));
        for other in
            ["", "v1:", "v2:", &hash[3..], &hash[..66], &hash.to_uppercase(), &hash.replace("v1", "v2")]
        {
            assert_eq!(HashVersion::of(other), None, "{other}");
        }
        assert_eq!(HashVersion::of(&format!("{hash}0")), None);
        assert_eq!(HashVersion::of(&format!("v1:{}", "g".repeat(64))), None);
    }

    #[test]
    fn a_recorded_hash_is_compared_under_its_own_algorithm_or_not_at_all() {
        let spec = StatefulNodeSpec { pod_template: template().into(), ..StatefulNodeSpec::default() };
        let recorded = pod_template_hash(&template());
        assert_eq!(same_pod_template(&recorded, &template()), Some(true));
        assert_eq!(same_pod_template(&recorded, &json!({})), Some(false));
        assert_eq!(same_pod_template("", &template()), None);
        assert_eq!(same_pod_template("v9:abc", &template()), None);
        assert_eq!(same_rollout(&rollout_hash(&spec, "id"), &spec, "id"), Some(true));
        assert_eq!(same_rollout(&rollout_hash(&spec, "id"), &spec, ""), Some(false));
        assert_eq!(same_rollout(&recorded, &spec, ""), Some(false));
        assert_eq!(same_rollout("v9:abc", &spec, ""), None);
    }

    #[test]
    fn a_hash_reads_as_its_version_and_64_lower_case_digits() {
        let hash = pod_template_hash(&template());
        assert_eq!(hash.len(), 67);
        assert_eq!(hex(&[0x00, 0x9f, 0xa0, 0xff]), "009fa0ff");
    }
}
