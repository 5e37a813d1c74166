//! Rollouts of the pods of existing StatefulSets.

use serde_json::{Value, json};

use super::world::{POD, ROLLOUT, SET, World, condition, is_at_rest, is_held, named, play};

fn all_at(world: &World, image: &str) -> bool {
    let images = world.images();
    images.iter().all(|pod| pod.ends_with(&format!(" {image}")))
}

#[test]
fn new_image_replaces_pods_one_at_a_time_and_completes() {
    play(|world| async move {
        world.run_sets(&[("ledger", 5)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.image("ledger", "db:2").await;
        world.until("it rolls", |status| !status["rollout"].is_null()).await;
        world.until("it is rolled out", is_at_rest).await;
        assert!(all_at(&world, "db:2"), "{:?}", world.images());
        assert_eq!(world.worst(), 1);
        let set = world.get(SET, "ledger");
        assert!(is_held(&set));
        assert_eq!(set["status"]["currentRevision"], set["status"]["updateRevision"]);
        world.is_idle().await;
    });
}

#[test]
fn broken_revision_stalls_after_one_pod_which_the_fix_replaces() {
    play(|world| async move {
        world.run_sets(&[("ledger", 5)]).await;
        world.adopt(&named(&["ledger"]), &json!({"progressDeadlineSeconds": 60})).await;
        let before = world.uids();
        world.image("ledger", "db:nope").await;
        world.until("it stalls", |status| condition(status, "Stalled") == "True/NoProgress").await;
        let moved = |world: &World| -> Vec<String> {
            let now = world.uids();
            before
                .iter()
                .filter(|(name, uid)| now.get(*name) != Some(uid))
                .map(|(name, _)| name.clone())
                .collect()
        };
        assert_eq!(moved(&world), ["ledger-4"]);
        world.image("ledger", "db:3").await;
        world.until("it is rolled out", is_at_rest).await;
        assert!(all_at(&world, "db:3"), "{:?}", world.images());
        assert_eq!(world.worst(), 1);
    });
}

#[test]
fn stall_rolls_back_without_changing_template_or_other_pods() {
    play(|world| async move {
        world.run_sets(&[("ledger", 4)]).await;
        let strategy = json!({"progressDeadlineSeconds": 60, "onStall": "Rollback"});
        world.adopt(&named(&["ledger"]), &strategy).await;
        let before = world.uids();
        world.image("ledger", "db:nope").await;
        let status = world
            .until("it is rolled back", |status| {
                condition(status, "UpToDate") == "False/RolledBack" && status["rollout"].is_null()
            })
            .await;
        assert_eq!(status["readyReplicas"], 4, "{status:#}");
        let set = world.get(SET, "ledger");
        assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "db:nope");
        assert!(all_at(&world, "db:1"), "{:?}", world.images());
        let after = world.uids();
        let same = before.iter().filter(|(name, uid)| after.get(*name) == Some(uid)).count();
        assert_eq!(same, 3);
        world.is_idle().await;
        // A lost pod comes back as it was, and the rejected revision is not tried again by itself.
        world.delete(POD, "ledger-0").await;
        world.rest(600).await;
        assert!(all_at(&world, "db:1"), "{:?}", world.images());
        world.image("ledger", "db:2").await;
        world.until("the fix is rolled out", is_at_rest).await;
        assert!(all_at(&world, "db:2"), "{:?}", world.images());
    });
}

#[test]
fn abort_stops_in_place_or_rolls_back() {
    for rolls_back in [false, true] {
        play(|world| async move {
            world.run_sets(&[("ledger", 4)]).await;
            world.adopt(&named(&["ledger"]), &json!({})).await;
            world.image("ledger", "db:slow").await;
            let status = world.until("two pods are updated", |status| status["updatedReplicas"] == 2).await;
            let plan = status["plan"]["id"].as_str().unwrap().to_owned();
            if rolls_back {
                world.annotate("windlass.dev/abort-rollback", &plan).await;
            }
            world.annotate("windlass.dev/abort", &plan).await;
            let (reason, at_old) = if rolls_back { ("False/RolledBack", 4) } else { ("False/Aborted", 2) };
            world
                .until("it has ended", |status| {
                    condition(status, "UpToDate") == reason && status["rollout"].is_null()
                })
                .await;
            let status = world.status();
            let entry = &status["history"][0];
            assert_eq!((&entry["planID"], &entry["reason"]), (&json!(plan), &json!("AbortRequested")));
            assert!(!format!("{status}").contains("nothing is aborted"), "{status:#}");
            world.rest(300).await;
            let images = world.images();
            let old = images.iter().filter(|pod| pod.ends_with(" db:1")).count();
            assert!(old == at_old || (!rolls_back && old == 1), "{images:?}");
            assert!(is_held(&world.get(SET, "ledger")));
            assert_eq!(world.worst(), 1);
            world.is_idle().await;
        });
    }
}

#[test]
fn rollback_reverts_all_stateful_sets() {
    play(|world| async move {
        world.run_sets(&[("a", 3), ("b", 3)]).await;
        world.adopt(&named(&["a", "b"]), &json!({})).await;
        world.image("a", "db:2").await;
        world.image("b", "db:nope").await;
        world.rest(120).await;
        let now = world.status();
        assert!(format!("{now}").contains("the last pod of a StatefulSet waits"), "{now:#}");
        let plan = now["plan"]["id"].as_str().unwrap().to_owned();
        world.annotate("windlass.dev/abort-rollback", &plan).await;
        world.annotate("windlass.dev/abort", &plan).await;
        world
            .until("it is back", |status| {
                condition(status, "UpToDate") == "False/RolledBack" && status["rollout"].is_null()
            })
            .await;
        assert!(all_at(&world, "db:1"), "{:?}", world.images());
        assert!(world.worst() <= 1);
        world.is_idle().await;
    });
}

#[test]
fn reverted_template_rolls_back_the_updated_pods() {
    play(|world| async move {
        world.run_sets(&[("ledger", 4)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        let before = world.uids();
        world.image("ledger", "db:slow").await;
        world.until("one pod is updated", |status| status["updatedReplicas"] == 1).await;
        world.image("ledger", "db:1").await;
        world.until("it is back", is_at_rest).await;
        assert!(all_at(&world, "db:1"), "{:?}", world.images());
        let after = world.uids();
        let same = before.iter().filter(|(name, uid)| after.get(*name) == Some(uid)).count();
        assert!(same >= 2, "{before:?} {after:?}");
        assert_eq!(world.worst(), 1);
    });
}

#[test]
fn restart_replaces_each_pod_at_its_revision() {
    play(|world| async move {
        world.run_sets(&[("ledger", 3)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.rest(30).await;
        let (before, now) = (world.uids(), world.cluster.clock().now());
        world.annotate("windlass.dev/restartedAt", &now.to_rfc3339()).await;
        world.until("it is restarted", |status| !status["history"].is_null() && is_at_rest(status)).await;
        let after = world.uids();
        assert!(before.iter().all(|(name, uid)| after[name] != *uid), "{before:?} {after:?}");
        assert!(all_at(&world, "db:1"), "{:?}", world.images());
        assert!(world.worst() <= 1);
        world.is_idle().await;
    });
}

#[test]
fn stateful_sets_update_together_or_one_at_a_time() {
    for groups in ["Together", "OneAtATime"] {
        play(|world| async move {
            world.run_sets(&[("ledger-a", 3), ("ledger-b", 3)]).await;
            let sets = json!({"selector": {"matchLabels": {"app": "ledger"}}});
            world.adopt(&sets, &json!({"maxUnavailable": 2, "groups": groups})).await;
            world.merge(ROLLOUT, "ledger", &json!({"spec": {"paused": true}})).await;
            world.image("ledger-b", "db:slow").await;
            world.image("ledger-a", "db:slow").await;
            world.merge(ROLLOUT, "ledger", &json!({"spec": {"paused": false}})).await;
            for _ in 0..2400 {
                let at = |set: &str| {
                    let images = world.images();
                    images.iter().filter(|pod| pod.starts_with(set) && pod.ends_with(" db:slow")).count()
                };
                let (a, b) = (at("ledger-a"), at("ledger-b"));
                assert!(groups == "Together" || b == 0 || a == 3, "{a} {b}");
                if a == 3 && b == 3 {
                    break;
                }
                world.rest(1).await;
            }
            world.until("it is rolled out", is_at_rest).await;
            assert!(all_at(&world, "db:slow"), "{:?}", world.images());
            assert_eq!(world.worst(), 2);
        });
    }
}

#[test]
fn rollout_survives_scaling_eviction_and_operator_kills() {
    play(|world| async move {
        world.run_sets(&[("ledger", 4)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.image("ledger", "db:slow").await;
        world.until("one pod is updated", |status| status["updatedReplicas"] == 1).await;
        world.merge(SET, "ledger", &json!({"spec": {"replicas": 6}})).await;
        world.until("two are updated", |status| status["updatedReplicas"] == 2).await;
        world.delete(POD, "ledger-1").await;
        for _ in 0..40 {
            world.kill_operator();
            world.start_operator();
            tokio::time::sleep(std::time::Duration::from_millis(730)).await;
        }
        world.merge(SET, "ledger", &json!({"spec": {"replicas": 3}})).await;
        world.until("it is rolled out", is_at_rest).await;
        assert!(all_at(&world, "db:slow"), "{:?}", world.images());
        assert!(is_held(&world.get(SET, "ledger")));
        world.is_idle().await;
        let _ = Value::Null;
        assert!(!world.get(ROLLOUT, "ledger").is_null());
    });
}

#[test]
fn restart_with_a_future_time_restarts_each_pod_once() {
    play(|world| async move {
        world.run_sets(&[("ledger", 2)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.rest(60).await;
        let (before, later) = (world.uids(), world.cluster.clock().now() + chrono::TimeDelta::hours(2));
        world.annotate("windlass.dev/restartedAt", &later.to_rfc3339()).await;
        world.until("it is restarted", |status| !status["history"].is_null() && is_at_rest(status)).await;
        let after = world.uids();
        assert!(before.iter().all(|(name, uid)| after[name] != *uid), "{before:?} {after:?}");
        world.rest(4 * 3600).await;
        assert_eq!(world.uids(), after);
    });
}

#[test]
fn pod_lost_at_rest_starts_no_rollout() {
    play(|world| async move {
        world.run_sets(&[("ledger", 3)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.delete(POD, "ledger-1").await;
        world.rest(60).await;
        let status = world.until("it is back", is_at_rest).await;
        assert!(status["history"].is_null() && status["plan"].is_null(), "{status:#}");
    });
}

#[test]
fn abort_keeps_pods_of_every_earlier_revision() {
    play(|world| async move {
        world.run_sets(&[("ledger", 4)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.image("ledger", "db:slow").await;
        world.until("a pod is updated", |status| status["updatedReplicas"] == 1).await;
        world.image("ledger", "db:nope").await;
        let status = world.until("it fails", |status| status["rollout"]["nodes"]["failed"] == 1).await;
        let uids = world.uids();
        world.annotate("windlass.dev/abort", status["plan"]["id"].as_str().unwrap()).await;
        world.until("it is aborted", |status| condition(status, "UpToDate") == "False/Aborted").await;
        world.rest(600).await;
        assert_eq!(world.uids(), uids);
    });
}
