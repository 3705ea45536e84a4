//! What is inserted where, in small models: positions, insertion points, queries and keys. The swap
//! itself compares each result with its formula.

mod caches;
mod rotation;

use posenc_ir::{DType, Dim, Model};

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::request::Request;
use crate::rewrite::swap::branch::swap;
use posenc_encodings::kind::Kind;

/// A model of one layer, with parts that a case replaces.
struct Form {
    /// The residual stream.
    embed: fn(&mut Sketch) -> String,
    /// Queries or keys `[batch, heads, sequence, size]`, from their projection.
    head: fn(&mut Sketch, &str, Side) -> String,
    /// Values of the heads, given the keys.
    value: fn(&mut Sketch, &str, &str) -> String,
    opset: i64,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Query,
    Key,
}

impl Default for Form {
    fn default() -> Self {
        Self {
            embed: Sketch::embedded,
            head: |s, x, _| heads(s, x),
            value: |s, x, _| {
                let v = projected(s, x);
                heads(s, &v)
            },
            opset: 17,
        }
    }
}

fn projected(s: &mut Sketch, x: &str) -> String {
    let w = s.weights(&[HIDDEN, HIDDEN]);
    s.op("MatMul", &[x, &w])
}

fn split(s: &mut Sketch, x: &str) -> String {
    s.reshape(x, &[0, 0, HEADS as i64, SIZE as i64])
}

fn heads(s: &mut Sketch, x: &str) -> String {
    let x = split(s, x);
    s.transpose(&x, &[0, 2, 1, 3])
}

impl Form {
    fn model(&self) -> Model {
        let mut s = Sketch::default();
        let x = (self.embed)(&mut s);
        let [q, k] = [Side::Query, Side::Key].map(|side| {
            let y = projected(&mut s, &x);
            (self.head)(&mut s, &y, side)
        });
        let v = (self.value)(&mut s, &x, &k);
        let kt = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &kt]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        let y = s.op("Add", &[&x, &y]);
        s.model(self.opset, &[&y])
    }
}

fn to(kind: Kind) -> Request {
    let mut request = Request {
        to: Some(kind),
        ..Request::default()
    };
    request.parameters.max_length = (kind == Kind::Learned).then_some(40);
    request.parameters.seed = Some(7);
    request
}

/// The model after a swap, or the refusal.
fn swapped(model: &Model, request: &Request) -> Result<Model, String> {
    let options = Options::default();
    let found = detect(model, &options);
    let done = swap(model, &found, request, &options).map_err(|e| e.to_string())?;
    let model = done.ok_or("there is nothing to do")?.model;
    model.check().map_err(|e| e.to_string())?;
    Ok(model)
}

/// The operators that were added, in order.
fn added(model: &Model) -> Vec<&str> {
    let graph = model.graph();
    let new = graph
        .nodes()
        .filter(|(_, n)| n.name().starts_with("posenc"));
    new.map(|(_, n)| n.op()).collect()
}

fn has(model: &Model, op: &str) -> bool {
    added(model).contains(&op)
}

#[test]
fn new_positions_count_the_tokens() {
    let model = Form::default().model();
    let learned = swapped(&model, &to(Kind::Learned)).unwrap();
    assert_eq!(added(&learned), ["Shape", "Slice", "Add"]);
    let sinusoidal = swapped(&model, &to(Kind::Sinusoidal)).unwrap();
    let front = ["Shape", "Squeeze", "Range", "Cast", "Unsqueeze", "Mul"];
    assert_eq!(added(&sinusoidal)[..6], front);
    let rope = swapped(&model, &to(Kind::Rope)).unwrap();
    assert_eq!(added(&rope)[..6], front);
    // cos, sin, its signs; five nodes for queries, five for keys.
    assert_eq!(added(&rope).len(), 6 + 3 + 10);
    for opset in [11, 13] {
        let form = Form {
            opset,
            ..Form::default()
        };
        let rope = swapped(&form.model(), &to(Kind::Rope)).unwrap();
        assert_eq!(added(&rope)[..3], ["Shape", "Gather", "Range"], "{opset}");
    }
    let form = Form {
        opset: 10,
        ..Form::default()
    };
    let why = swapped(&form.model(), &to(Kind::Rope)).unwrap_err();
    assert!(why.contains("too old"), "{why}");
    // Nothing is inserted where one is removed.
    let learned = Form {
        embed: |s| {
            let x = s.embedded();
            let at = s.input("position_ids", DType::I64, &["batch", "sequence"]);
            let table = s.weights(&[40, HIDDEN]);
            let rows = s.gather(&table, &at, 0);
            s.op("Add", &[&x, &rows])
        },
        ..form
    };
    let bare = swapped(&learned.model(), &to(Kind::None)).unwrap();
    assert!(!added(&bare).contains(&"Add"));
    let found = detect(&bare, &Options::default());
    assert!(found.findings.is_empty());
}

