use super::*;
use crate::proto::AttributeProto;
use crate::proto::attribute_proto::AttributeType;
use crate::samples::{self, constant, find, floats, lines, model, node, untyped, value};
use crate::tensor::Tensor;

const LIMIT: usize = 1 << 16;

/// ids → Shape → … → angles → cos, sin; x, and a weight.
fn rotary() -> GraphProto {
    GraphProto {
        name: Some("rotary".to_owned()),
        input: vec![
            value("positions", DType::I64, &[-1]),
            value("x", DType::F32, &[-1, 4]),
        ],
        initializer: vec![
            floats("inv_freq", &[1.0, 0.01]),
            samples::proto("w", &Tensor::from_f32(&[4, 4], &[0.5; 16])),
        ],
        node: vec![
            cast(node("Cast", &["positions"], &["p"])),
            node("MatMul", &["x", "w"], &["q"]),
            constant("axis", &Tensor::from_i64(&[1], &[1])),
            node("Unsqueeze", &["p", "axis"], &["column"]),
            node("Mul", &["column", "inv_freq"], &["angles"]),
            node("Cos", &["angles"], &["cos"]),
            node("Sin", &["angles"], &["sin"]),
            node("Mul", &["q", "cos"], &["y"]),
        ],
        output: vec![untyped("y")],
        ..Default::default()
    }
}

/// To floats.
fn cast(mut node: NodeProto) -> NodeProto {
    let mut to = AttributeProto {
        name: Some("to".to_owned()),
        i: Some(i64::from(DType::F32.code())),
        ..Default::default()
    };
    to.set_type(AttributeType::Int);
    node.attribute.push(to);
    node
}

fn at(value: ValueId, dtype: DType, dims: &[Dim]) -> CutInput {
    CutInput {
        value,
        dtype,
        dims: dims.to_vec(),
    }
}

fn read(cut: &Cut) -> Model {
    let model = Model::from_bytes(cut.bytes.clone()).unwrap();
    model.check().unwrap();
    model
}

fn names(ports: &[CutPort]) -> Vec<&str> {
    ports.iter().map(|p| p.name.as_str()).collect()
}

#[test]
fn a_cut_contains_only_what_its_outputs_need() {
    let m = model(rotary());
    let g = m.graph();
    let outputs = [find(g, "cos"), find(g, "sin"), find(g, "cos")];
    let cut = m.cut(&[], &outputs, LIMIT).unwrap();
    let small = read(&cut);
    assert_eq!(
        lines(&small),
        [
            "p = Cast(positions)",
            "axis = Constant()",
            "column = Unsqueeze(p, axis)",
            "angles = Mul(column, inv_freq)",
            "cos = Cos(angles)",
            "sin = Sin(angles)",
        ]
    );
    assert_eq!(names(&cut.inputs), ["positions"]);
    assert_eq!(cut.inputs[0].dtype, Some(DType::I64));
    assert_eq!(cut.inputs[0].dims, Some(vec![Dim::Symbol("n1".into())]));
    assert_eq!(names(&cut.outputs), ["cos", "sin"]);
    assert_eq!(small.opset(), 17);
    let got = small.graph().constant(find(small.graph(), "inv_freq"));
    assert_eq!(got, Some(Tensor::from_f32(&[2], &[1.0, 0.01])));
}

#[test]
fn a_cut_starts_at_the_given_values() {
    let m = model(rotary());
    let g = m.graph();
    let begin = [
        at(
            find(g, "angles"),
            DType::F32,
            &[Dim::Known(3), Dim::Unknown],
        ),
        at(find(g, "q"), DType::F32, &[]),
        at(find(g, "x"), DType::F16, &[Dim::Known(7)]),
    ];
    let cut = m.cut(&begin, &[find(g, "y")], LIMIT).unwrap();
    let small = read(&cut);
    assert_eq!(lines(&small), ["cos = Cos(angles)", "y = Mul(q, cos)"]);
    // Nothing reads x, and it is an input all the same: feeds go by the list.
    assert_eq!(names(&cut.inputs), ["angles", "q", "x"]);
    let v = small.graph().value(find(small.graph(), "angles"));
    assert_eq!(v.shape(), Some(&[Dim::Known(3), Dim::Unknown][..]));
    assert!(
        small
            .graph()
            .scope(small.graph().main())
            .initializers()
            .is_empty()
    );
}

