//! Fields that apply at once, two of them in one apply: the result is that of two applies, and nobody is blamed.

use std::cell::RefCell;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::sets::world::{
    CLAIM, NODE, SERVICE, SET, World, condition, fleet, is_up_to_date, play, with_sidecar,
};

/// How long everything that applies at once needs at most, in seconds.
const SOON: u64 = 40;

/// A change of each field that applies at once.
fn fields() -> Vec<(&'static str, Value)> {
    let node = |spec: Value| json!({"template": {"spec": spec}});
    vec![
        ("replicas", json!({"replicas": 2})),
        ("minReadySeconds", json!({"minReadySeconds": 1})),
        ("paused", json!({"paused": true})),
        ("service", json!({"service": {"ports": [{"port": 81}]}})),
        ("no service", json!({"service": null})),
        ("forcePromote", json!({"forcePromote": "v1:none"})),
        ("updateStrategy", json!({"updateStrategy": {"inPlace": {"maxUnavailable": 2}}})),
        ("deletionPolicy", json!({"deletionPolicy": "Retain"})),
        ("revisionHistoryLimit", json!({"revisionHistoryLimit": 1})),
        ("labels", json!({"template": {"metadata": {"labels": {"team": "storage"}}}})),
        ("annotations", json!({"template": {"metadata": {"annotations": {"owner": "ann"}}}})),
        ("volumeClaimRetention", node(json!({"volumeClaimRetention": "Delete"}))),
        (
            "claims",
            node(json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}}]})),
        ),
        ("ports", node(json!({"ports": [{"port": 5432}]}))),
        ("serviceAnnotations", node(json!({"serviceAnnotations": {"a": "b"}}))),
        ("sidecar.url", node(json!({"sidecar": {"url": "http://{podIP}:{port}"}}))),
        ("sidecar.tokenSecret", node(json!({"sidecar": {"tokenSecret": "token"}}))),
        ("progressDeadlineSeconds", node(json!({"progressDeadlineSeconds": 300}))),
    ]
}

fn merged(a: &Value, b: &Value) -> Value {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return b.clone() };
    let mut all = a.clone();
    for (key, value) in b {
        let value = a.get(key).map_or_else(|| value.clone(), |known| merged(known, value));
        all.insert(key.clone(), value);
    }
    Value::Object(all)
}

/// What was written of an object, without what differs from one world to another.
fn written(object: &Value) -> Value {
    let meta = &object["metadata"];
    let mut annotations = meta["annotations"].clone();
    if annotations["windlass.dev/owner-uid"].is_string() {
        annotations["windlass.dev/owner-uid"] = json!("the fleet's");
    }
    let owners = meta["ownerReferences"].as_array().map_or(0, Vec::len);
    let mut spec = object["spec"].clone();
    for unique in ["grantID", "clusterIP", "clusterIPs", "volumeName"] {
        spec.as_object_mut().map(|spec| spec.remove(unique));
    }
    // An object without any has none or an empty map, which mean the same.
    let annotations = annotations.as_object().filter(|all| !all.is_empty()).cloned();
    json!({"name": meta["name"], "labels": meta["labels"], "annotations": annotations, "owners": owners, "spec": spec})
}

/// Everything of the fleet that a user sees, besides times and names that are random.
fn state(w: &World) -> Value {
    let conditions = |status: &Value| ["Ready", "UpToDate", "Stalled"].map(|of| condition(status, of));
    let of = |kind: (&str, &str)| -> Vec<Value> {
        w.names(kind).iter().map(|name| written(&w.get(kind, name))).collect()
    };
    let objects = [NODE, SET, SERVICE, CLAIM].map(of);
    let stalled = |name: &String| conditions(&w.get(NODE, name)["status"]);
    json!({
        "objects": objects,
        "nodes": w.names(NODE).iter().map(stalled).collect::<Vec<_>>(),
        "fleet": conditions(&w.status()),
        "deletionPolicy": w.status()["deletionPolicy"],
        "volumeClaimRetention": w.status()["volumeClaimRetention"],
        "pods": w.images(),
    })
}

/// The state of a fleet after these changes, one after the other.
fn after(changes: &[Value]) -> Value {
    let found = RefCell::new(Value::Null);
    let into = &found;
    play(|w| async move {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"},
            "data": {"token": "dG9rZW4="}});
        w.create(secret).await;
        let classes: Api<StorageClass> = Api::all(w.cluster.client("person", "default"));
        let may_grow = Patch::Merge(json!({"allowVolumeExpansion": true}));
        classes.patch("standard", &PatchParams::default(), &may_grow).await.unwrap();
        w.serve(with_sidecar(fleet(1, json!({"type": "InPlace"})))).await;
        for change in changes {
            w.change(change.clone()).await;
            w.rest(SOON).await;
        }
        w.until("nothing stalls", |status| condition(status, "Stalled") == "False/Progressing").await;
        assert!(is_up_to_date(&w.status()) || w.status()["phase"] == "Paused", "{}", w.status());
        into.replace(state(&w));
    });
    found.into_inner()
}

#[test]
fn any_two_immediate_fields_can_change_in_one_apply() {
    let fields = fields();
    let mut wrong = Vec::new();
    for (index, (one, a)) in fields.iter().enumerate() {
        for (other, b) in &fields[index + 1..] {
            if [one, other] == [&"service", &"no service"] {
                continue;
            }
            let (together, apart) = (after(&[merged(a, b)]), after(&[a.clone(), b.clone()]));
            let is_blamed = together.to_string().contains("True/InvalidSpec");
            if together != apart || is_blamed {
                wrong.push(format!("{one} and {other}:\n  {together}\n  {apart}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_immediate_fields_can_change_in_one_apply() {
    // Claims do not grow while the fleet is paused, so their place among the changes matters.
    let fields = fields().into_iter().filter(|(name, _)| *name != "claims");
    let fields: Vec<Value> = fields.map(|(_, change)| change).collect();
    let all = fields.iter().fold(json!({}), |all, change| merged(&all, change));
    let (together, apart) = (after(&[all]), after(&fields));
    assert_eq!(together, apart);
    assert!(!together.to_string().contains("True/InvalidSpec"), "{together}");
}
