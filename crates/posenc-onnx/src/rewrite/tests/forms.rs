//! Rotations within operators of attention, and rotations in another form.

use posenc_ir::{DType, Model};

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::prove::testing::fixture;
use crate::request::{LawName, Request};
use crate::rewrite::rewrite;
use posenc_encodings::kind::Form;

/// Rows of the tables.
const ROWS: usize = 256;

/// Grouped queries that the operator rotates by rows of tables.
fn grouped() -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let mask = s.input("attention_mask", DType::I64, &["batch", "total"]);
    let (axis, one) = (s.ints(&[1]), s.int(1));
    let all = s.with("ReduceSum", &[&mask, &axis], &[("keepdims", A::Int(0))]);
    let last = s.op("Sub", &[&all, &one]);
    let shape = s.op("Shape", &[&mask]);
    let total = s.gather(&shape, &one, 0);
    let [last, total] = [last, total].map(|n| s.cast(&n, DType::I32));
    let [q, k, v] = [0; 3].map(|_| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        s.op("MatMul", &[&x, &w])
    });
    let (heads, size) = (HEADS.to_string(), SIZE.to_string());
    let [key, value] = ["key", "value"].map(|name| {
        let name = format!("past_key_values.0.{name}");
        s.input(&name, DType::F32, &["batch", &heads, "past", &size])
    });
    let half = SIZE / 2;
    let [cos, sin] = [f64::cos, f64::sin].map(|wave: fn(f64) -> f64| {
        let angle = move |i: usize| {
            let pair = (i % half) as f64;
            (i / half) as f64 * 10_000f64.powf(-pair / half as f64)
        };
        s.floats(&[ROWS, half], (0..ROWS * half).map(move |i| wave(angle(i))))
    });
    let heads = HEADS as i64;
    let made = s.many(
        "ms.GroupQueryAttention",
        &[&q, &k, &v, &key, &value, &last, &total, &cos, &sin],
        &[
            ("num_heads", A::Int(heads)),
            ("kv_num_heads", A::Int(heads)),
            ("do_rotary", A::Int(1)),
        ],
        3,
    );
    s.model(17, &[&made[0], &made[1], &made[2]])
}

/// The last length before another choice of frequencies, after a rescale.
fn switched(law: LawName) -> Result<Option<usize>, String> {
    let mut request = Request {
        scale: Some(law.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(4.0);
    request.parameters.original_length = Some(64);
    let mut model = grouped();
    let done = rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    let [site] = &done.found.rotary[..] else {
        return Err(format!("{} rotations", done.found.rotary.len()));
    };
    assert_eq!(site.form, Form::Contrib);
    Ok(site.switch.as_ref().map(|switch| switch.original_length))
}

#[test]
fn tables_of_an_operator_are_chosen_by_the_length() {
    assert_eq!(switched(LawName::Dynamic), Ok(Some(64)));
    assert_eq!(switched(LawName::Yarn), Ok(None));
}

/// A rotation that is an output, beside attention.
fn beside() -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let half = (SIZE / 2).to_string();
    let [cos, sin] =
        ["cos", "sin"].map(|name| s.input(name, DType::F32, &["batch", "sequence", &half]));
    let q = s.headed(&x);
    let q = s.op("RotaryEmbedding", &[&q, &cos, &sin]);
    let y = s.attends(&x, &x);
    s.model(23, &[&y, &q])
}

/// What a request for a form makes of a model: the forms of its rotations.
fn reformed(mut model: Model, form: Form) -> Result<Vec<Form>, String> {
    let mut request = Request {
        form: Some(form),
        ..Request::default()
    };
    request.allowances.allow_unread = true;
    rewrite(&mut model, &request).map_err(|why| why.to_string())?;
    let found = detect(&model, &Options::default());
    Ok(found.rotary.iter().map(|site| site.form).collect())
}

#[test]
fn rotations_get_the_form_that_is_asked_for() {
    for (name, forms) in [
        ("llama/dynamo23", &[Form::Ops, Form::Contrib][..]),
        ("llama/torchscript", &[Form::Contrib]),
        ("gptj/dynamo", &[Form::Contrib]),
    ] {
        for form in forms {
            let made = reformed(fixture(name), *form).expect(name);
            assert_eq!(made, [*form; 2], "{name}");
        }
    }
}

#[test]
fn a_form_that_is_there_is_no_change() {
    let mut model = fixture("llama/dynamo");
    let before = model.to_bytes();
    let request = Request {
        form: Some(Form::Ops),
        ..Request::default()
    };
    let done = rewrite(&mut model, &request).unwrap();
    assert!(done.report.edits.is_empty());
    assert_eq!(model.to_bytes().ok(), before.ok());
}

#[test]
fn what_cannot_have_another_form_is_named() {
    let cases = [
        (grouped(), Form::Ops, "rotates within itself"),
        (grouped(), Form::Onnx, "from opset 23 on"),
        (fixture("llama/torchscript"), Form::Onnx, "from opset 23 on"),
        (fixture("bloom/dynamo"), Form::Contrib, "only rotations"),
        (beside(), Form::Ops, "rotates no queries or keys"),
    ];
    for (model, form, says) in cases {
        let why = reformed(model, form).unwrap_err();
        assert!(why.contains(says), "{form}: {why}");
    }
}