#[test]
fn the_oldest_opset_supports_all_encodings_that_need_no_einsum() {
    let form = Form {
        opset: 11,
        ..Form::default()
    };
    let model = form.model();
    for kind in Kind::targets().filter(|kind| !matches!(kind, Kind::None | Kind::Shaw)) {
        let there = swapped(&model, &to(kind)).unwrap_or_else(|e| panic!("{kind}: {e}"));
        swapped(&there, &to(Kind::None)).unwrap_or_else(|e| panic!("from {kind}: {e}"));
    }
    let why = swapped(&model, &to(Kind::Shaw)).unwrap_err();
    assert!(why.contains("needs opset 12"), "{why}");
}

#[test]
fn values_of_a_fixed_length_are_constants() {
    let form = Form {
        embed: |s| {
            let ids = s.input("input_ids", DType::I64, &["batch", "12"]);
            let table = s.weights(&[30, HIDDEN]);
            s.op("Gather", &[&table, &ids])
        },
        ..Form::default()
    };
    let model = form.model();
    let rope = swapped(&model, &to(Kind::Rope)).unwrap();
    assert_eq!(added(&rope).len(), 10, "{:?}", added(&rope));
    let sinusoidal = swapped(&model, &to(Kind::Sinusoidal)).unwrap();
    assert_eq!(added(&sinusoidal), ["Add"]);
    let learned = swapped(&model, &to(Kind::Learned)).unwrap();
    assert_eq!(added(&learned), ["Slice", "Add"]);
    let mut short = to(Kind::Learned);
    short.parameters.max_length = Some(9);
    let why = swapped(&model, &short).unwrap_err();
    assert!(why.contains("length 12, but the table has 9 rows"), "{why}");
}

/// Attention of `x` to itself, with heads apart.
fn attended(s: &mut Sketch, x: &str) -> String {
    let [q, k, v] = [0; 3].map(|_| {
        let y = projected(s, x);
        heads(s, &y)
    });
    let kt = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &kt]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    s.op("MatMul", &[&weights, &v])
}

/// A model with an input of positions of these dimensions.
fn fed(dtype: DType, dims: &[&str]) -> Model {
    let mut s = Sketch::default();
    s.input("position_ids", dtype, dims);
    let x = s.embedded();
    let y = attended(&mut s, &x);
    s.model(17, &[&y])
}

#[test]
fn an_input_of_positions_is_read() {
    type Case = (DType, &'static [&'static str]);
    let cases: [Case; 5] = [
        (DType::I64, &["batch", "sequence"]),
        (DType::I64, &["1", "sequence"]),
        (DType::I32, &["batch", "sequence"]),
        (DType::I64, &["sequence"]),
        (DType::F32, &["batch", "sequence"]),
    ];
    for (dtype, dims) in cases {
        let model = fed(dtype, dims);
        for kind in [Kind::Learned, Kind::Sinusoidal, Kind::Rope] {
            let done = swapped(&model, &to(kind)).unwrap();
            assert!(
                !has(&done, "Range") && !has(&done, "Shape"),
                "{dtype} {dims:?}"
            );
            assert!(!has(&done, "Max"), "{dtype} {dims:?}: none is below 0");
        }
    }
    let why = swapped(
        &fed(DType::I64, &["3", "batch", "sequence"]),
        &to(Kind::Rope),
    );
    let why = why.unwrap_err();
    assert!(
        why.contains("position_ids does not contain one position for each"),
        "{why}"
    );
}

