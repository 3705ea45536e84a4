//! Rows that are added to all tokens alike, and that follow from how many tokens there are or are read from a table of
//! positions.

use posenc_ir::eval::Value;
use posenc_ir::{Model, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::stream::{Join, Stream};
use crate::detect::found::Found;
use crate::detect::runs::{BUDGET, longer, rounding};
use crate::graph::dataflow::Class;
use crate::graph::region::above;

/// How many more tokens there are in the runs that are compared.
const MORE: [usize; 2] = [1, 5];

/// What is added so, a sentence for each; `tables` are those of positions.
pub(super) fn find(
    model: &Model,
    found: &Found,
    stream: &Stream,
    tables: &[ValueId],
) -> Vec<String> {
    let varied = stream.additions.iter();
    let varied = varied.filter(|addition| addition.join == Join::Summed);
    let entries = varied.map(|addition| &addition.entry).chain(&stream.alike);
    // A value that several layers add is looked at once.
    let mut seen = FxHashSet::default();
    entries
        .filter_map(|entry| {
            let value = model.graph().node(entry.node).input(entry.slot())?;
            seen.insert(value)
                .then(|| why(model, found, (*entry, value), tables))?
        })
        .collect()
}

fn why(
    model: &Model,
    found: &Found,
    (entry, value): (Use, ValueId),
    tables: &[ValueId],
) -> Option<String> {
    let graph = model.graph();
    let class = found.classes.of_value(value);
    if class.is_constant() || class.has(Class::CONTENT) {
        return None;
    }
    let now = row(found.trace.get(value))?;
    let place = graph.place(entry.node);
    let read = above(graph, vec![value], |_| true);
    if let Some(table) = read.iter().find(|value| tables.contains(value)) {
        return Some(format!(
            "{place}: a row that is made of the position table {} is added to all tokens alike, and is no part of what \
             was read",
            graph.name(*table)
        ));
    }
    let rounding = rounding(found.trace.get(value).dtype);
    let is_other = |more: usize| {
        let tokens = found.lengths.sequence + more;
        let values = longer(model, found, &[value], tokens, &BUDGET);
        let then = values.and_then(|values| row(values.first()?));
        then.is_some_and(|then| {
            let far = |(a, b): (&f64, &f64)| (a - b).abs() > rounding * (1.0 + a.abs());
            then.len() == now.len() && now.iter().zip(&then).any(far)
        })
    };
    MORE.into_iter().any(is_other).then(|| {
        format!(
            "{place}: the same row is added to all tokens, and another one where there are more of them; whether it \
             encodes positions is not known"
        )
    })
}

/// The features of a value that are the same for all tokens; `None` where they are not, or are not at hand.
fn row(value: &Value) -> Option<Vec<f64>> {
    let numbers = value.to_f64()?;
    let width = numbers.shape().last().copied().unwrap_or(1);
    let all: Vec<f64> = numbers.iter().copied().collect();
    let mut rows = all.chunks(width.max(1));
    let first = rows.next()?;
    rows.all(|row| row == first).then(|| first.to_vec())
}
