//! One reconcile of a WorkerDeployment: its observations, and the status that it writes.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;
use windlass_core::api::conditions::{self, STALLED, Truth, UP_TO_DATE};
use windlass_core::api::names::{ANNOTATION_ABORT, ANNOTATION_RESTARTED_AT, ANNOTATION_RETRY};
use windlass_engine::Plan;
use windlass_kube_port::{ClusterError, Event, EventBuffer, Kind, Part, PatchOp};

use crate::api::evacuation::digest;
use crate::api::names::ANNOTATION_EVACUATE;
use crate::api::{EvacuationRequest, Reason, WorkerDeploymentSpec, WorkerDeploymentStatus};
use crate::children::Children;
use crate::connect::{Connected, Unresolved};
use crate::context::Context;
use crate::observe::{self, Read};
use crate::planner::decide::AnnotationRequests;
use crate::planner::evacuate::PendingEvacuation;
use crate::planner::{Decision, Facts, TemporalState, status};
use crate::port::{BuildId, Paced, Temporal, TemporalError};
use crate::scope::WorkerScope;
use crate::secrets;

/// Writes a status if it changed, guarded by the resourceVersion that it is based on.
pub(crate) async fn save(
    cx: &Context,
    read: &Read,
    status: &WorkerDeploymentStatus,
) -> Result<(), ClusterError> {
    cx.metrics.set_reasons(&read.meta().namespace, &read.meta().name, &status.conditions);
    if *status == read.status && read.stored.object["status"].is_object() {
        return Ok(());
    }
    let op = PatchOp::set("/status", json!(status));
    cx.cluster.patch(read.write_target(), Part::Status, vec![op]).await.map(drop)
}

/// Reports that an object's spec or connection cannot be read.
pub(crate) async fn unreadable(
    cx: &Context,
    read: &Read,
    reason: Reason,
    sentence: &str,
) -> Result<(), ClusterError> {
    let (now, generation) = (cx.clock.now(), read.meta().generation);
    let mut status = read.status.clone();
    status.observed_generation = generation;
    for (type_, truth) in [(UP_TO_DATE, Truth::False), (STALLED, Truth::True)] {
        conditions::set(&mut status.conditions, type_, truth, reason.as_ref(), sentence, generation, now);
    }
    save(cx, read, &status).await
}

/// One reconcile.
pub(crate) struct Reconcile<'a> {
    pub cx: &'a Context,
    pub read: Read,
    pub facts: Facts,
    pub children: Arc<Children>,
    pub temporal: Option<Arc<dyn Temporal>>,
    pub recorder: EventBuffer,
    pub now: DateTime<Utc>,
    /// False if the hooks or manifests of the spec are invalid, or the hooks could not be checked: no rollout continues.
    pub is_accepted: bool,
    pub retry_after: Option<Duration>,
}

impl<'a> Reconcile<'a> {
    pub(super) async fn new(
        cx: &'a Context,
        read: Read,
        spec: WorkerDeploymentSpec,
        connected: Connected,
    ) -> Self {
        let Connected { connection, secrets_in } = connected;
        let port = match secrets_in {
            Ok(secrets_in) => cx.connections.connect(&secrets_in, &connection).await,
            Err(Unresolved { reason, message }) => Err(TemporalError::Unresolved { reason, message }),
        };
        let port = port.map(|port| {
            let paced = Paced::new(port, connection.clone(), cx.pace.clone(), cx.metrics.clone());
            Arc::new(paced) as Arc<dyn Temporal>
        });
        let children = cx.children(&read);
        let secrets = secrets::observe(cx, read.meta(), &connection).await;
        let (facts, retry_after) = observe::facts(&read, spec, connection, secrets, &children, &port).await;
        let children = Arc::new(children);
        let now = cx.clock.now();
        Self {
            cx,
            read,
            facts,
            children,
            temporal: port.ok(),
            recorder: EventBuffer::default(),
            now,
            is_accepted: true,
            retry_after,
        }
    }

    /// Observes the deployment in Temporal again, because the facts are stale.
    pub(crate) async fn observe_temporal_again(&mut self) {
        let Some(temporal) = self.temporal.clone() else { return };
        let Facts { spec, connection, secrets, .. } = self.facts.clone();
        (self.facts, _) =
            observe::facts(&self.read, spec, connection, secrets, &self.children, &Ok(temporal)).await;
    }

