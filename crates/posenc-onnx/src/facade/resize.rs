//! A request for tables with more or fewer rows, or for images of another size.

use posenc_encodings::kind::Stack;

use crate::request::{Antialias, Corners, ImageSize, LawName, Length, Request, ScaleType};

/// A request to give the position tables of a model more or fewer rows, or to make it for images of another
/// size.
///
/// Learned rows are interpolated, repeated, composed or cut off; a table of sines and cosines goes on
/// by its formula. Rows that no position reads stay, and buffers of positions, token types and causal
/// masks get the new length. A model of which anything would still end at the old length is refused.
///
/// ```
/// # use posenc_onnx::{Model, Resize};
/// let model = Model::open("../../fixtures/bert/dynamo/model.onnx")?;
/// let done = model.plan(Resize::tile(128))?.apply()?;
/// assert!(done.report().limits.after.iter().all(|limit| limit.length == 128));
/// let error = model.plan(Resize::longer(128)).unwrap_err();
/// assert!(error.to_string().contains("give `scale`"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Resize(Request);

impl Resize {
    fn by(scale: Option<ScaleType>, max_length: usize) -> Self {
        let mut request = Request {
            scale,
            ..Request::default()
        };
        request.parameters.max_length = Some(max_length);
        Self(request)
    }

    /// Rows interpolated between two, for `max_length` positions. A table of sines and cosines gets the
    /// code of `p · old length / max_length` at position p. A learned table by distance gets the row of
    /// `d · (old length − 1) / (max_length − 1)` at distance d.
    ///
    /// Clamped distances, slopes and buckets tell no length: a model with these is refused unless
    /// [`Parameters::factor`](crate::request::Parameters::factor) of the [`Request`] says by how much it
    /// is stretched.
    pub fn linear(max_length: usize) -> Self {
        Self::by(Some(LawName::Linear.into()), max_length)
    }

    /// Rows interpolated between four (Keys 1981, with a = −0.75 as PyTorch).
    pub fn cubic(max_length: usize) -> Self {
        Self::by(Some(ScaleType::Cubic), max_length)
    }

    /// Rows repeated from the first one on (Beltagy et al., arXiv:2004.05150, section 5).
    pub fn tile(max_length: usize) -> Self {
        Self::by(Some(ScaleType::Tile), max_length)
    }

    /// Rows composed of two (Su's decomposition with α = 0.4); the first ones stay.
    pub fn hierarchical(max_length: usize) -> Self {
        Self::by(Some(ScaleType::Hierarchical), max_length)
    }

    /// The first rows alone.
    pub fn truncate(max_length: usize) -> Self {
        Self::by(Some(ScaleType::Truncate), max_length)
    }

    /// Room for `max_length` positions; what shorter sequences compute stays. Tables of sines and
    /// cosines, and stored sinusoids of Transformer-XL, go on by their formula; learned tables by
    /// distance repeat their outermost rows. A learned table on the embeddings that needs more rows is
    /// refused, because nothing says what these should be.
    pub fn longer(max_length: usize) -> Self {
        Self::by(None, max_length)
    }

    /// Images of another size, in pixels. Learned tables of patches are interpolated between four rows
    /// along both sides, biases by the offset of patches between two; every size in the graph follows.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Resize};
    /// let model = Model::open("../../fixtures/vit/dynamo/model.onnx")?;
    /// let done = model.plan(Resize::image(48, 64).antialias())?.apply()?;
    /// assert_eq!(done.report().edits[0].to["params"]["grid"], serde_json::json!([6, 8]));
    /// let error = model.plan(Resize::image(50, 64)).unwrap_err();
    /// assert!(error.to_string().contains("48 or 56 would be"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn image(height: usize, width: usize) -> Self {
        let mut request = Request::default();
        request.parameters.image_size = Some(ImageSize { height, width });
        Self(request)
    }

    /// Images of any height and width that are whole numbers of patches. The graph resizes its learned
    /// table of patches when it runs, and computes every size that follows; at the old size it computes
    /// what it did.
    ///
    /// This needs opset 11, with [`Self::antialias`] 18. Windows and biases by the offset of patches are
    /// refused.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Resize};
    /// let model = Model::open("../../fixtures/vit/dynamo/model.onnx")?;
    /// let done = model.plan(Resize::any_image())?.apply()?;
    /// assert_eq!(done.report().inferred[0].value, "multiples of 8x8");
    /// let words = Model::open("../../fixtures/bert/dynamo/model.onnx")?;
    /// let error = words.plan(Resize::any_image()).unwrap_err();
    /// assert!(error.to_string().contains("one image as input"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn any_image() -> Self {
        let mut request = Request::default();
        request.parameters.length = Length::Dynamic;
        Self(request)
    }

    /// Smooths tables of patches as `antialias=True` does in PyTorch: the smaller the new table, the
    /// more old rows make up a new one.
    pub fn antialias(mut self) -> Self {
        self.0.parameters.antialias = Antialias::On;
        self
    }

    /// Interpolates so that the first row and the last one stay, as `align_corners` does in PyTorch.
    pub fn align_corners(mut self) -> Self {
        self.0.parameters.corners = Corners::Aligned;
        self
    }

    /// The stack whose tables change; by default both.
    pub fn stack(mut self, stack: Stack) -> Self {
        self.0.stack = Some(stack);
        self
    }
}

impl From<Resize> for Request {
    fn from(resize: Resize) -> Self {
        resize.0
    }
}
