//! The layering of ARCHITECTURE.md, "Code map": a floor imports only the floors below it, pure floors do no I/O, and
//! only `crates/clock/src/lib.rs` reads a clock. Reads the sources, so that a failure names the line. Test code may
//! import anything.

#![allow(clippy::unwrap_used, reason = "a test that cannot read the sources fails")]

#[path = "floors/circles.rs"]
mod circles;

use std::fs;
use std::path::{Path, PathBuf};

/// The floors, each with the floors of this crate that it may import.
const HOUSE: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    (
        "cli",
        &[
            "dashboard",
            "foresight",
            "report",
            "reader",
            "operator",
            "controller",
            "planner",
            "tasks",
            "apply",
            "observe",
            "render",
            "cluster",
            "revision",
            "api",
            "engine",
            "sidecar",
            "sim",
            "metrics",
            "traces",
            "clock",
            "hooks",
            "listen",
        ],
    ),
    (
        "operator",
        &[
            "controller",
            "planner",
            "tasks",
            "apply",
            "observe",
            "asking",
            "hooks",
            "render",
            "cluster",
            "revision",
            "api",
            "engine",
            "sidecar",
            "metrics",
            "traces",
            "clock",
        ],
    ),
    (
        "controller",
        &[
            "tasks", "apply", "observe", "planner", "asking", "hooks", "render", "cluster", "revision",
            "api", "engine", "sidecar", "metrics", "traces", "clock",
        ],
    ),
    (
        "tasks",
        &[
            "apply", "observe", "planner", "asking", "hooks", "render", "cluster", "revision", "api",
            "engine", "sidecar",
        ],
    ),
    ("apply", &["observe", "planner", "render", "cluster", "revision", "api", "engine", "clock"]),
    ("observe", &["planner", "asking", "render", "cluster", "revision", "api", "engine", "sidecar"]),
    ("planner", &["render", "observed", "revision", "api", "engine"]),
    ("render", &["revision", "api", "engine"]),
    ("cluster", &["api", "engine", "metrics", "clock"]),
    ("revision", &["api", "engine"]),
    ("observed", &["parts", "api"]),
    ("parts", &[]),
    ("api", &["engine"]),
    ("engine", &[]),
    ("sidecar", &["listen"]),
    ("listen", &[]),
    ("asking", &["hooks", "cluster", "engine", "sidecar", "clock"]),
    ("hooks", &["api", "engine"]),
    ("sim", &["clock"]),
    ("metrics", &[]),
    ("traces", &[]),
    ("clock", &[]),
    ("report", &["planner", "cluster", "revision", "api", "engine"]),
    ("reader", &["report", "cluster", "api", "clock"]),
    ("dashboard", &["foresight", "reader", "report", "cluster", "api", "engine", "clock"]),
    (
        "foresight",
        &[
            "controller",
            "apply",
            "observe",
            "reader",
            "report",
            "planner",
            "render",
            "cluster",
            "revision",
            "api",
            "engine",
        ],
    ),
];

/// What a pure floor may not mention.
const PURE: &[&str] = &[
    "kube",
    "k8s_openapi",
    "reqwest",
    "axum",
    "tokio",
    "futures",
    "async_trait",
    "std::fs",
    "std::net",
    "std::env",
];

/// What no floor may mention that does no I/O, whatever types it is made of.
const IO: &[&str] =
    &["reqwest", "axum", "tokio", "futures", "async_trait", "std::fs", "std::net", "std::env"];

/// What single floors may not mention.
const FOREIGN: &[(&str, &[&str])] = &[
    ("engine", &["kube", "k8s_openapi", "reqwest", "axum", "tokio"]),
    // Custom resources are declared by the types of kube and of k8s_openapi.
    ("api", IO),
    ("observed", PURE),
    ("parts", PURE),
    ("planner", PURE),
    ("render", PURE),
    ("revision", PURE),
    ("hooks", &["k8s_openapi", "reqwest", "axum", "tokio", "futures", "async_trait", "std::fs", "std::env"]),
    ("report", PURE),
    ("sidecar", &["kube", "k8s_openapi"]),
    // Tasks write through the port, which guards every write.
    ("tasks", &["kube"]),
    ("apply", &["kube"]),
    ("observe", &["kube"]),
    ("controller", &["kube"]),
];

