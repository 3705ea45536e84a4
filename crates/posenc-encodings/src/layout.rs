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
