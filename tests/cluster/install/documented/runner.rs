//! Runs the commands of a page like a reader: in a shell, with kubectl, Helm and Windlass, on a real control plane.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use windlass::clock::monotonic;

use super::blocks::{Block, Kind, Treated, blocks};
use super::{cargo, fragments};
use crate::install::helm::path;
use windlass_harness::systems::cluster::{Cluster, Place, applied};

/// The image of the sample fleet, before a change and after.
pub const SAMPLE: &str = "registry.example/db:1.0";
const CHANGED: &str = "registry.example/db:1.1";
/// The time limit of a command.
const PATIENCE: Duration = Duration::from_mins(2);
/// When commands that run until Ctrl-C are interrupted; an error shows sooner.
const A_WHILE: Duration = Duration::from_secs(4);
const FLEETS: &str = "windlass.dev/v1alpha1";

/// A page, and the namespace in which it is run.
pub struct Reader<'a> {
    pub place: Place<'a>,
    page: &'a str,
    folder: PathBuf,
    /// Processes that run as long as the page.
    beside: tokio::sync::Mutex<Vec<tokio::process::Child>>,
}

/// Replaces placeholders in capitals or angle brackets.
fn filled(line: &str, namespace: &str) -> String {
    let line = line.replace("NAMESPACE", namespace).replace("get nd NAME", "get nd db");
    line.replace("REGISTRY", "registry.example")
        .replace("<your image>", "registry.example/windlass:0.1.0")
        .replace("<the pod's address>", "127.0.0.1")
}

/// True if a command runs until it is interrupted.
fn is_endless(line: &str) -> bool {
    let line = line.split(" #").next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    has("-w") && !has("--exit-status")
        || has("--serve")
        || ["operator", "dashboard", "sidecar"].iter().any(|verb| {
            words.windows(2).any(|pair| (pair[0] == "windlass" || pair[0] == "--") && pair[1] == *verb)
        })
}

