//! What is wanted: the build ID and the hashes of a spec, and the names that follow from them.

use serde_json::Value;
use sha2::{Digest, Sha256};
use windlass_core::planner::fleet::status::generated_build_id;
use windlass_core::revision::hash::hex;
use windlass_core::revision::pod_template_hash;

use crate::api::WorkerDeploymentSpec;
use crate::port::BuildId;

/// The longest name of a version's Deployment: its ReplicaSets' and pods' names are longer by 17.
const MAX_NAME: usize = 46;
/// The longest build ID: it is a label's value.
const MAX_BUILD_ID: usize = 63;

/// What is wanted of a WorkerDeployment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// The version.
    pub build: BuildId,
    /// The hash of its template.
    pub template_hash: String,
    /// The hash of everything whose change is a new target: the template, and the build ID where it was given by hand.
    pub hash: String,
}

impl Target {
    /// What a spec wants.
    #[must_use]
    pub fn of(spec: &WorkerDeploymentSpec) -> Self {
        let template_hash = String::from(pod_template_hash(&spec.template));
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

/// The build ID of a template that was given none: its first image's tag and the first digits of its hash.
fn generated(template: &Value, hash: &str) -> BuildId {
    let image = template.pointer("/spec/containers/0/image").and_then(Value::as_str).unwrap_or_default();
    let text = generated_build_id(image, hash);
    // A tag may begin with an underscore, a label's value may not.
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    BuildId::new(text.chars().take(MAX_BUILD_ID).collect::<String>())
}

/// The names that the Deployment of a version may have, the first that is free counts: `<name>-<build ID>`, unless that is too
/// long or none that Kubernetes takes, and one with a hash.
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

/// Whether it is a DNS subdomain's name, as Kubernetes wants a Deployment's.
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
