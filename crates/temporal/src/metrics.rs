//! The metrics of WorkerDeployments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::port::TemporalError;

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    rollouts: Family<OutcomeLabels, Counter>,
    versions: Family<ObjectLabels, Gauge>,
    unreachable: Family<ObjectLabels, Gauge>,
    reasons: Family<ReasonLabels, Gauge>,
    /// The current reason of each object, to remove its series when the reason changes.
    current_reasons: Arc<Mutex<HashMap<ObjectLabels, String>>>,
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
            self.reasons.clone(),
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

    /// Sets the reason of an object's condition UpToDate.
    pub(crate) fn set_reason(&self, namespace: &str, name: &str, reason: &str) {
        let labels = ObjectLabels::new(namespace, name);
        let mut current_reasons = self.current_reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current_reasons.insert(labels.clone(), reason.to_owned());
        if let Some(before) = before.filter(|before| before != reason) {
            self.reasons.remove(&labels.set_reason(&before));
        }
        self.reasons.get_or_create(&labels.set_reason(reason)).set(1);
    }

    pub(crate) fn gone(&self, namespace: &str, name: &str) {
        let labels = ObjectLabels::new(namespace, name);
        self.versions.remove(&labels);
        self.unreachable.remove(&labels);
        let before = self.current_reasons.lock().unwrap_or_else(PoisonError::into_inner).remove(&labels);
        if let Some(before) = before {
            self.reasons.remove(&labels.set_reason(&before));
        }
    }
}

impl ObjectLabels {
    fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn set_reason(&self, reason: &str) -> ReasonLabels {
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
            let lines = text.lines().filter(|line| line.starts_with("windlass_worker_up_to_date_reason{"));
            lines.map(str::to_owned).collect()
        };
        metrics.set_reason("shop", "orders", "Ramping");
        metrics.set_reason("shop", "orders", "GateFailed");
        metrics.set_reason("shop", "orders", "GateFailed");
        let expected =
            r#"windlass_worker_up_to_date_reason{namespace="shop",name="orders",reason="GateFailed"} 1"#;
        assert_eq!(reasons(), [expected]);
        metrics.gone("shop", "orders");
        assert_eq!(reasons(), Vec::<String>::new());
    }
}
