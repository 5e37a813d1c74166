//! Actions of the platform: admission rewrites objects, the StatefulSet controller re-serializes revisions, watches
//! become silent.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use windlass_sim::{Cluster, Mutation, Options, Policy, Target, proxy};

use windlass_harness::stage::{create_set, furnished, image, label, paused, pod, set, until_available};

fn sets(cluster: &Cluster) -> Api<StatefulSet> {
    Api::namespaced(cluster.client("person", "test"), "test")
}

fn annotates() -> Policy {
    let added = Mutation::Annotation("platform.test/scanned".to_owned(), "yes".to_owned());
    Policy::new("annotates", Target::Templates, added)
}

fn added(set: &StatefulSet) -> Option<&String> {
    set.spec.as_ref()?.template.metadata.as_ref()?.annotations.as_ref()?.get("platform.test/scanned")
}

#[test]
fn a_policy_for_templates_has_its_way_with_any_write_of_a_set() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let client = cluster.client("person", "test");
        create_set(&client, "s", "db:1", 1).await;
        let before = until_available(&client, "s", 1).await;
        cluster.admit(annotates());
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let tried = sets(&cluster).create(&dry, &set("other", "db:1", 1)).await.unwrap();
        assert!(added(&tried).is_some() && sets(&cluster).get_opt("other").await.unwrap().is_none());
        assert!(
            added(&sets(&cluster).get("s").await.unwrap()).is_none(),
            "nothing is written by a policy alone"
        );

        sets(&cluster)
            .patch_status("s", &PatchParams::default(), &Patch::Merge(json!({"status": {}})))
            .await
            .unwrap();
        sets(&cluster)
            .patch_scale("s", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 1}})))
            .await
            .unwrap();
        assert!(added(&sets(&cluster).get("s").await.unwrap()).is_none(), "subresources are not matched");

        let labels = Patch::Merge(json!({"metadata": {"labels": {"team": "one"}}}));
        sets(&cluster).patch("s", &PatchParams::default(), &labels).await.unwrap();
        let after = until_available(&client, "s", 1).await;
        assert!(added(&after).is_some());
        assert_eq!(after.metadata.generation, Some(2));
        let revision = |set: &StatefulSet| set.status.clone().unwrap().update_revision;
        assert_ne!(revision(&before), revision(&after));
        // With OnDelete the pod keeps its revision.
        let pod = pod(&client, "s-0").await.unwrap();
        assert_eq!(Some(label(&pod, "controller-revision-hash").to_owned()), revision(&before));

        cluster.withdraw("annotates");
        sets(&cluster).create(&PostParams::default(), &set("other", "db:1", 1)).await.unwrap();
        assert!(added(&sets(&cluster).get("other").await.unwrap()).is_none());
    });
}

#[test]
fn a_policy_for_pods_rewrites_those_that_controllers_make() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let client = cluster.client("person", "test");
        create_set(&client, "old", "db:1", 1).await;
        until_available(&client, "old", 1).await;
        cluster.admit(Policy::new("pins", Target::Pods, Mutation::Digests));
        let mesh = Mutation::Container { container: proxy("mesh"), first: true };
        cluster.admit(Policy::new("meshes", Target::Pods, mesh));
        let elsewhere = Policy::new("mirrors", Target::Pods, Mutation::Mirror("mirror.test".to_owned()));
        cluster.admit(Policy { namespace: Some("elsewhere".to_owned()), ..elsewhere });
        create_set(&client, "new", "db:1", 1).await;
        let new = until_available(&client, "new", 1).await;
        assert_eq!(new.spec.unwrap().template.spec.unwrap().containers.len(), 1);
        assert_eq!(image(&pod(&client, "old-0").await.unwrap()), "db:1");
        let made: Pod = pod(&client, "new-0").await.unwrap();
        assert_eq!(image(&made), "mesh:1");
        let main = &made.spec.as_ref().unwrap().containers[1];
        assert!(main.image.as_ref().unwrap().starts_with("db:1@sha256:"), "{:?}", main.image);
        let statuses = made.status.unwrap().container_statuses.unwrap();
        assert!(statuses.iter().all(|status| status.ready) && statuses.len() == 2);
    });
}

#[test]
fn a_revision_that_is_stored_anew_moves_without_a_new_generation() {
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
