//! `windlass status` and `windlass wait`: what fleets are doing, as a tree, as data, or as an exit code.

mod live;
pub mod tree;
#[cfg(test)]
mod tree_tests;
mod waiting;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Failure;
use super::connection::Cluster;
use super::output::Output;
use super::target::{Kind, Meant, Selected, Target};
use super::text::Look;
use crate::cluster::watch::Scope;
use crate::reader::{OF_REPORTS, Sight, Wanted};
use crate::report::{FleetReport, Seen, worst_first};

pub use waiting::{WaitArgs, wait};

/// What `windlass status` is told.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    selected: Selected,
    /// Name every node, also those that are well
    #[arg(long)]
    all: bool,
    /// Draw anew at each change, until q or Ctrl-C; where there is no terminal, a line a change
    #[arg(long, short = 'w', conflicts_with = "output")]
    watch: bool,
    /// Print data for a program (docs/terminal.md has the fields)
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    /// End with 0 where all are up to date, 1 where one is stalled or refused, 3 where one is on its way; with --watch as
    /// soon as none is on its way
    #[arg(long)]
    exit_status: bool,
}

/// The fleets that somebody's words mean: all where no name is said.
pub fn wanted(meant: &Meant, cluster: &Cluster, verb: &str) -> Result<Wanted, String> {
    let fleet = Kind::Fleet;
    let names = match meant {
        Meant::Nothing => Vec::new(),
        Meant::All(kind) => {
            Target { kind: *kind, name: "NAME".to_owned() }.require(fleet, verb)?;
            Vec::new()
        }
        Meant::These(_) if cluster.all_namespaces => {
            return Err("an object is in one namespace: --all-namespaces goes without names".to_owned());
        }
        Meant::These(targets) => {
            for target in targets {
                target.require(fleet, verb)?;
            }
            targets.iter().map(|target| target.name.clone()).collect()
        }
    };
    let namespace = || Scope::Namespace(cluster.namespace.clone());
    let scope = if cluster.all_namespaces { Scope::All } else { namespace() };
    Ok(Wanted { scope, names })
}

/// The most nodes that are named where there is no screen to say how many.
const ROWS: usize = 20;

/// Shows what fleets are doing.
pub async fn status(arguments: StatusArgs) -> Result<ExitCode, Failure> {
    let cluster = arguments.selected.scope.cluster().await?;
    let wanted = wanted(&arguments.selected.meant, &cluster, "status").map_err(Failure::Usage)?;
    let client = cluster.client;
    let sight = Sight::read(&client, &wanted, &OF_REPORTS).await?;
    if arguments.watch && sight.missing.is_empty() {
        return Ok(live::watch(&client, &sight, &wanted, &arguments).await?);
    }
    let reports = reports(&sight, &wanted);
    let text = match arguments.output {
        Some(format) => data(&reports, format, wanted.names.len() == 1)?,
        None => drawn(&reports, &arguments, Look::of_stdout()),
    };
    super::print(&text)?;
    if !sight.missing.is_empty() {
        return Err(sight.missing.join("\nwindlass: ").into());
    }
    if reports.is_empty() && arguments.output.is_none() {
        eprintln!("{}", none_found(&wanted));
    }
    Ok(exit_code(&reports, arguments.exit_status))
}

/// The reports as data: one fleet that was named as it is, and else a list, as kubectl wraps one.
fn data(reports: &[FleetReport], format: Output, named: bool) -> Result<String, String> {
    if format == Output::Name {
        let names = reports.iter().map(|report| Target { kind: Kind::Fleet, name: report.name.clone() });
        return Ok(names.fold(String::new(), |text, target| text + &target.to_string() + "\n"));
    }
    match reports {
        [report] if named => format.document(&json!(report)),
        items => format.document(&json!({"items": items})),
    }
}

fn none_found(wanted: &Wanted) -> String {
    match &wanted.scope {
        Scope::All => "No fleets found in any namespace.".to_owned(),
        Scope::Namespace(namespace) => format!("No fleets found in namespace {namespace}."),
    }
}

/// What is seen of the fleets that are wanted, the ill ones first.
fn reports(sight: &Sight, wanted: &Wanted) -> Vec<FleetReport> {
    let now = super::now();
    let fleets = sight.fleets(wanted);
    let mut reports: Vec<FleetReport> = fleets
        .iter()
        .map(|fleet| FleetReport::of(&Seen::of(&sight.view, fleet, &sight.unread), now))
        .collect();
    worst_first(&mut reports);
    reports
}

fn exit_code(reports: &[FleetReport], asked: bool) -> ExitCode {
    // The worst comes first.
    let code = reports.first().map_or(0, |report| report.verdict.exit_code());
    if asked { ExitCode::from(code) } else { ExitCode::SUCCESS }
}

/// Everything that is printed of fleets, as text.
fn drawn(reports: &[FleetReport], arguments: &StatusArgs, look: Look) -> String {
    let rows = if arguments.all {
        usize::MAX
    } else {
        terminal_rows().map_or(ROWS, |rows| rows.saturating_sub(6).max(3))
    };
    let lines = lines(reports, arguments, look, rows);
    let mut text = String::new();
    for line in lines {
        text.push_str(&line.painted(look));
        text.push('\n');
    }
    text
}

fn terminal_rows() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(_, height)| usize::from(height.0))
}

/// The lines of fleets: trees of those that are named, or have something to tell; of the others a line each.
fn lines(reports: &[FleetReport], arguments: &StatusArgs, look: Look, rows: usize) -> Vec<super::text::Line> {
    let namespaces = arguments.selected.scope.all_namespaces;
    let shown = tree::Shown { all: arguments.all, rows, namespaces };
    let now = super::now();
    let in_full = |report: &&FleetReport| {
        matches!(arguments.selected.meant, Meant::These(_))
            || arguments.all
            || report.verdict != crate::report::Verdict::UpToDate
    };
    let mut lines = Vec::new();
    for report in reports.iter().filter(in_full) {
        if !lines.is_empty() {
            lines.push(super::text::Line::default());
        }
        lines.extend(tree::tree(report, now, look, shown));
    }
    let healthy: Vec<&FleetReport> = reports.iter().filter(|report| !in_full(report)).collect();
    if !lines.is_empty() && !healthy.is_empty() {
        lines.push(super::text::Line::default());
    }
    let width = healthy.iter().map(|r| tree::name(r, namespaces).chars().count()).max().unwrap_or_default();
    lines.extend(healthy.into_iter().map(|report| tree::healthy(report, namespaces, width)));
    lines
}