#[test]
fn new_nodes_are_cut_like_others() {
    let mut m = model(rotary());
    let g = m.graph();
    let (cos, inv_freq) = (find(g, "cos"), find(g, "inv_freq"));
    let mut out = g.emitter(g.main(), "scale");
    let factor = out.scalar("factor", DType::F32, 1.5);
    let scaled = out.op("Mul", &[cos, factor]);
    out.redirect(cos, scaled).unwrap();
    let uses = g.uses(inv_freq).to_vec();
    let half = Tensor::from_f32(&[2], &[0.5, 0.005]);
    out.replace_constant(inv_freq, &uses, half.clone()).unwrap();
    m.commit(out.finish()).unwrap();
    let begin = [at(find(m.graph(), "column"), DType::F32, &[])];
    let cut = m.cut(&begin, &[scaled], LIMIT).unwrap();
    let small = read(&cut);
    assert_eq!(
        lines(&small),
        [
            "angles = Mul(column, inv_freq)",
            "cos = Cos(angles)",
            "scale/mul_0 = Mul(cos, scale/factor_0)",
        ]
    );
    let sg = small.graph();
    assert_eq!(sg.constant(find(sg, "inv_freq")), Some(half));
    assert_eq!(
        sg.constant(find(sg, "scale/factor_0")),
        Some(Tensor::from_f32(&[], &[1.5]))
    );
}

/// `if c: a + w else: a`, with `a` computed outside.
fn branching() -> GraphProto {
    let then_branch = GraphProto {
        name: Some("then".to_owned()),
        initializer: vec![floats("inner", &[2.0])],
        node: vec![
            node("Add", &["a", "w"], &["sum"]),
            node("Mul", &["sum", "inner"], &["t"]),
        ],
        output: vec![untyped("t")],
        ..Default::default()
    };
    let else_branch = GraphProto {
        name: Some("else".to_owned()),
        node: vec![node("Identity", &["a"], &["e"])],
        output: vec![untyped("e")],
        ..Default::default()
    };
    let branches = vec![("then_branch", then_branch), ("else_branch", else_branch)];
    GraphProto {
        name: Some("branching".to_owned()),
        input: vec![
            value("x", DType::F32, &[1]),
            value("c", DType::Bool, &[]),
            value("unused", DType::F32, &[1]),
        ],
        initializer: vec![floats("w", &[3.0])],
        node: vec![
            node("Neg", &["x"], &["a"]),
            node("Abs", &["x"], &["b"]),
            samples::with_bodies(node("If", &["c"], &["y"]), branches),
        ],
        output: vec![untyped("y"), untyped("b")],
        ..Default::default()
    }
}

#[test]
fn bodies_are_cut_with_their_captures() {
    let m = model(branching());
    let g = m.graph();
    let cut = m.cut(&[], &[find(g, "y")], LIMIT).unwrap();
    let small = read(&cut);
    assert_eq!(lines(&small), ["a = Neg(x)", "y = If(c)"]);
    assert_eq!(names(&cut.inputs), ["c", "x"]);
    assert_eq!(small.graph().scopes().count(), 3);
    assert_eq!(
        small.graph().constant(find(small.graph(), "w")),
        Some(Tensor::from_f32(&[1], &[3.0]))
    );
    let begin = [at(find(g, "a"), DType::F32, &[Dim::Known(1)])];
    let cut = m.cut(&begin, &[find(g, "y")], LIMIT).unwrap();
    assert_eq!(lines(&read(&cut)), ["y = If(c)"]);
}

