//! Tests of what the planner decides about a fleet, mostly as tables. This file defines the fleets and nodes that they
//! use: `fleet(3)` has three nodes that serve v1, which is both the desired revision and the one that last completed.

mod blame;
mod clock;
mod create;
mod damage;
mod decide;
mod facts;
mod filling;
mod leave;
mod requests;
mod said;
mod serving;
mod sets;
mod sets_progress;
mod size;
mod status;
mod status_conditions;
mod traces;
mod wave;

use chrono::{DateTime, TimeDelta, Utc};

use super::Start;
use super::refresh;
use super::status::{RefreshInput, begin};
use super::{Cause, ChildFacts, FleetFacts, GrantTime, Rendering, RolloutTarget, Strategy};
use crate::api::ids::field;
use crate::api::{GrantId, NodeDeploymentStatus, NodeName, PlanId, PodTemplateHash, Problem, Rejected};
use crate::engine::{Plan, PlanSeed, Recipe};

/// The time at which everything happens, except for [`later`].
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000, 0).unwrap()
}

/// The message about a fleet that stalled at this time, with a deadline of 600 s.
fn overdue_at(seconds: i64, what: &str) -> String {
    let since = later(seconds).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    format!("no progress for 600 s (progressDeadlineSeconds), overdue since {since}: {what}")
}

fn later(seconds: i64) -> DateTime<Utc> {
    now() + TimeDelta::seconds(seconds)
}

/// The pod template hash that a revision renders to.
fn hash(revision: &str) -> PodTemplateHash {
    format!("template of {revision}").into()
}

fn image(revision: &str) -> String {
    format!("db:{revision}")
}

fn rendering(revision: &str) -> Rendering {
    Rendering { hash: hash(revision), image: image(revision) }
}

fn to(revision: &str) -> RolloutTarget {
    RolloutTarget::Revision(revision.into())
}

/// A fleet of `replicas` nodes that serve v1.
fn fleet(replicas: i32) -> FleetFacts {
    let known = ["v1", "v2", "v3"];
    FleetFacts {
        replicas,
        existed: replicas,
        max_unavailable: 1,
        deadline_seconds: 600,
        requested: "v1".into(),
        last_completed: Some("v1".into()),
        children: (0..replicas).map(node).collect(),
        renderings: known.iter().map(|r| (((*r).into(), None), rendering(r))).collect(),
        ..FleetFacts::default()
    }
}

/// A fleet that has never completed anything and has no nodes yet.
fn new_fleet(replicas: i32) -> FleetFacts {
    FleetFacts { last_completed: None, children: Vec::new(), ..fleet(replicas) }
}

/// A node that serves v1 and has used its grant.
fn node(ordinal: i32) -> ChildFacts {
    ChildFacts {
        name: format!("db-{ordinal}").into(),
        ordinal,
        spec_hash: Some("v1".into()),
        granted: Some(hash("v1")),
        grant_id: Some("grant-1".into()),
        spent_id: Some("grant-1".into()),
        running: Some(hash("v1")),
        running_image: image("v1"),
        ready: true,
        ready_since: Some(now()),
        available: true,
        ever_ready: true,
        is_proven: true,
        ..ChildFacts::default()
    }
}

impl FleetFacts {
    fn wanting(self, revision: &str) -> Self {
        Self { requested: revision.into(), ..self }
    }

    fn at_most(self, max_unavailable: i32) -> Self {
        Self { max_unavailable, ..self }
    }

    fn paused(self) -> Self {
        Self { paused: true, ..self }
    }

    fn held_below_ordinal(self, partition: i32) -> Self {
        Self { partition, ..self }
    }

    fn never_completed(self) -> Self {
        Self { last_completed: None, ..self }
    }

    fn rejecting(self, outcome: &str) -> Self {
        let rejected = Rejected {
            hash: self.requested.to_string(),
            plan_id: "rejected-plan".to_owned(),
            outcome: outcome.to_owned(),
            ..Rejected::default()
        };
        Self { rejected: Some(rejected), ..self }
    }

    /// The same fleet with one of its nodes changed.
    fn but(mut self, ordinal: usize, change: impl Fn(ChildFacts) -> ChildFacts) -> Self {
        self.children[ordinal] = change(self.children[ordinal].clone());
        self
    }

    fn without(mut self, ordinal: i32) -> Self {
        self.children.retain(|c| c.ordinal != ordinal);
        self
    }

    /// The same fleet with one more node, which is removed by scaling down.
    fn with_surplus(mut self, child: ChildFacts) -> Self {
        self.children.push(ChildFacts { surplus: true, ..child });
        self
    }

    fn child(&self, ordinal: usize) -> &ChildFacts {
        &self.children[ordinal]
    }
}

