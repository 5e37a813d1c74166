//! Custom resource definitions: stored like any object, and served.

use serde_json::{Value, json};

use super::super::custom::{CustomSchema, ScalePaths};
use super::super::json_path;
use super::super::kinds::{Kind, PrinterColumn, Shape};
use super::super::store::{Change, meta};
use super::super::world::World;

/// The description of the column that the server adds.
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

impl World {
    /// Starts or stops serving a definition's resource.
    pub(crate) fn serve_definition(&mut self, change: &Change) {
        let spec = &change.shown.value["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list =
            |value: &Value| -> Vec<String> { value.as_array().into_iter().flatten().map(text).collect() };
        let (group, names) = (text(&spec["group"]), &spec["names"]);
        let plural = text(&names["plural"]);
        let shelf = self.kinds.all().find(|k| k.group == group && k.plural == plural).map(|k| k.shelf);
        self.kinds.remove(&group, &plural);
        let Some(after) = &change.after else { return };
        if after.is_terminating() {
            return;
        }
        let shelf = shelf.unwrap_or_else(|| self.kinds.new_shelf());
        for version in spec["versions"].as_array().into_iter().flatten().filter(|v| v["served"] == true) {
            let scale = &version["subresources"]["scale"];
            let singular = text(&names["singular"]);
            self.kinds.add(Kind {
                group: group.clone(),
                version: text(&version["name"]),
                kind: text(&names["kind"]),
                plural: plural.clone(),
                singular: if singular.is_empty() { text(&names["kind"]).to_lowercase() } else { singular },
                short_names: list(&names["shortNames"]),
                categories: list(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                shape: Shape::Custom(CustomSchema::compiled(&version["schema"]["openAPIV3Schema"])),
                has_status: version["subresources"]["status"].is_object(),
                scale: scale.is_object().then(|| ScalePaths {
                    spec: path(&scale["specReplicasPath"]).unwrap_or_default(),
                    status: path(&scale["statusReplicasPath"]).unwrap_or_default(),
                    selector: Some(path(&scale["labelSelectorPath"]).unwrap_or_default()),
                }),
                field_paths: version["selectableFields"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|f| text(&f["jsonPath"]).trim_start_matches('.').to_owned())
                    .collect(),
                columns: columns(&version["additionalPrinterColumns"]),
                shelf,
            });
        }
    }
}

/// The printer columns of a version, by default the age.
fn columns(named: &Value) -> Vec<PrinterColumn> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(named) = named.as_array() else {
        let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": CREATED}]);
        return columns(&age);
    };
    let column = |column: &Value| {
        let (path, description) = (text(&column["jsonPath"]), text(&column["description"]));
        let described = format!("Custom resource definition column (in JSONPath format): {path}");
        PrinterColumn {
            name: text(&column["name"]),
            kind: text(&column["type"]),
            format: text(&column["format"]),
            description: if description.is_empty() { described } else { description },
            priority: column["priority"].as_i64().unwrap_or_default(),
            // An unsupported path matches nothing.
            path: json_path::read(&path).unwrap_or_else(|| vec![json_path::Step::Field(path)]),
        }
    };
    named.iter().map(column).collect()
}

fn path(value: &Value) -> Option<Vec<String>> {
    Some(value.as_str()?.trim_start_matches('.').split('.').map(str::to_owned).collect())
}

/// The status of a new definition.
pub(crate) fn established(definition: &mut Value, now: &Value) {
    let names = definition["spec"]["names"].clone();
    let storage: Vec<Value> = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true)
        .map(|v| v["name"].clone())
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    let mut accepted = names;
    if accepted["singular"].as_str().unwrap_or_default().is_empty() {
        accepted["singular"] = accepted["kind"].as_str().unwrap_or_default().to_lowercase().into();
    }
    if accepted["listKind"].as_str().unwrap_or_default().is_empty() {
        accepted["listKind"] = format!("{}List", accepted["kind"].as_str().unwrap_or_default()).into();
    }
    definition["spec"]["names"] = accepted.clone();
    definition["status"] = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": accepted, "storedVersions": storage,
    });
    debug_assert!(!meta(definition, "name").is_empty());
}
