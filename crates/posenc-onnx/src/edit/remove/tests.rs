//! Compares sums without their positions with the same graph with tables of zeros.

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, Value, trace};
use posenc_ir::{DType, Model};

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HIDDEN, SIZE, Sketch};
use crate::request::Request;
use crate::rewrite::rewrite;
use posenc_encodings::kind::Kind;

/// Rows of the tables.
const ROWS: usize = 40;

/// The stream after the embeddings, and other outputs.
type Embed = fn(&mut Sketch, String) -> Vec<String>;

fn none() -> Request {
    Request {
        to: Some(Kind::None),
        ..Request::default()
    }
}

/// One layer of bidirectional attention; the stream is an output, too.
fn model(embed: Embed) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let mut outputs = embed(&mut s, x);
    let y = attended(&mut s, &outputs[0]);
    outputs.push(y);
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    s.model(17, &outputs)
}

fn attended(s: &mut Sketch, x: &str) -> String {
    let mut headed = || s.headed(x);
    let (q, k, v) = (headed(), headed(), headed());
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.merged(&y)
}

/// The rows of a table; tables are recognized by their number of rows.
fn rows(s: &mut Sketch) -> String {
    let table = s.weights(&[ROWS, HIDDEN]);
    let at = s.range();
    s.gather(&table, &at, 0)
}

fn norm(s: &mut Sketch, x: &str) -> String {
    let (g, b) = (s.weights(&[HIDDEN]), s.weights(&[HIDDEN]));
    s.op("LayerNormalization", &[x, &g, &b])
}

/// The outputs for different ids; `zeroed` sets tables to zeros.
fn outputs(model: &Model, zeroed: bool) -> Vec<ArrayD<f64>> {
    let graph = model.graph();
    let found = detect(model, &Options::default());
    let mut seeds = found.ports.seeds(graph, found.lengths);
    for port in found.ports.iter() {
        let seed = seeds.get_mut(&port.value).unwrap();
        if let Some(ids) = seed.to_i64() {
            let ids = ids
                .indexed_iter()
                .map(|(at, _)| (at[0] * 5 + at[1] * 3) as i64 % 29);
            let dims = seed.dims.clone().unwrap();
            *seed = Value::int(ArrayD::from_shape_vec(dims, ids.collect()).unwrap());
        }
    }
    for value in graph.values().filter(|_| zeroed) {
        let stored = graph.stored(value);
        if let Some(stored) = stored.filter(|s| s.dims.first() == Some(&ROWS)) {
            let dims = stored.dims.clone();
            seeds.insert(value, Value::float(ArrayD::zeros(dims)));
        }
    }
    let budget = Budget { elements: 1 << 22 };
    let run = trace(model, &seeds, &|_| false, &budget);
    let outputs = graph.scope(graph.main()).outputs();
    outputs
        .iter()
        .map(|v| run.get(*v).to_f64().unwrap())
        .collect()
}

fn distance(a: &[ArrayD<f64>], b: &[ArrayD<f64>]) -> f64 {
    assert_eq!(a.len(), b.len());
    let each = a.iter().zip(b).map(|(a, b)| {
        assert_eq!(a.shape(), b.shape());
        let all = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        all.fold(0.0, f64::max)
    });
    each.fold(0.0, f64::max)
}

/// The names of the operators, sorted.
fn operators(model: &Model) -> Vec<String> {
    let nodes = model.graph().nodes();
    let mut all: Vec<String> = nodes.map(|(_, n)| n.op().to_owned()).collect();
    all.sort();
    all
}

