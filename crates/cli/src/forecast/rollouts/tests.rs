//! Forecasts over the objects of a stand-in API server.

use super::*;
use crate::empty_cluster::with_objects;
use crate::plan;

const HELD: &str = r#"{"type": "RollingUpdate", "rollingUpdate": {"partition": 1000000}}"#;

fn set(name: &str, replicas: i64, (current, update): (&str, &str), strategy: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "prod", "uid": format!("uid of {name}"), "generation": 2,
            "resourceVersion": "7"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "updateStrategy": serde_json::from_str::<Value>(strategy).unwrap()},
        "status": {"observedGeneration": 2, "currentRevision": format!("{name}-{current}"),
            "updateRevision": format!("{name}-{update}")}})
}

fn pod(set: &str, ordinal: usize, revision: &str, is_ready: bool) -> Value {
    let name = format!("{set}-{ordinal}");
    let ready = if is_ready { "True" } else { "False" };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "prod", "uid": format!("uid of {name}"), "resourceVersion": "8",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"controller-revision-hash": format!("{set}-{revision}"),
                "statefulset.kubernetes.io/pod-name": name},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set,
                "uid": format!("uid of {set}"), "controller": true}]},
        "spec": {"containers": [{"name": "db", "image": "db:1"}]},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:09Z"}],
            "containerStatuses": [{"name": "db", "ready": is_ready, "state": {"running": {}}}]}})
}

/// A StatefulSet with Ready pods at these revisions.
fn with_pods(name: &str, between: (&str, &str), strategy: &str, revisions: &[&str]) -> Vec<Value> {
    let pods = revisions.iter().enumerate().map(|(ordinal, revision)| pod(name, ordinal, revision, true));
    let replicas = i64::try_from(revisions.len()).unwrap();
    let revision = |number: i64, hash: &str, image: &str| {
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
            "metadata": {"name": format!("{name}-{hash}"), "namespace": "prod", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": format!("uid of {name}")}]},
            "data": {"spec": {"template": {"spec": {"containers": [{"name": "db", "image": image}]}}}}})
    };
    let own = [set(name, replicas, between, strategy), revision(1, "v1", "db:1"), revision(2, "v2", "db:2")];
    own.into_iter().chain(pods).collect()
}

fn rollout(names: &[&str], changes: &Value) -> Value {
    let mut object = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulSetRollout",
        "metadata": {"name": "ledger", "namespace": "prod", "uid": "ssr", "generation": 1, "resourceVersion": "9"},
        "spec": {"statefulSets": {"names": names}},
        "status": {"observedGeneration": 1, "requestedRolloutHash": "v1:a"}});
    json_patch::merge(&mut object, changes);
    object
}

async fn forecast(objects: Vec<Value>, change: Change, forbidden: &'static [&'static str]) -> Forecast {
    let client = with_objects(objects, forbidden);
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    forecast_rollout(&client, "prod", "ledger", &change, now).await.unwrap()
}

fn told(forecast: &Forecast) -> String {
    let lines = plan::lines(forecast).into_iter().map(|line| format!("{line}\n"));
    lines.collect()
}

