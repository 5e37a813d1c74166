//! The port to a real API server, through kube-rs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, ValidationDirective},
    core::Status,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::REQUEST_TIMEOUT;
use crate::watch::PAGE;
use crate::{
    Cluster, ClusterError, Eviction, Key, Kind, LivePod, Part, PatchOp, Selector, Target, View,
    raw::RawObject,
};
use windlass_clock::monotonic;
use windlass_core::api::generated_suffixes::strip_generated_suffixes;
use windlass_core::api::names::MANAGER;
use windlass_core::observed::Meta;

/// The page size of a list of names.
const NAMES_PAGE: u32 = 1_000;
/// The maximum number of pages of a list.
const MAX_PAGES: usize = 1_000;

/// If an object has to be created again within this time, its owner is read first. A watch rarely lags by more than
/// this.
const AGAIN: Duration = Duration::from_secs(30);
/// The number of creations at which those that are longer ago are forgotten.
const MAX_RECENT_CREATES: usize = 10_000;

/// The port to a real API server. Responses to writes are stored in the view at once.
pub struct KubeCluster {
    client: Client,
    view: Arc<View>,
    /// By object that has an owner: when it was last created.
    made: Mutex<HashMap<(Kind, Key), Instant>>,
    may_write: Box<dyn Fn() -> bool + Send + Sync>,
    drops_managed_fields: bool,
}

impl KubeCluster {
    /// Creates a port that uses this client and updates this view.
    #[must_use]
    pub fn new(client: Client, view: Arc<View>) -> Self {
        Self {
            client,
            view,
            made: Mutex::default(),
            may_write: Box::new(|| true),
            drops_managed_fields: false,
        }
    }

    /// Refuses writes before they are sent while this function returns false: the replica does not lead.
    #[must_use]
    pub fn fenced(mut self, may_write: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.may_write = Box::new(may_write);
        self
    }

    /// Removes the managed fields of StatefulNodes and StatefulSets with each patch of them. Only for a view of
    /// objects that
    /// Windlass creates: the fields of others belong to those who apply them.
    #[must_use]
    pub fn dropping_managed_fields(mut self, drops: bool) -> Self {
        self.drops_managed_fields = drops;
        self
    }

    fn check_fence(&self, object: &str) -> Result<(), ClusterError> {
        if (self.may_write)() {
            return Ok(());
        }
        Err(ClusterError::Transient {
            object: object.to_owned(),
            message: "not written: this replica is no longer the leader".to_owned(),
            retry_after: None,
        })
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<RawObject> {
        let (client, resource) = (self.client.clone(), kind.resource());
        if kind.is_namespaced() {
            Api::namespaced_with(client, namespace, &resource)
        } else {
            Api::all_with(client, &resource)
        }
    }

    /// Sends a write to this object. If its outcome is unknown afterwards, the view records a doubt.
    async fn doubting<T>(
        &self,
        target: &Target,
        call: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let mut doubt = Doubt { view: &self.view, target, settled: false };
        let answer = call.await;
        doubt.settled = answer.as_ref().err().is_none_or(was_not_carried_out);
        answer
    }

    fn record_creation(&self, kind: Kind, key: Key) {
        let mut made = self.made();
        if made.len() >= MAX_RECENT_CREATES {
            made.retain(|_, at| at.elapsed() < AGAIN);
        }
        made.insert((kind, key), monotonic());
    }

    fn was_created_lately(&self, kind: Kind, key: Key) -> bool {
        self.made().get(&(kind, key)).is_some_and(|at| at.elapsed() < AGAIN)
    }

    fn made(&self) -> MutexGuard<'_, HashMap<(Kind, Key), Instant>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn took(&self, kind: Kind, object: &RawObject) -> Value {
        self.view.observe_raw(kind, object);
        object.value()
    }
}

