//! The story itself.

use std::process::Stdio;

use crate::demo::kit::{read_until, text, windlass};

#[test]
fn demo_prints_all_scenes_as_plain_lines() {
    let output = windlass().args(["demo", "--speed", "1000"]).env("TERM", "xterm").output().unwrap();
    let (said, complaints) = text(&output);
    assert_eq!((output.status.code(), complaints.as_str()), (Some(0), ""), "{said}");
    let mut rest = said.as_str();
    for word in [
        "1. A fleet is created",
        "$ kubectl apply -f examples/fleet.yaml",
        "● ● ● ● ●",
        "2. A good image is rolled out",
        "Updating 4/5",
        "3. A bad image stops after one wave, and the failed nodes are listed",
        "db-3 ImagePullBackOff: Back-off pulling image \"registry.example/db:1.2-nope\"",
        "the other 3 nodes stay available at 1.1",
        "4. The fix supersedes it",
        "5. A rollout is rolled back halfway",
        "3 nodes were not updated",
        "6. The operator is killed halfway, and another one continues",
        "another operator starts",
        "continued where it stopped",
        "Summary",
        "InPlace  Superseded  NewTarget",
        "at most 2 of 5 nodes were unavailable at once (limit: 2)",
    ] {
        let found =
            rest.find(word).unwrap_or_else(|| panic!("{word:?} is not said, or not in its place:\n{said}"));
        rest = &rest[found + word.len()..];
    }
    assert!(!said.contains('\x1b'), "no terminal, no colours");
}

#[test]
#[ignore = "nightly"]
fn demo_ends_silently_when_its_reader_closes() {
    let mut demo = windlass()
        .args(["demo", "--speed", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    read_until(&mut demo.stdout.take().unwrap(), "1. A fleet");
    let output = demo.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output).1.as_str()), (Some(0), ""));
}

#[test]
fn invalid_demo_arguments_are_refused_with_a_message() {
    for (arguments, code, sentence) in [
        (&["demo", "--speed", "0"][..], 2, "a number from 0.1 to 1000"),
        (&["demo", "--nodes", "2"], 2, "3..=100"),
        (&["demo", "--port", "80"], 2, "--serve"),
        (&["demo", "--cluster", "--speed", "2"], 2, "cannot be used with"),
        (
            &["demo", "--cluster"],
            1,
            "No such file or directory (os error 2); set KUBECONFIG to an existing file, or unset it",
        ),
    ] {
        let output = windlass()
            .args(arguments)
            .env("KUBECONFIG", "/nonexistent")
            .env("HOME", "/nonexistent")
            .output()
            .unwrap();
        let (said, complaint) = text(&output);
        assert_eq!((output.status.code(), said.as_str()), (Some(code), ""), "{arguments:?}: {complaint}");
        assert!(complaint.contains(sentence), "{arguments:?}: {complaint}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = windlass().args(["demo", "--serve", "--port", &port]).output().unwrap();
    let complaint = text(&output).1;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint.contains(&format!("--port {port}")) && complaint.contains("choose another port"),
        "{complaint}"
    );
}
