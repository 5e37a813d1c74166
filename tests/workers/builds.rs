//! Fixed build IDs, on a real Temporal with real workers.

use serde_json::{Value, json};

use crate::stage::server;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::Farm;

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

#[tokio::test(flavor = "multi_thread")]
async fn under_one_id_workers_are_updated_where_they_are_and_another_id_is_another_version()
-> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "builds").await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "workers-own"}, "stringData": {"TOKEN": "t"},
    });
    let path = farm.place.cluster.cp.folder().join("workers-own.json");
    std::fs::write(&path, secret.to_string())?;
    farm.place.kubectl(&["apply", "-f", &path.display().to_string()]).await?;
    let mut spec = farm.spec("1");
    spec["unsafeCustomBuildID"] = json!("blue");
    spec["connection"]["workerSecret"] = json!("workers-own");
    (spec["maxSurge"], spec["maxUnavailable"]) = (json!(1), json!(0));
    spec["sunset"] = json!({"scaleDownDelaySeconds": 3600, "deleteDelaySeconds": 3600});
    spec["rollout"]["steps"] = json!([{"percent": 5, "pauseSeconds": 1}]);
    farm.create(spec).await?;
    assert_eq!(farm.until_current().await?, "blue");
    assert_eq!(farm.begin("on-blue").await?, "blue");

    let deployment = async || -> Result<Value, Error> {
        let all = farm.place.api("apps/v1", "Deployment").list(&kube::api::ListParams::default()).await?;
        let of = |object: &Value| object["metadata"]["labels"]["windlass.dev/build-id"] == "blue";
        Ok(all.items.into_iter().map(|item| json!(item)).find(of).unwrap_or_default())
    };
    let first = deployment().await?;
    assert_eq!(first["spec"]["strategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    let container = &first["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "workers-own"}}]));

    // The same ID: the template changes in place without a rollout, and the workflow survives it.
    farm.set_image("2").await?;
    farm.until("the spec was looked at", |seen| {
        seen["status"]["observedGeneration"] == seen["metadata"]["generation"]
    })
    .await?;
    assert_eq!(farm.until_current().await?, "blue");
    let updated = deployment().await?;
    assert_eq!(updated["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(
        updated["spec"]["template"]["spec"]["containers"][0]["image"],
        windlass_harness::temporal::farm::image("2")
    );
    assert_eq!(farm.deployments().await?.len(), 1);

    // Another ID with the same template: another version. Back to the first: it takes over at once.
    farm.patch(json!({"spec": {"unsafeCustomBuildID": "green"}})).await?;
    assert_eq!(farm.until_current().await?, "green");
    assert_eq!(farm.deployments().await?.len(), 2);
    assert_eq!(farm.begin("on-green").await?, "green");
    farm.patch(json!({"spec": {"unsafeCustomBuildID": "blue"}})).await?;
    assert_eq!(farm.until_current().await?, "blue");
    let plan = farm.object().await?["status"]["plan"]["tasks"].clone();
    let ramps = plan.as_array().into_iter().flatten().filter(|task| task["type"] == "ramp").count();
    assert_eq!(ramps, 0, "{plan:#}");

    // Without one: it is generated from the image's tag and the template's hash.
    farm.patch(json!({"spec": {"unsafeCustomBuildID": null}})).await?;
    let generated = farm.until_current().await?;
    assert!(generated.starts_with("2-"), "{generated}");
    assert_eq!(farm.deployments().await?.len(), 3);
    farm.begin_on(&generated).await?;
    assert_eq!((farm.end("on-blue").await?, farm.end("on-green").await?), ("blue".into(), "green".into()));
    farm.end_all().await?;
    Ok(())
}
