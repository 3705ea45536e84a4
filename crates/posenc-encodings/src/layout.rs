//! The layouts of pairs and rows.

use crate::words;

words! {
    /// Which elements of a head rotate together, or how sines and cosines are laid out in a row.
    "layout" Layout {
        /// Pairs `(x[i], x[i + d/2])`; all sines, then all cosines.
        Half = "half",
        /// Pairs `(x[2i], x[2i + 1])`; sine and cosine alternate.
        Interleaved = "interleaved",
    }
}

impl Layout {
    /// The elements of a head that rotate together: the first so many pairs, in the order of their frequencies.
    ///
    /// ```
    /// use posenc_encodings::kind::Layout;
    ///
    /// assert!(Layout::Half.pairs(2).eq([(0, 2), (1, 3)]));
    /// assert!(Layout::Interleaved.pairs(2).eq([(0, 1), (2, 3)]));
    /// ```
    pub fn pairs(self, count: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..count).map(move |i| match self {
            Self::Half => (i, i + count),
            Self::Interleaved => (2 * i, 2 * i + 1),
        })
    }

    /// The other one.
    ///
    /// ```
    /// use posenc_encodings::kind::Layout;
    ///
    /// assert_eq!(Layout::Half.other(), Layout::Interleaved);
    /// ```
    pub fn other(self) -> Self {
        match self {
            Self::Half => Self::Interleaved,
            Self::Interleaved => Self::Half,
        }
    }
}
