//! Rotations before an operator of attention that can rotate queries and keys itself.
//!
//! It counts the position of each token from the lengths of the sequences, and reads the row of that position in a
//! table of cosines and one of sines.

use ndarray::{Array2, Ix2};
use posenc_encodings::kind::Layout;
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{DType, Emitter, NodeId, ScopeId, Tensor, ValueId};
use rustc_hash::FxHashMap;

use super::operators::{PairColumns, moved, tolerance};
use super::waves::{BUDGET, CONTRIB};
use crate::detect::context::Context;
use crate::detect::{RotaryOperand, RotarySite, run_at};
use crate::graph::operators::is_layout;
use crate::graph::ports::{Lengths, place};
use crate::graph::sizes::is_of_sizes_and;

/// The last index of each sequence.
const LAST: usize = 5;

/// The tables of cosines and sines.
pub(super) const TABLES: [usize; 2] = [7, 8];

/// What an operator that rotates cannot have: positions of its own, and norms, which it would apply before.
const OTHERS: [usize; 3] = [9, 14, 15];

/// ONNX Runtime rotates heads in blocks of so many features.
const BLOCK: usize = 16;

/// Elements of queries or keys.
const PLACES: Budget = Budget { elements: 1 << 22 };

/// Runs of other lengths than the trial run: a prompt, and a token behind others.
const RUNS: usize = 2;

/// An operator that can take over the rotation of its queries and keys.
#[derive(Clone, Copy, Debug)]
pub(in crate::edit) struct Joined<'a> {
    pub(super) site: &'a RotarySite,
    pub(super) id: NodeId,
    pub(super) layout: Layout,
    /// Cosines and sines.
    pub(super) tables: [Rows; 2],
}

/// The rows of a table, of which positions pick one for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rows {
    table: ValueId,
    columns: PairColumns,
    dtype: DType,
}

/// Finds operators that can take over rotations.
pub(super) struct Joiner<'a> {
    context: &'a Context<'a>,
    /// Runs of other lengths; made on first use.
    runs: Option<Vec<Trace>>,
    /// Whether rows are counted from the last index of each sequence, by both.
    counted: FxHashMap<(ValueId, ValueId), bool>,
}

