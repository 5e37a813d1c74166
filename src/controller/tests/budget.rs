//! Reconciles of a fleet's PodDisruptionBudget. Nothing else depends on it.

use super::fleet::fleet_spec;
use super::*;

const KIND: Kind = Kind::PodDisruptionBudget;

fn foreign() -> Value {
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "y", "controller": true}]);
    json!({"metadata": {"ownerReferences": owner}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}})
}

impl Stage {
    fn budget(&self) -> Value {
        self.get(KIND, "db")["spec"].clone()
    }

    /// Reason and message of the condition; both are empty if there is none.
    fn problem(&self) -> (String, String) {
        let (status, reason, message) = condition(&self.fleet(), "DisruptionBudgetReady");
        assert_eq!(status.is_empty(), reason.is_empty());
        assert!(status.is_empty() || status == "False", "{status}");
        (reason, message)
    }

    /// The rest of the fleet is as without a problem.
    async fn rolls_to(&self, version: &str) {
        let image = format!("db:{version}");
        self.change_fleet(&json!({"spec": {"template": {"spec": {"image": image}}}}));
        self.settle().await;
        let fleet = self.fleet();
        let is = |type_: &str| condition(&fleet, type_).1;
        let all = [is("Ready"), is("UpToDate"), is("Stalled"), is("Reconciling")];
        assert_eq!(all, ["AllNodesReady", "Applied", "Progressing", "Settled"], "{fleet:#}");
        assert!(self.get(Kind::StatefulNode, "db-0")["spec"]["image"] == image.as_str());
    }

    async fn idles(&self) {
        self.calls();
        for _ in 0..3 {
            self.look_at_fleet().await.unwrap();
            self.pass(40).await;
        }
        assert_eq!(self.calls(), [""; 0]);
    }
}

fn none() -> (String, String) {
    (String::new(), String::new())
}

#[tokio::test(start_paused = true)]
async fn budget_is_created_repaired_and_deleted() {
    let mut spec = fleet_spec(3, "v1");
    spec["deletionPolicy"] = json!("Retain");
    let stage = Stage::serving(spec).await;
    let selector = json!({"matchLabels": {"windlass.dev/deployment": "db", "windlass.dev/set": "first"}});
    assert_eq!(stage.budget(), json!({"minAvailable": 2, "selector": selector}));
    let created = stage.get(KIND, "db")["metadata"].clone();
    assert_eq!(created["ownerReferences"][0]["uid"], "uid of db", "also under Retain: {created:#}");
    assert_eq!(created["labels"]["app.kubernetes.io/managed-by"], "windlass");
    assert_eq!(stage.problem(), none());
    stage.idles().await;

    let policy = "unhealthyPodEvictionPolicy";
    let edit = json!({"metadata": {"labels": {"mine": "x"}, "annotations": {"note": "y"}},
        "spec": {"minAvailable": null, "maxUnavailable": 3, "selector": {"matchLabels": {"app": "z"}}, policy: "AlwaysAllow"}});
    stage.change(KIND, "db", &edit);
    stage.settle().await;
    assert_eq!(stage.budget(), json!({"minAvailable": 2, "selector": selector, policy: "AlwaysAllow"}));
    let kept = stage.get(KIND, "db")["metadata"].clone();
    assert_eq!((&kept["labels"]["mine"], &kept["annotations"]["note"]), (&json!("x"), &json!("y")));
    stage.change(KIND, "db", &json!({"spec": {"minAvailable": "50%"}}));
    stage.settle().await;
    assert_eq!(stage.budget()["minAvailable"], 2);

    stage.change_fleet(&json!({"spec": {"replicas": 5}}));
    stage.settle().await;
    assert_eq!(stage.budget()["minAvailable"], 4);
    stage.change_fleet(&json!({"spec": {"updateStrategy": {"inPlace": {"maxUnavailable": "40%"}}}}));
    stage.settle().await;
    assert_eq!(stage.budget()["minAvailable"], 3);

    for (off, on) in [
        (json!({"disruptionBudget": "None"}), json!({"disruptionBudget": "Managed"})),
        (json!({"replicas": 1}), json!({"replicas": 5})),
    ] {
        stage.change_fleet(&json!({"spec": off}));
        stage.settle().await;
        assert_eq!((stage.names(KIND).len(), stage.problem()), (0, none()), "{off}");
        stage.idles().await;
        stage.change_fleet(&json!({"spec": on}));
        stage.settle().await;
        assert_eq!(stage.budget()["minAvailable"], 3, "{on}");
    }
    stage.remove(KIND, "db");
    stage.settle().await;
    assert_eq!(stage.budget()["minAvailable"], 3, "somebody deleted it");
}

