//! A plan that fails permanently: during a promotion it holds, and a retry continues it.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use windlass_sim::{Before, Failure, FaultPlan, NoFaults, RequestInfo};

use super::world::{
    CLAIM, NODE, World, blue_green, condition, fleet, is_up_to_date, message, outcomes, play, text,
    with_sidecar,
};

/// Refuses the operator's requests for one kind of object.
struct Refused {
    verb: &'static str,
    resource: &'static str,
}

impl FaultPlan for Refused {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_it = request.verb == self.verb && request.resource.starts_with(self.resource);
        if is_it && request.user_agent == "windlass" && !request.dry_run {
            return Before::Fail(Failure::TooLarge);
        }
        Before::Pass
    }
}

fn refuse(w: &World, verb: &'static str, resource: &'static str) {
    w.cluster.set_faults(Box::new(Refused { verb, resource }));
}

fn is_held(status: &Value) -> bool {
    condition(status, "UpToDate") == "False/PlanFailed" && status["rollout"]["stage"] == "Promoting"
}

/// Asserts the messages of a promotion that holds.
fn says_so(status: &Value, target: &str, cause: &str) {
    assert!(is_held(status), "{status:#}");
    assert_eq!(condition(status, "Stalled"), "True/PlanFailed");
    assert_eq!(condition(status, "RolloutInProgress"), "True/Stalled");
    assert_eq!(status["rollout"]["targetHash"], target);
    assert_eq!(status["requestedRolloutHash"], target);
    assert_eq!(status["plan"]["state"], "Failed");
    assert!(status["rejected"].is_null(), "it is not given up: {status:#}");
    let retry = format!("windlass.dev/retry={}", text(&status["plan"], "id"));
    for said in
        [message(status, "UpToDate"), message(status, "Stalled"), text(&status["rollout"], "message").into()]
    {
        assert!(said.contains(cause) && said.contains(&retry), "{said}");
    }
}

async fn retry(w: &World) -> String {
    let id = text(&w.status()["plan"], "id").to_owned();
    w.annotate("windlass.dev/retry", &id).await;
    id
}

/// A promotion whose old nodes are gone, and whose new ones are refused.
async fn refused(w: &World) -> Value {
    w.serve(blue_green(2, json!({"promotion": "Immediately"}))).await;
    refuse(w, "create", "statefulnodes");
    w.image("db:2").await;
    w.until("its plan has failed", |s| condition(s, "UpToDate") == "False/PlanFailed").await
}

#[test]
fn failed_promotion_plan_holds_until_retry() {
    play(|w| async move {
        let failed = refused(&w).await;
        let target = text(&failed, "requestedRolloutHash").to_owned();
        says_so(&failed, &target, "create-entrants");
        w.cluster.set_faults(Box::new(NoFaults));
        // None of these continues it or rolls it back.
        w.annotate("windlass.dev/abort", text(&failed["plan"], "id")).await;
        w.annotate("windlass.dev/retry", "some-other-plan").await;
        w.image("db:3").await;
        w.kill_operator();
        w.start_operator();
        w.rest(600).await;
        says_so(&w.status(), &target, "create-entrants");
        assert_eq!(w.names(NODE), [""; 0], "the old set is not made again");
        assert_eq!(w.status()["rollout"]["entrantSet"], failed["rollout"]["entrantSet"]);
        w.is_at_rest().await;
        let before = retry(&w).await;
        let again = w.until("it goes on", |s| s["plan"]["state"] == "Active").await;
        assert_ne!(text(&again["plan"], "id"), before);
        assert_eq!(again["plan"]["recipe"], "BlueGreenImmediate");
        assert_eq!(again["rollout"]["stage"], "Promoting");
        assert_eq!(again["rollout"]["entrantSet"], failed["rollout"]["entrantSet"]);
        assert_eq!(condition(&again, "RolloutInProgress"), "True/RetryRequested");
        w.until("the old target was finished first", |s| text(s, "lastCompletedRolloutHash") == target).await;
        let done = w.until("both are over", |s| is_up_to_date(s) && outcomes(s).len() == 3).await;
        assert_eq!(outcomes(&done), ["Failed", "Complete", "Complete"]);
        assert!(w.images().iter().all(|i| i.ends_with("db:3")), "{:?}", w.images());
        assert_eq!(w.events("RolloutFailed").len(), 1);
    });
}

async fn halting(w: &World) -> Value {
    w.applications.reach(500);
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000},
        "blueGreen": {"retireDelaySeconds": 10}});
    w.serve(with_sidecar(fleet(2, strategy))).await;
    w.image("db:2").await;
    w.until("they are asked to halt", |s| text(&s["rollout"], "message").contains("halt at height 1000"))
        .await
}

async fn make_unreadable(w: &World) {
    w.kill_operator();
    w.patch_status(
        &json!({"status": {"plan": {"tasks": [{"type": "of-another-version", "state": "Resting"}]}}}),
    )
    .await;
    w.start_operator();
}