fn waves(forecast: &Forecast) -> Vec<String> {
    let names = |wave: &super::super::MoveWave| {
        wave.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    forecast.waves.iter().map(names).collect()
}

fn nothing() -> Change {
    Change::Merge(json!({}))
}

#[tokio::test]
async fn pending_update_is_forecast_with_reason_and_order() {
    let mut objects = with_pods("ledger", ("v1", "v2"), HELD, &["v1", "v1", "v2"]);
    objects.push(rollout(&["ledger"], &json!({})));
    let forecast = forecast(objects, nothing(), &[]).await;
    assert_eq!(forecast.exit_code(), 2);
    let text = told(&forecast);
    let (head, rest) = text.split_once("  then:\n").unwrap();
    assert_eq!(
        head,
        "\
ledger   no change, but updates are pending
  pending updates:
    StatefulSet ledger: revision v1 → v2
    template.spec.containers[db].image \"db:1\" → \"db:2\"
"
    );
    assert!(rest.contains("starts (TemplateChanged)\n"), "{rest}");
    assert_eq!(
        rest.split_once('\n').unwrap().1,
        "  in this order:
    wave 1: ledger-1
    wave 2: ledger-0
    at most 1 unavailable at once; no estimate
"
    );
}

#[tokio::test]
async fn no_restart_is_forecast_at_the_update_revision() {
    let mut objects = with_pods("ledger", ("v2", "v2"), HELD, &["v2", "v2"]);
    objects.push(rollout(&["ledger"], &json!({})));
    let forecast = forecast(objects, nothing(), &[]).await;
    assert_eq!(forecast.exit_code(), 0);
    assert_eq!(
        told(&forecast),
        "ledger   no change\n  then:\n    no pod restarts: each StatefulSet is at its update revision\n"
    );
}

#[tokio::test]
async fn manifest_change_affects_forecast_waves() {
    let mut objects = with_pods("a", ("v1", "v2"), HELD, &["v1", "v1"]);
    objects.extend(with_pods("b", ("v1", "v2"), HELD, &["v1", "v1"]));
    objects.push(rollout(&["a", "b"], &json!({})));
    assert_eq!(waves(&forecast(objects.clone(), nothing(), &[]).await), ["a-1", "b-1", "a-0", "b-0"]);
    let manifest = |strategy: Value| {
        let spec = json!({"statefulSets": {"names": ["a", "b"]}, "strategy": strategy});
        Change::Apply(json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulSetRollout",
            "metadata": {"name": "ledger"}, "spec": spec}))
    };
    let wide = forecast(objects.clone(), manifest(json!({"maxUnavailable": 3})), &[]).await;
    assert_eq!(waves(&wide), ["a-1 b-1", "a-0 b-0"]);
    let text = told(&wide);
    assert!(
        text.starts_with(
            "ledger   no new target\n  applies at once:\n    strategy.maxUnavailable added: 3\n"
        ),
        "{text}"
    );
    let each = manifest(json!({"maxUnavailable": 3, "groups": "OneAtATime"}));
    assert_eq!(waves(&forecast(objects.clone(), each, &[]).await), ["a-1 a-0", "b-1 b-0"]);
    let stopped = Change::Merge(json!({"spec": {"paused": true}}));
    let stopped = forecast(objects, stopped, &[]).await;
    assert_eq!(waves(&stopped).len(), 4);
    assert!(stopped.waits[0].ends_with("before windlass resume ssr/ledger -n prod"), "{:?}", stopped.waits);
}

#[tokio::test]
async fn adopted_statefulset_is_held_without_pod_restarts() {
    const NATIVE: &str = r#"{"type": "RollingUpdate"}"#;
    let adopted = || Change::Apply(rollout(&["ledger", "later"], &json!({"status": null})));
    let objects = with_pods("ledger", ("v1", "v1"), NATIVE, &["v1", "v1", "v1"]);
    let steady = forecast(objects, adopted(), &[]).await;
    assert_eq!(
        told(&steady),
        "\
ledger   is created
  takes over:
    StatefulSet ledger, 3 pods: Windlass sets its updateStrategy so that only Windlass updates its pods; this alone restarts \
         no pod
  then:
    no pod restarts: each StatefulSet is at its update revision
  currently waits for:
    StatefulSet later does not exist yet
"
    );
    // In the middle of an update by its own controller.
    let objects = with_pods("ledger", ("v1", "v2"), NATIVE, &["v1", "v1", "v2"]);
    let pending = forecast(objects, adopted(), &[]).await;
    assert_eq!(
        (pending.exit_code(), waves(&pending)),
        (2, vec!["ledger-1".to_owned(), "ledger-0".to_owned()])
    );
    assert_eq!(pending.holds.len(), 1);
    assert_eq!(pending.pending[0].to_string(), "StatefulSet ledger: revision v1 → v2");
}

#[tokio::test]
async fn rollout_the_operator_would_refuse_is_refused() {
    let mut objects = with_pods("ledger", ("v1", "v2"), HELD, &["v1"]);
    objects[0]["metadata"]["ownerReferences"] = json!([{"apiVersion": "db.example/v1", "kind": "Cluster", "name": "own", "uid": "c", "controller": true}]);
    let refused = forecast(objects, Change::Apply(rollout(&["ledger"], &json!({}))), &[]).await;
    assert_eq!(refused.exit_code(), 1);
    assert!(refused.refused.as_deref().unwrap().contains("is controlled by Cluster own"), "{refused:?}");
}

