//! The page of `windlass dashboard` with workers, in a real browser.

use serde_json::json;

use crate::stage::server;
use windlass_harness::controlplane::Error;
use windlass_harness::page::browser::Browser;
use windlass_harness::page::dashboard::Dashboard;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::Farm;

const OPERATOR: &str = env!("CARGO_BIN_EXE_windlass");

#[tokio::test(flavor = "multi_thread")]
async fn ramp_is_followed_paused_and_aborted_on_the_page() -> Result<(), Error> {
    let Some(mut browser) = Browser::start().await else { return Ok(()) };
    let cluster = Cluster::shared().await;
    let farm = Farm::new(cluster, server().await, OPERATOR, "page").await?;
    let mut spec = farm.spec("1");
    spec["rollout"] = json!({"steps": [{"percent": 5, "pauseSeconds": 3600}]});
    farm.create(spec).await?;
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;
    let page = Dashboard::start(cluster.cp.kubeconfig(), &["-n", &farm.place.ns]).await;

    assert_eq!(browser.go(&page.url).await, 200);
    browser.wait("#fleets", "Up to date").await;
    browser.click("#fleets a").await;
    browser.wait("#nodes", &format!("{v1} Current")).await;
    browser.wait("#next", "Nothing to do").await;
    browser.judge("workers-at-rest").await;

    // The rollout appears without reloading the page.
    farm.set_image("2").await?;
    browser.wait("#nodes", "Ramping").await;
    browser.wait("#head", &format!("{v1} → 2-")).await;
    browser.wait("#head", "Ramping 5%").await;
    browser.wait("#next", "set-current").await;
    browser.wait("#why", "task ramp").await;
    browser.judge("workers-ramping").await;

    for (button, done) in [("pause", "paused"), ("abort", "requested")] {
        browser.tab_to(&format!("button-{button}")).await;
        browser.press("Enter").await;
        browser.wait("main", "Effect").await;
        browser.tab_to("reason").await;
        browser.ask(json!({"do": "type", "text": "the error rate rises"})).await;
        browser.press("Enter").await;
        browser.wait("main", done).await;
        browser.tab_to("back").await;
        browser.press("Enter").await;
        browser.wait("#live", "Live").await;
    }
    farm.until_reason("RolloutInProgress", "RolloutAborted").await?;
    browser.wait("#head", "Stalled").await;
    let object = farm.object().await?;
    let asked = object["metadata"]["annotations"]["windlass.dev/last-request"].as_str().unwrap_or_default();
    assert!(asked.contains("the error rate rises") && asked.contains("\"verb\":\"abort\""), "{asked}");
    browser.close().await;
    page.end().await;
    farm.end_all().await
}
