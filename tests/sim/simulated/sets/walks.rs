//! Findings of random walks: what an abort rejects, claims that change before the first completion, what is promoted,
//! and restarts requested of another object.

use serde_json::{Value, json};

use super::world::{CLAIM, World, blue_green, condition, fleet, is_up_to_date, message, play, text};

fn in_place() -> Value {
    fleet(3, json!({"type": "InPlace"}))
}

/// A fleet whose rollout to an image that cannot be pulled has a failed node; returns the plan.
async fn stuck(w: &World, of: Value) -> String {
    w.serve(of).await;
    w.image("db:2-nope").await;
    let failed = |s: &Value| !s["rollout"]["unconverged"].is_null() && s["rollout"]["nodes"]["failed"] != 0;
    text(&w.until("a node failed", failed).await["plan"], "id").to_owned()
}

#[test]
fn abort_rejects_its_plans_target_and_not_the_newer_one() {
    for (of, down) in [
        (in_place(), true),
        (in_place(), false),
        (blue_green(2, json!({"retireDelaySeconds": 5})), true),
        (blue_green(2, json!({"retireDelaySeconds": 5})), false),
    ] {
        play(|w| async move {
            let plan = stuck(&w, of).await;
            if down {
                w.kill_operator();
            }
            w.patch(&json!({"metadata": {"annotations": {"windlass.dev/abort": plan}},
                "spec": {"template": {"spec": {"image": "db:3"}}}}))
                .await;
            if down {
                w.rest(60).await;
                w.start_operator();
            }
            let done = w
                .until("the new one is there", |s| {
                    is_up_to_date(s) && w.images().iter().all(|i| i.ends_with("db:3"))
                })
                .await;
            assert!(done["rejected"].is_null(), "{done:#}");
            let outcomes: Vec<&str> =
                done["history"].as_array().unwrap().iter().map(|h| text(h, "outcome")).collect();
            assert_eq!(outcomes, ["Aborted", "Complete"]);
            assert_eq!(done["history"][0]["planID"], plan.as_str());
            assert_eq!(w.events("RolloutAborted").len(), 1);
            w.is_at_rest().await;
        });
    }
}

/// A fleet without claims whose first image cannot be pulled, and which then gets claims.
async fn never_whole(w: &World) {
    let mut of = blue_green(2, json!({"retireDelaySeconds": 5}));
    of["spec"]["template"]["spec"].as_object_mut().unwrap().remove("volumeClaimTemplates");
    of["spec"]["template"]["spec"]["image"] = json!("db:1-nope");
    w.create(of).await;
    w.until("it cannot run", |s| s["phase"] == "Failed").await;
    let claims = fleet(1, json!({}))["spec"]["template"]["spec"]["volumeClaimTemplates"].clone();
    w.change(json!({"template": {"spec": {"image": "db:2", "volumeClaimTemplates": claims}}})).await;
    let status = w.until("it is refused", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
    assert!(
        message(&status, "UpToDate").starts_with("template.spec.volumeClaimTemplates: node db-0 "),
        "{}",
        message(&status, "UpToDate")
    );
    assert_eq!(condition(&status, "Stalled"), "True/InvalidSpec");
    w.rest(30).await;
    assert!(w.status()["rejected"].is_null() && w.status()["plan"].is_null(), "{:#}", w.status());
    assert!(w.images().iter().all(|i| i.ends_with("db:1-nope")), "what runs is left alone");
    assert!(w.names(CLAIM).is_empty());
}

#[test]
fn claim_change_before_the_first_completion_is_refused() {
    play(|w| async move {
        never_whole(&w).await;
        w.change(json!({"template": {"spec": {"volumeClaimTemplates": null}}})).await;
        w.until("the good image is there", is_up_to_date).await;
        assert!(w.images().iter().all(|i| i.ends_with("db:2")));
        w.is_at_rest().await;
    });
}

#[test]
fn claim_change_creates_a_new_set_once_the_first_is_complete() {
    play(|w| async move {
        never_whole(&w).await;
        for name in ["db-0-0", "db-1-0"] {
            w.steer(name, "ready").await;
        }
        let done =
            w.until("a set with claims serves", |s| is_up_to_date(s) && w.names(CLAIM).len() == 2).await;
        assert_ne!(done["activeSet"], "first");
        assert_eq!(w.selected(), text(&done, "activeSet"));
        w.is_at_rest().await;
    });
}

#[test]
fn entrants_are_promoted_only_when_available() {
    play(|w| async move {
        let mut of = blue_green(2, json!({"retireDelaySeconds": 5}));
        of["spec"]["minReadySeconds"] = json!(100);
        w.serve(of).await;
        w.image("db:2").await;
        w.until("the new nodes are Ready", |s| s["rollout"]["nodes"]["ready"] == 2).await;
        for _ in 0..18 {
            w.rest(5).await;
            assert_eq!(w.selected(), "first");
            assert_eq!(w.status()["rollout"]["stage"], "AwaitingEntrants");
        }
        let waits = w.status()["rollout"]["message"].clone();
        assert!(waits.as_str().unwrap().contains("to be ready for minReadySeconds"), "{waits}");
        // Only time passes, with a reconcile at that moment.
        w.rest(15).await;
        assert_ne!(w.selected(), "first");
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn restart_older_than_the_fleet_restarts_nothing() {
    play(|w| async move {
        let mut of = in_place();
        of["metadata"]["annotations"] = json!({"windlass.dev/restartedAt": "2001-01-01T00:00:00Z"});
        w.serve(of).await;
        let pods = w.names(("v1", "Pod"));
        let uid = |pod: &String| w.get(("v1", "Pod"), pod)["metadata"]["uid"].clone();
        let before: Vec<Value> = pods.iter().map(uid).collect();
        w.annotate("windlass.dev/restartedAt", "2002-01-01T00:00:00Z").await;
        w.rest(60).await;
        let status = w.status();
        assert!(
            is_up_to_date(&status) && status["restartedAt"].is_null() && status["plan"].is_null(),
            "{status:#}"
        );
        assert_eq!(pods.iter().map(uid).collect::<Vec<_>>(), before);
        assert_eq!(w.events("InvalidSpec"), Vec::<String>::new());
        w.annotate("windlass.dev/restartedAt", "2099-01-01T00:00:00Z").await;
        w.until("it is obeyed", |s| s["restartedAt"] == "2099-01-01T00:00:00Z" && is_up_to_date(s)).await;
        assert!(pods.iter().map(uid).all(|uid| !before.contains(&uid)));
    });
}
