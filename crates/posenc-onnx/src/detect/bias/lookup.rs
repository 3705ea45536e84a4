//! What biases are computed from: tables whose rows are selected by distance.

use std::collections::BTreeMap;

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{DType, Graph, Model, NodeId, Use, ValueId};
use rustc_hash::FxHashMap;

use crate::graph::dataflow::Classes;
use crate::graph::lane::wrap;
use crate::graph::ones;
use crate::graph::operators::is_product;
use crate::graph::region::ancestors;

/// The largest distance whose row is determined.
const FARTHEST: i64 = 1100;

/// The most elements of a constant that is compared with.
const MOST_ELEMENTS: usize = 1 << 18;

/// Numbers differ by this share at most from those of a constant.
const NEAR: f64 = 1e-6;

/// Rows and distances are smaller than this.
const WHOLE: f64 = 1e12;

/// Elements of one probe.
const BUDGET: Budget = Budget { elements: 1 << 16 };

/// What the values that enter are computed from.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// Tables whose rows are picked by something other than content.
    pub(crate) lookups: Vec<Lookup>,
    /// Whether numbers of a constant are absent.
    pub(crate) absent: bool,
    /// Constants of a float type.
    constants: Vec<ValueId>,
    /// The float type of the fewest digits on the path.
    coarsest: Option<DType>,
}

/// A table, and which row each pair of tokens picks.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// Rows of the table.
    pub(crate) table: usize,
    /// Numbers of each row.
    pub(crate) width: Option<usize>,
    index: Index,
    /// What the index is computed from, the index included.
    ancestors: Vec<ValueId>,
}

/// How a table is told which of its rows to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Index {
    /// By their numbers.
    Numbers(ValueId),
    /// By a one in each line along this axis, in a product with the table.
    Ones(ValueId, usize),
}

impl Index {
    fn value(self) -> ValueId {
        let (Self::Numbers(value) | Self::Ones(value, _)) = self;
        value
    }

    /// The numbers of the rows.
    fn numbers(self, value: &Value) -> Option<Value> {
        match self {
            Self::Numbers(_) => Some(value.clone()),
            Self::Ones(_, axis) => {
                let rows = ones::picked(&value.to_f64()?, axis)?;
                let rows: Option<Vec<i64>> = rows.iter().copied().collect();
                let mut dims = value.dims.clone()?;
                dims.remove(axis);
                Some(Value::int(ArrayD::from_shape_vec(dims, rows?).ok()?))
            }
        }
    }
}

/// The rows that were read already, by the index that picks them.
#[derive(Default)]
pub(crate) struct KnownRows(FxHashMap<Index, Option<BTreeMap<i64, i64>>>);

impl KnownRows {
    /// The row that each distance, key − query, picks; `None` where more than the distance counts.
    pub(crate) fn rows(
        &mut self,
        model: &Model,
        trace: &Trace,
        lookup: &Lookup,
    ) -> Option<&BTreeMap<i64, i64>> {
        let rows = || lookup.rows(model, trace);
        self.0.entry(lookup.index).or_insert_with(rows).as_ref()
    }
}

impl Origins {
    pub(crate) fn of(graph: &Graph, classes: &Classes, trace: &Trace, entries: &[Use]) -> Self {
        let entering = entries
            .iter()
            .filter_map(|u| graph.node(u.node).input(u.slot()));
        let mut origins = Self::default();
        let mut picking: Vec<NodeId> = vec![];
        for value in ancestors(graph, classes, entering.collect()) {
            let known = trace.get(value);
            let dtype = known.dtype.filter(|d| d.is_float());
            origins.coarsest = [origins.coarsest, dtype]
                .into_iter()
                .flatten()
                .min_by_key(|d| digits(*d));
            if graph.stored(value).is_some() && dtype.is_some() {
                origins.absent |= known.data.is_none();
                origins.constants.push(value);
            }
            if let Some((id, _)) = graph.producer(value)
                && (graph.node(id).is("Gather") || is_product(graph.node(id)))
            {
                picking.push(id);
            }
        }
        picking.sort_unstable();
        let lookup = |id| Lookup::of(graph, classes, trace, id);
        origins.lookups = picking.into_iter().filter_map(lookup).collect();
        origins
    }

