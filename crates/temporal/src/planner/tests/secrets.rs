//! The Secrets of the workers.

use std::collections::BTreeMap;

use serde_json::json;
use windlass_core::revision::config::{ConfigKind, ConfigReference};

use crate::api::Connection;
use crate::planner::WorkerSecrets;
use crate::planner::secrets::{Data, used_by_workers};

fn connection(more: &serde_json::Value) -> Connection {
    let mut given = json!({"address": "temporal:7233"});
    given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(given).unwrap()
}

fn found(digest: &str, keys: &[&str]) -> Data {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    Data::Found { digest: digest.to_owned(), keys }
}

fn observed(connection: &Connection, answers: &[(&str, Data)]) -> WorkerSecrets {
    let secret = |name: &str| ConfigReference { kind: ConfigKind::Secret, name: name.to_owned() };
    let answers: BTreeMap<_, _> = answers.iter().map(|(name, data)| (secret(name), data.clone())).collect();
    WorkerSecrets::of("shop", &used_by_workers(connection), &answers)
}

#[test]
fn missing_secret_or_key_is_named_with_its_field() {
    let all = connection(&json!({
        "workers": {"tls": {"certSecret": "cert", "caSecret": "ca"}, "apiKeySecret": {"name": "key"}},
        "workerSecret": "env",
    }));
    let cert = || ("cert", found("1", &["tls.crt", "tls.key", "ca.crt"]));
    let (ca, key) = (|| ("ca", found("1", &["ca.crt"])), || ("key", found("1", &["api-key"])));
    let env = || ("env", found("1", &[]));
    let missing = |what: &str| (Some(format!("{what}. Until then, Windlass updates no workers")), true);
    for (answers, expected) in [
        (vec![cert(), ca(), key(), env()], (None, false)),
        // The API server did not answer.
        (vec![], (None, false)),
        (
            vec![cert(), ca(), key(), ("env", Data::Missing)],
            missing("Secret shop/env (connection.workerSecret) does not exist: create it"),
        ),
        (
            vec![("cert", Data::Missing), ca(), key(), env()],
            missing("Secret shop/cert (connection.workers.tls.certSecret) does not exist: create it"),
        ),
        (
            vec![("cert", found("1", &["tls.crt"])), ca(), key(), env()],
            missing("Secret shop/cert (connection.workers.tls.certSecret) has no key tls.key: add it"),
        ),
        (
            vec![cert(), ("ca", found("1", &["tls.crt"])), key(), env()],
            missing("Secret shop/ca (connection.workers.tls.caSecret) has no key ca.crt: add it"),
        ),
        (
            // A missing one is named first: new pods do not start.
            vec![("cert", Data::Unreadable("forbidden".into())), ca(), ("key", found("1", &["k"])), env()],
            missing("Secret shop/key (connection.workers.apiKeySecret) has no key api-key: add it"),
        ),
        (
            vec![("cert", Data::Unreadable("forbidden".into())), ca(), key(), env()],
            (
                Some(
                    "Windlass cannot read Secret shop/cert (connection.workers.tls.certSecret): forbidden. A change of it \
                     updates no workers"
                        .to_owned(),
                ),
                false,
            ),
        ),
    ] {
        let seen = observed(&all, &answers);
        assert_eq!((seen.sentence().map(str::to_owned), seen.hold_updates()), expected, "{answers:?}");
    }
}

#[test]
fn digest_has_the_workers_credentials_and_keeps_what_is_unknown() {
    let both = connection(&json!({
        "apiKeySecret": {"name": "operators"},
        "workers": {"tls": {"certSecret": "a", "caSecret": "a"}, "apiKeySecret": {"name": "b"}},
        "workerSecret": "env",
    }));
    let (a, b) = (("a", found("1", &[])), ("b", found("2", &[])));
    let env = ("env", found("3", &[]));
    let digest = |answers: &[(&str, Data)], recorded: &str| observed(&both, answers).digest(recorded);
    let all = [a.clone(), b, env];
    assert_eq!(digest(&all, ""), "secret/a:1,secret/b:2", "neither of the operator's nor of workerSecret");
    assert_eq!(digest(&all, "secret/a:0,secret/b:0"), "secret/a:1,secret/b:2");
    assert_eq!(digest(&[a, ("b", Data::Missing)], "secret/a:0,secret/b:0"), "secret/a:1,secret/b:0");
    assert_eq!(digest(&[], "secret/a:0,secret/b:0"), "secret/a:0,secret/b:0");
    let none = connection(&json!({"workerSecret": "env"}));
    assert_eq!(observed(&none, &all).digest("secret/a:0"), "", "existing objects are not restarted");
}
