//! A thousand pinned workflows move to another version, on a real Temporal.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use windlass_temporal::port::{
    BatchMove, BatchState, BuildId, DeploymentName, PinnedWorkflows, TemporalError,
};

use crate::stage::{client, identity};
use crate::worker::Worker;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::Farm;
use windlass_harness::temporal::frontend::{Options, Server};
use windlass_harness::temporal::person::Person;

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");
const COUNT: u64 = 1_000;
/// How many requests a person sends at the same time.
const AT_ONCE: usize = 20;

fn pinned(farm: &Farm<'_>, build: &str) -> PinnedWorkflows {
    let deployment = DeploymentName::new(farm.deployment());
    PinnedWorkflows { deployment, build: BuildId::new(build), query: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn evacuation_of_1000_workflows_survives_a_killed_operator() -> Result<(), Error> {
    // Its own server: a namespace allows one batch at a time.
    let server = Server::start(Options::default()).await?;
    let mut farm = Farm::new(Cluster::shared().await, &server, OPERATOR, "evacuation").await?;
    let mut spec = farm.spec("1");
    spec["rollout"] = json!({"strategy": "AllAtOnce"});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    let (person, queue) = (farm.person.clone(), farm.queue());
    let ids: Vec<String> = (0..COUNT).map(|index| format!("{queue}-{index}")).collect();
    let started = stream::iter(&ids).map(|id| person.start("Hold", id, &queue, None));
    started.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let port = client(&server.address()).await;
    farm.until_true("all are pinned", async || port.count_pinned(&pinned(&farm, &v1)).await == Ok(COUNT))
        .await?;
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;

    let evacuate = ["evacuate", "wwd/orders", "--from", &v1, "--to", &v2];
    let said = farm.windlass(&[evacuate.as_slice(), &["--dry-run"]].concat()).await?;
    assert!(said.contains("requested (dry run)\n") && said.contains("temporal workflow count"), "{said}");
    assert!(farm.object().await?["metadata"]["annotations"]["windlass.dev/evacuate"].is_null());
    let said = farm.typed(&["evacuate", "wwd/orders", "--from", &v2, "--to", &v1]).await?;
    assert!(said.code == 1 && said.stderr.contains("is Current"), "{said:?}");
    let said = farm.windlass(&evacuate).await?;
    assert!(said.contains(&format!("evacuation of {v1} to {v2} requested")), "{said}");
    let seen =
        farm.until("the batch runs", |seen| seen["status"]["evacuation"]["batchID"].is_string()).await?;
    farm.kill_operator().await;
    let id = seen["status"]["evacuation"]["batchID"].as_str().unwrap_or_default().to_owned();
    let batch = port.describe_batch(&id).await?;
    assert_eq!(batch.state, BatchState::Running, "the operator died in its middle: {batch:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    farm.start_operator()?;
    let told = farm.windlass(&["status", "wwd/orders"]).await?;
    assert!(told.contains(&format!("workflows move from {v1} to {v2}")), "{told}");

    let seen = farm
        .until("the evacuation is complete", |seen| seen["status"]["evacuation"]["phase"] == "Complete")
        .await?;
    let evacuation = &seen["status"]["evacuation"];
    assert_eq!(
        [&evacuation["workflows"], &evacuation["moved"], &evacuation["failed"]],
        [&json!(COUNT), &json!(COUNT), &json!(0)]
    );
    assert_eq!(person.batches().await?, [id], "one batch was sent");
    farm.until_true("v1 has no workers", async || {
        farm.deployments().await.is_ok_and(|deployments| deployments.len() == 1)
    })
    .await?;
    assert_eq!(port.count_pinned(&pinned(&farm, &v2)).await, Ok(COUNT));
    let released = stream::iter(&ids).map(|id| person.let_go(id));
    released.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let results = stream::iter(&ids).map(|id| person.result(id)).buffer_unordered(AT_ONCE);
    let on_v2 = results.filter(|build| std::future::ready(*build == v2)).count().await;
    assert_eq!(on_v2, ids.len(), "each workflow ends on the version that it moved to");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_running_batches_has_its_own_error() -> Result<(), Error> {
    let settings = &["frontend.MaxConcurrentBatchOperationPerNamespace=0"];
    let server = Server::start(Options { settings, ..Options::default() }).await?;
    let port = client(&server.address()).await;
    let batch = BatchMove {
        job_id: "one".to_owned(),
        workflows: PinnedWorkflows {
            deployment: DeploymentName::new("shop/orders"),
            build: BuildId::new("v1"),
            query: None,
        },
        to: BuildId::new("v2"),
        reason: "a test".to_owned(),
        identity: identity(),
    };
    let refused = port.start_batch(&batch).await;
    assert!(matches!(refused, Err(TemporalError::TooManyBatches { .. })), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_batch_leaves_each_workflow_where_it_is() -> Result<(), Error> {
    const MANY: u64 = 60;
    let settings = &["worker.batcherRPS=2"];
    let server = Server::start(Options { settings, ..Options::default() }).await?;
    let (port, person, name) =
        (client(&server.address()).await, Person::at(&server.address()), "shop/stopped");
    let on = |build: &str| PinnedWorkflows {
        deployment: DeploymentName::new(name),
        build: BuildId::new(build),
        query: None,
    };
    let count = async |build: &str| port.count_pinned(&on(build)).await.unwrap_or_default();
    let until = async |what: &str, holds: &dyn Fn(u64, u64) -> bool| {
        for _ in 0..400 {
            if holds(count("v1").await, count("v2").await) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("waited in vain until {what}");
    };
    let _workers =
        [Worker::start(&server, name, "v1", &[]).await?, Worker::start(&server, name, "v2", &[]).await?];
    for index in 0..MANY {
        // A version accepts pinned workflows a moment after its first poll.
        while person.start("Hold", &format!("stopped-{index}"), name, Some((name, "v1"))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    until("all are counted", &|v1, _| v1 == MANY).await;
    let batch = BatchMove {
        job_id: "stopped".to_owned(),
        workflows: on("v1"),
        to: BuildId::new("v2"),
        reason: "a test".to_owned(),
        identity: identity(),
    };
    port.start_batch(&batch).await?;
    until("some have moved", &|_, v2| v2 > 0).await;
    assert_eq!(port.describe_batch("stopped").await?.state, BatchState::Running);
    port.stop_batch("stopped", "a person has aborted it", &identity()).await?;
    assert_eq!(port.describe_batch("stopped").await?.state, BatchState::Failed);
    // Those that are on their way arrive.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let moved = count("v2").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((count("v1").await, count("v2").await), (MANY - moved, moved));
    assert!(moved < MANY, "{moved}");
    Ok(())
}
