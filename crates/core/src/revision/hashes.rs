//! The hashes of one content under every algorithm that this version of Windlass knows. A recorded hash is compared
//! under its own algorithm, so a new algorithm changes no recorded hash and restarts nothing.

use super::hash::HashVersion;

/// The hashes of one content: rollout hashes, or pod template hashes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hashes<H> {
    newest: H,
    /// Those of earlier algorithms, the newest first.
    older: Vec<H>,
}

impl<H> From<(H, Vec<H>)> for Hashes<H> {
    fn from((newest, older): (H, Vec<H>)) -> Self {
        Self { newest, older }
    }
}

impl<H> From<Hashes<H>> for (H, Vec<H>) {
    fn from(hashes: Hashes<H>) -> Self {
        (hashes.newest, hashes.older)
    }
}

impl<H: Clone + PartialEq> Hashes<H> {
    /// The hashes of the content that `under` hashes.
    #[must_use]
    pub fn of(under: impl Fn(HashVersion) -> H) -> Self {
        let older = HashVersion::known().iter().rev().skip(1);
        Self { newest: under(HashVersion::newest()), older: older.map(|version| under(*version)).collect() }
    }

    /// The hash under the newest algorithm, for content that was never recorded.
    #[must_use]
    pub fn newest(&self) -> &H {
        &self.newest
    }

    /// All of them, the newest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &H> {
        std::iter::once(&self.newest).chain(&self.older)
    }

    fn are_of_one_algorithm(&self) -> bool {
        self.older.is_empty()
    }

    /// True if a recorded hash is that of this content, under the algorithm of that hash.
    #[must_use]
    pub fn is(&self, recorded: &H) -> bool {
        self.iter().any(|hash| hash == recorded)
    }

    /// The hash that identifies this content: the recorded one, the oldest if several are recorded, and the newest if
    /// none is.
    #[must_use]
    pub fn called(&self, is_recorded: impl Fn(&H) -> bool) -> &H {
        if self.are_of_one_algorithm() {
            return self.newest();
        }
        self.iter().rev().find(|hash| is_recorded(hash)).unwrap_or(self.newest())
    }

    /// The first of some recorded hashes that is of this content, or the newest hash if none of them is.
    #[must_use]
    pub fn first_of(&self, recorded: impl IntoIterator<Item = H>) -> H {
        if self.are_of_one_algorithm() {
            return self.newest().clone();
        }
        recorded.into_iter().find(|hash| self.is(hash)).unwrap_or_else(|| self.newest().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PodTemplateHash;
    use crate::revision::hash::with_second_version;

    fn hash(text: &str) -> PodTemplateHash {
        text.into()
    }

    fn hashes(content: &str) -> Hashes<PodTemplateHash> {
        Hashes::of(|version| hash(&format!("{version:?}:{content}").to_lowercase()))
    }

    #[test]
    fn with_one_algorithm_a_content_has_one_hash_and_nobody_is_asked_what_is_recorded() {
        let only = hashes("a");
        assert_eq!(only.iter().collect::<Vec<_>>(), ["v1:a"]);
        assert_eq!(*only.called(|_| panic!("not asked")), "v1:a");
        assert_eq!(only.first_of([hash("v1:b")]), "v1:a");
        assert!(only.is(&hash("v1:a")) && !only.is(&hash("v1:b")));
    }

    #[test]
    fn a_recorded_hash_is_compared_under_its_own_algorithm_and_goes_on_being_used() {
        with_second_version(|| {
            let both = hashes("a");
            assert_eq!(both.iter().collect::<Vec<_>>(), ["v2:a", "v1:a"]);
            assert!(
                both.is(&hash("v1:a"))
                    && both.is(&hash("v2:a"))
                    && !both.is(&hash("v1:b"))
                    && !both.is(&hash("v3:a"))
            );
            assert_eq!(*both.called(|hash| *hash == "v1:a"), "v1:a");
            assert_eq!(*both.called(|_| true), "v1:a", "what is old is kept");
            assert_eq!(*both.called(|_| false), "v2:a", "what is new has a new one");
            assert_eq!(both.first_of(["v1:b", "v2:a", "v1:a"].map(hash)), "v2:a");
            assert_eq!(both.first_of([hash("v1:b")]), "v2:a");
        });
    }
}
