//! Events, as far as the user may read them.

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::report::chain::{Subject, TimelineEntry};
use windlass_kube_port::EventNote;
use windlass_kube_port::Kind;
use windlass_kube_port::observed::ObservedPod;

/// The page size of lists.
const PAGE: u32 = 500;

/// The object that events are about.
#[derive(Clone, Copy, Debug)]
pub struct InvolvedObject<'a> {
    /// The object's kind.
    pub kind: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// Its UID, so that events of an earlier object with its name do not count. Empty: any object with the name.
    pub uid: &'a str,
}

impl<'a> InvolvedObject<'a> {
    /// The object whose events explain a node's pod with this name: the pod, or, if it does not exist, the
    /// StatefulSet that creates it.
    #[must_use]
    pub fn of_pod(node: &'a str, name: &'a str, pod: Option<&'a ObservedPod>) -> Self {
        match pod {
            Some(pod) => Self { kind: "Pod", name, uid: &pod.meta.uid },
            None => Self { kind: "StatefulSet", name: node, uid: "" },
        }
    }

    fn has(&self, event: &Value) -> bool {
        let uid = event["regarding"]["uid"].as_str().unwrap_or_default();
        event["regarding"]["kind"] == self.kind && (self.uid.is_empty() || uid.is_empty() || uid == self.uid)
    }
}

/// The events of a namespace, oldest first: about one object, or all. An error says in a sentence why they cannot be
/// read.
pub async fn events(
    client: &Client,
    namespace: &str,
    of: Option<InvolvedObject<'_>>,
) -> Result<Vec<TimelineEntry>, String> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &Kind::Event.resource());
    let mut params = ListParams::default().limit(PAGE);
    if let Some(InvolvedObject { name, .. }) = of {
        params = params.fields(&format!("regarding.name={name}"));
    }
    let mut happened = Vec::new();
    loop {
        let page = api.list(&params).await;
        let page = page.map_err(|error| {
            format!("left out, because events cannot be listed: {}", super::sentence(&error))
        })?;
        let items = page
            .items
            .iter()
            .map(|event| json!(event))
            .filter(|event| of.is_none_or(|involved| involved.has(event)));
        happened.extend(items.filter_map(|event| read(&event)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    happened.sort_by_key(|event| event.at);
    Ok(happened)
}

fn read(event: &Value) -> Option<TimelineEntry> {
    let EventNote { note, at } = EventNote::read(event)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let regarding = &event["regarding"];
    let about = Subject { kind: text(&regarding["kind"]), name: text(&regarding["name"]) };
    Some(TimelineEntry { about, reason: text(&event["reason"]), note, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_time_is_occurrence_not_creation_time() {
        let at = |times: Value| {
            let mut event = json!({"note": "x", "metadata": {"creationTimestamp": "2026-01-01T04:00:09Z"}});
            json_patch::merge(&mut event, &times);
            read(&event).unwrap().at.format("%S").to_string()
        };
        for (times, expected) in [
            (json!({"eventTime": "2026-01-01T04:00:02.5Z"}), "02"),
            (
                json!({"eventTime": "2026-01-01T04:00:02.5Z", "series": {"lastObservedTime": "2026-01-01T04:00:07Z"}}),
                "07",
            ),
            (json!({"deprecatedFirstTimestamp": "2026-01-01T04:00:03Z"}), "03"),
            (
                json!({"deprecatedFirstTimestamp": "2026-01-01T04:00:03Z", "deprecatedLastTimestamp": "2026-01-01T04:00:05Z"}),
                "05",
            ),
            (json!({}), "09"),
        ] {
            assert_eq!(at(times.clone()), expected, "{times}");
        }
    }

    #[test]
    fn events_of_a_previous_object_with_same_name_are_ignored() {
        let event = |uid: &str| json!({"regarding": {"kind": "Pod", "name": "db-0-0", "uid": uid}});
        let involved = |uid| InvolvedObject { kind: "Pod", name: "db-0-0", uid };
        for (uid, of, expected) in
            [("new", "new", true), ("old", "new", false), ("old", "", true), ("", "new", true)]
        {
            assert_eq!(involved(of).has(&event(uid)), expected, "{uid} of {of}");
        }
        let of_set = InvolvedObject::of_pod("db-0-0", "db-0-0-0", None);
        assert!(
            !of_set.has(&event("new")),
            "an event of a pod is not one of its StatefulSet with the same name"
        );
    }
}
