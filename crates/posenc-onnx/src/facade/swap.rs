//! A request for another encoding.

use posenc_encodings::family::Family;
use posenc_encodings::kind::{Kind, Layout, Stack};
use posenc_encodings::param::Value;

use crate::error::Refusal;
use crate::request::{Layers, Request, Tensors};

/// A request to replace the encodings of a model.
///
/// Tables of learned values start from zeros, which change nothing before training; see
/// [`seed`](Self::seed) and [`tensors`](Self::tensors). The weights of the model were trained with
/// another encoding: fine-tune it.
///
/// ```
/// # use posenc_onnx::{Alibi, Model, Swap};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Swap::to(Alibi::default()))?.apply()?;
/// assert_eq!(done.report().edits[0].to["kind"], "alibi");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Swap(Request);

impl Swap {
    /// Inserts this encoding: a [`Kind`], or one with parameters such as [`Alibi`].
    ///
    /// ```
    /// # use posenc_onnx::{Kind, Model, Rope, Swap};
    /// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
    /// let rope = Rope { theta: Some(5e5), ..Rope::default() };
    /// let plan = model.plan(Swap::to(rope))?;
    /// assert_eq!(plan.edits()[0].to["params"]["theta"], 5e5);
    /// assert_eq!(model.plan(Swap::to(Kind::Kerple))?.edits()[0].to["kind"], "kerple");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to(encoding: impl Into<Self>) -> Self {
        encoding.into()
    }

    /// Inserts nothing: encodings are removed.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Swap};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::remove())?.apply()?;
    /// assert!(done.report().edits[0].to.is_null());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove() -> Self {
        Kind::None.into()
    }

    /// Only these attention layers, counted within their stack. An encoding that is added to the
    /// input acts before all layers, and takes none.
    ///
    /// ```
    /// # use posenc_onnx::{Kind, Model, Swap, request::Layers};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::to(Kind::Alibi).layers(Layers::of([1])))?.apply()?;
    /// let encodings = Model::checked(done.into_ir())?.inspect().encodings;
    /// let layers = |kind| encodings.iter().find(|e| e.kind == kind).map(|e| e.layers.clone());
    /// assert_eq!((layers(Kind::Rope), layers(Kind::Alibi)), (Some(vec![0]), Some(vec![1])));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn layers(mut self, layers: Layers) -> Self {
        self.0.layers = Some(layers);
        self
    }

    /// Only this stack of a model with two.
    ///
    /// ```
    /// # use posenc_onnx::{Alibi, Model, Swap, encodings::kind::Stack};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let swap = Swap::to(Alibi::default()).stack(Stack::Decoder);
    /// let error = model.plan(swap).unwrap_err();
    /// assert_eq!(error.to_string(), "the model has one stack; remove `stack` decoder");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stack(mut self, stack: Stack) -> Self {
        self.0.stack = Some(stack);
        self
    }

    /// Fills learned tables with random values instead of zeros, the same for the same seed.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Swap, T5Bias};
    /// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
    /// let filled = |seed| model.plan(Swap::to(T5Bias::default()).seed(seed))?.apply();
    /// let [a, b, other] = [filled(7)?, filled(7)?, filled(8)?];
    /// assert_eq!(a.to_bytes()?, b.to_bytes()?);
    /// assert_ne!(a.to_bytes()?, other.to_bytes()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.0.parameters.seed = Some(seed);
        self
    }

    /// Fills learned tables with these values.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Swap, T5Bias, request::Tensors};
    /// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
    /// let learned = Tensors::open("../../fixtures/mini/t5/params.safetensors")?;
    /// let done = model.plan(Swap::to(T5Bias::default()).tensors(learned))?.apply()?;
    /// assert_eq!(done.report().edits[0].to["params"]["num_buckets"], 32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tensors(mut self, tensors: Tensors) -> Self {
        self.0.params = Some(tensors);
        self
    }

    /// The length that tables and buffers must hold.
    ///
    /// ```
    /// # use posenc_onnx::{Kind, Model, Swap};
    /// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
    /// let done = model.plan(Swap::to(Kind::Learned).max_length(32))?.apply()?;
    /// assert_eq!(done.report().limits.after[0].length, 32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_length(mut self, length: usize) -> Self {
        self.0.parameters.max_length = Some(length);
        self
    }

    /// Adds an input with position ids, `[batch, length]`, instead of counting positions in the
    /// graph.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rope, Swap};
    /// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
    /// let done = model.plan(Swap::to(Rope::default()).add_position_ids())?.apply()?;
    /// let graph = done.as_ir().graph();
    /// let inputs = graph.scope(graph.main()).inputs();
    /// assert!(inputs.iter().any(|input| graph.name(*input) == "position_ids"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_position_ids(mut self) -> Self {
        self.0.allowances.add_position_ids = true;
        self
    }

    /// Gives a parameter that the family declares this value. Names and types are those of
    /// `rewrite --help`, without the hyphens before a flag. What several kinds share is no such
    /// parameter: θ, the layout and the rotated width are fields of [`Rope`] and [`Sinusoidal`], and
    /// lengths are given by [`max_length`](Self::max_length).
    ///
    /// # Errors
    /// If the family has no parameter of this name, or the value is of another type or out of
    /// range.
    ///
    /// ```
    /// # use posenc_onnx::{Kind, Model, Swap, Value};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let swap = Swap::to(Kind::Kerple).parameter("variant", Value::Word("power"))?;
    /// let done = model.plan(swap)?.apply()?;
    /// assert_eq!(done.report().edits[0].to["params"]["variant"], "power");
    /// assert!(Swap::to(Kind::Kerple).parameter("slopes", Value::Numbers(vec![0.5])).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parameter(mut self, name: &str, value: Value) -> Result<Self, Refusal> {
        let kind = self.0.to.unwrap_or(Kind::None);
        let params = kind.family().map_or(&[][..], |family| family.params);
        let Some(param) = params.iter().find(|param| param.name == name) else {
            return Err(Refusal::invalid(format!(
                "{kind} has no parameter `{name}`"
            )));
        };
        if !param.values.contain(&value) {
            let why = format!("`{name}` of {kind} cannot be {value}");
            return Err(Refusal::invalid(why));
        }
        self.0.parameters.family.set(param, value);
        Ok(self)
    }

    /// Sets a parameter that the family has, if there is a value; values out of range are refused when the request is
    /// planned.
    fn set(&mut self, name: &str, value: Option<Value>) {
        let family = self.0.to.and_then(Kind::family);
        let param = family.and_then(|family| family.params.iter().find(|p| p.name == name));
        let param = param.expect("the family declares the fields of its type");
        if let Some(value) = value {
            self.0.parameters.family.set(param, value);
        }
    }
}

