//! The facts about one node, and what follows from them: what its pod was observed to run, and what its grant allows.

use chrono::{DateTime, Utc};

use crate::api::{BuiltFor, GrantId, PodMove, PodTemplateHash, Problem, RemovalId};
use crate::planner::growth::Growth;
use crate::planner::waits::Wait;

/// Which pod template a StatefulSet was observed to hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Template {
    /// The rendered template with this hash, untouched since Windlass wrote it.
    At(PodTemplateHash),
    /// Something else: edited manually, or created by something else.
    Unknown,
}

/// A node's StatefulSet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LiveStatefulSet {
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// What is known about its template.
    pub template: Template,
    /// True if the StatefulSet controller has observed its latest generation.
    pub observed: bool,
    /// How many pods it is to have.
    pub replicas: i64,
    /// The revision that its next pod will have.
    pub update_revision: String,
    /// The revisions of templates that Windlass is known to have written. The annotations of a pod at one of them are
    /// trusted.
    pub known_revisions: Vec<String>,
    /// What its pods are created for, by the template's annotations.
    pub made_for: Option<BuiltFor>,
    /// A digest of its template.
    pub template_digest: String,
    /// The image of the main container in its template, whoever set it.
    pub main_image: String,
}

/// The StatefulSet of a node, if it exists.
#[allow(clippy::large_enum_variant, reason = "one is created per reconcile of a node, and none is stored")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StatefulSetFact {
    /// There is no StatefulSet with its name.
    Missing,
    /// A StatefulSet with its name is being deleted: it belonged to an earlier node.
    Leaving,
    /// It exists.
    Live(LiveStatefulSet),
}

/// A node's pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodFacts {
    /// Its UID.
    pub uid: String,
    /// Its revision: the label `controller-revision-hash`.
    pub revision: String,
    /// True if it belongs to the node's StatefulSet.
    pub owned: bool,
    /// True if it is being deleted.
    pub terminating: bool,
    /// True if its condition Ready is `True`.
    pub ready: bool,
    /// Since when it is Ready.
    pub ready_since: Option<DateTime<Utc>>,
    /// Since when it is not Ready.
    pub unready_since: Option<DateTime<Utc>>,
    /// True if its main container runs.
    pub running: bool,
    /// What it was created for, by its annotations.
    pub made_for: Option<BuiltFor>,
    /// The image of its main container in its spec, whoever set it.
    pub main_image: String,
    /// True if its sidecar runs and is not ready.
    pub sidecar_unready: bool,
    /// Why it is not ready.
    pub problem: Option<Problem>,
    /// The time that it may still take to end, or to become Ready.
    pub wait: Option<Wait>,
    /// True if the problem cannot resolve itself soon: image pull, crash loop, unschedulable.
    pub cannot_run: bool,
    /// True if it is the main container that has this problem, or the whole pod.
    pub main_cannot_run: bool,
    /// True if its main container was never started, as far as its status says.
    pub never_started: bool,
}

impl PodFacts {
    /// True if its main container runs now, so that it may do its work, Ready or not. In a crash loop of its own it is
    /// running for a moment at every try, but does not count.
    #[must_use]
    pub fn main_container_runs(&self) -> bool {
        self.ready || (self.running && !self.main_cannot_run)
    }
}

/// What a node runs, as it was observed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Running {
    /// The pod template hash.
    pub hash: Option<PodTemplateHash>,
    /// The main container's image.
    pub image: String,
    /// The UID of the pod.
    pub pod_uid: Option<String>,
}

/// What this version of Windlass renders from the node's spec.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RenderedTarget {
    /// The pod template hash.
    pub hash: PodTemplateHash,
    /// The main container's image.
    pub image: String,
}

/// The facts that every decision about a node is based on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeFacts {
    /// What its spec renders to. The error is a sentence about the spec.
    pub wanted: Result<RenderedTarget, String>,
    /// `spec.grantedHash`; `None` if the node updates without a grant.
    pub granted_hash: Option<PodTemplateHash>,
    /// `spec.grantID`.
    pub grant_id: Option<GrantId>,
    /// `status.spentGrantID`.
    pub spent_grant_id: Option<GrantId>,
    /// Its StatefulSet.
    pub set: StatefulSetFact,
    /// Its pod.
    pub pod: Option<PodFacts>,
    /// Why the API server rejects its pod, in the server's words, if there is no pod for that reason.
    pub refused: Option<String>,
    /// Which deletion has to complete before its pod can be created, in a sentence, if it has no pod for that reason.
    pub awaits: Option<String>,
    /// What it ran when its status was last written.
    pub previous: Running,
    /// True if it is being deleted.
    pub terminating: bool,
    /// True if it is to be scaled to 0. See [`NodeFacts::is_suspended`].
    pub suspended: bool,
    /// `spec.removalID`: the request that it leaves; `None` if it stays.
    pub removal_id: Option<RemovalId>,
    /// `spec.move`: the pod that is to be replaced although its template is right.
    pub move_: Option<PodMove>,
    /// What is left to do until its claims have the sizes in its spec.
    pub growth: Growth,
}

