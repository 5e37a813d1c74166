//! The names of revisions, and which of them may be deleted.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::hex::hex;
use crate::api::{RevisionName, RolloutHash};

/// The name of the ControllerRevision for this rollout hash of this fleet. The fleet's UID is part of it, so that it
/// does not conflict with a revision that a deleted fleet of the same name left behind.
#[must_use]
pub fn revision_name(deployment: &str, uid: &str, rollout_hash: &RolloutHash) -> RevisionName {
    let digest = hex(&Sha256::digest(format!("{uid}{rollout_hash}")));
    RevisionName::of(deployment, &digest[..10])
}

/// An existing ControllerRevision, as far as pruning needs it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredRevision {
    /// Its name.
    pub name: RevisionName,
    /// Its `revision`: the higher, the newer.
    pub revision: i64,
}

/// The names of the revisions to delete, oldest first: of those that nothing refers to, all but the newest
/// `limit`. A negative limit counts as 0.
#[must_use]
pub fn to_prune(
    revisions: &[StoredRevision],
    referenced: &BTreeSet<RevisionName>,
    limit: i32,
) -> Vec<RevisionName> {
    let mut spare: Vec<&StoredRevision> =
        revisions.iter().filter(|r| !referenced.contains(&r.name)).collect();
    spare.sort_by(|a, b| (a.revision, &a.name).cmp(&(b.revision, &b.name)));
    let surplus = spare.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    spare[..surplus].iter().map(|r| r.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::StatefulNodeSpec;
    use crate::revision::RevisionData;

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
            "sidecar": {"image": "w:9", "port": 1, "args": ["x"], "url": "https://x",
                "tokenSecret": "t", "tls": {"caSecret": "ca"}, "auth": {"bearerSecret": "b"}},
            "progressDeadlineSeconds": 5,
            "suspend": true, "grantedHash": "v1:x", "grantID": "g",
        }))
    }

    #[test]
    fn revision_round_trips_through_storage() {
        let data = RevisionData::from_value(&full()).unwrap();
        assert_eq!(data.to_value(), full());
        assert_eq!(RevisionData::of(&data.apply_to(&live())), data);
    }

    #[test]
    fn minimal_revision_stores_only_its_template() {
        let smallest = json!({"podTemplate": {"spec": {}}});
        assert_eq!(RevisionData::from_value(&smallest).unwrap().to_value(), smallest);
    }

    #[test]
    fn unreadable_revision_reports_the_reason() {
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
    fn node_spec_is_its_revision_plus_immediately_applied_fields() {
        let spec = RevisionData::from_value(&full()).unwrap().apply_to(&live());
        let mut expected = full();
        expected["volumeClaimRetention"] = json!("Delete");
        expected["ports"] = json!([{"port": 80}]);
        expected["serviceAnnotations"] = json!({"a": "b"});
        expected["sidecar"]["url"] = json!("https://x");
        expected["sidecar"]["tokenSecret"] = json!("t");
        expected["sidecar"]["tls"] = json!({"caSecret": "ca"});
        expected["sidecar"]["auth"] = json!({"bearerSecret": "b"});
        expected["progressDeadlineSeconds"] = json!(5);
        assert_eq!(spec, read(expected));
    }

    #[test]
    fn revision_determines_whether_a_sidecar_exists() {
        let without = RevisionData::from_value(&json!({"podTemplate": {}})).unwrap();
        assert_eq!(without.apply_to(&live()).sidecar, None);
        let at_once = StatefulNodeSpec { sidecar: None, ..live() };
        let sidecar = RevisionData::from_value(&full()).unwrap().apply_to(&at_once).sidecar.unwrap();
        assert_eq!((sidecar.image.as_str(), sidecar.url.as_str()), ("w:1", ""));
    }

    #[test]
    fn sidecar_stored_by_an_older_version_is_stored_unchanged() {
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
    fn sidecar_outside_the_pod_is_not_in_the_revision() {
        let by_url = json!({"url": "http://{name}:9", "port": 9, "tokenSecret": "t"});
        let at_once: StatefulNodeSpec = read(json!({"podTemplate": {}, "sidecar": by_url}));
        let without = RevisionData::from_value(&json!({"podTemplate": {}})).unwrap();
        assert_eq!(RevisionData::of(&at_once), without);
        assert_eq!(without.apply_to(&at_once).sidecar, at_once.sidecar);
        let injected = RevisionData::from_value(&full()).unwrap().apply_to(&at_once).sidecar.unwrap();
        assert_eq!((injected.image.as_str(), injected.url.as_str()), ("w:1", "http://{name}:9"));
    }

    #[test]
    fn revision_diff_matches_rollout_hash_difference() {
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
    fn revision_name_depends_on_fleet_and_hash() {
        let name = revision_name("db", "uid", &"v1:abc".into());
        assert_eq!(name, "db-021aa0bca2");
        assert_ne!(name, revision_name("db", "uid2", &"v1:abc".into()));
        assert_ne!(name, revision_name("db", "uid", &"v1:abd".into()));
    }

    fn stored(names: &[(&str, i64)]) -> Vec<StoredRevision> {
        names
            .iter()
            .map(|(name, revision)| StoredRevision { name: (*name).into(), revision: *revision })
            .collect()
    }

    #[test]
    fn oldest_unreferenced_revisions_are_pruned() {
        let all = stored(&[("d", 4), ("z", 1), ("c", 3), ("y", 2), ("b", 5)]);
        let referenced = BTreeSet::from(["z".into(), "d".into()]);
        assert_eq!(to_prune(&all, &referenced, 1), ["y", "c"]);
        assert_eq!(to_prune(&all, &referenced, 3), [""; 0]);
        assert_eq!(to_prune(&all, &referenced, 0), ["y", "c", "b"]);
        assert_eq!(to_prune(&all, &referenced, -1), ["y", "c", "b"]);
    }

    #[test]
    fn pruning_of_equally_numbered_revisions_is_deterministic() {
        let none = BTreeSet::new();
        assert_eq!(to_prune(&stored(&[("b", 1), ("a", 1)]), &none, 1), ["a"]);
        assert_eq!(to_prune(&stored(&[("a", 1), ("b", 1)]), &none, 1), ["a"]);
    }
}
