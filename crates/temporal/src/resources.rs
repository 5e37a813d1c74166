//! The kinds of `spec.perVersion` in the cluster: which are allowed, and their watches. A watch starts when the first
//! object uses its kind, so that an operator without such objects needs no rights to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::timeout;
use windlass_core::api::names::{LABEL_MANAGED_BY, MANAGER};
use windlass_core::observed::ObservedResource;
use windlass_kube_port::kind::DynamicKind;
use windlass_kube_port::watch::{Namespaces, watch_resources};
use windlass_kube_port::workqueue::Request;
use windlass_kube_port::{Cache, Key, Kind, View};

use crate::api::names::LABEL_WORKERS;
use crate::per_version::{GroupKind, Type};
use crate::workers::DEBOUNCE;

/// How long the API server may take to describe a kind.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a kind cannot be used, as a sentence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unusable {
    /// Until a person changes something.
    Permanent(String),
    /// Perhaps only now.
    Temporary(String),
}

impl Unusable {
    /// The same with another sentence.
    #[must_use]
    pub fn map(self, sentence: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Permanent(text) => Self::Permanent(sentence(text)),
            Self::Temporary(text) => Self::Temporary(sentence(text)),
        }
    }
}

/// A kind and the cache of its objects.
#[derive(Clone)]
pub struct Watched {
    /// The kind.
    pub kind: Kind,
    /// Its objects.
    pub cache: Arc<Cache<ObservedResource>>,
}

/// The kinds of `spec.perVersion`.
pub struct Resources {
    client: Client,
    scope: Namespaces,
    view: Arc<View>,
    requests: UnboundedSender<Request>,
    allowed: Vec<GroupKind>,
    started: Mutex<Started>,
}

#[derive(Default)]
struct Started {
    kinds: BTreeMap<Type, Kind>,
    watches: JoinSet<()>,
}

impl Resources {
    /// These kinds, in these namespaces. Each change of an object requests a reconcile.
    #[must_use]
    pub fn new(
        client: Client,
        scope: Namespaces,
        view: Arc<View>,
        requests: UnboundedSender<Request>,
        allowed: Vec<GroupKind>,
    ) -> Self {
        Self { client, scope, view, requests, allowed, started: Mutex::default() }
    }

    /// A kind with its objects; the first call for a kind starts its watch.
    pub async fn watched(&self, type_: &Type) -> Result<Watched, Unusable> {
        let wanted = type_.group_kind();
        if !self.allowed.contains(&wanted) {
            return Err(Unusable::Permanent(format!(
                "the operator does not manage objects of this kind; start it with --worker-resource {wanted}, or remove the manifest"
            )));
        }
        let known = self.started().kinds.get(type_).copied();
        let kind = match known {
            Some(kind) => kind,
            None => self.start(type_, self.discover(type_).await?),
        };
        Ok(Watched { kind, cache: self.view.resources(kind) })
    }

    /// Starts the watch of a kind, unless it was started meanwhile.
    fn start(&self, type_: &Type, kind: Kind) -> Kind {
        let mut started = self.started();
        if let Some(kind) = started.kinds.get(type_) {
            return *kind;
        }
        started.kinds.insert(type_.clone(), kind);
        self.start_watch(&mut started.watches, kind);
        kind
    }

    fn started(&self) -> MutexGuard<'_, Started> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn discover(&self, type_: &Type) -> Result<Kind, Unusable> {
        let (group, version) = type_.api_version.split_once('/').unwrap_or(("", &type_.api_version));
        let wanted = GroupVersionKind::gvk(group, version, &type_.kind);
        let missing = || {
            Unusable::Permanent(format!(
                "the API server has no {} in {}; install its definition, or correct apiVersion and kind",
                type_.kind, type_.api_version
            ))
        };
        let described = timeout(DISCOVERY_TIMEOUT, pinned_kind(&self.client, &wanted)).await;
        match described {
            Ok(Ok((_, capabilities))) if capabilities.scope == Scope::Cluster => Err(Unusable::Permanent(
                format!("{} is not a namespaced kind; remove the manifest", type_.kind),
            )),
            // Kinds live as long as the program: each is described once.
            Ok(Ok((resource, _))) => Ok(Kind::Dynamic(Box::leak(Box::new(DynamicKind {
                group: resource.group,
                version: resource.version,
                kind: resource.kind,
                plural: resource.plural,
            })))),
            Ok(Err(kube::Error::Discovery(_))) => Err(missing()),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(missing()),
            Ok(Err(error)) => {
                Err(Unusable::Temporary(format!("the API server did not describe the kind: {error}")))
            }
            Err(_) => Err(Unusable::Temporary("the API server did not describe the kind in time".to_owned())),
        }
    }

    fn start_watch(&self, watches: &mut JoinSet<()>, kind: Kind) {
        let api = self.scope.api(&self.client, &self.view, kind);
        let owned = format!("{LABEL_WORKERS},{LABEL_MANAGED_BY}={MANAGER}");
        let mut changes = watch_resources(api, &owned, kind, self.view.clone());
        let requests = self.requests.clone();
        watches.spawn(async move {
            while let Some(meta) = changes.next().await {
                // The receiver is dropped only when the controller stops.
                if let Some(owner) = meta.label(LABEL_WORKERS) {
                    let _ = requests.send(Request::after(Key::new(&meta.namespace, owner), DEBOUNCE));
                }
            }
        });
    }
}
