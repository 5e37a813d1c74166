//! The page of an object of an extension: its state, its parts, its causes, its forecast, its history, and its buttons.

use chrono::TimeDelta;
use maud::{Markup, html};

use super::super::view::{ListedSheet, SheetNext, SheetView};
use super::chart::chart;
use super::fleet::{actions, story, tasks, why};
use super::{Frame, Part, screen_reader_text, sections, silence, verdict_class};
use crate::extension::{Sheet, SheetRow};
use crate::report::{Verdict, age, clock_time};

/// The page of one object. `acts`: true if it has buttons.
#[must_use]
pub fn sheet(view: &SheetView, acts: bool) -> Markup {
    let ListedSheet { kind, namespace, name, .. } = &view.of;
    let path = kind.path(namespace, name);
    let main = html! {
        h1 { @if !namespace.is_empty() { span.dim { (namespace) "/" } } (name) }
        (sections(&parts(view, acts)))
    };
    let live = format!("/live{path}");
    Frame { title: name, live: Some(&live), crumbs: &[(name, path)] }.around(&main)
}

/// The parts that live updates replace.
#[must_use]
pub fn parts(view: &SheetView, acts: bool) -> Vec<Part> {
    let ListedSheet { kind, namespace, name, sheet, .. } = &view.of;
    let named = |title: &str, part: Markup| html! { h2 { (title) } (part) };
    let bars = |bars| named("Timeline of the plan", chart(bars, view.now));
    vec![
        ("silence", silence(view.silent_since, view.now)),
        ("said", announcement(name, sheet)),
        ("head", head(view)),
        ("do", actions(*kind, (namespace, name), &view.buttons, acts)),
        ("nodes", named(sheet.title, rows(view))),
        ("why", named("Why", why(&view.chain, view.now))),
        ("next", named("Forecast", next(view))),
        ("chart", view.chart.as_ref().map_or_else(Markup::default, bars)),
        ("story", named("History", story(&view.story, view.now))),
    ]
}

/// An entry of the list.
pub(super) fn entry(listed: &ListedSheet, namespaces: bool) -> Markup {
    let ListedSheet { kind, namespace, name, sheet, .. } = listed;
    html! {
        h2 {
            @if namespaces { span.dim { (namespace) "/" } }
            a id={ "to-" (namespace) "-" (name) "-" (kind.short()) } href=(kind.path(namespace, name)) { (name) }
        }
        p.facts { (facts(listed)) span.dim { (sheet.revisions) } }
        @if !sheet.waiting_for.is_empty() { p.waits { (sheet.waiting_for) } }
    }
}

/// The text for screen readers when it changes, without running seconds.
fn announcement(name: &str, sheet: &Sheet) -> Markup {
    html! {
        p.heard role="status" {
            (name) ": " (badge_words(sheet)) ", " (sheet.summary)
            @if !sheet.waiting_for.is_empty() { ", " (sheet.waiting_for) }
        }
    }
}

/// The state in a word or two.
fn badge_words(sheet: &Sheet) -> &'static str {
    match sheet.verdict {
        Verdict::Refused => "Rejected",
        Verdict::Stalled => "Stalled",
        Verdict::Progressing if sheet.elapsed_seconds.is_some() => "Updating",
        Verdict::Progressing => "In progress",
        Verdict::ScaledToZero => "Scaled to zero",
        Verdict::UpToDate => "Up to date",
    }
}

fn facts(listed: &ListedSheet) -> Markup {
    let ListedSheet { name, sheet, .. } = listed;
    html! {
        span.badge.(verdict_class(sheet.verdict)) { (badge_words(sheet)) }
        span { (sheet.strategy) }
        strong { (sheet.summary) }
        @if let Some(percent) = sheet.percent {
            progress max="100" value=(percent) aria-label={ "Percentage of " (name) } {}
        }
        @if let Some(seconds) = sheet.elapsed_seconds { span { (age(TimeDelta::seconds(seconds))) } }
    }
}

fn head(view: &SheetView) -> Markup {
    let sheet = &view.of.sheet;
    html! {
        p.facts { (facts(&view.of)) }
        @if !sheet.revisions.is_empty() { p { (sheet.revisions) } }
        @if let (Some(plan), true) = (&sheet.plan, sheet.elapsed_seconds.is_some()) { (tasks(plan)) }
        @if !sheet.waiting_for.is_empty() {
            p.waits.(verdict_class(sheet.verdict)) { (sheet.waiting_for) }
        }
        @for sentence in &view.unread { p.dim { (sentence) } }
    }
}

fn rows(view: &SheetView) -> Markup {
    let class = |row: &SheetRow| match row.serves {
        Some(true) => ("well", "serves"),
        Some(false) => ("ill", "not all pods are ready"),
        None => ("before", "does not have to serve"),
    };
    html! {
        ul.tree {
            @for row in &view.of.sheet.rows {
                @let (class, heard) = class(row);
                li {
                    span.sign.(class) aria-hidden="true" { (row.glyph) } (screen_reader_text(heard)) " "
                    strong { (row.name) } " "
                    span class=(if class == "ill" { "ill" } else { "dim" }) { (row.words) }
                    @if let Some(since) = row.since {
                        " " time.dim datetime=(since.to_rfc3339()) { "since " (clock_time(since, view.now)) }
                    }
                }
            }
            @if view.of.sheet.rows.is_empty() { li.dim { "None." } }
        }
    }
}

fn next(view: &SheetView) -> Markup {
    let ListedSheet { kind, namespace, name, .. } = &view.of;
    match &view.next {
        SheetNext::Nothing => html! { p { "Nothing to do: the object matches its spec." } },
        SheetNext::Asked => html! { p.dim { "Computing the forecast." } },
        SheetNext::Unknown(sentence) => html! {
            p.dim { "The effect could not be computed: " (sentence) }
            code tabindex="0" { "windlass plan " (kind.short()) "/" (name) " -n " (namespace) }
        },
        SheetNext::Lines(lines) => html! { ul.then { @for line in lines { li { (line) } } } },
    }
}
