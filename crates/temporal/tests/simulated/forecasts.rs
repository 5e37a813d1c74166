//! The forecast of a spec, from the status and the objects of the cluster alone, is what the operator then does.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_clock::Clock;
use windlass_core::observed::{Observed, ObservedObject};
use windlass_kube_port::{Kind, KubeCluster, View};
use windlass_temporal::children::Children;
use windlass_temporal::connect;
use windlass_temporal::observe::{self, Read};
use windlass_temporal::planner::WorkerSecrets;
use windlass_temporal::planner::decide::AnnotationRequests;
use windlass_temporal::planner::forecast::{Forecast, Takeover, forecast, recorded};
use windlass_temporal::planner::{Decision, Target};
use windlass_temporal::port::BuildId;

use crate::stage::{NAME, NAMESPACE, Stage, spec, template};

/// The forecast of a merge patch.
fn forecast_of(s: &Stage, patch: &Value) -> Forecast {
    let mut object = s.object().unwrap();
    json_patch::merge(&mut object, patch);
    let view = View::shared();
    for (kind, name) in [(Kind::Deployment, "Deployment"), (Kind::ControllerRevision, "ControllerRevision")] {
        for child in s.cluster.snapshot_of(NAMESPACE, &[name]) {
            view.observe(kind, &child);
        }
    }
    let read = Read::of(Arc::new(ObservedObject::read(&object)));
    let spec = read.spec.clone().unwrap();
    let cluster = Arc::new(KubeCluster::new(s.client(), View::shared()));
    let children = Children::read(cluster, &view, NAMESPACE, NAME, Arc::default());
    let described = recorded(&read.status, &Target::of(&spec));
    let connection = connect::recorded(&spec.connection, read.status.connection.as_ref());
    let facts =
        observe::facts_of(&read, spec, connection, WorkerSecrets::default(), &children, Ok(described));
    let plan = read.status.plan.as_ref().map(|plan| plan.parse().unwrap());
    forecast(&facts, plan.as_ref(), &AnnotationRequests::default(), s.clock.now())
}

/// Type and parameters of each task of a plan.
fn tasks(plan: &Value) -> Vec<(Value, Value)> {
    let tasks = plan["tasks"].as_array().cloned().unwrap_or_default();
    let params = |task: &Value| task["params"].as_object().filter(|all| !all.is_empty()).cloned();
    tasks.iter().map(|task| (task["type"].clone(), json!(params(task)))).collect()
}

/// Makes a change, and checks that the operator begins the plan of its forecast.
async fn change(s: &Stage, takeover: Takeover, patch: Value) {
    let forecast = forecast_of(s, &patch);
    assert_eq!(forecast.takeover, takeover, "{patch}: {:?}", forecast.decision);
    let expected = tasks(&json!(forecast.plan.unwrap()));
    let before = s.status()["plan"]["id"].clone();
    s.patch(patch).await;
    s.until("a rollout starts", |s| s.status()["plan"]["id"] != before).await;
    assert_eq!(tasks(&s.status()["plan"]), expected);
}

#[tokio::test(start_paused = true)]
async fn forecast_matches_the_plan_that_the_operator_then_makes() {
    let mut spec = spec("v1");
    spec["rollout"]["gate"] = json!({"workflowType": "Check", "timeoutSeconds": 60,
        "inputFrom": {"configMapKeyRef": {"name": "smoke", "key": "input"}}});
    spec["sunset"] = json!({"scaleDownDelaySeconds": 3600, "deleteDelaySeconds": 7200});
    let smoke = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "smoke", "namespace": NAMESPACE},
        "data": {"input": "{}"}});
    let s = Stage::new();
    s.cluster.install(smoke).unwrap();
    s.create(spec).await;
    let v1 = s.target().await;
    s.until_current(&v1).await;
    let to = |tag: &str| json!({"spec": {"template": template(tag)}});
    let nothing = forecast_of(&s, &json!({}));
    assert_eq!((nothing.takeover, nothing.decision, nothing.plan), (Takeover::None, Decision::Keep, None));

    // Another target during the ramp: the ramp is cleared first.
    change(&s, Takeover::NewVersion, to("v2")).await;
    s.until("it ramps", |s| s.status()["rampPercent"] == 5).await;
    change(&s, Takeover::NewVersion, to("v3")).await;
    s.until("v3 is current", |s| s.condition("UpToDate") == "True/Applied").await;

    // Back, and then to the version that only ramped.
    change(&s, Takeover::AtOnce, to("v1")).await;
    s.until_current(&v1).await;
    change(&s, Takeover::NewVersion, to("v2")).await;
    s.until("v2 is current", |s| s.condition("UpToDate") == "True/Applied").await;

    // A fixed build ID, and another template under it.
    let fixed = |tag: &str| json!({"spec": {"unsafeCustomBuildID": "fixed", "rollout": {"strategy": "Manual"}, "template": template(tag)}});
    change(&s, Takeover::NewVersion, fixed("v4")).await;
    let hash = s.status()["requestedRolloutHash"].clone();
    s.patch(json!({"spec": {"forcePromote": hash}})).await;
    s.until_current(&BuildId::new("fixed")).await;
    change(&s, Takeover::InPlace, fixed("v5")).await;

    // At the limit of versions nothing starts.
    let limited = json!({"spec": {"maxVersions": 1, "unsafeCustomBuildID": "another"}});
    let refused = forecast_of(&s, &limited);
    assert_eq!(refused.decision, Decision::End, "of the active rollout");
    assert_eq!(refused.plan, None);
}