const CLOCKS: [&str; 5] = ["Utc::now", "Local::now", "SystemTime::now", "Instant::now", "Timestamp::now"];

/// A line of code: its file, relative to the crate, its number, and its text without comments.
struct Line {
    file: String,
    number: usize,
    text: String,
}

impl Line {
    fn at(&self) -> String {
        format!("{}:{}", self.file, self.number)
    }

    /// The floor of the line.
    fn floor(&self) -> &str {
        let of_a_crate =
            |name: &str| self.file.strip_prefix("crates/")?.strip_prefix(name)?.strip_prefix("/src/");
        if let Some(floor) = ["engine", "clock", "sim"].into_iter().find(|name| of_a_crate(name).is_some()) {
            return floor;
        }
        let below_src = of_a_crate("core").unwrap_or(self.file.trim_start_matches("src/"));
        below_src.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// True if a file contains only tests: a `tests` or `laws` module, or one with such a name.
fn is_test_file(relative: &str) -> bool {
    relative.split('/').any(|part| part == "tests" || part == "laws" || part.ends_with("tests.rs"))
}

/// The lines of a source before its `#[cfg(test)] mod`, without comments.
fn code(file: &str, source: &str) -> Vec<Line> {
    let lines: Vec<&str> = source.lines().collect();
    let mut code = Vec::new();
    for (index, text) in lines.iter().enumerate() {
        let mut after =
            lines[index + 1..].iter().map(|line| line.trim()).skip_while(|line| line.starts_with("#["));
        let opens_tests = text.trim() == "#[cfg(test)]"
            && after.next().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if opens_tests {
            break;
        }
        let is_comment = text.trim_start().starts_with("//");
        let text = if is_comment { "" } else { text.split(" // ").next().unwrap_or_default() };
        code.push(Line { file: file.to_owned(), number: index + 1, text: text.to_owned() });
    }
    code
}

fn house() -> Vec<Line> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["src", "crates/clock/src", "crates/core/src", "crates/engine/src", "crates/sim/src"]
        .iter()
        .flat_map(|folder| sources(&root.join(folder)))
        .map(|path| {
            (
                path.strip_prefix(root).unwrap().to_string_lossy().into_owned(),
                fs::read_to_string(path).unwrap(),
            )
        })
        .filter(|(file, _)| !is_test_file(file))
        .flat_map(|(file, source)| code(&file, &source))
        .collect()
}

/// The floors of this crate that a line names, by `crate::floor`, also within `use crate::{…}`, and, in the binary,
/// by `windlass::floor`.
fn named(text: &str) -> Vec<&str> {
    let mut floors = Vec::new();
    for prefix in ["crate::", "windlass::"] {
        for (at, _) in text.match_indices(prefix) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"' || c == '/') {
                continue;
            }
            let rest = &text[at + prefix.len()..];
            match rest.strip_prefix('{') {
                Some(group) => floors.extend(group.split([',', '}']).map(first_word)),
                None => floors.push(first_word(rest)),
            }
        }
    }
    floors.retain(|f| HOUSE.iter().any(|(floor, _)| floor == f));
    floors
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Imports of floors that are not below.
fn wrong_arrows(lines: &[Line]) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in lines {
        let floor = line.floor();
        let Some((_, below)) = HOUSE.iter().find(|(name, _)| *name == floor) else { continue };
        for named in named(&line.text) {
            if named != floor && !below.contains(&named) {
                wrong.push(format!("{}: {floor} names {named}: {}", line.at(), line.text.trim()));
            }
        }
    }
    wrong
}

fn mentions(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_word(before)
            && !is_word(after)
            && (word.contains("::") || text[at + word.len()..].starts_with("::"))
    })
}

