//! What has to be done until a node's volume claims have the sizes in its spec. Pure.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use crate::api::names::claim_name;
use crate::observed::{ClaimCondition, ObservedClaim, ObservedPod, ObservedStatefulSet};
use crate::revision::is_smaller;

/// The condition of a claim whose volume has its new size, and whose file system does not.
const FILE_SYSTEM_PENDING: &str = "FileSystemResizePending";

/// The condition of a claim whose kubelet could not grow the file system. It remains while the kubelet tries again.
const NODE_ERROR: &str = "NodeResizeError";

/// The condition of a claim whose volume cannot grow.
const CONTROLLER_ERROR: &str = "ControllerResizeError";

/// How a driver says that it cannot grow a file system that is in use. The kubelet does not try again then, until a pod is
/// started.
const IN_USE: &str = "FailedPrecondition";

/// How long a kubelet may take to begin to grow the file system of a running pod. It looks at each pod every 60 to 90 seconds.
/// One before Kubernetes 1.32 does not say whether it tries, so only the time tells whether a new pod is needed.
const ONLINE: TimeDelta = TimeDelta::seconds(180);

/// The next step until a node's claims have the sizes in its spec.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Growth {
    /// There is none: they have.
    #[default]
    Done,
    /// A claim requests less.
    Due {
        /// Which one, in a sentence.
        why: String,
    },
    /// A volume is being expanded.
    Expanding {
        /// Which one, in a sentence.
        why: String,
        /// When the pod has to be replaced, unless the volume is expanded before.
        until: Option<DateTime<Utc>>,
    },
    /// A file system grows only when a pod is started.
    NeedsNewPod {
        /// Which one, in a sentence.
        why: String,
        /// The UID of the pod that has to go.
        pod_uid: String,
    },
    /// The claims have these sizes. The StatefulSet would create smaller ones.
    OldTemplate,
}

/// What the growth of a node's claims depends on.
pub struct GrowthInput<'a> {
    /// The node's name.
    pub node: &'a str,
    /// The sizes of those of its claims that grow, by the names of their templates.
    pub sizes: &'a BTreeMap<String, String>,
    /// Its StatefulSet.
    pub set: Option<&'a ObservedStatefulSet>,
    /// Its pod.
    pub pod: Option<&'a ObservedPod>,
    /// The time.
    pub now: DateTime<Utc>,
    /// Since when this process knows that the file system of a claim is to grow. It counts if the claim says no time.
    pub seen: &'a dyn Fn(&ObservedClaim) -> DateTime<Utc>,
    /// What an event said about a claim last: why its volume cannot grow.
    pub warning: &'a dyn Fn(&ObservedClaim) -> Option<String>,
}

impl Growth {
    /// The next step. `claim`: a claim by its name.
    #[must_use]
    pub fn of<C: AsRef<ObservedClaim>>(input: &GrowthInput<'_>, claim: impl Fn(&str) -> Option<C>) -> Self {
        let of_claim = |(template, size): (&String, &String)| {
            let found = claim(&claim_name(template, input.node))?;
            let found = found.as_ref();
            (!found.meta.terminating).then(|| of_claim(input, found, size))
        };
        let worst = input.sizes.iter().filter_map(of_claim).min_by_key(Self::rank).unwrap_or_default();
        let is_old = || {
            input.set.is_some_and(|set| {
                let of_set = |(template, size): (&String, &String)| {
                    set.claim_sizes.get(template).is_some_and(|of_set| is_smaller(of_set, size))
                };
                input.sizes.iter().any(of_set)
            })
        };
        if worst == Self::Done && is_old() { Self::OldTemplate } else { worst }
    }

    /// The lowest comes first. A pod that has to be replaced is, whatever other claims wait for.
    fn rank(&self) -> u8 {
        match self {
            Self::Due { .. } => 0,
            Self::NeedsNewPod { .. } => 1,
            Self::Expanding { .. } => 2,
            Self::OldTemplate => 3,
            Self::Done => 4,
        }
    }

    /// True if anything is left to do.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        *self != Self::Done
    }

    /// The pod that has to be replaced, if one has to be.
    #[must_use]
    pub fn pod_to_replace(&self) -> Option<&str> {
        match self {
            Self::NeedsNewPod { pod_uid, .. } => Some(pod_uid),
            Self::Done | Self::Due { .. } | Self::Expanding { .. } | Self::OldTemplate => None,
        }
    }

    /// What is left to do, in a sentence; empty if nothing is.
    #[must_use]
    pub fn sentence(&self) -> &str {
        match self {
            Self::Done => "",
            Self::Due { why } | Self::Expanding { why, .. } | Self::NeedsNewPod { why, .. } => why,
            Self::OldTemplate => "its StatefulSet has to be replaced, so that new claims have the new size",
        }
    }
}

