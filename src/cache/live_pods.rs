//! A fleet's pods as the API server itself listed them, and how long that list is valid.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

use crate::clock::monotonic;
use windlass_kube_port::LivePod;
use windlass_kube_port::observed::ObservedPod;

/// How long a list is valid: this long for each of its pods, up to [`READ_AT_LEAST_EVERY`]. A fleet of five is read at
/// each grant, one of a thousand every ten seconds. Watch events since the list take precedence, and a silent watch is
/// noticed within that time.
const READ_EACH: Duration = Duration::from_millis(10);
const READ_AT_LEAST_EVERY: Duration = Duration::from_secs(30);

/// How long the status of a node may lag behind its Ready pod. If it is not Ready after that, it is for another reason.
const STATUS_LAGS: TimeDelta = TimeDelta::seconds(30);

/// A fleet's pods as the API server itself listed them at one time, by name.
#[derive(Debug)]
pub struct LivePods {
    read_at: Instant,
    /// How long the list took.
    took: Duration,
    pods: BTreeMap<String, LivePod>,
    /// The highest resourceVersion in the list: higher ones were seen after the list.
    newest: u64,
    /// What the cache had before the list.
    known: KnownPods,
}

/// By name: the pods as the cache had them.
pub type KnownPods = BTreeMap<String, LivePod>;

impl LivePods {
    /// Starts a read. `known` is what the cache has before it.
    #[must_use]
    pub fn of(known: KnownPods) -> Self {
        Self { read_at: monotonic(), took: Duration::ZERO, pods: BTreeMap::new(), newest: 0, known }
    }

    /// Adds a page of the list.
    pub fn extend(&mut self, pods: impl IntoIterator<Item = LivePod>) {
        for pod in pods {
            self.newest = self.newest.max(pod.version);
            self.pods.insert(pod.name.clone(), pod);
        }
    }

    /// Completes the read.
    #[must_use]
    pub fn done(mut self) -> Self {
        self.took = monotonic().duration_since(self.read_at);
        self
    }

    /// True if the list has this pod.
    #[must_use]
    pub fn has(&self, pod: &str) -> bool {
        self.pods.contains_key(pod)
    }

    /// True if the list is still valid and need not be read again.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        let pods = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
        let stands = READ_EACH.saturating_mul(pods).min(READ_AT_LEAST_EVERY);
        // A slow list is expensive, or the server is busy: at most half of the time is spent with lists.
        monotonic().duration_since(self.read_at) < stands.max(self.took * 2)
    }

    /// True if the pod of a node that counts as serving exists, is Ready, and is the pod that was known before. With
    /// `unbroken`, it also has been Ready ever since. `heard` is the cached pod, which takes precedence if it is newer
    /// than the list.
    #[must_use]
    pub fn serves(&self, pod: &str, heard: Option<&ObservedPod>, unbroken: bool) -> bool {
        if let Some(newer) = heard.filter(|heard| self.is_older_than(heard)) {
            return LivePod::cached(newer).ready;
        }
        let known = self.known.get(pod);
        if heard.is_none() && known.is_some() {
            // A watch has reported its deletion since.
            return false;
        }
        let is_same = |known: &LivePod, pod: &LivePod| {
            known.uid == pod.uid && (!unbroken || (known.ready && known.since == pod.since))
        };
        self.pods.get(pod).is_some_and(|pod| pod.ready && known.is_none_or(|known| is_same(known, pod)))
    }

    /// True if the cached pod is newer than the listed one.
    fn is_older_than(&self, heard: &ObservedPod) -> bool {
        let shown = self.pods.get(&heard.meta.name).map_or(self.newest, |pod| pod.version);
        heard.meta.version() > shown
    }

    /// True if the pod of a node that counts as down is Ready, and the cache did not know it.
    #[must_use]
    pub fn has_come_up(&self, pod: &str, heard: Option<&ObservedPod>) -> bool {
        if heard.is_some_and(|heard| self.is_older_than(heard)) {
            return false;
        }
        let is_known =
            |pod: &LivePod| self.known.get(pod.name.as_str()).is_some_and(|k| k.ready && k.uid == pod.uid);
        self.pods.get(pod).is_some_and(|pod| pod.ready && !is_known(pod))
    }

    /// True if the pod is Ready, by the list or by what was heard since.
    #[must_use]
    pub fn is_ready(&self, pod: &str, heard: Option<&ObservedPod>) -> bool {
        self.latest(pod, heard).is_some_and(|pod| pod.ready)
    }

    /// True if the pod became Ready so recently that the status of its node may not say so yet.
    #[must_use]
    pub fn is_newly_ready(&self, pod: &str, heard: Option<&ObservedPod>, now: DateTime<Utc>) -> bool {
        let since = self.latest(pod, heard).filter(|pod| pod.ready).and_then(|pod| pod.since);
        since.is_some_and(|since| (now - since).abs() < STATUS_LAGS)
    }

    fn latest(&self, pod: &str, heard: Option<&ObservedPod>) -> Option<LivePod> {
        let newer = heard.filter(|heard| self.is_older_than(heard)).map(LivePod::cached);
        newer.or_else(|| self.pods.get(pod).cloned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use windlass_kube_port::observed::Observed;

    fn heard(version: u64, ready: &str) -> ObservedPod {
        ObservedPod::read(&json!({
            "metadata": {"name": "db-1-0", "uid": "pod", "resourceVersion": version.to_string()},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn live_read_validity_scales_with_pod_count_and_read_duration() {
        let stood = async |pods: usize, took: u64| {
            let mut live = LivePods::of(KnownPods::new());
            tokio::time::advance(Duration::from_millis(took)).await;
            live.extend((0..pods).map(|n| LivePod { name: n.to_string(), ..LivePod::default() }));
            let (live, read_at) = (live.done(), monotonic());
            while live.is_fresh() {
                tokio::time::advance(Duration::from_millis(10)).await;
            }
            (read_at.elapsed().as_millis() as u64).saturating_add(took)
        };
        assert_eq!(stood(5, 0).await, 50);
        assert_eq!(stood(1000, 200).await, 10_000);
        assert_eq!(stood(10_000, 1000).await, 30_000);
        assert_eq!(stood(5, 400).await, 800);
        assert_eq!(stood(10_000, 20_000).await, 40_000);
    }

    #[tokio::test(start_paused = true)]
    async fn pod_events_newer_than_the_read_take_precedence() {
        let pod = |name: &str, version| LivePod {
            name: name.to_owned(),
            uid: "pod".to_owned(),
            version,
            ready: true,
            since: None,
        };
        let mut live = LivePods::of([("db-1-0".to_owned(), pod("db-1-0", 9))].into());
        // The other pod has a higher version.
        live.extend([pod("db-1-0", 10), pod("db-2-0", 30)]);
        assert!(live.serves("db-1-0", Some(&heard(10, "True")), false));
        assert!(live.serves("db-1-0", Some(&heard(9, "False")), false), "that is older");
        assert!(
            !live.serves("db-1-0", Some(&heard(20, "False")), false),
            "that is newer than what was read of it"
        );
        assert!(!live.serves("db-1-0", None, false), "it was known, and is not any more");
    }
}
