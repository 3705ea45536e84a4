//! What a rewrite is to do, with every option that there is.
//!
//! A field that is `None` is inferred; the plan and the report say from what.
//!
//! ```
//! # use posenc_onnx::{Kind, Model, request::Request};
//! let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
//! let request = Request { to: Some(Kind::Alibi), ..Request::default() };
//! assert_eq!(model.plan(request)?.edits()[0].to["kind"], "alibi");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
pub mod hf_config;
mod layers;
mod list;
pub(crate) mod params;
mod rope;
mod scale;
mod size;
mod source;
pub(crate) mod values;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use check::check_custom;
pub use layers::{Layers, LayersError};
pub use list::{ListError, parse_list};
pub use posenc_encodings::laws::LawName;
pub use posenc_encodings::resize::{Antialias, Corners};
pub use rope::{RopeScalingError, rope_scaling};
pub use scale::ScaleType;
pub use size::{ImageSize, ImageSizeError};
pub use source::{Config, Tensors};

use crate::attention::Site;
use crate::graph::ports::Role;
use posenc_encodings::kind::{Form, Kind, Layout, Stack};
use posenc_encodings::param::{Given, Param, Value};
use posenc_encodings::words;

/// A rewrite. [`Rescale`](crate::Rescale) and [`Swap`](crate::Swap) make the usual ones.
///
/// In JSON, options that are left out are the default:
///
/// ```
/// use posenc_onnx::request::{LawName, Request};
///
/// let text = r#"{"scale": "yarn", "parameters": {"factor": 4.0}, "layers": "0-5,7"}"#;
/// let request: Request = serde_json::from_str(text)?;
/// assert_eq!(request.scale, Some(LawName::Yarn.into()));
/// assert!(request.check_supported().is_ok());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Request {
    /// The kind of encoding afterwards; `None`: the kind found stays.
    pub to: Option<Kind>,
    /// The law by which the frequencies of RoPE are scaled.
    pub scale: Option<ScaleType>,
    /// Values of the encoding and of its scaling.
    pub parameters: Parameters,
    /// A Hugging Face config that the graph is to follow.
    pub hf_config: Option<Config>,
    /// The config of the model as it is, from which the original length may be inferred.
    pub model_config: Option<Config>,
    /// Learned values; not part of the JSON.
    #[serde(skip)]
    pub params: Option<Tensors>,
    /// The attention layers, counted within their stack; `None`: all.
    pub layers: Option<Layers>,
    /// The stack; `None`: both.
    pub stack: Option<Stack>,
    /// The form of the encoding in the graph; `None`: rotations keep theirs, and what is inserted
    /// is made of plain operators.
    pub form: Option<Form>,
    /// The runtime that the result is for; `None`: any that runs the model as it is.
    pub target: Option<Target>,
    /// Roles of inputs that cannot be inferred, by name.
    pub input_roles: BTreeMap<String, InputRole>,
    /// What is done only where it is allowed.
    pub allowances: Allowances,
}

impl Request {
    /// Whether a site is chosen: self-attention of the stack and of the layers that are given.
    pub(crate) fn names(&self, site: &Site) -> bool {
        let stack = self.stack.is_none_or(|s| site.place.stack == Some(s));
        let layers = self.layers.as_ref();
        stack && !site.cross && layers.is_none_or(|l| l.contains(site.place.layer))
    }

    /// Whether a site is chosen, or is cross-attention of a stack that is chosen whole: it is no layer of its own.
    pub(crate) fn covers(&self, site: &Site) -> bool {
        let stack = self.stack.is_none_or(|s| site.place.stack == Some(s));
        stack && (self.layers.is_none() || self.names(site))
    }

    /// Whether rotations keep their frequencies, and only their tables may get more rows.
    pub(crate) fn keeps_frequencies(&self) -> bool {
        self.scale.is_none() && self.hf_config.is_none() && self.parameters.theta.is_none()
    }

