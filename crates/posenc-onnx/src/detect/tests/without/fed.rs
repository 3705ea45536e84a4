//! Attention that is told something else than position: times, kinds, pairs and distances that are
//! fed.

use super::*;

/// Waves of one time for each sample, `[batch, HIDDEN]`.
fn waves_of_times(s: &mut Sketch) -> String {
    let times = s.input("timestep", DType::I64, &["batch"]);
    let times = s.cast(&times, DType::F32);
    let times = s.unsqueeze(&times, &[1]);
    let half = HIDDEN / 2;
    let f = (0..half).map(|i| THETA.powf(-(i as f64) / half as f64));
    let f = s.floats(&[1, half], f);
    let angles = s.op("Mul", &[&times, &f]);
    let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
    s.concat(&[&cos, &sin], 1)
}

#[test]
fn waves_of_a_time_added_to_all_tokens() {
    without(2, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let waves = waves_of_times(s);
        let waves = linear(s, &waves, HIDDEN, HIDDEN);
        let waves = s.unsqueeze(&waves, &[1]);
        let x = s.op("Add", &[&x, &waves]);
        let x = s.attends(&x, &x);
        let x = forward(s, &x);
        s.attends(&x, &x)
    });
}

#[test]
fn waves_of_a_time_added_as_they_are() {
    without(1, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let waves = waves_of_times(s);
        let waves = s.unsqueeze(&waves, &[1]);
        let x = s.op("Add", &[&x, &waves]);
        s.attends(&x, &x)
    });
}

#[test]
fn waves_of_a_time_that_scale_and_shift_all_tokens() {
    without(1, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let waves = waves_of_times(s);
        let change = linear(s, &waves, HIDDEN, 2 * HIDDEN);
        let change = s.unsqueeze(&change, &[1]);
        let parts = split(s, &change, &[HIDDEN as i64; 2], -1);
        let y = normed(s, &x);
        let y = s.op("Mul", &[&y, &parts[0]]);
        let y = s.op("Add", &[&y, &parts[1]]);
        s.attends(&y, &y)
    });
}

#[test]
fn segments_of_a_text() {
    without(1, |s| {
        let x = s.embedded();
        let types = s.input("token_type_ids", DType::I64, &["batch", "sequence"]);
        let table = s.weights(&[2, HIDDEN]);
        let rows = s.gather(&table, &types, 0);
        let x = s.op("Add", &[&x, &rows]);
        let x = normed(s, &x);
        s.attends(&x, &x)
    });
}

#[test]
fn segments_counted_by_separators() {
    without(1, |s| {
        let x = s.embedded();
        let (two, axis) = (s.int(2), s.int(1));
        let ends = s.op("Equal", &["input_ids", &two]);
        let ends = s.cast(&ends, DType::I64);
        let at = s.op("CumSum", &[&ends, &axis]);
        let table = s.weights(&[8, HIDDEN]);
        let rows = s.gather(&table, &at, 0);
        let x = s.op("Add", &[&x, &rows]);
        s.attends(&x, &x)
    });
}

#[test]
fn hours_that_pick_rows() {
    without(1, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let hours = s.input("hour", DType::I64, &["batch", "sequence"]);
        let table = s.weights(&[24, HIDDEN]);
        let rows = s.gather(&table, &hours, 0);
        let x = s.op("Add", &[&x, &rows]);
        s.attends(&x, &x)
    });
}

#[test]
fn pictures_in_the_place_of_words() {
    without(1, |s| {
        let x = s.embedded();
        let pictures = s.input("pictures", DType::F32, &["batch", "sequence", "24"]);
        let pictures = linear(s, &pictures, 24, HIDDEN);
        let three = s.int(3);
        let chosen = s.op("Equal", &["input_ids", &three]);
        let chosen = s.unsqueeze(&chosen, &[2]);
        let x = s.op("Where", &[&chosen, &pictures, &x]);
        attending(s, &x, &x, |s, scores| causal(s, &scores))
    });
}

