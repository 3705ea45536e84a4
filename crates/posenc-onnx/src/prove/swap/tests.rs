//! The proof of small models in every type, and of operators that compute scores inside: it passes
//! for the inserted encoding and fails for any other.

use posenc_ir::{DType, Model, Tensor, Use};

use super::Proof;
use crate::detect::context::Context;
use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::plan::numbers::{Init, Numbers};
use crate::plan::swap::spec::{BiasSpec, EncodingSpec, InputSpec};
use crate::prove::readback;
use crate::report::SiteCheck;
use crate::request::{Parameters, Request};
use crate::rewrite::swap::branch::swap;
use posenc_encodings::families::learned::LearnedTerm;
use posenc_encodings::families::rope::Rotary;
use posenc_encodings::families::sinusoidal::SinusoidalTerm;
use posenc_encodings::families::transformer_xl::TransformerXlTerm;
use posenc_encodings::input_term::Source;
use posenc_encodings::kind::{Kind, Layout};

/// A layer of causal attention in a type.
fn layer(s: &mut Sketch, x: &str, dtype: DType) -> String {
    let [q, k, v] = [0; 3].map(|_| headed(s, x, dtype));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let scale = s.typed(dtype, &[], [(SIZE as f64).powf(-0.5)]);
    let scores = s.op("Mul", &[&scores, &scale]);
    let later = later(s);
    let low = s.typed(dtype, &[], [-1e4]);
    let scores = s.op("Where", &[&later, &low, &scores]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    joined(s, x, &y)
}

fn headed(s: &mut Sketch, x: &str, dtype: DType) -> String {
    let wave = |i: usize| (1.7 * i as f64).sin() * 0.3;
    let w = s.typed(dtype, &[HIDDEN, HIDDEN], (0..HIDDEN * HIDDEN).map(wave));
    let y = s.op("MatMul", &[x, &w]);
    let y = s.reshape(&y, &[0, 0, HEADS as i64, SIZE as i64]);
    s.transpose(&y, &[0, 2, 1, 3])
}

fn joined(s: &mut Sketch, x: &str, y: &str) -> String {
    let y = s.transpose(y, &[0, 2, 1, 3]);
    let y = s.reshape(&y, &[0, 0, HIDDEN as i64]);
    s.op("Add", &[x, &y])
}

fn later(s: &mut Sketch) -> String {
    let at = s.range();
    let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    s.op("Greater", &[&columns, &rows])
}

/// Two layers of one form in a type.
fn model(dtype: DType, opset: i64, layer: impl Fn(&mut Sketch, &str) -> String) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let mut x = s.cast(&x, dtype);
    for _ in 0..2 {
        x = layer(&mut s, &x);
    }
    s.model(opset, &[&x])
}

fn proof(model: &Model, kind: Kind) -> Result<Proof, String> {
    let request = Request {
        to: Some(kind),
        parameters: Parameters {
            seed: Some(3),
            max_length: Some(64),
            ..Parameters::default()
        },
        ..Request::default()
    };
    let options = Options::default();
    let before = detect(model, &options);
    let done = swap(model, &before, &request, &options).map_err(|why| why.to_string())?;
    Ok(done.unwrap().proof)
}

/// How many checks of these quantities passed, and how many failed.
fn passed_and_failed(checks: &[SiteCheck], quantities: &[&str]) -> [usize; 2] {
    let own = checks.iter().filter(|c| quantities.contains(&&*c.quantity));
    let (passed, failed): (Vec<_>, Vec<_>) = own.partition(|c| c.ok);
    [passed.len(), failed.len()]
}

fn evaluated(proof: &Proof) -> Vec<SiteCheck> {
    proof.evaluate().unwrap()
}

const NUMBERS: [&str; 3] = ["scores", "values", "embeddings"];

/// The same kind with other numbers; rows of tables are shifted by one.
fn wrong(new: &mut EncodingSpec) {
    match new {
        EncodingSpec::InputTerm(spec) => match spec.term.source() {
            Source::Table(_) if spec.tensors.len() == 1 => {
                shifted(&mut spec.tensors[0], &spec.term.tensors(HIDDEN)[0]);
            }
            Source::Convolution(_) => other_start(new),
            _ => with_base(spec, 0.5),
        },
        EncodingSpec::ScoreBias(spec) => wrong_bias(spec),
        EncodingSpec::ScoreTerm(spec) if spec.tensors.len() == 2 => {
            for (table, dims) in spec.tensors.iter_mut().zip(spec.term.tensors()) {
                if let Some((table, dims)) = table.as_mut().zip(dims) {
                    shifted(table, &dims);
                }
            }
        }
        _ => other_start(new),
    }
}

