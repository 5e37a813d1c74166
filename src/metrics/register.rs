//! Registration of metrics.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub(super) type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub(super) type Seconds = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Registers a metric and returns it.
pub(super) struct Register<'a>(pub(super) &'a mut Registry);

impl Register<'_> {
    pub(super) fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        // The encoder appends the full stop.
        self.0.register(name, help, metric.clone());
        metric
    }

    pub(super) fn histograms<L>(&mut self, name: &str, help: &str, made: fn() -> Histogram) -> Histograms<L>
    where
        L: Clone + Eq + std::hash::Hash,
        Histograms<L>: Metric,
    {
        self.add(name, help, Family::new_with_constructor(made))
    }
}
