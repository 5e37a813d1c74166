//! `windlass demo` on a real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, built from
//! Go modules, with played kubelets, and the operator in a process of its own under the rights that it is deployed with.
//!
//! ```text
//! cargo run --example tour              # a minute, then everything is taken down
//! cargo run --example tour -- --stay    # the cluster and the operator stay until Ctrl-C
//! ```

use std::process::{ExitCode, Stdio};

use tokio::process::Command;
use windlass_harness::controlplane::{ControlPlane, Error, Options};

const USAGE: &str = "usage: tour [--stay]    (--stay: the cluster and the operator stay until Ctrl-C)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stay = match arguments.as_slice() {
        // The tour runs itself again as the demo, and the demo itself again as the operator.
        ["operator" | "demo", ..] => {
            std::thread::spawn(end_with_the_parent);
            return windlass_cli::main();
        }
        [] => false,
        ["--stay"] => true,
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let played =
        tokio::runtime::Runtime::new().map_err(Error::from).and_then(|runtime| runtime.block_on(play(stay)));
    match played {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tour: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Sets the stage, and has the story told on it.
async fn play(stay: bool) -> Result<ExitCode, Error> {
    println!("Starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler …\n");
    let cp = ControlPlane::start(Options::default()).await?;
    let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac/all-namespaces.yaml");
    let said = cp.kubectl(&["apply", "-f", rbac]).await;
    if said.code != Some(0) {
        return Err(said.stderr.into());
    }
    let account = cp.service_account_kubeconfig("windlass-system", "windlass").await?;
    println!("    export KUBECONFIG={}", cp.kubeconfig().display());
    println!("    export PATH={}:$PATH    # a kubectl, if you have none\n", cp.bin().display());
    let mut demo = Command::new(std::env::current_exe()?)
        .args(["demo", "--cluster", "--operator-kubeconfig"])
        .arg(account)
        .args(stay.then_some("--serve"))
        .envs(cp.environment())
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    // Waiting would close it, and end the demo.
    let _held = demo.stdin.take();
    // A Ctrl-C is the demo's too: it ends first, and its cluster after it.
    let ended = tokio::select! {
        ended = demo.wait() => ended?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            demo.wait().await?
        }
    };
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The other end of standard input closes however its holder ends.
fn end_with_the_parent() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0);
}
