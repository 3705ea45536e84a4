//! Rotations within operators of attention, and rotations in another form.

use posenc_ir::{DType, Model};

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::prove::testing::fixture;
use crate::request::{Request, Target};
use crate::rewrite::rewrite;
use posenc_encodings::inferred::Inferred;
use posenc_encodings::kind::{Form, Kind, Layout};

/// An operator of attention that projects and rotates, and does not say how many slots of its buffer are in use.
fn projecting() -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let w = s.weights(&[HIDDEN, 3 * HIDDEN]);
    let attributes = [
        ("num_heads", A::Int(HEADS as i64)),
        ("do_rotary", A::Int(1)),
        ("past_present_share_buffer", A::Int(1)),
    ];
    let y = s.with("ms.Attention", &[&x, &w], &attributes);
    s.model(17, &[&y])
}

#[test]
fn an_operator_whose_rotation_is_not_read_is_named() {
    let model = projecting();
    let found = detect(&model, &Options::default());
    assert_eq!(found.not_rotary.len(), 1);
    let with_form = |form| Request {
        form: Some(form),
        ..Request::default()
    };
    let removed = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    for request in [with_form(Form::Ops), with_form(Form::Onnx), removed] {
        let why = rewrite(&mut model.clone(), &request)
            .unwrap_err()
            .to_string();
        let is_named = why.contains("not read");
        assert!(is_named, "{why}");
    }
}

#[test]
fn a_target_covers_the_layers_that_are_not_chosen() {
    let mut model = fixture("llama/dynamo23");
    let mut request = Request {
        target: Some(Target::Portable),
        ..Request::default()
    };
    request.layers = Some("0".parse().unwrap());
    let done = rewrite(&mut model, &request).unwrap();
    assert_eq!(done.report.edits.len(), 2);
    let is_told = |told: &Inferred| told.name == "form";
    assert!(done.report.inferred.iter().any(is_told));
    // What is removed has no form.
    request.to = Some(Kind::None);
    request.layers = None;
    let done = rewrite(&mut fixture("llama/dynamo23"), &request).unwrap();
    assert!(!done.report.inferred.iter().any(is_told));
}

#[test]
fn cosines_of_one_sequence_are_repeated_where_rotations_are_kept() {
    let of = |change: fn(&mut Request)| {
        let mut request = Request::default();
        change(&mut request);
        request
    };
    for request in [
        of(|request| request.form = Some(Form::Onnx)),
        of(|request| request.target = Some(Target::Tract)),
        of(|request| request.parameters.layout = Some(Layout::Interleaved)),
    ] {
        let mut model = fixture("llama/dynamo23");
        let done = rewrite(&mut model, &request).unwrap();
        let is_told = |told: &String| told.contains("repeated for every sequence");
        assert!(done.report.warnings.iter().any(is_told), "{request:?}");
        let sites = done.report.edits.iter().filter(|edit| edit.nodes_added > 0);
        assert_eq!(sites.count(), 1, "{request:?}");
        assert!(has_expanded_tables(&model), "{request:?}");
        // A second time, nothing is left to repeat.
        let again = rewrite(&mut model, &request).unwrap();
        assert!(again.report.edits.is_empty(), "{request:?}");
    }
}

/// Whether every standard operator that rotates reads cosines and sines that were repeated.
fn has_expanded_tables(model: &Model) -> bool {
    let graph = model.graph();
    let own = graph.nodes().filter(|(_, node)| node.is("RotaryEmbedding"));
    let mut tables = own.flat_map(|(_, node)| [node.input(1), node.input(2)]);
    tables.all(|table| {
        let maker = table.and_then(|table| graph.producer(table));
        maker.is_some_and(|(id, _)| graph.node(id).is("Expand"))
    })
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

/// What acts within a rotation beside cosines and sines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// The result is multiplied with the mask.
    Mask,
    /// The first positions alone are rotated.
    Condition,
    /// Products are larger for the larger positions.
    Scale,
}

