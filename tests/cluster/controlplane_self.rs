//! The real control plane and its simulated kubelets behave as other tests assume.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_harness::controlplane::{ControlPlane, Options};

fn set(name: &str, pod_spec: &Value, annotations: &Value, claim: bool) -> StatefulSet {
    let mut set = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 1, "serviceName": name, "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": pod_spec},
        },
    });
    if claim {
        set["spec"]["volumeClaimTemplates"] = json!([{
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }]);
    }
    serde_json::from_value(set).unwrap()
}

fn image(image: &str) -> Value {
    json!({"containers": [{"name": "main", "image": image}]})
}

#[tokio::test]
#[ignore = "nightly"]
async fn audit_log_counts_writes_without_dry_runs() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("audit").await;
    let token = cp.service_account_token(&ns, "writer").await.unwrap();
    let client = cp.client_for_token(&token).await;
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), &ns);
    let mine = format!("system:serviceaccount:{}:writer", &*ns);
    let refused = sets.get("db").await.expect_err("RBAC is real");
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    let role = format!("--serviceaccount={}:writer", &*ns);
    cp.kubectl(&["-n", &ns, "create", "rolebinding", "writer", "--clusterrole=admin", &role]).await.ok();

    let mark = cp.audit_mark().await;
    let made = set("db", &image("x:1"), &json!({}), false);
    let mut tries = 0;
    // The authorizer's watch has yet to deliver the new binding.
    while let Err(error) = sets.create(&PostParams::default(), &made).await {
        tries += 1;
        assert!(tries < 100, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    sets.patch("db", &PatchParams::default(), &patch).await.unwrap();
    sets.patch("db", &PatchParams { dry_run: true, ..PatchParams::default() }, &patch).await.unwrap();
    sets.patch("other", &PatchParams::default(), &patch).await.expect_err("it is not there");

    let mine = cp.audit_since(mark).await.user(&mine);
    assert_eq!(mine.clone().verb("patch").count(), 3);
    assert_eq!(mine.clone().write_attempts().count(), 3 + tries);
    assert_eq!(mine.clone().writes().count(), 2);
    let counts = mine.writes().resource("statefulsets").namespace(&ns).verb("patch").per_object();
    assert_eq!(counts.values().sum::<usize>(), 1);
    assert_eq!(counts.keys().next().unwrap().name, "db");
}

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn all_end(pids: &[u32], folder: &std::path::Path) {
    for _ in 0..200 {
        if !pids.iter().any(|pid| is_alive(*pid)) && !folder.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("still there after 10 s: {pids:?} or {}", folder.display());
}

/// Not a test by itself: the next one runs it in another process and kills that.
#[tokio::test]
#[ignore = "run by the next test, in a process of its own"]
async fn an_owner_to_be_killed() {
    let Some(report) = std::env::var_os("WINDLASS_TEST_OWNER_REPORT") else { return };
    let cp = ControlPlane::start(Options { kubelets: false, ..Options::default() }).await.unwrap();
    let pids: Vec<String> = cp.pids().values().map(u32::to_string).collect();
    let text = format!("{}\n{}", cp.folder().display(), pids.join(" "));
    let report = std::path::PathBuf::from(report);
    std::fs::write(report.with_extension("part"), text).unwrap();
    std::fs::rename(report.with_extension("part"), report).unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
}

#[tokio::test]
#[ignore = "nightly"]
async fn control_plane_ends_with_its_owner_even_on_sigkill() {
    // Dropped.
    let cp = ControlPlane::start(Options { kubelets: false, ..Options::default() }).await.unwrap();
    let (pids, folder): (Vec<u32>, _) = (cp.pids().values().copied().collect(), cp.folder().to_owned());
    assert!(pids.len() == 5 && pids.iter().all(|pid| is_alive(*pid)) && folder.exists());
    drop(cp);
    all_end(&pids, &folder).await;

    // Killed.
    let report = std::env::temp_dir().join(format!("windlass-owner-{}", std::process::id()));
    let mut owner = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "controlplane_self::an_owner_to_be_killed"])
        .env("WINDLASS_TEST_OWNER_REPORT", &report)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut text = String::new();
    for _ in 0..600 {
        text = std::fs::read_to_string(&report).unwrap_or_default();
        if !text.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let _ = std::fs::remove_file(&report);
    let (folder, pids) = text.split_once('\n').expect("the owner's control plane is up within a minute");
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 5 && pids.iter().all(|pid| is_alive(*pid)));
    owner.kill().await.unwrap();
    all_end(&pids, std::path::Path::new(folder)).await;
}
