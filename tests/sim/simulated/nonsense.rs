//! An annotation that names a plan which the fleet never had, or one that is over: it is answered once, and has no effect.

use serde_json::{Value, json};

use super::sets::world::{fleet, is_up_to_date, play, text};

#[test]
fn an_abort_and_a_retry_of_no_plan_of_the_fleet_are_said_once_and_change_nothing() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        w.image("db:2").await;
        let done = w.until("it is over", |s| is_up_to_date(s) && !s["history"].is_null()).await;
        let own = text(&done["plan"], "id").to_owned();
        for (key, value) in [
            ("windlass.dev/abort", "nonsense"),
            ("windlass.dev/retry", "0123456789"),
            ("windlass.dev/abort", "nonsense"),
            // Its own plan, which is over.
            ("windlass.dev/abort", own.as_str()),
            ("windlass.dev/retry", own.as_str()),
        ] {
            w.annotate(key, value).await;
            w.rest(10).await;
        }
        let notes = w.events("InvalidSpec");
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(
            notes.iter().any(|n| n.contains("windlass.dev/abort") && n.contains("nonsense")),
            "{notes:?}"
        );
        assert!(
            notes.iter().any(|n| n.contains("windlass.dev/retry") && n.contains("0123456789")),
            "{notes:?}"
        );
        let ignored = w.events("RequestIgnored");
        assert_eq!(ignored.len(), 2, "{ignored:?}");
        let after = w.status();
        let message = |status: &Value| {
            let conditions = status["conditions"].as_array().unwrap();
            text(conditions.iter().find(|c| c["type"] == "UpToDate").unwrap(), "message").to_owned()
        };
        assert_eq!(after["history"], done["history"]);
        assert!(ignored.iter().all(|note| message(&after).contains(note)), "{after}");
        w.is_at_rest().await;
        w.annotate("windlass.dev/abort", "").await;
        w.annotate("windlass.dev/retry", "").await;
        w.rest(10).await;
        assert_eq!(w.status()["conditions"], done["conditions"], "nothing is said about what was removed");
        w.is_at_rest().await;
    });
}
