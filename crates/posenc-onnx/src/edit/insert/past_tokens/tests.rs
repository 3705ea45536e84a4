//! Positions after caches of fused operators.

use posenc_ir::eval::{Budget, Trace, Value, trace};
use posenc_ir::{DType, Model, Tensor};

use crate::detect::{Options, detect};
use crate::graph::dataflow::{Class, is_fed_ids};
use crate::graph::ports::{Lengths, Role};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::request::Request;
use crate::rewrite::swap::branch::swap;
use posenc_encodings::kind::Kind;

/// Queries, keys and values, `[batch, token, hidden]`.
fn projected(s: &mut Sketch, x: &str) -> [String; 3] {
    [0; 3].map(|_| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        s.op("MatMul", &[x, &w])
    })
}

/// Earlier keys and values of heads.
fn caches(s: &mut Sketch) -> [String; 2] {
    let (heads, size) = (HEADS.to_string(), SIZE.to_string());
    ["key", "value"].map(|name| {
        let name = format!("past_key_values.0.{name}");
        s.input(&name, DType::F32, &["batch", &heads, "past", &size])
    })
}

/// The last index of each sequence and the number of all tokens, from a mask.
fn counted(s: &mut Sketch) -> [String; 2] {
    let mask = s.input("attention_mask", DType::I64, &["batch", "total"]);
    let (axis, one) = (s.ints(&[1]), s.int(1));
    let keep = [("keepdims", A::Int(0))];
    let all = s.with("ReduceSum", &[&mask, &axis], &keep);
    let last = s.op("Sub", &[&all, &one]);
    let shape = s.op("Shape", &[&mask]);
    let total = s.gather(&shape, &one, 0);
    [last, total].map(|n| s.cast(&n, DType::I32))
}

/// A model of grouped queries; `lengths` returns the last index of each sequence and the number of
/// tokens.
fn grouped(lengths: fn(&mut Sketch) -> [String; 2], fed: bool) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    if fed {
        s.input("position_ids", DType::I64, &["batch", "sequence"]);
    }
    let [last, total] = lengths(&mut s);
    let [q, k, v] = projected(&mut s, &x);
    let [key, value] = caches(&mut s);
    let heads = A::Int(HEADS as i64);
    let kv_heads = A::Int(HEADS as i64);
    let made = s.many(
        "ms.GroupQueryAttention",
        &[&q, &k, &v, &key, &value, &last, &total],
        &[("num_heads", heads), ("kv_num_heads", kv_heads)],
        3,
    );
    s.model(17, &[&made[0], &made[1], &made[2]])
}

fn swapped(model: &Model, kind: Kind) -> Result<Model, String> {
    let mut request = Request {
        to: Some(kind),
        ..Request::default()
    };
    request.parameters.max_length = (kind == Kind::Learned).then_some(40);
    request.parameters.seed = Some(7);
    let options = Options::default();
    let found = detect(model, &options);
    let done = swap(model, &found, &request, &options).map_err(|e| e.to_string())?;
    let model = done.ok_or("there is nothing to do")?.model;
    model.check().map_err(|e| e.to_string())?;
    Ok(model)
}

/// Runs a model with sequences of these lengths at the start of the rows of a mask.
fn run(model: &Model, at: Lengths, lengths: &[usize]) -> Trace {
    let found = detect(model, &Options::default());
    let graph = model.graph();
    let mut seeds = found.ports.seeds(graph, at);
    if let Some(last) = found.ports.first(Role::Counts) {
        let lengths = lengths.iter().map(|n| *n as f64 - 1.0);
        let lengths: Vec<f64> = lengths.collect();
        let lengths = Tensor::from_f64(last.dtype, &[lengths.len()], &lengths);
        seeds.insert(last.value, Value::from_tensor(&lengths));
    }
    let all = at.past + at.sequence;
    let ones = lengths
        .iter()
        .flat_map(|n| (0..all).map(move |i| i64::from(i < *n)));
    let ones: Vec<i64> = ones.collect();
    let ones = Tensor::from_i64(&[lengths.len(), all], &ones);
    if let Some(mask) = found.ports.first(Role::Padding) {
        seeds.insert(mask.value, Value::from_tensor(&ones));
    }
    let opaque = |v| found.classes.of_value(v).has(Class::CONTENT) && !is_fed_ids(graph, v);
    let budget = Budget { elements: 1 << 20 };
    trace(model, &seeds, &opaque, &budget)
}

