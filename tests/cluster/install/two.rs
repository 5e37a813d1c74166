//! The two replicas of a release, with the chart's own arguments: the leader is suspended during a rollout and
//! resumes after the other has taken over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use windlass::clock::monotonic;

use crate::install::installed::{holder, pods};
use windlass_harness::kit::tools::is_up;
use windlass_harness::systems::cluster::{Cluster, Place, applied};

const PATIENCE: Duration = Duration::from_mins(3);
/// The audit log's field with the pod of a token.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const NODES: usize = 3;

async fn patch(place: &Place<'_>, change: Value) {
    let fleets = place.api("windlass.dev/v1alpha1", "NodeDeployment");
    fleets.patch("db", &PatchParams::default(), &Patch::Merge(change)).await.expect("it is patched");
}

async fn until(place: &Place<'_>, what: &str, holds: impl Fn(&Value) -> bool) {
    let until = monotonic() + PATIENCE;
    loop {
        let db = place.get("windlass.dev/v1alpha1", "NodeDeployment", "db").await.unwrap();
        if holds(&db) {
            return;
        }
        assert!(monotonic() < until, "waited in vain until {what}: {:#}", db["status"]);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn settled_at(image: &str) -> impl Fn(&Value) -> bool {
    move |db| {
        let wanted = &db["spec"]["template"]["spec"]["podTemplate"]["spec"]["containers"][0]["image"];
        wanted == image
            && applied(db)
            && db["status"]["rollout"].is_null()
            && db["status"]["readyReplicas"] == NODES
    }
}

/// The process of an operator's pod.
fn process_of(pod: &str) -> u32 {
    let named = format!("HOSTNAME={pod}");
    let has = |pid: &u32, file: &str, what: &str| {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.split(|byte| *byte == 0).any(|part| part == what.as_bytes())
    };
    let all = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let found: Vec<u32> =
        all.filter(|pid| has(pid, "environ", &named) && has(pid, "cmdline", "--leader-elect")).collect();
    assert_eq!(found.len(), 1, "the processes of {pod}: {found:?}");
    found[0]
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success(), "{name} reaches {pid}");
}

/// Polls the fleet's pods, and records how many were down at most.
fn watch_pods(place: &Place<'_>) -> (Arc<AtomicUsize>, Arc<AtomicBool>, tokio::task::JoinHandle<()>) {
    let (worst, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let (api, kept, stop) = (place.api("v1", "Pod"), worst.clone(), over.clone());
    let task = tokio::spawn(async move {
        let of = ListParams::default().labels("windlass.dev/deployment=db");
        while !stop.load(Ordering::Relaxed) {
            let pods = api.list(&of).await.expect("pods").items;
            let serving = pods.iter().filter(|pod| is_up(&json!(pod))).count();
            kept.fetch_max(NODES.saturating_sub(serving), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    (worst, over, task)
}

/// Suspends the leader during a rollout from `from` to `to`.
pub async fn one_sleeps(cluster: &Cluster, place: &Place<'_>, (from, to): (&str, &str)) {
    // A node occupies the wave for a while, so that the rollout takes time.
    patch(place, json!({"spec": {"replicas": NODES, "minReadySeconds": 2}})).await;
    until(place, "there are three nodes", settled_at(from)).await;
    let operators = pods(&place.client, "windlass-system").await;
    let leads = holder(cluster).await;
    let names = operators.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap());
    let leader =
        names.into_iter().find(|name| leads.starts_with(name)).expect("one of the release's pods leads");
    let pid = process_of(leader);
    let mark = cluster.cp.audit_mark().await;
    let (worst, over, watching) = watch_pods(place);

    let container = json!([{"op": "replace", "path": "/spec/template/spec/podTemplate/spec/containers/0/image", "value": to}]);
    let fleets = place.api("windlass.dev/v1alpha1", "NodeDeployment");
    let change = Patch::<()>::Json(serde_json::from_value(container).unwrap());
    fleets.patch("db", &PatchParams::default(), &change).await.expect("it is patched");
    until(place, "the rollout is under way", |db| db["status"]["rollout"]["nodes"]["updated"] == 1).await;
    signal(pid, "STOP");
    // The wave does not advance until the other leads.
    until(place, "the other has moved a node", |db| {
        settled_at(to)(db) || db["status"]["rollout"]["nodes"]["updated"].as_i64() >= Some(2)
    })
    .await;
    let next = holder(cluster).await;
    assert!(!next.is_empty() && next != leads, "the other leads: {next}");
    signal(pid, "CONT");
    until(place, "the rollout is over", settled_at(to)).await;
    over.store(true, Ordering::Relaxed);
    watching.await.expect("the pods were watched");
    assert_eq!(worst.load(Ordering::Relaxed), 1, "so many nodes are down at once at most");

    // The writes by author and time, without the Lease.
    let audit = cluster.cp.audit_since(mark).await.user("system:serviceaccount:windlass-system:windlass");
    let mut times: BTreeMap<String, (String, String)> = BTreeMap::new();
    for entry in
        audit.write_attempts().entries().iter().filter(|entry| entry.object_ref.resource == "statefulnodes")
    {
        let pod =
            entry.user.extra.get(POD_NAME).and_then(|names| names.first()).expect("a pod's token").clone();
        let at = entry.request_received_timestamp.clone();
        let known = times.entry(pod).or_insert_with(|| (at.clone(), at.clone()));
        *known = (known.0.clone().min(at.clone()), known.1.clone().max(at));
    }
    let slept = times.remove(leader).expect("the first leader wrote");
    let woke: Vec<&(String, String)> = times.values().collect();
    assert_eq!(woke.len(), 1, "the other wrote, too: {times:?}");
    assert!(slept.1 < woke[0].0, "no two write at the same time: {slept:?}, {woke:?}");
}
