//! Gives tables by distance other rows, and the graph the numbers that find them.

use ndarray::{Array2, ArrayView2, Axis};
use posenc_encodings::families::transformer_xl;
use posenc_encodings::resize::resized;
use posenc_ir::{Emitter, NodeId, Tensor, Use, ValueId};

use super::part::Part;
use super::source::{check_readers, source};
use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};
use crate::plan::readers;
use crate::plan::stretch::distances::{Read, Rows};

/// A stored table, and every use of it that gets the new rows.
struct Stored<'a> {
    /// Where it was found first.
    context: Context<'a>,
    constant: ValueId,
    uses: Vec<Use>,
    read: &'a Read,
    rows: &'a Rows,
}

/// What the constants of these tables are, in a refusal.
const TABLE: &str = "the table of distances";

/// Applies the plans of all tables by distance.
///
/// # Errors
/// Where something else reads a table, or its numbers are not at hand.
pub(super) fn widen(out: &mut Emitter<'_>, parts: &[Part<'_>]) -> Result<(), RewriteError> {
    let mut stored: Vec<Stored<'_>> = vec![];
    for Part { context, plan } in parts {
        let mut between = vec![];
        let reads = plan.distances.iter().flat_map(|all| {
            let rows = &all.rows;
            all.reads.iter().map(move |read| (read, rows))
        });
        for (read, rows) in reads {
            let source = source(context, read.node, read.table);
            between.extend(source.between);
            match stored.iter_mut().find(|s| s.constant == source.constant) {
                Some(known) => {
                    let same = |other: &Read| {
                        [other.old, other.new] == [read.old, read.new] && other.axis == read.axis
                    };
                    if !same(known.read) {
                        let why = "the same table is read for other distances elsewhere";
                        return Err(context.refuse(read.node, why));
                    }
                    if !known.uses.contains(&source.at) {
                        known.uses.push(source.at);
                    }
                }
                None => stored.push(Stored {
                    context: *context,
                    constant: source.constant,
                    uses: vec![source.at],
                    read,
                    rows,
                }),
            }
        }
        check_readers(context, &between, TABLE)?;
    }
    for table in &stored {
        let is_changed = |value| stored.iter().any(|other| other.constant == value);
        readers::check(
            &table.context,
            table.constant,
            TABLE,
            |at| table.uses.contains(at),
            is_changed,
        )?;
    }
    for table in &stored {
        let tensor = table.tensor()?;
        out.replace_constant(table.constant, &table.uses, tensor)?;
    }
    renumber(out, parts)
}

/// Writes the new numbers in place of the old ones, for each constant all at once.
fn renumber(out: &mut Emitter<'_>, parts: &[Part<'_>]) -> Result<(), RewriteError> {
    let mut groups: Vec<Renumbered<'_>> = vec![];
    for Part { context, plan } in parts {
        for number in plan.distances.iter().flat_map(|all| &all.numbers) {
            let at = number.at;
            let Some(value) = context.graph().node(at.node).input(at.slot()) else {
                continue;
            };
            let mut known = groups.iter().filter(|group| group.uses.contains(&at));
            if known.any(|group| group.new != number.new) {
                return Err(differs(context, at.node));
            }
            let same =
                |group: &&mut Renumbered<'_>| (group.value, group.new) == (value, number.new);
            match groups.iter_mut().find(same) {
                Some(group) if group.uses.contains(&at) => {}
                Some(group) => group.uses.push(at),
                None => groups.push(Renumbered {
                    context: *context,
                    value,
                    new: number.new,
                    uses: vec![at],
                }),
            }
        }
    }
    for Renumbered {
        context,
        value,
        new,
        uses,
    } in groups
    {
        let graph = context.graph();
        let dims = context.dims(value).unwrap_or_default();
        let tensor = Tensor::from_f64(context.dtype(value), dims, &[new as f64]);
        if graph.stored(value).is_some() {
            out.replace_constant(value, &uses, tensor)?;
            continue;
        }
        out.set_scope(graph.value(value).scope());
        let number = out.constant("offset", tensor);
        for at in uses {
            out.redirect_use(value, at, number)?;
        }
    }
    Ok(())
}

/// A number that becomes another one where it is read.
struct Renumbered<'a> {
    context: Context<'a>,
    value: ValueId,
    new: i64,
    uses: Vec<Use>,
}

fn differs(context: &Context<'_>, node: NodeId) -> RewriteError {
    let why = "tables of different distances share a number here, which would have to become two";
    context.refuse(node, why)
}

impl Stored<'_> {
    /// The table with other rows.
    fn tensor(&self) -> Result<Tensor, RewriteError> {
        let graph = self.context.graph();
        let name = graph.name(self.constant);
        let refuse = |why: &str| -> RewriteError {
            Refusal::unsupported(format!("the table of distances {name} {why}")).into()
        };
        let old = graph
            .constant(self.constant)
            .ok_or_else(|| refuse("has no data at hand"))?;
        if !old.dtype().is_float() || old.dtype().epsilon().is_none() {
            return Err(refuse(
                "is of a type that is not supported yet in a rescale",
            ));
        }
        let Read {
            axis,
            old: from,
            new: to,
            ..
        } = *self.read;
        let numbers = old.to_f64s().ok_or_else(|| refuse("has no data at hand"))?;
        let dims = old.dims();
        if dims.get(axis) != Some(&from.rows()) {
            return Err(refuse("has other rows than are read of it"));
        }
        let inner: usize = dims[axis + 1..].iter().product();
        let mut all = vec![];
        for block in numbers.chunks(from.rows() * inner) {
            let block = ArrayView2::from_shape((from.rows(), inner), block);
            let block = block.map_err(|_| refuse("has other numbers than rows"))?;
            all.extend(self.rows(block));
        }
        let mut dims = dims.to_vec();
        dims[axis] = to.rows();
        Ok(Tensor::from_f64(old.dtype(), &dims, &all))
    }

    /// The new rows, from the old ones.
    fn rows(&self, old: ArrayView2<'_, f64>) -> Array2<f64> {
        match self.rows {
            Rows::Widened(by) => resized(old, &self.read.weights(*by)),
            Rows::Waves { code, counts_up } => {
                let Read {
                    old: from, new: to, ..
                } = *self.read;
                let sign = if *counts_up { 1 } else { -1 };
                let distances: Vec<i64> = (0..to.rows())
                    .map(|row| sign * (row as i64 - to.before as i64))
                    .collect();
                let mut rows = transformer_xl::reference(code, &distances);
                let first = to.before - from.before;
                for (row, kept) in old.axis_iter(Axis(0)).enumerate() {
                    rows.row_mut(first + row).assign(&kept);
                }
                rows
            }
        }
    }
}
