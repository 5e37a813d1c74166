//! The Deployments of versions and the ControllerRevisions that keep their templates, as they are, and how they are changed.

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

/// What was compared of a Deployment, by its UID: the generation that our own write made, or that was found to be in order.
/// What the API server makes of a template is not written anew at each look.
#[derive(Debug, Default)]
pub struct Compared(Mutex<BTreeMap<String, i64>>);

impl Compared {
    fn is(&self, live: &Value) -> bool {
        let (Some(uid), Some(generation)) = key(live) else { return false };
        self.0.lock().is_ok_and(|known| known.get(uid) == Some(&generation))
    }

    fn note(&self, live: &Value) {
        if let (Some(uid), Some(generation)) = key(live)
            && let Ok(mut known) = self.0.lock()
        {
            if known.len() > 10_000 {
                known.clear();
            }
            known.insert(uid.to_owned(), generation);
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
    /// Reads them.
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
            // One build ID, one Deployment: the older one, if ever there are two.
            let older = by_build.get(&BuildId::new(build)).is_some_and(|known| {
                known["metadata"]["creationTimestamp"].as_str()
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

    /// The revision from which a version's Deployment can be made again.
    #[must_use]
    pub fn revision_of(&self, facts: &Facts, build: &BuildId) -> Option<&str> {
        let said = self.deployments.get(build).and_then(|live| {
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
        let name = said.or_else(recorded).filter(|name| self.revisions.contains_key(name)).or_else(newest)?;
        self.revisions.get_key_value(&name).map(|(name, _)| name.as_str())
    }

    /// The name of the wanted version's revision, whether it is kept by now or not.
    #[must_use]
    pub fn target_revision(facts: &Facts) -> String {
        revision_name(&facts.name, &facts.target.hash)
    }

    /// Keeps the wanted template.
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

    /// Whether the API server would take the wanted version's Deployment: else its sentence.
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
        answer.map_err(|error| match error {
            // The server names what it made up; a sentence that differs each time would be news each time.
            ClusterError::Refused(sentence) => {
                ClusterError::Refused(without_made_up_names(&sentence, &format!("{}-", facts.name)))
            }
            error => error,
        })
    }

    /// Makes the wanted version's Deployment, or updates it where it is, or gives it its pods back. Whether something had
    /// to be done.
    pub async fn apply_target(&self, facts: &Facts) -> Result<bool, ClusterError> {
        self.keep_target(facts).await?;
        let revision = Self::target_revision(facts);
        self.apply(facts, &target(facts, &revision)).await
    }

    /// Makes a version's Deployment what it should be by its own template. Whether something had to be done.
    pub async fn serve(&self, facts: &Facts, build: &BuildId) -> Result<bool, ClusterError> {
        let Some(revision) = self.revision_of(facts, build) else { return Ok(false) };
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
        // Where Temporal is not found, what would be written may be why: an address that is misspelt, or another Temporal's, would
        // take the workers from every version.
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
                // It is taken: by somebody else, or by our own of a moment ago, which the next look finds by its label.
                Err(ClusterError::Conflict(_)) => {
                    let there = self.cluster.get(Kind::Deployment, &name).await?;
                    let labels = there.map(|there| there["metadata"]["labels"].clone()).unwrap_or_default();
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

    /// Takes the pods of a version on which nothing runs.
    pub async fn scale_down(&self, build: &BuildId) -> Result<(), ClusterError> {
        let Some(live) = self.deployments.get(build) else { return Ok(()) };
        self.cluster.patch(Kind::Deployment, live, false, render::scale_down(live)).await.map(drop)
    }

    /// Deletes a version's Deployment.
    pub async fn delete(&self, build: &BuildId) -> Result<(), ClusterError> {
        let Some(live) = self.deployments.get(build) else { return Ok(()) };
        self.cluster.delete(Kind::Deployment, live).await
    }

    /// Deletes revisions that nothing refers to, beyond those that are kept for people.
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

    /// Deletes all revisions: of an object that goes with its versions.
    pub async fn forget_revisions(&self) -> Result<(), ClusterError> {
        for revision in self.revisions.values() {
            self.cluster.delete(Kind::Revision, revision).await?;
        }
        Ok(())
    }
}

/// The version that is wanted.
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
