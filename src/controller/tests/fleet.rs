//! Reconciles of a fleet that is updated in place.

use super::*;
use crate::controller::failures::Failures;
use crate::planner::node::decide::leaving;

pub(super) fn template(version: &str) -> Value {
    json!({"image": format!("db:{version}"), "podTemplate": {"spec": {"containers": [{"name": "db"}]}}})
}

pub(super) fn fleet_spec(replicas: i32, version: &str) -> Value {
    json!({"replicas": replicas, "template": {"spec": template(version)}, "updateStrategy": {"type": "InPlace"}})
}

impl Stage {
    pub(super) fn fleet(&self) -> Value {
        self.get(Kind::NodeDeployment, "db")
    }

    pub(super) fn change_fleet(&self, patch: &Value) {
        self.change(Kind::NodeDeployment, "db", patch);
    }

    pub(super) fn annotate(&self, key: &str, value: &str) {
        self.change_fleet(&json!({"metadata": {"annotations": {key: value}}}));
    }

    /// Every node immediately does what it was granted, and reports it as its executor would.
    pub(super) fn nodes_follow(&self) {
        for name in self.names(Kind::StatefulNode) {
            self.node_follows(&name);
        }
    }

    pub(super) fn node_follows(&self, name: &str) {
        let node = self.get(Kind::StatefulNode, name);
        let now = self.clock.now();
        let known = condition(&node, "Ready").0 == "True"
            && node["status"]["spentGrantID"] == node["spec"]["grantID"];
        let since =
            if known { node["status"]["conditions"][0]["lastTransitionTime"].clone() } else { json!(now) };
        let mut status = json!({
            "observedGeneration": node["metadata"]["generation"],
            "phase": "Running",
            "currentImage": node["spec"]["image"],
            "podTemplateHash": node["spec"]["grantedHash"],
            "podUID": format!("pod of {name}"),
            "spentGrantID": node["spec"]["grantID"],
            "firstReadyAt": node["status"]["firstReadyAt"].as_str().map_or(json!(now), |at| json!(at)),
            "problem": null,
            "plan": node["spec"]["removalID"].as_str().map(leaving),
            "conditions": [{"type": "Ready", "status": "True", "reason": "NodeReady", "lastTransitionTime": since}],
        });
        if node["spec"]["sidecar"].is_object() {
            let height = node["spec"]["haltHeight"].as_i64().unwrap_or_default();
            status["sidecar"] = json!({"podUID": format!("pod of {name}"), "caughtUp": true, "height": height,
                "halted": height > 0, "haltTaskID": node["spec"]["haltTaskID"]});
        }
        let mut after = node.clone();
        json_patch::merge(&mut after, &json!({"status": status}));
        if after != node {
            self.change(Kind::StatefulNode, name, &json!({"status": status}));
        }
    }

    pub(super) fn node_is_down(&self, name: &str) {
        let now = self.clock.now();
        let down = json!({"status": {
            "phase": "Pending",
            "problem": {"reason": "NotReady", "message": "it sleeps", "since": now},
            "conditions": [{"type": "Ready", "status": "False", "reason": "PodNotReady", "lastTransitionTime": now}],
        }});
        self.change(Kind::StatefulNode, name, &down);
    }

    /// The node has observed its spec, and its pod cannot be created.
    pub(super) fn node_fails(&self, name: &str) {
        self.node_is_down(name);
        let generation = self.get(Kind::StatefulNode, name)["metadata"]["generation"].clone();
        let failed = json!({"status": {"phase": "Failed", "observedGeneration": generation}});
        self.change(Kind::StatefulNode, name, &failed);
    }

    /// Reconciles the fleet until nothing changes any more, while its nodes follow at once.
    pub(super) async fn settle(&self) {
        for _ in 0..40 {
            let before = self.port.kept.lock().unwrap().count;
            self.look_at_fleet().await.unwrap();
            self.pass(2).await;
            self.nodes_follow();
            if before == self.port.kept.lock().unwrap().count {
                return;
            }
        }
        panic!("the fleet does not come to rest: {:#}", self.fleet()["status"]);
    }

    /// A fleet with this spec that has been created and serves.
    pub(super) async fn serving(spec: Value) -> Self {
        let stage = Self::new();
        stage.put(Kind::NodeDeployment, "db", json!({"spec": spec}));
        stage.settle().await;
        assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied", "{:#}", stage.fleet());
        drop((stage.calls(), stage.reasons().await));
        stage
    }

    /// Reconciles the fleet until its plan waits for its nodes.
    async fn begin(&self) {
        for _ in 0..4 {
            self.look_at_fleet().await.unwrap();
            self.pass(2).await;
        }
    }

    fn plan_id(&self) -> String {
        self.fleet()["status"]["plan"]["id"].as_str().unwrap_or_default().to_owned()
    }

    fn granted(&self, version: &str) -> Vec<String> {
        let mut names = self.names(Kind::StatefulNode);
        names.retain(|name| self.get(Kind::StatefulNode, name)["spec"]["image"] == format!("db:{version}"));
        names
    }
}

fn to_v2() -> Value {
    json!({"spec": {"template": {"spec": {"image": "db:v2"}}}})
}

fn outcomes(stage: &Stage) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let history = stage.fleet()["status"]["history"].as_array().cloned().unwrap_or_default();
    history.iter().map(|h| (text(&h["outcome"]), text(&h["reason"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn new_fleet_is_created_without_plan_and_then_settles() {
    let stage = Stage::new();
    stage.put(Kind::NodeDeployment, "db", json!({"spec": fleet_spec(3, "v1")}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.names(Kind::StatefulNode), ["db-0", "db-1", "db-2"]);
    assert_eq!(stage.names(Kind::ControllerRevision).len(), 1);
    let fleet = stage.fleet();
    assert_eq!(condition(&fleet, "RolloutInProgress").1, "NotStarted");
    assert_eq!(fleet["status"]["updateRevision"], stage.names(Kind::ControllerRevision)[0]);
    assert_eq!((&fleet["status"]["plan"], &fleet["status"]["rollout"]), (&json!(null), &json!(null)));
    stage.settle().await;
    let fleet = stage.fleet();
    assert_eq!(fleet["status"]["phase"], "Ready");
    assert_eq!(fleet["status"]["lastCompletedRolloutHash"], fleet["status"]["requestedRolloutHash"]);
    let hash = fleet["status"]["requestedRolloutHash"].as_str().unwrap();
    assert_eq!(fleet["status"]["buildID"], format!("v1-{}", &hash[3..8]));
    stage.calls();
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), None);
    assert_eq!(stage.calls(), [""; 0]);
    assert_eq!(stage.reasons().await.iter().filter(|r| *r != "NodeCreated").count(), 0);
}

#[tokio::test(start_paused = true)]
async fn rollout_is_stored_before_grants_and_each_event_is_sent_once() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.granted("v2"), [""; 0]);
    let writes = stage.calls();
    assert_eq!(writes.last().map(String::as_str), Some("patch NodeDeployment db /status"), "{writes:?}");
    let plan = stage.plan_id();
    let told = stage.told().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].0 == "RolloutStarted" && told[0].1.starts_with("InPlace to "), "{told:?}");
    assert!(told[0].1.ends_with("(TemplateChanged)"), "{told:?}");
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.granted("v2"), ["db-1"]);
    let next = stage.look_at_fleet().await.unwrap();
    assert!(
        next.delay("shop/db") <= Duration::from_mins(10),
        "it is looked at again when it would stall: {next:?}"
    );
    stage.settle().await;
    assert_eq!(stage.granted("v2"), ["db-0", "db-1"]);
    let fleet = stage.fleet();
    assert_eq!(condition(&fleet, "UpToDate").1, "Applied");
    assert_eq!(fleet["status"]["plan"]["id"], plan);
    assert_eq!(fleet["status"]["currentRevision"], fleet["status"]["updateRevision"]);
    assert_eq!(outcomes(&stage), [("Complete".to_owned(), String::new())]);
    let told = stage.told().await;
    assert!(told.iter().any(|(reason, _)| reason == "RolloutComplete"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn new_target_supersedes_the_active_rollout() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.begin().await;
    let first = stage.plan_id();
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v3"}}}}));
    stage.look_at_fleet().await.unwrap();
    assert_ne!(stage.plan_id(), first);
    assert_eq!(outcomes(&stage), [("Superseded".to_owned(), "NewTarget".to_owned())]);
    let told = stage.told().await;
    let superseded: Vec<_> = told.iter().filter(|(reason, _)| reason == "RolloutSuperseded").collect();
    assert_eq!(superseded.len(), 1, "{told:?}");
    stage.settle().await;
    assert_eq!(stage.granted("v3").len(), 3);
    assert_eq!(outcomes(&stage)[1].0, "Complete");
}

#[tokio::test(start_paused = true)]
async fn abort_ends_the_named_plan_and_reverts_pending_grants() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.begin().await;
    let plan = stage.plan_id();
    drop(stage.reasons().await);
    stage.annotate("windlass.dev/abort", "another");
    stage.look_at_fleet().await.unwrap();
    let told = stage.told().await;
    assert!(told.len() == 1 && told[0].0 == "InvalidSpec", "{told:?}");
    assert!(
        told[0].1.contains("\"another\" is not a plan of this fleet") && told[0].1.contains(&plan),
        "{told:?}"
    );
    stage.annotate("windlass.dev/abort", &plan);
    stage.look_at_fleet().await.unwrap();
    let fleet = stage.fleet();
    assert_eq!(
        (&fleet["status"]["plan"]["state"], &fleet["status"]["rollout"]),
        (&json!("Aborted"), &json!(null))
    );
    assert_eq!(condition(&fleet, "UpToDate").1, "Aborted");
    assert_eq!(fleet["status"]["rejected"]["planID"], plan);
    assert_eq!(outcomes(&stage), [("Aborted".to_owned(), "AbortRequested".to_owned())]);
    assert_eq!(stage.reasons().await, ["RolloutAborted"]);
    // The node that was granted the target but has not moved is granted what it runs.
    assert_eq!(stage.granted("v2"), ["db-2"]);
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.granted("v2"), [""; 0]);
    stage.settle().await;
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Aborted", "it is not tried again by itself");
    assert_eq!(stage.reasons().await, [""; 0]);
    // A retry that names another plan has no effect.
    stage.annotate("windlass.dev/retry", "nobody");
    stage.settle().await;
    assert_eq!(stage.reasons().await, ["InvalidSpec"]);
    stage.annotate("windlass.dev/retry", &plan);
    stage.settle().await;
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
    assert_eq!(stage.granted("v2").len(), 3);
    // Names of earlier plans of this fleet are not reported.
    stage.look_at_fleet().await.unwrap();
    assert!(!stage.reasons().await.contains(&"InvalidSpec".to_owned()));
}

