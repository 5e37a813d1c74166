//! The status is lost while there are two sets: the active set is found, never guessed.

use serde_json::{Value, json};

use super::world::{
    NODE, World, blue_green, condition, fleet, is_up_to_date, message, play, stage_is, text, with_sidecar,
};

/// A fleet with two sets: the one that serves db:1, and the entrants of db:2.
async fn two_sets(w: &World, mut fleet: Value, service: bool, image: &str) -> String {
    if !service {
        fleet["spec"].as_object_mut().unwrap().remove("service");
    }
    w.serve(fleet).await;
    w.image(image).await;
    let made = w
        .until("both sets run", |s| {
            w.images().len() == 4 && !matches!(text(&s["rollout"], "stage"), "" | "CreatingEntrants")
        })
        .await;
    w.rest(20).await;
    text(&made["rollout"], "entrantSet").to_owned()
}

async fn lose(w: &World, status: Value) {
    w.kill_operator();
    w.patch_status(&json!({"status": null})).await;
    if status.is_object() {
        w.patch_status(&json!({"status": status})).await;
    }
    w.start_operator();
}

fn manual() -> Value {
    blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 600}))
}

#[test]
fn unknown_active_set_waits_for_a_person() {
    play(|w| async move {
        let set = two_sets(&w, manual(), false, "db:2").await;
        let (nodes, images) = (w.names(NODE), w.images());
        lose(&w, Value::Null).await;
        let held = w.until("that is said", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        let sentence = message(&held, "UpToDate");
        assert!(sentence.contains("first") && sentence.contains(&set), "{sentence}");
        assert!(sentence.contains("delete"), "{sentence}");
        w.image("db:3").await;
        w.change(json!({"replicas": 3})).await;
        w.rest(1200).await;
        assert_eq!((w.names(NODE), w.images()), (nodes, images));
        w.change(json!({"replicas": 2})).await;
        w.image("db:2").await;
        w.is_at_rest().await;
        // A person decides.
        w.delete(NODE, "db-0").await;
        w.delete(NODE, "db-1").await;
        let done = w.until("all is well", is_up_to_date).await;
        assert_eq!(done["activeSet"], set.as_str());
        assert_eq!(w.names(NODE).len(), 2);
        let only_new = |_: &Value| w.images().len() == 2 && w.images().iter().all(|i| i.ends_with("db:2"));
        w.until("the pods of the other are gone", only_new).await;
    });
}

#[test]
fn nonexistent_set_never_becomes_active() {
    for (strategy, stage) in [
        (json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual"}}), "AwaitingEntrants"),
        (json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual"}}), "AwaitingPromotion"),
        (json!({"type": "BlueGreen", "blueGreen": {"retireDelaySeconds": 120}}), "Retiring"),
        (json!({"type": "BlueGreen", "blueGreen": {"promotion": "Immediately"}}), "Promoting"),
        (json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}}), "Promoting"),
        (json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}}), "Retiring"),
    ] {
        play(|w| async move {
            let hard_fork = strategy["type"] == "HardFork";
            let image = match (hard_fork, stage) {
                (false, "AwaitingEntrants") => "db:2-unready",
                (false, "Promoting") => "db:2-nope",
                _ => "db:2",
            };
            w.applications.reach(500);
            let of = fleet(2, strategy);
            w.serve(if hard_fork { with_sidecar(of) } else { of }).await;
            w.image(image).await;
            if hard_fork && stage == "Retiring" {
                w.until("it halts", stage_is("Promoting")).await;
                w.applications.reach(1000);
            }
            let there = w.until("it is there", stage_is(stage)).await;
            w.rest(3).await;
            let serves = w.selected();
            w.patch_status(&json!({"status": {"activeSet": "bogus"}})).await;
            let found = w.until("it is found out", |s| s["activeSet"] != "bogus").await;
            // With `Immediately` the old set is gone, and the only set is taken for the active one.
            let is_only = stage == "Promoting" && !hard_fork;
            assert!(is_only || found["activeSet"] == there["activeSet"], "{stage}: {found:#}");
            w.rest(15).await;
            assert!(is_only || w.selected() == serves, "{stage}: {}", w.selected());
            assert!(!w.names(NODE).iter().any(|n| n.contains("bogus")), "{:?}", w.names(NODE));
            assert!(w.events("NodeCreated").iter().all(|note| !note.contains("bogus")));
        });
    }
}
