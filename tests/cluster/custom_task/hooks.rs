//! Hook actions in custom recipes, on a real control plane: `params: {hook: NAME}` names a hook of the fleet.

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass::engine::Recipe;
use windlass::operator::{Host, Operator, PrometheusUrl};

use windlass_harness::kit::peers::{Peer, Says};
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
        let rights = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac/hook-jobs-one-namespace.yaml");
        world.cp.kubectl(&["-n", &world.ns, "apply", "-f", rights]).await.ok();
        let peer = Peer::start(Says(200, r#"{"state":"drained"}"#.to_owned())).await;
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
#[ignore = "nightly"]
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
