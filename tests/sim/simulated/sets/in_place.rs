//! Rollouts in place that something else gets in the way of: an operator that is away, nodes that are down, sidecars that
//! do not answer, a status that is lost.

use serde_json::{Value, json};

use super::world::{NODE, World, condition, fleet, is_up_to_date, outcomes, play, text, with_sidecar};

fn in_place(replicas: i32, settings: Value) -> Value {
    let mut strategy = json!({"type": "InPlace", "onStall": "Rollback", "progressDeadlineSeconds": 30});
    strategy["inPlace"] = settings;
    fleet(replicas, strategy)
}

/// The pods' images, without their names.
fn tags(w: &World) -> Vec<String> {
    w.images().iter().filter_map(|image| Some(image.split_once(' ')?.1.to_owned())).collect()
}

#[test]
fn operator_outage_causes_no_rollback() {
    for updated in [1, 3] {
        play(|w| async move {
            let mut fleet = in_place(3, json!({}));
            fleet["spec"]["minReadySeconds"] = json!(5);
            w.serve(fleet).await;
            w.image("db:2").await;
            w.until("it is on its way", |s| s["rollout"]["nodes"]["updated"] == updated).await;
            w.kill_operator();
            w.rest(600).await;
            w.start_operator();
            let done = w.until("it is complete", |s| is_up_to_date(s) && s["history"][0].is_object()).await;
            assert_eq!(outcomes(&done), ["Complete"], "{updated}");
            assert_eq!(tags(&w), ["db:2"; 3]);
            assert_eq!(w.events("RolledBack"), Vec::<String>::new());
        });
    }
}

#[test]
fn restart_after_an_aborted_restart_completes() {
    play(|w| async move {
        let mut fleet = in_place(3, json!({}));
        fleet["spec"]["minReadySeconds"] = json!(5);
        w.serve(fleet).await;
        w.annotate("windlass.dev/restartedAt", "2098-01-01T00:00:00Z").await;
        let rolling = w.until("one is restarted", |s| s["rollout"]["nodes"]["updated"] == 1).await;
        w.annotate("windlass.dev/abort", text(&rolling["plan"], "id")).await;
        w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        w.annotate("windlass.dev/restartedAt", "2099-01-01T00:00:00Z").await;
        let done = w
            .until("it is complete", |s| outcomes(s) == ["Aborted", "Complete"] && s["rollout"].is_null())
            .await;
        assert_eq!(condition(&done, "UpToDate"), "True/Applied");
        assert_eq!(condition(&done, "Stalled"), "False/Progressing");
        assert_eq!(condition(&done, "RolloutInProgress"), "False/RolloutComplete");
        w.is_at_rest().await;
        // And drift is repaired again.
        w.merge(NODE, "db-1", &json!({"spec": {"image": "db:7"}})).await;
        w.until("it is repaired", |s| outcomes(s).len() == 3 && is_up_to_date(s)).await;
        assert_eq!(tags(&w), ["db:1"; 3]);
    });
}

#[test]
fn unreachable_sidecars_do_not_block_their_own_fix() {
    play(|w| async move {
        w.serve(with_sidecar(in_place(3, json!({})))).await;
        w.applications.die(true);
        w.applications.forget_ready();
        w.until("each of them is cut off", |_| {
            w.names(NODE)
                .iter()
                .all(|name| condition(&w.get(NODE, name)["status"], "SidecarReady") == "Unknown/Unreachable")
        })
        .await;
        w.change(json!({"template": {"spec": {"sidecar": {"image": "windlass:2"}}}})).await;
        w.until("the first is replaced", |s| s["rollout"]["nodes"]["updated"] == 1).await;
        w.applications.die(false);
        w.until("each of them is", |s| is_up_to_date(s) && s["history"][0]["outcome"] == "Complete").await;
    });
}

#[test]
fn suspended_node_is_reported_as_suspended() {
    play(|w| async move {
        let mut fleet = in_place(3, json!({}));
        fleet["spec"]["updateStrategy"]["onStall"] = json!("Hold");
        w.serve(fleet).await;
        w.merge(NODE, "db-1", &json!({"spec": {"suspend": true}})).await;
        w.until("it is down", |s| condition(s, "Ready").starts_with("False")).await;
        w.image("db:2").await;
        let stalled = w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        let named = &stalled["rollout"]["unconverged"][0];
        assert_eq!((text(named, "name"), text(named, "reason")), ("db-1", "NotReady"));
        assert!(text(named, "message").contains("spec.suspend"), "{named}");
        w.merge(NODE, "db-1", &json!({"spec": {"suspend": false}})).await;
        w.until("it moves", |s| is_up_to_date(s) && outcomes(s) == ["Complete"]).await;
    });
}

