//! The orchestrator: facts, decisions, grants, creation and the status are the planner's own.

use std::collections::HashMap;

use windlass::api::{NodeDeploymentStatus, OnStall, Rejected};
use windlass::engine::{Plan, PlanSeed, Recipe};
use windlass::planner::fleet::create::creation_revision;
use windlass::planner::fleet::status::{Ending, RefreshInput, begin, complete, refresh, reject, scope_of};
use windlass::planner::fleet::{
    ChildFacts, FleetDecision, FleetFacts, Rendering, Scope, decide, may_grant, next_grants,
};

use crate::executor::now;
use crate::state::{
    Child, Doing, Fleet, Goal, HASHES, IMAGES, MAX_NODES, NO_VERSION, Outcome, REVISIONS, World, hash_of,
    number,
};

/// What the orchestrator may do next, as far as it knows.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    /// It changes the plan, and does nothing else.
    pub decisions: Vec<Fleet>,
    /// It writes the status, which completes a new fleet or forgets a rejected target.
    pub status: Option<Fleet>,
    /// The highest node that is to go.
    pub scale_down: Option<usize>,
    /// The first missing node, and the version at which it is made.
    pub create: Option<(usize, u8)>,
    /// Nodes and the versions that they are granted, in this order.
    pub grants: Vec<(usize, u8)>,
    /// Nodes that are granted what they run, after an abort.
    pub pins: Vec<(usize, u8)>,
    /// The rollout is complete.
    pub complete: Option<Fleet>,
    /// Which nodes the wave would let be granted now.
    pub would_grant: [bool; MAX_NODES],
}

type Key = (Fleet, [Child; MAX_NODES]);

/// The orchestrator, with what it found out before.
#[derive(Default)]
pub struct Orchestrator {
    memo: HashMap<Key, std::rc::Rc<Moves>>,
}

impl Orchestrator {
    pub fn moves(&mut self, world: &World, fleet: &Fleet, views: [Child; MAX_NODES]) -> std::rc::Rc<Moves> {
        let key = (*fleet, views);
        if let Some(known) = self.memo.get(&key) {
            return known.clone();
        }
        let found = std::rc::Rc::new(moves(world, fleet, &views));
        self.memo.insert(key, found.clone());
        found
    }
}

fn text(name: &str) -> String {
    name.to_owned()
}

fn child_facts(ordinal: usize, fleet: &Fleet, child: &Child) -> ChildFacts {
    let ran = |names: &[&str]| text(names[child.hash as usize]);
    ChildFacts {
        name: format!("db-{ordinal}"),
        ordinal: ordinal as i32,
        surplus: ordinal >= fleet.replicas as usize,
        behind: child.behind,
        held: text(REVISIONS[child.version as usize]),
        granted: text(HASHES[child.granted as usize]),
        grant_id: text("grant"),
        spent_id: text(if child.spent { "grant" } else { "before" }),
        running: ran(&HASHES),
        running_image: ran(&IMAGES),
        rolling: !matches!(child.doing, Doing::Nothing | Doing::Mark),
        ready: child.available,
        ready_since: child.available.then(now),
        available: child.available,
        ever_ready: child.ever,
        failed: child.failed,
        ..ChildFacts::default()
    }
}

pub fn facts(world: &World, fleet: &Fleet, views: &[Child; MAX_NODES]) -> FleetFacts {
    let requested = text(REVISIONS[fleet.wanted as usize]);
    let rendering = |version: u8| {
        let hash = hash_of(version, fleet.operator) as usize;
        let rendering = Rendering { hash: text(HASHES[hash]), image: text(IMAGES[hash]) };
        ((text(REVISIONS[version as usize]), String::new()), rendering)
    };
    let asked = |is_asked: bool| text(if is_asked { "plan" } else { "" });
    FleetFacts {
        replicas: i32::from(fleet.replicas),
        max_unavailable: i32::from(fleet.max_unavailable),
        paused: fleet.paused,
        on_stall: if world.rollback { OnStall::Rollback } else { OnStall::Hold },
        deadline_seconds: 600,
        rejected: rejected(fleet).filter(|r| r.hash == requested),
        requested,
        last_completed: text(REVISIONS[fleet.completed as usize]),
        abort: asked(fleet.abort_asked),
        retry: asked(fleet.retry_asked),
        children: views
            .iter()
            .enumerate()
            .filter(|(_, c)| c.exists)
            .map(|(i, c)| child_facts(i, fleet, c))
            .collect(),
        renderings: (0..NO_VERSION).map(rendering).collect(),
        ..FleetFacts::default()
    }
}

