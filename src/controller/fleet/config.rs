//! The data of the ConfigMaps and Secrets that a fleet's pod template names: a digest of it is a part of the template.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::api::conditions::{self, STALLED, UP_TO_DATE};
use crate::api::names::ANNOTATION_RESTART_ON;
use crate::api::{Reason, Stage};
use crate::cache::Sighting;
use crate::controller::{Context, ReconcileError};
use crate::engine::sentence::some_of;
use crate::revision::config::{self, ConfigReference};
use windlass_kube_port::follow::{ASK_AGAIN_AFTER, Answer};
use windlass_kube_port::observed::{ObservedFleet, ObservedNode};

/// How long a change is left alone: several objects may be applied one after the other, and kubelets have to see it, too.
const SETTLES_IN: Duration = Duration::from_secs(5);
/// The requeue delay after a read that failed.
const LOOK_AGAIN_SOON: Duration = Duration::from_secs(5);

/// The digest that a reconcile works with.
#[derive(Default)]
pub(super) struct Config {
    /// The digest; `None` if the template names no objects.
    pub(super) digest: Option<String>,
    /// When to look again, if a change is left alone, or an object could not be read.
    pub(super) look_again: Option<Duration>,
    /// Which object does not exist or cannot be read, in a sentence.
    pub(super) unread: Option<String>,
    /// Which change is left alone until now, in a sentence.
    pub(super) pending: Option<String>,
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
    // A status that was lost is no change of the data: the nodes say what they were created with.
    let of_nodes = || {
        let nodes = cx.view.nodes.group(&meta.namespace, &meta.uid);
        let digest = |node: &Arc<ObservedNode>| {
            let digest = config::digest_in(&node.spec.as_ref().ok()?.pod_template).to_owned();
            (!digest.is_empty()).then_some(digest)
        };
        nodes.iter().find_map(digest).unwrap_or_default()
    };
    let recorded = status.config_digest.as_str();
    let recorded = if recorded.is_empty() { of_nodes() } else { recorded.to_owned() };
    let recorded = recorded.as_str();
    // What has not been rolled out yet is rolled out with the data as it is now.
    let is_blocked = status.rollout.is_none()
        && status.requested_rollout_hash != status.last_completed_rollout_hash
        && conditions::find(&status.conditions, UP_TO_DATE)
            .is_some_and(|condition| condition.reason == Reason::InvalidSpec.as_ref());
    let is_new = recorded.is_empty() || status.observed_generation != meta.generation || is_blocked;
    let answers = match cx.followed.read(cx.cluster.as_ref(), &meta.namespace, &named).await {
        Ok(answers) => answers,
        // Nothing else would report the change again.
        Err(error) if !is_new => {
            warn!(fleet = %meta.key(), %error, "a ConfigMap or Secret cannot be read; will retry");
            return Ok(Config {
                digest: Some(recorded.to_owned()),
                look_again: Some(LOOK_AGAIN_SOON),
                ..Config::default()
            });
        }
        Err(error) => return Err(ReconcileError::Observe(error)),
    };
    let seen = |reference: &ConfigReference| match answers.get(reference)? {
        Answer::Found { digest, .. } => Some(digest.clone()),
        Answer::Missing | Answer::Refused(_) => None,
    };
    let unread = named.iter().find_map(|reference| match answers.get(reference)? {
        Answer::Refused(why) => {
            Some(format!("a change of {reference} restarts no pod, since it cannot be read: {why}"))
        }
        Answer::Missing => Some(format!("{ANNOTATION_RESTART_ON} names {reference}, which does not exist")),
        Answer::Found { .. } => None,
    });
    let live = config::compose(&named, recorded, seen);
    // Nothing reports a change without the right to watch.
    let is_refused = answers.values().any(|answer| matches!(answer, Answer::Refused(_)));
    let is_watched = cx.followed.are_watched(&meta.namespace, &named);
    let again = (is_refused || !is_watched).then_some(ASK_AGAIN_AFTER);
    let differs = Sighting::ConfigDiffers(live.clone());
    let is_stalled = conditions::is_true(&status.conditions, STALLED);
    // Where the clock stands, the rollout waits for something that may take long.
    let is_moving = status.rollout.as_ref().is_some_and(|rollout| {
        rollout.nodes.updated > 0 && !rollout.progress_paused && rollout.stage != Stage::Retiring
    });
    let left = if live == recorded {
        cx.sightings.end(&meta.uid, &differs);
        None
    } else if is_new {
        None
    } else {
        let left = SETTLES_IN.saturating_sub(cx.sightings.elapsed(&meta.uid, differs));
        // The end of the rollout causes another reconcile.
        if is_moving && !is_stalled { Some(None) } else { (!left.is_zero()).then_some(Some(left)) }
    };
    Ok(match left {
        Some(left) => Config {
            digest: Some(recorded.to_owned()),
            look_again: left.into_iter().chain(again).min(),
            unread,
            pending: Some(format!(
                "the data of {} has changed: Windlass restarts the pods next",
                some_of(&config::changed(recorded, &live))
            )),
        },
        None => Config { digest: Some(live), look_again: again, unread, pending: None },
    })
}
