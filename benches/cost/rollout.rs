//! The creation and rollout of a fleet: duration, writes per node, the operator's resources.

use serde_json::json;
use windlass::clock::monotonic;

use crate::counts::{
    print_by_cost, print_by_kind, print_fleet_status, print_lists_of_events, print_per_node,
};
use crate::cpu::Cpu;
use crate::template::{fleet, print_size};
use windlass_harness::controlplane::Options;
use windlass_harness::operated::{World, image};

/// Creates a fleet of this size, rolls it once, and prints the cost.
pub async fn measure(nodes: u32, max_unavailable: &str) {
    print_size();
    let world = World::start(Options::default()).await;
    let mark = world.cp.audit_mark().await;
    println!(
        "a fleet of {nodes} nodes, maxUnavailable {max_unavailable}; operator in MiB: {}",
        world.memory("VmRSS")
    );

    let began = monotonic();
    world.fleet(fleet("db", nodes, &json!(max_unavailable))).await;
    world.until_applied("db").await;
    let audit = world.operator_audit(mark).await;
    print_lists_of_events(&audit);
    let audit = audit.writes();
    println!("\n== made in {:.1} s", began.elapsed().as_secs_f64());
    report(&world, &audit, nodes).await;

    // Let pending events be sent first.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let (mark, cpu) = (world.cp.audit_mark().await, Cpu::now(&world));
    let before = world.reconciles().await;
    let began = monotonic();
    world.patch(&world.fleets(), "db", image("db:2")).await;
    world.until_applied("db").await;
    let took = began.elapsed().as_secs_f64();
    let cpu = Cpu::since(&world, &cpu, &Cpu::default(), 0.0);
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let everyone = world.cp.audit_since(mark).await;
    let audit = world.operator_audit(mark).await;
    println!("\n== rolled in {took:.1} s; CPU: {cpu}; reconciles before:");
    print_lines(&before);
    print_lists_of_events(&audit);
    print_by_cost("requests of everybody", &everyone);
    print_by_kind("all requests", &audit);
    report(&world, &audit.writes(), nodes).await;
}

async fn report(world: &World, writes: &windlass_harness::controlplane::Audit, nodes: u32) {
    print_by_kind("writes carried out", writes);
    println!();
    print_per_node(writes, nodes);
    print_fleet_status(writes);
    let fleet = world.get(&world.fleets(), "db").await;
    let bare = json!({"metadata": {"name": "db"}, "spec": fleet["spec"], "status": fleet["status"]});
    println!("  the fleet object without managedFields: {} bytes", bare.to_string().len());
    let node = world.get(&world.api("windlass.dev/v1alpha1", "StatefulNode"), "db-0").await;
    println!("  a node's status: {} bytes", node["status"].to_string().len());
    println!("  operator: now {}, at most {}", world.memory("VmRSS"), world.memory("VmHWM"));
    print_lines(&world.reconciles().await);
}

fn print_lines(lines: &[String]) {
    for line in lines {
        println!("  {line}");
    }
}
