//! Restarts on a change of ConfigMaps and Secrets.

use serde_json::{Value, json};

use super::sets::world::{
    POD, REVISION, World, blue_green, condition, fleet, is_up_to_date, message, play, text, to_text,
};

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
const SECRET: (&str, &str) = ("v1", "Secret");
const DIGEST: &str = "windlass.dev/config-digest";

fn config(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "db-conf"}, "data": {"size": value}})
}

fn secret(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db-tls"}, "data": {"tls.crt": value}})
}

/// The fleet with the annotation in its pod template.
fn following(mut fleet: Value, named: &str) -> Value {
    fleet["spec"]["template"]["spec"]["podTemplate"]["metadata"] =
        json!({"annotations": {"windlass.dev/restart-on": named}});
    fleet
}

const BOTH: &str = "configmap/db-conf,secret/db-tls";

fn digests(w: &World) -> Vec<String> {
    let pods = w.names(POD);
    let digest = |pod: &String| text(&w.get(POD, pod)["metadata"]["annotations"], DIGEST).to_owned();
    let mut found: Vec<String> = pods.iter().map(digest).collect();
    found.sort();
    found.dedup();
    found
}

fn uids(w: &World) -> Vec<String> {
    w.names(POD).iter().map(|pod| text(&w.get(POD, pod)["metadata"], "uid").to_owned()).collect()
}

async fn set(w: &World, kind: (&str, &str), name: &str, data: Value) {
    w.merge(kind, name, &json!({"data": data})).await;
}

/// Waits until all pods have another digest than this.
async fn until_rolled(w: &World, before: &[String]) -> String {
    w.until("the pods have another digest", |status| {
        let now = digests(w);
        is_up_to_date(status) && now.len() == 1 && now != before
    })
    .await;
    digests(w).remove(0)
}

async fn serve(w: &World, replicas: i32) -> Vec<String> {
    w.create(config("1")).await;
    w.create(secret("a")).await;
    w.serve(following(fleet(replicas, json!({"type": "InPlace"})), BOTH)).await;
    let found = digests(w);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("configmap/db-conf:") && found[0].contains(",secret/db-tls:"), "{found:?}");
    assert_eq!(text(&w.status(), "configDigest"), found[0]);
    assert!(w.status()["history"].is_null(), "the first pods have the digest: {}", to_text(&w.status()));
    found
}

fn causes(w: &World) -> Vec<String> {
    let cause = |(_, fleet): &(u64, Value)| fleet["status"]["rollout"]["cause"].as_str().map(str::to_owned);
    let mut causes: Vec<String> = w.seen_objects().iter().filter_map(cause).collect();
    causes.dedup();
    causes
}

#[test]
fn change_of_data_restarts_pods_in_waves() {
    play(|w| async move {
        let before = serve(&w, 3).await;
        set(&w, CONFIG_MAP, "db-conf", json!({"size": "2"})).await;
        set(&w, SECRET, "db-tls", json!({"tls.crt": "b"})).await;
        let after = until_rolled(&w, &before).await;
        assert_eq!(causes(&w), ["ConfigChanged"]);
        let status = w.status();
        assert_eq!(status["history"].as_array().map(Vec::len), Some(1), "both at once: {}", to_text(&status));
        assert!(
            w.seen_objects()
                .iter()
                .all(|(_, f)| f["status"]["rollout"]["nodes"]["disrupted"].as_i64() <= Some(1))
        );
        // The revision is stored like any other.
        let stored = w.get(REVISION, text(&status, "currentRevision"));
        assert_eq!(stored["data"]["podTemplate"]["metadata"]["annotations"][DIGEST], after.as_str());
        w.is_at_rest().await;
    });
}