    /// Whether one constant contains all these numbers, up to one factor.
    pub(crate) fn contain(&self, trace: &Trace, numbers: &[f64]) -> bool {
        let Some(first) = numbers.iter().copied().find(|v| *v != 0.0) else {
            return false;
        };
        self.constants.iter().any(|value| {
            let known = trace.get(*value);
            if known
                .elements()
                .is_none_or(|n| !(2..=MOST_ELEMENTS).contains(&n))
            {
                return false;
            }
            let mut stored: Vec<f64> = known.to_f64().into_iter().flatten().collect();
            stored.retain(|v| v.is_finite());
            stored.sort_by(f64::total_cmp);
            let contains = |v: f64| {
                let near = NEAR * v.abs();
                let at = stored.partition_point(|h| *h < v - near);
                stored.get(at).is_some_and(|h| *h <= v + near)
            };
            let by = |factor: f64| numbers.iter().all(|v| contains(v / factor));
            let factors = stored.iter().filter(|h| **h != 0.0).map(|h| first / h);
            by(1.0) || factors.into_iter().any(by)
        })
    }

    /// How exactly the graph stores what enters.
    pub(crate) fn tolerance(&self) -> f64 {
        match self.coarsest {
            Some(DType::F16) => 1e-3,
            Some(DType::BF16) => 5e-3,
            _ => 1e-6,
        }
    }
}

fn digits(dtype: DType) -> usize {
    match dtype {
        DType::BF16 => 8,
        DType::F16 => 11,
        DType::F32 => 24,
        _ => 53,
    }
}

impl Lookup {
    fn of(graph: &Graph, classes: &Classes, trace: &Trace, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let (table, axis, index) = if node.is("Gather") {
            let table = node.input(0)?;
            let rank = trace.get(table).dims.as_ref()?.len();
            let axis = wrap(node.int("axis").ok()?.unwrap_or(0), rank)?;
            (table, axis, Index::Numbers(node.input(1)?))
        } else {
            let pick = ones::pick(graph, trace, id)?;
            let ones = Index::Ones(pick.ones, pick.axis);
            let index = ones::index(graph, id).map_or(ones, Index::Numbers);
            (pick.table, pick.rows, index)
        };
        let rows = trace.get(table);
        let dims = rows.dims.as_ref()?;
        // Integers of 8 bits are numbers that were quantized.
        let is_table = |d: DType| d.is_float() || matches!(d, DType::I8 | DType::U8);
        if !rows.dtype.is_some_and(is_table)
            || !classes.of_value(table).is_constant()
            || dims[axis] < 2
        {
            return None;
        }
        Some(Self {
            table: dims[axis],
            width: rows.elements()?.checked_div(dims[axis]),
            index,
            ancestors: ancestors(graph, classes, vec![index.value()]),
        })
    }

    /// The row that each distance, key − query, picks; `None` where more than the distance counts.
    fn rows(&self, model: &Model, trace: &Trace) -> Option<BTreeMap<i64, i64>> {
        let index = Square::of(&self.index.numbers(trace.get(self.index.value()))?)?;
        let mut rows = BTreeMap::new();
        for (d, row) in index.distances().zip(&index.cells) {
            if *rows.entry(d).or_insert(*row) != *row {
                return None;
            }
        }
        self.farther(model, trace, &index, &mut rows);
        Some(rows)
    }

