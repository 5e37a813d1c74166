//! Reconciles of one node without a fleet.

use sha2::{Digest, Sha256};

use super::fleet::template;
use super::*;
use crate::apply::node_objects;
use crate::controller::failures::Failures;
use windlass_kube_port::EventNote;

const CLAIM: Kind = Kind::PersistentVolumeClaim;

impl Stage {
    pub(super) fn node(&self) -> Value {
        self.get(Kind::StatefulNode, "db-0")
    }

    pub(super) fn change_node(&self, patch: &Value) {
        self.change(Kind::StatefulNode, "db-0", patch);
    }

    /// Does what the StatefulSet controller and the kubelet would do.
    pub(super) fn play(&self) {
        let set = self.get(Kind::StatefulSet, "db-0");
        if set.is_null() {
            return;
        }
        let revision = crate::revision::hash::hex(&Sha256::digest(set["spec"]["template"].to_string()));
        let revision = format!("db-0-{}", &revision[..8]);
        let seen = json!({"observedGeneration": set["metadata"]["generation"], "updateRevision": revision});
        if set["status"] != seen {
            self.change(Kind::StatefulSet, "db-0", &json!({"status": seen}));
        }
        if set["spec"]["replicas"] == 0 {
            if !self.get(Kind::Pod, "db-0-0").is_null() {
                self.remove(Kind::Pod, "db-0-0");
            }
        } else if self.get(Kind::Pod, "db-0-0").is_null() {
            self.make_pod(&revision, &set);
        }
    }

    fn make_pod(&self, revision: &str, set: &Value) {
        let uid = self.port.kept.lock().unwrap().count;
        let owner =
            json!({"kind": "StatefulSet", "name": "db-0", "uid": set["metadata"]["uid"], "controller": true});
        self.put(Kind::Pod, "db-0-0", json!({
            "metadata": {"uid": format!("pod {uid}"), "ownerReferences": [owner],
                "annotations": set["spec"]["template"]["metadata"]["annotations"],
                "labels": {"controller-revision-hash": revision, "windlass.dev/node": "db-0"}},
            "spec": set["spec"]["template"]["spec"],
            "status": {
                "phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": self.clock.now()}],
                "containerStatuses": [{"name": "db", "imageID": "sha256:1", "ready": true, "state": {"running": {}}}],
            },
        }));
    }

    /// Reconciles the node until nothing changes any more.
    pub(super) async fn node_settles(&self) {
        for _ in 0..40 {
            let before = self.port.kept.lock().unwrap().count;
            self.look_at_node().await.unwrap();
            self.pass(2).await;
            self.play();
            if before == self.port.kept.lock().unwrap().count {
                return;
            }
        }
        panic!("the node does not come to rest: {:#}", self.node()["status"]);
    }

    fn with_node(spec: &Value) -> Self {
        let stage = Self::new();
        stage.put(Kind::StatefulNode, "db-0", json!({"spec": spec}));
        stage
    }

    pub(super) async fn running(spec: &Value) -> Self {
        let stage = Self::with_node(spec);
        stage.node_settles().await;
        assert_eq!(stage.node()["status"]["phase"], "Running", "{:#}", stage.node());
        drop((stage.calls(), stage.told().await));
        stage
    }

    pub(super) fn history(&self) -> Vec<String> {
        let history = self.node()["status"]["history"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        history
            .iter()
            .map(|h| format!("{} {} {}", text(&h["recipe"]), text(&h["outcome"]), text(&h["reason"])))
            .collect()
    }

    fn stalled(&self) -> (String, String) {
        let (_, reason, message) = condition(&self.node(), "Stalled");
        (reason, message)
    }
}

fn to_v2() -> Value {
    json!({"spec": {"image": "db:v2"}})
}

