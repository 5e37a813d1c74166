//! Requested restarts, and retries.

use crate::api::RestartTime;
use crate::api::names::{ANNOTATION_OWNER_UID, ANNOTATION_RESTARTED_AT};
use windlass_kube_port::observed::ObservedNode;
pub use windlass_kube_port::observed::{parse_time, restart_request, retried_plan};

/// The latest restart that applies to a node. An abort withdraws a restart that the status may record already: under
/// its grant only the annotation counts. A request from before the node's creation was meant for an earlier node
/// of that name and is ignored, unless the node belongs to a fleet, which then wrote it.
#[must_use]
pub fn effective_restart(node: &ObservedNode) -> Option<RestartTime> {
    let meta = &node.meta;
    let asked = meta.annotation(ANNOTATION_RESTARTED_AT);
    let of_fleet = meta.controller().is_some() || meta.annotation(ANNOTATION_OWNER_UID).is_some();
    let is_before = |asked| parse_time(asked).zip(meta.created_at).is_some_and(|(asked, made)| asked <= made);
    let asked = asked.filter(|asked| of_fleet || !is_before(asked)).and_then(RestartTime::recorded);
    let is_taken_back = node.spec.as_ref().is_ok_and(|s| s.grant_id().is_some_and(|id| id.is_by_abort()));
    if is_taken_back {
        return asked;
    }
    later(node.status.restarted_at().as_ref(), asked.as_ref()).cloned()
}

/// The later of two restarts. A restart whose time cannot be parsed is ignored.
#[must_use]
pub fn later<'a>(left: Option<&'a RestartTime>, right: Option<&'a RestartTime>) -> Option<&'a RestartTime> {
    let time = |restart: Option<&RestartTime>| restart.and_then(|restart| parse_time(restart.as_str()));
    match (time(left), time(right)) {
        (Some(l), Some(r)) if r > l => right,
        (None, Some(_)) => right,
        (Some(_), _) => left,
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use windlass_kube_port::observed::Observed;

    #[test]
    fn latest_restart_counts_except_under_an_abort_grant() {
        let (early, late) = ("2030-01-31T12:00:00Z", "2030-02-28T12:00:00Z");
        let rows = [
            ("0123456789-2", None, None, None),
            ("0123456789-2", Some(early), Some(late), Some(late)),
            ("0123456789-2", Some(late), Some(early), Some(late)),
            ("0123456789-2", Some(late), None, Some(late)),
            ("abort-3", Some(late), Some(early), Some(early)),
            ("abort-3", Some(late), None, None),
        ];
        for (grant, recorded, asked, expected) in rows {
            let node = ObservedNode::read(&json!({
                "metadata": {"name": "db-1", "annotations": {ANNOTATION_RESTARTED_AT: asked}},
                "spec": {"podTemplate": {}, "grantID": grant},
                "status": {"restartedAt": recorded.unwrap_or_default()},
            }));
            let expected = expected.and_then(RestartTime::recorded);
            assert_eq!(effective_restart(&node), expected, "{grant} {recorded:?} {asked:?}");
        }
    }
}