    /// Determines the rows of other distances, by giving the graph other distances to start from.
    fn farther(
        &self,
        model: &Model,
        trace: &Trace,
        index: &Square,
        rows: &mut BTreeMap<i64, i64>,
    ) -> Option<()> {
        let sources = self.sources(model.graph(), trace, index);
        if sources.is_empty() {
            return None;
        }
        let rows_at = |distances: &[i64]| -> Option<Vec<i64>> {
            let seeds: FxHashMap<ValueId, Value> = sources
                .iter()
                .map(|s| Some((s.value, s.seed(trace, distances)?)))
                .collect::<Option<_>>()?;
            let got = probe(model, trace, &seeds, &[self.index.value()], &BUDGET).ok()?;
            let rows = self.index.numbers(got.first()?)?.to_f64()?;
            let near = |v: &f64| (v.abs() < WHOLE).then_some(*v as i64);
            rows.iter().take(distances.len()).map(near).collect()
        };
        // In reverse order each distance has to select the same row as before.
        let reversed: Vec<i64> = index
            .distances()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        let expected: Option<Vec<i64>> = reversed.iter().map(|d| rows.get(d).copied()).collect();
        if rows_at(&reversed) != expected {
            return None;
        }
        let step = i64::try_from(reversed.len()).ok().filter(|n| *n > 0)?;
        let mut first = -FARTHEST;
        while first <= FARTHEST {
            let distances: Vec<i64> = (first..first + step).collect();
            rows.extend(distances.iter().copied().zip(rows_at(&distances)?));
            first += step;
        }
        Some(())
    }

    /// The values that contain the distance of each pair, where nothing before them does.
    fn sources(&self, graph: &Graph, trace: &Trace, index: &Square) -> Vec<Source> {
        let size = index.cells.len() * index.copies;
        let whole = |v: &ValueId| trace.get(*v).elements() == Some(size);
        let candidates = self.ancestors.iter().copied().filter(whole);
        let source = |value: ValueId| {
            let (id, _) = graph.producer(value)?;
            let mut before = graph.node(id).inputs().iter().flatten();
            if before.any(whole) {
                return None;
            }
            let data = Square::of(trace.get(value))
                .filter(|s| (s.columns, s.copies) == (index.columns, index.copies))?;
            let pairs = || index.distances().zip(&data.cells);
            let here = pairs().find(|(d, _)| *d == 0).map(|(_, v)| *v)?;
            [1, -1].into_iter().find_map(|sign| {
                let same = pairs().all(|(d, v)| *v == sign * d + here);
                same.then_some(Source { value, sign, here })
            })
        };
        candidates.filter_map(source).collect()
    }
}

/// Whole numbers for each query and key.
struct Square {
    cells: Vec<i64>,
    columns: usize,
    /// How often they are repeated, for the sequences of a batch.
    copies: usize,
}

impl Square {
    /// Of a value whose last two axes are queries and keys, and whose others repeat the same.
    fn of(value: &Value) -> Option<Self> {
        let dims = value.dims.as_ref()?;
        let (last, before) = (*dims.last()?, *dims.get(dims.len().checked_sub(2)?)?);
        let size = value.elements()?;
        if last < 2 || before == 0 || size == 0 || size > BUDGET.elements {
            return None;
        }
        let cells: Vec<f64> = value.to_f64()?.iter().copied().collect();
        let one = last * before;
        let alike = cells.chunks(one).all(|c| c == &cells[..one]);
        let whole = cells.iter().all(|v| v.fract() == 0.0 && v.abs() < WHOLE);
        (alike && whole).then(|| Self {
            cells: cells.iter().take(one).map(|v| *v as i64).collect(),
            columns: last,
            copies: size / one,
        })
    }

    /// The distance of each pair: the last query is at the last key.
    fn distances(&self) -> impl Iterator<Item = i64> {
        let columns = self.columns as i64;
        let past = columns - self.cells.len() as i64 / columns;
        let all = 0..self.cells.len() as i64;
        all.map(move |at| at % columns - at / columns - past)
    }
}

/// A value that is `sign · distance + here`.
struct Source {
    value: ValueId,
    sign: i64,
    here: i64,
}

impl Source {
    fn seed(&self, trace: &Trace, distances: &[i64]) -> Option<Value> {
        let known = trace.get(self.value);
        let dims = known.dims.as_deref()?;
        let all: usize = dims.iter().product();
        let cells = distances.iter().cycle().take(all);
        let cells = cells.map(|d| self.sign * d + self.here);
        let dtype = known.dtype?;
        let value = if dtype.is_float() {
            let cells = cells.map(|v| v as f64).collect();
            Value::float(ArrayD::from_shape_vec(dims, cells).ok()?)
        } else {
            Value::int(ArrayD::from_shape_vec(dims, cells.collect()).ok()?)
        };
        Some(value.with_dtype(dtype))
    }
}
