//! What an edit leaves alone keeps its bytes, however odd they are.

use super::*;
use crate::dtype::DType;
use crate::proto::{GraphProto, attribute_proto::AttributeType};
use crate::samples::{find, floats, import, node, producer, untyped, value, with_bodies};

/// An unknown field that carries `mark`, so that it can be found again.
fn unknown(mark: &str) -> Vec<u8> {
    let mut out = vec![];
    wire::put_bytes(1007, mark.as_bytes(), &mut out);
    out
}

/// A field with a length in more bytes than it takes.
fn padded(number: u32, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 128);
    let mut out = vec![];
    wire::put_varint(u64::from(number) << 3 | 2, &mut out);
    out.extend([payload.len() as u8 | 0x80, 0x80, 0]);
    out.extend(payload);
    out
}

fn field(number: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = vec![];
    wire::put_bytes(number, payload.as_ref(), &mut out);
    out
}

fn marked(message: &impl Message, mark: &str) -> Vec<u8> {
    [unknown(mark), message.encode_to_vec()].concat()
}

/// A float tensor in fields out of order, its dimensions packed and with needless bytes.
fn odd_tensor(name: &str, v: f32, mark: &str) -> Vec<u8> {
    let mut out = field(9, v.to_le_bytes());
    out.extend(padded(8, name.as_bytes()));
    out.extend(field(1, [0x81, 0])); // packed, and the varint 1 in two bytes
    out.extend(unknown(mark));
    out.extend([0x10, 0x81, 0x80, 0]); // data type 1 in three bytes
    out
}

