//! Tests each task with a mocked port and prepared caches: what it does, what it never does, and that a second run
//! writes nothing. `Node::serving("v1")` is a node whose pod serves v1, which is the version that it was granted; its
//! grant is spent.

mod apply_service;
mod apply_stateful_set;
mod fleet;
mod fleet_pods;
mod mark_ready;
mod observe_image;
mod old_set;
mod recipes;
mod replace_pod;
mod sets;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{NodeScope, UNSEEN};
use crate::api::{PodTemplateHash, StatefulNodeSpec};
use crate::engine::{Env, Outcome, Plan, PlanSeed, Recipe, Registry, Task, TaskContext, TaskError};
use crate::observe::node_scope::decided_on;
use crate::observe::recorder::SidecarRecorder;
use crate::planner::node::status::SidecarAnswer;
use crate::probe::SidecarProber;
use crate::render::{self, RenderOptions};
use crate::revision;
use crate::sidecar::{MockSidecarClient, SidecarClient};
use windlass_kube_port::MockCluster;
use windlass_kube_port::{Cluster, ClusterError, Key, Kind, LivePod, View};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000, 0).unwrap()
}

fn spec_json(version: &str) -> Value {
    json!({"image": format!("db:{version}"), "podTemplate": {"spec": {"containers": [{"name": "db"}]}}})
}

