//! Hooks of a StatefulSetRollout: those of a pod run in its plan, those of a step stop the rollout.

use serde_json::{Value, json};

use super::world::{SET, World, is_at_rest, is_held, named, play};

fn at(world: &World, image: &str) -> usize {
    world.images().iter().filter(|pod| pod.ends_with(&format!(" {image}"))).count()
}

/// The types of the tasks of the pod that is updated now.
fn tasks(status: &Value) -> Vec<String> {
    let tasks = status["nodes"][0]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    tasks.iter().map(|task| task["type"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn hooks_run_around_each_pod_and_stop_after_a_step() {
    play(|world| async move {
        world.run_sets(&[("ledger", 3)]).await;
        let hooks = json!([
            {"name": "drain", "at": "BeforeNode", "wait": {"seconds": 20}},
            {"name": "soak", "at": "AfterNode", "wait": {"seconds": 20}},
            {"name": "look", "at": "AfterStep", "approval": {}},
        ]);
        world.adopt(&named(&["ledger"]), &json!({"steps": [1], "hooks": hooks})).await;
        let before = world.uids();
        world.image("ledger", "db:2").await;
        let status = world.until("a pod is updated", |status| !status["nodes"].is_null()).await;
        assert_eq!(tasks(&status), ["wait", "replace-pod", "mark-ready", "wait"], "{status:#}");
        world.rest(10).await;
        assert_eq!(world.uids(), before, "the pod is replaced after the hook");
        let status = world.until("it waits for a person", |status| !status["hooks"].is_null()).await;
        assert_eq!(at(&world, "db:2"), 1, "{:?}", world.images());
        assert!(is_held(&world.get(SET, "ledger")), "no window stays open");
        world.rest(600).await;
        assert_eq!(at(&world, "db:2"), 1, "{:?}", world.images());
        world.annotate("windlass.dev/approve", status["hooks"][0]["taskID"].as_str().unwrap()).await;
        world.until("it is rolled out", is_at_rest).await;
        assert_eq!(at(&world, "db:2"), 3);
        assert!(world.worst() <= 1);
    });
}

#[test]
fn failed_hook_of_the_last_pod_can_still_roll_back() {
    play(|world| async move {
        world.run_sets(&[("ledger", 1)]).await;
        let check = json!({"name": "check", "at": "AfterNode", "timeoutSeconds": 30, "onFailure": "Rollback",
            "approval": {}});
        world.adopt(&named(&["ledger"]), &json!({"hooks": [check]})).await;
        world.image("ledger", "db:slow").await;
        // The same hook stands on the way back, and fails there, too.
        let status = world
            .until("it is back", |status| {
                status["history"][0]["outcome"] == "RolledBack"
                    && status["statefulSets"][0]["updated"] == 0
                    && status["readyReplicas"] == 1
            })
            .await;
        assert_eq!(at(&world, "db:1"), 1, "{:?} {status:#}", world.images());
        assert!(is_held(&world.get(SET, "ledger")));
    });
}
