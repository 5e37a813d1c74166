//! Checks whether the namespace's quotas have room for a change. The API server refuses objects one by one as they
//! are created; this reports it beforehand.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use super::compute::{
    Amounts, add, amount, defaulted, is_best_effort, of_claim, of_pod, one, text, unspecified,
};
use super::foreseen::MoveWave;
use crate::api::names::LABEL_NODE;
use crate::api::{ClaimRetention, StatefulNodeSpec};
use crate::planner::fleet::forecast::Action;
use crate::reader::sentence;

/// The object counts that each new node uses, besides its pod.
const OF_A_NODE: [&str; 2] = ["count/statefulnodes.windlass.dev", "count/statefulsets.apps"];

/// What the quotas refuse, and what could not be checked.
#[derive(Debug, Default, PartialEq)]
pub(super) struct QuotaVerdict {
    pub(super) refused: Option<String>,
    pub(super) unread: Vec<String>,
}

/// Information about the nodes that are created.
pub(super) struct Made<'a> {
    /// The spec of a node at a revision.
    pub(super) spec: &'a dyn Fn(&str) -> Option<Arc<StatefulNodeSpec>>,
    /// True if a volume claim of this name exists: the node reuses it.
    pub(super) has_claim: &'a dyn Fn(&str) -> bool,
}

/// What was read of a namespace.
#[derive(Default)]
pub(super) struct Read {
    quotas: Vec<Value>,
    ranges: Vec<Value>,
    pods: Vec<Value>,
    unread: Vec<String>,
}

/// Reads the quotas of a namespace, if these nodes use any of them.
pub(super) async fn read(client: &Client, namespace: &str, waves: &[MoveWave]) -> Read {
    let mut read = Read::default();
    let makes = |action: Action| matches!(action, Action::Create | Action::Update);
    if !waves.iter().flat_map(|wave| &wave.nodes).any(|node| makes(node.action)) {
        return read;
    }
    let quotas = match list(client, namespace, "ResourceQuota", "").await {
        Ok(quotas) if quotas.is_empty() => return read,
        Ok(quotas) => quotas,
        Err(why) => {
            read.unread.push(format!("not looked which quotas there are: {why}"));
            return read;
        }
    };
    match list(client, namespace, "Pod", LABEL_NODE).await {
        Ok(pods) => read.pods = pods,
        Err(why) => {
            read.unread.push(format!("not looked what its pods take of quotas: {why}"));
            return read;
        }
    }
    match list(client, namespace, "LimitRange", "").await {
        Ok(ranges) => read.ranges = ranges,
        Err(why) => read.unread.push(format!("not looked what LimitRanges add to its pods: {why}")),
    }
    Read { quotas, ..read }
}

async fn list(client: &Client, namespace: &str, kind: &str, labels: &str) -> Result<Vec<Value>, String> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let found = api.list(&ListParams::default().labels(labels)).await;
    let found = found.map_err(|error| sentence(&error))?;
    Ok(found.items.into_iter().map(|object| json!(object)).collect())
}

/// What these quotas refuse of the nodes in these waves, in the API server's words.
pub(super) fn judge(read: Read, waves: &[MoveWave], made: &Made) -> QuotaVerdict {
    let node = |pod: Value| Some((pod["metadata"]["labels"][LABEL_NODE].as_str()?.to_owned(), pod));
    let old: BTreeMap<String, Value> = read.pods.into_iter().filter_map(node).collect();
    let mut message = QuotaVerdict { refused: None, unread: read.unread };
    for quota in &read.quotas {
        let name = quota["metadata"]["name"].as_str().unwrap_or_default();
        if let Some(scope) = unjudged(quota) {
            message.unread.push(format!("quota {name} is not looked at: its scope is {scope}"));
            continue;
        }
        let looked = QuotaCheck { quota, name, ranges: &read.ranges, old: &old, made };
        message.refused = message.refused.or_else(|| looked.no_room(waves));
        if looked.asks_for_classes() && waves.iter().any(|wave| looked.has_unclassed(wave)) {
            message.unread.push(format!(
                "quota {name} is not looked at for claims without storageClassName: which class is the default is not read"
            ));
        }
    }
    message
}

fn scopes(quota: &Value) -> impl Iterator<Item = (&str, &str)> {
    let spec = &quota["spec"];
    let listed = spec["scopes"].as_array().into_iter().flatten();
    let listed = listed.filter_map(|scope| Some((scope.as_str()?, "Exists")));
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    listed.chain(selected.filter_map(|one| Some((one["scopeName"].as_str()?, one["operator"].as_str()?))))
}

