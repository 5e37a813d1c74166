//! What a change would wait for now, in sentences.

use super::outcome::Forecast;
use windlass_core::api::at_hook::message_of;
use windlass_core::api::names::{ANNOTATION_APPROVE, argument_of};
use windlass_core::api::{HookAction, HookPoint, HookState, Promotion, Stage};
use windlass_core::planner::fleet::gate::Gate;
use windlass_core::planner::fleet::hooks;
use windlass_core::planner::fleet::sets::how_to_promote;
use windlass_core::planner::fleet::status::short;
use windlass_core::planner::fleet::{FleetDecision, FleetFacts, FleetKind, Strategy};
use windlass_core::planner::window::relative;
use windlass_engine::TaskState;
use windlass_kube_port::observed::ObservedFleet;

impl Forecast {
    /// Adds what the change would wait for now.
    pub(super) fn add_waits(&mut self, facts: &FleetFacts, fleet: &ObservedFleet, decision: &FleetDecision) {
        let status = &fleet.status;
        let mut waits = Vec::new();
        if facts.spec.paused {
            waits.push(format!(
                "spec.paused is true: no rollout starts or continues before windlass resume {}",
                self.target()
            ));
        }
        let is_active = status.rollout.is_some() && *decision == FleetDecision::Keep;
        waits.extend(self.at_gate(facts, fleet, is_active));
        let promoting = status.rollout.as_ref().filter(|rollout| rollout.stage == Stage::Promoting);
        if let Some(rollout) = promoting.filter(|_| *decision == FleetDecision::Keep) {
            let to = short(&rollout.target_hash);
            waits.push(format!("the promotion of {to} finishes first: it can no longer be rolled back"));
        }
        if let Some(rejected) = &facts.record.rejected {
            waits.push(format!(
                "this target is rejected, plan {} ended {}: windlass retry {} retries it",
                rejected.plan_id,
                rejected.outcome,
                self.target()
            ));
        }
        let begins = !self.recipe.is_empty();
        if begins && self.recipe == Strategy::BlueGreen.recipe() && facts.spec.promotion == Promotion::Manual
        {
            waits.push(format!("a person: {}", how_to_promote(&self.target_hash, false)));
        }
        if *decision == FleetDecision::Keep {
            waits.extend(self.persons(facts, fleet));
        }
        // Nodes that are down do not wait for each other: each moves in its turn.
        let has_turn =
            |name: &str| self.waves.iter().flat_map(|wave| &wave.nodes).any(|node| node.name == name);
        let out: Vec<&str> = facts
            .children
            .iter()
            .filter(|child| child.is_disrupted() && !has_turn(child.name.as_str()))
            .map(|child| child.name.as_str())
            .collect();
        // A rollout that is held by a node has no waves to report.
        let is_held = facts.rollout.now.cause().is_some()
            && facts.rollout.now.set().is_none()
            && *decision == FleetDecision::Keep;
        // Nodes of a new set do not count as disrupted.
        let takes_places = if begins {
            self.recipe == Strategy::InPlace.recipe()
        } else {
            facts.rollout.now.set().is_none()
        };
        if !out.is_empty() && takes_places && (begins || is_held || !self.waves.is_empty()) {
            let names = windlass_engine::sentence::some_of(&out);
            waits.push(match facts.spec.topology {
                None => format!("{names}: unavailable now, of at most {}", facts.spec.max_unavailable),
                Some(_) => format!("{names}: unavailable now; {}", facts.limit_at_once()),
            });
        }
        if !out.is_empty()
            && self.waves.is_empty()
            && !begins
            && !is_held
            && facts.rollout.now.set().is_none()
        {
            let names = windlass_engine::sentence::some_of(&out);
            waits.push(format!("{names}: unavailable now; windlass explain {} shows why", self.target()));
        }
        let is_in_place = if begins { self.recipe == Strategy::InPlace.recipe() } else { is_held };
        if facts.held_below() > 0 && is_in_place {
            waits.push(format!("the partition: ordinals below {} keep their revision", facts.held_below()));
        }
        if self.recipe == Strategy::InPlace.recipe() || is_held {
            waits.extend(stops(facts, fleet));
        }
        if begins {
            waits.extend(hooks_before(fleet));
        } else if *decision == FleetDecision::Keep {
            waits.extend(hooks_now(fleet));
        }
        self.waits = waits;
    }

