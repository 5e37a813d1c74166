//! The effects of a failed hook, and what a person can do.

use super::*;
use crate::simulated::sets::world::{FLEET, POD};

#[test]
fn failed_fleet_hook_holds_the_rollout_until_retry() {
    play(|w| async move {
        w.serve(in_place(2, json!({}), json!([fails("backup", "BeforeRollout", "Hold")]))).await;
        w.image("db:2").await;
        let failed = w.until("it has failed", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        assert_eq!(condition(&failed, "Stalled"), "True/HookFailed");
        assert_eq!(condition(&failed, "RolloutInProgress"), "True/TemplateChanged");
        assert!(
            message(&failed, "UpToDate").contains("hook backup failed: no success within 3 s"),
            "{failed}"
        );
        assert_eq!(failed["plan"]["state"], "Active");
        assert_eq!(failed["plan"]["tasks"][0]["state"], "Failed");
        let id = text(&failed["plan"], "id").to_owned();
        w.is_at_rest().await;
        assert_eq!(w.events("HookFailed").len(), 1);
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);

        w.annotate("windlass.dev/retry", &id).await;
        let again = |n: u64| {
            move |s: &Value| {
                s["plan"]["tasks"][0]["attempt"] == n && s["plan"]["tasks"][0]["state"] == "Failed"
            }
        };
        let failed = w.until("it has failed again", again(2)).await;
        assert_eq!(text(&failed["plan"], "id"), id, "in the same plan");
        w.is_at_rest().await;
        assert_eq!(w.events("HookFailed").len(), 2, "once for each attempt");
        // The same with a suffix is another request.
        w.annotate("windlass.dev/retry", &format!("{id}/2")).await;
        let mut running = Value::Null;
        w.until("it runs again", |s| {
            running = s["plan"]["tasks"][0].clone();
            running["state"] == "Running" && running["attempt"] == 3
        })
        .await;
        w.approve(text(&running, "id")).await;
        w.until("it is complete", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
        w.is_at_rest().await;
    });
}

#[test]
fn failed_node_hook_holds_the_fleet_until_retry() {
    play(|w| async move {
        let hooks = json!([fails("drain", "BeforeNode", "Hold")]);
        w.serve(in_place(4, json!({"maxUnavailable": 2}), hooks)).await;
        w.image("db:2").await;
        let plan = w.until_node_at("db-3", "drain", "Failed").await;
        let failed = w.until("that is said", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        assert_eq!(condition(&failed, "Stalled"), "True/HookFailed");
        let said = message(&failed, "UpToDate");
        assert!(said.contains("hook drain of node db-") && said.contains("no success within 3 s"), "{said}");
        assert_eq!(condition(&w.get(NODE, "db-3")["status"], "Stalled"), "True/HookFailed");
        w.rest(900).await;
        assert_eq!(w.images().iter().filter(|i| i.ends_with("db:2")).count(), 0);
        assert_eq!(w.status()["rollout"]["nodes"]["disrupted"], 2, "nothing more is granted");
        let named: Vec<Value> = w.status()["hooks"].as_array().unwrap().clone();
        let of = |hook: &Value| {
            (text(hook, "hook").to_owned(), text(hook, "node").to_owned(), text(hook, "state").to_owned())
        };
        let expected = |node: &str| ("drain".to_owned(), node.to_owned(), "Failed".to_owned());
        assert_eq!(named.iter().map(of).collect::<Vec<_>>(), [expected("db-2"), expected("db-3")]);
        let id = text(&w.status()["plan"], "id").to_owned();
        w.annotate("windlass.dev/retry", &id).await;
        w.until("it is tried again", |_| task(&w.node_plan("db-3"), "drain")["attempt"] == 2).await;
        assert_eq!(text(&w.node_plan("db-3"), "id"), text(&plan, "id"), "in the same plan");
        w.until("it has failed again", |_| task(&w.node_plan("db-3"), "drain")["state"] == "Failed").await;
        // Each is skipped.
        for node in ["db-3", "db-2", "db-1", "db-0"] {
            let plan = w.until_node_at(node, "drain", "Failed").await;
            w.annotate("windlass.dev/skip", text(task(&plan, "drain"), "id")).await;
            w.until("it goes on", |_| w.images().contains(&format!("{node}-0 db:2"))).await;
        }
        w.until("it is complete", is_up_to_date).await;
        assert_eq!(w.events("SkipRefused"), [""; 0]);
        w.is_at_rest().await;
    });
}

#[test]
fn hook_failure_with_rollback_acts_like_a_stall() {
    play(|w| async move {
        let first = w.serve(in_place(3, json!({}), json!([]))).await;
        let hooks = json!([{"name": "look", "at": "AfterNode", "approval": {}, "timeoutSeconds": 3, "onFailure": "Rollback"}]);
        w.change(json!({"updateStrategy": {"hooks": hooks}})).await;
        w.image("db:2").await;
        let back = w.until("it goes back", |s| s["rejected"]["outcome"] == "RolledBack").await;
        assert!(
            text(&back["rejected"], "message").contains("hook look of node db-2"),
            "{}",
            back["rejected"]
        );
        // A rollback may wait for a person, too.
        let entry = back["history"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((text(&entry, "outcome"), text(&entry, "reason")), ("RolledBack", "HookFailed"));
        let plan = w.until_node_at("db-2", "look", "Running").await;
        w.approve(text(task(&plan, "look"), "id")).await;
        let over = w.until("it is back", |s| s["rollout"].is_null()).await;
        assert_eq!(text(&over, "lastCompletedRolloutHash"), first);
        assert_eq!(condition(&over, "UpToDate"), "False/RolledBack");
        assert!(w.images().iter().all(|image| image.ends_with("db:1")), "{:?}", w.images());
        assert_eq!(w.events("RolledBack").len(), 1);
        w.is_at_rest().await;
    });
}

#[test]
fn hook_removed_from_the_list_no_longer_blocks() {
    for (hook, at, state) in [
        (fails("drain", "BeforeNode", "Hold"), "BeforeNode", "Failed"),
        (person("drain", "BeforeNode"), "BeforeNode", "Running"),
        (fails("drain", "BeforeRollout", "Hold"), "BeforeRollout", "Failed"),
    ] {
        play(|w| async move {
            w.serve(in_place(2, json!({}), json!([hook]))).await;
            w.image("db:2").await;
            if at == "BeforeNode" {
                w.until_node_at("db-1", "drain", state).await;
            } else {
                w.until("it has failed", |s| s["plan"]["tasks"][0]["state"] == state).await;
            }
            w.rest(60).await;
            w.change(json!({"updateStrategy": {"hooks": []}})).await;
            w.rest(30).await;
            assert!(is_up_to_date(&w.status()), "{at} {state}: {}", to_text(&w.status()));
            assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
            w.is_at_rest().await;
        });
    }
}

#[test]
fn reverting_hook_and_target_together_replaces_no_pod() {
    for (hook, state) in
        [(fails("drain", "BeforeNode", "Hold"), "Failed"), (person("drain", "BeforeNode"), "Running")]
    {
        play(|w| async move {
            w.serve(in_place(2, json!({}), json!([]))).await;
            let to = |image: &str, hooks: Value| json!({"template": {"spec": {"image": image}}, "updateStrategy": {"hooks": hooks}});
            w.change(to("db:2", json!([hook]))).await;
            w.until_node_at("db-1", "drain", state).await;
            w.rest(60).await;
            let pods = || ["db-0-0", "db-1-0"].map(|pod| w.get(POD, pod)["metadata"]["uid"].clone());
            let before = pods();
            w.change(to("db:1", json!([]))).await;
            w.until("it is back", is_up_to_date).await;
            w.rest(30).await;
            assert_eq!(pods(), before, "{state}: what it was granted was withdrawn");
            w.is_at_rest().await;
        });
    }
}

#[test]
fn deleted_fleet_with_retained_nodes_skips_no_hook() {
    for (hook, state) in
        [(fails("drain", "BeforeNode", "Hold"), "Failed"), (person("drain", "BeforeNode"), "Running")]
    {
        play(|w| async move {
            let mut fleet = in_place(2, json!({}), json!([hook, person("look", "BeforeNode")]));
            fleet["spec"]["deletionPolicy"] = json!("Retain");
            w.serve(fleet).await;
            w.image("db:2").await;
            w.until_node_at("db-1", "drain", state).await;
            w.rest(60).await;
            let before = w.get(POD, "db-1-0")["metadata"]["uid"].clone();
            w.delete(FLEET, "db").await;
            for (hook, state) in [("drain", state), ("look", "Running")] {
                // Longer than a node is left alone.
                w.rest(1_000).await;
                let pod = w.get(POD, "db-1-0")["metadata"]["uid"].clone();
                assert_eq!(pod, before, "{hook}: nobody allowed that it goes undrained");
                let plan = w.node_plan("db-1");
                assert_eq!((text(&plan, "state"), text(task(&plan, hook), "state")), ("Active", state));
                // A person can still let the node go on.
                let id = text(task(&plan, hook), "id").to_owned();
                w.merge(NODE, "db-1", &json!({"metadata": {"annotations": {"windlass.dev/skip": id}}})).await;
            }
            w.until("it goes on", |_| w.images().contains(&"db-1-0 db:2".to_owned())).await;
        });
    }
}
