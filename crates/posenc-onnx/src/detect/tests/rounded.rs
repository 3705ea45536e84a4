//! Sines that are stored in fewer digits than their type has.

use super::*;
use crate::detect::finding::Encoding;
use crate::report::Guarantee;
use crate::rewrite::rewrite;
use posenc_encodings::kind::{Form, Kind};
use posenc_ir::{Node, Tensor};

/// What a table of sines and cosines reads as, whose numbers are changed.
fn read(change: impl Fn(f64) -> f64) -> Vec<Kind> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let cells = (0..64).flat_map(|p| {
        (0..HIDDEN).map(move |j| {
            let angle = f64::from(p) * 10000_f64.powf(-((j / 2 * 2) as f64) / HIDDEN as f64);
            if j % 2 == 0 { angle.sin() } else { angle.cos() }
        })
    });
    let table = s.floats(&[64, HIDDEN], cells.map(change));
    let at = s.range();
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let y = attend(&mut s, &q, &k, &v);
    let y = s.merged(&y);
    let all = found(&s.model(17, &[&y])).findings;
    all.iter().map(|f| Encoding::kind(&f.encoding)).collect()
}

fn rounded(dtype: DType) -> impl Fn(f64) -> f64 {
    move |v| Tensor::from_f64(dtype, &[1], &[v]).get_f64(0).unwrap()
}

#[test]
fn sines_that_were_rounded_to_half_precision_are_read() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        assert_eq!(read(rounded(dtype)), [Kind::Sinusoidal], "{dtype}");
    }
}

#[test]
fn sines_that_differ_by_more_than_their_digits_are_learned() {
    let coarse = |v: f64| (v * 128.0).round() / 128.0;
    let near = |v: f64| v + 2e-3 * (1e4 * v).sin();
    let moved = |v: f64| rounded(DType::BF16)(v + 0.05 * (1e4 * v).sin());
    assert_eq!(read(coarse), [Kind::Learned]);
    assert_eq!(read(near), [Kind::Learned]);
    assert_eq!(read(moved), [Kind::Learned]);
}

/// Rounds to integers by one scale and zero, and back by others.
fn to_integers(s: &mut Sketch, x: &str, [scales, zeros]: [[f64; 2]; 2]) -> String {
    let [by, back] = scales.map(|scale| s.float(scale));
    let [zero, other] = zeros.map(|zero| s.typed(DType::I8, &[], [zero]));
    let q = s.op("QuantizeLinear", &[x, &by, &zero]);
    s.op("DequantizeLinear", &[&q, &back, &other])
}

/// Where numbers are rounded.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Angles,
    Waves,
    Products,
    Rotated,
    /// The scale is no constant.
    RotatedByComputedScale,
}

/// A layer whose queries and keys are rotated and rounded.
fn rotated(how: [[f64; 2]; 2], at: At) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let [q, k] = [q, k].map(|x| {
        let round = |s: &mut Sketch, x: String, here: At| match at == here {
            true => to_integers(s, &x, how),
            false => x,
        };
        let angles = angles(&mut s);
        let angles = round(&mut s, angles, At::Angles);
        let (cos, sin) = waves(&mut s, &angles);
        let cos = round(&mut s, cos, At::Waves);
        let other = swapped(&mut s, &x);
        let kept = s.op("Mul", &[&x, &cos]);
        let kept = round(&mut s, kept, At::Products);
        let turned = s.op("Mul", &[&other, &sin]);
        let all = s.op("Add", &[&kept, &turned]);
        let all = round(&mut s, all, At::Rotated);
        if at != At::RotatedByComputedScale {
            return all;
        }
        let [scale, _] = how[0];
        let scale = s.float(scale);
        let scale = s.op("Abs", &[&scale]);
        let integers = s.op("QuantizeLinear", &[&all, &scale]);
        s.op("DequantizeLinear", &[&integers, &scale])
    });
    let y = attend(&mut s, &q, &k, &v);
    let y = s.merged(&y);
    s.model(17, &[&y])
}

/// What is read of rotations whose numbers are rounded.
fn rotations(how: [[f64; 2]; 2], at: At) -> (usize, usize) {
    let found = found(&rotated(how, at));
    (found.rotary.len(), found.not_rotary.len())
}

