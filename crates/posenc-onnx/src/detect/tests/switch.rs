//! Frequencies that a graph chooses by the number of tokens.

use super::*;

/// Two lists of frequencies, of which a comparison of the length with `bound` chooses; the same length
/// counts the positions.
fn chosen(bound: f64, far: f64) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (shape, one, zero) = (s.op("Shape", &["input_ids"]), s.int(1), s.int(0));
    let length = s.gather(&shape, &one, 0);
    let at = s.op("Range", &[&zero, &length, &one]);
    let at = s.cast(&at, DType::F32);
    let at = s.unsqueeze(&at, &[-1]);
    let count = s.cast(&length, DType::F32);
    let bound = s.float(bound);
    let is_long = s.op("Greater", &[&count, &bound]);
    let is_short = s.op("Not", &[&is_long]);
    let lists = [(&is_long, far), (&is_short, 1.0)].map(|(when, factor)| {
        let list = s.floats(&[1, PAIRS], (0..PAIRS).map(|i| frequency(i) / factor));
        let share = s.cast(when, DType::F32);
        s.op("Mul", &[&list, &share])
    });
    let frequencies = s.op("Add", &[&lists[0], &lists[1]]);
    let angles = s.op("Mul", &[&at, &frequencies]);
    let [q, k] = [0; 2].map(|_| {
        let q = s.headed(&x);
        let (cos, sin) = waves(&mut s, &angles);
        let other = swapped(&mut s, &q);
        mixed(&mut s, &q, &other, &cos, &sin)
    });
    let v = s.headed(&x);
    let y = attend(&mut s, &q, &k, &v);
    let y = s.merged(&y);
    s.model(17, &[&y])
}

#[test]
fn a_choice_by_the_length_that_counts_the_tokens_is_seen() {
    for bound in [64, 100, 4096] {
        let read = found(&chosen(f64::from(bound), 3.0));
        assert_eq!(read.rotary.len(), 1, "{:?}", read.not_rotary);
        let switch = read.rotary[0].switch.as_ref().expect("a switch");
        assert_eq!(switch.original_length, bound as usize);
        let near = &read.rotary[0].query.rotation.rope.inv_freq;
        for (_, far) in &switch.beyond {
            for (a, b) in near.iter().zip(&far.inv_freq) {
                assert!((a / b - 3.0).abs() < 1e-6, "{a} {b}");
            }
        }
    }
}

#[test]
fn a_choice_between_equal_frequencies_is_none() {
    let read = found(&chosen(64.0, 1.0));
    assert_eq!(read.rotary.len(), 1, "{:?}", read.not_rotary);
    assert!(read.rotary[0].switch.is_none());
}

/// Writes cosines or sines of positions, whichever is given.
type Caches<'a> = &'a dyn Fn(&mut Sketch, fn(f64) -> f64) -> String;

#[test]
fn rows_of_caches_that_positions_choose_between_end() {
    const ROWS: usize = 96;
    let limits = |caches: Caches<'_>| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let ids = s.input("position_ids", DType::I64, &["batch", "sequence"]);
        let [cos, sin] = [f64::cos, f64::sin].map(|function| caches(&mut s, function));
        let heads = [s.headed(&x), s.headed(&x), s.headed(&x)];
        let rotated =
            |s: &mut Sketch, heads: &str| s.op("RotaryEmbedding", &[heads, &cos, &sin, &ids]);
        let [q, k] = [&heads[0], &heads[1]].map(|heads| rotated(&mut s, heads));
        let y = s.weighted(&q, &k, &heads[2]);
        let model = s.model(23, &[&y]);
        let read = found(&model);
        let limits = read.limits.iter().map(|l| (l.length, l.value.clone()));
        limits.collect::<Vec<_>>()
    };
    let stored = |s: &mut Sketch, of: fn(f64) -> f64, by: f64| {
        let angles = (0..ROWS).flat_map(|at| (0..PAIRS).map(move |i| (at as f64, i)));
        s.floats(
            &[ROWS, PAIRS],
            angles.map(|(at, i)| of(at * frequency(i) / by)),
        )
    };
    let one = limits(&|s, of| stored(s, of, 1.0));
    assert_eq!(one.iter().map(|l| l.0).collect::<Vec<_>>(), [ROWS]);
    let chosen = limits(&|s, of| {
        let [long, short] = [2.0, 1.0].map(|by| stored(s, of, by));
        let (last, bound) = (s.op("ReduceMax", &["position_ids"]), s.int(64));
        let is_long = s.op("Greater", &[&last, &bound]);
        s.op("Where", &[&is_long, &long, &short])
    });
    assert_eq!(chosen.iter().map(|l| l.0).collect::<Vec<_>>(), [ROWS]);
    assert!(chosen.iter().all(|l| l.1.is_some()), "{chosen:?}");
    // Rows for the positions at hand end nowhere.
    let made = limits(&|s, of| {
        let (last, zero, one) = (s.op("ReduceMax", &["position_ids"]), s.int(0), s.int(1));
        let count = s.op("Add", &[&last, &one]);
        let at = s.op("Range", &[&zero, &count, &one]);
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[1]);
        let frequencies = s.floats(&[1, PAIRS], (0..PAIRS).map(frequency));
        let angles = s.op("Mul", &[&at, &frequencies]);
        s.op(if of(0.0) > 0.5 { "Cos" } else { "Sin" }, &[&angles])
    });
    assert_eq!(made, []);
}
