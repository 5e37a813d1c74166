//! Enums for closed sets of API values, such as reasons and phases.

/// Declares an enum of API values from one table, so that none can be missing from `ALL`. The text of a variant is its
/// name, or the literal that follows it. A variant equals its text: objects store these values as text, since another
/// version may have written a value that this version does not know.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    (@word $variant:ident) => { stringify!($variant) };
    (@word $variant:ident $word:literal) => { $word };
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident $(= $word:literal)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        $visibility enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The value's text.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $crate::words!(@word $variant $($word)?),)*
                }
            }

            /// The variant with this text; `None` if this version does not know it.
            #[must_use]
            pub fn of(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
            }
        }

        impl From<$name> for &'static str {
            fn from(word: $name) -> Self {
                word.as_str()
            }
        }

        impl PartialEq<$name> for str {
            fn eq(&self, other: &$name) -> bool {
                *self == *other.as_str()
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                *self == *other.as_str()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    words! {
        /// Two words.
        enum Two {
            First,
            Second = "2nd",
        }
    }

    #[test]
    fn a_word_is_equal_to_its_text_and_is_found_by_it() {
        assert_eq!(Two::ALL, [Two::First, Two::Second]);
        assert_eq!(
            Two::ALL.iter().map(|word| Two::of(word.as_str())).collect::<Option<Vec<_>>>(),
            Some(Two::ALL.to_vec())
        );
        assert_eq!(Two::of("third"), None);
        assert_eq!(String::from(Two::Second), Two::Second);
        assert_ne!(String::from("First"), Two::Second);
        assert_eq!(format!("{} {}", Two::First, Two::Second), "First 2nd");
    }
}
