//! cargo commands are not run within a cargo test: only the names in them are checked.

use crate::install::helm::path;

/// An error if a cargo command names something that does not exist.
pub fn wrong(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(" #").next().unwrap_or_default().split_whitespace().collect();
    let words: Vec<&str> = words.into_iter().skip_while(|word| *word != "cargo").skip(1).collect();
    let manifest = std::fs::read_to_string(path("Cargo.toml")).unwrap();
    // Features and tests are those of the named crate.
    let of =
        words.iter().skip_while(|word| **word != "-p").nth(1).and_then(|name| name.strip_prefix("windlass-"));
    let base = of.map(|part| format!("crates/{part}/")).unwrap_or_default();
    let verb = words.first().copied().unwrap_or_default();
    if !["test", "run", "build", "bench", "rustc"].contains(&verb) {
        return Some(format!("cargo {verb} is not known to this test"));
    }
    let mut target = None;
    let manifest_says = |line: &str| manifest.lines().any(|other| other == line);
    // After `--` come the program's arguments, or the filter of a test.
    let mut rest = words[1..].iter().take_while(|word| verb == "test" || **word != "--");
    while let Some(word) = rest.next() {
        let mut value = || rest.next().copied().unwrap_or_default();
        match *word {
            "--test" => {
                let name = value();
                let there = path(&format!("{base}tests/{name}.rs")).exists()
                    || path(&format!("{base}tests/{name}/main.rs")).exists();
                if !there {
                    return Some(format!("there is no test {name}"));
                }
                target = Some(name.to_owned());
            }
            "--example" => {
                let name = value();
                let there = path(&format!("examples/{name}.rs")).exists()
                    || path(&format!("examples/{name}/main.rs")).exists();
                if !there {
                    return Some(format!("there is no example {name}"));
                }
            }
            "--features" => {
                let name = value();
                // Without a named crate, of the command line's.
                let of = if base.is_empty() { "crates/cli/" } else { &base };
                let of_crate = std::fs::read_to_string(path(&format!("{of}Cargo.toml"))).unwrap_or_default();
                if !of_crate.lines().any(|line| line.starts_with(&format!("{name} = ["))) {
                    return Some(format!("there is no feature {name}"));
                }
            }
            "--bench" => {
                let name = value();
                if !path(&format!("benches/{name}.rs")).exists()
                    && !path(&format!("benches/{name}/main.rs")).exists()
                {
                    return Some(format!("there is no benchmark {name}"));
                }
            }
            "--profile" => {
                let name = value();
                if name != "test" && !manifest_says(&format!("[profile.{name}]")) {
                    return Some(format!("there is no profile {name}"));
                }
            }
            "-p" => {
                let name = value();
                let folder =
                    name.strip_prefix("windlass-").map(|part| path(&format!("crates/{part}/Cargo.toml")));
                if name != "windlass" && !folder.is_some_and(|manifest| manifest.exists()) {
                    return Some(format!("there is no crate {name}"));
                }
            }
            "--release" | "--workspace" | "--lib" | "--" | "--ignored" | "--nocapture" => {}
            flag if flag.starts_with('-') => return Some(format!("{flag} is not known to this test")),
            filter => {
                let of = target.as_deref().unwrap_or_default();
                if !tests_named(&base, of, filter) {
                    return Some(format!("no test of {of} is called like {filter}"));
                }
            }
        }
    }
    None
}

/// True if a test or module of this target has this in its name.
fn tests_named(base: &str, target: &str, part: &str) -> bool {
    let mut folders = vec![path(&format!("{base}tests/{target}"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            let found = entry.path();
            let text = std::fs::read_to_string(&found).unwrap_or_default();
            let is_there = |name: &str| {
                found.to_string_lossy().contains(name)
                    || text.lines().any(|line| line.contains("fn ") && line.contains(name))
            };
            if part.split("::").all(is_there) {
                return true;
            }
            if found.is_dir() {
                folders.push(found);
            }
        }
    }
    false
}
