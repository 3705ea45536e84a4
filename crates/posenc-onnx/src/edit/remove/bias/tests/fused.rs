//! Fused attention with a bias input.

use super::*;

/// Attention in one operator: queries, keys and values in heads, and so the result.
fn attend(s: &mut Sketch, domain: &str, operands: [&str; 3], bias: &str) -> String {
    let [q, k, v] = operands.map(|x| {
        let x = s.transpose(x, &[0, 2, 1, 3]);
        s.reshape(&x, &[0, 0, -1])
    });
    let heads = HEADS as i64;
    let y = match domain {
        "" => {
            let attrs = [
                ("q_num_heads", A::Int(heads)),
                ("kv_num_heads", A::Int(heads)),
            ];
            s.with("Attention", &[&q, &k, &v, bias], &attrs)
        }
        _ => {
            let inputs = [q.as_str(), &k, &v, "", "", bias];
            s.with(
                "ms.MultiHeadAttention",
                &inputs,
                &[("num_heads", A::Int(heads))],
            )
        }
    };
    let y = s.reshape(&y, &[0, 0, heads, -1]);
    s.transpose(&y, &[0, 2, 1, 3])
}

/// Layers of one operator of com.microsoft or ai.onnx, with a bias input.
fn fused(domain: &str, made: Made) -> Analyzed {
    let mut s = Sketch::default();
    s.input("attention_mask", DType::I64, &["batch", "sequence"]);
    let entering = std::cell::RefCell::new(None);
    let y = layers(&mut s, &|s, heads| {
        let mut entering = entering.borrow_mut();
        let bias = entering.get_or_insert_with(|| made(s, 1.0))[0].clone();
        attend(s, domain, [&heads.q, &heads.k, &heads.v], &bias)
    });
    Analyzed::new(s.model(23, &[&y]))
}

#[test]
fn a_fused_operator_loses_its_bias_and_keeps_its_mask() {
    for domain in ["", "ms"] {
        let alone = fused(domain, |s, f| vec![line(s, f)]);
        assert_eq!(alone.kinds(), [Kind::Alibi]);
        let bare = alone.without_encodings().unwrap();
        assert_eq!(bare.kinds(), []);
        // No operator on positions is left.
        assert!(!bare.operators().contains(&"Range"), "{domain}");
        let joined = fused(domain, |s, f| {
            let (line, mask) = (line(s, f), padding(s, -1e4));
            vec![s.op("Add", &[&line, &mask])]
        });
        assert_eq!(joined.kinds(), [Kind::Alibi]);
        let bare = joined.without_encodings().unwrap();
        assert_eq!(bare.kinds(), []);
        let context = bare.context();
        assert!(context.found.attention.iter().all(|site| site.mask.padding));
        // The mask gets its axis of queries once, for all layers.
        let expanded = bare
            .operators()
            .iter()
            .filter(|op| **op == "Expand")
            .count();
        assert_eq!(expanded, 1, "{domain}");
    }
}

/// What masks tokens beside a gated bias.
#[derive(Clone, Copy, PartialEq)]
enum Masked {
    Nothing,
    /// Keys: `[batch, 1, 1, key]`.
    Keys,
    /// Queries and keys: `[batch, 1, query, key]`.
    Both,
}

/// A bias under a gate of the queries, in one operator: `[batch, heads, query, key]`.
fn gated(domain: &str, masked: Masked) -> Analyzed {
    let mut s = Sketch::default();
    s.input("attention_mask", DType::I64, &["batch", "sequence"]);
    let y = layers(&mut s, &|s, heads| {
        let mut bias = gated_line(s, &heads.q);
        if masked != Masked::Nothing {
            let mut mask = padding(s, -1e4);
            if masked == Masked::Both {
                let queries = s.transpose(&mask, &[0, 1, 3, 2]);
                mask = s.op("Min", &[&mask, &queries]);
            }
            bias = s.op("Add", &[&bias, &mask]);
        }
        attend(s, domain, [&heads.q, &heads.k, &heads.v], &bias)
    });
    Analyzed::new(s.model(23, &[&y]))
}

#[test]
fn a_fused_operator_loses_a_gated_bias() {
    for domain in ["", "ms"] {
        let model = gated(domain, Masked::Nothing);
        assert_eq!(model.kinds(), [Kind::Alibi], "{domain}");
        let bare = model.without_encodings().unwrap();
        assert_eq!(bare.kinds(), []);
        let left = bare.operators();
        assert!(
            !left.contains(&"Range") && !left.contains(&"Sigmoid"),
            "{left:?}"
        );
    }
    // The standard operator broadcasts a mask over heads, and not over queries in ONNX Runtime; the other one does
    // neither.
    for (domain, masked) in [
        ("", Masked::Keys),
        ("ms", Masked::Keys),
        ("ms", Masked::Both),
    ] {
        let model = gated(domain, masked);
        assert_eq!(model.kinds(), [Kind::Alibi]);
        let why = model.without_encodings().map(drop).unwrap_err().to_string();
        assert!(why.contains("shape"), "{why}");
    }
    let bare = gated("", Masked::Both).without_encodings().unwrap();
    assert_eq!(bare.kinds(), []);
    let context = bare.context();
    assert!(context.found.attention.iter().all(|site| site.mask.padding));
}
