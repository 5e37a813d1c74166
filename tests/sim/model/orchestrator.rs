//! The orchestrator: facts, decisions, grants, creation and the status are the planner's own.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use windlass::api::{
    AtHook, Ending, GrantId, GrantedBy, NodeDeploymentSpec, NodeDeploymentStatus, OnStall, PodTemplateHash,
    Rejected, RolloutHash,
};
use windlass::engine::{Plan, PlanSeed, Recipe};
use windlass_core::planner::fleet::create::creation_revision;
use windlass_core::planner::fleet::hooks::{HookContext, hold_grants, stop_the_clock};
use windlass_core::planner::fleet::leave::in_waves;
use windlass_core::planner::fleet::refresh;
use windlass_core::planner::fleet::status::{RefreshInput, begin, complete, reject, rollout_target_of};
use windlass_core::planner::fleet::{
    ChildFacts, FleetDecision, FleetFacts, Grant, GrantTime, Rendering, RolloutTarget, decide, may_grant,
    next_grants, pins,
};

use crate::model::executor::now;
use crate::model::hooks;
use crate::model::search::Fold;
use crate::model::state::{
    Child, Doing, Fleet, Goal, HASHES, HookState, IMAGES, MAX_NODES, NO_VERSION, Outcome, REVISIONS, World,
    hash_of, number,
};

/// The possible next moves of the orchestrator, as far as it knows.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    /// It changes the plan, and does nothing else.
    pub decisions: Vec<Fleet>,
    /// It writes the status, which completes a new fleet or forgets a rejected target.
    pub status: Option<Fleet>,
    /// Nodes to be removed.
    pub scale_down: Vec<usize>,
    /// Missing nodes, and the versions at which they are created, each counted before the next.
    pub create: Vec<(usize, u8)>,
    /// Nodes and the versions that they are granted at once; one list for each order of examining them.
    pub grants: Vec<Vec<(usize, u8)>>,
    /// Nodes that are granted what they run, after an abort.
    pub pins: Vec<(usize, u8)>,
    /// The rollout is complete.
    pub complete: Option<Fleet>,
    /// The nodes that the wave would grant now.
    pub would_grant: [bool; MAX_NODES],
    /// The most disrupted nodes.
    pub wave: u8,
}

type Key = (Fleet, [Child; MAX_NODES]);

