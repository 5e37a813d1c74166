//! The cluster and the operator of the tour.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::controlplane::{ControlPlane, Error, Options};

/// A real control plane, and the operator in a process of its own, under the rights that it is deployed with.
pub struct Stage {
    // First, so that the operator is gone before its cluster is.
    operator: Option<Child>,
    kubeconfig: PathBuf,
    pub cp: ControlPlane,
}

impl Stage {
    pub async fn set() -> Result<Self, Error> {
        let cp = ControlPlane::start(Options::default()).await?;
        let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac/all-namespaces.yaml");
        kubectl(&cp, &["apply", "-f", rbac]).await?;
        let kubeconfig = cp.service_account_kubeconfig("windlass-system", "windlass").await?;
        Ok(Self { operator: None, kubeconfig, cp })
    }

    /// The operator's log.
    pub fn log(&self) -> PathBuf {
        self.cp.folder().join("operator.log")
    }

    pub fn start_operator(&mut self) -> Result<(), Error> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let child = Command::new(std::env::current_exe()?)
            .args(["operator", "--no-leader-elect", "--bind", "127.0.0.1:0"])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        self.operator = Some(child);
        Ok(())
    }

    /// Kills the operator with SIGKILL; it has no say in when.
    pub async fn kill_operator(&mut self) -> Result<(), Error> {
        if let Some(mut operator) = self.operator.take() {
            operator.kill().await?;
        }
        Ok(())
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        kubectl(&self.cp, arguments).await
    }

    /// How to look on from another terminal.
    pub fn invitation(&self) -> String {
        let show = |path: &Path| path.display().to_string();
        format!(
            "Look on from another terminal:\n\
             \n    export KUBECONFIG={}\n    export PATH={}:$PATH    # a kubectl, if you have none\n\
             \n    kubectl get nd db -w             # the fleet\n    kubectl get sn -w                # its nodes\
             \n    kubectl get nd db -o yaml        # the plan, what it waits for, the history\
             \n    kubectl events --for nd/db\n",
            show(self.cp.kubeconfig()),
            show(&self.cp.bin()),
        )
    }
}

async fn kubectl(cp: &ControlPlane, arguments: &[&str]) -> Result<String, Error> {
    let said = cp.kubectl(arguments).await;
    if said.code == Some(0) { Ok(said.stdout) } else { Err(said.stderr.into()) }
}
