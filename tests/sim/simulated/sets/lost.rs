//! The status is lost while there are two sets: the active set is found, never guessed.

use serde_json::{Value, json};
use windlass_sim::{Before, Failure, FaultPlan, NoFaults, RequestInfo};

use super::world::{
    NODE, World, blue_green, condition, fleet, is_up_to_date, play, stage_is, text, with_sidecar,
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

fn said(status: &Value) -> String {
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == "UpToDate").cloned().unwrap_or_default();
    text(&found, "message").to_owned()
}

#[test]
fn the_live_service_says_which_set_serves_before_the_switch_and_after_it() {
    for promoted in [false, true] {
        play(|w| async move {
            let set = two_sets(&w, manual(), true, "db:2").await;
            if promoted {
                let wanted = w.status()["requestedRolloutHash"].clone();
                w.change(json!({"forcePromote": wanted})).await;
                w.until("traffic moved", stage_is("Retiring")).await;
            }
            let serves = w.selected();
            assert_eq!(serves, if promoted { set.as_str() } else { "first" });
            lose(&w, Value::Null).await;
            let found = w.until("it is found out", |s| !text(s, "activeSet").is_empty()).await;
            assert_eq!(found["activeSet"], serves.as_str());
            assert_eq!(w.selected(), serves);
            if !promoted {
                // Approval is requested again.
                let ready = |s: &Value| condition(s, "UpToDate") == "Unknown/ReadyToPromote";
                let ready = w.until("it is ready", ready).await;
                assert_eq!(ready["activeSet"], serves.as_str());
                w.change(json!({"forcePromote": ready["requestedRolloutHash"]})).await;
            }
            w.until("all is well", is_up_to_date).await;
            assert_eq!(w.status()["activeSet"] == serves.as_str(), promoted);
        });
    }
}

#[test]
fn without_a_service_what_is_ready_for_the_moment_decides_nothing() {
    // Either the entrants are down, or the serving nodes.
    for image in ["db:2-unready", "db:2"] {
        play(|w| async move {
            let set = two_sets(&w, manual(), false, image).await;
            if image == "db:2" {
                for ordinal in 0..2 {
                    w.steer(&format!("db-{ordinal}-0"), "unready").await;
                }
                w.until("they are down", |s| s["readyReplicas"] == 0).await;
            }
            let nodes = w.names(NODE);
            lose(&w, Value::Null).await;
            let held = w.until("that is said", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
            let sentence = said(&held);
            assert!(sentence.contains("first") && sentence.contains(&set), "{sentence}");
            w.rest(1200).await;
            assert_eq!(w.names(NODE), nodes);
        });
    }
}

#[test]
fn where_nothing_says_which_set_serves_nothing_is_removed_or_rolled_until_a_person_has_decided() {
    play(|w| async move {
        let set = two_sets(&w, manual(), false, "db:2").await;
        let (nodes, images) = (w.names(NODE), w.images());
        lose(&w, Value::Null).await;
        let held = w.until("that is said", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        let sentence = said(&held);
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
fn a_status_that_names_a_set_without_nodes_is_not_believed_over_one_that_has_some() {
    play(|w| async move {
        w.serve(manual()).await;
        let pods = w.images();
        let mut stale = w.status();
        stale["activeSet"] = json!("0ld01");
        lose(&w, stale).await;
        let found = w.until("it is found out", |s| s["activeSet"] == "first").await;
        assert!(found["rollout"].is_null(), "{found:#}");
        w.until("all is well", is_up_to_date).await;
        w.rest(120).await;
        assert_eq!((w.images(), w.selected()), (pods, "first".to_owned()));
        assert_eq!(w.events("NodeCreated").len(), 2);
    });
}

#[test]
fn a_set_that_nothing_proves_superfluous_is_kept_and_named_whether_it_is_ready_or_not() {
    play(|w| async move {
        // A status from before the rollout, without the other set.
        let set = two_sets(&w, manual(), false, "db:2-unready").await;
        lose(&w, json!({"activeSet": "first"})).await;
        w.until("it is found out", |s| s["activeSet"] == "first").await;
        w.rest(1200).await;
        assert!(w.names(NODE).contains(&format!("db-{set}-0")), "{:?}", w.names(NODE));
        assert!(said(&w.status()).contains(&set), "{:#}", w.status());
    });
}

/// Forbids the operator to change Services.
struct NoService;

impl FaultPlan for NoService {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_write = matches!(request.verb.as_str(), "patch" | "update");
        if is_write && request.resource.starts_with("services") && request.user_agent == "windlass" {
            return Before::Fail(Failure::Forbidden("no".to_owned()));
        }
        Before::Pass
    }
}

#[test]
fn a_set_that_the_service_still_selects_is_not_removed() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"retireDelaySeconds": 60}))).await;
        w.image("db:2").await;
        w.until("traffic moved", stage_is("Retiring")).await;
        w.kill_operator();
        w.cluster.set_faults(Box::new(NoService));
        let back = json!({"spec": {"selector": {"windlass.dev/set": "first"}}});
        w.api(("v1", "Service"))
            .patch("db", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&back))
            .await
            .unwrap();
        w.start_operator();
        w.rest(600).await;
        assert_eq!(w.names(NODE).len(), 4, "it carries the traffic");
        let message = text(&w.status()["rollout"], "message").to_owned();
        assert!(message.contains("Service") && message.contains("first"), "{message}");
        w.cluster.set_faults(Box::new(NoFaults));
        w.until("it is over", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
        assert_eq!(w.selected(), text(&w.status(), "activeSet"));
    });
}

