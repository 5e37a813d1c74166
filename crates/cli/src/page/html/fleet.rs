//! The page of one fleet: its state, its causes, its forecast, its history, and its buttons.

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use super::super::subject::PageKind;
use super::super::view::{FleetView, Next};
use super::chart::chart;
use super::task_sign;
use super::{
    Frame, Part, badge_words, badges, screen_reader_text, sections, sign, signed, silence, verdict_class,
};
use crate::extension::{revisions_words, set_words};
use crate::forecast::{Action, Forecast, Outcome};
use crate::report::chain::{Chain, TimelineEntry};
use crate::report::{FleetReport, NodeReport, PlanReport, Tree, about, age, clock_time, pods_words};

/// The page of one fleet. `acts`: true if it has buttons.
#[must_use]
pub fn fleet(view: &FleetView, acts: bool) -> Markup {
    let path = view.path();
    let main = html! {
        h1 { @if !view.report.namespace.is_empty() { span.dim { (view.report.namespace) "/" } } (view.report.name) }
        (sections(&parts(view, acts)))
    };
    let live = format!("/live{path}");
    let title = view.report.name.clone();
    Frame { title: &title, live: Some(&live), crumbs: &[(&title, path)] }.around(&main)
}

/// The parts that live updates replace.
#[must_use]
pub fn parts(view: &FleetView, acts: bool) -> Vec<Part> {
    let named = |title: &str, part: Markup| html! { h2 { (title) } (part) };
    // Empty parts are rendered too, so that later content has its place.
    vec![
        ("silence", silence(view.silent_since, view.now)),
        ("said", announcement(&view.report)),
        ("head", head(view)),
        ("do", actions(view.kind, (&view.report.namespace, &view.report.name), &view.buttons, acts)),
        ("nodes", named(view.kind.nodes(), tree(view))),
        ("why", named("Why", why(&view.chain, view.now))),
        ("next", named("Forecast", next(view))),
        (
            "chart",
            view.chart
                .as_ref()
                .map_or_else(Markup::default, |bars| named("Timeline of the plan", chart(bars, view.now))),
        ),
        ("story", named("History", story(&view.story, view.now))),
    ]
}

/// The text for screen readers when it changes, without running seconds.
fn announcement(report: &FleetReport) -> Markup {
    html! {
        p.heard role="status" {
            (report.name) ": " (badge_words(report)) ", " (report.summary)
            @if !report.waiting_for.is_empty() { ", " (report.waiting_for) }
        }
    }
}

fn head(view: &FleetView) -> Markup {
    let report = &view.report;
    html! {
        p.facts {
            (badges(report))
            span { (report.strategy) }
            strong { (report.summary) @if let Some(qualifier) = report.qualifier() { " (" (qualifier) ")" } }
            @if let Some(rollout) = &report.rollout {
                progress max=(rollout.total.max(1)) value=(rollout.updated) aria-label={ (view.kind.nodes()) " updated" } {}
                span { (rollout.place()) }
                span {
                    (rollout.elapsed())
                    @if let Some(left) = rollout.about_left_seconds { ", " (about(TimeDelta::seconds(left))) " left" }
                }
            } @else {
                span.dim { (report.image) }
            }
        }
        @if let Some(rollout) = &report.rollout { p { (rollout.versions()) } }
        @if let (Some(plan), true) = (&report.plan, report.rollout.is_some()) { (tasks(plan)) }
        @if !report.waiting_for.is_empty() {
            p.waits.(verdict_class(report.verdict)) { (report.waiting(view.now)) }
        }
        @if !report.paused_by.is_empty() { p { "Paused by " (report.paused_by) } }
        @for remark in &report.remarks { p { (remark) } }
        @for sentence in &view.unread { p.dim { (sentence) } }
    }
}

pub(super) fn tasks(plan: &PlanReport) -> Markup {
    html! {
        p.dim { "Plan " code { (plan.id) } }
        ol.tasks {
            @for task in &plan.tasks {
                @let (sign, class, words) = task_sign(task.state);
                li.(class) {
                    span aria-hidden="true" { (sign) " " }
                    (task.type_) @if !task.hook.is_empty() { " " (task.hook) }
                    (screen_reader_text(words))
                }
            }
        }
    }
}

/// The buttons of an object, or, on a read-only page, the commands.
pub(super) fn actions(
    kind: PageKind,
    place: (&str, &str),
    all: &[(super::super::Button, bool)],
    acts: bool,
) -> Markup {
    if all.is_empty() {
        return Markup::default();
    }
    if acts { buttons(&kind.path(place.0, place.1), all) } else { commands(kind, place, all) }
}

