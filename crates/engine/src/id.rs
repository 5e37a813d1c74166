//! The IDs of plans and tasks, and the deterministic jitter that is derived from them.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::seed::PlanSeed;

/// The common implementation of ID types: tuple structs around a non-empty `Box<str>` or `Cow<'static, str>`.
#[doc(hidden)]
#[macro_export]
macro_rules! text_id {
    ($name:ident) => {
        impl $name {
            /// Reads an ID from where it is recorded: a field of an object, an annotation, a plan. `None` if the text
            /// is empty.
            #[must_use]
            pub fn recorded(text: impl Into<String>) -> Option<Self> {
                let text = text.into();
                (!text.is_empty()).then(|| Self(text.into()))
            }

            /// The ID as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
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

        /// Compares an optional ID. `None` equals no ID.
        impl PartialEq<$name> for Option<$name> {
            fn eq(&self, other: &$name) -> bool {
                self.as_ref() == Some(other)
            }
        }
    };
}

/// A plan's ID: 10 hex digits, unique for each object. An ID that was read from a status may be any text, since a
/// person may have edited it.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct PlanId(Box<str>);

text_id!(PlanId);

impl From<&str> for PlanId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for PlanId {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&PlanId> for String {
    fn from(id: &PlanId) -> Self {
        id.0.as_ref().into()
    }
}

/// The ID of a new plan, derived from everything that distinguishes it from other plans of its object.
pub(super) fn plan_id(recipe: &str, seed: &PlanSeed<'_>) -> PlanId {
    let start = seed.now.to_rfc3339_opts(SecondsFormat::Micros, true);
    let attempt = seed.attempt.to_string();
    let digest = digest(&[seed.uid, recipe, seed.target_hash, &start, &attempt, seed.disambiguator]);
    PlanId(format!("{:010x}", digest >> 24).into())
}

/// The ID for a plan whose own ID was lost. It depends on the time, so a plan whose ID is lost later gets another one.
#[must_use]
pub fn lost_plan_id(uid: &str, now: DateTime<Utc>) -> PlanId {
    plan_id("", &PlanSeed { uid, target_hash: "", now, attempt: 0, disambiguator: "lost" })
}

/// True if a text has the form of a plan's ID.
#[must_use]
pub fn is_plan_id(text: &str) -> bool {
    text.len() == 10 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// A task's ID: the plan's, `-`, and the task's index.
#[must_use]
pub fn task_id(plan_id: &PlanId, index: usize) -> String {
    format!("{plan_id}-{index}")
}

/// A pseudo-random number below `bound`, always the same for the same key and turn.
pub(super) fn jitter(key: &str, turn: u32, bound: u64) -> u64 {
    digest(&[key, &turn.to_string()]).checked_rem(bound).unwrap_or(0)
}

/// The first 64 bits of the SHA-256 of some fields. Each is prefixed with its length, so that no two lists of fields
/// hash the same bytes.
fn digest(fields: &[&str]) -> u64 {
    let mut hasher = Sha256::new();
    for field in fields {
        hasher.update((field.len() as u64).to_be_bytes());
        hasher.update(field);
    }
    hasher.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_id_format_is_recognised() {
        let now = DateTime::from_timestamp(1_900_000_000, 0).unwrap_or_default();
        let lost = lost_plan_id("uid", now);
        assert!(is_plan_id(lost.as_str()), "{lost}");
        assert_ne!(lost, lost_plan_id("other", now));
        assert_ne!(lost, lost_plan_id("uid", now + chrono::TimeDelta::seconds(1)));
        for id in ["0123456789", "abcdef0000"] {
            assert!(is_plan_id(id), "{id}");
        }
        for text in ["", "012345678", "0123456789a", "012345678g", "ABCDEF0000", "nonsense", "0123-56789"] {
            assert!(!is_plan_id(text), "{text}");
        }
    }
}
