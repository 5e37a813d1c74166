//! One HTTP request of a hook. The peer is not trusted: the exchange is bounded in time and size, follows no
//! redirect, and uses no proxy from the environment.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Method};
use reqwest::{Client, Url, redirect};

/// The most that is read of a response, in bytes.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// A request.
#[derive(Clone, Debug)]
pub struct HookRequest {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: String,
    /// The time-out of the whole exchange.
    pub timeout: Duration,
}

/// A response.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HookReply {
    /// The status.
    pub status: u16,
    /// The headers, as received.
    pub headers: Vec<(String, String)>,
    /// The body, up to the limit.
    pub body: Vec<u8>,
    /// True if the body was longer.
    pub is_cut: bool,
}

/// An HTTP client for hooks.
#[async_trait]
pub trait HookClient: Send + Sync {
    /// Sends a request and reads the response, whatever its status. An error is the end of a sentence: "did not
    /// answer in time".
    async fn send(&self, request: HookRequest) -> Result<HookReply, String>;
}

/// The client over HTTP.
#[derive(Clone, Debug)]
pub struct HttpHookClient {
    http: Client,
}

impl HttpHookClient {
    /// Creates a client. Fails, with a sentence, only if the machine cannot provide one.
    pub fn new() -> Result<Self, String> {
        let http = Client::builder()
            .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(redirect::Policy::none())
            .referer(false)
            // Pod addresses are reused by other pods: no connection outlives its request.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| format!("could not create an HTTP client for hooks: {}", root_cause(&error)))?;
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

/// reqwest's own message stops at "error sending request"; the cause is at the end of the chain.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// A client that sends nothing while this replica does not lead: another replica asks the same peers.
pub struct WhileLeading {
    client: Arc<dyn HookClient>,
    leads: Box<dyn Fn() -> bool + Send + Sync>,
}

impl WhileLeading {
    /// Wraps a client. `leads` returns whether this replica leads.
    pub fn new(client: Arc<dyn HookClient>, leads: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { client, leads: Box::new(leads) }
    }
}

#[async_trait]
impl HookClient for WhileLeading {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        if !(self.leads)() {
            return Err("was not sent: this replica is no longer the leader".to_owned());
        }
        self.client.send(request).await
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "what is sent over a socket goes by the real clock")]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::{StatusCode, Uri, header};
    use axum::response::IntoResponse;

    use super::*;

    /// A peer on loopback, and how often the target of its redirect was requested.
    async fn peer() -> (Url, Arc<AtomicUsize>) {
        let elsewhere = Arc::<AtomicUsize>::default();
        let count = elsewhere.clone();
        let answer = move |uri: Uri| async move {
            if uri.path() == "/elsewhere" {
                count.fetch_add(1, Ordering::SeqCst);
            }
            match uri.path().trim_start_matches('/').parse::<usize>() {
                Ok(bytes) => "x".repeat(bytes).into_response(),
                Err(_) => (StatusCode::FOUND, [(header::LOCATION, "/elsewhere")], "there").into_response(),
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        (url, elsewhere)
    }

    async fn answer(url: Url) -> HookReply {
        let (method, headers) = (Method::GET, HeaderMap::new());
        let timeout = Duration::from_secs(20);
        let request = HookRequest { method, url, headers, body: String::new(), timeout };
        HttpHookClient::new().unwrap().send(request).await.unwrap()
    }

    #[tokio::test]
    async fn no_redirect_is_followed() {
        let (url, elsewhere) = peer().await;
        let reply = answer(url.join("moved").unwrap()).await;
        assert_eq!((reply.status, reply.body.as_slice()), (302, &b"there"[..]));
        assert_eq!(elsewhere.load(Ordering::SeqCst), 0);
    }

    /// Proxy variables apply to a process: the test above runs again in another one.
    #[tokio::test]
    async fn hook_client_ignores_proxy_variables() {
        let (own, dead) = (std::env::current_exe().unwrap(), "http://127.0.0.1:9");
        let mut command = tokio::process::Command::new(own);
        command.args(["--exact", "probe::hooks::client::tests::no_redirect_is_followed"]);
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env(name, dead);
        }
        let ran = command.env_remove("NO_PROXY").env_remove("no_proxy").output().await.unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    }

    #[tokio::test]
    async fn response_body_is_read_up_to_64_kib() {
        let (url, _) = peer().await;
        for (bytes, read, is_cut) in
            [(0, 0, false), (65_536, 65_536, false), (65_537, 65_536, true), (9 << 20, 65_536, true)]
        {
            let reply = answer(url.join(&bytes.to_string()).unwrap()).await;
            assert_eq!((reply.status, reply.body.len(), reply.is_cut), (200, read, is_cut), "{bytes}");
        }
    }

    /// Counts the requests.
    #[derive(Default)]
    struct Counting(Mutex<usize>);

    #[async_trait]
    impl HookClient for Counting {
        async fn send(&self, _: HookRequest) -> Result<HookReply, String> {
            *self.0.lock().unwrap() += 1;
            Ok(HookReply::default())
        }
    }

    #[tokio::test]
    async fn former_leader_sends_no_requests() {
        let (client, leads) = (Arc::new(Counting::default()), Arc::new(Mutex::new(true)));
        let may_ask = leads.clone();
        let client_of_leader = WhileLeading::new(client.clone(), move || *may_ask.lock().unwrap());
        let request = || HookRequest {
            method: http::Method::GET,
            url: reqwest::Url::parse("http://peer/").unwrap(),
            headers: http::HeaderMap::new(),
            body: String::new(),
            timeout: Duration::from_secs(1),
        };
        assert!(client_of_leader.send(request()).await.is_ok());
        *leads.lock().unwrap() = false;
        let why = client_of_leader.send(request()).await.unwrap_err();
        assert!(why.contains("no longer the leader"), "{why}");
        assert_eq!(*client.0.lock().unwrap(), 1);
    }
}
