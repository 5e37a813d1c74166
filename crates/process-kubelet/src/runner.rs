//! One container of a pod, with who may stop it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Container;
use tokio::{sync::watch, time::Instant};

use crate::{context::Context, events::About, table::Role};

/// A container is to end, by then at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) by: Instant,
}

/// One container of a pod, with who may stop it.
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
            // Whoever could stop it is gone, and will have ended it.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn events(&self) -> About {
        let list = if self.role == Role::Main { "containers" } else { "initContainers" };
        self.context.events.container(list, &self.container.name)
    }
}