/// Angles of content are none of positions.
#[test]
fn rotations_by_angles_of_content() {
    without(1, |s| {
        let x = s.embedded();
        let w = s.weights(&[HIDDEN, HEADS * PAIRS]);
        let angles = s.op("MatMul", &[&x, &w]);
        let angles = s.reshape(&angles, &[0, 0, HEADS as i64, PAIRS as i64]);
        let angles = s.transpose(&angles, &[0, 2, 1, 3]);
        let [q, k] = [0; 2].map(|_| {
            let q = s.headed(&x);
            let (cos, sin) = waves(s, &angles);
            let other = swapped(s, &q);
            mixed(s, &q, &other, &cos, &sin)
        });
        let v = s.headed(&x);
        let y = attend(s, &q, &k, &v);
        s.merged(&y)
    });
}

#[test]
fn codes_of_several_books_in_one_table() {
    without(1, |s| {
        let codes = s.input("codes", DType::I64, &["batch", "sequence", "4"]);
        let offsets = s.typed(DType::I64, &[4], (0..4).map(|i| f64::from(i * 30)));
        let at = s.op("Add", &[&codes, &offsets]);
        let table = s.weights(&[120, HIDDEN]);
        let rows = s.gather(&table, &at, 0);
        let x = reduced(s, "ReduceSum", &rows, &[2]);
        s.attends(&x, &x)
    });
}

#[test]
fn hashed_ids() {
    without(1, |s| {
        let ids = s.input("input_ids", DType::I64, &["batch", "sequence"]);
        let (prime, buckets) = (s.int(31), s.int(16));
        let at = s.op("Mul", &[&ids, &prime]);
        let at = s.op("Mod", &[&at, &buckets]);
        let table = s.weights(&[16, HIDDEN]);
        let x = s.gather(&table, &at, 0);
        s.attends(&x, &x)
    });
}

#[test]
fn scores_that_grow_with_the_length() {
    without(1, |s| {
        let x = s.embedded();
        attending(s, &x, &x, |s, scores| {
            let shape = s.op("Shape", &["input_ids"]);
            let one = s.int(1);
            let length = s.gather(&shape, &one, 0);
            let length = s.cast(&length, DType::F32);
            let factor = s.op("Log", &[&length]);
            s.op("Mul", &[&scores, &factor])
        })
    });
}

#[test]
fn a_mask_of_lengths() {
    without(1, |s| {
        let x = s.embedded();
        s.input("lengths", DType::I64, &["batch"]);
        attending(s, &x, &x, |s, scores| {
            let at = s.range();
            let (at, lengths) = (s.unsqueeze(&at, &[0]), s.unsqueeze("lengths", &[1]));
            let kept = s.op("Less", &[&at, &lengths]);
            let kept = s.unsqueeze(&kept, &[1, 2]);
            let low = s.float(-1e9);
            s.op("Where", &[&kept, &scores, &low])
        })
    });
}

#[test]
fn numbers_of_pairs_as_a_bias() {
    without(1, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        s.input("pairs", DType::F32, &["batch", "sequence", "sequence"]);
        attending(s, &x, &x, |s, scores| {
            let bias = s.unsqueeze("pairs", &[1]);
            s.op("Add", &[&scores, &bias])
        })
    });
}

#[test]
fn a_mask_of_pairs() {
    without(1, |s| {
        let x = s.embedded();
        s.input(
            "attention_mask",
            DType::F32,
            &["batch", "1", "sequence", "sequence"],
        );
        attending(s, &x, &x, |s, scores| {
            s.op("Add", &[&scores, "attention_mask"])
        })
    });
}

#[test]
fn a_table_next_to_times_that_are_fed_is_found() {
    with_table(|s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let waves = waves_of_times(s);
        let waves = s.unsqueeze(&waves, &[1]);
        let x = s.op("Add", &[&x, &waves]);
        let x = placed(s, &x);
        s.attends(&x, &x)
    });
}
