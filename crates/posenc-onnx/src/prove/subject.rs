//! A model under test, ready to be loaded by runtimes.

use posenc_ir::{DType, Model, ValueId};
use posenc_runtime::{Optimization, Session};

use super::VerifyError;
use super::angles::Angles;
use super::feeds::vocabulary;
use super::options::VerifyOptions;
use super::run::{RuntimeTarget, Source};
use super::tolerance::Tolerance;
use crate::detect::Found;
use crate::graph::dataflow::Class;
use crate::graph::ports::{Ports, Role};

/// A model with what it takes to run it.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) model: &'a Model,
    pub(crate) found: &'a Found,
    pub(crate) tolerance: Tolerance,
    /// The angles of its rotations, where the options leave the tolerance to their type.
    pub(crate) angles: Angles,
    /// Whether it computes in integers of 8 bits or fewer, or its matrices are stored so.
    pub(crate) is_quantized: bool,
    /// The number of tokens that it knows, where a table says that.
    pub(crate) vocabulary: Option<usize>,
    /// What errors say before the site, where there are two models.
    pub(crate) name: &'static str,
    source: Source,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        model: &'a Model,
        found: &'a Found,
        options: &VerifyOptions,
    ) -> Result<Self, VerifyError> {
        Ok(Self {
            tolerance: tolerance(model, found, options),
            angles: match options.atol {
                Some(_) => Angles::default(),
                None => Angles::of(model, found),
            },
            is_quantized: is_quantized(model, found),
            vocabulary: found
                .ports
                .first(Role::Tokens)
                .and_then(|port| vocabulary(model.graph(), port.value)),
            name: "",
            source: Source::of(model)?,
            found,
            model,
        })
    }

    /// Gives the model a name, by which errors tell it from another one.
    pub(crate) fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    pub(crate) fn ports(&self) -> &'a Ports {
        &self.found.ports
    }

    /// Whether an input says which tokens are padding.
    pub(crate) fn is_padded(&self) -> bool {
        let mut roles = self.ports().iter().map(|port| port.role);
        roles.any(|role| matches!(role, Role::Padding | Role::Counts))
    }

    pub(crate) fn load(
        &self,
        target: &RuntimeTarget<'_>,
        optimization: Optimization,
    ) -> Result<Option<Box<dyn Session>>, VerifyError> {
        let session = target.open(&self.source, optimization);
        session.map_err(|error| error.of_model(self.name))
    }
}

/// The coarsest type in which a model computes content, or sines and cosines of positions that meet it: an angle that
/// is rounded differently by two runtimes shows in the outputs as content does.
pub(crate) fn coarsest(model: &Model, found: &Found) -> DType {
    let graph = model.graph();
    let is_wave = |v: ValueId| {
        let maker = graph.producer(v).map(|(id, _)| graph.node(id));
        maker.is_some_and(|node| node.is("Sin") || node.is("Cos"))
    };
    let types = graph.values().filter_map(|v| {
        let class = found.classes.of_value(v);
        let counts = class.has(Class::CONTENT) || class.has(Class::POSITION) && is_wave(v);
        found.trace.get(v).dtype.filter(|_| counts)
    });
    let coarsest = types
        .filter_map(|t| Some((t, t.epsilon()?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    coarsest.map_or(DType::F32, |(dtype, _)| dtype)
}

/// The tolerance of the options, or that of the coarsest type in which the model computes content.
pub(crate) fn tolerance(model: &Model, found: &Found, options: &VerifyOptions) -> Tolerance {
    let coarsest = coarsest(model, found);
    let usual = if is_quantized(model, found) {
        Tolerance::QUANTIZED
    } else {
        Tolerance::of(coarsest)
    };
    Tolerance {
        atol: options.atol.unwrap_or(usual.atol),
        rtol: options.rtol.unwrap_or(usual.rtol),
        share: if options.atol.is_some() {
            0.0
        } else {
            usual.share
        },
        rms: None,
    }
}

/// Whether content is computed in integers of 8 bits or fewer, or meets matrices that are stored so.
pub(crate) fn is_quantized(model: &Model, found: &Found) -> bool {
    let graph = model.graph();
    let small = [DType::I8, DType::U8, DType::I4, DType::U4];
    graph.values().any(|v| match graph.stored(v) {
        Some(stored) => {
            stored.dims.len() > 1 && stored.dtype.is_some_and(|dtype| small.contains(&dtype))
        }
        None => {
            let dtype = found.trace.get(v).dtype;
            dtype.is_some_and(|dtype| small.contains(&dtype)) && found.is_content(v)
        }
    })
}
