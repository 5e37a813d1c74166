//! The executor: facts, decisions and statuses are the planner's own; the effects of tasks are modelled here, and
//! unit-tested in `src/tasks`.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use chrono::{DateTime, Utc};
use windlass::api::conditions::{self, SIDECAR_READY, Truth};
use windlass::api::{
    BuiltFor, GrantId, GrantedBy, PodTemplateHash, Problem, StatefulNodeStatus, StatefulSetRef,
};
use windlass::engine::{Plan, PlanState, TaskRecord, TaskState};
use windlass_core::planner::node::decide::{self, recipes};
use windlass_core::planner::node::status::{SidecarAnswer, StatusInput, status};
use windlass_core::planner::node::{
    LiveStatefulSet, NodeDecision, NodeFacts, PodFacts, RenderedTarget, Running, StatefulSetFact, Template,
};

use crate::model::hooks;
use crate::model::search::Fold;
use crate::model::state::{
    Child, Doing, EDITED, HASHES, HookState, IMAGES, Node, Pod, Set, World, hash_of, is_broken, number,
    revision_bit, revision_name,
};

/// An effect of the executor on the cluster.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Effect {
    CreateSet(u8),
    WriteTemplate(u8),
    DeletePod,
    MarkReady,
}

/// The possible next moves of the executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moves {
    /// The node's new status, and whether it refers to the pod and to the template.
    pub status: Option<(Child, bool, bool)>,
    pub effect: Option<Effect>,
    /// A running pod is marked ready although its plan waits for something else.
    pub mark: bool,
}

pub fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000, 0).expect("a time")
}

/// The executor, with its cached observations.
#[derive(Default)]
pub struct Executor {
    memo: HashMap<(Node, u8, u8), Moves, BuildHasherDefault<Fold>>,
}

impl Executor {
    pub fn moves(&mut self, world: &World, node: &Node, operator: u8, broken: u8) -> Moves {
        let mut key = *node;
        (key.known, key.granted_under) = (None, 0);
        (key.disturbed, key.taken_down, key.given_freely) = (false, false, false);
        if let Some(known) = self.memo.get(&(key, operator, broken)) {
            return *known;
        }
        let found = moves(world, &key, operator, broken);
        self.memo.insert((key, operator, broken), found);
        found
    }
}

fn text(hash: u8) -> String {
    HASHES[hash as usize].to_owned()
}

/// What a template's pods are made for. A manually edited template keeps its record.
fn made_for(world: &World, template: u8) -> Option<BuiltFor> {
    let says = if template == EDITED { hash_of(0, 0) } else { template };
    (world.drifts() && says != 0).then(|| BuiltFor {
        hash: text(says).into(),
        image: IMAGES[says as usize].to_owned(),
        main_container: "db".to_owned(),
    })
}

fn known_revisions(bits: u16) -> Vec<String> {
    let known = (0..16_u8).filter(|bit| bits & (1 << bit) != 0);
    known.map(|bit| revision_name(bit % 8, bit >= 8)).collect()
}

