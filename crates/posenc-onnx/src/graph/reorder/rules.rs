//! What the order of one value of a node says of its others.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::fixed::Sizes;
use super::order::Order;
use super::spread::{End, Spread};
use crate::graph::operators::{is_elementwise, is_reshape, is_rotary};

/// A node to be followed.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) graph: &'a Graph,
    /// The version of ai.onnx.
    pub(super) opset: i64,
    pub(super) trace: &'a Trace,
    /// A run at other lengths.
    pub(super) other: Option<&'a Trace>,
    /// The values whose elements reach an output.
    pub(super) live: &'a FxHashSet<ValueId>,
    pub(super) id: NodeId,
    /// Whether it will rotate features in the new order.
    pub(super) is_turned: bool,
}

impl<'a> View<'a> {
    pub(super) fn node(&self) -> &'a Node {
        self.graph.node(self.id)
    }

    /// The dimensions of a value in the trial run.
    pub(super) fn dims(&self, end: End) -> Option<&'a [usize]> {
        self.dims_in(self.trace, end)
    }

    /// The dimensions of a value in a run.
    pub(super) fn dims_in(&self, run: &'a Trace, end: End) -> Option<&'a [usize]> {
        let value = match end {
            End::In(slot) => self.node().input(slot),
            End::Out(slot) => self.node().output(slot),
        };
        run.get(value?).dims.as_deref()
    }

    pub(super) fn sizes(&self) -> Sizes<'a> {
        Sizes {
            graph: self.graph,
            run: self.trace,
            other: self.other,
        }
    }

    pub(super) fn rank(&self, end: End) -> Result<usize, String> {
        let dims = self.dims(end).ok_or("the sizes of its values are unknown");
        Ok(dims.map(<[usize]>::len)?)
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.node().int(name).ok().flatten()
    }

    /// An axis that may be counted from the end.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize, String> {
        let at = if axis < 0 { axis + rank as i64 } else { axis };
        let at = usize::try_from(at).ok().filter(|at| *at < rank);
        at.ok_or_else(|| format!("its axis {axis} does not exist"))
    }

    /// The numbers of an input, or of an attribute where older opsets have one; `None` where they are not the same for
    /// all lengths.
    pub(super) fn list(&self, slot: usize, name: &str) -> Option<Vec<i64>> {
        match self.node().input(slot) {
            Some(v) if !self.sizes().is_fixed(v) => None,
            Some(v) => Some(self.trace.get(v).to_i64()?.iter().copied().collect()),
            None => self.node().ints(name).ok()?.map(<[i64]>::to_vec),
        }
    }

    /// What the order of one value says of the others.
    ///
    /// # Errors
    /// With the reason why the node cannot have it.
    pub(super) fn spread(&self, end: End, order: &Order) -> Result<Spread, String> {
        let node = self.node();
        let op = node.op();
        if let Some(made) = self.attention(end, order) {
            return made;
        }
        if let Some(product) = self.product() {
            return self.multiplied(&product, end, order);
        }
        match (node.domain(), op) {
            _ if is_rotary(node) => self.rotated(end, order),
            (
                "" | "com.microsoft",
                "LayerNormalization"
                | "RMSNormalization"
                | "SimplifiedLayerNormalization"
                | "LpNormalization",
            ) => self.normalized(end, order),
            ("" | "com.microsoft", "QuantizeLinear" | "DequantizeLinear") => {
                self.quantized(end, order)
            }
            ("", "DynamicQuantizeLinear") => match end {
                End::In(0) => Ok(Spread::of(vec![(End::Out(0), order.clone())])),
                End::Out(0) => Ok(Spread::of(vec![(End::In(0), order.clone())])),
                _ => Err("its scale has no features".to_owned()),
            },
            ("", "Conv") => self.convolved(end, order),
            ("", "Einsum") => self.summed(end, order),
            ("", "Shape" | "Size" | "ConstantOfShape") => Ok(Spread::default()),
            ("", op) if op.starts_with("Reduce") => self.reduced(end, order),
            ("", op) if is_reshape(op) => self.reshaped(end, order),
            ("", "Transpose") => self.transposed(end, order),
            ("", "Expand") => self.broadcast(end, order, &[0]),
            ("", "Tile") => self.tiled(end, order),
            ("", "Split" | "Slice" | "Gather") => self.selected(end, order),
            ("", "Concat") => self.joined(end, order),
            ("", "Softplus" | "Not" | "And" | "Or" | "IsNaN" | "HardSwish" | "Gelu" | "Swish") => {
                self.elementwise(end, order)
            }
            ("", op) if is_elementwise(op) => self.elementwise(end, order),
            (domain, op) => {
                let domain = if domain.is_empty() { "ai.onnx" } else { domain };
                Err(format!(
                    "{op} of {domain} is not known to take features in another order"
                ))
            }
        }
    }

    /// Element by element.
    fn elementwise(&self, end: End, order: &Order) -> Result<Spread, String> {
        let inputs: Vec<usize> = (0..self.node().inputs().len()).collect();
        self.broadcast(end, order, &inputs)
    }

    /// The order of the first output and of these inputs, which are aligned at their last axes.
    pub(super) fn broadcast(
        &self,
        end: End,
        order: &Order,
        inputs: &[usize],
    ) -> Result<Spread, String> {
        let rank = self.rank(End::Out(0))?;
        let is_aligned = match end {
            End::In(slot) => inputs.contains(&slot),
            End::Out(slot) => slot == 0,
        };
        if !is_aligned {
            return Err("it reads features as sizes".to_owned());
        }
        let shift = rank - self.rank(end)?;
        let whole = order.moved(|axis| axis + shift);
        let mut ends = vec![(End::Out(0), whole.clone())];
        for slot in inputs {
            let end = End::In(*slot);
            let Some(dims) = self.dims(end) else {
                continue;
            };
            let shift = rank - dims.len();
            let own = along(&whole, |axis| axis >= shift && dims[axis - shift] != 1)
                .ok_or("an operand would differ along an axis that it has not")?;
            ends.push((end, own.moved(|axis| axis - shift)));
        }
        Ok(Spread::of(ends))
    }

    /// Operators that rotate features.
    fn rotated(&self, end: End, order: &Order) -> Result<Spread, String> {
        if !self.is_turned {
            return Err("it rotates features, and keeps their order".to_owned());
        }
        match end {
            End::In(0) | End::Out(0) => Ok(Spread::of(vec![
                (End::In(0), order.clone()),
                (End::Out(0), order.clone()),
            ])),
            _ => Err("its cosines and sines have an order of their own".to_owned()),
        }
    }

    /// Norms over the last axes, or over one.
    fn normalized(&self, end: End, order: &Order) -> Result<Spread, String> {
        let rank = self.rank(End::In(0))?;
        let first = self.axis(self.int("axis").unwrap_or(-1), rank)?;
        let axes: Vec<usize> = match self.node().op() {
            "LpNormalization" => vec![first],
            _ => (first..rank).collect(),
        };
        let made = self.elementwise(end, order)?;
        let whole = made.ends.iter().find(|(end, _)| *end == End::Out(0));
        let moves = whole.is_some_and(|(_, order)| order.axes().iter().any(|a| axes.contains(a)));
        let stays = whole.is_none_or(|(_, order)| order.stays_outside(&axes));
        if moves && !stays {
            return Err("it normalizes over a part of the features that move".to_owned());
        }
        Ok(made)
    }

    fn quantized(&self, end: End, order: &Order) -> Result<Spread, String> {
        let rank = self.rank(End::In(0))?;
        let scales = self
            .dims(End::In(1))
            .ok_or("the size of its scale is unknown")?;
        let axis = self.axis(self.int("axis").unwrap_or(1), rank.max(1));
        let whole = match end {
            End::In(0) | End::Out(0) => order.clone(),
            _ if scales.len() == 1 => {
                let axis = axis?;
                let from = order.of_axis(0).ok_or("its scale has no such axis")?;
                Order::along(axis, from.to_vec())
            }
            _ => return Err("its scales have features of several blocks".to_owned()),
        };
        let mut ends = vec![(End::In(0), whole.clone()), (End::Out(0), whole.clone())];
        let of_scale = match scales.len() {
            _ if scales.iter().all(|size| *size == 1) => Order::unmoved(),
            1 => {
                let axis = self.axis(self.int("axis").unwrap_or(1), rank)?;
                let own = along(&whole, |other| other == axis)
                    .ok_or("its scale would differ along an axis that it has not")?;
                own.moved(|_| 0)
            }
            // In blocks along one axis.
            _ => {
                let dims = self.dims(End::In(0)).unwrap_or_default();
                let is_same = |axis: &usize| dims.get(*axis) == scales.get(*axis);
                if !whole.axes().iter().all(is_same) {
                    return Err("its features are quantized in blocks".to_owned());
                }
                whole.clone()
            }
        };
        ends.extend([1, 2].map(|slot| (End::In(slot), of_scale.clone())));
        Ok(Spread::of(ends))
    }

    /// Sums, means and the like, which take elements in any order.
    fn reduced(&self, end: End, order: &Order) -> Result<Spread, String> {
        let rank = self.rank(End::In(0))?;
        let none = self.int("noop_with_empty_axes").unwrap_or(0) == 1;
        let axes = match self.list(1, "axes") {
            Some(axes) if !axes.is_empty() => {
                let axes = axes.into_iter().map(|axis| self.axis(axis, rank));
                axes.collect::<Result<Vec<_>, _>>()?
            }
            _ if self.node().input(1).is_some() && self.list(1, "axes").is_none() => {
                return Err("the axes that it reduces are unknown".to_owned());
            }
            _ if none => vec![],
            _ => (0..rank).collect(),
        };
        let keeps = self.int("keepdims").unwrap_or(1) == 1;
        let left: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
        match end {
            End::In(0) if order.axes().iter().all(|axis| !axes.contains(axis)) => {
                let to = |axis: usize| match keeps {
                    true => axis,
                    false => left.iter().position(|own| *own == axis).unwrap_or(axis),
                };
                Ok(Spread::of(vec![(End::Out(0), order.moved(to))]))
            }
            End::In(0) if order.stays_outside(&axes) => Ok(Spread::default()),
            End::Out(0) => {
                let from = |axis: usize| if keeps { axis } else { left[axis] };
                Ok(Spread::of(vec![(End::In(0), order.moved(from))]))
            }
            _ => Err("it reduces a part of the features that move".to_owned()),
        }
    }
}

/// The order along the axes that are kept, of a value that is equal along the others; `None` where it would have
/// to differ along one of these.
fn along(order: &Order, keeps: impl Fn(usize) -> bool) -> Option<Order> {
    let mut order = order.clone();
    while let Some(axis) = order.axes().iter().find(|axis| !keeps(**axis)).copied() {
        order = order.without(axis)?;
    }
    Some(order)
}
