//! A real Prometheus with the operator's replicas: an alert fires and is resolved, and each query of the dashboard
//! has an answer.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};
use windlass::clock::monotonic;

use crate::install::helm::path;
use crate::install::installed::{apply, folder, pods, until_applied};
use windlass_harness::debian;
use windlass_harness::systems::cluster::{Cluster, Place};

const PATIENCE: Duration = Duration::from_mins(2);

/// A Prometheus that scrapes every second.
struct Prometheus {
    url: String,
    http: reqwest::Client,
    _child: Child,
}

impl Prometheus {
    fn start(program: &Path, folder: &Path, targets: &[String]) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [path("deploy/monitoring/alerts.yaml")],
            "scrape_configs": [{
                "job_name": "windlass", "honor_labels": true,
                "static_configs": [{"targets": targets}],
            }],
        });
        let file = folder.join("prometheus.yaml");
        std::fs::write(&file, config.to_string()).unwrap();
        let child = Command::new(program)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .expect("Prometheus starts");
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { url: format!("http://127.0.0.1:{port}/api/v1"), http, _child: child }
    }

    async fn get(&self, page: &str, query: &[(&str, &str)]) -> Value {
        let url = reqwest::Url::parse_with_params(&format!("{}/{page}", self.url), query).unwrap();
        let Ok(answer) = self.http.get(url).send().await else { return Value::Null };
        serde_json::from_str(&answer.text().await.unwrap_or_default()).unwrap_or_default()
    }

    async fn query(&self, query: &str) -> Value {
        self.get("query", &[("query", query)]).await
    }

    async fn is_firing(&self, alert: &str) -> bool {
        let alerts = self.get("alerts", &[]).await["data"]["alerts"].as_array().cloned().unwrap_or_default();
        alerts.iter().any(|a| a["labels"]["alertname"] == alert && a["state"] == "firing")
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let until = monotonic() + PATIENCE;
        while !holds().await {
            let alerts = async { self.get("alerts", &[]).await };
            assert!(monotonic() < until, "waited in vain until {what}: {:#}", alerts.await);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// The queries of the dashboard, with the default values of its variables.
fn queries() -> Vec<String> {
    let text = std::fs::read_to_string(path("deploy/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expr = |target: &Value| target["expr"].as_str().unwrap().to_owned();
    targets.map(|target| expr(target).replace("$namespace", ".*").replace("$fleet", ".*")).collect()
}

/// A stalled rollout fires the alert and its fix resolves it, with a real Prometheus if available.
pub async fn watched(cluster: &Cluster, place: &Place<'_>) {
    let Some(program) = debian::program("prometheus", "usr/bin/prometheus") else { return };
    let promtool = debian::program("prometheus", "usr/bin/promtool").expect("it is of the same package");
    let pods = pods(&place.client, "windlass-system").await;
    let targets: Vec<String> =
        pods.iter().map(|pod| format!("{}:8080", pod["status"]["podIP"].as_str().unwrap())).collect();
    let page = reqwest::get(format!("http://{}/metrics", targets[0])).await.unwrap().text().await.unwrap();
    crate::install::rules::check_metrics(&promtool, &page);
    let prometheus = Prometheus::start(&program, &folder(cluster, "prometheus"), &targets);
    let ns = &*place.ns;
    let one = |metric: &str| format!("{metric}{{namespace=\"{ns}\",name=\"db\"}}");
    prometheus
        .until("the fleet is known", async || {
            let seen = prometheus.query(&one("windlass_fleet_up_to_date")).await;
            seen["data"]["result"][0]["value"][1] == "1"
        })
        .await;
    let leaders = prometheus.query("sum(windlass_leader)").await;
    assert_eq!(leaders["data"]["result"][0]["value"][1], "1", "{leaders:#}");
    assert!(!prometheus.is_firing("RolloutStalled").await);

    apply(place, "app:none").await;
    prometheus.until("RolloutStalled fires", async || prometheus.is_firing("RolloutStalled").await).await;
    for query in queries() {
        let answer = prometheus.query(&query).await;
        assert_eq!(answer["status"], "success", "{query}: {answer:#}");
    }
    apply(place, "app:2").await;
    until_applied(place).await;
    prometheus.until("it is resolved", async || !prometheus.is_firing("RolloutStalled").await).await;
    let ended = "windlass_rollout_duration_seconds_count{outcome=\"Complete\"}";
    prometheus
        .until("the rollout is counted", async || {
            !prometheus.query(ended).await["data"]["result"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    // The series that do not depend on rollouts have data by now.
    for query in queries().iter().filter(|query| !query.contains("rollout") && !query.contains("retries")) {
        let answer = prometheus.query(query).await;
        let results = answer["data"]["result"].as_array().map_or(0, Vec::len);
        assert!(results > 0, "{query} has no data: {answer:#}");
    }
}
