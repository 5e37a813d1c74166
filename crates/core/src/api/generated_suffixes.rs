//! Names that the API server generates for objects that are created with `generateName`.

/// Removes the random suffix of generated names from a message. `prefix` is the `generateName`.
#[must_use]
pub fn strip_generated_suffixes(message: &str, prefix: &str) -> String {
    /// How many characters the API server appends.
    const SUFFIX: usize = 5;
    let Some(name) = prefix.strip_suffix('-').filter(|name| !name.is_empty()) else {
        return message.to_owned();
    };
    let mut parts = message.split(prefix);
    let mut sentence = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let made_up = part.len() >= SUFFIX && part.bytes().take(SUFFIX).all(|b| b.is_ascii_alphanumeric());
        sentence.push_str(name);
        if made_up {
            sentence.push_str(&part[SUFFIX..]);
        } else {
            sentence.push('-');
            sentence.push_str(part);
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::strip_generated_suffixes;

    #[test]
    fn generated_suffixes_are_stripped_from_messages() {
        let said = "StatefulSet.apps \"db-0-x7k2p\" is invalid: db-0- stays, and db-0-abcdef loses five";
        let kept = "StatefulSet.apps \"db-0\" is invalid: db-0- stays, and db-0f loses five";
        assert_eq!(strip_generated_suffixes(said, "db-0-"), kept);
        assert_eq!(strip_generated_suffixes("nothing is named", ""), "nothing is named");
    }
}
