//! Brokers of simulated pods. One server listens on loopback for all of them; the request's destination address
//! identifies the pod, and the broker's state lives as long as that pod.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::extract::{ConnectInfo, State, connect_info::Connected};
use axum::http::StatusCode;
use axum::routing::get;
use axum::serve::IncomingStream;
use axum::{Json, Router};
use chrono::{DateTime, Utc};
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use windlass::clock::{Clock, SystemClock};

/// How a broker handles the next drain request or, for the last value, every one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// It answers 503, once.
    Unavailable,
    /// It is draining until the test releases it.
    SlowUntilReleased,
    /// It always claims to be another pod's.
    AnswersForAnother,
}

/// The history of one broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Broker {
    pub pod: String,
    pub uid: String,
    /// How often it refused to drain.
    pub refused: usize,
    /// How often it accepted a drain request.
    pub drains: usize,
    pub drained_at: Option<DateTime<Utc>>,
}

#[derive(Default)]
struct Shared {
    brokers: Vec<Broker>,
    manners: Vec<Manner>,
    held: bool,
}

/// The brokers of a namespace.
pub struct Brokers {
    pub port: u16,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Clone)]
struct Server {
    pods: Api<DynamicObject>,
    shared: Arc<Mutex<Shared>>,
}

impl Brokers {
    pub async fn start(pods: Api<DynamicObject>) -> Self {
        // Simulated pods have addresses in 127.64.0.0/10.
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let routes = Router::new().route("/drain", get(status).post(drain));
        let routes = routes.with_state(Server { pods, shared: shared.clone() });
        let service = routes.into_make_service_with_connect_info::<Called>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { port, shared }
    }

    /// Sets how the next drain requests are handled, in order.
    pub fn next(&self, manners: &[Manner]) {
        self.shared.lock().unwrap().manners = manners.to_vec();
    }

    /// Completes the current drain.
    pub fn release(&self) {
        self.shared.lock().unwrap().held = false;
    }

    /// All brokers that got requests, in the order of the first.
    pub fn all(&self) -> Vec<Broker> {
        self.shared.lock().unwrap().brokers.clone()
    }
}

/// The destination address.
#[derive(Clone)]
struct Called(IpAddr);

impl Connected<IncomingStream<'_, TcpListener>> for Called {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(stream.io().local_addr().map_or(IpAddr::from([0, 0, 0, 0]), |a: SocketAddr| a.ip()))
    }
}

type Reply = Result<Json<Value>, StatusCode>;

async fn status(State(server): State<Server>, ConnectInfo(Called(ip)): ConnectInfo<Called>) -> Reply {
    let (pod, uid) = server.pod_at(ip).await?;
    Ok(server.answer(&pod, &uid))
}

async fn drain(
    State(server): State<Server>,
    ConnectInfo(Called(ip)): ConnectInfo<Called>,
    Json(wanted): Json<Value>,
) -> Reply {
    let (pod, uid) = server.pod_at(ip).await?;
    if wanted["pod"] != uid.as_str() {
        return Err(StatusCode::CONFLICT);
    }
    {
        let mut shared = server.shared.lock().unwrap();
        let manner = if shared.manners.is_empty() { None } else { Some(shared.manners.remove(0)) };
        let broker = known(&mut shared.brokers, &pod, &uid);
        if manner == Some(Manner::Unavailable) {
            broker.refused += 1;
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        broker.drains += 1;
        shared.held = manner == Some(Manner::SlowUntilReleased);
    }
    Ok(server.answer(&pod, &uid))
}

impl Server {
    async fn pod_at(&self, ip: IpAddr) -> Result<(String, String), StatusCode> {
        let pods = self.pods.list(&ListParams::default()).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        let pod = pods.items.into_iter().find(|p| p.data["status"]["podIP"] == ip.to_string());
        let pod = pod.ok_or(StatusCode::NOT_FOUND)?.metadata;
        Ok((pod.name.unwrap_or_default(), pod.uid.unwrap_or_default()))
    }

    fn answer(&self, pod: &str, uid: &str) -> Json<Value> {
        let mut shared = self.shared.lock().unwrap();
        if shared.manners.first() == Some(&Manner::AnswersForAnother) {
            return Json(json!({"pod": "another", "state": "drained"}));
        }
        let held = shared.held;
        let broker = known(&mut shared.brokers, pod, uid);
        let state = match (broker.drains, held) {
            (0, _) => "serving",
            (_, true) => "draining",
            (_, false) => {
                broker.drained_at.get_or_insert_with(|| SystemClock.now());
                "drained"
            }
        };
        Json(json!({"pod": uid, "state": state}))
    }
}

fn known<'a>(brokers: &'a mut Vec<Broker>, pod: &str, uid: &str) -> &'a mut Broker {
    if let Some(at) = brokers.iter().position(|b| b.uid == uid) {
        return &mut brokers[at];
    }
    let (pod, uid) = (pod.to_owned(), uid.to_owned());
    brokers.push(Broker { pod, uid, refused: 0, drains: 0, drained_at: None });
    brokers.last_mut().unwrap()
}
