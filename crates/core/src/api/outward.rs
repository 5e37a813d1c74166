//! The TLS settings and credentials of requests that the operator sends for a fleet: those of hooks and to sidecars. They
//! are not part of a revision, so a change to them applies at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of a Secret.
const SECRET_NAME: &str = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";

/// TLS settings.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// The Secret with `ca.crt`, in place of the system's roots.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_NAME))]
    pub ca_secret: String,
    /// The Secret with `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_NAME))]
    pub client_cert_secret: String,
    /// The name to verify. Defaults to the host of the url.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub server_name: String,
}

/// The credentials in the header Authorization.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// The Secret with `token`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_NAME))]
    pub bearer_secret: String,
    /// The Secret with `username` and `password`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SECRET_NAME))]
    pub basic_secret: String,
}