impl NodeFacts {
    /// The hash that the node may run: the granted one, or, without a grant, what its spec renders to.
    #[must_use]
    pub fn grant(&self) -> Option<&PodTemplateHash> {
        let wanted = || self.wanted.as_ref().ok().map(|w| &w.hash);
        self.granted_hash.as_ref().or_else(wanted)
    }

    /// True if the node has already converged to the grant once, so that no pod whose main container runs may be taken
    /// down for it. A node is created without a grant ID: that grant counts as spent.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.granted_hash.is_some() && self.grant_id == self.spent_grant_id
    }

    /// True if this version of Windlass renders what was granted.
    #[must_use]
    pub fn can_render(&self) -> bool {
        self.wanted.as_ref().is_ok_and(|w| Some(&w.hash) == self.grant())
    }

    /// The StatefulSet, if it exists.
    #[must_use]
    pub fn live(&self) -> Option<&LiveStatefulSet> {
        match &self.set {
            StatefulSetFact::Live(set) => Some(set),
            StatefulSetFact::Missing | StatefulSetFact::Leaving => None,
        }
    }

    /// True if the StatefulSet's template is the granted one.
    #[must_use]
    pub fn template_is_granted(&self) -> bool {
        let (Some(set), Some(grant)) = (self.live(), self.grant()) else { return false };
        matches!(&set.template, Template::At(hash) if hash == grant)
    }

    /// The pod, if it exists and is not being deleted.
    #[must_use]
    pub fn staying_pod(&self) -> Option<&PodFacts> {
        self.pod.as_ref().filter(|p| !p.terminating)
    }

    /// True if the pod is at the revision that the StatefulSet controller gives to new pods, and the controller has
    /// observed the latest template.
    #[must_use]
    pub fn is_at_update_revision(&self, pod: &PodFacts) -> bool {
        self.live().is_some_and(|set| {
            set.observed && !set.update_revision.is_empty() && pod.revision == set.update_revision
        })
    }

    /// The pod template hash that a pod was created for, if that is known. A pod may match although it is not at the
    /// StatefulSet's update revision: that changes by itself when admission adds to the template or Kubernetes is
    /// upgraded. The pod's annotations count only at a revision that Windlass is known to have written, since a
    /// template that somebody else edited keeps them.
    #[must_use]
    pub fn pod_hash<'a>(&'a self, pod: &'a PodFacts) -> Option<&'a PodTemplateHash> {
        if self.is_at_update_revision(pod)
            && let Some(LiveStatefulSet { template: Template::At(hash), .. }) = self.live()
        {
            return Some(hash);
        }
        if let Some(hash) = self.previous.hash.as_ref().filter(|_| self.was_observed_on(pod)) {
            return Some(hash);
        }
        let is_known = self.live().is_some_and(|set| {
            // A controller may report no revisions at all.
            let reports_none =
                set.observed && set.update_revision.is_empty() && set.template != Template::Unknown;
            set.known_revisions.contains(&pod.revision) || reports_none
        });
        pod.made_for.as_ref().filter(|_| is_known).map(|made_for| &made_for.hash)
    }

    /// True if what the node ran when its status was last written was observed on this pod.
    fn was_observed_on(&self, pod: &PodFacts) -> bool {
        self.previous.pod_uid.as_ref() == Some(&pod.uid)
    }

    /// True if a pod was created for what was granted.
    #[must_use]
    pub fn is_at_grant(&self, pod: &PodFacts) -> bool {
        self.grant().is_some_and(|grant| self.pod_hash(pod) == Some(grant))
    }

    /// True if a pod has annotations for what was granted, but its revision is not known. Either somebody has edited
    /// the template that it was created from, or the revision changed just before it was created and no status contains
    /// it yet.
    #[must_use]
    pub fn is_of_an_unknown_revision(&self, pod: &PodFacts) -> bool {
        let says = pod.made_for.as_ref().map(|made_for| &made_for.hash);
        self.pod_hash(pod).is_none() && says.is_some() && says == self.grant()
    }

    /// True if a pod was created for what the StatefulSet's template is.
    #[must_use]
    pub fn is_at_template(&self, pod: &PodFacts) -> bool {
        let template = self.live().map(|set| &set.template);
        matches!(template, Some(Template::At(hash)) if self.pod_hash(pod) == Some(hash))
    }

    /// The image of the main container in the template with this hash, if it is known: from the node's spec, from the
    /// annotations of a template or pod, or from what was observed before.
    fn image_of<'a>(&'a self, hash: &PodTemplateHash, made_for: Option<&'a BuiltFor>) -> Option<&'a str> {
        let rendered = self.wanted.as_ref().ok().filter(|wanted| wanted.hash == *hash);
        let made_for = made_for.filter(|made_for| made_for.hash == *hash);
        let before = || (self.previous.hash == *hash).then_some(self.previous.image.as_str());
        rendered
            .map(|wanted| wanted.image.as_str())
            .or_else(|| made_for.map(|made_for| made_for.image.as_str()))
            .or_else(before)
    }

    /// The image that was specified for a pod, before admission changed it. If nothing is known about the pod, this is
    /// the image in its spec.
    #[must_use]
    pub fn pod_image<'a>(&'a self, pod: &'a PodFacts) -> &'a str {
        let asked = self.pod_hash(pod).and_then(|hash| self.image_of(hash, pod.made_for.as_ref()));
        asked.unwrap_or(&pod.main_image)
    }

    /// The image that was specified for the StatefulSet's template, before admission changed it. If nothing is known
    /// about the template, this is the image in it.
    #[must_use]
    pub fn template_image<'a>(&'a self, set: &'a LiveStatefulSet) -> &'a str {
        let asked = match &set.template {
            Template::At(hash) => self.image_of(hash, set.made_for.as_ref()),
            Template::Unknown => None,
        };
        asked.unwrap_or(&set.main_image)
    }

    /// True if the node serves. A new pod counts only once its StatefulSet's status is observed, since only then is it
    /// known what the pod runs: a node that serves without a known hash would count as drifted.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let seen = self.live().is_some_and(|set| set.observed);
        self.staying_pod().is_some_and(|p| p.ready && (seen || self.was_observed_on(p)))
    }

    /// True if its main container runs now, whatever the other containers of its pod do.
    #[must_use]
    pub fn main_container_runs(&self) -> bool {
        self.staying_pod().is_some_and(PodFacts::main_container_runs)
    }

    /// True if its main container runs although the node is not Ready. A new pod counts only once its StatefulSet's
    /// status is observed, for the same reason as in [`Self::is_ready`].
    #[must_use]
    pub fn runs_unready(&self) -> bool {
        let seen = self.live().is_some_and(|set| set.observed);
        let counts = |p: &PodFacts| p.main_container_runs() && (seen || self.was_observed_on(p));
        !self.is_ready() && self.staying_pod().is_some_and(counts)
    }

    /// What the node runs now, for `currentImage` and `podTemplateHash`. It is observed on the pod, never taken from a
    /// spec.
    #[must_use]
    pub fn running(&self) -> Running {
        let observed = self.live().is_some_and(|set| set.observed);
        if let Some(pod) = self.staying_pod().filter(|p| p.running && observed)
            && let Some(hash) = self.pod_hash(pod)
        {
            let image = self.pod_image(pod).to_owned();
            return Running { hash: Some(hash.clone()), image, pod_uid: Some(pod.uid.clone()) };
        }
        let previous = &self.previous;
        if previous.pod_uid.is_none() {
            return Running::default();
        }
        if self.staying_pod().is_some_and(|p| self.was_observed_on(p)) {
            return previous.clone();
        }
        // Its pod was deleted. The value stays valid as long as the next pod can only be the same.
        let same_template = self.live().is_some_and(|set| {
            set.observed && matches!(&set.template, Template::At(hash) if previous.hash == *hash)
        });
        let no_other_pod = self.pod.as_ref().is_none_or(|p| self.pod_hash(p) == previous.hash.as_ref());
        if same_template && no_other_pod { previous.clone() } else { Running::default() }
    }

    /// True if the template or the pod differs from what was granted, and the grant allows a plan.
    #[must_use]
    pub fn needs_roll(&self) -> bool {
        if self.terminating || self.suspended || self.grant().is_none() {
            return false;
        }
        let set = match &self.set {
            StatefulSetFact::Missing => return true,
            StatefulSetFact::Leaving => return false,
            StatefulSetFact::Live(set) => set,
        };
        let pod_differs = set.observed && self.staying_pod().is_some_and(|p| !self.is_at_grant(p));
        if self.template_is_granted() && !pod_differs {
            return false;
        }
        !self.is_kept_by_grant()
    }

    /// True if the pod is to be moved to another machine, and would be created again from the granted template.
    #[must_use]
    pub fn needs_move(&self) -> bool {
        !self.terminating
            && !self.suspended
            && self.template_is_granted()
            && self.staying_pod().is_some_and(|pod| self.is_to_be_moved(pod))
    }

    /// A node without a grant belongs to no fleet, whose wave would have to have room.
    fn is_to_be_moved(&self, pod: &PodFacts) -> bool {
        let by_itself = self.granted_hash.is_none() && self.growth.pod_to_replace() == Some(&pod.uid);
        by_itself || self.move_.as_ref().is_some_and(|asked| asked.pod_uid == pod.uid)
    }

    /// True if the request to replace its pod names the machine that the pod has to leave.
    #[must_use]
    pub fn leaves_its_machine(&self) -> bool {
        self.move_.as_ref().is_some_and(|asked| !asked.node_name.is_empty())
    }

    /// True if its claims, or the claims in its StatefulSet, do not have the sizes in its spec.
    #[must_use]
    pub fn needs_growth(&self) -> bool {
        !self.terminating && !self.suspended && self.growth.is_pending()
    }

    /// True if a pod was created for what was granted, and stays on its machine.
    #[must_use]
    pub fn is_in_place(&self, pod: &PodFacts) -> bool {
        self.is_at_grant(pod) && !self.is_to_be_moved(pod)
    }

    /// True if the pod stays although it is not at the grant, or the template is not and this version of Windlass cannot
    /// restore it. A plan could only wait. Several waiting nodes would all be in flight, and each would keep the others
    /// from the new grant that they wait for.
    ///
    /// A spent grant keeps a pod whose main container runs, Ready or not. An abort's unspent grant keeps every pod whose
    /// main container runs or may yet run: an abort takes down nothing, and the pod may have been replaced after what the
    /// abort was decided on. The fleet then grants what this pod runs.
    #[must_use]
    pub fn is_kept_by_grant(&self) -> bool {
        let Some(pod) = self.staying_pod() else { return false };
        let runs = self.pod_hash(pod);
        let is_other = runs != self.grant();
        let beyond_us = || !self.template_is_granted() && !self.can_render();
        if self.is_spent() {
            return pod.main_container_runs() && (is_other || beyond_us());
        }
        let is_by_abort = self.grant_id.as_ref().is_some_and(GrantId::is_by_abort);
        is_by_abort && runs.is_some() && is_other && !pod.main_cannot_run
    }

    /// True if the template is at the grant and observed, and the pod is at the grant and Ready.
    #[must_use]
    pub fn is_converged(&self) -> bool {
        self.template_is_granted()
            && self.live().is_some_and(|set| set.observed)
            && self.staying_pod().is_some_and(|p| p.ready && self.is_at_grant(p))
    }

    /// True if the pod runs while its sidecar keeps it out of service.
    #[must_use]
    pub fn needs_mark(&self) -> bool {
        !self.terminating
            && !self.suspended
            && self.staying_pod().is_some_and(|p| p.running && p.sidecar_unready)
    }

    /// True if the node is to be suspended and is: it has no pod, and its StatefulSet makes none.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        let makes_one = self.live().is_some_and(|set| set.replicas != 0);
        self.suspended && self.pod.is_none() && !makes_one
    }

    /// Why the node cannot run what was granted, in a sentence; `None` if nothing is known to prevent it.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if self.set == StatefulSetFact::Missing && self.grant().is_some() && !self.can_render() {
            return Some(
                "its StatefulSet does not exist, and this version of Windlass renders a different template from the \
                 granted one; the node needs a new grant"
                    .to_owned(),
            );
        }
        if let (None, Some(why), true) = (&self.pod, &self.refused, self.template_is_granted()) {
            return Some(format!("the API server rejects its pod: {why}"));
        }
        let pod = self.staying_pod().filter(|p| p.cannot_run)?;
        let at_grant = self.grant().is_some() && self.pod_hash(pod) == self.grant();
        at_grant.then(|| match &pod.problem {
            Some(problem) => format!("{}: {}", problem.reason, problem.message),
            None => "its pod cannot run".to_owned(),
        })
    }
}
