//! Outside of its windows, a rollout grants nothing to a node that serves, and begins no promotion. A node that was granted
//! its update before completes it, and the way back does not wait.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_sim::Step;

use super::Evidence;
use super::safety::{Actor, Makers, place};
use super::state;
use crate::catalogue::faults::Fault;

/// The time between a decision and its request, if nothing delays it.
const DECIDED_SECONDS: i64 = 2;

/// Checks every change since the scenario's change. What a person, an ill node or a delayed request does is not checked.
pub fn examine(evidence: &mut Evidence<'_>) {
    let unclear = |fault: &Fault| {
        let is_delay =
            matches!(fault, Fault::Late(_) | Fault::OldLeader(_) | Fault::LostLease(_) | Fault::Unanswered);
        is_delay || matches!(fault, Fault::Person(_) | Fault::Ill(_) | Fault::Still(_))
    };
    if evidence.world.scenario.windows.is_none() || evidence.strikes(unclear) {
        return;
    }
    let makers = Makers::of(evidence.audit);
    let mut serving: BTreeMap<String, bool> = BTreeMap::new();
    let mut grants = 0;
    let mut found = Vec::new();
    evidence.world.cluster.replay(100, |step| {
        if let Some((kind, name)) = place(step) {
            let request = makers.request(step.version).filter(|_| step.version > evidence.first_version);
            if let (Actor::Operator, Some(request)) = (makers.of_version(step.version), request)
                && let Some(what) = begun(kind, &name, step, &serving)
            {
                grants += 1;
                let at = |seconds| evidence.world.is_window_open(request.sent_micros, seconds);
                if !at(0) && !at(DECIDED_SECONDS) {
                    found.push(format!("oracle 4: outside of a window, {what} @{}", step.version));
                }
            }
            if kind == "Pod" {
                serving.insert(name, step.after.map(state::pod).is_some_and(|pod| pod.ready && !pod.leaving));
            }
        }
    });
    if grants == 0 {
        found.push("oracle 4: nothing was granted in a window".to_owned());
    }
    evidence.failures.append(&mut found);
}

/// What this change of an object begins, in words.
fn begun(kind: &str, name: &str, step: Step<'_>, serving: &BTreeMap<String, bool>) -> Option<String> {
    let (before, after) = (step.before?, step.after?);
    let serves = |pod: &str| serving.get(pod) == Some(&true);
    match kind {
        "StatefulNode" => {
            let (before, after) = (state::node(before), state::node(after));
            let is_new = before.granted != after.granted && !before.is_in_flight();
            (is_new && serves(&format!("{name}-0"))).then(|| format!("{name} is granted"))
        }
        "StatefulSetRollout" => {
            let nodes = |object: &Value| object["status"]["nodes"].as_array().cloned().unwrap_or_default();
            let known: Vec<Value> = nodes(before).iter().map(|node| node["podUID"].clone()).collect();
            let node = nodes(after).into_iter().find(|node| !known.contains(&node["podUID"]))?;
            let pod = node["name"].as_str().unwrap_or_default();
            serves(pod).then(|| format!("{pod} is granted"))
        }
        "NodeDeployment" => {
            let promotes = |object: &Value| object["status"]["rollout"]["stage"] == "Promoting";
            (!promotes(before) && promotes(after)).then(|| "it is promoted".to_owned())
        }
        _ => None,
    }
}
