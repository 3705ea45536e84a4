//! Fused operators on integers.

use super::*;
use crate::detect::{Options, detect};
use posenc_encodings::kind::Kind;

/// Integers with their scale and their zero.
fn integers(s: &mut Sketch, dims: &[usize], scales: usize) -> [String; 3] {
    let count = dims.iter().product::<usize>();
    let whole = s.typed(DType::U8, dims, (0..count).map(|n| ((37 * n) % 101) as f64));
    let scale = s.floats(&[scales], vec![0.02; scales]);
    let zero = s.typed(DType::U8, &[scales], vec![50.0; scales]);
    [whole, scale, zero]
}

/// Embeddings and one layer of attention, with a scale for each column of the weights or for all.
fn quantized(scales: usize) -> Model {
    let mut s = Sketch::default();
    let ids = s.input("input_ids", DType::I64, &["batch", "sequence"]);
    let [words, places] = [30, 40].map(|rows| integers(&mut s, &[rows, HIDDEN], 1));
    let [gamma, beta] = [0; 2].map(|_| integers(&mut s, &[HIDDEN], 1));
    let of = |part: usize| {
        let all = [&words, &places, &gamma, &beta];
        all.map(|tensor| tensor[part].as_str())
    };
    let [values, scale, zeros] = [0, 1, 2].map(of);
    let inputs: Vec<&str> = [&ids, "", values[0], values[1], "", values[2], values[3], ""]
        .into_iter()
        .chain([scale[0], scale[1], "", scale[2], scale[3]])
        .chain([zeros[0], zeros[1], "", zeros[2], zeros[3]])
        .collect();
    let embedded = s.many("ms.QEmbedLayerNormalization", &inputs, &[], 2);
    let x = s.many("DynamicQuantizeLinear", &[&embedded[0]], &[], 3);
    let [weights, scale, zero] = integers(&mut s, &[HIDDEN, 3 * HIDDEN], scales);
    let bias = s.weights(&[3 * HIDDEN]);
    let inputs = [&x[0], &weights, &bias, &x[1], &scale, "", &x[2], &zero];
    let heads = [("num_heads", A::Int(HEADS as i64))];
    let y = s.with("ms.QAttention", &inputs, &heads);
    let y = s.op("Add", &[&embedded[0], &y]);
    s.model(17, &[&y])
}

#[test]
fn attention_and_embeddings_of_integers_are_those_of_what_they_stand_for() {
    for scales in [1, 3 * HIDDEN] {
        let model = quantized(scales);
        let plain = plain(&model, &BTreeMap::new()).expect("it is replaced");
        let left = operators(&plain);
        assert!(!left.iter().any(|op| op.starts_with('Q')), "{left:?}");
        let axes = plain
            .graph()
            .nodes()
            .filter(|(_, n)| n.is("DequantizeLinear"));
        let axes: Vec<i64> = axes.filter_map(|(_, n)| n.int("axis").unwrap()).collect();
        assert_eq!(axes.contains(&1), scales > 1, "{axes:?}");
        let found = detect(&plain, &Options::default());
        let kinds: Vec<Kind> = found.findings.iter().map(|f| f.encoding.kind()).collect();
        assert_eq!(kinds, [Kind::Learned]);
        assert_eq!(found.attention[0].heads, Some(HEADS));
        assert!(!found.attention[0].cross);
    }
}

