//! The cost of a reconcile: proportional to the nodes of the fleet, and independent of other fleets.

use super::fleet::fleet_spec;
use super::*;
use crate::controller::fleet::reconcile_in;

/// How often the facts were requested, and how often they were computed, in one reconcile of the fleet.
async fn one_look(stage: &Stage) -> (u32, u32) {
    let fleet = stage.cx.view.fleets.get(&Key::new("shop", "db")).unwrap();
    let scope = stage.cx.fleet_scope(&fleet, None, stage.clock.now()).unwrap();
    let shared = scope.clone();
    reconcile_in(&stage.cx, fleet, scope).await.unwrap();
    shared.computations()
}

/// A fleet of this size goes through its creation, a change that applies at once, a halt height that a person set on
/// each node, and a rollout. Returns what each reconcile requested.
async fn looks_at(nodes: i32) -> Vec<(u32, u32)> {
    let stage = Stage::new();
    let mut spec = fleet_spec(nodes, "v1");
    spec["updateStrategy"]["inPlace"]["maxUnavailable"] = json!("100%");
    stage.put(Kind::NodeDeployment, "db", json!({"spec": spec}));
    let mut looks = Vec::new();
    for step in 0..4 {
        match step {
            1 => stage.change_fleet(&json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})),
            2 => {
                for name in stage.names(Kind::StatefulNode) {
                    stage.change(Kind::StatefulNode, &name, &json!({"spec": {"haltHeight": 5}}));
                }
            }
            3 => stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v2"}}}})),
            _ => {}
        }
        for _ in 0..5 {
            looks.push(one_look(&stage).await);
            stage.pass(2).await;
            stage.nodes_follow();
        }
    }
    assert_eq!(stage.fleet()["status"]["updatedReplicas"], nodes, "{:#}", stage.fleet()["status"]);
    looks
}

#[tokio::test(start_paused = true)]
async fn reconcile_builds_facts_equally_often_for_any_node_count() {
    let (few, many) = (looks_at(3).await, looks_at(40).await);
    assert_eq!(few, many, "asked for and put together, look by look");
    assert!(many.iter().all(|(_, taken)| *taken <= 5), "put together more than a handful of times: {many:?}");
}

#[tokio::test(start_paused = true)]
async fn facts_are_not_rebuilt_for_changes_in_other_fleets() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    let other = |version: u32| {
        json!({"metadata": {"labels": {"windlass.dev/deployment": "cache"}, "ownerReferences": [
            {"kind": "NodeDeployment", "name": "cache", "uid": "uid of cache", "controller": true}]},
            "spec": fleet_spec(1, "v1")["template"]["spec"], "status": {"phase": format!("Running {version}")}})
    };
    stage.put(Kind::StatefulNode, "cache-0", other(1));
    let fleet = stage.cx.view.fleets.get(&Key::new("shop", "db")).unwrap();
    let scope = stage.cx.fleet_scope(&fleet, None, stage.clock.now()).unwrap();
    let facts = scope.facts();
    stage.put(Kind::StatefulNode, "cache-0", other(2));
    stage.put(Kind::Service, "cache-0", json!({}));
    assert!(Arc::ptr_eq(&facts, &scope.facts()), "a node of another fleet has changed");

    stage.node_is_down("db-1");
    let after = scope.facts();
    assert!(!after.children[1].pod.ready, "one of its own is down");
    stage.remove(Kind::StatefulNode, "db-2");
    assert_eq!(scope.facts().missing(), [2], "one of its own is gone");
    let mut stranger = other(1);
    stranger["metadata"]["uid"] = json!("uid of another");
    stage.put(Kind::StatefulNode, "db-2", stranger);
    assert_eq!(scope.facts().conflicts.len(), 1, "its name was taken by another fleet's");
}