#[test]
fn what_changes_no_data_restarts_nothing() {
    play(|w| async move {
        let before = serve(&w, 2).await;
        let pods = uids(&w);
        let labels = json!({"metadata": {"labels": {"touched": "1"}}});
        w.merge(CONFIG_MAP, "db-conf", &labels).await;
        w.kill_operator();
        w.start_operator();
        w.rest(60).await;
        w.delete(SECRET, "db-tls").await;
        w.rest(60).await;
        w.kill_operator();
        w.start_operator();
        w.rest(60).await;
        w.create(secret("a")).await;
        w.change(json!({"replicas": 3})).await;
        w.until("it is scaled", |status| status["readyReplicas"] == 3).await;
        w.rest(60).await;
        assert_eq!((digests(&w), &uids(&w)[..2]), (before, &pods[..]));
        w.is_at_rest().await;
        // Other data under the same name does.
        let before = digests(&w);
        w.delete(SECRET, "db-tls").await;
        w.create(secret("b")).await;
        until_rolled(&w, &before).await;
    });
}

#[test]
fn change_while_no_operator_runs_is_noticed() {
    play(|w| async move {
        let before = serve(&w, 2).await;
        w.kill_operator();
        set(&w, CONFIG_MAP, "db-conf", json!({"size": "2"})).await;
        w.rest(30).await;
        w.start_operator();
        until_rolled(&w, &before).await;
        assert_eq!(causes(&w), ["ConfigChanged"]);
    });
}

#[test]
fn data_and_template_at_once_are_one_rollout() {
    play(|w| async move {
        let before = serve(&w, 2).await;
        set(&w, CONFIG_MAP, "db-conf", json!({"size": "2"})).await;
        w.image("db:2").await;
        until_rolled(&w, &before).await;
        assert_eq!(causes(&w), ["TemplateChanged"]);
        w.rest(60).await;
        assert_eq!(w.status()["history"].as_array().map(Vec::len), Some(1));
    });
}

#[test]
fn data_and_template_in_the_middle_of_a_rollout_are_one_target() {
    play(|w| async move {
        w.create(config("1")).await;
        w.create(secret("a")).await;
        let mut fleet = following(fleet(4, json!({"type": "InPlace"})), BOTH);
        fleet["spec"]["minReadySeconds"] = json!(20);
        w.serve(fleet).await;
        w.image("db:2").await;
        w.until("two nodes are updated", |status| status["rollout"]["nodes"]["updated"] == 2).await;
        set(&w, CONFIG_MAP, "db-conf", json!({"size": "2"})).await;
        w.image("db:3").await;
        w.until("it is complete", |s| is_up_to_date(s) && w.images().iter().all(|pod| pod.ends_with("db:3")))
            .await;
        w.rest(120).await;
        let status = w.status();
        assert_eq!(status["history"].as_array().map(Vec::len), Some(2), "{}", to_text(&status));
    });
}

#[test]
fn lost_status_of_a_fleet_whose_object_is_gone_restarts_nothing() {
    play(|w| async move {
        let before = serve(&w, 2).await;
        let pods = uids(&w);
        w.delete(SECRET, "db-tls").await;
        w.kill_operator();
        w.patch_status(&json!({"status": {"configDigest": null}})).await;
        w.start_operator();
        w.rest(60).await;
        assert_eq!((digests(&w), uids(&w)), (before, pods));
    });
}

#[test]
fn secret_that_is_renewed_often_does_not_keep_a_rollout_from_ending() {
    play(|w| async move {
        w.create(config("1")).await;
        w.create(secret("0")).await;
        let mut fleet = following(fleet(5, json!({"type": "InPlace"})), BOTH);
        fleet["spec"]["minReadySeconds"] = json!(30);
        w.serve(fleet).await;
        let mut ended = 0;
        for round in 1..=20 {
            set(&w, SECRET, "db-tls", json!({"tls.crt": round.to_string()})).await;
            w.rest(2).await;
            assert!(!is_up_to_date(&w.status()), "a change that waits: {}", to_text(&w.status()));
            w.rest(58).await;
            let history = w.status()["history"].as_array().cloned().unwrap_or_default();
            ended = history.iter().filter(|entry| entry["outcome"] == "Complete").count();
            assert!(history.iter().all(|entry| entry["outcome"] == "Complete"), "{}", to_text(&w.status()));
        }
        assert!(ended >= 4, "{ended} {} {:?} {:?}", to_text(&w.status()), causes(&w), digests(&w));
    });
}

