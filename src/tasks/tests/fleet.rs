//! Tests the tasks of a fleet: grants are written wave by wave, each guarded by the version that it was decided on, and
//! no task is done before its result was observed.

use super::super::{AwaitSpecUpdate, FleetScope, MarkReady, UpdateNodeSpecs};
use super::*;
use crate::api::{NodeDeploymentSpec, RolloutHash};
use crate::planner::fleet::RolloutTarget;
use crate::revision::RevisionData;
use windlass_kube_port::observed::{Observed, ObservedFleet};
use windlass_kube_port::{Part, PatchOp};

const FLEET: (&str, &str, &str) = ("NodeDeployment", "db", "fleet-uid");

/// A fleet, and its nodes by ordinal.
pub(super) struct Fleet {
    strategy: Value,
    wants: &'static str,
    paused: bool,
    nodes: Vec<Value>,
    completed: &'static str,
}

/// A fleet that completed v1 and wants v2.
pub(super) fn fleet(nodes: Vec<Value>) -> Fleet {
    Fleet { strategy: json!({}), wants: "v2", paused: false, nodes, completed: "v1" }
}

/// The rollout hash of a version.
pub(super) fn revision_of(version: &str) -> RolloutHash {
    let spec: StatefulNodeSpec = serde_json::from_value(spec_json(version)).unwrap();
    revision::rollout_hash(&spec, "")
}

/// A node that serves a version.
pub(super) fn serving(ordinal: usize, version: &str) -> Value {
    let name = format!("db-{ordinal}");
    let mut node = Node::serving(version).object;
    node["metadata"] = meta(&name, &format!("uid-{ordinal}"), 5, Some(FLEET));
    node["status"]["firstReadyAt"] = json!("2030-01-01T00:00:00Z");
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "NodeReady", "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
    node
}

pub(super) fn down(mut node: Value) -> Value {
    node["status"]["conditions"][0]["status"] = json!("False");
    node
}

/// A node whose spec the executor has not observed.
pub(super) fn behind(mut node: Value) -> Value {
    node["status"]["observedGeneration"] = json!(2);
    node
}

impl Fleet {
    pub(super) fn at_most(self, max_unavailable: usize) -> Self {
        Self { strategy: json!({"maxUnavailable": max_unavailable}), ..self }
    }

    fn paused(self) -> Self {
        Self { paused: true, ..self }
    }

    fn held_below(self, partition: usize) -> Self {
        Self { strategy: json!({"partition": partition}), ..self }
    }

