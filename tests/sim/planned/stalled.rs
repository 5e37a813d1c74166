//! What is said of a fleet that stands: whom it waits for, and what comes once they have come.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass::clock::monotonic;
use windlass_cli::forecast::{Change, Forecast};

use super::{Seen, World, of};
use windlass_harness::stage::paused;

fn fleet(strategy: &Value, image: &str) -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {"replicas": 2, "updateStrategy": strategy, "service": {"ports": [{"name": "db", "port": 80}]},
            "template": {"spec": {"image": image, "podTemplate": {"spec": {
                "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "db:0"}]}}}}},
    })
}

impl World {
    /// A fleet that was asked for another image, and stands.
    async fn standing(strategy: &Value, image: &str) -> Self {
        let world = Self::new(7, fleet(strategy, "db:1")).await;
        world.wish(json!({"spec": {"template": {"spec": {"image": image}}}})).await;
        world
    }

    async fn wish(&self, patch: Value) {
        self.fleets.patch("db", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        self.settle().await;
    }

    async fn until(&self, holds: impl Fn(&Value) -> bool) {
        for _ in 0..600 {
            if holds(&self.db().await) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it never came: {:#}", self.db().await["status"]);
    }

    async fn then(&self, patch: Value) -> Forecast {
        self.forecast(&Change::Merge(patch)).await
    }
}

fn removed(forecast: &Forecast) -> Vec<Vec<String>> {
    of(forecast, &["Remove"])
}

#[test]
fn promotion_forecast_names_traffic_move_removals_and_waits() {
    paused(async {
        let strategy =
            json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual", "retireDelaySeconds": 40}});
        let world = World::standing(&strategy, "db:2").await;
        let db = world.db().await;
        let (wanted, set) = (&db["status"]["requestedRolloutHash"], &db["status"]["rollout"]["entrantSet"]);
        assert_eq!(db["status"]["rollout"]["stage"], "AwaitingPromotion");
        let set = set.as_str().unwrap();

        let forecast = world.then(json!({})).await;
        let moves = |when: &str| format!("Service db moves from set first (1) to set {set} (2) {when}");
        let said = forecast.takes_over.as_ref().unwrap().sentence("db");
        assert_eq!(said, moves("once a person promotes it"));
        assert!(
            forecast.waits.iter().any(|wait| wait.contains("windlass promote nd/db -n ")),
            "{forecast:#?}"
        );
        assert_eq!(forecast.waves.last().unwrap().when, "40s after traffic has moved");
        assert_eq!(removed(&forecast), [["db-1", "db-0"]]);

        let forecast = world.then(json!({"spec": {"forcePromote": wanted}})).await;
        let said = forecast.takes_over.as_ref().unwrap().sentence("db");
        assert_eq!(said, moves("as soon as the new nodes are available, as requested"));
        assert!(forecast.waits.is_empty(), "{forecast:#?}");
        assert_eq!(removed(&forecast), [["db-1", "db-0"]]);

        world.wish(json!({"spec": {"forcePromote": wanted}})).await;
        let forecast = world.then(json!({})).await;
        assert!(forecast.takes_over.is_none() && forecast.waits.is_empty(), "{forecast:#?}");
    });
}

#[test]
fn pending_approval_blocks_the_forecast_until_it_is_given() {
    paused(async {
        let hooks = json!([{"name": "go", "at": "BeforeRollout", "approval": {}}]);
        let world = World::standing(&json!({"type": "InPlace", "hooks": hooks}), "db:2").await;
        let task = world.db().await["status"]["hooks"][0]["taskID"].as_str().unwrap().to_owned();
        let forecast = world.then(json!({})).await;
        let person = format!("an approval of hook go: windlass approve nd/db -n test --task {task}");
        assert_eq!(forecast.waits, [person]);
        assert!(
            forecast.unread.iter().any(|left| left.starts_with("hooks not checked")),
            "{:?}",
            forecast.unread
        );
        let forecast = world.then(json!({"metadata": {"annotations": {"windlass.dev/approve": task}}})).await;
        assert!(forecast.waits.is_empty() && forecast.happens.contains("continues"), "{forecast:#?}");
        assert_eq!(of(&forecast, &["Update"]), [["db-1"], ["db-0"]]);
    });
}

#[test]
fn forecast_names_hooks_before_the_rollout_and_their_waits() {
    paused(async {
        let hooks = json!([
            {"name": "freeze", "at": "BeforeRollout", "wait": {"seconds": 3600}},
            {"name": "go", "at": "BeforeRollout", "approval": {}},
            {"name": "drain", "at": "BeforeNode", "wait": {"seconds": 5}},
        ]);
        let world = World::new(7, fleet(&json!({"type": "InPlace", "hooks": hooks}), "db:1")).await;
        let change = json!({"spec": {"template": {"spec": {"image": "db:2"}}}});
        let forecast = world.then(change.clone()).await;
        assert_eq!(forecast.waits, ["the hooks before the rollout: freeze (3600 s), go (an approval)"]);
        assert_eq!(forecast.hooks, ["freeze (BeforeRollout)", "go (BeforeRollout)", "drain (BeforeNode)"]);
        world.wish(change).await;
        let forecast = world.then(json!({})).await;
        assert_eq!(forecast.waits.len(), 1, "{forecast:#?}");
        assert!(forecast.waits[0].starts_with("hook freeze: waiting for 3600 s, until "), "{forecast:#?}");
    });
}

#[test]
fn forecast_names_the_blocker_while_it_lasts() {
    let image = |image: &str| json!({"spec": {"template": {"spec": {"image": image}}}});
    let partition = |from: i64| json!({"type": "InPlace", "inPlace": {"partition": from}});
    paused(async {
        let world = World::standing(&partition(1), "db:2").await;
        let forecast = world.then(json!({})).await;
        assert_eq!(forecast.waits, ["the partition: ordinals below 1 keep their revision"], "{forecast:#?}");
        let forecast = world.then(json!({"spec": {"updateStrategy": partition(0)}})).await;
        assert!(forecast.waits.is_empty(), "{forecast:#?}");
        assert_eq!(of(&forecast, &["Update"]), [["db-0"]]);
        let mut held = image("db:3");
        held["spec"]["replicas"] = json!(3);
        held["spec"]["updateStrategy"] = partition(3);
        let forecast = world.then(held).await;
        let says = "db-2: created at the current revision, and updated once the rollout continues";
        assert_eq!(forecast.recreated_sentence().as_deref(), Some(says), "{forecast:#?}");
    });
    paused(async {
        let world = World::standing(&partition(0), "db:2-nope").await;
        let forecast = world.then(json!({})).await;
        assert_eq!(forecast.waits, ["db-1: unavailable now, of at most 1"], "{forecast:#?}");
        assert_eq!(of(&forecast, &["Update"]), [["db-0"]], "{forecast:#?}");
        assert_eq!(forecast.waves[0].when, "wave 1 (once db-1 is available)");
        // The way back does not wait for the node that it heals.
        let forecast = world.then(image("db:1")).await;
        assert!(of(&forecast, &["Update", "Adopt"]).concat().contains(&"db-1".to_owned()), "{forecast:#?}");
        assert!(forecast.waits.is_empty(), "{:?}", forecast.waits);
        let paused = world.then(json!({"spec": {"paused": true}})).await;
        assert!(paused.waits[0].starts_with("spec.paused is true"), "{paused:#?}");
        // No wave is left, and the last node is named all the same.
        world.wish(json!({"spec": {"replicas": 0, "template": {"spec": {"image": "db:1"}}}})).await;
        world.wish(json!({"spec": {"replicas": 1}})).await;
        world.wish(image("db:2-nope")).await;
        let forecast = world.then(json!({})).await;
        let waits = forecast.waits.join("; ");
        assert_eq!((waits.as_str(), forecast.waves.len()), ("db-0: unavailable now, of at most 1", 0));
    });
}

#[test]
fn name_conflict_in_the_forecast_matches_the_operator_message() {
    for (kind, group, version) in [("StatefulSet", "apps", "v1"), ("Service", "", "v1")] {
        paused(async {
            let world = World::new(7, fleet(&json!({"type": "InPlace"}), "db:1")).await;
            let labels = json!({"app": "other"});
            let spec = if kind == "Service" {
                json!({"selector": labels, "ports": [{"port": 80}]})
            } else {
                json!({"replicas": 0, "serviceName": "other", "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}})
            };
            let api_version =
                if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            let other =
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "db-2"}, "spec": spec});
            let api = super::api(&world.client, group, version, kind);
            api.create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
            let more = json!({"spec": {"replicas": 3}});
            let forecast = world.then(more.clone()).await;
            assert_eq!(forecast.exit_code(), 1, "{forecast:#?}");
            let said = forecast.refused.clone().unwrap();
            let names = format!("db-2: {kind} db-2 exists and has no owner that Windlass knows");
            assert!(said.starts_with(&names), "{said}");
            world.wish(more).await;
            let db = world.db().await;
            let conditions = db["status"]["conditions"].as_array().unwrap();
            let told = conditions.iter().find(|c| c["type"] == "UpToDate").unwrap();
            assert_eq!((&told["reason"], &told["message"]), (&json!("InvalidSpec"), &json!(said)));
        });
    }
}

#[test]
fn forecast_lists_immediate_changes_despite_a_refused_template() {
    paused(async {
        let world = World::new(7, fleet(&json!({"type": "InPlace"}), "db:1")).await;
        let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "a lot"}}]);
        let refused =
            json!({"spec": {"template": {"spec": {"podTemplate": {"spec": {"volumes": volumes}}}}}});
        assert_eq!(world.then(refused.clone()).await.exit_code(), 1);
        world.wish(refused).await;
        assert_eq!(world.then(json!({})).await.exit_code(), 1, "nothing of it is carried out");
        world.take();
        let more = json!({"spec": {"replicas": 3}});
        let forecast = world.then(more.clone()).await;
        assert_eq!((forecast.exit_code(), forecast.new_target), (2, false), "{forecast:#?}");
        assert!(
            forecast.refused.as_deref().is_some_and(|said| said.contains("quantities must match")),
            "{forecast:#?}"
        );
        assert_eq!(of(&forecast, &["Create"]), [["db-2"]]);
        world.wish(more).await;
        assert_eq!(world.take(), [Seen::Made("db-2".to_owned())]);
    });
}

