//! Before a node that serves is taken down, the API server is asked for the fleet's pods: if they differ from what was
//! assumed, no node is taken down.

use super::fleet::{behind, down, fleet, serving};
use chrono::{DateTime, TimeDelta, Utc};

use super::*;
use crate::tasks::{RetireIncumbents, UpdateNodeSpecs};

fn live(name: &str, uid: &str, ready: bool) -> LivePod {
    LivePod { name: name.to_owned(), uid: uid.to_owned(), version: 30, ready, since: None }
}

/// The time of these tests' fleets.
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(2_000_000_000, 0).unwrap()
}

/// A pod as the cache has it.
fn known(name: &str, uid: &str, ready: bool) -> Value {
    let mut metadata = meta(name, uid, 20, None);
    metadata["labels"] =
        json!({"windlass.dev/deployment": "db", "windlass.dev/node": name.strip_suffix("-0")});
    let status = if ready { "True" } else { "False" };
    json!({"metadata": metadata, "status": {"conditions": [{"type": "Ready", "status": status}]}})
}

/// Runs `update-node-specs` twice on these nodes, and returns the nodes that it granted, and what it waits for.
async fn granted(
    nodes: Vec<Value>,
    pods: &[Value],
    listed: Vec<LivePod>,
    by_name: Option<LivePod>,
    reads: usize,
) -> (Vec<String>, String) {
    let (view, mut cluster) = (View::shared(), MockCluster::new());
    for pod in pods {
        view.observe(Kind::Pod, pod);
    }
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let written = log.clone();
    cluster.expect_patch().returning(move |target, _, _| {
        written.lock().unwrap().push(target.name);
        Err(conflict())
    });
    cluster
        .expect_live_pods()
        .times(reads)
        .withf(|namespace, labels| namespace == "shop" && labels == "windlass.dev/deployment=db")
        .returning(move |_, _| Ok(listed.clone()));
    cluster.expect_live_pod().returning(move |_, name| Ok(by_name.clone().filter(|pod| pod.name == name)));
    let env = Env::new().with(fleet(nodes).scope(cluster, &view));
    let outcome = said(&run_in(&env, &plan("InPlace"), &UpdateNodeSpecs::default()).await);
    let again = said(&run_in(&env, &plan("InPlace"), &UpdateNodeSpecs::default()).await);
    assert_eq!(outcome, again);
    let mut granted = log.lock().unwrap().clone();
    granted.dedup();
    (granted, outcome)
}

#[tokio::test(start_paused = true)]
async fn serving_node_is_not_granted_on_stale_data_of_another() {
    let up = |ordinal: usize| live(&format!("db-{ordinal}-0"), &format!("pod-{ordinal}"), true);
    let shown = |ordinal: usize| known(&format!("db-{ordinal}-0"), &format!("pod-{ordinal}"), true);
    let rows = [
        ("all is as it is known", vec![up(0), up(1), up(2)], None, true),
        ("one is not Ready", vec![up(0), live("db-1-0", "pod-1", false), up(2)], None, false),
        ("the one to go is not", vec![up(0), up(1), live("db-2-0", "pod-2", false)], None, false),
        ("one is another pod", vec![up(0), live("db-1-0", "pod-9", true), up(2)], None, false),
        ("one is gone", vec![up(0), up(2)], None, false),
        ("one has lost its label", vec![up(0), up(2)], Some(up(1)), true),
    ];
    for (what, listed, by_name, goes) in rows {
        let nodes = (0..3).map(|i| serving(i, "v1")).collect();
        let pods = [shown(0), shown(1), shown(2)];
        let (granted, outcome) = granted(nodes, &pods, listed, by_name, 1).await;
        assert_eq!(granted, if goes { vec!["db-2"] } else { vec![] }, "{what}: {outcome}");
        assert_eq!(outcome.starts_with("waiting for the next reconcile of db-"), !goes, "{what}: {outcome}");
    }
}

