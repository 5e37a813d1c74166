//! Platform policies that overrule what Windlass writes: the write is not repeated at every look.

use serde_json::{Value, json};
use windlass_sim::{Mutation, Policy, Target};

use super::sets::world::{NODE, World, blue_green, fleet, is_up_to_date, play, text};

const SET: (&str, &str) = ("apps/v1", "StatefulSet");
const SERVICE: (&str, &str) = ("v1", "Service");
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
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
fn a_label_that_a_policy_overwrites_is_sent_once_to_each_object_and_once_more_when_another_is_wanted() {
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
fn a_field_of_a_stateful_set_that_a_policy_changes_is_said_and_set_once_a_minute_until_the_policy_is_gone() {
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
                "InvalidSpec: StatefulSet db-1: {expected}, and setting it back has no effect: exempt the StatefulSets of \
                 Windlass from the admission policy that changes it"
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

/// True if all nodes serve and nothing is under way, whatever stands in the conditions.
fn is_settled(status: &Value) -> bool {
    status["rollout"].is_null() && status["retiring"].is_null() && status["phase"] == "Ready"
}

#[test]
fn objects_that_a_policy_gives_to_another_manager_come_and_go_as_any_and_the_nodes_say_so() {
    for (kind, resource) in
        [(SET, "statefulsets.apps"), (SERVICE, "services"), (NODE, "statefulnodes.windlass.dev")]
    {
        play(|w| async move {
            // No watch shows such a StatefulSet or Service, nor that it is gone.
            let label = Mutation::Label(MANAGED_BY.to_owned(), "platform".to_owned());
            w.cluster.admit(Policy::new("managers", Target::MetadataOf(kind.1), label));
            // Of its own Service the fleet says it.
            let is_done = move |s: &Value| if kind == SERVICE { is_settled(s) } else { is_up_to_date(s) };
            w.create(blue_green(3, json!({"promotion": "WhenReady", "retireDelaySeconds": 5}))).await;
            w.until("it is made", is_done).await;
            w.change(json!({"replicas": 2})).await;
            w.until("one has left", |s| s["readyReplicas"] == 2 && w.names(SET).len() == 2).await;
            w.rest(60).await;
            w.change(json!({"replicas": 3})).await;
            w.until("it is there again", |s| s["readyReplicas"] == 3 && is_done(s)).await;
            w.image("db:2").await;
            let is_rolled = |s: &Value| {
                let images = w.images();
                images.len() == 3 && images.iter().all(|image| image.ends_with("db:2")) && is_done(s)
            };
            w.until("another set has taken over", is_rolled).await;
            assert_eq!(w.names(SET).len(), 3, "{:?}", w.names(SET));

            // At rest nothing is written but what changes nothing, once a minute at most.
            w.rest(120).await;
            w.cluster.clear_audit();
            let version = w.cluster.version();
            w.rest(900).await;
            assert_eq!(w.cluster.version(), version, "{resource}");
            let (tried, objects) = (futile(&w, resource), w.names(kind).len());
            assert!((1..=16 * objects).contains(&tried), "{tried} in 15 minutes, {objects} {resource}");
            let said_of = |name: &str| {
                format!(
                    "InvalidSpec: {0} {name}: label {MANAGED_BY} is platform instead of windlass, and setting it back has no \
                     effect: exempt the {0}s of Windlass from the admission policy that changes it",
                    kind.1
                )
            };
            for node in w.names(NODE) {
                assert_eq!(stalled(&w, &node), said_of(&node));
            }
            // The fleet's own Service stays as it is, and is looked for as often as a node's.
            let audit = w.cluster.audit();
            let looks =
                audit.iter().filter(|e| e.verb == "get" && e.resource == "services" && e.name == "db");
            let (looks, of_fleet) = (looks.count(), stands_still(&w.status()));
            if kind == SERVICE {
                assert!((25..=35).contains(&looks), "{looks} in 15 minutes");
                assert_eq!(of_fleet, said_of("db"));
            } else {
                assert_eq!((looks, of_fleet.as_str()), (0, ""));
            }

            // Once the policy is gone, the labels are put back.
            w.cluster.withdraw("managers");
            w.rest(900).await;
            for name in w.names(kind) {
                assert_eq!(w.get(kind, &name)["metadata"]["labels"][MANAGED_BY], "windlass", "{name}");
            }
            assert!(w.names(NODE).iter().all(|node| stalled(&w, node).is_empty()));
            assert!(is_up_to_date(&w.status()), "{:?}", w.status());
            w.is_at_rest().await;
        });
    }
}
