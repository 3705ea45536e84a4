//! Small models, written as text.

use posenc_ir::diff::{Aspect, Delta, Part};
use posenc_ir::{Diff, Model};

const BEFORE: &str = r#"
<ir_version: 10, opset_import: ["" : 20, "l" : 1], metadata_props: ["k": "v"]>
g (float[2] x, bool c) => (float[2] y, float[2] z)
<float[2] w = {1.0, 2.0}, float[2] v = {3.0, 4.0}>
{
  a = Mul(x, w)
  b = Add(a, v)
  y = If (c) <then_branch = t () => (p) { p0 = Neg(b) p = Abs(p0) },
              else_branch = e () => (q) { q = Exp(b) }>
  z = l.F <k = 1> (a)
}
<domain: "l", opset_import: ["" : 20]>
F <k> (i) => (o) { h = Sin(i) o = Cos(h) }
"#;

fn between(a: &str, b: &str) -> Diff {
    let [a, b] = [a, b].map(|t| Model::parse(t).unwrap_or_else(|e| panic!("{e}\n{t}")));
    Diff::between(&a, &b).unwrap()
}

fn changed(from: &str, to: &str) -> String {
    assert!(BEFORE.contains(from), "{from}");
    BEFORE.replace(from, to)
}

/// `+`, `-` and `~` with the text, for every difference.
fn lines(diff: &Diff) -> Vec<String> {
    let of = |kind: &str, delta: &Delta<Part>| -> Vec<String> {
        let added = delta.added.iter().map(|p| format!("{kind} + {}", p.text));
        let removed = delta.removed.iter().map(|p| format!("{kind} - {}", p.text));
        let changed = delta.changed.iter().map(|c| {
            let what: Vec<&str> = c.what.iter().map(|w| w.word()).collect();
            format!("{kind} ~ {} {}", what.join(" "), c.b.text)
        });
        added.chain(removed).chain(changed).collect()
    };
    let parts = [
        of("node", &diff.nodes),
        of("initializer", &diff.initializers),
        of("input", &diff.inputs),
        of("output", &diff.outputs),
        of("function", &diff.functions),
    ];
    let entries = [&diff.order, &diff.opsets, &diff.metadata, &diff.model];
    let entries = entries.into_iter().flatten();
    let entries = entries.map(|e| format!("{}: {:?} {:?}", e.key, e.a.as_deref(), e.b.as_deref()));
    parts.into_iter().flatten().chain(entries).collect()
}

#[test]
fn names_and_orders_do_not_count() {
    let same = [
        BEFORE.to_owned(),
        changed("g (float", "other (float"),
        changed(
            "<ir_version: 10,",
            "<producer_name: \"p\", producer_version: \"1\", domain: \"d\", model_version: 7, \
             doc_string: \"said\", ir_version: 10,",
        ),
        changed("a = Mul(x, w)", "[n] a = Mul(x, w)"),
        BEFORE
            .replace("a)", "a1)")
            .replace("a = Mul", "a1 = Mul")
            .replace("Add(a,", "Add(a1,"),
        BEFORE
            .replace("p0", "inner")
            .replace("t () => (p)", "u () => (p)"),
        BEFORE
            .replace(" h ", " m ")
            .replace("(h)", "(m)")
            .replace("(i)", "(j)"),
        changed(
            "<float[2] w = {1.0, 2.0}, float[2] v = {3.0, 4.0}>",
            "<float[2] v = {3.0, 4.0}, float[2] w = {1.0, 2.0}>",
        ),
    ];
    for text in same {
        assert_eq!(lines(&between(BEFORE, &text)), [""; 0], "{text}");
    }
}

#[test]
fn one_change_is_one_difference() {
    let cases: [(&str, &str, &[&str]); 17] = [
        (
            "Abs(p0)",
            "Ceil(p0)",
            &["node + p = Ceil(p0)", "node - p = Abs(p0)"],
        ),
        (
            "p0 = Neg(b) p = Abs(p0)",
            "p = Abs(b)",
            &["node - p0 = Neg(b)"],
        ),
        ("q = Exp(b)", "q = Exp(a)", &["node ~ inputs q = Exp(a)"]),
        (
            "h = Sin(i)",
            "h = Sin <k = 2> (i)",
            &["node ~ attributes h = Sin <k = 2>(i)"],
        ),
        (
            "o = Cos(h)",
            "r = Tan(h) o = Cos(r)",
            &["node + r = Tan(h)"],
        ),
        ("k = 1", "k = 2", &["node ~ attributes z = l.F <k = 2>(a)"]),
        ("Mul(x, w)", "Mul(w, x)", &["node ~ inputs a = Mul(w, x)"]),
        (
            "a = Mul(x, w)",
            "n = Neg(x) a = Mul(n, w)",
            &["node + n = Neg(x)"],
        ),
        (
            "{3.0, 4.0}",
            "{3.0, -4.0}",
            &["initializer ~ value float[2] v = {3.0, -4.0}"],
        ),
        (
            "float[2] v = {3.0, 4.0}",
            "float[1] v = {3.0}",
            &["initializer ~ type value float[1] v = {3.0}"],
        ),
        ("float[2] x", "float[3] x", &["input ~ type float[3] x"]),
        ("bool c)", "bool c, bool d)", &["input + bool d"]),
        ("float[2] z)", "float[?] z)", &["output ~ type float[?] z"]),
        (", float[2] z)", ")", &["output - float[2] z"]),
        (
            "\"\" : 20, \"l\"",
            "\"\" : 21, \"l\"",
            &[": Some(\"20\") Some(\"21\")"],
        ),
        ("[\"k\": \"v\"]", "[]", &["k: Some(\"v\") None"]),
        (
            "ir_version: 10",
            "ir_version: 11",
            &["ir_version: Some(\"10\") Some(\"11\")"],
        ),
    ];
    for (from, to, want) in cases {
        assert_eq!(
            lines(&between(BEFORE, &changed(from, to))),
            want,
            "{from} -> {to}"
        );
    }
}