/// A node that was told to restart and waits for a hook, or whose pod is not gone yet, keeps its pod.
#[tokio::test(start_paused = true)]
async fn abort_reverts_a_restart_that_was_not_carried_out() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let labels = json!({"windlass.dev/deployment": "db"});
    let pod = json!({"metadata": {"uid": "pod of db-2", "labels": labels}, "status": {"conditions": ready}});
    stage.put(Kind::Pod, "db-2-0", pod);
    let node = || stage.get(Kind::StatefulNode, "db-2");
    let told = || node()["metadata"]["annotations"]["windlass.dev/restartedAt"].clone();
    let stays = || node()["spec"]["grantedHash"] == node()["status"]["podTemplateHash"];
    let at = (stage.clock.now() + TimeDelta::seconds(1)).to_rfc3339();
    stage.annotate("windlass.dev/restartedAt", &at);
    stage.begin().await;
    assert_eq!((told(), stays()), (json!(at), false));
    // Its executor has seen it.
    stage.change(Kind::StatefulNode, "db-2", &json!({"status": {"restartedAt": at}}));
    stage.annotate("windlass.dev/abort", &stage.plan_id());
    stage.begin().await;
    assert_eq!((told(), stays()), (json!(null), true));
    stage.settle().await;
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Aborted");
    // What is rolled out later restarts the node, too.
    stage.change_fleet(&to_v2());
    stage.settle().await;
    assert_eq!((told(), stage.granted("v2").len()), (json!(at), 3));
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_are_reported_once() {
    let stage = Stage::serving(fleet_spec(1, "v1")).await;
    let asked = async |key: &str, value: &str| {
        stage.annotate(key, value);
        stage.look_at_fleet().await.unwrap();
        stage.look_at_fleet().await.unwrap();
        stage.told().await
    };
    let told = asked("windlass.dev/restartedAt", "tomorrow").await;
    assert!(told.len() == 1 && told[0].0 == "InvalidSpec" && told[0].1.contains("\"tomorrow\""), "{told:?}");
    let told = asked("windlass.dev/skip", "nonsense-3").await;
    assert!(told.len() == 1 && told[0].0 == "SkipRefused", "{told:?}");
    assert!(told[0].1.contains("is not a task of a plan of this fleet"), "{told:?}");
    let told = asked("windlass.dev/retry", "nonsense").await;
    assert!(
        told.len() == 1 && told[0].1.contains("windlass.dev/retry: \"nonsense\" is not a plan"),
        "{told:?}"
    );
    assert!(!told[0].1.contains("its current plan is"), "there is none: {told:?}");
    stage.change_fleet(&json!({"spec": {"forcePromote": "v1:0"}}));
    stage.look_at_fleet().await.unwrap();
    let told = stage.told().await;
    assert!(
        told.len() == 1 && told[0].0 == "StaleForcePromote" && told[0].1.contains("\"v1:0\""),
        "{told:?}"
    );
    let hash = stage.fleet()["status"]["requestedRolloutHash"].clone();
    stage.change_fleet(&json!({"spec": {"forcePromote": hash}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.reasons().await, [""; 0], "it is what is wanted");
}

#[tokio::test(start_paused = true)]
async fn skip_of_a_required_fleet_task_is_refused_once() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.begin().await;
    drop(stage.told().await);
    let tasks = stage.fleet()["status"]["plan"]["tasks"].clone();
    let id = tasks[0]["id"].as_str().unwrap();
    stage.annotate("windlass.dev/skip", id);
    stage.look_at_fleet().await.unwrap();
    stage.look_at_fleet().await.unwrap();
    let told = stage.told().await;
    assert!(told.len() == 1 && told[0].0 == "SkipRefused", "{told:?}");
    assert!(told[0].1.contains("(update-node-specs) is not skipped"), "{told:?}");
    stage.settle().await;
    drop(stage.told().await);
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.reasons().await, [""; 0], "the task of a plan that is over");
}

