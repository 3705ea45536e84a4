//! Inputs of lengths of sequences.

use super::*;
use crate::graph::ports::Role;

/// A mask, of places and of lengths.
type MaskOf = fn(&mut Sketch, &str, &str) -> String;

/// A layer whose keys an input of lengths hides.
fn of_lengths(mask: MaskOf) -> Found {
    of_numbers("batch", mask, &[1, 2])
}

/// A layer whose keys an input of one axis hides; the mask that it makes gets these axes.
fn of_numbers(symbol: &str, mask: MaskOf, axes: &[i64]) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let numbers = s.input("n", DType::I64, &[symbol]);
    let (at, numbers) = (s.range(), s.unsqueeze(&numbers, &[1]));
    let seen = mask(&mut s, &at, &numbers);
    let seen = s.unsqueeze(&seen, axes);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let hidden = s.float(-1e9);
    let scores = s.op("Where", &[&seen, &scores, &hidden]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    found(&s.model(17, &[&y]))
}

#[test]
fn lengths_that_are_compared_with_places_are_a_mask() {
    let plain: MaskOf = |s, at, n| s.op("Less", &[at, n]);
    let shortened: MaskOf = |s, at, n| {
        let two = s.int(2);
        let n = s.op("Mul", &[n, &two]);
        let n = s.op("Div", &[&n, &two]);
        s.op("Greater", &[&n, at])
    };
    // As exporters write a division that rounds down.
    let rounded_down: MaskOf = |s, at, n| {
        let (two, zero) = (s.int(2), s.int(0));
        let quotient = s.op("Div", &[n, &two]);
        let rest = s.op("Mod", &[n, &two]);
        let has_rest = s.op("Equal", &[&rest, &zero]);
        let has_rest = s.op("Not", &[&has_rest]);
        let [a, b] = [n, &two].map(|v| s.op("Less", &[v, &zero]));
        let differs = s.op("Xor", &[&a, &b]);
        let is_less = s.op("And", &[&differs, &has_rest]);
        let one = s.int(1);
        let less = s.op("Sub", &[&quotient, &one]);
        let n = s.op("Where", &[&is_less, &less, &quotient]);
        s.op("Less", &[at, &n])
    };
    let share: MaskOf = |s, at, n| {
        let (shape, last) = (s.op("Shape", &["input_ids"]), s.int(1));
        let length = s.gather(&shape, &last, 0);
        let n = s.op("Mul", &[n, &length]);
        let n = s.op("Div", &[&n, &length]);
        s.op("Less", &[at, &n])
    };
    let distance: MaskOf = |s, at, n| {
        let (distance, zero) = (s.op("Sub", &[at, n]), s.int(0));
        s.op("Less", &[&distance, &zero])
    };
    for mask in [plain, shortened, rounded_down, share, distance] {
        let found = of_lengths(mask);
        assert!(found.ports.first(Role::Counts).is_some());
        assert!(found.attention[0].mask.padding);
        assert!(found.findings.is_empty() && found.not_evaluated.is_empty());
    }
}

/// Positions that count the tokens which a mask, made of places and an input `n`, leaves.
fn counted(dims: &[&str], mask: impl Fn(&mut Sketch, &str, &str) -> String) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let n = s.input("n", DType::I64, dims);
    let at = s.range();
    let counts = mask(&mut s, &at, &n);
    let counts = s.cast(&counts, DType::I64);
    let axis = s.int(1);
    let places = s.op("CumSum", &[&counts, &axis]);
    let places = s.op("Mul", &[&places, &counts]);
    let table = s.weights(&[64, HIDDEN]);
    let rows = s.gather(&table, &places, 0);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    found(&s.model(17, &[&y]))
}

/// Positions that count the tokens within an input of lengths, or what is computed of these.
fn counted_within(limit: fn(&mut Sketch, &str) -> String) -> Found {
    counted(&["batch"], |s, at, n| {
        let n = s.unsqueeze(n, &[1]);
        let n = limit(s, &n);
        s.op("Less", &[at, &n])
    })
}

#[test]
fn positions_that_count_within_lengths_are_found() {
    let plain = counted_within(|_, n| n.to_owned());
    assert_eq!(kinds(&plain), [Kind::Learned]);
    let halved = counted_within(|s, n| {
        let (two, zero) = (s.int(2), s.int(0));
        let n = &s.op("Mul", &[n, &two]);
        let rest = s.op("Mod", &[n, &two]);
        let is_less = s.op("Less", &[&rest, &zero]);
        let is_less = s.cast(&is_less, DType::I64);
        let half = s.op("Div", &[n, &two]);
        s.op("Sub", &[&half, &is_less])
    });
    assert_eq!(kinds(&halved), [Kind::Learned]);
}

/// Whether a warning names the input `n`, which places meet.
fn is_named(found: &Found) -> bool {
    let why = "places of tokens meet the input n in a way that is not read";
    found.ports.unclear().iter().any(|said| said.contains(why))
}

