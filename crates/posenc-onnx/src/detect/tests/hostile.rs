//! Sizes that no machine has memory for: they are refused or told, and nothing is computed of them.

use posenc_ir::Weights;

use super::*;
use crate::plan::unread::of_branch;

/// Sizes at the edges of what code expects.
const SIZES: [&str; 5] = [
    "1048576",
    "2097153",
    "2147483648",
    "4611686018427387904",
    "9223372036854775807",
];

/// The rotary decoder with ids of these dimensions.
fn declared(dims: &str) -> Model {
    let text = model(&Form::default()).text(Weights::Full).to_string();
    let ids = "[batch,sequence] input_ids";
    assert!(text.contains(ids), "{text}");
    Model::parse(&text.replace(ids, &format!("[{dims}] input_ids"))).unwrap()
}

#[test]
fn declared_sizes_beyond_memory_are_told() {
    for size in SIZES {
        for dims in [format!("batch, {size}"), format!("{size}, sequence")] {
            let model = declared(&dims);
            let told = of_branch(&model, &found(&model));
            let is_told = told.iter().any(|why| why.contains("no run is that long"));
            let is_long = size != SIZES[0];
            assert_eq!(is_told, is_long, "{dims}: {told:?}");
        }
    }
}

#[test]
fn sizes_in_the_graph_are_not_allocated() {
    for size in SIZES {
        let size: i64 = size.parse().unwrap();
        let reshaped = |s: &mut Sketch, x: String, dims: &[i64]| {
            let apart = s.reshape(&x, dims);
            let part = s.slice(&apart, 0, [0, i64::MAX, 1]);
            let part = s.slice(&part, -1, [i64::MIN, size, 1]);
            let back = s.reshape(&part, &[0, -1, HIDDEN as i64]);
            s.op("Add", &[&back, &x])
        };
        for dims in [[size, 17, 4, 16], [-1, size, 1, 8], [2, size, size, 0]] {
            let mut s = Sketch::default();
            let x = s.embedded();
            let x = reshaped(&mut s, x, &dims);
            let y = s.attends(&x, &x);
            found(&s.model(23, &[&y]));
        }
        // Repeated, as wide as that.
        let mut s = Sketch::default();
        let x = s.embedded();
        let wide = s.ints(&[size, 1, 1]);
        let wide = s.op("Expand", &[&x, &wide]);
        let y = s.attends(&wide, &wide);
        found(&s.model(23, &[&y]));
    }
}
