//! What stands between a rotation and the scores.

use super::*;
use crate::inspect::inspect_encodings;
use crate::rewrite::rewrite;
use posenc_encodings::kind::Kind;

type Rotated = fn(&mut Sketch, &str, Side) -> String;

fn form(rotated: Rotated) -> Form {
    Form {
        rotated,
        ..Form::default()
    }
}

/// Queries or keys, rotated.
fn turned(s: &mut Sketch, x: &str) -> String {
    let q = s.headed(x);
    halves(s, &q)
}

/// A product of two reflections, which mixes all features of a head.
fn reflected(s: &mut Sketch, x: &str, shift: usize) -> String {
    let n = SIZE as f64;
    let cells = (0..SIZE * SIZE).map(|at| {
        let (i, j) = (at / SIZE, (at % SIZE + shift) % SIZE);
        f64::from(u8::from(i == j)) - 2.0 / n
    });
    let matrix = s.floats(&[SIZE, SIZE], cells);
    s.op("MatMul", &[x, &matrix])
}

/// Two products with weights, of which one alone would be the projection of what is rotated.
fn mixed_twice(s: &mut Sketch, x: &str) -> String {
    let [a, b] = [0; 2].map(|_| s.weights(&[SIZE, SIZE]));
    let y = s.op("MatMul", &[x, &a]);
    s.op("MatMul", &[&y, &b])
}

/// Puts features into another order before they are rotated: those in turn into halves.
fn from_turns(s: &mut Sketch, x: &str) -> String {
    let pairs = s.reshape(x, &[0, HEADS as i64, -1, PAIRS as i64, 2]);
    let turned = s.transpose(&pairs, &[0, 1, 2, 4, 3]);
    s.reshape(&turned, &[0, HEADS as i64, -1, SIZE as i64])
}

/// Features picked by constant numbers.
fn picked_by(s: &mut Sketch, x: &str, numbers: &[i64]) -> String {
    let numbers = s.ints(numbers);
    s.gather(x, &numbers, 3)
}

/// The layout of a rotation of halves, and that in which it rotates where it is another.
fn layouts(order: impl Fn(&mut Sketch, &str, Side) -> String) -> Vec<[Option<String>; 2]> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let [q, k] = [(q, Side::Query), (k, Side::Key)].map(|(x, side)| {
        let x = order(&mut s, &x, side);
        halves(&mut s, &x)
    });
    let y = attend(&mut s, &q, &k, &v);
    let y = s.merged(&y);
    let model = s.model(17, &[&y]);
    let entries = inspect_encodings(&model, &found(&model));
    let word = |params: &serde_json::Map<String, serde_json::Value>, name: &str| {
        Some(params.get(name)?.as_str()?.to_owned())
    };
    entries
        .iter()
        .map(|e| ["layout", "rotated_layout"].map(|name| word(&e.params, name)))
        .collect()
}

