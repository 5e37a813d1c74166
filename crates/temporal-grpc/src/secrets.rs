//! The interface for reading Secrets.

use std::collections::BTreeMap;

use async_trait::async_trait;

/// A Secret.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret {
    /// Unique per content of a Secret with this name: its UID and resourceVersion.
    pub version: String,
    /// Its decoded data.
    pub data: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for Secret {
    /// Does not print the data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret")
            .field("version", &self.version)
            .field("keys", &self.data.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// Reads Secrets.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// Reads a Secret; `None` if it does not exist. An error is a sentence.
    async fn read(&self, namespace: &str, name: &str) -> Result<Option<Secret>, String>;
}
