//! One request of a hook, and its answer. The other side is nobody whom there is reason to trust: bounded in time and in
//! size, and a request goes where it was sent, not where a redirect or a proxy's variable points.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Method};
use reqwest::{Client, Url, redirect};

/// The most that is read of an answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// What is sent.
#[derive(Clone, Debug)]
pub struct HookRequest {
    /// How.
    pub method: Method,
    /// Where to.
    pub url: Url,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: String,
    /// How long the whole may take.
    pub timeout: Duration,
}

/// What came back.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HookReply {
    /// The status.
    pub status: u16,
    /// The headers, as they came.
    pub headers: Vec<(String, String)>,
    /// The body, as much of it as is read.
    pub body: Vec<u8>,
    /// Whether there was more.
    pub is_cut: bool,
}

/// The way to the peers of hooks.
#[async_trait]
pub trait HookClient: Send + Sync {
    /// Sends a request and reads the answer, whatever it says. An error is the end of a sentence: "did not answer in time".
    async fn send(&self, request: HookRequest) -> Result<HookReply, String>;
}

/// Asks over HTTP.
#[derive(Clone, Debug)]
pub struct HttpHookClient {
    http: Client,
}

impl HttpHookClient {
    /// A client. It fails only where the machine cannot provide one, with a sentence that says why.
    pub fn new() -> Result<Self, String> {
        let http = Client::builder()
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            // Pods come and go, and their addresses are given to others: no connection outlives its request.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| format!("no HTTP client for hooks could be made: {}", root_cause(&error)))?;
        Ok(Self { http })
    }
}

#[async_trait]
impl HookClient for HttpHookClient {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        let sent = self
            .http
            .request(request.method, request.url)
            .headers(request.headers)
            .body(request.body)
            .timeout(request.timeout);
        let mut response = sent.send().await.map_err(|error| no_answer(&error))?;
        let headers = response.headers().iter();
        let headers = headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        let (status, mut body, mut is_cut) = (response.status().as_u16(), Vec::new(), false);
        while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(&error))? {
            let room = MAX_ANSWER_BYTES - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                is_cut = true;
                break;
            }
        }
        Ok(HookReply { status, headers, body, is_cut })
    }
}

fn no_answer(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        "did not answer in time".to_owned()
    } else {
        format!("did not answer: {}", root_cause(error))
    }
}

/// reqwest's own text stops at "error sending request"; what went wrong is at the end of the chain.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
