//! Machines that are drained: their pods move to other machines, as the wave allows.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::rollouts::world as sets;
use super::sets::world::{
    FLEET, LEAVING, NODE, POD, World, condition, fleet, is_up_to_date, message, play, text,
};
use windlass_sim::{AuditEntry, Cluster};

/// Adds a machine with room for any number of pods, or for none.
fn add_machine(cluster: &Cluster, name: &str, pods: &str) {
    let room = json!({"cpu": "10000", "memory": pods, "pods": "1000"});
    let machine = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": room, "allocatable": room}});
    cluster.install(machine).unwrap();
}

/// Cordons or uncordons a machine.
async fn cordon(cluster: &Cluster, name: &str, unschedulable: bool) {
    change_machine(cluster, name, json!({"unschedulable": unschedulable})).await;
}

pub async fn change_machine(cluster: &Cluster, name: &str, spec: Value) {
    let machines: Api<Node> = Api::all(cluster.client("person", "default"));
    let patch = Patch::Merge(json!({"spec": spec}));
    machines.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The UID and the machine of each pod.
fn places(cluster: &Cluster) -> BTreeMap<String, (String, String)> {
    let all = cluster.snapshot();
    let pods = all.iter().filter(|o| o["kind"] == "Pod");
    let place =
        |pod: &Value| (text(&pod["metadata"], "uid").to_owned(), text(&pod["spec"], "nodeName").to_owned());
    pods.map(|pod| (text(&pod["metadata"], "name").to_owned(), place(pod))).collect()
}

fn are_all_on(cluster: &Cluster, machine: &str) -> bool {
    places(cluster).values().all(|(_, on)| on == machine)
}

async fn until_moved(w: &World, machine: &str) {
    w.until("all pods have moved", |status| {
        is_up_to_date(status)
            && condition(status, "Reconciling") == "False/Settled"
            && are_all_on(&w.cluster, machine)
    })
    .await;
    // The last plan ends a moment later.
    w.rest(5).await;
}

#[test]
fn pods_leave_a_cordoned_machine_one_at_a_time() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        let hash = w.status()["lastCompletedRolloutHash"].clone();
        add_machine(&w.cluster, "spare", "100Ti");
        let before = places(&w.cluster);
        cordon(&w.cluster, "played-0", true).await;
        until_moved(&w, "spare").await;
        let after = places(&w.cluster);
        for node in ["db-0", "db-1", "db-2"] {
            let pod = format!("{node}-0");
            assert_ne!(before[&pod].0, after[&pod].0, "{pod} is another pod");
            assert_eq!(w.completed(node, "MoveNode"), 1, "{node}");
        }
        assert!(fewest_ready_since_serving(&w) >= 2);
        assert_eq!(w.status()["lastCompletedRolloutHash"], hash, "it is no rollout");
        // The requests end with the drain.
        cordon(&w.cluster, "played-0", false).await;
        w.rest(30).await;
        for node in w.names(NODE) {
            assert_eq!(w.get(NODE, &node)["spec"]["move"], Value::Null, "{node}");
        }
        assert!(are_all_on(&w.cluster, "spare"));
        w.is_at_rest().await;
    });
}

/// The fewest Ready nodes since all three were Ready first.
fn fewest_ready_since_serving(w: &World) -> i64 {
    let seen = w.seen_objects();
    let ready = seen.iter().filter_map(|(_, fleet)| fleet["status"]["readyReplicas"].as_i64());
    ready.skip_while(|ready| *ready < 3).min().unwrap_or_default()
}

#[test]
fn drain_continues_after_the_operator_was_killed() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        add_machine(&w.cluster, "spare", "100Ti");
        cordon(&w.cluster, "played-0", true).await;
        for _ in 0..4 {
            w.rest(2).await;
            w.kill_operator();
            w.rest(5).await;
            w.start_operator();
        }
        until_moved(&w, "spare").await;
        for node in ["db-0", "db-1", "db-2"] {
            assert_eq!(w.completed(node, "MoveNode"), 1, "{node}");
        }
        assert!(fewest_ready_since_serving(&w) >= 2);
    });
}

#[test]
fn pods_that_would_find_no_machine_leave_one_at_a_time() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        let before = places(&w.cluster);
        cordon(&w.cluster, "played-0", true).await;
        w.rest(600).await;
        let waiting = places(&w.cluster);
        let moved = before.iter().filter(|(pod, place)| waiting.get(*pod) != Some(place)).count();
        assert_eq!(moved, 1, "no other pod goes while one is down");
        assert_eq!(w.get(POD, "db-2-0")["status"]["phase"], "Pending");
        let expected = "db-0, db-1 have to leave machine played-0, which is being drained, at most 1 unavailable at once; waiting for db-2";
        assert_eq!(message(&w.status(), "Reconciling"), expected);
        // The machine is back: the pod is scheduled there, and the others stay.
        cordon(&w.cluster, "played-0", false).await;
        until_moved(&w, "played-0").await;
        let after = places(&w.cluster);
        assert_eq!((&before["db-0-0"], &before["db-1-0"]), (&after["db-0-0"], &after["db-1-0"]));
        assert_eq!(w.completed("db-2", "MoveNode"), 1);
        w.is_at_rest().await;
    });
}

