//! Writes of Windlass that admission changes. The stored state is recorded, one record for each child, so that the
//! same write is not repeated in each reconcile: it would change nothing. A difference
//! in what Windlass depends on is written again once a minute, and is reported. A user's labels and annotations that
//! admission overrides stay as admission wants them.

use std::time::Duration;

use serde_json::Value;

use crate::cache::ProbeCache;
use crate::cache::probes::Reverted;
use crate::clock::monotonic;
use crate::engine::sentence::cut;
use crate::revision::template::is_own_key;
use windlass_kube_port::observed::{Meta, Observed};
use windlass_kube_port::{Cluster, ClusterError, Kind, Part, PatchOp, Target};

/// How soon a write that admission changed is repeated.
const WRITE_AGAIN: Duration = Duration::from_mins(1);
/// The longest value of a field in a message, in bytes. A label's value is never longer.
const MAX_VALUE_BYTES: usize = 63;

/// The id of the record of the Service of a node or a fleet: the record of a Service's own UID would outlive it.
#[must_use]
pub fn service_of(uid: &str) -> String {
    format!("{uid}/service")
}

/// The id of the record of a fleet's PodDisruptionBudget.
#[must_use]
pub fn budget_of(uid: &str) -> String {
    format!("{uid}/budget")
}

/// The operations that bring a child to its desired state, or none if admission is known to change them.
#[must_use]
pub fn due(probes: &ProbeCache, id: &str, meta: &Meta, ops: Vec<PatchOp>) -> Vec<PatchOp> {
    let Some(known) = probes.reverted.get(id) else { return ops };
    if ops.is_empty() {
        probes.reverted.take(id);
        return ops;
    }
    let is_same = known.ops == ops;
    let is_left = known.message.is_none() && known.stored == values_at(&ops, meta);
    let is_recent = monotonic().duration_since(known.at) < WRITE_AGAIN;
    if is_same && (is_left || is_recent) { Vec::new() } else { ops }
}

/// Writes `ops` to a child and records what the answer shows that admission changed. `ops_of`: the operations that
/// bring
/// an object to its desired state.
pub async fn write<T: Observed>(
    (cluster, probes): (&dyn Cluster, &ProbeCache),
    id: &str,
    target: Target,
    ops: Vec<PatchOp>,
    ops_of: impl Fn(&T) -> Vec<PatchOp> + Send,
) -> Result<Value, ClusterError> {
    let kind = target.kind;
    let sent: Vec<String> = ops.iter().map(|op| op.path().to_owned()).collect();
    let answer = cluster.patch(target, Part::Main, ops).await?;
    let stored = T::read(&answer);
    let mut left = ops_of(&stored);
    // The answer says nothing of a field that was not written.
    left.retain(|op| sent.iter().any(|path| path == op.path()));
    if left.is_empty() {
        probes.reverted.take(id);
    } else {
        let meta = Meta::read(&answer);
        let record = Reverted {
            at: monotonic(),
            stored: values_at(&left, &meta),
            message: message(kind, &meta.name, &left, &answer),
            ops: left,
        };
        probes.reverted.put(id, record);
    }
    Ok(answer)
}

/// True if a write to a child has to be repeated because admission changed it.
#[must_use]
pub fn is_pending(probes: &ProbeCache, id: &str, meta: &Meta) -> bool {
    let known = probes.reverted.get(id);
    known.is_some_and(|known| known.message.is_some() || known.stored != values_at(&known.ops, meta))
}

/// What admission changes of what Windlass depends on in a child, in a sentence.
#[must_use]
pub fn sentence(probes: &ProbeCache, id: &str, meta: &Meta) -> Option<String> {
    let known = probes.reverted.get(id).filter(|known| known.stored == values_at(&known.ops, meta));
    known.and_then(|known| known.message)
}

fn message(kind: Kind, name: &str, left: &[PatchOp], stored: &Value) -> Option<String> {
    let text = |value: Option<&Value>| match value {
        None => "absent".to_owned(),
        Some(Value::String(text)) => cut(text, MAX_VALUE_BYTES),
        Some(value) => cut(&value.to_string(), MAX_VALUE_BYTES),
    };
    let differs = |op: &PatchOp| {
        let field = needed_field(op.path())?;
        let (is, wanted) = (text(stored.pointer(op.path())), text(op.value()));
        Some(format!("{field} is {is} instead of {wanted}"))
    };
    let all: Vec<String> = left.iter().filter_map(differs).collect();
    let (all, kind) = ((!all.is_empty()).then(|| all.join(", "))?, kind.name());
    Some(format!(
        "{kind} {name}: {all}, and restoring it has no effect: exempt the {kind}s of Windlass from the admission \
         policy that changes it"
    ))
}

/// The name of a field that Windlass depends on. It does not depend on a user's labels and annotations, nor on how many
/// revisions a StatefulSet keeps.
fn needed_field(path: &str) -> Option<String> {
    if let Some((texts, key)) = metadata_key(path) {
        let field = if texts == "labels" { "label" } else { "annotation" };
        return is_own_key(&key).then(|| format!("{field} {key}"));
    }
    match path {
        "/metadata/labels" | "/metadata/annotations" | "/spec/revisionHistoryLimit" => None,
        _ => Some(path.trim_start_matches('/').replace('/', ".")),
    }
}

/// The values that the labels and annotations among these operations have in an object.
fn values_at(ops: &[PatchOp], meta: &Meta) -> Vec<Option<String>> {
    let value = |op: &PatchOp| {
        let (texts, key) = metadata_key(op.path())?;
        let texts = if texts == "labels" { &meta.labels } else { &meta.annotations };
        texts.get(&key).map(str::to_owned)
    };
    ops.iter().map(value).collect()
}

