//! The values of one side of a comparison.

use posenc_ir::{Model, NodeId, Tensor, ValueId};
use posenc_runtime::{ModelSource, Optimization, Options};

use crate::detect::Found;
use crate::prove::VerifyError;
use crate::prove::inputs;
use crate::prove::points::Point as RunPoint;
use crate::prove::run::{RuntimeTarget, run};

/// The most bytes that the weights before a value may take.
const LIMIT: usize = 1 << 31;

/// One side of a comparison: a model and its detection, in a runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its detection.
    pub found: &'a Found,
    /// What it runs on.
    pub target: &'a RuntimeTarget<'a>,
    /// Whether the runtime may optimize the graph.
    pub optimization: Optimization,
    /// The inputs that were given; empty for random ones.
    pub given: &'a [(String, Tensor)],
}

/// A value to compare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// The node of the first model that computes it.
    pub(super) node: NodeId,
    pub(super) of_a: ValueId,
    pub(super) of_b: ValueId,
}

/// Runs the part of a model that computes one value.
pub(super) fn value(side: &Side<'_>, value: ValueId, at: RunPoint) -> Result<Tensor, VerifyError> {
    let first = values(side, &[value], at)?.into_iter().next();
    let name = side.model.graph().name(value);
    first.ok_or_else(|| VerifyError::unsupported(name, "the runtime returned no output"))
}

/// Runs the part of a model that computes some values.
pub(super) fn values(
    side: &Side<'_>,
    values: &[ValueId],
    at: RunPoint,
) -> Result<Vec<Tensor>, VerifyError> {
    let graph = side.model.graph();
    let cut = side.model.cut(&[], values, LIMIT)?;
    let source = ModelSource::Bytes {
        model: &cut.bytes,
        folder: None,
    };
    let options = Options {
        provider: side.target.provider.clone(),
        optimization: side.optimization,
        fallback: side.target.fallback,
        ..Options::default()
    };
    let name = values.first().map_or("verify", |value| graph.name(*value));
    let session = side.target.backend.load(source, &options);
    let mut session = session.map_err(|e| VerifyError::runtime(name, e))?;
    let fed = inputs::fed((graph, &side.found.ports), (at.at, at.padding), side.given)?;
    let outputs = run(session.as_mut(), &fed, name)?;
    Ok(outputs.into_iter().map(|(_, tensor)| tensor).collect())
}
