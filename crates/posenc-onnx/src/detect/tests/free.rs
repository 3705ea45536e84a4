//! Inputs of an open size whose length and width the graph names.

use super::*;
use crate::detect::finding::Encoding;
use posenc_encodings::kind::Kind;

/// Frames of `bins` features, convolved with this step, with rows of a table added, through one layer.
fn heard(bins: usize, step: i64, rows: usize) -> Model {
    let mut s = Sketch::default();
    let x = s.input(
        "input_features",
        DType::F32,
        &["batch", "feature_size", "frames"],
    );
    let w = s.weights(&[HIDDEN, bins, 3]);
    let attrs = [("kernel_shape", A::Ints(&[3])), ("pads", A::Ints(&[1, 1]))];
    let y = s.with("Conv", &[&x, &w], &attrs);
    let w = s.weights(&[HIDDEN, HIDDEN, 3]);
    let steps = [step];
    let attrs = [
        ("kernel_shape", A::Ints(&[3])),
        ("pads", A::Ints(&[1, 1])),
        ("strides", A::Ints(&steps)),
    ];
    let y = s.with("Conv", &[&y, &w], &attrs);
    let x = s.transpose(&y, &[0, 2, 1]);
    let table = s.weights(&[rows, HIDDEN]);
    let x = s.op("Add", &[&x, &table]);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.model(17, &[&y])
}

#[test]
fn the_frames_of_sound_are_as_many_as_a_table_has_rows_for() {
    for (bins, step, rows) in [(20, 2, 40), (7, 1, 33), (20, 2, 100)] {
        let read = found(&heard(bins, step, rows));
        assert_eq!(read.lengths.sequence, rows * step as usize, "{bins} {step}");
        assert_eq!(read.attention.len(), 1);
        let kinds: Vec<Kind> = read
            .findings
            .iter()
            .map(|f| Encoding::kind(&f.encoding))
            .collect();
        assert_eq!(kinds, [Kind::Learned]);
    }
}
