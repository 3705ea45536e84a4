//! Traces and probes of whole models.

mod loops;

use rustc_hash::FxHashMap;

use super::*;
use crate::eval::{Trace, probe, trace};
use crate::id::ValueId as Id;
use crate::model::Model;
use crate::proto::{GraphProto, NodeProto, TensorProto, ValueInfoProto};
use crate::samples::{self, node, untyped, value};

const NOTHING: &dyn Fn(Id) -> bool = &|_| false;

fn graph(
    nodes: Vec<NodeProto>,
    initializer: Vec<TensorProto>,
    input: Vec<ValueInfoProto>,
    output: &[&str],
) -> GraphProto {
    GraphProto {
        name: Some("g".to_owned()),
        node: nodes,
        initializer,
        input,
        output: output.iter().map(|o| untyped(o)).collect(),
        ..Default::default()
    }
}

fn int_attribute(mut node: NodeProto, name: &str, v: i64) -> NodeProto {
    let mut attribute = AttributeProto {
        name: Some(name.to_owned()),
        i: Some(v),
        ..Default::default()
    };
    attribute.set_type(AttributeType::Int);
    node.attribute.push(attribute);
    node
}

fn int_constant(name: &str, dims: &[usize], all: &[i64]) -> TensorProto {
    samples::proto(name, &Tensor::from_i64(dims, all))
}

fn seeds(model: &Model, all: &[(&str, Value)]) -> FxHashMap<Id, Value> {
    let graph = model.graph();
    let seed = |(name, value): &(&str, Value)| (samples::find(graph, name), value.clone());
    all.iter().map(seed).collect()
}

fn get<'a>(model: &Model, trace: &'a Trace, name: &str) -> &'a Value {
    trace.get(samples::find(model.graph(), name))
}

/// Positions from the length of x, a table read by them, and their sum with x.
fn positions() -> Model {
    let table: Vec<f32> = (0..40).map(|v| v as f32).collect();
    let nodes = vec![
        node("Shape", &["x"], &["shape"]),
        node("Gather", &["shape", "one"], &["length"]),
        node("Range", &["zero", "length", "one"], &["ids"]),
        node("Gather", &["table", "ids"], &["rows"]),
        node("Add", &["x", "rows"], &["sum"]),
        node("MatMul", &["sum", "weight"], &["y"]),
    ];
    let constants = vec![
        int_constant("zero", &[], &[0]),
        int_constant("one", &[], &[1]),
        samples::proto("table", &Tensor::from_f32(&[20, 2], &table)),
        samples::proto("weight", &Tensor::from_f32(&[2, 3], &[1.0; 6])),
    ];
    let x = value("x", DType::F32, &[-1, -2, 2]);
    samples::model(graph(nodes, constants, vec![x], &["y"]))
}

#[test]
fn content_has_dimensions_and_positions_have_elements() {
    let model = positions();
    let run = trace(
        &model,
        &seeds(&model, &[("x", content(&[2, 3, 2]))]),
        NOTHING,
        &BUDGET,
    );
    assert_eq!(numbers(get(&model, &run, "ids")).1, [0.0, 1.0, 2.0]);
    assert_eq!(numbers(get(&model, &run, "rows")).0, [3, 2]);
    for (name, dims) in [("sum", vec![2, 3, 2]), ("y", vec![2, 3, 3])] {
        let value = get(&model, &run, name);
        assert_eq!(value.dims.as_ref(), Some(&dims), "{name}");
        assert!(value.data.is_none(), "{name}");
    }
    // Without a seed the symbols of the declared type stay open.
    let open = trace(&model, &FxHashMap::default(), NOTHING, &BUDGET);
    assert_eq!(get(&model, &open, "x").dtype, Some(DType::F32));
    assert!(get(&model, &open, "ids").dims.is_none());
}

#[test]
fn opaque_values_have_no_elements_and_seeds_replace_computed_values() {
    let model = positions();
    let rows = samples::find(model.graph(), "rows");
    let start = [("x", content(&[1, 3, 2])), ("ids", list(&[7, 8, 9]))];
    let run = trace(&model, &seeds(&model, &start), &|v| v == rows, &BUDGET);
    assert_eq!(numbers(get(&model, &run, "ids")).1, [7.0, 8.0, 9.0]);
    let value = run.get(rows);
    assert_eq!(
        (value.dims.clone(), value.data.is_none()),
        (Some(vec![3, 2]), true)
    );
}

