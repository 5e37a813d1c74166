//! TemporalConnection and ClusterTemporalConnection: a connection that several WorkerDeployments share.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Connection;

/// The desired state of a connection to Temporal. WorkerDeployments in its namespace use it by
/// `spec.connection.name`.
#[allow(clippy::duplicated_attributes, reason = "columns have fields of one name")]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "windlass.dev",
    version = "v1alpha1",
    kind = "TemporalConnection",
    plural = "temporalconnections",
    shortname = "tconn",
    category = "windlass",
    namespaced,
    doc = "TemporalConnection is a connection to Temporal for the WorkerDeployments of its namespace.",
    status = "ConnectionStatus",
    derive = "PartialEq",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.namespace"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.usedBy.count"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct TemporalConnectionSpec {
    /// The connection.
    #[serde(flatten)]
    pub connection: Connection,
}

/// The desired state of a connection to Temporal for several namespaces. WorkerDeployments use it by
/// `spec.connection.clusterName`.
#[allow(clippy::duplicated_attributes, reason = "columns have fields of one name")]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "windlass.dev",
    version = "v1alpha1",
    kind = "ClusterTemporalConnection",
    plural = "clustertemporalconnections",
    shortname = "ctconn",
    category = "windlass",
    doc = "ClusterTemporalConnection is a connection to Temporal for the WorkerDeployments of several namespaces.",
    status = "ConnectionStatus",
    derive = "PartialEq",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.namespace"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.usedBy.count"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTemporalConnectionSpec {
    /// The connection.
    #[serde(flatten)]
    pub connection: Connection,
    /// allowedNamespaces lists the Kubernetes namespaces whose WorkerDeployments may use the connection. `*` stands
    /// for all.
    #[schemars(length(min = 1, max = 1000))]
    pub allowed_namespaces: Vec<String>,
    /// temporalNamespaces lists further Temporal namespaces, which `spec.connection.namespace` of a WorkerDeployment may
    /// name. `*` stands for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub temporal_namespaces: Vec<String>,
    /// The namespace of the operator's Secrets: those in `tls` and `apiKeySecret`. The workers' Secrets are in the
    /// namespace of each WorkerDeployment, because pods can use no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub secret_namespace: Option<String>,
}

impl ClusterTemporalConnectionSpec {
    /// True if WorkerDeployments of this namespace may use it.
    #[must_use]
    pub fn allows(&self, namespace: &str) -> bool {
        self.allowed_namespaces.iter().any(|allowed| allowed == "*" || allowed == namespace)
    }

    /// True if WorkerDeployments may name this Temporal namespace.
    #[must_use]
    pub fn offers(&self, namespace: &str) -> bool {
        let is_listed = |offered: &String| offered == "*" || offered == namespace;
        self.connection.namespace == namespace || self.temporal_namespaces.iter().any(is_listed)
    }
}

/// The observed state of a connection.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionStatus {
    /// The WorkerDeployments that use the connection; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<UsedBy>,
}

/// The WorkerDeployments that use a connection.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsedBy {
    /// Their number.
    pub count: i32,
    /// names lists the first 10 of them, as namespace and name.
    pub names: Vec<String>,
}

/// The most names in [`UsedBy`].
const MAX_NAMES: usize = 10;

impl ConnectionStatus {
    /// The status for these WorkerDeployments, in order.
    #[must_use]
    pub fn used_by(names: &[String]) -> Self {
        let used_by = UsedBy {
            count: i32::try_from(names.len()).unwrap_or(i32::MAX),
            names: names.iter().take(MAX_NAMES).cloned().collect(),
        };
        Self { used_by: (!names.is_empty()).then_some(used_by) }
    }
}