#[test]
fn a_cut_inside_of_a_body_reaches_out_of_it() {
    let m = model(branching());
    let cut = m.cut(&[], &[find(m.graph(), "t")], LIMIT).unwrap();
    let want = ["a = Neg(x)", "sum = Add(a, w)", "t = Mul(sum, inner)"];
    assert_eq!(lines(&read(&cut)), want);
}

#[test]
fn only_called_functions_are_in_a_cut() {
    let function = |name: &str, op: &str| FunctionProto {
        name: Some(name.to_owned()),
        domain: Some("local".to_owned()),
        input: vec!["fx".to_owned()],
        output: vec!["fy".to_owned()],
        node: vec![node(op, &["fx"], &["fy"])],
        opset_import: vec![samples::import("", 17), samples::import("local", 1)],
        ..Default::default()
    };
    let call = |name: &str, from: &str, to: &str| NodeProto {
        domain: Some("local".to_owned()),
        ..node(name, &[from], &[to])
    };
    let mut outer = function("Outer", "Inner");
    outer.node[0].domain = Some("local".to_owned());
    let proto = ModelProto {
        functions: vec![function("Inner", "Neg"), outer, function("Other", "Abs")],
        ..samples::model_proto(GraphProto {
            input: vec![value("x", DType::F32, &[1])],
            node: vec![call("Outer", "x", "y"), call("Other", "x", "z")],
            output: vec![untyped("y"), untyped("z")],
            ..Default::default()
        })
    };
    let m = Model::from_bytes(proto.encode_to_vec()).unwrap();
    let cut = m.cut(&[], &[find(m.graph(), "y")], LIMIT).unwrap();
    let small = read(&cut);
    let g = small.graph();
    let functions: Vec<&str> = g.scopes().skip(1).map(|s| g.scope(s).name()).collect();
    assert_eq!(functions, ["Inner", "Outer"]);
    // An input of a function has no type to give to an input of the cut.
    let inside = find(m.graph(), "fy");
    let why = m.cut(&[], &[inside], LIMIT).unwrap_err();
    assert_eq!(
        why.to_string(),
        "fx: the cut reaches an input of unknown type"
    );
}

#[test]
fn external_payloads_are_embedded_in_bodies_too() {
    let folder = tempfile::tempdir().unwrap();
    let data: Vec<u8> = [9.0f32, 2.5, 3.5]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect();
    std::fs::write(folder.path().join("data"), data).unwrap();
    let external = |name: &str, offset: &str| {
        let entry = |key: &str, value: &str| crate::proto::StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        TensorProto {
            name: Some(name.to_owned()),
            dims: vec![1],
            data_type: Some(1),
            data_location: Some(1),
            external_data: vec![entry("location", "data"), entry("offset", offset)],
            ..Default::default()
        }
    };
    let mut graph = branching();
    graph.initializer = vec![external("w", "4")];
    graph.node[2].attribute[0].g.as_mut().unwrap().initializer = vec![external("inner", "8")];
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, samples::model_proto(graph).encode_to_vec()).unwrap();
    let m = Model::open(&path).unwrap();
    let small = read(&m.cut(&[], &[find(m.graph(), "y")], LIMIT).unwrap());
    for (name, want) in [("w", 2.5), ("inner", 3.5)] {
        let got = small.graph().constant(find(small.graph(), name));
        assert_eq!(got, Some(Tensor::from_f32(&[1], &[want])), "{name}");
    }
    std::fs::write(folder.path().join("data"), [0; 9]).unwrap();
    let m = Model::open(&path).unwrap();
    let why = m.cut(&[], &[find(m.graph(), "y")], LIMIT).unwrap_err();
    assert!(why.to_string().contains("do not match the type"), "{why}");
}

