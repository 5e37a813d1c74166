//! GET: objects and lists, with selectors, pages and versions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::kinds::Kind;
use super::super::refusal::Refusal;
use super::super::selector::{FieldSelector, LabelSelector};
use super::super::store::{Key, Object};
use super::super::world::World;
use super::create::shown_form;

/// The options of a list or a watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub limit: usize,
    pub continues: Option<String>,
    pub version: Option<String>,
    pub version_match: Option<String>,
    pub bookmarks: bool,
    pub initial_events: bool,
    pub timeout_seconds: Option<u64>,
}

/// A page of a list.
pub(crate) struct Page {
    pub items: Vec<Arc<Object>>,
    pub version: u64,
    pub continues: Option<String>,
    pub remaining: Option<usize>,
}

impl World {
    pub(crate) fn get(&self, kind: &Kind, key: &Key) -> Result<Arc<Object>, Refusal> {
        let object = self.store.get(kind.shelf, key).ok_or_else(|| Refusal::not_found(kind, &key.1))?;
        Ok(shown_form(kind, object))
    }

    pub(crate) fn list(&self, kind: &Kind, namespace: &str, options: &ListOptions) -> Result<Page, Refusal> {
        let (version, after) = self.list_version(options)?;
        let chosen = |object: &Arc<Object>| {
            let shown = shown_form(kind, object);
            (options.labels.matches(&shown.value) && options.fields.matches(&shown.value)).then_some(shown)
        };
        let all: Vec<Arc<Object>> = if version == self.store.version() {
            self.store.list(kind.shelf, namespace).filter_map(|(_, object)| chosen(object)).collect()
        } else {
            self.store.list_at(kind.shelf, namespace, version).iter().filter_map(chosen).collect()
        };
        let mut items: Vec<Arc<Object>> = match &after {
            Some(after) => all.into_iter().filter(|object| key_of(object) > *after).collect(),
            None => all,
        };
        let total = items.len();
        let cut = options.limit > 0 && total > options.limit;
        if cut {
            items.truncate(options.limit);
        }
        let last = items.last().filter(|_| cut).map(|object| key_of(object));
        let unselective = options.labels.is_empty() && options.fields.is_empty();
        Ok(Page {
            version,
            continues: last.map(|(ns, name)| continue_token(version, &ns, &name)),
            remaining: (cut && unselective).then(|| total - options.limit),
            items,
        })
    }

    /// The version to list at, and the key to continue after.
    fn list_version(&self, options: &ListOptions) -> Result<(u64, Option<Key>), Refusal> {
        let current = self.store.version();
        if let Some(token) = &options.continues {
            let (version, key) =
                read_token(token).ok_or_else(|| Refusal::bad_request("continue key is not valid"))?;
            if version < self.store.compacted() {
                return Err(Refusal::expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                ));
            }
            return Ok((version, Some(key)));
        }
        let version = parse_version(options.version.as_deref())?;
        if version > current {
            return Err(too_large(version, current));
        }
        if options.version_match.as_deref() == Some("Exact") {
            if version < self.store.compacted() {
                return Err(Refusal::expired("The resourceVersion for the provided list is too old."));
            }
            return Ok((version, None));
        }
        Ok((current, None))
    }
}

/// Parses a version; absent counts as 0.
pub(crate) fn parse_version(text: Option<&str>) -> Result<u64, Refusal> {
    match text {
        None | Some("") => Ok(0),
        Some(text) => text.parse().map_err(|_| {
            Refusal::bad_request(format!(
                "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

/// The error for a version that the server has not reached.
pub(crate) fn too_large(version: u64, current: u64) -> Refusal {
    let mut refusal =
        Refusal::new(504, "Timeout", format!("Too large resource version: {version}, current: {current}"));
    refusal.details = json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    });
    refusal
}

fn key_of(object: &Object) -> Key {
    (object.meta("namespace").to_owned(), object.meta("name").to_owned())
}

fn continue_token(version: u64, namespace: &str, name: &str) -> String {
    format!("{version}.{namespace}/{name}")
}

fn read_token(token: &str) -> Option<(u64, Key)> {
    let (version, key) = token.split_once('.')?;
    let (namespace, name) = key.split_once('/')?;
    Some((version.parse().ok()?, (namespace.to_owned(), name.to_owned())))
}

/// The metadata of an object, for clients that only cache metadata.
pub(crate) fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}
