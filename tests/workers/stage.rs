//! The tests' shared server, a client of it, and separate deployments.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::OnceCell;
use windlass::clock::monotonic;
use windlass_temporal::{
    api::Connection,
    port::{
        BuildId, Connections, DeploymentName, DescribedDeployment, Guard, Identity, RoutingWrite, Temporal,
        TemporalError,
    },
};
use windlass_temporal_grpc::{GrpcConnections, Secret, Secrets};

use crate::worker::Worker;
use windlass_harness::controlplane::Error;
use windlass_harness::temporal::farm::Farm;
use windlass_harness::temporal::frontend::{Options, Server};
use windlass_harness::temporal::person::Person;

pub const PATIENCE: Duration = Duration::from_secs(40);
const SETTLES_IN: Duration = Duration::from_secs(15);

/// This process's server, with quick waits, started on first use.
pub async fn server() -> &'static Server {
    static SHARED: OnceCell<Server> = OnceCell::const_new();
    let start = || async { Server::start(Options::default()).await.expect("a Temporal server") };
    SHARED.get_or_init(start).await
}

/// Fake Secrets in the namespace `shop`.
#[derive(Clone, Default)]
pub struct PlayedSecrets(Arc<Mutex<HashMap<String, Secret>>>);

impl PlayedSecrets {
    pub fn put(&self, name: &str, data: &[(&str, &str)]) {
        let data: BTreeMap<String, Vec<u8>> =
            data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let mut all = self.0.lock().unwrap();
        let version = all.len().to_string();
        all.insert(name.to_owned(), Secret { version, data });
    }
}

#[async_trait]
impl Secrets for PlayedSecrets {
    async fn read(&self, _: &str, name: &str) -> Result<Option<Secret>, String> {
        Ok(self.0.lock().unwrap().get(name).cloned())
    }
}

/// A client of a server's namespace `default`, in plain text.
pub async fn client(address: &str) -> Arc<dyn Temporal> {
    let connection =
        Connection { address: address.to_owned(), namespace: "default".to_owned(), ..Connection::default() };
    let connections = GrpcConnections::new(Arc::new(PlayedSecrets::default()));
    connections.connect("shop", &connection).await.expect("a client")
}

/// A test's own deployment.
pub struct Stage {
    pub server: &'static Server,
    pub port: Arc<dyn Temporal>,
    pub person: Person,
    pub name: DeploymentName,
}

impl Stage {
    /// On the shared server.
    pub async fn new(name: &str) -> Self {
        let server = server().await;
        let (port, person) = (client(&server.address()).await, Person::at(&server.address()));
        Self { server, port, person, name: DeploymentName::new(format!("shop/{name}")) }
    }

    /// Starts a worker of a version, and waits until Temporal knows it.
    pub async fn worker(&self, build: &str) -> Worker {
        self.worker_with(build, &[]).await
    }

    pub async fn worker_with(&self, build: &str, more: &[(&str, &str)]) -> Worker {
        let worker = Worker::start(self.server, self.name.as_str(), build, more).await.expect("a worker");
        self.until("the version is known", async || {
            self.port.describe_version(&self.name, &BuildId::new(build)).await.ok()
        })
        .await;
        worker
    }

    pub async fn describe(&self) -> DescribedDeployment {
        self.port.describe_deployment(&self.name).await.expect("a known deployment")
    }

    /// The guard for a write that is decided on this description, with the tests' identity.
    pub fn guard(described: &DescribedDeployment) -> Guard {
        Guard { token: described.conflict_token.clone(), identity: identity() }
    }

    /// Changes the routing with a fresh token, and waits until it is settled. Temporal 1.32.1 reports one change in a hundred
    /// as unsettled for good, so the wait has an end.
    pub async fn route(&self, write: &RoutingWrite) {
        let guard = Self::guard(&self.describe().await);
        self.port.set_routing(&self.name, write, &guard).await.expect("the routing is changed");
        let until = monotonic() + SETTLES_IN;
        while monotonic() < until && !self.describe().await.is_settled {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }

    pub async fn make_current(&self, build: &str) {
        self.route(&RoutingWrite::Current(Some(BuildId::new(build)))).await;
    }

    /// Polls until there is an answer.
    pub async fn until<T>(&self, what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
        let until = monotonic() + PATIENCE;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(monotonic() < until, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

/// The identity of the tests.
pub fn identity() -> Identity {
    Identity::new("windlass/tests")
}

/// Temporal's description of a farm's deployment.
pub async fn described(farm: &Farm<'_>) -> Result<DescribedDeployment, TemporalError> {
    let port = client(&farm.server.address()).await;
    port.describe_deployment(&DeploymentName::new(farm.deployment())).await
}

/// The percentages of the ramp until the status `ends`.
pub async fn ramps(farm: &Farm<'_>, ends: impl Fn(&Value) -> bool) -> Result<Vec<i64>, Error> {
    let seen = Mutex::new(Vec::new());
    farm.until("the ramp ends", |object| {
        let percent = object["status"]["rampPercent"].as_i64().unwrap_or_default();
        let mut seen = seen.lock().unwrap();
        if percent > 0 && seen.last() != Some(&percent) {
            seen.push(percent);
        }
        ends(&object["status"])
    })
    .await?;
    Ok(seen.into_inner().unwrap())
}
