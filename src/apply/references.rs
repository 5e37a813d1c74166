//! Whether the objects exist that a template names: Secrets, ConfigMaps, ServiceAccounts, PriorityClasses and claims.

use std::collections::BTreeSet;
use std::time::Duration;

use super::many::{OnFailure, for_each_concurrent};
use crate::api::RolloutHash;
use crate::cache::{Asked, Existence};
use crate::clock::monotonic;
use crate::engine::sentence::some_of;
use crate::observe::FleetScope;
use crate::observe::restart::restart_request;
use crate::planner::fleet::Blocker;
use crate::render;
use crate::revision::references::{Reference, Referent, references};
use windlass_kube_port::{ClusterError, Kind};

/// After how long an object that existed, or that may not be read, is asked for again.
const KNOWN_FOR: Duration = Duration::from_mins(1);
/// After how long an object that is missing since a moment is asked for again. Later it is a quarter of that time, at most
/// [`KNOWN_FOR`].
const MISSING_FOR: Duration = Duration::from_secs(3);
/// How long an answer holds while there is no other.
const HOLDS_FOR: Duration = Duration::from_mins(5);

/// The kinds of objects that could not be checked, because there is no right to read them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Unread(BTreeSet<Referent>);

impl Unread {
    /// The kinds, for a message; `None` if everything was checked.
    #[must_use]
    pub fn kinds(&self) -> Option<String> {
        let kinds: Vec<&str> = self.0.iter().map(AsRef::as_ref).collect();
        (!kinds.is_empty()).then(|| some_of(&kinds))
    }
}

/// Checks whether the objects exist that the templates of a rollout name: of the one that is active, and of the one that
/// the spec asks for. If one is missing, it blocks the fleet and closes the gate of the rollout. A fleet that has nothing
/// to roll out sends no request.
///
/// # Errors
///
/// The API server did not answer whether an object exists. The rollout waits then, too.
pub async fn check(fleet: &mut FleetScope) -> Result<Unread, ClusterError> {
    let mut unread = Unread::default();
    if fleet.spec.replicas == 0 {
        return Ok(unread);
    }
    let target = fleet.fleet.status.rollout.as_ref().map(crate::api::Rollout::target);
    let requested = Some(fleet.requested()).filter(|requested| is_due(fleet, requested));
    for revision in [&target, &requested].into_iter().flatten() {
        let found = missing(fleet, revision, &mut unread).await;
        let blocker = match &found {
            Ok(sentence) => sentence.clone().map(Blocker::Spec),
            Err(error) => Some(Blocker::Unanswered(format!(
                "could not check whether the objects exist that the template names: {error}"
            ))),
        };
        if target.as_ref().is_none_or(|target| target == revision) {
            fleet.missing.clone_from(&blocker);
        }
        if requested.as_ref() == Some(revision) {
            fleet.block(blocker);
        }
        found?;
        if target == requested {
            break;
        }
    }
    Ok(unread)
}

/// True if the desired revision is to be rolled out or restarted. A rejected one is not, before a user retries it. A way back,
/// or a repair, to what last completed only waits at the gate: volumes still grow meanwhile.
fn is_due(fleet: &FleetScope, requested: &RolloutHash) -> bool {
    let status = &fleet.fleet.status;
    let is_rejected = status.rejected.as_ref().is_some_and(|rejected| *requested == *rejected.hash);
    let is_new = status.last_completed().as_ref() != Some(requested);
    let restarts = || restart_request(&fleet.fleet.meta, fleet.restarted_at.as_ref()).is_some();
    !is_rejected && (is_new || restarts())
}

/// The objects that a revision's template names and that do not exist, in a sentence.
async fn missing(
    fleet: &FleetScope,
    revision: &RolloutHash,
    unread: &mut Unread,
) -> Result<Option<String>, ClusterError> {
    let Some(spec) = fleet.node_spec(revision) else { return Ok(None) };
    let Ok(template) = render::pod_template(&spec, None, &fleet.options) else { return Ok(None) };
    let named = references(&template, &spec.volume_claim_templates);
    let found = for_each_concurrent(named, OnFailure::Stop, |reference| async move {
        Ok((look_up(fleet, &reference).await?, reference))
    })
    .await?;
    let forbidden = found.iter().filter(|(existence, _)| *existence == Existence::Forbidden);
    unread.0.extend(forbidden.map(|(_, reference)| reference.kind));
    let missing = found.iter().filter(|(existence, _)| *existence == Existence::Missing);
    let missing: Vec<String> = missing.map(|(_, reference)| reference.is_missing()).collect();
    let [first, others @ ..] = missing.as_slice() else { return Ok(None) };
    Ok(Some(match others.len() {
        0 => first.clone(),
        more => format!("{first} ({more} more missing)"),
    }))
}

async fn look_up(fleet: &FleetScope, reference: &Reference) -> Result<Existence, ClusterError> {
    if !reference.is_possible() {
        return Ok(Existence::Missing);
    }
    let Reference { kind, name, .. } = reference;
    let (known, namespace) = (&fleet.caches.probes.existence, &fleet.fleet.meta.namespace);
    let key = format!("{kind}/{namespace}/{name}");
    let last = known.get(&key);
    let now = monotonic();
    if let Some(known) = last
        && now.duration_since(known.at) < known.lasts()
    {
        return Ok(known.existence);
    }
    let existence = match fleet.cluster.exists(kind_of(*kind), namespace, name).await {
        Ok(true) => Existence::Exists,
        Ok(false) => Existence::Missing,
        Err(ClusterError::Forbidden { .. }) => Existence::Forbidden,
        // One that is not old holds until there is another: a rollout that is under way need not stop.
        Err(error) => {
            let recent = last.filter(|known| now.duration_since(known.at) < HOLDS_FOR);
            return recent.map(|known| known.existence).ok_or(error);
        }
    };
    let is_same = |known: &Asked| known.existence == existence && now.duration_since(known.at) < HOLDS_FOR;
    let since = last.filter(is_same).map_or(now, |known| known.since);
    known.put(&key, Asked { at: now, since, existence });
    Ok(existence)
}

impl Asked {
    fn lasts(&self) -> Duration {
        match self.existence {
            Existence::Exists | Existence::Forbidden => KNOWN_FOR,
            Existence::Missing => (self.at.duration_since(self.since) / 4).clamp(MISSING_FOR, KNOWN_FOR),
        }
    }
}

fn kind_of(referent: Referent) -> Kind {
    match referent {
        Referent::ConfigMap => Kind::ConfigMap,
        Referent::PersistentVolumeClaim => Kind::PersistentVolumeClaim,
        Referent::PriorityClass => Kind::PriorityClass,
        Referent::Secret => Kind::Secret,
        Referent::ServiceAccount => Kind::ServiceAccount,
    }
}
