//! The command line of Windlass. The program is `main.rs`; an example that runs itself as the program calls [`main`], too.

mod adopt;
mod completion;
mod connection;
mod dashboard;
mod definitions;
#[cfg(feature = "demo")]
mod demo;
#[cfg(test)]
mod empty_cluster;
mod explain;
mod extension;
#[doc(hidden)]
pub mod forecast;
mod help;
mod kind;
mod operator;
mod output;
mod page;
mod plan;
mod reader;
#[cfg(all(test, feature = "demo", feature = "otlp"))]
mod reference;
mod report;
mod scrapers;
mod sidecar;
mod status;
mod target;
mod text;
mod usage;
mod verbs;
mod version;

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use kind::Kind;
use verbs::Verb;
use windlass_clock::{Clock, SystemClock};

/// Rolls out change across fleets of stateful nodes on Kubernetes, one persisted step at a time.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true, after_long_help = help::OF_ALL)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controllers, with KUBECONFIG or the in-cluster account
    Operator(operator::OperatorArgs),
    /// Show rollouts on a simulated cluster in this process; nothing to install
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Show the progress of fleets, what they wait for, and unhealthy nodes
    #[command(after_long_help = help::OF_STATUS)]
    Status(status::StatusArgs),
    /// Show the effect of a change and the order of nodes, without making it
    #[command(after_long_help = help::OF_PLAN)]
    Plan(plan::PlanArgs),
    /// Explain the state of a fleet or a node, and suggest commands
    #[command(mut_arg("words", |arg| arg.help(help::selected(|_| true))))]
    Explain(explain::ExplainArgs),
    /// Show the differences between two revisions of a fleet
    Diff(explain::diff::DiffArgs),
    /// Show the history of a fleet and its nodes, oldest first
    Logs(explain::logs::LogsArgs),
    /// Serve a local page that shows fleets live, with buttons for the verbs, with your rights
    Dashboard(dashboard::DashboardArgs),
    /// Wait until a fleet is up to date, stalled or rejected
    #[command(after_long_help = help::OF_WAIT)]
    Wait(status::WaitArgs),
    /// Pause a fleet's rollouts
    #[command(after_long_help = help::OF_VERBS)]
    Pause(verbs::VerbArgs),
    /// Resume a paused fleet, or open the window of its rollout early
    #[command(after_long_help = help::OF_VERBS)]
    Resume(verbs::ResumeArgs),
    /// Restart every node of a fleet in waves, or one node
    #[command(after_long_help = help::OF_VERBS, mut_arg("words", |arg| arg.help(help::named(|_| true))))]
    Restart(verbs::VerbArgs),
    /// Stop a fleet's rollout; nodes keep their revisions, and Windlass does not retry the target by itself
    #[command(after_long_help = help::OF_VERBS)]
    Abort(verbs::AbortArgs),
    /// Retry a target that failed, was aborted or rolled back, or a hook that failed
    #[command(after_long_help = help::OF_VERBS)]
    Retry(verbs::VerbArgs),
    /// Skip a task: a hook, a node's mark-ready, a fleet's await-caught-up or await-nodes-at-height
    #[command(after_long_help = help::OF_VERBS, mut_arg("words", |arg| arg.help(help::named(|_| true))))]
    Skip(verbs::SkipArgs),
    /// Approve a fleet's hook that waits for a person
    #[command(after_long_help = help::OF_VERBS)]
    Approve(verbs::ApproveArgs),
    /// Move traffic to the nodes that wait to take over
    #[command(after_long_help = help::OF_VERBS, mut_arg("words", |arg| arg.help(help::named(Kind::has_template))))]
    Promote(verbs::PromoteArgs),
    /// Set a fleet's template to a stored revision
    #[command(after_long_help = help::OF_VERBS, mut_arg("words", |arg| arg.help(help::named(Kind::has_template))))]
    Rollback(verbs::RollbackArgs),
    /// List a fleet's stored revisions, the changes of each, and its ended plans
    History(verbs::HistoryArgs),
    /// Let Windlass roll out existing StatefulSets: print the StatefulSetRollout, or create it
    Adopt(adopt::AdoptArgs),
    /// Print the versions of this program and of the cluster's operators
    Version(version::VersionArgs),
    /// Print a shell script that completes commands, flags, and the names of fleets and nodes
    Completion(completion::CompletionArgs),
    /// Print the man page, or write one for each command
    Man(completion::ManArgs),
    #[command(flatten)]
    Extension(extension::Command),
    /// Print the CustomResourceDefinitions as YAML
    Crds(extension::CrdsFlags),
    /// Serve the sidecar's protocol next to a main container
    Sidecar(sidecar::SidecarArgs),
}