/// Attention with rotated queries and keys.
fn rotated(beside: Beside) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let mask = s.input("attention_mask", DType::I64, &["batch", "sequence"]);
    let positions = s.input("position_ids", DType::I64, &["batch", "sequence"]);
    let half = SIZE / 2;
    let frequency = |pair: usize| 10_000f64.powf(-(pair as f64) / half as f64);
    let frequencies = s.floats(&[1, 1, half], (0..half).map(frequency));
    let column = |s: &mut Sketch, numbers: &str| {
        let numbers = s.cast(numbers, DType::F32);
        s.unsqueeze(&numbers, &[1, 3])
    };
    let at = s.cast(&positions, DType::F32);
    let at = s.unsqueeze(&at, &[2]);
    let angles = s.op("Mul", &[&at, &frequencies]);
    let [cos, sin] = ["Cos", "Sin"].map(|wave| {
        let wave = s.op(wave, &[&angles]);
        let wave = s.concat(&[&wave, &wave], 2);
        s.unsqueeze(&wave, &[1])
    });
    let many = s.int(100);
    let is_late = s.op("Greater", &[&positions, &many]);
    let [mask, late] = [mask, is_late].map(|numbers| column(&mut s, &numbers));
    let rotate = |s: &mut Sketch, x: &str| {
        let halves = [[0, half as i64, 1], [half as i64, SIZE as i64, 1]];
        let [first, second] = halves.map(|range| s.slice(x, 3, range));
        let turned = s.op("Neg", &[&second]);
        let turned = s.concat(&[&turned, &first], 3);
        let one = s.float(1.0);
        let [mut left, mut right] = [s.op("Mul", &[x, &cos]), s.op("Mul", &[&turned, &sin])];
        if beside == Beside::Scale {
            let scale = s.op("Add", &[&late, &one]);
            [left, right] = [left, right].map(|part| s.op("Mul", &[&part, &scale]));
        }
        if beside == Beside::Mask {
            [left, right] = [left, right].map(|part| s.op("Mul", &[&part, &mask]));
        }
        if beside == Beside::Condition {
            let zero = s.float(0.0);
            let is_late = s.cast(&late, DType::Bool);
            left = s.op("Where", &[&is_late, x, &left]);
            right = s.op("Where", &[&is_late, &zero, &right]);
        }
        s.op("Add", &[&left, &right])
    };
    let [q, k] = [(); 2].map(|()| {
        let heads = s.headed(&x);
        rotate(&mut s, &heads)
    });
    let v = s.headed(&x);
    let y = s.weighted(&q, &k, &v);
    s.model(17, &[&y])
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
        ("llama/torchscript", &[Form::Contrib, Form::Onnx]),
        ("gptj/dynamo", &[Form::Contrib, Form::Onnx]),
    ] {
        for form in forms {
            let made = reformed(fixture(name), *form).expect(name);
            assert_eq!(made, [*form; 2], "{name}");
        }
    }
}

#[test]
fn what_acts_within_a_rotation_is_not_dropped() {
    use Beside::{Condition, Mask, Nothing, Scale};
    assert_eq!(
        reformed(rotated(Nothing), Form::Contrib),
        Ok(vec![Form::Contrib])
    );
    for beside in [Mask, Condition, Scale] {
        let made = reformed(rotated(beside), Form::Contrib);
        let is_refused = made
            .as_ref()
            .is_err_and(|why| why.contains("it depends on"));
        assert!(is_refused, "{beside:?}: {made:?}");
    }
    // Without a rotation, neither which positions are rotated nor how far matters.
    for (beside, says) in [
        (Nothing, None),
        (Condition, None),
        (Mask, Some("no position")),
    ] {
        let request = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        let why = rewrite(&mut rotated(beside), &request).err();
        let why = why.map(|why| why.to_string());
        let is_told = match (&why, says) {
            (Some(why), Some(says)) => why.contains(says),
            (why, says) => why.is_none() && says.is_none(),
        };
        assert!(is_told, "{beside:?}: {why:?}");
    }
}

#[test]
fn tables_of_another_form_are_taken_back() {
    let mut model = rotated(Beside::Nothing);
    let picks = |model: &Model| {
        let all = model.graph().nodes();
        all.filter(|(_, node)| node.is("Gather")).count()
    };
    let before = picks(&model);
    let request = |form| Request {
        form: Some(form),
        ..Request::default()
    };
    rewrite(&mut model, &request(Form::Contrib)).unwrap();
    rewrite(&mut model, &request(Form::Ops)).unwrap();
    // Rows of tables are picked no more.
    assert_eq!(picks(&model), before);
    assert_eq!(reformed(model, Form::Contrib), Ok(vec![Form::Contrib]));
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
        (fixture("bloom/dynamo"), Form::Contrib, "only rotations"),
        (beside(), Form::Ops, "rotates no queries or keys"),
    ];
    for (model, form, says) in cases {
        let why = reformed(model, form).unwrap_err();
        assert!(why.contains(says), "{form}: {why}");
    }
}
