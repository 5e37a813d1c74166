//! The points of hooks: each in its plan, and in no other.

use super::*;

#[test]
fn rollout_hooks_run_once_before_and_after() {
    play(|w| async move {
        let hooks = json!([person("before", "BeforeRollout"), person("after", "AfterRollout")]);
        let first = w.serve(in_place(2, json!({}), hooks)).await;
        assert!(w.status()["plan"].is_null(), "the first creation is no rollout");
        w.image("db:2").await;
        let waits =
            w.until("a person is asked", |s| text(&s["plan"]["tasks"][0], "state") == "Running").await;
        assert_eq!(
            tasks(&waits["plan"]),
            ["before=Running", "update-node-specs", "await-spec-update", "mark-ready", "after"]
        );
        w.rest(700).await;
        let status = w.status();
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        assert_eq!(condition(&status, "Stalled"), "False/Progressing", "a person may take their time");
        let message = text(&status["rollout"], "message");
        let id = text(&waits["plan"]["tasks"][0], "id").to_owned();
        assert!(message.contains("hook before") && message.contains("windlass approve nd/db"), "{message}");
        assert!(message.contains(&id), "{message}");
        assert_eq!(w.events("ApprovalRequested").len(), 1, "{:?}", w.events("ApprovalRequested"));
        w.approve(&id).await;
        let last =
            w.until("the last is at hand", |s| text(&s["plan"]["tasks"][4], "state") == "Running").await;
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
        assert_eq!(text(&last, "lastCompletedRolloutHash"), first, "it is complete only afterwards");
        assert_ne!(condition(&last, "UpToDate"), "True/Applied");
        w.approve(text(&last["plan"]["tasks"][4], "id")).await;
        let done = w.until("it is complete", is_up_to_date).await;
        assert_ne!(text(&done, "lastCompletedRolloutHash"), first);
        assert_eq!(w.events("ApprovalRequested").len(), 2);
        w.is_at_rest().await;
    });
}

#[test]
fn pod_and_wave_wait_for_node_hooks() {
    play(|w| async move {
        let hooks = json!([person("drain", "BeforeNode"), person("look", "AfterNode")]);
        w.serve(in_place(2, json!({}), hooks)).await;
        for node in ["db-0", "db-1"] {
            assert_eq!(
                tasks(&w.node_plan(node))
                    .iter()
                    .filter(|t| t.contains("drain") || t.contains("look"))
                    .count(),
                0,
                "{node}: at the first creation there are none"
            );
        }
        w.image("db:2").await;
        let plan = w.until_node_at("db-1", "drain", "Running").await;
        assert_eq!(
            tasks(&plan),
            [
                "apply-stateful-set=Complete",
                "apply-service=Complete",
                "drain=Running",
                "replace-pod",
                "observe-image",
                "mark-ready",
                "look"
            ]
        );
        w.rest(700).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"], "its pod stays until a person has spoken");
        assert_eq!(condition(&w.status(), "Stalled"), "False/Progressing");
        assert_eq!(condition(&w.get(NODE, "db-1")["status"], "Stalled"), "False/Progressing");
        assert!(
            text(&w.status()["rollout"], "message").contains("hook drain of node db-1"),
            "{}",
            w.status()["rollout"]
        );
        w.approve(text(task(&plan, "drain"), "id")).await;
        let plan = w.until_node_at("db-1", "look", "Running").await;
        w.rest(300).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:2"], "the next waits for what comes after");
        assert_eq!(w.status()["rollout"]["nodes"]["disrupted"], 1, "it counts until then");
        w.approve(text(task(&plan, "look"), "id")).await;
        for hook in ["drain", "look"] {
            let plan = w.until_node_at("db-0", hook, "Running").await;
            w.approve(text(task(&plan, hook), "id")).await;
        }
        w.until("it is complete", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

#[test]
fn node_is_removed_after_its_before_remove_hook() {
    play(|w| async move {
        w.serve(in_place(3, json!({}), json!([person("decommission", "BeforeRemove")]))).await;
        w.change(json!({"replicas": 2})).await;
        let plan = w.until_node_at("db-2", "decommission", "Running").await;
        assert_eq!(tasks(&plan), ["decommission=Running", "await-removal"]);
        w.rest(300).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1", "db-2"]);
        let status = w.status();
        let list = status["conditions"].as_array().unwrap();
        let reconciling = list.iter().find(|c| c["type"] == "Reconciling").unwrap();
        let said = text(reconciling, "message");
        assert!(said.contains("hook decommission of node db-2: waiting for approval"), "{said}");
        w.approve(text(task(&plan, "decommission"), "id")).await;
        w.until("it is gone", |s| w.names(NODE) == ["db-0", "db-1"] && is_up_to_date(s)).await;
        // Deleting a fleet deletes its nodes.
        w.delete(("windlass.dev/v1alpha1", "NodeDeployment"), "db").await;
        w.rest(120).await;
        assert_eq!(w.names(NODE), [""; 0]);
    });
}

#[test]
fn leaving_node_serves_until_its_hook_completes() {
    play(|w| async move {
        w.serve(in_place(2, json!({}), json!([person("decommission", "BeforeRemove")]))).await;
        w.change(json!({"replicas": 1})).await;
        let plan = w.until_node_at("db-1", "decommission", "Running").await;
        let pod = || w.get(("v1", "Pod"), "db-1-0")["metadata"]["uid"].clone();
        let before = pod();
        w.delete(("apps/v1", "StatefulSet"), "db-1").await;
        let serves = || condition(&w.get(NODE, "db-1")["status"], "Ready") == "True/NodeReady";
        w.until("it serves again", |_| pod() != before && !pod().is_null() && serves()).await;
        w.approve(text(task(&plan, "decommission"), "id")).await;
        w.until("it is gone", |s| w.names(NODE) == ["db-0"] && is_up_to_date(s)).await;
        w.rest(60).await;
        assert_eq!(w.names(("apps/v1", "StatefulSet")), ["db-0"]);
    });
}