#[tokio::test(start_paused = true)]
async fn node_plan_is_stored_before_it_runs_and_then_settles() {
    let stage = Stage::with_node(&template("v1"));
    stage.look_at_node().await.unwrap();
    let calls = stage.calls();
    assert!(!calls.iter().any(|c| c.starts_with("create")), "{calls:?}");
    assert_eq!(stage.node()["status"]["plan"]["recipe"], "NodeUpdate");
    stage.look_at_node().await.unwrap();
    assert_eq!(
        (stage.names(Kind::StatefulSet), stage.names(Kind::Service)),
        (vec!["db-0".to_owned()], vec!["db-0".to_owned()])
    );
    stage.node_settles().await;
    let node = stage.node();
    assert_eq!(
        (&node["status"]["phase"], &node["status"]["currentImage"]),
        (&json!("Running"), &json!("db:v1"))
    );
    assert_eq!(stage.history(), ["NodeUpdate Complete "]);
    let told = stage.told().await;
    let reasons: Vec<&str> = told.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["PlanStarted", "PlanComplete"], "{told:?}");
    assert!(told[0].1.starts_with("NodeUpdate to ") && told[0].1.ends_with("(5 tasks)"), "{told:?}");
    assert_eq!(told[1].1, "NodeUpdate is complete");
    stage.calls();
    assert_eq!(seconds(stage.look_at_node().await.unwrap()), None);
    assert_eq!(stage.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn image_template_and_restart_changes_each_start_a_plan() {
    let stage = Stage::running(&template("v1")).await;
    stage.change_node(&to_v2());
    stage.node_settles().await;
    stage.change_node(&json!({"spec": {"podTemplate": {"metadata": {"labels": {"x": "y"}}}}}));
    stage.node_settles().await;
    stage.change_node(
        &json!({"metadata": {"annotations": {"windlass.dev/restartedAt": "2031-03-01T00:00:00Z"}}}),
    );
    stage.node_settles().await;
    let update = "NodeUpdate Complete ";
    let restart = "RestartNode Complete ";
    assert_eq!(stage.history(), [update, update, restart, restart]);
    assert_eq!(stage.node()["status"]["restartedAt"], "2031-03-01T00:00:00Z");
    assert_eq!(stage.node()["status"]["currentImage"], "db:v2");
    // A time that cannot be read restarts nothing, and is reported.
    drop(stage.told().await);
    stage.change_node(&json!({"metadata": {"annotations": {"windlass.dev/restartedAt": "soon"}}}));
    stage.node_settles().await;
    let told = stage.told().await;
    assert!(told.len() == 1 && told[0].0 == "InvalidSpec" && told[0].1.contains("\"soon\""), "{told:?}");
    assert_eq!(stage.history().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn event_and_history_of_a_move_name_the_machine() {
    let stage = Stage::running(&template("v1")).await;
    drop(stage.told().await);
    let uid = stage.node()["status"]["podUID"].clone();
    stage.change_node(&json!({"spec": {"move": {"podUID": uid, "nodeName": "m1"}}}));
    stage.node_settles().await;
    let off = "off machine m1, which is being drained";
    let told = stage.told().await;
    let started = ("PlanStarted".to_owned(), format!("MoveNode {off} (2 tasks)"));
    assert!(told.contains(&started), "{told:?}");
    let last = stage.node()["status"]["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["recipe"], &last["message"]), (&json!("MoveNode"), &json!(off)));
}

#[tokio::test(start_paused = true)]
async fn new_target_supersedes_the_node_plan() {
    let stage = Stage::running(&template("v1")).await;
    stage.change_node(&to_v2());
    stage.look_at_node().await.unwrap();
    stage.change_node(&json!({"spec": {"image": "db:v3"}}));
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.history()[1..], ["NodeUpdate Superseded NewTarget"]);
    stage.change_node(&json!({"spec": {"image": "db:v1"}}));
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.node()["status"]["plan"]["state"], "Superseded");
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["currentImage"], "db:v1");
    assert_eq!(stage.history().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn failed_plan_is_reported_and_retried_with_backoff() {
    let stage = Stage::with_node(&template("v1"));
    stage.fail("create StatefulSet", refused("spec.x: no"));
    stage.look_at_node().await.unwrap();
    let next = stage.look_at_node().await.unwrap();
    assert_eq!(seconds(next), Some(10));
    assert_eq!(stage.stalled().0, "PlanFailed");
    let told = stage.told().await;
    let reasons: Vec<&str> = told.iter().map(|(reason, _)| reason.as_str()).collect();
    assert!(["PlanStarted", "PlanFailed", "TaskFailed"].iter().all(|r| reasons.contains(r)), "{told:?}");
    let failed = told.iter().find(|(reason, _)| reason == "TaskFailed").unwrap();
    assert!(
        failed.1.starts_with("apply-stateful-set failed: ") && failed.1.contains("spec.x: no"),
        "{told:?}"
    );
    for wait in [20, 40, 80] {
        stage.pass(if wait == 20 { 10 } else { wait / 2 }).await;
        stage.look_at_node().await.unwrap();
        assert_eq!(seconds(stage.look_at_node().await.unwrap()), u64::try_from(wait).ok());
    }
    assert_eq!(stage.history().iter().filter(|h| h.starts_with("NodeUpdate Failed")).count(), 4);
    stage.mend();
    stage.pass(80).await;
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["phase"], "Running");
}

#[tokio::test(start_paused = true)]
async fn unreadable_active_plan_fails_and_a_finished_one_is_ignored() {
    let stage = Stage::running(&template("v1")).await;
    stage.change_node(&to_v2());
    stage.look_at_node().await.unwrap();
    drop(stage.told().await);
    stage.change_node(&json!({"status": {"plan": {"tasks": "lost"}}}));
    let next = stage.look_at_node().await.unwrap();
    assert_eq!(seconds(next), Some(10));
    assert_eq!(stage.history()[1], "NodeUpdate Failed Unreadable");
    assert_eq!(stage.stalled().0, "PlanFailed");
    assert_eq!(stage.reasons().await, ["PlanFailed"]);
    stage.pass(10).await;
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["currentImage"], "db:v2");
    stage.change_node(&json!({"status": {"plan": {"tasks": "lost"}}}));
    drop(stage.told().await);
    stage.node_settles().await;
    assert_eq!((stage.reasons().await, stage.history().len()), (vec![], 3));
}

#[tokio::test(start_paused = true)]
async fn skip_is_accepted_for_waiting_tasks_only() {
    let stage = Stage::running(&template("v1")).await;
    stage.change_node(&to_v2());
    stage.look_at_node().await.unwrap();
    let tasks = stage.node()["status"]["plan"]["tasks"].clone();
    let skip =
        |id: &Value| stage.change_node(&json!({"metadata": {"annotations": {"windlass.dev/skip": id}}}));
    drop(stage.told().await);
    skip(&tasks[0]["id"]);
    stage.look_at_node().await.unwrap();
    stage.look_at_node().await.unwrap();
    let told = stage.told().await;
    let refused: Vec<_> = told.iter().filter(|(reason, _)| reason == "SkipRefused").collect();
    assert_eq!(refused.len(), 1, "{told:?}");
    skip(&tasks[4]["id"]);
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.node()["status"]["plan"]["tasks"][4]["state"], "Skipped");
    stage.node_settles().await;
    let told = stage.told().await;
    assert!(!told.iter().any(|(reason, _)| reason == "SkipRefused"), "{told:?}");
    assert_eq!(stage.node()["status"]["currentImage"], "db:v2");
}

#[tokio::test(start_paused = true)]
async fn skip_of_unknown_task_is_reported_once_unless_plan_is_past() {
    let stage = Stage::running(&template("v1")).await;
    let earlier = stage.node()["status"]["plan"]["tasks"][4]["id"].clone();
    let looked_at = async |id: &Value| {
        stage.change_node(&json!({"metadata": {"annotations": {"windlass.dev/skip": id}}}));
        stage.look_at_node().await.unwrap();
        stage.look_at_node().await.unwrap();
        let told = stage.told().await;
        told.into_iter()
            .filter(|(reason, _)| reason == "SkipRefused")
            .map(|(_, note)| note)
            .collect::<Vec<_>>()
    };
    let told = looked_at(&json!("0123456789-4")).await;
    assert!(told.len() == 1 && told[0].contains("not a task of a plan of this node"), "{told:?}");
    stage.change_node(&to_v2());
    stage.node_settles().await;
    drop(stage.told().await);
    assert_eq!(looked_at(&earlier).await, [""; 0], "it may have been skipped");
    let tasks = stage.node()["status"]["plan"]["tasks"].clone();
    let with_last = |state: &str| {
        let mut tasks = tasks.clone();
        tasks[4]["state"] = json!(state);
        stage.change_node(&json!({"status": {"plan": {"tasks": tasks, "state": "Superseded"}}}));
    };
    with_last("Skipped");
    assert_eq!(looked_at(&tasks[4]["id"]).await, [""; 0], "it was skipped");
    with_last("Pending");
    let told = looked_at(&tasks[4]["id"]).await;
    assert!(told.len() == 1 && told[0].contains("its plan is Superseded"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn unreadable_spec_is_reported_and_node_keeps_running() {
    let stage = Stage::running(&template("v1")).await;
    stage.change_node(&json!({"spec": {"suspend": "perhaps"}}));
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.calls(), ["patch StatefulNode db-0 /status"]);
    let (reason, message) = stage.stalled();
    assert!(reason == "InvalidSpec" && message.contains("expected a boolean"), "{message}");
    assert_eq!(stage.reasons().await, ["InvalidSpec"]);
    stage.change_node(&json!({"spec": {"suspend": null, "mainContainer": "nobody"}}));
    let next = stage.look_at_node().await.unwrap();
    assert_eq!(seconds(next), Some(30));
    let (reason, message) = stage.stalled();
    assert!(reason == "InvalidSpec" && message.contains("nobody"), "{message}");
    stage.change_node(&json!({"spec": {"mainContainer": null}}));
    stage.node_settles().await;
    assert_eq!(stage.stalled().0, "Progressing");
}

#[tokio::test(start_paused = true)]
async fn rejected_template_is_reported_before_a_plan_starts() {
    let stage = Stage::running(&template("v1")).await;
    stage.fail("try StatefulSet", refused("containers: no"));
    stage.change_node(&to_v2());
    assert_eq!(seconds(stage.look_at_node().await.unwrap()), Some(30));
    assert_eq!(
        stage.stalled(),
        ("InvalidSpec".into(), "template: the API server rejects it: containers: no".into())
    );
    assert_eq!(stage.history().len(), 1);
    stage.mend();
    stage.pass(60).await;
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["currentImage"], "db:v2");
    // If the check got no answer it is repeated; what was observed is reported nevertheless.
    stage.fail("try StatefulSet", forbidden("no right"));
    stage.change_node(&json!({"spec": {"image": "db:v3"}}));
    stage.look_at_node().await.unwrap();
    assert_eq!(
        stage.stalled(),
        ("InvalidSpec".into(), "template: the API server currently forbids it: no right".into())
    );
    stage.mend();
    // A quota on StatefulSets has no room for one more, and none is needed.
    stage.fail(
        "try StatefulSet",
        forbidden(
            "statefulsets.apps \"db-0-x\" is forbidden: exceeded quota: few, requested: count/statefulsets.apps=1",
        ),
    );
    stage.change_node(&json!({"spec": {"image": "db:v3-1"}}));
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["currentImage"], "db:v3-1");
    stage.mend();
    stage.fail("try StatefulSet", busy());
    stage.change_node(&json!({"spec": {"image": "db:v4"}}));
    assert!(stage.look_at_node().await.is_err());
    assert_eq!(stage.node()["status"]["observedGeneration"], stage.node()["metadata"]["generation"]);
}