#[async_trait]
impl Cluster for KubeCluster {
    async fn create(&self, kind: Kind, manifest: Value) -> Result<Value, ClusterError> {
        let (api, described) = self.place(kind, &manifest);
        self.check_fence(&described)?;
        let meta = Meta::read(&manifest);
        self.check_owner(kind, &meta).await?;
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        // Strict validation: otherwise the server would silently drop a field that it does not know.
        let created = strict(&api, &params, &manifest, &self.client);
        let stored = within(&described, created).await?;
        if meta.controller().is_some() {
            self.record_creation(kind, meta.key());
        }
        Ok(self.took(kind, &stored))
    }

    async fn apply(&self, kind: Kind, manifest: Value) -> Result<Value, ClusterError> {
        let (api, described) = self.place(kind, &manifest);
        self.check_fence(&described)?;
        let params = PatchParams {
            force: true,
            field_manager: Some(MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let stored = within(&described, api.patch(name, &params, &Patch::Apply(&manifest))).await?;
        Ok(self.took(kind, &stored))
    }

    async fn try_create(&self, kind: Kind, mut manifest: Value) -> Result<Value, ClusterError> {
        if let Some(meta) = manifest["metadata"].as_object_mut()
            && let Some(Value::String(name)) = meta.remove("name")
        {
            meta.insert("generateName".to_owned(), json!(format!("{name}-")));
        }
        let (api, described) = self.place(kind, &manifest);
        let prefix = manifest["metadata"]["generateName"].as_str().unwrap_or_default();
        let params = PostParams { dry_run: true, field_manager: Some(MANAGER.to_owned()) };
        let answer = within(&described, strict(&api, &params, &manifest, &self.client)).await;
        answer.map(|stored| stored.value()).map_err(|error| match error {
            // The message has the generated name, which would make it a new message each time.
            ClusterError::Refused { object, message } => {
                ClusterError::Refused { object, message: strip_generated_suffixes(&message, prefix) }
            }
            ClusterError::Forbidden { object, message } => {
                ClusterError::Forbidden { object, message: strip_generated_suffixes(&message, prefix) }
            }
            error => error,
        })
    }

    async fn patch(&self, target: Target, part: Part, ops: Vec<PatchOp>) -> Result<Value, ClusterError> {
        self.check_fence(&target.describe())?;
        let stored = self.send_patch(&target, part, ops, false).await?;
        Ok(self.took(target.kind, &stored))
    }

    async fn try_patch(&self, target: Target, ops: Vec<PatchOp>) -> Result<Value, ClusterError> {
        let answer = self.send_patch(&target, Part::Main, ops, true).await?;
        Ok(answer.value())
    }

    async fn delete(&self, target: Target) -> Result<(), ClusterError> {
        // A node or a version of workers may be desired again before a slow server carries this out. Other objects
        // change all the time, and are deleted at any version.
        let is_versioned = matches!(target.kind, Kind::StatefulNode | Kind::Deployment);
        let version = is_versioned.then(|| target.resource_version.clone());
        // What follows a Job may use the same volumes: it exists until its pods are gone.
        let params = match target.kind {
            Kind::Job => DeleteParams::foreground(),
            _ => DeleteParams::background(),
        };
        self.delete_with(target, params, version).await
    }

    async fn delete_and_orphan(&self, target: Target) -> Result<(), ClusterError> {
        self.delete_with(target, DeleteParams::orphan(), None).await
    }

    async fn evict(&self, target: Target) -> Result<Eviction, ClusterError> {
        let described = target.describe();
        self.check_fence(&described)?;
        let api = self.api(target.kind, &target.namespace);
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": target.name, "namespace": target.namespace},
            "deleteOptions": {"preconditions": {"uid": target.uid}},
        });
        let evicted = async {
            let (name, params) = (&target.name, PostParams::default());
            match api.create_subresource::<Value, Value>("eviction", name, &params, &eviction).await {
                Ok(_) => Ok(Eviction::Done),
                Err(kube::Error::Api(status)) if is_kept_by_budget(&status) => {
                    Ok(Eviction::NotNow(in_words(&status)))
                }
                Err(error) => Err(error),
            }
        };
        let answer =
            within(&described, self.doubting(&target, evicted)).await.map_err(ClusterError::of_delete)?;
        if answer != Eviction::Done {
            return Ok(answer);
        }
        // The answer says nothing about the pod.
        self.live_pod(&target.namespace, &target.name).await?;
        Ok(answer)
    }

    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, ClusterError> {
        let described = format!("{} {namespace}/{name}", kind.name());
        let api = self.api(kind, namespace);
        let found = within(&described, api.get_opt(name)).await?;
        Ok(found.as_ref().map(RawObject::value))
    }

