//! Holds StatefulSets: an update strategy under which only Windlass updates pods. For the update of a pod the strategy
//! is
//! OnDelete for a moment (the window); on release the strategy from before is restored.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::ReconcileError;
use super::patches::metadata_ops;
use crate::api::names::{ANNOTATION_UPDATE_STRATEGY, MANAGER};
use crate::cache::Holds;
use crate::observe::pods::PodFleet;
use crate::planner::fleet::pods::{HOLD_PARTITION, Mode, PodSet, is_adopted};
use crate::render::MetadataChange;
use windlass_kube_port::observed::{Meta, ObservedStatefulSet};
use windlass_kube_port::{Cluster, ClusterError, Kind, Part, PatchOp, Target};

/// Somebody else has overwritten the hold of a StatefulSet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Overwritten {
    /// Who, and what to do.
    pub sentence: String,
    /// When the hold is written again.
    pub again: Duration,
}

/// Writes the update strategy that a StatefulSet needs, if it has another one. Returns a sentence if somebody else has
/// overwritten the hold.
pub async fn hold(
    cluster: &dyn Cluster,
    holds: &Holds,
    of: &PodSet,
    pods: &PodFleet,
    is_wanted: bool,
) -> Result<Option<Overwritten>, ReconcileError> {
    let set = &*of.set;
    let (needed, live) = (of.mode_now(&pods.stored_plans(), is_wanted), Mode::of(set));
    let before = set.external.as_deref().map(|external| external.update_strategy.clone()).unwrap_or_default();
    // What to restore: what there is now or, if somebody has removed the annotation since, what there is by default.
    let is_ours = pods.is_ours(set) && !holds.was_opened(&set.meta.uid, live, set.meta.generation);
    let before = if pods.was_held(set) && is_ours { default_strategy() } else { before };
    let annotation = (!is_adopted(set)).then_some(&before);
    if is_ours {
        if live != needed {
            write(cluster, holds, set, needed, annotation).await?;
        } else if annotation.is_some() {
            patch(cluster, set, annotation_ops(set, annotation)).await?;
        }
        return Ok(None);
    }
    let known = holds.sentence(&set.meta.uid);
    if annotation.is_some() && !pods.was_held(set) && known.is_none() {
        write(cluster, holds, set, needed, annotation).await?;
        return Ok(None);
    }
    let sentence = match known {
        // It is the same person or program as a moment ago.
        Some(known) if !holds.pause(&set.meta.uid).is_zero() => known,
        _ => {
            let sentence = overwritten(cluster, set, &before).await;
            // After a conflict it is tried again at once.
            // The recorded strategy from before the first hold stays: an OnDelete may be one of our own whose response
            // was lost.
            let before = (live == Mode::Native || annotation.is_some()).then_some(&before);
            write(cluster, holds, set, needed, before).await?;
            holds.rewrite(&set.meta.uid, &sentence);
            sentence
        }
    };
    let again = holds.pause(&set.meta.uid).max(Duration::from_secs(1));
    Ok(Some(Overwritten { sentence, again }))
}

/// The update strategy of a StatefulSet without one.
fn default_strategy() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
}

async fn write(
    cluster: &dyn Cluster,
    holds: &Holds,
    set: &ObservedStatefulSet,
    mode: Mode,
    before: Option<&Value>,
) -> Result<(), ReconcileError> {
    let value = match mode {
        Mode::Window => json!({"type": "OnDelete"}),
        _ => json!({"type": "RollingUpdate", "rollingUpdate": {"partition": HOLD_PARTITION}}),
    };
    let mut ops = vec![PatchOp::set("/spec/updateStrategy", value)];
    ops.extend(before.map(|before| annotation_ops(set, Some(before))).unwrap_or_default());
    if mode == Mode::Window {
        // The answer may be lost.
        holds.wrote(&set.meta.uid, mode, set.meta.generation);
    }
    let stored = patch(cluster, set, ops).await?;
    holds.wrote(&set.meta.uid, mode, Meta::read(&stored).generation);
    Ok(())
}

fn annotation_ops(set: &ObservedStatefulSet, before: Option<&Value>) -> Vec<PatchOp> {
    let annotations = BTreeMap::from([(ANNOTATION_UPDATE_STRATEGY.to_owned(), before.map(Value::to_string))]);
    metadata_ops(&set.meta, &MetadataChange { annotations, ..MetadataChange::default() })
}

