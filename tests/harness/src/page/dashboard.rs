//! The shipped program as a dashboard.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running dashboard.
pub struct Dashboard {
    /// The printed address, including the secret.
    pub url: String,
    child: Child,
}

impl Dashboard {
    pub async fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        // An optimized build can be measured instead.
        let program = std::env::var_os("WINDLASS_DASHBOARD").map_or_else(crate::windlass_bin, Into::into);
        let mut child = Command::new(program)
            .arg("dashboard")
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        while let Some(line) = said.next_line().await.unwrap() {
            if line.trim().starts_with("http://") {
                return Self { url: line.trim().to_owned(), child };
            }
        }
        panic!("it printed no address");
    }

    /// Ends it. Returns its port.
    pub async fn end(mut self) -> String {
        self.child.kill().await.unwrap();
        let (base, _) = self.url.split_once("/?").unwrap();
        base.rsplit_once(':').unwrap().1.to_owned()
    }

    /// The URL of a path.
    pub fn at(&self, path: &str) -> String {
        let (base, _) = self.url.split_once("/?").unwrap();
        format!("{base}{path}")
    }
}
