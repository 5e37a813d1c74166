//! The names that Temporal knows things by.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// This name.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
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
    };
}

name! {
    /// The name of a worker deployment in Temporal.
    DeploymentName
}
name! {
    /// The build ID of a version: with the deployment's name it is all that Temporal knows a version by.
    BuildId
}
name! {
    /// Who changes something in Temporal.
    Identity
}

/// What a Describe hands out and a write brings back: the write is refused if something else was changed between.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConflictToken(Vec<u8>);

impl ConflictToken {
    /// A token of these bytes, which only Temporal can read.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
