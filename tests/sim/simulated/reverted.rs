//! Platform policies that overrule what Windlass writes: the write is not repeated at every look.

use serde_json::{Value, json};
use windlass_sim::{Mutation, Policy, Target};

use super::sets::world::{NODE, SERVICE, SET, World, fleet, is_up_to_date, play, text};

const NODES: usize = 4;

/// The patches of these resources since the audit was cleared that changed nothing.
fn futile(w: &World, resource: &str) -> usize {
    let audit = w.cluster.audit();
    let patches = audit.iter().filter(|e| e.verb == "patch" && e.resource == resource && e.is_write());
    patches.filter(|e| e.subresource.is_empty() && e.code == 200 && e.wrote.0 == e.wrote.1).count()
}

/// The labels of the nodes' objects of a kind. The fleet's own Service is none.
fn labels(w: &World, kind: (&str, &str)) -> Vec<Value> {
    let all = w.names(kind).into_iter().map(|name| w.get(kind, &name)["metadata"]["labels"].clone());
    all.filter(|labels| labels["windlass.dev/node"].is_string()).collect()
}

async fn until_labelled(w: &World, kind: (&str, &str), team: &str, tier: &str) {
    for _ in 0..120 {
        if labels(w, kind).iter().all(|labels| labels["team"] == team && labels["tier"] == tier) {
            return;
        }
        w.rest(1).await;
    }
    panic!("{kind:?}: {:?}", labels(w, kind));
}

fn wish(team: &str, tier: &str) -> Value {
    json!({"template": {"metadata": {"labels": {"team": team, "tier": tier}}}})
}

#[test]
fn label_overwritten_by_a_policy_is_sent_once_per_change() {
    for (kind, resource) in
        [(NODE, "statefulnodes.windlass.dev"), (SET, "statefulsets.apps"), (SERVICE, "services")]
    {
        play(|w| async move {
            w.serve(fleet(NODES as i32, json!({"type": "InPlace"}))).await;
            let label = Mutation::Label("team".to_owned(), "platform".to_owned());
            w.cluster.admit(Policy::new("teams", Target::MetadataOf(kind.1), label));
            w.change(wish("one", "db")).await;
            until_labelled(&w, kind, "platform", "db").await;
            w.rest(120).await;
            w.cluster.clear_audit();
            w.image("db:2").await;
            w.until("it is rolled", |s| is_up_to_date(s) && s["updatedReplicas"] == NODES).await;
            w.rest(600).await;
            assert!(w.images().iter().all(|image| image.ends_with("db:2")), "{:?}", w.images());
            assert_eq!(futile(&w, resource), 0, "{resource}");

            // Somebody else's change of a label that no policy is about is put back.
            let hand = json!({"metadata": {"labels": {"tier": "by-hand"}}});
            w.merge(kind, "db-1", &hand).await;
            until_labelled(&w, kind, "platform", "db").await;

            // Another wish is sent, in vain, and arrives with the next one once the policy is gone.
            w.cluster.clear_audit();
            w.change(wish("two", "db")).await;
            w.rest(120).await;
            assert_eq!(futile(&w, resource), NODES, "{resource}");
            w.cluster.withdraw("teams");
            w.change(wish("three", "db")).await;
            until_labelled(&w, kind, "three", "db").await;
            w.is_at_rest().await;
        });
    }
}

/// What keeps a node from what was asked of it.
fn stalled(w: &World, node: &str) -> String {
    stands_still(&w.get(NODE, node)["status"])
}

fn stands_still(status: &Value) -> String {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|c| c["type"] == "Stalled" && c["status"] == "True");
    found.map(|c| format!("{}: {}", text(c, "reason"), text(c, "message"))).unwrap_or_default()
}

#[test]
fn field_changed_by_a_policy_is_reported_and_reset_each_minute() {
    let cases = [
        (
            Mutation::UpdateStrategy("RollingUpdate".to_owned()),
            r#"spec.updateStrategy is {"type":"RollingUpdate"} instead of {"type":"OnDelete"}"#,
        ),
        (Mutation::MinReplicas(2), "spec.replicas is 2 instead of 1"),
    ];
    for (mutation, expected) in cases {
        play(|w| async move {
            w.serve(fleet(2, json!({"type": "InPlace"}))).await;
            w.cluster.admit(Policy::new("fields", Target::StatefulSets, mutation));
            // A person's write brings the policy into the StatefulSet.
            w.merge(SET, "db-1", &json!({"metadata": {"labels": {"team": "one"}}})).await;
            w.rest(60).await;
            let said = format!(
                "InvalidSpec: StatefulSet db-1: {expected}, and restoring it has no effect: exempt the StatefulSets \
                 of Windlass from the admission policy that changes it"
            );
            assert_eq!((stalled(&w, "db-1"), stalled(&w, "db-0")), (said.clone(), String::new()));
            w.cluster.clear_audit();
            let version = w.cluster.version();
            for step in 0..300 {
                w.merge(NODE, "db-1", &json!({"metadata": {"annotations": {"step": step.to_string()}}}))
                    .await;
                w.rest(2).await;
                assert_eq!(stalled(&w, "db-1"), said);
            }
            let tried = futile(&w, "statefulsets.apps");
            assert!((9..=11).contains(&tried), "{tried} times in ten minutes, whatever else happens");
            assert_eq!(w.cluster.version(), version + 300, "nothing but the test's own writes");

            // Another wish is tried at once, and the rest of the node's work goes on.
            w.image("db:2").await;
            w.rest(300).await;
            assert!(w.images().contains(&"db-1-0 db:2".to_owned()), "{:?}", w.images());
            w.cluster.withdraw("fields");
            w.rest(120).await;
            let spec = w.get(SET, "db-1")["spec"].clone();
            assert_eq!((&spec["replicas"], &spec["updateStrategy"]["type"]), (&json!(1), &json!("OnDelete")));
            assert_eq!(stalled(&w, "db-1"), "");
            w.until("all is well", is_up_to_date).await;
            w.is_at_rest().await;
        });
    }
}
