//! Import cycles between files, found in their `use` declarations and in paths that begin with `crate` or `super`. A
//! re-exported name counts as an import of the file that defines it; a re-export itself is no import. Files with only
//! tests are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{code, is_test_file, sources};

/// The project's crates: the name in imports, and the folder of their sources.
const CRATES: &[(&str, &str)] = &[
    ("windlass", "src"),
    ("windlass_clock", "crates/clock/src"),
    ("windlass_core", "crates/core/src"),
    ("windlass_engine", "crates/engine/src"),
    ("windlass_process_kubelet", "crates/process-kubelet/src"),
    ("windlass_sim", "crates/sim/src"),
    ("windlass_temporal", "crates/temporal/src"),
    ("windlass_temporal_grpc", "crates/temporal-grpc/src"),
];

/// Modules that a crate re-exports from another under its own name.
const OFFERED: &[(&str, &str, &str)] = &[
    ("windlass", "clock", "windlass_clock"),
    ("windlass", "engine", "windlass_engine"),
    ("windlass_core", "engine", "windlass_engine"),
    ("windlass", "api", "windlass_core::api"),
    ("windlass", "planner", "windlass_core::planner"),
    ("windlass", "render", "windlass_core::render"),
    ("windlass", "revision", "windlass_core::revision"),
];

/// The most re-exports that are followed.
const MAX_DEPTH: usize = 8;

type Module = Vec<String>;

/// A source: its imports and its re-exports, as absolute paths.
#[derive(Default)]
struct Source {
    imports: Vec<Module>,
    reexports: Vec<Module>,
}

/// The project's modules by path; the first part is the crate.
pub struct House {
    files: BTreeMap<Module, String>,
    sources: BTreeMap<Module, Source>,
}

fn parts(path: &str) -> Module {
    path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// The paths in the tree of a `use` declaration, without renames.
fn paths(tree: &str) -> Vec<Module> {
    let Some((before, rest)) = tree.split_once('{') else {
        return vec![parts(tree.split(" as ").next().unwrap_or_default())];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            items.push(String::new());
        } else if let Some(item) = items.last_mut() {
            item.push(c);
        }
    }
    let items = items.iter().filter(|item| !item.trim().is_empty()).flat_map(|item| paths(item));
    items.map(|path| parts(before).into_iter().chain(path).collect()).collect()
}

/// The `use` declarations of a text (whether each is a re-export, and its tree), and the text without them.
fn declarations(text: &str) -> (Vec<(bool, String)>, String) {
    let (mut found, mut rest, mut open) = (Vec::new(), String::new(), None::<(bool, String)>);
    for line in text.lines() {
        let trimmed = line.trim_start();
        let after_pub = trimmed.strip_prefix("pub").map(|rest| {
            let rest = rest.trim_start();
            rest.strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest)
                .trim_start()
        });
        if open.is_none() {
            let declared = after_pub.unwrap_or(trimmed).strip_prefix("use ");
            open = declared.map(|_| (after_pub.is_some(), String::new()));
            if let (Some((_, tree)), Some(declared)) = (&mut open, declared) {
                tree.push_str(declared);
            }
        } else if let Some((_, tree)) = &mut open {
            tree.push(' ');
            tree.push_str(trimmed);
        }
        match &mut open {
            Some((_, tree)) if tree.trim_end().ends_with(';') => {
                let tree_end = tree.trim_end().len() - 1;
                tree.truncate(tree_end);
                found.extend(open.take());
            }
            Some(_) => {}
            None => {
                rest.push_str(line);
                rest.push('\n');
            }
        }
    }
    (found, rest)
}

/// The paths in code that begin with `crate` or `super`.
fn paths_in_code(text: &str) -> Vec<Module> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            if text[..at].chars().next_back().is_some_and(|c| is_word(c) || c == ':') {
                continue;
            }
            let path = &text[at..];
            let end = path.find(|c: char| !is_word(c) && c != ':').unwrap_or(path.len());
            found.push(parts(&path[..end]));
        }
    }
    found
}

