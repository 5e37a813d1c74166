//! An upgrade to a version of Windlass with a second hash algorithm. Recorded content keeps its hash, nothing restarts
//! and nothing is written. New content gets a hash of the new algorithm.

use super::fleet::{fleet_spec, template};
use super::*;
use crate::revision::hash::have_second_version;

impl Stage {
    /// Replaces the process by one of a version that has a second algorithm.
    fn upgrade(&mut self) {
        self.cx.memory = Arc::new(Memory::default());
        have_second_version(true);
        self.calls();
    }

    async fn fleet_writes_nothing(&self) {
        for _ in 0..3 {
            self.look_at_fleet().await.unwrap();
            self.pass(30).await;
        }
        assert_eq!(self.calls(), [""; 0]);
    }

    fn grants(&self) -> Vec<String> {
        let grant = |name: &String| self.get(Kind::StatefulNode, name)["spec"]["grantedHash"].clone();
        let text = |grant: Value| grant.as_str().unwrap_or_default().to_owned();
        self.names(Kind::StatefulNode).iter().map(|name| text(grant(name))).collect()
    }

    fn said(&self, field: &str) -> String {
        self.fleet()["status"][field].as_str().unwrap_or_default().to_owned()
    }

    fn ended(&self) -> Vec<String> {
        let history = self.fleet()["status"]["history"].as_array().cloned().unwrap_or_default();
        history.iter().map(|h| h["outcome"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn to(version: &str) -> Value {
    json!({"spec": {"template": {"spec": {"image": format!("db:{version}")}}}})
}

#[tokio::test(start_paused = true)]
async fn a_steady_fleet_is_not_written_and_its_next_target_has_a_hash_of_the_new_algorithm() {
    let mut stage = Stage::serving(fleet_spec(3, "v1")).await;
    let (grants, completed) = (stage.grants(), stage.said("lastCompletedRolloutHash"));
    assert!(grants.iter().chain([&completed]).all(|hash| hash.starts_with("v1:")), "{grants:?}");
    stage.upgrade();
    stage.fleet_writes_nothing().await;

    // An additional node is created at the hash that the others have.
    stage.change_fleet(&json!({"spec": {"replicas": 4}}));
    stage.settle().await;
    assert_eq!(stage.grants(), vec![grants[0].clone(); 4]);
    assert_eq!((stage.said("requestedRolloutHash"), stage.ended()), (completed.clone(), vec![]));
    stage.change_fleet(&to("v2"));
    stage.settle().await;
    let new = stage.grants();
    assert!(new.iter().all(|hash| hash.starts_with("v2:")), "{new:?}");
    assert!(stage.said("lastCompletedRolloutHash").starts_with("v2:"));
    assert_eq!(stage.ended(), ["Complete"]);
    // The way back is to the stored revision, which keeps its hash.
    stage.change_fleet(&to("v1"));
    stage.settle().await;
    assert_eq!(stage.said("lastCompletedRolloutHash"), completed);
    assert_eq!(stage.ended(), ["Complete"; 2]);
    stage.calls();
    stage.fleet_writes_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_is_under_way_goes_on_to_the_target_that_it_had() {
    let mut stage = Stage::serving(fleet_spec(3, "v1")).await;
    stage.change_fleet(&to("v2"));
    for _ in 0..4 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(2).await;
    }
    let target = stage.fleet()["status"]["rollout"]["targetHash"].clone();
    assert!(target.as_str().unwrap().starts_with("v1:"), "{target}");
    stage.upgrade();
    stage.settle().await;
    assert_eq!(stage.ended(), ["Complete"]);
    assert_eq!(stage.said("lastCompletedRolloutHash"), target);
    assert!(stage.grants().iter().all(|hash| hash.starts_with("v1:")), "{:?}", stage.grants());
}

#[tokio::test(start_paused = true)]
async fn a_set_that_serves_stays_the_one_that_serves() {
    let mut spec = fleet_spec(2, "v1");
    spec["updateStrategy"] = json!({"type": "BlueGreen", "blueGreen": {"retireDelaySeconds": 1}});
    let mut stage = Stage::serving(spec).await;
    stage.upgrade();
    stage.fleet_writes_nothing().await;
    stage.change_fleet(&to("v2"));
    stage.settle().await;
    let completed = stage.said("lastCompletedRolloutHash");
    assert!(completed.starts_with("v2:"), "{completed}");
    assert_eq!(stage.said("activeSet"), completed[3..8]);
}

#[tokio::test(start_paused = true)]
async fn a_node_at_rest_is_not_written_and_what_it_next_runs_is_called_by_the_new_algorithm() {
    let mut stage = Stage::running(&template("v1")).await;
    let (pod, set) = (stage.get(Kind::Pod, "db-0-0"), stage.get(Kind::StatefulSet, "db-0"));
    let old = stage.node()["status"]["podTemplateHash"].as_str().unwrap().to_owned();
    assert!(old.starts_with("v1:"), "{old}");
    stage.upgrade();
    for _ in 0..3 {
        stage.look_at_node().await.unwrap();
        stage.pass(2).await;
    }
    assert_eq!(stage.calls(), [""; 0]);
    assert_eq!(stage.get(Kind::StatefulSet, "db-0"), set);
    // The generation changes, and the template is compared with what the new version renders.
    stage.change(Kind::StatefulSet, "db-0", &json!({"spec": {"replicas": 2}}));
    stage.change_node(&json!({"status": {"statefulSet": {"templateDigest": null}}}));
    stage.node_settles().await;
    assert_eq!((stage.get(Kind::Pod, "db-0-0"), stage.history().len()), (pod.clone(), 1));

    // A fleet adopts the node, under the old hash and then under the new hash of the same content.
    stage.change_node(&json!({"spec": {"grantedHash": old, "grantID": "one"}}));
    stage.node_settles().await;
    assert_eq!(stage.node()["status"]["spentGrantID"], "one");
    let spec: crate::api::StatefulNodeSpec = serde_json::from_value(template("v1")).unwrap();
    let rendered = crate::render::pod_template(&spec, None, &RenderOptions::default()).unwrap();
    let new = crate::revision::pod_template_hash(&rendered);
    assert!(new.as_str().starts_with("v2:"), "{new}");
    stage.change_node(&json!({"spec": {"grantedHash": new, "grantID": "two"}}));
    stage.node_settles().await;
    let status = stage.node()["status"].clone();
    assert_eq!((&status["spentGrantID"], &status["podTemplateHash"]), (&json!("two"), &json!(new)));
    assert_eq!((stage.get(Kind::Pod, "db-0-0"), stage.history().len()), (pod, 1));

    stage.change_node(&json!({"spec": {"image": "db:v2", "grantedHash": null, "grantID": null}}));
    stage.node_settles().await;
    let status = stage.node()["status"].clone();
    assert!(status["podTemplateHash"].as_str().unwrap().starts_with("v2:"), "{status:#}");
    assert_eq!(
        stage.get(Kind::StatefulSet, "db-0")["metadata"]["annotations"]["windlass.dev/pod-template-hash"],
        status["podTemplateHash"]
    );
    assert_eq!(stage.history().len(), 2);
}
