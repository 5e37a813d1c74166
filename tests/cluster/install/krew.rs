//! The krew plugin: deploy/krew/build makes the archive and its manifest, the validator of krew's index checks them,
//! and krew installs them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::install::helm::{built, path};
use windlass_harness::controlplane::GoProgram;

/// krew, and the validator of its index.
const KREW: GoProgram = GoProgram {
    name: "krew",
    told: "krew 0.4.3",
    module: "tests/cluster/install/go/krew",
    modfile: None,
    cgo: false,
    package: "sigs.k8s.io/krew/cmd/krew",
};
const VALIDATES: GoProgram = GoProgram {
    name: "validate-krew-manifest",
    package: "sigs.k8s.io/krew/cmd/validate-krew-manifest",
    ..KREW
};

const URL: &str = "https://example.com/releases/v1";

/// A checkout for the script, with the tests' program in the place of the image's.
fn checkout(folder: &Path) {
    for (of, to) in
        [("deploy/krew/build", "deploy/krew/build"), ("Cargo.toml", "Cargo.toml"), ("LICENSE", "LICENSE")]
    {
        let to = folder.join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(path(of), to).unwrap();
    }
    let built = folder.join("target/image/build/x86_64-unknown-linux-musl/dist");
    std::fs::create_dir_all(&built).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_windlass"), built.join("windlass")).unwrap();
}

/// A folder, deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("windlass-krew-{}", std::process::id())))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{command:?}: {}{}", text(&stdout), text(&stderr));
    text(&stdout)
}

#[test]
#[ignore = "nightly"]
fn krew_accepts_the_manifest_and_installs_the_archive() {
    let folder = Folder::new();
    checkout(folder.path());
    run(Command::new(folder.path().join("deploy/krew/build")).arg(URL));
    let out = folder.path().join("target/krew");
    let manifest = std::fs::read_to_string(out.join("windlass.yaml")).unwrap();
    let read: Value = serde_saphyr::from_str(&manifest).unwrap();
    let name = read["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        (&read["apiVersion"], &read["kind"]),
        (&json!("krew.googlecontainertools.github.com/v1alpha2"), &json!("Plugin"))
    );
    assert_eq!(name, "windlass");
    let spec = &read["spec"];
    assert_eq!(spec["version"], concat!("v", env!("CARGO_PKG_VERSION")));
    for field in ["homepage", "shortDescription", "description"] {
        assert!(spec[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    // What the index of krew refuses.
    assert!(
        spec["shortDescription"].as_str().unwrap().len() <= 50
            && !spec["shortDescription"].as_str().unwrap().ends_with('.')
    );

    let platforms = spec["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 1, "of the architecture that was built");
    let platform = &platforms[0];
    assert_eq!(platform["selector"]["matchLabels"], json!({"os": "linux", "arch": "amd64"}));
    let archive = platform["uri"]
        .as_str()
        .unwrap()
        .strip_prefix(&format!("{URL}/"))
        .expect("it is where it was said to be");
    let bytes = std::fs::read(out.join(archive)).unwrap();
    let digest = Sha256::digest(&bytes).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    assert_eq!(platform["sha256"], digest);

    let (Some(krew), Some(validates)) = (built(&KREW), built(&VALIDATES)) else { return };
    let file = out.join("windlass.yaml");
    let validate = |file: &Path| {
        let mut command = Command::new(&validates);
        command.args(["-skip-install", "-manifest"]).arg(file);
        command
    };
    run(&mut validate(&file));
    let wrong = folder.path().join("windlass.yaml");
    std::fs::write(&wrong, manifest.replace(digest.as_str(), "0123")).unwrap();
    assert!(!validate(&wrong).output().unwrap().status.success(), "a manifest that is wrong is taken");

    let root = folder.path().join("krew");
    let kubectl = folder.path().join("kubectl");
    symlink(windlass_harness::controlplane::binary().unwrap(), &kubectl).unwrap();
    let mut path = vec![root.join("bin"), folder.path().to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let path = std::env::join_paths(path).unwrap();
    let its = |program: &Path| {
        let mut command = Command::new(program);
        command
            .env("KREW_ROOT", &root)
            .env("KREW_NO_UPGRADE_CHECK", "1")
            .env("PATH", &path)
            .stdin(Stdio::null());
        // A proxy that refuses every connection.
        command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("HTTP_PROXY", "http://127.0.0.1:9");
        command
    };
    let given =
        [format!("--manifest={}", file.display()), format!("--archive={}", out.join(archive).display())];
    run(its(&krew).arg("install").args(given));
    let version = run(its(&kubectl).args(["windlass", "version", "--client"]));
    assert_eq!(version.trim(), concat!("Client Version: ", env!("CARGO_PKG_VERSION")));
    let store = root.join("store/windlass").join(concat!("v", env!("CARGO_PKG_VERSION")));
    assert!(store.join("LICENSE").is_file(), "krew's index asks for it");
}