#[test]
fn hard_fork_with_an_unreadable_plan_stays_at_its_height() {
    play(|w| async move {
        let before = halting(&w).await;
        let target = text(&before, "requestedRolloutHash").to_owned();
        w.until("sidecars know", |_| w.applications.halts() == [1000, 1000]).await;
        make_unreadable(&w).await;
        w.until("its plan has failed", is_held).await;
        let strategy = json!({"hardFork": {"haltHeight": 2000}});
        w.change(json!({"updateStrategy": strategy, "template": {"spec": {"image": "db:3"}}})).await;
        w.rest(600).await;
        let held = w.status();
        says_so(&held, &target, "cannot be read");
        assert_eq!(held["rollout"]["haltHeight"], 1000);
        assert_eq!(w.names(NODE).len(), 4, "both sets stay");
        for node in ["db-0", "db-1"] {
            assert_eq!(w.get(NODE, node)["spec"]["haltHeight"], 1000, "{node} is not taken back");
        }
        assert_eq!(w.selected(), "first");
        // A recreated node would exceed the height, since nobody asks it to halt.
        w.delete(NODE, "db-1").await;
        w.rest(60).await;
        assert_eq!(w.names(NODE).len(), 3);
        retry(&w).await;
        let again = w.until("it goes on", |s| s["plan"]["state"] == "Active").await;
        w.until("it is made again, and asked", |_| w.get(NODE, "db-1")["spec"]["haltHeight"] == 1000).await;
        assert_eq!(again["plan"]["recipe"], "HardFork");
        assert_eq!(again["rollout"]["haltHeight"], 1000);
        assert_eq!(again["rollout"]["entrantSet"], before["rollout"]["entrantSet"]);
        w.applications.reach(1000);
        w.until("traffic moved", |s| text(s, "lastCompletedRolloutHash") == target).await;
        let halts = w.applications.halts();
        assert!(!halts.is_empty() && halts.iter().all(|height| *height == 1000), "{halts:?}");
        w.applications.reach(2000);
        w.until("what was wanted meanwhile comes next", is_up_to_date).await;
        assert!(w.images().iter().all(|i| i.ends_with("db:3")), "{:?}", w.images());
    });
}

#[test]
fn recreated_fleet_reuses_the_volumes_of_its_first_set() {
    play(|w| async move {
        let fleet = blue_green(2, json!({"promotion": "Immediately"}));
        w.serve(fleet.clone()).await;
        let volume = |ordinal: i32| w.get(CLAIM, &format!("data-db-{ordinal}-0"))["metadata"]["uid"].clone();
        let before = [volume(0), volume(1)];
        w.image("db:2-nope").await;
        w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        w.delete(("windlass.dev/v1alpha1", "NodeDeployment"), "db").await;
        w.until("all of it is gone", |s| s.is_null() && w.names(NODE).is_empty() && w.images().is_empty())
            .await;
        w.serve(fleet).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        assert_eq!([volume(0), volume(1)], before);
    });
}

/// A fleet whose target is rejected, and whose drift cannot be repaired.
async fn not_put_right(w: &World) -> Value {
    w.serve(fleet(2, json!({"type": "InPlace"}))).await;
    w.image("db:2-unready").await;
    w.until("one is on its way", |_| w.images().iter().any(|i| i.ends_with("db:2-unready"))).await;
    w.rest(5).await;
    let plan = text(&w.status()["plan"], "id").to_owned();
    w.annotate("windlass.dev/abort", &plan).await;
    w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
    w.rest(60).await;
    refuse(w, "patch", "statefulnodes");
    let untouched = w.images().into_iter().find(|i| i.ends_with("db:1")).unwrap();
    let node = untouched.split("-0 ").next().unwrap().to_owned();
    let edit = json!({"spec": {"image": "db:edited"}});
    w.api(NODE).patch(&node, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
    w.until("the repair has failed", |s| outcomes(s).contains(&"Failed".to_owned())).await
}

#[test]
fn failed_drift_repair_with_a_rejected_target_waits_for_retry() {
    play(|w| async move {
        let failed = not_put_right(&w).await;
        assert_eq!(condition(&failed, "UpToDate"), "False/PlanFailed", "{failed:#}");
        let plan = text(&failed["rejected"], "planID").to_owned();
        w.is_at_rest().await;
        assert_eq!(outcomes(&w.status()), ["Aborted", "Failed"], "it does not begin again by itself");
        w.cluster.set_faults(Box::new(NoFaults));
        w.rest(120).await;
        assert_eq!(outcomes(&w.status()), ["Aborted", "Failed"]);
        w.annotate("windlass.dev/retry", &plan).await;
        let put_right =
            |_: &Value| w.names(NODE).iter().all(|n| w.get(NODE, n)["spec"]["image"] != "db:edited");
        w.until("it is put right", put_right).await;
        w.rest(60).await;
        assert_eq!(w.status()["rollout"]["cause"], "RetryRequested");
        assert!(
            w.images().iter().any(|i| i.ends_with("db:1")),
            "what is rejected is not begun: {:?}",
            w.images()
        );
        for node in w.names(NODE) {
            w.steer(&format!("{node}-0"), "ready").await;
        }
        w.until("it is over", |s| outcomes(s).len() == 3 && s["rollout"].is_null()).await;
        w.rest(120).await;
        assert_eq!(
            outcomes(&w.status()),
            ["Aborted", "Failed", "Complete"],
            "the target is not begun after it"
        );
        assert!(w.status()["rollout"].is_null(), "{:#}", w.status());
        assert!(!w.images().iter().any(|i| i.ends_with("db:edited")), "{:?}", w.images());
    });
}