/// The executor's facts of a node.
pub fn facts(world: &World, node: &Node, operator: u8, broken: u8) -> NodeFacts {
    let (version, granted, spent) = node.spec();
    let rendered = hash_of(version, operator);
    let is_known = node.template != EDITED && (node.remembered || node.recorded || node.template == rendered);
    let live = LiveStatefulSet {
        uid: "set".to_owned(),
        generation: 1,
        template: if is_known { Template::At(text(node.template).into()) } else { Template::Unknown },
        observed: node.observed,
        replicas: 1,
        update_revision: revision_name(node.update_revision, node.moved),
        known_revisions: known_revisions(node.child.knows | node.seen),
        made_for: made_for(world, node.template),
        template_digest: String::new(),
        main_image: IMAGES[node.template as usize].to_owned(),
    };
    let is_known = !node.orphan || (node.set == Set::Missing && node.same_pod);
    let is_there = node.pod != Pod::Absent && is_known;
    let can_be_ready = !is_broken(broken, node.pod_revision) && !node.dead;
    let stuck = node.pod == Pod::Stuck || (node.pod == Pod::Running && !can_be_ready);
    let ready = node.serves() && !node.orphan;
    let problem = Problem { reason: "Problem".to_owned(), since: now(), ..Problem::default() };
    let pod = PodFacts {
        uid: "this".to_owned(),
        revision: revision_name(node.pod_revision, node.pod_moved),
        owned: !node.orphan,
        terminating: node.terminating,
        ready,
        ready_since: ready.then(now),
        unready_since: None,
        running: matches!(node.pod, Pod::Running | Pod::Ready),
        made_for: made_for(world, node.pod_revision),
        main_image: IMAGES[node.pod_revision as usize].to_owned(),
        sidecar_unready: world.sidecar && node.pod == Pod::Running && can_be_ready,
        problem: (!ready).then_some(problem),
        wait: None,
        cannot_run: stuck && !node.terminating,
        main_cannot_run: stuck && !node.terminating && !(world.beside && node.pod == Pod::Running),
        never_started: false,
    };
    let ran = |text: &str| if node.child.hash == 0 { String::new() } else { text.to_owned() };
    let plan = "plan".into();
    let by = if node.child.pinned { GrantedBy::Abort } else { GrantedBy::Plan(&plan) };
    let grant_id = Some(GrantId::of(by, 1));
    NodeFacts {
        wanted: Ok(RenderedTarget {
            hash: text(rendered).into(),
            image: IMAGES[rendered as usize].to_owned(),
        }),
        granted_hash: PodTemplateHash::recorded(text(granted)),
        spent_grant_id: if spent { grant_id.clone() } else { Some("before".into()) },
        grant_id,
        set: match node.set {
            Set::Missing => StatefulSetFact::Missing,
            Set::Leaving => StatefulSetFact::Leaving,
            Set::Live => StatefulSetFact::Live(live),
        },
        pod: is_there.then_some(pod),
        refused: None,
        awaits: None,
        previous: Running {
            hash: PodTemplateHash::recorded(text(node.child.hash)),
            image: ran(IMAGES[node.child.hash as usize]),
            pod_uid: Some(ran(if node.same_pod { "this" } else { "another" })).filter(|uid| !uid.is_empty()),
        },
        terminating: false,
        suspended: false,
        removal_id: None,
        move_: None,
        growth: windlass_core::planner::growth::Growth::Done,
    }
}

fn plan_of(doing: Doing) -> Option<Plan> {
    let (recipe, target) = match doing {
        Doing::Nothing => return None,
        Doing::Update { target, .. } => (recipes::NODE_UPDATE, text(target)),
        Doing::Restart { target, .. } => (recipes::RESTART_NODE, text(target)),
        Doing::Mark => (recipes::MARK_READY, String::new()),
    };
    let task = TaskRecord {
        id: "plan-0".to_owned(),
        type_: "task".to_owned(),
        params: serde_json::json!({}),
        state: TaskState::Pending,
        attempts: 0,
        attempt: 0,
        progress: serde_json::Value::Null,
        started_at: None,
        finished_at: None,
        deadline: None,
        message: String::new(),
    };
    Some(Plan {
        id: "plan".into(),
        recipe: recipe.to_owned(),
        target_hash: target,
        state: PlanState::Active,
        started_at: now(),
        finished_at: None,
        attempt: 0,
        retry_at: None,
        tasks: vec![task],
        failure: String::new(),
    })
}

fn begin(recipe: &str, facts: &NodeFacts) -> Doing {
    let target = number(&HASHES, decide::target(facts));
    match recipe {
        recipes::NODE_UPDATE => Doing::Update { target, task: 0 },
        recipes::RESTART_NODE => Doing::Restart { target, task: 0 },
        _ => Doing::Mark,
    }
}