/// The scope of a quota that a pod template does not determine.
fn unjudged(quota: &Value) -> Option<&str> {
    let known = ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating"];
    let unknown = |(scope, operator): &(&str, &str)| !known.contains(scope) || *operator != "Exists";
    scopes(quota).find(unknown).map(|(scope, _)| scope)
}

/// A quota, and what it is checked against.
struct QuotaCheck<'a> {
    quota: &'a Value,
    name: &'a str,
    ranges: &'a [Value],
    old: &'a BTreeMap<String, Value>,
    made: &'a Made<'a>,
}

impl QuotaCheck<'_> {
    fn is_about(&self, pod: &Value) -> bool {
        scopes(self.quota).all(|(scope, _)| match scope {
            "BestEffort" => is_best_effort(pod),
            "NotBestEffort" => !is_best_effort(pod),
            "Terminating" => !pod["spec"]["activeDeadlineSeconds"].is_null(),
            _ => pod["spec"]["activeDeadlineSeconds"].is_null(),
        })
    }

    /// A quota with scopes only limits pods.
    fn is_about_all(&self) -> bool {
        scopes(self.quota).next().is_none()
    }

    fn hard(&self) -> &Value {
        let counted = &self.quota["status"]["hard"];
        if counted.is_null() { &self.quota["spec"]["hard"] } else { counted }
    }

    fn asks_for_classes(&self) -> bool {
        let hard = self.hard().as_object();
        self.is_about_all()
            && hard.is_some_and(|hard| hard.keys().any(|what| what.contains(".storageclass.storage.k8s.io/")))
    }

    fn has_unclassed(&self, wave: &MoveWave) -> bool {
        let made = wave.nodes.iter().filter(|node| node.action == Action::Create);
        let mut specs = made.filter_map(|node| (self.made.spec)(&node.revision));
        specs.any(|spec| {
            spec.volume_claim_templates.iter().any(|claim| claim["spec"]["storageClassName"].is_null())
        })
    }

    /// The usage of the existing pods, by node.
    fn pods(&self) -> BTreeMap<String, Amounts> {
        let pods = self.old.iter().filter(|(_, pod)| self.is_about(pod));
        pods.map(|(node, pod)| (node.clone(), of_pod(pod))).collect()
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
    fn no_room(&self, waves: &[MoveWave]) -> Option<String> {
        let (mut made, mut gone) = (Amounts::new(), Amounts::new());
        // A node may occur twice: created at one revision, then updated.
        let mut pods = self.pods();
        let mut last = None;
        let objects = || OF_A_NODE.iter().map(|what| ((*what).to_owned(), one())).collect::<Amounts>();
        for wave in waves {
            let mut is_made = false;
            for node in
                wave.nodes.iter().filter(|node| matches!(node.action, Action::Create | Action::Update))
            {
                let Some(spec) = (self.made.spec)(&node.revision) else { continue };
                if let Some(pod) = pods.remove(&node.name) {
                    add(&mut gone, &pod);
                }
                let pod = defaulted((*spec.pod_template).clone(), self.ranges);
                if self.is_about(&pod) {
                    if let Some(missing) = unspecified(&pod, self.hard()) {
                        return Some(format!("failed quota: {}: {missing}", self.name));
                    }
                    let taken = of_pod(&pod);
                    add(&mut made, &taken);
                    pods.insert(node.name.clone(), taken);
                    is_made = true;
                }
                if node.action == Action::Create && self.is_about_all() {
                    add(&mut made, &objects());
                    add(&mut made, &self.claims(&node.name, &spec, false));
                }
                last = Some(spec);
            }
            if is_made && let Some(sentence) = self.exceeded(&made, &gone) {
                return Some(sentence);
            }
            for node in wave.nodes.iter().filter(|node| node.action == Action::Remove) {
                if let Some(pod) = pods.remove(&node.name) {
                    add(&mut gone, &pod);
                }
                if self.is_about_all() {
                    add(&mut gone, &objects());
                    if let Some(spec) = &last
                        && spec.volume_claim_retention == ClaimRetention::Delete
                    {
                        add(&mut gone, &self.claims(&node.name, spec, true));
                    }
                }
            }
        }
        None
    }

    fn exceeded(&self, made: &Amounts, gone: &Amounts) -> Option<String> {
        made.iter().filter(|(_, made)| **made > 0).find_map(|(what, made)| {
            let read = |list: &Value| list[what.as_str()].as_str().and_then(amount);
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

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
