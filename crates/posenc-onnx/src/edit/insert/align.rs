//! Aligns the axes of a value with those of a larger one.

use posenc_ir::{Attr, Emitter, ValueId};

use posenc_encodings::opset::Opset;

/// Reshapes a value so that its axes broadcast with these axes of a value of rank `rank`: axes are
/// transposed to rising order, and missing ones in between have length 1.
pub(crate) fn align(
    out: &mut Emitter<'_>,
    opset: Opset,
    mut value: ValueId,
    axes: &[usize],
    rank: usize,
) -> ValueId {
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_by_key(|i| axes[*i]);
    if !order.is_sorted() {
        let perm = order.iter().map(|i| *i as i64).collect();
        value = out.op_with("Transpose", &[value], &[("perm", Attr::Ints(perm))]);
    }
    let Some(first) = axes.iter().min().copied() else {
        return value;
    };
    let between = (first..rank).filter(|a| !axes.contains(a));
    let between: Vec<i64> = between.map(|a| (a - first) as i64).collect();
    if !between.is_empty() {
        value = opset.unsqueeze(out, value, &between);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::sketch::Sketch;

    #[test]
    fn axes_are_transposed_and_missing_ones_are_inserted() {
        let cases: [(&[usize], usize, &[&str]); 6] = [
            (&[1, 2], 3, &[]),
            (&[2, 3], 4, &[]),
            (&[0, 1, 2], 3, &[]),
            (&[1, 3], 4, &["Unsqueeze"]),
            (&[3, 2], 4, &["Transpose"]),
            (&[0, 3, 1], 4, &["Transpose", "Unsqueeze"]),
        ];
        let mut s = Sketch::default();
        let x = s.embedded();
        let y = s.op("Neg", &[&x]);
        let model = s.model(17, &[&y]);
        let graph = model.graph();
        for (axes, rank, want) in cases {
            let mut out = graph.emitter(graph.main(), "e");
            let value = graph.scope(graph.main()).inputs()[0];
            align(&mut out, Opset(17), value, axes, rank);
            let text = out.finish().text(graph);
            let ops: Vec<&str> = ["Transpose", "Unsqueeze"]
                .into_iter()
                .filter(|op| text.contains(op))
                .collect();
            assert_eq!(ops, want, "{axes:?} of {rank}: {text}");
        }
    }
}
