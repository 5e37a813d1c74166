//! Maintains the objects of `spec.perVersion`: one copy for each version with workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::observed::{Meta, Observed as _, ObservedResource};
use windlass_kube_port::{ClusterError, Event, Part, PatchOp, Target};

use super::state::Reconcile;
use crate::api::names::LABEL_BUILD_ID;
use crate::api::{Reason, VersionResource};
use crate::per_version::{self, GroupKind, Place, Resource, Type, mark};
use crate::planner::build::deployment_names;
use crate::planner::facts::Version;
use crate::port::BuildId;
use crate::resources::{Unusable, Watched};

/// Requeue until the objects are listed.
const SOON: Duration = Duration::from_secs(1);
/// Requeue after an error.
const LATER: Duration = Duration::from_secs(15);

/// The rights for the default kinds.
const RIGHTS: &str = "deploy/temporal/worker-resources-all-namespaces.yaml";

/// The kinds in use, each with its objects or why it has none.
pub(crate) type Kinds = BTreeMap<Type, Result<Watched, Unusable>>;

/// The objects of all kinds in use that belong to the WorkerDeployment.
struct Live(BTreeMap<(GroupKind, String), (Watched, Arc<ObservedResource>)>);

impl Live {
    fn of(kinds: &Kinds, namespace: &str, owner: &str) -> Self {
        let usable = kinds.iter().filter_map(|(type_, watched)| Some((type_, watched.as_ref().ok()?)));
        let objects = usable.flat_map(|(type_, watched)| {
            let found = watched.cache.group(namespace, owner).into_iter();
            found.map(|object| {
                let key = (type_.group_kind(), object.meta.name.clone());
                (key, (watched.clone(), object))
            })
        });
        Self(objects.collect())
    }

    fn of_version<'a>(
        &'a self,
        build: &'a BuildId,
    ) -> impl Iterator<Item = &'a (Watched, Arc<ObservedResource>)> {
        let is_of = |object: &ObservedResource| object.meta.label(LABEL_BUILD_ID) == Some(build.as_str());
        self.0.values().filter(move |(_, object)| is_of(object))
    }
}

/// What the deletion of an object waits for, as a sentence.
fn deletion_of(object: &ObservedResource) -> String {
    let finalizers = object.object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let finalizers: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
    match finalizers.as_slice() {
        [] => "it is being deleted".to_owned(),
        names => format!("it is being deleted; its finalizers are {}", names.join(", ")),
    }
}

