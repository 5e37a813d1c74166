//! Usage errors, in one sentence.

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};

/// The exit code of a usage error: 2, except for `plan`, where 2 means that something would change. There it is 1, as
/// for a refusal and as in `terraform plan -detailed-exitcode`, so that a script with a typo does not read it as a
/// change.
pub fn code() -> u8 {
    if std::env::args_os().nth(1).is_some_and(|command| command == "plan") { 1 } else { 2 }
}

/// Prints requested help or version, or the usage error in a sentence. Returns the exit code: 0, or that of a usage
/// error.
pub fn report(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // An error here means that the output is closed.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    eprintln!("windlass: {}", sentence(error));
    ExitCode::from(code())
}

/// Clap's message in one line, without the synopsis.
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let said = text.split("Usage:").next().and_then(|text| text.split("For more information").next());
    let paragraphs = said.unwrap_or_default().trim().trim_start_matches("error: ").split("\n\n");
    let joined = paragraphs.map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let sentence = joined.collect::<Vec<_>>().join("; ");
    // Windlass's own errors have no synopsis: they contain the correct form.
    if error.get(ContextKind::Usage).is_some() { sentence + "; see --help" } else { sentence }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use clap::FromArgMatches;

    use super::*;
    use crate::extension::HAS_WORKERS;

    fn sentence_for(line: &str) -> String {
        let mut command = crate::command();
        let read = command.try_get_matches_from_mut(line.split_whitespace());
        let error = read.and_then(|matches| crate::Arguments::from_arg_matches(&matches)).unwrap_err();
        sentence(&error.format(&mut command))
    }

    /// The windlass commands in the shell blocks of a page, without comments and shell syntax.
    fn commands(page: &str) -> Vec<String> {
        let (mut found, mut in_shell) = (Vec::new(), false);
        for line in page.lines() {
            if let Some(kind) = line.trim_start().strip_prefix("```") {
                in_shell = !in_shell && matches!(kind.trim(), "sh" | "console" | "bash");
                continue;
            }
            let line = line.split(" #").next().unwrap_or_default();
            let parts = line.split("&&").flat_map(|part| part.split('|')).map(str::trim).filter(|_| in_shell);
            for part in parts {
                let part = part.trim_start_matches("$ ").replace("kubectl windlass ", "windlass ");
                let part = part
                    .replace("cargo run --release -- ", "windlass ")
                    .replace("cargo run -- ", "windlass ");
                // Needs the feature `temporal`.
                let is_of_workers = part.contains("--temporal") || part.contains("wwd");
                let is_here = HAS_WORKERS || !is_of_workers;
                if part.starts_with("windlass ") && !part.contains('<') && is_here {
                    found.push(part);
                }
            }
        }
        found
    }

    /// The words of a command; quotes group words.
    fn words(command: &str) -> Vec<String> {
        let quoted = command.split(['"', '\'']).enumerate();
        let words = quoted.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn documented_commands_are_valid() {
        let root = windlass_harness::root();
        let folders =
            ["tutorial", "how-to", "reference", "explanation", "dev"].map(|of| root.join("docs").join(of));
        let folders = folders.into_iter().chain([root.join("docs"), root.join("deploy")]);
        let pages = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let pages = pages.map(|entry| entry.unwrap().path()).chain([root.join("README.md")]);
        let mut checked = 0;
        for page in pages.filter(|page| page.extension().is_some_and(|ext| ext == "md")) {
            for line in commands(&std::fs::read_to_string(&page).unwrap()) {
                let mut command = crate::command();
                let read = command.try_get_matches_from_mut(words(&line));
                let read = read.and_then(|matches| crate::Arguments::from_arg_matches(&matches));
                let is_wrong = read.err().filter(clap::error::Error::use_stderr);
                assert!(is_wrong.is_none(), "{}: {line}: {}", page.display(), is_wrong.unwrap());
                checked += 1;
            }
        }
        assert!(checked > 10, "so few commands are in the documentation: {checked}");
    }

    /// The commands of Windlass that reports offer, as their sources have them, with something in each placeholder.
    fn offered() -> Vec<String> {
        let mut found = Vec::new();
        for (is_built, source) in [
            (true, include_str!("report/chain.rs")),
            (true, include_str!("report/fleet.rs")),
            (HAS_WORKERS, include_str!("extension/temporal/chain.rs")),
        ] {
            let code = source.split("#[cfg(test)]").next().unwrap_or_default();
            let target = if source.contains("wwd/{") { "wwd/orders -n shop" } else { "nd/db -n shop" };
            for literal in code.split("format!(\"windlass ").skip(1).filter(|_| is_built) {
                let words = literal.split('"').next().unwrap_or_default();
                let mut command = format!("windlass {}", words.replace("{target}", target));
                while let Some((start, end)) = command.find('{').zip(command.find('}')) {
                    command.replace_range(start..=end, "x");
                }
                found.push(command);
            }
        }
        found
    }

    #[test]
    fn commands_offered_by_reports_are_valid() {
        let commands = offered();
        for line in &commands {
            let mut command = crate::command();
            let read = command.try_get_matches_from_mut(words(line));
            let read = read.and_then(|matches| crate::Arguments::from_arg_matches(&matches));
            assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
        }
        assert!(commands.len() > 15, "so few commands were found: {commands:?}");
        assert!(commands.iter().any(|line| line.starts_with("windlass version ")), "{commands:?}");
    }

    #[tokio::test]
    async fn invalid_usage_is_detected_before_connecting() {
        use crate::{Command, Failure, adopt, explain, plan, status, verbs};
        for line in [
            "windlass explain",
            "windlass logs",
            "windlass logs sn/db-0",
            "windlass diff sn/db-0",
            "windlass status sn/db-0",
            "windlass wait",
            "windlass wait sn",
            "windlass plan",
            "windlass plan sn/db-0 --image a:2",
            "windlass plan nd/db -f file",
            "windlass history sn/db-0",
            "windlass adopt nd/db",
        ] {
            let read = crate::command().try_get_matches_from_mut(line.split_whitespace());
            let read = crate::Arguments::from_arg_matches(&read.unwrap()).unwrap();
            let ended = match read.command {
                Command::Explain(arguments) => explain::explain(arguments).await,
                Command::Logs(arguments) => explain::logs::logs(arguments).await,
                Command::Diff(arguments) => explain::diff::diff(arguments).await,
                Command::Status(arguments) => status::status(arguments).await.map(drop),
                Command::Wait(arguments) => status::wait(arguments).await.map(drop),
                Command::Plan(arguments) => plan::plan(arguments).await.map(drop),
                Command::History(arguments) => verbs::history(arguments).await,
                Command::Adopt(arguments) => adopt::adopt(arguments).await,
                _ => Ok(()),
            };
            assert!(matches!(ended, Err(Failure::Usage(_))), "{line}: {ended:?}");
        }
    }

    #[test]
    fn usage_errors_are_one_sentence_with_a_hint() {
        let no_kind = if HAS_WORKERS {
            "\"nosuch\" has no kind; write nd/nosuch, sn/nosuch, ssr/nosuch or wwd/nosuch"
        } else {
            "\"nosuch\" has no kind; write nd/nosuch, sn/nosuch or ssr/nosuch"
        };
        for (line, expected) in [
            (
                "windlass pause",
                "the following required arguments were not provided: <TYPE/NAME>...; see --help",
            ),
            ("windlass status nosuch", no_kind),
            ("windlass pause nd", "nd needs a name; write nd/NAME, or nd --all for all of them"),
        ] {
            assert_eq!(sentence_for(line), expected, "{line}");
        }
        for (line, words) in [
            ("windlass stauts", vec!["unrecognized subcommand 'stauts'", "'status'", "see --help"]),
            (
                "windlass pause nd/db --reson x",
                vec!["unexpected argument '--reson' found", "'--reason'", "see --help"],
            ),
            ("windlass status -o xml", vec!["invalid value 'xml'", "[possible values: json, yaml, name]"]),
            ("windlass operator --concurrency 0", vec!["invalid value '0'", "0 is not in 1..=1024"]),
        ] {
            let sentence = sentence_for(line);
            assert!(
                words.iter().all(|word| sentence.contains(word)) && !sentence.contains('\n'),
                "{line}: {sentence}"
            );
        }
    }
}
