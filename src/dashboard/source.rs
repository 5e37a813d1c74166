//! What the page reads: fleets with their nodes and pods, watched while somebody looks, and not else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use futures::StreamExt;
use futures::stream;
use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;

use super::view::Told;
use crate::clock::{SharedClock, monotonic};
use crate::cluster::Key;
use crate::cluster::freshness::SILENT;
use crate::cluster::observed::{Meta, ObservedFleet};
use crate::cluster::watch::Namespaces;
use crate::foresight::{Change, foresee};
use crate::reader::{OF_REPORTS, Sight, Wanted, Whose, events, sentence};
use crate::report::chain::{Happened, culprit};
use crate::report::{FleetReport, Seen, Typed, Verdict};

/// For how long nobody has to have looked before nothing is watched any more.
const UNSEEN: Duration = Duration::from_mins(5);
/// How old what is asked for beside what is watched may be: events, and what comes next.
const OLD: Duration = Duration::from_secs(5);
/// How old it may be where nothing has changed.
const OLD_AT_REST: Duration = Duration::from_mins(1);
/// Of larger fleets what comes next is not worked out unasked: it takes reading all of their objects.
const LARGE: i32 = 500;
/// The most events that the chain tells: the last ones.
const EVENTS: usize = 5;

/// Where the page reads.
pub struct Source {
    client: Client,
    scopes: Vec<Namespaces>,
    clock: SharedClock,
    typed: Typed,
    state: Mutex<State>,
    told: Mutex<HashMap<Key, Asked>>,
}

#[derive(Default)]
struct State {
    seen_at: Option<Instant>,
    watched: Option<Arc<Watched>>,
}

/// What was asked about a fleet, and of which version of it.
struct Asked {
    at: Instant,
    version: Version,
    told: Option<Arc<Told>>,
    asking: bool,
}

/// What tells one state of a fleet and all that belongs to it from another.
type Version = (String, (u64, u64), (u64, u64));

/// What is watched.
pub struct Watched {
    sights: Vec<(Wanted, Sight)>,
    changes: watch::Sender<u64>,
}

impl Watched {
    /// Changes whenever anything did.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether fleets of several namespaces may be seen.
    pub fn has_namespaces(&self) -> bool {
        self.sights.len() > 1 || self.sights.iter().any(|(wanted, _)| wanted.scope == Namespaces::All)
    }

    /// Every fleet, with what belongs to it.
    pub fn all(&self) -> Vec<Seen> {
        let seen = |(wanted, sight): &(Wanted, Sight)| {
            let fleets = sight.fleets(wanted);
            fleets.iter().map(|fleet| sight.seen(fleet)).collect::<Vec<_>>()
        };
        self.sights.iter().flat_map(seen).collect()
    }

    /// One fleet.
    pub fn one(&self, key: &Key) -> Option<Seen> {
        self.sights.iter().find_map(|(_, sight)| {
            let fleet = sight.view.fleets.get(key)?;
            Some(sight.seen(&fleet))
        })
    }

    /// What is another whenever something of a fleet changed.
    pub fn version(&self, key: &Key) -> Option<Version> {
        self.sights.iter().find_map(|(_, sight)| {
            let fleet: Arc<ObservedFleet> = sight.view.fleets.get(key)?;
            let Meta { namespace, name, uid, resource_version, .. } = &fleet.meta;
            let nodes = sight.view.nodes.group_changes(namespace, uid);
            Some((resource_version.clone(), nodes, sight.view.pods.group_changes(namespace, name)))
        })
    }

    /// For how long the longest silence of what is watched lasts: as long nobody knows what is so.
    pub fn silence(&self) -> Duration {
        self.sights.iter().map(|(_, sight)| sight.view.freshness.outdated()).max().unwrap_or_default()
    }

