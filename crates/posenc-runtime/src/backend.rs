//! The interface that every runtime implements.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::path::Path;

use posenc_ir::{DType, Tensor};

use crate::error::Result;
use crate::provider::Provider;

/// Where a model is stored.
#[derive(Clone, Copy, Debug)]
pub enum ModelSource<'a> {
    /// A file; external data is in the same folder.
    File(&'a Path),
    /// An encoded `ModelProto` in memory.
    Bytes {
        /// The encoded model.
        model: &'a [u8],
        /// The folder that the locations of external data start from; `None` where there is none.
        folder: Option<&'a Path>,
    },
}

/// One dimension of a [`Port`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A size that the model fixes.
    Fixed(usize),
    /// A name that has the same size wherever it occurs.
    Symbol(String),
    /// Any size.
    Unknown,
}

impl Dim {
    /// The size, where it is fixed.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Symbol(_) | Self::Unknown => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Symbol(name) => f.write_str(name),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// An input of a model that a run must provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name in the model.
    pub name: String,
    /// The element type; `None` where it is unknown or the input is not a tensor.
    pub dtype: Option<DType>,
    /// The dimensions, outermost first; `None` where not even their number is known.
    pub dims: Option<Vec<Dim>>,
}

/// Whether the runtime may change the graph before it runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Optimization {
    /// The nodes run unchanged. tract refuses this mode: un-optimized, it gives silently wrong
    /// results for some models.
    Off,
    /// Every optimization of the runtime.
    #[default]
    On,
}

/// Whether nodes that the provider does not support may run on the processor instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// They may; see [`Session::placement`].
    #[default]
    Allowed,
    /// They may not; the error is [`RuntimeError::Unsupported`](crate::RuntimeError).
    Refused,
}

/// Whether a session records where its nodes ran, which costs time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// [`Session::placement`] stays empty.
    #[default]
    Ignored,
    /// [`Session::placement`] counts the nodes.
    Recorded,
}

/// How a model is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// What it runs on.
    pub provider: Provider,
    /// Whether the graph may be changed before it runs.
    pub optimization: Optimization,
    /// Whether nodes may run elsewhere.
    pub fallback: Fallback,
    /// Whether the session records where its nodes ran.
    pub placement: Placement,
}

/// A runtime, which threads may share.
pub trait Backend: Debug + Sync {
    /// Its name: `tract`, `onnxruntime`.
    fn name(&self) -> &'static str;

    /// Its version; `unknown` where the library does not contain it.
    fn version(&self) -> String;

    /// Loads a model.
    ///
    /// # Errors
    /// `Unavailable` where the provider is not available, `Unsupported` where the runtime refuses the
    /// model or the options.
    fn load(&self, model: ModelSource<'_>, options: &Options) -> Result<Box<dyn Session>>;
}

/// A loaded model.
pub trait Session: Debug {
    /// The inputs that a run must provide, in the model's order.
    fn inputs(&self) -> &[Port];

    /// The names of the outputs, in the model's order.
    fn outputs(&self) -> &[String];

    /// Runs the model and returns the named outputs in the order of `outputs`; all of them, in the
    /// model's order, where that is empty.
    ///
    /// # Errors
    /// `Feed` and `Output` for a request that does not fit the model, `Unsupported` where the
    /// runtime cannot run the model at these shapes, `Failed` where running fails.
    fn run(&mut self, feeds: &[(&str, Tensor)], outputs: &[&str]) -> Result<Vec<(String, Tensor)>>;

    /// The number of nodes of the optimized graph that ran on each provider, by the provider's
    /// name, over all runs; empty where it was not recorded. The first call ends the recording;
    /// later calls return the same counts.
    fn placement(&mut self) -> BTreeMap<String, usize>;
}