fn moves(world: &World, node: &Node, operator: u8, broken: u8) -> Moves {
    let facts = facts(world, node, operator, broken);
    let doing = node.child.doing;
    let may_write = node.old_spec.is_none();
    let decision = decide::decide(&facts, plan_of(doing).as_ref(), now());
    let next = match decision {
        NodeDecision::Keep => None,
        NodeDecision::Start { recipe, .. } => Some(begin(recipe, &facts)),
        NodeDecision::Supersede { next, .. } => Some(next.map_or(Doing::Nothing, |r| begin(r, &facts))),
    };
    let write = |doing, hook, answer: &SidecarAnswer| {
        may_write.then(|| write_status(world, node, &facts, (doing, hook), answer)).flatten()
    };
    let not_asked = if world.sidecar { SidecarAnswer::NotAsked } else { SidecarAnswer::NotConfigured };
    if let Some(doing) = next {
        let hook = hooks::of_node(world, node, &facts, doing, true);
        return Moves { status: write(doing, hook, &not_asked), ..Moves::default() };
    }
    let mut hook = hooks::of_node(world, node, &facts, doing, false);
    let (doing, effect) =
        carry_out(&facts, doing, &mut hook, node.mute, &|hook| hooks::is_in_the_way(world, hook));
    let hook = if doing.is_rolling() { hook } else { HookState::None };
    let at_mark =
        matches!(doing, Doing::Update { task: 3, .. } | Doing::Restart { task: 3, .. } | Doing::Mark);
    let while_waiting = node.child.doing != Doing::Nothing && !at_mark && facts.needs_mark();
    let is_asked =
        world.sidecar && (while_waiting || (at_mark && facts.staying_pod().is_some_and(|p| p.running)));
    let answer = match (is_asked, node.mute) {
        (false, _) => not_asked,
        (true, true) => SidecarAnswer::Unreachable("it does not answer".to_owned()),
        (true, false) if facts.staying_pod().is_some_and(|p| p.ready) => SidecarAnswer::Ready,
        (true, false) => SidecarAnswer::NotReady,
    };
    Moves { status: write(doing, hook, &answer), effect, mark: while_waiting && !node.mute }
}

/// Runs the plan's tasks until one has an effect or waits, or all are done.
fn carry_out(
    facts: &NodeFacts,
    doing: Doing,
    hook: &mut HookState,
    mute: bool,
    is_in_the_way: &dyn Fn(HookState) -> bool,
) -> (Doing, Option<Effect>) {
    let (target, task, observes) = match doing {
        Doing::Nothing => return (doing, None),
        Doing::Mark => return mark_only(facts, mute),
        Doing::Update { target, task } => (target, task, true),
        Doing::Restart { target, task } => (target, task, false),
    };
    let at = |task| if observes { Doing::Update { target, task } } else { Doing::Restart { target, task } };
    let over = (Doing::Nothing, None);
    let rendered = facts.wanted.as_ref().map_or(0, |w| number(&HASHES, w.hash.as_str()));
    if task == 0 {
        let granted = facts.live().is_some() && facts.template_is_granted();
        if !granted {
            return match facts.set {
                StatefulSetFact::Leaving => (doing, None),
                _ if !facts.can_render() => (doing, None),
                StatefulSetFact::Missing => (doing, Some(Effect::CreateSet(rendered))),
                StatefulSetFact::Live(_) if facts.is_kept_by_grant() => (doing, None),
                StatefulSetFact::Live(_) => (doing, Some(Effect::WriteTemplate(rendered))),
            };
        }
    }
    let Some(set) = facts.live() else { return over };
    if task <= 1 {
        if !facts.template_is_granted() {
            return over;
        }
        if is_in_the_way(*hook) {
            if !set.observed && *hook == HookState::Due && task == 0 {
                return (at(0), None);
            }
            // It applies to a pod whose main container runs and that will be deleted.
            let goes = facts.staying_pod().is_some_and(|pod| set.observed && !facts.is_at_grant(pod));
            if *hook == HookState::Failed || (facts.main_container_runs() && (goes || !set.observed)) {
                return (at(1), None);
            }
            *hook = HookState::Over;
        }
        let Some(pod) = facts.pod.as_ref().filter(|p| set.observed && !p.terminating) else {
            return (at(1), None);
        };
        if !facts.is_at_grant(pod) {
            let deletes = !facts.is_kept_by_grant() && pod.owned;
            return (at(1), deletes.then_some(Effect::DeletePod));
        }
    }
    let Some(pod) = facts.staying_pod() else { return (at(task.max(2)), None) };
    if task <= 2 && observes {
        if set.observed && !facts.is_at_template(pod) {
            return over;
        }
        let running = facts.running();
        let is_seen = running.pod_uid.as_ref() == Some(&pod.uid) && running.hash.is_some();
        if !(pod.running && is_seen && running.hash.as_ref() == facts.grant()) {
            return (at(2), None);
        }
    }
    if !set.observed {
        return (at(3), None);
    }
    if !(facts.is_at_grant(pod) && facts.template_is_granted()) {
        return over;
    }
    // It is asked even if the pod is Ready.
    if pod.ready && !mute {
        return over;
    }
    (at(3), (pod.sidecar_unready && !mute).then_some(Effect::MarkReady))
}

