//! What an object belongs to: the labels and owner references that are added to the rendered objects of a node or a
//! fleet. Selectors use only labels that never change.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::names::{
    GROUP, LABEL_DEPLOYMENT, LABEL_MANAGED_BY, LABEL_NODE, LABEL_ORDINAL, LABEL_SET, MANAGER, VERSION,
    place_of,
};
use crate::api::{DeletionPolicy, TemplateMeta};

/// A StatefulNode as the owner of its child objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeIdentity {
    /// The node's name, which its StatefulSet and its headless Service have as well.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// The fleet that it belongs to, if any.
    pub deployment: Option<String>,
    /// The set of nodes that it belongs to, if any.
    pub set: Option<String>,
    /// Labels and annotations that come from `template.metadata`, for the child objects and never for pods
    /// (see [`applied_metadata`](super::applied_metadata)).
    pub metadata: TemplateMeta,
}

impl NodeIdentity {
    /// Windlass's own labels for all objects of the node, except for its pod.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.place();
        labels.insert(LABEL_MANAGED_BY.to_owned(), MANAGER.to_owned());
        labels
    }

    /// Windlass's own labels for the node's pod, besides that of its revision.
    #[must_use]
    pub fn pod_labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.place();
        let ordinal = self.deployment.as_ref().and_then(|deployment| place_of(deployment, &self.name));
        if let Some((_, ordinal)) = ordinal {
            labels.insert(LABEL_ORDINAL.to_owned(), ordinal.to_string());
        }
        labels
    }

    /// The labels that name the node, its set and its fleet.
    fn place(&self) -> BTreeMap<String, String> {
        let Self { name: _, namespace: _, uid: _, deployment, set, metadata: _ } = self;
        let mut labels = self.selector();
        if let Some(deployment) = deployment {
            labels.insert(LABEL_DEPLOYMENT.to_owned(), deployment.clone());
        }
        if let Some(set) = set {
            labels.insert(LABEL_SET.to_owned(), set.clone());
        }
        labels
    }

    /// The labels that select the node's pod.
    #[must_use]
    pub fn selector(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(LABEL_NODE.to_owned(), self.name.clone())])
    }

    /// The reference from a child object to the node.
    #[must_use]
    pub fn owner_reference(&self) -> Value {
        owner_reference("StatefulNode", &self.name, &self.uid)
    }
}

/// A NodeDeployment as the owner of its child objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetIdentity {
    /// The fleet's name, which its Service has as well.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Determines whether its children outlive it.
    pub deletion_policy: DeletionPolicy,
}

impl FleetIdentity {
    /// Windlass's own labels for the objects of the fleet as a whole.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (LABEL_DEPLOYMENT.to_owned(), self.name.clone()),
            (LABEL_MANAGED_BY.to_owned(), MANAGER.to_owned()),
        ])
    }

    /// The owner references from a child object to the fleet; none if its children outlive it.
    #[must_use]
    pub fn owner_references(&self) -> Vec<Value> {
        match self.deletion_policy {
            DeletionPolicy::Delete => vec![owner_reference("NodeDeployment", &self.name, &self.uid)],
            DeletionPolicy::Retain => Vec::new(),
        }
    }
}

fn owner_reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