fn of_claim(input: &GrowthInput<'_>, claim: &ObservedClaim, size: &str) -> Growth {
    let name = &claim.meta.name;
    let is_bound = !claim.capacity.is_empty();
    if is_bound && !is_smaller(&claim.capacity, size) {
        return Growth::Done;
    }
    let (from, claim_of) = (&claim.capacity, format!("PersistentVolumeClaim {name}"));
    if !is_bound {
        // It is created with the size in the StatefulSet, and cannot grow before it is bound.
        let why = format!("{claim_of} is not bound yet");
        let is_small = is_smaller(&claim.requested, size);
        return if is_small { Growth::Expanding { why, until: None } } else { Growth::Done };
    }
    let grows = format!("{claim_of} grows from {from} to {size}");
    if is_smaller(&claim.requested, size) {
        return Growth::Due { why: grows };
    }
    let expanding = |until| Growth::Expanding { why: format!("{grows}{}", says(input, claim)), until };
    let pending = claim.conditions.iter().find(|condition| condition.type_ == FILE_SYSTEM_PENDING);
    let attempt = Attempt::of(claim);
    let Some(pending) = pending.filter(|_| !matches!(attempt, Attempt::Active | Attempt::Failed)) else {
        return expanding(None);
    };
    let stamp = pending.last_transition_time.unwrap_or_else(|| (input.seen)(claim));
    // A time in the future was written before the clock was set back.
    let since = if stamp > input.now { (input.seen)(claim) } else { stamp };
    // A pod that was started later makes its kubelet grow the file system.
    let is_old = |pod: &&ObservedPod| {
        !pod.meta.terminating
            && !pod.machine.is_empty()
            && pod.meta.created_at.is_some_and(|created| created <= stamp)
    };
    let Some(pod) = input.pod.filter(is_old) else {
        return expanding(None);
    };
    let until = since + ONLINE;
    if input.now < until && attempt == Attempt::Unknown {
        return expanding(Some(until));
    }
    let why = format!("{grows}: pod {} has to be restarted to grow its file system", pod.meta.name);
    Growth::NeedsNewPod { why, pod_uid: pod.meta.uid.clone() }
}

/// What a claim says about the attempt to grow its file system.
#[derive(Eq, PartialEq)]
enum Attempt {
    /// Nothing.
    Unknown,
    /// The kubelet grows it now.
    Active,
    /// The driver cannot grow it while it is in use.
    InUse,
    /// It failed: a new pod might not start at all.
    Failed,
}

impl Attempt {
    fn of(claim: &ObservedClaim) -> Self {
        let error = |type_: &str| claim.conditions.iter().find(|condition| condition.type_ == type_);
        match (error(CONTROLLER_ERROR), error(NODE_ERROR)) {
            (None, None) if claim.grows_file_system => Self::Active,
            (None, None) => Self::Unknown,
            (None, Some(of_node)) if of_node.message.contains(IN_USE) => Self::InUse,
            _ => Self::Failed,
        }
    }
}

