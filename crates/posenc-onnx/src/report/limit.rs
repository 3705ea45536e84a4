//! What bounds the length of a sequence. Data only.

use posenc_encodings::words;
use serde::Serialize;

/// A bound on the length of a sequence.
///
/// ```
/// # use posenc_onnx::Model;
/// let model = Model::open("../../fixtures/mini/learned/model.onnx")?;
/// let limit = &model.inspect().limits[0];
/// assert_eq!(limit.length, 40);
/// assert_eq!(limit.value.as_deref(), Some("enc.pos.weight"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The longest sequence.
    pub length: usize,
    /// What bounds it.
    pub cause: LimitCause,
    /// The tensor or input at fault; `None` where it has no name.
    pub value: Option<String>,
}

words! {
    /// What bounds the length of a sequence.
    ///
    /// ```
    /// # use posenc_onnx::{Model, report::LimitCause};
    /// let model = Model::open("../../fixtures/bert/dynamo/model.onnx")?;
    /// let causes: Vec<LimitCause> = model.inspect().limits.iter().map(|l| l.cause).collect();
    /// assert_eq!(causes, [LimitCause::Table, LimitCause::PositionBuffer]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    "cause of a limit" LimitCause {
        /// Rows of a position table.
        Table = "table",
        /// A buffer of position ids.
        PositionBuffer = "position-buffer",
        /// A buffer of token types.
        TokenTypeBuffer = "token-type-buffer",
        /// A buffer with the causal mask.
        CausalBuffer = "causal-buffer",
        /// A cache of cosines and sines.
        Cache = "cache",
        /// A shape that was fixed at export.
        StaticShape = "static-shape",
        /// A runtime that cannot do more.
        Runtime = "runtime",
    }
}
