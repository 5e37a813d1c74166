//! What a report is made of: a fleet with its nodes and their pods, as far as the person who asks may read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::names::place_of;
use crate::cluster::View;
use crate::cluster::observed::{ObservedFleet, ObservedNode, ObservedPod};

/// A fleet and what belongs to it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The fleet.
    pub fleet: Arc<ObservedFleet>,
    /// Its nodes, by set and ordinal.
    pub nodes: Vec<Arc<ObservedNode>>,
    /// Their pods, by name.
    pub pods: BTreeMap<String, Arc<ObservedPod>>,
    /// What could not be read, each in a sentence.
    pub unread: Vec<String>,
}

impl Seen {
    /// A fleet as it is in a view. `unread` says what is not in the view, although it may exist.
    #[must_use]
    pub fn of(view: &View, fleet: &Arc<ObservedFleet>, unread: &[String]) -> Self {
        let meta = &fleet.meta;
        let mut nodes = view.nodes.group(&meta.namespace, &meta.uid);
        nodes.sort_by_cached_key(|node| {
            place_of(&meta.name, &node.meta.name).map(|(set, ordinal)| (set.to_owned(), ordinal))
        });
        let pods = view.pods.group(&meta.namespace, &meta.name);
        Self {
            fleet: fleet.clone(),
            nodes,
            pods: pods.into_iter().map(|pod| (pod.meta.name.clone(), pod)).collect(),
            unread: unread.to_vec(),
        }
    }

    /// A node's pod.
    #[must_use]
    pub fn pod(&self, node: &str) -> Option<&Arc<ObservedPod>> {
        self.pods.get(&format!("{node}-0"))
    }
}
