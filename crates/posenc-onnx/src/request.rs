//! What a rewrite is to do, with every option that there is.
//!
//! A field that is `None` is inferred; the plan and the report say from what.

pub mod hf_config;
mod layers;
mod list;
pub mod params;
mod rope;
mod size;
mod source;
mod unserved;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use layers::{Layers, LayersError};
pub use list::{ListError, parse_list};
pub use rope::{FACTOR, LLAMA3_FACTOR, RopeScalingError, rope_scaling};
pub use size::{ImageSize, ImageSizeError};
pub use source::{Config, Tensors};

use crate::attention::Site;
use posenc_encodings::kind::{Form, Kind, Layout, Stack};
use posenc_encodings::words;

/// A rewrite. [`Rescale`](crate::Rescale) and [`Swap`](crate::Swap) make the usual ones.
///
/// In JSON, options that are left out are the default:
///
/// ```
/// use posenc_onnx::request::{Request, ScaleType};
///
/// let text = r#"{"scale": "yarn", "parameters": {"factor": 4.0}, "layers": "0-5,7"}"#;
/// let request: Request = serde_json::from_str(text)?;
/// assert_eq!(request.scale, Some(ScaleType::Yarn));
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
    /// The runtime that the result is for.
    pub target: Target,
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

    /// Whether nothing but an order of computation is requested.
    pub fn is_only_sort(&self) -> bool {
        let sort = Allowances {
            sort: true,
            ..Allowances::default()
        };
        let only = Self {
            target: self.target,
            model_config: self.model_config.clone(),
            input_roles: self.input_roles.clone(),
            allowances: sort,
            ..Self::default()
        };
        *self == only
    }
}

/// Values of an encoding and of its scaling.
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
    /// YaRN: turns within the original length above which a pair stays.
    pub beta_fast: Option<f64>,
    /// YaRN: turns below which a pair is interpolated.
    pub beta_slow: Option<f64>,
    /// YaRN: weight of ln s in the numerator of the factor on cos and sin.
    pub mscale: Option<f64>,
    /// YaRN: the same in the denominator.
    pub mscale_all_dim: Option<f64>,
    /// Factor on cos and sin.
    pub attention_factor: Option<f64>,
    /// YaRN: whether the ends of the ramp are whole pairs.
    #[serde(rename = "truncate", with = "truncate")]
    pub bounds: posenc_encodings::laws::RampBounds,
    /// Llama 3: turns below which a pair is divided by s.
    pub low_freq_factor: Option<f64>,
    /// Llama 3: turns above which a pair stays.
    pub high_freq_factor: Option<f64>,
    /// LongRoPE: divisors up to the original length, one per pair.
    pub short_factor: Option<Vec<f64>>,
    /// LongRoPE: divisors above it, one per pair.
    pub long_factor: Option<Vec<f64>>,
    /// T5: buckets, those of both directions together.
    pub num_buckets: Option<usize>,
    /// T5, Shaw, relative bias: the distance from which on all are alike.
    pub max_distance: Option<usize>,
    /// Whether keys after the query are told from keys before it; `None`: as the site's mask says.
    pub bidirectional: Option<bool>,
    /// ALiBi: one per head.
    pub slopes: Option<Vec<f64>>,
    /// Grids: pixels.
    pub image_size: Option<ImageSize>,
    /// Resized tables: which points of the two grids coincide.
    pub corners: Corners,
    /// Resized tables: whether a smaller table is smoothed first.
    pub antialias: Antialias,
    /// Whether the graph computes the encoding for the length at hand.
    pub length: Length,
    /// In which type tables are computed before they are stored.
    pub table_precision: Option<TablePrecision>,
    /// Seed of tables that are filled at random.
    pub seed: Option<u64>,
}

/// What is done only where it is allowed; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowances {
    /// Add an input with position ids.
    pub add_position_ids: bool,
    /// Scale what is already scaled.
    pub allow_rescale: bool,
    /// Write a `config.json` for the result beside it.
    pub write_config: bool,
    /// Write nodes in an order of computation, where the input does not.
    pub sort: bool,
}

