//! Follows single ConfigMaps and Secrets by name. A watch of the object's metadata says when it changed; its data is then read
//! once, and only a digest of it and its keys are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::watch::{config, paced};
use crate::workqueue::Request;
use crate::{Cluster, ClusterError, Key, Kind};
use windlass_clock::monotonic;
use windlass_core::revision::config::{ConfigKind, ConfigReference, digest_of};

/// How long an answer counts that no watch corrects: without the right to watch, or if the object could not be read.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// A followed object: its namespace, and what it is.
type Place = (String, ConfigReference);

/// What the data of a followed object is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The object exists: the digest of its data, and the keys of the data.
    Found {
        /// The digest.
        digest: String,
        /// The keys.
        keys: BTreeSet<String>,
    },
    /// The object does not exist.
    Missing,
    /// The API server does not let Windlass read it; why, in its words.
    Refused(String),
}

/// The objects that fleets follow. Without a client, as in tests of single reconciles, no change is noticed.
#[derive(Default)]
pub struct Followed {
    client: Option<Client>,
    fleets: OnceLock<UnboundedSender<Request>>,
    /// What each fleet follows, as far as it follows anything.
    wanted: Mutex<HashMap<Key, Vec<ConfigReference>>>,
    objects: Mutex<HashMap<Place, Object>>,
}

#[derive(Default)]
struct Object {
    followers: BTreeSet<Key>,
    watch: Option<Watch>,
    /// The UID and the resourceVersion that the watch saw last; empty if the object does not exist.
    version: String,
    /// The number of changes that the watch has seen.
    changes: u64,
    /// True if the watch has listed it, so that it reports each change.
    is_watched: bool,
    /// The last answer, the number of changes before it was asked for, and when that was.
    answer: Option<(u64, Instant, Answer)>,
}

/// A watch that ends with its object.
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Followed {
    /// Watches with this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client: Some(client), ..Self::default() }
    }

    /// Requeues fleets here when an object changes that they follow.
    pub fn requeue(&self, fleets: UnboundedSender<Request>) {
        // Only the first call has an effect.
        let _ = self.fleets.set(fleets);
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<Place, Object>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows these objects for a fleet, and no others. An object that no fleet follows any more is forgotten.
    pub fn follow(self: &Arc<Self>, fleet: &Key, wanted: &[ConfigReference]) {
        let mut known = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(fleet).map_or(&[][..], Vec::as_slice) == wanted {
            return;
        }
        if wanted.is_empty() {
            known.remove(fleet);
        } else {
            known.insert(fleet.clone(), wanted.to_vec());
        }
        let mut objects = self.objects();
        for ((namespace, reference), object) in objects.iter_mut() {
            if *namespace == fleet.namespace && !wanted.contains(reference) {
                object.followers.remove(fleet);
            }
        }
        objects.retain(|_, object| !object.followers.is_empty());
        for reference in wanted {
            let place = (fleet.namespace.clone(), reference.clone());
            let object = objects.entry(place.clone()).or_default();
            object.followers.insert(fleet.clone());
            if object.watch.is_none() {
                object.watch = self.watch(place);
            }
        }
    }

    fn watch(self: &Arc<Self>, place: Place) -> Option<Watch> {
        let client = self.client.clone()?;
        let (namespace, reference) = &place;
        let kind = kind_of(reference);
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(client, namespace, &kind.resource());
        let config = config(kind).fields(&format!("metadata.name={}", reference.name));
        let events = paced(watcher::watcher(api, config).boxed(), kind);
        let own = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(events);
            let mut listed = String::new();
            while let Some(event) = events.next().await {
                let version = |object: &PartialObjectMeta<DynamicObject>| {
                    format!(
                        "{}/{}",
                        object.uid().unwrap_or_default(),
                        object.resource_version().unwrap_or_default()
                    )
                };
                let seen = match event {
                    Event::Init => {
                        listed = String::new();
                        continue;
                    }
                    Event::InitApply(object) => {
                        listed = version(&object);
                        continue;
                    }
                    Event::InitDone => std::mem::take(&mut listed),
                    Event::Apply(object) => version(&object),
                    Event::Delete(_) => String::new(),
                };
                let Some(own) = own.upgrade() else { return };
                own.saw(&place, &seen);
            }
        });
        Some(Watch(task.abort_handle()))
    }

    fn saw(&self, place: &Place, version: &str) {
        let mut objects = self.objects();
        let Some(object) = objects.get_mut(place) else { return };
        object.is_watched = true;
        // A refusal may be over: the watch works.
        let is_refused = matches!(object.answer, Some((_, _, Answer::Refused(_))));
        if object.version == version && !is_refused {
            return;
        }
        version.clone_into(&mut object.version);
        object.changes += 1;
        for fleet in &object.followers {
            if let Some(fleets) = self.fleets.get() {
                // The receiver is gone only when the operator stops.
                let _ = fleets.send(fleet.clone().into());
            }
        }
    }

    /// Reads the data of those of these objects that have changed since it was read. Returns what is known of each.
    pub async fn read(
        &self,
        cluster: &dyn Cluster,
        namespace: &str,
        wanted: &[ConfigReference],
    ) -> Result<BTreeMap<ConfigReference, Answer>, ClusterError> {
        let mut found = BTreeMap::new();
        for reference in wanted {
            let place = (namespace.to_owned(), reference.clone());
            let (changes, is_watched, known) = match self.objects().get(&place) {
                Some(object) => (object.changes, object.is_watched, object.answer.clone()),
                None => (0, false, None),
            };
            if let Some((asked, at, answer)) = known
                && asked == changes
                && ((is_watched && !matches!(answer, Answer::Refused(_))) || at.elapsed() < ASK_AGAIN_AFTER)
            {
                found.insert(reference.clone(), answer);
                continue;
            }
            let (version, answer) = match cluster.get(kind_of(reference), namespace, &reference.name).await {
                Ok(Some(object)) => (version_of(&object), answer_of(&object)),
                Ok(None) => (String::new(), Answer::Missing),
                Err(ClusterError::Forbidden { message, .. }) => (String::new(), Answer::Refused(message)),
                Err(error) => return Err(error),
            };
            if let Some(object) = self.objects().get_mut(&place) {
                object.answer = Some((changes, monotonic(), answer.clone()));
                // The watch need not report what was read here.
                if object.changes == changes {
                    object.version = version;
                }
            }
            found.insert(reference.clone(), answer);
        }
        Ok(found)
    }

    /// True if a watch reports each change of all these objects.
    #[must_use]
    pub fn are_watched(&self, namespace: &str, wanted: &[ConfigReference]) -> bool {
        let objects = self.objects();
        let object = |reference: &ConfigReference| objects.get(&(namespace.to_owned(), reference.clone()));
        wanted.iter().all(|reference| object(reference).is_some_and(|object| object.is_watched))
    }

    /// The number of objects that are followed.
    #[must_use]
    pub fn size(&self) -> usize {
        self.objects().len()
    }
}

/// The UID and the resourceVersion of an object.
fn version_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("uid"), text("resourceVersion"))
}

fn answer_of(object: &Value) -> Answer {
    let fields = ["data", "binaryData"].into_iter().filter_map(|field| object[field].as_object());
    Answer::Found { digest: digest_of(object), keys: fields.flat_map(|data| data.keys().cloned()).collect() }
}

fn kind_of(reference: &ConfigReference) -> Kind {
    match reference.kind {
        ConfigKind::ConfigMap => Kind::ConfigMap,
        ConfigKind::Secret => Kind::Secret,
    }
}
