//! F13: many objects when the operator starts, and a status near its limit.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::catalogue::oracles;
use crate::catalogue::scenario::{NAMESPACE, Scenario};
use crate::catalogue::world::World;

/// The size limit of the objects of a fleet of 10,000 nodes.
const FLEET_BYTES: usize = 256 * 1024;
const NODE_BYTES: usize = 16 * 1024;

/// The history of the cluster, in changes: more than any watch lags, and far fewer than there are. All changes of
/// 1,000 nodes would take 0.7 GB.
const REMEMBERED: usize = 50_000;

/// Creates a fleet of this size, all nodes at once, then starts another operator.
pub fn start_over(nodes: i64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut scenario = Scenario::named("in-place/create/3");
        scenario.nodes = nodes;
        let mut world = World::remembering(scenario.clone(), 1, REMEMBERED);
        let first = world.start_operator();
        let mut object = scenario.object();
        object["spec"]["updateStrategy"]["inPlace"]["maxUnavailable"] = json!("100%");
        world.create(object).await;
        until_well(&world).await;
        first.task.abort();

        let entries = world.cluster.audit_len();
        let second = world.start_operator();
        sleep(Duration::from_mins(30)).await;
        let audit = world.cluster.audit_after(entries);
        let writes: Vec<_> = audit.iter().filter(|e| e.is_write()).collect();
        assert!(writes.is_empty(), "{} writes at start-up: {:?}", writes.len(), writes.first());
        let reconciles = oracles::reconciles(&second.health);
        let bound = 8 * (nodes as u64 + 1);
        assert!(reconciles <= bound, "{reconciles} reconciles in half an hour; at most {bound}");

        // Every node is unconverged: the list of them is bounded.
        world.set_image("db:2-nope").await;
        sleep(Duration::from_mins(20)).await;
        let fleet = world.object().unwrap();
        assert_eq!(oracles::condition(&fleet, "Stalled").0, "True", "{:#}", fleet["status"]["conditions"]);
        assert!(size(&fleet) < FLEET_BYTES, "the fleet has {} bytes", size(&fleet));
        let node = world.get("windlass.dev/v1alpha1", "StatefulNode", "db-0").unwrap();
        assert!(size(&node) < NODE_BYTES, "a node has {} bytes", size(&node));
        let listed = fleet["status"]["rollout"]["unconverged"].as_array().map_or(0, Vec::len);
        assert_eq!(listed, 20, "{:#}", fleet["status"]["rollout"]);
    });
}

fn size(object: &Value) -> usize {
    object.to_string().len()
}

async fn until_well(world: &World) {
    for _ in 0..3600 {
        sleep(Duration::from_secs(1)).await;
        if world.object().is_some_and(|fleet| oracles::condition(&fleet, "UpToDate").0 == "True") {
            sleep(Duration::from_secs(30)).await;
            return;
        }
    }
    panic!("{NAMESPACE} does not come up: {}", oracles::summary(world));
}
