//! Rollback: nodes are restored at once, without hooks before or after.

use super::*;

fn hooks() -> Value {
    json!([rest("before", "BeforeRollout", 2), rest("after", "AfterRollout", 2)])
}

fn of_fleet(plan: &Value) -> Vec<String> {
    tasks(plan).into_iter().filter(|task| task.starts_with("before") || task.starts_with("after")).collect()
}

#[test]
fn stalled_rollout_rolls_back_without_fleet_hooks() {
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
