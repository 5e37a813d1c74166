//! The terminal output of a `WorkerDeployment`, from the shipped binary.

use serde_json::{Value, json};

use crate::stage::server;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, image, message};

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

/// The tasks of the rollout to another image, by `windlass plan -f`.
async fn foretold(farm: &Farm<'_>, tag: &str) -> Result<Vec<Value>, Error> {
    let mut manifest = farm.object().await?;
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image(tag));
    let name = format!("{}-plan.yaml", farm.place.ns);
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, manifest.to_string())?;
    let said = farm.typed(&["plan", "-f", &file.display().to_string(), "-o", "json"]).await;
    std::fs::remove_file(&file)?;
    let said = said?;
    assert_eq!(said.code, 2, "{said:?}");
    let forecast: Value = serde_json::from_str(&said.stdout)?;
    assert_eq!(
        (&forecast["outcome"], &forecast["takeover"], &forecast["keeps"][0]["isReplaced"]),
        (&json!("Changes"), &json!("NewVersion"), &json!(true)),
        "{forecast:#}"
    );
    let steps = forecast["steps"].as_array().cloned().unwrap_or_default();
    Ok(steps.iter().map(|step| step["type"].clone()).collect())
}

/// What `kubectl get` prints, by the short name.
async fn columns(farm: &Farm<'_>, current: &str) -> Result<(), Error> {
    let said = farm.place.kubectl(&["get", "wwd", "orders"]).await?;
    let mut lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let names = ["NAME", "CURRENT", "TARGET", "RAMP", "READY", "ROLLOUT", "AGE"];
    assert_eq!(lines.next().unwrap_or_default(), names);
    assert_eq!(lines.next().unwrap_or_default()[..3], ["orders", current, current], "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cli_shows_workers_waits_for_them_and_reports_stalls() -> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "terminal").await?;
    let said = farm.typed(&["status", "wwd"]).await?;
    assert_eq!((said.code, said.stdout.as_str()), (0, ""), "{}", said.stderr);
    assert!(said.stderr.contains("No WorkerDeployments found in namespace"), "{}", said.stderr);
    let said = farm.typed(&["status", "wwd/orders"]).await?;
    assert_eq!(said.code, 1);
    assert!(
        said.stderr.contains("workerdeployment.windlass.dev/orders does not exist in namespace"),
        "{}",
        said.stderr
    );

    let mut spec = farm.spec("1");
    spec["rollout"] =
        json!({"strategy": "AllAtOnce", "gate": {"workflowType": "Gate", "timeoutSeconds": 60}});
    farm.create(spec).await?;
    let said = farm.typed(&["wait", "wwd/orders", "--timeout", "60s"]).await?;
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "workerdeployment.windlass.dev/orders is up to date\n"),
        "{}",
        said.stderr
    );
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;

    columns(&farm, &v1).await?;

    // In the list of all, and as data.
    for words in [["status"].as_slice(), &["status", "wwd"], &["status", "wwd/orders", "--exit-status"]] {
        let said = farm.typed(words).await?;
        assert!(
            said.code == 0 && said.stdout.contains("orders") && said.stdout.contains(&v1),
            "{words:?}: {said:?}"
        );
        assert!(said.stdout.contains("AllAtOnce   UpToDate"), "{words:?}: {said:?}");
    }
    let document: Value =
        serde_json::from_str(&farm.windlass(&["status", "wwd/orders", "-o", "json"]).await?)?;
    assert_eq!(
        (
            &document["kind"],
            &document["verdict"],
            &document["currentBuildID"],
            &document["versions"][0]["state"]
        ),
        (&json!("WorkerDeployment"), &json!("UpToDate"), &json!(v1), &json!("Current"))
    );
    let list: Value = serde_json::from_str(&farm.windlass(&["status", "-o", "json"]).await?)?;
    assert_eq!(list["items"][0]["name"], "orders");
    assert_eq!(farm.windlass(&["status", "-o", "name"]).await?, "workerdeployment.windlass.dev/orders\n");

    // A blocked one: its watch and wait both end with 1.
    farm.set_image("bad").await?;
    let said = farm.typed(&["status", "wwd/orders", "-w", "--exit-status"]).await?;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.lines().count() > 1 && said.stdout.contains("GateFailed"), "{said:?}");
    let said = farm.typed(&["wait", "wwd/orders", "--timeout", "60s"]).await?;
    assert_eq!(said.code, 1);
    assert!(
        said.stdout.contains("is stalled: GateFailed: ") && said.stdout.contains("was told to fail"),
        "{said:?}"
    );
    let explained = farm.windlass(&["explain", "wwd/orders"]).await?;
    for words in [
        "WorkerDeployment orders",
        "UpToDate=False GateFailed",
        "task run-gate",
        "was told to fail",
        "windlass retry wwd/orders",
        "windlass rollback wwd/orders",
    ] {
        assert!(explained.contains(words), "{words}: {explained}");
    }
    let differs = farm.windlass(&["diff", "wwd/orders"]).await?;
    assert!(differs.contains("template.spec.containers[worker].image"), "{differs}");
    assert!(differs.contains("orders:1\" → ") && differs.contains("orders:bad"), "{differs}");
    let told = farm.windlass(&["logs", "wwd/orders"]).await?;
    for words in ["RolloutStarted", "GateFailed", "PlanBegan", "TaskBegan", "run-gate"] {
        assert!(told.contains(words), "{words}: {told}");
    }

    // The revisions with their versions, for a rollback, and the ended plans.
    let told = farm.windlass(&["history", "wwd/orders"]).await?;
    for words in ["last completed", "target", "Current", "orders:bad", "WorkerRollout", "Complete"] {
        assert!(told.contains(words), "{words}: {told}");
    }

    // Without a change, the plan shows what is pending.
    let said = farm.typed(&["plan", "wwd/orders"]).await?;
    let is_told = said.stdout.contains("the rollout") && said.stdout.contains("continues");
    assert!(said.code == 0 && is_told && said.stdout.contains("run-gate: workflow Gate"), "{said:?}");

    // A pod that does not start is named, with the kubelet's message.
    farm.patch(json!({"spec": {"rollout": {"gate": null}}})).await?;
    farm.set_image("missing").await?;
    farm.until("its pod waits", |seen| message(seen, "UpToDate").contains("workers")).await?;
    let explained = farm
        .until_told(&["explain", "wwd/orders"], |told| {
            told.contains("ImagePull") || told.contains("ErrImage")
        })
        .await?;
    assert!(explained.contains("kubectl describe pod orders-"), "{explained}");
    farm.windlass(&["rollback", "wwd/orders"]).await?;
    let said = farm.typed(&["wait", "wwd/orders", "--timeout", "60s"]).await?;
    assert_eq!(said.code, 0, "{said:?}");
    farm.end_all().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_verb_takes_effect() -> Result<(), Error> {
    let farm = Farm::new(Cluster::shared().await, server().await, OPERATOR, "verbs").await?;
    let mut spec = farm.spec("1");
    let gate = json!({"workflowType": "Gate", "timeoutSeconds": 60});
    spec["rollout"] = json!({"steps": [{"percent": 5, "pauseSeconds": 3600}], "gate": gate});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;

    let planned = foretold(&farm, "2").await?;
    farm.windlass(&["pause", "wwd/orders"]).await?;
    farm.set_image("2").await?;
    let seen = farm.until("its rollout begins", |seen| seen["status"]["plan"]["state"] == "Active").await?;
    let tasks = seen["status"]["plan"]["tasks"].as_array().cloned().unwrap_or_default();
    assert_eq!(tasks.iter().map(|task| task["type"].clone()).collect::<Vec<_>>(), planned);
    farm.until_reason("RolloutInProgress", "Paused").await?;
    assert_eq!(farm.object().await?["status"]["currentBuildID"], v1.as_str());
    farm.windlass(&["resume", "wwd/orders"]).await?;
    farm.until("2 ramps", |seen| seen["status"]["rampPercent"] == 5).await?;
    farm.windlass(&["abort", "wwd/orders"]).await?;
    farm.until_reason("RolloutInProgress", "RolloutAborted").await?;
    farm.until("the ramp is taken back", |seen| seen["status"]["rampPercent"].is_null()).await?;
    farm.windlass(&["retry", "wwd/orders"]).await?;
    farm.until("2 ramps again", |seen| seen["status"]["rampPercent"] == 5).await?;
    farm.windlass(&["promote", "wwd/orders"]).await?;
    let v2 = farm.until_current().await?;
    assert_ne!(v1, v2);
    farm.begin_on(&v2).await?;

    farm.set_image("bad").await?;
    farm.until_reason("UpToDate", "GateFailed").await?;
    farm.windlass(&["skip", "wwd/orders"]).await?;
    farm.until("it ramps without its gate", |seen| seen["status"]["rampPercent"] == 5).await?;
    farm.windlass(&["rollback", "wwd/orders"]).await?;
    assert_eq!(farm.until_current().await?, v2);

    let before = farm.object().await?["status"]["restartedAt"].clone();
    farm.windlass(&["restart", "wwd/orders"]).await?;
    farm.until("the restart is obeyed", |seen| seen["status"]["restartedAt"] != before).await?;
    farm.until_current().await?;
    let typed = farm.typed(&["promote", "wwd/orders"]).await?;
    assert!(typed.code == 0 && typed.stdout.contains("is already current"), "{typed:?}");
    farm.end_all().await?;
    Ok(())
}
