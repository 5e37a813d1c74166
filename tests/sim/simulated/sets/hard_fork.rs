//! HardFork: the old nodes halt at a height before the new ones take over.

use serde_json::{Value, json};

use super::world::{
    NODE, World, condition, fleet, is_up_to_date, play, set_of, stage_is, text, with_sidecar,
};

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
fn the_old_nodes_halt_at_the_height_and_the_new_ones_take_over() {
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
fn the_height_that_was_persisted_counts_and_everything_else_waits_for_the_switch() {
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
fn nothing_is_halted_before_the_new_nodes_run() {
    play(|w| async move {
        w.applications.reach(5000);
        w.serve(hard_fork(1000)).await;
        w.image("db:2-nope").await;
        w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        assert_eq!(w.status()["rollout"]["stage"], "CreatingEntrants");
        assert_eq!(w.applications.halts(), [0_i64; 0]);
        w.image("db:2").await;
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn waiting_for_the_height_is_no_stall_as_long_as_it_grows_and_is_one_when_it_does_not() {
    play(|w| async move {
        halting(&w).await;
        for height in 501..520 {
            w.applications.reach(height);
            w.rest(60).await;
            assert_eq!(condition(&w.status(), "Stalled"), "False/Progressing", "at {height}");
        }
        let stalled = w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        assert_eq!(stalled["rollout"]["height"], 519);
    });
}

#[test]
fn waiting_for_the_height_can_be_skipped() {
    play(|w| async move {
        let status = halting(&w).await;
        w.annotate("windlass.dev/skip", &format!("{}-2", text(&status["plan"], "id"))).await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(done["plan"]["tasks"][2]["state"], "Skipped");
    });
}

#[test]
fn nodes_that_have_no_sidecar_are_asked_at_a_url_that_is_given_to_them_at_once() {
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

#[test]
fn a_sidecar_that_dies_is_asked_again_when_it_is_back() {
    play(|w| async move {
        halting(&w).await;
        w.applications.die(true);
        w.applications.reach(1000);
        w.rest(60).await;
        assert_eq!(w.selected(), "first");
        w.applications.die(false);
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn an_operator_that_is_killed_at_any_time_goes_on_where_it_was() {
    play(|w| async move {
        halting(&w).await;
        w.kill_operator();
        w.applications.reach(1000);
        w.rest(10).await;
        w.start_operator();
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.applications.effects(), 2 + 2 + 2, "marked ready and asked to halt, once each");
    });
}

#[test]
fn a_set_whose_nodes_have_halted_is_not_gone_back_to() {
    play(|w| async move {
        w.applications.reach(1000);
        let mut fleet = hard_fork(1000);
        fleet["spec"]["updateStrategy"]["blueGreen"]["retireDelaySeconds"] = json!(600);
        let first = w.serve(fleet).await;
        w.image("db:2").await;
        w.until("traffic moved", stage_is("Retiring")).await;
        w.image("db:1").await;
        let back = w.until("it is back", |s| text(s, "lastCompletedRolloutHash") == first).await;
        assert_eq!(back["activeSet"], set_of(&first).as_str(), "a set of its own");
        assert_eq!(w.selected(), set_of(&first));
    });
}

#[test]
fn nor_is_one_whose_nodes_were_halted_by_hand() {
    play(|w| async move {
        let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 10},
            "blueGreen": {"retireDelaySeconds": 600}});
        w.applications.reach(5);
        let first = w.serve(with_sidecar(fleet(2, strategy))).await;
        w.image("db:2").await;
        let status =
            w.until("it waits", |s| text(&s["rollout"], "message").contains("halt at height 10")).await;
        w.annotate("windlass.dev/skip", &format!("{}-2", text(&status["plan"], "id"))).await;
        w.until("traffic moved", stage_is("Retiring")).await;
        w.change(json!({"updateStrategy": {"type": "BlueGreen"}, "template": {"spec": {"image": "db:1"}}}))
            .await;
        let back = w.until("it is back", |s| text(s, "lastCompletedRolloutHash") == first).await;
        assert_eq!(back["activeSet"], set_of(&first).as_str(), "a set of its own");
    });
}

#[test]
fn an_old_node_that_cannot_be_asked_to_halt_is_named_as_what_the_rollout_waits_for() {
    play(|w| async move {
        w.applications.reach(500);
        let mut fleet = hard_fork(1000);
        fleet["spec"]["template"]["spec"]["sidecar"]["tokenSecret"] = json!("token");
        w.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "data": {"token": "czNjcmV0"}}))
            .await;
        w.serve(fleet).await;
        w.delete(("v1", "Secret"), "token").await;
        w.image("db:2").await;
        let stalled = w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        assert_eq!(stalled["rollout"]["stage"], "Promoting");
        let worst = &stalled["rollout"]["unconverged"][0];
        assert_eq!((text(worst, "name"), text(worst, "reason")), ("db-0", "SidecarUnreachable"));
        assert!(text(worst, "message").contains("does not exist"), "{worst}");
        let message = text(&stalled["rollout"], "message");
        assert!(message.contains("db-0: SidecarUnreachable"), "{message}");
    });
}

#[test]
fn a_lost_old_node_is_made_again_although_strategy_and_build_id_are_others_by_now() {
    play(|w| async move {
        w.applications.reach(500);
        let mut fleet = hard_fork(1000);
        fleet["spec"]["unsafeCustomBuildID"] = json!("one");
        w.serve(fleet).await;
        w.change(json!({"unsafeCustomBuildID": "two"})).await;
        w.until("they are asked to halt", |s| text(&s["rollout"], "message").contains("halt at height 1000"))
            .await;
        w.change(json!({"updateStrategy": {"type": "InPlace"}, "unsafeCustomBuildID": ""})).await;
        let uid = w.get(NODE, "db-0")["metadata"]["uid"].clone();
        w.delete(NODE, "db-0").await;
        w.until("it is there again, and asked", |_| {
            let node = w.get(NODE, "db-0");
            node["spec"]["haltHeight"] == 1000 && node["metadata"]["uid"] != uid
        })
        .await;
        w.applications.reach(1000);
        w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
    });
}

#[test]
fn a_promotion_that_is_forced_while_the_old_nodes_halt_is_spent() {
    play(|w| async move {
        let target = text(&halting(&w).await, "requestedRolloutHash").to_owned();
        w.change(json!({"forcePromote": target})).await;
        w.rest(5).await;
        assert_eq!(w.status()["spentForcePromote"], target.as_str());
        w.applications.reach(1000);
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(done["spentForcePromote"], target.as_str());
        assert_eq!(w.events("StaleForcePromote"), [""; 0]);
        w.is_at_rest().await;
    });
}

#[test]
fn a_service_that_a_hand_turns_to_the_new_set_while_the_old_nodes_halt_is_turned_back() {
    play(|w| async move {
        let status = halting(&w).await;
        let set = text(&status["rollout"], "entrantSet").to_owned();
        let by_hand = kube::api::Patch::Merge(json!({"spec": {"selector": {"windlass.dev/set": set}}}));
        let services = w.api(("v1", "Service"));
        services.patch("db", &kube::api::PatchParams::default(), &by_hand).await.unwrap();
        w.rest(10).await;
        assert_eq!((w.selected().as_str(), text(&w.status(), "activeSet")), ("first", "first"));
        w.applications.reach(1000);
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.selected(), set);
        w.is_at_rest().await;
    });
}

#[test]
fn a_short_deadline_is_kept_to_the_letter_while_the_old_nodes_halt() {
    play(|w| async move {
        w.applications.reach(500);
        let strategy =
            json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}, "progressDeadlineSeconds": 40});
        let mut fleet = with_sidecar(fleet(2, strategy));
        fleet["spec"]["template"]["spec"]["progressDeadlineSeconds"] = json!(40);
        w.serve(fleet).await;
        w.image("db:2").await;
        w.until("they are asked to halt", |s| text(&s["rollout"], "message").contains("halt at height 1000"))
            .await;
        w.until("sidecars know", |_| w.applications.halts() == [1000, 1000]).await;
        w.cluster.clear_audit();
        for height in 501..561 {
            w.applications.reach(height);
            w.rest(5).await;
            assert_eq!(condition(&w.status(), "Stalled"), "False/Progressing", "at {height}");
        }
        let of_nodes =
            w.cluster.audit().into_iter().filter(|e| e.is_write() && e.resource.starts_with("statefulnodes"));
        let written = of_nodes.count();
        assert!(written <= 2 * 300 / 20, "{written} writes of two nodes in five minutes");
        let mut stood = 0;
        while condition(&w.status(), "Stalled") != "True/NoProgress" {
            w.rest(5).await;
            stood += 5;
            assert!(stood <= 40 + 25 + 5, "the last height is written after 25 s at most");
        }
        assert!(stood >= 40, "{stood}");
    });
}

