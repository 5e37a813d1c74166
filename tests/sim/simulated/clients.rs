//! kube's client, reflectors and controller on the simulated cluster.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use windlass_sim::Options;

use windlass_harness::stage::{furnished, map, paused};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(map(name)).unwrap()
}

#[test]
fn reflector_relists_when_its_resource_version_has_expired() {
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
fn audit_log_records_the_author_of_each_write() {
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
fn watch_delivers_only_its_kind_and_ends_at_its_timeout() {
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
