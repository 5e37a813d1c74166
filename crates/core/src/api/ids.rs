//! Types for IDs, hashes and names that look alike but must not be mixed up: a rollout hash can be neither compared
//! with a pod template hash nor passed in its place. The texts are not empty, except for [`RolloutHash::lost`]; an
//! `Option` stands for one that may be missing. In JSON each is a plain string.

use std::borrow::{Borrow, Cow};

use serde::Serialize;

use crate::engine::PlanId;

/// Declares such types: the inner type of each, and its default value in tests in which the value does not matter.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($text:ty) = $any:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name($text);

        crate::engine::text_id!($name);

        /// Allows looking up a map with these keys by a plain string.
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
    /// The hash of a rendered pod template. A node's `grantedHash` is one, and so is the hash that its pod was observed
    /// at.
    PodTemplateHash(Box<str>) = "";

    /// The hash of every input whose change starts a rollout of a fleet. It identifies the fleet's revisions, and the
    /// spec of each node is at one of them.
    RolloutHash(Box<str>) = "";

    /// The name of a fleet's ControllerRevision.
    RevisionName(Box<str>) = "";

    /// The name of a StatefulNode, and of its StatefulSet and Service. Its pod has another name.
    NodeName(Box<str>) = "";

    /// The name of a set of a fleet's nodes. It is part of the nodes' names, except for [the first
    /// set](SetName::FIRST).
    SetName(Cow<'static, str>) = "first";

    /// A build ID that a user chose (`unsafeCustomBuildID`). There is none if the build ID is generated.
    BuildId(Box<str>) = "";

    /// When a restart was requested, as the user wrote it (RFC 3339). A pod template records the restart that it
    /// includes.
    RestartTime(Box<str>) = "";

    /// The ID of a task, as in a node's `haltTaskID` and in its sidecar's answers.
    TaskId(Box<str>) = "";

    /// The ID of a grant, as in a node's `grantID` and `spentGrantID`.
    GrantId(Box<str>) = "";

    /// The ID of a request to remove a node: its `removalID`.
    RemovalId(Box<str>) = "";
}

/// The text of an optional ID for a field; empty for `None`.
#[must_use]
pub fn field<T: AsRef<str>>(id: Option<&T>) -> &str {
    id.map_or("", AsRef::as_ref)
}

/// Who issues a grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GrantedBy<'a> {
    /// A plan of the fleet.
    Plan(&'a PlanId),
    /// An abort, which reverts what a plan granted.
    Abort,
}

/// The first part of a grant's ID if an abort issued it; otherwise this is the plan's ID.
const ABORT: &str = "abort";

impl GrantId {
    /// The ID of a grant that is issued to a node of this generation.
    #[must_use]
    pub fn of(by: GrantedBy<'_>, generation: i64) -> Self {
        let by = match by {
            GrantedBy::Plan(plan) => plan.as_str(),
            GrantedBy::Abort => ABORT,
        };
        Self(format!("{by}-{generation}").into())
    }

    /// The generation of the node when it was issued; `None` if the ID was not issued by Windlass.
    fn generation(&self) -> Option<i64> {
        self.0.rsplit_once('-').and_then(|(_, generation)| generation.parse().ok())
    }

    /// The grant that applies to a node of this generation whose spec has `granted`. If `granted` is older than the
    /// last spent grant, an earlier spec was restored, and the spent grant applies. A spent grant with a generation
    /// that this node has not reached is from an earlier node of this name, and is ignored.
    #[must_use]
    pub fn in_force(granted: Option<Self>, spent: Option<&Self>, generation: i64) -> Option<Self> {
        let at = |id: Option<&Self>| id.and_then(Self::generation);
        match (at(granted.as_ref()), at(spent)) {
            (Some(issued), Some(last)) if issued < last && last < generation => spent.cloned(),
            _ => granted,
        }
    }

    /// True if an abort issued it.
    #[must_use]
    pub fn is_by_abort(&self) -> bool {
        self.0.strip_prefix(ABORT).is_some_and(|rest| rest.starts_with('-'))
    }

    /// A placeholder for a grant that no plan has issued yet, in a forecast.
    pub(crate) fn assumed() -> Self {
        Self("granted".into())
    }
}

impl RemovalId {
    /// The ID of a request to remove a node of this generation. Another generation gives another ID, so a plan for a
    /// cancelled request does not match a later request.
    #[must_use]
    pub fn at(generation: i64) -> Self {
        Self(format!("remove-{generation}").into())
    }
}

impl SetName {
    /// The first set of a fleet. If a status names no active set, this one is meant.
    pub const FIRST: Self = Self(Cow::Borrowed("first"));

    /// The set named after these digits of a hash. If that name is taken, the number of the try is appended.
    pub(crate) fn numbered(digits: &str, number: usize) -> Self {
        Self(if number == 1 { digits.to_owned() } else { format!("{digits}-{number}") }.into())
    }
}

impl NodeName {
    /// A name that is composed of other names.
    pub(super) fn composed(name: String) -> Self {
        Self(name.into())
    }
}

impl RevisionName {
    /// A name composed of a fleet's name and a digest that identifies the revision.
    pub(crate) fn of(deployment: &str, digest: &str) -> Self {
        Self(format!("{deployment}-{digest}").into())
    }
}

impl RolloutHash {
    /// A hash that was computed from a revision's content.
    pub(crate) fn computed(hash: String) -> Self {
        Self(hash.into())
    }

    /// A placeholder for a recorded hash that was lost: an empty text. No revision has it.
    #[must_use]
    pub fn lost() -> Self {
        Self(Box::default())
    }

    /// Reads a field that every rollout has; [`RolloutHash::lost`] if it is empty.
    #[must_use]
    pub fn recorded_or_lost(text: impl Into<String>) -> Self {
        Self::recorded(text).unwrap_or_else(Self::lost)
    }
}

impl PodTemplateHash {
    /// A hash that was computed from a rendered template.
    pub(crate) fn computed(hash: String) -> Self {
        Self(hash.into())
    }

    /// A placeholder for the hash of the same template after a restart, in a forecast. No template has it.
    #[must_use]
    pub fn assumed_under(&self, restart: &RestartTime) -> Self {
        Self(format!("{self} restarted {restart}").into())
    }
}

#[test]
fn previously_spent_grant_is_not_in_force_again() {
    let id = |text: &str| GrantId::recorded(text);
    let table = [
        ("2222222222-7", "1111111111-5", 8, "2222222222-7", "a new one"),
        ("1111111111-5", "1111111111-5", 6, "1111111111-5", "the spent one"),
        ("1111111111-5", "2222222222-7", 9, "2222222222-7", "an earlier one, restored"),
        ("abort-5", "2222222222-7", 9, "2222222222-7", "the one of an abort, restored"),
        ("1111111111-1", "2222222222-7", 2, "1111111111-1", "the status is that of an earlier node"),
        ("mine", "2222222222-7", 9, "mine", "a person's"),
        ("1111111111-5", "", 9, "1111111111-5", "nothing was spent, or that is lost"),
        ("", "2222222222-7", 9, "", "none"),
    ];
    for (granted, spent, generation, wanted, what) in table {
        let found = GrantId::in_force(id(granted), id(spent).as_ref(), generation);
        assert_eq!(found, id(wanted), "{what}");
    }
}