fn other_start(new: &mut EncodingSpec) {
    for numbers in new.numbers() {
        *numbers = Numbers::Start(Init::Normal { std: 0.5, seed: 77 });
    }
}

/// Replaces a sinusoidal term by one of another base.
fn with_base(spec: &mut InputSpec, factor: f64) {
    let term = (&*spec.term as &dyn std::any::Any).downcast_ref::<SinusoidalTerm>();
    let mut term = term.unwrap().clone();
    term.base *= factor;
    spec.term = Box::new(term);
}

fn wrong_bias(spec: &mut BiasSpec) {
    let dims = spec.bias.tensors();
    for (table, dims) in spec.tensors.iter_mut().zip(&dims) {
        shifted(table, dims);
    }
    if dims.is_empty() {
        spec.bias = spec.bias.times(1.5);
    }
}

fn shifted(table: &mut Numbers, dims: &[usize]) {
    let mut values = table.values(dims).unwrap();
    let by = dims.get(1).map_or(0, |n| n % values.len());
    values.rotate_left(by);
    *table = Numbers::Given {
        name: "table".into(),
        tensor: std::sync::Arc::new(Tensor::from_f64(DType::F32, dims, &values)),
    };
}

#[test]
fn every_type_passes_for_its_formula_and_fails_for_another() {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let model = model(dtype, 17, |s, x| layer(s, x, dtype));
        for kind in Kind::targets().filter(|k| !matches!(k, Kind::None | Kind::Rope)) {
            let mut proof =
                proof(&model, kind).unwrap_or_else(|why| panic!("{kind} in {dtype:?}: {why}"));
            let [passed, failed] = passed_and_failed(&evaluated(&proof), &NUMBERS);
            assert!(passed > 0 && failed == 0, "{kind} in {dtype:?}");
            proof.plan.groups.iter_mut().for_each(|g| wrong(&mut g.new));
            let now = passed_and_failed(&evaluated(&proof), &NUMBERS);
            assert_eq!(now, [0, passed], "{kind} in {dtype:?}");
        }
    }
}

/// Attention of one operator, with a mask of this kind.
fn operator(s: &mut Sketch, x: &str, op: &str, mask: Option<DType>) -> String {
    let [q, k, v] = [0; 3].map(|_| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        s.op("MatMul", &[x, &w])
    });
    let heads = A::Int(HEADS as i64);
    let mask = mask.map(|dtype| {
        let later = later(s);
        let hidden = match dtype {
            DType::Bool => s.op("Not", &[&later]),
            _ => {
                let (low, zero) = (s.float(-1e9), s.float(0.0));
                s.op("Where", &[&later, &low, &zero])
            }
        };
        s.unsqueeze(&hidden, &[0, 1])
    });
    let causal = |name: &'static str| match mask {
        Some(_) => vec![],
        None => vec![(name, A::Int(1))],
    };
    let mask = mask.as_deref().unwrap_or("");
    let y = match op {
        "Attention" => {
            let mut attrs = vec![
                ("q_num_heads", heads),
                ("kv_num_heads", A::Int(HEADS as i64)),
            ];
            attrs.extend(causal("is_causal"));
            s.with(op, &[&q, &k, &v, mask], &attrs)
        }
        "ms.MultiHeadAttention" => {
            let mut attrs = vec![("num_heads", heads)];
            attrs.extend(causal("unidirectional"));
            s.with(op, &[&q, &k, &v, "", "", mask], &attrs)
        }
        _ => {
            let w = s.weights(&[HIDDEN, 3 * HIDDEN]);
            let b = s.weights(&[3 * HIDDEN]);
            let mut attrs = vec![("num_heads", heads)];
            attrs.extend(causal("unidirectional"));
            s.with(op, &[x, &w, &b, "", "", mask], &attrs)
        }
    };
    s.op("Add", &[x, &y])
}

