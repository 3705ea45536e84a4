use prost::Message;

use super::*;
use crate::proto::{AttributeProto, ModelProto, NodeProto, TensorProto};
use crate::text::Weights;

fn decoded(text: &str) -> ModelProto {
    let bytes = model::encode(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    ModelProto::decode(bytes.as_slice()).unwrap()
}

fn nodes(text: &str) -> Vec<NodeProto> {
    decoded(&format!("g (float x) => (y) {{ {text} }}"))
        .graph
        .unwrap()
        .node
}

fn attribute(text: &str) -> AttributeProto {
    nodes(&format!("y = F <{text}> (x)"))
        .remove(0)
        .attribute
        .remove(0)
}

fn tensor(text: &str) -> TensorProto {
    let graph = decoded(&format!("g () => () <{text}> {{}}")).graph.unwrap();
    graph.initializer.into_iter().next().unwrap()
}

/// What the official parser makes of lists of names.
#[test]
fn names_may_be_omitted_before_a_comma() {
    let cases: [(&str, &[&str]); 9] = [
        ("", &[]),
        ("x", &["x"]),
        ("x,", &["x"]),
        (",", &[""]),
        (",x", &["", "x"]),
        ("x,,x", &["x", "", "x"]),
        ("\"\"", &[""]),
        ("\"\", x, \"\"", &["", "x", ""]),
        ("inf, float, \"a\\\"b\\\\\"", &["inf", "float", "a\"b\\"]),
    ];
    for (text, want) in cases {
        assert_eq!(nodes(&format!("y = F({text})"))[0].input, want, "{text}");
        assert_eq!(nodes(&format!("{text} = F()"))[0].output, want, "{text}");
    }
}

#[test]
fn the_parts_of_a_node_are_read() {
    let got = nodes("[n] y, z = a.b.F:o <k = 1> (x)# c\n[\"n m\"]w = .G(y) <k = 1, l = 2> = (w)");
    let [f, g, h] = &got[..] else {
        panic!("{got:?}")
    };
    assert_eq!(
        (f.name(), f.domain(), f.op_type(), f.overload()),
        ("n", "a.b", "F", "o")
    );
    assert_eq!(
        (f.output.len(), f.input.len(), f.attribute.len()),
        (2, 1, 1)
    );
    assert_eq!((g.domain(), g.op_type(), g.attribute.len()), ("", "G", 2));
    assert_eq!((h.op_type(), h.output.len(), h.input.len()), ("", 0, 1));
}

#[test]
fn numbers_are_read_bit_by_bit() {
    let cases = [
        ("1.0", 1.0f32.to_bits()),
        ("1.", 1.0f32.to_bits()),
        ("0.1e1", 1.0f32.to_bits()),
        ("1E+5", 1e5f32.to_bits()),
        ("-0.0", 0x8000_0000),
        ("1e-45", 1),
        ("1e-50", 0),
        ("3.4028235e38", f32::MAX.to_bits()),
        ("inf", 0x7f80_0000),
        ("-Infinity", 0xff80_0000),
        ("NaN", 0x7fc0_0000),
        ("-nan", 0xffc0_0000),
    ];
    for (text, want) in cases {
        let got = attribute(&format!("a = {text}"));
        assert_eq!(got.f().to_bits(), want, "{text}");
        let got = tensor(&format!("float w = {{{text}}}"));
        assert_eq!(got.raw_data(), want.to_le_bytes(), "{text}");
    }
    assert_eq!(attribute("a : float = 16777217").f(), 16_777_216.0);
    assert_eq!(attribute("a = [1.5, 2]").floats, [1.5, 2.0]);
    assert_eq!(attribute("a = -9223372036854775808").i(), i64::MIN);
    assert_eq!(tensor("double w = {-nan}").raw_data()[7], 0xff);
    assert_eq!(tensor("float w = {-0}").raw_data(), (-0.0f32).to_le_bytes());
}

#[test]
fn integers_fill_the_bits_of_their_type() {
    let cases: [(&str, &[u8]); 12] = [
        ("int8[2] w = {-1, 127}", &[0xff, 0x7f]),
        ("uint8[2] w = {-1, 255}", &[0xff, 0xff]),
        ("bool[2] w = {0, 1}", &[0, 1]),
        ("float16[1] w = {15360}", &[0, 0x3c]),
        ("bfloat16[1] w = {65535}", &[0xff, 0xff]),
        ("uint32[1] w = {4294967295}", &[0xff; 4]),
        ("uint64[1] w = {18446744073709551615}", &[0xff; 8]),
        ("int64[0] w = {}", &[]),
        ("int4[3] w = {33, 3}", &[33, 3]),
        ("uint2[5] w = {255, 1}", &[255, 1]),
        ("float6e2m3[4] w = {1, 2, 3, 63}", &[0x81, 0x30, 0xfc]),
        ("float6e3m2[1] w = {63}", &[63]),
    ];
    for (text, want) in cases {
        assert_eq!(tensor(text).raw_data(), want, "{text}");
    }
}

#[test]
fn every_kind_of_attribute_is_read() {
    let a = attribute("a = [\"p\", \"\"]");
    assert_eq!(a.strings, ["p", ""]);
    let a = attribute("a : tensors = [float {1}, int64[1] t {2}, float \"q r\" = {3}]");
    let names: Vec<&str> = a.tensors.iter().map(|t| t.name()).collect();
    assert_eq!(names, ["", "t", "q r"]);
    let a = attribute("a = [float, seq(optional(map(int64, string[])))]");
    assert_eq!(a.type_protos.len(), 2);
    let a = attribute("a : graphs = [g () => () {}, h () => () {}]");
    assert_eq!(a.graphs.len(), 2);
    let a = attribute("a = inf2 () => () {}");
    assert_eq!(a.g.unwrap().name(), "inf2");
    let a = attribute("a = float[2] = [\"location\": \"f\", \"checksum\": \"c\"]");
    assert_eq!(a.t.unwrap().external_data.len(), 2);
    let a = attribute("a : ints = @\"b c\"");
    assert_eq!((a.ref_attr_name(), a.r#type), ("b c", Some(7)));
    assert_eq!(attribute("a = @b").r#type, None);
    assert_eq!(attribute("a : strings = []").r#type, Some(8));
}

#[test]
fn functions_and_the_head_are_read() {
    let model = decoded(
        "<ir_version: 10, opset_import: [\"\" : 20, \"l\" : 1], domain: \"d\",
          metadata_props: [\"k\": \"v\"], metadata_props: [], doc_string: \"a
b\", model_version: -3>
         \"g h\" (float x) => (y) {}
         <domain: \"l\", overload: \"o\", opset_import: []>
         f <\"a b\", c = 1, d> (float x, \"1\") => (int64[2] y) <z, seq(float) w> { y = F(x) }
         h () => () {}",
    );
    assert_eq!((model.ir_version(), model.model_version()), (10, -3));
    assert_eq!(model.doc_string(), "a\nb");
    assert_eq!(
        (model.opset_import.len(), model.metadata_props.len()),
        (2, 1)
    );
    let [f, h] = &model.functions[..] else {
        panic!("{model:?}")
    };
    assert_eq!((f.domain(), f.overload(), h.domain()), ("l", "o", ""));
    assert_eq!(f.attribute, ["a b", "d"]);
    assert_eq!(
        (f.input.clone(), f.output.len()),
        (vec!["x".to_owned(), "1".to_owned()], 1)
    );
    assert_eq!(
        (f.attribute_proto.len(), f.value_info.len(), f.node.len()),
        (1, 4, 1)
    );
}

#[test]
fn errors_are_one_sentence_with_line_and_column() {
    let cases = [
        ("", 1, 1, "a name"),
        ("# g\n", 2, 1, "a name"),
        ("g", 1, 2, "'=>'"),
        ("g () = > () {}", 1, 6, "'=>'"),
        ("g () => () {\n y = F(x)\n", 3, 1, "'='"),
        ("g () => () {} g", 1, 16, "'('"),
        ("\u{e4}\u{e4}", 1, 1, "a name"),
        ("\"\u{e4}\u{e4}\" x", 1, 6, "'=>'"),
        ("<ir_version: 1.0> g () => () {}", 1, 14, "integer"),
        (
            "<ir_version: 9223372036854775808> g () => () {}",
            1,
            14,
            "64 bits",
        ),
        ("<ir_version: 1,> g () => () {}", 1, 16, "a name"),
        ("<> g () => () {}", 1, 2, "a name"),
        ("<foo: 1> g () => () {}", 1, 2, "foo"),
        ("<overload: \"a\"> g () => () {}", 1, 2, "overload"),
        ("<producer_name: a> g () => () {}", 1, 17, "string"),
        ("<opset_import: [\"\" : 1,]> g () => () {}", 1, 24, "string"),
        ("g () => () {} f <a : float> () => () {}", 1, 27, "'='"),
        ("g () => () {} f () => () <float z = {1}> {}", 1, 35, "'>'"),
        ("g (x,) => () {}", 1, 6, "a name"),
        ("g () => (float y = {1}) {}", 1, 18, "')'"),
        ("g () => () {} \u{0}", 1, 15, "a name"),
        ("g () => () <\"open> {}", 1, 13, "not terminated"),
        ("g () => () <\"open\\", 1, 13, "not terminated"),
    ];
    for (text, line, column, what) in cases {
        let error = Model::parse(text).unwrap_err().to_string();
        let place = format!("line {line}, column {column}: ");
        assert!(error.starts_with(&place), "{text:?}: {error}");
        assert!(error.contains(what), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn inconsistent_attributes_are_refused() {
    let cases = [
        "a = +1",
        "a = - 1",
        "a = .5",
        "a = 1e",
        "a = 1e+",
        "a = 1e400",
        "a = 3.4028236e38",
        "a = 9223372036854775808",
        "a : int = 1.0",
        "a = [1, 2.0]",
        "a = []",
        "a : ints = 1",
        "a : int = []",
        "a : ints = [1.5]",
        "a : floats = [\"x\"]",
        "a = [1, \"x\"]",
        "a = \"g\" () => () {}",
        "\"a b\" = 1",
        "a = 1,",
        "",
        "a = @",
        "a = [@b]",
        "a = [[1]]",
        "a : undefined = @b",
        "a : sparse_tensor = 1",
        "a = float{",
        "a = 1 2",
        "a = true",
        "a = nan_g () => () {}",
        "a = seq () => () {}",
        "a = seq()",
        "a = float[2,]",
        "a = map(float[2], float)",
        "a = sparse_tensor(seq(float))",
        "a = opaque(a, b.c)",
        "a = opaque(a,)",
        "a = float[1.5]",
        "a = float[2] {1}",
        "a = float[2] {1, 2, 3}",
        "a = float[N] {1}",
        "a = float[] {1}",
        "a = float[-1] {1}",
        "a = seq(float) {1}",
        "a = float {}",
        "a = float = ",
        "a = float[2] t",
        "a = float t = 1",
        "a = string {1}",
        "a = float {\"1\"}",
        "a = float {1,}",
        "a = float {0x1}",
        "a = float {1.5.2}",
        "a = uint8 {256}",
        "a = int8 {-129}",
        "a = bool {1.0}",
        "a = float16 {70000}",
        "a = float6e2m3 {64}",
        "a = int4[3] {1, 2, 3}",
        "a = int64 {9223372036854775808000}",
        "a = double {1e400}",
        "a = float[99999999999999999999] {}",
        "a = complex64 {1}",
        "a = float[9223372036854775807,9223372036854775807] {}",
        "a = float[2] = []",
    ];
    for text in cases {
        let text = format!("g (float x) => (y) {{ y = F <{text}> (x) }}");
        let error = Model::parse(&text).map(drop).expect_err(&text).to_string();
        assert!(error.starts_with("line 1, column "), "{text}: {error}");
    }
    // The same text with a consistent attribute is read.
    assert!(Model::parse("g (float x) => (y) { y = F <a = 1> (x) }").is_ok());
}

#[test]
fn a_text_with_elided_weights_is_refused() {
    let text = "g () => (y) < float[9] w = [\"sha256\": \"6d7410215337\"] > { y = F(w) }";
    let error = Model::parse(text).unwrap_err().to_string();
    assert!(
        error.contains("the values of w are elided; write the text with full weights"),
        "{error}"
    );
}

#[test]
fn nesting_is_bounded_and_does_not_overflow_the_stack() {
    let graphs = |n: usize| {
        let open = "y = F() <a = g () => () {".repeat(n);
        format!("g () => () {{ {open} {} }}", "}>".repeat(n))
    };
    assert!(model::encode(&graphs(crate::graph::read::MAX_DEPTH)).is_ok());
    let cases = [
        ("graphs", graphs(crate::graph::read::MAX_DEPTH + 1)),
        ("graphs", graphs(100_000)),
        (
            "types",
            format!("g ({} x) => () {{}}", "seq(".repeat(100_000)),
        ),
        (
            "types",
            format!("g ({} x) => () {{}}", "map(int64, ".repeat(66)),
        ),
    ];
    for (what, text) in cases {
        let error = Model::parse(&text).unwrap_err().to_string();
        assert!(
            error.contains("nested more than 64 deep"),
            "{what}: {error}"
        );
    }
}

#[test]
fn truncated_and_changed_texts_do_not_panic() {
    let text = crate::text::print(&crate::text::tests::rich_model(), Weights::Full);
    assert!(Model::parse(&text).is_ok());
    let bounds: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
    let mut refused = 0;
    for at in &bounds {
        refused += usize::from(Model::parse(&text[..*at]).is_err());
        for other in ["\"", "{", "<", "\\", "0", "\u{e4}", "", "\0"] {
            let len = text[*at..].chars().next().map_or(0, char::len_utf8);
            let changed = [&text[..*at], other, &text[at + len..]].concat();
            refused += usize::from(Model::parse(&changed).is_err());
        }
    }
    assert!(
        refused > bounds.len(),
        "{refused} of {} refused",
        bounds.len() * 9
    );
}
