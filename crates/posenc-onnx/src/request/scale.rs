//! The words for a scaling: laws of RoPE, and what becomes of tables.

use std::fmt;
use std::str::FromStr;

use posenc_encodings::laws::LawName;
use posenc_encodings::resize::Resizing;
use posenc_encodings::words::{UnknownWord, Word, find};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How an encoding is stretched.
///
/// ```
/// # use posenc_onnx::request::{LawName, ScaleType};
/// assert_eq!("yarn".parse(), Ok(ScaleType::Law(LawName::Yarn)));
/// assert_eq!(ScaleType::from(LawName::Linear).to_string(), "linear");
/// assert!("jarn".parse::<ScaleType>().unwrap_err().to_string().contains("yarn"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScaleType {
    /// The plain encoding.
    None,
    /// A law of RoPE. `linear` resizes tables too.
    Law(LawName),
    /// A table resized by cubic convolution.
    Cubic,
    /// A table repeated.
    Tile,
    /// A table extended by Su's hierarchical decomposition.
    Hierarchical,
    /// A table cut off.
    Truncate,
}

/// The words of tables, after those of laws.
const TABLES: [ScaleType; 4] = [
    ScaleType::Cubic,
    ScaleType::Tile,
    ScaleType::Hierarchical,
    ScaleType::Truncate,
];

const COUNT: usize = 1 + LawName::ALL.len() + TABLES.len();

/// The plain encoding, the laws, the words of tables.
const ALL: [ScaleType; COUNT] = {
    let mut all = [ScaleType::None; COUNT];
    let mut i = 0;
    while i < LawName::ALL.len() {
        all[1 + i] = ScaleType::Law(LawName::ALL[i]);
        i += 1;
    }
    let mut i = 0;
    while i < TABLES.len() {
        all[1 + LawName::ALL.len() + i] = TABLES[i];
        i += 1;
    }
    all
};

impl Word for ScaleType {
    const ALL: &'static [Self] = &ALL;

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Law(law) => law.name(),
            Self::Cubic => "cubic",
            Self::Tile => "tile",
            Self::Hierarchical => "hierarchical",
            Self::Truncate => "truncate",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::None => "The plain encoding",
            Self::Law(law) => law.about(),
            Self::Cubic => "A table resized by cubic convolution",
            Self::Tile => "A table repeated",
            Self::Hierarchical => "A table extended by Su's hierarchical decomposition",
            Self::Truncate => "A table cut off",
        }
    }
}

impl ScaleType {
    /// How it resizes a table; `None` where it is of rotations alone.
    pub(crate) fn resizing(self) -> Option<Resizing> {
        self.name().parse().ok()
    }
}

impl From<LawName> for ScaleType {
    fn from(law: LawName) -> Self {
        Self::Law(law)
    }
}

impl fmt::Display for ScaleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ScaleType {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        find("scaling", word)
    }
}

impl Serialize for ScaleType {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ScaleType {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_and_written() {
        for scale in ScaleType::ALL {
            assert_eq!(scale.name().parse(), Ok(*scale));
            assert!(!scale.about().is_empty() && !scale.about().ends_with('.'));
        }
        assert_eq!("linear".parse(), Ok(ScaleType::Law(LawName::Linear)));
        assert_eq!(ScaleType::ALL.first(), Some(&ScaleType::None));
        assert_eq!(ScaleType::ALL.last(), Some(&ScaleType::Truncate));
        let why = "rope".parse::<ScaleType>().unwrap_err().to_string();
        assert!(why.starts_with("\"rope\" is no "), "{why}");
    }
}
