//! What this process has learned and need not ask again. Nothing here is needed for correctness: a process
//! that starts with an empty memory asks once more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::live_pods::LivePods;
use super::observed::{ObservedFleet, ObservedNode};
use super::remembered::Remembered;
use super::{Key, Kind};
use crate::api::{AtHook, BuildId, PodTemplateHash, RemovalId, RestartTime, RolloutHash, StatefulNodeSpec};
use crate::clock::monotonic;

/// What was found out about a StatefulSet's template at one generation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckedTemplate {
    /// The generation that was looked at.
    pub generation: i64,
    /// What it is.
    pub found: FoundTemplate,
}

/// What a template was found to be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FoundTemplate {
    /// What this version renders, with this pod template hash.
    Rendered(PodTemplateHash),
    /// Something else than what has this hash. It is compared again with another one.
    OtherThan(PodTemplateHash),
}

/// What a node's spec renders to, at one generation and under one restart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RenderedSpec {
    /// The generation of the spec.
    pub generation: i64,
    /// The restart that is obeyed.
    pub restart: Option<RestartTime>,
    /// What it renders to: one in memory for all nodes of one content.
    pub found: Arc<TemplateHashes>,
}

/// What a spec renders to: the pod template hash of the newest algorithm, those of earlier ones, and the main container's
/// image.
pub type TemplateHashes = ((PodTemplateHash, Vec<PodTemplateHash>), String);

/// How many fleets' pods are read at the same time. Such a read is a list that no cache of the API server answers, and of a
/// large fleet it is many megabytes, here as there.
const READS_AT_ONCE: usize = 4;

/// Whose turn it is to read.
#[derive(Debug)]
pub struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(READS_AT_ONCE))
    }
}

impl Turns {
    /// Waits for a turn, which lasts until what this answers with is dropped.
    pub async fn take(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.0.acquire().await.ok()
    }
}

/// What a fleet reads of the plan of one of its nodes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReadPlan {
    /// Whether it may replace the pod, and is active.
    pub rolling: bool,
    /// Whether the node leaves by it, and it is active.
    pub leaves: bool,
    /// The wish that the node leaves, where the plan waits for nothing but that.
    pub awaited_removal: Option<RemovalId>,
    /// The hook that it is at.
    pub at_hook: Option<Box<AtHook>>,
}

/// Progress of a node's plan that is not yet written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unsaved {
    /// Since when there is any.
    pub first: Instant,
    /// Since when the plan waits for what it waits for now.
    pub since: Instant,
    /// What that is, in a sentence.
    pub waits_for: String,
}

/// That a node has no pod although its StatefulSet should make one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoPod {
    /// Since when, on this process's clock.
    pub since: Instant,
    /// Since when, as far as is known; what was told before is of another pod.
    pub noticed: DateTime<Utc>,
    /// When it was last asked what has the pod's name.
    pub asked: Option<Instant>,
    /// What its StatefulSet's events say.
    pub why: Option<String>,
    /// What has the pod's name and is not the node's, in a sentence.
    pub taken: Option<String>,
}

/// Why a set of nodes that is to be made has no name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nameless {
    /// Why, in a sentence.
    pub sentence: String,
    /// When it was last asked which names are taken.
    pub asked: Instant,
    /// Since when that is not answered; `None` where it is.
    pub unanswered_since: Option<Instant>,
}

/// How many contents are remembered: two of a rollout, for a few fleets that roll at the same time.
const MAX_CONTENTS: usize = 16;

/// What was found of the content of specs, which is the same in thousands of nodes: of all but what is said to one node.
pub struct ByContent<V> {
    known: Mutex<VecDeque<(Arc<StatefulNodeSpec>, String, V)>>,
}

