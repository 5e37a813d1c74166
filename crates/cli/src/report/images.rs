//! The image that a rollout replaces, and the one that it rolls out. In a rollback, or while an obsolete promotion is
//! finished, the latter is not that of the fleet's spec.

use super::{NodeReport, Seen};
use windlass_core::api::{Rollout, RolloutHash, StatefulNodeSpec};
use windlass_core::revision::{self, RevisionData};

/// The two images, each empty if unknown.
pub(super) fn of(seen: &Seen, rollout: &Rollout, nodes: &[NodeReport]) -> (String, String) {
    let to = target(seen, rollout).unwrap_or_default();
    let served = match rollout.incumbent_set.as_str() {
        "" => seen.fleet.status.active_set.as_str(),
        set => set,
    };
    let is_before = |node: &&NodeReport| {
        !node.image.is_empty() && node.image != to && (served.is_empty() || node.set == served)
    };
    let from = nodes.iter().find(is_before).map(|node| node.image.clone()).unwrap_or_default();
    (from, to)
}

/// The rollout's image, from the fleet's template or from a node with the target's hash.
fn target(seen: &Seen, rollout: &Rollout) -> Option<String> {
    let fleet = seen.fleet.spec.as_deref().ok()?;
    let wanted = &fleet.template.spec;
    let build_id = fleet.unsafe_custom_build_id.as_str();
    let is_target = |spec: &StatefulNodeSpec| {
        let target = RolloutHash::recorded(rollout.target_hash.as_str());
        target.is_none_or(|target| RevisionData::of(spec).rollout_hash(build_id) == target)
    };
    if is_target(wanted) {
        return revision::main_image(wanted).map(str::to_owned);
    }
    // One node per image: a large fleet has two or three.
    let mut looked_at = std::collections::BTreeSet::new();
    seen.nodes.iter().filter_map(|node| node.spec.as_deref().ok()).find_map(|spec| {
        let image = revision::main_image(spec)?;
        (looked_at.insert(image) && is_target(spec)).then(|| image.to_owned())
    })
}