impl From<Swap> for Request {
    fn from(swap: Swap) -> Self {
        swap.0
    }
}

impl From<Kind> for Swap {
    fn from(kind: Kind) -> Self {
        Self(Request {
            to: Some(kind),
            ..Request::default()
        })
    }
}

/// A family outside of this crate: the file of such a family is like those of
/// [`encodings::families`](crate::encodings::families), and `examples/custom.rs` is one. It must be
/// a score bias.
impl From<&'static Family> for Swap {
    fn from(family: &'static Family) -> Self {
        Kind::of_family(family).into()
    }
}

/// ALiBi (Press et al. 2021, arXiv 2108.12409): a bias on the scores, linear in the distance of
/// query and key.
///
/// ```
/// # use posenc_onnx::{Alibi, Model, Swap};
/// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
/// let alibi = Alibi { slopes: Some(vec![0.5, 0.25, 0.125]), ..Alibi::default() };
/// let done = model.plan(Swap::to(alibi))?.apply()?;
/// assert_eq!(done.report().edits[0].to["params"]["slopes"][2], 0.125);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alibi {
    /// The slope of each head; `None`: those of the paper.
    pub slopes: Option<Vec<f64>>,
    /// Whether keys after the query get the bias of as distant keys before it, `−m·|i − j|`, or the
    /// same line goes on with the opposite sign; `None`: symmetric where the mask does not hide them.
    pub bidirectional: Option<bool>,
}

impl From<Alibi> for Swap {
    fn from(alibi: Alibi) -> Self {
        let mut swap = Self::from(Kind::Alibi);
        swap.set("slopes", alibi.slopes.map(Value::Numbers));
        swap.set("bidirectional", alibi.bidirectional.map(Value::Bool));
        swap
    }
}

/// RoPE (Su et al. 2021, arXiv 2104.09864): a rotation of queries and keys.
///
/// ```
/// # use posenc_onnx::{Model, Rope, Swap};
/// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
/// let rope = Rope { rotary_dim: Some(4), ..Rope::default() };
/// let done = model.plan(Swap::to(rope))?.apply()?;
/// let params = &done.report().edits[0].to["params"];
/// assert_eq!((&params["head_dim"], &params["rotary_dim"]), (&8.into(), &4.into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rope {
    /// The base θ of the frequencies; `None`: 10000.
    pub theta: Option<f64>,
    /// How many elements of a head rotate; `None`: all.
    pub rotary_dim: Option<usize>,
    /// Which elements rotate together; `None`: halves.
    pub layout: Option<Layout>,
}

