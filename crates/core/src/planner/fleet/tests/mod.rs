//! Tests of what the planner decides about a fleet, mostly as tables. This file defines the fleets and nodes that they
//! use: `fleet(3)` has three nodes that serve v1, which is both the desired revision and the one that last completed.

mod blame;
mod budget;
mod clock;
mod create;
mod damage;
mod decide;
mod drain;
mod facts;
mod initial_fill;
mod leave;
mod messages;
mod new_nodes;
mod pods;
mod requests;
mod serving;
mod sets;
mod sets_progress;
mod size;
mod status;
mod status_conditions;
mod topology;
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
    FleetFacts::default().with(|f| {
        f.spec.replicas = replicas;
        f.record.existed = replicas;
        f.spec.max_unavailable = 1;
        f.spec.deadline_seconds = 600;
        f.requested = "v1".into();
        f.record.last_completed = Some("v1".into());
        f.children = (0..replicas).map(node).collect();
        f.renderings = known.iter().map(|r| (((*r).into(), None), rendering(r))).collect();
    })
}

/// A fleet that has never completed anything and has no nodes yet.
fn new_fleet(replicas: i32) -> FleetFacts {
    fleet(replicas).with(|f| {
        f.record.last_completed = None;
        f.children = Vec::new();
    })
}

/// A node that serves v1 and has used its grant.
fn node(ordinal: i32) -> ChildFacts {
    ChildFacts::default().with(|f| {
        f.name = format!("db-{ordinal}").into();
        f.ordinal = ordinal;
        f.spec_hash = Some("v1".into());
        f.grant.hash = Some(hash("v1"));
        f.grant.id = Some("grant-1".into());
        f.grant.spent_id = Some("grant-1".into());
        f.pod.hash = Some(hash("v1"));
        f.pod.image = image("v1");
        f.pod.ready = true;
        f.pod.ready_since = Some(now());
        f.pod.available = true;
        f.pod.ever_ready = true;
        f.grant.is_proven = true;
    })
}

impl FleetFacts {
    fn wanting(self, revision: &str) -> Self {
        self.with(|f| f.requested = revision.into())
    }

    fn at_most(self, max_unavailable: i32) -> Self {
        self.with(|f| f.spec.max_unavailable = max_unavailable)
    }

    fn paused(self) -> Self {
        self.with(|f| f.spec.paused = true)
    }

    fn held_below_ordinal(self, partition: i32) -> Self {
        self.with(|f| f.spec.partition = partition)
    }

    fn never_completed(self) -> Self {
        self.with(|f| f.record.last_completed = None)
    }

    fn rejecting(self, outcome: &str) -> Self {
        let rejected = Rejected {
            hash: self.requested.to_string(),
            plan_id: "rejected-plan".to_owned(),
            outcome: outcome.to_owned(),
            ..Rejected::default()
        };
        self.with(|f| f.record.rejected = Some(rejected))
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
        self.children.push(child.with(|f| f.surplus = true));
        self
    }

    fn child(&self, ordinal: usize) -> &ChildFacts {
        &self.children[ordinal]
    }
}

impl ChildFacts {
    /// It was just granted a revision; its controller has not seen the grant.
    fn granted(self, revision: &str) -> Self {
        let spent_id = self.grant.spent_id.as_ref().map_or("", GrantId::as_str);
        let grant_id = Some(format!("{spent_id}+").into());
        let (spec_hash, granted) = (Some(revision.into()), Some(hash(revision)));
        self.with(|f| {
            f.spec_hash = spec_hash;
            f.grant.hash = granted;
            f.grant.id = grant_id;
            f.controller.status_outdated = true;
            f.grant.is_proven = false;
        })
    }

    /// Its controller has seen its grant.
    fn seen(self) -> Self {
        self.with(|f| f.controller.status_outdated = false)
    }

    /// Its controller rolls it.
    fn rolling(self) -> Self {
        self.with(|f| {
            f.controller.rolling = true;
            f.controller.status_outdated = false;
        })
    }

    /// Its pod was observed at a revision.
    fn running(self, revision: &str) -> Self {
        self.with(|f| {
            f.pod.hash = Some(hash(revision));
            f.pod.image = image(revision);
        })
    }

    /// It converged to what it was granted.
    fn converged(self) -> Self {
        let revision = self.spec_hash.clone().unwrap();
        let spent_id = self.grant.id.clone();
        let at = self
            .with(|f| {
                f.grant.spent_id = spent_id;
                f.controller.status_outdated = false;
                f.controller.rolling = false;
            })
            .running(revision.as_str());
        at.with(|f| {
            f.pod.ready = true;
            f.pod.available = true;
            f.pod.ever_ready = true;
            f.grant.is_proven = true;
            f.pod.ready_since = Some(now());
        })
    }

    fn down(self) -> Self {
        self.with(|f| {
            f.pod.ready = false;
            f.pod.available = false;
            f.pod.ready_since = None;
        })
        .with_problem("NotReady", "it is not ready")
    }

    /// Its main container runs, although it is not Ready.
    fn with_running_pod(self) -> Self {
        self.with(|f| f.pod.runs = true)
    }

    /// Its main container runs, and another container of its pod is in a crash loop.
    fn half_running(self) -> Self {
        let half = self.down().with(|f| f.pod.failed = true).with_running_pod();
        half.with_problem("CrashLoopBackOff", "back-off restarting failed container exporter")
    }

    fn without_pod(self) -> Self {
        self.down()
            .with(|f| {
                f.pod.hash = None;
                f.pod.image = String::new();
            })
            .with_problem("Missing", "it has no pod")
    }

    fn failed(self) -> Self {
        self.down()
            .with(|f| {
                f.pod.failed = true;
                f.grant.time = GrantTime::Over;
            })
            .with_problem("ImagePullBackOff", "no such image")
    }

    fn never_ready(self) -> Self {
        self.down().with(|f| {
            f.pod.ever_ready = false;
            f.grant.spent_id = None;
        })
    }

    fn unreachable(self) -> Self {
        self.with(|f| f.health.unreachable = Some("connection refused".to_owned()))
    }

    fn terminating(self) -> Self {
        self.with(|f| f.terminating = true)
    }

    fn with_problem(self, reason: &str, message: &str) -> Self {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        let problem = Problem { reason, message, since: now(), ..Problem::default() };
        self.with(|f| f.health.problem = Some(problem))
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
        last_completed_rollout_hash: facts
            .record
            .last_completed
            .clone()
            .map(String::from)
            .unwrap_or_default(),
        rejected: facts.record.rejected.clone(),
        scaled_to_zero: facts.record.scaled_to_zero,
        restarted_at: field(facts.record.restarted_at.as_ref()).to_owned(),
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
        namespace: "shop",
        generation: 7,
        update_revision: Some(&wanted),
        build_id: "v-build",
        plan: plan.as_ref(),
        reads_machines: false,
        config_digest: "",
        next: None,
        now: later(seconds),
    };
    refresh(&mut status, facts, &input);
    status
}
