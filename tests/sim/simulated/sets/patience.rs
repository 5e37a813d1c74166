//! A rollout that takes its time, and one that something else holds up: neither is taken for a fault of its target.

use serde_json::{Value, json};

use super::world::{NODE, World, blue_green, condition, fleet, outcomes, play, stage_is, text};

const DEADLINE_SECONDS: i64 = 30;
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");

/// Three nodes, whose rollouts are rolled back when they stall.
fn impatient() -> Value {
    fleet(3, json!({"type": "InPlace", "onStall": "Rollback", "progressDeadlineSeconds": DEADLINE_SECONDS}))
}

/// Rolls v2 out, which completes without having been stalled.
async fn completes(w: &World) {
    w.image("db:2").await;
    let done = w.until("it ends", |s| !outcomes(s).is_empty() && s["rollout"].is_null()).await;
    assert_eq!(outcomes(&done), ["Complete"]);
    assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2", "db-2-0 db:2"]);
    assert_eq!(w.events("RolloutStalled"), Vec::<String>::new());
    w.is_at_rest().await;
}

#[test]
fn grace_period_beyond_the_deadline_stalls_nothing() {
    play(|w| async move {
        let mut fleet = impatient();
        fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["terminationGracePeriodSeconds"] =
            json!(300);
        w.serve(fleet).await;
        for pod in ["db-0-0", "db-1-0", "db-2-0"] {
            w.steer(pod, "whole-grace").await;
        }
        completes(&w).await;
        for node in ["db-0", "db-1", "db-2"] {
            assert_eq!(condition(&w.get(NODE, node)["status"], "Stalled"), "False/Progressing", "{node}");
        }
    });
}

#[test]
fn startup_probe_beyond_the_deadline_stalls_nothing() {
    play(|w| async move {
        let mut fleet = impatient();
        fleet["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(3);
        fleet["spec"]["template"]["spec"]["progressDeadlineSeconds"] = json!(3);
        let containers = &mut fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["containers"];
        containers[0]["startupProbe"] =
            json!({"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 60});
        w.serve(fleet).await;
        for pod in ["db-0-0", "db-1-0", "db-2-0"] {
            w.steer(pod, "slow").await;
        }
        completes(&w).await;
    });
}

/// Its main container crashed on every node, and runs again, not Ready: it may be doing its work.
#[test]
fn fix_after_a_fleet_wide_crash_replaces_one_pod_at_a_time() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        for pod in ["db-0-0", "db-1-0", "db-2-0"] {
            w.steer(pod, "crash").await;
        }
        w.rest(30).await;
        assert_eq!(w.status()["rollout"], Value::Null);
        for pod in ["db-0-0", "db-1-0", "db-2-0"] {
            w.delete(CONFIG_MAP, &format!("steer-{pod}")).await;
            w.steer(pod, "unready").await;
        }
        w.rest(5).await;
        let since = w.cluster.audit().len();
        w.image("db:2").await;
        w.rest(120).await;
        let deleted = |e: &windlass_sim::AuditEntry| {
            e.resource == "pods" && e.verb == "delete" && e.user_agent == "windlass"
        };
        assert_eq!(w.cluster.audit_after(since).iter().filter(|e| deleted(e)).count(), 1);
    });
}

#[test]
fn dead_machine_under_a_proven_node_rolls_back_no_set() {
    for (at, waits) in [("db-0-0", "AwaitingEntrants"), ("new", "AwaitingPromotion")] {
        play(|w| async move {
            let mut fleet = blue_green(2, json!({"promotion": "Manual"}));
            fleet["spec"]["updateStrategy"]["onStall"] = json!("Rollback");
            fleet["spec"]["updateStrategy"]["progressDeadlineSeconds"] = json!(DEADLINE_SECONDS);
            w.serve(fleet).await;
            w.image("db:2").await;
            let begun = w.until("it waits", stage_is(waits)).await;
            let ready = |s: &Value| condition(s, "UpToDate") == "Unknown/ReadyToPromote";
            let pod = if at == "new" {
                w.until("the new nodes are ready", ready).await;
                format!("db-{}-0-0", text(&begun["rollout"], "entrantSet"))
            } else {
                at.to_owned()
            };
            w.steer(&pod, "dead").await;
            w.rest(300).await;
            assert_eq!(outcomes(&w.status()), Vec::<String>::new(), "{at}");
            assert_eq!(w.names(NODE).len(), 4, "{at}: the new nodes stay");
            w.delete(CONFIG_MAP, &format!("steer-{pod}")).await;
            w.until("it can be promoted", ready).await;
        });
    }
}
