//! Hooks of paused, aborted and superseded rollouts.

use super::*;

#[test]
fn hook_timeout_does_not_elapse_while_the_fleet_is_paused() {
    play(|w| async move {
        w.serve(in_place(2, json!({}), json!([fails("backup", "BeforeRollout", "Rollback")]))).await;
        w.image("db:2").await;
        w.until("it runs", |s| s["plan"]["tasks"][0]["state"] == "Running").await;
        w.patch(&json!({"spec": {"paused": true}})).await;
        w.rest(900).await;
        let paused = w.status();
        assert_eq!(task(&paused["plan"], "backup")["state"], "Running", "{}", to_text(&paused["plan"]));
        assert_eq!(w.events("HookFailed").len(), 0);
        w.patch(&json!({"spec": {"paused": false}})).await;
        let failed = w.until("its time is over", |s| !s["rejected"].is_null()).await;
        assert_eq!(failed["rejected"]["outcome"], "RolledBack");
        w.is_at_rest().await;
    });
}

#[test]
fn abort_runs_no_hook_for_unchanged_nodes() {
    play(|w| async move {
        let hooks = json!([fails("drain", "BeforeNode", "Hold"), person("look", "AfterNode")]);
        w.serve(in_place(3, json!({}), hooks)).await;
        w.image("db:2").await;
        w.until("it has failed", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        let id = text(&w.status()["plan"], "id").to_owned();
        w.annotate("windlass.dev/abort", &id).await;
        w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        w.is_at_rest().await;
        for node in ["db-0", "db-1", "db-2"] {
            let plan = w.node_plan(node);
            assert_eq!(text(&plan, "state"), "Complete", "{node}: {}", to_text(&plan));
            let carried =
                tasks(&plan).into_iter().filter(|t| t.starts_with("drain") || t.starts_with("look"));
            assert_eq!(carried.collect::<Vec<_>>(), [""; 0], "{node}");
        }
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1", "db-2-0 db:1"]);
    });
}

#[test]
fn hook_failure_of_an_old_target_does_not_affect_the_new_one() {
    play(|w| async move {
        let hooks = json!([rest("before", "BeforeRollout", 60), fails("drain", "BeforeNode", "Hold")]);
        w.serve(in_place(3, json!({}), hooks)).await;
        w.image("db:2").await;
        w.until("it has failed", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        w.image("db:3").await;
        let begun = |s: &Value| {
            s["plan"]["tasks"][0]["state"] == "Running" && s["history"][0]["outcome"] == "Superseded"
        };
        let next = w.until("the next has begun", begun).await;
        assert_eq!(condition(&next, "UpToDate"), "Unknown/Applying", "{}", to_text(&next));
        assert_eq!(condition(&next, "Stalled"), "False/Progressing");
    });
}

#[test]
fn pending_approvals_are_named_despite_other_blockers() {
    play(|w| async move {
        let hooks = json!([fails("drain", "BeforeRemove", "Hold"), person("ask", "BeforeRollout")]);
        w.serve(in_place(4, json!({"maxUnavailable": 2}), hooks)).await;
        w.change(json!({"replicas": 2})).await;
        w.until("it has failed", |s| condition(s, "UpToDate") == "False/HookFailed").await;
        w.image("db:2").await;
        let message = |status: &Value| text(&status["rollout"], "message").to_owned();
        let status = w.until("it is asked", |s| message(s).contains("hook ask")).await;
        let said = message(&status);
        assert!(said.contains("hook drain of node db-") && said.contains("failed"), "{said}");
        assert!(said.contains("hook ask: waiting for approval: windlass approve nd/db"), "{said}");
        // A removal waits for a person at the same time as a promotion.
        w.annotate("windlass.dev/skip", text(task(&w.node_plan("db-3"), "drain"), "id")).await;
        w.until("one of both has gone", |_| w.names(NODE).len() == 3).await;
        let skipped = |s: &Value| message(s).contains("hook ask: waiting for approval");
        w.until("the person is still named", skipped).await;
    });
}
