//! Which StatefulSets a StatefulSetRollout selects, and which of them it may hold. Pure.

use std::sync::Arc;

use kube::core::{Selector, SelectorExt};

use crate::api::stateful_set_rollout::MAX_STATEFUL_SETS;
use crate::api::{StatefulSetRolloutSpec, StatefulSetSelection};
use crate::planner::fleet::pods::{Mode, is_adopted};
use windlass_kube_port::Key;
use windlass_kube_port::observed::{Meta, ObservedPod, ObservedRollout, ObservedStatefulSet};

/// The StatefulSets that a StatefulSetRollout selects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selection {
    /// Those that it holds, in the order in which they are updated.
    pub sets: Vec<Key>,
    /// The names that do not exist.
    pub missing: Vec<String>,
    /// Why the others cannot be held, or why the spec cannot be carried out, each in a sentence.
    pub refused: Vec<String>,
}

/// Selects among the StatefulSets of the namespace. `others`: all StatefulSetRollouts of the namespace.
pub fn select(
    rollout: &Meta,
    spec: &StatefulSetRolloutSpec,
    sets: &[Arc<ObservedStatefulSet>],
    others: &[Arc<ObservedRollout>],
) -> Selection {
    let mut selection = Selection::default();
    let mut found: Vec<&Meta> = Vec::new();
    for name in &spec.stateful_sets.names {
        match sets.iter().find(|set| set.meta.name == *name && !set.meta.terminating) {
            Some(set) if !found.iter().any(|known| known.name == *name) => found.push(&set.meta),
            Some(_) => {}
            None => selection.missing.push(name.clone()),
        }
    }
    if spec.stateful_sets.names.is_empty() {
        let matching =
            sets.iter().filter(|set| !set.meta.terminating && matches(&spec.stateful_sets, &set.meta));
        found.extend(matching.map(|set| &set.meta));
        found.sort_by(|left, right| left.name.cmp(&right.name));
    }
    if found.len() > MAX_STATEFUL_SETS {
        selection.refused.push(format!(
            "spec.statefulSets.selector matches {} StatefulSets, but at most {MAX_STATEFUL_SETS} are allowed: create \
             several StatefulSetRollouts",
            found.len()
        ));
        return selection;
    }
    for set in found {
        match why_not(rollout, set, others) {
            Some(sentence) => selection.refused.push(sentence),
            None => selection.sets.push(set.key()),
        }
    }
    selection
}

/// Why a StatefulSet cannot be held, in a sentence; `None` if it can.
fn why_not(rollout: &Meta, set: &Meta, others: &[Arc<ObservedRollout>]) -> Option<String> {
    if let Some(owner) = set.controller() {
        return Some(controlled(&set.name, &owner.kind, &owner.name));
    }
    let older = others.iter().find(|other| is_older(&other.meta, rollout) && selects(other, set))?;
    Some(format!(
        "spec.statefulSets: StatefulSet {} is already selected by the older StatefulSetRollout {}: remove it from \
         one of them",
        set.name, older.meta.name
    ))
}

/// Why a StatefulSet with OnDelete cannot be held, in a sentence. Its controller never made its current revision a later one,
/// and a held StatefulSet would go back to that.
pub fn strays(set: &ObservedStatefulSet, pods: &[Arc<ObservedPod>]) -> Option<String> {
    let current = &set.external.as_deref()?.current_revision;
    if is_adopted(set) || Mode::of(set) != Mode::Window || *current == set.update_revision {
        return None;
    }
    let is_known = |pod: &&Arc<ObservedPod>| pod.revision == *current || pod.revision == set.update_revision;
    let pod = pods.iter().find(|pod| !is_known(pod))?;
    Some(format!(
        "spec.statefulSets: pod {} of StatefulSet {} is at revision {}, but would be recreated at the older revision \
         {current} if the StatefulSet were held: delete the pods that do not run the template, one by one; Windlass \
         holds the StatefulSet after that",
        pod.meta.name, set.meta.name, pod.revision
    ))
}

/// The sentence about a StatefulSet that another operator controls.
pub fn controlled(set: &str, kind: &str, name: &str) -> String {
    format!(
        "spec.statefulSets: StatefulSet {set} is controlled by {kind} {name}, which writes its update strategy: remove it from \
         spec.statefulSets"
    )
}

fn is_older(other: &Meta, rollout: &Meta) -> bool {
    other.uid != rollout.uid && (other.created_at, &other.name) < (rollout.created_at, &rollout.name)
}

/// True if a StatefulSetRollout selects a StatefulSet.
pub fn selects(rollout: &ObservedRollout, set: &Meta) -> bool {
    // A spec that cannot be read may select anything.
    let Ok(spec) = &rollout.spec else { return !rollout.meta.terminating };
    let is_named = || spec.stateful_sets.names.contains(&set.name);
    !rollout.meta.terminating && (is_named() || matches(&spec.stateful_sets, set))
}

/// True if the label selector matches a StatefulSet. One that selects everything matches nothing: the API server rejects it.
fn matches(selection: &StatefulSetSelection, set: &Meta) -> bool {
    let selector = selection.selector.clone().and_then(|selector| Selector::try_from(selector).ok());
    let labels = || set.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    selector.is_some_and(|selector| !selector.selects_all() && selector.matches(&labels()))
}
