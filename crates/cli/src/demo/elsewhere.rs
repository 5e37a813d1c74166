//! The stage on an existing cluster: that of KUBECONFIG, with the operator as a child process that can be killed by
//! SIGKILL.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};
use tokio::process::{Child, Command};

use super::fleet::FLEET;
use super::stage::Stage;
use crate::connection::Connection;
use crate::dashboard;
use windlass_clock::{SharedClock, SystemClock};
use windlass_core::api::names::{GROUP, VERSION};

/// How many lines of the operator's log are shown after a failure.
const LAST_WORDS: usize = 10;

/// The cluster of KUBECONFIG.
pub struct Elsewhere {
    // First, so that the operator is dropped before everything else.
    operator: Option<Child>,
    client: Client,
    namespace: String,
    kubeconfig: Option<PathBuf>,
    log: File,
    /// The page's address, where it is served.
    page: Option<String>,
}

impl Elsewhere {
    /// Connects to the cluster of KUBECONFIG and checks that the demo can run on it. The operator may use another
    /// kubeconfig.
    pub async fn find(operator_kubeconfig: Option<PathBuf>) -> Result<Self, String> {
        let (client, namespace) = Connection::default().client("windlass-demo").await?;
        let fleets = fleets(&client, &namespace);
        let found = fleets.list(&ListParams::default()).await.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => {
                "Windlass's CustomResourceDefinitions are not installed: run `windlass crds | kubectl apply -f -`"
                    .to_owned()
            }
            _ => format!("the API server does not respond: {error}"),
        })?;
        if found.items.iter().any(|fleet| fleet.name_any() == FLEET) {
            return Err(format!(
                "fleet {FLEET} already exists in namespace {namespace}: delete it, or select another namespace in KUBECONFIG"
            ));
        }
        let log = tempfile()?;
        Ok(Self { operator: None, client, namespace, kubeconfig: operator_kubeconfig, log, page: None })
    }

    /// Serves the page, with the rights of KUBECONFIG.
    pub fn serve_page(&mut self) -> Result<(), String> {
        let page = dashboard::serve_demo(self.clock(), &self.namespace, async || {
            Ok(Connection::default().client("windlass-demo").await?.0)
        });
        self.page = Some(page?);
        Ok(())
    }

    /// Deletes the fleet.
    pub async fn clear(&self) -> Result<(), String> {
        let deleted = fleets(&self.client, &self.namespace).delete(FLEET, &DeleteParams::default()).await;
        match deleted {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(format!("cannot delete fleet {FLEET}: {error}")),
            Ok(_) => Ok(()),
        }
    }
}

fn fleets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, "NodeDeployment"));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// An unlinked file, which disappears with its last handle.
fn tempfile() -> Result<File, String> {
    let path = std::env::temp_dir().join(format!("windlass-demo-{}.log", std::process::id()));
    let open = || -> std::io::Result<File> {
        let file = File::options().read(true).append(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    };
    open().map_err(|error| format!("cannot write {}: {error}", path.display()))
}

impl Stage for Elsewhere {
    fn client(&self) -> Client {
        self.client.clone()
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn clock(&self) -> SharedClock {
        Arc::new(SystemClock)
    }

    fn setting(&self) -> Vec<String> {
        vec![
            format!(
                "The demo runs on the cluster of KUBECONFIG, namespace {}. Its kubelets should",
                self.namespace
            ),
            "be simulated: the images do not exist, and pulls of a \"nope\" tag must fail.".to_owned(),
        ]
    }

    fn invitation(&self) -> Vec<String> {
        let mut lines = vec![
            "Watch from another terminal, with the same KUBECONFIG:".to_owned(),
            String::new(),
            "    kubectl get nd,sn                # the fleet and its nodes; -w watches".to_owned(),
            "    kubectl get nd db -o yaml        # the plan, what it waits for, the history".to_owned(),
            "    kubectl describe nd db           # with its events".to_owned(),
        ];
        if let Some(page) = &self.page {
            lines.extend([
                String::new(),
                "Its page, in a browser:".to_owned(),
                String::new(),
                format!("    {page}"),
            ]);
        }
        lines
    }

    fn start_operator(&mut self) -> Result<(), String> {
        let start = || -> std::io::Result<Child> {
            let mut command = Command::new(std::env::current_exe()?);
            if let Some(kubeconfig) = &self.kubeconfig {
                command.env("KUBECONFIG", kubeconfig);
            }
            command
                .args(["operator", "--no-leader-elect", "--bind", "127.0.0.1:0"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(self.log.try_clone()?)
                .kill_on_drop(true)
                .spawn()
        };
        self.operator = Some(start().map_err(|error| format!("cannot start the operator: {error}"))?);
        Ok(())
    }

    async fn kill_operator(&mut self) -> Result<(), String> {
        if let Some(mut operator) = self.operator.take() {
            operator.kill().await.map_err(|error| format!("cannot kill the operator: {error}"))?;
        }
        Ok(())
    }

    fn killed(&self) -> &'static str {
        "SIGKILL"
    }

    fn last_words(&self) -> String {
        let mut text = String::new();
        let read = self.log.try_clone().and_then(|mut log| {
            log.rewind()?;
            log.read_to_string(&mut text)
        });
        if read.is_err() || text.is_empty() {
            return String::new();
        }
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
        format!("\nthe end of the operator's log:\n{}", last.join("\n"))
    }
}