#[tokio::test(start_paused = true)]
async fn unreadable_fleet_spec_is_reported_and_nodes_keep_running() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.change_fleet(&json!({"spec": {"replicas": "many"}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.calls(), ["patch NodeDeployment db /status"]);
    let fleet = stage.fleet();
    for (type_, truth) in [("UpToDate", "False"), ("Stalled", "True")] {
        let (status, reason, message) = condition(&fleet, type_);
        assert_eq!((status.as_str(), reason.as_str()), (truth, "InvalidSpec"));
        assert!(message.contains("many"), "{message}");
    }
    assert_eq!(fleet["status"]["observedGeneration"], fleet["metadata"]["generation"]);
    assert_eq!(condition(&fleet, "Ready").0, "True", "what is known stays");
    assert_eq!(stage.reasons().await, ["InvalidSpec"]);
    stage.look_at_fleet().await.unwrap();
    assert_eq!((stage.calls(), stage.reasons().await), (vec![], vec![]));
    // A new fleet gets all the conditions that kstatus requires.
    let fresh = Stage::new();
    fresh.put(Kind::NodeDeployment, "db", json!({"spec": {"replicas": "many"}}));
    fresh.look_at_fleet().await.unwrap();
    let reasons =
        ["Ready", "RolloutInProgress", "Reconciling"].map(|type_| condition(&fresh.fleet(), type_).1);
    assert_eq!(reasons, ["NotStarted", "NotStarted", "Settled"]);
}

#[tokio::test(start_paused = true)]
async fn oversized_status_is_reported_once_and_blocks_the_rollout() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    let entry = |message: String| json!({"planID": "p", "recipe": "InPlace", "targetHash": "v1:0", "outcome": "Complete", "message": message});
    let history = |message: &str| json!({"status": {"history": vec![entry(message.to_owned()); 9]}});
    stage.change_fleet(&history(&"x".repeat(60_000)));
    stage.change_fleet(&to_v2());
    drop(stage.calls());
    drop(stage.told().await);
    for looks in 0..3 {
        let error = stage.look_at_fleet().await.unwrap_err().to_string();
        assert!(error.contains("more than 524288 bytes"), "{error}");
        let writes: Vec<String> = stage.calls().into_iter().filter(|c| c.starts_with("patch ")).collect();
        let expected = if looks == 0 { vec!["patch NodeDeployment db /status/conditions"] } else { vec![] };
        assert_eq!(writes, expected, "what runs is left alone, and it is said once");
        for (type_, status) in [("UpToDate", "False"), ("Stalled", "True")] {
            let said = condition(&stage.fleet(), type_);
            assert_eq!((said.0.as_str(), said.1.as_str()), (status, "InvalidSpec"), "{type_}");
            assert!(said.2.starts_with("status: "), "{}", said.2);
        }
    }
    let told = stage.told().await;
    assert!(
        told.len() == 1 && told[0].0 == "InvalidSpec",
        "nor is a rollout told that has not begun: {told:?}"
    );
    assert!(stage.fleet()["status"]["rollout"].is_null());
    stage.change_fleet(&history("short"));
    stage.settle().await;
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
    assert_eq!(stage.granted("v2").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn unknown_or_incomplete_strategy_is_reported_as_invalid_spec() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    let said = async |patch: Value| {
        stage.change_fleet(&patch);
        let next = stage.look_at_fleet().await.unwrap();
        (condition(&stage.fleet(), "UpToDate"), seconds(next))
    };
    let (refusal_of, next) = said(json!({"spec": {"updateStrategy": {"type": "Magic"}}})).await;
    assert!(refusal_of.1 == "InvalidSpec" && refusal_of.2.contains("Magic is not known"), "{refusal_of:?}");
    assert_eq!(next, Some(30), "somebody may mend it");
    let (refusal_of, _) = said(json!({"spec": {"updateStrategy": {"type": "HardFork"}}})).await;
    assert!(refusal_of.1 == "InvalidSpec" && refusal_of.2.contains("haltHeight"), "{refusal_of:?}");
    let fork = json!({"spec": {"updateStrategy": {"hardFork": {"haltHeight": 1000}}}});
    let (refusal_of, _) = said(fork).await;
    assert!(
        refusal_of.1 == "InvalidSpec" && refusal_of.2.contains("needs a sidecar that reports"),
        "{refusal_of:?}"
    );
    let sidecar = json!({"spec": {"template": {"spec": {"sidecar": {"url": "http://monitor/{name}"}}}}});
    assert_eq!(said(sidecar).await.0.1, "Applied", "it applies at once, and nothing is rolled out");
    let (refusal_of, next) = said(json!({"spec": {"updateStrategy": {"type": ""}}})).await;
    assert!(refusal_of.1 == "Applied" && refusal_of.2.contains("is treated as InPlace"), "{refusal_of:?}");
    assert_eq!(next, None);
}

#[tokio::test(start_paused = true)]
async fn unreadable_rollout_plan_fails_and_a_finished_one_is_ignored() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.begin().await;
    drop(stage.told().await);
    let plan = stage.plan_id();
    stage.change_fleet(&json!({"status": {"plan": {"tasks": "lost"}}}));
    stage.look_at_fleet().await.unwrap();
    let fleet = stage.fleet();
    assert_eq!(condition(&fleet, "UpToDate").1, "PlanFailed");
    assert_eq!(
        (&fleet["status"]["plan"]["id"], &fleet["status"]["plan"]["state"]),
        (&json!(plan), &json!("Failed"))
    );
    assert_eq!(fleet["status"]["rejected"]["outcome"], "Failed");
    assert_eq!(outcomes(&stage), [("Failed".to_owned(), "Unreadable".to_owned())]);
    assert_eq!(stage.reasons().await, ["RolloutFailed"]);
    stage.settle().await;
    assert_eq!(outcomes(&stage).len(), 1, "that is said once");
    // A plan that is over and unreadable has no effect.
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.change_fleet(&json!({"status": {"plan": {"id": "x", "state": "Complete", "tasks": "lost"}}}));
    stage.settle().await;
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
    assert_eq!(outcomes(&stage), []);
    // An active plan whose rollout is lost still has the target.
    stage.change_fleet(&to_v2());
    stage.begin().await;
    stage.change_fleet(&json!({"status": {"rollout": null}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(
        stage.fleet()["status"]["rollout"]["targetHash"],
        stage.fleet()["status"]["plan"]["targetHash"]
    );
    stage.settle().await;
    assert_eq!(outcomes(&stage), [("Complete".to_owned(), String::new())]);
}

#[tokio::test(start_paused = true)]
async fn rejected_template_creates_no_revision_and_is_retried() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.fail("try StatefulSet", refused("spec.containers: no"));
    stage.change_fleet(&to_v2());
    let next = stage.look_at_fleet().await.unwrap();
    assert_eq!(seconds(next), Some(30));
    let (status, reason, message) = condition(&stage.fleet(), "UpToDate");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidSpec"));
    assert_eq!(message, "template: the API server rejects it: spec.containers: no");
    assert_eq!(stage.names(Kind::ControllerRevision).len(), 1);
    assert_eq!(stage.reasons().await, ["InvalidSpec"]);
    stage.calls();
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.calls(), [""; 0], "it is not asked again at every look");
    stage.mend();
    stage.pass(60).await;
    stage.settle().await;
    assert_eq!(stage.granted("v2").len(), 2);
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
}

#[tokio::test(start_paused = true)]
async fn persistent_forbidden_errors_and_fleet_status_are_reported() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.fail("try StatefulSet", busy());
    stage.change_fleet(&to_v2());
    stage.node_is_down("db-1");
    assert!(stage.look_at_fleet().await.is_err());
    assert_eq!(stage.fleet()["status"]["readyReplicas"], 1);
    stage.mend();
    stage.fail("create ControllerRevision", forbidden("quota"));
    assert!(stage.look_at_fleet().await.is_err());
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applying", "it may pass");
    let key = Failures::id(Kind::NodeDeployment, &Key::new("shop", "db"));
    stage.cx.failures.count(&key);
    assert!(stage.look_at_fleet().await.is_err());
    let (_, reason, message) = condition(&stage.fleet(), "UpToDate");
    assert!(reason == "InvalidSpec" && message.contains("quota"), "{message}");
    stage.mend();
    stage.cx.failures.end(&key);
    stage.settle().await;
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
    // A conflict leads to a new reconcile, and is not reported.
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v3"}}}}));
    stage.fail("create ControllerRevision", conflict());
    stage.calls();
    assert!(stage.look_at_fleet().await.is_err_and(|e| e.is_conflict()));
    assert!(!stage.calls().iter().any(|c| c.starts_with("patch")));
}

