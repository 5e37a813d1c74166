//! What keeps a version from being created or from taking tasks: limits, and missing task queues.

use serde_json::json;

use crate::stage::{described, server};
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, condition, message};
use windlass_harness::temporal::frontend::{Options, Server};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

#[tokio::test(flavor = "multi_thread")]
async fn at_its_own_limit_of_versions_none_is_made_and_none_evicted() -> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "few").await?;
    let mut spec = farm.spec("1");
    spec["maxVersions"] = json!(1);
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    farm.set_image("2").await?;
    let seen = farm.until_reason("UpToDate", "VersionLimitReached").await?;
    assert_eq!(condition(&seen, "Stalled"), ("True".to_owned(), "VersionLimitReached".to_owned()));
    assert!(message(&seen, "UpToDate").contains("maxVersions"), "{}", message(&seen, "UpToDate"));
    assert_eq!(farm.deployments().await?.len(), 1);
    farm.patch(json!({"spec": {"maxVersions": 2}})).await?;
    let v2 = farm.until_current().await?;
    assert_ne!(v2, v1);
    farm.begin_on(&v2).await?;
    farm.end_all().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_servers_limit_a_version_that_never_appears_is_said_to_be_so() -> Result<(), Error> {
    let one = &["matching.maxVersionsInDeployment=1"];
    let server = Server::start(Options { settings: one, ..Options::default() }).await?;
    let farm = Farm::new(Cluster::shared().await, &server, OPERATOR, "full").await?;
    let mut spec = farm.spec("1");
    spec["progressDeadlineSeconds"] = json!(15);
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin("on-v1").await?;
    farm.set_image("2").await?;
    farm.until_reason("UpToDate", "WaitingForPollers").await?;
    let seen = farm.until_reason("UpToDate", "VersionLimitReached").await?;
    assert_eq!(seen["status"]["currentBuildID"], v1.as_str());
    assert!(!message(&seen, "UpToDate").is_empty());
    // Back: the version that never appeared is removed, and the current one stays.
    farm.set_image("1").await?;
    assert_eq!(farm.until_current().await?, v1);
    assert_eq!(farm.end("on-v1").await?, v1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_without_a_task_queue_of_the_current_one_is_not_given_tasks() -> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "lacking").await?;
    let (queue, more) = (farm.queue(), format!("{}-more", farm.queue()));
    let both = json!(format!("{queue},{more}"));
    let mut spec = farm.spec("1");
    spec["template"]["spec"]["containers"][0]["env"][0]["value"] = both.clone();
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    let held = format!("{queue}-held");
    farm.person.start("Hold", &held, &more, None).await?;
    // It is on v1 once its first task is done, and only running workflows make the task queue count.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    farm.set_image("2").await?;
    let seen = farm.until_reason("UpToDate", "MissingTaskQueues").await?;
    assert_eq!(seen["status"]["currentBuildID"], v1.as_str());
    assert!(seen["status"]["rampingBuildID"].is_null(), "{:#}", seen["status"]);
    let mut containers = farm.spec("3")["template"]["spec"]["containers"].clone();
    containers[0]["env"][0]["value"] = both;
    farm.patch(json!({"spec": {"template": {"spec": {"containers": containers}}}})).await?;
    let v3 = farm.until_current().await?;
    assert_ne!(v3, v1);
    farm.begin_on(&v3).await?;
    farm.person.let_go(&held).await?;
    assert_eq!(farm.person.result(&held).await, v1);

    // If nothing will poll it any more, a person tells Temporal so, and the rollout continues.
    let held = format!("{queue}-left");
    farm.person.start("Hold", &held, &more, None).await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    farm.set_image("4").await?;
    let seen = farm.until_reason("UpToDate", "MissingTaskQueues").await?;
    let v4 = seen["status"]["targetBuildID"].as_str().unwrap_or_default().to_owned();
    let manager = described(&farm).await?.manager.ok_or("nobody manages it")?.to_string();
    farm.person.make_current(&farm.deployment(), &v4, &manager).await?;
    assert_eq!(farm.until_current().await?, v4);
    farm.person.let_go(&held).await?;
    assert_eq!(farm.person.result(&held).await, v3);
    farm.end_all().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_the_api_server_refuses_is_said_to_be_so_and_touches_nothing() -> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "misspelt").await?;
    farm.create(farm.spec("1")).await?;
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;
    let before = farm.deployments().await?;
    let mut containers = farm.spec("2")["template"]["spec"]["containers"].clone();
    containers[0]["imagePullPolice"] = json!("Always");
    farm.patch(json!({"spec": {"template": {"spec": {"containers": containers}}}})).await?;
    let seen = farm.until_reason("UpToDate", "InvalidSpec").await?;
    assert_eq!(condition(&seen, "Stalled"), ("True".to_owned(), "InvalidSpec".to_owned()));
    assert!(message(&seen, "UpToDate").contains("imagePullPolice"), "{}", message(&seen, "UpToDate"));
    // A refusal that names the object contains the generated name of the dry run, which differs each time.
    let mut containers = farm.spec("2")["template"]["spec"]["containers"].clone();
    containers[0]["volumeMounts"] = json!([{"name": "nowhere", "mountPath": "/data"}]);
    farm.patch(json!({"spec": {"template": {"spec": {"containers": containers}}}})).await?;
    let seen = loop {
        let seen = farm.until_reason("UpToDate", "InvalidSpec").await?;
        if message(&seen, "UpToDate").contains("nowhere") {
            break seen;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    };
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let later = farm.object().await?;
    assert_eq!(later["metadata"]["resourceVersion"], seen["metadata"]["resourceVersion"], "it is said once");
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(farm.deployments().await?, before);
    assert_eq!(farm.object().await?["status"]["currentBuildID"], v1.as_str());
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    farm.end_all().await?;
    Ok(())
}
