//! The cases of every runtime, with results calculated by hand in f64.

use posenc_ir::{DType, Tensor};

use super::models::{Attr, Graph};

/// A model with runs and their results.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) model: Vec<u8>,
    /// One entry a run of the same session.
    pub(crate) runs: Vec<Run>,
    /// The largest error.
    pub(crate) bound: f64,
}

/// The inputs and outputs of one run.
pub(crate) struct Run {
    pub(crate) feeds: Vec<(&'static str, Tensor)>,
    pub(crate) want: Vec<Want>,
}

/// The wanted value of one output.
pub(crate) struct Want {
    pub(crate) name: &'static str,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

pub(crate) fn want(name: &'static str, dtype: DType, dims: &[usize], values: &[f64]) -> Want {
    Want {
        name,
        dtype,
        dims: dims.to_vec(),
        values: values.to_vec(),
    }
}

pub(crate) fn once(feeds: Vec<(&'static str, Tensor)>, want: Want) -> Vec<Run> {
    vec![Run {
        feeds,
        want: vec![want],
    }]
}

pub(crate) fn f32s(dims: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, dims, values)
}

/// Every case.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        matmul_and_bias(),
        types("float16", DType::F16),
        types("float64", DType::F64),
        bfloat16(),
        types("int64", DType::I64),
        types("int32", DType::I32),
        bools(),
        positions_at_two_lengths(),
        empty_past(),
        scalars(),
        masked_softmax(),
        branch_that_captures(),
        rotation(),
        cumulative_positions(),
        cumulative_sum_of_a_cast_mask(),
        gather_nd_from_the_end(),
        passed_through(),
    ];
    cases.extend(super::fused::cases());
    cases
}

/// [1 2; 3 4] · [5 6; 7 8] + [0.5 −0.5]
fn matmul_and_bias() -> Case {
    let model = Graph::new()
        .input("x", DType::F32, &["rows", "2"])
        .init("w", &f32s(&[2, 2], &[5.0, 6.0, 7.0, 8.0]))
        .init("b", &f32s(&[2], &[0.5, -0.5]))
        .node("MatMul", &["x", "w"], &["xw"], vec![])
        .node("Add", &["xw", "b"], &["y"], vec![])
        .output("y", DType::F32, &["rows", "2"]);
    Case {
        name: "matrix product and bias",
        model: model.model(17),
        runs: once(
            vec![("x", f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]))],
            want("y", DType::F32, &[2, 2], &[19.5, 21.5, 43.5, 49.5]),
        ),
        bound: 0.0,
    }
}

/// x − 3, exact in every type.
fn types(name: &'static str, dtype: DType) -> Case {
    let model = Graph::new()
        .input("x", dtype, &["n"])
        .init("c", &Tensor::from_f64(dtype, &[1], &[3.0]))
        .node("Sub", &["x", "c"], &["y"], vec![])
        .output("y", dtype, &["n"]);
    Case {
        name,
        model: model.model(17),
        runs: once(
            vec![("x", Tensor::from_f64(dtype, &[3], &[96.0, -5.0, 3.0]))],
            want("y", dtype, &[3], &[93.0, -8.0, 0.0]),
        ),
        bound: 0.0,
    }
}

/// Converted to float32 and back: runtimes have few operators of this type on a processor.
fn bfloat16() -> Case {
    let model = Graph::new()
        .input("x", DType::BF16, &["n"])
        .node("Cast", &["x"], &["wide"], vec![("to", Attr::Int(1))])
        .node("Neg", &["wide"], &["negative"], vec![])
        .node("Cast", &["negative"], &["y"], vec![("to", Attr::Int(16))])
        .output("y", DType::BF16, &["n"]);
    Case {
        name: "bfloat16",
        model: model.model(17),
        runs: once(
            vec![("x", Tensor::from_f64(DType::BF16, &[2], &[96.0, -5.5]))],
            want("y", DType::BF16, &[2], &[-96.0, 5.5]),
        ),
        bound: 0.0,
    }
}

