//! Whether a rotation goes on in longer sequences as it begins: what enters it is computed again
//! for these, without the rest of the graph.

use ndarray::{Array3, ArrayD, Axis, Slice};
use posenc_ir::eval::{Budget, Value};
use posenc_ir::{DType, Graph, Model, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::matrices::matrices_of_pairs;
use super::site::RotaryOperand;
use super::source::{all_positions, moved};
use crate::detect::found::Found;
use crate::detect::runs::{COARSE, FAR, LONGER, longer, rounding};
use crate::graph::dataflow::Class;

/// Elements that a value of a longer sequence may have.
const BUDGET: Budget = Budget { elements: 1 << 20 };

/// The new tokens of a sequence that is run where it has no such numbers.
const LONGEST: usize = 1 << 14;

/// Elements that a value of that sequence may have.
const LONGEST_BUDGET: Budget = Budget { elements: 1 << 22 };

/// Differences of cos and sin that rounding does not explain.
const TOLERANCE: f64 = 1e-2;

/// Why a rotation is not that of a short sequence in a longer one; `None` where it is, and where
/// its numbers cannot be computed for a longer one.
pub(super) fn departs(model: &Model, found: &Found, half: &RotaryOperand) -> Option<String> {
    let graph = model.graph();
    let entering: Vec<ValueId> = (half.region.entries.iter())
        .filter_map(|u| graph.node(u.node).input(u.slot()))
        .filter(|v| !found.classes.of_value(*v).is_constant())
        .collect();
    let is_content = |v: &ValueId| found.classes.of_value(*v).has(Class::CONTENT);
    if entering.iter().any(is_content) || is_straight(graph, found, &entering) {
        return None;
    }
    let longer = Longer {
        model,
        found,
        half,
        entering,
    };
    let short = LONGER
        .into_iter()
        .find_map(|tokens| longer.departs(tokens, &BUDGET));
    short.or_else(|| match longer.moved() {
        Some(all) => all
            .into_iter()
            .find(|(_, follows)| !follows)
            .map(|(later, _)| longer.departure(later)),
        None => longer.departs(LONGEST, &LONGEST_BUDGET),
    })
}

/// Whether values only count up with positions, by numbers that no length changes.
fn is_straight(graph: &Graph, found: &Found, from: &[ValueId]) -> bool {
    let class = |v: ValueId| found.classes.of_value(v);
    let mut stack = from.to_vec();
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !class(value).has(Class::POSITION) || !seen.insert(value) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        let operands = || node.inputs().iter().flatten().copied();
        // A length that is counted with moves all positions by as much.
        let whole = |v: ValueId| found.trace.get(v).dtype.is_some_and(DType::is_int);
        let fits = match (node.domain(), node.op()) {
            ("", "Add" | "Sub") => operands()
                .all(|v| class(v).has(Class::POSITION) || class(v).is_constant() || whole(v)),
            // A narrow integer wraps around.
            ("", "Cast") => node
                .output(0)
                .and_then(|v| found.trace.get(v).dtype)
                .is_some_and(holds_positions),
            ("", "Mul" | "MatMul" | "Einsum" | "Div") => {
                operands().all(|v| class(v).has(Class::POSITION) || class(v).is_constant())
            }
            (
                "",
                "Cos" | "Sin" | "Neg" | "Identity" | "Concat" | "Unsqueeze" | "Squeeze" | "Reshape"
                | "Transpose" | "Expand" | "Range",
            ) => true,
            _ => false,
        };
        if !fits {
            return false;
        }
        stack.extend(operands());
    }
    true
}

/// Whether a type holds the positions of any sequence.
fn holds_positions(dtype: DType) -> bool {
    dtype.is_float() || matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64)
}

/// A rotation in longer sequences.
struct Longer<'a> {
    model: &'a Model,
    found: &'a Found,
    half: &'a RotaryOperand,
    /// What enters the rotation beside content.
    entering: Vec<ValueId>,
}

