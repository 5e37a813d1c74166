//! Failure domains and the order of updates, with the zones that the API server copies to pods.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::commands::windlass;
use super::machines::Machines;
use windlass_harness::kit::{Wave, World, condition, fleet, is_applied, with};

const ZONE: &str = "topology.kubernetes.io/zone";

/// A fleet of six nodes, two on each of three machines.
async fn in_zones(world: &World, in_place: Value) -> Value {
    let spread = json!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"windlass.dev/deployment": "db"}}}]);
    let mut pod = Machines::placement(world);
    pod["topologySpreadConstraints"] = spread;
    let strategy = json!({"spec": {
        "updateStrategy": {"inPlace": in_place},
        "template": {"spec": {"podTemplate": {"spec": pod}}},
    }});
    world.settled_fleet(with(fleet(6, "db:1"), &strategy)).await
}

/// The zone of each pod.
async fn zones(world: &World) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = world.list(&world.pods()).await;
    pods.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["labels"][ZONE]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_are_updated_one_after_another_and_the_primary_last() {
    let world = World::new("zones").await;
    let machines = Machines::add(&world, &["a", "b", "c"]).await;
    in_zones(
        &world,
        json!({
            "topology": {"key": ZONE, "maxUnavailable": "100%"},
            "order": {"last": {"podLabels": {"role": "primary"}}},
        }),
    )
    .await;
    let zones = zones(&world).await;
    assert_eq!(zones.len(), 6, "{zones:?}");
    assert!(
        ["a", "b", "c"].iter().all(|zone| zones.values().filter(|of| *of == zone).count() == 2),
        "{zones:?}"
    );
    let label = world.cp.kubectl(&["-n", &world.ns, "label", "pod", "db-5-0", "role=primary"]).await;
    label.ok();
    let told = windlass(&world, &["plan", "nd/db", "--image", "db:2"]).await.out;
    let whole =
        |zone: &str| told.lines().any(|line| line.contains("wave ") && line.contains(&format!("({zone}): ")));
    assert!(whole("a") && whole("b") && whole("c"), "{told}");
    assert!(told.contains("db-5 (updated last)"), "{told}");
    assert!(
        told.contains(
            "at most 100% of the nodes of at most 1 domain of topology.kubernetes.io/zone unavailable at once"
        ),
        "{told}"
    );
    let wave = Wave::watch(&world, 6).await;
    world.set_image("db:2").await;
    world.until_db("it is complete", |db| is_applied(db) && db["status"]["updatedReplicas"] == 6).await;
    let seen = wave.at_most(2).await;
    assert_eq!(seen.went.len(), 6, "{:#?}", seen.log);
    assert_eq!(seen.went.last().map(String::as_str), Some("db-5-0"), "{:#?}", seen.log);
    // Each zone is visited once, except that of the primary.
    let mut visited: Vec<&str> = seen.went.iter().map(|pod| zones[pod].as_str()).collect();
    visited.dedup();
    assert!(visited.len() <= 4, "{visited:?} {:#?}", seen.log);
    machines.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_is_read_from_machines_if_the_operator_may_read_them() {
    let mut world = World::without_operator("racks").await;
    let machines = Machines::add(&world, &["a", "b"]).await;
    Machines::grant(&world).await;
    world.start_operator(&[]).await;
    let strategy = json!({"topology": {"key": "windlass.test/of", "maxUnavailable": "100%"}});
    in_zones(&world, strategy).await;
    // That label is on the machines only.
    let unknown = |db: &Value| condition(db, "TopologyKnown") == "False/LabelMissing";
    world.until_db("the domains are not known", unknown).await;
    let status = windlass(&world, &["status", "nd/db"]).await.out;
    assert!(status.contains("have no label windlass.test/of"), "{status}");
    world.kill_operator().await;
    world.start_operator(&["--topology-from-nodes"]).await;
    world.until_db("the domains are known", |db| condition(db, "TopologyKnown").is_empty()).await;
    machines.remove().await;
}
