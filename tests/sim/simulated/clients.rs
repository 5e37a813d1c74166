//! kube's client, reflectors and controller on the simulated cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Discovery, ResourceExt};
use serde_json::json;
use windlass_sim::Options;

use windlass_harness::stage::{furnished, map, paused};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(map(name)).unwrap()
}

#[test]
fn discovery_finds_every_group() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let discovery = Discovery::new(cluster.client("test", "test")).run().await.unwrap();
        let names: Vec<&str> = discovery.groups_alphabetical().iter().map(|group| group.name()).collect();
        assert!(
            names.contains(&"apps") && names.contains(&"events.k8s.io") && names.contains(&""),
            "{names:?}"
        );
        let apps = discovery.get("apps").unwrap();
        assert!(apps.recommended_kind("StatefulSet").is_some());
    });
}

#[test]
fn a_reflector_follows_creates_changes_and_deletes() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let api: Api<ConfigMap> = Api::namespaced(cluster.client("test", "test"), "test");
        api.create(&PostParams::default(), &config_map("before")).await.unwrap();
        let (store, writer) = reflector::store();
        let stream = reflector(writer, watcher(api.clone(), watcher::Config::default())).applied_objects();
        tokio::spawn(stream.for_each(|_| async {}));
        store.wait_until_ready().await.unwrap();
        assert_eq!(store.len(), 1);
        api.create(&PostParams::default(), &config_map("after")).await.unwrap();
        let patch = Patch::Merge(json!({"data": {"a": "2"}}));
        api.patch("before", &PatchParams::default(), &patch).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut seen: Vec<String> = store
            .state()
            .iter()
            .map(|m| format!("{} {}", m.name_any(), m.data.as_ref().unwrap()["a"]))
            .collect();
        seen.sort();
        assert_eq!(seen, ["after 1", "before 2"]);
        api.delete("after", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(store.len(), 1);
    });
}

#[test]
fn a_streaming_list_fills_a_reflector_too() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let api: Api<ConfigMap> = Api::namespaced(cluster.client("test", "test"), "test");
        api.create(&PostParams::default(), &config_map("one")).await.unwrap();
        let (store, writer) = reflector::store();
        let config = watcher::Config::default().streaming_lists();
        tokio::spawn(reflector(writer, watcher(api, config)).for_each(|_| async {}));
        store.wait_until_ready().await.unwrap();
        assert_eq!(store.len(), 1);
    });
}

#[test]
fn a_reflector_lists_again_when_its_version_is_gone() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let api: Api<ConfigMap> = Api::namespaced(cluster.client("test", "test"), "test");
        let (store, writer) = reflector::store();
        tokio::spawn(
            reflector(writer, watcher(api.clone(), watcher::Config::default()).default_backoff())
                .for_each(|_| async {}),
        );
        store.wait_until_ready().await.unwrap();
        api.create(&PostParams::default(), &config_map("one")).await.unwrap();
        cluster.compact();
        api.create(&PostParams::default(), &config_map("two")).await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(store.len(), 2);
        assert!(
            cluster.audit().iter().filter(|e| e.verb == "list" && e.resource == "configmaps").count() >= 2
        );
    });
}

#[test]
fn a_controller_brings_its_objects_to_what_they_should_be() {
    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Failed(#[from] kube::Error);
    async fn reconcile(object: Arc<ConfigMap>, api: Arc<Api<ConfigMap>>) -> Result<Action, Failed> {
        if !object.annotations().contains_key("seen") {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"seen": "yes"}}}));
            api.patch(&object.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(Action::requeue(Duration::from_mins(5)))
    }
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let api: Api<ConfigMap> = Api::namespaced(cluster.client("controller", "test"), "test");
        for index in 0..20 {
            api.create(&PostParams::default(), &config_map(&format!("m{index}"))).await.unwrap();
        }
        let reconciled = Arc::new(AtomicUsize::new(0));
        let counter = reconciled.clone();
        let controller = Controller::new(api.clone(), watcher::Config::default())
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(api.clone()))
            .for_each(move |result| {
                assert!(result.is_ok(), "{result:?}");
                counter.fetch_add(1, Ordering::SeqCst);
                async {}
            });
        tokio::spawn(controller);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let list = api.list(&ListParams::default()).await.unwrap();
        assert!(list.items.iter().all(|m| m.annotations().contains_key("seen")));
        assert!(reconciled.load(Ordering::SeqCst) >= 20);
        let version = cluster.version();
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(cluster.version(), version, "an idle controller writes nothing");
    });
}

#[test]
fn the_audit_log_tells_who_wrote_what() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let api: Api<ConfigMap> = Api::namespaced(cluster.client("someone/1.0", "test"), "test");
        cluster.clear_audit();
        api.create(&PostParams::default(), &config_map("one")).await.unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        api.create(&dry, &config_map("two")).await.unwrap();
        let _ = api.create(&PostParams::default(), &config_map("one")).await;
        let log: Vec<(String, bool, u16)> = cluster
            .audit()
            .into_iter()
            .filter(|entry| entry.user_agent == "someone/1.0")
            .map(|entry| (entry.verb.clone(), entry.is_write(), entry.code))
            .collect();
        assert_eq!(
            log,
            [("create".into(), true, 201), ("create".into(), false, 201), ("create".into(), true, 409)]
        );
    });
}

#[test]
fn a_watch_wakes_only_for_its_own_kind_and_ends_at_its_time_out() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let client = cluster.client("test", "test");
        let api: Api<ConfigMap> = Api::namespaced(client, "test");
        let params = kube::api::WatchParams::default().timeout(10);
        let version = cluster.version().to_string();
        let seen = Arc::new(Mutex::new(0));
        let started = tokio::time::Instant::now();
        let mut stream = api.watch(&params, &version).await.unwrap().boxed();
        while let Some(_event) = stream.try_next().await.unwrap() {
            *seen.lock().unwrap() += 1;
        }
        assert_eq!(*seen.lock().unwrap(), 0);
        assert_eq!(started.elapsed().as_secs(), 10);
    });
}
