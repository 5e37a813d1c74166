//! More sets than the limit: the oldest are removed before their delay, and the status stays bounded.

use serde_json::{Value, json};

use super::world::{NODE, blue_green, play, text};

#[test]
fn beyond_twenty_sets_that_live_on_the_oldest_go_at_once() {
    play(|w| async move {
        w.serve(blue_green(1, json!({"retireDelaySeconds": 86_400}))).await;
        let promoted = |before: String| move |s: &Value| s["activeSet"] != before.as_str();
        for version in 2..26 {
            let before = text(&w.status(), "activeSet").to_owned();
            w.image(&format!("db:{version}")).await;
            w.until("the next set serves", promoted(before)).await;
        }
        w.rest(120).await;
        let status = w.status();
        let retiring: Vec<&str> =
            status["retiring"].as_array().unwrap().iter().map(|set| text(set, "set")).collect();
        assert_eq!(retiring.len(), 20, "{retiring:?}");
        assert!(!retiring.contains(&"first"), "the oldest went: {retiring:?}");
        assert_eq!(w.names(NODE).len(), 21, "those, and the one that serves: {:?}", w.names(NODE));
        assert!(
            w.images().iter().any(|i| i.ends_with("db:24"))
                && !w.images().iter().any(|i| i.ends_with("db:4"))
        );
        w.rest(86_400).await;
        assert_eq!(w.names(NODE).len(), 1, "all go after their delay");
        assert!(w.status()["retiring"].is_null());
    });
}