/// The orchestrator, with its cached observations.
#[derive(Default)]
pub struct Orchestrator {
    memo: HashMap<Key, std::rc::Rc<Moves>, BuildHasherDefault<Fold>>,
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

pub fn child_facts(ordinal: usize, fleet: &Fleet, child: &Child) -> ChildFacts {
    let plan = "plan".into();
    let by = if child.pinned { GrantedBy::Abort } else { GrantedBy::Plan(&plan) };
    let grant_id = Some(GrantId::of(by, 1));
    let ran = |names: &[&str]| text(names[child.hash as usize]);
    ChildFacts::default().with(|f| {
        f.name = format!("db-{ordinal}").into();
        f.ordinal = ordinal as i32;
        f.surplus = ordinal >= fleet.replicas as usize;
        f.controller.status_outdated = child.behind;
        f.spec_hash = RolloutHash::recorded(REVISIONS[child.version as usize]);
        f.grant.hash = PodTemplateHash::recorded(HASHES[child.granted as usize]);
        f.grant.spent_id = if child.spent { grant_id.clone() } else { Some("before".into()) };
        f.grant.id = grant_id;
        f.pod.hash = PodTemplateHash::recorded(ran(&HASHES));
        f.pod.image = ran(&IMAGES);
        f.controller.rolling = !matches!(child.doing, Doing::Nothing | Doing::Mark);
        f.pod.ready = child.available;
        f.pod.ready_since = child.available.then(now);
        f.pod.available = child.available && child.waited;
        f.pod.ever_ready = child.ever;
        f.pod.failed = child.failed;
        f.pod.runs = child.runs;
        f.health.unreachable = child.unreachable.then(|| text("no answer"));
        f.at_hook = child.at_hook();
        f.grant.is_proven = child.available || child.spent;
        f.grant.time = if child.failed { GrantTime::Over } else { GrantTime::None };
    })
}

/// The most disrupted nodes, from the spec.
pub fn wave(world: &World, fleet: &Fleet) -> usize {
    let wanted = if world.percent {
        serde_json::json!(format!("{}%", fleet.max_unavailable))
    } else {
        serde_json::json!(fleet.max_unavailable)
    };
    let spec: NodeDeploymentSpec = serde_json::from_value(serde_json::json!({
        "replicas": fleet.replicas,
        "template": {"spec": {"podTemplate": {}}},
        "updateStrategy": {"type": "InPlace", "inPlace": {"maxUnavailable": wanted}},
    }))
    .expect("a spec");
    spec.max_unavailable() as usize
}

pub fn facts(world: &World, fleet: &Fleet, views: &[Child; MAX_NODES]) -> FleetFacts {
    let requested = RolloutHash::from(REVISIONS[fleet.wanted as usize]);
    let rendering = |version: u8| {
        let hash = hash_of(version, fleet.operator) as usize;
        let rendering = Rendering { hash: HASHES[hash].into(), image: text(IMAGES[hash]) };
        ((REVISIONS[version as usize].into(), None), rendering)
    };
    let asked = |is_asked: bool| is_asked.then(|| "plan".into());
    FleetFacts::default().with(|f| {
        f.spec.replicas = i32::from(fleet.replicas);
        f.record.existed = i32::from(world.replicas);
        f.spec.max_unavailable = wave(world, fleet) as i32;
        f.spec.partition = i32::from(fleet.partition);
        f.spec.paused = fleet.paused;
        f.spec.on_stall = if world.rollback { OnStall::Rollback } else { OnStall::Hold };
        f.spec.deadline_seconds = 600;
        f.record.rejected = rejected(fleet).filter(|r| requested == *r.hash);
        f.requested = requested;
        f.record.last_completed = RolloutHash::recorded(REVISIONS[fleet.completed as usize]);
        f.requests.abort = asked(fleet.abort_asked);
        f.requests.retry = asked(fleet.retry_asked);
        f.children = views
            .iter()
            .enumerate()
            .filter(|(_, c)| c.exists)
            .map(|(i, c)| child_facts(i, fleet, c))
            .collect();
        f.renderings = (0..NO_VERSION).map(rendering).collect();
        f.rollout.rolling_back = hooks::rolling_back(world);
    })
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
    Plan { id: "plan".into(), ..recipe.plan(seed) }
}

/// The persisted status of a fleet.
fn status_of(fleet: &Fleet, facts: &FleetFacts) -> NodeDeploymentStatus {
    let mut status = NodeDeploymentStatus {
        last_completed_rollout_hash: facts
            .record
            .last_completed
            .clone()
            .map(String::from)
            .unwrap_or_default(),
        ..NodeDeploymentStatus::default()
    };
    if let Some(goal) = fleet.rollout {
        let (rollout_target, target) = match goal {
            Goal::Version(v) => {
                (RolloutTarget::Revision(REVISIONS[v as usize].into()), REVISIONS[v as usize].into())
            }
            Goal::Own => (RolloutTarget::Own, facts.steady_revision().clone()),
        };
        let cause = windlass_core::planner::fleet::Cause::TemplateChanged;
        let start = windlass_core::planner::fleet::Start {
            rollout_target,
            target,
            cause,
            strategy: windlass_core::planner::fleet::Strategy::InPlace,
        };
        begin(&mut status, facts, &start, &plan_to(start.target.as_str()), None, now());
    }
    status.rejected = rejected(fleet);
    status
}

/// The fleet with this status.
fn read(fleet: &Fleet, status: &NodeDeploymentStatus) -> Fleet {
    let version = |name: &str| number(&REVISIONS, name);
    Fleet {
        completed: version(&status.last_completed_rollout_hash),
        rollout: status
            .rollout
            .as_ref()
            .map(|r| if r.own_revisions { Goal::Own } else { Goal::Version(version(&r.target_hash)) }),
        hook: if status.rollout.is_some() { fleet.hook } else { HookState::None },
        rejected: status.rejected.as_ref().map(|r| {
            (version(&r.hash), if r.outcome == "Aborted" { Outcome::Aborted } else { Outcome::RolledBack })
        }),
        ..*fleet
    }
}

/// Writes a status like the controller: refreshes the observations first.
fn write(fleet: &Fleet, mut status: NodeDeploymentStatus, facts: &FleetFacts) -> Fleet {
    let mut facts = facts.clone();
    facts.record.last_completed = status.last_completed();
    facts.record.rejected = status.rejected.clone().filter(|r| facts.requested == *r.hash);
    let input = RefreshInput {
        name: "db",
        namespace: "shop",
        generation: 1,
        update_revision: None,
        build_id: "",
        plan: None,
        reads_machines: false,
        config_digest: "",
        next: None,
        now: now(),
    };
    refresh(&mut status, &facts, &input);
    read(fleet, &status)
}

fn moves(world: &World, fleet: &Fleet, views: &[Child; MAX_NODES]) -> Moves {
    let mut facts = facts(world, fleet, views);
    let status = status_of(fleet, &facts);
    let rollout_target = rollout_target_of(&status);
    let plan = status.rollout.as_ref().map(|r| hooks::of_fleet(world, fleet, plan_to(&r.target_hash)));
    facts.rollout.at_hook = plan.as_ref().and_then(AtHook::of);
    let mut moves = Moves { wave: facts.spec.max_unavailable as u8, ..Moves::default() };

    // Whatever keeps it from going on, the clock may run out.
    let may_stall = world.rollback && facts.wanted().any(ChildFacts::is_disrupted) && !stop_the_clock(&facts);
    let decision = decide(&facts, plan.as_ref(), &rollout_target, false);
    if decision != FleetDecision::Keep {
        moves.decisions.push(change_plan(world, fleet, &status, &facts, decision));
        return moves;
    }
    let stalled = decide(&facts, plan.as_ref(), &rollout_target, true);
    if may_stall && stalled != FleetDecision::Keep && !fleet.paused {
        moves.decisions.push(change_plan(world, fleet, &status, &facts, stalled));
    }

    let ordinal = |c: &ChildFacts| c.ordinal as usize;
    // In the model a node that is asked to leave goes at once.
    let leaves = in_waves(&facts).ask;
    moves.scale_down = facts.children.iter().filter(|c| leaves.contains(&c.name)).map(ordinal).collect();
    moves.create = creations(fleet, &facts, plan.is_some().then_some(&rollout_target));
    if plan.is_none() {
        moves.pins = read_grants(&pins(&facts));
        let written = write(fleet, status, &facts);
        moves.status = (written != *fleet).then_some(written);
        return moves;
    }
    let refreshed = write(fleet, status.clone(), &facts);
    moves.status = (refreshed != *fleet).then_some(refreshed);
    if !fleet.hook.is_left()
        && facts.is_converged(&rollout_target)
        && !facts.differs_below_partition(&rollout_target)
    {
        let mut done = status;
        complete(&mut done, &rollout_target);
        moves.complete = Some(write(fleet, done, &facts));
    }
    if !facts.spec.paused {
        if plan.as_ref().is_some_and(hooks::grants) && !hold_grants(&facts, &rollout_target) {
            moves.grants = grants(world, &facts, &rollout_target);
        }
        for (index, child) in facts.children.iter().enumerate() {
            moves.would_grant[ordinal(child)] = may_grant(&facts, index, &rollout_target).is_some();
        }
    }
    moves
}

fn change_plan(
    world: &World,
    fleet: &Fleet,
    status: &NodeDeploymentStatus,
    facts: &FleetFacts,
    decision: FleetDecision,
) -> Fleet {
    let mut status = status.clone();
    let start = match decision {
        FleetDecision::Start(start) | FleetDecision::Supersede(start) => Some(start),
        FleetDecision::RollBack(start) => {
            reject(&mut status, facts, &plan_to(facts.requested.as_str()), Ending::RolledBack);
            Some(start)
        }
        FleetDecision::Abort => {
            reject(&mut status, facts, &plan_to(facts.requested.as_str()), Ending::Aborted);
            None
        }
        FleetDecision::ScaledToZero | FleetDecision::Keep => None,
        // The model has one set of nodes.
        FleetDecision::CancelToCurrent
        | FleetDecision::CancelAfterFailure
        | FleetDecision::CompleteAndStart(_)
        | FleetDecision::Resume(_) => {
            unreachable!("no rollout makes a set")
        }
    };
    match &start {
        Some(start) => begin(&mut status, facts, start, &plan_to(start.target.as_str()), None, now()),
        None => status.rollout = None,
    }
    // Annotations name a plan; a superseding one has another ID and hooks of its own.
    let hook = hooks::begins(world, HookContext::of(&status));
    let named = Fleet { abort_asked: false, retry_asked: false, hook, ..*fleet };
    write(&named, status, facts)
}

fn read_grants(grants: &[Grant]) -> Vec<(usize, u8)> {
    let by_name = |name: &str| name.trim_start_matches("db-").parse().expect("an ordinal");
    grants.iter().map(|g| (by_name(g.name.as_str()), number(&REVISIONS, g.revision.as_str()))).collect()
}

/// The nodes granted at once, for each order of examining them.
fn grants(world: &World, facts: &FleetFacts, rollout_target: &RolloutTarget) -> Vec<Vec<(usize, u8)>> {
    let mut all = vec![read_grants(&next_grants(facts, rollout_target))];
    if world.any_order {
        for order in orders(facts.children.len()) {
            let children = order.iter().map(|i| facts.children[*i].clone()).collect();
            let mut grants =
                read_grants(&next_grants(&facts.clone().with(|f| f.children = children), rollout_target));
            grants.sort_unstable();
            all.push(grants);
        }
        all[0].sort_unstable();
        all.sort_unstable();
        all.dedup();
    }
    all.retain(|grants| !grants.is_empty());
    all
}

fn orders(length: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..length {
        let longer = |order: Vec<usize>| {
            let rest = (0..length).filter(|i| !order.contains(i)).collect::<Vec<_>>();
            rest.into_iter().map(move |i| order.iter().copied().chain([i]).collect())
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    orders
}

/// Like the controller: each is counted before the next one is decided.
fn creations(fleet: &Fleet, facts: &FleetFacts, active: Option<&RolloutTarget>) -> Vec<(usize, u8)> {
    let mut facts = facts.clone();
    let mut made = Vec::new();
    for ordinal in facts.missing() {
        let Some(revision) = creation_revision(&facts, ordinal, active) else { continue };
        let version = number(&REVISIONS, revision.as_str());
        made.push((ordinal as usize, version));
        let child = Child {
            exists: true,
            version,
            granted: hash_of(version, fleet.operator),
            behind: true,
            ..Child::default()
        };
        facts.children.push(child_facts(ordinal as usize, fleet, &child));
    }
    made
}
