//! Checks whether the namespace's quotas have room for a change. The API server refuses objects one by one as they
//! are created; this reports it beforehand.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use super::outcome::{Move, MoveWave};
use crate::reader::sentence;
use windlass_core::api::names::LABEL_NODE;
use windlass_core::api::{ClaimRetention, StatefulNodeSpec};
use windlass_core::planner::fleet::forecast::Action;
use windlass_core::revision::quantity::{NANOS, nanos};

/// Amounts by quota resource, in billionths of the unit.
type Amounts = BTreeMap<String, i128>;

/// The object counts that each new node uses, besides its pod.
const OF_A_NODE: [&str; 2] = ["count/statefulnodes.windlass.dev", "count/statefulsets.apps"];
const OF_COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What the quotas refuse, and what could not be checked.
#[derive(Debug, Default, PartialEq)]
pub(super) struct QuotaVerdict {
    pub(super) refused: Option<String>,
    pub(super) unread: Vec<String>,
}

/// Information about the nodes that are created.
pub(super) struct CreatedNodes<'a> {
    /// The spec of a node at a revision.
    pub(super) spec: &'a dyn Fn(&str) -> Option<Arc<StatefulNodeSpec>>,
    /// True if a volume claim of this name exists: the node reuses it.
    pub(super) has_claim: &'a dyn Fn(&str) -> bool,
}

/// What was read of a namespace.
#[derive(Default)]
pub(super) struct Read {
    quotas: Vec<Value>,
    pods: Vec<Value>,
    unread: Vec<String>,
}

/// Reads the quotas of a namespace, if these nodes use any of them.
pub(super) async fn read(client: &Client, namespace: &str, waves: &[MoveWave]) -> Read {
    let unread = |sentence| Read { unread: vec![sentence], ..Read::default() };
    if !waves.iter().flat_map(|wave| &wave.nodes).any(gets_a_pod) {
        return Read::default();
    }
    let quotas = match list(client, namespace, "ResourceQuota", "").await {
        Ok(quotas) if quotas.is_empty() => return Read::default(),
        Ok(quotas) => quotas,
        Err(why) => return unread(format!("quotas not checked: {why}")),
    };
    match list(client, namespace, "Pod", LABEL_NODE).await {
        Ok(pods) => Read { quotas, pods, unread: Vec::new() },
        Err(why) => unread(format!("quotas not checked: cannot list pods: {why}")),
    }
}

fn gets_a_pod(node: &Move) -> bool {
    matches!(node.action, Action::Create | Action::Update)
}

async fn list(client: &Client, namespace: &str, kind: &str, labels: &str) -> Result<Vec<Value>, String> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let found = api.list(&ListParams::default().labels(labels)).await;
    let found = found.map_err(|error| sentence(&error))?;
    Ok(found.items.into_iter().map(|object| json!(object)).collect())
}

/// What these quotas refuse of the nodes in these waves, in the API server's words.
pub(super) fn judge(read: Read, waves: &[MoveWave], made: &CreatedNodes) -> QuotaVerdict {
    let node = |pod: Value| Some((pod["metadata"]["labels"][LABEL_NODE].as_str()?.to_owned(), pod));
    let old: BTreeMap<String, Value> = read.pods.into_iter().filter_map(node).collect();
    let mut verdict = QuotaVerdict { refused: None, unread: read.unread };
    for quota in &read.quotas {
        let name = quota["metadata"]["name"].as_str().unwrap_or_default();
        let is_scoped = !quota["spec"]["scopes"].is_null() || !quota["spec"]["scopeSelector"].is_null();
        if is_scoped {
            verdict.unread.push(format!("quota {name} not checked: it has scopes"));
            continue;
        }
        let check = QuotaCheck { quota, name, old: &old, made };
        let unchecked = check.unchecked(waves);
        verdict
            .unread
            .extend(unchecked.iter().map(|(what, why)| format!("{what} of quota {name} not checked: {why}")));
        verdict.refused = verdict.refused.or_else(|| check.no_room(waves, &unchecked));
    }
    verdict
}

/// A quota, and what it is checked against.
struct QuotaCheck<'a> {
    quota: &'a Value,
    name: &'a str,
    old: &'a BTreeMap<String, Value>,
    made: &'a CreatedNodes<'a>,
}

