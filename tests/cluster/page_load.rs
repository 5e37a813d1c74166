//! Large fleets on the page, in a real browser: one of 1,000 nodes that change 60 times a second, and one of 10,000
//! at rest, on a simulated cluster with the shipped page. Prints the measurements of docs/dashboard.md.
//!
//! What is timed is timed alone: in the nightly run, one test after the other.

use std::time::{Duration, Instant};

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use windlass_sim::{Cluster, Options};

use windlass_harness::page::browser::{Browser, pictures};
use windlass_harness::page::dashboard::Dashboard;

const NAMESPACE: &str = "default";
/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn installed(nodes: usize, updated: usize) -> Cluster {
    let cluster = Cluster::start(Options::seeded(1));
    for definition in windlass::api::crd::crds() {
        cluster.install(json!(definition)).unwrap();
    }
    let rolls = updated < nodes;
    let template = json!({"image": "registry.example/db:1.2", "podTemplate": {"spec": {"containers": [{"name": "db"}]}}});
    let at = "2026-01-01T04:00:00Z";
    let said = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "lastTransitionTime": at});
    let status = if rolls {
        json!({"observedGeneration": 1, "phase": "Upgrading", "replicas": nodes, "activeSet": "first",
            "rollout": {"strategy": "InPlace", "cause": "TemplateChanged", "stage": "Updating", "startedAt": at,
                "lastProgressAt": at, "summary": format!("Updating {updated}/{nodes}"), "message": "waiting for db-7",
                "nodes": {"total": nodes, "updated": updated, "ready": nodes - 60, "disrupted": 60, "failed": 0}},
            "plan": {"id": "p", "recipe": "InPlace", "targetHash": "v1:a", "state": "Active", "startedAt": at, "tasks": [
                {"id": "p-0", "type": "update-node-specs", "state": "Running", "startedAt": at}]},
            "conditions": [said("UpToDate", "Unknown", "Applying"), said("Reconciling", "True", "Progressing")]})
    } else {
        json!({"observedGeneration": 1, "phase": "Ready", "replicas": nodes, "activeSet": "first",
            "conditions": [said("Ready", "True", "AllNodesReady"), said("UpToDate", "True", "Applied"),
                said("Stalled", "False", "Progressing"), said("Reconciling", "False", "Settled")]})
    };
    let uid = "00000000-0000-4000-8000-000000000001";
    let fleet = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment",
        "metadata": {"name": "db", "namespace": NAMESPACE, "uid": uid, "generation": 1},
        "spec": {"replicas": nodes, "template": {"spec": template},
            "updateStrategy": {"type": "InPlace", "inPlace": {"maxUnavailable": 60}}}});
    cluster.install(fleet).unwrap();
    say(&api(&cluster, "NodeDeployment"), "db", status).await;
    let api = api(&cluster, "StatefulNode");
    let owner = fleet_uid(&cluster);
    for ordinal in 0..nodes {
        let name = format!("db-{ordinal}");
        let mut spec = template.clone();
        spec["grantedHash"] = json!("v1:a");
        let node = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"windlass.dev/deployment": "db"},
                "ownerReferences": [{"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "name": "db",
                    "uid": owner, "controller": true}]},
            "spec": spec});
        cluster.install(node).unwrap();
        say(&api, &name, status_of(ordinal, rolls && ordinal < 60, 0)).await;
    }
    cluster
}

fn api(cluster: &Cluster, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("windlass.dev", "v1alpha1", kind));
    Api::namespaced_with(cluster.client("test", NAMESPACE), NAMESPACE, &kind)
}

