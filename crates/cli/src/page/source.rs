//! The page's data: fleets with their nodes and pods, watched only while a page is open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use futures::StreamExt;
use futures::stream;
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::subject::{PageKind, PageOf};
use super::view::{Details, SeenObject};
use crate::extension::{Objects, PAGED, Paged};
use crate::forecast::{Change, forecast, forecast_rollout};
use crate::reader::{FleetSelection, InvolvedObject, OF_REPORTS, Sight, events, sentence};
use crate::report::chain::{TimelineEntry, culprit};
use crate::report::{FleetReport, SeenStatefulSets, Typed, Verdict};
use crate::target::Target;
use windlass_clock::{SharedClock, monotonic};
use windlass_kube_port::Kind;
use windlass_kube_port::freshness::SILENT;
use windlass_kube_port::observed::{Meta, ObservedFleet, ObservedRollout};
use windlass_kube_port::watch::Namespaces;

/// How long after the last request the watches stop.
const UNSEEN: Duration = Duration::from_mins(5);
/// The greatest age of events and forecasts.
const OLD: Duration = Duration::from_secs(5);
/// The same for a fleet without changes.
const OLD_AT_REST: Duration = Duration::from_mins(1);
/// Fleets with more nodes get no forecast: it would read all of their objects.
const LARGE: i32 = 500;
/// The most events in the chain of causes: the last ones.
const EVENTS: usize = 5;

/// The page's reads.
pub struct Source {
    client: Client,
    scopes: Vec<Namespaces>,
    clock: SharedClock,
    typed: Typed,
    state: Mutex<State>,
    details: Mutex<HashMap<PageOf, CachedDetails>>,
}

#[derive(Default)]
struct State {
    seen_at: Option<Instant>,
    watched: Option<Arc<Watched>>,
}

/// The events and forecast of a fleet, with the version that they are about.
struct CachedDetails {
    at: Instant,
    version: Version,
    details: Option<Arc<Details>>,
    asking: bool,
}

/// What the details are about.
pub enum About<'a> {
    /// A fleet or a StatefulSetRollout, with its report.
    Fleet(&'a FleetReport),
    /// An object that is shown as a sheet.
    Sheet {
        /// True if nothing is due: no forecast is needed.
        is_at_rest: bool,
    },
}

/// Identifies a state of a fleet and its objects.
type Version = (String, (u64, u64), (u64, u64));

