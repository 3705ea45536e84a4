//! Networks without attention, some with a softmax of another use: nothing is to be found in them.

use super::*;
use crate::inspect::inspect;

fn sequence(s: &mut Sketch) -> String {
    s.input("x", DType::F32, &["batch", "sequence", "24"])
}

fn linear(s: &mut Sketch, x: &str, from: usize, to: usize) -> String {
    let w = s.weights(&[from, to]);
    s.op("MatMul", &[x, &w])
}

/// What a network is called, and what draws it.
type Network = (&'static str, fn(&mut Sketch) -> String);

fn networks() -> Vec<Network> {
    vec![
        ("a convolutional network with a residual", |s| {
            let x = s.input("pixels", DType::F32, &["batch", "3", "32", "32"]);
            let w = s.weights(&[8, 3, 3, 3]);
            let pads = ("pads", A::Ints(&[1, 1, 1, 1]));
            let x = s.with("Conv", &[&x, &w], &[("pads", A::Ints(&[1, 1, 1, 1]))]);
            // Depthwise and added to its input, as an encoding is; but no attention follows.
            let w = s.weights(&[8, 1, 3, 3]);
            let y = s.with("Conv", &[&x, &w], &[("group", A::Int(8)), pads]);
            let x = s.op("Add", &[&x, &y]);
            let x = s.op("GlobalAveragePool", &[&x]);
            let x = s.reshape(&x, &[0, 8]);
            let x = linear(s, &x, 8, 5);
            s.with("Softmax", &[&x], &[("axis", A::Int(-1))])
        }),
        ("a perceptron", |s| {
            let x = s.input("x", DType::F32, &["batch", "24"]);
            let x = linear(s, &x, 24, 16);
            let x = s.op("Relu", &[&x]);
            let x = linear(s, &x, 16, 4);
            s.with("Softmax", &[&x], &[("axis", A::Int(-1))])
        }),
        ("a recurrent network", |s| {
            let x = sequence(s);
            let x = s.transpose(&x, &[1, 0, 2]);
            let (w, r) = (s.weights(&[1, 32, 24]), s.weights(&[1, 32, 8]));
            let all = s.many("LSTM", &[&x, &w, &r], &[("hidden_size", A::Int(8))], 3);
            all[0].clone()
        }),
        ("a graph network that weighs neighbors by a softmax", |s| {
            let x = s.input("nodes", DType::F32, &["n", "24"]);
            let edges = s.input("adjacency", DType::Bool, &["n", "n"]);
            let h = linear(s, &x, 24, 8);
            let (from, to) = (linear(s, &h, 8, 1), linear(s, &h, 8, 1));
            let to = s.transpose(&to, &[1, 0]);
            let e = s.op("Add", &[&from, &to]);
            let e = s.op("LeakyRelu", &[&e]);
            let low = s.float(-1e9);
            let e = s.op("Where", &[&edges, &e, &low]);
            let weights = s.with("Softmax", &[&e], &[("axis", A::Int(-1))]);
            s.op("MatMul", &[&weights, &h])
        }),
        ("a router among experts", |s| {
            let x = sequence(s);
            let logits = linear(s, &x, 24, 4);
            let weights = s.with("Softmax", &[&logits], &[("axis", A::Int(-1))]);
            let weights = s.unsqueeze(&weights, &[-2]);
            let experts: Vec<String> = (0..4)
                .map(|_| {
                    let y = linear(s, &x, 24, 24);
                    s.unsqueeze(&y, &[-2])
                })
                .collect();
            let experts: Vec<&str> = experts.iter().map(String::as_str).collect();
            let all = s.concat(&experts, -2);
            s.op("MatMul", &[&weights, &all])
        }),
        ("the mean of the tokens that count", |s| {
            let x = s.embedded();
            let mask = s.input("attention_mask", DType::I64, &["batch", "sequence"]);
            let mask = s.cast(&mask, DType::F32);
            let mask = s.unsqueeze(&mask, &[-1]);
            let kept = s.op("Mul", &[&x, &mask]);
            let axes = s.ints(&[1]);
            let (sum, count) = (
                s.op("ReduceSum", &[&kept, &axes]),
                s.op("ReduceSum", &[&mask, &axes]),
            );
            s.op("Div", &[&sum, &count])
        }),
        ("pooling by learned weights", |s| {
            let x = s.embedded();
            let h = linear(s, &x, HIDDEN, HIDDEN);
            let h = s.op("Tanh", &[&h]);
            let scores = linear(s, &h, HIDDEN, 1);
            let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(1))]);
            let weights = s.transpose(&weights, &[0, 2, 1]);
            s.op("MatMul", &[&weights, &x])
        }),
        ("likeness of two vectors as a softmax", |s| {
            let a = s.input("images", DType::F32, &["n", "24"]);
            let b = s.input("texts", DType::F32, &["m", "24"]);
            let b = s.transpose(&b, &[1, 0]);
            let scores = s.op("MatMul", &[&a, &b]);
            s.with("Softmax", &[&scores], &[("axis", A::Int(-1))])
        }),
        ("tokens with a table, and no attention", |s| {
            let x = s.embedded();
            let at = s.range();
            let table = s.weights(&[64, HIDDEN]);
            let rows = s.gather(&table, &at, 0);
            let x = s.op("Add", &[&x, &rows]);
            linear(s, &x, HIDDEN, 30)
        }),
    ]
}

