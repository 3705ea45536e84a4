//! How a region changes shape and order apart from the rotation: what it computes if every angle is
//! 0 and the factor is 1.

use ndarray::{ArrayD, IxDyn};
use posenc_ir::eval::{Budget, Value, probe};
use posenc_ir::{Attr, Emitter, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::context::Context;
use crate::detect::rotary::matrices::matrices;
use crate::detect::rotary::site::ProbeMode;
use crate::error::RewriteError;
use crate::graph::lane::{back, wrap};
use crate::graph::operators::is_rearrangement;
use crate::graph::region::Region;

/// Changes of shape and order before a region that it undoes are few.
const FEW: usize = 4;

/// A change of shape or order.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// That of a node.
    Node(NodeId),
    /// An order of the axes that no single node makes: parts of the features get there along several paths.
    Order(Vec<usize>),
}

/// The changes of shape and order between a value and the output of a region, and that
/// value: its input, or what this is a rearrangement of. `None` if the region does anything else
/// apart from the rotation.
pub(crate) fn find(
    context: &Context<'_>,
    region: &Region,
    mode: Option<ProbeMode>,
) -> Option<(ValueId, Vec<Change>)> {
    let (graph, trace) = (context.graph(), &context.found.trace);
    let mut wider = region.clone();
    for _ in 0..FEW {
        if let Some(changes) = within(context, &wider, mode) {
            return Some((wider.input, changes));
        }
        let (id, output) = graph.producer(wider.input)?;
        let node = graph.node(id);
        if !is_rearrangement(node.op()) {
            return None;
        }
        wider.input_lane = back(graph, trace, id, output, 0, wider.input_lane)?;
        wider.input = node.input(0)?;
    }
    None
}

fn within(context: &Context<'_>, region: &Region, mode: Option<ProbeMode>) -> Option<Vec<Change>> {
    let (from, to) = (context.dims(region.input)?, context.dims(region.output)?);
    let none = (from == to).then(Vec::new);
    let order = order(region, from.len(), to.len()).map(|order| vec![Change::Order(order)]);
    let mut chains = none.into_iter().chain(chain(context, region)).chain(order);
    chains.find(|chain| does_nothing_else(context, region, mode, chain) == Some(true))
}

/// The order of axes that takes tokens and features to their places in the output; the others keep theirs.
fn order(region: &Region, before: usize, after: usize) -> Option<Vec<usize>> {
    let [from, to] = [&region.input_lane, &region.output_lane].map(|lane| {
        let feature = lane.feature.filter(|_| lane.group.is_none())?;
        Some([lane.sequence, feature])
    });
    let (from, to) = from.zip(to).filter(|_| before == after)?;
    let mut others = (0..before).filter(|axis| !from.contains(axis));
    (0..after)
        .map(|axis| match to.iter().position(|own| *own == axis) {
            Some(own) => Some(from[own]),
            None => others.next(),
        })
        .collect()
}

/// Applies these changes to a value, with copies of the nodes.
pub(crate) fn emit(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    changes: &[Change],
    mut value: ValueId,
) -> Result<ValueId, RewriteError> {
    for change in changes {
        let id = match change {
            Change::Node(id) => id,
            Change::Order(order) => {
                let order = order.iter().map(|axis| *axis as i64).collect();
                value = out.op_with("Transpose", &[value], &[("perm", Attr::Ints(order))]);
                continue;
            }
        };
        let mut inputs = context.graph().node(*id).inputs().to_vec();
        if let Some(first) = inputs.first_mut() {
            *first = Some(value);
        }
        let made = out.copy(*id, &inputs, &[])?;
        value = made.into_iter().flatten().next().unwrap_or(value);
    }
    Ok(value)
}

/// The changes of shape on one path through the region along which nothing else changes shape.
fn chain(context: &Context<'_>, region: &Region) -> Option<Vec<Change>> {
    let graph = context.graph();
    let within = region.content(graph, &context.found.classes);
    let mut seen = FxHashSet::default();
    let mut stack = vec![(region.output, vec![])];
    while let Some((value, changes)) = stack.pop() {
        if value == region.input {
            return Some(changes.into_iter().rev().map(Change::Node).collect());
        }
        let Some((id, 0)) = graph.producer(value).filter(|_| seen.insert(value)) else {
            continue;
        };
        let node = graph.node(id);
        let own = |v: &ValueId| *v == region.input || within.contains(v);
        if is_rearrangement(node.op()) {
            let before = node.input(0).filter(own);
            let longer = || changes.iter().copied().chain([id]).collect();
            stack.extend(before.map(|v| (v, longer())));
            continue;
        }
        let same = |v: &ValueId| own(v) && context.dims(*v) == context.dims(value);
        let before = node.inputs().iter().flatten().copied().filter(same);
        stack.extend(before.map(|v| (v, changes.clone())));
    }
    None
}

