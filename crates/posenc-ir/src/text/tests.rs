use bytes::Bytes;
use prost::Message;

use super::*;
use crate::emitter::Attr;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, StringStringEntryProto, TensorProto,
    attribute_proto::AttributeType,
};
use crate::samples::{
    self, constant, find, floats, model, node, proto, untyped, value, with_bodies,
};
use crate::tensor::Tensor;

fn attribute(name: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(ty as i32),
        ..Default::default()
    }
}

/// A node with every kind of attribute that the syntax knows.
fn attributes() -> NodeProto {
    use AttributeType as T;
    let mut n = node("Foo", &["x", "", "/h/w.1"], &["y:0"]);
    n.domain = Some("com.microsoft".to_owned());
    n.attribute = vec![
        AttributeProto {
            i: Some(i64::MIN),
            ..attribute("i", T::Int)
        },
        AttributeProto {
            f: Some(0.1),
            ..attribute("f", T::Float)
        },
        AttributeProto {
            f: Some(-f32::INFINITY),
            ..attribute("g", T::Float)
        },
        AttributeProto {
            s: Some(Bytes::from_static(b"a \"b\" \\ c")),
            ..attribute("s", T::String)
        },
        AttributeProto {
            ints: vec![1, -2],
            ..attribute("ints", T::Ints)
        },
        attribute("none", T::Ints),
        AttributeProto {
            floats: vec![1.0, f32::NAN, 1e-45],
            ..attribute("floats", T::Floats)
        },
        AttributeProto {
            strings: vec![Bytes::from_static(b"p"), Bytes::new()],
            ..attribute("strings", T::Strings)
        },
        AttributeProto {
            t: Some(proto("inner", &Tensor::from_i64(&[2], &[3, 4]))),
            ..attribute("t", T::Tensor)
        },
        AttributeProto {
            t: Some(proto("", &Tensor::from_f32(&[3, 3], &[0.5; 9]))),
            ..attribute("large", T::Tensor)
        },
        AttributeProto {
            tensors: vec![proto("", &Tensor::from_f64(DType::F64, &[], &[0.1]))],
            ..attribute("tensors", T::Tensors)
        },
        AttributeProto {
            tp: value("", DType::F32, &[2, -1]).r#type,
            ..attribute("tp", T::TypeProto)
        },
    ];
    n
}

fn rich() -> GraphProto {
    let body = |op: &str, out: &str| GraphProto {
        name: Some(format!("{op} body")),
        node: vec![node(op, &["x"], &[out])],
        output: vec![untyped(out)],
        ..Default::default()
    };
    let branches = vec![
        ("then_branch", body("Neg", "t")),
        ("else_branch", body("Abs", "e")),
    ];
    GraphProto {
        name: Some("main graph".to_owned()),
        input: vec![
            value("x", DType::F32, &[-1, 3]),
            value("c", DType::Bool, &[]),
        ],
        initializer: vec![
            floats("/h/w.1", &[1.0, 2.5]),
            floats("large", &[0.25; 9]),
            proto("half", &Tensor::from_f64(DType::F16, &[2], &[1.5, -2.0])),
        ],
        value_info: vec![value("y:0", DType::F32, &[-1, 3])],
        node: vec![
            attributes(),
            constant("float", &Tensor::from_f32(&[], &[0.5])),
            with_bodies(node("If", &["c"], &["z"]), branches),
        ],
        output: vec![value("z", DType::F32, &[-1, 3]), untyped("float")],
        ..Default::default()
    }
}

pub(super) fn rich_model() -> Model {
    let mut m = model(rich());
    m.set_metadata("posenc.edit", "a \"b\"");
    m
}

const RICH: &str = r#"# lists of tensors, graphs and types are ignored by the parser of onnx 1.23 (tensors)
# names of graphs are written differently (2 times, first "Neg body" as Neg_body)
<
  ir_version: 8,
  opset_import: ["" : 17, "com.microsoft" : 1],
  producer_name: "by hand",
  metadata_props: ["posenc.edit": "a \"b\""]
>
"main graph" (float[n1,3] x, bool c) => (float[n1,3] z, "float")
<
  float[2] "/h/w.1" = {1.0, 2.5},
  float[9] large = ["sha256": "HASH"],
  float16[2] half = {15872, 49152}, # 1.5, -2.0
  float[n1,3] "y:0"
> {
  ["y:0_node"] "y:0" = com.microsoft.Foo <i = -9223372036854775808, f = 0.1, g = -inf, s = "a \"b\" \\ c", ints = [1, -2], none : ints = [], floats = [1.0, nan, 1e-45], strings = ["p", ""], t = int64[2] {3, 4}, large = float[3,3] = ["sha256": "HASH"], tensors : tensors = [double {0.1}], tp : type_proto = float[2,n1]>(x, "", "/h/w.1")
  ["float_node"] "float" = Constant <value = float {0.5}>()
  ["z_node"] z = If(c) <then_branch = Neg_body () => (t) {
      ["t_node"] t = Neg(x)
    }, else_branch = Abs_body () => (e) {
      ["e_node"] e = Abs(x)
    }>
}
"#;

