//! Objects in the cache that no watch shows, because a person or a policy changed the label that the watches select by.

use std::time::Duration;

use windlass_kube_port::observed::Meta;
use windlass_kube_port::{Cluster, ClusterError, Kind, View};

/// How soon an object is read again that is being deleted, or that its controller has not observed.
const SOON: Duration = Duration::from_secs(5);
/// How soon any other object is read again: a person may change or delete it.
const LATER: Duration = Duration::from_secs(30);

/// Reads such an object by name, and takes what is found into the cache, also that it is gone. Returns true if it is
/// there.
pub async fn read_again(
    cluster: &dyn Cluster,
    view: &View,
    kind: Kind,
    known: &Meta,
) -> Result<bool, ClusterError> {
    let found = cluster.get(kind, &known.namespace, &known.name).await?;
    match &found {
        Some(found) => view.observe(kind, found),
        None => view.vanished(kind, known),
    }
    Ok(found.is_some())
}

/// When to read such an object again.
#[must_use]
pub fn ask_again(changes_soon: bool) -> Duration {
    if changes_soon { SOON } else { LATER }
}
