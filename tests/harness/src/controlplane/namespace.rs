//! A namespace for one test.

use std::{fmt, ops::Deref};

use k8s_openapi::api::core::v1::Namespace as Object;
use kube::{Api, Client, api::DeleteParams};
use tokio::runtime::Handle;

/// A namespace that is deleted, without waiting for it, when this is dropped.
pub struct Namespace {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) background: Handle,
}

impl Deref for Namespace {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let (client, name) = (self.client.clone(), self.name.clone());
        self.background.spawn(async move {
            let _ = Api::<Object>::all(client).delete(&name, &DeleteParams::default()).await;
        });
    }
}
