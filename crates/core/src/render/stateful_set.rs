//! A node's StatefulSet.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::identity::NodeIdentity;
use super::metadata::new_child_metadata;
use crate::api::names::{ANNOTATION_TEMPLATE_HASH, LABEL_REVISION, SIDECAR_CONTAINER};
use crate::api::{BuiltFor, PodTemplateHash, StatefulNodeSpec, TemplateMeta};
use crate::revision::template::remove_own_keys;
use crate::revision::{main_container, main_image, revision_label, with_sizes};

/// How many of its own revisions a StatefulSet keeps: the running one, the desired one, and a spare.
pub const REVISION_HISTORY_LIMIT: i64 = 3;

/// The policy under which claims outlive a StatefulSet and its replicas. The node's controller takes care of whether
/// they are deleted with their node.
#[must_use]
pub fn claim_retention() -> Value {
    json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
}

/// A node's StatefulSet. `template` is the rendered [`pod_template`](fn@super::pod_template), `hash` its pod
/// template hash.
#[must_use]
pub fn stateful_set(
    identity: &NodeIdentity,
    spec: &StatefulNodeSpec,
    template: &Value,
    hash: &PodTemplateHash,
) -> Value {
    let StatefulNodeSpec {
        volume_claim_templates,
        suspend,
        // In the rendered template.
        image: _,
        main_container: _,
        pod_template: _,
        sidecar: _,
        // In the Service.
        ports: _,
        service_annotations: _,
        // The node's controller makes the node an owner of its claims: the StatefulSet's own policy would delete them
        // whoever deletes the StatefulSet.
        volume_claim_retention: _,
        // Only for the node's controller.
        progress_deadline_seconds: _,
        granted_hash: _,
        grant_id: _,
        halt_height: _,
        halt_task_id: _,
        watch_sidecar: _,
        removal_id: _,
        move_: _,
        claim_sizes,
    } = spec;
    let TemplateMeta { labels, annotations } =
        new_child_metadata(&identity.metadata, &stateful_set_own_metadata(identity, hash));
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": identity.name,
            "namespace": identity.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [identity.owner_reference()],
        },
        "spec": {
            "replicas": i32::from(!*suspend),
            "serviceName": identity.name,
            "selector": {"matchLabels": identity.selector()},
            "updateStrategy": {"type": "OnDelete"},
            "podManagementPolicy": "OrderedReady",
            "revisionHistoryLimit": REVISION_HISTORY_LIMIT,
            "persistentVolumeClaimRetentionPolicy": claim_retention(),
            "template": stateful_set_template(identity, spec, template, &made_for(spec, hash)),
        },
    });
    if !volume_claim_templates.is_empty() {
        set["spec"]["volumeClaimTemplates"] = json!(with_sizes(volume_claim_templates, claim_sizes));
    }
    set
}

/// Windlass's own labels and annotations of a node's StatefulSet.
#[must_use]
pub fn stateful_set_own_metadata(identity: &NodeIdentity, hash: &PodTemplateHash) -> TemplateMeta {
    TemplateMeta {
        labels: identity.labels(),
        annotations: BTreeMap::from([(ANNOTATION_TEMPLATE_HASH.to_owned(), hash.to_string())]),
    }
}

/// What a node's pods are created for at this hash.
#[must_use]
pub fn made_for(spec: &StatefulNodeSpec, hash: &PodTemplateHash) -> BuiltFor {
    BuiltFor {
        hash: hash.clone(),
        image: main_image(spec).unwrap_or_default().to_owned(),
        main_container: main_container(&spec.main_container, &spec.pod_template)
            .unwrap_or_default()
            .to_owned(),
    }
}

/// `/spec/template` of a node's StatefulSet: the rendered template with everything that Windlass adds outside of the
/// hash. That is the labels of the node and its revision, annotations of what its pods are created for, and the defaults
/// of the sidecar's security context.
#[must_use]
pub fn stateful_set_template(
    identity: &NodeIdentity,
    spec: &StatefulNodeSpec,
    template: &Value,
    made_for: &BuiltFor,
) -> Value {
    let mut template = template.clone();
    let labels = identity.pod_labels();
    let revision = revision_label(spec);
    let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    add(&mut template, "labels", labels.chain([(LABEL_REVISION, revision.as_str())]));
    add(&mut template, "annotations", made_for.to_annotations().into_iter());
    harden_sidecar(&mut template);
    template
}

/// What earlier versions of Windlass created from the same rendered template. It stays in existing StatefulSets until
/// their template changes. The earliest added no annotations.
#[must_use]
pub fn earlier_template(identity: &NodeIdentity, template: &Value, made_for: Option<&BuiltFor>) -> Value {
    let mut template = template.clone();
    remove_own_keys(&mut template);
    let labels = identity.labels();
    add(&mut template, "labels", labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    if let Some(made_for) = made_for {
        add(&mut template, "annotations", made_for.to_annotations().into_iter());
    }
    template
}

/// Completes the security context of the injected sidecar, so that the Pod Security level "restricted" admits it
/// whatever the pod's own security context says. What the user set stays.
fn harden_sidecar(template: &mut Value) {
    let is_root = |context: &Value| context["runAsUser"] == 0;
    let of_pod = template["spec"].get("securityContext").cloned().unwrap_or_default();
    let containers = template.pointer_mut("/spec/initContainers").and_then(Value::as_array_mut);
    let containers = containers.into_iter().flatten();
    for container in containers.filter(|container| container["name"] == SIDECAR_CONTAINER) {
        let context = &container["securityContext"];
        let runs_as_root = is_root(context) || (context["runAsUser"].is_null() && is_root(&of_pod));
        let context = container.pointer_mut("/securityContext").and_then(Value::as_object_mut);
        let Some(context) = context else { continue };
        if !runs_as_root {
            context.entry("runAsNonRoot").or_insert(json!(true));
        }
        context.entry("readOnlyRootFilesystem").or_insert(json!(true));
        context.entry("seccompProfile").or_insert(json!({"type": "RuntimeDefault"}));
    }
}

fn add<'a>(template: &mut Value, field: &str, texts: impl Iterator<Item = (&'a str, &'a str)>) {
    let texts = texts.map(|(key, value)| (key.to_owned(), Value::from(value)));
    let mut at = template;
    for key in ["metadata", field] {
        // Only a template that was not rendered has something else than an object here; the API server would reject it.
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[key];
    }
    match at {
        Value::Object(known) => known.extend(texts),
        other => *other = texts.collect::<Map<_, _>>().into(),
    }
}
