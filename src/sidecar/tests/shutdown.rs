//! The shutdown of the server, and time-outs of requests.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::{SidecarArgs, SidecarServer};
use super::{Answer, FakeServer, Sidecar, args, ask, http};

const LONG: Duration = Duration::from_mins(1);

async fn half_a_request(sidecar: &Sidecar) -> TcpStream {
    let mut connection = TcpStream::connect(sidecar.url.trim_start_matches("http://")).await.unwrap();
    connection.write_all(b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").await.unwrap();
    connection
}

#[tokio::test]
async fn stopped_server_answers_pending_requests_and_exits() {
    let application = FakeServer::start(Answer::SayAfter(Duration::from_millis(200), "7".into())).await;
    let mut sidecar = Sidecar::start(SidecarArgs { height_url: Some(application.url()), ..args() }).await;
    let asked = tokio::spawn(ask(http().get(format!("{}/v1/status", sidecar.url))));
    application.until_asked().await;
    sidecar.stop();
    let (status, body) = asked.await.unwrap();
    assert_eq!(status, 200);
    assert!(body.contains(r#""height":7"#), "{body}");
    timeout(LONG, &mut sidecar.serving).await.unwrap().unwrap().unwrap();
    http().get(format!("{}/healthz", sidecar.url)).send().await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn stopped_server_does_not_wait_for_incomplete_requests() {
    let mut sidecar = Sidecar::serve(SidecarServer::with_request_timeout(&args(), 10 * LONG)).await;
    let _open = half_a_request(&sidecar).await;
    // Let the server accept it before the shutdown.
    tokio::time::sleep(Duration::from_millis(50)).await;
    sidecar.stop();
    timeout(LONG, &mut sidecar.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn incomplete_request_times_out() {
    let server = SidecarServer::with_request_timeout(&args(), Duration::from_millis(100));
    let sidecar = Sidecar::serve(server).await;
    let mut connection = half_a_request(&sidecar).await;
    let mut answer = [0; 12];
    timeout(Duration::from_secs(5), connection.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}