#[test]
fn biases_of_operators_are_compared_with_their_formula() {
    let forms = [
        ("Attention", None, 23),
        ("Attention", Some(DType::F32), 23),
        ("Attention", Some(DType::Bool), 24),
        ("ms.MultiHeadAttention", None, 17),
        ("ms.MultiHeadAttention", Some(DType::F32), 17),
        ("ms.Attention", None, 17),
        ("ms.Attention", Some(DType::F32), 17),
    ];
    for (op, mask, opset) in forms {
        let model = model(DType::F32, opset, |s, x| operator(s, x, op, mask));
        let kinds = [Kind::Alibi, Kind::T5Bias, Kind::RelativeBias];
        // A mask enters alike for all kinds, so one is enough.
        let few = if mask == Some(DType::F32) { 1 } else { 3 };
        for kind in kinds.into_iter().take(few) {
            let name = format!("{kind} in {op} with {mask:?}");
            let mut proof = proof(&model, kind).unwrap_or_else(|why| panic!("{name}: {why}"));
            let checks = evaluated(&proof);
            // Two layers, and the first once more in a longer run.
            assert_eq!(passed_and_failed(&checks, &["scores"]), [3, 0], "{name}");
            let masks = if mask.is_some() { 3 } else { 0 };
            assert_eq!(passed_and_failed(&checks, &["mask"]), [masks, 0], "{name}");
            proof.plan.groups.iter_mut().for_each(|g| wrong(&mut g.new));
            assert_eq!(
                passed_and_failed(&evaluated(&proof), &["scores"]),
                [0, 3],
                "{name}"
            );
        }
    }
}

/// The proof with one input of an operator's nodes replaced in the graph with the encoding.
fn tampered(mut proof: Proof, op: &str, slot: usize, tensor: &Tensor) -> Proof {
    let graph = proof.swapped.0.graph();
    let mut out = graph.emitter(graph.main(), "test");
    // Only nodes from before the encoding was inserted.
    let old: Vec<_> = proof.bare.0.graph().nodes().map(|(id, _)| id).collect();
    let nodes = graph.nodes().filter(|(id, n)| n.is(op) && old.contains(id));
    for (id, node) in nodes {
        let old = node.input(slot).unwrap();
        let new = out.constant("other", tensor.clone());
        out.redirect_use(old, Use::new(id, slot), new).unwrap();
    }
    let patch = out.finish();
    let (model, _) = proof.swapped.0.clone().with_patch(patch).unwrap();
    let found = detect(&model, &Options::default());
    proof.swapped = (model, found);
    proof
}

/// The same layer with a sink: a column next to the keys that takes attention and gives no value.
fn with_sink(s: &mut Sketch, x: &str) -> String {
    let [q, k, v] = [0; 3].map(|_| headed(s, x, DType::F32));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let (start, three, one) = (s.ints(&[0]), s.ints(&[3]), s.ints(&[1]));
    let dims = s.op("Shape", &[&scores]);
    let dims = s.op("Slice", &[&dims, &start, &three, &start]);
    let dims = s.concat(&[&dims, &one], 0);
    let sink = s.floats(&[1, HEADS, 1, 1], (0..HEADS).map(|h| h as f64));
    let sink = s.op("Expand", &[&sink, &dims]);
    let wide = s.concat(&[&scores, &sink], 3);
    let weights = s.with("Softmax", &[&wide], &[("axis", A::Int(-1))]);
    let end = s.ints(&[-1]);
    let weights = s.op("Slice", &[&weights, &start, &end, &three]);
    let y = s.op("MatMul", &[&weights, &v]);
    joined(s, x, &y)
}

#[test]
fn a_bias_next_to_a_sink_is_measured_from_it() {
    for kind in [Kind::Alibi, Kind::T5Bias, Kind::Kerple] {
        let sink = model(DType::F32, 17, with_sink);
        let mut proof = proof(&sink, kind).unwrap_or_else(|why| panic!("{kind}: {why}"));
        let [passed, failed] = passed_and_failed(&evaluated(&proof), &["scores"]);
        assert!(passed > 0 && failed == 0, "{kind}");
        proof.plan.groups.iter_mut().for_each(|g| wrong(&mut g.new));
        let [passed, failed] = passed_and_failed(&evaluated(&proof), &["scores"]);
        assert!(passed == 0 && failed > 0, "{kind}");
    }
}

#[test]
fn unmasking_fails() {
    let no = Tensor::from_bool(&[1, 1], &[false]);
    for kind in [Kind::Alibi, Kind::T5Bias, Kind::Shaw, Kind::TransformerXl] {
        let model = model(DType::F32, 17, |s, x| layer(s, x, DType::F32));
        let proof = proof(&model, kind).unwrap();
        let [masks, failed] = passed_and_failed(&evaluated(&proof), &["mask"]);
        assert!(masks > 0 && failed == 0, "{kind}");
        let checks = evaluated(&tampered(proof, "Where", 0, &no));
        assert_eq!(passed_and_failed(&checks, &["mask"]), [0, masks], "{kind}");
        assert_eq!(
            passed_and_failed(&checks, &NUMBERS)[1],
            0,
            "{kind}: {checks:?}"
        );
    }
}

