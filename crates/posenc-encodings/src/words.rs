//! Enums whose variants are words of the command line and of the JSON.

use std::str::FromStr;

/// A word of the command line and of the JSON.
pub trait Word: Copy + FromStr<Err = UnknownWord> + Send + Sync + 'static {
    /// Every word, in the order of the documentation.
    const ALL: &'static [Self];

    /// How it is spelled.
    fn name(self) -> &'static str;

    /// What it means, as a phrase without a full stop.
    fn about(self) -> &'static str;
}

/// Declares an enum with its words: [`Word`], `Display`, `FromStr` and `Serialize`.
///
/// The doc comment of a variant is what [`Word::about`] says; `default` names the variant that
/// applies when nothing was given.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $what:literal $name:ident {
        $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+
    } $(default $default:ident)?) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        })?

        impl $crate::words::Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            fn about(self) -> &'static str {
                let about = match self {
                    $(Self::$variant => concat!($($doc),+),)+
                };
                about.trim().trim_end_matches('.')
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::words::Word::name(*self))
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                $crate::words::find($what, word)
            }
        }

        impl $crate::serde::Serialize for $name {
            fn serialize<S: $crate::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str($crate::words::Word::name(*self))
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let word = <std::string::String as $crate::serde::Deserialize>::deserialize(from)?;
                word.parse().map_err($crate::serde::de::Error::custom)
            }
        }
    };
}

/// The word that is spelled so.
pub fn find<T: Word>(what: &'static str, word: &str) -> Result<T, UnknownWord> {
    let found = T::ALL.iter().copied().find(|w| w.name() == word);
    found.ok_or_else(|| UnknownWord {
        what,
        word: word.to_owned(),
        known: T::ALL.iter().map(|w| w.name()).collect(),
    })
}

/// A word that names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is no {what}; known are {}", known.join(", "))]
pub struct UnknownWord {
    /// What was looked for.
    pub what: &'static str,
    /// The word.
    pub word: String,
    /// The words that there are.
    pub known: Vec<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn words_are_read_written_and_explained() {
        assert_eq!("half".parse(), Ok(Layout::Half));
        assert_eq!(Layout::Half.to_string(), "half");
        assert_eq!(serde_json::to_string(&Layout::Half).unwrap(), "\"half\"");
        assert!(Layout::Half.about().starts_with("Pairs"));
        assert!(!Layout::Half.about().ends_with('.'));
    }

    #[test]
    fn words_that_name_nothing_are_refused_with_the_known_ones() {
        for word in ["", "Half", "half ", "neox"] {
            let error = word.parse::<Layout>().unwrap_err().to_string();
            let want = format!("{word:?} is no layout; known are half, interleaved");
            assert_eq!(error, want);
        }
    }
}
