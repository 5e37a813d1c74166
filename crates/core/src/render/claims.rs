//! A node's volume claims, as the StatefulSet controller creates them.

use serde_json::{Value, json};

use super::identity::NodeIdentity;
use crate::api::StatefulNodeSpec;
use crate::api::names::{ANNOTATION_FIRST_START, claim_name};
use crate::revision::with_sizes;

/// The volume claims of a node whose hooks at `BeforeCreate` are not done: its templates, with the labels by which the
/// StatefulSet selects. They have no owner: the node's controller decides whether they are deleted with the node.
#[must_use]
pub fn claims(identity: &NodeIdentity, spec: &StatefulNodeSpec) -> Vec<Value> {
    let templates = with_sizes(&spec.volume_claim_templates, &spec.claim_sizes);
    let of_template = |template: &Value| {
        let name = claim_name(template["metadata"]["name"].as_str()?, &identity.name);
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": template["metadata"],
            "spec": template["spec"],
        });
        claim["metadata"]["name"] = name.into();
        claim["metadata"]["namespace"] = identity.namespace.clone().into();
        for (key, value) in identity.selector() {
            claim["metadata"]["labels"][key] = value.into();
        }
        claim["metadata"]["annotations"][ANNOTATION_FIRST_START] = "pending".into();
        Some(claim)
    };
    templates.iter().filter_map(of_template).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_those_that_the_stateful_set_controller_would_create() {
        let identity =
            NodeIdentity { name: "db-0".into(), namespace: "shop".into(), ..NodeIdentity::default() };
        let template = |name: &str| {
            json!({"metadata": {"name": name, "labels": {"disk": "fast"}, "annotations": {"a": "b"}},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "ssd",
                    "resources": {"requests": {"storage": "1Gi"}}}})
        };
        let spec = StatefulNodeSpec {
            volume_claim_templates: vec![template("data"), template("wal")].into(),
            claim_sizes: [("data".to_owned(), "2Gi".into())].into(),
            ..StatefulNodeSpec::default()
        };
        let claims = claims(&identity, &spec);
        let read =
            |at: &str| claims.iter().map(|claim| claim.pointer(at).unwrap().clone()).collect::<Vec<_>>();
        assert_eq!(read("/metadata/name"), ["data-db-0-0", "wal-db-0-0"]);
        assert_eq!(read("/metadata/namespace"), ["shop", "shop"]);
        assert_eq!(read("/spec/resources/requests/storage"), ["2Gi", "1Gi"]);
        assert_eq!(claims[0]["spec"]["storageClassName"], "ssd");
        assert_eq!(
            claims[0]["metadata"]["annotations"],
            json!({"a": "b", "windlass.dev/first-start": "pending"})
        );
        let labels = claims[0]["metadata"]["labels"].as_object().unwrap();
        assert_eq!(labels["disk"], "fast");
        assert!(identity.selector().iter().all(|(key, value)| labels[key] == *value), "{labels:?}");
        assert!(claims[0]["metadata"].get("ownerReferences").is_none());
    }
}