#[test]
fn no_rollout_is_forecast_for_a_fleet_being_deleted() {
    paused(async {
        let world = World::new(7, fleet(&json!({"type": "InPlace"}), "db:1")).await;
        world.wish(json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
        world.fleets.delete("db", &DeleteParams::default()).await.unwrap();
        world.until(|db| db["metadata"]["deletionTimestamp"].is_string()).await;
        let forecast = world.then(json!({"spec": {"template": {"spec": {"image": "db:2"}}}})).await;
        assert_eq!(forecast.exit_code(), 1, "{forecast:#?}");
        let says = "NodeDeployment db is being deleted: no rollout starts any more";
        assert_eq!(forecast.refused.as_deref(), Some(says));
        let forecast = world.then(json!({})).await;
        assert_eq!((forecast.exit_code(), forecast.happens.as_str()), (0, says));
    });
}

#[test]
fn forecast_of_an_unobserved_change_waits_for_the_operator() {
    paused(async {
        let world = World::new(7, fleet(&json!({"type": "InPlace"}), "db:1")).await;
        world.operator.abort();
        world.wish(json!({"spec": {"template": {"spec": {"image": "db:2"}}}})).await;
        let forecast = world.then(json!({})).await;
        assert!(forecast.is_empty_change() && forecast.exit_code() == 2, "{forecast:#?}");
        let operator = "the operator, which has not observed generation 2 (observed: 1)";
        assert!(forecast.waits[0].starts_with(operator), "{forecast:#?}");
        assert_eq!(of(&forecast, &["Update"]), [["db-1"], ["db-0"]]);
    });
}

#[test]
fn hard_fork_forecast_names_the_halt_height() {
    paused(async {
        let world = World::new(7, fleet(&json!({"type": "InPlace"}), "db:1")).await;
        let forks = json!({"spec": {"updateStrategy": {"type": "HardFork", "hardFork": {"haltHeight": 100}},
            "template": {"spec": {"image": "db:2", "sidecar": {"image": "side:1"}}}}});
        let forecast = world.then(forks).await;
        assert_eq!((forecast.recipe.as_str(), forecast.refused.as_deref()), ("HardFork", None));
        let set = forecast.set.as_ref().unwrap();
        let said = forecast.takes_over.as_ref().unwrap().sentence("db");
        let moves = format!(
            "Service db moves from set first (1) to set {set} (2) once its nodes have halted at height 100"
        );
        assert_eq!(said, moves);
        let made = of(&forecast, &["Create"]);
        assert_eq!(made, [[format!("db-{set}-0"), format!("db-{set}-1")]]);
        assert_eq!(removed(&forecast), [["db-1", "db-0"]]);
        assert!(forecast.waves[1].when.starts_with("30s after the halt at height 100"), "{forecast:#?}");
    });
}

#[test]
fn forecast_duration_is_close_to_the_actual_duration() {
    let blue_green =
        json!({"type": "BlueGreen", "blueGreen": {"promotion": "WhenReady", "retireDelaySeconds": 30}});
    let strategies = [
        json!({"type": "InPlace"}),
        json!({"type": "InPlace", "inPlace": {"maxUnavailable": 2}}),
        blue_green,
    ];
    for strategy in strategies {
        paused(async {
            let mut fleet = fleet(&strategy, "db:slow-1");
            fleet["spec"]["replicas"] = json!(5);
            let world = World::new(7, fleet).await;
            let image = |tag: &str| json!({"spec": {"template": {"spec": {"image": format!("db:{tag}")}}}});
            world.wish(image("slow-2")).await;
            let about =
                world.then(image("slow-3")).await.about_seconds.expect("its nodes were updated before");
            let began = monotonic();
            world.fleets.patch("db", &PatchParams::default(), &Patch::Merge(&image("slow-3"))).await.unwrap();
            world.until(|db| db["status"]["observedGeneration"] == db["metadata"]["generation"]).await;
            world.until(|db| db["status"]["rollout"].is_null()).await;
            let took = i64::try_from(began.elapsed().as_secs()).unwrap();
            assert!(
                about > 4 && (about - took).abs() <= about / 4 + 2,
                "{strategy}: {about} s, took {took} s"
            );
        });
    }
}
