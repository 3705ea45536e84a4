//! What the model computes for a choice of inputs.

use ndarray::ArrayD;
use posenc_ir::{Model, Tensor, ValueId};
use posenc_runtime::{Backend, ModelSource, Optimization, Session};
use rustc_hash::FxHashMap;

use super::alone::Alone;
use super::limits::Limits;
use super::stand_ins::stand_ins;
use crate::detect::Found;
use crate::graph::operators::cache_slots;
use crate::prove::VerifyError;
use crate::prove::compute::array;
use crate::prove::run::{load, run};

/// How messages name the whole model.
const MODEL: &str = "the whole model";

/// What a run computes.
pub(super) type Numbers = FxHashMap<ValueId, ArrayD<f64>>;

/// The part of a model that computes some values, loaded once.
pub(super) struct Runs {
    session: Box<dyn Session>,
    /// The bytes of weights in whose place others ran.
    pub(super) stood_in: usize,
    /// The values with their names in that part.
    wanted: Vec<(ValueId, String)>,
}

impl Runs {
    pub(super) fn load(
        (model, found): (&Model, &Found),
        wanted: &[ValueId],
        alone: &Alone,
        backend: &dyn Backend,
        limits: Limits,
    ) -> Result<Self, VerifyError> {
        let small = stand_ins(model, found, limits);
        let whole = small.as_ref().map_or(model, |s| &s.model);
        let now = |v: ValueId| {
            let moved = small.as_ref().and_then(|s| s.moved.get(&v));
            moved.copied().unwrap_or(v)
        };
        let replaced = match alone.is_empty() {
            true => None,
            false => Some(alone.replaced(whole, now)?),
        };
        let last = |v: ValueId| {
            let moved = replaced.as_ref().and_then(|r| r.moved.get(&v));
            moved.copied().unwrap_or(v)
        };
        let computed: Vec<ValueId> = wanted.iter().map(|v| last(now(*v))).collect();
        let mut kept = computed.clone();
        kept.extend(caches(model, found).map(|v| last(now(v))));
        let whole = replaced.as_ref().map_or(whole, |r| &r.model);
        let graph = whole.graph();
        let cut = whole.cut(&[], &kept, Limits::USUAL.weights)?;
        let source = ModelSource::Bytes {
            model: &cut.bytes,
            folder: None,
        };
        // A fault of an optimizer is none of the model's.
        let session = load(backend, source, Optimization::Off);
        let session = session.map_err(|e| VerifyError::runtime(MODEL, e))?;
        let names = computed.iter().map(|v| graph.name(*v).to_owned());
        Ok(Self {
            session,
            stood_in: small.as_ref().map_or(0, |s| s.bytes),
            wanted: wanted.iter().copied().zip(names).collect(),
        })
    }

    /// The numbers of the values that were wanted.
    pub(super) fn of(&mut self, feeds: &[(String, Tensor)]) -> Result<Numbers, VerifyError> {
        let outputs = run(&mut *self.session, feeds, MODEL)?;
        let by_name: FxHashMap<&str, &Tensor> =
            outputs.iter().map(|(name, t)| (name.as_str(), t)).collect();
        let numbers = self.wanted.iter().filter_map(|(value, name)| {
            let tensor = by_name.get(name.as_str())?;
            Some((*value, array(tensor)?))
        });
        Ok(numbers.collect())
    }
}

/// The caches that operators of attention write. ONNX Runtime writes one into the buffer of the cache before it, which
/// is shorter, unless the model returns it.
fn caches<'a>(model: &'a Model, found: &'a Found) -> impl Iterator<Item = ValueId> + 'a {
    let graph = model.graph();
    let written = found.attention.iter().filter(|site| site.past);
    let outputs = written.flat_map(|site| {
        let node = graph.node(site.node);
        (1..=cache_slots(node).len()).filter_map(|slot| node.output(slot))
    });
    outputs.filter(|v| graph.value(*v).is_output())
}
