//! Retired versions that are needed again, and versions that never took tasks.

use serde_json::{Value, json};

use crate::stage::server;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, version};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

/// The replicas of a version; `None` without a Deployment.
async fn replicas(farm: &Farm<'_>, build: &str) -> Result<Option<i64>, Error> {
    let all = farm.deployments().await?;
    Ok(all.into_iter().find(|(name, _)| name.ends_with(build)).map(|(_, replicas)| replicas))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_version_that_a_workflow_is_pinned_to_gets_its_workers_back_and_carries_it_out()
-> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "revived").await?;
    let mut spec = farm.spec("1");
    spec["rollout"] = json!({"strategy": "AllAtOnce"});
    spec["sunset"] = json!({"scaleDownDelaySeconds": 0, "deleteDelaySeconds": 3600});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    let has = |count: i64| {
        let v1 = v1.clone();
        move |seen: &Value| {
            version(seen, &v1).is_some_and(|v1| v1["replicas"] == count && v1["ready"] == count)
        }
    };
    farm.until("v1 has no workers", has(0)).await?;
    assert_eq!(replicas(&farm, &v1).await?, Some(0), "its Deployment is there");

    let pinned = format!("{}-pinned", farm.queue());
    farm.person.start("Hold", &pinned, &farm.queue(), Some((&farm.deployment(), &v1))).await?;
    farm.until("v1 has its workers back", has(1)).await?;
    farm.person.let_go(&pinned).await?;
    assert_eq!(farm.person.result(&pinned).await, v1);
    farm.until("v1 has no workers again", has(0)).await?;
    farm.end_all().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_never_took_tasks_goes_once_no_workflow_runs_on_it() -> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "never").await?;
    let mut spec = farm.spec("1");
    spec["rollout"] = json!({"strategy": "Manual"});
    farm.create(spec).await?;
    let promote = async || -> Result<String, Error> {
        farm.until_reason("UpToDate", "ReadyToPromote").await?;
        farm.windlass(&["promote", "wwd/orders"]).await?;
        farm.until_current().await
    };
    let v1 = promote().await?;
    farm.begin_on(&v1).await?;
    farm.set_image("2").await?;
    let seen = farm.until_reason("UpToDate", "ReadyToPromote").await?;
    let v2 = seen["status"]["targetBuildID"].as_str().unwrap_or_default().to_owned();
    let pinned = format!("{}-pinned", farm.queue());
    farm.person.start("Hold", &pinned, &farm.queue(), Some((&farm.deployment(), &v2))).await?;
    // It is obsolete, but a workflow is pinned to it.
    farm.windlass(&["rollback", "wwd/orders"]).await?;
    assert_eq!(farm.until_current().await?, v1);
    farm.until("it is counted", |seen| version(seen, &v2).is_some_and(|v2| v2["runningWorkflows"] == 1))
        .await?;
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(replicas(&farm, &v2).await?, Some(1));
    farm.person.let_go(&pinned).await?;
    assert_eq!(farm.person.result(&pinned).await, v2);
    farm.until("v2 is gone", |seen| version(seen, &v2).is_none()).await?;
    assert_eq!(farm.deployments().await?.len(), 1);
    farm.end_all().await?;
    Ok(())
}
