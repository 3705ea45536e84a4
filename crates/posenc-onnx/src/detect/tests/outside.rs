//! Numbers from inputs that meet queries and keys behind their projection.

use super::*;
use crate::graph::ports::Role;

/// What is not evaluated where this is made of the queries and keys of a layer on `x`.
fn unread(made: fn(&mut Sketch, &str, &str) -> String) -> Vec<String> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let v = s.headed(&x);
    let [q, k] = [(); 2].map(|()| {
        let y = s.headed(&x);
        made(&mut s, &y, &x)
    });
    let y = attend(&mut s, &q, &k, &v);
    found(&s.model(18, &[&y])).not_evaluated
}

/// An input `[batch, sequence, size]`, for all heads.
fn given(s: &mut Sketch, name: &str) -> String {
    let name = s.input(name, DType::F32, &["batch", "sequence", "8"]);
    s.unsqueeze(&name, &[1])
}

#[test]
fn cosines_and_sines_that_are_inputs_are_told() {
    let rotated = |s: &mut Sketch, y: &str, _: &str| {
        let [cos, sin] = ["cos", "sin"].map(|name| given(s, &format!("{name}_of_{y}")));
        let half = SIZE as i64 / 2;
        let (a, b) = (
            s.slice(y, 3, [0, half, 1]),
            s.slice(y, 3, [half, 2 * half, 1]),
        );
        let b = s.op("Neg", &[&b]);
        let turned = s.concat(&[&b, &a], 3);
        let (a, b) = (s.op("Mul", &[y, &cos]), s.op("Mul", &[&turned, &sin]));
        s.op("Add", &[&a, &b])
    };
    let told = unread(rotated);
    assert!(
        told.iter()
            .any(|why| why.contains("the input") && why.contains("sin_of")),
        "{told:?}"
    );
    let added = unread(|s, y, _| {
        let place = given(s, &format!("place_of_{y}"));
        s.op("Add", &[y, &place])
    });
    assert!(added.iter().any(|why| why.contains("place")), "{added:?}");
}

#[test]
fn scales_of_dynamic_quantization_are_none() {
    fn quantized(s: &mut Sketch, y: &str) -> Vec<String> {
        let dims = &["batch", "sequence", "8"];
        let pixels = s.input(&format!("pixels_of_{y}"), DType::F32, dims);
        s.many("DynamicQuantizeLinear", &[&pixels], &[], 3)
    }
    let scaled = |s: &mut Sketch, y: &str, _: &str| {
        let all = quantized(s, y);
        s.op("Mul", &[y, &all[1]])
    };
    assert_eq!(unread(scaled), [""; 0]);
    let rounded = |s: &mut Sketch, y: &str, _: &str| {
        let all = quantized(s, y);
        let all = s.op("DequantizeLinear", &[&all[0], &all[1], &all[2]]);
        let all = s.unsqueeze(&all, &[1]);
        s.op("Mul", &[y, &all])
    };
    assert!(
        unread(rounded).iter().any(|why| why.contains("pixels")),
        "control"
    );
}

#[test]
fn positions_times_frequencies_are_no_projection() {
    // Coordinates are columns, and frequencies a row.
    let products = |s: &mut Sketch, y: &str, _: &str| {
        let name = format!("coordinates_of_{y}");
        let name = s.input(&name, DType::F32, &["batch", "sequence", "2"]);
        let column = s.slice(&name, 2, [0, 1, 1]);
        let row = s.weights(&[1, SIZE]);
        let angles = s.op("MatMul", &[&column, &row]);
        let cos = s.op("Cos", &[&angles]);
        let cos = s.unsqueeze(&cos, &[1]);
        s.op("Mul", &[y, &cos])
    };
    let told = unread(products);
    assert!(
        told.iter().any(|why| why.contains("coordinates")),
        "{told:?}"
    );
    let projected = |s: &mut Sketch, y: &str, _: &str| {
        let name = format!("coordinates_of_{y}");
        let name = s.input(&name, DType::F32, &["batch", "sequence", "2"]);
        let w = s.weights(&[2, SIZE]);
        let gate = s.op("MatMul", &[&name, &w]);
        let gate = s.unsqueeze(&gate, &[1]);
        s.op("Mul", &[y, &gate])
    };
    assert_eq!(unread(projected), [""; 0]);
}

