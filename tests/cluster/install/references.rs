//! docs/reference/fields.md: each field of the installed definitions, with its type, default, rules and description.

use std::fmt::Write as _;

use serde_json::Value;

use crate::install::helm::path;

const HEAD: &str = "# Fields of the definitions

Made from `deploy/crds` and `deploy/temporal`: UPDATE_DOCS=1 cargo test --test cluster references

`kubectl explain nd.spec` says the same in a terminal. `[]` stands for each item of a list, `{}` for each value of a map. The meaning of the fields of a
status have no room for is in [objects](objects.md).
";
const DEFINITIONS: [&str; 6] = [
    "deploy/crds/nodedeployments.windlass.dev.yaml",
    "deploy/crds/statefulnodes.windlass.dev.yaml",
    "deploy/crds/statefulsetrollouts.windlass.dev.yaml",
    "deploy/temporal/workerdeployments.windlass.dev.yaml",
    "deploy/temporal/temporalconnections.windlass.dev.yaml",
    "deploy/temporal/clustertemporalconnections.windlass.dev.yaml",
];

/// Compares a page with its generated text, or updates it.
pub fn is_as_generated(page: &str, text: &str) {
    let file = path(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let known = std::fs::read_to_string(file).unwrap_or_default();
    assert!(known == text, "{page} is out of date: its head says what makes it anew");
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('|', "\\|");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", type_of(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&schema["additionalProperties"]))
        }
        Some("object") if keeps => "object, with any other field".to_owned(),
        Some("string") if schema["format"] == "date-time" => "time".to_owned(),
        Some(name) => name.to_owned(),
        None if keeps => "anything".to_owned(),
        None => panic!("a field of no type: {schema:#}"),
    }
}

fn rules(schema: &Value, required: bool) -> String {
    let mut rules = Vec::new();
    if required {
        rules.push("required".to_owned());
    }
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().map(|value| format!("`{}`", value.as_str().unwrap_or("null")));
        rules.push(format!("one of {}", values.collect::<Vec<_>>().join(", ")));
    }
    for (key, words) in [
        ("minimum", "at least {}"),
        ("maximum", "at most {}"),
        ("minLength", "at least {} characters"),
        ("maxLength", "at most {} characters"),
        ("pattern", "matches `{}`"),
        ("minItems", "at least {} items"),
        ("maxItems", "at most {} items"),
        ("maxProperties", "at most {} entries"),
    ] {
        match &schema[key] {
            Value::Null => {}
            Value::String(text) => rules.push(words.replace("{}", text)),
            number => rules.push(words.replace("{}", &number.to_string().replace(".0", ""))),
        }
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let said =
            rule["message"].as_str().or(rule["messageExpression"].as_str()).expect("a rule has a message");
        rules.push(format!("refused: “{said}”"));
    }
    rules.iter().map(|rule| cell(rule)).collect::<Vec<_>>().join("; ")
}

fn row(name: &str, schema: &Value, required: bool) -> String {
    let default = match &schema["default"] {
        Value::Null => String::new(),
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    };
    let said = schema["description"].as_str().unwrap_or_else(|| panic!("{name} says nothing of itself"));
    let (type_, rules) = (type_of(schema), rules(schema, required));
    format!("| `{name}` | {type_} | {default} | {rules} | {} |\n", cell(said))
}

/// The fields below one, each with its path.
fn below(schema: &Value, name: &str, into: &mut String) {
    let required =
        |key: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == key));
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        let name = format!("{name}.{key}");
        into.push_str(&row(&name, field, required(key)));
        below(field, &name, into);
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[part].is_object() {
            below(&schema[part], &format!("{name}{mark}"), into);
        }
    }
}

fn section(crd: &Value) -> String {
    let names = &crd["spec"]["names"];
    let short = names["shortNames"][0].as_str().unwrap();
    let mut text = format!("\n# {} (`{short}`)\n", names["kind"].as_str().unwrap());
    for version in crd["spec"]["versions"].as_array().unwrap() {
        let schema = &version["schema"]["openAPIV3Schema"];
        let group = crd["spec"]["group"].as_str().unwrap();
        let _ = write!(
            text,
            "\n`{group}/{}`. {}\n\n| column of `kubectl get {short}` | from |\n|---|---|\n",
            version["name"].as_str().unwrap(),
            cell(schema["description"].as_str().unwrap())
        );
        for column in version["additionalPrinterColumns"].as_array().unwrap() {
            let wide = if column["priority"] == 1 { ", with `-o wide`" } else { "" };
            let _ = writeln!(
                text,
                "| {}{wide} | `{}` |",
                column["name"].as_str().unwrap(),
                column["jsonPath"].as_str().unwrap().replace('|', "\\|")
            );
        }
        for part in ["spec", "status"] {
            let top = &schema["properties"][part];
            let _ = write!(text, "\n## {part} of a {}\n", names["kind"].as_str().unwrap());
            text += "\n| field | type | default | rules | what it is |\n|---|---|---|---|---|\n";
            text += &row(part, top, part == "spec");
            below(top, part, &mut text);
        }
    }
    text
}

#[test]
fn field_reference_matches_the_definitions() {
    let mut text = HEAD.to_owned();
    for file in DEFINITIONS {
        let crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(path(file)).unwrap()).unwrap();
        text += &section(&crd);
    }
    is_as_generated("docs/reference/fields.md", &text);
}

/// Before Kubernetes 1.36, an int-or-string counts as long as a whole request in cost estimates, whatever its
/// maxLength. In a list, a rule that reads all of it exceeds the limit, and the definition is refused (`.ci/oldest`).
#[test]
fn int_or_string_rules_in_lists_read_single_characters() {
    fn walk(schema: &Value, in_list: bool, seen: &mut usize) {
        if in_list && schema["x-kubernetes-int-or-string"] == true {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let text = rule["rule"].as_str().unwrap();
                let looks = [".matches(", ".contains(", ".find(", ".replace(", ".substring(", ".split("];
                assert!(!looks.iter().any(|call| text.contains(call)), "{text}");
                *seen += 1;
            }
        }
        for (key, part) in schema.as_object().into_iter().flatten() {
            walk(part, in_list || key == "items", seen);
        }
        for part in schema.as_array().into_iter().flatten() {
            walk(part, in_list, seen);
        }
    }
    let mut seen = 0;
    for file in DEFINITIONS {
        let crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(path(file)).unwrap()).unwrap();
        walk(&crd, false, &mut seen);
    }
    assert!(seen >= 4, "so few rules: {seen}");
}
