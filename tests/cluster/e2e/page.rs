//! The page of `windlass dashboard` in a real browser: reading, live updates, and actions.

use serde_json::{Value, json};

use crate::e2e::eyes::{account, windlass};
use windlass_harness::kit::{World, condition, fleet};
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
async fn a_fleet_is_followed_live_paused_and_resumed_by_keyboard_alone() {
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
    browser.wait("#fleets", "3 nodes serve 1").await;
    browser.judge("fleets").await;
    browser.click("#fleets a").await;
    browser.wait("#nodes", "3 nodes serve 1").await;
    browser.wait("#next", "Nothing: all that is wanted is so.").await;
    browser.wait("#live", "Live").await;
    browser.judge("fleet-at-rest").await;

    // A change appears without reloading the page.
    browser.ask(json!({"do": "evaluate", "code": "window.kept = 'the same'"})).await;
    world.set_image("db:2-nope").await;
    browser.wait("#nodes", "ImagePullBackOff").await;
    browser.wait("#head", "1 → 2-nope").await;
    browser.wait("#why", "StatefulNode db-2").await;
    browser.wait("#next", "goes on").await;
    assert_eq!(browser.ask(json!({"do": "evaluate", "code": "window.kept"})).await, "the same");
    agrees_with_the_terminal(&mut browser, &world).await;
    assert!(browser.text("#chart").await.contains("db-2"), "its plan has bars");
    assert!(browser.text("#story").await.contains("RolloutStarted"), "events are told");
    browser.judge("fleet-held").await;

    // Pause, with a reason, by keyboard alone.
    browser.tab_to("button-pause").await;
    browser.press("Enter").await;
    browser.wait("main", "What it would do").await;
    browser.wait("main", "paused").await;
    assert_eq!(world.db().await["spec"]["paused"], false, "nothing is done yet");
    browser.judge("pause").await;
    browser.tab_to("reason").await;
    browser.ask(json!({"do": "type", "text": "the image is not there"})).await;
    browser.press("Enter").await;
    browser.wait("main", "db paused").await;
    let paused = world.until_db("it is paused", |db| db["spec"]["paused"] == true).await;
    let asked = paused["metadata"]["annotations"]["windlass.dev/asked"].as_str().unwrap();
    assert!(asked.contains("the image is not there") && asked.contains("\"verb\":\"pause\""), "{asked}");
    assert!(world.until_event("db", "PauseRequested").await.contains("the image is not there"));
    browser.tab_to("back").await;
    browser.press("Enter").await;
    browser.wait("#head", "(paused)").await;
    // The history shows what happened, with who asked for it and why.
    browser.wait("#story", "the image is not there").await;

    browser.tab_to("button-resume").await;
    browser.press("Enter").await;
    browser.wait("main", "What it would do").await;
    // Somebody else was faster: nothing is left to do, and the page says so.
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    browser.click("form button").await;
    browser.wait("main", "unchanged: it is not paused").await;

    // It is readable without JavaScript.
    browser.ask(json!({"do": "open", "script": false})).await;
    browser.go(&page.url).await;
    browser.click("#fleets a").await;
    let read = browser.text("body").await;
    for words in ["ImagePullBackOff", "2 nodes serve 1", "Look again", "What comes next", "goes on"] {
        assert!(read.contains(words), "{words}: {read}");
    }
    browser.go(&page.at(&format!("/fleets/{}/db/nodes", &*world.ns))).await;
    assert!(browser.text("table").await.contains("db-0"));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn what_waits_is_promoted_by_keyboard_and_only_what_was_looked_at() {
    let Some(mut browser) = Browser::start().await else { return };
    let world = World::new("page-promote").await;
    let mut wanted = fleet(2, "db:1");
    wanted["spec"]["updateStrategy"] =
        json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual", "retireDelaySeconds": 1}});
    world.settled_fleet(wanted).await;
    world.set_image("db:2").await;
    let ready = |db: &Value| condition(db, "UpToDate") == "Unknown/ReadyToPromote";
    world.until_db("it is ready to promote", ready).await;
    let page = Dashboard::start(world.cp.kubeconfig(), &["-n", &world.ns]).await;
    browser.go(&page.url).await;
    browser.go(&page.at(&format!("/fleets/{}/db", &*world.ns))).await;
    browser.wait("#why", "ReadyToPromote").await;
    browser.judge("fleet-to-promote").await;
    browser.tab_to("button-promote").await;
    browser.press("Enter").await;
    browser.wait("main", "asked to promote").await;
    // The target changes before the form is sent: that was not shown.
    let looked_at = world.db().await["status"]["requestedRolloutHash"].clone();
    world.set_image("db:3").await;
    world
        .until_db("the new target is ready", |db| {
            ready(db) && db["status"]["requestedRolloutHash"] != looked_at
        })
        .await;
    browser.tab_to("reason").await;
    browser.press("Enter").await;
    browser.wait("main", "It was not done: it changed since you looked").await;
    assert_eq!(world.db().await["spec"]["forcePromote"].as_str().unwrap_or_default(), "");
    browser.judge("changed-meanwhile").await;
    browser.tab_to("reason").await;
    browser.press("Enter").await;
    browser.wait("main", "asked to promote").await;
    let served = world.until_applied().await;
    assert_eq!(served["status"]["lastCompletedRolloutHash"], served["status"]["requestedRolloutHash"]);
    browser.tab_to("back").await;
    browser.press("Enter").await;
    browser.wait("#nodes", "2 nodes serve 3").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn who_may_only_look_sees_the_servers_refusal() {
    let Some(mut browser) = Browser::start().await else { return };
    let world = World::new("page-viewer").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let rules =
        json!([{"apiGroups": ["windlass.dev"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    let viewer = account(&world, "viewer", rules).await;
    let page = Dashboard::start(&viewer, &["-n", &world.ns]).await;
    browser.go(&page.url).await;
    browser.go(&page.at(&format!("/fleets/{}/db", &*world.ns))).await;
    let seen = browser.text("main").await;
    assert!(seen.contains("1 node serves 1"), "{seen}");
    assert!(seen.contains("left out, because Pods cannot be listed"), "{seen}");
    browser.click("#button-pause").await;
    browser.wait("main", "the API server refuses it").await;
    let refused = browser.text("main").await;
    for words in ["viewer", "cannot patch resource \"nodedeployments\""] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let forms = browser.ask(json!({"do": "evaluate", "code": "document.forms.length"})).await;
    assert_eq!(forms, 0, "there is nothing to send");
    browser.judge("refused").await;
    assert_eq!(world.db().await["spec"]["paused"], false);
    browser.close().await;
}