/// `labels` or `annotations`, and the key, of the pointer to a label or an annotation.
fn metadata_key(path: &str) -> Option<(&str, String)> {
    let (texts, key) = path.strip_prefix("/metadata/")?.split_once('/')?;
    matches!(texts, "labels" | "annotations").then(|| (texts, key.replace("~1", "/").replace("~0", "~")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;
    use windlass_kube_port::MockCluster;
    use windlass_kube_port::observed::ObservedStatefulSet;

    const MANAGED_BY: &str = "/metadata/labels/app.kubernetes.io~1managed-by";

    fn set(manager: &str, team: &str, replicas: i64) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": replicas}, "metadata": {
            "name": "db-0", "namespace": "shop", "uid": "u", "resourceVersion": "1",
            "labels": {"app.kubernetes.io/managed-by": manager, "team": team}}})
    }

    /// The operations that are needed: the manager is Windlass, the team is `team`, and there is one replica.
    fn ops_of(set: &ObservedStatefulSet, team: &str) -> Vec<PatchOp> {
        let (mut ops, label) = (Vec::new(), |key| set.meta.labels.get(key).unwrap_or_default().to_owned());
        if label("app.kubernetes.io/managed-by") != "windlass" {
            ops.push(PatchOp::set(MANAGED_BY, json!("windlass")));
        }
        if label("team") != team {
            ops.push(PatchOp::set("/metadata/labels/team", json!(team)));
        }
        if set.replicas != 1 {
            ops.push(PatchOp::set("/spec/replicas", json!(1)));
        }
        ops
    }

    /// The paths that are due for this StatefulSet.
    fn due_for(probes: &ProbeCache, live: &Value, team: &str) -> Vec<String> {
        let set = ObservedStatefulSet::read(live);
        let ops = due(probes, "u", &set.meta, ops_of(&set, team));
        ops.iter().map(|op| op.path().to_owned()).collect()
    }

    /// Writes what is due, with this answer of the API server.
    async fn written(probes: &ProbeCache, live: &Value, team: &str, answer: &Value) {
        let (mut cluster, set, answer) =
            (MockCluster::new(), ObservedStatefulSet::read(live), answer.clone());
        cluster.expect_patch().times(1).return_once(move |_, _, _| Ok(answer));
        let ops = due(probes, "u", &set.meta, ops_of(&set, team));
        let target = Target::of(Kind::StatefulSet, &set.meta);
        write((&cluster, probes), "u", target, ops, |set| ops_of(set, team)).await.unwrap();
    }

    fn reported(probes: &ProbeCache, live: &Value) -> Option<String> {
        sentence(probes, "u", &Meta::read(live))
    }

    #[tokio::test(start_paused = true)]
    async fn label_overridden_by_admission_is_written_once() {
        let probes = ProbeCache::default();
        let (live, answer) = (set("windlass", "", 1), set("windlass", "platform", 1));
        assert_eq!(due_for(&probes, &live, "one"), ["/metadata/labels/team"]);
        written(&probes, &live, "one", &answer).await;
        tokio::time::sleep(WRITE_AGAIN * 10).await;
        assert_eq!(due_for(&probes, &answer, "one"), [""; 0]);
        assert_eq!(
            (reported(&probes, &answer), is_pending(&probes, "u", &Meta::read(&answer))),
            (None, false)
        );
        let by_hand = set("windlass", "by-hand", 1);
        for (live, team, paths) in [
            (&answer, "two", vec!["/metadata/labels/team"]),
            (&by_hand, "one", vec!["/metadata/labels/team"]),
            (&set("platform", "platform", 1), "one", vec![MANAGED_BY, "/metadata/labels/team"]),
            (&set("windlass", "one", 1), "one", vec![]),
        ] {
            assert_eq!(due_for(&probes, live, team), paths, "{live} {team}");
        }
        assert_eq!(due_for(&probes, &answer, "one"), ["/metadata/labels/team"], "it was in sync in between");
    }

    #[tokio::test(start_paused = true)]
    async fn required_fields_are_restored_once_a_minute_and_reported() {
        let probes = ProbeCache::default();
        let (live, answer) = (set("windlass", "one", 3), set("platform", "one", 2));
        written(&probes, &live, "one", &answer).await;
        assert_eq!(
            due_for(&probes, &answer, "one"),
            [MANAGED_BY, "/spec/replicas"],
            "a field that was not sent"
        );
        written(&probes, &answer, "one", &answer).await;
        let message = "StatefulSet db-0: label app.kubernetes.io/managed-by is platform instead of windlass, spec.replicas is 2 \
                       instead of 1, and restoring it has no effect: exempt the StatefulSets of Windlass from the \
                       admission policy that changes it";
        assert_eq!(reported(&probes, &answer).as_deref(), Some(message));
        for _ in 0..3 {
            assert_eq!(due_for(&probes, &answer, "one"), [""; 0]);
            assert!(is_pending(&probes, "u", &Meta::read(&answer)));
            tokio::time::sleep(WRITE_AGAIN).await;
            assert_eq!(due_for(&probes, &answer, "one"), [MANAGED_BY, "/spec/replicas"]);
            written(&probes, &answer, "one", &answer).await;
        }
        let by_hand = set("hand", "one", 2);
        assert_eq!(reported(&probes, &by_hand), None, "a person changed it since");
        written(&probes, &answer, "two", &set("windlass", "two", 1)).await;
        assert_eq!((due_for(&probes, &answer, "one").len(), reported(&probes, &answer)), (3 - 1, None));
    }
}
