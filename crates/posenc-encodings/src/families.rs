//! The families of encodings, one file each, and their registry.

pub mod axial;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use crate::describe::Description;
use crate::family::{Entry, Family};
use crate::params::Params;
use crate::words::{UnknownWord, Word};

/// Declares the file of each family and the words of [`Kind`], in the order of the documentation.
macro_rules! families {
    ($($module:ident: $variant:ident,)+) => {
        $(pub mod $module;)+

        /// A kind of positional encoding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            /// No encoding at all; a target of a rewrite only.
            None,
            $(
                #[doc = concat!("The family of [`", stringify!($module), "`].")]
                $variant,
            )+
            /// A family outside this crate.
            Custom(Custom),
            /// A position-dependent term that no family fits; found, not written.
            Unknown,
        }

        impl Kind {
            /// What the family declares; `None` for no encoding and an unknown one.
            pub fn family(self) -> Option<&'static Family> {
                match self {
                    Self::None | Self::Unknown => None,
                    Self::Custom(custom) => Some(custom.0),
                    $(Self::$variant => Some(&$module::FAMILY),)+
                }
            }
        }

        impl Word for Kind {
            const ALL: &'static [Self] = &[Self::None, $(Self::$variant,)+ Self::Unknown];

            fn name(self) -> &'static str {
                match self {
                    Self::None => "none",
                    Self::Unknown => "unknown",
                    Self::Custom(custom) => custom.0.word,
                    $(Self::$variant => $module::FAMILY.word,)+
                }
            }

            fn about(self) -> &'static str {
                match self {
                    Self::None => "No encoding at all; a target of a rewrite only",
                    Self::Unknown => {
                        "A position-dependent term that no family fits; found, not written"
                    }
                    Self::Custom(custom) => custom.0.about,
                    $(Self::$variant => $module::FAMILY.about,)+
                }
            }
        }
    };
}

families! {
    sinusoidal: Sinusoidal,
    learned: Learned,
    rope: Rope,
    alibi: Alibi,
    t5_bias: T5Bias,
    relative_bias: RelativeBias,
    kerple: Kerple,
    fire: Fire,
    shaw: Shaw,
    transformer_xl: TransformerXl,
    disentangled: Disentangled,
    conv: Conv,
}

impl Kind {
    /// The parameters of an encoding of this kind, in one line for people.
    pub fn describe(self, params: &Params) -> String {
        let mut description = Description::of(params);
        if let Some(family) = self.family() {
            (family.describe)(&mut description);
        }
        description.end()
    }
}

impl Kind {
    /// The kind of a family in the registry, by its word.
    pub fn of(word: &str) -> Self {
        let mut all = Self::ALL.iter().copied();
        all.find(|kind| kind.name() == word)
            .unwrap_or(Self::Unknown)
    }

    /// The kind of a family: [`Kind::Custom`] for one that is not in the registry, whatever its
    /// word.
    pub fn of_family(family: &'static Family) -> Self {
        let registered = |kind: &Self| kind.family().is_some_and(|own| std::ptr::eq(own, family));
        let mut all = Self::ALL.iter().copied();
        all.find(registered).unwrap_or(Self::Custom(Custom(family)))
    }

    /// The kinds that a rewrite can aim at.
    pub fn targets() -> impl Iterator<Item = Self> {
        let written = |kind: &Self| match kind.family() {
            Some(family) => !matches!(family.entry, Entry::FoundOnly),
            None => *kind == Self::None,
        };
        Self::ALL.iter().copied().filter(written)
    }

    /// Whether it is added to the embeddings, before all layers of a stack.
    pub fn is_absolute(self) -> bool {
        let family = self.family();
        family.is_some_and(|family| matches!(family.entry, Entry::InputTerm(_)))
    }
}

/// A family outside this crate, compared by its word.
#[derive(Clone, Copy, Debug)]
pub struct Custom(&'static Family);

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.0.word == other.0.word
    }
}

impl Eq for Custom {}

impl PartialOrd for Custom {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Custom {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.word.cmp(other.0.word)
    }
}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.word.hash(state);
    }
}

/// Every family, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Family> {
    Kind::ALL.iter().filter_map(|kind| kind.family())
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Kind {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        crate::words::find("kind of encoding", word)
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = <std::borrow::Cow<'_, str>>::deserialize(from)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}
