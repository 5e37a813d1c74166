//! The cases of a fixed build ID.

use serde_json::{Value, json};

use crate::stage::{Stage, spec, template};

async fn with_id(tag: &str, id: &str) -> Stage {
    let mut spec = spec(tag);
    spec["unsafeCustomBuildID"] = json!(id);
    let (s, _) = Stage::running(spec).await;
    s
}

#[tokio::test(start_paused = true)]
async fn workers_without_a_recorded_hash_are_not_restarted() {
    let s = with_id("v1", "blue").await;
    let name = s.names().remove(0);
    let strip = json!({"metadata": {"annotations": {"windlass.dev/template-hash": Value::Null}}});
    let params = kube::api::PatchParams::default();
    let generation = s.deployments()[0]["metadata"]["generation"].clone();
    s.api("Deployment").patch(&name, &params, &kube::api::Patch::Merge(strip)).await.unwrap();
    s.until("it is written down", |s| {
        s.deployments()[0]["metadata"]["annotations"]["windlass.dev/template-hash"].is_string()
    })
    .await;
    assert_eq!(s.deployments()[0]["metadata"]["generation"], generation);
    assert_eq!(s.status()["history"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_templates_with_one_build_id_are_one_version() {
    let s = with_id("v1", "blue").await;
    s.set_image("v2").await;
    s.until_current(&s.target().await).await;
    s.set_image("v3").await;
    s.until_current(&s.target().await).await;
    assert_eq!(s.names().len(), 1);
    assert_eq!(s.status()["versions"].as_array().unwrap().len(), 1);
}

/// Each case's versions, whether a rollout started, and whether a Deployment was created.
#[tokio::test(start_paused = true)]
async fn build_id_cases_match_the_table() {
    struct Case {
        what: &'static str,
        /// The initial build ID and image.
        from: (Option<&'static str>, &'static str),
        /// The patches, applied in order.
        patches: Vec<Value>,
        /// How many times a version became current in total.
        current: usize,
        /// The current build ID at the end; `*`: one generated from the image's tag.
        ends_on: &'static str,
        /// The number of Deployments at the end.
        deployments: usize,
    }
    let id = |id: Value| json!({"spec": {"unsafeCustomBuildID": id}});
    let image = |tag: &str| json!({"spec": {"template": template(tag)}});
    let blue = (Some("blue"), "v1");
    let case = |what, from, patches, current, ends_on, deployments| Case {
        what,
        from,
        patches,
        current,
        ends_on,
        deployments,
    };
    let gone = json!({"spec": {"sunset": {"scaleDownDelaySeconds": 0, "deleteDelaySeconds": 0}}});
    let cases = [
        case("unset", (None, "v1"), vec![image("v2")], 2, "v2-*", 2),
        case("set, first time", (None, "v1"), vec![id(json!("blue"))], 2, "blue", 2),
        case("same ID, template changed", blue, vec![image("v2")], 1, "blue", 1),
        case(
            "same ID, same template",
            blue,
            vec![id(json!("blue")), json!({"spec": {"replicas": 3}})],
            1,
            "blue",
            1,
        ),
        case("new ID, equal template", blue, vec![id(json!("green"))], 2, "green", 2),
        case("an earlier ID that lives", blue, vec![id(json!("green")), id(json!("blue"))], 3, "blue", 2),
        case(
            "an earlier ID that is gone",
            blue,
            vec![id(json!("green")), gone, id(json!("blue"))],
            3,
            "blue",
            1,
        ),
        case("removed", blue, vec![id(Value::Null)], 2, "v1-*", 2),
        // The ninth case is about objects:
        // workers_without_a_recorded_hash_are_not_restarted.
        case("nothing recorded", blue, vec![json!({"metadata": {"labels": {"seen": "yes"}}})], 1, "blue", 1),
    ];
    for Case { what, from, patches, current, ends_on, deployments } in cases {
        let mut spec = spec(from.1);
        spec["sunset"] = json!({"scaleDownDelaySeconds": 9000, "deleteDelaySeconds": 9000});
        spec["unsafeCustomBuildID"] = json!(from.0);
        let (s, _) = Stage::running(spec).await;
        for patch in patches {
            s.patch(patch.clone()).await;
            s.until_current(&s.target().await).await;
            if patch["spec"]["sunset"].is_object() {
                s.until("the other is gone", |s| {
                    s.names().len() == 1 && s.status()["versions"].as_array().unwrap().len() == 1
                })
                .await;
            }
        }
        s.until("the Deployments are as many as they should be", |s| s.names().len() == deployments).await;
        s.seconds(30).await;
        let ended = s.status()["currentBuildID"].as_str().unwrap().to_owned();
        let is_it = ends_on.strip_suffix('*').map_or(ended == ends_on, |tag| ended.starts_with(tag));
        assert!(is_it, "{what}: it ends on {ended}");
        let became = s.ramps().iter().filter(|percent| **percent == 100).count();
        assert_eq!((became, s.names().len()), (current, deployments), "{what}: {:?}", s.ramps());
    }
}

#[tokio::test(start_paused = true)]
async fn new_template_under_the_ramping_build_id_restarts_the_ramp() {
    let mut own = spec("v1");
    own["rollout"]["steps"] =
        json!([{"percent": 5, "pauseSeconds": 5}, {"percent": 50, "pauseSeconds": 3000}]);
    let (s, _) = Stage::running(own).await;
    s.patch(json!({"spec": {"unsafeCustomBuildID": "green", "template": template("v2")}})).await;
    s.until("half of the tasks go there", |s| s.status()["rampPercent"] == 50).await;
    s.set_image("v3").await;
    s.until("it ramps anew", |s| s.ramps().ends_with(&[50, 0, 5])).await;
}

#[tokio::test(start_paused = true)]
async fn current_workers_are_recreated_while_a_new_template_is_held() {
    let mut own = spec("v1");
    own["unsafeCustomBuildID"] = json!("blue");
    let (s, blue) = Stage::running(own).await;
    s.patch(json!({"spec": {"paused": true, "template": template("v2")}})).await;
    s.until("it is held up", |s| s.condition("RolloutInProgress") == "True/Paused").await;
    let image = |s: &Stage| {
        let of = s.deployment_of(&blue)?;
        of["spec"]["template"]["spec"]["containers"][0]["image"].as_str().map(str::to_owned)
    };
    let before = image(&s);
    let name = s.names()[0].clone();
    s.api("Deployment").delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    s.until("they are there, as they were", |s| s.deployment_of(&blue).is_some()).await;
    assert_eq!(image(&s), before);
    s.seconds(3600).await;
    assert_eq!(image(&s), before, "paused is paused");
    assert_eq!(s.condition("Stalled"), "False/Progressing", "and is no stall: {}", s.message("UpToDate"));
    assert_eq!(s.events("RolloutStalled"), 0);
    s.patch(json!({"spec": {"paused": false}})).await;
    s.until("the other template is there", |s| image(s).is_some_and(|image| image.ends_with("v2"))).await;
    s.until_current(&blue).await;
}
