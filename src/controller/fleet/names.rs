//! Chooses the name of a new set of nodes. The API server is asked which names are taken.

use std::time::Duration;

use super::context::Fleet;
use crate::api::SetName;
use crate::clock::monotonic;
use crate::cluster::Kind;
use crate::cluster::memory::Nameless;
use crate::planner::fleet::sets::naming;
use crate::planner::fleet::{FleetDecision, FleetFacts};

/// The kinds whose names the objects of a new set could collide with.
pub const KINDS_OF_A_SET: [Kind; 5] =
    [Kind::StatefulNode, Kind::StatefulSet, Kind::Service, Kind::Pod, Kind::PersistentVolumeClaim];

/// How soon names are listed again if none was free, or if lists keep failing.
const ASK_FOR_NAMES: Duration = Duration::from_secs(25);
/// How soon names are listed again if the list failed for less than [`A_MOMENT`].
const ASK_ONCE_MORE: Duration = Duration::from_secs(4);
/// How long lists may fail before the failure no longer counts as transient.
const A_MOMENT: Duration = Duration::from_secs(10);

impl Fleet<'_> {
    /// The name of the set that a decision makes, if it makes one. The error is why there is no name.
    pub(super) async fn name_for(
        &self,
        facts: &FleetFacts,
        decision: &FleetDecision,
    ) -> Result<Option<SetName>, Nameless> {
        let (FleetDecision::Start(start)
        | FleetDecision::Supersede(start)
        | FleetDecision::CompleteAndStart(start)) = decision
        else {
            return Ok(None);
        };
        if !start.strategy.makes_set() {
            return Ok(None);
        }
        if let Some(rollout) = facts.same_set(start) {
            return Ok(Some(rollout.entrant.clone()));
        }
        if let Some(set) = facts.living_set(self.now) {
            return Ok(Some(set.clone()));
        }
        let meta = &self.scope.fleet.meta;
        // Lists of large namespaces are expensive: a recent failure is returned again without another list.
        let known = &self.scope.memory.nameless;
        let question = (meta.uid.clone(), start.target.to_string());
        let (before, asked) = (known.get(&question), monotonic());
        let age = |nameless: &Nameless| asked.duration_since(nameless.asked);
        let wait = |nameless: &Nameless| if is_transient(nameless) { ASK_ONCE_MORE } else { ASK_FOR_NAMES };
        if let Some(nameless) = before.as_ref().filter(|nameless| age(nameless) < wait(nameless)) {
            return Err(nameless.clone());
        }
        let nameless = match self.taken_names().await {
            Ok(taken) => {
                let first_choice = naming::first_choice(&start.target, facts.spec.build_id.as_ref());
                match naming::choose(&meta.name, &first_choice, facts.spec.replicas, &taken) {
                    Ok(set) => {
                        known.take(&question);
                        return Ok(Some(set));
                    }
                    Err(sentence) => Nameless { sentence, asked, unanswered_since: None },
                }
            }
            Err(sentence) => {
                // An older failure is not part of this one.
                let lately = before.filter(|nameless| age(nameless) < ASK_FOR_NAMES * 2);
                let since = lately.and_then(|nameless| nameless.unanswered_since).unwrap_or(asked);
                Nameless { sentence, asked, unanswered_since: Some(since) }
            }
        };
        known.put(&question, nameless.clone());
        Err(nameless)
    }

    async fn taken_names(&self) -> Result<Vec<String>, String> {
        let mut taken = Vec::new();
        for kind in KINDS_OF_A_SET {
            let names = self.scope.cluster.names(kind, &self.scope.fleet.meta.namespace).await;
            taken.extend(names.map_err(|error| {
                format!(
                    "a new set of nodes cannot be named now: listing every {} failed: {error}",
                    kind.name()
                )
            })?);
        }
        Ok(taken)
    }
}

/// True if a set has no name only because lists have failed for a short time.
pub(super) fn is_transient(nameless: &Nameless) -> bool {
    nameless.unanswered_since.is_some_and(|since| nameless.asked.duration_since(since) < A_MOMENT)
}
