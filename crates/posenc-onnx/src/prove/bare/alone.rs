//! What mixes tokens outside of attention hides what is before and behind it: borders that are filled up
//! and recurrences tell equal tokens apart, and no token moves alone. In its place runs something that is
//! computed from each token alone, so that everything behind it can be compared. What it reads is
//! compared too.

use posenc_ir::{Attr, DType, Emitter, Error, Graph, Model, NodeId, Tensor, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::uneven::Begins;
use crate::detect::Found;
use crate::detect::rows::Spread;
use crate::graph::bodies::{stacked_axis, states};
use crate::graph::operators::is_random;

/// The first version in which a sum has its axes as an input.
const AXES_AS_INPUT: i64 = 13;

/// How many steps of integers stand for 1.
const WHOLE: f64 = 64.0;

/// A value in the trial run.
#[derive(Clone, Debug)]
struct Known {
    value: ValueId,
    dims: Vec<usize>,
    dtype: DType,
    /// The axes of tokens.
    tokens: Vec<usize>,
    /// The axes of features, which have the same sizes in every run.
    features: Vec<usize>,
}

impl Known {
    fn of(graph: &Graph, found: &Found, value: ValueId, tokens: &[usize]) -> Option<Self> {
        let known = found.trace.get(value);
        let dims = known.dims.clone()?;
        let maker = graph.producer(value).map(|(id, _)| graph.node(id).op());
        let has_channels = maker.is_some_and(|op| op.contains("Conv") || op.contains("Pool"));
        let features = match has_channels {
            true => Some(1),
            false => others(dims.len(), tokens).next_back(),
        };
        let is_inside = tokens.iter().all(|axis| *axis < dims.len());
        is_inside.then_some(Self {
            value,
            features: features.into_iter().collect(),
            dims,
            dtype: graph.dtype(value).or(known.dtype)?,
            tokens: tokens.to_vec(),
        })
    }

    /// What attention gives, whose heads have features of their own: all axes but those of tokens are features.
    fn with_heads(mut self) -> Self {
        self.features = others(self.dims.len(), &self.tokens).collect();
        self
    }

    fn is_number(&self) -> bool {
        self.dtype.is_float() || self.dtype == DType::I32
    }

    /// How many tokens there are along each axis.
    fn counts(&self) -> Vec<usize> {
        self.tokens.iter().map(|axis| self.dims[*axis]).collect()
    }

    /// A number between -1 and 1 for each feature, the same along all other axes.
    fn pattern(&self, out: &mut Emitter<'_>, step: f64) -> ValueId {
        let mut sizes = vec![1; self.dims.len()];
        for axis in &self.features {
            sizes[*axis] = self.dims[*axis];
        }
        let count: usize = sizes.iter().product();
        let numbers: Vec<f64> = (0..count).map(|i| (1.0 + step * i as f64).cos()).collect();
        out.constant("pattern", Tensor::from_f64(DType::F32, &sizes, &numbers))
    }
}

/// The axes that are neither of tokens nor of the batch, which is the first of the others.
fn others(rank: usize, tokens: &[usize]) -> impl DoubleEndedIterator<Item = usize> {
    let batch = usize::from(rank > 2 && tokens.contains(&0));
    let is_other = move |axis: &usize| *axis != batch && !tokens.contains(axis);
    (0..rank).filter(is_other)
}

/// An output in whose place something is computed from each token.
#[derive(Clone, Debug)]
struct Part {
    /// What has the content of each token.
    from: Known,
    to: Known,
}

/// What is replaced in a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Alone {
    parts: Vec<Part>,
    /// The nodes that tell equal tokens apart no more.
    pub(super) even: FxHashSet<NodeId>,
    /// Those among them of which each token is computed from the same token.
    pub(super) each: FxHashSet<NodeId>,
}

/// A model in which nothing but attention mixes tokens.
pub(super) struct Replaced {
    pub(super) model: Model,
    /// The value that each replaced value is.
    pub(super) moved: FxHashMap<ValueId, ValueId>,
}