fn bools() -> Case {
    let model = Graph::new()
        .input("a", DType::I64, &["n"])
        .input("b", DType::Bool, &["n"])
        .init("zero", &Tensor::from_i64(&[], &[0]))
        .node("Greater", &["a", "zero"], &["positive"], vec![])
        .node("And", &["positive", "b"], &["y"], vec![])
        .output("y", DType::Bool, &["n"]);
    Case {
        name: "bool in and out",
        model: model.model(17),
        runs: once(
            vec![
                ("a", Tensor::from_i64(&[3], &[1, 2, -1])),
                ("b", Tensor::from_bool(&[3], &[true, false, true])),
            ],
            want("y", DType::Bool, &[3], &[1.0, 0.0, 0.0]),
        ),
        bound: 0.0,
    }
}

/// 0 … length − 1, from the shape of the ids: the same session at two lengths, and back.
fn positions_at_two_lengths() -> Case {
    let model = Graph::new()
        .input("ids", DType::I64, &["batch", "sequence"])
        .init("one", &Tensor::from_i64(&[], &[1]))
        .init("zero", &Tensor::from_i64(&[], &[0]))
        .node("Shape", &["ids"], &["shape"], vec![])
        .node("Gather", &["shape", "one"], &["length"], vec![])
        .node("Range", &["zero", "length", "one"], &["y"], vec![])
        .output("y", DType::I64, &["sequence"]);
    let run = |length: usize| {
        let positions: Vec<f64> = (0..length).map(|p| p as f64).collect();
        Run {
            feeds: vec![("ids", Tensor::from_i64(&[2, length], &vec![7; 2 * length]))],
            want: vec![want("y", DType::I64, &[length], &positions)],
        }
    };
    Case {
        name: "positions at two lengths",
        model: model.model(17),
        runs: vec![run(3), run(5), run(3), run(1)],
        bound: 0.0,
    }
}

/// An empty cache.
fn empty_past() -> Case {
    let model = Graph::new()
        .input("past", DType::F32, &["1", "p", "2"])
        .input("x", DType::F32, &["1", "s", "2"])
        .node(
            "Concat",
            &["past", "x"],
            &["y"],
            vec![("axis", Attr::Int(1))],
        )
        .output("y", DType::F32, &["1", "t", "2"]);
    Case {
        name: "empty past",
        model: model.model(17),
        runs: once(
            vec![
                ("past", f32s(&[1, 0, 2], &[])),
                ("x", f32s(&[1, 1, 2], &[1.0, 2.0])),
            ],
            want("y", DType::F32, &[1, 1, 2], &[1.0, 2.0]),
        ),
        bound: 0.0,
    }
}

fn scalars() -> Case {
    let model = Graph::new()
        .input("x", DType::F32, &[])
        .node("Mul", &["x", "x"], &["y"], vec![])
        .output("y", DType::F32, &[]);
    Case {
        name: "scalars",
        model: model.model(17),
        runs: once(
            vec![("x", f32s(&[], &[-1.5]))],
            want("y", DType::F32, &[], &[2.25]),
        ),
        bound: 0.0,
    }
}

/// softmax([0, ln 3] + [0, 0]) = [1/4, 3/4]; softmax([5, 7] + [0, −∞]) = [1, 0]
fn masked_softmax() -> Case {
    let model = Graph::new()
        .input("scores", DType::F32, &["q", "k"])
        .input("mask", DType::Bool, &["q", "k"])
        .init("zero", &f32s(&[], &[0.0]))
        .init("minus", &f32s(&[], &[f64::NEG_INFINITY]))
        .node("Where", &["mask", "zero", "minus"], &["bias"], vec![])
        .node("Add", &["scores", "bias"], &["masked"], vec![])
        .node(
            "Softmax",
            &["masked"],
            &["y"],
            vec![("axis", Attr::Int(-1))],
        )
        .output("y", DType::F32, &["q", "k"]);
    Case {
        name: "masked softmax",
        model: model.model(17),
        runs: once(
            vec![
                ("scores", f32s(&[2, 2], &[0.0, 3f64.ln(), 5.0, 7.0])),
                (
                    "mask",
                    Tensor::from_bool(&[2, 2], &[true, true, true, false]),
                ),
            ],
            want("y", DType::F32, &[2, 2], &[0.25, 0.75, 1.0, 0.0]),
        ),
        bound: 2e-7,
    }
}