#[tokio::test(start_paused = true)]
async fn immediate_changes_reach_all_nodes_despite_a_conflict_on_one() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    let ports = json!([{"port": 80}]);
    stage.change_fleet(&json!({"spec": {"template": {
        "metadata": {"labels": {"team": "a"}},
        "spec": {"ports": ports, "serviceAnnotations": {"x": "y"}, "progressDeadlineSeconds": 60,
            "volumeClaimRetention": "Delete"},
    }}}));
    stage.fail("patch StatefulNode db-1", conflict());
    assert!(stage.look_at_fleet().await.is_err_and(|e| e.is_conflict()), "it is looked at again");
    assert!(
        stage.look_at_fleet().await.is_err_and(|e| e.is_conflict()),
        "the status has stopped to say Retain"
    );
    let applied = |name: &str| {
        let node = stage.get(Kind::StatefulNode, name);
        let spec = &node["spec"];
        node["metadata"]["labels"]["team"] == "a"
            && spec["ports"] == ports
            && spec["serviceAnnotations"]["x"] == "y"
            && spec["progressDeadlineSeconds"] == 60
            && spec["volumeClaimRetention"] == "Delete"
    };
    assert_eq!(["db-0", "db-1", "db-2"].map(applied), [true, false, true]);
    stage.mend();
    stage.settle().await;
    assert!(applied("db-1"));
    assert_eq!(outcomes(&stage), [], "that is no rollout");
    stage.change_fleet(&json!({"spec": {"template": {"metadata": {"labels": {"team": null}}}}}));
    stage.settle().await;
    assert!(stage.get(Kind::StatefulNode, "db-0")["metadata"]["labels"]["team"].is_null());
    // A node that is being deleted is left alone.
    stage.change(
        Kind::StatefulNode,
        "db-2",
        &json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}),
    );
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"progressDeadlineSeconds": 90}}}}));
    stage.look_at_fleet().await.unwrap();
    let deadline =
        |name: &str| stage.get(Kind::StatefulNode, name)["spec"]["progressDeadlineSeconds"].clone();
    assert_eq!((deadline("db-0"), deadline("db-2")), (json!(90), json!(60)));
}

#[tokio::test(start_paused = true)]
async fn conflict_on_one_removed_node_does_not_block_the_others() {
    let mut spec = fleet_spec(4, "v1");
    spec["updateStrategy"] = json!({"type": "InPlace", "inPlace": {"maxUnavailable": 3}});
    let stage = Stage::serving(spec).await;
    let is_there = |name: &str| stage.cx.view.nodes.get(&Key::new("shop", name)).is_some();
    let is_asked = |name: &str| stage.get(Kind::StatefulNode, name)["spec"]["removalID"].is_string();
    stage.change_fleet(&json!({"spec": {"replicas": 1}}));
    stage.fail("patch StatefulNode db-2", conflict());
    assert!(stage.look_at_fleet().await.is_err_and(|e| e.is_conflict()), "no event need tell of it");
    assert_eq!(["db-0", "db-1", "db-2", "db-3"].map(is_asked), [false, true, false, true]);
    stage.mend();
    stage.look_at_fleet().await.unwrap();
    assert_eq!(["db-0", "db-1", "db-2", "db-3"].map(is_there), [true; 4], "none has answered");
    stage.nodes_follow();
    stage.fail("delete StatefulNode db-2", conflict());
    assert!(stage.look_at_fleet().await.is_err_and(|e| e.is_conflict()), "no event need tell of it");
    assert_eq!(["db-0", "db-1", "db-2", "db-3"].map(is_there), [true, false, true, false]);
    stage.mend();
    stage.settle().await;
    assert!(!is_there("db-2"));
}

