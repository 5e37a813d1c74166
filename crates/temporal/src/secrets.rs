//! Follows the Secrets of the workers.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::observed::Meta;
use windlass_core::revision::config::ConfigReference;
use windlass_kube_port::follow::Answer;

use crate::api::Connection;
use crate::context::Context;
use crate::planner::WorkerSecrets;
use crate::planner::secrets::{Data, used_by_workers};

/// Observes the Secrets of an object's workers, and requeues the object when one of them changes. An object without
/// such Secrets causes no request.
pub(crate) async fn observe(cx: &Context, meta: &Meta, connection: &Connection) -> WorkerSecrets {
    let uses = used_by_workers(connection);
    let secrets: BTreeSet<ConfigReference> = uses.iter().map(|used| used.secret.clone()).collect();
    let secrets: Vec<ConfigReference> = secrets.into_iter().collect();
    cx.followed.follow(&meta.key(), &secrets);
    if secrets.is_empty() {
        return WorkerSecrets::default();
    }
    let answers = match cx.followed.read(&*cx.cluster, &meta.namespace, &secrets).await {
        Ok(answers) => answers,
        Err(error) => {
            tracing::warn!(object = %meta.key(), %error, "the Secrets of workers cannot be read; will retry");
            BTreeMap::new()
        }
    };
    let answers = answers.into_iter().map(|(secret, answer)| (secret, data(answer))).collect();
    let mut observed = WorkerSecrets::of(&meta.namespace, &uses, &answers);
    observed.settles_in = cx.until_settled(&meta.uid, &observed.digest(""));
    observed
}

fn data(answer: Answer) -> Data {
    match answer {
        Answer::Found { digest, keys } => Data::Found { digest, keys },
        Answer::Missing => Data::Missing,
        Answer::Refused(why) => Data::Unreadable(why),
    }
}