    pub(crate) fn record_event(&self, event: Event) {
        self.recorder.record(event);
    }

    /// Checks with a dry run that the API server accepts the target, until its Deployment exists. A failed check delays
    /// no other version: retiring one may free quota.
    pub(super) async fn check(&mut self, plan: Option<&Plan>) {
        observe::check_target(&mut self.facts, &self.children, plan).await;
        if let Some(sentence) = self.facts.invalid.clone() {
            let cause = format!("{}/{sentence}", self.facts.generation);
            self.record_event(Event::warning(Reason::InvalidSpec, cause, sentence));
        }
    }

    /// Accepts a restart request that is later than the last accepted one and than the object's creation.
    pub(super) fn obey_restart(&mut self) {
        let Some(text) = self.read.annotation(ANNOTATION_RESTARTED_AT) else { return };
        let Ok(at) = text.parse::<DateTime<Utc>>() else {
            let note = format!(
                "{ANNOTATION_RESTARTED_AT}: {text:?} is not an RFC 3339 time such as 2030-01-31T12:00:00Z; nothing is restarted"
            );
            self.record_event(Event::warning(Reason::InvalidSpec, note.clone(), note));
            return;
        };
        let time = |text: Option<&str>| text.and_then(|text| text.parse::<DateTime<Utc>>().ok());
        let obeyed = time(self.facts.status.restarted_at.as_deref());
        let created = self.read.meta().created_at;
        if obeyed.max(created).is_none_or(|before| at > before) && !self.facts.spec.paused {
            self.facts.status.restarted_at = Some(text.to_owned());
        }
    }

    pub(super) fn requests(&self) -> AnnotationRequests {
        let spent = self.read.status.spent_retry.as_deref();
        let retry = self.read.annotation(ANNOTATION_RETRY).filter(|words| spent != Some(words));
        AnnotationRequests {
            abort: self.read.annotation(ANNOTATION_ABORT).map(str::to_owned),
            retry: retry.map(str::to_owned),
            evacuation: self.pending_evacuation(),
        }
    }

    /// The requested evacuation, unless the status remembers it. A request from before the object was created was meant
    /// for an earlier object of its name.
    fn pending_evacuation(&self) -> Option<PendingEvacuation> {
        let text = self.read.annotation(ANNOTATION_EVACUATE)?;
        let digest = digest(text);
        let known = self.read.status.evacuation.as_ref();
        if known.is_some_and(|known| known.request == digest) {
            return None;
        }
        let created = self.read.meta().created_at;
        let request = EvacuationRequest::read(text).and_then(|request| {
            if created.is_none_or(|created| request.at >= created) {
                return Ok(request);
            }
            Err(format!(
                "{ANNOTATION_EVACUATE} is from before the object was created: request the evacuation again, with the current time \
                 as \"at\""
            ))
        });
        Some(PendingEvacuation { digest, request })
    }

    pub(crate) fn scope(&self) -> WorkerScope {
        WorkerScope {
            facts: Arc::new(self.facts.clone()),
            temporal: self.temporal.clone(),
            children: self.children.clone(),
            cluster: self.cx.cluster.clone(),
            recorder: self.recorder.clone(),
        }
    }

    /// Writes the status, then sends the recorded events.
    pub(crate) async fn finish(
        &self,
        mut status: WorkerDeploymentStatus,
        plan: Option<&Plan>,
        decision: &Decision,
        forgotten: &[BuildId],
    ) -> Result<(), ClusterError> {
        let mut facts = self.facts.clone();
        facts.status = status.clone();
        status::refresh(&mut status, &facts, plan, decision, forgotten, self.now);
        let lost = matches!(facts.temporal, TemporalState::Lost { .. });
        let with_workers = facts.versions.values().filter(|version| version.workers.is_some()).count();
        self.cx.metrics.seen(&facts.namespace, &facts.name, with_workers, lost);
        save(self.cx, &self.read, &status).await?;
        for event in self.recorder.take() {
            self.cx.events.record(Kind::WorkerDeployment, self.read.meta(), &event);
        }
        Ok(())
    }
}