    async fn exists(&self, kind: Kind, namespace: &str, name: &str) -> Result<bool, ClusterError> {
        let described = format!("{} {namespace}/{name}", kind.name());
        let found = within(&described, self.api(kind, namespace).get_metadata_opt(name)).await?;
        Ok(found.is_some())
    }

    async fn managed_fields(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<Value>, ClusterError> {
        let described = format!("{} {namespace}/{name}", kind.name());
        let api = self.api(kind, namespace);
        let found = within(&described, api.get_metadata_opt(name)).await?;
        let entries = found.and_then(|found| found.metadata.managed_fields).unwrap_or_default();
        Ok(entries.iter().map(|entry| json!(entry)).collect())
    }

    async fn names(&self, kind: Kind, namespace: &str) -> Result<Vec<String>, ClusterError> {
        let described = format!("the list of {} in {namespace}", kind.name());
        let api = self.api(kind, namespace);
        let mut names = Vec::new();
        let mut from = None;
        for _ in 0..MAX_PAGES {
            let page =
                ListParams { limit: Some(NAMES_PAGE), continue_token: from.take(), ..ListParams::default() };
            let list = within(&described, api.list_metadata(&page)).await?;
            names.extend(list.items.into_iter().filter_map(|object| object.metadata.name));
            from = list.metadata.continue_.filter(|token| !token.is_empty());
            if from.is_none() {
                return Ok(names);
            }
        }
        Err(too_many(described))
    }

    async fn live_pods(&self, namespace: &str, labels: &str) -> Result<Vec<LivePod>, ClusterError> {
        let described = format!("the list of pods with {labels} in {namespace}");
        let api = self.api(Kind::Pod, namespace);
        let mut pods = Vec::new();
        let mut from = None;
        for _ in 0..MAX_PAGES {
            // Without a resourceVersion the list is a consistent read: it includes every write that was acknowledged
            // before.
            let page = ListParams {
                label_selector: Some(labels.to_owned()),
                limit: Some(PAGE),
                continue_token: from.take(),
                ..ListParams::default()
            };
            let list = within(&described, api.list(&page)).await?;
            for pod in list.items {
                pods.push(LivePod::of(&pod, pod.seen()));
                self.view.observe_raw(Kind::Pod, &pod);
            }
            from = list.metadata.continue_.filter(|token| !token.is_empty());
            if from.is_none() {
                return Ok(pods);
            }
        }
        Err(too_many(described))
    }

    async fn live_pod(&self, namespace: &str, name: &str) -> Result<Option<LivePod>, ClusterError> {
        let known = self.view.pods.get(&Key::new(namespace, name));
        let found = self.get(Kind::Pod, namespace, name).await?;
        let pod = found.as_ref().map(LivePod::read);
        if let Some(known) = known.filter(|known| pod.as_ref().is_none_or(|pod| pod.uid != known.meta.uid)) {
            self.view.vanished(Kind::Pod, &known.meta);
        }
        if let Some(found) = &found {
            self.view.observe(Kind::Pod, found);
        }
        Ok(pod)
    }

    async fn selected(&self, kind: Kind, namespace: &str, by: Selector) -> Result<Vec<Value>, ClusterError> {
        let described = format!("the list of {}s in {namespace}", kind.name());
        let some = ListParams::default().limit(PAGE);
        let page = match &by {
            Selector::Labels(labels) => some.labels(labels),
            Selector::Fields(fields) => some.fields(fields),
        };
        let list = within(&described, self.api(kind, namespace).list(&page)).await?;
        Ok(list.items.iter().map(RawObject::value).collect())
    }
}

fn too_many(object: String) -> ClusterError {
    let message = format!("it has more than {MAX_PAGES} pages");
    ClusterError::Transient { object, message, retry_after: None }
}

impl KubeCluster {
    async fn delete_with(
        &self,
        target: Target,
        params: DeleteParams,
        version: Option<String>,
    ) -> Result<(), ClusterError> {
        let described = target.describe();
        self.check_fence(&described)?;
        let api = self.api(target.kind, &target.namespace);
        let params =
            params.preconditions(Preconditions { uid: Some(target.uid.clone()), resource_version: version });
        let deleted = api.delete(&target.name, &params);
        let answer = within(&described, self.doubting(&target, deleted)).await;
        let leaving = match answer {
            Ok(answer) => answer.left().filter(RawObject::is_terminating),
            Err(ClusterError::NotFound { .. }) => None,
            Err(error) => return Err(error.of_delete()),
        };
        if let Some(object) = leaving {
            self.view.observe_raw(target.kind, &object);
        } else {
            let key = Key::new(&target.namespace, &target.name);
            self.view.deleted(target.kind, &key, &target.uid);
        }
        Ok(())
    }