/// Parts of the model that no edit of a neighbor may change, and the whole.
struct Odd {
    bytes: Vec<u8>,
    runs: Vec<(&'static str, Vec<u8>)>,
}

/// y = (x + w) * k, z = if c { x - k } else { x }, f(x); nodes and initializers interleaved.
fn odd() -> Odd {
    let body_node = marked(&node("Sub", &["x", "k"], &["t"]), "in a node of a body");
    let body = [
        field(12, marked(&untyped("t"), "in an output of a body")),
        field(1, &body_node),
        unknown("in a body"),
        field(2, "then"),
    ]
    .concat();
    let other = GraphProto {
        node: vec![node("Identity", &["x"], &["e"])],
        output: vec![untyped("e")],
        ..Default::default()
    };
    let branch = [
        field(6, &body),
        unknown("in an attribute"),
        padded(1, b"then_branch"),
        vec![0xa0, 0x01, 0x85, 0x80, 0], // type 5 in three bytes
    ]
    .concat();
    let mut conditional =
        with_bodies(node("If", &["c"], &["z"]), vec![("else_branch", other)]).encode_to_vec();
    conditional.extend(field(5, &branch));
    let call = NodeProto {
        domain: Some("local".to_owned()),
        ..node("F", &["x"], &["call"])
    };
    let parts = [
        (
            "input",
            field(11, marked(&value("x", DType::F32, &[-1]), "in an input")),
        ),
        (
            "condition",
            field(11, marked(&value("c", DType::Bool, &[]), "c")),
        ),
        (
            "output y",
            padded(12, &marked(&untyped("y"), "in an output")),
        ),
        (
            "node a",
            padded(1, &marked(&node("Add", &["x", "w"], &["a"]), "in a node")),
        ),
        ("tensor w", field(5, odd_tensor("w", 1.0, "in a tensor"))),
        ("unknown of the graph", unknown("in the graph")),
        ("node z", field(1, &conditional)),
        ("output z", field(12, untyped("z").encode_to_vec())),
        ("tensor k", field(5, odd_tensor("k", 2.0, "in k"))),
        (
            "node y",
            padded(1, &marked(&node("Mul", &["a", "k"], &["y"]), "in y")),
        ),
        ("node call", padded(1, &call.encode_to_vec())),
        ("output call", field(12, untyped("call").encode_to_vec())),
        (
            "info",
            padded(13, &marked(&value("a", DType::F32, &[-1]), "in an info")),
        ),
        ("name", padded(2, b"odd")),
    ];
    let graph: Vec<u8> = parts.iter().flat_map(|p| p.1.clone()).collect();
    let function = [
        padded(
            7,
            &marked(&node("Neg", &["fx"], &["fy"]), "in a node of a function"),
        ),
        unknown("in a function"),
        field(5, "fy"),
        field(4, "fx"),
        field(9, [0x10, 17]),
        padded(10, b"local"),
        field(1, "F"),
    ]
    .concat();
    let import = padded(8, &import("local", 1).encode_to_vec());
    let mut runs = parts.to_vec();
    runs.extend([
        ("function", padded_or_plain(25, &function)),
        ("unknown of the model", unknown("in the model")),
        ("version", vec![0x08, 0x88, 0x80, 0]),
        ("import", padded(8, &[0x10, 17])),
        ("import of the function", import.clone()),
    ]);
    let bytes = [
        runs[parts.len()].1.clone(),
        unknown("in the model"),
        field(7, &graph),
        vec![0x08, 0x88, 0x80, 0],
        import,
        padded(8, &[0x10, 17]),
    ]
    .concat();
    runs.push(("body", body));
    runs.push(("node of the body", body_node));
    Odd { bytes, runs }
}

fn padded_or_plain(number: u32, payload: &[u8]) -> Vec<u8> {
    match payload.len() {
        ..128 => padded(number, payload),
        _ => field(number, payload),
    }
}

fn contains(bytes: &[u8], run: &[u8]) -> bool {
    bytes.windows(run.len()).any(|w| w == run)
}

fn read(bytes: impl Into<Bytes>) -> Model {
    let model = Model::from_bytes(bytes).unwrap();
    model.check().unwrap();
    model
}

/// Commits what `edit` records and gives the bytes back, which must read as the same graph.
fn edited(model: &mut Model, edit: impl FnOnce(&Graph, &mut crate::Emitter<'_>)) -> Vec<u8> {
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "edit");
    edit(graph, &mut out);
    let patch = out.finish();
    model.commit(patch).unwrap();
    model.check().unwrap();
    let bytes = model.to_bytes().unwrap();
    assert_eq!(read(bytes.clone()).graph().text(), model.graph().text());
    bytes
}

#[test]
fn a_model_without_edits_keeps_its_bytes() {
    let odd = odd();
    let m = read(odd.bytes.clone());
    assert_eq!(m.to_bytes().unwrap(), odd.bytes);
    assert_eq!(m.encode().unwrap().segments.len(), 1);
    for (name, run) in &odd.runs {
        assert!(contains(&odd.bytes, run), "{name}");
    }
}

#[test]
fn an_edit_changes_only_the_bytes_of_edited_messages() {
    type Edit = fn(&Graph, &mut crate::Emitter<'_>);
    let revalue: Edit = |g, out| {
        let w = find(g, "w");
        out.replace_constant(w, g.uses(w), Tensor::from_f32(&[1], &[5.0]))
            .unwrap();
    };
    let insert: Edit = |g, out| {
        let a = find(g, "a");
        let negated = out.op("Neg", &[a]);
        out.redirect(a, negated).unwrap();
    };
    let in_body: Edit = |g, out| {
        let t = producer(g, "t");
        let (k, w) = (find(g, "k"), find(g, "w"));
        let at = *g.uses(k).iter().find(|u| u.node == t).unwrap();
        out.redirect_use(k, at, w).unwrap();
    };
    let in_function: Edit = |g, out| {
        let fx = find(g, "fx");
        out.set_scope(g.value(fx).scope());
        let doubled = out.op("Add", &[fx, fx]);
        out.redirect(fx, doubled).unwrap();
    };
    let metadata_only: Edit = |_, _| {};
    let cases = [
        ("revalue w", revalue, vec!["tensor w"]),
        ("insert before y", insert, vec!["node y"]),
        (
            "redirect in a body",
            in_body,
            vec!["node z", "body", "node of the body"],
        ),
        ("insert into a function", in_function, vec!["function"]),
        ("nothing", metadata_only, vec![]),
    ];
    for (name, edit, changed) in cases {
        let odd = odd();
        let mut m = read(odd.bytes);
        let bytes = edited(&mut m, edit);
        for (run, content) in &odd.runs {
            let kept = contains(&bytes, content);
            assert_eq!(kept, !changed.contains(run), "{name}: {run}");
        }
        // What was edited keeps its own unknown fields.
        for mark in [
            "in a tensor",
            "in y",
            "in an attribute",
            "in a body",
            "in an output of a body",
            "in a node of a body",
            "in a node of a function",
            "in a function",
        ] {
            assert!(contains(&bytes, &unknown(mark)), "{name}: {mark}");
        }
    }
}

#[test]
fn declared_dimensions_of_inputs_and_outputs_change_alone() {
    use crate::graph::{Dim, Type};
    let text = "<ir_version: 8, opset_import: [\"\" : 17]> \
                g (float[n, 3] x, float[2] other) => (float[n, 3] y) <float[n, 3] inner> \
                { inner = Neg(x) y = Abs(inner) }";
    let mut m = read(Model::parse(text).unwrap().to_bytes().unwrap());
    let symbol = Dim::Symbol("n".into());
    let bytes = edited(&mut m, |g, out| {
        for name in ["x", "y", "inner"] {
            let dims = vec![symbol.clone(), Dim::Known(5)];
            out.redeclare(find(g, name), dims).unwrap();
        }
    });
    let again = read(bytes);
    let g = again.graph();
    for (name, want) in [
        ("x", Some(5)),
        ("y", Some(5)),
        ("other", Some(2)),
        ("inner", None),
    ] {
        let last = match g.value(find(g, name)).ty() {
            Some(Type::Tensor {
                shape: Some(dims), ..
            }) => dims.last().cloned(),
            _ => None,
        };
        assert_eq!(last, want.map(Dim::Known), "{name}");
    }
}

#[test]
fn a_new_payload_replaces_the_old_one_in_place() {
    let raw = |name: &str| floats(name, &[1.0, 2.0]);
    let mut typed = floats("typed", &[]);
    typed.dims = vec![2];
    typed.raw_data = None;
    typed.float_data = vec![1.0, 2.0];
    let entry = StringStringEntryProto {
        key: Some("location".to_owned()),
        value: Some("elsewhere".to_owned()),
    };
    let external = TensorProto {
        raw_data: None,
        data_location: Some(1),
        external_data: vec![entry],
        ..raw("external")
    };
    let mut attribute = AttributeProto {
        name: Some("value_floats".to_owned()),
        floats: vec![1.0, 2.0],
        doc_string: Some("kept".to_owned()),
        ..Default::default()
    };
    attribute.set_type(AttributeType::Floats);
    let mut list = node("Constant", &[], &["list"]);
    list.attribute.push(attribute);
    let constant = crate::samples::constant("constant", &Tensor::from_f32(&[2], &[1.0, 2.0]));
    let names = ["raw", "typed", "external", "constant", "list"];
    let graph = || GraphProto {
        initializer: vec![raw("raw"), typed.clone(), external.clone()],
        node: vec![
            constant.clone(),
            list.clone(),
            node("Sum", &names, &["y"]),
            node("Neg", &["raw"], &["z"]),
        ],
        output: vec![untyped("y"), untyped("z")],
        ..Default::default()
    };
    let other = Tensor::from_f32(&[3], &[7.0, 8.0, 9.0]);
    for name in names {
        let mut m = read(crate::samples::model_proto(graph()).encode_to_vec());
        let before = crate::samples::lines(&m);
        let bytes = edited(&mut m, |g, out| {
            let v = find(g, name);
            let got = out.replace_constant(v, g.uses(v), other.clone()).unwrap();
            assert_eq!(got, v, "{name}");
        });
        let m = read(bytes);
        assert_eq!(crate::samples::lines(&m), before, "{name}");
        for check in names {
            let got = m.graph().constant(find(m.graph(), check));
            let want = match check {
                _ if check == name => Some(other.clone()),
                "external" => None,
                _ => Some(Tensor::from_f32(&[2], &[1.0, 2.0])),
            };
            assert_eq!(got, want, "{name}: {check}");
        }
        if name == "list" {
            let n = m.graph().node(producer(m.graph(), "list"));
            let docs: Vec<_> = n.attributes().iter().map(|a| a.doc_string()).collect();
            assert_eq!(docs, ["kept"]);
        }
    }
}

#[test]
fn metadata_and_imports_are_added_after_their_kind() {
    let odd = odd();
    let mut m = read(odd.bytes.clone());
    m.set_metadata("posenc.a", "1");
    m.set_metadata("posenc.b", "2");
    m.set_metadata("posenc.a", "3");
    m.import_opset("com.microsoft", 1);
    m.import_opset("", 23);
    let bytes = m.to_bytes().unwrap();
    for (name, run) in &odd.runs {
        assert!(contains(&bytes, run), "{name}");
    }
    let mut again = read(bytes.clone());
    assert_eq!(again.metadata("posenc.a"), Some("3"));
    assert_eq!(again.metadata("posenc.b"), Some("2"));
    assert_eq!(again.metadata("posenc.c"), None);
    assert_eq!(again.opset(), 17);
    assert_eq!(again.opsets().get("com.microsoft"), Some(&1));
    again.set_metadata("posenc.b", "4");
    let third = read(again.to_bytes().unwrap());
    let entries: Vec<_> = third.metadata_entries().into_iter().collect();
    assert_eq!(entries, [("posenc.a", "3"), ("posenc.b", "4")]);
}

#[test]
fn a_new_initializer_raises_a_version_that_wants_it_to_be_an_input() {
    for (version, with_constant, want) in [(3, true, 4), (3, false, 3), (4, true, 4), (8, true, 8)]
    {
        let text = format!(
            "<ir_version: {version}, opset_import: [\"\" : 7]> g (float[2] x) => (float[2] y) \
             {{ y = Neg (x) }}"
        );
        let mut model = Model::parse(&text).unwrap();
        let bytes = edited(&mut model, |graph, out| {
            let x = graph.find(graph.main(), "x").unwrap();
            let y = graph.find(graph.main(), "y").unwrap();
            let two = with_constant.then(|| out.scalar("two", DType::F32, 2.0));
            let new = out.op("Mul", &[x, two.unwrap_or(x)]);
            out.redirect(y, new).unwrap();
        });
        assert_eq!(model.ir_version(), want, "{version}");
        assert_eq!(read(bytes).ir_version(), want, "{version}");
        let printed = model.text(crate::text::Weights::None).to_string();
        assert!(
            printed.contains(&format!("ir_version: {want},")),
            "{printed}"
        );
    }
}
