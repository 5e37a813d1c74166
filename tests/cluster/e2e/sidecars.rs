//! Fake sidecars on loopback: one server for all pods of a namespace. Its state belongs to a pod's UID, as a real
//! sidecar's dies with its pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use windlass_harness::kit::{World, fleet};

#[derive(Default)]
struct Received {
    /// UIDs of the pods that were marked ready.
    ready: BTreeSet<String>,
    /// The task IDs that each pod got, by its name.
    tasks: BTreeMap<String, Vec<String>>,
    /// The height of every application.
    height: i64,
    /// The heights at which pods were asked to halt, by UID and task.
    halts: BTreeMap<(String, String), i64>,
}

#[derive(Clone)]
struct Server {
    told: Arc<Mutex<Received>>,
    pods: Api<DynamicObject>,
}

/// The sidecars of a namespace.
pub struct Sidecars {
    told: Arc<Mutex<Received>>,
    base: String,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Sidecars {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Sidecars {
    /// Serves on a free port of loopback.
    pub async fn start(world: &World) -> Self {
        let told = Arc::new(Mutex::new(Received::default()));
        let server = Server { told: told.clone(), pods: world.pods() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(answer).with_state(server);
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { told, base, serving }
    }

    /// A fleet `db` whose pods have these sidecars.
    pub fn fleet(&self, replicas: i64, image: &str) -> Value {
        let mut fleet = fleet(replicas, image);
        let spec = &mut fleet["spec"]["template"]["spec"];
        // The kubelet fills in the pod's name, the operator the node's.
        spec["sidecar"] = json!({"image": "sidecar:1", "url": format!("{}/{{name}}-0", self.base)});
        let own = json!({"annotations": {"windlass.test/sidecar-url": format!("{}/{{name}}", self.base)}});
        spec["podTemplate"]["metadata"] = own;
        fleet
    }

    /// Sets the height of every application.
    pub fn reach(&self, height: i64) {
        self.told.lock().unwrap().height = height;
    }

    /// The heights at which pods were asked to halt, one per pod and task.
    pub fn halts(&self) -> Vec<i64> {
        self.told.lock().unwrap().halts.values().copied().collect()
    }

    /// The task IDs that a pod's sidecar got, without repeats.
    pub fn tasks(&self, pod: &str) -> Vec<String> {
        self.told.lock().unwrap().tasks.get(pod).cloned().unwrap_or_default()
    }
}

async fn answer(State(server): State<Server>, method: Method, uri: Uri, body: Bytes) -> (StatusCode, String) {
    let path = uri.path().trim_start_matches('/');
    let (pod, what) = path.split_once('/').unwrap_or((path, ""));
    let found = server.pods.get_opt(pod).await.ok().flatten();
    let Some(uid) = found.and_then(|p| p.metadata.uid) else {
        return (StatusCode::NOT_FOUND, String::new());
    };
    let mut told = server.told.lock().unwrap();
    let ready = told.ready.contains(&uid);
    match (method, what) {
        (Method::GET, "readyz") if ready => (StatusCode::OK, String::new()),
        (Method::GET, "readyz") => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
        (Method::GET, "v1/status") => {
            let height = told.height;
            let mut halts = told.halts.iter().filter(|((of, _), _)| *of == uid).map(|(_, at)| *at);
            let halted = halts.any(|at| height >= at);
            let known = (height > 0).then_some(height);
            let said = json!({"ready": ready, "caughtUp": ready, "height": known, "halted": halted});
            (StatusCode::OK, said.to_string())
        }
        (Method::GET, task) if task.starts_with("v1/tasks/") => {
            let id = task.trim_start_matches("v1/tasks/").to_owned();
            let Some(at) = told.halts.get(&(uid, id.clone())) else {
                return (StatusCode::NOT_FOUND, String::new());
            };
            let state = if told.height >= *at { "Complete" } else { "Running" };
            (StatusCode::OK, json!({"id": id, "state": state, "message": ""}).to_string())
        }
        (Method::POST, "v1/tasks") => {
            let task: Value = serde_json::from_slice(&body).unwrap_or_default();
            let id = task["id"].as_str().unwrap_or_default().to_owned();
            if task["type"] == "halt-at-height" {
                let at = task["params"]["height"].as_i64().unwrap();
                told.halts.insert((uid, id.clone()), at);
                let answer = json!({"id": id, "state": "Running", "message": ""});
                return (StatusCode::ACCEPTED, answer.to_string());
            }
            assert_eq!(task["type"], "mark-ready");
            told.ready.insert(uid);
            let known = told.tasks.entry(pod.to_owned()).or_default();
            if known.contains(&id) {
                return (StatusCode::OK, json!({"id": id, "state": "Complete", "message": ""}).to_string());
            }
            known.push(id.clone());
            (StatusCode::ACCEPTED, json!({"id": id, "state": "Complete", "message": ""}).to_string())
        }
        _ => (StatusCode::NOT_FOUND, String::new()),
    }
}
