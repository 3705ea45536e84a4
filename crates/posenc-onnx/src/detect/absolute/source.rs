//! From a value that is added to the residual stream back to the tables that its rows are read
//! from, and which rows these are.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::stream::{Tokens, back};
use crate::graph::dataflow::Classes;
use crate::graph::lane::{slice_start, wrap};
use crate::graph::operators::{gather_axis, is_copy, is_layout};

/// A table whose rows are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PositionTable {
    /// The constant that contains it.
    pub(crate) value: ValueId,
    /// The constant whose rows are picked, which is computed from `value` alone and has as many
    /// rows of the same width; it is `value` where nothing is computed.
    pub(crate) picked: ValueId,
    /// Its rows.
    pub(crate) rows: usize,
    /// Width of a row.
    pub(crate) dim: usize,
    /// The row that each token of the trial run reads; `None` where it is not known.
    pub(crate) read: Option<Vec<i64>>,
    /// Rows of other constants that are concatenated with it.
    pub(crate) joined_rows: usize,
    /// Rows and columns of its grid, where the graph resizes that.
    pub(crate) resized: Option<[usize; 2]>,
}

impl PositionTable {
    /// The row of the first token, where each token reads the row after that of the one before it.
    pub(crate) fn first(&self) -> Option<usize> {
        let read = self.read.as_ref()?;
        let follows = read
            .windows(2)
            .all(|pair| pair[0].checked_add(1) == Some(pair[1]));
        usize::try_from(*read.first()?).ok().filter(|_| follows)
    }

    /// Features of a row: `added`, as many as are added to a token, where the constant has an axis of copies of its
    /// rows for sequences or layers.
    pub(crate) fn width(&self, trace: &Trace, added: usize) -> usize {
        let copies = self.dim / added.max(1);
        let dims = trace.get(self.value).dims.as_deref();
        let before = dims.and_then(|dims| dims.split_last());
        let has_axis = before.is_some_and(|(_, before)| before.contains(&copies));
        match copies > 1 && self.dim == copies * added && has_axis {
            true => added,
            false => self.dim,
        }
    }
}

/// A value on the path back to the table, and how rows of the table become its rows.
#[derive(Clone)]
struct Trail {
    value: ValueId,
    /// The axes of rows.
    tokens: Tokens,
    /// For each token of the trial run, the place along `tokens`.
    read: Option<Vec<i64>>,
    /// See [`PositionTable`].
    joined_rows: usize,
    resized: Option<[usize; 2]>,
    /// The nearest constant that rows were picked from.
    picked: Option<PositionTable>,
}

/// What tables are looked for in.
pub(crate) struct TableSearch<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) classes: &'a Classes,
    pub(crate) trace: &'a Trace,
}

/// Further operators whose rows follow those of their first input.
const KEEPS_ROWS: [&str; 5] = [
    "DequantizeLinear",
    "QuantizeLinear",
    "LayerNormalization",
    "Neg",
    "Split",
];

/// A value is computed from few tables.
const MOST: usize = 64;

