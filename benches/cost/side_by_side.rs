//! The same rollout by Windlass, by the StatefulSet controller, and by a minimal program for one-pod StatefulSets, in
//! turns on one control plane: duration, and CPU time of the API server.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use windlass::clock::monotonic;

use crate::bare::Bare;
use crate::counts::print_by_cost;
use crate::cpu::{Cpu, SETTLE};
use crate::template::{fleet, print_size, set_image, template};
use windlass_harness::controlplane::{Mark, Options};
use windlass_harness::operated::{World, image};

const PODS: u32 = 100;
/// Without it the API server drops maxUnavailable of StatefulSets, and the controller uses 1.
const GATE: &str = "MaxUnavailableStatefulSet=true";

/// The cost of one rollout.
#[derive(Clone, Copy, Debug)]
struct Took {
    seconds: f64,
    cpu: Cpu,
}

/// A contender, with its cost in every round.
struct Lane {
    name: &'static str,
    took: Vec<Took>,
}

/// Rolls a fleet of 100 nodes, a StatefulSet of 100 pods and 100 bare StatefulSets in turns, and prints the costs.
pub async fn measure(rounds: u32) {
    print_size();
    let world = World::start(Options { feature_gates: GATE, ..Options::default() }).await;
    world.fleet(fleet("db", PODS, &json!(1))).await;
    // Its pods' names need a headless Service, as each node and each bare StatefulSet has one.
    let service = json!({"metadata": {"name": "set"}, "spec": {
        "clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": "set"}}});
    world.create("v1", "Service", service).await;
    world.create("apps/v1", "StatefulSet", stateful_set()).await;
    world.until_applied("db").await;
    world.until(world.sets(), "set", "the StatefulSet is ready", is_rolled).await;
    let stored = world.get(&world.sets(), "set").await;
    println!("the StatefulSet's strategy as stored: {}", stored["spec"]["updateStrategy"]);

    let bare = Bare::make(&world, PODS).await;
    tokio::time::sleep(SETTLE).await;
    let rest = Cpu::at_rest(&world).await;
    println!("a second at rest: {rest}");
    let mut version = 0;
    for max_unavailable in [1, 10] {
        let lane = |name| Lane { name, took: Vec::new() };
        let [mut set, mut least, mut own] = [lane("StatefulSet"), lane("least"), lane("Windlass")];
        for round in 1..=rounds {
            version += 1;
            let marks = [
                Box::pin(set.roll(
                    &world,
                    &rest,
                    prepare_set(&world, max_unavailable),
                    roll_set(&world, version),
                ))
                .await,
                Box::pin(least.roll(&world, &rest, async {}, async {
                    bare.roll(&world, max_unavailable as usize, &format!("db:{version}")).await;
                }))
                .await,
                Box::pin(own.roll(
                    &world,
                    &rest,
                    prepare_fleet(&world, max_unavailable),
                    roll_fleet(&world, version),
                ))
                .await,
                world.cp.audit_mark().await,
            ];
            println!(
                "maxUnavailable {max_unavailable}, round {round}, load {}",
                windlass_harness::operated::load()
            );
            for lane in [&set, &least, &own] {
                let took = lane.took[lane.took.len() - 1];
                println!("  {:<12} {:.2} s; {}", lane.name, took.seconds, took.cpu);
            }
            if round == rounds {
                print_requests(&world, marks);
            }
        }
        let median_of = |lane: &Lane, what: fn(&Took) -> f64| median(lane.took.iter().map(what).collect());
        for (what, of) in
            [("time", (|t| t.seconds) as fn(&Took) -> f64), ("CPU of the API server", |t| t.cpu.api_server)]
        {
            let (theirs, least, own) = (median_of(&set, of), median_of(&least, of), median_of(&own, of));
            println!(
                "maxUnavailable {max_unavailable:>2}, {what}, medians of {rounds}: StatefulSet {theirs:.2} s, least {least:.2} s, \
                 Windlass {own:.2} s: {:.2} times the StatefulSet's, {:.2} times the least",
                own / theirs,
                own / least,
            );
        }
        println!();
    }
}

impl Lane {
    /// Rolls once, and waits until everything is at rest. Returns the audit log's position at the start.
    async fn roll(
        &mut self,
        world: &World,
        rest: &Cpu,
        prepared: impl Future<Output = ()>,
        rolled: impl Future<Output = ()>,
    ) -> Mark {
        prepared.await;
        tokio::time::sleep(SETTLE).await;
        let mark = world.cp.audit_mark().await;
        let (before, began) = (Cpu::now(world), monotonic());
        rolled.await;
        let seconds = began.elapsed().as_secs_f64();
        tokio::time::sleep(SETTLE).await;
        let cpu = Cpu::since(world, &before, rest, began.elapsed().as_secs_f64());
        self.took.push(Took { seconds, cpu });
        mark
    }
}

fn print_requests(world: &World, marks: [Mark; 4]) {
    let [set, least, own, end] = marks;
    for (title, from, to) in [("StatefulSet", set, least), ("least", least, own), ("Windlass", own, end)] {
        print_by_cost(&format!("requests: {title}"), &world.cp.audit_between(from, to));
    }
    println!();
}

async fn prepare_fleet(world: &World, max_unavailable: i32) {
    let strategy = json!({"spec": {"updateStrategy": {"inPlace": {"maxUnavailable": max_unavailable}}}});
    world.patch(&world.fleets(), "db", strategy).await;
    world.until_applied("db").await;
}

async fn roll_fleet(world: &World, version: u32) {
    world.patch(&world.fleets(), "db", image(&format!("db:{version}"))).await;
    world.until_applied("db").await;
}

async fn prepare_set(world: &World, max_unavailable: i32) {
    let strategy =
        json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": max_unavailable}}}});
    world.patch(&world.sets(), "set", strategy).await;
    world.until(world.sets(), "set", "the strategy is seen", is_rolled).await;
}

async fn roll_set(world: &World, version: u32) {
    let patch = Patch::Strategic(set_image(&format!("db:{version}")));
    world.sets().patch("set", &PatchParams::default(), &patch).await.expect("the patch is accepted");
    world.until(world.sets(), "set", "the StatefulSet is rolled", is_rolled).await;
}

fn stateful_set() -> Value {
    json!({
        "metadata": {"name": "set"},
        "spec": {
            "replicas": PODS,
            "serviceName": "set",
            "selector": {"matchLabels": {"app": "set"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": template(&json!({"app": "set"}), "db:0"),
        },
    })
}

/// True if every pod of the StatefulSet is at its template, and available.
fn is_rolled(set: &Value) -> bool {
    let status = &set["status"];
    status["observedGeneration"] == set["metadata"]["generation"]
        && status["updateRevision"] == status["currentRevision"]
        && ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().all(|f| status[f] == PODS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