/// The rows that a swap to a table reads.
fn rows(model: &Model, at: Lengths, lengths: &[usize]) -> Vec<i64> {
    let graph = model.graph();
    let trace = run(model, at, lengths);
    let mut picks = graph.nodes().filter(|(_, n)| {
        let new = n.name().starts_with("posenc") && n.is("Gather");
        new && n.input(0).is_some_and(|v| graph.stored(v).is_some())
    });
    let index = picks.next().unwrap().1.input(1).unwrap();
    trace.get(index).to_i64().unwrap().iter().copied().collect()
}

#[test]
fn grouped_queries_are_at_the_end_of_their_own_sequence() {
    let model = grouped(counted, false);
    for kind in [Kind::Learned, Kind::Sinusoidal, Kind::Rope] {
        swapped(&model, kind).unwrap();
    }
    let done = swapped(&model, Kind::Learned).unwrap();
    let at = |sequence, past| Lengths {
        batch: 2,
        sequence,
        past,
    };
    let of = |at, lengths: [usize; 2]| rows(&done, at, &lengths);
    // Sequences of different lengths start.
    assert_eq!(of(at(3, 0), [3, 2]), [0, 1, 2, 0, 1, 2]);
    // One more token for each, with equal and with different lengths.
    assert_eq!(of(at(1, 6), [7, 7]), [6, 6]);
    assert_eq!(of(at(1, 6), [7, 4]), [6, 3]);
    assert_eq!(of(at(2, 6), [8, 5]), [6, 7, 3, 4]);
}

#[test]
fn an_input_of_positions_has_priority() {
    let done = swapped(&grouped(counted, true), Kind::Learned).unwrap();
    let at = Lengths {
        batch: 2,
        sequence: 2,
        past: 6,
    };
    assert_eq!(rows(&done, at, &[8, 5]), [6, 7, 6, 7]);
}

/// The last index of each sequence and the number of all tokens, from inputs.
fn told(s: &mut Sketch) -> [String; 2] {
    let last = s.input("seqlens_k", DType::I32, &["batch"]);
    [last, s.input("total_sequence_length", DType::I32, &[])]
}

#[test]
fn lengths_from_an_input_tell_where_each_sequence_ends() {
    let done = swapped(&grouped(told, false), Kind::Learned).unwrap();
    let at = |sequence, past| Lengths {
        batch: 2,
        sequence,
        past,
    };
    assert_eq!(rows(&done, at(3, 0), &[3, 2]), [0, 1, 2, 0, 1, 2]);
    assert_eq!(rows(&done, at(1, 6), &[7, 4]), [6, 3]);
}

#[test]
fn lengths_that_are_computed_from_an_input_are_refused() {
    let computed = |s: &mut Sketch| {
        let [more, total] = told(s);
        let one = s.typed(DType::I32, &[], [1.0]);
        [s.op("Sub", &[&more, &one]), total]
    };
    for kind in [Kind::Learned, Kind::Sinusoidal, Kind::Rope] {
        let why = swapped(&grouped(computed, false), kind).map(drop);
        let why = why.unwrap_err();
        assert!(
            why.contains("lengths of its sequences are an input"),
            "{why}"
        );
        swapped(&grouped(computed, true), kind).unwrap();
    }
}