fn mark_only(facts: &NodeFacts, mute: bool) -> (Doing, Option<Effect>) {
    let there = facts.live().and(facts.staying_pod());
    match there {
        None => (Doing::Nothing, None),
        Some(pod) if pod.ready && !mute => (Doing::Nothing, None),
        Some(pod) => (Doing::Mark, (pod.sidecar_unready && !mute).then_some(Effect::MarkReady)),
    }
}

/// The new status, if it differs.
fn write_status(
    world: &World,
    node: &Node,
    facts: &NodeFacts,
    (doing, hook): (Doing, HookState),
    answer: &SidecarAnswer,
) -> Option<(Child, bool, bool)> {
    let mut before = Vec::new();
    if node.child.unreachable {
        conditions::set(&mut before, SIDECAR_READY, Truth::Unknown, "Unreachable", "", 1, now());
    }
    let reference = StatefulSetRef {
        name: "db".to_owned(),
        uid: "set".to_owned(),
        generation: i64::from(node.recorded),
        ..StatefulSetRef::default()
    };
    let previous = StatefulNodeStatus {
        first_ready_at: node.child.ever.then(now),
        spent_grant_id: facts.spent_grant_id.clone().map(String::from).unwrap_or_default(),
        stateful_set: Some(reference),
        conditions: before,
        ..StatefulNodeStatus::default()
    };
    let plan = plan_of(doing);
    let input = StatusInput {
        previous: &previous,
        generation: 1,
        plan: plan.as_ref(),
        raw_plan: None,
        sidecar: answer,
        invalid: None,
        not_applied: None,
        set_name: "db",
        restarted_at: None,
        claims: Some(true),
        has_claims: false,
        now: now(),
    };
    let next = status(facts, &input);
    let available = conditions::is_true(&next.conditions, conditions::READY);
    let goes_on = node.child.available && node.child.waited && node.told_ready;
    let child = Child {
        behind: false,
        hash: number(&HASHES, &next.pod_template_hash),
        available,
        waited: available && (goes_on || !world.min_ready),
        unreachable: conditions::find(&next.conditions, SIDECAR_READY)
            .is_some_and(|c| c.reason == "Unreachable"),
        ever: next.first_ready_at.is_some(),
        failed: next.phase == "Failed",
        runs: world.beside && next.pod_runs,
        spent: next.spent_grant_id() == facts.grant_id,
        doing,
        hook,
        ..node.child
    };
    let same_pod = next.pod_uid == "this";
    let set = next.stateful_set;
    let revisions = set.iter().flat_map(|set| &set.revisions).map(|revision| revision_bit(revision));
    let knows = if world.drifts() { revisions.fold(0, |bits, bit| bits | bit) } else { 0 };
    let child = Child { knows, ..child };
    let recorded = set.is_some_and(|s| s.generation == 1);
    let says_new = child != node.child || same_pod != node.same_pod || recorded != node.recorded;
    says_new.then_some((child, same_pod, recorded))
}
