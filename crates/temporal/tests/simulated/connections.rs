//! Connections as objects: a change of one, its deletion, and who may use it.

use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use windlass_temporal::port::BuildId;

use crate::credentials::put;
use crate::stage::{NAME, NAMESPACE, Stage, deployment, spec};

fn api(s: &Stage, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("windlass.dev", "v1alpha1", kind));
    match kind {
        "TemporalConnection" => Api::namespaced_with(s.client(), NAMESPACE, &resource),
        _ => Api::all_with(s.client(), &resource),
    }
}

async fn create(s: &Stage, kind: &str, spec: Value) -> kube::Result<()> {
    let object = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": "main"}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    api(s, kind).create(&PostParams::default(), &object).await.map(drop)
}

async fn patch(s: &Stage, kind: &str, spec: Value) -> kube::Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    api(s, kind).patch("main", &PatchParams::default(), &patch).await.map(drop)
}

async fn remove(s: &Stage, kind: &str) {
    api(s, kind).delete("main", &DeleteParams::default()).await.unwrap();
}

fn used_by(s: &Stage, kind: &str) -> Value {
    let namespace = if kind == "TemporalConnection" { NAMESPACE } else { "" };
    let object = s.cluster.get("windlass.dev/v1alpha1", kind, namespace, "main").unwrap_or_default();
    object["status"]["usedBy"].clone()
}

/// Like `spec`, with versions that stay.
fn with_connection(connection: Value) -> Value {
    let mut given = spec("v1");
    given["connection"] = connection;
    given["sunset"] = json!({"scaleDownDelaySeconds": 3600, "deleteDelaySeconds": 7200});
    given
}

