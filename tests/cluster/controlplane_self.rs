//! The real control plane and its simulated kubelets behave as other tests assume.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::get};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{ContainerStatus, PersistentVolumeClaim, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass::clock::monotonic;
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

fn waits_for(pod: &Pod) -> Option<&str> {
    container(pod)?.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[tokio::test]
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
async fn images_say_how_their_pods_fare() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("images").await;
    let scene = Scene::new(&cp.client().await, &ns);
    for tag in ["nope", "crash", "unready", "slow"] {
        scene.make(&set(tag, &image(&format!("x:{tag}")), &json!({}), false)).await;
    }
    let nope = scene.pod("nope-0", |pod| waits_for(pod) == Some("ImagePullBackOff")).await;
    let message = container(&nope).unwrap().state.clone().unwrap().waiting.unwrap().message.unwrap();
    assert!(message.contains("\"x:nope\""), "{message}");
    assert_eq!((phase(&nope), container(&nope).unwrap().image_id.as_str()), ("Pending", ""));

    let crash = scene.pod("crash-0", |pod| waits_for(pod) == Some("CrashLoopBackOff")).await;
    let status = container(&crash).unwrap();
    assert_eq!((phase(&crash), status.restart_count), ("Running", 1));
    assert_eq!(status.last_state.clone().unwrap().terminated.unwrap().exit_code, 1);

    let unready = scene.pod("unready-0", |pod| phase(pod) == "Running").await;
    assert!(!ready(&unready) && condition(&unready, "Initialized"));

    let began = scene.pod("slow-0", |pod| phase(pod) == "Running").await;
    assert!(!ready(&began));
    scene.pod("slow-0", ready).await;
    scene.pod("crash-0", |pod| container(pod).is_some_and(|c| c.restart_count == 2)).await;
}

#[tokio::test]
async fn steering_takes_effect_while_the_pod_runs() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("steer").await;
    let scene = Scene::new(&cp.client().await, &ns);
    scene.make(&set("db", &image("x:1"), &json!({}), false)).await;
    let first = scene.pod("db-0", ready).await;
    let begun = |pod: &Pod| container(pod)?.state.clone()?.running?.started_at;

    cp.steer(&ns, "db-0", "unready").await;
    let unready = scene.pod("db-0", |pod| !ready(pod)).await;
    assert_eq!(begun(&unready), begun(&first), "unready is no restart");
    cp.steer(&ns, "db-0", "crash").await;
    scene.pod("db-0", |pod| waits_for(pod) == Some("CrashLoopBackOff")).await;
    cp.steer(&ns, "db-0", "default").await;
    let again = scene.pod("db-0", ready).await;
    assert_eq!(container(&again).unwrap().restart_count, 1);

    cp.steer(&ns, "db-0", "hold-terminating").await;
    // The kubelet's watches of config maps and pods are not ordered.
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let held = scene.pods.get("db-0").await.unwrap();
    assert!(held.uid() == first.uid() && held.metadata.deletion_timestamp.is_some() && ready(&held));
    cp.steer(&ns, "db-0", "default").await;
    let next = scene.pod("db-0", |pod| pod.uid() != first.uid() && ready(pod)).await;

    cp.steer(&ns, "db-0", "dead").await;
    scene.pod("db-0", |pod| !ready(pod)).await;
    scene.pods.delete("db-0", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let dead = scene.pods.get("db-0").await.unwrap();
    assert!(dead.uid() == next.uid() && container(&dead).unwrap().ready, "a lost node says nothing more");
    cp.steer(&ns, "db-0", "default").await;
    scene.pod("db-0", |pod| pod.uid() != next.uid() && ready(pod)).await;
}

#[tokio::test]
async fn a_claim_can_be_held_unbound_and_a_pod_be_too_large() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("unbound").await;
    let scene = Scene::new(&cp.client().await, &ns);
    let unschedulable = |pod: &Pod| {
        let conditions = pod.status.clone().and_then(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
    };
    cp.steer(&ns, "claim.data-db-0", "unbound").await;
    scene.make(&set("db", &image("x:1"), &json!({}), true)).await;
    scene.pod("db-0", unschedulable).await;
    cp.steer(&ns, "claim.data-db-0", "default").await;
    scene.pod("db-0", ready).await;

    let mut large = image("x:1");
    large["containers"][0]["resources"] = json!({"requests": {"cpu": "1M"}});
    scene.make(&set("large", &large, &json!({}), false)).await;
    scene.pod("large-0", unschedulable).await;
}

