//! `windlass demo`: shows rollouts of a fleet. The same scenario runs on a simulated cluster in this process, or
//! on the cluster of KUBECONFIG.

mod elsewhere;
mod embedded;
mod fleet;
mod pace;
mod picture;
mod scenario;
mod screen;
mod seen;
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use elsewhere::Elsewhere;
use embedded::Embedded;
use scenario::{Ended, Scenario};
use screen::Screen;
/// The highest speed: the whole scenario takes less time than its computation.
const FASTEST: f64 = 1000.0;

/// How often a cluster that stays up drops its request log.
const FORGET_EVERY: Duration = Duration::from_mins(1);

/// The arguments of `windlass demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The speed of the cluster's clock, as a multiple of real time; at 3 the demo takes half a minute
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = read_speed)]
    speed: f64,
    /// The number of nodes; two of five may be unavailable at once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(3..=100))]
    nodes: u16,
    /// The seed of the cluster's random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Serve the cluster to kubectl, and its page to a browser, on loopback ports, until Ctrl-C
    #[arg(long)]
    serve: bool,
    /// The port to serve on [default: a free one]
    #[arg(long, value_name = "PORT", requires = "serve")]
    port: Option<u16>,
    /// Run on the cluster of KUBECONFIG, with the operator in a separate process
    #[arg(long, conflicts_with_all = ["speed", "seed", "port"])]
    cluster: bool,
    /// The kubeconfig that the operator uses there [default: KUBECONFIG]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    operator_kubeconfig: Option<PathBuf>,
}

fn read_speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.1..=FASTEST).contains(&speed) => Ok(speed),
        _ => Err(format!("write a number from 0.1 to {FASTEST}")),
    }
}

/// Runs the scenario.
pub fn run(arguments: DemoArgs) -> Result<(), String> {
    let result = if arguments.cluster {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(no_runtime)?
            .block_on(until_interrupted(on_a_cluster(arguments)))
    } else {
        // One thread and paused time, which `pace` advances.
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .map_err(no_runtime)?
            .block_on(until_interrupted(embedded(arguments)))
    };
    match result {
        Err(Ended::Failed(sentence)) => Err(sentence),
        Err(Ended::Unread(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        Ok(()) | Err(Ended::Unread(_)) => Ok(()),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn no_runtime(error: std::io::Error) -> String {
    format!("cannot start the async runtime: {error}")
}

/// Ctrl-C is a regular end: what was started is dropped.
async fn until_interrupted(story: impl Future<Output = Result<(), Ended>>) -> Result<(), Ended> {
    let stopped = super::stopped()?;
    tokio::select! {
        story = story => story,
        () = stopped => Ok(()),
    }
}

async fn embedded(arguments: DemoArgs) -> Result<(), Ended> {
    let pace = tokio::spawn(pace::keep(arguments.speed));
    let mut stage = Embedded::set(arguments.seed, arguments.speed)?;
    if arguments.serve {
        stage.serve(arguments.port.unwrap_or_default()).await?;
    }
    let mut story = Scenario::begin(stage, Screen::of_stdout(), arguments.nodes.into());
    story.run().await?;
    if arguments.serve {
        pace.abort();
        story.stage.catch_up();
        tokio::spawn(pace::keep(1.0));
        story.invite();
        loop {
            story.stage.forget();
            tokio::time::sleep(FORGET_EVERY).await;
        }
    }
    Ok(())
}

async fn on_a_cluster(arguments: DemoArgs) -> Result<(), Ended> {
    let mut stage = Elsewhere::find(arguments.operator_kubeconfig).await?;
    if arguments.serve {
        stage.serve_page()?;
    }
    let mut story = Scenario::begin(stage, Screen::of_stdout(), arguments.nodes.into());
    let result = story.run().await;
    if result.is_ok() && arguments.serve {
        story.invite();
        std::future::pending::<()>().await;
    }
    // The fleet is deleted: the demo leaves nothing behind in a real cluster.
    let cleared = story.stage.clear().await;
    result?;
    Ok(cleared?)
}