fn rejected(fleet: &Fleet) -> Option<Rejected> {
    let (version, outcome) = fleet.rejected?;
    let outcome = match outcome {
        Outcome::Aborted => "Aborted",
        Outcome::RolledBack => "RolledBack",
    };
    let hash = text(REVISIONS[version as usize]);
    Some(Rejected { hash, plan_id: text("plan"), outcome: text(outcome), ..Rejected::default() })
}

fn plan_to(target: &str) -> Plan {
    let seed = PlanSeed { uid: "uid", target_hash: target, now: now(), attempt: 0, disambiguator: "" };
    let recipe = Recipe::parse("{name: InPlace, tasks: [{type: update-node-specs}]}").expect("a recipe");
    Plan { id: text("plan"), ..recipe.plan(seed) }
}

/// The persisted status of a fleet.
fn status_of(fleet: &Fleet, facts: &FleetFacts) -> NodeDeploymentStatus {
    let mut status = NodeDeploymentStatus {
        last_completed_rollout_hash: facts.last_completed.clone(),
        ..NodeDeploymentStatus::default()
    };
    if let Some(goal) = fleet.rollout {
        let (scope, target) = match goal {
            Goal::Version(v) => (Scope::Target(text(REVISIONS[v as usize])), text(REVISIONS[v as usize])),
            Goal::Own => (Scope::Own, facts.steady_revision().to_owned()),
        };
        let cause = windlass::planner::fleet::Cause::TemplateChanged;
        let start = windlass::planner::fleet::decide::Start {
            scope,
            target,
            cause,
            way: windlass::planner::fleet::Way::InPlace,
        };
        begin(&mut status, facts, &start, &plan_to(&start.target), "", now());
    }
    status.rejected = rejected(fleet);
    status
}

/// The fleet whose status this is.
fn read(fleet: &Fleet, status: &NodeDeploymentStatus) -> Fleet {
    let version = |name: &str| number(&REVISIONS, name);
    Fleet {
        completed: version(&status.last_completed_rollout_hash),
        rollout: status
            .rollout
            .as_ref()
            .map(|r| if r.own_revisions { Goal::Own } else { Goal::Version(version(&r.target_hash)) }),
        rejected: status.rejected.as_ref().map(|r| {
            (version(&r.hash), if r.outcome == "Aborted" { Outcome::Aborted } else { Outcome::RolledBack })
        }),
        ..*fleet
    }
}

/// Writes a status as the controller does: what is observed is brought up to date first.
fn write(fleet: &Fleet, mut status: NodeDeploymentStatus, facts: &FleetFacts) -> Fleet {
    let mut facts = facts.clone();
    facts.last_completed.clone_from(&status.last_completed_rollout_hash);
    facts.rejected = status.rejected.clone().filter(|r| r.hash == facts.requested);
    let input = RefreshInput {
        name: "db",
        generation: 1,
        update_revision: "",
        build_id: "",
        plan: None,
        remark: "",
        now: now(),
    };
    refresh(&mut status, &facts, &input);
    read(fleet, &status)
}

