//! What a pod was created for: the annotations that Windlass sets in every pod template that it writes.

use super::PodTemplateHash;
use super::names::{ANNOTATION_IMAGE, ANNOTATION_MAIN_CONTAINER, ANNOTATION_TEMPLATE_HASH};

/// The values that identify what a pod template was written for. The pod carries them, so Windlass can identify it even
/// if the StatefulSet's revision or the image names have changed. They are not part of any hash. An edit by another
/// client keeps these annotations, so Windlass trusts them only on a pod at a revision that it is known to have
/// written.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(any(test, feature = "test-fixtures"), derive(Default))]
pub struct BuiltFor {
    /// The pod template hash.
    pub hash: PodTemplateHash,
    /// The main container's image, as specified; empty if none was.
    pub image: String,
    /// The main container's name.
    pub main_container: String,
}

impl BuiltFor {
    /// The annotations that record these values.
    #[must_use]
    pub fn to_annotations(&self) -> [(&'static str, &str); 3] {
        let Self { hash, image, main_container } = self;
        [
            (ANNOTATION_TEMPLATE_HASH, hash.as_str()),
            (ANNOTATION_IMAGE, image),
            (ANNOTATION_MAIN_CONTAINER, main_container),
        ]
    }

    /// Reads the values from annotations; `None` if some are missing, as in templates of earlier versions of Windlass.
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
    fn made_for_is_read_from_complete_annotations_only() {
        let made =
            BuiltFor { hash: "v1:a".into(), image: "db:1".to_owned(), main_container: "db".to_owned() };
        let written: BTreeMap<&str, &str> = made.to_annotations().into();
        let read =
            |left_out: &str| BuiltFor::read(|key| written.get(key).copied().filter(|_| key != left_out));
        assert_eq!(read(""), Some(made.clone()));
        for (key, _) in made.to_annotations() {
            assert_eq!(read(key), None, "{key} is gone");
        }
    }
}
