//! One head in place of all: where the scores of all heads are computed alike, one is enough to
//! read which vectors pairs meet.

use ndarray::{ArrayD, Axis, Slice};
use posenc_ir::eval::{Trace, Value};
use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::meeting::{Joins, Meeting};
use crate::attention::Site;
use crate::graph::lane::{Lane, back, wrap};
use crate::graph::operators::{is_copy, is_elementwise, is_layout, is_product};
use crate::graph::product::Letters;
use crate::graph::region::reads;

/// The part of a graph from the terms of the scores to the scores, cut down to one head.
pub(crate) struct OneHead {
    /// The table that the vectors are rows of, as far back as heads have an axis of their own.
    pub(crate) table: ValueId,
    /// The axis of heads of each value that has one.
    axes: FxHashMap<ValueId, usize>,
    /// Shapes with one head, and numbers that are the same for all heads, of one.
    pub(crate) seeds: FxHashMap<ValueId, Value>,
}

impl OneHead {
    /// The part of `site` in which the vectors of `meeting` act; `None` where not every operator
    /// treats each head for itself, or heads read different numbers.
    pub(crate) fn of(
        graph: &Graph,
        trace: &Trace,
        site: &Site,
        joins: &Joins,
        meeting: &Meeting,
    ) -> Option<Self> {
        let heads = site.heads.filter(|h| *h > 1)?;
        let scores = site.scores?;
        let mut walk = Walk {
            graph,
            trace,
            heads,
            chain: &meeting.chain,
            ends: joins.besides(graph, meeting).into_iter().collect(),
            axes: FxHashMap::default(),
            seeds: FxHashMap::default(),
            alike: vec![],
            table: None,
        };
        walk.ends.extend(site.product);
        walk.ends.insert(meeting.content);
        walk.ends.extend(meeting.chain.last());
        let dims = trace.get(scores).dims.as_ref()?;
        let plane = site.plane?;
        let axis = (0..dims.len()).rfind(|a| !plane.contains(a))?;
        walk.from(scores, axis)?;
        walk.is_apart().then_some(())?;
        Some(Self {
            table: walk.table.or(meeting.chain.last().copied())?,
            axes: walk.axes,
            seeds: walk.seeds,
        })
    }

    /// The dimensions of a value with one head.
    pub(crate) fn dims(&self, value: ValueId, mut dims: Vec<usize>) -> Vec<usize> {
        if let Some(axis) = self.axes.get(&value) {
            dims[*axis] = 1;
        }
        dims
    }

    /// The axis of the last value of `chain` that runs along `axis` of the table.
    pub(crate) fn origin(
        &self,
        graph: &Graph,
        trace: &Trace,
        chain: &[ValueId],
        axis: usize,
    ) -> Option<usize> {
        let from = chain.iter().position(|v| *v == self.table)?;
        let mut axis = axis;
        for pair in chain[from..].windows(2) {
            let (id, output) = graph.producer(pair[0])?;
            let node = graph.node(id);
            let op = node.op();
            if !node.domain().is_empty() || !(is_copy(op) || is_layout(op) || is_elementwise(op)) {
                return None;
            }
            let slot = node.inputs().iter().position(|v| *v == Some(pair[1]))?;
            let lane = back(graph, trace, id, output, slot, Lane::of_sequence(axis))?;
            let length = |v: ValueId, a: usize| trace.get(v).dims.as_ref()?.get(a).copied();
            if length(pair[0], axis)? != length(pair[1], lane.sequence)? {
                return None;
            }
            axis = lane.sequence;
        }
        Some(axis)
    }
}

struct Walk<'a> {
    graph: &'a Graph,
    trace: &'a Trace,
    heads: usize,
    chain: &'a [ValueId],
    /// Values that are replaced, and not walked beyond.
    ends: FxHashSet<ValueId>,
    axes: FxHashMap<ValueId, usize>,
    seeds: FxHashMap<ValueId, Value>,
    /// What all heads read alike, but for shapes of one head.
    alike: Vec<ValueId>,
    table: Option<ValueId>,
}

