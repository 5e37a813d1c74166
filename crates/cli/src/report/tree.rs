//! Selects which nodes of a fleet are listed and which are only counted, for terminal and page.

use super::fleet::serving;
use super::{FleetReport, Health, NodeReport, RolloutReport, Verdict, age, tag};
use windlass_core::api::FleetPhase;

/// The branches of a fleet's tree.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tree<'a> {
    /// The listed nodes.
    pub named: Vec<&'a NodeReport>,
    /// How many more are left out for lack of room.
    pub hidden: usize,
    /// Available nodes, counted by health and image tag; empty if all nodes are listed.
    pub groups: Vec<(Health, String, usize)>,
}

impl<'a> Tree<'a> {
    /// The branches of these nodes.
    pub fn of(nodes: &[&'a NodeReport], all: bool, rows: usize) -> Self {
        let is_named = |node: &&&NodeReport| all || node.health < Health::Before;
        let named: Vec<&NodeReport> = nodes.iter().filter(is_named).copied().collect();
        let groups = if all { Vec::new() } else { serving(nodes.iter().copied()) };
        let room = rows.saturating_sub(groups.len()).max(1);
        let hidden = if named.len() > room { named.len() - (room - 1) } else { 0 };
        let mut kept: Vec<usize> = (0..named.len()).collect();
        kept.sort_by_key(|index| named[*index].health);
        kept.truncate(named.len() - hidden);
        if all {
            // With all nodes listed, the order by name makes them easy to find.
            kept.sort_unstable();
        }
        Tree { named: kept.into_iter().map(|index| named[index]).collect(), hidden, groups }
    }
}

impl FleetReport {
    /// The branches in at most `rows` rows: the nodes that are not available, worst first if there are too many; or every
    /// node, if `all`.
    #[must_use]
    pub fn tree(&self, all: bool, rows: usize) -> Tree<'_> {
        Tree::of(&self.nodes.iter().collect::<Vec<_>>(), all, rows)
    }

    /// What the summary of a rollout does not say: paused, failed, terminating, stalled.
    #[must_use]
    pub fn qualifier(&self) -> Option<String> {
        self.rollout.as_ref()?;
        match self.phase.parse().ok() {
            Some(FleetPhase::Paused | FleetPhase::Failed | FleetPhase::Terminating) => {
                Some(self.phase.to_lowercase())
            }
            _ => (self.verdict == Verdict::Stalled).then(|| "stalled".to_owned()),
        }
    }

    /// The image that the active rollout replaces, if known: that of nodes without a pod.
    #[must_use]
    pub fn began_from(&self) -> &str {
        self.rollout.as_ref().map_or("", |rollout| rollout.from_image.as_str())
    }
}

impl FleetReport {
    /// A group of available nodes: `3 nodes available at 1.1`; with several sets, also whether they get traffic.
    #[must_use]
    pub fn group_words(&self, health: Health, tag: &str, count: usize) -> String {
        let words = group_words(tag, count);
        let of_group =
            self.nodes.iter().filter(|node| node.health == health && super::tag(&node.image) == tag);
        let mut sets: Vec<&str> = of_group.map(|node| node.set.as_str()).collect();
        sets.dedup();
        let has_others = self.nodes.windows(2).any(|pair| pair[0].set != pair[1].set);
        match sets.as_slice() {
            [set] if has_others && *set == self.traffic_set => {
                format!("{words}, with traffic")
            }
            [_] if has_others => format!("{words}, without traffic"),
            _ => words,
        }
    }
}

/// A group of available nodes: `3 nodes available at 1.1`.
#[must_use]
pub fn group_words(tag: &str, count: usize) -> String {
    counted("node", tag, count)
}

/// The same of pods of StatefulSets: `3 pods available at 5b7d9c8f6`.
#[must_use]
pub fn pods_words(revision: &str, count: usize) -> String {
    counted("pod", revision, count)
}

fn counted(noun: &str, runs: &str, count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    if runs.is_empty() {
        return format!("{count} {noun}{plural} available");
    }
    format!("{count} {noun}{plural} available at {runs}")
}

impl RolloutReport {
    /// `1.1 → 1.2`; if the tags are equal, the target and the cause.
    #[must_use]
    pub fn versions(&self) -> String {
        let (from, to) = (tag(&self.from_image), tag(&self.to_image));
        match (self.from_image.is_empty() || from == to, to.is_empty()) {
            (_, true) => self.cause.clone(),
            (true, false) => format!("{to}, {}", self.cause),
            (false, false) => format!("{from} → {to}"),
        }
    }

    /// The wave or, unless nodes are updated in place, the stage.
    #[must_use]
    pub fn place(&self) -> String {
        match self.wave {
            Some(wave) => format!("wave {} of {}", wave.number, wave.of),
            None => match self.domains_at_once {
                Some(1) => "one domain at a time".to_owned(),
                Some(most) => format!("{most} domains at a time"),
                None => format!("{:?}", self.stage),
            },
        }
    }

    /// Its age.
    #[must_use]
    pub fn elapsed(&self) -> String {
        age(chrono::TimeDelta::seconds(self.elapsed_seconds))
    }
}