#[tokio::test(start_paused = true)]
async fn scale_in_removes_nodes_one_by_one_and_can_be_canceled() {
    let stage = Stage::serving(fleet_spec(4, "v1")).await;
    let wish =
        |name: &str| stage.get(Kind::StatefulNode, name)["spec"]["removalID"].as_str().map(str::to_owned);
    stage.node_is_down("db-0");
    stage.change_fleet(&json!({"spec": {"replicas": 2}}));
    for _ in 0..3 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(2).await;
    }
    assert_eq!((wish("db-3"), wish("db-2")), (None, None));
    let (truth, reason, message) = condition(&stage.fleet(), "Reconciling");
    assert_eq!((truth.as_str(), reason.as_str()), ("True", "Progressing"));
    assert!(message.contains("before db-3, db-2 can be removed") && message.contains("(db-0)"), "{message}");
    stage.node_follows("db-0");
    stage.look_at_fleet().await.unwrap();
    assert_eq!(wish("db-2"), None, "one after the other");
    let first = wish("db-3").unwrap();
    // Another node goes down before the leaving node is deleted: the leaving node is kept while the other is down.
    stage.node_follows("db-3");
    stage.node_is_down("db-1");
    stage.look_at_fleet().await.unwrap();
    assert_eq!(wish("db-3").as_ref(), Some(&first));
    stage.change_fleet(&json!({"spec": {"paused": true}}));
    stage.node_follows("db-1");
    stage.look_at_fleet().await.unwrap();
    assert_eq!(wish("db-3").as_ref(), Some(&first), "nobody leaves a fleet that is paused");
    stage.change_fleet(&json!({"spec": {"replicas": 4}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(wish("db-3"), None, "it is wanted again");
    stage.nodes_follow();
    stage.change_fleet(&json!({"spec": {"replicas": 3, "paused": false}}));
    stage.look_at_fleet().await.unwrap();
    assert!(wish("db-3").is_some_and(|wish| wish != first), "another wish");
    stage.settle().await;
    assert_eq!(stage.names(Kind::StatefulNode), ["db-0", "db-1", "db-2"]);
    assert_eq!(outcomes(&stage), []);
}

#[tokio::test(start_paused = true)]
async fn scale_in_waits_while_a_live_read_shows_another_pod_unready() {
    let stage = Stage::serving(fleet_spec(4, "v1")).await;
    let is_asked = || stage.get(Kind::StatefulNode, "db-3")["spec"]["removalID"].is_string();
    let is_there = || stage.cx.view.nodes.get(&Key::new("shop", "db-3")).is_some();
    // No watch has shown this pod.
    let pod = |ready: &str| {
        let pod = json!({
            "metadata": {"name": "db-0-0", "namespace": "shop", "uid": "pod of db-0", "resourceVersion": "1"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        let mut kept = stage.port.kept.lock().unwrap();
        kept.objects.insert((Kind::Pod.name(), "db-0-0".to_owned()), pod);
    };
    pod("False");
    stage.change_fleet(&json!({"spec": {"replicas": 3}}));
    let next = stage.look_at_fleet().await.unwrap();
    assert!(!is_asked());
    assert!(seconds(next).is_some_and(|seconds| seconds <= 5), "it is looked at again soon");
    pod("True");
    stage.pass(10).await;
    stage.look_at_fleet().await.unwrap();
    assert!(is_asked());
    stage.node_follows("db-3");
    pod("False");
    stage.pass(10).await;
    stage.look_at_fleet().await.unwrap();
    assert!(is_there(), "it is looked at again before it is deleted");
    pod("True");
    stage.pass(10).await;
    stage.look_at_fleet().await.unwrap();
    assert!(!is_there());
}

#[tokio::test(start_paused = true)]
async fn scaled_in_node_is_deleted_after_retained_claims_are_released() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    let is_there = || stage.cx.view.nodes.get(&Key::new("shop", "db-1")).is_some();
    let node = stage.get(Kind::StatefulNode, "db-1")["metadata"]["uid"].clone();
    let claim = |version: &str, owners: Value| {
        json!({"metadata": {
            "name": "data-db-1-0", "namespace": "shop", "uid": "claim", "resourceVersion": version,
            "labels": {"windlass.dev/node": "db-1"}, "ownerReferences": owners,
        }})
    };
    let owner = json!([{"kind": "StatefulNode", "name": "db-1", "uid": node}]);
    stage.cx.view.observe(Kind::PersistentVolumeClaim, &claim("5", owner));
    stage.change_fleet(&json!({"spec": {"replicas": 1}}));
    stage.look_at_fleet().await.unwrap();
    stage.node_follows("db-1");
    let next = stage.look_at_fleet().await.unwrap();
    assert!(is_there(), "the claim would go with it");
    assert!(seconds(next).is_some_and(|seconds| seconds <= 5), "it is looked at again soon");
    stage.cx.view.observe(Kind::PersistentVolumeClaim, &claim("6", json!([])));
    stage.look_at_fleet().await.unwrap();
    assert!(!is_there());
}

#[tokio::test(start_paused = true)]
async fn retain_status_covers_all_nodes_and_is_cleared_first() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    let said = || stage.fleet()["status"]["deletionPolicy"].as_str().map(str::to_owned);
    let owned = || {
        ["db-0", "db-1"]
            .map(|n| stage.get(Kind::StatefulNode, n)["metadata"]["ownerReferences"][0].is_object())
    };
    assert_eq!((said().as_deref(), owned()), (Some("Delete"), [true; 2]));
    assert_eq!(stage.fleet()["status"]["volumeClaimRetention"], "Retain");
    stage.change_fleet(&json!({"spec": {"deletionPolicy": "Retain"}}));
    stage.fail("patch StatefulNode db-1", conflict());
    assert!(stage.look_at_fleet().await.is_err_and(|e| e.is_conflict()));
    assert_eq!((said().as_deref(), owned()), (Some("Delete"), [false, true]));
    stage.mend();
    stage.look_at_fleet().await.unwrap();
    assert_eq!((said().as_deref(), owned()), (Some("Retain"), [false; 2]));
    stage.change_fleet(&json!({"spec": {"deletionPolicy": "Delete"}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!((said(), owned()), (None, [false; 2]), "nobody may rely on it before it ends");
    stage.look_at_fleet().await.unwrap();
    assert_eq!((said().as_deref(), owned()), (Some("Delete"), [true; 2]));
}

#[tokio::test(start_paused = true)]
async fn claims_owned_by_a_statefulset_or_pod_block_node_removal() {
    let owner = |kind: &str, name: &str| json!([{"kind": kind, "name": name, "uid": "x"}]);
    let rows = [
        ("nothing", json!([]), "Retain", true),
        ("somebody else's object", owner("ConfigMap", "db-1"), "Retain", true),
        ("the StatefulSet owns it", owner("StatefulSet", "db-1"), "Retain", false),
        ("the pod owns it", owner("Pod", "db-1-0"), "Retain", false),
        ("the StatefulSet will own it", json!([]), "Delete", false),
    ];
    for (what, owners, policy, goes) in rows {
        let mut spec = fleet_spec(2, "v1");
        spec["template"]["spec"]["volumeClaimTemplates"] =
            json!([{"metadata": {"name": "data"}, "spec": {}}]);
        let stage = Stage::serving(spec).await;
        let label = json!({"windlass.dev/node": "db-1"});
        let claim = json!({"metadata": {"labels": label, "ownerReferences": owners}});
        stage.put(Kind::PersistentVolumeClaim, "data-db-1-0", claim);
        let retention = json!({"whenDeleted": policy, "whenScaled": "Retain"});
        let set = json!({"spec": {"persistentVolumeClaimRetentionPolicy": retention, "template": {}}});
        stage.put(Kind::StatefulSet, "db-1", set);
        stage.settle().await;
        let said = stage.fleet()["status"]["volumeClaimRetention"].clone();
        assert_eq!(said, if goes { "Retain" } else { "Delete" }, "{what}");
        stage.change_fleet(&json!({"spec": {"replicas": 1}}));
        stage.settle().await;
        let is_there = stage.names(Kind::StatefulNode).contains(&"db-1".to_owned());
        assert_eq!(is_there, !goes, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_created_before_retain_status_is_cleared_has_no_owner() {
    let mut spec = fleet_spec(1, "v1");
    spec["deletionPolicy"] = json!("Retain");
    let stage = Stage::serving(spec).await;
    assert_eq!(stage.fleet()["status"]["deletionPolicy"], "Retain");
    stage.change_fleet(&json!({"spec": {"deletionPolicy": "Delete", "replicas": 2}}));
    stage.fail("patch NodeDeployment", busy());
    assert!(stage.look_at_fleet().await.is_err());
    let made = stage.get(Kind::StatefulNode, "db-1");
    assert_eq!(made["metadata"]["ownerReferences"], json!([]), "{made:#}");
    stage.mend();
    stage.settle().await;
    assert_eq!(stage.fleet()["status"]["deletionPolicy"], "Delete");
    assert!(stage.get(Kind::StatefulNode, "db-1")["metadata"]["ownerReferences"][0].is_object());
}

#[tokio::test(start_paused = true)]
async fn deletion_policy_sets_owners_of_nodes_and_service() {
    let mut spec = fleet_spec(2, "v1");
    spec["service"] = json!({"ports": [{"port": 80}]});
    let stage = Stage::serving(spec).await;
    let owned = || {
        let of = |kind, name: &str| {
            let object = stage.get(kind, name);
            let owners = object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
            (owners, object["metadata"]["annotations"]["windlass.dev/owner-uid"].clone())
        };
        [of(Kind::StatefulNode, "db-0"), of(Kind::StatefulNode, "db-1"), of(Kind::Service, "db")]
    };
    let by_reference = || (1, Value::Null);
    let by_annotation = || (0, json!("uid of db"));
    assert_eq!(owned(), [by_reference(), by_reference(), by_reference()]);
    stage.change_fleet(&json!({"spec": {"deletionPolicy": "Retain"}}));
    stage.settle().await;
    assert_eq!(owned(), [by_annotation(), by_annotation(), by_annotation()]);
    stage.calls();
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.calls(), [""; 0]);
    // Another owner's reference is kept.
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "other"});
    stage.change(Kind::StatefulNode, "db-1", &json!({"metadata": {"ownerReferences": [other]}}));
    stage.change_fleet(&json!({"spec": {"deletionPolicy": "Delete"}}));
    stage.settle().await;
    assert_eq!(owned(), [by_reference(), (2, Value::Null), by_reference()]);
    stage.change_fleet(&json!({"spec": {"deletionPolicy": "Retain"}}));
    stage.settle().await;
    assert_eq!(owned()[1], (1, json!("uid of db")));
    assert_eq!(stage.get(Kind::StatefulNode, "db-1")["metadata"]["ownerReferences"][0]["uid"], "other");
}

#[tokio::test(start_paused = true)]
async fn fleet_service_is_created_repaired_and_removed_if_owned() {
    let with = |ports: Value| json!({"spec": {"service": {"ports": ports}}});
    let stage = Stage::serving(fleet_spec(1, "v1")).await;
    stage.change_fleet(&with(json!([{"port": 80}])));
    stage.settle().await;
    let service = stage.get(Kind::Service, "db");
    let selects = json!({"windlass.dev/deployment": "db", "windlass.dev/set": "first"});
    assert_eq!((&service["spec"]["selector"], &service["spec"]["ports"][0]["port"]), (&selects, &json!(80)));
    assert_eq!(service["metadata"]["labels"]["app.kubernetes.io/managed-by"], "windlass");
    // Manual edits are repaired; labels of others are kept.
    let edit = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me", "mine": "x"}},
        "spec": {"selector": {"windlass.dev/set": "other"}}});
    stage.change(Kind::Service, "db", &edit);
    stage.settle().await;
    let healed = stage.get(Kind::Service, "db");
    assert_eq!((&healed["spec"]["selector"], &healed["metadata"]["labels"]["mine"]), (&selects, &json!("x")));
    assert_eq!(healed["metadata"]["labels"]["app.kubernetes.io/managed-by"], "windlass");
    stage.fail("patch Service", refused("ports: no"));
    stage.change_fleet(&with(json!([{"port": 81}])));
    stage.look_at_fleet().await.unwrap();
    let message = condition(&stage.fleet(), "UpToDate").2;
    assert_eq!(message, "service: the API server rejects it: ports: no");
    stage.mend();
    stage.settle().await;
    assert_eq!(stage.get(Kind::Service, "db")["spec"]["ports"][0]["port"], 81);
    stage.change_fleet(&json!({"spec": {"service": null}}));
    stage.settle().await;
    assert_eq!(stage.names(Kind::Service), [""; 0]);
    // A Service that somebody else made.
    stage.put(Kind::Service, "db", json!({"spec": {"selector": {"app": "x"}}}));
    let before = stage.get(Kind::Service, "db");
    stage.look_at_fleet().await.unwrap();
    stage.change_fleet(&with(json!([{"port": 80}])));
    let next = stage.look_at_fleet().await.unwrap();
    assert_eq!(seconds(next), Some(30));
    let message = condition(&stage.fleet(), "UpToDate").2;
    assert!(
        message.starts_with("service: Service db exists and ") && message.contains("does not touch it"),
        "{message}"
    );
    assert_eq!(stage.get(Kind::Service, "db"), before);
    // The write that starts a plan says the same, and the condition keeps its time.
    let stalled = |stage: &Stage| {
        let conditions = stage.fleet()["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let stalled = conditions.into_iter().find(|c| c["type"] == "Stalled").unwrap();
        (stalled["status"].clone(), stalled["message"].clone(), stalled["lastTransitionTime"].clone())
    };
    let said = stalled(&stage);
    stage.change_fleet(&to_v2());
    stage.pass(2).await;
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.fleet()["status"]["plan"]["state"], "Active");
    assert_eq!(stalled(&stage), said);
}

#[tokio::test(start_paused = true)]
async fn foreign_fleet_service_is_looked_up_at_intervals() {
    let stage = Stage::serving(fleet_spec(1, "v1")).await;
    stage.change_fleet(&json!({"spec": {"service": {"ports": [{"port": 80}]}}}));
    // The Service exists, and no watch shows it: it is somebody else's, without our labels.
    let foreign =
        json!({"metadata": {"name": "db", "namespace": "shop", "uid": "x", "resourceVersion": "1"}});
    stage.port.kept.lock().unwrap().objects.insert(("Service", "db".to_owned()), foreign);
    let asked = || stage.calls().iter().filter(|c| c.contains("Service db")).count();
    stage.look_at_fleet().await.unwrap();
    assert_eq!(asked(), 2, "a create, and a look at what is in its way");
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "InvalidSpec");
    stage.look_at_fleet().await.unwrap();
    stage.pass(24).await;
    stage.look_at_fleet().await.unwrap();
    assert_eq!(asked(), 0);
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "InvalidSpec");
    stage.pass(1).await;
    stage.look_at_fleet().await.unwrap();
    assert_eq!(asked(), 2);
    stage.port.kept.lock().unwrap().objects.remove(&("Service", "db".to_owned()));
    stage.pass(25).await;
    stage.settle().await;
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
}

#[tokio::test(start_paused = true)]
async fn revisions_over_the_limit_are_deleted_unless_in_use() {
    let mut spec = fleet_spec(1, "v1");
    spec["revisionHistoryLimit"] = json!(1);
    let stage = Stage::serving(spec).await;
    for version in ["v2", "v3", "v4"] {
        stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": format!("db:{version}")}}}}));
        stage.settle().await;
    }
    let kept = stage.names(Kind::ControllerRevision);
    assert_eq!(kept.len(), 2, "the current one, and one that nothing refers to");
    let current = stage.fleet()["status"]["currentRevision"].as_str().unwrap().to_owned();
    assert!(kept.contains(&current));
    let number = |name: &String| stage.get(Kind::ControllerRevision, name)["revision"].as_i64().unwrap();
    assert_eq!(kept.iter().map(number).collect::<std::collections::BTreeSet<_>>(), [3, 4].into());
    // If somebody deletes the current revision, it is recreated from what the nodes hold.
    stage.remove(Kind::ControllerRevision, &current);
    stage.settle().await;
    assert!(stage.names(Kind::ControllerRevision).contains(&current));
    assert_eq!(outcomes(&stage).len(), 3, "and nothing is rolled");
}

#[tokio::test(start_paused = true)]
async fn scale_in_starts_at_highest_ordinal_and_missing_are_created() {
    let stage = Stage::serving(fleet_spec(4, "v1")).await;
    stage.change_fleet(&json!({"spec": {"replicas": 2}}));
    stage.settle().await;
    assert_eq!(stage.names(Kind::StatefulNode), ["db-0", "db-1"]);
    stage.remove(Kind::StatefulNode, "db-0");
    stage.settle().await;
    assert_eq!(stage.names(Kind::StatefulNode), ["db-0", "db-1"]);
    assert_eq!(outcomes(&stage), []);
    stage.fail("create StatefulNode", busy());
    stage.remove(Kind::StatefulNode, "db-0");
    assert!(stage.look_at_fleet().await.is_err(), "it is tried again");
    assert_eq!(stage.fleet()["status"]["readyReplicas"], 1, "and what is so is said");
    stage.mend();
    stage.fail("create StatefulNode", refused("metadata: no"));
    stage.look_at_fleet().await.unwrap();
    let message = condition(&stage.fleet(), "UpToDate").2;
    assert_eq!(message, "template: the API server rejects it: metadata: no");
}

#[tokio::test(start_paused = true)]
async fn rejected_node_delete_is_reported_and_retried() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    let no = "admission webhook \"keep.shop\" denied the request: ask first";
    stage.fail("delete StatefulNode db-2", refused(no).of_delete());
    stage.change_fleet(&json!({"spec": {"replicas": 2}}));
    stage.settle().await;
    assert_eq!(stage.names(Kind::StatefulNode), ["db-0", "db-1", "db-2"]);
    let said = condition(&stage.fleet(), "UpToDate");
    assert_eq!(said.1, "InvalidSpec");
    assert_eq!(said.2, format!("the API server rejects the delete of it: {no}"));
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), Some(30));
    stage.mend();
    stage.settle().await;
    assert_eq!(stage.names(Kind::StatefulNode), ["db-0", "db-1"]);
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
}

