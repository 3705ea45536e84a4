//! What exporters write for graphs of one length.

use super::*;

/// Sequences, and tokens of each.
const DIMS: [usize; 2] = [2, 5];

/// A graph of two sequences of five tokens that gives what is made of their ids, as numbers.
fn model(make: impl Fn(&mut Sketch, &str) -> String) -> Model {
    let mut s = Sketch::default();
    let ids = s.input("input_ids", DType::I64, &["2", "5"]);
    let x = s.cast(&ids, DType::F32);
    let y = make(&mut s, &x);
    s.model(17, &[&y])
}

/// Indices `[…, 2]` that are made of each place.
fn pairs(s: &mut Sketch, dims: &[usize], of: fn(&[usize]) -> [usize; 2]) -> String {
    let grid = ArrayD::from_shape_fn(dims.to_vec(), |at| of(ndarray::Dimension::slice(&at)));
    let numbers = grid.iter().flatten().map(|n| *n as f64);
    let dims = [dims, &[2]].concat();
    s.typed(DType::I64, &dims, numbers)
}

/// Indices into all tokens of all sequences.
fn flat(s: &mut Sketch, dims: &[usize], of: fn(&[usize]) -> usize) -> String {
    let grid = ArrayD::from_shape_fn(dims.to_vec(), |at| of(ndarray::Dimension::slice(&at)));
    s.typed(DType::I64, dims, grid.iter().map(|n| *n as f64))
}

fn zeros(s: &mut Sketch) -> String {
    s.floats(&DIMS, [0.0; 10])
}

type Make = fn(&mut Sketch, &str) -> String;

#[test]
fn indices_that_move_nothing_are_left_out() {
    let cases: [(&str, Make); 5] = [
        ("every element in its place", |s, x| {
            let all = pairs(s, &DIMS, |at| [at[0], at[1]]);
            s.op("GatherND", &[x, &all])
        }),
        ("the same for each of three queries", |s, x| {
            let all = pairs(s, &[2, 1, 3, 5], |at| [at[0], at[3]]);
            s.op("GatherND", &[x, &all])
        }),
        ("of all tokens behind each other", |s, x| {
            let x = s.reshape(x, &[-1]);
            let all = flat(s, &[2, 1, 1, 5], |at| 5 * at[0] + at[3]);
            s.op("Gather", &[&x, &all])
        }),
        ("of rows of one token", |s, x| {
            let x = s.with("Flatten", &[x], &[("axis", A::Int(2))]);
            let all = flat(s, &DIMS, |at| 5 * at[0] + at[1]);
            s.op("Gather", &[&x, &all])
        }),
        ("written over zeros", |s, x| {
            let zeros = zeros(s);
            let all = pairs(s, &DIMS, |at| [at[0], at[1]]);
            s.op("ScatterND", &[&zeros, &all, x])
        }),
    ];
    for (name, make) in cases {
        let model = model(make);
        let made = without_places(&model, &BTreeMap::new()).expect(name);
        let left = operators(&made);
        let moves = |op: &String| op.starts_with("Gather") || op.starts_with("Scatter");
        assert!(!left.iter().any(moves), "{name}: {left:?}");
        assert_eq!(output(&model, DIMS), output(&made, DIMS), "{name}");
    }
}

