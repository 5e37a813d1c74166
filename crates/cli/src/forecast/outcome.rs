//! The forecast, as printed for people and programs.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::Change;
use super::differences::{Field, of_change};
use crate::report::{clock_time, node_seconds, tag};
use windlass::tasks::FleetScope;
use windlass_core::api::{NodeDeploymentSpec, Promotion, RolloutHash, SetName, Stage};
use windlass_core::planner::fleet::Start;
use windlass_core::planner::fleet::forecast::{self, Action};
use windlass_core::planner::fleet::status::short;
use windlass_core::planner::fleet::topology::limit_at_once;
use windlass_core::planner::fleet::{FleetDecision, FleetFacts, FleetKind, Strategy};
use windlass_engine::Plan;
use windlass_kube_port::Kind;
use windlass_kube_port::observed::{Observed, ObservedFleet};

/// The effect of applying a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub enum Outcome {
    /// Nothing changes.
    Nothing,
    /// Something does.
    Changes,
    Refused,
}

/// What is done to a node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Move {
    /// The node.
    pub name: String,
    /// What that is.
    pub action: Action,
    /// The revision that it is to run; empty if it is removed.
    #[serde(skip)]
    pub revision: String,
    /// Its failure domain, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// True if it is updated last, by `order.last`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl MoveWave {
    /// When its nodes move, and in which domain if that is the same for all of them.
    #[must_use]
    pub fn title(&self) -> String {
        match self.domain() {
            Some(domain) => format!("{} ({domain})", self.when),
            None => self.when.clone(),
        }
    }

    fn domain(&self) -> Option<&str> {
        let first = self.nodes.first()?.domain.as_deref()?;
        self.nodes.iter().all(|node| node.domain.as_deref() == Some(first)).then_some(first)
    }

    /// What to say of a node besides its name: its domain unless the title has it, and that it is updated last.
    #[must_use]
    pub fn remark(&self, node: &Move) -> Option<String> {
        let domain = node.domain.as_deref().filter(|_| self.domain().is_none());
        let last = node.last.then_some("updated last");
        let words: Vec<&str> = domain.into_iter().chain(last).collect();
        (!words.is_empty()).then(|| format!("({})", words.join(", ")))
    }
}

/// Nodes that move at the same time, in order.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct MoveWave {
    /// When they move.
    pub when: String,
    pub nodes: Vec<Move>,
}

/// The takeover of one set of nodes by another.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Takeover {
    /// True if the fleet has a Service, whose selector moves; else only the status changes.
    pub service: bool,
    /// The active set.
    pub from_set: String,
    /// The set that takes over.
    pub to_set: String,
    /// The active set's image; empty if unknown.
    pub from_image: String,
    /// The new set's image.
    pub to_image: String,
    /// When it takes over.
    pub when: String,
}

impl Takeover {
    /// The takeover, in a sentence.
    #[must_use]
    pub fn sentence(&self, fleet: &str) -> String {
        let what = if self.service { format!("Service {fleet}") } else { "the active set".to_owned() };
        let of = |set: &str, image: &str| {
            if image.is_empty() { format!("set {set}") } else { format!("set {set} ({})", tag(image)) }
        };
        let (from, to) = (of(&self.from_set, &self.from_image), of(&self.to_set, &self.to_image));
        format!("{what} moves from {from} to {to} {}", self.when)
    }
}

/// The forecast of a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// `NodeDeployment` or `StatefulSetRollout`.
    pub kind: String,
    /// The object's namespace.
    pub namespace: String,
    pub name: String,
    /// True if it is created.
    pub is_new: bool,
    /// The effect.
    pub outcome: Outcome,
    /// Why the API server or the operator rejects it. If something changes nevertheless, only the template
    /// is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// True if the change makes a new target.
    pub new_target: bool,
    /// The rollout hash of the target.
    pub target_hash: String,
    /// The fields that make it a new target.
    pub target: Vec<Field>,
    /// The fields that apply at once.
    pub at_once: Vec<Field>,
    /// Of a StatefulSetRollout: the StatefulSets that have another update revision than their current one, and the fields in
    /// which these differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Field>,
    /// Of a StatefulSetRollout: what is done to the update strategies of StatefulSets, each in a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// The volume claims that grow, each in a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grows: Vec<String>,
    /// What happens, in a sentence.
    pub happens: String,
    /// The recipe of the rollout that starts, if one does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub recipe: String,
    /// Why it starts: a reason of the condition RolloutInProgress.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The set that is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<SetName>,
    /// The takeover by another set, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_over: Option<Takeover>,
    /// The most nodes that may be disrupted at once. With a topology, `limit` applies.
    pub max_unavailable: i32,
    /// How many nodes may be unavailable at once, in words.
    pub limit: String,
    /// The nodes in order.
    pub waves: Vec<MoveWave>,
    /// The hooks that run, in order, each with its point.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// What the change would wait for now, in sentences.
    pub waits: Vec<String>,
    /// The estimated duration in seconds, from this fleet's nodes; absent without an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about_seconds: Option<i64>,
    /// What could not be read or checked, and is therefore left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// The waves of an in-place rollout, with their conditions.
