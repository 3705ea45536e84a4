//! Rotations by several streams of positions.

use super::*;
use crate::detect::rotary::site::Streams;

/// Angles `[batch, 1, sequence, pairs]` of which pair i follows stream `of[i]` of three.
fn streamed(s: &mut Sketch, side: Side, of: [i64; PAIRS]) -> String {
    let ids = match side {
        Side::Query => s.input("position_ids", DType::I64, &["3", "batch", "sequence"]),
        Side::Key => "position_ids".to_owned(),
    };
    let at = s.cast(&ids, DType::F32);
    let at = s.unsqueeze(&at, &[-1]);
    let f = s.floats(&[1, PAIRS], (0..PAIRS).map(frequency));
    let all = s.op("Mul", &[&at, &f]);
    let parts: Vec<String> = (0i64..)
        .zip(of)
        .map(|(pair, stream)| {
            let one = s.int(stream);
            let angles = s.gather(&all, &one, 0);
            s.slice(&angles, -1, [pair, pair + 1, 1])
        })
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let angles = s.concat(&parts, -1);
    s.unsqueeze(&angles, &[1])
}

fn rotated(s: &mut Sketch, x: &str, angles: &str) -> String {
    let q = s.headed(x);
    let (cos, sin) = waves(s, angles);
    let other = swapped(s, &q);
    mixed(s, &q, &other, &cos, &sin)
}

fn streams(of: fn(&mut Sketch, &str, Side) -> String) -> Option<Streams> {
    let model = model(&Form {
        rotated: of,
        ..Form::default()
    });
    let found = found(&model);
    assert_eq!((found.rotary.len(), found.not_rotary.len()), (1, 0));
    found.rotary[0].streams.clone()
}

#[test]
fn pairs_are_shared_out_among_streams() {
    let sections = streams(|s, x, side| {
        let angles = streamed(s, side, [0, 1, 1, 2]);
        rotated(s, x, &angles)
    });
    let want = Streams {
        sections: vec![1, 2, 1],
        interleaved: false,
        owner: vec![0, 1, 1, 2],
    };
    assert_eq!(sections, Some(want));
    let by_rotation = streams(|s, x, side| {
        let angles = streamed(s, side, [0, 1, 2, 0]);
        rotated(s, x, &angles)
    });
    let want = Streams {
        sections: vec![2, 1, 1],
        interleaved: true,
        owner: vec![0, 1, 2, 0],
    };
    assert_eq!(by_rotation, Some(want));
}

#[test]
fn one_stream_is_none() {
    let second = streams(|s, x, side| {
        let angles = streamed(s, side, [1; PAIRS]);
        rotated(s, x, &angles)
    });
    assert_eq!(second, None);
    let plain = streams(|s, x, _| {
        let q = s.headed(x);
        halves(s, &q)
    });
    assert_eq!(plain, None);
}

/// Queries or keys that ONNX Runtime's operator rotates by three streams.
fn fused(s: &mut Sketch, x: &str, side: Side, attributes: &[(&str, A)]) -> String {
    let ids = match side {
        Side::Query => s.input("position_ids", DType::I64, &["3", "batch", "sequence"]),
        Side::Key => "position_ids".to_owned(),
    };
    let q = s.headed(x);
    let (cos, sin) = (table(s, 64, f64::cos), table(s, 64, f64::sin));
    s.with("ms.MRotaryEmbedding", &[&q, &ids, &cos, &sin], attributes)
}

type Fused = fn(&mut Sketch, &str, Side) -> String;

fn read(rotated: Fused) -> Found {
    found(&model(&Form {
        rotated,
        ..Form::default()
    }))
}

#[test]
fn an_operator_shares_out_pairs_in_sections_or_in_turns() {
    let by_sections: Fused =
        |s, x, side| fused(s, x, side, &[("mrope_section", A::Ints(&[1, 2, 1]))]);
    let in_turns: Fused = |s, x, side| {
        let sections = ("mrope_section", A::Ints(&[2, 1, 1]));
        fused(s, x, side, &[sections, ("mrope_layout", A::Int(1))])
    };
    for (rotated, owner) in [(by_sections, [0, 1, 1, 2]), (in_turns, [0, 1, 2, 0])] {
        let found = read(rotated);
        let [site] = &found.rotary[..] else {
            panic!("{:?}", found.not_rotary);
        };
        assert_eq!(site.form, posenc_encodings::kind::Form::Contrib);
        assert_eq!(site.streams.as_ref().unwrap().owner, owner);
    }
}

#[test]
fn an_operator_that_does_more_is_not_read_as_a_rotation() {
    let too_many: Fused = |s, x, side| fused(s, x, side, &[("mrope_section", A::Ints(&[2, 2, 1]))]);
    let other_turns: Fused = |s, x, side| {
        let sections = ("mrope_section", A::Ints(&[1, 2, 1]));
        fused(s, x, side, &[sections, ("mrope_layout", A::Int(2))])
    };
    let packed: Fused = |s, x, side| {
        let sections = ("mrope_section", A::Ints(&[1, 2, 1]));
        fused(s, x, side, &[sections, ("is_packed_batching", A::Int(1))])
    };
    let apart: Fused = |s, x, side| {
        let own: &[i64] = match side {
            Side::Query => &[1, 2, 1],
            Side::Key => &[2, 1, 1],
        };
        fused(s, x, side, &[("mrope_section", A::Ints(own))])
    };
    for (rotated, want) in [
        (too_many, "cannot be evaluated"),
        (other_turns, "cannot be evaluated"),
        (packed, "cannot be evaluated"),
        (apart, "other streams of positions"),
    ] {
        let found = read(rotated);
        assert!(found.rotary.is_empty());
        let why = &found.not_rotary[0].why;
        assert!(why.contains(want), "{why}");
    }
}
