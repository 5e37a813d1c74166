//! What the operator counts, for Prometheus.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Of which kind an object is, and how its reconcile ended.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Outcome {
    kind: &'static str,
    /// `done`, `conflict`, or the step that failed.
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OfKind {
    kind: &'static str,
}

/// What the operator counts.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    reconciles: Family<Outcome, Counter>,
    durations: Family<OfKind, Histogram>,
    cache_ages: Family<OfKind, Gauge<f64, AtomicU64>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let reconciles = Family::default();
        let buckets = || Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]);
        let durations = Family::<OfKind, Histogram>::new_with_constructor(buckets);
        let mut registry = Registry::with_prefix("windlass");
        registry.register("reconciles", "Reconciles, by kind and outcome", reconciles.clone());
        registry.register("reconcile_seconds", "How long a reconcile took", durations.clone());
        let cache_ages = Family::<OfKind, Gauge<f64, AtomicU64>>::default();
        let said = "For how long a watch cache has heard nothing of the API server, not even a bookmark";
        registry.register("cache_age_seconds", said, cache_ages.clone());
        Self { registry: Arc::new(registry), reconciles, durations, cache_ages }
    }
}

impl Metrics {
    /// Counts a reconcile.
    pub fn reconciled(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Outcome { kind, outcome }).inc();
        self.durations.get_or_create(&OfKind { kind }).observe(took.as_secs_f64());
    }

    /// Says for how long the cache of a kind has heard nothing.
    pub fn cache_age(&self, kind: &'static str, age: Duration) {
        self.cache_ages.get_or_create(&OfKind { kind }).set(age.as_secs_f64());
    }

    /// Everything that was counted, in the text format of OpenMetrics.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reconcile_is_counted_by_kind_and_outcome_and_timed() {
        let metrics = Metrics::default();
        metrics.reconciled("StatefulNode", "done", Duration::from_millis(20));
        metrics.reconciled("StatefulNode", "done", Duration::from_millis(40));
        metrics.clone().reconciled("NodeDeployment", "persist", Duration::from_secs(2));
        let text = metrics.text();
        for line in [
            "windlass_reconciles_total{kind=\"StatefulNode\",outcome=\"done\"} 2",
            "windlass_reconciles_total{kind=\"NodeDeployment\",outcome=\"persist\"} 1",
            "windlass_reconcile_seconds_count{kind=\"StatefulNode\"} 2",
            "windlass_reconcile_seconds_sum{kind=\"NodeDeployment\"} 2.0",
            "windlass_reconcile_seconds_bucket{le=\"0.03\",kind=\"StatefulNode\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
    }
}
