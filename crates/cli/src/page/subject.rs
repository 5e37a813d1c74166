//! The object of a page: a fleet, a StatefulSetRollout, or an object of an extension.

use crate::extension::{PAGED, Paged, STATEFUL_SETS};
use crate::target::Kind;
use windlass_kube_port::Key;

/// What a page is about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PageKind {
    /// A NodeDeployment.
    Fleet,
    /// A StatefulSetRollout, whose nodes are pods.
    StatefulSets,
    /// A kind of an extension, shown as a sheet.
    Sheet(&'static dyn Paged),
}

impl PageKind {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Fleet, Self::StatefulSets].into_iter().chain(PAGED.iter().copied().map(Self::Sheet))
    }

    /// The kind on the command line.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Fleet => Kind::Fleet,
            Self::StatefulSets => Kind::Other(STATEFUL_SETS),
            Self::Sheet(paged) => Kind::Other(paged),
        }
    }

    /// The short name of the command line.
    #[must_use]
    pub fn short(self) -> &'static str {
        self.kind().short()
    }

    /// What it is called in a sentence.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::StatefulSets | Self::Sheet(_) => self.kind().name(),
        }
    }

    /// What its nodes are called in headings.
    #[must_use]
    pub fn nodes(self) -> &'static str {
        match self {
            Self::Fleet => "Nodes",
            Self::StatefulSets | Self::Sheet(_) => "Pods",
        }
    }

    /// The first part of the paths of its pages.
    #[must_use]
    pub fn folder(self) -> String {
        match self {
            Self::Fleet => "fleets".to_owned(),
            Self::StatefulSets => "rollouts".to_owned(),
            Self::Sheet(paged) => format!("{}s", paged.name().to_lowercase()),
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
