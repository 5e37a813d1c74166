//! The data of the ConfigMaps and Secrets that a fleet's pod template names: a digest of it is a part of the template.

use std::time::Duration;

use crate::api::conditions::{self, STALLED};
use crate::cache::Sighting;
use crate::controller::{Context, ReconcileError};
use crate::revision::config::{self, ConfigReference};
use windlass_kube_port::follow::Answer;
use windlass_kube_port::observed::ObservedFleet;

/// How long a change is left alone: several objects may be applied one after the other, and kubelets have to see it, too.
const SETTLES_IN: Duration = Duration::from_secs(5);

/// The digest that a reconcile works with.
#[derive(Default)]
pub(super) struct Config {
    /// The digest; `None` if the template names no objects.
    pub(super) digest: Option<String>,
    /// When a change is taken over, if one is left alone.
    pub(super) settles_in: Option<Duration>,
    /// Which object cannot be read, in a sentence.
    pub(super) unread: Option<String>,
}

/// Reads what the fleet's template names. A change that comes while nodes are updated waits for the end of the rollout, unless
/// that is stalled: otherwise a Secret that is renewed often would keep a rollout from ending.
pub(super) async fn look(cx: &Context, fleet: &ObservedFleet) -> Result<Config, ReconcileError> {
    let Ok(spec) = &fleet.spec else { return Ok(Config::default()) };
    let (meta, status) = (&fleet.meta, &fleet.status);
    let named = config::references(&spec.template.spec.pod_template).unwrap_or_default();
    cx.followed.follow(&meta.key(), &named);
    if named.is_empty() {
        return Ok(Config::default());
    }
    let recorded = status.config_digest.as_str();
    let answers = match cx.followed.read(cx.cluster.as_ref(), &meta.namespace, &named).await {
        Ok(answers) => answers,
        Err(_) if !recorded.is_empty() => {
            return Ok(Config { digest: Some(recorded.to_owned()), ..Config::default() });
        }
        Err(error) => return Err(ReconcileError::Observe(error)),
    };
    let seen = |reference: &ConfigReference| match answers.get(reference)? {
        Answer::Digest(digest) => Some(digest.clone()),
        Answer::Missing | Answer::Refused(_) => None,
    };
    let unread = named.iter().find_map(|reference| match answers.get(reference)? {
        Answer::Refused(why) => {
            Some(format!("a change of {reference} restarts no pod, since it cannot be read: {why}"))
        }
        Answer::Digest(_) | Answer::Missing => None,
    });
    let live = config::compose(&named, recorded, seen);
    let differs = Sighting::ConfigDiffers(live.clone());
    let is_stalled = conditions::is_true(&status.conditions, STALLED);
    let is_moving = status.rollout.as_ref().is_some_and(|rollout| rollout.nodes.updated > 0) && !is_stalled;
    let is_new = recorded.is_empty() || status.observed_generation != meta.generation;
    let waits = if live == recorded {
        cx.sightings.end(&meta.uid, &differs);
        None
    } else if is_moving {
        Some(None)
    } else if is_new {
        None
    } else {
        let left = SETTLES_IN.saturating_sub(cx.sightings.elapsed(&meta.uid, differs));
        (!left.is_zero()).then_some(Some(left))
    };
    Ok(match waits {
        Some(settles_in) => Config { digest: Some(recorded.to_owned()), settles_in, unread },
        None => Config { digest: Some(live), settles_in: None, unread },
    })
}