#[tokio::test]
async fn restart_request_moves_every_pod() {
    let mut objects = with_pods("ledger", ("v1", "v1"), HELD, &["v1", "v1"]);
    let asked = json!({"metadata": {"annotations": {"windlass.dev/restartedAt": "2026-01-01T00:59:59Z"}}});
    objects.push(rollout(&["ledger"], &asked));
    let restarted = forecast(objects, nothing(), &[]).await;
    assert_eq!(waves(&restarted), ["ledger-1", "ledger-0"], "{}", told(&restarted));
    assert!(restarted.happens.contains("(RestartRequested)"), "{}", restarted.happens);
}

#[tokio::test]
async fn unavailable_pod_uses_the_budget_and_is_named() {
    let mut objects = with_pods("ledger", ("v1", "v2"), HELD, &["v1", "v1", "v2"]);
    objects.push(rollout(&["ledger"], &json!({})));
    let down = objects.iter_mut().find(|object| object["metadata"]["name"] == "ledger-2").unwrap();
    *down = pod("ledger", 2, "v2", false);
    let held = forecast(objects, nothing(), &[]).await;
    assert_eq!(waves(&held), Vec::<String>::new());
    assert!(held.waits.contains(&"ledger-2: unavailable now, of at most 1".to_owned()), "{:?}", held.waits);
}

#[tokio::test]
async fn forbidden_pods_are_omitted_and_reported() {
    let mut objects = with_pods("ledger", ("v1", "v2"), HELD, &["v1"]);
    objects.push(rollout(&["ledger"], &json!({})));
    let blind = forecast(objects, nothing(), &["pods"]).await;
    assert!(blind.waves.is_empty());
    assert!(blind.happens.contains("no right to list StatefulSets and Pods"), "{}", blind.happens);
    assert_eq!(blind.unread, ["left out, because Pods cannot be listed: pods: Forbidden"]);
}

#[tokio::test]
async fn labels_of_pods_of_other_statefulsets_do_not_matter() {
    const KEY: &str = "topology.kubernetes.io/zone";
    let remark = async |of_own: Option<&str>| {
        let mut objects = with_pods("ledger", ("v1", "v2"), HELD, &["v1", "v1"]);
        objects.extend(with_pods("cache", ("v1", "v1"), HELD, &["v1"]));
        for pod in objects.iter_mut().filter(|object| object["kind"] == "Pod") {
            pod["spec"]["nodeName"] = json!("machine");
            if let Some(zone) = of_own.filter(|_| pod["metadata"]["name"] != "cache-0") {
                pod["metadata"]["labels"][KEY] = json!(zone);
            }
        }
        let topology = json!({"spec": {"strategy": {"topology": {"key": KEY}}}});
        objects.push(rollout(&["ledger"], &topology));
        forecast(objects, nothing(), &[]).await.unread
    };
    assert_eq!(remark(Some("a")).await, [""; 0]);
    let unlabelled = remark(None).await;
    assert!(unlabelled[0].starts_with(&format!("pods have no label {KEY}")), "{unlabelled:?}");
}

#[tokio::test]
async fn hook_the_operator_would_refuse_is_refused() {
    let hook = |tls: Value| {
        let hook = json!({"name": "drain", "at": "BeforeNode", "http": {"url": "http://peer/", "tls": tls}});
        rollout(&["ledger"], &json!({"spec": {"strategy": {"hooks": [hook]}}}))
    };
    let objects = with_pods("ledger", ("v1", "v2"), HELD, &["v1"]);
    let refused = forecast(objects.clone(), Change::Apply(hook(json!({}))), &[]).await;
    assert_eq!(
        refused.refused.as_deref(),
        Some("hook drain: http.tls needs a url that begins with https://: change the url, or remove tls")
    );
    let taken = forecast(objects, Change::Apply(hook(Value::Null)), &[]).await;
    assert_eq!(
        (taken.refused, taken.unread),
        (None, vec![super::super::hooks::FLAGS_NOT_CHECKED.to_owned()])
    );
}
