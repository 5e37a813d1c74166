//! Connections, shared by all objects with the same settings.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tonic::transport::Channel;
use windlass_clock::monotonic;
use windlass_temporal::api::Connection;
use windlass_temporal::port::{Connections, Temporal, TemporalError};

use crate::channel;
use crate::client::{Credentials, GrpcTemporal};
use crate::credentials::{self, Found, Named};
use crate::pace::Pace;
use crate::secrets::{Secret, Secrets};

/// How long a Secret is cached.
const BELIEVED: Duration = Duration::from_secs(30);
/// How long it is cached while the Secret does not exist, or Temporal rejects its content.
const DOUBTED: Duration = Duration::from_secs(2);
/// How long an unused connection is kept.
const KEPT: Duration = Duration::from_mins(10);

/// Creates clients of Temporal, with credentials from Secrets.
pub struct GrpcConnections {
    secrets: Arc<dyn Secrets>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    read: HashMap<SecretName, Read>,
    channels: HashMap<Key, Shared>,
    paces: HashMap<(String, String), (Arc<Pace>, Instant)>,
}

/// Namespace and name of a Secret.
type SecretName = (String, String);

struct Read {
    at: Instant,
    secret: Option<Secret>,
}

/// The identity of a shared connection: the address and the versions of its Secrets.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Key {
    address: String,
    server_name: Option<String>,
    is_tls: bool,
    secrets: [Option<(SecretName, String)>; 3],
}

struct Shared {
    channel: Channel,
    refused: Arc<AtomicBool>,
    asked_at: Instant,
}

impl GrpcConnections {
    /// Reads credentials from `secrets`.
    #[must_use]
    pub fn new(secrets: Arc<dyn Secrets>) -> Self {
        Self { secrets, state: Mutex::default() }
    }

    /// The number of connections, including those not used yet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state().channels.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn find(
        &self,
        namespace: &str,
        connection: &Connection,
        doubted: bool,
    ) -> Result<Found, TemporalError> {
        let tls = connection.tls.as_ref();
        let named = |name: Option<&String>, field: &'static str| {
            let (namespace, name) = (namespace.to_owned(), name.cloned());
            async move {
                let Some(name) = name else { return Ok(None) };
                let called = format!("Secret {namespace}/{name} (connection.{field})");
                self.secret((namespace, name), called, doubted).await.map(Some)
            }
        };
        Ok(Found {
            ca: named(tls.and_then(|tls| tls.ca_secret.as_ref()), "tls.caSecret").await?,
            cert: named(tls.and_then(|tls| tls.cert_secret.as_ref()), "tls.certSecret").await?,
            api_key: named(connection.api_key_secret.as_ref().map(|secret| &secret.name), "apiKeySecret")
                .await?,
        })
    }

    /// A Secret, from the cache or the API server.
    async fn secret(&self, name: SecretName, called: String, doubted: bool) -> Result<Named, TemporalError> {
        let now = monotonic();
        let recent = |read: &&Read| {
            let most = if doubted || read.secret.is_none() { DOUBTED } else { BELIEVED };
            now.saturating_duration_since(read.at) < most
        };
        let cached = self.state().read.get(&name).filter(recent).map(|read| read.secret.clone());
        let secret = match cached {
            Some(secret) => secret,
            None => match self.secrets.read(&name.0, &name.1).await {
                Ok(secret) => {
                    let read = Read { at: now, secret: secret.clone() };
                    self.state().read.insert(name, read);
                    secret
                }
                // Use a stale copy if there is one.
                Err(why) => match self.state().read.get(&name).and_then(|read| read.secret.clone()) {
                    Some(secret) => Some(secret),
                    None => {
                        return Err(TemporalError::SecretNotFound { message: format!("{called}: {why}") });
                    }
                },
            },
        };
        match secret {
            Some(secret) => Ok(Named { called, secret }),
            None => Err(TemporalError::SecretNotFound { message: format!("{called} does not exist") }),
        }
    }

    /// True if the server rejected this connection's credentials.
    fn is_doubted(&self, key: &Key) -> bool {
        self.state().channels.get(key).is_some_and(|shared| shared.refused.load(Ordering::Relaxed))
    }

    fn shared(
        &self,
        key: Key,
        connection: &Connection,
        found: &Found,
    ) -> Result<(Channel, Arc<AtomicBool>), TemporalError> {
        let now = monotonic();
        let mut state = self.state();
        let State { read, channels, paces } = &mut *state;
        channels.retain(|_, shared| now.saturating_duration_since(shared.asked_at) < KEPT);
        paces.retain(|_, (_, asked_at)| now.saturating_duration_since(*asked_at) < KEPT);
        read.retain(|_, read| now.saturating_duration_since(read.at) < KEPT);
        if let Some(shared) = channels.get_mut(&key) {
            shared.asked_at = now;
            return Ok((shared.channel.clone(), Arc::clone(&shared.refused)));
        }
        let channel = channel::open(&connection.address, credentials::tls(connection, found)?)?;
        let refused = Arc::<AtomicBool>::default();
        let shared = Shared { channel: channel.clone(), refused: Arc::clone(&refused), asked_at: now };
        channels.insert(key, shared);
        Ok((channel, refused))
    }

    fn pace(&self, connection: &Connection) -> Arc<Pace> {
        let now = monotonic();
        let key = (connection.address.clone(), connection.namespace.clone());
        let mut state = self.state();
        let (pace, asked_at) = state.paces.entry(key).or_insert_with(|| (Arc::new(Pace::new()), now));
        *asked_at = now;
        Arc::clone(pace)
    }
}

