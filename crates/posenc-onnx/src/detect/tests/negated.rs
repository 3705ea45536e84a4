//! An `If` without attention, of which the trial run takes one branch.

use super::*;

/// The tokens of the trial run are more than the first number and fewer than the second.
const BOUNDS: [i64; 2] = [3, 100];

type Branch = fn(&mut Sketch) -> String;

/// A layer behind one of two branches, the first for more tokens than `bound`.
fn chosen(bound: i64, branches: [Branch; 2]) -> Model {
    let mut s = Sketch::default();
    s.input("input_ids", DType::I64, &["batch", "sequence"]);
    let dims = ["batch", "sequence", "24"];
    s.input("inputs_embeds", DType::F32, &dims);
    let shape = s.op("Shape", &["input_ids"]);
    let (one, bound) = (s.int(1), s.int(bound));
    let length = s.gather(&shape, &one, 0);
    let condition = s.op("Greater", &[&length, &bound]);
    let x = s.choice(&condition, branches);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let y = attend(&mut s, &q, &k, &v);
    s.model(17, &[&y])
}

fn as_it_is(s: &mut Sketch) -> String {
    s.op("Identity", &["inputs_embeds"])
}

fn doubled(s: &mut Sketch) -> String {
    s.op("Add", &["inputs_embeds", "inputs_embeds"])
}

/// With rows of a table added.
fn placed(s: &mut Sketch) -> String {
    let (table, at) = (s.weights(&[200, HIDDEN]), s.range());
    let rows = s.gather(&table, &at, 0);
    s.op("Add", &["inputs_embeds", &rows])
}

/// With the token before added to each.
fn shifted(s: &mut Sketch) -> String {
    let pads = s.ints(&[0, 1, 0, 0, -1, 0]);
    let before = s.op("Pad", &["inputs_embeds", &pads]);
    s.op("Add", &["inputs_embeds", &before])
}

#[test]
fn what_only_the_other_branch_does_is_named() {
    let cases: [(&str, [Branch; 2]); 3] = [
        ("a table", [placed, as_it_is]),
        ("a mixture of tokens", [shifted, as_it_is]),
        ("another table", [placed, placed]),
    ];
    for (name, [other, taken]) in cases {
        for bound in BOUNDS {
            let branches = if bound == BOUNDS[0] {
                [taken, other]
            } else {
                [other, taken]
            };
            let found = found(&chosen(bound, branches));
            let named = |why: &String| why.contains("one branch of this If");
            let why = &found.not_evaluated;
            assert!(why.iter().any(named), "{name}, {bound}: {why:?}");
        }
    }
}

fn zero(s: &mut Sketch) -> String {
    s.float(0.0)
}

fn one(s: &mut Sketch) -> String {
    s.float(1.0)
}

#[test]
fn branches_that_choose_numbers_for_a_position_are_examined() {
    let with = |factor: fn(&mut Sketch, [&str; 2]) -> String| {
        let mut s = Sketch::default();
        s.input("input_ids", DType::I64, &["batch", "sequence"]);
        let x = s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
        let shape = s.op("Shape", &["input_ids"]);
        let conditions = [(0, 50), (1, 1000)].map(|(axis, bound)| {
            let (axis, bound) = (s.int(axis), s.int(bound));
            let size = s.gather(&shape, &axis, 0);
            s.op("Greater", &[&size, &bound])
        });
        let factor = factor(&mut s, conditions.each_ref().map(String::as_str));
        let (table, at) = (s.weights(&[2000, HIDDEN]), s.range());
        let rows = s.gather(&table, &at, 0);
        let rows = s.op("Mul", &[&rows, &factor]);
        let x = s.op("Add", &[&x, &rows]);
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let y = attend(&mut s, &q, &k, &v);
        found(&s.model(17, &[&y])).not_evaluated.len()
    };
    assert_eq!(with(|s, _| s.float(0.0)), 0, "control");
    // A number.
    assert_eq!(with(|s, [few, _]| s.choice(few, [one, zero])), 1);
    // Two conditions that have to hold together.
    let both = with(|s, [few, long]| {
        let (a, b) = (s.choice(few, [one, zero]), s.choice(long, [one, zero]));
        s.op("Mul", &[&a, &b])
    });
    assert_eq!(both, 1);
    // The same number.
    assert_eq!(with(|s, [few, _]| s.choice(few, [zero, zero])), 0);
}

/// A rotation of queries and keys by one of two lists of frequencies, the first for more than 50
/// sequences.
fn rotated(frequencies: [Branch; 2]) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let shape = s.op("Shape", &["input_ids"]);
    let (zero, most) = (s.int(0), s.int(50));
    let batch = s.gather(&shape, &zero, 0);
    let condition = s.op("Greater", &[&batch, &most]);
    let chosen = s.choice(&condition, frequencies);
    let at = s.range();
    let at = s.cast(&at, DType::F32);
    let at = s.unsqueeze(&at, &[1]);
    let angles = s.op("Mul", &[&at, &chosen]);
    let (cos, sin) = waves(&mut s, &angles);
    let [q, k] = [0; 2].map(|_| {
        let q = s.headed(&x);
        let other = swapped(&mut s, &q);
        mixed(&mut s, &q, &other, &cos, &sin)
    });
    let v = s.headed(&x);
    let y = attend(&mut s, &q, &k, &v);
    found(&s.model(17, &[&y]))
}

/// Frequencies that are `by` times slower than usual.
fn slower(s: &mut Sketch, by: f64) -> String {
    s.floats(&[1, PAIRS], (0..PAIRS).map(|i| frequency(i) / by))
}

#[test]
fn other_frequencies_by_another_condition_than_the_length_are_named() {
    let usual: Branch = |s| slower(s, 1.0);
    for (other, named) in [(usual, 0), (|s| slower(s, 3.0), 1)] {
        let found = rotated([other, usual]);
        assert_eq!(found.rotary.len(), 1, "{:?}", found.not_rotary);
        assert_eq!(found.not_evaluated.len(), named);
    }
}

#[test]
fn what_the_first_branch_does_alone_is_read() {
    for branches in [[placed as Branch, as_it_is], [placed, doubled]] {
        let found = found(&chosen(BOUNDS[0], branches));
        assert_eq!(kinds(&found), [Kind::Learned]);
        assert_eq!(found.not_evaluated, [""; 0]);
    }
}

#[test]
fn branches_without_position_are_no_matter() {
    for bound in BOUNDS {
        let found = found(&chosen(bound, [doubled, as_it_is]));
        assert_eq!(found.attention.len(), 1);
        assert_eq!(found.not_evaluated, [""; 0]);
    }
}