/// Whether a region is a chain of changes and a rotation, and nothing else.
fn does_nothing_else(
    context: &Context<'_>,
    region: &Region,
    mode: Option<ProbeMode>,
    changes: &[Change],
) -> Option<bool> {
    let dims = context.dims(region.input)?;
    let count: usize = dims.iter().product();
    // Numbers that stay distinct after arithmetic.
    let numbers = (0..count).map(|i| ((i + 1) as f64 * 0.754_877_666).fract());
    let x = ArrayD::from_shape_vec(IxDyn(dims), numbers.collect()).ok()?;
    let moved = apply(context, changes, x.clone())?;
    let moved = region.output_lane.split(moved)?;
    if mode == Some(ProbeMode::Spread) {
        // Each head is rotated by itself, in place.
        return Some(region.input_lane.split(x)? == moved);
    }
    let Context { model, found } = *context;
    let none = FxHashMap::default();
    let (maps, _) = matrices(model, &found.trace, &none, region).ok()?;
    let seeds = FxHashMap::from_iter([(region.input, Value::float(x))]);
    let budget = Budget { elements: 1 << 22 };
    let got = probe(model, &found.trace, &seeds, &[region.output], &budget).ok()?;
    let rotated = region.output_lane.split(got.first()?.to_f64()?)?;
    let (slots, length, width) = moved.dim();
    if rotated.dim() != moved.dim() || maps.dim() != (length, width, width) {
        return None;
    }
    let alike = |slot: usize, p: usize, i: usize| {
        let want: f64 = (0..width)
            .map(|j| maps[[p, i, j]] * moved[[slot, p, j]])
            .sum();
        (rotated[[slot, p, i]] - want).abs() <= 1e-9
    };
    let all = (0..slots).all(|s| (0..length).all(|p| (0..width).all(|i| alike(s, p, i))));
    Some(all)
}

/// Applies the changes to numbers.
fn apply(context: &Context<'_>, changes: &[Change], mut x: ArrayD<f64>) -> Option<ArrayD<f64>> {
    for change in changes {
        let id = match change {
            Change::Node(id) => id,
            Change::Order(order) => {
                x = permuted(x, order.clone());
                continue;
            }
        };
        let node = context.graph().node(*id);
        x = match node.op() {
            "Transpose" => {
                let rank = x.ndim();
                let axes: Vec<usize> = match node.ints("perm").ok()? {
                    Some(perm) => perm.iter().map(|a| wrap(*a, rank)).collect::<Option<_>>()?,
                    None => (0..rank).rev().collect(),
                };
                let mut once = axes.clone();
                once.sort_unstable();
                if !once.into_iter().eq(0..rank) {
                    return None;
                }
                permuted(x, axes)
            }
            _ => {
                let dims = context.dims(node.output(0)?)?;
                x.into_shape_with_order(IxDyn(dims)).ok()?
            }
        };
    }
    Some(x)
}

