//! The address of Temporal, and the operator's credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Temporal frontend, a namespace in it, and the operator's credentials.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// The host and port of the frontend, for example `temporal-frontend.temporal.svc:7233`.
    #[schemars(length(min = 1, max = 253))]
    pub address: String,
    /// The Temporal namespace; it cannot be changed. Defaults to `default`.
    #[serde(default = "default_namespace")]
    #[schemars(length(min = 1, max = 255))]
    pub namespace: String,
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

pub(super) fn default_namespace() -> String {
    "default".to_owned()
}

/// The TLS settings. The Secrets are in the namespace of the object, or for a ClusterTemporalConnection in
/// `secretNamespace`.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// The name of a Secret with the key `ca.crt`: the certificate authorities for the server's
    /// certificate. Defaults to the system's root certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ca_secret: Option<String>,
    /// The name of a Secret with the keys `tls.crt` and `tls.key`: the operator's client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cert_secret: Option<String>,
    /// The name that the server's certificate must have. Defaults to the host in `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}

/// The workers' credentials for Temporal, in Secrets in the namespace of the WorkerDeployment. Windlass mounts the
/// files and sets the environment variables that the SDKs' environment configuration reads. When the data of a
/// Secret changes, the workers of each version are updated within `maxUnavailable`.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerCredentials {
    /// tls contains the workers' certificates. The workers use TLS if `workers` or the connection has `tls` or
    /// `apiKeySecret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<WorkerTls>,
    /// apiKeySecret selects the key of a Secret that contains the workers' API key (`TEMPORAL_API_KEY`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_secret: Option<ApiKeySecret>,
}

/// The workers' certificates.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerTls {
    /// The name of a Secret with the keys `tls.crt` and `tls.key`: the workers' client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cert_secret: Option<String>,
    /// The name of a Secret with the key `ca.crt`: the certificate authorities for the server's
    /// certificate. Defaults to the root certificates in the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ca_secret: Option<String>,
}

impl Connection {
    /// True if the operator connects with TLS. An API key is never sent in plain text.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some() || self.api_key_secret.is_some()
    }
}

/// The key of a Secret with certificate authorities.
pub const CA: &str = "ca.crt";
/// The key of a Secret with a client certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// The key of a Secret with the private key of a client certificate.
pub const PRIVATE_KEY: &str = "tls.key";

/// A reference to a key of a Secret.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeySecret {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret. Defaults to `api-key`.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_key() -> String {
    "api-key".to_owned()
}