/// Runs the command. Exit codes: 0 done, 1 failed, 2 wrong usage.
#[must_use]
pub fn main() -> ExitCode {
    completion::answer(command);
    let parsed = command().try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed.map_err(|error| error.format(&mut command())) {
        Ok(arguments) => arguments,
        Err(error) => return usage::report(&error),
    };
    // The demo needs a runtime with paused time.
    #[cfg(feature = "demo")]
    if let Command::Demo(arguments) = arguments.command {
        return ended(demo::run(arguments));
    }
    // The operator mostly waits for the API server. A multi-threaded runtime costs a tenth more CPU, and memory for
    // each thread.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start the async runtime: {error}")),
    };
    let asked = match arguments.command {
        Command::Status(arguments) => return coded(runtime.block_on(status::status(arguments))),
        Command::Plan(arguments) => return coded(runtime.block_on(plan::plan(arguments))),
        Command::Wait(arguments) => return coded(runtime.block_on(status::wait(arguments))),
        Command::Explain(arguments) => return ended(runtime.block_on(explain::explain(arguments))),
        Command::Diff(arguments) => return ended(runtime.block_on(explain::diff::diff(arguments))),
        Command::Adopt(arguments) => return ended(runtime.block_on(adopt::adopt(arguments))),
        Command::Logs(arguments) => return ended(runtime.block_on(explain::logs::logs(arguments))),
        other => other,
    };
    ended(match asked {
        // These commands have their own exit codes.
        Command::Status(_)
        | Command::Plan(_)
        | Command::Wait(_)
        | Command::Explain(_)
        | Command::Diff(_)
        | Command::Adopt(_)
        | Command::Logs(_) => Ok(()),
        Command::Operator(arguments) => runtime.block_on(operator::run(arguments)),
        #[cfg(feature = "demo")]
        Command::Demo(arguments) => demo::run(arguments),
        Command::Dashboard(arguments) => runtime.block_on(dashboard::dashboard(arguments)),
        Command::Pause(arguments) => runtime.block_on(verbs::run(Verb::Pause, arguments)),
        Command::Resume(arguments) => runtime.block_on(verbs::resume(arguments)),
        Command::Restart(arguments) => runtime.block_on(verbs::run(Verb::Restart, arguments)),
        Command::Abort(arguments) => runtime.block_on(verbs::abort(arguments)),
        Command::Retry(arguments) => runtime.block_on(verbs::run(Verb::Retry, arguments)),
        Command::Skip(arguments) => runtime.block_on(verbs::skip(arguments)),
        Command::Approve(arguments) => runtime.block_on(verbs::approve(arguments)),
        Command::Promote(arguments) => runtime.block_on(verbs::promote(arguments)),
        Command::Rollback(arguments) => runtime.block_on(verbs::rollback(arguments)),
        Command::History(arguments) => return ended(runtime.block_on(verbs::history(arguments))),
        Command::Version(arguments) => runtime.block_on(version::version(arguments)),
        Command::Completion(arguments) => completion::script(&arguments, &called()),
        Command::Man(arguments) => completion::man(arguments, command()),
        Command::Extension(command) => runtime.block_on(command.run()),
        Command::Crds(arguments) => {
            print(&arguments.yaml().unwrap_or_else(windlass_core::api::crd::crds_yaml))
        }
        Command::Sidecar(arguments) => runtime.block_on(sidecar::run(arguments)),
    })
}

/// The name under which this program was called.
fn called() -> String {
    let path = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = path.as_deref().and_then(|path| path.file_name()?.to_str()).map(str::to_owned);
    name.unwrap_or_else(|| "windlass".to_owned())
}

/// The command line. As a kubectl plugin, its name is that of the typed command.
fn command() -> clap::Command {
    let command = Arguments::command();
    if called().starts_with("kubectl-") { command.bin_name("kubectl windlass") } else { command }
}

/// Why a command failed, in a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Failure {
    /// The arguments are invalid.
    Usage(String),
    /// The arguments are fine, but the command failed.
    Failed(String),
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Self::Failed(sentence)
    }
}

impl Failure {
    /// Prints it. Returns the exit code.
    fn report(self) -> ExitCode {
        match self {
            Self::Failed(sentence) => failed(&sentence),
            Self::Usage(sentence) => {
                eprintln!("windlass: {sentence}");
                ExitCode::from(usage::code())
            }
        }
    }
}

fn ended(result: Result<(), impl Into<Failure>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.into().report(),
    }
}

/// As [`ended`], for a command with its own exit codes.
fn coded(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(Failure::report)
}

fn failed(sentence: &str) -> ExitCode {
    eprintln!("windlass: {sentence}");
    ExitCode::FAILURE
}

/// Prints to standard output; a closed pipe is no failure.
fn print(text: &str) -> Result<(), String> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// True if the stream is a terminal and colours are not disabled.
fn is_coloured(stream: &impl std::io::IsTerminal) -> bool {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !no_colour
}

/// The user agent of the command line.
const AGENT: &str = concat!("windlass/", env!("CARGO_PKG_VERSION"));

/// The time on the user's machine.
fn now() -> DateTime<Utc> {
    SystemClock.now()
}

/// Resolves at SIGTERM or SIGINT.
fn stopped() -> Result<impl Future<Output = ()> + Send + 'static, String> {
    let watch = |kind| signal(kind).map_err(|e| format!("cannot watch for signals: {e}"));
    let (mut term, mut interrupt) = (watch(SignalKind::terminate())?, watch(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