impl House {
    pub fn read(root: &Path) -> Self {
        let (mut files, mut texts) = (BTreeMap::new(), BTreeMap::new());
        for (name, folder) in CRATES {
            for path in sources(&root.join(folder)) {
                let file = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                let inside = file.strip_prefix(folder).unwrap_or_default().trim_start_matches('/');
                if is_test_file(&file) || inside == "main.rs" {
                    continue;
                }
                let mut module: Module = vec![(*name).to_owned()];
                module.extend(inside.trim_end_matches(".rs").split('/').map(str::to_owned));
                if module.last().is_some_and(|last| last == "mod" || last == "lib") {
                    module.pop();
                }
                let text = fs::read_to_string(&path).unwrap();
                let lines: Vec<String> = code(&file, &text).into_iter().map(|line| line.text).collect();
                texts.insert(module.clone(), lines.join("\n"));
                files.insert(module, file);
            }
        }
        let mut house = Self { files, sources: BTreeMap::new() };
        for (module, text) in &texts {
            let (declared, rest) = declarations(text);
            let mut source = Source::default();
            for (is_reexport, tree) in declared {
                for path in paths(&tree) {
                    let Some(path) = house.absolute(module, &path) else { continue };
                    if is_reexport { source.reexports.push(path) } else { source.imports.push(path) }
                }
            }
            source
                .imports
                .extend(paths_in_code(&rest).iter().filter_map(|path| house.absolute(module, path)));
            house.sources.insert(module.clone(), source);
        }
        house
    }

    /// A path from the root of its crate; `None` if it leads out of the project.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut path: Vec<String> =
            path.iter().filter(|part| *part != "self" || path.len() == 1).cloned().collect();
        let first = path.first()?.clone();
        let mut base = match first.as_str() {
            "crate" => vec![module.first()?.clone()],
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let base = module.get(..module.len().checked_sub(ups)?)?.to_vec();
                path.drain(..ups - 1);
                base
            }
            known if CRATES.iter().any(|(name, _)| *name == known) => vec![first.clone()],
            _ => {
                let child: Module = module.iter().chain([&first]).cloned().collect();
                self.files.contains_key(&child).then_some(child)?
            }
        };
        base.extend(path.into_iter().skip(1));
        Some(base)
    }

    /// The file that defines a path.
    fn file_of(&self, path: &Module, depth: usize) -> Option<&str> {
        let mut path = path.clone();
        for (crate_, module, real) in OFFERED {
            if path.len() > 1 && path[0] == *crate_ && path[1] == *module {
                path = parts(real).into_iter().chain(path.drain(2..)).collect();
            }
        }
        let deepest = (1..=path.len()).rev().find(|end| self.files.contains_key(&path[..*end]))?;
        let file = self.files.get(&path[..deepest])?;
        let (Some(name), true) = (path.get(deepest), depth < MAX_DEPTH) else { return Some(file) };
        let source = self.sources.get(&path[..deepest]);
        let reexported = source.and_then(|s| s.reexports.iter().find(|e| e.last() == Some(name)));
        let reexported =
            reexported.map(|e| e.iter().chain(&path[deepest + 1..]).cloned().collect::<Module>());
        reexported.and_then(|path| self.file_of(&path, depth + 1)).or(Some(file))
    }

    fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut imports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (module, source) in &self.sources {
            let from = self.files[module].as_str();
            let to = source.imports.iter().filter_map(|path| self.file_of(path, 0)).filter(|to| *to != from);
            imports.insert(from, to.collect());
        }
        imports
    }

    /// The number of imports between files of the project.
    pub fn count(&self) -> usize {
        self.imports().values().map(BTreeSet::len).sum()
    }

    /// Each cycle: files that import each other, directly or indirectly.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let imports = self.imports();
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            imports.keys().map(|from| (*from, reachable(&imports, from))).collect();
        let mut circles: Vec<Vec<&str>> = Vec::new();
        for (file, from_here) in &reached {
            if !from_here.contains(file) || circles.iter().any(|circle| circle.contains(file)) {
                continue;
            }
            circles.push(from_here.iter().filter(|other| reached[*other].contains(file)).copied().collect());
        }
        circles
    }
}

fn reachable<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = imports[from].iter().copied().collect();
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(imports.get(file).into_iter().flatten());
        }
    }
    found
}

#[test]
fn declarations_and_paths_are_read_as_the_compiler_does() {
    let text = "pub(crate) use super::names::{A, sub::{B, C as D}};\nuse crate::api::{\n    Stage,\n};\nlet x = super::f();\n";
    let (found, rest) = declarations(text);
    let paths = |index: usize| {
        let all: Vec<String> = paths(&found[index].1).iter().map(|path| path.join("::")).collect();
        (found[index].0, all)
    };
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(paths(0), (true, texts(&["super::names::A", "super::names::sub::B", "super::names::sub::C"])));
    assert_eq!(paths(1), (false, texts(&["crate::api::Stage"])));
    assert_eq!(paths_in_code(&rest), [["super", "f"]]);
}
