//! docs/reference/command-line.md, generated from the command line.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use clap::{Arg, Command};

use super::connection::HEADING;

const HEAD: &str = "# The command line

Generated from the program: UPDATE_DOCS=1 cargo test --lib reference

`windlass COMMAND --help` and the man pages (`windlass man --dir FOLDER`) show the same text. With the program as `kubectl-windlass` on
`PATH`, each command is also `kubectl windlass COMMAND`. See [verbs](verbs.md) for the rights of each command,
[in the terminal](terminal.md) for the output of `status`, `plan`, `explain`, `diff` and `logs`, and [Temporal](temporal.md) for the
commands of a build with the feature `temporal`.
";

/// Escapes text for HTML tags and table cells.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('|', "\\|");
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// A table row: the flag, its default, and its help.
fn row(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str);
    let takes = arg.get_action().takes_values();
    let values: Vec<&str> = if takes { values.collect() } else { Vec::new() };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let mut written = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    for value in &values {
        let before = if written.is_empty() { "" } else { " " };
        let _ = write!(written, "{before}{value}");
    }
    if arg.is_positional() && arg.get_num_args().is_some_and(|range| range.max_values() > 1) {
        written.push_str(" …");
    }
    let help = arg.get_help().unwrap_or_else(|| panic!("{written} has no help")).to_string();
    // A default that depends on something is stated in the help.
    let (help, stated) = match help
        .rsplit_once(" [default: ")
        .or_else(|| help.rsplit_once(" [default]").map(|(a, _)| (a, "this]")))
    {
        Some((help, default)) => (help.to_owned(), Some(default.trim_end_matches(']').to_owned())),
        None => (help, None),
    };
    let own = arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy()));
    let default = if takes { own.collect::<Vec<_>>().join(" ") } else { String::new() };
    let default = if default.is_empty() { stated.unwrap_or_default() } else { default };
    let possible = arg.get_possible_values();
    let possible = possible.iter().filter(|_| takes).map(|value| format!("`{}`", value.get_name()));
    let possible = possible.collect::<Vec<_>>().join(", ");
    let possible = if possible.is_empty() { possible } else { format!(": {possible}") };
    format!("| `{written}` | {} | {}{possible} |\n", escaped(&default), escaped(&help))
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let rows: String = args.map(row).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("\n| argument | default | what it is |\n|---|---|---|\n{rows}")
    }
}

fn is_of_cluster(arg: &Arg) -> bool {
    arg.get_help_heading() == Some(HEADING)
}

/// The command's own arguments, without the global ones.
fn own(command: &Command) -> impl Iterator<Item = &Arg> {
    let mut args: Vec<&Arg> = command.get_arguments().filter(|arg| arg.get_id() != "help").collect();
    args.sort_by_key(|arg| !arg.is_positional());
    args.into_iter().filter(|arg| !is_of_cluster(arg) && !arg.is_hide_set())
}

fn section(command: &mut Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let about = command.get_about().unwrap_or_else(|| panic!("{name} has no help")).to_string();
    let usage = command.render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    let mut text = format!("\n## {name}\n\n{}.\n\n```text\n{}\n```\n", escaped(&about), usage.join("\n"));
    text += &table(own(command));
    if command.get_arguments().any(is_of_cluster) {
        text += "\nAnd the [flags of the cluster](#flags-of-the-cluster).\n";
    }
    if let Some(more) = command.get_after_long_help() {
        let _ = write!(text, "\n```text\n{more}\n```\n");
    }
    text
}

fn page() -> String {
    let mut all = crate::command();
    all.build();
    let mut text = HEAD.to_owned();
    let _ = write!(text, "\n```text\n{}\n```\n", all.get_after_long_help().unwrap());
    let cluster =
        table(all.find_subcommand("pause").unwrap().get_arguments().filter(|arg| is_of_cluster(arg)));
    let _ = write!(text, "\n## Flags of the cluster\n{cluster}");
    for command in all.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        // They are listed once, so they have to be the same everywhere.
        let flags: Vec<&Arg> = command.get_arguments().filter(|arg| is_of_cluster(arg)).collect();
        assert!(flags.iter().all(|flag| cluster.contains(&row(flag))), "{}", command.get_name());
        text += &section(command);
    }
    text
}

#[test]
fn command_line_reference_matches_the_program() {
    // It is that of the program as it is built by default.
    if crate::extension::HAS_WORKERS {
        return;
    }
    let file = windlass_harness::root().join("docs/reference/command-line.md");
    let text = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let known = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        known == text,
        "docs/reference/command-line.md is out of date: UPDATE_DOCS=1 cargo test --lib reference"
    );
}

/// The names of the environment variables that source code reads.
fn read_by(code: &str) -> Vec<&str> {
    let marks = ["env::var(\"", "env::var_os(\"", "either(\"", "env(\""];
    let found =
        marks.iter().flat_map(|mark| code.match_indices(mark).map(move |(at, _)| &code[at + mark.len()..]));
    found.filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_environment_variable_is_documented() {
    fn walk(folder: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, into);
            } else {
                into.push(entry);
            }
        }
    }
    let mut files = Vec::new();
    for sources in ["src", "crates/cli/src"] {
        walk(&windlass_harness::root().join(sources), &mut files);
    }
    let mut known = 0;
    for file in files.iter().filter(|file| !file.to_string_lossy().contains("test")) {
        let code = std::fs::read_to_string(file).unwrap();
        let code = code.split("#[cfg(test)]\n").next().unwrap();
        for name in read_by(code).into_iter().filter(|name| !name.is_empty() && !name.starts_with("UPDATE_"))
        {
            let is_told = super::help::OF_ALL.contains(&name.to_uppercase());
            assert!(is_told, "{} reads {name}, which no help mentions", file.display());
            known += 1;
        }
    }
    assert!(known >= 6, "too few are read: {known}");
}
