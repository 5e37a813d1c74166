//! One fleet made and rolled: how long it takes, what is written for each node, what the operator needs.

use serde_json::json;
use tokio::time::Instant;

use crate::counts::{print_by_kind, print_fleet_status, print_per_node};
use crate::operated::{World, fleet, image};

/// Makes a fleet of so many nodes, rolls it once, and prints what that took.
pub async fn measure(nodes: u32, max_unavailable: &str) {
    let world = World::start().await;
    let mark = world.cp.audit_mark().await;
    println!(
        "a fleet of {nodes} nodes, maxUnavailable {max_unavailable}; operator in MiB: {}",
        world.memory("VmRSS")
    );

    let began = Instant::now();
    world.fleet(fleet("db", nodes, "db:1", &json!(max_unavailable))).await;
    world.until_applied("db").await;
    let audit = world.operator_audit(mark).await.writes();
    println!("\n== made in {:.1} s", began.elapsed().as_secs_f64());
    report(&world, &audit, nodes).await;

    // What follows is the rollout alone: events that wait to be sent are let out first.
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let (mark, cpu) = (world.cp.audit_mark().await, world.cpu_seconds());
    let before = world.reconciles().await;
    let began = Instant::now();
    world.patch(&world.fleets(), "db", image("db:2")).await;
    world.until_applied("db").await;
    let took = began.elapsed().as_secs_f64();
    let cpu = world.cpu_seconds() - cpu;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let audit = world.operator_audit(mark).await;
    println!("\n== rolled in {took:.1} s; the operator took {cpu:.1} s of CPU; reconciles before:");
    before.iter().for_each(|line| println!("  {line}"));
    print_by_kind("all requests", &audit);
    report(&world, &audit.writes(), nodes).await;
}

async fn report(world: &World, writes: &crate::controlplane::Audit, nodes: u32) {
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
    world.reconciles().await.iter().for_each(|line| println!("  {line}"));
}
