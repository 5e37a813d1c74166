//! `windlass status` and `windlass wait`: what fleets are doing, as a tree, as data, or as an exit code.

mod kinds;
mod live;
pub mod tree;
#[cfg(test)]
mod tree_tests;
mod waiting;
#[cfg(feature = "temporal")]
mod workers;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Failure;
use super::output::Output;
use super::target::{Meant, Selected};
use super::text::{Line, Look};
use crate::reader::OF_REPORTS;
use crate::report::Verdict;
use kinds::{Asked, Report, Sights};

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

/// The most nodes that are named where there is no screen to say how many.
const ROWS: usize = 20;

/// Shows what fleets are doing.
pub async fn status(arguments: StatusArgs) -> Result<ExitCode, Failure> {
    arguments.selected.meant.require_no_node("status").map_err(Failure::Usage)?;
    let cluster = arguments.selected.scope.cluster().await?;
    let asked = Asked::of(&arguments.selected.meant, &cluster, "status").map_err(Failure::Usage)?;
    let client = cluster.client;
    let sights = Sights::read(&client, &asked, &OF_REPORTS).await?;
    if arguments.watch && sights.missing.is_empty() {
        let mut sights = sights.following(&client, &asked).await?;
        return Ok(live::watch(&client, &mut sights, &arguments).await?);
    }
    let reports = sights.reports();
    let text = match arguments.output {
        Some(format) => data(&reports, format, &arguments.selected.meant)?,
        None => drawn(&reports, &arguments, Look::of_stdout()),
    };
    super::print(&text)?;
    if !sights.missing.is_empty() {
        return Err(sights.missing.join("\nwindlass: ").into());
    }
    if reports.is_empty() && arguments.output.is_none() {
        eprintln!("{}", asked.none_found());
    }
    Ok(exit_code(&reports, arguments.exit_status))
}

/// The reports as data: one object that was named as it is, and else a list, as kubectl wraps one.
fn data(reports: &[Report], format: Output, meant: &Meant) -> Result<String, String> {
    if format == Output::Name {
        let names = reports.iter().map(Report::target);
        return Ok(names.fold(String::new(), |text, target| text + &target.to_string() + "\n"));
    }
    let is_one = matches!(meant, Meant::These(targets) if targets.len() == 1);
    match reports {
        [report] if is_one => format.document(&report.document()),
        items => {
            let items: Vec<_> = items.iter().map(Report::document).collect();
            format.document(&json!({"items": items}))
        }
    }
}

fn exit_code(reports: &[Report], asked: bool) -> ExitCode {
    // The worst comes first.
    let code = reports.first().map_or(0, |report| report.verdict().exit_code());
    if asked { ExitCode::from(code) } else { ExitCode::SUCCESS }
}

/// Everything that is printed, as text.
fn drawn(reports: &[Report], arguments: &StatusArgs, look: Look) -> String {
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

/// The lines of what is shown: trees of those that are named, or have something to tell; of the others a line each.
fn lines(reports: &[Report], arguments: &StatusArgs, look: Look, rows: usize) -> Vec<Line> {
    let namespaces = arguments.selected.scope.all_namespaces;
    let typed = arguments.selected.scope.connection.typed();
    let shown = tree::Shown { all: arguments.all, rows, namespaces, typed: &typed };
    let now = super::now();
    let in_full = |report: &&Report| {
        matches!(arguments.selected.meant, Meant::These(_))
            || arguments.all
            || report.verdict() != Verdict::UpToDate
    };
    let mut lines = Vec::new();
    for report in reports.iter().filter(in_full) {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(report.tree(now, look, shown));
    }
    let healthy: Vec<&Report> = reports.iter().filter(|report| !in_full(report)).collect();
    if !lines.is_empty() && !healthy.is_empty() {
        lines.push(Line::default());
    }
    let width = healthy.iter().map(|r| r.name(namespaces).chars().count()).max().unwrap_or_default();
    lines.extend(healthy.into_iter().map(|report| report.healthy(namespaces, width)));
    lines
}
