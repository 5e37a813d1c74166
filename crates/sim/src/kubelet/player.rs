//! The kubelet's loop: watch events in, at most one write per pod and claim at a time out.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    future,
    time::Duration,
};

use futures::{
    StreamExt,
    future::{Aborted, BoxFuture, FutureExt},
    stream::FuturesUnordered,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{ResourceExt, runtime::watcher::Event};
use tokio::time::{Instant, sleep_until};

use super::{
    Kubelet, LOOPBACK, POD_IP, claims,
    events::{Seen, all},
    growth::{self, Expansion, Growth, Next},
    outlook::{Now, is_native_sidecar},
    pod::{Outcome, TrackedPod, Write, version},
    probe::until_other,
    status::Life,
    steering::Steering,
};
use windlass_clock::monotonic;

/// The most concurrent writes.
const WRITES: usize = 32;
/// The first retry interval of a failed write, doubled up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// The object of a decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Pod(String, String),
    Claim(String, String),
    /// The volume of a deleted claim.
    Volume(String),
}

/// The work under way for a key.
#[derive(Default)]
struct Work {
    busy: bool,
    /// An event arrived meanwhile.
    again: bool,
    failures: u32,
}

struct Written {
    key: Key,
    uid: String,
    result: Result<Outcome, kube::Error>,
}

/// A changed readiness of a sidecar.
struct Probed {
    key: Key,
    uid: String,
    ready: bool,
}

pub(super) struct Player {
    kubelet: Kubelet,
    pods: BTreeMap<Key, TrackedPod>,
    claims: BTreeMap<Key, PersistentVolumeClaim>,
    growing: BTreeMap<Key, Growth>,
    steering: Steering,
    work: BTreeMap<Key, Work>,
    queue: VecDeque<Key>,
    timers: BTreeSet<(Instant, Key)>,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
    probes: FuturesUnordered<BoxFuture<'static, Option<Probed>>>,
    /// Pods that the current list has not named yet; those left at its end are deleted.
    unlisted: BTreeSet<Key>,
    addresses: u32,
}

impl Player {
    pub(super) fn new(kubelet: Kubelet) -> Self {
        Self {
            kubelet,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            growing: BTreeMap::new(),
            steering: Steering::default(),
            work: BTreeMap::new(),
            queue: VecDeque::new(),
            timers: BTreeSet::new(),
            writes: FuturesUnordered::new(),
            probes: FuturesUnordered::new(),
            unlisted: BTreeSet::new(),
            addresses: 0,
        }
    }

    pub(super) async fn run(mut self) -> Infallible {
        let mut events = all(&self.kubelet.client);
        loop {
            let due = self.timers.first().map(|(at, _)| *at);
            let timer = due.map_or_else(|| future::pending().boxed(), |at| sleep_until(at).boxed());
            // Biased, for determinism.
            tokio::select! {
                biased;
                Some(written) = self.writes.next(), if !self.writes.is_empty() => self.written(written),
                Some(probed) = self.probes.next(), if !self.probes.is_empty() => self.probed(probed),
                Some(seen) = events.next() => self.seen(seen),
                () = timer => self.wake(),
            }
            self.work_off();
        }
    }

    fn seen(&mut self, seen: Seen) {
        match seen {
            Seen::Pod(Event::Apply(pod) | Event::InitApply(pod)) => self.pod_seen(pod),
            Seen::Pod(Event::Delete(pod)) => self.pod_gone(&pod_key(&pod), pod.uid().as_deref()),
            Seen::Pod(Event::Init) => self.list_begins(true),
            Seen::Pod(Event::InitDone) => self.list_ends(true),
            Seen::Claim(Event::Apply(claim) | Event::InitApply(claim)) => {
                let key = claim_key(&claim);
                self.unlisted.remove(&key);
                self.claim_seen(key.clone(), claim);
                self.touch(key);
            }
            Seen::Claim(Event::Delete(claim)) => self.claim_gone(&claim_key(&claim)),
            Seen::Claim(Event::Init) => self.list_begins(false),
            Seen::Claim(Event::InitDone) => self.list_ends(false),
            Seen::Steer(Event::Init) => self.steering.clear(),
            Seen::Steer(Event::InitApply(map)) => self.steering.set(map),
            Seen::Steer(Event::InitDone) => self.steered(None),
            Seen::Steer(Event::Apply(map)) => {
                let namespace = map.namespace();
                self.steering.set(map);
                self.steered(namespace.as_deref());
            }
            Seen::Steer(Event::Delete(map)) => {
                self.steering.remove(&map);
                self.steered(map.namespace().as_deref());
            }
        }
    }