/// Whether the ends of YaRN's ramp are whole pairs, as the `truncate` of Hugging Face configs.
mod truncate {
    use posenc_encodings::laws::RampBounds;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde hands a reference over
    pub(super) fn serialize<S: Serializer>(bounds: &RampBounds, to: S) -> Result<S::Ok, S::Error> {
        (*bounds == RampBounds::Truncated).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<RampBounds, D::Error> {
        Ok(if bool::deserialize(from)? {
            RampBounds::Truncated
        } else {
            RampBounds::Exact
        })
    }
}

words! {
    /// A law by which an encoding is stretched.
    "scaling" ScaleType {
        /// The plain encoding.
        None = "none",
        /// Position interpolation; a table resized linearly.
        Linear = "linear",
        /// RoPE of a larger base.
        Ntk = "ntk",
        /// RoPE of a base that grows with the length.
        Dynamic = "dynamic",
        /// A ramp from unchanged to interpolated, and a factor on cos and sin.
        Yarn = "yarn",
        /// One divisor per pair, from one of two lists by length.
        LongRope = "longrope",
        /// The ramp of Llama 3.1 over wavelengths.
        Llama3 = "llama3",
        /// Frequencies spread over the whole head, the slow ones zero.
        Proportional = "proportional",
        /// A table resized by cubic convolution.
        Cubic = "cubic",
        /// A table repeated.
        Tile = "tile",
        /// A table extended by Su's hierarchical decomposition.
        Hierarchical = "hierarchical",
        /// A table cut off.
        Truncate = "truncate",
    }
}

words! {
    /// The runtime that a rewrite is for.
    "target" Target {
        /// Operators that every runtime has.
        Portable = "portable",
        /// ONNX Runtime on the CPU.
        OrtCpu = "ort-cpu",
        /// ONNX Runtime on CUDA.
        OrtCuda = "ort-cuda",
        /// tract.
        Tract = "tract",
    } default Portable
}

words! {
    /// What an input means.
    "input role" InputRole {
        /// Position ids.
        Position = "position",
        /// A padding mask.
        Padding = "padding",
        /// Ids, embeddings, pixels, audio.
        Content = "content",
    }
}

words! {
    /// In which type tables are computed before they are stored.
    "precision" TablePrecision {
        /// As PyTorch computes them.
        F32 = "f32",
        /// As the formula says, rounded once.
        F64 = "f64",
    }
}

words! {
    /// Which points of two grids coincide.
    "corners" Corners {
        /// The edges of the outermost cells.
        HalfPixel = "half-pixel",
        /// The centers of the outermost cells.
        Aligned = "aligned",
    } default HalfPixel
}

words! {
    /// Whether a table is smoothed before it is made smaller.
    "antialiasing" Antialias {
        /// As it is.
        Off = "off",
        /// Smoothed.
        On = "on",
    } default Off
}

words! {
    /// When the length of an encoding is known.
    "length" Length {
        /// As the graph has it.
        AsFound = "as-found",
        /// When the graph runs.
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
            "parameters": {"factor": 4.0, "truncate": false, "image_size": "3x4"},
            "hf_config": {"rope_theta": 1e6}, "input_roles": {"pos": "position"},
            "allowances": {"allow_rescale": true}
        }"#;
        let request: Request = serde_json::from_str(text).unwrap();
        let again = serde_json::to_string(&request).unwrap();
        let again: Request = serde_json::from_str(&again).unwrap();
        assert_eq!(again, request);
        assert_eq!(request.layers, Some("0-2,5".parse().unwrap()));
        let exact = posenc_encodings::laws::RampBounds::Exact;
        assert_eq!(request.parameters.bounds, exact);
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
            r#"{"allowances": {"rescale": true}}"#,
        ] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
    }
}
