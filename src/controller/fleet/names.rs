//! Chooses the name of a new set of nodes. The API server is asked which names are taken.

use std::time::Duration;

use super::context::Fleet;
use crate::api::SetName;
use crate::cache::Sighting;
use crate::cache::probes::NamingFailure;
use crate::clock::monotonic;
use crate::planner::fleet::sets::naming::{self, Naming, SetNameAnswer};
use crate::planner::fleet::{Blocker, FleetDecision, FleetFacts, Start};
use windlass_kube_port::Kind;

/// The kinds whose names the objects of a new set could collide with.
pub const KINDS_OF_A_SET: [Kind; 5] =
    [Kind::StatefulNode, Kind::StatefulSet, Kind::Service, Kind::Pod, Kind::PersistentVolumeClaim];

/// How soon names are listed again if none was free, or if lists keep failing.
const NAMES_RELIST_INTERVAL: Duration = Duration::from_secs(25);
/// How soon names are listed again if the list failed for less than [`A_MOMENT`].
const NAMES_RETRY_INTERVAL: Duration = Duration::from_secs(4);
/// How long lists may fail before the failure no longer counts as transient.
const A_MOMENT: Duration = Duration::from_secs(10);

impl Fleet<'_> {
    /// Asks which name is free for the set that a decision makes, if that has to be asked.
    pub(super) async fn ask_for_name(&self, facts: &FleetFacts, decision: &FleetDecision) -> SetNameAnswer {
        let Naming::ToBeChosen(start) = naming::of(facts, decision, self.now) else {
            // An earlier failure to list names is over.
            self.scope.sightings.end(&self.scope.fleet.meta.uid, &Sighting::NamesUnlisted);
            return SetNameAnswer::NotAsked;
        };
        match self.free_name(facts, start).await {
            Ok(set) => SetNameAnswer::Free(start.target.clone(), set),
            Err(NamingFailure { sentence, is_transient, .. }) => {
                let blocker = if is_transient { Blocker::Unanswered } else { Blocker::NoSetName };
                SetNameAnswer::None(blocker(sentence))
            }
        }
    }

    async fn free_name(&self, facts: &FleetFacts, start: &Start) -> Result<SetName, NamingFailure> {
        let meta = &self.scope.fleet.meta;
        // Lists of large namespaces are expensive: a recent failure is returned again without another list.
        let known = &self.scope.caches.probes.naming_failure;
        let question = (meta.uid.clone(), start.target.to_string());
        let (before, asked) = (known.get(&question), monotonic());
        let age = |naming_failure: &NamingFailure| asked.duration_since(naming_failure.asked);
        let wait = |naming_failure: &NamingFailure| {
            if naming_failure.is_transient { NAMES_RETRY_INTERVAL } else { NAMES_RELIST_INTERVAL }
        };
        if let Some(naming_failure) =
            before.as_ref().filter(|naming_failure| age(naming_failure) < wait(naming_failure))
        {
            return Err(naming_failure.clone());
        }
        let naming_failure = match self.taken_names().await {
            Ok(taken) => {
                let first_choice = naming::first_choice(&start.target, facts.spec.build_id.as_ref());
                self.scope.sightings.end(&meta.uid, &Sighting::NamesUnlisted);
                match naming::choose(&meta.name, &first_choice, facts.spec.replicas, &taken) {
                    Ok(set) => {
                        known.take(&question);
                        return Ok(set);
                    }
                    Err(sentence) => NamingFailure { sentence, asked, is_transient: false },
                }
            }
            Err(sentence) => {
                let unlisted_for = self.scope.sightings.elapsed(&meta.uid, Sighting::NamesUnlisted);
                NamingFailure { sentence, asked, is_transient: unlisted_for < A_MOMENT }
            }
        };
        known.put(&question, naming_failure.clone());
        Err(naming_failure)
    }

    async fn taken_names(&self) -> Result<Vec<String>, String> {
        let mut taken = Vec::new();
        for kind in KINDS_OF_A_SET {
            let names = self.scope.cluster.names(kind, &self.scope.fleet.meta.namespace).await;
            taken.extend(names.map_err(|error| {
                format!(
                    "could not choose a name for the new set of nodes: listing every {} failed: {error}",
                    kind.name()
                )
            })?);
        }
        Ok(taken)
    }
}
