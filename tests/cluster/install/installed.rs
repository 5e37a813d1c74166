//! A Helm release: installed, used, monitored, upgraded and uninstalled. The operator's pods are the chart's, with
//! its arguments, its account and its rights.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use windlass::clock::monotonic;
use windlass_process_kubelet::Image;

use crate::install::helm::{HelmOutput, helm, path};
use crate::install::{monitored, roles, two};
use windlass_harness::controlplane::Options;
use windlass_harness::systems::cluster::{Cluster, Place, applied};

const ACCOUNT: &str = "system:serviceaccount:windlass-system:windlass";
const TOKENS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const PATIENCE: Duration = Duration::from_mins(2);

/// The operator's program: that of the image that deploy/image/build left, if `WINDLASS_IMAGE` says so (as
/// `.ci/release` does), else the one built for these tests.
fn program(cluster: &Cluster) -> PathBuf {
    if std::env::var_os("WINDLASS_IMAGE").is_some_and(|value| !value.is_empty()) {
        crate::install::image::unpacked("amd64", &cluster.cp.folder().join("image")).join("windlass")
    } else {
        env!("CARGO_BIN_EXE_windlass").into()
    }
}

/// The image that the chart names. A process has no /var/run/secrets of its own: the kubelet puts the mount of its
/// account's token into a variable, and a kubeconfig that refers to it replaces the in-cluster configuration.
pub fn image(cluster: &Cluster) -> Image {
    let script = cluster.cp.folder().join("windlass");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": {"server": cluster.cp.server(), "certificate-authority": "TOKENS/ca.crt"}}],
        "users": [{"name": "pod", "user": {"tokenFile": "TOKENS/token"}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": "NAMESPACE"}}],
    });
    let text = format!(
        "#!/bin/sh\nset -e\nsed \"s|TOKENS|$TOKENS|g; s|NAMESPACE|$(cat $TOKENS/namespace)|\" >kubeconfig <<'END'\n{config}\nEND\n\
         KUBECONFIG=$PWD/kubeconfig exec {} \"$@\"\n",
        program(cluster).display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    Image::of("windlass", script).env("TOKENS", TOKENS)
}

pub fn release(cluster: &Cluster, arguments: &[&str]) -> HelmOutput {
    release_of(cluster, &path("deploy/helm/windlass"), arguments)
}

/// A column that an earlier version's definition lacks.
const NEW_COLUMN: &str = "    - jsonPath: .status.rollout.summary\n      name: Rollout\n      type: string\n";

/// An earlier chart: one of its definitions is older.
fn earlier_chart(cluster: &Cluster) -> PathBuf {
    let chart = folder(cluster, "earlier").join("windlass");
    let copied = Command::new("cp").arg("-rL").arg(path("deploy/helm/windlass")).arg(&chart).status();
    assert!(copied.expect("cp runs").success());
    let file = chart.join("charts/windlass-crds/files/nodedeployments.windlass.dev.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(NEW_COLUMN));
    std::fs::write(&file, text.replace(NEW_COLUMN, "")).unwrap();
    chart
}

/// The columns in which fleets are listed.
async fn columns(cluster: &Cluster) -> String {
    let listed = "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}";
    cluster.cp.kubectl(&["get", "crd", "nodedeployments.windlass.dev", "-o", listed]).await.ok()
}

fn release_of(cluster: &Cluster, chart: &Path, arguments: &[&str]) -> HelmOutput {
    let (verb, rest) = arguments.split_first().unwrap();
    let mut words = vec![*verb];
    if *verb != "uninstall" {
        words.extend(["--wait", "--timeout", "3m"]);
    }
    words.extend(rest);
    if *verb != "uninstall" {
        words.push(chart.to_str().unwrap());
    }
    helm(cluster.cp.kubeconfig(), &words)
}

/// The operator's pods, as they are now.
pub async fn pods(client: &kube::Client, namespace: &str) -> Vec<Value> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let of = ListParams::default().labels("app.kubernetes.io/name=windlass");
    api.list(&of).await.unwrap().items.into_iter().map(|pod| json!(pod)).collect()
}

fn fleet(image: &str) -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {
            "replicas": 2,
            "updateStrategy": {"type": "InPlace", "progressDeadlineSeconds": 5},
            "template": {"spec": {"podTemplate": {"spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "db", "image": image, "command": ["sleep", "100000"]}],
            }}}},
        },
    })
}