/// What the conditions of a claim, and the last event about it, say.
fn says(input: &GrowthInput<'_>, claim: &ObservedClaim) -> String {
    let of = |condition: &ClaimCondition| match condition.message.trim().trim_end_matches('.') {
        "" => condition.type_.clone(),
        message => format!("{}: {message}", condition.type_),
    };
    let said: Vec<String> = claim.conditions.iter().map(of).chain((input.warning)(claim)).collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join("; ")) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observed::Meta;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(10_000 + second, 0).unwrap()
    }

    fn claim(requested: &str, capacity: &str) -> ObservedClaim {
        ObservedClaim {
            meta: Meta { name: "data-db-0".to_owned(), ..Meta::default() },
            requested: requested.into(),
            capacity: capacity.into(),
            ..ObservedClaim::default()
        }
    }

    fn with(mut claim: ObservedClaim, type_: &str, since: Option<i64>) -> ObservedClaim {
        let (type_, message) = (type_.to_owned(), String::new());
        claim.conditions.push(ClaimCondition { type_, message, last_transition_time: since.map(at) });
        claim
    }

    /// A kubelet has tried to grow the file system, and the driver answered with this code.
    fn tried(mut claim: ObservedClaim, code: &str) -> ObservedClaim {
        claim = with(claim, NODE_ERROR, Some(20));
        claim.conditions.last_mut().unwrap().message =
            format!("failed to expand pvc with rpc error: code = {code}");
        claim.grows_file_system = true;
        claim
    }

    fn pod(created: i64) -> ObservedPod {
        let meta = Meta {
            name: "db-0-0".to_owned(),
            uid: "pod".to_owned(),
            created_at: Some(at(created)),
            ..Meta::default()
        };
        ObservedPod { meta, machine: "m".to_owned(), ..ObservedPod::default() }
    }

    fn set(size: &str) -> ObservedStatefulSet {
        ObservedStatefulSet {
            claim_sizes: [("data".to_owned(), size.to_owned())].into(),
            ..ObservedStatefulSet::default()
        }
    }

    fn growth(
        claim: Option<ObservedClaim>,
        set: Option<&ObservedStatefulSet>,
        pod: Option<&ObservedPod>,
        now: i64,
    ) -> Growth {
        let sizes = BTreeMap::from([("data".to_owned(), "2Gi".to_owned())]);
        let warning = |claim: &ObservedClaim| {
            (&*claim.storage_class == "never").then(|| "VolumeResizeFailed: no".to_owned())
        };
        let seen = |_: &ObservedClaim| at(5);
        let (warning, seen) = (&warning, &seen);
        let input = GrowthInput { node: "db-0", sizes: &sizes, set, pod, now: at(now), seen, warning };
        let claim = claim.map(Arc::new);
        Growth::of(&input, |_| claim.clone())
    }

    #[test]
    fn claims_grow_step_by_step() {
        let (small, large) = (set("1Gi"), set("2048Mi"));
        let why = "PersistentVolumeClaim data-db-0 grows from 1Gi to 2Gi";
        let expanding = |more: &str| Growth::Expanding { why: format!("{why}{more}"), until: None };
        let unbound = Growth::Expanding {
            why: "PersistentVolumeClaim data-db-0 is not bound yet".to_owned(),
            until: None,
        };
        let resizing = with(claim("2Gi", "1Gi"), "Resizing", None);
        let failing = ObservedClaim { storage_class: "never".into(), ..resizing.clone() };
        let table = [
            ("no claim, old template", None, &small, Growth::OldTemplate),
            ("no claim", None, &large, Growth::Done),
            ("not bound", Some(claim("1Gi", "")), &small, unbound),
            ("not bound, of the new size", Some(claim("2Gi", "")), &large, Growth::Done),
            ("not requested", Some(claim("1Gi", "1Gi")), &small, Growth::Due { why: why.to_owned() }),
            ("requested", Some(claim("2Gi", "1Gi")), &small, expanding("")),
            ("the driver works", Some(resizing), &small, expanding(" (Resizing)")),
            ("it cannot", Some(failing), &small, expanding(" (Resizing; VolumeResizeFailed: no)")),
            ("expanded", Some(claim("2Gi", "2Gi")), &small, Growth::OldTemplate),
            ("done", Some(claim("2Gi", "2Gi")), &large, Growth::Done),
            ("grown further by hand", Some(claim("5Gi", "5Gi")), &large, Growth::Done),
        ];
        for (case, claim, set, expected) in table {
            assert_eq!(growth(claim, Some(set), Some(&pod(0)), 1_000), expected, "{case}");
        }
    }

    #[test]
    fn pod_is_replaced_only_if_its_file_system_does_not_grow_while_it_runs() {
        let pending = |since| with(claim("2Gi", "1Gi"), FILE_SYSTEM_PENDING, since);
        let of = |claim, pod: Option<&ObservedPod>, now| growth(Some(claim), None, pod, now);
        let until = |growth: Growth| match growth {
            Growth::Expanding { until, .. } => until,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            until(of(pending(Some(10)), Some(&pod(0)), 99)),
            Some(at(10) + ONLINE),
            "its kubelet has time"
        );
        let late = of(pending(Some(10)), Some(&pod(0)), 1_000);
        assert_eq!(late.pod_to_replace(), Some("pod"));
        assert_eq!(of(pending(None), Some(&pod(0)), 1_000), late, "the claim says no time");
        assert_eq!(until(of(pending(Some(10)), Some(&pod(11)), 1_000)), None, "started since");
        assert_eq!(until(of(pending(Some(10)), None, 1_000)), None, "there is no pod");
        assert_eq!(of(pending(Some(5_000)), Some(&pod(0)), 1_000), late, "the clock was set back");
        let begun = ObservedClaim { grows_file_system: true, ..pending(Some(10)) };
        assert_eq!(until(of(begun, Some(&pod(0)), 10_000)), None, "a large file system takes long");
        let failing = tried(pending(Some(10)), "Internal desc = resize2fs");
        assert_eq!(until(of(failing, Some(&pod(0)), 1_000)), None, "its driver fails");
        let in_use = tried(pending(Some(10)), "FailedPrecondition desc = the volume is mounted");
        assert_eq!(of(in_use.clone(), Some(&pod(0)), 21).pod_to_replace(), Some("pod"), "it is in use");
        assert_eq!(until(of(in_use, Some(&pod(11)), 1_000)), None, "it was started since");
        let other = with(pending(Some(10)), "ModifyVolumeError", Some(10));
        assert_eq!(of(other, Some(&pod(0)), 1_000).pod_to_replace(), Some("pod"), "about another change");
        let unplaced = ObservedPod { machine: String::new(), ..pod(0) };
        assert_eq!(until(of(pending(Some(10)), Some(&unplaced), 1_000)), None, "it is not scheduled");
        let leaving = ObservedPod { meta: Meta { terminating: true, ..pod(0).meta }, ..pod(0) };
        assert_eq!(until(of(pending(Some(10)), Some(&leaving), 1_000)), None, "it goes already");
    }
}
