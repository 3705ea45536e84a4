//! Encodings that were found.

use serde::Serialize;

use posenc_encodings::kind::{Form, Kind, Stack};
use posenc_encodings::params::Params;

/// Sites of one kind, stack and set of hyperparameters.
///
/// ```
/// # use posenc_onnx::{Kind, Model};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let encoding = &model.inspect().encodings[0];
/// assert_eq!((encoding.kind, encoding.sites), (Kind::Rope, 2));
/// assert_eq!(encoding.params["theta"], 1e4);
/// assert!(encoding.fit_error.is_some_and(|error| error < 1e-12));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Encoding {
    /// The family.
    pub kind: Kind,
    /// The stack; `None` where the model has one.
    pub stack: Option<Stack>,
    /// The attention sites that see it, by their place in the order of the stack.
    pub layers: Vec<usize>,
    /// How many sites or additions carry it.
    pub sites: usize,
    /// How it is written in the graph.
    pub form: Form,
    /// What the family is parameterized by; `docs/encodings.md` has the names.
    pub params: Params,
    /// The largest difference between the graph's numbers and the family's formula; `None` where
    /// there is no formula to compare with.
    pub fit_error: Option<f64>,
    /// The longest sequence that it can encode; `None` without an end.
    pub max_length: Option<usize>,
    /// Nodes where it enters.
    pub nodes: Vec<String>,
    /// What indicates a position-dependent term that no family fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The layers of `layers`, each with whether cross-attention of it sees the encoding.
    #[serde(skip)]
    pub(crate) places: Vec<(usize, bool)>,
}

impl Encoding {
    /// An entry without sites.
    ///
    /// ```
    /// use posenc_onnx::{Kind, encodings::kind::Form, report::Encoding};
    ///
    /// let encoding = Encoding::new(Kind::Alibi, None, Form::Ops, Default::default());
    /// assert_eq!((encoding.sites, encoding.max_length), (0, None));
    /// ```
    pub fn new(kind: Kind, stack: Option<Stack>, form: Form, params: Params) -> Self {
        Self {
            kind,
            stack,
            layers: vec![],
            sites: 0,
            form,
            params,
            fit_error: None,
            max_length: None,
            nodes: vec![],
            evidence: vec![],
            places: vec![],
        }
    }
}