    pub(super) fn scope(&self, mut cluster: MockCluster, view: &Arc<View>) -> FleetScope {
        pods_are_as_said(view, &mut cluster, &self.nodes);
        let spec = json!({
            "replicas": self.nodes.len(), "paused": self.paused,
            "template": {"spec": spec_json(self.wants)},
            "updateStrategy": {"type": "InPlace", "inPlace": self.strategy},
        });
        for node in &self.nodes {
            view.observe(Kind::StatefulNode, node);
        }
        for (number, version) in ["v1", "v2"].into_iter().enumerate() {
            let kept: StatefulNodeSpec = serde_json::from_value(spec_json(version)).unwrap();
            let stored = json!({
                "metadata": meta(&format!("db-{version}"), version, 3, Some(FLEET)),
                "revision": number,
                "data": RevisionData::of(&kept).to_value(),
            });
            view.observe(Kind::ControllerRevision, &stored);
        }
        let observed = ObservedFleet::read(&json!({
            "metadata": meta("db", "fleet-uid", 8, None),
            "spec": spec,
            "status": {"lastCompletedRolloutHash": revision_of(self.completed)},
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
            rollout_target: RolloutTarget::Revision(revision_of(self.wants)),
            blocker: None,
            missing: None,
            cache: Arc::default(),
            pods: None,
            recorder: windlass_kube_port::EventBuffer::default(),
            now: DateTime::from_timestamp(2_000_000_000, 0).unwrap(),
        }
    }

    /// Runs a task that must not write anything.
    async fn without_a_write(&self, task: &dyn Task) -> String {
        let scope = self.scope(MockCluster::new(), &View::shared());
        said(&run_in(&Env::new().with(scope), &plan("InPlace"), task).await)
    }
}

/// The spec that a patch gives a node.
pub(super) fn spec_in(ops: &[PatchOp]) -> Value {
    let sets = |op: &PatchOp| match op {
        PatchOp::Set { path, value } if path == "/spec" => Some(value.clone()),
        PatchOp::Set { .. } | PatchOp::Remove { .. } => None,
    };
    ops.iter().find_map(sets).unwrap_or_default()
}

#[tokio::test]
async fn nodes_are_granted_the_target_once_within_the_wave() {
    for (max, expected) in [(1, vec!["db-2"]), (2, vec!["db-2", "db-1"])] {
        let nodes: Vec<Value> = (0..3).map(|i| serving(i, "v1")).collect();
        let fleet = fleet(nodes.clone()).at_most(max);
        let (view, mut cluster) = (View::shared(), MockCluster::new());
        let granted = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (log, shown) = (granted.clone(), view.clone());
        cluster
            .expect_patch()
            .times(max)
            .withf(|target, part, ops| {
                let spec = spec_in(ops);
                target.resource_version == "5"
                    && *part == Part::Main
                    && spec["image"] == "db:v2"
                    && spec["grantedHash"] == hash("v2").as_str()
            })
            .returning(move |target, _, ops| {
                log.lock().unwrap().push(target.name.clone());
                let mut stored =
                    nodes.iter().find(|n| n["metadata"]["name"] == target.name.as_str()).unwrap().clone();
                stored["spec"] = spec_in(&ops);
                (stored["metadata"]["resourceVersion"], stored["metadata"]["generation"]) =
                    (json!("6"), json!(4));
                shown.observe(Kind::StatefulNode, &stored);
                Ok(stored)
            });
        let env = Env::new().with(fleet.scope(cluster, &view));
        for _ in 0..2 {
            let outcome = said(&run_in(&env, &plan("InPlace"), &UpdateNodeSpecs::default()).await);
            assert!(outcome.starts_with("waiting for the wave"), "{outcome}");
        }
        assert_eq!(*granted.lock().unwrap(), expected);
    }
}

#[tokio::test]
async fn grant_with_unknown_outcome_counts_against_the_wave() {
    let nodes = vec![serving(0, "v1"), down(serving(1, "v1")), serving(2, "v1")];
    // Until it is known, neither goes: db-2 may have been granted, and if not, it serves while db-1 is down.
    for (doubt, granted, expected) in [(false, 1, "again"), (true, 0, "waiting for the wave")] {
        let (view, mut cluster) = (View::shared(), MockCluster::new());
        let scope = |cluster| fleet(nodes.clone()).scope(cluster, &view);
        cluster.expect_patch().times(granted).withf(|target, _, _| target.name == "db-1").returning(
            |_, _, _| {
                Err(ClusterError::Transient { object: "x".into(), message: "lost".into(), retry_after: None })
            },
        );
        let scope = scope(cluster);
        if doubt {
            let node = scope.children().pop().unwrap();
            view.doubt(Kind::StatefulNode, node.meta.key(), &node.meta.resource_version);
        }
        let outcome =
            said(&run_in(&Env::new().with(scope), &plan("InPlace"), &UpdateNodeSpecs::default()).await);
        assert!(outcome.starts_with(expected), "{outcome}");
    }
}

#[tokio::test]
async fn changed_or_deleted_node_is_left_to_the_next_reconcile() {
    let gone = || ClusterError::NotFound { object: "x".to_owned() };
    for error in [conflict(), gone()] {
        let mut cluster = MockCluster::new();
        cluster.expect_patch().times(1).return_once(move |_, _, _| Err(error));
        let scope = fleet(vec![serving(0, "v1")]).scope(cluster, &View::shared());
        let outcome =
            said(&run_in(&Env::new().with(scope), &plan("InPlace"), &UpdateNodeSpecs::default()).await);
        assert!(outcome.starts_with("waiting for the wave"), "{outcome}");
    }
}

/// A fleet whose node serves v1 with a claim of 1Gi. The fleet wants v2 with these claims.
fn wanting_claims(claims: &Value, cluster: MockCluster) -> FleetScope {
    let mut node = serving(0, "v1");
    node["spec"]["volumeClaimTemplates"] = claims_of("1Gi");
    let mut wanted = spec_json("v2");
    wanted["volumeClaimTemplates"] = claims.clone();
    let wanted: StatefulNodeSpec = serde_json::from_value(wanted).unwrap();
    let view = View::shared();
    let mut scope = fleet(vec![node]).scope(cluster, &view);
    let stored = json!({
        "metadata": meta("db-wanted", "wanted", 3, Some(FLEET)),
        "revision": 2,
        "data": RevisionData::of(&wanted).to_value(),
    });
    view.observe(Kind::ControllerRevision, &stored);
    scope.rollout_target = RolloutTarget::Revision(revision::rollout_hash(&wanted, ""));
    let mut spec = (*scope.spec).clone();
    spec.template.spec = wanted;
    scope.spec = Arc::new(spec);
    scope
}

/// The claims of 1Gi, as a program writes them that fills in empty fields.
fn generated_claims() -> Value {
    let mut claims = claims_of("1Gi");
    claims[0]["metadata"]["creationTimestamp"] = Value::Null;
    claims[0]["status"] = json!({});
    claims
}

#[tokio::test]
async fn equivalent_claim_templates_do_not_block_the_rollout() {
    let table = [
        (claims_of("1Gi"), false),
        (claims_of("1024Mi"), false),
        (generated_claims(), false),
        (claims_of("2Gi"), true),
    ];
    for (claims, is_told) in table {
        let sentence = wanting_claims(&claims, MockCluster::new()).unchangeable_claims();
        assert_eq!(sentence.is_some(), is_told, "{claims}: {sentence:?}");
    }
}

#[tokio::test]
async fn grant_keeps_the_claim_templates_of_the_node() {
    for claims in [claims_of("1Gi"), claims_of("1024Mi"), generated_claims()] {
        let mut cluster = MockCluster::new();
        cluster
            .expect_patch()
            .times(1)
            .withf(|_, _, ops| {
                let spec = spec_in(ops);
                spec["image"] == "db:v2" && spec["volumeClaimTemplates"] == claims_of("1Gi")
            })
            .returning(|_, _, _| Err(conflict()));
        let env = Env::new().with(wanting_claims(&claims, cluster));
        let outcome = said(&run_in(&env, &plan("InPlace"), &UpdateNodeSpecs::default()).await);
        assert!(outcome.starts_with("waiting for the wave"), "{outcome}");
    }
}

#[tokio::test]
async fn rejected_grant_fails_and_a_transient_error_is_retried() {
    let table = [
        (refused(), "failed: the API server rejects x: spec.x: no"),
        (overloaded(), "again Some(7s): x: slow down"),
    ];
    for (error, expected) in table {
        let mut cluster = MockCluster::new();
        cluster.expect_patch().times(1).return_once(move |_, _, _| Err(error));
        let scope = fleet(vec![serving(0, "v1")]).scope(cluster, &View::shared());
        assert_eq!(
            said(&run_in(&Env::new().with(scope), &plan("InPlace"), &UpdateNodeSpecs::default()).await),
            expected
        );
    }
}

#[tokio::test]
async fn nothing_is_granted_while_paused_or_at_the_wave_limit() {
    let v1 = |i| serving(i, "v1");
    let v2 = |i| serving(i, "v2");
    let table = [
        ("paused", fleet(vec![v1(0), v1(1)]).paused(), "waiting for the fleet to be resumed"),
        ("another is in flight", fleet(vec![v1(0), behind(v2(1))]), "waiting for the wave"),
        ("another is down", fleet(vec![v1(0), down(v2(1))]), "waiting for the wave"),
        ("all are granted", fleet(vec![v2(0), down(behind(v2(1)))]), "done"),
        (
            "held by the partition",
            fleet(vec![v1(0), v2(1)]).held_below(1),
            "waiting for the partition to be lowered",
        ),
        (
            "above the partition one is down",
            fleet(vec![v1(0), down(v2(1))]).held_below(1),
            "waiting for the nodes from ordinal 1",
        ),
    ];
    for (what, fleet, expected) in table {
        let outcome = fleet.without_a_write(&UpdateNodeSpecs::default()).await;
        assert!(outcome.starts_with(expected), "{what}: {outcome}");
    }
}

#[tokio::test]
async fn missing_node_is_awaited_and_never_counts_as_updated() {
    let mut missing = fleet(vec![serving(0, "v2"), serving(1, "v2")]);
    missing.nodes[1]["metadata"]["ownerReferences"] = json!([]);
    missing.nodes[1]["metadata"]["name"] = json!("other-1");
    for task in [&UpdateNodeSpecs::default() as &dyn Task, &AwaitSpecUpdate {}] {
        assert_eq!(missing.without_a_write(task).await, "waiting for missing nodes to be created");
    }
}

#[tokio::test]
async fn nodes_must_be_observed_at_the_target_and_then_be_ready() {
    let v2 = |i| serving(i, "v2");
    let mut not_observed = v2(1);
    not_observed["status"]["podTemplateHash"] = json!(hash("v1"));
    not_observed["status"]["spentGrantID"] = json!("grant-0");
    let table = [
        ("all serve", fleet(vec![v2(0), v2(1)]), "done", "done"),
        (
            "one is not observed there",
            fleet(vec![v2(0), not_observed]),
            "waiting for db-1",
            "waiting for db-1",
        ),
        ("one is behind", fleet(vec![v2(0), behind(v2(1))]), "waiting for db-1", "waiting for db-1"),
        ("one is down", fleet(vec![v2(0), down(v2(1))]), "done", "waiting for db-1"),
        (
            "one lost its grant",
            fleet(vec![v2(0), serving(1, "v1")]),
            "ChildChanged: db-1",
            "ChildChanged: db-1",
        ),
    ];
    for (what, fleet, updated, ready) in table {
        let found =
            [fleet.without_a_write(&AwaitSpecUpdate {}).await, fleet.without_a_write(&MarkReady {}).await];
        assert!(found[0].starts_with(updated), "{what}: await-spec-update: {}", found[0]);
        assert!(found[1].starts_with(ready), "{what}: mark-ready: {}", found[1]);
    }
}