impl QuotaCheck<'_> {
    fn hard(&self) -> &Value {
        let counted = &self.quota["status"]["hard"];
        if counted.is_null() { &self.quota["spec"]["hard"] } else { counted }
    }

    /// The resources of this quota whose use is not a sum of what the template says, each with the reason: those of a
    /// storage class, of which one may be the default, and what a `LimitRange` may fill in.
    fn unchecked(&self, waves: &[MoveWave]) -> BTreeMap<String, String> {
        let nodes = waves.iter().flat_map(|wave| &wave.nodes).filter(|node| gets_a_pod(node));
        let specs: Vec<Arc<StatefulNodeSpec>> =
            nodes.filter_map(|node| (self.made.spec)(&node.revision)).collect();
        let why = |what: &String| {
            if what.contains(".storageclass.storage.k8s.io/") {
                return Some("it is limited to a storage class".to_owned());
            }
            let (list, resource) = match what.split_once('.') {
                Some((list @ ("requests" | "limits"), resource)) => (list, resource),
                _ => ("requests", what.as_str()),
            };
            if !OF_COMPUTE.contains(&resource) {
                return None;
            }
            let silent =
                specs.iter().find_map(|spec| silent_container(&spec.pod_template, list, resource))?;
            Some(format!("container {silent} does not set resources.{list}.{resource}"))
        };
        let hard = self.hard().as_object().into_iter().flat_map(|hard| hard.keys());
        hard.filter_map(|what| Some((what.clone(), why(what)?))).collect()
    }

    /// The usage of a node's claims: of the existing ones, or of those that would be created.
    fn claims(&self, node: &str, spec: &StatefulNodeSpec, there: bool) -> Amounts {
        let mut taken = Amounts::new();
        for claim in spec.volume_claim_templates.iter() {
            let name = format!("{}-{node}-0", claim["metadata"]["name"].as_str().unwrap_or_default());
            if (self.made.has_claim)(&name) == there {
                add(&mut taken, &of_claim(claim));
            }
        }
        taken
    }

    /// The refusal, if the quota has too little room at some time. Within a wave, removals come before their
    /// replacements; nodes that leave are removed after others were created.
    fn no_room(&self, waves: &[MoveWave], unchecked: &BTreeMap<String, String>) -> Option<String> {
        let (mut made, mut gone) = (Amounts::new(), Amounts::new());
        // A node may occur twice: created at one revision, then updated.
        let mut pods: BTreeMap<&str, Amounts> =
            self.old.iter().map(|(node, pod)| (node.as_str(), of_pod(pod))).collect();
        let mut last = None;
        let objects = || OF_A_NODE.iter().map(|what| ((*what).to_owned(), NANOS)).collect::<Amounts>();
        for wave in waves {
            for node in wave.nodes.iter().filter(|node| gets_a_pod(node)) {
                let Some(spec) = (self.made.spec)(&node.revision) else { continue };
                if let Some(pod) = pods.remove(node.name.as_str()) {
                    add(&mut gone, &pod);
                }
                let taken = of_pod(&spec.pod_template);
                add(&mut made, &taken);
                pods.insert(&node.name, taken);
                if node.action == Action::Create {
                    add(&mut made, &objects());
                    add(&mut made, &self.claims(&node.name, &spec, false));
                }
                last = Some(spec);
            }
            made.retain(|what, _| !unchecked.contains_key(what));
            if let Some(sentence) = self.exceeded(&made, &gone) {
                return Some(sentence);
            }
            for node in wave.nodes.iter().filter(|node| node.action == Action::Remove) {
                if let Some(pod) = pods.remove(node.name.as_str()) {
                    add(&mut gone, &pod);
                }
                add(&mut gone, &objects());
                if let Some(spec) =
                    last.as_ref().filter(|s| s.volume_claim_retention == ClaimRetention::Delete)
                {
                    add(&mut gone, &self.claims(&node.name, spec, true));
                }
            }
        }
        None
    }

    fn exceeded(&self, made: &Amounts, gone: &Amounts) -> Option<String> {
        made.iter().filter(|(_, made)| **made > 0).find_map(|(what, made)| {
            let read = |list: &Value| list[what.as_str()].as_str().and_then(nanos);
            let hard = read(self.hard())?;
            let used = read(&self.quota["status"]["used"]).unwrap_or_default();
            // Some of what was created may be gone again: existing usage is freed first, then the new requests.
            let gone = gone.get(what).copied().unwrap_or_default();
            let (left, made) = ((used - gone).max(0), made - (gone - used).max(0));
            (left + made > hard).then(|| {
                format!(
                    "exceeded quota: {}, requested: {what}={}, used: {what}={}, limited: {what}={}",
                    self.name,
                    text(what, made),
                    text(what, left),
                    text(what, hard)
                )
            })
        })
    }
}

