//! Biases on the scores of attention that is one operator: the input for them, or for a mask.

use posenc_ir::{DType, Emitter, Node, Use, ValueId};

use super::biases::{Biases, LOWEST_HALF};
use super::grid::{Counts, Number, length};
use super::layout::Layout;
use super::place::Place;
use crate::attention::Site;
use crate::edit::insert::axes::Axes;
use crate::edit::insert::unfold;
use crate::error::RewriteError;

/// What an operator says of its keys, and where it takes a bias.
struct Taken {
    /// The input for biases or masks.
    slot: usize,
    /// Earlier keys and the axis along which they stand.
    past: Option<(usize, usize)>,
    /// The input that tells how many keys there are, and that of the last index of each sequence.
    said: Option<(usize, usize)>,
    /// Inputs and attributes that make it another operator.
    unknown: (&'static [usize], &'static [&'static str]),
    /// A mask may be one of truth values.
    standard: bool,
}

impl Taken {
    fn by(node: &Node) -> Option<Self> {
        let plain = Self {
            slot: 5,
            past: None,
            said: None,
            unknown: (&[], &[]),
            standard: false,
        };
        Some(match (node.domain(), node.op()) {
            ("", "Attention") => Self {
                slot: 3,
                past: Some((4, 2)),
                unknown: (&[6], &["softcap"]),
                standard: true,
                ..plain
            },
            ("com.microsoft", "Attention") => Self {
                past: Some((4, 3)),
                unknown: (&[6], &["do_rotary", "past_present_share_buffer"]),
                ..plain
            },
            ("com.microsoft", "MultiHeadAttention") => Self {
                past: Some((6, 2)),
                unknown: (&[8, 9], &[]),
                ..plain
            },
            ("com.microsoft", "GroupQueryAttention") => Self {
                slot: 10,
                said: Some((6, 5)),
                ..plain
            },
            _ => return None,
        })
    }
}

impl Biases<'_, '_> {
    /// Adds the bias of a site that is one operator.
    pub(crate) fn fuse(&mut self, out: &mut Emitter<'_>, site: &Site) -> Result<(), RewriteError> {
        let context = self.context;
        let refuse = |why: &str| context.refuse(site.node, why);
        let node = context.graph().node(site.node);
        let taken = Taken::by(node).ok_or_else(|| {
            refuse("the operator takes no bias; write it in plain operators first")
        })?;
        let given = |slot: &usize| node.input(*slot).is_some();
        let set = |name: &&str| match node.attribute(name) {
            Some(_) => {
                node.float(name).ok().flatten() != Some(0.0)
                    && node.int(name).ok().flatten() != Some(0)
            }
            None => false,
        };
        if taken.unknown.0.iter().any(given) || taken.unknown.1.iter().any(set) {
            let why = "the operator has inputs or attributes beside which a bias is not supported";
            return Err(refuse(why));
        }
        let heads = site
            .heads
            .ok_or_else(|| refuse("its heads are not known"))?;
        let old = node.input(taken.slot);
        let straight = self.spec.bias.is_straight();
        // A sink beside the keys can tell a constant for each query.
        let sink = (11..node.inputs().len()).any(|slot| given(&slot)) || set(&"smooth_softmax");
        let counts = counts(self.scores.axes, site, node, &taken, straight && !sink);
        let counts = counts.ok_or_else(|| refuse("how many keys there are is not known"))?;
        let ragged = counts.last.is_some();
        let place = Place {
            stage: 0,
            mask: None,
            layout: Layout::of_operator(heads, ragged),
            // Operators do not broadcast along queries.
            by_key: false,
        };
        let grid = self.scores.grids.of(site, counts);
        let bias = self.bias(out, site, grid, &place, site.query.value)?;
        let Some(old) = old else {
            return self.give(out, site, taken.slot, bias);
        };
        let dtype = context.dtype(site.query.value);
        let merged = match context.dtype(old) {
            DType::Bool if taken.standard => self.chosen(out, site, old, bias, dtype),
            have if have == dtype => self.merged(out, site, old, bias),
            _ => {
                return Err(refuse(
                    "its mask is neither of the type of its scores nor of bool",
                ));
            }
        };
        match is_whole(node) {
            true => self.give(out, site, taken.slot, merged),
            false => Ok(out.redirect_use(old, Use::new(site.node, taken.slot), merged)?),
        }
    }

    /// Puts the operator with the bias in place of the one without.
    fn give(
        &self,
        out: &mut Emitter<'_>,
        site: &Site,
        slot: usize,
        bias: ValueId,
    ) -> Result<(), RewriteError> {
        let context = self.context;
        let node = context.graph().node(site.node);
        // ONNX Runtime takes no bias beside a cache where the operator projects by itself.
        let parts = match is_whole(node) {
            true => unfold::parts(out, context, site)?,
            false => None,
        };
        if let Some(mut parts) = parts {
            parts.bias = Some(bias);
            return parts.join(out, context, site);
        }
        let mut inputs = node.inputs().to_vec();
        inputs.resize(inputs.len().max(slot + 1), None);
        inputs[slot] = Some(bias);
        let made = out.copy(site.node, &inputs, &[])?;
        for (old, new) in node.outputs().iter().zip(made) {
            if let Some((old, new)) = old.zip(new) {
                out.redirect(old, new)?;
            }
        }
        Ok(())
    }

    /// A mask of truth values as numbers: the bias where a pair is seen.
    fn chosen(
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

/// Whether an operator holds both its projection and a cache.
fn is_whole(node: &Node) -> bool {
    node.domain() == "com.microsoft" && node.op() == "Attention" && node.input(4).is_some()
}

/// How many queries and keys an operator has. `even` tells that a constant for each query does not
/// matter.
fn counts(axes: &Axes<'_>, site: &Site, node: &Node, taken: &Taken, even: bool) -> Option<Counts> {
    let context = axes.context;
    let (query, key) = (site.query, site.key);
    let queries = Number::Along(vec![length(axes, query.value, query.lane.sequence)]);
    if let Some((total, last)) = taken.said {
        return Some(Counts {
            queries,
            keys: Some(Number::Said(node.input(total)?)),
            last: Some(node.input(last)?).filter(|_| !even),
        });
    }
    let past = taken
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
        keys: keys.map(Number::Along),
        last: None,
    })
}
