//! Keys and values in pages, and the tokens of all sequences on one axis.

use super::*;
use crate::rewrite::rewrite;
use posenc_encodings::kind::{Form as Spelling, Kind};

/// Tokens `[tokens]` through one layer; queries, keys and values are packed or apart.
fn model(packed: bool, rotates: bool) -> Model {
    let mut s = Sketch::default();
    let ids = s.input("input_ids", DType::I64, &["tokens"]);
    let table = s.weights(&[30, HIDDEN]);
    let x = s.op("Gather", &[&table, &ids]);
    let mut project = |width: usize| {
        let w = s.weights(&[HIDDEN, width]);
        s.op("MatMul", &[&x, &w])
    };
    let given = match packed {
        true => [project(3 * HIDDEN), String::new(), String::new()],
        false => [0; 3].map(|_| project(HIDDEN)),
    };
    let [q, k, v] = given;
    let [keys, values] = ["past.key", "past.value"].map(|name| {
        let heads = HEADS.to_string();
        let size = SIZE.to_string();
        s.input(name, DType::F32, &["blocks", "block", &heads, &size])
    });
    let ends = s.input("cumulative_lengths", DType::I32, &["ends"]);
    let past = s.input("past_lengths", DType::I32, &["batch"]);
    let blocks = s.input("block_table", DType::I32, &["batch", "most"]);
    let mut inputs = vec![q, k, v, keys, values, ends, past, blocks];
    if rotates {
        inputs.extend([table_of(&mut s, f64::cos), table_of(&mut s, f64::sin)]);
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let heads = A::Int(HEADS as i64);
    let attrs = [
        ("num_heads", heads),
        ("kv_num_heads", A::Int(HEADS as i64)),
        ("do_rotary", A::Int(i64::from(rotates))),
    ];
    let y = s.many("ms.PagedAttention", &inputs, &attrs, 3);
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let y = s.op("MatMul", &[&y[0], &w]);
    s.model(21, &[&y])
}

fn table_of(s: &mut Sketch, of: fn(f64) -> f64) -> String {
    table(s, 64, of)
}

fn to(kind: Kind) -> Request {
    Request {
        to: Some(kind),
        ..Request::default()
    }
}

#[test]
fn rope_on_pages_is_read_and_rescaled_and_removed() {
    for packed in [false, true] {
        let mut given = model(packed, true);
        let read = found(&given);
        assert_eq!((read.attention.len(), read.rotary.len()), (1, 1));
        let site = &read.attention[0];
        assert_eq!((site.heads, site.head_dim), (Some(HEADS), Some(SIZE)));
        assert_eq!((site.mask.causal, site.past), (Some(true), true));
        assert_eq!(read.rotary[0].form, Spelling::Contrib);
        assert!(read.no_attention.is_empty() && read.mixers.is_empty());
        rewrite(&mut given, &rescaled_by(LawName::Linear, 2.0)).unwrap();
        let after = &found(&given).rotary[0].query.rotation.rope;
        let before = &read.rotary[0].query.rotation.rope;
        for (now, then) in after.inv_freq.iter().zip(&before.inv_freq) {
            assert!((2.0 * now / then - 1.0).abs() < 1e-5, "{now} {then}");
        }
        let mut bare = model(packed, true);
        rewrite(&mut bare, &to(Kind::None)).unwrap();
        let left = found(&bare);
        assert_eq!((left.attention.len(), left.rotary.len()), (1, 0));
    }
}

#[test]
fn nothing_is_inserted_where_an_axis_holds_the_tokens_of_several_sequences() {
    for kind in [Kind::Alibi, Kind::Rope, Kind::Sinusoidal, Kind::Shaw] {
        for rotates in [false, true] {
            if rotates && kind == Kind::Rope {
                continue;
            }
            assert!(
                rewrite(&mut model(false, rotates), &to(kind)).is_err(),
                "{kind}"
            );
        }
    }
}
