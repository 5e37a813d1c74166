//! Starts the real control plane of the tests, with played kubelets and Windlass's definitions, and keeps it
//! until Ctrl-C: a place to try things with `kubectl`.
//!
//! ```text
//! cargo run --example control_plane
//! ```

#[path = "../tests/controlplane/mod.rs"]
mod controlplane;

use controlplane::{ControlPlane, Options};

#[tokio::main]
async fn main() -> Result<(), controlplane::Error> {
    let cp = ControlPlane::start(Options::default()).await?;
    println!("export KUBECONFIG={}", cp.kubeconfig().display());
    println!("export PATH={}:$PATH", cp.bin().display());
    println!("# the control plane runs until Ctrl-C");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
