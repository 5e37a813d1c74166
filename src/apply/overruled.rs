//! Labels and annotations that admission changes in our own writes. What the API server makes of such a write is the state
//! that later changes are compared with, so the write is not repeated in each reconcile: it would change nothing. Those of
//! `template.metadata` stay so. On its own ones Windlass depends: they are written again once in a while, and the node says
//! which they are.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::own_fields::PUT_BACK_AGAIN;
use super::patches::metadata_change;
use crate::api::{PackedTexts, TemplateMeta};
use crate::clock::monotonic;
use crate::cluster::memory::{OverruledKey, OverruledKeys};
use crate::cluster::observed::Meta;
use crate::cluster::{Kind, Memory};
use crate::engine::sentence::cut;
use crate::render::MetadataChange;
use crate::revision::template::is_own_key;

type Changes = BTreeMap<String, Option<String>>;

/// The longest value of an annotation in a sentence, in bytes. A label's value is never longer.
const MAX_VALUE_BYTES: usize = 63;

/// The id of the Service of a node or a fleet in [`Memory::overruled`]. A Service's own UID would not be forgotten with it.
#[must_use]
pub fn service_of(uid: &str) -> String {
    format!("{uid}/service")
}

/// The change that brings the metadata of an existing child to the desired state, without what admission is known to
/// overrule. That is sent again once other values are wanted, or once the child has others; Windlass's own also once in a
/// while. `id`: the child's in [`Memory::overruled`].
#[must_use]
pub fn metadata_change_left(
    memory: &Memory,
    id: &str,
    meta: &Meta,
    wanted: &TemplateMeta,
    own: &TemplateMeta,
) -> MetadataChange {
    let change = metadata_change(meta, wanted, own);
    if change.is_empty() {
        return change;
    }
    let are_users_kept = memory.overruled.get(id).is_some_and(|known| of_users(meta, &change) == Some(known));
    let are_own_kept = memory.overruled_own.get(id).is_some_and(|known| {
        known.keys == own_keys(meta, &change) && monotonic().duration_since(known.at) < PUT_BACK_AGAIN
    });
    let is_kept = |key: &str| if is_own_key(key) { are_own_kept } else { are_users_kept };
    let left =
        |changes: Changes| -> Changes { changes.into_iter().filter(|(key, _)| !is_kept(key)).collect() };
    MetadataChange { labels: left(change.labels), annotations: left(change.annotations) }
}

/// Records what the API server's answer to a write of this metadata lacks: admission overruled it. `sent`: the change that
/// was written.
pub fn remember_overruled(
    memory: &Memory,
    id: &str,
    answer: &Meta,
    wanted: &TemplateMeta,
    own: &TemplateMeta,
    sent: &MetadataChange,
) {
    let lacks = metadata_change(answer, wanted, own);
    match of_users(answer, &lacks) {
        Some(digest) => memory.overruled.put(id, digest),
        None => {
            memory.overruled.take(id);
        }
    }
    let mut keys = own_keys(answer, &lacks);
    if keys.is_empty() {
        memory.overruled_own.take(id);
    }
    // The answer to a write says nothing of keys that the write was not about, and does not put off their next attempt.
    keys.retain(|lacking| {
        let sent = if lacking.field == "label" { &sent.labels } else { &sent.annotations };
        sent.contains_key(&lacking.key)
    });
    if !keys.is_empty() {
        memory.overruled_own.put(id, OverruledKeys { at: monotonic(), keys });
    }
}

/// Windlass's own labels and annotations that a change is about, with the values that they have now.
fn own_keys(meta: &Meta, change: &MetadataChange) -> Vec<OverruledKey> {
    let mut keys = Vec::new();
    for (field, changes, live) in
        [("label", &change.labels, &meta.labels), ("annotation", &change.annotations, &meta.annotations)]
    {
        for (key, wanted) in changes.iter().filter(|(key, _)| is_own_key(key)) {
            let live = live.get(key).map(str::to_owned);
            keys.push(OverruledKey { field, key: key.clone(), wanted: wanted.clone(), live });
        }
    }
    keys
}

