//! Rollouts that stop after a step.

use super::*;

#[test]
fn rollout_stops_after_each_step_except_the_last() {
    play(|w| async move {
        let settings = json!({"maxUnavailable": 2, "steps": [1, "50%", "100%"]});
        w.serve(in_place(4, settings, json!([person("look", "AfterStep")]))).await;
        w.image("db:2").await;
        let updated = || w.images().iter().filter(|image| image.ends_with("db:2")).count();
        for count in [1, 2] {
            let is_asked = |s: &Value| {
                let tasks = s["plan"]["tasks"].as_array().cloned().unwrap_or_default();
                tasks.iter().filter(|t| t["type"] == "await-approval" && t["state"] != "Pending").count()
                    == count
                    && tasks.iter().any(|t| t["type"] == "await-approval" && t["state"] == "Running")
            };
            let status = w.until(&format!("step {count} is done"), is_asked).await;
            assert_eq!(updated(), count);
            w.rest(900).await;
            assert_eq!(updated(), count, "it stops there");
            assert_eq!(condition(&w.status(), "Stalled"), "False/Progressing");
            // A node that is lost before it was updated comes back at the old revision.
            if count == 1 {
                w.delete(NODE, "db-0").await;
                w.until("it is back", |s| s["readyReplicas"] == 4 && w.images().len() == 4).await;
                assert_eq!(updated(), count);
            }
            let tasks = status["plan"]["tasks"].as_array().unwrap().clone();
            let asks =
                tasks.iter().find(|t| t["type"] == "await-approval" && t["state"] == "Running").unwrap();
            assert_eq!(asks["params"], json!({"hook": "look", "at": "AfterStep", "step": count - 1}));
            w.approve(text(asks, "id")).await;
        }
        let done = w.until("it is complete", is_up_to_date).await;
        assert_eq!(updated(), 4);
        assert_eq!(tasks(&done["plan"]).iter().filter(|t| *t == "look=Complete").count(), 2);
        w.is_at_rest().await;
    });
}
