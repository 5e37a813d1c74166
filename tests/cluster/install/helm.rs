//! Helm, built from its Go module like the control plane, and the rendered chart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use windlass_harness::controlplane::GoProgram;
use windlass_harness::debian;

/// Helm itself.
pub const HELM: GoProgram = GoProgram {
    name: "helm",
    told: "Helm 3.22.0",
    module: "tests/cluster/install/go/helm",
    modfile: None,
    cgo: false,
    package: "helm.sh/helm/v3/cmd/helm",
};

/// A program built from its Go module; `None`, with a message, if the module cannot be downloaded. A failing build is
/// an error.
pub fn built(program: &GoProgram) -> Option<PathBuf> {
    let why = match program.path() {
        Ok(path) => return Some(path),
        Err(why) => why,
    };
    let fetched = Command::new("go").args(["mod", "download"]).current_dir(path(program.module)).output();
    assert!(!fetched.is_ok_and(|fetched| fetched.status.success()), "{why}");
    let why = why.to_string();
    debian::skipped(&format!(
        "{} cannot be had here: {}",
        program.told,
        why.lines().last().unwrap_or_default()
    ));
    None
}

/// True if Helm is available; else its tests are skipped.
pub fn is_there() -> bool {
    built(&HELM).is_some()
}

/// A path of this project.
pub fn path(of: &str) -> PathBuf {
    windlass_harness::root().join(of)
}

/// The output of Helm.
pub struct HelmOutput {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

impl HelmOutput {
    /// Its output; panics with its error if it failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.ok, "helm failed: {}{}", self.out, self.err);
        self.out
    }
}

/// Runs Helm with a kubeconfig and its own home folder.
pub fn helm(kubeconfig: &Path, arguments: &[&str]) -> HelmOutput {
    let home = std::env::temp_dir().join(format!("windlass-helm-{}", std::process::id()));
    let Output { status, stdout, stderr } = Command::new(HELM.path().expect("Helm"))
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"))
        .output()
        .expect("Helm runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    HelmOutput { ok: status.success(), out: text(stdout), err: text(stderr) }
}

/// The rendered chart for the release `windlass` in `windlass-system`, with these values.
pub fn rendered(sets: &[&str]) -> HelmOutput {
    let chart = path("deploy/helm/windlass");
    let mut arguments = vec![
        "template",
        "windlass",
        chart.to_str().unwrap(),
        "-n",
        "windlass-system",
        "--kube-version",
        "1.36",
    ];
    arguments.extend(sets.iter().flat_map(|set| ["--set", *set]));
    helm(Path::new("/nonexistent"), &arguments)
}

/// Objects by kind, namespace and name.
pub type Objects = BTreeMap<(String, String, String), Value>;

/// The objects of a stream of documents.
pub fn objects(yaml: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("YAML");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = |o: &Value| (text(&o["kind"]), text(&o["metadata"]["namespace"]), text(&o["metadata"]["name"]));
    let count = documents.iter().filter(|o| o.is_object()).count();
    let found: Objects = documents.into_iter().filter(Value::is_object).map(|o| (key(&o), o)).collect();
    assert_eq!(found.len(), count, "an object is there twice");
    found
}
