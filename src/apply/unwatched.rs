//! Objects in the cache that no watch shows, because a person or a policy changed the label that the watches select by.

use crate::cluster::observed::Meta;
use crate::cluster::{Cluster, ClusterError, Kind, View};

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
