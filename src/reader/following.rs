//! Whether what was read may be watched as well. A watch that is refused is tried again for ever, and says so to nobody who looks at a
//! terminal.

use kube::Client;
use kube::api::{ListParams, WatchParams};

use super::{Sight, Wanted, api, sentence};
use crate::cluster::Kind;

/// The API server ends what is only asked about, should nobody else.
const SOON: u32 = 1;

impl Sight {
    /// What of it may be watched, which has to be asked before [`watch`](Self::watch): an error says in a sentence why fleets may not be;
    /// of what belongs to them what may not is said with what could not be read, and stays as it was read.
    pub async fn following(mut self, client: &Client, wanted: &Wanted) -> Result<Self, String> {
        for kind in self.kinds.clone() {
            match may_follow(client, wanted, kind).await {
                Ok(()) => {}
                Err(sentence) if kind == Kind::NodeDeployment => {
                    return Err(format!("fleets cannot be watched: {sentence}"));
                }
                Err(sentence) => {
                    self.kinds.retain(|other| *other != kind);
                    let kind = kind.name();
                    self.unread.push(format!("as read once, because {kind}s cannot be watched: {sentence}"));
                }
            }
        }
        Ok(self)
    }
}

/// Asks the API server what a watch asks it. Whatever is no refusal is left to the watch, which tries it again.
pub(super) async fn may_follow(client: &Client, wanted: &Wanted, kind: Kind) -> Result<(), String> {
    let api = api(client, &wanted.scope, kind);
    let (list, watch) = (ListParams::default().limit(1), WatchParams::default().timeout(SOON));
    let (list, watch) = match (kind, wanted.named()) {
        (Kind::NodeDeployment | Kind::WorkerDeployment, Some(named)) => {
            (list.fields(&named), watch.fields(&named))
        }
        (Kind::NodeDeployment | Kind::WorkerDeployment, None) => (list, watch),
        _ => (list.labels(&wanted.labels()), watch.labels(&wanted.labels())),
    };
    let refused = |error: kube::Error| match &error {
        kube::Error::Api(status) if status.code == 403 => Err(sentence(&error)),
        _ => Ok(()),
    };
    let version = match api.list(&list).await {
        Ok(page) => page.metadata.resource_version.unwrap_or_default(),
        Err(error) => return refused(error),
    };
    // Answered once it is begun; what it brings nobody reads.
    api.watch(&watch, &version).await.map(drop).or_else(refused)
}
