//! Shell completion, with the names of the cluster's objects, and man pages.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::CompletionCandidate;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use serde_json::Value;

use super::connection::{Cluster, ClusterFlags};
use super::kind::Kind;

/// The environment variable with which a shell requests completions.
const COMPLETION_VARIABLE: &str = "COMPLETE";
/// How long a key press waits for the API server.
const PATIENCE: Duration = Duration::from_secs(2);

/// The arguments of `windlass completion`.
#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The arguments of `windlass man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write a page for each command into this folder [default: print the first page]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Answers a shell's request for completions, then exits; returns if there is none.
pub fn answer(command: fn() -> clap::Command) {
    clap_complete::CompleteEnv::with_factory(command).var(COMPLETION_VARIABLE).complete();
}

/// The script that registers completions with a shell, for the name under which this program was called.
pub fn script(arguments: &CompletionArgs, name: &str) -> Result<(), String> {
    let shell: &dyn EnvCompleter = match arguments.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut text = Vec::new();
    shell
        .write_registration(COMPLETION_VARIABLE, name, name, name, &mut text)
        .map_err(|error| format!("cannot write the script: {error}"))?;
    super::print(&String::from_utf8_lossy(&text))
}

/// Man pages of the command and its subcommands.
pub fn man(arguments: ManArgs, command: clap::Command) -> Result<(), String> {
    let Some(folder) = arguments.dir else {
        let mut text = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut text).and_then(|()| text.flush());
        rendered.map_err(|error| format!("cannot write the page: {error}"))?;
        return super::print(&String::from_utf8_lossy(&text));
    };
    let written = std::fs::create_dir_all(&folder).and_then(|()| clap_mangen::generate_to(command, &folder));
    written.map_err(|error| format!("--dir {}: {error}", folder.display()))
}

/// Candidates for a word that names an object.
pub fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let words = typed();
    let (kind, short, slash) = match current.split_once('/') {
        Some((word, _)) => match Kind::called(word) {
            Some(kind) => (kind, word.to_owned(), "/"),
            None => return Vec::new(),
        },
        // After a type come names.
        None => match words.iter().find_map(|word| Kind::called(word)) {
            Some(kind) if !Kind::all().any(|kind| current.starts_with(kind.short())) => {
                (kind, String::new(), "")
            }
            _ => {
                let words = Kind::all().map(|kind| format!("{}/", kind.short()));
                let words = words.filter(|word| word.starts_with(current));
                return words.map(CompletionCandidate::new).collect();
            }
        },
    };
    let names = names(kind, &ClusterFlags::of_words(&words)).into_iter();
    let candidates = names.map(|name| format!("{short}{slash}{name}"));
    candidates.filter(|word| word.starts_with(current)).map(CompletionCandidate::new).collect()
}

/// The names of a kind's objects; empty on any error or time-out, since completion has no place to report them.
fn names(kind: Kind, flags: &ClusterFlags) -> Vec<String> {
    within_patience(flags, async |cluster| {
        let listed = kind.list(&cluster).await?;
        let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        Ok(listed.iter().filter_map(name).collect())
    })
}

/// The same by another way of listing, of the cluster that the typed words name.
pub fn listed(list: impl AsyncFn(Cluster) -> Result<Vec<String>, String>) -> Vec<String> {
    within_patience(&ClusterFlags::of_words(&typed()), list)
}

fn within_patience(
    flags: &ClusterFlags,
    list: impl AsyncFn(Cluster) -> Result<Vec<String>, String>,
) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let listed = runtime.block_on(async {
        let listing = async { list(flags.cluster().await?).await };
        tokio::time::timeout(PATIENCE, listing).await
    });
    listed.ok().and_then(Result::ok).unwrap_or_default()
}

/// The words of the command line that is completed.
fn typed() -> Vec<String> {
    std::env::args().skip_while(|word| word != "--").skip(1).collect()
}