#[test]
fn a_probe_runs_only_the_nodes_in_between() {
    let model = positions();
    let base = trace(
        &model,
        &seeds(&model, &[("x", content(&[1, 3, 2]))]),
        NOTHING,
        &BUDGET,
    );
    let target = |name: &str| [samples::find(model.graph(), name)];
    let zeros = floats(&[1, 3, 2], &[0.0; 6]);
    let from_x = seeds(&model, &[("x", zeros)]);
    let sum = probe(&model, &base, &from_x, &target("sum"), &BUDGET).unwrap();
    assert_eq!(numbers(&sum[0]).1, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let y = probe(&model, &base, &from_x, &target("y"), &BUDGET).unwrap();
    assert_eq!(numbers(&y[0]).1[..3], [1.0; 3]);

    // Another place of the sequence; the content stays unknown.
    let moved = seeds(&model, &[("ids", list(&[5, 6, 7]))]);
    let rows = probe(&model, &base, &moved, &target("rows"), &BUDGET).unwrap();
    assert_eq!(numbers(&rows[0]).1, [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
    let sum = probe(&model, &base, &moved, &target("sum"), &BUDGET);
    assert_eq!(sum.map(|v| v.len()), Err(Why::NotReached.into()));
    // A target that no seed reaches has the elements of the base; a seed its own.
    let ids = probe(&model, &base, &from_x, &target("ids"), &BUDGET).unwrap();
    assert_eq!(numbers(&ids[0]).1, [0.0, 1.0, 2.0]);
    let seed = probe(&model, &base, &moved, &target("ids"), &BUDGET).unwrap();
    assert_eq!(numbers(&seed[0]).1, [5.0, 6.0, 7.0]);
    // Other dimensions are traced back to the shapes.
    let longer = seeds(&model, &[("x", floats(&[1, 4, 2], &[0.0; 8]))]);
    let ids = probe(&model, &base, &longer, &target("ids"), &BUDGET).unwrap();
    assert_eq!(numbers(&ids[0]).1, [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn a_probe_forgets_what_nothing_reads_any_more() {
    // Thirteen values of a budget that holds six.
    let names: Vec<String> = (0..=10).map(|i| format!("x{i}")).collect();
    let step = |pair: &[String]| node("Neg", &[&pair[0]], &[&pair[1]]);
    let mut nodes: Vec<NodeProto> = names.windows(2).map(step).collect();
    // An element of a sequence is read from what the sequence was made of.
    nodes.push(node("SequenceConstruct", &["x9", "x10"], &["both"]));
    nodes.push(node("Neg", &["x10"], &["last"]));
    nodes.push(node("SequenceAt", &["both", "first"], &["y"]));
    let n = 1000;
    let input = value("x0", DType::F32, &[1000]);
    let first = int_constant("first", &[], &[0]);
    let model = samples::model(graph(nodes, vec![first], vec![input], &["y", "last"]));
    let base = trace(&model, &FxHashMap::default(), NOTHING, &BUDGET);
    let from = seeds(&model, &[("x0", floats(&[n], &vec![2.0; n]))]);
    let targets = ["x5", "y", "last"].map(|name| samples::find(model.graph(), name));
    let few = Budget { elements: 2 * n };
    let got = probe(&model, &base, &from, &targets, &few).unwrap();
    let firsts: Vec<f64> = got.iter().map(|v| numbers(v).1[0]).collect();
    assert_eq!(firsts, [-2.0, -2.0, -2.0]);
}

#[test]
fn large_constants_are_computed_when_something_other_than_a_weight_product_reads_them() {
    let n = 200;
    let big: Vec<f32> = (0..n * n).map(|v| v as f32).collect();
    let nodes = vec![
        node("Neg", &["weight"], &["negative"]),
        node("Transpose", &["negative"], &["transposed"]),
        node("MatMul", &["x", "transposed"], &["product"]),
        node("Neg", &["table"], &["other"]),
        node("Gather", &["other", "ids"], &["rows"]),
        node("Neg", &["bias"], &["shift"]),
        node("Add", &["x", "shift"], &["sum"]),
    ];
    let constants = ["weight", "table", "bias"]
        .map(|name| samples::proto(name, &Tensor::from_f32(&[n, n], &big)));
    let mut constants = constants.to_vec();
    constants.push(int_constant("ids", &[1], &[1]));
    let x = value("x", DType::F32, &[n as i64, n as i64]);
    let pos = value("pos", DType::I64, &[1]);
    let mut all = nodes;
    all.push(node("Gather", &["other", "pos"], &["picked"]));
    let outputs = ["product", "rows", "sum", "picked"];
    let model = samples::model(graph(all, constants, vec![x, pos], &outputs));
    let run = trace(
        &model,
        &seeds(&model, &[("pos", list(&[2]))]),
        NOTHING,
        &BUDGET,
    );
    for (name, known) in [
        ("negative", false),
        ("transposed", false),
        ("product", false),
        ("other", false),
        ("shift", true),
        ("picked", true),
    ] {
        let value = get(&model, &run, name);
        assert_eq!(value.data.is_some(), known, "{name}");
        assert!(value.dims.is_some(), "{name}");
    }
    assert_eq!(
        numbers(get(&model, &run, "picked")).1[..2],
        [-400.0, -401.0]
    );
    // A probe that requests one gets it.
    let from = seeds(&model, &[("x", floats(&[1, n], &vec![1.0; n]))]);
    let target = [samples::find(model.graph(), "product")];
    let product = probe(&model, &run, &from, &target, &BUDGET).unwrap();
    let first: f64 = (0..n).map(|v| -(v as f64)).sum();
    assert_eq!(numbers(&product[0]).1[0], first);
}

fn branches(condition: Option<bool>) -> (Model, Trace) {
    let branch = |op: &str| {
        graph(
            vec![node(op, &["table"], &[&format!("{op}_out")])],
            vec![],
            vec![],
            &[&format!("{op}_out")],
        )
    };
    let bodies = vec![
        ("then_branch", branch("Neg")),
        ("else_branch", branch("Abs")),
    ];
    let choice = samples::with_bodies(node("If", &["condition"], &["y"]), bodies);
    let table = samples::floats("table", &[-1.0, 2.0]);
    let input = value("condition", DType::Bool, &[]);
    let model = samples::model(graph(vec![choice], vec![table], vec![input], &["y"]));
    let start: Vec<_> = condition
        .map(|c| ("condition", bools(&[], &[c])))
        .into_iter()
        .collect();
    let run = trace(&model, &seeds(&model, &start), NOTHING, &BUDGET);
    (model, run)
}

#[test]
fn a_known_condition_runs_one_branch_and_an_unknown_one_both() {
    for (condition, then, other, y) in [
        (Some(true), true, false, Some(vec![1.0, -2.0])),
        (Some(false), false, true, Some(vec![1.0, 2.0])),
        (None, true, true, None),
    ] {
        let (model, run) = branches(condition);
        assert_eq!(
            get(&model, &run, "Neg_out").data.is_some(),
            then,
            "{condition:?}"
        );
        assert_eq!(
            get(&model, &run, "Abs_out").data.is_some(),
            other,
            "{condition:?}"
        );
        let out = get(&model, &run, "y");
        assert_eq!(out.dims, Some(vec![2]), "{condition:?}");
        assert_eq!(
            out.to_f64().map(|a| a.iter().copied().collect::<Vec<_>>()),
            y
        );
    }
}

#[test]
fn bodies_of_loops_and_scans_have_dimensions() {
    let body = graph(
        vec![
            node("Identity", &["go"], &["go_on"]),
            node("Add", &["carried", "step"], &["next"]),
            node("Unsqueeze", &["next", "axes"], &["piece"]),
        ],
        vec![int_constant("axes", &[1], &[0])],
        vec![untyped("step"), untyped("go"), untyped("carried")],
        &["go_on", "next", "piece"],
    );
    let count = node("Loop", &["most", "", "x"], &["last", "pieces"]);
    let count = samples::with_bodies(count, vec![("body", body)]);
    let slice = graph(
        vec![
            node("Add", &["state", "row"], &["state_out"]),
            node("Neg", &["row"], &["row_out"]),
        ],
        vec![],
        vec![untyped("state"), untyped("row")],
        &["state_out", "row_out"],
    );
    let scan = samples::with_bodies(
        node("Scan", &["zero", "x"], &["total", "rows"]),
        vec![("body", slice)],
    );
    let scan = int_attribute(scan, "num_scan_inputs", 1);
    let constants = vec![
        int_constant("most", &[], &[4]),
        samples::floats("step", &[1.0; 3]),
        samples::floats("zero", &[0.0; 3]),
    ];
    let x = value("x", DType::F32, &[2, 3]);
    let outputs = ["last", "pieces", "total", "rows"];
    let model = samples::model(graph(vec![count, scan], constants, vec![x], &outputs));
    let run = trace(&model, &FxHashMap::default(), NOTHING, &BUDGET);
    for (name, dims) in [
        ("next", Some(vec![2, 3])),
        ("piece", Some(vec![1, 2, 3])),
        ("last", Some(vec![2, 3])),
        ("pieces", Some(vec![4, 1, 2, 3])),
        ("row", Some(vec![3])),
        ("state_out", Some(vec![3])),
        ("total", Some(vec![3])),
        ("rows", Some(vec![2, 3])),
    ] {
        let value = get(&model, &run, name);
        assert_eq!(value.dims, dims, "{name}");
        assert!(value.data.is_none(), "{name}");
    }
}

#[test]
fn a_loop_that_may_end_early_has_no_length() {
    for (condition, length) in [("Identity", Some(vec![4, 3])), ("Not", None)] {
        let body = graph(
            vec![
                node(condition, &["go"], &["go_on"]),
                node("Neg", &["x"], &["piece"]),
            ],
            vec![],
            vec![untyped("step"), untyped("go")],
            &["go_on", "piece"],
        );
        let count = node("Loop", &["most", ""], &["pieces"]);
        let count = samples::with_bodies(count, vec![("body", body)]);
        let x = value("x", DType::F32, &[3]);
        let constants = vec![int_constant("most", &[], &[4])];
        let model = samples::model(graph(vec![count], constants, vec![x], &["pieces"]));
        let run = trace(&model, &FxHashMap::default(), NOTHING, &BUDGET);
        assert_eq!(get(&model, &run, "pieces").dims, length, "{condition}");
    }
}

#[test]
fn elements_of_sequences_are_read_from_the_split() {
    let split = node("SplitToSequence", &["x", "lengths"], &["parts"]);
    let nodes = vec![
        int_attribute(split, "axis", 1),
        node("SequenceAt", &["parts", "last"], &["part"]),
        node("SequenceLength", &["parts"], &["count"]),
    ];
    let constants = vec![
        int_constant("lengths", &[2], &[1, 3]),
        int_constant("last", &[], &[-1]),
    ];
    let x = value("x", DType::F32, &[2, 4]);
    let model = samples::model(graph(nodes, constants, vec![x], &["part", "count"]));
    let run = trace(
        &model,
        &seeds(&model, &[("x", count(&[2, 4]))]),
        NOTHING,
        &BUDGET,
    );
    let part = numbers(get(&model, &run, "part"));
    assert_eq!(part, (vec![2, 3], vec![1.0, 2.0, 3.0, 5.0, 6.0, 7.0]));
    assert_eq!(get(&model, &run, "count").scalar_i64(), Some(2));
    let run = trace(&model, &FxHashMap::default(), NOTHING, &BUDGET);
    assert_eq!(get(&model, &run, "part").dims, Some(vec![2, 3]));
}

#[test]
fn a_trace_stays_within_its_budget_and_computes_small_values() {
    let budget = Budget { elements: 1 << 12 };
    let mut nodes = vec![
        node("Shape", &["x"], &["shape"]),
        node("Squeeze", &["shape"], &["length"]),
        node("Range", &["zero", "length", "one"], &["r0"]),
    ];
    for i in 0..8 {
        let (from, to) = (format!("r{i}"), format!("r{}", i + 1));
        nodes.push(node("Add", &[&from, "one"], &[&to]));
    }
    nodes.push(node("Shape", &["r8"], &["last"]));
    let constants = vec![
        int_constant("zero", &[], &[0]),
        int_constant("one", &[], &[1]),
    ];
    let x = value("x", DType::F32, &[-1]);
    let m = samples::model(graph(nodes, constants, vec![x], &["last"]));
    let run = |length: usize| {
        let seeds = seeds(&m, &[("x", Value::opaque(DType::F32, [length]))]);
        trace(&m, &seeds, NOTHING, &budget)
    };
    let kept = |t: &Trace| {
        let known = |i: &usize| get(&m, t, &format!("r{i}")).data.is_some();
        (0..9).filter(known).count()
    };
    assert_eq!(kept(&run(1 << 9)), 9, "short ones fit all together");
    let long = run(1 << 12);
    assert!((1..=3).contains(&kept(&long)), "{}", kept(&long));
    let last = get(&m, &long, "last");
    assert_eq!(last.to_i64().unwrap()[0], 1 << 12);
}

#[test]
fn a_long_chain_of_large_constants_is_computed_from_its_end() {
    let budget = Budget { elements: 1 << 15 };
    let mut nodes = vec![
        node("Shape", &["x"], &["shape"]),
        node("Squeeze", &["shape"], &["length"]),
        node("Range", &["zero", "end", "one"], &["r0"]),
    ];
    for i in 0..10 {
        let (from, to) = (format!("r{i}"), format!("r{}", i + 1));
        nodes.push(node("Add", &[&from, "one"], &[&to]));
    }
    nodes.push(node("Mul", &["r10", "length"], &["y"]));
    let constants = vec![
        int_constant("zero", &[], &[0]),
        int_constant("one", &[], &[1]),
        int_constant("end", &[], &[1 << 15]),
    ];
    let x = value("x", DType::F32, &[-1]);
    let m = samples::model(graph(nodes, constants, vec![x], &["y"]));
    let seeds = seeds(&m, &[("x", Value::opaque(DType::F32, [2]))]);
    let t = trace(&m, &seeds, NOTHING, &budget);
    assert!(get(&m, &t, "r10").data.is_none(), "it waits to be read");
    // What only the chain reads is not kept, so that the budget suffices for its end.
    assert!(get(&m, &t, "y").data.is_some());
}
