//! What a pod was made for: the annotations that Windlass puts into every pod template that it writes.

use super::PodTemplateHash;
use super::names::{ANNOTATION_IMAGE, ANNOTATION_MAIN_CONTAINER, ANNOTATION_TEMPLATE_HASH};

/// What was asked for where a pod template was written. A pod carries it, so that it can be told from others whatever
/// became of its StatefulSet's revision, or of the images' texts, on the way. It is outside of every hash. A template that
/// somebody edits keeps these words: they are believed only beside a revision that is known to be ours.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
pub struct MadeFor {
    /// The pod template hash.
    pub hash: PodTemplateHash,
    /// The main container's image, as it was asked for; empty where none was.
    pub image: String,
    /// The main container's name.
    pub main_container: String,
}

impl MadeFor {
    /// The annotations that say so.
    #[must_use]
    pub fn to_annotations(&self) -> [(&'static str, &str); 3] {
        let Self { hash, image, main_container } = self;
        [
            (ANNOTATION_TEMPLATE_HASH, hash.as_str()),
            (ANNOTATION_IMAGE, image),
            (ANNOTATION_MAIN_CONTAINER, main_container),
        ]
    }

    /// Reads it off annotations; `None` where they do not say it, as in templates of earlier versions of Windlass.
    #[must_use]
    pub fn read<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let text = |key| annotation(key).map(str::to_owned);
        Some(Self {
            hash: text(ANNOTATION_TEMPLATE_HASH).and_then(PodTemplateHash::recorded)?,
            image: text(ANNOTATION_IMAGE)?,
            main_container: text(ANNOTATION_MAIN_CONTAINER)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_a_pod_was_made_for_is_read_as_it_was_written_or_not_at_all() {
        let made = MadeFor { hash: "v1:a".into(), image: "db:1".to_owned(), main_container: "db".to_owned() };
        let written: BTreeMap<&str, &str> = made.to_annotations().into();
        let read =
            |left_out: &str| MadeFor::read(|key| written.get(key).copied().filter(|_| key != left_out));
        assert_eq!(read(""), Some(made.clone()));
        for (key, _) in made.to_annotations() {
            assert_eq!(read(key), None, "{key} is gone");
        }
    }
}