async fn patch(
    cluster: &dyn Cluster,
    set: &ObservedStatefulSet,
    ops: Vec<PatchOp>,
) -> Result<Value, ReconcileError> {
    let target = Target::of(Kind::StatefulSet, &set.meta);
    cluster.patch(target, Part::Main, ops).await.map_err(ReconcileError::Children)
}

/// Restores the update strategy that a StatefulSet had before it was held. Does nothing if that is done.
pub async fn release(cluster: &dyn Cluster, set: &ObservedStatefulSet) -> Result<(), ReconcileError> {
    let Some(annotation) = set.meta.annotation(ANNOTATION_UPDATE_STRATEGY) else { return Ok(()) };
    let mut ops = Vec::new();
    // A strategy that somebody else has written since stays.
    if Mode::of(set) != Mode::Native {
        let before = serde_json::from_str::<Value>(annotation).ok().filter(Value::is_object);
        ops.push(PatchOp::set("/spec/updateStrategy", before.unwrap_or_else(default_strategy)));
    }
    ops.extend(annotation_ops(set, None));
    match patch(cluster, set, ops).await {
        Err(ReconcileError::Children(ClusterError::NotFound { .. })) => Ok(()),
        patched => patched.map(drop),
    }
}

/// Says who has overwritten the hold, as far as the managed fields of the StatefulSet show it, and what to do.
async fn overwritten(cluster: &dyn Cluster, set: &ObservedStatefulSet, live: &Value) -> String {
    let fields = cluster.managed_fields(Kind::StatefulSet, &set.meta.namespace, &set.meta.name).await;
    let manager = fields.ok().and_then(|fields| manager_of(&fields, live));
    let by = manager.map_or_else(|| "somebody".to_owned(), |manager| format!("field manager {manager}"));
    let effect = match Mode::of(set) {
        Mode::Window => "a lost pod is recreated at the new revision",
        _ => "Kubernetes updates its pods without Windlass",
    };
    format!(
        "{}: {by} has overwritten spec.updateStrategy with {live}, so {effect}: remove \
         updateStrategy from the source of this StatefulSet, or set it to \
         {{\"type\":\"RollingUpdate\",\"rollingUpdate\":{{\"partition\":{HOLD_PARTITION}}}}}",
        set.meta.name
    )
}

/// The field manager that wrote what differs from the hold, other than Windlass: the partition or, without one, the
/// type.
fn manager_of(entries: &[Value], live: &Value) -> Option<String> {
    let decides =
        if live["rollingUpdate"]["partition"].is_null() { "/f:type" } else { "/f:rollingUpdate/f:partition" };
    let others = || entries.iter().filter(|entry| entry["manager"] != MANAGER);
    let owner = |path: &str| {
        let owns = |entry: &&Value| entry["fieldsV1"]["f:spec"]["f:updateStrategy"].pointer(path).is_some();
        others().filter(owns).max_by_key(|entry| entry["time"].as_str().map(str::to_owned))
    };
    // Who removes a field owns nothing of it.
    let last = owner(decides).or_else(|| owner(""))?;
    last["manager"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_manager_is_the_owner_of_the_differing_field() {
        let entry = |manager: &str, time: &str, fields: Value| json!({"manager": manager, "time": time, "fieldsV1": {"f:spec": {"f:updateStrategy": fields}}});
        let entries = [
            entry("argocd", "t1", json!({"f:rollingUpdate": {"f:partition": {}}})),
            entry("helm", "t1", json!({"f:type": {}})),
            entry(MANAGER, "t2", json!({".": {}, "f:rollingUpdate": {"f:partition": {}}})),
        ];
        let rolling =
            |partition: i64| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        let named = |entries: &[Value], live: &Value| manager_of(entries, live);
        assert_eq!(named(&entries, &rolling(0)).as_deref(), Some("argocd"));
        assert_eq!(named(&entries, &json!({"type": "OnDelete"})).as_deref(), Some("helm"));
        assert_eq!(named(&entries[..1], &json!({"type": "OnDelete"})).as_deref(), Some("argocd"));
        assert_eq!(named(&entries[2..], &rolling(0)), None);
    }
}
