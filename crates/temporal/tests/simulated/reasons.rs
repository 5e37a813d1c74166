//! Every reason is reached, and they differ.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_temporal::port::BuildId;
use windlass_temporal_fake::{Fault, GateEnd};

use crate::stage::{Stage, deployment, spec};

/// A stage with a current version, whose next one has this gate and the build ID `two`.
async fn gated(end: GateEnd) -> Stage {
    let mut spec = spec("v1");
    spec["rollout"]["gate"] = json!({"workflowType": "Check", "timeoutSeconds": 60});
    let (s, _) = Stage::running(spec).await;
    s.temporal.gates_end(&BuildId::new("two"), end);
    s.patch(json!({"spec": {"unsafeCustomBuildID": "two"}})).await;
    s
}

async fn rolling(patch: Value, tag: &str) -> Stage {
    let (s, _) = Stage::running(spec("v1")).await;
    s.patch(patch).await;
    s.set_image(tag).await;
    s
}

async fn ill(fault: Fault) -> Stage {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.set_fault(fault);
    s
}

/// A stage that ends with this reason.
async fn reach(reason: &str) -> Stage {
    match reason {
        "WaitingForPollers" => rolling(json!({}), "mute").await,
        "GateRunning" => gated(GateEnd::Never).await,
        "GateFailed" => gated(GateEnd::Fails("no such table".to_owned())).await,
        "MissingTaskQueues" => rolling(json!({}), "other").await,
        "ReadyToPromote" => {
            rolling(json!({"spec": {"rollout": {"strategy": "Manual", "steps": null}}}), "v2").await
        }
        "Ramping" => rolling(json!({}), "v2").await,
        "VersionLimitReached" => rolling(json!({"spec": {"maxVersions": 1}}), "v2").await,
        "OwnedByOther" => {
            let (s, _) = Stage::running(spec("v1")).await;
            s.temporal.manage(&deployment(), Some("another operator"));
            s.set_image("v2").await;
            s
        }
        "RateLimited" => ill(Fault::Limiting).await,
        "TemporalUnreachable" => ill(Fault::Down).await,
        "CredentialsInvalid" => ill(Fault::Refusing).await,
        "ConnectionSecretNotFound" => ill(Fault::Secretless).await,
        "InvalidSpec" => {
            let s = Stage::new();
            s.hooks.refuse(Some("the host is not allowed"));
            let mut spec = spec("v1");
            spec["hooks"] = json!([{"name": "release", "at": "BeforeRollout", "approval": {}}]);
            s.create(spec).await;
            s
        }
        other => panic!("nobody knows how to reach {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_reason_is_reachable_and_has_a_message() {
    let reasons = [
        ("WaitingForPollers", "Unknown"),
        ("GateRunning", "Unknown"),
        ("GateFailed", "False"),
        ("MissingTaskQueues", "False"),
        ("ReadyToPromote", "Unknown"),
        ("Ramping", "Unknown"),
        ("VersionLimitReached", "False"),
        ("OwnedByOther", "False"),
        ("RateLimited", "Unknown"),
        ("TemporalUnreachable", "Unknown"),
        ("CredentialsInvalid", "False"),
        ("ConnectionSecretNotFound", "False"),
        ("InvalidSpec", "False"),
    ];
    let mut messages = BTreeSet::new();
    for (reason, truth) in reasons {
        let s = reach(reason).await;
        s.until(reason, |s| s.condition("UpToDate") == format!("{truth}/{reason}")).await;
        assert!(!s.message("UpToDate").is_empty(), "{reason} has a sentence");
        // A reason that needs a person is a stall at once, with the same reason.
        let stalled = s.condition("Stalled");
        let expected =
            if truth == "False" { format!("True/{reason}") } else { "False/Progressing".to_owned() };
        assert_eq!(stalled, expected, "{reason}");
        messages.insert(s.message("UpToDate"));
    }
    assert_eq!(messages.len(), reasons.len(), "each says something else: {messages:#?}");
}