async fn say(api: &Api<DynamicObject>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

fn fleet_uid(cluster: &Cluster) -> String {
    let fleet = cluster.get("windlass.dev/v1alpha1", "NodeDeployment", NAMESPACE, "db").unwrap();
    fleet["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A node's status: at rest, or moving at this step.
fn status_of(ordinal: usize, moves: bool, step: usize) -> Value {
    let at = "2026-01-01T04:00:01Z";
    let ready = json!([{"type": "Ready", "status": if moves { "False" } else { "True" }, "reason": "NodeReady", "lastTransitionTime": at}]);
    let plan = json!({"id": format!("n{ordinal}"), "recipe": "NodeUpdate", "targetHash": "v1:a",
        "state": if moves { "Active" } else { "Complete" }, "startedAt": at,
        "finishedAt": if moves { Value::Null } else { json!("2026-01-01T04:00:31Z") },
        "tasks": [{"id": format!("n{ordinal}-0"), "type": "replace-pod", "state": if moves { "Running" } else { "Complete" },
            "startedAt": at, "message": format!("step {step}")}]});
    json!({"observedGeneration": 1, "phase": if moves { "Updating" } else { "Running" },
        "currentImage": "registry.example/db:1.2", "podTemplateHash": "v1:a", "conditions": ready, "plan": plan})
}

/// A kubeconfig of a cluster that is served here.
async fn served(cluster: &Cluster) -> std::path::PathBuf {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(cluster.serve(listener));
    let file = pictures().join(format!("kubeconfig-{}", address.port()));
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": NAMESPACE}}]});
    std::fs::write(&file, text.to_string()).unwrap();
    file
}

/// What the browser measures on a page that it opens and that shows these words, once it is within the bounds. The machine
/// may be busy for a while; a page that stalls does so each time it is opened: the test fails if three measurements are
/// outside.
async fn smooth(
    browser: &mut Browser,
    (url, of, words): (&str, &str, &str),
    question: &Value,
    within: impl Fn(&Value) -> bool,
) -> Value {
    let mut seen = Vec::new();
    for _ in 0..3 {
        browser.go(url).await;
        browser.wait(of, words).await;
        let page = browser.ask(question.clone()).await;
        if within(&page) {
            return page;
        }
        seen.push(page);
    }
    panic!("it stalls: {seen:?}");
}

fn is_below(seen: &Value, figure: &str, bound: f64) -> bool {
    seen[figure].as_f64().is_some_and(|value| value < bound)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: it is timed alone"]
async fn a_thousand_nodes_that_change_sixty_times_a_second_do_not_stall_it() {
    let _alone = ALONE.lock().await;
    let Some(mut browser) = Browser::start().await else { return };
    let cluster = installed(1_000, 500).await;
    let kubeconfig = served(&cluster).await;
    let page = Dashboard::start(&kubeconfig, &[]).await;
    let nodes = api(&cluster, "StatefulNode");
    let changing = tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_micros(16_667));
        for step in 1.. {
            every.tick().await;
            // Sixty are moving; at each step one stops and another starts.
            let (gone, come) = ((step - 1) % 1_000, (step + 59) % 1_000);
            for (ordinal, moves) in [(gone, false), (come, true)] {
                say(&nodes, &format!("db-{ordinal}"), status_of(ordinal, moves, step)).await;
            }
        }
    });
    browser.go(&page.url).await;
    let fleet = page.at("/fleets/default/db");
    let seen =
        smooth(&mut browser, (&fleet, "#live", "Live"), &json!({"do": "smooth", "seconds": 10}), |seen| {
            // Single frames may be late on a busy machine; if most are, it stalls.
            let keeps_up = is_below(seen, "p99", 250.0) && is_below(seen, "worst", 2_500.0);
            // It is live: more changes than the ages, which tick each second. Scripts and drawing do not keep it busy.
            keeps_up && seen["changes"].as_u64() > Some(20) && is_below(seen, "busy", 3_000.0)
        })
        .await;
    println!("1,000 nodes, 120 changes a second: {seen}");
    browser.ask(json!({"do": "picture", "file": pictures().join("thousand.png")})).await;
    assert!(!changing.is_finished(), "it went on changing");
    changing.abort();
    // It keeps up to the end: the last write is shown.
    let last = Duration::from_secs(5);
    let until = Instant::now() + last;
    let shown = loop {
        let shown = browser.text("#nodes").await;
        let on_their_way = cluster
            .snapshot_of(NAMESPACE, &["StatefulNode"])
            .iter()
            .filter(|node| node["status"]["phase"] == "Updating")
            .count();
        if shown.contains(&format!("{} nodes serve", 1_000 - on_their_way)) || Instant::now() > until {
            break (shown, on_their_way);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(shown.0.contains(&format!("{} nodes serve", 1_000 - shown.1)), "{shown:?}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: it is timed alone"]
async fn ten_thousand_nodes_at_rest_are_smooth() {
    let _alone = ALONE.lock().await;
    let Some(mut browser) = Browser::start().await else { return };
    let cluster = installed(10_000, 10_000).await;
    let kubeconfig = served(&cluster).await;
    let page = Dashboard::start(&kubeconfig, &[]).await;
    browser.go(&page.url).await;
    let (fleet, every_node) = (page.at("/fleets/default/db"), page.at("/fleets/default/db/nodes?page=50"));
    let began = Instant::now();
    browser.go(&fleet).await;
    let first = began.elapsed();
    let within = |seen: &Value| {
        let is_small = seen["elements"].as_u64().is_some_and(|elements| elements < 3_000);
        is_small && is_below(seen, "p99", 250.0) && is_below(seen, "busy", 1_000.0)
    };
    let at_rest = (&*fleet, "#nodes", "10000 nodes serve 1.2");
    let fleet = smooth(&mut browser, at_rest, &json!({"do": "smooth", "seconds": 3}), within).await;
    let began = Instant::now();
    browser.go(&every_node).await;
    let all = began.elapsed();
    let last_page = (&*every_node, "table", "db-9999");
    let scrolled =
        smooth(&mut browser, last_page, &json!({"do": "smooth", "seconds": 3, "scroll": true}), within).await;
    println!("10,000 nodes at rest: opened in {first:?}, {fleet}; every node: opened in {all:?}, {scrolled}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: it is timed alone"]
async fn a_page_whose_server_was_started_again_says_that_it_is_refused() {
    let _alone = ALONE.lock().await;
    let Some(mut browser) = Browser::start().await else { return };
    let cluster = installed(3, 3).await;
    let kubeconfig = served(&cluster).await;
    let page = Dashboard::start(&kubeconfig, &[]).await;
    browser.go(&page.url).await;
    browser.wait("#live", "Live").await;
    let port = page.end().await;
    browser.wait("#live", "the connection is lost, and tried again").await;
    // Another secret opens the other one.
    let _other = Dashboard::start(&kubeconfig, &["--port", &port]).await;
    browser.wait("#live", "the connection is refused: open the address that windlass prints").await;
    browser.close().await;
}
