//! The health, readiness and metrics of the running operator.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::lease::StandbyState;
use crate::api::conditions::{self, Truth};
use crate::api::{NodeDeploymentStatus, NodePhase, RawPlan};
use crate::clock::monotonic;
use crate::metrics::{FleetSample, LIMITS, Metrics};
use crate::planner::fleet::drain::Draining;
use crate::planner::node::decide::recipes::GROW_CLAIMS;
use windlass_kube_port::metrics::SharedMetrics;
use windlass_kube_port::observed::{Meta, ObservedFleet, ObservedRollout};
use windlass_kube_port::{Kind, View};

/// How long a cache may get nothing but refusals from the API server, or not be known to be current, or a standby
/// replica may fail to read its Lease, before the replica is not ready. A watch is restarted more often than that.
const FRESH: Duration = Duration::from_secs(30);
/// How long a cache may get no response before the replica is unhealthy: reconnecting did not help.
const UNHEALTHY: Duration = Duration::from_mins(2);

/// A handle to the health, readiness and metrics of the running operator.
#[derive(Clone, Default)]
pub struct Health {
    /// The metrics.
    pub metrics: Metrics,
    doing: Arc<Mutex<Doing>>,
    /// What the installed custom resource definitions lack, in one sentence.
    lacks: Arc<Mutex<Option<String>>>,
}

/// The state of this replica.
#[derive(Default)]
enum Doing {
    /// It has not started.
    #[default]
    Starting,
    /// It waits for the Lease: when it last read the Lease, and why it can never lead, if so.
    StandingBy(Instant, Option<String>),
    /// It reconciles on these caches.
    Acting(Vec<Arc<View>>),
}

impl Health {
    /// The metrics, for what the port reports.
    pub(crate) fn port_metrics(&self) -> SharedMetrics {
        Arc::new(self.metrics.clone())
    }

    /// Why the replica cannot do its work now, in one sentence; `None` if it is ready. A standby replica is ready while
    /// it can read the Lease, a leader while its caches are filled and fresh.
    #[must_use]
    pub fn not_ready(&self) -> Option<String> {
        let lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if lacks.is_some() {
            return lacks;
        }
        match &*self.doing() {
            Doing::Starting => Some("the replica is starting: it has neither started its watches nor read the \
                Lease".to_owned()),
            Doing::StandingBy(_, Some(why)) => Some(format!(
                "the replica is on standby and can never lead: the API server forbids access to the Lease: {why}"
            )),
            Doing::StandingBy(read, None) => {
                let age = monotonic().duration_since(*read);
                (age > FRESH).then(|| {
                    let seconds = age.as_secs();
                    format!("the replica is on standby and has not been able to read the Lease for {seconds} s")
                })
            }
            Doing::Acting(views) if views.iter().any(|view| !view.is_ready() && !view.is_of_rollouts()) => {
                Some("the caches are not synced yet".to_owned())
            }
            Doing::Acting(views) if views.iter().any(|view| !view.is_ready()) => Some(
                "the caches of StatefulSetRollouts are not synced yet: if their permissions are missing, apply \
                 deploy/rbac/stateful-sets-*.yaml, or start the operator with --stateful-sets=false"
                    .to_owned(),
            ),
            Doing::Acting(views) => {
                first_stale(FRESH, last_activity(views)).or_else(|| outdated(FRESH, ages(views)))
            }
        }
    }

