//! Labels and annotations of `template.metadata` that admission changes in our own writes. What the API server makes of
//! such a write is the state that later changes are compared with, so the write is not repeated: it would change nothing,
//! for each node in each reconcile.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::patches::metadata_change;
use crate::api::{PackedTexts, TemplateMeta};
use crate::cluster::Memory;
use crate::cluster::observed::Meta;
use crate::render::MetadataChange;
use crate::revision::template::is_own_key;

type Changes = BTreeMap<String, Option<String>>;

/// The change that brings the metadata of an existing child to the desired state, without what admission is known to
/// overrule. That is sent again once other values are wanted, or once the child has others.
#[must_use]
pub fn metadata_change_left(
    memory: &Memory,
    meta: &Meta,
    wanted: &TemplateMeta,
    own: &TemplateMeta,
) -> MetadataChange {
    let change = metadata_change(meta, wanted, own);
    let known = memory.overruled.get(&meta.uid);
    if known.is_none() || known != of_users(meta, &change) {
        return change;
    }
    // Windlass depends on its own labels and annotations, and always puts them back.
    let own_part = |changes: Changes| changes.into_iter().filter(|(key, _)| is_own_key(key)).collect();
    MetadataChange { labels: own_part(change.labels), annotations: own_part(change.annotations) }
}

/// Records what the API server's answer to a write of this metadata lacks: admission overruled it.
pub fn remember_overruled(memory: &Memory, answer: &Meta, wanted: &TemplateMeta, own: &TemplateMeta) {
    match of_users(answer, &metadata_change(answer, wanted, own)) {
        Some(digest) => memory.overruled.put(&answer.uid, digest),
        None => {
            memory.overruled.take(&answer.uid);
        }
    }
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

    #[test]
    fn what_admission_overruled_is_sent_again_for_another_wish_or_another_state_and_not_before() {
        let memory = Memory::default();
        let (wanted, own) = (
            metadata(&json!({"team": "one", "tier": "db"})),
            metadata(&json!({"windlass.dev/node": "db-0"})),
        );
        let left = |live: &Value, wanted: &TemplateMeta| {
            let change = metadata_change_left(&memory, &child(live), wanted, &own);
            assert_eq!(change.annotations, Changes::new());
            change.labels.into_keys().collect::<Vec<_>>()
        };
        let answer = json!({"windlass.dev/node": "db-0", "team": "platform", "tier": "db"});
        assert_eq!(left(&answer, &wanted), ["team"], "nothing is known yet");
        remember_overruled(&memory, &child(&answer), &wanted, &own);
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
        remember_overruled(&memory, &child(&obeyed), &wanted, &own);
        assert_eq!(left(&answer, &wanted), ["team"], "admission lets it be by now");
    }
}
