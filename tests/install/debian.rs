//! Programs of Debian, fetched by its own package manager and unpacked beside what else is built, without being installed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A program of a package: its path, or, where it cannot be had here, nothing, which is told in one line.
pub fn program(package: &str, program: &str) -> Option<PathBuf> {
    match fetched(package).map(|folder| folder.join(program)) {
        Ok(path) if path.exists() => Some(path),
        Ok(path) => panic!("the package {package} has no {}", path.display()),
        Err(why) => {
            skipped(&format!("{package} of Debian cannot be had here: {why}"));
            None
        }
    }
}

/// Says that something was not tested: on standard error, and where the tests' caller counts it.
fn skipped(what: &str) {
    eprintln!("skipped: {what}");
    if let Some(file) = std::env::var_os("WINDLASS_SKIPPED") {
        use std::io::Write;
        let file = fs::OpenOptions::new().append(true).create(true).open(file);
        let _ = file.and_then(|mut file| writeln!(file, "{what}"));
    }
}

fn fetched(package: &str) -> Result<PathBuf, String> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or("neither HOME nor XDG_CACHE_HOME is set")?.join("windlass/debian");
    let folder = cache.join(package);
    if folder.exists() {
        return Ok(folder);
    }
    let work = cache.join(format!("{package}-{}", std::process::id()));
    let said = |error: std::io::Error| error.to_string();
    fs::create_dir_all(&work).map_err(said)?;
    run(Command::new("apt-get").args(["-q", "download", package]).current_dir(&work))?;
    let deb = fs::read_dir(&work).map_err(said)?.filter_map(|entry| Some(entry.ok()?.path()));
    let deb = deb.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "deb"));
    let deb = deb.ok_or("apt-get brought no package")?;
    let root = work.join("root");
    run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&root))?;
    // Another process may have been faster.
    let moved = fs::rename(&root, &folder);
    let _ = fs::remove_dir_all(&work);
    if folder.exists() { Ok(folder) } else { Err(moved.err().map(said).unwrap_or_default()) }
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {last}")) }
}
