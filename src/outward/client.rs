//! The client: one exchange, with the connections and the TLS configuration that it needs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Method, Uri};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use url::Url;

use super::access::{Credentials, Trust};
use super::failure::no_answer;
use super::pem;

/// The most that is read of an answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// How long an idle connection is kept: it should not outlive its pod.
const IDLE_CONNECTION: Duration = Duration::from_secs(30);
/// The most TLS configurations that are kept. Each has connections of its own.
const MAX_KEPT: usize = 64;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("windlass/", env!("CARGO_PKG_VERSION")));

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// The time-out of the whole exchange.
    pub timeout: Duration,
    /// The certificates for an `https` URL.
    pub trust: Trust,
}

/// A response.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers, as received.
    pub headers: Vec<(String, String)>,
    /// The body, up to the limit.
    pub body: Vec<u8>,
    /// True if the body was longer.
    pub is_cut: bool,
    /// The credentials of the request.
    pub credentials: Credentials,
}

impl Reply {
    /// The body, for people: without the credentials of the request.
    #[must_use]
    pub fn shown(&self) -> String {
        self.credentials.hide(&String::from_utf8_lossy(&self.body))
    }
}

/// The connections that outlive their exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeptConnections {
    /// None: the addresses of pods are reused by other pods.
    None,
    /// One to each address, for a while.
    OnePerHost,
}

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;
type Kept = VecDeque<(Option<Trust>, Https)>;

/// The client. Clones share its connections.
#[derive(Clone)]
pub struct HttpClient {
    kept: KeptConnections,
    /// The clients by their certificates (`None` for `http`), the last used one at the end.
    clients: Arc<Mutex<Kept>>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// A client without connections.
    #[must_use]
    pub fn new(kept: KeptConnections) -> Self {
        Self { kept, clients: Arc::default() }
    }

    /// Sends a request and reads the response, whatever its status. An error is the end of a sentence: "did not answer in
    /// time".
    pub async fn send(&self, request: Request) -> Result<Reply, String> {
        let Request { method, url, headers, body, timeout, trust } = request;
        let is_https = url.scheme() == "https";
        let uri: Uri =
            url.as_str().parse().map_err(|why| format!("cannot be sent: the URL is not valid: {why}"))?;
        let client = self.client(is_https.then(|| trust.clone()))?;
        let credentials = Credentials::of(&headers);
        let mut sent = http::Request::new(Full::new(body));
        *sent.method_mut() = method;
        *sent.uri_mut() = uri;
        *sent.headers_mut() = headers;
        sent.headers_mut().entry(USER_AGENT).or_insert(AGENT);
        let exchange = async {
            let response = client.request(sent).await.map_err(|error| no_answer(&error, is_https, &trust))?;
            let (head, mut frames) = response.into_parts();
            let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
            let mut reply = Reply { status: head.status.as_u16(), headers, credentials, ..Reply::default() };
            while let Some(frame) = frames.frame().await {
                // The handshake is long over, so the certificates are not the reason.
                let frame = frame.map_err(|error| no_answer(&error, false, &trust))?;
                let Ok(data) = frame.into_data() else { continue };
                let room = MAX_ANSWER_BYTES - reply.body.len();
                reply.body.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() > room {
                    reply.is_cut = true;
                    break;
                }
            }
            Ok(reply)
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| Err("did not answer in time".to_owned()))
    }

    /// The client with these certificates. Changed certificates are another client, with connections of its own.
    fn client(&self, trust: Option<Trust>) -> Result<Https, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = clients.iter().position(|(known, _)| *known == trust)
            && let Some(found) = clients.remove(at)
        {
            let client = found.1.clone();
            clients.push_back(found);
            return Ok(client);
        }
        let client = connected(self.kept, trust.as_ref())?;
        clients.push_back((trust, client.clone()));
        if clients.len() > MAX_KEPT {
            clients.pop_front();
        }
        Ok(client)
    }
}

/// A client for `https` with these certificates, or for `http`.
fn connected(kept: KeptConnections, trust: Option<&Trust>) -> Result<Https, String> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let builder = HttpsConnectorBuilder::new();
    let builder = match trust {
        Some(trust) => {
            let builder = builder.with_tls_config(pem::config(trust)?).https_only();
            match pem::server_name(trust)? {
                Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
                None => builder,
            }
        }
        None => builder.with_tls_config(pem::without_authorities()?).https_or_http(),
    };
    let connector = builder.enable_http1().wrap_connector(http);
    let per_host = match kept {
        KeptConnections::None => 0,
        KeptConnections::OnePerHost => 1,
    };
    Ok(Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(per_host)
        .build(connector))
}