#[tokio::test(start_paused = true)]
async fn service_error_is_returned_and_plan_status_is_written_once() {
    let mut spec = template("v1");
    spec["ports"] = json!([{"name": "db", "port": 1}]);
    let stage = Stage::running(&spec).await;
    stage.change_node(&json!({"spec": {"image": "db:v2"}}));
    // The plan has completed the task that writes the Service.
    for _ in 0..3 {
        let _ = stage.look_at_node().await;
    }
    stage.change_node(&json!({"spec": {"ports": [{"name": "db", "port": 2}]}}));
    stage.fail("patch Service", busy());
    let is_status = |call: &&String| call.starts_with("patch StatefulNode") && call.contains("/status");
    let (mut failures, mut written) = (0, 0);
    for _ in 0..10 {
        stage.calls();
        if let Err(error) = stage.look_at_node().await {
            assert!(!error.is_conflict(), "{error}");
            failures += 1;
        }
        let calls = stage.calls();
        let statuses = calls.iter().filter(is_status).count();
        assert!(statuses <= 1, "{calls:?}");
        written += statuses;
        stage.pass(3).await;
        stage.play();
    }
    assert!(failures > 2 && written > 1, "{failures} failures, {written} statuses");
}

#[tokio::test(start_paused = true)]
async fn conflicting_foreign_objects_are_reported_and_left_untouched() {
    for (kind, name) in [(Kind::StatefulSet, "db-0"), (Kind::Service, "db-0"), (CLAIM, "data-db-0-0")] {
        let mut spec = template("v1");
        spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
        let stage = Stage::with_node(&spec);
        // No watch shows objects without our labels.
        let foreign =
            json!({"metadata": {"name": name, "namespace": "shop", "uid": "x", "resourceVersion": "1"}});
        let key = (kind.name(), name.to_owned());
        stage.port.kept.lock().unwrap().objects.insert(key.clone(), foreign.clone());
        assert_eq!(seconds(stage.look_at_node().await.unwrap()), Some(30));
        let (reason, message) = stage.stalled();
        assert!(reason == "InvalidSpec" && message.contains(name), "{message}");
        assert!(message.contains("does not touch it"), "{message}");
        assert_eq!(stage.get(kind, name), foreign);
        assert!(stage.node()["status"]["plan"].is_null());
        assert_eq!(stage.reasons().await, ["InvalidSpec"]);
        stage.port.kept.lock().unwrap().objects.remove(&key);
        stage.node_settles().await;
        assert_eq!(stage.node()["status"]["phase"], "Running");
    }
}

#[tokio::test(start_paused = true)]
async fn free_name_is_not_looked_up_again_during_creation() {
    let mut spec = template("v1");
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let stage = Stage::with_node(&spec);
    let asked =
        |calls: Vec<String>| calls.into_iter().filter(|call| call.starts_with("get ")).collect::<Vec<_>>();
    stage.look_at_node().await.unwrap();
    let once = ["get StatefulSet db-0", "get Service db-0", "get PersistentVolumeClaim data-db-0-0"];
    assert_eq!(asked(stage.calls()), once);
    // The plan is stored; a busy API server delays the StatefulSet.
    stage.fail("create StatefulSet", busy());
    for _ in 0..8 {
        let _ = stage.look_at_node().await;
        stage.pass(3).await;
    }
    assert_eq!(asked(stage.calls()), [""; 0]);
    stage.pass(10).await;
    let _ = stage.look_at_node().await;
    let mut again = asked(stage.calls());
    // By now the search for a claim that lost its label also asks for the claim.
    again.dedup();
    assert_eq!(again, once, "somebody may have taken one since");
}

