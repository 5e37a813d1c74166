//! Build IDs and the names derived from them.

use super::spec;
use crate::planner::Target;
use crate::planner::build::deployment_names;
use crate::port::BuildId;

#[test]
fn deployment_is_named_after_its_version_where_valid() {
    for (build, first) in [("v1", "orders-v1"), ("1.2.3-abcde", "orders-1.2.3-abcde"), ("7", "orders-7")] {
        assert_eq!(deployment_names("orders", &BuildId::new(build))[0], first);
    }
    let long = "x".repeat(63);
    let names: Vec<String> = ["Blue_1", "blue_1", "BLUE-1", "a..b", "_", &long]
        .iter()
        .map(|build| {
            let names = deployment_names("orders", &BuildId::new(*build));
            assert_eq!(names.len(), 1, "{build} is not a valid name");
            assert!(names[0].len() <= 46 && names[0].starts_with("orders-"), "{names:?}");
            names[0].clone()
        })
        .collect();
    let mut distinct = names.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), names.len(), "two versions, two names: {names:?}");
}

#[test]
fn build_id_and_template_determine_the_hash() {
    let with = |id: Option<&str>, image: &str| {
        let mut spec = spec(serde_json::json!({}));
        spec.unsafe_custom_build_id = id.map(str::to_owned);
        spec.template["spec"]["containers"][0]["image"] = image.into();
        Target::of(&spec)
    };
    assert_ne!(with(Some("a"), "x:1").hash, with(Some("b"), "x:1").hash);
    assert_ne!(with(Some("a"), "x:1").hash, with(Some("a"), "x:2").hash);
    assert_eq!(with(Some("a"), "x:1").build, with(Some("a"), "x:2").build);
    let generated = with(None, "registry.example:5000/x:_1@sha256:00");
    assert_eq!(generated.hash, generated.template_hash);
    assert!(
        generated.build.as_str().starts_with("1-"),
        "a label's value begins with a letter or digit: {generated:?}"
    );
}
