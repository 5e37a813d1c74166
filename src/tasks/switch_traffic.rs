//! `switch-traffic`: the fleet's Service selects the new set.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::entrants::Ensured;
use super::{FleetScope, entrants};
use crate::api::Stage;
use crate::apply::fleet_pods::REQUEUE_STALE_PODS;
use crate::apply::{fleet_objects, traffic};
use crate::engine::{Outcome, Task, TaskContext, TaskError};
use windlass_kube_port::{Kind, Part, Target};

/// Moves the fleet's Service to the entrants, in one patch. The status write records what follows from that.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchTraffic {}

#[typetag::serde(name = "switch-traffic")]
#[async_trait]
impl Task for SwitchTraffic {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let meta = &fleet.fleet.meta;
        let service = || {
            let service = fleet.view.services.get(&meta.key()).filter(|s| fleet.owns(&s.meta))?;
            (!service.meta.terminating && fleet.spec.service.is_some()).then_some(service)
        };
        if let (Some(rollout), Some(service)) = (fleet.set_rollout(), service().as_deref())
            && rollout.stage == Stage::Promoting
            && traffic::is_at(service, &rollout.entrant)
        {
            // The entrants carry the traffic already: further changes to them are limited by waves.
            return Ok(Outcome::Done);
        }
        let entrants = match entrants::ensure_entrants(fleet, &cx.plan.id).await? {
            Ensured::Whole(entrants) => entrants,
            Ensured::NotNow(outcome) => return Ok(outcome),
        };
        // Traffic must not move before it is persisted that it will.
        let rollout = &entrants.rollout;
        if rollout.stage != Stage::Promoting {
            return Ok(Outcome::waiting("waiting for the promotion to be recorded"));
        }
        let ready = entrants.may_take_over(fleet, cx.plan);
        if ready != Outcome::Done {
            return Ok(ready);
        }
        // The Service of this name selects what it did, and the set that it selects would be removed.
        if let Some(sentence) = fleet_objects::taken_service(fleet) {
            return Ok(Outcome::waiting(format!("waiting for the fleet's Service: {sentence}")));
        }
        if service().is_none() && fleet.spec.service.is_some() && fleet.blocker.is_none() {
            return Ok(Outcome::waiting("waiting for the fleet's Service to exist"));
        }
        if let Some(service) = service().filter(|service| !traffic::is_at(service, &rollout.entrant)) {
            // A cache may lag while a node goes down.
            if let Some(differs) = fleet.find_stale_pods(&entrants.view.children, &[]).await? {
                return Ok(Outcome::recheck(differs, REQUEUE_STALE_PODS));
            }
            let target = Target::of(Kind::Service, &service.meta);
            let ops = traffic::move_to(&service, &rollout.entrant);
            if let Err(error) = fleet.cluster.patch(target, Part::Main, ops).await {
                return super::not_written(error);
            }
        }
        Ok(Outcome::Done)
    }
}
