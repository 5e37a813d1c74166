//! `spec.connection` of a WorkerDeployment: the name of a connection, or the connection itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::connection::default_namespace;
use super::{ApiKeySecret, Connection, Tls, WorkerCredentials};

/// Where the connection of a WorkerDeployment is written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "ConnectionFields", into = "ConnectionFields")]
pub enum ConnectionSource {
    /// In the WorkerDeployment.
    Inline(Box<Connection>),
    /// In an object of its own.
    Named(NamedConnection),
}

/// The reference to a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedConnection {
    /// The kind of the object.
    pub kind: ConnectionKind,
    /// The name of the object.
    pub name: String,
    /// The Temporal namespace, instead of the object's.
    pub namespace: Option<String>,
}

/// A kind of connection.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ConnectionKind {
    /// A TemporalConnection in the namespace of the WorkerDeployment.
    Namespaced,
    /// A ClusterTemporalConnection.
    Cluster,
}

/// A Temporal frontend, a namespace in it, and credentials: either inline, with an `address`, or in another object,
/// by `name` or `clusterName`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionFields {
    /// The name of a TemporalConnection in the same namespace. Exactly one of `name`, `clusterName` and `address` is
    /// required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// The name of a ClusterTemporalConnection that allows the namespace of the WorkerDeployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cluster_name: Option<String>,
    /// The host and port of the frontend, for example `temporal-frontend.temporal.svc:7233`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub address: Option<String>,
    /// The Temporal namespace; it cannot be changed. Defaults to that of the named connection, or to `default` with
    /// an `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub namespace: Option<String>,
    /// tls enables TLS. If it is absent, the connection uses plain text, or TLS if there is an API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// apiKeySecret selects the key of a Secret that contains the operator's API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_secret: Option<ApiKeySecret>,
    /// workers gives the workers their own credentials for Temporal. If it is absent, Windlass adds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerCredentials>,
    /// The name of a Secret whose entries become environment variables of the workers. Workers read it when they
    /// start: a change of its data restarts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub worker_secret: Option<String>,
}

impl NamedConnection {
    /// The object as kubectl names it, such as `temporalconnection/main`.
    #[must_use]
    pub fn resource(&self) -> String {
        let kind = match self.kind {
            ConnectionKind::Namespaced => "temporalconnection",
            ConnectionKind::Cluster => "clustertemporalconnection",
        };
        format!("{kind}/{}", self.name)
    }
}

impl Default for ConnectionSource {
    fn default() -> Self {
        Self::Inline(Box::default())
    }
}

impl TryFrom<ConnectionFields> for ConnectionSource {
    type Error = &'static str;

    fn try_from(fields: ConnectionFields) -> Result<Self, Self::Error> {
        let ConnectionFields { address, namespace, tls, api_key_secret, workers, worker_secret, .. } = fields;
        let named = |kind, name, namespace| Self::Named(NamedConnection { kind, name, namespace });
        match (fields.name, fields.cluster_name, address) {
            (Some(name), None, None) => Ok(named(ConnectionKind::Namespaced, name, namespace)),
            (None, Some(name), None) => Ok(named(ConnectionKind::Cluster, name, namespace)),
            (None, None, Some(address)) => {
                let namespace = namespace.unwrap_or_else(default_namespace);
                let connection =
                    Connection { address, namespace, tls, api_key_secret, workers, worker_secret };
                Ok(Self::Inline(Box::new(connection)))
            }
            _ => Err("connection needs exactly one of name, clusterName and address"),
        }
    }
}

impl From<ConnectionSource> for ConnectionFields {
    fn from(source: ConnectionSource) -> Self {
        match source {
            ConnectionSource::Inline(connection) => Self {
                address: Some(connection.address),
                namespace: Some(connection.namespace),
                tls: connection.tls,
                api_key_secret: connection.api_key_secret,
                workers: connection.workers,
                worker_secret: connection.worker_secret,
                ..Self::default()
            },
            ConnectionSource::Named(NamedConnection { kind, name, namespace }) => match kind {
                ConnectionKind::Namespaced => Self { name: Some(name), namespace, ..Self::default() },
                ConnectionKind::Cluster => Self { cluster_name: Some(name), namespace, ..Self::default() },
            },
        }
    }
}