#[tokio::test(start_paused = true)]
async fn older_node_keeps_a_conflicting_claim_name() {
    let stage = Stage::new();
    let with = |claim: &str| {
        let mut spec = template("v1");
        spec["volumeClaimTemplates"] = json!([{"metadata": {"name": claim}, "spec": {}}]);
        spec
    };
    // The claim a of node b-db-0 and the claim a-b of node db-0 would both be a-b-db-0-0.
    let at = |time: &str| json!({"creationTimestamp": time});
    let (old, new) = (at("2030-01-01T00:00:00Z"), at("2030-01-02T00:00:00Z"));
    stage.put(Kind::StatefulNode, "db-0", json!({"metadata": new, "spec": with("a-b")}));
    stage.put(Kind::StatefulNode, "b-db-0", json!({"metadata": old, "spec": with("a")}));
    stage.put(Kind::StatefulNode, "other-0", json!({"metadata": old, "spec": with("a")}));
    stage.look_at_node().await.unwrap();
    let (reason, message) = stage.stalled();
    assert!(reason == "InvalidSpec" && message.contains("a-b-db-0-0 belongs to node b-db-0"), "{message}");
    stage.change(
        Kind::StatefulNode,
        "b-db-0",
        &json!({"metadata": {"creationTimestamp": "2030-01-03T00:00:00Z"}}),
    );
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["phase"], "Running");
    // The current holder of the claim keeps it, whatever its age.
    let stage = Stage::with_node(&with("data"));
    stage.put(CLAIM, "data-db-0-0", json!({"metadata": {"labels": {"windlass.dev/node": "db-7"}}}));
    stage.look_at_node().await.unwrap();
    let (_, message) = stage.stalled();
    assert!(message.contains("data-db-0-0 belongs to node db-7"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn immediate_changes_need_no_plan_and_manual_edits_are_repaired() {
    let stage = Stage::running(&template("v1")).await;
    let edit = json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}, "replicas": 3, "revisionHistoryLimit": 1,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}},
        "metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}});
    stage.change(Kind::StatefulSet, "db-0", &edit);
    stage.play();
    stage.change_node(&json!({"spec": {"ports": [{"port": 80}], "serviceAnnotations": {"x": "y"}}}));
    stage.node_settles().await;
    let set = stage.get(Kind::StatefulSet, "db-0");
    assert_eq!(
        (&set["spec"]["updateStrategy"]["type"], &set["spec"]["replicas"]),
        (&json!("OnDelete"), &json!(1))
    );
    assert_eq!(set["spec"]["revisionHistoryLimit"], 3);
    let retention = &set["spec"]["persistentVolumeClaimRetentionPolicy"];
    assert_eq!(*retention, json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    assert_eq!(set["metadata"]["labels"]["app.kubernetes.io/managed-by"], "windlass");
    let service = stage.get(Kind::Service, "db-0");
    assert_eq!(
        (&service["spec"]["ports"][0]["port"], &service["metadata"]["annotations"]["x"]),
        (&json!(80), &json!("y"))
    );
    stage.change_node(&json!({"spec": {"suspend": true}}));
    stage.node_settles().await;
    assert_eq!(stage.get(Kind::StatefulSet, "db-0")["spec"]["replicas"], 0);
    assert_eq!(stage.node()["status"]["phase"], "Suspended");
    stage.change_node(&json!({"spec": {"suspend": false}}));
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["phase"], "Running");
    assert_eq!(stage.history().len(), 1, "none of that was a plan");
    stage.fail("patch Service", refused("ports: no"));
    stage.change_node(&json!({"spec": {"ports": [{"port": 81}]}}));
    assert_eq!(seconds(stage.look_at_node().await.unwrap()), Some(30));
    let (reason, message) = stage.stalled();
    assert!(reason == "InvalidSpec" && message.contains("ports: no"), "{message}");
    assert_eq!(stage.node()["status"]["phase"], "Running");
}

/// Admission that has every StatefulSet delete its claims.
fn claims_go(set: &mut Value) {
    set["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
}

#[tokio::test(start_paused = true)]
async fn suspend_waits_while_admission_makes_scale_in_delete_claims() {
    let mut spec = template("v1");
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let stage = Stage::with_node(&spec);
    stage.admits(claims_go);
    stage.put(CLAIM, "data-db-0-0", json!({"metadata": {"labels": {"windlass.dev/node": "db-0"}}}));
    stage.node_settles().await;
    // The first patch brings the policy into the StatefulSet.
    stage.change_node(&json!({"spec": {"ports": [{"port": 80}], "suspend": true}}));
    stage.change(Kind::StatefulSet, "db-0", &json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}}));
    stage.node_settles().await;
    let set = || stage.get(Kind::StatefulSet, "db-0")["spec"].clone();
    assert_eq!(set()["persistentVolumeClaimRetentionPolicy"]["whenScaled"], "Delete");
    assert_eq!(set()["replicas"], 1, "its claims would be deleted");
    let (reason, message) = stage.stalled();
    assert!(reason == "InvalidSpec" && message.contains("StatefulSet db-0 deletes its"), "{message}");
    // It is tried again now and then, not at each look.
    stage.calls();
    for _ in 0..5 {
        stage.look_at_node().await.unwrap();
    }
    let writes: Vec<String> = stage.calls().into_iter().filter(|call| call.starts_with("patch")).collect();
    assert_eq!(writes, [""; 0]);
    stage.admits(|_| {});
    stage.pass(60).await;
    stage.node_settles().await;
    assert_eq!(set()["persistentVolumeClaimRetentionPolicy"]["whenScaled"], "Retain");
    assert_eq!(
        (set()["replicas"].clone(), &stage.node()["status"]["phase"]),
        (json!(0), &json!("Suspended"))
    );
}

#[tokio::test(start_paused = true)]
async fn conflicting_service_write_is_retried_without_an_event() {
    let stage = Stage::running(&template("v1")).await;
    stage.fail("patch Service", conflict());
    stage.change_node(&json!({"spec": {"ports": [{"port": 81}]}}));
    for _ in 0..3 {
        // A conflict is retried after 100 ms, and after twice as long each time.
        assert!(stage.look_at_node().await.is_err_and(|error| error.is_conflict()));
    }
    stage.mend();
    stage.node_settles().await;
    assert_eq!(stage.get(Kind::Service, "db-0")["spec"]["ports"][0]["port"], 81);
}

#[tokio::test(start_paused = true)]
async fn foreign_service_stays_reported_when_a_plan_starts() {
    let stage = Stage::running(&template("v1")).await;
    stage.remove(Kind::Service, "db-0");
    let foreign =
        json!({"metadata": {"name": "db-0", "namespace": "shop", "uid": "foreign", "resourceVersion": "1"}});
    stage.port.kept.lock().unwrap().objects.insert((Kind::Service.name(), "db-0".to_owned()), foreign);
    for _ in 0..3 {
        let _ = stage.look_at_node().await;
    }
    let stalled = || {
        let conditions = stage.node()["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .into_iter()
            .find(|c| c["type"] == "Stalled")
            .map(|c| (c["reason"].clone(), c["message"].clone(), c["lastTransitionTime"].clone()))
    };
    let said = stalled();
    assert_eq!(said.as_ref().unwrap().0, "InvalidSpec");
    stage.change_node(&to_v2());
    stage.pass(2).await;
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.node()["status"]["plan"]["state"], "Active");
    assert_eq!(stalled(), said);
}