impl<'a> Joiner<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            runs: None,
            counted: FxHashMap::default(),
        }
    }

    /// The operator of a site, where it would compute the same rotation.
    pub(super) fn join(&mut self, site: &'a RotarySite) -> Option<Joined<'a>> {
        let own = self.context.site(site.site);
        let node = self.context.graph().node(own.node);
        if (node.domain(), node.op()) != (CONTRIB, "GroupQueryAttention") {
            return None;
        }
        let is_free = OTHERS.iter().chain(&TABLES);
        let is_free = is_free.copied().all(|slot| node.input(slot).is_none());
        let rope = &site.query.rotation.rope;
        let starts_first = rope.pairs.first().is_some_and(|pair| pair.0 == 0);
        let widths = [own.head_dim?, 2 * rope.pairs.len()];
        let fits = widths.iter().all(|width| width.is_multiple_of(BLOCK));
        if !is_free || !starts_first || !fits || site.streams.is_some() {
            return None;
        }
        let layout = rope.layout?;
        let sides = [&site.query, &site.key];
        let leads = |(slot, side): (usize, &&RotaryOperand)| self.leads_to(side, own.node, slot);
        if !sides.iter().enumerate().all(leads) {
            return None;
        }
        let [query, key] = sides.map(|side| self.tables(side, node.input(LAST)?, layout));
        let tables = query.filter(|query| Some(*query) == key)?;
        Some(Joined {
            site,
            id: own.node,
            layout,
            tables,
        })
    }

    /// Whether the result of a rotation is read as an input of this node alone, with each feature in its place.
    fn leads_to(&self, side: &RotaryOperand, to: NodeId, slot: usize) -> bool {
        self.reaches(side, to, slot) && self.keeps_places(side, to, slot) == Some(true)
    }

    /// Whether the input has each token, and each feature of a head, where the operator takes it to be.
    fn keeps_places(&self, side: &RotaryOperand, to: NodeId, slot: usize) -> Option<bool> {
        let graph = self.context.graph();
        let (output, lane) = (side.region.output, side.region.output_lane);
        let dims = self.context.dims(output)?;
        let (width, feature) = (lane.width(dims)?, lane.feature?);
        let count: usize = dims.iter().product();
        let places = (0..count).map(|at| {
            let token = place(at, dims, lane.sequence);
            (token * width + place(at, dims, feature) % width) as f64
        });
        let places = Tensor::from_f64(DType::F64, dims, &places.collect::<Vec<f64>>());
        let change = [(output, Value::from_tensor(&places))]
            .into_iter()
            .collect();
        let read = graph.node(to).input(slot)?;
        let trial = &self.context.found.trace;
        let got = probe(self.context.model, trial, &change, &[read], &PLACES).ok()?;
        let got = got.first()?.to_f64()?;
        let own = |(at, found): (usize, &f64)| {
            let (token, feature) = (place(at, got.shape(), 1), place(at, got.shape(), 2));
            *found == (token * width + feature % width) as f64
        };
        Some(got.ndim() == 3 && got.iter().enumerate().all(own))
    }

    /// Whether the result of a rotation is read as an input of this node alone.
    fn reaches(&self, side: &RotaryOperand, to: NodeId, slot: usize) -> bool {
        let graph = self.context.graph();
        let is_plain = side.region.inside.is_none() && side.basis.is_none();
        let mut value = side.region.output;
        while is_plain && !graph.value(value).is_output() {
            let [at] = graph.uses(value) else {
                return false;
            };
            let node = graph.node(at.node);
            if at.node == to {
                return at.slot() == slot;
            }
            match node.output(0).filter(|_| is_layout(node.op())) {
                Some(after) if at.slot() == 0 => value = after,
                _ => return false,
            }
        }
        false
    }

    /// The tables of a rotation whose rows are picked by the positions that the operator counts.
    fn tables(&mut self, side: &RotaryOperand, last: ValueId, layout: Layout) -> Option<[Rows; 2]> {
        let graph = self.context.graph();
        let rotation = &side.rotation;
        let dtype = self.context.dtype(side.region.output);
        let first = graph.node(side.region.entries[0].node);
        let picked: Vec<(ValueId, ValueId)> = match first.input(3) {
            // The standard operator may pick the rows itself.
            Some(rows) if first.is("RotaryEmbedding") => {
                let tables = [1, 2].into_iter().filter_map(|slot| first.input(slot));
                tables.map(|table| (table, rows)).collect()
            }
            _ => {
                // Everything else that acts within the rotation would be dropped.
                let others = side.region.others(graph, &self.context.found.classes);
                let others = others.into_iter().map(|(_, value)| self.picked(value));
                others.collect::<Option<_>>()?
            }
        };
        let found = [&rotation.cos, &rotation.sin].map(|wave| {
            picked.iter().find_map(|(table, rows)| {
                let columns = self.columns(*table, *rows, wave, layout)?;
                self.counts(*rows, last).then_some(Rows {
                    table: *table,
                    columns,
                    dtype,
                })
            })
        });
        let [Some(cos), Some(sin)] = found else {
            return None;
        };
        Some([cos, sin])
    }

    /// The table and the rows of it that a value has the numbers of.
    fn picked(&self, value: ValueId) -> Option<(ValueId, ValueId)> {
        let graph = self.context.graph();
        let value = self.origin(value);
        let node = graph.node(graph.producer(value)?.0);
        if !node.is("Concat") {
            return self.gathered(value);
        }
        // The same for both features of each pair, with both signs.
        let parts = node.inputs().iter();
        let mut parts = parts.map(|part| self.gathered(self.origin((*part)?)));
        let first = parts.next()??;
        parts.all(|part| part == Some(first)).then_some(first)
    }

    /// What a value has the numbers of, up to rows that are picked.
    fn origin(&self, mut value: ValueId) -> ValueId {
        while self.gathered(value).is_none()
            && let Some(before) = moved(self.context, value)
        {
            value = before;
        }
        value
    }

    /// The table and the rows that a `Gather` picks for each token.
    fn gathered(&self, value: ValueId) -> Option<(ValueId, ValueId)> {
        let graph = self.context.graph();
        let node = graph.node(graph.producer(value)?.0);
        let is_first = node.is("Gather") && node.int("axis").ok()?.unwrap_or(0) == 0;
        let rank = |v: ValueId| self.context.dims(v).map(<[usize]>::len);
        let rows = node
            .input(1)
            .filter(|rows| is_first && rank(*rows) == Some(2));
        Some((node.input(0)?, rows?))
    }

    /// The columns of a table that hold the numbers `[token, pair]` of the trial run.
    fn columns(
        &self,
        table: ValueId,
        rows: ValueId,
        wave: &Array2<f64>,
        layout: Layout,
    ) -> Option<PairColumns> {
        let trace = &self.context.found.trace;
        let numbers = trace.get(table).to_f64()?;
        let numbers = numbers.into_dimensionality::<Ix2>().ok()?;
        let rows = trace.get(rows).to_i64()?;
        let rows = rows.into_dimensionality::<Ix2>().ok()?;
        let (tokens, pairs) = wave.dim();
        if rows.ncols() != tokens {
            return None;
        }
        let columns = PairColumns::of(numbers.ncols(), pairs, layout)?;
        let near =
            tolerance(self.context.dtype(table)) * wave.iter().fold(1.0, |a, b| b.abs().max(a));
        let is_own = rows.indexed_iter().all(|((_, token), row)| {
            (0..pairs).all(|pair| {
                let row = usize::try_from(*row).ok();
                let got = row.and_then(|row| numbers.get([row, columns.column(pair)]));
                got.is_some_and(|got| (got - wave[[token, pair]]).abs() <= near)
            })
        });
        is_own.then_some(columns)
    }

    /// Whether rows are the positions that the operator counts from the last index of each sequence: at every length,
    /// whatever the last indices are, and from nothing else.
    fn counts(&mut self, rows: ValueId, last: ValueId) -> bool {
        if let Some(known) = self.counted.get(&(rows, last)) {
            return *known;
        }
        let context = self.context;
        let runs = self.runs.get_or_insert_with(|| runs(context));
        let mut all = runs.iter().chain([&context.found.trace]);
        let counts =
            |run| (0..3).all(|less| counts_at(context, (run, less), rows, last) == Some(true));
        let counted = runs.len() == RUNS
            && all.all(counts)
            && is_of_sizes_and(context.graph(), rows, |value| value == last);
        self.counted.insert((rows, last), counted);
        counted
    }
}

