//! Workers that existed before their `WorkerDeployment`: without versions in a Deployment, or under another controller.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_clock::monotonic;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, NAME, PATIENCE, condition, message, version};
use windlass_temporal::port::BuildId;
use windlass_temporal_grpc::tonic::Code;

use crate::stage::{described, ramps, server};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");
/// The identity of another controller, the build ID of its version, and that version's Deployment.
const CONTROLLER: &str = "temporal-worker-controller/4f1b";
const THEIRS: &str = "theirs";
const THEIR_WORKERS: &str = "orders-theirs";
/// How long a workflow may wait for a worker. A task for a worker that has ended is repeated after 5 s.
const AT_MOST: Duration = Duration::from_secs(12);

async fn farm(name: &str) -> Result<Farm<'static>, Error> {
    Farm::new(Cluster::shared().await, server().await, OPERATOR, name).await
}

/// Creates a Deployment of workers that Windlass does not manage: without a version, or with one of the farm's deployment.
async fn workers(farm: &Farm<'_>, name: &str, build: Option<&str>) -> Result<(), Error> {
    let mut template = farm.spec("1")["template"].clone();
    template["metadata"] = json!({"labels": {"app": name}});
    let mut more = vec![("TEMPORAL_ADDRESS", farm.server.address())];
    if let Some(build) = build {
        more.extend([
            ("TEMPORAL_DEPLOYMENT_NAME", farm.deployment()),
            ("TEMPORAL_WORKER_BUILD_ID", build.to_owned()),
        ]);
    }
    let more = more.into_iter().map(|(name, value)| json!({"name": name, "value": value}));
    template["spec"]["containers"][0]["env"].as_array_mut().expect("an array").extend(more);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template},
    });
    let api = farm.place.api("apps/v1", "Deployment");
    api.create(&kube::api::PostParams::default(), &serde_json::from_value(deployment)?).await?;
    farm.place
        .until(("apps/v1", "Deployment", name), |seen| seen["status"]["availableReplicas"] == 1)
        .await?;
    Ok(())
}

/// Deletes such a Deployment, and waits until its pods are gone.
async fn delete_workers(farm: &Farm<'_>, name: &str) -> Result<(), Error> {
    farm.place.kubectl(&["delete", "deployment", name]).await?;
    let label = format!("app={name}");
    until("its pods are gone", async || {
        Ok(farm.place.kubectl(&["get", "pods", "-l", &label, "-o", "name"]).await?.is_empty())
    })
    .await
}

