//! What clients and workqueues report to the metrics of a program.

use std::sync::Arc;
use std::time::Duration;

/// Receives what clients and workqueues report.
pub trait PortMetrics: Send + Sync {
    /// Counts a request to the API server, with the time to its response headers; `code` is `None` without a
    /// response.
    fn count_request(&self, verb: &'static str, resource: String, code: Option<u16>, took: Duration);

    /// Counts a reconcile, with its duration.
    fn reconciled(&self, kind: &'static str, outcome: &'static str, took: Duration);

    /// Counts an object that is added to a workqueue.
    fn queued(&self, kind: &'static str);

    /// Counts an object that is taken from a workqueue, with how long it was due.
    fn taken(&self, kind: &'static str, waited: Duration);

    /// Counts a requeue after a failure.
    fn retried(&self, kind: &'static str);

    /// Registers a workqueue whose depth is read at each scrape.
    fn queue(&self, kind: &'static str, depth: QueueDepth);
}

/// Reads the number of objects that are due in a workqueue.
pub type QueueDepth = Box<dyn Fn() -> usize + Send + Sync>;

/// Metrics that several clients and workqueues share.
pub type SharedMetrics = Arc<dyn PortMetrics>;
