//! Rollback: nodes are restored at once, without hooks before or after.

use super::*;

fn hooks() -> Value {
    json!([rest("before", "BeforeRollout", 2), rest("after", "AfterRollout", 2)])
}

fn of_fleet(plan: &Value) -> Vec<String> {
    tasks(plan).into_iter().filter(|task| task.starts_with("before") || task.starts_with("after")).collect()
}

#[test]
fn a_rollout_that_stalls_goes_back_without_hooks_of_the_fleet() {
    play(|w| async move {
        let strategy = json!({"type": "InPlace", "onStall": "Rollback", "progressDeadlineSeconds": 30, "hooks": hooks()});
        let first = w.serve(fleet(2, strategy)).await;
        w.image("db:crash").await;
        let there = w.until("it moves", |s| s["rollout"]["nodes"]["failed"] == 1).await;
        assert_eq!(of_fleet(&there["plan"]), ["before=Complete", "after"]);
        let back = w.until("it goes back", |s| s["rejected"]["outcome"] == "RolledBack").await;
        assert_eq!(text(&back["plan"], "targetHash"), first);
        assert_eq!(tasks(&back["plan"]).len(), 3, "{:?}", tasks(&back["plan"]));
        assert_eq!(of_fleet(&back["plan"]), [""; 0]);
        let over = w.until("it is back", |s| s["plan"]["state"] == "Complete").await;
        assert_eq!(of_fleet(&over["plan"]), [""; 0]);
        // The next target is an ordinary rollout.
        w.image("db:3").await;
        let next = w.until("the next one", is_up_to_date).await;
        assert_eq!(of_fleet(&next["plan"]), ["before=Complete", "after=Complete"]);
        w.is_at_rest().await;
    });
}

#[test]
fn an_abort_gives_back_what_was_granted_and_asks_nobody() {
    play(|w| async move {
        w.serve(in_place(
            2,
            json!({}),
            json!([person("before", "BeforeRollout"), rest("after", "AfterRollout", 2)]),
        ))
        .await;
        w.image("db:2").await;
        let asked = w.until("a person is asked", |s| s["plan"]["tasks"][0]["state"] == "Running").await;
        w.annotate("windlass.dev/abort", text(&asked["plan"], "id")).await;
        let aborted = w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        assert_eq!(text(&aborted["plan"], "state"), "Aborted");
        w.rest(60).await;
        assert_eq!(w.status()["plan"]["id"], aborted["plan"]["id"], "no plan follows");
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        // A person restores what runs: that is no rollback, and has a plan of its own.
        w.image("db:1").await;
        w.until("it is where it was", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

/// Lost nodes come back at the old revision, as long as the hooks before the rollout are not done.
#[test]
fn a_node_that_is_lost_before_the_rollout_begins_comes_back_as_it_was() {
    play(|w| async move {
        w.serve(in_place(2, json!({"maxUnavailable": 2}), json!([person("backup", "BeforeRollout")]))).await;
        w.image("db:2").await;
        let asked = w.until("a person is asked", |s| s["plan"]["tasks"][0]["state"] == "Running").await;
        w.delete(NODE, "db-1").await;
        w.rest(5).await;
        w.until("it is back", |s| s["readyReplicas"] == 2).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        w.approve(text(&asked["plan"]["tasks"][0], "id")).await;
        w.until("it is complete", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
    });
}