impl TableSearch<'_> {
    /// The tables that a value with its rows along `tokens` is read from; none where it is computed.
    pub(crate) fn tables(&self, value: ValueId, tokens: Tokens) -> Vec<PositionTable> {
        let rows = self.rows(value, tokens);
        let mut found = vec![];
        let mut seen = FxHashSet::default();
        let mut stack = vec![Trail {
            value,
            tokens,
            read: i64::try_from(rows).ok().map(|n| (0..n).collect()),
            joined_rows: 0,
            resized: None,
            picked: None,
        }];
        while let Some(step) = stack.pop() {
            if self.graph.stored(step.value).is_some() || self.is_whole(&step) {
                found.extend(self.end(&step));
                continue;
            }
            if !seen.insert(step.value) || seen.len() > MOST {
                continue;
            }
            let picked = step.picked.clone();
            match self.before(step) {
                Some(steps) => stack.extend(steps),
                // Computed, yet rows were picked from it as from a table.
                None => found.extend(picked),
            }
        }
        // Parts of one table that were joined again read it whole.
        found.sort_by_key(|t| (t.value, t.read.is_none()));
        found.dedup_by(|b, a| {
            let same = a.value == b.value;
            if same {
                a.read = joined(a.read.take(), b.read.take());
                a.resized = a.resized.or(b.resized);
                a.joined_rows = 0;
            }
            same
        });
        found
    }

    /// Whether rows of several constants were joined: they are one table.
    fn is_whole(&self, step: &Trail) -> bool {
        let node = self
            .graph
            .producer(step.value)
            .map(|(id, _)| self.graph.node(id));
        let joins = node.is_some_and(|node| {
            let axis = node.int("axis").ok().flatten();
            let rank = self.dims(step.value).map_or(0, <[usize]>::len);
            let along = axis
                .and_then(|a| wrap(a, rank))
                .is_some_and(|a| step.tokens.has(a));
            node.is("Concat") && along
        });
        joins && self.classes.of_value(step.value).is_constant()
    }

    fn dims(&self, value: ValueId) -> Option<&[usize]> {
        self.trace.get(value).dims.as_deref()
    }

    fn rows(&self, value: ValueId, tokens: Tokens) -> usize {
        let dims = self.dims(value).unwrap_or_default();
        let along = (0..dims.len()).filter(|a| tokens.has(*a));
        along.fold(1, |n, a| dims[a].saturating_mul(n))
    }

    /// The constant of a step as a table.
    fn table(&self, step: &Trail) -> Option<PositionTable> {
        let rows = self.rows(step.value, step.tokens);
        let all = self.trace.get(step.value).elements()?;
        (rows > 1 && all > rows).then(|| PositionTable {
            value: step.value,
            picked: step.value,
            rows,
            dim: all / rows,
            read: step.read.clone(),
            joined_rows: step.joined_rows,
            resized: step.resized,
        })
    }

    /// The table at the end of a path: the stored constant, if it has the rows that are picked.
    fn end(&self, step: &Trail) -> Option<PositionTable> {
        let stored = self.table(step);
        let Some(picked) = &step.picked else {
            return stored;
        };
        match stored {
            Some(stored) if stored.dim == picked.dim => Some(PositionTable {
                picked: if stored.rows == picked.rows {
                    picked.value
                } else {
                    stored.value
                },
                ..stored
            }),
            _ => Some(picked.clone()),
        }
    }

    /// The steps before this one; `None` where the value is computed.
    fn before(&self, step: Trail) -> Option<Vec<Trail>> {
        let (id, output) = self.graph.producer(step.value)?;
        let node = self.graph.node(id);
        match node.op() {
            "If" if node.domain().is_empty() => Some(self.branches(node, output, &step)),
            op if is_copy(op) || is_layout(op) || KEEPS_ROWS.contains(&op) => {
                let rows = self.rows(step.value, step.tokens);
                let next = self.through(id, output, 0, step)?;
                // Of rows that are split, the first part alone has the first of them.
                let splits = op == "Split" && rows != self.rows(next.value, next.tokens);
                let read = next.read.clone().filter(|_| !splits || output == 0);
                Some(vec![Trail { read, ..next }])
            }
            "Resize" | "Upsample" => Some(vec![self.resized(id, output, step)?]),
            "Gather" | "GatherElements" | "GatherND" | "GatherBlockQuantized" => {
                Some(vec![self.picked(id, node, step)?])
            }
            "Slice" => Some(vec![self.sliced(id, node, step)?]),
            "MatMul" => Some(vec![self.chosen(node, step)?]),
            "Add" | "Sub" | "Mul" | "Div" | "Sum" | "Where" => self.computed(id, output, &step),
            "Concat" => self.concatenated(node, &step),
            _ => None,
        }
    }

    /// What the branches of an `If` give.
    fn branches(&self, node: &Node, output: usize, step: &Trail) -> Vec<Trail> {
        let inner = node.bodies().filter_map(|(_, body)| {
            let value = *self.graph.scope(body).outputs().get(output)?;
            let read = step.read.clone().filter(|_| self.dims(value).is_some());
            Some(Trail {
                value,
                read,
                ..step.clone()
            })
        });
        inner.collect()
    }

    /// The step to input `slot`, whose rows become those of the output.
    fn through(&self, id: NodeId, output: usize, slot: usize, step: Trail) -> Option<Trail> {
        let value = self.graph.node(id).input(slot)?;
        let tokens = back(self.graph, self.trace, id, output, slot, step.tokens)?;
        let rows = self.rows(value, tokens);
        // Rows that are repeated are all read.
        let read = if rows == self.rows(step.value, step.tokens) {
            step.read
        } else {
            i64::try_from(rows).ok().map(|n| (0..n).collect())
        };
        Some(Trail {
            value,
            tokens,
            read,
            ..step
        })
    }

    /// A grid that is resized: no row of it is read as it is.
    fn resized(&self, id: NodeId, output: usize, step: Trail) -> Option<Trail> {
        let next = self.through(id, output, 0, step)?;
        let dims = self.dims(next.value)?;
        let axes: Vec<usize> = next.tokens.iter().filter(|a| *a < dims.len()).collect();
        let resized = match axes[..] {
            [rows, columns] => Some([dims[rows], dims[columns]]),
            _ => None,
        };
        Some(Trail {
            read: None,
            resized,
            ..next
        })
    }

    /// The operands that vary along the tokens: one, or the summands of a sum.
    fn computed(&self, id: NodeId, output: usize, step: &Trail) -> Option<Vec<Trail>> {
        let node = self.graph.node(id);
        let varying: Vec<usize> = (0..node.inputs().len())
            .filter(|slot| self.acts(id, output, *slot, step.tokens))
            .collect();
        let sum = matches!(node.op(), "Add" | "Sum");
        if varying.is_empty() || varying.len() > 1 && !sum {
            return None;
        }
        let steps = varying.into_iter();
        let steps = steps.filter_map(|slot| self.through(id, output, slot, step.clone()));
        Some(steps.collect())
    }

    /// The parts of a concatenation; along the tokens, each counts the rows of the others.
    fn concatenated(&self, node: &Node, step: &Trail) -> Option<Vec<Trail>> {
        let rank = self.dims(step.value)?.len();
        let axis = wrap(node.int("axis").ok()??, rank)?;
        let along = step.tokens.has(axis);
        let constant = |v: ValueId| self.classes.of_value(v).is_constant();
        let rows = |v: ValueId| {
            let length = self.dims(v).and_then(|d| d.get(axis));
            length.copied().unwrap_or(0)
        };
        let joined_rows = |slot: usize| -> usize {
            let others = node.inputs().iter().enumerate();
            let others = others.filter(|(other, _)| along && *other != slot);
            let others = others.filter_map(|(_, v)| v.filter(|v| constant(*v)));
            others.map(rows).sum()
        };
        let steps = (0..node.inputs().len()).filter_map(|slot| {
            Some(Trail {
                value: node.input(slot)?,
                read: step.read.clone().filter(|_| !along),
                joined_rows: step.joined_rows + joined_rows(slot),
                ..step.clone()
            })
        });
        Some(steps.collect())
    }

    /// Whether an input varies along the tokens.
    fn acts(&self, id: NodeId, output: usize, slot: usize, tokens: Tokens) -> bool {
        let Some(value) = self.graph.node(id).input(slot) else {
            return false;
        };
        back(self.graph, self.trace, id, output, slot, tokens)
            .is_some_and(|tokens| self.rows(value, tokens) > 1)
    }

    /// Rows that an index picks.
    fn picked(&self, id: NodeId, node: &Node, step: Trail) -> Option<Trail> {
        let (data, index) = (node.input(0)?, node.input(1)?);
        let from = self.dims(data)?;
        let at = self.dims(index)?;
        let axis = match node.op() {
            "GatherND" => 0,
            _ => wrap(gather_axis(node)?, from.len())?,
        };
        // Axes of the output that the index spans.
        let span = match node.op() {
            "GatherElements" => axis..axis + 1,
            "GatherND" => 0..at.len().checked_sub(1)?,
            _ => axis..axis + at.len(),
        };
        if !step.tokens.iter().any(|a| span.contains(&a)) {
            let tokens = back(self.graph, self.trace, id, 0, 0, step.tokens)?;
            return Some(Trail {
                value: data,
                tokens,
                ..step
            });
        }
        let numbers = self.trace.get(index).to_i64();
        let rows = numbers.map(|numbers| {
            let whole = node.op() == "GatherElements";
            let line = numbers.indexed_iter().filter(|(place, _)| {
                let axes = 0..numbers.ndim();
                axes.into_iter().all(|a| {
                    let out = if whole { a } else { a + span.start };
                    place[a] == 0 || step.tokens.has(out)
                })
            });
            line.map(|(_, row)| *row).collect::<Vec<i64>>()
        });
        let read = match (&step.read, rows) {
            (Some(read), Some(rows)) => compose(read, &rows),
            _ => None,
        };
        let count = i64::try_from(from[axis]).ok();
        let read = read.zip(count).map(|(read, n)| {
            read.into_iter()
                .map(|r| if r < 0 { r + n } else { r })
                .collect()
        });
        Some(self.with_picked(Trail {
            value: data,
            tokens: Tokens::one(axis),
            read,
            ..step
        }))
    }

    /// Rows that are cut out.
    fn sliced(&self, id: NodeId, node: &Node, step: Trail) -> Option<Trail> {
        let data = node.input(0)?;
        let (from, to) = (self.dims(data)?, self.dims(step.value)?);
        let axes: Vec<usize> = step
            .tokens
            .iter()
            .filter(|a| from.get(*a) != to.get(*a))
            .collect();
        let read = match (axes[..].first(), axes.len(), &step.read) {
            (None, _, read) => read.clone(),
            (Some(axis), 1, Some(read)) => {
                let start = slice_start(self.graph, self.trace, id, *axis, from);
                let shifted = |start| read.iter().map(|r: &i64| r.checked_add(start)).collect();
                start.and_then(shifted)
            }
            _ => None,
        };
        let next = Trail {
            value: data,
            read,
            ..step
        };
        Some(if axes.is_empty() {
            next
        } else {
            self.with_picked(next)
        })
    }

    /// Rows of a table that are picked by a product with rows of one 1 each.
    fn chosen(&self, node: &Node, step: Trail) -> Option<Trail> {
        let (choice, table) = (node.input(0)?, node.input(1)?);
        let numbers = self.trace.get(choice).to_f64()?;
        let [.., columns] = *numbers.shape() else {
            return None;
        };
        if self.dims(table)? != [columns, *self.dims(table)?.last()?] {
            return None;
        }
        let flat: Vec<f64> = numbers.iter().copied().collect();
        let row = |line: &[f64]| -> Option<i64> {
            let mut ones = line.iter().enumerate().filter(|(_, v)| **v != 0.0);
            match (ones.next(), ones.next()) {
                (Some((at, one)), None) if *one == 1.0 => i64::try_from(at).ok(),
                _ => None,
            }
        };
        let rows: Vec<i64> = flat
            .chunks(columns.max(1))
            .map(row)
            .collect::<Option<_>>()?;
        let read = step.read.as_ref().and_then(|read| compose(read, &rows));
        Some(self.with_picked(Trail {
            value: table,
            tokens: Tokens::one(0),
            read,
            ..step
        }))
    }

    /// The same step; where rows of a constant were picked, with that constant noted.
    fn with_picked(&self, step: Trail) -> Trail {
        let constant = self.classes.of_value(step.value).is_constant();
        let picked = if constant { self.table(&step) } else { None };
        Trail { picked, ..step }
    }
}

/// The rows that are read through a list of rows.
fn compose(read: &[i64], rows: &[i64]) -> Option<Vec<i64>> {
    let row = |r: &i64| usize::try_from(*r).ok().and_then(|r| rows.get(r).copied());
    read.iter().map(row).collect()
}

/// What two parts of one table read together.
fn joined(a: Option<Vec<i64>>, b: Option<Vec<i64>>) -> Option<Vec<i64>> {
    match (a, b) {
        (Some(a), Some(b)) if a == b => Some(a),
        _ => None,
    }
}
