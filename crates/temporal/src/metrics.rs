//! What is counted of WorkerDeployments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::port::TemporalError;

/// The counters, shared by all that count.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: Family<Request, Counter>,
    rollouts: Family<Ended, Counter>,
    versions: Family<Of, Gauge>,
    unreachable: Family<Of, Gauge>,
    reasons: Family<Says, Gauge>,
    /// What each object last said: the word before has to go.
    said: Arc<Mutex<HashMap<Of, String>>>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Says {
    namespace: String,
    name: String,
    reason: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Request {
    rpc: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Ended {
    outcome: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Of {
    namespace: String,
    name: String,
}

impl Metrics {
    /// Has a registry tell of them.
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
            "1 while Temporal does not say of a WorkerDeployment what can be relied on",
            self.unreachable.clone(),
        );
        registry.register(
            "windlass_worker_up_to_date_reason",
            "1 for the reason of a WorkerDeployment's condition UpToDate",
            self.reasons.clone(),
        );
    }

    /// All of them as text, in the format of Prometheus.
    #[must_use]
    pub fn text(&self) -> String {
        let mut registry = Registry::default();
        self.register(&mut registry);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }

    /// How many requests of an RPC were made, whatever came of them.
    #[must_use]
    pub fn requests(&self, rpc: &'static str) -> u64 {
        OUTCOMES.iter().map(|outcome| self.requests.get_or_create(&Request { rpc, outcome }).get()).sum()
    }

    pub(crate) fn asked(&self, rpc: &'static str, error: Option<&TemporalError>) {
        let outcome = match error {
            None => OUTCOMES[0],
            Some(TemporalError::RateLimited { .. }) => OUTCOMES[1],
            Some(TemporalError::Unreachable { .. }) => OUTCOMES[2],
            Some(TemporalError::NotFound { .. }) => OUTCOMES[3],
            Some(_) => OUTCOMES[4],
        };
        self.requests.get_or_create(&Request { rpc, outcome }).inc();
    }

    pub(crate) fn ended(&self, outcome: &str) {
        self.rollouts.get_or_create(&Ended { outcome: outcome.to_owned() }).inc();
    }

    pub(crate) fn seen(&self, namespace: &str, name: &str, versions: usize, lost: bool) {
        let of = Of::new(namespace, name);
        self.versions.get_or_create(&of).set(versions as i64);
        self.unreachable.get_or_create(&of).set(i64::from(lost));
    }

    /// What the condition UpToDate of an object says.
    pub(crate) fn says(&self, namespace: &str, name: &str, reason: &str) {
        let of = Of::new(namespace, name);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let before = said.insert(of.clone(), reason.to_owned());
        if let Some(before) = before.filter(|before| before != reason) {
            self.reasons.remove(&of.says(&before));
        }
        self.reasons.get_or_create(&of.says(reason)).set(1);
    }

    pub(crate) fn gone(&self, namespace: &str, name: &str) {
        let of = Of::new(namespace, name);
        self.versions.remove(&of);
        self.unreachable.remove(&of);
        let before = self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(&of);
        if let Some(before) = before {
            self.reasons.remove(&of.says(&before));
        }
    }
}

impl Of {
    fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn says(&self, reason: &str) -> Says {
        Says { namespace: self.namespace.clone(), name: self.name.clone(), reason: reason.to_owned() }
    }
}

const OUTCOMES: [&str; 5] = ["ok", "rate_limited", "unreachable", "not_found", "refused"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_one_reason_at_a_time_and_none_once_it_is_gone() {
        let metrics = Metrics::default();
        let reasons = || -> Vec<String> {
            let text = metrics.text();
            let lines = text.lines().filter(|line| line.starts_with("windlass_worker_up_to_date_reason{"));
            lines.map(str::to_owned).collect()
        };
        metrics.says("shop", "orders", "Ramping");
        metrics.says("shop", "orders", "GateFailed");
        metrics.says("shop", "orders", "GateFailed");
        let told =
            r#"windlass_worker_up_to_date_reason{namespace="shop",name="orders",reason="GateFailed"} 1"#;
        assert_eq!(reasons(), [told]);
        metrics.gone("shop", "orders");
        assert_eq!(reasons(), Vec::<String>::new());
    }
}
