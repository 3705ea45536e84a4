//! Attention whose indices are no positions.

use super::*;
use crate::rewrite::rewrite;
use posenc_encodings::kind::Kind;

/// Attention after queries, keys and values were moved.
fn moved(attend: fn(&mut Sketch, &str, &str, &str) -> String) -> Model {
    model(&Form {
        rotated: |s, x, _| s.headed(x),
        attend,
        ..Form::default()
    })
}

fn to(kind: Kind, mut model: Model) -> Result<(), String> {
    let request = Request {
        to: Some(kind),
        ..Request::default()
    };
    let done = rewrite(&mut model, &request);
    done.map(|_| ()).map_err(|why| why.to_string())
}

/// Attention over everything.
fn open(s: &mut Sketch, q: &str, k: &str, v: &str) -> String {
    let scores = scores(s, q, k);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    s.op("MatMul", &[&weights, v])
}

fn turned(s: &mut Sketch, x: &str, axis: i64) -> String {
    s.slice(x, axis, [-1, -(1 << 40), -1])
}

#[test]
fn attention_out_of_the_order_of_the_tokens_is_not_read() {
    let keys = moved(|s, q, k, v| {
        let (k, v) = (turned(s, k, 2), turned(s, v, 2));
        open(s, q, &k, &v)
    });
    let queries = moved(|s, q, k, v| {
        let q = turned(s, q, 2);
        let y = open(s, &q, k, v);
        turned(s, &y, 2)
    });
    let twice = moved(|s, q, k, v| {
        let (k, v) = (s.concat(&[k, k], 2), s.concat(&[v, v], 2));
        open(s, q, &k, &v)
    });
    for (what, model) in [("keys", keys), ("queries", queries), ("keys", twice)] {
        let found = found(&model);
        assert!(found.attention.is_empty(), "{what}");
        let why = format!("its {what} are not in the order of the tokens");
        assert!(
            matches!(&found.misplaced[..], [w] if w.ends_with(&why)),
            "{:?}",
            found.misplaced
        );
        for kind in [Kind::Alibi, Kind::Rope, Kind::None] {
            let refused = to(kind, model.clone()).unwrap_err();
            assert!(refused.contains(&why), "{kind}: {refused}");
        }
    }
}

#[test]
fn attention_in_the_order_of_the_tokens_is_read() {
    for attend in [open, attend] {
        let model = moved(attend);
        let found = found(&model);
        assert_eq!((found.attention.len(), &found.misplaced[..]), (1, &[][..]));
        assert!(found.partial.is_empty());
        assert_eq!(to(Kind::Alibi, model), Ok(()));
    }
}

#[test]
fn queries_of_the_first_tokens_have_no_encoding_inserted() {
    let first = moved(|s, q, k, v| {
        let q = s.slice(q, 2, [0, 3, 1]);
        open(s, &q, k, v)
    });
    assert_eq!(found(&first).partial, [0]);
    let refused = to(Kind::Alibi, first.clone()).unwrap_err();
    assert!(refused.contains("not the last of the tokens"), "{refused}");
    assert_eq!(to(Kind::None, first), Ok(()));
    let last = moved(|s, q, k, v| {
        let q = s.slice(q, 2, [-3, 1 << 40, 1]);
        open(s, &q, k, v)
    });
    assert!(found(&last).partial.is_empty());
}

#[test]
fn features_that_are_read_backwards_are_not_rotated() {
    let backwards = moved(|s, q, k, v| {
        let (q, k) = (turned(s, q, -1), turned(s, k, -1));
        open(s, &q, &k, v)
    });
    for kind in [Kind::Rope, Kind::Shaw] {
        let refused = to(kind, backwards.clone()).unwrap_err();
        assert!(
            refused.contains("from the last feature to the first"),
            "{refused}"
        );
    }
    assert_eq!(to(Kind::Alibi, backwards), Ok(()));
}
