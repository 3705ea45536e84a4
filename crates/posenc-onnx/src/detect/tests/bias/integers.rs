//! Biases on scores that are products of integers.

use super::*;

/// Attention whose scores are a quantized product, of queries with so many scales, and a bias.
fn quantized(scales: usize) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scale = s.float(0.05);
    let zero = s.typed(DType::U8, &[], [120.0]);
    let [q, k] = [q, k].map(|x| s.op("QuantizeLinear", &[&x, &scale, &zero]));
    let each = s.floats(&[scales], vec![0.05; scales]);
    let product = s.op(
        "QLinearMatMul",
        &[&q, &each, &zero, &k, &scale, &zero, &scale, &zero],
    );
    // Behind a copy, nothing takes the numbers that the integers stand for.
    let product = match scales {
        1 => product,
        _ => s.op("Identity", &[&product]),
    };
    let scores = s.op("DequantizeLinear", &[&product, &scale, &zero]);
    let far = far(&mut s);
    let bias = sloped(&mut s, SLOPES, &far);
    let scores = s.op("Add", &[&scores, &bias]);
    let scores = causal(&mut s, &scores);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.model(21, &[&y])
}

#[test]
fn a_bias_on_a_product_of_integers_is_read() {
    let model = quantized(1);
    let kinds: Vec<Kind> = named(&model).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::Alibi]);
    assert_eq!(found(&model).attention[0].mask.causal, Some(true));
}

/// A product of rows with scales of their own is not read. The scores may have a bias then: that is said,
/// and nothing is rewritten.
#[test]
fn scores_that_cannot_be_computed_without_content_are_unread() {
    let mut model = quantized(HEADS);
    let read = found(&model);
    assert_eq!(kinds(&read), []);
    let why = "the scores cannot be computed without queries and keys";
    assert!(
        read.not_evaluated.iter().any(|w| w.contains(why)),
        "{read:?}"
    );
    let none = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    let refused = crate::rewrite::rewrite(&mut model, &none)
        .map(|_| ())
        .unwrap_err();
    assert!(refused.to_string().contains(why), "{refused}");
}
