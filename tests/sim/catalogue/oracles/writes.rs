//! The operator's writes: how many, how fast, and whether each has a precondition.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_sim::AuditEntry;

use super::Evidence;
use crate::catalogue::faults::Fault;
use crate::catalogue::scenario::Change;

/// How many more writes than in the clean run are allowed: a factor, and an absolute number.
const FACTOR: u32 = 2;
const SLACK: u32 = 6;
/// The most attempts of the same write within a minute.
const TRIES_A_MINUTE: u32 = 10;
/// How many more requests than in the busiest minute of the clean run are allowed.
const MORE_A_MINUTE: u32 = 150;
/// The writes that a node's rollout may cost: its spec, its StatefulSet, its pod's deletion, its plan's start and
/// end.
const WRITES_A_NODE: u32 = 5;
/// And with a hook before and one after: the start and the end of each.
const WRITES_FOR_HOOKS: u32 = 4;
const MINUTE_MICROS: u64 = 60_000_000;

pub fn is_operators(entry: &AuditEntry) -> bool {
    entry.user_agent.starts_with("windlass/")
}

fn kind_of(entry: &AuditEntry) -> String {
    let sub = if entry.subresource.is_empty() { "" } else { "/status" };
    format!("{} {}{sub}", entry.verb, entry.resource)
}

/// Checks every request of the operator since the change.
pub fn examine(evidence: &mut Evidence<'_>) -> (BTreeMap<String, u32>, u32) {
    let audit = evidence.audit;
    let asked: Vec<&AuditEntry> =
        audit[evidence.first_entry.min(audit.len())..].iter().filter(|e| is_operators(e)).collect();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for entry in asked.iter().filter(|e| e.is_write()) {
        if entry.verb != "create" && !entry.guarded {
            evidence.fail(format!("oracle 4: {} {} without a precondition", kind_of(entry), entry.name));
        }
        if entry.verb == "deletecollection" {
            evidence.fail(format!("oracle 4: {} deletes more than one object", kind_of(entry)));
        }
        if entry.wrote.0 < entry.wrote.1
            && !entry.resource.starts_with("events")
            && !entry.resource.starts_with("leases")
        {
            *counts.entry(kind_of(entry)).or_default() += 1;
        }
    }
    let busiest = busiest_minute(&asked);
    let is_rollout =
        matches!(evidence.world.scenario.change, Change::Image | Change::Template | Change::Upgrade);
    if is_rollout && !evidence.world.scenario.makes_sets() && evidence.point.strikes.is_empty() {
        let most = WRITES_A_NODE + if evidence.world.scenario.hooks { WRITES_FOR_HOOKS } else { 0 };
        let of_nodes = writes_of_nodes(&asked, &evidence.world.scenario.node_names(), most);
        evidence.failures.extend(of_nodes);
    }
    let Some(baseline) = evidence.baseline else { return (counts, busiest) };
    // Writes that are refused for a minute are retried with a back-off, and each is reported.
    let nodes = evidence.world.scenario.node_names().len() as u32;
    let tries =
        if evidence.strikes(|f| matches!(f, Fault::AnswerFor(..))) { nodes * TRIES_A_MINUTE } else { 0 };
    // Actions of people and illnesses of nodes cost writes of their own. So does what gives a StatefulSet that is held another
    // update revision.
    let is_held = evidence.world.scenario.is_held();
    let costs = |f: &Fault| {
        matches!(f, Fault::Person(_) | Fault::Ill(_)) || is_held && matches!(f, Fault::Platform(..))
    };
    if !evidence.strikes(costs) {
        let factor = evidence.point.strikes.len().max(1) as u32 * FACTOR;
        for (kind, count) in &counts {
            let clean = baseline.writes.get(kind).copied().unwrap_or_default();
            if *count > clean * factor + SLACK + tries {
                evidence
                    .failures
                    .push(format!("oracle 3: {count} times {kind}, and {clean} in the clean run"));
            }
        }
    }
    // An attempt first checks whether a claim's name is taken.
    let bound = baseline.busiest_minute * 2 + MORE_A_MINUTE + tries * 2;
    if busiest > bound {
        evidence.fail(format!("oracle 6: {busiest} requests within a minute; at most {bound} are expected"));
    }
    (counts, busiest)
}

/// The nodes that a fault-free rollout cost too many writes.
fn writes_of_nodes(asked: &[&AuditEntry], nodes: &[String], most: u32) -> Vec<String> {
    let is_of = |entry: &AuditEntry, node: &str| {
        entry.name.strip_prefix(node).is_some_and(|rest| rest.is_empty() || rest == "-0")
    };
    let counted = nodes.iter().map(|node| {
        let written = asked.iter().filter(|e| e.is_write() && e.wrote.0 < e.wrote.1 && is_of(e, node));
        (node, written.count() as u32)
    });
    let too_many = counted.filter(|(_, count)| *count > most);
    too_many.map(|(node, count)| format!("oracle 3: {count} writes for the rollout of {node}")).collect()
}

fn busiest_minute(asked: &[&AuditEntry]) -> u32 {
    let (mut busiest, mut first) = (0, 0);
    for (index, entry) in asked.iter().enumerate() {
        while asked[first].at_micros + MINUTE_MICROS < entry.at_micros {
            first += 1;
        }
        busiest = busiest.max(index - first + 1);
    }
    busiest as u32
}

/// Every request, one line each.
pub fn trace(audit: &[AuditEntry]) -> Vec<String> {
    let line = |e: &AuditEntry| {
        let dry = if e.dry_run { " (dry run)" } else { "" };
        format!(
            "{:>12.3}s {:<11} {:<16} {}{} {} -> {} @{}{dry}",
            Duration::from_micros(e.at_micros).as_secs_f64(),
            e.user_agent,
            e.verb,
            e.resource,
            if e.subresource.is_empty() { String::new() } else { format!("/{}", e.subresource) },
            e.name,
            e.code,
            e.wrote.1,
        )
    };
    audit.iter().map(line).collect()
}