    fn list_begins(&mut self, pods: bool) {
        let known: Vec<Key> =
            if pods { self.pods.keys().cloned().collect() } else { self.claims.keys().cloned().collect() };
        self.unlisted.extend(known);
    }

    fn list_ends(&mut self, pods: bool) {
        let of_this_list = |key: &Key| matches!(key, Key::Pod(..)) == pods;
        let gone: Vec<Key> = self.unlisted.iter().filter(|key| of_this_list(key)).cloned().collect();
        for key in gone {
            self.unlisted.remove(&key);
            if pods { self.pod_gone(&key, None) } else { self.claim_gone(&key) }
        }
    }

    /// Checks all steered pods in a namespace, or everywhere.
    fn steered(&mut self, namespace: Option<&str>) {
        let keys: Vec<Key> = self.pods.keys().chain(self.claims.keys()).cloned().collect();
        for key in keys {
            let (Key::Pod(of, _) | Key::Claim(of, _) | Key::Volume(of)) = &key;
            if namespace.is_none_or(|namespace| namespace == of) {
                self.touch(key);
            }
        }
    }

    fn pod_seen(&mut self, pod: Pod) {
        let key = pod_key(&pod);
        self.unlisted.remove(&key);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if let (Some(ours), Some(node)) = (&self.kubelet.nodes, node)
            && !node.starts_with(ours.as_str())
        {
            self.pod_gone(&key, None);
            return;
        }
        match self.pods.get_mut(&key) {
            Some(known) if known.pod.uid() == pod.uid() => known.update(pod),
            _ => {
                let life = Life::adopt(&pod, self.address(&pod)).at(self.kubelet.pace);
                self.pods.insert(key.clone(), TrackedPod::new(pod, life));
            }
        }
        self.touch_claims(&key);
        self.touch(key);
    }

    /// Queues the growing claims of a pod.
    fn touch_claims(&mut self, pod: &Key) {
        let Some(tracked) = self.pods.get(pod) else { return };
        let namespace = tracked.pod.namespace().unwrap_or_default();
        let growing: Vec<Key> = growth::claims_of(&tracked.pod)
            .map(|name| Key::Claim(namespace.clone(), name.to_owned()))
            .filter(|key| self.growing.contains_key(key))
            .collect();
        for key in growing {
            self.touch(key);
        }
    }

    fn pod_gone(&mut self, key: &Key, uid: Option<&str>) {
        let of_this_pod = |known: &TrackedPod| uid.is_none() || known.pod.uid().as_deref() == uid;
        if self.pods.get(key).is_some_and(of_this_pod) {
            self.pods.remove(key);
            self.timers.retain(|(_, of)| of != key);
        }
    }

    fn claim_seen(&mut self, key: Key, claim: PersistentVolumeClaim) {
        let newer =
            |known: &PersistentVolumeClaim| known.uid() == claim.uid() && version(known) > version(&claim);
        if !self.claims.get(&key).is_some_and(newer) {
            self.claims.insert(key, claim);
        }
    }

    fn claim_gone(&mut self, key: &Key) {
        self.growing.remove(key);
        if let Some(claim) = self.claims.remove(key) {
            self.touch(Key::Volume(claims::volume_name(&claim)));
        }
    }

