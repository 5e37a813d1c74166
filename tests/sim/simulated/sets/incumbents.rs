//! The serving nodes while entrants are created: they are not changed, a lost one is recreated, and changes requested
//! meanwhile are not forgotten.

use serde_json::{Value, json};

use super::world::{SERVICE, World, blue_green, condition, is_up_to_date, play, text};

const LATER: &str = "2031-01-01T00:00:00Z";

async fn ready_to_promote(w: &World) -> Value {
    w.serve(blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 5}))).await;
    w.image("db:2").await;
    w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await
}

fn pod_uid(w: &World, pod: &str) -> Value {
    w.get(("v1", "Pod"), pod)["metadata"]["uid"].clone()
}

fn restarted(w: &World, pod: &str) -> Value {
    w.get(("v1", "Pod"), pod)["metadata"]["annotations"]["windlass.dev/restartedAt"].clone()
}

async fn until_serves(w: &World, pod: &str, image: &str) {
    let serves = |_: &Value| {
        let pod = w.get(("v1", "Pod"), pod);
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        pod["spec"]["containers"][0]["image"] == image
            && pod["metadata"]["deletionTimestamp"].is_null()
            && conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    w.until("it serves", serves).await;
}

#[test]
fn restart_before_promotion_waits_and_restarts_the_new_set() {
    play(|w| async move {
        let ready = ready_to_promote(&w).await;
        let set = text(&ready["rollout"], "entrantSet").to_owned();
        let before = [pod_uid(&w, "db-0-0"), pod_uid(&w, "db-1-0")];
        w.annotate("windlass.dev/restartedAt", LATER).await;
        w.rest(120).await;
        assert_eq!([pod_uid(&w, "db-0-0"), pod_uid(&w, "db-1-0")], before, "incumbents are not touched");
        let message = text(&w.status()["rollout"], "message").to_owned();
        assert!(message.contains(LATER), "{message}");
        w.change(json!({"forcePromote": ready["requestedRolloutHash"]})).await;
        let done = w.until("it is over", |s| is_up_to_date(s) && s["restartedAt"] == LATER).await;
        assert_eq!(done["activeSet"], set.as_str());
        assert_eq!(restarted(&w, &format!("db-{set}-0-0")), LATER);
        assert_eq!(restarted(&w, &format!("db-{set}-1-0")), LATER);
    });
}

#[test]
fn restart_before_an_abandoned_rollout_restarts_the_active_set() {
    for abort in [false, true] {
        play(|w| async move {
            let ready = ready_to_promote(&w).await;
            w.annotate("windlass.dev/restartedAt", LATER).await;
            w.rest(10).await;
            if abort {
                w.annotate("windlass.dev/abort", text(&ready["plan"], "id")).await;
            } else {
                w.image("db:1").await;
            }
            w.until("it is obeyed", |s| s["restartedAt"] == LATER && s["rollout"].is_null()).await;
            assert_eq!(restarted(&w, "db-0-0"), LATER);
            assert_eq!(restarted(&w, "db-1-0"), LATER);
            until_serves(&w, "db-0-0", "db:1").await;
        });
    }
}

#[test]
fn edited_incumbent_is_repaired_after_the_rollout() {
    play(|w| async move {
        ready_to_promote(&w).await;
        // The pod is created from the edited template before it can be restored.
        w.kill_operator();
        let edit =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "db:hand"}]}}}});
        let sets = w.api(("apps/v1", "StatefulSet"));
        let patch = kube::api::Patch::Strategic(edit);
        sets.patch("db-1", &kube::api::PatchParams::default(), &patch).await.unwrap();
        w.rest(2).await;
        w.delete(("v1", "Pod"), "db-1-0").await;
        until_serves(&w, "db-1-0", "db:hand").await;
        let by_hand = pod_uid(&w, "db-1-0");
        w.start_operator();
        w.rest(120).await;
        assert_eq!(pod_uid(&w, "db-1-0"), by_hand, "incumbents are not touched");
        w.image("db:1").await;
        w.until("the entrants are given up", |s| {
            s["rollout"].is_null() || s["rollout"]["stage"] == "Updating"
        })
        .await;
        until_serves(&w, "db-1-0", "db:1").await;
        w.until("it is put right", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

/// Nothing can be done by a target about a Service that cannot be made.
#[test]
fn no_target_is_rejected_while_the_service_is_blocked() {
    for is_anothers in [true, false] {
        play(|w| async move {
            let mut fleet = blue_green(2, json!({"promotion": "Immediately"}));
            fleet["spec"]["updateStrategy"]["onStall"] = json!("Rollback");
            w.serve(fleet).await;
            w.rest(5).await;
            if is_anothers {
                w.merge(SERVICE, "db", &json!({"metadata": {"ownerReferences": null}})).await;
            } else {
                w.merge(SERVICE, "db", &json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
                w.delete(SERVICE, "db").await;
            }
            w.rest(5).await;
            w.image("db:2").await;
            // Five times as long as a rollout may go without progress.
            w.rest(600).await;
            let held = w.status();
            let rollout = &held["rollout"];
            assert_eq!(text(rollout, "stage"), "CreatingEntrants", "{is_anothers}: {held:#}");
            assert!(held["rejected"].is_null(), "{is_anothers}: {held:#}");
            assert!(text(rollout, "message").contains("Service"), "{is_anothers}: {rollout:#}");
            let named = rollout["unconverged"].as_array().map_or(0, Vec::len);
            assert_eq!(named, 0, "nodes that cannot be made yet are not late: {rollout:#}");
            assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"], "{is_anothers}");
            if is_anothers {
                w.delete(SERVICE, "db").await;
            } else {
                w.merge(SERVICE, "db", &json!({"metadata": {"finalizers": null}})).await;
            }
            let done = w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
            assert_eq!(w.selected(), text(&done, "activeSet"), "{is_anothers}");
        });
    }
}
