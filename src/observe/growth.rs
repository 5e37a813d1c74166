//! How far the volume claims of a node are with growing, as the caches have them.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use crate::api::names::pod_name;
use crate::cache::{Sighting, Sightings};
use crate::planner::growth::{Growth, GrowthInput};
use windlass_kube_port::observed::ObservedClaim;
use windlass_kube_port::{Key, View};

/// What is left to do until the claims of a node have these sizes.
pub(super) fn growth_to(
    sizes: &BTreeMap<String, String>,
    node: &Key,
    (view, sightings, now): (&View, &Sightings, DateTime<Utc>),
) -> Growth {
    if sizes.is_empty() {
        return Growth::Done;
    }
    let (set, pod) = (
        view.stateful_sets.get(node).filter(|set| !set.meta.terminating),
        view.pods.get(&Key::new(&node.namespace, pod_name(&node.name))),
    );
    let seen = |claim: &ObservedClaim| {
        let passed = sightings.elapsed(&claim.meta.uid, Sighting::FileSystemPending);
        now - TimeDelta::from_std(passed).unwrap_or_default()
    };
    let warning = |claim: &ObservedClaim| view.refusals.last(&claim.meta.uid).map(|event| event.note);
    let input = GrowthInput {
        node: &node.name,
        sizes,
        set: set.as_deref(),
        pod: pod.as_deref(),
        now,
        seen: &seen,
        warning: &warning,
    };
    Growth::of(&input, |name| view.claims.get(&Key::new(&node.namespace, name)))
}
