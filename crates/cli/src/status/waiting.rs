//! `windlass wait`: waits until a fleet is up to date, stalled or rejected.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures::StreamExt;
use ratatui::text::Span;

use super::Report;
use super::kinds::{ObservedObjects, Selection};
use crate::Failure;
use crate::output::Output;
use crate::report::Verdict;
use crate::target::{ObjectSelector, Selected};
use crate::text::{Line, Terminal};

/// The arguments of `windlass wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    selected: Selected,
    /// The time limit: 30s, 5m, 1h30m; 0 checks once
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
    /// At the end, print the data of `windlass status`
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Parses a duration as kubectl does: `90`, `30s`, `5m`, `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write 30s, 5m or 1h30m");
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let (unit, seconds) = match rest[digits..].chars().next() {
            Some('s') => (1, 1),
            Some('m') => (1, 60),
            Some('h') => (1, 3_600),
            Some('d') => (1, 86_400),
            _ => return Err(wrong()),
        };
        total = number.checked_mul(seconds).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = &rest[digits + unit..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Duration::from_secs(total)) }
}

/// Waits. Exit codes: 0 all are up to date, 1 one is stalled or rejected, or there is none, 2 no fleet is named, 3 the
/// time-out expired.
pub async fn wait(arguments: WaitArgs) -> Result<ExitCode, Failure> {
    if arguments.selected.selector == ObjectSelector::Nothing {
        return Err(Failure::Usage("name a fleet, nd/NAME, or nd for all fleets".to_owned()));
    }
    arguments.selected.selector.require_no_node("wait").map_err(Failure::Usage)?;
    let cluster = arguments.selected.flags.cluster().await?;
    let selection = Selection::of(&arguments.selected.selector, &cluster, "wait").map_err(Failure::Usage)?;
    let client = cluster.client;
    // The verdict does not need the nodes.
    let observed = ObservedObjects::read_some(&client, &selection, &[]).await?;
    let mut observed = observed.following(&client, &selection).await?;
    let mut changes = observed.watch(&client);
    let over = tokio::time::sleep(arguments.timeout);
    tokio::pin!(over);
    let known = observed.reports().len();
    loop {
        let seen = observed.reports();
        if seen.len() < known {
            return Err(format!("{} was deleted during the wait", selection.singular()).into());
        }
        if seen.first().is_some_and(|worst| worst.verdict() != Verdict::Progressing) {
            return Ok(ended(&seen, false, &arguments)?);
        }
        tokio::select! {
            _ = changes.next() => {}
            () = &mut over => return Ok(ended(&observed.reports(), true, &arguments)?),
        }
    }
}

/// Prints the result, a line per object, and returns the exit code.
fn ended(reports: &[Box<dyn Report>], over: bool, arguments: &WaitArgs) -> Result<ExitCode, String> {
    let terminal = Terminal::of_stdout();
    let typed = arguments.selected.flags.connection.typed();
    if let Some(format) = arguments.output {
        crate::print(&super::data(reports, format, &arguments.selected.selector)?)?;
    }
    for report in reports.iter().filter(|_| arguments.output.is_none()) {
        let why = match (report.verdict(), report.waiting_for().is_empty()) {
            (Verdict::UpToDate, _) => "is up to date".to_owned(),
            (Verdict::ScaledToZero, _) => report.waiting_for().to_owned(),
            (Verdict::Refused, _) => format!("is rejected: {}", report.waiting_for()),
            (Verdict::Stalled, _) => format!("is stalled: {}", report.waiting_for()),
            (Verdict::Progressing, true) => format!("is in progress: {}", report.summary()),
            (Verdict::Progressing, false) => format!("is in progress: {}", report.waiting_for()),
        };
        let text = typed.text(&format!("{} {why}", report.target()));
        let line = Line::from(Span::raw(text));
        crate::print(&(Terminal { width: usize::MAX, ..terminal }.painted(&line) + "\n"))?;
    }
    let code = reports.first().map_or(0, |report| report.verdict().exit_code());
    if over && code == 3 {
        eprintln!("windlass: timed out");
    }
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_uses_kubectl_duration_format() {
        for (text, seconds) in
            [("90", 90), ("0", 0), ("30s", 30), ("5m", 300), ("1h30m", 5_400), ("1d", 86_400)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "5x", "1h30", "-1", "99999999999999999999d"] {
            assert!(duration(text).is_err_and(|e| e.contains("write 30s")), "{text}");
        }
    }
}
