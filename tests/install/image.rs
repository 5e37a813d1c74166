//! The image, as deploy/image/build left it in target/image: what it says of itself, and that its program runs out of it, with
//! nothing else there, a root that nobody can write to, and as the user that it names. `.ci/image` builds it and runs this.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use windlass::clock::monotonic;

use crate::controlplane::{ControlPlane, Options};
use crate::helm::path;

const PATIENCE: Duration = Duration::from_mins(1);
/// Where the cluster's files are seen from in the image, as a mounted Secret would be.
const MOUNT: &str = "conf";

fn layout() -> PathBuf {
    path("target/image/oci")
}

fn blob(digest: &Value) -> PathBuf {
    layout().join("blobs").join(digest.as_str().expect("a digest").replace(':', "/"))
}

fn json_of(file: &Path) -> Value {
    let text =
        std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}; run .ci/image", file.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// The manifest of the image of this architecture.
fn manifest(architecture: &str) -> Value {
    let index = json_of(&blob(&json_of(&layout().join("index.json"))["manifests"][0]["digest"]));
    let all = index["manifests"].as_array().expect("manifests");
    let of = all.iter().find(|m| m["platform"] == json!({"os": "linux", "architecture": architecture}));
    json_of(&blob(&of.unwrap_or_else(|| panic!("there is no image for {architecture}: {index:#}"))["digest"]))
}

/// The image's files, as a runtime unpacks them.
fn unpacked(folder: &Path) -> PathBuf {
    let root = folder.join("root");
    std::fs::create_dir_all(root.join(MOUNT)).unwrap();
    for layer in manifest("amd64")["layers"].as_array().unwrap() {
        let file = blob(&layer["digest"]);
        let done = Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(&root).status();
        assert!(done.unwrap().success());
    }
    root
}

/// The program of the image in a mount namespace of its own, whose root is the image's files, read-only.
fn run(root: &Path, mounted: &Path, user: &str, arguments: &[&str]) -> Command {
    const SCRIPT: &str = "set -e; mount --make-rprivate /; mount --bind \"$1\" \"$1\"; mount --bind \"$2\" \"$1/$3\"; \
         mount -o remount,bind,ro \"$1\"; user=$4; root=$1; shift 4; exec chroot --userspec=\"$user\" \"$root\" /windlass \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", SCRIPT, "sh"]).arg(root).arg(mounted).args([MOUNT, user]).args(arguments);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the image: .ci/image builds it first"]
async fn the_unpacked_image_runs_as_its_user_and_rolls_a_fleet_out() {
    let config = json_of(&blob(&manifest("amd64")["config"]["digest"]));
    let user = config["config"]["User"].as_str().expect("a user");
    assert_eq!((user, &config["config"]["Entrypoint"]), ("65532:65532", &json!(["/windlass"])));
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));

    let cp = ControlPlane::start(Options::default()).await.expect("a control plane");
    let ns = cp.namespace("image").await;
    let root = unpacked(&cp.folder().join("image"));
    let mounted = cp.folder().join("image/mounted");
    std::fs::create_dir_all(&mounted).unwrap();
    let demo = run(&root, &mounted, user, &["demo"])
        .output()
        .expect("unshare, mount and chroot are there, and may be used");
    assert_eq!(demo.status.code(), Some(2), "{}", String::from_utf8_lossy(&demo.stderr));
    assert!(String::from_utf8_lossy(&demo.stderr).contains("unrecognized subcommand 'demo'"));

    let rights = ["one-namespace", "leader-election"].map(|file| {
        let text = std::fs::read_to_string(path(&format!("deploy/rbac/{file}.yaml"))).unwrap();
        text.replace("windlass-system", &ns)
    });
    for text in rights {
        cp.kubectl_with(&["-n", &ns, "apply", "-f", "-"], &text).await.ok();
    }
    let kubeconfig = cp.service_account_kubeconfig(&ns, "windlass").await.expect("a kubeconfig");
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    std::fs::write(mounted.join("kubeconfig"), text.replace(cp.ca().to_str().unwrap(), "/conf/ca.crt"))
        .unwrap();
    // A copy would keep who may read it.
    std::fs::write(mounted.join("ca.crt"), std::fs::read(cp.ca()).unwrap()).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bind = format!("127.0.0.1:{port}");
    let arguments = ["operator", "--leader-elect", "--log-format=json", "--namespace", &ns, "--bind", &bind];
    let mut operator = run(&root, &mounted, user, &arguments);
    let operator = operator.env("KUBECONFIG", "/conf/kubeconfig").spawn().expect("it starts");
    let operator = Stopped(operator);

    let of_type = ApiResource::from_gvk(&GroupVersionKind::gvk("windlass.dev", "v1alpha1", "NodeDeployment"));
    let fleets: Api<DynamicObject> = Api::namespaced_with(cp.client().await, &ns, &of_type);
    let fleet = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {"replicas": 2, "updateStrategy": {"type": "InPlace"},
            "template": {"spec": {"podTemplate": {"spec": {"containers": [{"name": "db", "image": "db:1"}]}}}}},
    });
    fleets
        .create(&PostParams::default(), &serde_json::from_value(fleet).unwrap())
        .await
        .expect("it is created");
    let until = monotonic() + PATIENCE;
    while !crate::cluster::applied(&json!(fleets.get("db").await.unwrap())) {
        assert!(monotonic() < until, "{:#?}", fleets.get("db").await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", operator.0.id())).unwrap();
    assert!(of("status").lines().any(|line| line == "Uid:\t65532\t65532\t65532\t65532"), "{}", of("status"));
    let mounts = of("mountinfo");
    let is_read_only =
        |line: &str| line.split(' ').nth(5).is_some_and(|options| options.split(',').any(|o| o == "ro"));
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).expect("a root");
    assert!(is_read_only(root), "{mounts}");
    let libraries = of("maps").lines().filter(|line| line.contains(".so")).count();
    assert_eq!(libraries, 0, "it is static");
    let ready = reqwest::get(format!("http://{bind}/readyz")).await.unwrap();
    assert_eq!(ready.status(), 200);
}

/// A process that ends with the test.
struct Stopped(std::process::Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn both_ways_to_build_the_image_build_the_same_program() {
    let read = |file: &str| std::fs::read_to_string(path(file)).unwrap();
    let (build, containerfile, manifest) =
        (read("deploy/image/build"), read("deploy/image/Containerfile"), read("Cargo.toml"));
    let features =
        containerfile.lines().find_map(|line| line.strip_prefix("ARG FEATURES=")).expect("features");
    assert!(build.contains(&format!("${{WINDLASS_FEATURES:-{features}}}")), "{features}");
    for part in ["demo", "sim"] {
        assert!(!features.split(',').any(|feature| feature == part));
    }
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
    assert!(containerfile.contains(&format!("FROM rust:{}-alpine", rust.trim_matches('"'))), "{rust}");
    assert!(containerfile.contains("USER 65532:65532\nENTRYPOINT [\"/windlass\"]\n"));
}
