//! The content of the page, as values made from reports. Pure.

use std::borrow::Borrow;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use serde_json::Value;

use super::actions::Button;
use super::subject::PageKind;
use crate::extension::{Paged, Sheet};
use crate::forecast::Forecast;
use crate::report::chain::{self, Chain, TimelineEntry};
use crate::report::chart::{self, Chart};
use crate::report::{
    FleetReport, Seen, SeenStatefulSets, StatefulSetsReport, Typed, Verdict, timeline, worst_first,
};
use windlass_core::api::StatefulSetStatus;
use windlass_kube_port::observed::ObservedFleet;

/// The most nodes listed at once.
const NODES: usize = 40;
/// The most nodes with bars in the chart.
const BARS: usize = 30;
/// The nodes per page of the full list.
pub const PAGE: usize = 200;
/// The most entries of the history: the last ones.
const STORY: usize = 60;

/// The events and forecast of a fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Events about the object.
    pub of_object: Vec<TimelineEntry>,
    /// Events about the pod of the node that blocks it most.
    pub of_pod: Vec<TimelineEntry>,
    /// The forecast, or why there is none; `None` if nothing is due or it was not computed.
    pub next: Option<Result<Forecast, String>>,
    /// The chain of causes of a sheet's object, if it was read.
    pub chain: Option<Chain>,
    /// The forecast of a sheet's object, or why there is none; `None` if nothing is due.
    pub prediction: Option<Result<Vec<String>, String>>,
    /// What could not be read.
    pub unread: Vec<String>,
}

/// All fleets.
#[derive(Clone, Debug, PartialEq)]
pub struct ListView {
    /// When it was rendered.
    pub now: DateTime<Utc>,
    /// The fleets and the StatefulSetRollouts, unhealthy ones first.
    pub fleets: Vec<Listed>,
    /// The objects that are shown as sheets.
    pub sheets: Vec<ListedSheet>,
    /// What could not be read.
    pub unread: Vec<String>,
    /// True if they are in several namespaces.
    pub namespaces: bool,
    /// Since when the API server does not respond, if for too long.
    pub silent_since: Option<DateTime<Utc>>,
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// What it is.
    pub kind: PageKind,
    /// Its report.
    pub report: FleetReport,
}

/// An object in the list that is shown as a sheet.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedSheet {
    /// What it is.
    pub kind: PageKind,
    /// The implementation of its kind.
    pub paged: &'static dyn Paged,
    pub namespace: String,
    pub name: String,
    /// Its state.
    pub sheet: Sheet,
}

impl ListedSheet {
    /// The entry of an object.
    #[must_use]
    pub fn of(paged: &'static dyn Paged, object: &Value, now: DateTime<Utc>) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self {
            kind: PageKind::Sheet(paged),
            paged,
            namespace: text("namespace"),
            name: text("name"),
            sheet: paged.sheet(object, now),
        }
    }
}

impl Borrow<FleetReport> for Listed {
    fn borrow(&self) -> &FleetReport {
        &self.report
    }
}

/// An object that was seen.
#[derive(Clone, Debug)]
pub enum SeenObject {
    /// A fleet.
    Fleet(Seen),
    /// A StatefulSetRollout.
    StatefulSets(Box<SeenStatefulSets>),
}

impl SeenObject {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> PageKind {
        match self {
            Self::Fleet(_) => PageKind::Fleet,
            Self::StatefulSets(_) => PageKind::StatefulSets,
        }
    }

    /// It, as a fleet.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        match self {
            Self::Fleet(seen) => seen,
            Self::StatefulSets(of) => &of.seen,
        }
    }

    /// The report of `windlass status`, of a StatefulSetRollout without its StatefulSets.
    #[must_use]
    pub fn report(&self, now: DateTime<Utc>) -> FleetReport {
        match self {
            Self::Fleet(seen) => FleetReport::of(seen, now),
            Self::StatefulSets(of) => StatefulSetsReport::of(of, now).fleet,
        }
    }
}

impl ListView {
    /// The list of these objects.
    #[must_use]
    pub fn of(seen: &[SeenObject], namespaces: bool, now: DateTime<Utc>) -> Self {
        let listed = |seen: &SeenObject| Listed { kind: seen.kind(), report: seen.report(now) };
        let mut fleets: Vec<Listed> = seen.iter().map(listed).collect();
        worst_first(&mut fleets);
        let unread = fleets.first().map(|first| first.report.unread.clone()).unwrap_or_default();
        Self { now, fleets, sheets: Vec::new(), unread, namespaces, silent_since: None }
    }
}

