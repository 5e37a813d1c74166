//! `windlass wait`: until a fleet is up to date, or stands until somebody does something.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures::StreamExt;

use super::super::Failure;
use super::super::output::Output;
use super::super::target::{Meant, Selected};
use super::super::text::Look;
use super::kinds::{Asked, Report, Sights};
use crate::report::Verdict;

/// What `windlass wait` is told.
#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    selected: Selected,
    /// For how long at most: 30s, 5m, 1h30m; 0 only looks
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
    /// Print, once it is over, what `windlass status` prints for a program
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Reads a time as kubectl writes it: `90`, `30s`, `5m`, `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: write 30s, 5m or 1h30m");
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

/// Waits. Ends with 0 where all are up to date, 1 as soon as one is stalled or refused, 3 when the time is over, and 2 where it is
/// not said for which fleet.
pub async fn wait(arguments: WaitArgs) -> Result<ExitCode, Failure> {
    if arguments.selected.meant == Meant::Nothing {
        return Err(Failure::Usage("say for which fleet: nd/NAME, or nd for all of them".to_owned()));
    }
    arguments.selected.meant.require_no_node("wait").map_err(Failure::Usage)?;
    let cluster = arguments.selected.scope.cluster().await?;
    let asked = Asked::of(&arguments.selected.meant, &cluster, "wait").map_err(Failure::Usage)?;
    let client = cluster.client;
    // Nodes are not needed to tell.
    let sights = Sights::read_all(&client, &asked, &[]).await?;
    let mut sights = sights.following(&client, &asked).await?;
    let mut changes = sights.watch(&client);
    let over = tokio::time::sleep(arguments.timeout);
    tokio::pin!(over);
    let known = sights.reports().len();
    loop {
        let seen = sights.reports();
        if seen.len() < known {
            return Err(format!("{} that was waited for was deleted", asked.one()).into());
        }
        if seen.first().is_some_and(|worst| worst.verdict() != Verdict::Progressing) {
            return Ok(ended(&seen, false, &arguments)?);
        }
        tokio::select! {
            _ = changes.next() => {}
            () = &mut over => return Ok(ended(&sights.reports(), true, &arguments)?),
        }
    }
}

/// Says how it ended, in a line each, and with which code.
fn ended(reports: &[Report], over: bool, arguments: &WaitArgs) -> Result<ExitCode, String> {
    let look = Look::of_stdout();
    let typed = arguments.selected.scope.connection.typed();
    if let Some(format) = arguments.output {
        super::super::print(&super::data(reports, format, &arguments.selected.meant)?)?;
    }
    for report in reports.iter().filter(|_| arguments.output.is_none()) {
        let why = match (report.verdict(), report.waiting_for().is_empty()) {
            (Verdict::UpToDate, _) => "is up to date".to_owned(),
            (Verdict::ScaledToZero, _) => report.waiting_for().to_owned(),
            (Verdict::Refused, _) => format!("is refused: {}", report.waiting_for()),
            (Verdict::Stalled, _) => format!("is stalled: {}", report.waiting_for()),
            (Verdict::Progressing, true) => format!("is on its way: {}", report.summary()),
            (Verdict::Progressing, false) => format!("is on its way: {}", report.waiting_for()),
        };
        let text = typed.text(&format!("{} {why}", report.target()));
        let line = super::super::text::Line::of(super::super::text::Style::Plain, text);
        super::super::print(&(line.painted(Look { width: usize::MAX, ..look }) + "\n"))?;
    }
    let code = reports.first().map_or(0, |report| report.verdict().exit_code());
    if over && code == 3 {
        eprintln!("windlass: the time is over");
    }
    Ok(ExitCode::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_kubectl_writes_it() {
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
