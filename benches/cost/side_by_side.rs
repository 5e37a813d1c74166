//! The same roll by Windlass, by the StatefulSet controller, and by a program that does the least that one-pod
//! StatefulSets need, in turns, on one control plane.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::clock::monotonic;

use crate::bare::Bare;
use crate::controlplane::Options;
use crate::operated::{World, fleet, image};

const PODS: u32 = 100;
/// Without it the API server drops the StatefulSet's maxUnavailable, and the controller counts with 1.
const GATE: &str = "MaxUnavailableStatefulSet=true";

/// Rolls a fleet of 100 nodes and a StatefulSet of 100 pods in turns, and prints the times and their ratio.
pub async fn measure(rounds: u32) {
    let world = World::start(Options { feature_gates: GATE, ..Options::default() }).await;
    world.fleet(fleet("db", PODS, "db:0", &json!(1))).await;
    world.create("v1", "Service", json!({"metadata": {"name": "set"}, "spec": {"clusterIP": "None"}})).await;
    world.create("apps/v1", "StatefulSet", stateful_set()).await;
    world.until_applied("db").await;
    world.until(world.sets(), "set", "the StatefulSet is ready", is_rolled).await;
    let stored = world.get(&world.sets(), "set").await;
    println!("the StatefulSet's strategy as stored: {}", stored["spec"]["updateStrategy"]);

    let bare = Bare::make(&world, PODS).await;
    let mut version = 0;
    for max_unavailable in [1, 10] {
        let (mut own, mut theirs, mut least) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=rounds {
            version += 1;
            theirs.push(roll_set(&world, max_unavailable, version).await);
            least.push(bare.roll(&world, max_unavailable as usize, &format!("db:{version}")).await);
            own.push(roll_fleet(&world, max_unavailable, version).await);
            println!(
                "maxUnavailable {max_unavailable:>2}, round {round}: StatefulSet {:.2} s, least {:.2} s, Windlass {:.2} s \
                 (load {})",
                theirs[theirs.len() - 1].as_secs_f64(),
                least[least.len() - 1].as_secs_f64(),
                own[own.len() - 1].as_secs_f64(),
                crate::operated::load(),
            );
        }
        let (own, theirs, least) = (median(own), median(theirs), median(least));
        println!(
            "maxUnavailable {max_unavailable:>2}, medians: StatefulSet {theirs:.2} s, least {least:.2} s, Windlass {own:.2} s: \
             {:.2} times as long as the StatefulSet, {:.2} times as long as the least\n",
            own / theirs,
            own / least,
        );
    }
}

async fn roll_fleet(world: &World, max_unavailable: i32, version: u32) -> Duration {
    let strategy = json!({"spec": {"updateStrategy": {"inPlace": {"maxUnavailable": max_unavailable}}}});
    world.patch(&world.fleets(), "db", strategy).await;
    world.until_applied("db").await;
    let began = monotonic();
    world.patch(&world.fleets(), "db", image(&format!("db:{version}"))).await;
    world.until_applied("db").await;
    began.elapsed()
}

async fn roll_set(world: &World, max_unavailable: i32, version: u32) -> Duration {
    let strategy =
        json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": max_unavailable}}}});
    world.patch(&world.sets(), "set", strategy).await;
    world.until(world.sets(), "set", "the strategy is seen", is_rolled).await;
    let began = monotonic();
    let containers = json!([{"name": "db", "image": format!("db:{version}")}]);
    world
        .patch(&world.sets(), "set", json!({"spec": {"template": {"spec": {"containers": containers}}}}))
        .await;
    world.until(world.sets(), "set", "the StatefulSet is rolled", is_rolled).await;
    began.elapsed()
}

fn stateful_set() -> Value {
    json!({
        "metadata": {"name": "set"},
        "spec": {
            "replicas": PODS,
            "serviceName": "set",
            "selector": {"matchLabels": {"app": "set"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {"app": "set"}},
                "spec": {"containers": [{"name": "db", "image": "db:0"}]},
            },
        },
    })
}

/// Whether every pod of the StatefulSet is at the template that it now has, and available.
fn is_rolled(set: &Value) -> bool {
    let status = &set["status"];
    status["observedGeneration"] == set["metadata"]["generation"]
        && status["updateRevision"] == status["currentRevision"]
        && ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().all(|f| status[f] == PODS)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}
