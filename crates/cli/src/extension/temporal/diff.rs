//! The differences between two versions of workers.

use serde_json::{Value, json};
use windlass_core::revision::drift;

use crate::explain::diff::{Compared, NamedRevision, sides};
use crate::forecast::fields;

/// The data of a worker version: the templates, and the build ID if the spec sets it.
pub fn compare(object: &Value, stored: &[Value], named: &[String]) -> Result<Compared, String> {
    let content = |of: &Value| {
        let mut content = json!({"template": of["template"]});
        if let Some(pools) = of["pools"].as_array().filter(|pools| !pools.is_empty()) {
            content["pools"] = json!(pools);
        }
        if let Some(id) = of["unsafeCustomBuildID"].as_str().filter(|id| !id.is_empty()) {
            content["unsafeCustomBuildID"] = json!(id);
        }
        content
    };
    let known = stored.iter().map(|revision| NamedRevision {
        name: revision["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        number: revision["revision"].as_i64().unwrap_or_default(),
        data: content(&revision["data"]),
    });
    let wanted = || Ok(content(&object["spec"]));
    let (from, to) = sides(object, &known.collect::<Vec<_>>(), wanted, named)?;
    let differences = drift::between(&from.data, &to.data);
    Ok(Compared { fields: fields(differences), from: from.name, to: to.name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_diff_compares_template_and_build_id() {
        let template = |image: &str| json!({"spec": {"containers": [{"name": "worker", "image": image}]}});
        let revision = |number: i64, image: &str, id: &str| {
            json!({"metadata": {"name": format!("orders-{number}")}, "revision": number,
                "data": {"template": template(image), "unsafeCustomBuildID": id, "buildID": "b"}})
        };
        let stored = [revision(1, "w:1", ""), revision(2, "w:2", "blue")];
        let object = json!({"status": {"currentRevision": "orders-1"},
            "spec": {"template": template("w:2"), "unsafeCustomBuildID": "green"}});
        let printed = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|n| (*n).to_owned()).collect();
            let compared = compare(&object, &stored, &named)?;
            Ok::<_, String>((
                compared.from,
                compared.to,
                compared.fields.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ))
        };
        let image = "template.spec.containers[worker].image \"w:1\" → \"w:2\"".to_owned();
        let (from, to) = ("revision 1 (orders-1)".to_owned(), "the spec".to_owned());
        assert_eq!(
            printed(&[]),
            Ok((from, to, vec![image, "unsafeCustomBuildID added: \"green\"".to_owned()]))
        );
        let (_, _, fields) = printed(&["2"]).unwrap();
        assert_eq!(fields, ["unsafeCustomBuildID \"blue\" → \"green\""]);
        assert!(printed(&["7"]).is_err_and(|error| error.contains("stored revisions: 1, 2")));
    }
}
