//! Attention in the body of a `Scan`: layers count as often as they run, and sequences do not.

use super::*;

/// The layers of the sites, with their heads.
fn sites(sketch: Sketch, y: &str) -> Vec<(usize, Option<usize>)> {
    let found = found(&sketch.model(17, &[y]));
    let sites = found.attention.iter();
    sites.map(|site| (site.place.layer, site.heads)).collect()
}

#[test]
fn one_sequence_after_another_is_one_site() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let start = s.weights(&[1, 1]);
    let [_, y] = s.recurrence([&start, &x], 0, |s, [_, x]| {
        // Heads come first, and no axis of sequences before them.
        let [q, k, v] = [0; 3].map(|_| {
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let y = s.op("MatMul", &[x, &w]);
            let y = s.reshape(&y, &[0, HEADS as i64, SIZE as i64]);
            s.transpose(&y, &[1, 0, 2])
        });
        let k = s.transpose(&k, &[0, 2, 1]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.transpose(&y, &[1, 0, 2]);
        s.reshape(&y, &[0, HIDDEN as i64])
    });
    assert_eq!(sites(s, &y), [(0, Some(HEADS))]);
}

#[test]
fn layers_with_weights_or_caches_in_slices_are_as_many_sites() {
    for name in ["past_keys", "stored"] {
        let mut s = Sketch::default();
        let x = s.embedded();
        let sliced = match name {
            "stored" => s.weights(&[3, 1, 1, HIDDEN]),
            name => s.input(name, DType::F32, &["3", "batch", "1", "24"]),
        };
        let [y, _] = s.recurrence([&x, &sliced], 0, |s, [x, slice]| {
            let y = s.op("Add", &[x, slice]);
            s.attends(&y, &y)
        });
        let want = [0, 1, 2].map(|layer| (layer, Some(HEADS)));
        assert_eq!(sites(s, &y), want, "{name}");
    }
}
