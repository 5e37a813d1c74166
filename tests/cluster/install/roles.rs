//! The cluster's default roles view, edit and admin, into which the chart's roles are aggregated.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use windlass::clock::monotonic;

use windlass_harness::systems::cluster::{Cluster, Place};

const PATIENCE: Duration = Duration::from_mins(1);
/// Commands that only read, with their exit codes.
const LOOKS: [(&str, i32); 10] = [
    ("status", 0),
    ("status nd/db", 0),
    ("status nd/db --watch --exit-status", 0),
    ("explain nd/db", 0),
    ("explain sn/db-0", 0),
    ("history nd/db", 0),
    ("diff nd/db", 0),
    ("logs nd/db", 0),
    ("wait nd/db --timeout 30s", 0),
    ("plan nd/db --image app:9", 2),
];
/// Verbs; those that would start a rollout run dry. The test applies the fleet's template like an external source.
const VERBS: [&str; 4] =
    ["pause nd/db", "resume nd/db", "restart nd/db --dry-run", "rollback nd/db --dry-run --force"];

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn windlass(place: &Place<'_>, who: &str, line: &str) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(line.split(' '))
        .args(["-n", &place.ns, "--as", who])
        .env("KUBECONFIG", place.cluster.cp.kubeconfig())
        .env("COLUMNS", "1000")
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

async fn may_write_statuses(cluster: &Cluster, place: &Place<'_>, who: &str) -> bool {
    let words = ["auth", "can-i", "patch", "nodedeployments.windlass.dev", "--subresource=status"];
    let said = cluster.cp.kubectl(&[&words[..], &["-n", &place.ns, "--as", who]].concat()).await;
    said.stdout.trim() == "yes"
}

/// On a steady fleet `db` that has been rolled once.
pub async fn see_and_change_fleets(cluster: &Cluster, place: &Place<'_>) {
    for role in ["view", "edit", "admin"] {
        let (clusterrole, user) = (format!("--clusterrole={role}"), format!("--user={role}er"));
        let words = ["-n", &place.ns, "create", "rolebinding", role, &clusterrole, &user];
        cluster.cp.kubectl(&words).await.ok();
    }
    let until = monotonic() + PATIENCE;
    while !may_write_statuses(cluster, place, "adminer").await {
        assert!(monotonic() < until, "the chart's roles are not aggregated");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for who in ["viewer", "editer", "adminer"] {
        for (line, code) in LOOKS {
            let ran = windlass(place, who, line);
            // Without the right to create StatefulSets, their dry run is impossible.
            let is_less = who == "viewer" && line.starts_with("plan");
            let said = format!("{line} as {who}: {} {}", ran.out, ran.err);
            assert!(ran.code == Some(code) && ran.err.is_empty(), "{said}");
            assert_eq!(ran.out.contains("cannot"), is_less, "{said}");
        }
    }
    for line in VERBS {
        let ran = windlass(place, "viewer", line);
        assert!(ran.code == Some(1) && ran.err.contains("cannot patch"), "{line}: {}{}", ran.out, ran.err);
        let ran = windlass(place, "stranger", line);
        assert!(ran.code == Some(1) && ran.err.contains("cannot get"), "{line}: {}{}", ran.out, ran.err);
        for who in ["editer", "adminer"] {
            let ran = windlass(place, who, line);
            assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{line} as {who}: {}", ran.out);
        }
    }
    let db = place.get("windlass.dev/v1alpha1", "NodeDeployment", "db").await.unwrap();
    let asked: Value =
        serde_json::from_str(db["metadata"]["annotations"]["windlass.dev/last-request"].as_str().unwrap())
            .unwrap();
    // An unchanged object has no new request.
    assert_eq!(asked["by"], "editer", "{asked}");
    // Only an administrator may write a status.
    for who in ["viewer", "editer"] {
        assert!(!may_write_statuses(cluster, place, who).await, "{who}");
    }
    for role in ["view", "edit", "admin"] {
        cluster.cp.kubectl(&["-n", &place.ns, "delete", "rolebinding", role]).await.ok();
    }
}