fn cases() -> Vec<(&'static str, Embed)> {
    vec![
        ("gathered", |s, x| {
            let p = rows(s);
            vec![s.op("Add", &[&x, &p])]
        }),
        ("scaled, in the other order", |s, x| {
            let (p, two) = (rows(s), s.float(2.0));
            let p = s.op("Mul", &[&two, &p]);
            vec![s.op("Add", &[&p, &x])]
        }),
        ("subtracted", |s, x| {
            let p = rows(s);
            vec![s.op("Sub", &[&x, &p])]
        }),
        ("subtracted from", |s, x| {
            let p = rows(s);
            vec![s.op("Sub", &[&p, &x])]
        }),
        ("summed with a row of its own", |s, x| {
            let (p, row) = (rows(s), s.weights(&[1, HIDDEN]));
            let p = s.op("Add", &[&row, &p]);
            vec![s.op("Add", &[&x, &p])]
        }),
        ("three at once", |s, x| {
            let (p, row) = (rows(s), s.weights(&[1, 1, HIDDEN]));
            vec![s.op("Sum", &[&p, &x, &row])]
        }),
        ("two tables", |s, x| {
            let (p, other) = (rows(s), rows(s));
            let p = s.op("Add", &[&p, &other]);
            vec![s.op("Add", &[&x, &p])]
        }),
        ("added to itself over and over", |s, x| {
            let p = (0..60).fold(rows(s), |p, _| s.op("Add", &[&p, &p]));
            let small = s.float(0.5f64.powi(60));
            let p = s.op("Mul", &[&p, &small]);
            vec![s.op("Add", &[&x, &p])]
        }),
        ("one after the other", |s, x| {
            let (p, other) = (rows(s), rows(s));
            let first = s.op("Add", &[&x, &p]);
            vec![s.op("Add", &[&first, &other]), first]
        }),
        ("projected, then a bias", |s, x| {
            let p = rows(s);
            let (w, b) = (s.weights(&[HIDDEN, HIDDEN]), s.weights(&[HIDDEN]));
            let p = s.op("MatMul", &[&p, &w]);
            let p = s.op("Add", &[&p, &b]);
            vec![s.op("Add", &[&x, &p])]
        }),
        ("normalized", |s, x| {
            let p = rows(s);
            let p = norm(s, &p);
            vec![s.op("Add", &[&x, &p])]
        }),
        ("normalized together with a row", |s, x| {
            let (p, row) = (rows(s), s.weights(&[1, HIDDEN]));
            let p = s.op("Add", &[&p, &row]);
            let p = norm(s, &p);
            vec![s.op("Add", &[&x, &p])]
        }),
        ("in a norm that adds", |s, x| {
            let p = rows(s);
            let p = s.unsqueeze(&p, &[0]);
            let [g, b, bias] = [(); 3].map(|()| s.weights(&[HIDDEN]));
            let made = s.many(
                "ms.SkipLayerNormalization",
                &[&x, &p, &g, &b, &bias],
                &[],
                4,
            );
            vec![made[0].clone(), made[3].clone()]
        }),
        ("in a norm that adds, with a row", |s, x| {
            let (p, row) = (rows(s), s.weights(&[1, HIDDEN]));
            let p = s.op("Add", &[&p, &row]);
            let p = s.unsqueeze(&p, &[0]);
            let [g, b] = [(); 2].map(|()| s.weights(&[HIDDEN]));
            vec![s.op("ms.SkipLayerNormalization", &[&x, &p, &g, &b])]
        }),
        ("in a norm that adds and does not center", |s, x| {
            let p = rows(s);
            let p = s.unsqueeze(&p, &[0]);
            let g = s.weights(&[HIDDEN]);
            let made = s.many("ms.SkipSimplifiedLayerNormalization", &[&x, &p, &g], &[], 4);
            vec![made[0].clone(), made[3].clone()]
        }),
    ]
}

#[test]
fn tables_are_removed_however_they_are_added() {
    for (name, embed) in cases() {
        let whole = model(embed);
        let mut bare = whole.clone();
        let done = rewrite(&mut bare, &none()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!done.report.edits.is_empty(), "{name}");
        bare.check().unwrap();
        let (before, zeroed, after) = (
            outputs(&whole, false),
            outputs(&whole, true),
            outputs(&bare, false),
        );
        // Folded rows are rounded to the type of the graph.
        assert!(distance(&zeroed, &after) < 1e-6, "{name}");
        assert!(distance(&before, &after) > 1e-3, "{name}: nothing changed");
        // No table is left, and nothing that computes positions.
        assert!(!operators(&bare).contains(&"Range".to_owned()), "{name}");
        let again = rewrite(&mut bare, &none()).unwrap();
        assert!(again.report.edits.is_empty(), "{name}");
    }
}

