//! The plugin as krew installs it: the archive is packed by deploy/krew/build, and unpacked as the manifest and krew's rules say.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::helm::path;

const URL: &str = "https://example.com/releases/v1";

/// A checkout with what the script needs of one: the program of these tests stands where the image's would.
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

/// A folder that goes with the test.
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

/// Whether krew takes this as the name of a plugin: lower-case letters, digits and dashes, and no `kubectl` in front.
fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(inner)
        && !name.starts_with("kubectl")
}

#[test]
fn the_packed_archive_installs_by_krews_rules_and_is_a_plugin_of_kubectl() {
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
    assert!(is_name(name) && name == "windlass");
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

    // No `files`: all of the archive, from "*" to ".".
    assert!(platform["files"].is_null());
    let store = folder.path().join("krew/store/windlass");
    let bin = folder.path().join("krew/bin");
    for made in [&store, &bin] {
        std::fs::create_dir_all(made).unwrap();
    }
    run(Command::new("tar").arg("-xzf").arg(out.join(archive)).arg("-C").arg(&store));
    assert!(store.join("LICENSE").is_file(), "krew's index asks for it");
    let program = store.join(platform["bin"].as_str().unwrap());
    assert!(program.is_file());
    symlink(&program, bin.join(format!("kubectl-{}", name.replace('-', "_")))).unwrap();
    let search = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let said = run(Command::new("kubectl").args(["windlass", "version", "--client"]).env("PATH", search));
    assert_eq!(said.trim(), concat!("Client Version: ", env!("CARGO_PKG_VERSION")));
}
