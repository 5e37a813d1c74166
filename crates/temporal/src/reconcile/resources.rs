//! Maintains the objects of `spec.perVersion`: one copy for each version with workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_core::observed::{Observed as _, ObservedResource};
use windlass_kube_port::{ClusterError, Event, Target};

use super::state::Reconcile;
use crate::api::names::LABEL_BUILD_ID;
use crate::api::{Reason, VersionResource};
use crate::per_version::{self, GroupKind, Resource, Type, VersionNames, mark};
use crate::planner::build::deployment_names;
use crate::planner::facts::{Version, Workers};
use crate::port::BuildId;
use crate::resources::{Unusable, Watched};

/// Requeue until the objects are listed.
const SOON: Duration = Duration::from_secs(1);
/// Requeue after an error.
const LATER: Duration = Duration::from_secs(15);

/// Where the rights for the default kinds are, for messages.
const RIGHTS: &str = "the operator needs the rights of deploy/temporal/worker-resources-*.yaml";

/// What happens to the objects of a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// They stay as they are: whether the version is needed is not decided, or its Deployment is not there.
    Keep,
    /// They are deleted: the version is scaled down or deleted, or will be once they no longer exist.
    Delete,
}

/// The kinds in use, each with its objects or why it has none.
pub(crate) type Kinds = BTreeMap<Type, Result<Watched, Unusable>>;

/// The objects of all kinds in use that belong to the WorkerDeployment.
struct Live(BTreeMap<(GroupKind, String), (Watched, Arc<ObservedResource>)>);

impl Live {
    fn of_version(&self, build: &BuildId) -> impl Iterator<Item = &(GroupKind, String)> {
        let is_of = |object: &ObservedResource| object.meta.label(LABEL_BUILD_ID) == Some(build.as_str());
        self.0.iter().filter(move |(_, (_, object))| is_of(object)).map(|(key, _)| key)
    }
}