#[test]
fn places_that_meet_what_is_not_read_are_named() {
    // A sum of all lengths is none of one sequence.
    let read = counted_within(|s, n| s.op("CumSum", &[n, "n"]));
    assert!(is_named(&read));
    assert!(!is_named(&counted_within(|_, n| n.to_owned())), "control");
    // Where a part of each sequence begins and ends.
    let part = counted(&["batch", "2"], |s, at, n| {
        let (start, end) = (s.slice(n, 1, [0, 1, 1]), s.slice(n, 1, [1, 2, 1]));
        let is_before = s.op("Less", &[at, &start]);
        let is_behind = s.op("GreaterOrEqual", &[at, &end]);
        let is_out = s.op("Or", &[&is_before, &is_behind]);
        s.op("Not", &[&is_out])
    });
    assert!(is_named(&part));
    // Places may be computed or stored.
    let made: [fn(&mut Sketch) -> String; 2] = [
        |s| {
            let (shape, axis) = (s.op("Shape", &["input_ids"]), s.int(1));
            let ones = s.op("ConstantOfShape", &[&shape]);
            s.op("CumSum", &[&ones, &axis])
        },
        |s| s.ints(&Vec::from_iter(0..14)),
    ];
    for places in made {
        let part = counted(&["batch", "2"], |s, _, n| {
            let (at, end) = (places(s), s.slice(n, 1, [1, 2, 1]));
            s.op("Less", &[&at, &end])
        });
        assert!(is_named(&part));
    }
    // Numbers of tokens are content, and no numbers of sequences.
    let of_tokens = counted(&["batch", "sequence"], |s, at, n| s.op("Less", &[at, n]));
    assert!(!is_named(&of_tokens), "control");
    // The same of angles.
    let mut s = Sketch::default();
    let x = s.embedded();
    let n = s.input("n", DType::I64, &["batch"]);
    let (at, n, axis) = (s.range(), s.unsqueeze(&n, &[1]), s.int(1));
    let ends = s.op("CumSum", &[&n, &axis]);
    let counts = s.op("Less", &[&at, &ends]);
    let counts = s.cast(&counts, DType::F32);
    let places = s.op("CumSum", &[&counts, &axis]);
    let places = s.unsqueeze(&places, &[2]);
    let frequencies = s.weights(&[1, HIDDEN]);
    let angles = s.op("MatMul", &[&places, &frequencies]);
    let waves = s.op("Sin", &[&angles]);
    let x = s.op("Add", &[&x, &waves]);
    let y = s.attends(&x, &x);
    assert!(is_named(&found(&s.model(17, &[&y]))));
}

/// A model whose positions are made of a range and of one number, and pick rows of a table.
fn placed_by(dtype: DType, dims: &[&str], places: fn(&mut Sketch, [&str; 2]) -> String) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let n = s.input("n", dtype, dims);
    let at = s.range();
    let places = places(&mut s, [&at, &n]);
    let table = s.weights(&[64, HIDDEN]);
    let rows = s.gather(&table, &places, 0);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    found(&s.model(17, &[&y]))
}

#[test]
fn places_that_a_number_moves_are_named() {
    let switched = placed_by(DType::Bool, &[], |s, [at, n]| {
        let zero = s.int(0);
        s.op("Where", &[n, at, &zero])
    });
    let offset_of_a_language = placed_by(DType::I64, &[], |s, [at, n]| {
        let offsets = s.ints(&[0, 3, 7]);
        let offset = s.gather(&offsets, n, 0);
        s.op("Add", &[at, &offset])
    });
    let first_of_all = placed_by(DType::I64, &["1"], |s, [at, n]| s.concat(&[n, at], 0));
    let added_up = placed_by(DType::I64, &["1"], |s, [at, n]| {
        let (shape, axis) = (s.op("Shape", &[at]), s.int(0));
        let all = s.op("Expand", &[n, &shape]);
        s.op("CumSum", &[&all, &axis])
    });
    for read in [switched, offset_of_a_language, first_of_all, added_up] {
        assert!(is_named(&read));
    }
    // A flag that is not used, and features of a language, move nothing.
    let plain = placed_by(DType::Bool, &[], |s, [at, _]| s.op("Identity", &[at]));
    let mut s = Sketch::default();
    let x = s.embedded();
    let n = s.input("n", DType::I64, &[]);
    let at = s.range();
    let [table, languages] = [64, 40].map(|rows| s.weights(&[rows, HIDDEN]));
    let (rows, language) = (s.gather(&table, &at, 0), s.gather(&languages, &n, 0));
    let sum = s.op("Add", &[&x, &language]);
    let x = s.op("Add", &[&sum, &rows]);
    let y = s.attends(&x, &x);
    for read in [plain, found(&s.model(17, &[&y]))] {
        assert!(!is_named(&read), "control");
        assert_eq!(kinds(&read), [Kind::Learned]);
    }
    // Other stored numbers than 0, 1, … are no places.
    let one_row = placed_by(DType::I64, &["1"], |s, [_, n]| {
        let bounds = s.ints(&[3; 14]);
        let is_above = s.op("Less", &[&bounds, n]);
        s.cast(&is_above, DType::I64)
    });
    assert!(!is_named(&one_row), "control");
}

