//! Reads and writes of Kubernetes objects. Every read goes to the API server: a reconcile costs three of them, and
//! needs no cache that could be older than its own last write.

use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams, Preconditions,
};
use kube::{Client, Error};
use serde_json::{Value, json};
use windlass_core::api::names::{GROUP, LABEL_MANAGED_BY, MANAGER, VERSION};

use crate::api::names::LABEL_WORKERS;

/// The time-out of a request.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The object changed in between: decide again.
    #[error("{0} was changed meanwhile")]
    Conflict(String),
    /// The object does not exist.
    #[error("{0} is not there")]
    Gone(String),
    /// The API server refuses the object, and would again.
    #[error("{0}")]
    Refused(String),
    /// The API server does not allow it (403): a quota, a policy, or a missing right. A person may change that.
    #[error("{0}")]
    Forbidden(String),
    /// A failure that a retry may get past.
    #[error("{0}")]
    Transient(String),
}

/// The kinds that this controller reads and writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// WorkerDeployment.
    Workers,
    /// Deployment.
    Deployment,
    /// ControllerRevision.
    Revision,
    /// Event.
    Event,
}

impl Kind {
    /// The API resource of the kind.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let (group, version, kind) = match self {
            Self::Workers => (GROUP, VERSION, "WorkerDeployment"),
            Self::Deployment => ("apps", "v1", "Deployment"),
            Self::Revision => ("apps", "v1", "ControllerRevision"),
            Self::Event => ("events.k8s.io", "v1", "Event"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }
}

/// A client of the API server, for one namespace.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
}

impl Cluster {
    /// A client for this namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// Gets an object; `None` if it does not exist.
    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>, ClusterError> {
        let found = within(name, self.api(kind).get_opt(name)).await?;
        Ok(found.map(|object| json!(object)))
    }

    /// Lists the objects of a kind that belong to a WorkerDeployment, by label.
    pub async fn list(&self, kind: Kind, owner: &str) -> Result<Vec<Value>, ClusterError> {
        let selector = format!("{LABEL_WORKERS}={owner},{LABEL_MANAGED_BY}={MANAGER}");
        let params = ListParams::default().labels(&selector);
        let list = within(owner, self.api(kind).list(&params)).await?;
        Ok(list.items.into_iter().map(|item| json!(item)).collect())
    }

    /// Creates an object, or validates it as a dry run. Strict: otherwise the server would drop unknown fields
    /// silently.
    pub async fn create(&self, kind: Kind, manifest: &Value, dry_run: bool) -> Result<(), ClusterError> {
        let meta = &manifest["metadata"];
        let name = meta["name"].as_str().or(meta["generateName"].as_str()).unwrap_or_default();
        let params = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
        let create = async {
            let body = serde_json::to_vec(manifest).map_err(Error::SerdeError)?;
            let request = kube::core::Request::new(self.api(kind).resource_url());
            let mut request = request.create(&params, body).map_err(Error::BuildRequest)?;
            let uri = request.uri().to_string();
            let joint = if uri.ends_with(['?', '&']) {
                ""
            } else if uri.contains('?') {
                "&"
            } else {
                "?"
            };
            if let Ok(uri) = format!("{uri}{joint}fieldValidation=Strict").parse() {
                *request.uri_mut() = uri;
            }
            self.client.request::<Value>(request).await
        };
        within(name, create).await.map(drop)
    }

    /// Patches an object, guarded by the resourceVersion that the patch was decided on. The patch replaces the
    /// version rather than testing it, so that a stale one is a 409.
    pub async fn patch(
        &self,
        kind: Kind,
        object: &Value,
        status: bool,
        ops: Vec<Value>,
    ) -> Result<Value, ClusterError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let version = &object["metadata"]["resourceVersion"];
        let mut all = vec![json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version})];
        all.extend(ops);
        let patch =
            serde_json::from_value(Value::Array(all)).map_err(|e| ClusterError::Refused(e.to_string()))?;
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::<()>::Json(patch);
        let api = self.api(kind);
        let written = if status {
            within(name, api.patch_status(name, &params, &patch)).await
        } else {
            within(name, api.patch(name, &params, &patch)).await
        };
        written.map(|object| json!(object)).map_err(|error| match error {
            // Some servers test the version, and answer 422.
            ClusterError::Refused(message)
                if message.contains("test failed") || message.contains("testing value") =>
            {
                ClusterError::Conflict(name.to_owned())
            }
            error => error,
        })
    }

    /// Deletes this object, by UID.
    pub async fn delete(&self, kind: Kind, object: &Value) -> Result<(), ClusterError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let preconditions = Preconditions { uid: text("uid"), resource_version: text("resourceVersion") };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match within(name, self.api(kind).delete(name, &params)).await {
            Ok(_) | Err(ClusterError::Gone(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn within<T>(name: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, ClusterError> {
    let Ok(answer) = tokio::time::timeout(PATIENCE, call).await else {
        return Err(ClusterError::Transient(format!("the API server gave no answer about {name}")));
    };
    answer.map_err(|error| match error {
        Error::Api(status) => match status.code {
            404 => ClusterError::Gone(name.to_owned()),
            409 => ClusterError::Conflict(name.to_owned()),
            403 => ClusterError::Forbidden(status.message.clone()),
            400 | 413 | 422 => ClusterError::Refused(status.message.clone()),
            _ => ClusterError::Transient(format!("{name}: {}", status.message)),
        },
        error => ClusterError::Transient(format!("{name}: {error}")),
    })
}
