//! What a rewrite is asked to do, as the command line can say it.
//!
//! A field that is `None` was not said: the rewrite infers it, and reports from where.

pub mod hf_config;
mod layers;
mod list;
pub mod params;
mod rope;
mod scale;
mod size;
mod unserved;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use layers::{Layers, LayersError};
pub use list::{ListError, parse_list};
pub use posenc_encodings::laws::LawName;
pub use rope::{RopeScalingError, rope_scaling};
pub use scale::ScaleType;
pub use size::{ImageSize, ImageSizeError};

use crate::attention::Site;
use posenc_encodings::kind::{Form, Kind, Layout, Stack};
use posenc_encodings::param::Given;
use posenc_encodings::words;

/// A rewrite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The kind of encoding afterwards; `None`: the kind found stays.
    pub to: Option<Kind>,
    /// The law by which the encoding is stretched.
    pub scale: Option<ScaleType>,
    /// Values of the encoding and of its scaling.
    pub parameters: Parameters,
    /// A Hugging Face `config.json` that the graph is to follow.
    pub hf_config: Option<PathBuf>,
    /// A safetensors file with learned values.
    pub params: Option<PathBuf>,
    /// The attention sites, counted within their stack; `None`: all.
    pub layers: Option<Layers>,
    /// The stack; `None`: both.
    pub stack: Option<Stack>,
    /// How the encoding is to stand in the graph; `None`: the form found stays.
    pub form: Option<Form>,
    /// The runtime that the result is for.
    pub target: Target,
    /// What becomes of tensors in other files.
    pub external_data: ExternalData,
    /// What inputs are, where their names and uses do not tell.
    pub input_roles: BTreeMap<String, InputRole>,
    /// What is done only when asked for.
    pub allowances: Allowances,
}

impl Request {
    /// Whether a site is spoken of: self-attention of the stack and the layers that are named.
    pub(crate) fn names(&self, site: &Site) -> bool {
        let stack = self.stack.is_none_or(|s| site.place.stack == Some(s));
        let layers = self.layers.as_ref();
        stack && !site.cross && layers.is_none_or(|l| l.contains(site.place.layer))
    }

    /// Whether an order of computation is all that is asked for.
    pub fn is_only_sort(&self) -> bool {
        let sort = Allowances {
            sort: true,
            ..Allowances::default()
        };
        let only = Self {
            target: self.target,
            external_data: self.external_data,
            input_roles: self.input_roles.clone(),
            allowances: sort,
            ..Self::default()
        };
        *self == only
    }
}

/// Values of an encoding and of its scaling.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Parameters of laws of RoPE.
    pub law: Given,
    /// Parameters of the family that a rewrite inserts, by the names that it declares.
    pub family: Given,
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

/// What is done only when asked for; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// What becomes of tensors that stand in other files.
    "treatment of external data" ExternalData {
        /// Keep in the same folder, else link, else copy.
        Auto = "auto",
        /// Reference the same file.
        Keep = "keep",
        /// Share its blocks, or a hard link.
        Link = "link",
        /// Copy it.
        Copy = "copy",
        /// Embed it.
        Inline = "inline",
    } default Auto
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