fn key(namespace: &str, connection: &Connection, found: &Found) -> Key {
    let tls = connection.tls.as_ref();
    let of = |name: Option<&String>, named: &Option<Named>| {
        let version = named.as_ref()?.secret.version.clone();
        Some(((namespace.to_owned(), name?.clone()), version))
    };
    Key {
        address: connection.address.clone(),
        server_name: tls.and_then(|tls| tls.server_name.clone()),
        is_tls: connection.is_tls(),
        secrets: [
            of(tls.and_then(|tls| tls.ca_secret.as_ref()), &found.ca),
            of(tls.and_then(|tls| tls.cert_secret.as_ref()), &found.cert),
            of(connection.api_key_secret.as_ref().map(|secret| &secret.name), &found.api_key),
        ],
    }
}

#[async_trait]
impl Connections for GrpcConnections {
    async fn connect(
        &self,
        namespace: &str,
        connection: &Connection,
    ) -> Result<Arc<dyn Temporal>, TemporalError> {
        let mut found = self.find(namespace, connection, false).await?;
        if self.is_doubted(&key(namespace, connection, &found)) {
            found = self.find(namespace, connection, true).await?;
        }
        let api_key = credentials::api_key(connection, &found)?;
        let (channel, refused) = self.shared(key(namespace, connection, &found), connection, &found)?;
        let credentials = Credentials::new(api_key.as_deref(), &connection.namespace);
        let pace = self.pace(connection);
        Ok(Arc::new(GrpcTemporal::new(channel, credentials, &connection.namespace, pace, refused)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;

    use windlass_temporal::api::ApiKeySecret;

    use super::*;

    /// Fake Secrets, with a count of reads.
    #[derive(Default)]
    struct FakeSecrets {
        secrets: Mutex<HashMap<SecretName, Result<Secret, String>>>,
        reads: std::sync::atomic::AtomicU32,
    }

    impl FakeSecrets {
        fn put(&self, name: &str, version: &str, data: &[(&str, &str)]) {
            let data: BTreeMap<_, _> =
                data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
            let secret = Secret { version: version.to_owned(), data };
            self.secrets.lock().unwrap().insert(("shop".to_owned(), name.to_owned()), Ok(secret));
        }

        fn break_down(&self, name: &str) {
            let broken = Err("the API server does not answer".to_owned());
            self.secrets.lock().unwrap().insert(("shop".to_owned(), name.to_owned()), broken);
        }

        fn reads(&self) -> u32 {
            self.reads.load(Ordering::Relaxed)
        }
    }

    #[async_trait]
    impl Secrets for FakeSecrets {
        async fn read(&self, namespace: &str, name: &str) -> Result<Option<Secret>, String> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let all = self.secrets.lock().unwrap();
            all.get(&(namespace.to_owned(), name.to_owned())).cloned().transpose()
        }
    }

    fn with_key(name: &str) -> Connection {
        Connection {
            address: "127.0.0.1:1".to_owned(),
            namespace: "default".to_owned(),
            tls: Some(windlass_temporal::api::Tls {
                server_name: Some("x".to_owned()),
                ..Default::default()
            }),
            api_key_secret: Some(ApiKeySecret { name: name.to_owned(), key: "api-key".to_owned() }),
            ..Connection::default()
        }
    }

    async fn error(connections: &GrpcConnections, connection: &Connection) -> TemporalError {
        connections.connect("shop", connection).await.err().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn missing_secret_is_named_and_found_soon_after_creation() {
        let fake = Arc::new(FakeSecrets::default());
        let connections = GrpcConnections::new(Arc::clone(&fake) as _);
        let missing = error(&connections, &with_key("key")).await;
        let message = "Secret shop/key (connection.apiKeySecret) does not exist".to_owned();
        assert_eq!(missing, TemporalError::SecretNotFound { message });
        fake.put("key", "1", &[("api-key", "k")]);
        error(&connections, &with_key("key")).await;
        assert_eq!(fake.reads(), 1, "it is not asked for at each reconcile");
        tokio::time::advance(DOUBTED).await;
        assert!(connections.connect("shop", &with_key("key")).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn equal_connections_are_shared_until_the_secret_changes() {
        let fake = Arc::new(FakeSecrets::default());
        let connections = GrpcConnections::new(Arc::clone(&fake) as _);
        fake.put("key", "1", &[("api-key", "k")]);
        for _ in 0..3 {
            connections.connect("shop", &with_key("key")).await.unwrap();
        }
        assert_eq!((connections.count(), fake.reads()), (1, 1));
        fake.put("other", "1", &[("api-key", "k")]);
        connections.connect("shop", &with_key("other")).await.unwrap();
        assert_eq!(connections.count(), 2, "another Secret is another tenant, whatever is in it");
        fake.put("key", "2", &[("api-key", "new")]);
        tokio::time::advance(BELIEVED).await;
        connections.connect("shop", &with_key("key")).await.unwrap();
        assert_eq!(connections.count(), 3);
        tokio::time::advance(KEPT).await;
        connections.connect("shop", &with_key("key")).await.unwrap();
        assert_eq!(connections.count(), 1, "those that nobody asks for are closed");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_credentials_are_reread_within_seconds() {
        let fake = Arc::new(FakeSecrets::default());
        let connections = GrpcConnections::new(Arc::clone(&fake) as _);
        fake.put("key", "1", &[("api-key", "old")]);
        connections.connect("shop", &with_key("key")).await.unwrap();
        for shared in connections.state().channels.values() {
            shared.refused.store(true, Ordering::Relaxed);
        }
        connections.connect("shop", &with_key("key")).await.unwrap();
        assert_eq!(fake.reads(), 1);
        tokio::time::advance(DOUBTED).await;
        connections.connect("shop", &with_key("key")).await.unwrap();
        assert_eq!(fake.reads(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn unresponsive_api_server_keeps_open_connections() {
        let fake = Arc::new(FakeSecrets::default());
        let connections = GrpcConnections::new(Arc::clone(&fake) as _);
        fake.put("key", "1", &[("api-key", "k")]);
        connections.connect("shop", &with_key("key")).await.unwrap();
        fake.break_down("key");
        fake.break_down("other");
        tokio::time::advance(BELIEVED).await;
        assert!(connections.connect("shop", &with_key("key")).await.is_ok());
        assert_eq!(connections.count(), 1);
        let unread = error(&connections, &with_key("other")).await;
        assert!(
            unread.to_string().ends_with("(connection.apiKeySecret): the API server does not answer"),
            "{unread}"
        );
    }
}
