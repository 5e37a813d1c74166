//! `switch-traffic`: the fleet's Service selects the new set.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{FleetScope, entrants};
use crate::api::Stage;
use crate::api::names::ANNOTATION_SWITCHED_TO;
use crate::apply::patches::metadata_ops;
use crate::cluster::{Kind, Part, PatchOp, Target};
use crate::engine::{Outcome, Task, TaskContext, TaskError};
use crate::observe::is_switched;
use crate::render::{MetadataChange, fleet_selector};

/// Moves the fleet's Service to the entrants, in one write. What follows from it is the status's business.
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
            && is_switched(service, &rollout.entrant)
            && service.spec.value()["selector"]
                == serde_json::json!(fleet_selector(&meta.name, &rollout.entrant))
        {
            // They carry the traffic already: what they need from now on they get in waves.
            return Ok(Outcome::Done);
        }
        let entrants = match entrants::keep_up(fleet, &cx.plan.id).await? {
            Ok(entrants) => entrants,
            Err(waiting) => return Ok(waiting),
        };
        // Nothing may be moved before it is persisted that it will be.
        let rollout = &entrants.rollout;
        if rollout.stage != Stage::Promoting {
            return Ok(Outcome::waiting("waiting for the promotion to be recorded"));
        }
        let ready = entrants.may_take_over(fleet, cx.plan);
        if ready != Outcome::Done {
            return Ok(ready);
        }
        if service().is_none() && fleet.spec.service.is_some() && fleet.invalid.is_none() {
            return Ok(Outcome::waiting("waiting for the fleet's Service to be there"));
        }
        if let Some(service) = service() {
            let selector = serde_json::json!(fleet_selector(&meta.name, &rollout.entrant));
            if service.spec.value()["selector"] != selector || !is_switched(&service, &rollout.entrant) {
                let target = Target::of(Kind::Service, &service.meta);
                let entrant = rollout.entrant.clone();
                let moved = MetadataChange {
                    annotations: [(ANNOTATION_SWITCHED_TO.to_owned(), Some(entrant))].into(),
                    ..MetadataChange::default()
                };
                let mut ops = metadata_ops(&service.meta, &moved);
                ops.push(PatchOp::set("/spec/selector", selector));
                if let Err(outcome) = super::written(fleet.cluster.patch(target, Part::Main, ops).await) {
                    return outcome;
                }
            }
        }
        Ok(Outcome::Done)
    }
}