impl<V> Default for ByContent<V> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<V: Clone> ByContent<V> {
    /// What was found of this content with what is beside it, or is found now.
    pub fn of<E>(
        &self,
        spec: &Arc<StatefulNodeSpec>,
        beside: &str,
        find: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let is_of_content =
            |entry: &&(Arc<StatefulNodeSpec>, String, V)| entry.1 == beside && is_alike(&entry.0, spec);
        if let Some((_, _, found)) = self.known().iter().find(is_of_content) {
            return Ok(found.clone());
        }
        let found = find()?;
        let mut known = self.known();
        known.truncate(MAX_CONTENTS - 1);
        known.push_front((spec.clone(), beside.to_owned(), found.clone()));
        Ok(found)
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<(Arc<StatefulNodeSpec>, String, V)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether two specs are certainly of one content. Templates that are equal are one in memory.
fn is_alike(a: &StatefulNodeSpec, b: &StatefulNodeSpec) -> bool {
    let StatefulNodeSpec {
        image,
        main_container,
        pod_template,
        volume_claim_templates,
        volume_claim_retention,
        ports,
        service_annotations,
        sidecar,
        progress_deadline_seconds,
        // Said to one node.
        suspend: _,
        granted_hash: _,
        grant_id: _,
        halt_height: _,
        halt_task_id: _,
        watch_sidecar: _,
        removal_id: _,
    } = a;
    pod_template.is_same(&b.pod_template)
        && volume_claim_templates.is_same(&b.volume_claim_templates)
        && *image == b.image
        && *main_container == b.main_container
        && *sidecar == b.sidecar
        && *ports == b.ports
        && *service_annotations == b.service_annotations
        && *volume_claim_retention == b.volume_claim_retention
        && *progress_deadline_seconds == b.progress_deadline_seconds
}

/// How many revisions of a StatefulSet are remembered: each but the last was overtaken before a status was written.
const MAX_REVISIONS: usize = 4;

/// Nodes of a fleet about which nothing was to be done, or said.
pub struct Settled {
    /// The fleet as it was then.
    fleet: Arc<ObservedFleet>,
    /// What else that rests on.
    beside: String,
    /// The nodes as they were then, in the order of where they are in memory. As long as they are held nothing else is there.
    nodes: Vec<Arc<ObservedNode>>,
}

impl Settled {
    /// These nodes, under this fleet.
    #[must_use]
    pub fn new(fleet: Arc<ObservedFleet>, beside: String, mut nodes: Vec<Arc<ObservedNode>>) -> Self {
        nodes.sort_unstable_by_key(Arc::as_ptr);
        Self { fleet, beside, nodes }
    }

    /// Whether nothing that applies at once has become another since, of the fleet or of what is beside it.
    #[must_use]
    pub fn holds(&self, fleet: &ObservedFleet, beside: &str) -> bool {
        let (now, then) = (&fleet.status, &self.fleet.status);
        let same_spec =
            matches!((&fleet.spec, &self.fleet.spec), (Ok(now), Ok(then)) if Arc::ptr_eq(now, then));
        same_spec
            && self.beside == beside
            && now.rollout == then.rollout
            && now.plan == then.plan
            && now.retiring == then.retiring
            && now.deletion_policy == then.deletion_policy
            && now.volume_claim_retention == then.volume_claim_retention
    }

    /// Whether the node was among them, and is what it was.
    #[must_use]
    pub fn has(&self, node: &Arc<ObservedNode>) -> bool {
        self.nodes.binary_search_by_key(&Arc::as_ptr(node), Arc::as_ptr).is_ok()
    }
}

impl Memory {
    /// The key of an object in [`Memory::failures`].
    #[must_use]
    pub fn failure_key(kind: Kind, key: &Key) -> String {
        format!("{} {key}", kind.name())
    }

    /// Whether an object's status was last written no longer ago than this.
    #[must_use]
    pub fn was_saved_within(&self, uid: &str, time: Duration) -> bool {
        self.saved_at.get(uid).is_some_and(|at| monotonic().duration_since(at) < time)
    }

    /// Remembers the revision that a StatefulSet gives to pods of a template of ours. The ones before it stay known: the
    /// pod that comes may be of one of them.
    pub fn learn_revision(&self, set_uid: &str, revision: &str) {
        let mut known = self.revisions.get(set_uid).unwrap_or_default();
        if revision.is_empty() || known.last().is_some_and(|last| last == revision) {
            return;
        }
        known.retain(|other| other != revision);
        known.push(revision.to_owned());
        known.drain(..known.len().saturating_sub(MAX_REVISIONS));
        self.revisions.put(set_uid, known);
    }

    /// For how long the revision of this pod, which is asked about, has not been known.
    #[must_use]
    pub fn revision_unknown_for(&self, pod_uid: &str) -> Duration {
        let now = monotonic();
        let since = self.unknown_revisions.get(pod_uid).unwrap_or_else(|| {
            self.unknown_revisions.put(pod_uid, now);
            now
        });
        now.duration_since(since)
    }

    /// For how long a node has been seen to say that it is Ready since this time, which is ahead of our clock.
    #[must_use]
    pub fn ready_ahead_for(&self, node_uid: &str, since: DateTime<Utc>) -> Duration {
        let now = monotonic();
        let known = self.ready_ahead.get(node_uid).filter(|(of, _)| *of == since);
        let (_, seen_at) = known.unwrap_or_else(|| {
            self.ready_ahead.put(node_uid, (since, now));
            (since, now)
        });
        now.duration_since(seen_at)
    }

    /// Whether the last look at an object failed.
    #[must_use]
    pub fn has_failed(&self, kind: Kind, key: &Key) -> bool {
        self.failures.get(&Self::failure_key(kind, key)).is_some()
    }
}

/// What this process has learned.
#[derive(Default)]
pub struct Memory {
    /// By a StatefulSet's UID: what its template was found to be.
    pub templates: Remembered<str, CheckedTemplate>,
    /// By a StatefulSet's UID: the last revisions that it gave to pods of a template of ours before a write of ours that may
    /// have moved them, and that the node's status may not yet speak of; the oldest first.
    pub revisions: Remembered<str, Vec<String>>,
    /// By a pod's UID: since when it is there, says that it was made for what is wanted, and is of a revision that is not known.
    pub unknown_revisions: Remembered<str, Instant>,
    /// By an object's UID and a build ID: the generation, and the rollout hash of what its spec then held.
    pub spec_hashes: Remembered<(String, Option<BuildId>), (i64, RolloutHash)>,
    /// By a node's UID: the resourceVersion, and what its plan said then.
    pub plans: Remembered<str, (String, ReadPlan)>,
    /// By the content of a node's spec and a build ID: its rollout hashes, the newest first.
    pub rollout_hashes: ByContent<(RolloutHash, Vec<RolloutHash>)>,
    /// By the content of a node's spec and a restart: the pod template hashes, the newest first, and the main image.
    pub template_hashes: ByContent<Arc<TemplateHashes>>,
    /// By a node's UID: what its spec was last found to render to.
    pub rendered: Remembered<str, RenderedSpec>,
    /// By rollout hash and restart: the pod template hashes, the newest first, and the main image that it renders to.
    pub renderings: Remembered<(RolloutHash, Option<RestartTime>), TemplateHashes>,
    /// By pod template hash and claims: the server's verdict on a dry run, an error is its sentence, and
    /// when it was asked.
    pub verdicts: Remembered<str, (Instant, Result<(), String>)>,
    /// By the UID of a node or fleet, for a revision with its name: when the name of its Service, or of the revision,
    /// was found to belong to something else, and to what.
    pub foreign: Remembered<str, (Instant, String)>,
    /// By a node's UID and a kind: when the names of its objects of that kind were last found to be free.
    pub free: Remembered<(String, Kind), Instant>,
    /// By a node's UID and a claim's name: the node's generation, and when the claim was asked for that no watch shows.
    pub unseen_claims: Remembered<(String, String), (i64, Instant)>,
    /// By a node's UID: since when it says that it is Ready, which is ahead of our clock, and when that was first seen.
    pub ready_ahead: Remembered<str, (DateTime<Utc>, Instant)>,
    /// By a node's UID: that it has no pod, and why.
    pub no_pod: Remembered<str, NoPod>,
    /// By a node's UID: since when its status has something to say that is not yet written.
    pub unsaved_since: Remembered<str, Unsaved>,
    /// By an object's UID: when its status was last written.
    pub saved_at: Remembered<str, Instant>,
    /// By an object's key: how often in a row its reconcile failed.
    pub failures: Remembered<str, u32>,
    /// By a fleet's UID: the nodes that have all that applies at once, while that set serves.
    pub settled: Remembered<str, Arc<Settled>>,
    /// By a fleet's UID: the nodes whose claims are as its spec says, at that state of the claims.
    pub released: Remembered<str, Arc<Settled>>,
    /// By a fleet's UID: what the API server itself last said of its pods.
    pub live_pods: Remembered<str, Arc<LivePods>>,
    /// Whose turn it is to read them.
    pub turns: Turns,
    /// By a fleet's UID and target: when no name was found for its new set, and why.
    pub nameless: Remembered<(String, String), Nameless>,
    /// By cause: what an event was already due for, and whether it was sent.
    pub told: Remembered<str, bool>,
    /// By a fleet's UID: when as many plans of its nodes may be told of again as may be told of at once.
    pub plans_told: Remembered<str, Instant>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::convert::Infallible;

    use serde_json::{Value, json};

    use super::super::observed::Observed;
    use super::*;

    fn node(version: u32, spec: &Value) -> Arc<ObservedNode> {
        let metadata = json!({"name": "db-0", "uid": "u", "resourceVersion": version.to_string(), "generation": version});
        Arc::new(ObservedNode::read(&json!({"metadata": metadata, "spec": spec})))
    }

    #[test]
    fn what_was_found_of_a_content_is_known_of_all_that_have_it_and_of_no_other() {
        let spec = |image: &str, grant: &str| {
            let template = json!({"spec": {"containers": [{"name": "db", "image": "by content"}]}});
            node(1, &json!({"image": image, "grantID": grant, "podTemplate": template})).spec.clone().unwrap()
        };
        let known = ByContent::default();
        let of = |spec: &Arc<StatefulNodeSpec>, beside: &str, found: u32| {
            let Ok(found) = known.of(spec, beside, || Ok::<_, Infallible>(found));
            found
        };
        assert_eq!(of(&spec("db:1", "a"), "", 1), 1);
        assert_eq!(of(&spec("db:1", "b"), "", 2), 1, "what is said to one node is no content");
        assert_eq!(of(&spec("db:2", "a"), "", 3), 3);
        assert_eq!(of(&spec("db:1", "a"), "a restart", 4), 4);
        for image in 0..MAX_CONTENTS {
            of(&spec(&image.to_string(), ""), "", 5);
        }
        assert_eq!(
            (of(&spec("db:1", "a"), "", 6), known.known().len()),
            (6, MAX_CONTENTS),
            "it is forgotten"
        );
    }

    #[test]
    fn a_node_is_settled_as_long_as_it_and_its_fleet_are_what_they_were() {
        let fleet = |status: Value| {
            let spec = json!({"replicas": 1, "updateStrategy": {"type": "InPlace"},
                "template": {"spec": {"podTemplate": {"spec": {}}}}});
            ObservedFleet::read(&json!({"metadata": {"name": "db"}, "spec": spec, "status": status}))
        };
        let then = fleet(json!({"phase": "Running"}));
        assert_eq!(then.spec.as_ref().err(), None);
        let (known, changed) = (node(1, &json!({"podTemplate": {}})), node(1, &json!({"podTemplate": {}})));
        let settled = Settled::new(
            Arc::new(then.clone()),
            "first".to_owned(),
            vec![known.clone(), node(2, &json!({}))],
        );
        assert!(settled.has(&known) && !settled.has(&changed), "another object in memory is another state");
        let with = |status: Value| ObservedFleet { status: fleet(status).status, ..then.clone() };
        assert!(settled.holds(&with(json!({"phase": "Failed"})), "first"), "the phase applies to no node");
        assert!(!settled.holds(&then, "second"));
        assert!(!settled.holds(&with(json!({"deletionPolicy": "Retain"})), "first"));
        assert!(!settled.holds(&with(json!({"volumeClaimRetention": "Retain"})), "first"));
        assert!(
            !settled.holds(
                &with(json!({"retiring": [{"set": "first", "since": "2030-01-01T00:00:00Z"}]})),
                "first"
            )
        );
        assert!(!settled.holds(&with(json!({"rollout": {"entrantSet": "second"}})), "first"));
        assert!(!settled.holds(&fleet(json!({})), "first"), "a spec that was read anew may be another");
    }
}
