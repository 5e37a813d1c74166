//! The image that deploy/image/build left in target/image: its metadata, and that its program runs with nothing but
//! the image's files, a read-only root, and the image's user. `.ci/image` builds it and runs this.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use windlass::clock::monotonic;

use crate::install::helm::path;
use windlass_harness::controlplane::{ControlPlane, Options};
use windlass_harness::debian;

const PATIENCE: Duration = Duration::from_mins(1);
/// Where the cluster's files are mounted in the image, like a Secret.
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
pub fn unpacked(architecture: &str, folder: &Path) -> PathBuf {
    let root = folder.join("root");
    std::fs::create_dir_all(root.join(MOUNT)).unwrap();
    for layer in manifest(architecture)["layers"].as_array().unwrap() {
        let file = blob(&layer["digest"]);
        let done = Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(&root).status();
        assert!(done.unwrap().success());
    }
    root
}

/// The image's program in a mount namespace whose root is the image's files, read-only. `emulator` is the path in
/// that root of an emulator for another architecture.
fn run(root: &Path, mounted: &Path, user: &str, emulator: Option<&str>, arguments: &[&str]) -> Command {
    const SCRIPT: &str = "set -e; mount --make-rprivate /; mount --bind \"$1\" \"$1\"; mount --bind \"$2\" \"$1/$3\"; \
         mount -o remount,bind,ro \"$1\"; user=$4; root=$1; shift 4; exec chroot --userspec=\"$user\" \"$root\" \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", SCRIPT, "sh"])
        .arg(root)
        .arg(mounted)
        .args([MOUNT, user])
        .args(emulator)
        .arg("/windlass")
        .args(arguments);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the image: .ci/image builds it first"]
async fn the_unpacked_image_runs_as_its_user_and_rolls_out_a_fleet() {
    runs("amd64", None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the image: .ci/image arm64 builds it first"]
async fn the_unpacked_image_for_arm64_runs_under_an_emulator() {
    let Some(emulator) = debian::program("qemu-user-static", "usr/bin/qemu-aarch64-static") else { return };
    runs("arm64", Some(&emulator)).await;
}

async fn runs(architecture: &str, emulator: Option<&Path>) {
    let config = json_of(&blob(&manifest(architecture)["config"]["digest"]));
    let user = config["config"]["User"].as_str().expect("a user");
    assert_eq!((user, &config["config"]["Entrypoint"]), ("65532:65532", &json!(["/windlass"])));
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));

    let cp = ControlPlane::start(Options::default()).await.expect("a control plane");
    let ns = cp.namespace("image").await;
    let root = unpacked(architecture, &cp.folder().join("image"));
    let emulator = emulator.map(|emulator| {
        std::fs::copy(emulator, root.join("emulator")).unwrap();
        "/emulator"
    });
    let mounted = cp.folder().join("image/mounted");
    std::fs::create_dir_all(&mounted).unwrap();
    let demo = run(&root, &mounted, user, emulator, &["demo"])
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
    // A copy would keep the file's permissions.
    std::fs::write(mounted.join("ca.crt"), std::fs::read(cp.ca()).unwrap()).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bind = format!("127.0.0.1:{port}");
    let arguments = ["operator", "--leader-elect", "--log-format=json", "--namespace", &ns, "--bind", &bind];
    let mut operator = run(&root, &mounted, user, emulator, &arguments);
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
    while !windlass_harness::systems::cluster::applied(&json!(fleets.get("db").await.unwrap())) {
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

/// A process that is stopped on drop.
struct Stopped(std::process::Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The flags of a cargo command with their values, except for verbosity and target.
fn flags(line: &str) -> Vec<&str> {
    let words = line
        .split_whitespace()
        .map(|word| word.trim_matches('"'))
        .skip_while(|word| !word.ends_with("build"));
    let all: Vec<&str> = words.skip(1).filter(|word| !["--quiet", "\\", ">&2"].contains(word)).collect();
    let target = all.iter().position(|word| *word == "--target");
    all.iter()
        .enumerate()
        .filter(|(index, _)| target.is_none_or(|at| *index != at && *index != at + 1))
        .map(|(_, word)| *word)
        .collect()
}

/// The command with this beginning, on one line.
fn command(text: &str, beginning: &str) -> String {
    let from = text.find(beginning).unwrap_or_else(|| panic!("there is no {beginning}"));
    let joined = text[from..].replace("\\\n", " ");
    joined.lines().next().unwrap().to_owned()
}

/// No engine runs the Containerfile here: its steps are compared with those of the script.
#[test]
fn both_image_build_methods_have_the_same_steps() {
    let read = |file: &str| std::fs::read_to_string(path(file)).unwrap();
    let (build, containerfile, manifest, layout) = (
        read("deploy/image/build"),
        read("deploy/image/Containerfile"),
        read("Cargo.toml"),
        read("deploy/image/oci/main.go"),
    );
    let is_line = |line: &str| assert!(containerfile.lines().any(|other| other == line), "no line {line}");
    for name in ["FEATURES", "PROFILE"] {
        let line = |line: &&str| line.starts_with(&format!("{name}=\"${{WINDLASS_{name}:-"));
        let default = build.lines().find(line).unwrap().rsplit(":-").next().unwrap().trim_end_matches("}\"");
        is_line(&format!("ARG {name}={default}"));
        assert!(!default.split(',').any(|feature| ["demo", "sim"].contains(&feature)), "{default}");
    }
    let (script, container) = (command(&build, "cargo zigbuild "), command(&containerfile, "cargo build "));
    assert_eq!(flags(&script), flags(&container));
    assert_eq!(flags(&script)[0], "--locked");
    // The allocator's settings for machines with 64 KiB pages.
    for text in [&build, &containerfile] {
        assert!(text.contains("export JEMALLOC_SYS_WITH_LG_PAGE=16"));
    }
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
    assert!(containerfile.contains(&format!("FROM rust:{}-alpine", rust.trim_matches('"'))), "{rust}");

    // What is around the program.
    assert!(build.contains("-root deploy/image/root"));
    is_line("COPY deploy/image/root/ /");
    assert!(
        layout.contains("const user = \"65532\"") && layout.contains("Entrypoint: []string{\"/windlass\"}")
    );
    is_line("USER 65532:65532");
    is_line("ENTRYPOINT [\"/windlass\"]");
    let directory = layout.split("WorkingDir: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    is_line(&format!("WORKDIR {directory}"));
    let labels = |text: &str| -> std::collections::BTreeSet<String> {
        let after = text.split("org.opencontainers.image.").skip(1);
        let names = after.map(|rest| rest.chars().take_while(char::is_ascii_lowercase).collect());
        names.collect()
    };
    let script = labels(layout.split("labels := ").nth(1).unwrap());
    assert!(script == labels(&containerfile) && script.len() == 4, "{script:?}");
}
