//! Finds out whether a spec only writes otherwise what a recorded revision has, for example with the API server's defaults
//! or in another order. The API server is asked in dry runs what it would store for both, so nothing is known here of
//! defaults, nor of what admission adds.

use serde_json::{Value, json};

use super::ReconcileError;
use super::dry_runs::{dry_run_stateful_set, is_refused, is_taken, was_checked_lately};
use crate::api::ids::field;
use crate::api::names::{ANNOTATION_TEMPLATE_HASH, LABEL_REVISION};
use crate::api::{RolloutHash, SameContent};
use crate::observe::FleetScope;
use crate::revision::{RevisionData, are_same_claims, revision_name};
use windlass_kube_port::{ClusterError, Key, Kind};

/// What the API server stores of a node's StatefulSet that belongs to a revision.
#[derive(PartialEq)]
struct Stored {
    template: Value,
    claims: Value,
}

/// The content of the fleet's spec as a revision has it, and the record that it is written otherwise, if so. Claims that
/// are only written otherwise stay as the current revision has them, since a node's claims cannot be changed.
pub(super) async fn of_spec(
    fleet: &FleetScope,
) -> Result<(RevisionData, Option<SameContent>), ReconcileError> {
    let mut data = fleet.desired_revision();
    let (meta, status) = (&fleet.fleet.meta, &fleet.fleet.status);
    let (written, mut meant) = (fleet.written(), fleet.meant_hashes());
    let build_id = fleet.spec.build_id();
    let build_id = field(build_id.as_ref());
    let is_kept = |hash: &RolloutHash| {
        let name = Key::new(&meta.namespace, revision_name(&meta.name, &meta.uid, hash).as_str());
        fleet.view.revisions.get(&name).is_some_and(|revision| revision.meta.is_controlled_by(&meta.uid))
    };
    let known = status.same_content.as_ref().filter(|same| written == *same.written_hash);
    // Admission may change, so the API server is asked again from time to time. Until then nothing is rendered.
    let answer = format!("{} {written}", meta.uid);
    if let Some(same) =
        known.filter(|_| is_kept(&fleet.specified()) && was_checked_lately(&fleet.caches.probes, &answer))
    {
        return Ok((data, Some(same.clone())));
    }
    // The hash of a spec that was refused is recorded as requested too, and has no revision.
    meant.retain(is_kept);
    if meant.is_empty() || meant.contains(&written) {
        return Ok((data, None));
    }
    let Ok((manifest, content)) = dry_run_stateful_set(fleet, &data.apply_to(&fleet.spec.template.spec))
    else {
        return Ok((data, None));
    };
    if is_refused(&fleet.caches.probes, &content) {
        return Ok((data, None));
    }
    let Some(asked) = stored(fleet, manifest).await? else { return Ok((data, None)) };
    is_taken(&fleet.caches.probes, &content);
    is_taken(&fleet.caches.probes, &answer);
    let revisions = fleet.revisions();
    let mut claims = None;
    for hash in meant {
        let Some(revision) = revisions.get(&hash) else { continue };
        let Ok(other) = RevisionData::from_value(&revision.data.value()) else { continue };
        // The same content under another build ID is another target.
        if other.rollout_hash(build_id) != hash {
            continue;
        }
        let other_spec = other.apply_to(&fleet.spec.template.spec);
        let Ok((manifest, _)) = dry_run_stateful_set(fleet, &other_spec) else { continue };
        let Some(known) = stored(fleet, manifest).await? else { continue };
        if known == asked {
            let same = SameContent { written_hash: written.into(), recorded_hash: hash.into() };
            return Ok((data, Some(same)));
        }
        if known.claims == asked.claims {
            claims.get_or_insert(other.volume_claim_templates);
        }
    }
    let Some(claims) = claims.filter(|claims| !are_same_claims(claims, &data.volume_claim_templates)) else {
        return Ok((data, None));
    };
    data.volume_claim_templates = claims;
    let recorded_hash = data.rollout_hash(build_id).into();
    Ok((data, Some(SameContent { written_hash: written.into(), recorded_hash })))
}

/// What the API server would store; `None` if it would store nothing.
async fn stored(fleet: &FleetScope, manifest: Value) -> Result<Option<Stored>, ReconcileError> {
    match fleet.cluster.try_create(Kind::StatefulSet, manifest).await {
        Ok(answer) => Ok(of_revision(&answer)),
        Err(ClusterError::Refused { .. } | ClusterError::Forbidden { .. }) => Ok(None),
        Err(error) => Err(ReconcileError::Check(error)),
    }
}

fn of_revision(answer: &Value) -> Option<Stored> {
    let mut template = answer["spec"]["template"].clone();
    let metadata = template.get_mut("metadata")?;
    // These two tell how the content is written.
    for (field, key) in [("labels", LABEL_REVISION), ("annotations", ANNOTATION_TEMPLATE_HASH)] {
        metadata[field].as_object_mut()?.remove(key);
    }
    Some(Stored { template, claims: json!(answer["spec"]["volumeClaimTemplates"]) })
}
