//! What the page shows, as values: made of the reports that the terminal shows, and of nothing else. Pure.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::hands::Button;
use crate::cluster::observed::ObservedFleet;
use crate::foresight::Foreseen;
use crate::report::chain::{self, Chain, Happened};
use crate::report::chart::{self, Chart};
use crate::report::{FleetReport, Seen, Typed, Verdict, story, worst_first};

/// The most nodes that are named at once.
const NODES: usize = 40;
/// The most nodes that have bars.
const BARS: usize = 30;
/// How many nodes are on a page of all of them.
pub const PAGE: usize = 200;
/// The most that is told of what happened: the last of it.
const STORY: usize = 60;

/// What is asked for about a fleet beside what is watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Events about the fleet.
    pub of_fleet: Vec<Happened>,
    /// Events about the pod of the node that stands most in its way.
    pub of_pod: Vec<Happened>,
    /// What comes next, or why nobody can tell; `None` where nothing does, or where it was not worked out.
    pub next: Option<Result<Foreseen, String>>,
    /// What could not be read.
    pub unread: Vec<String>,
}

/// All fleets.
#[derive(Clone, Debug, PartialEq)]
pub struct ListView {
    /// When it was looked at.
    pub now: DateTime<Utc>,
    /// The fleets, the ill first.
    pub fleets: Vec<FleetReport>,
    /// Whether they are of several namespaces.
    pub namespaces: bool,
    /// Since when nothing is heard of the API server, where that is too long.
    pub silent_since: Option<DateTime<Utc>>,
}

impl ListView {
    /// Of what is seen.
    #[must_use]
    pub fn of(seen: &[Seen], namespaces: bool, now: DateTime<Utc>) -> Self {
        let mut fleets: Vec<FleetReport> = seen.iter().map(|seen| FleetReport::of(seen, now)).collect();
        worst_first(&mut fleets);
        Self { now, fleets, namespaces, silent_since: None }
    }
}

/// What comes next of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing: all that is wanted is so.
    Nothing,
    /// It is being worked out.
    Asked,
    /// This.
    Foreseen(Box<Foreseen>),
    /// Nobody can tell, for this reason.
    Unknown(String),
    /// It was not worked out: there is too much to read.
    Large,
}

/// One fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetView {
    /// When it was looked at.
    pub now: DateTime<Utc>,
    /// What `windlass status` says of it.
    pub report: FleetReport,
    /// How many of its nodes have a row, at most.
    pub rows: usize,
    /// Its plan as bars over time.
    pub chart: Option<Chart>,
    /// What `windlass explain` says of it.
    pub chain: Chain,
    /// What comes next.
    pub next: Next,
    /// What `windlass logs` says of it, newest first.
    pub story: Vec<Happened>,
    /// What could not be read.
    pub unread: Vec<String>,
    /// What says it in a terminal.
    pub plan_command: String,
    /// The buttons, and whether each does something now.
    pub buttons: Vec<(Button, bool)>,
    /// Since when nothing is heard of the API server, where that is too long.
    pub silent_since: Option<DateTime<Utc>>,
}

impl FleetView {
    /// Of what is seen of a fleet, what is reported of that, and what was asked about it, if that is in.
    #[must_use]
    pub fn of(seen: &Seen, report: FleetReport, told: Option<&Arc<Told>>, now: DateTime<Utc>) -> Self {
        let none = Told::default();
        let known = told.map_or(&none, AsRef::as_ref);
        let chain = chain::of_fleet(seen, &report, &known.of_pod);
        let mut story = story::of_fleet(&seen.fleet, known.of_fleet.clone());
        story.reverse();
        story.truncate(STORY);
        let mut unread = report.unread.clone();
        unread.extend(known.unread.iter().cloned());
        Self {
            now,
            chart: chart::of_fleet(seen, report.plan.as_ref(), BARS, now),
            next: next(&report, told),
            chain,
            story,
            unread,
            buttons: buttons(&seen.fleet),
            silent_since: None,
            plan_command: format!("windlass plan nd/{} -n {}", report.name, report.namespace),
            report,
            rows: NODES,
        }
    }

    /// The same, with its commands as they are typed by who reads it.
    #[must_use]
    pub fn typed(mut self, typed: &Typed) -> Self {
        for link in &mut self.chain.links {
            link.says = typed.text(&link.says);
        }
        for remedy in &mut self.chain.remedies {
            remedy.command = typed.text(&remedy.command);
        }
        if let Next::Foreseen(foreseen) = &mut self.next {
            foreseen.waits = foreseen.waits.iter().map(|wait| typed.text(wait)).collect();
        }
        self.report.waiting_for = typed.text(&self.report.waiting_for);
        self.plan_command = typed.text(&self.plan_command);
        self
    }

