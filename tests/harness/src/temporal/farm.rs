//! A namespace with the shipped operator and its rights, real pods of the Deployment controller, and a real Temporal.

use std::{process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::process::{Child, Command};
use windlass_clock::monotonic;
use windlass_process_kubelet::Image;

use crate::controlplane::Error;
pub use crate::kit::tools::message;
use crate::systems::cluster::{Cluster, Place};
use crate::temporal::frontend::Server;
use crate::temporal::person::Person;
use crate::temporal::programs;
use crate::temporal::running::Running;

/// The kinds in deploy/temporal.
const KINDS: [&str; 3] = ["workerdeployments", "temporalconnections", "clustertemporalconnections"];
pub const KIND: (&str, &str) = ("windlass.dev/v1alpha1", "WorkerDeployment");
/// The name of each test's `WorkerDeployment`.
pub const NAME: &str = "orders";
/// The tags of all images. The gate of `bad` fails.
const TAGS: [&str; 6] = ["1", "2", "3", "4", "5", "bad"];
pub const PATIENCE: Duration = Duration::from_mins(3);

/// The image of a tag.
pub fn image(tag: &str) -> String {
    format!("registry.example/orders:{tag}")
}

/// The output of a command.
#[derive(Debug)]
pub struct Typed {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// A `WorkerDeployment` and its environment.
pub struct Farm<'a> {
    // First, so that it is dropped before the namespace and its workers.
    running: Running,
    pub place: Place<'a>,
    pub server: &'a Server,
    pub person: Person,
    operator: Option<Child>,
    kubeconfig: std::path::PathBuf,
    binary: std::path::PathBuf,
}

impl<'a> Farm<'a> {
    /// A new namespace, with the operator.
    pub async fn new(
        cluster: &'a Cluster,
        server: &'a Server,
        binary: &str,
        name: &str,
    ) -> Result<Self, Error> {
        let worker = tokio::task::spawn_blocking(|| programs::WORKER.path()).await??;
        for tag in TAGS {
            let image_of = Image::of("worker", &worker);
            let image_of = if tag == "bad" { image_of.env("GATE", "fail") } else { image_of };
            cluster.images.add(&image(tag), image_of);
        }
        install_definition(cluster).await?;
        let place = cluster.namespace(name).await;
        for file in [
            "rbac/one-namespace.yaml",
            "rbac/stateful-sets-one-namespace.yaml",
            "temporal/one-namespace.yaml",
            "temporal/worker-resources-one-namespace.yaml",
        ] {
            let path = format!("{}/deploy/{file}", crate::root().display());
            place.kubectl(&["apply", "-f", &path]).await?;
        }
        let kubeconfig = cluster.cp.service_account_kubeconfig(&place.ns, "windlass").await?;
        let person = Person::at(&server.address());
        let running = Running::watching(place.api("apps/v1", "Deployment"));
        let mut farm =
            Self { running, place, server, person, operator: None, kubeconfig, binary: binary.into() };
        farm.start_operator()?;
        Ok(farm)
    }

    /// Starts the operator, unless it runs.
    pub fn start_operator(&mut self) -> Result<(), Error> {
        let log = std::env::var_os("WINDLASS_TEST_LOG").is_some();
        let operator = Command::new(&self.binary)
            .args(["operator", "--temporal", "--namespace", &self.place.ns, "--no-leader-elect"])
            .args(["--bind", "127.0.0.1:0", "--hook-host", "127.0.0.1"])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(if log { Stdio::inherit() } else { Stdio::null() })
            .kill_on_drop(true)
            .spawn()?;
        self.operator = Some(operator);
        Ok(())
    }

    /// Kills the operator by SIGKILL.
    pub async fn kill_operator(&mut self) {
        if let Some(mut operator) = self.operator.take() {
            operator.kill().await.expect("it is killed");
        }
    }

    /// Runs a command with an administrator's rights; returns its output.
    pub async fn typed(&self, words: &[&str]) -> Result<Typed, Error> {
        let said = Command::new(&self.binary)
            .args(words)
            .args(["--namespace", &self.place.ns])
            .env("KUBECONFIG", self.place.cluster.cp.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = said.status.code().unwrap_or(-1);
        Ok(Typed { code, stdout: text(&said.stdout), stderr: text(&said.stderr) })
    }

    /// Runs a command that must succeed; returns its standard output.
    pub async fn windlass(&self, words: &[&str]) -> Result<String, Error> {
        let said = self.typed(words).await?;
        if said.code == 0 { Ok(said.stdout) } else { Err(format!("windlass {words:?}: {said:?}").into()) }
    }

    /// Repeats a command until `holds` is true for its output.
    pub async fn until_told(&self, words: &[&str], holds: impl Fn(&str) -> bool) -> Result<String, Error> {
        let until = monotonic() + PATIENCE;
        loop {
            let told = self.windlass(words).await?;
            if holds(&told) {
                return Ok(told);
            }
            if monotonic() > until {
                return Err(format!("windlass {words:?} went on to say: {told}").into());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// The spec of workers with an image, with quick steps and sunsets. They poll one task queue of this namespace.
    pub fn spec(&self, tag: &str) -> Value {
        json!({
            "replicas": 1,
            "connection": {"address": self.server.address(), "namespace": "default"},
            "template": {"spec": {
                "terminationGracePeriodSeconds": 2,
                "containers": [{
                    "name": "worker", "image": image(tag),
                    "env": [
                        {"name": "TASK_QUEUES", "value": self.queue()},
                        {"name": "BIND", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                        {"name": "PORT", "value": "8081"},
                    ],
                    "readinessProbe": {"httpGet": {"path": "/", "port": 8081}, "periodSeconds": 1},
                }],
            }},
            "rollout": {
                "strategy": "Progressive",
                "steps": [{"percent": 5, "pauseSeconds": 3}, {"percent": 50, "pauseSeconds": 3}],
            },
            "sunset": {"scaleDownDelaySeconds": 0, "deleteDelaySeconds": 0},
        })
    }

    /// The task queue of its workers.
    pub fn queue(&self) -> String {
        format!("orders-{}", self.place.ns)
    }

    /// The name of its deployment in Temporal.
    pub fn deployment(&self) -> String {
        format!("{}/{NAME}", self.place.ns)
    }

    pub async fn create(&self, spec: Value) -> Result<(), Error> {
        let object = json!({"apiVersion": KIND.0, "kind": KIND.1, "metadata": {"name": NAME}, "spec": spec});
        let api = self.place.api(KIND.0, KIND.1);
        api.create(&kube::api::PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    pub async fn patch(&self, patch: Value) -> Result<(), Error> {
        let api = self.place.api(KIND.0, KIND.1);
        let params = kube::api::PatchParams::default();
        api.patch(NAME, &params, &kube::api::Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Sets another image, and so another version.
    pub async fn set_image(&self, tag: &str) -> Result<(), Error> {
        let containers = self.spec(tag)["template"]["spec"]["containers"].clone();
        self.patch(json!({"spec": {"template": {"spec": {"containers": containers}}}})).await
    }

    pub async fn object(&self) -> Result<Value, Error> {
        self.place.get(KIND.0, KIND.1, NAME).await
    }

    /// Deletes it, as a person would.
    pub async fn delete(&self) -> Result<(), Error> {
        self.place.api(KIND.0, KIND.1).delete(NAME, &kube::api::DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until the object is gone.
    pub async fn until_gone(&self) -> Result<(), Error> {
        let until = monotonic() + PATIENCE;
        let api = self.place.api(KIND.0, KIND.1);
        while let Some(object) = api.get_opt(NAME).await? {
            if monotonic() > until {
                return Err(format!("it does not go; last seen: {:#}", json!(object)["status"]).into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Waits until `holds` is true for the object; a failure shows its latest state.
    pub async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value, Error> {
        let until = monotonic() + PATIENCE;
        loop {
            let seen = self.object().await?;
            if holds(&seen) {
                return Ok(seen);
            }
            if monotonic() > until {
                return Err(format!("waited in vain until {what}; last seen: {:#}", seen["status"]).into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until a condition holds that is not one of the object.
    pub async fn until_true(&self, what: &str, holds: impl AsyncFn() -> bool) -> Result<(), Error> {
        let until = monotonic() + PATIENCE;
        while !holds().await {
            if monotonic() > until {
                return Err(format!("waited in vain until {what}").into());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        Ok(())
    }

    /// Waits until the target is the current version; returns its build ID.
    pub async fn until_current(&self) -> Result<String, Error> {
        let seen = self
            .until("the target is current", |seen| is_seen(seen) && condition(seen, "UpToDate").0 == "True")
            .await?;
        let (target, current) = (&seen["status"]["targetBuildID"], &seen["status"]["currentBuildID"]);
        assert_eq!(target, current, "{:#}", seen["status"]);
        Ok(target.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until a condition has this reason.
    pub async fn until_reason(&self, type_: &str, reason: &str) -> Result<Value, Error> {
        self.until(&format!("{type_} says {reason}"), |seen| {
            is_seen(seen) && condition(seen, type_).1 == reason
        })
        .await
    }

    /// Starts a workflow that runs on its build once a second until it is released; returns the build that it is
    /// pinned to. Temporal pins it when its first task is done, not at its start.
    pub async fn begin(&self, id: &str) -> Result<String, Error> {
        let workflow = self.workflow(id);
        self.person.start("Beat", &workflow, &self.queue(), None).await?;
        let until = monotonic() + PATIENCE;
        loop {
            if let Some(build) = self.person.build_of(&workflow).await? {
                self.running.begun(id, &build);
                return Ok(build);
            }
            if monotonic() > until {
                return Err(format!("no worker took up the workflow {workflow}").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The same for the first workflow on a version that takes tasks, which is its build.
    pub async fn begin_on(&self, build: &str) -> Result<(), Error> {
        assert_eq!(self.begin(&format!("on-{build}")).await?, build);
        Ok(())
    }

    /// Releases it, and returns the build that it ended on, which has to be the one that it started on.
    pub async fn end(&self, id: &str) -> Result<String, Error> {
        let began = self.running.over(id).ok_or_else(|| format!("nothing was begun as {id}"))?;
        self.person.let_go(&self.workflow(id)).await?;
        let ended = self.person.result(&self.workflow(id)).await;
        assert_eq!(ended, began, "the workflow {id} ends on the build that it began on");
        Ok(ended)
    }

    /// The same for all running ones.
    pub async fn end_all(&self) -> Result<(), Error> {
        for id in self.running.all() {
            self.end(&id).await?;
        }
        Ok(())
    }

    /// Stops checking that it has workers.
    pub fn give_up(&self, id: &str) {
        self.running.give_up(id);
    }

    fn workflow(&self, id: &str) -> String {
        format!("{}-{id}", self.place.ns)
    }

    /// The Deployments of its versions, with their replicas.
    pub async fn deployments(&self) -> Result<Vec<(String, i64)>, Error> {
        let list = self.place.api("apps/v1", "Deployment").list(&kube::api::ListParams::default()).await?;
        let replicas = |object: &Value| object["spec"]["replicas"].as_i64().unwrap_or_default();
        let all = list.items.into_iter().map(|item| {
            let object = json!(item);
            (object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), replicas(&object))
        });
        Ok(all.collect())
    }
}

/// The status and the reason of a condition.
pub fn condition(object: &Value, type_: &str) -> (String, String) {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == type_).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

/// True if the status is of the current spec.
fn is_seen(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// The record of a version in the status.
pub fn version(object: &Value, build: &str) -> Option<Value> {
    let all = object["status"]["versions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|version| version["buildID"] == build)
}

async fn install_definition(cluster: &Cluster) -> Result<(), Error> {
    let install = || async {
        for kind in KINDS {
            let path = crate::root().join(format!("deploy/temporal/{kind}.windlass.dev.yaml"));
            let said = cluster.cp.kubectl(&["apply", "-f", path.to_str().unwrap()]).await;
            if said.code != Some(0) {
                return Err(said.stderr);
            }
            let definition = format!("crd/{kind}.windlass.dev");
            let wait = ["wait", "--for=condition=Established", &definition, "--timeout=60s"];
            let said = cluster.cp.kubectl(&wait).await;
            if said.code != Some(0) {
                return Err(said.stderr);
            }
        }
        // An API server that has just stored a definition may report for a while that its storage is not ready.
        let until = monotonic() + PATIENCE;
        loop {
            let said = cluster.cp.kubectl(&["get", &KINDS.join(","), "-A"]).await;
            if said.code == Some(0) {
                return Ok(());
            }
            if monotonic() > until {
                return Err(said.stderr);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    cluster.worker_definitions.get_or_try_init(install).await?;
    Ok(())
}
