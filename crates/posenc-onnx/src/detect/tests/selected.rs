//! Elements that a mask of content selects, and numbers that are added up behind attention.

use super::*;
use crate::plan::unread::of_branch;

/// What of a model is not read, whose layer is followed by this.
fn unread(behind: impl Fn(&mut Sketch, &str) -> String) -> Vec<String> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let y = s.attends(&x, &x);
    let y = behind(&mut s, &y);
    let model = s.model(17, &[&y]);
    let found = found(&model);
    assert_eq!(found.attention.len(), 1);
    of_branch(&model, &found)
}

/// The places of the numbers above 0.
fn places(s: &mut Sketch, x: &str) -> String {
    let zero = s.float(0.0);
    let mask = s.op("Greater", &[x, &zero]);
    let places = s.op("NonZero", &[&mask]);
    s.transpose(&places, &[1, 0])
}

/// Changes the numbers above 0 and puts them back in their places.
fn changed(s: &mut Sketch, x: &str, change: impl Fn(&mut Sketch, &str) -> String) -> String {
    let places = places(s, x);
    let some = s.op("GatherND", &[x, &places]);
    let some = change(s, &some);
    s.op("ScatterND", &[x, &places, &some])
}

#[test]
fn selected_elements_that_stay_apart_mix_no_tokens() {
    let alone = unread(|s, y| changed(s, y, |s, some| s.op("Exp", &[some])));
    assert_eq!(alone, [""; 0]);
    let twice = unread(|s, y| {
        let y = changed(s, y, |s, some| s.op("Exp", &[some]));
        changed(s, &y, |s, some| s.op("Sqrt", &[some]))
    });
    assert_eq!(twice, [""; 0]);
}

#[test]
fn selected_elements_that_meet_each_other_mix_tokens() {
    let next = |s: &mut Sketch, some: &str| {
        let ends = s.ints(&[1, -1]);
        let next = s.op("Pad", &[some, &ends]);
        s.op("Add", &[some, &next])
    };
    let product = |s: &mut Sketch, some: &str| {
        let (row, column) = (s.unsqueeze(some, &[0]), s.unsqueeze(some, &[1]));
        let all = s.op("MatMul", &[&column, &row]);
        s.op("MatMul", &[&all, some])
    };
    let first = unread(|s, y| changed(s, y, next));
    assert!(first[0].contains("Add mixes tokens"), "{first:?}");
    let second = unread(|s, y| changed(s, y, product));
    assert!(second[0].contains("mixes tokens"), "{second:?}");
}

#[test]
fn selected_elements_that_are_put_elsewhere_mix_tokens() {
    let why = unread(|s, y| {
        let places = places(s, y);
        let some = s.op("GatherND", &[y, &places]);
        // The places count from 0 on in another order.
        let turned = s.slice(&places, 0, [-1, i64::MIN, -1]);
        s.op("ScatterND", &[y, &turned, &some])
    });
    assert!(why[0].contains("mixes tokens"), "{why:?}");
}

#[test]
fn a_mask_of_other_tokens_mixes_them() {
    let why = unread(|s, y| {
        let ends = s.ints(&[0, 1, 0, 0, -1, 0]);
        let before = s.op("Pad", &[y, &ends]);
        let places = places(s, &before);
        let some = s.op("GatherND", &[y, &places]);
        let some = s.op("Exp", &[&some]);
        s.op("ScatterND", &[y, &places, &some])
    });
    assert!(why[0].contains("ScatterND mixes tokens"), "{why:?}");
}

/// One number of each token, added up along the sequence.
fn added_up(s: &mut Sketch, y: &str, features: usize) -> String {
    let w = s.weights(&[HIDDEN, features]);
    let each = s.op("MatMul", &[y, &w]);
    let one = s.int(1);
    s.op("CumSum", &[&each, &one])
}

#[test]
fn lengths_that_are_added_up_behind_all_attention_are_let_through() {
    assert_eq!(unread(|s, y| added_up(s, y, 1)), [""; 0]);
    let several = unread(|s, y| added_up(s, y, 2));
    assert!(several[0].contains("CumSum mixes tokens"), "{several:?}");
    let mut s = Sketch::default();
    let x = s.embedded();
    let sum = added_up(&mut s, &x, 1);
    let x = s.op("Add", &[&x, &sum]);
    let y = s.attends(&x, &x);
    let model = s.model(17, &[&y]);
    let before = of_branch(&model, &found(&model));
    assert!(before[0].contains("CumSum mixes tokens"), "{before:?}");
}

#[test]
fn a_sum_along_features_mixes_no_tokens() {
    let features = |s: &mut Sketch, y: &str| {
        let last = s.int(-1);
        s.op("CumSum", &[y, &last])
    };
    assert_eq!(unread(features), [""; 0]);
}

#[test]
fn a_few_numbers_beside_ids_are_no_tokens() {
    for (dims, is_mixed) in [(["3"], false), (["scales"], true)] {
        let why = unread(|s, y| {
            let scales = s.input("scales", DType::F32, &dims);
            let second = s.slice(&scales, 0, [1, 2, 1]);
            s.op("Mul", &[y, &second])
        });
        assert_eq!(!why.is_empty(), is_mixed, "{dims:?} {why:?}");
    }
}