    /// Its name, after its namespace.
    #[must_use]
    pub fn path(&self) -> String {
        path(&self.report)
    }
}

fn buttons(fleet: &ObservedFleet) -> Vec<(Button, bool)> {
    // Nothing of a fleet that is being deleted begins or goes on.
    if fleet.meta.terminating {
        return Vec::new();
    }
    let plan = fleet.status.plan.as_ref().and_then(|plan| plan.parse().ok());
    Button::ALL.into_iter().map(|button| (button, button.suits(fleet, plan.as_ref()))).collect()
}

/// Where a fleet's page is.
#[must_use]
pub fn path(report: &FleetReport) -> String {
    format!("/fleets/{}/{}", report.namespace, report.name)
}

fn next(report: &FleetReport, told: Option<&Arc<Told>>) -> Next {
    if report.verdict == Verdict::UpToDate && report.rollout.is_none() {
        return Next::Nothing;
    }
    match told.map(|told| &told.next) {
        None => Next::Asked,
        Some(None) => Next::Large,
        Some(Some(Ok(foreseen))) => Next::Foreseen(Box::new(foreseen.clone())),
        Some(Some(Err(sentence))) => Next::Unknown(sentence.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::{fleet, nodes, seen};

    fn now() -> DateTime<Utc> {
        "2026-01-01T04:15:11Z".parse().unwrap()
    }

    #[test]
    fn a_fleet_that_is_being_deleted_has_no_buttons() {
        let mut fleet = fleet();
        fleet["spec"]["paused"] = json!(true);
        let buttons = |fleet: &serde_json::Value| {
            let seen = seen(fleet, &nodes());
            FleetView::of(&seen, FleetReport::of(&seen, now()), None, now()).buttons.len()
        };
        assert_eq!(buttons(&fleet), Button::ALL.len());
        fleet["metadata"]["deletionTimestamp"] = json!("2026-01-01T04:10:00Z");
        assert_eq!(buttons(&fleet), 0);
    }

    #[test]
    fn the_page_shows_what_the_terminal_does_and_the_ill_first() {
        let ill = seen(&fleet(), &nodes());
        let mut other = fleet();
        other["metadata"]["name"] = json!("another");
        other["status"]["rollout"] = json!(null);
        other["status"]["conditions"] = json!([
            {"type": "Ready", "status": "True", "reason": "AllNodesReady", "lastTransitionTime": "2026-01-01T04:00:00Z"},
            {"type": "UpToDate", "status": "True", "reason": "Applied", "lastTransitionTime": "2026-01-01T04:00:00Z"}]);
        let well = seen(&other, &[]);
        let view = ListView::of(&[well.clone(), ill.clone()], false, now());
        let names: Vec<&str> = view.fleets.iter().map(|fleet| fleet.name.as_str()).collect();
        assert_eq!(names, ["db", "another"]);
        assert_eq!(view.fleets[0], FleetReport::of(&ill, now()));
        let view = FleetView::of(&ill, FleetReport::of(&ill, now()), None, now());
        assert_eq!(view.chain, chain::of_fleet(&ill, &view.report, &[]));
        assert_eq!(view.next, Next::Asked);
        assert_eq!(FleetView::of(&well, FleetReport::of(&well, now()), None, now()).next, Next::Nothing);
        assert!(view.story.is_sorted_by(|a, b| a.at >= b.at), "{:#?}", view.story);
    }

    #[test]
    fn the_buttons_that_do_something_are_told_from_the_others() {
        let suits = |changes: serde_json::Value| {
            let mut fleet = fleet();
            json_patch::merge(&mut fleet, &changes);
            let buttons = buttons(&seen(&fleet, &[]).fleet);
            let suiting = buttons.into_iter().filter(|(_, suits)| *suits);
            suiting.map(|(button, _)| button.word()).collect::<Vec<_>>()
        };
        assert_eq!(suits(json!({})), ["pause", "abort", "restart"]);
        assert_eq!(
            suits(json!({"spec": {"paused": true}, "status": {"rollout": null, "rejected": {"planID": "x"},
                "lastCompletedRolloutHash": "v1:b"}})),
            ["resume", "rollback", "retry", "restart"]
        );
        assert_eq!(
            suits(json!({"status": {"rollout": {"stage": "AwaitingPromotion", "entrantSet": "abcde"}}})),
            ["pause", "promote", "abort", "restart"]
        );
        assert_eq!(
            suits(
                json!({"status": {"hooks": [{"hook": "h", "taskID": "a-1", "state": "AwaitingApproval"}]}})
            ),
            ["pause", "approve", "abort", "restart"]
        );
    }
}
