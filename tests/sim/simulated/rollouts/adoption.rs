//! A StatefulSet is held and let go, and no pod restarts.

use serde_json::{Value, json};

use super::world::{
    ROLLOUT, SET, condition, is_at_rest, is_held, message, named, play, rollout, stateful_set,
};

#[test]
fn adoption_and_release_restart_no_pod_and_restore_the_strategy() {
    let rolling =
        |partition: i32| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
    for before in [Value::Null, json!({"type": "OnDelete"}), rolling(2), rolling(1_000_000)] {
        play(|world| async move {
            let mut set = stateful_set("ledger", 3);
            if !before.is_null() {
                set["spec"]["updateStrategy"] = before.clone();
            }
            world.create(set).await;
            let set =
                world.until_set("ledger", "it is ready", |set| set["status"]["readyReplicas"] == 3).await;
            let (stored, pods) = (set["spec"]["updateStrategy"].clone(), world.uids());
            world.adopt(&named(&["ledger"]), &json!({})).await;
            assert!(is_held(&world.get(SET, "ledger")));
            world.is_idle().await;
            world.delete(ROLLOUT, "ledger").await;
            world.until("it is gone", Value::is_null).await;
            let set = world.get(SET, "ledger");
            assert_eq!(set["spec"]["updateStrategy"], stored);
            assert!(set["metadata"]["annotations"]["windlass.dev/update-strategy"].is_null(), "{set:#}");
            assert_eq!(world.uids(), pods);
        });
    }
}

#[test]
fn overwritten_strategy_is_reported_and_restored_rate_limited() {
    play(|world| async move {
        world.run_sets(&[("ledger", 3)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        let mut generations = Vec::new();
        for _ in 0..40 {
            let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
            world.merge(SET, "ledger", &json!({"spec": {"updateStrategy": strategy}})).await;
            world.rest(15).await;
            let status = world.status();
            if condition(&status, "Held") == "False/StrategyOverwritten" {
                let said = message(&status, "Held");
                assert!(said.contains("ledger") && said.contains("updateStrategy"), "{said}");
            }
            generations.push(is_held(&world.get(SET, "ledger")));
        }
        let held = generations.iter().filter(|held| **held).count();
        assert!((3..=8).contains(&held), "{held} of 40 overwrites within 10 minutes were answered");
        world.until("it is held again", is_at_rest).await;
    });
}

#[test]
fn missing_set_is_awaited_and_foreign_controlled_set_refused() {
    play(|world| async move {
        world.create(rollout(&named(&["ledger"]), &json!({}))).await;
        let status = world
            .until("it is waited for", |status| condition(status, "Held") == "False/StatefulSetMissing")
            .await;
        assert_eq!(status["statefulSets"][0]["name"], "ledger");
        let mut set = stateful_set("ledger", 2);
        world.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pg"}})).await;
        let owner = world.get(("v1", "ConfigMap"), "pg")["metadata"]["uid"].clone();
        set["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "pg",
            "uid": owner, "controller": true}]);
        world.create(set).await;
        let status =
            world.until("it is refused", |status| condition(status, "UpToDate") == "False/InvalidSpec").await;
        assert!(message(&status, "UpToDate").contains("ConfigMap pg"), "{status:#}");
        assert!(!is_held(&world.get(SET, "ledger")));
        world.merge(SET, "ledger", &json!({"metadata": {"ownerReferences": null}})).await;
        world.until("it is adopted", is_at_rest).await;
    });
}

#[test]
fn repeated_ondelete_overwrite_is_restored_with_backoff() {
    play(|world| async move {
        world.run_sets(&[("ledger", 2)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}});
        world.merge(SET, "ledger", &on_delete).await;
        world.rest(3).await;
        assert!(is_held(&world.get(SET, "ledger")), "the first time it is held again at once");
        world.merge(SET, "ledger", &on_delete).await;
        world.rest(3).await;
        assert!(!is_held(&world.get(SET, "ledger")), "the second time is within the pause");
        let status = world.status();
        assert_eq!(condition(&status, "Held"), "False/StrategyOverwritten");
        let sentence = message(&status, "Held");
        assert!(
            sentence.contains("OnDelete") && sentence.contains("recreated at the new revision"),
            "{sentence}"
        );
        world.rest(60).await;
        assert!(is_held(&world.get(SET, "ledger")));
        world.until("the hold is not disputed any more", is_at_rest).await;
    });
}

#[test]
fn older_rollout_keeps_a_stateful_set_selected_by_two() {
    play(|world| async move {
        world.run_sets(&[("ledger", 2)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.rest(2).await;
        let mut second = rollout(&json!({"selector": {"matchLabels": {"app": "ledger"}}}), &json!({}));
        second["metadata"]["name"] = json!("other");
        world.create(second).await;
        world.rest(5).await;
        let status = world.get(ROLLOUT, "other")["status"].clone();
        assert!(message(&status, "UpToDate").contains("StatefulSetRollout ledger"), "{status:#}");
        let pods = world.uids();
        // The other one takes it over without letting go.
        world.delete(ROLLOUT, "ledger").await;
        world.rest(5).await;
        assert!(is_held(&world.get(SET, "ledger")));
        assert!(is_at_rest(&world.get(ROLLOUT, "other")["status"]));
        assert_eq!(world.uids(), pods);
    });
}

#[test]
fn stateful_set_removed_during_a_rollout_is_released() {
    play(|world| async move {
        world.run_sets(&[("ledger-a", 2), ("ledger-b", 2)]).await;
        world.adopt(&named(&["ledger-a", "ledger-b"]), &json!({"maxUnavailable": 2})).await;
        for set in ["ledger-a", "ledger-b"] {
            world.image(set, "db:slow").await;
        }
        world.until("both are updated", |status| status["nodes"].as_array().map(Vec::len) == Some(2)).await;
        world.merge(ROLLOUT, "ledger", &json!({"spec": {"statefulSets": {"names": ["ledger-a"]}}})).await;
        let is_released = |set: &Value| {
            set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == 0
                && set["metadata"]["annotations"]["windlass.dev/update-strategy"].is_null()
        };
        world.until_set("ledger-b", "it is released", is_released).await;
        world.until("the other one is rolled out", is_at_rest).await;
        assert!(is_held(&world.get(SET, "ledger-a")));
    });
}

#[test]
fn stateful_set_added_after_a_restart_is_not_restarted() {
    play(|world| async move {
        world.run_sets(&[("ledger", 2), ("other", 2)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.rest(60).await;
        let now = world.cluster.clock().now();
        world.annotate("windlass.dev/restartedAt", &now.to_rfc3339()).await;
        world.until("it is restarted", |status| !status["history"].is_null() && is_at_rest(status)).await;
        let pods = world.uids();
        world
            .merge(ROLLOUT, "ledger", &json!({"spec": {"statefulSets": {"names": ["ledger", "other"]}}}))
            .await;
        world.until("it is adopted", |status| status["replicas"] == 4 && is_at_rest(status)).await;
        world.is_idle().await;
        assert_eq!(world.uids(), pods);
    });
}
