//! Typed names of things in Temporal.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps a name.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The name as text.
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
    /// The build ID of a version. Together with the deployment's name it identifies the version in Temporal.
    BuildId
}
name! {
    /// The identity of a client that writes to Temporal.
    Identity
}

/// An opaque token that a Describe returns and a write passes back: Temporal refuses the write if the deployment
/// changed in between.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConflictToken(Vec<u8>);

impl ConflictToken {
    /// Wraps the token's bytes, which only Temporal can interpret.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The token's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
