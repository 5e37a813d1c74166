//! The operator's memory, CPU and requests per node for a fleet with a realistic template: during creation, a
//! rollout, at rest and after a restart. On the real control plane; `simulated.rs` has more nodes than that handles
//! in an hour. Results are printed as they come, so that an interrupted run has some.

use std::time::Duration;

use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};
use windlass::clock::{Clock, SystemClock, monotonic};

use crate::counts::print_by_kind;
use crate::template;
use crate::watched::Watched;
use windlass_harness::controlplane::{Mark, Options};
use windlass_harness::operated::{World, image, is_applied, load};

/// The image of the second rollout.
const NEXT: &str = "db:next";
/// The interval of progress messages.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// From how many nodes on the cluster is that of a large fleet.
const MANY: u32 = 5_000;
/// The pods of a machine there, as on a real one.
const PODS_A_MACHINE: u32 = 100;
/// How long after a rollout its late work, mostly events, is done.
const SETTLE: Duration = Duration::from_secs(15);

/// A fleet of nodes with the template, and a volume claim each.
pub fn fleet(nodes: u32) -> Value {
    let mut fleet = template::fleet("db", nodes, &json!("10%"));
    fleet["apiVersion"] = json!("windlass.dev/v1alpha1");
    fleet["kind"] = json!("NodeDeployment");
    let spec = &mut fleet["spec"]["template"]["spec"];
    spec["ports"] = json!([{"name": "db", "port": 5432}]);
    spec["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "state"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    fleet
}

/// Creates this many nodes, rolls them once if asked, restarts the operator with work to do, and measures it at rest.
pub async fn measure(nodes: u32, rolls: bool, idle: Duration) {
    let mut world = World::start(if nodes < MANY { Options::default() } else { large(nodes) }).await;
    template::print_size();
    println!("{nodes} nodes on the real control plane; the operator before: {}", watched(&world));

    let phase = Phase::begin(&world, "made", nodes).await;
    world.fleet(fleet(nodes)).await;
    phase.end(&world).await;

    if rolls {
        let phase = Phase::begin(&world, "rolled", nodes).await;
        world.patch(&world.fleets(), "db", image(NEXT)).await;
        phase.end(&world).await;
    }
    println!("\n== at rest: {}; load {}", watched(&world), load());

    restart(&mut world, nodes).await;
    rest(&world, idle).await;
}

/// A control plane for this many nodes on two cores. With three machines the scheduler took 0.4 cores at 5 pods a
/// second, with a hundred it takes 0.1 at 11; and for each change of a pod the controllers of endpoints look at every
/// Service of its namespace, of which each node has one.
fn large(nodes: u32) -> Options {
    Options {
        nodes: nodes.div_ceil(PODS_A_MACHINE),
        without: "endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller",
        ..Options::default()
    }
}

/// Kills the operator, removes a node (10,000 are the most of a fleet), and starts it again.
async fn restart(world: &mut World, nodes: u32) {
    world.kill_operator().await;
    world.patch(&world.fleets(), "db", json!({"spec": {"replicas": nodes - 1}})).await;
    let mark = world.cp.audit_mark().await;
    let started = SystemClock.now();
    let cpu = start_operator_and_take_cpu(world).await;
    println!("\n== started again over them; ready after {} ms, {cpu:.2} s of CPU", since(started));
    let first = loop {
        let writes = world.operator_audit(mark).await.writes();
        if let Some(first) = writes.entries().first() {
            break first.clone();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let at = chrono::DateTime::parse_from_rfc3339(&first.request_received_timestamp).expect("a time");
    let after = (at.to_utc() - started).num_milliseconds();
    println!("start to first action: {after} ms ({} {})", first.verb, first.object_ref.resource);
    until_applied(world, &world.fleets(), "up again").await;
    tokio::time::sleep(SETTLE).await;
    println!("after it: {}", watched(world));
}

/// Milliseconds since a time.
fn since(began: chrono::DateTime<chrono::Utc>) -> i64 {
    (SystemClock.now() - began).num_milliseconds()
}

/// Measures at rest.
async fn rest(world: &World, idle: Duration) {
    let (mark, cpu, began) = (world.cp.audit_mark().await, world.cpu_seconds(), monotonic());
    println!("\n== at rest for {} s", idle.as_secs());
    while began.elapsed() < idle {
        tokio::time::sleep(SAY_EVERY.min(idle.saturating_sub(began.elapsed()))).await;
        println!("  {:>5.0} s: {}", began.elapsed().as_secs_f64(), watched(world));
    }
    let audit = world.operator_audit(mark).await;
    println!("CPU {:.2} s; writes: {}", world.cpu_seconds() - cpu, audit.clone().writes().count());
    print_by_kind("requests at rest", &audit);
}

/// A measured operation on all nodes of the fleet.
struct Phase {
    name: &'static str,
    nodes: u32,
    mark: Mark,
    cpu: f64,
    began: tokio::time::Instant,
}

impl Phase {
    async fn begin(world: &World, name: &'static str, nodes: u32) -> Self {
        let (mark, cpu) = (world.cp.audit_mark().await, world.cpu_seconds());
        Self { name, nodes, mark, cpu, began: monotonic() }
    }

    async fn end(self, world: &World) {
        until_applied(world, &world.fleets(), self.name).await;
        let took = self.began.elapsed().as_secs_f64();
        tokio::time::sleep(SETTLE).await;
        let nodes = f64::from(self.nodes);
        let cpu = world.cpu_seconds() - self.cpu;
        println!("\n== {} in {took:.1} s; load {}", self.name, load());
        println!("CPU: {cpu:.1} s, {:.2} ms a node; {}", cpu * 1e3 / nodes, watched(world));
        let audit = world.operator_audit(self.mark).await;
        let calls = f64::from(u32::try_from(audit.count()).unwrap_or(u32::MAX));
        println!("API calls: {:.2} a node", calls / nodes);
        print_by_kind("requests", &audit);
        for line in world.reconciles().await {
            println!("  {line}");
        }
    }
}

/// Waits without limit until the fleet is up to date; prints its progress.
async fn until_applied(world: &World, fleets: &Api<DynamicObject>, what: &str) {
    let (began, mut said) = (monotonic(), monotonic());
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // A busy API server may time out, which is harmless.
        let Ok(found) = fleets.get("db").await.map(|fleet| json!(fleet)) else { continue };
        if is_applied(&found) {
            return;
        }
        if said.elapsed() > SAY_EVERY {
            said = monotonic();
            println!(
                "  {what}: {:>5.0} s: {}; {}",
                began.elapsed().as_secs_f64(),
                far(&found),
                watched(world)
            );
        }
    }
}

/// The progress of a fleet.
pub fn far(fleet: &Value) -> String {
    let status = &fleet["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    format!(
        "{} nodes, {} updated, {} ready",
        count("replicas"),
        count("updatedReplicas"),
        count("readyReplicas")
    )
}

/// The operator that runs.
fn watched(world: &World) -> Watched {
    Watched(world.operator_pid())
}

async fn start_operator_and_take_cpu(world: &mut World) -> f64 {
    world.start_operator().await;
    world.cpu_seconds()
}