fn buttons(path: &str, all: &[(super::super::Button, bool)]) -> Markup {
    let link = |(button, suits): &(super::super::Button, bool)| {
        let word = button.word();
        html! { a.button.quiet[!suits] id={ "button-" (word) } href={ (path) "/" (word) } { (button.title()) "…" } }
    };
    html! {
        h2.heard { "Actions" }
        nav.buttons aria-label="Actions" {
            @for button in all.iter().filter(|(_, suits)| *suits) { (link(button)) }
            details #others {
                summary { "More actions" }
                @for button in all.iter().filter(|(_, suits)| !suits) { (link(button)) }
            }
        }
    }
}

fn commands(kind: PageKind, (namespace, name): (&str, &str), all: &[(super::super::Button, bool)]) -> Markup {
    html! {
        details #others {
            summary { "This page is read-only. Use these commands in a terminal" }
            ul.commands {
                @for (button, _) in all.iter().filter(|(_, suits)| *suits) {
                    li {
                        span { (button.purpose(kind)) } " "
                        code tabindex="0" {
                            "windlass " (button.verb(kind)) " " (kind.short()) "/" (name) " -n " (namespace)
                        }
                    }
                }
            }
        }
    }
}

fn tree(view: &FleetView) -> Markup {
    if view.kind == PageKind::StatefulSets {
        return stateful_sets(view);
    }
    let report = &view.report;
    let tree = report.tree(false, view.rows);
    html! {
        ul.tree {
            @for node in &tree.named { (branch(node, report.began_from(), view.now)) }
            @if tree.hidden > 0 { li.dim { "… and " (tree.hidden) " more that are not available" } }
            @for (health, tag, count) in &tree.groups {
                li { (signed(*health)) " " (report.group_words(*health, tag, *count)) }
            }
            @if report.nodes.is_empty() { li.dim { "None." } }
        }
        @if !report.nodes.is_empty() {
            p { a #every-node href={ (view.path()) "/nodes" } { "All nodes by name" } }
        }
    }
}

/// The StatefulSets, and below each its pods.
fn stateful_sets(view: &FleetView) -> Markup {
    let report = &view.report;
    let rows = (view.rows / view.sets.len().max(1)).max(LEAST_ROWS);
    html! {
        ul.tree {
            @for set in &view.sets {
                @let pods: Vec<&NodeReport> = report.nodes.iter().filter(|pod| pod.set == set.name).collect();
                @let below = Tree::of(&pods, false, rows);
                li {
                    strong { (set.name) } " "
                    span.versions { (revisions_words(set)) } " "
                    span.dim { (set_words(set)) }
                    @if !set.held && !set.uid.is_empty() { " " span.ill { "not held" } }
                    ul.tree {
                        @for pod in &below.named { (branch(pod, "", view.now)) }
                        @if below.hidden > 0 { li.dim { "… and " (below.hidden) " more that are not available" } }
                        @for (health, runs, count) in &below.groups {
                            li { (signed(*health)) " " (pods_words(runs, *count)) }
                        }
                    }
                }
            }
            @if view.sets.is_empty() { li.dim { "None." } }
        }
        @if !report.nodes.is_empty() {
            p { a #every-node href={ (view.path()) "/nodes" } { "All pods by name" } }
        }
    }
}

/// The least rows for the pods of a StatefulSet.
const LEAST_ROWS: usize = 3;

fn branch(node: &NodeReport, began_from: &str, now: DateTime<Utc>) -> Markup {
    let (_, class, _) = sign(node.health);
    let ill = node.health.is_unhealthy();
    html! {
        li {
            (signed(node.health)) " "
            strong { (node.name) } " "
            span.versions { (node.versions(began_from)) } " "
            span class=(if ill { class } else { "dim" }) { (node.words()) }
            @if let Some(since) = node.since.filter(|_| ill) {
                " " time.dim datetime=(since.to_rfc3339()) { "since " (clock_time(since, now)) }
            }
        }
    }
}

pub(super) fn why(chain: &Chain, now: DateTime<Utc>) -> Markup {
    html! {
        ol.chain {
            @for link in &chain.links {
                li class={ "depth-" (link.depth.min(6)) } {
                    strong { (link.of) } " " (link.parts().0)
                    @if let Some(since) = link.since {
                        " " time.dim datetime=(since.to_rfc3339()) {
                            (clock_time(since, now)) ", " (age(now - since)) " ago"
                        }
                    }
                    (link.parts().1)
                }
            }
        }
        @if !chain.remedies.is_empty() {
            h3 { "As commands" }
            ul.commands {
                @for remedy in &chain.remedies {
                    li { span { (remedy.to) } " " code tabindex="0" { (remedy.command) } }
                }
            }
        }
    }
}

fn next(view: &FleetView) -> Markup {
    let command = html! { code tabindex="0" { (view.plan_command) } };
    match &view.next {
        Next::Nothing => html! { p { "Nothing to do: the fleet matches its spec." } },
        Next::Asked => html! { p.dim { "Computing the forecast." } },
        Next::Large => html! {
            p.dim { "The page does not compute a forecast for a fleet of this size. Run: " (command) }
        },
        Next::Unknown(sentence) => html! { p.dim { "The effect could not be computed: " (sentence) } },
        Next::Forecast(forecast) => html! { (self::forecast(forecast)) },
    }
}

/// A forecast, as `windlass plan` prints it.
pub(super) fn forecast(forecast: &Forecast) -> Markup {
    let sign = |action| match action {
        Action::Create => ("+", "created"),
        Action::Remove => ("−", "removed"),
        Action::Adopt => ("=", "already runs it"),
        Action::Update => ("", ""),
    };
    html! {
        @if let Some(refused) = &forecast.refused { p.ill { (refused) } }
        @if forecast.outcome != Outcome::Refused {
            @if !forecast.pending.is_empty() { ul { @for field in &forecast.pending { li { (field) } } } }
            @for held in &forecast.holds { p { (held) } }
            @if !forecast.happens.is_empty() { p { (forecast.happens) } }
            @if let Some(takes) = &forecast.takes_over { p { (takes.sentence(&forecast.name)) } }
            @if !forecast.waves.is_empty() {
                dl.waves {
                    @for wave in forecast.waves.iter().take(WAVES) {
                        dt { (wave.title()) }
                        dd {
                            @for node in wave.nodes.iter().take(NAMES) {
                                @let (sign, words) = sign(node.action);
                                span.node { (sign) (node.name) (screen_reader_text(words)) } " "
                                @if let Some(remark) = wave.remark(node) { span.dim { (remark) } " " }
                            }
                            @if wave.nodes.len() > NAMES { span.dim { "and " (wave.nodes.len() - NAMES) " more" } }
                        }
                    }
                }
                @if forecast.waves.len() > WAVES { p.dim { "and " (forecast.waves.len() - WAVES) " more waves" } }
                @if let Some(made) = forecast.recreated_sentence() { p.dim { (made) } }
                @if let Some(seconds) = forecast.about_seconds {
                    p.dim { (about(TimeDelta::seconds(seconds))) ", estimated from earlier updates" }
                }
            }
            @if forecast.happens.is_empty() && forecast.waves.is_empty() { p { @if forecast.is_of_pods() { "No pod is updated." } @else { "No node is updated." } } }
            @if !forecast.grows.is_empty() {
                p { "These volumes grow:" }
                ul { @for grows in &forecast.grows { li { (grows) } } }
            }
            @if !forecast.waits.is_empty() {
                p { "It currently waits for:" }
                ul { @for wait in &forecast.waits { li { (wait) } } }
            }
        }
        @for sentence in &forecast.unread { p.dim { (sentence) } }
    }
}

/// The most waves that are shown, and the most nodes of each.
const WAVES: usize = 20;
const NAMES: usize = 20;

pub(super) fn story(all: &[TimelineEntry], now: DateTime<Utc>) -> Markup {
    html! {
        ol.story reversed {
            @for happened in all {
                li class=(timeline_class(&happened.reason, &happened.note)) {
                    time datetime=(happened.at.to_rfc3339()) { (clock_time(happened.at, now)) } " "
                    strong { (happened.reason) } " "
                    span.dim { (happened.about.name) } " "
                    span { (happened.note) }
                }
            }
        }
    }
}

fn timeline_class(reason: &str, note: &str) -> &'static str {
    let ends = ["Complete", "Failed", "Stalled", "Aborted", "RolledBack"];
    let word = ends.into_iter().find(|word| reason.contains(word) || note.contains(&format!("is {word}")));
    match word {
        Some("Complete") => "well",
        Some(_) if !note.contains("=False") => "ill",
        _ if reason.ends_with("Requested") => "person",
        _ => "dim-dot",
    }
}
