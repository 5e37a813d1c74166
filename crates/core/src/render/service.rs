//! The Services: one headless for each node, which gives its pod a name, and one in front of the fleet's
//! active set.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::identity::{FleetIdentity, NodeIdentity};
use super::metadata::new_child_metadata;
use crate::api::names::{ANNOTATION_OWNER_UID, LABEL_DEPLOYMENT, LABEL_SET};
use crate::api::{DeletionPolicy, Port, SetName, StatefulNodeSpec, TemplateMeta};

/// A node's headless Service.
#[must_use]
pub fn headless_service(identity: &NodeIdentity, spec: &StatefulNodeSpec) -> Value {
    let own = TemplateMeta { labels: identity.labels(), annotations: BTreeMap::new() };
    let TemplateMeta { labels, annotations } =
        new_child_metadata(&headless_service_metadata(identity, spec), &own);
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": identity.name,
            "namespace": identity.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [identity.owner_reference()],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": identity.selector(),
        },
    });
    if !spec.ports.is_empty() {
        service["spec"]["ports"] = service_ports(&spec.ports);
    }
    service
}

/// The user's metadata for a node's headless Service: `template.metadata`, overridden by `serviceAnnotations`. Both are
/// recorded as applied, so that both can be removed again.
#[must_use]
pub fn headless_service_metadata(identity: &NodeIdentity, spec: &StatefulNodeSpec) -> TemplateMeta {
    let mut metadata = identity.metadata.clone();
    metadata.annotations.extend(spec.service_annotations.clone());
    metadata
}

/// The Service in front of a fleet's active set. `metadata`: the user's labels and annotations.
#[must_use]
pub fn fleet_service(
    identity: &FleetIdentity,
    metadata: &TemplateMeta,
    ports: &[Port],
    active_set: &SetName,
) -> Value {
    let FleetIdentity { name, namespace, uid, deletion_policy } = identity;
    let owner_uid = match deletion_policy {
        DeletionPolicy::Delete => BTreeMap::new(),
        DeletionPolicy::Retain => BTreeMap::from([(ANNOTATION_OWNER_UID.to_owned(), uid.clone())]),
    };
    let own = TemplateMeta { labels: identity.labels(), annotations: owner_uid };
    let TemplateMeta { labels, annotations } = new_child_metadata(metadata, &own);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": identity.owner_references(),
        },
        "spec": {
            "type": "ClusterIP",
            "selector": fleet_selector(name, active_set),
            "ports": service_ports(ports),
        },
    })
}

/// The labels that select the pods of one set of a fleet.
#[must_use]
pub fn fleet_selector(deployment: &str, set: &SetName) -> BTreeMap<String, String> {
    BTreeMap::from([
        (LABEL_DEPLOYMENT.to_owned(), deployment.to_owned()),
        (LABEL_SET.to_owned(), set.to_string()),
    ])
}

/// `/spec/ports` of a Service. The API server fills in the defaults.
#[must_use]
pub fn service_ports(ports: &[Port]) -> Value {
    json!(ports)
}
