//! Reconciles of a fleet whose rollouts make a set of nodes.

use super::fleet::fleet_spec;
use super::*;

fn blue_green(blue_green: &Value) -> Value {
    let mut spec = fleet_spec(2, "v1");
    spec["updateStrategy"] = json!({"type": "BlueGreen", "blueGreen": blue_green});
    spec["service"] = json!({"ports": [{"port": 80}]});
    spec
}

fn to_v2() -> Value {
    json!({"spec": {"template": {"spec": {"image": "db:v2"}}}})
}

impl Stage {
    fn stage(&self) -> String {
        self.fleet()["status"]["rollout"]["stage"].as_str().unwrap_or_default().to_owned()
    }

    fn entrant(&self) -> String {
        self.fleet()["status"]["rollout"]["entrantSet"].as_str().unwrap_or_default().to_owned()
    }

    fn sets(&self) -> Vec<String> {
        let mut sets: Vec<String> = self
            .names(Kind::StatefulNode)
            .iter()
            .map(|n| {
                self.get(Kind::StatefulNode, n)["metadata"]["labels"]["windlass.dev/set"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        sets.dedup();
        sets.sort();
        sets
    }

    /// Reconciles until the rollout is in a stage, while its nodes follow.
    async fn until(&self, stage: &str) {
        for _ in 0..30 {
            if self.stage() == stage {
                return;
            }
            self.look_at_fleet().await.unwrap();
            self.pass(2).await;
            self.nodes_follow();
        }
        panic!("{stage} is never reached: {:#}", self.fleet()["status"]);
    }

    /// The name belongs to a Service without our labels from now on, which no watch shows.
    fn somebody_takes_the_service(&self) {
        self.remove(Kind::Service, "db");
        let foreign =
            json!({"metadata": {"name": "db", "namespace": "shop", "uid": "x", "resourceVersion": "1"}});
        self.port.kept.lock().unwrap().objects.insert(("Service", "db".to_owned()), foreign);
    }

    fn outcomes(&self) -> Vec<String> {
        let history = self.fleet()["status"]["history"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        history.iter().map(|h| format!("{} {}", text(&h["outcome"]), text(&h["reason"]))).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn new_set_takes_over_and_the_old_one_is_removed_after_a_delay() {
    let stage = Stage::serving(blue_green(&json!({"retireDelaySeconds": 100}))).await;
    stage.change_fleet(&to_v2());
    stage.look_at_fleet().await.unwrap();
    let fleet = stage.fleet();
    let hash = fleet["status"]["requestedRolloutHash"].as_str().unwrap();
    assert_eq!((stage.stage().as_str(), stage.entrant().as_str()), ("CreatingEntrants", &hash[3..8]));
    assert_eq!(stage.sets(), ["first"]);
    stage.until("Retiring").await;
    let fleet = stage.fleet();
    let set = fleet["status"]["activeSet"].as_str().unwrap().to_owned();
    assert_eq!(stage.get(Kind::Service, "db")["spec"]["selector"]["windlass.dev/set"], set);
    assert_eq!(fleet["status"]["lastCompletedRolloutHash"], hash);
    assert_eq!(fleet["status"]["retiring"][0]["set"], "first");
    let told = stage.told().await;
    let promoted = told.iter().find(|(reason, _)| reason == "Promoted").unwrap();
    assert!(
        promoted.1.starts_with(&format!("set {set} is active at "))
            && promoted.1.ends_with("replaces set first")
    );
    assert_eq!(stage.sets().len(), 2, "they live on");
    let next = seconds(stage.look_at_fleet().await.unwrap()).unwrap();
    assert!((80..=100).contains(&next), "it is looked at again when they go: {next}");
    stage.pass(i64::try_from(next).unwrap() + 1).await;
    stage.settle().await;
    assert_eq!(stage.sets(), [set]);
    assert_eq!(stage.outcomes(), ["Complete "]);
    assert!(stage.fleet()["status"]["retiring"].is_null() && stage.fleet()["status"]["rollout"].is_null());
    assert!(stage.reasons().await.contains(&"RolloutComplete".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn set_retires_with_its_pods_and_ignores_orphaned_pods() {
    let stage = Stage::serving(blue_green(&json!({"retireDelaySeconds": 1}))).await;
    let labels =
        json!({"windlass.dev/deployment": "db", "windlass.dev/node": "db-1", "windlass.dev/set": "first"});
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db-1", "uid": "gone", "controller": true}]);
    let pod = |owners: &Value| json!({"metadata": {"labels": labels.clone(), "ownerReferences": owners}});
    stage.put(Kind::Pod, "db-1-0", pod(&owner));
    stage.change_fleet(&to_v2());
    stage.until("Retiring").await;
    stage.pass(10).await;
    stage.settle().await;
    assert_eq!(stage.fleet()["status"]["retiring"][0]["set"], "first");
    stage.remove(Kind::Pod, "db-1-0");
    stage.put(Kind::Pod, "db-1-0", pod(&json!([])));
    stage.settle().await;
    assert_eq!(stage.fleet()["status"]["retiring"], Value::Null);
    assert_eq!(condition(&stage.fleet(), "Reconciling").0, "False");
}

#[tokio::test(start_paused = true)]
async fn manual_promotion_by_hash_is_used_only_once() {
    let stage = Stage::serving(blue_green(&json!({"promotion": "Manual", "retireDelaySeconds": 0}))).await;
    stage.change_fleet(&to_v2());
    stage.until("AwaitingPromotion").await;
    stage.look_at_fleet().await.unwrap();
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "ReadyToPromote");
    stage.pass(10_000).await;
    stage.look_at_fleet().await.unwrap();
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "ReadyToPromote", "a person has all the time");
    let hash = stage.fleet()["status"]["requestedRolloutHash"].as_str().unwrap().to_owned();
    stage.change_fleet(&json!({"spec": {"forcePromote": hash}}));
    stage.until("Promoting").await;
    assert_eq!(stage.fleet()["status"]["spentForcePromote"], hash);
    stage.settle().await;
    assert_eq!(stage.fleet()["status"]["lastCompletedRolloutHash"], hash);
    assert_eq!(stage.fleet()["status"]["spentForcePromote"], hash);
    stage.change_fleet(&json!({"spec": {"forcePromote": ""}}));
    stage.settle().await;
    assert!(
        stage.fleet()["status"]["spentForcePromote"].is_null(),
        "what is not asked any more is forgotten"
    );
}

#[tokio::test(start_paused = true)]
async fn restoring_the_completed_spec_ends_the_rollout_and_its_set() {
    let stage = Stage::serving(blue_green(&json!({"promotion": "Manual"}))).await;
    stage.change_fleet(&to_v2());
    stage.until("AwaitingPromotion").await;
    let plan = stage.fleet()["status"]["plan"]["id"].clone();
    drop(stage.told().await);
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v1"}}}}));
    stage.settle().await;
    assert_eq!(stage.outcomes(), ["Superseded BackToCompleted"]);
    assert_eq!(stage.fleet()["status"]["history"][0]["planID"], plan);
    assert_eq!(stage.sets(), ["first"]);
    let told = stage.told().await;
    let said = told.iter().find(|(reason, _)| reason == "RolloutSuperseded").unwrap();
    assert!(said.1.contains("is the desired revision again"), "{told:?}");
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "Applied");
}

#[tokio::test(start_paused = true)]
async fn new_target_before_promotion_creates_a_new_set() {
    let stage = Stage::serving(blue_green(&json!({"promotion": "Manual"}))).await;
    stage.change_fleet(&to_v2());
    stage.until("AwaitingPromotion").await;
    let first = stage.entrant();
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v3"}}}}));
    stage.look_at_fleet().await.unwrap();
    let second = stage.entrant();
    assert_ne!(first, second);
    assert_eq!(stage.outcomes(), ["Superseded NewTarget"]);
    assert_eq!(stage.fleet()["status"]["retiring"][0]["set"], first);
    assert_eq!(stage.fleet()["status"]["retiring"][0]["unpromoted"], true);
    stage.until("AwaitingPromotion").await;
    stage.settle().await;
    let mut left = vec!["first".to_owned(), second];
    left.sort();
    assert_eq!(stage.sets(), left);
}

#[tokio::test(start_paused = true)]
async fn abort_or_stall_rollback_removes_the_entrant_nodes() {
    let stage = Stage::serving(blue_green(&json!({"promotion": "Manual"}))).await;
    stage.change_fleet(&to_v2());
    stage.until("AwaitingPromotion").await;
    let plan = stage.fleet()["status"]["plan"]["id"].as_str().unwrap().to_owned();
    stage.annotate("windlass.dev/abort", &plan);
    stage.settle().await;
    assert_eq!(
        (stage.sets(), stage.outcomes()),
        (vec!["first".to_owned()], vec!["Aborted AbortRequested".to_owned()])
    );
    let mut spec = blue_green(&json!({}));
    spec["updateStrategy"]["onStall"] = json!("Rollback");
    spec["updateStrategy"]["progressDeadlineSeconds"] = json!(60);
    let stage = Stage::serving(spec).await;
    stage.change_fleet(&to_v2());
    for _ in 0..5 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(2).await;
    }
    stage.node_fails(&format!("db-{}-0", stage.entrant()));
    drop(stage.told().await);
    stage.pass(70).await;
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.outcomes(), ["RolledBack Stalled"]);
    let told = stage.told().await;
    assert!(told.iter().any(|(reason, _)| reason == "RolledBack"), "{told:?}");
    stage.settle().await;
    assert_eq!(stage.sets(), ["first"]);
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "RolledBack");
}

#[tokio::test(start_paused = true)]
async fn changes_during_promotion_are_deferred_and_abort_is_refused() {
    let stage = Stage::serving(blue_green(&json!({"retireDelaySeconds": 0}))).await;
    stage.change_fleet(&to_v2());
    stage.until("Promoting").await;
    let target = stage.fleet()["status"]["rollout"]["targetHash"].clone();
    let plan = stage.fleet()["status"]["plan"]["id"].as_str().unwrap().to_owned();
    drop(stage.told().await);
    stage.change_fleet(&json!({"spec": {"paused": true}}));
    stage.annotate("windlass.dev/abort", &plan);
    stage.look_at_fleet().await.unwrap();
    stage.look_at_fleet().await.unwrap();
    let told = stage.told().await;
    assert!(
        told.len() == 1 && told[0].1.contains("is not aborted, because a promotion cannot be reverted"),
        "{told:?}"
    );
    stage.change_fleet(&json!({"spec": {"paused": false, "template": {"spec": {"image": "db:v3"}}}}));
    stage.until("Retiring").await;
    assert_eq!(stage.fleet()["status"]["lastCompletedRolloutHash"], target);
    stage.settle().await;
    assert_ne!(stage.fleet()["status"]["lastCompletedRolloutHash"], target, "then it follows");
}

#[tokio::test(start_paused = true)]
async fn rollout_waits_for_a_set_name_and_lists_are_throttled() {
    let stage = Stage::serving(blue_green(&json!({}))).await;
    stage.fail("names Pod", busy());
    stage.change_fleet(&to_v2());
    let next = stage.look_at_fleet().await.unwrap();
    assert!(seconds(next).is_some_and(|s| s <= 30), "{next:?}");
    assert_ne!(condition(&stage.fleet(), "UpToDate").1, "InvalidSpec", "it may pass in a moment");
    assert!(stage.fleet()["status"]["rollout"].is_null());
    let lists = || stage.calls().iter().filter(|c| c.starts_with("names")).count();
    assert!(lists() > 0);
    stage.look_at_fleet().await.unwrap();
    assert_eq!(lists(), 0, "not so soon");
    for _ in 0..6 {
        stage.pass(5).await;
        stage.look_at_fleet().await.unwrap();
    }
    let (_, reason, message) = condition(&stage.fleet(), "UpToDate");
    assert!(reason == "InvalidSpec" && message.contains("listing every Pod failed"), "{message}");
    stage.mend();
    lists();
    stage.pass(25).await;
    stage.look_at_fleet().await.unwrap();
    assert_eq!((lists(), stage.stage().as_str()), (5, "CreatingEntrants"));
}

#[tokio::test(start_paused = true)]
async fn immediate_promotion_deletes_old_nodes_and_recreates_none() {
    let stage = Stage::serving(blue_green(&json!({"promotion": "Immediately"}))).await;
    stage.change_fleet(&to_v2());
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.stage(), "Promoting");
    stage.look_at_fleet().await.unwrap();
    stage.nodes_follow();
    stage.look_at_fleet().await.unwrap();
    assert!(!stage.sets().contains(&"first".to_owned()), "{:?}", stage.sets());
    stage.settle().await;
    assert_eq!(stage.sets().len(), 1);
    assert_ne!(stage.sets(), ["first"]);
    assert_eq!(stage.outcomes(), ["Complete "]);
}

#[tokio::test(start_paused = true)]
async fn retiring_set_is_kept_while_the_fleet_is_paused() {
    let stage = Stage::serving(blue_green(&json!({"retireDelaySeconds": 30}))).await;
    stage.change_fleet(&to_v2());
    stage.until("Retiring").await;
    stage.change_fleet(&json!({"spec": {"paused": true}}));
    stage.pass(100).await;
    for _ in 0..3 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(2).await;
    }
    assert_eq!(stage.sets().len(), 2);
    stage.change_fleet(&json!({"spec": {"paused": false}}));
    stage.settle().await;
    assert_eq!(stage.sets().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn new_target_during_retirement_completes_the_current_rollout() {
    let stage = Stage::serving(blue_green(&json!({"retireDelaySeconds": 1000}))).await;
    stage.change_fleet(&to_v2());
    stage.until("Retiring").await;
    drop(stage.told().await);
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v3"}}}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.outcomes(), ["Complete "]);
    let reasons = stage.reasons().await;
    assert_eq!(reasons, ["RolloutComplete", "RolloutStarted"]);
    assert_eq!(stage.stage(), "CreatingEntrants");
    // The earlier set exists until its retirement, and is reused if its target is desired again.
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v1"}}}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.entrant(), "first");
}

#[tokio::test(start_paused = true)]
async fn promotion_is_reverted_only_after_service_ownership_is_known() {
    let mut spec = blue_green(&json!({"retireDelaySeconds": 5}));
    spec["updateStrategy"]["hooks"] = json!([{"name": "look", "at": "AfterPromotion", "approval": {}}]);
    let stage = Stage::serving(spec).await;
    stage.change_fleet(&to_v2());
    stage.settle().await;
    let set = stage.entrant();
    let selected = || stage.get(Kind::Service, "db")["spec"]["selector"]["windlass.dev/set"].clone();
    assert_eq!((stage.stage().as_str(), selected()), ("Promoting", json!(set)));
    stage.somebody_takes_the_service();
    let plan = stage.fleet()["status"]["plan"]["id"].clone();
    stage.annotate("windlass.dev/abort", plan.as_str().unwrap());
    for second in [0, 20, 40, 60] {
        stage.look_at_fleet().await.unwrap();
        let fleet = stage.fleet();
        assert_eq!(fleet["status"]["plan"]["state"], "Active", "after {second} s: its nodes may serve");
        let (_, reason, message) = condition(&fleet, "UpToDate");
        assert!(reason == "InvalidSpec" && message.contains("Service db"), "after {second} s: {message}");
        stage.pass(20).await;
        stage.nodes_follow();
    }
    stage.port.kept.lock().unwrap().objects.remove(&("Service", "db".to_owned()));
    stage.pass(20).await;
    let next = stage.look_at_fleet().await.unwrap();
    assert_eq!(selected(), json!(set), "it is made again where it was");
    assert_eq!(seconds(next), Some(1), "traffic can go back now");
    stage.settle().await;
    assert_eq!((selected(), stage.outcomes()), (json!("first"), vec!["Aborted AbortRequested".to_owned()]));
    stage.pass(10).await;
    stage.settle().await;
    assert_eq!(stage.sets(), ["first"]);
}

#[tokio::test(start_paused = true)]
async fn failed_promotion_revert_does_not_block_other_changes() {
    let object = || "Service shop/db".to_owned();
    let message = || "the month is frozen".to_owned();
    let refused = ClusterError::Refused { object: object(), message: message() };
    let forbidden = ClusterError::Forbidden { object: object(), message: message() };
    for error in [refused, forbidden] {
        let mut spec = blue_green(&json!({"retireDelaySeconds": 5}));
        spec["updateStrategy"]["hooks"] = json!([{"name": "look", "at": "AfterPromotion", "approval": {}}]);
        let stage = Stage::serving(spec).await;
        stage.change_fleet(&to_v2());
        stage.settle().await;
        let lost = format!("db-{}-0", stage.entrant());
        assert_eq!(stage.stage(), "Promoting");
        let plan = stage.fleet()["status"]["plan"]["id"].clone();
        stage.annotate("windlass.dev/abort", plan.as_str().unwrap());
        stage.fail("patch Service db", error.clone());
        stage.remove(Kind::StatefulNode, &lost);
        for _ in 0..3 {
            let looked = stage.look_at_fleet().await;
            let next = looked.as_ref().map_or_else(ReconcileError::next, |next| next.asked());
            assert!(next.is_none_or(|next| next >= Duration::from_secs(5)), "{error}: {next:?}");
            stage.pass(2).await;
            stage.nodes_follow();
        }
        assert!(stage.names(Kind::StatefulNode).contains(&lost), "{error}");
        let fleet = stage.fleet();
        assert_eq!((&fleet["status"]["plan"]["state"], stage.outcomes()), (&json!("Active"), vec![]));
        if error.refusal().is_some() {
            let (_, reason, message) = condition(&fleet, "UpToDate");
            assert_eq!(reason, "InvalidSpec");
            assert_eq!(message, "service: the API server rejects it: the month is frozen");
        }
        stage.mend();
        stage.pass(30).await;
        stage.settle().await;
        assert_eq!(stage.outcomes(), ["Aborted AbortRequested"]);
    }
}

#[tokio::test(start_paused = true)]
async fn aborted_rollout_is_not_promoted_before_its_plan_ends() {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "tidy:1"}]});
    let mut spec = blue_green(&json!({"promotion": "Immediately"}));
    spec["updateStrategy"]["hooks"] =
        json!([{"name": "tidy", "at": "AfterRollout", "job": {"template": {"template": {"spec": pod}}}}]);
    let stage = Stage::serving(spec).await;
    stage.somebody_takes_the_service();
    stage.change_fleet(&to_v2());
    for _ in 0..5 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(2).await;
    }
    let plan = stage.fleet()["status"]["plan"].clone();
    assert_eq!((stage.stage().as_str(), &plan["state"]), ("CreatingEntrants", &json!("Active")), "{plan:#}");
    stage.annotate("windlass.dev/abort", plan["id"].as_str().unwrap());
    stage.fail("get Job", busy());
    stage.port.kept.lock().unwrap().objects.remove(&("Service", "db".to_owned()));
    stage.pass(60).await;
    for _ in 0..3 {
        assert!(stage.look_at_fleet().await.is_err());
        stage.pass(2).await;
        assert_eq!(stage.stage(), "CreatingEntrants", "the abort came first");
    }
    assert!(!stage.get(Kind::Service, "db").is_null(), "it is made meanwhile");
    stage.mend();
    stage.settle().await;
    assert_eq!(stage.outcomes(), ["Aborted AbortRequested"]);
    assert_eq!(stage.sets(), ["first"]);
}

