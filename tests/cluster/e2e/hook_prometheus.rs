//! Queries of hooks, with a real Prometheus.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::e2e::hooks::Scene;
use windlass_harness::debian;
use windlass_harness::kit::peers::{Peer, Says};

/// A Prometheus that scrapes a peer every second.
struct Prometheus {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
    /// The scraped peer.
    app: Peer,
}

impl Prometheus {
    /// `None` if Debian's package is unavailable.
    async fn start() -> Option<Self> {
        let program = debian::program("prometheus", "usr/bin/prometheus")?;
        let app = Peer::start(Says(200, String::new())).await;
        let config = json!({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "app", "static_configs": [{"targets": [format!("127.0.0.1:{}", app.port)]}]}],
        });
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hook-prometheus-{port}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("prometheus.yaml"), config.to_string()).expect("its configuration");
        let mut prometheus = Self { program, folder, port, child: None, app };
        prometheus.run();
        Some(prometheus)
    }

    fn run(&mut self) {
        let place = |name: &str| self.folder.join(name).display().to_string();
        let child = Command::new(&self.program)
            .arg(format!("--config.file={}", place("prometheus.yaml")))
            .arg(format!("--storage.tsdb.path={}", place("data")))
            .arg(format!("--web.listen-address=127.0.0.1:{}", self.port))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.folder.join("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .expect("Prometheus starts");
        self.child = Some(child);
    }

    fn measures(&self, lines: &str) {
        self.app.answers(Says(200, lines.to_owned()));
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn query(promql: &str, success: &str, more: &Value) -> Value {
    let mut query = json!({"promql": promql, "success": success, "intervalSeconds": 1});
    query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!([{"name": "errors", "at": "BeforeRollout", "query": query}])
}

/// A fleet whose operator queries this Prometheus.
async fn scene(prefix: &str, prometheus: &Prometheus) -> Scene {
    let mut scene = Scene::new(prefix).await;
    scene.world.kill_operator().await;
    let url = format!("http://127.0.0.1:{}", prometheus.port);
    scene.world.start_operator(&["--prometheus-url", &url]).await;
    scene.fleet(1, json!({"type": "InPlace"})).await;
    scene
}

/// Rolls out an image; returns the query's task after the rollout.
async fn rolls(scene: &Scene, image: &str, hooks: Value) -> Value {
    scene.hooks(hooks).await;
    scene.world.set_image(image).await;
    done(scene, image).await
}

async fn done(scene: &Scene, image: &str) -> Value {
    scene.world.until_pod_runs("db-0-0", image).await;
    let db = scene.world.until_applied().await;
    db["status"]["plan"]["tasks"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn query_accepts_scalar_or_vector_and_reports_other_types() {
    let Some(prometheus) = Prometheus::start().await else { return };
    prometheus.measures("app_lag{pod=\"a\"} 1\napp_lag{pod=\"b\"} 2\n");
    let scene = scene("prom-types", &prometheus).await;
    let none = json!({});
    let vector = "size(result) == 2 && result.all(r, r.value < 3.0) && result.exists(r, r.labels.pod == 'b') \
                  && scalar == null";
    for (image, promql, success) in [
        ("db:2", "1 + 1", "scalar == 2.0 && size(result) == 1"),
        ("db:3", "app_lag", vector),
        ("db:4", "max(app_lag)", "scalar == 2.0"),
        ("db:5", "vector(0) / vector(0)", "scalar != scalar"),
        ("db:6", "vector(1) / vector(0)", "scalar > 1e300"),
    ] {
        let task = rolls(&scene, image, query(promql, success, &none)).await;
        assert_eq!((&task["type"], &task["state"]), (&json!("check-query"), &json!("Complete")), "{promql}");
    }
    // These are no failures: the query is repeated, and the message says what is wrong.
    scene.world.set_image("db:7").await;
    for (promql, success, words) in [
        ("app_lag[1m]", "true", "answered with a matrix"),
        ("app_lag{", "true", "answered 400: "),
        ("app_lag", "scalar < 3.0", "cannot be evaluated"),
        ("vector(0) / vector(0)", "scalar < 1.0 || scalar >= 1.0", "answered NaN; "),
        ("app_nothing", "true", "answered with no data"),
    ] {
        scene.hooks(query(promql, success, &none)).await;
        scene.until_task("check-query", "Running", words).await;
    }
    scene.hooks(query("1", "scalar == 1.0", &none)).await;
    done(&scene, "db:7").await;
}
