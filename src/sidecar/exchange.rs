//! One HTTP exchange with an untrusted server: bounded in time and size, without redirects and without proxies from
//! the environment.

use std::error::Error;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode, redirect};

/// The longest answer that is read, in bytes.
pub(super) const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// How long an idle connection is kept: it should not outlive its pod.
const IDLE_CONNECTION: Duration = Duration::from_secs(30);

/// Why there is no complete answer: the end of a sentence that begins with the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No answer, or an incomplete one.
    NoAnswer(String),
    /// The answer exceeds the limit.
    TooLong,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoAnswer(sentence) => f.write_str(sentence),
            Self::TooLong => write!(f, "answered with more than {MAX_ANSWER_BYTES} bytes"),
        }
    }
}

/// A client whose exchanges end after `timeout`.
pub(super) fn client(timeout: Duration) -> Result<Client, String> {
    Client::builder()
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .connect_timeout(timeout)
        .timeout(timeout)
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(1)
        .build()
        .map_err(|error| format!("could not create an HTTP client: {}", root_cause(&error)))
}

/// Sends `request` and reads the whole answer, whatever its status.
pub(super) async fn exchange(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), Failure> {
    let mut response = request.send().await.map_err(no_answer)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(no_answer)? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(Failure::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok((response.status(), body))
}

#[allow(clippy::needless_pass_by_value, reason = "shaped for map_err")]
fn no_answer(error: reqwest::Error) -> Failure {
    Failure::NoAnswer(if error.is_timeout() {
        "did not answer in time".to_owned()
    } else {
        format!("did not answer: {}", root_cause(&error))
    })
}

/// reqwest's own message stops at "error sending request"; the cause is at the end of the chain.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// The start of an untrusted text on one line, short enough for a status.
pub(super) fn excerpt(text: &[u8]) -> String {
    const MAX_CHARS: usize = 120;
    let text = String::from_utf8_lossy(text);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_is_one_short_line() {
        assert_eq!(excerpt(b" bad\n\tthing \xff"), "bad thing \u{fffd}");
        let long = excerpt("é".repeat(500).as_bytes());
        assert_eq!(long.chars().count(), 121);
        assert!(long.ends_with('…'));
    }
}
