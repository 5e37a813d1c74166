//! One content under every algorithm that this version of Windlass knows. What is recorded is compared under the algorithm
//! that recorded it: a new algorithm moves no hash that is written down anywhere, and restarts nothing.

use super::hash::HashVersion;

/// The hashes of one content, the newest first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hashes(Vec<String>);

impl From<Vec<String>> for Hashes {
    fn from(texts: Vec<String>) -> Self {
        Self(texts)
    }
}

impl From<Hashes> for Vec<String> {
    fn from(hashes: Hashes) -> Self {
        hashes.0
    }
}

impl Hashes {
    /// The hashes of the content that `under` hashes.
    #[must_use]
    pub fn of(under: impl Fn(HashVersion) -> String) -> Self {
        Self(HashVersion::known().iter().rev().map(|version| under(*version)).collect())
    }

    /// The one for what was never recorded.
    #[must_use]
    pub fn newest(&self) -> &str {
        self.iter().next().unwrap_or_default()
    }

    /// All of them, the newest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn are_of_one_algorithm(&self) -> bool {
        self.0.len() < 2
    }

    /// Whether a hash that is recorded somewhere is that of this content, under the algorithm that made it.
    #[must_use]
    pub fn is(&self, recorded: &str) -> bool {
        self.iter().any(|hash| hash == recorded)
    }

    /// The hash by which this content is called: the one under which it is recorded, the oldest where it is under several,
    /// and a new one where it is under none.
    #[must_use]
    pub fn called(&self, is_recorded: impl Fn(&str) -> bool) -> &str {
        if self.are_of_one_algorithm() {
            return self.newest();
        }
        self.iter().rev().find(|hash| is_recorded(hash)).unwrap_or(self.newest())
    }

    /// The same, of a few records of which the first that is of this content counts.
    #[must_use]
    pub fn first_of<R: AsRef<str>>(&self, recorded: impl IntoIterator<Item = R>) -> String {
        if self.are_of_one_algorithm() {
            return self.newest().to_owned();
        }
        let found = recorded.into_iter().find(|hash| self.is(hash.as_ref()));
        found.map_or_else(|| self.newest().to_owned(), |hash| hash.as_ref().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::hash::with_second_version;

    fn hashes(content: &str) -> Hashes {
        Hashes::of(|version| format!("{version:?}:{content}").to_lowercase())
    }

    #[test]
    fn with_one_algorithm_a_content_has_one_hash_and_nobody_is_asked_what_is_recorded() {
        let only = hashes("a");
        assert_eq!(only.iter().collect::<Vec<_>>(), ["v1:a"]);
        assert_eq!(only.called(|_| panic!("not asked")), "v1:a");
        assert_eq!(only.first_of(["v1:b"]), "v1:a");
        assert!(only.is("v1:a") && !only.is("v1:b") && !only.is(""));
    }

    #[test]
    fn a_recorded_hash_is_compared_under_its_own_algorithm_and_goes_on_being_used() {
        with_second_version(|| {
            let both = hashes("a");
            assert_eq!(both.iter().collect::<Vec<_>>(), ["v2:a", "v1:a"]);
            assert!(both.is("v1:a") && both.is("v2:a") && !both.is("v1:b") && !both.is("v3:a"));
            assert_eq!(both.called(|hash| hash == "v1:a"), "v1:a");
            assert_eq!(both.called(|_| true), "v1:a", "what is old is kept");
            assert_eq!(both.called(|_| false), "v2:a", "what is new has a new one");
            assert_eq!(both.first_of(["v1:b", "v2:a", "v1:a"]), "v2:a");
            assert_eq!(both.first_of(["v1:b", ""]), "v2:a");
        });
    }
}
