//! The actions of hooks with the shipped binary: requests, Jobs, queries, approvals, waits; under `kill -9`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use windlass_harness::kit::peers::{Peer, Says, no_data, sample};
use windlass_harness::kit::{World, condition, fleet, with};

/// A namespace with an operator that may call the peer, also as its Prometheus, and may run Jobs.
pub struct Scene {
    pub world: World,
    pub peer: Peer,
}

impl Scene {
    pub async fn new(prefix: &str) -> Self {
        let world = World::without_operator(prefix).await;
        let rights = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac/hook-jobs-one-namespace.yaml");
        world.cp.kubectl(&["-n", &world.ns, "apply", "-f", rights]).await.ok();
        let peer = Peer::start(Says(200, String::new())).await;
        let mut scene = Self { world, peer };
        scene.start().await;
        scene
    }

    pub async fn start(&mut self) {
        let prometheus = format!("http://127.0.0.1:{}", self.peer.port);
        let arguments = ["--hook-host", "127.0.0.1", "--prometheus-url", &prometheus];
        self.world.start_operator(&arguments).await;
    }

    /// Kills the operator with SIGKILL and starts another.
    pub async fn kill(&mut self) {
        self.world.kill_operator().await;
        self.start().await;
    }

    /// A fleet with these hooks. `PORT` in them is the peer's.
    pub async fn fleet(&self, replicas: i64, strategy: Value) {
        let text = strategy.to_string().replace("PORT", &self.peer.port.to_string());
        let strategy: Value = serde_json::from_str(&text).unwrap();
        let loopback = json!({"metadata": {"annotations": {"windlass.test/pod-ip": "loopback"}}});
        let changes =
            json!({"spec": {"template": {"spec": {"podTemplate": loopback}}, "updateStrategy": strategy}});
        self.world.settled_fleet(with(fleet(replicas, "db:1"), &changes)).await;
    }

    pub async fn hooks(&self, hooks: Value) {
        let text = hooks.to_string().replace("PORT", &self.peer.port.to_string());
        let hooks: Value = serde_json::from_str(&text).unwrap();
        self.world.patch_fleet(json!({"spec": {"updateStrategy": {"hooks": hooks}}})).await;
    }

    pub async fn jobs(&self) -> Vec<Value> {
        self.world.list(&self.world.api("batch/v1", "Job")).await
    }

