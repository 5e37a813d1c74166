//! `strings.txt`: each text of the product that a person can see, by source file. A new text appears in it, and so in
//! review; the prose linter reads it as it reads the pages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::install::helm::path;
use crate::install::references::is_as_generated;

const LIST: &str = "tests/cluster/install/strings.txt";
const HEAD: &str = "UPDATE_DOCS=1 cargo test --test cluster strings\n";
/// The crates whose texts reach a person. The simulator answers in Kubernetes' words.
const SOURCES: [&str; 7] = [
    "src",
    "crates/cli/src",
    "crates/core/src",
    "crates/engine/src",
    "crates/kube-port/src",
    "crates/temporal/src",
    "crates/temporal-grpc/src",
];
/// Macros and methods whose text only a developer sees.
const OF_DEVELOPERS: [&str; 8] =
    ["assert", "assert_eq", "assert_ne", "debug_assert", "panic", "unreachable", "expect", "expect_err"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        let is_of_tests =
            name.contains("tests") || name == "fixtures" || name == "fixtures.rs" || name == "laws";
        match (entry.is_dir(), is_of_tests) {
            (_, true) => {}
            (true, _) => files(&entry, found),
            (false, _) => found.extend((entry.extension().is_some_and(|ext| ext == "rs")).then_some(entry)),
        }
    }
}

/// True if the text has at least two words, and is no validation rule.
fn is_prose(text: &str) -> bool {
    if ["has(self.", "self.all(", "self.exists", "has(p.", "self.matches(", "type(self)"]
        .iter()
        .any(|rule| text.contains(rule))
    {
        return false;
    }
    let words =
        text.split_whitespace().filter(|word| word.chars().filter(char::is_ascii_lowercase).count() > 1);
    words.count() > 1
}

/// Appends the texts of a source, in its order, without those of tests and of attributes.
fn texts(tokens: TokenStream, found: &mut Vec<String>) {
    let mut tokens = tokens.into_iter().peekable();
    let (mut is_test, mut is_of_developers) = (false, false);
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                tokens.next_if(|next| matches!(next, TokenTree::Punct(punct) if punct.as_char() == '!'));
                if let Some(TokenTree::Group(attribute)) = tokens.next() {
                    let attribute = attribute.stream().to_string().replace(' ', "");
                    is_test |= ["cfg(test)", "test"].contains(&attribute.as_str())
                        || attribute.contains("feature=\"test-fixtures\"");
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => (is_test, is_of_developers) = (false, false),
            TokenTree::Ident(name) => {
                is_of_developers = OF_DEVELOPERS.contains(&name.to_string().as_str());
            }
            TokenTree::Group(group) => {
                if !is_test && !is_of_developers {
                    texts(group.stream(), found);
                }
                is_of_developers = false;
                is_test &= group.delimiter() != Delimiter::Brace;
            }
            TokenTree::Literal(literal) => {
                let text = syn::parse_str::<syn::LitStr>(&literal.to_string()).map(|text| text.value());
                let text = text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
                if !is_test && is_prose(&text) && !found.contains(&text) {
                    found.push(text);
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

#[test]
fn strings_match_the_list() {
    let mut list = HEAD.to_owned();
    for source in SOURCES {
        let mut sources = Vec::new();
        files(&path(source), &mut sources);
        for file in sources {
            let mut found = Vec::new();
            texts(std::fs::read_to_string(&file).unwrap().parse().unwrap(), &mut found);
            if !found.is_empty() {
                let name = file.strip_prefix(path("")).unwrap().display();
                write!(list, "\n# {name}\n{}\n", found.join("\n")).unwrap();
            }
        }
    }
    is_as_generated(LIST, &list);
}

#[test]
fn strings_of_tests_attributes_and_assertions_are_excluded() {
    let source = r#"
        #[doc = "an attribute here"]
        fn shown() -> &'static str { assert!(true, "for a developer"); format!("{} is shown", 1); "two words" }
        #[cfg(test)]
        mod tests { const NOT: &str = "not of users"; }
        const LAST: &str = "the last text";
    "#;
    let mut found = Vec::new();
    texts(source.parse().unwrap(), &mut found);
    assert_eq!(found, ["{} is shown", "two words", "the last text"]);
}
