//! The Deployments of versions and the ControllerRevisions that keep their templates: reads and writes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};
use windlass_core::api::made_up_names::without_made_up_names;
use windlass_core::api::names::{LABEL_MANAGED_BY, MANAGER};

use crate::api::names::{ANNOTATION_REVISION, LABEL_BUILD_ID, LABEL_WORKERS};
use crate::cluster::{Cluster, ClusterError, Kind};
use crate::planner::Facts;
use crate::planner::build::{deployment_names, revision_name};
use crate::port::BuildId;
use crate::render::{self, Version};

/// The generation at which each Deployment, by UID, was last found or made equal to its rendering. Avoids rewriting
/// the defaults that the API server adds to a template in each reconcile.
#[derive(Debug, Default)]
pub struct Compared(Mutex<BTreeMap<String, i64>>);

impl Compared {
    fn is(&self, live: &Value) -> bool {
        let (Some(uid), Some(generation)) = key(live) else { return false };
        self.0.lock().is_ok_and(|generations| generations.get(uid) == Some(&generation))
    }

    fn note(&self, live: &Value) {
        if let (Some(uid), Some(generation)) = key(live)
            && let Ok(mut generations) = self.0.lock()
        {
            if generations.len() > 10_000 {
                generations.clear();
            }
            generations.insert(uid.to_owned(), generation);
        }
    }
}

fn key(live: &Value) -> (Option<&str>, Option<i64>) {
    (live["metadata"]["uid"].as_str(), live["metadata"]["generation"].as_i64())
}

/// The Deployments and revisions of a WorkerDeployment.
pub struct Children {
    cluster: Cluster,
    /// The Deployments, by build ID.
    pub deployments: BTreeMap<BuildId, Value>,
    /// The revisions, by name.
    pub revisions: BTreeMap<String, Value>,
    compared: std::sync::Arc<Compared>,
}

impl Children {
    /// Lists them.
    pub async fn read(
        cluster: &Cluster,
        owner: &str,
        compared: std::sync::Arc<Compared>,
    ) -> Result<Self, ClusterError> {
        let deployments = cluster.list(Kind::Deployment, owner).await?;
        let revisions = cluster.list(Kind::Revision, owner).await?;
        let mut by_build: BTreeMap<BuildId, Value> = BTreeMap::new();
        for deployment in deployments {
            let Some(build) = deployment["metadata"]["labels"][LABEL_BUILD_ID].as_str() else { continue };
            // One Deployment per build ID: the older, if there are two.
            let older = by_build.get(&BuildId::new(build)).is_some_and(|generations| {
                generations["metadata"]["creationTimestamp"].as_str()
                    <= deployment["metadata"]["creationTimestamp"].as_str()
            });
            if !older {
                by_build.insert(BuildId::new(build), deployment);
            }
        }
        let named = |revision: Value| Some((revision["metadata"]["name"].as_str()?.to_owned(), revision));
        let revisions = revisions.into_iter().filter_map(named).collect();
        Ok(Self { cluster: cluster.clone(), deployments: by_build, revisions, compared })
    }

