//! Sizes of images: `384x512`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Pixels of an image.
///
/// ```
/// # use posenc_onnx::request::ImageSize;
/// let size: ImageSize = "384x512".parse()?;
/// assert_eq!((size.height, size.width), (384, 512));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl FromStr for ImageSize {
    type Err = ImageSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ImageSizeError(text.to_owned());
        let number = |word: &str| {
            let number = word.parse().ok().filter(|n| *n > 0);
            number.ok_or_else(wrong)
        };
        let (height, width) = text.split_once(['x', 'X']).ok_or_else(wrong)?;
        let (height, width) = (number(height)?, number(width)?);
        Ok(Self { height, width })
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

impl Serialize for ImageSize {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that is no size of an image.
///
/// ```
/// # use posenc_onnx::request::ImageSize;
/// let error = "384".parse::<ImageSize>().unwrap_err();
/// assert!(error.to_string().ends_with("write height and width as 384x512"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no image size; write height and width as 384x512")]
pub struct ImageSizeError(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_height_by_width() {
        let size: ImageSize = "384x512".parse().unwrap();
        assert_eq!((size.height, size.width), (384, 512));
        assert_eq!(size.to_string(), "384x512");
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "384", "x", "384x", "0x5", "-1x5", "3x4x5", "3 x 4"] {
            assert!(text.parse::<ImageSize>().is_err(), "{text}");
        }
    }
}