#[test]
fn functions_count_with_their_heads() {
    let found = between(BEFORE, &changed("F <k> (i)", "F <k, m> (i)"));
    assert_eq!(found.functions.changed.len(), 1);
    assert_eq!(found.functions.changed[0].what, [Aspect::Attributes]);
    let two = format!("{BEFORE}<domain: \"l\", opset_import: []> G (i) => (o) {{ o = Sin(i) }}");
    let found = between(BEFORE, &two);
    assert_eq!((found.functions.added.len(), found.nodes.len()), (1, 0));
    assert!(between(&two, &two).is_empty());
}

#[test]
fn the_second_text_has_the_names_and_the_order_of_the_first() {
    let after = r#"
<ir_version: 10, opset_import: ["" : 20, "l" : 1], metadata_props: ["k": "v"]>
h (float[2] x, bool c) => (float[2] y, float[2] z)
<float[2] two = {3.0, 4.0}, float[2] one = {1.0, 2.0}>
{
  m = Mul(x, one)
  z = l.F <k = 1> (m)
  n = Tanh(m)
  s = Add(n, two)
  y = If (c) <else_branch = e () => (f) { f = Exp(s) },
              then_branch = d () => (g) { k = Neg(s) g = Abs(k) }>
}
<domain: "l", opset_import: ["" : 20]>
F <k> (in) => (out) { v = Sin(in) out = Cos(v) }
"#;
    let [a, b] = [BEFORE, after].map(|t| Model::parse(t).unwrap());
    let found = Diff::between(&a, &b).unwrap();
    assert_eq!(lines(&found), ["node + n = Tanh(m)"]);
    let [before, after] = found.texts(&a, &b);
    let missing = |x: &str, y: &str| -> Vec<String> {
        let lines = x.lines().filter(|l| !y.lines().any(|m| m == *l));
        lines.map(|l| l.trim().to_owned()).collect()
    };
    assert_eq!(missing(&after, &before), ["n = Tanh(a)", "b = Add(n, v)"]);
    assert_eq!(missing(&before, &after), ["b = Add(a, v)"]);
}

#[test]
fn the_order_of_inputs_and_outputs_counts_and_nothing_else_differs_by_it() {
    let model = |inputs: &str, outputs: &str| {
        format!(
            "<ir_version: 10, opset_import: [\"\" : 20]> g ({inputs}) => ({outputs}) \
             {{ y = Sub(s, t) z = Neg(s) n = Sub(d, e) }}"
        )
    };
    let inputs = "float[2] s, float[2] t, float[2] d = {1, 2}, float[2] e = {3, 4}";
    let outputs = "float[2] y, float[2] z";
    let before = model(inputs, outputs);
    let (swapped_in, swapped_out) = (
        "inputs: Some(\"s, t\") Some(\"t, s\")",
        "outputs: Some(\"y, z\") Some(\"z, y\")",
    );
    let cases: [(&str, &str, &[&str]); 9] = [
        (inputs, outputs, &[]),
        (inputs, "float[2] z, float[2] y", &[swapped_out]),
        (
            "float[2] t, float[2] s, float[2] d = {1, 2}, float[2] e = {3, 4}",
            outputs,
            &[swapped_in],
        ),
        (
            "float[2] t, float[2] d = {1, 2}, float[2] s, float[2] e = {3, 4}",
            "float[2] z, float[2] y",
            &[swapped_in, swapped_out],
        ),
        (
            "float[2] e = {3, 4}, float[2] s, float[2] d = {1, 2}, float[2] t",
            outputs,
            &[],
        ),
        (inputs, "float[2] z", &["output - float[2] y"]),
        (
            inputs,
            "float[2] n, float[2] y, float[2] z",
            &["output + float[2] n"],
        ),
        (
            inputs,
            "float[2] y, float[2] n, float[2] z",
            &["output + float[2] n"],
        ),
        (
            inputs,
            "float[2] z, float[2] y, float[2] n",
            &["output + float[2] n", swapped_out],
        ),
    ];
    for (inputs, outputs, want) in cases {
        let after = model(inputs, outputs);
        assert_eq!(lines(&between(&before, &after)), want, "{after}");
        let back = between(&after, &before);
        assert_eq!(lines(&back).len(), want.len(), "{after}, back");
        assert_eq!(
            back.order.len(),
            between(&before, &after).order.len(),
            "{after}"
        );
    }
}

#[test]
fn a_constant_that_was_edited_equals_the_one_that_is_written() {
    for constant in ["value = float[2] {1.0, 2.0}", "value_floats = [1.0, 2.0]"] {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\" : 20]>\n\
             g (float[2] x) => (float[2] y) {{ c = Constant <{constant}> () y = Mul(x, c) }}"
        );
        let before = Model::parse(&text).unwrap();
        let mut edited = before.clone();
        let graph = edited.graph();
        let value = graph.find(graph.main(), "c").unwrap();
        let mut out = graph.emitter(graph.main(), "made");
        let tensor = posenc_ir::Tensor::from_f32(&[2], &[1.0, 3.0]);
        out.replace_constant(value, graph.uses(value), tensor)
            .unwrap();
        let patch = out.finish();
        edited.commit(patch).unwrap();
        let written = Model::from_bytes(edited.to_bytes().unwrap()).unwrap();
        assert!(
            Diff::between(&edited, &written).unwrap().is_empty(),
            "{constant}"
        );
        assert!(
            !Diff::between(&before, &edited).unwrap().is_empty(),
            "{constant}"
        );
    }
}
