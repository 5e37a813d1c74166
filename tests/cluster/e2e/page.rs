//! The page of `windlass dashboard` in a real browser: reading, live updates, and actions.

use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::{World, fleet};
use windlass_harness::page::browser::Browser;
use windlass_harness::page::dashboard::Dashboard;

/// The page says what the terminal says, once both have read the same: what the kubelet says of a pod may change between.
async fn agrees_with_the_terminal(browser: &mut Browser, world: &World) {
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(15);
    loop {
        let said = windlass(world, &["status", "nd/db", "-o", "json"]).await;
        let said: Value = serde_json::from_str(&said.out).unwrap();
        let (head, nodes) = (browser.text("#head").await, browser.text("#nodes").await);
        let in_head = [&said["summary"], &said["strategy"], &said["plan"]["id"], &said["waitingFor"]];
        let is_on = |page: &str, words: &Value| words.as_str().is_some_and(|words| page.contains(words));
        let missing = in_head.into_iter().find(|words| !is_on(&head, words));
        let reason = &said["nodes"][2]["reason"];
        if missing.is_none() && is_on(&nodes, reason) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < until,
            "{missing:?} or {reason} is not on the page: {head} {nodes}"
        );
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_is_followed_paused_and_resumed_by_keyboard() {
    let Some(mut browser) = Browser::start().await else { return };
    let world = World::new("page").await;
    let mut wanted = fleet(3, "db:1");
    wanted["spec"]["minReadySeconds"] = json!(2);
    world.settled_fleet(wanted).await;
    let page = Dashboard::start(world.cp.kubeconfig(), &["-n", &world.ns]).await;

    assert_eq!(browser.go(&page.url).await, 200);
    assert!(
        !browser.ask(json!({"do": "address"})).await.as_str().unwrap().contains("token"),
        "it is in the cookie by now"
    );
    browser.wait("#fleets", "3 nodes available at 1").await;
    browser.judge("fleets").await;
    browser.click("#fleets a").await;
    browser.wait("#nodes", "3 nodes available at 1").await;
    browser.wait("#next", "Nothing to do: the fleet matches its spec.").await;
    browser.wait("#live", "Live").await;
    browser.judge("fleet-at-rest").await;

    // A change appears without reloading the page.
    browser.ask(json!({"do": "evaluate", "code": "window.kept = 'the same'"})).await;
    world.set_image("db:2-nope").await;
    browser.wait("#nodes", "ImagePullBackOff").await;
    browser.wait("#head", "1 → 2-nope").await;
    browser.wait("#why", "StatefulNode db-2").await;
    browser.wait("#next", "continues").await;
    assert_eq!(browser.ask(json!({"do": "evaluate", "code": "window.kept"})).await, "the same");
    agrees_with_the_terminal(&mut browser, &world).await;
    assert!(browser.text("#chart").await.contains("db-2"), "its plan has bars");
    assert!(browser.text("#story").await.contains("RolloutStarted"), "events are told");
    browser.judge("fleet-held").await;

    // Pause, with a reason, by keyboard alone.
    browser.tab_to("button-pause").await;
    browser.press("Enter").await;
    browser.wait("main", "Effect").await;
    browser.wait("main", "paused").await;
    assert_eq!(world.db().await["spec"]["paused"], false, "nothing is done yet");
    browser.judge("pause").await;
    browser.tab_to("reason").await;
    browser.ask(json!({"do": "type", "text": "the image is not there"})).await;
    browser.press("Enter").await;
    browser.wait("main", "db paused").await;
    let paused = world.until_db("it is paused", |db| db["spec"]["paused"] == true).await;
    let asked = paused["metadata"]["annotations"]["windlass.dev/last-request"].as_str().unwrap();
    assert!(asked.contains("the image is not there") && asked.contains("\"verb\":\"pause\""), "{asked}");
    assert!(world.until_event("db", "PauseRequested").await.contains("the image is not there"));
    browser.tab_to("back").await;
    browser.press("Enter").await;
    browser.wait("#head", "(paused)").await;
    // The history shows what happened, with who asked for it and why.
    browser.wait("#story", "the image is not there").await;

    browser.tab_to("button-resume").await;
    browser.press("Enter").await;
    browser.wait("main", "Effect").await;
    // Somebody else was faster: nothing is left to do, and the page says so.
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    browser.click("form button").await;
    browser.wait("main", "unchanged: it is not paused").await;

    // It is readable without JavaScript.
    browser.ask(json!({"do": "open", "script": false})).await;
    browser.go(&page.url).await;
    browser.click("#fleets a").await;
    let read = browser.text("body").await;
    for words in ["ImagePullBackOff", "2 nodes available at 1", "Reload", "Forecast", "continues"] {
        assert!(read.contains(words), "{words}: {read}");
    }
    browser.go(&page.at(&format!("/fleets/{}/db/nodes", &*world.ns))).await;
    assert!(browser.text("table").await.contains("db-0"));
    browser.close().await;
}