fn moves(world: &World, fleet: &Fleet, views: &[Child; MAX_NODES]) -> Moves {
    let facts = facts(world, fleet, views);
    let status = status_of(fleet, &facts);
    let scope = scope_of(&status);
    let plan = status.rollout.as_ref().map(|r| plan_to(&r.target_hash));
    let mut moves = Moves::default();

    let is_stuck =
        |c: &ChildFacts| c.failed && facts.target_for(c, &scope).is_some_and(|t| t.hash == c.granted);
    let may_stall = world.rollback && facts.wanted().any(is_stuck);
    let decision = decide(&facts, plan.as_ref(), &scope, false);
    if decision != FleetDecision::Keep {
        moves.decisions.push(change_plan(fleet, &status, &facts, decision));
        return moves;
    }
    let stalled = decide(&facts, plan.as_ref(), &scope, true);
    if may_stall && stalled != FleetDecision::Keep && !fleet.paused {
        moves.decisions.push(change_plan(fleet, &status, &facts, stalled));
    }

    let ordinal = |c: &ChildFacts| c.ordinal as usize;
    moves.scale_down = facts.children.iter().rev().find(|c| c.surplus).map(ordinal);
    if let Some(missing) = facts.missing().first() {
        let active = plan.is_some().then_some(&scope);
        let version = number(&REVISIONS, creation_revision(&facts, *missing, active));
        moves.create = Some((*missing as usize, version));
    }
    if plan.is_none() {
        moves.pins = pins(fleet, views, &facts);
        let written = write(fleet, status, &facts);
        moves.status = (written != *fleet).then_some(written);
        return moves;
    }
    let refreshed = write(fleet, status.clone(), &facts);
    moves.status = (refreshed != *fleet).then_some(refreshed);
    if facts.is_converged(&scope) {
        let mut done = status;
        complete(&mut done, &scope);
        moves.complete = Some(write(fleet, done, &facts));
    }
    if !facts.paused {
        let by_name = |name: &str| name.trim_start_matches("db-").parse().expect("an ordinal");
        moves.grants = next_grants(&facts, &scope)
            .iter()
            .map(|g| (by_name(&g.name), number(&REVISIONS, &g.revision)))
            .collect();
        for (index, child) in facts.children.iter().enumerate() {
            let target = facts.target_for(child, &scope);
            moves.would_grant[ordinal(child)] =
                target.is_some_and(|t| may_grant(&facts, index, &t.hash).is_some());
        }
    }
    moves
}

fn change_plan(
    fleet: &Fleet,
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    decision: FleetDecision,
) -> Fleet {
    let mut status = status.clone();
    let start = match decision {
        FleetDecision::Start(start) | FleetDecision::Supersede(start) => Some(start),
        FleetDecision::RollBack(start) => {
            reject(&mut status, facts, "plan", Ending::RolledBack);
            Some(start)
        }
        FleetDecision::Abort => {
            reject(&mut status, facts, "plan", Ending::Aborted);
            None
        }
        FleetDecision::ScaledToZero | FleetDecision::Keep => None,
        // The model has one set of nodes.
        FleetDecision::Withdraw | FleetDecision::TakeBack | FleetDecision::CompleteAndStart(_) => {
            unreachable!("no rollout makes a set")
        }
    };
    match &start {
        Some(start) => begin(&mut status, facts, start, &plan_to(&start.target), "", now()),
        None => status.rollout = None,
    }
    // Annotations name a plan; one that took its place is another.
    let named = Fleet { abort_asked: false, retry_asked: false, ..*fleet };
    write(&named, status, facts)
}

/// After an abort nodes that still run what they ran are granted that (`controller::fleet_children::pin`).
fn pins(fleet: &Fleet, views: &[Child; MAX_NODES], facts: &FleetFacts) -> Vec<(usize, u8)> {
    if facts.rejected.as_ref().is_none_or(|r| r.outcome != "Aborted") {
        return Vec::new();
    }
    let runs_other = |c: &Child| c.exists && c.by_latest_plan && c.hash != 0 && c.hash != c.granted;
    let version = |c: &Child| (0..NO_VERSION).find(|v| hash_of(*v, fleet.operator) == c.hash);
    (0..fleet.replicas as usize)
        .filter(|i| runs_other(&views[*i]))
        .filter_map(|i| Some((i, version(&views[i])?)))
        .collect()
}
