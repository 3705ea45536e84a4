//! Reading masks: what the softmax sees when queries and keys are zero and every token counts.

use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{Graph, Model, NodeId, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::{Mask, Site};
use crate::dataflow::{Class, Classes};

/// Scores this far below the best of a row are hidden.
const HIDDEN: f64 = 1e3;

/// The mask of a site.
pub(crate) fn read(model: &Model, classes: &Classes, trace: &Trace, site: &Site) -> Mask {
    let graph = model.graph();
    let mut mask = Mask {
        padding: padding(graph, classes, site),
        ..Mask::default()
    };
    let bias = match (site.product, site.scores) {
        (Some(product), Some(scores)) => {
            let dims = trace.get(site.key.value).dims.as_deref();
            let keys = dims.map(|d| d[site.key.lane.sequence]);
            let keys_first = graph
                .producer(product)
                .is_some_and(|(id, _)| graph.node(id).input(0) == Some(site.key.value));
            // Scores of `[keys, queries]` read the other way round.
            bias(model, trace, product, scores, keys.filter(|_| !keys_first)).map(|found| {
                match keys_first
                    && !graph
                        .producer(product)
                        .is_some_and(|(id, _)| graph.node(id).is("Einsum"))
                {
                    true => transposed(found),
                    false => found,
                }
            })
        }
        _ => fused_bias(graph, trace, site.node),
    };
    // What a fused operator hides by itself.
    mask.causal = site.mask.causal;
    mask.window = site.mask.window;
    if let Some((queries, keys, hidden)) = bias.filter(|_| mask.causal != Some(true)) {
        let past = keys.saturating_sub(queries);
        let later = |i: usize, j: usize| j > i + past;
        let all =
            |f: &dyn Fn(usize, usize) -> bool| (0..queries).all(|i| (0..keys).all(|j| f(i, j)));
        let causal = queries > 1
            && all(&|i, j| !later(i, j) || hidden[i * keys + j])
            && (0..queries).all(|i| !hidden[i * keys + i + past.min(keys - 1)]);
        mask.causal = Some(causal);
        mask.window = (1..keys).find(|w| {
            let inside = |i: usize, j: usize| (i + past).abs_diff(j) < *w;
            let fits =
                |i: usize, j: usize| later(i, j) && causal || hidden[i * keys + j] != inside(i, j);
            all(&fits)
        });
    }
    if let Ok(Some(causal)) = graph.node(site.node).int("is_causal")
        && causal != 0
    {
        mask.causal = Some(true);
    }
    mask
}

/// Queries, keys and which pairs are hidden, by setting the product to zero.
fn bias(
    model: &Model,
    trace: &Trace,
    product: ValueId,
    scores: ValueId,
    keys: Option<usize>,
) -> Option<(usize, usize, Vec<bool>)> {
    let dims = trace.get(product).dims.clone()?;
    let budget = Budget { elements: 1 << 22 };
    if !budget.allows(&dims) {
        return None;
    }
    let zeros = ndarray::ArrayD::<f64>::zeros(dims);
    let seeds = FxHashMap::from_iter([(product, Value::float(zeros))]);
    let got = probe(model, trace, &seeds, &[scores], &budget).ok()?;
    let (queries, columns, hidden) = hidden(got.first()?)?;
    // A sink adds a column that is no key.
    let keys = keys.filter(|n| *n < columns).unwrap_or(columns);
    let rows = hidden.chunks(columns).flat_map(|row| &row[..keys]);
    Some((queries, keys, rows.copied().collect()))
}

/// Rows as columns.
fn transposed((rows, columns, plane): (usize, usize, Vec<bool>)) -> (usize, usize, Vec<bool>) {
    let turned = (0..columns).flat_map(|j| {
        let plane = &plane;
        (0..rows).map(move |i| plane[i * columns + j])
    });
    (columns, rows, turned.collect())
}

/// Inputs of a fused operator that hide or add to scores, `[.., query, key]` first.
pub(crate) fn bias_slots(graph: &Graph, id: NodeId) -> &'static [usize] {
    let node = graph.node(id);
    match (node.domain(), node.op()) {
        ("", "Attention") => &[3],
        (_, "MultiHeadAttention") => &[5, 4],
        (_, "Attention") => &[5, 3],
        (_, "GroupQueryAttention") => &[10, 5],
        (_, "SparseAttention") => &[8],
        _ => &[],
    }
}

/// The same for the mask input of a fused operator.
fn fused_bias(graph: &Graph, trace: &Trace, id: NodeId) -> Option<(usize, usize, Vec<bool>)> {
    let slot = bias_slots(graph, id).first()?;
    let mask = trace.get(graph.node(id).input(*slot)?);
    match mask.dtype {
        Some(posenc_ir::DType::Bool) => {
            let (q, k, seen) = last_plane(mask)?;
            Some((q, k, seen.iter().map(|v| *v == 0.0).collect()))
        }
        _ => hidden(mask),
    }
}

fn hidden(scores: &Value) -> Option<(usize, usize, Vec<bool>)> {
    let (q, k, plane) = last_plane(scores)?;
    let mut out = Vec::with_capacity(plane.len());
    for row in plane.chunks(k) {
        let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        out.extend(row.iter().map(|v| v.is_nan() || best - v > HIDDEN));
    }
    Some((q, k, out))
}

/// The first plane of the last two axes.
fn last_plane(value: &Value) -> Option<(usize, usize, Vec<f64>)> {
    let data = value.to_f64()?;
    let shape = data.shape().to_vec();
    let [.., q, k] = shape[..] else { return None };
    let plane: Vec<f64> = data.iter().take(q * k).copied().collect();
    (q > 0 && k > 0 && plane.len() == q * k).then_some((q, k, plane))
}

/// Whether the attention mask reaches the scores between the product and the softmax.
fn padding(graph: &Graph, classes: &Classes, site: &Site) -> bool {
    let is_padding = |v: ValueId| {
        let class = classes.of_value(v);
        class.has(Class::PADDING) && !class.has(Class::CONTENT)
    };
    let (Some(product), Some(scores)) = (site.product, site.scores) else {
        let node = graph.node(site.node);
        let mut slots = bias_slots(graph, site.node).iter();
        return slots.any(|slot| node.input(*slot).is_some_and(is_padding));
    };
    let mut stack = vec![scores];
    let mut seen = rustc_hash::FxHashSet::default();
    while let Some(value) = stack.pop() {
        if value == product || !seen.insert(value) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        for input in graph.node(id).inputs().iter().flatten() {
            if is_padding(*input) {
                return true;
            }
            if classes.of_value(*input).has(Class::CONTENT) {
                stack.push(*input);
            }
        }
    }
    false
}