    fn address(&mut self, pod: &Pod) -> String {
        let asked = pod.annotations().get(POD_IP).map(String::as_str);
        if let Some(ip) = asked.filter(|ip| *ip != LOOPBACK) {
            return ip.to_owned();
        }
        // Addresses of existing pods must not be reused.
        let taken = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
        let taken = taken.and_then(|ip| ip.parse::<std::net::Ipv4Addr>().ok()).map(u32::from);
        self.addresses = self.addresses.max(taken.unwrap_or_default() & 0x003f_ffff) + 1;
        let inits = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
        let local = asked == Some(LOOPBACK) || inits.into_iter().any(is_native_sidecar);
        let network = if local { 0x7f40_0000 } else { 0x0a40_0000 };
        std::net::Ipv4Addr::from(network | (self.addresses & 0x003f_ffff)).to_string()
    }

    /// Queues a key after an event.
    fn touch(&mut self, key: Key) {
        let work = self.work.entry(key.clone()).or_default();
        if !work.again {
            work.again = true;
            if !work.busy {
                self.queue.push_back(key);
            }
        }
    }

    fn wake(&mut self) {
        let now = monotonic();
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                self.touch(key);
            }
        }
    }

    fn work_off(&mut self) {
        while self.writes.len() < WRITES {
            let Some(key) = self.queue.pop_front() else { return };
            let work = self.work.entry(key.clone()).or_default();
            work.again = false;
            let write = match &key {
                Key::Pod(..) => self.pod_write(&key),
                Key::Claim(..) => self.claim_write(&key),
                Key::Volume(name) => {
                    let (client, name) = (self.kubelet.client.clone(), name.clone());
                    Some(async move { claims::release(&client, &name).await.map(|()| Outcome::Done) }.boxed())
                        .map(|write| (String::new(), write))
                }
            };
            match write {
                Some((uid, write)) => {
                    self.work.entry(key.clone()).or_default().busy = true;
                    self.writes.push(write.map(|result| Written { key, uid, result }).boxed());
                }
                None => drop(self.work.remove(&key)),
            }
        }
    }

    fn claim_write(&mut self, key: &Key) -> Option<(String, Write)> {
        let claim = self.claims.get(key)?;
        if !claims::is_unbound(claim, self.kubelet.storage_class.as_deref()) {
            return self.growth_write(key);
        }
        let namespace = claim.namespace().unwrap_or_default();
        if self.steering.holds_claim(&namespace, &claim.name_any()) {
            return None;
        }
        let (client, claim, how) = (self.kubelet.client.clone(), claim.clone(), self.kubelet.claims);
        let uid = claim.uid().unwrap_or_default();
        Some(
            (
                uid,
                async move {
                    claims::bind(&client, &claim, how).await.map(|claim| Outcome::Bound(Box::new(claim)))
                }
                .boxed(),
            ),
        )
    }

    /// The next step of a claim that grows.
    fn growth_write(&mut self, key: &Key) -> Option<(String, Write)> {
        let claim = self.claims.get(key)?;
        if !claims::is_of_class(claim, self.kubelet.storage_class.as_deref()) || !growth::is_growing(claim) {
            self.growing.remove(key);
            return None;
        }
        let (client, uid) = (&self.kubelet.client, claim.uid().unwrap_or_default());
        let Some(growth) = self.growing.get_mut(key).filter(|growth| growth.uid == uid) else {
            return Some((uid, growth::read_class(client, claim)));
        };
        let now = Now { instant: monotonic(), wall: self.kubelet.clock.now() };
        let pods = mounting(&self.pods, claim);
        match growth.next(claim, &pods, now.instant) {
            Next::Wait(again) => {
                self.timers.extend(again.map(|at| (at, key.clone())));
                None
            }
            Next::Do(step) => {
                self.timers.extend(growth.again().map(|at| (at, key.clone())));
                Some((uid, growth::write(client, claim, self.kubelet.claims, step, now)))
            }
        }
    }

    /// The way of a claim's class was read.
    fn class_read(&mut self, key: &Key, uid: String, way: Option<Expansion>) {
        let Some(claim) = self.claims.get(key) else { return };
        let growth = Growth::new(uid, way, &mounting(&self.pods, claim), monotonic());
        self.growing.insert(key.clone(), growth);
    }

    fn pod_write(&mut self, key: &Key) -> Option<(String, Write)> {
        let now = Now { instant: monotonic(), wall: self.kubelet.clock.now() };
        let tracked = self.pods.get_mut(key)?;
        let orders = self.steering.orders(&tracked.pod);
        let step = tracked.step(&self.kubelet.client, &orders, now);
        let uid = tracked.pod.uid().unwrap_or_default();
        if let Some(again) = step.again {
            self.timers.insert((again, key.clone()));
        }
        if let Some(url) = step.ask {
            let (probing, answer) = until_other(&self.kubelet, url, tracked.life.probed, Duration::ZERO);
            tracked.probing = Some(probing);
            self.probes.push(about(key.clone(), uid.clone(), answer));
        }
        step.write.map(|write| (uid, write))
    }

    fn written(&mut self, written: Written) {
        let Written { key, uid, result } = written;
        let mut work = self.work.remove(&key).unwrap_or_default();
        work.busy = false;
        let tracked = self.pods.get_mut(&key).filter(|tracked| tracked.pod.uid().as_deref() == Some(&uid));
        match result {
            Ok(Outcome::Patched(pod)) => {
                if let Some(tracked) = tracked {
                    tracked.update(*pod);
                }
                work.failures = 0;
            }
            Ok(Outcome::Bound(claim)) => {
                // Unless it was deleted meanwhile.
                if self.claims.contains_key(&key) {
                    self.claim_seen(key.clone(), *claim);
                }
                work.failures = 0;
            }
            Ok(Outcome::Class(way)) => {
                self.class_read(&key, uid, way);
                work.again = true;
                work.failures = 0;
            }
            Ok(Outcome::Told) => work.failures = 0,
            Ok(Outcome::Done) => {
                if let Some(tracked) = tracked {
                    tracked.let_go = true;
                }
                work.failures = 0;
            }
            // It is gone or was replaced: the watch will tell.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                tracing::debug!(?key, %error, "the played kubelet tries again");
                if let Some(tracked) = tracked {
                    tracked.written = None;
                }
                let delay = RETRY_LAST.min(RETRY_FIRST * 2_u32.saturating_pow(work.failures));
                work.failures += 1;
                self.timers.insert((monotonic() + delay, key.clone()));
            }
        }
        let again = std::mem::take(&mut work.again);
        if again || work.failures > 0 {
            self.work.insert(key.clone(), work);
        }
        if again {
            self.touch(key);
        }
    }

    fn probed(&mut self, probed: Option<Probed>) {
        let Some(Probed { key, uid, ready }) = probed else { return };
        let Some(tracked) = self.pods.get_mut(&key) else { return };
        // A new pod has a new probe.
        if tracked.pod.uid().as_deref() != Some(&uid) {
            return;
        }
        let Some(url) = tracked.probing.as_ref().map(|probing| probing.url.clone()) else { return };
        tracked.life.probed = ready;
        let (probing, answer) = until_other(&self.kubelet, url, ready, self.kubelet.probe_interval);
        tracked.probing = Some(probing);
        self.probes.push(about(key.clone(), uid, answer));
        self.touch(key);
    }
}

/// A probe's answer and its pod; `None` if it is obsolete.
fn about(
    key: Key,
    uid: String,
    answer: BoxFuture<'static, Result<bool, Aborted>>,
) -> BoxFuture<'static, Option<Probed>> {
    answer.map(|ready| Some(Probed { key, uid, ready: ready.ok()? })).boxed()
}

/// The pods that have a claim mounted.
fn mounting<'a>(pods: &'a BTreeMap<Key, TrackedPod>, claim: &PersistentVolumeClaim) -> Vec<&'a Pod> {
    let (namespace, name) = (claim.namespace(), claim.name_any());
    let uses = |pod: &Pod| pod.namespace() == namespace && growth::claims_of(pod).any(|used| used == name);
    let all = pods.values().map(|tracked| &tracked.pod);
    all.filter(|pod| uses(pod) && growth::is_mounted(pod)).collect()
}

fn pod_key(pod: &Pod) -> Key {
    Key::Pod(pod.namespace().unwrap_or_default(), pod.name_any())
}

fn claim_key(claim: &PersistentVolumeClaim) -> Key {
    Key::Claim(claim.namespace().unwrap_or_default(), claim.name_any())
}
