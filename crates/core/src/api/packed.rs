//! The form in which the caches hold labels and annotations: all strings in one allocation. A map takes a kilobyte for
//! a handful of strings, and every object has two maps.

use std::collections::BTreeMap;

/// Texts by key, sorted by key.
#[derive(Clone, Default, Eq, Hash, PartialEq)]
pub struct PackedTexts {
    text: Box<str>,
    /// The end of each key and each value in `text`.
    ends: Box<[u32]>,
}

impl PackedTexts {
    /// The text under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// True if there is a text under a key.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// True if there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Each key with its text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut from = 0;
        self.ends.as_chunks::<2>().0.iter().map(move |[key, value]| {
            let (key, value) = (*key as usize, *value as usize);
            let pair = (&self.text[from..key], &self.text[key..value]);
            from = value;
            pair
        })
    }
}

impl<K: AsRef<str> + Ord, V: AsRef<str>> FromIterator<(K, V)> for PackedTexts {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs: BTreeMap<K, V> = pairs.into_iter().collect();
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(2 * pairs.len()));
        for (key, value) in &pairs {
            for part in [key.as_ref(), value.as_ref()] {
                text.push_str(part);
                // The API server accepts no object of this size.
                ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
            }
        }
        Self { text: text.into_boxed_str(), ends: ends.into_boxed_slice() }
    }
}

impl std::fmt::Debug for PackedTexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_texts_look_up_like_a_map_in_any_order() {
        let pairs = [("b", "2"), ("a", ""), ("", "none"), ("ab", "ü\0x")];
        let packed: PackedTexts = pairs.into_iter().collect();
        for (key, value) in pairs {
            assert_eq!(packed.get(key), Some(value), "{key}");
        }
        assert!(packed.get("x").is_none() && packed.get("2").is_none() && packed.len() == 4);
        assert_eq!(packed.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["", "a", "ab", "b"]);
        assert_eq!(packed, pairs.into_iter().rev().collect());
        assert_ne!(packed, [("b", "2"), ("a", "")].into_iter().collect());
        assert!(PackedTexts::default().is_empty() && !packed.is_empty());
    }
}