#[tokio::test(start_paused = true)]
async fn unlabeled_object_of_an_earlier_node_is_polled_until_deleted() {
    let (none, another) = (json!({}), json!({"app.kubernetes.io/managed-by": "platform"}));
    for (kind, labels) in [
        (Kind::StatefulSet, &none),
        (Kind::StatefulSet, &another),
        (Kind::Service, &none),
        (Kind::Service, &another),
    ] {
        let stage = Stage::with_node(&template("v1"));
        let earlier = json!({"kind": "StatefulNode", "name": "db-0", "uid": "earlier", "controller": true});
        // No watch shows objects without our labels, nor their deletion.
        let left = json!({"metadata": {"name": "db-0", "namespace": "shop", "uid": "left", "resourceVersion": "1",
            "labels": labels, "ownerReferences": [earlier]}, "spec": {"replicas": 1, "template": {}}});
        let key = (kind.name(), "db-0".to_owned());
        stage.port.kept.lock().unwrap().objects.insert(key.clone(), left.clone());
        for _ in 0..6 {
            let _ = stage.look_at_node().await;
            stage.pass(10).await;
            if kind == Kind::Service {
                stage.play();
            }
        }
        assert_eq!(seconds(stage.look_at_node().await.unwrap()), Some(5));
        assert_eq!(stage.get(kind, "db-0"), left, "it is left alone");
        stage.port.kept.lock().unwrap().objects.remove(&key);
        stage.node_settles().await;
        assert_eq!(stage.node()["status"]["phase"], "Running");
        assert_ne!(stage.get(kind, "db-0"), Value::Null);
    }
}

/// Admission that says of every StatefulSet that something else manages it.
fn managed_by_the_platform(set: &mut Value) {
    set["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("platform");
}

#[tokio::test(start_paused = true)]
async fn relabeled_stateful_set_is_repaired_each_minute_and_reported() {
    let stage = Stage::with_node(&template("v1"));
    stage.admits(managed_by_the_platform);
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["phase"], "Running");
    let said = "StatefulSet db-0: label app.kubernetes.io/managed-by is platform instead of windlass, and restoring \
        it has no effect: exempt the StatefulSets of Windlass from the admission policy that changes it";
    assert_eq!(stage.stalled(), ("InvalidSpec".into(), said.into()));
    stage.calls();
    for _ in 0..60 {
        stage.pass(10).await;
        assert_eq!(seconds(stage.look_at_node().await.unwrap()), Some(30));
    }
    let calls = stage.calls();
    let tried = calls.iter().filter(|call| call.starts_with("patch StatefulSet db-0 ")).count();
    assert!((9..=11).contains(&tried), "{tried} times in ten minutes: {calls:?}");
    assert!(!calls.iter().any(|call| call.ends_with("/status")), "{calls:?}");
    stage.admits(|_| {});
    stage.pass(60).await;
    stage.node_settles().await;
    let labels = stage.get(Kind::StatefulSet, "db-0")["metadata"]["labels"].clone();
    assert_eq!(labels["app.kubernetes.io/managed-by"], "windlass");
    assert_eq!(stage.stalled().0, "Progressing");
}

#[tokio::test(start_paused = true)]
async fn deleted_relabeled_stateful_set_is_detected_without_a_watch() {
    let stage = Stage::with_node(&template("v1"));
    stage.admits(managed_by_the_platform);
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["plan"]["state"], "Complete");
    let key = (Kind::StatefulSet.name(), "db-0".to_owned());
    stage.port.kept.lock().unwrap().objects.remove(&key);
    stage.look_at_node().await.unwrap();
    let plan = stage.node()["status"]["plan"].clone();
    assert_eq!((&plan["recipe"], &plan["state"]), (&json!("NodeUpdate"), &json!("Active")), "{plan:#}");
}

#[tokio::test(start_paused = true)]
async fn relabeled_stateful_set_absent_from_the_cache_is_read_live() {
    let stage = Stage::with_node(&template("v1"));
    stage.admits(managed_by_the_platform);
    stage.node_settles().await;
    stage.pass(60).await;
    let set = stage.cx.view.stateful_sets.get(&Key::new("shop", "db-0")).unwrap();
    // As after a list, which does not have it, or once it has left what is watched.
    stage.cx.view.stateful_sets.forget(&set.meta);
    stage.calls();
    stage.look_at_node().await.unwrap();
    let calls = stage.calls();
    assert!(!calls.iter().any(|call| call.ends_with("/status")), "no plan is begun: {calls:?}");
    assert!(stage.cx.view.stateful_sets.get(&Key::new("shop", "db-0")).is_some());
}

#[tokio::test(start_paused = true)]
async fn stateful_set_edit_after_the_decision_is_detected_as_drift() {
    let stage = Stage::running(&template("v1")).await;
    let key = Key::new("shop", "db-0");
    let node = stage.cx.view.nodes.get(&key).unwrap();
    let scope = stage.cx.node_scope(&key, &node, stage.clock.now());
    let facts = scope.facts(&node);
    let edit = json!({"spec": {"replicas": 2, "template": {"spec": {"terminationGracePeriodSeconds": 9}}}});
    stage.change(Kind::StatefulSet, "db-0", &edit);
    let spec = node.spec.clone().unwrap();
    let applied = node_objects::apply_at_once(&scope, &node, &spec, &facts).await;
    assert_eq!(applied.again, Some(Duration::ZERO), "it is looked at anew");
    assert_eq!(stage.calls(), [""; 0]);
    stage.play();
    stage.node_settles().await;
    let set = stage.get(Kind::StatefulSet, "db-0")["spec"].clone();
    assert_eq!(set["template"]["spec"]["terminationGracePeriodSeconds"], json!(null), "{set:#}");
    assert_eq!(set["replicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn manual_template_edit_is_found_by_dry_run_and_reverted() {
    let stage = Stage::running(&template("v1")).await;
    stage.admits(|set| set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(9));
    stage.change(Kind::StatefulSet, "db-0", &json!({"metadata": {"labels": {"somebody": "else"}}}));
    stage.play();
    stage.fail("try patch", busy());
    assert!(stage.look_at_node().await.is_err(), "nothing is decided on what is not known");
    stage.mend();
    // If the server says that our patch would change nothing, the template is what we wrote.
    stage.node_settles().await;
    assert_eq!(stage.calls().iter().filter(|c| c.starts_with("try patch")).count(), 2);
    assert_eq!(stage.history().len(), 1);
    // If the server refuses the patch, the template is something else.
    stage.admits(|_| {});
    stage.change(
        Kind::StatefulSet,
        "db-0",
        &json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 8}}}}),
    );
    stage.play();
    stage.fail("try patch", refused("no"));
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.node()["status"]["plan"]["recipe"], "RestartNode");
    // The same holds if the template's hash annotation differs, and then no request is needed.
    let stage = Stage::running(&template("v1")).await;
    stage.change(
        Kind::StatefulSet,
        "db-0",
        &json!({"spec": {"template": {
            "metadata": {"annotations": {"windlass.dev/pod-template-hash": "v1:0"}},
            "spec": {"terminationGracePeriodSeconds": 9},
        }}}),
    );
    stage.play();
    stage.look_at_node().await.unwrap();
    assert!(!stage.calls().iter().any(|c| c.starts_with("try patch")));
    assert_eq!(stage.node()["status"]["plan"]["state"], "Active");
}

