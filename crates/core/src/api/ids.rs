//! Texts that look alike and must not be taken for one another. Each has a type of its own, so that a rollout hash can neither
//! be compared with a pod template hash nor be passed where one is wanted. None is empty: where there may be none, there is
//! an `Option`. As JSON each is the bare text.

use std::borrow::Borrow;
use std::fmt;

use serde::Serialize;

use super::names::{node_name, pod_name};

/// Types over a text that is not empty.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
        #[serde(transparent)]
        pub struct $name(Box<str>);

        impl $name {
            /// The one that is written down somewhere: in a field of an object, an annotation, a plan. An empty text is none.
            #[must_use]
            pub fn recorded(text: impl Into<String>) -> Option<Self> {
                let text = text.into();
                (!text.is_empty()).then(|| Self(text.into()))
            }

            /// Its text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        /// A map with such keys can be asked with a text that was read somewhere.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.into()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                *self.0 == *other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                *self.0 == **other
            }
        }

        /// Where there may be none: none is equal to no text.
        impl PartialEq<$name> for Option<$name> {
            fn eq(&self, other: &$name) -> bool {
                self.as_ref() == Some(other)
            }
        }

        #[cfg(any(test, feature = "test-fixtures"))]
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        #[cfg(any(test, feature = "test-fixtures"))]
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
    )*};
}

ids! {
    /// The hash of what should run on a node: of a rendered pod template. A node's `grantedHash` is one, and what its pod was
    /// observed at.
    PodTemplateHash;

    /// The hash of everything whose change is a new target of a fleet. Its revisions are called by it, and each node holds one.
    RolloutHash;

    /// The name of a fleet's ControllerRevision.
    RevisionName;

    /// The name of a StatefulNode, which its StatefulSet and its Service have too; its pod has another.
    NodeName;

    /// The ID of a plan, as an annotation or a status names it.
    PlanId;
}

impl NodeName {
    /// The one of the node with this ordinal in a set of a fleet.
    #[must_use]
    pub fn of(deployment: &str, set: &str, ordinal: i32) -> Self {
        Self(node_name(deployment, set, ordinal).into())
    }

    /// The name of its only pod.
    #[must_use]
    pub fn pod(&self) -> String {
        pod_name(&self.0)
    }
}

impl RevisionName {
    /// The one that is made of a fleet's name and a digest of what tells its revision from others.
    pub(crate) fn of(deployment: &str, digest: &str) -> Self {
        Self(format!("{deployment}-{digest}").into())
    }
}

impl RolloutHash {
    /// The one that was computed of a revision's content.
    pub(crate) fn computed(hash: String) -> Self {
        Self(hash.into())
    }

    /// What stands for one that was recorded and is lost: no revision has it.
    #[must_use]
    pub fn lost() -> Self {
        Self(Box::default())
    }

    /// The one of a field that every rollout has: one that is lost, where the field is empty.
    #[must_use]
    pub fn recorded_or_lost(text: impl Into<String>) -> Self {
        Self::recorded(text).unwrap_or_else(Self::lost)
    }
}

impl PodTemplateHash {
    /// The one that was computed of a rendered template.
    pub(crate) fn computed(hash: String) -> Self {
        Self(hash.into())
    }

    /// What stands for the hash that this one becomes under a restart, in a forecast. No template has it.
    #[must_use]
    pub fn assumed_under(&self, restart: &str) -> Self {
        Self(format!("{self} restarted {restart}").into())
    }
}