/// The recorded objects of a version of which it is not known whether they exist. Objects of a kind that no longer exists,
/// or that Windlass no longer manages, are not among them.
fn unlisted<'a>(kinds: &'a Kinds, version: &'a Version) -> impl Iterator<Item = &'a VersionResource> {
    let recorded = version.record.iter().flat_map(|record| &record.resources);
    recorded.filter(|resource| {
        let type_ = Type { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
        match kinds.get(&type_) {
            Some(Ok(watched)) => !watched.cache.is_ready(),
            Some(Err(Unusable::Temporary(_))) => true,
            Some(Err(Unusable::Permanent(_))) | None => false,
        }
    })
}

impl Reconcile<'_> {
    /// The kinds in use.
    pub(crate) async fn kinds_in_use(&self) -> Kinds {
        let mut kinds = Kinds::new();
        for type_ in Type::in_use(&self.facts) {
            let watched = self.cx.resources.watched(&type_).await;
            kinds.insert(type_, watched);
        }
        kinds
    }

    /// Checks the manifests of the spec and, with a dry run, that the API server accepts them for the target. While they
    /// are not accepted, no rollout continues.
    pub(super) async fn check_resources(&mut self, dry_run: bool) {
        if self.facts.spec.per_version.is_empty() || self.facts.deleted_at.is_some() {
            return;
        }
        match self.resources_problem(dry_run).await {
            Ok(()) => {}
            Err(Unusable::Temporary(sentence)) => self.facts.unchecked = Some(sentence),
            Err(Unusable::Permanent(sentence)) => {
                let cause = format!("{}/{sentence}", self.facts.generation);
                self.record_event(Event::warning(Reason::InvalidSpec, cause, sentence.clone()));
                self.facts.invalid.get_or_insert(sentence);
            }
        }
    }

    async fn resources_problem(&self, dry_run: bool) -> Result<(), Unusable> {
        let facts = &self.facts;
        per_version::check(facts).map_err(Unusable::Permanent)?;
        let names = deployment_names(&facts.name, &facts.target.build);
        let place = Place { facts, build: &facts.target.build, deployment: &names[0] };
        let rendered = per_version::rendered(&facts.spec, place).map_err(Unusable::Permanent)?;
        for (index, resource) in rendered.into_iter().enumerate() {
            let at = |what: &str| format!("spec.perVersion[{index}]: {what}");
            let watched =
                self.cx.resources.watched(&resource.type_).await.map_err(|unusable| match unusable {
                    Unusable::Permanent(sentence) => Unusable::Permanent(at(&sentence)),
                    Unusable::Temporary(sentence) => Unusable::Temporary(at(&sentence)),
                })?;
            if !dry_run {
                continue;
            }
            match self.cx.cluster.try_create(watched.kind, resource.manifest).await {
                Ok(_) => {}
                // The manifest is valid.
                Err(error) if error.exceeds_quota() => {}
                Err(ClusterError::Refused { message, .. }) => {
                    return Err(Unusable::Permanent(at(&format!("the API server rejects it: {message}"))));
                }
                Err(ClusterError::Forbidden { message, .. }) => {
                    let what = format!(
                        "the API server currently forbids it ({message}); {RIGHTS} has the operator's rights"
                    );
                    return Err(Unusable::Permanent(at(&what)));
                }
                Err(error) => {
                    let what = format!("could not check whether the API server accepts it: {error}");
                    return Err(Unusable::Temporary(at(&what)));
                }
            }
        }
        Ok(())
    }

    /// True if objects of a version exist, or it is not known whether they do.
    pub(super) fn has_resources(&self, kinds: &Kinds, build: &BuildId) -> bool {
        let live = Live::of(kinds, &self.facts.namespace, &self.facts.name);
        unlisted(kinds, &self.facts.versions[build]).next().is_some()
            || live.of_version(build).next().is_some()
    }

    /// Deletes the objects of a version.
    pub(crate) async fn delete_resources(&self, kinds: &Kinds, build: &BuildId) -> Result<(), ClusterError> {
        let live = Live::of(kinds, &self.facts.namespace, &self.facts.name);
        for (watched, object) in live.of_version(build) {
            self.delete_resource(watched, object).await?;
        }
        Ok(())
    }

    async fn delete_resource(&self, of: &Watched, object: &ObservedResource) -> Result<(), ClusterError> {
        if object.meta.terminating {
            return Ok(());
        }
        self.cx.cluster.delete(Target::of(of.kind, &object.meta)).await
    }

    /// Creates, updates and deletes objects, so that each version with workers has its own, except those that are about to
    /// be scaled down. Returns when to check again.
    pub(super) async fn maintain_resources(
        &mut self,
        kinds: &Kinds,
        retiring: &BTreeSet<BuildId>,
    ) -> Option<Duration> {
        if kinds.is_empty() {
            return None;
        }
        let live = Live::of(kinds, &self.facts.namespace, &self.facts.name);
        let mut wanted = BTreeSet::new();
        let mut pending: Option<Duration> = None;
        // Nothing of a spec that cannot be applied is carried out.
        let is_invalid = self.facts.invalid.is_some();
        let with_workers: Vec<(BuildId, String)> = self
            .facts
            .versions
            .values()
            .filter(|version| !is_invalid && !retiring.contains(&version.build))
            .filter_map(|version| {
                let workers = version.workers.as_ref()?;
                (!workers.is_sunset() && !workers.is_terminating())
                    .then(|| (version.build.clone(), workers.first().name.clone()))
            })
            .collect();
        let mut records: BTreeMap<BuildId, Vec<VersionResource>> = BTreeMap::new();
        for (build, deployment) in with_workers {
            let place = Place { facts: &self.facts, build: &build, deployment: &deployment };
            let Ok(rendered) = per_version::rendered(&self.facts.spec, place) else { return None };
            for resource in rendered {
                let problem = self.apply_resource(kinds, &live, &resource).await.err();
                pending = pending.max(problem.as_ref().map(|_| LATER));
                wanted.insert((resource.type_.group_kind(), resource.name.clone()));
                records.entry(build.clone()).or_default().push(resource.record(problem));
            }
        }
        for (_, (watched, object)) in live.0.iter().filter(|(key, _)| !wanted.contains(key)) {
            let build = BuildId::new(object.meta.label(LABEL_BUILD_ID).unwrap_or_default());
            if is_invalid && !retiring.contains(&build) {
                continue;
            }
            let deleted = self.delete_resource(watched, object).await;
            let problem = match deleted {
                Ok(()) => deletion_of(object),
                Err(error) => format!("it could not be deleted: {}", error.message()),
            };
            pending = pending.max(Some(LATER));
            records.entry(build).or_default().push(VersionResource {
                api_version: watched.kind.api_version(),
                kind: watched.kind.name().to_owned(),
                name: object.meta.name.clone(),
                applied: false,
                message: problem,
            });
        }
        for version in self.facts.versions.values_mut().filter(|_| !is_invalid) {
            let mut of_version = records.remove(&version.build).unwrap_or_default();
            let unlisted = unlisted(kinds, version).filter(|resource| {
                !of_version.iter().any(|other| (&other.kind, &other.name) == (&resource.kind, &resource.name))
            });
            let unlisted: Vec<VersionResource> = unlisted.cloned().collect();
            pending = pending.max((!unlisted.is_empty()).then_some(SOON));
            of_version.extend(unlisted);
            version.resources = Some(of_version);
        }
        pending
    }

    /// Makes an object match its manifest; the error is a sentence.
    async fn apply_resource(&self, kinds: &Kinds, live: &Live, resource: &Resource) -> Result<(), String> {
        let watched = match kinds.get(&resource.type_) {
            Some(Ok(watched)) => watched,
            Some(Err(Unusable::Permanent(sentence) | Unusable::Temporary(sentence))) => {
                return Err(sentence.clone());
            }
            None => return Err("the kind is not known yet".to_owned()),
        };
        if !watched.cache.is_ready() {
            return Err(format!(
                "the API server has not listed the objects of this kind yet; {RIGHTS} has the operator's rights"
            ));
        }
        let found = live.0.get(&(resource.type_.group_kind(), resource.name.clone()));
        let written = match found {
            Some((_, object)) if object.meta.terminating => return Err(deletion_of(object)),
            Some((_, object)) => {
                let content = mark(&object.object);
                let ops = resource.differences(object, self.cx.compared.is(&object.meta, content));
                if ops.is_empty() {
                    self.cx.compared.note(&object.meta, content);
                    return Ok(());
                }
                let target = Target::of(watched.kind, &object.meta);
                self.cx.cluster.patch(target, Part::Main, ops).await
            }
            None => self.cx.cluster.create(watched.kind, resource.manifest.clone()).await,
        };
        match written {
            Ok(stored) => {
                let stored = ObservedResource::read(&stored);
                self.cx.compared.note(&stored.meta, mark(&stored.object));
                Ok(())
            }
            Err(ClusterError::AlreadyExists { .. }) => Err(format!(
                "{} {} already exists and belongs to another owner; delete it, or set metadata.name",
                resource.type_.kind, resource.name
            )),
            Err(error) => Err(error.message().clone()),
        }
    }

    /// Removes the owner of all objects, so that they remain when the WorkerDeployment is deleted. True if none is left.
    pub(crate) async fn retain_resources(&self, kinds: &Kinds) -> Result<bool, ClusterError> {
        let mut is_done = kinds.values().flatten().all(|watched| watched.cache.is_ready());
        let live = Live::of(kinds, &self.facts.namespace, &self.facts.name);
        let owned = |meta: &Meta| meta.owners.iter().any(|owner| owner.uid == self.facts.uid);
        for (watched, object) in live.0.values().filter(|(_, object)| owned(&object.meta)) {
            is_done = false;
            let op = PatchOp::set("/metadata/ownerReferences", json!([]));
            self.cx.cluster.patch(Target::of(watched.kind, &object.meta), Part::Main, vec![op]).await?;
        }
        Ok(is_done)
    }
}
