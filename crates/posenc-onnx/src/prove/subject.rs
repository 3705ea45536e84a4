//! A model under test, ready to be loaded by runtimes.

use posenc_ir::{DType, Model};
use posenc_runtime::{Optimization, Session};

use super::VerifyError;
use super::options::VerifyOptions;
use super::run::{RuntimeTarget, Source};
use super::tolerance::Tolerance;
use crate::detect::Found;
use crate::graph::dataflow::Class;
use crate::graph::ports::Ports;

/// A model with what it takes to run it.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) model: &'a Model,
    pub(crate) found: &'a Found,
    pub(crate) tolerance: Tolerance,
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
            source: Source::of(model)?,
            found,
            model,
        })
    }

    pub(crate) fn ports(&self) -> &'a Ports {
        &self.found.ports
    }

    pub(crate) fn load(
        &self,
        target: &RuntimeTarget<'_>,
        optimization: Optimization,
    ) -> Result<Option<Box<dyn Session>>, VerifyError> {
        target.load(&self.source, optimization)
    }
}

/// The tolerance of the options, or that of the coarsest type in which the model computes content.
pub(crate) fn tolerance(model: &Model, found: &Found, options: &VerifyOptions) -> Tolerance {
    let types = model.graph().values().filter_map(|v| {
        let content = found.classes.of_value(v).has(Class::CONTENT);
        found.trace.get(v).dtype.filter(|_| content)
    });
    let coarsest = types
        .filter_map(|t| Some((t, t.epsilon()?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let usual = Tolerance::of(coarsest.map_or(DType::F32, |(dtype, _)| dtype));
    Tolerance {
        atol: options.atol.unwrap_or(usual.atol),
        rtol: options.rtol.unwrap_or(usual.rtol),
    }
}
