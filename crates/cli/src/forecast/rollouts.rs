//! Forecasts the effect of a change of a StatefulSetRollout, or of nothing: its StatefulSets, as fleets whose nodes are pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::Client;
use serde_json::{Value, json};

use super::change::{After, after};
use super::cluster::DryRunCluster;
use super::{Change, Examined, Field, Forecast, Outcome, before, fields, hooks, newer};
use crate::extension::pending_changes;
use crate::reader::Sight;
use crate::report::{observer_behind, short_revision};
use windlass::internal::{RolloutScope, rollout_scope};
use windlass_core::api::{StatefulSetRolloutSpec, StatefulSetStatus};
use windlass_core::planner::fleet::pods::{Mode, PodSet};
use windlass_core::revision::drift;
use windlass_kube_port::observed::{Observed, ObservedPod, ObservedRollout};
use windlass_kube_port::{Cluster, Kind, KubeCluster, View};

const KIND: Kind = Kind::StatefulSetRollout;

/// Forecasts the effect of a change of a StatefulSetRollout. An error says why that is impossible.
pub async fn forecast_rollout(
    client: &Client,
    namespace: &str,
    name: &str,
    change: &Change,
    now: DateTime<Utc>,
) -> Result<Forecast, String> {
    let before = before(client, (KIND, namespace, name)).await?;
    let mut forecast = Forecast::new(KIND, namespace, name);
    forecast.is_new = before.is_none();
    let (object, unchecked) = match after(client, (KIND, namespace, name), before.as_ref(), change).await? {
        After::Refused(sentence) => {
            forecast.refuse(sentence);
            return Ok(forecast);
        }
        After::Taken(object, unchecked) => (newer(object), unchecked),
    };
    let sight = Sight::of_stateful_sets(client, namespace).await;
    if let Some(before) = &before {
        sight.view.observe(KIND, before);
    }
    let inner: Arc<dyn Cluster> = Arc::new(KubeCluster::new(client.clone(), View::shared()));
    let dry = Arc::new(DryRunCluster::new(inner, sight.view.clone()));
    let cluster: Arc<dyn Cluster> = dry.clone();
    let old = before.as_ref().map(ObservedRollout::read);
    let was = match &old {
        Some(old) => scope(old, &sight.view, &cluster, now).await?,
        None => None,
    };
    let unseen = was.as_ref().and_then(|was| observer_behind(&was.scope.fleet));
    let new = ObservedRollout::read(&object);
    sight.view.rollouts.observe(new.clone());
    forecast.begin_rollout(old.as_ref(), &new);
    forecast.unread = sight.unread.iter().cloned().chain(unchecked).collect();
    if new.meta.terminating {
        forecast.is_deleted();
        return Ok(forecast);
    }
    let Some(RolloutScope { scope, sets, missing }) = scope(&new, &sight.view, &cluster, now).await? else {
        forecast.refuse(new.spec.as_ref().err().cloned().unwrap_or_default());
        return Ok(forecast);
    };
    forecast.limit_to(&scope.spec);
    let status = old.as_ref().map(|old| &old.status.rollout);
    // The view has the pods of all StatefulSets.
    let is_of = |pod: &ObservedPod| sets.iter().any(|of| of.has(&pod.meta.name));
    forecast.unread.extend(sight.read_domains(client, scope.spec.topology(), status, is_of).await);
    let has_hooks = !scope.spec.update_strategy.hooks.is_empty();
    let is_known = sight.has_read(Kind::StatefulSet) && sight.has_read(Kind::Pod);
    let hash_before = was.as_ref().map(|was| was.scope.requested());
    let mut scope = scope;
    scope.block(scope.check_windows_and_order());
    forecast.unread.extend(hooks::check(&mut scope, KIND).await);
    let examined = Examined { scope, cluster: &dry, now };
    examined.forecast_into(&mut forecast, hash_before.as_ref(), unseen).await?;
    if !is_known {
        forecast.leave_nodes_out();
        return Ok(forecast);
    }
    forecast.add_sets(&sets);
    forecast.add_pending(client, &sets).await;
    forecast.waits.extend(missing.iter().map(|name| format!("StatefulSet {name} does not exist yet")));
    if has_hooks {
        forecast.unread.push(hooks::FLAGS_NOT_CHECKED.to_owned());
    }
    forecast.unread.extend(dry.unchecked());
    Ok(forecast)
}

async fn scope(
    rollout: &ObservedRollout,
    view: &Arc<View>,
    cluster: &Arc<dyn Cluster>,
    now: DateTime<Utc>,
) -> Result<Option<RolloutScope>, String> {
    rollout_scope(rollout, view, cluster, now).await.map_err(|error| error.to_string())
}

impl Forecast {
    /// Adds the changed fields, all of which apply at once: the templates belong to others.
    fn begin_rollout(&mut self, before: Option<&ObservedRollout>, after: &ObservedRollout) {
        let spec = |of: &ObservedRollout| of.spec.as_ref().ok().map(|spec| value(spec));
        if let (Some(before), Some(after)) = (before.and_then(spec), spec(after)) {
            self.at_once = fields(drift::between(&before, &after));
        }
        if self.is_new || !self.at_once.is_empty() {
            self.outcome = Outcome::Changes;
        }
    }

    /// Adds what happens to the update strategies, and, if nothing else happens, that no pod restarts.
    fn add_sets(&mut self, sets: &[PodSet]) {
        if self.outcome == Outcome::Refused {
            return;
        }
        let not_held: Vec<&PodSet> = sets.iter().filter(|of| Mode::of(&of.set) == Mode::Native).collect();
        let held = |of: &&PodSet| {
            let s = if of.set.replicas == 1 { "" } else { "s" };
            format!(
                "StatefulSet {}, {} pod{s}: Windlass sets its updateStrategy so that only Windlass updates its pods; this \
                 alone restarts no pod",
                of.set.meta.name, of.set.replicas
            )
        };
        self.holds = not_held.iter().map(held).collect();
        if !self.holds.is_empty() {
            self.outcome = Outcome::Changes;
        }
        let is_pending = sets.iter().any(|of| of.current_revision() != of.update_revision);
        if self.happens.is_empty() && self.waves.is_empty() && !sets.is_empty() && !is_pending {
            "no pod restarts: each StatefulSet is at its update revision".clone_into(&mut self.happens);
        }
    }

    /// Adds the pending updates: from which revision to which, and what differs.
    async fn add_pending(&mut self, client: &Client, sets: &[PodSet]) {
        let is_pending = |of: &&PodSet| of.current_revision() != of.update_revision;
        let pending: Vec<StatefulSetStatus> =
            sets.iter().filter(is_pending).map(|of| of.status(Mode::of(&of.set) != Mode::Native)).collect();
        if pending.is_empty() {
            return;
        }
        let changes = pending_changes(client, &self.namespace, pending.clone()).await;
        let changes = changes.unwrap_or_else(|sentence| {
            self.unread.push(format!("differences between revisions not shown, because {sentence}"));
            BTreeMap::new()
        });
        for set in &pending {
            let short = |revision: &str| Some(short_revision(revision, &set.name).to_owned());
            self.pending.push(Field {
                path: format!("StatefulSet {}: revision", set.name),
                from: short(&set.current_revision),
                to: short(&set.update_revision),
            });
            self.pending.extend(changes.get(&set.name).into_iter().flatten().cloned());
        }
    }
}

fn value(spec: &StatefulSetRolloutSpec) -> Value {
    json!(spec)
}

#[cfg(test)]
mod tests;
