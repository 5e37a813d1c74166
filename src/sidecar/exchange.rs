//! One HTTP exchange with an untrusted server, and excerpts of its answer.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use url::Url;

use crate::outward::{HttpClient, KeptConnections, MAX_ANSWER_BYTES, Reply, Request, Trust};

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

/// A client with one connection to each server.
pub(super) fn client() -> HttpClient {
    HttpClient::new(KeptConnections::OnePerHost)
}

/// A GET request.
pub(super) fn get(url: Url, timeout: Duration) -> Request {
    let (headers, body, trust) = (HeaderMap::new(), Bytes::new(), Trust::default());
    Request { method: Method::GET, url, headers, body, timeout, trust }
}

/// Sends `request` and reads the whole answer, whatever its status.
pub(super) async fn exchange(http: &HttpClient, request: Request) -> Result<Reply, Failure> {
    let reply = http.send(request).await.map_err(Failure::NoAnswer)?;
    if reply.is_cut {
        return Err(Failure::TooLong);
    }
    Ok(reply)
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
