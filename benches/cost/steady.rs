//! Steady fleets of every kind: nothing may be written over any time, nor after a restart.

use std::time::Duration;

use kube::api::ListParams;
use serde_json::{Value, json};

use crate::counts::print_by_kind;
use windlass_harness::controlplane::Options;
use windlass_harness::operated::{World, condition, fleet, image};

const NODES: u32 = 20;
/// How long the operator is watched after a restart.
const AFTER_RESTART: Duration = Duration::from_mins(1);
/// How long until earlier work is over, including the safety net for a pending status write.
const SETTLE: Duration = Duration::from_secs(20);

/// Creates steady fleets, restarts the operator, and counts the writes within this many minutes.
pub async fn measure(minutes: u32) {
    let mut world = World::start(Options::default()).await;
    make(&world).await;
    tokio::time::sleep(SETTLE).await;
    print_fleets(&world).await;

    let (pods, mark) = (world.pod_uids().await, world.cp.audit_mark().await);
    world.kill_operator().await;
    world.start_operator().await;
    tokio::time::sleep(AFTER_RESTART).await;
    let audit = world.operator_audit(mark).await;
    println!("\n== the operator was killed and started again, and watched for {} s", AFTER_RESTART.as_secs());
    report(&world, &audit, &pods).await;

    let (cpu, began) = (world.cpu_seconds(), world.cp.audit_mark().await);
    tokio::time::sleep(Duration::from_secs(60 * u64::from(minutes))).await;
    let audit = world.operator_audit(began).await;
    println!(
        "\n== {minutes} minutes over steady fleets; the operator took {:.2} s of CPU",
        world.cpu_seconds() - cpu
    );
    report(&world, &audit, &pods).await;
    println!("operator: now {}, at most {}", world.memory("VmRSS"), world.memory("VmHWM"));
    print_fleets(&world).await;
}

async fn report(world: &World, audit: &windlass_harness::controlplane::Audit, pods: &[String]) {
    print_by_kind("all requests", audit);
    print_by_kind("writes carried out", &audit.clone().writes());
    println!("pods replaced: {}", if world.pod_uids().await == pods { "none" } else { "SOME" });
}

/// Four fleets: a plain one with a Service, one with claims, one whose spec is refused, one that was aborted during
/// its rollout.
async fn make(world: &World) {
    let with = |name: &str| fleet(name, NODES, "db:1", &json!(5));
    let mut plain = with("plain");
    plain["spec"]["service"] = json!({"ports": [{"name": "db", "port": 5432}]});
    world.fleet(plain).await;
    let mut claims = with("claims");
    claims["spec"]["template"]["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    claims["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
    world.fleet(claims).await;
    world.fleet(with("invalid")).await;
    // Its nodes stay blocked: that is reported once, before the measurement.
    let mut rejected = with("rejected");
    rejected["spec"]["template"]["spec"]["progressDeadlineSeconds"] = json!(5);
    world.fleet(rejected).await;
    for name in ["plain", "claims", "invalid", "rejected"] {
        world.until_applied(name).await;
    }
    world.patch(&world.fleets(), "plain", image("db:2")).await;
    let containers = json!([{"name": "db", "image": "db:2", "imagePullPolice": "Always"}]);
    let misspelt =
        json!({"spec": {"template": {"spec": {"podTemplate": {"spec": {"containers": containers}}}}}});
    world.patch(&world.fleets(), "invalid", misspelt).await;
    world.patch(&world.fleets(), "rejected", image("db:nope")).await;
    world.until_applied("plain").await;
    let refused = |fleet: &Value| condition(fleet, "UpToDate") == "False/InvalidSpec";
    world.until(world.fleets(), "invalid", "the spec is refused", refused).await;
    let stuck = |fleet: &Value| fleet["status"]["rollout"]["nodes"]["failed"].as_i64() >= Some(5);
    world.until(world.fleets(), "rejected", "five nodes fail", stuck).await;
    let plan = world.get(&world.fleets(), "rejected").await["status"]["plan"]["id"].clone();
    let abort = json!({"metadata": {"annotations": {"windlass.dev/abort": plan}}});
    world.patch(&world.fleets(), "rejected", abort).await;
    let aborted = |fleet: &Value| condition(fleet, "UpToDate") == "False/Aborted";
    world.until(world.fleets(), "rejected", "the target is rejected", aborted).await;
}

async fn print_fleets(world: &World) {
    println!("\nfleets:");
    for fleet in world.fleets().list(&ListParams::default()).await.expect("a list").items {
        let fleet = json!(fleet);
        let status = &fleet["status"];
        println!(
            "  {:<9} phase {:<9} nodes {} ready {} updated {}  UpToDate {}",
            fleet["metadata"]["name"].as_str().unwrap_or_default(),
            status["phase"].as_str().unwrap_or_default(),
            status["replicas"],
            status["readyReplicas"],
            status["updatedReplicas"],
            condition(&fleet, "UpToDate"),
        );
    }
}
