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
    let values = moved(|s, q, k, v| {
        let v = turned(s, v, 2);
        open(s, q, k, &v)
    });
    // Each token has the values of the one before.
    let shifted = moved(|s, q, k, v| {
        let ends = s.ints(&[0, 0, 1, 0, 0, 0, -1, 0]);
        let v = s.op("Pad", &[v, &ends]);
        open(s, q, k, &v)
    });
    // Keys and values stand one place after their tokens.
    let later = moved(|s, q, k, v| {
        let ends = s.ints(&[0, 0, 1, 0, 0, 0, -1, 0]);
        let [k, v] = [k, v].map(|x| s.op("Pad", &[x, &ends]));
        open(s, q, &k, &v)
    });
    // Keys alone do.
    let alone = moved(|s, q, k, v| {
        let ends = s.ints(&[0, 0, 1, 0, 0, 0, -1, 0]);
        let k = s.op("Pad", &[k, &ends]);
        open(s, q, &k, v)
    });
    let (tokens, of_keys, of_queries) = ("the tokens", "its keys", "its queries");
    for (what, of, model) in [
        ("keys", tokens, keys),
        ("queries", tokens, queries),
        ("keys", tokens, twice),
        ("values", of_keys, values),
        ("values", of_keys, shifted),
        ("keys", of_queries, later),
        ("keys", of_queries, alone),
    ] {
        let found = found(&model);
        assert!(found.attention.is_empty(), "{what}");
        let why = format!("its {what} are not in the order of {of}");
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

/// Why the only attention of a model is not read.
fn left_out(model: &Model) -> String {
    let found = found(model);
    assert!(found.attention.is_empty());
    assert_eq!(found.misplaced.len(), 1, "{:?}", found.misplaced);
    let refused = to(Kind::Alibi, model.clone()).unwrap_err();
    assert!(refused.starts_with(&found.misplaced[0]), "{refused}");
    found.misplaced[0].clone()
}

#[test]
fn heads_in_separate_branches_are_not_read() {
    let model = moved(|s, q, k, v| {
        let head = |s: &mut Sketch, x: &str, h: i64| s.slice(x, 1, [h, h + 1, 1]);
        let parts: Vec<String> = (0..HEADS as i64)
            .map(|h| {
                let [q, k, v] = [q, k, v].map(|x| head(s, x, h));
                open(s, &q, &k, &v)
            })
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        s.concat(&parts, 1)
    });
    let found = found(&model);
    assert!(found.attention.is_empty());
    assert_eq!(found.misplaced.len(), HEADS);
    let why = "heads in separate branches are not supported";
    assert!(found.misplaced.iter().all(|w| w.ends_with(why)));
    let refused = to(Kind::None, model).unwrap_err();
    assert!(refused.contains(why), "{refused}");
}

#[test]
fn layers_are_no_branches() {
    let two = moved(|s, q, k, v| {
        let y = open(s, q, k, v);
        let again = open(s, &y, k, v);
        s.op("Add", &[&y, &again])
    });
    assert_eq!(found(&two).attention.len(), 2);
}

#[test]
fn scores_from_several_products_are_not_read() {
    let features = moved(|s, q, k, v| {
        let part = |s: &mut Sketch, x: &str, from: i64, to: i64| s.slice(x, -1, [from, to, 1]);
        let sums = [(0, 3), (3, 1 << 40)].map(|(from, to)| {
            let (q, k) = (part(s, q, from, to), part(s, k, from, to));
            scores(s, &q, &k)
        });
        let scores = s.op("Add", &[&sums[0], &sums[1]]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        s.op("MatMul", &[&weights, v])
    });
    assert!(left_out(&features).ends_with("several products of content"));
}

#[test]
fn queries_that_are_lost_on_the_way_to_the_scores_are_not_read() {
    let rows = moved(|s, q, k, v| {
        let scores = scores(s, q, k);
        let shape = s.op("Shape", &[&scores]);
        let keys = s.slice(&shape, 0, [3, 4, 1]);
        let all = s.ints(&[-1]);
        let flat = s.concat(&[&all, &keys], 0);
        let flat = s.op("Reshape", &[&scores, &flat]);
        let weights = s.with("Softmax", &[&flat], &[("axis", A::Int(-1))]);
        // Without this, the spelling is read.
        let half = s.float(0.5);
        let weights = s.op("Mul", &[&weights, &half]);
        let weights = s.op("Reshape", &[&weights, &shape]);
        s.op("MatMul", &[&weights, v])
    });
    assert!(left_out(&rows).ends_with("cannot be followed to the scores"));
}

#[test]
fn heads_of_keys_that_are_joined_from_parts_count_together() {
    let joined = model(&Form {
        rotated: |s, x, _| {
            let w = [HEADS - 1, 1].map(|n| s.weights(&[HIDDEN, n * SIZE]));
            let parts = w.map(|w| s.op("MatMul", &[x, &w]));
            let x = s.concat(&[&parts[0], &parts[1]], -1);
            let shape = s.ints(&[0, 0, HEADS as i64, SIZE as i64]);
            let x = s.op("Reshape", &[&x, &shape]);
            s.transpose(&x, &[0, 2, 1, 3])
        },
        ..Form::default()
    });
    let site = &found(&joined).attention[0];
    assert_eq!((site.heads, site.kv_heads), (Some(HEADS), Some(HEADS)));
}

#[test]
fn queries_that_are_not_all_rows_of_their_scores_are_not_read() {
    let in_chunks = moved(|s, q, k, v| {
        let first = s.slice(q, 2, [0, 4, 1]);
        let rest = s.slice(q, 2, [4, 1 << 40, 1]);
        let (first, rest) = (scores(s, &first, k), scores(s, &rest, k));
        let all = s.concat(&[&first, &rest], 2);
        let weights = s.with("Softmax", &[&all], &[("axis", A::Int(-1))]);
        s.op("MatMul", &[&weights, v])
    });
    let found = found(&in_chunks);
    assert!(found.attention.is_empty());
    assert!(!found.misplaced.is_empty(), "{:?}", found.no_attention);
    to(Kind::Alibi, in_chunks).unwrap_err();
}

#[test]
fn keys_that_are_projected_in_parts_are_of_the_same_tokens() {
    let in_parts = model(&Form {
        rotated: |s, x, side| {
            if side == Side::Query {
                return s.headed(x);
            }
            let parts = [[0, 1, 1], [1, 1 << 40, 1]].map(|range| {
                let part = s.slice(x, 1, range);
                s.headed(&part)
            });
            s.concat(&[&parts[0], &parts[1]], 2)
        },
        ..Form::default()
    });
    let found = found(&in_parts);
    assert_eq!(found.attention.len(), 1);
    assert!(!found.attention[0].cross);
}
