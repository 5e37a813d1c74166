//! A connection that is an object of its own: its change, its protection, and its loss.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass_clock::monotonic;

use crate::credentials::put_secret;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, PATIENCE};
use windlass_harness::temporal::frontend::{Options, SERVER_NAME, Server};

const KIND: &str = "TemporalConnection";
const API: &str = "windlass.dev/v1alpha1";
const POLICY: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/policies/connections.yaml"));

async fn create(farm: &Farm<'_>, spec: &Value) -> Result<(), Error> {
    let object = json!({"apiVersion": API, "kind": KIND, "metadata": {"name": "main"}, "spec": spec});
    let api = farm.place.api(API, KIND);
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// The shipped policy, for the namespace of this test only: other tests run concurrently. Returns the refusal of a
/// delete.
async fn guard(farm: &Farm<'_>) -> Result<String, Error> {
    let (cp, ns) = (&farm.place.cluster.cp, &*farm.place.ns);
    let name = format!("windlass-connections-{ns}");
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(POLICY)?;
    for object in &mut objects {
        object["metadata"]["name"] = json!(name);
    }
    objects[1]["spec"]["policyName"] = json!(name);
    let labels = json!({"kubernetes.io/metadata.name": ns});
    objects[1]["spec"]["matchResources"] = json!({"namespaceSelector": {"matchLabels": labels}});
    for object in objects {
        cp.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.ok();
    }
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let until = monotonic() + PATIENCE;
    loop {
        if let Err(error) = farm.place.api(API, KIND).delete("main", &dry).await {
            return Ok(error.to_string());
        }
        assert!(monotonic() < until, "the policy is never in force");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn unguard(farm: &Farm<'_>) -> Result<(), Error> {
    let name = format!("windlass-connections-{}", farm.place.ns);
    let kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy";
    farm.place.cluster.cp.kubectl(&["delete", kinds, &name]).await.ok();
    let until = monotonic() + PATIENCE;
    while let Err(error) = farm.place.api(API, KIND).delete("main", &DeleteParams::default()).await {
        assert!(monotonic() < until, "it stays refused: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The addresses in the pods of all versions.
async fn addresses(farm: &Farm<'_>) -> Result<Vec<String>, Error> {
    let list = farm.place.api("v1", "Pod").list(&kube::api::ListParams::default()).await?;
    let lives = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
    let address = |pod: &Value| {
        let all = pod["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|variable| variable["name"] == "TEMPORAL_ADDRESS").cloned();
        found.unwrap_or_default()["value"].as_str().unwrap_or_default().to_owned()
    };
    Ok(list.items.into_iter().map(|pod| json!(pod)).filter(lives).map(|pod| address(&pod)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_object_is_followed_protected_and_missed() -> Result<(), Error> {
    let server = Server::start(Options { guarded: true, ..Options::default() }).await?;
    let operator = env!("CARGO_BIN_EXE_windlass");
    let farm = Farm::new(Cluster::shared().await, &server, operator, "connected").await?;
    let mut spec = farm.spec("1");
    spec["connection"] = json!({"name": "main"});
    create(&farm, &json!({"address": server.address()})).await?;
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;

    let refused = guard(&farm).await?;
    let said = format!("is used by 1 WorkerDeployments ({}/orders): delete them first", farm.place.ns);
    assert!(refused.contains("TemporalConnection main") && refused.contains(&said), "{refused}");

    // The same server behind another port, which wants certificates.
    let certificate = json!({"tls.crt": server.pem("client.crt"), "tls.key": server.pem("client.key")});
    put_secret(&farm, "ca", &json!({"ca.crt": server.pem("ca.crt")})).await?;
    put_secret(&farm, "cert", &certificate).await?;
    let tls = json!({"caSecret": "ca", "certSecret": "cert"});
    let moved = json!({
        "address": server.by_certificate(), "workers": {"tls": tls},
        "tls": {"caSecret": "ca", "certSecret": "cert", "serverName": SERVER_NAME},
    });
    let connections = farm.place.api(API, KIND);
    connections.patch("main", &PatchParams::default(), &Patch::Merge(json!({"spec": moved}))).await?;
    farm.until("the operator uses it", |seen| {
        seen["status"]["connection"]["address"] == server.by_certificate()
    })
    .await?;
    let until = monotonic() + PATIENCE;
    loop {
        let seen = addresses(&farm).await?;
        if seen.len() == 2 && seen.iter().all(|address| address == server.by_certificate()) {
            break;
        }
        assert!(monotonic() < until, "the workers keep {seen:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(farm.until_current().await?, v2, "it is no new version");

    unguard(&farm).await?;
    let seen = farm.until_reason("UpToDate", "ConnectionNotFound").await?;
    let said = format!("TemporalConnection {}/main (spec.connection.name) does not exist", farm.place.ns);
    assert!(seen["status"].to_string().contains(&said), "{:#}", seen["status"]);
    let before = farm.deployments().await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(farm.deployments().await?, before, "nothing is scaled down");
    assert_eq!(before.len(), 2);
    create(&farm, &moved).await?;
    farm.until_current().await?;
    farm.end_all().await?;
    Ok(())
}
