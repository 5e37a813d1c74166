//! All fleets, unhealthy ones first.

use maud::{Markup, html};

use super::super::subject::PageKind;
use super::super::view::{ListView, Listed};
use super::{Frame, Part, badges, sections, sheet, silence, verdict_class};
use crate::report::{Verdict, group_words, pods_words};

/// The page of all fleets.
#[must_use]
pub fn list(view: &ListView) -> Markup {
    let main = html! { h1 { "Fleets" } (sections(&parts(view))) };
    Frame { title: "Fleets", live: Some("/live"), crumbs: &[] }.around(&main)
}

/// The parts that live updates replace.
#[must_use]
pub fn parts(view: &ListView) -> Vec<Part> {
    let of_fleets = view.fleets.iter().map(|fleet| fleet.report.verdict);
    let verdicts: Vec<Verdict> =
        of_fleets.chain(view.sheets.iter().map(|listed| listed.sheet.verdict)).collect();
    let ill = verdicts.iter().filter(|verdict| verdict_class(**verdict) == "ill").count();
    let moving = verdicts.iter().filter(|verdict| **verdict == Verdict::Progressing).count();
    let well = verdicts.len() - ill - moving;
    let count = html! {
        p role="status" {
            @if verdicts.is_empty() { "There are no fleets." } @else { (counted(view)) ": " }
            @if !verdicts.is_empty() {
                (ill) " stalled or rejected, " (moving) " in progress, " (well) " up to date" @if view.silent_since.is_some() { ", at the last response" } "."
            }
        }
        @for sentence in &view.unread { p.dim { (sentence) } }
    };
    let fleets = view.fleets.iter().map(|fleet| (fleet.report.verdict, entry(view, fleet)));
    let sheets = view.sheets.iter().map(|of| (of.sheet.verdict, sheet::entry(of, view.namespaces)));
    let mut entries: Vec<(Verdict, Markup)> = fleets.chain(sheets).collect();
    entries.sort_by_key(|(verdict, _)| *verdict);
    let fleets = html! {
        ul.fleets { @for (verdict, entry) in &entries { li class=(verdict_class(*verdict)) { (entry) } } }
    };
    vec![("silence", silence(view.silent_since, view.now)), ("count", count), ("fleets", fleets)]
}

fn entry(view: &ListView, listed: &Listed) -> Markup {
    let (kind, fleet) = (listed.kind, &listed.report);
    let serving = fleet.serving();
    html! {
        h2 {
            @if view.namespaces { span.dim { (fleet.namespace) "/" } }
            a id={ "to-" (fleet.namespace) "-" (fleet.name) @if kind != PageKind::Fleet { "-" (kind.short()) } } href=(kind.path(&fleet.namespace, &fleet.name)) { (fleet.name) }
        }
        p.facts {
            (badges(fleet))
            span { (fleet.strategy) }
            span { (fleet.summary) @if let Some(qualifier) = fleet.qualifier() { " (" (qualifier) ")" } }
            @for (_, tag, count) in serving.iter().take(3) { span.dim { (serving_words(kind, tag, *count)) } }
            @if let Some(rollout) = &fleet.rollout {
                progress max=(rollout.total.max(1)) value=(rollout.updated) aria-label={ "Updated nodes of " (fleet.name) } {}
                span { (rollout.place()) }
            }
        }
        @if !fleet.waiting_for.is_empty() { p.waits { (fleet.waiting(view.now)) } }
    }
}

fn serving_words(kind: PageKind, runs: &str, count: usize) -> String {
    match kind {
        PageKind::Fleet => group_words(runs, count),
        PageKind::StatefulSets | PageKind::Sheet(_) => pods_words(runs, count),
    }
}

/// How many objects there are of each kind: `2 fleets, 1 StatefulSetRollout`.
fn counted(view: &ListView) -> String {
    let words = PageKind::all().filter_map(|kind| {
        let of_fleets = view.fleets.iter().map(|listed| listed.kind);
        let all = of_fleets.chain(view.sheets.iter().map(|listed| listed.kind));
        let count = all.filter(|listed| *listed == kind).count();
        let s = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {}{s}", kind.word()))
    });
    words.collect::<Vec<_>>().join(", ")
}