/// The first container of a pod that does not set a resource.
fn silent_container(template: &Value, list: &str, resource: &str) -> Option<String> {
    if !template["spec"]["resources"].is_null() {
        return None;
    }
    let mut all = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|of| template["spec"][of].as_array().into_iter().flatten());
    // A limit is a request, too.
    let sets = |container: &Value| {
        let of = &container["resources"];
        !of[list][resource].is_null() || !of["limits"][resource].is_null()
    };
    let silent = all.find(|container| !sets(container))?;
    Some(silent["name"].as_str().unwrap_or_default().to_owned())
}

fn amounts(list: &Value) -> Amounts {
    let list = list.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    list.filter_map(|(what, value)| Some((what.clone(), nanos(&text(value))?))).collect()
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (what, amount) in more {
        *to.entry(what.clone()).or_default() += amount;
    }
}

/// What a container requests, or what its limits are. A limit without a request is a request.
fn resources(container: &Value, list: &str) -> Amounts {
    let of = &container["resources"];
    let mut all = if list == "requests" { amounts(&of["limits"]) } else { Amounts::new() };
    all.extend(amounts(&of[list]));
    all
}

/// The sum over a pod's containers, or what one init container needs, if that is more.
fn summed(pod: &Value, list: &str) -> Amounts {
    let of = |of: &str| pod["spec"][of].as_array().map(Vec::as_slice).unwrap_or_default();
    let (mut sum, mut highest) = (Amounts::new(), Amounts::new());
    for container in of("containers") {
        add(&mut sum, &resources(container, list));
    }
    for container in of("initContainers") {
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &resources(container, list));
            continue;
        }
        for (what, amount) in resources(container, list) {
            let most = highest.entry(what).or_default();
            *most = amount.max(*most);
        }
    }
    for (what, amount) in highest {
        let total = sum.entry(what).or_default();
        *total = amount.max(*total);
    }
    sum.extend(amounts(&pod["spec"]["resources"][list]));
    sum
}

/// What a pod uses of quotas. A finished pod counts as an object only.
fn of_pod(pod: &Value) -> Amounts {
    let mut taken = Amounts::from([("count/pods".to_owned(), NANOS)]);
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return taken;
    }
    taken.insert("pods".to_owned(), NANOS);
    for (what, amount) in summed(pod, "requests") {
        taken.insert(format!("requests.{what}"), amount);
        taken.insert(what, amount);
    }
    for (what, amount) in summed(pod, "limits") {
        taken.insert(format!("limits.{what}"), amount);
    }
    taken
}

/// What a volume claim uses of quotas.
fn of_claim(claim: &Value) -> Amounts {
    let storage = amounts(&claim["spec"]["resources"]["requests"]).remove("storage").unwrap_or_default();
    Amounts::from([
        ("count/persistentvolumeclaims".to_owned(), NANOS),
        ("persistentvolumeclaims".to_owned(), NANOS),
        ("requests.storage".to_owned(), storage),
    ])
}

/// Formats an amount: memory and storage in powers of 1024 if exact.
fn text(what: &str, amount: i128) -> String {
    if amount % NANOS != 0 {
        return format!("{}m", (amount + 999_999) / 1_000_000);
    }
    let mut count = amount / NANOS;
    let mut unit = 0;
    if what.ends_with("memory") || what.ends_with("storage") {
        while count != 0 && count % 1024 == 0 && unit < 6 {
            count /= 1024;
            unit += 1;
        }
    }
    format!("{count}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][unit])
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