#[test]
fn an_input_of_positions_is_added_if_there_is_none() {
    let mut request = to(Kind::Rope);
    request.allowances.add_position_ids = true;
    let done = swapped(&Form::default().model(), &request).unwrap();
    let graph = done.graph();
    let inputs = graph.scope(graph.main()).inputs();
    let ids = inputs[inputs.len() - 1];
    assert_eq!(graph.name(ids), "position_ids");
    let dims = ["batch", "sequence"].map(|s| Dim::Symbol(s.into()));
    assert_eq!(graph.value(ids).shape(), Some(&dims[..]));
    assert!(!has(&done, "Range"));
    // An existing input is used.
    let model = fed(DType::I64, &["batch", "sequence"]);
    let done = swapped(&model, &request).unwrap();
    let count = |m: &Model| m.graph().scope(m.graph().main()).inputs().len();
    assert_eq!(count(&done), count(&model));
    // Refused: another value has the name; without ids, no input has the length of the tokens.
    let taken = Form {
        embed: |s| {
            let x = s.embedded();
            let hidden = HIDDEN.to_string();
            let other = s.input("position_ids", DType::Bool, &[&hidden]);
            let other = s.cast(&other, DType::F32);
            s.op("Mul", &[&x, &other])
        },
        ..Form::default()
    };
    let why = swapped(&taken.model(), &request).unwrap_err();
    assert!(why.contains("position_ids"), "{why}");
    let patches = Form {
        embed: |s| {
            let x = s.input("pixels", DType::F32, &["batch", "24", "8", "8"]);
            let x = s.reshape(&x, &[0, 0, -1]);
            s.transpose(&x, &[0, 2, 1])
        },
        ..Form::default()
    };
    let why = swapped(&patches.model(), &request).unwrap_err();
    assert!(why.contains("`add-position-ids`"), "{why}");
}

#[test]
fn positions_that_skip_padding_are_preserved() {
    let form = Form {
        embed: |s| {
            let x = s.embedded();
            let mask = s.input("attention_mask", DType::I64, &["batch", "sequence"]);
            let one = s.int(1);
            let counted = s.op("CumSum", &[&mask, &one]);
            let counted = s.op("Mul", &[&counted, &mask]);
            let index = s.op("Add", &[&counted, &one]);
            let table = s.weights(&[40, HIDDEN]);
            let rows = s.op("Gather", &[&table, &index]);
            s.op("Add", &[&x, &rows])
        },
        ..Form::default()
    };
    let model = form.model();
    let ops = |m: &Model| -> Vec<String> {
        let nodes = m.graph().nodes();
        nodes.map(|(_, n)| n.op().to_owned()).collect()
    };
    for kind in [Kind::Rope, Kind::Sinusoidal] {
        let done = swapped(&model, &to(kind)).unwrap();
        assert!(ops(&done).contains(&"CumSum".to_owned()), "{kind}");
        assert!(has(&done, "Sub") && !has(&done, "Range") && !has(&done, "Max"));
    }
    // For padding, no row before the first is read.
    let mut request = to(Kind::Sinusoidal);
    request.parameters.max_length = Some(40);
    let done = swapped(&model, &request).unwrap();
    assert!(has(&done, "Max") && has(&done, "Gather"));
    // If nothing reads positions, they are removed.
    let done = swapped(&model, &to(Kind::Conv)).unwrap();
    assert!(
        !ops(&done).contains(&"CumSum".to_owned()),
        "{:?}",
        ops(&done)
    );
}

