//! All fleets, unhealthy ones first.

use maud::{Markup, html};

use super::super::view::{ListView, path};
use super::{Frame, Part, sections, silence, verdict_class, verdict_words};
use crate::report::{FleetReport, Verdict, group_words};

/// The page of all fleets.
#[must_use]
pub fn list(view: &ListView) -> Markup {
    let main = html! { h1 { "Fleets" } (sections(&parts(view))) };
    Frame { title: "Fleets", live: Some("/live"), crumbs: &[] }.around(&main)
}

/// The parts that live updates replace.
#[must_use]
pub fn parts(view: &ListView) -> Vec<Part> {
    let ill = view.fleets.iter().filter(|fleet| verdict_class(fleet.verdict) == "ill").count();
    let moving = view.fleets.iter().filter(|fleet| fleet.verdict == Verdict::Progressing).count();
    let well = view.fleets.len() - ill - moving;
    let count = html! {
        p role="status" {
            @match view.fleets.len() {
                0 => { "There are no fleets here." }
                1 => { "1 fleet: " }
                many => { (many) " fleets: " }
            }
            @if !view.fleets.is_empty() {
                (ill) " stalled or refused, " (moving) " on the way, " (well) " up to date" @if view.silent_since.is_some() { ", when last heard of" } "."
            }
        }
        @if let Some(first) = view.fleets.first() {
            @for sentence in &first.unread { p.dim { (sentence) } }
        }
    };
    let fleets = html! {
        ul.fleets { @for fleet in &view.fleets { li class=(verdict_class(fleet.verdict)) { (entry(view, fleet)) } } }
    };
    vec![("silence", silence(view.silent_since, view.now)), ("count", count), ("fleets", fleets)]
}

fn entry(view: &ListView, fleet: &FleetReport) -> Markup {
    let serving = fleet.serving();
    html! {
        h2 {
            @if view.namespaces { span.dim { (fleet.namespace) "/" } }
            a id={ "to-" (fleet.namespace) "-" (fleet.name) } href=(path(fleet)) { (fleet.name) }
        }
        p.facts {
            span.badge.(verdict_class(fleet.verdict)) { (verdict_words(fleet.verdict)) }
            span { (fleet.strategy) }
            span { (fleet.summary) @if let Some(aside) = fleet.aside() { " (" (aside) ")" } }
            @for (_, tag, count) in serving.iter().take(3) { span.dim { (group_words(tag, *count)) } }
            @if let Some(rollout) = &fleet.rollout {
                progress max=(rollout.total.max(1)) value=(rollout.updated) aria-label={ "Updated of " (fleet.name) } {}
                span { (rollout.place()) }
            }
        }
        @if !fleet.waiting_for.is_empty() { p.waits { (fleet.waiting(view.now)) } }
    }
}
