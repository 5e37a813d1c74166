//! The six oracles: what must hold in every run, whatever the fault.

pub mod end;
mod held;
pub use windlass_harness::panics;
mod plans;
mod release;
mod safety;
mod sets;
mod state;
mod windows;
mod words;
mod writes;

pub use end::{End, active_set, condition, end_of, is_gone, is_well, says_so, summary};
pub use writes::{is_operators, trace};

use std::collections::BTreeMap;

use windlass::operator::Health;
use windlass_sim::{AuditEntry, Failure};

use crate::catalogue::faults::{self, Fault};
use crate::catalogue::point::Point;
use crate::catalogue::run::Report;
use crate::catalogue::scenario::{Change, Follow, GROWN, NAMESPACE};
use crate::catalogue::world::World;

/// The evidence of a finished run.
pub struct Evidence<'a> {
    pub world: &'a World,
    /// Every request of the run.
    pub audit: &'a [AuditEntry],
    pub point: &'a Point,
    /// The store's version, and the length of the audit log, when the change was made.
    pub first_version: u64,
    pub first_entry: usize,
    pub end: &'a End,
    /// The live tasks and open watches at the end.
    pub left: (usize, usize),
    pub baseline: Option<&'a Report>,
    /// How often a person retried a rejected rollout.
    pub retries: usize,
    pub failures: Vec<String>,
}

impl Evidence<'_> {
    pub fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    pub fn strikes(&self, is: impl Fn(&Fault) -> bool) -> bool {
        self.point.strikes.iter().any(|s| is(&faults::named(&s.fault).fault))
    }
}

/// Checks a finished run with every oracle that needs its end. Returns the operator's successful writes, and its
/// busiest minute.
pub fn examine(evidence: &mut Evidence<'_>) -> (BTreeMap<String, u32>, u32) {
    if let Some(baseline) = evidence.baseline {
        for line in difference(evidence, baseline) {
            // Where everything is removed, a node that was not reached never had a claim. Nor had a node of a set
            // that was given up before. Another oracle protects existing claims.
            let given_up = |claim: &str| end::never_served(claim, &active_set(evidence.world));
            let is_the_end = evidence.strikes(|f| matches!(f, Fault::Person(deed) if deed.is_the_end()));
            let missing =
                line.strip_prefix("PersistentVolumeClaim ").and_then(|l| l.strip_suffix(" is missing"));
            let never_made = missing.is_some_and(|claim| is_the_end || given_up(claim));
            if !never_made {
                evidence.fail(format!("oracle 1: {line}"));
            }
        }
    }
    for read in evidence.world.stale_reads() {
        evidence.fail(format!("oracle 4: {read} may be answered from before the operator's own writes"));
    }
    hoard(evidence);
    hooks(evidence);
    drained(evidence);
    grown(evidence);
    windows::examine(evidence);
    if evidence.world.scenario.is_held() {
        held::examine(evidence);
    } else {
        safety::examine(evidence);
    }
    writes::examine(evidence)
}

/// The difference to the end of the clean run. Where a person influenced the creation of sets, their names may
/// differ.
fn difference(evidence: &Evidence<'_>, baseline: &Report) -> Vec<String> {
    let scenario = &evidence.world.scenario;
    // A plan that fails with a request that is too large needs a retry, which creates another set; whether the old
    // set still exists when it is wanted back depends on timing.
    let by_person = |f: &Fault| matches!(f, Fault::Person(_) | Fault::Answer(Failure::TooLarge, _));
    // With a clock that runs ahead, a rollout is rolled back before its nodes have claims.
    let early = evidence.strikes(|f| matches!(f, Fault::Jump(_))) && scenario.change == Change::Stall;
    let rewritten = evidence.strikes(|f| matches!(f, Fault::Platform(..)));
    let (wanted, found) = if rewritten {
        (end::without_admission(&baseline.end), end::without_admission(evidence.end))
    } else {
        (baseline.end.clone(), evidence.end.clone())
    };
    let free = evidence.strikes(by_person) || early || scenario.follow == Follow::BackOnceMoved;
    if !scenario.makes_sets() || !free {
        return end::difference(&wanted, &found);
    }
    end::difference(
        &end::by_role(&wanted, &baseline.active_set),
        &end::by_role(&found, &active_set(evidence.world)),
    )
}

