//! Adds biases to fused attention, by its input for a bias or mask.

use posenc_ir::{DType, Emitter, Node, Use, ValueId};

use super::biases::{Biases, LOWEST_HALF};
use super::grid::{Counts, TokenCount, length};
use super::layout::Layout;
use super::placement::Placement;
use crate::attention::Site;
use crate::edit::insert::axes::Axes;
use crate::edit::insert::decompose;
use crate::edit::redirect::redirect_outputs;
use crate::error::RewriteError;

/// The inputs of a fused operator.
struct OperatorInputs {
    /// The input for a bias or mask.
    slot: usize,
    /// The input for earlier keys, and their token axis.
    past: Option<(usize, usize)>,
    /// The inputs for the number of keys and for the last index of each sequence.
    counts: Option<(usize, usize)>,
    /// Inputs and attributes with which a bias is not supported.
    conflicting: (&'static [usize], &'static [&'static str]),
    /// Whether a mask may be boolean.
    bool_mask: bool,
}

impl OperatorInputs {
    fn of(node: &Node) -> Option<Self> {
        let plain = Self {
            slot: 5,
            past: None,
            counts: None,
            conflicting: (&[], &[]),
            bool_mask: false,
        };
        Some(match (node.domain(), node.op()) {
            ("", "Attention") => Self {
                slot: 3,
                past: Some((4, 2)),
                conflicting: (&[6], &["softcap"]),
                bool_mask: true,
                ..plain
            },
            ("com.microsoft", "Attention") => Self {
                past: Some((4, 3)),
                conflicting: (&[6], &["do_rotary", "past_present_share_buffer"]),
                ..plain
            },
            ("com.microsoft", "MultiHeadAttention") => Self {
                past: Some((6, 2)),
                conflicting: (&[8, 9], &[]),
                ..plain
            },
            ("com.microsoft", "GroupQueryAttention") => Self {
                slot: 10,
                counts: Some((6, 5)),
                ..plain
            },
            _ => return None,
        })
    }
}

impl Biases<'_, '_> {
    /// Adds the bias of a site with fused attention.
    pub(crate) fn fuse(&mut self, out: &mut Emitter<'_>, site: &Site) -> Result<(), RewriteError> {
        let context = self.context;
        let refuse = |why: &str| context.refuse(site.node, why);
        let node = context.graph().node(site.node);
        let inputs = OperatorInputs::of(node).ok_or_else(|| {
            refuse("the operator does not support a bias; decompose it into plain operators first")
        })?;
        let given = |slot: &usize| node.input(*slot).is_some();
        let set = |name: &&str| match node.attribute(name) {
            Some(_) => {
                node.float(name).ok().flatten() != Some(0.0)
                    && node.int(name).ok().flatten() != Some(0)
            }
            None => false,
        };
        if inputs.conflicting.0.iter().any(given) || inputs.conflicting.1.iter().any(set) {
            let why = "a bias is not supported with the other inputs or attributes of the operator";
            return Err(refuse(why));
        }
        let heads = site
            .heads
            .ok_or_else(|| refuse("its heads are not known"))?;
        let old = node.input(inputs.slot);
        let straight = self.spec.bias.is_straight();
        // A sink next to the keys makes a constant for each query visible.
        let sink = (11..node.inputs().len()).any(|slot| given(&slot)) || set(&"smooth_softmax");
        let counts = counts(self.scores.axes, site, node, &inputs, straight && !sink);
        let counts = counts.ok_or_else(|| refuse("cannot determine the number of its keys"))?;
        let ragged = counts.last.is_some();
        let place = Placement {
            stage: 0,
            mask: None,
            layout: Layout::of_operator(heads, ragged),
            // Fused operators do not broadcast along queries.
            by_key: false,
        };
        let grid = self.scores.grids.of(site, counts);
        let bias = self.bias(out, site, grid, &place, site.query.value)?;
        let Some(old) = old else {
            return self.set_bias(out, site, inputs.slot, bias);
        };
        let dtype = context.dtype(site.query.value);
        let merged = match context.dtype(old) {
            DType::Bool if inputs.bool_mask => self.select(out, site, old, bias, dtype),
            have if have == dtype => self.merged(out, site, old, bias),
            _ => {
                return Err(refuse(
                    "its mask has neither the type of its scores nor bool",
                ));
            }
        };
        if projects_with_cache(node) {
            return self.set_bias(out, site, inputs.slot, merged);
        }
        out.redirect_use(old, Use::new(site.node, inputs.slot), merged)?;
        Ok(())
    }

    /// Replaces the operator by one with the bias.
    fn set_bias(
        &self,
        out: &mut Emitter<'_>,
        site: &Site,
        slot: usize,
        bias: ValueId,
    ) -> Result<(), RewriteError> {
        let context = self.context;
        let node = context.graph().node(site.node);
        // ONNX Runtime does not support a bias with a cache if the operator projects its input.
        let parts = if projects_with_cache(node) {
            decompose::decompose(out, context, site)?
        } else {
            None
        };
        if let Some(mut parts) = parts {
            parts.bias = Some(bias);
            return parts.replace(out, context, site);
        }
        let mut inputs = node.inputs().to_vec();
        inputs.resize(inputs.len().max(slot + 1), None);
        inputs[slot] = Some(bias);
        let made = out.copy(site.node, &inputs, &[])?;
        Ok(redirect_outputs(out, node, &made)?)
    }

    /// A boolean mask as numbers: the bias for visible pairs.
    fn select(
        &mut self,
        out: &mut Emitter<'_>,
        site: &Site,
        mask: ValueId,
        bias: ValueId,
        dtype: DType,
    ) -> ValueId {
        let key = (self.scores.origin(site, mask), bias, site.scope);
        if let Some((_, merged)) = self.scores.masks.iter().find(|(k, _)| *k == key) {
            return *merged;
        }
        let lowest = match dtype {
            DType::F16 => LOWEST_HALF,
            DType::F64 => f64::MIN,
            DType::BF16 => -3.38e38,
            _ => f64::from(f32::MIN),
        };
        let lowest = out.scalar("lowest", dtype, lowest);
        let merged = out.op("Where", &[mask, bias, lowest]);
        self.scores.masks.push((key, merged));
        merged
    }
}

/// Whether an operator has both its projection and a cache.
fn projects_with_cache(node: &Node) -> bool {
    node.domain() == "com.microsoft" && node.op() == "Attention" && node.input(4).is_some()
}

/// The numbers of queries and keys of an operator. `even` means that a constant for each query has
/// no effect.
fn counts(
    axes: &Axes<'_>,
    site: &Site,
    node: &Node,
    inputs: &OperatorInputs,
    even: bool,
) -> Option<Counts> {
    let context = axes.context;
    let (query, key) = (site.query, site.key);
    let queries = TokenCount::Along(vec![length(axes, query.value, query.lane.sequence)]);
    if let Some((total, last)) = inputs.counts {
        return Some(Counts {
            queries,
            keys: Some(TokenCount::Value(node.input(total)?)),
            last: Some(node.input(last)?).filter(|_| !even),
        });
    }
    let past = inputs
        .past
        .and_then(|(slot, axis)| Some((node.input(slot)?, axis)));
    let size = |value: ValueId, axis: usize| context.dims(value)?.get(axis).copied();
    let own = length(axes, key.value, key.lane.sequence);
    let square = size(key.value, key.lane.sequence)? == size(query.value, query.lane.sequence)?;
    let keys = match past {
        Some((past, axis)) => Some(vec![length(axes, past, axis), own]),
        None => (!square).then_some(vec![own]),
    };
    Some(Counts {
        queries,
        keys: keys.map(TokenCount::Along),
        last: None,
    })
}