impl Longer<'_> {
    fn departs(&self, tokens: usize, budget: &Budget) -> Option<String> {
        let values = longer(self.model, self.found, &self.entering, tokens, budget)?;
        let grown = tokens - self.found.lengths.sequence;
        if !self.follows(&self.maps(&values, 0)?, 0) {
            return Some(format!(
                "in sequences of {tokens} tokens, the first positions are rotated otherwise than in \
                 those of {}",
                self.found.lengths.sequence
            ));
        }
        // A fused operator picks rows by itself.
        if self.half.region.inside.is_some() {
            return None;
        }
        let follows = self.follows(&self.maps(&values, grown)?, grown);
        (!follows).then(|| self.departure(grown))
    }

    /// Why a rotation is another one from a position on.
    fn departure(&self, later: usize) -> String {
        format!(
            "from position {} on, the angles do not go on as they begin",
            self.found.lengths.past + later
        )
    }

    /// Whether the rotation goes on at positions far behind those of the trial run, for each distance at which it
    /// can be computed and compared; `None` where it cannot be computed.
    fn moved(&self) -> Option<Vec<(usize, bool)>> {
        if self.half.region.inside.is_some() {
            return None;
        }
        let positions = all_positions(self.model, self.found, self.half);
        let pairs = self.pairs()?;
        let (trace, region) = (&self.found.trace, &self.half.region);
        let at = |later: usize| {
            let change = |v: &ValueId| Some((*v, moved(trace.get(*v), later)?));
            let change = positions.iter().map(change).collect::<Option<_>>()?;
            let maps = matrices_of_pairs(self.model, trace, &change, region, &pairs).ok()?;
            Some((later, self.follows(&maps, later)))
        };
        let far = FAR.map(|power| 1 << power);
        let mut far = far
            .filter(|later| self.tolerance(*later) <= COARSE)
            .peekable();
        let is_inexact = far.peek().is_none();
        let all: Vec<(usize, bool)> = far.filter_map(at).collect();
        (is_inexact || !positions.is_empty() && !all.is_empty()).then_some(all)
    }

    /// The matrices of the rotation with the rows from one on in place of those of the trial run;
    /// `None` where there are none of as many tokens.
    fn maps(&self, values: &[Value], from: usize) -> Option<Array3<f64>> {
        let mut change = FxHashMap::default();
        let mut is_longer = from == 0;
        for (at, value) in self.entering.iter().zip(values) {
            let dims = self.found.trace.get(*at).dims.as_deref()?;
            let all = value.to_f64()?;
            is_longer |= all.shape() != dims;
            let rows = rows(&all, dims, from)?;
            let rows = if value.dtype.is_some_and(DType::is_int) {
                Value::int(rows.mapv(|x| x as i64))
            } else {
                Value::float(rows)
            };
            change.insert(*at, rows);
        }
        let pairs = self.pairs()?;
        let (trace, region) = (&self.found.trace, &self.half.region);
        let maps = is_longer.then(|| matrices_of_pairs(self.model, trace, &change, region, &pairs));
        maps?.ok()
    }

    /// The pairs, as places in the output of the rotation.
    fn pairs(&self) -> Option<Vec<(usize, usize)>> {
        let offset = usize::try_from(self.half.region.output_lane.offset).ok()?;
        let pairs = self.half.rotation.rope.pairs.iter();
        Some(pairs.map(|(a, b)| (a - offset, b - offset)).collect())
    }

    /// How far apart cosines may be at positions so much later. A frequency that was read from a few rows may be off
    /// by as much at each position.
    fn tolerance(&self, later: usize) -> f64 {
        let rows = self.half.rotation.cos.nrows();
        let drift = later as f64 / rows.saturating_sub(1).max(1) as f64;
        let rounding = rounding(self.found.trace.get(self.half.region.output).dtype);
        TOLERANCE + 4.0 * rounding * (1.0 + drift)
    }

    /// Whether matrices rotate by the angles of positions which are `later` than those of the trial
    /// run. Rows of nothing are those of a table that has ended, which is a limit.
    fn follows(&self, maps: &Array3<f64>, later: usize) -> bool {
        let near = &self.half.rotation;
        let rows = near.cos.nrows();
        let off = self.tolerance(later);
        let Some(pairs) = self.pairs().filter(|_| off <= COARSE) else {
            return true;
        };
        let m = near.rope.attention_factor.abs();
        let rotates = |row: usize, (at, (a, b)): (usize, &(usize, usize))| {
            let (sin, cos) = (near.rope.inv_freq[at] * later as f64).sin_cos();
            let (c, s) = (near.cos[[row, at]], near.sin[[row, at]]);
            let (dx, dy) = (
                maps[[row, *a, *a]] - (c * cos - s * sin),
                maps[[row, *b, *a]] - (s * cos + c * sin),
            );
            dx.hypot(dy) <= off * m
        };
        let is_over = |row: usize| {
            let mut pairs = pairs.iter();
            pairs.all(|(a, b)| maps[[row, *a, *a]] == 0.0 && maps[[row, *b, *a]] == 0.0)
        };
        (0..rows.min(maps.shape()[0]))
            .all(|row| is_over(row) || pairs.iter().enumerate().all(|pair| rotates(row, pair)))
    }
}

/// The part of a value that has these dimensions, from a row on; the whole of one that has not grown.
/// `None` where more than one axis has grown.
fn rows(value: &ArrayD<f64>, dims: &[usize], from: usize) -> Option<ArrayD<f64>> {
    let fits = value.ndim() == dims.len();
    let grown: Vec<usize> = (0..dims.len())
        .filter(|axis| fits && value.shape()[*axis] != dims[*axis])
        .collect();
    match grown[..] {
        [] => fits.then(|| value.clone()),
        [axis] if value.shape()[axis] >= from + dims[axis] => {
            let part = Slice::from(from..from + dims[axis]);
            Some(value.slice_axis(Axis(axis), part).to_owned())
        }
        _ => None,
    }
}
