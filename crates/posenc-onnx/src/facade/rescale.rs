//! A request for other frequencies of RoPE.

use posenc_encodings::kind::Stack;
use posenc_encodings::param::{Given, Value};

use crate::request::{Config, LawName, Layers, Request, ScaleType};

/// A request to give the rotations of a model other frequencies, mostly for a longer context.
///
/// What is not given is inferred: the original length from the record of an earlier rewrite, or
/// from what limits the model's length; θ from the frequencies. The plan says what was inferred,
/// and from what.
///
/// ```
/// # use posenc_onnx::{Model, Rescale};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let plan = model.plan(Rescale::yarn(4.0).original_length(64))?;
/// assert_eq!(plan.edits()[0].to["params"]["scaling"]["factor"], 4.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rescale(Request);

impl Rescale {
    fn law(scale: impl Into<ScaleType>, factor: Option<f64>) -> Self {
        let mut request = Request {
            scale: Some(scale.into()),
            ..Request::default()
        };
        request.parameters.factor = factor;
        Self(request)
    }

    /// YaRN (Peng et al. 2023, arXiv 2309.00071, section 3.4) for a context of `factor` times the
    /// original length.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let plan = model.plan(Rescale::yarn(4.0).original_length(64))?;
    /// assert_eq!(plan.edits()[0].to["params"]["scaling"]["type"], "yarn");
    /// assert_eq!(plan.max_length(), Some(4 * 64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn yarn(factor: f64) -> Self {
        Self::law(LawName::Yarn, Some(factor))
    }

    /// Position interpolation (Chen et al. 2023, arXiv 2306.15595, section 3): every frequency
    /// divided by `factor`.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::linear(2.0))?.apply()?;
    /// let scaling = &done.report().edits[0].to["params"]["scaling"];
    /// assert_eq!(*scaling, serde_json::json!({"type": "linear", "factor": 2.0}));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn linear(factor: f64) -> Self {
        Self::law(LawName::Linear, Some(factor))
    }

    /// NTK-aware interpolation: a larger base θ.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::ntk(2.0))?.apply()?;
    /// let scaling = &done.report().edits[0].to["params"]["scaling"];
    /// assert_eq!(*scaling, serde_json::json!({"type": "ntk", "factor": 2.0}));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ntk(factor: f64) -> Self {
        Self::law(LawName::Ntk, Some(factor))
    }

    /// A base θ that grows with the length of the input, beyond the original length.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::dynamic(2.0).original_length(64))?.apply()?;
    /// let scaling = &done.report().edits[0].to["params"]["scaling"];
    /// assert_eq!(scaling["type"], "dynamic");
    /// assert_eq!(scaling["original_length"], 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dynamic(factor: f64) -> Self {
        Self::law(LawName::Dynamic, Some(factor))
    }

    /// The ramp over wavelengths of Llama 3.1.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::llama3(8.0).original_length(64))?.apply()?;
    /// let scaling = &done.report().edits[0].to["params"]["scaling"];
    /// assert_eq!(scaling["type"], "llama3");
    /// assert_eq!(scaling["low_freq_factor"], 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn llama3(factor: f64) -> Self {
        Self::law(LawName::Llama3, Some(factor))
    }

    /// LongRoPE (Ding et al. 2024, arXiv 2402.13753): a divisor for each rotated pair, from `short`
    /// up to the original length and from `long` beyond it.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let rescale = Rescale::longrope(vec![1.0; 4], vec![1.0, 2.0, 3.0, 4.0]);
    /// let plan = model.plan(rescale.original_length(64).max_length(256))?;
    /// assert_eq!(plan.edits()[0].to["params"]["scaling"]["type"], "longrope");
    /// let short = Rescale::longrope(vec![1.0], vec![2.0]).original_length(64);
    /// let error = model.plan(short).unwrap_err();
    /// assert!(error.to_string().contains("one entry per rotated pair"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn longrope(short: Vec<f64>, long: Vec<f64>) -> Self {
        let mut scale = Self::law(LawName::LongRope, None);
        scale.0.parameters.law = Given::from_iter([
            ("short-factor", Value::Numbers(short)),
            ("long-factor", Value::Numbers(long)),
        ]);
        scale
    }

    /// Plain RoPE; with [`allow_rescale`](Self::allow_rescale), this undoes a scaling.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/llama-yarn/torchscript/model.onnx")?;
    /// let plain = model.plan(Rescale::none().allow_rescale())?.apply()?;
    /// assert!(plain.report().edits[0].to["params"]["scaling"].is_null());
    /// assert!(Model::checked(plain.into_ir())?.plan(Rescale::none())?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn none() -> Self {
        Self::law(ScaleType::None, None)
    }

    /// The frequencies that a Hugging Face `config.json` describes. The base θ and the original
    /// length are those of the config: to give others is refused.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale, request::Config};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let config = Config::from_text("config.json", r#"{"rope_theta": 1000000.0}"#);
    /// let plan = model.plan(Rescale::follow(config))?;
    /// assert_eq!(plan.edits()[0].to["params"]["theta"], 1e6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn follow(config: Config) -> Self {
        Self(Request {
            hf_config: Some(config),
            ..Request::default()
        })
    }

    /// The length that the model was trained on, before any scaling.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let plan = model.plan(Rescale::yarn(4.0).original_length(64))?;
    /// assert_eq!(plan.edits()[0].to["params"]["scaling"]["original_length"], 64);
    /// assert!(plan.inferred().iter().all(|value| value.name != "original-length"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn original_length(mut self, length: usize) -> Self {
        self.0.parameters.original_length = Some(length);
        self
    }

    /// The length that tables, caches and buffers must hold; never a parameter of a formula.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let plan = model.plan(Rescale::linear(2.0).max_length(4096))?;
    /// assert_eq!(plan.max_length(), Some(4096));
    /// assert_eq!(plan.edits()[0].to["params"]["scaling"]["factor"], 2.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_length(mut self, length: usize) -> Self {
        self.0.parameters.max_length = Some(length);
        self
    }

    /// The base θ of the frequencies.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Rescale::none().theta(500000.0))?.apply()?;
    /// assert_eq!(done.report().edits[0].from["params"]["theta"], 1e4);
    /// assert_eq!(done.report().edits[0].to["params"]["theta"], 5e5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn theta(mut self, theta: f64) -> Self {
        self.0.parameters.theta = Some(theta);
        self
    }

    /// Only these attention layers, counted within their stack.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale, request::Layers};
    /// let model = Model::open("../../fixtures/gemma3-text/dynamo/model.onnx")?;
    /// let plan = model.plan(Rescale::linear(8.0).layers(Layers::of([1])))?;
    /// let sites: Vec<&str> = plan.edits().iter().map(|edit| edit.site.as_str()).collect();
    /// assert_eq!(sites, [&model.inspect().attention[1].name]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn layers(mut self, layers: Layers) -> Self {
        self.0.layers = Some(layers);
        self
    }

    /// Only this stack of a model with two.
    ///
    /// ```
    /// # use posenc_onnx::{Rescale, encodings::kind::Stack, request::Request};
    /// let request = Request::from(Rescale::linear(2.0).stack(Stack::Decoder));
    /// assert_eq!(request.stack, Some(Stack::Decoder));
    /// ```
    pub fn stack(mut self, stack: Stack) -> Self {
        self.0.stack = Some(stack);
        self
    }

    /// Replaces the scaling of a model that is scaled already; without this, such a model is
    /// refused.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/llama-yarn/torchscript/model.onnx")?;
    /// let error = model.plan(Rescale::linear(2.0)).unwrap_err();
    /// assert!(error.to_string().contains("scaled already (yarn)"), "{error}");
    /// let plan = model.plan(Rescale::linear(2.0).allow_rescale())?;
    /// assert_eq!(plan.edits()[0].to["params"]["scaling"]["type"], "linear");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allow_rescale(mut self) -> Self {
        self.0.allowances.allow_rescale = true;
        self
    }

    /// Rewrites a model of which something was not read, which is refused without this; the result
    /// records what.
    ///
    /// ```
    /// # use posenc_onnx::{Rescale, request::Request};
    /// let request: Request = Rescale::linear(2.0).allow_unread().into();
    /// assert!(request.allowances.allow_unread);
    /// ```
    pub fn allow_unread(mut self) -> Self {
        self.0.allowances.allow_unread = true;
        self
    }

    /// The `config.json` of the model as it is, from which the original length may be inferred.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale, request::Config};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let config = Config::from_text("config.json", r#"{"max_position_embeddings": 64}"#);
    /// let plan = model.plan(Rescale::yarn(4.0).model_config(Some(config)))?;
    /// assert_eq!(plan.edits()[0].to["params"]["scaling"]["original_length"], 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn model_config(mut self, config: Option<Config>) -> Self {
        self.0.model_config = config;
        self
    }
}

impl From<Rescale> for Request {
    fn from(rescale: Rescale) -> Self {
        rescale.0
    }
}
