//! Versioned workers of Temporal, told as a story: a workflow that is pinned to version 1 runs on while version 2 ramps to 5,
//! 50 and 100 percent; version 1 drains and goes; a bad version 3 fails its gate and is taken back. The Temporal server, the
//! workers and the control plane are real processes of this machine.
//!
//! ```text
//! cargo run --features temporal --example temporal              # two minutes; the first time some more, to build the server
//! cargo run --features temporal --example temporal -- --stay    # all stays until Ctrl-C, to try things in
//! ```

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "the parts that it shares with tests fail by panicking"
)]

use std::{process::ExitCode, time::Duration};

use serde_json::{Value, json};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{self, Farm, message};
use windlass_harness::temporal::frontend::{Options, Server};

const USAGE: &str = "usage: temporal [--stay]    (--stay: all stays until Ctrl-C)";
const LOOK: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let stay = match std::env::args().nth(1).as_deref() {
        // The example runs itself again as the operator.
        Some("operator") => return windlass_cli::main(),
        None => false,
        Some("--stay") => true,
        Some("--help" | "-h") => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(_) => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let told = tokio::runtime::Runtime::new().map_err(Error::from).and_then(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                told = tell(stay) => told,
                interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
            }
        })
    });
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("temporal: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn tell(stay: bool) -> Result<(), Error> {
    println!("Starting a Temporal server, a Kubernetes control plane and three nodes …");
    let server = Server::start(Options::default()).await?;
    let cluster = Cluster::start().await?;
    let own = std::env::current_exe()?.display().to_string();
    let farm = Farm::new(&cluster, &server, &own, "shop").await?;
    println!("    export KUBECONFIG={}", cluster.cp.kubeconfig().display());
    println!("    export PATH={}:$PATH    # a kubectl, if you have none", cluster.cp.bin().display());
    println!("    kubectl -n {} get wwd,deployments,pods", &*farm.place.ns);
    println!("    temporal --address {} workflow list", server.address());

    println!("\nVersion 1 is the first one: it becomes current as soon as its gate has passed.");
    let mut spec = farm.spec("1");
    spec["rollout"]["gate"] = json!({"workflowType": "Gate", "timeoutSeconds": 60});
    spec["rollout"]["onFailure"] = json!("Rollback");
    farm.create(spec).await?;
    let v1 = follow(&farm, |seen| said(seen, "currentBuildID").is_some()).await?;
    farm.begin("a-long-order").await?;
    println!("  A workflow begins, and is pinned to {v1}.");

    println!("\nVersion 2 is wanted.");
    farm.set_image("2").await?;
    let v2 = follow(&farm, |seen| said(seen, "currentBuildID").is_some_and(|id| id != v1)).await?;
    println!("  New workflows go to {v2}. The first one runs on, on {v1}, whose workers stay.");

    println!("\nThe workflow is told to end.");
    let ended_on = farm.end("a-long-order").await?;
    println!("  Its last step was carried out by {ended_on}. Nothing runs on {v1} any more.");
    follow(&farm, |seen| farm::version(seen, &v1).is_none()).await?;
    println!("  {v1} is gone: its Deployment, and its record in Temporal.");

    println!("\nVersion 3 is bad: its gate fails.");
    farm.set_image("bad").await?;
    follow(&farm, |seen| farm::condition(seen, "UpToDate").1 == "RolledBack").await?;
    println!("  Nothing was given to it, and {v2} is current.");
    if stay {
        println!("\nAll of it stays until Ctrl-C. Images: {}, bad.", farm::image("1 to 5"));
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn said(seen: &Value, field: &str) -> Option<String> {
    seen["status"][field].as_str().map(str::to_owned)
}

/// Prints what changes until something holds, and answers with the current version.
async fn follow(farm: &Farm<'_>, holds: impl Fn(&Value) -> bool) -> Result<String, Error> {
    let mut before = String::new();
    let until = windlass::clock::monotonic() + Duration::from_mins(2);
    loop {
        let seen = farm.object().await?;
        let line = line(&seen);
        if line != before {
            println!("  {line}");
            before = line;
        }
        if holds(&seen) {
            return Ok(said(&seen, "currentBuildID").unwrap_or_default());
        }
        if windlass::clock::monotonic() > until {
            return Err(format!("it took too long; last seen: {:#}", seen["status"]).into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Where tasks go, how each version stands, and what is waited for.
fn line(seen: &Value) -> String {
    let versions: Vec<String> = seen["status"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|version| {
            let text = |field: &str| version[field].as_str().unwrap_or_default();
            let percent = match text("state") {
                "Ramping" => format!(" {} %", seen["status"]["rampPercent"]),
                _ => String::new(),
            };
            format!("{} {}{percent}", text("buildID"), text("state"))
        })
        .collect();
    let reason = farm::condition(seen, "UpToDate").1;
    format!("{:<58} {reason}: {}", versions.join(", "), message(seen, "UpToDate"))
}