fn hard_fork() -> Value {
    let mut spec = fleet_spec(2, "v1");
    spec["template"]["spec"]["sidecar"] = json!({"image": "w:1"});
    spec["updateStrategy"] = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}});
    spec
}

#[tokio::test(start_paused = true)]
async fn hard_fork_halts_only_the_old_nodes_at_the_height() {
    let stage = Stage::serving(hard_fork()).await;
    let heights = || {
        let of = |name: &String| {
            stage.get(Kind::StatefulNode, name)["spec"]["haltHeight"].as_i64().unwrap_or_default()
        };
        stage.names(Kind::StatefulNode).iter().map(of).collect::<Vec<_>>()
    };
    // A halt height that a person wrote is removed from a node that is to serve.
    stage.change(Kind::StatefulNode, "db-0", &json!({"spec": {"haltHeight": 7, "haltTaskID": "x"}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(heights(), [0, 0]);
    assert_eq!(stage.get(Kind::StatefulNode, "db-0")["spec"]["haltTaskID"], "");
    stage.settle().await;
    stage.change_fleet(&to_v2());
    stage.until("Promoting").await;
    assert_eq!(stage.fleet()["status"]["rollout"]["haltHeight"], 1000);
    for _ in 0..3 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(2).await;
    }
    // In this order: db-0, the two entrants, db-1.
    assert_eq!(heights(), [1000, 0, 0, 1000], "{:?}", stage.names(Kind::StatefulNode));
    // The entrants are to serve.
    let entrant = stage.names(Kind::StatefulNode)[1].clone();
    stage.change(Kind::StatefulNode, &entrant, &json!({"spec": {"haltHeight": 7}}));
    stage.look_at_fleet().await.unwrap();
    assert_eq!(heights(), [1000, 0, 0, 1000]);
    stage.until("Retiring").await;
    stage.pass(60).await;
    stage.settle().await;
    assert_eq!((stage.sets().len(), heights()), (1, vec![0, 0]));
    assert_eq!(stage.outcomes(), ["Complete "]);
}

#[tokio::test(start_paused = true)]
async fn hard_fork_without_halt_height_is_not_promoted() {
    let stage = Stage::serving(hard_fork()).await;
    stage.change_fleet(&to_v2());
    stage.until("CreatingEntrants").await;
    stage.change_fleet(&json!({"spec": {"updateStrategy": {"hardFork": {"haltHeight": 0}}}}));
    for _ in 0..8 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(2).await;
        stage.nodes_follow();
    }
    assert_ne!(stage.stage(), "Promoting");
    assert_eq!(condition(&stage.fleet(), "UpToDate").1, "InvalidSpec");
    stage.change_fleet(&json!({"spec": {"updateStrategy": {"hardFork": {"haltHeight": 1}}}}));
    stage.until("Promoting").await;
    assert_eq!(stage.fleet()["status"]["rollout"]["haltHeight"], 1);
}