impl From<Rope> for Swap {
    fn from(rope: Rope) -> Self {
        let mut swap = Self::from(Kind::Rope);
        swap.0.parameters.theta = rope.theta;
        swap.0.parameters.rotary_dim = rope.rotary_dim;
        swap.0.parameters.layout = rope.layout;
        swap
    }
}

/// Sines and cosines added to the input (Vaswani et al. 2017, arXiv 1706.03762, section 3.5).
///
/// ```
/// # use posenc_onnx::{Model, Sinusoidal, Swap};
/// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
/// let sinusoidal = Sinusoidal { base: Some(500.0), ..Sinusoidal::default() };
/// let done = model.plan(Swap::to(sinusoidal))?.apply()?;
/// assert_eq!(done.report().edits[0].to["params"]["base"], 500.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sinusoidal {
    /// The base of the frequencies; `None`: 10000.
    pub base: Option<f64>,
    /// The order within a row; `None`: sine and cosine alternate.
    pub layout: Option<Layout>,
}

impl From<Sinusoidal> for Swap {
    fn from(sinusoidal: Sinusoidal) -> Self {
        let mut swap = Self::from(Kind::Sinusoidal);
        swap.0.parameters.theta = sinusoidal.base;
        swap.0.parameters.layout = sinusoidal.layout;
        swap
    }
}

/// A learned table added to the input, one row for each position.
///
/// ```
/// # use posenc_onnx::{Learned, Model, Swap};
/// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
/// let learned = Learned { positions: Some(32) };
/// let done = model.plan(Swap::to(learned))?.apply()?;
/// assert_eq!(done.report().limits.after[0].length, 32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// How many positions the table has; `None`: as many as the table that it replaces, or as the
    /// shortest limit of the model.
    pub positions: Option<usize>,
}

impl From<Learned> for Swap {
    fn from(learned: Learned) -> Self {
        let mut swap = Self::from(Kind::Learned);
        swap.0.parameters.max_length = learned.positions;
        swap
    }
}

/// The bias of T5 (Raffel et al. 2019, arXiv 1910.10683): a learned value for each head and bucket
/// of distances.
///
/// ```
/// # use posenc_onnx::{Model, Swap, T5Bias};
/// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
/// let bias = T5Bias { num_buckets: Some(8), ..T5Bias::default() };
/// let done = model.plan(Swap::to(bias).seed(1))?.apply()?;
/// assert_eq!(done.report().edits[0].to["params"]["num_buckets"], 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct T5Bias {
    /// The buckets of both directions together; `None`: 32.
    pub num_buckets: Option<usize>,
    /// The distance from which on all are in the last bucket; `None`: 128.
    pub max_distance: Option<usize>,
    /// Whether keys after the query have buckets of their own; `None`: where the mask does not hide
    /// them.
    pub bidirectional: Option<bool>,
}

impl From<T5Bias> for Swap {
    fn from(bias: T5Bias) -> Self {
        let mut swap = Self::from(Kind::T5Bias);
        swap.set("num-buckets", bias.num_buckets.map(Value::Count));
        swap.set("max-distance", bias.max_distance.map(Value::Count));
        swap.set("bidirectional", bias.bidirectional.map(Value::Bool));
        swap
    }
}

/// A learned bias on the scores for each head and clipped distance.
///
/// ```
/// # use posenc_onnx::{Model, RelativeBias, Swap};
/// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
/// let bias = RelativeBias { max_distance: Some(6) };
/// let done = model.plan(Swap::to(bias).seed(1))?.apply()?;
/// assert_eq!(done.report().edits[0].to["params"]["max_distance"], 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelativeBias {
    /// The distance at which others are clipped; `None`: 128.
    pub max_distance: Option<usize>,
}

impl From<RelativeBias> for Swap {
    fn from(bias: RelativeBias) -> Self {
        let mut swap = Self::from(Kind::RelativeBias);
        swap.set("max-distance", bias.max_distance.map(Value::Count));
        swap
    }
}

/// Learned vectors for clipped distances, added to keys and values (Shaw et al. 2018, arXiv
/// 1803.02155).
///
/// ```
/// # use posenc_onnx::{Model, Shaw, Swap};
/// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
/// let shaw = Shaw { max_distance: Some(6) };
/// let done = model.plan(Swap::to(shaw).seed(1))?.apply()?;
/// assert_eq!(done.report().edits[0].to["params"]["max_distance"], 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shaw {
    /// The distance at which others are clipped; `None`: 16.
    pub max_distance: Option<usize>,
}

impl From<Shaw> for Swap {
    fn from(shaw: Shaw) -> Self {
        let mut swap = Self::from(Kind::Shaw);
        swap.set("max-distance", shaw.max_distance.map(Value::Count));
        swap
    }
}