pub async fn apply(place: &Place<'_>, image: &str) {
    let fleet: DynamicObject = serde_json::from_value(fleet(image)).unwrap();
    let fleets = place.api("windlass.dev/v1alpha1", "NodeDeployment");
    let params = PatchParams::apply("test").force();
    fleets.patch("db", &params, &Patch::Apply(&fleet)).await.expect("it is applied");
}

pub async fn until_applied(place: &Place<'_>) -> Value {
    place.until(("windlass.dev/v1alpha1", "NodeDeployment", "db"), applied).await.expect("it is applied")
}

async fn uids(place: &Place<'_>) -> Vec<Value> {
    let mut uids = Vec::new();
    for name in ["db-0-0", "db-1-0"] {
        uids.push(place.get("v1", "Pod", name).await.unwrap()["metadata"]["uid"].clone());
    }
    uids
}

pub async fn holder(cluster: &Cluster) -> String {
    let said = cluster.cp.kubectl(&[
        "-n",
        "windlass-system",
        "get",
        "lease",
        "windlass",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ]);
    said.await.ok()
}

/// Asserts that no request of the account was forbidden.
async fn nothing_was_refused(cluster: &Cluster, account: &str) {
    let audit = cluster.cp.audit().await.user(account);
    let refused = audit.refused();
    assert!(!audit.entries().is_empty() && refused.is_empty(), "{refused:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_is_installed_upgraded_and_removed_and_fleets_remain() {
    if !crate::install::helm::is_there() {
        return;
    }
    let cluster =
        Cluster::start_with(Options { crds: false, ..Options::default() }).await.expect("a cluster");
    cluster.images.add("windlass:0.1.0", image(&cluster));
    for tag in ["app:1", "app:2"] {
        cluster.images.add(tag, Image::new());
    }
    let into = ["windlass", "-n", "windlass-system", "--create-namespace"];
    release_of(&cluster, &earlier_chart(&cluster), &[&["install"][..], &into].concat()).ok();
    let place = cluster.namespace("shop").await;
    let running = pods(&place.client, "windlass-system").await;
    assert_eq!(running.len(), 2, "helm --wait has waited for them: {running:#?}");
    apply(&place, "app:1").await;
    until_applied(&place).await;
    monitored::watched(&cluster, &place).await;
    roles::see_and_change_fleets(&cluster, &place).await;

    // An upgrade replaces the definitions and the operator's pods, and changes nothing of a steady fleet.
    assert!(!columns(&cluster).await.contains("Rollout"));
    let (mark, old) = (cluster.cp.audit_mark().await, holder(&cluster).await);
    let before = uids(&place).await;
    release(
        &cluster,
        &[
            "upgrade",
            "windlass",
            "-n",
            "windlass-system",
            "--set",
            "podAnnotations.again=yes,metrics.tokenReview=true,metrics.tokenSecret.create=true",
        ],
    )
    .ok();
    assert!(columns(&cluster).await.contains("Rollout"), "the definitions are those of the new version");
    let until = monotonic() + PATIENCE;
    loop {
        let now = holder(&cluster).await;
        if !now.is_empty() && now != old {
            break;
        }
        assert!(monotonic() < until, "no replica of the new version leads");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // By then everything was listed and reconciled.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let audit = cluster.cp.audit_since(mark).await.user(ACCOUNT);
    let writes: Vec<String> = audit
        .entries()
        .iter()
        .filter(|entry| entry.is_write() && entry.object_ref.resource != "leases")
        .map(|entry| format!("{} {}", entry.verb, entry.request_uri))
        .collect();
    assert!(writes.is_empty(), "{writes:#?}");
    assert_eq!(uids(&place).await, before);
    nothing_was_refused(&cluster, ACCOUNT).await;

    scraped_with_a_token(&cluster).await;
    two::one_sleeps(&cluster, &place, ("app:2", "app:1")).await;
    let before = uids(&place).await;

    // Without a release the definitions and what runs stay.
    release(&cluster, &["uninstall", "windlass", "-n", "windlass-system", "--wait"]).ok();
    cluster
        .cp
        .kubectl(&[
            "get",
            "crd",
            "nodedeployments.windlass.dev",
            "statefulnodes.windlass.dev",
            "statefulsetrollouts.windlass.dev",
        ])
        .await
        .ok();
    assert_eq!(uids(&place).await, before);
    let left = cluster.cp.kubectl(&["get", "clusterrole,validatingadmissionpolicy", "-o", "name"]).await.ok();
    assert!(!left.contains("windlass"), "{left}");

    // Another one, in one namespace only, with Roles only.
    let watch = format!("watchNamespaces={{{}}}", &*place.ns);
    let into =
        ["team", "-n", "team-system", "--create-namespace", "--set", &watch, "--set", "crds.install=false"];
    let alone = [&["install"][..], &into, &["--set", "rbac.aggregate=false,policies.retain=false"]].concat();
    release(&cluster, &alone).ok();
    place.kubectl(&["annotate", "nd", "db", "windlass.dev/restartedAt=2099-01-01T00:00:00Z"]).await.unwrap();
    place
        .until(("v1", "Pod", "db-0-0"), |pod| pod.is_object() && pod["metadata"]["uid"] != before[0])
        .await
        .expect("it is restarted");
    until_applied(&place).await;
    nothing_was_refused(&cluster, "system:serviceaccount:team-system:team-windlass").await;
    let made = cluster.cp.kubectl(&["get", "clusterrole", "-o", "name"]).await.ok();
    assert!(!made.contains("windlass"), "no rights for the whole cluster: {made}");
}

/// With `TokenReview`, /metrics requires an authorized account, and the probes do not.
async fn scraped_with_a_token(cluster: &Cluster) {
    let pods = pods(&cluster.cp.client().await, "windlass-system").await;
    let address = format!("http://{}:8080", pods[0]["status"]["podIP"].as_str().unwrap());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |page: &str, token: Option<&str>| {
        let request = http.get(format!("{address}/{page}"));
        let request = token.map_or(request.try_clone().unwrap(), |token| request.bearer_auth(token));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(get("healthz", None).await.0, 200);
    assert_eq!(get("metrics", None).await.0, 401);
    assert_eq!(get("metrics", Some("made-up")).await.0, 401);
    let token = cluster.cp.service_account_token("default", "prometheus").await.unwrap();
    let (code, said) = get("metrics", Some(&token)).await;
    assert!(code == 403 && said.contains("may not get the path /metrics"), "{code} {said}");
    let reader = "--clusterrole=windlass-metrics-reader";
    let account = "--serviceaccount=default:other";
    cluster.cp.kubectl(&["create", "clusterrolebinding", "prometheus", reader, account]).await.ok();
    let token = cluster.cp.service_account_token("default", "other").await.unwrap();
    let (code, page) = get("metrics", Some(&token)).await;
    assert!(code == 200 && page.contains("windlass_build_info"), "{code} {page}");
    // And the monitors' token: that of the account that the chart creates.
    let words = [
        "-n",
        "windlass-system",
        "get",
        "secret",
        "windlass-metrics-reader",
        "-o",
        "go-template={{.data.token | base64decode}}",
    ];
    let token = cluster.cp.kubectl(&words).await.ok();
    let (code, page) = get("metrics", Some(token.trim())).await;
    assert!(code == 200 && page.contains("windlass_build_info"), "{code} {page}");
    cluster.cp.kubectl(&["delete", "clusterrolebinding", "prometheus"]).await.ok();
}

/// A folder of this test, deleted with the control plane.
pub fn folder(cluster: &Cluster, name: &str) -> PathBuf {
    let folder = cluster.cp.folder().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