/// A model of one operator, with an input of positions if `fed`.
fn fused(op: &str, fed: bool) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    if fed {
        s.input("position_ids", DType::I64, &["batch", "sequence"]);
    }
    let heads = ("num_heads", A::Int(HEADS as i64));
    let made = match op {
        "MultiHeadAttention" | "a buffer of MultiHeadAttention" => {
            let [q, k, v] = projected(&mut s, &x);
            let [key, value] = caches(&mut s);
            let mut inputs = vec![&*q, &*k, &*v, "", "", "", &*key, &*value];
            let past = match op {
                "MultiHeadAttention" => String::new(),
                _ => s.input("past_sequence_length", DType::I32, &["1"]),
            };
            inputs.extend((!past.is_empty()).then_some(&*past));
            s.many("ms.MultiHeadAttention", &inputs, &[heads], 3)
        }
        _ => {
            let w = s.weights(&[HIDDEN, 3 * HIDDEN]);
            let b = s.weights(&[3 * HIDDEN]);
            let (count, size) = (HEADS.to_string(), SIZE.to_string());
            let dims = ["2", "batch", &*count, "past", &*size];
            let past = s.input("past_0", DType::F32, &dims);
            let mut inputs = vec![&*x, &*w, &*b, "", &*past];
            let length = match op {
                "the length of a buffer of Attention" => {
                    s.input("past_sequence_length", DType::I32, &["1"])
                }
                _ => String::new(),
            };
            if !length.is_empty() {
                inputs.extend(["", &*length]);
            }
            let mut attrs = vec![heads];
            if op == "a buffer of Attention" {
                attrs.push(("past_present_share_buffer", A::Int(1)));
            }
            s.many("ms.Attention", &inputs, &attrs, 2)
        }
    };
    let outputs: Vec<&str> = made.iter().map(String::as_str).collect();
    s.model(17, &outputs)
}

#[test]
fn caches_with_a_shared_buffer_are_refused() {
    for op in [
        "a buffer of MultiHeadAttention",
        "the length of a buffer of Attention",
        "a buffer of Attention",
    ] {
        for kind in [Kind::Learned, Kind::Sinusoidal] {
            let why = swapped(&fused(op, false), kind).unwrap_err();
            assert!(why.contains("longer than its content"), "{op}: {why}");
            swapped(&fused(op, true), kind).unwrap();
        }
        let why = swapped(&fused(op, true), Kind::Alibi).unwrap_err();
        assert!(why.contains("a bias is not supported"), "{op}: {why}");
    }
}

#[test]
fn caches_without_a_shared_buffer_are_supported() {
    for op in ["MultiHeadAttention", "Attention"] {
        for kind in [Kind::Learned, Kind::Sinusoidal, Kind::Rope, Kind::Alibi] {
            swapped(&fused(op, false), kind).unwrap_or_else(|why| panic!("{op}, {kind}: {why}"));
        }
    }
}

#[test]
fn biases_of_grouped_queries_follow_each_sequence() {
    let done = swapped(&grouped(counted, false), Kind::RelativeBias).unwrap();
    let graph = done.graph();
    let mut nodes = graph.nodes();
    let attention = nodes.find(|(_, n)| n.op() == "GroupQueryAttention");
    let bias = attention.unwrap().1.input(10).unwrap();
    let at = |sequence, past| Lengths {
        batch: 2,
        sequence,
        past,
    };
    let whole = at(8, 0);
    let all = run(&done, whole, &[8, 8]).get(bias).to_f64().unwrap();
    for (at, lengths, first) in [
        (at(8, 0), [8, 5], [0, 0]),
        (at(1, 6), [7, 7], [6, 6]),
        (at(2, 6), [8, 5], [6, 3]),
    ] {
        let own = run(&done, at, &lengths).get(bias).to_f64().unwrap();
        let keys = at.past + at.sequence;
        assert_eq!(own.shape(), [2, HEADS, at.sequence, keys]);
        for ((b, i), j) in (0..2)
            .flat_map(|b| (0..at.sequence).map(move |i| (b, i)))
            .flat_map(|row| (0..keys).map(move |j| (row, j)))
        {
            let query = first[b] + i;
            for head in 0..HEADS {
                assert_eq!(
                    own[[b, head, i, j]],
                    all[[0, head, query, j]],
                    "{b} {i} {j}"
                );
            }
        }
    }
    assert_ne!(all[[0, 0, 0, 0]], all[[0, 0, 0, 1]]);
}
