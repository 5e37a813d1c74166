//! Programs built from this project's Go modules on first use, and cached: the control plane, and the servers that
//! run on it.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sha2::{Digest, Sha256};

use super::Error;

/// The version, and its parts.
type Version = (&'static str, &'static str, &'static str);

const NEWEST: Version = ("v1.36.3", "1", "36");
/// Selected by `WINDLASS_KUBERNETES=oldest`. Its sources are links to those of the newest.
const OLDEST: Version = ("v1.33.13", "1", "33");
/// How many other versions of a program stay in the cache, for other checkouts.
const KEPT: usize = 3;

/// A program and its Go module.
#[derive(Clone, Copy, Debug)]
pub struct GoProgram {
    /// The name of the program's file, and of its folder in the cache.
    pub name: &'static str,
    /// Its description in the message about the build.
    pub told: &'static str,
    /// The module's folder in this project.
    pub module: &'static str,
    /// The module's file, if it is not go.mod, for another version of a program.
    pub modfile: Option<&'static str>,
    /// Whether it has parts in C.
    pub cgo: bool,
    /// The package in it.
    pub package: &'static str,
}

const CONTROL_PLANE: GoProgram = GoProgram {
    name: "controlplane",
    told: "the control plane of Kubernetes v1.36.3",
    module: "tests/harness/src/controlplane/go",
    modfile: None,
    cgo: false,
    package: ".",
};

const OLD_CONTROL_PLANE: GoProgram = GoProgram {
    name: "controlplane-oldest",
    told: "the control plane of Kubernetes v1.33.13",
    module: "tests/harness/src/controlplane/oldest",
    modfile: None,
    cgo: false,
    package: ".",
};

/// The path of the control plane's binary. Blocks, for minutes where Go's build cache is cold.
pub fn path() -> Result<PathBuf, Error> {
    let asked = std::env::var("WINDLASS_KUBERNETES").unwrap_or_default();
    let (program, (version, major, minor)) = match asked.as_str() {
        "" | "newest" => (CONTROL_PLANE, NEWEST),
        "oldest" => (OLD_CONTROL_PLANE, OLDEST),
        _ => return Err(format!("WINDLASS_KUBERNETES={asked}: set it to oldest or newest").into()),
    };
    // Clients cannot parse an empty server version.
    program.built(&format!(
        "-s -w -X k8s.io/component-base/version.gitVersion={version} -X k8s.io/component-base/version.gitMajor={major} \
         -X k8s.io/component-base/version.gitMinor={minor} -X k8s.io/client-go/pkg/version.gitVersion={version}"
    ))
}

impl GoProgram {
    /// The path of the built program. Blocks while it is built, for minutes where Go's build cache is cold.
    pub fn path(&self) -> Result<PathBuf, Error> {
        self.built("-s -w")
    }

    fn built(&self, flags: &str) -> Result<PathBuf, Error> {
        let source = crate::root().join(self.module);
        let cache = cache_folder()?.join(self.name);
        let folder = cache.join(self.key(&source)?);
        let program = folder.join(self.name);
        if program.exists() {
            return Ok(program);
        }
        fs::create_dir_all(&folder)?;
        let lock = File::create(cache.join("lock"))?;
        // Released when the file is closed, however this process ends.
        lock.lock()?;
        if !program.exists() {
            self.build(&source, &program, flags)?;
            prune(&cache, &folder);
        }
        Ok(program)
    }

    fn key(&self, source: &Path) -> Result<String, Error> {
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
            format!("install Go 1.26 or later and put `go` on PATH: it builds {} ({error})", self.told)
        })?;
        hash.update(go.stdout);
        Ok(hash.finalize().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")))
    }

    fn build(&self, source: &Path, program: &Path, flags: &str) -> Result<(), Error> {
        // Not with a macro: a test's captured output appears only after a failure.
        writeln!(std::io::stderr(), "building {} (minutes the first time, then seconds) …", self.told)?;
        let unfinished = program.with_extension("unfinished");
        let built = Command::new("go")
            .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", flags])
            .args(self.modfile.map(|file| format!("-modfile={file}")))
            .arg("-o")
            .arg(&unfinished)
            .arg(self.package)
            .current_dir(source)
            .env("CGO_ENABLED", if self.cgo { "1" } else { "0" })
            .stdin(Stdio::null())
            .output()?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr).into_owned();
            return Err(format!("go build of {}: {}: {said}", self.told, built.status).into());
        }
        Ok(fs::rename(&unfinished, program)?)
    }
}

fn cache_folder() -> Result<PathBuf, Error> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or("set HOME or XDG_CACHE_HOME: what is built is kept under it")?;
    Ok(cache.join("windlass"))
}

/// Removes all but the newest binaries; failures are ignored.
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
