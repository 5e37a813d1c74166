//! Where nodes may be unavailable at the same time. Without a topology a fleet is one domain, and `maxUnavailable` is the
//! only limit. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use chrono::{DateTime, Utc};

use super::child::ChildFacts;
use super::facts::FleetFacts;
use crate::api::conditions::{self, TOPOLOGY_KNOWN, Truth};
use crate::api::{IntOrString, LastNodes, NodeDeploymentStatus, Reason, Topology};
use crate::engine::sentence::some_of;
use crate::observed::ObservedPod;

/// The failure domain of a node.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Domain {
    /// The whole fleet, since it has no topology.
    #[default]
    Fleet,
    /// The value of the label.
    Named(String),
    /// The node with this ordinal alone: its pod is not on a machine yet, and where the last one was is not known.
    Unplaced(i32),
    /// The node with this ordinal alone: neither its pod nor, as far as is known, its machine has the label.
    Unlabelled(i32),
}

impl Domain {
    /// The value of the label, if it is known.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::Fleet | Self::Unplaced(_) | Self::Unlabelled(_) => None,
        }
    }
}

/// When a node is updated, by `order`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// In the order of ordinals.
    #[default]
    Any,
    /// After all others.
    Last,
    /// It is not known yet: its sidecar is about to be asked.
    Unknown,
}

impl Order {
    /// When a node is updated, by the labels of its pod.
    #[must_use]
    pub fn by_labels(last: &LastNodes, pod: Option<&ObservedPod>) -> Self {
        let has_all = |pod: &ObservedPod| {
            last.pod_labels.iter().all(|(key, value)| pod.meta.label(key) == Some(value.as_str()))
        };
        if !last.pod_labels.is_empty() && pod.is_some_and(has_all) { Self::Last } else { Self::Any }
    }

    /// When a node is updated, by the role that its sidecar reports. One whose role is not known may be the one that is updated last.
    #[must_use]
    pub fn by_role(last: &LastNodes, role: Option<&str>) -> Self {
        if role.is_none_or(|role| role == last.sidecar) { Self::Last } else { Self::Any }
    }
}

/// Counts of nodes that are out of service in some sense, by domain.
pub(super) struct ByDomain<C> {
    /// Domains without such nodes may be missing.
    counts: BTreeMap<Domain, C>,
    /// How many nodes a domain has. Empty if nothing depends on that.
    sizes: BTreeMap<Domain, i32>,
}

impl<C: Default + PartialEq + AddAssign> ByDomain<C> {
    /// Adds up by domain: `of` for each node, `missing` for each missing node, whose domain is not known, and `ending` for each pod
    /// that ends although its node was removed.
    pub(super) fn count(
        facts: &FleetFacts,
        of: impl Fn(&ChildFacts) -> C,
        missing: impl Fn() -> C,
        ending: impl Fn() -> C,
    ) -> Self {
        let mut by = Self { counts: BTreeMap::new(), sizes: BTreeMap::new() };
        let has_share =
            facts.spec.topology.as_ref().is_some_and(|topology| topology.max_unavailable.is_some());
        let mut add = |domain: &Domain, count: C| {
            by.add(domain, count);
            if has_share {
                *by.sizes.entry(domain.clone()).or_default() += 1;
            }
        };
        for child in &facts.children {
            add(&child.domain, of(child));
        }
        for ordinal in facts.missing() {
            add(&facts.domain_of_missing(ordinal), missing());
        }
        for (nth, name) in (1..).zip(&facts.shutting_down) {
            let known = facts.ending_domains.get(name).cloned();
            add(&known.unwrap_or_else(|| facts.domain_of_missing(-nth)), ending());
        }
        by
    }

    /// How many nodes of all domains are.
    pub(super) fn total(&self, count: impl Fn(&C) -> i32) -> i32 {
        self.counts.values().map(count).sum()
    }

    /// Adds to the counts of a domain.
    pub(super) fn add(&mut self, domain: &Domain, count: C) {
        if count != C::default() {
            *self.counts.entry(domain.clone()).or_default() += count;
        }
    }

    /// True if one more node of the child's domain may be unavailable. `count`: how many nodes of a domain are. `own`: how
    /// often the child itself is among those.
    pub(super) fn has_room(
        &self,
        facts: &FleetFacts,
        child: &ChildFacts,
        count: impl Fn(&C) -> i32,
        own: i32,
    ) -> bool {
        let (mut total, mut within, mut domains) = (-own, -own, 0);
        for (domain, counts) in &self.counts {
            let found = count(counts);
            total += found;
            if *domain == child.domain {
                within += found;
            } else {
                domains += i32::from(found > 0);
            }
        }
        let Some(topology) = &facts.spec.topology else { return total < facts.spec.max_unavailable };
        let in_domain = match self.share_of(topology, &child.domain) {
            Some(most) => within < most,
            None => total < facts.spec.max_unavailable,
        };
        in_domain && domains < topology.max_unavailable_domains
    }

    /// How many nodes of a domain may be unavailable; `None` if the number of the fleet applies: the topology has none, or so few
    /// domains that all of them may have unavailable nodes, and with them the whole fleet.
    fn share_of(&self, topology: &Topology, domain: &Domain) -> Option<i32> {
        let share = topology.max_unavailable.as_ref()?;
        let known = self.sizes.keys().filter(|domain| domain.name().is_some()).count();
        let nodes = self.sizes.get(domain).copied().unwrap_or_default();
        separates(topology, known).then(|| match share {
            IntOrString::Int(most) => (*most).max(1),
            IntOrString::String(text) => {
                let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i32>().ok());
                percent.map_or(1, |percent| nodes.saturating_mul(percent) / 100).max(1)
            }
        })
    }
}