    /// The window that is waited for, and the fleets that come first. `is_active`: a rollout is active and continues.
    fn at_gate(&self, facts: &FleetFacts, fleet: &ObservedFleet, is_active: bool) -> Vec<String> {
        let mut waits = Vec::new();
        if self.recipe.is_empty() && !is_active {
            return waits;
        }
        let of_others =
            fleet.status.rollout.as_ref().filter(|rollout| is_active && !rollout.waiting_for.is_empty());
        match (&facts.rollout.gate, of_others) {
            (Gate::Window(opening), _) => {
                let sentence = opening.sentence();
                let sentence =
                    opening.at.map_or(sentence.clone(), |at| relative(&sentence, at, crate::now()));
                let what = sentence.strip_prefix("waiting for ").unwrap_or(&sentence).to_owned();
                let resume = if is_active {
                    format!(": windlass resume {} --now opens it early", self.target())
                } else {
                    String::new()
                };
                waits.push(format!("{what}{resume}"));
            }
            (Gate::Missing(sentence), _) => waits.push(format!("missing objects: {sentence}")),
            (_, Some(rollout)) => {
                let message = rollout.message.as_str();
                waits.push(message.strip_prefix("waiting for ").unwrap_or(message).to_owned());
            }
            _ => {}
        }
        let after = fleet.spec.iter().flat_map(|spec| &spec.update_strategy.after).filter(|_| !is_active);
        let field = if self.is_of_pods() { "strategy.after" } else { "updateStrategy.after" };
        waits.extend(after.map(|of| format!("{} {}, if it is not up to date: {field}", of.kind, of.name)));
        waits
    }

    /// The object as a command names it.
    fn target(&self) -> String {
        let kind = if self.is_of_pods() { FleetKind::Pods } else { FleetKind::Nodes };
        argument_of(kind.short(), &self.name, &self.namespace)
    }

    /// The approvals that are waited for, and their effect.
    fn persons(&self, facts: &FleetFacts, fleet: &ObservedFleet) -> Vec<String> {
        let status = &fleet.status;
        let mut waits = Vec::new();
        if let Some(rollout) = facts.rollout.now.set().filter(|rollout| {
            let is_to_come = rollout.strategy == Strategy::BlueGreen && rollout.entrant != facts.set;
            is_to_come && facts.awaits_person()
        }) {
            let is_spent = rollout.target == *status.spent_force_promote;
            let how = how_to_promote(&rollout.target, is_spent);
            waits.push(format!("a person: windlass promote {}: {how}", self.target()));
        }
        let approved = fleet.meta.annotation(ANNOTATION_APPROVE).unwrap_or_default();
        for hook in status.hooks.iter().filter(|hook| hook.task_id != approved) {
            let of = if hook.node.is_empty() { String::new() } else { format!(" of {}", hook.node) };
            let (name, task) = (format!("hook {}{of}", hook.hook), &hook.task_id);
            match hook.state.parse().ok() {
                Some(HookState::AwaitingApproval) => waits
                    .push(format!("an approval of {name}: windlass approve {} --task {task}", self.target())),
                Some(HookState::Failed) => waits.push(format!(
                    "{name}, which failed: windlass retry {target}, or windlass skip {target} --task {task}",
                    target = self.target()
                )),
                None => {}
            }
        }
        waits
    }
}

/// The nodes after which an in-place rollout stops for hooks.
fn stops(facts: &FleetFacts, fleet: &ObservedFleet) -> Option<String> {
    let sizes: Vec<String> =
        hooks::stops(facts).into_iter().map(|step| hooks::size_of_step(facts, step).to_string()).collect();
    if sizes.is_empty() {
        return None;
    }
    let nodes = if facts.kind == FleetKind::Pods { "pods" } else { "nodes" };
    let at = format!("later, after {} of {} {nodes}", sizes.join(" and "), facts.spec.replicas);
    Some(match hooks_at(fleet, HookPoint::AfterStep).as_slice() {
        [] => format!("{at}: until all of them are available"),
        hooks => format!("{at}: {}", hooks.join(", ")),
    })
}

/// The hooks at a point, each with its action.
fn hooks_at(fleet: &ObservedFleet, at: HookPoint) -> Vec<String> {
    let hooks = fleet.spec.iter().flat_map(|spec| &spec.update_strategy.hooks).filter(|hook| hook.at == at);
    hooks.filter_map(|hook| Some(format!("{} ({})", hook.name, in_words(hook.action()?)))).collect()
}

/// The hooks before the first node of a new rollout.
fn hooks_before(fleet: &ObservedFleet) -> Option<String> {
    let names = hooks_at(fleet, HookPoint::BeforeRollout);
    (!names.is_empty()).then(|| format!("the hooks before the rollout: {}", names.join(", ")))
}

fn in_words(action: HookAction<'_>) -> String {
    match action {
        HookAction::Http(_) => "a request".to_owned(),
        HookAction::Job(_) => "a Job".to_owned(),
        HookAction::Query(_) => "a query".to_owned(),
        HookAction::Approval => "an approval".to_owned(),
        HookAction::Wait(wait) => format!("{} s", wait.seconds),
    }
}

/// What the hooks of the fleet's own plan wait for, other than a person.
fn hooks_now(fleet: &ObservedFleet) -> Vec<String> {
    let plan = fleet.status.plan.as_ref().and_then(|plan| plan.parse().ok());
    let tasks = plan.iter().flat_map(|plan| &plan.tasks);
    let runs = tasks.filter(|task| {
        let hook = task.params["hook"].as_str();
        let by_person = |hook: &str| fleet.status.hooks.iter().any(|h| h.node.is_empty() && h.hook == hook);
        task.state == TaskState::Running && hook.is_some_and(|hook| !by_person(hook))
    });
    let message = runs.filter(|task| !task.message.is_empty());
    message.map(message_of).collect()
}
