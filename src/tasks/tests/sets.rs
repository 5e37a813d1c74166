//! Tests the tasks of a rollout that creates a set: nothing that cannot be undone happens before the status records
//! that it will, only nodes that run are promoted, and no claim is deleted for a set that was never promoted.

use std::sync::Mutex;

use super::super::{
    AwaitCaughtUp, AwaitNodesAtHeight, AwaitNodesRunning, AwaitPromotion, CreateEntrants, FleetScope,
    RetireIncumbents, SubmitHalt, SwitchTraffic,
};
use super::*;
use crate::api::{NodeDeploymentSpec, RolloutHash};
use crate::apply::fleet_objects::{last_taken_service, taken_service};
use crate::clock::monotonic;
use crate::cluster::observed::{Observed, ObservedFleet};
use crate::cluster::{Part, Selector};
use crate::planner::fleet::Blocker;
use crate::planner::fleet::RolloutTarget;
use crate::planner::node::decide::leaving;
use crate::revision::RevisionData;

const FLEET: (&str, &str, &str) = ("NodeDeployment", "db", "fleet-uid");

fn revision_of(version: &str) -> RolloutHash {
    let spec: StatefulNodeSpec = serde_json::from_value(spec_json(version)).unwrap();
    revision::rollout_hash(&spec, "")
}

/// A node of a set that serves a version.
fn serving(name: &str, version: &str) -> Value {
    let mut node = Node::serving(version).object;
    node["metadata"] = meta(name, &format!("uid of {name}"), 5, Some(FLEET));
    node["status"]["firstReadyAt"] = json!("2030-01-01T00:00:00Z");
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "NodeReady", "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
    node
}

/// A fleet with one node that serves v1, and one node of the set `new` that is to serve v2.
pub(super) struct Amid {
    strategy: &'static str,
    stage: &'static str,
    spec: Value,
    nodes: Vec<Value>,
}

pub(super) fn amid(strategy: &'static str, stage: &'static str) -> Amid {
    Amid { strategy, stage, spec: json!({}), nodes: vec![serving("db-0", "v1"), serving("db-new-0", "v2")] }
}

/// Stores a plan of this recipe in the fleet's status.
fn has_plan(scope: &mut FleetScope, recipe: &str) {
    let plan = crate::api::RawPlan(json!({"recipe": recipe}).into());
    Arc::make_mut(&mut scope.fleet).status.plan = Some(plan);
}

impl Amid {
    fn with(self, spec: Value) -> Self {
        Self { spec, ..self }
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.nodes.retain(|n| n["metadata"]["name"] != name);
        self
    }

    fn changed(mut self, name: &str, pointer: &str, value: Value) -> Self {
        let node = self.nodes.iter_mut().find(|n| n["metadata"]["name"] == name).unwrap();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        node.pointer_mut(parent).unwrap()[field] = value;
        self
    }

    pub(super) fn scope(&self, mut cluster: MockCluster, view: &Arc<View>) -> FleetScope {
        pods_are_as_said(view, &mut cluster, &self.nodes);
        let mut spec = json!({
            "replicas": 1, "template": {"spec": spec_json("v2")},
            "updateStrategy": {"type": self.strategy, "hardFork": {"haltHeight": 1000}},
            "service": {"ports": [{"port": 80}]},
        });
        for (key, value) in self.spec.as_object().unwrap() {
            spec[key] = value.clone();
        }
        for node in &self.nodes {
            view.observe(Kind::StatefulNode, node);
        }
        for (number, version) in ["v1", "v2"].into_iter().enumerate() {
            let kept: StatefulNodeSpec = serde_json::from_value(spec_json(version)).unwrap();
            let data = RevisionData::of(&kept).to_value();
            let metadata = meta(&format!("db-{version}"), version, 3, Some(FLEET));
            view.observe(
                Kind::ControllerRevision,
                &json!({"metadata": metadata, "revision": number, "data": data}),
            );
        }
        let service = json!({"metadata": meta("db", "service-uid", 4, Some(FLEET)),
            "spec": {"selector": {"windlass.dev/deployment": "db", "windlass.dev/set": "first"}}});
        view.observe(Kind::Service, &service);
        let observed = ObservedFleet::read(&json!({
            "metadata": meta("db", "fleet-uid", 8, None), "spec": spec,
            "status": {
                "lastCompletedRolloutHash": revision_of("v1"), "requestedRolloutHash": revision_of("v2"),
                "activeSet": "first",
                "rollout": {
                    "strategy": self.strategy, "stage": self.stage, "targetHash": revision_of("v2"),
                    "incumbentSet": "first", "entrantSet": "new", "haltHeight": if self.stage == "Promoting" { 1000 } else { 0 },
                    "startedAt": "2030-01-01T00:00:00Z", "lastProgressAt": "2030-01-01T00:00:00Z",
                },
            },
        }));
        let spec: NodeDeploymentSpec = serde_json::from_value(spec).unwrap();
        FleetScope {
            restarted_at: None,
            fleet: Arc::new(observed),
            spec: Arc::new(spec),
            view: view.clone(),
            cluster: Arc::new(cluster),
            caches: Arc::default(),
            sightings: Arc::default(),
            options: Arc::new(RenderOptions::default()),
            rollout_target: RolloutTarget::Revision(revision_of("v2")),
            blocker: None,
            cache: Arc::default(),
            recorder: windlass_kube_port::EventBuffer::default(),
            now: now(),
        }
    }