/// If the sequence is longer than 2, 2x, else −x: the branches read a value from outside.
fn branch_that_captures() -> Case {
    let branch = |op: &str, inputs: &[&str]| {
        let graph = Graph::new().node(op, inputs, &["r"], vec![]);
        graph.output("r", DType::F32, &["n"]).0
    };
    let then = branch("Add", &["x", "x"]);
    let other = branch("Neg", &["x"]);
    let model = Graph::new()
        .input("x", DType::F32, &["n"])
        .init("two", &Tensor::from_i64(&[], &[2]))
        .init("zero", &Tensor::from_i64(&[], &[0]))
        .node("Shape", &["x"], &["shape"], vec![])
        .node("Gather", &["shape", "zero"], &["n"], vec![])
        .node("Greater", &["n", "two"], &["long"], vec![])
        .node(
            "If",
            &["long"],
            &["y"],
            vec![
                ("then_branch", Attr::Graph(Box::new(then))),
                ("else_branch", Attr::Graph(Box::new(other))),
            ],
        )
        .output("y", DType::F32, &["n"]);
    let run = |x: &[f64], y: &[f64]| Run {
        feeds: vec![("x", f32s(&[x.len()], x))],
        want: vec![want("y", DType::F32, &[y.len()], y)],
    };
    Case {
        name: "branch that captures",
        model: model.model(17),
        runs: vec![
            run(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]),
            run(&[1.0, 2.0], &[-1.0, -2.0]),
        ],
        bound: 0.0,
    }
}

/// The pair (x₀, x₁) rotated by the angle `position`: cos and sin computed in the graph.
fn rotation() -> Case {
    let model = Graph::new()
        .input("x", DType::F32, &["s", "2"])
        .input("position", DType::I64, &["s", "1"])
        .node(
            "Cast",
            &["position"],
            &["angle"],
            vec![("to", Attr::Int(1))],
        )
        .node("Cos", &["angle"], &["cos"], vec![])
        .node("Sin", &["angle"], &["sin"], vec![])
        .node("Split", &["x"], &["x0", "x1"], vec![("axis", Attr::Int(1))])
        .node("Neg", &["x1"], &["minus"], vec![])
        .node(
            "Concat",
            &["minus", "x0"],
            &["rotated"],
            vec![("axis", Attr::Int(1))],
        )
        .node("Mul", &["x", "cos"], &["a"], vec![])
        .node("Mul", &["rotated", "sin"], &["b"], vec![])
        .node("Add", &["a", "b"], &["y"], vec![])
        .output("y", DType::F32, &["s", "2"]);
    let (x, positions) = ([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]], [0.0, 1.0, 100.0]);
    let y: Vec<f64> = (x.iter().zip(positions))
        .flat_map(|([x0, x1], p): (_, f64)| {
            [x0 * p.cos() - x1 * p.sin(), x0 * p.sin() + x1 * p.cos()]
        })
        .collect();
    Case {
        name: "rotation",
        model: model.model(17),
        runs: once(
            vec![
                ("x", f32s(&[3, 2], x.as_flattened())),
                (
                    "position",
                    Tensor::from_f64(DType::I64, &[3, 1], &positions),
                ),
            ],
            want("y", DType::F32, &[3, 2], &y),
        ),
        bound: 1e-6,
    }
}

