//! The part of a spec that belongs to a revision, as a ControllerRevision stores it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claims::at_revision;
use crate::api::stateful_node::no_claims;
use crate::api::{Shared, Sidecar, StatefulNodeSpec};

/// The part of a node's spec whose change starts a rollout, as it was written.
///
/// A field that this version does not know is an error: if it were ignored, a node would be rolled back to something
/// that never ran.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevisionData {
    /// The main container's image; overrides the one in `pod_template`.
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
    /// Its port. Always stored, so that a change of Windlass's default does not change it.
    pub port: i32,
    /// Its resources.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub resources: Value,
    /// Its arguments. A revision that an older version stored has none, and neither of the two fields that follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Value>,
    /// Its volume mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<Value>,
    /// Its security context, if a user set one. A revision that an older version stored has none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub security_context: Value,
}

impl RevisionSidecar {
    /// The part of this sidecar that is in the pod; `None` if it is not a container of the pod.
    #[must_use]
    pub fn of(sidecar: &Sidecar) -> Option<Self> {
        let Sidecar {
            image,
            port,
            resources,
            args,
            env,
            volume_mounts,
            security_context,
            // These apply at once: they say how the sidecar is reached.
            url: _,
            token_secret: _,
            tls: _,
            auth: _,
        } = sidecar;
        sidecar.is_injected().then(|| Self {
            image: image.clone(),
            port: *port,
            resources: resources.clone(),
            args: args.clone(),
            env: env.clone(),
            volume_mounts: volume_mounts.clone(),
            security_context: security_context.clone(),
        })
    }

    /// The sidecar of a node at this revision. How it is reached applies at once, and is taken from `live` (the fleet's
    /// template).
    fn reached_as(self, live: Option<&Sidecar>) -> Sidecar {
        let Self { image, port, resources, args, env, volume_mounts, security_context } = self;
        let Sidecar { url, token_secret, tls, auth, .. } = live.cloned().unwrap_or_default();
        Sidecar {
            image,
            port,
            resources,
            args,
            env,
            volume_mounts,
            security_context,
            url,
            token_secret,
            tls,
            auth,
        }
    }
}

impl RevisionData {
    /// The part of this spec that belongs to a revision.
    #[must_use]
    pub fn of(spec: &StatefulNodeSpec) -> Self {
        let StatefulNodeSpec {
            image,
            main_container,
            pod_template,
            volume_claim_templates,
            sidecar,
            // These apply at once, without replacing a pod.
            volume_claim_retention: _,
            ports: _,
            service_annotations: _,
            progress_deadline_seconds: _,
            // These are set on one node, not in a template.
            suspend: _,
            granted_hash: _,
            grant_id: _,
            halt_height: _,
            halt_task_id: _,
            watch_sidecar: _,
            removal_id: _,
            move_: _,
            claim_sizes: _,
        } = spec;
        Self {
            image: image.clone(),
            main_container: main_container.clone(),
            pod_template: pod_template.clone(),
            volume_claim_templates: volume_claim_templates.clone(),
            sidecar: sidecar.as_ref().and_then(RevisionSidecar::of),
        }
    }

    /// The same with the sizes of these claims, where its own are larger: a volume may grow, and its size belongs to no
    /// revision.
    #[must_use]
    pub fn with_sizes_of(mut self, claims: &[Value]) -> Self {
        let sizes = at_revision(&self.volume_claim_templates, claims);
        if sizes != *self.volume_claim_templates {
            self.volume_claim_templates = sizes.into();
        }
        self
    }

    /// The spec of a node at this revision: the revision, plus the fields that apply at once, from `at_once` (the
    /// fleet's live template). The fields that are set on one node (`suspend`, `grantedHash`, `grantID` and so on) are
    /// empty.
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
            move_: _,
            claim_sizes: _,
        } = at_once.clone();
        let sidecar = match sidecar {
            Some(of_revision) => Some(of_revision.reached_as(live_sidecar.as_ref())),
            // A sidecar that is not a container of the pod belongs to no revision, and applies at once.
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
            move_: None,
            claim_sizes: BTreeMap::new(),
        }
    }

    /// What a ControllerRevision stores in `data`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        // Strings, integers and JSON values: nothing in it can fail to serialize.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Reads what a ControllerRevision stores in `data`. The error is a sentence that says why it cannot be read.
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