#[tokio::test(start_paused = true)]
async fn claim_ownership_follows_the_retention_policy() {
    let mut spec = template("v1");
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let stage = Stage::with_node(&spec);
    let label = |node: &str| json!({"metadata": {"labels": {"windlass.dev/node": node}}});
    stage.put(CLAIM, "data-db-0-0", label("db-0"));
    stage.node_settles().await;
    let owners = || {
        stage.get(CLAIM, "data-db-0-0")["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default()
    };
    assert_eq!(owners(), [json!(null); 0]);
    stage.change_node(&json!({"spec": {"volumeClaimRetention": "Delete"}}));
    stage.node_settles().await;
    assert_eq!(
        (owners().len(), &owners()[0]["uid"], &owners()[0]["controller"]),
        (1, &json!("uid of db-0"), &json!(null))
    );
    stage.change_node(&json!({"spec": {"volumeClaimRetention": "Retain"}}));
    stage.node_settles().await;
    assert_eq!(owners().len(), 0);
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "other"});
    stage.change(CLAIM, "data-db-0-0", &json!({"metadata": {"ownerReferences": [other]}}));
    stage.change_node(&json!({"spec": {"volumeClaimRetention": "Delete"}}));
    stage.node_settles().await;
    assert_eq!((owners().len(), &owners()[0]["uid"]), (2, &json!("other")));
    // A claim that now belongs to another node is reported, and not touched.
    stage.change(CLAIM, "data-db-0-0", &label("db-7"));
    let before = stage.get(CLAIM, "data-db-0-0");
    stage.look_at_node().await.unwrap();
    assert!(stage.stalled().1.contains("data-db-0-0 belongs to node db-7"), "{:?}", stage.stalled());
    assert_eq!(stage.get(CLAIM, "data-db-0-0"), before);
}

#[tokio::test(start_paused = true)]
async fn missing_pod_is_reported_after_a_delay_and_polled() {
    let stage = Stage::running(&template("v1")).await;
    let asked = || stage.calls().iter().filter(|c| *c == "get Pod db-0-0").count();
    stage.remove(Kind::Pod, "db-0-0");
    let told = EventNote {
        note: "create Pod db-0-0 in StatefulSet db-0 failed error: quota is used up".to_owned(),
        at: stage.clock.now(),
    };
    assert!(stage.cx.view.refusals.note("uid of db-0", told));
    assert_eq!(seconds(stage.look_at_node().await.unwrap()), Some(2), "one that is replaced is back by then");
    assert_eq!(asked(), 0);
    stage.pass(2).await;
    assert_eq!(seconds(stage.look_at_node().await.unwrap()), Some(15));
    assert_eq!(asked(), 1);
    let message = stage.node()["status"]["problem"]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(message, "the API server rejects its pod: quota is used up");
    stage.pass(5).await;
    assert_eq!(seconds(stage.look_at_node().await.unwrap()), Some(10));
    assert_eq!(asked(), 0);
    stage.pass(10).await;
    stage.look_at_node().await.unwrap();
    assert_eq!(asked(), 1);
    // An event about an earlier pod is outdated.
    stage.play();
    stage.node_settles().await;
    stage.remove(Kind::Pod, "db-0-0");
    stage.pass(600).await;
    stage.look_at_node().await.unwrap();
    stage.pass(15).await;
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.node()["status"]["problem"]["message"], "it has no pod");
    // Somebody else's pod of the same name blocks the node's pod.
    let foreign =
        json!({"metadata": {"name": "db-0-0", "namespace": "shop", "uid": "x", "resourceVersion": "1"}});
    stage.port.kept.lock().unwrap().objects.insert(("Pod", "db-0-0".to_owned()), foreign);
    stage.pass(15).await;
    stage.look_at_node().await.unwrap();
    let (reason, message) = stage.stalled();
    assert!(reason == "InvalidSpec" && message.contains("Pod db-0-0"), "{message}");
    stage.port.kept.lock().unwrap().objects.remove(&("Pod", "db-0-0".to_owned()));
    stage.play();
    stage.node_settles().await;
    assert_eq!(
        (stage.node()["status"]["phase"].clone(), stage.stalled().0.as_str()),
        (json!("Running"), "Progressing")
    );
    asked();
    stage.pass(60).await;
    stage.look_at_node().await.unwrap();
    assert_eq!(asked(), 0, "it has one");
}

