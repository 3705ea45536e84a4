//! Lists of layers: `0-5,7`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of layers, as ranges in order that neither touch nor overlap.
///
/// ```
/// # use posenc_onnx::request::Layers;
/// let layers: Layers = "7,0-3,4".parse()?;
/// assert_eq!(layers, Layers::of([0, 1, 2, 3, 4, 7]));
/// assert_eq!(layers.to_string(), "0-4,7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Layers(Vec<RangeInclusive<usize>>);

impl Layers {
    /// The set of these layers.
    ///
    /// ```
    /// # use posenc_onnx::request::Layers;
    /// assert_eq!(Layers::of([4, 0, 1, 2]).to_string(), "0-2,4");
    /// ```
    pub fn of(layers: impl IntoIterator<Item = usize>) -> Self {
        Self::merge(layers.into_iter().map(|l| l..=l).collect())
    }

    /// Whether the layer is in the set.
    ///
    /// ```
    /// # use posenc_onnx::request::Layers;
    /// let layers: Layers = "0-2,6".parse()?;
    /// assert!(layers.contains(1) && layers.contains(6) && !layers.contains(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contains(&self, layer: usize) -> bool {
        self.0.iter().any(|range| range.contains(&layer))
    }

    /// The first layer of the set that is not below `count`, the number of layers there are.
    ///
    /// ```
    /// # use posenc_onnx::request::Layers;
    /// let layers = Layers::of([0, 6, 7]);
    /// assert_eq!(layers.beyond(8), None);
    /// assert_eq!(layers.beyond(2), Some(6));
    /// ```
    pub fn beyond(&self, count: usize) -> Option<usize> {
        let last = self.0.last()?;
        (*last.end() >= count).then(|| count.max(*last.start()))
    }

    fn merge(mut ranges: Vec<RangeInclusive<usize>>) -> Self {
        ranges.sort_by_key(|r| *r.start());
        let mut merged: Vec<RangeInclusive<usize>> = vec![];
        for range in ranges {
            match merged.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=(*last.end()).max(*range.end());
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

impl FromStr for Layers {
    type Err = LayersError;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let number = |word: &str| {
            let number = word.trim().parse();
            number.map_err(|_| LayersError::Number(word.trim().to_owned()))
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = number(first)?..=number(last)?;
            if range.is_empty() {
                return Err(LayersError::Backward(part.trim().to_owned()));
            }
            Ok(range)
        };
        Ok(Self::merge(
            list.split(',').map(range).collect::<Result<_, _>>()?,
        ))
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            if range.start() == range.end() {
                write!(f, "{}", range.start())?;
            } else {
                write!(f, "{}-{}", range.start(), range.end())?;
            }
        }
        Ok(())
    }
}

impl Serialize for Layers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Layers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that is no list of layers.
///
/// ```
/// # use posenc_onnx::request::{Layers, LayersError};
/// assert_eq!("1-x".parse::<Layers>(), Err(LayersError::Number("x".into())));
/// assert_eq!("5-3".parse::<Layers>(), Err(LayersError::Backward("5-3".into())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayersError {
    /// Something other than a number.
    #[error("{0:?} is no layer number; write layers as 0-5,7")]
    Number(String),
    /// A range that ends before it starts.
    #[error("the range {0} ends before it starts; write the smaller layer first")]
    Backward(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_merged_and_printed_as_ranges() {
        let cases = [
            ("7", "7"),
            ("0-5,7", "0-5,7"),
            ("7, 0-5", "0-5,7"),
            ("3,2,1", "1-3"),
            ("0-4,2-9", "0-9"),
            ("0-9,2-4", "0-9"),
            ("0-18446744073709551615,3", "0-18446744073709551615"),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse::<Layers>().unwrap().to_string(), want, "{text}");
        }
        assert_eq!(Layers::of([4, 0, 1, 2]).to_string(), "0-2,4");
    }

    #[test]
    fn what_is_no_list_of_layers_is_refused() {
        let number = |word: &str| LayersError::Number(word.into());
        let cases = [
            ("", number("")),
            ("1,", number("")),
            ("all", number("all")),
            ("-1", number("")),
            ("0-", number("")),
            ("0-x", number("x")),
            ("1-2-3", number("2-3")),
            ("1.5", number("1.5")),
            ("99999999999999999999", number("99999999999999999999")),
            ("5-3", LayersError::Backward("5-3".into())),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse::<Layers>(), Err(want), "{text}");
        }
    }

    #[test]
    fn layers_that_do_not_exist_are_named() {
        let layers: Layers = "0-2,6-9".parse().unwrap();
        assert!(layers.contains(2) && layers.contains(6));
        assert!(!layers.contains(3) && !layers.contains(10));
        assert_eq!(layers.beyond(10), None);
        assert_eq!(layers.beyond(8), Some(8));
        assert_eq!(layers.beyond(4), Some(6));
    }
}
