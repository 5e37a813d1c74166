//! A container of a pod, and the channel that stops it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Container;
use tokio::{sync::watch, time::Instant};

use crate::{context::Context, events::About, table::Role};

/// A request to terminate the container by this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) by: Instant,
}

/// A container of a pod, and the channel that stops it.
pub(crate) struct Runner {
    pub(crate) context: Arc<Context>,
    pub(crate) index: usize,
    pub(crate) container: Container,
    pub(crate) role: Role,
    pub(crate) stop: watch::Receiver<Option<Stop>>,
}

impl Runner {
    pub(crate) async fn stopped(&self) {
        let mut stop = self.stop.clone();
        if stop.wait_for(Option::is_some).await.is_err() {
            // The sender is gone; it has terminated the container.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn events(&self) -> About {
        let list = if self.role == Role::Main { "containers" } else { "initContainers" };
        self.context.events.container(list, &self.container.name)
    }
}
