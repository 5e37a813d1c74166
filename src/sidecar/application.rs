//! The sidecar server's queries to its application.

use std::time::Duration;

use serde_json::Value;
use url::Url;

use super::exchange::{client, excerpt, exchange, get};
use crate::outward::HttpClient;

/// Less than the operator's time-out: a slow application must not make its sidecar look dead.
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Application {
    http: HttpClient,
    caught_up_url: Option<Url>,
    height_url: Option<Url>,
}

impl Application {
    pub(super) fn new(caught_up_url: Option<Url>, height_url: Option<Url>) -> Self {
        Self { http: client(), caught_up_url, height_url }
    }

    pub(super) fn reports_height(&self) -> bool {
        self.height_url.is_some()
    }

    /// Whether the application has caught up; `None` without a URL. A failed query counts as not caught up.
    pub(super) async fn caught_up(&self) -> Option<bool> {
        let url = self.caught_up_url.as_ref()?;
        Some(match self.get(url).await {
            Ok(body) => reports_caught_up(&body),
            Err(sentence) => {
                tracing::debug!("not caught up: {sentence}");
                false
            }
        })
    }

    /// The application's height, or why it is unknown; `None` without a URL.
    pub(super) async fn height(&self) -> Option<Result<i64, String>> {
        let url = self.height_url.as_ref()?;
        Some(self.get(url).await.and_then(|body| {
            height_in(&body).ok_or_else(|| {
                format!("the application at {url} answered `{}`, which is not a height", excerpt(&body))
            })
        }))
    }

    async fn get(&self, url: &Url) -> Result<Vec<u8>, String> {
        match exchange(&self.http, get(url.clone(), TIMEOUT)).await {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, _)) => Err(format!("the application at {url} answered {status}")),
            Err(failure) => Err(format!("the application at {url} {failure}")),
        }
    }
}

/// A 2xx means yes, unless its body is JSON that says otherwise.
fn reports_caught_up(body: &[u8]) -> bool {
    match serde_json::from_slice(body) {
        Ok(Value::Bool(said)) => said,
        Ok(Value::Object(fields)) => fields.get("caughtUp").is_none_or(|said| *said == Value::Bool(true)),
        _ => true,
    }
}

/// An integer of at least 0, bare or as `height` of an object. Some applications report an unknown height as
/// negative.
fn height_in(body: &[u8]) -> Option<i64> {
    let height = match serde_json::from_slice(body).ok()? {
        Value::Object(fields) => fields.get("height")?.as_i64(),
        bare => bare.as_i64(),
    };
    height.filter(|height| *height >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_means_caught_up_unless_the_body_denies_it() {
        for yes in ["", "OK", "true", " true\n", r#"{"caughtUp": true}"#, r#"{"peers": 3}"#, "<html>"] {
            assert!(reports_caught_up(yes.as_bytes()), "{yes}");
        }
        for no in ["false", r#"{"caughtUp": false}"#, r#"{"caughtUp": null}"#, r#"{"caughtUp": "true"}"#] {
            assert!(!reports_caught_up(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn height_is_an_integer_bare_or_in_an_object() {
        for (text, height) in
            [("7", 7), (" 7\n", 7), ("0", 0), (r#"{"height": 8000000, "hash": "x"}"#, 8_000_000)]
        {
            assert_eq!(height_in(text.as_bytes()), Some(height), "{text}");
        }
        for text in [
            "",
            "-1",
            "1.5",
            "seven",
            "null",
            "[7]",
            r#"{"height": "7"}"#,
            r#"{"h": 7}"#,
            "99999999999999999999",
        ] {
            assert_eq!(height_in(text.as_bytes()), None, "{text}");
        }
    }
}
