//! The hash of every input whose change starts a rollout, and the differences between two revisions.

use serde_json::{Map, Value};

use super::canonical::{Root, canonical};
use super::data::{RevisionData, RevisionSidecar};
use super::drift::{Difference, diff_canonical};
use super::hash::hash;
use super::template;
use crate::api::{RolloutHash, StatefulNodeSpec};

/// The hash of every input whose change starts a rollout. `build_id` is the fleet's `unsafeCustomBuildID`, empty if it
/// is not set.
#[must_use]
pub fn rollout_hash(spec: &StatefulNodeSpec, build_id: &str) -> RolloutHash {
    RevisionData::of(spec).rollout_hash(build_id)
}

/// How many digits of a hash a pod's label has.
const LABEL_DIGITS: usize = 10;

/// The value of a pod's label `windlass.dev/revision`: it identifies everything of a node's spec that belongs to a
/// revision, and is the same for all nodes of one. It is part of no hash, and nothing is decided by it.
#[must_use]
pub fn revision_label(spec: &StatefulNodeSpec) -> String {
    let hash = RevisionData::of(spec).rollout_hash("");
    let digits = hash.as_str().rsplit(':').next().unwrap_or_default();
    digits.chars().take(LABEL_DIGITS).collect()
}

/// The named inputs of a rollout hash. What can be written in two ways has one form: an image override is applied to
/// its container, and the main container has its name.
fn rollout_inputs(data: &RevisionData, build_id: &str) -> Value {
    let RevisionData { image, main_container, pod_template, volume_claim_templates, sidecar } = data;
    let mut inputs = Map::new();
    let mut template = Value::clone(pod_template);
    template::remove_own_keys(&mut template);
    let main = template::main_container(main_container, pod_template).unwrap_or_default();
    if !image.is_empty() && !template::set_image(&mut template, main, image) {
        // Such a spec cannot be rendered, but its hash still has to differ from others.
        inputs.insert("image".to_owned(), image.as_str().into());
    }
    inputs.insert("mainContainer".to_owned(), main.into());
    inputs.insert("podTemplate".to_owned(), template);
    inputs.insert("volumeClaimTemplates".to_owned(), Vec::clone(volume_claim_templates).into());
    if let Some(RevisionSidecar { image, port, resources, args, env, volume_mounts, security_context }) =
        sidecar
    {
        // Empty values are absent in the canonical form: without these fields, a sidecar hashes as it did before they
        // existed.
        let sidecar = serde_json::json!({
            "image": image, "port": port, "resources": resources, "args": args, "env": env, "volumeMounts": volume_mounts,
            "securityContext": security_context,
        });
        inputs.insert("sidecar".to_owned(), sidecar);
    }
    inputs.insert("unsafeCustomBuildID".to_owned(), build_id.into());
    Value::Object(inputs)
}

impl RevisionData {
    /// The rollout hash of this revision under a fleet's `unsafeCustomBuildID` (empty if it is not set).
    #[must_use]
    pub fn rollout_hash(&self, build_id: &str) -> RolloutHash {
        let inputs = canonical(&rollout_inputs(self, build_id), Root::RolloutInputs);
        RolloutHash::computed(hash("rollout", &inputs))
    }

    /// The differences between this revision and another. Empty exactly when their rollout hashes are equal under one
    /// build ID.
    #[must_use]
    pub fn diff(&self, to: &Self) -> Vec<Difference> {
        let form = |data| canonical(&rollout_inputs(data, ""), Root::RolloutInputs);
        diff_canonical(&form(self), &form(to))
    }
}
