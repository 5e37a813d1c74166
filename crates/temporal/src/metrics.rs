//! The metrics of WorkerDeployments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use windlass_core::api::Condition;
use windlass_core::api::conditions::{self, STALLED, UP_TO_DATE};

use crate::port::TemporalError;

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    rollouts: Family<OutcomeLabels, Counter>,
    versions: Family<ObjectLabels, Gauge>,
    unreachable: Family<ObjectLabels, Gauge>,
    up_to_date: Reasons,
    stalled: Reasons,
}

/// The reason of a condition of each object, in a series with the value 1.
#[derive(Clone, Debug, Default)]
struct Reasons {
    series: Family<ReasonLabels, Gauge>,
    /// The current reasons, to remove the series of an object when its reason changes.
    current: Arc<Mutex<HashMap<ObjectLabels, String>>>,
}

impl Reasons {
    fn set(&self, labels: &ObjectLabels, reason: Option<&str>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match reason {
            Some(reason) => current.insert(labels.clone(), reason.to_owned()),
            None => current.remove(labels),
        };
        if let Some(before) = before.filter(|before| Some(before.as_str()) != reason) {
            self.series.remove(&labels.with_reason(&before));
        }
        if let Some(reason) = reason {
            self.series.get_or_create(&labels.with_reason(reason)).set(1);
        }
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReasonLabels {
    namespace: String,
    name: String,
    reason: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RequestLabels {
    rpc: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabels {
    outcome: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ObjectLabels {
    namespace: String,
    name: String,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "windlass_temporal_requests",
            "Requests to Temporal, by RPC and outcome",
            self.requests.clone(),
        );
        registry.register(
            "windlass_worker_rollouts",
            "Rollouts of WorkerDeployments that ended, by outcome",
            self.rollouts.clone(),
        );
        registry.register(
            "windlass_worker_versions",
            "Versions of a WorkerDeployment that have workers",
            self.versions.clone(),
        );
        registry.register(
            "windlass_temporal_unreachable",
            "1 while the state of a WorkerDeployment in Temporal is unknown",
            self.unreachable.clone(),
        );
        registry.register(
            "windlass_worker_up_to_date_reason",
            "The reason of a WorkerDeployment's condition UpToDate; always 1",
            self.up_to_date.series.clone(),
        );
        registry.register(
            "windlass_worker_stalled",
            "1 while a WorkerDeployment's condition Stalled is True, with its reason",
            self.stalled.series.clone(),
        );
    }

    /// The metrics in the Prometheus text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut registry = Registry::default();
        self.register(&mut registry);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }

    /// The number of requests of an RPC, with any outcome.
    #[must_use]
    pub fn requests(&self, rpc: &'static str) -> u64 {
        OUTCOMES
            .iter()
            .map(|outcome| self.requests.get_or_create(&RequestLabels { rpc, outcome }).get())
            .sum()
    }

    pub(crate) fn count_request(&self, rpc: &'static str, error: Option<&TemporalError>) {
        let outcome = match error {
            None => OUTCOMES[0],
            Some(TemporalError::RateLimited { .. }) => OUTCOMES[1],
            Some(TemporalError::Unreachable { .. }) => OUTCOMES[2],
            Some(TemporalError::NotFound { .. }) => OUTCOMES[3],
            Some(_) => OUTCOMES[4],
        };
        self.requests.get_or_create(&RequestLabels { rpc, outcome }).inc();
    }

    pub(crate) fn count_rollout(&self, outcome: &str) {
        self.rollouts.get_or_create(&OutcomeLabels { outcome: outcome.to_owned() }).inc();
    }

    pub(crate) fn seen(&self, namespace: &str, name: &str, versions: usize, lost: bool) {
        let labels = ObjectLabels::new(namespace, name);
        self.versions.get_or_create(&labels).set(versions as i64);
        self.unreachable.get_or_create(&labels).set(i64::from(lost));
    }

    /// Sets the reasons of an object's conditions: UpToDate, and Stalled while it is True.
    pub(crate) fn set_reasons(&self, namespace: &str, name: &str, conditions: &[Condition]) {
        let labels = ObjectLabels::new(namespace, name);
        let reason =
            |type_: &str| conditions::find(conditions, type_).map(|condition| condition.reason.as_str());
        self.up_to_date.set(&labels, reason(UP_TO_DATE));
        let is_stalled = conditions::is_true(conditions, STALLED);
        self.stalled.set(&labels, reason(STALLED).filter(|_| is_stalled));
    }

    pub(crate) fn gone(&self, namespace: &str, name: &str) {
        let labels = ObjectLabels::new(namespace, name);
        self.versions.remove(&labels);
        self.unreachable.remove(&labels);
        self.up_to_date.set(&labels, None);
        self.stalled.set(&labels, None);
    }
}

impl ObjectLabels {
    fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn with_reason(&self, reason: &str) -> ReasonLabels {
        ReasonLabels { namespace: self.namespace.clone(), name: self.name.clone(), reason: reason.to_owned() }
    }
}

const OUTCOMES: [&str; 5] = ["ok", "rate_limited", "unreachable", "not_found", "refused"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_has_at_most_one_reason_and_none_after_deletion() {
        let metrics = Metrics::default();
        let reasons = || -> Vec<String> {
            let text = metrics.text();
            let is_reason = |line: &&str| line.contains("reason=");
            text.lines().filter(is_reason).map(str::to_owned).collect()
        };
        let set = |conditions: serde_json::Value| {
            let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap();
            metrics.set_reasons("shop", "orders", &conditions);
        };
        let condition = |type_: &str, status: &str, reason: &str| {
            serde_json::json!({"type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let series = |name: &str, reason: &str| {
            format!("windlass_worker_{name}{{namespace=\"shop\",name=\"orders\",reason=\"{reason}\"}} 1")
        };
        let up = |reason: &str| condition("UpToDate", "False", reason);
        set(serde_json::json!([up("Ramping"), condition("Stalled", "False", "Progressing")]));
        set(serde_json::json!([up("GateFailed"), condition("Stalled", "True", "GateFailed")]));
        assert_eq!(reasons(), [series("up_to_date_reason", "GateFailed"), series("stalled", "GateFailed")]);
        set(serde_json::json!([up("Applied"), condition("Stalled", "False", "Progressing")]));
        assert_eq!(reasons(), [series("up_to_date_reason", "Applied")]);
        metrics.gone("shop", "orders");
        assert_eq!(reasons(), Vec::<String>::new());
    }
}