#[test]
fn a_convolution_reads_all_summands_of_the_embeddings() {
    let embeds: [fn(&mut Sketch) -> String; 2] = [
        |s| {
            summed(s, |s, [x, types, rows]| {
                let x = s.op("Add", &[x, types]);
                s.op("Add", &[&x, rows])
            })
        },
        |s| {
            summed(s, |s, [x, types, rows]| {
                let y = s.op("Add", &[types, rows]);
                s.op("Add", &[x, &y])
            })
        },
    ];
    for embed in embeds {
        let form = Form {
            embed,
            ..Form::default()
        };
        let done = swapped(&form.model(), &to(Kind::Conv)).unwrap();
        let graph = done.graph();
        let (_, conv) = graph.nodes().find(|(_, n)| n.is("Conv")).unwrap();
        let mut read = conv.input(0).unwrap();
        loop {
            let (id, _) = graph.producer(read).unwrap();
            let node = graph.node(id);
            if !node.is("Transpose") {
                assert_eq!(node.op(), "Add");
                break;
            }
            read = node.input(0).unwrap();
        }
    }
}

/// Embeddings of words, rows by type, and rows by position.
fn summed(s: &mut Sketch, sum: fn(&mut Sketch, [&str; 3]) -> String) -> String {
    let x = s.embedded();
    let types = s.input("token_type_ids", DType::I64, &["batch", "sequence"]);
    let [kinds, places] = [2, 40].map(|count| s.weights(&[count, HIDDEN]));
    let (types, at) = (s.gather(&kinds, &types, 0), s.range());
    let rows = s.gather(&places, &at, 0);
    sum(s, [&x, &types, &rows])
}

#[test]
fn readers_of_dimensions_keep_reading_the_embeddings() {
    let form = Form {
        embed: |s| {
            let x = s.embedded();
            let shape = s.op("Shape", &[&x]);
            let flat = s.reshape(&x, &[-1]);
            s.op("Reshape", &[&flat, &shape])
        },
        ..Form::default()
    };
    for kind in [Kind::Learned, Kind::Sinusoidal, Kind::Conv] {
        let done = swapped(&form.model(), &to(kind)).unwrap();
        let graph = done.graph();
        let shape = graph
            .nodes()
            .find(|(_, n)| n.is("Shape") && n.name().is_empty());
        let read = shape.unwrap().1.input(0).unwrap();
        let (id, _) = graph.producer(read).unwrap();
        assert!(graph.node(id).is("Gather"), "{kind}");
    }
}

/// Two layers, the second of which reads the first with `added` to it.
fn two_layers(added: fn(&mut Sketch, &str) -> String) -> Model {
    let mut s = Sketch::default();
    let embedded = s.embedded();
    let mut x = embedded.clone();
    for layer in 0..2 {
        let y = attended(&mut s, &x);
        let y = s.merged(&y);
        let before = match layer {
            0 => added(&mut s, &embedded),
            _ => x,
        };
        x = s.op("Add", &[&before, &y]);
    }
    s.model(17, &[&x])
}

#[test]
fn content_that_enters_a_later_layer_by_another_way_is_refused() {
    let ways: [fn(&mut Sketch, &str) -> String; 2] = [
        |s, _| {
            let table = s.weights(&[30, HIDDEN]);
            s.op("Gather", &[&table, "input_ids"])
        },
        |s, x| {
            let table = s.weights(&[30, HIDDEN]);
            let other = s.op("Gather", &[&table, "input_ids"]);
            s.op("Add", &[x, &other])
        },
    ];
    for (i, way) in ways.into_iter().enumerate() {
        for kind in [Kind::Conv, Kind::Learned, Kind::Sinusoidal] {
            let why = swapped(&two_layers(way), &to(kind)).unwrap_err();
            assert!(
                why.contains("at more than one place"),
                "{i} {kind:?}: {why}"
            );
        }
    }
    let same: fn(&mut Sketch, &str) -> String = |_, x| x.to_owned();
    for kind in [Kind::Conv, Kind::Learned, Kind::Sinusoidal] {
        swapped(&two_layers(same), &to(kind)).unwrap();
    }
}
