//! Renders views as HTML. The page works without scripts; what changes is in parts with IDs, so that a script can
//! replace them.

mod act;
mod chart;
mod fleet;
mod list;
mod nodes;
mod sheet;

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{DOCTYPE, Markup, html};

use super::view::ObjectView;
use crate::report::{FleetReport, Health, Verdict, clock_time, task_glyph};
use windlass_engine::TaskState;

pub use act::{Confirmation, act, done};
pub use list::{list, parts as parts_of_list};
pub use nodes::nodes;

/// A part of a page: its ID and its content.
pub type Part = (&'static str, Markup);

/// The page's style.
pub const STYLE: &str = include_str!("style.css");
/// The page's script.
pub const SCRIPT: &str = include_str!("page.js");

/// The page of an object. `acts`: true if it has buttons.
#[must_use]
pub fn object(view: &ObjectView, acts: bool) -> Markup {
    match view {
        ObjectView::Fleet(view) => fleet::fleet(view, acts),
        ObjectView::Sheet(view) => sheet::sheet(view, acts),
    }
}

/// Its parts that live updates replace.
#[must_use]
pub fn parts_of_object(view: &ObjectView, acts: bool) -> Vec<Part> {
    match view {
        ObjectView::Fleet(view) => fleet::parts(view, acts),
        ObjectView::Sheet(view) => sheet::parts(view, acts),
    }
}

/// A complete page.
struct Frame<'a> {
    /// The title of the browser tab.
    title: &'a str,
    /// The path of its live updates, if any.
    live: Option<&'a str>,
    /// The breadcrumbs: labels with their paths.
    crumbs: &'a [(&'a str, String)],
}

impl Frame<'_> {
    fn around(&self, main: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Windlass" }
                    link rel="stylesheet" href="/style.css";
                    link rel="icon" href="data:,";
                    script src="/page.js" defer {}
                }
                body data-live=[self.live] {
                    a.skip href="#main" { "Skip to main content" }
                    header {
                        nav aria-label="Breadcrumb" {
                            ol {
                                li { a href="/" { "Windlass" } }
                                @for (word, address) in self.crumbs {
                                    li { a href=(address) { (word) } }
                                }
                            }
                        }
                        @if self.live.is_some() {
                            p #live { noscript { "This page does not update without scripts. " a href="" { "Reload" } } }
                        }
                    }
                    main #main tabindex="-1" { (main) }
                }
            }
        }
    }
}

fn sections(parts: &[Part]) -> Markup {
    html! { @for (id, part) in parts { section id=(id) { (part) } } }
}

/// A page with a single message.
#[must_use]
pub fn message(title: &str, sentence: &str) -> Markup {
    let main = html! { h1 { (title) } p { (sentence) } };
    Frame { title, live: None, crumbs: &[] }.around(&main)
}

/// The same, with a link back.
#[must_use]
pub fn message_with_way_back(title: &str, sentence: &str, back: &str) -> Markup {
    let main = html! { h1 { (title) } p { (sentence) } p { a href=(back) { "Back" } } };
    Frame { title, live: None, crumbs: &[] }.around(&main)
}

/// The banner while the API server does not respond; rendered empty otherwise, to keep its place.
fn silence(since: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Markup {
    let Some(since) = since else { return Markup::default() };
    html! {
        p.refusal role="alert" {
            "No response from the API server since "
            time datetime=(since.to_rfc3339_opts(SecondsFormat::Secs, true)) { (clock_time(since, now)) }
            " UTC: this page shows the state at that time."
        }
    }
}

/// Text for screen readers only.
fn screen_reader_text(text: &str) -> Markup {
    html! { span.heard { (text) } }
}

fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Refused | Verdict::Stalled => "ill",
        Verdict::Progressing | Verdict::ScaledToZero => "moving",
        Verdict::UpToDate => "well",
    }
}

/// The state of an object in a word or two, as in its badge.
fn badge_words(report: &FleetReport) -> &'static str {
    match report.verdict {
        Verdict::Refused => "Rejected",
        Verdict::Stalled => "Stalled",
        Verdict::Progressing if report.rollout.is_some() => "Updating",
        Verdict::Progressing => "In progress",
        Verdict::ScaledToZero => "Scaled to zero",
        Verdict::UpToDate => "Up to date",
    }
}

/// The badges of an object: its state, and how many of its nodes are unhealthy.
fn badges(report: &FleetReport) -> Markup {
    let of_rollout = report.rollout.as_ref().and_then(|rollout| usize::try_from(rollout.failed).ok());
    let listed = report.nodes.iter().filter(|node| node.health.is_unhealthy()).count();
    let unhealthy = listed.max(of_rollout.unwrap_or_default());
    html! {
        span.badge.(verdict_class(report.verdict)) { (badge_words(report)) }
        @if unhealthy > 0 { span.badge.ill { "Unhealthy: " (unhealthy) } }
    }
}

/// A node's glyph, its class, and its meaning.
fn sign(health: Health) -> (&'static str, &'static str, &'static str) {
    let (class, words) = match health {
        Health::Failed => ("ill", "failed"),
        Health::Down => ("ill", "unavailable"),
        Health::Moving => ("moving", "in progress"),
        Health::Settling => ("moving", "ready, waiting for minReadySeconds"),
        Health::Before => ("before", "available at the previous revision"),
        Health::Serving => ("well", "available at the target revision"),
    };
    (health.glyph(), class, words)
}

/// A glyph, with its meaning for screen readers.
fn signed(health: Health) -> Markup {
    let (sign, class, words) = sign(health);
    html! { span.sign.(class) aria-hidden="true" { (sign) } (screen_reader_text(words)) }
}

/// A task's glyph, its class, and its meaning.
fn task_sign(state: TaskState) -> (&'static str, &'static str, &'static str) {
    let (class, words) = match state {
        TaskState::Pending => ("dim", " pending"),
        TaskState::Running => ("moving", " running"),
        TaskState::Complete => ("well", " done"),
        TaskState::Failed => ("ill", " failed"),
        TaskState::Skipped => ("dim", " skipped"),
    };
    (task_glyph(state), class, words)
}
