//! Hook actions in custom recipes, on a real control plane: `params: {hook: NAME}` names a hook of the fleet.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass::engine::Recipe;
use windlass::hooks::{Host, PrometheusUrl};
use windlass::operator::Operator;

use windlass_harness::kit::peers::{Manner, Peer, no_data, sample};
use windlass_harness::kit::{World, fleet, with};

/// A namespace with an operator whose nodes have one more task before their pod is replaced: the hook `step`.
struct Scene {
    world: World,
    peer: Peer,
    type_: &'static str,
    operator: JoinHandle<()>,
}

impl Scene {
    /// A fleet of one node whose hook has run once. `PORT` in it is the peer's.
    async fn new(prefix: &str, type_: &'static str, hook: &Value) -> Self {
        let scene = Self::new_without_waiting(prefix, type_, hook).await;
        scene.world.until_applied().await;
        scene
    }

    async fn new_without_waiting(prefix: &str, type_: &'static str, hook: &Value) -> Self {
        let world = World::without_operator(prefix).await;
        let rights = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac/hook-jobs-one-namespace.yaml");
        world.cp.kubectl(&["-n", &world.ns, "apply", "-f", rights]).await.ok();
        let peer = Peer::start(Manner::Says(200, r#"{"state":"drained"}"#.to_owned())).await;
        let operator = start(&world, &peer, type_).await;
        let scene = Self { world, peer, type_, operator };
        scene.world.fleet(scene.fleet(hook)).await;
        scene
    }

    fn fleet(&self, hook: &Value) -> Value {
        // A point that this plan does not have: only the recipe has the task.
        let mut step = json!({"name": "step", "at": "BeforeRemove"});
        let text = hook.to_string().replace("PORT", &self.peer.port.to_string());
        let hook: Value = serde_json::from_str(&text).unwrap();
        step.as_object_mut().unwrap().extend(hook.as_object().unwrap().clone());
        let loopback = json!({"annotations": {"windlass.test/pod-ip": "loopback"}});
        let changes = json!({"spec": {
            "template": {"spec": {"podTemplate": {"metadata": loopback}}},
            "updateStrategy": {"hooks": [step]},
        }});
        with(fleet(1, "db:1"), &changes)
    }

    async fn set_hook(&self, hook: &Value) {
        let hooks = self.fleet(hook)["spec"]["updateStrategy"]["hooks"].clone();
        self.world.patch_fleet(json!({"spec": {"updateStrategy": {"hooks": hooks}}})).await;
    }

    async fn another_operator(&mut self) {
        self.operator.abort();
        let _ = (&mut self.operator).await;
        self.operator = start(&self.world, &self.peer, self.type_).await;
    }

    /// Waits until the node's task has this state and message; returns the task.
    async fn until_step(&self, state: &str, words: &str) -> Value {
        let what = format!("{} is {state} and says {words:?}", self.type_);
        let is = |task: &Value| {
            task["type"] == self.type_
                && task["state"] == state
                && task["message"].as_str().unwrap_or_default().contains(words)
        };
        let holds = |node: &Value| {
            node["status"]["plan"]["tasks"].as_array().is_some_and(|tasks| tasks.iter().any(is))
        };
        let node = self.world.until(&self.world.nodes(), "db-0", &what, holds).await;
        node["status"]["plan"]["tasks"].as_array().unwrap().iter().find(|task| is(task)).unwrap().clone()
    }

    async fn jobs(&self) -> Vec<Value> {
        self.world.list(&self.world.api("batch/v1", "Job")).await
    }

    /// Sets another image, and waits until the plan is at the task.
    async fn roll(&self) {
        self.world.set_image("db:2").await;
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.operator.abort();
    }
}

async fn start(world: &World, peer: &Peer, type_: &str) -> JoinHandle<()> {
    let token = world.cp.service_account_token(&world.ns, "windlass").await.expect("a token");
    let client = world.cp.client_for_token(&token).await;
    let recipe = |name: &str, rest: &str| {
        let yaml = format!(
            "{{name: {name}, tasks: [{{type: apply-stateful-set}}, {rest}{{type: {type_}, params: {{hook: step}}}}, \
             {{type: replace-pod}}, {}{{type: mark-ready}}]}}",
            if name == "NodeUpdate" { "{type: observe-image}, " } else { "" }
        );
        Recipe::parse(&yaml).expect("a recipe")
    };
    let operator = Operator::new(client)
        .recipe(recipe("NodeUpdate", "{type: apply-service}, "))
        .namespaces([world.ns.to_string()])
        .hook_host(Host::parse("127.0.0.1").expect("a host"))
        .prometheus(PrometheusUrl::parse(&format!("http://127.0.0.1:{}", peer.port)).expect("a URL"));
    tokio::spawn(async { operator.run(std::future::pending()).await.expect("it runs") })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_sent_until_it_is_a_success_and_a_failure_holds() {
    let drain = json!({"timeoutSeconds": 60, "http": {
        "url": "http://{{podIP}}:PORT/drain?node={{node}}&ordinal={{ordinal}}&set={{set}}", "method": "POST",
        "headers": [{"name": "Authorization", "secretKeyRef": {"name": "drain", "key": "token"}}, {"name": "X-Fleet", "value": "{{fleet}}"}],
        "body": "{\"pod\":\"{{pod}}\",\"image\":\"{{image}}\",\"task\":\"{{taskID}}\"}",
        "success": "body.state == 'drained'", "failure": "body.state == 'failed'",
        "intervalSeconds": 1, "requestTimeoutSeconds": 1}});
    // Its Secret comes late: nothing is sent before.
    let scene = Scene::new_without_waiting("hook-http", "call-http", &drain).await;
    scene.until_step("Running", "does not exist").await;
    assert!(scene.peer.asked().is_empty());
    let secret = json!({"metadata": {"name": "drain"}, "stringData": {"token": "Bearer s3cret\n"}});
    scene.world.create("v1", "Secret", secret).await;
    scene.world.until_applied().await;
    let at_first = scene.peer.tasks();
    let uids = scene.world.pod_uids().await;

    let mut scene = scene;
    scene.peer.answers(Manner::Swallows);
    scene.roll().await;
    scene.until_step("Running", "did not answer in time").await;
    for (manner, words) in [
        (Manner::Says(503, "starting".to_owned()), "answered 503: starting"),
        (Manner::Says(200, "<html>".to_owned()), "answered 200: <html>"),
        (Manner::Endless, "more than is read"),
        (Manner::Elsewhere(format!("http://127.0.0.1:{}/elsewhere", scene.peer.port)), "answered 302"),
        (Manner::Says(500, r#"{"state":"starting"}"#.to_owned()), "answered 500"),
    ] {
        scene.peer.answers(manner);
        scene.until_step("Running", words).await;
    }
    scene.another_operator().await;
    assert_eq!(scene.world.pod_uids().await, uids, "nothing of it lets the pod go");
    scene.peer.answers(Manner::Late(Duration::from_millis(500), 200, r#"{"state":"drained"}"#.to_owned()));
    scene.world.until_applied().await;
    assert_eq!(scene.world.images().await, ["db:2"]);

    let all = scene.peer.asked();
    assert!(all.iter().all(|asked| !asked.path.contains("elsewhere")), "no redirect is followed");
    let tasks = scene.peer.tasks();
    let task = tasks.last().unwrap();
    assert_eq!(tasks.len(), at_first.len() + 1, "the other operator asks under the same ID: {tasks:?}");
    let last = all.last().unwrap();
    assert_eq!((last.method.as_str(), last.path.as_str()), ("POST", "/drain?node=db-0&ordinal=0&set=first"));
    assert_eq!(last.body, format!(r#"{{"pod":"db-0-0","image":"db:2","task":"{task}"}}"#));
    let header = |name: &str| last.headers.get(name).map(String::as_str);
    assert_eq!(header("authorization"), Some("Bearer s3cret"));
    assert_eq!((header("x-fleet"), header("windlass-attempt")), (Some("db"), Some("1")));

    scene.peer.answers(Manner::Says(200, r#"{"state":"failed","why":"no quorum"}"#.to_owned()));
    scene.world.set_image("db:3").await;
    let failed = scene.until_step("Failed", "no quorum").await;
    let said = failed["message"].as_str().unwrap();
    assert!(said.starts_with("hook step of db-0: POST http://127."), "{said}");
    let node = scene.world.get(&scene.world.nodes(), "db-0").await;
    assert_eq!(node["status"]["plan"]["state"], "Active", "its plan holds");
    assert_eq!(scene.world.images().await, ["db:2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_one_job_whatever_is_killed_and_one_that_fails_says_why() {
    let pod = json!({"restartPolicy": "Never", "containers": [
        {"name": "backup", "image": "backup:1", "env": [{"name": "TO", "value": "$(WINDLASS_NODE)"}]}]});
    let template = json!({"backoffLimit": 0, "template": {"spec": pod}});
    let mut scene = Scene::new("hook-job", "run-job", &json!({"job": {"template": template}})).await;
    let first = scene.jobs().await;
    assert_eq!(first.len(), 1);
    let job = &first[0];
    assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 3600);
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "StatefulNode", "{job:#}");
    let variables = job["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let variable = |name: &str| {
        variables.iter().find(|v| v["name"] == name).and_then(|v| v["value"].as_str()).unwrap_or("none")
    };
    assert_eq!((variable("WINDLASS_NODE"), variable("WINDLASS_POD")), ("db-0", "db-0-0"));
    assert_eq!((variable("WINDLASS_FLEET"), variable("WINDLASS_NAMESPACE")), ("db", &*scene.world.ns));

    // It runs until the test releases it, while the operator dies again and again.
    let stuck = json!({"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "backup", "image": "backup:nope"}]}}});
    scene.set_hook(&json!({"timeoutSeconds": 6, "job": {"template": stuck}})).await;
    scene.roll().await;
    let task = scene.until_step("Running", "is not complete: 1 of its pods active, 0 of them ready").await;
    for _ in 0..3 {
        scene.another_operator().await;
        scene.until_step("Running", "is not complete").await;
    }
    let jobs = scene.jobs().await;
    assert_eq!(jobs.len(), 2, "one Job for each task: {jobs:#?}");
    let of_task = jobs.iter().find(|job| job["metadata"]["annotations"]["windlass.dev/task"] == task["id"]);
    let name = of_task.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("db-0-step-") && name.len() == "db-0-step-".len() + 8, "{name}");
    scene.until_step("Failed", "no success within 6 s").await;
    let gone = async |name: &str| scene.jobs().await.iter().all(|job| job["metadata"]["name"] != name);
    let mut looks = 0;
    while !gone(&name).await {
        looks += 1;
        assert!(looks < 100, "what is late goes");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let node = scene.world.get(&scene.world.nodes(), "db-0").await;
    assert_eq!(node["status"]["currentImage"], "db:1");

    // A new target has a new plan; its Job fails with its own message.
    let crash = json!({"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "backup", "image": "backup:crash"}]}}});
    scene.set_hook(&json!({"timeoutSeconds": 60, "job": {"template": crash}})).await;
    scene.world.set_image("db:3").await;
    scene.until_step("Failed", "failed: BackoffLimitExceeded: Job has reached").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_asked_until_it_is_a_success_so_often_in_a_row() {
    let errors = json!({"timeoutSeconds": 60, "query": {"promql": "errors{node=\"{{node}}\"}", "success": "scalar < 0.05",
        "failure": "scalar > 0.5", "intervalSeconds": 1, "count": 2, "failureLimit": 1}});
    let mut scene = Scene::new_without_waiting("hook-query", "check-query", &errors).await;
    scene.until_step("Running", "not as a Prometheus does").await;
    scene.peer.answers(no_data());
    scene.until_step("Running", "no data").await;
    scene.peer.answers(sample("0.7"));
    scene.until_step("Running", "1 failures of at most 1").await;
    scene.peer.answers(sample("0.1"));
    scene.until_step("Running", "answered 0.1; 0 of 2 successes in a row").await;
    scene.another_operator().await;
    scene.peer.answers(sample("0.01"));
    scene.world.until_applied().await;
    let asked = scene.peer.asked();
    assert!(asked.iter().all(|a| a.path == "/api/v1/query?query=errors%7Bnode%3D%22db-0%22%7D"), "{asked:?}");

    // The counts survive the operator: the second failure is one too many.
    scene.peer.answers(sample("0.7"));
    scene.roll().await;
    scene.until_step("Running", "1 failures of at most 1").await;
    scene.peer.answers(no_data());
    scene.until_step("Running", "no data").await;
    scene.another_operator().await;
    scene.peer.answers(sample("0.9"));
    scene.until_step("Failed", "answered 0.9; 0 of 2 successes in a row, 2 failures of at most 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_waited_for_and_so_is_a_time() {
    let scene = Scene::new_without_waiting("hook-person", "await-approval", &json!({"approval": {}})).await;
    let task = scene
        .until_step("Running", "waiting for a person to approve hook step of db-0: windlass approve nd/db")
        .await;
    let approve = json!({"metadata": {"annotations": {"windlass.dev/approve": task["id"]}}});
    scene.world.patch(&scene.world.nodes(), "db-0", approve).await;
    scene.world.until_applied().await;

    drop(scene);
    let mut scene = Scene::new("hook-wait", "wait", &json!({"wait": {"seconds": 4}})).await;
    scene.roll().await;
    let task = scene.until_step("Running", "waiting for 4 s").await;
    let began: chrono::DateTime<chrono::Utc> = task["startedAt"].as_str().unwrap().parse().unwrap();
    scene.another_operator().await;
    scene.world.until_applied().await;
    let node = scene.world.get(&scene.world.nodes(), "db-0").await;
    let done = node["status"]["plan"]["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["type"] == "wait")
        .unwrap()
        .clone();
    let ended: chrono::DateTime<chrono::Utc> = done["finishedAt"].as_str().unwrap().parse().unwrap();
    assert_eq!(done["startedAt"], task["startedAt"], "another operator goes on with the same clock");
    assert!((4_000..6_000).contains(&(ended - began).num_milliseconds()), "{done:#}");
}
