//! The control plane's one binary: built from the Go module next door on first use, and kept for later.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sha2::{Digest, Sha256};

use super::Error;

const KUBERNETES: (&str, &str, &str) = ("v1.36.3", "1", "36");
/// Other versions of the binary that stay in the cache, for other checkouts.
const KEPT: usize = 3;

/// The path of the built binary. Blocks, for minutes where Go's build cache is cold.
pub fn path() -> Result<PathBuf, Error> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controlplane/go");
    let cache = cache_folder()?;
    let folder = cache.join(key(&source)?);
    let binary = folder.join("controlplane");
    if binary.exists() {
        return Ok(binary);
    }
    fs::create_dir_all(&folder)?;
    let lock = File::create(cache.join("lock"))?;
    // Released when the file is closed, however this process ends.
    lock.lock()?;
    if !binary.exists() {
        build(&source, &binary)?;
        prune(&cache, &folder);
    }
    Ok(binary)
}

fn cache_folder() -> Result<PathBuf, Error> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(cache
        .ok_or("set HOME or XDG_CACHE_HOME: the control plane is kept under it")?
        .join("windlass/controlplane"))
}

fn key(source: &Path) -> Result<String, Error> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(source)?.map(|entry| Ok(entry?.path())).collect::<Result<_, Error>>()?;
    files.retain(|file| file.extension().is_some_and(|ext| ext == "go" || ext == "mod" || ext == "sum"));
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        hash.update(fs::read(file)?);
    }
    let go = Command::new("go").args(["env", "GOVERSION"]).current_dir(source).output();
    let go = go.map_err(|error| {
        format!("install Go 1.26 or later and put `go` on PATH: it builds the control plane ({error})")
    })?;
    hash.update(go.stdout);
    Ok(hash.finalize().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")))
}

fn build(source: &Path, binary: &Path) -> Result<(), Error> {
    eprintln!(
        "building the control plane of Kubernetes {} (minutes the first time, then seconds) …",
        KUBERNETES.0
    );
    let (version, major, minor) = KUBERNETES;
    // Without a version clients cannot parse what the API server calls itself.
    let flags = format!(
        "-s -w -X k8s.io/component-base/version.gitVersion={version} -X k8s.io/component-base/version.gitMajor={major} \
         -X k8s.io/component-base/version.gitMinor={minor} -X k8s.io/client-go/pkg/version.gitVersion={version}"
    );
    let unfinished = binary.with_extension("unfinished");
    let built = Command::new("go")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &flags, "-o"])
        .arg(&unfinished)
        .arg(".")
        .current_dir(source)
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .output()?;
    if !built.status.success() {
        return Err(format!("go build: {}: {}", built.status, String::from_utf8_lossy(&built.stderr)).into());
    }
    Ok(fs::rename(&unfinished, binary)?)
}

/// Removes all but the newest binaries, as far as that can be done.
fn prune(cache: &Path, newest: &Path) {
    let mut old: Vec<_> = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir() && path != newest)
        .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    old.sort();
    for (_, path) in old.iter().rev().skip(KEPT) {
        let _ = fs::remove_dir_all(path);
    }
}