/// No pod is left on a machine that was drained.
fn drained(evidence: &mut Evidence<'_>) {
    // What is left of a deleted fleet is nobody's to move.
    if evidence.world.scenario.change != Change::Drain || evidence.world.object().is_none() {
        return;
    }
    for pod in evidence.world.cluster.snapshot_of(NAMESPACE, &["Pod"]) {
        if pod["spec"]["nodeName"] == "played-0" {
            evidence.fail(format!("oracle 2: {} is still on the drained machine", pod["metadata"]["name"]));
        }
    }
}

/// Every claim has grown.
fn grown(evidence: &mut Evidence<'_>) {
    let change = evidence.world.scenario.change;
    if !matches!(change, Change::Grow | Change::GrowOffline) || evidence.world.object().is_none() {
        return;
    }
    for claim in evidence.world.cluster.snapshot_of(NAMESPACE, &["PersistentVolumeClaim"]) {
        let size = &claim["status"]["capacity"]["storage"];
        if *size != GROWN {
            evidence.fail(format!("oracle 2: {} has the size {size}", claim["metadata"]["name"]));
        }
    }
}

/// Whatever is killed, lost or late: one rollout sends each request with one task, and runs one Job. A retry of a
/// rejected one is another rollout, and a plan that failed, as with a request that is too large, is followed by another
/// with the same hooks. Not checked if the target changes, or a plan or a status is damaged.
fn hooks(evidence: &mut Evidence<'_>) {
    let scenario = &evidence.world.scenario;
    let is_another = |f: &Fault| {
        let by_others = matches!(f, Fault::Person(_) | Fault::Ill(_) | Fault::Platform(..));
        by_others || matches!(f, Fault::Answer(Failure::TooLarge, _))
    };
    if scenario.job.is_none() || evidence.strikes(is_another) {
        return;
    }
    for what in evidence.world.peers.asked_twice() {
        evidence.fail(format!("oracle 4: asked for {what}"));
    }
    let made = |entry: &&AuditEntry| {
        entry.resource.starts_with("jobs") && entry.verb == "create" && entry.wrote.0 < entry.wrote.1
    };
    let names: Vec<&str> = evidence.audit.iter().filter(made).map(|entry| entry.name.as_str()).collect();
    let least = usize::from(evidence.point.strikes.is_empty());
    if names.len() > 1 + evidence.retries || names.len() < least {
        let tries = 1 + evidence.retries;
        evidence.failures.push(format!("oracle 4: {tries} rollouts with one Job each made {names:?}"));
    }
}

/// Leaks show as tasks and watches that outlive their purpose.
fn hoard(evidence: &mut Evidence<'_>) {
    let Some(baseline) = evidence.baseline else { return };
    // The standby replica belongs to the catalogue. Each fault may leave one, with a request for each node and an
    // event about it.
    let nodes = evidence.world.scenario.node_names().len();
    let more = (16 + 4 * nodes) * evidence.point.strikes.len();
    let ((tasks, watches), (clean_tasks, clean_watches)) = (evidence.left, baseline.left);
    if tasks > clean_tasks + more || watches > clean_watches + more {
        evidence.fail(format!(
            "oracle 6: {tasks} tasks and {watches} watches at the end, {clean_tasks} and {clean_watches} in the clean run"
        ));
    }
}

/// The number of reconciles of the operator.
pub fn reconciles(health: &Health) -> u64 {
    let text = health.text();
    let counts = text.lines().filter(|line| line.starts_with("windlass_reconcile_total"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
