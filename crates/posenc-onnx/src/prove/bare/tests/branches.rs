//! Positions in the branch of an `If` that is not taken.

use super::*;

/// One of two branches, the first for more tokens than `bound`.
fn chosen(s: &mut Sketch, bound: i64, branches: [fn(&mut Sketch) -> String; 2]) -> String {
    let shape = s.op("Shape", &["input_ids"]);
    let (one, bound) = (s.int(1), s.int(bound));
    let length = s.gather(&shape, &one, 0);
    let condition = s.op("Greater", &[&length, &bound]);
    s.choice(&condition, branches)
}

#[test]
fn a_position_in_the_branch_that_is_not_taken_is_seen() {
    let plain: fn(&mut Sketch) -> String = |s| s.op("Identity", &["inputs_embeds"]);
    let doubled: fn(&mut Sketch) -> String = |s| s.op("Add", &["inputs_embeds", "inputs_embeds"]);
    assert_eq!(plain_and(doubled, plain), [""; 0], "control");
    let failed = plain_and(placed, plain);
    assert!(
        failed
            .iter()
            .any(|q| q.contains("queries of equal tokens in the other branch of"))
    );
}

/// What fails where a branch for more than 1000 tokens is not taken.
fn plain_and(far: fn(&mut Sketch) -> String, near: fn(&mut Sketch) -> String) -> Vec<String> {
    let mut s = Sketch::default();
    s.input("input_ids", DType::I64, &["batch", "sequence"]);
    s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
    let x = chosen(&mut s, 1000, [far, near]);
    let checks = checks(&attended(s, x));
    failed(&checks).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_limit_that_was_not_found_leaves_a_shorter_sequence() {
    let model = |far: fn(&mut Sketch) -> String| {
        let mut s = Sketch::default();
        s.input("input_ids", DType::I64, &["batch", "sequence"]);
        s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
        let x = chosen(&mut s, 20, [far, |s| s.op("Identity", &["inputs_embeds"])]);
        attended(s, x)
    };
    // The table of this branch ends before the longest sequence.
    let late = checks(&model(|s| {
        let rows = rows(s, 60);
        s.op("Add", &["inputs_embeds", &rows])
    }));
    let longer = |q: &&str| q.contains("in a sequence of 51");
    assert!(failed(&late).iter().any(longer), "{late:?}");
}
