//! The object of a page: a fleet, or a StatefulSetRollout.

use windlass_kube_port::{Key, Kind};

/// What a page is about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PageKind {
    /// A NodeDeployment.
    Fleet,
    /// A StatefulSetRollout, whose nodes are pods.
    StatefulSets,
}

impl PageKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Fleet, Self::StatefulSets];

    /// The kind in the API.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Fleet => Kind::NodeDeployment,
            Self::StatefulSets => Kind::StatefulSetRollout,
        }
    }

    /// The short name of the command line.
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Fleet => "nd",
            Self::StatefulSets => "ssr",
        }
    }

    /// What it is called in a sentence.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::StatefulSets => "StatefulSetRollout",
        }
    }

    /// What its nodes are called in headings.
    #[must_use]
    pub fn nodes(self) -> &'static str {
        match self {
            Self::Fleet => "Nodes",
            Self::StatefulSets => "Pods",
        }
    }

    /// The first part of the paths of its pages.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Self::Fleet => "fleets",
            Self::StatefulSets => "rollouts",
        }
    }

    /// The path of an object's page.
    #[must_use]
    pub fn path(self, namespace: &str, name: &str) -> String {
        format!("/{}/{namespace}/{name}", self.folder())
    }
}

/// An object that has a page.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PageOf {
    /// What it is.
    pub kind: PageKind,
    /// Its namespace and name.
    pub key: Key,
}