/// One claim template, of this size.
fn claims_of(storage: &str) -> Value {
    json!([{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": storage}}}}])
}

/// The pod template hash of a version.
fn hash(version: &str) -> PodTemplateHash {
    let spec: StatefulNodeSpec = serde_json::from_value(spec_json(version)).unwrap();
    revision::pod_template_hash(&render::pod_template(&spec, None, &RenderOptions::default()).unwrap())
}

fn meta(name: &str, uid: &str, version: u64, owner: Option<(&str, &str, &str)>) -> Value {
    let owners: Vec<Value> = owner
        .iter()
        .map(|(kind, name, uid)| json!({"kind": kind, "name": name, "uid": uid, "controller": true}))
        .collect();
    json!({
        "name": name, "namespace": "shop", "uid": uid, "resourceVersion": version.to_string(), "generation": 3,
        "labels": {}, "annotations": {}, "ownerReferences": owners,
    })
}

/// A node and its objects as the API server has them; `None` for an object that does not exist.
#[derive(Clone)]
struct Node {
    object: Value,
    set: Option<Value>,
    pod: Option<Value>,
    service: Option<Value>,
}

const NODE: (&str, &str, &str) = ("StatefulNode", "db-0", "node-uid");

impl Node {
    fn serving(version: &str) -> Self {
        let mut spec = spec_json(version);
        spec["grantedHash"] = json!(hash(version));
        spec["grantID"] = json!("grant-1");
        let object = json!({
            "metadata": meta("db-0", "node-uid", 5, None),
            "spec": spec,
            "status": {
                "podTemplateHash": hash(version), "currentImage": format!("db:{version}"), "podUID": "pod-1",
                "spentGrantID": "grant-1", "observedGeneration": 3,
                "statefulSet": {"name": "db-0", "uid": "set-uid", "generation": 3},
            },
        });
        let empty = Self { object, set: None, pod: None, service: None };
        empty.with_set(version).with_pod(version)
    }

    fn new(version: &str) -> Self {
        let mut new = Self::serving(version).without_set().without_pod();
        new.object["status"] = json!({});
        new
    }

    /// Granted another version, which the node has not converged to.
    fn granted(mut self, version: &str) -> Self {
        self.object["spec"]["image"] = json!(format!("db:{version}"));
        self.object["spec"]["grantedHash"] = json!(hash(version));
        self.object["spec"]["grantID"] = json!("grant-2");
        self
    }

    /// The same grant, but spent.
    fn spent(mut self) -> Self {
        self.object["status"]["spentGrantID"] = self.object["spec"]["grantID"].clone();
        self
    }

    /// The spec has another version than the grant.
    fn wanting_without_grant(mut self, version: &str) -> Self {
        self.object["spec"]["image"] = json!(format!("db:{version}"));
        self
    }

    fn with_sidecar(mut self) -> Self {
        self.object["spec"]["sidecar"] = json!({"image": "w:1", "url": "http://sidecar:7777"});
        self
    }

    /// A StatefulSet whose template has this version, observed by its controller.
    fn with_set(mut self, version: &str) -> Self {
        let mut metadata = meta("db-0", "set-uid", 10, Some(NODE));
        metadata["annotations"] = json!({"windlass.dev/pod-template-hash": hash(version)});
        self.set = Some(json!({
            "metadata": metadata,
            "spec": {
                "replicas": 1, "updateStrategy": {"type": "OnDelete"},
                "template": {"spec": {"containers": [{"name": "db", "image": format!("db:{version}")}]}},
            },
            "status": {"observedGeneration": 3, "updateRevision": format!("db-0-{version}")},
        }));
        self
    }

    fn set(mut self, pointer: &str, value: Value) -> Self {
        *self.set.as_mut().unwrap().pointer_mut(pointer).unwrap() = value;
        self
    }

    fn pod(mut self, pointer: &str, value: Value) -> Self {
        *self.pod.as_mut().unwrap().pointer_mut(pointer).unwrap() = value;
        self
    }

    /// The StatefulSet controller has not observed the template.
    fn unseen(self) -> Self {
        self.set("/status/observedGeneration", json!(2))
    }

    fn with_pod(mut self, version: &str) -> Self {
        let mut metadata = meta("db-0-0", "pod-1", 20, Some(("StatefulSet", "db-0", "set-uid")));
        metadata["labels"] =
            json!({"controller-revision-hash": format!("db-0-{version}"), "windlass.dev/node": "db-0"});
        metadata["deletionTimestamp"] = Value::Null;
        self.pod = Some(json!({
            "metadata": metadata,
            "spec": {"containers": [{"name": "db", "image": format!("db:{version}")}]},
            "status": {
                "phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
                "initContainerStatuses": [{"name": "windlass-sidecar", "state": {"running": {}}, "ready": true}],
                "containerStatuses": [{"name": "db", "imageID": "sha256:1", "ready": true, "state": {"running": {}}}],
            },
        }));
        self
    }

    /// Another pod than the one that the status names.
    fn with_new_pod(self, version: &str) -> Self {
        self.with_pod(version).pod("/metadata/uid", json!("pod-2"))
    }

    fn not_ready(self) -> Self {
        self.pod("/status/conditions/0/status", json!("False"))
            .pod("/status/initContainerStatuses/0/ready", json!(false))
    }

    /// Its main container waits for its next start.
    fn not_running(self) -> Self {
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        self.not_ready().pod("/status/containerStatuses/0/state", waits)
    }

    fn terminating(self) -> Self {
        self.pod("/metadata/deletionTimestamp", json!("2030-01-01T00:00:00Z"))
    }

    fn without_pod(mut self) -> Self {
        self.pod = None;
        self
    }

    fn without_set(mut self) -> Self {
        self.set = None;
        self
    }

    fn shown_to(&self, view: &View) {
        view.observe(Kind::StatefulNode, &self.object);
        let others = [(Kind::StatefulSet, &self.set), (Kind::Pod, &self.pod), (Kind::Service, &self.service)];
        for (kind, object) in others {
            if let Some(object) = object {
                view.observe(kind, object);
            }
        }
    }
}

/// A node, the port and the node's sidecar, for a task to run with.
struct Bench {
    view: Arc<View>,
    cluster: MockCluster,
    sidecars: MockSidecarClient,
    recipe: &'static str,
}

fn bench(node: &Node) -> Bench {
    let view = View::shared();
    node.shown_to(&view);
    Bench { view, cluster: MockCluster::new(), sidecars: MockSidecarClient::new(), recipe: "NodeUpdate" }
}

impl Bench {
    /// Runs a task twice and returns both outcomes. A write that is not expected panics.
    async fn twice(self, task: &dyn Task) -> [Result<Outcome, TaskError>; 2] {
        let scope = self.scope();
        [run(task, &scope).await, run(task, &scope).await]
    }

    async fn once(self, task: &dyn Task) -> Result<Outcome, TaskError> {
        run(task, &self.scope()).await
    }

    fn scope(self) -> Ready {
        let key = Key::new("shop", "db-0");
        let known = self.view.nodes.get(&key);
        let (cluster, sidecars): (Arc<dyn Cluster>, Arc<dyn SidecarClient>) =
            (Arc::new(self.cluster), Arc::new(self.sidecars));
        let scope = NodeScope {
            decided_on: known.map(|node| decided_on(&node)).unwrap_or_default(),
            key,
            view: self.view,
            prober: SidecarProber::of_sidecars(sidecars.clone(), cluster.clone()),
            cluster,
            caches: Arc::default(),
            sightings: Arc::default(),
            status_writes: Arc::default(),
            options: Arc::new(RenderOptions::default()),
            sidecars,
            now: now(),
            answers: SidecarRecorder::new(SidecarAnswer::NotAsked),
        };
        Ready { scope, recipe: self.recipe }
    }
}

/// Everything that a run of a task needs.
struct Ready {
    scope: NodeScope,
    recipe: &'static str,
}

impl Ready {
    fn answer(&self) -> SidecarAnswer {
        self.scope.answers.last()
    }
}

/// Runs a task, lets the sidecar answer the task's question, and runs the task again.
async fn heard(task: &dyn Task, ready: &Ready) -> Result<Outcome, TaskError> {
    let outcome = run(task, ready).await;
    assert!(
        matches!(outcome, Ok(Outcome::Waiting { .. })),
        "a task does not wait for a sidecar: {outcome:?}"
    );
    ready.scope.prober.answer_all().await;
    run(task, ready).await
}

async fn run(task: &dyn Task, ready: &Ready) -> Result<Outcome, TaskError> {
    run_in(&Env::new().with(ready.scope.clone()), &plan(ready.recipe), task).await
}

async fn run_in(env: &Env, plan: &Plan, task: &dyn Task) -> Result<Outcome, TaskError> {
    task.run(&TaskContext::new(env, now(), plan, &plan.tasks[0])).await
}

fn plan(recipe: &str) -> Plan {
    let yaml = format!("{{name: {recipe}, tasks: [{{type: mark-ready}}]}}");
    let seed = PlanSeed { uid: "uid", target_hash: "v1:x", now: now(), attempt: 0, disambiguator: "" };
    Recipe::parse(&yaml).unwrap().plan(seed)
}

/// What a task waits for, or its outcome in words.
fn said(outcome: &Result<Outcome, TaskError>) -> String {
    match outcome {
        Ok(Outcome::Done) => "done".to_owned(),
        Ok(Outcome::Waiting { message, .. }) => message.clone(),
        Ok(Outcome::Invalidated { reason, message }) => format!("{reason}: {message}"),
        Err(TaskError::Terminal { message }) => format!("failed: {message}"),
        Err(TaskError::Transient { message, retry_after }) => format!("again {retry_after:?}: {message}"),
        Ok(Outcome::Progress { .. } | Outcome::Skipped { .. }) => {
            format!("{outcome:?}")
        }
    }
}

/// Makes the pods match these nodes, in the cache and, if the test expects nothing else, in the API server.
fn pods_are_as_said<'a>(view: &View, cluster: &mut MockCluster, nodes: impl IntoIterator<Item = &'a Value>) {
    let mut pods = Vec::new();
    for node in nodes {
        let name = format!("{}-0", node["metadata"]["name"].as_str().unwrap_or_default());
        let ready = &node["status"]["conditions"][0]["status"];
        let mut metadata = meta(&name, "pod-1", 1, None);
        metadata["labels"] =
            json!({"windlass.dev/deployment": "db", "windlass.dev/node": node["metadata"]["name"]});
        let pod = json!({
            "metadata": metadata,
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        // A pod that the test put into the cache before is newer, and stays.
        view.observe(Kind::Pod, &pod);
        pods.push(LivePod::read(&pod));
    }
    cluster.expect_live_pods().returning(move |_, _| Ok(pods.clone()));
}

fn conflict() -> ClusterError {
    ClusterError::Conflict { object: "x".to_owned(), message: "it changed".to_owned() }
}

fn refused() -> ClusterError {
    ClusterError::Refused { object: "x".to_owned(), message: "spec.x: no".to_owned() }
}

fn overloaded() -> ClusterError {
    let retry_after = Some(Duration::from_secs(7));
    ClusterError::Transient { object: "x".to_owned(), message: "slow down".to_owned(), retry_after }
}

#[test]
fn builtin_tasks_can_run_every_builtin_recipe() {
    let registry = Registry::builtin_recipes();
    registry.check_all().unwrap();
    let shapes: Vec<(String, Vec<&str>)> = registry
        .recipes()
        .map(|r| (r.name.clone(), r.tasks.iter().map(|t| t.type_.as_str()).collect()))
        .collect();
    let expected = [
        (
            "BlueGreen",
            vec![
                "create-entrants",
                "await-nodes-running",
                "await-caught-up",
                "await-promotion",
                "switch-traffic",
                "retire-incumbents",
            ],
        ),
        (
            "BlueGreenImmediate",
            vec!["retire-incumbents", "create-entrants", "await-nodes-running", "switch-traffic"],
        ),
        ("GrowClaims", vec!["expand-claims", "await-expansion", "replace-stateful-set"]),
        (
            "HardFork",
            vec![
                "create-entrants",
                "submit-halt",
                "await-nodes-at-height",
                "switch-traffic",
                "retire-incumbents",
            ],
        ),
        ("InPlace", vec!["update-node-specs", "await-spec-update", "mark-ready"]),
        ("MarkReady", vec!["mark-ready"]),
        ("MoveNode", vec!["replace-pod", "mark-ready"]),
        (
            "NodeUpdate",
            vec!["apply-stateful-set", "apply-service", "replace-pod", "observe-image", "mark-ready"],
        ),
        ("PodUpdate", vec!["replace-pod", "mark-ready"]),
        ("RemoveNode", vec!["await-removal"]),
        ("RestartNode", vec!["apply-stateful-set", "replace-pod", "mark-ready"]),
    ];
    assert_eq!(shapes, expected.map(|(name, tasks)| (name.to_owned(), tasks)));
}

#[test]
fn only_waiting_builtin_tasks_are_skippable() {
    let registry = Registry::builtin_recipes();
    let mut plans = registry
        .recipes()
        .map(|r| r.plan(PlanSeed { uid: "u", target_hash: "t", now: now(), attempt: 0, disambiguator: "" }));
    assert!(plans.all(|plan| plan.tasks.iter().all(|record| {
        let task = registry.resolve(record).unwrap();
        let with_params = crate::engine::TaskRecord { params: json!({"x": 1}), ..record.clone() };
        let waits = ["mark-ready", "await-caught-up", "await-nodes-at-height"];
        task.policy(&Env::new()).is_skippable() == waits.contains(&record.type_.as_str())
            && registry.resolve(&with_params).is_err()
    })));
}