/// A fleet of two nodes that have just become Ready, and become available a minute later.
async fn with_new_nodes_that_wait_a_minute() -> Stage {
    let mut spec = fleet_spec(2, "v1");
    spec["minReadySeconds"] = json!(60);
    let stage = Stage::new();
    stage.put(Kind::NodeDeployment, "db", json!({"spec": spec}));
    stage.look_at_fleet().await.unwrap();
    stage.pass(2).await;
    stage.nodes_follow();
    stage
}

#[tokio::test(start_paused = true)]
async fn fleet_is_requeued_when_the_next_deadline_is_due() {
    let stage = with_new_nodes_that_wait_a_minute().await;
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), Some(60), "then they are available");
    stage.pass(20).await;
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), Some(40));
    stage.pass(40).await;
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), None);
    // A node that is down is overdue at the deadline.
    stage.node_is_down("db-1");
    stage.pass(10).await;
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), Some(590));
    stage.pass(590).await;
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), None);
    stage.node_follows("db-1");
    stage.pass(61).await;
    stage.settle().await;
    // A write with an unknown outcome.
    let node = stage.get(Kind::StatefulNode, "db-1");
    let version = node["metadata"]["resourceVersion"].as_str().unwrap();
    stage.cx.view.doubt(Kind::StatefulNode, Key::new("shop", "db-1"), version);
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), Some(30));
}