/// Digests are pinned by a test of their own.
fn without_hashes(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split("[\"sha256\": \"").enumerate() {
        match i {
            0 => out.push_str(part),
            _ => {
                let (hash, rest) = part.split_at(12);
                assert!(hash.chars().all(|c| c.is_ascii_hexdigit()), "{hash}");
                out.push_str("[\"sha256\": \"HASH");
                out.push_str(rest);
            }
        }
    }
    out
}

#[test]
fn a_model_prints_in_the_official_syntax() {
    let m = rich_model();
    assert_eq!(without_hashes(&print(&m, Weights::Hash)), RICH);
    assert_eq!(print(&m, Weights::Hash), print(&m, Weights::Hash));
}

#[test]
fn weights_are_elided_or_written_as_requested() {
    let m = model(rich());
    let cases = [
        (Weights::None, "float[9] large = [\"length\": \"36\"]"),
        (
            Weights::Full,
            "float[9] large = {0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25}",
        ),
        // sha256sum of nine times 00 00 80 3e
        (
            Weights::Hash,
            "float[9] large = [\"sha256\": \"6d7410215337\"]",
        ),
    ];
    for (weights, want) in cases {
        let text = print(&m, weights);
        assert!(text.contains(want), "{weights:?}: {text}");
        for (_, other) in cases.iter().filter(|(w, _)| *w != weights) {
            assert!(!text.contains(other), "{weights:?} prints {other}");
        }
    }
}

#[test]
fn equal_values_have_equal_hashes_however_they_are_stored() {
    let values: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let typed = TensorProto {
        float_data: values.clone(),
        raw_data: None,
        ..floats("w", &values)
    };
    let text = |w: TensorProto| {
        let graph = GraphProto {
            initializer: vec![w],
            node: vec![node("Neg", &["w"], &["y"])],
            output: vec![untyped("y")],
            ..Default::default()
        };
        model(graph).graph().text()
    };
    let raw = text(floats("w", &values));
    assert_eq!(text(typed), raw);
    let mut other = values;
    other[15] = 15.5;
    assert_ne!(text(floats("w", &other)), raw);
}

#[test]
fn external_payloads_print_as_their_location_and_are_not_read() {
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value.to_owned()),
    };
    let outside = TensorProto {
        name: Some("w".to_owned()),
        dims: vec![2],
        data_type: Some(1),
        data_location: Some(1),
        external_data: vec![
            entry("location", "no such file"),
            entry("offset", "4096"),
            entry("length", "8"),
        ],
        ..Default::default()
    };
    let graph = GraphProto {
        initializer: vec![outside],
        node: vec![node("Neg", &["w"], &["y"])],
        output: vec![untyped("y")],
        ..Default::default()
    };
    let proto = samples::model_proto(graph);
    let m = Model::from_bytes(proto.encode_to_vec()).unwrap();
    let want = r#"float[2] w = ["location": "no such file", "offset": "4096", "length": "8"]"#;
    for weights in [Weights::Hash, Weights::Full, Weights::None] {
        assert!(print(&m, weights).contains(want), "{weights:?}");
    }
}

#[test]
fn names_are_quoted_only_where_they_must_be() {
    let cases = [
        ("a_1", "a_1"),
        ("_", "_"),
        ("1a", "\"1a\""),
        ("a.b", "\"a.b\""),
        ("/a/b", "\"/a/b\""),
        ("a::b", "\"a::b\""),
        ("", "\"\""),
        ("int64", "\"int64\""),
        ("seq", "\"seq\""),
        ("Optional", "Optional"),
        ("Inf", "\"Inf\""),
        ("ä", "\"ä\""),
        ("q\"\\", "\"q\\\"\\\\\""),
        ("\u{1b}[31m\r\0", "\"\u{1b}[31m\r\0\""),
    ];
    for (own, want) in cases {
        assert_eq!(name(own), want, "{own:?}");
    }
}

#[test]
fn numbers_print_in_the_shortest_form_that_reads_back() {
    for v in [
        0.1,
        1.0,
        -0.0,
        1e-45,
        f32::MAX,
        16_777_216.0,
        1.0 / 3.0,
        1e10,
    ] {
        let text = float(v);
        assert_eq!(
            text.parse::<f32>().unwrap().to_bits(),
            v.to_bits(),
            "{text}"
        );
        // An integer would read as another kind of attribute.
        assert!(text.contains(['.', 'e']), "{text}");
    }
    assert_eq!(float(0.1), "0.1");
    assert_eq!([float(f32::NAN), float(-f32::NAN)], ["nan", "-nan"]);
    assert_eq!(double(0.1), "0.1");
    assert_ne!(double(0.1), double(f64::from(0.1f32)));
}