    /// Whether nothing but an order of computation is requested.
    ///
    /// ```
    /// # use posenc_onnx::request::Request;
    /// let request = |text| serde_json::from_str::<Request>(text);
    /// assert!(request(r#"{"allowances": {"sort": true}}"#)?.is_only_sort());
    /// assert!(!request(r#"{"allowances": {"sort": true}, "to": "rope"}"#)?.is_only_sort());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_only_sort(&self) -> bool {
        let sort = Allowances {
            sort: true,
            write_config: self.allowances.write_config,
            ..Allowances::default()
        };
        let only = Self {
            model_config: self.model_config.clone(),
            input_roles: self.input_roles.clone(),
            allowances: sort,
            ..Self::default()
        };
        *self == only
    }

    /// Whether plain operators are asked for: by the form, or for a runtime that lacks some of those of CUDA.
    pub(crate) fn wants_plain_operators(&self) -> bool {
        let is_plain = |target: Target| target != Target::OrtCuda;
        self.form == Some(Form::Ops) || self.target.is_some_and(is_plain)
    }

    /// Whether nothing but the form of encodings changes, or which features rotate together: as a form, a layout or
    /// a runtime wants it, and perhaps the order of nodes.
    pub(crate) fn is_only_form(&self) -> bool {
        let allowances = Allowances {
            sort: self.allowances.sort,
            allow_unread: self.allowances.allow_unread,
            ..Allowances::default()
        };
        let parameters = Parameters {
            layout: self.parameters.layout,
            ..Parameters::default()
        };
        let only = Self {
            form: self.form,
            parameters,
            layers: self.layers.clone(),
            stack: self.stack,
            target: self.target,
            model_config: self.model_config.clone(),
            input_roles: self.input_roles.clone(),
            allowances,
            ..Self::default()
        };
        let is_layout = self.parameters.layout.is_some();
        let is_given = self.form.is_some() || self.target.is_some() || is_layout;
        is_given && *self == only
    }

    /// The layout that rotations get with their features in another order, so that they compute the same.
    pub(crate) fn layout(&self) -> Option<Layout> {
        self.parameters.layout.filter(|_| self.is_only_form())
    }
}

/// Values of an encoding and of its scaling.
///
/// ```
/// # use posenc_onnx::request::Parameters;
/// let text = r#"{"factor": 4.0, "law": {"beta_fast": 31.0}}"#;
/// let parameters: Parameters = serde_json::from_str(text)?;
/// assert_eq!(parameters.factor, Some(4.0));
/// assert_eq!(parameters.law.number("beta-fast"), Some(31.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Context extension s.
    pub factor: Option<f64>,
    /// Context length before the scaling.
    pub original_length: Option<usize>,
    /// Rows of tables, caches and buffers; never a parameter of a formula.
    pub max_length: Option<usize>,
    /// Base θ of the frequencies.
    pub theta: Option<f64>,
    /// Elements of a head that rotate.
    pub rotary_dim: Option<usize>,
    /// Pairs of RoPE, or the order within a sinusoidal row.
    pub layout: Option<Layout>,
    /// Parameters of laws of RoPE; in JSON, an object with the keys of Hugging Face configs.
    #[serde(with = "values::law")]
    pub law: Given,
    /// Parameters of the family that is inserted; in JSON, an object with their names, with
    /// underscores for hyphens.
    #[serde(with = "values::family")]
    pub family: Given,
    /// Grids: pixels.
    pub image_size: Option<ImageSize>,
    /// Resized tables: which points of the two grids coincide.
    pub corners: Corners,
    /// Resized tables: whether a smaller table is smoothed first.
    pub antialias: Antialias,
    /// Whether the graph resizes its table of patches for the image at hand.
    pub length: Length,
    /// In which type tables are computed before they are stored.
    pub table_precision: Option<TablePrecision>,
    /// Seed of tables that are filled at random.
    pub seed: Option<u64>,
}

/// What is done only where it is allowed; nothing by default.
///
/// ```
/// # use posenc_onnx::{Model, Rescale, request::Request};
/// let model = Model::open("../../fixtures/llama-yarn/torchscript/model.onnx")?;
/// let mut request = Request::from(Rescale::linear(2.0));
/// let error = model.plan(request.clone()).unwrap_err();
/// assert!(error.to_string().contains("give `allow-rescale`"), "{error}");
/// request.allowances.allow_rescale = true;
/// assert_eq!(model.plan(request)?.edits().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowances {
    /// Add an input with position ids.
    pub add_position_ids: bool,
    /// Scale what is already scaled.
    pub allow_rescale: bool,
    /// Rewrite a model of which something was not read; see [`RefusalKind::Unread`].
    ///
    /// [`RefusalKind::Unread`]: crate::RefusalKind::Unread
    pub allow_unread: bool,
    /// Refuse what a `config.json` cannot say, before anything changes: it is to be written next to
    /// the result, with [`Rewritten::config`](crate::Rewritten::config).
    pub write_config: bool,
    /// Write nodes in an order of computation, where the input does not.
    pub sort: bool,
}

