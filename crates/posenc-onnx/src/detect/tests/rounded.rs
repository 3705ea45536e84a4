//! Sines that are stored in fewer digits than their type has.

use super::*;
use crate::detect::finding::Encoding;
use posenc_encodings::kind::Kind;
use posenc_ir::Tensor;

/// What a table of sines and cosines reads as, whose numbers are changed.
fn read(change: impl Fn(f64) -> f64) -> Vec<Kind> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let cells = (0..64).flat_map(|p| {
        (0..HIDDEN).map(move |j| {
            let angle = f64::from(p) * 10000_f64.powf(-((j / 2 * 2) as f64) / HIDDEN as f64);
            if j % 2 == 0 { angle.sin() } else { angle.cos() }
        })
    });
    let table = s.floats(&[64, HIDDEN], cells.map(change));
    let at = s.range();
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let y = attend(&mut s, &q, &k, &v);
    let y = s.merged(&y);
    let all = found(&s.model(17, &[&y])).findings;
    all.iter().map(|f| Encoding::kind(&f.encoding)).collect()
}

fn rounded(dtype: DType) -> impl Fn(f64) -> f64 {
    move |v| Tensor::from_f64(dtype, &[1], &[v]).get_f64(0).unwrap()
}

#[test]
fn sines_that_were_rounded_to_half_precision_are_read() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        assert_eq!(read(rounded(dtype)), [Kind::Sinusoidal], "{dtype}");
    }
}

#[test]
fn sines_that_differ_by_more_than_their_digits_are_learned() {
    let coarse = |v: f64| (v * 128.0).round() / 128.0;
    let near = |v: f64| v + 2e-3 * (1e4 * v).sin();
    let moved = |v: f64| rounded(DType::BF16)(v + 0.05 * (1e4 * v).sin());
    assert_eq!(read(coarse), [Kind::Learned]);
    assert_eq!(read(near), [Kind::Learned]);
    assert_eq!(read(moved), [Kind::Learned]);
}
