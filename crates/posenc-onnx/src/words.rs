//! Enums whose variants are words of the command line and of the JSON.

/// Declares an enum with its words: `ALL`, `name`, `Display`, `FromStr` and `Serialize`.
macro_rules! words {
    ($(#[$meta:meta])* $what:literal $name:ident {
        $($(#[$doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every variant, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The word on the command line and in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.iter().copied().find(|v| v.name() == word);
                found.ok_or_else(|| $crate::words::UnknownWord {
                    what: $what,
                    word: word.to_owned(),
                    known: Self::ALL.iter().map(|v| v.name()).collect(),
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }
    };
}

pub(crate) use words;

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