#[tokio::test(start_paused = true)]
async fn taken_name_of_the_budget_stops_nothing() {
    let mut stage = Stage::new();
    stage.put(KIND, "db", foreign());
    let theirs = stage.get(KIND, "db");
    stage.put(Kind::NodeDeployment, "db", json!({"spec": fleet_spec(3, "v1")}));
    stage.settle().await;
    let message = "PodDisruptionBudget db belongs to Deployment x (uid y); Windlass does not touch it: delete it, or \
                   set disruptionBudget to None";
    let problem = ("NameTaken".to_owned(), message.to_owned());
    assert_eq!(stage.problem(), problem);
    let told = stage.told().await;
    assert_eq!(told.iter().filter(|told| **told == problem).count(), 1, "{told:#?}");
    stage.rolls_to("v2").await;
    assert_eq!((stage.problem(), stage.get(KIND, "db")), (problem, theirs));
    assert!(!stage.reasons().await.contains(&"NameTaken".to_owned()));
    stage.idles().await;
    let next = stage.look_at_fleet().await.unwrap();
    assert_eq!(seconds(next), Some(30));
    // The next process does not repeat the event.
    let (events, send) = Events::new(stage.port.clone(), stage.cx.view.clone(), stage.clock.clone(), "next");
    tokio::spawn(send);
    stage.cx.events = events;
    stage.look_at_fleet().await.unwrap();
    assert_eq!(stage.reasons().await, [""; 0]);

    stage.change_fleet(&json!({"spec": {"disruptionBudget": "None"}}));
    stage.settle().await;
    assert_eq!((stage.problem(), stage.names(KIND).len()), (none(), 1));
    stage.change_fleet(&json!({"spec": {"disruptionBudget": "Managed"}}));
    stage.settle().await;
    assert_eq!(stage.problem().0, "NameTaken");
    stage.remove(KIND, "db");
    stage.settle().await;
    assert_eq!((stage.problem(), &stage.budget()["minAvailable"]), (none(), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn budget_of_another_over_the_pods_removes_ours() {
    let mut spec = fleet_spec(3, "v1");
    spec["template"]["spec"]["podTemplate"]["metadata"] = json!({"labels": {"app": "db"}});
    let stage = Stage::serving(spec).await;
    let other = |labels: &Value| json!({"spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}});
    stage.put(KIND, "theirs", other(&json!({"app": "web"})));
    stage.idles().await;
    assert_eq!((stage.problem(), stage.names(KIND).len()), (none(), 2));

    stage.change(KIND, "theirs", &other(&json!({"app": "db"})));
    stage.settle().await;
    let (reason, message) = stage.problem();
    assert_eq!((reason.as_str(), stage.names(KIND)), ("BudgetsOverlap", vec!["theirs".to_owned()]));
    assert!(message.starts_with("PodDisruptionBudget theirs selects pods of this fleet"), "{message}");
    let told = stage.told().await;
    assert_eq!(told.iter().filter(|told| told.0 == reason && told.1 == message).count(), 1, "{told:#?}");
    stage.rolls_to("v2").await;
    stage.idles().await;

    // The labels of existing pods count, whatever the template says.
    let pod = json!({"metadata": {"labels": {"app": "mesh", "windlass.dev/deployment": "db",
        "windlass.dev/set": "first", "windlass.dev/node": "db-0"}}});
    stage.put(Kind::Pod, "db-0-0", pod);
    stage.settle().await;
    assert_eq!((stage.problem(), stage.names(KIND).len()), (none(), 2));
    stage.change(KIND, "theirs", &other(&json!({"app": "mesh"})));
    stage.settle().await;
    assert_eq!((stage.problem().0.as_str(), stage.names(KIND).len()), ("BudgetsOverlap", 1));
    // A set that does not serve has no budget of the fleet.
    let labels = json!({"metadata": {"labels": {"windlass.dev/set": "other"}}});
    stage.change(Kind::Pod, "db-0-0", &labels);
    stage.settle().await;
    assert_eq!((stage.problem(), stage.names(KIND).len()), (none(), 2));
    // Windlass' own budget of another fleet.
    let labels = json!({"app.kubernetes.io/managed-by": "windlass", "windlass.dev/deployment": "db2"});
    stage.change(KIND, "theirs", &json!({"metadata": {"labels": labels}, "spec": {"selector": null}}));
    stage.settle().await;
    assert_eq!((stage.problem(), stage.names(KIND).len()), (none(), 2));
}

#[tokio::test(start_paused = true)]
async fn rejected_budget_is_reported_and_retried() {
    let errors = [
        (refused("no"), "the API server rejects it: no; Windlass retries. "),
        (
            forbidden("exceeded quota"),
            "the API server currently forbids it: it: exceeded quota; if a permission",
        ),
    ];
    for (error, words) in errors {
        let stage = Stage::new();
        stage.fail("create PodDisruptionBudget", error.clone());
        stage.put(Kind::NodeDeployment, "db", json!({"spec": fleet_spec(3, "v1")}));
        stage.settle().await;
        let (reason, message) = stage.problem();
        assert!(reason == "Rejected" && message.starts_with(words), "{reason}: {message}");
        assert!(message.ends_with("set disruptionBudget to None"), "{message}");
        stage.rolls_to("v2").await;
        let next = stage.look_at_fleet().await.unwrap();
        assert_eq!((seconds(next), stage.problem()), (Some(30), (reason, message)));
        stage.mend();
        stage.settle().await;
        assert_eq!((stage.problem(), &stage.budget()["minAvailable"]), (none(), &json!(2)));
        for (call, change) in [
            ("patch PodDisruptionBudget", json!({"spec": {"replicas": 4}})),
            ("delete PodDisruptionBudget", json!({"spec": {"disruptionBudget": "None"}})),
        ] {
            stage.fail(call, error.clone());
            stage.change_fleet(&change);
            stage.settle().await;
            assert_eq!(stage.problem().0, "Rejected", "{call}");
            stage.rolls_to(&format!("of-{}", &call[..5])).await;
            stage.mend();
            stage.settle().await;
            assert_eq!(stage.problem(), none(), "{call}");
        }
        assert_eq!(stage.names(KIND), [""; 0]);
    }
    // Another error is retried like any other, and the rest is done.
    let stage = Stage::new();
    stage.fail("create PodDisruptionBudget", busy());
    stage.put(Kind::NodeDeployment, "db", json!({"spec": fleet_spec(3, "v1")}));
    assert!(stage.look_at_fleet().await.is_err());
    assert_eq!((stage.names(Kind::StatefulNode).len(), stage.problem()), (3, none()));
}

#[tokio::test(start_paused = true)]
async fn budget_that_admission_changes_is_written_once_a_minute() {
    let stage = Stage::serving(fleet_spec(3, "v1")).await;
    let least = |budget: &mut Value| budget["spec"]["minAvailable"] = json!(1);
    stage.admits_of(KIND, least);
    stage.change_fleet(&json!({"spec": {"replicas": 4}}));
    stage.settle().await;
    let (reason, message) = stage.problem();
    let words = "PodDisruptionBudget db: spec.minAvailable is 1 instead of 3, and restoring it has no effect";
    assert!(reason == "Rejected" && message.starts_with(words), "{reason}: {message}");
    stage.calls();
    for _ in 0..12 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(10).await;
    }
    let written = stage.calls();
    assert!((1..=2).contains(&written.len()), "{written:?}");
    assert!(
        written.iter().all(|call| call == "patch PodDisruptionBudget db /spec/minAvailable"),
        "{written:?}"
    );
    stage.admits_of(KIND, |_| {});
    stage.pass(60).await;
    stage.settle().await;
    assert_eq!((stage.problem(), &stage.budget()["minAvailable"]), (none(), &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn budget_follows_the_set_that_serves() {
    let mut spec = fleet_spec(2, "v1");
    spec["updateStrategy"] = json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual"},
        "hooks": [{"name": "look", "at": "AfterPromotion", "approval": {}}]});
    let stage = Stage::serving(spec).await;
    let selected = || stage.budget()["selector"]["matchLabels"]["windlass.dev/set"].clone();
    assert_eq!((selected(), &stage.budget()["minAvailable"]), (json!("first"), &json!(1)));
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v2"}}}}));
    stage.settle().await;
    let rollout = stage.fleet()["status"]["rollout"].clone();
    assert_eq!((&rollout["stage"], selected()), (&json!("AwaitingPromotion"), json!("first")));
    let target = rollout["targetHash"].clone();
    stage.change_fleet(&json!({"spec": {"forcePromote": target}}));
    stage.settle().await;
    let status = stage.fleet()["status"].clone();
    assert_eq!((&status["rollout"]["stage"], &status["activeSet"]), (&json!("Promoting"), &json!("first")));
    assert_eq!(selected(), rollout["entrantSet"], "traffic is moved, and a hook is left");
    stage.annotate("windlass.dev/abort", status["plan"]["id"].as_str().unwrap());
    stage.settle().await;
    assert_eq!((selected(), &stage.fleet()["status"]["activeSet"]), (json!("first"), &json!("first")));
}
