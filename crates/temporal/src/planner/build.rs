//! The target of a spec: its build ID, its hashes, and the names derived from them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use windlass_core::planner::fleet::status::generated_build_id;
use windlass_core::revision::hash::hex;
use windlass_core::revision::pod_template_hash;

use crate::api::WorkerDeploymentSpec;
use crate::port::BuildId;

/// The longest name of a version's Deployment, in characters: names of its ReplicaSets and pods are 17 longer.
const MAX_NAME: usize = 46;
/// The longest build ID, in characters: it has to fit in a label's value.
const MAX_BUILD_ID: usize = 63;

/// The target version of a spec.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// The version.
    pub build: BuildId,
    /// The hash of its template.
    pub template_hash: String,
    /// The rollout hash: of the template, and of the build ID if the spec sets one.
    pub hash: String,
}

impl Target {
    /// The target of a spec.
    #[must_use]
    pub fn of(spec: &WorkerDeploymentSpec) -> Self {
        let template_hash = template_hash(spec);
        if let Some(id) = &spec.unsafe_custom_build_id {
            let digest = Sha256::digest(format!("windlass.dev/v1/workers\n{id}\n{template_hash}"));
            let hash = format!("v1:{}", hex(&digest));
            Self { build: BuildId::new(id.clone()), template_hash, hash }
        } else {
            let build = generated(&spec.template, &template_hash);
            Self { build, hash: template_hash.clone(), template_hash }
        }
    }
}

/// The hash of all pools: that of the template, if there is no other pool.
fn template_hash(spec: &WorkerDeploymentSpec) -> String {
    let first = String::from(pod_template_hash(&spec.template));
    if spec.pools.is_empty() {
        return first;
    }
    let others: BTreeMap<&str, String> = spec
        .pools
        .iter()
        .map(|pool| (&*pool.name, String::from(pod_template_hash(&pool.template))))
        .collect();
    let digest = Sha256::digest(format!("windlass.dev/v1/pools\n{}", json!([first, others])));
    format!("v1:{}", hex(&digest))
}

/// The build ID of a template for which the spec sets none: its first image's tag and the first digits of its hash.
fn generated(template: &Value, hash: &str) -> BuildId {
    let image = template.pointer("/spec/containers/0/image").and_then(Value::as_str).unwrap_or_default();
    let text = generated_build_id(image, hash);
    // A tag may begin with an underscore; a label's value may not.
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    BuildId::new(text.chars().take(MAX_BUILD_ID).collect::<String>())
}

/// The candidate names of a version's Deployment, in order of preference: `<name>-<build ID>`, unless it is too long
/// or not a valid name, then one that ends in a hash.
#[must_use]
pub fn deployment_names(name: &str, build: &BuildId) -> Vec<String> {
    let plain = format!("{name}-{build}");
    let hashed = {
        let digest = hex(&Sha256::digest(build.as_str())[..4]);
        let readable: String = build.as_str().to_ascii_lowercase().chars().filter(|c| *c != '_').collect();
        let room = MAX_NAME.saturating_sub(name.len() + digest.len() + 2);
        let readable: String = readable.chars().take(room).collect();
        let readable = readable.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if readable.is_empty() || !is_name(readable) {
            format!("{name}-{digest}")
        } else {
            format!("{name}-{readable}-{digest}")
        }
    };
    if plain.len() <= MAX_NAME && is_name(&plain) { vec![plain, hashed] } else { vec![hashed] }
}

/// True if `text` is a valid DNS subdomain, which a Deployment's name has to be.
fn is_name(text: &str) -> bool {
    text.split('.').all(|label| {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(is_inner)
    })
}

/// The name of the ControllerRevision that keeps a template.
#[must_use]
pub fn revision_name(name: &str, hash: &str) -> String {
    let digits = hash.split_once(':').map_or(hash, |(_, digits)| digits);
    format!("{name}-{}", digits.get(..10).unwrap_or(digits))
}