words! {
    /// The runtime that a rewrite is for. Rotations get a form that it implements, where the request names none,
    /// and a result with another operator that it is known to lack is refused. A run shows the rest:
    /// [`Rewritten::run`](crate::Rewritten::run).
    ///
    /// ```
    /// # use posenc_onnx::request::{Request, Target};
    /// let text = r#"{"target": "ort-cuda"}"#;
    /// let request: Request = serde_json::from_str(text)?;
    /// assert_eq!(request.target, Some(Target::OrtCuda));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    "target" Target {
        /// Any with the operators of ONNX: rotations consist of plain ones.
        Portable = "portable",
        /// ONNX Runtime on the CPU.
        OrtCpu = "ort-cpu",
        /// ONNX Runtime on CUDA.
        OrtCuda = "ort-cuda",
        /// tract: rotations consist of operators of ONNX.
        Tract = "tract",
    }
}

words! {
    /// What an input means.
    ///
    /// ```
    /// # use posenc_onnx::request::{Request, InputRole};
    /// let text = r#"{"input_roles": {"where": "position"}}"#;
    /// let request: Request = serde_json::from_str(text)?;
    /// assert_eq!(request.input_roles["where"], InputRole::Position);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    "input role" InputRole {
        /// Position ids.
        Position = "position",
        /// A padding mask, or how many tokens of each sequence count.
        Padding = "padding",
        /// Ids, embeddings, pixels, audio.
        Content = "content",
    }
}

/// The value of a parameter in JSON; `None` where it takes no such value.
pub(crate) fn read_param(param: &Param, value: &serde_json::Value) -> Option<Value> {
    values::read_one(param, value)
}

/// Roles as detection reads them.
pub(crate) fn roles(given: &BTreeMap<String, InputRole>) -> BTreeMap<String, Role> {
    let role = |role: &InputRole| match role {
        InputRole::Position => Role::Positions,
        InputRole::Padding => Role::Padding,
        InputRole::Content => Role::Content,
    };
    let roles = given.iter().map(|(name, own)| (name.clone(), role(own)));
    roles.collect()
}

words! {
    /// In which type tables are computed before they are stored.
    ///
    /// ```
    /// # use posenc_onnx::request::{Request, TablePrecision};
    /// let text = r#"{"parameters": {"table_precision": "f32"}}"#;
    /// let request: Request = serde_json::from_str(text)?;
    /// assert_eq!(request.parameters.table_precision, Some(TablePrecision::F32));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    "precision" TablePrecision {
        /// As PyTorch computes them.
        F32 = "f32",
        /// As the formula says, rounded once.
        F64 = "f64",
    }
}

words! {
    /// Whether a vision model takes images of one size or of any.
    ///
    /// ```
    /// # use posenc_onnx::request::{Request, Length};
    /// let text = r#"{"parameters": {"length": "dynamic"}}"#;
    /// let request: Request = serde_json::from_str(text)?;
    /// assert_eq!(request.parameters.length, Length::Dynamic);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    "length" Length {
        /// Of one size: that of the graph, or the `image_size` that is given.
        AsFound = "as-found",
        /// Of any height and width: the graph computes what follows from them.
        Dynamic = "dynamic",
    } default AsFound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_json() {
        let text = r#"{
            "to": "rope", "scale": "yarn", "stack": "decoder", "layers": "0-2,5",
            "parameters": {"factor": 4.0, "law": {"beta_fast": 31.0}, "image_size": "3x4"},
            "hf_config": {"rope_theta": 1e6}, "input_roles": {"pos": "position"},
            "allowances": {"allow_rescale": true}
        }"#;
        let request: Request = serde_json::from_str(text).unwrap();
        let again = serde_json::to_string(&request).unwrap();
        let again: Request = serde_json::from_str(&again).unwrap();
        assert_eq!(again, request);
        assert_eq!(request.layers, Some("0-2,5".parse().unwrap()));
        assert_eq!(request.parameters.law.number("beta-fast"), Some(31.0));
        assert!(request.hf_config.unwrap().parse().is_ok());
        assert_eq!(
            serde_json::from_str::<Request>("{}").unwrap(),
            Request::default()
        );
    }

    #[test]
    fn a_misspelled_option_is_refused() {
        for text in [
            r#"{"scal": "yarn"}"#,
            r#"{"scale": "jarn"}"#,
            r#"{"parameters": {"fctor": 4.0}}"#,
            r#"{"parameters": {"law": {"beta_fest": 4.0}}}"#,
            r#"{"parameters": {"law": {"beta_fast": "4"}}}"#,
            r#"{"allowances": {"rescale": true}}"#,
        ] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }
}
