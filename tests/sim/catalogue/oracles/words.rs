//! Compares each new statement of a status with the store at that moment: statements that others depend on may be
//! late, but never untrue.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_sim::Step;

use super::state::{self, NodeState, PodState, SetState};

/// The statements so far.
#[derive(Default)]
pub struct Words {
    /// Plans that somebody else damaged, by object.
    cut_short: BTreeSet<(String, String)>,
    /// The pod template hash behind each revision of a node's StatefulSet.
    revisions: BTreeMap<(String, String), String>,
}

impl Words {
    /// Records what a person wrote into a status.
    pub fn by_person(&mut self, object: &str, step: Step<'_>) {
        let plan = step.after.map(|after| &after["status"]["plan"]);
        let Some(plan) = plan.filter(|plan| plan["state"] == "Active") else { return };
        // A write that comes late makes a plan active that was over, and its rollout is gone: it is begun anew.
        let is_over = step
            .after
            .is_some_and(|after| after["kind"] == "NodeDeployment" && after["status"]["rollout"].is_null());
        let id = plan["id"].as_str().unwrap_or_default();
        let first = plan["tasks"].as_array().and_then(|tasks| tasks.first());
        if !is_over && first.is_none_or(|task| task["id"] != format!("{id}-0")) {
            self.cut_short.insert((object.to_owned(), id.to_owned()));
        }
    }

    /// A damaged plan fails: it neither completes nor becomes another one, unless a person aborts it or changes the
    /// target.
    pub fn of_plan(&self, object: &str, step: Step<'_>) -> Option<String> {
        let fleet = step.after?;
        let plan = &fleet["status"]["plan"];
        let (id, state) = (plan["id"].as_str()?, plan["state"].as_str()?);
        let is_cut = self.cut_short.contains(&(object.to_owned(), id.to_owned()));
        let is_fair = match state {
            "Active" | "Failed" => true,
            "Aborted" => fleet["metadata"]["annotations"]["windlass.dev/abort"] == id,
            "Superseded" => fleet["status"]["requestedRolloutHash"] != plan["targetHash"],
            _ => false,
        };
        (is_cut && !is_fair)
            .then(|| format!("oracle 4: plan {id} of {object} was cut short by another, and is {state}"))
    }

    /// Records what the StatefulSet controller has observed.
    pub fn by_set(&mut self, name: &str, set: &SetState) {
        if set.observed && !set.update_revision.is_empty() {
            self.revisions.insert((name.to_owned(), set.update_revision.clone()), set.stamp.clone());
        }
    }

    /// The pod template hash that a revision of a node's StatefulSet was made from.
    pub fn made_of(&self, node: &str, revision: &str) -> Option<&str> {
        self.revisions.get(&(node.to_owned(), revision.to_owned())).map(String::as_str)
    }

    /// A node runs what its pod was made from, whatever its StatefulSet is now.
    pub fn of_what_runs(
        &self,
        name: &str,
        before: &NodeState,
        now: &NodeState,
        pod: &PodState,
    ) -> Option<String> {
        if now.running.is_empty() || before.running == now.running {
            return None;
        }
        let made_of = self.made_of(name, &pod.revision)?;
        (made_of != now.running).then(|| {
            format!("oracle 4: {name} says that it runs {}, and its pod was made of {made_of}", now.running)
        })
    }
}

/// What a fleet newly reports as complete is in the spec of every node.
pub fn of_what_is_complete<'a>(
    step: Step<'_>,
    nodes: impl Iterator<Item = (&'a String, &'a NodeState)>,
) -> Option<String> {
    let (before, now) = (step.before?, step.after?);
    let completed = |fleet: &Value| fleet["status"]["lastCompletedRolloutHash"].clone();
    let is_of_now = now["status"]["observedGeneration"] == now["metadata"]["generation"]
        && completed(now) == now["status"]["requestedRolloutHash"];
    // A promotion completes what was persisted, whatever the spec is by now: then it is not reported as Applied.
    let applied = now["status"]["conditions"].as_array().into_iter().flatten();
    let applied = applied.into_iter().any(|c| c["type"] == "UpToDate" && c["status"] == "True");
    let promoted = before["status"]["rollout"]["stage"] == "Promoting" && !applied;
    if completed(before) == completed(now) || !is_of_now || promoted {
        return None;
    }
    let wanted = state::main_template(&now["spec"]["template"]["spec"]);
    // If another set has taken over, the old one is unchanged.
    let serves = |name: &str| {
        let place = windlass::api::names::place_of("db", name);
        place.is_some_and(|(set, _)| now["status"]["activeSet"] == set.as_str())
    };
    let mut others = nodes.filter(|(name, node)| serves(name) && node.template != wanted);
    others.next().map(|(name, _)| format!("oracle 4: completed though the spec of {name} is another one"))
}
