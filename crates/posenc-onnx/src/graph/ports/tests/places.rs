//! Positions that uses tell, whatever the name of an input says.

use super::*;
use crate::graph::ports::decides_mask;

/// The role of an input beside ids, and the inputs whose role is unclear.
fn named(
    name: &str,
    (dtype, dims): (DType, &[&str]),
    reads: impl Fn(&mut Sketch, &str) -> String,
) -> (Role, Vec<String>) {
    let mut s = Sketch::default();
    let words = s.embedded();
    let x = s.input(name, dtype, dims);
    let y = reads(&mut s, &x);
    let model = s.model(17, &[&words, &y]);
    let ports = Ports::of(model.graph(), &Default::default());
    let mut all = ports.iter();
    let port = all.find(|port| model.graph().name(port.value) == name);
    let unclear = ports.unclear().iter();
    let unclear = unclear.filter(|why| why.contains(&format!("the input {name} ")));
    (
        port.expect("it is an input").role,
        unclear.cloned().collect(),
    )
}

/// Queries and keys, each multiplied by rows of two tables.
fn rotated(s: &mut Sketch, x: &str) -> String {
    let words = s.weights(&[30, HIDDEN]);
    let words = s.gather(&words, "input_ids", 0);
    let [mut q, mut k] = [0; 2].map(|_| s.headed(&words));
    for _ in 0..2 {
        let table = s.weights(&[64, SIZE]);
        let rows = s.gather(&table, x, 0);
        let rows = s.unsqueeze(&rows, &[1]);
        q = s.op("Mul", &[&rows, &q]);
        k = s.op("Mul", &[&rows, &k]);
    }
    s.op("Add", &[&q, &k])
}

/// Rows of a table of so many.
fn picked<const ROWS: usize>(s: &mut Sketch, x: &str) -> String {
    let table = s.weights(&[ROWS, HIDDEN]);
    s.gather(&table, x, 0)
}

/// Sines of multiples.
fn waves(s: &mut Sketch, x: &str) -> String {
    let x = s.cast(x, F32);
    let x = s.unsqueeze(&x, &[-1]);
    let steps = s.weights(&[1, HIDDEN]);
    let angles = s.op("Mul", &[&x, &steps]);
    s.op("Sin", &[&angles])
}

#[test]
fn what_picks_cosines_and_sines_is_a_position_whatever_its_name() {
    for name in [
        "segment_pos",
        "pos_no_padding",
        "masked_places",
        "rope_ids",
        "tokens_idx",
        "lengths",
    ] {
        let (role, unclear) = named(name, (I64, IDS), rotated);
        assert_eq!((role, unclear.len()), (Role::Positions, 0), "{name}");
    }
    let masked = "masked_position_ids";
    assert_eq!(named(masked, (I64, IDS), picked::<64>).0, Role::Positions);
    let kept = |s: &mut Sketch, x: &str| s.cast(x, F32);
    assert_eq!(named(masked, (I64, IDS), kept).0, Role::Padding);
    assert_eq!(
        named("attention_mask", (I64, IDS), picked::<2>).0,
        Role::Padding
    );
}

#[test]
fn rows_of_a_table_of_many_leave_the_role_unclear_that_a_name_says() {
    for (name, said) in [
        ("segment_pos", Role::TokenTypes),
        ("lengths", Role::Content),
        ("no_padding", Role::Padding),
    ] {
        let (role, unclear) = named(name, (I64, IDS), picked::<64>);
        assert_eq!((role, unclear.len()), (said, 1), "{name}");
        let (_, unclear) = named(name, (I64, IDS), picked::<4>);
        assert_eq!(unclear.len(), 0, "{name} of a few rows");
    }
    let (role, unclear) = named("token_type_ids", (I64, IDS), picked::<64>);
    assert_eq!((role, unclear.len()), (Role::TokenTypes, 0));
}

#[test]
fn real_numbers_of_which_sines_are_added_are_unclear() {
    let of = |dims: &[&str]| {
        let (role, unclear) = named("t", (F32, dims), waves);
        assert_eq!(role, Role::Content, "{dims:?}");
        unclear.len()
    };
    assert_eq!(of(IDS), 1);
    assert_eq!(of(&["sequence"]), 1);
    for dims in [
        &["batch", "6"][..],
        &["batch", "1"],
        &["batch"],
        &["1"],
        &[],
    ] {
        assert_eq!(of(dims), 0, "{dims:?}");
    }
}

/// Weights multiply the sines of multiples.
fn weighted_waves(s: &mut Sketch, x: &str) -> String {
    let (waves, w) = (waves(s, x), s.weights(&[HIDDEN, HIDDEN]));
    s.op("MatMul", &[&waves, &w])
}

#[test]
fn integers_of_which_weights_multiply_the_sines_are_unclear_or_steps() {
    let of = |name: &str, dims: &[&str]| {
        let (role, unclear) = named(name, (I64, dims), weighted_waves);
        (role, unclear.len())
    };
    assert_eq!(of("price", IDS), (Role::Content, 1));
    assert_eq!(of("price", &["sequence"]), (Role::Content, 1));
    assert_eq!(of("price", &["batch"]), (Role::Content, 0), "a step");
    assert_eq!(of("position_ids", IDS), (Role::Positions, 0));
    // Controls: rows that are added to tokens, and a rotation beside them.
    let added = named("price", (I64, IDS), waves);
    assert_eq!((added.0, added.1.len()), (Role::Positions, 0));
    let rotates = named("price", (I64, IDS), |s, x| {
        let (rows, weighted) = (waves(s, x), weighted_waves(s, x));
        let words = s.weights(&[30, HIDDEN]);
        let words = s.gather(&words, "input_ids", 0);
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let q = s.op("MatMul", &[&words, &w]);
        let q = s.op("Mul", &[&rows, &q]);
        s.op("Add", &[&q, &weighted])
    });
    assert_eq!(rotates.0, Role::Positions);
    let matrices = named("price", (I64, IDS), |s, x| {
        let rows = waves(s, x);
        let words = s.weights(&[30, HIDDEN]);
        let words = s.gather(&words, "input_ids", 0);
        let words = s.transpose(&words, &[0, 2, 1]);
        s.op("MatMul", &[&rows, &words])
    });
    assert_eq!(matrices.0, Role::Positions, "no weights");
}