#[test]
fn what_the_syntax_cannot_express_is_noted_at_the_start() {
    let graph = |op: &str, name: &str| GraphProto {
        input: vec![value("x", DType::F32, &[])],
        node: vec![node(op, &["x"], &[name])],
        output: vec![untyped(name)],
        ..Default::default()
    };
    let head = |g| {
        let text = print(&model(g), Weights::None);
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(head(graph("Neg", "a/b")), "<");
    let want = "# names of operators are written differently (\"N eg\" as N_eg)";
    assert_eq!(head(graph("N eg", "y")), want);
    let want = "# control characters are shown as symbols";
    assert_eq!(head(graph("Neg", "y\u{1b}")), want);
}

#[test]
fn functions_print_after_the_graph_with_their_attributes() {
    let mut inner = node("LeakyRelu", &["fx"], &["fy"]);
    inner.attribute = vec![AttributeProto {
        ref_attr_name: Some("slope".to_owned()),
        ..attribute("alpha", AttributeType::Float)
    }];
    let function = FunctionProto {
        name: Some("Leak".to_owned()),
        domain: Some("local.nn".to_owned()),
        input: vec!["fx".to_owned()],
        output: vec!["fy".to_owned()],
        attribute: vec!["slope".to_owned()],
        attribute_proto: vec![AttributeProto {
            i: Some(1),
            ..attribute("mode", AttributeType::Int)
        }],
        node: vec![inner],
        ..Default::default()
    };
    let call = NodeProto {
        domain: Some("local.nn".to_owned()),
        ..node("Leak", &["x"], &["y"])
    };
    let mut proto = samples::model_proto(GraphProto {
        name: Some("g".to_owned()),
        input: vec![value("x", DType::F32, &[])],
        node: vec![call],
        output: vec![untyped("y")],
        ..Default::default()
    });
    proto.functions = vec![function];
    let m = Model::from_bytes(proto.encode_to_vec()).unwrap();
    let want = r#"
g (float x) => (y) {
  ["y_node"] y = local.nn.Leak(x)
}
<
  domain: "local.nn",
  opset_import: []
>
Leak <slope, mode = 1> (fx) => (fy) {
  ["fy_node"] fy = LeakyRelu <alpha : float = @slope>(fx)
}
"#;
    let text = print(&m, Weights::Hash);
    assert!(text.ends_with(want), "{text}");
}

#[test]
fn a_patch_prints_like_a_diff_before_anything_changes() {
    let graph = GraphProto {
        name: Some("g".to_owned()),
        input: vec![value("x", DType::F32, &[2])],
        initializer: vec![floats("f", &[1.0, 0.5]), floats("w", &[1.0; 10])],
        node: vec![
            node("Mul", &["x", "f"], &["angles"]),
            node("Add", &["angles", "w"], &["unread"]),
            node("Cos", &["angles"], &["cos"]),
            node("Neg", &["unread"], &["mid"]),
            node("Mul", &["cos", "mid"], &["y"]),
        ],
        output: vec![untyped("y")],
        ..Default::default()
    };
    let mut m = model(graph);
    let g = m.graph();
    let before = g.text();
    let mut out = g.emitter(g.main(), "/scale");
    let (f, w, y) = (find(g, "f"), find(g, "w"), find(g, "y"));
    let halved = Tensor::from_f32(&[2], &[0.5, 0.25]);
    out.replace_constant(f, g.uses(f), halved).unwrap();
    out.replace_constant(w, g.uses(w), Tensor::from_f32(&[10], &[2.0; 10]))
        .unwrap();
    let factor = out.scalar("factor", DType::F32, 1.5);
    let cos = find(g, "cos");
    let scaled = out.op("Mul", &[cos, factor]);
    out.redirect(cos, scaled).unwrap();
    out.redirect(find(g, "mid"), cos).unwrap();
    let cast = out.op_with("Cast", &[y], &[("to", Attr::Int(1))]);
    out.redirect(y, cast).unwrap();
    let patch = out.finish();
    let want = r#"@@ constants
- float[2] f = {1.0, 0.5}
+ float[2] f = {0.5, 0.25}
- float[10] w = ["sha256": "HASH"]
+ float[10] w = ["sha256": "HASH"]
+ float "/scale/factor_0" = {1.5}
@@ new nodes
+ "/scale/mul_0" = Mul(cos, "/scale/factor_0")
+ "/scale/cast_0" = Cast <to = 1>(y)
@@ moved uses
- y = Mul(cos, mid)
+ y = Mul("/scale/mul_0", cos)
@@ outputs
- y # of g/y_node
+ y # computed as "/scale/cast_0" in this patch
@@ nodes without a reader
- unread = Add(angles, w)
- mid = Neg(unread)
"#;
    assert_eq!(without_hashes(&patch.text(g)), want);
    assert_eq!(g.text(), before);
    m.commit(patch).unwrap();
    assert_ne!(m.graph().text(), before);
}

#[test]
fn a_graph_prints_without_names_of_nodes_and_inner_types() {
    let m = model(rich());
    let text = m.graph().text();
    assert!(text.contains("  z = If(c) <"), "{text}");
    assert!(!text.contains("z_node") && !text.contains("float[n1,3] \"y:0\""));
    assert!(print(&m, Weights::None).contains("z_node"));
}
