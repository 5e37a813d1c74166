//! HardFork: no old node is asked to halt before each has reported its height.

use serde_json::{Value, json};

use super::world::{NODE, World, condition, fleet, is_up_to_date, play, stage_is, text, with_sidecar};

fn strategy() -> Value {
    json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}, "blueGreen": {"retireDelaySeconds": 10},
        "progressDeadlineSeconds": 120})
}

/// A hard fork while the sidecar of `db-1` does not know its application's height.
async fn one_is_mute(w: &World) -> Value {
    w.applications.reach(500);
    w.serve(with_sidecar(fleet(2, strategy()))).await;
    let pod = w.get(("v1", "Pod"), "db-1-0");
    w.applications.hide_height(&[text(&pod["status"], "podIP")]);
    w.image("db:2").await;
    w.until("it waits for a height", |s| text(&s["rollout"], "message").contains("to report a height")).await
}

#[test]
fn no_node_halts_before_every_incumbent_reports_its_height() {
    play(|w| async move {
        let waiting = one_is_mute(&w).await;
        let message = text(&waiting["rollout"], "message").to_owned();
        assert!(message.starts_with("waiting for db-1 (since "), "{message}");
        assert!(message.contains("--height-url"), "{message}");
        let stalled = w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        assert_eq!(text(&stalled["rollout"], "message"), message, "since when is one time");
        assert_eq!(stalled["rollout"]["stage"], "CreatingEntrants");
        let named: Vec<&str> =
            stalled["rollout"]["unconverged"].as_array().unwrap().iter().map(|u| text(u, "name")).collect();
        assert_eq!(named, ["db-1"], "{stalled:#}");
        assert_eq!((w.applications.halts(), w.selected().as_str()), (vec![], "first"));
        assert_eq!(w.get(NODE, "db-0")["status"]["sidecar"]["height"], 500);
        w.is_at_rest().await;
        w.applications.hide_height(&[]);
        let past = w.until("it promotes", stage_is("Promoting")).await;
        assert_eq!(past["rollout"]["haltHeight"], 1000);
        w.applications.reach(1000);
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.applications.halts(), [1000, 1000], "each was asked once");
        w.is_at_rest().await;
    });
}
