//! A person removes `status.rollout`. Nodes that were asked to halt stay asked, and a retry continues; any other rollout
//! begins again.

use serde_json::{Value, json};

use super::world::{NODE, World, condition, fleet, is_up_to_date, play, stage_is, text, with_sidecar};

async fn lose_rollout(w: &World) {
    w.patch_status(&json!({"status": {"rollout": null}})).await;
}

fn hard_fork() -> Value {
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000},
        "blueGreen": {"retireDelaySeconds": 10}});
    with_sidecar(fleet(2, strategy))
}

/// The status fields that a promotion depends on.
fn rests_on(status: &Value) -> Vec<Value> {
    let of = [
        "stage",
        "strategy",
        "targetHash",
        "targetRevision",
        "incumbentSet",
        "entrantSet",
        "buildID",
        "haltHeight",
    ];
    of.iter().map(|field| status["rollout"][field].clone()).collect()
}

#[test]
fn hard_fork_past_the_point_of_no_return_holds_until_retry() {
    for build_id in ["", "two"] {
        play(|w| async move {
            w.applications.reach(500);
            w.serve(hard_fork()).await;
            w.change(json!({"unsafeCustomBuildID": build_id, "template": {"spec": {"image": "db:2"}}})).await;
            let halts = |s: &Value| text(&s["rollout"], "message").contains("halt at height 1000");
            let before = w.until("they are asked to halt", halts).await;
            let target = text(&before, "requestedRolloutHash");
            // By then the target and the height differ.
            w.kill_operator();
            let strategy = json!({"hardFork": {"haltHeight": 2000}});
            w.change(json!({"updateStrategy": strategy, "unsafeCustomBuildID": "", "template": {"spec": {"image": "db:3"}}}))
                .await;
            lose_rollout(&w).await;
            w.start_operator();
            let held = w.until("it is held", |s| condition(s, "UpToDate") == "False/PlanFailed").await;
            assert_eq!(rests_on(&held), rests_on(&before), "{held:#}");
            w.rest(60).await;
            for node in ["db-0", "db-1"] {
                assert_eq!(w.get(NODE, node)["spec"]["haltHeight"], 1000, "{node} is not taken back");
            }
            assert_eq!((w.names(NODE).len(), w.selected()), (4, "first".to_owned()));
            w.annotate("windlass.dev/retry", text(&held["plan"], "id")).await;
            w.until("it goes on", |s| s["plan"]["state"] == "Active").await;
            w.applications.reach(1000);
            let moved = w.until("traffic moved", |s| text(s, "lastCompletedRolloutHash") == target).await;
            assert_eq!(moved["activeSet"], before["rollout"]["entrantSet"]);
            assert!(
                w.applications.halts().iter().all(|height| *height == 1000),
                "{:?}",
                w.applications.halts()
            );
            w.applications.reach(2000);
            w.until("what was wanted meanwhile comes next", is_up_to_date).await;
            assert!(w.images().iter().all(|i| i.ends_with("db:3")), "{:?}", w.images());
        });
    }
}

#[test]
fn manually_advanced_stage_is_reset() {
    for (strategy, service, stage) in [
        (
            json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual", "retireDelaySeconds": 5}}),
            true,
            "AwaitingPromotion",
        ),
        (
            json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual", "retireDelaySeconds": 5}}),
            false,
            "AwaitingPromotion",
        ),
        (
            json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}, "blueGreen": {"retireDelaySeconds": 5}}),
            true,
            "Promoting",
        ),
        (
            json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}, "blueGreen": {"retireDelaySeconds": 5}}),
            false,
            "Promoting",
        ),
    ] {
        play(|w| async move {
            w.applications.reach(500);
            let mut fleet = with_sidecar(fleet(2, strategy));
            if !service {
                fleet["spec"].as_object_mut().unwrap().remove("service");
            }
            w.serve(fleet).await;
            w.image("db:2").await;
            let before = w.until("it is there", stage_is(stage)).await;
            w.rest(20).await;
            let nodes = w.names(NODE);
            w.patch_status(&json!({"status": {"rollout": {"stage": "Retiring"}}})).await;
            w.rest(600).await;
            let status = w.status();
            assert_eq!(w.names(NODE), nodes, "{service} {stage}");
            assert_eq!(
                (text(&status, "activeSet"), text(&status["rollout"], "stage")),
                ("first", stage),
                "{service}"
            );
            assert_eq!(rests_on(&status), rests_on(&before), "{status:#}");
            w.change(json!({"forcePromote": before["requestedRolloutHash"]})).await;
            w.annotate("windlass.dev/retry", text(&status["plan"], "id")).await;
            w.applications.reach(1000);
            let done = w.until("it is over", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
            assert_eq!(done["activeSet"], before["rollout"]["entrantSet"]);
        });
    }
}
