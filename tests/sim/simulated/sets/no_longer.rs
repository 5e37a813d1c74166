//! Outdated facts: nothing is promoted because of them, no claim is deleted, and no request repeats forever.

use serde_json::{Value, json};

use super::world::{
    CLAIM, NODE, World, blue_green, condition, fleet, is_up_to_date, play, stage_is, text, with_sidecar,
};

async fn ready_to_promote(w: &World, fleet: Value) -> Value {
    w.serve(fleet).await;
    w.image("db:2").await;
    w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await
}

fn manual() -> Value {
    blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 5}))
}

#[test]
fn a_set_that_fell_behind_again_is_not_promoted_and_says_which_node_is_waited_for() {
    play(|w| async move {
        let ready = ready_to_promote(&w, with_sidecar(manual())).await;
        let first = format!("db-{}-0", text(&ready["rollout"], "entrantSet"));
        w.applications.catch_up(false);
        w.rest(10).await;
        let message = text(&w.status()["rollout"], "message").to_owned();
        assert!(message.contains("spec.forcePromote") && message.contains(&first), "{message}");
        w.change(json!({"updateStrategy": {"blueGreen": {"promotion": "WhenReady"}}})).await;
        w.rest(60).await;
        assert_eq!(w.selected(), "first");
        let message = text(&w.status()["rollout"], "message").to_owned();
        assert!(message.contains("to catch up") && message.contains(&first), "{message}");
        w.applications.catch_up(true);
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn a_set_whose_ready_nodes_have_sidecars_that_do_not_answer_says_so() {
    play(|w| async move {
        let ready = ready_to_promote(&w, with_sidecar(manual())).await;
        let first = format!("db-{}-0", text(&ready["rollout"], "entrantSet"));
        w.applications.die(true);
        w.rest(10).await;
        w.change(json!({"updateStrategy": {"blueGreen": {"promotion": "WhenReady"}}})).await;
        w.rest(10).await;
        let status = w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        assert_eq!(w.selected(), "first");
        let worst = &status["rollout"]["unconverged"][0];
        assert_eq!((text(worst, "name"), text(worst, "reason")), (first.as_str(), "SidecarUnreachable"));
        assert!(text(worst, "message").contains("did not answer"), "{worst}");
        let message = text(&status["rollout"], "message").to_owned();
        assert!(message.contains(&first) && message.contains("SidecarUnreachable"), "{message}");
        w.applications.die(false);
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn a_set_that_fell_behind_again_is_promoted_where_a_person_forces_it() {
    play(|w| async move {
        let ready = ready_to_promote(&w, with_sidecar(manual())).await;
        w.applications.catch_up(false);
        w.rest(10).await;
        w.change(json!({"forcePromote": ready["requestedRolloutHash"]})).await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_ne!(done["activeSet"], "first");
    });
}

#[test]
fn a_set_whose_node_does_not_run_any_more_is_not_promoted_by_force_either() {
    play(|w| async move {
        let ready = ready_to_promote(&w, manual()).await;
        let node = format!("db-{}-1", text(&ready["rollout"], "entrantSet"));
        w.steer(&format!("{node}-0"), "nope").await;
        w.delete(("v1", "Pod"), &format!("{node}-0")).await;
        w.rest(10).await;
        w.change(json!({"forcePromote": ready["requestedRolloutHash"]})).await;
        w.rest(60).await;
        assert_eq!(w.selected(), "first");
        let message = text(&w.status()["rollout"], "message").to_owned();
        assert!(message.contains(&node), "{message}");
        w.delete(("v1", "ConfigMap"), &format!("steer-{node}-0")).await;
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn a_set_whose_node_ran_and_whose_new_pod_hangs_is_not_promoted_by_force_either() {
    play(|w| async move {
        let ready = ready_to_promote(&w, manual()).await;
        let node = format!("db-{}-1", text(&ready["rollout"], "entrantSet"));
        // As if a volume could not be mounted: what the node ran is known, and no container runs.
        w.steer(&format!("{node}-0"), "creating").await;
        w.delete(("v1", "Pod"), &format!("{node}-0")).await;
        w.rest(10).await;
        w.change(json!({"forcePromote": ready["requestedRolloutHash"]})).await;
        w.rest(60).await;
        assert_eq!(w.selected(), "first");
        let message = text(&w.status()["rollout"], "message").to_owned();
        assert!(message.contains(&node), "{message}");
        w.delete(("v1", "ConfigMap"), &format!("steer-{node}-0")).await;
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn no_old_node_is_asked_to_halt_while_the_pod_of_a_new_one_that_ran_hangs() {
    play(|w| async move {
        w.applications.reach(500);
        let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}});
        w.serve(with_sidecar(fleet(2, strategy))).await;
        w.image("db:2-nope").await;
        let status = w.until("they are made", stage_is("CreatingEntrants")).await;
        let set = text(&status["rollout"], "entrantSet").to_owned();
        let pods = [format!("db-{set}-0-0"), format!("db-{set}-1-0")];
        w.steer(&pods[0], "ready").await;
        w.rest(20).await;
        assert_ne!(w.get(NODE, &format!("db-{set}-0"))["status"]["podTemplateHash"], Value::Null);
        w.delete(("v1", "ConfigMap"), &format!("steer-{}", pods[0])).await;
        w.steer(&pods[0], "creating").await;
        w.delete(("v1", "Pod"), &pods[0]).await;
        w.rest(10).await;
        w.steer(&pods[1], "ready").await;
        w.rest(60).await;
        assert_eq!(w.status()["rollout"]["stage"], "CreatingEntrants");
        assert_eq!(w.applications.halts(), [0_i64; 0]);
        w.delete(("v1", "ConfigMap"), &format!("steer-{}", pods[0])).await;
        w.steer(&pods[0], "ready").await;
        w.applications.reach(1000);
        w.until("it is over", is_up_to_date).await;
    });
}

/// Removes the node label of a claim.
async fn strip(w: &World, claim: &str) {
    let stripped = json!({"metadata": {"labels": {"windlass.dev/node": null}}});
    let patch = kube::api::Patch::Merge(stripped);
    w.api(CLAIM).patch(claim, &kube::api::PatchParams::default(), &patch).await.unwrap();
}

fn that_deletes_claims(mut fleet: Value) -> Value {
    fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
    fleet
}

#[test]
fn where_the_old_nodes_go_first_a_claim_without_its_label_stays_as_well() {
    play(|w| async move {
        w.serve(that_deletes_claims(blue_green(2, json!({"promotion": "Immediately"})))).await;
        w.rest(5).await;
        let owned = w.get(CLAIM, "data-db-0-0")["metadata"]["ownerReferences"].clone();
        assert_eq!(owned[0]["name"], "db-0");
        strip(&w, "data-db-0-0").await;
        w.image("db:2").await;
        w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        w.rest(60).await;
        assert_eq!(w.names(CLAIM).len(), 4, "{:?}", w.names(CLAIM));
        w.is_at_rest().await;
    });
}

#[test]
fn entrants_that_are_given_up_leave_a_claim_without_its_label_as_well() {
    play(|w| async move {
        let ready = ready_to_promote(&w, that_deletes_claims(manual())).await;
        let claim = format!("data-db-{}-0-0", text(&ready["rollout"], "entrantSet"));
        w.rest(5).await;
        strip(&w, &claim).await;
        w.image("db:1").await;
        w.until("the entrants are gone", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
        w.rest(60).await;
        assert_eq!(w.names(CLAIM).len(), 4, "{:?}", w.names(CLAIM));
    });
}

#[test]
fn the_heights_of_old_nodes_are_written_twice_a_minute_and_that_they_halted_at_once() {
    play(|w| async move {
        w.applications.reach(500);
        let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000},
            "blueGreen": {"retireDelaySeconds": 10}, "progressDeadlineSeconds": 60});
        w.serve(with_sidecar(fleet(2, strategy))).await;
        w.image("db:2").await;
        w.until("they halt", |s| text(&s["rollout"], "message").contains("halt at height 1000")).await;
        w.rest(10).await;
        w.cluster.clear_audit();
        for height in 501..621 {
            w.applications.reach(height);
            w.rest(5).await;
            assert_eq!(condition(&w.status(), "Stalled"), "False/Progressing", "at {height}");
        }
        let of = |name: &str| {
            let audit = w.cluster.audit();
            audit.iter().filter(|e| e.is_write() && e.name == name && e.subresource == "status").count()
        };
        for node in ["db-0", "db-1"] {
            assert!((15..=21).contains(&of(node)), "ten minutes: {node} was written {} times", of(node));
        }
        assert!(w.status()["rollout"]["height"].as_i64().unwrap() > 600);
        w.applications.reach(1000);
        w.rest(7).await;
        assert!(stage_is("Retiring")(&w.status()), "it is not waited for the next of these");
        w.until("it is over", is_up_to_date).await;
        w.is_at_rest().await;
    });
}