#[test]
fn a_bias_of_places_and_an_input_that_is_not_read_is_named() {
    /// Scores beside a bias of distances, and a number for each sequence.
    type ScoresOf = fn(&mut Sketch, [&str; 3]) -> String;
    let read = |of: ScoresOf| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let n = s.input("n", DType::F32, &["batch"]);
        let n = s.unsqueeze(&n, &[1, 2, 3]);
        let distance = s.distance();
        let distance = s.op("Abs", &[&distance]);
        let distance = s.cast(&distance, DType::F32);
        let [scores, v] = s.scored(&x, &x);
        let scores = of(&mut s, [&scores, &distance, &n]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        found(&s.model(17, &[&y]))
    };
    let scaled: ScoresOf = |s, [scores, distance, n]| {
        let bias = s.op("Mul", &[distance, n]);
        s.op("Sub", &[scores, &bias])
    };
    // It is zero for most numbers.
    let above_a_limit: ScoresOf = |s, [scores, distance, n]| {
        let limit = s.float(500.0);
        let factor = s.op("Sub", &[n, &limit]);
        let factor = s.op("Relu", &[&factor]);
        let bias = s.op("Mul", &[distance, &factor]);
        s.op("Sub", &[scores, &bias])
    };
    let gated: ScoresOf = |s, [scores, distance, n]| {
        let weights = s.weights(&[1, HEADS]);
        let slopes = s.op("MatMul", &[n, &weights]);
        let slopes = s.op("Softplus", &[&slopes]);
        let slopes = s.transpose(&slopes, &[0, 3, 1, 2]);
        let bias = s.op("Mul", &[distance, &slopes]);
        s.op("Sub", &[scores, &bias])
    };
    for of in [scaled, above_a_limit, gated] {
        assert!(is_named(&read(of)));
    }
    // A temperature is beside no places, and a window hides.
    let temperature: ScoresOf = |s, [scores, _, n]| s.op("Div", &[scores, n]);
    let window: ScoresOf = |s, [scores, distance, n]| {
        let (seen, hidden) = (s.op("Less", &[distance, n]), s.float(-1e9));
        s.op("Where", &[&seen, scores, &hidden])
    };
    for of in [temperature, window] {
        assert!(!is_named(&read(of)));
    }
}

#[test]
fn numbers_of_queries_that_are_compared_with_places_are_positions() {
    let past: MaskOf = |s, at, n| s.op("LessOrEqual", &[at, n]);
    for symbol in ["sequence", "other", ""] {
        let found = of_numbers(symbol, past, &[0, 1]);
        assert!(found.ports.first(Role::Counts).is_none(), "{symbol:?}");
        assert!(found.ports.first(Role::Positions).is_some(), "{symbol:?}");
        assert_eq!(found.attention[0].mask.causal, Some(true), "{symbol:?}");
    }
    let count: MaskOf = |s, at, n| s.op("Less", &[at, n]);
    for symbol in ["batch", "other", ""] {
        let found = of_numbers(symbol, count, &[1, 2]);
        assert!(found.ports.first(Role::Counts).is_some(), "{symbol:?}");
        assert!(found.attention[0].mask.padding, "{symbol:?}");
        assert_ne!(found.attention[0].mask.causal, Some(true), "{symbol:?}");
    }
}

#[test]
fn other_numbers_of_sequences_are_no_lengths() {
    let cases: [(&str, MaskOf); 8] = [
        ("a distance that is added again", |s, at, n| {
            let distance = s.op("Sub", &[at, n]);
            let (sum, zero) = (s.op("Add", &[&distance, n]), s.int(0));
            s.op("GreaterOrEqual", &[&sum, &zero])
        }),
        ("multiplied with places", |s, at, n| {
            let product = s.op("Mul", &[at, n]);
            s.op("Less", &[at, &product])
        }),
        ("chosen at some places", |s, at, n| {
            let (three, zero) = (s.int(3), s.int(0));
            let is_first = s.op("Less", &[at, &three]);
            let chosen = s.op("Where", &[&is_first, n, &zero]);
            s.op("Less", &[at, &chosen])
        }),
        ("added up", |s, at, n| {
            let axis = s.int(0);
            let ends = s.op("CumSum", &[n, &axis]);
            s.op("Less", &[at, &ends])
        }),
        ("multiplied with other numbers than sizes", |s, at, n| {
            let other = s.input("m", DType::I64, &["batch", "1"]);
            let product = s.op("Mul", &[n, &other]);
            s.op("Less", &[at, &product])
        }),
        ("compared with a number", |s, at, n| {
            let (three, zero) = (s.int(3), s.int(0));
            let few = s.op("Less", &[n, &three]);
            let all = s.op("GreaterOrEqual", &[at, &zero]);
            s.op("And", &[&few, &all])
        }),
        ("equal to places", |s, at, n| s.op("Equal", &[at, n])),
        ("added to places", |s, at, n| {
            let (sum, nine) = (s.op("Add", &[at, n]), s.int(9));
            s.op("Less", &[&sum, &nine])
        }),
    ];
    for (name, mask) in cases {
        let found = of_lengths(mask);
        assert!(found.ports.first(Role::Counts).is_none(), "{name}");
    }
}
