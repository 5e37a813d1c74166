//! The metrics of fleets. Each scrape computes them from the caches, so that the series of a deleted fleet disappear with it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::register::{Register, Seconds};
use crate::api::conditions::{DISRUPTION_BUDGET_READY, TOPOLOGY_KNOWN};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetSample {
    pub namespace: String,
    pub name: String,
    /// InPlace, BlueGreen or HardFork.
    pub strategy: String,
    /// The active set.
    pub set: String,
    /// The number of nodes in each state. A node may be in several.
    pub nodes: Vec<(&'static str, i64)>,
    /// True if `UpToDate` is True.
    pub up_to_date: bool,
    pub stalled: bool,
    /// The reason of `UpToDate`.
    pub reason: String,
    /// The start and the last progress of the active rollout, in seconds since 1970; `None` without one.
    pub rollout: Option<(f64, f64)>,
    /// Whether that rollout waits for a window or for other fleets.
    pub waiting: bool,
    /// Of a StatefulSetRollout, whether `Held` is True.
    pub held: Option<bool>,
    /// Those of [`LIMITS`] that are False.
    pub limits_not_applied: Vec<&'static str>,
}

/// The conditions that a fleet has only while a limit does not apply as its spec says.
pub const LIMITS: [&str; 2] = [DISRUPTION_BUDGET_READY, TOPOLOGY_KNOWN];

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OfCondition {
    namespace: String,
    name: String,
    condition: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OfFleet {
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Info {
    namespace: String,
    name: String,
    strategy: String,
    set: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct InState {
    namespace: String,
    name: String,
    state: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ForReason {
    namespace: String,
    name: String,
    reason: String,
}

pub(super) struct Fleets {
    info: Family<Info, Gauge>,
    nodes: Family<InState, Gauge>,
    up_to_date: Family<OfFleet, Gauge>,
    up_to_date_reason: Family<ForReason, Gauge>,
    stalled: Family<OfFleet, Gauge>,
    held: Family<OfFleet, Gauge>,
    limits_not_applied: Family<OfCondition, Gauge>,
    started: Family<OfFleet, Seconds>,
    progressed: Family<OfFleet, Seconds>,
    waiting: Family<OfFleet, Gauge>,
}

impl Fleets {
    pub(super) fn new(register: &mut Register<'_>) -> Self {
        Self {
            info: register.add("fleet_info", "The strategy and the active set of a fleet; always \
                1", Family::default()),
            nodes: register.add(
                "fleet_nodes",
                "The nodes of a fleet by state: desired, existing, updated, ready, available, failed, growing (its \
                 volumes grow), draining (on a machine that is being drained); a node may be in several states",
                Family::default(),
            ),
            up_to_date: register.add("fleet_up_to_date", "Whether the condition UpToDate is True", Family::default()),
            up_to_date_reason: register.add(
                "fleet_up_to_date_reason",
                "The reason of the condition UpToDate; always 1",
                Family::default(),
            ),
            stalled: register.add("fleet_stalled", "Whether the condition Stalled is True", Family::default()),
            held: register.add(
                "fleet_held",
                "Whether the condition Held is True: only Windlass updates the pods; only for a StatefulSetRollout",
                Family::default(),
            ),
            limits_not_applied: register.add(
                "fleet_limit_not_applied",
                "A condition that is False, so that a limit does not apply as the spec says: DisruptionBudgetReady, \
                 TopologyKnown; always 1",
                Family::default(),
            ),
            started: register.add(
                "fleet_rollout_started_timestamp_seconds",
                "When the active rollout began; absent if no rollout is active",
                Family::default(),
            ),
            progressed: register.add(
                "fleet_rollout_last_progress_timestamp_seconds",
                "When the active rollout last made progress; absent if no rollout is active",
                Family::default(),
            ),
            waiting: register.add(
                "fleet_rollout_waiting",
                "Whether the active rollout waits for a window, for other fleets, for missing objects or for a person; absent if no \
                 rollout is active",
                Family::default(),
            ),
        }
    }

    /// Replaces the samples of all fleets.
    pub(super) fn set(&self, fleets: &[FleetSample]) {
        self.info.clear();
        self.nodes.clear();
        self.up_to_date.clear();
        self.up_to_date_reason.clear();
        self.stalled.clear();
        self.held.clear();
        self.limits_not_applied.clear();
        self.started.clear();
        self.progressed.clear();
        self.waiting.clear();
        for fleet in fleets {
            let (namespace, name) = (fleet.namespace.clone(), fleet.name.clone());
            let of = OfFleet { namespace: namespace.clone(), name: name.clone() };
            let (strategy, set) = (fleet.strategy.clone(), fleet.set.clone());
            self.info
                .get_or_create(&Info { namespace: namespace.clone(), name: name.clone(), strategy, set })
                .set(1);
            for (state, count) in &fleet.nodes {
                let of = InState { namespace: namespace.clone(), name: name.clone(), state };
                self.nodes.get_or_create(&of).set(*count);
            }
            self.up_to_date.get_or_create(&of).set(i64::from(fleet.up_to_date));
            self.stalled.get_or_create(&of).set(i64::from(fleet.stalled));
            if let Some(held) = fleet.held {
                self.held.get_or_create(&of).set(i64::from(held));
            }
            for condition in &fleet.limits_not_applied {
                let of = OfCondition { namespace: namespace.clone(), name: name.clone(), condition };
                self.limits_not_applied.get_or_create(&of).set(1);
            }
            if !fleet.reason.is_empty() {
                let reason = fleet.reason.clone();
                self.up_to_date_reason.get_or_create(&ForReason { namespace, name, reason }).set(1);
            }
            if let Some((started, progressed)) = fleet.rollout {
                self.started.get_or_create(&of).set(started);
                self.progressed.get_or_create(&of).set(progressed);
                self.waiting.get_or_create(&of).set(i64::from(fleet.waiting));
            }
        }
    }
}
