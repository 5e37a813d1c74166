//! HardFork: the old nodes halt at a height before the new ones take over.

use serde_json::{Value, json};

use super::world::{NODE, World, condition, fleet, is_up_to_date, play, stage_is, text, with_sidecar};

fn hard_fork(height: i64) -> Value {
    with_sidecar(fleet(
        2,
        json!({"type": "HardFork", "hardFork": {"haltHeight": height}, "blueGreen": {"retireDelaySeconds": 10}}),
    ))
}

async fn halting(w: &World) -> Value {
    w.applications.reach(500);
    w.serve(hard_fork(1000)).await;
    w.image("db:2").await;
    w.until("they are asked to halt", |s| text(&s["rollout"], "message").contains("halt at height 1000"))
        .await
}

#[test]
fn incumbents_halt_at_the_height_and_entrants_take_over() {
    play(|w| async move {
        let status = halting(&w).await;
        assert_eq!(status["rollout"]["stage"], "Promoting");
        assert_eq!(status["rollout"]["haltHeight"], 1000);
        assert_eq!(condition(&status, "UpToDate"), "Unknown/Promoting");
        w.until("sidecars know", |_| w.applications.halts() == [1000, 1000]).await;
        w.rest(30).await;
        assert_eq!(w.selected(), "first");
        assert!(
            text(&w.status()["rollout"], "message").contains("the lowest is at 500"),
            "{}",
            w.status()["rollout"]["message"]
        );
        w.applications.reach(1000);
        let moved = w.until("traffic moved", stage_is("Retiring")).await;
        assert_eq!(w.selected(), text(&moved, "activeSet"));
        assert_eq!(w.names(NODE).len(), 4);
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.names(NODE).len(), 2);
        assert_eq!(w.stages(), ["CreatingEntrants", "Promoting", "Retiring"]);
        assert_eq!(w.applications.halts(), [1000, 1000], "each was asked once");
        w.is_at_rest().await;
    });
}

#[test]
fn persisted_halt_height_overrides_a_later_spec() {
    play(|w| async move {
        let status = halting(&w).await;
        let target = text(&status, "requestedRolloutHash");
        w.change(json!({"updateStrategy": {"hardFork": {"haltHeight": 2000}}, "template": {"spec": {"image": "db:3"}}})).await;
        w.annotate("windlass.dev/abort", text(&status["plan"], "id")).await;
        w.rest(30).await;
        let held = w.status();
        assert_eq!(text(&held, "requestedRolloutHash"), target);
        assert_eq!(held["rollout"]["haltHeight"], 1000);
        assert_eq!(held["plan"]["state"], "Active");
        let notes = w.events("InvalidSpec");
        assert!(notes.len() == 1 && notes[0].contains("is not aborted"), "{notes:?}");
        w.applications.reach(1000);
        let next = w.until("the next begins", |s| s["rollout"]["haltHeight"] == 2000).await;
        assert_eq!(text(&next, "lastCompletedRolloutHash"), target);
        w.applications.reach(2000);
        w.until("it is over", is_up_to_date).await;
        assert!(w.images().iter().all(|i| i.ends_with("db:3")), "{:?}", w.images());
    });
}

#[test]
fn nodes_without_sidecar_halt_through_a_newly_set_url() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        w.applications.reach(5);
        w.change(json!({
            "updateStrategy": {"type": "HardFork", "hardFork": {"haltHeight": 10}},
            "template": {"spec": {"image": "db:2", "sidecar": {"url": "http://{podIP}:7777"}}},
        }))
        .await;
        w.until("they halt", |_| w.applications.halts() == [10, 10]).await;
        assert_eq!(w.selected(), "first");
        w.applications.reach(10);
        w.until("it is over", is_up_to_date).await;
        assert!(w.images().iter().all(|i| i.ends_with("db:2")), "{:?}", w.images());
        w.is_at_rest().await;
    });
}

/// No task asks for that while the fleet is paused.
#[test]
fn recreated_incumbent_is_created_with_the_halt_request() {
    play(|w| async move {
        halting(&w).await;
        w.until("sidecars know", |_| w.applications.halts() == [1000, 1000]).await;
        w.change(json!({"paused": true})).await;
        let before = w.get(NODE, "db-1")["metadata"]["uid"].clone();
        w.delete(NODE, "db-1").await;
        w.until("it is made again", |_| {
            let node = w.get(NODE, "db-1");
            !node.is_null() && node["metadata"]["uid"] != before
        })
        .await;
        let (new, other) = (w.get(NODE, "db-1")["spec"].clone(), w.get(NODE, "db-0")["spec"].clone());
        assert_eq!((&new["haltHeight"], &new["haltTaskID"]), (&json!(1000), &other["haltTaskID"]));
        w.change(json!({"paused": false})).await;
        w.applications.reach(1000);
        w.until("it is over", is_up_to_date).await;
    });
}
