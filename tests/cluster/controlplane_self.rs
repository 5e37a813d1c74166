//! The real control plane and its simulated kubelets behave as other tests assume.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ContainerStatus, PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
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

/// The objects of a namespace, with waits.
struct Scene {
    sets: Api<StatefulSet>,
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
}

impl Scene {
    fn new(client: &Client, namespace: &str) -> Self {
        Self {
            sets: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            claims: Api::namespaced(client.clone(), namespace),
        }
    }

    async fn make(&self, set: &StatefulSet) {
        self.sets.create(&PostParams::default(), set).await.unwrap();
    }

    async fn pod(&self, name: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        let mut last = None;
        for _ in 0..400 {
            last = self.pods.get_opt(name).await.unwrap();
            if let Some(pod) = last.as_ref().filter(|pod| is(pod)) {
                return pod.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{name} is not as it should be after 20 s: {}", serde_json::to_string_pretty(&last).unwrap());
    }
}

fn condition(pod: &Pod, kind: &str) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn ready(pod: &Pod) -> bool {
    condition(pod, "Ready")
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

#[tokio::test]
#[ignore = "nightly"]
async fn a_set_with_a_claim_gets_its_pod_ready_and_again_after_a_deletion() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("claim").await;
    let scene = Scene::new(&cp.client().await, &ns);
    scene.make(&set("db", &image("nginx:1"), &json!({}), true)).await;
    let pod = scene.pod("db-0", ready).await;
    let status = container(&pod).unwrap();
    assert_eq!(status.image, "docker.io/library/nginx:1");
    assert!(status.image_id.starts_with("docker.io/library/nginx@sha256:"));
    assert!(pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap().starts_with("10."));
    let claim = scene.claims.get("data-db-0").await.unwrap();
    assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"));

    scene.pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    let next = scene.pod("db-0", |next| next.uid() != pod.uid() && ready(next)).await;
    assert_ne!(next.uid(), pod.uid());
    let deletes =
        cp.audit().await.namespace(&ns).user("windlass-test-kubelet").resource("pods").verb("delete");
    assert_eq!(deletes.count(), 1, "one delete, with a UID: {deletes:?}");
}

#[tokio::test]
#[ignore = "nightly"]
async fn the_audit_log_counts_writes_and_leaves_dry_runs_out() {
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
async fn everything_ends_with_its_owner_even_by_sigkill() {
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
