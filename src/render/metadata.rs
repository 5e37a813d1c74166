//! The labels and annotations of child objects. Those from `template.metadata` apply at once; the child
//! remembers which they were, so that one removed there is removed here, and a stranger's stays.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::TemplateMeta;
use crate::api::names::ANNOTATION_APPLIED_METADATA;
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

    /// An annotation that cannot be read names nothing: a key too many stays, and nothing of a stranger's
    /// is removed.
    fn recorded_on(annotations: &Texts) -> Self {
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

/// `template.metadata` without the keys that are Windlass's own, which it may not set.
#[must_use]
pub fn without_own_keys(metadata: &TemplateMeta) -> TemplateMeta {
    let TemplateMeta { labels, annotations } = metadata;
    let users = |texts: &Texts| {
        texts.iter().filter(|(key, _)| !is_own_key(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    TemplateMeta { labels: users(labels), annotations: users(annotations) }
}

/// What of a child's labels and annotations came from `template.metadata`. A node's executor knows the
/// fleet's template by this alone.
#[must_use]
pub fn applied_metadata(labels: &Texts, annotations: &Texts) -> TemplateMeta {
    let applied = Applied::recorded_on(annotations);
    let pick = |texts: &Texts, keys: &BTreeSet<String>| {
        texts.iter().filter(|(key, _)| keys.contains(*key)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    without_own_keys(&TemplateMeta {
        labels: pick(labels, &applied.labels),
        annotations: pick(annotations, &applied.annotations),
    })
}

/// The labels and annotations of a new child: `template.metadata`'s, under Windlass's own.
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
    /// Whether there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { labels, annotations } = self;
        labels.is_empty() && annotations.is_empty()
    }

    /// A JSON merge patch of the child's `metadata`, without the resourceVersion that guards it.
    #[must_use]
    pub fn to_merge_patch(&self) -> Value {
        let Self { labels, annotations } = self;
        let mut patch = serde_json::Map::new();
        for (field, changes) in [("labels", labels), ("annotations", annotations)] {
            if !changes.is_empty() {
                patch.insert(field.to_owned(), json!(changes));
            }
        }
        Value::Object(patch)
    }
}

/// What brings an existing child's labels and annotations to `template.metadata` (`wanted`) and to
/// Windlass's own (`own`). What neither of them ever set stays as it is.
#[must_use]
pub fn metadata_change(
    wanted: &TemplateMeta,
    own: &TemplateMeta,
    live_labels: &Texts,
    live_annotations: &Texts,
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

fn changes(target: &Texts, before: &BTreeSet<String>, live: &Texts) -> BTreeMap<String, Option<String>> {
    let set = target
        .iter()
        .filter(|(key, value)| live.get(*key) != Some(value))
        .map(|(key, value)| (key.clone(), Some(value.clone())));
    let removed = before
        .iter()
        .filter(|key| live.contains_key(*key) && !target.contains_key(*key) && !is_own_key(key))
        .map(|key| (key.clone(), None));
    set.chain(removed).collect()
}
