//! Events, as far as a person may read them.

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::cluster::Kind;
use crate::cluster::observed::ObservedPod;
use crate::cluster::port::EventNote;
use crate::report::chain::Happened;

/// As many events are asked for at once.
const PAGE: u32 = 500;

/// Whose events are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// The object's kind.
    pub kind: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// Its UID: what another of its name left behind is not its own. Where it is empty all of its name are meant.
    pub uid: &'a str,
}

impl<'a> Whose<'a> {
    /// Those that tell of a node's pod, whose name this is: its own, or, where there is none, those of the StatefulSet that is to
    /// make it.
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

/// The events of a namespace, oldest first: of one object, or of all. An error says in a sentence why they cannot be read.
pub async fn events(
    client: &Client,
    namespace: &str,
    of: Option<Whose<'_>>,
) -> Result<Vec<Happened>, String> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &Kind::Event.resource());
    let mut params = ListParams::default().limit(PAGE);
    if let Some(Whose { name, .. }) = of {
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
            .filter(|event| of.is_none_or(|whose| whose.has(event)));
        happened.extend(items.filter_map(|event| read(&event)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    happened.sort_by_key(|event| event.at);
    Ok(happened)
}

fn read(event: &Value) -> Option<Happened> {
    let EventNote { note, at } = EventNote::read(event)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let regarding = &event["regarding"];
    let about = format!("{} {}", text(&regarding["kind"]), text(&regarding["name"]));
    Some(Happened { about, reason: text(&event["reason"]), note, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_of_when_it_happened_and_not_of_when_it_was_sent() {
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
    fn what_another_of_its_name_left_behind_is_not_its_own() {
        let event = |uid: &str| json!({"regarding": {"kind": "Pod", "name": "db-0-0", "uid": uid}});
        let whose = |uid| Whose { kind: "Pod", name: "db-0-0", uid };
        for (uid, of, expected) in
            [("new", "new", true), ("old", "new", false), ("old", "", true), ("", "new", true)]
        {
            assert_eq!(whose(of).has(&event(uid)), expected, "{uid} of {of}");
        }
        let of_set = Whose::of_pod("db-0-0", "db-0-0-0", None);
        assert!(!of_set.has(&event("new")), "a pod's is not its StatefulSet's, whatever they are called");
    }
}