/// The objects of a kind that is shown as sheets.
type WatchedSheets = (&'static dyn Paged, Mutex<Box<dyn Objects>>);

/// The watched objects.
pub struct Watched {
    sights: Vec<(FleetSelection, Sight)>,
    /// StatefulSetRollouts and the pods of StatefulSets, where the kind is installed.
    rollouts: Vec<(Namespaces, Sight)>,
    /// The objects of extensions that are shown as sheets, where the kind is installed.
    sheets: Vec<WatchedSheets>,
    /// Which kinds of sheets are left out, each in a sentence.
    left_out: Vec<String>,
    changes: watch::Sender<u64>,
}

impl Watched {
    /// Changes with every watch event.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// True if fleets of several namespaces may be shown.
    pub fn has_namespaces(&self) -> bool {
        self.sights.len() > 1 || self.sights.iter().any(|(wanted, _)| wanted.scope == Namespaces::All)
    }

    /// Every fleet and every StatefulSetRollout, with its objects.
    pub fn all(&self) -> Vec<SeenObject> {
        let seen = |(wanted, sight): &(FleetSelection, Sight)| {
            let fleets = sight.fleets(wanted);
            fleets.iter().map(|fleet| SeenObject::Fleet(sight.seen(fleet))).collect::<Vec<_>>()
        };
        let rollouts = |(_, sight): &(Namespaces, Sight)| {
            let all = sight.view.rollouts.list_all(|_| true);
            all.iter().map(|rollout| stateful_sets(sight, rollout)).collect::<Vec<_>>()
        };
        self.sights.iter().flat_map(seen).chain(self.rollouts.iter().flat_map(rollouts)).collect()
    }

    /// Every object that is shown as a sheet, with its kind.
    pub fn sheets(&self) -> Vec<(&'static dyn Paged, Value)> {
        let of = |(paged, objects): &WatchedSheets| {
            lock(objects).current().into_iter().map(|object| (*paged, object)).collect::<Vec<_>>()
        };
        self.sheets.iter().flat_map(of).collect()
    }

    /// One of them.
    pub fn sheet(&self, PageOf { kind, key }: &PageOf) -> Option<(&'static dyn Paged, Value)> {
        let PageKind::Sheet(of) = kind else { return None };
        let is_it = |(paged, object): &(&'static dyn Paged, Value)| {
            let meta = &object["metadata"];
            paged == of && meta["namespace"] == key.namespace && meta["name"] == key.name
        };
        self.sheets().into_iter().find(is_it)
    }

    /// True if the object exists.
    pub fn has(&self, of: &PageOf) -> bool {
        self.one(of).is_some() || self.sheet(of).is_some()
    }

    /// What could not be read of StatefulSetRollouts and extensions, and is not reported by one of them.
    pub fn unread(&self) -> Vec<String> {
        let unread = self.rollouts.iter().filter(|(_, sight)| !sight.has_read(Kind::StatefulSetRollout));
        let unread = unread.flat_map(|(_, sight)| sight.unread.iter().cloned());
        let refused =
            self.sheets.iter().filter_map(|(_, objects)| lock(objects).refused().map(str::to_owned));
        unread.chain(refused).chain(self.left_out.iter().cloned()).collect()
    }

    /// One object with its objects.
    pub fn one(&self, PageOf { kind, key }: &PageOf) -> Option<SeenObject> {
        match kind {
            PageKind::Fleet => self.sights.iter().find_map(|(_, sight)| {
                let fleet = sight.view.fleets.get(key)?;
                Some(SeenObject::Fleet(sight.seen(&fleet)))
            }),
            PageKind::StatefulSets => self.rollouts.iter().find_map(|(_, sight)| {
                let rollout = sight.view.rollouts.get(key)?;
                Some(stateful_sets(sight, &rollout))
            }),
            PageKind::Sheet(_) => None,
        }
    }

    /// Differs whenever the object or one of its objects changed.
    pub fn version(&self, of: &PageOf) -> Option<Version> {
        let PageOf { kind, key } = of;
        if let PageKind::Sheet(_) = kind {
            let (_, object) = self.sheet(of)?;
            let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            return Some((version.to_owned(), (0, 0), (0, 0)));
        }
        if *kind == PageKind::StatefulSets {
            return self.rollouts.iter().find_map(|(_, sight)| {
                let rollout = sight.view.rollouts.get(key)?;
                let pods = sight.view.pods.changes();
                Some((rollout.meta.resource_version.clone(), (pods, 0), (0, 0)))
            });
        }
        self.sights.iter().find_map(|(_, sight)| {
            let fleet: Arc<ObservedFleet> = sight.view.fleets.get(key)?;
            let Meta { namespace, name, uid, resource_version, .. } = &fleet.meta;
            let nodes = sight.view.nodes.group_changes(namespace, uid);
            Some((resource_version.clone(), nodes, sight.view.pods.group_changes(namespace, name)))
        })
    }

    /// The longest time since any watch was last known to be up to date.
    pub fn silence(&self) -> Duration {
        let sights = self.sights.iter().map(|(_, sight)| sight);
        let all = sights.chain(self.rollouts.iter().map(|(_, sight)| sight));
        all.map(|sight| sight.view.freshness.outdated()).max().unwrap_or_default()
    }

    /// Since when the watches are outdated, if for too long to present them as current.
    pub fn silent_since(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let silence = self.silence();
        (silence >= SILENT).then(|| now - silence)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Source {
    /// Reads the fleets of these namespaces.
    #[must_use]
    pub fn new(client: Client, scopes: Vec<Namespaces>, clock: SharedClock) -> Self {
        let typed = Typed::PLAIN;
        Self { client, scopes, clock, typed, state: Mutex::default(), details: Mutex::default() }
    }

    /// Sets the flags of the user's own command line, for suggested commands.
    #[must_use]
    pub fn typed_as(self, typed: Typed) -> Self {
        Self { typed, ..self }
    }

    /// How suggested commands are typed.
    pub fn typed(&self) -> &Typed {
        &self.typed
    }

    /// The clock of the cluster's timestamps.
    #[must_use]
    pub fn clock(&self) -> SharedClock {
        self.clock.clone()
    }

    /// The time by that clock.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The watched objects. Starts the watches if needed; an error says why nothing can be read.
    pub async fn watched(self: &Arc<Self>) -> Result<Arc<Watched>, String> {
        {
            let mut state = lock(&self.state);
            state.seen_at = Some(monotonic());
            if let Some(watched) = &state.watched {
                return Ok(watched.clone());
            }
        }
        let mut sights = Vec::new();
        let (mut rollouts, mut sheets, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for scope in &self.scopes {
            let wanted = FleetSelection { scope: scope.clone(), names: Vec::new() };
            let sight = Sight::read(&self.client, &wanted, &OF_REPORTS).await?;
            let sight = sight.following(&self.client, &wanted).await?;
            sights.push((wanted.clone(), sight));
            if let Some(sight) = Sight::rollouts_if_installed(&self.client, scope).await {
                rollouts.push((scope.clone(), sight.following_rollouts(&self.client, scope).await));
            }
            for paged in PAGED {
                match self.followed(*paged, &wanted).await {
                    Ok(objects) => sheets.extend(objects.map(|objects| (*paged, Mutex::new(objects)))),
                    Err(sentence) => left_out.push(sentence),
                }
            }
        }
        let watched =
            Arc::new(Watched { sights, rollouts, sheets, left_out, changes: watch::Sender::new(0) });
        let mut state = lock(&self.state);
        // A concurrent call may have started them.
        if let Some(other) = &state.watched {
            return Ok(other.clone());
        }
        state.watched = Some(watched.clone());
        tokio::spawn(self.clone().follow(watched.clone()));
        Ok(watched)
    }

    /// The objects of a kind, if it is installed. An error says why they cannot be read or watched.
    async fn followed(
        &self,
        paged: &dyn Paged,
        wanted: &FleetSelection,
    ) -> Result<Option<Box<dyn Objects>>, String> {
        let Some(mut objects) = paged.read(&self.client, wanted, false).await? else { return Ok(None) };
        objects.may_follow(&self.client).await?;
        Ok(Some(objects))
    }

    /// An error unless the watches are up to date; without watches, unless the API server answers.
    pub async fn check_health(&self) -> Result<(), String> {
        let watched = lock(&self.state).watched.clone();
        let Some(watched) = watched else {
            let answer = self.client.apiserver_version().await;
            return answer.map(drop).map_err(|error| sentence(&error));
        };
        match watched.silent_since(self.now()) {
            None => Ok(()),
            Some(since) => {
                let since = since.to_rfc3339_opts(SecondsFormat::Secs, true);
                Err(format!("no response from the API server since {since}"))
            }
        }
    }

    async fn follow(self: Arc<Self>, watched: Arc<Watched>) {
        let of_fleets = watched.sights.iter().map(|(wanted, sight)| sight.watch(&self.client, wanted));
        let of_rollouts =
            watched.rollouts.iter().map(|(scope, sight)| sight.watch_rollouts(&self.client, scope));
        let of_sheets = watched.sheets.iter().map(|(_, objects)| lock(objects).watch(&self.client));
        let streams: Vec<_> =
            of_fleets.chain(of_rollouts).map(|stream| stream.map(drop).boxed()).chain(of_sheets).collect();
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
                lock(&self.details).clear();
                return;
            }
        }
    }

    /// The events and forecast of a fleet, if known. Outdated ones are read again in the background, and the fleet
    /// counts as changed once they arrive.
    pub fn details(
        self: &Arc<Self>,
        watched: &Arc<Watched>,
        of: &PageOf,
        about: &About<'_>,
    ) -> Option<Arc<Details>> {
        let version = watched.version(of)?;
        let mut all = lock(&self.details);
        let cached = all.entry(of.clone()).or_insert_with(|| CachedDetails {
            at: monotonic(),
            version: version.clone(),
            details: None,
            asking: false,
        });
        let age = monotonic().duration_since(cached.at);
        let old = if cached.version == version { OLD_AT_REST } else { OLD };
        if !cached.asking && (cached.details.is_none() || age >= old) {
            cached.asking = true;
            cached.version = version;
            cached.at = monotonic();
            let (source, watched, of) = (self.clone(), watched.clone(), of.clone());
            let report = match about {
                About::Fleet(report) => Some((*report).clone()),
                About::Sheet { .. } => None,
            };
            let is_at_rest = matches!(about, About::Sheet { is_at_rest: true });
            tokio::spawn(async move {
                let details = match &report {
                    Some(report) => source.ask(&watched, &of, report).await,
                    None => source.ask_about_sheet(&of, is_at_rest).await,
                };
                if let Some(cached) = lock(&source.details).get_mut(&of) {
                    cached.details = Some(Arc::new(details));
                    cached.asking = false;
                }
                watched.changed();
            });
        }
        cached.details.clone()
    }

    /// When the events and forecast of a fleet were last read, and whether they have arrived.
    pub fn details_read_at(&self, of: &PageOf) -> Option<(Instant, bool)> {
        lock(&self.details).get(of).map(|cached| (cached.at, cached.asking))
    }

    async fn ask(&self, watched: &Watched, of: &PageOf, report: &FleetReport) -> Details {
        let mut details = Details::default();
        let PageOf { kind, key } = of;
        let namespace = key.namespace.as_str();
        match events(
            &self.client,
            namespace,
            Some(InvolvedObject { kind: kind.kind().name(), name: &key.name, uid: "" }),
        )
        .await
        {
            Ok(all) => details.of_object = all,
            Err(sentence) => details.unread.push(sentence),
        }
        if let Some(node) = culprit(report) {
            let is_node = *kind == PageKind::Fleet;
            let name = if is_node { format!("{node}-0") } else { node.to_owned() };
            // The StatefulSet of a node has its name.
            let set = if is_node { node } else { name.rsplit_once('-').map_or("", |(set, _)| set) };
            let seen = watched.one(of);
            let pod = seen.as_ref().and_then(|seen| seen.seen().pods.get(&name));
            let involved = InvolvedObject::of_pod(set, &name, pod.map(AsRef::as_ref));
            match events(&self.client, namespace, Some(involved)).await {
                Ok(all) => details.of_pod = last(all),
                Err(sentence) => details.unread.push(sentence),
            }
        }
        details.unread.dedup();
        let at_rest = report.verdict == Verdict::UpToDate && report.rollout.is_none();
        if !at_rest && report.replicas <= LARGE {
            let nothing = Change::Merge(serde_json::json!({}));
            let (client, now) = (&self.client, self.now());
            details.next = Some(match kind {
                PageKind::StatefulSets => forecast_rollout(client, namespace, &key.name, &nothing, now).await,
                _ => forecast(client, namespace, &key.name, &nothing, now).await,
            });
        }
        details
    }

    async fn ask_about_sheet(&self, PageOf { kind, key }: &PageOf, is_at_rest: bool) -> Details {
        let mut details = Details::default();
        let PageKind::Sheet(paged) = kind else { return details };
        let (client, namespace) = (&self.client, key.namespace.as_str());
        let involved = InvolvedObject { kind: paged.name(), name: &key.name, uid: "" };
        match events(client, namespace, Some(involved)).await {
            Ok(all) => details.of_object = all,
            Err(sentence) => details.unread.push(sentence),
        }
        let target = Target { kind: kind.kind(), name: key.name.clone() };
        match paged.explain(client, namespace, &target).await {
            Ok((chain, unread)) => {
                details.chain = Some(chain);
                details.unread.extend(unread);
            }
            Err(sentence) => details.unread.push(sentence),
        }
        if !is_at_rest {
            let nothing = Change::Merge(serde_json::json!({}));
            let asked = paged.forecast(client, (namespace, &key.name), &nothing, self.now()).await;
            details.prediction = Some(asked.map(|prediction| prediction.under()));
        }
        details.unread.dedup();
        details
    }
}

/// A StatefulSetRollout with the pods of its StatefulSets.
fn stateful_sets(sight: &Sight, rollout: &ObservedRollout) -> SeenObject {
    let sets = &rollout.status.stateful_sets;
    let pods = sets.iter().flat_map(|set| sight.view.pods.group(&rollout.meta.namespace, &set.uid));
    let pods: Option<Vec<_>> = sight.has_read(Kind::Pod).then(|| pods.collect());
    let seen = SeenStatefulSets::of_observed(rollout, pods.as_deref(), &sight.unread);
    SeenObject::StatefulSets(Box::new(seen))
}

fn last(mut all: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    all.split_off(all.len().saturating_sub(EVENTS))
}

fn lock<T>(locked: &Mutex<T>) -> MutexGuard<'_, T> {
    locked.lock().unwrap_or_else(PoisonError::into_inner)
}
