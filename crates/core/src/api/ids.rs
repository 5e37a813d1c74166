//! Texts that look alike and must not be taken for one another. Each has a type of its own, so that a rollout hash can neither
//! be compared with a pod template hash nor be passed where one is wanted. None is empty: where there may be none, there is
//! an `Option`. As JSON each is the bare text.

use std::borrow::{Borrow, Cow};

use serde::Serialize;

use crate::engine::PlanId;

/// Types over a text that is not empty: how each keeps it, and which one a test has where it does not matter.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($text:ty) = $any:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name($text);

        crate::engine::text_id!($name);

        /// A map with such keys can be asked with a text that was read somewhere.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        #[cfg(any(test, feature = "test-fixtures"))]
        impl Default for $name {
            fn default() -> Self {
                Self::from($any)
            }
        }

        #[cfg(any(test, feature = "test-fixtures"))]
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned().into())
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
    PodTemplateHash(Box<str>) = "";

    /// The hash of everything whose change is a new target of a fleet. Its revisions are called by it, and each node holds one.
    RolloutHash(Box<str>) = "";

    /// The name of a fleet's ControllerRevision.
    RevisionName(Box<str>) = "";

    /// The name of a StatefulNode, which its StatefulSet and its Service have too; its pod has another.
    NodeName(Box<str>) = "";

    /// The name of a set of a fleet's nodes. It is part of the names of its nodes, except for [the first](SetName::FIRST).
    SetName(Cow<'static, str>) = "first";

    /// A build ID that somebody chose (`unsafeCustomBuildID`). There is none where it is generated.
    BuildId(Box<str>) = "";

    /// When a restart was asked for, as it was written (RFC 3339). A pod template says which one it obeys.
    RestartTime(Box<str>) = "";

    /// The ID of a task, as a node's `haltTaskID` and its sidecar name it.
    TaskId(Box<str>) = "";

    /// The ID of a grant, as a node's `grantID` and `spentGrantID` hold it.
    GrantId(Box<str>) = "";

    /// The wish that a node leaves: its `removalID`.
    RemovalId(Box<str>) = "";
}

/// The text of a field that holds it: an empty one where there is none.
#[must_use]
pub fn field<T: AsRef<str>>(id: Option<&T>) -> &str {
    id.map_or("", AsRef::as_ref)
}

/// Who gives a grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GrantedBy<'a> {
    /// A plan of the fleet.
    Plan(&'a PlanId),
    /// An abort, which takes back what a plan granted.
    Abort,
}

/// What stands in a grant's ID in place of a plan's where an abort gave it.
const ABORT: &str = "abort";

impl GrantId {
    /// The ID of the grant that is given to a node of this generation.
    #[must_use]
    pub fn of(by: GrantedBy<'_>, generation: i64) -> Self {
        let by = match by {
            GrantedBy::Plan(plan) => plan.as_str(),
            GrantedBy::Abort => ABORT,
        };
        Self(format!("{by}-{generation}").into())
    }

    /// Whether an abort gave it.
    #[must_use]
    pub fn is_by_abort(&self) -> bool {
        self.0.strip_prefix(ABORT).is_some_and(|rest| rest.starts_with('-'))
    }

    /// One that no plan has given yet, in a forecast.
    pub(crate) fn assumed() -> Self {
        Self("granted".into())
    }
}

impl RemovalId {
    /// The wish that a node of this generation leaves. Another generation is another wish: a plan that was made for one that was
    /// taken back is not for this one.
    #[must_use]
    pub fn at(generation: i64) -> Self {
        Self(format!("remove-{generation}").into())
    }
}

impl SetName {
    /// The set that a fleet begins with. A status that names no active set means this one.
    pub const FIRST: Self = Self(Cow::Borrowed("first"));

    /// The set of these digits of a hash; of a name that is taken, the so many-th that was tried.
    pub(crate) fn numbered(digits: &str, number: usize) -> Self {
        Self(if number == 1 { digits.to_owned() } else { format!("{digits}-{number}") }.into())
    }
}

impl NodeName {
    /// The one that is composed of other names.
    pub(super) fn composed(name: String) -> Self {
        Self(name.into())
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
    pub fn assumed_under(&self, restart: &RestartTime) -> Self {
        Self(format!("{self} restarted {restart}").into())
    }
}