    async fn run(&self, cluster: MockCluster, task: &dyn Task) -> String {
        let scope = self.scope(cluster, &View::shared());
        said(&run_in(&Env::new().with(scope), &plan(self.strategy), task).await)
    }

    /// Runs a task that must not write anything.
    async fn without_a_write(&self, task: &dyn Task) -> String {
        self.run(MockCluster::new(), task).await
    }
}

/// The fleet's Service once it selects the new set, changed by Windlass or by a person.
fn turned(by_us: bool) -> Value {
    let mut service = json!({"metadata": meta("db", "service-uid", 9, Some(FLEET)),
        "spec": {"selector": {"windlass.dev/deployment": "db", "windlass.dev/set": "new"}}});
    if by_us {
        service["metadata"]["annotations"]["windlass.dev/switched-to"] = json!("new");
    }
    service
}

#[tokio::test]
async fn a_service_that_a_hand_has_turned_is_no_switch() {
    for (by_us, said_so) in [(true, "done"), (false, "waiting for db-new-0 to be ready")] {
        let view = View::shared();
        let amid = not_ready(amid("BlueGreen", "Promoting"), "db-new-0");
        let scope = amid.changed("db-new-0", "/status/podRuns", json!(true)).scope(MockCluster::new(), &view);
        view.observe(Kind::Service, &turned(by_us));
        let env = Env::new().with(scope);
        assert_eq!(said(&run_in(&env, &plan("BlueGreen"), &SwitchTraffic {}).await), said_so);
    }
}

#[tokio::test]
async fn a_target_that_is_gone_while_it_is_promoted_is_to_be_set_again_and_no_other() {
    for (stage, advice) in
        [("AwaitingEntrants", "change the template"), ("Promoting", "set spec.template to what it said")]
    {
        let mut scope = amid("BlueGreen", stage).scope(MockCluster::new(), &View::shared());
        let mut fleet = (*scope.fleet).clone();
        fleet.status.rollout.as_mut().unwrap().target_hash = "v1:gone".to_owned();
        scope.fleet = Arc::new(fleet);
        let failed =
            format!("{:?}", run_in(&Env::new().with(scope), &plan("BlueGreen"), &AwaitPromotion {}).await);
        assert!(failed.contains(advice), "{stage}: {failed}");
        assert_eq!(failed.contains("change the template"), stage == "AwaitingEntrants", "{failed}");
    }
}

#[tokio::test]
async fn a_set_has_other_claims_only_where_they_mean_something_else() {
    for (wanted, differ) in [("1Gi", false), ("1024Mi", false), ("2Gi", true)] {
        let mut template = spec_json("v2");
        template["volumeClaimTemplates"] = claims_of(wanted);
        let amid = amid("BlueGreen", "AwaitingEntrants").with(json!({"template": {"spec": template}}));
        let amid = amid.changed("db-new-0", "/spec/volumeClaimTemplates", claims_of("1Gi"));
        let facts = amid.scope(MockCluster::new(), &View::shared()).facts();
        assert_eq!(facts.sets["new"].claims_differ, differ, "{wanted}");
    }
}

#[tokio::test]
async fn traffic_moves_in_one_write_and_a_second_run_writes_nothing() {
    let view = View::shared();
    let shown = view.clone();
    let mut cluster = MockCluster::new();
    cluster
        .expect_patch()
        .once()
        .withf(|target, part, ops| {
            let selector = json!({"windlass.dev/deployment": "db", "windlass.dev/set": "new"});
            let written: Vec<Value> = ops.iter().map(crate::cluster::PatchOp::to_json).collect();
            let annotation = "/metadata/annotations/windlass.dev~1switched-to";
            target.kind == Kind::Service
                && *part == Part::Main
                && written.contains(&json!({"op": "add", "path": "/spec/selector", "value": selector}))
                && written.contains(&json!({"op": "add", "path": annotation, "value": "new"}))
        })
        .returning(move |_, _, _| {
            let stored = turned(true);
            shown.observe(Kind::Service, &stored);
            Ok(stored)
        });
    let scope = amid("BlueGreen", "Promoting").scope(cluster, &view);
    let env = Env::new().with(scope);
    for _ in 0..2 {
        assert_eq!(said(&run_in(&env, &plan("BlueGreen"), &SwitchTraffic {}).await), "done");
    }
}