#[tokio::test(start_paused = true)]
async fn min_ready_seconds_are_awaited_when_node_clock_is_ahead() {
    let stage = with_new_nodes_that_wait_a_minute().await;
    *stage.clock.0.lock().unwrap() -= TimeDelta::hours(1);
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), Some(60), "counted from when it is seen");
    stage.pass(20).await;
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), Some(40));
    assert_eq!(stage.fleet()["status"]["availableReplicas"], 0);
    stage.pass(40).await;
    assert_eq!(seconds(stage.look_at_fleet().await.unwrap()), None);
    assert_eq!(stage.fleet()["status"]["availableReplicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn drift_handled_before_a_clock_change_is_not_handled_again() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    let before = |seconds: i64| stage.clock.now() - TimeDelta::seconds(seconds);
    stage.change(
        Kind::StatefulNode,
        "db-0",
        &json!({"status": {"editFoundAt": before(100), "observedGeneration": 1}}),
    );
    let ended = |at: DateTime<Utc>| {
        json!({"planID": "0123456789", "recipe": "InPlace", "outcome": "Complete", "targetHash": "v1:0",
            "startedAt": at, "finishedAt": at})
    };
    let history = |last: i64| json!({"status": {"history": [ended(before(last)), ended(before(3000))]}});
    stage.change(Kind::NodeDeployment, "db", &history(99));
    stage.look_at_fleet().await.unwrap();
    assert_ne!(stage.fleet()["status"]["plan"]["state"], "Active", "a plan ended since");
    stage.change(Kind::NodeDeployment, "db", &history(101));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.fleet()["status"]["plan"]["state"], "Active", "none ended since");
    assert_eq!(condition(&stage.fleet(), "RolloutInProgress").1, "ChildDrift");
}

#[tokio::test(start_paused = true)]
async fn each_rollout_stall_is_reported_once_and_may_roll_back() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.change_fleet(&json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 60},
        "template": {"spec": {"image": "db:v2"}}}}));
    stage.begin().await;
    stage.node_fails("db-1");
    drop(stage.told().await);
    stage.pass(70).await;
    stage.look_at_fleet().await.unwrap();
    stage.look_at_fleet().await.unwrap();
    assert_eq!(condition(&stage.fleet(), "Stalled").1, "NoProgress");
    assert_eq!(stage.reasons().await, ["RolloutStalled"]);
    stage.change_fleet(&json!({"spec": {"updateStrategy": {"onStall": "Rollback"}}}));
    stage.look_at_fleet().await.unwrap();
    let told = stage.told().await;
    let rolled_back = told.iter().find(|(reason, _)| reason == "RolledBack").unwrap();
    assert!(rolled_back.1.contains("db-1: NotReady: it sleeps"), "{told:?}");
    assert_eq!(outcomes(&stage), [("RolledBack".to_owned(), "Stalled".to_owned())]);
    let fleet = stage.fleet();
    assert!(fleet["status"]["rejected"]["message"].as_str().unwrap().contains("it sleeps"));
    assert!(fleet["status"]["history"][0]["message"].as_str().unwrap().contains("it sleeps"));
    stage.settle().await;
    assert_eq!(stage.granted("v2"), [""; 0]);
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "RolledBack");
}

#[tokio::test(start_paused = true)]
async fn each_creation_stall_is_reported_once() {
    let stage = Stage::new();
    stage.put(Kind::NodeDeployment, "db", json!({"spec": fleet_spec(2, "v1")}));
    stage.change_fleet(&json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 60}}}));
    stage.look_at_fleet().await.unwrap();
    drop(stage.told().await);
    let stalls = async |what: &str| {
        stage.pass(70).await;
        stage.look_at_fleet().await.unwrap();
        stage.look_at_fleet().await.unwrap();
        assert_eq!(condition(&stage.fleet(), "Stalled").1, "NoProgress", "{what}");
        assert_eq!(stage.reasons().await, ["RolloutStalled"], "{what}");
        stage.pass(70).await;
        stage.look_at_fleet().await.unwrap();
        assert_eq!(stage.reasons().await, [""; 0], "{what}: the same stall");
    };
    stalls("nothing is ready").await;
    stage.node_follows("db-0");
    stage.look_at_fleet().await.unwrap();
    stalls("one is ready, the other is not").await;
    stage.settle().await;
    stage.change_fleet(&json!({"spec": {"replicas": 0}}));
    stage.settle().await;
    stage.change_fleet(&json!({"spec": {"replicas": 1}}));
    stage.look_at_fleet().await.unwrap();
    drop(stage.told().await);
    stalls("filled again").await;
}