/// How many nodes may be unavailable at once, in words.
#[must_use]
pub fn limit_at_once(topology: Option<&Topology>, max_unavailable: i32) -> String {
    let share = topology.and_then(|topology| topology.max_unavailable.as_ref());
    format!("{} unavailable at once", limit_words(topology, share, max_unavailable))
}

/// `share`: how many nodes of a domain; without it, the number of the fleet applies.
fn limit_words(topology: Option<&Topology>, share: Option<&IntOrString>, max_unavailable: i32) -> String {
    let Some(topology) = topology else { return format!("at most {max_unavailable}") };
    let most = topology.max_unavailable_domains;
    let s = if most == 1 { "" } else { "s" };
    let domains = format!("{most} domain{s} of {}", topology.key);
    match share {
        None => format!("at most {max_unavailable} in at most {domains}"),
        Some(IntOrString::Int(number)) => format!("at most {number} in each of at most {domains}"),
        Some(IntOrString::String(percent)) => format!("at most {percent} of the nodes of at most {domains}"),
    }
}

/// True if a topology with so many known domains limits what may be unavailable: all of them may not have unavailable nodes.
fn separates(topology: &Topology, domains: usize) -> bool {
    i32::try_from(domains).is_ok_and(|domains| domains > topology.max_unavailable_domains)
}

impl FleetFacts {
    /// The domain of a node without a pod.
    #[must_use]
    pub fn domain_of_missing(&self, ordinal: i32) -> Domain {
        if self.spec.topology.is_some() { Domain::Unplaced(ordinal) } else { Domain::Fleet }
    }

    /// How much of the wave is used, in words.
    #[must_use]
    pub fn used_room(&self) -> String {
        let mut domains: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for child in self.children.iter().filter(|child| child.counts_as_disrupted()) {
            let domain = match &child.domain {
                Domain::Fleet => continue,
                Domain::Named(name) => name,
                Domain::Unplaced(_) | Domain::Unlabelled(_) => "no known domain",
            };
            domains.entry(domain).or_default().push(child.name.as_str());
        }
        let domains: Vec<String> =
            domains.iter().map(|(domain, names)| format!("{domain}: {}", some_of(names))).collect();
        self.limit(usize::try_from(self.disrupted()).unwrap_or_default(), &domains.join("; "))
    }

    /// How many nodes are disrupted, of how many that may be, in words. `which`: their names.
    pub(super) fn limit(&self, disrupted: usize, which: &str) -> String {
        let which = if which.is_empty() { String::new() } else { format!(" ({which})") };
        let are = if disrupted == 1 { "node is" } else { "nodes are" };
        match self.spec.topology {
            None => {
                format!("{disrupted} of at most {} nodes are disrupted{which}", self.spec.max_unavailable)
            }
            Some(_) => format!("{disrupted} {are} disrupted{which}; {} may be", self.limit_words()),
        }
    }

    fn limit_words(&self) -> String {
        let topology = self.spec.topology.as_ref().filter(|_| self.wanted().next().is_some());
        let domains: BTreeSet<&str> = self.children.iter().filter_map(|child| child.domain.name()).collect();
        let share = topology.filter(|topology| separates(topology, domains.len()));
        limit_words(
            topology,
            share.and_then(|topology| topology.max_unavailable.as_ref()),
            self.spec.max_unavailable,
        )
    }

    /// How many nodes may be unavailable at once, in words.
    #[must_use]
    pub fn limit_at_once(&self) -> String {
        format!("{} unavailable at once", self.limit_words())
    }

    /// The domains in which nodes have moved to the target already. One of them is finished before the next is begun.
    pub(super) fn begun_domains(&self, is_moved: impl Fn(&ChildFacts) -> bool) -> BTreeSet<Domain> {
        if self.spec.topology.is_none() {
            return BTreeSet::new();
        }
        self.wanted().filter(|child| is_moved(child)).map(|child| child.domain.clone()).collect()
    }
}

/// Updates the condition, which a fleet has only while the domains of some nodes are not known. `reads_machines`: whether the
/// labels of machines are known.
pub(super) fn report(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    (generation, reads_machines, now): (i64, bool, DateTime<Utc>),
) {
    let unlabelled = facts.wanted().filter(|child| matches!(child.domain, Domain::Unlabelled(_)));
    let unlabelled: Vec<&str> = unlabelled.map(|child| child.name.as_str()).collect();
    let conditions = &mut status.conditions;
    let Some(topology) = facts.spec.topology.as_ref().filter(|_| !unlabelled.is_empty()) else {
        conditions.retain(|condition| condition.type_ != TOPOLOGY_KNOWN);
        return;
    };
    let machines = if reads_machines {
        "neither have their machines: correct topology.key, or add the label"
    } else {
        "and the operator does not read the labels of machines: run it with --topology-from-nodes, or correct topology.key"
    };
    let message = format!(
        "the pods of {} have no label {}, {machines}. Until then each of these nodes counts as a domain of its own",
        some_of(&unlabelled),
        topology.key
    );
    conditions::set(
        conditions,
        TOPOLOGY_KNOWN,
        Truth::False,
        Reason::LabelMissing,
        &message,
        generation,
        now,
    );
}
