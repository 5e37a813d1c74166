//! Faults happen exactly where a plan says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use serde_json::json;
use windlass_sim::{After, Before, Cluster, EventInfo, Failure, FaultPlan, Options, RequestInfo, WatchFate};

use windlass_harness::stage::{furnished, map, paused};

/// Fails one write of a caller, before or after it is carried out.
struct Once {
    user_agent: &'static str,
    write: u64,
    before: Option<Failure>,
    after: Option<Failure>,
}

impl FaultPlan for Once {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let hit = request.user_agent == self.user_agent && request.write_number == self.write;
        match &self.before {
            Some(failure) if hit => Before::Fail(failure.clone()),
            _ => Before::Pass,
        }
    }

    fn after(&mut self, request: &RequestInfo, _: u16) -> After {
        let hit = request.user_agent == self.user_agent && request.write_number == self.write;
        match &self.after {
            Some(failure) if hit => After::Fail(failure.clone()),
            _ => After::Pass,
        }
    }
}

fn maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client("victim", "test"), "test")
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(map(name)).unwrap()
}

#[test]
fn nth_write_of_a_caller_fails_before_it_takes_effect() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let api = maps(&cluster);
        let plan = Once { user_agent: "victim", write: 2, before: Some(Failure::Disconnect), after: None };
        cluster.set_faults(Box::new(plan));
        api.create(&PostParams::default(), &config_map("one")).await.unwrap();
        assert!(api.create(&PostParams::default(), &config_map("two")).await.is_err());
        assert!(api.get_opt("two").await.unwrap().is_none());
        api.create(&PostParams::default(), &config_map("two")).await.unwrap();
    });
}

#[test]
fn lost_reply_hides_a_successful_write() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let api = maps(&cluster);
        let plan = Once { user_agent: "victim", write: 1, before: None, after: Some(Failure::Disconnect) };
        cluster.set_faults(Box::new(plan));
        assert!(api.create(&PostParams::default(), &config_map("one")).await.is_err());
        assert!(api.get_opt("one").await.unwrap().is_some());
        assert_eq!(cluster.audit().iter().find(|e| e.verb == "create").unwrap().code, 0);
    });
}

#[test]
fn injected_failures_look_like_real_api_errors() {
    let failures = [
        (Failure::Conflict, 409, "Conflict"),
        (Failure::TooManyRequests(3), 429, "TooManyRequests"),
        (Failure::Internal, 500, "InternalError"),
        (Failure::Unavailable, 503, "ServiceUnavailable"),
        (Failure::ServerTimeout, 504, "Timeout"),
        (Failure::Forbidden("no".into()), 403, "Forbidden"),
        (Failure::TooLarge, 413, "RequestEntityTooLarge"),
        (Failure::Unauthorized, 401, "Unauthorized"),
    ];
    for (failure, code, reason) in failures {
        paused(async {
            let cluster = furnished(Options::seeded(1));
            cluster.set_faults(Box::new(Once {
                user_agent: "victim",
                write: 1,
                before: Some(failure),
                after: None,
            }));
            let error = maps(&cluster).create(&PostParams::default(), &config_map("one")).await.unwrap_err();
            let kube::Error::Api(status) = error else { panic!("{error}") };
            assert_eq!((status.code, status.reason.as_str()), (code, reason));
        });
    }
}

#[test]
fn delayed_request_advances_the_cluster_clock() {
    struct Late;
    impl FaultPlan for Late {
        fn before(&mut self, request: &RequestInfo) -> Before {
            if request.verb == "create" { Before::Delay(Duration::from_secs(40)) } else { Before::Pass }
        }
    }
    paused(async {
        let cluster = furnished(Options::seeded(1));
        cluster.set_faults(Box::new(Late));
        let before = cluster.clock().now();
        maps(&cluster).create(&PostParams::default(), &config_map("one")).await.unwrap();
        assert!((cluster.clock().now() - before).num_seconds() >= 40);
    });
}

/// The fate of events of objects with one name.
struct OnEvent(&'static str, WatchFate, Arc<Mutex<usize>>);

impl FaultPlan for OnEvent {
    fn event(&mut self, watch: &RequestInfo, event: &EventInfo<'_>) -> WatchFate {
        let mut count = self.2.lock().unwrap();
        if watch.user_agent != "victim" || event.name != self.0 || *count > 0 {
            return WatchFate::Show;
        }
        *count += 1;
        self.1.clone()
    }
}

/// The values of `one` in a reflector over time, under a fate of its first event.
fn known_under(fate: WatchFate) -> Vec<String> {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let api = maps(&cluster);
        api.create(&PostParams::default(), &config_map("one")).await.unwrap();
        let (store, writer) = reflector::store();
        let stream = watcher(api.clone(), watcher::Config::default()).default_backoff();
        tokio::spawn(reflector(writer, stream).for_each(|_| async {}));
        store.wait_until_ready().await.unwrap();
        cluster.set_faults(Box::new(OnEvent("one", fate, Arc::default())));
        let mut known = Vec::new();
        for (value, wait) in [("2", 1), ("3", 1), ("3", 60)] {
            let patch = Patch::Merge(json!({"data": {"a": value}}));
            api.patch("one", &PatchParams::default(), &patch).await.unwrap();
            tokio::time::sleep(Duration::from_secs(wait)).await;
            known.push(store.state()[0].data.as_ref().unwrap()["a"].clone());
        }
        known
    })
}

#[test]
fn watches_recover_from_dropped_delayed_and_broken_events() {
    assert_eq!(known_under(WatchFate::Show), ["2", "3", "3"]);
    assert_eq!(known_under(WatchFate::Drop), ["1", "3", "3"]);
    assert_eq!(known_under(WatchFate::Later(Duration::from_secs(10))), ["1", "1", "3"]);
    // Nothing here has a time-out.
    assert_eq!(known_under(WatchFate::Silent), ["1", "1", "1"]);
    assert_eq!(known_under(WatchFate::Cut).last().unwrap(), "3");
    assert_eq!(known_under(WatchFate::Gone).last().unwrap(), "3");
}