#[tokio::test(start_paused = true)]
async fn unavailable_node_is_granted_unless_live_read_shows_it_ready() {
    let rows = [
        ("it is down", live("db-1-0", "pod-1", false), true),
        ("its pod is gone", live("other", "", true), true),
        ("it came up", live("db-1-0", "pod-1", true), false),
        ("another pod of it came up", live("db-1-0", "pod-9", true), false),
    ];
    for (what, pod, goes) in rows {
        let nodes = vec![serving(0, "v1"), down(serving(1, "v1")), serving(2, "v1")];
        let pods = [known("db-1-0", "pod-1", false)];
        let listed = vec![live("db-0-0", "pod-1", true), pod, live("db-2-0", "pod-1", true)];
        let (granted, outcome) = granted(nodes, &pods, listed, None, 1).await;
        assert_eq!(granted, if goes { vec!["db-1"] } else { vec![] }, "{what}: {outcome}");
    }
    // A pod that is known to be Ready, of a node that is not, holds the grant back only as long as the node's status may
    // not have been written: after that, the node is down for another reason.
    for (ready_for, goes) in [(0, false), (29, false), (31, true)] {
        let mut down = down(serving(1, "v1"));
        down["status"]["podRuns"] = json!(true);
        let nodes = vec![serving(0, "v1"), down, serving(2, "v1")];
        let since = Some(now() - TimeDelta::seconds(ready_for));
        let listed = vec![
            live("db-0-0", "pod-1", true),
            LivePod { since, ..live("db-1-0", "pod-1", true) },
            live("db-2-0", "pod-1", true),
        ];
        let (granted, outcome) = granted(nodes, &[known("db-1-0", "pod-1", true)], listed, None, 1).await;
        assert_eq!(granted, if goes { vec!["db-1"] } else { vec![] }, "{ready_for}: {outcome}");
    }
}

/// A status that was lost, or that is behind, says nothing of a pod that is Ready.
#[tokio::test(start_paused = true)]
async fn node_with_stale_status_and_ready_pod_is_not_unavailable() {
    let nodes = vec![serving(0, "v1"), behind(down(serving(1, "v1")))];
    let listed = vec![live("db-0-0", "pod-1", true), live("db-1-0", "pod-1", true)];
    let (granted, outcome) = granted(nodes, &[known("db-1-0", "pod-1", true)], listed, None, 1).await;
    assert_eq!(granted, [""; 0], "{outcome}");
    assert!(outcome.starts_with("waiting for the next reconcile of db-1"), "{outcome}");
}

/// A node that is Failed, or that was never ready, is granted whatever the others do, but not on old news of its own pod.
#[tokio::test(start_paused = true)]
async fn failed_node_is_granted_unless_a_live_read_shows_it_ready() {
    let failed = |mut node: Value| {
        node["status"]["phase"] = json!("Failed");
        node
    };
    for (what, ready, expected) in [("it is broken", false, vec!["db-1"]), ("it came up", true, vec![])] {
        // The other node is down, which leaves no room.
        let nodes = vec![down(serving(0, "v1")), failed(down(serving(1, "v1")))];
        let pods = [known("db-0-0", "pod-1", false), known("db-1-0", "pod-1", false)];
        let listed = vec![live("db-0-0", "pod-1", false), live("db-1-0", "pod-1", ready)];
        let (mut granted, outcome) = granted(nodes, &pods, listed, None, 1).await;
        granted.retain(|name| name == "db-1");
        assert_eq!(granted, expected, "{what}: {outcome}");
        assert_eq!(outcome.starts_with("waiting for the next reconcile of db-1"), ready, "{what}: {outcome}");
    }
}