#[test]
fn what_applies_to_all_layers_is_removed_from_all_or_none() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let p = rows(&mut s);
    let x = s.op("Add", &[&x, &p]);
    let y = attended(&mut s, &x);
    let x = s.op("Add", &[&x, &y]);
    let y = attended(&mut s, &x);
    let mut model = s.model(17, &[&y]);
    let one = Request {
        layers: Some("1".parse().unwrap()),
        ..none()
    };
    let why = rewrite(&mut model, &one).unwrap_err().to_string();
    assert_eq!(
        why,
        "the learned encoding applies to all layers; `layers` cannot be used"
    );
    let both = Request {
        layers: Some("0,1".parse().unwrap()),
        ..none()
    };
    assert_eq!(rewrite(&mut model, &both).unwrap().report.edits.len(), 2);
}

#[test]
fn other_readers_of_positions_keep_them() {
    let whole = model(|s, x| {
        let p = rows(s);
        let sum = s.op("Add", &[&x, &p]);
        vec![sum, s.op("Neg", &[&p])]
    });
    let mut bare = whole.clone();
    rewrite(&mut bare, &none()).unwrap();
    let (before, zeroed) = (outputs(&whole, false), outputs(&whole, true));
    let after = outputs(&bare, false);
    assert!(distance(&after[..1], &zeroed[..1]) < 1e-9);
    assert!(distance(&after[1..2], &before[1..2]) < 1e-9);
}

#[test]
fn content_that_meets_rows_of_a_removed_table_is_named() {
    let mut whole = model(|s, x| {
        let p = rows(s);
        let sum = s.op("Add", &[&x, &p]);
        let first = s.slice(&p, 0, [0, 1, 1]);
        vec![sum, s.op("Add", &[&x, &first])]
    });
    let why = rewrite(&mut whole, &none()).unwrap_err().to_string();
    assert!(why.contains("the position table, act here too"), "{why}");
}

#[test]
fn an_embedding_operator_is_decomposed() {
    for (opset, mask) in [(17, true), (11, true), (17, false)] {
        let mut s = Sketch::default();
        let ids = s.input("input_ids", DType::I32, &["batch", "sequence"]);
        let segments = s.input("token_type_ids", DType::I32, &["batch", "sequence"]);
        let words = s.weights(&[30, HIDDEN]);
        let (positions, types) = (s.weights(&[ROWS, HIDDEN]), s.weights(&[2, HIDDEN]));
        let [g, b] = [(); 2].map(|()| s.weights(&[HIDDEN]));
        let counts = if mask {
            s.input("attention_mask", DType::I32, &["batch", "sequence"])
        } else {
            String::new()
        };
        let inputs = [
            &*ids, &segments, &words, &positions, &types, &g, &b, &counts,
        ];
        let made = s.many("ms.EmbedLayerNormalization", &inputs, &[], 3);
        let y = attended(&mut s, &made[0]);
        let mut model = s.model(opset, &[&y, &made[1], &made[2]]);
        let done = rewrite(&mut model, &none());
        if !mask {
            let why = done.unwrap_err().to_string();
            assert!(why.contains("there is no mask"), "{why}");
            continue;
        }
        assert_eq!(done.unwrap().report.edits.len(), 1);
        model.check().unwrap();
        let operators = operators(&model);
        let count = |op: &str| operators.iter().filter(|o| *o == op).count();
        assert_eq!(count("EmbedLayerNormalization"), 0);
        assert_eq!(
            (count("Gather"), count("Add")),
            (2, if opset < 17 { 3 } else { 1 })
        );
        assert_eq!(count("LayerNormalization"), usize::from(opset >= 17));
        assert_eq!(count("ReduceSum"), 1);
        let names: Vec<&str> = {
            let graph = model.graph();
            let outputs = graph.scope(graph.main()).outputs().iter();
            outputs.map(|v| graph.name(*v)).collect()
        };
        assert_eq!(names, [&*y, &made[1], &made[2]]);
    }
}

/// A model of boxes: words on a page.
fn boxed(join: fn(&mut Sketch, String, Vec<String>) -> String) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let boxes = s.input("bbox", DType::I64, &["batch", "sequence", "4"]);
    let selected = (0..4).map(|side| {
        let side = s.int(side);
        let at = s.gather(&boxes, &side, 2);
        let table = s.weights(&[ROWS, HIDDEN]);
        s.gather(&table, &at, 0)
    });
    let selected = selected.collect();
    let x = join(&mut s, x, selected);
    let y = attended(&mut s, &x);
    s.model(17, &[&y, &x])
}

