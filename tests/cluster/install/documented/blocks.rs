//! The blocks of commands and of manifests in a page, and what is said of them for this test: an HTML comment before a block,
//! which nobody sees who reads the page.
//!
//! | comment | |
//! |---|---|
//! | `<!-- not run: WHY -->` | it is not run here, for this reason |
//! | `<!-- dry: WHY -->` | kubectl and Helm are told `--dry-run=server` |
//! | `<!-- given: STATE -->` | the fleet is brought into this state before |

/// The kind of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Shell commands.
    Commands,
    /// A shell session: lines that begin with `$` are commands.
    Shown,
    /// A manifest, or a part of one.
    Yaml,
}

/// How a block is tested.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Treated {
    Run,
    Dry,
    /// Not run, for this reason.
    Left(String),
}

/// A block of a page.
#[derive(Clone, Debug)]
pub struct Block {
    pub line: usize,
    pub kind: Kind,
    pub text: String,
    pub treated: Treated,
    /// The state in which it starts.
    pub given: Option<String>,
}

impl Block {
    /// Its commands, each including continuation lines and here-documents.
    pub fn commands(&self) -> Vec<String> {
        let mut commands = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let line = match self.kind {
                Kind::Shown => match line.strip_prefix("$ ") {
                    Some(line) => line,
                    None => continue,
                },
                _ => line,
            };
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let mut command = line.to_owned();
            let document =
                line.split("<<'").nth(1).and_then(|rest| rest.split('\'').next()).map(str::to_owned);
            while document.is_some() || command.ends_with('\\') {
                let Some(next) = lines.next() else { break };
                command = format!("{command}\n{next}");
                if document.as_deref() == Some(next) {
                    break;
                }
            }
            commands.push(command);
        }
        commands
    }
}

/// The blocks of a page; an error is an invalid comment, with its line.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let (mut found, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
    let (mut in_other, mut said): (bool, Vec<(usize, String)>) = (false, Vec::new());
    for (index, line) in page.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => block.text.extend([line.trim_end(), "\n"]),
            (None, Some(_)) if in_other => in_other = false,
            (None, Some(kind)) => {
                let kind = match kind.trim() {
                    "sh" | "bash" => Kind::Commands,
                    "console" | "" => Kind::Shown,
                    "yaml" => Kind::Yaml,
                    _ => {
                        in_other = true;
                        continue;
                    }
                };
                let mut block =
                    Block { line: index + 1, kind, text: String::new(), treated: Treated::Run, given: None };
                for (line, comment) in said.drain(..) {
                    let (word, rest) = comment.split_once(':').unwrap_or((&comment, ""));
                    let rest = rest.trim();
                    match word {
                        "not run" if !rest.is_empty() => block.treated = Treated::Left(rest.to_owned()),
                        "dry" if !rest.is_empty() => block.treated = Treated::Dry,
                        "given" if !rest.is_empty() => block.given = Some(rest.to_owned()),
                        _ => {
                            return Err(format!(
                                "line {line}: “{comment}” is no such comment, or gives no reason"
                            ));
                        }
                    }
                }
                open = Some(block);
            }
            (None, None) => match line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
                // Comments of generated pages.
                Some(comment) if comment.starts_with("generated") || comment == "end" => {}
                Some(comment) => said.push((index + 1, comment.to_owned())),
                None if line.trim().is_empty() => {}
                None if said.is_empty() => {}
                None => return Err(format!("line {}: no block follows “{}”", index + 1, said[0].1)),
            },
        }
    }
    Ok(found)
}

#[test]
fn multi_line_commands_stay_whole_and_comments_need_a_reason() {
    let page = "text\n<!-- given: x -->\n```sh\n# why\na \\\n  b\nc <<'END'\n  d\nEND\ne   # f\n```\n```console\n$ g\nh\n```\n```rust\n$ no\n```\n";
    let found = blocks(page).unwrap();
    let commands: Vec<Vec<String>> = found.iter().map(Block::commands).collect();
    assert_eq!(commands, [vec!["a \\\n  b", "c <<'END'\n  d\nEND", "e   # f"], vec!["g"]]);
    assert_eq!((found[0].given.as_deref(), found[0].line, &found[1].given), (Some("x"), 3, &None));
    for wrong in
        ["<!-- not run -->\n```sh\n```\n", "<!-- not run: -->\n```sh\n```\n", "<!-- dry: why -->\ntext\n"]
    {
        assert!(blocks(wrong).is_err(), "{wrong}");
    }
}
