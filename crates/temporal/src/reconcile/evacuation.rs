//! Starts, refuses and ends evacuations.

use windlass_core::api::Ending;
use windlass_engine::{Plan, PlanState, control};
use windlass_kube_port::Event;

use super::state::Reconcile;
use crate::api::{EvacuationPhase, EvacuationStatus, Reason, WorkerDeploymentStatus};
use crate::planner::decide::AnnotationRequests;
use crate::planner::evacuate::{self, Evacuation};

impl Reconcile<'_> {
    /// The plan of a requested evacuation; the status remembers the request.
    pub(super) fn begin_evacuation(
        &self,
        evacuation: &Evacuation,
        before: Option<&Plan>,
        status: &mut WorkerDeploymentStatus,
        requests: &AnnotationRequests,
    ) -> Plan {
        let plan = evacuation.plan(&self.facts, before, self.now);
        let Evacuation { from, to, query } = evacuation;
        status.evacuation = Some(EvacuationStatus {
            request: request_digest(requests),
            plan_id: Some(plan.id.to_string()),
            from: Some(from.clone()),
            to: Some(to.clone()),
            query: query.clone(),
            ..EvacuationStatus::default()
        });
        let some = query.as_ref().map(|query| format!(" that match {query:?}")).unwrap_or_default();
        let note =
            format!("starting evacuation {}: pinned workflows{some} move from {from} to {to}", plan.id);
        self.record_event(Event::normal(Reason::EvacuationStarted, &plan.id, note));
        plan
    }

    /// Remembers a request that is not possible.
    pub(super) fn refuse_evacuation(
        &self,
        status: &mut WorkerDeploymentStatus,
        requests: &AnnotationRequests,
        message: &str,
    ) {
        let digest = request_digest(requests);
        let request = requests.evacuation.as_ref().and_then(|pending| pending.request.as_ref().ok());
        status.evacuation = Some(EvacuationStatus {
            request: digest.clone(),
            phase: EvacuationPhase::Refused,
            from: request.map(|request| request.from.clone()),
            to: request.map(|request| request.to.clone()),
            query: request.and_then(|request| request.query.clone()),
            message: message.to_owned(),
            ..EvacuationStatus::default()
        });
        let note = format!("the requested evacuation is refused: {message}");
        self.record_event(Event::warning(Reason::EvacuationRefused, digest, note));
    }

    /// Ends a plan if it is an active evacuation, and stops its batch. Workflows that have moved stay where they are.
    pub(super) async fn end_evacuation(
        &self,
        plan: Option<&mut Plan>,
        status: &mut WorkerDeploymentStatus,
        ending: Ending,
        why: &str,
    ) {
        let Some(plan) = plan.filter(|plan| evacuate::active(Some(plan)).is_some()) else { return };
        let mut message = why.to_owned();
        if let (Some(task), Some(temporal)) = (evacuate::running_batch(plan), &self.temporal) {
            let id = evacuate::job_id(task);
            let reason = "the evacuation of this batch has ended";
            match temporal.stop_batch(&id, reason, &self.facts.identity).await {
                Ok(()) => {
                    message = format!(
                        "{why}; Temporal counts by the thousand, so more workflows may have moved than shown"
                    );
                }
                Err(error) => message = format!("{why}; could not stop batch {id}, which continues: {error}"),
            }
        }
        let event = if ending == Ending::Aborted {
            control::abort(plan, self.now);
            Event::warning(Reason::EvacuationAborted, &plan.id, format!("evacuation {}: {message}", plan.id))
        } else {
            control::supersede(plan, self.now);
            Event::normal(
                Reason::EvacuationSuperseded,
                &plan.id,
                format!("evacuation {}: {message}", plan.id),
            )
        };
        self.record_event(event);
        let reason = if ending == Ending::Aborted { Reason::Aborted } else { Reason::Superseded };
        self.record(status, plan, ending, reason, &message);
        show(status, plan, message);
    }

    /// Records an evacuation whose tasks have ended.
    pub(super) fn record_evacuation(&self, status: &mut WorkerDeploymentStatus, plan: &Plan) {
        if plan.state == PlanState::Complete {
            let moved = Evacuation::of(plan)
                .map(|of| format!("the workflows have moved from {} to {}", of.from, of.to));
            let note = format!("evacuation {} is complete: {}", plan.id, moved.unwrap_or_default());
            self.record_event(Event::normal(Reason::EvacuationComplete, &plan.id, note));
            self.record(status, plan, Ending::Complete, Reason::EvacuationComplete, "");
        } else {
            self.record_event(Event::warning(Reason::EvacuationFailed, &plan.id, plan.failure.clone()));
            self.record(status, plan, Ending::Failed, Reason::EvacuationFailed, &plan.failure);
        }
        show(status, plan, plan.failure.clone());
    }
}

/// The last update of an evacuation's status: another plan may replace its own in the same write.
fn show(status: &mut WorkerDeploymentStatus, plan: &Plan, message: String) {
    if let Some(shown) = &mut status.evacuation {
        shown.message = message;
        evacuate::refresh(shown, plan);
    }
}

fn request_digest(requests: &AnnotationRequests) -> String {
    requests.evacuation.as_ref().map(|pending| pending.digest.clone()).unwrap_or_default()
}
