//! `windlass adopt`: lets Windlass roll out existing StatefulSets. Prints the manifest of a StatefulSetRollout, or
//! creates it.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use clap::{Args, ValueEnum};
use clap_complete::{ArgValueCompleter, CompletionCandidate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{Selector, SelectorExt};
use serde_json::{Value, json};

use crate::Failure;
use crate::completion::listed;
use crate::connection::{Cluster, ClusterFlags};
use crate::extension::STATEFUL_SETS;
use crate::output::Output;
use crate::reader::sentence;
use crate::target::{Kind, Target};
use windlass_core::api::StatefulSetSelection;
use windlass_core::api::names::{CLI_MANAGER, GROUP, VERSION};
use windlass_kube_port::Kind as ObjectKind;

/// The arguments of `windlass adopt`.
#[derive(Args, Debug)]
pub struct AdoptArgs {
    /// sts/NAME for a StatefulSet; several, or sts NAME NAME
    #[arg(value_name = "TYPE/NAME", required = true, add = ArgValueCompleter::new(stateful_sets))]
    words: Vec<String>,
    /// The name of the StatefulSetRollout [default: that of the first StatefulSet]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many pods of all these StatefulSets may be unavailable at once: a number or a percentage [default: 1]
    #[arg(long, value_name = "N", value_parser = share)]
    max_unavailable: Option<Value>,
    /// Whether several StatefulSets are updated together [default: Together]
    #[arg(long, value_enum, value_name = "GROUPS")]
    groups: Option<GroupsArg>,
    /// Take over the StatefulSets, but update no pod until windlass resume
    #[arg(long)]
    paused: bool,
    /// Create it instead of printing its manifest
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    flags: ClusterFlags,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum GroupsArg {
    /// Their pods share one wave
    Together,
    /// Windlass updates one StatefulSet after the other
    OneAtATime,
}

/// Parses a number or a percentage. Its limits are checked by the API server.
fn share(text: &str) -> Result<Value, String> {
    let wrong =
        || format!("{text:?} is not a number of pods: write a number such as 1, or a percentage such as 25%");
    let (digits, is_percentage) = match text.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    Ok(if is_percentage { json!(text) } else { json!(number) })
}

/// The StatefulSets that words name, each once, in the order of the words.
fn names(words: &[String]) -> Result<Vec<String>, String> {
    let is_type = |word: &str| {
        let word = word.to_lowercase();
        matches!(word.strip_suffix(".apps").unwrap_or(&word), "sts" | "statefulset" | "statefulsets")
    };
    let name = |name: &str| {
        if name.is_empty() || name.contains('/') {
            return Err(format!("{name:?} is not a StatefulSet; write sts/NAME"));
        }
        Ok(name.to_owned())
    };
    let mut found: Vec<String> = Vec::new();
    let mut add = |named: String| {
        if !found.contains(&named) {
            found.push(named);
        }
    };
    match words {
        [first] if is_type(first) => {
            return Err(format!("{first} needs a name; write {first}/NAME"));
        }
        [first, names @ ..] if is_type(first) => {
            names.iter().try_for_each(|word| name(word).map(&mut add))?;
        }
        words => {
            for word in words {
                let named = word.split_once('/').filter(|(kind, _)| is_type(kind));
                let (_, named) = named.ok_or_else(|| {
                    format!("{word:?} is not a StatefulSet; write sts/NAME each time, or sts NAME NAME")
                })?;
                add(name(named)?);
            }
        }
    }
    Ok(found)
}

/// The manifest of the StatefulSetRollout. Its strategy contains only the given flags.
fn manifest(arguments: &AdoptArgs, names: &[String], namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": arguments.name.as_ref().or(names.first())});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let mut spec = json!({"statefulSets": {"names": names}});
    if let Some(share) = &arguments.max_unavailable {
        spec["strategy"]["maxUnavailable"] = share.clone();
    }
    if arguments.paused {
        spec["paused"] = json!(true);
    }
    match arguments.groups {
        Some(GroupsArg::OneAtATime) => spec["strategy"]["groups"] = json!("OneAtATime"),
        Some(GroupsArg::Together) => spec["strategy"]["groups"] = json!("Together"),
        None => {}
    }
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": STATEFUL_SETS.name(), "metadata": metadata, "spec": spec})
}

/// Prints the manifest, or creates the object.
pub async fn adopt(arguments: AdoptArgs) -> Result<(), Failure> {
    let names = names(&arguments.words).map_err(Failure::Usage)?;
    if arguments.flags.all_namespaces {
        return Err(Failure::Usage(
            "a StatefulSetRollout belongs to one namespace: select it with -n".to_owned(),
        ));
    }
    if !arguments.apply {
        // Needs no cluster.
        let manifest = manifest(&arguments, &names, arguments.flags.namespace.as_deref());
        return Ok(crate::print(&Output::Yaml.document(&manifest)?)?);
    }
    let cluster = arguments.flags.cluster().await?;
    Ok(crate::print(&apply(&arguments, &names, &cluster).await?)?)
}

/// Creates the object. Returns the output; an error says in a sentence why not.
async fn apply(arguments: &AdoptArgs, names: &[String], cluster: &Cluster) -> Result<String, String> {
    let manifest = manifest(arguments, names, Some(&cluster.namespace));
    let sets = read_sets(cluster, names).await?;
    let kind = Kind::Other(STATEFUL_SETS);
    let rollouts = kind.list(cluster).await;
    let rollouts = rollouts.map_err(|error| format!("cannot list StatefulSetRollouts: {error}"))?;
    if let Some(refusal) = sets.iter().find_map(|set| refusal(set, &rollouts)) {
        return Err(refusal);
    }
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let target = Target { kind, name };
    let object: DynamicObject =
        serde_json::from_value(manifest).map_err(|error| format!("cannot serialize {target}: {error}"))?;
    // Not applied: apply would change an existing object of this name.
    let params = PostParams { field_manager: Some(CLI_MANAGER.to_owned()), ..PostParams::default() };
    match target.api(&cluster.client, &cluster.namespace).create(&params, &object).await {
        Ok(_) => Ok(created(&target, &sets, arguments.paused)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            Err(format!("{target} already exists; choose another name with --name"))
        }
        Err(error) => Err(format!("{target}: {}", sentence(&error))),
    }
}

/// Gets the StatefulSets. An error says which does not exist.
async fn read_sets(cluster: &Cluster, names: &[String]) -> Result<Vec<Value>, String> {
    let Cluster { client, namespace, .. } = cluster;
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ObjectKind::StatefulSet.resource());
    let mut sets = Vec::new();
    for name in names {
        match api.get_opt(name).await {
            Ok(Some(set)) => sets.push(json!(set)),
            Ok(None) => return Err(crate::reader::not_there(&format!("statefulset.apps/{name}"), namespace)),
            Err(error) => return Err(format!("statefulset.apps/{name}: {}", sentence(&error))),
        }
    }
    Ok(sets)
}

/// The reason not to adopt a StatefulSet, if any: it has a controller, or a StatefulSetRollout selects it.
fn refusal(set: &Value, rollouts: &[Value]) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&set["metadata"]["name"]);
    let owners = set["metadata"]["ownerReferences"].as_array();
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    if let Some(controller) = controller {
        return Some(format!(
            "statefulset.apps/{name} is controlled by {} {}, which sets its updateStrategy: Windlass cannot take it over",
            text(&controller["kind"]),
            text(&controller["name"])
        ));
    }
    let by = rollouts.iter().find(|rollout| selects(rollout, set))?;
    let by = text(&by["metadata"]["name"]);
    Some(format!(
        "statefulset.apps/{name} is already selected by ssr/{by}: change or delete that StatefulSetRollout first"
    ))
}

