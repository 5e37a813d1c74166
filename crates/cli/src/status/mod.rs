//! `windlass status` and `windlass wait`: the state of fleets, as a tree, as data, or as an exit code.

mod kinds;
mod live;
pub mod tree;
#[cfg(test)]
mod tree_tests;
mod waiting;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Failure;
use super::output::Output;
use super::target::{ObjectSelector, Selected};
use super::text::{Line, Terminal};
use crate::reader::OF_REPORTS;
use crate::report::Verdict;
use kinds::{ObservedObjects, Selection};

pub use kinds::Report;
pub use waiting::{WaitArgs, wait};

/// The arguments of `windlass status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    selected: Selected,
    /// List every node, also healthy ones
    #[arg(long)]
    all: bool,
    /// Redraw at each change, until q or Ctrl-C; without a terminal, print one line per change
    #[arg(long, short = 'w', conflicts_with = "output")]
    watch: bool,
    /// Print data (docs/reference/terminal.md lists the fields)
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    /// Exit with 0 if all are up to date, 1 if one is stalled or rejected, 3 if one is in progress; with --watch, once none is
    /// in progress
    #[arg(long)]
    exit_status: bool,
}

/// The most nodes that are listed without a terminal.
const ROWS: usize = 20;

/// Prints the status of fleets.
pub async fn status(arguments: StatusArgs) -> Result<ExitCode, Failure> {
    arguments.selected.selector.require_no_node("status").map_err(Failure::Usage)?;
    let cluster = arguments.selected.flags.cluster().await?;
    let selection =
        Selection::of(&arguments.selected.selector, &cluster, "status").map_err(Failure::Usage)?;
    let client = cluster.client;
    let observed = ObservedObjects::read(&client, &selection, &OF_REPORTS).await?;
    if arguments.watch && observed.missing.is_empty() {
        let mut observed = observed.following(&client, &selection).await?;
        return Ok(live::watch(&client, &mut observed, &arguments).await?);
    }
    let reports = observed.reports();
    let text = match arguments.output {
        Some(format) => data(&reports, format, &arguments.selected.selector)?,
        None => drawn(&reports, &arguments, Terminal::of_stdout()),
    };
    super::print(&text)?;
    for sentence in observed.left_out() {
        eprintln!("windlass: {sentence}");
    }
    if !observed.missing.is_empty() {
        return Err(observed.missing.join("\nwindlass: ").into());
    }
    if reports.is_empty() && arguments.output.is_none() {
        eprintln!("{}", selection.none_found());
    }
    Ok(exit_code(&reports, arguments.exit_status))
}

/// The reports as data: a single named object as such, else a list, as kubectl wraps one.
fn data(reports: &[Box<dyn Report>], format: Output, selector: &ObjectSelector) -> Result<String, String> {
    if format == Output::Name {
        let names = reports.iter().map(|report| report.target());
        return Ok(names.fold(String::new(), |text, target| text + &target.to_string() + "\n"));
    }
    let is_one = matches!(selector, ObjectSelector::These(targets) if targets.len() == 1);
    match reports {
        [report] if is_one => format.document(&report.document()),
        items => {
            let items: Vec<_> = items.iter().map(|report| report.document()).collect();
            format.document(&json!({"items": items}))
        }
    }
}

fn exit_code(reports: &[Box<dyn Report>], selection: bool) -> ExitCode {
    // Reports are sorted, worst first.
    let code = reports.first().map_or(0, |report| report.verdict().exit_code());
    if selection { ExitCode::from(code) } else { ExitCode::SUCCESS }
}

/// All output as text.
fn drawn(reports: &[Box<dyn Report>], arguments: &StatusArgs, terminal: Terminal) -> String {
    let rows = if arguments.all {
        usize::MAX
    } else {
        terminal_rows().map_or(ROWS, |rows| rows.saturating_sub(6).max(3))
    };
    let lines = lines(reports, arguments, terminal, rows);
    let mut text = String::new();
    for line in lines {
        text.push_str(&terminal.painted(&line));
        text.push('\n');
    }
    text
}

fn terminal_rows() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(_, height)| usize::from(height.0))
}

/// The lines of all reports: trees of those that are named or unhealthy, one line for every other one.
fn lines(reports: &[Box<dyn Report>], arguments: &StatusArgs, terminal: Terminal, rows: usize) -> Vec<Line> {
    let namespaces = arguments.selected.flags.all_namespaces;
    let typed = arguments.selected.flags.connection.typed();
    let shown = tree::Shown { all: arguments.all, rows, namespaces, typed: &typed };
    let now = super::now();
    let is_in_full = |report: &&dyn Report| {
        matches!(arguments.selected.selector, ObjectSelector::These(_))
            || arguments.all
            || report.verdict() != Verdict::UpToDate
    };
    let (in_full, healthy): (Vec<&dyn Report>, Vec<_>) =
        reports.iter().map(AsRef::as_ref).partition(is_in_full);
    let mut lines = Vec::new();
    for report in in_full {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(report.tree(now, terminal, shown));
    }
    if !lines.is_empty() && !healthy.is_empty() {
        lines.push(Line::default());
    }
    let width = healthy.iter().map(|r| r.name(namespaces).chars().count()).max().unwrap_or_default();
    lines.extend(healthy.into_iter().map(|report| report.healthy(namespaces, width)));
    lines
}
