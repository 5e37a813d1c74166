//! The Deployments of versions and the ControllerRevisions that keep their templates: reads and writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use windlass_core::api::names::{LABEL_MANAGED_BY, MANAGER};
use windlass_core::observed::{Meta, ObservedObject};
use windlass_core::revision::config;
use windlass_kube_port::{Cluster, ClusterError, Kind, Part, PatchOp, Target, View};

use crate::api::names::{ANNOTATION_REVISION, ANNOTATION_SUNSET, LABEL_BUILD_ID, LABEL_POOL, LABEL_WORKERS};
use crate::per_version::replicas;
use crate::planner::Facts;
use crate::planner::build::{deployment_names, revision_name};
use crate::port::BuildId;
use crate::render::{self, ANNOTATIONS, REPLICAS, Version};

/// A mark of each object, by UID, that the API server stored for what Windlass wrote. Without it, each reconcile would
/// overwrite the defaults that the API server adds.
#[derive(Debug, Default)]
pub struct Compared(Mutex<BTreeMap<String, i64>>);

impl Compared {
    /// True if the object has not changed since Windlass wrote it.
    pub(crate) fn is(&self, live: &Meta, mark: i64) -> bool {
        self.marks().get(&live.uid) == Some(&mark)
    }

    /// Records that the object is as Windlass wrote it.
    pub(crate) fn note(&self, live: &Meta, mark: i64) {
        let mut marks = self.marks();
        if marks.len() > MAX_COMPARED {
            marks.clear();
        }
        marks.insert(live.uid.clone(), mark);
    }

    fn marks(&self) -> MutexGuard<'_, BTreeMap<String, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of objects at which the marks are cleared.
const MAX_COMPARED: usize = 10_000;

/// The Deployments and revisions of a WorkerDeployment.
pub struct Children {
    cluster: Arc<dyn Cluster>,
    /// The Deployments, by build ID and pool.
    pub deployments: BTreeMap<BuildId, BTreeMap<String, Arc<ObservedObject>>>,
    /// The revisions, by name.
    pub revisions: BTreeMap<String, Arc<ObservedObject>>,
    compared: Arc<Compared>,
}

impl Children {
    /// Reads them from the caches.
    #[must_use]
    pub fn read(
        cluster: Arc<dyn Cluster>,
        view: &View,
        namespace: &str,
        owner: &str,
        compared: Arc<Compared>,
    ) -> Self {
        let mut deployments: BTreeMap<BuildId, BTreeMap<String, Arc<ObservedObject>>> = BTreeMap::new();
        for deployment in view.deployments.group(namespace, owner) {
            let Some(build) = deployment.meta.label(LABEL_BUILD_ID).map(BuildId::new) else { continue };
            let pool = deployment.meta.label(LABEL_POOL).unwrap_or_default().to_owned();
            let pools = deployments.entry(build).or_default();
            // One Deployment per pool: the older, if there are two.
            if pools.get(&pool).is_none_or(|known| deployment.meta.created_at < known.meta.created_at) {
                pools.insert(pool, deployment);
            }
        }
        let revisions = view.worker_revisions.group(namespace, owner).into_iter();
        let revisions = revisions.map(|revision| (revision.meta.name.clone(), revision)).collect();
        Self { cluster, deployments, revisions, compared }
    }

    /// The revision from which a version's Deployment can be recreated.
    #[must_use]
    pub fn revision_of(&self, facts: &Facts, build: &BuildId) -> Option<&str> {
        let live = self.deployments.get(build).and_then(|pools| pools.values().next());
        let annotated = live.and_then(|live| live.meta.annotation(ANNOTATION_REVISION).map(str::to_owned));
        let recorded = || {
            let records = &facts.status.versions;
            records.iter().find(|record| record.build_id == *build).and_then(|record| record.revision.clone())
        };
        let newest = || {
            let is_of_build =
                |revision: &&Arc<ObservedObject>| revision.meta.label(LABEL_BUILD_ID) == Some(build.as_str());
            let newest = self.revisions.values().filter(is_of_build).max_by_key(|r| number(r))?;
            Some(newest.meta.name.clone())
        };
        let name =
            annotated.or_else(recorded).filter(|name| self.revisions.contains_key(name)).or_else(newest)?;
        self.revisions.get_key_value(&name).map(|(name, _)| name.as_str())
    }

    /// The name of the target's revision, which may not exist yet.
    #[must_use]
    pub fn target_revision(facts: &Facts) -> String {
        revision_name(&facts.name, &facts.target.hash)
    }