fn foreign(lines: &[Line]) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in lines {
        for &(floor, banned) in FOREIGN {
            for word in banned.iter().filter(|word| line.floor() == floor && mentions(&line.text, word)) {
                wrong.push(format!("{}: {floor} mentions {word}: {}", line.at(), line.text.trim()));
            }
        }
    }
    wrong
}

fn clocks(lines: &[Line]) -> Vec<String> {
    let reads = |line: &&Line| CLOCKS.iter().any(|clock| line.text.contains(clock));
    lines.iter().filter(|l| l.file != "crates/clock/src/lib.rs").filter(reads).map(Line::at).collect()
}

fn one(file: &str, text: &str) -> Vec<Line> {
    vec![Line { file: file.to_owned(), number: 1, text: text.to_owned() }]
}

#[test]
fn every_floor_imports_only_the_floors_below_it() {
    assert_eq!(wrong_arrows(&house()), [""; 0]);
}

#[test]
fn every_source_stands_on_a_floor_of_the_house() {
    let strangers: Vec<String> = house()
        .iter()
        .filter(|line| line.number == 1 && !line.file.ends_with("src/lib.rs"))
        .filter(|line| !HOUSE.iter().any(|(floor, _)| *floor == line.floor()))
        .map(|line| line.file.clone())
        .collect();
    assert_eq!(strangers, [""; 0], "give each a place in the house");
}

#[test]
fn the_engine_knows_no_kubernetes_and_pure_floors_do_no_io() {
    assert_eq!(foreign(&house()), [""; 0]);
}

#[test]
fn only_the_clock_module_reads_a_clock() {
    assert_eq!(clocks(&house()), [""; 0]);
}

/// The words by which a text refers to a document outside the repository.
fn elsewhere() -> Vec<String> {
    let pages = ["BEHAVIOUR", "DESIGN", "REALWORLD"].map(str::to_owned);
    let files = ["FAULTS", "CONTROLPLANE", "STYLE", "HOUSE", "HOOKS", "INSTALL", "EYES", "WORKERS"];
    let mut words: Vec<String> = pages.into_iter().chain(files.map(|name| format!("{name}.md"))).collect();
    words.push("shared/".to_owned());
    words
}

/// All text files of a folder of the repository.
fn texts(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut found: Vec<PathBuf> =
        fs::read_dir(path).unwrap().flat_map(|entry| texts(&entry.unwrap().path())).collect();
    found.sort();
    found
}

