//! Positions where tokens are of several inputs, and behind attention with a sink.

use super::*;

/// A number for each token that is one of two, which tells tokens apart as an input of its own would.
fn two_valued(s: &mut Sketch, x: &str) -> String {
    let shape = s.op("Shape", &[x]);
    let (zero, one, two) = (s.int(0), s.int(1), s.int(2));
    let length = s.gather(&shape, &one, 0);
    let at = s.op("Range", &[&zero, &length, &one]);
    let table = s.weights(&[2, HIDDEN]);
    let at = s.op("Mod", &[&at, &two]);
    let rows = s.gather(&table, &at, 0);
    s.op("Add", &[x, &rows])
}

/// Behind one layer: nothing, or a position.
fn behind(is_placed: bool, make: impl Fn(&mut Sketch) -> String) -> Vec<SiteCheck> {
    let mut s = Sketch::default();
    let x = make(&mut s);
    let mut x = s.attends(&x, &x);
    if is_placed {
        x = two_valued(&mut s, &x);
    }
    checks(&attended(s, x))
}

#[test]
fn tokens_are_of_as_many_kinds_as_the_inputs_that_they_follow() {
    type Inputs = fn(&mut Sketch) -> String;
    let cases: [(&str, Inputs); 4] = [
        ("a sum of two inputs", |s| {
            let ids = s.embedded();
            let x = s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
            s.op("Add", &[&ids, &x])
        }),
        ("an input without tokens", |s| {
            let x = s.embedded();
            let voice = s.input("voice", DType::F32, &["batch", "24"]);
            let voice = s.unsqueeze(&voice, &[1]);
            s.op("Add", &[&x, &voice])
        }),
        ("one input behind another", |s| {
            let x = s.embedded();
            let image = s.input("image_features", DType::F32, &["batch", "9", "24"]);
            s.concat(&[&image, &x], 1)
        }),
        ("patches of a spectrogram", |s| {
            let mel = s.input("input_values", DType::F32, &["batch", "32", "16"]);
            let (mel, w) = (s.unsqueeze(&mel, &[1]), s.weights(&[HIDDEN, 1, 4, 4]));
            let attrs = [("strides", A::Ints(&[3, 3]))];
            let x = s.with("Conv", &[&mel, &w], &attrs);
            let x = s.reshape(&x, &[0, HIDDEN as i64, -1]);
            s.transpose(&x, &[0, 2, 1])
        }),
    ];
    for (name, inputs) in cases {
        let [plain, placed] = [false, true].map(|is_placed| behind(is_placed, inputs));
        assert!(!plain.is_empty(), "{name}");
        assert_eq!(failed(&plain), [""; 0], "{name}: control");
        assert_ne!(failed(&placed), [""; 0], "{name}");
    }
}

/// Causal attention of which a column beside the scores takes a share.
fn with_sink(s: &mut Sketch, x: &str) -> String {
    let (scores, v) = causal_scores(s, x);
    let shape = s.op("Shape", &[&scores]);
    let (rows, one) = (s.slice(&shape, 0, [0, 3, 1]), s.ints(&[1]));
    let shape = s.concat(&[&rows, &one], 0);
    let sink = s.weights(&[HEADS, 1, 1]);
    let sink = s.op("Expand", &[&sink, &shape]);
    let scores = s.concat(&[&scores, &sink], 3);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let weights = s.slice(&weights, 3, [0, -1, 1]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.op("Add", &[x, &y])
}

#[test]
fn a_sink_hides_no_position_behind_it() {
    let model = |is_placed: bool| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let mut x = with_sink(&mut s, &x);
        if is_placed {
            x = two_valued(&mut s, &x);
        }
        let x = with_sink(&mut s, &x);
        s.model(17, &[&x])
    };
    let [plain, placed] = [false, true].map(|is_placed| checks(&model(is_placed)));
    let is_of_rows = |check: &SiteCheck| check.quantity == "rows of equal tokens";
    assert!(plain.iter().any(is_of_rows), "{plain:?}");
    assert_eq!(failed(&plain), [""; 0], "control");
    assert_ne!(failed(&placed), [""; 0]);
}
