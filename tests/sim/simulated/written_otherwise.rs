//! A template that is written otherwise than before, and of which the API server stores the same, is no change.

use serde_json::{Value, json};

use super::sets::world::{
    NODE, POD, SET, World, blue_green, condition, fleet, is_up_to_date, play, text, with_sidecar,
};

/// The pods, each with its UID.
fn pods(w: &World) -> Vec<(String, Value)> {
    let names = w.names(POD).into_iter();
    names.map(|name| (name.clone(), w.get(POD, &name)["metadata"]["uid"].clone())).collect()
}

/// The template and claims of a node's StatefulSet as the API server shows them, as someone exports them.
fn exported(w: &World, image: &str) -> Value {
    let set = w.get(SET, "db-0");
    let mut pod = set["spec"]["template"]["spec"].clone();
    pod["containers"][0]["image"] = json!(image);
    if let Some(all) = pod["initContainers"].as_array_mut() {
        all.retain(|container| container["name"] != "windlass-sidecar");
    }
    json!({"template": {"spec": {
        "image": image,
        "podTemplate": {"spec": pod},
        "volumeClaimTemplates": set["spec"]["volumeClaimTemplates"],
    }}})
}

/// The spec of a fleet with a few defaults written out and a quantity written otherwise.
fn by_hand(image: &str) -> Value {
    json!({"template": {"spec": {
        "image": image,
        "mainContainer": "main",
        "podTemplate": {"spec": {
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 1, "dnsPolicy": "ClusterFirst",
            "containers": [{"name": "main", "image": "db:0", "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}}}],
    }}})
}

/// Asserts that the fleet is complete, that nothing was done, and that nothing is written any more.
async fn nothing_happened(w: &World, before: &[(String, Value)], hash: &str) {
    let status = w.until("it is recorded", |s| !s["sameContent"].is_null()).await;
    assert_eq!(status["sameContent"]["recordedHash"], hash);
    w.rest(60).await;
    let status = w.status();
    assert!(is_up_to_date(&status), "{status}");
    assert!(condition(&status, "RolloutInProgress").starts_with("False/"), "{status}");
    for field in ["requestedRolloutHash", "lastCompletedRolloutHash"] {
        assert_eq!(status[field], hash, "{field}");
    }
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    assert_eq!(pods(w), before);
    w.is_at_rest().await;
}

#[test]
fn explicit_defaults_change_nothing_under_any_strategy() {
    let strategies = [
        fleet(3, json!({"type": "InPlace"})),
        blue_green(2, json!({"retireDelaySeconds": 5})),
        with_sidecar(fleet(2, json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}}))),
    ];
    for one in strategies {
        play(|w| async move {
            w.applications.reach(500);
            let hash = w.serve(one).await;
            let (before, plan) = (pods(&w), w.status()["plan"].clone());
            w.change(exported(&w, "db:1")).await;
            nothing_happened(&w, &before, &hash).await;
            assert_eq!(w.status()["plan"], plan);

            // A restart of the operator finds the record; without the record it asks again.
            w.kill_operator();
            w.start_operator();
            nothing_happened(&w, &before, &hash).await;
            w.patch_status(&json!({"status": {"sameContent": null}})).await;
            w.annotate("touched", "yes").await;
            nothing_happened(&w, &before, &hash).await;
        });
    }
}

#[test]
fn explicit_defaults_before_a_real_change_cause_one_rollout() {
    play(|w| async move {
        let hash = w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        let before = pods(&w);
        w.change(by_hand("db:1")).await;
        nothing_happened(&w, &before, &hash).await;
        w.change(exported(&w, "db:1")).await;
        w.rest(60).await;
        nothing_happened(&w, &before, &hash).await;
        // Back to what was written first.
        w.write(&json!({"template": fleet(3, json!({}))["spec"]["template"]})).await;
        let status = w.until("it is as it was", |s| s["sameContent"].is_null()).await;
        assert_eq!(status["requestedRolloutHash"], hash.as_str());
        w.rest(60).await;
        assert_eq!(pods(&w), before);

        w.change(by_hand("db:2")).await;
        let is_rolled = |s: &Value| is_up_to_date(s) && s["lastCompletedRolloutHash"] != hash.as_str();
        let done = w.until("it is rolled", is_rolled).await;
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2", "db-2-0 db:2"]);
        assert_eq!(done["history"].as_array().unwrap().len(), 1, "{}", done["history"]);
        // The claims of a node cannot be changed, not even in how they are written.
        let claims = |node: &str| w.get(NODE, node)["spec"]["volumeClaimTemplates"].clone();
        assert_eq!(claims("db-0")[0]["spec"].get("volumeMode"), None);
        w.is_at_rest().await;

        // The way back to the first template, which a revision still has.
        w.image("db:1").await;
        w.until("it is back", |s| is_up_to_date(s) && s["history"].as_array().unwrap().len() == 2).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1", "db-2-0 db:1"]);
        w.is_at_rest().await;
    });
}

#[test]
fn explicit_defaults_during_a_rollout_do_not_supersede_it() {
    play(|w| async move {
        let hash = w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        w.image("db:2-unready").await;
        let status = w.until("it rolls", |s| s["rollout"]["nodes"]["disrupted"] == 1).await;
        let (plan, target) = (status["plan"]["id"].clone(), status["requestedRolloutHash"].clone());
        w.change(by_hand("db:2-unready")).await;
        let status = w.until("it is recorded", |s| !s["sameContent"].is_null()).await;
        assert_eq!((&status["plan"]["id"], &status["requestedRolloutHash"]), (&plan, &target));
        assert_eq!(w.events("RolloutSuperseded"), [""; 0]);

        // What was before, written otherwise, is the way back.
        w.change(by_hand("db:1")).await;
        let status = w.until("it goes back", |s| s["requestedRolloutHash"] == hash.as_str()).await;
        assert_eq!(status["sameContent"]["recordedHash"], hash.as_str());
        w.until("it is back", |s| is_up_to_date(s) && s["rollout"].is_null()).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1", "db-2-0 db:1"]);
        w.is_at_rest().await;
    });
}

#[test]
fn rejected_target_with_explicit_defaults_stays_rejected() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        w.image("db:2-unready").await;
        let status = w.until("it rolls", |s| s["rollout"]["nodes"]["disrupted"] == 1).await;
        w.annotate("windlass.dev/abort", text(&status["plan"], "id")).await;
        let status = w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        let rejected = status["rejected"].clone();
        w.change(by_hand("db:2-unready")).await;
        let status = w.until("it is recorded", |s| !s["sameContent"].is_null()).await;
        assert_eq!(status["rejected"], rejected);
        w.rest(120).await;
        assert_eq!(
            (&w.status()["rejected"], condition(&w.status(), "UpToDate")),
            (&rejected, "False/Aborted".to_owned())
        );
    });
}

