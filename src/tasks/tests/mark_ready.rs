//! `mark-ready` of a node: the sidecar is asked once to mark the node ready, it is believed only together with the
//! kubelet, and the task waits for a sidecar that is dead or lies.

use super::super::{MarkReady, ReplacePod};
use super::*;
use crate::sidecar::{SidecarError, Status};

fn status(ready: bool) -> Status {
    Status { ready, ..Status::default() }
}

fn unreachable() -> SidecarError {
    SidecarError::Unreachable("the sidecar does not answer".to_owned())
}

#[tokio::test]
async fn node_without_sidecar_is_ready_when_its_pod_is() {
    let v1 = || Node::serving("v1");
    let table = [
        ("ready", v1(), "done"),
        ("not ready", v1().not_ready(), "waiting for the pod to be Ready: NotReady: pod db-0-0 is not ready"),
        ("leaving", v1().terminating(), "waiting for the pod to be created again"),
        ("no pod", v1().without_pod(), "waiting for the pod to be created again"),
        ("unseen", v1().unseen(), UNSEEN),
        (
            "at another revision",
            v1().with_new_pod("v0"),
            "ChildChanged: the pod no longer has the granted template",
        ),
        ("granted another", v1().granted("v2"), "ChildChanged: the pod no longer has the granted template"),
        ("no StatefulSet", v1().without_set(), "ChildChanged: the node's StatefulSet no longer exists"),
    ];
    for (what, node, expected) in table {
        let outcomes = bench(&node).twice(&MarkReady {}).await;
        let found = outcomes.each_ref().map(said);
        assert!(
            found.iter().all(|f| f.starts_with(expected.split(':').next().unwrap())),
            "{what}: {found:?}"
        );
        assert_eq!(found[0] == "done", expected == "done", "{what}");
    }
}

#[tokio::test]
async fn ready_sidecar_is_not_marked_again() {
    let mut bench = bench(&with_sidecar());
    bench.sidecars.expect_status().times(1).returning(|_| Ok(status(true)));
    let ready = bench.scope();
    assert_eq!(said(&heard(&MarkReady {}, &ready).await), "done");
    assert_eq!(said(&run(&MarkReady {}, &ready).await), "done", "its answer counts until the end is stored");
}

/// A node with a sidecar, whose template is the granted one.
fn with_sidecar() -> Node {
    let node = Node::serving("v1").with_sidecar();
    // The sidecar is part of the template, so the granted hash is that of a template with the sidecar.
    let spec: StatefulNodeSpec = serde_json::from_value(node.object["spec"].clone()).unwrap();
    let rendered = render::pod_template(&spec, None, &RenderOptions::default()).unwrap();
    let hash = revision::pod_template_hash(&rendered);
    let mut node = node.set("/metadata/annotations/windlass.dev~1pod-template-hash", json!(hash));
    node.object["spec"]["grantedHash"] = json!(hash);
    node.object["status"]["podTemplateHash"] = json!(hash);
    node
}

#[tokio::test]
async fn unready_sidecar_is_marked_with_the_task_id() {
    let mut bench = bench(&with_sidecar().not_ready());
    let id = plan("NodeUpdate").tasks[0].id.clone();
    let mut told = false;
    bench.sidecars.expect_status().times(2).returning(move |_| {
        let answer = status(told);
        told = true;
        Ok(answer)
    });
    bench
        .sidecars
        .expect_submit()
        .times(1)
        .withf(move |url, request, _| url == "http://sidecar:7777" && request.id == id)
        .returning(|_, _, _| Ok(()));
    let ready = bench.scope();
    let outcome = heard(&MarkReady {}, &ready).await;
    assert!(said(&outcome).starts_with("waiting for the pod to be Ready"), "{outcome:?}");
    assert!(
        matches!(outcome, Ok(Outcome::Waiting { recheck_after: Some(_), .. })),
        "the kubelet's probe is not an event of ours"
    );
    assert_eq!(ready.answer(), SidecarAnswer::Ready);
}

/// A node whose sidecar requires a token.
fn with_token() -> Node {
    let mut node = with_sidecar().not_ready();
    node.object["spec"]["sidecar"]["tokenSecret"] = json!("tok");
    node
}

/// Sets the port's answer to a read of the Secret.
fn secret(bench: &mut Bench, answer: Result<Option<Value>, ClusterError>) {
    bench
        .cluster
        .expect_get()
        .times(1)
        .withf(|kind, namespace, name| (*kind, namespace, name) == (Kind::Secret, "shop", "tok"))
        .return_once(move |_, _, _| answer);
}

#[tokio::test]
async fn sidecar_request_carries_the_token_of_the_node_secret() {
    let mut bench = bench(&with_token());
    bench.sidecars.expect_status().times(2).returning(|_| Ok(status(false)));
    secret(&mut bench, Ok(Some(json!({"data": {"token": "czNjcmV0Cg=="}}))));
    bench
        .sidecars
        .expect_submit()
        .times(1)
        .withf(|_, _, token| *token == Some("s3cret"))
        .returning(|_, _, _| Ok(()));
    let outcome = said(&heard(&MarkReady {}, &bench.scope()).await);
    assert!(outcome.starts_with("waiting for the pod to be Ready"), "{outcome}");
}