pub(super) fn waves(waves: Vec<forecast::Wave>) -> Vec<MoveWave> {
    let numbered = waves.into_iter().enumerate();
    numbered.map(|(index, wave)| move_wave(format!("wave {}", index + 1), wave)).collect()
}

fn move_wave(when: String, wave: forecast::Wave) -> MoveWave {
    let nodes = wave.into_iter().map(|turn| Move {
        name: turn.name.into(),
        action: turn.action,
        revision: turn.revision.map(String::from).unwrap_or_default(),
        domain: turn.domain,
        last: turn.is_last,
    });
    MoveWave { when, nodes: nodes.collect() }
}

/// When the nodes of a set are removed, after `why`.
fn leaves_at(why: &str, at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    if at <= now { format!("{why}, at once") } else { format!("{why}, at {}", clock_time(at, now)) }
}

impl Forecast {
    /// The exit code of `windlass plan`.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.outcome {
            Outcome::Nothing => 0,
            Outcome::Refused => 1,
            Outcome::Changes => 2,
        }
    }

    /// The nodes that are created with the old template, because others are down, and updated in a later wave.
    #[must_use]
    pub fn recreated_sentence(&self) -> Option<String> {
        let nodes = || self.waves.iter().flat_map(|wave| &wave.nodes);
        let moved: BTreeSet<&str> =
            nodes().filter(|node| node.action == Action::Update).map(|node| node.name.as_str()).collect();
        // Nodes of a new set are created with the target.
        let in_place = self.set.is_none() && self.takes_over.is_none();
        let made: Vec<&str> = nodes()
            .filter(|node| node.action == Action::Create)
            .filter(|node| {
                moved.contains(node.name.as_str()) || (in_place && node.revision != self.target_hash)
            })
            .map(|node| node.name.as_str())
            .collect();
        (!made.is_empty()).then(|| {
            let names = windlass_engine::sentence::some_of(&made);
            let then = if made.iter().all(|name| moved.contains(name)) {
                ", because others are unavailable, and updated in its wave"
            } else {
                ", and updated once the rollout continues"
            };
            format!("{names}: created at the current revision{then}")
        })
    }

    /// True if no field of an existing fleet changes.
    #[must_use]
    pub fn is_empty_change(&self) -> bool {
        !self.is_new && self.target.is_empty() && self.at_once.is_empty()
    }

    /// True if it is about the pods of existing StatefulSets.
    #[must_use]
    pub fn is_of_pods(&self) -> bool {
        self.kind == Kind::StatefulSetRollout.name()
    }

    /// The names of the nodes, in order.
    pub fn order(&self) -> impl Iterator<Item = &str> {
        self.waves.iter().flat_map(|wave| &wave.nodes).map(|node| node.name.as_str())
    }

    pub(super) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.name().to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_new: false,
            outcome: Outcome::Nothing,
            refused: None,
            new_target: false,
            target_hash: String::new(),
            target: Vec::new(),
            at_once: Vec::new(),
            pending: Vec::new(),
            holds: Vec::new(),
            grows: Vec::new(),
            happens: String::new(),
            recipe: String::new(),
            cause: String::new(),
            set: None,
            takes_over: None,
            max_unavailable: 1,
            limit: limit_at_once(None, 1),
            waves: Vec::new(),
            hooks: Vec::new(),
            waits: Vec::new(),
            about_seconds: None,
            unread: Vec::new(),
        }
    }

    pub(super) fn refused(
        namespace: &str,
        name: &str,
        before: Option<&Value>,
        change: &Change,
        sentence: String,
    ) -> Self {
        let mut forecast = Self::new(Kind::NodeDeployment, namespace, name);
        forecast.is_new = before.is_none();
        // Show as much of the request as can be read.
        if let (Some(before), Change::Merge(patch)) = (before, change) {
            let mut after = before.clone();
            json_patch::merge(&mut after, patch);
            let (before, after) = (ObservedFleet::read(before), ObservedFleet::read(&after));
            if let (Ok(before), Ok(after)) = (&before.spec, &after.spec) {
                (forecast.target, forecast.at_once) = of_change(Some(before), after, None);
            }
        }
        forecast.refuse(sentence);
        forecast
    }

    /// The forecast with the changed fields. `created`: the claims that the nodes were created with, if there are nodes.
    pub(super) fn begun(
        (namespace, name): (&str, &str),
        before: Option<&Value>,
        after: &ObservedFleet,
        created: Option<&[Value]>,
    ) -> Self {
        let mut forecast = Self::new(Kind::NodeDeployment, namespace, name);
        let old = before.map(ObservedFleet::read);
        let old: Option<&NodeDeploymentSpec> = old.as_ref().and_then(|old| old.spec.as_deref().ok());
        if let Ok(spec) = &after.spec {
            (forecast.target, forecast.at_once) = of_change(old, spec, created);
            forecast.limit_to(spec);
        }
        forecast.is_new = before.is_none();
        if forecast.is_new || !forecast.target.is_empty() || !forecast.at_once.is_empty() {
            forecast.outcome = Outcome::Changes;
        }
        forecast
    }

    /// Records how many nodes may be unavailable at once.
    pub(super) fn limit_to(&mut self, spec: &NodeDeploymentSpec) {
        self.max_unavailable = spec.max_unavailable();
        self.limit = limit_at_once(spec.topology(), self.max_unavailable);
    }

    pub(super) fn refuse(&mut self, sentence: String) {
        // If the template is refused, the rest may still apply.
        if self.outcome != Outcome::Refused {
            self.refused = None;
        }
        self.outcome = Outcome::Refused;
        self.refused.get_or_insert(sentence);
    }

    /// Keeps only what follows from the fleet itself: its differences, and whether they make a new target.
    pub(super) fn leave_nodes_out(&mut self) {
        self.waves.clear();
        self.hooks.clear();
        self.waits.clear();
        self.takes_over = None;
        self.about_seconds = None;
        self.set = None;
        self.recipe.clear();
        self.cause.clear();
        let what = if self.is_of_pods() {
            "the order of pods is not known: you have no right to list StatefulSets and Pods"
        } else {
            "the order of nodes is not known: you have no right to list StatefulNodes"
        };
        what.clone_into(&mut self.happens);
        if self.outcome != Outcome::Refused {
            let differs = !self.target.is_empty() || !self.at_once.is_empty();
            self.outcome = if differs { Outcome::Changes } else { Outcome::Nothing };
        }
    }

    /// The fleet is being deleted: nothing starts any more.
    pub(super) fn is_deleted(&mut self) {
        let sentence = format!("{} {} is being deleted: no rollout starts any more", self.kind, self.name);
        if self.target.is_empty() && self.at_once.is_empty() {
            self.happens = sentence;
        } else {
            self.refuse(sentence);
        }
    }

    /// Refuses the template, and with it the change, unless it also creates or removes nodes, which happens all the
    /// same.
    pub(super) fn refuse_template(&mut self, sentence: String) {
        let applies = |node: &Move| matches!(node.action, Action::Create | Action::Remove);
        let scales = !self.at_once.is_empty() && self.waves.iter().flat_map(|wave| &wave.nodes).any(applies);
        if self.is_new || !scales || self.outcome == Outcome::Refused {
            return self.refuse(sentence);
        }
        self.refused = Some(sentence);
        self.new_target = false;
    }

    pub(super) fn add_target(
        &mut self,
        facts: &FleetFacts,
        before: Option<&RolloutHash>,
        specified: RolloutHash,
    ) {
        self.new_target =
            before.is_some_and(|before| *before != specified) && facts.record.last_completed != specified;
        self.target_hash = specified.into();
    }

    /// Drops the fields that are only written otherwise, if that was so and they do not change the target. Returns whether
    /// it did.
    pub(super) fn is_no_other_target(&mut self, before: Option<&RolloutHash>) -> bool {
        let is_same = !self.target.is_empty() && before.is_some_and(|before| *before == *self.target_hash);
        if is_same {
            self.target.clear();
            if self.outcome == Outcome::Changes && self.at_once.is_empty() {
                self.outcome = Outcome::Nothing;
            }
        }
        is_same
    }

    pub(super) fn report_same_content(&mut self) {
        let also = std::mem::take(&mut self.happens);
        let also = if also.is_empty() { also } else { format!("; {also}") };
        self.happens = format!("no change: the API server stores the same pod template{also}");
    }

    pub(super) fn begins(&mut self, start: &Start, superseded: Option<&Plan>) {
        if self.outcome != Outcome::Refused {
            self.outcome = Outcome::Changes;
        }
        start.strategy.recipe().clone_into(&mut self.recipe);
        start.cause.as_ref().clone_into(&mut self.cause);
        let over = superseded
            .map(|plan| format!("; plan {} to {} is superseded", plan.id, short(&plan.target_hash)));
        self.happens = format!(
            "a rollout {} to {} starts ({}){}",
            start.strategy.recipe(),
            short(&start.target),
            start.cause.as_ref(),
            over.unwrap_or_default()
        );
    }

    pub(super) fn goes_on(&mut self, active: Option<&Plan>, facts: &FleetFacts) {
        let to = |plan: &Plan| {
            format!("plan {} ({}) to {} continues", plan.id, plan.recipe, short(&plan.target_hash))
        };
        self.happens = match active {
            Some(plan) => to(plan),
            None if facts.record.last_completed.is_none()
                && facts.spec.replicas > 0
                && facts.kind == FleetKind::Nodes =>
            {
                "the fleet's nodes are created, without a rollout".to_owned()
            }
            None => String::new(),
        };
    }

    pub(super) fn gives_up(&mut self, decision: &FleetDecision, active: Option<&Plan>) {
        if self.outcome != Outcome::Refused {
            self.outcome = Outcome::Changes;
        }
        let what = match decision {
            FleetDecision::CancelToCurrent => {
                "the active set already matches the spec: its new nodes are removed"
            }
            FleetDecision::ScaledToZero => "spec.replicas is 0",
            FleetDecision::CancelAfterFailure => "it stalled: its new nodes are removed",
            _ => "requested by a person",
        };
        let plan = active.map(|plan| format!("plan {} ends: ", plan.id)).unwrap_or_default();
        self.happens = format!("{plan}{what}");
    }

    pub(super) fn set_waves(&mut self, fleet: &str, facts: &FleetFacts, start: &Start, set: &SetName) {
        self.set = Some(set.clone());
        let made = forecast::entrants(fleet, set, facts, &start.target);
        // The serving set follows spec.replicas meanwhile, unless it is removed first.
        let in_place = match start.strategy {
            Strategy::BlueGreenImmediate => Vec::new(),
            _ => forecast::in_place(fleet, facts, None),
        };
        let gone = forecast::incumbents(facts, &in_place);
        let delay = facts.spec.retire_delay_seconds;
        let waves = match start.strategy {
            Strategy::BlueGreenImmediate => {
                [("first".to_owned(), gone), ("then, before traffic moves".to_owned(), made)]
            }
            Strategy::HardFork => [
                ("first".to_owned(), made),
                (
                    format!(
                        "{delay}s after the halt at height {} and the move of traffic",
                        facts.spec.halt_height
                    ),
                    gone,
                ),
            ],
            Strategy::InPlace | Strategy::BlueGreen | Strategy::GrowClaims => {
                let moves = if facts.spec.promotion == Promotion::Manual {
                    "a person promotes it"
                } else {
                    "traffic has moved"
                };
                [("first".to_owned(), made), (format!("{delay}s after {moves}"), gone)]
            }
        };
        let in_place = in_place.into_iter().map(|wave| ("in the active set".to_owned(), wave));
        let waves = in_place.chain(waves).filter(|(_, wave)| !wave.is_empty());
        self.waves = waves.map(|(when, wave)| move_wave(when, wave)).collect();
    }

    /// Adds the takeover by the new set.
    pub(super) fn add_takeover(
        &mut self,
        facts: &FleetFacts,
        strategy: Strategy,
        (set, target): (&SetName, &RolloutHash),
        has_service: bool,
    ) {
        if *set == facts.set {
            return;
        }
        let image = |revision: Option<&RolloutHash>| {
            let of = facts.renderings.iter().find(|((hash, _), _)| Some(hash) == revision);
            of.map(|(_, rendering)| rendering.image.clone()).unwrap_or_default()
        };
        let when = match strategy {
            _ if facts
                .rollout
                .now
                .set()
                .is_some_and(|r| r.entrant == *set && r.stage == Stage::Promoting) =>
            {
                "now".to_owned()
            }
            Strategy::HardFork => format!("once its nodes have halted at height {}", facts.spec.halt_height),
            Strategy::BlueGreenImmediate => "as soon as the new nodes are available".to_owned(),
            _ if facts.requests.force_promote => {
                "as soon as the new nodes are available, as requested".to_owned()
            }
            _ if facts.spec.promotion == Promotion::Manual => "once a person promotes it".to_owned(),
            _ => "once the new nodes are ready to take over".to_owned(),
        };
        self.takes_over = Some(Takeover {
            service: has_service,
            from_set: facts.set.to_string(),
            to_set: set.to_string(),
            from_image: image(facts.record.last_completed.as_ref()),
            to_image: image(Some(target)),
            when,
        });
    }

    /// Adds the removal of the old set after the takeover.
    pub(super) fn add_incumbents(
        &mut self,
        facts: &FleetFacts,
        strategy: Strategy,
        in_place: &[forecast::Wave],
    ) {
        let gone = forecast::incumbents(facts, in_place);
        // BlueGreenImmediate removes them first.
        if strategy != Strategy::BlueGreenImmediate && !gone.is_empty() {
            self.waves.push(move_wave(
                format!("{}s after traffic has moved", facts.spec.retire_delay_seconds),
                gone,
            ));
        }
    }

    /// Adds the waves that follow once the rollout's wait is over.
    pub(super) fn add_later_waves(&mut self, facts: &FleetFacts, later: Vec<forecast::Wave>) {
        let out: Vec<&str> =
            facts.children.iter().filter(|c| c.is_disrupted()).map(|c| c.name.as_str()).collect();
        if out.is_empty() {
            return;
        }
        let verb = if out.len() == 1 { "is available" } else { "are available" };
        let names = windlass_engine::sentence::some_of(&out);
        self.waves = waves(later);
        if let Some(first) = self.waves.first_mut() {
            first.when = format!("{} (once {names} {verb})", first.when);
        }
    }

    /// Adds nodes of the new set that are not up to date yet.
    pub(super) fn add_entrants(&mut self, wave: forecast::Wave) {
        if !wave.is_empty() {
            self.waves.push(move_wave("in the new set".to_owned(), wave));
        }
    }

    /// Adds the removals from sets that do not serve: a set that no longer takes over, which is reported, nodes
    /// beyond a smaller size, and replaced sets.
    pub(super) fn add_removals(&mut self, facts: &FleetFacts, gives_up: bool, now: DateTime<Utc>) {
        let entrant = facts.rollout.now.set().filter(|rollout| rollout.entrant != facts.set);
        let given_up = entrant.filter(|_| gives_up);
        let without = given_up.map(|rollout| &rollout.entrant);
        let mut first = Vec::new();
        if let Some(rollout) = given_up {
            first.push((
                leaves_at("aborted", facts.removal_of(&rollout.given_up(now)), now),
                forecast::given_up(facts),
            ));
        }
        first.push(("above spec.replicas, at once".to_owned(), forecast::surplus(facts, without)));
        let first = first.into_iter().filter(|(_, wave)| !wave.is_empty());
        let first: Vec<MoveWave> = first.map(|(when, wave)| move_wave(when, wave)).collect();
        self.waves.splice(0..0, first);
        // A set that takes over again stays.
        for (at, wave) in forecast::retired(facts, self.set.as_ref().or(without)) {
            self.waves.push(move_wave(leaves_at("replaced", at, now), wave));
        }
    }

    /// Adds the estimated duration, from the last durations of the fleet's nodes.
    pub(super) fn add_estimate(&mut self, scope: &FleetScope) {
        let nodes = scope.children();
        let each = node_seconds(nodes.iter().map(AsRef::as_ref), None);
        let settle = scope.spec.min_ready_seconds;
        let waves = i64::try_from(self.waves.len()).unwrap_or(i64::MAX);
        // When nodes reach a height is unknown, and nodes that are only removed have their own times.
        let is_known = scope.spec.update_strategy.type_ != Strategy::HardFork.recipe()
            && self.waves.iter().flat_map(|wave| &wave.nodes).any(|node| node.action != Action::Remove);
        self.about_seconds = match (each, self.set.is_none() && self.takes_over.is_none()) {
            (_, _) if self.waves.is_empty() || !is_known => None,
            (Some(each), true) => Some(waves.saturating_mul(each + settle)),
            (Some(each), false) => Some(each + settle + scope.spec.retire_delay_seconds()),
            (None, _) => None,
        };
    }
}
