//! Commands as they have to be typed by whoever reads them: under the name by which this program was called, and with the flags
//! that said which cluster is meant. Without those a command that is pasted would reach another.

/// Programs whose commands are told of: both take the flags of a connection.
const PROGRAMS: [&str; 2] = ["windlass ", "kubectl "];
/// What stands where flags may follow: a command that names an object names its namespace.
const NAMESPACE: &str = " -n ";

/// Who reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Typed {
    /// `kubectl windlass`, where that is what was typed.
    program: Option<&'static str>,
    /// The flags, each after a blank.
    flags: String,
}

impl Typed {
    /// Whoever typed nothing of the kind: commands stay as they are told.
    pub const PLAIN: Self = Self { program: None, flags: String::new() };

    /// Whoever typed these flags, each after a blank; as a plugin of kubectl or not.
    #[must_use]
    pub fn of(is_plugin: bool, flags: String) -> Self {
        Self { program: is_plugin.then_some("kubectl windlass "), flags }
    }

    /// A text with its commands as they are typed here.
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

    /// The words after the program, with the flags behind the namespace.
    fn flagged(&self, command: &str) -> String {
        let Some(at) = command.find(NAMESPACE).filter(|_| !self.flags.is_empty()) else {
            return command.to_owned();
        };
        let name = &command[at + NAMESPACE.len()..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let end = at + NAMESPACE.len() + name.find(|c| !is_part(c)).unwrap_or(name.len());
        format!("{}{}{}", &command[..end], self.flags, &command[end..])
    }
}

/// Where the next command begins, and of which program.
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

/// A word as a shell reads it as one.
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
    fn a_command_goes_where_the_one_went_that_told_of_it() {
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
                "see windlass history; windlass.dev/approve",
                "see windlass history; windlass.dev/approve",
                "see windlass history; windlass.dev/approve",
                "see kubectl windlass history; windlass.dev/approve",
            ),
            ("db-0 waits", "db-0 waits", "db-0 waits", "db-0 waits"),
        ] {
            let said = [&Typed::PLAIN, &there, &plugin].map(|typed| typed.text(text));
            assert_eq!(said, [by_default, over_there, of_plugin]);
        }
    }

    #[test]
    fn a_shell_reads_a_flag_as_it_was_given() {
        assert_eq!(quoted("kind-staging"), "kind-staging");
        assert_eq!(quoted("arn:aws:eks:eu-1:1:cluster/x"), "arn:aws:eks:eu-1:1:cluster/x");
        assert_eq!(quoted("my cluster's"), r"'my cluster'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