#[test]
fn rows_selected_by_coordinates_are_followed_to_their_sums() {
    let mut one_by_one =
        boxed(|s, x, selected| selected.iter().fold(x, |x, p| s.op("Add", &[&x, p])));
    let mut together = boxed(|s, x, selected| {
        let parts: Vec<&str> = selected.iter().map(String::as_str).collect();
        let all = s.concat(&parts, -1);
        let w = s.weights(&[4 * HIDDEN, HIDDEN]);
        let all = s.op("MatMul", &[&all, &w]);
        s.op("Add", &[&x, &all])
    });
    for model in [&mut one_by_one, &mut together] {
        let found = detect(model, &Options::default());
        assert_eq!(found.findings.len(), 4);
        let warnings = rewrite(model, &none()).unwrap().report.warnings;
        let is_said = |w: &String| w.contains("the coordinates of bbox pick from are removed");
        assert_eq!(
            warnings.iter().filter(|w| is_said(w)).count(),
            1,
            "{warnings:?}"
        );
        assert!(model.graph().find(model.graph().main(), "bbox").is_some());
        let gathers = operators(model).iter().filter(|op| *op == "Gather").count();
        assert_eq!(gathers, 1);
    }
    let mut gated = boxed(|s, x, selected| s.op("Mul", &[&x, &selected[0]]));
    let (before, why) = (
        gated.graph().text(),
        rewrite(&mut gated, &none()).unwrap_err(),
    );
    assert!(why.to_string().contains("other than by a sum"), "{why}");
    assert_eq!(gated.graph().text(), before);
}

#[test]
fn one_query_that_is_added_to_every_position_is_refused() {
    let mut s = Sketch::default();
    s.embedded();
    let query = s.input("query", DType::F32, &["batch", "1", "24"]);
    let p = rows(&mut s);
    let x = s.op("Add", &[&query, &p]);
    let y = attended(&mut s, &x);
    let mut model = s.model(17, &[&y]);
    let why = rewrite(&mut model, &none()).unwrap_err().to_string();
    assert!(why.contains("shape depends on the term to remove"), "{why}");
}

#[test]
fn an_output_gets_an_identity() {
    let mut s = Sketch::default();
    let x = s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
    let shape = s.op("Shape", &[&x]);
    let (zero, one) = (s.int(0), s.int(1));
    let length = s.gather(&shape, &one, 0);
    let at = s.op("Range", &[&zero, &length, &one]);
    let table = s.weights(&[ROWS, HIDDEN]);
    let p = s.gather(&table, &at, 0);
    let sum = s.op("Add", &[&x, &p]);
    let y = attended(&mut s, &sum);
    let mut model = s.model(17, &[&sum, &y]);
    rewrite(&mut model, &none()).unwrap();
    model.check().unwrap();
    let graph = model.graph();
    let output = graph.find(graph.main(), &sum).unwrap();
    let (node, _) = graph.producer(output).unwrap();
    assert!(graph.node(node).is("Identity"));
}

#[test]
fn a_rotation_shared_with_other_layers_is_kept() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let headed = |s: &mut Sketch| s.headed(&x);
    let rotated = |s: &mut Sketch, x: &str| {
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[1]);
        let half = SIZE / 2;
        let f = s.floats(&[1, half], (0..half).map(|i| 0.1f64.powi(i as i32)));
        let angles = s.op("Mul", &[&at, &f]);
        let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
        let cos = s.unsqueeze(&cos, &[0]);
        let sin = s.unsqueeze(&sin, &[0]);
        s.op("RotaryEmbedding", &[x, &cos, &sin])
    };
    let k = headed(&mut s);
    let k = rotated(&mut s, &k);
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let v = headed(&mut s);
    let layer = |s: &mut Sketch| {
        let q = headed(s);
        let q = rotated(s, &q);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        s.op("MatMul", &[&weights, &v])
    };
    let outputs = [layer(&mut s), layer(&mut s)];
    let model = s.model(23, &[&outputs[0], &outputs[1]]);
    let found = detect(&model, &Options::default());
    assert_eq!((found.attention.len(), found.rotary.len()), (2, 2));
    let one = Request {
        layers: Some("0".parse().unwrap()),
        ..none()
    };
    let mut part = model.clone();
    let why = rewrite(&mut part, &one).unwrap_err().to_string();
    assert!(why.contains("which is not selected"), "{why}");
    let mut all = model.clone();
    rewrite(&mut all, &none()).unwrap();
    assert!(!operators(&all).contains(&"RotaryEmbedding".to_owned()));
}
