//! Reads certificates and credentials from the Secrets of a fleet's namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::Value;
use tokio::time::Instant;

use super::access::{Access, Origin, Pem, sensitive};
use crate::api::{Auth, Tls};
use crate::clock::monotonic;
use http::{HeaderMap, HeaderName, HeaderValue};
use windlass_kube_port::{Cluster, ClusterError, Kind};

const CA: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const TOKEN: &str = "token";
const USERNAME: &str = "username";
const PASSWORD: &str = "password";

/// The Secrets that a request refers to, in its spec.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OutwardSettings {
    /// What has these settings.
    pub origin: Origin,
    /// `tls`.
    pub tls: Tls,
    /// `auth`.
    pub auth: Auth,
}

/// The value of a header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HeaderText {
    /// A literal.
    Plain(String),
    /// The value of a key in a Secret, in the owner's namespace.
    Secret {
        /// The Secret.
        name: String,
        /// The key.
        key: String,
    },
}

/// A key of a Secret, and the field that refers to it.
#[derive(Clone, Copy, Debug)]
pub struct SecretKey<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The name of the Secret.
    pub name: &'a str,
    /// The key.
    pub key: &'a str,
    /// The field, for messages.
    pub field: &'a str,
}

type Data = Arc<BTreeMap<String, ByteString>>;
/// One reader at a time: the others wait for its answer.
type Slot = Arc<tokio::sync::Mutex<Option<(Instant, Result<Data, String>)>>>;
/// What a request has read: each Secret once, so that it does not mix two versions of one.
type Seen = BTreeMap<String, Data>;

/// Reads Secrets when a request is sent, so that a rotated Secret needs no restart. There is no watch of Secrets, which
/// would need the right to list them.
pub struct Secrets {
    cluster: Arc<dyn Cluster>,
    /// How long an answer is used again.
    keep: Duration,
    recent: Mutex<BTreeMap<(String, String), Slot>>,
}

impl Secrets {
    /// A reader that uses an answer for this long, which bounds the number of reads.
    #[must_use]
    pub fn new(cluster: Arc<dyn Cluster>, keep: Duration) -> Self {
        Self { cluster, keep, recent: Mutex::default() }
    }

    /// The certificates and credentials of a request. Each error is the end of a sentence: "cannot be sent: …".
    pub async fn access(&self, namespace: &str, settings: &OutwardSettings) -> Result<Access, String> {
        let OutwardSettings { origin, tls, auth } = settings;
        let Tls { ca_secret, client_cert_secret, server_name } = tls;
        let Auth { bearer_secret, basic_secret } = auth;
        let mut access = Access::of(*origin);
        access.trust.server_name.clone_from(server_name);
        let of = |name, key, field| SecretKey { namespace, name, key, field };
        let seen = &mut Seen::new();
        if !ca_secret.is_empty() {
            access.trust.ca = Some(self.pem(of(ca_secret, CA, origin.ca()), seen).await?);
        }
        if !client_cert_secret.is_empty() {
            let field = origin.client_cert().unwrap_or_default();
            let certificate = self.pem(of(client_cert_secret, CERTIFICATE, field), seen).await?;
            access.trust.client =
                Some((certificate, self.pem(of(client_cert_secret, KEY, field), seen).await?));
        }
        let refused = |key: SecretKey, why| format!("cannot be sent: {} {why}", key.source());
        if !bearer_secret.is_empty() {
            let key = of(bearer_secret, TOKEN, origin.bearer());
            access.add_bearer(&self.value(key, seen).await?).map_err(|why| refused(key, why))?;
        }
        if !basic_secret.is_empty() {
            let key = of(basic_secret, USERNAME, origin.basic().unwrap_or_default());
            let username = self.value(key, seen).await?;
            let password = self.value(SecretKey { key: PASSWORD, ..key }, seen).await?;
            access.add_basic(&username, &password).map_err(|why| refused(key, why))?;
        }
        Ok(access)
    }