#[test]
fn the_layout_is_that_of_the_features_that_the_projection_gives() {
    let half = || Some("half".to_owned());
    let turns = || Some("interleaved".to_owned());
    assert_eq!(layouts(|_, x, _| x.to_owned()), [[half(), None]]);
    assert_eq!(layouts(|s, x, _| from_turns(s, x)), [[turns(), half()]]);
    let odd = |s: &mut Sketch, x: &str, _| picked_by(s, x, &[0, 2, 4, 6, 1, 3, 5, 7]);
    assert_eq!(layouts(odd), [[turns(), half()]]);
    // No layout that has a name, one for queries alone, and no other order at all.
    let other = |s: &mut Sketch, x: &str, _| picked_by(s, x, &[0, 2, 4, 6, 3, 1, 5, 7]);
    assert_eq!(layouts(other), [[half(), None]]);
    let queries = |s: &mut Sketch, x: &str, side: Side| match side {
        Side::Query => from_turns(s, x),
        Side::Key => x.to_owned(),
    };
    assert_eq!(layouts(queries), [[half(), None]]);
    let same = |s: &mut Sketch, x: &str, _| picked_by(s, x, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(layouts(same), [[half(), None]]);
}

#[test]
fn rope_is_read_behind_a_change_of_basis_and_a_norm() {
    let cases: [(&str, Rotated); 4] = [
        ("a reflection", |s, x, _| {
            let q = turned(s, x);
            reflected(s, &q, 3)
        }),
        ("halves that are interleaved", |s, x, _| {
            let q = turned(s, x);
            let apart = s.reshape(&q, &[0, HEADS as i64, -1, 2, PAIRS as i64]);
            let moved = s.transpose(&apart, &[0, 1, 2, 4, 3]);
            s.reshape(&moved, &[0, HEADS as i64, -1, SIZE as i64])
        }),
        ("zeros that fill up the features of a head", |s, x, _| {
            let q = turned(s, x);
            let pads = s.ints(&[0, 0, 0, 0, 0, 0, 0, 2]);
            s.op("Pad", &[&q, &pads])
        }),
        ("a norm of each head", |s, x, _| {
            let q = turned(s, x);
            let weight = s.weights(&[SIZE]);
            s.op("RMSNormalization", &[&q, &weight])
        }),
    ];
    for (name, rotated) in cases {
        let found = found(&model(&form(rotated)));
        assert_eq!(found.rotary.len(), 1, "{name}: {:?}", found.not_rotary);
    }
}

/// Halves whose cos and sin are multiplied by a factor on one side, without another scale.
fn scaled(on: Side, factor: f64) -> Model {
    let turn = |s: &mut Sketch, x: &str, factor: f64| {
        let (q, angles) = (s.headed(x), angles(s));
        let (cos, sin) = waves(s, &angles);
        let factor = s.float(factor);
        let [cos, sin] = [&cos, &sin].map(|wave| s.op("Mul", &[wave, &factor]));
        let other = swapped(s, &q);
        mixed(s, &q, &other, &cos, &sin)
    };
    let mut s = Sketch::default();
    let x = s.embedded();
    let [on_query, on_key] = match on {
        Side::Query => [factor, 1.2],
        Side::Key => [1.2, factor],
    };
    let (q, k, v) = (
        turn(&mut s, &x, on_query),
        turn(&mut s, &x, on_key),
        s.headed(&x),
    );
    let y = s.weighted(&q, &k, &v);
    s.model(17, &[&y])
}

#[test]
fn a_scale_of_the_scores_in_cos_and_sin_is_told_from_their_factor_but_not_edited() {
    let scale = (SIZE as f64).powf(-0.5);
    for side in [Side::Query, Side::Key] {
        let mut model = scaled(side, 1.2 * scale);
        let read = found(&model);
        assert_eq!(read.rotary.len(), 1, "{:?}", read.not_rotary);
        let factor = read.rotary[0].query.rotation.rope.attention_factor;
        assert!((factor - 1.2).abs() < 1e-6, "{factor}");
        assert!(rewrite(&mut model, &rescaled_by(LawName::Linear, 2.0)).is_err());
        let none = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        assert!(rewrite(&mut model, &none).is_err());
    }
    for factor in [0.9, scale, 1.2 * scale * scale] {
        let read = found(&scaled(Side::Query, factor));
        assert_eq!(
            (read.rotary.len(), read.not_rotary.len()),
            (0, 1),
            "{factor}"
        );
    }
}

/// What is done to single heads, with heads and tokens on one axis meanwhile.
fn by_head(s: &mut Sketch, x: &str, work: fn(&mut Sketch, &str) -> String) -> String {
    let tokens = s.transpose(x, &[0, 2, 1, 3]);
    let packed = s.reshape(&tokens, &[0, 0, HIDDEN as i64]);
    let heads = s.reshape(&packed, &[0, -1, SIZE as i64]);
    let heads = work(s, &heads);
    let packed = s.reshape(&heads, &[0, -1, HIDDEN as i64]);
    let apart = s.reshape(&packed, &[0, 0, HEADS as i64, SIZE as i64]);
    s.transpose(&apart, &[0, 2, 1, 3])
}

#[test]
fn rope_is_read_behind_a_norm_of_heads_that_share_an_axis_with_tokens() {
    let cases: [(&str, Rotated); 2] = [
        ("a norm", |s, x, _| {
            let q = turned(s, x);
            by_head(s, &q, |s, heads| {
                let weight = s.weights(&[SIZE]);
                s.op("RMSNormalization", &[heads, &weight])
            })
        }),
        ("a norm in parts", |s, x, _| {
            let q = turned(s, x);
            by_head(s, &q, |s, heads| {
                let squared = s.op("Mul", &[heads, heads]);
                let last = s.ints(&[-1]);
                let mean = s.op("ReduceMean", &[&squared, &last]);
                let root = s.op("Sqrt", &[&mean]);
                s.op("Div", &[heads, &root])
            })
        }),
    ];
    for (name, rotated) in cases {
        let mut model = model(&form(rotated));
        let found = found(&model);
        assert_eq!(found.rotary.len(), 1, "{name}: {:?}", found.not_rotary);
        let to_none = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        rewrite(&mut model, &to_none).unwrap_or_else(|why| panic!("{name}: {why}"));
        let waves = model.graph().nodes().filter(|(_, n)| n.is("Cos"));
        assert_eq!(waves.count(), 0, "{name}");
    }
}

#[test]
fn what_is_not_read_behind_or_as_a_rotation_is_not_changed() {
    const OTHER: &str = "position acts on queries or keys here, by no rotation that was read";
    const BASES: &str = "brought to different bases";
    let cases: [(&str, Rotated, &str); 5] = [
        (
            "a basis for the keys alone",
            |s, x, side| {
                let q = turned(s, x);
                if side == Side::Key {
                    reflected(s, &q, 3)
                } else {
                    q
                }
            },
            BASES,
        ),
        (
            "another basis for the keys",
            |s, x, side| {
                let q = turned(s, x);
                reflected(s, &q, if side == Side::Key { 3 } else { 2 })
            },
            BASES,
        ),
        (
            "weights behind the rotation",
            |s, x, _| {
                let q = turned(s, x);
                mixed_twice(s, &q)
            },
            OTHER,
        ),
        (
            "gates behind weights",
            |s, x, _| {
                let q = s.headed(x);
                let angles = angles(s);
                let (cos, _) = waves(s, &angles);
                let q = s.op("Mul", &[&q, &cos]);
                mixed_twice(s, &q)
            },
            OTHER,
        ),
        (
            "matrices of positions that are counted from the mask",
            |s, x, side| {
                let mask = match side {
                    Side::Query => s.input("attention_mask", DType::I64, &["batch", "sequence"]),
                    Side::Key => "attention_mask".to_owned(),
                };
                let (q, along) = (s.headed(x), s.int(1));
                let at = s.op("CumSum", &[&mask, &along]);
                let angles = angles_of(s, &at);
                let angles = s.unsqueeze(&angles, &[1, -1]);
                let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
                let negative = s.op("Neg", &[&sin]);
                let rows = [[&cos, &negative], [&sin, &cos]].map(|row| {
                    let row = s.concat(&row.map(String::as_str), -1);
                    s.unsqueeze(&row, &[-2])
                });
                let matrices = s.concat(&rows.each_ref().map(String::as_str), -2);
                let shape = s.op("Shape", &[&q]);
                let pairs = s.reshape(&q, &[0, 0, 0, SIZE as i64 / 2, 2]);
                let pairs = s.unsqueeze(&pairs, &[-1]);
                let turned = s.op("MatMul", &[&matrices, &pairs]);
                s.op("Reshape", &[&turned, &shape])
            },
            OTHER,
        ),
    ];
    for (name, rotated, want) in cases {
        let model = model(&form(rotated));
        let none = Request {
            to: Some(Kind::None),
            ..Request::default()
        };
        for request in [none, rescaled_by(LawName::Linear, 2.0)] {
            let done = rewrite(&mut model.clone(), &request);
            let why = done.map(|_| "rewritten").map_err(|why| why.to_string());
            assert!(
                why.as_ref().is_err_and(|why| why.contains(want)),
                "{name}: {why:?}"
            );
        }
    }
}

#[test]
fn weights_alone_are_no_position() {
    let found = found(&model(&form(|s, x, _| {
        let q = s.headed(x);
        mixed_twice(s, &q)
    })));
    assert_eq!(found.not_rotary, []);
}
