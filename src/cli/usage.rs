//! Words that are no command line, answered in one sentence.

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};

/// Prints help and versions that were asked for, and else says in a sentence what is wrong with the words. Returns the exit code:
/// 0, or 2 of wrong usage.
pub fn told(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // What cannot be printed has nobody to read it.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    eprintln!("windlass: {}", sentence(error));
    ExitCode::from(2)
}

/// What clap says in paragraphs: the first of them, its tips, and which page says more.
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let joined = |lines: &str| {
        let words: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        words.join(" ")
    };
    let mut paragraphs = text.split("\n\n");
    let first = joined(paragraphs.next().unwrap_or_default());
    let mut sentence = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    for tip in text.lines().filter_map(|line| line.trim().strip_prefix("tip: ")) {
        sentence.push_str("; ");
        sentence.push_str(tip);
    }
    if let Some(command) = command(error) {
        sentence.push_str("; see ");
        sentence.push_str(&command);
        sentence.push_str(" --help");
    }
    sentence
}

/// The command whose words they are, as `windlass pause`; none where the sentence came without one, and says all.
fn command(error: &clap::Error) -> Option<String> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    let usage = usage.trim().strip_prefix("Usage:")?;
    let is_word =
        |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
    let words: Vec<&str> = usage.split_whitespace().take_while(is_word).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn said(line: &str) -> String {
        let mut command = crate::cli::command();
        let read = command.try_get_matches_from_mut(line.split_whitespace());
        let error = read.and_then(|matches| crate::cli::Arguments::from_arg_matches(&matches)).unwrap_err();
        sentence(&error.format(&mut command))
    }

    #[test]
    fn each_is_one_sentence_that_says_what_to_do() {
        for (line, expected) in [
            (
                "windlass pause",
                "the following required arguments were not provided: <TYPE/NAME>...; see windlass pause --help",
            ),
            ("windlass status nosuch", "\"nosuch\" names no kind; write nd/nosuch or sn/nosuch"),
            ("windlass pause nd", "nd alone names no object; write nd/NAME, or nd --all for each of them"),
        ] {
            assert_eq!(said(line), expected, "{line}");
        }
        for (line, words) in [
            ("windlass stauts", vec!["unrecognized subcommand 'stauts'", "'status'", "see windlass --help"]),
            (
                "windlass pause nd/db --reson x",
                vec!["unexpected argument '--reson' found", "'--reason'", "see windlass pause --help"],
            ),
            ("windlass status -o xml", vec!["invalid value 'xml'", "[possible values: json, yaml, name]"]),
            ("windlass operator --concurrency 0", vec!["invalid value '0'", "0 is not in 1..=1024"]),
        ] {
            let said = said(line);
            assert!(words.iter().all(|word| said.contains(word)) && !said.contains('\n'), "{line}: {said}");
        }
    }
}