    /// Adds headers, in their order, to those with credentials.
    pub async fn add_headers(
        &self,
        namespace: &str,
        headers: &[(String, HeaderText)],
        all: &mut HeaderMap,
    ) -> Result<(), String> {
        let seen = &mut Seen::new();
        for (name, text) in headers {
            let cannot = |why: &str| format!("cannot be sent: the header {name:?} {why}");
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| cannot("has a name that is not valid for a header"))?;
            let value = match text {
                HeaderText::Plain(value) => HeaderValue::from_str(value).ok(),
                HeaderText::Secret { name, key } => {
                    let key = SecretKey { namespace, name, key, field: "http.headers" };
                    let value = self.value(key, seen).await?;
                    // Secrets often end in a newline.
                    std::str::from_utf8(&value).ok().and_then(|text| sensitive(text.trim()))
                }
            };
            all.append(header, value.ok_or_else(|| cannot("has a value that is not valid for a header"))?);
        }
        Ok(())
    }

    /// The value of a key now, whatever was read before.
    pub async fn value_now(&self, key: SecretKey<'_>) -> Result<Vec<u8>, String> {
        let data = self.read(key).await?;
        in_it(&data, key)
    }

    async fn pem(&self, key: SecretKey<'_>, seen: &mut Seen) -> Result<Pem, String> {
        Ok(Pem { source: key.source(), bytes: self.value(key, seen).await? })
    }

    async fn value(&self, key: SecretKey<'_>, seen: &mut Seen) -> Result<Vec<u8>, String> {
        if let Some(data) = seen.get(key.name) {
            return in_it(data, key);
        }
        let data = self.data(key).await?;
        seen.insert(key.name.to_owned(), data.clone());
        in_it(&data, key)
    }

    async fn data(&self, key: SecretKey<'_>) -> Result<Data, String> {
        if self.keep.is_zero() {
            return self.read(key).await;
        }
        let slot = self.slot(key.namespace, key.name);
        let mut known = slot.lock().await;
        if let Some((at, read)) = &*known
            && monotonic().duration_since(*at) < self.keep
        {
            return read.clone();
        }
        *known = None;
        let read = self.read(key).await;
        *known = Some((monotonic(), read.clone()));
        read
    }

    /// The place of a Secret's data. Those that nobody reads now and that are too old are dropped.
    fn slot(&self, namespace: &str, name: &str) -> Slot {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        if !recent.contains_key(&key) {
            let now = monotonic();
            recent.retain(|_, slot| match slot.try_lock() {
                Ok(known) => known.as_ref().is_some_and(|(at, _)| now.duration_since(*at) < self.keep),
                Err(_) => true,
            });
        }
        recent.entry(key).or_default().clone()
    }

    async fn read(&self, key: SecretKey<'_>) -> Result<Data, String> {
        let source = key.source();
        match self.cluster.get(Kind::Secret, key.namespace, key.name).await {
            Ok(Some(mut object)) => {
                let data = object.get_mut("data").map(Value::take).filter(|data| !data.is_null());
                let data = data.map(serde_json::from_value).transpose();
                let data =
                    data.map_err(|_| format!("cannot be sent: {source} has data that is not base64"))?;
                Ok(Arc::new(data.unwrap_or_default()))
            }
            Ok(None) => {
                Err(format!("cannot be sent: {source} does not exist: create it with the key {}", key.key))
            }
            Err(ClusterError::Forbidden { .. }) => Err(format!(
                "cannot be sent: the operator may not read {source}: grant its role the verb get on secrets, as in deploy/rbac"
            )),
            Err(error) => Err(format!("cannot be sent: {source} cannot be read: {error}")),
        }
    }
}

impl SecretKey<'_> {
    /// `Secret shop/ca (http.tls.caSecret)`.
    fn source(self) -> String {
        let Self { namespace, name, field, key: _ } = self;
        format!("Secret {namespace}/{name} ({field})")
    }
}

fn in_it(data: &BTreeMap<String, ByteString>, key: SecretKey<'_>) -> Result<Vec<u8>, String> {
    match data.get(key.key) {
        Some(value) if !value.0.is_empty() => Ok(value.0.clone()),
        Some(_) => Err(format!("cannot be sent: {} has an empty key {}: fill it", key.source(), key.key)),
        None => Err(format!("cannot be sent: {} has no key {}: add it", key.source(), key.key)),
    }
}
