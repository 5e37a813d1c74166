//! Finds whether a field belongs to a program that applies the object from elsewhere and would revert a change, from
//! `metadata.managedFields`.

use serde_json::Value;

use super::change::{Change, Write};
use windlass_core::api::names::CLI_MANAGER;

/// Field managers that apply what is in Git, with either operation. Argo CD uses client-side apply by default, which
/// the API server records as an update.
const GITOPS: [&str; 8] = [
    "argocd-application-controller",
    "argocd-controller",
    "configsync.gke.io",
    "fleetagent",
    "helm-controller",
    "kapp-controller",
    "kustomize-controller",
    "kube-applier",
];

/// Field managers that people use: these apply a field again only when a person does.
const PEOPLE: [&str; 2] = ["kubectl", CLI_MANAGER];

/// The annotations and labels that name an object's source, and the name of the tool.
const SOURCES: [(&str, &str, &str); 4] = [
    ("annotations", "argocd.argoproj.io/tracking-id", "the Argo CD application"),
    ("labels", "argocd.argoproj.io/instance", "the Argo CD application"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "the Flux Kustomization"),
    ("labels", "helm.toolkit.fluxcd.io/name", "the Flux HelmRelease"),
];

/// The reason not to write a change, if any: the owner of the field, and what to change in its source.
pub fn refusal(object: &Value, change: &Change, write: &Write) -> Option<String> {
    let fields: Vec<(&str, &Value)> = match write {
        Write::Field(path, value) => vec![(*path, value)],
        Write::Fields(fields) => fields.iter().map(|(path, value)| (*path, value)).collect(),
        Write::Annotation(..) | Write::Annotations(..) => Vec::new(),
    };
    let (path, owner) = fields.iter().find_map(|(path, _)| Some((path, owner(object, path)?)))?;
    let changes: Vec<String> = fields
        .iter()
        .map(|(path, value)| match &change.in_source {
            Some(message) if value.is_object() => message.clone(),
            _ => format!("{}: {value}", dotted(path)),
        })
        .collect();
    let source = source(object).unwrap_or_else(|| "its source".to_owned());
    Some(format!(
        "{} is managed by {owner}, which would revert the change. Set {} in {source}",
        dotted(path),
        changes.join(" and ")
    ))
}

/// The manager that applies a field from elsewhere.
fn owner<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let owns = |entry: &&Value| {
        // Status writes are not desired state.
        entry["subresource"].as_str().unwrap_or_default().is_empty() && holds(&entry["fieldsV1"], path)
    };
    let manager = |entry: &'a Value| entry["manager"].as_str().filter(|name| !name.is_empty());
    let again = |entry: &&'a Value| {
        manager(entry).is_some_and(|name| {
            GITOPS.contains(&name) || (entry["operation"] == "Apply" && !PEOPLE.contains(&name))
        })
    };
    entries.iter().filter(owns).find(again).and_then(manager)
}

/// True if a set of fields contains this one, or a part of it.
fn holds(fields: &Value, path: &str) -> bool {
    path.split('/').skip(1).try_fold(fields, |at, key| at.get(format!("f:{key}"))).is_some()
}

fn source(object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    SOURCES.iter().find_map(|(place, key, called)| {
        // A tracking ID is the application's name, a colon, and the object.
        let name = metadata[place][key].as_str()?.split(':').next()?;
        Some(format!("the source of {called} {name}"))
    })
}

fn dotted(path: &str) -> String {
    path.trim_start_matches('/').replace('/', ".")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "as tests read best")]
    fn owned(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"metadata": {"managedFields": [
            {"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsV1": fields.clone()},
            {"manager": manager, "operation": operation, "fieldsV1": fields},
        ]}})
    }

    fn pause(object: &Value) -> Option<String> {
        let write = Write::Field("/spec/paused", json!(true));
        refusal(object, &Change::done("pause", write.clone(), "paused"), &write)
    }

    #[test]
    fn change_of_a_field_applied_by_gitops_is_refused() {
        let paused = || json!({"f:spec": {"f:paused": {}}});
        for (manager, operation) in [
            ("argocd-controller", "Apply"),
            ("argocd-controller", "Update"),
            ("argocd-application-controller", "Update"),
            ("kustomize-controller", "Apply"),
            ("helm-controller", "Update"),
            ("our-own-syncer", "Apply"),
        ] {
            let message = pause(&owned(manager, operation, paused())).expect(manager);
            assert!(message.starts_with(&format!("spec.paused is managed by {manager}")), "{message}");
            assert!(message.contains("Set spec.paused: true in its source"), "{message}");
        }
        for (manager, operation) in
            [("kubectl", "Apply"), ("windlass-cli", "Update"), ("kubectl-edit", "Update"), ("helm", "Update")]
        {
            assert_eq!(pause(&owned(manager, operation, paused())), None, "{manager}");
        }
    }

    #[test]
    fn field_not_applied_by_the_source_is_writable() {
        let template = json!({"f:spec": {"f:template": {"f:spec": {"f:image": {}}}}});
        let fleet = owned("argocd-controller", "Apply", template);
        assert_eq!(pause(&fleet), None);
        let write = Write::Field("/spec/template/spec", json!({"image": "db:1"}));
        let change = Change {
            in_source: Some("spec.template.spec.image: db:1".to_owned()),
            ..Change::done("rollback", write.clone(), "")
        };
        let message = refusal(&fleet, &change, &write).unwrap();
        assert!(message.contains("Set spec.template.spec.image: db:1 in its source"), "{message}");
        let write = Write::Field("/spec/forcePromote", json!("1a2b"));
        let promote = Change::done("promote", write.clone(), "");
        assert_eq!(refusal(&fleet, &promote, &write), None);
        let of_git = owned("kustomize-controller", "Apply", json!({"f:spec": {"f:forcePromote": {}}}));
        let message = refusal(&of_git, &promote, &write).unwrap();
        assert!(message.starts_with("spec.forcePromote is managed by kustomize-controller"), "{message}");
        let mut status = owned("argocd-controller", "Apply", json!({"f:spec": {"f:paused": {}}}));
        status["metadata"]["managedFields"][1]["subresource"] = "status".into();
        assert_eq!(pause(&status), None);
        assert_eq!(pause(&json!({"metadata": {}})), None, "no manager is recorded");
    }

    #[test]
    fn refusal_names_the_gitops_source() {
        let mut fleet = owned("argocd-controller", "Apply", json!({"f:spec": {"f:paused": {}}}));
        fleet["metadata"]["annotations"] =
            json!({"argocd.argoproj.io/tracking-id": "shop:windlass.dev/NodeDeployment:prod/db"});
        assert!(pause(&fleet).unwrap().contains("in the source of the Argo CD application shop"));
        fleet["metadata"]["annotations"] = Value::Null;
        fleet["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": "prod"});
        assert!(pause(&fleet).unwrap().contains("in the source of the Flux Kustomization prod"));
    }
}