#[tokio::test]
async fn unavailable_token_is_reported_and_no_request_is_sent() {
    let forbidden =
        ClusterError::Forbidden { object: "Secret shop/tok".to_owned(), message: "no".to_owned() };
    let table = [
        (Ok(None), "Secret shop/tok (sidecar.tokenSecret) does not exist: create it with the key token"),
        (
            Ok(Some(json!({"data": {"password": "eA=="}}))),
            "Secret shop/tok (sidecar.tokenSecret) has no key token: add it",
        ),
        (Err(forbidden), "the operator may not read Secret shop/tok"),
        (Err(overloaded()), &overloaded().to_string()),
    ];
    for (answer, sentence) in table {
        let mut bench = bench(&with_token());
        bench.sidecars.expect_status().times(1).returning(|_| Ok(status(false)));
        secret(&mut bench, answer);
        let ready = bench.scope();
        let outcome = said(&heard(&MarkReady {}, &ready).await);
        let begins = outcome.starts_with("waiting for the sidecar to answer: ");
        assert!(begins && outcome.contains(sentence), "{outcome}");
        assert!(matches!(ready.answer(), SidecarAnswer::Unreachable(said) if said.contains(sentence)));
    }
}

#[tokio::test]
async fn ready_sidecar_with_unready_pod_keeps_the_task_waiting() {
    let mut bench = bench(&with_sidecar().not_ready());
    bench.sidecars.expect_status().returning(|_| Ok(status(true)));
    let outcome = said(&heard(&MarkReady {}, &bench.scope()).await);
    assert!(outcome.starts_with("waiting for the pod to be Ready"), "{outcome}");
}

#[tokio::test]
async fn unready_sidecar_with_ready_pod_keeps_the_task_waiting() {
    let mut bench = bench(&with_sidecar());
    bench.sidecars.expect_status().returning(|_| Ok(status(false)));
    bench.sidecars.expect_submit().returning(|_, _, _| Ok(()));
    let ready = bench.scope();
    let outcome = said(&heard(&MarkReady {}, &ready).await);
    assert!(outcome.contains("the pod is Ready, but the sidecar reports that the node is not"), "{outcome}");
    assert_eq!(ready.answer(), SidecarAnswer::NotReady);
}

#[tokio::test]
async fn unreachable_or_refusing_sidecar_keeps_the_task_waiting() {
    let refusal = || SidecarError::Refused { status: 401, message: "no token".to_owned() };
    let garbled = || SidecarError::Garbled("not JSON".to_owned());
    for error in [unreachable(), refusal(), garbled()] {
        let mut bench = bench(&with_sidecar().not_ready());
        let sentence = error.to_string();
        bench.sidecars.expect_status().times(1).return_once(move |_| Err(error));
        let ready = bench.scope();
        for _ in 0..2 {
            let outcome = heard(&MarkReady {}, &ready).await;
            assert_eq!(said(&outcome), format!("waiting for the sidecar to answer: {sentence}"));
            assert_eq!(ready.answer(), SidecarAnswer::Unreachable(sentence.clone()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn expired_sidecar_answer_is_not_a_success() {
    let mut bench = bench(&with_sidecar());
    bench.sidecars.expect_status().times(1).returning(|_| Ok(status(true)));
    let ready = bench.scope();
    let waits = said(&run(&MarkReady {}, &ready).await);
    assert_eq!(waits, "waiting for the sidecar to answer");
    assert_eq!(ready.answer(), SidecarAnswer::NotAsked);
    ready.scope.prober.answer_all().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(said(&run(&MarkReady {}, &ready).await), "waiting for the sidecar to answer");
    assert_eq!(ready.answer(), SidecarAnswer::Ready, "which is the last that is known");
}

#[tokio::test]
async fn sidecar_is_not_queried_before_it_runs() {
    let starting = with_sidecar()
        .not_ready()
        .pod("/status/initContainerStatuses/0/state", json!({"waiting": {"reason": "PodInitializing"}}));
    let ready = bench(&starting).scope();
    let outcome = said(&run(&MarkReady {}, &ready).await);
    assert!(outcome.starts_with("waiting for the pod to be Ready"), "{outcome}");
    assert_eq!(ready.answer(), SidecarAnswer::NotReady);
}

#[tokio::test]
async fn mark_ready_plan_needs_no_grant_and_ends_with_its_pod() {
    let marks = |node: &Node| Bench { recipe: "MarkReady", ..bench(node) };
    let other = Node::serving("v1").granted("v2");
    assert_eq!(said(&marks(&other).once(&MarkReady {}).await), "done");
    let gone = said(&marks(&Node::serving("v1").without_pod()).once(&MarkReady {}).await);
    assert_eq!(gone, "ChildChanged: the pod that was to be marked ready no longer exists");
}

#[tokio::test]
async fn dead_sidecar_does_not_block_pod_replacement() {
    // No call of the sidecar is expected: a call would panic.
    let mut node = with_sidecar().with_new_pod("v0").not_ready();
    node.object["spec"]["grantID"] = json!("grant-2");
    let mut bench = bench(&node);
    bench.cluster.expect_delete().times(1).returning(|_| Ok(()));
    assert_eq!(said(&bench.once(&ReplacePod {}).await), "waiting for the old pod to terminate");
}