/// Runs of other lengths.
fn runs(context: &Context<'_>) -> Vec<Trace> {
    let own = context.found.lengths;
    let all: [_; RUNS] = [(own.sequence + 3, 0), (1, own.past + 5)];
    let runs = all.into_iter().filter_map(|(sequence, past)| {
        let lengths = Lengths {
            batch: own.batch + 1,
            sequence,
            past,
        };
        run_at(context.model, context.found, lengths, &BUDGET)
    });
    runs.collect()
}

/// Whether rows are counted in one run, in which each sequence is shorter than the one before by `less` tokens.
fn counts_at(
    context: &Context<'_>,
    (run, less): (&Trace, i64),
    rows: ValueId,
    last: ValueId,
) -> Option<bool> {
    let own = run.get(last).to_i64()?;
    let shorter = own.iter().zip(1..).map(|(n, at)| (n - at * less).max(0));
    let indices: Vec<i64> = shorter.collect();
    let numbers: Vec<f64> = indices.iter().map(|n| *n as f64).collect();
    let tensor = Tensor::from_f64(context.dtype(last), own.shape(), &numbers);
    let change = [(last, Value::from_tensor(&tensor))].into_iter().collect();
    let got = probe(context.model, run, &change, &[rows], &BUDGET).ok()?;
    let got = got.first()?.to_i64()?.into_dimensionality::<Ix2>().ok()?;
    let tokens = got.ncols() as i64;
    let mut each = got.indexed_iter();
    let is_own = |((sequence, token), row): ((usize, usize), &i64)| {
        *row == (indices[sequence] + 1 - tokens).max(0) + token as i64
    };
    Some(got.nrows() == indices.len() && each.all(is_own))
}

impl Rows {
    /// The columns of a stored table, where they are not all.
    fn stored(self, context: &Context<'_>, pairs: usize) -> Option<Tensor> {
        let table = context.graph().constant(self.table);
        let table = table.filter(|_| self.columns != PairColumns::All)?;
        let (numbers, rows) = (table.to_f64s()?, *table.dims().first()?);
        let width = numbers.len() / rows.max(1);
        let columns = (0..rows).flat_map(|row| {
            let at = move |pair| row * width + self.columns.column(pair);
            (0..pairs).map(at).collect::<Vec<usize>>()
        });
        let columns: Vec<f64> = columns.map(|at| numbers[at]).collect();
        Some(Tensor::from_f64(table.dtype(), &[rows, pairs], &columns))
    }

    /// The table as the operator reads it, of so many pairs.
    pub(super) fn cut(self, context: &Context<'_>, out: &mut Emitter<'_>, pairs: usize) -> ValueId {
        let table = match self.stored(context, pairs) {
            Some(columns) => out.constant("table", columns),
            None => self.columns.cut(out, self.table, pairs, 1),
        };
        match context.dtype(self.table) == self.dtype {
            true => table,
            false => out.cast(table, self.dtype),
        }
    }
}

/// The tables that were written so far.
pub(super) type Tables = FxHashMap<(Rows, ScopeId), ValueId>;