async fn until(what: &str, holds: impl AsyncFn() -> Result<bool, Error>) -> Result<(), Error> {
    let until = monotonic() + PATIENCE;
    while !holds().await? {
        if monotonic() > until {
            return Err(format!("waited in vain until {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The number of these workflows whose latest task a worker of this build completed.
async fn count_on(farm: &Farm<'_>, ids: &[String], build: Option<&str>) -> Result<usize, Error> {
    let mut count = 0;
    for id in ids {
        count += usize::from(farm.person.build_of(id).await?.as_deref() == build);
    }
    Ok(count)
}

/// Starts workflows, and waits until a worker has completed the first task of each.
async fn start(farm: &Farm<'_>, kind: &str, ids: &[String]) -> Result<(), Error> {
    for id in ids {
        farm.person.start(kind, id, &farm.queue(), None).await?;
    }
    until("each workflow has a worker", async || {
        for id in ids {
            if farm.person.tasks(id).await?.completed == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

/// Waits until so many workflows run on the task queue without a version, by the query in the documentation.
async fn until_without_version(farm: &Farm<'_>, count: usize) -> Result<(), Error> {
    let queue = farm.queue();
    let query = format!(
        r#"TaskQueue="{queue}" AND ExecutionStatus="Running" AND TemporalWorkerDeploymentVersion IS NULL"#
    );
    until(&format!("{count} workflows have no version"), async || {
        Ok(farm.person.count(&query).await? == i64::try_from(count)?)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn unversioned_workflows_move_to_a_worker_deployment_and_none_waits() -> Result<(), Error> {
    let farm = farm("moved").await?;
    workers(&farm, NAME, None).await?;
    let busy: Vec<String> = (0..20).map(|n| format!("{}-{n}", farm.place.ns)).collect();
    let asleep = [format!("{}-asleep", farm.place.ns)];
    start(&farm, "Beat", &busy).await?;
    start(&farm, "Hold", &asleep).await?;
    until_without_version(&farm, busy.len() + 1).await?;

    // The same code, now with a version.
    let mut spec = farm.spec("1");
    spec["rollout"]["steps"] =
        json!([{"percent": 5, "pauseSeconds": 3}, {"percent": 50, "pauseSeconds": 10}]);
    farm.create(spec).await?;
    let half = |status: &Value| status["rampPercent"] == 50 || status["currentBuildID"].is_string();
    let seen = ramps(&farm, half).await?;
    assert_eq!(seen, [5, 50], "the first version is ramped, as other workers poll its task queue");
    farm.patch(json!({"spec": {"paused": true}})).await?;
    let v1 = farm.object().await?["status"]["targetBuildID"].as_str().unwrap_or_default().to_owned();
    // A ramp moves running workflows, too: its share of the workflow IDs.
    until("some have moved", async || Ok(count_on(&farm, &busy, Some(&v1)).await? > 0)).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let moved = count_on(&farm, &busy, Some(&v1)).await?;
    assert!(moved < busy.len(), "the others keep their workers");
    assert_eq!(count_on(&farm, &busy, None).await?, busy.len() - moved);

    farm.patch(json!({"spec": {"paused": false}})).await?;
    assert_eq!(farm.until_current().await?, v1);
    until("all have moved", async || Ok(count_on(&farm, &busy, Some(&v1)).await? == busy.len())).await?;
    delete_workers(&farm, NAME).await?;
    farm.begin_on(&v1).await?;
    // A workflow that sleeps moves with its next task, and not before.
    until_without_version(&farm, 1).await?;
    for id in busy.iter().chain(&asleep) {
        farm.person.let_go(id).await?;
        assert_eq!(farm.person.result(id).await, v1);
        let tasks = farm.person.tasks(id).await?;
        assert!(tasks.longest_wait < AT_MOST && tasks.failed.is_empty(), "{id}: {tasks:?}");
    }
    farm.end_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_returns_new_workflows_to_unversioned_workers() -> Result<(), Error> {
    let farm = farm("returned").await?;
    workers(&farm, NAME, None).await?;
    let mut spec = farm.spec("1");
    spec["rollout"] = json!({"strategy": "AllAtOnce"});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;
    farm.delete().await?;
    farm.until("it waits", |seen| message(seen, "Reconciling").contains("running workflows on")).await?;
    let new = format!("{}-new", farm.place.ns);
    farm.person.start("Hold", &new, &farm.queue(), None).await?;
    farm.person.let_go(&new).await?;
    assert_eq!(farm.person.result(&new).await, "", "an unversioned worker took it");
    farm.end_all().await?;
    farm.until_gone().await?;
    assert_eq!(farm.deployments().await?, [(NAME.to_owned(), 1)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_first_ramp_leaves_new_workflows_to_unversioned_workers() -> Result<(), Error> {
    let farm = farm("aborted").await?;
    workers(&farm, NAME, None).await?;
    let busy: Vec<String> = (0..20).map(|n| format!("{}-{n}", farm.place.ns)).collect();
    start(&farm, "Beat", &busy).await?;
    let mut spec = farm.spec("1");
    spec["rollout"]["steps"] = json!([{"percent": 50, "pauseSeconds": 600}]);
    farm.create(spec).await?;
    let seen = farm.until("it ramps", |seen| seen["status"]["rampPercent"] == 50).await?;
    let v1 = seen["status"]["targetBuildID"].as_str().unwrap_or_default().to_owned();
    until("some have moved", async || Ok(count_on(&farm, &busy, Some(&v1)).await? > 0)).await?;
    farm.windlass(&["abort", &format!("wwd/{NAME}")]).await?;
    farm.until("the ramp is cleared", |seen| {
        condition(seen, "UpToDate").1 == "Aborted" && seen["status"]["rampPercent"].is_null()
    })
    .await?;
    let new: Vec<String> = (0..10).map(|n| format!("{}-new-{n}", farm.place.ns)).collect();
    start(&farm, "Beat", &new).await?;
    assert_eq!(count_on(&farm, &new, None).await?, new.len());
    // Pinned workflows that have moved stay, and the version keeps its workers for them.
    tokio::time::sleep(Duration::from_secs(5)).await;
    for id in busy.iter().chain(&new) {
        let build = farm.person.build_of(id).await?.unwrap_or_default();
        farm.person.let_go(id).await?;
        assert_eq!(farm.person.result(id).await, build);
        let tasks = farm.person.tasks(id).await?;
        assert!(tasks.longest_wait < AT_MOST && tasks.failed.is_empty(), "{id}: {tasks:?}");
    }
    Ok(())
}

/// A deployment under another controller, with a current version and a workflow that is pinned to it.
async fn theirs(farm: &Farm<'_>) -> Result<String, Error> {
    workers(farm, THEIR_WORKERS, Some(THEIRS)).await?;
    until("Temporal knows the version", async || {
        Ok(described(farm).await.is_ok_and(|described| !described.versions.is_empty()))
    })
    .await?;
    farm.person.take_over(&farm.deployment(), CONTROLLER).await?;
    farm.person.make_current(&farm.deployment(), THEIRS, CONTROLLER).await?;
    let id = format!("{}-pinned", farm.place.ns);
    start(farm, "Beat", std::slice::from_ref(&id)).await?;
    assert_eq!(farm.person.build_of(&id).await?.as_deref(), Some(THEIRS));
    Ok(id)
}

/// Checks that tasks go to their version, and returns the manager.
async fn routed_to_theirs(farm: &Farm<'_>) -> Result<Option<String>, Error> {
    let described = described(farm).await?;
    assert_eq!((described.routing.current, described.routing.ramp), (Some(BuildId::new(THEIRS)), None));
    Ok(described.manager.map(|manager| manager.to_string()))
}

/// Creates the `WorkerDeployment`. Windlass waits as long as there is another manager, which is then removed.
async fn claimed(farm: &Farm<'_>, spec: Value) -> Result<Value, Error> {
    farm.create(spec).await?;
    let seen = farm.until_reason("UpToDate", "OwnedByOther").await?;
    assert!(message(&seen, "UpToDate").contains(CONTROLLER), "{}", message(&seen, "UpToDate"));
    assert_eq!(routed_to_theirs(farm).await?.as_deref(), Some(CONTROLLER));
    assert_eq!(farm.deployments().await?.len(), 2, "its workers are there");
    farm.person.take_over(&farm.deployment(), "").await?;
    Ok(seen)
}

/// Takes it over with a version of its own.
async fn taken_over(farm: &Farm<'_>) -> Result<String, Error> {
    let seen = claimed(farm, farm.spec("1")).await?;
    let v1 = seen["status"]["targetBuildID"].as_str().unwrap_or_default().to_owned();
    assert_eq!(ramps(farm, |status| status["currentBuildID"] == v1.as_str()).await?, [5, 50]);
    assert_eq!(farm.until_current().await?, v1);
    Ok(v1)
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_of_another_controller_is_taken_over_and_its_version_drains() -> Result<(), Error> {
    let farm = farm("overtaken").await?;
    let pinned = theirs(&farm).await?;
    let v1 = taken_over(&farm).await?;
    farm.begin_on(&v1).await?;
    let seen = farm
        .until("theirs drains", |seen| version(seen, THEIRS).is_some_and(|v| v["state"] == "Draining"))
        .await?;
    assert_eq!(condition(&seen, "Ready").0, "True", "{:#}", seen["status"]);
    // When its object is deleted, the other controller returns the tasks to unversioned workers and deletes all versions.
    let deployment = farm.deployment();
    let refusals = [
        farm.person.make_current(&deployment, "", CONTROLLER).await,
        farm.person.delete_version(&deployment, THEIRS, CONTROLLER).await,
    ];
    for refused in refusals {
        let refused = refused.expect_err("another client is manager");
        assert!(
            refused.code() == Code::FailedPrecondition && refused.message().contains("ManagerIdentity"),
            "{refused}"
        );
    }

    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(farm.deployments().await?.contains(&(THEIR_WORKERS.to_owned(), 1)), "Windlass does not touch it");
    farm.person.let_go(&pinned).await?;
    assert_eq!(farm.person.result(&pinned).await, THEIRS);
    let tasks = farm.person.tasks(&pinned).await?;
    assert!(tasks.longest_wait < AT_MOST && tasks.failed.is_empty(), "{tasks:?}");
    farm.until("theirs is drained", |seen| version(seen, THEIRS).is_some_and(|v| v["state"] == "Drained"))
        .await?;
    delete_workers(&farm, THEIR_WORKERS).await?;
    farm.until("its record is gone", |seen| version(seen, THEIRS).is_none()).await?;
    farm.end_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_handed_back_to_another_controller() -> Result<(), Error> {
    let farm = farm("handed-back").await?;
    let pinned = theirs(&farm).await?;
    let v1 = taken_over(&farm).await?;
    farm.begin_on(&v1).await?;
    farm.windlass(&["pause", &format!("wwd/{NAME}")]).await?;
    farm.person.take_over(&farm.deployment(), CONTROLLER).await?;
    farm.person.make_current(&farm.deployment(), THEIRS, CONTROLLER).await?;
    farm.delete().await?;
    farm.until("it waits", |seen: &Value| message(seen, "Reconciling").contains("running workflows on"))
        .await?;
    assert_eq!(routed_to_theirs(&farm).await?.as_deref(), Some(CONTROLLER));
    farm.end_all().await?;
    farm.until_gone().await?;
    assert_eq!(routed_to_theirs(&farm).await?.as_deref(), Some(CONTROLLER));
    assert_eq!(farm.deployments().await?, [(THEIR_WORKERS.to_owned(), 1)]);
    farm.person.let_go(&pinned).await?;
    assert_eq!(farm.person.result(&pinned).await, THEIRS);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn version_of_another_controller_gets_workers_under_its_build_id() -> Result<(), Error> {
    let farm = farm("shared").await?;
    let pinned = theirs(&farm).await?;
    let mut spec = farm.spec("1");
    spec["unsafeCustomBuildID"] = json!(THEIRS);
    claimed(&farm, spec).await?;
    assert_eq!(farm.until_current().await?, THEIRS);
    assert_ne!(routed_to_theirs(&farm).await?.as_deref(), Some(CONTROLLER));
    // The workflow does not need their workers any more.
    delete_workers(&farm, THEIR_WORKERS).await?;
    let before = farm.person.tasks(&pinned).await?.completed;
    until("it goes on", async || Ok(farm.person.tasks(&pinned).await?.completed > before + 3)).await?;
    // The next version is an ordinary one.
    farm.patch(json!({"spec": {"unsafeCustomBuildID": null}})).await?;
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    farm.person.let_go(&pinned).await?;
    assert_eq!(farm.person.result(&pinned).await, THEIRS);
    let tasks = farm.person.tasks(&pinned).await?;
    assert!(tasks.longest_wait < AT_MOST && tasks.failed.is_empty(), "{tasks:?}");
    farm.until("theirs is gone", |seen| version(seen, THEIRS).is_none()).await?;
    farm.end_all().await
}
