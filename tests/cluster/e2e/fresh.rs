//! Lost connections: the operator notices an outage and reports it. And its requests at rest.

use std::time::{Duration, Instant};

use crate::e2e::proxy::Proxy;
use windlass_harness::kit::{World, fleet};

/// An operator behind a proxy, and the address of its HTTP endpoints.
async fn behind_a_proxy(prefix: &str) -> (World, Proxy, String) {
    let mut world = World::without_operator(prefix).await;
    let proxy = Proxy::before(&mut world).await;
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("an address").port()
    };
    let bind = format!("127.0.0.1:{port}");
    world.start_operator(&["--bind", &bind]).await;
    (world, proxy, format!("http://{bind}"))
}

/// An endpoint's status and body; 0 while nothing listens.
async fn page(pages: &str, path: &str) -> (u16, String) {
    match reqwest::get(format!("{pages}{path}")).await {
        Ok(answer) => (answer.status().as_u16(), answer.text().await.unwrap_or_default()),
        Err(_) => (0, String::new()),
    }
}

/// Waits for a status; returns the body and the time that it took.
async fn until_page(pages: &str, path: &str, status: u16, patience_seconds: u64) -> (String, Duration) {
    let began = Instant::now();
    loop {
        let (seen, said) = page(pages, path).await;
        if seen == status {
            return (said, began.elapsed());
        }
        assert!(
            began.elapsed() < Duration::from_secs(patience_seconds),
            "{path} is {seen} after {patience_seconds} s, and not {status}: {said}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn two_minutes_of_silence_make_the_operator_unready_and_then_ill() {
    let (world, proxy, pages) = behind_a_proxy("ill").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    until_page(&pages, "/readyz", 200, 10).await;
    assert_eq!(page(&pages, "/healthz").await, (200, "ok\n".to_owned()));
    let (metrics, age) = (page(&pages, "/metrics").await.1, "windlass_cache_age_seconds{kind=\"Pod\"} ");
    let fresh = metrics.lines().find_map(|line| line.strip_prefix(age)?.parse::<f64>().ok());
    assert!(fresh.is_some_and(|seconds| seconds < 25.0), "{metrics}");

    proxy.swallow_all();
    let (said, _) = until_page(&pages, "/readyz", 503, 35).await;
    assert!(said.contains("has heard nothing of the API server for"), "{said}");
    assert_eq!(page(&pages, "/healthz").await.0, 200, "not yet");
    let (said, _) = until_page(&pages, "/healthz", 503, 125).await;
    let seconds = said.trim_end().rsplit(' ').nth(1).and_then(|s| s.parse::<u64>().ok());
    assert!(said.starts_with("the cache of ") && seconds.is_some_and(|s| s >= 120), "{said}");

    proxy.heal();
    until_page(&pages, "/healthz", 200, 30).await;
    until_page(&pages, "/readyz", 200, 30).await;
    world.set_image("db:2").await;
    world.until_applied().await;
}
