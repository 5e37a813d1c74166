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
    w.until("it waits for a height", |s| text(&s["rollout"], "message").contains("to say a height")).await
}

fn watched(w: &World) -> Vec<bool> {
    ["db-0", "db-1"].map(|node| w.get(NODE, node)["spec"]["watchSidecar"] == true).into()
}

#[test]
fn nothing_is_halted_before_every_old_node_has_said_a_height() {
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

#[test]
fn until_then_it_can_be_aborted_and_the_old_nodes_are_not_asked_any_more() {
    play(|w| async move {
        let status = one_is_mute(&w).await;
        assert_eq!(watched(&w), [true, true]);
        w.annotate("windlass.dev/abort", text(&status["plan"], "id")).await;
        w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        w.until("its nodes go", |_| w.names(NODE).len() == 2).await;
        w.rest(10).await;
        assert_eq!(watched(&w), [false, false]);
        assert!(w.get(NODE, "db-0")["status"]["sidecar"].is_null());
        assert_eq!(w.applications.halts(), [0_i64; 0]);
        w.is_at_rest().await;
    });
}

#[test]
fn until_then_another_target_takes_its_place() {
    play(|w| async move {
        one_is_mute(&w).await;
        w.image("db:3").await;
        w.rest(20).await;
        assert_eq!(w.events("RolloutSuperseded").len(), 1);
        w.applications.hide_height(&[]);
        w.until("they are asked to halt", |_| w.applications.halts() == [1000, 1000]).await;
        w.applications.reach(1000);
        w.until("it is over", is_up_to_date).await;
        assert!(w.images().iter().all(|image| image.ends_with("db:3")), "{:?}", w.images());
    });
}

#[test]
fn one_that_cannot_be_asked_where_it_is_cannot_be_asked_to_halt() {
    play(|w| async move {
        w.applications.reach(500);
        w.serve(with_sidecar(fleet(2, strategy()))).await;
        w.applications.die(true);
        w.image("db:2").await;
        let stalled = w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        assert_eq!(stalled["rollout"]["stage"], "CreatingEntrants");
        let worst = &stalled["rollout"]["unconverged"][0];
        assert_eq!((text(worst, "name"), text(worst, "reason")), ("db-0", "SidecarUnreachable"));
        let message = text(&stalled["rollout"], "message");
        assert!(message.contains("db-0 (since ") && message.contains("db-1 (since "), "{message}");
        w.applications.die(false);
        w.until("it promotes", stage_is("Promoting")).await;
    });
}

#[test]
fn old_nodes_that_have_no_sidecar_are_named_and_what_to_do() {
    play(|w| async move {
        w.applications.reach(500);
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        let mut wanted = with_sidecar(fleet(2, strategy()));
        wanted["spec"]["template"]["spec"]["image"] = json!("db:2");
        w.change(wanted["spec"].clone()).await;
        let stalled = w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        assert_eq!(stalled["rollout"]["stage"], "CreatingEntrants");
        let message = text(&stalled["rollout"], "message");
        assert!(message.contains("db-0: it has no sidecar to say a height"), "{message}");
        assert_eq!(w.applications.halts(), [0_i64; 0]);
    });
}
