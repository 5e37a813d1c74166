//! Events, as far as a person may read them.

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::cluster::Kind;
use crate::cluster::port::Told;
use crate::report::chain::Happened;

/// As many events are asked for at once.
const PAGE: u32 = 500;

/// The events of a namespace, oldest first: of one object by its name, or of all. An error says in a sentence why they
/// cannot be read.
pub async fn events(client: &Client, namespace: &str, of: Option<&str>) -> Result<Vec<Happened>, String> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &Kind::Event.resource());
    let mut params = ListParams::default().limit(PAGE);
    if let Some(name) = of {
        params = params.fields(&format!("regarding.name={name}"));
    }
    let mut happened = Vec::new();
    loop {
        let page = api.list(&params).await;
        let page = page.map_err(|error| {
            format!("left out, because events cannot be listed: {}", super::sentence(&error))
        })?;
        happened.extend(page.items.iter().filter_map(|event| read(&json!(event))));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    happened.sort_by_key(|event| event.at);
    Ok(happened)
}

fn read(event: &Value) -> Option<Happened> {
    let Told { note, at } = Told::read(event)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let regarding = &event["regarding"];
    let about = format!("{} {}", text(&regarding["kind"]), text(&regarding["name"]));
    Some(Happened { about, reason: text(&event["reason"]), note, at })
}