#[test]
fn standalone_node_keeps_its_pod_with_explicit_defaults() {
    play(|w| async move {
        let spec = json!({"podTemplate": {"spec": {"containers": [{"name": "main", "image": "db:1"}]}}});
        let node = json!({"apiVersion": NODE.0, "kind": NODE.1, "metadata": {"name": "solo"}, "spec": spec});
        w.create(node).await;
        w.rest(30).await;
        let before = pods(&w);
        assert_eq!(before.len(), 1);
        let written = w.get(SET, "solo")["spec"]["template"]["spec"].clone();
        w.merge(NODE, "solo", &json!({"spec": {"podTemplate": {"spec": written}}})).await;
        for _ in 0..2 {
            w.rest(60).await;
            let status = w.get(NODE, "solo")["status"].clone();
            assert_eq!(pods(&w), before, "{status}");
            assert_eq!(
                (condition(&status, "Ready"), &status["phase"]),
                ("True/NodeReady".to_owned(), &json!("Running"))
            );
            w.is_at_rest().await;
            w.kill_operator();
            w.start_operator();
        }
        w.merge(NODE, "solo", &json!({"spec": {"image": "db:2"}})).await;
        w.rest(60).await;
        assert_eq!(w.images(), ["solo-0 db:2"]);
        w.is_at_rest().await;
    });
}
