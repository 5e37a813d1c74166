//! Hooks around a promotion: the old set stays until they are done.

use super::super::sets::world::{set_of, stage_is};
use super::*;

#[allow(clippy::needless_pass_by_value, reason = "a literal reads better so")]
fn blue_green(promotion: &str, hooks: Value) -> Value {
    let settings = json!({"promotion": promotion, "retireDelaySeconds": 5});
    fleet(2, json!({"type": "BlueGreen", "blueGreen": settings, "hooks": hooks}))
}

fn is_at(hook: &str, state: &str) -> impl Fn(&Value) -> bool {
    move |status| {
        let tasks = status["plan"]["tasks"].as_array().cloned().unwrap_or_default();
        status["plan"]["state"] == "Active"
            && tasks.iter().any(|t| t["params"]["hook"] == hook && t["state"] == state)
    }
}

#[test]
fn promotion_completes_after_the_hooks_that_follow_it() {
    play(|w| async move {
        let hooks = json!([
            person("first", "BeforeRollout"),
            person("before", "BeforePromotion"),
            person("after", "AfterPromotion"),
            person("last", "AfterRollout"),
        ]);
        let old = w.serve(blue_green("WhenReady", hooks)).await;
        w.image("db:2").await;
        let status = w.until("it is asked first", is_at("first", "Running")).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1"], "nothing is made before");
        w.approve(text(task(&status["plan"], "first"), "id")).await;
        let status = w.until("it is asked before", is_at("before", "Running")).await;
        w.rest(300).await;
        assert_eq!((w.names(NODE).len(), w.selected()), (4, "first".to_owned()));
        w.approve(text(task(&status["plan"], "before"), "id")).await;
        let status = w.until("it is asked after", is_at("after", "Running")).await;
        let set = set_of(text(&status["rollout"], "targetHash"));
        w.rest(300).await;
        assert_eq!(
            (w.names(NODE).len(), w.selected()),
            (4, set.clone()),
            "traffic has moved, and the old set lives"
        );
        let status = w.status();
        assert_eq!(text(&status, "lastCompletedRolloutHash"), old);
        assert_eq!(condition(&status, "UpToDate"), "Unknown/Promoting");
        assert_eq!(w.events("Promoted").len(), 1, "traffic has moved");
        w.approve(text(task(&status["plan"], "after"), "id")).await;
        w.until("it is promoted", stage_is("Retiring")).await;
        let status = w.until("it is asked last", is_at("last", "Running")).await;
        assert_ne!(text(&status, "lastCompletedRolloutHash"), old);
        assert_eq!(w.names(NODE).len(), 2);
        w.approve(text(task(&status["plan"], "last"), "id")).await;
        w.until("it is complete", is_up_to_date).await;
        assert_eq!(w.selected(), set);
        assert_eq!(w.events("Promoted").len(), 1);
        w.is_at_rest().await;
    });
}

#[test]
fn failed_promotion_moves_traffic_back_in_one_write() {
    play(|w| async move {
        let old =
            w.serve(blue_green("WhenReady", json!([fails("look", "AfterPromotion", "Rollback")]))).await;
        w.image("db:2").await;
        w.until("it looks", is_at("look", "Running")).await;
        assert_ne!(w.selected(), "first");
        w.cluster.clear_audit();
        let back = w.until("it goes back", |s| s["rejected"]["outcome"] == "RolledBack").await;
        assert_eq!(w.selected(), "first");
        let moved =
            w.cluster.audit().into_iter().filter(|e| e.is_write() && e.resource.contains("services")).count();
        assert_eq!(moved, 1, "in one write");
        assert_eq!(text(&back, "lastCompletedRolloutHash"), old);
        assert_eq!(text(&back, "activeSet"), "first");
        assert!(text(&back["rejected"], "message").contains("hook look"), "{}", back["rejected"]);
        let over = w
            .until("the new set is gone", |s| w.names(NODE) == ["db-0", "db-1"] && s["rollout"].is_null())
            .await;
        assert_eq!(condition(&over, "UpToDate"), "False/RolledBack");
        let told = w.events("RolledBack");
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("traffic moved back to set first"), "{told:?}");
        assert_eq!(w.events("Promoted").len(), 1);
        assert!(
            w.events("NodeDeleted").iter().all(|note| note.contains("the promotion of its set was canceled"))
        );
        w.is_at_rest().await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
    });
}