/// Windlass's own labels and annotations that admission did not let be, as long as they are as it left them.
fn overruled_own(memory: &Memory, id: &str, meta: &Meta) -> Option<OverruledKeys> {
    let is_so = |known: &OverruledKey| {
        let texts = if known.field == "label" { &meta.labels } else { &meta.annotations };
        texts.get(&known.key) == known.live.as_deref()
    };
    memory.overruled_own.get(id).filter(|known| known.keys.iter().all(is_so))
}

/// True if admission does not let Windlass's own labels or annotations of an object be.
#[must_use]
pub fn is_overruled(memory: &Memory, id: &str, meta: &Meta) -> bool {
    overruled_own(memory, id, meta).is_some()
}

/// Says which of Windlass's own labels and annotations of an object admission does not let be, if there are any.
#[must_use]
pub fn sentence(memory: &Memory, id: &str, kind: Kind, meta: &Meta) -> Option<String> {
    let known = overruled_own(memory, id, meta)?;
    let value = |text: Option<&str>| cut(text.unwrap_or("absent"), MAX_VALUE_BYTES);
    let differs = |key: &OverruledKey| {
        let (live, wanted) = (value(key.live.as_deref()), value(key.wanted.as_deref()));
        format!("{} {} is {live} instead of {wanted}", key.field, key.key)
    };
    let all: Vec<String> = known.keys.iter().map(differs).collect();
    let (all, kind) = (all.join(", "), kind.name());
    Some(format!(
        "{kind} {}: {all}, and setting it back has no effect: exempt the {kind}s of Windlass from the admission policy that \
         changes it",
        meta.name
    ))
}

/// A digest of the part of a change that is not about Windlass's own keys, and of the values that these keys have now;
/// `None` if there is no such part.
fn of_users(meta: &Meta, change: &MetadataChange) -> Option<u64> {
    let labels = with_live(&change.labels, &meta.labels);
    let annotations = with_live(&change.annotations, &meta.annotations);
    let is_empty = labels.is_empty() && annotations.is_empty();
    (!is_empty).then(|| BuildHasherDefault::<DefaultHasher>::default().hash_one((labels, annotations)))
}