/// Clears the status while everything runs, as an edit or a restore does.
async fn clear(w: &World) {
    w.patch_status(&json!({"status": null})).await;
}

#[test]
fn a_status_lost_before_the_promotion_leaves_the_serving_set_alone_and_begins_the_rollout_anew() {
    for image in ["db:2", "db:2-nope"] {
        play(|w| async move {
            w.serve(manual()).await;
            w.image(image).await;
            w.until("entrants are made", stage_is("AwaitingEntrants")).await;
            w.rest(20).await;
            let serving =
                |w: &World| w.images().into_iter().filter(|i| i.ends_with("db:1")).collect::<Vec<_>>();
            let before = (serving(&w), w.get(NODE, "db-0")["metadata"]["uid"].clone());
            clear(&w).await;
            let again = w.until("it begins anew", |s| s["plan"]["state"] == "Active").await;
            assert_eq!(again["plan"]["recipe"], "BlueGreen");
            assert_eq!(again["rollout"]["incumbentSet"], "first");
            assert_eq!(condition(&again, "RolloutInProgress"), "True/ChildDrift");
            w.rest(900).await;
            assert_eq!((serving(&w), w.get(NODE, "db-0")["metadata"]["uid"].clone()), before);
            assert_eq!(
                (w.selected(), text(&w.status(), "activeSet").to_owned()),
                ("first".into(), "first".into())
            );
            if image == "db:2" {
                let ready = w
                    .until("it waits for a person", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote")
                    .await;
                w.change(json!({"forcePromote": ready["requestedRolloutHash"]})).await;
                w.until("traffic moved", stage_is("Retiring")).await;
                w.until("it is over", is_up_to_date).await;
            } else {
                w.image("db:1").await;
                w.until("what serves is wanted again", |s| is_up_to_date(s) && w.names(NODE).len() == 2)
                    .await;
                assert_eq!(serving(&w), before.0);
            }
        });
    }
}

#[test]
fn what_serves_is_known_although_one_of_its_nodes_is_down_when_the_status_is_lost() {
    play(|w| async move {
        w.serve(manual()).await;
        w.steer("db-1-0", "unready").await;
        w.until("it is down", |s| s["readyReplicas"] == 1).await;
        w.change(json!({"paused": true})).await;
        w.image("db:2").await;
        clear(&w).await;
        let again = w.until("it begins anew", |s| s["plan"]["state"] == "Active").await;
        assert_eq!(again["plan"]["recipe"], "BlueGreen");
        w.change(json!({"paused": false})).await;
        w.rest(300).await;
        assert_eq!(w.images().iter().filter(|i| i.ends_with("db:1")).count(), 2, "{:?}", w.images());
    });
}

#[test]
fn under_a_build_id_that_stays_the_same_a_lost_status_still_means_in_place_and_under_a_new_one_a_set() {
    for (id, recipe) in [("one", "InPlace"), ("two", "BlueGreen")] {
        play(|w| async move {
            let mut fleet = manual();
            fleet["spec"]["unsafeCustomBuildID"] = json!("one");
            w.serve(fleet).await;
            w.kill_operator();
            w.change(json!({"unsafeCustomBuildID": id, "template": {"spec": {"image": "db:2"}}})).await;
            clear(&w).await;
            w.start_operator();
            let again = w.until("it begins", |s| s["plan"]["state"] == "Active").await;
            assert_eq!(again["plan"]["recipe"], recipe);
        });
    }
}

#[test]
fn a_first_creation_that_was_never_ready_is_put_right_in_place_although_its_status_is_lost() {
    play(|w| async move {
        let mut fleet = manual();
        fleet["spec"]["template"]["spec"]["image"] = json!("db:1-nope");
        w.create(fleet).await;
        w.until("it cannot run", |s| s["phase"] == "Failed").await;
        w.kill_operator();
        w.image("db:2").await;
        clear(&w).await;
        w.start_operator();
        w.until("it serves", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
    });
}

#[test]
fn a_set_that_does_not_exist_never_becomes_active() {
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

#[test]
fn a_promotion_that_has_switched_ends_although_its_record_is_lost() {
    for lost in ["plan", "rollout"] {
        play(|w| async move {
            w.serve(blue_green(2, json!({"retireDelaySeconds": 120}))).await;
            w.image("db:2").await;
            let moved = w.until("traffic moved", stage_is("Retiring")).await;
            w.patch_status(&json!({"status": {lost: null}})).await;
            let done = w.until("it is over", |s| s["rollout"].is_null() && s["plan"].is_null()).await;
            assert!(done["rejected"].is_null(), "{lost}: {done:#}");
            assert_eq!(condition(&done, "UpToDate"), "True/Applied");
            assert_eq!(condition(&done, "Stalled"), "False/Progressing");
            assert_eq!(done["lastCompletedRolloutHash"], moved["lastCompletedRolloutHash"]);
            assert_eq!(w.names(NODE).len(), 4, "the old nodes live on for their delay");
            w.until("the old set is gone", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
            assert_eq!(w.selected(), text(&moved["rollout"], "entrantSet"));
            w.is_at_rest().await;
        });
    }
}
