//! The cost of many objects at rest.

use std::time::Duration;

use serde_json::json;

use crate::stage::{NAMESPACE, Stage, spec};

/// How long they are measured, in minutes.
const MINUTES: u64 = 10;

/// Prints the numbers of docs/dev/cost.md for `WINDLASS_IDLE_WORKERS` objects (default: 10).
#[tokio::test(start_paused = true)]
#[allow(clippy::cast_precision_loss, reason = "counts are small")]
async fn idle_deployment_is_described_every_30_to_40_s_without_writes() {
    let many: usize =
        std::env::var("WINDLASS_IDLE_WORKERS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let s = Stage::new();
    for number in 0..many {
        let object = json!({
            "apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment",
            "metadata": {"name": format!("orders-{number}"), "namespace": NAMESPACE}, "spec": spec("v1"),
        });
        let params = kube::api::PostParams::default();
        s.api("WorkerDeployment").create(&params, &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    s.until("all are up to date", |s| {
        let all = s.cluster.snapshot_of(NAMESPACE, &["WorkerDeployment"]);
        let is_up = |object: &serde_json::Value| {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            conditions.clone().any(|c| c["type"] == "UpToDate" && c["status"] == "True")
        };
        all.len() == many && all.iter().all(is_up)
    })
    .await;
    // They are requeued sooner for two minutes after the last change.
    s.seconds(180).await;
    let (calls, describes, version) = (s.temporal.calls(), s.temporal.describes(), s.cluster.version());
    let requests = s.cluster.audit_len();
    tokio::time::sleep(Duration::from_secs(MINUTES * 60)).await;
    let (calls, describes) = (s.temporal.calls() - calls, s.temporal.describes() - describes);
    let of_operator = |entry: &&windlass_sim::AuditEntry| entry.user_agent == "operator";
    let asked = s.cluster.audit_after(requests).iter().filter(of_operator).count();
    let a_minute = |count: f64| count / MINUTES as f64;
    println!(
        "{many} at rest: {:.1} descriptions, {:.1} calls of Temporal and {:.1} requests to the API server a minute",
        a_minute(describes as f64),
        a_minute(calls as f64),
        a_minute(asked as f64),
    );
    let mut writes = Vec::new();
    s.cluster.replay(version, |step| writes.push(format!("{:?}", step.after)));
    assert_eq!(writes, Vec::<String>::new(), "at rest nothing is written");
    let many = many as u64;
    let (least, most) = (many * MINUTES * 60 / 41, many * MINUTES * 60 / 30 + many);
    assert!(
        (least..=most).contains(&describes),
        "{describes} descriptions in {MINUTES} min, of {least} to {most}"
    );
    // Pollers are counted every two minutes: two calls per task queue.
    assert!(calls - describes <= many * (MINUTES / 2 + 1) * 2, "{} other calls", calls - describes);
}
