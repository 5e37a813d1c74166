//! The sidecar server's queries to its application.

use std::time::Duration;

use serde_json::Value;
use url::Url;

use super::args::SidecarArgs;
use super::exchange::{client, excerpt, exchange, get};
use crate::outward::HttpClient;

/// Less than the operator's time-out: a slow application must not make its sidecar look dead.
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Application {
    http: HttpClient,
    caught_up_url: Option<Url>,
    height_url: Option<Url>,
    role_url: Option<Url>,
}

/// The longest role, in bytes: that of a label's value.
const MAX_ROLE_BYTES: usize = 63;

impl Application {
    pub(super) fn new(args: &SidecarArgs) -> Self {
        Self {
            http: client(),
            caught_up_url: args.caught_up_url.clone(),
            height_url: args.height_url.clone(),
            role_url: args.role_url.clone(),
        }
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

    /// The application's role; `None` if it is unknown, or without a URL.
    pub(super) async fn role(&self) -> Option<String> {
        let url = self.role_url.as_ref()?;
        match self.get(url).await {
            Ok(body) => role_in(&body),
            Err(sentence) => {
                tracing::debug!("no role: {sentence}");
                None
            }
        }
    }

    async fn get(&self, url: &Url) -> Result<Vec<u8>, String> {
        match exchange(&self.http, get(url.clone(), TIMEOUT)).await {
            Ok(reply) if (200..300).contains(&reply.status) => Ok(reply.body),
            Ok(reply) => Err(format!("the application at {url} answered {}", reply.status)),
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

/// A role: a JSON string, `role` of an object, or a bare text.
fn role_in(body: &[u8]) -> Option<String> {
    let role = match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => fields.get("role")?.as_str()?.to_owned(),
        Ok(Value::String(role)) => role,
        Ok(_) => return None,
        Err(_) => std::str::from_utf8(body).ok()?.to_owned(),
    };
    let role = role.trim();
    (!role.is_empty() && role.len() <= MAX_ROLE_BYTES && !role.contains(char::is_control))
        .then(|| role.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_a_text_bare_or_in_json() {
        for text in ["primary", " primary\n", r#""primary""#, r#"{"role": "primary", "lag": 3}"#] {
            assert_eq!(role_in(text.as_bytes()).as_deref(), Some("primary"), "{text}");
        }
        let long = "x".repeat(64);
        for text in ["", "7", "null", r#"{"role": 7}"#, r#"{"roles": "primary"}"#, "a\nb", &long] {
            assert_eq!(role_in(text.as_bytes()), None, "{text}");
        }
    }

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