/// The applied objects of a version of which it is not known whether they exist. Objects of a kind that no longer exists,
/// or that Windlass no longer manages, are not among them.
fn unlisted<'a>(kinds: &'a Kinds, version: &'a Version) -> impl Iterator<Item = &'a VersionResource> {
    let recorded = version.record.iter().flat_map(|record| &record.resources);
    recorded.filter(|resource| resource.applied).filter(|resource| {
        match kinds.get(&Type::recorded(resource)) {
            Some(Ok(watched)) => !watched.cache.is_ready(),
            Some(Err(Unusable::Temporary(_))) => true,
            Some(Err(Unusable::Permanent(_))) | None => false,
        }
    })
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

    /// The objects of these kinds that belong to the WorkerDeployment. Its labels are not enough: KEDA copies them to objects
    /// of its own.
    fn live(&self, kinds: &Kinds) -> Live {
        let (namespace, name) = (&self.facts.namespace, &self.facts.name);
        let usable = kinds.iter().filter_map(|(type_, watched)| Some((type_, watched.as_ref().ok()?)));
        let objects = usable.flat_map(|(type_, watched)| {
            let found = watched.cache.group(namespace, name).into_iter();
            let is_ours = |object: &Arc<ObservedResource>| {
                object.meta.controller().is_none_or(|owner| owner.uid == self.facts.uid)
            };
            found
                .filter(is_ours)
                .map(|object| ((type_.group_kind(), object.meta.name.clone()), (watched.clone(), object)))
        });
        Live(objects.collect())
    }

    /// Checks the manifests of the spec and, with a dry run, that the API server accepts for the target what it does not have
    /// yet. While they are not accepted, nothing of them is applied, and no rollout continues.
    pub(super) async fn check_resources(&mut self) {
        if self.facts.spec.per_version.is_empty() || self.facts.deleted_at.is_some() {
            return;
        }
        match self.resources_problem().await {
            Ok(()) => {}
            Err(Unusable::Temporary(sentence)) => self.facts.unchecked = Some(sentence),
            Err(Unusable::Permanent(sentence)) => {
                let cause = format!("{}/{sentence}", self.facts.generation);
                self.record_event(Event::warning(Reason::InvalidSpec, cause, sentence.clone()));
                self.is_accepted = false;
                self.facts.invalid.get_or_insert(sentence);
            }
        }
    }

    async fn resources_problem(&self) -> Result<(), Unusable> {
        let (facts, build) = (&self.facts, &self.facts.target.build);
        let workers = facts.target_version().and_then(|version| version.workers.as_ref());
        let name = workers.and_then(Workers::main).map(|main| main.name.clone());
        let deployment = name.unwrap_or_else(|| deployment_names(&facts.name, build)[0].clone());
        let place = VersionNames { facts, build, deployment: &deployment };
        let rendered = per_version::rendered(place).map_err(Unusable::Permanent)?;
        for (index, resource) in rendered.into_iter().enumerate() {
            let at = |what: &str| format!("spec.perVersion[{index}]: {what}");
            let watched = self.cx.resources.watched(&resource.type_).await;
            let watched = watched.map_err(|unusable| unusable.map(|sentence| at(&sentence)))?;
            let found = watched.cache.group(&facts.namespace, &facts.name);
            if found.iter().any(|object| object.meta.name == resource.name && resource.matches(object, true))
            {
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
                    let what = format!("the API server currently forbids it: {message}; {RIGHTS}");
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
        unlisted(kinds, &self.facts.versions[build]).next().is_some()
            || self.live(kinds).of_version(build).next().is_some()
    }

    /// Applies and deletes objects, so that each version with workers has its own. Returns when to check again.
    pub(crate) async fn maintain_resources(
        &mut self,
        kinds: &Kinds,
        fates: &BTreeMap<BuildId, Fate>,
    ) -> Option<Duration> {
        if kinds.is_empty() {
            return None;
        }
        let live = self.live(kinds);
        let (mut wanted, mut records) = (BTreeSet::new(), BTreeMap::<BuildId, Vec<VersionResource>>::new());
        let mut next: Option<Duration> = None;
        let mut recheck = |after: Duration| next = Some(next.map_or(after, |next| next.min(after)));
        for version in self.facts.versions.values() {
            let (build, fate) = (&version.build, fates.get(&version.build));
            let workers = version.workers.as_ref().filter(|workers| !workers.is_sunset());
            let (Some(workers), false) = (workers, fate == Some(&Fate::Delete)) else { continue };
            let main = workers.main().filter(|main| !main.is_terminating);
            let is_kept = fate == Some(&Fate::Keep) || self.facts.invalid.is_some();
            let place = main.filter(|_| !is_kept).map(|main| VersionNames {
                facts: &self.facts,
                build,
                deployment: &main.name,
            });
            let Some(Ok(rendered)) = place.map(per_version::rendered) else {
                wanted.extend(live.of_version(build).cloned());
                continue;
            };
            for resource in rendered {
                let problem = self.apply_resource(kinds, &live, &resource).await.err();
                if problem.is_some() {
                    recheck(LATER);
                }
                wanted.insert((resource.type_.group_kind(), resource.name.clone()));
                records.entry(build.clone()).or_default().push(resource.record(problem));
            }
        }
        for (_, (watched, object)) in live.0.iter().filter(|(key, _)| !wanted.contains(key)) {
            let problem = match self.delete_resource(watched, object).await {
                Ok(()) => deletion_of(object),
                Err(error) => format!("it could not be deleted: {}", error.message()),
            };
            recheck(LATER);
            let build = BuildId::new(object.meta.label(LABEL_BUILD_ID).unwrap_or_default());
            records.entry(build).or_default().push(VersionResource {
                api_version: watched.kind.api_version(),
                kind: watched.kind.name().to_owned(),
                name: object.meta.name.clone(),
                applied: false,
                message: problem,
            });
        }
        let is_invalid = self.facts.invalid.is_some();
        for version in self.facts.versions.values_mut() {
            let of_version = records.remove(&version.build);
            if of_version.is_none() && (is_invalid || fates.get(&version.build) == Some(&Fate::Keep)) {
                continue;
            }
            let mut of_version = of_version.unwrap_or_default();
            let unlisted = unlisted(kinds, version).filter(|resource| {
                !of_version.iter().any(|other| (&other.kind, &other.name) == (&resource.kind, &resource.name))
            });
            let unlisted: Vec<VersionResource> = unlisted.cloned().collect();
            if !unlisted.is_empty() {
                recheck(SOON);
            }
            of_version.extend(unlisted);
            version.resources = Some(of_version);
        }
        next
    }

    async fn delete_resource(&self, of: &Watched, object: &ObservedResource) -> Result<(), ClusterError> {
        if object.meta.terminating {
            return Ok(());
        }
        self.cx.cluster.delete(Target::of(of.kind, &object.meta)).await
    }

    /// Makes an object match its manifest; the error is a sentence.
    async fn apply_resource(&self, kinds: &Kinds, live: &Live, resource: &Resource) -> Result<(), String> {
        let watched = match kinds.get(&resource.type_) {
            Some(Ok(watched)) => watched,
            Some(Err(Unusable::Permanent(sentence) | Unusable::Temporary(sentence))) => {
                return Err(sentence.clone());
            }
            None => return Err("its kind is not known yet".to_owned()),
        };
        if !watched.cache.is_ready() {
            return Err(format!("the API server has not listed the objects of its kind yet; {RIGHTS}"));
        }
        let mut manifest = resource.manifest.clone();
        match live.0.get(&(resource.type_.group_kind(), resource.name.clone())) {
            Some((_, object)) if object.meta.terminating => return Err(deletion_of(object)),
            Some((_, object)) => {
                let content = mark(&object.object);
                if resource.matches(object, self.cx.compared.is(&object.meta, content)) {
                    self.cx.compared.note(&object.meta, content);
                    return Ok(());
                }
                manifest["metadata"]["uid"] = json!(object.meta.uid);
            }
            None => match self.cx.cluster.get(watched.kind, &self.facts.namespace, &resource.name).await {
                Ok(None) => {}
                Ok(Some(_)) => {
                    return Err(format!(
                        "{} {} already exists, and Windlass did not create it; delete it, or set metadata.name",
                        resource.type_.kind, resource.name
                    ));
                }
                Err(error) => return Err(error.message().clone()),
            },
        }
        match self.cx.cluster.apply(watched.kind, manifest).await {
            Ok(stored) => {
                let stored = ObservedResource::read(&stored);
                self.cx.compared.note(&stored.meta, mark(&stored.object));
                Ok(())
            }
            Err(error) => Err(error.message().clone()),
        }
    }
}