/// The forecast of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing is due.
    Nothing,
    /// It is being computed.
    Asked,
    /// The forecast.
    Forecast(Box<Forecast>),
    /// It cannot be computed, for this reason.
    Unknown(String),
    /// The fleet is too large to compute it.
    Large,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FleetView {
    /// What it is.
    pub kind: PageKind,
    /// When it was rendered.
    pub now: DateTime<Utc>,
    /// The StatefulSets of a StatefulSetRollout.
    pub sets: Vec<StatefulSetStatus>,
    /// The report of `windlass status`.
    pub report: FleetReport,
    /// The most nodes with a row.
    pub rows: usize,
    /// Its plan as bars over time.
    pub chart: Option<Chart>,
    /// The chain of `windlass explain`.
    pub chain: Chain,
    /// The forecast.
    pub next: Next,
    /// The history of `windlass logs`, newest first.
    pub story: Vec<TimelineEntry>,
    /// What could not be read.
    pub unread: Vec<String>,
    /// The equivalent `windlass plan` command.
    pub plan_command: String,
    /// The buttons, and whether each has an effect now.
    pub buttons: Vec<(Button, bool)>,
    /// Since when the API server does not respond, if for too long.
    pub silent_since: Option<DateTime<Utc>>,
}

impl FleetView {
    /// The view of a fleet, from its objects, their report, and the events and forecast if known.
    #[must_use]
    pub fn of(
        object: &SeenObject,
        report: FleetReport,
        details: Option<&Arc<Details>>,
        now: DateTime<Utc>,
    ) -> Self {
        let none = Details::default();
        let cached = details.map_or(&none, AsRef::as_ref);
        let (kind, seen, events) = (object.kind(), object.seen(), cached.of_object.clone());
        let (chain, mut story, sets) = match object {
            SeenObject::Fleet(seen) => (
                chain::of_fleet(seen, &report, &cached.of_pod),
                timeline::of_fleet(&seen.fleet, events),
                Vec::new(),
            ),
            SeenObject::StatefulSets(of) => (
                chain::of_stateful_sets(of, &StatefulSetsReport::of(of, now), &cached.of_pod),
                timeline::of_stateful_sets(of, events),
                of.sets.clone(),
            ),
        };
        story.reverse();
        story.truncate(STORY);
        let mut unread = report.unread.clone();
        unread.extend(cached.unread.iter().cloned());
        Self {
            kind,
            now,
            sets,
            chart: chart::of_fleet(seen, report.plan.as_ref(), BARS, now),
            next: next(&report, details),
            chain,
            story,
            unread,
            buttons: buttons(kind, &seen.fleet),
            silent_since: None,
            plan_command: format!("windlass plan {}/{} -n {}", kind.short(), report.name, report.namespace),
            report,
            rows: NODES,
        }
    }

    /// The same view with suggested commands as the user types them.
    #[must_use]
    pub fn typed(mut self, typed: &Typed) -> Self {
        typed_chain(&mut self.chain, typed);
        if let Next::Forecast(forecast) = &mut self.next {
            forecast.waits = forecast.waits.iter().map(|wait| typed.text(wait)).collect();
        }
        self.report.waiting_for = typed.text(&self.report.waiting_for);
        self.plan_command = typed.text(&self.plan_command);
        self
    }

    /// The path: namespace and name.
    #[must_use]
    pub fn path(&self) -> String {
        self.kind.path(&self.report.namespace, &self.report.name)
    }
}

/// The page of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectView {
    /// A fleet or a StatefulSetRollout.
    Fleet(Box<FleetView>),
    /// An object of an extension.
    Sheet(Box<SheetView>),
}

impl ObjectView {
    /// Whether its spec is carried out.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Fleet(view) => view.report.verdict,
            Self::Sheet(view) => view.of.sheet.verdict,
        }
    }
}

/// The forecast of a sheet's object.
#[derive(Clone, Debug, PartialEq)]
pub enum SheetNext {
    /// Nothing is due.
    Nothing,
    /// It is being computed.
    Asked,
    /// The lines that `windlass plan` prints.
    Lines(Vec<String>),
    /// It cannot be computed, for this reason.
    Unknown(String),
}

/// The page of a sheet's object.
#[derive(Clone, Debug, PartialEq)]
pub struct SheetView {
    /// The object.
    pub of: ListedSheet,
    /// When it was rendered.
    pub now: DateTime<Utc>,
    /// Its plan as bars over time.
    pub chart: Option<Chart>,
    /// The chain of `windlass explain`, if it was read.
    pub chain: Chain,
    /// The forecast.
    pub next: SheetNext,
    /// The history of `windlass logs`, newest first.
    pub story: Vec<TimelineEntry>,
    /// What could not be read.
    pub unread: Vec<String>,
    /// The buttons, and whether each has an effect now.
    pub buttons: Vec<(Button, bool)>,
    /// Since when the API server does not respond, if for too long.
    pub silent_since: Option<DateTime<Utc>>,
}