#[test]
fn nothing_refers_to_a_document_that_is_not_in_the_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = ["src", "crates", "tests", "docs", "benches", "examples", "plans", "deploy"];
    let pages = ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md", "Cargo.toml", "clippy.toml", "deny.toml"];
    let words = elsewhere();
    let (mut found, mut lines) = (Vec::new(), 0);
    for file in places.iter().chain(&pages).flat_map(|place| texts(&root.join(place))) {
        let name = file.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        let Ok(text) = fs::read_to_string(&file) else { continue };
        // It has to contain them.
        if name == "tests/floors.rs" {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            lines += 1;
            if words.iter().any(|word| line.contains(word.as_str())) {
                found.push(format!("{name}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    assert!(lines > 10_000, "the files were looked for in the wrong place");
    assert_eq!(found, [""; 0], "say in plain words what it means; what readers need is in docs/");
}

/// The number of import cycles between files. After breaking one, lower this.
const CIRCLES: usize = 1;

#[test]
fn files_make_no_more_circles_by_importing_each_other() {
    let house = circles::House::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(house.count() > 1_000, "imports are read in the wrong place: {}", house.count());
    let circles = house.circles();
    assert!(circles.len() <= CIRCLES, "{} circles: {circles:#?}", circles.len());
}

/// The source paths that a page names in backticks, with or without the folders before them.
fn named_sources(page: &str) -> Vec<&str> {
    let is_path = |word: &&str| {
        let is_whole = ["src/", "crates/", "plans/"].iter().any(|folder| word.starts_with(folder));
        (is_whole || Path::new(word).extension().is_some_and(|e| e == "rs"))
            && word.contains('/')
            && !word.contains([' ', '*'])
    };
    page.split('`').skip(1).step_by(2).filter(is_path).collect()
}

/// True if the path is one from the root, or the end of one source file's.
fn is_there(root: &Path, sources: &[String], path: &str) -> bool {
    root.join(path).exists() || sources.iter().any(|file| file.ends_with(&format!("/{path}")))
}

#[test]
fn the_files_that_the_pages_for_builders_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "crates", "tests", "examples"];
    let sources: Vec<String> = folders
        .iter()
        .flat_map(|folder| sources(&root.join(folder)))
        .map(|p| p.display().to_string())
        .collect();
    for name in ["ARCHITECTURE.md", "docs/dev/reconcile.md"] {
        let page = fs::read_to_string(root.join(name)).unwrap();
        let named = named_sources(&page);
        assert!(named.len() > 10, "{name}");
        let gone: Vec<&&str> = named.iter().filter(|path| !is_there(root, &sources, path)).collect();
        assert_eq!(gone, [&""; 0], "{name} names what is not there");
    }
}

#[test]
fn an_arrow_that_points_up_is_found_whichever_way_it_is_written() {
    let table = [
        ("crates/core/src/planner/fleet/wave.rs", "use crate::tasks::FleetScope;", true),
        ("crates/core/src/planner/mod.rs", "use crate::{api, controller::Context};", true),
        ("crates/engine/src/task.rs", "    let x = crate::cluster::Kind::Pod;", true),
        ("crates/core/src/api/crd.rs", "pub(crate) use crate::revision::hash;", true),
        ("src/main.rs", "windlass::controller::reconcile_fleet();", true),
        ("src/tasks/replace_pod.rs", "use crate::planner::node::StatefulSetFact;", false),
        ("crates/core/src/planner/node/facts.rs", "use crate::api::Problem;", false),
        ("src/main.rs", "windlass::cli::run()", false),
        ("crates/engine/src/plan.rs", "use super::sentence::cut;", false),
    ];
    for (file, text, is_wrong) in table {
        assert_eq!(!wrong_arrows(&one(file, text)).is_empty(), is_wrong, "{file}: {text}");
    }
}

#[test]
fn a_foreign_crate_and_a_clock_are_found_and_words_that_only_look_like_them_are_not() {
    let table = [
        ("crates/engine/src/task.rs", "use kube::Client;", true),
        ("crates/core/src/planner/fleet/wave.rs", "use std::fs::read;", true),
        ("crates/core/src/planner/fleet/wave.rs", "let kubelet = 1;", false),
        ("src/tasks/switch_traffic.rs", "use kube::Api;", true),
        ("src/controller/save.rs", "use kube::Client;", true),
        ("src/operator/lease.rs", "use kube::Api;", false),
        ("src/cluster/kube_port.rs", "use kube::Client;", false),
    ];
    for (file, text, is_wrong) in table {
        assert_eq!(!foreign(&one(file, text)).is_empty(), is_wrong, "{file}: {text}");
    }
    assert_eq!(clocks(&one("src/tasks/x.rs", "let now = Utc::now();")), ["src/tasks/x.rs:1"]);
    assert_eq!(clocks(&one("crates/clock/src/lib.rs", "Utc::now()")), [""; 0]);
}

#[test]
fn tests_within_a_source_and_comments_are_not_code() {
    let source =
        "use crate::api::X;\n// use crate::cli::Y;\n#[cfg(test)]\nmod tests {\n    use crate::cli::Z;\n}\n";
    let lines = code("crates/engine/src/x.rs", source);
    assert_eq!((lines.len(), lines[1].text.as_str()), (2, ""));
    assert_eq!(wrong_arrows(&lines), ["crates/engine/src/x.rs:1: engine names api: use crate::api::X;"]);
    assert!(
        is_test_file("crates/engine/src/laws/crash.rs")
            && is_test_file("crates/sim/src/kubelet/status_tests.rs")
    );
    assert!(!is_test_file("src/tasks/mod.rs"));
}