impl ChildFacts {
    /// It was just granted a revision; its controller has not seen the grant.
    fn granted(self, revision: &str) -> Self {
        let spent_id = self.spent_id.as_ref().map_or("", GrantId::as_str);
        let grant_id = Some(format!("{spent_id}+").into());
        let (spec_hash, granted) = (Some(revision.into()), Some(hash(revision)));
        Self { spec_hash, granted, grant_id, status_outdated: true, is_proven: false, ..self }
    }

    /// Its controller has seen its grant.
    fn seen(self) -> Self {
        Self { status_outdated: false, ..self }
    }

    /// Its controller rolls it.
    fn rolling(self) -> Self {
        Self { rolling: true, status_outdated: false, ..self }
    }

    /// Its pod was observed at a revision.
    fn running(self, revision: &str) -> Self {
        Self { running: Some(hash(revision)), running_image: image(revision), ..self }
    }

    /// It converged to what it was granted.
    fn converged(self) -> Self {
        let revision = self.spec_hash.clone().unwrap();
        let spent_id = self.grant_id.clone();
        let at = Self { spent_id, status_outdated: false, rolling: false, ..self }.running(revision.as_str());
        Self {
            ready: true,
            available: true,
            ever_ready: true,
            is_proven: true,
            ready_since: Some(now()),
            ..at
        }
    }

    fn down(self) -> Self {
        Self { ready: false, available: false, ready_since: None, ..self }
            .with_problem("NotReady", "it is not ready")
    }

    /// Its main container runs, although it is not Ready.
    fn with_running_pod(self) -> Self {
        Self { pod_runs: true, ..self }
    }

    /// Its main container runs, and another container of its pod is in a crash loop.
    fn half_running(self) -> Self {
        let half = Self { failed: true, ..self.down() }.with_running_pod();
        half.with_problem("CrashLoopBackOff", "back-off restarting failed container exporter")
    }

    fn without_pod(self) -> Self {
        Self { running: None, running_image: String::new(), ..self.down() }
            .with_problem("Missing", "it has no pod")
    }

    fn failed(self) -> Self {
        Self { failed: true, grant_time: GrantTime::Over, ..self.down() }
            .with_problem("ImagePullBackOff", "no such image")
    }

    fn never_ready(self) -> Self {
        Self { ever_ready: false, spent_id: None, ..self.down() }
    }

    fn unreachable(self) -> Self {
        Self { unreachable: Some("connection refused".to_owned()), ..self }
    }

    fn terminating(self) -> Self {
        Self { terminating: true, ..self }
    }

    fn with_problem(self, reason: &str, message: &str) -> Self {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        let problem = Problem { reason, message, since: now(), ..Problem::default() };
        Self { problem: Some(problem), ..self }
    }
}

fn start(rollout_target: RolloutTarget, target: &str, cause: Cause) -> Start {
    Start { rollout_target, target: target.into(), cause, strategy: Strategy::InPlace }
}

/// A plan to a revision that was just created.
fn plan_to(revision: &str) -> Plan {
    let recipe = "{name: InPlace, tasks: [{type: update-node-specs}, {type: mark-ready}]}";
    let seed = PlanSeed { uid: "uid", target_hash: revision, now: now(), attempt: 0, disambiguator: "" };
    Recipe::parse(recipe).unwrap().plan(seed)
}

/// The status of a fleet without a rollout, which last completed what the facts contain.
fn at_rest(facts: &FleetFacts) -> NodeDeploymentStatus {
    NodeDeploymentStatus {
        last_completed_rollout_hash: facts.last_completed.clone().map(String::from).unwrap_or_default(),
        rejected: facts.rejected.clone(),
        scaled_to_zero: facts.scaled_to_zero,
        restarted_at: field(facts.restarted_at.as_ref()).to_owned(),
        ..NodeDeploymentStatus::default()
    }
}

/// The status of a fleet in the middle of a rollout.
fn rolling_out(facts: &FleetFacts, start: &Start) -> NodeDeploymentStatus {
    let mut status = at_rest(facts);
    begin(&mut status, facts, start, &plan_to(start.target.as_str()), Some(&"db-revision".into()), now());
    status
}

/// The status after the fleet is reconciled `seconds` later.
fn look(mut status: NodeDeploymentStatus, facts: &FleetFacts, seconds: i64) -> NodeDeploymentStatus {
    let plan = status.plan.as_ref().map(|raw| raw.parse().unwrap());
    let wanted = "db-wanted".into();
    let input = RefreshInput {
        name: "db",
        generation: 7,
        update_revision: Some(&wanted),
        build_id: "v-build",
        plan: plan.as_ref(),
        superseded: false,
        now: later(seconds),
    };
    refresh(&mut status, facts, &input);
    status
}
