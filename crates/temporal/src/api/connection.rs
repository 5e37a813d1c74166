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
    /// The name of a Secret whose entries become environment variables of the workers. Workers can have
    /// other credentials than the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub worker_secret: Option<String>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// The TLS settings. All Secrets are in the namespace of the WorkerDeployment.
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