/// True if a StatefulSetRollout selects the StatefulSet.
fn selects(rollout: &Value, set: &Value) -> bool {
    let selection: StatefulSetSelection =
        serde_json::from_value(rollout["spec"]["statefulSets"].clone()).unwrap_or_default();
    let labels: BTreeMap<String, String> =
        serde_json::from_value(set["metadata"]["labels"].clone()).unwrap_or_default();
    let is_matched = |selector: LabelSelector| {
        Selector::try_from(selector).is_ok_and(|selector| selector.matches(&labels))
    };
    selection.names.iter().any(|name| set["metadata"]["name"] == **name)
        || selection.selector.is_some_and(is_matched)
}

/// The result, and the next step.
fn created(target: &Target, sets: &[Value], is_paused: bool) -> String {
    let behind = |set: &Value| {
        let status = &set["status"];
        let count = |value: &Value, otherwise| value.as_i64().unwrap_or(otherwise);
        let left = count(&set["spec"]["replicas"], 1) - count(&status["updatedReplicas"], 0);
        if status["currentRevision"] == status["updateRevision"] { 0 } else { left.max(0) }
    };
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |set: &Value| {
        let live = &set["spec"]["updateStrategy"];
        let partition = live["rollingUpdate"]["partition"].as_i64().filter(|partition| *partition > 0);
        let strategy = match (word(&live["type"]), partition) {
            (_, Some(partition)) => format!("RollingUpdate, partition {partition}"),
            (type_, None) if type_.is_empty() => "RollingUpdate".to_owned(),
            (type_, None) => type_,
        };
        let left = match behind(set) {
            0 => String::new(),
            left => format!("; pods not yet at {}: {left}", word(&set["status"]["updateRevision"])),
        };
        format!(
            "statefulset.apps/{}: Windlass sets its updateStrategy so that only Windlass updates its pods; the present one \
             ({strategy}) is kept, and restored when this object is deleted{left}\n",
            word(&set["metadata"]["name"])
        )
    };
    let lines: String = sets.iter().map(line).collect();
    let left: i64 = sets.iter().map(behind).sum();
    let pods = if left == 1 { "pod" } else { "pods" };
    let then = match (left, is_paused) {
        (0, _) => "no pod restarts because of this".to_owned(),
        (left, true) => {
            format!("the rollout is paused: {left} {pods} to update; to start it: windlass resume {target}")
        }
        (left, false) => {
            format!("Windlass now updates {left} {pods} in waves; to stop it: windlass pause {target}")
        }
    };
    format!("{target} created\n{lines}{then}\n")
}

