//! The completion of names, with exactly the rights that docs/operations.md lists for it.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::e2e::eyes::account;
use windlass_harness::kit::{World, fleet};

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn names_are_completed_by_the_right_to_list_and_without_it_there_are_none() {
    let world = World::new("completion-rights").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let lists =
        account(&world, "lists", json!([rule("windlass.dev", &["nodedeployments"], &["list"])])).await;
    let nobody = account(&world, "nobody", json!([])).await;
    let completed = async |account: &Path| {
        let words = ["windlass", "pause", "-n", &world.ns, "nd/"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.arg("--").args(words).env("KUBECONFIG", account);
        command.envs([("COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", "4"), ("_CLAP_IFS", "\n")]);
        command.envs([("_CLAP_COMPLETE_COMP_TYPE", "9"), ("_CLAP_COMPLETE_SPACE", "false")]);
        String::from_utf8(command.output().await.unwrap().stdout).unwrap()
    };
    assert_eq!(completed(&lists).await, "nd/db");
    assert_eq!(completed(&nobody).await, "");
}