#[tokio::test]
async fn traffic_does_not_move_before_the_status_says_that_it_will() {
    for stage in ["CreatingEntrants", "AwaitingEntrants", "AwaitingPromotion"] {
        let waits = amid("BlueGreen", stage).without_a_write(&SwitchTraffic {}).await;
        assert_eq!(waits, "waiting for the promotion to be recorded", "{stage}");
    }
}

#[tokio::test]
async fn once_traffic_has_moved_nothing_that_goes_before_it_is_left_to_do() {
    let earlier: [(&str, &dyn Task); 7] = [
        ("BlueGreen", &CreateEntrants::default()),
        ("BlueGreen", &AwaitNodesRunning {}),
        ("BlueGreen", &AwaitCaughtUp {}),
        ("BlueGreen", &AwaitPromotion {}),
        ("BlueGreen", &SwitchTraffic {}),
        ("HardFork", &SubmitHalt {}),
        ("HardFork", &AwaitNodesAtHeight {}),
    ];
    for (index, (strategy, task)) in earlier.into_iter().enumerate() {
        let unready = not_ready(amid(strategy, "Retiring"), "db-new-0").with(json!({"paused": true}));
        assert_eq!(unready.without_a_write(task).await, "done", "{index}");
    }
}

#[tokio::test]
async fn traffic_does_not_move_to_what_does_not_run() {
    let entrant = "db-new-0";
    let cases = [
        amid("BlueGreen", "Promoting").changed(entrant, "/status/podTemplateHash", json!("")),
        amid("BlueGreen", "Promoting").changed(entrant, "/status/currentImage", json!("db:v1")),
        amid("BlueGreen", "Promoting").changed(
            entrant,
            "/metadata/deletionTimestamp",
            json!("2030-01-01T00:00:00Z"),
        ),
        amid("BlueGreen", "Promoting").with(json!({"replicas": 0})),
        amid("BlueGreen", "Promoting").with(json!({"paused": true})),
    ];
    for (index, case) in cases.into_iter().enumerate() {
        let mut cluster = MockCluster::new();
        // The node may be granted its target again; the Service must not change.
        let of_node = |target: &crate::cluster::Target| target.kind == Kind::StatefulNode;
        cluster.expect_patch().withf(move |target, _, _| of_node(target)).returning(|_, _, _| Ok(json!({})));
        let waits = case.run(cluster, &SwitchTraffic {}).await;
        assert!(waits.starts_with("waiting for"), "{index}: {waits}");
    }
}