impl SheetView {
    /// The view of an object, with the events, causes and forecast if known.
    #[must_use]
    pub fn of(of: ListedSheet, object: &Value, details: Option<&Details>, now: DateTime<Utc>) -> Self {
        let none = Details::default();
        let cached = details.unwrap_or(&none);
        let ListedSheet { kind, paged, .. } = of;
        let mut story = paged.story(object, cached.of_object.clone());
        story.reverse();
        story.truncate(STORY);
        let suits = |button: Button| {
            let verb = button.decides(kind)?;
            let change = paged.change(&verb, object, now);
            Some((button, change.is_ok_and(|change| change.write.is_some())))
        };
        let all = Button::ALL.into_iter().filter(|button| button.is_for(kind));
        let buttons = if of.sheet.is_terminating { Vec::new() } else { all.filter_map(suits).collect() };
        let next = match (of.sheet.verdict, details.map(|details| &details.prediction)) {
            (Verdict::UpToDate, _) | (_, Some(None)) => SheetNext::Nothing,
            (_, None) => SheetNext::Asked,
            (_, Some(Some(Ok(lines)))) => SheetNext::Lines(lines.clone()),
            (_, Some(Some(Err(sentence)))) => SheetNext::Unknown(sentence.clone()),
        };
        Self {
            chart: of.sheet.plan.as_ref().map(|plan| chart::of_plan(&of.name, plan, now)),
            chain: cached.chain.clone().unwrap_or_default(),
            next,
            story,
            unread: cached.unread.clone(),
            buttons,
            of,
            now,
            silent_since: None,
        }
    }

    /// The same view with suggested commands as the user types them.
    #[must_use]
    pub fn typed(mut self, typed: &Typed) -> Self {
        typed_chain(&mut self.chain, typed);
        if let SheetNext::Lines(lines) = &mut self.next {
            *lines = lines.iter().map(|line| typed.text(line)).collect();
        }
        self.of.sheet.waiting_for = typed.text(&self.of.sheet.waiting_for);
        self
    }
}

fn typed_chain(chain: &mut Chain, typed: &Typed) {
    for link in &mut chain.links {
        link.says = typed.text(&link.says);
    }
    for remedy in &mut chain.remedies {
        remedy.command = typed.text(&remedy.command);
    }
}

fn buttons(kind: PageKind, fleet: &ObservedFleet) -> Vec<(Button, bool)> {
    // A fleet that is being deleted starts and continues nothing.
    if fleet.meta.terminating {
        return Vec::new();
    }
    let plan = fleet.status.plan.as_ref().and_then(|plan| plan.parse().ok());
    let all = Button::ALL.into_iter().filter(|button| button.is_for(kind));
    all.map(|button| (button, button.suits(kind, fleet, plan.as_ref()))).collect()
}

fn next(report: &FleetReport, details: Option<&Arc<Details>>) -> Next {
    if report.verdict == Verdict::UpToDate && report.rollout.is_none() {
        return Next::Nothing;
    }
    match details.map(|details| &details.next) {
        None => Next::Asked,
        Some(None) => Next::Large,
        Some(Some(Ok(forecast))) => Next::Forecast(Box::new(forecast.clone())),
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
    fn fleet_being_deleted_has_no_buttons() {
        let mut fleet = fleet();
        fleet["spec"]["paused"] = json!(true);
        let buttons = |fleet: &serde_json::Value| {
            let seen = SeenObject::Fleet(seen(fleet, &nodes()));
            FleetView::of(&seen, seen.report(now()), None, now()).buttons.len()
        };
        assert_eq!(buttons(&fleet), Button::ALL.len());
        fleet["metadata"]["deletionTimestamp"] = json!("2026-01-01T04:10:00Z");
        assert_eq!(buttons(&fleet), 0);
    }

    #[test]
    fn list_page_matches_terminal_and_sorts_unhealthy_first() {
        let ill = seen(&fleet(), &nodes());
        let mut other = fleet();
        other["metadata"]["name"] = json!("another");
        other["status"]["rollout"] = json!(null);
        other["status"]["conditions"] = json!([
            {"type": "Ready", "status": "True", "reason": "AllNodesReady", "lastTransitionTime": "2026-01-01T04:00:00Z"},
            {"type": "UpToDate", "status": "True", "reason": "Applied", "lastTransitionTime": "2026-01-01T04:00:00Z"}]);
        let well = seen(&other, &[]);
        let view = ListView::of(&[well.clone(), ill.clone()].map(SeenObject::Fleet), false, now());
        let names: Vec<&str> = view.fleets.iter().map(|fleet| fleet.report.name.as_str()).collect();
        assert_eq!(names, ["db", "another"]);
        assert_eq!(view.fleets[0].report, FleetReport::of(&ill, now()));
        let view = FleetView::of(&SeenObject::Fleet(ill.clone()), FleetReport::of(&ill, now()), None, now());
        assert_eq!(view.chain, chain::of_fleet(&ill, &view.report, &[]));
        assert_eq!(view.next, Next::Asked);
        let well = SeenObject::Fleet(well);
        assert_eq!(FleetView::of(&well, well.report(now()), None, now()).next, Next::Nothing);
        assert!(view.story.is_sorted_by(|a, b| a.at >= b.at), "{:#?}", view.story);
    }

    #[test]
    fn effective_buttons_are_distinguished_from_others() {
        let suits = |changes: serde_json::Value| {
            let mut fleet = fleet();
            json_patch::merge(&mut fleet, &changes);
            let buttons = buttons(PageKind::Fleet, &seen(&fleet, &[]).fleet);
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