    /// Since when nothing is heard, where that is too long to take what is known for what is so.
    pub fn silent_since(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let silence = self.silence();
        (silence >= SILENT).then(|| now - silence)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Source {
    /// Reads fleets of these namespaces by a client.
    #[must_use]
    pub fn new(client: Client, scopes: Vec<Namespaces>, clock: SharedClock) -> Self {
        let typed = Typed::PLAIN;
        Self { client, scopes, clock, typed, state: Mutex::default(), told: Mutex::default() }
    }

    /// The same for who reaches the cluster by what they typed: commands that the page speaks of say it again.
    #[must_use]
    pub fn typed_as(self, typed: Typed) -> Self {
        Self { typed, ..self }
    }

    /// How commands are typed by who reads the page.
    pub fn typed(&self) -> &Typed {
        &self.typed
    }

    /// The clock of what is read.
    #[must_use]
    pub fn clock(&self) -> SharedClock {
        self.clock.clone()
    }

    /// The time, by the clock of what is read.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// What there is to see. Begins to watch where nobody did; an error says why nothing can be read.
    pub async fn look(self: &Arc<Self>) -> Result<Arc<Watched>, String> {
        {
            let mut state = lock(&self.state);
            state.seen_at = Some(monotonic());
            if let Some(watched) = &state.watched {
                return Ok(watched.clone());
            }
        }
        let mut sights = Vec::new();
        for scope in &self.scopes {
            let wanted = Wanted { scope: scope.clone(), names: Vec::new() };
            let sight = Sight::read(&self.client, &wanted, &OF_REPORTS).await?;
            let sight = sight.following(&self.client, &wanted).await?;
            sights.push((wanted, sight));
        }
        let watched = Arc::new(Watched { sights, changes: watch::Sender::new(0) });
        let mut state = lock(&self.state);
        // Somebody else may have been faster.
        if let Some(other) = &state.watched {
            return Ok(other.clone());
        }
        state.watched = Some(watched.clone());
        tokio::spawn(self.clone().follow(watched.clone()));
        Ok(watched)
    }

    /// Whether what is shown is what is so, as far as the API server can be heard. Where nothing is watched it is asked.
    pub async fn heard(&self) -> Result<(), String> {
        let watched = lock(&self.state).watched.clone();
        let Some(watched) = watched else {
            let answer = self.client.apiserver_version().await;
            return answer.map(drop).map_err(|error| sentence(&error));
        };
        match watched.silent_since(self.now()) {
            None => Ok(()),
            Some(since) => {
                let since = since.to_rfc3339_opts(SecondsFormat::Secs, true);
                Err(format!("nothing is heard of the API server since {since}"))
            }
        }
    }

    async fn follow(self: Arc<Self>, watched: Arc<Watched>) {
        let streams: Vec<_> =
            watched.sights.iter().map(|(wanted, sight)| sight.watch(&self.client, wanted)).collect();
        let mut changes = stream::select_all(streams);
        loop {
            tokio::select! {
                _ = changes.next() => watched.changed(),
                () = tokio::time::sleep(UNSEEN) => {}
            }
            let mut state = lock(&self.state);
            if watched.changes.receiver_count() > 0 {
                state.seen_at = Some(monotonic());
            }
            if state.seen_at.is_none_or(|at| monotonic().duration_since(at) >= UNSEEN) {
                state.watched = None;
                lock(&self.told).clear();
                return;
            }
        }
    }

    /// What has to be asked for about a fleet, as far as it is known by now. Where that is too old it is asked anew, and what
    /// is watched counts as changed once the answer is in.
    pub fn told(
        self: &Arc<Self>,
        watched: &Arc<Watched>,
        key: &Key,
        report: &FleetReport,
    ) -> Option<Arc<Told>> {
        let version = watched.version(key)?;
        let mut all = lock(&self.told);
        let known = all.entry(key.clone()).or_insert_with(|| Asked {
            at: monotonic(),
            version: version.clone(),
            told: None,
            asking: false,
        });
        let age = monotonic().duration_since(known.at);
        let old = if known.version == version { OLD_AT_REST } else { OLD };
        if !known.asking && (known.told.is_none() || age >= old) {
            known.asking = true;
            known.version = version;
            known.at = monotonic();
            let (source, watched, key, report) = (self.clone(), watched.clone(), key.clone(), report.clone());
            tokio::spawn(async move {
                let told = source.ask(&watched, &key, &report).await;
                if let Some(known) = lock(&source.told).get_mut(&key) {
                    known.told = Some(Arc::new(told));
                    known.asking = false;
                }
                watched.changed();
            });
        }
        known.told.clone()
    }

    /// When what was asked about a fleet was asked last, and whether it is in.
    pub fn told_at(&self, key: &Key) -> Option<(Instant, bool)> {
        lock(&self.told).get(key).map(|known| (known.at, known.asking))
    }

    async fn ask(&self, watched: &Watched, key: &Key, report: &FleetReport) -> Told {
        let mut told = Told::default();
        let namespace = key.namespace.as_str();
        match events(
            &self.client,
            namespace,
            Some(Whose { kind: "NodeDeployment", name: &key.name, uid: "" }),
        )
        .await
        {
            Ok(all) => told.of_fleet = all,
            Err(sentence) => told.unread.push(sentence),
        }
        if let Some(node) = culprit(report) {
            let name = format!("{node}-0");
            let of_pod = Key::new(namespace, &name);
            let pod = watched.sights.iter().find_map(|(_, sight)| sight.view.pods.get(&of_pod));
            match events(&self.client, namespace, Some(Whose::of_pod(node, &name, pod.as_deref()))).await {
                Ok(all) => told.of_pod = last(all),
                Err(sentence) => told.unread.push(sentence),
            }
        }
        told.unread.dedup();
        let at_rest = report.verdict == Verdict::UpToDate && report.rollout.is_none();
        if !at_rest && report.replicas <= LARGE {
            let nothing = Change::Merge(serde_json::json!({}));
            told.next = Some(foresee(&self.client, namespace, &key.name, &nothing, self.now()).await);
        }
        told
    }
}

fn last(mut all: Vec<Happened>) -> Vec<Happened> {
    all.split_off(all.len().saturating_sub(EVENTS))
}

fn lock<T>(locked: &Mutex<T>) -> MutexGuard<'_, T> {
    locked.lock().unwrap_or_else(PoisonError::into_inner)
}