    /// The revision from which a version's Deployment can be recreated.
    #[must_use]
    pub fn revision_of(&self, facts: &Facts, build: &BuildId) -> Option<&str> {
        let annotated = self.deployments.get(build).and_then(|live| {
            live["metadata"]["annotations"][ANNOTATION_REVISION].as_str().map(str::to_owned)
        });
        let recorded = || {
            let records = &facts.status.versions;
            records.iter().find(|record| record.build_id == *build).and_then(|record| record.revision.clone())
        };
        let newest = || {
            let of = |revision: &&Value| revision["metadata"]["labels"][LABEL_BUILD_ID] == build.as_str();
            let newest = self.revisions.values().filter(of).max_by_key(|r| r["revision"].as_i64())?;
            newest["metadata"]["name"].as_str().map(str::to_owned)
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
        let newest = self.revisions.values().filter_map(|revision| revision["revision"].as_i64()).max();
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
                "templateHash": facts.target.template_hash,
                "buildID": facts.target.build.as_str(),
                "unsafeCustomBuildID": facts.spec.unsafe_custom_build_id,
            },
        });
        match self.cluster.create(Kind::Revision, &revision, false).await {
            Ok(()) | Err(ClusterError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the target's Deployment as a dry run: `Refused` and `Forbidden` have the API server's message.
    pub async fn try_target(&self, facts: &Facts) -> Result<(), ClusterError> {
        let revision = Self::target_revision(facts);
        let version = target(facts, &revision);
        let name = deployment_names(&facts.name, version.build).remove(0);
        let mut manifest = version.rendered().manifest(&version, &name);
        if let Some(meta) = manifest["metadata"].as_object_mut() {
            meta.remove("name");
            meta.insert("generateName".to_owned(), json!(format!("{}-", facts.name)));
        }
        let answer = self.cluster.create(Kind::Deployment, &manifest, true).await;
        // The message contains a generated name; it would differ each time, and each would be a new event.
        let named = |sentence: &str| without_made_up_names(sentence, &format!("{}-", facts.name));
        answer.map_err(|error| match error {
            ClusterError::Refused(sentence) => ClusterError::Refused(named(&sentence)),
            ClusterError::Forbidden(sentence) => ClusterError::Forbidden(named(&sentence)),
            error => error,
        })
    }

    /// Creates the target's Deployment, updates it in place, or scales it up again. True if it wrote something.
    pub async fn apply_target(&self, facts: &Facts) -> Result<bool, ClusterError> {
        self.keep_target(facts).await?;
        let revision = Self::target_revision(facts);
        self.apply(facts, &target(facts, &revision)).await
    }

    /// Makes a version's Deployment match its own template. True if it wrote something. Without its revision, its template
    /// is known only if it is the target's. `is_made`: true if a rollout has made the version from the target.
    pub async fn serve(&self, facts: &Facts, build: &BuildId, is_made: bool) -> Result<bool, ClusterError> {
        let Some(revision) = self.revision_of(facts, build) else {
            // Under a fixed build ID the target may be another template, which only a rollout may bring.
            let is_its_own = is_made || facts.is_at_target() || facts.spec.unsafe_custom_build_id.is_none();
            if *build == facts.target.build && is_its_own {
                return self.apply_target(facts).await;
            }
            return Ok(false);
        };
        let data = &self.revisions[revision]["data"];
        let version = Version {
            build,
            template: &data["template"],
            template_hash: data["templateHash"].as_str().unwrap_or_default(),
            revision,
            ..target(facts, revision)
        };
        self.apply(facts, &version).await
    }

    async fn apply(&self, facts: &Facts, version: &Version<'_>) -> Result<bool, ClusterError> {
        let rendered = version.rendered();
        let Some(live) = self.deployments.get(version.build) else {
            self.make(facts, version, &rendered).await?;
            return Ok(true);
        };
        if live["metadata"]["deletionTimestamp"].is_string() {
            return Ok(true);
        }
        // If Temporal cannot be found, the new connection may be why: a misspelled address, or another Temporal's,
        // would take the workers from every version.
        let is_found = facts.described().is_some();
        let mut ops = if is_found { rendered.differences(live, self.compared.is(live)) } else { Vec::new() };
        let replicas = facts.spec.replicas;
        let is_sunset = live["metadata"]["annotations"][crate::api::names::ANNOTATION_SUNSET].is_string();
        if is_sunset {
            let mut with = live.clone();
            if let Some(last) = ops.iter().rfind(|op| op["path"] == "/metadata/annotations") {
                with["metadata"]["annotations"] = last["value"].clone();
            }
            ops.extend(render::revive(&with, replicas));
        } else if let Some(wanted) = replicas
            && live["spec"]["replicas"].as_i64() != Some(i64::from(wanted))
        {
            ops.push(json!({"op": "add", "path": "/spec/replicas", "value": wanted}));
        }
        if ops.is_empty() {
            if is_found {
                self.compared.note(live);
            }
            return Ok(false);
        }
        let written = self.cluster.patch(Kind::Deployment, live, false, ops).await?;
        if is_found {
            self.compared.note(&written);
        }
        Ok(true)
    }

    async fn make(
        &self,
        facts: &Facts,
        version: &Version<'_>,
        rendered: &render::Rendered,
    ) -> Result<(), ClusterError> {
        let mut refusal = None;
        for name in deployment_names(&facts.name, version.build) {
            match self.cluster.create(Kind::Deployment, &rendered.manifest(version, &name), false).await {
                // The name is taken: by another object, or by our own of a moment ago, which the next reconcile finds
                // by its label.
                Err(ClusterError::Conflict(_)) => {
                    let existing = self.cluster.get(Kind::Deployment, &name).await?;
                    let labels =
                        existing.map(|existing| existing["metadata"]["labels"].clone()).unwrap_or_default();
                    if labels[LABEL_WORKERS] == facts.name.as_str()
                        && labels[LABEL_BUILD_ID] == version.build.as_str()
                    {
                        return Ok(());
                    }
                    refusal = Some(format!("Deployment {name} is there, and is not this WorkerDeployment's"));
                }
                made => return made,
            }
        }
        Err(ClusterError::Refused(refusal.unwrap_or_else(|| "no name is free".to_owned())))
    }

    /// Scales a version to zero.
    pub async fn scale_down(&self, build: &BuildId) -> Result<(), ClusterError> {
        let Some(live) = self.deployments.get(build) else { return Ok(()) };
        self.cluster.patch(Kind::Deployment, live, false, render::scale_down(live)).await.map(drop)
    }

    /// Deletes a version's Deployment.
    pub async fn delete(&self, build: &BuildId) -> Result<(), ClusterError> {
        let Some(live) = self.deployments.get(build) else { return Ok(()) };
        self.cluster.delete(Kind::Deployment, live).await
    }

    /// Deletes revisions that nothing refers to, except the newest `revisionHistoryLimit`.
    pub async fn prune(&self, facts: &Facts) -> Result<(), ClusterError> {
        let target = Self::target_revision(facts);
        let mut idle: Vec<&Value> =
            self.revisions.values().filter(|r| !self.is_needed(facts, r, &target)).collect();
        idle.sort_by_key(|revision| revision["revision"].as_i64());
        let surplus = idle.len().saturating_sub(facts.spec.revision_history_limit as usize);
        for revision in &idle[..surplus] {
            self.cluster.delete(Kind::Revision, revision).await?;
        }
        Ok(())
    }

    fn is_needed(&self, facts: &Facts, revision: &Value, target: &str) -> bool {
        let name = revision["metadata"]["name"].as_str().unwrap_or_default();
        let build = revision["metadata"]["labels"][LABEL_BUILD_ID].as_str().unwrap_or_default();
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
            self.cluster.delete(Kind::Revision, revision).await?;
        }
        Ok(())
    }
}

/// The target, for rendering.
#[must_use]
pub fn target<'a>(facts: &'a Facts, revision: &'a str) -> Version<'a> {
    Version {
        owner: &facts.name,
        namespace: &facts.namespace,
        spec: &facts.spec,
        deployment: &facts.deployment,
        build: &facts.target.build,
        template: &facts.spec.template,
        template_hash: &facts.target.template_hash,
        revision,
        restarted_at: facts.status.restarted_at.as_deref(),
    }
}