#[tokio::test]
async fn what_has_fallen_behind_again_does_not_take_over_unless_a_person_says_so() {
    let entrant = "db-new-0";
    let unready = || {
        let condition = json!([{"type": "Ready", "status": "False", "reason": "PodNotReady", "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
        let unready = amid("BlueGreen", "Promoting").changed(entrant, "/status/conditions", condition);
        unready.changed(entrant, "/status/podRuns", json!(true))
    };
    // What the node ran last is known, but its container is being recreated.
    let gone = || unready().changed(entrant, "/status/podRuns", json!(false));
    let waits =
        [(unready(), "waiting for db-new-0 to be ready"), (gone(), "waiting for db-new-0 to run the target")];
    // This is checked before the promotion is recorded, and again before traffic moves.
    for (amid, sentence) in waits {
        let earlier =
            Amid { stage: "AwaitingPromotion", spec: amid.spec.clone(), nodes: amid.nodes.clone(), ..amid };
        assert_eq!(earlier.without_a_write(&AwaitPromotion {}).await, sentence);
        assert_eq!(amid.without_a_write(&SwitchTraffic {}).await, sentence);
    }
    let forced = |amid: Amid| amid.with(json!({"forcePromote": revision_of("v2")}));
    let force = || {
        let mut cluster = MockCluster::new();
        cluster
            .expect_patch()
            .once()
            .withf(|t, _, _| t.kind == Kind::Service)
            .returning(|_, _, _| Ok(json!({})));
        cluster
    };
    assert_eq!(forced(unready()).run(force(), &SwitchTraffic {}).await, "done");
    let still = forced(gone()).without_a_write(&SwitchTraffic {}).await;
    assert_eq!(still, "waiting for db-new-0 to run the target", "force makes nothing run");
    // Once recorded, `forcePromote` is spent, and the record counts. So does a wait that a person skipped.
    for skipped in [false, true] {
        let mut scope = unready().scope(force(), &View::shared());
        let mut plan = plan("BlueGreen");
        if skipped {
            plan.tasks[0].type_ = "await-caught-up".to_owned();
            plan.tasks[0].state = crate::engine::TaskState::Skipped;
        } else {
            let mut fleet = (*scope.fleet).clone();
            fleet.status.rollout.as_mut().unwrap().forced = true;
            scope.fleet = Arc::new(fleet);
        }
        assert_eq!(
            said(&run_in(&Env::new().with(scope), &plan, &SwitchTraffic {}).await),
            "done",
            "{skipped}"
        );
    }
    // The old nodes have halted: no other set could serve during a wait.
    let fork = Amid { strategy: "HardFork", ..unready() };
    assert_eq!(fork.run(force(), &SwitchTraffic {}).await, "done");
}

#[tokio::test]
async fn nobody_is_asked_to_halt_before_the_status_says_that_it_will() {
    let uid = serving("db-0", "v1")["status"]["podUID"].clone();
    let told = |sidecar: Value, said: Value| {
        let amid = amid("HardFork", "CreatingEntrants").changed("db-0", "/spec/sidecar", sidecar);
        amid.changed("db-0", "/status/sidecar", said)
    };
    let image = || json!({"image": "w:1"});
    let said = told(image(), json!({"podUID": uid, "height": 7})).without_a_write(&SubmitHalt {}).await;
    assert_eq!(said, "waiting for the promotion to be recorded");
    let since = "waiting for db-0 (since 2030-03-17T17:46:40Z) to say a height";
    let mutes = [
        (Value::Null, json!({}), "it has no sidecar"),
        (image(), json!({"podUID": uid}), "its sidecar has said no height"),
        (image(), json!({"podUID": "the pod before", "height": 7}), "its sidecar has said no height"),
    ];
    for (sidecar, said, why) in mutes {
        let waits = told(sidecar, said).without_a_write(&SubmitHalt {}).await;
        assert!(waits.starts_with(since) && waits.contains(why), "{waits}");
    }
    let gone = amid("HardFork", "CreatingEntrants").without("db-0").without_a_write(&SubmitHalt {}).await;
    assert!(gone.starts_with("waiting for db-0 to be there again"), "{gone}");
    let mut cluster = MockCluster::new();
    cluster
        .expect_patch()
        .once()
        .withf(|target, _, ops| {
            let written: Vec<Value> = ops.iter().map(crate::cluster::PatchOp::to_json).collect();
            target.name == "db-0"
                && written[0]["path"] == "/spec/haltHeight"
                && written[0]["value"] == 1000
                && written[1]["path"] == "/spec/haltTaskID"
        })
        .returning(|_, _, _| Ok(json!({})));
    let sidecar = json!({"image": "w:1"});
    let amid = amid("HardFork", "Promoting").changed("db-0", "/spec/sidecar", sidecar);
    assert_eq!(amid.run(cluster, &SubmitHalt {}).await, "waiting for db-0 to be asked to halt");
}

fn not_ready(amid: Amid, name: &str) -> Amid {
    let condition = json!([{"type": "Ready", "status": "False", "reason": "PodNotReady", "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
    amid.changed(name, "/status/conditions", condition)
}

#[tokio::test]
async fn nobody_is_asked_to_halt_for_a_new_node_that_does_not_run_now_unless_others_were_asked_already() {
    let with_sidecar = |amid: Amid| amid.changed("db-0", "/spec/sidecar", json!({"image": "w:1"}));
    let stopped = || with_sidecar(not_ready(amid("HardFork", "Promoting"), "db-new-0"));
    assert_eq!(stopped().without_a_write(&SubmitHalt {}).await, "waiting for db-new-0 to run the target");
    let mut other = serving("db-1", "v1");
    other["spec"]["sidecar"] = json!({"image": "w:1"});
    other["spec"]["haltHeight"] = json!(1000);
    other["spec"]["haltTaskID"] = json!("task");
    let mut begun = stopped();
    begun.nodes.push(other);
    let mut cluster = MockCluster::new();
    cluster.expect_patch().once().withf(|t, _, _| t.name == "db-0").returning(|_, _, _| Ok(json!({})));
    assert_eq!(begun.run(cluster, &SubmitHalt {}).await, "waiting for db-0 to be asked to halt");
}

#[tokio::test]
async fn a_sidecar_that_cannot_be_reached_is_named_in_what_is_waited_for() {
    let ready = json!({"type": "Ready", "status": "True", "reason": "NodeReady", "lastTransitionTime": "2030-01-01T00:00:00Z"});
    let mute = json!({"type": "SidecarReady", "status": "Unknown", "reason": "Unreachable", "message": "no answer", "lastTransitionTime": "2030-01-01T00:00:00Z"});
    let with = |amid: Amid, name: &str| {
        let amid = amid.changed(name, "/spec/sidecar", json!({"image": "w:1"}));
        amid.changed(name, "/status/conditions", json!([ready, mute]))
    };
    let incumbent = with(amid("HardFork", "Promoting"), "db-0");
    let asked = incumbent.changed("db-0", "/spec/haltHeight", json!(1000));
    let asked = asked.changed("db-0", "/spec/haltTaskID", json!("task"));
    let waits = asked.without_a_write(&AwaitNodesAtHeight {}).await;
    assert!(waits.ends_with("; db-0: SidecarUnreachable: no answer"), "{waits}");
}

#[tokio::test]
async fn an_old_node_has_halted_when_its_sidecar_says_so_of_this_very_task() {
    let asked = |said: Value| {
        let spec =
            |amid: Amid, field: &str, value: Value| amid.changed("db-0", &format!("/spec/{field}"), value);
        let amid = spec(amid("HardFork", "Promoting"), "sidecar", json!({"image": "w:1"}));
        let amid = spec(spec(amid, "haltHeight", json!(1000)), "haltTaskID", json!("task"));
        amid.changed("db-0", "/status/sidecar", said)
    };
    let said = |halted: bool, task: &str, pod: &str| json!({"podUID": pod, "halted": halted, "haltTaskID": task, "height": 900});
    let await_height = &AwaitNodesAtHeight {};
    assert_eq!(asked(said(true, "task", "pod-1")).without_a_write(await_height).await, "done");
    for other in [
        said(false, "task", "pod-1"),
        said(true, "earlier", "pod-1"),
        said(true, "task", "pod-0"),
        Value::Null,
    ] {
        let waits = asked(other.clone()).without_a_write(await_height).await;
        assert!(waits.starts_with("waiting for db-0 to halt at height 1000"), "{other}: {waits}");
    }
}

#[tokio::test]
async fn a_manual_promotion_waits_for_the_whole_hash_and_an_automatic_one_for_nobody() {
    let by = |promotion: &str, force: &str| {
        amid("BlueGreen", "AwaitingPromotion").with(json!({
            "updateStrategy": {"type": "BlueGreen", "blueGreen": {"promotion": promotion}}, "forcePromote": force,
        }))
    };
    let wanted = revision_of("v2");
    for refused in ["", "v2", &wanted.as_str()[..20]] {
        let waits = by("Manual", refused).without_a_write(&AwaitPromotion {}).await;
        assert_eq!(
            waits,
            format!("waiting for a person: set spec.forcePromote to {wanted}, as windlass promote does")
        );
    }
    assert_eq!(by("Manual", wanted.as_str()).without_a_write(&AwaitPromotion {}).await, "done");
    for (field, advice) in [(wanted.as_str(), "empty spec.forcePromote"), ("", "set spec.forcePromote")] {
        let mut scope = by("Manual", field).scope(MockCluster::new(), &View::shared());
        let mut fleet = (*scope.fleet).clone();
        fleet.status.spent_force_promote = wanted.to_string();
        scope.fleet = Arc::new(fleet);
        let waits = said(&run_in(&Env::new().with(scope), &plan("BlueGreen"), &AwaitPromotion {}).await);
        assert!(waits.starts_with(&format!("waiting for a person: {advice}")), "{waits}");
    }
    assert_eq!(by("WhenReady", "").without_a_write(&AwaitPromotion {}).await, "done");
}

/// A promotion by hand does not wait for nodes to be ready: whoever obeyed would cut all traffic.
#[tokio::test]
async fn nobody_is_told_how_to_promote_nodes_that_may_not_take_over_yet() {
    let manual = |amid: Amid| {
        let strategy = json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual"}});
        amid.with(json!({"updateStrategy": strategy}))
    };
    let ready = || manual(amid("BlueGreen", "AwaitingPromotion"));
    let runs = |amid: Amid| amid.changed("db-new-0", "/status/podRuns", json!(true));
    for (amid, why) in [
        (runs(not_ready(ready(), "db-new-0")), "waiting for db-new-0 to be ready"),
        (not_ready(ready(), "db-new-0"), "waiting for db-new-0 to run the target"),
    ] {
        let waits = amid.without_a_write(&AwaitPromotion {}).await;
        assert_eq!(waits, format!("{why}; a person promotes after that"));
    }
}

#[tokio::test]
async fn a_missing_entrant_is_made_with_a_grant_and_a_name_of_its_set_and_never_while_paused() {
    let amid = || amid("BlueGreen", "CreatingEntrants").without("db-new-0");
    let paused = amid().with(json!({"paused": true})).without_a_write(&CreateEntrants::default()).await;
    assert!(paused.contains("spec.paused"), "{paused}");
    let mut cluster = MockCluster::new();
    cluster
        .expect_create()
        .once()
        .withf(|kind, node| {
            *kind == Kind::StatefulNode
                && node["metadata"]["name"] == "db-new-0"
                && node["metadata"]["labels"]["windlass.dev/set"] == "new"
                && node["spec"]["grantedHash"] == hash("v2").as_str()
                && node["spec"]["image"] == "db:v2"
        })
        .returning(|_, node| Ok(node));
    assert_eq!(
        amid().run(cluster, &CreateEntrants::default()).await,
        "waiting for new nodes to be created",
        "the cache does not show it yet"
    );
}

#[tokio::test]
async fn an_entrant_that_is_not_at_the_target_is_granted_it() {
    let edited = amid("BlueGreen", "AwaitingEntrants").changed("db-new-0", "/spec/image", json!("db:hand"));
    let mut cluster = MockCluster::new();
    cluster
        .expect_patch()
        .once()
        .withf(|target, _, ops| {
            target.name == "db-new-0" && ops[0].to_json()["value"]["grantedHash"] == hash("v2").as_str()
        })
        .returning(|_, _, _| Ok(json!({})));
    edited.run(cluster, &CreateEntrants::default()).await;
}

#[tokio::test]
async fn where_the_old_nodes_go_first_they_go_only_when_their_claims_are_not_theirs() {
    let immediate = |retention: &str| {
        let amid = amid("BlueGreen", "Promoting").without("db-new-0");
        let templates = json!([{"metadata": {"name": "data"}}]);
        let amid = amid.changed("db-0", "/spec/volumeClaimTemplates", templates);
        let amid = amid.changed("db-0", "/spec/removalID", json!("remove-2"));
        let amid = amid.changed("db-0", "/status/plan", leaving("remove-2"));
        amid.changed("db-0", "/spec/volumeClaimRetention", json!(retention))
    };
    let claim = |owned: bool| {
        let mut metadata = meta("data-db-0-0", "claim-uid", 6, None);
        metadata["labels"] = json!({"windlass.dev/node": "db-0"});
        if owned {
            metadata["ownerReferences"] =
                json!([{"kind": "StatefulNode", "name": "db-0", "uid": "uid of db-0"}]);
        }
        json!({"metadata": metadata})
    };
    // No watch shows a claim without the node's label (`shown`). `unanswered` is the version of the claim that a write
    // with an unknown outcome was based on.
    for (retention, owned, shown, unanswered, goes) in [
        ("Retain", false, true, "", true),
        ("Retain", false, true, "5", true),
        ("Retain", false, true, "6", false),
        ("Retain", false, false, "6", false),
        ("Retain", true, true, "", false),
        ("Retain", true, false, "", false),
        ("Delete", false, true, "", false),
    ] {
        let mut cluster = MockCluster::new();
        cluster
            .expect_get()
            .withf(|kind, _, name| *kind == Kind::PersistentVolumeClaim && name == "data-db-0-0")
            .returning(move |_, _, _| Ok(Some(claim(owned))));
        if goes {
            cluster.expect_delete().once().withf(|target| target.name == "db-0").returning(|_| Ok(()));
        }
        let view = View::shared();
        let mut scope = immediate(retention).scope(cluster, &view);
        has_plan(&mut scope, "BlueGreenImmediate");
        if shown {
            view.observe(Kind::PersistentVolumeClaim, &claim(owned));
        }
        if !unanswered.is_empty() {
            let key = Key::new("test", "data-db-0-0");
            let namespace = claim(owned)["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            view.doubt(Kind::PersistentVolumeClaim, Key { namespace, ..key }, unanswered);
        }
        let env = Env::new().with(scope);
        let waits = said(&run_in(&env, &plan("BlueGreenImmediate"), &RetireIncumbents {}).await);
        assert!(
            waits.starts_with("waiting for set first to go"),
            "{retention} {owned} {shown} {unanswered}: {waits}"
        );
        // Nothing else reports what the rollout waits for.
        let named = waits.contains("node db-0 is not removed");
        assert_eq!(named, !goes, "{retention} {owned} {shown} {unanswered}: {waits}");
        assert_eq!(
            waits.contains("PersistentVolumeClaim data-db-0-0"),
            !goes && retention == "Retain",
            "{waits}"
        );
    }
}

#[tokio::test]
async fn where_the_old_nodes_go_first_none_goes_as_long_as_traffic_could_not_move() {
    let anothers = json!({"metadata": meta("db", "service-uid", 9, None),
        "spec": {"selector": {"windlass.dev/deployment": "db", "windlass.dev/set": "first"}}});
    for (is, said_so) in [
        ("another's", "waiting for the fleet's Service: service: Service db exists and belongs to no fleet"),
        ("gone", "waiting for the fleet's Service to be there"),
        ("refused", "waiting: service: the API server refuses it"),
    ] {
        for stage in ["CreatingEntrants", "Promoting"] {
            let view = View::shared();
            // Any write would panic.
            let mut scope = amid("BlueGreen", stage).without("db-new-0").scope(MockCluster::new(), &view);
            match is {
                "another's" => view.observe(Kind::Service, &anothers),
                "gone" => view.deleted(Kind::Service, &Key::new("shop", "db"), "service-uid"),
                _ => scope.blocker = Some(Blocker::ServiceRefused("no".to_owned())),
            }
            let env = Env::new().with(scope);
            let waits = said(&run_in(&env, &plan("BlueGreenImmediate"), &RetireIncumbents {}).await);
            assert!(waits.starts_with(said_so), "{is}, {stage}: {waits}");
        }
    }
}

/// Some of the old nodes may be gone by then: the promotion of what was wanted is finished first.
#[tokio::test]
async fn what_else_is_wrong_with_a_spec_keeps_the_old_nodes_only_until_the_promotion_has_begun() {
    let refused = "template: the API server refuses it: no";
    for stage in ["CreatingEntrants", "Promoting"] {
        let goes = stage == "Promoting";
        let mut cluster = MockCluster::new();
        if goes {
            cluster.expect_delete().once().withf(|target| target.name == "db-0").returning(|_| Ok(()));
        }
        let amid = amid("BlueGreen", stage).without("db-new-0");
        let amid = amid.changed("db-0", "/spec/removalID", json!("remove-2"));
        let amid = amid.changed("db-0", "/status/plan", leaving("remove-2"));
        let amid = amid.changed("db-0", "/spec/volumeClaimRetention", json!("Retain"));
        let mut scope = amid.scope(cluster, &View::shared());
        has_plan(&mut scope, "BlueGreenImmediate");
        scope.blocker = Some(Blocker::TemplateRefused("no".to_owned()));
        let env = Env::new().with(scope);
        let waits = said(&run_in(&env, &plan("BlueGreenImmediate"), &RetireIncumbents {}).await);
        let expected =
            if goes { "waiting for set first to go".to_owned() } else { format!("waiting: {refused}") };
        assert!(waits.starts_with(&expected), "{stage}: {waits}");
    }
}

#[tokio::test]
async fn nobody_is_asked_to_halt_as_long_as_traffic_could_not_move() {
    let view = View::shared();
    let amid = amid("HardFork", "CreatingEntrants").changed("db-0", "/spec/sidecar", json!({"image": "w:1"}));
    let amid = amid.changed("db-0", "/status/sidecar", json!({"podUID": "pod-1", "height": 7}));
    // Any write would panic.
    let scope = amid.scope(MockCluster::new(), &view);
    view.deleted(Kind::Service, &Key::new("shop", "db"), "service-uid");
    let waits = said(&run_in(&Env::new().with(scope), &plan("HardFork"), &SubmitHalt {}).await);
    assert_eq!(waits, "waiting for the fleet's Service to be there");
}

#[tokio::test]
async fn the_old_set_stays_until_it_is_recorded_that_traffic_has_moved_though_the_hook_before_was_skipped() {
    let recipe = "{name: BlueGreen, tasks: [{type: switch-traffic}, \
        {type: await-approval, params: {hook: look, at: AfterPromotion}}, {type: retire-incumbents}]}";
    let seed = PlanSeed { uid: "uid", target_hash: "v1:x", now: now(), attempt: 0, disambiguator: "" };
    let mut plan = Recipe::parse(recipe).unwrap().plan(seed);
    plan.tasks[0].state = crate::engine::TaskState::Complete;
    plan.tasks[1].state = crate::engine::TaskState::Skipped;
    // Any write would panic.
    let scope = amid("BlueGreen", "Promoting").scope(MockCluster::new(), &View::shared());
    let waits = said(&run_in(&Env::new().with(scope), &plan, &RetireIncumbents {}).await);
    assert_eq!(waits, "waiting for the promotion to be recorded");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_no_watch_shows_counts_as_anothers_until_it_is_time_to_ask_again() {
    let view = View::shared();
    let scope = amid("BlueGreen", "Promoting").scope(MockCluster::new(), &view);
    view.deleted(Kind::Service, &Key::new("shop", "db"), "service-uid");
    assert_eq!(taken_service(&scope), None);
    let sentence = "service: Service db exists and belongs to no fleet".to_owned();
    scope.caches.probes.foreign.put("fleet-uid", (monotonic(), sentence.clone()));
    tokio::time::sleep(Duration::from_secs(24)).await;
    assert_eq!(taken_service(&scope).as_ref(), Some(&sentence));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(taken_service(&scope), None);
    assert_eq!(last_taken_service(&scope), Some(sentence), "for what does not ask");
}

#[tokio::test]
async fn a_node_that_is_another_by_now_is_not_said_to_be_deleted() {
    for (answer, told) in
        [(Ok(()), 1), (Err(ClusterError::Conflict { object: String::new(), message: String::new() }), 0)]
    {
        let mut cluster = MockCluster::new();
        cluster.expect_delete().once().return_once(move |_| answer);
        let view = View::shared();
        let scope = amid("BlueGreen", "Promoting").scope(cluster, &view);
        let deleted = scope.delete_node(&"db-0".into(), "of a test").await;
        assert_eq!((deleted.is_ok(), scope.recorder.take().len()), (told == 1, told));
    }
}

#[tokio::test]
async fn what_a_hand_cut_loose_is_waited_for_and_the_person_is_told_what_to_do() {
    const BY: (&str, &str, &str) = ("StatefulSet", "db-0", "set-uid");
    for (owner, named) in
        [(Some(BY), "Pod db-0-0"), (None, "Pod db-0-0 (it has no owner any more: delete it)")]
    {
        let view = View::shared();
        let mut metadata = meta("db-0-0", "pod-uid", 6, owner);
        metadata["labels"] = json!({"windlass.dev/deployment": "db", "windlass.dev/set": "first",
            "windlass.dev/node": "db-0"});
        view.observe(Kind::Pod, &json!({"metadata": metadata}));
        let scope = amid("BlueGreen", "Retiring").without("db-0").scope(MockCluster::new(), &view);
        let waits = said(&run_in(&Env::new().with(scope), &plan("BlueGreen"), &RetireIncumbents {}).await);
        assert!(waits.ends_with(&format!("what is left of it: {named}")), "{waits}");
    }
}

#[tokio::test]
async fn new_nodes_that_follow_the_old_ones_wait_for_a_pod_that_no_watch_shows_any_more() {
    for strategy in ["BlueGreen", "BlueGreenImmediate"] {
        let immediately = strategy == "BlueGreenImmediate";
        let mut metadata = meta("db-0-0", "pod-uid", 6, None);
        metadata["labels"] = json!({"windlass.dev/deployment": "db", "windlass.dev/set": "first"});
        let left = Arc::new(Mutex::new(vec![json!({"metadata": metadata})]));
        let (shown, mut cluster) = (left.clone(), MockCluster::new());
        cluster.expect_selected().times(if immediately { 2 } else { 0 }).returning(
            move |kind, namespace, by| {
                let of_set = "windlass.dev/deployment=db,windlass.dev/set=first".to_owned();
                assert_eq!((kind, namespace, by), (Kind::Pod, "shop", Selector::Labels(of_set)));
                Ok(shown.lock().unwrap().clone())
            },
        );
        let mut scope = amid("BlueGreen", "Promoting").without("db-0").scope(cluster, &View::shared());
        has_plan(&mut scope, strategy);
        let env = Env::new().with(scope);
        let plan = plan(strategy);
        let before = run_in(&env, &plan, &RetireIncumbents {}).await;
        if immediately {
            let waits = "waiting for set first to go; what is left of it: Pod db-0-0 (it has no owner any more: delete it)";
            assert_eq!(said(&before), waits);
            left.lock().unwrap().clear();
        }
        assert!(matches!(run_in(&env, &plan, &RetireIncumbents {}).await, Ok(Outcome::Done)), "{strategy}");
    }
}