fn variable(s: &Stage, build: &BuildId, name: &str) -> String {
    let live = s.deployment_of(build).unwrap();
    let all = live["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let found = all.iter().find(|variable| variable["name"] == name).cloned().unwrap_or_default();
    found["value"].as_str().unwrap_or_default().to_owned()
}

fn generations(s: &Stage) -> Vec<i64> {
    s.deployments().iter().map(|live| live["metadata"]["generation"].as_i64().unwrap()).collect()
}

/// A stage with this connection and one current version.
async fn running(connection: Value) -> (Stage, BuildId) {
    let s = Stage::new();
    create(&s, "TemporalConnection", connection).await.unwrap();
    s.create(with_connection(json!({"name": "main"}))).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    (s, v1)
}

#[tokio::test(start_paused = true)]
async fn changed_connection_reaches_operator_and_every_version_at_once() {
    let (s, v1) = running(json!({"address": "old:7233", "namespace": "orders"})).await;
    s.temporal.start(&deployment(), "long", Some(&v1), 0.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.seconds(300).await;
    assert_eq!(s.temporal.address(), "old:7233");
    for build in [&v1, &v2] {
        assert_eq!(variable(&s, build, "TEMPORAL_ADDRESS"), "old:7233");
        assert_eq!(variable(&s, build, "TEMPORAL_NAMESPACE"), "orders");
    }
    let rollouts = s.status()["history"].clone();
    put(&s, "key", json!({"api-key": "aw=="})).await;
    patch(
        &s,
        "TemporalConnection",
        json!({"address": "new:7233", "workers": {"apiKeySecret": {"name": "key"}}}),
    )
    .await
    .unwrap();
    // The Secrets of workers may change with it.
    s.seconds(8).await;
    assert_eq!(s.temporal.address(), "new:7233");
    for build in [&v1, &v2] {
        assert_eq!(variable(&s, build, "TEMPORAL_ADDRESS"), "new:7233");
        assert_eq!(variable(&s, build, "TEMPORAL_TLS"), "true");
    }
    assert_eq!(s.status()["connection"]["address"], "new:7233");
    // At rest, each object is reconciled only every 30 to 40 s.
    for address in ["a:1", "b:1", "c:1", "d:1"] {
        s.seconds(47).await;
        patch(&s, "TemporalConnection", json!({"address": address})).await.unwrap();
        s.seconds(2).await;
        let addresses = [&v1, &v2].map(|build| variable(&s, build, "TEMPORAL_ADDRESS"));
        assert_eq!(
            (s.temporal.address(), addresses),
            (address.to_owned(), [address, address].map(str::to_owned))
        );
    }
    assert_eq!((s.target().await, s.status()["history"].clone()), (v2, rollouts), "it is no rollout");
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn failed_update_in_place_is_reported() {
    let (s, v1) = running(json!({"address": "temporal:7233"})).await;
    patch(&s, "TemporalConnection", json!({"address": "broken:7233"})).await.unwrap();
    s.until("it is stalled", |s| s.condition("Stalled") == "True/NoProgress").await;
    let sentence = format!(
        "Deployment {NAME}-{v1} has 1 of 2 updated replicas, and 2 old ones: ReplicaSet has timed out progressing."
    );
    assert_eq!(s.message("Stalled"), sentence);
    assert_eq!(s.condition("UpToDate"), "True/Applied", "it speaks of the version");
    patch(&s, "TemporalConnection", json!({"address": "temporal:7233"})).await.unwrap();
    s.until("it is settled", |s| s.condition("Stalled") == "False/Progressing").await;
    assert_eq!(s.condition("Reconciling"), "False/Settled");
}

#[tokio::test(start_paused = true)]
async fn deleted_connection_is_reported_and_removes_no_workers() {
    let (s, v1) = running(json!({"address": "temporal:7233"})).await;
    s.temporal.start(&deployment(), "long", Some(&v1), 0.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.temporal.end("long");
    // The first version is due to be retired.
    s.patch(json!({"spec": {"sunset": {"scaleDownDelaySeconds": 0, "deleteDelaySeconds": 0}}})).await;
    remove(&s, "TemporalConnection").await;
    s.until("it is reported", |s| s.condition("UpToDate") == "False/ConnectionNotFound").await;
    let message = s.message("UpToDate");
    assert!(
        message.contains("TemporalConnection shop/main (spec.connection.name) does not exist: create it"),
        "{message}"
    );
    assert_eq!(s.condition("Stalled"), "True/ConnectionNotFound");
    let before = generations(&s);
    s.set_image("v3").await;
    s.seconds(600).await;
    assert_eq!(generations(&s), before);
    assert_eq!(s.condition("Ready"), "True/WorkersReady");

    // A person deletes the current Deployment: its workers return with what they had.
    s.api("Deployment").delete(&format!("{NAME}-{v2}"), &DeleteParams::default()).await.unwrap();
    s.until("they are there again", |s| s.deployment_of(&v2).is_some()).await;
    assert_eq!(variable(&s, &v2, "TEMPORAL_ADDRESS"), "temporal:7233");

    create(&s, "TemporalConnection", json!({"address": "temporal:7233"})).await.unwrap();
    let v3 = s.target().await;
    s.until_current(&v3).await;
    s.until("the first version is retired", |s| s.deployment_of(&v1).is_none()).await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn temporal_namespace_stays_when_its_connection_is_replaced() {
    let (s, _) = running(json!({"address": "temporal:7233", "namespace": "orders"})).await;
    let before = generations(&s);
    let moved = patch(&s, "TemporalConnection", json!({"namespace": "other"})).await.unwrap_err().to_string();
    assert!(moved.contains("spec.namespace cannot be changed"), "{moved}");
    remove(&s, "TemporalConnection").await;
    create(&s, "TemporalConnection", json!({"address": "temporal:7233", "namespace": "other"}))
        .await
        .unwrap();
    s.until("it is refused", |s| s.condition("UpToDate") == "False/InvalidSpec").await;
    assert!(s.message("UpToDate").contains("from orders to other"), "{}", s.message("UpToDate"));
    s.seconds(60).await;
    assert_eq!(generations(&s), before);
    s.patch(json!({"spec": {"connection": {"namespace": "orders"}}})).await;
    s.until("it is accepted", |s| s.condition("UpToDate") == "True/Applied").await;

    // The same inline is the same connection.
    let inline = json!({"name": null, "address": "temporal:7233", "namespace": "orders"});
    s.patch(json!({"spec": {"connection": inline}})).await;
    s.target().await;
    s.until("it is accepted", |s| s.condition("UpToDate") == "True/Applied").await;
    assert_eq!(generations(&s), before);
}

#[tokio::test(start_paused = true)]
async fn cluster_connection_is_only_for_its_namespaces() {
    let s = Stage::new();
    let kind = "ClusterTemporalConnection";
    create(&s, kind, json!({"address": "temporal:7233", "allowedNamespaces": ["billing"]})).await.unwrap();
    s.create(with_connection(json!({"clusterName": "main"}))).await;
    s.until("it is refused", |s| s.condition("UpToDate") == "False/ConnectionNotAllowed").await;
    let message = s.message("UpToDate");
    assert!(message.contains("does not allow the namespace shop"), "{message}");
    s.seconds(30).await;
    assert_eq!(s.deployments().len(), 0);
    patch(&s, kind, json!({"allowedNamespaces": ["billing", "shop"]})).await.unwrap();
    let v1 = s.target().await;
    s.until_current(&v1).await;
    s.until("its user is listed", |s| used_by(s, kind) == json!({"count": 1, "names": ["shop/orders"]}))
        .await;
    let before = generations(&s);
    patch(&s, kind, json!({"allowedNamespaces": ["billing"]})).await.unwrap();
    s.until("it is refused", |s| s.condition("UpToDate") == "False/ConnectionNotAllowed").await;
    s.seconds(60).await;
    assert_eq!(generations(&s), before, "its workers stay");
    assert!(used_by(&s, kind).is_null(), "it may be deleted");
    patch(&s, kind, json!({"allowedNamespaces": ["*"]})).await.unwrap();
    s.until_current(&v1).await;

    let secret =
        json!({"address": "temporal:7233", "allowedNamespaces": ["*"], "apiKeySecret": {"name": "key"}});
    let error = patch(&s, kind, secret).await.unwrap_err().to_string();
    assert!(error.contains("spec.secretNamespace is missing"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn connection_lists_its_users_while_they_exist() {
    let (s, _) = running(json!({"address": "temporal:7233"})).await;
    let kind = "TemporalConnection";
    s.until("its user is listed", |s| used_by(s, kind) == json!({"count": 1, "names": ["shop/orders"]}))
        .await;
    let version = || {
        let object = s.cluster.get("windlass.dev/v1alpha1", kind, NAMESPACE, "main").unwrap();
        object["metadata"]["resourceVersion"].clone()
    };
    let before = version();
    s.kill_operator();
    s.start_operator();
    s.seconds(300).await;
    assert_eq!(version(), before, "an idle one is not written");
    // Somebody's mistake.
    let wrong = Patch::Merge(json!({"status": {"usedBy": null}}));
    api(&s, kind).patch_status("main", &PatchParams::default(), &wrong).await.unwrap();
    s.until("it is corrected", |s| used_by(s, kind)["count"] == 1).await;
    s.delete().await;
    s.until("it is used while the versions drain", |s| {
        s.object().is_none() || used_by(s, kind)["count"] == 1
    })
    .await;
    s.until("nothing uses it", |s| s.object().is_none() && used_by(s, kind).is_null()).await;
}

#[tokio::test(start_paused = true)]
async fn workers_run_before_the_kinds_of_connections_are_installed() {
    let s = Stage::without_connections();
    s.create(spec("v1")).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    s.seconds(300).await;
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    s.patch(json!({"spec": {"connection": {"address": null, "namespace": null, "name": "main"}}})).await;
    s.until("it is reported", |s| s.condition("UpToDate") == "False/ConnectionNotFound").await;
    let message = s.message("UpToDate");
    assert!(message.contains("install the kind and the rights in deploy/temporal"), "{message}");
    assert_eq!(s.condition("Ready"), "True/WorkersReady");
    s.install_connections();
    tokio::time::sleep(Duration::from_secs(5)).await;
    create(&s, "TemporalConnection", json!({"address": "temporal:7233"})).await.unwrap();
    s.until_current(&v2).await;
}

#[tokio::test(start_paused = true)]
async fn connection_needs_exactly_one_place() {
    let s = Stage::new();
    for (connection, sentence) in [
        (json!({}), "exactly one of name"),
        (json!({"namespace": "orders"}), "exactly one of name"),
        (json!({"name": "main", "clusterName": "main"}), "exactly one of name"),
        (json!({"name": "main", "address": "temporal:7233"}), "exactly one of name"),
        (json!({"name": "main", "tls": {}}), "belong into the object with that name"),
        (json!({"clusterName": "main", "workerSecret": "env"}), "belong into the object with that name"),
        (json!({"clusterName": "main", "workers": {}}), "belong into the object with that name"),
        (json!({"name": ""}), "name"),
    ] {
        let error = s.try_create(with_connection(connection.clone())).await.unwrap_err().to_string();
        assert!(error.contains(sentence), "{connection}: {error}");
    }
    for (spec, sentence) in
        [(json!({"address": "http://temporal:7233"}), "a host and a port"), (json!({}), "address")]
    {
        let error = create(&s, "TemporalConnection", spec.clone()).await.unwrap_err().to_string();
        assert!(error.contains(sentence), "{spec}: {error}");
    }
    let all = json!({"address": "temporal:7233"});
    let error = create(&s, "ClusterTemporalConnection", all).await.unwrap_err().to_string();
    assert!(error.contains("allowedNamespaces"), "{error}");
    s.create(with_connection(json!({"name": "main", "namespace": "orders"}))).await;
    for (change, sentence) in [
        (json!({"namespace": "other"}), "spec.connection.namespace cannot be changed"),
        (json!({"name": null, "namespace": null, "address": "temporal:7233"}), "cannot be changed"),
    ] {
        let error = s.try_patch(json!({"spec": {"connection": change}})).await.unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
}