#[test]
fn pods_that_crash_move_although_the_budget_is_used_up() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        add_machine(&w.cluster, "spare", "100Ti");
        w.steer("db-1-0", "crash").await;
        w.steer("db-2-0", "crash").await;
        w.until("both crash", |status| status["readyReplicas"] == 1).await;
        w.rest(60).await;
        cordon(&w.cluster, "played-0", true).await;
        let machine = |w: &World, pod: &str| places(&w.cluster).get(pod).map(|(_, machine)| machine.clone());
        w.until("both have moved", |_| {
            ["db-1-0", "db-2-0"].iter().all(|pod| machine(&w, pod).as_deref() == Some("spare"))
        })
        .await;
        w.rest(600).await;
        assert_eq!(machine(&w, "db-0-0").as_deref(), Some("played-0"), "the last one that serves stays");
    });
}

#[test]
fn pod_that_tolerates_the_taint_is_not_moved() {
    play(|w| async move {
        let mut fleet = fleet(2, json!({"type": "InPlace"}));
        fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["tolerations"] =
            json!([{"key": LEAVING, "operator": "Exists"}]);
        w.serve(fleet).await;
        let before = places(&w.cluster);
        change_machine(&w.cluster, "played-0", json!({"taints": [{"key": LEAVING, "effect": "NoSchedule"}]}))
            .await;
        w.rest(120).await;
        assert_eq!(places(&w.cluster), before);
        assert_eq!(condition(&w.status(), "Reconciling"), "False/Settled");
        w.is_at_rest().await;
    });
}

/// The machine is back before the pod is scheduled, and is cordoned again.
#[test]
fn pod_that_returns_to_the_machine_is_moved_once() {
    play(|w| async move {
        w.serve(fleet(1, json!({"type": "InPlace"}))).await;
        cordon(&w.cluster, "played-0", true).await;
        w.rest(5).await;
        assert_eq!(w.get(POD, "db-0-0")["status"]["phase"], "Pending");
        w.kill_operator();
        cordon(&w.cluster, "played-0", false).await;
        w.rest(5).await;
        cordon(&w.cluster, "played-0", true).await;
        let returned = places(&w.cluster);
        w.start_operator();
        w.rest(120).await;
        assert_eq!(places(&w.cluster), returned, "it is not moved a second time");
        let said = message(&w.status(), "Reconciling");
        assert!(said.contains("db-0 was scheduled to machine played-0 again"), "{said}");
        w.is_at_rest().await;
    });
}

#[test]
fn rollout_during_a_drain_replaces_each_pod_once() {
    play(|w| async move {
        w.serve(fleet(4, json!({"type": "InPlace"}))).await;
        add_machine(&w.cluster, "spare", "100Ti");
        let replaced = |w: &World| {
            let is_delete = |entry: &&AuditEntry| {
                entry.resource == "pods" && (entry.verb == "delete" || entry.subresource == "eviction")
            };
            w.cluster
                .audit()
                .iter()
                .filter(is_delete)
                .filter(|entry| entry.user_agent.contains("windlass"))
                .count()
        };
        w.cluster.clear_audit();
        w.image("db:2").await;
        cordon(&w.cluster, "played-0", true).await;
        until_moved(&w, "spare").await;
        assert_eq!(replaced(&w), 4);
        assert!(w.images().iter().all(|pod| pod.ends_with(" db:2")));
        assert_eq!(condition(&w.get(FLEET, "db")["status"], "UpToDate"), "True/Applied");
    });
}

#[test]
fn pods_of_existing_statefulsets_leave_one_at_a_time() {
    sets::play(|w| async move {
        w.run_sets(&[("ledger", 3)]).await;
        w.adopt(&sets::named(&["ledger"]), &json!({})).await;
        add_machine(&w.cluster, "spare", "100Ti");
        let before = w.uids();
        cordon(&w.cluster, "played-0", true).await;
        w.until("the pods have moved", |_| are_all_on(&w.cluster, "spare") && places(&w.cluster).len() == 3)
            .await;
        w.until("all are Ready", |status| status["readyReplicas"] == 3).await;
        assert!(w.uids().iter().all(|(pod, uid)| before[pod] != *uid));
        assert_eq!(w.worst(), 1);
        w.is_idle().await;
        cordon(&w.cluster, "played-0", false).await;
        assert!(are_all_on(&w.cluster, "spare"));
    });
}