    /// True if the replica can do its work now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.not_ready().is_none()
    }

    /// Why the replica should be restarted, in one sentence; `None` if it is healthy. It is healthy while the API
    /// server answers, even with refusals: a restart restores neither the permissions in a namespace nor a missing
    /// kind, and all other namespaces would have to wait for it.
    #[must_use]
    pub fn ill(&self) -> Option<String> {
        match &*self.doing() {
            Doing::Acting(views) => first_stale(UNHEALTHY, silences(views)),
            Doing::Starting | Doing::StandingBy(..) => None,
        }
    }

    /// All metrics, in OpenMetrics. Only the replica that leads has samples of fleets.
    #[must_use]
    pub fn text(&self) -> String {
        let views = match &*self.doing() {
            Doing::Acting(views) => views.clone(),
            Doing::Starting | Doing::StandingBy(..) => return self.metrics.text(false, &[]),
        };
        for (kind, age) in ages(&views) {
            self.metrics.cache_age(kind.name(), age);
        }
        let fleets: Vec<FleetSample> = views.iter().flat_map(|view| samples(view)).collect();
        self.metrics.text(true, &fleets)
    }

    /// Records what the installed custom resource definitions lack, in one sentence: fields of a spec or a status that
    /// they do not define are dropped or refused.
    pub fn definitions_lack(&self, what: Option<String>) {
        *self.lacks.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// Records that the replica stands by, and has just read the Lease or learned that it is forbidden.
    pub(super) fn record_standby(&self, standing: StandbyState<'_>) {
        let why = match standing {
            StandbyState::Well => None,
            StandbyState::Refused(why) => Some(why.to_owned()),
        };
        *self.doing() = Doing::StandingBy(monotonic(), why);
    }

    /// Records that the replica reconciles on these caches.
    pub(super) fn acts_on(&self, views: Vec<Arc<View>>) {
        *self.doing() = Doing::Acting(views);
    }

    fn doing(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The samples of all known fleets.
fn samples(view: &View) -> impl Iterator<Item = FleetSample> {
    let draining = view.draining();
    let fleets = view.fleets.list_all(|_| true).into_iter();
    let fleets: Vec<FleetSample> = fleets.map(|fleet| of_fleet(view, &fleet, &draining)).collect();
    let rollouts = view.rollouts.list_all(|_| true).into_iter();
    fleets.into_iter().chain(rollouts.map(move |rollout| of_rollout(view, &rollout, &draining)))
}

/// How many pods of these groups have to leave their machines.
fn draining_pods<'a>(
    view: &View,
    namespace: &str,
    groups: impl Iterator<Item = &'a str>,
    draining: &Draining,
) -> i64 {
    if draining.is_empty() {
        return 0;
    }
    let pods = groups.flat_map(|group| view.pods.group(namespace, group));
    pods.filter(|pod| draining.moves(pod)).count() as i64
}

fn of_fleet(view: &View, fleet: &ObservedFleet, draining: &Draining) -> FleetSample {
    let status = &fleet.status;
    let nodes = view.nodes.group(&fleet.meta.namespace, &fleet.meta.uid);
    let failed = nodes.iter().filter(|node| node.status.phase == NodePhase::Failed.as_ref()).count();
    let grows = |plan: &RawPlan| plan.may_be_active() && plan.mentions(GROW_CLAIMS);
    let growing = nodes.iter().filter(|node| node.status.plan.as_ref().is_some_and(grows)).count();
    let strategy = fleet.spec.as_ref().map(|spec| spec.update_strategy.type_.clone()).unwrap_or_default();
    FleetSample {
        // An empty type means InPlace. Only objects that were stored long ago have one.
        strategy: if strategy.is_empty() { "InPlace".to_owned() } else { strategy },
        set: status.active_set.clone(),
        nodes: vec![
            ("desired", i64::from(fleet.spec.as_ref().map_or(status.replicas, |spec| spec.replicas))),
            ("existing", nodes.len() as i64),
            ("updated", i64::from(status.updated_replicas)),
            ("ready", i64::from(status.ready_replicas)),
            ("available", i64::from(status.available_replicas)),
            ("failed", failed as i64),
            ("growing", growing as i64),
            (
                "draining",
                draining_pods(view, &fleet.meta.namespace, [fleet.meta.name.as_str()].into_iter(), draining),
            ),
        ],
        ..sample(&fleet.meta, status)
    }
}

/// A StatefulSetRollout is a fleet of pods.
fn of_rollout(view: &View, rollout: &ObservedRollout, draining: &Draining) -> FleetSample {
    let status = &rollout.status.rollout;
    let desired: i32 = rollout.status.stateful_sets.iter().map(|set| set.replicas).sum();
    FleetSample {
        strategy: Kind::StatefulSetRollout.name().to_owned(),
        nodes: vec![
            ("desired", i64::from(desired)),
            ("existing", i64::from(status.replicas)),
            ("updated", i64::from(status.updated_replicas)),
            ("ready", i64::from(status.ready_replicas)),
            ("available", i64::from(status.available_replicas)),
            ("failed", status.rollout.as_ref().map_or(0, |rollout| i64::from(rollout.nodes.failed))),
            ("draining", {
                let sets = rollout.status.stateful_sets.iter().map(|set| set.uid.as_str());
                draining_pods(view, &rollout.meta.namespace, sets, draining)
            }),
        ],
        held: Some(conditions::is_true(&status.conditions, conditions::HELD)),
        ..sample(&rollout.meta, status)
    }
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit for another 200,000 years")]
fn sample(meta: &Meta, status: &NodeDeploymentStatus) -> FleetSample {
    let condition = |type_| conditions::find(&status.conditions, type_);
    let is_true = |type_| condition(type_).is_some_and(|found| found.status == Truth::True.as_ref());
    let seconds = |at: DateTime<Utc>| at.timestamp_millis() as f64 / 1_000.0;
    FleetSample {
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        strategy: String::new(),
        set: String::new(),
        nodes: Vec::new(),
        up_to_date: is_true(conditions::UP_TO_DATE),
        stalled: is_true(conditions::STALLED),
        reason: condition(conditions::UP_TO_DATE).map(|found| found.reason.clone()).unwrap_or_default(),
        rollout: status.rollout.as_ref().map(|r| (seconds(r.started_at), seconds(r.last_progress_at))),
        waiting: status.rollout.as_ref().is_some_and(|rollout| !rollout.waiting_for.is_empty()),
        held: None,
        limits_not_applied: LIMITS.into_iter().filter(|type_| condition(type_).is_some()).collect(),
    }
}

/// For each kind, the maximum age over all separately watched namespaces.
fn ages(views: &[Arc<View>]) -> BTreeMap<Kind, Duration> {
    oldest(views.iter().flat_map(|view| view.freshness.ages()))
}

/// For each kind, the maximum time without a response other than a refusal, over all separately watched namespaces.
fn last_activity(views: &[Arc<View>]) -> BTreeMap<Kind, Duration> {
    oldest(views.iter().flat_map(|view| view.freshness.without_progress()))
}

/// For each kind, the maximum time without any response, over all separately watched namespaces.
fn silences(views: &[Arc<View>]) -> BTreeMap<Kind, Duration> {
    oldest(views.iter().flat_map(|view| view.freshness.without_response()))
}

fn oldest(ages: impl Iterator<Item = (Kind, Duration)>) -> BTreeMap<Kind, Duration> {
    let mut oldest = BTreeMap::new();
    for (kind, age) in ages {
        let known = oldest.entry(kind).or_insert(age);
        *known = age.max(*known);
    }
    oldest
}

fn first_stale(limit: Duration, times: BTreeMap<Kind, Duration>) -> Option<String> {
    let (kind, seconds) = longest_over(limit, times)?;
    Some(format!("the watch of {kind} has had no response from the API server for {seconds} s"))
}

fn outdated(limit: Duration, ages: BTreeMap<Kind, Duration>) -> Option<String> {
    let (kind, seconds) = longest_over(limit, ages)?;
    Some(format!("the cache of {kind} is {seconds} s old: the API server responds, but no list was complete"))
}

/// The longest of these times if it exceeds the limit, in seconds, with its kind.
fn longest_over(limit: Duration, times: BTreeMap<Kind, Duration>) -> Option<(&'static str, u64)> {
    let (kind, time) = times.into_iter().max_by_key(|(_, time)| *time)?;
    (time > limit).then(|| (kind.name(), time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_kube_port::client::Sign;

    /// A second, why the replica is not ready then, and why it is unhealthy then.
    type Expected = (i32, Option<String>, Option<String>);

    /// The health of an operator that reconciles and whose lists are complete.
    fn acting() -> (Health, Arc<View>) {
        let (health, view) = (Health::default(), View::shared());
        for kind in [Kind::Pod, Kind::StatefulNode] {
            view.freshness.listen(kind);
        }
        health.acts_on(vec![view.clone()]);
        assert_eq!(health.not_ready().as_deref(), Some("the caches are not synced yet"));
        view.fleets.end_relist();
        view.nodes.end_relist();
        view.stateful_sets.end_relist();
        view.pods.end_relist();
        view.services.end_relist();
        view.claims.end_relist();
        view.budgets.end_relist();
        view.revisions.end_relist();
        view.refusals.settle();
        (health, view)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_watch_makes_replica_unready_and_then_unhealthy() {
        let (health, view) = acting();
        let mut said: Vec<Expected> = Vec::new();
        for seconds in 1..=125 {
            tokio::time::advance(Duration::from_secs(1)).await;
            view.freshness.record(Kind::StatefulNode, Sign::Progress);
            said.push((seconds, health.not_ready(), health.ill()));
        }
        let first = |of: fn(&Expected) -> &Option<String>| {
            let (second, ready, ill) = said.iter().find(|row| of(row).is_some()).unwrap();
            (*second, of(&(*second, ready.clone(), ill.clone())).clone().unwrap())
        };
        let sentence = |s| format!("the watch of Pod has had no response from the API server for {s} s");
        assert_eq!(first(|row| &row.1), (31, sentence(31)));
        assert_eq!(first(|row| &row.2), (121, sentence(121)));
        assert!(
            health.text().contains("windlass_cache_age_seconds{kind=\"Pod\"} 125.0"),
            "{}",
            health.text()
        );
        assert!(health.text().contains("windlass_cache_age_seconds{kind=\"StatefulNode\"} 0.0"));
        view.freshness.record(Kind::Pod, Sign::Progress);
        assert_eq!((health.not_ready(), health.ill()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn endless_list_makes_replica_unready_but_not_unhealthy() {
        let (health, view) = acting();
        view.freshness.lost(Kind::Pod);
        for _ in 0..300 {
            tokio::time::advance(Duration::from_secs(1)).await;
            view.freshness.record(Kind::Pod, Sign::Begun);
            view.freshness.record(Kind::Pod, Sign::Progress);
            view.freshness.record(Kind::StatefulNode, Sign::Progress);
        }
        assert_eq!(
            health.not_ready().as_deref(),
            Some("the cache of Pod is 300 s old: the API server responds, but no list was complete")
        );
        let text = health.text();
        assert!(text.contains("windlass_cache_age_seconds{kind=\"Pod\"} 300.0"), "{text}");
        assert_eq!(health.ill(), None, "the pages of a list of 10,000 nodes are answers");
        view.freshness.found(Kind::Pod);
        assert_eq!((health.not_ready(), health.ill()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_crds_make_replicas_unready_but_not_unhealthy() {
        let (health, _) = acting();
        for health in [health, Health::default()] {
            health.definitions_lack(Some("apply deploy/crds".to_owned()));
            assert_eq!((health.not_ready().as_deref(), health.ill()), (Some("apply deploy/crds"), None));
            let before = health.not_ready();
            health.definitions_lack(None);
            assert_ne!(health.not_ready(), before);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_requests_make_the_cache_stale_without_a_restart() {
        let (health, view) = acting();
        let (_, refused) = acting();
        health.acts_on(vec![view.clone(), refused.clone()]);
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(20)).await;
            for kind in [Kind::Pod, Kind::StatefulNode] {
                view.freshness.record(kind, Sign::Progress);
                refused.freshness.record(kind, Sign::Refusal);
            }
        }
        assert_eq!(health.ill(), None);
        assert!(health.not_ready().is_some_and(|said| said.ends_with("for 400 s")));
        assert!(
            health.text().contains("windlass_cache_age_seconds{kind=\"Pod\"} 400.0"),
            "{}",
            health.text()
        );
        tokio::time::advance(Duration::from_secs(121)).await;
        assert!(health.ill().is_some_and(|said| said.ends_with("for 121 s")), "no answer at all any more");
        refused.freshness.record(Kind::Pod, Sign::Progress);
        view.freshness.record(Kind::Pod, Sign::Progress);
        assert!(health.ill().is_some_and(|said| said.starts_with("the watch of StatefulNode")));
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_cache_of_all_namespaces_determines_health() {
        let (health, view) = acting();
        let (_, other) = acting();
        health.acts_on(vec![view.clone(), other]);
        tokio::time::advance(Duration::from_secs(130)).await;
        view.freshness.record(Kind::Pod, Sign::Progress);
        view.freshness.record(Kind::StatefulNode, Sign::Progress);
        assert!(health.ill().is_some_and(|said| said.ends_with("130 s")));
    }

    #[tokio::test(start_paused = true)]
    async fn standby_replica_is_ready_while_it_reads_the_lease() {
        let health = Health::default();
        assert!(!health.is_ready());
        health.record_standby(StandbyState::Well);
        assert!(health.is_ready());
        tokio::time::advance(Duration::from_secs(200)).await;
        assert_eq!(
            health.not_ready().as_deref(),
            Some("the replica is on standby and has not been able to read the Lease for 200 s")
        );
        assert_eq!(health.ill(), None);
        health.record_standby(StandbyState::Well);
        assert!(health.is_ready());
        health.record_standby(StandbyState::Refused("leases is forbidden: apply deploy/rbac"));
        assert_eq!(
            health.not_ready().as_deref(),
            Some(
                "the replica is on standby and can never lead: the API server forbids access to the Lease: leases is \
                 forbidden: apply deploy/rbac"
            )
        );
        assert_eq!(health.ill(), None);
    }
}