/// Numbers that a place of a key is compared with.
fn compared(s: &mut Sketch, x: &str) -> String {
    attention(s, |s, scores| {
        let (keys, x) = (s.range(), s.unsqueeze(x, &[2]));
        let seen = s.op("LessOrEqual", &[&keys, &x]);
        let seen = s.unsqueeze(&seen, &[1]);
        let low = s.float(-1e9);
        s.op("Where", &[&seen, scores, &low])
    })
}

#[test]
fn what_places_of_keys_are_compared_with_is_a_position() {
    assert_eq!(named("x", (I64, IDS), compared).0, Role::Positions);
    let each = &["batch", "1"];
    assert_eq!(
        named("x", (I64, each), compared).0,
        Role::Content,
        "one for each sequence"
    );
    let (name, hidden) = (
        "attention_mask",
        named("attention_mask", (I64, IDS), compared).0,
    );
    assert_eq!(hidden, Role::Padding, "{name}");
}

#[test]
fn a_start_is_added_to_places_that_pick_rows_of_many() {
    let start = |rows: bool, other: bool| {
        named("start", (I64, &[]), |s, x| {
            let places = if other { s.ints(&[3]) } else { s.range() };
            let places = s.op("Add", &[x, &places]);
            match rows {
                true => picked::<64>(s, &places),
                false => picked::<4>(s, &places),
            }
        })
        .0
    };
    assert_eq!(start(true, false), Role::Positions);
    assert_eq!(start(false, false), Role::Content, "a few rows");
    assert_eq!(start(true, true), Role::Content, "one row alone");
}

#[test]
fn positions_of_one_sequence_are_compared() {
    let decides_mask = |op: &str| {
        let mut s = Sketch::default();
        let x = s.input("x", I64, &["1", "sequence"]);
        let first = s.int(0);
        let x = s.gather(&x, &first, 0);
        let (own, keys) = (s.unsqueeze(&x, &[1]), s.ints(&[0, 1, 2]));
        let y = s.op(op, &[&keys, &own]);
        let model = s.model(17, &[&y]);
        let graph = model.graph();
        decides_mask(graph, graph.scope(graph.main()).inputs()[0])
    };
    assert!(decides_mask("LessOrEqual"));
    assert!(!decides_mask("Mul"));
}

#[test]
fn positions_that_pick_rows_of_a_mask_are_compared() {
    let decides_mask = |numbers: fn(usize, usize) -> f64| {
        let mut s = Sketch::default();
        let x = s.input("x", I64, &["sequence"]);
        let pairs = (0..64).map(|at| numbers(at / 8, at % 8));
        let mask = s.floats(&[8, 8], pairs);
        let rows = s.gather(&mask, &x, 0);
        let model = s.model(17, &[&rows]);
        let graph = model.graph();
        decides_mask(graph, graph.scope(graph.main()).inputs()[0])
    };
    assert!(decides_mask(|row, column| if column > row {
        -1e9
    } else {
        0.0
    }));
    assert!(!decides_mask(|row, column| (row * column) as f64));
}

#[test]
fn positions_that_pick_rows_of_what_hides_scores_are_compared() {
    let decides_mask = |is_mask: bool| {
        let mut s = Sketch::default();
        let x = s.input("x", I64, &["sequence", "1"]);
        let mask = s.typed(
            Bool,
            &[8, 8],
            (0..64).map(|at| f64::from(u8::from(at % 8 <= at / 8))),
        );
        let rows = s.op("GatherND", &[&mask, &x]);
        s.embedded();
        let y = attention(&mut s, |s, scores| match is_mask {
            true => {
                let low = s.float(-1e9);
                s.op("Where", &[&rows, scores, &low])
            }
            false => {
                let rows = s.cast(&rows, F32);
                s.op("Add", &[scores, &rows])
            }
        });
        let model = s.model(17, &[&y]);
        let graph = model.graph();
        decides_mask(graph, graph.scope(graph.main()).inputs()[0])
    };
    assert!(decides_mask(true));
    assert!(!decides_mask(false), "a bias");
}

#[test]
fn rows_of_a_causal_mask_are_picked_by_positions() {
    let picked = |seen: fn(usize, usize) -> bool| {
        role(I64, &["n"], |s| {
            let numbers = (0..64).map(|at| f64::from(u8::from(seen(at / 8, at % 8))));
            let mask = s.typed(Bool, &[1, 8, 8], numbers);
            let rows = s.with("Gather", &[&mask, "x"], &[("axis", A::Int(1))]);
            attention(s, |s, scores| {
                let hidden = s.float(-1e4);
                s.op("Where", &[&rows, scores, &hidden])
            })
        })
    };
    assert_eq!(picked(|row, column| column <= row), Role::Positions);
    let window = |row, column| column <= row && column + 4 > row;
    assert_eq!(picked(window), Role::Positions);
    for other in [
        |row, column| column < row,
        |_, _| true,
        |row, column| column % 2 == row % 2,
    ] as [fn(usize, usize) -> bool; 3]
    {
        assert_eq!(picked(other), Role::Content);
    }
}
