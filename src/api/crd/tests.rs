use super::*;

fn schema(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
    crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()
}

fn deploy_folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds")
}

#[test]
fn deploy_holds_one_file_for_each_crd_equal_to_what_is_printed() {
    let write = std::env::var_os("UPDATE_CRDS").is_some();
    for crd in crds() {
        let file = deploy_folder().join(format!("{}.yaml", crd.metadata.name.as_ref().unwrap()));
        if write {
            std::fs::write(&file, yaml(&crd)).unwrap();
        }
        let stored = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            stored == yaml(&crd),
            "{} is not what the types say; run: UPDATE_CRDS=1 cargo test --lib api::crd",
            file.display()
        );
    }
    assert_eq!(std::fs::read_dir(deploy_folder()).unwrap().count(), crds().len());
}
