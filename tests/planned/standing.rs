//! What is said of a fleet that stands: whom it waits for, and what comes once they have come.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use windlass::foresight::{Change, Foreseen};

use super::stage::paused;
use super::{World, of};

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

    async fn then(&self, patch: Value) -> Foreseen {
        self.foresee(&Change::Merge(patch)).await
    }
}

fn removed(foreseen: &Foreseen) -> Vec<Vec<String>> {
    of(foreseen, &["Remove"])
}

#[test]
fn a_promotion_says_what_moves_when_the_old_nodes_leave_and_who_is_waited_for() {
    paused(async {
        let strategy =
            json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual", "retireDelaySeconds": 40}});
        let world = World::standing(&strategy, "db:2").await;
        let db = world.db().await;
        let (wanted, set) = (&db["status"]["requestedRolloutHash"], &db["status"]["rollout"]["entrantSet"]);
        assert_eq!(db["status"]["rollout"]["stage"], "AwaitingPromotion");
        let set = set.as_str().unwrap();

        let foreseen = world.then(json!({})).await;
        let moves = |when: &str| format!("Service db moves from set first (1) to set {set} (2) {when}");
        let said = foreseen.takes_over.as_ref().unwrap().sentence("db");
        assert_eq!(said, moves("once a person promotes it"));
        assert!(foreseen.waits.iter().any(|wait| wait.contains("windlass promote nd/db")), "{foreseen:#?}");
        assert_eq!(foreseen.waves.last().unwrap().when, "40s after traffic has moved");
        assert_eq!(removed(&foreseen), [["db-1", "db-0"]]);

        let foreseen = world.then(json!({"spec": {"forcePromote": wanted}})).await;
        let said = foreseen.takes_over.as_ref().unwrap().sentence("db");
        assert_eq!(said, moves("as soon as the new nodes run: a person asked for it"));
        assert!(foreseen.waits.is_empty(), "{foreseen:#?}");
        assert_eq!(removed(&foreseen), [["db-1", "db-0"]]);

        world.wish(json!({"spec": {"forcePromote": wanted}})).await;
        let foreseen = world.then(json!({})).await;
        assert!(foreseen.takes_over.is_none() && foreseen.waits.is_empty(), "{foreseen:#?}");
    });
}

#[test]
fn an_approval_is_waited_for_until_it_is_given_and_frees_its_nodes() {
    paused(async {
        let hooks = json!([{"name": "go", "at": "BeforeRollout", "approval": {}}]);
        let world = World::standing(&json!({"type": "InPlace", "hooks": hooks}), "db:2").await;
        let task = world.db().await["status"]["hooks"][0]["taskID"].as_str().unwrap().to_owned();
        let foreseen = world.then(json!({})).await;
        let person = format!("a person, for hook go: windlass approve nd/db --task {task}");
        assert_eq!(foreseen.waits, [person]);
        assert!(foreseen.unread.iter().any(|left| left.starts_with("its hooks")), "{:?}", foreseen.unread);
        let foreseen = world.then(json!({"metadata": {"annotations": {"windlass.dev/approve": task}}})).await;
        assert!(foreseen.waits.is_empty() && foreseen.happens.contains("goes on"), "{foreseen:#?}");
        assert_eq!(of(&foreseen, &["Update"]), [["db-1"], ["db-0"]]);
    });
}

#[test]
fn the_way_back_does_not_wait_for_the_node_that_it_heals() {
    paused(async {
        let world = World::standing(&json!({"type": "InPlace"}), "db:2-nope").await;
        let foreseen = world.then(json!({"spec": {"template": {"spec": {"image": "db:1"}}}})).await;
        assert!(of(&foreseen, &["Update", "Adopt"]).concat().contains(&"db-1".to_owned()), "{foreseen:#?}");
        assert!(foreseen.waits.is_empty(), "{:?}", foreseen.waits);
    });
}

#[test]
fn a_hard_fork_says_at_which_height_traffic_moves() {
    paused(async {
        let world = World::new(7, fleet(&json!({"type": "InPlace"}), "db:1")).await;
        let forks = json!({"spec": {"updateStrategy": {"type": "HardFork", "hardFork": {"haltHeight": 100}},
            "template": {"spec": {"image": "db:2", "sidecar": {"image": "side:1"}}}}});
        let foreseen = world.then(forks).await;
        assert_eq!((foreseen.recipe.as_str(), foreseen.refused.as_deref()), ("HardFork", None));
        let set = &foreseen.set;
        let said = foreseen.takes_over.as_ref().unwrap().sentence("db");
        let moves = format!(
            "Service db moves from set first (1) to set {set} (2) once its nodes have halted at height 100"
        );
        assert_eq!(said, moves);
        let made = of(&foreseen, &["Create"]);
        assert_eq!(made, [[format!("db-{set}-0"), format!("db-{set}-1")]]);
        assert_eq!(removed(&foreseen), [["db-1", "db-0"]]);
        assert!(foreseen.waves[1].when.starts_with("after the halt at height 100"), "{foreseen:#?}");
    });
}