#[test]
fn held_promotion_can_be_aborted_or_skipped() {
    play(|w| async move {
        w.serve(blue_green("WhenReady", json!([fails("look", "AfterPromotion", "Hold")]))).await;
        w.image("db:2").await;
        let held = w.until("it has failed", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        assert_eq!(text(&held["rollout"], "stage"), "Promoting");
        w.annotate("windlass.dev/abort", text(&held["plan"], "id")).await;
        w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        let told = w.events("RolloutAborted");
        assert!(told[0].contains("traffic moved back to set first; its new nodes are deleted"), "{told:?}");
        w.until("the new set is gone", |_| w.names(NODE) == ["db-0", "db-1"]).await;
        assert_eq!(w.selected(), "first");
        w.image("db:3").await;
        let held = w.until("it has failed again", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        w.annotate("windlass.dev/skip", text(task(&held["plan"], "look"), "id")).await;
        w.until("it is complete", is_up_to_date).await;
        assert!(w.images().iter().all(|image| image.ends_with("db:3")));
    });
}

#[test]
fn immediate_promotion_keeps_old_nodes_until_hooks_complete() {
    play(|w| async move {
        w.serve(blue_green("Immediately", json!([person("backup", "BeforeRollout")]))).await;
        w.image("db:2").await;
        let status = w.until("it is asked", is_at("backup", "Running")).await;
        w.rest(300).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1"]);
        assert_ne!(text(&w.status()["rollout"], "stage"), "Promoting", "it may still be given up");
        w.annotate("windlass.dev/abort", text(&status["plan"], "id")).await;
        w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        w.image("db:3").await;
        let status = w.until("it is asked again", is_at("backup", "Running")).await;
        w.approve(text(task(&status["plan"], "backup"), "id")).await;
        w.until("it is complete", is_up_to_date).await;
        assert!(w.images().iter().all(|image| image.ends_with("db:3")));
    });
}

#[test]
fn new_template_supersedes_a_held_promotion() {
    play(|w| async move {
        let old = w.serve(blue_green("WhenReady", json!([fails("look", "AfterPromotion", "Hold")]))).await;
        w.image("db:2").await;
        let held = w.until("it has failed", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        let second = text(&held["rollout"], "targetHash").to_owned();
        assert_eq!(w.selected(), set_of(&second));
        w.image("db:3").await;
        let begun =
            w.until("the next begins", |s| s["rollout"]["targetHash"] != held["rollout"]["targetHash"]).await;
        assert_eq!(w.selected(), "first", "what is known to be well serves meanwhile");
        let third = text(&begun["rollout"], "targetHash").to_owned();
        assert_eq!(text(&begun, "requestedRolloutHash"), third);
        assert_eq!(text(&begun, "lastCompletedRolloutHash"), old);
        assert_eq!(begun["history"][0]["outcome"], "Superseded", "{}", to_text(&begun["history"]));
        let told = w.events("RolloutSuperseded");
        assert_eq!(told.len(), 1);
        for part in [&second[3..8], &third[3..8], "traffic moved back to set first"] {
            assert!(told[0].contains(part), "{told:?}");
        }
        let held = w.until("it has failed as well", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        assert_eq!(w.selected(), set_of(&third));
        w.annotate("windlass.dev/skip", text(task(&held["plan"], "look"), "id")).await;
        w.until("it is complete", is_up_to_date).await;
        w.until("the others are gone", |_| w.images().len() == 2).await;
        assert!(w.images().iter().all(|image| image.ends_with("db:3")));
        w.is_at_rest().await;
    });
}

#[test]
fn paused_fleet_with_a_held_promotion_moves_no_traffic() {
    play(|w| async move {
        w.serve(blue_green("WhenReady", json!([fails("look", "AfterPromotion", "Hold")]))).await;
        w.image("db:2").await;
        let held = w.until("it has failed", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        let second = set_of(text(&held["rollout"], "targetHash"));
        w.patch(&json!({"spec": {"paused": true}})).await;
        w.image("db:3").await;
        w.rest(60).await;
        assert_eq!(w.selected(), second);
        w.patch(&json!({"spec": {"paused": false}})).await;
        w.until("the next begins", |s| s["rollout"]["targetHash"] != held["rollout"]["targetHash"]).await;
        assert_eq!(w.selected(), "first");
    });
}

#[test]
fn serving_entrants_are_removed_in_waves_during_promotion() {
    nodes_that_took_over_leave_in_waves("Active");
}

fn nodes_that_took_over_leave_in_waves(state: &'static str) {
    play(|w| async move {
        let mut fleet = blue_green(
            "WhenReady",
            json!([person("ask", "AfterPromotion"), person("drain", "BeforeRemove")]),
        );
        fleet["spec"]["replicas"] = json!(4);
        w.serve(fleet).await;
        w.image("db:2").await;
        let status = w.until("it stands at the hook", is_at("ask", "Running")).await;
        let set = text(&status["rollout"], "entrantSet").to_owned();
        let asked = |prefix: &str| -> Vec<String> {
            let names = w.names(NODE).into_iter().filter(|name| name.starts_with(prefix));
            names.filter(|name| w.get(NODE, name)["spec"]["removalID"].is_string()).collect()
        };
        w.patch_status(&json!({"status": {"plan": {"state": state}}})).await;
        w.change(json!({"replicas": 1})).await;
        w.rest(120).await;
        assert_eq!(asked(&format!("db-{set}-")), [format!("db-{set}-3")], "who serves leaves one at a time");
        for old in ["db-1", "db-2", "db-3"] {
            assert!(asked(old) == [old], "those that serve no more leave together");
        }
    });
}

#[test]
fn terminating_pod_of_the_new_active_set_counts_in_the_wave() {
    play(|w| async move {
        let mut fleet = blue_green("WhenReady", json!([person("ask", "AfterPromotion")]));
        fleet["spec"]["replicas"] = json!(4);
        w.serve(fleet).await;
        w.image("db:2").await;
        let status = w.until("it stands at the hook", is_at("ask", "Running")).await;
        let set = text(&status["rollout"], "entrantSet").to_owned();
        w.steer(&format!("db-{set}-3-0"), "hold-terminating").await;
        w.change(json!({"replicas": 1})).await;
        w.rest(120).await;
        assert!(w.get(("v1", "Pod"), &format!("db-{set}-3-0"))["metadata"]["deletionTimestamp"].is_string());
        for ordinal in 0..3 {
            let node = w.get(NODE, &format!("db-{set}-{ordinal}"));
            assert!(!node.is_null(), "{ordinal} is gone: {:?}", w.names(NODE));
            assert!(node["spec"]["removalID"].is_null(), "{ordinal} was asked to leave");
        }
        assert_eq!(w.names(NODE).iter().filter(|name| name.starts_with("db-0")).count(), 1);
        for old in ["db-1", "db-2", "db-3"] {
            assert!(w.get(NODE, old).is_null(), "those that serve no more left together");
        }
    });
}

#[test]
fn strategy_change_during_promotion_moves_no_traffic_back() {
    play(|w| async move {
        w.serve(blue_green("WhenReady", json!([fails("look", "AfterPromotion", "Hold")]))).await;
        w.image("db:2").await;
        let held = w.until("it has failed", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        let second = set_of(text(&held["rollout"], "targetHash"));
        let at_once = json!({"blueGreen": {"promotion": "Immediately"}, "hooks": []});
        w.change(json!({"updateStrategy": at_once})).await;
        w.rest(30).await;
        assert_eq!(w.selected(), second);
        w.annotate("windlass.dev/skip", text(task(&held["plan"], "look"), "id")).await;
        w.until("it is complete", |s| {
            assert_eq!(w.selected(), second);
            is_up_to_date(s)
        })
        .await;
        assert_eq!(w.events("RolloutSuperseded").len(), 0);
        assert!(w.images().iter().all(|image| image.ends_with("db:2")), "{:?}", w.images());
    });
}

#[test]
fn traffic_moves_back_only_to_an_available_set() {
    play(|w| async move {
        w.serve(blue_green("WhenReady", json!([fails("look", "AfterPromotion", "Rollback")]))).await;
        w.image("db:2").await;
        let status = w.until("it looks", is_at("look", "Running")).await;
        let second = set_of(text(&status["rollout"], "targetHash"));
        w.steer("db-0-0", "unready").await;
        w.until("it has failed", is_at("look", "Failed")).await;
        w.rest(60).await;
        assert_eq!(w.selected(), second);
        assert!(w.status()["rejected"].is_null());
        w.merge(("v1", "ConfigMap"), "steer-db-0-0", &json!({"data": {"db-0-0": "ready"}})).await;
        w.until("it goes back", |s| s["rejected"]["outcome"] == "RolledBack").await;
        assert_eq!(w.selected(), "first");
    });
}

#[test]
fn traffic_moves_back_once_the_service_name_is_free() {
    const SERVICE: (&str, &str) = ("v1", "Service");
    for (hook, outcome) in [
        (person("look", "AfterPromotion"), "False/Aborted"),
        (fails("look", "AfterPromotion", "Rollback"), "False/RolledBack"),
    ] {
        play(|w| async move {
            w.serve(blue_green("WhenReady", json!([hook]))).await;
            w.image("db:2").await;
            let status = w.until("it looks", is_at("look", "Running")).await;
            let set = text(&status["rollout"], "entrantSet").to_owned();
            w.merge(SERVICE, "db", &json!({"metadata": {"ownerReferences": null}})).await;
            w.until("it is said", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
            if outcome == "False/Aborted" {
                w.annotate("windlass.dev/abort", text(&status["plan"], "id")).await;
            }
            w.rest(10).await;
            w.delete(NODE, &format!("db-{set}-1")).await;
            w.change(json!({"replicas": 3})).await;
            w.rest(60).await;
            let held = w.status();
            assert_eq!(w.names(NODE).len(), 6, "{outcome}: both sets are whole: {:?}", w.names(NODE));
            assert_eq!(condition(&held, "UpToDate"), "False/InvalidSpec", "{outcome}");
            assert!(message(&held, "UpToDate").contains("Service db"), "{outcome}: {held:#}");
            assert_eq!((text(&held["plan"], "state"), w.selected()), ("Active", set.clone()), "{outcome}");
            w.cluster.clear_audit();
            w.rest(60).await;
            let is_of_fleet =
                |e: &windlass_sim::AuditEntry| e.is_write() && e.resource.starts_with("nodedeployments");
            let written = w.cluster.audit().into_iter().filter(is_of_fleet).count();
            assert!(written < 5, "{outcome}: {written} writes in a minute in which nothing changed");
            w.delete(SERVICE, "db").await;
            w.rest(60).await;
            let back = w.status();
            assert_eq!((w.selected().as_str(), condition(&back, "UpToDate").as_str()), ("first", outcome));
            w.until("the new set is gone", |_| w.names(NODE) == ["db-0", "db-1", "db-2"]).await;
            assert_eq!(w.events("Promoted").len(), 1, "{outcome}");
        });
    }
}
