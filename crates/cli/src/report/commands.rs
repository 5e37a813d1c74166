//! Suggested commands in messages. The operator's messages name a fleet without its namespace, which a person who
//! pastes the command needs.

/// The start of a Windlass command.
const PROGRAM: &str = "windlass ";
/// The kinds that a command may name.
const KINDS: [&str; 4] = ["nd/", "sn/", "ssr/", "wwd/"];

/// Adds the namespace to each command in a sentence that names an object without one.
#[must_use]
pub fn in_namespace(sentence: &str, namespace: &str) -> String {
    let mut out = String::new();
    let mut rest = sentence;
    while let Some(at) = rest.find(PROGRAM) {
        let (before, command) = rest.split_at(at);
        out.push_str(before);
        let end = named(command).unwrap_or(PROGRAM.len());
        let (words, after) = command.split_at(end);
        out.push_str(words);
        if end > PROGRAM.len() && !after.starts_with(" -n ") {
            out.push_str(" -n ");
            out.push_str(namespace);
        }
        rest = after;
    }
    out + rest
}

/// The end of the object that a command names, such as `windlass approve nd/db`.
fn named(command: &str) -> Option<usize> {
    let (verb, _) = command[PROGRAM.len()..].split_once(' ')?;
    let is_verb = !verb.is_empty() && verb.chars().all(|c| c.is_ascii_lowercase());
    let start = PROGRAM.len() + verb.len() + 1;
    let object = command.get(start..).filter(|_| is_verb)?;
    let kind = KINDS.into_iter().find(|kind| object.starts_with(kind))?;
    let name = &object[kind.len()..];
    let length = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(name.len());
    (length > 0).then_some(start + kind.len() + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_names_an_object_names_its_namespace_and_others_stay() {
        for (sentence, expected) in [
            (
                "hook go: waiting for a person: windlass approve nd/db, or the annotation windlass.dev/approve=1-2",
                "hook go: waiting for a person: windlass approve nd/db -n shop, or the annotation windlass.dev/approve=1-2",
            ),
            (
                "windlass retry nd/db tries it again, windlass skip goes on without it",
                "windlass retry nd/db -n shop tries it again, windlass skip goes on without it",
            ),
            (
                "windlass promote nd/db -n other moves traffic",
                "windlass promote nd/db -n other moves traffic",
            ),
            ("see windlass history", "see windlass history"),
            ("windlass approve wwd/orders", "windlass approve wwd/orders -n shop"),
            ("windlass retry ssr/ledger", "windlass retry ssr/ledger -n shop"),
            ("as windlass ", "as windlass "),
            ("windlass retry nd/NAME…", "windlass retry nd/NAME -n shop…"),
            ("waiting for db-2", "waiting for db-2"),
        ] {
            assert_eq!(in_namespace(sentence, "shop"), expected);
        }
    }
}