#[test]
fn rotations_are_read_through_rounding_that_is_undone() {
    let by = |scale: f64| [[scale, scale], [0.0, 0.0]];
    assert_eq!(rotations(by(0.02), At::Products), (1, 0));
    assert_eq!(rotations(by(1.0 / 127.0), At::Waves), (1, 0));
    let others = [
        ([[0.02, 0.03], [0.0, 0.0]], At::Products),
        ([[0.02, 0.02], [0.0, 1.0]], At::Products),
        // Too coarse, and a range that cuts them off.
        (by(0.5), At::Waves),
        (by(0.5 / 127.0), At::Waves),
    ];
    for (i, (how, at)) in others.into_iter().enumerate() {
        let (read, refused) = rotations(how, at);
        assert!(read == 0 && refused > 0, "{i}");
    }
}

#[test]
fn a_rotation_by_quantized_angles_is_named_and_rescaled_by_exact_ones() {
    // Angles of eight bits end at 6.35.
    let model = rotated([[0.05; 2], [0.0; 2]], At::Angles);
    let found = found(&model);
    let counts = [
        &found.rotary.len(),
        &found.not_rotary.len(),
        &found.quantized.len(),
    ];
    // Both queries and keys are refused.
    assert_eq!(counts, [&0, &2, &1]);
    let report = crate::inspect::report(&model, &found);
    let kinds: Vec<Kind> = report.encodings.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Kind::Rope]);
    assert_eq!(report.encodings[0].fit_error, None);
    assert!(
        report
            .warnings
            .iter()
            .any(|why| why.contains("are quantized here"))
    );
    let form = Request {
        form: Some(Form::Contrib),
        ..Request::default()
    };
    // Another form has to compute the same.
    let why = rewrite(&mut model.clone(), &form)
        .err()
        .unwrap()
        .to_string();
    assert!(why.contains("not read as a rotation"), "{why}");
    for law in [Some(LawName::Linear), None] {
        let same = Request {
            to: Some(Kind::Rope),
            ..Request::default()
        };
        let request = law.map_or(same, |law| rescaled_by(law, 4.0));
        let mut model = model.clone();
        let done = rewrite(&mut model, &request).unwrap();
        assert_eq!(done.report.guarantee, Guarantee::NewFunction);
        let note = |why: &String| why.contains("left out: 2");
        assert!(done.report.warnings.iter().any(note));
        let mut sites = done.report.edits.iter();
        assert!(sites.all(|edit| edit.from != edit.to));
        let after = self::found(&model);
        assert!(after.quantized.is_empty() && !after.rotary.is_empty());
        let mut nodes = model.graph().nodes();
        assert!(!nodes.any(|(_, node)| node.is("QuantizeLinear")), "{law:?}");
    }
    // What is rounded and not undone is another function.
    for other in [[[0.05, 0.06], [0.0, 0.0]], [[0.05, 0.05], [0.0, 3.0]]] {
        let found = self::found(&rotated(other, At::Angles));
        assert!(
            found.rotary.is_empty() && found.quantized.is_empty(),
            "{other:?}"
        );
        assert!(!found.not_rotary.is_empty(), "{other:?}");
    }
}

/// Two layers that are rotated by quantized angles, the same or each by its own.
fn two_layers(are_shared: bool) -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    let by_angles = |s: &mut Sketch| {
        let angles = angles(s);
        let angles = to_integers(s, &angles, [[0.05; 2], [0.0; 2]]);
        waves(s, &angles)
    };
    let mut first = None;
    for _ in 0..2 {
        let (cos, sin) = match first.take().filter(|_| are_shared) {
            Some(first) => first,
            None => by_angles(&mut s),
        };
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let [q, k] = [q, k].map(|x| {
            let other = swapped(&mut s, &x);
            let parts = [s.op("Mul", &[&x, &cos]), s.op("Mul", &[&other, &sin])];
            s.op("Add", &[&parts[0], &parts[1]])
        });
        first = Some((cos, sin));
        let y = attend(&mut s, &q, &k, &v);
        let y = s.merged(&y);
        x = s.op("Add", &[&x, &y]);
    }
    s.model(17, &[&x])
}

