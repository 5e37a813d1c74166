//! As much as possible is read of an object, whatever somebody wrote into the rest.

use serde_json::{Value, json};

use crate::Cache;
use windlass_core::observed::{
    Meta, Observed, ObservedFleet, ObservedMachine, ObservedNode, ObservedPod, ObservedStatefulSet,
};

fn node(spec: &Value, status: &Value) -> ObservedNode {
    ObservedNode::read(&json!({
        "metadata": {"name": "db-0", "namespace": "shop", "uid": "u", "generation": 3},
        "spec": spec,
        "status": status,
    }))
}

fn good_spec() -> Value {
    json!({"podTemplate": {"spec": {"containers": [{"name": "db"}]}}})
}

#[test]
fn unreadable_status_field_does_not_hide_the_others() {
    let read = node(
        &good_spec(),
        &json!({"podTemplateHash": "v1:1", "observedGeneration": "three", "spentGrantID": "g", "history": 5, "newField": {}}),
    );
    assert_eq!((read.status.pod_template_hash.as_str(), read.status.spent_grant_id.as_str()), ("v1:1", "g"));
    assert_eq!((read.status.observed_generation, read.status.history.len()), (0, 0));
    assert_eq!(read.unreadable, ["history", "observedGeneration"]);
}

#[test]
fn readable_status_reports_no_unreadable_fields() {
    for status in [json!(null), json!({}), json!({"podTemplateHash": "v1:1", "newField": 1})] {
        assert_eq!(node(&good_spec(), &status).unreadable, [""; 0], "{status}");
    }
}

#[test]
fn malformed_persisted_plan_does_not_prevent_reading_a_node() {
    for plan in [json!(5), json!({"id": 7}), json!({"id": "x", "tasks": [{"type": "unknown"}]}), json!([])] {
        let read = node(&good_spec(), &json!({"plan": plan, "podTemplateHash": "v1:1"}));
        assert_eq!(read.unreadable, [""; 0], "{plan}");
        assert_eq!(read.status.plan.unwrap().0, plan.into());
        assert_eq!(read.status.pod_template_hash, "v1:1");
    }
}

#[test]
fn unreadable_spec_is_an_error_and_the_status_is_still_read() {
    let read = node(&json!({"podTemplate": {}, "ports": "many"}), &json!({"podTemplateHash": "v1:1"}));
    assert!(read.spec.unwrap_err().starts_with("spec cannot be read: "));
    assert_eq!(read.status.pod_template_hash, "v1:1");
    let fleet = ObservedFleet::read(
        &json!({"metadata": {"name": "db"}, "spec": {"replicas": "x"}, "status": {"replicas": 3}}),
    );
    assert!(fleet.spec.is_err());
    assert_eq!(fleet.status.replicas, 3);
}

#[test]
fn spec_is_read_again_for_a_new_generation_or_another_object() {
    let sent = |uid: &str, generation: i64, image: &str| {
        json!({
            "metadata": {"name": "db-0", "namespace": "shop", "uid": uid, "generation": generation},
            "spec": {"image": image, "podTemplate": good_spec()["podTemplate"]},
            "status": {"podTemplateHash": image},
        })
    };
    let cache: Cache<ObservedNode> = Cache::default();
    cache.observe(ObservedNode::read(&sent("u", 3, "db:1")));
    let read = |object: Value| {
        let read = cache.read_object(&object, Meta::read(&object));
        (read.spec.unwrap().image.clone(), read.status.pod_template_hash)
    };
    // The API server never sends another spec with the same generation.
    assert_eq!(read(sent("u", 3, "db:2")), ("db:1".to_owned(), "db:2".to_owned()));
    assert_eq!(read(sent("u", 4, "db:2")).0, "db:2");
    assert_eq!(read(sent("v", 3, "db:2")).0, "db:2");
}

#[test]
fn metadata_is_read_without_the_last_applied_annotation() {
    let meta = Meta::read(&json!({"metadata": {
        "name": "db", "namespace": "shop", "uid": "u", "resourceVersion": "12", "generation": 3,
        "labels": {"a": "b"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "c": "d"},
        "ownerReferences": [{"kind": "A", "name": "a", "uid": "1"}, {"kind": "B", "name": "b", "uid": "2", "controller": true}],
        "deletionTimestamp": "2030-01-01T00:00:00Z",
    }}));
    assert_eq!((meta.version(), meta.generation, meta.terminating), (12, 3, true));
    assert_eq!((meta.label("a"), meta.annotation("c")), (Some("b"), Some("d")));
    assert_eq!(meta.annotations.len(), 1);
    assert!(meta.is_controlled_by("2") && !meta.is_controlled_by("1"));
    assert!(meta.has_labels && meta.has_annotations);
    let bare = Meta::read(&json!({"metadata": {"name": "db"}}));
    assert!(!bare.has_labels && !bare.has_annotations && bare.controller().is_none());
    assert_eq!(bare.version(), 0);
}

#[test]
fn stateful_set_is_observed_at_its_current_generation() {
    let set = |seen: i64| {
        ObservedStatefulSet::read(&json!({
            "metadata": {"name": "db-0", "generation": 4, "annotations": {"windlass.dev/pod-template-hash": "v1:1"}},
            "spec": {"replicas": 1, "updateStrategy": {"type": "OnDelete"}, "template": {"spec": {"containers": [{"name": "db", "image": "db:1"}]}}},
            "status": {"observedGeneration": seen, "updateRevision": "db-0-abc"},
        }))
    };
    assert!(set(4).is_observed() && !set(3).is_observed());
    let read = set(4);
    assert_eq!((read.stamp(), read.update_revision.as_str(), read.replicas), (Some("v1:1"), "db-0-abc", 1));
    assert_eq!(
        (read.update_strategy.as_str(), read.images.to_vec()),
        ("OnDelete", vec![("db".to_owned(), "db:1".to_owned())])
    );
}

