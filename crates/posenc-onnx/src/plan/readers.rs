//! What else reads a table that gets other rows: it would keep the old ones.

use posenc_ir::{Tensor, Use, ValueId};

use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};

/// Refuses a table that something else than `known` reads, one that is given out, and one of which another
/// constant is a copy, as an exporter stores the weights of an output. `what` is what it is called, and
/// `changed` says which constants get other rows themselves.
///
/// # Errors
/// With what reads it, or the copy.
pub(crate) fn check(
    context: &Context<'_>,
    table: ValueId,
    what: &str,
    known: impl Fn(&Use) -> bool,
    changed: impl Fn(ValueId) -> bool,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let name = graph.name(table);
    let mut others = graph.uses(table).iter();
    let other = others.find(|at| !known(at) && !graph.node(at.node).is("Shape"));
    if let Some(at) = other {
        let why = format!(
            "{name}, {what}, is read here for something else, which would keep the old rows"
        );
        return Err(context.refuse(at.node, why));
    }
    if graph.value(table).is_output() {
        let why = format!("{name}, {what}, is an output");
        return Err(Refusal::unsupported(why).into());
    }
    if let Some(copy) = copy(context, table, changed) {
        let why = format!(
            "{} has the numbers of {name}, {what}, and would keep the old rows",
            graph.name(copy)
        );
        return Err(match graph.uses(copy).first() {
            Some(at) => context.refuse(at.node, why),
            None => Refusal::unsupported(why).into(),
        });
    }
    Ok(())
}

/// Another stored constant of the same numbers, in their order or turned, that is no position table itself.
fn copy(
    context: &Context<'_>,
    table: ValueId,
    changed: impl Fn(ValueId) -> bool,
) -> Option<ValueId> {
    let graph = context.graph();
    let own = graph.stored(table)?;
    let sizes = |dims: &[usize]| {
        let mut sizes: Vec<usize> = dims.iter().copied().filter(|n| *n != 1).collect();
        sizes.sort_unstable();
        sizes
    };
    let wanted = sizes(&own.dims);
    let findings = &context.found.findings;
    let is_found = |value| findings.iter().any(|f| f.table == Some(value));
    let is_alike = |value: &ValueId| {
        let stored = graph.stored(*value);
        let is_read = !graph.uses(*value).is_empty() || graph.value(*value).is_output();
        *value != table
            && !is_found(*value)
            && is_read
            && stored.is_some_and(|s| s.dtype == own.dtype && sizes(&s.dims) == wanted)
            && !changed(*value)
    };
    let mut alike = graph.values().filter(is_alike).peekable();
    alike.peek()?;
    let rows = matrix(&graph.constant(table)?)?;
    // Tables of one number are alike whatever they are.
    let first = rows.numbers.first()?;
    if rows.numbers.iter().all(|v| v == first) {
        return None;
    }
    alike.find(|value| {
        let other = graph.constant(*value).and_then(|tensor| matrix(&tensor));
        other.is_some_and(|other| other.numbers == rows.numbers || other.is_turned(&rows))
    })
}

/// The numbers of a constant, row by row.
struct Matrix {
    columns: usize,
    numbers: Vec<f64>,
}

fn matrix(tensor: &Tensor) -> Option<Matrix> {
    let columns = tensor.dims().iter().rev().find(|n| **n != 1);
    Some(Matrix {
        columns: columns.copied().unwrap_or(1),
        numbers: tensor.to_f64s()?,
    })
}

impl Matrix {
    /// Whether this has the columns of another one as its rows.
    fn is_turned(&self, other: &Self) -> bool {
        let (rows, columns) = (other.numbers.len() / other.columns.max(1), other.columns);
        self.columns == rows
            && self.numbers.len() == rows * columns
            && (0..columns).all(|column| {
                let own = &self.numbers[column * rows..(column + 1) * rows];
                let turned = other.numbers[column..].iter().step_by(columns);
                own.iter().zip(turned).all(|(a, b)| a == b)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(columns: usize, numbers: &[f64]) -> Matrix {
        let numbers = numbers.to_vec();
        Matrix { columns, numbers }
    }

    #[test]
    fn a_turned_table_is_told_from_others() {
        let table = of(3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!(of(2, &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]).is_turned(&table));
        for other in [
            of(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            of(2, &[1.0, 4.0, 2.0, 5.0, 3.0, 7.0]),
            of(3, &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
            of(2, &[1.0, 4.0, 2.0, 5.0]),
        ] {
            assert!(!other.is_turned(&table), "{:?}", other.numbers);
        }
    }
}
