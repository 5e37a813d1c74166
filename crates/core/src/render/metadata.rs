//! The labels and annotations of child objects. Those from `template.metadata` apply at once. The child records which
//! they are, so that a key that is removed from the template is removed from the child, and a key that somebody else
//! set stays.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::names::{ANNOTATION_APPLIED_METADATA, LAST_APPLIED};
use crate::api::{PackedTexts, TemplateMeta};
use crate::revision::template::is_own_key;

type Texts = BTreeMap<String, String>;

/// The keys that came from `template.metadata`, as the annotation stores them.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
struct Applied {
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
}

impl Applied {
    fn of(wanted: &TemplateMeta) -> Self {
        let TemplateMeta { labels, annotations } = wanted;
        Self { labels: labels.keys().cloned().collect(), annotations: annotations.keys().cloned().collect() }
    }

    /// Reads the record from a child's annotations. If it cannot be read, it is empty: a key may stay that should go,
    /// but no key of somebody else is removed.
    fn recorded_on(annotations: &PackedTexts) -> Self {
        annotations
            .get(ANNOTATION_APPLIED_METADATA)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    fn to_annotation(&self) -> Option<String> {
        let Self { labels, annotations } = self;
        let is_empty = labels.is_empty() && annotations.is_empty();
        (!is_empty).then(|| json!({"labels": labels, "annotations": annotations}).to_string())
    }
}

/// `template.metadata` without Windlass's own keys, which it may not set, and without `kubectl`'s copy of another object.
/// That is not read of a child, so it would differ in every reconcile.
#[must_use]
pub fn without_own_keys(metadata: &TemplateMeta) -> TemplateMeta {
    let TemplateMeta { labels, annotations } = metadata;
    let is_users = |key: &str| !is_own_key(key) && key != LAST_APPLIED;
    let users = |texts: &Texts| {
        texts.iter().filter(|(key, _)| is_users(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    TemplateMeta { labels: users(labels), annotations: users(annotations) }
}

/// Those of a child's labels and annotations that came from `template.metadata`. This is all that a node's controller
/// knows of the fleet's template.
#[must_use]
pub fn applied_metadata(labels: &PackedTexts, annotations: &PackedTexts) -> TemplateMeta {
    let applied = Applied::recorded_on(annotations);
    let pick = |texts: &PackedTexts, keys: &BTreeSet<String>| {
        texts
            .iter()
            .filter(|(key, _)| keys.contains(*key))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect()
    };
    without_own_keys(&TemplateMeta {
        labels: pick(labels, &applied.labels),
        annotations: pick(annotations, &applied.annotations),
    })
}

/// The labels and annotations of a new child: those of `template.metadata`, overridden by Windlass's own.
#[must_use]
pub fn new_child_metadata(wanted: &TemplateMeta, own: &TemplateMeta) -> TemplateMeta {
    let wanted = without_own_keys(wanted);
    let record = Applied::of(&wanted).to_annotation();
    let TemplateMeta { mut labels, mut annotations } = wanted;
    let TemplateMeta { labels: own_labels, annotations: own_annotations } = own.clone();
    labels.extend(own_labels);
    annotations.extend(own_annotations);
    annotations.extend(record.map(|text| (ANNOTATION_APPLIED_METADATA.to_owned(), text)));
    TemplateMeta { labels, annotations }
}

/// What to change in a child's labels and annotations; `None` removes a key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MetadataChange {
    /// Labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
}

impl MetadataChange {
    /// True if there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { labels, annotations } = self;
        labels.is_empty() && annotations.is_empty()
    }

    /// This change and another one, of other keys. One write has one change: two that were made from the same live object
    /// would overwrite one another.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.labels.extend(other.labels);
        self.annotations.extend(other.annotations);
        self
    }
}

/// The change that brings an existing child's labels and annotations to `template.metadata` (`wanted`) and to
/// Windlass's own (`own`). Keys that neither of them ever set are not changed.
#[must_use]
pub fn metadata_change(
    wanted: &TemplateMeta,
    own: &TemplateMeta,
    live_labels: &PackedTexts,
    live_annotations: &PackedTexts,
) -> MetadataChange {
    let before = Applied::recorded_on(live_annotations);
    let target = new_child_metadata(wanted, own);
    let mut annotations = changes(&target.annotations, &before.annotations, live_annotations);
    let has_record = live_annotations.contains_key(ANNOTATION_APPLIED_METADATA);
    if has_record && !target.annotations.contains_key(ANNOTATION_APPLIED_METADATA) {
        annotations.insert(ANNOTATION_APPLIED_METADATA.to_owned(), None);
    }
    MetadataChange { labels: changes(&target.labels, &before.labels, live_labels), annotations }
}

fn changes(
    target: &Texts,
    before: &BTreeSet<String>,
    live: &PackedTexts,
) -> BTreeMap<String, Option<String>> {
    let set = target
        .iter()
        .filter(|(key, value)| live.get(key) != Some(value.as_str()))
        .map(|(key, value)| (key.clone(), Some(value.clone())));
    let removed = before
        .iter()
        .filter(|key| live.contains_key(key) && !target.contains_key(*key) && !is_own_key(key))
        .map(|key| (key.clone(), None));
    set.chain(removed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn meta(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> TemplateMeta {
        TemplateMeta { labels: texts(labels), annotations: texts(annotations) }
    }

    fn packed(texts: &Texts) -> PackedTexts {
        texts.iter().collect()
    }

    fn own() -> TemplateMeta {
        meta(&[("windlass.dev/node", "db-0")], &[])
    }

    /// A child after this change.
    fn apply(mut child: TemplateMeta, change: &MetadataChange) -> TemplateMeta {
        let MetadataChange { labels, annotations } = change;
        for (live, changes) in [(&mut child.labels, labels), (&mut child.annotations, annotations)] {
            for (key, value) in changes {
                match value {
                    Some(value) => live.insert(key.clone(), value.clone()),
                    None => live.remove(key),
                };
            }
        }
        child
    }

    fn change(wanted: &TemplateMeta, child: &TemplateMeta) -> MetadataChange {
        metadata_change(wanted, &own(), &packed(&child.labels), &packed(&child.annotations))
    }

    #[test]
    fn new_child_needs_no_change() {
        for wanted in [meta(&[], &[]), meta(&[("a", "b")], &[]), meta(&[("a", "b")], &[("c", "")])] {
            let child = new_child_metadata(&wanted, &own());
            assert!(change(&wanted, &child).is_empty(), "{wanted:?}");
            assert_eq!(applied_metadata(&packed(&child.labels), &packed(&child.annotations)), wanted);
        }
    }

    #[test]
    fn child_records_keys_from_the_template() {
        let child = new_child_metadata(&meta(&[("b", "1"), ("a", "2")], &[("c", "3")]), &own());
        assert_eq!(
            child.annotations[ANNOTATION_APPLIED_METADATA],
            r#"{"annotations":["c"],"labels":["a","b"]}"#
        );
        let bare = new_child_metadata(&meta(&[], &[]), &own());
        assert_eq!(bare, own());
    }

    #[test]
    fn removed_template_label_is_deleted_and_foreign_label_is_kept() {
        let mut child = new_child_metadata(&meta(&[("a", "1"), ("b", "2")], &[("c", "3")]), &own());
        child.labels.insert("stranger".to_owned(), "x".to_owned());
        child.annotations.insert("stranger".to_owned(), "x".to_owned());

        let wanted = meta(&[("b", "4")], &[]);
        let found = change(&wanted, &child);
        let expected = json!({
            "labels": {"a": null, "b": "4"},
            "annotations": {"c": null, "windlass.dev/applied-metadata": r#"{"annotations":[],"labels":["b"]}"#},
        });
        assert_eq!(json!({"labels": found.labels, "annotations": found.annotations}), expected);
        let child = apply(child, &found);
        assert_eq!(child.labels["stranger"], "x");
        assert_eq!(child.annotations["stranger"], "x");

        let child = apply(child.clone(), &change(&meta(&[], &[]), &child));
        let left = meta(&[("windlass.dev/node", "db-0"), ("stranger", "x")], &[("stranger", "x")]);
        assert_eq!(child, left);
        assert!(change(&meta(&[], &[]), &child).is_empty());
    }

    #[test]
    fn already_removed_key_is_not_removed_again() {
        let mut child = new_child_metadata(&meta(&[("a", "1"), ("b", "2")], &[]), &own());
        child.labels.remove("a");
        assert_eq!(change(&meta(&[("b", "2")], &[]), &child).labels, BTreeMap::new());
    }

    #[test]
    fn foreign_key_in_the_template_becomes_owned_by_it() {
        let mut child = new_child_metadata(&meta(&[], &[]), &own());
        child.labels.insert("a".to_owned(), "stranger".to_owned());
        let child = apply(child.clone(), &change(&meta(&[("a", "ours")], &[]), &child));
        assert_eq!(child.labels["a"], "ours");
        let child = apply(child.clone(), &change(&meta(&[], &[]), &child));
        assert_eq!(child.labels.get("a"), None);
    }

    #[test]
    fn own_keys_are_restored_and_never_taken_from_a_template() {
        let wanted = meta(
            &[("windlass.dev/node", "other"), ("app.kubernetes.io/managed-by", "Helm"), ("a", "b")],
            &[("windlass.dev/abort", "x"), ("windlass.dev/applied-metadata", "{}")],
        );
        let child = new_child_metadata(&wanted, &own());
        assert_eq!(child.labels, texts(&[("windlass.dev/node", "db-0"), ("a", "b")]));
        assert_eq!(child.annotations.keys().collect::<Vec<_>>(), [ANNOTATION_APPLIED_METADATA]);
        assert_eq!(
            change(&meta(&[], &[]), &meta(&[], &[])).labels["windlass.dev/node"].as_deref(),
            Some("db-0")
        );
    }

    #[test]
    fn last_applied_annotation_is_not_copied_to_a_child() {
        let wanted = meta(&[("a", "b")], &[(LAST_APPLIED, "{}"), ("c", "d")]);
        let child = new_child_metadata(&wanted, &own());
        assert_eq!(child, new_child_metadata(&meta(&[("a", "b")], &[("c", "d")]), &own()));
        assert!(change(&wanted, &child).is_empty());
        // A child of an earlier version has it, and it is not read of the child.
        let record = format!(r#"{{"annotations":["c","{LAST_APPLIED}"],"labels":["a"]}}"#);
        let mut earlier = child;
        earlier.annotations.insert(ANNOTATION_APPLIED_METADATA.to_owned(), record);
        let found = change(&wanted, &earlier);
        assert_eq!(found.annotations.keys().collect::<Vec<_>>(), [ANNOTATION_APPLIED_METADATA]);
        assert!(change(&wanted, &apply(earlier, &found)).is_empty());
    }

    #[test]
    fn manipulated_record_removes_no_other_keys() {
        for record in
            [r#"{"labels":["windlass.dev/set"],"annotations":["windlass.dev/owner-uid"]}"#, "nonsense", "[]"]
        {
            let child = meta(
                &[("windlass.dev/node", "db-0"), ("windlass.dev/set", "first"), ("stranger", "x")],
                &[("windlass.dev/owner-uid", "u"), (ANNOTATION_APPLIED_METADATA, record)],
            );
            let found = change(&meta(&[], &[]), &child);
            assert_eq!(found.labels, BTreeMap::new(), "{record}");
            assert_eq!(
                found.annotations.keys().collect::<Vec<_>>(),
                [ANNOTATION_APPLIED_METADATA],
                "{record}"
            );
            assert_eq!(
                applied_metadata(&packed(&child.labels), &packed(&child.annotations)),
                meta(&[], &[]),
                "{record}"
            );
        }
    }
}