/// Positions that skip padding: the sum of the mask so far, 0 where the mask is 0, and 1 more for
/// the reserved row.
fn cumulative_positions() -> Case {
    let model = Graph::new()
        .input("ids", DType::I64, &["b", "s"])
        .init("pad", &Tensor::from_i64(&[], &[1]))
        .init("axis", &Tensor::from_i64(&[], &[1]))
        .init("one", &Tensor::from_i64(&[], &[1]))
        .node("Equal", &["ids", "pad"], &["is_pad"], vec![])
        .node("Not", &["is_pad"], &["is_token"], vec![])
        .node("Cast", &["is_token"], &["mask"], vec![("to", Attr::Int(6))])
        .node("CumSum", &["mask", "axis"], &["sum"], vec![])
        .node("Mul", &["sum", "mask"], &["position"], vec![])
        .node("Cast", &["position"], &["wide"], vec![("to", Attr::Int(7))])
        .node("Add", &["wide", "one"], &["y"], vec![])
        .output("y", DType::I64, &["b", "s"]);
    Case {
        name: "cumulative positions",
        model: model.model(17),
        runs: once(
            vec![("ids", Tensor::from_i64(&[2, 3], &[5, 6, 1, 1, 7, 8]))],
            want("y", DType::I64, &[2, 3], &[2.0, 3.0, 1.0, 1.0, 2.0, 3.0]),
        ),
        bound: 0.0,
    }
}

/// The sum of a bool mask so far.
fn cumulative_sum_of_a_cast_mask() -> Case {
    let model = Graph::new()
        .input("mask", DType::Bool, &["b", "s"])
        .init("axis", &Tensor::from_i64(&[], &[-1]))
        .node("Cast", &["mask"], &["ones"], vec![("to", Attr::Int(7))])
        .node("CumSum", &["ones", "axis"], &["y"], vec![])
        .output("y", DType::I64, &["b", "s"]);
    Case {
        name: "cumulative sum of a cast mask",
        model: model.model(17),
        runs: once(
            vec![("mask", Tensor::from_bool(&[1, 3], &[true, false, true]))],
            want("y", DType::I64, &[1, 3], &[1.0, 1.0, 2.0]),
        ),
        bound: 0.0,
    }
}

/// Index −1 counts from the end.
fn gather_nd_from_the_end() -> Case {
    let model = Graph::new()
        .input("x", DType::F32, &["2", "3"])
        .input("at", DType::I64, &["n", "2"])
        .node("GatherND", &["x", "at"], &["y"], vec![])
        .output("y", DType::F32, &["n"]);
    Case {
        name: "GatherND from the end",
        model: model.model(17),
        runs: once(
            vec![
                ("x", f32s(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
                ("at", Tensor::from_i64(&[2, 2], &[0, -1, -1, 0])),
            ],
            want("y", DType::F32, &[2], &[2.0, 3.0]),
        ),
        bound: 0.0,
    }
}

/// An output that is an input, in as much memory as is given back to the system at once.
fn passed_through() -> Case {
    let numbers: Vec<f64> = (0..1 << 15).map(f64::from).collect();
    let dims = [numbers.len()];
    let model = Graph::new()
        .input("x", DType::F32, &["n"])
        .output("x", DType::F32, &["n"]);
    let x = Tensor::from_f64(DType::F32, &dims, &numbers);
    Case {
        name: "an output that is an input",
        model: model.model(17),
        runs: once(vec![("x", x)], want("x", DType::F32, &dims, &numbers)),
        bound: 0.0,
    }
}

/// Two outputs: t = xᵀ and n = −x.
pub(crate) fn transposed() -> Vec<u8> {
    Graph::new()
        .input("x", DType::F32, &["a", "b"])
        .node(
            "Transpose",
            &["x"],
            &["t"],
            vec![("perm", Attr::Ints(&[1, 0]))],
        )
        .node("Neg", &["x"], &["n"], vec![])
        .output("t", DType::F32, &["b", "a"])
        .output("n", DType::F32, &["a", "b"])
        .model(17)
}
