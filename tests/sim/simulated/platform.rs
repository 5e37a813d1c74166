//! The StatefulSet controller serializes revisions anew.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use windlass_sim::Options;

use windlass_harness::stage::{create_set, furnished, paused, pod, until_available};

#[test]
fn reserialised_revision_changes_without_a_new_generation() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let client = cluster.client("person", "test");
        create_set(&client, "s", "db:1", 1).await;
        let before = until_available(&client, "s", 1).await;
        let uid = pod(&client, "s-0").await.unwrap().uid();
        cluster.reserialise_revisions();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = until_available(&client, "s", 1).await;
        assert_eq!(before.metadata.generation, after.metadata.generation);
        assert_eq!(before.spec, after.spec);
        let revision = |set: &StatefulSet| set.status.clone().unwrap().update_revision;
        assert_ne!(revision(&before), revision(&after));
        assert_eq!(pod(&client, "s-0").await.unwrap().uid(), uid);
        // Once more, and the bytes are the first ones again.
        cluster.reserialise_revisions();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(revision(&until_available(&client, "s", 1).await), revision(&before));
    });
}