#[tokio::test]
async fn a_native_sidecar_is_as_ready_as_its_url_says() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("sidecar").await;
    let scene = Scene::new(&cp.client().await, &ns);
    let marked = Arc::new(AtomicBool::new(false));
    let answer = marked.clone();
    let app =
        Router::new().route(
            "/{namespace}/{name}/readyz",
            get(async move || {
                if answer.load(Ordering::Relaxed) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
            }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let pod_spec = json!({
        "initContainers": [
            {"name": "setup", "image": "x:1"},
            {"name": "sidecar", "image": "windlass:1", "restartPolicy": "Always",
             "readinessProbe": {"httpGet": {"path": "/readyz", "port": 7777}}},
        ],
        "containers": [{"name": "main", "image": "x:1"}],
    });
    let url = json!({"windlass.test/sidecar-url": format!("http://{address}/{{namespace}}/{{name}}")});
    scene.make(&set("asked", &pod_spec, &url, false)).await;
    scene.make(&set("trusted", &pod_spec, &json!({}), false)).await;

    let trusted = scene.pod("trusted-0", ready).await;
    let ip = trusted.status.as_ref().unwrap().pod_ip.clone().unwrap();
    assert!(ip.starts_with("127."), "who asks a sidecar stays on this machine: {ip}");
    let asked = scene.pod("asked-0", |pod| phase(pod) == "Running").await;
    let inits = asked.status.as_ref().unwrap().init_container_statuses.clone().unwrap();
    assert_eq!(inits[0].state.clone().unwrap().terminated.unwrap().exit_code, 0);
    assert_eq!((inits[1].started, inits[1].ready), (Some(true), false));
    assert!(container(&asked).unwrap().ready && !ready(&asked), "only the sidecar keeps it out of service");

    marked.store(true, Ordering::Relaxed);
    scene.pod("asked-0", ready).await;
    marked.store(false, Ordering::Relaxed);
    scene.pod("asked-0", |pod| !ready(pod)).await;
    cp.steer(&ns, "trusted-0.sidecar", "unready").await;
    scene.pod("trusted-0", |pod| !ready(pod)).await;
    server.abort();
}

#[tokio::test]
async fn a_jobs_pod_ends() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("job").await;
    let jobs: Api<Job> = Api::namespaced(cp.client().await, &ns);
    for (name, image) in [("good", "x:1"), ("bad", "x:crash")] {
        let pod_spec = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]});
        let job =
            json!({"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": pod_spec}}});
        jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    }
    for (name, end) in [("good", "Complete"), ("bad", "Failed")] {
        let condition = format!("--for=condition={end}");
        cp.kubectl(&["-n", &ns, "wait", "--timeout=20s", &condition, "job", name]).await.ok();
    }
}

#[tokio::test]
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

#[tokio::test]
async fn a_service_accounts_kubeconfig_lets_it_in() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("account").await;
    let path = cp.service_account_kubeconfig(&ns, "guest").await.unwrap();
    let said = cp.kubectl(&["--kubeconfig", path.to_str().unwrap(), "auth", "whoami"]).await.ok();
    assert!(said.contains(&format!("system:serviceaccount:{}:guest", &*ns)), "{said}");
    let said = cp.kubectl_with(&["create", "-f", "-"], "not an object").await;
    assert_eq!(said.code, Some(1));
}

#[tokio::test]
async fn a_hundred_sets_are_up_within_seconds() {
    let cp = ControlPlane::shared().await;
    let ns = cp.namespace("hundred").await;
    let scene = Scene::new(&cp.client().await, &ns);
    let started = monotonic();
    let made = (0..100).map(|n| set(&format!("db-{n}"), &image("x:1"), &json!({}), false));
    let made: Vec<StatefulSet> = made.collect();
    futures::future::join_all(made.iter().map(|set| scene.make(set))).await;
    loop {
        let pods = scene.pods.list(&kube::api::ListParams::default()).await.unwrap();
        let up = pods.items.iter().filter(|pod| ready(pod)).count();
        if up == 100 {
            break;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "{up} of 100 pods are up after a minute");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!("100 one-replica sets: {:.1} s", started.elapsed().as_secs_f32());
    let writes = cp.audit().await.namespace(&ns).user("windlass-test-kubelet").resource("pods").writes();
    assert_eq!(writes.count(), 100, "one status a pod");
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