#[tokio::test(start_paused = true)]
async fn skip_after_the_end_of_the_plan_is_reported_once() {
    let stage = Stage::serving(fleet_spec(1, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.settle().await;
    drop(stage.told().await);
    let tasks = stage.fleet()["status"]["plan"]["tasks"].clone();
    let looked_at = async |id: &Value| {
        stage.annotate("windlass.dev/skip", id.as_str().unwrap());
        stage.look_at_fleet().await.unwrap();
        stage.look_at_fleet().await.unwrap();
        stage.told().await
    };
    let told = looked_at(&tasks[1]["id"]).await;
    assert!(told.len() == 1 && told[0].0 == "SkipRefused", "{told:?}");
    assert!(told[0].1.contains("its plan is Complete"), "{told:?}");
    let mut skipped = tasks.clone();
    skipped[2]["state"] = json!("Skipped");
    stage.change_fleet(&json!({"status": {"plan": {"tasks": skipped}}}));
    assert!(looked_at(&tasks[2]["id"]).await.is_empty(), "it was skipped");
}

#[tokio::test(start_paused = true)]
async fn scale_to_zero_ends_the_rollout_and_deleted_fleet_starts_none() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.begin().await;
    stage.change_fleet(&json!({"spec": {"replicas": 0}}));
    stage.settle().await;
    assert_eq!(outcomes(&stage), [("Superseded".to_owned(), "ScaledToZero".to_owned())]);
    assert_eq!(stage.names(Kind::StatefulNode), [""; 0]);
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.change_fleet(&json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}));
    stage.settle().await;
    assert_eq!(stage.fleet()["status"]["phase"], "Terminating");
    assert_eq!((stage.granted("v2").len(), stage.names(Kind::ControllerRevision).len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn rollout_progress_is_written_at_most_once_a_second() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    stage.change_fleet(&to_v2());
    stage.look_at_fleet().await.unwrap();
    stage.look_at_fleet().await.unwrap();
    stage.calls();
    stage.node_follows("db-2");
    let next = stage.look_at_fleet().await.unwrap();
    let writes = |calls: Vec<String>| calls.iter().filter(|c| c.ends_with("/status")).count();
    assert_eq!(writes(stage.calls()), 0, "it was written in this second");
    assert!(next.delay("shop/db") <= Duration::from_secs(1), "{next:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.look_at_fleet().await.unwrap();
    assert_eq!(writes(stage.calls()), 1);
}

#[tokio::test(start_paused = true)]
async fn conflicting_foreign_revision_is_reported_and_left_untouched() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    let wanted = async |stage: &Stage| {
        stage.fail("create ControllerRevision", busy());
        stage.change_fleet(&to_v2());
        assert!(stage.look_at_fleet().await.is_err());
        stage.mend();
        let call = stage.calls().into_iter().find(|c| c.starts_with("create ControllerRevision")).unwrap();
        call.rsplit_once(' ').unwrap().1.to_owned()
    };
    let name = wanted(&stage).await;
    let foreign =
        json!({"metadata": {"name": name, "namespace": "shop", "uid": "x", "resourceVersion": "1"}});
    let key = ("ControllerRevision", name.clone());
    stage.port.kept.lock().unwrap().objects.insert(key.clone(), foreign.clone());
    let said = || condition(&stage.fleet(), "UpToDate").2;
    let sentence =
        format!("template: ControllerRevision {name} exists and has no ownerReference to this fleet");
    stage.look_at_fleet().await.unwrap();
    assert!(said().starts_with(&sentence), "{}", said());
    stage.calls();
    stage.look_at_fleet().await.unwrap();
    assert!(!stage.calls().iter().any(|c| c.contains("ControllerRevision")), "it is not asked at every look");
    assert!(said().starts_with(&sentence));
    assert_eq!(stage.get(Kind::ControllerRevision, &name), foreign);
    stage.port.kept.lock().unwrap().objects.remove(&key);
    stage.pass(60).await;
    stage.settle().await;
    assert_eq!(stage.granted("v2").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn deleted_current_revision_is_recreated_from_nodes() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    let current = stage.fleet()["status"]["currentRevision"].as_str().unwrap().to_owned();
    let before = stage.get(Kind::ControllerRevision, &current);
    stage.change_fleet(&to_v2());
    stage.begin().await;
    stage.remove(Kind::ControllerRevision, &current);
    stage.look_at_fleet().await.unwrap();
    let after = stage.get(Kind::ControllerRevision, &current);
    assert_eq!(after["data"], before["data"]);
    assert_eq!(after["revision"], 1, "before the one that is rolled out, which is 2");
    assert_eq!(stage.names(Kind::ControllerRevision).len(), 2);
    stage.settle().await;
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
}

#[tokio::test(start_paused = true)]
async fn sidecar_address_and_token_apply_at_once() {
    let mut spec = fleet_spec(2, "v1");
    spec["template"]["spec"]["sidecar"] = json!({"image": "w:1", "url": "http://a", "tokenSecret": "one"});
    let stage = Stage::serving(spec).await;
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"sidecar": {"url": "http://b"}}}}}));
    stage.settle().await;
    let sidecar = || {
        let node = stage.get(Kind::StatefulNode, "db-1");
        (node["spec"]["sidecar"]["url"].clone(), node["spec"]["sidecar"]["tokenSecret"].clone())
    };
    assert_eq!(sidecar(), (json!("http://b"), json!("one")));
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"sidecar": {"tokenSecret": "two"}}}}}));
    stage.settle().await;
    assert_eq!(sidecar(), (json!("http://b"), json!("two")));
    assert_eq!(outcomes(&stage), [], "that is no rollout");
    stage.calls();
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn removed_node_labels_and_owner_are_restored() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    let before = stage.get(Kind::StatefulNode, "db-1")["metadata"].clone();
    let labels =
        json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me", "windlass.dev/set": null}}});
    stage.change(Kind::StatefulNode, "db-1", &labels);
    stage.settle().await;
    assert_eq!(stage.get(Kind::StatefulNode, "db-1")["metadata"]["labels"], before["labels"]);
    // The API server stores no empty list of owners.
    stage.change_fleet(&json!({"spec": {"deletionPolicy": "Retain"}}));
    stage.settle().await;
    stage.change(Kind::StatefulNode, "db-1", &json!({"metadata": {"ownerReferences": null}}));
    stage.change_fleet(&json!({"spec": {"deletionPolicy": "Delete"}}));
    stage.settle().await;
    assert_eq!(
        stage.get(Kind::StatefulNode, "db-1")["metadata"]["ownerReferences"],
        before["ownerReferences"]
    );
}

#[tokio::test(start_paused = true)]
async fn node_patch_error_other_than_conflict_is_returned() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.fail("patch StatefulNode db-1", busy());
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"progressDeadlineSeconds": 60}}}}));
    assert!(stage.look_at_fleet().await.is_err_and(|e| !e.is_conflict()));
}

#[tokio::test(start_paused = true)]
async fn fleet_being_deleted_creates_no_service_or_nodes() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    stage.remove(Kind::StatefulNode, "db-1");
    stage.change_fleet(&json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {"service": {"ports": [{"port": 80}]}}}));
    stage.settle().await;
    assert_eq!(
        (stage.names(Kind::Service), stage.names(Kind::StatefulNode)),
        (vec![], vec!["db-0".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn claim_change_before_first_completion_is_an_invalid_spec() {
    let mut spec = fleet_spec(2, "v1");
    spec["updateStrategy"] = json!({"type": "BlueGreen"});
    let stage = Stage::new();
    stage.put(Kind::NodeDeployment, "db", json!({"spec": spec}));
    stage.look_at_fleet().await.unwrap();
    let claims = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    stage.change_fleet(
        &json!({"spec": {"template": {"spec": {"image": "db:v2", "volumeClaimTemplates": claims}}}}),
    );
    stage.look_at_fleet().await.unwrap();
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "InvalidSpec");
    assert!(stage.fleet()["status"]["plan"].is_null());
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"volumeClaimTemplates": null}}}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.fleet()["status"]["plan"]["recipe"], "InPlace");
}

#[tokio::test(start_paused = true)]
async fn service_error_does_not_delay_the_plan() {
    let mut spec = fleet_spec(2, "v1");
    spec["service"] = json!({"ports": [{"port": 80}]});
    let stage = Stage::serving(spec).await;
    stage.fail("patch Service", busy());
    stage.change_fleet(&json!({"spec": {
        "template": {"spec": {"image": "db:v2"}},
        "service": {"ports": [{"port": 81}]},
        "updateStrategy": {"hooks": [{"name": "rest", "at": "BeforeRollout", "wait": {"seconds": 20}}]},
    }}));
    let mut last = stage.look_at_fleet().await;
    for _ in 0..5 {
        stage.pass(1).await;
        last = stage.look_at_fleet().await;
    }
    assert_eq!(stage.fleet()["status"]["plan"]["tasks"][0]["state"], "Running");
    let error = last.unwrap_err();
    assert_eq!(error.step(), "children");
    assert!(error.next().is_some_and(|next| next < Duration::from_secs(20)), "{:?}", error.next());
}
