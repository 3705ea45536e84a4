//! How masks are emitted, and the limits of splitting values.

use super::*;
use crate::request::Request;
use crate::rewrite::rewrite;

/// A model with constants: the sum of a bias and a mask of lower rank, transposed.
fn of_constants(opset: i64) -> Analyzed {
    let mut s = Sketch::default();
    let y = layers(&mut s, &|s, heads| {
        let line = table(s, |h, d| 0.25f64.powi(h as i32 + 1) * d as f64);
        let places = (0..FIXED * FIXED).map(|at| (at / FIXED, at % FIXED));
        let hidden = places.map(|(i, j)| if j > i { -1e9 } else { 0.0 });
        let mask = s.floats(&[FIXED, FIXED], hidden);
        let all = s.op("Add", &[&line, &mask]);
        let all = s.transpose(&all, &[0, 2, 1, 3]);
        let all = s.transpose(&all, &[0, 2, 1, 3]);
        let scores = product(s, &heads.q, &heads.k);
        let fixed = [HEADS, FIXED, FIXED].map(|n| n as i64);
        let scores = s.reshape(&scores, &[&[-1], &fixed[..]].concat());
        let scores = added(s, &scores, &[all]);
        let weights = softmax(s, &scores);
        s.op("MatMul", &[&weights, &heads.v])
    });
    Analyzed::new(s.model(opset, &[&y]))
}

#[test]
fn axes_are_emitted_as_the_opset_requires() {
    for (opset, inputs) in [(11, 1), (13, 2)] {
        let known = of_constants(opset);
        known.context().model.check().unwrap();
        assert_eq!(known.kinds(), [Kind::Alibi], "{opset}");
        let bare = known.without_encodings().unwrap();
        let context = bare.context();
        context.model.check().unwrap();
        assert_eq!(bare.kinds(), [], "{opset}");
        let mut nodes = context.graph().nodes().map(|(_, node)| node);
        let moved = nodes.find(|node| node.is("Unsqueeze"));
        assert_eq!(moved.unwrap().inputs().len(), inputs, "{opset}");
    }
}

/// Computes a value from another one, at one of several levels.
type Level = fn(&mut Sketch, &str, usize) -> String;

/// The sum of a bias and a mask, with so many levels applied.
fn doubled(levels: usize, level: Level) -> Analyzed {
    let mut s = Sketch::default();
    let all = std::cell::RefCell::new(None);
    let y = layers(&mut s, &|s, heads| {
        let mut all = all.borrow_mut();
        let entering = all.get_or_insert_with(|| {
            let (line, causal) = (line(s, 1.0), causal(s, -1e9));
            let first = s.op("Add", &[&line, &causal]);
            (0..levels).fold(first, |x, i| level(s, &x, i))
        });
        let scores = product(s, &heads.q, &heads.k);
        let scores = added(s, &scores, std::slice::from_ref(entering));
        let weights = softmax(s, &scores);
        s.op("MatMul", &[&weights, &heads.v])
    });
    Analyzed::new(s.model(17, &[&y]))
}

#[test]
fn a_value_that_is_added_to_itself_repeatedly_is_split_once() {
    let same: Level = |s, x, _| {
        let later = later(s);
        s.op("Where", &[&later, x, x])
    };
    let known = doubled(60, same);
    assert_eq!(known.kinds(), [Kind::Alibi]);
    let bare = known.without_encodings().unwrap();
    assert_eq!(bare.kinds(), []);
    let causal = |site: &Site| site.mask.causal == Some(true);
    assert!(bare.context().found.attention.iter().all(causal));
    // Each path through these has a different factor.
    let parts: Level = |s, x, i| {
        let share = 0.3 + 0.01 * i as f64;
        let (one, other) = (s.float(share), s.float(1.0 - share));
        let (one, other) = (s.op("Mul", &[x, &one]), s.op("Mul", &[x, &other]));
        s.op("Add", &[&one, &other])
    };
    let known = doubled(45, parts);
    assert_eq!(known.kinds(), [Kind::Alibi]);
    let why = known.without_encodings().err().unwrap();
    assert!(why.contains("too many operators"), "{why}");
    assert!(why.starts_with("sketch/"), "{why}");
}

#[test]
fn a_mask_removed_with_its_bias_is_noticed() {
    // The factor of each path through these is so small that a mask looks like a bias.
    let halves = |levels: usize| {
        let mut s = Sketch::default();
        let y = layers(&mut s, &|s, heads| {
            let (line, d) = (line(s, 1.0), s.distance());
            let (d, three) = (s.op("Abs", &[&d]), s.int(3));
            let (near, low) = (s.op("Less", &[&d, &three]), s.float(-1e9));
            let zero = s.float(0.0);
            let mask = s.op("Where", &[&near, &zero, &low]);
            let first = s.op("Add", &[&line, &mask]);
            let all = (0..levels).fold(first, |x, _| {
                let half = s.float(0.5);
                let half = s.op("Mul", &[&x, &half]);
                s.op("Add", &[&half, &half])
            });
            let scores = product(s, &heads.q, &heads.k);
            let scores = added(s, &scores, &[all]);
            let weights = softmax(s, &scores);
            s.op("MatMul", &[&weights, &heads.v])
        });
        let request = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        rewrite(&mut s.model(17, &[&y]), &request)
    };
    assert!(!halves(2).unwrap().report.edits.is_empty());
    let why = halves(30).unwrap_err().to_string();
    assert!(why.contains("attention properties changed"), "{why}");
}
