//! Resolves `spec.connection` once in each reconcile. Pure.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use windlass_core::observed::ObservedObject;
use windlass_kube_port::{Cache, Key, Kind, View};

use crate::api::connections::{ClusterTemporalConnectionSpec, TemporalConnectionSpec};
use crate::api::source::{ConnectionKind, NamedConnection};
use crate::api::{Connection, ConnectionSource, Reason};

/// The age from which an object of a watch that is refused is not used.
const STALE: Duration = Duration::from_mins(1);

/// The connection of a WorkerDeployment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resolved {
    /// The connection.
    pub connection: Connection,
    /// The Kubernetes namespace of the operator's Secrets.
    pub secrets_in: String,
}

/// Why there is no connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unresolved {
    /// The reason for it.
    pub reason: Reason,
    /// The cause and the remedy, in a sentence.
    pub message: String,
}

/// The connection of one reconcile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Connected {
    /// The connection; the last known one if there is none now.
    pub connection: Connection,
    /// The Kubernetes namespace of the operator's Secrets, or why there is no connection now.
    pub secrets_in: Result<String, Unresolved>,
}

/// A connection object in the caches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// Its spec.
    Spec(Value),
    /// It does not exist.
    Missing,
    /// Objects of this kind could not be listed.
    Unlisted,
}

/// The object with a connection: its kind, and its key, without a namespace for a ClusterTemporalConnection.
pub type Place = (Kind, Key);

/// The object that a WorkerDeployment in this namespace names.
#[must_use]
pub fn place(namespace: &str, named: &NamedConnection) -> Place {
    match named.kind {
        ConnectionKind::Namespaced => (Kind::TemporalConnection, Key::new(namespace, &named.name)),
        ConnectionKind::Cluster => (Kind::ClusterTemporalConnection, Key::new("", &named.name)),
    }
}

/// The cache of a kind of connections.
pub(crate) fn cache(view: &View, kind: Kind) -> &Cache<ObservedObject> {
    if kind == Kind::TemporalConnection { &view.connections } else { &view.cluster_connections }
}

/// Finds a connection object in the caches.
#[must_use]
pub fn find(view: &View, (kind, key): &Place) -> Found {
    let cache = cache(view, *kind);
    let age = view.freshness.ages().into_iter().find(|(of, _)| of == kind).map(|(_, age)| age);
    match cache.get(key) {
        // The watch is refused: the object may have been changed or deleted since.
        Some(_) if age.is_some_and(|age| age > STALE) => Found::Unlisted,
        Some(object) => Found::Spec(object.object["spec"].clone()),
        None if cache.is_ready() => Found::Missing,
        None => Found::Unlisted,
    }
}

/// The connection of a WorkerDeployment in this namespace. Fails if there is none now, and there never was.
pub fn connected(
    view: &View,
    namespace: &str,
    source: &ConnectionSource,
    last: Option<&Connection>,
) -> Result<Connected, Unresolved> {
    match (resolve(namespace, source, last, |of| find(view, of)), last) {
        (Ok(Resolved { connection, secrets_in }), _) => {
            Ok(Connected { connection, secrets_in: Ok(secrets_in) })
        }
        (Err(unresolved), Some(last)) => {
            Ok(Connected { connection: last.clone(), secrets_in: Err(unresolved) })
        }
        (Err(unresolved), None) => Err(unresolved),
    }
}

/// The connection for a forecast: that of the spec, or the one that was last found in the object that it names.
#[must_use]
pub fn recorded(source: &ConnectionSource, last: Option<&Connection>) -> Connection {
    match source {
        ConnectionSource::Inline(connection) => (**connection).clone(),
        ConnectionSource::Named(_) => last.cloned().unwrap_or_default(),
    }
}

/// Resolves the connection of a WorkerDeployment in this namespace. `last`: the connection that it used before, whose
/// Temporal namespace cannot change.
pub fn resolve(
    namespace: &str,
    source: &ConnectionSource,
    last: Option<&Connection>,
    find: impl Fn(&Place) -> Found,
) -> Result<Resolved, Unresolved> {
    let resolved = match source {
        ConnectionSource::Inline(connection) => {
            Resolved { connection: (**connection).clone(), secrets_in: namespace.to_owned() }
        }
        ConnectionSource::Named(named) => {
            let mut resolved = of_object(namespace, named, find(&place(namespace, named)))?;
            if let Some(namespace) = &named.namespace {
                resolved.connection.namespace.clone_from(namespace);
            }
            resolved
        }
    };
    let now = &resolved.connection.namespace;
    match last.map(|last| &last.namespace).filter(|last| *last != now) {
        None => Ok(resolved),
        Some(last) => Err(Unresolved {
            reason: Reason::InvalidSpec,
            message: format!(
                "spec.connection would change the Temporal namespace from {last} to {now}, and workflows in {last} would lose \
                 their workers: set spec.connection.namespace to {last}, or create another WorkerDeployment"
            ),
        }),
    }
}

fn of_object(namespace: &str, named: &NamedConnection, found: Found) -> Result<Resolved, Unresolved> {
    let (kind, key) = place(namespace, named);
    let name = &named.name;
    let (called, field) = match named.kind {
        ConnectionKind::Namespaced => (format!("{} {key}", kind.name()), "spec.connection.name"),
        ConnectionKind::Cluster => (format!("{} {name}", kind.name()), "spec.connection.clusterName"),
    };
    let refused = |reason, message| Err(Unresolved { reason, message });
    let spec = match found {
        Found::Spec(spec) => spec,
        Found::Missing => {
            let message = format!(
                "{called} ({field}) does not exist: create it, or name another one. Until then, Windlass starts no rollout and \
                 changes no routing"
            );
            return refused(Reason::ConnectionNotFound, message);
        }
        Found::Unlisted => {
            let message = format!(
                "Windlass cannot list objects of the kind {}, and {field} names {name}: install the kind and the rights in \
                 deploy/temporal",
                kind.name()
            );
            return refused(Reason::ConnectionNotFound, message);
        }
    };
    let invalid = |error: serde_json::Error| Unresolved {
        reason: Reason::InvalidSpec,
        message: format!("{called} ({field}) cannot be read: {error}. Correct its spec"),
    };
    match named.kind {
        ConnectionKind::Namespaced => {
            let spec = TemporalConnectionSpec::deserialize(&spec).map_err(invalid)?;
            Ok(Resolved { connection: spec.connection, secrets_in: namespace.to_owned() })
        }
        ConnectionKind::Cluster => {
            let spec = ClusterTemporalConnectionSpec::deserialize(&spec).map_err(invalid)?;
            if !spec.allows(namespace) {
                let message = format!(
                    "{called} ({field}) does not allow the namespace {namespace}: add it to spec.allowedNamespaces there, or \
                     name another connection"
                );
                return refused(Reason::ConnectionNotAllowed, message);
            }
            if let Some(other) = named.namespace.as_ref().filter(|other| !spec.offers(other)) {
                let message = format!(
                    "{called} ({field}) does not offer the Temporal namespace {other}: add it to spec.temporalNamespaces there, or \
                     change spec.connection.namespace"
                );
                return refused(Reason::ConnectionNotAllowed, message);
            }
            // The API server requires the field where a Secret is named.
            let secrets_in = spec.secret_namespace.unwrap_or_default();
            Ok(Resolved { connection: spec.connection, secrets_in })
        }
    }
}
