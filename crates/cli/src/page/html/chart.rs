//! A plan as bars over time: a table with drawn bars and, for screen readers, text.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::{screen_reader_text, task_sign};
use crate::report::chart::{Bar, Chart, Row, WIDTH};
use crate::report::{age, clock_time};
use windlass_engine::TaskState;

pub(super) fn chart(chart: &Chart, now: DateTime<Utc>) -> Markup {
    let middle = chart.from + (chart.to - chart.from) / 2;
    html! {
        table.chart {
            thead {
                tr {
                    th scope="col" { "Name" }
                    th scope="col" {
                        (screen_reader_text("Tasks from"))
                        span.axis {
                            @for at in [chart.from, middle, chart.to] { time datetime=(at.to_rfc3339()) { (clock_time(at, now)) } " " }
                        }
                    }
                    th scope="col" { "Last" }
                }
            }
            tbody { @for row in &chart.rows { (self::row(row)) } }
        }
        @if chart.hidden > 0 { p.dim { "and " (chart.hidden) " nodes that were updated earlier" } }
    }
}

fn row(row: &Row) -> Markup {
    html! {
        tr {
            th scope="row" { (row.name) }
            td {
                svg viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" focusable="false" {
                    @for (index, bar) in row.bars.iter().enumerate() {
                        rect.(class(bar, index)) x=(bar.start) y="0" width=(bar.length) height="10" { title { (words(bar)) } }
                    }
                }
                span.heard { @for bar in &row.bars { (words(bar)) "; " } }
            }
            td { @if let Some(bar) = row.bars.last() { (name(bar)) " " span.dim { (age(bar.took)) } } }
        }
    }
}

fn name(bar: &Bar) -> String {
    if bar.hook.is_empty() { bar.task.clone() } else { format!("{} {}", bar.task, bar.hook) }
}

fn words(bar: &Bar) -> String {
    let (_, _, words) = task_sign(bar.state);
    format!("{}{words}, {}", name(bar), age(bar.took))
}

/// Adjacent tasks have different shades.
fn class(bar: &Bar, index: usize) -> &'static str {
    match (bar.state, index % 2) {
        (TaskState::Complete, 0) => "done",
        (TaskState::Complete, _) => "done-too",
        (TaskState::Running | TaskState::Pending, _) => "now",
        (TaskState::Failed, _) => "failed",
        (TaskState::Skipped, _) => "skipped",
    }
}
