//! Tests the tasks of a rollout that creates a set: nothing that cannot be undone happens before the status records
//! that it will, only nodes that run are promoted, and no claim is deleted for a set that was never promoted.

use super::super::{
    AwaitCaughtUp, AwaitNodesAtHeight, AwaitNodesRunning, AwaitPromotion, CreateEntrants, FleetScope,
    SubmitHalt, SwitchTraffic,
};
use super::*;
use crate::api::{NodeDeploymentSpec, RolloutHash};
use crate::apply::fleet_objects::{last_taken_service, taken_service};
use crate::clock::monotonic;
use crate::planner::fleet::RolloutTarget;
use crate::revision::RevisionData;
use windlass_kube_port::Part;
use windlass_kube_port::observed::{Observed, ObservedFleet};

pub(super) const FLEET: (&str, &str, &str) = ("NodeDeployment", "db", "fleet-uid");

pub(super) fn revision_of(version: &str) -> RolloutHash {
    let spec: StatefulNodeSpec = serde_json::from_value(spec_json(version)).unwrap();
    revision::rollout_hash(&spec, "")
}

/// A node of a set that serves a version.
pub(super) fn serving(name: &str, version: &str) -> Value {
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
    pub(super) nodes: Vec<Value>,
}

pub(super) fn amid(strategy: &'static str, stage: &'static str) -> Amid {
    Amid { strategy, stage, spec: json!({}), nodes: vec![serving("db-0", "v1"), serving("db-new-0", "v2")] }
}

/// Stores a plan of this recipe in the fleet's status.
pub(super) fn has_plan(scope: &mut FleetScope, recipe: &str) {
    let plan = crate::api::RawPlan(json!({"recipe": recipe}).into());
    Arc::make_mut(&mut scope.fleet).status.plan = Some(plan);
}

impl Amid {
    pub(super) fn with(self, spec: Value) -> Self {
        Self { spec, ..self }
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.nodes.retain(|n| n["metadata"]["name"] != name);
        self
    }

    pub(super) fn changed(mut self, name: &str, pointer: &str, value: Value) -> Self {
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
            neighbours: Arc::default(),
            options: Arc::new(RenderOptions::default()),
            rollout_target: RolloutTarget::Revision(revision_of("v2")),
            blocker: None,
            missing: None,
            cache: Arc::default(),
            pods: None,
            recorder: windlass_kube_port::EventBuffer::default(),
            now: now(),
        }
    }

    pub(super) async fn run(&self, cluster: MockCluster, task: &dyn Task) -> String {
        let scope = self.scope(cluster, &View::shared());
        said(&run_in(&Env::new().with(scope), &plan(self.strategy), task).await)
    }

    /// Runs a task that must not write anything.
    pub(super) async fn without_a_write(&self, task: &dyn Task) -> String {
        self.run(MockCluster::new(), task).await
    }
}

/// The fleet's Service once it selects the new set, changed by Windlass or by a person.
pub(super) fn turned(by_us: bool) -> Value {
    let mut service = json!({"metadata": meta("db", "service-uid", 9, Some(FLEET)),
        "spec": {"selector": {"windlass.dev/deployment": "db", "windlass.dev/set": "new"}}});
    if by_us {
        service["metadata"]["annotations"]["windlass.dev/switched-to"] = json!("new");
    }
    service
}

#[tokio::test]
async fn manual_selector_change_does_not_count_as_a_switch() {
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
async fn lost_target_during_promotion_must_be_restored() {
    for (stage, advice) in
        [("AwaitingEntrants", "change the template"), ("Promoting", "restore its spec.template")]
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
async fn claims_of_a_set_differ_only_if_their_meaning_differs() {
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
async fn traffic_switches_in_one_write_and_a_rerun_writes_nothing() {
    let view = View::shared();
    let shown = view.clone();
    let mut cluster = MockCluster::new();
    cluster
        .expect_patch()
        .once()
        .withf(|target, part, ops| {
            let selector = json!({"windlass.dev/deployment": "db", "windlass.dev/set": "new"});
            let written: Vec<Value> = ops.iter().map(windlass_kube_port::PatchOp::to_json).collect();
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
async fn traffic_does_not_switch_before_the_promotion_is_recorded() {
    for stage in ["CreatingEntrants", "AwaitingEntrants", "AwaitingPromotion"] {
        let waits = amid("BlueGreen", stage).without_a_write(&SwitchTraffic {}).await;
        assert_eq!(waits, "waiting for the promotion to be recorded", "{stage}");
    }
}

#[tokio::test]
async fn earlier_tasks_are_done_after_the_traffic_switch() {
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
async fn traffic_does_not_switch_to_nodes_that_do_not_run() {
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
        let of_node = |target: &windlass_kube_port::Target| target.kind == Kind::StatefulNode;
        cluster.expect_patch().withf(move |target, _, _| of_node(target)).returning(|_, _, _| Ok(json!({})));
        let waits = case.run(cluster, &SwitchTraffic {}).await;
        assert!(waits.starts_with("waiting for"), "{index}: {waits}");
    }
}

#[tokio::test]
async fn unready_entrant_is_not_promoted_unless_forced() {
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

pub(super) fn not_ready(amid: Amid, name: &str) -> Amid {
    let condition = json!([{"type": "Ready", "status": "False", "reason": "PodNotReady", "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
    amid.changed(name, "/status/conditions", condition)
}

#[tokio::test]
async fn manual_promotion_requires_the_full_hash() {
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
            format!(
                "waiting for a manual promotion: set spec.forcePromote to {wanted}, or run windlass promote"
            )
        );
    }
    assert_eq!(by("Manual", wanted.as_str()).without_a_write(&AwaitPromotion {}).await, "done");
    for (field, advice) in [(wanted.as_str(), "clear spec.forcePromote"), ("", "set spec.forcePromote")] {
        let mut scope = by("Manual", field).scope(MockCluster::new(), &View::shared());
        let mut fleet = (*scope.fleet).clone();
        fleet.status.spent_force_promote = wanted.to_string();
        scope.fleet = Arc::new(fleet);
        let waits = said(&run_in(&Env::new().with(scope), &plan("BlueGreen"), &AwaitPromotion {}).await);
        assert!(waits.starts_with(&format!("waiting for a manual promotion: {advice}")), "{waits}");
    }
    assert_eq!(by("WhenReady", "").without_a_write(&AwaitPromotion {}).await, "done");
}

/// A promotion by hand does not wait for nodes to be ready: whoever obeyed would cut all traffic.
#[tokio::test]
async fn promotion_command_is_not_offered_before_entrants_are_ready() {
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
        assert_eq!(waits, format!("{why}; after that, a manual promotion is needed"));
    }
}

#[tokio::test]
async fn missing_entrant_is_created_with_a_grant_unless_paused() {
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
async fn entrant_off_target_is_granted_the_target() {
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

#[tokio::test(start_paused = true)]
async fn unwatched_service_counts_as_foreign_for_25_seconds() {
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