#[test]
fn what_cannot_be_cut_is_refused_with_the_reason() {
    let m = model(rotary());
    let g = m.graph();
    let y = find(g, "y");
    let foreign = ValueId::from_index(g.value_count());
    let angles = at(find(g, "angles"), DType::F32, &[]);
    let cases = [
        (
            "no budget for the weight",
            m.cut(&[], &[y], 70),
            "more than 70 bytes of weights",
        ),
        (
            "an input twice",
            m.cut(&[angles.clone(), angles], &[y], LIMIT),
            "angles: the value is given twice as an input of the cut",
        ),
        (
            "an output of no graph",
            m.cut(&[], &[foreign], LIMIT),
            "output of the cut is not a value of the graph",
        ),
        (
            "an input of no graph",
            m.cut(&[at(foreign, DType::F32, &[])], &[y], LIMIT),
            "input of the cut is not a value of the graph",
        ),
    ];
    for (name, got, want) in cases {
        let got = got.unwrap_err().to_string();
        assert!(got.contains(want), "{name}: {got}");
    }
    assert!(m.cut(&[], &[y], LIMIT).is_ok());

    let m = model(branching());
    let g = m.graph();
    let why = m
        .cut(&[], &[find(g, "y"), find(g, "t")], LIMIT)
        .unwrap_err();
    assert!(
        why.to_string().contains("contains the value twice"),
        "{why}"
    );
    let why = m.cut(
        &[at(find(g, "sum"), DType::F32, &[])],
        &[find(g, "y")],
        LIMIT,
    );
    let why = why.unwrap_err().to_string();
    assert!(why.contains("the cut contains the value twice"), "{why}");
}

#[test]
fn two_values_of_one_name_are_refused() {
    let body = |op: &str| GraphProto {
        node: vec![node(op, &["x"], &["same"])],
        output: vec![untyped("same")],
        ..Default::default()
    };
    let branches = vec![("then_branch", body("Neg")), ("else_branch", body("Abs"))];
    let m = model(GraphProto {
        input: vec![value("x", DType::F32, &[1]), value("c", DType::Bool, &[])],
        node: vec![samples::with_bodies(node("If", &["c"], &["y"]), branches)],
        output: vec![untyped("y")],
        ..Default::default()
    });
    let g = m.graph();
    let same: Vec<ValueId> = g.values().filter(|v| g.name(*v) == "same").collect();
    assert!(m.cut(&[], &same[..1], LIMIT).is_ok());
    let why = m.cut(&[], &same, LIMIT).unwrap_err().to_string();
    assert_eq!(why, "same: two values of the cut have this name");
}

#[test]
fn a_removed_value_cannot_be_cut() {
    let mut m = model(rotary());
    let g = m.graph();
    let (q, x, cos) = (find(g, "q"), find(g, "x"), find(g, "cos"));
    let mut out = g.emitter(g.main(), "skip");
    out.redirect(q, x).unwrap();
    m.commit(out.finish()).unwrap();
    assert!(m.cut(&[], &[cos], LIMIT).is_ok());
    let w = find(m.graph(), "w");
    for gone in [q, w] {
        let why = m.cut(&[], &[gone], LIMIT).unwrap_err().to_string();
        assert!(why.contains("removed from the graph"), "{why}");
    }
}

#[test]
fn cycles_are_refused_and_deep_graphs_are_not() {
    let mut graph = GraphProto {
        input: vec![value("v0", DType::F32, &[1])],
        output: vec![untyped("v20000")],
        ..Default::default()
    };
    for i in 0..20_000 {
        let (from, to) = (format!("v{i}"), format!("v{}", i + 1));
        graph.node.push(node("Neg", &[&from], &[&to]));
    }
    let m = model(graph.clone());
    let cut = m.cut(&[], &[find(m.graph(), "v20000")], 1 << 24).unwrap();
    assert_eq!(lines(&read(&cut)).len(), 20_000);
    graph.node[7].input.push("v19000".to_owned());
    let m = Model::from_bytes(samples::model_proto(graph).encode_to_vec()).unwrap();
    let why = m.cut(&[], &[find(m.graph(), "v20000")], 1 << 24);
    let why = why.unwrap_err().to_string();
    assert!(why.contains("depends on its own output"), "{why}");
}