    /// Reads the owner before an object is created again: an object that vanished right after its creation was garbage
    /// collected with its owner, whose deletion the watch may not have shown yet.
    async fn check_owner(&self, kind: Kind, meta: &Meta) -> Result<(), ClusterError> {
        let Some(owner) = meta.controller() else { return Ok(()) };
        let Some(of) =
            [Kind::NodeDeployment, Kind::StatefulNode].into_iter().find(|k| k.name() == owner.kind)
        else {
            return Ok(());
        };
        let (owner_key, uid) = (Key::new(&meta.namespace, &owner.name), owner.uid.as_str());
        if self.was_created_lately(kind, meta.key()) {
            let found = self.owner(of, &owner_key).await?;
            if found.as_ref().is_none_or(|found| found["metadata"]["uid"] != uid) {
                self.view.deleted(of, &owner_key, uid);
                if let Some(found) = found {
                    self.view.observe(of, &found);
                }
                return Err(ClusterError::Conflict {
                    object: format!("{} {owner_key}", of.name()),
                    message: "it was deleted in the meantime, so Windlass does not recreate its \
                        dependents"
                        .to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Reads a fleet or a node from the API server, by a list: the operator's role allows list on these kinds, but not
    /// get.
    async fn owner(&self, kind: Kind, key: &Key) -> Result<Option<Value>, ClusterError> {
        let named = ListParams::default().fields(&format!("metadata.name={}", key.name));
        let described = format!("{} {key}", kind.name());
        let found = within(&described, self.api(kind, &key.namespace).list(&named)).await?;
        Ok(found.items.first().map(RawObject::value))
    }

    /// The API for a manifest, and the name of its object in messages.
    fn place(&self, kind: Kind, manifest: &Value) -> (Api<RawObject>, String) {
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or_default();
        let name = &manifest["metadata"]["name"];
        let name = if name.is_string() { name } else { &manifest["metadata"]["generateName"] };
        let described = format!("{} {namespace}/{}", kind.name(), name.as_str().unwrap_or_default());
        (self.api(kind, namespace), described)
    }

    async fn send_patch(
        &self,
        target: &Target,
        part: Part,
        mut ops: Vec<PatchOp>,
        dry_run: bool,
    ) -> Result<RawObject, ClusterError> {
        if self.drops_managed_fields && part == Part::Main && !dry_run {
            ops.extend(without_managers(target.kind));
        }
        // The resourceVersion is set, not tested, so that the server compares it: a stale one gets 409 Conflict.
        let guard = PatchOp::set("/metadata/resourceVersion", json!(target.resource_version));
        let operations = std::iter::once(guard).chain(ops).map(PatchOp::into_operation).collect();
        let patch: Patch<()> = match operations {
            Ok(operations) => Patch::Json(json_patch::Patch(operations)),
            Err(message) => return Err(ClusterError::Refused { object: target.describe(), message }),
        };
        let params = PatchParams {
            dry_run,
            field_manager: Some(MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let api = self.api(target.kind, &target.namespace);
        let described = target.describe();
        let answer = match part {
            Part::Main if dry_run => within(&described, api.patch(&target.name, &params, &patch)).await,
            Part::Main => {
                let patched = api.patch(&target.name, &params, &patch);
                within(&described, self.doubting(target, patched)).await
            }
            Part::Status => within(&described, api.patch_status(&target.name, &params, &patch)).await,
        };
        if let Err(error) = &answer {
            self.look_again(target, error).await;
        }
        answer
    }

    /// Updates the view after a refused patch. After 404 the object is gone, however late the watch is. After a
    /// conflict, a StatefulSet, a Service or a Deployment is read: if it has lost the label by which it is watched, no
    /// watch would
    /// ever show its new version.
    async fn look_again(&self, target: &Target, error: &ClusterError) {
        match error {
            ClusterError::Conflict { .. }
                if matches!(target.kind, Kind::StatefulSet | Kind::Service | Kind::Deployment) =>
            {
                if let Ok(Some(found)) = self.get(target.kind, &target.namespace, &target.name).await {
                    self.view.observe(target.kind, &found);
                }
            }
            ClusterError::NotFound { .. } => {
                let key = Key::new(&target.namespace, &target.name);
                self.view.deleted(target.kind, &key, &target.uid);
            }
            _ => {}
        }
    }
}

/// The operation that removes the managed fields, for kinds that belong to Windlass alone. They are half of the size of
/// a StatefulSet and half of the work of a write to one: they list every variable of a pod template, and are compared
/// and merged at each write, also at those of the StatefulSet controller. Once they are removed, the API server does
/// not track them again until somebody uses server-side apply. Windlass does not need them, because none of its writes
/// is an apply.
fn without_managers(kind: Kind) -> Option<PatchOp> {
    let reset = || PatchOp::set("/metadata/managedFields", json!([{}]));
    matches!(kind, Kind::StatefulNode | Kind::StatefulSet).then(reset)
}

/// Records a doubt in the view when it is dropped before the write is settled: no response came, or the request timed
/// out and its future was dropped.
struct Doubt<'a> {
    view: &'a View,
    target: &'a Target,
    settled: bool,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.settled {
            let key = Key::new(&self.target.namespace, &self.target.name);
            self.view.doubt(self.target.kind, key, &self.target.resource_version);
        }
    }
}

/// True if an error proves that nothing was changed. A server error may come after the write.
fn was_not_carried_out(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 408)
}

/// A create with strict field validation, for which the `create` of kube-rs has no parameter.
pub async fn strict(
    api: &Api<RawObject>,
    params: &PostParams,
    manifest: &Value,
    client: &Client,
) -> kube::Result<RawObject> {
    let body = serde_json::to_vec(manifest).map_err(kube::Error::SerdeError)?;
    let request = kube::core::Request::new(api.resource_url());
    let mut request = request.create(params, body).map_err(kube::Error::BuildRequest)?;
    let uri = request.uri().to_string();
    let joint = if uri.ends_with('?') || uri.ends_with('&') {
        ""
    } else if uri.contains('?') {
        "&"
    } else {
        "?"
    };
    *request.uri_mut() =
        format!("{uri}{joint}fieldValidation=Strict").parse().map_err(|e: http::uri::InvalidUri| {
            kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(e.into()))
        })?;
    client.request(request).await
}

/// True if the API server evicts a pod later or, where two budgets select it, not before one of them is gone.
fn is_kept_by_budget(status: &Status) -> bool {
    let is_about = |words: &str| status.message.contains(words);
    (status.code == 429 && is_about("disruption budget"))
        || (status.code == 500 && is_about("PodDisruptionBudget"))
}

/// Why the API server does not evict a pod now. Its causes name the budget.
fn in_words(status: &Status) -> String {
    let causes =
        status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.message.as_str());
    std::iter::once(status.message.as_str()).chain(causes).collect::<Vec<_>>().join(" ")
}

async fn within<T>(described: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, ClusterError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|e| ClusterError::from_kube(described.to_owned(), e)),
        Err(_) => Err(ClusterError::Transient {
            object: described.to_owned(),
            message: format!("the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs()),
            retry_after: None,
        }),
    }
}