#[tokio::test(start_paused = true)]
async fn wait_reason_is_written_only_for_long_waits() {
    let stage = Stage::running(&template("v1")).await;
    stage.change_node(&to_v2());
    stage.look_at_node().await.unwrap();
    stage.calls();
    let writes = || stage.calls().iter().filter(|c| c.ends_with("StatefulNode db-0 /status")).count();
    let next = stage.look_at_node().await.unwrap();
    assert_eq!(writes(), 0, "progress may be lost");
    assert!(next.delay("x") <= Duration::from_secs(2), "{next:?}");
    stage.pass(1).await;
    stage.look_at_node().await.unwrap();
    assert_eq!(writes(), 0);
    stage.pass(1).await;
    stage.look_at_node().await.unwrap();
    assert_eq!(writes(), 1);
    stage.look_at_node().await.unwrap();
    assert_eq!(writes(), 0, "nothing new");
    // The node is deleted: nothing is decided about it.
    stage.remove(Kind::StatefulNode, "db-0");
    assert_eq!(seconds(stage.look_at_node().await.unwrap()), None);
    assert_eq!(writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn persistent_forbidden_errors_are_reported() {
    let stage = Stage::running(&template("v1")).await;
    stage.fail("patch StatefulSet", forbidden("no right"));
    stage.change_node(&json!({"spec": {"suspend": true}}));
    assert!(stage.look_at_node().await.is_err());
    assert_eq!(stage.stalled().0, "Progressing", "it may pass");
    let key = Failures::id(Kind::StatefulNode, &Key::new("shop", "db-0"));
    stage.cx.failures.count(&key);
    assert!(stage.look_at_node().await.is_err());
    let (reason, message) = stage.stalled();
    assert!(reason == "InvalidSpec" && message.contains("no right"), "{message}");
    stage.mend();
    stage.fail("try patch", forbidden("no right to patch"));
    stage.change(
        Kind::StatefulSet,
        "db-0",
        &json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 9}}}}),
    );
    assert!(stage.look_at_node().await.is_err());
    assert!(stage.stalled().1.contains("no right to patch"), "{:?}", stage.stalled());
    // A conflict leads to a new reconcile, and nothing is written.
    stage.mend();
    stage.fail("try patch", conflict());
    stage.calls();
    assert!(stage.look_at_node().await.is_err_and(|e| e.is_conflict()));
    assert_eq!(stage.calls().iter().filter(|c| c.starts_with("patch")).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn persistent_forbidden_service_writes_are_reported() {
    for verb in ["patch", "create"] {
        let stage = Stage::running(&template("v1")).await;
        stage.fail(&format!("{verb} Service"), forbidden("exceeded quota"));
        if verb == "create" {
            stage.remove(Kind::Service, "db-0");
        }
        stage.change_node(&json!({"spec": {"ports": [{"port": 80}]}}));
        assert_eq!(stage.look_at_node().await.unwrap_err().step(), "children");
        assert_eq!(stage.stalled().0, "Progressing", "{verb}: it may pass");
        let key = Failures::id(Kind::StatefulNode, &Key::new("shop", "db-0"));
        stage.cx.failures.count(&key);
        assert!(stage.look_at_node().await.is_err());
        let (reason, message) = stage.stalled();
        assert!(reason == "InvalidSpec" && message.contains("exceeded quota"), "{verb}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_write_is_reported_and_other_changes_still_apply() {
    let mut spec = template("v1");
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    for (write, change) in [
        ("patch StatefulSet", json!({"suspend": true})),
        ("patch PersistentVolumeClaim", json!({"volumeClaimRetention": "Delete"})),
    ] {
        let stage = Stage::with_node(&spec);
        stage.put(CLAIM, "data-db-0-0", json!({"metadata": {"labels": {"windlass.dev/node": "db-0"}}}));
        stage.node_settles().await;
        drop(stage.told().await);
        stage.fail(write, refused("no"));
        stage.change_node(&json!({"spec": change}));
        stage.change_node(&json!({"spec": {"ports": [{"port": 80}]}}));
        assert!(stage.look_at_node().await.is_err());
        let said = ("InvalidSpec".to_owned(), "the API server rejects it: no".to_owned());
        assert_eq!(stage.stalled(), said, "{write}");
        assert_eq!(stage.reasons().await, ["InvalidSpec"], "{write}");
        assert_eq!(stage.node()["status"]["phase"], "Running", "{write}: its pod serves");
        assert_eq!(stage.get(Kind::Service, "db-0")["spec"]["ports"][0]["port"], 80, "{write}");
        stage.mend();
        stage.node_settles().await;
        assert_eq!(stage.stalled().0, "Progressing", "{write}");
        let phase = if write == "patch StatefulSet" { "Suspended" } else { "Running" };
        assert_eq!(stage.node()["status"]["phase"], phase, "{write}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_being_deleted_starts_no_plan() {
    let stage = Stage::running(&template("v1")).await;
    stage.change_node(
        &json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}, "spec": {"image": "db:v2"}}),
    );
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["phase"], "Terminating");
    assert!(stage.calls().iter().all(|c| c == "patch StatefulNode db-0 /status"));
    assert_eq!(stage.history().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unlabeled_own_claim_is_relabeled_and_released_if_retained() {
    for (retention, owners_after) in [("Retain", 0), ("Delete", 1)] {
        let mut spec = template("v1");
        spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
        spec["volumeClaimRetention"] = json!(retention);
        let stage = Stage::running(&spec).await;
        let key = (CLAIM.name(), "data-db-0-0".to_owned());
        let asked = || stage.calls().iter().filter(|c| *c == "get PersistentVolumeClaim data-db-0-0").count();
        // No watch shows a claim without the label, so it is read from time to time.
        let of = |uid: &str| {
            json!({"metadata": {"name": "data-db-0-0", "namespace": "shop", "uid": "claim", "resourceVersion": "1",
                "ownerReferences": [{"kind": "StatefulNode", "name": "db-0", "uid": uid}]}})
        };
        let put = |claim: Value| stage.port.kept.lock().unwrap().objects.insert(key.clone(), claim);
        put(of("somebody"));
        stage.pass(25).await;
        stage.look_at_node().await.unwrap();
        assert_eq!(asked(), 1);
        assert_eq!(stage.get(CLAIM, "data-db-0-0"), of("somebody"), "another's is left alone");
        put(of("uid of db-0"));
        stage.pass(24).await;
        stage.look_at_node().await.unwrap();
        assert_eq!(asked(), 0, "not so soon");
        stage.pass(1).await;
        stage.look_at_node().await.unwrap();
        assert_eq!(asked(), 1);
        let claim = stage.get(CLAIM, "data-db-0-0");
        assert_eq!(claim["metadata"]["labels"]["windlass.dev/node"], "db-0", "{claim:#}");
        assert_eq!(claim["metadata"]["ownerReferences"].as_array().unwrap().len(), owners_after);
        // After a change of the spec the claim is asked for again.
        stage.remove(CLAIM, "data-db-0-0");
        stage.pass(25).await;
        stage.look_at_node().await.unwrap();
        asked();
        stage.change_node(&json!({"spec": {"ports": [{"port": 80}]}}));
        stage.look_at_node().await.unwrap();
        assert_eq!(asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_stateful_set_of_a_node_with_its_claim_is_recreated() {
    let mut spec = template("v1");
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    // A claim that the node owns is the node's, and so is a claim with the node's label.
    for meta in [
        json!({"ownerReferences": [{"uid": "uid of db-0"}]}),
        json!({"labels": {"windlass.dev/node": "db-0"}}),
    ] {
        let stage = Stage::with_node(&spec);
        let mut claim = json!({"metadata": {"name": "data-db-0-0", "namespace": "shop", "uid": "c", "resourceVersion": "1"}});
        json_patch::merge(&mut claim, &json!({"metadata": meta}));
        stage.port.kept.lock().unwrap().objects.insert((CLAIM.name(), "data-db-0-0".to_owned()), claim);
        stage.look_at_node().await.unwrap();
        assert_eq!(stage.node()["status"]["plan"]["recipe"], "NodeUpdate", "{meta}");
    }
}

#[tokio::test(start_paused = true)]
async fn failure_and_recovery_of_a_granted_pod_are_written_at_once() {
    let stage = Stage::running(&template("v1")).await;
    stage.change_node(&to_v2());
    stage.node_settles_until_pod("db:v2").await;
    stage.calls();
    let writes = || stage.calls().iter().filter(|c| c.ends_with("StatefulNode db-0 /status")).count();
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    stage.pod_is(&json!({"ready": false, "imageID": "", "state": waiting}), "False");
    stage.look_at_node().await.unwrap();
    assert_eq!((writes(), stage.node()["status"]["phase"].as_str()), (1, Some("Failed")));
    stage.pod_is(&json!({"ready": false, "imageID": "sha256:2", "state": {"running": {}}}), "False");
    stage.look_at_node().await.unwrap();
    assert_eq!(writes(), 1);
    assert_ne!(stage.node()["status"]["phase"], "Failed");
    // A new spec is also answered at once, although the plan continues.
    stage.change_node(&json!({"spec": {"progressDeadlineSeconds": 700}}));
    stage.look_at_node().await.unwrap();
    assert_eq!(writes(), 1);
    assert_eq!(stage.node()["status"]["observedGeneration"], stage.node()["metadata"]["generation"]);
}

#[tokio::test(start_paused = true)]
async fn status_reports_pending_claims_when_their_release_fails() {
    let mut spec = template("v1");
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    spec["volumeClaimRetention"] = json!("Delete");
    let stage = Stage::with_node(&spec);
    stage.put(CLAIM, "data-db-0-0", json!({"metadata": {"labels": {"windlass.dev/node": "db-0"}}}));
    stage.node_settles().await;
    let pending = || stage.node()["status"]["claimsPending"].clone();
    assert_eq!(pending(), json!(null));
    stage.fail("patch PersistentVolumeClaim", busy());
    stage.change_node(&json!({"spec": {"volumeClaimRetention": "Retain"}}));
    assert!(stage.look_at_node().await.is_err());
    assert_eq!(stage.node()["status"]["observedGeneration"], stage.node()["metadata"]["generation"]);
    assert_eq!(pending(), json!(true));
    stage.mend();
    stage.node_settles().await;
    assert_eq!(pending(), json!(null));
}

#[tokio::test(start_paused = true)]
async fn node_awaiting_removal_is_still_marked_ready() {
    let mut spec = template("v1");
    spec["sidecar"] = json!({"image": "w:1"});
    let mut sidecars = MockSidecarClient::new();
    let ready = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (asked, says) = (Arc::new(Mutex::new(Vec::new())), ready.clone());
    let marks = asked.clone();
    sidecars.expect_status().returning(move |_| {
        let ready = says.load(std::sync::atomic::Ordering::SeqCst);
        Ok(crate::sidecar::Status { ready, ..crate::sidecar::Status::default() })
    });
    sidecars.expect_submit().returning(move |_, task, _| {
        marks.lock().unwrap().push(task.id.clone());
        Ok(())
    });
    let stage = Stage::with(sidecars);
    stage.put(Kind::StatefulNode, "db-0", json!({"spec": spec}));
    for _ in 0..20 {
        stage.look_at_node().await.unwrap();
        stage.play();
        stage.sidecar_is(false);
        stage.pass(2).await;
    }
    // The node is asked to leave before it was ever in service, and waits for the wave.
    stage.change_node(&json!({"spec": {"removalID": "remove-1"}}));
    for _ in 0..10 {
        stage.look_at_node().await.unwrap();
        stage.pass(2).await;
    }
    let plan = stage.node()["status"]["plan"].clone();
    assert_eq!((&plan["recipe"], &plan["state"]), (&json!("RemoveNode"), &json!("Active")), "{plan:#}");
    asked.lock().unwrap().clear();
    for _ in 0..10 {
        stage.look_at_node().await.unwrap();
        stage.cx.prober.answer_all().await;
        stage.pass(2).await;
    }
    let id = plan["id"].as_str().unwrap();
    assert_eq!(asked.lock().unwrap().first(), Some(&format!("{id}-mark")), "{:#}", stage.node());
}

#[tokio::test(start_paused = true)]
async fn sidecar_is_not_queried_again_while_the_plan_end_conflicts() {
    let mut spec = template("v1");
    spec["sidecar"] = json!({"image": "w:1"});
    let mut sidecars = MockSidecarClient::new();
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counts = asked.clone();
    sidecars.expect_status().returning(move |_| {
        counts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(crate::sidecar::Status { ready: true, ..crate::sidecar::Status::default() })
    });
    let stage = Stage::with(sidecars);
    stage.put(Kind::StatefulNode, "db-0", json!({"spec": spec}));
    for _ in 0..20 {
        stage.look_at_node().await.unwrap();
        stage.play();
        stage.sidecar_is(true);
        stage.pass(2).await;
    }
    let tasks = stage.node()["status"]["plan"]["tasks"].clone();
    assert_eq!(
        (&tasks[4]["type"], &tasks[4]["state"]),
        (&json!("mark-ready"), &json!("Running")),
        "{tasks:#}"
    );
    let conflict = ClusterError::Conflict { object: "db-0".to_owned(), message: "it changed".to_owned() };
    stage.fail("patch StatefulNode db-0 /status", conflict);
    stage.cx.prober.answer_all().await;
    for _ in 0..10 {
        assert!(stage.look_at_node().await.unwrap_err().is_conflict());
        stage.cx.prober.answer_all().await;
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);
    stage.mend();
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.node()["status"]["phase"], "Running");
    stage.look_at_node().await.unwrap();
    assert_eq!(stage.cx.prober.known(), 0, "nothing more is wished of it");
}

impl Stage {
    /// The pod's sidecar runs, and is ready or not.
    fn sidecar_is(&self, ready: bool) {
        let mut pod = self.get(Kind::Pod, "db-0-0");
        if pod.is_null() {
            return;
        }
        pod["status"]["initContainerStatuses"] = json!([{"name": crate::api::names::SIDECAR_CONTAINER, "imageID": "sha256:2",
            "ready": ready, "state": {"running": {}}}]);
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": if ready { "True" } else { "False" },
            "lastTransitionTime": self.clock.now()}]);
        self.port.store(Kind::Pod, pod);
    }

    /// Reconciles the node until a pod of this image exists that it has not reconciled yet.
    async fn node_settles_until_pod(&self, image: &str) {
        for _ in 0..20 {
            self.look_at_node().await.unwrap();
            self.pass(2).await;
            self.play();
            if self.get(Kind::Pod, "db-0-0")["spec"]["containers"][0]["image"] == image {
                return;
            }
        }
        panic!("there is no pod of {image}");
    }

    /// The kubelet reports another state of the pod.
    fn pod_is(&self, container: &Value, ready: &str) {
        let mut pod = self.get(Kind::Pod, "db-0-0");
        let mut status = pod["status"]["containerStatuses"][0].clone();
        status["state"] = json!({});
        json_patch::merge(&mut status, container);
        pod["status"]["containerStatuses"] = json!([status]);
        pod["status"]["conditions"] =
            json!([{"type": "Ready", "status": ready, "lastTransitionTime": self.clock.now()}]);
        self.port.store(Kind::Pod, pod);
    }
}