fn permuted(x: ArrayD<f64>, axes: Vec<usize>) -> ArrayD<f64> {
    x.permuted_axes(axes).as_standard_layout().into_owned()
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Kind;
    use posenc_ir::Model;

    use crate::graph::sketch::{A, SIZE, Sketch};
    use crate::request::Request;
    use crate::rewrite::rewrite;

    const HALF: usize = SIZE / 2;

    /// The first and the second features of so many pairs, rotated by the places of tokens.
    fn rotated_pairs(s: &mut Sketch, first: &str, second: &str, pairs: usize) -> [String; 2] {
        let positions = s.range();
        let positions = s.unsqueeze(&positions, &[1]);
        let positions = s.cast(&positions, posenc_ir::DType::F32);
        let f = (0..pairs).map(|i| 10_000f64.powf(-(i as f64) / pairs as f64));
        let f = s.floats(&[pairs], f);
        let angles = s.op("Mul", &[&positions, &f]);
        let [cos, sin] = ["Cos", "Sin"].map(|wave| s.op(wave, &[&angles]));
        let [a, b] = [(first, &cos), (second, &sin)].map(|(x, y)| s.op("Mul", &[x, y]));
        let one = s.op("Sub", &[&a, &b]);
        let [a, b] = [(second, &cos), (first, &sin)].map(|(x, y)| s.op("Mul", &[x, y]));
        [one, s.op("Add", &[&a, &b])]
    }

    /// Rotates pairs of features that are gathered from a first axis, and puts them back.
    fn rotated(s: &mut Sketch, x: &str, factor: Option<f64>) -> String {
        let first = s.transpose(x, &[3, 0, 1, 2]);
        let pick = |s: &mut Sketch, odd: i64| {
            let index = s.ints(&(0..HALF as i64).map(|i| 2 * i + odd).collect::<Vec<_>>());
            let half = s.gather(&first, &index, 0);
            s.transpose(&half, &[1, 2, 3, 0])
        };
        let (mut even, odd) = (pick(s, 0), pick(s, 1));
        if let Some(factor) = factor {
            let factor = s.float(factor);
            even = s.op("Mul", &[&even, &factor]);
        }
        let [one, two] = rotated_pairs(s, &even, &odd, HALF);
        let pairs = [one, two].map(|part| s.unsqueeze(&part, &[-1]));
        let pairs = s.concat(&[&pairs[0], &pairs[1]], 4);
        s.reshape(&pairs, &[0, 0, 0, -1])
    }

    /// Rotates the first half of the features of tokens before heads, and joins the others, which are cut out before
    /// heads and tokens change places and not afterwards.
    fn rotated_apart(s: &mut Sketch, x: &str, factor: Option<f64>) -> String {
        let (half, quarter) = (HALF as i64, HALF / 2);
        let turned = s.transpose(x, &[0, 2, 1, 3]);
        let others = s.slice(x, 3, [half, 2 * half, 1]);
        let mut others = s.transpose(&others, &[0, 2, 1, 3]);
        if let Some(factor) = factor {
            let factor = s.float(factor);
            others = s.op("Mul", &[&others, &factor]);
        }
        let [first, second] = [0, 1].map(|at| {
            let from = at * quarter as i64;
            s.slice(&turned, 3, [from, from + quarter as i64, 1])
        });
        let [one, two] = rotated_pairs(s, &first, &second, quarter);
        s.concat(&[&one, &two, &others], 3)
    }

    /// A layer on heads `[batch, token, head, feature]` that are rotated so.
    fn model_apart(factor: Option<f64>) -> Model {
        let mut s = Sketch::default();
        let x = s.embedded();
        let v = s.headed(&x);
        let [q, k] = [0; 2].map(|_| {
            let heads = s.projected(&x);
            rotated_apart(&mut s, &heads, factor)
        });
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.model(17, &[&y])
    }

    fn model(factor: Option<f64>) -> Model {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let [q, k] = [q, k].map(|y| rotated(&mut s, &y, factor));
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.model(17, &[&y])
    }

    fn to_none(mut model: Model) -> Result<Model, String> {
        let request = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        let done = rewrite(&mut model, &request);
        done.map(|_| model).map_err(|why| why.to_string())
    }

    #[test]
    fn a_change_of_order_before_the_rotation_is_undone_with_it() {
        let bare = to_none(model(None)).unwrap();
        let ops: Vec<&str> = bare.graph().nodes().map(|(_, n)| n.op()).collect();
        assert!(
            !ops.contains(&"Cos") && !ops.contains(&"Unsqueeze"),
            "{ops:?}"
        );
    }

    #[test]
    fn what_else_a_rotation_does_is_not_dropped_with_it() {
        assert!(to_none(model(Some(0.5))).is_err());
    }

    #[test]
    fn parts_that_change_their_order_along_several_paths_are_joined_again() {
        let bare = to_none(model_apart(None)).unwrap();
        let ops: Vec<&str> = bare.graph().nodes().map(|(_, n)| n.op()).collect();
        assert!(!ops.contains(&"Cos") && !ops.contains(&"Concat"), "{ops:?}");
        assert!(
            to_none(model_apart(Some(0.5))).is_err(),
            "half of the features are scaled too"
        );
    }
}