/// Candidates for a word that names a StatefulSet.
fn stateful_sets(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let Some((kind, _)) = current.split_once('/') else {
        return ["sts/"]
            .into_iter()
            .filter(|word| word.starts_with(current))
            .map(CompletionCandidate::new)
            .collect();
    };
    let list = async |cluster: Cluster| {
        let resource = ObjectKind::StatefulSet.resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
        let list = api.list(&kube::api::ListParams::default()).await.map_err(|error| sentence(&error))?;
        Ok(list.items.into_iter().filter_map(|set| set.metadata.name).collect())
    };
    let names = listed(list).into_iter().map(|name| format!("{kind}/{name}"));
    names.filter(|word| word.starts_with(current)).map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: AdoptArgs,
    }

    fn read(line: &str) -> Result<AdoptArgs, clap::Error> {
        Line::try_parse_from(["adopt"].into_iter().chain(line.split_whitespace())).map(|line| line.arguments)
    }

    fn printed(line: &str) -> Result<String, String> {
        let arguments = read(line).map_err(|error| error.to_string())?;
        let names = names(&arguments.words)?;
        Output::Yaml.document(&manifest(&arguments, &names, arguments.flags.namespace.as_deref()))
    }

    #[test]
    fn adopt_manifest_contains_only_requested_fields() {
        assert_eq!(
            printed("sts/ledger").unwrap(),
            "\
---
apiVersion: windlass.dev/v1alpha1
kind: StatefulSetRollout
metadata:
  name: ledger
spec:
  statefulSets:
    names:
    - ledger
"
        );
        let text = printed(
            "statefulset a statefulset.apps/b a --name all --max-unavailable 25% --groups OneAtATime -n shop",
        );
        assert!(text.is_err_and(|error| error.contains("\"statefulset.apps/b\" is not a StatefulSet")));
        let text = printed("sts a b a --name all --max-unavailable 25% --groups OneAtATime -n shop").unwrap();
        for part in [
            "  name: all\n  namespace: shop\n",
            "    names:\n    - a\n    - b\n  s",
            "maxUnavailable: 25%\n",
            "groups: OneAtATime\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = printed("statefulsets.apps/a --max-unavailable 2").unwrap();
        assert!(text.contains("maxUnavailable: 2\n") && !text.contains("groups"), "{text}");
    }

    #[test]
    fn invalid_statefulset_argument_gets_a_usage_hint() {
        for (line, expected) in [
            ("sts", "sts needs a name; write sts/NAME"),
            ("ledger", "\"ledger\" is not a StatefulSet; write sts/NAME"),
            ("nd/ledger", "\"nd/ledger\" is not a StatefulSet"),
            ("sts/a b", "\"b\" is not a StatefulSet; write sts/NAME each time"),
            ("sts/", "\"\" is not a StatefulSet"),
            (
                "sts/a --max-unavailable many",
                "is not a number of pods: write a number such as 1, or a percentage",
            ),
            ("sts/a --groups Both", "[possible values: Together, OneAtATime]"),
        ] {
            let error = printed(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    fn set(changes: &Value) -> Value {
        let mut set = json!({"metadata": {"name": "ledger", "labels": {"app": "ledger"}}, "spec": {"replicas": 3},
            "status": {"currentRevision": "ledger-a", "updateRevision": "ledger-a", "updatedReplicas": 3}});
        json_patch::merge(&mut set, changes);
        set
    }

    #[test]
    fn statefulset_with_another_owner_is_not_adopted() {
        let rollout =
            |selection: Value| json!({"metadata": {"name": "r"}, "spec": {"statefulSets": selection}});
        let owner = |controller: bool| {
            json!({"metadata": {"ownerReferences": [
                {"kind": "Kafka", "name": "events", "controller": controller}]}})
        };
        for (changes, selection, expected) in [
            (json!({}), json!({"names": ["other"]}), None),
            (owner(false), json!({"selector": {"matchLabels": {"app": "other"}}}), None),
            (owner(true), json!({}), Some("is controlled by Kafka events")),
            (json!({}), json!({"names": ["other", "ledger"]}), Some("is already selected by ssr/r")),
            (
                json!({}),
                json!({"selector": {"matchLabels": {"app": "ledger"}}}),
                Some("is already selected by ssr/r"),
            ),
            (
                json!({}),
                json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}),
                Some("is already selected by ssr/r"),
            ),
        ] {
            let refused = refusal(&set(&changes), &[rollout(selection.clone())]);
            match expected {
                None => assert_eq!(refused, None, "{changes} {selection}"),
                Some(expected) => {
                    let sentence = refused.unwrap();
                    assert!(sentence.contains(expected) && !sentence.contains('\n'), "{sentence}");
                }
            }
        }
    }

    #[test]
    fn adopt_output_describes_effect_on_each_statefulset() {
        let target = Target { kind: Kind::Other(STATEFUL_SETS), name: "ledger".to_owned() };
        let rolling = json!({"status": {"updateRevision": "ledger-b", "updatedReplicas": 1}});
        let canary =
            json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}});
        assert_eq!(
            created(&target, &[set(&canary)], true),
            "\
statefulsetrollout.windlass.dev/ledger created
statefulset.apps/ledger: Windlass sets its updateStrategy so that only Windlass updates its pods; the present one \
             (RollingUpdate, partition 2) is kept, and restored when this object is deleted
no pod restarts because of this
"
        );
        let last = |is_paused| {
            let all = created(&target, &[set(&json!({})), set(&rolling)], is_paused);
            all.lines().last().unwrap_or_default().to_owned()
        };
        assert!(created(&target, &[set(&rolling)], false).contains("; pods not yet at ledger-b: 2\n"));
        assert!(last(false).contains("now updates 2 pods in waves"), "{}", last(false));
        assert!(last(true).contains("the rollout is paused"), "{}", last(true));
    }

    #[tokio::test]
    async fn adopt_creates_rollout_for_existing_unowned_statefulset() {
        let mut exists = set(&json!({"kind": "StatefulSet", "apiVersion": "apps/v1"}));
        let mut other = exists.clone();
        other["metadata"]["name"] = json!("taken");
        exists["metadata"]["namespace"] = json!("shop");
        let taken = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulSetRollout", "metadata": {"name": "r"},
            "spec": {"statefulSets": {"names": ["taken"]}}});
        let client = crate::empty_cluster::with_objects(vec![exists, other, taken], &[]);
        let cluster = Cluster { client, namespace: "shop".to_owned(), all_namespaces: false };
        for (line, expected) in [
            ("sts/ledger", Ok("statefulsetrollout.windlass.dev/ledger created\n")),
            (
                "sts/ledger sts/none",
                Err("statefulset.apps/none does not exist in namespace shop; select another"),
            ),
            ("sts/ledger sts/taken", Err("statefulset.apps/taken is already selected by ssr/r")),
            (
                "sts/ledger --name r",
                Err("statefulsetrollout.windlass.dev/r already exists; choose another name"),
            ),
        ] {
            let arguments = read(line).unwrap();
            let ended = apply(&arguments, &names(&arguments.words).unwrap(), &cluster).await;
            match expected {
                Ok(text) => assert!(ended.as_ref().is_ok_and(|ended| ended.starts_with(text)), "{ended:?}"),
                Err(sentence) => {
                    assert!(ended.as_ref().is_err_and(|error| error.starts_with(sentence)), "{ended:?}");
                }
            }
        }
    }
}
