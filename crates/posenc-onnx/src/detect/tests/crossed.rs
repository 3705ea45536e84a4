//! Encoder and decoder on the same ids.

use super::*;

/// The layers of an encoder and of a decoder, whose ids are made of those of the encoder.
fn of_both(decoder_ids: fn(&mut Sketch) -> String) -> Found {
    let mut s = Sketch::default();
    let table = s.weights(&[30, HIDDEN]);
    let ids = s.input("input_ids", DType::I64, &["batch", "sequence"]);
    let x = s.gather(&table, &ids, 0);
    let encoded = s.attends(&x, &x);
    let own = decoder_ids(&mut s);
    let x = s.gather(&table, &own, 0);
    let x = s.attends(&x, &x);
    let y = s.attends(&x, &encoded);
    found(&s.model(17, &[&y]))
}

/// The ids one place later, behind one that begins the sequence.
fn later(s: &mut Sketch) -> String {
    let first = s.slice("input_ids", 1, [0, 1, 1]);
    let (begin, shape) = (s.ints(&[2]), s.op("Shape", &[&first]));
    let begin = s.op("Expand", &[&begin, &shape]);
    let others = s.slice("input_ids", 1, [0, -1, 1]);
    s.concat(&[&begin, &others], 1)
}

#[test]
fn a_decoder_of_later_ids_attends_across() {
    let found = of_both(later);
    let kinds: Vec<bool> = found.attention.iter().map(|site| site.cross).collect();
    assert_eq!(kinds, [false, false, true]);
    assert!(found.misplaced.is_empty(), "{:?}", found.misplaced);
}

#[test]
fn keys_of_the_token_before_are_not_those_of_another_stack() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let ends = s.ints(&[0, 1, 0, 0, -1, 0]);
    let before = s.op("Pad", &[&x, &ends]);
    let y = s.attends(&x, &before);
    let found = found(&s.model(17, &[&y]));
    assert!(found.attention.iter().all(|site| !site.cross));
    assert_eq!(found.misplaced.len(), 1);
}
