//! Dry runs of a node's StatefulSet: whether the API server would accept a template, and what it answered before.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Admission, ReconcileError};
use crate::api::{PodTemplateHash, SetName, StatefulNodeSpec};
use crate::cache::ProbeCache;
use crate::clock::monotonic;
use crate::observe::FleetScope;
use crate::render::{self, NodeIdentity};
use crate::revision;
use windlass_kube_port::{Cluster, ClusterError, Kind};

/// After how long a refused content is checked again: a quota, a policy or a definition may have changed.
pub const REJECTED_RECHECK_INTERVAL: Duration = Duration::from_secs(50);
/// After how long it is asked again whether a content is that of an earlier revision.
const SAME_CONTENT_RECHECK_INTERVAL: Duration = Duration::from_mins(10);

/// Asks the API server, in a dry run, whether it would accept a StatefulSet. A content that was accepted is not checked
/// again.
pub async fn ask(
    probes: &ProbeCache,
    cluster: &dyn Cluster,
    content: String,
    manifest: Value,
) -> Result<Admission, ReconcileError> {
    if let Some((asked, verdict)) = probes.verdicts.get(&content)
        && (verdict.is_ok() || monotonic().duration_since(asked) < REJECTED_RECHECK_INTERVAL)
    {
        return Ok(verdict.into());
    }
    let verdict = match cluster.try_create(Kind::StatefulSet, manifest).await {
        Ok(_) => Ok(()),
        Err(ClusterError::Refused { message, .. }) => {
            Err(format!("template: the API server rejects it: {message}"))
        }
        // Nodes that exist need no other StatefulSet.
        Err(error) if error.exceeds_quota() => Ok(()),
        // This may be temporary, so the next reconcile asks again. Meanwhile the user should see the reason.
        Err(ClusterError::Forbidden { message, .. }) => {
            return Ok(Admission::Refused(format!(
                "template: the API server currently forbids it: {message}"
            )));
        }
        Err(error) => return Err(ReconcileError::Check(error)),
    };
    probes.verdicts.put(&content, (monotonic(), verdict.clone()));
    Ok(verdict.into())
}

/// True if the API server was asked about a content lately.
pub(super) fn was_checked_lately(probes: &ProbeCache, content: &str) -> bool {
    probes
        .verdicts
        .get(content)
        .is_some_and(|(asked, _)| monotonic().duration_since(asked) < SAME_CONTENT_RECHECK_INTERVAL)
}

/// True if the API server refused a content so recently that it is not asked again.
pub(super) fn is_refused(probes: &ProbeCache, content: &str) -> bool {
    let known = probes.verdicts.get(content);
    known.is_some_and(|(asked, verdict)| {
        verdict.is_err() && monotonic().duration_since(asked) < REJECTED_RECHECK_INTERVAL
    })
}

/// Records that the API server accepts a content.
pub(super) fn is_taken(probes: &ProbeCache, content: &str) {
    probes.verdicts.put(content, (monotonic(), Ok(())));
}

/// The StatefulSet of a node of this spec, for a dry run, and the key of the verdict about it. An error is a sentence
/// about the spec.
pub(super) fn dry_run_stateful_set(
    fleet: &FleetScope,
    spec: &StatefulNodeSpec,
) -> Result<(Value, String), String> {
    let template = render::pod_template(spec, None, &fleet.options);
    let template = template.map_err(|error| format!("template.spec: {error}"))?;
    let hash = revision::pod_template_hash(&template);
    let meta = &fleet.fleet.meta;
    let identity = NodeIdentity {
        name: crate::api::names::node_name(&meta.name, &SetName::FIRST, 0),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        deployment: Some(meta.name.clone()),
        set: Some(SetName::FIRST.into()),
        metadata: fleet.spec.template.metadata.clone(),
    };
    let mut manifest = render::stateful_set(&identity, spec, &template, &hash);
    // The identity has the fleet's UID: no node exists that could own this StatefulSet.
    manifest["metadata"]["ownerReferences"] = json!([]);
    let content = dry_run_key_of(&identity, spec, &hash);
    Ok((manifest, content))
}

/// The key of a verdict: everything that a refusal may depend on, including the fleet or node, so that nobody is shown
/// a refusal that another one caused.
#[must_use]
pub fn dry_run_key_of(identity: &NodeIdentity, spec: &StatefulNodeSpec, hash: &PodTemplateHash) -> String {
    let whose = identity.deployment.as_ref().unwrap_or(&identity.name);
    let claims = json!(revision::with_sizes(&spec.volume_claim_templates, &spec.claim_sizes));
    format!("{}/{whose} {hash} {claims} {}", identity.namespace, json!(identity.metadata))
}