impl Alone {
    /// What can be replaced besides attention.
    pub(super) fn of(graph: &Graph, found: &Found) -> Self {
        let mut alone = Self::default();
        let begins = Begins::of(graph, found);
        let by_node = found.spread.iter().map(|mixer| (mixer.node, mixer));
        let by_node: FxHashMap<NodeId, &Spread> = by_node.collect();
        for mixer in &found.spread {
            let id = mixer.node;
            let Some(part) = part((graph, found), &by_node, mixer) else {
                continue;
            };
            if !part.is_aligned() && !begins.at(id) {
                continue;
            }
            let outputs = graph.node(id).outputs().iter().flatten();
            let mut others = outputs.filter(|v| **v != part.to.value);
            let is_unused = |v: &ValueId| graph.uses(*v).is_empty() && !graph.value(*v).is_output();
            if part.is_aligned() && others.all(is_unused) {
                alone.each.insert(id);
            }
            alone.even.insert(id);
            alone.parts.push(part);
        }
        alone
    }

    /// Adds attention in which the order of tokens matters to what can be replaced.
    pub(super) fn with_ordered(mut self, graph: &Graph, found: &Found) -> Self {
        for attended in &found.attended {
            let site = &found.attention[attended.site];
            let of = |value: ValueId, axis: usize| Known::of(graph, found, value, &[axis]);
            let query = of(site.query.value, site.query.lane.sequence);
            let to = of(attended.value, attended.axis).map(Known::with_heads);
            let to = to.filter(Known::is_number);
            let (Some(from), Some(to)) = (query, to) else {
                continue;
            };
            let part = Part { from, to };
            if !site.is_ordered() || !part.is_aligned() || !found.is_content(part.from.value) {
                continue;
            }
            self.parts.push(part);
            self.each.insert(site.node);
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What is replaced, in the order of computation.
    fn in_order(&self, graph: &Graph) -> Vec<&Part> {
        let order = graph.order(graph.main()).unwrap_or_default();
        let place: FxHashMap<NodeId, usize> = order.into_iter().zip(0..).collect();
        let of = |part: &&Part| {
            let maker = graph.producer(part.to.value);
            maker.and_then(|(id, _)| place.get(&id)).copied()
        };
        let mut parts: Vec<&Part> = self.parts.iter().collect();
        parts.sort_by_key(of);
        parts
    }

    /// A copy of the model with what is computed from each token; values may have moved before.
    ///
    /// # Errors
    /// When a replaced value has another type than the trial run shows.
    pub(super) fn replaced(
        &self,
        model: &Model,
        now: impl Fn(ValueId) -> ValueId,
    ) -> Result<Replaced, Error> {
        let graph = model.graph();
        let mut out = graph.emitter(graph.main(), "posenc");
        let mut moved = FxHashMap::default();
        for part in self.in_order(graph) {
            let [mut from, mut to] = [&part.from, &part.to].map(Known::clone);
            let old = now(to.value);
            to.value = old;
            // What is added reads what was replaced before it.
            let before = now(from.value);
            from.value = moved.get(&before).copied().unwrap_or(before);
            let new = Part { from, to }.made(&mut out, model.opset());
            out.redirect(old, new)?;
            moved.insert(old, new);
        }
        let (model, _) = model.clone().with_patch(out.finish())?;
        Ok(Replaced { model, moved })
    }
}

/// The output of an operator whose tokens lie along the axes of those that it reads.
fn part(
    (graph, found): (&Graph, &Found),
    by_node: &FxHashMap<NodeId, &Spread>,
    mixer: &Spread,
) -> Option<Part> {
    let node = graph.node(mixer.node);
    let keeps_axes = matches!(
        node.op(),
        "Conv"
            | "FusedConv"
            | "ConvInteger"
            | "ConvTranspose"
            | "AveragePool"
            | "MaxPool"
            | "LpPool"
            | "LSTM"
            | "DynamicQuantizeLSTM"
            | "GRU"
            | "RNN"
            | "CumSum"
            | "Pad"
    );
    let (output, axes) = match node.op() {
        "Scan" => stacked((graph, found), mixer)?,
        _ => (
            node.output(0).filter(|_| keeps_axes && !is_random(node))?,
            mixer.axes.clone(),
        ),
    };
    let to = Known::of(graph, found, output, &axes).filter(Known::is_number)?;
    let part = |mixer: &Spread| {
        let from = Known::of(graph, found, mixer.value, &mixer.axes)?;
        let to = to.clone();
        // Several axes keep their places.
        let fits = mixer.axes.len() == 1 || from.dims.len() == to.dims.len();
        fits.then_some(Part { from, to })
    };
    let own = part(mixer)?;
    if own.is_aligned() {
        return Some(own);
    }
    // A convolution of ends that were filled up before has as many tokens as there were.
    let (before, _) = graph.producer(mixer.value)?;
    let before = by_node.get(&before).copied();
    let before = before.filter(|other| other.axes == mixer.axes);
    let aligned = before.and_then(part).filter(Part::is_aligned);
    Some(aligned.unwrap_or(own))
}

/// The only output of a `Scan` that is read and has something of each token, with its axis.
fn stacked((graph, found): (&Graph, &Found), mixer: &Spread) -> Option<(ValueId, Vec<usize>)> {
    let node = graph.node(mixer.node);
    let is_read = |v: &ValueId| !graph.uses(*v).is_empty() || graph.value(*v).is_output();
    let outputs = node.outputs().iter().skip(states(node)).enumerate();
    let mut read = outputs.filter_map(|(i, v)| Some((i, v.filter(is_read)?)));
    let (index, output) = read.next().filter(|_| mixer.axes.len() == 1)?;
    let rank = found.trace.get(output).dims.as_ref()?.len();
    let is_only = read.next().is_none();
    is_only.then(|| (output, vec![stacked_axis(node, index, rank)]))
}

impl Part {
    /// Whether both have the same tokens.
    fn is_aligned(&self) -> bool {
        self.from.counts() == self.to.counts()
    }

    /// A pattern of features plus a multiple of another one: by a number of each token, or by one of all
    /// where the output has others.
    fn made(&self, out: &mut Emitter<'_>, opset: i64) -> ValueId {
        let to = &self.to;
        let number = self.number(out, opset);
        let shape = out.op("Shape", &[to.value]);
        let [first, second] = [0.7, 1.9].map(|step| to.pattern(out, step));
        let second = out.op("Mul", &[second, number]);
        let sum = out.op("Add", &[first, second]);
        let made = out.op("Expand", &[sum, shape]);
        match to.dtype {
            DType::F32 => made,
            dtype if dtype.is_float() => out.cast(made, dtype),
            dtype => {
                let large = out.scalar("large", DType::F32, WHOLE);
                let made = out.op("Mul", &[made, large]);
                out.cast(made, dtype)
            }
        }
    }

    /// A number of each token that depends on all of its features, 1 along all other axes.
    fn number(&self, out: &mut Emitter<'_>, opset: i64) -> ValueId {
        let Part { from, to } = self;
        let is_summed = |axis: &usize| !self.is_aligned() || !from.tokens.contains(axis);
        let summed: Vec<usize> = (0..from.dims.len()).filter(is_summed).collect();
        let count: usize = summed.iter().map(|axis| from.dims[*axis]).product();
        let x = out.cast(from.value, DType::F32);
        let factors = from.pattern(out, 2.3);
        let x = out.op("Mul", &[x, factors]);
        let axes: Vec<i64> = summed.iter().map(|axis| *axis as i64).collect();
        let sum = if opset < AXES_AS_INPUT {
            out.op_with("ReduceSum", &[x], &[("axes", Attr::Ints(axes))])
        } else {
            let axes = out.ints("axes", &axes);
            out.op("ReduceSum", &[x, axes])
        };
        let share = out.scalar("share", DType::F32, 1.0 / (count.max(1) as f64).sqrt());
        let number = out.op("Mul", &[sum, share]);
        if from.tokens == to.tokens && from.dims.len() == to.dims.len() {
            return number;
        }
        let mut shape = vec![1; to.dims.len()];
        if let ([axis], true) = (&to.tokens[..], self.is_aligned()) {
            shape[*axis] = -1;
        }
        let shape = out.ints("shape", &shape);
        out.op("Reshape", &[number, shape])
    }
}
