//! What a ControllerRevision holds, what it is called, and which ones may go.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::canonical::{Root, canonical};
use super::drift::{Difference, diff_canonical};
use super::hash::{HashVersion, hex, rollout_hash_under, rollout_inputs};
use super::hashes::Hashes;
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

    /// The rollout hash of this revision under a fleet's `unsafeCustomBuildID` (empty where it is not set).
    #[must_use]
    pub fn rollout_hash(&self, build_id: &str) -> String {
        rollout_hash_under(HashVersion::newest(), self, build_id)
    }

    /// The rollout hashes of this revision, under every algorithm that is known.
    #[must_use]
    pub fn rollout_hashes(&self, build_id: &str) -> Hashes {
        Hashes::of(|version| rollout_hash_under(version, self, build_id))
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

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn read<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn full() -> Value {
        json!({
            "image": "db:2", "mainContainer": "db",
            "podTemplate": {"spec": {"containers": [{"name": "db", "futureField": null}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "sidecar": {
                "image": "w:1", "port": 7778, "resources": {"limits": {"cpu": 1}},
                "args": ["--height-url", "http://127.0.0.1:80/"],
                "env": [{"name": "A", "futureField": null}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
        })
    }

    fn live() -> StatefulNodeSpec {
        read(json!({
            "image": "db:3", "mainContainer": "other",
            "podTemplate": {"spec": {"containers": []}},
            "volumeClaimTemplates": [],
            "volumeClaimRetention": "Delete",
            "ports": [{"port": 80}],
            "serviceAnnotations": {"a": "b"},
            "sidecar": {"image": "w:9", "port": 1, "args": ["x"], "url": "http://x", "tokenSecret": "t"},
            "progressDeadlineSeconds": 5,
            "suspend": true, "grantedHash": "v1:x", "grantID": "g",
        }))
    }

    #[test]
    fn a_revision_is_stored_and_read_as_it_was_written() {
        let data = RevisionData::from_value(&full()).unwrap();
        assert_eq!(data.to_value(), full());
        assert_eq!(RevisionData::of(&data.apply_to(&live())), data);
    }

    #[test]
    fn the_smallest_revision_stores_only_its_template() {
        let smallest = json!({"podTemplate": {"spec": {}}});
        assert_eq!(RevisionData::from_value(&smallest).unwrap().to_value(), smallest);
    }

    #[test]
    fn a_revision_that_cannot_be_read_says_why() {
        for (data, part) in [
            (json!(null), "invalid type"),
            (json!({}), "podTemplate"),
            (json!({"podTemplate": null}), "podTemplate is not an object"),
            (json!({"podTemplate": {}, "futureInput": 1}), "futureInput"),
            (
                json!({"podTemplate": {}, "sidecar": {"image": "w", "port": 1, "futureInput": 1}}),
                "futureInput",
            ),
            (json!({"podTemplate": {}, "sidecar": {"image": "w"}}), "port"),
        ] {
            let error = RevisionData::from_value(&data).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_nodes_spec_is_its_revision_plus_what_applies_at_once() {
        let spec = RevisionData::from_value(&full()).unwrap().apply_to(&live());
        let mut expected = full();
        expected["volumeClaimRetention"] = json!("Delete");
        expected["ports"] = json!([{"port": 80}]);
        expected["serviceAnnotations"] = json!({"a": "b"});
        expected["sidecar"]["url"] = json!("http://x");
        expected["sidecar"]["tokenSecret"] = json!("t");
        expected["progressDeadlineSeconds"] = json!(5);
        assert_eq!(spec, read(expected));
    }

    #[test]
    fn a_revision_decides_whether_there_is_a_sidecar() {
        let without = RevisionData::from_value(&json!({"podTemplate": {}})).unwrap();
        assert_eq!(without.apply_to(&live()).sidecar, None);
        let at_once = StatefulNodeSpec { sidecar: None, ..live() };
        let sidecar = RevisionData::from_value(&full()).unwrap().apply_to(&at_once).sidecar.unwrap();
        assert_eq!((sidecar.image.as_str(), sidecar.url.as_str()), ("w:1", ""));
    }

    #[test]
    fn what_an_older_version_stored_of_a_sidecar_is_read_and_stored_again_as_it_was() {
        let older = json!({"podTemplate": {}, "sidecar": {"image": "w:1", "port": 7777}});
        let data = RevisionData::from_value(&older).unwrap();
        assert_eq!(data.to_value(), older);
        let sidecar = data.apply_to(&live()).sidecar.unwrap();
        assert_eq!((sidecar.args.len(), sidecar.env.len(), sidecar.volume_mounts.len()), (0, 0, 0));
        let empty = read(json!({"podTemplate": {}, "sidecar": {
            "image": "w:1", "args": [], "env": [], "volumeMounts": []}}));
        assert_eq!(RevisionData::of(&empty), data);
    }

    #[test]
    fn a_sidecar_that_is_no_container_of_the_pod_is_in_no_revision_and_applies_at_once() {
        let by_url = json!({"url": "http://{name}:9", "port": 9, "tokenSecret": "t"});
        let at_once: StatefulNodeSpec = read(json!({"podTemplate": {}, "sidecar": by_url}));
        let without = RevisionData::from_value(&json!({"podTemplate": {}})).unwrap();
        assert_eq!(RevisionData::of(&at_once), without);
        assert_eq!(without.apply_to(&at_once).sidecar, at_once.sidecar);
        let injected = RevisionData::from_value(&full()).unwrap().apply_to(&at_once).sidecar.unwrap();
        assert_eq!((injected.image.as_str(), injected.url.as_str()), ("w:1", "http://{name}:9"));
    }

    #[test]
    fn two_revisions_differ_where_their_rollout_hashes_do() {
        let one = RevisionData::from_value(&full()).unwrap();
        let mut other = one.clone();
        other.image.clear();
        let mut template = Value::clone(&other.pod_template);
        template["spec"]["containers"][0]["image"] = json!("db:2");
        other.pod_template = template.into();
        assert_eq!(one.diff(&other), vec![]);
        other.volume_claim_templates =
            vec![json!({"metadata": {"name": "data"}, "spec": {"volumeName": "x"}})].into();
        let differences: Vec<String> = one.diff(&other).iter().map(|d| d.path.clone()).collect();
        assert_eq!(differences, ["volumeClaimTemplates[0].spec"]);
    }

    #[test]
    fn a_revisions_name_is_that_of_its_fleet_and_its_hash() {
        let name = revision_name("db", "uid", "v1:abc");
        assert_eq!(name, "db-021aa0bca2");
        assert_ne!(name, revision_name("db", "uid2", "v1:abc"));
        assert_ne!(name, revision_name("db", "uid", "v1:abd"));
    }

    fn stored(names: &[(&str, i64)]) -> Vec<StoredRevision> {
        names
            .iter()
            .map(|(name, revision)| StoredRevision { name: (*name).to_owned(), revision: *revision })
            .collect()
    }

    #[test]
    fn the_oldest_revisions_go_that_nothing_refers_to() {
        let all = stored(&[("d", 4), ("z", 1), ("c", 3), ("y", 2), ("b", 5)]);
        let referenced = BTreeSet::from(["z".to_owned(), "d".to_owned()]);
        assert_eq!(to_prune(&all, &referenced, 1), ["y", "c"]);
        assert_eq!(to_prune(&all, &referenced, 3), [""; 0]);
        assert_eq!(to_prune(&all, &referenced, 0), ["y", "c", "b"]);
        assert_eq!(to_prune(&all, &referenced, -1), ["y", "c", "b"]);
    }

    #[test]
    fn of_two_revisions_of_one_number_the_choice_is_always_the_same() {
        let none = BTreeSet::new();
        assert_eq!(to_prune(&stored(&[("b", 1), ("a", 1)]), &none, 1), ["a"]);
        assert_eq!(to_prune(&stored(&[("a", 1), ("b", 1)]), &none, 1), ["a"]);
    }
}
