//! Volume claims that grow: the writes to a node's claims, and whether the API server would accept them.

use std::collections::BTreeSet;

use serde_json::json;

use super::ReconcileError;
use super::dry_runs::REJECTED_RECHECK_INTERVAL;
use crate::api::names::claim_name;
use crate::clock::monotonic;
use crate::observe::{FleetScope, NodeScope};
use crate::planner::growth::Growth;
use crate::revision::is_smaller;
use windlass_kube_port::observed::{ObservedClaim, ObservedNode};
use windlass_kube_port::{ClusterError, Key, Kind, Part, PatchOp, Target};

fn size_op(size: &str) -> PatchOp {
    PatchOp::set("/spec/resources/requests/storage", json!(size))
}

/// True if a claim can be asked for this size, and requests less.
fn is_due(claim: &ObservedClaim, size: &str) -> bool {
    !claim.meta.terminating && !claim.capacity.is_empty() && is_smaller(&claim.requested, size)
}

/// Raises the requests of a node's claims to the sizes in its spec. Returns a sentence if the API server refuses one.
pub(crate) async fn expand(scope: &NodeScope, node: &ObservedNode) -> Result<Option<String>, ClusterError> {
    let Ok(spec) = &node.spec else { return Ok(None) };
    let mut refused = None;
    for (template, size) in &spec.claim_sizes {
        let key = Key::new(&node.meta.namespace, claim_name(template, &node.meta.name));
        let Some(claim) = scope.view.claims.get(&key).filter(|claim| is_due(claim, size)) else { continue };
        let target = Target::of(Kind::PersistentVolumeClaim, &claim.meta);
        match scope.cluster.patch(target, Part::Main, vec![size_op(size)]).await {
            Ok(_) | Err(ClusterError::NotFound { .. }) => {}
            Err(ClusterError::Refused { message, .. } | ClusterError::Forbidden { message, .. }) => {
                refused.get_or_insert_with(|| in_words(&claim.meta.name, size, &message));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

fn in_words(claim: &str, size: &str, message: &str) -> String {
    format!(
        "volumeClaimTemplates: the API server does not let PersistentVolumeClaim {claim} grow to {size}: {message}"
    )
}

/// Why the claims of the fleet's nodes cannot be as desired, in a sentence. Whether they may grow, the API server is asked
/// in dry runs, about one claim of each template and StorageClass, before anything is written.
pub async fn refusal(fleet: &FleetScope) -> Result<Option<String>, ReconcileError> {
    if let Some(sentence) = fleet.unchangeable_claims() {
        return Ok(Some(sentence));
    }
    let facts = fleet.facts();
    if facts.strategy_for(&facts.requested).creates_set() {
        return Ok(None);
    }
    let meta = &fleet.fleet.meta;
    let mut asked = BTreeSet::new();
    let nodes = fleet.children();
    let accepted: BTreeSet<(&String, &String)> =
        nodes.iter().filter_map(|node| node.spec.as_ref().ok()).flat_map(|spec| &spec.claim_sizes).collect();
    let due = facts.wanted().filter(|child| matches!(child.growth, Growth::Due { .. }));
    for child in due {
        let Some(node) = fleet.view.nodes.get(&Key::new(&meta.namespace, child.name.as_str())) else {
            continue;
        };
        for (template, size) in fleet.claim_sizes(&node) {
            // What other nodes were asked for is accepted. What is refused now is reported by the rollout, and nothing else
            // has to wait for it.
            if accepted.contains(&(&template, &size)) {
                continue;
            }
            let key = Key::new(&meta.namespace, claim_name(&template, child.name.as_str()));
            let Some(claim) = fleet.view.claims.get(&key).filter(|claim| is_due(claim, &size)) else {
                continue;
            };
            let content = format!("{} {template} {size} {}", meta.uid, claim.storage_class);
            if asked.insert(content.clone())
                && let Some(sentence) = may_grow(fleet, &claim, &size, content).await?
            {
                return Ok(Some(sentence));
            }
        }
    }
    Ok(None)
}

/// What else than the previous size helps.
fn remedy(claim: &ObservedClaim, message: &str) -> String {
    if message.contains("must support resize") {
        format!("set allowVolumeExpansion: true in StorageClass {}", claim.storage_class)
    } else {
        "let the operator's account make this change".to_owned()
    }
}

async fn may_grow(
    fleet: &FleetScope,
    claim: &ObservedClaim,
    size: &str,
    content: String,
) -> Result<Option<String>, ReconcileError> {
    let verdicts = &fleet.caches.probes.verdicts;
    if let Some((asked, verdict)) = verdicts.get(&content)
        && monotonic().duration_since(asked) < REJECTED_RECHECK_INTERVAL
    {
        return Ok(verdict.err());
    }
    let target = Target::of(Kind::PersistentVolumeClaim, &claim.meta);
    let verdict = match fleet.cluster.try_patch(target, vec![size_op(size)]).await {
        Ok(_) | Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => Ok(()),
        // A quota may have room for some of the claims.
        Err(error) if error.exceeds_quota() => Ok(()),
        Err(ClusterError::Refused { message, .. } | ClusterError::Forbidden { message, .. }) => Err(format!(
            "template.spec.{}; restore the previous resources.requests.storage, or {}",
            in_words(&claim.meta.name, size, &message),
            remedy(claim, &message)
        )),
        Err(error) => return Err(ReconcileError::Check(error)),
    };
    verdicts.put(&content, (monotonic(), verdict.clone()));
    Ok(verdict.err())
}