#[test]
fn other_operators_on_integers_stay() {
    for (op, left_out, rotates) in [
        ("ms.QAttention", Some(3), 0),
        ("ms.QAttention", Some(4), 0),
        ("ms.QAttentions", None, 0),
        ("QAttention", None, 0),
        // A kernel for the processor does not rotate, whatever it says.
        ("ms.QAttention", None, 1),
    ] {
        let mut s = Sketch::default();
        let x = s.embedded();
        let x = s.many("DynamicQuantizeLinear", &[&x], &[], 3);
        let [weights, scale, zero] = integers(&mut s, &[HIDDEN, 3 * HIDDEN], 1);
        let bias = s.weights(&[3 * HIDDEN]);
        let mut inputs = [&x[0], &weights, &bias, &x[1], &scale, "", &x[2], &zero];
        if let Some(slot) = left_out {
            inputs[slot] = "";
        }
        let attributes = [
            ("num_heads", A::Int(HEADS as i64)),
            ("do_rotary", A::Int(rotates)),
        ];
        let y = s.with(op, &inputs, &attributes);
        let model = s.model(17, &[&y]);
        let plain = plain(&model, &BTreeMap::new());
        let kept = |plain: Model| operators(&plain).iter().any(|op| op.starts_with('Q'));
        assert!(plain.is_none_or(kept), "{op} {left_out:?} {rotates}");
    }
}

/// A product of tokens before their heads, `[tokens, heads, size]` each.
fn product(op: &str, attributes: &[(&str, i64)]) -> Model {
    model(|s, q, k| {
        let sides = [q, k].map(|x| {
            let first = s.int(0);
            let x = s.gather(x, &first, 0);
            s.transpose(&x, &[1, 0, 2])
        });
        let given = attributes.iter().map(|(name, n)| (*name, A::Int(*n)));
        let attributes: Vec<(&str, A)> = given.collect();
        s.with(op, &[&sides[0], &sides[1]], &attributes)
    })
}

#[test]
fn a_batch_behind_the_first_axis_is_put_before_it() {
    let both = [("transBatchA", 1), ("transBatchB", 1)];
    for transposed in [("transA", 1), ("transB", 1)] {
        let attributes = [both[0], both[1], transposed];
        let before = product("ms.FusedMatMul", &attributes);
        let plain = plain(&before, &BTreeMap::new()).expect("it is replaced");
        let left = plain.graph().nodes().find(|(_, n)| n.op() == "FusedMatMul");
        let left = left.unwrap().1;
        assert_eq!(left.int("transBatchA"), Ok(None));
        assert_eq!(left.int(transposed.0), Ok(Some(1)));
        assert!(difference(&before, &plain) < 1e-12);
    }
    for (op, attributes) in [
        ("ms.FusedMatMul", &[("transB", 1), ("transBatchA", 0)][..]),
        ("FusedMatMul", &[("transBatchA", 1), ("transB", 1)]),
    ] {
        let made = plain(&product(op, attributes), &BTreeMap::new());
        let is_kept = |made: Model| {
            let mut nodes = made.graph().nodes();
            let (_, node) = nodes.find(|(_, n)| n.op() == "FusedMatMul").unwrap();
            node.int("transBatchA").unwrap().is_some()
        };
        assert!(made.is_none_or(is_kept), "{op} {attributes:?}");
    }
}

#[test]
fn sound_is_longer_than_the_window_of_a_convolution() {
    let mut s = Sketch::default();
    let sound = s.input("input_values", DType::F32, &["batch", "samples"]);
    let x = s.unsqueeze(&sound, &[1]);
    let window = s.weights(&[SIZE, 1, 300]);
    let frames = s.with("Conv", &[&x, &window], &[("strides", A::Ints(&[20]))]);
    let shape = s.op("Shape", &[&frames]);
    // A rank that is known where the sizes are.
    let frames = s.op("Reshape", &[&frames, &shape]);
    let frames = s.transpose(&frames, &[2, 0, 1]);
    let flags = ["transBatchA", "transBatchB", "transB"].map(|name| (name, A::Int(1)));
    let y = s.with("ms.FusedMatMul", &[&frames, &frames], &flags);
    let plain = plain(&s.model(17, &[&y]), &BTreeMap::new()).expect("it is replaced");
    let mut nodes = plain.graph().nodes();
    let (_, node) = nodes.find(|(_, n)| n.op() == "FusedMatMul").unwrap();
    assert_eq!(node.int("transBatchA"), Ok(None));
}
