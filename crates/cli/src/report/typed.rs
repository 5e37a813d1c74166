//! Suggested commands as the user has to type them: with the program's name and the flags for the cluster that they
//! used. Without those flags a pasted command would reach another cluster.

/// The programs of suggested commands: both take the connection's flags.
const PROGRAMS: [&str; 2] = ["windlass ", "kubectl "];
/// The place for the flags: after the namespace of the object that a command names, or that of the operator.
const NAMESPACES: [&str; 2] = [" -n ", " --operator-namespace "];
/// The command that names no object but connects to a cluster.
const VERSION: &str = "version";

/// How a user types commands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Typed {
    /// `kubectl windlass`, if the program was called as a plugin.
    program: Option<&'static str>,
    /// The flags, each with a leading blank.
    flags: String,
}

impl Typed {
    /// Leaves commands unchanged.
    pub const PLAIN: Self = Self { program: None, flags: String::new() };

    /// For these flags, each with a leading blank; `is_plugin`: called as a kubectl plugin.
    #[must_use]
    pub fn of(is_plugin: bool, flags: String) -> Self {
        Self { program: is_plugin.then_some("kubectl windlass "), flags }
    }

    /// Rewrites the commands in a text.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((at, program)) = next(rest) {
            out.push_str(&rest[..at]);
            let after = &rest[at + program.len()..];
            let end = next(after).map_or(after.len(), |(at, _)| at);
            let (command, more) = after.split_at(end);
            out.push_str(self.program.filter(|_| program == PROGRAMS[0]).unwrap_or(program));
            out.push_str(&self.flagged(command));
            rest = more;
        }
        out + rest
    }

    /// The words after the program, with the flags in their place.
    fn flagged(&self, command: &str) -> String {
        match place_for_flags(command) {
            Some(end) => format!("{}{}{}", &command[..end], self.flags, &command[end..]),
            None => command.to_owned(),
        }
    }
}

/// The place for the flags; `None` if the command is only mentioned, without an object.
fn place_for_flags(command: &str) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let named = NAMESPACES.iter().find_map(|flag| Some(command.find(flag)? + flag.len()));
    if let Some(start) = named {
        return Some(start + command[start..].find(|c| !is_part(c)).unwrap_or(command.len() - start));
    }
    let ends = |rest: &str| !rest.starts_with(is_part);
    command.strip_prefix(VERSION).filter(|rest| ends(rest)).map(|_| VERSION.len())
}

/// The start of the next command, and its program.
fn next(text: &str) -> Option<(usize, &'static str)> {
    let begins = |program: &&'static str| {
        let mut found = text.match_indices(*program).map(|(at, _)| at);
        let at =
            found.find(|at| !text[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || "-/.".contains(c)));
        let is_command =
            |at: &usize| text[at + program.len()..].starts_with(|c: char| c.is_ascii_lowercase());
        at.filter(is_command).map(|at| (at, *program))
    };
    PROGRAMS.iter().filter_map(begins).min()
}

/// Quotes a word for a shell.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+,%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_command_keeps_program_and_cluster_flags() {
        let there = Typed { program: None, flags: " --context staging".to_owned() };
        let plugin = Typed { program: Some("kubectl windlass "), flags: String::new() };
        for (text, by_default, over_there, of_plugin) in [
            (
                "windlass skip nd/db -n shop --task 1-2",
                "windlass skip nd/db -n shop --task 1-2",
                "windlass skip nd/db -n shop --context staging --task 1-2",
                "kubectl windlass skip nd/db -n shop --task 1-2",
            ),
            (
                "kubectl describe pod db-0-0 -n shop",
                "kubectl describe pod db-0-0 -n shop",
                "kubectl describe pod db-0-0 -n shop --context staging",
                "kubectl describe pod db-0-0 -n shop",
            ),
            (
                "hook go failed: windlass retry nd/db -n shop, or windlass skip nd/db -n shop.",
                "hook go failed: windlass retry nd/db -n shop, or windlass skip nd/db -n shop.",
                "hook go failed: windlass retry nd/db -n shop --context staging, or windlass skip nd/db -n shop --context staging.",
                "hook go failed: kubectl windlass retry nd/db -n shop, or kubectl windlass skip nd/db -n shop.",
            ),
            (
                "windlass version --operator-namespace windlass-system",
                "windlass version --operator-namespace windlass-system",
                "windlass version --operator-namespace windlass-system --context staging",
                "kubectl windlass version --operator-namespace windlass-system",
            ),
            (
                "windlass version shows whether one runs",
                "windlass version shows whether one runs",
                "windlass version --context staging shows whether one runs",
                "kubectl windlass version shows whether one runs",
            ),
            (
                "see windlass history; windlass.dev/approve",
                "see windlass history; windlass.dev/approve",
                "see windlass history; windlass.dev/approve",
                "see kubectl windlass history; windlass.dev/approve",
            ),
            ("db-0 waits", "db-0 waits", "db-0 waits", "db-0 waits"),
        ] {
            let texts = [&Typed::PLAIN, &there, &plugin].map(|typed| typed.text(text));
            assert_eq!(texts, [by_default, over_there, of_plugin]);
        }
    }

    #[test]
    fn flag_value_is_quoted_for_the_shell() {
        assert_eq!(quoted("kind-staging"), "kind-staging");
        assert_eq!(quoted("arn:aws:eks:eu-1:1:cluster/x"), "arn:aws:eks:eu-1:1:cluster/x");
        assert_eq!(quoted("my cluster's"), r"'my cluster'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