impl<'a> Reader<'a> {
    /// In a new namespace, with the programs on a reader's path, and the project's folders.
    pub async fn new(cluster: &'a Cluster, page: &'a str, helm: &Path) -> Reader<'a> {
        let name: String = page.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
        let place = cluster.namespace(&name).await;
        let folder = cluster.cp.folder().join(format!("read-{name}"));
        let bin = folder.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for known in ["deploy", "examples"] {
            symlink(path(known), folder.join(known)).unwrap();
        }
        std::fs::copy(path("examples/fleet.yaml"), folder.join("db.yaml")).unwrap();
        let kubeconfig = folder.join("kubeconfig");
        std::fs::copy(cluster.cp.kubeconfig(), &kubeconfig).unwrap();
        let windlass = env!("CARGO_BIN_EXE_windlass");
        let dry = |verbs: &str| {
            format!(
                "if [ -n \"$DRY\" ]; then case \"$1\" in {verbs}) set -- \"$@\" --dry-run=server;; esac; fi\n"
            )
        };
        let kubectl = cluster.cp.bin().join("kubectl").canonicalize().unwrap();
        for (program, text) in [
            // A multi-call program is selected by its name.
            (
                "kubectl",
                format!(
                    "{}exec -a kubectl {} \"$@\"",
                    dry("apply|create|patch|annotate|label|delete|scale"),
                    kubectl.display()
                ),
            ),
            ("helm", format!("{}exec {} \"$@\"", dry("install|upgrade"), helm.display())),
            // Two of them may run on this machine at once.
            (
                "windlass",
                format!(
                    "if [ \"$1\" = operator ]; then set -- \"$@\" --bind 127.0.0.1:0; fi\nexec {windlass} \"$@\""
                ),
            ),
            ("kubectl-windlass", format!("exec {windlass} \"$@\"")),
            ("cargo", "while [ \"$1\" != -- ]; do shift; done; shift; exec windlass \"$@\"".to_owned()),
        ] {
            let file = bin.join(program);
            std::fs::write(&file, format!("#!/bin/bash\n{text}\n")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let reader = Reader { place, page, folder, beside: tokio::sync::Mutex::default() };
        let context = format!("kubectl config set-context --current --namespace={}", &*reader.place.ns);
        reader.shell(&context, false).await.expect("a kubeconfig");
        reader
    }

    /// Runs all blocks of the page in order; an error names the line.
    pub async fn reads(&self, text: &str) -> Result<usize, String> {
        let mut count = 0;
        let mut all = blocks(text).map_err(|error| format!("{}: {error}", self.page))?;
        // Manifests may need what a page installs further down.
        all.sort_by_key(|block| block.kind != Kind::Commands);
        for block in all {
            if matches!(block.treated, Treated::Left(_)) {
                continue;
            }
            if let Some(state) = &block.given {
                self.bring(state).await.map_err(|error| format!("{}:{}: {error}", self.page, block.line))?;
            }
            count +=
                self.block(&block).await.map_err(|error| format!("{}:{}: {error}", self.page, block.line))?;
        }
        Ok(count)
    }

    async fn block(&self, block: &Block) -> Result<usize, String> {
        if block.kind == Kind::Yaml {
            return self.manifest(&block.text).await.map(|()| 1);
        }
        let commands = block.commands();
        for line in &commands {
            let line = filled(line, &self.place.ns);
            if line.contains("cargo ") && !line.contains(" run --release -- ") && !line.contains(" run -- ") {
                if let Some(wrong) = cargo::wrong(&line) {
                    return Err(format!("{line}: {wrong}"));
                }
                continue;
            }
            self.shell(&line, block.treated == Treated::Dry)
                .await
                .map_err(|said| format!("{line}\n{said}"))?;
        }
        Ok(commands.len())
    }

    /// Validates a manifest, or a part of one within its object, with the API server.
    async fn manifest(&self, text: &str) -> Result<(), String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
        for document in documents.iter().filter(|document| !document.is_null()) {
            if document["apiVersion"].is_string() {
                self.taken(document).await?;
                continue;
            }
            let part = document.as_object().ok_or("it is neither an object nor a part of one")?;
            let groups = fragments::objects(part);
            if groups.is_empty() {
                return Err("it is not known what it is a part of; say why it is not run".to_owned());
            }
            for group in groups {
                let mut said = Vec::new();
                for object in &group {
                    match self.taken(object).await {
                        Ok(()) => break,
                        Err(why) => said.push(why),
                    }
                }
                if said.len() == group.len() {
                    return Err(said.join("\n"));
                }
            }
        }
        Ok(())
    }

    async fn taken(&self, object: &Value) -> Result<(), String> {
        let cp = &self.place.cluster.cp;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&self.place.ns).to_owned();
        let words = ["-n", &namespace, "apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let said = cp.kubectl_with(&words, &object.to_string()).await;
        if said.code == Some(0) { Ok(()) } else { Err(said.stderr) }
    }

