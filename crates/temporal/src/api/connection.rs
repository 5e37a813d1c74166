//! Where Temporal is, and with what credentials the operator goes there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A frontend of Temporal, a namespace there, and the operator's credentials.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// Host and port of the frontend, as in `temporal-frontend.temporal.svc:7233`.
    #[schemars(length(min = 1, max = 253))]
    pub address: String,
    /// The namespace in Temporal. Default: default.
    #[serde(default = "default_namespace")]
    #[schemars(length(min = 1, max = 255))]
    pub namespace: String,
    /// Speak TLS. Absent: plain text, unless there is an API key, which is never sent in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// The key of a Secret that holds the operator's API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_secret: Option<ApiKeySecret>,
    /// A Secret whose entries become environment variables of the workers. Theirs may be other credentials than the
    /// operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub worker_secret: Option<String>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// How TLS is spoken. All Secrets are of the WorkerDeployment's own namespace.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// A Secret with `ca.crt`: who may sign the server's certificate. Absent: the machine's own roots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ca_secret: Option<String>,
    /// A Secret with `tls.crt` and `tls.key`: the certificate that the operator shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cert_secret: Option<String>,
    /// The name that the server's certificate has to be for, where it is not the address's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
}

/// A key of a Secret.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeySecret {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it. Default: api-key.
    #[serde(default = "default_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_key() -> String {
    "api-key".to_owned()
}