#[test]
fn networks_without_attention_have_no_encoding() {
    for (name, network) in networks() {
        let mut s = Sketch::default();
        let y = network(&mut s);
        let report = inspect(&s.model(18, &[&y]), &Options::default());
        assert_eq!(report.attention, [], "{name}");
        assert_eq!(report.encodings, [], "{name}");
    }
}

/// Tokens with a table, which something else than attention mixes.
#[test]
fn a_table_before_other_mixers_is_read_where_nothing_attends() {
    type Mixer = fn(&mut Sketch, &str) -> String;
    let read = |mix: Mixer, placed: bool| {
        let mut s = Sketch::default();
        let mut x = s.input("x", DType::F32, &["batch", "7", "24"]);
        if placed {
            let table = s.weights(&[1, 7, 24]);
            x = s.op("Add", &[&x, &table]);
        }
        let y = mix(&mut s, &x);
        let y = s.op("Add", &[&x, &y]);
        inspect(&s.model(20, &[&y]), &Options::default())
    };
    let mixers: [(&str, Mixer); 2] = [
        ("a perceptron", |s, x| {
            let t = s.transpose(x, &[0, 2, 1]);
            let t = linear(s, &t, 7, 7);
            s.transpose(&t, &[0, 2, 1])
        }),
        ("a Fourier transform", |s, x| {
            let x = s.unsqueeze(x, &[-1]);
            let axis = s.int(1);
            let y = s.op("DFT", &[&x, "", &axis]);
            let real = s.int(0);
            s.gather(&y, &real, -1)
        }),
    ];
    for (name, mix) in mixers {
        let report = read(mix, true);
        assert_eq!(report.attention, [], "{name}");
        let [table] = &report.encodings[..] else {
            panic!("{name}: {:?}", report.encodings)
        };
        assert_eq!((table.kind, table.max_length), (Kind::Learned, Some(7)));
        assert_eq!(table.layers, [0; 0], "{name}: no attention sees it");
        assert_eq!(read(mix, false).encodings, [], "{name}");
    }
}

/// The same checks fail where there is attention, and where it has an encoding.
#[test]
fn a_layer_with_attention_is_not_passed_over() {
    let report = inspect(&model(&Form::default()), &Options::default());
    assert_eq!(report.attention.len(), 1);
    assert_eq!(report.encodings.len(), 1);
}
