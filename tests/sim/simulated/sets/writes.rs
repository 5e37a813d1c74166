//! The writes that an ordinary rollout costs per node: invariant 3.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{World, fleet, is_up_to_date, play, with_sidecar};

/// The operator's writes per node without events, during an image change.
async fn in_a_rollout(w: &World, fleet: Value, image: &str) -> BTreeMap<String, usize> {
    w.serve(fleet).await;
    w.rest(5).await;
    w.cluster.clear_audit();
    w.image(image).await;
    w.until("the rollout begins", |s| !s["rollout"].is_null()).await;
    w.until("it is over", is_up_to_date).await;
    w.rest(5).await;
    let mut writes = BTreeMap::new();
    for entry in w.cluster.audit() {
        let ours = entry.is_write() && entry.user_agent.starts_with("windlass");
        if ours && !entry.resource.contains("event") && entry.name.starts_with("db-") {
            let node = entry.name.split('-').take(2).collect::<Vec<_>>().join("-");
            *writes.entry(node).or_default() += 1;
        }
    }
    writes
}

#[test]
fn node_update_needs_at_most_five_writes() {
    for sidecar in [false, true] {
        play(|w| async move {
            let plain = fleet(3, json!({"type": "InPlace"}));
            let writes = in_a_rollout(&w, if sidecar { with_sidecar(plain) } else { plain }, "db:2").await;
            assert_eq!(writes.len(), 3, "{writes:?}");
            assert!(writes.values().all(|n| *n <= 5), "sidecar {sidecar}: {writes:?}");
        });
    }
}

#[test]
fn slow_node_needs_one_more_write() {
    play(|w| async move {
        let writes = in_a_rollout(&w, fleet(2, json!({"type": "InPlace"})), "db:2-slow").await;
        assert!(writes.values().all(|n| *n <= 6), "{writes:?}");
    });
}