/// The changed keys, each with its wanted and its live value.
fn with_live<'a>(
    changes: &'a Changes,
    live: &'a PackedTexts,
) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
    let users = changes.iter().filter(|(key, _)| !is_own_key(key));
    users.map(|(key, wanted)| (key.as_str(), wanted.as_deref(), live.get(key))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn child(labels: &Value) -> Meta {
        Meta::read(&json!({"metadata": {"name": "db-0", "uid": "u", "labels": labels, "annotations": {
            "windlass.dev/applied-metadata": r#"{"annotations":[],"labels":["team","tier"]}"#}}}))
    }

    fn metadata(labels: &Value) -> TemplateMeta {
        TemplateMeta { labels: serde_json::from_value(labels.clone()).unwrap(), ..TemplateMeta::default() }
    }

    fn all_of(change: &MetadataChange) -> Vec<&str> {
        assert_eq!(change.annotations, Changes::new());
        change.labels.keys().map(String::as_str).collect()
    }

    #[test]
    fn what_admission_overruled_is_sent_again_for_another_wish_or_another_state_and_not_before() {
        let memory = Memory::default();
        let (wanted, own) = (
            metadata(&json!({"team": "one", "tier": "db"})),
            metadata(&json!({"windlass.dev/node": "db-0"})),
        );
        let change = |live: &Value, wanted: &TemplateMeta| {
            metadata_change_left(&memory, "u", &child(live), wanted, &own)
        };
        let left = |live: &Value, wanted: &TemplateMeta| {
            all_of(&change(live, wanted)).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let remember = |answer: &Value, sent: &MetadataChange| {
            remember_overruled(&memory, "u", &child(answer), &wanted, &own, sent);
        };
        let answer = json!({"windlass.dev/node": "db-0", "team": "platform", "tier": "db"});
        assert_eq!(left(&answer, &wanted), ["team"], "nothing is known yet");
        remember(&answer, &change(&answer, &wanted));
        assert_eq!(left(&answer, &wanted), [""; 0]);
        let table = [
            (json!({"windlass.dev/node": "db-0", "team": "x", "tier": "db"}), vec!["team"]),
            (json!({"windlass.dev/node": "db-0", "team": "platform", "tier": "x"}), vec!["team", "tier"]),
            (json!({"windlass.dev/node": "db-0", "tier": "db"}), vec!["team"]),
            (json!({"team": "platform", "tier": "db"}), vec!["windlass.dev/node"]),
        ];
        for (live, expected) in table {
            assert_eq!(left(&live, &wanted), expected, "{live}");
        }
        let other = metadata(&json!({"team": "two", "tier": "db"}));
        assert_eq!(left(&answer, &other), ["team"], "another wish");
        let obeyed = json!({"windlass.dev/node": "db-0", "team": "one", "tier": "db"});
        remember(&obeyed, &change(&answer, &other));
        assert_eq!(left(&answer, &wanted), ["team"], "admission lets it be by now");
    }

    #[tokio::test(start_paused = true)]
    async fn windlasss_own_is_sent_again_once_a_minute_and_at_once_in_another_state() {
        let memory = Memory::default();
        let own = metadata(&json!({"app.kubernetes.io/managed-by": "windlass", "windlass.dev/node": "db-0"}));
        let of = |manager: &str, team: &str| {
            let mut labels = json!({"windlass.dev/node": "db-0", "team": team, "tier": "db"});
            labels["app.kubernetes.io/managed-by"] = json!(manager);
            labels
        };
        let change = |live: &Value, team: &str| {
            let wanted = metadata(&json!({"team": team, "tier": "db"}));
            metadata_change_left(&memory, "u", &child(live), &wanted, &own)
        };
        let write = |answer: &Value, team: &str, sent: &MetadataChange| {
            let wanted = metadata(&json!({"team": team, "tier": "db"}));
            remember_overruled(&memory, "u", &child(answer), &wanted, &own, sent);
        };
        let said = |live: &Value| sentence(&memory, "u", Kind::Service, &child(live));
        let answer = of("platform", "one");
        let first = change(&answer, "one");
        assert_eq!(all_of(&first), ["app.kubernetes.io/managed-by"]);
        assert_eq!(said(&answer), None, "it was not tried");
        write(&answer, "one", &first);
        assert_eq!(
            said(&answer).unwrap(),
            "Service db-0: label app.kubernetes.io/managed-by is platform instead of windlass, and setting it back has no \
             effect: exempt the Services of Windlass from the admission policy that changes it"
        );
        for _ in 0..2 {
            assert_eq!(all_of(&change(&answer, "one")), [""; 0]);
            tokio::time::sleep(PUT_BACK_AGAIN / 2).await;
            // Something else that is written in between puts nothing off.
            let other = change(&answer, "two");
            if all_of(&other) == ["team"] {
                write(&of("platform", "two"), "two", &other);
            }
        }
        let again = change(&answer, "one");
        assert_eq!(all_of(&again), ["app.kubernetes.io/managed-by"]);
        write(&answer, "one", &again);
        assert_eq!(all_of(&change(&answer, "one")), [""; 0]);
        let by_hand = of("hand", "one");
        assert_eq!(all_of(&change(&by_hand, "one")), ["app.kubernetes.io/managed-by"], "another state");
        assert!(said(&by_hand).is_none() && is_overruled(&memory, "u", &child(&answer)));
        write(&of("windlass", "one"), "one", &change(&by_hand, "one"));
        assert_eq!((said(&answer), is_overruled(&memory, "u", &child(&answer))), (None, false));
    }
}