#[test]
fn pod_is_read_with_its_init_containers_first() {
    let pod = ObservedPod::read(&json!({
        "metadata": {"name": "db-0-0", "labels": {"controller-revision-hash": "db-0-abc", "windlass.dev/node": "db-0"}},
        "spec": {"containers": [{"name": "db", "image": "db:1"}]},
        "status": {
            "phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
            "initContainerStatuses": [{"name": "windlass-sidecar", "state": {"running": {}}, "ready": true}],
            "containerStatuses": [{"name": "db", "imageID": "sha256:1", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 2}],
        },
    }));
    assert_eq!((pod.revision.as_str(), pod.node(), pod.ip.as_str()), ("db-0-abc", Some("db-0"), "10.0.0.1"));
    assert!(pod.is_ready() && pod.ready.as_ref().unwrap().since.is_some());
    let names: Vec<(&str, bool)> = pod.containers.iter().map(|c| (c.name.as_str(), c.init)).collect();
    assert_eq!(names, [("windlass-sidecar", true), ("db", false)]);
    let db = pod.container("db").unwrap();
    assert_eq!(
        (db.restarts, db.running, db.waiting.as_ref().unwrap().0.as_str()),
        (2, false, "CrashLoopBackOff")
    );
}

/// True if the object counts as changed when a watch shows it with this value at this path.
fn is_news<T: Observed>(object: &Value, path: &str, value: Value) -> bool {
    let cache = Cache::default();
    assert!(cache.observe(T::read(object)), "the first time");
    let mut next = object.clone();
    next["metadata"]["resourceVersion"] = json!("6");
    let mut at = &mut next;
    for part in path.split('/') {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[part],
        };
    }
    *at = value;
    let is_news = cache.observe(T::read(&next));
    let key = T::read(object).meta().key();
    assert_eq!(cache.get(&key).unwrap().meta().resource_version, "6", "{path}: the version is known even so");
    is_news
}

#[test]
fn only_changes_to_fields_that_are_read_are_notified() {
    let meta =
        json!({"name": "db-0", "namespace": "shop", "uid": "u", "generation": 3, "resourceVersion": "5"});
    let mut set = json!({"metadata": meta, "spec": {"replicas": 1, "template": {"spec": {"containers": []}}},
        "status": {"observedGeneration": 3, "updateRevision": "db-0-1"}});
    // Of one that somebody else created, its current revision is read.
    assert!(is_news::<ObservedStatefulSet>(&set, "status/currentRevision", json!("db-0-0")));
    set["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "windlass"});
    let pod = json!({"metadata": meta, "spec": {"containers": [{"name": "db", "image": "db:1"}]}, "status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{"name": "db", "ready": false, "state": {}}]}});
    for (path, value, news) in [
        ("status/readyReplicas", json!(1), false),
        ("status/currentRevision", json!("db-0-0"), false),
        ("metadata/managedFields", json!([{"manager": "kubectl"}]), false),
        ("status/observedGeneration", json!(4), true),
        ("status/updateRevision", json!("db-0-2"), true),
        ("spec/replicas", json!(0), true),
        ("spec/updateStrategy", json!({"type": "RollingUpdate"}), true),
        ("spec/template/spec/containers", json!([{"name": "db"}]), true),
        ("metadata/annotations", json!({"a": "b"}), true),
        ("metadata/labels", json!({"a": "b"}), true),
        ("metadata/ownerReferences", json!([{"kind": "StatefulNode", "name": "db-0", "uid": "n"}]), true),
        ("metadata/deletionTimestamp", json!("2030-01-01T00:00:00Z"), true),
    ] {
        assert_eq!(is_news::<ObservedStatefulSet>(&set, path, value), news, "StatefulSet {path}");
    }
    for (path, value, news) in [
        ("spec/priority", json!(7), false),
        ("spec/nodeName", json!("worker-1"), true),
        ("status/startTime", json!("2030-01-01T00:00:00Z"), false),
        ("status/phase", json!("Failed"), true),
        ("status/podIP", json!("10.0.0.1"), true),
        ("status/conditions/0/status", json!("True"), true),
        ("status/containerStatuses/0/ready", json!(true), true),
        ("spec/containers/0/image", json!("db:2"), true),
        ("metadata/labels", json!({"controller-revision-hash": "db-0-2"}), true),
        ("metadata/deletionTimestamp", json!("2030-01-01T00:00:00Z"), true),
    ] {
        assert_eq!(is_news::<ObservedPod>(&pod, path, value), news, "Pod {path}");
    }
    let machine =
        json!({"metadata": meta, "spec": {"taints": []}, "status": {"conditions": [{"type": "Ready"}]}});
    for (path, value, news) in [
        ("status/conditions/0/lastHeartbeatTime", json!("2030-01-01T00:00:00Z"), false),
        (
            "metadata/annotations",
            json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"}),
            false,
        ),
        ("metadata/labels", json!({"topology.kubernetes.io/zone": "a"}), true),
        ("spec/unschedulable", json!(true), true),
        ("spec/taints", json!([{"key": "leaving"}]), true),
        ("metadata/deletionTimestamp", json!("2030-01-01T00:00:00Z"), true),
    ] {
        assert_eq!(is_news::<ObservedMachine>(&machine, path, value), news, "Node {path}");
    }
}