#[test]
fn what_weights_project_and_norms_are_not() {
    let gated = unread(|s, y, x| {
        let gate = s.headed(x);
        let gate = s.op("Sigmoid", &[&gate]);
        s.op("Mul", &[y, &gate])
    });
    assert_eq!(gated, [""; 0]);
    let normed = unread(|s, y, _| {
        let squares = s.op("Mul", &[y, y]);
        let axes = s.ints(&[-1]);
        let mean = s.op("ReduceMean", &[&squares, &axes]);
        let root = s.op("Sqrt", &[&mean]);
        s.op("Div", &[y, &root])
    });
    assert_eq!(normed, [""; 0]);
    let cached = unread(|s, y, _| {
        let past = s.input(
            &format!("past_of_{y}"),
            DType::F32,
            &["batch", "3", "past", "8"],
        );
        let (kept, new) = (s.float(0.5), s.op("Identity", &[y]));
        let past = s.op("Mul", &[&past, &kept]);
        s.concat(&[&past, &new], 2)
    });
    assert_eq!(cached, [""; 0]);
}

#[test]
fn whole_numbers_of_a_fixed_batch_are_no_weights() {
    let scaled = |dtype: DType| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let v = s.headed(&x);
        let [q, k] = [(); 2].map(|()| {
            let y = s.headed(&x);
            let name = format!("n_of_{y}");
            let numbers = s.input(&name, dtype, &["8"]);
            let numbers = s.cast(&numbers, DType::F32);
            s.op("Mul", &[&y, &numbers])
        });
        let y = attend(&mut s, &q, &k, &v);
        found(&s.model(18, &[&y])).not_evaluated
    };
    assert!(!scaled(DType::I64).is_empty());
    assert_eq!(scaled(DType::F32), [""; 0], "a weight for each feature");
}

/// Whether an input of these axes, of whose numbers sines are computed, is one of positions.
fn is_position(dims: &[&str], is_rotation: bool) -> bool {
    let mut s = Sketch::default();
    let times = s.input("t", DType::F32, dims);
    let times = match dims.len() {
        1 => s.unsqueeze(&times, &[1, 2]),
        _ => s.unsqueeze(&times, &[2]),
    };
    let frequencies = s.floats(&[1, SIZE], (0..SIZE).map(frequency));
    let angles = s.op("MatMul", &[&times, &frequencies]);
    let waves = s.op("Sin", &[&angles]);
    let x = s.embedded();
    let y = match is_rotation {
        true => {
            let (x, waves) = (s.headed(&x), s.unsqueeze(&waves, &[1]));
            s.op("Mul", &[&x, &waves])
        }
        // Features of a number: projected, and added up as its square.
        false => {
            let square = s.op("Mul", &[&waves, &waves]);
            let w = s.weights(&[SIZE, HIDDEN]);
            let features = s.op("MatMul", &[&square, &w]);
            s.op("Add", &[&x, &features])
        }
    };
    let model = s.model(17, &[&y]);
    let ports = Ports::of(model.graph(), &Default::default());
    ports.first(Role::Positions).is_some()
}

#[test]
fn real_numbers_of_tokens_whose_sines_multiply_others_are_positions() {
    assert!(is_position(&["batch", "sequence"], true));
    assert!(
        !is_position(&["batch", "sequence"], false),
        "features of a value"
    );
    assert!(!is_position(&["batch", "1"], true), "one for each sequence");
    assert!(!is_position(&["batch"], true), "one for each sequence");
}