/// The status of its node may have been written by a version that said less of it.
#[tokio::test(start_paused = true)]
async fn failed_node_is_not_granted_while_its_main_container_runs() {
    let mut failed = down(serving(1, "v1"));
    failed["status"]["phase"] = json!("Failed");
    for (what, state, expected) in [
        ("it runs", json!({"running": {}}), vec![]),
        ("it crashes", json!({"waiting": {"reason": "CrashLoopBackOff"}}), vec!["db-1"]),
    ] {
        let mut pod = known("db-1-0", "pod-1", false);
        pod["spec"] = json!({"containers": [{"name": "db", "image": "db:1"}, {"name": "exporter"}]});
        pod["status"]["containerStatuses"] = json!([
            {"name": "db", "imageID": "sha256:1", "ready": true, "state": state},
            {"name": "exporter", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        ]);
        let listed = vec![live("db-0-0", "pod-1", false), live("db-1-0", "pod-1", false)];
        let nodes = vec![down(serving(0, "v1")), failed.clone()];
        let (mut granted, outcome) = granted(nodes, &[pod], listed, None, 1).await;
        granted.retain(|name| name == "db-1");
        assert_eq!(granted, expected, "{what}: {outcome}");
    }
}

/// A pod that was not Ready for a moment, which the cache missed, is not available before minReadySeconds have passed
/// again.
#[tokio::test(start_paused = true)]
async fn brief_pod_unreadiness_missed_by_the_cache_is_detected() {
    for (min_ready, since, goes) in [(0, 5, true), (10, 5, false), (10, 100, true)] {
        let (view, mut cluster) = (View::shared(), MockCluster::new());
        let mut pod = known("db-1-0", "pod-1", true);
        pod["status"]["conditions"][0]["lastTransitionTime"] = json!(now() - TimeDelta::seconds(100));
        view.observe(Kind::Pod, &pod);
        let since = Some(now() - TimeDelta::seconds(since));
        let listed = vec![live("db-0-0", "pod-1", true), LivePod { since, ..live("db-1-0", "pod-1", true) }];
        cluster.expect_live_pods().returning(move |_, _| Ok(listed.clone()));
        cluster.expect_live_pod().returning(|_, _| Ok(None));
        cluster.expect_patch().times(usize::from(goes)).returning(|_, _, _| Err(conflict()));
        let mut scope = fleet(vec![serving(0, "v1"), serving(1, "v1")]).scope(cluster, &view);
        Arc::make_mut(&mut scope.spec).min_ready_seconds = min_ready;
        let outcome =
            said(&run_in(&Env::new().with(scope), &plan("InPlace"), &UpdateNodeSpecs::default()).await);
        assert_eq!(outcome.starts_with("waiting for the next reconcile of db-1"), !goes, "{outcome}");
    }
}

#[tokio::test(start_paused = true)]
async fn grant_independent_of_other_nodes_needs_no_live_read() {
    let mut moving = behind(serving(1, "v1"));
    moving["spec"]["grantID"] = json!("grant-2");
    let (granted, outcome) = granted(vec![serving(0, "v2"), moving], &[], Vec::new(), None, 0).await;
    assert_eq!(granted, ["db-1"], "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn failed_live_read_prevents_grants() {
    let mut cluster = MockCluster::new();
    cluster.expect_live_pods().returning(|_, _| Err(overloaded()));
    let scope = fleet(vec![serving(0, "v1")]).scope(cluster, &View::shared());
    let outcome = run_in(&Env::new().with(scope), &plan("InPlace"), &UpdateNodeSpecs::default()).await;
    assert_eq!(said(&outcome), "again Some(7s): x: slow down");
}

#[tokio::test(start_paused = true)]
async fn serving_incumbents_are_retired_only_after_a_live_read() {
    let (view, mut cluster) = (View::shared(), MockCluster::new());
    view.observe(Kind::Pod, &known("db-0-0", "pod-0", true));
    cluster.expect_live_pods().times(1).returning(|_, _| Ok(vec![live("db-0-0", "pod-0", false)]));
    let scope = super::sets::amid("BlueGreen", "Promoting").without("db-new-0").scope(cluster, &view);
    let outcome =
        said(&run_in(&Env::new().with(scope), &plan("BlueGreenImmediate"), &RetireIncumbents {}).await);
    assert!(outcome.starts_with("waiting for the next reconcile of db-0"), "{outcome}");
}