#[test]
fn the_quantization_of_a_layer_that_is_not_chosen_stays() {
    let roundings = |model: &Model| {
        let nodes = model.graph().nodes();
        nodes.filter(|(_, node)| node.is("QuantizeLinear")).count()
    };
    let remove = |mut model: Model, layers: Option<&str>| {
        let request = Request {
            to: Some(Kind::None),
            layers: layers.map(|layers| layers.parse().unwrap()),
            ..Request::default()
        };
        let done = rewrite(&mut model, &request);
        done.map(|_| roundings(&model))
            .map_err(|why| why.to_string())
    };
    assert_eq!(remove(two_layers(false), Some("0")), Ok(1));
    assert_eq!(remove(two_layers(false), None), Ok(0));
    assert_eq!(remove(two_layers(true), None), Ok(0));
    assert_eq!(remove(two_layers(true), Some("0")), Ok(1));
    // Pairs that the other layer reads too are not scaled without it.
    let mut request = rescaled_by(LawName::Linear, 4.0);
    request.layers = Some("0".parse().unwrap());
    let why = rewrite(&mut two_layers(true), &request).unwrap_err();
    assert!(why.to_string().contains("quantized"), "{why}");
}

/// The scales of all roundings.
fn scales(model: &Model) -> Vec<f64> {
    let graph = model.graph();
    let nodes = graph.nodes().map(|(_, node)| node);
    let roundings = nodes.filter(|node| matches!(node.op(), "QuantizeLinear" | "DequantizeLinear"));
    let scale = |node: &Node| graph.constant(node.input(1)?)?.get_f64(0);
    roundings.filter_map(scale).collect()
}

#[test]
fn ranges_of_rounded_rotations_grow_with_the_factor_on_them() {
    let by = 1.0 / 127.0;
    let rescale = |law: LawName, at: At| {
        let mut model = rotated([[by; 2], [0.0; 2]], at);
        let done = rewrite(&mut model, &rescaled_by(law, 4.0));
        done.map(|_| model).map_err(|why| why.to_string())
    };
    // The factor of YaRN, by its formula.
    let factor = 0.1 * 4f64.ln() + 1.0;
    for (law, wanted) in [(LawName::Linear, by), (LawName::Yarn, factor * by)] {
        let model = rescale(law, At::Rotated).unwrap();
        let scales = scales(&model);
        // Those of queries and keys.
        assert_eq!(scales.len(), 4, "{law:?}");
        let far = |scale: &f64| (scale - wanted).abs() > 1e-7;
        assert!(!scales.iter().any(far), "{law:?}: {scales:?}");
    }
    assert!(rescale(LawName::Linear, At::RotatedByComputedScale).is_ok());
    let why = rescale(LawName::Yarn, At::RotatedByComputedScale).unwrap_err();
    assert!(why.contains("a range that cannot"), "{why}");
    // Cosines are exact then, and the ranges of products are those of queries and keys times the factor.
    for (at, roundings) in [(At::Waves, 0), (At::Products, 4)] {
        let model = rescale(LawName::Yarn, at).unwrap();
        let scales = scales(&model);
        assert_eq!(scales.len(), roundings);
        let far = |scale: &f64| (scale - factor * by).abs() > 1e-7;
        assert!(!scales.iter().any(far), "{scales:?}");
    }
}

#[test]
fn keys_and_values_of_earlier_tokens_may_be_integers() {
    use DType::{I8, I16, U8, U16};
    let names = ["past_key", "p"];
    let dtypes = [I8, U8, I16, U16];
    for (name, dtype) in names
        .into_iter()
        .flat_map(|name| dtypes.map(|dtype| (name, dtype)))
    {
        let mut s = Sketch::default();
        let x = s.embedded();
        let q = s.headed(&x);
        let [k, v] = ["k", "v"].map(|side| {
            let dims = ["batch", "3", "past", "8"];
            let past = s.input(&format!("{name}_{side}"), dtype, &dims);
            let (scale, zero) = (s.float(0.05), s.typed(dtype, &[], [0.0]));
            let past = s.op("DequantizeLinear", &[&past, &scale, &zero]);
            let new = s.headed(&x);
            s.concat(&[&past, &new], 2)
        });
        let y = s.weighted(&q, &k, &v);
        let found = found(&s.model(21, &[&y]));
        let site = &found.attention[0];
        assert!(site.past && !site.cross, "{name}: {dtype}");
    }
}
