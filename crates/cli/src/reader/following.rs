//! Checks whether the objects that were read may also be watched. A forbidden watch retries forever, without a message on
//! the terminal.

use kube::Client;
use kube::api::{ListParams, WatchParams};

use super::{FleetSelection, Sight, api, labels_of_rollouts, sentence};
use windlass_kube_port::Kind;
use windlass_kube_port::watch::Namespaces;

/// The time-out of the probing watch, in seconds.
const SOON: u32 = 1;

impl Sight {
    /// Checks what may be watched; call it before [`watch`](Self::watch). An error says why fleets may not be; other
    /// kinds are reported as unread and stay as they were read.
    pub async fn following(mut self, client: &Client, wanted: &FleetSelection) -> Result<Self, String> {
        for kind in self.kinds.clone() {
            match may_follow(client, wanted, kind).await {
                Ok(()) => {}
                Err(sentence) if kind == Kind::NodeDeployment => {
                    return Err(format!("fleets cannot be watched: {sentence}"));
                }
                Err(sentence) => {
                    self.kinds.retain(|other| *other != kind);
                    let kind = kind.name();
                    self.unread
                        .push(format!("not updated live, because {kind}s cannot be watched: {sentence}"));
                }
            }
        }
        Ok(self)
    }

    /// The same before [`watch_rollouts`](Self::watch_rollouts). What may not be watched stays as it was read.
    pub async fn following_rollouts(mut self, client: &Client, scope: &Namespaces) -> Self {
        for kind in self.kinds.clone() {
            let may = may_follow_selected(client, scope, kind, None, labels_of_rollouts(kind)).await;
            if let Err(sentence) = may {
                self.unwatched.push(kind);
                let kind = kind.name();
                self.unread.push(format!("not updated live, because {kind}s cannot be watched: {sentence}"));
            }
        }
        self
    }
}

/// Sends the API server the request of a watch. Any failure other than a refusal is left to the watch, which retries.
async fn may_follow(client: &Client, wanted: &FleetSelection, kind: Kind) -> Result<(), String> {
    let (fields, labels) = match kind {
        Kind::NodeDeployment => (wanted.named(), None),
        _ => (None, Some(wanted.labels())),
    };
    may_follow_selected(client, &wanted.scope, kind, fields, labels).await
}

/// The same for the objects that a field selector and a label selector select.
pub async fn may_follow_selected(
    client: &Client,
    scope: &Namespaces,
    kind: Kind,
    fields: Option<String>,
    labels: Option<String>,
) -> Result<(), String> {
    let api = api(client, scope, kind);
    let mut list = ListParams::default().limit(1);
    let mut watch = WatchParams::default().timeout(SOON);
    (list.field_selector, list.label_selector) = (fields.clone(), labels.clone());
    (watch.field_selector, watch.label_selector) = (fields, labels);
    let refused = |error: kube::Error| match &error {
        kube::Error::Api(status) if status.code == 403 => Err(sentence(&error)),
        _ => Ok(()),
    };
    let version = match api.list(&list).await {
        Ok(page) => page.metadata.resource_version.unwrap_or_default(),
        Err(error) => return refused(error),
    };
    // The response means yes; its events are ignored.
    api.watch(&watch, &version).await.map(drop).or_else(refused)
}
