//! The workers' Secrets: certificates and API keys, their rotation, and Secrets that do not exist.

use std::sync::{Arc, Mutex};

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass_sim::{Before, FaultPlan, RequestInfo};
use windlass_temporal::port::BuildId;

use crate::stage::{Stage, deployment, spec};

const DIGEST: &str = "windlass.dev/config-digest";

pub async fn put(s: &Stage, name: &str, data: Value) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data});
    s.api("Secret").create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

async fn rotate(s: &Stage, name: &str, data: Value) {
    let patch = Patch::Merge(json!({"data": data}));
    s.api("Secret").patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn remove(s: &Stage, name: &str) {
    s.api("Secret").delete(name, &DeleteParams::default()).await.unwrap();
}

fn with_workers(workers: Value) -> Value {
    let mut given = spec("v1");
    given["connection"]["workers"] = workers;
    // Old versions stay.
    given["sunset"] = json!({"scaleDownDelaySeconds": 3600, "deleteDelaySeconds": 7200});
    given
}

/// The digest in the pod template of a version.
fn digest(s: &Stage, build: &BuildId) -> String {
    let live = s.deployment_of(build).unwrap();
    live["spec"]["template"]["metadata"]["annotations"][DIGEST].as_str().unwrap_or_default().to_owned()
}

fn generations(s: &Stage) -> Vec<i64> {
    s.deployments().iter().map(|live| live["metadata"]["generation"].as_i64().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn worker_credentials_are_mounted_and_named_in_the_environment() {
    let s = Stage::new();
    put(&s, "cert", json!({"tls.crt": "Yw==", "tls.key": "aw=="})).await;
    put(&s, "ca", json!({"ca.crt": "Yw=="})).await;
    put(&s, "key", json!({"token": "dA=="})).await;
    let mut given = with_workers(json!({
        "tls": {"certSecret": "cert", "caSecret": "ca"}, "apiKeySecret": {"name": "key", "key": "token"},
    }));
    given["connection"]["tls"] = json!({"serverName": "temporal.example"});
    let pod = &mut given["template"]["spec"];
    pod["volumes"] = json!([{"name": "cache", "emptyDir": {}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "cache", "mountPath": "/cache"}]);
    pod["containers"][0]["env"] = json!([{"name": "TEMPORAL_TLS", "value": "false"}]);
    s.create(given).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;

    let pod = s.deployment_of(&v1).unwrap()["spec"]["template"]["spec"].clone();
    let folder = "/var/run/secrets/windlass.dev/temporal";
    let container = &pod["containers"][0];
    assert_eq!(
        container["env"].as_array().unwrap()[4..],
        [
            json!({"name": "TEMPORAL_TLS", "value": "true"}),
            json!({"name": "TEMPORAL_TLS_CLIENT_CERT_PATH", "value": format!("{folder}/tls.crt")}),
            json!({"name": "TEMPORAL_TLS_CLIENT_KEY_PATH", "value": format!("{folder}/tls.key")}),
            json!({"name": "TEMPORAL_TLS_SERVER_CA_CERT_PATH", "value": format!("{folder}/ca.crt")}),
            json!({"name": "TEMPORAL_TLS_SERVER_NAME", "value": "temporal.example"}),
            json!({"name": "TEMPORAL_API_KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "token"}}}),
        ]
    );
    assert_eq!(
        container["volumeMounts"],
        json!([
            {"name": "windlass-temporal-tls", "mountPath": folder, "readOnly": true},
            {"name": "cache", "mountPath": "/cache"},
        ])
    );
    let item = |key: &str| json!({"key": key, "path": key});
    assert_eq!(
        pod["volumes"][0]["projected"]["sources"],
        json!([
            {"secret": {"name": "cert", "items": [item("tls.crt"), item("tls.key")]}},
            {"secret": {"name": "ca", "items": [item("ca.crt")]}},
        ])
    );
    assert_eq!(pod["volumes"][1]["name"], "cache");
}

#[tokio::test(start_paused = true)]
async fn rotated_secret_updates_every_version_and_creates_none() {
    let s = Stage::new();
    put(&s, "cert", json!({"tls.crt": "MQ==", "tls.key": "MQ=="})).await;
    s.create(with_workers(json!({"tls": {"certSecret": "cert"}}))).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    s.temporal.start(&deployment(), "long", Some(&v1), 0.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    let before = digest(&s, &v1);
    assert!(before.starts_with("secret/cert:"), "{before}");
    assert_eq!(digest(&s, &v2), before);
    let (hash, rollouts) = (s.status()["requestedRolloutHash"].clone(), s.status()["history"].clone());
    s.seconds(30).await;

    let generations_before = generations(&s);
    // A change of the metadata is none of the data.
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    s.api("Secret").patch("cert", &PatchParams::default(), &label).await.unwrap();
    s.seconds(60).await;
    assert_eq!(generations(&s), generations_before);

    rotate(&s, "cert", json!({"tls.crt": "Mg=="})).await;
    s.seconds(2).await;
    assert_eq!(digest(&s, &v1), before, "the key may follow");
    rotate(&s, "cert", json!({"tls.key": "Mg=="})).await;
    s.seconds(10).await;
    let after = digest(&s, &v1);
    assert_ne!(after, before);
    assert_eq!(digest(&s, &v2), after);
    let once: Vec<i64> = generations_before.iter().map(|generation| generation + 1).collect();
    assert_eq!(generations(&s), once, "one update for both");
    assert_eq!((s.target().await, &s.status()["requestedRolloutHash"]), (v2.clone(), &hash));
    assert_eq!(s.status()["history"], rollouts, "it is no rollout");
    s.until_current(&v2).await;
    s.temporal.end("long");
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn missing_worker_secret_is_reported_and_updates_nothing() {
    let s = Stage::new();
    put(&s, "cert", json!({"tls.crt": "MQ==", "tls.key": "MQ=="})).await;
    put(&s, "env", json!({})).await;
    let mut given = with_workers(json!({"tls": {"certSecret": "cert"}}));
    given["connection"]["workerSecret"] = "env".into();
    s.create(given).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    s.seconds(30).await;
    let (before, at_first) = (digest(&s, &v1), generations(&s));

    for (name, field) in [("cert", "connection.workers.tls.certSecret"), ("env", "connection.workerSecret")] {
        remove(&s, name).await;
        s.until("it is reported", |s| s.condition("UpToDate") == "False/ConnectionSecretNotFound").await;
        assert_eq!(
            s.message("UpToDate"),
            format!(
                "Secret shop/{name} ({field}) does not exist: create it. Until then, Windlass updates no workers"
            )
        );
        assert_eq!(s.condition("Stalled"), "True/ConnectionSecretNotFound");
        assert_eq!(s.condition("Ready"), "True/WorkersReady", "what runs is not affected");
        // What a typing error in the name does: nothing, too.
        s.patch(json!({"spec": {"maxSurge": 3}})).await;
        s.seconds(60).await;
        assert_eq!((digest(&s, &v1), generations(&s)), (before.clone(), at_first.clone()));
        s.patch(json!({"spec": {"maxSurge": null}})).await;
        put(&s, name, json!({"tls.crt": "MQ==", "tls.key": "MQ=="})).await;
        s.until_current(&v1).await;
        s.seconds(60).await;
        assert_eq!(
            (digest(&s, &v1), generations(&s)),
            (before.clone(), at_first.clone()),
            "the data is the same"
        );
    }

    // The number of workers still follows the spec, and a new version is created and waits.
    remove(&s, "cert").await;
    s.patch(json!({"spec": {"replicas": 3}})).await;
    s.until("it is scaled", |s| s.deployment_of(&v1).unwrap()["spec"]["replicas"] == 3).await;
    let v2 = s.roll_to("v2").await;
    s.until("it exists", |s| s.deployment_of(&v2).is_some()).await;
    put(&s, "cert", json!({"tls.crt": "Mg==", "tls.key": "Mg=="})).await;
    s.until_current(&v2).await;
    s.until("both have the new data", |s| digest(s, &v1) == digest(s, &v2) && digest(s, &v1) != before).await;
}

/// Counts the requests for Secrets.
struct Counted(Arc<Mutex<Vec<String>>>);

impl FaultPlan for Counted {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if request.resource == "secrets" {
            self.0.lock().unwrap().push(request.verb.clone());
        }
        Before::Pass
    }
}

#[tokio::test(start_paused = true)]
async fn secrets_are_not_read_again_and_not_at_all_without_need() {
    let (s, _) = Stage::running(spec("v1")).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    s.cluster.set_faults(Box::new(Counted(asked.clone())));
    s.seconds(600).await;
    assert_eq!(*asked.lock().unwrap(), Vec::<String>::new(), "it uses none");
    put(&s, "env", json!({})).await;
    asked.lock().unwrap().clear();
    s.patch(json!({"spec": {"connection": {"workerSecret": "env"}}})).await;
    s.seconds(600).await;
    let gets = asked.lock().unwrap().iter().filter(|verb| *verb == "get").count();
    // Another one if the first came before the watch.
    assert!((1..=2).contains(&gets), "a watch reports changes: {:?}", asked.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn missing_worker_secret_holds_a_rollout_in_place_before_its_first_task_ends() {
    let s = Stage::new();
    put(&s, "env", json!({})).await;
    let mut given = with_workers(json!({}));
    given["connection"]["workerSecret"] = "env".into();
    given["unsafeCustomBuildID"] = "blue".into();
    s.create(given).await;
    let blue = s.target().await;
    s.until_current(&blue).await;
    let completed = s.status()["lastCompletedRolloutHash"].clone();
    remove(&s, "env").await;
    s.set_image("v2").await;
    s.until("it is reported", |s| s.condition("UpToDate") == "False/ConnectionSecretNotFound").await;
    s.seconds(120).await;
    // The old template must not pass for the new one.
    assert_eq!(s.status()["lastCompletedRolloutHash"], completed);
    put(&s, "env", json!({})).await;
    s.until_current(&blue).await;
    let image = s.deployments()[0]["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!((image, s.status()["history"].as_array().unwrap().len()), (json!("orders:v2"), 2));
}
