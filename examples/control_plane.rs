//! Starts the real control plane of the tests, with simulated kubelets and Windlass's definitions, and keeps it
//! until Ctrl-C: a place to try things with `kubectl`.
//!
//! ```text
//! cargo run --example control_plane
//! ```

use windlass_harness::controlplane::{ControlPlane, Error, Options};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let cp = ControlPlane::start(Options::default()).await?;
    println!("export KUBECONFIG={}", cp.kubeconfig().display());
    println!("export PATH={}:$PATH", cp.bin().display());
    println!("# the control plane runs until Ctrl-C");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
