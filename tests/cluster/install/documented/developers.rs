//! The developers' pages: the names in their commands exist. The commands are not run: they build and run all tests,
//! for minutes or hours.

use std::os::unix::fs::PermissionsExt;

use super::blocks::{Kind, Treated, blocks};
use super::cargo;
use crate::install::helm::path;

fn pages() -> Vec<String> {
    let folder = std::fs::read_dir(path("docs/dev")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut pages: Vec<String> = folder.map(|name| format!("docs/dev/{}", name.to_string_lossy())).collect();
    pages.retain(|page| page.rsplit_once('.').is_some_and(|(_, kind)| kind == "md"));
    pages.push("CONTRIBUTING.md".to_owned());
    pages.sort();
    pages
}

/// An error if a command names something that does not exist.
fn wrong(line: &str) -> Option<String> {
    let line = line.split(" #").next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches(['\'', '"'])).collect();
    if words.contains(&"cargo") {
        return cargo::wrong(line);
    }
    let program = words.first()?;
    match std::fs::metadata(path(program)) {
        Ok(file) if file.is_file() && file.permissions().mode() & 0o111 != 0 => {}
        _ => return Some(format!("{program} is no program of this project; say why it is not looked at")),
    }
    None
}

#[test]
fn names_in_developer_pages_exist_or_are_explained() {
    let (mut seen, mut all) = (0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(path(&page)).unwrap();
        for block in blocks(&text).unwrap_or_else(|error| panic!("{page}: {error}")) {
            if block.kind == Kind::Yaml || matches!(block.treated, Treated::Left(_)) {
                continue;
            }
            for line in block.commands() {
                seen += 1;
                all.extend(wrong(&line).map(|why| format!("{page}:{}: {line}: {why}", block.line)));
            }
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
    assert!(seen >= 15, "so few commands are in these pages: {seen}");
}

#[test]
fn wrong_name_in_a_developer_command_is_detected() {
    for (line, said) in [
        (".ci/nosuch", "no program of this project"),
        ("cargo bench --bench nosuch", "no benchmark nosuch"),
        ("cargo build --profile nosuch", "no profile nosuch"),
        ("cargo test -p windlass-nosuch", "no crate windlass-nosuch"),
        ("cargo test -p windlass-temporal --features jemalloc", "no feature jemalloc"),
        ("cargo test -p windlass-temporal --test e2e", "no test e2e"),
        ("cargo nosuch", "is not known"),
        ("A=b cargo test --release --test sim nosuch_at_all -- --nocapture", "no test of sim"),
    ] {
        assert!(wrong(line).is_some_and(|why| why.contains(said)), "{line}: {:?}", wrong(line));
    }
    assert_eq!(wrong("A=\"b c\" cargo test --lib   # why"), None);
}
