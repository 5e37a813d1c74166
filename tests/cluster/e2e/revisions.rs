//! The stored revisions of a fleet.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::controlplane::{ControlPlane, Options};
use windlass_harness::kit::{PATIENCE, World, condition, fleet};

async fn kept(world: &World) -> BTreeSet<String> {
    let revisions = world.list(&world.api("apps/v1", "ControllerRevision")).await;
    let of_fleet = |r: &&Value| r["metadata"]["labels"]["windlass.dev/node"].is_null();
    revisions
        .iter()
        .filter(of_fleet)
        .map(|r| {
            assert_eq!(r["metadata"]["labels"]["windlass.dev/deployment"], "db", "{r:#}");
            r["metadata"]["name"].as_str().unwrap().to_owned()
        })
        .collect()
}

fn name(value: &Value) -> String {
    value.as_str().expect("a revision's name").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn old_revisions_go_beyond_the_limit_and_those_that_are_referred_to_stay() {
    let world = World::new("rev").await;
    let mut wanted = fleet(2, "db:1");
    wanted["spec"]["revisionHistoryLimit"] = json!(1);
    world.fleet(wanted).await;
    let mut names = vec![name(&world.until_applied().await["status"]["currentRevision"])];
    for image in ["db:2", "db:3", "db:4"] {
        world.set_image(image).await;
        let done = world.until_applied().await;
        assert_eq!(done["status"]["currentRevision"], done["status"]["updateRevision"]);
        names.push(name(&done["status"]["currentRevision"]));
    }
    world.until_quiet().await;
    assert_eq!(kept(&world).await, BTreeSet::from([names[2].clone(), names[3].clone()]), "of {names:?}");

    // What runs, what is rolled out and the last target are all referenced.
    world.set_image("db:5-nope").await;
    world.until_db("it is broken", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    world.set_image("db:6-nope").await;
    let broken = world
        .until_db("it is broken again", |db| {
            db["status"]["rollout"]["nodes"]["failed"] == 1
                && db["status"]["history"].as_array().is_some_and(|h| h.len() == 4)
        })
        .await;
    let still = kept(&world).await;
    assert!(
        still.contains(&names[3]) && still.contains(&name(&broken["status"]["updateRevision"])),
        "{still:?}"
    );

    world.set_image("db:1").await;
    let back = world.until_applied().await;
    assert_eq!(
        back["status"]["currentRevision"],
        json!(names[0]),
        "one that was pruned is stored under its name again"
    );
    assert_eq!(world.images().await, ["db:1"; 2]);
    world.until_quiet().await;
    let last = kept(&world).await;
    assert_eq!(last.len(), 2, "{last:?}");
    assert!(last.contains(&names[0]), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_strategy_that_was_stored_before_is_read_as_in_place_and_says_so() {
    // A separate control plane: changing a definition ends every watch of its kind.
    let cp: &'static ControlPlane =
        Box::leak(Box::new(ControlPlane::start(Options::default()).await.expect("a control plane")));
    let mut world = World::on(cp, "empty").await;
    let definition = "nodedeployments.windlass.dev";
    let words = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/updateStrategy/properties/type/enum";
    let patch = async |change: Value| {
        let change = json!([change]).to_string();
        let said = cp.kubectl(&["patch", "crd", definition, "--type=json", "-p", &change]).await;
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    };
    // As an older version's definition would have allowed it.
    patch(json!({"op": "add", "path": format!("{words}/-"), "value": ""})).await;
    let mut stored = fleet(2, "db:1");
    stored["spec"]["updateStrategy"]["type"] = json!("");
    let until = tokio::time::Instant::now() + PATIENCE;
    while let Err(refused) = world.try_create("windlass.dev/v1alpha1", "NodeDeployment", stored.clone()).await
    {
        assert!(tokio::time::Instant::now() < until, "{refused}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    patch(json!({"op": "remove", "path": format!("{words}/3")})).await;
    world.start_operator(&[]).await;
    let done = world.until_applied().await;
    assert_eq!(condition(&done, "UpToDate"), "True/Applied");
    let sentence = windlass_harness::kit::tools::message(&done, "UpToDate");
    assert!(sentence.contains("InPlace") && sentence.contains("empty"), "{sentence}");
    assert_eq!(world.images().await, ["db:1"; 2]);
}