#[test]
fn bad_data_stops_at_the_first_node_and_the_fix_gets_through() {
    play(|w| async move {
        let before = serve(&w, 3).await;
        let pods = uids(&w);
        w.steer("db-2-0", "crash-loop").await;
        set(&w, CONFIG_MAP, "db-conf", json!({"size": "bad"})).await;
        w.until("it is stalled", |status| condition(status, "Stalled") == "True/NoProgress").await;
        assert_eq!(uids(&w)[..2], pods[..2], "the others are kept");
        set(&w, CONFIG_MAP, "db-conf", json!({"size": "good"})).await;
        w.delete(CONFIG_MAP, "steer-db-2-0").await;
        let after = until_rolled(&w, &before).await;
        assert_ne!(after, before[0]);
    });
}

#[test]
fn new_set_of_nodes_has_the_new_data() {
    play(|w| async move {
        w.create(config("1")).await;
        w.serve(following(blue_green(2, json!({"retireDelaySeconds": 1})), "configmap/db-conf")).await;
        let (before, set_before) = (digests(&w), w.selected());
        set(&w, CONFIG_MAP, "db-conf", json!({"size": "2"})).await;
        until_rolled(&w, &before).await;
        assert_ne!(w.selected(), set_before);
    });
}

#[test]
fn object_that_comes_later_restarts_pods_once_it_exists() {
    play(|w| async move {
        w.create(config("1")).await;
        w.serve(following(fleet(2, json!({"type": "InPlace"})), BOTH)).await;
        let before = digests(&w);
        assert!(!before[0].contains("secret/"), "{before:?}");
        let sentence = "windlass.dev/restart-on names secret/db-tls, which does not exist";
        w.until("it says so", |status| message(status, "UpToDate") == sentence).await;
        w.create(secret("a")).await;
        until_rolled(&w, &before).await;
        assert_eq!(message(&w.status(), "UpToDate"), "");
    });
}

#[test]
fn missing_object_that_the_template_names_too_is_one_rollout() {
    play(|w| async move {
        w.create(config("1")).await;
        w.serve(following(fleet(2, json!({"type": "InPlace"})), BOTH)).await;
        let env = json!([{"name": "db", "image": "x", "envFrom": [{"secretRef": {"name": "db-tls"}}]}]);
        w.change(
            json!({"template": {"spec": {"image": "db:2", "podTemplate": {"spec": {"containers": env}}}}}),
        )
        .await;
        w.until("it waits", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        w.rest(300).await;
        w.create(secret("a")).await;
        w.until("it is complete", |s| is_up_to_date(s) && w.images().iter().all(|pod| pod.ends_with("db:2")))
            .await;
        w.rest(120).await;
        assert_eq!(causes(&w), ["TemplateChanged"], "{}", to_text(&w.status()));
        assert!(digests(&w)[0].contains("secret/"));
    });
}

#[test]
fn annotation_that_cannot_be_read_is_refused() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        let pods = uids(&w);
        let named = |named: &str| json!({"template": {"spec": {"podTemplate": {"metadata": {"annotations": {"windlass.dev/restart-on": named}}}}}});
        w.change(named("db-conf")).await;
        let status = w.until("it is refused", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        assert!(
            message(&status, "UpToDate").contains("configmap/NAME or secret/NAME"),
            "{}",
            to_text(&status)
        );
        assert_eq!(uids(&w), pods);
        w.create(config("1")).await;
        w.change(named("configmap/db-conf")).await;
        w.until("it rolls once", |status| is_up_to_date(status) && !digests(&w)[0].is_empty()).await;
    });
}
