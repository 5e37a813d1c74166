//! What a ControllerRevision holds, what it is called, and which ones may go.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::canonical::{Root, canonical};
use super::drift::{Difference, diff_canonical};
use super::hash::{HashVersion, hex, rollout_hash_under, rollout_inputs};
use crate::api::{Sidecar, StatefulNodeSpec};

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
    pub pod_template: Value,
    /// The volume claim templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<Value>,
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
            // These apply at once (BEHAVIOUR §6).
            volume_claim_retention: _,
            ports: _,
            service_annotations: _,
            progress_deadline_seconds: _,
            // These are said to one node, not to a template.
            suspend: _,
            granted_hash: _,
            grant_id: _,
        } = spec;
        Self {
            image: image.clone(),
            main_container: main_container.clone(),
            pod_template: pod_template.clone(),
            volume_claim_templates: volume_claim_templates.clone(),
            sidecar: sidecar.as_ref().map(|sidecar| {
                let Sidecar { image, port, resources, url: _, token_secret: _ } = sidecar;
                RevisionSidecar { image: image.clone(), port: *port, resources: resources.clone() }
            }),
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
        } = at_once.clone();
        let (url, token_secret) = live_sidecar
            .map(|Sidecar { image: _, port: _, resources: _, url, token_secret }| (url, token_secret))
            .unwrap_or_default();
        StatefulNodeSpec {
            image,
            main_container,
            pod_template,
            volume_claim_templates,
            volume_claim_retention,
            ports,
            service_annotations,
            sidecar: sidecar.map(|RevisionSidecar { image, port, resources }| Sidecar {
                image,
                port,
                resources,
                url,
                token_secret,
            }),
            progress_deadline_seconds,
            suspend: false,
            granted_hash: String::new(),
            grant_id: String::new(),
        }
    }

    /// The rollout hash of this revision under a fleet's `unsafeCustomBuildID` (empty where it is not set).
    #[must_use]
    pub fn rollout_hash(&self, build_id: &str) -> String {
        rollout_hash_under(HashVersion::CURRENT, self, build_id)
    }

    /// What a rollout from this revision to another changes. Empty exactly when their rollout hashes are
    /// equal under one build ID.
    #[must_use]
    pub fn diff(&self, to: &Self) -> Vec<Difference> {
        let form = |data| canonical(&rollout_inputs(data, ""), Root::RolloutInputs);
        diff_canonical(&form(self), &form(to))
    }

    /// What a ControllerRevision stores in `data`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        // Strings, integers and JSON values: there is nothing in it that could fail to serialize.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// What a ControllerRevision stores in `data`, or a sentence that says why it cannot be read.
    pub fn from_value(data: &Value) -> Result<Self, String> {
        Self::deserialize(data).map_err(|error| {
            format!("the revision's data cannot be read: {error}; it was edited, or written by another version of Windlass")
        })
    }
}

/// The name of the ControllerRevision for this rollout hash of this fleet. The fleet's UID keeps it from
/// meeting one that a deleted fleet of the same name has left.
#[must_use]
pub fn revision_name(deployment: &str, uid: &str, rollout_hash: &str) -> String {
    let digest = hex(&Sha256::digest(format!("{uid}{rollout_hash}")));
    format!("{deployment}-{}", &digest[..10])
}

/// A ControllerRevision that exists, as far as pruning cares.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredRevision {
    /// Its name.
    pub name: String,
    /// Its `revision`: the higher, the newer.
    pub revision: i64,
}

/// The names of the revisions to delete, oldest first: of those that nothing refers to, all but the newest
/// `limit`. A negative limit counts as 0.
#[must_use]
pub fn to_prune(revisions: &[StoredRevision], referenced: &BTreeSet<String>, limit: i32) -> Vec<String> {
    let mut spare: Vec<&StoredRevision> =
        revisions.iter().filter(|r| !referenced.contains(&r.name)).collect();
    spare.sort_by(|a, b| (a.revision, &a.name).cmp(&(b.revision, &b.name)));
    let surplus = spare.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    spare[..surplus].iter().map(|r| r.name.clone()).collect()
}
