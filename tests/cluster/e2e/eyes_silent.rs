//! The output of `windlass status -w` during and after an outage of the API server.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::watch;

use windlass_harness::kit::{World, fleet};

/// Forwards bytes while it is open.
async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut open: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        if open.wait_for(|open| *open).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// A proxy to a local port that can be blocked: connections stay, but nothing passes.
async fn way_to(port: u16, open: watch::Receiver<bool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(pass(near_in, far_out, open.clone()));
            tokio::spawn(pass(far_in, near_out, open.clone()));
        }
    });
    way
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn status_watch_reports_lost_connection_time() {
    let world = World::new("silent").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let config = std::fs::read_to_string(world.cp.kubeconfig()).unwrap();
    let (before, after) = config.split_once("https://127.0.0.1:").expect("an address on loopback");
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    let (let_pass, open) = watch::channel(true);
    let way = way_to(after[..digits].parse().unwrap(), open).await;
    let kubeconfig = world.cp.kubeconfig().with_file_name(format!("{}-silent", &*world.ns));
    std::fs::write(&kubeconfig, format!("{before}https://127.0.0.1:{way}{}", &after[digits..])).unwrap();
    let mut watching = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["status", "-w", "nd/db", "-n", &world.ns])
        .env("KUBECONFIG", &kubeconfig)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut until = async |words: &str| {
        let found = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(words) {
                    return line;
                }
            }
            panic!("it ended before it said {words:?}");
        };
        tokio::time::timeout(Duration::from_secs(90), found)
            .await
            .unwrap_or_else(|_| panic!("it never said {words:?}"))
    };
    until("db").await;
    let_pass.send(false).unwrap();
    let told = until("No response from the API server since ").await;
    // `HH:MM:SS  No response from the API server since HH:MM:SS UTC: …`
    let clock = |text: &str| chrono::NaiveTime::parse_from_str(&text[..8], "%H:%M:%S").unwrap();
    let since = clock(told.split("since ").nth(1).unwrap());
    let silence = (clock(&told) - since).num_seconds().rem_euclid(86_400);
    assert!((28..60).contains(&silence), "{told}");
    let_pass.send(true).unwrap();
    until("The API server responds again.").await;
    // A rollout that stays in progress: one that ended before the watches are back would print no line.
    world.set_image("db:2-nope").await;
    until("Updating").await;
}