impl Walk<'_> {
    /// Walks back along the axis of heads.
    fn from(&mut self, scores: ValueId, axis: usize) -> Option<()> {
        let mut stack = vec![(scores, axis)];
        while let Some((value, axis)) = stack.pop() {
            if *self.dims(value)?.get(axis)? != self.heads {
                return None;
            }
            match self.axes.insert(value, axis) {
                Some(known) if known != axis => return None,
                Some(_) => continue,
                None => {}
            }
            if self.ends.contains(&value) || self.is_constant(value, axis)? {
                continue;
            }
            let Some(before) = self.before(value, axis) else {
                if !self.chain.contains(&value) || self.table.is_some() {
                    return None;
                }
                self.table = Some(value);
                continue;
            };
            stack.extend(before);
        }
        Some(())
    }

    fn dims(&self, value: ValueId) -> Option<&[usize]> {
        self.trace.get(value).dims.as_deref()
    }

    /// Whether the trial run knows the numbers, which are then those of one head; `None` where
    /// those of other heads are different.
    fn is_constant(&mut self, value: ValueId, axis: usize) -> Option<bool> {
        if self.chain.contains(&value) {
            return Some(false);
        }
        let known = self.trace.get(value);
        let one = match known.dtype {
            _ if known.data.is_none() => return Some(false),
            Some(dtype) if dtype.is_int() => Value::int(first(known.to_i64()?, axis)?),
            Some(dtype) if dtype.is_float() => Value::float(first(known.to_f64()?, axis)?),
            _ => Value::bool(first(known.to_bool()?, axis)?),
        };
        let one = known
            .dtype
            .map_or(one.clone(), |dtype| one.with_dtype(dtype));
        self.seeds.insert(value, one);
        Some(true)
    }

    /// The inputs of the maker of a value that have the axis of heads, and that axis.
    fn before(&mut self, value: ValueId, axis: usize) -> Option<Vec<(ValueId, usize)>> {
        let (id, output) = self.graph.producer(value)?;
        let node = self.graph.node(id);
        let op = node.op();
        let mut found = vec![];
        let letters = is_product(node)
            .then(|| Letters::of(self.graph, self.trace, id))
            .flatten();
        if let Some(letters) = letters {
            let head = letters.result.get(axis)?;
            for (slot, own) in letters.operands.iter().enumerate() {
                match own.iter().position(|l| l == head) {
                    Some(axis) => found.push((node.input(slot)?, axis)),
                    None => self.alike.extend(node.input(slot)),
                }
            }
        } else if !node.domain().is_empty() {
            return None;
        } else if op == "GatherElements" {
            let rank = self.dims(value)?.len();
            let along = wrap(node.int("axis").ok()?.unwrap_or(0), rank)?;
            (along != axis).then_some(())?;
            found.extend([(node.input(0)?, axis), (node.input(1)?, axis)]);
        } else {
            let many = is_elementwise(op) || op == "Concat";
            let known = many || is_layout(op) || matches!(op, "Pad" | "Slice" | "Gather");
            known.then_some(())?;
            let slots = if many { node.inputs().len() } else { 1 };
            for slot in 0..slots {
                let Some(input) = node.input(slot) else {
                    continue;
                };
                let lane = Lane::of_sequence(axis);
                let before = back(self.graph, self.trace, id, output, slot, lane);
                let before = before.map(|lane| lane.sequence);
                // What is broadcast along the heads has no axis of them.
                let repeats = is_elementwise(op) || matches!(op, "Expand" | "Tile");
                let one = |a: usize| self.dims(input).is_some_and(|d| d.get(a) == Some(&1));
                match before {
                    Some(axis) if !(repeats && one(axis)) => found.push((input, axis)),
                    _ if repeats => self.alike.push(input),
                    _ => return None,
                }
            }
            if op == "Concat" {
                let rank = self.dims(value)?.len();
                let along = wrap(node.int("axis").ok()??, rank)?;
                (along != axis).then_some(())?;
            }
            let shaped = matches!(op, "Reshape" | "Expand");
            if shaped {
                self.reshape(node.input(1)?, value, axis)?;
            }
            let others = node.inputs().iter().skip(slots + usize::from(shaped));
            self.alike.extend(others.flatten());
            // Repeats of what is the same for all heads would repeat it again.
            if op == "Tile" && found.is_empty() {
                return None;
            }
        }
        Some(found)
    }

    /// Sets the shape to which a value is made to that of one head.
    fn reshape(&mut self, shape: ValueId, made: ValueId, axis: usize) -> Option<()> {
        let dims = self.dims(made)?.iter().enumerate();
        let dims = dims.map(|(a, n)| i64::try_from(if a == axis { 1 } else { *n }).ok());
        let dims = dims.collect::<Option<Vec<_>>>()?;
        let wanted = ArrayD::from_shape_vec(vec![dims.len()], dims).ok()?;
        match self.seeds.get(&shape).map(|known| known.to_i64()) {
            Some(known) => (known? == wanted).then_some(()),
            None => {
                self.seeds.insert(shape, Value::int(wanted));
                Some(())
            }
        }
    }

    /// Whether nothing that all heads read alike is computed from what was cut down to one.
    fn is_apart(&self) -> bool {
        let step = |id: NodeId| self.trace.step(id);
        let cut = |v: &ValueId| self.axes.contains_key(v) || self.seeds.contains_key(v);
        let readers = self.axes.keys().chain(self.seeds.keys());
        let readers = readers.flat_map(|v| self.graph.uses(*v));
        let first = readers.map(|u| step(u.node)).filter(|s| *s > 0).min();
        let mut seen: FxHashSet<ValueId> = FxHashSet::default();
        let mut stack = self.alike.clone();
        while let Some(value) = stack.pop() {
            if cut(&value) {
                return false;
            }
            let Some((id, _)) = self.graph.producer(value) else {
                continue;
            };
            // What ran before the first of them does not depend on them.
            if first.is_some_and(|first| step(id) >= first) && seen.insert(value) {
                stack.extend(reads(self.graph, id));
            }
        }
        true
    }
}