/// No task asks for that while the fleet is paused.
#[test]
fn an_old_node_that_is_made_again_is_asked_to_halt_from_its_first_moment() {
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

#[test]
fn a_promotion_waits_for_a_service_that_is_not_the_fleets() {
    play(|w| async move {
        halting(&w).await;
        w.until("sidecars know", |_| w.applications.halts() == [1000, 1000]).await;
        let service = ("v1", "Service");
        w.merge(service, "db", &json!({"metadata": {"ownerReferences": null}})).await;
        w.applications.reach(1000);
        w.rest(120).await;
        let held = w.status();
        assert_eq!((text(&held["rollout"], "stage"), w.selected().as_str()), ("Promoting", "first"));
        assert!(text(&held["rollout"], "message").contains("Service db"), "{}", held["rollout"]["message"]);
        assert_eq!(w.names(NODE).len(), 4);
        w.delete(service, "db").await;
        w.until("it is over", is_up_to_date).await;
        assert_ne!(w.selected(), "first");
    });
}

/// Such as one behind a load balancer that takes its time: the old nodes would have halted, and none would serve.
#[test]
fn nobody_is_asked_to_halt_while_the_service_is_being_deleted() {
    play(|w| async move {
        let service = ("v1", "Service");
        w.applications.reach(500);
        w.serve(hard_fork(1000)).await;
        w.rest(5).await;
        w.merge(service, "db", &json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
        w.delete(service, "db").await;
        w.rest(5).await;
        w.image("db:2").await;
        let waits =
            |s: &Value| text(&s["rollout"], "message") == "waiting for the fleet's Service to be there";
        w.until("it waits for the Service", waits).await;
        // Five times as long as a rollout may go without progress.
        w.rest(600).await;
        let held = w.status();
        assert_eq!(text(&held["rollout"], "stage"), "CreatingEntrants", "{held:#}");
        assert_eq!(condition(&held, "Stalled"), "False/Progressing", "no node is late");
        assert!(w.applications.halts().is_empty(), "{:?}", w.applications.halts());
        w.merge(service, "db", &json!({"metadata": {"finalizers": null}})).await;
        w.until("they are asked to halt", |_| w.applications.halts() == [1000, 1000]).await;
        w.applications.reach(1000);
        w.until("it is over", is_up_to_date).await;
        assert_ne!(w.selected(), "first");
    });
}
