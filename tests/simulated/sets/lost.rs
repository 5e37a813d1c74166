//! A status that is lost while there are two sets of nodes: which one serves is found out, never guessed.

use serde_json::{Value, json};
use windlass::sim::{Before, Failure, FaultPlan, NoFaults, RequestInfo};

use super::world::{NODE, World, blue_green, condition, is_up_to_date, play, stage_is, text};

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
            w.until("all is well", is_up_to_date).await;
            assert_eq!(w.status()["activeSet"], serves.as_str());
        });
    }
}

#[test]
fn without_a_service_what_is_ready_for_the_moment_decides_nothing() {
    // The entrants are down, or the nodes that serve are.
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
        // A person knows.
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
        // A status of before the rollout, which knows nothing of the other set.
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
