//! Where credentials are read.

use std::collections::BTreeMap;

use async_trait::async_trait;

/// A Secret as it was read.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secret {
    /// Another one for each content that a Secret of this name ever had: its UID and resourceVersion.
    pub version: String,
    /// What is in it.
    pub data: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for Secret {
    /// Without what nobody may read in a log.
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
    /// A Secret, or none if there is none of this name. The error is a sentence: it may not be read, or the API server does
    /// not answer.
    async fn read(&self, namespace: &str, name: &str) -> Result<Option<Secret>, String>;
}
