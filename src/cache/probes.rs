//! Answers of the API server to requests that no watch covers, so that they are not sent in each reconcile. A process
//! that starts with an empty cache asks once more, and decides the same.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::live_pods::LivePods;
use super::remembered::Remembered;
use crate::api::PodTemplateHash;
use std::sync::Arc;
use windlass_kube_port::{Kind, PatchOp};

/// The result of a check of a StatefulSet's template, at one generation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckedTemplate {
    /// The generation that was checked.
    pub generation: i64,
    /// The result.
    pub found: FoundTemplate,
}

/// The result of a check of a template.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FoundTemplate {
    /// The template that this version renders, with this pod template hash.
    Rendered(PodTemplateHash),
    /// Not the template with this hash. It is checked again for another hash.
    OtherThan(PodTemplateHash),
}

/// How many fleets' pods are listed at the same time. The API server does not serve such a list from its cache, and
/// that of a large fleet takes many megabytes on both sides.
const READS_AT_ONCE: usize = 4;

/// Limits the number of concurrent lists.
#[derive(Debug)]
pub struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(READS_AT_ONCE))
    }
}

impl Turns {
    /// Waits for a permit, which is held until it is dropped.
    pub async fn take(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.0.acquire().await.ok()
    }
}

/// A node without a pod, although its StatefulSet should create one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoPod {
    /// When the object with the pod's name was last read.
    pub asked: Instant,
    /// The reason from the StatefulSet's events.
    pub why: Option<String>,
    /// The object that has the pod's name and is not the node's, in one sentence.
    pub taken: Option<String>,
}

/// A write to a child that admission changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Reverted {
    /// When it was written.
    pub at: Instant,
    /// The operations that would still be needed.
    pub ops: Vec<PatchOp>,
    /// For each operation, the label or annotation that the API server stored in its place.
    pub stored: Vec<Option<String>>,
    /// The fields that Windlass depends on and admission changed, in a sentence.
    pub message: Option<String>,
}

/// The answer to the question whether the API server stores for a rendered template what a StatefulSet has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SameTemplate {
    /// The hash of the rendered template.
    pub rendered: PodTemplateHash,
    /// The hash that the StatefulSet's template was written for.
    pub written: PodTemplateHash,
    /// True if it does.
    pub is_same: bool,
}

/// Whether an object exists that a template names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Existence {
    /// It does.
    Exists,
    /// It does not.
    Missing,
    /// There is no right to read it.
    Forbidden,
}

/// The last answer about an object that a template names.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// When it came.
    pub at: Instant,
    /// When the first of equal answers came.
    pub since: Instant,
    /// What it says.
    pub existence: Existence,
}

/// Why a new set of nodes has no name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamingFailure {
    /// The reason, in one sentence.
    pub sentence: String,
    /// When names were last listed.
    pub asked: Instant,
    /// True if lists have failed for a short time only.
    pub is_transient: bool,
}

/// The API server's answers.
#[derive(Default)]
pub struct ProbeCache {
    /// By StatefulSet UID: the result of the check of its template.
    pub templates: Remembered<str, CheckedTemplate>,
    /// By pod template hash and claims, or by generation of a fleet's hooks: when the API server was last asked by a
    /// dry run, and its verdict. The error is the reason, in one sentence.
    pub verdicts: Remembered<str, (Instant, Result<(), String>)>,
    /// By UID of a node or a fleet, with the revision's name for a revision: when the name of its Service, or of the
    /// revision, was found to belong to another object, and to which.
    pub foreign: Remembered<str, (Instant, String)>,
    /// By node UID and kind: when the names of its objects of that kind were last found to be free.
    pub free: Remembered<(String, Kind), Instant>,
    /// By node UID and claim name: the node's generation, and when a claim that no watch shows was last asked for.
    pub unseen_claims: Remembered<(String, String), (i64, Instant)>,
    /// By UID of a node without a grant: whether its template is only written otherwise than that of its StatefulSet.
    pub same_templates: Remembered<str, SameTemplate>,
    /// By UID of a node or a StatefulSet, or, for a Service, by that of its node or fleet and `/service`: the last
    /// write to
    /// it, if admission changed it.
    pub reverted: Remembered<str, Reverted>,
    /// By node UID: why its pod is missing.
    pub no_pod: Remembered<str, NoPod>,
    /// By fleet UID: the last list of its pods from the API server itself.
    pub live_pods: Remembered<str, Arc<LivePods>>,
    /// By fleet UID and target: why no name was found for its new set, and when.
    pub naming_failure: Remembered<(String, String), NamingFailure>,
    /// By kind, namespace and name: the last answer about an object that a template names.
    pub existence: Remembered<str, Asked>,
    /// Limits the concurrent lists of pods.
    pub turns: Turns,
}

impl ProbeCache {
    /// Removes what was asked about the object with this UID.
    pub fn forget(&self, uid: &str) {
        let Self {
            templates,
            // By content, which many objects share.
            verdicts: _,
            foreign,
            free,
            unseen_claims,
            same_templates,
            reverted,
            no_pod,
            live_pods,
            naming_failure,
            // By names of objects that many fleets share.
            existence: _,
            turns: _,
        } = self;
        templates.forget(uid);
        foreign.forget(uid);
        free.forget(uid);
        unseen_claims.forget(uid);
        same_templates.forget(uid);
        reverted.forget(uid);
        no_pod.forget(uid);
        live_pods.forget(uid);
        naming_failure.forget(uid);
    }

    /// The number of entries about objects, by the name of the map.
    #[cfg(test)]
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("templates", self.templates.size()),
            ("foreign", self.foreign.size()),
            ("free", self.free.size()),
            ("unseen_claims", self.unseen_claims.size()),
            ("same_templates", self.same_templates.size()),
            ("reverted", self.reverted.size()),
            ("no_pod", self.no_pod.size()),
            ("live_pods", self.live_pods.size()),
            ("naming_failure", self.naming_failure.size()),
        ]
    }
}