#[test]
fn indices_that_move_something_stay() {
    let cases: [(&str, Make); 9] = [
        ("written on the diagonal", |s, x| {
            let (updates, all) = (
                s.floats(&[2], [7.0, 8.0]),
                pairs(s, &[2], |at| [at[0], at[0]]),
            );
            s.op("ScatterND", &[x, &all, &updates])
        }),
        ("backwards", |s, x| {
            let all = pairs(s, &DIMS, |at| [at[0], 4 - at[1]]);
            s.op("GatherND", &[x, &all])
        }),
        ("turned", |s, x| {
            let all = pairs(s, &[5, 2], |at| [at[1], at[0]]);
            s.op("GatherND", &[x, &all])
        }),
        ("one sequence twice", |s, x| {
            let all = pairs(s, &DIMS, |at| [1, at[1]]);
            s.op("GatherND", &[x, &all])
        }),
        ("a part", |s, x| {
            let all = pairs(s, &[2, 4], |at| [at[0], at[1]]);
            s.op("GatherND", &[x, &all])
        }),
        ("shifted tokens behind each other", |s, x| {
            let x = s.reshape(x, &[-1]);
            let all = flat(s, &DIMS, |at| (5 * at[0] + at[1] + 1) % 10);
            s.op("Gather", &[&x, &all])
        }),
        ("along the tokens", |s, x| {
            let all = flat(s, &[5], |at| at[0]);
            s.gather(x, &all, 1)
        }),
        ("added", |s, x| {
            let zeros = zeros(s);
            let all = pairs(s, &DIMS, |at| [at[0], at[1]]);
            let adds = [("reduction", A::Text("add"))];
            s.with("ScatterND", &[&zeros, &all, x], &adds)
        }),
        ("written backwards", |s, x| {
            let zeros = zeros(s);
            let all = pairs(s, &DIMS, |at| [at[0], 4 - at[1]]);
            s.op("ScatterND", &[&zeros, &all, x])
        }),
    ];
    for (name, make) in cases {
        assert!(
            without_places(&model(make), &BTreeMap::new()).is_none(),
            "{name}"
        );
    }
}

const FREQUENCIES: [f32; 4] = [1.0, 0.3, 0.07, 0.003];

/// A table of angles `[1, rows, width]` in f32, and its cosines and sines added to the tokens.
fn turned(rows: usize, width: usize, dtype: DType, angle: impl Fn(usize, usize) -> f32) -> Model {
    model(|s, x| {
        let angles: Vec<f64> = (0..rows * width)
            .map(|i| f64::from(angle(i / width, i % width)))
            .collect();
        let angles = s.typed(dtype, &[1, rows, width], angles);
        let [cos, sin] = ["Cos", "Sin"].map(|op| s.op(op, &[&angles]));
        let both = s.op("Add", &[&cos, &sin]);
        let both = s.cast(&both, DType::F32);
        let x = s.unsqueeze(x, &[2]);
        s.op(if rows == 5 { "Add" } else { "MatMul" }, &[&x, &both])
    })
}

#[test]
fn angles_are_positions_times_frequencies_again() {
    let product = |position: usize, pair: usize| position as f32 * FREQUENCIES[pair];
    for (width, joins) in [(4, 0), (8, 1)] {
        let model = turned(5, width, DType::F32, |p, i| product(p, i % 4));
        let made = plain(&model, &BTreeMap::new()).expect("products");
        let left = operators(&made);
        let count = |op: &str| left.iter().filter(|own| *own == op).count();
        assert_eq!((count("Mul"), count("Concat")), (1, joins), "{left:?}");
        // The evaluator does not round products to f32, as the table is.
        let [before, after] = [&model, &made].map(|model| output(model, DIMS));
        let mut pairs = before.iter().zip(&after);
        assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-6), "{after}");
    }
}

#[test]
fn other_angles_stay() {
    let product = |position: usize, pair: usize| position as f32 * FREQUENCIES[pair];
    let f32 = DType::F32;
    for (name, model) in [
        ("from 1 on", turned(5, 4, f32, |p, i| product(p + 1, i))),
        (
            "rounded in another way",
            turned(5, 4, f32, |p, i| match (p, i) {
                (3, 1) => f32::from_bits(product(p, i).to_bits() + 1),
                _ => product(p, i),
            }),
        ),
        ("of squares", turned(5, 4, f32, |p, i| product(p * p, i))),
        ("all zero", turned(5, 4, f32, |_, _| 0.0)),
        ("of other rows than tokens", turned(1, 4, f32, product)),
        ("in half precision", turned(5, 4, DType::F16, product)),
    ] {
        assert!(plain(&model, &BTreeMap::new()).is_none(), "{name}");
    }
}