    pub async fn until_jobs(&self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        for _ in 0..600 {
            let jobs = self.jobs().await;
            if holds(&jobs) {
                return jobs;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("waited in vain until {what}: {:#?}", self.jobs().await);
    }

    /// Waits until a task of this type in the fleet's plan has this state and message.
    pub async fn until_task(&self, type_: &str, state: &str, words: &str) -> Value {
        let is = |task: &Value| {
            let message = task["message"].as_str().unwrap_or_default();
            task["type"] == type_ && task["state"] == state && message.contains(words)
        };
        let tasks = |db: &Value| db["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
        let what = format!("{type_} is {state} and says {words:?}");
        let db = self.world.until_db(&what, |db| tasks(db).iter().any(is)).await;
        tasks(&db).into_iter().find(is).unwrap()
    }
}

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no time: {value}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_is_drained_once_despite_operator_kills() {
    let mut scene = Scene::new("drain").await;
    let drain = json!({"name": "drain", "at": "BeforeNode", "http": {
        "url": "http://{{podIP}}:PORT/drain?node={{node}}&from={{fromHash}}&to={{targetHash}}", "method": "POST", "success": "body.state == 'drained'",
        "failure": "body.state == 'failed'", "intervalSeconds": 1, "requestTimeoutSeconds": 1}});
    scene.fleet(2, json!({"type": "InPlace", "hooks": [drain]})).await;
    assert!(scene.peer.asked().is_empty(), "the creation of a node drains nothing");
    let uids = scene.world.pod_uids().await;
    let before = scene.world.db().await["status"]["lastCompletedRolloutHash"].clone();
    scene.peer.answers(Says(200, r#"{"state":"draining"}"#.to_owned()));
    scene.world.set_image("db:2").await;
    let running = |node: &Value| {
        let tasks = node["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
        tasks
            .iter()
            .any(|t| t["type"] == "call-http" && t["state"] == "Running" && t["startedAt"].is_string())
    };
    scene.world.until(&scene.world.nodes(), "db-1", "it is drained", running).await;
    for _ in 0..4 {
        scene.kill().await;
        let asked = scene.peer.asked().len();
        while scene.peer.asked().len() < asked + 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(scene.peer.tasks().len(), 1, "one task asks, whoever runs it");
    assert_eq!(scene.world.pod_uids().await, uids, "nothing goes before it is drained");
    scene.peer.answers(Says(200, r#"{"state":"drained"}"#.to_owned()));
    scene.world.until_applied().await;
    assert_eq!(scene.peer.tasks().len(), 2, "one drain for each node: {:?}", scene.peer.tasks());
    assert!(scene.world.pod_uids().await.iter().all(|uid| !uids.contains(uid)));
    let after = scene.world.db().await["status"]["lastCompletedRolloutHash"].clone();
    let hashes = format!("&from={}&to={}", before.as_str().unwrap(), after.as_str().unwrap());
    assert!(scene.peer.asked().iter().all(|asked| asked.path.ends_with(&hashes)), "{:?}", scene.peer.asked());

    // A failure holds the rollout, and the message has the answer.
    scene.peer.answers(Says(200, r#"{"state":"failed","why":"no quorum"}"#.to_owned()));
    scene.world.set_image("db:3").await;
    let held = |db: &Value| {
        condition(db, "UpToDate") == "False/HookFailed" && condition(db, "Stalled") == "True/HookFailed"
    };
    let db = scene.world.until_db("it holds", held).await;
    let said = db["status"]["conditions"].to_string();
    assert!(said.contains("hook drain of node db-1") && said.contains("no quorum"), "{said}");
    let images = scene.world.images().await;
    assert_eq!(images, ["db:2", "db:2"], "nothing goes");
}

fn backup(image: &str) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "backup", "image": image}]});
    json!([{"name": "backup", "at": "BeforeRollout", "job": {"template": {"backoffLimit": 0, "template": {"spec": pod}}}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn job_before_rollout_runs_once_and_is_deleted_with_its_plan() {
    let mut scene = Scene::new("backup").await;
    scene.fleet(1, json!({"type": "InPlace", "hooks": backup("backup:nope")})).await;
    assert!(scene.jobs().await.is_empty(), "the first creation is no rollout");
    scene.world.set_image("db:2").await;
    for life in [0, 40, 400, 900] {
        tokio::time::sleep(Duration::from_millis(life)).await;
        scene.kill().await;
    }
    let task = scene.until_task("run-job", "Running", "is not complete: 1 of its pods active").await;
    scene.kill().await;
    let jobs = scene.until_jobs("it is made", |jobs| !jobs.is_empty()).await;
    assert_eq!(jobs.len(), 1, "{jobs:#?}");
    let meta = &jobs[0]["metadata"];
    let name = meta["name"].as_str().unwrap();
    assert!(name.starts_with("db-backup-") && name.len() == "db-backup-".len() + 8, "{name}");
    assert_eq!(meta["ownerReferences"][0]["kind"], "NodeDeployment");
    assert_eq!(meta["annotations"]["windlass.dev/task"], task["id"]);
    assert_eq!(jobs[0]["spec"]["ttlSecondsAfterFinished"], 3600);
    let node = scene.world.get(&scene.world.nodes(), "db-0").await;
    assert_eq!(node["status"]["currentImage"], "db:1", "nothing begins before it is done");

    // A new target supersedes it: its Job is deleted, and another one is created.
    let first = name.to_owned();
    scene.world.set_image("db:3").await;
    let is_other = |jobs: &[Value]| jobs.len() == 1 && jobs[0]["metadata"]["name"] != first.as_str();
    let second =
        scene.until_jobs("the superseded plan's Job is gone", is_other).await[0]["metadata"]["name"].clone();
    // An abort deletes its Job, too.
    let plan = scene.world.db().await["status"]["plan"]["id"].clone();
    scene.world.patch_fleet(json!({"metadata": {"annotations": {"windlass.dev/abort": plan}}})).await;
    scene.until_jobs("the aborted plan's Job is gone", <[Value]>::is_empty).await;

    // A failed one holds with its own message; a retry is another Job of the same task.
    scene.hooks(backup("backup:crash")).await;
    scene.world.set_image("db:4").await;
    let failed = scene.until_task("run-job", "Failed", "BackoffLimitExceeded").await;
    scene.hooks(backup("backup:1")).await;
    let db = scene.world.db().await;
    let retry = json!({"metadata": {"annotations": {"windlass.dev/retry": db["status"]["plan"]["id"]}}});
    scene.world.patch_fleet(retry).await;
    let db = scene.world.until_applied().await;
    let done = db["status"]["plan"]["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["type"] == "run-job")
        .unwrap()
        .clone();
    assert_eq!(
        (&done["id"], &done["state"], &done["attempt"]),
        (&failed["id"], &json!("Complete"), &json!(2))
    );
    let of_task = scene
        .jobs()
        .await
        .into_iter()
        .filter(|job| job["metadata"]["annotations"]["windlass.dev/task"] == failed["id"]);
    let attempts: Vec<Value> =
        of_task.map(|job| job["metadata"]["annotations"]["windlass.dev/attempt"].clone()).collect();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(scene.jobs().await.iter().all(|job| job["metadata"]["name"] != second));
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_waits_for_query_approval_and_final_soak() {
    let mut scene = Scene::new("canary").await;
    let hooks = json!([
        {"name": "errors", "at": "AfterStep", "query": {"promql": "errors{fleet=\"{{fleet}}\"}", "success": "scalar < 0.05",
            "failure": "scalar > 0.5", "intervalSeconds": 1, "count": 2, "failureLimit": 1}},
        {"name": "go", "at": "AfterStep", "approval": {}},
        {"name": "soak", "at": "AfterRollout", "wait": {"seconds": 3}},
    ]);
    scene.fleet(2, json!({"type": "InPlace", "inPlace": {"steps": [1, "100%"]}, "hooks": hooks})).await;
    scene.peer.answers(no_data());
    scene.world.set_image("db:2").await;
    scene.until_task("check-query", "Running", "no data").await;
    scene.peer.answers(sample("0.7"));
    scene.until_task("check-query", "Running", "1 failures of at most 1").await;
    scene.peer.answers(sample("0.01"));
    scene.kill().await;
    let approval = scene.until_task("await-approval", "Running", "waiting for approval").await;
    assert!(approval["message"].as_str().unwrap().contains("windlass approve nd/db"), "{approval}");
    let images = scene.world.images().await;
    assert_eq!(images, ["db:1", "db:2"], "one node is at the new image: {images:?}");
    assert!(scene.peer.asked().iter().all(|a| a.path == "/api/v1/query?query=errors%7Bfleet%3D%22db%22%7D"));
    scene.until_event_of_approval().await;
    let approve = json!({"metadata": {"annotations": {"windlass.dev/approve": approval["id"]}}});
    scene.world.patch_fleet(approve).await;
    let soak = scene.until_task("wait", "Running", "3 s").await;
    scene.kill().await;
    let db = scene.world.until_applied().await;
    let done = db["status"]["plan"]["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["type"] == "wait")
        .unwrap()
        .clone();
    assert_eq!(done["startedAt"], soak["startedAt"]);
    assert!((time(&done["finishedAt"]) - time(&done["startedAt"])).num_milliseconds() >= 3_000, "{done}");
}

impl Scene {
    async fn until_event_of_approval(&self) {
        let note = self.world.until_event("db", "ApprovalRequested").await;
        assert!(note.contains("go"), "{note}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn unsupported_hooks_are_refused_by_name() {
    let world = World::without_operator("badhook").await;
    let rights = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac/hook-jobs-one-namespace.yaml");
    world.cp.kubectl(&["-n", &world.ns, "apply", "-f", rights]).await.ok();
    let peer = Peer::start(Says(200, String::new())).await;
    let mut scene = Scene { world, peer };
    scene.world.start_operator(&["--hook-host", "127.0.0.1"]).await;
    scene.fleet(1, json!({"type": "InPlace"})).await;
    let uids = scene.world.pod_uids().await;
    let misspelt = json!({"backofLimit": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]}}});
    let forever = json!({"template": {"spec": {"containers": [{"name": "a", "image": "a:1"}]}}});
    let other = json!({"url": "http://kubernetes.default.svc/"});
    for (hook, words) in [
        (json!({"name": "bad", "at": "BeforeNode", "http": other}), "kubernetes.default.svc"),
        (json!({"name": "bad", "at": "BeforeNode", "job": {"template": misspelt}}), "backofLimit"),
        (json!({"name": "bad", "at": "BeforeRollout", "job": {"template": forever}}), "restartPolicy"),
    ] {
        scene.hooks(json!([hook])).await;
        let says = |db: &Value| {
            let said = db["status"]["conditions"].as_array().into_iter().flatten();
            let up_to_date = said.into_iter().find(|c| c["type"] == "UpToDate");
            let message = up_to_date.and_then(|c| c["message"].as_str()).unwrap_or_default();
            condition(db, "UpToDate") == "False/InvalidSpec"
                && message.contains("hook bad: ")
                && message.contains(words)
        };
        scene.world.until_db(&format!("it is InvalidSpec and says {words:?}"), says).await;
    }
    // It starts no rollout.
    scene.world.set_image("db:2").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(scene.world.pod_uids().await, uids);
    assert!(scene.jobs().await.is_empty() && scene.peer.asked().is_empty());
    scene.hooks(json!([])).await;
    scene.world.until_applied().await;
    assert_eq!(scene.world.images().await, ["db:2"]);
}