    /// Creates the target's revision.
    pub async fn keep_target(&self, facts: &Facts) -> Result<(), ClusterError> {
        let name = Self::target_revision(facts);
        if self.revisions.contains_key(&name) {
            return Ok(());
        }
        let newest = self.revisions.values().filter_map(|revision| number(revision)).max();
        let revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {
                "name": name, "namespace": facts.namespace,
                "labels": {
                    LABEL_WORKERS: facts.name, LABEL_BUILD_ID: facts.target.build.as_str(), LABEL_MANAGED_BY: MANAGER,
                },
            },
            "revision": newest.unwrap_or(0) + 1,
            "data": {
                "template": facts.spec.template,
                "pools": facts.spec.pools,
                "templateHash": facts.target.template_hash,
                "buildID": facts.target.build.as_str(),
                "unsafeCustomBuildID": facts.spec.unsafe_custom_build_id,
            },
        });
        match self.cluster.create(Kind::ControllerRevision, revision).await {
            Ok(_) | Err(ClusterError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the target's Deployments as a dry run; the error is that of the template in this field. `Refused` and
    /// `Forbidden` have the API server's message.
    pub async fn try_target(&self, facts: &Facts) -> Result<(), (String, ClusterError)> {
        let revision = Self::target_revision(facts);
        for (index, version) in target(facts, &revision).into_iter().enumerate() {
            // The API server generates the rest of the name, and the port takes it out of the message.
            let manifest = version.rendered().manifest(&version, &facts.name);
            if let Err(error) = self.cluster.try_create(Kind::Deployment, manifest).await {
                let field = match index {
                    0 => "spec.template".to_owned(),
                    index => format!("spec.pools[{}].template", index - 1),
                };
                return Err((field, error));
            }
        }
        Ok(())
    }

    /// Creates the target's Deployments, updates them in place, or scales them up again. True if it wrote something.
    pub async fn apply_target(&self, facts: &Facts) -> Result<bool, ClusterError> {
        self.keep_target(facts).await?;
        let revision = Self::target_revision(facts);
        self.apply_all(facts, &target(facts, &revision)).await
    }

    /// Makes a version's Deployments match their own templates. True if it wrote something. Without its revision, its template
    /// is known only if it is the target's. `is_made`: true if a rollout has created the version from the target.
    pub async fn serve(&self, facts: &Facts, build: &BuildId, is_made: bool) -> Result<bool, ClusterError> {
        let Some(revision) = self.revision_of(facts, build) else {
            // Under a fixed build ID the target may have another template, which only a rollout may apply.
            let is_its_own = is_made || facts.is_at_target() || facts.spec.unsafe_custom_build_id.is_none();
            if *build == facts.target.build && is_its_own {
                return self.apply_target(facts).await;
            }
            return Ok(false);
        };
        let data = &self.revisions[revision].object["data"];
        let first = Version {
            build,
            pool: None,
            replicas: replicas(&facts.spec, ""),
            template: &data["template"],
            template_hash: data["templateHash"].as_str().unwrap_or_default(),
            revision,
            ..self::version(facts, revision)
        };
        let live = self.deployments.get(build);
        let others = data["pools"].as_array().into_iter().flatten().map(|pool| {
            let name = pool["name"].as_str().unwrap_or_default();
            let current = facts.spec.pools.iter().find(|current| current.name == name);
            // The workers of a pool that the spec no longer has keep their replicas.
            let serves = |live: &Arc<ObservedObject>| live.meta.annotation(ANNOTATION_SUNSET).is_none();
            let recorded = || pool["replicas"].as_i64().and_then(|replicas| i32::try_from(replicas).ok());
            let replicas = match current {
                Some(current) => self::replicas(&facts.spec, &current.name),
                None if live.and_then(|pools| pools.get(name)).is_some_and(serves) => None,
                None => recorded(),
            };
            (name, &pool["template"], replicas)
        });
        self.apply_all(facts, &with_pools(first, others)).await
    }

    /// Applies the pools of a version, and deletes the Deployments of others: under a fixed build ID, a pool may be removed.
    async fn apply_all(&self, facts: &Facts, pools: &[Version<'_>]) -> Result<bool, ClusterError> {
        let mut has_written = false;
        let mut first: Option<String> = None;
        for version in pools {
            let (name, written) = self.apply(facts, version, first.as_ref()).await?;
            first.get_or_insert(name);
            has_written |= written;
        }
        let live =
            pools.first().and_then(|version| self.deployments.get(version.build)).into_iter().flatten();
        let is_known = |name: &str| pools.iter().any(|version| version.pool.unwrap_or_default() == name);
        let (known, removed): (Vec<_>, Vec<_>) = live.partition(|(name, _)| is_known(name));
        // The others take over their task queues first.
        if !has_written && known.iter().all(|(_, live)| is_rolled_out(live)) {
            for (_, live) in removed.iter().filter(|(_, live)| !live.meta.terminating) {
                self.cluster.delete(Target::of(Kind::Deployment, &live.meta)).await?;
            }
        }
        Ok(has_written)
    }

    /// Applies a pool of a version whose first Deployment has this name. Returns its name, and true if it wrote something, or
    /// could not yet.
    async fn apply(
        &self,
        facts: &Facts,
        version: &Version<'_>,
        first: Option<&String>,
    ) -> Result<(String, bool), ClusterError> {
        let pool = version.pool.unwrap_or_default();
        let live = self.deployments.get(version.build).and_then(|pools| pools.get(pool));
        let recorded = live.map(|live| config::digest_in(&live.object["spec"]["template"]));
        let secrets = facts.secrets.digest(recorded.unwrap_or_default());
        let version = &Version { secrets: &secrets, ..*version };
        let Some(live) = live else {
            return Ok((self.make(facts, version, &version.rendered(), first).await?, true));
        };
        let (meta, live) = (&live.meta, &live.object);
        let name = meta.name.clone();
        if meta.terminating {
            return Ok((name, true));
        }
        // The selector cannot be changed: under a fixed build ID, the version may have had other pools.
        let selected = live["spec"]["selector"]["matchLabels"].get(LABEL_POOL).map(|_| pool);
        let rendered = Version { pool: selected, ..*version }.rendered();
        // While the state in Temporal is unknown, the new connection may be wrong: with a misspelled address, or that of
        // another server, the workers of every version would stop polling.
        let may_update = facts.described().is_some() && !facts.secrets.hold_updates();
        let mut ops = rendered.differences(live, self.compared.is(meta, meta.generation));
        // A version whose update is held back is not as it has to be: no rollout goes on with it.
        let is_held = !may_update && facts.described().is_some() && !ops.is_empty();
        if !may_update {
            ops.clear();
        }
        let replicas = version.replicas;
        if meta.annotation(ANNOTATION_SUNSET).is_some() {
            let mut with = live.clone();
            let annotations = ops.iter().rfind(|op| op.path() == ANNOTATIONS).and_then(PatchOp::value);
            if let Some(annotations) = annotations {
                with["metadata"]["annotations"] = annotations.clone();
            }
            ops.extend(render::revive(&with, replicas));
        } else if let Some(wanted) = replicas
            && live["spec"]["replicas"].as_i64() != Some(i64::from(wanted))
        {
            ops.push(PatchOp::set(REPLICAS, json!(wanted)));
        }
        if ops.is_empty() {
            if may_update {
                self.compared.note(meta, meta.generation);
            }
            return Ok((name, is_held));
        }
        let target = Target::of(Kind::Deployment, meta);
        let written = self.cluster.patch(target, Part::Main, ops).await?;
        if may_update {
            let written = Meta::read(&written);
            self.compared.note(&written, written.generation);
        }
        Ok((name, true))
    }

    async fn make(
        &self,
        facts: &Facts,
        version: &Version<'_>,
        rendered: &render::Rendered,
        first: Option<&String>,
    ) -> Result<String, ClusterError> {
        let mut refusal = None;
        let pool = version.pool.unwrap_or_default();
        let names = match first {
            Some(first) => vec![format!("{first}-{pool}")],
            None => deployment_names(&facts.name, version.build),
        };
        for name in names {
            match self.cluster.create(Kind::Deployment, rendered.manifest(version, &name)).await {
                // The name is in use: by another object, or by a Deployment that Windlass has just created. The next
                // reconcile finds the latter by its label.
                Err(ClusterError::AlreadyExists { .. }) => {
                    let existing = self.cluster.get(Kind::Deployment, &facts.namespace, &name).await?;
                    let labels =
                        existing.map(|existing| existing["metadata"]["labels"].clone()).unwrap_or_default();
                    if labels[LABEL_WORKERS] == facts.name.as_str()
                        && labels[LABEL_BUILD_ID] == version.build.as_str()
                        && labels[LABEL_POOL].as_str().unwrap_or_default() == pool
                    {
                        return Ok(name);
                    }
                    refusal = Some(format!("Deployment {name} already exists and belongs to another owner"));
                }
                made => return made.map(|_| name),
            }
        }
        let object = format!("the Deployment of {}", version.build);
        let message = refusal.unwrap_or_else(|| "all candidate names are in use".to_owned());
        Err(ClusterError::Refused { object, message })
    }

    /// Scales a version to zero.
    pub async fn scale_down(&self, build: &BuildId) -> Result<(), ClusterError> {
        for live in self.deployments.get(build).into_iter().flat_map(BTreeMap::values) {
            let target = Target::of(Kind::Deployment, &live.meta);
            self.cluster.patch(target, Part::Main, render::scale_down(&live.object)).await?;
        }
        Ok(())
    }

    /// Deletes a version's Deployments.
    pub async fn delete(&self, build: &BuildId) -> Result<(), ClusterError> {
        for live in self.deployments.get(build).into_iter().flat_map(BTreeMap::values) {
            self.cluster.delete(Target::of(Kind::Deployment, &live.meta)).await?;
        }
        Ok(())
    }

    /// Deletes revisions that nothing refers to, except the newest `revisionHistoryLimit`.
    pub async fn prune(&self, facts: &Facts) -> Result<(), ClusterError> {
        let target = Self::target_revision(facts);
        let revisions = self.revisions.values();
        let mut idle: Vec<&Arc<ObservedObject>> =
            revisions.filter(|revision| !self.is_needed(facts, &revision.meta, &target)).collect();
        idle.sort_by_key(|revision| number(revision));
        let surplus = idle.len().saturating_sub(facts.spec.revision_history_limit as usize);
        for revision in &idle[..surplus] {
            self.cluster.delete(Target::of(Kind::ControllerRevision, &revision.meta)).await?;
        }
        Ok(())
    }

    fn is_needed(&self, facts: &Facts, revision: &Meta, target: &str) -> bool {
        let name = revision.name.as_str();
        let build = revision.label(LABEL_BUILD_ID).unwrap_or_default();
        // A version that Temporal knows may need its workers again.
        name == target
            || facts.status.current_revision.as_deref() == Some(name)
            || facts
                .versions
                .get(&BuildId::new(build))
                .is_some_and(|v| v.workers.is_some() || v.listed.is_some() || v.was_listed())
                && self.revision_of(facts, &BuildId::new(build)) == Some(name)
    }

    /// Deletes all revisions, at the end of the object's deletion.
    pub async fn forget_revisions(&self) -> Result<(), ClusterError> {
        for revision in self.revisions.values() {
            self.cluster.delete(Target::of(Kind::ControllerRevision, &revision.meta)).await?;
        }
        Ok(())
    }
}

/// True if all pods of a Deployment are of its template and available.
fn is_rolled_out(live: &ObservedObject) -> bool {
    let (object, count) = (&live.object, |value: &Value| value.as_i64().unwrap_or_default());
    let (status, replicas) = (&object["status"], count(&object["spec"]["replicas"]));
    count(&status["observedGeneration"]) >= live.meta.generation
        && count(&status["updatedReplicas"]) >= replicas
        && count(&status["availableReplicas"]) >= replicas
}

fn number(revision: &ObservedObject) -> Option<i64> {
    revision.object["revision"].as_i64()
}

/// The pools of the target, for rendering; that of `spec.template` is the first.
#[must_use]
pub fn target<'a>(facts: &'a Facts, revision: &'a str) -> Vec<Version<'a>> {
    let pools = facts.spec.pools.iter();
    let others = pools.map(|pool| (pool.name.as_str(), &pool.template, replicas(&facts.spec, &pool.name)));
    with_pools(version(facts, revision), others)
}

/// The pools of a version: its first one, and others by name, template and replicas.
fn with_pools<'a>(
    first: Version<'a>,
    others: impl Iterator<Item = (&'a str, &'a Value, Option<i32>)>,
) -> Vec<Version<'a>> {
    let others =
        others.map(|(name, template, replicas)| Version { pool: Some(name), template, replicas, ..first });
    let mut pools: Vec<Version<'_>> = std::iter::once(first).chain(others).collect();
    if pools.len() > 1 {
        pools[0].pool = Some("");
    }
    pools
}

/// The pool of `spec.template`.
fn version<'a>(facts: &'a Facts, revision: &'a str) -> Version<'a> {
    Version {
        owner: &facts.name,
        namespace: &facts.namespace,
        spec: &facts.spec,
        connection: &facts.connection,
        deployment: &facts.deployment,
        build: &facts.target.build,
        pool: None,
        replicas: replicas(&facts.spec, ""),
        template: &facts.spec.template,
        template_hash: &facts.target.template_hash,
        revision,
        restarted_at: facts.status.restarted_at.as_deref(),
        secrets: "",
    }
}