    /// Runs a command; an error is its output.
    async fn shell(&self, line: &str, dry: bool) -> Result<(), String> {
        let own = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", line])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{own}", self.folder.join("bin").display()))
            .env("KUBECONFIG", self.folder.join("kubeconfig"))
            .env("KUBECACHEDIR", self.folder.join("cache"))
            .env("KUBERC", "off")
            .env("DRY", if dry { "1" } else { "" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for home in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{home}_HOME"), self.folder.join(home));
        }
        // In a process group, so that all of it can be interrupted.
        command.process_group(0);
        let child = command.spawn().map_err(|error| error.to_string())?;
        let group = child.id().unwrap_or_default();
        let output = tokio::spawn(child.wait_with_output());
        tokio::pin!(output);
        let limit = if is_endless(line) { A_WHILE } else { PATIENCE };
        if let Ok(ended) = tokio::time::timeout(limit, &mut output).await {
            let output = ended.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            let text = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            // `plan` returns 2 if a change would have an effect.
            let forecasts = line.starts_with("windlass plan") && output.status.code() == Some(2);
            let forecasts = forecasts && !text.contains("windlass: ");
            return if output.status.success() || forecasts {
                Ok(())
            } else {
                Err(format!("{}: {text}", output.status))
            };
        }
        for signal in ["-INT", "-KILL"] {
            let _ = std::process::Command::new("kill")
                .args([signal, "--", &format!("-{group}")])
                .stderr(Stdio::null())
                .status();
            let _ = tokio::time::timeout(Duration::from_secs(2), &mut output).await;
            if output.is_finished() {
                break;
            }
        }
        if is_endless(line) { Ok(()) } else { Err(format!("it has not ended within {PATIENCE:?}")) }
    }

    /// Makes the sample fleet, and waits for it.
    pub async fn fleet(&self) -> Result<(), String> {
        self.shell("kubectl apply -f examples/fleet.yaml", false).await?;
        self.until("it is up to date", applied).await
    }

    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Result<(), String> {
        let until = monotonic() + PATIENCE;
        loop {
            let db =
                self.place.get(FLEETS, "NodeDeployment", "db").await.map_err(|error| error.to_string())?;
            if holds(&db) {
                return Ok(());
            }
            if monotonic() > until {
                return Err(format!("waited in vain until {what}: {:#}", db["status"]));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs the controller that binds claims to volumes, which the tests' control plane lacks.
    async fn binder(&self) -> Result<(), String> {
        let cp = &self.place.cluster.cp;
        let log = std::fs::File::create(self.folder.join("binder.log")).map_err(|error| error.to_string())?;
        let child =
            Command::new(windlass_harness::controlplane::binary().map_err(|error| error.to_string())?)
                .args(["kube-controller-manager", "--leader-elect=false", "--secure-port=0"])
                .args(["--controllers=persistentvolume-binder-controller", "--pvclaimbinder-sync-period=1s"])
                .arg(format!("--kubeconfig={}", cp.kubeconfig().display()))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| error.to_string())?;
        self.beside.lock().await.push(child);
        Ok(())
    }

    /// Brings the fleet into the initial state of a block.
    async fn bring(&self, state: &str) -> Result<(), String> {
        let patch = async |change: Value| {
            let line = format!("kubectl patch nd db --type=merge -p '{change}'");
            self.shell(&line, false).await
        };
        let image = json!({"image": CHANGED});
        let hook =
            |hook: Value| json!({"spec": {"updateStrategy": {"hooks": [hook]}, "template": {"spec": image}}});
        match state {
            "a second revision" => {
                patch(json!({"spec": {"template": {"spec": image}}})).await?;
                self.until("the second revision is there", applied).await
            }
            "a hook waits for a person" => {
                patch(hook(json!({"name": "go", "at": "BeforeRollout", "approval": {}}))).await?;
                self.until("a hook waits", |db| db["status"]["hooks"][0]["state"] == "AwaitingApproval").await
            }
            "a hook failed" => {
                let hook =
                    hook(json!({"name": "go", "at": "BeforeRollout", "timeoutSeconds": 1, "approval": {}}));
                patch(hook).await?;
                self.until("a hook failed", |db| db["status"]["hooks"][0]["state"] == "Failed").await
            }
            "a StatefulSet that runs" => {
                self.binder().await?;
                let file = path("tests/cluster/install/documented/ledger.yaml");
                self.shell(&format!("kubectl apply -f {}", file.display()), false).await?;
                self.shell("kubectl rollout status statefulset ledger", false).await
            }
            "a StatefulSet of a chart" => {
                let file = path("tests/cluster/install/documented/nats.yaml");
                self.shell(&format!("kubectl apply -f {}", file.display()), false).await?;
                self.shell("kubectl rollout status statefulset nats", false).await?;
                // kubectl waits until the API server has the storage of a new definition; windlass does not.
                self.shell("kubectl get ssr", false).await
            }
            "a release" => {
                let install = "helm install windlass deploy/helm/windlass -n windlass-system --create-namespace \
                               --set image.repository=registry.example/windlass --wait";
                self.shell(install, false).await
            }
            _ => Err(format!("“{state}” is no state that this test knows")),
        }
    }
}
