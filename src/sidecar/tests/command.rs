//! The command line of `windlass sidecar`.

use std::time::Duration;

use clap::Parser;

use super::super::{SidecarArgs, run};
use super::{args, ask, free_port, http};

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    sidecar: SidecarArgs,
}

fn parse(flags: &[&str]) -> Result<SidecarArgs, String> {
    let words = ["sidecar"].iter().chain(flags);
    Command::try_parse_from(words).map(|command| command.sidecar).map_err(|error| error.to_string())
}

#[test]
fn nothing_needs_to_be_said() {
    let args = parse(&[]).unwrap();
    assert_eq!(args.bind.to_string(), "0.0.0.0:7777");
    assert_eq!((args.caught_up_url, args.height_url, args.token_file), (None, None, None));
}

#[test]
fn everything_can_be_said() {
    let args = parse(&[
        "--bind=[::1]:9",
        "--caught-up-url=http://127.0.0.1:1/ok",
        "--height-url=http://127.0.0.1:1/height",
        "--token-file=token",
    ])
    .unwrap();
    assert_eq!(args.bind.to_string(), "[::1]:9");
    assert_eq!(args.caught_up_url.unwrap().path(), "/ok");
    assert_eq!(args.height_url.unwrap().path(), "/height");
    assert_eq!(args.token_file.unwrap().to_str(), Some("token"));
}

#[test]
fn a_url_that_cannot_be_asked_is_wrong_usage() {
    for (url, part) in [("https://127.0.0.1/", "http://"), ("127.0.0.1:80", "not a URL"), ("", "not a URL")] {
        for flag in ["--caught-up-url", "--height-url"] {
            let error = parse(&[&format!("{flag}={url}")]).unwrap_err();
            assert!(error.contains(flag) && error.contains(part), "{error}");
        }
    }
}

#[tokio::test]
async fn an_address_in_use_is_a_sentence_that_says_what_to_do() {
    let (taken, _) = free_port().await;
    let bind = taken.local_addr().unwrap();
    let sentence = run(SidecarArgs { bind, ..args() }).await.unwrap_err();
    assert!(sentence.contains(&bind.to_string()) && sentence.contains("--bind"), "{sentence}");
}

#[tokio::test]
async fn the_command_serves_on_its_address() {
    let (listener, url) = free_port().await;
    let bind = listener.local_addr().unwrap();
    drop(listener);
    let serving = tokio::spawn(run(SidecarArgs { bind, ..args() }));
    while http().get(format!("{url}/healthz")).send().await.is_err() {
        assert!(!serving.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ask(http().get(format!("{url}/readyz"))).await.0, 503);
    serving.abort();
}