fn read_back(proof: &Proof) -> Result<(), String> {
    let context = Context {
        model: &proof.swapped.0,
        found: &proof.swapped.1,
    };
    readback::check(&context, proof).map_err(|why| why.to_string())
}

#[test]
fn reading_back_names_what_does_not_match() {
    let rotation = "the inserted rotation does not match the request";
    type Change = fn(&mut EncodingSpec);
    let cases: [(Kind, Change, &str); 5] = [
        (Kind::Rope, theta, rotation),
        (Kind::Rope, other_layout, rotation),
        (Kind::Learned, fewer_rows, "learned encoding does not match"),
        (
            Kind::Sinusoidal,
            wrong,
            "sinusoidal encoding does not match",
        ),
        (Kind::Alibi, wrong, "scores differ from the formula by"),
    ];
    let model = model(DType::F32, 17, |s, x| layer(s, x, DType::F32));
    for (kind, change, want) in cases {
        let mut proof = proof(&model, kind).unwrap();
        assert_eq!(read_back(&proof), Ok(()), "{kind}");
        for group in &mut proof.plan.groups {
            change(&mut group.new);
        }
        let why = read_back(&proof).unwrap_err();
        assert!(why.contains(want), "{kind}: {why}");
    }
    let no = Tensor::from_bool(&[1, 1], &[false]);
    let proof = proof(&model, Kind::Alibi).unwrap();
    let why = read_back(&tampered(proof, "Where", 0, &no)).unwrap_err();
    assert!(why.contains("masked keys became visible"), "{why}");
}

fn theta(new: &mut EncodingSpec) {
    change_rotation(new, |rotary| rotary.rope.theta *= 1.01);
}

fn other_layout(new: &mut EncodingSpec) {
    change_rotation(new, |rotary| {
        rotary.layout = match rotary.layout {
            Layout::Half => Layout::Interleaved,
            Layout::Interleaved => Layout::Half,
        };
    });
}

fn change_rotation(new: &mut EncodingSpec, change: impl Fn(&mut Rotary)) {
    if let EncodingSpec::Rotation(rotation) = new {
        let rotary = (&**rotation as &dyn std::any::Any).downcast_ref::<Rotary>();
        let mut rotary = *rotary.unwrap();
        change(&mut rotary);
        *rotation = Box::new(rotary);
    }
}

fn fewer_rows(new: &mut EncodingSpec) {
    if let EncodingSpec::InputTerm(spec) = new
        && let Source::Table(rows) = spec.term.source()
    {
        spec.term = Box::new(LearnedTerm {
            rows: rows - 1,
            width: None,
        });
    }
}

#[test]
fn vectors_added_to_the_values_are_compared() {
    let model = model(DType::F32, 17, |s, x| layer(s, x, DType::F32));
    let proof = proof(&model, Kind::Shaw).unwrap();
    let checks = evaluated(&proof);
    assert_eq!(
        passed_and_failed(&checks, &["values"]),
        [4, 0],
        "two groups, two runs"
    );
    let mut keyless = proof.clone();
    for group in &mut keyless.plan.groups {
        if let EncodingSpec::ScoreTerm(spec) = &mut group.new {
            shifted(spec.tensors[1].as_mut().unwrap(), &[33, SIZE]);
        }
    }
    let checks = evaluated(&keyless);
    assert_eq!(passed_and_failed(&checks, &["scores"]), [4, 0]);
    assert_eq!(passed_and_failed(&checks, &["values"]), [0, 4]);
}

#[test]
fn the_longer_run_of_projected_codes_has_affordable_work() {
    let model = model(DType::F32, 17, |s, x| layer(s, x, DType::F32));
    let mut proof = proof(&model, Kind::TransformerXl).unwrap();
    let longest = proof.longest();
    assert!(longest > 100, "{longest}");
    for group in &mut proof.plan.groups {
        if let EncodingSpec::ScoreTerm(spec) = &mut group.new {
            spec.term = Box::new(TransformerXlTerm {
                heads: HEADS,
                head_dim: SIZE,
                dim: 1 << 20,
            });
        }
    }
    assert!(proof.longest() < longest, "{}", proof.longest());
    assert_eq!(proof.lengths().len(), 1);
}
