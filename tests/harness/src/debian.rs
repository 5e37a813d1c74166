//! Debian's programs, downloaded by its package manager and unpacked next to other build output, without
//! installation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Serializes downloads: they work in the same folder.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of a package's program; `None`, with a message, if it is unavailable.
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

/// The same for a program with libraries that are not installed: its dependencies are unpacked too, and the path is
/// that of a wrapper script.
pub fn program_with_libraries(package: &str, program: &str) -> Option<PathBuf> {
    match with_libraries(package, program) {
        Ok(path) => Some(path),
        Err(why) => {
            skipped(&format!("{package} of Debian cannot be had here: {why}"));
            None
        }
    }
}

fn with_libraries(package: &str, program: &str) -> Result<PathBuf, String> {
    let _alone = alone();
    let folder = cache()?.join(format!("{package}-with-libraries"));
    let script = folder.join("run");
    let said = |error: std::io::Error| error.to_string();
    if script.exists() {
        // An earlier version's script may miss some.
        write_script(&folder, package, program).map_err(said)?;
        return Ok(script);
    }
    eprintln!("fetching {package} of Debian with what it needs: some minutes, once");
    let work = cache()?.join(format!("{package}-all-{}", std::process::id()));
    let root = work.join("root");
    fs::create_dir_all(&root).map_err(said)?;
    // The package, and its dependencies that are not installed.
    let mut ask = Command::new("apt-get");
    ask.args([
        "install",
        "--print-uris",
        "-qq",
        "-y",
        "--no-install-recommends",
        "-o",
        "Debug::NoLocking=1",
        package,
    ]);
    let wanted = ask.output().map_err(said)?;
    let wanted = String::from_utf8_lossy(&wanted.stdout).into_owned();
    let names = wanted.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('_').next());
    let names: Vec<&str> = names.collect();
    if !names.contains(&package) {
        return Err("apt-get does not know it; apt-get update may help".to_owned());
    }
    run(Command::new("apt-get").args(["-q", "download"]).args(&names).current_dir(&work))?;
    for deb in fs::read_dir(&work).map_err(said)?.filter_map(|entry| Some(entry.ok()?.path())) {
        if deb.extension().is_some_and(|ext| ext == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&root))?;
            fs::remove_file(deb).map_err(said)?;
        }
    }
    write_script(&root, package, program).map_err(said)?;
    // Another process may have been faster.
    let moved = fs::rename(&root, &folder);
    let _ = fs::remove_dir_all(&work);
    if script.exists() { Ok(script) } else { Err(moved.err().map(said).unwrap_or_default()) }
}

/// Writes the wrapper script, with all library folders.
fn write_script(root: &Path, package: &str, program: &str) -> std::io::Result<()> {
    // A script in /usr/bin often uses the program's installed path.
    let own = ["usr/lib", "usr/libexec"].map(|place| format!("{place}/{package}/{package}"));
    let program = own.into_iter().find(|path| root.join(path).exists()).unwrap_or_else(|| program.to_owned());
    let text = format!(
        "#!/bin/sh\nroot=$(dirname \"$0\")\nLD_LIBRARY_PATH=$(echo \"$root\"/usr/lib/*-linux-gnu \"$root\"/lib/*-linux-gnu \
         \"$root\"/usr/lib/*-linux-gnu/pulseaudio | tr ' ' :) exec \"$root/{program}\" \"$@\"\n"
    );
    let script = root.join("run");
    if fs::read_to_string(&script).is_ok_and(|there| there == text) {
        return Ok(());
    }
    // Renamed atomically, for other processes that read it.
    let new = root.join(format!("run-{}", std::process::id()));
    fs::write(&new, text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(new, script)
}

/// Reports a skipped test on standard error, and where the caller counts it.
pub fn skipped(what: &str) {
    eprintln!("skipped: {what}");
    if let Some(file) = std::env::var_os("WINDLASS_SKIPPED") {
        use std::io::Write;
        let file = fs::OpenOptions::new().append(true).create(true).open(file);
        let _ = file.and_then(|mut file| writeln!(file, "{what}"));
    }
}

fn cache() -> Result<PathBuf, String> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(cache.ok_or("neither HOME nor XDG_CACHE_HOME is set")?.join("windlass/debian"))
}

fn fetched(package: &str) -> Result<PathBuf, String> {
    let _alone = alone();
    let cache = cache()?;
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
