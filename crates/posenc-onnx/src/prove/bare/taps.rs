//! Convolutions that fill up the ends of a sequence tell equal tokens apart: those near the ends see
//! zeros. Each is left the one weight that meets the token itself, so that everything behind it can be
//! compared: positions that it would hide are in no weight.

use ndarray::{ArrayD, Dimension, IxDyn};
use posenc_ir::{Emitter, Graph, Model, Node, NodeId, Tensor, Use};
use rustc_hash::FxHashSet;

use crate::detect::Found;

/// Convolutions that read what is at the place of the token alone.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// Convolutions that fill up no ends any more.
    pub(super) even: FxHashSet<NodeId>,
    /// Those among them that act on each place alone.
    pub(super) alone: FxHashSet<NodeId>,
}

/// The convolutions of a model that fill up ends, and a copy in which they do not; `None` where none does.
pub(super) fn taps(model: &Model, found: &Found) -> Option<(Taps, Model)> {
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "posenc");
    let (mut even, mut alone) = (FxHashSet::default(), FxHashSet::default());
    for id in graph.order(graph.main()).ok()? {
        let Some(kernel) = Kernel::of(graph, found, id).filter(Kernel::fills) else {
            continue;
        };
        if kernel.keep_one(&mut out, graph, found, id).is_some() {
            even.insert(id);
            if kernel.is_alone() {
                alone.insert(id);
            }
        }
    }
    if even.is_empty() {
        return None;
    }
    let (model, _) = model.clone().with_patch(out.finish()).ok()?;
    Some((Taps { even, alone }, model))
}

/// Where the weights of a convolution meet its input along an axis.
struct Axis {
    size: usize,
    /// Zeros before and after the input.
    pads: [usize; 2],
    dilation: usize,
    stride: usize,
}

impl Axis {
    /// Whether zeros are read.
    fn fills(&self) -> bool {
        self.pads != [0, 0]
    }

    /// The weight that meets the first element at the first place.
    fn own(&self) -> Option<usize> {
        let own = self.pads[0] / self.dilation;
        (self.pads[0].is_multiple_of(self.dilation) && own < self.size).then_some(own)
    }
}

/// The axes of a convolution behind those of the batch and of channels.
struct Kernel(Vec<Axis>);

impl Kernel {
    fn of(graph: &Graph, found: &Found, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let convolves = matches!(
            (node.domain(), node.op()),
            ("", "Conv") | ("com.microsoft", "FusedConv")
        );
        let dims = found.trace.get(node.input(1)?).dims.as_deref()?;
        let sizes = dims.get(2..).filter(|_| convolves)?;
        let list = |name: &str| node.ints(name).ok().flatten();
        let at = |name: &str, axis: usize| {
            let n = list(name).and_then(|all| all.get(axis).copied());
            usize::try_from(n.unwrap_or(1)).ok().filter(|n| *n > 0)
        };
        let axes = sizes.iter().enumerate().map(|(axis, size)| {
            let mut own = Axis {
                size: *size,
                pads: [0, 0],
                dilation: at("dilations", axis)?,
                stride: at("strides", axis)?,
            };
            own.pads = pads(node, axis, sizes.len(), &own)?;
            Some(own)
        });
        axes.collect::<Option<Vec<_>>>().map(Self)
    }

    fn fills(&self) -> bool {
        self.0.iter().any(Axis::fills)
    }

    /// Whether each place is computed from what is there alone.
    fn is_alone(&self) -> bool {
        self.0
            .iter()
            .all(|axis| axis.stride == 1 && (axis.size == 1 || axis.fills()))
    }

    /// Multiplies all other weights along the axes that are filled up with zero.
    fn keep_one(
        &self,
        out: &mut Emitter<'_>,
        graph: &Graph,
        found: &Found,
        id: NodeId,
    ) -> Option<()> {
        let weights = graph.node(id).input(1)?;
        let dtype = graph.dtype(weights).or(found.trace.get(weights).dtype)?;
        let kept: Option<Vec<Option<usize>>> = self
            .0
            .iter()
            .map(|axis| match axis.fills() {
                true => axis.own().map(Some),
                false => Some(None),
            })
            .collect();
        let kept = kept?;
        let dims: Vec<usize> = [1, 1]
            .into_iter()
            .chain(self.0.iter().map(|a| a.size))
            .collect();
        let is_kept = |at: IxDyn| {
            let places = at.slice()[2..].iter().zip(&kept);
            let own = places
                .into_iter()
                .all(|(i, own)| own.is_none_or(|own| own == *i));
            f64::from(u8::from(own))
        };
        let mask = ArrayD::from_shape_fn(&dims[..], is_kept);
        let mask: Vec<f64> = mask.iter().copied().collect();
        let mask = out.constant("tap", Tensor::from_f64(dtype, &dims, &mask));
        let own = out.op("Mul", &[weights, mask]);
        out.redirect_use(weights, Use::new(id, 1), own).ok()
    }
}

/// Zeros before and after the input along an axis; `None` where they depend on its size.
fn pads(node: &Node, axis: usize, rank: usize, own: &Axis) -> Option<[usize; 2]> {
    let auto = node.string("auto_pad").ok().flatten();
    let all = own.dilation * own.size.saturating_sub(1);
    match auto.unwrap_or("NOTSET") {
        "NOTSET" => {
            let all = node.ints("pads").ok().flatten().unwrap_or_default();
            let at = |i: usize| usize::try_from(all.get(i).copied().unwrap_or(0)).ok();
            Some([at(axis)?, at(axis + rank)?])
        }
        "VALID" => Some([0, 0]),
        "SAME_UPPER" if own.stride == 1 => Some([all / 2, all.div_ceil(2)]),
        "SAME_LOWER" if own.stride == 1 => Some([all.div_ceil(2), all / 2]),
        _ => None,
    }
}
