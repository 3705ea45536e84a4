//! Where something is added, whatever is before the first layer.

use posenc_ir::{DType, Model};

use super::*;
use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HIDDEN, Sketch};

/// A layer of attention over a stream, which is added to it.
fn layer(s: &mut Sketch, x: &str) -> String {
    let [q, k, v] = [0; 3].map(|_| s.headed(x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.op("Add", &[x, &y])
}

/// A norm as one operator.
fn norm(s: &mut Sketch, x: &str) -> String {
    let (scale, shift) = (s.weights(&[HIDDEN]), s.weights(&[HIDDEN]));
    s.op("LayerNormalization", &[x, &scale, &shift])
}

/// A norm in parts.
fn norm_in_parts(s: &mut Sketch, x: &str) -> String {
    let two = s.float(2.0);
    let squares = s.op("Pow", &[x, &two]);
    let mean = s.with("ReduceMean", &[&squares], &[("axes", A::Ints(&[-1]))]);
    let root = s.op("Sqrt", &[&mean]);
    let y = s.op("Div", &[x, &root]);
    let scale = s.weights(&[HIDDEN]);
    s.op("Mul", &[&scale, &y])
}

/// Builds a stream up to the first layer; gives it with the places that are to be found.
type Build = fn(&mut Sketch) -> (String, Vec<String>);

/// The places of the first site, by name, and the usual one.
fn found(build: Build) -> (Vec<String>, usize, Vec<String>) {
    let mut s = Sketch::default();
    let (x, want) = build(&mut s);
    let y = layer(&mut s, &x);
    let y = layer(&mut s, &y);
    let model: Model = s.model(17, &[&y]);
    let found = detect(&model, &Options::default());
    let graph = model.graph();
    let begin = Begin::of(graph, &found.classes, &found.trace, &found.attention[0]).unwrap();
    let names = begin.places.iter().map(|p| graph.name(p.value).to_owned());
    (names.collect(), begin.usual, want)
}

#[test]
fn looked_up_embeddings_begin_before_the_first_norm() {
    let cases: [(&str, Build); 9] = [
        ("nothing before the layer", |s| {
            let x = s.embedded();
            (x.clone(), vec![x])
        }),
        ("a norm", |s| {
            let x = s.embedded();
            let y = norm(s, &x);
            (y.clone(), vec![x, y])
        }),
        ("a norm in parts", |s| {
            let x = s.embedded();
            let y = norm_in_parts(s, &x);
            (y.clone(), vec![x, y])
        }),
        ("a scale, then a norm", |s| {
            let x = s.embedded();
            let root = s.float(4.9);
            let x = s.op("Mul", &[&x, &root]);
            let y = norm(s, &x);
            (y.clone(), vec![x, y])
        }),
        ("words and types, then a norm", |s| {
            let x = s.embedded();
            let types = s.input("token_type_ids", DType::I64, &["batch", "sequence"]);
            let table = s.weights(&[2, HIDDEN]);
            let types = s.op("Gather", &[&table, &types]);
            let x = s.op("Add", &[&x, &types]);
            let y = norm(s, &x);
            (y.clone(), vec![x, y])
        }),
        ("words and types, summed by the norm", |s| {
            let x = s.embedded();
            let types = s.input("token_type_ids", DType::I64, &["batch", "sequence"]);
            let table = s.weights(&[2, HIDDEN]);
            let types = s.op("Gather", &[&table, &types]);
            let (scale, shift) = (s.weights(&[HIDDEN]), s.weights(&[HIDDEN]));
            let inputs = [&*x, &types, &scale, &shift];
            let y = s
                .many("ms.SkipLayerNormalization", &inputs, &[], 1)
                .remove(0);
            (y.clone(), vec![x, y])
        }),
        ("a projection to the width of the layers", |s| {
            let ids = s.input("input_ids", DType::I64, &["batch", "sequence"]);
            let table = s.weights(&[30, 5]);
            let x = s.op("Gather", &[&table, &ids]);
            let w = s.weights(&[5, HIDDEN]);
            let y = s.op("MatMul", &[&x, &w]);
            (y.clone(), vec![x, y])
        }),
        ("a branch that is added to its input", |s| {
            let x = s.embedded();
            let y = norm(s, &x);
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let y = s.op("MatMul", &[&y, &w]);
            let y = s.op("Add", &[&x, &y]);
            (y.clone(), vec![x, y])
        }),
        ("embeddings that are cast for the norm alone", |s| {
            let x = s.embedded();
            let wide = s.cast(&x, DType::F32);
            let y = norm(s, &wide);
            let both = s.op("Add", &[&x, &y]);
            (both.clone(), vec![x, both])
        }),
    ];
    for (name, build) in cases {
        let (got, usual, want) = found(build);
        assert_eq!(got.first(), want.first(), "{name}: {got:?}");
        assert_eq!(got.last(), want.last(), "{name}: {got:?}");
        assert_eq!(usual, 0, "{name}");
    }
}

#[test]
fn other_content_begins_after_its_last_projection() {
    let features = |s: &mut Sketch| {
        let x = s.input("features", DType::F32, &["batch", "sequence", "7"]);
        let w = s.weights(&[7, HIDDEN]);
        s.op("MatMul", &[&x, &w])
    };
    let x = features;
    let mut s = Sketch::default();
    let projected = x(&mut s);
    let y = norm(&mut s, &projected);
    let y = layer(&mut s, &y);
    let model = s.model(17, &[&y]);
    let found = detect(&model, &Options::default());
    let graph = model.graph();
    let begin = Begin::of(graph, &found.classes, &found.trace, &found.attention[0]).unwrap();
    let usual = &begin.places[begin.usual];
    assert_eq!(graph.name(usual.value), projected);
    assert!(usual.tokens.has(1) && !usual.tokens.has(0));
    // Embeddings that are fed are that already.
    let mut s = Sketch::default();
    let hidden = HIDDEN.to_string();
    let x = s.input("inputs_embeds", DType::F32, &["batch", "sequence", &hidden]);
    let y = norm(&mut s, &x);
    let y = layer(&mut s, &y);
    let model = s.model(17, &[&y]);
    let found = detect(&model, &Options::default());
    let graph = model.graph();
    let begin = Begin::of(graph, &found.classes, &found.trace, &found.attention[0]).unwrap();
    assert_eq!(graph.name(begin.places[begin.usual].value), "inputs_embeds");
}

#[test]
fn what_has_no_one_value_before_it_has_no_begin() {
    // Queries and keys of two inputs, of which neither is before both.
    let mut s = Sketch::default();
    let hidden = HIDDEN.to_string();
    let inputs = ["a", "b"].map(|n| s.input(n, DType::F32, &["batch", "sequence", &hidden]));
    let [q, k] = inputs.clone().map(|x| s.headed(&x));
    let kt = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &kt]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &k]);
    let model = s.model(17, &[&y]);
    let found = detect(&model, &Options::default());
    let mut site = found.attention[0].clone();
    site.cross = false;
    let begin = Begin::of(model.graph(), &found.classes, &found.trace, &site);
    assert_eq!(begin, None);
}