#[test]
fn status_without_completed_target_does_not_release_the_canary() {
    let lost = json!({"lastCompletedRolloutHash": null, "currentRevision": null});
    for whole in [false, true] {
        let lost = lost.clone();
        play(|w| async move {
            w.serve(in_place(5, json!({"partition": 3}))).await;
            w.image("db:2").await;
            let held = w.until("it is held", |s| condition(s, "UpToDate") == "Unknown/PartitionHeld").await;
            w.kill_operator();
            let fields = held.as_object().unwrap().keys().map(|key| (key.clone(), Value::Null));
            let status = if whole { Value::Object(fields.collect()) } else { lost };
            w.patch_status(&json!({"status": status})).await;
            w.start_operator();
            w.rest(300).await;
            assert_eq!(tags(&w), ["db:1", "db:1", "db:1", "db:2", "db:2"], "whole: {whole}");
            let status = w.status();
            assert_eq!(status["lastCompletedRolloutHash"], held["lastCompletedRolloutHash"]);
            assert_eq!(condition(&status, "UpToDate"), "Unknown/PartitionHeld");
            w.change(json!({"updateStrategy": {"inPlace": {"partition": 0}}})).await;
            w.until("it is released", |s| is_up_to_date(s) && tags(&w).iter().all(|tag| tag == "db:2")).await;
        });
    }
}

/// What an abort holds to at every moment: the pod that a node was given by then stays.
#[test]
fn abort_at_any_moment_deletes_no_pod() {
    let pods = |w: &World| -> Vec<(String, String)> {
        let all = w.cluster.snapshot();
        let stay = all.iter().filter(|o| o["kind"] == "Pod" && o["metadata"]["deletionTimestamp"].is_null());
        stay.map(|p| {
            (text(&p["metadata"], "uid").to_owned(), p["spec"]["containers"][0]["image"].to_string())
        })
        .collect()
    };
    // A restart, a new image, and a new image of two nodes at once. A pod is Ready eight seconds after its start.
    for (restarts, most) in [(true, 1), (false, 1), (false, 2)] {
        for tenths in (0..30).step_by(3).chain([50, 79, 80, 81]) {
            play(|w| async move {
                let mut fleet = in_place(3, json!({"maxUnavailable": most}));
                fleet["spec"]["template"]["spec"]["image"] = json!("db:1-slow");
                w.serve(fleet).await;
                if restarts {
                    w.annotate("windlass.dev/restartedAt", "2099-01-01T00:00:00Z").await;
                } else {
                    w.image("db:2-slow").await;
                }
                let rolling = w.until("it begins", |s| s["plan"]["state"] == "Active").await;
                tokio::time::sleep(std::time::Duration::from_millis(tenths * 100)).await;
                w.annotate("windlass.dev/abort", text(&rolling["plan"], "id")).await;
                w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
                w.rest(120).await;
                let after = pods(&w);
                let what = format!("restart {restarts}, {most} at once, after {tenths} tenths of a second");
                assert!(after.len() == 3, "{what}: {after:?}");
                // A node's old pod may go for a grant that was given before. The new one stays.
                let audit = w.cluster.audit();
                let is_ours = |e: &&windlass_sim::AuditEntry| {
                    e.user_agent == "windlass" && e.verb == "delete" && e.resource == "pods" && e.is_write()
                };
                let deletes = audit.iter().filter(is_ours);
                let mut deleted: Vec<&str> = deletes.map(|e| e.name.as_str()).collect();
                let all = deleted.len();
                deleted.sort_unstable();
                deleted.dedup();
                assert_eq!(deleted.len(), all, "{what}: a node's pod was deleted twice: {after:?}");
                for node in w.names(NODE) {
                    let node = w.get(NODE, &node);
                    assert_eq!(node["status"]["podTemplateHash"], node["spec"]["grantedHash"], "{what}");
                    assert_eq!(node["status"]["spentGrantID"], node["spec"]["grantID"], "{what}");
                }
            });
        }
    }
}
