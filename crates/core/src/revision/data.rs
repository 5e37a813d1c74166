//! What of a spec belongs to a revision, as a ControllerRevision holds it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::stateful_node::no_claims;
use crate::api::{Shared, Sidecar, StatefulNodeSpec};

/// The part of a node's spec whose change is a new target, as it was written.
///
/// A field that this version does not know is an error and not ignored: a node would otherwise be rolled
/// back to something that never ran.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevisionData {
    /// The main container's image; wins over the one in `pod_template`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The name of the main container; empty for the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub main_container: String,
    /// The pod template.
    pub pod_template: Shared<Value>,
    /// The volume claim templates.
    #[serde(default, skip_serializing_if = "no_claims")]
    pub volume_claim_templates: Shared<Vec<Value>>,
    /// The sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<RevisionSidecar>,
}

/// The part of a sidecar that is in the pod.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevisionSidecar {
    /// Its image.
    pub image: String,
    /// Its port. Always stored: what ran must not move with a default of ours.
    pub port: i32,
    /// Its resources.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub resources: Value,
    /// Its arguments. What an older version stored has none, nor the two that follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Value>,
    /// Its volume mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<Value>,
}

impl RevisionSidecar {
    /// What of this sidecar is in the pod; `None` where it is no container of it.
    #[must_use]
    pub fn of(sidecar: &Sidecar) -> Option<Self> {
        let Sidecar { image, port, resources, args, env, volume_mounts, url: _, token_secret: _ } = sidecar;
        sidecar.is_injected().then(|| Self {
            image: image.clone(),
            port: *port,
            resources: resources.clone(),
            args: args.clone(),
            env: env.clone(),
            volume_mounts: volume_mounts.clone(),
        })
    }

    /// The sidecar of a node at this revision: how it is reached applies at once, and `live` (the fleet's template)
    /// says it.
    fn reached_as(self, live: Option<&Sidecar>) -> Sidecar {
        let Self { image, port, resources, args, env, volume_mounts } = self;
        let (url, token_secret) =
            live.map(|live| (live.url.clone(), live.token_secret.clone())).unwrap_or_default();
        Sidecar { image, port, resources, args, env, volume_mounts, url, token_secret }
    }
}

impl RevisionData {
    /// What of this spec belongs to a revision.
    #[must_use]
    pub fn of(spec: &StatefulNodeSpec) -> Self {
        let StatefulNodeSpec {
            image,
            main_container,
            pod_template,
            volume_claim_templates,
            sidecar,
            // These apply at once: no pod is touched for them.
            volume_claim_retention: _,
            ports: _,
            service_annotations: _,
            progress_deadline_seconds: _,
            // These are said to one node, not to a template.
            suspend: _,
            granted_hash: _,
            grant_id: _,
            halt_height: _,
            halt_task_id: _,
            watch_sidecar: _,
            removal_id: _,
        } = spec;
        Self {
            image: image.clone(),
            main_container: main_container.clone(),
            pod_template: pod_template.clone(),
            volume_claim_templates: volume_claim_templates.clone(),
            sidecar: sidecar.as_ref().and_then(RevisionSidecar::of),
        }
    }

    /// The spec of a node at this revision: the revision, plus what applies at once, which `at_once` (the
    /// fleet's live template) says. What is said to one node (`suspend`, `grantedHash`, `grantID`) is empty.
    #[must_use]
    pub fn apply_to(&self, at_once: &StatefulNodeSpec) -> StatefulNodeSpec {
        let Self { image, main_container, pod_template, volume_claim_templates, sidecar } = self.clone();
        let StatefulNodeSpec {
            image: _,
            main_container: _,
            pod_template: _,
            volume_claim_templates: _,
            volume_claim_retention,
            ports,
            service_annotations,
            sidecar: live_sidecar,
            progress_deadline_seconds,
            suspend: _,
            granted_hash: _,
            grant_id: _,
            halt_height: _,
            halt_task_id: _,
            watch_sidecar: _,
            removal_id: _,
        } = at_once.clone();
        let sidecar = match sidecar {
            Some(of_revision) => Some(of_revision.reached_as(live_sidecar.as_ref())),
            // One that is no container of the pod belongs to no revision, and applies at once.
            None => live_sidecar.filter(|live| !live.is_injected()),
        };
        StatefulNodeSpec {
            image,
            main_container,
            pod_template,
            volume_claim_templates,
            volume_claim_retention,
            ports,
            service_annotations,
            sidecar,
            progress_deadline_seconds,
            suspend: false,
            granted_hash: String::new(),
            grant_id: String::new(),
            halt_height: 0,
            halt_task_id: String::new(),
            watch_sidecar: false,
            removal_id: String::new(),
        }
    }

    /// What a ControllerRevision stores in `data`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        // Strings, integers and JSON values: there is nothing in it that could fail to serialize.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// What a ControllerRevision stores in `data`, or a sentence that says why it cannot be read.
    pub fn from_value(data: &Value) -> Result<Self, String> {
        let read = Self::deserialize(data).map_err(|error| error.to_string()).and_then(|read| {
            if read.pod_template.is_object() {
                Ok(read)
            } else {
                Err("podTemplate is not an object".to_owned())
            }
        });
        read.map_err(|error| {
            format!(
                "the revision cannot be read: {error}; it was edited, or written by another version of Windlass"
            )
        })
    }
}