/// The numbers of the first head; `None` where others have different ones.
fn first<T: Clone + PartialEq>(data: ArrayD<T>, axis: usize) -> Option<ArrayD<T>> {
    let one = data.slice_axis(Axis(axis), Slice::from(..1));
    let mut others = data.axis_iter(Axis(axis));
    let first = others.next()?;
    others.all(|other| other == first).then(|| one.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::terms::joins;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HEADS, SIZE, Sketch};

    /// Rows of the table of vectors.
    const ROWS: i64 = 9;

    /// A term of the scores from what queries and the table give, `[batch, heads, query, row]`, and
    /// the row of each pair, `[query, key]`.
    type Term = fn(&mut Sketch, &str, &str) -> String;

    /// What is done to the scores.
    type Change = fn(&mut Sketch, String) -> String;

    /// The dimensions of the scores with one head; `None` where all heads are needed.
    fn cut(term: Term, changed: Change) -> Option<Vec<usize>> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let transposed = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &transposed]);
        let table = s.weights(&[HEADS, SIZE, ROWS as usize]);
        let rows = s.op("MatMul", &[&q, &table]);
        let at = s.range();
        let (down, across) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
        let at = s.op("Sub", &[&down, &across]);
        let (low, high, middle) = (s.int(0), s.int(ROWS - 1), s.int(ROWS / 2));
        let at = s.op("Add", &[&at, &middle]);
        let at = s.op("Clip", &[&at, &low, &high]);
        let term = term(&mut s, &rows, &at);
        let scores = s.op("Add", &[&scores, &term]);
        let scores = changed(&mut s, scores);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let model = s.model(23, &[&y]);
        let found = detect(&model, &Options::default());
        let (graph, site) = (model.graph(), found.attention.first().expect("a site"));
        let joins = joins(graph, &found.classes, &found.trace, site);
        let [meeting] = &joins.meetings[..] else {
            panic!("{} meetings", joins.meetings.len());
        };
        let one = OneHead::of(graph, &found.trace, site, &joins, meeting)?;
        let scores = site.scores.expect("scores");
        let dims = found.trace.get(scores).dims.clone().expect("dimensions");
        Some(one.dims(scores, dims))
    }

    /// The index of each pair, in so many dimensions, given the dimensions to expand it to.
    fn expanded(s: &mut Sketch, at: &str, dims: &[&str]) -> String {
        let shape = s.op("Shape", &["input_ids"]);
        let one = s.int(1);
        let length = s.gather(&shape, &one, 0);
        let length = s.unsqueeze(&length, &[0]);
        let parts: Vec<String> = dims
            .iter()
            .map(|d| match d.parse() {
                Ok(n) => s.ints(&[n]),
                Err(_) => length.clone(),
            })
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let shape = s.concat(&parts, 0);
        s.op("Expand", &[at, &shape])
    }

    fn picked(s: &mut Sketch, rows: &str, at: &str) -> String {
        let at = expanded(s, at, &["1", "3", "n", "n"]);
        s.with("GatherElements", &[rows, &at], &[("axis", A::Int(3))])
    }

    fn unchanged(_: &mut Sketch, scores: String) -> String {
        scores
    }

    #[test]
    fn heads_that_are_computed_alike_are_one() {
        let cases: [(&str, Term, Change); 3] = [
            ("as it is", picked, unchanged),
            (
                "a factor for each head",
                |s, rows, at| {
                    let term = picked(s, rows, at);
                    let ones = s.floats(&[1, HEADS, 1, 1], [0.5; HEADS]);
                    s.op("Mul", &[&term, &ones])
                },
                unchanged,
            ),
            ("transposed twice", picked, |s, scores| {
                let away = s.transpose(&scores, &[0, 2, 3, 1]);
                let half = s.float(0.5);
                let away = s.op("Mul", &[&away, &half]);
                s.transpose(&away, &[0, 3, 1, 2])
            }),
        ];
        for (name, term, changed) in cases {
            let dims = cut(term, changed);
            assert_eq!(dims.map(|d| (d.len(), d[1])), Some((4, 1)), "{name}");
        }
    }

    #[test]
    fn heads_that_differ_or_meet_are_all_needed() {
        let cases: [(&str, Term, Change); 6] = [
            (
                "a factor of its own for each head",
                |s, rows, at| {
                    let term = picked(s, rows, at);
                    let each = s.floats(&[1, HEADS, 1, 1], (0..HEADS).map(|h| 0.5 + h as f64));
                    s.op("Mul", &[&term, &each])
                },
                unchanged,
            ),
            (
                "rows of its own for each head",
                |s, rows, at| {
                    let heads: Vec<String> = (0..HEADS as i64)
                        .map(|h| {
                            let (by, last) = (s.int(h), s.int(ROWS - 1));
                            let at = s.op("Add", &[at, &by]);
                            let at = s.op("Min", &[&at, &last]);
                            s.unsqueeze(&at, &[0, 1])
                        })
                        .collect();
                    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
                    let at = s.concat(&heads, 1);
                    s.with("GatherElements", &[rows, &at], &[("axis", A::Int(3))])
                },
                unchanged,
            ),
            (
                "the mean of all heads is taken away",
                |s, rows, at| {
                    let term = picked(s, rows, at);
                    let axis = s.ints(&[1]);
                    let mean = s.op("ReduceMean", &[&term, &axis]);
                    s.op("Sub", &[&term, &mean])
                },
                unchanged,
            ),
            ("a mean of the scores of all heads", picked, |s, scores| {
                let axis = s.ints(&[1]);
                let mean = s.op("ReduceMean", &[&scores, &axis]);
                let quarter = s.float(0.25);
                let mean = s.op("Mul", &[&mean, &quarter]);
                s.op("Add", &[&scores, &mean])
            }),
            (
                "heads in another order",
                |s, rows, at| {
                    let term = picked(s, rows, at);
                    let order = s.ints(&[2, 0, 1]);
                    s.gather(&term, &order, 1)
                },
                unchanged,
            ),
            (
                "heads moved on by one",
                |s, rows, at| {
                    let term = picked(s, rows, at);
                    let pads = s.ints(&[0, 1, 0, 0, 0, -1, 0, 0]);
                    s.op("Pad", &[&term, &pads])
                },
                unchanged,
            ),
        ];
        for (name, term, changed) in cases {
            assert_eq!(cut(term, changed), None, "{name}");
        }
    }
}
